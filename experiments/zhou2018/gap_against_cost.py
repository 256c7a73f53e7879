"""Zhou, Yuan & Feng 2018, Figures 1 and 2: the gap against gradients of samples and thresholdings, on real data."""

import math
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field, model_validator
from sklearn.preprocessing import normalize
from xarray import Dataset, concat

import jaxht
from experiments.common import BaseConfig, Count, Names, Positive, Positives, Session, data, plots, tasks
from jaxht import HSGHT, IHT, SGHT, SVRGHT, LowRank, MultiResponse, Sparse, Status, Stop, reduced_rank_minimum, solve
from jaxht.extend import Iterate


class Config(BaseConfig):
    """Figures 1 and 2."""

    datasets: Names  # names of data sets, a row each
    # model: "logistic", with labels -1/+1, or "softmax", with a class for each value of the target, both sparse; or
    # "regression" of the indicators of these classes, of bounded rank.
    model: Literal["logistic", "softmax", "regression"]
    # target: the array of the file that is the target, by data set, where it is not y.
    target: dict[str, str] = Field(default_factory=dict)
    # domain: the rows used, by data set, where it is not all: those of which the file's array domain has this value.
    domain: dict[str, int] = Field(default_factory=dict)
    k: list[Count]  # sparsity or rank, one for each data set
    l2: Positive  # lambda, the ridge parameter; of softmax it is divided by the number of classes
    max_rows: Count | None = None  # the first rows of a training part are used
    factors: Positives  # step sizes, in units of 1/L, L the smoothness of a sample; each solver runs with all of them
    passes: Positive  # budget of a run: IFO / n
    batch_size: Count  # of SG-HT and SVRG-HT
    points: Count  # how often the objective of SG-HT is recorded
    stage: Positive  # updates of a stage of SVRG-HT, in units of n / batch_size
    batch_growth: Annotated[float, Field(ge=1, allow_inf_nan=False)]  # of HSG-HT, whose first batch is one sample
    # momentum, momentum_growth: of AHSG-HT, likewise.
    momentum: Annotated[float, Field(ge=0, lt=1)]
    momentum_growth: Annotated[float, Field(ge=1, allow_inf_nan=False)]
    # rtol, max_steps: where the long run of FG-HT ends, for f*; of regression there is a closed form.
    rtol: Positive
    max_steps: Count

    @model_validator(mode="after")
    def _check_k(self) -> "Config":
        if len(self.k) != len(self.datasets):
            raise ValueError("k must have one entry for each data set")
        return self


# From a step size to a solver, and the number of steps of the runner.
Row = tuple[Callable[[Any], Any], int]


def rows(config: Config, n: int) -> dict[str, Row]:
    """Return the solvers for n samples, with steps of the runner that are long enough to record each."""
    budget, b, momentum = config.passes * n, config.batch_size, config.momentum
    growth, own = config.batch_growth, config.momentum_growth
    inner = max(1, int(budget / b / config.points))
    m = max(1, round(config.stage * n / b))
    # As many for both, and both with momentum: one compile.
    updates = max(growing_updates(budget, each, n) for each in (growth, own))
    return {
        "FG-HT": (IHT, math.ceil(config.passes)),
        "SG-HT": (lambda step: SGHT(step, b, inner), min(config.points, math.ceil(budget / b))),
        "SVRG-HT": (lambda step: SVRGHT(step, m, b), max(1, int(budget / (n + 2 * b * m)))),
        "HSG-HT": (lambda step: HSGHT(step, 0.0, 1, growth, 1), updates),
        "AHSG-HT": (lambda step: HSGHT(step, momentum, 1, own, 1), updates),
    }


def growing_updates(budget: float, growth: float, n: int) -> int:
    """Return how many updates with growing batches the budget allows; at least one."""
    updates, spent = 0, 1
    while spent <= budget:
        updates += 1
        spent += min(n, math.ceil(growth**updates))
    return max(1, updates)


class Task(tasks.Task):
    """The training part of a data set, where it has one, with rows of unit norm; k: sparsity or rank."""

    def __init__(self, name: str, k: int, config: Config, table: data.Table) -> None:
        super().__init__()
        self.config, self.seed, self.constraint = config, config.seed, Sparse(k)
        self.n = n = min(table.num_train or len(table.y), config.max_rows or len(table.y))
        A: Any = normalize(table.X[:n]).astype(np.float32)
        classes, ids = np.unique(table.y[:n], return_inverse=True)
        c = len(classes)
        if config.model == "regression":
            self.objective = MultiResponse(A, np.eye(c, dtype=np.float32)[ids], config.l2).prepare()
            self.constraint = LowRank(k, k_max=k)
        elif config.model == "softmax":
            self.objective = jaxht.Softmax(A, ids.astype(np.int32), config.l2 / c, num_classes=c).prepare()
        else:
            tasks.check_labels(name, table.y[:n])
            self.objective = jaxht.Logistic(A, table.y[:n].astype(np.float32), config.l2).prepare()
        shape = self.objective.shape
        tasks.check_sparsity(name, k, min(shape) if config.model == "regression" else math.prod(shape))
        self.A, self.unit = A, 1 / jax.jit(lambda objective: objective.sample_smoothness())(self.objective)

    def runs(self, build: Callable[[Any], Any], num_steps: int) -> Dataset:
        """Run a solver with every step size: the objective and its cost at every point, and the lowest x at an end."""
        steps = jnp.asarray(self.config.factors, jnp.float32) * self.unit
        results, records, _ = zip(*(self.traced(build(step), num_steps, _record) for step in steps), strict=True)
        columns = {
            "value": [value for value, _ in records],
            "ifo": [counts.ifo for _, counts in records],
            "projections": [counts.projections for _, counts in records],
        }
        lowest = min(results, key=lambda result: float(result.value))
        return Dataset(
            {name: (("factor", "point"), np.asarray(column, np.float64)) for name, column in columns.items()},
            coords={"factor": self.config.factors, "point": np.arange(num_steps + 1)},
        ).assign(x=("entry", np.ravel(lowest.x)), x_value=float(lowest.value))

    def rest(self, ends: list[Dataset]) -> Dataset:
        """Run FG-HT until it converges, from 0 and from the lowest x of all runs; of regression return the minimum."""
        if isinstance(self.objective, MultiResponse):
            least = reduced_rank_minimum(self.A, self.objective.y, self.config.l2, int(self.constraint.k))
            return Dataset({"value": least, "converged": True})
        stop = Stop(max_steps=self.config.max_steps, rtol=self.config.rtol)
        run = jax.jit(lambda objective, x0: solve(objective, self.constraint, IHT(), x0=x0, stop=stop))
        lowest = min(ends, key=lambda end: float(end.x_value)).x.values.reshape(self.objective.shape)
        results = [run(self.objective, x0) for x0 in (np.zeros_like(lowest), lowest)]
        best = min(results, key=lambda result: float(result.value))
        return Dataset({"value": float(best.value), "converged": bool(best.status == Status.CONVERGED)})


def _record(iterate: Iterate) -> Any:
    return iterate.value, iterate.counts


def run(config: Config, session: Session) -> Dataset:
    """Run every solver with every step size on every data set, then FG-HT for long; each a part of the store."""

    def on(dataset: str, k: int, part: Callable[..., Dataset]) -> Dataset:
        target = config.target.get(dataset, data.TARGET)
        task = Task(dataset, k, config, data.load(dataset, session.data_dir, target, config.domain.get(dataset)))
        solvers = rows(config, task.n)
        parts = [part(f"{dataset}-{name}", partial(task.runs, *row)) for name, row in solvers.items()]
        rest = part(f"{dataset}-rest", partial(task.rest, parts))
        curves = concat([part.drop_vars(["x", "x_value"]) for part in parts], "solver", join="outer")
        f_star = np.fmin(rest.value, curves.value.min())
        return curves.assign_coords(solver=list(solvers)).assign(n=task.n, f_star=f_star, converged=rest.converged)

    with session.parts((1 + len(NAMES)) * len(config.datasets)) as part:
        results = [on(dataset, k, part) for dataset, k in zip(config.datasets, config.k, strict=True)]
    return concat(results, "dataset", join="outer").assign_coords(dataset=config.datasets)


def chosen(results: Dataset, passes: float) -> Dataset:
    """Choose on one data set of every solver the run whose objective is least where the budget ends.

    Results are over (solver, factor, point); what is returned, over (solver, point), is NaN beyond the budget, and has
    the ``step`` chosen and the ``last`` values.
    """
    within = results[["value", "ifo", "projections"]].where(results.ifo <= passes * results.n)
    last = within.isel(point=within.ifo.notnull().sum("point") - 1)
    best = last.value.argmin("factor")
    step = results.factor.isel(factor=best)
    names: Any = {name: f"last_{name}" for name in within.data_vars}
    ends = last.drop_vars("point", errors="ignore").isel(factor=best).drop_vars("factor").rename(names)
    curves = within.isel(factor=best).drop_vars("factor").merge(ends)
    return curves.assign(n=results.n, step=step.drop_vars("factor"))


def projections_needed(curves: Dataset, value: float) -> Any:
    """Return of every solver the thresholdings up to the first point that is as low; NaN where there is none."""
    return curves.projections.where(curves.value <= value).min("point")


NAMES = ["FG-HT", "SG-HT", "SVRG-HT", "HSG-HT", "AHSG-HT"]
COLORS = (plots.GREY, plots.ORANGE, plots.GREEN, plots.BLUE, plots.VERMILION)
REFERENCE = "HSG-HT"
TABLE = (
    "Table: where the {:g} passes end; HT: thresholdings, HT*: those until a run is as low as that of "
    f"{REFERENCE} where it ends."
)


def plot(dataset: Dataset, config: Config) -> Figure:
    """Draw a row for each data set: the gap against IFO / n and against the number of thresholdings, and a table."""
    figure = plots.figure(9.0, 2.4 * len(config.datasets))
    grid = figure.subplots(len(config.datasets), 3, squeeze=False, sharex="col", sharey="row", width_ratios=(4, 4, 3))
    single = config.model == "logistic"  # Figure 1; Figure 2 counts them in units of n
    remarks = [TABLE.format(config.passes)]
    for row, name, k in zip(grid, config.datasets, config.k, strict=True):
        results = dataset.sel(dataset=name)
        curves, per = chosen(results, config.passes), 1.0 if single else float(results.n)
        _curves(row[:2], curves, float(results.f_star), per)
        _table(row[2], curves, float(results.f_star))
        row[0].set_title(f"{name.replace('_', ' ')}, $k = {k}$", loc="left")
        row[0].set_ylabel("$f - f^*$")
        if not results.converged:
            remarks.append(f"{name}: the long run of FG-HT for $f^*$ did not converge.")
    grid[-1, 0].set_xlabel("gradients of samples, IFO / $n$")
    grid[-1, 1].set_xlabel("hard thresholdings" if single else "hard thresholdings / $n$")
    plots.caption(figure, config, *remarks)
    return figure


def _curves(row: Any, curves: Dataset, f_star: float, per: float) -> None:
    """Draw all solvers on one data set; thresholdings in units of ``per``."""
    start = float(curves.value.isel(point=0)[0]) - f_star
    for name, color, marker in zip(NAMES, COLORS, "os^Dv", strict=True):
        run = curves.sel(solver=name).dropna("point", subset=["value"])
        often = 1 if run.sizes["point"] < 20 else [-1]
        thin = 1 if run.sizes["point"] < 500 else 0.6  # many points are mostly noise of small batches
        look: dict[str, Any] = {"color": color, "marker": marker, "markevery": often, "linewidth": thin}
        row[0].plot(run.ifo / float(curves.n), run.value - f_star, **look)
        row[1].plot(run.projections[1:] / per, run.value[1:] - f_star, **look)
    row[1].set_xscale("log")
    for axes in row:  # first batches, of few samples, throw the objective far up
        axes.set_yscale("log")
        axes.set_ylim(top=2 * start)


def _table(axes: Axes, curves: Dataset, f_star: float) -> None:
    """Write the step sizes, gaps and thresholdings of all solvers, each in its colour."""
    needed = projections_needed(curves, float(curves.last_value.sel(solver=REFERENCE)))
    cells = [["", "$\\eta L$", "gap", "HT", "HT*"]]
    for name in NAMES:
        end, need = curves.sel(solver=name), float(needed.sel(solver=name))
        gap, spent = float(end.last_value) - f_star, float(end.last_projections)
        reached = "-" if np.isnan(need) else f"{need:,.0f}"
        cells.append([name, f"{float(end.step):g}", f"{gap:.2g}", f"{spent:,.0f}", reached])
    table = plots.table(axes, cells, 7.5, loc="center", edges="open", cellLoc="right")
    table.scale(1.1, 1.5)
    for line, color in enumerate(COLORS, 1):
        table[line, 0].get_text().set_color(color)
