"""Yuan, Li & Zhang, Gradient Hard Thresholding Pursuit, JMLR 2018."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import jax.numpy as jnp
import numpy as np
from chex import Array
from matplotlib.figure import Figure
from pydantic import Field
from xarray import Dataset

from experiments import plots
from experiments.config import Config, Count, Counts, Positive
from experiments.phase import Planted, draw, recovered
from experiments.session import Session
from experiments.solvers import SOLVERS
from jaxht import LeastSquares, Logistic, bounds, metrics, sweep
from jaxht.planted.ensembles import gaussian_noise, logistic_labels, significant_signal


class Contraction(Config):
    """Figure 1.

    Attributes:
        num_points: condition numbers in each panel.
        kappa_max: the largest in the left panel, Theorem 2.
        kappa_max_relaxed: the largest in the right panel, Theorem 5.
    """

    num_points: Count
    kappa_max: Positive
    kappa_max_relaxed: Positive


def contraction(config: Contraction, session: Session) -> Dataset:
    """The factors at m = 1, M = kappa, with the step size that is best for each or that the paper names."""
    session.report(0, 2)
    kappa = jnp.linspace(1, config.kappa_max, config.num_points)
    best = 1 / kappa**2  # m / M^2
    strict = bounds.grahtp_factors(kappa, 1.0, best)
    session.report(1, 2)
    relaxed_kappa = jnp.linspace(1, config.kappa_max_relaxed, config.num_points)
    k = 2 + 16 * relaxed_kappa**2  # over kbar = 1
    half, best = 1 / (2 * relaxed_kappa), 1 / relaxed_kappa**2
    grahtp = bounds.grahtp_relaxed_factors(relaxed_kappa, 1.0, half, k, 1.0).grahtp
    fgrahtp = bounds.grahtp_relaxed_factors(relaxed_kappa, 1.0, best, k, 1.0).fgrahtp
    session.report(2, 2)
    return Dataset(
        {
            "mu_1": ("kappa", np.asarray(strict.grahtp)),
            "mu_2": ("kappa", np.asarray(strict.fgrahtp)),
            "mubar_1": ("kappa_relaxed", np.asarray(grahtp)),
            "mubar_2": ("kappa_relaxed", np.asarray(fgrahtp)),
            "sparsity_ratio": ("kappa_relaxed", np.asarray(k)),
        },
        coords={"kappa": np.asarray(kappa), "kappa_relaxed": np.asarray(relaxed_kappa)},
        attrs=sweep.provenance(),
    )


def plot_contraction(dataset: Dataset) -> Figure:
    """Theorem 2 on the left, Theorem 5 on the right."""
    config = plots.config(dataset, Contraction)
    figure, (left, right) = plots.panels(2, width=2.9, height=2.6)
    curves = (
        (left, dataset.mu_1, plots.BLUE, "-", r"GraHTP, $\mu_1$"),
        (left, dataset.mu_2, plots.VERMILION, "--", r"FGraHTP, $\mu_2$"),
        (right, dataset.mubar_1, plots.BLUE, "-", r"GraHTP, $\bar\mu_1$ (of the objective)"),
        (right, dataset.mubar_1**0.5, plots.BLUE, ":", r"GraHTP, $\sqrt{\bar\mu_1}$ (of the error)"),
        (right, dataset.mubar_2, plots.VERMILION, "--", r"FGraHTP, $\bar\mu_2$"),
    )
    for axes, factor, color, dashes, text in curves:
        (kappa,) = factor.dims
        axes.plot(factor[kappa], factor.where(factor <= 1.05), color=color, linestyle=dashes, label=text)
    for axes, kappa in (left, dataset.kappa), (right, dataset.kappa_relaxed):
        axes.axhline(1, color=plots.GREY, linewidth=0.6)
        axes.set_xlim(kappa.min(), kappa.max())
        axes.set_ylim(0, 1.05)
        axes.legend(loc="lower right")
    left.set_xlabel(r"condition number $M_{3k}/m_{3k}$")
    right.set_xlabel(r"condition number $M/m$")
    left.set_ylabel("contraction factor of a step")
    left.set_title("Theorem 2")
    right.set_title("Theorem 5, relaxed sparsity")
    plots.caption(figure, config.title, config.remark)
    return figure


class SupportRecovery(Planted):
    """Figures 2 and 3: rows N(0, I), values "Gaussian with significant mean", a design of its own for each trial.

    Attributes:
        model: "linear" with unit noise, or "logistic" with labels and loss of factor 2.
        l2: ridge parameter of the logistic loss.
        K: number of nonzeros planted.
        signal_mean: of their values, of variance 1.
        k: sparsities of the solvers.
        n: sample sizes.
        num_trials: of each cell.
    """

    model: Literal["linear", "logistic"]
    l2: Annotated[float, Field(ge=0)] = 0.0
    K: Count
    signal_mean: float
    k: Counts
    n: Counts
    num_trials: Count
    designs: Literal["cell", "trial"] = "trial"


def weighted_logistic(A: Array, y: Array, l2: float) -> Logistic:
    """The logistic loss of factor 2, averaged over the samples that have a label: y = 0 where rows are padding."""
    return Logistic(A, y, l2, 2.0, weights=jnp.abs(y))


# How y is drawn, and what is minimised. A sum of squares does not see the padding, and steps relative to its smoothness
# do not see its scale.
MODELS: dict[str, tuple[Any, Any]] = {
    "linear": (partial(gaussian_noise, sigma=1.0), LeastSquares),
    "logistic": (partial(logistic_labels, factor=2.0), weighted_logistic),
}


def support_recovery(config: SupportRecovery, session: Session) -> Dataset:
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
        max(config.k),
        K=lambda cell: cell["k"],
        recovery=partial(sweep.Recovery, planted, objective=partial(objective, l2=config.l2), metrics=judged),
        problem=("n",),
    )


def plot_support_recovery(dataset: Dataset) -> Figure:
    """A panel for each k: the chances of exact and of relaxed recovery against n."""
    config = plots.config(dataset, SupportRecovery)
    exact, relaxed = (sweep.success_rate(dataset, name) for name in ("exact", "relaxed"))
    figure, panels = plots.panels(len(config.k), width=2.3, height=2.6)
    for axes, k in zip(panels, config.k, strict=True):
        for name, color, marker in zip(config.solvers, plots.CYCLE, "osD^vP", strict=False):
            for rates, style in (exact, {"linestyle": "-"}), (relaxed, {"linestyle": "--", "mfc": "white"}):
                plots.rates(axes, rates.sel(solver=name, k=k), color, marker=marker, **style)
        axes.set_title(f"$k = {k}$" + (r" $= \bar{k}$" if k == config.K else ""))
        axes.set_xlabel("sample size $n$")
    panels[0].set_ylabel("support recovered (%)")
    looks = [(SOLVERS[name].label, color, "-") for name, color in zip(config.solvers, plots.CYCLE, strict=False)]
    looks += [("exact", plots.GREY, "-"), ("relaxed", plots.GREY, "--")]
    plots.legend_right(panels[-1], looks)
    plots.caption(figure, config.title, f"{config.remark} {needed(exact, config)} Bands: 95% Wilson intervals.")
    return figure


def needed(rates: Dataset, config: SupportRecovery, level: float = 0.9) -> str:
    """The n at which the chance of exact recovery passes a level, for the caption."""
    crossings = sweep.transition(rates, (level,)).estimate.sel(level=level)

    def text(k: int, name: str) -> str:
        n = float(crossings.sel(solver=name, k=k))
        found = f"{n:.0f}" if np.isfinite(n) else f"> {max(config.n)}" if n > 0 else f"< {min(config.n)}"
        return f"{SOLVERS[name].label} {found}"

    parts = (f"k = {k}: {', '.join(text(k, name) for name in config.solvers)}" for k in config.k)
    return f"n at which {level:.0%} are exact: {'; '.join(parts)}."
