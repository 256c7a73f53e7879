"""Yuan, Li & Zhang, Gradient Hard Thresholding Pursuit, JMLR 2018, §6.2.2: logistic regression on real data."""

import itertools
import time
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any, NamedTuple, TypeVar

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from scipy import sparse
from sklearn.preprocessing import normalize
from xarray import Dataset, concat

from experiments import baselines, data, plots
from experiments.baselines import L1Fit, L1Logistic
from experiments.config import Config, Count, Counts, Failure, Fractions, Positive
from experiments.session import Session
from experiments.solvers import SOLVERS, SolverName
from jaxht import Logistic, Sparse, Stop, solve, sweep
from jaxht.solvers.status import Status

T = TypeVar("T")
L1 = "l1"


class OnData(Config):
    """The keys of both experiments.

    Attributes:
        datasets: names of data sets with labels -1/+1.
        solvers: one curve each, beside the l1 penalty.
        l2: ridge parameter.
        rtol: change at which a run counts as converged; also the tolerance of scikit-learn.
        max_steps: of every solver; absent: as many as each takes by itself.
        seed: of the split, where a data set has none of its own.
    """

    datasets: Annotated[list[str], Field(min_length=1)]
    solvers: Annotated[list[SolverName], Field(min_length=1)]
    l2: Positive
    rtol: Positive
    max_steps: Count | None = None
    seed: Annotated[int, Field(ge=0)] = 0


class Fit(NamedTuple):
    """A solution on the training part.

    Attributes:
        objective: with the ridge, on the training part.
        test_error: the part of the test samples on the wrong side.
        nonzeros: of the solution.
        seconds: that it took, compiled and with its step size known.
        setup_seconds: before that.
        num_steps: taken.
        status: how it ended.
    """

    objective: float
    test_error: float
    nonzeros: int
    seconds: float
    setup_seconds: float
    num_steps: int
    status: int


class Task:
    """A data set in two parts, and how well it is solved.

    Args:
        table: the data set.
        config: of the experiment.

    Rows of sparse sets are scaled to unit norm (as rcv1 and news20 are distributed), columns of dense ones standardised
    by the training part. Where the set has no training part of its own, a random half of the rows is it.
    """

    def __init__(self, table: data.Table, config: OnData) -> None:
        if not np.all(np.abs(table.y) == 1):
            raise Failure(f"data set: the labels must be -1 and +1; got {np.unique(table.y)[:5]}")
        self.config = config
        order, train = np.arange(len(table.y)), table.num_train
        if train is None:
            order, train = np.random.default_rng(config.seed).permutation(order), len(order) // 2
        X, self.y, self.y_test = table.X[order], table.y[order[:train]], table.y[order[train:]]
        X = normalize(X) if sparse.issparse(X) else _standardised(X, train)
        self.A, self.A_test = X[:train], X[train:]

    @cached_property
    def objective(self) -> Logistic:
        """The mean loss of factor 2 with its ridge, in single precision."""
        A: Any = self.A.astype(np.float32)
        return Logistic(A, self.y.astype(np.float32), self.config.l2, 2.0).prepare()  # type: ignore[return-value]

    @cached_property
    def penalised(self) -> L1Logistic:
        """The l1 penalty in place of a bound on the nonzeros."""
        return L1Logistic(self.A, self.y, self.config.rtol)

    def solved(self, name: str, k: int) -> Fit:
        """By a solver."""
        stop = Stop(max_steps=self.config.max_steps, rtol=self.config.rtol)

        def run(objective: Logistic, solver: Any) -> Any:
            return solve(objective, Sparse(k), solver, stop=stop)

        def prepare() -> Any:
            solver = jax.jit(lambda objective: SOLVERS[name].build(objective, k))(self.objective)
            return solver, jax.jit(run).lower(self.objective, solver).compile()

        (solver, compiled), setup_seconds = timed(prepare)
        result, seconds = timed(lambda: jax.block_until_ready(compiled(self.objective, solver)))
        x = np.asarray(result.x, np.float64)
        return self._judged(x, seconds, setup_seconds, int(result.num_steps), int(result.status))

    def l1_solved(self, fit: L1Fit) -> Fit:
        """By scikit-learn."""
        ended = Status.CONVERGED if fit.num_steps < baselines.MAX_STEPS else Status.MAX_STEPS
        return self._judged(fit.x, fit.seconds, 0.0, fit.num_steps, int(ended))

    def _judged(self, x: NDArray[np.float64], *costs: Any) -> Fit:
        losses = np.logaddexp(0, -2 * self.y * (self.A @ x))
        wrong = self.y_test * (self.A_test @ x) <= 0
        return Fit(losses.mean() + self.config.l2 / 2 * x @ x, wrong.mean(), int(np.count_nonzero(x)), *costs)


def _standardised(X: NDArray[np.float64], train: int) -> NDArray[np.float64]:
    spread = X[:train].std(axis=0)
    return (X - X[:train].mean(axis=0)) / np.where(spread > 0, spread, 1)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What it gives, and the seconds that it takes."""
    begin = time.perf_counter()
    return work(), time.perf_counter() - begin


def compared(
    config: OnData, session: Session, axis: str, values: list[Any], l1: Callable[[Task], list[L1Fit]]
) -> Dataset:
    """Solve by the l1 penalty and then by every solver, on every data set; a part of the store for each of them.

    Args:
        config: what and how.
        session: where.
        axis: what the results lie over: "k", or "penalty", where k is the number of nonzeros that the l1 penalty left.
        values: on the axis.
        l1: the solutions for them.
    """
    names = [L1, *config.solvers]
    done, total = itertools.count(), len(config.datasets) * len(names)

    def kept(dataset: str, name: str, fits: Callable[[], list[Fit]]) -> Dataset:
        session.report(next(done), total)
        return session.kept(f"{dataset}-{name}", lambda: over(axis, values, fits()))

    def on(dataset: str) -> Dataset:
        task = Task(data.load(dataset, session.data_dir), config)
        if axis == "k" and max(values) > task.A.shape[1]:
            raise Failure(f"k: {max(values)} is more than the {task.A.shape[1]} columns of {dataset}")
        first = kept(dataset, L1, lambda: [task.l1_solved(fit) for fit in l1(task)])
        k = [max(1, size) for size in first[axis if axis == "k" else "nonzeros"].values.tolist()]

        def by(name: str) -> Dataset:
            return kept(dataset, name, lambda: [task.solved(name, size) for size in k])

        return concat([first, *map(by, config.solvers)], "solver")

    results = concat([on(dataset) for dataset in config.datasets], "dataset")
    session.report(total, total)
    return results.assign_coords(dataset=config.datasets, solver=names).assign_attrs(sweep.provenance())


def over(axis: str, values: list[Any], fits: list[Fit]) -> Dataset:
    """Fits as a dataset."""
    columns = zip(Fit._fields, zip(*fits, strict=True), strict=True)
    return Dataset({name: (axis, np.array(column)) for name, column in columns}, coords={axis: values})


class AgainstSparsity(OnData):
    """Figure 4.

    Attributes:
        k: sparsities.
    """

    k: Counts


def against_sparsity(config: AgainstSparsity, session: Session) -> Dataset:
    """Solve for every k, and by an l1 penalty that leaves about as many nonzeros."""
    return compared(config, session, "k", config.k, lambda task: [task.penalised.with_nonzeros(k) for k in config.k])


class AgainstPenalty(OnData):
    """Figure 5.

    Attributes:
        penalties: lambda of the l1 penalty, in units of the least that leaves no nonzeros.
    """

    penalties: Fractions


def against_penalty(config: AgainstPenalty, session: Session) -> Dataset:
    """Solve by every l1 penalty, and then with as many nonzeros as that has left."""

    def l1(task: Task) -> list[L1Fit]:
        return [task.penalised.at(penalty * task.penalised.largest) for penalty in config.penalties]

    return compared(config, session, "penalty", config.penalties, l1)


COLUMNS = {"objective": "training objective", "test_error": "test error (%)", "seconds": "time (s)"}


def plot_against_sparsity(dataset: Dataset) -> Figure:
    """A row for each data set: objective, test error and time against k."""
    figure, grid = _grid(dataset, plots.config(dataset, AgainstSparsity), list(COLUMNS))
    for axes in grid[-1]:
        axes.set_xlabel("number of nonzeros $k$")
    return figure


def plot_against_penalty(dataset: Dataset) -> Figure:
    """A row for each data set: test error and time against the l1 penalty."""
    figure, grid = _grid(dataset, plots.config(dataset, AgainstPenalty), ["test_error", "seconds"])
    for row in grid:
        for axes in row:
            axes.set_xscale("log")
    for axes in grid[-1]:
        axes.set_xlabel(r"$\ell_1$ penalty $\lambda / \lambda_{\max}$")
    return figure


def _grid(dataset: Dataset, config: OnData, columns: list[str]) -> tuple[Figure, Any]:
    figure = plots.figure(2.6 * len(columns) + 1.2, 2.0 * len(config.datasets))
    grid = figure.subplots(len(config.datasets), len(columns), squeeze=False, sharex="col")
    for row, name in zip(grid, config.datasets, strict=True):
        for axes, column in zip(row, columns, strict=True):
            _curves(axes, dataset.sel(dataset=name), column)
            axes.set_ylabel(COLUMNS[column])
        row[-1].set_yscale("log")
        row[0].set_title(name.replace("_", " "), loc="left")
    plots.legend_right(grid[0, -1])
    hollow = "Hollow: not converged." if (dataset.status >= Status.MAX_STEPS).any() else ""
    plots.caption(figure, config.title, " ".join(filter(None, [config.remark, hollow])))
    return figure, grid


def _curves(axes: Axes, results: Dataset, column: str) -> None:
    """One measure by all solvers on one data set; that of the l1 penalty stands at the nonzeros that it has."""
    looks = zip(results.solver.values, (plots.GREY, *plots.CYCLE), "x" + "osD^vP", strict=False)
    scale = 100 if column == "test_error" else 1
    for name, color, marker in looks:
        fits = results.sel(solver=name)
        at = fits.nonzeros if name == L1 and "k" in fits.dims else fits[results[column].dims[-1]]
        label = r"$\ell_1$ (liblinear)" if name == L1 else SOLVERS[name].label
        value = (scale * fits[column]).where(fits.status != Status.DIVERGED)
        axes.plot(at, value, color=color, marker=marker, label=label)
        axes.plot(at, value.where(fits.status >= Status.MAX_STEPS), marker, color=color, mfc="white")
