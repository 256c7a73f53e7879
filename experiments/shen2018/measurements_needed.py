"""Shen & Li 2018, Figure 3: the number of measurements needed against the sparsity, with its
line."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from xarray import Dataset

from experiments.common import SOLVERS, Count, Counts, Failure, Session, plots
from experiments.common.claims import Claim, Finding, Section, Setting, Verdict
from experiments.common.recovery import GIVEN, Planted, ended, recovered
from experiments.shen2018.lines import (
    INTERCEPTS,
    PGD,
    RECOVERY,
    SIGNALS,
    SLOPE,
    SVRG,
    line_of,
    paper_line,
    with_intervals,
)
from jaxht import sweep


class Config(Planted):
    """Figure 3: the n with which a share of the signals is recovered, against K.

    A coarse sweep finds the n with which nine of ten signals are recovered, and a fine one raises n
    around it.
    """

    K: Counts  # numbers of nonzeros planted
    coarse_n: Counts  # numbers of measurements of the coarse sweep
    coarse_signals: Count  # its trials in each cell (n, K)
    # below, above: the window around the n found, in which the fine sweep runs.
    below: Count
    above: Count
    step: Count  # by which it raises n
    num_signals: Count  # its trials in each cell


def run(config: Config, session: Session) -> Dataset:
    """Count the successes, coarsely and finely; where both have run, the fine ones count."""
    solve = partial(recovered, config, session, K_max=max(config.K))
    coarse = solve({"n": config.coarse_n, "K": config.K}, config.coarse_signals, part="coarse")
    if not coarse.get("done", np.True_).all():
        raise Failure(
            "other processes are still at the coarse sweep: give the same command again when they have ended"
        )
    rates = counted(coarse)
    starts = sweep.transition(rates, (0.9,)).estimate.sel(level=0.9)
    least, most = min(config.coarse_n), max(config.coarse_n)
    windows = {
        (solver, K): (max(start, least) - config.below, max(start, least) + config.above)
        for solver, row in zip(
            config.solvers, starts.transpose("solver", "K").values.tolist(), strict=True
        )
        for K, start in zip(config.K, row, strict=True)
        if start < np.inf
    }
    attrs = coarse.attrs
    if windows:
        n = [
            n
            for n in range(config.step, most + 1, config.step)
            if any(a <= n <= b for a, b in windows.values())
        ]

        def where(cell: Mapping[str, Any]) -> bool:
            low, high = windows.get((cell["solver"], cell["K"]), (1, 0))
            return low <= cell["n"] <= high

        fine = solve({"n": n, "K": config.K}, config.num_signals, part="fine", where=where)
        counts = counted(fine)
        both = sorted({*n, *config.coarse_n})
        rates, counts = (some.reindex(n=both, fill_value=0) for some in (rates, counts))
        rates = counts.where(counts.trials > 0, rates)
    return rates.assign_attrs(attrs)


def counted(dataset: Dataset) -> Dataset:
    """Count the successes of every cell, its trials, and its runs by how they ended."""
    counts = sweep.success_rate(dataset)[["successes", "trials"]]
    return counts.assign(ended=ended(dataset))


def plot(rates: Dataset, config: Config) -> Figure:
    """Draw the n needed with intervals, and the lines through them: a panel for each level."""
    levels = (0.9, *INTERCEPTS)
    crossings, lines = sweep.transition(rates, levels), sweep.fit_line(rates, levels)
    K = np.asarray(config.K)
    figure, panels = plots.panels(len(levels), width=2.5, height=3.2)
    for axes, level in zip(panels, levels, strict=True):
        for i, (name, (color, marker)) in enumerate(plots.looks(config.solvers).items()):
            crossing = crossings.sel(solver=name, level=level)
            line = lines.sel(solver=name, level=level)
            shift = (
                i - (len(config.solvers) - 1) / 2
            ) * 0.18  # so that error bars stand side by side
            plots.error_bars(axes, K + shift, crossing, color, marker)
            enclosed = K[np.isfinite(crossing.lower) & np.isfinite(crossing.upper)]
            text = (
                f"${with_intervals(line, config.d)}$"
                if line.num_points > 1
                else "fewer than two crossings enclosed"
            )
            drawn = float(line.slope) * enclosed + float(line.intercept)
            axes.plot(
                enclosed, drawn, color=color, linewidth=1, label=f"{SOLVERS[name].label}: {text}"
            )
        if level in INTERCEPTS:
            text = f"paper: ${line_of(SLOPE, INTERCEPTS[level], config.d)}$"
            axes.plot(
                K,
                paper_line(K, config.d, level),
                color=plots.BLACK,
                linestyle="--",
                linewidth=0.9,
                label=text,
            )
        axes.set_title(f"{level:.0%} recovered")
        axes.set_xlabel("sparsity $K$")
        axes.xaxis.set_major_locator(MultipleLocator(5))
        axes.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.2), fontsize=7, handlelength=1.5)
    panels[0].set_ylabel("number of measurements $n$ needed")
    rules = "; ".join(f"{SOLVERS[name].label}: {SOLVERS[name].rule}" for name in config.solvers)
    remark = (
        f"Error bars and the small numbers of the lines: 95% intervals{GIVEN[config.designs]}. "
    )
    remark += "Hollow: not enclosed by the grid, and not in the line."
    plots.caption(figure, config, f"{rules}.", remark)
    return figure


# ---- what the paper says of it, and whether it holds ----


def on_printed_line(level: float) -> Claim:
    """The printed line of a level, for HT-SVRG."""

    def judge(rates: Dataset, config: Any) -> Finding:
        lines = sweep.fit_line(rates.sel(solver="HT-SVRG"), (0.9, level))
        line, lower = lines.sel(level=level), lines.sel(level=0.9)
        if line.num_points < 2:
            text = "too few signals to bound the n of two sparsities from above"
            text += (
                f"; at 90 %: ${with_intervals(lower, config.d)}$" if lower.num_points > 1 else ""
            )
            return Finding(text, Verdict.CANNOT_BE_JUDGED)
        slope = [float(line[f"slope{end}"]) / np.log(config.d) for end in ("_lower", "_upper")]
        start = [float(line[f"intercept{end}"]) for end in ("_lower", "_upper")]
        within = slope[0] <= SLOPE <= slope[1], start[0] <= INTERCEPTS[level] <= start[1]
        return Finding.of(f"${with_intervals(line, config.d)}$", *within)

    printed = f"${line_of(SLOPE, INTERCEPTS[level], 256)}$"
    return Claim(
        f"the n at which HT-SVRG recovers {level:.0%} of the signals is nearly linear in K",
        judge,
        printed=printed,
    )


NEARLY = 0.1  # a line is nearly on top of another where it is no farther, as a share of n


def on_top(solver: str) -> Claim:
    """Whether the line of 95 % of a solver is nearly on top of HT-SVRG's, as that is printed: at
    every K at which the n of the solver is enclosed."""

    def judge(rates: Dataset, config: Any) -> Finding:
        line = sweep.fit_line(rates.sel(solver=solver), (0.95,)).sel(level=0.95)
        crossing = sweep.transition(rates.sel(solver=solver), (0.95,)).sel(level=0.95)
        K = crossing.K.values[np.isfinite(crossing.lower) & np.isfinite(crossing.upper)]
        if line.num_points < 2:
            return Finding("fewer than two n are enclosed", Verdict.CANNOT_BE_JUDGED)
        printed = paper_line(K, config.d)
        apart = (float(line.slope) * K + float(line.intercept) - printed) / printed
        text = f"${with_intervals(line, config.d)}$; from {100 * apart.min():.1f} % to "
        text += f"{100 * apart.max():.1f} % of n above, at K = {K.min()} to {K.max()}"
        return Finding.of(text, *(np.abs(apart) <= NEARLY))

    return Claim(
        f"the line of HT-SVRG is nearly on top of that of {solver} (95 %)",
        judge,
        printed=f"${line_of(SLOPE, INTERCEPTS[0.95], 256)}$",
    )


AROUND = [
    *RECOVERY,
    SIGNALS,
    Setting("sparsities K", "1 to 30 (Figure 3)", "{K}"),
    Setting(
        "measurements n", "from those of 90 % in Figure 1, by 1 (§5.1.1)", "around 90 %, by {step}"
    ),
    Setting("signals a cell for these 90 %", "1000 (§5.1)", "{coarse_signals}"),
    Setting("line", "linear regression (§5.1.1)", "least squares, over K whose n is enclosed"),
]
FIGURE_3 = Section(
    "Figure 3",
    "figure3_svrg",
    [on_printed_line(0.95), on_printed_line(0.99)],
    settings=[*AROUND, *SVRG],
)


FIGURE_3_PGD = Section(
    "Figure 3, IHT and PGD",
    "figure3",
    [on_top("PGD")],
    f"Nearly means: the two lines are apart by no more than {100 * NEARLY:g} % of n. HT-SVRG and PGD on the same cells "
    "are compared in Figure 2.",
    settings=[*AROUND, *PGD],
)
