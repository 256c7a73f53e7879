"""Rates, crossings and lines: against scikit-learn, against exact cases, and the intervals against
simulated counts."""

import numpy as np
import pytest
import xarray
from scipy.stats import binom
from sklearn.isotonic import IsotonicRegression

from jaxht import metrics, sweep

LEVELS = (0.5, 0.9, 0.95)


def counts(successes, trials, **coords):
    """What success_rate returns, as far as the others read it."""
    successes, trials = np.broadcast_arrays(successes, trials)
    return xarray.Dataset(
        {"successes": (tuple(coords), successes), "trials": (tuple(coords), trials)}, coords=coords
    )


def test_success_rate():
    success = np.random.default_rng(0).random((2, 3, 7)) < 0.6
    dataset = xarray.Dataset(
        {"success": (("K", "n", "trial"), success)}, coords={"K": [1, 2], "n": [3, 4, 5]}
    )
    rates = sweep.success_rate(dataset)
    np.testing.assert_array_equal(rates.successes, success.sum(-1))
    np.testing.assert_allclose(rates.rate, success.mean(-1))
    lower, upper = metrics.wilson_interval(success.sum(-1), 7)
    np.testing.assert_array_equal(rates.lower, lower)
    np.testing.assert_array_equal(rates.upper, upper)
    assert rates.rate.dims == ("K", "n") and (rates.trials == 7).all()

    # Where nothing has run, the entries are whatever fills the array.
    done = np.array([[True, False, True], [False, True, True]])
    partly = sweep.success_rate(dataset.assign(done=(("K", "n"), done)))
    xarray.testing.assert_identical(
        partly[["rate", "lower", "upper"]], rates[["rate", "lower", "upper"]].where(done)
    )
    np.testing.assert_array_equal(partly.trials, 7 * done)
    np.testing.assert_array_equal(partly.successes, rates.successes * done)
    assert partly.rate.dims == partly.trials.dims == ("K", "n")

    # Cells with more or fewer trials, of which one was ended, in any order and selection of them.
    number, ended = np.array([[7, 0, 3], [1, 7, 5]]), np.full(success.shape, np.nan)
    ended[0, 2, 1], ended[1, 2, 6] = 0.3, 0.3
    over = {"num_trials": (("K", "n"), number), "timed_out_after": (("K", "n", "trial"), ended)}
    grown = dataset.assign(done=(("K", "n"), number == 7), **over).assign_coords(trial=range(7))
    for trials in range(7), [5, 0, 2], [1], [6, 3]:
        counted = [
            [[t < number[i, j] and np.isnan(ended[i, j, t]) for t in trials] for j in range(3)]
            for i in range(2)
        ]
        rates = sweep.success_rate(grown.sel(trial=list(trials)))
        np.testing.assert_array_equal(rates.trials, np.sum(counted, -1))
        np.testing.assert_array_equal(
            rates.successes, np.sum(success[..., list(trials)] & counted, -1)
        )
        np.testing.assert_array_equal(rates.rate.isnull(), rates.trials == 0)


@pytest.mark.parametrize("falling", [False, True])
def test_the_estimate_interpolates_the_isotonic_regression(falling):
    """Points without trials do not count, and neither the order of points nor that of dimensions
    matters."""
    rng = np.random.default_rng(1)
    n = rng.permutation(np.cumsum(rng.integers(1, 9, 25)))
    slope = -0.15 if falling else 0.15
    chance = 1 / (1 + np.exp(-slope * (n[:, None] - [40, 60, 80, 300, -200])))
    trials = rng.choice([0, 1, 3, 10, 40], chance.shape)
    rates = counts(rng.binomial(trials, chance), trials, n=n, K=range(5))
    found = sweep.transition(rates, LEVELS, falling=falling, num_draws=20)
    assert found.estimate.dims == ("level", "K")
    for K in range(5):
        at, ran = rates.sel(K=K).sortby("n"), rates.sel(K=K).sortby("n").trials.values > 0
        x, t, s = (np.asarray(values)[ran] for values in (at.n, at.trials, at.successes))
        fit = IsotonicRegression(increasing=not falling).fit_transform(x, s / t, sample_weight=t)
        for level in LEVELS:
            below, above = x[fit < level - 1e-12], x[fit >= level - 1e-12]
            left, right = (above, below) if falling else (below, above)
            expected = np.inf if len(left) else -np.inf
            if len(left) and len(right):
                ends = left[-1], right[0]
                a, b = (fit[x == end][0] for end in ends)
                expected = ends[0] + (level - a) / (b - a) * (ends[1] - ends[0])
            got = found.sel(K=K, level=level)
            np.testing.assert_allclose(got.estimate, expected)
            assert got.lower <= got.estimate <= got.upper
    shuffled = sweep.transition(
        rates.transpose("K", "n").sortby("n"), LEVELS, falling=falling, num_draws=20
    )
    np.testing.assert_allclose(shuffled.estimate, found.estimate)


def test_a_step_is_known_up_to_its_gap():
    n = np.arange(10, 101, 10)
    for trials in 25, 1000:
        found = sweep.transition(counts(trials * (n > 55), trials, n=n), (0.5, 0.9))
        np.testing.assert_allclose(found.lower, 50)
        np.testing.assert_allclose(found.upper, 60)
        np.testing.assert_allclose(found.estimate, [55, 59])
    rates = counts(1000 * (n > 55), np.where(n == 60, 0, 1000), n=n)
    found = sweep.transition(rates.assign(successes=rates.successes * (rates.trials > 0)), (0.5,))
    assert [found[end].item() for end in ("lower", "estimate", "upper")] == [50, 60, 70]


def test_crossings_outside_of_the_points_are_infinite():
    n = np.array([10, 20, 30])
    never, always, once, nothing = [0, 1, 2], [100, 100, 100], [0, 0, 100], [0, 0, 0]
    trials = np.array([[100] * 3, [100] * 3, [100] * 3, [0] * 3])
    found = sweep.transition(
        counts([never, always, once, nothing], trials, K=range(4), n=n), (0.5, 0.999)
    )
    np.testing.assert_array_equal(found.estimate.sel(level=0.5), [np.inf, -np.inf, 25, np.nan])
    np.testing.assert_array_equal(found.lower.sel(level=0.5), [30, -np.inf, 20, np.nan])
    np.testing.assert_array_equal(found.upper.sel(level=0.5), [np.inf, 10, 30, np.nan])
    # A hundred successes of a hundred do not tell 99.9 % from 100 %.
    assert np.isposinf(found.upper.sel(level=0.999, K=2))


def test_intervals_cover_the_truth():
    """In 95 % of simulated experiments at least, but for what a binomial count may miss in one of a
    million."""
    n = np.arange(20, 141, 4)
    middle, width, repeats = 80.0, 6.0, 400
    chance = 1 / (1 + np.exp(-(n - middle) / width))
    for trials in 25, 200:
        rng = np.random.default_rng(trials)
        rates = counts(
            rng.binomial(trials, chance, (repeats, len(n))), trials, repeat=range(repeats), n=n
        )
        found = sweep.transition(rates, LEVELS, num_draws=200)
        for level in LEVELS:
            truth = middle + width * np.log(level / (1 - level))
            at = found.sel(level=level)
            covered = int(((at.lower <= truth) & (truth <= at.upper)).sum())
            assert covered >= binom.ppf(1e-6, repeats, 0.95), (trials, level, covered)
            # Nor is it wide for nothing: of the order of the gap and the noise.
            assert float((at.upper - at.lower).median()) <= 8 + 50 * width / trials**0.5


def test_lines():
    """Exact crossings give the line exactly; in simulated experiments the intervals hold it."""
    n, K = np.arange(1, 200), np.arange(2, 30, 3)
    truth, width, trials, repeats = (5.5, 20.0), 5.0, 50, 100
    step = counts(np.where(n > 5 * K[:, None] + 20, 10**6, 0), 10**6, K=K, n=n)
    line = sweep.fit_line(step, (0.5,), num_draws=50)
    np.testing.assert_allclose([line.slope, line.intercept], [[5], [20.5]])
    assert line.num_points == len(K) and line.slope_lower < 5 < line.slope_upper

    chance = 1 / (1 + np.exp(-(n - truth[0] * K[:, None] - truth[1]) / width))
    rng = np.random.default_rng(3)
    drawn = rng.binomial(trials, chance, (repeats, *chance.shape))
    lines = sweep.fit_line(
        counts(drawn, trials, repeat=range(repeats), K=K, n=n), (0.5, 0.9), num_draws=100
    )
    assert lines.slope.dims == ("level", "repeat")
    for level in 0.5, 0.9:
        expected = truth[0], truth[1] + width * np.log(level / (1 - level))
        for name, value in zip(("slope", "intercept"), expected, strict=True):
            at = lines.sel(level=level)
            covered = int(((at[f"{name}_lower"] <= value) & (value <= at[f"{name}_upper"])).sum())
            assert covered >= binom.ppf(1e-6, repeats, 0.95), (name, level, covered)


def test_lines_leave_out_crossings_outside_of_the_points():
    n, K = np.arange(10, 101, 10), np.array([1, 2, 3, 4])
    rates = counts(np.where(n > 20 * K[:, None] + 25, 1000, 0), 1000, K=K, n=n)
    line = sweep.fit_line(rates, (0.5,))
    assert int(line.num_points[0]) == 3
    np.testing.assert_allclose([line.slope, line.intercept], [[20], [25]])
    few = sweep.fit_line(rates.isel(K=[2, 3]), (0.5,))
    assert (
        int(few.num_points[0]) == 1
        and np.isnan(few.slope).all()
        and np.isnan(few.intercept_upper).all()
    )


@pytest.mark.parametrize("function", [sweep.transition, sweep.fit_line])
def test_invalid_arguments_are_refused(function):
    rates = counts([[0, 3, 5]], 5, K=[1], n=[1, 2, 3])
    for levels in (0.0,), (0.5, 1.0), (95,):
        with pytest.raises(ValueError, match="levels"):
            function(rates, levels)
    with pytest.raises(ValueError, match="confidence"):
        function(rates, confidence=95)


@pytest.mark.parametrize("name", ["level", "estimate", "lower"])
def test_dimensions_with_names_of_results_are_refused(name):
    rates = counts([[0, 3, 5], [0, 1, 5]], 5, **{name: [0.1, 0.2]}, n=[1, 2, 3])
    with pytest.raises(ValueError, match=f"rename the dimension '{name}'"):
        sweep.transition(rates, (0.5, 0.9))
    success = np.ones((2, 4), bool)
    dataset = xarray.Dataset({"success": (("lower", "trial"), success)})
    with pytest.raises(ValueError, match="rename the dimension 'lower'"):
        sweep.success_rate(dataset)
