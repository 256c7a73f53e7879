"""The style of figures, and the pieces that several of them share. Plots read the store only."""

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.table import Table
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike
from xarray import DataArray, Dataset

from experiments.common.config import BaseConfig

Name = TypeVar("Name")

# Okabe & Ito 2008: told apart by all kinds of colour vision.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY, BLANK = "#666666", "#BBBBBB"
CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)

STYLE: dict[Any, Any] = {
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 9,
    "axes.titlesize": 10,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "hatch.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "axes.prop_cycle": cycler(color=CYCLE),
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
}


def looks(names: Iterable[Name]) -> dict[Name, tuple[str, str]]:
    """Return the colour and the marker of each curve; they repeat after seven."""
    return dict(zip(names, cycle(zip((*CYCLE, BLACK), "osD^vPX", strict=True)), strict=False))


def style() -> AbstractContextManager[None]:
    """Return the context in which figures are made and saved."""
    return matplotlib.rc_context(STYLE)


def figure(width: float, height: float) -> Figure:
    """Make an empty figure; width and height in inches, without title and caption."""
    return Figure(figsize=(width, height + 0.9), layout="constrained")


def panels(number: int, width: float, height: float) -> tuple[Figure, Sequence[Axes]]:
    """Make a figure with panels in a row, each of the given size in inches, which share the y
    axis."""
    whole = figure(number * width + 0.8, height)
    return whole, whole.subplots(1, number, squeeze=False, sharey=True)[0]


def edges(centres: ArrayLike) -> np.ndarray:
    """Return the borders of cells around rising coordinates: half way between them."""
    x = np.asarray(centres, float)
    if len(x) == 1:
        return np.array([x[0] - 0.5, x[0] + 0.5])
    middle = (x[1:] + x[:-1]) / 2
    return np.concatenate([[2 * x[0] - middle[0]], middle, [2 * x[-1] - middle[-1]]])


def phase_diagram(axes: Axes, x: ArrayLike, y: ArrayLike, percent: ArrayLike) -> QuadMesh:
    """Draw percentages over a grid, brighter for more; grey where there are none."""
    axes.set_facecolor(BLANK)
    mesh = axes.pcolormesh(edges(x), edges(y), percent, cmap="cividis", vmin=0, vmax=100)
    axes.set_xlim(edges(x)[0], edges(x)[-1])
    axes.set_ylim(edges(y)[0], edges(y)[-1])
    return mesh


# A line that is seen on dark and bright cells alike.
ON_DIAGRAM: dict[str, Any] = {
    "color": "white",
    "path_effects": [withStroke(linewidth=2.4, foreground="#00000099")],
}


def band(
    axes: Axes,
    at: ArrayLike,
    crossing: Dataset,
    shade: str,
    *,
    along: str,
    hatch: str = "",
    **line: Any,
) -> None:
    """Draw a crossing as a line with its interval as a band, up to the border of the panel where an
    end is open.

    Args:
        axes: a panel whose limits are set.
        at: the other coordinate.
        crossing: ``estimate``, ``lower`` and ``upper``.
        shade: colour of the band, and of the line unless its style names another.
        hatch: of the band, in place of a tint.
        along: "x" or "y", in which the crossing was sought.
        line: its style.
    """
    estimate, lower, upper = (crossing[name].values for name in ("estimate", "lower", "upper"))
    far = 1e6  # infinite ends would not be drawn
    look: dict[str, Any] = {"color": shade, "alpha": 0.2}
    if hatch:
        look = {"facecolor": "none", "edgecolor": shade, "hatch": hatch}
    ends = np.clip(lower, -far, far), np.clip(upper, -far, far)
    estimate = np.where(np.isfinite(estimate), estimate, np.nan)
    limits = axes.get_xlim(), axes.get_ylim()
    fill, points = (
        (axes.fill_betweenx, (estimate, at))
        if along == "x"
        else (axes.fill_between, (at, estimate))
    )
    fill(at, *ends, linewidth=0, **look)
    axes.plot(*points, **{"color": shade, **line})
    axes.set(xlim=limits[0], ylim=limits[1])


def rates(axes: Axes, rates: Dataset, color: str, **line: Any) -> None:
    """Draw success rates over one dimension in percent as a line, with their intervals as a
    band."""
    (at,) = rates.rate.dims
    axes.fill_between(
        rates[at], 100 * rates.lower, 100 * rates.upper, color=color, alpha=0.12, linewidth=0
    )
    axes.plot(rates[at], 100 * rates.rate, color=color, **line)
    axes.set_ylim(-3, 103)


def error_bars(axes: Axes, at: ArrayLike, crossing: Dataset, color: str, marker: str) -> None:
    """Draw crossings along y with intervals; hollow and without the open end where the grid does
    not enclose them."""
    estimate, lower, upper = (crossing[name].values for name in ("estimate", "lower", "upper"))
    closed, shown = np.isfinite(lower) & np.isfinite(upper), np.isfinite(estimate)
    for some, face in (closed & shown, color), (~closed & shown, "white"):
        below, above = (
            np.where(np.isfinite(end), np.abs(end - np.where(shown, estimate, 0)), 0)
            for end in (lower, upper)
        )
        ends = np.stack([below, above])[:, some]
        style: dict[str, Any] = {
            "linestyle": "",
            "elinewidth": 0.8,
            "markersize": 3,
            "markeredgewidth": 0.8,
        }
        axes.errorbar(
            np.asarray(at)[some], estimate[some], ends, fmt=marker, color=color, mfc=face, **style
        )


def colorbar(
    figure: Figure | SubFigure, mesh: QuadMesh, panels: Sequence[Axes], label: str
) -> None:
    """Add one colour bar for all panels."""
    bar = figure.colorbar(
        mesh, ax=list(panels), label=label, pad=0.02, aspect=25, ticks=range(0, 101, 25)
    )
    bar.outline.set_visible(False)  # type: ignore[operator]


def subtitle(axes: Axes, text: str) -> None:
    """Add a small line inside the panel, under its title."""
    axes.set_title(f"{axes.get_title()}\n", pad=0)
    axes.text(
        0.5, 1.02, text, transform=axes.transAxes, ha="center", va="bottom", fontsize=8, color=GREY
    )


LETTERS = 154  # of 1 point, that fit into an inch
NO_BREAK = "\u00a0"  # a space at which no line ends: a formula on two lines is not typeset


def wrapped(figure: Figure, text: str, size: float) -> str:
    """Return a text with lines that are no wider than a figure, in a font of ``size`` points."""
    whole = re.sub(r"\$[^$]*\$", lambda formula: formula[0].replace(" ", NO_BREAK), text)
    letters = int(figure.get_figwidth() * LETTERS / size)
    lines = textwrap.wrap(whole, letters, break_on_hyphens=False)
    return "\n".join(lines).replace(NO_BREAK, " ")


def caption(figure: Figure, config: BaseConfig, *remarks: str) -> None:
    """Write the title above, and below in small print the remark of the configuration and those
    given."""
    figure.suptitle(wrapped(figure, config.title, 11), fontsize=11)
    text = " ".join(filter(None, [config.remark, *remarks]))
    if text:
        small = wrapped(figure, text, 7)
        figure.supxlabel(small, fontsize=7, color=GREY, x=0.01, ha="left")


def legend_right(axes: Axes, looks: Sequence[tuple[str, str, Any]] = ()) -> None:
    """Add a legend to the right of the last panel: of its lines, or of these labels, colours and
    line styles."""
    handles = [
        Line2D([], [], label=label, color=color, linestyle=dashes) for label, color, dashes in looks
    ]
    axes.legend(handles=handles or None, loc="center left", bbox_to_anchor=(1, 0.5))


def whole_numbers(axes: Axes) -> None:
    """Put the ticks of the x axis at round integers only."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def power_of_ten(value: float) -> tuple[float, str]:
    """Return the power of 1000 that leaves one to three digits of ``value``, and its text in a
    label."""
    exponent = 3 * math.floor(math.log10(value) / 3)
    return 10.0**exponent, f" ($10^{{{exponent}}}$)" if exponent else ""


def selection(axes: Axes, x: DataArray, rows: int = 24) -> None:
    """Draw the signs of the solutions ``x`` over (k, feature), for the features that are selected
    most often."""
    often = (x != 0).sum("k")
    chosen = [int(i) for i in np.argsort(-often.values, kind="stable")[:rows] if often[int(i)]]
    for sign, color, label in ((1, BLUE, "positive"), (-1, VERMILION, "negative")):
        row, column = np.nonzero(np.sign(x.values[:, chosen].T) == sign)
        axes.scatter(
            x.k.values[column], row, s=9, marker="s", color=color, linewidths=0, label=label
        )
    axes.set_yticks(range(len(chosen)), [str(x.feature.values[i]) for i in chosen], fontsize=6)
    axes.set_ylim(len(chosen) - 0.5, -0.5)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.4)
    axes.set_axisbelow(True)
    axes.legend(title="weight", title_fontsize=7, fontsize=7, loc="lower left", handletextpad=0.1)
    axes.tick_params(axis="y", length=0)
    whole_numbers(axes)


def table(axes: Axes, cells: Sequence[Sequence[str]], size: float, **options: Any) -> Table:
    """Write a table in place of a panel, in the given font size."""
    axes.axis("off")
    made = axes.table([list(row) for row in cells], **options)
    made.auto_set_font_size(False)
    made.set_fontsize(size)
    return made


def save(figure: Figure, folder: Path) -> list[Path]:
    """Write figure.png and figure.pdf, without a date: equal results give equal files."""
    written = []
    for suffix, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
        written.append(folder / f"figure.{suffix}")
        figure.savefig(written[-1], metadata=metadata)
    return written
