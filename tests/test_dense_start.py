"""Runs that start from the minimiser of f without the constraint."""

import functools
import itertools

import jax
import numpy as np
import pytest
import scipy.sparse

import jaxht
from jaxht import LeastSquares, Sparse, Stop
from tests.util import quick, solve, x64

pytestmark = pytest.mark.usefixtures("all_quickly")


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


@quick
def from_dense(objective, constraint, solver, stop=Stop()):
    return jaxht.solve(objective, constraint, solver, x0="dense", stop=stop)


@functools.cache
def lorenz(n=1000, step=0.01, degree=3, noise=0.1):
    """Polynomials along a trajectory of the Lorenz system, its noisy velocities, and the 7
    coefficients of its law."""

    def velocity(s):
        return np.array([10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]])

    states, s = [], np.array([-8.0, 8.0, 27.0])
    for _ in range(n):
        states.append(s)
        a = velocity(s)
        b = velocity(s + step / 2 * a)
        c = velocity(s + step / 2 * b)
        s = s + step / 6 * (a + 2 * b + 2 * c + velocity(s + step * c))
    states = np.array(states)
    terms = [
        term
        for r in range(degree + 1)
        for term in itertools.combinations_with_replacement(range(3), r)
    ]
    A = np.stack([np.prod(states[:, list(term)], axis=1) for term in terms], axis=1)
    Y = np.array([velocity(s) for s in states]) + noise * np.random.default_rng(0).normal(
        size=(n, 3)
    )
    truth, at = np.zeros((len(terms), 3)), terms.index
    truth[at((0,)), 0], truth[at((1,)), 0] = -10, 10
    truth[at((0,)), 1], truth[at((1,)), 1], truth[at((0, 2)), 1] = 28, -1, -1
    truth[at((0, 1)), 2], truth[at((2,)), 2] = 1, -8 / 3
    return A, Y, truth


@pytest.mark.parametrize(
    "solver",
    [jaxht.HTP(), jaxht.SubspacePursuit(), jaxht.OMPR(), jaxht.FoBa()],
    ids=lambda s: type(s).__name__,
)
def test_the_law_of_the_lorenz_system_is_found(solver):
    """Cubic terms of a trajectory are correlated by more than 0.99: from zero no solver finds its
    law."""
    A, Y, truth = lorenz()
    f = jaxht.MultiResponse(A, Y, mean=True)
    least = f.value(truth, f.predict(truth))
    dense = from_dense(f, Sparse(7, 7), solver)
    np.testing.assert_array_equal(dense.x != 0, truth != 0)
    assert least * 0.99 < dense.value < least
    assert solve(f, Sparse(7, 7), solver).value > 1e3 * least


@pytest.mark.parametrize("degree", [2, 3])
def test_local_search_finds_the_law_from_any_start(degree):
    """One equation after the other, from zero, from the least-squares solution and from random
    points."""
    A, Y, truth = lorenz(degree=degree)
    rng, sparsities = np.random.default_rng(1), (truth != 0).sum(0)
    starts = np.concatenate(
        [
            np.zeros((1, len(truth))),
            np.logspace(-2, 2, 5)[:, None] * rng.normal(size=(5, len(truth))),
        ]
    )

    @quick
    @jax.vmap
    def run(y, k):
        f, C, search = LeastSquares(A, y, mean=True), Sparse(k, k_max=3), jaxht.LocalSearch()
        from_starts = jax.vmap(lambda x0: jaxht.solve(f, C, search, x0=x0))(starts)
        return from_starts, jaxht.solve(f, C, search, x0="dense")

    from_starts, dense = run(Y.T, sparsities)
    np.testing.assert_array_equal(dense.x != 0, truth.T != 0)
    for start in range(len(starts)):
        np.testing.assert_array_equal(from_starts.x[:, start] != 0, truth.T != 0)
    assert np.all(from_starts.status == jaxht.Status.NO_PROGRESS) and np.all(
        dense.status == jaxht.Status.NO_PROGRESS
    )


KINDS = {
    "array": (lambda A, y: LeastSquares(A, y, mean=False), 0, np.ones),
    "ridge of each": (
        lambda A, y: LeastSquares(A, y, np.arange(6.0), mean=True),
        np.arange(6.0),
        np.ones,
    ),
    "weights": (lambda A, y: LeastSquares(A, y, weights=np.arange(20.0), mean=False), 0, np.arange),
    "sparse": (
        lambda A, y: LeastSquares(jaxht.design(scipy.sparse.csr_array(A)), y, 0.3, mean=False),
        0.3,
        np.ones,
    ),
    "operator": (
        lambda A, y: LeastSquares(
            jaxht.LinearOperator(lambda x, A: A @ x, A.shape, (A,)), y, mean=False
        ),
        0,
        np.ones,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_ridge_solution(kind):
    make, l2, weigh = KINDS[kind]
    rng = np.random.default_rng(1)
    A, y, weights = rng.normal(size=(20, 6)), rng.normal(size=20), np.asarray(weigh(20), float)
    scale = 20 if kind == "ridge of each" else 1
    expected = np.linalg.solve(
        (A.T * weights) @ A / scale + np.diag(l2 * np.ones(6)), A.T @ (weights * y) / scale
    )
    result = from_dense(make(A, y), Sparse(6, 6), jaxht.IHT(), Stop(max_steps=0))
    np.testing.assert_allclose(result.x, expected, rtol=1e-6, atol=1e-8)


def test_it_is_projected_within_batches_paths_and_bounds():
    rng = np.random.default_rng(2)
    A, y = rng.normal(size=(20, 6)), rng.normal(size=(3, 20))
    least = np.linalg.lstsq(A, y.T, rcond=None)[0].T
    stop = Stop(max_steps=0)

    @quick
    def run(y):
        f = LeastSquares(A, y, mean=False)
        path = jaxht.path(f, Sparse(1), jaxht.IHT(), ks=[2, 6], x0="dense", stop=stop)
        _, values = jaxht.trace(f, Sparse(6), jaxht.IHT(), num_steps=1, x0="dense")
        bounded = jaxht.solve(f, Sparse(6, nonnegative=True), jaxht.IHT(), x0="dense", stop=stop)
        nested = jaxht.path(f, Sparse(1), jaxht.OMP(), ks=[2, 6], x0="dense", stop=stop)
        return path.x[0], nested.x[0], bounded.x, values

    first, nested, bounded, values = jax.vmap(run)(y)
    for i in range(3):
        kept = np.where(np.abs(least[i]) >= np.sort(np.abs(least[i]))[-2], least[i], 0)
        np.testing.assert_allclose(first[i], kept, atol=1e-9)
        np.testing.assert_allclose(nested[i], kept, atol=1e-9)
        np.testing.assert_allclose(bounded[i], np.maximum(least[i], 0), atol=1e-9)
        np.testing.assert_allclose(values[i], values[i, 0], rtol=1e-12)


def test_of_other_losses_and_of_low_rank():
    rng = np.random.default_rng(3)
    A, y = rng.normal(size=(60, 5)), np.sign(rng.normal(size=60))
    result = from_dense(jaxht.Logistic(A, y), Sparse(5, 5), jaxht.IHT(), Stop(max_steps=0))
    f = jaxht.Logistic(A, y)
    np.testing.assert_allclose(f.gradient(result.x, f.predict(result.x)), 0, atol=1e-9)
    Y = rng.normal(size=(60, 4))
    full = np.linalg.lstsq(A, Y, rcond=None)[0]
    U, s, Vt = np.linalg.svd(full, full_matrices=False)
    result = from_dense(
        jaxht.MultiResponse(A, Y), jaxht.LowRank(2), jaxht.NIHT(), Stop(max_steps=0)
    )
    np.testing.assert_allclose(result.x, U[:, :2] * s[:2] @ Vt[:2], atol=1e-6)


REFUSED = {
    "fewer rows": (
        lambda: LeastSquares(np.ones((3, 4)), np.ones(3), mean=False),
        r"^A must have at least.*\(3, 4\)",
    ),
    "no linear model": (
        lambda: jaxht.Custom(lambda x: x @ x, like=4),
        "^objective must be a linear model.*Custom",
    ),
    "measurements": (
        lambda: jaxht.matrix_sensing(np.ones((9, 2, 2)), np.ones(9), mean=False),
        "^objective must be a linear model",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    make, says = REFUSED[name]
    with pytest.raises(ValueError, match=says):
        jaxht.solve(make(), Sparse(1), jaxht.IHT(), x0="dense")
