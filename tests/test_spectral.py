"""Power iterations next to LAPACK's eigenvalues, of all vectors and of all supports."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import spectral
from jaxht.linalg.eigenvalues import SAFETY, largest_eigenvalue, random_vector
from tests.util import precision, quick, x64

pytestmark = pytest.mark.usefixtures("all_quickly")


def gaussian(rng, n, d):
    return rng.standard_normal((n, d))


def toeplitz(rng, n, d, rho=0.9):
    """Rows with covariance rho^|i - j|."""
    covariance = rho ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    return rng.standard_normal((n, d)) @ np.linalg.cholesky(covariance).T


def rank_one(rng, n, d):
    return np.outer(rng.standard_normal(n), rng.standard_normal(d))


def with_intercept(rng, n, d):
    return np.hstack([np.full((n, 1), 5.0), rng.standard_normal((n, d - 1))])


@quick
def estimates(A):
    """For every lane."""
    return jax.vmap(lambda A: largest_eigenvalue(lambda v: A.T @ (A @ v), A.shape[1], A.dtype))(A)


@pytest.mark.parametrize("shape", [(50, 100), (400, 60), (100, 10), (20, 1)])
def test_is_within_the_safety_factor_from_below(dtype, shape):
    rng = np.random.default_rng(0)
    for ensemble in (gaussian, toeplitz, rank_one, with_intercept):
        A = np.stack([ensemble(rng, *shape) for _ in range(10)]).astype(dtype)
        got = estimates(A)
        assert got.dtype == dtype
        A = A.astype(np.float64)
        ratio = np.asarray(got, np.float64) / np.linalg.eigvalsh(A.transpose(0, 2, 1) @ A)[:, -1]
        print(f"{ensemble.__name__} {shape}: {ratio.min():.3f} to {ratio.max():.6f}")
        assert np.all(ratio >= 1 / SAFETY) and np.all(ratio <= 1 + 100 * np.finfo(dtype).eps), (
            ensemble
        )


def test_knows_zero_and_scales_along():
    """From one end of what float32 holds to the other."""
    A = np.random.default_rng(1).standard_normal((30, 40)).astype(np.float32)
    scales = np.float32(2.0) ** np.array([-50, -30, -15, 0, 15, 30, 50])
    *got, of_zero = np.asarray(estimates(np.append(scales, 0)[:, None, None] * A), np.float64)
    got = got / scales.astype(np.float64) ** 2
    np.testing.assert_allclose(got, got[3], rtol=1e-3)
    assert of_zero == 0


def test_depends_on_nothing_but_the_operator():
    A = np.random.default_rng(2).standard_normal((8, 30, 40)).astype(np.float32)
    together = estimates(A)
    np.testing.assert_allclose(together, [estimates(A[i : i + 1])[0] for i in range(8)], rtol=1e-5)
    with x64():
        np.testing.assert_allclose(estimates(A), together, rtol=1e-5)


@pytest.mark.parametrize("s", [1, 4])
def test_sparse_eigenvalues_are_those_of_brute_force(s):
    with precision("float64"):
        num_right = 0
        for seed in range(8):
            A = np.random.default_rng(seed).standard_normal((20, 10))
            f = jaxht.Logistic(A, np.ones(20), 0.1)
            top, bottom, kappa = sparse_eigenvalues(f, s)
            hessian = A.T @ A / 80 + 0.1 * np.eye(10)
            values = [
                np.linalg.eigvalsh(hessian[np.ix_(F, F)])
                for F in itertools.combinations(range(10), s)
            ]
            most, least = max(v[-1] for v in values), min(v[0] for v in values)
            # One-sided always, and mostly exact.
            assert top <= most * (1 + 1e-9) and bottom >= least * (1 - 1e-9)
            np.testing.assert_allclose(kappa, top / bottom, rtol=1e-9)
            num_right += top > 0.999 * most and bottom < 1.001 * least
        assert num_right >= 5


@quick
def sparse_eigenvalues(f, s):
    """Of the Hessian of the logistic loss at 0, where it is its own majorant."""
    x = jnp.zeros(f.shape)
    bottom = spectral.smallest_sparse_eigenvalue(
        f.hessian(x, f.predict(x)), f.majorant().diagonal(), s
    )
    return spectral.restricted_smoothness(f, s), bottom, spectral.restricted_condition_number(f, s)


def test_condition_number_of_dependent_columns_is_infinite():
    A = np.ones((5, 3), np.float32)
    condition_number = quick(spectral.restricted_condition_number)
    assert condition_number(jaxht.LeastSquares(A, A[:, 0], mean=False), 2) == np.inf
    with pytest.raises(ValueError, match="objective must be over vectors"):
        spectral.restricted_smoothness(jaxht.MultiResponse(A, A), 2)


@pytest.mark.parametrize("top", [1.5, 4.0])
def test_the_largest_eigenvalue_where_lanczos_breaks_down(dtype, top):
    """Where the Krylov space of the start is exhausted, only rounding errors find what it does not
    contain."""
    start = np.asarray(random_vector(6, dtype))
    basis = np.linalg.qr(np.column_stack([start, np.eye(6)[:, :5]]))[0]
    values = np.array([1.0, top, 0.5, 0.5, 0.5, 0.5])  # the start is the eigenvector of 1
    B = jnp.asarray((basis * values) @ basis.T, dtype)
    found = quick(lambda B: largest_eigenvalue(lambda v: B @ v, 6, B.dtype))(B)
    assert np.isfinite(found) and 1 - 1e-5 <= found <= top * (1 + 1e-5)
    assert quick(lambda B: largest_eigenvalue(lambda v: B @ v, 6, B.dtype))(0 * B) == 0


@pytest.mark.parametrize("correlation", [-0.9, -0.15, 0.15, 0.9])
def test_the_largest_eigenvalue_of_a_correlation_matrix_of_two(dtype, correlation):
    """Its eigenvectors are (1, 1) and (1, -1): a start of equal magnitudes would be one of them."""
    B = jnp.array([[1, correlation], [correlation, 1]], dtype)
    found = quick(lambda B: largest_eigenvalue(lambda v: B @ v, 2, B.dtype))(B)
    np.testing.assert_allclose(found, 1 + abs(correlation), rtol=1e-3)
    np.testing.assert_allclose(
        quick(lambda b: largest_eigenvalue(lambda v: b * v, 1, B.dtype))(B[0, 0]), 1, rtol=1e-6
    )


def test_numbers_of_another_precision_than_the_design():
    with x64():
        A = np.random.default_rng(0).normal(size=(9, 4)).astype("float32")
        y = np.ones(9, "float32")
        plain = jaxht.LeastSquares(A, y, 0.1)
        for f in (jaxht.LeastSquares(A, y, np.array(0.1)), replace(plain, weights=np.ones(9))):
            for number in (spectral.restricted_condition_number, spectral.restricted_smoothness):
                assert number(f, 2).dtype == np.float32
                np.testing.assert_allclose(number(f, 2), number(plain, 2), rtol=1e-5)
