"""Axiotis & Sviridenko 2020, Table 1: what sparsity beyond that of the signal buys in the RIP
condition of OMPR."""

import numpy as np
from matplotlib.figure import Figure
from xarray import Dataset

from experiments.common import BaseConfig, Count, Positives, Session, double_precision, plots
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
