"""Yuan, Liu, Wang, Liu & Metaxas, Dual Iterative Hard Thresholding, JMLR 2020: planted problems, and Figure 4."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, Self

import jax
import jax.numpy as jnp
from chex import Array, Numeric, PRNGKey
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field, model_validator
from xarray import DataArray, Dataset

from experiments import plots
from experiments.config import Config, Count, Counts, Positive, Positives
from experiments.session import Session, double_precision
from jaxht import DIHT, HTP, IHT, LeastSquares, Sparse, Stop, metrics, solve, sweep
from jaxht.planted.ensembles import Problem, gaussian, gaussian_noise, planted, sign_signal
from jaxht.solvers.solver import Solver


class Ridge(Config):
    """The keys that all have: ridge regression on planted problems, with one w* for each dimension, of k entries +-1.

    Attributes:
        l0: values of lambda sqrt(N), lambda the penalty and N the number of samples.
        num_problems: in each cell.
        max_steps: of DIHT, each of ten updates of the dual variables.
        seed: of all draws.
    """

    l0: Positives
    num_problems: Count
    max_steps: Count
    seed: Annotated[int, Field(ge=0)] = 0


class AgainstPrimal(Ridge):
    """Figure 4: k coordinates correlated, half of them in the support of w*.

    Attributes:
        d, k: dimension, and sparsity of w* and constraint, even and at most d/2.
        n: sample sizes.
        kappa: condition number of the covariance.
        sigma: standard deviation of the noise.
        solvers: DIHT, and IHT and HTP with the step sizes that they take by themselves and ten times as many steps.
    """

    d: Count
    k: Count
    n: Counts
    kappa: Annotated[float, Field(ge=1)]
    sigma: Positive
    solvers: Annotated[list[Literal["DIHT", "IHT", "HTP"]], Field(min_length=1)]

    @model_validator(mode="after")
    def _halves(self) -> Self:
        if self.k % 2 or 2 * self.k > self.d:
            raise ValueError("k must be even and at most d/2")
        return self


SOLVERS: Mapping[str, Callable[[], Solver]] = {"DIHT": DIHT, "IHT": IHT, "HTP": HTP}
# The gap over P at which DIHT ends.
CLOSED = 1e-8


def draw(
    key: PRNGKey,
    cell: sweep.Cell,
    N: Numeric,
    k: int,
    sigma: Numeric,
    design: Callable[[PRNGKey, Array], Array],
    d: int,
) -> Problem:
    """A problem with the w* of its dimension, which hangs on ``cell.key`` only; design: (key, w*) -> (at least N, d).

    Rows beyond N are zero, and so are their y: N is traced, and one compile serves all.
    """
    truth = sign_signal(cell.key, d, k)
    noise = partial(gaussian_noise, sigma=sigma)
    problem = planted(key, lambda key: design(key, truth), lambda key: truth, noise)
    inside = jnp.arange(len(problem.y)) < N
    return Problem(jnp.where(inside[:, None], problem.A, 0), jnp.where(inside, problem.y, 0), truth)


def ridge(problem: Problem, N: Numeric, l0: Numeric) -> LeastSquares:
    """``N P``, at lambda = l0 / sqrt(N): the sum does not see rows of zeros, and no solver sees the factor."""
    return LeastSquares(problem.A, problem.y, l0 * jnp.sqrt(N))


def correlated(key: PRNGKey, truth: Array, n: int, k: int, kappa: float) -> Array:
    """Rows of variance 1, with one correlation among k coordinates, k/2 of them in the support of w*; else independent.

    The condition number of the covariance is kappa at the correlation ``(kappa - 1) / (kappa + k - 1)`` (ours).
    """
    d = truth.size
    order_key, row_key, common_key = jax.random.split(key, 3)
    order = jax.random.uniform(order_key, (d,))
    first = [jnp.argsort(jnp.where(side, order, 2))[: k // 2] for side in (truth != 0, truth == 0)]
    chosen = jnp.zeros(d, bool).at[jnp.concatenate(first)].set(True)
    r = jnp.where(chosen, (kappa - 1) / (kappa + k - 1), 0)
    common = jax.random.normal(common_key, (n, 1))
    return jnp.sqrt(1 - r) * gaussian(row_key, n, d, variance=1.0) + jnp.sqrt(r) * common


def against_primal(config: AgainstPrimal, session: Session) -> Dataset:
    """Figure 4."""
    k, rows = config.k, max(config.n)
    design = partial(correlated, n=rows, k=k, kappa=config.kappa)

    def trial(key: PRNGKey, cell: sweep.Cell) -> dict[str, Numeric]:
        n = cell["n"]
        problem = draw(key, cell, n, k, config.sigma, design, config.d)
        dual = cell["solver"] == "DIHT"
        stop = Stop(max_steps=config.max_steps * (1 if dual else 10), gap_rtol=CLOSED if dual else None)
        found = solve(ridge(problem, n, cell["l0"]), Sparse(k, k_max=k), SOLVERS[cell["solver"]](), stop=stop)
        error = metrics.estimation_error(found.x, problem.x_true)
        return {"value": found.value / n, "error": error, "num_steps": found.num_steps, "status": found.status}

    axes: dict[str, Sequence[Any]] = {"solver": config.solvers, "l0": config.l0, "n": config.n}
    with double_precision():
        return session.sweep(trial, axes, num_trials=config.num_problems, seed=config.seed, problem=("n",), shared=())


def curve(axes: Axes, values: DataArray, color: str, **line: Any) -> None:
    """The median over the trials against the other dimension, and a band from quartile to quartile."""
    low, middle, high = (values.quantile(q, "trial") for q in (0.25, 0.5, 0.75))
    (at,) = middle.dims
    axes.fill_between(values[at], low, high, color=color, alpha=0.12, linewidth=0)
    axes.plot(values[at], middle, color=color, **line)


QUARTILES = "Lines: medians; bands: from quartile to quartile."


LAMBDA = r"$\lambda \sqrt{N}"


def plot_against_primal(dataset: Dataset) -> Figure:
    """The value above and the error below, a column for each l0."""
    config = plots.config(dataset, AgainstPrimal)
    figure = plots.figure(2.7 * len(config.l0) + 0.8, 4.2)
    grid = figure.subplots(2, len(config.l0), squeeze=False, sharex=True)
    for row, name, label in zip(grid, ("value", "error"), ("$P(w)$", r"$\Vert w - w^* \Vert$"), strict=True):
        for axes, l0 in zip(row, config.l0, strict=True):
            for solver, color, marker in zip(config.solvers, plots.CYCLE, "osD", strict=False):
                curve(axes, dataset[name].sel(solver=solver, l0=l0), color, marker=marker, label=solver)
        row[0].set_ylabel(label)
    for axes, l0 in zip(grid[0], config.l0, strict=True):
        axes.set_title(f"{LAMBDA} = {l0:g}$")
    for axes in grid[1]:
        axes.set_xlabel("sample size $N$")
    plots.legend_right(grid[0, -1])
    plots.caption(figure, config.title, f"{config.remark} {QUARTILES}")
    return figure
