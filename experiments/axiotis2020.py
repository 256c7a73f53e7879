"""Axiotis & Sviridenko, Sparse Convex Optimization via Adaptively Regularized Hard Thresholding, 2020."""

from functools import partial
from itertools import combinations
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from sklearn.linear_model import orthogonal_mp
from xarray import DataArray, Dataset

from experiments import data, plots
from experiments.config import Config, Count, Counts, Failure
from experiments.session import Session
from experiments.solvers import SOLVERS, SolverName
from jaxht import LeastSquares, Result, Sparse, Stop, solve, sweep
from jaxht.status import Status

INTERCEPT = "intercept"
MAX_SUPPORTS = 4096


class LossAgainstSparsity(Config):
    """Figures 1 and 2, for solvers of this library and orthogonal matching pursuit.

    Attributes:
        dataset: name of the data set.
        k: sparsities, the intercept counted.
        solvers: one curve each; their rule for k does not apply.
        max_steps: of every solver.
    """

    dataset: str
    k: Counts
    solvers: Annotated[list[SolverName], Field(min_length=1)]
    max_steps: Count


def prepared(table: data.Table) -> tuple[NDArray[np.float64], NDArray[np.float64], list[str]]:
    """The preprocessing of §6.2.2: no rows with missing values, a column of ones first, every column of unit norm."""
    X, y = table.dense(), table.y
    whole = ~np.isnan(np.column_stack([X, y])).any(axis=1)
    X, y = X[whole], y[whole]
    A = np.hstack([np.ones((len(y), 1)), X])
    norms = np.linalg.norm(A, axis=0)
    return A / np.where(norms > 0, norms, 1), y, [INTERCEPT, *table.names]


def loss_against_sparsity(config: LossAgainstSparsity, session: Session) -> Dataset:
    """Solve for all sparsities at once by every solver, with the intercept always in the support."""
    A, y, names = prepared(data.load(config.dataset, session.data_dir))
    k = config.k
    if max(k) > A.shape[1]:
        raise Failure(f"k: {max(k)} is more than the {A.shape[1]} columns of {config.dataset}, the intercept counted")
    objective = LeastSquares(jnp.asarray(A, jnp.float32), jnp.asarray(y, jnp.float32))
    keep = jnp.arange(A.shape[1]) == 0
    stop = Stop(max_steps=config.max_steps)

    def at(k: Array, name: str) -> Result:
        solver = SOLVERS[name].build(objective, k)
        return solve(objective, Sparse(k, k_max=max(config.k), keep=keep), solver, stop=stop)

    results = []
    session.report(0, len(config.solvers))
    for done, name in enumerate(config.solvers, 1):
        results.append(jax.device_get(jax.vmap(partial(at, name=name))(jnp.asarray(k))))
        session.report(done, len(config.solvers))

    def stacked(field: str) -> tuple[tuple[str, ...], NDArray[Any]]:
        values = np.stack([getattr(result, field) for result in results])
        return ("solver", "k", "feature")[: values.ndim], values

    return Dataset(
        {
            "loss": stacked("value"),
            "x": stacked("x"),
            "status": stacked("status"),
            "num_steps": stacked("num_steps"),
            "loss_intercept": omp_losses(A, y, [1])[0],
            "loss_omp": ("k", omp_losses(A, y, k)),
            "loss_best": ("k", best_losses(A, y, k)),
        },
        coords={"solver": config.solvers, "k": k, "feature": names},
        attrs={**sweep.provenance(), "num_samples": len(y)},
    )


def omp_losses(A: NDArray[np.float64], y: NDArray[np.float64], k: list[int]) -> NDArray[np.float64]:
    """The loss of scikit-learn's OMP. On centred data it is OMP with the intercept chosen first."""
    A, y = A[:, 1:] - A[:, 1:].mean(axis=0), y - y.mean()
    losses = [y @ y / 2]
    if max(k) > 1:
        path = orthogonal_mp(A, y, n_nonzero_coefs=max(k) - 1, return_path=True).reshape(A.shape[1], -1)
        losses.extend(np.sum((A @ path - y[:, None]) ** 2, axis=0) / 2)
    # OMP ends early where no column is left that would lower the loss.
    return np.array([losses[min(sparsity, len(losses)) - 1] for sparsity in k])


def best_losses(A: NDArray[np.float64], y: NDArray[np.float64], k: list[int]) -> NDArray[np.float64]:
    """The least loss of all supports with the intercept, by trying each; NaN where they are too many."""
    d = A.shape[1]
    if 2 ** (d - 1) > MAX_SUPPORTS:
        return np.full(len(k), np.nan)
    R: Any = np.linalg.qr(np.column_stack([A, y]), mode="r")  # keeps all losses, in d + 1 rows

    def loss(support: list[int]) -> float:
        residual = R[:, support] @ np.linalg.lstsq(R[:, support], R[:, d], rcond=None)[0] - R[:, d]
        return float(residual @ residual / 2)

    return np.array([min(loss([0, *rest]) for rest in combinations(range(1, d), sparsity - 1)) for sparsity in k])


def plot_loss_against_sparsity(dataset: Dataset) -> Figure:
    """The losses, how they compare with those of OMP, and which features the last solver selects."""
    config = plots.config(dataset, LossAgainstSparsity)
    figure = plots.figure(width=7.0, height=3.8)
    grid = figure.add_gridspec(2, 2, height_ratios=(2, 1))
    top, bottom, right = (figure.add_subplot(grid[place]) for place in ((0, 0), (1, 0), (slice(None), 1)))
    bottom.sharex(top)
    unit, power = plots.power_of_ten(float(dataset.loss_intercept))

    def compare(loss: DataArray, label: str, **style: Any) -> None:
        top.plot(dataset.k, loss / unit, label=label, **style)
        bottom.plot(dataset.k, 100 * (dataset.loss_omp - loss) / dataset.loss_intercept, **style)

    for name, marker, color in zip(config.solvers, "osD^v", plots.CYCLE, strict=False):
        loss, status = dataset.loss.sel(solver=name), dataset.status.sel(solver=name)
        # A diverged run returns its start, which says nothing.
        compare(loss.where(status != Status.DIVERGED), SOLVERS[name].label, color=color, marker=marker)
        compare(loss.where(status == Status.MAX_STEPS), "", color=color, marker=marker, linestyle="", mfc="white")
    compare(dataset.loss_omp, "OMP (scikit-learn)", color=plots.GREY, linestyle="--", zorder=1)
    if dataset.loss_best.notnull().all():
        compare(dataset.loss_best, "best of all supports", color=plots.BLACK, linewidth=0.8, zorder=1)
    if (dataset.status == Status.MAX_STEPS).any():
        top.plot([], [], "o", color=plots.GREY, mfc="white", label="stopped by the step limit")
    top.set_ylabel(r"training loss $\frac{1}{2}\Vert Ax - b\Vert^2$" + power)
    top.tick_params(labelbottom=False)
    plots.legend_above(top, columns=3)
    bottom.set_ylabel("$R^2$ minus OMP's (%)")
    bottom.set_xlabel("sparsity $k$, the intercept counted")
    plots.whole_numbers(bottom)

    name = config.solvers[-1]
    plots.selection(right, dataset.x.sel(solver=name).isel(feature=slice(1, None)))
    right.set_xlabel("sparsity $k$, the intercept counted")
    right.set_title(f"features selected by {SOLVERS[name].label}")
    plots.caption(figure, config.title, config.remark)
    return figure
