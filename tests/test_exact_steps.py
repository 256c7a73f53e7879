"""CGIHT, FIHT and ALPS, whose steps have exact lengths: against NIHT, and where they end."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import ALPS, CGIHT, FIHT, NIHT, LeastSquares, Sparse
from tests.util import precision, quick

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D, K = 40, 80, 8
A = np.asarray(jaxht.ensembles.gaussian(jax.random.key(0), N, D))
SIGNAL = np.asarray(jaxht.ensembles.gaussian_signal(jax.random.key(1), D, K))
Y = A @ SIGNAL
SOLVERS = {
    "NIHT": NIHT(),
    "CGIHT": CGIHT(),
    "CGIHT-projected": CGIHT(theta=6.0),
    "FIHT": FIHT(),
    "ALPS": ALPS(),
}
EXACT = [name for name in SOLVERS if name != "NIHT"]


@functools.cache
def recover(name):
    """Of eight signals: the steps, and which have been recovered."""
    ys = jnp.stack([A @ np.roll(SIGNAL, i) for i in range(8)])

    def solve(y):
        stop = jaxht.Stop(max_steps=500, target_value=1e-10 * jnp.sum(y**2))
        return jaxht.solve(LeastSquares(A, y, mean=False), Sparse(K), SOLVERS[name], stop=stop)

    found = quick(jax.vmap(solve))(ys)
    return found.num_steps, found.status == jaxht.Status.TARGET_REACHED


# Of the steps of NIHT, at most.
@pytest.mark.parametrize(
    ("name", "share"), [("CGIHT", 0.7), ("CGIHT-projected", 0.8), ("FIHT", 0.5)]
)
def test_they_take_fewer_steps_than_niht(name, share):
    num_steps, recovered = recover(name)
    of_niht, recovered_by_niht = recover("NIHT")
    both = recovered & recovered_by_niht
    assert both.sum() >= 5
    assert np.median(num_steps[both]) <= share * np.median(of_niht[both])


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("name", EXACT)
def test_signals_are_recovered(name, dtype):
    rng = np.random.default_rng(0)
    matrix, signal = rng.normal(size=(30, 40)), np.zeros(40, dtype)
    if dtype == "complex64":
        matrix = (matrix + 1j * rng.normal(size=matrix.shape)) / np.sqrt(2)
    signal[[3, 11, 28]] = [2, -1, 1j if dtype == "complex64" else 1]
    matrix = matrix.astype(dtype)
    with precision("float64" if dtype == "float64" else "float32"):
        f = LeastSquares(matrix, matrix @ signal, mean=False)
        found = jaxht.solve(f, Sparse(3), SOLVERS[name])
        assert found.reason == "CONVERGED" and found.x.dtype == dtype
        eps = jnp.finfo(dtype).eps
    np.testing.assert_allclose(found.x, signal, atol=50 * float(eps))


def test_a_projected_run_takes_both_kinds_of_steps():
    """It stays on a support for some steps while other entries are as large, and leaves it."""
    f = LeastSquares(A, Y, mean=False)

    def record(carry):
        return carry.state.support.mask, jnp.any(carry.state.direction != 0)

    _, (masks, goes_on) = jaxht.trace(f, Sparse(K), CGIHT(theta=3.0), num_steps=12, record=record)
    goes_on = np.asarray(goes_on)[1:]
    assert 3 <= goes_on.sum() <= 10
    same = np.all(masks[1:] == masks[:-1], axis=1)
    assert np.all(same[goes_on]) and not np.all(same)


@pytest.mark.parametrize("name", EXACT)
def test_bounds_are_refused(name):
    words = f"bounds must be None for {type(SOLVERS[name]).__name__}"
    with pytest.raises(ValueError, match=words):
        jaxht.solve(LeastSquares(A, Y), Sparse(K, nonnegative=True), SOLVERS[name])


def test_settings_are_checked():
    with pytest.raises(ValueError, match="memory must be 0 or 1; got 2"):
        jaxht.solve(LeastSquares(A, Y), Sparse(K), ALPS(memory=2))
    with pytest.raises(ValueError, match=r"CGIHT.theta must be at least 0; got -1"):
        jaxht.solve(LeastSquares(A, Y), Sparse(K), CGIHT(theta=-1.0))
