"""Yuan et al. 2020, Figures 1 and 2: the duality gap of sparse ridge regression against the penalty
and the noise."""

from typing import Any, Literal, Self

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field, model_validator
from xarray import Dataset

from experiments.common import Positives, Session
from experiments.common.claims import (
    NOT_PRINTED,
    Claim,
    Finding,
    Question,
    Reason,
    Section,
    Setting,
)
from experiments.yuan2020.gaps import (
    ABSOLUTE,
    AT_THE_LIMIT,
    OPTIMAL,
    RIDGE,
    Gaps,
    insensitive,
    monotone,
    paper_gaps,
    plot_gaps,
    run_gaps,
)
from experiments.yuan2020.ridge import FLOOR, LAMBDA
from jaxht.ensembles import gaussian


class Config(Gaps):
    """Figures 1 and 2: rows N(0, I)."""

    ratio: Positives  # values of N/d
    # standard deviations of the noise. More than one: the gap is drawn against them, else against
    # l0.
    sigma: Positives
    # signals: kinds of w*. More than one: a curve for each.
    signals: list[Literal["signs", "gaussian", "decaying"]] = Field(["signs"])

    @model_validator(mode="after")
    def _check_axes(self) -> Self:
        if len(self.sigma) > 1 and len(self.ratio) > 1:
            raise ValueError("sigma or ratio must have one entry only")
        if len(self.signals) > 1 and len(self.sigma) > 1:
            raise ValueError("sigma or signals must have one entry only")
        return self


def run(config: Config, session: Session) -> Dataset:
    """Compute both ends of the gap in every cell."""
    return run_gaps(
        config,
        session,
        {"signal": config.signals, "ratio": config.ratio, "sigma": config.sigma},
        lambda key, rows, d, cell: gaussian(key, rows, d, variance=1.0),
        ratio=lambda cell: cell["ratio"],
        sigma=lambda cell: cell["sigma"],
        problem=("d", "ratio"),
    )


def plot(dataset: Dataset, config: Config) -> Figure:
    """Draw the gap against l0, a curve for each N/d or kind of w*; or against sigma, a curve for
    each l0."""
    if len(config.signals) > 1:
        return plot_gaps(
            dataset.isel(sigma=0, ratio=-1), config, "l0", "signal", (f"{LAMBDA}$", "")
        )
    dataset = dataset.isel(signal=0)
    if len(config.sigma) > 1:
        labels = r"standard deviation of the noise $\sigma$", LAMBDA
        return plot_gaps(dataset.isel(ratio=0), config, "sigma", "l0", labels)
    return plot_gaps(dataset.isel(sigma=0), config, "l0", "ratio", (f"{LAMBDA}$", "$N/d"))


# ---- what the paper says of it, and whether it holds ----


def closes(results: Dataset, config: Any) -> Finding:
    """The share of problems without a gap, by penalty: the least over the curves.

    A curve has reached zero where its median has.
    """
    zero = paper_gaps(results, optimal=True).zero
    share = zero.mean("trial")
    share = share.min([dim for dim in share.dims if dim != "l0"])
    text = "share of problems without a gap (below 1e-6 of P), the least of the curves: "
    text += ", ".join(f"{100 * float(share.sel(l0=l0)):.0f} % at {l0:g}" for l0 in share.l0.values)
    last = zero.isel(l0=-1).mean("trial")
    return Finding.of(text, *(last >= 0.5).values[last.notnull().values])


def which_signals(results: Dataset, config: Any) -> str:
    """The share of problems without a gap, by the kind of w*, at N = d and over all N."""
    rows = []
    for name in results.signal.values:
        share = paper_gaps(results.sel(signal=[name])).zero.mean("trial")
        ends = [
            f"{100 * float(share.sel(l0=l0, ratio=1).squeeze()):.0f} % at {l0:g}"
            for l0 in share.l0.values
        ]
        rows.append(f"{name}: {', '.join(ends)}")
    return (
        f"Problems without a gap (below 1e-6 of P) at N = d, by $\\lambda \\sqrt{{N}}$: {'; '.join(rows)}. The gap is "
        "zero where $\\lambda \\min_i |w_i| \\ge \\max_j |\\nabla_j|$ off the support: the correlations of the "
        "columns of a draw decide more than the values of w*."
    )


def vanishes(results: Dataset, config: Any) -> Finding:
    """At every noise level, the median gap at the largest penalty over that at the smallest."""
    gap = paper_gaps(results, optimal=True)
    middle = np.maximum(gap.gap, FLOOR * gap.upper).median("trial")
    over = middle.isel(l0=-1) / middle.isel(l0=0)
    low, half, high = (float(over.quantile(q)) for q in (0, 0.5, 1))
    text = f"median gap at $\\lambda_0 = {float(middle.l0[-1]):g}$ over that at {float(middle.l0[0]):g}: "
    text += f"{half:.2g}, from {low:.2g} to {high:.2g}; all gaps 0 at the former: "
    closed = gap.zero.isel(l0=-1).mean()
    text += f"{100 * float(closed):.0f} % of the problems"
    return Finding.of(text, *(over < 0.1).values[over.notnull().values])


SIGNAL_UNKNOWN = f"{Reason.NOT_PRINTED}: the values of w* and the noise"
PRIMAL = "at d = 500, P at the end of DIHT, where D is near its maximum, is far from its minimum for N < d"

FIGURE_1 = Section(
    "Figure 1",
    "figure1",
    [
        Claim(
            "for each N, the gap decreases as λ increases",
            monotone("l0", "falls", optimal=True),
            reason=SIGNAL_UNKNOWN,
        ),
        Claim(
            "the gap reaches zero when $\\lambda \\sqrt{N}$ is large enough",
            closes,
            reason=f"{SIGNAL_UNKNOWN}; it does at 50 times the largest penalty printed (other values of w*, below)",
        ),
        Claim(
            "the curves are relatively insensitive to N",
            insensitive("ratio", "N/d"),
            reason=f"{SIGNAL_UNKNOWN}; {PRIMAL}",
        ),
    ],
    ABSOLUTE + OPTIMAL,
    [AT_THE_LIMIT],
    [
        *RIDGE,
        Setting("$\\lambda \\sqrt{N}$", "0.01, 0.1, 1, 10, 20 (§5.1.1)", "{l0}"),
        Setting("N/d", "0.2, 0.5, 1 (§5.1.1)", "{ratio}"),
        Setting("noise σ", NOT_PRINTED, "{sigma}"),
    ],
)


FIGURE_1_SIGNALS = Section(
    "Figure 1, other values of w*",
    "figure1_signals",
    [],
    "Not in the paper, which prints neither the values of w* nor how many draws its curves are of.",
    [
        Question("For which w* does the gap close at $\\lambda \\sqrt{N} = 20$?", which_signals),
        AT_THE_LIMIT,
    ],
)


FIGURE_2 = Section(
    "Figure 2",
    "figure2",
    [
        Claim("for each λ, the gap increases with σ", monotone("sigma", "rises", optimal=True)),
        Claim(
            "for each σ, the gap approaches zero as λ increases",
            vanishes,
            reason=f"{Reason.NOT_PRINTED}: the values of w*",
        ),
    ],
    ABSOLUTE + OPTIMAL,
    [AT_THE_LIMIT],
    [
        *RIDGE,
        Setting("$\\lambda \\sqrt{N}$", "0.01, 0.1, 1 (§5.1.2)", "{l0}"),
        Setting("N/d", "1 (§5.1.2)", "{ratio}"),
        Setting("noise σ", "10⁻³ to 50 (§5.1.2)", "{sigma}"),
    ],
)
