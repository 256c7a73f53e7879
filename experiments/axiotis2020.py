"""Axiotis & Sviridenko, Sparse Convex Optimization via Adaptively Regularized Hard Thresholding, 2020, §6."""

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from xarray import Dataset, concat

from experiments import baselines, data, plots
from experiments.baselines import L1Fit, L1LeastSquares, L1Logistic, Penalised
from experiments.config import Config, Count, Counts, Failure
from experiments.session import Session, double_precision
from experiments.solvers import SOLVERS, SolverName
from jaxht import OMP, LeastSquares, Logistic, Sparse, Stop, path, solve, sweep
from jaxht.solvers.status import Status

INTERCEPT = "intercept"
LASSO, REFITTED, BEST = "l1", "l1, refitted", "best"
MAX_SUPPORTS = 4096
TOLERANCE = 1e-6  # of scikit-learn
# From low to high, as the source finds it, within one percent.
ORDER, SLACK = ("ELS", "ARHT", "OMPR", "OMP", REFITTED), 1.01


class LossAgainstSparsity(Config):
    """Figures 1 to 4.

    Attributes:
        datasets: names of data sets, a column each.
        model: "linear", or "logistic" with labels -1/+1.
        split: of targets that are no labels, by data set: +1 below it.
        k: sparsities, the intercept counted; of a data set with fewer columns those that it has.
        solvers: one curve each, beside OMP; their rule for k does not apply.
        max_rows: the first rows of a data set are used.
        max_steps: of every solver; absent: as many as each takes by itself.
    """

    datasets: Annotated[list[str], Field(min_length=1)]
    model: Literal["linear", "logistic"] = "linear"
    split: dict[str, float] = Field(default_factory=dict)
    k: Counts
    solvers: Annotated[list[SolverName], Field(min_length=1)]
    max_rows: Count | None = None
    max_steps: Count | None = None


def prepared(table: data.Table) -> tuple[NDArray[np.float64], NDArray[np.float64], list[str]]:
    """The preprocessing of §6.2.2: no rows with missing values, a column of ones first, every column of unit norm."""
    X, y = table.dense(), table.y
    whole = ~np.isnan(np.column_stack([X, y])).any(axis=1)
    X, y = X[whole], y[whole]
    A = np.hstack([np.ones((len(y), 1)), X])
    norms = np.linalg.norm(A, axis=0)
    return A / np.where(norms > 0, norms, 1), y, [INTERCEPT, *table.names]


class Task:
    """A data set, its objective (of sums, without a ridge) and the solutions for every sparsity, in double precision.

    Args:
        name: of the data set.
        table: the data set.
        config: of the experiment.
    """

    def __init__(self, name: str, table: data.Table, config: LossAgainstSparsity) -> None:
        A, y, self.names = prepared(table)
        A, y = A[: config.max_rows], y[: config.max_rows]
        self.config, self.k = config, [k for k in config.k if k <= A.shape[1]]
        if not self.k or (len(config.datasets) == 1 and self.k != config.k):
            raise Failure(f"k: {max(config.k)} is more than the {A.shape[1]} columns of {name}, the intercept counted")
        self.penalised: Penalised
        if config.model == "linear":
            # d + 1 rows have the same losses; the first of them, of the intercept, is fitted by any x.
            R: Any = np.linalg.qr(np.column_stack([A, y]), mode="r")
            self.A, self.y = R[:, :-1], R[:, -1]
            self.penalised = L1LeastSquares(R[1:, 1:-1], R[1:, -1], TOLERANCE)
        else:
            y = np.where(y < config.split[name], 1.0, -1.0) if name in config.split else y
            if not np.all(np.abs(y) == 1):
                raise Failure(f"{name}: the labels must be -1 and +1, or split given; got {np.unique(y)[:5]}")
            self.A, self.y = A, y
            self.penalised = L1Logistic(A[:, 1:] / 2, y, TOLERANCE, intercept=True)

    def objective(self) -> Any:
        """Of the sum."""
        A, y = jnp.asarray(self.A), jnp.asarray(self.y)
        return LeastSquares(A, y) if self.config.model == "linear" else Logistic(A, y, mean=False)

    def constraint(self, k: Any) -> Sparse:
        """With the intercept."""
        return Sparse(k, k_max=max(self.k), keep=jnp.arange(self.A.shape[1]) == 0)

    def omp(self) -> Dataset:
        """The path of OMP, which is one run."""
        objective, constraint = self.objective(), self.constraint(max(self.k))
        results, seconds = timed(
            jax.jit(lambda f: path(f, constraint, OMP(), self.k)).lower(objective).compile(), objective
        )
        share = np.asarray(results.num_steps) / max(1, int(results.num_steps[-1]))
        return self._over_k(results.x, results.value, results.status, results.num_steps, seconds * share)

    def solved(self, name: str, starts: NDArray[np.float64]) -> Dataset:
        """By a solver, for one sparsity after the other."""
        row = SOLVERS[name]
        solve_for = self._solver(row.build)
        fits = []
        for k, start in zip(self.k, starts, strict=True):
            result, seconds = solve_for(k, start if row.after_omp else np.zeros_like(start))
            fits.append((result.x, result.value, result.status, result.num_steps, seconds))
        return self._over_k(*map(np.stack, zip(*fits, strict=True)))

    def l1(self, refit: bool) -> Dataset:
        """By the l1 penalty that leaves k - 1 nonzeros, or as near to them as it gets; perhaps then minimised there."""
        objective, minimised, fits = self.objective(), self._solver(lambda f, k: OMP()), []
        for k in self.k:
            begin = time.perf_counter()
            fit = self.penalised.with_nonzeros(k - 1)
            x, value = self._with_intercept(fit), None
            if refit:  # OMP with all of its coordinates at the start
                result, _ = minimised(fit.nonzeros + 1, x)
                x, value = result.x, result.value
            seconds = time.perf_counter() - begin
            value = objective.value(jnp.asarray(x), objective.predict(jnp.asarray(x))) if value is None else value
            ended = Status.CONVERGED if fit.num_steps < baselines.MAX_STEPS else Status.MAX_STEPS
            fits.append((x, value, int(ended), fit.num_steps, seconds))
        return self._over_k(*map(np.stack, zip(*fits, strict=True)))

    def intercept_loss(self) -> float:
        """Of the intercept alone."""
        if self.config.model == "linear":
            return float(self.y[1:] @ self.y[1:] / 2)
        shares = np.array([np.mean(self.y == sign) for sign in (-1, 1)])
        return float(-len(self.y) * np.sum(shares * np.log(np.maximum(shares, 1e-300))))

    def best(self) -> NDArray[np.float64]:
        """The least loss of all supports with the intercept, by trying each; NaN where they are too many."""
        d = self.A.shape[1]
        if self.config.model == "logistic" or 2 ** (d - 1) > MAX_SUPPORTS:
            return np.full(len(self.k), np.nan)

        def loss(support: list[int]) -> float:
            residual = self.A[:, support] @ np.linalg.lstsq(self.A[:, support], self.y, rcond=None)[0] - self.y
            return float(residual @ residual / 2)

        return np.array([min(loss([0, *rest]) for rest in itertools.combinations(range(1, d), k - 1)) for k in self.k])

    def _solver(self, build: Callable[[Any, Any], Any]) -> Callable[[int, NDArray[np.float64]], tuple[Any, float]]:
        """(k, x0) -> a result and its seconds; compiled once for all k."""
        objective, stop = self.objective(), Stop(max_steps=self.config.max_steps)

        @jax.jit
        def run(objective: Any, k: Array, x0: Array) -> Any:
            key = jax.random.fold_in(jax.random.key(0), k)
            return solve(objective, self.constraint(k), build(objective, k), x0=x0, key=key, stop=stop)

        compiled = run.lower(objective, jnp.int32(1), jnp.zeros(self.A.shape[1])).compile()
        return lambda k, x0: timed(compiled, objective, jnp.int32(k), jnp.asarray(x0))

    def _with_intercept(self, fit: L1Fit) -> NDArray[np.float64]:
        """The point for all columns."""
        if self.config.model == "linear":
            first = (self.y[0] - self.A[0, 1:] @ fit.x) / self.A[0, 0]
        else:  # b was added to A x / 2
            first = 2 * fit.intercept / self.A[0, 0]
        return np.append(first, fit.x)

    def _over_k(self, x: Any, value: Any, status: Any, num_steps: Any, seconds: Any) -> Dataset:
        columns = {"loss": value, "status": status, "num_steps": num_steps, "seconds": seconds}
        variables: dict[str, Any] = {name: ("k", np.asarray(column)) for name, column in columns.items()}
        variables["x"] = ("k", "feature"), np.asarray(x)
        return Dataset(variables, coords={"k": self.k, "feature": self.names})


def timed(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What it gives, and the seconds that it takes."""
    begin = time.perf_counter()
    return jax.block_until_ready(work(*arguments)), time.perf_counter() - begin


def loss_against_sparsity(config: LossAgainstSparsity, session: Session) -> Dataset:
    """Solve for all sparsities by every solver, with the intercept always in the support.

    The greedy ones start from the solution of OMP of the same sparsity, the others from zero. Every solver on every
    data set is a part of the store.
    """
    names = ["OMP", *config.solvers, LASSO, REFITTED]
    done, total = itertools.count(), len(config.datasets) * len(names)

    def on(dataset: str) -> Dataset:
        task = Task(dataset, data.load(dataset, session.data_dir), config)

        def kept(name: str, make: Callable[[], Dataset]) -> Dataset:
            session.report(next(done), total)
            return session.kept(f"{dataset}-{name.replace(', ', '-')}", make)

        omp = kept("OMP", task.omp)
        rest = [kept(name, partial(task.solved, name, omp.x.values)) for name in config.solvers]
        l1 = [kept(name, partial(task.l1, name == REFITTED)) for name in (LASSO, REFITTED)]
        results = concat([omp, *rest, *l1], "solver", join="outer").assign_coords(solver=names)
        if len(config.datasets) > 1:
            results = results.drop_vars(["x", "feature"])
        return results.assign({BEST: ("k", task.best()), "loss_intercept": task.intercept_loss()})

    with double_precision():
        results = concat([on(dataset) for dataset in config.datasets], "dataset", join="outer")
    session.report(total, total)
    return results.assign_coords(dataset=config.datasets).assign_attrs(sweep.provenance())


def ordered(results: Dataset) -> tuple[int, int, dict[str, int]]:
    """At how many sparsities of a data set the losses are as in ORDER, of how many, and where each link fails."""
    present = [name for name in ORDER if name in results.solver]
    losses = results.loss.sel(solver=present).dropna("k")
    links = {
        f"{low} > {high}": (losses.sel(solver=low) > SLACK * losses.sel(solver=high)).values
        for low, high in itertools.pairwise(present)
    }
    holds = ~np.any(list(links.values()), axis=0)
    return int(holds.sum()), holds.size, {link: int(fails.sum()) for link, fails in links.items() if fails.any()}


LOOKS = {"OMP": (plots.GREY, "o"), LASSO: (plots.BLANK, "x"), REFITTED: (plots.BLACK, "+")}
L1_LABEL = r"$\ell_1$"
GAIN = "Gain on OMP: its loss minus that of the solver, in percent of the loss of the intercept alone."


def plot_loss_against_sparsity(dataset: Dataset) -> Figure:
    """A column a data set: the losses, and how they compare with those of OMP; for a single one, what is selected."""
    config = plots.config(dataset, LossAgainstSparsity)
    number = len(config.datasets)
    figure = plots.figure(width=7.0, height=3.8)
    grid = figure.add_gridspec(2, max(2, number), height_ratios=(2, 1))
    remarks = []
    for column, name in enumerate(config.datasets):
        results = dataset.sel(dataset=name).dropna("k", subset=["loss"], how="all")
        top, bottom = figure.add_subplot(grid[0, column]), figure.add_subplot(grid[1, column])
        bottom.sharex(top)
        _compared(top, bottom, results, config)
        top.set_title(name.replace("_", " "), loc="left")
        holds, of, fails = ordered(results)
        where = f" (not: {', '.join(f'{link} at {n}' for link, n in fails.items())})" if fails else ""
        remarks.append(f"{name}: {' <= '.join(ORDER)} within 1% at {holds} of {of} sparsities{where}.")
    figure.axes[0].legend(loc="upper right", fontsize=7)
    if number == 1:
        right = figure.add_subplot(grid[:, 1])
        last = config.solvers[-1]
        plots.selection(right, dataset.x.isel(dataset=0).sel(solver=last).isel(feature=slice(1, None)))
        right.set_xlabel("sparsity $k$, the intercept counted")
        right.set_title(f"features selected by {SOLVERS[last].label}")
    plots.caption(figure, config.title, " ".join([config.remark, GAIN, *remarks]))
    return figure


def _compared(top: Axes, bottom: Axes, results: Dataset, config: LossAgainstSparsity) -> None:
    """The losses on one data set, and by how much they are below OMP's."""
    unit, power = plots.power_of_ten(float(results.loss_intercept))
    omp = results.loss.sel(solver="OMP")

    def compare(loss: Any, label: str, **style: Any) -> None:
        top.plot(results.k, loss / unit, label=label, **style)
        if label != L1_LABEL:  # which would hide all else
            bottom.plot(results.k, 100 * (omp - loss) / results.loss_intercept, **style)

    looks = dict(zip(config.solvers, zip(plots.CYCLE, "sD^vPo", strict=False), strict=False)) | LOOKS
    for name in results.solver.values:
        loss, status = results.loss.sel(solver=name), results.status.sel(solver=name)
        color, marker = looks[name]
        label = SOLVERS[name].label if name in SOLVERS else L1_LABEL + name.removeprefix(LASSO)
        # A diverged run returns its start, which says nothing.
        compare(loss.where(status != Status.DIVERGED), label, color=color, marker=marker)
        if name != LASSO:
            compare(loss.where(status >= Status.MAX_STEPS), "", color=color, marker=marker, linestyle="", mfc="white")
    if results[BEST].notnull().all():
        compare(results[BEST], "best of all supports", color=plots.BLACK, linewidth=0.8, linestyle=":", zorder=1)
    top.set_ylabel(("squared error" if config.model == "linear" else "logistic loss") + power)
    top.tick_params(labelbottom=False)
    bottom.set_ylabel("gain on OMP (%)")
    bottom.set_xlabel("sparsity $k$, the intercept counted")
    plots.whole_numbers(bottom)
