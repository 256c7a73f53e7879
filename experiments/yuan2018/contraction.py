"""Yuan, Li & Zhang 2018, Figure 1: contraction factors of GraHTP and FGraHTP, in closed form."""

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from xarray import Dataset

from experiments.common import BaseConfig, Count, Positive, Session, plots
from jaxht import bounds


class Config(BaseConfig):
    """Figure 1."""

    num_points: Count  # condition numbers in each panel
    kappa_max: Positive  # the largest in the left panel, Theorem 2
    kappa_max_relaxed: Positive  # the largest in the right panel, Theorem 5


def run(config: Config, session: Session) -> Dataset:
    """Compute the factors at m = 1, M = kappa, with the step size that is best for each or that the
    paper names."""
    list(session.progress([None]))
    kappa = jnp.linspace(1, config.kappa_max, config.num_points)
    best = 1 / kappa**2  # m / M^2
    strict = bounds.grahtp_factors(kappa, 1.0, best)
    relaxed_kappa = jnp.linspace(1, config.kappa_max_relaxed, config.num_points)
    k = 2 + 16 * relaxed_kappa**2  # over kbar = 1
    half, best = 1 / (2 * relaxed_kappa), 1 / relaxed_kappa**2
    grahtp = bounds.grahtp_relaxed_factors(relaxed_kappa, 1.0, half, k, 1.0).grahtp
    fgrahtp = bounds.grahtp_relaxed_factors(relaxed_kappa, 1.0, best, k, 1.0).fgrahtp
    return Dataset(
        {
            "mu_1": ("kappa", np.asarray(strict.grahtp)),
            "mu_2": ("kappa", np.asarray(strict.fgrahtp)),
            "mubar_1": ("kappa_relaxed", np.asarray(grahtp)),
            "mubar_2": ("kappa_relaxed", np.asarray(fgrahtp)),
            "sparsity_ratio": ("kappa_relaxed", np.asarray(k)),
        },
        coords={"kappa": np.asarray(kappa), "kappa_relaxed": np.asarray(relaxed_kappa)},
    )


def plot(dataset: Dataset, config: Config) -> Figure:
    """Draw Theorem 2 on the left, Theorem 5 on the right."""
    figure, (left, right) = plots.panels(2, width=2.9, height=2.6)
    curves = (
        (left, dataset.mu_1, plots.BLUE, "-", r"GraHTP, $\mu_1$"),
        (left, dataset.mu_2, plots.VERMILION, "--", r"FGraHTP, $\mu_2$"),
        (right, dataset.mubar_1, plots.BLUE, "-", r"GraHTP, $\bar\mu_1$ (of the objective)"),
        (
            right,
            dataset.mubar_1**0.5,
            plots.BLUE,
            ":",
            r"GraHTP, $\sqrt{\bar\mu_1}$ (of the error)",
        ),
        (right, dataset.mubar_2, plots.VERMILION, "--", r"FGraHTP, $\bar\mu_2$"),
    )
    for axes, factor, color, dashes, text in curves:
        (kappa,) = factor.dims
        axes.plot(
            factor[kappa], factor.where(factor <= 1.05), color=color, linestyle=dashes, label=text
        )
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
    plots.caption(figure, config)
    return figure
