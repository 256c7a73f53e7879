"""Yuan, Li & Zhang 2018, Figures 4 and 5: sparse logistic regression on real data, by solvers and
by l1 penalties."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from scipy import sparse
from sklearn.preprocessing import StandardScaler, normalize
from xarray import Dataset, concat

from experiments.common import (
    BaseConfig,
    Count,
    Names,
    Positive,
    Session,
    data,
    plots,
    tasks,
    timed,
)
from experiments.common.l1 import L1Fit, L1Logistic
from experiments.common.session import Piece
from experiments.common.solvers import SOLVERS, SolverNames
from jaxht import Logistic, Sparse, Status, Stop, baselines, path, solve

L1 = "l1"
APG = "APG"
PENALISED = {L1: r"$\ell_1$ (liblinear)", APG: r"$\ell_1$ (APG)"}


class OnData(BaseConfig):
    """The keys of both experiments."""

    datasets: Names  # names of data sets with labels -1/+1
    solvers: SolverNames  # one curve each, beside the l1 penalty
    l2: Positive  # ridge parameter
    rtol: Positive  # change at which a run counts as converged; also the tolerance of scikit-learn
    max_steps: Count | None = None  # of every solver; absent: as many as each takes by itself
    # solvers that take too long on a data set and are not run there, by its name
    left_out: dict[str, SolverNames] = Field(default_factory=dict)


class Fit(NamedTuple):
    """A solution on the training part."""

    objective: float  # with the ridge, on the training part
    test_error: float  # the part of the test samples on the wrong side
    nonzeros: int  # of the solution
    seconds: float  # that it took, compiled and with its step size known
    setup_seconds: float  # before that
    num_steps: int  # taken
    status: int  # how it ended


class Task(tasks.Task):
    """A data set in two parts, and how well it is solved.

    Rows of sparse sets are scaled to unit norm (as rcv1 and news20 are distributed), columns of
    dense ones standardised by the training part. Where the set has no training part of its own, a
    random half of the rows is it.
    """

    def __init__(self, name: str, table: data.Table, config: OnData) -> None:
        super().__init__()
        tasks.check_labels(name, table.y)
        self.config, self.stop = config, Stop(max_steps=config.max_steps, rtol=config.rtol)
        train, test = table.split(0.5, config.seed)
        scale = normalize if sparse.issparse(table.X) else StandardScaler().fit(train.X).transform
        self.A, self.A_test, self.y, self.y_test = scale(train.X), scale(test.X), train.y, test.y
        # The mean loss of factor 2 with its ridge, in single precision.
        A, y = self.A.astype(np.float32), self.y.astype(np.float32)
        self.objective = Logistic(A, y, config.l2, 2.0).prepare()
        self.penalised = L1Logistic(self.A, self.y, config.rtol)

    def solved(self, name: str, k: int) -> Fit:
        """Solve by a solver."""
        return self._solved(
            (name, k),
            self.objective,
            Sparse(k),
            lambda objective: SOLVERS[name].build(objective, k),
        )

    def apg_solved(self, penalty: float) -> Fit:
        """Solve with the l1 penalty by accelerated proximal gradients."""
        objective = replace(self.objective, l2=np.zeros_like(self.objective.l2))

        def build(objective: Any) -> Any:
            smoothness = objective.majorant().norm()
            return baselines.FISTA(jnp.float32(penalty), 1 / smoothness)

        return self._solved(APG, objective, Sparse(self.A.shape[1]), build)

    def _solved(
        self, key: Any, objective: Any, constraint: Sparse, build: Callable[[Any], Any]
    ) -> Fit:
        """Build a solver, compile and run it; a program for each key."""

        def run(objective: Any, solver: Any) -> Any:
            return solve(objective, constraint, solver, stop=self.stop)

        def prepare() -> Any:
            solver = jax.jit(build)(objective)
            return solver, self.compiled(key, run, objective, solver)

        (solver, compiled), setup_seconds = timed(prepare)
        result, seconds = timed(compiled, objective, solver)
        x = np.asarray(result.x, np.float64)
        return self._judged(x, seconds, setup_seconds, int(result.num_steps), int(result.status))

    def path_solved(self, name: str, ks: list[int]) -> list[Fit]:
        """Solve by a solver whose path is a single run; its time is that of the largest k, and not
        known of others."""

        def run(objective: Any) -> Any:
            return path(
                objective, Sparse(), SOLVERS[name].build(objective, max(ks)), ks=ks, stop=self.stop
            )

        compiled, setup_seconds = timed(self.compiled, (name, *ks), run, self.objective)
        results, seconds = timed(compiled, self.objective)
        times = [np.nan] * (len(ks) - 1) + [seconds]
        points = zip(
            np.asarray(results.x, np.float64), times, results.num_steps, results.status, strict=True
        )
        return [
            self._judged(x, time, setup_seconds, int(steps), int(status))
            for x, time, steps, status in points
        ]

    def l1_solved(self, fit: L1Fit) -> Fit:
        """Judge a solution of scikit-learn."""
        status = Status.CONVERGED if fit.converged else Status.MAX_STEPS
        return self._judged(fit.x, fit.seconds, 0.0, fit.num_steps, int(status))

    def _judged(self, x: NDArray[np.float64], *costs: Any) -> Fit:
        losses = np.logaddexp(0, -2 * self.y * (self.A @ x))
        wrong = self.y_test * (self.A_test @ x) <= 0
        return Fit(
            losses.mean() + self.config.l2 / 2 * x @ x,
            wrong.mean(),
            int(np.count_nonzero(x)),
            *costs,
        )


def compare(
    config: OnData,
    session: Session,
    axis: str,
    values: list[Any],
    penalised: Mapping[str, Callable[[Task], list[Fit]]],
) -> Dataset:
    """Solve with the l1 penalty and then by every solver, on every data set; a part of the store
    for each of them.

    The results are over the axis "k", or "penalty", where k is the number of nonzeros that the l1
    penalty left, by liblinear; ``penalised`` return the solutions for its values, by solvers of
    PENALISED.
    """
    names = [*penalised, *config.solvers]

    def on(dataset: str, part: Callable[..., Dataset]) -> Dataset:
        task = Task(dataset, data.load(dataset, session.data_dir), config)
        if axis == "k":
            tasks.check_sparsity(dataset, max(values), task.A.shape[1])

        def by_penalty(fits: Callable[[Task], list[Fit]]) -> Dataset:
            return over(axis, values, fits(task))

        with_penalty = [
            part(f"{dataset}-{name}", partial(by_penalty, fits)) for name, fits in penalised.items()
        ]
        first = with_penalty[0]
        k = [max(1, size) for size in first[axis if axis == "k" else "nonzeros"].values.tolist()]

        def by(name: str, piece: Piece) -> Dataset:
            if axis == "k" and SOLVERS[name].one_run:
                return piece("path", lambda: over(axis, values, task.path_solved(name, values)))

            def at(value: Any, size: int) -> Dataset:
                return over(axis, [value], [task.solved(name, size)])

            pieces = [
                piece(f"{value:g}", partial(at, value, size))
                for value, size in zip(values, k, strict=True)
            ]
            return concat(pieces, axis)

        run = [name for name in config.solvers if name not in config.left_out.get(dataset, [])]
        others = [part(f"{dataset}-{name}", partial(by, name), True) for name in run]
        together = concat([*with_penalty, *others], "solver")
        return together.assign_coords(solver=[*penalised, *run]).reindex(solver=names)

    left_out = sum(map(len, config.left_out.values()))
    with session.parts(len(names) * len(config.datasets) - left_out) as part:
        results = concat([on(dataset, part) for dataset in config.datasets], "dataset")
    return results.assign_coords(dataset=config.datasets)


def over(axis: str, values: list[Any], fits: list[Fit]) -> Dataset:
    """Return fits as a dataset."""
    columns = zip(Fit._fields, zip(*fits, strict=True), strict=True)
    return Dataset(
        {name: (axis, np.array(column)) for name, column in columns}, coords={axis: values}
    )


COLUMNS = {"objective": "training objective", "test_error": "test error (%)", "seconds": "time (s)"}


def draw_grid(
    dataset: Dataset, config: OnData, columns: list[str], label: str
) -> tuple[Figure, Any]:
    """Draw a row for each data set and a column for each of the measures; label: of the x axis."""
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
    for axes in grid[-1]:
        axes.set_xlabel(label)
    plots.caption(figure, config, hollow)
    return figure, grid


def _curves(axes: Axes, results: Dataset, column: str) -> None:
    """Draw a measure of all solvers on one data set; that of the l1 penalty at the number of its
    nonzeros."""
    looks = {L1: (plots.GREY, "x"), APG: (plots.GREY, "+")}
    looks = {name: look for name, look in looks.items() if name in results.solver.values}
    looks |= plots.looks(name for name in results.solver.values if name not in PENALISED)
    scale = 100 if column == "test_error" else 1
    for name, (color, marker) in looks.items():
        fits = results.sel(solver=name)
        at = fits.nonzeros if name == L1 and "k" in fits.dims else fits[results[column].dims[-1]]
        label = PENALISED[name] if name in PENALISED else SOLVERS[name].label
        value = (scale * fits[column]).where(fits.status != Status.DIVERGED)
        axes.plot(at, value, color=color, marker=marker, label=label)
        axes.plot(
            at, value.where(fits.status >= Status.MAX_STEPS), marker, color=color, mfc="white"
        )
