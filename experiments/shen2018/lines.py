"""Shen & Li 2018: the lines that they print, n = SLOPE K ln d + intercept, and lines fitted here in
the same units."""

import numpy as np
from xarray import Dataset

# Of Figure 3, the n with which HT-SVRG recovers a share of the signals.
SLOPE, INTERCEPTS = 1.7, {0.95: 33, 0.99: 40}


def line_of(slope: float, intercept: float, d: int) -> str:
    """Return a line as the paper prints it, in TeX."""
    return f"n={slope:.2g}\\,K\\,\\ln{{{d}}}{intercept:+.2g}"


def with_intervals(line: Dataset, d: int) -> str:
    """Return a fitted line with its intervals, in the units of the paper, in TeX."""
    slope, low, high = (float(line[f"slope{end}"]) / np.log(d) for end in ("", "_lower", "_upper"))
    start, least, most = (float(line[f"intercept{end}"]) for end in ("", "_lower", "_upper"))
    ends = f"_{{{low:.2f}}}^{{{high:.2f}}}", f"_{{{least:.0f}}}^{{{most:.0f}}}"
    return f"n={slope:.2f}{ends[0]}\\,K\\,\\ln{{{d}}}{start:+.0f}{ends[1]}"


def paper_line(K: np.ndarray, d: int, level: float = 0.95) -> np.ndarray:
    """Return the n with which HT-SVRG recovers a share of the signals: the regression line printed
    in Figure 3."""
    return SLOPE * K * np.log(d) + INTERCEPTS[level]
