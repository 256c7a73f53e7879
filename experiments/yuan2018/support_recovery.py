"""Yuan, Li & Zhang 2018, Figures 2 and 3: exact and relaxed recovery of supports against the sample
size."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import jax.numpy as jnp
import numpy as np
from chex import Array
from matplotlib.figure import Figure
from pydantic import Field
from xarray import Dataset, concat

from experiments.common import SOLVERS, Count, Counts, Session, plots
from experiments.common.recovery import Planted, draw, recovered
from jaxht import LeastSquares, Logistic, metrics, sweep
from jaxht.planted.ensembles import gaussian_noise, logistic_labels, significant_signal


class Config(Planted):
    """Figures 2 and 3: rows N(0, I), values "Gaussian with significant mean", a design of its own
    for each trial."""

    model: Literal[
        "linear", "logistic"
    ]  # "linear" with unit noise, or "logistic" with labels and loss of factor 2
    l2: Annotated[float, Field(ge=0)] = 0.0  # ridge parameter of the logistic loss
    K: Count  # number of nonzeros planted
    signal_mean: float  # of their values, of variance 1
    k: Counts  # sparsities of the solvers
    n: Counts  # sample sizes
    num_trials: Count  # of each cell
    designs: Literal["cell", "trial"] = "trial"


def weighted_logistic(A: Array, y: Array, l2: float) -> Logistic:
    """Return the logistic loss of factor 2, averaged over the samples with a label: y = 0 where
    rows are padding."""
    return Logistic(A, y, l2, 2.0, weights=jnp.abs(y))


# How y is drawn, and what is minimised. Padding does not change a sum of squares, and steps
# relative to its smoothness do not depend on its scale.
MODELS: dict[str, tuple[Any, Any]] = {
    "linear": (partial(gaussian_noise, sigma=1.0), partial(LeastSquares, mean=False)),
    "logistic": (partial(logistic_labels, factor=2.0), weighted_logistic),
}


def run(config: Config, session: Session) -> Dataset:
    """Solve every problem by every solver and with every k."""
    response, objective = MODELS[config.model]
    signal = partial(significant_signal, mean=config.signal_mean)
    planted: Callable[..., Any] = partial(
        draw,
        d=config.d,
        K=lambda cell: config.K,
        designs=config.designs,
        variance=1.0,
        signal=signal,
        response=response,
    )
    judged = {"exact": metrics.exact_recovery, "relaxed": metrics.relaxed_recovery}
    return recovered(
        config,
        session,
        {"n": config.n, "k": config.k},
        config.num_trials,
        K_max=lambda cell: cell.bounds["k"],
        K=lambda cell: cell["k"],
        recovery=partial(
            sweep.Recovery, planted, objective=partial(objective, l2=config.l2), metrics=judged
        ),
        problem=("n",),
        # A compile for each k: refits of GraSP have 3 k columns.
        round_up={"n": config.round_n, "k": 1},
    )


def summarise(dataset: Dataset, config: Config) -> Dataset:
    """Count the supports recovered in every cell, exactly and relaxed."""
    kinds = ["exact", "relaxed"]
    return concat([sweep.success_rate(dataset, kind) for kind in kinds], "recovery").assign_coords(
        recovery=kinds
    )


def plot(rates: Dataset, config: Config) -> Figure:
    """Draw a panel for each k: the rates of exact and of relaxed recovery against n."""
    exact, relaxed = (rates.sel(recovery=kind) for kind in ("exact", "relaxed"))
    looks = plots.looks(config.solvers)
    figure, panels = plots.panels(len(config.k), width=2.3, height=2.6)
    for axes, k in zip(panels, config.k, strict=True):
        for name, (color, marker) in looks.items():
            for kind, style in (
                (exact, {"linestyle": "-"}),
                (relaxed, {"linestyle": "--", "mfc": "white"}),
            ):
                plots.rates(axes, kind.sel(solver=name, k=k), color, marker=marker, **style)
        axes.set_title(f"$k = {k}$" + (r" $= \bar{k}$" if k == config.K else ""))
        axes.set_xlabel("sample size $n$")
    panels[0].set_ylabel("support recovered (%)")
    entries = [(SOLVERS[name].label, color, "-") for name, (color, _) in looks.items()]
    entries += [("exact", plots.GREY, "-"), ("relaxed", plots.GREY, "--")]
    plots.legend_right(panels[-1], entries)
    plots.caption(figure, config, needed(exact, config), "Bands: 95% Wilson intervals.")
    return figure


def needed(rates: Dataset, config: Config, level: float = 0.9) -> str:
    """Say at which n the rate of exact recovery crosses a level, for the caption."""
    crossings = sweep.transition(rates, (level,)).estimate.sel(level=level)

    def text(k: int, name: str) -> str:
        n = float(crossings.sel(solver=name, k=k))
        found = (
            f"{n:.0f}"
            if np.isfinite(n)
            else f"> {max(config.n)}"
            if n > 0
            else f"< {min(config.n)}"
        )
        return f"{SOLVERS[name].label} {found}"

    parts = (f"k = {k}: {', '.join(text(k, name) for name in config.solvers)}" for k in config.k)
    return f"n at which {level:.0%} are exact: {'; '.join(parts)}."
