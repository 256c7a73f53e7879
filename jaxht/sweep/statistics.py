"""Statistics of a sweep: success rates, where they cross a level, and a line through the
crossings."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jaxht.planted.metrics import wilson_interval

if TYPE_CHECKING:
    import xarray

__all__ = ["fit_line", "success_rate", "transition"]

LEVELS = (0.5, 0.9, 0.95, 0.99)

Floats = NDArray[np.float64]


def success_rate(
    dataset: "xarray.Dataset", name: str = "success", confidence: float = 0.95
) -> "xarray.Dataset":
    """The fraction of trials that succeeded in each cell, with its Wilson interval.

    Args:
        dataset: with a boolean variable ``name`` over ``trial`` and other dimensions. Two optional
            variables exclude trials: ``num_trials``, how many trials of a cell have run, or else
            ``done``, which is False in cells that have not run; and ``timed_out_after``, which is
            not NaN in trials that were ended by a time limit. Trials that have not run or were
            ended by a limit do not count.
        name: of the variable.
        confidence: of the interval, in (0, 1).

    Returns:
        ``rate``, ``lower`` and ``upper`` in [0, 1], and the integers ``successes`` and ``trials``,
        over the other dimensions. In cells without trials that count, the first three are NaN and
        the others 0.

    Raises:
        ValueError: for a confidence outside (0, 1), and a dimension with the name of a result.

    Cost: a pass over the trials, and about a millisecond for each pair (successes, trials) that
    occurs.

    Source: :func:`jaxht.metrics.wilson_interval`.

    Example:
        >>> import numpy as np
        >>> import xarray
        >>> from jaxht import sweep
        >>> success = np.arange(10) < np.array([[0], [5], [10]])
        >>> rates = sweep.success_rate(xarray.Dataset({"success": (("n", "trial"), success)}))
        >>> rates.rate.values.tolist(), rates.lower.values.round(2).tolist()
        ([0.0, 0.5, 1.0], [0.0, 0.24, 0.72])
    """
    success = dataset[name]
    _check_dims(success.dims, {"rate", "lower", "upper", "successes", "trials"})
    counted = dataset.get("done", True)
    if "num_trials" in dataset:
        counted = dataset["trial"] < dataset["num_trials"]
    if "timed_out_after" in dataset:
        counted = counted & dataset["timed_out_after"].isnull()

    def count(chosen):
        number = (chosen & counted).sum("trial")
        return number.transpose(*success.dims, missing_dims="ignore")

    successes = count(success)
    trials = count(success | True)
    ran = trials > 0
    lower, upper = wilson_interval(successes.values, trials.values, confidence)
    rate = successes / trials.where(ran)
    return rate.to_dataset(name="rate").assign(
        lower=trials.copy(data=lower).where(ran),
        upper=trials.copy(data=upper).where(ran),
        successes=successes,
        trials=trials,
    )


def _check_dims(dims: Sequence[Hashable], names: set[str]) -> None:
    if taken := names.intersection(dims):
        raise ValueError(
            f"rename the dimension {min(taken)!r}: the result has something else of that name"
        )


def transition(
    rates: "xarray.Dataset",
    levels: Sequence[float] = LEVELS,
    *,
    along: str = "n",
    falling: bool = False,
    confidence: float = 0.95,
    num_draws: int = 1000,
    seed: int = 0,
) -> "xarray.Dataset":
    """Where the probability of success crosses some levels, with intervals.

    The probability is assumed to rise in ``along``, and nothing else. Its estimate is the maximum
    likelihood fit of a rising function to the counts: isotonic regression, weighted by the numbers
    of trials. The fit crosses a level between two neighbouring points of the grid; ``estimate``
    interpolates between them.

    For the interval, the probability at each point is sampled from its posterior, Beta(s + 1/2, t -
    s + 1/2) for s successes in t trials (Jeffreys), and fitted again. ``lower`` is a quantile of
    the left one of the two points, ``upper`` one of the right one, over all samples and the
    estimate: the interval is never narrower than the grid.

    It covers the noise of finitely many trials that are independent given their cell, for one
    crossing, not for all at once. It does not cover what all trials of a cell share, such as one A:
    other designs would move the crossing by more. And it needs t (1 - level) and t level of at
    least about 1: with 25 trials a point, simulated intervals at level 0.99 contained the truth in
    7 cases of 10, and with 200 in 97 of 100.

    Args:
        rates: ``successes`` and ``trials`` over ``along`` and other dimensions, from
            :func:`success_rate`. Points without trials do not count.
        levels: probabilities in (0, 1).
        along: dimension with numbers as coordinates.
        falling: the probability falls in ``along`` instead.
        confidence: of each interval, in (0, 1).
        num_draws: number of posterior samples.
        seed: of the samples.

    Returns:
        ``estimate``, ``lower`` and ``upper`` over ``level`` and the other dimensions, in units of
        ``along``. Infinite where the crossing lies outside of the points: -inf before the first,
        inf behind the last. NaN without points.

    Raises:
        ValueError: for a level or a confidence outside (0, 1), and a dimension with the name
            "level" or that of a result.

    Cost: O(levels x draws x points) time, and as much memory as the crossings of all draws.

    Source: Shen & Li 2018, §5.1, plots such crossings; the interval is our own.

    Example:
        >>> import xarray
        >>> from jaxht import sweep
        >>> counts = {"successes": ("n", [0, 10, 90, 100]), "trials": ("n", [100] * 4)}
        >>> rates = xarray.Dataset(counts, {"n": [10, 20, 30, 40]})
        >>> crossing = sweep.transition(rates, [0.5])
        >>> float(crossing.lower[0]), float(crossing.estimate[0]), float(crossing.upper[0])
        (20.0, 25.0, 30.0)
    """
    curves = _Curves(rates, levels, along, falling)
    brackets = curves.sample_brackets(num_draws, seed)
    crossings = curves.find_crossings(brackets, confidence)
    return curves.to_dataset(**crossings._asdict())


def fit_line(
    rates: "xarray.Dataset",
    levels: Sequence[float] = LEVELS,
    *,
    over: str = "K",
    along: str = "n",
    confidence: float = 0.95,
    num_draws: int = 1000,
    seed: int = 0,
) -> "xarray.Dataset":
    """Fit ``along = slope * over + intercept`` to the crossings of :func:`transition` by least
    squares.

    Each posterior sample of :func:`transition` gives a line of its own, with every crossing uniform
    between its two points; the intervals are quantiles of the slopes and intercepts of these lines.
    They account for the same sources of error as the intervals of the crossings, and leave out the
    same. Whether the crossings lie on a line at all is not tested.

    Args:
        over: dimension with numbers as coordinates, the abscissa.
        rates, levels, along, confidence, num_draws, seed: as in :func:`transition`. A crossing
            takes part if its interval lies within the points; its few samples outside are put at
            the first or last point.

    Returns:
        ``slope`` and ``intercept`` over ``level`` and the remaining dimensions, each also as
        ``..._lower`` and ``..._upper``, and ``num_points``, the number of crossings. NaN with fewer
        than two.

    Raises:
        ValueError: as :func:`transition`.

    Cost: that of :func:`transition`, and a line for each sample.

    Source: Shen & Li 2018, §5.1, fits lines to the crossings; the intervals are our own.

    Example:
        >>> import numpy as np
        >>> import xarray
        >>> from jaxht import sweep
        >>> n, K = np.arange(5, 100, 10), np.array([1, 2, 3])
        >>> successes = np.where(n > 20 * K[:, None] + 10, 1000, 0)
        >>> trials = np.full_like(successes, 1000)
        >>> counts = {"successes": (("K", "n"), successes), "trials": (("K", "n"), trials)}
        >>> line = sweep.fit_line(xarray.Dataset(counts, {"n": n, "K": K}), [0.5])
        >>> line.slope.values.round(6).tolist(), line.intercept.values.round(6).tolist()
        ([20.0], [10.0])
    """
    rates = rates.transpose(..., over, along)
    curves = _Curves(rates, levels, along)
    brackets = curves.sample_brackets(num_draws, seed)
    crossings = curves.find_crossings(brackets, confidence)
    x = rates[over].values.astype(float)
    shape = (*curves.shape[:-1], len(x))
    has_lower = np.isfinite(crossings.lower)
    has_upper = np.isfinite(crossings.upper)
    is_inside = has_lower & has_upper
    taken = is_inside.reshape(len(levels), *shape)
    estimate = crossings.estimate.reshape(taken.shape)
    fit = _fit_lines(x, estimate, taken)
    left, right = np.clip(brackets, curves.least, curves.greatest)
    samples = np.random.default_rng(seed).uniform(left, right)
    samples = samples.reshape(len(levels), num_draws, *shape)
    lines = _fit_lines(x, samples, taken[:, None])
    tail = (1 - confidence) / 2
    quantiles = [tail, 1 - tail]
    lower, upper = np.quantile(lines, quantiles, axis=2)
    values = {"num_points": taken.sum(-1)}
    for i, name in enumerate(["slope", "intercept"]):
        values[name] = fit[i]
        values[f"{name}_lower"] = lower[i]
        values[f"{name}_upper"] = upper[i]
    return curves.to_dataset(over, **values)


class _Crossings(NamedTuple):
    """The places where curves cross the levels: (levels, rows)."""

    estimate: Floats
    lower: Floats
    upper: Floats


# The posterior is sampled in blocks of about this many numbers.
NUMBERS_IN_BLOCK = 1_000_000


class _Curves:
    """Counts along one dimension, as rows of points from left to right, and where their fits cross
    the levels.

    Where the rising fit reaches a level is found without the fit: with excess_i = weight_i (p_i -
    level), fit_i >= level from i = split on, where the sum of the excesses over i < split is least.
    The slopes of the convex minorant of these sums are the fit less the level.
    """

    def __init__(
        self, rates: "xarray.Dataset", levels: Sequence[float], along: str, falling: bool = False
    ) -> None:
        self._levels = np.asarray(levels, np.float64)
        is_level = (self._levels > 0) & (self._levels < 1)
        if not np.all(is_level):
            raise ValueError(f"levels must lie strictly between 0 and 1; got {list(levels)}")
        counts = ["successes", "trials"]
        rates = rates[counts].sortby(along, ascending=not falling)
        rates = rates.transpose(..., along)
        first = rates.isel({along: 0}, drop=True)
        self._template = first.drop_vars(counts)
        self._dims = rates.trials.dims[:-1]
        self.shape = rates.trials.shape[:-1]
        # What falls in x rises in -x.
        self._sign = -1 if falling else 1
        size = rates.sizes[along]
        points = self._sign * rates[along].values.astype(float)
        self._successes = rates.successes.values.reshape(-1, size)
        self._trials = rates.trials.values.reshape(-1, size)
        self._ran = self._trials > 0
        # The points on both sides of each split, 0 to size. One without trials is on neither.
        self._left = self._last_before(points)
        self._right = -self._last_before(-points, backwards=True)
        has_points = self._ran.any(axis=1)
        least = self._right[:, 0]
        self.least = np.where(has_points, least, 0)
        greatest = self._left[:, -1]
        self.greatest = np.where(has_points, greatest, 0)

    def _last_before(self, points: Floats, backwards: bool = False) -> Floats:
        """(rows, splits): the largest of the points with trials before each split, or behind it;
        -infinity for none."""
        taken = np.where(self._ran, points, -np.inf)
        taken = taken[:, ::-1] if backwards else taken
        taken = np.pad(taken, ((0, 0), (1, 0)), constant_values=-np.inf)
        largest = np.maximum.accumulate(taken, axis=1)
        return largest[:, ::-1] if backwards else largest

    def sample_brackets(self, number: int, seed: int) -> tuple[Floats, Floats]:
        """The points (levels, number, rows) on both sides of the crossings of posterior samples."""
        rng = np.random.default_rng(seed)
        successes = self._successes[self._ran] + 0.5
        failures = self._trials - self._successes
        failures = failures[self._ran] + 0.5
        shape = (len(self._levels), number, len(self._trials))
        left = np.empty(shape)
        right = np.empty(shape)
        block = max(1, NUMBERS_IN_BLOCK // self._trials.size)
        for begin in range(0, number, block):
            end = min(begin + block, number)
            size = end - begin
            p = np.zeros((size, *self._trials.shape))
            samples = rng.beta(successes, failures, (size, len(successes)))
            p[:, self._ran] = samples
            for i, level in enumerate(self._levels):
                before, behind = self._find_sides(self._sum_excess(p, level))
                left[i, begin:end] = before
                right[i, begin:end] = behind
        return left, right

    def find_crossings(self, brackets: tuple[Floats, Floats], confidence: float) -> _Crossings:
        """The crossings of the fits, with quantiles of the samples as intervals."""
        if not 0 < confidence < 1:
            raise ValueError(f"confidence must lie strictly between 0 and 1; got {confidence}")
        p = self._successes / np.maximum(self._trials, 1)
        excesses = [self._sum_excess(p, level) for level in self._levels]
        sums = np.stack(excesses)
        left, right = self._find_sides(sums)
        trials = np.pad(self._trials, ((0, 0), (1, 0)))
        weights = np.cumsum(trials, axis=-1)
        weights = np.broadcast_to(weights, sums.shape)
        split = np.argmin(sums, axis=-1, keepdims=True)
        weight = weights - np.take_along_axis(weights, split, -1)
        rise = sums - np.take_along_axis(sums, split, -1)
        slope = rise / np.where(weight == 0, 1, weight)
        behind = np.where(weight > 0, slope, np.inf)
        above = behind.min(axis=-1)
        before = np.where(weight < 0, slope, -np.inf)
        below = -before.max(axis=-1)
        with np.errstate(invalid="ignore"):  # where an end is infinite
            share = below / (below + above)
            estimate = left + share * (right - left)
        estimate = np.where(np.isinf(right), right, estimate)
        estimate = np.where(np.isinf(left), left, estimate)
        # These methods choose one of the samples: between infinite ones nothing can be
        # interpolated.
        lefts, rights = brackets
        lower = np.quantile(lefts, (1 - confidence) / 2, axis=1, method="lower")
        upper = np.quantile(rights, (1 + confidence) / 2, axis=1, method="higher")
        lower = np.minimum(left, lower)
        upper = np.maximum(right, upper)
        if self._sign < 0:
            lower, upper = upper, lower
        has_points = self._ran.any(axis=1)

        def in_units_of_points(end: Floats) -> Floats:
            return np.where(has_points, self._sign * end, np.nan)

        return _Crossings(
            estimate=in_units_of_points(estimate),
            lower=in_units_of_points(lower),
            upper=in_units_of_points(upper),
        )

    def to_dataset(self, without: str | None = None, **values: Any) -> "xarray.Dataset":
        """Values (levels, ...) by name, over the level and the dimensions of the rows."""
        template = self._template
        if without is not None:
            template = template.isel({without: 0}, drop=True)
        dims = [dim for dim in self._dims if dim != without]
        _check_dims(dims, {"level", *values})
        sizes = [template.sizes[dim] for dim in dims]
        shape = [len(self._levels), *sizes]
        all_dims = ("level", *dims)
        dataset = template.assign_coords(level=self._levels)
        for name, value in values.items():
            dataset[name] = (all_dims, value.reshape(shape))
        return dataset

    def _sum_excess(self, p: Floats, level: float) -> Floats:
        """(..., rows, splits): the sum of the excesses before each split."""
        *rows, size = p.shape
        sums = np.zeros((*rows, size + 1))
        excess = self._trials * (p - level)
        np.cumsum(excess, axis=-1, out=sums[..., 1:])
        return sums

    def _find_sides(self, sums: Floats) -> tuple[Floats, Floats]:
        """(..., rows): the points left and right of the best split."""
        split = np.argmin(sums, axis=-1)
        rows = np.arange(len(self._trials))
        left = self._left[rows, split]
        right = self._right[rows, split]
        return left, right


def _fit_lines(x: Floats, y: Floats, taken: NDArray[np.bool_]) -> Floats:
    """Slopes and intercepts (2, ...) of the lines through the points taken; NaN below two."""
    count = taken.sum(-1)

    def mean(values):
        total = np.where(taken, values, 0).sum(-1)
        return total / np.maximum(count, 1)

    y = np.where(taken, y, 0)
    centred = x - mean(x)[..., None]
    has_line = count > 1
    variance = np.where(has_line, mean(centred**2), 1)
    slope = mean(centred * y) / variance
    intercept = mean(y) - slope * mean(x)
    lines = np.stack([slope, intercept])
    return np.where(has_line, lines, np.nan)
