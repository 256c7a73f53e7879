"""Yuan, Li & Zhang 2018, Figure 1: contraction factors of GraHTP and FGraHTP, in closed form."""

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from xarray import Dataset

from experiments.common import BaseConfig, Count, Positive, Session, plots
from experiments.common.claims import NOT_PRINTED, Claim, Finding, Reason, Section, Setting, Verdict
from jaxht import bounds


class Config(BaseConfig):
    """Figure 1."""

    num_points: Count  # condition numbers in each panel
    kappa_max: Positive  # the largest in the left panel, Theorem 2
    kappa_max_relaxed: Positive  # the largest in the right panel, Theorem 5
    # relaxed_ratio: k over kbar in the right panel. None: the least that Theorem 5 (a) allows.
    relaxed_ratio: Positive | None = None
    # relaxed_step: eta of FGraHTP in the right panel, "best" m / M^2 or "half" 1 / (2 M).
    relaxed_step: Literal["best", "half"] = "best"


def run(config: Config, session: Session) -> Dataset:
    """Compute the factors at m = 1, M = kappa, with the step size that is best for each or that the
    paper names."""
    list(session.progress([None]))
    kappa = jnp.linspace(1, config.kappa_max, config.num_points)
    best = 1 / kappa**2  # m / M^2
    strict = bounds.grahtp_factors(kappa, 1.0, best)
    relaxed_kappa = jnp.linspace(1, config.kappa_max_relaxed, config.num_points)
    k = 2 + 16 * relaxed_kappa**2  # over kbar = 1
    if config.relaxed_ratio is not None:
        k = jnp.full_like(relaxed_kappa, config.relaxed_ratio)
    half = 1 / (2 * relaxed_kappa)
    step = half if config.relaxed_step == "half" else 1 / relaxed_kappa**2
    grahtp = bounds.grahtp_relaxed_factors(relaxed_kappa, 1.0, half, k, 1.0).grahtp
    fgrahtp = bounds.grahtp_relaxed_factors(relaxed_kappa, 1.0, step, k, 1.0).fgrahtp
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


# ---- what the paper says of it, and whether it holds ----


def factors_cross(results: Dataset, config: Any) -> Finding:
    """Near kappa = 1, where both are 0, mu_1 is the smaller; then it is the larger for good."""
    larger = (results.mu_1 > results.mu_2).values[1:]
    kappa = results.kappa.values[1:]
    if not larger.any():
        return Finding.of(
            "$\\mu_1 \\le \\mu_2$ throughout",
            bool((results.mu_1 < results.mu_2)[1]),
            False,
        )
    first = int(np.argmax(larger))
    smaller = first > 0 and bool((results.mu_1 < results.mu_2).values[1 : first + 1].all())
    text = (
        f"$\\mu_1 < \\mu_2$ below M/m = {kappa[first]:.3f}"
        if smaller
        else "$\\mu_1$ is not the smaller near 1"
    )
    return Finding.of(
        f"{text}, $\\mu_1 > \\mu_2$ from there on", smaller, bool(larger[first:].all())
    )


def condition_numbers(results: Dataset, config: Any) -> Finding:
    """Up to which condition number each factor is below 1; the grid ends at 1.26."""
    kappa = results.kappa.values
    below = {name: kappa[(results[name] < 1).values] for name in ("mu_1", "mu_2")}
    if not all(values.size for values in below.values()):
        return Finding("a factor is nowhere below 1", Verdict.DOES_NOT_HOLD)
    ends = [float(values.max()) for values in below.values()]
    text, beyond = (
        f"$\\mu_1 < 1$ up to {ends[0]:.3f}, $\\mu_2 < 1$ up to {ends[1]:.3f}",
        ends[1] >= kappa[-1],
    )
    if beyond:
        text += f" at least, the last point, where it is {float(results.mu_2[-1]):.3f}"
    return Finding.of(text, ends[0] < 2 / 3**0.5, not beyond)


SMALL = 1.2  # M/m that is small, at most


def relaxed_factors(results: Dataset, config: Any) -> Finding:
    """The smaller factor near M/m = 1, but for that point itself, and the other one further on."""
    kappa, better = results.kappa_relaxed.values, (results.mubar_2 < results.mubar_1).values
    ends = f"at M/m = {kappa[-1]:g} they are {float(results.mubar_1[-1]):.3f} and {float(results.mubar_2[-1]):.3f}"
    last = better.size - 1 if better.all() else int(np.argmin(better)) - 1
    text = f"$\\bar\\mu_2 < \\bar\\mu_1$ up to M/m = {kappa[last]:.2f}; {ends}"
    if last < 0:
        text = f"$\\bar\\mu_2$ is not the smaller at M/m = 1; {ends}"
    is_small = (kappa > 1) & (kappa <= SMALL)
    is_better = bool(is_small.any() and better[is_small].all())
    stays_worse = not better[last + 1 :].any() and last + 1 < better.size
    return Finding.of(text, is_better, is_better and stays_worse)


STARTS = {"mubar_1": 0.87, "mubar_2": 0.65}  # of the intervals that the text reads off


def relaxed_intervals(results: Dataset, config: Any) -> Finding:
    """Where the factors start at M/m = 1; both reach 1 or come near it."""
    starts = {name: float(results[name].isel(kappa_relaxed=0)) for name in STARTS}
    text = ", ".join(f"{start:.3f}" for start in starts.values())
    near = [abs(starts[name] - printed) < 0.01 for name, printed in STARTS.items()]
    return Finding.of(f"they start at {text}", *near)


FIGURE_1 = Section(
    "Figure 1",
    "figure1",
    [
        Claim(
            "(a) $\\mu_1 < \\mu_2$ where M/m is near 1, $\\mu_1 > \\mu_2$ where it is larger",
            factors_cross,
        ),
        Claim(
            "(a) $\\mu_1 < 1$ needs $M/m < 2\\sqrt{3}/3 = 1.155$, $\\mu_2 < 1$ needs $M/m < 1.26$",
            condition_numbers,
            printed="1.155 and 1.26",
            reason=f"{Reason.SLIP}: $1.62\\,\\rho < 1$ up to $M/m = 1.271$ ([misprints](misprints.md))",
        ),
        Claim("(b) $\\bar\\mu_2$ is better than $\\bar\\mu_1$ where M/m is small", relaxed_factors),
        Claim(
            "(b) $\\bar\\mu_1$ lies in (0.87, 1), $\\bar\\mu_2$ in the much wider (0.65, 1)",
            relaxed_intervals,
            printed="0.87 and 0.65",
        ),
    ],
    "In closed form, by `jaxht.bounds`. The factor $\\mu_2 = 1.62\\,\\rho$ can be below 1 up to M/m = 1.271.",
    settings=[
        Setting("(a) M/m", "1 to 1.26 (after Theorem 2)", "1 to {kappa_max}"),
        Setting("(a) η", NOT_PRINTED, "m/M², with which ρ is least"),
        Setting("(b) M/m", NOT_PRINTED, "1 to {kappa_max_relaxed}"),
        Setting("(b) k", NOT_PRINTED, "{relaxed_ratio} times that of the target"),
        Setting("(b) η", NOT_PRINTED, "1/(2M)"),
    ],
)
