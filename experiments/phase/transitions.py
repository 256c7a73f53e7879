"""The k at which half of the signals are recovered, as Blanchard & Tanner 2012 find it: by
bisection, trials between its ends, and a logistic fit."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_expit
from scipy.stats import chi2

# Rates from which a k counts as recovered, and up to which as lost.
RECOVERED = 0.95
LOST = 0.05
# The least scale of a fit, in units of k: a step from one k to the next is no sharper.
LEAST_SCALE = 0.25

Rates = Mapping[int, float]  # the rate of success of each k that was tried


class Window(NamedTuple):
    """Where the transition of a curve lies.

    Attributes:
        low: the largest k such that it and all below it are recovered; 0 where there is none.
        high: the least k such that it and all above it are lost; k_max + 1 where there is none.
    """

    low: int
    high: int


class Crossing(NamedTuple):
    """The k at which half of the signals are recovered.

    Attributes:
        estimate: a number; -inf where no trial succeeds, and inf where all do.
        lower, upper: of the interval; infinite where the trials do not bound it.
    """

    estimate: float
    lower: float
    upper: float

    def within(self, most: float) -> "Crossing":
        """Return what is known where no k above the most was tried: a crossing beyond it is at
        least the most, and has no upper end."""
        if self.estimate <= most:
            return self
        return Crossing(most, min(self.lower, most), math.inf)


def find_window(rates: Rates, k_max: int) -> Window:
    """Return the ends of the transition, by what was tried."""
    low = 0
    for k in sorted(rates):
        if rates[k] < RECOVERED:
            break
        low = k
    high = k_max + 1
    for k in sorted(rates, reverse=True):
        if rates[k] > LOST:
            break
        high = k
    return Window(low, high)


def bisect(rates: Rates, k_max: int, spacing: int) -> set[int]:
    """Return the k to try next, in the middle of where an end must lie; none where both ends are
    known up to the spacing."""
    window = find_window(rates, k_max)
    first_failure = min((k for k in rates if k > window.low), default=k_max + 1)
    last_success = max((k for k in rates if k < window.high), default=0)
    gaps = {(window.low, first_failure), (last_success, window.high)}
    return {(low + high) // 2 for low, high in gaps if high - low > spacing}


def spread(window: Window, number: int, k_max: int) -> set[int]:
    """Return so many k from one end of the transition to the other, or all that there are."""
    k = np.linspace(max(window.low, 1), min(window.high, k_max), number)
    return set(np.rint(k).astype(int).tolist())


def fit_logistic(
    k: ArrayLike, successes: ArrayLike, trials: ArrayLike, confidence: float = 0.95
) -> Crossing:
    r"""Fit a falling logistic curve by maximum likelihood; its interval is that of the likelihood
    ratio.

    .. math::
        P(k) = \frac{1}{1 + e^{(k - m) / s}}

    m is the crossing, and s >= LEAST_SCALE. The interval has all m whose greatest likelihood, over
    s, is not too small; it needs no slope to be finite, and holds where no k has successes and
    failures.
    """
    k, successes, trials = (np.asarray(values, float) for values in (k, successes, trials))
    if successes.sum() == 0:
        return Crossing(-math.inf, -math.inf, -math.inf)
    if successes.sum() == trials.sum():
        return Crossing(math.inf, math.inf, math.inf)
    least, most = k.min() - 1, k.max() + 1
    scales = math.log(LEAST_SCALE), math.log(most - least)

    def loss_at(m: float) -> float:
        """The least negative log-likelihood of a crossing, over s."""

        def loss(log_scale: float) -> float:
            u = (k - m) / math.exp(log_scale)
            return -float(successes @ log_expit(-u) + (trials - successes) @ log_expit(u))

        return float(minimize_scalar(loss, bounds=scales, method="bounded").fun)

    # The least loss over a grid, and then between its neighbours.
    grid = np.linspace(least, most, 64)
    best = int(np.argmin([loss_at(m) for m in grid]))
    around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    estimate = float(minimize_scalar(loss_at, bounds=around, method="bounded").x)
    bound = loss_at(estimate) + float(chi2.ppf(confidence, 1)) / 2

    def excess(m: float) -> float:
        return loss_at(m) - bound

    lower = float(brentq(excess, least, estimate)) if excess(least) > 0 else -math.inf
    upper = float(brentq(excess, estimate, most)) if excess(most) > 0 else math.inf
    return Crossing(estimate, lower, upper)
