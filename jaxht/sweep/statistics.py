"""What a sweep shows: success rates with their intervals, and where the transition lies."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jaxht.metrics import wilson_interval

if TYPE_CHECKING:
    import xarray


def success_rate(dataset: "xarray.Dataset", name: str = "success", confidence: float = 0.95) -> "xarray.Dataset":
    """The fraction of trials that succeeded in each cell, with its Wilson interval.

    Args:
        dataset: with a boolean variable ``name`` over ``trial`` and other dimensions.
        name: of the variable.
        confidence: of the interval.

    Returns:
        ``rate``, ``lower``, ``upper``, ``successes`` and ``trials`` over the other dimensions.
    """
    success = dataset[name]
    successes, trials = success.sum("trial"), success.sizes["trial"]
    lower, upper = (successes.copy(data=end) for end in wilson_interval(successes.values, trials, confidence))
    rate = (successes / trials).to_dataset(name="rate")
    return rate.assign(lower=lower, upper=upper, successes=successes, trials=trials)


def transition(rate: "xarray.DataArray", level: float, along: str = "n") -> "xarray.DataArray":
    """Where a success rate first reaches a level, by interpolation of its monotone fit.

    Args:
        rate: in [0, 1], over ``along`` and other dimensions; every point of equally many trials.
        level: in (0, 1).
        along: the dimension, with rising coordinates, in which the rate rises.

    Returns:
        The coordinate at which the fit crosses the level; NaN where it lies outside the grid.
    """
    rate = rate.transpose(..., along)
    points = rate[along].values.astype(float)

    def crossing(rates: NDArray[np.float64]) -> float:
        fit = monotone_fit(rates)
        i = int(np.searchsorted(fit, level))
        if i in (0, len(fit)):
            return float("nan")
        return float(points[i - 1] + (level - fit[i - 1]) / (fit[i] - fit[i - 1]) * (points[i] - points[i - 1]))

    return rate.isel({along: 0}, drop=True).copy(data=np.apply_along_axis(crossing, -1, rate.values))


def monotone_fit(rates: ArrayLike) -> NDArray[np.float64]:
    """The rising sequence nearest to ``rates``: isotonic regression, the maximum likelihood fit of success rates.

    fit_i = max_{j <= i} min_{l >= i} mean(rates_j, ..., rates_l)
    """
    rates = np.asarray(rates, np.float64)
    first, last = np.ogrid[: len(rates), : len(rates)]
    sums = np.concatenate([[0.0], np.cumsum(rates)])
    means = np.where(last >= first, (sums[last + 1] - sums[first]) / np.maximum(last + 1 - first, 1), np.inf)
    least = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
    return np.where(first <= last, least, -np.inf).max(axis=0)
