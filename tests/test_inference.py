"""Stability selection against a loop over subsamples, and how often it selects noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from tests.util import quick, x64


def test_frequencies_are_those_of_a_loop_over_the_halves():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(40, 12))
    y = A[:, 2] - 0.5 * A[:, 5] + rng.normal(size=40)
    key, num_pairs = jax.random.key(0), 6
    with x64():
        f = jaxht.LeastSquares(A, y)
        found = jaxht.inference.stability_selection(f, jaxht.Sparse(3), jaxht.OMP(), key, num_pairs=num_pairs)
        selected = []
        for one in jax.random.split(key, 3 * num_pairs)[:num_pairs]:
            order = np.asarray(jax.random.permutation(one, 40))
            for rows in (order < 20, order >= 20):
                part = jaxht.solve(jaxht.LeastSquares(A[rows], y[rows]), jaxht.Sparse(3), jaxht.OMP())
                selected.append(np.asarray(part.x) != 0)
    np.testing.assert_allclose(found.frequencies, np.mean(selected, axis=0))
    assert found.mean_size == pytest.approx(3)


def test_weights_of_the_user_count():
    """Samples of weight 0 are in no half."""
    rng = np.random.default_rng(1)
    A, present = rng.normal(size=(30, 6)), np.arange(30) >= 15
    f = jaxht.LeastSquares(A, np.where(present, A[:, 1], 100 * A[:, 0]), weights=present.astype(float))
    found = jaxht.inference.stability_selection(f, jaxht.Sparse(1), jaxht.OLS(), jax.random.key(0))
    np.testing.assert_array_equal(found.frequencies, np.eye(6)[1])


def test_groups_are_items():
    rng = np.random.default_rng(2)
    A = rng.normal(size=(60, 9))
    f = jaxht.LeastSquares(A, A[:, 3:6].sum(axis=1) + 0.1 * rng.normal(size=60))
    groups = jaxht.Groups(1, np.arange(9) // 3)
    found = jaxht.inference.stability_selection(f, groups, jaxht.HTP(), jax.random.key(0), num_pairs=5)
    assert found.frequencies.tolist() == [0, 1, 0]


def test_few_false_selections():
    """Of 200 problems of 100 x 50 with 3 true coordinates, k = 5: at most what the bound says, and the true ones."""
    threshold = 0.9

    @quick
    @jax.vmap
    def run(key):
        keys = jax.random.split(key, 3)
        A, noise = jax.random.normal(keys[0], (100, 50)), jax.random.normal(keys[1], (100,))
        f = jaxht.LeastSquares(A, A[:, :3] @ jnp.array([1.0, -1.0, 1.0]) + noise)
        found = jaxht.inference.stability_selection(f, jaxht.Sparse(5), jaxht.OMP(), keys[2], num_pairs=25)
        stable = found.frequencies >= threshold
        return jnp.sum(stable[:3]), jnp.sum(stable[3:]), found.expected_false(threshold)

    true, false, bound = (np.asarray(part) for part in run(jax.random.split(jax.random.key(0), 200)))
    assert np.all((bound > 0) & (bound < 0.5))
    assert np.mean(false) <= bound[0] + 3 * np.std(false) / np.sqrt(200)
    assert np.mean(true) > 2.5


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
            jaxht.GaussianPrecision(np.eye(3)), jaxht.Edges(1), jaxht.HTP(), jax.random.key(0)
        )
