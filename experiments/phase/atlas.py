"""Blanchard & Tanner 2012: the sparsity at which half of the signals are recovered, over
undersampling, designs, signals and solvers; and the fastest solver that recovers them."""

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from chex import Array, PRNGKey
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator
from xarray import DataArray, Dataset

import jaxht
from experiments.common import (
    SOLVERS,
    BaseConfig,
    Count,
    Counts,
    Failure,
    Fractions,
    Positive,
    Session,
    SolverNames,
    plots,
    timed,
)
from experiments.common.claims import Claim, Finding, Verdict
from experiments.common.recovery import draw
from experiments.phase.transitions import Rates, bisect, find_window, fit_logistic, spread
from jaxht import LeastSquares, LinearOperator, Stop, ensembles, phase_diagram, sweep
from jaxht.baselines import l1_transition

# A signal is recovered where no entry is wrong by more than this share of the largest one.
TOLERANCE = 1e-3
# A run ends where the residual is this share of that of x = 0: more steps change no success. Solvers
# that are not told K may fit y by as many nonzeros as there are measurements: near the transition of
# AMP residuals of 3.4e-6 were seen before an error was below TOLERANCE.
RESIDUAL = 1e-5
RESIDUAL_WITHOUT_K = 2e-6
# Turns of the runs that are timed, and how often each is: the median counts.
TIMED_STEPS = 20
TIMED_RUNS = 5


# Nonzeros of a column of a sparse A, as in Blanchard, Tanner & Wei 2015.
DEGREE = 7
# The ratio of neighbouring magnitudes of a decaying signal: the 135th is 1e-3 of the first.
DECAY = 0.95


def complex_gaussian(key: PRNGKey, n: int, d: int, variance: Any) -> Array:
    """Draw a complex Gaussian A."""
    return ensembles.gaussian(key, n, d, variance=variance, dtype=complex)


def sparse_columns(key: PRNGKey, n: int, d: int) -> Array:
    """Draw an A with DEGREE nonzeros in each column, and norms of 1."""
    return ensembles.sparse_columns(key, n, d, min(DEGREE, n))


def as_matrix(
    operator: Callable[..., LinearOperator], key: PRNGKey, n: int, d: int, variance: Any
) -> Array:
    """Draw rows of a transform, as a matrix."""
    A = operator(key, n, d, variance=variance)
    return A.columns(jnp.arange(d)).T


class Kind(NamedTuple):
    """A kind of A.

    Attributes:
        draw: (key, n, d, variance) -> A; without a variance where ``needs_n``.
        label: in figures.
        is_complex: whether A is complex.
        needs_n: whether A must be drawn with n rows, so that one program serves one n.
    """

    draw: Callable[..., Any]
    label: str
    is_complex: bool = False
    needs_n: bool = False


Design = Literal[
    "gaussian",
    "bernoulli",
    "sparse_columns",
    "partial_dct",
    "partial_dct_operator",
    "hadamard",
    "complex_gaussian",
    "partial_dft",
]
DESIGNS: dict[str, Kind] = {
    "gaussian": Kind(ensembles.gaussian, "Gaussian $A$"),
    "bernoulli": Kind(ensembles.rademacher, r"Bernoulli $A$"),
    "sparse_columns": Kind(
        sparse_columns, f"{DEGREE} nonzeros in each column of $A$", needs_n=True
    ),
    "partial_dct": Kind(ensembles.partial_dct, "partial DCT"),
    "partial_dct_operator": Kind(ensembles.partial_dct_operator, "partial DCT", needs_n=True),
    "hadamard": Kind(partial(as_matrix, ensembles.partial_hadamard_operator), "partial Hadamard"),
    "complex_gaussian": Kind(complex_gaussian, "complex Gaussian $A$", is_complex=True),
    "partial_dft": Kind(
        partial(as_matrix, ensembles.partial_dft_operator), "partial DFT", is_complex=True
    ),
}
Signal = Literal["signs", "gaussian", "uniform", "decaying"]
# Signs are phases where A is complex. A trial takes the place of its kind in this list, traced.
SIGNALS = ("signs", "gaussian", "uniform", "decaying")
# Those that are drawn in every program, and those that are drawn where a configuration has them.
DRAWN = ("signs", "gaussian")
FURTHER: dict[str, Callable[..., Array]] = {
    "uniform": ensembles.uniform_signal,
    "decaying": partial(ensembles.decaying_signal, ratio=DECAY),
}
SIGNAL_LABELS = {
    "signs": "signs",
    "gaussian": "Gaussian values",
    "uniform": "uniform magnitudes",
    "decaying": f"magnitudes ${DECAY:g}^j$",
}
COMPLEX_LABELS = {
    **SIGNAL_LABELS,
    "signs": "phases",
    "gaussian": "complex Gaussian values",
}
# An arrow above a point that a curve is at least at.
AT_LEAST: dict[str, Any] = {
    "text": "\N{UPWARDS ARROW}",
    "xytext": (0, 3),
    "textcoords": "offset points",
    "ha": "center",
    "va": "bottom",
}
L1_LINE: dict[str, Any] = {"color": plots.BLACK, "linewidth": 0.9, "linestyle": (0, (4, 2))}


class Config(BaseConfig):
    """The curves, and the cells in which solvers are compared."""

    d: Count  # dimension
    designs: Annotated[list[Design], Field(min_length=1)]  # kinds of A; each trial has its own
    signals: Annotated[list[Signal], Field(min_length=1)]  # kinds of nonzeros
    solvers: SolverNames  # which ones
    n: Counts  # numbers of measurements, delta = n/d
    # spacing: K to which bisection finds the ends of a transition, as a share of n.
    spacing: Annotated[float, Field(gt=0, lt=1)]
    num_k: Count  # K that are tried from one end to the other
    num_signals: Count  # trials for each K
    # beyond_l1: the largest K that is tried, in units of that up to which l1 minimisation recovers
    # signals of a large d.
    beyond_l1: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.5
    # rho: K/n of the cells in which solvers are compared, below their transitions; absent: none.
    rho: Fractions | None = None
    max_steps: Count  # of every solver, or fewer where one costs several gradients
    # look_every: steps between looks at whether a run can still reach the truth within max_steps;
    # absent: none.
    look_every: Annotated[int, Field(ge=2, multiple_of=2)] | None = None
    # gap_rtol: duality gap, as a share of f, at which a solver that knows it ends.
    gap_rtol: Positive | None = None
    # round_n: one compile serves all n that agree when rounded up to a multiple of it, except with
    # solvers that are not told K, and find what they need from n/d, and with kinds of A that must
    # be drawn with n rows.
    round_n: Count
    # timed_n: n at which steps are timed, on a machine with nothing else to do; for others the time
    # is interpolated. The fastest solver is that of the least time then; absent: that of the fewest
    # steps.
    timed_n: Counts | None = None

    @model_validator(mode="after")
    def _check_n(self) -> Self:
        if self.d % self.round_n or max(self.n) >= self.d:
            raise ValueError(f"d must be a multiple of round_n, and above all n; got {self.d}")
        if "hadamard" in self.designs and self.d & (self.d - 1):
            raise ValueError(f"d must be a power of 2 for hadamard; got {self.d}")
        if self.timed_n and not self.rho:
            raise ValueError("timed_n needs cells, rho")
        return self


def largest_k(config: Config, design: str, n: int) -> int:
    """Return the largest K that is tried."""
    l1 = l1_transition(n / config.d, is_complex=DESIGNS[design].is_complex).rho
    return min(n, math.ceil(config.beyond_l1 * l1 * n))


def axis_k(cell: sweep.Cell) -> Any:
    """Return the coordinate k of a cell."""
    return cell["k"]


def draw_problem(
    key: PRNGKey, cell: sweep.Cell, d: int, design: str, signals: Sequence[str] = DRAWN
) -> ensembles.PlantedProblem:
    """Draw a problem without noise; the columns of A have norms of about 1.

    Args:
        key: of the trial.
        cell: signal, n and k.
        d: number of columns.
        design: a kind of A.
        signals: kinds of signals that the program has beside DRAWN.
    """
    kind = DESIGNS[design]

    def signal(key: PRNGKey, d: int, K: Any) -> Array:
        dtype = complex if kind.is_complex else float
        values = ensembles.gaussian_signal(key, d, K, dtype=dtype)
        x = jnp.where(cell["signal"] == SIGNALS.index("signs"), jnp.sign(values), values)
        for name in sorted({*signals} - {*DRAWN}):
            other = FURTHER[name](key, d, K, dtype=dtype)
            x = jnp.where(cell["signal"] == SIGNALS.index(name), other, x)
        return x

    if kind.needs_n:
        drawn = partial(kind.draw, n=cell.bounds["n"], d=d)
        return ensembles.planted(key, drawn, partial(signal, d=d, K=cell["k"]))
    return draw(key, cell, d, axis_k, "trial", design=kind.draw, signal=signal)


def is_recovered(x: Array, x_true: Array) -> Array:
    """Return ``||x - x_true||_inf < TOLERANCE ||x_true||_inf``."""
    return jnp.max(jnp.abs(x - x_true)) < TOLERANCE * jnp.max(jnp.abs(x_true))


def method_of(config: Config, design: str, solver: str) -> sweep.Method:
    """Return a solver as a sweep takes it."""

    def k_max(cell: sweep.Cell) -> int:
        return largest_k(config, design, cell.bounds["n"])

    return SOLVERS[solver].method(k_max, config.d, axis_k)


# ---- what is computed ----


def run(config: Config, session: Session) -> Dataset:
    """Count what every solver recovers along its curves; perhaps time its steps.

    Of m processes that share a store each takes every m-th design and solver. A call without a
    share, after them, puts their results together.
    """
    pairs: list[tuple[str, str]] = [*itertools.product(config.designs, config.solvers)]
    first, every = session.options.get("shard", (0, 1))
    counts = {pair: measure(config, session, *pair) for pair in pairs[first::every]}
    if every > 1:
        raise Failure("this part is done: when all are, give the command without --shard")
    results = _over_pairs(config, counts)
    if config.timed_n:
        seconds = {}
        with session.parts(len(pairs)) as part:
            for design, solver in pairs:
                compute = partial(time_steps, config, config.timed_n, design, solver)
                seconds[design, solver] = part(f"seconds/{design}-{solver}", compute)
        results = results.merge(_over_pairs(config, seconds))
    return results


def _over_pairs(config: Config, found: Mapping[tuple[str, str], Dataset]) -> Dataset:
    """What was found for each design and solver, over both."""
    join: dict[str, Any] = {"join": "outer", "fill_value": {"successes": 0, "trials": 0}}
    solver = xarray.Variable("solver", config.solvers)
    design = xarray.Variable("design", config.designs)
    rows = [
        xarray.concat([found[design, solver] for solver in config.solvers], solver, **join)
        for design in config.designs
    ]
    return xarray.concat(rows, design, **join)


class Curve(NamedTuple):
    """A curve at one n, of one solver and kind of A.

    Attributes:
        signal: its place in SIGNALS.
        n: number of measurements.
    """

    signal: int
    n: int


def trial_of(config: Config, design: str, solver: str) -> sweep.Run:
    """Return the trial of a solver."""
    row = SOLVERS[solver]
    steps = max(1, config.max_steps // row.passes)
    residual = RESIDUAL if row.own_k is None else RESIDUAL_WITHOUT_K

    def stop(cell: sweep.Cell) -> Stop:
        target = residual**2 * cell["k"] / 2  # f(0) is about k / 2
        return Stop(max_steps=steps, target_value=target, gap_rtol=config.gap_rtol)

    return sweep.Recovery(
        partial(draw_problem, d=config.d, design=design, signals=config.signals),
        {solver: method_of(config, design, solver)},
        objective=partial(LeastSquares, mean=False),
        stop=stop,
        metrics={"success": is_recovered},
        look_every=config.look_every,
    )


def measure(config: Config, session: Session, design: str, solver: str) -> Dataset:
    """Count what a solver recovers: for which K depends on what was recovered before.

    Each round is a sweep into one store. A call that goes on goes through the same rounds, and
    reads what is there.
    """
    trial = trial_of(config, design, solver)
    serves_one_n = DESIGNS[design].needs_n or SOLVERS[solver].own_k is not None
    signals = [SIGNALS.index(name) for name in config.signals]
    curves = [Curve(*pair) for pair in itertools.product(signals, config.n)]
    most = {n: largest_k(config, design, n) for n in config.n}
    tried: dict[Curve, set[int]] = {curve: set() for curve in curves}

    def solve(wanted: Mapping[Curve, set[int]]) -> Dataset:
        """Count for what is wanted, and for all that was tried before."""
        for curve, k in wanted.items():
            tried[curve] |= k
        results = session.sweep(
            trial,
            {
                "solver": [solver],
                "signal": signals,
                "n": config.n,
                "k": sorted(set().union(*tried.values())),
            },
            part=f"{design}-{solver}",
            num_trials=config.num_signals,
            seed=config.seed,
            round_up={"n": 1 if serves_one_n else config.round_n},
            problem=("signal", "n", "k"),
            shared=(),  # nothing
            shard=(0, 1),
            where=lambda cell: cell["k"] in tried[Curve(cell["signal"], cell["n"])],
        )
        return count(results.isel(solver=0, drop=True))

    rates: dict[Curve, dict[int, float]] = {curve: {} for curve in curves}
    while wanted := _next_round(config, rates, most):
        counts = solve(wanted)
        rates = {curve: _rates_of(counts.sel(curve._asdict())) for curve in curves}
    wanted = {}
    for curve in curves:
        window = find_window(rates[curve], most[curve.n])
        last = min(window.high, most[curve.n])
        compared = phase_diagram.num_nonzeros(np.array(config.rho or []), curve.n)
        wanted[curve] = spread(window, config.num_k, most[curve.n])
        wanted[curve] |= {k for k in compared.tolist() if k <= last}
    return solve(wanted).assign_coords(signal=config.signals)


def _next_round(
    config: Config, rates: Mapping[Curve, Rates], most: Mapping[int, int]
) -> dict[Curve, set[int]]:
    """The K that bisection tries next, of the curves whose ends are not known."""
    wanted = {}
    for curve, known in rates.items():
        spacing = max(1, round(config.spacing * curve.n))
        if k := bisect(known, most[curve.n], spacing):
            wanted[curve] = k
    return wanted


def _rates_of(counts: Dataset) -> dict[int, float]:
    """The rate of each K of a curve that was tried."""
    ran = counts.sel(k=counts.trials > 0)
    rates = ran.successes / ran.trials
    return dict(zip(ran.k.values.tolist(), rates.values.tolist(), strict=True))


def count(results: Dataset) -> Dataset:
    """Count the trials and successes of cells, with the mean number of steps of the successes."""
    counts = sweep.success_rate(results)[["successes", "trials"]]
    total = results.num_steps.where(results.success, 0).sum("trial")
    steps = total / counts.successes.where(counts.successes > 0)
    return counts.assign(steps=steps.astype(np.float32)).drop_attrs()


def time_steps(config: Config, n: Sequence[int], design: str, solver: str) -> Dataset:
    """Time a step of a solver for one problem at each n and K/n; nothing of this process runs
    beside it."""
    seconds = [_time_steps_at(config, at, design, solver) for at in n]
    values = {"seconds_per_step": (("timed_n", "rho"), np.array(seconds, np.float32))}
    return Dataset(values, {"timed_n": list(n), "rho": config.rho})


def _time_steps_at(config: Config, n: int, design: str, solver: str) -> list[float]:
    drawn, solved = programs_for(config, design, solver, n)
    seconds = []
    for rho in config.rho or []:
        K = phase_diagram.num_nonzeros(rho, n)
        k = jnp.minimum(K, largest_k(config, design, n))
        problem = drawn(k)
        num_steps = int(solved(problem, k))
        taken = [timed(solved, problem, k)[1] for _ in range(TIMED_RUNS)]
        seconds.append(statistics.median(taken) / max(num_steps, 1))
    return seconds


def programs_for(
    config: Config, design: str, solver: str, n: int
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the program that draws a problem with K nonzeros, and that which counts the first
    steps of a run."""
    method = method_of(config, design, solver)
    key = jax.random.key(config.seed)
    stop = Stop(max_steps=TIMED_STEPS)

    def cell_of(k: Any) -> sweep.Cell:
        return sweep.Cell({"signal": 0, "n": n, "k": k}, {"n": n}, key)

    def drawn(k: Array) -> ensembles.PlantedProblem:
        return draw_problem(key, cell_of(k), config.d, design, config.signals)

    def solved(problem: ensembles.PlantedProblem, k: Array) -> Array:
        f = LeastSquares(problem.A, problem.y, mean=False)
        constraint, chosen = method(f, cell_of(k))
        return jaxht.solve(f, constraint, chosen, stop=stop).num_steps

    return jax.jit(drawn), jax.jit(solved)


# ---- what is shown ----


def summarise(results: Dataset, config: Config) -> Dataset:
    """Find the curves, the steps along them, and what each solver takes in the cells.

    Returns:
        ``estimate``, ``lower`` and ``upper`` of the K/n at which half of the signals are recovered,
        and ``steps`` of the recovered ones about there, over design, solver, signal and n; where
        steps were timed, also ``seconds``, what these steps take for one problem. Where a curve
        lies beyond all K that were tried, ``is_beyond``, the estimate is the largest of them, and
        there is no upper end. Of cells over rho as well ``cell_rate`` and ``cell_cost``, the
        seconds or steps of a solver.
    """
    dims = ("design", "solver", "signal", "n")
    results = results.transpose(*dims, "k", ...)
    successes, trials = results.successes, results.trials
    crossings = np.empty((3, *(results.sizes[dim] for dim in dims)))
    is_beyond = np.zeros(crossings.shape[1:], bool)
    for place in np.ndindex(is_beyond.shape):
        ran = trials.values[place] > 0
        k = results.k.values[ran]
        found = fit_logistic(k, successes.values[place][ran], trials.values[place][ran])
        is_beyond[place] = found.estimate > k.max()
        crossings[(slice(None), *place)] = found.within(k.max())
    rho = crossings / results.n.values
    names = ("estimate", "lower", "upper")
    curves = {name: (dims, values) for name, values in zip(names, rho, strict=True)}
    curves["is_beyond"] = dims, is_beyond
    summary = results.coords.to_dataset().drop_vars("k").assign(curves)

    rate = successes / trials.where(trials > 0)
    is_near = (rate >= 0.25) & (rate <= 0.75)
    summary["steps"] = results.steps.fillna(0).weighted(successes.where(is_near, 0)).mean("k")
    if "seconds_per_step" in results:
        per_step = interpolate(results.seconds_per_step, config.n)
        summary["seconds"] = summary.steps * along_curve(per_step, summary.estimate)

    return summary.merge(_cells(results, config, rate)) if config.rho else summary


def _cells(results: Dataset, config: Config, rate: DataArray) -> Dataset:
    """The rate and the cost of each solver in each cell."""
    K = phase_diagram.num_nonzeros(np.array(config.rho), np.array(config.n)[:, None])
    places = DataArray(np.asarray(K), {"n": config.n, "rho": config.rho}, ("n", "rho"))
    known = sorted({*results.k.values.tolist(), *places.values.ravel().tolist()})
    cells = Dataset({"cell_rate": rate, "cell_cost": results.steps}).reindex(k=known)
    cells = cells.sel(n=places.n, k=places).drop_vars("k")
    if "seconds_per_step" in results:
        cells["cell_cost"] = cells.cell_cost * interpolate(results.seconds_per_step, config.n)
    return cells


def interpolate(seconds: DataArray, n: Sequence[int]) -> DataArray:
    """Return the seconds of a step at other n: between those that are timed linear in n, beyond
    them those of the nearest."""
    known = seconds.timed_n.values

    def along_n(values: np.ndarray) -> np.ndarray:
        return np.interp(n, known, values)

    found = xarray.apply_ufunc(
        along_n, seconds, input_core_dims=[["timed_n"]], output_core_dims=[["n"]], vectorize=True
    )
    return found.assign_coords(n=list(n))


def along_curve(seconds: DataArray, rho: DataArray) -> DataArray:
    """Return the seconds of a step at one K/n of each n: between those that are timed linear in
    K/n, beyond them those of the nearest."""

    def at_rho(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        return np.interp(wanted, seconds.rho.values, values)

    return xarray.apply_ufunc(at_rho, seconds, rho, input_core_dims=[["rho"], []], vectorize=True)


def find_fastest(summary: Dataset) -> DataArray:
    """Return the place of the solver, in their order, that recovers at least half of the signals of
    a cell and costs least; -1 where none does."""
    costs = summary.cell_cost.where(summary.cell_rate >= 0.5, np.inf)
    return costs.argmin("solver").where(np.isfinite(costs).any("solver"), -1)


def l1_curve(design: str, delta: ArrayLike) -> NDArray[np.float64]:
    """Return the K/n up to which l1 minimisation recovers signals, in the limit of large d."""
    return np.asarray(l1_transition(delta, is_complex=DESIGNS[design].is_complex).rho)


def plot(summary: Dataset, config: Config) -> Figure:
    """Draw the curves of all solvers, and under them which is the fastest: a column for each kind of
    A and of signal."""
    kinds = list(itertools.product(config.designs, config.signals))
    rows = 2 if config.rho else 1
    figure = plots.figure(width=2.7 * len(kinds) + 1.6, height=2.7 * rows)
    panels = figure.subplots(rows, len(kinds), squeeze=False, sharex=True, sharey=True)
    delta = np.array(config.n) / config.d
    looks = plots.looks(config.solvers)
    found = summary.estimate.where(np.isfinite(summary.estimate))
    limit = max(l1_curve(design, delta).max() for design in config.designs)
    has_arrows = bool(summary.is_beyond.any())
    top = (1.15 if has_arrows else 1.05) * max(limit, float(found.max(skipna=True).fillna(0)))
    if config.rho:
        top = max(top, plots.edges(config.rho)[-1])
    for column, (design, signal) in zip(panels.T, kinds, strict=True):
        shown = summary.sel(design=design, signal=signal)
        curves = column[0]
        curves.set(xlim=plots.edges(delta)[[0, -1]], ylim=(0, top))
        for name, (color, marker) in looks.items():
            look = {"label": SOLVERS[name].label, "marker": marker, "along": "y"}
            crossing = shown.sel(solver=name)
            is_known = ~crossing.is_beyond
            closed = crossing.assign(upper=crossing.upper.where(is_known, crossing.estimate))
            plots.band(curves, delta, closed, color, **look)
            least = crossing.estimate.values
            for place in np.flatnonzero(crossing.is_beyond):
                curves.annotate(xy=(delta[place], least[place]), color=color, **AT_LEAST)
        if config.rho:
            draw_fastest(column[1], delta, shown, [color for color, _ in looks.values()])
        for axes in column:
            axes.plot(delta, l1_curve(design, delta), label="$\\ell_1$, large $d$", **L1_LINE)
        values = COMPLEX_LABELS if DESIGNS[design].is_complex else SIGNAL_LABELS
        curves.set_title(f"{DESIGNS[design].label}, {values[signal]}")
        column[-1].set_xlabel(r"undersampling $\delta = n/d$")
    for axes in panels[:, 0]:
        axes.set_ylabel(r"sparsity $\rho = K/n$")
    plots.legend_right(panels[0, -1])
    cost = "takes the least time for one problem" if config.timed_n else "takes the fewest steps"
    fastest = [
        "Below: which of the solvers that",
        f"recover half of the signals of a cell {cost}.",
    ]
    plots.caption(
        figure,
        config,
        f"{'Above: half' if config.rho else 'Half'} of the signals recovered, with 95% intervals.",
        *(fastest if config.rho else []),
        "Dashed: $\\ell_1$ minimisation.",
        *(["Arrows: at least."] if has_arrows else []),
    )
    return figure


def draw_fastest(axes: Axes, delta: Array, shown: Dataset, colors: Sequence[str]) -> None:
    """Draw a cell in the colour of the fastest solver, white where none recovers."""
    fastest = find_fastest(shown).transpose("rho", "n").values
    axes.pcolormesh(
        plots.edges(delta),
        plots.edges(shown.rho),
        np.ma.masked_less(fastest, 0),
        cmap=ListedColormap(colors),
        vmin=-0.5,
        vmax=len(colors) - 0.5,
    )


def table(summary: Dataset, config: Config) -> str:
    """Write the curves, the steps and the time along them, and what is known of them."""
    delta = np.array(config.n) / config.d
    lines = []
    for design, signal in itertools.product(config.designs, config.signals):
        shown = summary.sel(design=design, signal=signal)
        rows: dict[str, Any] = {
            f"{design}, {signal}: n/d": delta,
            "l1, large d": l1_curve(design, delta),
        }
        lines += [_write_row(name, values, "6.3f") for name, values in rows.items()]
        for name in config.solvers:
            curve = shown.sel(solver=name)
            marks = np.where(curve.is_beyond, "+", "")  # at least so much
            lines.append(_write_row(name, curve.estimate.values, "6.3f", marks))
        steps = {f"{name}, steps": shown.steps.sel(solver=name) for name in config.solvers}
        lines += [_write_row(name, values.values, "6.0f") for name, values in steps.items()]
        if "seconds" in summary:
            times = {f"{name}, ms": 1e3 * shown.seconds.sel(solver=name) for name in config.solvers}
            lines += [_write_row(name, values.values, "6.2f") for name, values in times.items()]
    for claim in CLAIMS:
        found = claim.found(summary, config)
        if found.verdict is Verdict.CANNOT_BE_JUDGED:
            continue
        lines.append(f"{claim.text} ({claim.printed}): {found.ours}: {found.judgement}")
    return "\n".join(lines)


def _write_row(
    name: str, values: Iterable[float], form: str, marks: Iterable[str] | None = None
) -> str:
    """A line of numbers, with marks behind them."""
    behind = itertools.repeat("") if marks is None else marks
    written = (f"{value:{form}}{mark}" for value, mark in zip(values, behind, strict=False))
    return " ".join([f"{name:32}", *written])


# ---- what is known of the curves ----

# Of curves at finite d from those at large d, and from those of other step sizes, in K/n.
NEAR = 0.02
# The same from so many columns on.
NEARER = 0.01
LARGE = 1000
# (n/d, the least and the largest K/n): of the best of three solvers, for signs; Gaussian A with
# d = 4096, and the DCT with d = 2^18.
GAGA: dict[Design, tuple[tuple[float, float, float], ...]] = {
    "gaussian": ((0.100, 0.181, 0.183), (0.288, 0.260, 0.260)),
    "partial_dct_operator": ((0.100, 0.183, 0.183), (0.288, 0.277, 0.277)),
}
GAGA_COLUMNS = {"gaussian": "4096", "partial_dct_operator": "$2^{18}$"}
GAGA_SOLVERS = ["NIHT", "HTP", "CSMPSP"]
# Solvers that recover what l1 minimisation does.
L1_SOLVERS = ("AMP", "BasisPursuit")


def tolerance(config: Config) -> float:
    """Return how far a curve may be from that of other d."""
    return NEARER if config.d >= LARGE else NEAR


def follows_l1(solver: str, design: str, signal: str) -> Claim:
    """A solver recovers what l1 minimisation does for large d."""

    def judge(summary: Dataset, config: Any) -> Finding:
        if design not in config.designs or signal not in config.signals:
            return Finding.of("not run")
        if solver not in config.solvers:
            return Finding.of(f"no results of {solver}")
        curve = summary.estimate.sel(design=design, signal=signal, solver=solver)
        excess = curve.values - l1_curve(design, np.array(config.n) / config.d)
        ours = f"its K/n minus that of the limit: {excess.min():+.3f} to {excess.max():+.3f}"
        return Finding.of(ours, *(np.abs(excess) <= tolerance(config)))

    text = f"{solver}, {design}, {signal}: recovers as many nonzeros as l1 minimisation"
    return Claim(text, judge, "Donoho, Maleki & Montanari 2009")


def reaches(design: Design, delta: float, low: float, high: float) -> Claim:
    """The best of NIHT, HTP and CSMPSP at one n/d."""

    def judge(summary: Dataset, config: Any) -> Finding:
        absent = {*GAGA_SOLVERS} - {*config.solvers}
        if absent or design not in config.designs or "signs" not in config.signals:
            return Finding.of("not run")
        n = summary.n.sel(n=delta * config.d, method="nearest")
        if abs(n / config.d - delta) > NEAR:
            return Finding.of("no such n/d")
        curves = summary.estimate.sel(design=design, signal="signs", n=n)
        name, best = max(
            ((name, float(curves.sel(solver=name))) for name in GAGA_SOLVERS),
            key=lambda pair: pair[1],
        )
        near = tolerance(config)
        return Finding.of(
            f"{best:.3f} of {name} at {float(n) / config.d:.3f}", low - near <= best <= high + near
        )

    text = f"best of {', '.join(GAGA_SOLVERS)}, {design}, signs, n/d = {delta}"
    return Claim(text, judge, f"GAGA, d = {GAGA_COLUMNS[design]}: {low} to {high}")


CLAIMS = (
    *(
        follows_l1(solver, design, signal)
        for solver in L1_SOLVERS
        for design in DESIGNS
        for signal in DRAWN
    ),
    *(reaches(design, *point) for design, points in GAGA.items() for point in points),
)
