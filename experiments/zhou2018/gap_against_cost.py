"""Zhou, Yuan & Feng 2018, Figures 1 and 2: the gap against gradients of samples and thresholdings,
on real data."""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field, model_validator
from sklearn.preprocessing import normalize
from xarray import Dataset, concat

import jaxht
from experiments.common import (
    BaseConfig,
    Count,
    Names,
    Positive,
    Positives,
    Session,
    data,
    plots,
    tasks,
)
from experiments.common.session import Piece
from jaxht import (
    HSGHT,
    IHT,
    SGHT,
    SVRGHT,
    LowRank,
    MultiResponse,
    Sparse,
    Status,
    Stop,
    reduced_rank_minimum,
    solve,
)
from jaxht.extend import Carry, refit


class Config(BaseConfig):
    """Figures 1 and 2."""

    datasets: Names  # names of data sets, a row each
    # model: "logistic", with labels -1/+1, or "softmax", with a class for each value of the target,
    # both sparse; or "regression" of the indicators of these classes, of bounded rank.
    model: Literal["logistic", "softmax", "regression"]
    # target: the array of the file that is the target, by data set, where it is not y.
    target: dict[str, str] = Field(default_factory=dict)
    # domain: the rows used, by data set, where it is not all: those of which the file's array
    # domain has this value.
    domain: dict[str, int] = Field(default_factory=dict)
    k: list[Count]  # sparsity or rank, one for each data set
    l2: Positive  # lambda, the ridge parameter; of softmax it is divided by the number of classes
    max_rows: Count | None = None  # the first rows of a training part are used
    factors: Positives  # step sizes to choose from, in units of 1/L, L the smoothness of a sample
    # growth: factors by which the batches of HSG-HT and AHSG-HT grow, to choose from; the first
    # batch is one sample.
    growth: list[Annotated[float, Field(ge=1, allow_inf_nan=False)]]
    momentum: list[Annotated[float, Field(ge=0, lt=1)]]  # of AHSG-HT, to choose from
    # budgets of a run, IFO / n: for each the settings are chosen with which a run ends lowest
    passes: Positives
    # runs of a stochastic solver with the settings chosen, none of them that by which they are
    # chosen
    num_seeds: Count
    # choice_seeds: runs of a stochastic solver by whose mean end its settings are chosen, among the
    # FINALISTS that end lowest in the first of these
    choice_seeds: Count = 1
    batch_size: Count  # of SG-HT and SVRG-HT
    points: Count  # how often the objective of SG-HT is recorded
    stage: Positive  # updates of a stage of SVRG-HT, in units of n / batch_size
    # rtol, max_steps: where the long run of FG-HT ends, for f*; of regression there is a closed
    # form.
    rtol: Positive
    max_steps: Count

    @model_validator(mode="after")
    def _check_k(self) -> "Config":
        if len(self.k) != len(self.datasets):
            raise ValueError("k must have one entry for each data set")
        return self


# A step size in units of 1/L, a growth and a momentum.
GridPoint = tuple[float, ...]
# Settings of a solver that are run with all keys of the choice: the lowest with the first one.
FINALISTS = 5
# How often each number of a setting is searched, the others as they are.
ROUNDS = 2
# Values of f that are recorded of updates with growing batches; each is a pass over the data.
MAX_RECORDS = 2000


def search(grid: Sequence[Sequence[float]], end: Callable[[GridPoint], float]) -> GridPoint:
    """Find the lowest setting of a grid by coordinate search from its middle."""
    best = tuple(numbers[len(numbers) // 2] for numbers in grid)
    for place, numbers in list(enumerate(grid)) * ROUNDS:
        near = [(*best[:place], number, *best[place + 1 :]) for number in numbers]
        best = min(near, key=end)
    return best


class Row(NamedTuple):
    """A solver with the settings that it is run with."""

    build: Callable[..., Any]  # (step size, growth, momentum) -> solver
    num_steps: Callable[[float], int]  # of the runner, from the growth
    growth: list[float]
    momentum: list[float]


def rows(config: Config, n: int) -> dict[str, Row]:
    """Return the solvers for n samples, with steps of the runner that are long enough to record
    each."""
    budget, b = max(config.passes) * n, config.batch_size
    inner = max(1, int(budget / b / config.points))
    m = max(1, round(config.stage * n / b))
    stages, calls = max(1, int(budget / (n + 2 * b * m))), min(config.points, math.ceil(budget / b))

    def updates_per_record(growth: float) -> int:
        return math.ceil(growing_updates(budget, growth, n=n) / MAX_RECORDS)

    def num_records(growth: float) -> int:
        return growing_updates(budget, growth, n=n) // updates_per_record(growth)

    def growing(step: Any, growth: float, momentum: float | None) -> HSGHT:
        return HSGHT(step, momentum, 1, growth, updates_per_record(growth))

    return {
        "FG-HT": Row(
            lambda step, *_: IHT(step), lambda _: math.ceil(max(config.passes)), [1.0], [0.0]
        ),
        "SG-HT": Row(lambda step, *_: SGHT(step, b, inner), lambda _: calls, [1.0], [0.0]),
        "SVRG-HT": Row(lambda step, *_: SVRGHT(step, m, b), lambda _: stages, [1.0], [0.0]),
        "HSG-HT": Row(
            lambda step, growth, _: growing(step, growth, None), num_records, config.growth, [0.0]
        ),
        "AHSG-HT": Row(growing, num_records, config.growth, config.momentum),
    }


@cache
def growing_updates(budget: float, growth: float, *, n: int) -> int:
    """Return how many updates with growing batches the budget allows; at least one."""
    updates, spent = 0, 1
    while spent <= budget:
        updates += 1
        spent += min(n, math.ceil(growth**updates))
    return max(1, updates)


class Task(tasks.Task):
    """The training part of a data set, where it has one, with rows of unit norm; k: sparsity or
    rank."""

    def __init__(self, name: str, k: int, config: Config, table: data.Table) -> None:
        super().__init__()
        self.config, self.seed, self.k, self.constraint = config, config.seed, k, Sparse(k)
        self.passes = config.passes
        self.n = n = min(table.num_train or len(table.y), config.max_rows or len(table.y))
        A: Any = normalize(table.X[:n]).astype(np.float32)
        classes, ids = np.unique(table.y[:n], return_inverse=True)
        c = len(classes)
        if config.model == "regression":
            self.objective = MultiResponse(A, np.eye(c, dtype=np.float32)[ids], config.l2).prepare()
            self.constraint = LowRank(k, k_max=k)
        elif config.model == "softmax":
            self.objective = jaxht.Softmax(
                A, ids.astype(np.int32), config.l2 / c, num_classes=c
            ).prepare()
        else:
            tasks.check_labels(name, table.y[:n])
            self.objective = jaxht.Logistic(A, table.y[:n].astype(np.float32), config.l2).prepare()
        shape = self.objective.shape
        tasks.check_sparsity(
            name, k, min(shape) if config.model == "regression" else math.prod(shape)
        )
        self.A, self.unit = (
            A,
            1 / jax.jit(lambda objective: objective.sample_smoothness())(self.objective),
        )

    def run(self, row: Row, setting: GridPoint, key: Any) -> tuple[Any, Dataset]:
        """Run a solver with a step size, a growth and a momentum: the result, and the objective and
        cost on the way."""
        factor, *others = setting
        solver = row.build(jnp.float32(factor * self.unit), *others)
        result, (value, counts), _ = self.traced(solver, row.num_steps(others[0]), _record, key=key)
        columns = {"value": value, "ifo": counts.ifo, "projections": counts.projections}
        curve = {name: ("point", np.asarray(column, float)) for name, column in columns.items()}
        return result, Dataset(curve, {"point": np.arange(len(curve["ifo"][1]))})

    def choose(self, row: Row, piece: Piece) -> Dataset:
        """Find the settings of a solver that end lowest within each budget, and the lowest x: they
        are searched with one key, and the lowest FINALISTS are run with the others, too."""
        keys = self.choice_keys(row, (0.0, row.growth[0], row.momentum[0]))

        def run_with(setting: GridPoint, keys: Sequence[Any], name: str) -> Dataset:
            label = "-".join(f"{number:g}" for number in setting) + name
            return piece(label, partial(self.end, row, setting, keys))

        first: dict[GridPoint, Dataset] = {}

        def end(budget: int, setting: GridPoint) -> float:
            if setting not in first:
                first[setting] = run_with(setting, keys[:1], "")
            return float(first[setting].ends[budget])

        grid = (self.config.factors, row.growth, row.momentum)
        for budget in range(len(self.passes)):
            search(grid, partial(end, budget))
        settings = list(first)
        found = list(first.values())
        ends = np.stack([each.ends for each in found])  # settings x budgets
        if len(keys) > 1:
            finalists = np.unique(np.argsort(ends, axis=0)[:FINALISTS])
            again = [run_with(settings[place], keys[1:], "-again") for place in finalists]
            others = np.stack([each.ends for each in again])
            means = np.full_like(ends, math.inf)
            means[finalists] = (ends[finalists] + (len(keys) - 1) * others) / len(keys)
            ends = means
            found += again
        lowest = min(found, key=lambda each: float(each.x_value))
        chosen = np.asarray(settings)[np.argmin(ends, axis=0)]
        return (
            lowest.drop_vars("ends")
            .assign(setting=(("passes", "name"), chosen))
            .assign_coords(passes=self.passes, name=list(SETTING))
        )

    def choice_keys(self, row: Row, setting: GridPoint) -> list[Any]:
        """Return the keys of the runs by which settings are chosen, none of them of a run that is
        shown."""
        first = jax.random.key(self.seed)
        if not row.build(1.0, *setting[1:]).needs_key:
            return [first]
        later = range(1000, 1000 + self.config.choice_seeds - 1)
        return [first, *(jax.random.fold_in(first, number) for number in later)]

    def end(self, row: Row, setting: GridPoint, keys: Sequence[Any]) -> Dataset:
        """Run a solver with each key: the mean objective at the end of each budget, infinite where
        a run has no finite value, and the lowest x."""
        runs = [self.run(row, setting, key) for key in keys]
        result = min((result for result, _ in runs), key=lambda result: float(result.value))
        each = [
            [float(within(curve, self.n * passes).value[-1]) for passes in self.passes]
            for _, curve in runs
        ]
        ends = np.nan_to_num(np.mean(each, axis=0), nan=math.inf, posinf=math.inf)
        # A run without a finite value counts as one that has stayed at 0, and is never the lowest.
        has_value = np.isfinite(result.value)
        value = float(result.value) if has_value else math.inf
        x = result.x if has_value else np.zeros(result.x.shape)
        return Dataset({"ends": ("passes", ends), "x": ("entry", np.ravel(x)), "x_value": value})

    def shown(self, row: Row, choice: Dataset, piece: Piece) -> Dataset:
        """Run a solver with the settings chosen, with other keys: the objective and its cost at
        every point."""

        def one(passes: float, setting: GridPoint, seed: int) -> Dataset:
            key = jax.random.fold_in(jax.random.key(self.seed), seed + 1)
            return within(self.run(row, setting, key)[1], self.n * passes)

        curves = []
        for passes in self.passes:
            setting = choice.setting.sel(passes=passes).values.tolist()
            num_seeds = self.config.num_seeds if row.build(1.0, *setting[1:]).needs_key else 1
            each = [
                piece(f"{passes:g}-{seed}", partial(one, passes, setting, seed))
                for seed in range(num_seeds)
            ]
            runs = concat(each, "seed")
            if num_seeds < self.config.num_seeds:  # all are the same
                runs = runs.isel(seed=[0] * self.config.num_seeds)
            costs = runs[["ifo", "projections"]].max(
                "seed"
            )  # the same for all that did not diverge
            curves.append(
                runs[["value"]].merge(costs).assign(dict(zip(SETTING, setting, strict=True)))
            )
        return concat(curves, "passes", join="outer").assign_coords(passes=self.passes)

    def rest(self, ends: list[Dataset]) -> Dataset:
        """Run FG-HT from 0 and from the lowest x of all runs, and again from the end of the lower
        refitted on its support; of regression return the minimum."""
        if isinstance(self.objective, MultiResponse):
            least = reduced_rank_minimum(self.A, self.objective.y, self.config.l2, self.k)
            return Dataset({"value": least, "converged": True})
        stop = Stop(max_steps=self.config.max_steps, rtol=self.config.rtol)

        @jax.jit
        def descend(objective: Any, x0: Any) -> Any:
            return solve(objective, self.constraint, IHT(), x0=x0, stop=stop)

        @jax.jit
        def refitted(objective: Any, support: Any, x: Any) -> Any:
            return refit(objective, support, x).x

        lowest = min(ends, key=lambda end: float(end.x_value)).x.values
        start = lowest.reshape(self.objective.shape)
        runs = [descend(self.objective, x0) for x0 in (np.zeros_like(start), start)]
        lower = min(runs, key=lambda run: float(run.value))
        again = descend(self.objective, refitted(self.objective, lower.support, lower.x))
        least = min(float(lower.value), float(again.value))
        return Dataset({"value": least, "converged": bool(again.status == Status.CONVERGED)})


def _record(carry: Carry) -> Any:
    return carry.iterate.value, carry.counts


def within(curve: Dataset, budget: float) -> Dataset:
    """Return the points of a run that cost no more IFO than that."""
    return curve.isel(point=np.flatnonzero(curve.ifo <= budget))


def run(config: Config, session: Session) -> Dataset:
    """On every data set choose the settings of every solver and run it with them, then FG-HT for
    long."""

    def on(dataset: str, k: int, part: Callable[..., Dataset]) -> Dataset:
        target = config.target.get(dataset, data.TARGET)
        task = Task(
            dataset,
            k,
            config,
            data.load(dataset, session.data_dir, target, config.domain.get(dataset)),
        )
        solvers = rows(config, task.n)
        choices = {
            name: part(f"{dataset}-{name}-choice", partial(task.choose, row), True)
            for name, row in solvers.items()
        }
        runs = [
            part(f"{dataset}-{name}", partial(task.shown, solvers[name], of), True)
            for name, of in choices.items()
        ]
        rest = part(f"{dataset}-rest", partial(task.rest, list(choices.values())))
        curves = concat(runs, "solver", join="outer").assign_coords(solver=list(solvers))
        f_star = min(
            float(least)
            for least in (rest.value, curves.value.min(), *(c.x_value for c in choices.values()))
        )
        return curves.assign(n=task.n, f_star=f_star, converged=rest.converged)

    with session.parts((1 + 2 * len(NAMES)) * len(config.datasets)) as part:
        results = [
            on(dataset, k, part) for dataset, k in zip(config.datasets, config.k, strict=True)
        ]
    return concat(results, "dataset", join="outer").assign_coords(dataset=config.datasets)


def last(curves: Dataset) -> Dataset:
    """Return the values where the budget ends, of every solver and seed."""
    return curves.isel(point=curves.ifo.notnull().sum("point") - 1)


def projections_needed(curves: Dataset, value: Any) -> Any:
    """Return of every solver the thresholdings up to the first point that is as low; NaN where
    there is none."""
    return curves.projections.where(curves.value <= value).min("point")


SETTING = ("factor", "growth", "momentum")
NAMES = ["FG-HT", "SG-HT", "SVRG-HT", "HSG-HT", "AHSG-HT"]
COLORS = (plots.GREY, plots.ORANGE, plots.GREEN, plots.BLUE, plots.VERMILION)
REFERENCE = "HSG-HT"
TABLE = (
    "Lines: medians of {} seeds, between the least and the most. Table: where {:g} passes end; HT: thresholdings, HT*: "
    f"those until the median is as low as that of {REFERENCE} where it ends."
)


def plot(dataset: Dataset, config: Config) -> Figure:
    """Draw a row for each data set: the gap against IFO / n and against the number of
    thresholdings, and a table."""
    figure = plots.figure(9.6, 2.4 * len(config.datasets))
    grid = figure.subplots(
        len(config.datasets), 3, squeeze=False, sharex="col", sharey="row", width_ratios=(4, 4, 4)
    )
    single = config.model == "logistic"  # Figure 1; Figure 2 counts them in units of n
    budget = max(config.passes)
    remarks = [TABLE.format(config.num_seeds, budget)]
    for row, name, k in zip(grid, config.datasets, config.k, strict=True):
        results = dataset.sel(dataset=name)
        curves = results.sel(passes=budget)
        _curves(row[:2], curves, 1.0 if single else float(results.n))
        _table(row[2], curves)
        row[0].set_title(f"{name.replace('_', ' ')}, $k = {k}$", loc="left")
        row[0].set_ylabel("$f - f^*$")
        if not results.converged:
            remarks.append(f"{name}: the long run for $f^*$ did not converge.")
    grid[-1, 0].set_xlabel("gradients of samples, IFO / $n$")
    grid[-1, 1].set_xlabel("hard thresholdings" if single else "hard thresholdings / $n$")
    plots.caption(figure, config, *remarks)
    return figure


def _curves(row: Any, curves: Dataset, per: float) -> None:
    """Draw all solvers on one data set; thresholdings in units of ``per``."""
    start = float(curves.value.isel(point=0, seed=0)[0] - curves.f_star)
    for name, color, marker in zip(NAMES, COLORS, "os^Dv", strict=True):
        run = curves.sel(solver=name).dropna("point", subset=["ifo"])
        gap = run.value - curves.f_star
        often = 1 if run.sizes["point"] < 20 else [-1]
        thin = (
            1 if run.sizes["point"] < 500 else 0.6
        )  # many points are mostly noise of small batches
        look: dict[str, Any] = {
            "color": color,
            "marker": marker,
            "markevery": often,
            "linewidth": thin,
        }
        for axes, cost in zip(row, (run.ifo / float(curves.n), run.projections / per), strict=True):
            axes.plot(cost, gap.median("seed"), **look)
            axes.fill_between(
                cost, gap.min("seed"), gap.max("seed"), color=color, alpha=0.2, linewidth=0
            )
    row[1].set_xscale("log")
    for axes in row:  # first batches, of few samples, throw the objective far up
        axes.set_yscale("log")
        axes.set_ylim(top=2 * start)


def _table(axes: Axes, curves: Dataset) -> None:
    """Write the settings, gaps and thresholdings of all solvers, each in its colour."""
    middle = curves.assign(value=curves.value.median("seed"))
    ends = last(middle)
    needed = projections_needed(middle, float(ends.value.sel(solver=REFERENCE)))
    cells = [["", "$\\eta L$", "growth", "ν", "gap", "HT", "HT*"]]
    for name in NAMES:
        end, need = ends.sel(solver=name), float(needed.sel(solver=name))
        growth, momentum = float(end.growth), float(end.momentum)
        chosen = [
            f"{float(end.factor):g}",
            f"{growth:g}" if growth > 1 else "",
            f"{momentum:g}" if momentum else "",
        ]
        reached = "-" if np.isnan(need) else f"{need:,.0f}"
        cells.append(
            [
                name,
                *chosen,
                f"{float(end.value - end.f_star):.2g}",
                f"{float(end.projections):,.0f}",
                reached,
            ]
        )
    table = plots.table(axes, cells, 7, loc="center", edges="open", cellLoc="right")
    table.scale(1.1, 1.5)
    for line, color in enumerate(COLORS, 1):
        table[line, 0].get_text().set_color(color)
