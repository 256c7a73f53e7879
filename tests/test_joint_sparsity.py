"""Joint sparsity, k rows of a matrix: SNIHT, SHTP, SOMP, SCoSaMP and CGIHT step by step against
loops in double precision, of complex measurements."""

import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest

import jaxht
from jaxht import Groups, MultiResponse
from tests.reference import plausible
from tests.util import quick, record_x

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D, C, K, STEPS = 24, 40, 3, 6, 6
RNG = np.random.default_rng(5)


def draw(*shape):
    return RNG.normal(size=shape) + 1j * RNG.normal(size=shape)


A = (draw(N, D) / np.sqrt(2 * N)).astype(np.complex64)
SIGNAL = np.zeros((D, C), np.complex64)
SIGNAL[RNG.choice(D, K, replace=False)] = draw(K, C)
Y = (A @ SIGNAL + 0.1 * draw(N, C)).astype(np.complex64)
F = MultiResponse(A, Y, mean=False)
STEP_SIZE = 0.7


def rows(Z, k):
    """The k rows of largest l2 norm, of equal ones the first."""
    norms = [np.sqrt(sum(abs(z) ** 2 for z in row)) for row in Z]
    return sorted(sorted(range(len(Z)), key=lambda i: (-norms[i], i))[:k])


def keep(Z, T):
    X = np.zeros_like(Z)
    for i in T:
        X[i] = Z[i]
    return X


def descent(X):
    return A.conj().T.astype(complex) @ (Y - A @ X)


def fit(T):
    """Least squares on the rows T, one signal after the other."""
    X = np.zeros((D, C), complex)
    for j in range(C):
        X[T, j] = np.linalg.lstsq(A[:, T].astype(complex), Y[:, j], rcond=None)[0]
    return X


def energy(Z):
    return np.sum(abs(Z) ** 2)


def sniht():
    """With the step condition of Blumensath & Davies 2010, c = 0.01 and q = 2."""
    X = np.zeros((D, C), complex)
    T = rows(descent(X), K)
    while True:
        yield X
        R = descent(X)
        R_T = keep(R, T)
        step_size = energy(R_T) / energy(A @ R_T)
        while True:
            T_next = rows(X + step_size * R, K)
            move = keep(X + step_size * R, T_next) - X
            if T_next == T or step_size * energy(A @ move) <= 0.99 * energy(move):
                break
            step_size /= 2 * 0.99
        X, T = X + move, T_next


def shtp():
    X = np.zeros((D, C), complex)
    while True:
        yield X
        X = fit(rows(X + STEP_SIZE * descent(X), K))


def somp():
    X, T = np.zeros((D, C), complex), []
    while True:
        yield X
        if len(T) < K:
            R = descent(X)
            R[T] = 0
            T = sorted([*T, *rows(R, 1)])
        X = fit(T)


def scosamp():
    X = np.zeros((D, C), complex)
    while True:
        yield X
        T = sorted({*rows(descent(X), 2 * K), *np.flatnonzero(abs(X).sum(axis=1))})
        X = fit(T)
        X = keep(X, rows(X, K))


def cgiht():
    """Restarted, the lengths of all steps exact."""
    X = np.zeros((D, C), complex)
    T, T_prev, P, size = rows(descent(X), K), None, None, None
    while True:
        yield X
        R = descent(X)
        R_T = keep(R, T)
        P = R + energy(R_T) / size * P if T == T_prev else R
        P_T = keep(P, T)
        alpha = np.vdot(R_T, P_T).real / energy(A @ P_T)
        W = X + alpha * P
        T_prev, T, size = T, rows(W, K), energy(R_T)
        X = keep(W, T)


CASES = {
    "SNIHT": (jaxht.NIHT(), sniht),
    "SHTP": (jaxht.HTP(STEP_SIZE), shtp),
    "SOMP": (jaxht.OMP(), somp),
    "SCoSaMP": (jaxht.CoSaMP(), scosamp),
    "CGIHT": (jaxht.CGIHT(), cgiht),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_the_paper(name):
    solver, reference = CASES[name]
    result, xs = jaxht.trace(F, Groups(K), solver, num_steps=STEPS, record=record_x)
    expected = [X for X, _ in zip(reference(), range(STEPS + 1), strict=False)]
    ended = int(result.num_steps)
    np.testing.assert_allclose(xs[: ended + 1], expected[: ended + 1], atol=5e-5)
    visited = {tuple(np.flatnonzero(abs(X).sum(axis=1))) for X in expected}
    assert len(visited) > 2  # the supports change on the way
    assert xs.dtype == jnp.complex64 and ended >= 2


def test_groups_are_rows_where_none_are_given():
    named = Groups(2, np.broadcast_to(np.arange(4)[:, None], (4, 3))).prepare((4, 3))
    z = RNG.normal(size=(4, 3)).astype(np.float32)
    x, support = Groups(2).prepare((4, 3)).project(z)
    np.testing.assert_array_equal(x, named.project(z)[0])
    np.testing.assert_array_equal(support.mask.sum(axis=1), np.where(x.any(axis=1), 3, 0))
    with pytest.raises(ValueError, match=r"groups must be an array of integers of shape \(4,\)"):
        Groups(2).prepare((4,))


def test_gradient_and_hessian_are_those_of_the_signals_one_by_one():
    """With a weight for each entry, of which one is missing."""
    weights = RNG.uniform(0.5, 2, (N, C)).astype(np.float32)
    weights[3, 1] = 0
    targets = Y.copy()
    targets[3, 1] = np.nan
    offset = draw(N, C).astype(np.complex64)
    f = MultiResponse(A, targets, 0.3, mean=False, weights=weights, offset=offset).prepare()
    X = draw(D, C).astype(np.complex64)
    pred = f.predict(X)
    gradient, product = f.gradient(X, pred), f.hessian(X, pred)(X)
    value, diagonals = 0.0, [b.diagonal() for b in (f.hessian(X, pred), f.majorant())]
    for j in range(C):
        w, column = weights[:, j], X[:, j].astype(complex)
        r = np.where(w > 0, A @ column + offset[:, j] - np.nan_to_num(targets[:, j]), 0)
        value += np.sum(w * abs(r) ** 2) / 2 + 0.3 * energy(column) / 2
        expected = A.conj().T @ (w * r) + 0.3 * column
        np.testing.assert_allclose(gradient[:, j], expected, atol=2e-4)
        expected = A.conj().T @ (w * (A @ column)) + 0.3 * column
        np.testing.assert_allclose(product[:, j], expected, atol=2e-4)
        for diagonal in diagonals:
            assert not np.iscomplexobj(diagonal)
            np.testing.assert_allclose(diagonal[:, j], w @ abs(A) ** 2 + 0.3, rtol=1e-4)
    np.testing.assert_allclose(f.value(X, pred), value, rtol=1e-5)


def test_operators_and_lanes():
    product = jaxht.LinearOperator(lambda x, A: A @ x, (N, D), (A,), dtype=jnp.complex64)
    expected = fit(list(np.flatnonzero(SIGNAL.any(axis=1))))

    @quick
    def solve(Y):
        f = MultiResponse(product, Y, mean=False)
        return jaxht.solve(f, Groups(K, k_max=K), jaxht.HTP()).x

    xs = jax.vmap(solve)(np.stack([Y, 1j * Y]))
    np.testing.assert_allclose(xs[0], expected, atol=1e-4)
    np.testing.assert_allclose(xs[1], 1j * xs[0], atol=1e-4)


def test_more_signals_help():
    """Of 7 rows among 64, 24 real measurements: eight signals are nearly always recovered, one is
    not."""
    n, d, k, trials = 24, 64, 7, 50

    @quick
    @jax.vmap
    def recover(key):
        first, second, third = jax.random.split(key, 3)
        matrix = jaxht.ensembles.gaussian(first, n, d)
        active = jax.random.permutation(second, jnp.arange(d) < k)
        X = jnp.where(active[:, None], jax.random.normal(third, (d, 8)), 0)

        def error(X):
            f = MultiResponse(matrix, matrix @ X)
            return jnp.max(jnp.abs(jaxht.solve(f, Groups(k), jaxht.CoSaMP()).x - X))

        return error(X[:, :1]), error(X)

    alone, joint = recover(jax.random.split(jax.random.key(0), trials))
    assert plausible(int(np.sum(joint < 1e-3)), trials, 0.95)
    assert not plausible(int(np.sum(alone < 1e-3)), trials, 0.95)


def test_directions_of_arrival(monkeypatch):
    """The page of the gallery finds all four to within a step and a half of its grid, and MUSIC
    misses the echo and its source."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    scope = runpy.run_path(str(Path(__file__).parents[1] / "docs/gallery/directions.py"))
    plt.close("all")
    angles, truth = scope["grid"], scope["truth"]
    np.testing.assert_allclose(angles[scope["found"]], truth, atol=0.75)
    near = [np.argmin(abs(angles - angle)) for angle in truth]
    music = scope["music"] / scope["music"].max()
    assert np.all(music[near][[0, 3]] > 0.1) and np.all(music[near][[1, 2]] < 0.03)


def test_derivatives_of_complex_signals_are_refused():
    def size(t):
        f = MultiResponse(A, t * Y, mean=False)
        return jnp.sum(jnp.abs(jaxht.solve(f, Groups(K, k_max=K), jaxht.HTP()).x))

    with pytest.raises(ValueError, match="objective must be real here"):
        jax.grad(size)(1.0)
