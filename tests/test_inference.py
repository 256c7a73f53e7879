"""Stability selection against a loop over subsamples, and how often it selects noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import jaxht
from tests.util import quick, x64

pytestmark = pytest.mark.usefixtures("all_quickly")


def test_frequencies_are_those_of_a_loop_over_the_halves():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(40, 12))
    y = A[:, 2] - 0.5 * A[:, 5] + rng.normal(size=40)
    key, num_pairs = jax.random.key(0), 6
    with x64():
        f = jaxht.LeastSquares(A, y, mean=False)
        found = jaxht.inference.stability_selection(
            f, jaxht.Sparse(3), jaxht.OMP(), key=key, num_pairs=num_pairs
        )
        selected = []
        for one in jax.random.split(key, 3 * num_pairs)[:num_pairs]:
            numbers = np.asarray(jax.random.uniform(one, (40,)))
            for rows in (numbers >= np.sort(numbers)[20], numbers < np.sort(numbers)[20]):
                part = jaxht.solve(
                    jaxht.LeastSquares(A[rows], y[rows], mean=False), jaxht.Sparse(3), jaxht.OMP()
                )
                selected.append(np.asarray(part.x) != 0)
    np.testing.assert_allclose(found.frequencies, np.mean(selected, axis=0))
    assert found.mean_size == pytest.approx(3)


def grouped():
    """Eleven patients of one to six visits, in no order, with labels that have gaps; A and y."""
    rng = np.random.default_rng(7)
    groups = rng.permutation(np.repeat(5 * np.arange(11) - 3, rng.integers(1, 7, 11)))
    A = rng.normal(size=(groups.size, 6))
    y = A[:, 2] - 0.5 * A[:, 5] + 0.3 * rng.normal(size=groups.size) + np.sin(groups)
    return groups, A, y


def rows_of(labels, groups):
    """The samples of groups, one after the other."""
    return np.concatenate([np.flatnonzero(groups == label) for label in labels])


def test_halves_of_groups():
    groups, A, y = grouped()
    n, key = len(y), jax.random.key(3)
    labels = np.unique(groups)
    with x64():
        found, traced = [
            run(groups)
            for run in (
                lambda groups: jaxht.inference.stability_selection(
                    jaxht.LeastSquares(A, y),
                    jaxht.Sparse(2),
                    jaxht.OMP(),
                    key=key,
                    num_pairs=4,
                    groups=groups,
                ),
                quick(
                    lambda groups: jaxht.inference.stability_selection(
                        jaxht.LeastSquares(A, y),
                        jaxht.Sparse(2, 2),
                        jaxht.OMP(),
                        key=key,
                        num_pairs=4,
                        groups=groups,
                    )
                ),
            )
        ]
        solutions = []
        for one in jax.random.split(key, 12)[:4]:
            numbers = np.asarray(jax.random.uniform(one, (n,)))[: labels.size]
            in_first = np.argsort(np.argsort(-numbers)) < labels.size // 2
            for half in (labels[in_first], labels[~in_first]):
                rows = rows_of(half, groups)
                part = jaxht.solve(
                    jaxht.LeastSquares(A[rows], y[rows]), jaxht.Sparse(2), jaxht.OMP()
                )
                solutions.append(np.asarray(part.x))
    np.testing.assert_allclose(found.results.x, solutions, atol=1e-10)
    np.testing.assert_allclose(traced.results.x, solutions, atol=1e-10)
    np.testing.assert_allclose(found.frequencies, np.mean(np.array(solutions) != 0, axis=0))
    with pytest.raises(ValueError, match=r"groups must have shape \(.*\), one label for each"):
        jaxht.inference.stability_selection(
            jaxht.LeastSquares(A, y), jaxht.Sparse(2), key=key, groups=groups[1:]
        )
    with pytest.raises(ValueError, match="groups must be integers; got dtype float64"):
        jaxht.inference.bootstrap(
            jaxht.LeastSquares(A, y), jaxht.Sparse(2), key=key, groups=1.0 * groups
        )


def test_folds_of_groups():
    groups, _, _ = grouped()
    masks = np.asarray(jaxht.folds(jax.random.key(0), groups.size, 4, groups))
    traced = quick(lambda groups: jaxht.folds(jax.random.key(0), groups.size, 4, groups))(groups)
    np.testing.assert_array_equal(masks, traced)
    assert np.all(masks.sum(axis=0) == 1)
    sizes = [np.unique(groups[mask]).size for mask in masks]
    assert sum(sizes) == 11 and sorted(sizes) == [2, 3, 3, 3]
    other = jaxht.folds(jax.random.key(1), groups.size, 4, groups)
    assert np.any(masks != np.asarray(other))
    with pytest.raises(ValueError, match="at most 11, the number of groups; got 12"):
        jaxht.folds(jax.random.key(0), groups.size, 12, groups)


def test_weights_of_the_user_count():
    """Samples of weight 0 are in no half."""
    rng = np.random.default_rng(1)
    A, present = rng.normal(size=(30, 6)), np.arange(30) >= 15
    y = np.where(present, A[:, 1] + 0.01 * rng.normal(size=30), 100 * A[:, 0])
    f = jaxht.LeastSquares(A, y, weights=present.astype(float), mean=False)
    found = jaxht.inference.stability_selection(
        f, jaxht.Sparse(1), jaxht.OLS(), key=jax.random.key(0)
    )
    np.testing.assert_array_equal(found.frequencies, np.eye(6)[1])


def test_groups_are_items():
    rng = np.random.default_rng(2)
    A = rng.normal(size=(60, 9))
    f = jaxht.LeastSquares(A, A[:, 3:6].sum(axis=1) + 0.1 * rng.normal(size=60), mean=False)
    groups = jaxht.Groups(1, np.arange(9) // 3)
    found = jaxht.inference.stability_selection(
        f, groups, jaxht.HTP(), key=jax.random.key(0), num_pairs=5
    )
    assert found.frequencies.tolist() == [0, 1, 0]


def test_few_false_selections():
    """Of 200 problems of 100 x 50 with 3 true coordinates, k = 5: at most what the bound says, and
    the true ones."""
    threshold = 0.9

    @quick
    @jax.vmap
    def run(key):
        keys = jax.random.split(key, 3)
        A, noise = jax.random.normal(keys[0], (100, 50)), jax.random.normal(keys[1], (100,))
        f = jaxht.LeastSquares(A, A[:, :3] @ jnp.array([1.0, -1.0, 1.0]) + noise, mean=False)
        found = jaxht.inference.stability_selection(
            f, jaxht.Sparse(5), jaxht.OMP(), key=keys[2], num_pairs=25
        )
        stable = found.frequencies >= threshold
        return jnp.sum(stable[:3]), jnp.sum(stable[3:]), found.expected_false(threshold)

    true, false, bound = (
        np.asarray(part) for part in run(jax.random.split(jax.random.key(0), 200))
    )
    assert np.all((bound > 0) & (bound < 0.5))
    assert np.mean(false) <= bound[0] + 3 * np.std(false) / np.sqrt(200)
    assert np.mean(true) > 2.5


def test_selections_among_rounding_errors_are_warned_of():
    """Twelve samples, each twice: many halves have no more than k that are distinct."""
    rng = np.random.default_rng(0)
    A = np.repeat(rng.normal(size=(12, 20)), 2, axis=0)
    f = jaxht.LeastSquares(A, np.repeat(rng.normal(size=12), 2))

    def select(k):
        jaxht.inference.stability_selection(
            f, jaxht.Sparse(k), jaxht.OMP(), key=jax.random.key(0), num_pairs=5
        )

    with pytest.warns(UserWarning, match="of 10 resamples are fitted exactly"):
        select(10)
    select(3)
    y = A[:, 0] - A[:, 4]  # which two items fit, and no fewer
    jaxht.inference.stability_selection(
        jaxht.LeastSquares(A, y), jaxht.Sparse(2), jaxht.OMP(), key=jax.random.key(0), num_pairs=5
    )


def test_the_bound():
    class Runs:
        status = np.zeros(100)  # B = 50

    found = jaxht.inference.Stability(jnp.zeros(100), jnp.asarray(10.0), Runs())
    assert float(found.expected_false(0.9)) == pytest.approx(4 * 0.11 / 1.02 * 0.1 * 10, rel=1e-6)
    assert float(found.expected_false(0.6)) == pytest.approx(0.5 / 0.19 * 0.1 * 10, rel=1e-5)
    assert np.isinf(found.expected_false(0.5))


def test_errors():
    with pytest.raises(ValueError, match="linear model"):
        jaxht.inference.stability_selection(
            jaxht.GaussianPrecision(np.eye(3)), jaxht.Edges(1), jaxht.HTP(), key=jax.random.key(0)
        )


# ---- bootstrap -----------------------------------------------------------------------------------


def test_resamples_are_those_of_a_loop():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(40, 8))
    y = A[:, 2] - 0.6 * A[:, 5] + rng.normal(size=40)
    key, B = jax.random.key(0), 7
    with x64():
        found = jaxht.inference.bootstrap(
            jaxht.LeastSquares(A, y, 0.5, mean=False),
            jaxht.Sparse(2),
            jaxht.NIHT(),
            key=key,
            num_resamples=B,
        )
        coefficients = []
        for one in jax.random.split(key, 2 * B)[:B]:
            rows = np.asarray(jax.random.randint(one, (40,), 0, 40))
            part = jaxht.solve(
                jaxht.LeastSquares(A[rows], y[rows], 0.5, mean=False), jaxht.Sparse(2), jaxht.NIHT()
            )
            F = np.flatnonzero(part.x)
            x = np.zeros(8)
            x[F] = np.linalg.solve(
                A[rows][:, F].T @ A[rows][:, F] + 0.5 * np.eye(2), A[rows][:, F].T @ y[rows]
            )
            coefficients.append(x)
        lower, upper = found.intervals(0.6)
    np.testing.assert_allclose(found.coefficients, coefficients, atol=1e-8)
    np.testing.assert_allclose(found.frequencies, np.mean(np.array(coefficients) != 0, axis=0))
    np.testing.assert_allclose(lower, np.quantile(coefficients, 0.2, axis=0), atol=1e-8)
    np.testing.assert_allclose(upper, np.quantile(coefficients, 0.8, axis=0), atol=1e-8)


def test_resamples_of_groups():
    """The rows of the groups that were drawn, as often as they were."""
    groups, A, y = grouped()
    n, key, B = len(y), jax.random.key(4), 5
    labels = np.unique(groups)
    with x64():
        found = jaxht.inference.bootstrap(
            jaxht.LeastSquares(A, y, 0.1),
            jaxht.Sparse(2),
            jaxht.HTP(),
            key=key,
            num_resamples=B,
            groups=groups,
        )
        solutions = []
        for one in jax.random.split(key, 2 * B)[:B]:
            draws = np.asarray(jax.random.randint(one, (n,), 0, labels.size))[: labels.size]
            rows = rows_of(labels[draws], groups)
            part = jaxht.solve(
                jaxht.LeastSquares(A[rows], y[rows], 0.1), jaxht.Sparse(2), jaxht.HTP()
            )
            solutions.append(np.asarray(part.x))
    np.testing.assert_allclose(found.coefficients, solutions, atol=1e-9)


def test_groups_of_one_sample_are_samples():
    _, A, y = grouped()
    f, options = jaxht.LeastSquares(A, y), {"key": jax.random.key(0), "num_resamples": 4}
    alone, grouped_alone = [
        jaxht.inference.bootstrap(f, jaxht.Sparse(2), jaxht.OMP(), groups=groups, **options)
        for groups in (None, np.arange(len(y)))
    ]
    np.testing.assert_array_equal(alone.coefficients, grouped_alone.coefficients)


def test_percentile_intervals_cover_large_coefficients():
    """Of 200 problems of 100 x 10, at a level of 0.9: coefficients that are always selected are
    covered that often."""

    @quick
    @jax.vmap
    def run(key):
        keys = jax.random.split(key, 3)
        A, noise = jax.random.normal(keys[0], (100, 10)), jax.random.normal(keys[1], (100,))
        f = jaxht.LeastSquares(A, A[:, :2] @ jnp.array([2.0, -2.0]) + noise, mean=False)
        found = jaxht.inference.bootstrap(
            f, jaxht.Sparse(2), jaxht.OMP(), key=keys[2], num_resamples=100
        )
        lower, upper = found.intervals(0.9)
        return (lower[0] < 2) & (2 < upper[0]), found.frequencies[:2]

    covered, frequencies = (
        np.asarray(part) for part in run(jax.random.split(jax.random.key(0), 200))
    )
    assert frequencies.min() > 0.9
    # Percentile intervals of 100 samples are a little short.
    assert scipy.stats.binom.cdf(covered.sum(), 200, 0.85) > 1e-3
    assert scipy.stats.binom.sf(covered.sum() - 1, 200, 0.93) > 1e-3


def test_bootstrap_of_other_losses():
    """Classes and groups, weights of the user, and an objective without samples."""
    rng = np.random.default_rng(4)
    A, present = rng.normal(size=(60, 6)) * [3, 3, 1, 1, 1, 1], np.arange(60) >= 30
    A[:, 0] *= np.where(present, 0.1, 1)
    y = np.where(present, np.sign(A[:, 1]), np.sign(A[:, 0]))
    f = jaxht.Logistic(A, y, 0.1, weights=present.astype(float))
    found = jaxht.inference.bootstrap(
        f, jaxht.Sparse(1), jaxht.OMP(), key=jax.random.key(0), num_resamples=20
    )
    np.testing.assert_array_equal(found.frequencies, np.eye(6)[1])
    groups = jaxht.Groups(1, np.arange(6) // 3)
    found = jaxht.inference.bootstrap(
        f, groups, jaxht.HTP(), key=jax.random.key(0), num_resamples=5
    )
    assert found.frequencies.shape == (2,) and found.coefficients.shape == (5, 6)
    with pytest.raises(ValueError, match="linear model"):
        jaxht.inference.bootstrap(
            jaxht.GaussianPrecision(np.eye(3)), jaxht.Edges(1), jaxht.HTP(), key=jax.random.key(0)
        )


def test_samples_of_weight_0_are_in_no_half():
    rng = np.random.default_rng(0)
    A, y = rng.normal(size=(60, 5)), rng.normal(size=60)
    weights = np.zeros(60)
    weights[:8] = 1
    f = jaxht.LeastSquares(A, y, weights=weights)
    options = {"key": jax.random.key(0), "num_pairs": 20}
    found = jaxht.inference.stability_selection(f, jaxht.Sparse(1), jaxht.OMP(), **options)
    assert np.all(found.results.succeeded)
    np.testing.assert_allclose(np.sum(found.frequencies), 1, rtol=1e-6)


def test_samples_of_weight_0_are_not_drawn():
    """Resamples of four samples among others without weight are those of the four alone."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(40, 3))
    y = A[:, 0] + 0.1 * rng.normal(size=40)
    weights = np.zeros(40)
    weights[[5, 9, 20, 33]] = 1
    f = jaxht.LeastSquares(A, y, weights=weights)
    found = jaxht.inference.bootstrap(
        f, jaxht.Sparse(1), jaxht.OMP(), key=jax.random.key(0), num_resamples=100
    )
    assert np.all(np.any(found.coefficients != 0, axis=1)) and np.all(found.results.succeeded)
    np.testing.assert_allclose(np.sum(found.frequencies), 1, rtol=1e-6)
