"""Basis pursuit against linear programming, and step by step against its source."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

import jaxht
from jaxht import LeastSquares, Sparse, Stop
from jaxht.baselines import BasisPursuit
from tests.util import quick, record_x

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D = 20, 50
RNG = np.random.default_rng(0)
A = RNG.normal(size=(N, D)) / np.sqrt(N)


def signal(k):
    rng = np.random.default_rng(k)
    x = np.zeros(D)
    x[rng.choice(D, k, replace=False)] = rng.normal(size=k)
    return x


def minimise(y):
    """The least ``1'(p + q)`` for p, q >= 0 with ``A (p - q) = y``."""
    program = linprog(np.ones(2 * D), A_eq=np.hstack([A, -A]), b_eq=y)
    return program.x[:D] - program.x[D:], program.fun


# Of 12 nonzeros the minimiser is another vector, with as many nonzeros as samples.
@pytest.mark.parametrize("k", [4, 12])
def test_the_minimum_is_that_of_linear_programming(dtype, k):
    y = A @ signal(k)
    expected, least = minimise(y)
    f = LeastSquares(A.astype(dtype), y.astype(dtype))
    result = jaxht.solve(f, Sparse(D), BasisPursuit(0.1), stop=Stop(gap_rtol=2e-4))
    assert result.reason == "GAP_CLOSED" and result.num_steps < 9_000
    assert least - 1e-5 <= result.value <= least + result.gap
    np.testing.assert_allclose(A @ result.x, y, atol=1e-5)
    np.testing.assert_allclose(result.value, least, rtol=2e-4)
    np.testing.assert_allclose(result.x, expected, atol=5e-3)


def test_steps_are_those_of_the_source():
    """With over-relaxation 1, from z = the exact fit of least norm and u = 0."""
    y = A @ signal(6)
    inverse = np.linalg.inv(A @ A.T)
    x = A.T @ inverse @ y
    u, t, expected = np.zeros(D), 0.07, [x]
    for _ in range(10):
        z = np.array([np.sign(v) * max(abs(v) - t, 0) for v in x + u])
        u = u + x - z
        v = z - u
        x = v + A.T @ inverse @ (y - A @ v)
        expected.append(x)
    f = LeastSquares(A.astype(np.float32), y.astype(np.float32))
    _, xs = jaxht.trace(f, Sparse(D), BasisPursuit(t), num_steps=10, record=record_x)
    np.testing.assert_allclose(xs, expected, atol=2e-5)


def test_the_gap_is_never_below_the_distance_to_the_minimum():
    y = A @ signal(8)
    _, least = minimise(y)
    f = LeastSquares(A.astype(np.float32), y.astype(np.float32))

    def record(carry):
        return carry.iterate.value, carry.info.gap

    _, (values, gaps) = jaxht.trace(f, Sparse(D), BasisPursuit(), num_steps=400, record=record)
    assert np.all(values - gaps <= least) and np.all(values >= least - 1e-5)
    assert gaps[-1] < 0.05 * gaps[20]


def test_complex_numbers_and_operators():
    rows = np.sort(RNG.choice(64, 32, replace=False))
    F = jaxht.operators.partial_dft(64, rows)
    x = np.zeros(64, np.complex64)
    x[RNG.choice(64, 5, replace=False)] = np.exp(2j * np.pi * RNG.uniform(size=5))
    y = F.matvec(x)
    matrix = F.matvec(np.eye(64, dtype=np.complex64))
    for design in (F, matrix):
        found = jaxht.solve(
            LeastSquares(design, y), Sparse(64), BasisPursuit(), stop=Stop(gap_rtol=1e-3)
        )
        assert found.reason == "GAP_CLOSED"
        np.testing.assert_allclose(found.x, x, atol=1e-2)


def test_lanes_and_zeros():
    ys = np.stack([A @ signal(3), A @ signal(5), np.zeros(N)]).astype(np.float32)

    @quick
    @jax.vmap
    def solve(y):
        f = LeastSquares(jnp.asarray(A, jnp.float32), y)
        return jaxht.solve(f, Sparse(D), BasisPursuit(), stop=Stop(gap_rtol=2e-4, max_steps=2_000))

    result = solve(ys)
    least = [minimise(y)[1] for y in ys]
    np.testing.assert_allclose(result.value, least, rtol=3e-4)
    assert not np.any(result.x[2]) and np.all(result.status < jaxht.Status.MAX_STEPS)


def test_rows_that_depend_on_each_other():
    """The last row is there twice: with one target for both the minimum is that without it, with
    two there is no fit, and the gap stays."""
    y = A @ signal(3)
    _, least = minimise(y)
    twice = np.vstack([A, A[-1:]]).astype(np.float32)
    for change in (0, 1):
        f = LeastSquares(twice, np.append(y, y[-1] + change).astype(np.float32))
        stop = Stop(gap_rtol=1e-3, max_steps=2_000)
        result = jaxht.solve(f, Sparse(D), BasisPursuit(), stop=stop)
        assert result.reason == ("MAX_STEPS" if change else "GAP_CLOSED")
        assert change or abs(result.value - least) < 1e-3 * least


def test_rows_in_other_units():
    y = A @ signal(3)
    _, least = minimise(y)
    for power in (3, 6):
        units = np.logspace(0, -power, N)
        f = LeastSquares((units[:, None] * A).astype(np.float32), (units * y).astype(np.float32))
        result = jaxht.solve(f, Sparse(D), BasisPursuit(), stop=Stop(gap_rtol=1e-3))
        assert result.reason == "GAP_CLOSED"
        np.testing.assert_allclose(result.value, least, rtol=2e-3)
        np.testing.assert_allclose(A @ result.x, y, atol=1e-4)


def test_rows_that_nearly_depend_on_each_other():
    """In single precision x fits them in part only: then no gap is small."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(6, 12))
    matrix[3] = matrix[2] + 1e-4 * rng.normal(size=12)
    x = np.zeros(12)
    x[[0, 5, 7]] = 1, -2, 1.5
    y = matrix @ x
    least = linprog(np.ones(24), A_eq=np.hstack([matrix, -matrix]), b_eq=y).fun
    f = LeastSquares(matrix.astype(np.float32), y.astype(np.float32))
    result = jaxht.solve(f, Sparse(12), BasisPursuit(), stop=Stop(gap_rtol=1e-3, max_steps=3_000))
    assert abs(result.value - least) <= result.gap


def test_data_that_are_not_finite_leave_the_start():
    y = np.full(N, np.nan, np.float32)
    result = jaxht.solve(LeastSquares(A.astype(np.float32), y), Sparse(D), BasisPursuit())
    assert result.reason == "INVALID_DATA" and not np.any(result.x)


def test_a_threshold_of_0_is_no_step():
    result = jaxht.solve(LeastSquares(A, A[:, 0]), Sparse(D), BasisPursuit(0.0))
    assert result.reason == "INVALID_STEP_SIZE"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: jaxht.solve(LeastSquares(A.T, np.ones(D)), Sparse(N), BasisPursuit()),
            r"as many rows as columns for BasisPursuit; got shape \(50, 20\)",
        ),
        (
            lambda: jaxht.solve(LeastSquares(A, A[:, 0]), Sparse(D), BasisPursuit(-0.1)),
            "BasisPursuit.threshold must be",
        ),
        (
            lambda: jaxht.solve(LeastSquares(A, A[:, 0], 0.1), Sparse(D), BasisPursuit()),
            "weights and l2 must be left out",
        ),
    ],
)
def test_errors_name_what_is_needed(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("last", [2.0, 1.01, 1.0])
def test_operators_whose_rows_depend_on_each_other(last):
    """A measurement that is repeated: exactly, or with noise, and then there is no gap, and no x
    beside which much is left."""
    A = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    A[2] = A[0]
    y = np.float32([1, 2, last])
    stop = Stop(gap_rtol=1e-3, max_steps=2000)
    dense, by_products = (
        jaxht.solve(LeastSquares(design, y), Sparse(5), BasisPursuit(), stop=stop)
        for design in (A, jaxht.LinearOperator(lambda x, A: A @ x, (3, 5), (A,)))
    )
    assert np.isfinite(by_products.gap) == np.isfinite(dense.gap) == (last == 1)
    assert float(by_products.value) == pytest.approx(float(dense.value), rel=5e-3)
    left = np.linalg.norm(A @ by_products.x - y)
    assert left == pytest.approx(abs(last - 1) / 2**0.5, rel=0.05, abs=1e-5)


@pytest.mark.parametrize("unit", [1e-21, 1e20])
def test_squares_of_A_may_leave_their_dtype(unit):
    y = A @ signal(4)
    scaled = LeastSquares((A * unit).astype(np.float32), y.astype(np.float32))
    result = jaxht.solve(scaled, Sparse(D), BasisPursuit(), stop=Stop(gap_rtol=1e-3))
    assert result.reason == "GAP_CLOSED"
    np.testing.assert_allclose(result.value * unit, minimise(y)[1], rtol=2e-3)
