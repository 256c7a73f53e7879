"""Shen & Li 2018, Figure 1: recovery of planted signals over the number of measurements and the
sparsity."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from xarray import Dataset

from experiments.common import SOLVERS, Count, Counts, Session, plots
from experiments.common.claims import Claim, Finding, Section, Setting, Verdict
from experiments.common.recovery import GIVEN, Planted, ended, recovered
from experiments.shen2018.lines import (
    INTERCEPTS,
    PGD,
    RECOVERY,
    SIGNALS,
    SLOPE,
    line_of,
    paper_line,
    with_intervals,
)
from jaxht import sweep

SUCCESS = "signals recovered within $10^{-3}$ (%)"


class Config(Planted):
    """Figure 1: one panel for each solver."""

    n: Counts  # numbers of measurements
    K: Counts  # numbers of nonzeros planted
    num_signals: Count  # trials in each cell (n, K)


def run(config: Config, session: Session) -> Dataset:
    """Solve every problem by every solver."""
    return recovered(
        config, session, {"n": config.n, "K": config.K}, config.num_signals, max(config.K)
    )


def summarise(dataset: Dataset, config: Config) -> Dataset:
    """Count the signals recovered in every cell, and the runs by how they ended."""
    return sweep.success_rate(dataset).assign(ended=ended(dataset))


def plot(rates: Dataset, config: Config) -> Figure:
    """Draw one phase diagram for each solver, with its transition."""
    crossings = sweep.transition(rates, (0.5, 0.95))
    figure, panels = plots.panels(len(config.solvers), width=2.35, height=2.5)
    for axes, name in zip(panels, config.solvers, strict=True):
        row = SOLVERS[name]
        rate = rates.rate.sel(solver=name)
        mesh = plots.phase_diagram(axes, rate.n, rate.K, 100 * rate.transpose("K", "n"))
        looks = {
            0.5: {"shade": "white", "linestyle": "-"},
            0.95: {"shade": "#00000055", "hatch": "/" * 6},
        }
        for level, look in looks.items():
            style = {
                "linestyle": (0, (2.5, 1.2)),
                **plots.ON_DIAGRAM,
                **look,
                "label": f"{level:.0%} recovered",
            }
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
    # In the dark corner of few measurements and many nonzeros.
    panels[0].legend(
        loc="upper left", labelcolor="white", fontsize=7, handlelength=1.8, borderaxespad=0.3
    )
    spread = 100 * float((rates.upper - rates.lower).max() / 2)
    remarks = [f"95% Wilson intervals of a cell: ±{spread:.0f} points at most."]
    remarks.append(f"Bands: 95% intervals of the crossings{GIVEN[config.designs]}.")
    if "PGD" in config.solvers:
        line = sweep.fit_line(rates.sel(solver="PGD"), (0.95,)).isel(level=0)
        if line.num_points > 1:
            remarks.insert(0, f"95% by PGD: ${with_intervals(line, config.d)}$.")
    if (rates.trials == 0).any():
        remarks.append("Grey cells have not run.")
    plots.caption(figure, config, *remarks)
    return figure


# ---- what the paper says of it, and whether it holds ----


def fewer_measurements(rates: Dataset, config: Any) -> Finding:
    """PGD against IHT: where half of the signals are recovered, for each K where both cross.

    A K at which the intervals overlap decides nothing; at least half of them have to decide.
    """
    crossings = sweep.transition(rates.sel(solver=["IHT-1", "PGD"]), (0.5,)).sel(level=0.5)
    iht, pgd = (crossings.sel(solver=name) for name in ("IHT-1", "PGD"))
    both = np.isfinite(iht.estimate) & np.isfinite(pgd.estimate)
    fewer, more = (both & (pgd.upper < iht.lower)).values, (both & (pgd.lower > iht.upper)).values
    saved = (1 - pgd.estimate / iht.estimate).where(both)
    text = f"fewer at {fewer.sum()} of {int(both.sum())} sparsities, more at {more.sum()}, the others within intervals"
    if fewer.any():
        text += f"; saved: {100 * float(saved.min()):.0f} to {100 * float(saved.max()):.0f} %"
    decided = int(fewer.sum() + more.sum())
    if not decided or 2 * decided < int(both.sum()):
        return Finding(text, Verdict.CANNOT_BE_JUDGED)
    return Finding.of(text, *fewer[fewer | more])


FIGURE_1 = Section(
    "Figure 1",
    "figure1",
    [
        Claim(
            "PGD requires fewer measurements than IHT for an accurate recovery", fewer_measurements
        )
    ],
    "The third panel of the paper, HT-SVRG, is in Figures 2 and 3.",
    settings=[
        *RECOVERY,
        SIGNALS,
        Setting("measurements n", "1 to 256, roughly by 8 (§5.1.1)", "{n}"),
        Setting("sparsities K", "1 to 26, roughly by 2 (§5.1.1)", "{K}"),
        *PGD,
    ],
)
