"""Donoho & Tanner 2010: recovery of planted signals over undersampling and sparsity, the solvers
compared."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from xarray import Dataset

from experiments.common import SOLVERS, Count, Counts, Fractions, Session, plots
from experiments.common.recovery import GIVEN, Planted, recovered
from jaxht import phase_diagram, sweep
from jaxht.baselines import l1_transition


class Config(Planted):
    """The diagram over undersampling and sparsity."""

    n: Counts  # numbers of measurements, delta = n/d
    rho: Fractions  # K/n. The signals have round(rho n) nonzeros, 1 at least.
    num_signals: Count  # trials in each cell


def fraction_of_n(cell: sweep.Cell) -> Any:
    """Return K = round(rho n), at least 1."""
    return phase_diagram.num_nonzeros(cell["rho"], cell["n"])


def run(config: Config, session: Session) -> Dataset:
    """Solve every problem by every solver."""
    K_max = max(1, round(max(config.rho) * max(config.n)))
    return recovered(
        config,
        session,
        {"n": config.n, "rho": config.rho},
        config.num_signals,
        K_max,
        fraction_of_n,
    )


def summarise(dataset: Dataset, config: Config) -> Dataset:
    """Count what is recovered in every cell."""
    return sweep.success_rate(dataset)


def plot(rates: Dataset, config: Config) -> Figure:
    """Draw the transitions of all solvers in one panel, and a diagram of each."""
    crossings = sweep.transition(rates, (0.5,), along="rho", falling=True).sel(level=0.5)
    columns = -(-len(config.solvers) // 2)
    figure = plots.figure(width=3.6 + 2.0 * columns, height=3.9)
    left, right = figure.subfigures(1, 2, width_ratios=(3.2, 2.0 * columns + 0.4), squeeze=False)[0]
    compared = left.subplots()
    panels = right.subplots(2, columns, sharex=True, sharey=True, squeeze=False)
    delta = np.asarray(config.n) / config.d
    compared.set(xlim=plots.edges(delta)[[0, -1]], ylim=(0, plots.edges(config.rho)[-1]))
    for axes, (name, (color, marker)) in zip(
        panels.flat, plots.looks(config.solvers).items(), strict=False
    ):
        row, crossing = SOLVERS[name], crossings.sel(solver=name)
        plots.band(compared, delta, crossing, color, along="y", label=row.label, marker=marker)
        mesh = plots.phase_diagram(
            axes, delta, config.rho, 100 * rates.rate.sel(solver=name).transpose("rho", "n")
        )
        plots.band(axes, delta, crossing, "white", along="y", **plots.ON_DIAGRAM)
        axes.set_title(row.label)
        plots.subtitle(axes, row.rule)
    for axes in list(panels.flat)[len(config.solvers) :]:
        axes.set_axis_off()
    fine = np.linspace(delta[0], delta[-1], 200)
    label = "$\\ell_1$ minimisation,\nin the limit of large $d$"
    l1 = l1_transition(fine).rho
    compared.plot(fine, l1, color=plots.BLACK, linewidth=0.9, linestyle=(0, (4, 2)), label=label)
    for axes in (compared, *panels[-1]):
        axes.set_xlabel(r"undersampling $\delta = n/d$")
    for axes in (compared, *panels[:, 0]):
        axes.set_ylabel(r"sparsity $\rho = K/n$")
    compared.set_title("half of the signals recovered")
    compared.legend(loc="upper left")
    plots.colorbar(right, mesh, list(panels.flat), "signals recovered within $10^{-3}$ (%)")
    remark = f"Lines: half of the signals recovered; bands: 95% intervals{GIVEN[config.designs]}. Dashed: Donoho & Tanner."
    plots.caption(figure, config, remark)
    return figure
