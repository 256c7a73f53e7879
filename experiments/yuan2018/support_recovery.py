"""Yuan, Li & Zhang 2018, Figures 2 and 3: exact and relaxed recovery of supports against the sample
size."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from chex import Array
from matplotlib.figure import Figure
from pydantic import Field
from xarray import DataArray, Dataset, concat

from experiments.common import SOLVERS, Count, Counts, Session, plots
from experiments.common.claims import (
    NOT_PRINTED,
    Claim,
    Finding,
    Judge,
    Question,
    Reason,
    Section,
    Setting,
)
from experiments.common.recovery import Planted, draw, ended, recovered
from experiments.yuan2018.judging import GREEDY, needs, plus_minus
from experiments.yuan2018.judging import SOLVERS as PAPER_SOLVERS
from jaxht import LeastSquares, Logistic, metrics, sweep
from jaxht.ensembles import gaussian_noise, logistic_labels, significant_signal


class Config(Planted):
    """Figures 2 and 3: rows N(0, I), values "Gaussian with significant mean", a design of its own
    for each trial."""

    model: Literal[
        "linear", "logistic"
    ]  # "linear" with unit noise, or "logistic" with labels and loss of factor 2
    l2: Annotated[float, Field(ge=0)] = 0.0  # ridge parameter of the logistic loss
    K: Count  # number of nonzeros planted
    signal_mean: float  # of their values, of variance 1
    k: Counts  # sparsities of the solvers
    n: Counts  # sample sizes
    num_trials: Count  # of each cell
    designs: Literal["cell", "trial"] = "trial"


def weighted_logistic(A: Array, y: Array, l2: float) -> Logistic:
    """Return the logistic loss of factor 2, averaged over the samples with a label: y = 0 where
    rows are padding."""
    return Logistic(A, y, l2, 2.0, weights=jnp.abs(y))


# How y is drawn, and what is minimised. Padding does not change a sum of squares, and steps
# relative to its smoothness do not depend on its scale.
MODELS: dict[str, tuple[Any, Any]] = {
    "linear": (partial(gaussian_noise, sigma=1.0), partial(LeastSquares, mean=False)),
    "logistic": (partial(logistic_labels, factor=2.0), weighted_logistic),
}


def run(config: Config, session: Session) -> Dataset:
    """Solve every problem by every solver and with every k."""
    response, objective = MODELS[config.model]
    signal = partial(significant_signal, mean=config.signal_mean)
    planted: Callable[..., Any] = partial(
        draw,
        d=config.d,
        K=lambda cell: config.K,
        designs=config.designs,
        variance=1.0,
        signal=signal,
        response=response,
    )
    judged = {"exact": metrics.exact_recovery, "relaxed": metrics.relaxed_recovery}
    return recovered(
        config,
        session,
        {"n": config.n, "k": config.k},
        config.num_trials,
        K_max=lambda cell: cell.bounds["k"],
        K=lambda cell: cell["k"],
        recovery=partial(
            sweep.Recovery, planted, objective=partial(objective, l2=config.l2), metrics=judged
        ),
        problem=("n",),
        # A compile for each k: refits of GraSP have 3 k columns.
        round_up={"n": config.round_n, "k": 1},
    )


def summarise(dataset: Dataset, config: Config) -> Dataset:
    """Count the supports recovered in every cell, exactly and relaxed, and the runs by how they
    ended."""
    kinds = ["exact", "relaxed"]
    rates = concat([sweep.success_rate(dataset, kind) for kind in kinds], "recovery")
    return rates.assign_coords(recovery=kinds).assign(ended=ended(dataset))


def plot(rates: Dataset, config: Config) -> Figure:
    """Draw a panel for each k: the rates of exact and of relaxed recovery against n."""
    exact, relaxed = (rates.sel(recovery=kind) for kind in ("exact", "relaxed"))
    looks = plots.looks(config.solvers)
    figure, panels = plots.panels(len(config.k), width=2.3, height=2.6)
    for axes, k in zip(panels, config.k, strict=True):
        for name, (color, marker) in looks.items():
            for kind, style in (
                (exact, {"linestyle": "-"}),
                (relaxed, {"linestyle": "--", "mfc": "white"}),
            ):
                plots.rates(axes, kind.sel(solver=name, k=k), color, marker=marker, **style)
        axes.set_title(f"$k = {k}$" + (r" $= \bar{k}$" if k == config.K else ""))
        axes.set_xlabel("sample size $n$")
    panels[0].set_ylabel("support recovered (%)")
    entries = [(SOLVERS[name].label, color, "-") for name, (color, _) in looks.items()]
    entries += [("exact", plots.GREY, "-"), ("relaxed", plots.GREY, "--")]
    plots.legend_right(panels[-1], entries)
    plots.caption(figure, config, needed(exact, config), "Bands: 95% Wilson intervals.")
    return figure


def needed(rates: Dataset, config: Config, level: float = 0.9) -> str:
    """Say at which n the rate of exact recovery crosses a level, for the caption."""
    crossings = sweep.transition(rates, (level,)).estimate.sel(level=level)

    def text(k: int, name: str) -> str:
        n = float(crossings.sel(solver=name, k=k))
        found = (
            f"{n:.0f}"
            if np.isfinite(n)
            else f"> {max(config.n)}"
            if n > 0
            else f"< {min(config.n)}"
        )
        return f"{SOLVERS[name].label} {found}"

    parts = (f"k = {k}: {', '.join(text(k, name) for name in config.solvers)}" for k in config.k)
    return f"n at which {level:.0%} are exact: {'; '.join(parts)}."


# ---- what the paper says of it, and whether it holds ----


# Two curves are comparable where their intervals are apart at no larger part of the points.
COMPARABLE = 0.25


class Tally(NamedTuple):
    """In how many cells a rate is above another beyond the Wilson intervals of both, in how many
    below, of how many."""

    above: int
    below: int
    cells: int


def tally(rates: Dataset, one: str, other: str) -> Tally:
    """Compare the rates of two solvers cell by cell."""
    a, b = rates.sel(solver=one), rates.sel(solver=other)
    above, below = (a.lower > b.upper).sum(), (a.upper < b.lower).sum()
    return Tally(int(above), int(below), int((a.rate - b.rate).count()))


def outperform(rates: Dataset, ones: Sequence[str], others: Sequence[str]) -> Finding:
    """Each of some solvers against each of others, in the cells where intervals are apart; a pair
    that is above in none counts as one case more in which it is not."""
    parts, conditions, cells = [], [], 0
    for one in ones:
        for other in others:
            above, below, cells = tally(rates, one, other)
            parts.append(f"{one} against {other} {above} / {below}")
            conditions += [True] * above + [False] * max(below, not above)
    return Finding.of(
        f"of {cells} cells above / below beyond intervals: {', '.join(parts)}",
        *conditions,
    )


def lead(rates: Dataset, one: str, other: str) -> tuple[float, float]:
    """Return the mean over cells of the difference of two rates, in points, with its standard
    error."""
    a, b = rates.sel(solver=one), rates.sel(solver=other)
    difference = a.rate - b.rate
    variance = sum(
        (of.rate * (1 - of.rate) / of.trials).where(difference.notnull()).sum() for of in (a, b)
    )
    return 100 * float(difference.mean()), 100 * float(variance) ** 0.5 / int(difference.count())


@needs("rate", PAPER_SOLVERS, "k")
def rise(rates: Dataset, config: Any) -> Finding:
    """Every curve: whether there are two sample sizes of which the larger has the lower rate,
    beyond intervals."""
    of = rates.sel(solver=list(PAPER_SOLVERS))
    highest = np.fmax.accumulate(of.lower.fillna(0).transpose(..., "n").values, axis=-1)
    falls = (of.upper.transpose(..., "n").values < highest).any(axis=-1)
    text = f"{falls.sum()} of {falls.size} curves fall somewhere beyond intervals"
    return Finding.of(text, *~falls.ravel())


def above_fgrahtp(one: str, other: str = "FGraHTP") -> Judge:
    """GraHTP against FGraHTP; here and below ``other`` is FGraHTP with the same step size."""

    @needs("rate", (one, other), "k")
    def judge(rates: Dataset, config: Any) -> Finding:
        return outperform(rates, [one], [other])

    return judge


def lead_where(one: str, other: str = "FGraHTP") -> Judge:
    """The lead over FGraHTP for k above K against that for k = K, and for the smaller half of n
    against the larger."""

    @needs("rate", (one, other), "k")
    def judge(rates: Dataset, config: Any) -> Finding:
        relaxed = rates.sel(k=rates.k > config.K)
        half = relaxed.sizes["n"] // 2
        parts = (
            rates.sel(k=rates.k <= config.K),
            relaxed,
            relaxed.isel(n=slice(half)),
            relaxed.isel(n=slice(half, None)),
        )
        same, larger, few, many = (lead(part, one, other) for part in parts)
        text = f"mean lead in points: {plus_minus(*same)} for k = {config.K}, {plus_minus(*larger)} for larger k; of "
        text += f"these {plus_minus(*few)} for the smaller half of n, {plus_minus(*many)} for the larger"
        return Finding.of(text, _is_more(larger, same), _is_more(few, many))

    return judge


def _is_more(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether a mean is positive and above another, beyond two standard errors."""
    return one[0] > 2 * one[1] and one[0] - other[0] > 2 * np.hypot(one[1], other[1])


def comparable(one: str, other: str = "FGraHTP") -> Judge:
    @needs("rate", (one, other, "GraSP"), "k")
    def judge(rates: Dataset, config: Any) -> Finding:
        exact, parts, conditions = rates.sel(recovery="exact", k=config.K), [], []
        for pair in (one, other), (one, "GraSP"), (other, "GraSP"):
            above, below, cells = tally(exact, *pair)
            parts.append(f"{' and '.join(pair)} at {above + below}")
            conditions.append(above + below <= COMPARABLE * cells)
        return Finding.of(f"apart beyond intervals, of {cells} n: {', '.join(parts)}", *conditions)

    return judge


def thresholding_is_best(one: str, other: str = "FGraHTP") -> Judge:
    @needs("rate", (one, other, *GREEDY), "k")
    def judge(rates: Dataset, config: Any) -> Finding:
        exact = rates.sel(recovery="exact", k=config.K)
        return outperform(exact, [one, other, "GraSP"], ["FBS", "FoBa"])

    return judge


def above_fgrahtp_beyond(one: str, other: str = "FGraHTP") -> Judge:
    """Whether a solver is above FGraHTP for the k above K."""
    judge = above_fgrahtp(one, other)
    return lambda rates, config: judge(rates.sel(k=rates.k > config.K), config)


def at_k(k: int, one: str, others: Sequence[str], worse: Sequence[str]) -> Judge:
    """Whether some solvers are better than others for one k, in exact and in relaxed recovery."""

    @needs("rate", (one, *others, *worse), "k")
    def judge(rates: Dataset, config: Any) -> Finding:
        return outperform(rates.sel(k=k), [one, *others], worse)

    return judge


@needs("rate", PAPER_SOLVERS, "k")
def gap_decreases(rates: Dataset, config: Any) -> Finding:
    """The difference of the best and the worst solver, mean over n, for k = 70 against k = 50."""
    of = rates.rate.sel(recovery="exact", solver=list(PAPER_SOLVERS))
    spread = 100 * (of.max("solver") - of.min("solver")).mean("n")
    first, second = (float(spread.sel(k=k)) for k in (50, 70))
    return Finding.of(
        f"mean over n: {first:.1f} points for k = 50, {second:.1f} for k = 70",
        second < first,
    )


def over_n(exact: Dataset) -> tuple[DataArray, DataArray]:
    """Return the means over n of the rates, and their variances."""
    variance = (exact.rate * (1 - exact.rate) / exact.trials).sum("n") / exact.rate.count("n") ** 2
    return exact.rate.mean("n"), variance


def trade_off(one: str, other: str = "FGraHTP") -> Judge:
    """Exact recovery: the mean over n and k, and the least over k of that over n, against the best
    of the others."""

    @needs("rate", (one, other, *GREEDY), "k")
    def judge(rates: Dataset, config: Any) -> Finding:
        mean, variance = over_n(rates.sel(recovery="exact", solver=[one, other, *GREEDY]))
        least = mean.argmin("k")
        statistics = {
            "mean over n and k": (mean.mean("k"), variance.sum("k") ** 0.5 / mean.sizes["k"]),
            "least over k of the mean over n": (mean.isel(k=least), variance.isel(k=least) ** 0.5),
        }
        parts, conditions = [], []
        for name, (values, errors) in statistics.items():
            best = str(values.solver.values[1 + int(np.nanargmax(values[1:].values))])
            own, theirs = (
                (float(values.sel(solver=s)), float(errors.sel(solver=s))) for s in (one, best)
            )
            texts = (plus_minus(100 * value, 100 * error) for value, error in (own, theirs))
            parts.append(f"{name}: {next(texts)} %, best of the others {best} {next(texts)} %")
            conditions.append(_is_more(own, theirs))
        return Finding.of("; ".join(parts), *conditions)

    return judge


class StepSize(NamedTuple):
    """A step size, and the names of GraHTP and FGraHTP with it."""

    text: str
    grahtp: str
    fgrahtp: str


# That of the theory, and longer ones that the paper may have used: the same for both methods.
STEP_SIZES = [
    StepSize("$\\eta = 1/(2M_{2k})$", "GraHTP", "FGraHTP"),
    StepSize("$\\eta = 1/M_{2k}$", "GraHTP-1", "FGraHTP-1"),
    StepSize("$\\eta = 1.9/M_{2k}$", "GraHTP-1.9", "FGraHTP-1.9"),
]
# Step sizes of this library, for GraHTP.
OURS = {"HTP": "$1/M_1$", "HTP-backtracking": "$256/M_1$, halved until f decreases"}


def by_step_size(
    text: str,
    judge: Callable[[str, str], Judge],
    unprinted: str = "the step size and the values of the signal",
) -> list[Claim]:
    """Return a claim for each step size of GraHTP and FGraHTP."""
    return [
        Claim(
            text if step is STEP_SIZES[0] else f"{text}; {step.text}",
            judge(step.grahtp, step.fgrahtp),
            reason=f"{Reason.NOT_PRINTED}: {unprinted}",
        )
        for step in STEP_SIZES
    ]


def which_step_size(rates: Dataset, config: Any) -> str:
    """The rates with each step size of GraHTP, and those of the other methods."""
    exact = rates.sel(recovery="exact")
    mean, variance = (values.mean("k") for values in over_n(exact))

    def text(solver: str) -> str:
        error = float(variance.sel(solver=solver) / rates.sizes["k"]) ** 0.5
        return f"{plus_minus(100 * float(mean.sel(solver=solver)), 100 * error)} %"

    own = [
        f"GraHTP {text(step.grahtp)} and FGraHTP {text(step.fgrahtp)} with {step.text}"
        for step in STEP_SIZES
        if {step.grahtp, step.fgrahtp} <= set(rates.solver.values.tolist())
    ]
    own += [
        f"GraHTP {text(name)} with η of {eta}" for name, eta in OURS.items() if name in rates.solver
    ]
    others = ", ".join(f"{solver} {text(solver)}" for solver in GREEDY if solver in rates.solver)
    return f"Exact recovery, mean over n and k ± standard error: {'; '.join(own)}. Of the others: {others}."


SIMULATED = [
    Setting("dimension p; nonzeros of the truth", "500; 50 (§6.1)", "{d}; {K}"),
    Setting("sparsities k", "50, 70, 110 (§6.1)", "{k}"),
    Setting("samples n", NOT_PRINTED, "{n}"),
    Setting("trials", "100 (§6.1)", "{num_trials}"),
    Setting("rows", "normal, dense (§6.1)", "N(0, I)"),
    Setting("values of the truth", "Gaussian of significant mean (§6.1)", "N({signal_mean}, 1)"),
    Setting("stop", NOT_PRINTED, "relative change of {rtol}"),
]


FIGURE_2 = Section(
    "Figure 2",
    "figure2",
    [
        Claim("the chance of success rises with n in every curve", rise),
        *by_step_size("GraHTP is superior to FGraHTP", above_fgrahtp),
        *by_step_size("its lead over FGraHTP is largest for k above K and small n", lead_where),
        *by_step_size("k = K: GraHTP, FGraHTP and GraSP are comparable", comparable),
        *by_step_size(
            "k = K: these three significantly outperform FBS and FoBa", thresholding_is_best
        ),
        *by_step_size(
            "k = 70: GraHTP and GraSP are superior",
            lambda one, other: at_k(70, one, ["GraSP"], [other, "FBS", "FoBa"]),
        ),
        Claim("k = 70: the gap among all solvers is smaller than for k = 50", gap_decreases),
        *by_step_size(
            "k = 110: GraHTP, FBS and FoBa are much better than FGraHTP and GraSP",
            lambda one, other: at_k(110, one, ["FBS", "FoBa"], [other, "GraSP"]),
        ),
        *by_step_size("GraHTP has the better trade-off between accuracy and stability", trade_off),
    ],
    "The step size is not printed for this figure: $\\eta = 1/(2M_{2k})$, as in Figure 3, or a longer one. "
    f"Comparable means: intervals apart at no more than {100 * COMPARABLE:g} % of the n.",
    [Question("With which step size is GraHTP as good as in the paper?", which_step_size)],
    [
        *SIMULATED,
        Setting("noise", "standard Gaussian (§6.1)", "N(0, 1)"),
        Setting("η", NOT_PRINTED, "1/(2 M₂ₖ), and longer ones"),
    ],
)


UNPRINTED = "the values of the signal, λ and n"
FIGURE_3 = Section(
    "Figure 3",
    "figure3",
    [
        *by_step_size(
            "over a wide range of k GraHTP has the better trade-off between accuracy and stability",
            trade_off,
            UNPRINTED,
        ),
        *by_step_size(
            "GraHTP is above FGraHTP throughout for k above K", above_fgrahtp_beyond, UNPRINTED
        ),
    ],
    "The printed step size is $1/(2M_{2k})$. $M_{2k}$ bounds the curvature from above; where most labels are "
    "predicted with certainty, the curvature is far below it, and such steps no longer change the support.",
    [Question("With which step size is GraHTP as good as in the paper?", which_step_size)],
    [
        *SIMULATED,
        Setting("labels and loss", "logistic, of factor 2 (§6.2.1)", "the same"),
        Setting("λ", NOT_PRINTED, "{l2}"),
        Setting("η", "1/(2 M₂ₖ) (§6.2.1)", "the same, and longer ones"),
        Setting("M₂ₖ", "of UUᵀ, without 1/n (§6.2.1)", "of UUᵀ/n, as the Hessian has it"),
    ],
)
