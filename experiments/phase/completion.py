"""Tanner & Wei 2013: matrix completion over the entries observed and the rank, the solvers
compared."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from chex import PRNGKey
from matplotlib.figure import Figure
from pydantic import Field, model_validator
from xarray import Dataset

from experiments.common import BaseConfig, Count, Counts, Positive, Session, plots
from jaxht import IHT, NIHT, LowRank, Stop, matrix_completion, metrics, sweep
from jaxht.ensembles import PlantedProblem, low_rank_entries
from jaxht.solvers.solver import Solver


class Config(BaseConfig):
    """The diagram over observed entries and rank."""

    m: Count  # the matrices are m x m
    r: Counts  # their ranks
    n: Counts  # numbers of entries observed
    # solvers: NIHT, IHT with step size 1/p, p the share of the entries that is observed, or IHT-1,
    # with 1/L = 1.
    solvers: Annotated[list[Literal["NIHT", "IHT", "IHT-1"]], Field(min_length=1)]
    num_matrices: Count  # trials in each cell
    max_steps: Count  # of every solver
    rtol: Annotated[float, Field(ge=0)]  # change at which a run counts as converged
    # root mean square of the residual, in units of that of an entry, at which a run ends
    target: Positive

    @model_validator(mode="after")
    def _check_sizes(self) -> "Config":
        if max(self.r) > self.m or max(self.n) > self.m**2:
            raise ValueError("r must be at most m, and n at most m^2")
        return self


# By name: (share p of the entries that is observed) -> solver, and its step size, as text in
# figures.
SOLVERS: dict[str, tuple[Callable[[Any], Solver], str]] = {
    "NIHT": (lambda p: NIHT(nesterov=False), "adaptive step"),
    "IHT": (lambda p: IHT(1 / p), r"$\eta = 1/p$"),
    "IHT-1": (lambda p: IHT(1.0), r"$\eta = 1/L = 1$"),
}


def run(config: Config, session: Session) -> Dataset:
    """Complete every matrix by every solver."""
    m, r_max = config.m, max(config.r)

    def method(name: str) -> sweep.Method:
        # Subspace iteration: in batches a full decomposition costs more even for small matrices.
        def method(objective: Any, cell: sweep.Cell) -> tuple[LowRank, Solver]:
            return LowRank(cell["r"], k_max=r_max, exact=False), SOLVERS[name][0](cell["n"] / m**2)

        return method

    def stop(cell: sweep.Cell) -> Stop:
        return Stop(
            max_steps=config.max_steps,
            rtol=config.rtol,
            target_value=0.5 * cell["n"] * config.target**2,
        )

    def draw(key: PRNGKey, cell: sweep.Cell) -> PlantedProblem:
        return low_rank_entries(key, m, cell["r"], cell["n"], r_max=r_max, n_max=max(config.n))

    trial = sweep.Recovery(
        draw,
        {name: method(name) for name in config.solvers},
        lambda positions, y: matrix_completion(
            positions // m, positions % m, y, (m, m), mean=False
        ),
        stop,
        {
            "success": lambda x, x_true: metrics.relative_error(x, x_true) < 1e-3,
            "error": metrics.relative_error,
        },
    )
    axes: dict[str, Sequence[Any]] = {"solver": config.solvers, "n": config.n, "r": config.r}
    return session.sweep(trial, axes, num_trials=config.num_matrices, seed=config.seed, shared=())


def summarise(dataset: Dataset, config: Config) -> Dataset:
    """Count what is recovered in every cell."""
    return sweep.success_rate(dataset)


def plot(rates: Dataset, config: Config) -> Figure:
    """Draw a diagram of each solver, with its transition and the limit of information."""
    crossings = sweep.transition(rates, (0.5,), along="n").sel(level=0.5)
    figure, panels = plots.panels(len(config.solvers), 2.8, 2.5)
    p = np.asarray(config.n) / config.m**2
    fine = np.linspace(0, config.r[-1] + 1, 200)
    for axes, name in zip(panels, config.solvers, strict=True):
        mesh = plots.phase_diagram(
            axes, p, config.r, 100 * rates.rate.sel(solver=name).transpose("r", "n")
        )
        plots.band(
            axes,
            config.r,
            crossings.sel(solver=name) / config.m**2,
            "white",
            along="x",
            **plots.ON_DIAGRAM,
        )
        limit = fine * (2 * config.m - fine) / config.m**2
        axes.plot(limit, fine, **plots.ON_DIAGRAM | {"linewidth": 1, "linestyle": (0, (4, 2))})
        axes.set_title(name.removesuffix("-1"))
        plots.subtitle(axes, SOLVERS[name][1])
        axes.set_xlabel("share of entries observed $p = n/m^2$")
        axes.set_yticks(config.r)
    panels[0].set_ylabel("rank $r$")
    plots.colorbar(figure, mesh, panels, "matrices recovered within $10^{-3}$ (%)")
    remark = (
        "Lines: half of the matrices recovered; bands: 95% intervals. Dashed: the limit of information, "
        "$n = r (2m - r)$, the degrees of freedom of a matrix of rank $r$."
    )
    plots.caption(figure, config, remark)
    return figure
