"""One-bit measurements: BIHT against its paper, step by step, and the accuracy of directions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import IHT, OneBit, Sparse
from jaxht.objectives.losses import OneSidedLoss
from tests.reference import hard_threshold, plausible
from tests.util import quick, record_x

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D, K, STEPS = 60, 40, 4, 30
RNG = np.random.default_rng(0)
A = RNG.normal(size=(N, D))
SIGNAL = np.zeros(D)
SIGNAL[[3, 8, 20, 31]] = [0.5, -0.5, 0.1, 0.7]
Y = np.sign(A @ SIGNAL)


def biht(tau):
    """From x = 0, with sign(0) = 0."""
    x = np.zeros(D)
    while True:
        yield x
        x = hard_threshold(x + tau / (2 * N) * A.T @ (Y - np.sign(A @ x)), K)


def test_steps_are_those_of_the_paper(dtype):
    f = OneBit(A.astype(dtype), Y.astype(dtype))
    result, xs = jaxht.trace(f, Sparse(K), IHT(1.0), num_steps=STEPS, record=record_x)
    _, *expected = (x for x, _ in zip(biht(1.0), range(STEPS + 2), strict=False))
    np.testing.assert_allclose(xs, expected, atol=1e-5 if dtype == np.float32 else 1e-12)
    assert result.reason == "CONVERGED" and result.value == 0
    assert np.all(np.sign(A @ result.x) == Y) and np.any(xs[3] != xs[-1])


def test_directions_do_not_depend_on_the_step_from_0():
    x, others = (
        [x / np.linalg.norm(x) for x, _ in zip(biht(tau), range(10), strict=False) if np.any(x)]
        for tau in (1.0, 30.0)
    )
    np.testing.assert_allclose(x, others, atol=1e-12)


def test_the_loss_and_its_conjugate():
    loss = OneSidedLoss()
    u = np.array([-2.0, -0.5, 0.7, 1.5], np.float32)
    for y in (-1.0, 1.0):
        v, h = jnp.asarray(u), 1e-3
        slope = (loss.value(v + h, y) - loss.value(v - h, y)) / (2 * h)
        np.testing.assert_allclose(loss.derivative(v, y), slope, atol=1e-3)
        slope = (loss.derivative(v + h, y) - loss.derivative(v - h, y)) / (2 * h)
        np.testing.assert_allclose(loss.curvature(v, y), slope, atol=1e-3)
        # The supremum over u, by a grid.
        grid = np.linspace(-3, 3, 6001, dtype=np.float32)
        values = np.asarray(loss.value(jnp.asarray(grid), y))
        for a in (-0.8 * y, -0.1 * y):
            found = float(loss.conjugate(jnp.float32(a), y))
            np.testing.assert_allclose(found, np.max(a * grid - values), atol=1e-5)
            assert loss.within(jnp.float32(a), y) == np.float32(a)
        assert loss.conjugate(jnp.float32(0.5 * y), y) == np.inf
        assert loss.within(jnp.float32(0.5 * y), y) == 0
    assert loss.value(jnp.zeros(1), 1.0) == 0


def test_accuracy_grows_with_the_number_of_signs():
    """An error of a direction below 0.1, of 4 entries among 128: of 1000 signs nearly always, of
    100 not."""
    d, k, trials = 128, 4, 40

    @quick
    @jax.vmap
    def errors(key):
        first, second = jax.random.split(key)
        matrix = jax.random.normal(first, (1000, d))
        signal = jaxht.ensembles.gaussian_signal(second, d, k)
        signal = signal / jnp.linalg.norm(signal)
        signs = jnp.sign(matrix @ signal)

        def error(n):
            weights = (jnp.arange(1000) < n).astype(signs.dtype)
            f = OneBit(matrix, signs, weights=weights)
            x = jaxht.solve(f, Sparse(k), IHT(1.0), stop=jaxht.Stop(max_steps=300)).x
            return jnp.linalg.norm(x / jnp.linalg.norm(x) - signal)

        return error(100), error(1000)

    few, many = errors(jax.random.split(jax.random.key(0), trials))
    assert plausible(int(np.sum(many < 0.1)), trials, 0.95)
    assert not plausible(int(np.sum(few < 0.1)), trials, 0.95)
    assert np.median(few) > 3 * np.median(many)


def test_of_wrong_signs_few_short_steps_are_best():
    """A twentieth is wrong, so that no x agrees with all: the direction is nearer than that of the
    start, and lost in the end."""
    n, d, k, trials = 1000, 128, 8, 20

    @quick
    @jax.vmap
    def errors(key):
        first, second, third = jax.random.split(key, 3)
        matrix = jax.random.normal(first, (n, d))
        signal = jaxht.ensembles.gaussian_signal(second, d, k)
        is_wrong = jax.random.uniform(third, (n,)) < 0.05
        f = OneBit(matrix, jnp.where(is_wrong, -1, 1) * jnp.sign(matrix @ signal))

        def error(num_steps):
            stop = jaxht.Stop(max_steps=num_steps)
            x = jaxht.solve(f, Sparse(k), IHT(0.1), stop=stop).x
            return jnp.linalg.norm(x / jnp.linalg.norm(x) - signal / jnp.linalg.norm(signal))

        return error(0), error(30), error(300)

    at_start, few, many = errors(jax.random.split(jax.random.key(0), trials))
    assert plausible(int(np.sum(few < at_start)), trials, 0.95)
    assert np.median(few) < 0.15 < np.median(at_start) < np.median(many)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: OneBit(A, A[:, 0]).prepare(), "y must hold labels -1 and"),
        (lambda: jaxht.solve(OneBit(A, Y), Sparse(K), IHT()), r"use IHT\(step_size=1\)"),
        (lambda: jaxht.solve(OneBit(A, Y), Sparse(K)), r"use IHT\(step_size=1\)"),
        (lambda: jaxht.solve(OneBit(A, Y), Sparse(K), jaxht.HTP()), r"use IHT\(step_size=1\)"),
    ],
)
def test_errors_name_what_is_needed(call, words):
    with pytest.raises(ValueError, match=words):
        call()
