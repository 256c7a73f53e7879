"""Shen & Li 2018: the lines that they print, n = SLOPE K ln d + intercept, and lines fitted here in
the same units."""

import numpy as np
from xarray import Dataset

from experiments.common.claims import NOT_PRINTED, Setting

# Of Figure 3, the n with which HT-SVRG recovers a share of the signals.
SLOPE, INTERCEPTS = 1.7, {0.95: 33, 0.99: 40}

# What Figures 1 to 3 share.
RECOVERY = [
    Setting("dimension d", "256 (§5.1)", "{d}"),
    Setting("matrix", "Gaussian of variance 1/n, one for all signals (§5.1)", "the same"),
    Setting("values of the signals", NOT_PRINTED, "N(0, 1)"),
    Setting("recovered", "error below 10⁻³, without noise (§5.1)", "the same"),
]
SIGNALS = Setting("signals a cell", "1000 (§5.1)", "{num_signals}")
PGD = [
    Setting("IHT; PGD", "k = K, η = 1; k = 9K, η = 2/σ_max² (§5.1)", "the same"),
    Setting("steps of IHT and PGD", "70,000 (§5.1)", "{max_steps}, or until f is {target}"),
]
SVRG = [
    Setting("HT-SVRG", "k = 9K, m = 3n, η = 2/σ_max² (§5.1)", "the same"),
    Setting(
        "full gradients of HT-SVRG, 7 a stage",
        "70,000 (§5.1)",
        "{max_steps}, or until f is {target}",
    ),
]


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
