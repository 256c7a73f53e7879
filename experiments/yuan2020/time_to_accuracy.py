"""Yuan et al. 2020, Figures 5 to 10: support vector machines: loss, time to equal test error,
duality gap."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import model_validator
from sklearn.preprocessing import normalize
from xarray import DataArray, Dataset, concat

from experiments.common import (
    BaseConfig,
    Count,
    Names,
    Positive,
    Positives,
    Session,
    data,
    double_precision,
    plots,
    tasks,
)
from experiments.common.session import Piece
from jaxht import DIHT, HTP, IHT, SDIHT, SVRGHT, Hinge, SmoothedHinge, Sparse
from jaxht.extend import Carry

NAMES = ["IHT", "HTP", "SVRG-HT", "DIHT", "SDIHT"]
DUAL = NAMES[3:]
COLORS = dict(
    zip(NAMES, (plots.GREY, plots.ORANGE, plots.GREEN, plots.BLUE, plots.VERMILION), strict=True)
)
MARKERS = dict(zip(NAMES, "os^Dv", strict=True))


class Config(BaseConfig):
    """Figures 5 to 7, and 8 to 10."""

    # datasets: names of data sets with labels -1/+1, a row each; a name may come twice.
    datasets: Names
    k: list[Count]  # sparsity, one for each row
    loss: Literal["smoothed hinge", "hinge"]
    gamma: Positive  # of the smoothed hinge
    l0: Positives  # the ridge parameter is l0 / sqrt(N), N the number of training samples
    loss_l0: Positive  # where the loss is drawn against time
    gap_l0: Positives  # where the duality gap is drawn
    factors: Positives  # step sizes of the primal solvers; rows have unit norm
    # dual_factors: c of the dual step sizes c / (t + 2) on the hinge, in units of N for DIHT and m
    # N for SDIHT, m the number of mini-batches. On the smoothed hinge the dual steps are adaptive.
    dual_factors: Positives
    num_steps: dict[str, Count]  # of the runner, by solver; those named run
    batch_size: Count  # of SVRG-HT and SDIHT, whose step of the runner is an epoch
    updates: Count  # of DIHT in a step of the runner

    @model_validator(mode="after")
    def _check_names(self) -> "Config":
        if len(self.k) != len(self.datasets):
            raise ValueError("k must have one entry for each data set")
        if not {self.loss_l0, *self.gap_l0} <= set(self.l0):
            raise ValueError("loss_l0 and gap_l0 must be among l0")
        if not set(self.num_steps) <= set(NAMES) or not set(self.num_steps) & set(DUAL):
            raise ValueError(
                f"num_steps must name some of {', '.join(NAMES)}, a dual solver among them"
            )
        return self

    @property
    def solvers(self) -> list[str]:
        """The names of those that run."""
        return [name for name in NAMES if name in self.num_steps]


# From a step size to a solver, its step sizes (1 where they are adaptive), and the unit that they
# are multiples of.
Row = tuple[Callable[[Any], Any], list[float], float]


def rows(config: Config, n: int) -> dict[str, Row]:
    """Return the solvers for n training samples, by name."""
    b, batches, fixed = config.batch_size, math.ceil(n / config.batch_size), config.loss == "hinge"
    dual = config.dual_factors if fixed else [1.0]
    return {
        "IHT": (IHT, config.factors, 1),
        "HTP": (HTP, config.factors, 1),
        "SVRG-HT": (lambda step: SVRGHT(step, batches, b), config.factors, 1),
        "DIHT": (
            lambda step: DIHT(step if fixed else None, fixed, config.updates, not fixed),
            dual,
            n,
        ),
        "SDIHT": (
            lambda step: SDIHT(step if fixed else None, fixed, b, debias=not fixed),
            dual,
            batches * n,
        ),
    }


class Task(tasks.Task):
    """A data set in two parts, with rows of unit norm, shuffled within the training part.

    Where the set has no training part of its own, a random three quarters of the rows are it.
    """

    def __init__(self, name: str, k: int, config: Config, table: data.Table) -> None:
        super().__init__()
        tasks.check_labels(name, table.y)
        tasks.check_sparsity(name, k, table.X.shape[1])
        train, self.test = table.split(0.75, config.seed, shuffle=True)
        self.n, self.config, self.seed, self.constraint = (
            len(train.y),
            config,
            config.seed,
            Sparse(k),
        )
        A: Any = normalize(train.X)
        self.A_test, y = normalize(self.test.X), train.y
        objective = (
            Hinge(A, y, 1.0)
            if config.loss == "hinge"
            else SmoothedHinge(A, y, 1.0, gamma=config.gamma)
        )
        self.objective = objective.prepare()

    def runs(self, name: str, row: Row, piece: Piece) -> Dataset:
        """Run a solver with all its step sizes; for each l0 the run whose objective is lowest at
        its end."""
        build, factors, unit = row

        def best(l0: float) -> Dataset:
            each = [
                self.run(l0, build(factor * unit), self.config.num_steps[name])
                for factor in factors
            ]
            return tuned(concat(each, "factor").assign(step=("factor", factors)))

        results = [piece(f"{l0:g}", partial(best, l0)) for l0 in self.config.l0]
        return concat(results, "l0").assign_coords(l0=self.config.l0)

    def run(self, l0: float, solver: Any, num_steps: int) -> Dataset:
        """Record the values after each step taken, NaN beyond the last, and the seconds since the
        start.

        The whole run is timed, and all its steps count as equally long.
        """
        objective = replace(self.objective, l2=l0 / math.sqrt(self.n))
        result, (value, gap, counts, x), seconds = self.traced(
            solver, num_steps, _record, objective
        )
        point, taken = np.arange(num_steps + 1), max(1, int(result.num_steps))
        columns = {
            "value": np.where(np.isfinite(value), value, np.inf),
            "gap": np.full(num_steps + 1, np.nan) if gap is None else gap,
            "test_error": np.mean(
                self.test.y[:, None] * (self.A_test @ np.asarray(x).T) <= 0, axis=0
            ),
            "passes": counts.ifo / self.n,
            "seconds": seconds * point / taken,
        }
        made = Dataset(
            {name: ("point", np.asarray(column, np.float64)) for name, column in columns.items()}
        )
        return made.where(DataArray(point <= taken, dims="point")).assign_coords(point=point)


def _record(carry: Carry) -> Any:
    return carry.iterate.value, carry.info.gap, carry.counts, carry.iterate.x


def final(values: DataArray) -> DataArray:
    """Return the last value along point that is not NaN."""
    last = values.notnull() * DataArray(np.arange(values.sizes["point"]), dims="point")
    return values.isel(point=last.argmax("point"))


def tuned(runs: Dataset) -> Dataset:
    """Return of runs over (factor, point) the one whose value is lowest at its end."""
    return runs.isel(factor=int(final(runs.value).argmin("factor")))


def target(results: Dataset) -> float:
    """Return the test error that all solvers but one end at or below, for every l0, of results
    (solver, l0, point)."""
    ends = np.sort(final(results.test_error).transpose("solver", "l0").values, axis=0)
    return float(np.max(ends[max(0, len(ends) - 2)]))


def time_to_target(results: Dataset, error: float) -> DataArray:
    """Return the seconds until the test error stays at or below ``error``; NaN where it does
    not."""
    above = results.point.where(results.test_error > error).max("point").fillna(-1)
    return results.seconds.where(results.point > above).min("point")


def run(config: Config, session: Session) -> Dataset:
    """Run every solver on every data set; each a part of the store."""

    def on(dataset: str, k: int, part: Callable[..., Dataset]) -> Dataset:
        task = Task(dataset, k, config, data.load(dataset, session.data_dir))
        table = rows(config, task.n)
        parts = [
            part(f"{dataset}-{k}-{name}", partial(task.runs, name, table[name]), True)
            for name in config.solvers
        ]
        return concat(parts, "solver", join="outer").assign(n=task.n)

    # The bounds of rounding errors that duality gaps contain hide all below 1e-3 in single
    # precision.
    with double_precision(), session.parts(len(config.solvers) * len(config.datasets)) as part:
        results = [
            on(dataset, k, part) for dataset, k in zip(config.datasets, config.k, strict=True)
        ]
    return concat(results, "row", join="outer").assign_coords(solver=config.solvers)


DASHES = ("-", "--", ":", "-.")
REMARK = (
    "Left: f above $D^*$, the highest dual value of all runs, after each step. "
    "Middle: until the test error stays at or below the target, which all solvers but one end at "
    "for every $\\lambda_0$. Steps of a run count as equally long. "
    "What is below $10^{-10}$ is drawn there."
)
# Above the bounds of rounding errors that duality gaps contain.
FLOOR = 1e-10


def plot(dataset: Dataset, config: Config) -> Figure:
    """Draw a row for each data set and k: loss against time, time to a test error against l0, gap
    against epochs."""
    figure = plots.figure(9.4, 2.3 * len(config.datasets))
    grid = figure.subplots(len(config.datasets), 3, squeeze=False, sharex="col")
    for number, (row, name, k) in enumerate(zip(grid, config.datasets, config.k, strict=True)):
        results = dataset.isel(row=number)
        _loss(row[0], results.sel(l0=config.loss_l0))
        error = target(results)
        needed = time_to_target(results, error)
        for solver in config.solvers:
            row[1].plot(
                needed.l0, needed.sel(solver=solver), color=COLORS[solver], marker=MARKERS[solver]
            )
        for solver, l0 in itertools.product(
            [name for name in DUAL if name in config.solvers], config.gap_l0
        ):
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
    for axes, label in zip(
        grid[-1], ["time (s)", r"$\lambda_0$", "epochs, IFO / $N$"], strict=True
    ):
        axes.set_xlabel(label)
    looks = [(name, COLORS[name], "-") for name in config.solvers]
    looks += [
        (rf"$\lambda_0 = {l0:g}$", plots.BLACK, dashes)
        for l0, dashes in zip(config.gap_l0, DASHES, strict=False)
    ]
    plots.legend_right(grid[0, -1], looks)
    plots.caption(figure, config, REMARK)
    return figure


def _loss(axes: Axes, results: Dataset) -> None:
    """Draw the loss of all solvers above the highest dual value; the start, at time 0, is left
    out."""
    bound = float((results.value - results.gap).max())
    for name in results.solver.values:
        run = results.sel(solver=name).isel(point=slice(1, None)).dropna("point", subset=["value"])
        often = 1 if run.sizes["point"] < 20 else [-1]
        above = run.value - bound
        axes.plot(
            run.seconds,
            above.clip(FLOOR),
            color=COLORS[name],
            marker=MARKERS[name],
            markevery=often,
        )
    axes.set_xscale("log")
