"""Shen & Li, A Tight Bound of Hard Thresholding, JMLR 2018."""

from functools import partial
from typing import Annotated

import jax.numpy as jnp
import numpy as np
from chex import PRNGKey
from matplotlib.figure import Figure
from pydantic import Field
from xarray import Dataset

from experiments import plots
from experiments.config import Config, Count, Counts
from experiments.session import Session
from experiments.solvers import SOLVERS, SolverName
from jaxht import Stop, sweep
from jaxht.ensembles import Problem, gaussian, gaussian_signal, planted

PAPER_LINE = "95% by HT-SVRG, in the paper:\n$n = 1.7\\,K\\,\\ln 256 + 33$"


class PhaseTransition(Config):
    """Figure 1.

    Attributes:
        d: dimension.
        n: numbers of measurements.
        K: numbers of nonzeros planted.
        solvers: one panel each.
        num_signals: trials in each cell (n, K); they share one A.
        max_steps: of every solver.
        rtol: change at which a run counts as converged; absent: machine epsilon. 0: only where it repeats exactly.
        round_n: one compile serves all n that agree when rounded up to a multiple of it.
        seed: of all draws.
    """

    d: Count
    n: Counts
    K: Counts
    solvers: Annotated[list[SolverName], Field(min_length=1)]
    num_signals: Count
    max_steps: Count
    rtol: Annotated[float, Field(ge=0)] | None = None
    round_n: Count = 64
    seed: Annotated[int, Field(ge=0)] = 0


def draw(key: PRNGKey, cell: sweep.Cell, d: int) -> Problem:
    """A noise-free problem: Gaussian A of variance 1/n, shared by the cell, and N(0, 1) values on a uniform support.

    Rows beyond n are zero. They change no solution, and one compile serves all n up to ``cell.bounds["n"]``.
    """
    n, rows = cell["n"], cell.bounds["n"]

    def design(key: PRNGKey) -> jnp.ndarray:
        return jnp.where(jnp.arange(rows)[:, None] < n, gaussian(key, rows, d, variance=1 / n), 0)

    return planted(key, design, partial(gaussian_signal, d=d, K=cell["K"]), design_key=cell.key)


def phase_transition(config: PhaseTransition, session: Session) -> Dataset:
    """Solve every problem by every solver."""
    methods = {name: SOLVERS[name].method(max(config.K), config.d) for name in config.solvers}
    trial = sweep.Recovery(partial(draw, d=config.d), methods, stop=Stop(max_steps=config.max_steps, rtol=config.rtol))
    return session.sweep(
        trial,
        {"solver": config.solvers, "n": config.n, "K": config.K},
        num_trials=config.num_signals,
        seed=config.seed,
        round_up={"n": config.round_n},
        problem=("n", "K"),
    )


def plot_phase_transition(dataset: Dataset) -> Figure:
    """One phase diagram for each solver, with its transition."""
    config = plots.config(dataset, PhaseTransition)
    rates = sweep.success_rate(dataset)
    crossings = sweep.transition(rates, (0.5, 0.95))
    spread = 100 * float((rates.upper - rates.lower).max() / 2)
    figure, panels = plots.panels(len(config.solvers), width=2.35, height=2.5)
    for axes, name in zip(panels, config.solvers, strict=True):
        row = SOLVERS[name]
        diagram = rates.rate.sel(solver=name)
        mesh = plots.phase_diagram(axes, diagram.n, diagram.K, 100 * diagram.transpose("K", "n"))
        for level, dashes in (0.5, "-"), (0.95, (0, (2.5, 1.5))):
            crossing = crossings.estimate.sel(solver=name, level=level)
            axes.plot(crossing, crossing.K, color="white", linestyle=dashes, label=f"{level:.0%} recovered")
        K = np.asarray(config.K)
        axes.plot(paper_line(K, config.d), K, color=plots.VERMILION, label=PAPER_LINE)
        axes.set_title(row.label)
        plots.subtitle(axes, row.rule)
        axes.set_xlabel("number of measurements $n$")
        axes.set_xticks(np.arange(1, 5) * config.d // 4)
    panels[0].set_ylabel("sparsity $K$")
    plots.colorbar(figure, mesh, panels, "signals recovered within $10^{-3}$ (%)")
    plots.legend_on_dark(panels[0])
    plots.caption(
        figure, config.title, f"{config.remark} 95% Wilson intervals of a cell: ±{spread:.0f} points at most."
    )
    return figure


def paper_line(K: np.ndarray, d: int) -> np.ndarray:
    """The n with which HT-SVRG recovers 95 % of the signals: the regression line printed in Figure 3."""
    return 1.7 * K * np.log(d) + 33
