"""Shen & Li, A Tight Bound of Hard Thresholding, JMLR 2018."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from xarray import Dataset

from experiments import plots
from experiments.config import Count, Counts, Failure
from experiments.phase import GIVEN, Planted, recovered
from experiments.session import Session
from experiments.solvers import SOLVERS
from jaxht import sweep

SUCCESS = "signals recovered within $10^{-3}$ (%)"
# Printed in Figure 3, the n with which HT-SVRG recovers a part of the signals: n = SLOPE K ln d + the number here.
SLOPE, INTERCEPTS = 1.7, {0.95: 33, 0.99: 40}


class PhaseTransition(Planted):
    """Figure 1: one panel for each solver.

    Attributes:
        n: numbers of measurements.
        K: numbers of nonzeros planted.
        num_signals: trials in each cell (n, K).
    """

    n: Counts
    K: Counts
    num_signals: Count


def phase_transition(config: PhaseTransition, session: Session) -> Dataset:
    """Solve every problem by every solver."""
    return recovered(config, session, {"n": config.n, "K": config.K}, config.num_signals, max(config.K))


def plot_phase_transition(dataset: Dataset) -> Figure:
    """One phase diagram for each solver, with its transition."""
    config = plots.config(dataset, PhaseTransition)
    rates = sweep.success_rate(dataset)
    crossings = sweep.transition(rates, (0.5, 0.95))
    figure, panels = plots.panels(len(config.solvers), width=2.35, height=2.5)
    for axes, name in zip(panels, config.solvers, strict=True):
        row = SOLVERS[name]
        rate = rates.rate.sel(solver=name)
        mesh = plots.phase_diagram(axes, rate.n, rate.K, 100 * rate.transpose("K", "n"))
        looks = {0.5: {"shade": "white", "linestyle": "-"}, 0.95: {"shade": "#00000055", "hatch": "/" * 6}}
        for level, look in looks.items():
            style = {"linestyle": (0, (2.5, 1.2)), **plots.ON_DIAGRAM, **look, "label": f"{level:.0%} recovered"}
            plots.band(axes, rate.K, crossings.sel(solver=name, level=level), along="x", **style)
        K = np.asarray(config.K)
        label = f"95% by HT-SVRG, in the paper:\n${line_of(SLOPE, INTERCEPTS[0.95], config.d)}$"
        axes.plot(paper_line(K, config.d), K, color=plots.VERMILION, label=label)
        axes.set_title(row.label)
        plots.subtitle(axes, row.rule)
        axes.set_xlabel("number of measurements $n$")
        axes.set_xticks(np.arange(1, 5) * config.d // 4)
    panels[0].set_ylabel("sparsity $K$")
    plots.colorbar(figure, mesh, panels, SUCCESS)
    plots.legend_on_dark(panels[0])
    spread = 100 * float((rates.upper - rates.lower).max() / 2)
    remarks = [config.remark, sentence(rates, config), f"95% Wilson intervals of a cell: ±{spread:.0f} points at most."]
    remarks.append(f"Bands: 95% intervals of the crossings{GIVEN[config.designs]}.")
    if (rates.trials == 0).any():
        remarks.append("Grey cells have not run.")
    plots.caption(figure, config.title, " ".join(filter(None, remarks)))
    return figure


def sentence(rates: Dataset, config: PhaseTransition) -> str:
    """How the 95 % line of PGD compares with the paper's; empty where there is none."""
    if "PGD" not in config.solvers:
        return ""
    line = sweep.fit_line(rates.sel(solver="PGD"), (0.95,)).isel(level=0)
    return f"95% by PGD: ${with_intervals(line, config.d)}$." if line.num_points > 1 else ""


def line_of(slope: float, intercept: float, d: int) -> str:
    """A line as the paper prints it, in TeX."""
    return f"n={slope:.2g}\\,K\\,\\ln{{{d}}}{intercept:+.2g}"


def with_intervals(line: Dataset, d: int) -> str:
    """A fitted line and its intervals in the units in which the paper prints it, in TeX."""
    slope, low, high = (float(line[f"slope{end}"]) / np.log(d) for end in ("", "_lower", "_upper"))
    start, least, most = (float(line[f"intercept{end}"]) for end in ("", "_lower", "_upper"))
    ends = f"_{{{low:.2f}}}^{{{high:.2f}}}", f"_{{{least:.0f}}}^{{{most:.0f}}}"
    return f"n={slope:.2f}{ends[0]}\\,K\\,\\ln{{{d}}}{start:+.0f}{ends[1]}"


def paper_line(K: np.ndarray, d: int, level: float = 0.95) -> np.ndarray:
    """The n with which HT-SVRG recovers a part of the signals: the regression line printed in Figure 3."""
    return SLOPE * K * np.log(d) + INTERCEPTS[level]


class SuccessCurves(PhaseTransition):
    """Figure 2: sections of the phase diagram.

    Attributes:
        shown_K: numbers of nonzeros of which the success against n is drawn.
        shown_n: numbers of measurements of which the success against K is drawn.
    """

    shown_K: Counts
    shown_n: Counts


def plot_success_curves(dataset: Dataset) -> Figure:
    """Success against n and against K: a row of two panels for each solver."""
    config = plots.config(dataset, SuccessCurves)
    rates = sweep.success_rate(dataset)
    figure = plots.figure(7.4, 2.5 * len(config.solvers))
    grid = figure.subplots(len(config.solvers), 2, squeeze=False, sharey=True)
    for row, name in zip(grid, config.solvers, strict=True):
        for axes, over, at, shown in ((row[0], "n", "K", config.shown_K), (row[1], "K", "n", config.shown_n)):
            for value, color, marker in zip(shown, plots.CYCLE, "osD^vP", strict=False):
                curve = rates.sel({"solver": name, at: value})
                plots.rates(axes, curve, color, marker=marker, label=f"${at} = {value}$")
            axes.legend()
            axes.set_xlabel({"n": "number of measurements $n$", "K": "sparsity $K$"}[over])
            axes.set_title(SOLVERS[name].label)
            plots.subtitle(axes, SOLVERS[name].rule)
        row[0].set_ylabel("signals recovered (%)")
    remark = f"Bands: 95% Wilson intervals{GIVEN[config.designs]}."
    plots.caption(figure, config.title, " ".join(filter(None, [config.remark, remark])))
    return figure


class MeasurementsNeeded(Planted):
    """Figure 3: the n with which a part of the signals is recovered, against K.

    A coarse sweep finds the n with which nine of ten signals are recovered, and a fine one raises n around it.

    Attributes:
        K: numbers of nonzeros planted.
        coarse_n: numbers of measurements of the coarse sweep.
        coarse_signals: its trials in each cell (n, K).
        below, above: the window around the n found, in which the fine sweep runs.
        step: by which it raises n.
        num_signals: its trials in each cell.
    """

    K: Counts
    coarse_n: Counts
    coarse_signals: Count
    below: Count
    above: Count
    step: Count
    num_signals: Count


def measurements_needed(config: MeasurementsNeeded, session: Session) -> Dataset:
    """Count the successes, coarsely and finely; where both have run, the fine ones count."""
    solve = partial(recovered, config, session, K_max=max(config.K))
    coarse = solve({"n": config.coarse_n, "K": config.K}, config.coarse_signals, part="coarse")
    if not coarse.get("done", np.True_).all():
        raise Failure("other processes are still at the coarse sweep: give the same command again when they have ended")
    rates = sweep.success_rate(coarse)[["successes", "trials"]]
    starts = sweep.transition(rates, (0.9,)).estimate.sel(level=0.9)
    least, most = min(config.coarse_n), max(config.coarse_n)
    windows = {
        (solver, K): (max(start, least) - config.below, max(start, least) + config.above)
        for solver, row in zip(config.solvers, starts.transpose("solver", "K").values.tolist(), strict=True)
        for K, start in zip(config.K, row, strict=True)
        if start < np.inf
    }
    attrs = coarse.attrs
    if windows:
        n = [n for n in range(config.step, most + 1, config.step) if any(a <= n <= b for a, b in windows.values())]

        def where(cell: Mapping[str, Any]) -> bool:
            low, high = windows.get((cell["solver"], cell["K"]), (1, 0))
            return low <= cell["n"] <= high

        fine = solve({"n": n, "K": config.K}, config.num_signals, part="fine", where=where)
        counts = sweep.success_rate(fine)[["successes", "trials"]]
        both = sorted({*n, *config.coarse_n})
        rates, counts = (some.reindex(n=both, fill_value=0) for some in (rates, counts))
        rates = counts.where(counts.trials > 0, rates)
    return rates.assign_attrs(attrs)


def plot_measurements_needed(rates: Dataset) -> Figure:
    """The n needed with intervals, and the lines through them: a panel for each level."""
    config = plots.config(rates, MeasurementsNeeded)
    levels = (0.9, *INTERCEPTS)
    crossings, lines = sweep.transition(rates, levels), sweep.fit_line(rates, levels)
    K = np.asarray(config.K)
    figure, panels = plots.panels(len(levels), width=2.5, height=3.2)
    for axes, level in zip(panels, levels, strict=True):
        for i, (name, color, marker) in enumerate(zip(config.solvers, plots.CYCLE, "osD^v", strict=False)):
            crossing = crossings.sel(solver=name, level=level)
            line = lines.sel(solver=name, level=level)
            shift = (i - (len(config.solvers) - 1) / 2) * 0.18  # so that error bars stand side by side
            plots.error_bars(axes, K + shift, crossing, color, marker)
            enclosed = K[np.isfinite(crossing.lower) & np.isfinite(crossing.upper)]
            text = f"${with_intervals(line, config.d)}$" if line.num_points > 1 else "fewer than two crossings enclosed"
            drawn = float(line.slope) * enclosed + float(line.intercept)
            axes.plot(enclosed, drawn, color=color, linewidth=1, label=f"{SOLVERS[name].label}: {text}")
        if level in INTERCEPTS:
            text = f"paper: ${line_of(SLOPE, INTERCEPTS[level], config.d)}$"
            axes.plot(K, paper_line(K, config.d, level), color=plots.BLACK, linestyle="--", linewidth=0.9, label=text)
        axes.set_title(f"{level:.0%} recovered")
        axes.set_xlabel("sparsity $K$")
        axes.xaxis.set_major_locator(MultipleLocator(5))
        axes.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.2), fontsize=7, handlelength=1.5)
    panels[0].set_ylabel("number of measurements $n$ needed")
    rules = "; ".join(f"{SOLVERS[name].label}: {SOLVERS[name].rule}" for name in config.solvers)
    remark = f"Error bars and the small numbers of the lines: 95% intervals{GIVEN[config.designs]}. "
    remark += "Hollow: not enclosed by the grid, and not in the line."
    plots.caption(figure, config.title, f"{config.remark} {rules}. {remark}")
    return figure
