"""Yuan et al., Dual Iterative Hard Thresholding, JMLR 2020, §5.2.2: Figures 5 to 10, support vector machines."""

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field, model_validator
from sklearn.preprocessing import normalize
from xarray import DataArray, Dataset, concat

from experiments import data, plots
from experiments.config import Config, Count, Failure, Positive, Positives
from experiments.session import Session
from jaxht import DIHT, HTP, IHT, SDIHT, SVRGHT, Hinge, SmoothedHinge, Sparse, sweep, trace
from jaxht.solvers.solver import Iterate

NAMES = ["IHT", "HTP", "SVRG-HT", "DIHT", "SDIHT"]
DUAL = NAMES[3:]
COLORS = dict(zip(NAMES, (plots.GREY, plots.ORANGE, plots.GREEN, plots.BLUE, plots.VERMILION), strict=True))
MARKERS = dict(zip(NAMES, "os^Dv", strict=True))


class TimeToAccuracy(Config):
    """Figures 5 to 7, and 8 to 10.

    Attributes:
        datasets: names of data sets with labels -1/+1, a row each; a name may come twice.
        k: sparsity, one for each row.
        loss: "smoothed hinge" or "hinge".
        gamma: of the smoothed hinge.
        l0: the ridge parameter is l0 / sqrt(N), N the number of training samples.
        loss_l0: where the loss is drawn against time.
        gap_l0: where the duality gap is drawn.
        factors: step sizes of the primal solvers; rows have unit norm.
        dual_factors: c of the dual step sizes c / (t + 2) on the hinge, in units of N for DIHT and m N for SDIHT, m the
            number of mini-batches. On the smoothed hinge the dual steps are adaptive.
        num_steps: of the runner, by solver; those named run.
        batch_size: of SVRG-HT and SDIHT, whose step of the runner is an epoch.
        updates: of DIHT in a step of the runner.
        seed: of the samples drawn, and of the split where a data set has none of its own.
    """

    datasets: Annotated[list[str], Field(min_length=1)]
    k: list[Count]
    loss: Literal["smoothed hinge", "hinge"]
    gamma: Positive
    l0: Positives
    loss_l0: Positive
    gap_l0: Positives
    factors: Positives
    dual_factors: Positives
    num_steps: dict[str, Count]
    batch_size: Count
    updates: Count
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _consistent(self) -> "TimeToAccuracy":
        if len(self.k) != len(self.datasets):
            raise ValueError("k must have one entry for each data set")
        if not {self.loss_l0, *self.gap_l0} <= set(self.l0):
            raise ValueError("loss_l0 and gap_l0 must be among l0")
        if not set(self.num_steps) <= set(NAMES) or not set(self.num_steps) & set(DUAL):
            raise ValueError(f"num_steps must name some of {', '.join(NAMES)}, a dual solver among them")
        return self

    @property
    def solvers(self) -> list[str]:
        """Names of those that run."""
        return [name for name in NAMES if name in self.num_steps]


class Row(NamedTuple):
    """A solver with its step sizes.

    Attributes:
        build: step size -> solver.
        factors: step sizes; 1 where they are adaptive.
        unit: that they are multiples of.
    """

    build: Callable[[Any], Any]
    factors: list[float]
    unit: float = 1.0


def rows(config: TimeToAccuracy, n: int) -> dict[str, Row]:
    """The solvers for n training samples."""
    b, batches, adaptive = config.batch_size, math.ceil(n / config.batch_size), config.loss != "hinge"
    dual = [1.0] if adaptive else config.dual_factors

    def diht(step: Any) -> DIHT:
        return DIHT(None if adaptive else step, not adaptive, config.updates)

    def sdiht(step: Any) -> SDIHT:
        return SDIHT(None if adaptive else step, not adaptive, b)

    return {
        "IHT": Row(IHT, config.factors),
        "HTP": Row(HTP, config.factors),
        "SVRG-HT": Row(lambda step: SVRGHT(step, batches, b), config.factors),
        "DIHT": Row(diht, dual, n),
        "SDIHT": Row(sdiht, dual, batches * n),
    }


class Task:
    """A data set in two parts, and runs on it. Rows are scaled to unit norm and shuffled within the training part.

    Args:
        name: of the data set.
        k: sparsity.
        config: of the experiment.
        table: the data set. Where it has no training part of its own, a random three quarters of the rows are it.
    """

    def __init__(self, name: str, k: int, config: TimeToAccuracy, table: data.Table) -> None:
        if not np.array_equal(np.unique(table.y), [-1, 1]):
            raise Failure(f"{name}: the labels must be -1 and +1; got {np.unique(table.y)[:5]}")
        if k > table.X.shape[1]:
            raise Failure(f"k: {k} is more than the {table.X.shape[1]} columns of {name}")
        rng = np.random.default_rng(config.seed)
        order, self.n = rng.permutation(len(table.y)), 3 * len(table.y) // 4
        if table.num_train is not None:
            self.n = table.num_train
            order = np.append(rng.permutation(self.n), np.arange(self.n, len(table.y)))
        X, y = normalize(table.X)[order].astype(np.float32), table.y[order].astype(np.float32)
        train: Any = X[: self.n]
        self.A_test, self.y_test = X[self.n :], y[self.n :]
        self.objective: Any = (
            Hinge(train, y[: self.n], 1.0)
            if config.loss == "hinge"
            else SmoothedHinge(train, y[: self.n], 1.0, gamma=config.gamma)
        ).prepare()
        self.config, self.constraint = config, Sparse(k)

    def runs(self, name: str, row: Row) -> Dataset:
        """Of a solver, for each l0 the run whose objective is lowest at its end, over its step sizes."""
        num_steps, penalties = self.config.num_steps[name], self.config.l0
        runs = [[self.run(l0, factor, row, num_steps) for factor in row.factors] for l0 in penalties]
        return concat([tuned(concat(each, "factor")) for each in runs], "l0").assign_coords(l0=penalties)

    def run(self, l0: float, factor: float, row: Row, num_steps: int) -> Dataset:
        """One run: what holds after each step taken, NaN beyond the last, and the seconds since the start.

        The whole run is timed, compiled before; all its steps count as equally long.
        """
        objective = replace(self.objective, l2=jnp.float32(l0 / math.sqrt(self.n)))
        solver, key = row.build(jnp.float32(factor * row.unit)), jax.random.key(self.config.seed)
        compiled = _traced.lower(objective, self.constraint, solver, key, num_steps).compile()
        begin = time.perf_counter()
        result, (value, gap, counts, x) = jax.block_until_ready(compiled(objective, self.constraint, solver, key))
        seconds = time.perf_counter() - begin
        point, taken = np.arange(num_steps + 1), max(1, int(result.num_steps))
        columns = {
            "value": np.where(np.isfinite(value), value, np.inf),
            "gap": np.full(num_steps + 1, np.nan) if gap is None else gap,
            "test_error": np.mean(self.y_test[:, None] * (self.A_test @ np.asarray(x).T) <= 0, axis=0),
            "passes": counts.ifo / self.n,
            "seconds": seconds * point / taken,
        }
        made = Dataset({name: ("point", np.asarray(column, np.float64)) for name, column in columns.items()})
        made = made.where(DataArray(point <= taken, dims="point"))
        return made.assign(step=factor).assign_coords(point=point)


@partial(jax.jit, static_argnums=4)
def _traced(objective: Any, constraint: Any, solver: Any, key: Any, num_steps: int) -> Any:
    return trace(objective, constraint, solver, num_steps=num_steps, record=_record, key=key)


def _record(iterate: Iterate) -> Any:
    return iterate.value, iterate.gap, iterate.counts, iterate.x


def final(values: DataArray) -> DataArray:
    """The last along point that is not NaN."""
    last = values.notnull() * DataArray(np.arange(values.sizes["point"]), dims="point")
    return values.isel(point=last.argmax("point"))


def tuned(runs: Dataset) -> Dataset:
    """Of runs over (factor, point), the one whose value is lowest at its end."""
    return runs.isel(factor=int(final(runs.value).argmin("factor")))


def target(results: Dataset) -> float:
    """The test error that all solvers but one end at or below, for every l0. Results are over (solver, l0, point)."""
    ends = np.sort(final(results.test_error).transpose("solver", "l0").values, axis=0)
    return float(np.max(ends[max(0, len(ends) - 2)]))


def time_to_target(results: Dataset, error: float) -> DataArray:
    """Seconds to the first point from which on the test error stays at or below ``error``; NaN where there is none."""
    above = results.point.where(results.test_error > error).max("point").fillna(-1)
    return results.seconds.where(results.point > above).min("point")


def time_to_accuracy(config: TimeToAccuracy, session: Session) -> Dataset:
    """Every solver on every data set; each a part of the store."""
    done, total = itertools.count(), len(config.solvers) * len(config.datasets)

    def on(dataset: str, k: int) -> Dataset:
        task = Task(dataset, k, config, data.load(dataset, session.data_dir))

        def kept(name: str, row: Row) -> Dataset:
            session.report(next(done), total)
            return session.kept(f"{dataset}-{k}-{name}", lambda: task.runs(name, row))

        table = rows(config, task.n)
        parts = [kept(name, table[name]) for name in config.solvers]
        return concat(parts, "solver", join="outer").assign(n=task.n)

    results = concat(list(map(on, config.datasets, config.k)), "row", join="outer")
    session.report(total, total)
    return results.assign_coords(solver=config.solvers).assign_attrs(sweep.provenance())


DASHES = ("-", "--", ":", "-.")
REMARK = (
    "Left: f above $D^*$, the highest dual value of all runs, after each step. "
    "Middle: until the test error stays at or below the target, which all solvers but one end at "
    "for every $\\lambda_0$. Steps of a run count as equally long. "
    "What is below $2 \\cdot 10^{-7}$ is rounding, and drawn there."
)
# Of single precision, where f is about 1.
FLOOR = 2e-7


def plot_time_to_accuracy(dataset: Dataset) -> Figure:
    """A row for each data set and k: loss against time, time to a test error against l0, gap against epochs."""
    config = plots.config(dataset, TimeToAccuracy)
    figure = plots.figure(9.4, 2.3 * len(config.datasets))
    grid = figure.subplots(len(config.datasets), 3, squeeze=False, sharex="col")
    for number, (row, name, k) in enumerate(zip(grid, config.datasets, config.k, strict=True)):
        results = dataset.isel(row=number)
        _loss(row[0], results.sel(l0=config.loss_l0))
        error = target(results)
        needed = time_to_target(results, error)
        for solver in config.solvers:
            row[1].plot(needed.l0, needed.sel(solver=solver), color=COLORS[solver], marker=MARKERS[solver])
        for solver, l0 in itertools.product([name for name in DUAL if name in config.solvers], config.gap_l0):
            run = results.sel(solver=solver, l0=l0)
            look: Any = {
                "color": COLORS[solver],
                "linestyle": DASHES[config.gap_l0.index(l0) % len(DASHES)],
            }
            row[2].plot(run.passes, run.gap.clip(FLOOR), marker=".", **look)
        row[0].set_title(f"{name.replace('_', ' ')}, $k = {k}$", loc="left")
        row[1].set_title(f"test error {100 * error:.2f} %", loc="left")
        row[1].set_xticks(config.l0)
        labels = rf"$f - D^*$, $\lambda_0 = {config.loss_l0:g}$", "time (s)", "duality gap"
        for axes, label in zip(row, labels, strict=True):
            axes.set_ylabel(label)
            axes.set_yscale("log")
    for axes, label in zip(grid[-1], ["time (s)", r"$\lambda_0$", "epochs, IFO / $N$"], strict=True):
        axes.set_xlabel(label)
    looks = [(name, COLORS[name], "-") for name in config.solvers]
    looks += [
        (rf"$\lambda_0 = {l0:g}$", plots.BLACK, dashes) for l0, dashes in zip(config.gap_l0, DASHES, strict=False)
    ]
    plots.legend_right(grid[0, -1], looks)
    plots.caption(figure, config.title, f"{config.remark} {REMARK}")
    return figure


def _loss(axes: Axes, results: Dataset) -> None:
    """By all solvers, above the highest dual value; the start, at time 0, is left out."""
    bound = float((results.value - results.gap).max())
    for name in results.solver.values:
        run = results.sel(solver=name).isel(point=slice(1, None)).dropna("point", subset=["value"])
        often = 1 if run.sizes["point"] < 20 else [-1]
        above = run.value - bound
        axes.plot(run.seconds, above.clip(FLOOR), color=COLORS[name], marker=MARKERS[name], markevery=often)
    axes.set_xscale("log")
