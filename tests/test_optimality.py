"""What is checked of a solution, against brute force and plain NumPy."""

import itertools

import jax
import numpy as np
import pytest

import jaxht
from jaxht import Custom, LeastSquares, Logistic, Softmax, Sparse, optimality
from tests.util import precision, quick

pytestmark = pytest.mark.usefixtures("all_quickly")


def problem(seed, n=30, d=9):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal(n)


@quick
def checked(f, x, keep=None):
    return optimality(f, Sparse(3, keep=keep), x, step_size=0.01)


def best_swap(f, x, kept=()):
    """The least f after a swap, over all pairs, the entering entry chosen by a fine search."""
    S = np.flatnonzero(x)
    found = {}
    for j, i in itertools.product(S, set(range(len(x))) - set(S)):
        if j in kept:
            continue
        rest = np.where(np.arange(len(x)) == j, 0, x)
        column, residual = f.design.array[:, i], f.design.array @ rest - f.y
        t = -(column @ residual) / (column @ column + f.l2)
        rest[i] = t
        found[i, j] = np.sum((f.design.array @ rest - f.y) ** 2) / 2 + f.l2 / 2 * rest @ rest
    return min(found.items(), key=lambda item: item[1])


@pytest.mark.parametrize("seed", range(4))
def test_best_swap_of_least_squares_is_that_of_brute_force(seed):
    with precision("float64"):
        A, y = problem(seed)
        f, x = LeastSquares(A, y, 0.3, mean=False), np.zeros(9)
        x[[1, 4, 6]] = [0.5, -1, 0.2]
        here = np.sum((A @ x - y) ** 2) / 2 + 0.15 * x @ x
        gradient = A.T @ (A @ x - y) + 0.3 * x
        for keep in (None, np.arange(9) == 4):
            pair, value = best_swap(f, x, () if keep is None else (4,))
            found = checked(f, x, keep)
            np.testing.assert_allclose(found.swap_gain, here - value, rtol=1e-10)
            assert tuple(found.swap.tolist()) == pair
        np.testing.assert_allclose(
            found.stationarity, np.linalg.norm(gradient[[1, 4, 6]]), rtol=1e-12
        )
        largest = np.sort(np.abs(gradient))[-3:]
        np.testing.assert_allclose(found.restricted_gradient, np.linalg.norm(largest), rtol=1e-12)
        z = x - 0.01 * gradient
        z[np.argsort(-np.abs(z))[3:]] = 0
        np.testing.assert_allclose(
            checked(f, x).fixed_point_residual, np.linalg.norm(x - z), rtol=1e-12
        )


def test_the_global_minimum_passes_and_a_worse_point_does_not():
    with precision("float64"):
        A, y = problem(7)
        f = LeastSquares(A, y, mean=False)
        points = []
        for S in map(list, itertools.combinations(range(9), 3)):
            x = np.zeros(9)
            x[S] = np.linalg.lstsq(A[:, S], y, rcond=None)[0]
            points.append((np.sum((A @ x - y) ** 2) / 2, x))
        points.sort(key=lambda point: point[0])
        best, bad = checked(f, points[0][1]), checked(f, points[-1][1])
        assert (
            best.stationarity < 1e-12 and best.fixed_point_residual < 1e-12 and best.swap_gain < 0
        )
        assert bad.stationarity < 1e-12 and bad.swap_gain > 0


def test_other_objectives_gain_what_they_say():
    """The gain is that of f itself, and the same from a function written down."""
    with precision("float64"):
        A, u = problem(3)
        y = np.sign(u)
        x = np.zeros(9)
        x[[0, 1, 2]] = [0.3, -0.2, 0.1]
        f = Logistic(A, y, 0.1)
        g = Custom(
            lambda x, A, y: jax.numpy.mean(jax.numpy.logaddexp(0, -y * (A @ x))) + 0.05 * x @ x,
            A,
            y,
            like=9,
        )
        found = optimality(f, Sparse(3), x, step_size=0.1)
        assert found.swap_gain > 0
        for a, b in zip(optimality(g, Sparse(3), x, step_size=0.1), found, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)
        h = Softmax(A, (y > 0).astype(int), 0.1, num_classes=2)
        X = np.stack([np.zeros(9), x], axis=1)
        matrix = optimality(h, Sparse(3), X, step_size=0.1)
        np.testing.assert_allclose(
            matrix.restricted_gradient**2,
            np.sum(
                np.sort(np.asarray(jax.grad(lambda X: h.value(X, h.predict(X)))(X)).ravel() ** 2)[
                    -3:
                ]
            ),
            rtol=1e-10,
        )
        assert matrix.swap.shape == (2,)


def test_what_cannot_be_is_refused():
    A, y = problem(0)
    with pytest.raises(ValueError, match=r"x must have shape \(9,\)"):
        optimality(LeastSquares(A, y, mean=False), Sparse(3), np.zeros(8))
    with pytest.raises(ValueError, match="swaps=False"):
        optimality(LeastSquares(A, y, mean=False), Sparse(3, nonnegative=True), np.zeros(9))
    within = optimality(
        LeastSquares(A, y, mean=False), Sparse(3, nonnegative=True), np.zeros(9), swaps=False
    )
    assert within.swap_gain is None and np.isfinite(within.fixed_point_residual)
    assert jaxht.Optimality._fields[0] == "stationarity"


def test_no_swaps_of_an_empty_support():
    A, y = problem(0)
    found = optimality(LeastSquares(A, y), Sparse(0), np.zeros(A.shape[1]))
    assert found.swap_gain == -np.inf and found.stationarity == 0


@pytest.mark.parametrize("bounds", [None, (0.0, 10.0)])
def test_the_restricted_gradient_is_that_of_the_largest_groups(bounds):
    """Whatever is kept, and whatever the bounds."""
    f = LeastSquares(np.eye(6), np.array([0.1, 0, 3, 4, 1, 2]), mean=False)
    first = np.arange(6) == 0
    groups = jaxht.Groups(1, np.arange(6) // 2, keep=first, bounds=bounds)
    assert optimality(f, groups, np.zeros(6), swaps=False).restricted_gradient == 5
    entries = jaxht.Sparse(1, keep=first, bounds=bounds)
    assert optimality(f, entries, np.zeros(6), swaps=False).restricted_gradient == 4


@pytest.mark.parametrize("size", [0.0, 1e-25])
def test_a_design_of_zeros_or_nearly(size):
    """On which every point is stationary."""
    f = jaxht.LeastSquares(np.full((4, 3), size, np.float32), np.ones(4, np.float32))
    found = jaxht.optimality(f, jaxht.Sparse(1), np.zeros(3, np.float32))
    assert 0 <= float(found.fixed_point_residual) < 1e-3 or size
    assert np.isfinite(found.fixed_point_residual)
    assert np.isfinite(jaxht.spectral.restricted_step_size(f, 1))


@pytest.mark.parametrize(("of_A", "of_y"), [(1e-12, 1e-12), (1e12, 1e8)])
def test_gradients_whose_squares_over_or_underflow(of_A, of_y):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(30, 8))
    y = 2 * A[:, 1] - A[:, 3] + rng.normal(size=30)

    def restricted_gradient(of_A, of_y):
        f = jaxht.LeastSquares((of_A * A).astype(np.float32), (of_y * y).astype(np.float32))
        return float(jaxht.optimality(f, jaxht.Sparse(2), np.zeros(8)).restricted_gradient)

    expected = restricted_gradient(1, 1) * of_A * of_y
    assert restricted_gradient(of_A, of_y) == pytest.approx(expected, rel=1e-4)
