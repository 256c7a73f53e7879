"""Yuan et al. 2020, Figures 1 to 3: the duality gap of DIHT, and the least one, over all
supports."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import jax.numpy as jnp
import numpy as np
from chex import Array, Numeric, PRNGKey
from matplotlib.figure import Figure
from pydantic import model_validator
from xarray import DataArray, Dataset

from experiments.common import Count, Counts, Session, double_precision, plots
from experiments.common.claims import NOT_PRINTED, Finding, Judge, Question, Setting, Verdict
from experiments.yuan2020.ridge import (
    FLOOR,
    QUARTILES,
    Ridge,
    ascend,
    draw,
    draw_quartiles,
    planted_value,
    ridge,
)
from jaxht import LeastSquares, Sparse, exhaustive_search, sweep


class Gaps(Ridge):
    """The keys of the figures of duality gaps, with a panel for each dimension."""

    d: Counts  # dimensions
    k: Counts  # the sparsity of each, in w* and as constraint
    max_supports: Count  # where there are no more, the primal minimum is sought among all supports
    relative: bool  # whether gaps are drawn over the primal value

    @model_validator(mode="after")
    def _check_k(self) -> Self:
        if len(self.d) != len(self.k) or any(k > d for d, k in zip(self.d, self.k, strict=True)):
            raise ValueError("k must have one entry for each of d, and none above it")
        return self

    def sparsity(self, d: int) -> int:
        """Return the k of a dimension."""
        return self.k[self.d.index(d)]


def bounds(
    objective: LeastSquares,
    N: Numeric,
    truth: Array,
    k: int,
    max_steps: int,
    search: bool,
    stationary: float | None = None,
) -> dict[str, Numeric]:
    """Return P at the end of DIHT, its best D, the largest D known, the minimum of P if it is
    sought (else NaN), P on the support of w*, the steps taken, and whether DIHT has converged."""
    planted = planted_value(objective, truth, k)
    end = ascend(objective, k, max_steps, stationary, planted)
    minimum = exhaustive_search(objective, Sparse(k)).value if search else jnp.full((), jnp.nan)
    return {
        "value": end.found.value / N,
        "dual": end.dual / N,
        "maximum": end.maximum / N,
        "minimum": minimum / N,
        "planted": planted / N,
        "num_steps": end.found.num_steps,
        "converged": end.converged,
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
        return bounds(objective, N, made.x_true, k, config.max_steps, search, config.stationary)

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
            ends = [(of.minimum if searched else of.value, of.dual)]
            if searched:
                ends.append((of.value, of.dual))
            elif "planted" in of:
                ends.append(known_bounds(of))
            styles: tuple[dict[str, str], ...] = (
                {"marker": marker},
                {"marker": "", "linestyle": "--"},
            )
            for (upper, lower), style in zip(ends, styles, strict=False):
                size = (upper - lower) / (upper if config.relative else 1)
                draw_quartiles(axes, size.clip(FLOOR), color, **style)
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
    known = [
        math.comb(d, k) <= config.max_supports for d, k in zip(config.d, config.k, strict=True)
    ]
    if any(known):
        remark += " Dashed, where the minimum of $P$ over all supports is known: $P$ at the end of DIHT in its place."
    if not all(known) and "planted" in dataset:
        remark += " Dashed, where it is not: the least $P$ known less the largest $D$ known."
    plots.caption(figure, config, remark)
    return figure


# ---- what the paper says of it, and whether it holds ----


SAME = 3.0  # medians that differ by at most this factor, half a decade, are the same


def known_bounds(results: Dataset) -> tuple[DataArray, DataArray]:
    """The least P and the largest D that are known: beside those of DIHT, P on the support of w*
    and the D of the relaxation."""
    upper, lower = results.value, results.dual
    if "planted" in results:
        upper = np.minimum(upper, results.planted)
        lower = np.maximum(lower, results.maximum)
    return results.minimum.where(results.minimum.notnull(), upper), lower


def paper_gaps(results: Dataset, optimal: bool = False) -> Dataset:
    """``gap`` as in the paper: the minimum of P where it is known, else P at the end of DIHT, minus
    D; and what is 0.

    optimal: the least P known minus the largest D known. Of several kinds of w* that of the first.

    Results are kept in single precision: a gap is 0 below FLOOR times P, as the figures draw it.
    """
    if "signal" in results.dims:
        results = results.isel(signal=0)
    upper, lower = known_bounds(results)
    if not optimal:
        upper = results.minimum.where(results.minimum.notnull(), results.value)
        lower = results.dual
    zero = upper - lower <= FLOOR * upper
    gap = (upper - lower).where(~zero, 0).where(upper.notnull() & lower.notnull())
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


def monotone(along: str, direction: Literal["falls", "rises"], optimal: bool = False) -> Judge:
    """Whether every curve falls, or rises; optimal: as of :func:`paper_gaps`."""

    def judge(results: Dataset, config: Any) -> Finding:
        sign = 1 if direction == "rises" else -1
        gap = paper_gaps(results, optimal).gap
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
        # D(0) = 0 is known without any step.
        ended = ~results.converged.astype(bool) | (results.dual <= 0)
        what = "had neither closed the gap nor come near the maximum of D"
    else:
        ended = results.num_steps >= config.max_steps
        what = "had not closed the gap"
    over = [dim for dim in ended.dims if dim not in ("d", "l0")]
    text = f"Runs that {what} at the limit of {config.max_steps} steps, {_by_penalty(ended.mean(over))}."
    if "maximum" in results:
        short = ((results.maximum - results.dual) / results.maximum).median(over)
        text += f" By how much D is below the largest known, in the median: {_by_penalty(short)}."
    return text


def _by_penalty(share: DataArray) -> str:
    parts = (
        f"d = {d}: "
        + ", ".join(
            f"{100 * float(share.sel(d=d, l0=l0)):.3g} % at {l0:g}" for l0 in share.l0.values
        )
        for d in share.d.values
    )
    return f"by $\\lambda \\sqrt{{N}}$: {'; '.join(parts)}"


RIDGE = [
    Setting("(d, k)", "(30, 5), (500, 50) (§5.1)", "d = {d}; k = {k}"),
    Setting("values of w*", NOT_PRINTED, "±1"),
    Setting("problems a cell", NOT_PRINTED, "{num_problems}"),
    Setting("minimum of P", "over all supports at d = 30 (§5.1.1)", "over all supports at d = 30"),
    Setting("updates of DIHT, at most", "until convergence (§5.1.1)", "{max_steps} times 10"),
    Setting("D below its maximum at the end, over the gap left", NOT_PRINTED, "{stationary}"),
]
AT_THE_LIMIT = Question("How many runs ended at the limit?", share_at_the_limit)
ABSOLUTE = (
    "The numbers are absolute gaps, as in the paper. At d = 30, P is its minimum over all supports. At d = 500 the "
    "curves are P - D at the end of DIHT, and an open gap may be the primal's failure. "
)
OPTIMAL = (
    "The claims on the optimal gap are judged by the least P known, of DIHT and on the support of w*, minus the largest "
    "D known, of DIHT and of the perspective relaxation, whose minimum is the maximum of D."
)
