"""Yuan et al. 2020, Figures 1 to 3: the duality gap of DIHT, and the least one, over all
supports."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import jax.numpy as jnp
import numpy as np
from chex import Array, Numeric, PRNGKey
from jax import lax
from matplotlib.figure import Figure
from pydantic import model_validator
from xarray import DataArray, Dataset

from experiments.common import Count, Counts, Positive, Session, double_precision, plots
from experiments.common.claims import NOT_PRINTED, Finding, Judge, Question, Setting, Verdict
from experiments.yuan2020.ridge import CLOSED, QUARTILES, Ridge, draw, draw_quartiles, ridge
from jaxht import (
    DIHT,
    LeastSquares,
    Result,
    Sparse,
    Status,
    Stop,
    exhaustive_search,
    solve,
    sweep,
)
from jaxht.extend import Carry, advance, finish, prepare, start

# Gaps below it are drawn at it.
FLOOR = 1e-6


class Gaps(Ridge):
    """The keys of the figures of duality gaps, with a panel for each dimension."""

    d: Counts  # dimensions
    k: Counts  # the sparsity of each, in w* and as constraint
    max_supports: Count  # where there are no more, the primal minimum is sought among all supports
    relative: bool  # whether gaps are drawn over the primal value
    # stationary: DIHT ends where ROUND steps raise D by no more than so much of it. Absent: at
    # max_steps only.
    stationary: Positive | None = None

    @model_validator(mode="after")
    def _check_k(self) -> Self:
        if len(self.d) != len(self.k) or any(k > d for d, k in zip(self.d, self.k, strict=True)):
            raise ValueError("k must have one entry for each of d, and none above it")
        return self

    def sparsity(self, d: int) -> int:
        """Return the k of a dimension."""
        return self.k[self.d.index(d)]


ROUND = 300  # steps of DIHT, of ten updates each, after which D is looked at


def ascend(
    objective: LeastSquares, k: int, max_steps: int, stationary: float | None
) -> tuple[Result, Array]:
    """Run DIHT until the gap is closed or D no longer rises; the result, and whether it came to
    either."""
    stop = Stop(max_steps=max_steps, gap_rtol=CLOSED)
    if stationary is None:
        found = solve(objective, Sparse(k, k_max=k), DIHT(), stop=stop)
        return found, found.status == Status.GAP_CLOSED
    problem, x0, key = prepare(objective, Sparse(k, k_max=k), DIHT(), stop=stop)

    def dual(carry: Carry) -> Array:
        value, gap = jnp.asarray(carry.iterate.value), jnp.asarray(carry.info.gap)
        return value - gap

    def goes_on(state: tuple[Carry, Array]) -> Array:
        carry, rises = state
        return (carry.status == Status.RUNNING) & rises

    def body(state: tuple[Carry, Array]) -> tuple[Carry, Array]:
        carry, _ = state
        moved = advance(problem, carry, ROUND)
        after = dual(moved)
        return moved, after - dual(carry) > stationary * jnp.abs(after)

    first = advance(problem, start(problem, x0, key), 1)
    carry, rises = lax.while_loop(goes_on, body, (first, jnp.array(True)))
    found = finish(problem, carry)
    return found, (found.status == Status.GAP_CLOSED) | ~rises


def bounds(
    objective: LeastSquares,
    N: Numeric,
    k: int,
    max_steps: int,
    search: bool,
    stationary: float | None = None,
) -> dict[str, Numeric]:
    """Return P at the end of DIHT, its best D, the minimum of P if it is sought (else NaN), the
    steps taken, and whether the gap is closed or D no longer rises."""
    found, converged = ascend(objective, k, max_steps, stationary)
    lower: Any = found.value - found.gap
    minimum = exhaustive_search(objective, Sparse(k)).value if search else jnp.full((), jnp.nan)
    return {
        "value": found.value / N,
        "dual": lower / N,
        "minimum": minimum / N,
        "num_steps": found.num_steps,
        "converged": converged,
    }


def run_gaps(
    config: Gaps,
    session: Session,
    axes: Mapping[str, Sequence[Any]],
    design: Callable[..., Array],
    *,
    ratio: Callable[[sweep.Cell], Any] = lambda cell: 1.0,
    sigma: Callable[[sweep.Cell], Any],
    problem: Sequence[str] = ("d",),
) -> Dataset:
    """Compute both ends of the gap in every cell; design: (key, rows, d, cell) -> (rows, d)."""
    largest = max(axes.get("ratio", (1.0,)))

    def trial(key: PRNGKey, cell: sweep.Cell) -> dict[str, Numeric]:
        d = cell["d"]
        k, N = config.sparsity(d), jnp.maximum(jnp.round(ratio(cell) * d), 1)
        rows = max(1, round(largest * d))
        signal = cell["signal"] if "signal" in axes else "signs"
        made = draw(
            key, cell, N, k, sigma(cell), lambda key, truth: design(key, rows, d, cell), d, signal
        )
        search = math.comb(d, k) <= config.max_supports
        objective = ridge(made, N, cell["l0"])
        return bounds(objective, N, k, config.max_steps, search, config.stationary)

    with double_precision():
        return session.sweep(
            trial,
            {"d": config.d, "l0": config.l0, **axes},
            num_trials=config.num_problems,
            seed=config.seed,
            static=("d", *(["signal"] if "signal" in axes else [])),
            problem=problem,
            shared=("d",),
        )


def plot_gaps(
    dataset: Dataset, config: Gaps, along: str, lines: str, labels: tuple[str, str]
) -> Figure:
    """Draw a panel for each dimension, a colour for each of ``lines``; labels: of the x axis, of an
    entry."""
    figure, panels = plots.panels(len(config.d), 2.9, 2.7)
    looks = plots.looks(dataset[lines].values)
    for axes, d, k in zip(panels, config.d, config.k, strict=True):
        searched = math.comb(d, k) <= config.max_supports
        for entry, (color, marker) in looks.items():
            of = dataset.sel({"d": d, lines: entry})
            for upper, shown, style in (
                ("minimum", searched, {"linestyle": "-"}),
                (
                    "value",
                    True,
                    {"linestyle": "--", "marker": ""} if searched else {"linestyle": "-"},
                ),
            ):
                size = (of[upper] - of.dual) / (of[upper] if config.relative else 1)
                if shown:
                    draw_quartiles(axes, size.clip(FLOOR), color, **{"marker": marker, **style})
        axes.set_title(f"$d = {d}$, $k = {k}$")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(labels[0])
    panels[0].set_ylabel("duality gap" + (" over $P$" if config.relative else ""))
    names = [f"{labels[1]} = {entry:g}$" if labels[1] else str(entry) for entry in looks]
    plots.legend_right(
        panels[-1],
        [(name, color, "-") for name, (color, _) in zip(names, looks.values(), strict=True)],
    )
    remark = f"{QUARTILES} Gaps below $10^{{-6}}$ are drawn there."
    if any(math.comb(d, k) <= config.max_supports for d, k in zip(config.d, config.k, strict=True)):
        remark += " Dashed: $P$ at the end of DIHT in place of its minimum over all supports, where that is known."
    plots.caption(figure, config, remark)
    return figure


# ---- what the paper says of it, and whether it holds ----


SAME = 3.0  # medians that differ by at most this factor, half a decade, are the same


def paper_gaps(results: Dataset) -> Dataset:
    """``gap`` as in the paper: the minimum of P where it is known, else P at the end of DIHT, minus
    D; and what is 0.

    Of several kinds of w* that of the first.

    Results are kept in single precision: a gap is 0 below FLOOR times P, as the figures draw it.
    """
    if "signal" in results.dims:
        results = results.isel(signal=0)
    upper = results.minimum.where(results.minimum.notnull(), results.value)
    zero = upper - results.dual <= FLOOR * upper
    gap = (upper - results.dual).where(~zero, 0).where(upper.notnull() & results.dual.notnull())
    return Dataset({"gap": gap, "zero": zero.where(gap.notnull()), "upper": upper})


def steps(gap: DataArray, along: str, sign: int) -> tuple[int, int, int]:
    """Count the steps along a dimension where the mean over trials moves by sign, against it by 2
    s.e., and all.

    The trials of two cells are the same draws: errors are those of the mean difference. Steps
    between zeros agree.
    """
    moves = sign * gap.diff(along)
    mean, error = moves.mean("trial"), moves.std("trial", ddof=1) / np.sqrt(moves.count("trial"))
    known = mean.notnull()
    return int((mean >= 0).sum()), int((mean < -2 * error).sum()), int(known.sum())


def curves_move(gap: DataArray, along: str, sign: int) -> list[bool]:
    """Of every curve whether it moves by sign from its first to its last point, and nowhere against
    it by 2 s.e."""
    moves = sign * gap.diff(along)
    mean, error = moves.mean("trial"), moves.std("trial", ddof=1) / np.sqrt(moves.count("trial"))
    ends = sign * (gap.isel({along: -1}) - gap.isel({along: 0})).mean("trial")
    moved = (ends > 0) & ~(mean < -2 * error).any(along)
    known = mean.notnull().any(along)
    return [bool(value) for value in moved.values[known.values]]


def monotone(along: str, direction: Literal["falls", "rises"]) -> Judge:
    """Whether every curve falls, or rises."""

    def judge(results: Dataset, config: Any) -> Finding:
        sign = 1 if direction == "rises" else -1
        gap = paper_gaps(results).gap
        agree, against, total = steps(gap, along, sign)
        if not total:
            return Finding("no gap is known", Verdict.CANNOT_BE_JUDGED)
        text = f"the mean gap {direction} at {agree} of {total} steps, goes the other way by more than two standard "
        text += f"errors at {against}"
        return Finding.of(text, *curves_move(gap, along, sign))

    return judge


def factors(gap: Dataset, over: str) -> DataArray:
    """The largest median gap over the smallest one, of each curve; gaps count as FLOOR times P
    where they are less."""
    middle = np.maximum(gap.gap, FLOOR * gap.upper).median("trial")
    return middle.max(over) / middle.min(over)


def insensitive(
    over: str, symbol: str, least: float = -np.inf, in_most_cases: bool = False
) -> Judge:
    """Whether the medians along a dimension, from ``least`` on, are the same: in all curves, or in
    most."""

    def judge(results: Dataset, config: Any) -> Finding:
        some = paper_gaps(results).sel({over: results[over][results[over] >= least]})
        factor = factors(some, over)
        if not factor.count() or some.sizes[over] < 2:
            return Finding("no gap is known", Verdict.CANNOT_BE_JUDGED)
        same = int((factor <= SAME).sum())
        text = f"medians along {symbol} differ by a factor of at most {SAME:g} in {same} of {int(factor.count())} "
        low, middle, high = (float(factor.quantile(q)) for q in (0, 0.5, 1))
        text += f"curves; median factor {middle:.2g}, from {low:.2g} to {high:.2g}"
        conditions = (factor <= SAME).values[factor.notnull().values]
        return Finding.most(text, *conditions) if in_most_cases else Finding.of(text, *conditions)

    return judge


def share_at_the_limit(results: Dataset, config: Any) -> str:
    """Of how many runs of DIHT the limit on steps is the end, by the penalty."""
    if "converged" in results:
        ended = ~results.converged.astype(bool)
        what = "neither had closed the gap nor ceased to raise D"
    else:
        ended = results.num_steps >= config.max_steps
        what = "had not closed the gap"
    share = ended.mean([dim for dim in ended.dims if dim not in ("d", "l0")])
    parts = (
        f"d = {d}: "
        + ", ".join(
            f"{100 * float(share.sel(d=d, l0=l0)):.0f} % at {l0:g}" for l0 in share.l0.values
        )
        for d in share.d.values
    )
    return f"Runs that {what} at the limit of {config.max_steps} steps, by $\\lambda \\sqrt{{N}}$: {'; '.join(parts)}."


RIDGE = [
    Setting("(d, k)", "(30, 5), (500, 50) (§5.1)", "d = {d}; k = {k}"),
    Setting("values of w*", NOT_PRINTED, "±1"),
    Setting("problems a cell", NOT_PRINTED, "{num_problems}"),
    Setting("minimum of P", "over all supports at d = 30 (§5.1.1)", "over all supports at d = 30"),
    Setting("updates of DIHT, at most", "until convergence (§5.1.1)", "{max_steps} times 10"),
    Setting("share by which D still rises at the end", NOT_PRINTED, "{stationary}"),
]
AT_THE_LIMIT = Question("How many runs ended at the limit?", share_at_the_limit)
ABSOLUTE = (
    "The numbers are absolute gaps, as in the paper; P is its minimum over all supports at d = 30, and that at the "
    "end of DIHT at d = 500, where an open gap may be the primal's failure."
)
