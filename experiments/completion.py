"""The phase transition of low-rank matrix completion: which rank is recovered from how many entries."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, PRNGKey
from matplotlib.figure import Figure
from pydantic import Field, model_validator
from xarray import Dataset

from experiments import plots
from experiments.config import Config, Count, Counts, Positive
from experiments.session import Session
from jaxht import IHT, NIHT, LowRank, MatrixCompletion, Stop, metrics, sweep
from jaxht.planted.ensembles import Problem
from jaxht.solvers.solver import Solver


class Completion(Config):
    """The diagram over observed entries and rank.

    Attributes:
        m: the matrices are m x m.
        r: their ranks.
        n: numbers of entries observed.
        solvers: NIHT, IHT with step size 1/p, p the share of the entries that is observed, or IHT-1, with 1/L = 1.
        num_matrices: trials in each cell.
        max_steps: of every solver.
        rtol: change at which a run counts as converged.
        target: root mean square of the residual, in units of that of an entry, at which a run ends.
        seed: of all draws.
    """

    m: Count
    r: Counts
    n: Counts
    solvers: Annotated[list[Literal["NIHT", "IHT", "IHT-1"]], Field(min_length=1)]
    num_matrices: Count
    max_steps: Count
    rtol: Annotated[float, Field(ge=0)]
    target: Positive
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _within_the_matrix(self) -> "Completion":
        if max(self.r) > self.m or max(self.n) > self.m**2:
            raise ValueError("r must be at most m, and n at most m^2")
        return self


class Row(NamedTuple):
    """A solver.

    Attributes:
        build: share p of the entries that is observed -> solver.
        rule: its step size, in figures.
    """

    build: Callable[[Any], Solver]
    rule: str


SOLVERS = {
    "NIHT": Row(lambda p: NIHT(), "adaptive step"),
    "IHT": Row(lambda p: IHT(1 / p), r"$\eta = 1/p$"),
    "IHT-1": Row(lambda p: IHT(1.0), r"$\eta = 1/L = 1$"),
}


def draw(key: PRNGKey, cell: sweep.Cell, m: int, r_max: int, n_max: int) -> Problem:
    """A matrix and some of its entries: ``X = L R' / sqrt(r)``, L and R (m, r) with N(0, 1) entries.

    Args:
        key: of the trial.
        cell: with r <= r_max and n <= n_max, traced.
        m, r_max, n_max: static.

    Returns:
        A problem whose A are the positions observed, i m + j for entry (i, j): (n_max,) integers, n of them distinct
        and uniformly random, then m^2 where nothing is observed; y their values. The entries of X have variance 1.
    """
    r, n = cell["r"], cell["n"]
    left, right, order = jax.random.split(key, 3)
    inside = jnp.arange(r_max) < r
    L, R = (jnp.where(inside, jax.random.normal(key, (m, r_max)), 0) for key in (left, right))
    X = jnp.matmul(L, R.T, precision=jax.lax.Precision.HIGHEST) / jnp.sqrt(r)
    positions = jnp.where(jnp.arange(n_max) < n, jax.random.permutation(order, m**2)[:n_max], m**2)
    return Problem(positions, X.ravel().at[positions].get(mode="fill", fill_value=0), X)


def observed(positions: Array, y: Array, m: int) -> Any:
    """The objective of the entries observed; position m^2 is in row m, where there is none."""
    return MatrixCompletion(positions // m, positions % m, y, (m, m))


def completion(config: Completion, session: Session) -> Dataset:
    """Complete every matrix by every solver."""
    m, r_max = config.m, max(config.r)

    def method(name: str) -> sweep.Method:
        # Subspace iteration: of many lanes at once a full decomposition costs more even for small matrices.
        def method(objective: Any, cell: sweep.Cell) -> tuple[LowRank, Solver]:
            return LowRank(cell["r"], k_max=r_max, exact=False), SOLVERS[name].build(cell["n"] / m**2)

        return method

    def stop(cell: sweep.Cell) -> Stop:
        return Stop(max_steps=config.max_steps, rtol=config.rtol, target_value=0.5 * cell["n"] * config.target**2)

    trial = sweep.Recovery(
        partial(draw, m=m, r_max=r_max, n_max=max(config.n)),
        {name: method(name) for name in config.solvers},
        partial(observed, m=m),
        stop,
        {"success": lambda x, x_true: metrics.relative_error(x, x_true) < SUCCESS, "error": metrics.relative_error},
    )
    axes: dict[str, Sequence[Any]] = {"solver": config.solvers, "n": config.n, "r": config.r}
    return session.sweep(trial, axes, num_trials=config.num_matrices, seed=config.seed, shared=())


SUCCESS = 1e-3


def plot_completion(dataset: Dataset) -> Figure:
    """A diagram of each solver, with its transition and the limit of information."""
    config = plots.config(dataset, Completion)
    rates = sweep.success_rate(dataset)
    crossings = sweep.transition(rates, (0.5,), along="n").sel(level=0.5)
    figure, panels = plots.panels(len(config.solvers), 2.8, 2.5)
    p = np.asarray(config.n) / config.m**2
    fine = np.linspace(0, config.r[-1] + 1, 200)
    for axes, name in zip(panels, config.solvers, strict=True):
        mesh = plots.phase_diagram(axes, p, config.r, 100 * rates.rate.sel(solver=name).transpose("r", "n"))
        plots.band(axes, config.r, crossings.sel(solver=name) / config.m**2, "white", along="x", **plots.ON_DIAGRAM)
        limit = degrees_of_freedom(fine, config.m) / config.m**2
        axes.plot(limit, fine, **plots.ON_DIAGRAM | {"linewidth": 1, "linestyle": (0, (4, 2))})
        axes.set_title(name.removesuffix("-1"))
        plots.subtitle(axes, SOLVERS[name].rule)
        axes.set_xlabel("share of entries observed $p = n/m^2$")
        axes.set_yticks(config.r)
    panels[0].set_ylabel("rank $r$")
    plots.colorbar(figure, mesh, panels, "matrices recovered within $10^{-3}$ (%)")
    remark = (
        "Lines: half of the matrices recovered; bands: 95% intervals. Dashed: the limit of information, "
        "$n = r (2m - r)$, the degrees of freedom of a matrix of rank $r$."
    )
    plots.caption(figure, config.title, f"{config.remark} {remark}")
    return figure


def degrees_of_freedom(r: Any, m: int) -> Any:
    """Of m x m matrices of rank r: r (2 m - r). With fewer entries no method tells all of them apart."""
    return r * (2 * m - r)
