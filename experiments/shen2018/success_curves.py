"""Shen & Li 2018, Figure 2: recovery of planted signals against n and against K, sections of the
phase diagram."""

from typing import Any

from matplotlib.figure import Figure
from xarray import Dataset

from experiments.common import SOLVERS, Counts, plots
from experiments.common.claims import (
    Claim,
    Finding,
    Reason,
    Section,
    Setting,
    Verdict,
    needs,
    percent,
    rate_at,
)
from experiments.common.recovery import GIVEN
from experiments.shen2018 import phase_transition
from experiments.shen2018.lines import RECOVERY, SIGNALS, SVRG

run, summarise = phase_transition.run, phase_transition.summarise


class Config(phase_transition.Config):
    """Figure 2: sections of the phase diagram."""

    shown_K: Counts  # numbers of nonzeros of which the success against n is drawn
    shown_n: Counts  # numbers of measurements of which the success against K is drawn


def plot(rates: Dataset, config: Config) -> Figure:
    """Draw success against n and against K: a row of two panels for each solver."""
    figure = plots.figure(7.4, 2.5 * len(config.solvers))
    grid = figure.subplots(len(config.solvers), 2, squeeze=False, sharey=True)
    for row, name in zip(grid, config.solvers, strict=True):
        for axes, over, at, shown in (
            (row[0], "n", "K", config.shown_K),
            (row[1], "K", "n", config.shown_n),
        ):
            for value, (color, marker) in plots.looks(shown).items():
                curve = rates.sel({"solver": name, at: value})
                plots.rates(axes, curve, color, marker=marker, label=f"${at} = {value}$")
            axes.legend()
            axes.set_xlabel({"n": "number of measurements $n$", "K": "sparsity $K$"}[over])
            axes.set_title(SOLVERS[name].label)
            plots.subtitle(axes, SOLVERS[name].rule)
        row[0].set_ylabel("signals recovered (%)")
    remark = f"Bands: 95% Wilson intervals{GIVEN[config.designs]}."
    plots.caption(figure, config, remark)
    return figure


# ---- what the paper says of it, and whether it holds ----


def eighty_percent(rates: Dataset, config: Any) -> Finding:
    rate = rate_at(rates, {"solver": "HT-SVRG", "K": 16, "n": 175})
    return Finding(percent(*rate), Verdict.between(*rate[1:], 0.8))


def reliable(rates: Dataset, config: Any) -> Finding:
    some = rates.sel(solver="HT-SVRG", n=232).where(rates.K <= 22, drop=True)
    least = some.isel(K=int(some.rate.argmin("K")))
    text = f"least at K = {int(least.K)}: {percent(float(least.rate), float(least.lower), float(least.upper))}"
    return Finding(text, Verdict.between(float(some.lower.min()), float(some.upper.min()), 0.95))


@needs("HT-SVRG", "PGD", column="rate")
def like_pgd(rates: Dataset, config: Any) -> Finding:
    """HT-SVRG against PGD cell by cell, where either recovers some signals and not all: comparable
    where the intervals overlap."""
    svrg, pgd = (rates.sel(solver=name) for name in ("HT-SVRG", "PGD"))
    both = svrg.rate.notnull() & pgd.rate.notnull()
    open_cells = both & ((svrg.rate > 0) | (pgd.rate > 0)) & ((svrg.rate < 1) | (pgd.rate < 1))
    overlaps = (svrg.upper >= pgd.lower) & (svrg.lower <= pgd.upper)
    behind = int((open_cells & (svrg.upper < pgd.lower)).sum())
    ahead = int((open_cells & (svrg.lower > pgd.upper)).sum())
    total = int(open_cells.sum())
    text = f"of {total} cells behind PGD beyond intervals in {behind}, ahead in {ahead}"
    return Finding.of(text, *overlaps.values[open_cells.values])


# Of 4 signals with K = 22 at n = 232, run as here, 3 are found; of the last f falls from 2e-6 to 9e-8 in the last 5000 of
# 10 000 stages.
STILL_FALLING = (
    f"{Reason.UNKNOWN}: not the trials, whose interval ends below the claim; with the printed η and k = 9K f still falls "
    "when a run ends at 10 000 stages"
)

FIGURE_2 = Section(
    "Figure 2",
    "figure2",
    [
        Claim(
            "HT-SVRG recovers 80 % of the 16-sparse signals at n = 175",
            eighty_percent,
            printed="80 %",
            reason=STILL_FALLING,
        ),
        Claim(
            "from n = 232, signals of sparsity 22 or less are reliably recovered",
            reliable,
            reason=f"{Reason.UNKNOWN}: not the trials; f still falls at 10 000 stages, and by the paper's own line (Figure 3) "
            "95 % of them need n = 240",
        ),
        Claim("HT-SVRG performs comparably to PGD (Figure 1)", like_pgd, reason=STILL_FALLING),
    ],
    settings=[
        *RECOVERY,
        SIGNALS,
        Setting("measurements n", "1 to 256, roughly by 8 (§5.1.1)", "{n}"),
        Setting("sparsities K", "1 to 26, roughly by 2 (§5.1.1)", "{K}"),
        *SVRG,
    ],
)
