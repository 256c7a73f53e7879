"""Axiotis & Sviridenko 2020, Table 1: what sparsity beyond that of the signal buys in the RIP
condition of OMPR."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from xarray import Dataset

from experiments.common import BaseConfig, Count, Positives, Session, double_precision, plots
from experiments.common.claims import Claim, Finding, Section, Setting
from jaxht import bounds

# By s/s*: their Table 1; and the conditions on delta_{s+s*} that they quote for other methods.
PRINTED = {1: 0.33, 2: 0.47, 3: 0.55, 30: 0.83}
OTHERS = {
    "subspace pursuit": (2, 0.35),
    "CoSaMP": (3, 0.48),
    "OMP": (30, 0.33),
    r"$\ell_1$": (1, 0.62),
}


class Config(BaseConfig):
    """Table 1."""

    ratio: Positives  # values of s/s* in the table
    num_points: Count  # of the curve, from the first of them to the last


def run(config: Config, session: Session) -> Dataset:
    """Compute the bounds of the table and of the curve."""
    (curve,) = session.progress(
        [np.geomspace(config.ratio[0], config.ratio[-1], config.num_points)]
    )
    with double_precision():
        bound, along = (
            np.asarray(bounds.ompr_rip(np.asarray(ratio), 1.0)) for ratio in (config.ratio, curve)
        )
    coords = {"ratio": config.ratio, "curve_ratio": curve}
    return Dataset({"bound": ("ratio", bound), "curve": ("curve_ratio", along)}, coords)


def plot(dataset: Dataset, config: Config) -> Figure:
    """Draw the curve with the printed points, and the conditions of other methods."""
    figure, (axes,) = plots.panels(1, width=4.2, height=2.8)
    axes.plot(dataset.curve_ratio, dataset.curve, color=plots.BLUE, label="OMPR")
    axes.plot(
        list(PRINTED),
        list(PRINTED.values()),
        "o",
        color=plots.BLUE,
        mfc="white",
        label="OMPR, printed",
    )
    for (name, point), color, marker in zip(OTHERS.items(), plots.CYCLE[1:], "sD^v", strict=False):
        axes.plot(*point, color=color, marker=marker, linestyle="", label=name)
    axes.set_xscale("log")
    axes.set_xticks(config.ratio, [f"{ratio:g}" for ratio in config.ratio])
    axes.minorticks_off()
    axes.set_xlabel("$s / s^*$")
    axes.set_ylabel(r"bound on $\delta_{s+s^*}$")
    plots.legend_right(axes)
    plots.caption(figure, config)
    return figure


# ---- what the paper says of it, and whether it holds ----


def printed_bounds(results: Dataset, config: Any) -> Finding:
    bounds = {ratio: float(results.bound.sel(ratio=ratio)) for ratio in PRINTED}
    agree = [
        np.floor(100 * bound + 1e-4) == round(100 * PRINTED[ratio])
        for ratio, bound in bounds.items()
    ]
    text = ", ".join(f"{bound:.4f}" for bound in bounds.values())
    if all(agree):
        text += ": all four right, truncated to two digits, as an upper bound has to be"
    return Finding.of(text, *agree)


def truncated(bound: float) -> float:
    """A bound with the two digits of those that the paper quotes, so that 1/3 is no more than
    0.33."""
    return float(np.floor(100 * bound + 1e-4)) / 100


def surpasses(*names: str) -> Claim:
    """The bound of OMPR against those of other methods at the same level."""

    def judge(results: Dataset, config: Any) -> Finding:
        bounds = {
            name: (float(results.bound.sel(ratio=OTHERS[name][0])), OTHERS[name][1])
            for name in names
        }
        text = ", ".join(
            f"{ours:.3f} against {theirs} of {name}" for name, (ours, theirs) in bounds.items()
        )
        return Finding.of(text, *(truncated(ours) > theirs for ours, theirs in bounds.values()))

    return Claim(
        "the bounds surpass those of subspace pursuit, CoSaMP and OMP",
        judge,
        printed="0.35, 0.48, 0.33",
    )


def stricter(results: Dataset, config: Any) -> Finding:
    ours, theirs = float(results.bound.sel(ratio=1)), OTHERS[r"$\ell_1$"][1]
    return Finding.of(f"{ours:.4f} against {theirs}", truncated(ours) < theirs)


TABLE_1 = Section(
    "Table 1",
    "table1",
    [
        Claim(
            "the conditions on $\\delta_{s+s^*}$ that Theorem 4.2 implies at $s/s^*$ = 1, 2, 3, 30",
            printed_bounds,
            printed="0.33, 0.47, 0.55, 0.83",
        ),
        surpasses("subspace pursuit", "CoSaMP", "OMP"),
        Claim("at $s = s^*$ it is stricter than that of LASSO", stricter, printed="1/3 and 0.62"),
        Claim(
            "at $s = s^*$ it matches the best bound known for a greedy algorithm",
            "a statement about the literature of 2011 to 2020",
            printed="1/3",
        ),
    ],
    settings=[Setting("$s/s^*$", "1, 2, 3, 30 (Table 1)", "{ratio}")],
)
