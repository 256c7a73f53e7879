"""CGIHT against its paper, step by step, and against NIHT."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import CGIHT, LeastSquares, Sparse
from tests.reference import hard_threshold, largest

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D, K = 40, 80, 8
A = np.asarray(jaxht.ensembles.gaussian(jax.random.key(0), N, D))
SIGNAL = np.asarray(jaxht.ensembles.gaussian_signal(jax.random.key(1), D, K))
Y = A @ SIGNAL


def iterate(num_steps):
    """Algorithm 2 of the paper as it is printed, in double precision, from x = 0."""
    matrix = A.astype(float)
    x = np.zeros(D)
    T = largest(matrix.T @ Y, K)
    before: set[int] = set()
    p = size = None
    xs = [x]
    for _ in range(num_steps):
        r = matrix.T @ (Y - matrix @ x)
        on = np.zeros(D, bool)
        on[list(T)] = True
        beta = np.sum(r[on] ** 2) / size if T == before else 0
        p = r + beta * p if beta else r
        alpha = (r[on] @ p[on]) / np.sum((matrix[:, on] @ p[on]) ** 2)
        size = np.sum(r[on] ** 2)
        w = x + alpha * p
        x = hard_threshold(w, K)
        before, T = T, largest(w, K)
        xs.append(x)
    return np.array(xs)


def test_steps_are_those_of_the_paper():
    f = LeastSquares(A, Y, mean=False)
    _, xs = jaxht.trace(f, Sparse(K), CGIHT(), num_steps=12, record=lambda c: c.iterate.x)
    np.testing.assert_allclose(xs, iterate(12), atol=2e-5)


def test_it_takes_fewer_steps_than_niht():
    ys = jnp.stack([A @ np.roll(SIGNAL, i) for i in range(8)])

    def steps(solver):
        def solve(y):
            return jaxht.solve(LeastSquares(A, y, mean=False), Sparse(K), solver)

        found = jax.jit(jax.vmap(solve))(ys)
        recovered = found.value < 1e-6
        return found.num_steps, recovered

    num_steps, recovered = steps(CGIHT())
    of_niht, recovered_by_niht = steps(jaxht.NIHT())
    both = recovered & recovered_by_niht
    assert both.sum() >= 5
    assert np.median(num_steps[both]) <= 0.7 * np.median(of_niht[both])


def test_bounds_are_refused():
    with pytest.raises(ValueError, match="bounds must be None for CGIHT"):
        jaxht.solve(LeastSquares(A, Y), Sparse(K, nonnegative=True), CGIHT())
