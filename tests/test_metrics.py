"""Recovery metrics against NumPy loops, scikit-learn, SciPy and numbers worked out by hand."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from jaxht import metrics

ERRORS = ["estimation_error", "relative_error"]
SUCCESSES = ["success", "exact_recovery", "relaxed_recovery"]
SCORES = ["precision", "recall", "f_score"]


@jax.jit
@jax.vmap
def batched(x, x_true):
    return {name: getattr(metrics, name)(x, x_true) for name in ERRORS + SUCCESSES + SCORES}


def random_pairs(num=300, d=9):
    """Small integers: many ties, zeros on and off the support, empty and full supports."""
    rng = np.random.default_rng(5)
    x, x_true = rng.integers(-2, 3, (2, num, d)) * (
        rng.random((2, num, d)) < rng.random((2, num, 1))
    )
    x_true[::3] = x[::3] * rng.integers(1, 3, x[::3].shape)  # the right support
    x[1::3] += np.where(x_true[1::3] != 0, 5, 0)  # a support that is large enough
    return x.astype(np.float32), x_true.astype(np.float32)


# ---- errors and success ----


def test_errors():
    x, x_true, zero = [1.0, 2.0, 0.0], [1.0, 0.0, 2.0], [0.0, 0.0, 0.0]
    ours = batched(jnp.array([x, x_true, zero, x]), jnp.array([x_true, x_true, zero, zero]))
    np.testing.assert_allclose(ours["estimation_error"], np.sqrt([8, 0, 0, 5]), rtol=1e-6)
    np.testing.assert_allclose(ours["relative_error"], [np.sqrt(8 / 5), 0, 0, np.inf], rtol=1e-6)


def test_errors_of_extreme_and_of_whole_numbers():
    for size in (1e-30, 1e25):
        x, x_true = np.float32([2 * size, 0]), np.float32([size, 0])
        np.testing.assert_allclose(metrics.relative_error(x, x_true), 1, rtol=1e-6)
        np.testing.assert_allclose(metrics.estimation_error(x, x_true), size, rtol=1e-6)
    np.testing.assert_allclose(metrics.relative_error(np.array([3, 0]), np.array([0, 4])), 1.25)


@pytest.mark.parametrize(
    "score", [metrics.sensitivity, metrics.specificity, metrics.matthews_correlation]
)
def test_classes_are_boolean(score):
    with pytest.raises(ValueError, match="actual must be boolean, True for the positive class"):
        score(np.array([True, False]), np.array([1, 0]))


def test_success_is_a_strict_bound_on_the_norm():
    x_true = jnp.array([1.0, 0.0, -2.0])
    offset = jnp.array([3.0, 4.0, 0.0])  # of norm 5
    atol = jnp.array([4.9, 5.0, 5.1])
    np.testing.assert_array_equal(
        jax.vmap(metrics.success, (None, None, 0))(x_true + offset, x_true, atol),
        [False, False, True],
    )
    assert metrics.success(x_true + 1e-4 * offset, x_true) and not metrics.success(
        x_true + 3e-4 * offset, x_true
    )


# ---- support recovery ----


def test_recovery_agrees_with_a_loop_over_sorted_entries():
    x, x_true = random_pairs()
    exact, relaxed = [], []
    for z, truth in zip(x, x_true, strict=True):
        support = {i for i in range(truth.size) if truth[i] != 0}
        by_size = sorted(range(z.size), key=lambda i: (-abs(z[i]), i))
        exact.append({i for i in by_size[: len(support)] if z[i] != 0} == support)
        relaxed.append(support <= {i for i in range(z.size) if z[i] != 0})
    assert 30 < sum(exact) < sum(relaxed) < 270  # the cases are worth something
    ours = batched(x, x_true)
    np.testing.assert_array_equal(ours["exact_recovery"], exact)
    np.testing.assert_array_equal(ours["relaxed_recovery"], relaxed)


def test_recovery_by_hand():
    x, x_true, exact, relaxed = zip(
        ([1, 1, 1], [2, 0, 0], True, True),  # a tie goes to the lowest index
        ([1, 1, 1], [0, 0, 2], False, True),
        ([3, -4, 1], [-1, 1, 0], True, True),  # more nonzeros than needed, the right ones on top
        ([0, 0, 0], [1, 0, 0], False, False),  # zeros recover nothing, though index 0 comes first
        ([0, 1, 0], [1, 1, 0], False, False),
        ([1, 2, 3], [0, 0, 0], True, True),  # nothing to recover
        strict=True,
    )
    ours = batched(jnp.array(x, jnp.float32), jnp.array(x_true, jnp.float32))
    np.testing.assert_array_equal(ours["exact_recovery"], exact)
    np.testing.assert_array_equal(ours["relaxed_recovery"], relaxed)


def test_matrices_are_compared_entry_by_entry():
    flat = tuple(map(jnp.asarray, random_pairs(num=8, d=6)))
    of_matrices = batched(*(a.reshape(8, 2, 3) for a in flat))
    of_vectors = batched(*flat)
    for name, expected in of_vectors.items():
        np.testing.assert_allclose(of_matrices[name], expected, rtol=1e-6)


# ---- scores ----


def test_scores_agree_with_scikit_learn():
    x, x_true = random_pairs()
    found, true = x != 0, x_true != 0
    sample = np.flatnonzero(found.any(axis=1) | true.any(axis=1))[::4]
    ours = batched(x, x_true)
    np.testing.assert_array_equal(jax.jit(jax.vmap(metrics.f_score))(found, true), ours["f_score"])
    for name, theirs in (
        ("precision", "precision_score"),
        ("recall", "recall_score"),
        ("f_score", "f1_score"),
    ):
        score = getattr(sklearn.metrics, theirs)
        expected = [score(true[lane], found[lane], zero_division=0) for lane in sample]
        np.testing.assert_allclose(ours[name][sample], expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:A single label")
def test_binary_scores_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    predicted, actual = rng.random((2, 40, 9)) < rng.choice([0.1, 0.5, 0.9], (2, 40, 1))
    actual[0], actual[1] = True, False
    predicted[0, :4], predicted[1, :4] = False, True
    recall = sklearn.metrics.recall_score
    expected = {
        "matthews_correlation": [
            sklearn.metrics.matthews_corrcoef(t, p) for t, p in zip(actual, predicted, strict=True)
        ],
        "sensitivity": [
            recall(t, p, zero_division=1) for t, p in zip(actual, predicted, strict=True)
        ],
        "specificity": [
            recall(~t, ~p, zero_division=1) for t, p in zip(actual, predicted, strict=True)
        ],
    }
    for name, scores in expected.items():
        ours = jax.jit(jax.vmap(getattr(metrics, name)))(predicted, actual)
        np.testing.assert_allclose(ours, scores, rtol=1e-6, atol=1e-7)


def test_scores_of_empty_supports():
    zero, one = [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]
    ours = batched(jnp.array([zero, zero, one]), jnp.array([zero, one, zero]))
    for name in SCORES:
        np.testing.assert_array_equal(ours[name], [1, 0, 0])


# ---- lanes that failed, dtypes ----


def test_a_solution_that_is_not_finite_has_failed():
    truths = np.array([[1, 2, 0, 0], [0, 0, 0, 0]], np.float32)
    x_true = np.repeat(truths, 7, axis=0)
    x = x_true.copy()
    for lane, (bad, at) in enumerate(itertools.product([np.nan, np.inf, -np.inf], [0, 3])):
        x[[lane, 7 + lane], at] = bad
    good = np.isfinite(x).all(axis=1)
    assert good.sum() == 2
    ours = batched(x, x_true)
    for name in ERRORS:
        np.testing.assert_array_equal(np.isfinite(ours[name]), good)
        np.testing.assert_array_equal(ours[name][good], 0)
    for name in SUCCESSES + SCORES:
        np.testing.assert_array_equal(ours[name], good)


def test_scalars_and_dtypes(dtype):
    x = jax.ShapeDtypeStruct((7, 3), dtype)
    for name, out in jax.eval_shape(batched, x, x).items():
        assert out.shape == (7,) and out.dtype == (bool if name in SUCCESSES else dtype)


# ---- the Wilson interval ----


def test_wilson_by_hand():
    # z = 1.959964, z^2 = 3.841459: (8 + 1.920729 -+ 1.959964 sqrt(1.6 + 0.960365)) / 13.841459
    np.testing.assert_allclose(metrics.wilson_interval(8, 10), [0.490162, 0.943318], atol=1e-6)
    lower, upper = metrics.wilson_interval(0, 10)
    assert lower == 0 and upper == pytest.approx(3.841459 / 13.841459, abs=1e-6)
    lower, upper = metrics.wilson_interval(1000, 1000)
    assert lower == pytest.approx(1000 / 1003.841459, abs=1e-8) and upper == 1
    assert metrics.wilson_interval(0, 0) == (0, 1)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_wilson_agrees_with_scipy_and_with_its_definition(confidence):
    trials = np.array([[1], [7], [1000]])
    successes = (trials * np.array([0, 0.2, 0.5, 0.93, 1])).astype(int)
    lower, upper = metrics.wilson_interval(successes, trials, confidence)
    assert lower.shape == (3, 5)
    for s, n, low, high in zip(
        *(a.ravel() for a in np.broadcast_arrays(successes, trials, lower, upper)), strict=True
    ):
        scipys = scipy.stats.binomtest(int(s), int(n)).proportion_ci(confidence, method="wilson")
        np.testing.assert_allclose((low, high), scipys, atol=1e-12)
    z = scipy.stats.norm.ppf((1 + confidence) / 2)
    for p in (lower, upper):
        inside = (p > 0) & (p < 1)
        distance, bound = np.abs(successes / trials - p), z * np.sqrt(p * (1 - p) / trials)
        np.testing.assert_allclose(distance[inside], bound[inside], rtol=1e-9)


def test_wilson_covers_as_often_as_it_says():
    n, p = 50, np.linspace(0.02, 0.98, 97)
    lower, upper = metrics.wilson_interval(np.arange(n + 1), n)
    covers = (lower[:, None] <= p) & (p <= upper[:, None])
    coverage = (scipy.stats.binom.pmf(np.arange(n + 1)[:, None], n, p) * covers).sum(axis=0)
    assert coverage.mean() == pytest.approx(0.95, abs=0.01) and coverage.min() > 0.85


@pytest.mark.parametrize(
    "args", [(-1, 10), (11, 10), (np.nan, 10), (0, -1), (1, 2, 0.0), (1, 2, 1.0), (1, 2, np.nan)]
)
def test_wilson_refuses_what_is_not_a_count_or_a_confidence(args):
    with pytest.raises(ValueError, match=r"successes must|confidence must"):
        metrics.wilson_interval(*args)


def test_errors_of_arrays_of_numpy_keep_double_precision():
    found = metrics.estimation_error(np.array([1 + 1e-9]), np.array([1.0]))
    np.testing.assert_allclose(found, 1e-9, rtol=1e-6)


def test_errors_of_integers_and_booleans_do_not_wrap():
    for dtype, x, x_true, error in (
        (jnp.uint8, [0], [1], 1),
        (jnp.int8, [100], [-100], 200),
        (bool, [True, False], [False, False], 1),
    ):
        found = metrics.estimation_error(jnp.array(x, dtype), jnp.array(x_true, dtype))
        assert float(found) == error
