"""Phase transitions: the recovery of planted signals over a grid, and the diagram as compressed sensing draws it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, Self

import jax.numpy as jnp
import numpy as np
from chex import PRNGKey
from matplotlib.figure import Figure
from pydantic import Field, model_validator
from scipy.stats import norm
from xarray import Dataset

from experiments import plots
from experiments.config import Config, Count, Counts, Fractions
from experiments.session import Session
from experiments.solvers import SOLVERS, SolverName, axis_K
from jaxht import Stop, sweep
from jaxht.planted.ensembles import Problem, gaussian, gaussian_signal, planted


class Planted(Config):
    """The keys of every experiment that recovers planted signals.

    Attributes:
        d: dimension.
        solvers: which ones.
        max_steps: of every solver, or fewer where one costs several gradients; absent: as many as each takes by itself.
        rtol: change at which a run counts as converged; absent: machine epsilon. 0: only where it repeats exactly.
        target: value of the objective at which a run ends; absent: none does. Without noise, a run that comes near 0
            has found its signal or another solution, and more steps do not change which.
        designs: what has an A of its own: each "cell" (n, K), shared by its trials, or each "trial".
        round_n: one compile serves all n that agree when rounded up to a multiple of it.
        seed: of all draws.
    """

    d: Count
    solvers: Annotated[list[SolverName], Field(min_length=1)]
    max_steps: Count | None = None
    rtol: Annotated[float, Field(ge=0)] | None = None
    target: Annotated[float, Field(gt=0)] | None = None
    designs: Literal["cell", "trial"] = "cell"
    round_n: Count = 64
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _draws_no_padding(self) -> Self:
        if self.round_n > 1 and any(SOLVERS[name].draws for name in self.solvers):
            raise ValueError("round_n must be 1 with solvers that draw rows, which would draw those beyond n")
        return self


# What an interval takes for granted, in captions.
GIVEN = {"cell": ", given the designs", "trial": ""}
Sparsity = Callable[[sweep.Cell], Any]


def draw(
    key: PRNGKey,
    cell: sweep.Cell,
    d: int,
    K: Sparsity = axis_K,
    designs: str = "cell",
    *,
    variance: float | None = None,
    signal: Callable[..., jnp.ndarray] = gaussian_signal,
    response: Callable[[PRNGKey, jnp.ndarray], jnp.ndarray] | None = None,
) -> Problem:
    """A planted problem with Gaussian A: by default of variance 1/n, noise-free, with N(0, 1) values.

    Rows beyond n are zero, and so are their y. They change no solution, and one compile serves all n up to
    ``cell.bounds["n"]``.
    """
    n, rows = cell["n"], cell.bounds["n"]
    inside = jnp.arange(rows) < n

    def design(key: PRNGKey) -> jnp.ndarray:
        A = gaussian(key, rows, d, variance=1 / n if variance is None else variance)
        return jnp.where(inside[:, None], A, 0)

    def masked(key: PRNGKey, u: jnp.ndarray) -> jnp.ndarray:
        return u if response is None else jnp.where(inside, response(key, u), 0)

    design_key = cell.key if designs == "cell" else None
    return planted(key, design, partial(signal, d=d, K=K(cell)), masked, design_key=design_key)


def recovered(
    config: Planted,
    session: Session,
    axes: Mapping[str, Sequence[float]],
    num_trials: int,
    K_max: int,
    K: Sparsity = axis_K,
    recovery: Callable[..., sweep.Recovery] | None = None,
    **options: Any,
) -> Dataset:
    """Solve every problem by every solver.

    Args:
        config: what and how.
        session: where.
        axes: n, what determines K, and the like.
        num_trials: of each cell.
        K_max: the largest K.
        K: that of a cell, from which each solver takes its k.
        recovery: (methods, stop=) -> trial; None: of the noise-free problems, with their K.
        options: of the sweep.
    """
    methods = {name: SOLVERS[name].method(K_max, config.d, K) for name in config.solvers}

    def stop(cell: sweep.Cell) -> Stop:
        steps = config.max_steps and max(1, config.max_steps // SOLVERS[cell["solver"]].passes)
        return Stop(max_steps=steps, rtol=config.rtol, target_value=config.target)

    if recovery is None:
        recovery = partial(sweep.Recovery, partial(draw, d=config.d, K=K, designs=config.designs))
    if config.designs == "trial":
        options["shared"] = ()  # nothing
    return session.sweep(
        recovery(methods, stop=stop),
        {"solver": config.solvers, **axes},
        num_trials=num_trials,
        seed=config.seed,
        round_up={"n": config.round_n},
        **{"problem": tuple(axes), **options},
    )


class DeltaRho(Planted):
    """The diagram over undersampling and sparsity.

    Attributes:
        n: numbers of measurements, delta = n/d.
        rho: K/n. The signals have round(rho n) nonzeros, 1 at least.
        num_signals: trials in each cell.
    """

    n: Counts
    rho: Fractions
    num_signals: Count


def fraction_of_n(cell: sweep.Cell) -> Any:
    """K = round(rho n), 1 at least."""
    return jnp.maximum(1, jnp.floor(cell["rho"] * cell["n"] + 0.5).astype(jnp.int32))


def delta_rho(config: DeltaRho, session: Session) -> Dataset:
    """Solve every problem by every solver."""
    K_max = max(1, round(max(config.rho) * max(config.n)))
    return recovered(config, session, {"n": config.n, "rho": config.rho}, config.num_signals, K_max, fraction_of_n)


def plot_delta_rho(dataset: Dataset) -> Figure:
    """The transitions of all solvers in one panel, and a diagram of each."""
    config = plots.config(dataset, DeltaRho)
    rates = sweep.success_rate(dataset)
    crossings = sweep.transition(rates, (0.5,), along="rho", falling=True).sel(level=0.5)
    columns = -(-len(config.solvers) // 2)
    figure = plots.figure(width=3.6 + 2.0 * columns, height=3.9)
    left, right = figure.subfigures(1, 2, width_ratios=(3.2, 2.0 * columns + 0.4), squeeze=False)[0]
    compared = left.subplots()
    panels = right.subplots(2, columns, sharex=True, sharey=True, squeeze=False)
    delta = np.asarray(config.n) / config.d
    compared.set(xlim=plots.edges(delta)[[0, -1]], ylim=(0, plots.edges(config.rho)[-1]))
    for name, axes, color, marker in zip(config.solvers, panels.flat, plots.CYCLE, "osD^vP", strict=False):
        row, crossing = SOLVERS[name], crossings.sel(solver=name)
        plots.band(compared, delta, crossing, color, along="y", label=row.label, marker=marker)
        mesh = plots.phase_diagram(axes, delta, config.rho, 100 * rates.rate.sel(solver=name).transpose("rho", "n"))
        plots.band(axes, delta, crossing, "white", along="y", **plots.ON_DIAGRAM)
        axes.set_title(row.label)
        plots.subtitle(axes, row.rule)
    for axes in list(panels.flat)[len(config.solvers) :]:
        axes.set_axis_off()
    fine = np.linspace(delta[0], delta[-1], 200)
    compared.plot(fine, l1_transition(fine), color=plots.BLACK, linewidth=0.9, linestyle=(0, (4, 2)), label=L1)
    for axes in (compared, *panels[-1]):
        axes.set_xlabel(r"undersampling $\delta = n/d$")
    for axes in (compared, *panels[:, 0]):
        axes.set_ylabel(r"sparsity $\rho = K/n$")
    compared.set_title("half of the signals recovered")
    compared.legend(loc="upper left")
    plots.colorbar(right, mesh, list(panels.flat), "signals recovered within $10^{-3}$ (%)")
    remark = (
        f"Lines: half of the signals recovered; bands: 95% intervals{GIVEN[config.designs]}. Dashed: Donoho & Tanner."
    )
    plots.caption(figure, config.title, f"{config.remark} {remark}")
    return figure


L1 = "$\\ell_1$ minimisation,\nin the limit of large $d$"


def l1_transition(delta: np.ndarray) -> np.ndarray:
    """The rho up to which l1 minimisation recovers most signals, as d -> infinity.

    max_z (1 - 2/delta g(z)) / (1 + z^2 - 2 g(z)),  g(z) = (1 + z^2) Phi(-z) - z phi(z)

    Source: D. L. Donoho, A. Maleki, A. Montanari, PNAS 106 (2009) 18914-18919, equation 2.
    """
    z = np.linspace(0.001, 6, 6000)
    g = (1 + z**2) * norm.cdf(-z) - z * norm.pdf(z)
    return ((1 - 2 / np.asarray(delta)[:, None] * g) / (1 + z**2 - 2 * g)).max(axis=1)
