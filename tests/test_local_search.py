"""LocalSearch against dense algebra, loops over all swaps, and enumeration."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxht
from jaxht import LeastSquares, LocalSearch, Sparse, Status
from jaxht.linalg.precision import matmul
from jaxht.refit.swaps import Quadratic, SwapState
from tests.util import host, quick, x64

N, D, K_MAX = 30, 9, 4


def as_operator(A):
    return jaxht.LinearOperator(lambda x, A: matmul(A, x), A.shape, (jnp.asarray(A),))


DESIGNS = {"dense": np.asarray, "sparse": scipy.sparse.csr_array, "operator": as_operator}


def make(seed, n=N, d=D, correlation=0.8):
    """A design of correlated columns of different norms, and a response."""
    rng = np.random.default_rng(seed)
    A = np.sqrt(correlation) * rng.normal(size=(n, 1)) + np.sqrt(1 - correlation) * rng.normal(size=(n, d))
    return A * rng.uniform(0.1, 10, d), A @ rng.normal(size=d) + rng.normal(size=n)


def minimum(H, b, S):
    """The minimum of 1/2 x'H x - b'x on a support, and where it is."""
    S = list(S)
    w = np.linalg.solve(H[np.ix_(S, S)], b[S])
    return -b[S] @ w / 2, w


def best_swap(H, b, S):
    """The least minimum after a swap, by a loop over all."""
    return min(minimum(H, b, [*(set(S) - {i}), j])[0] for i in S for j in set(range(len(b))) - set(S))


@pytest.mark.parametrize("large", [False, True], ids=["gram", "products"])
@pytest.mark.parametrize("design", DESIGNS)
def test_states_are_those_of_dense_algebra(design, large, monkeypatch):
    """After insertions, removals and swaps, with weights and a ridge for each coordinate."""
    if large:  # as for designs of many columns, whose Gram matrix is not held
        monkeypatch.setattr(Quadratic, "of", classmethod(of_products))
    (A, y), rng = make(0), np.random.default_rng(1)
    weights, l2 = rng.uniform(0.5, 2, N), rng.uniform(0, 1, D)
    H = A.T @ (weights[:, None] * A) / weights.sum() + np.diag(l2)
    b = A.T @ (weights * y) / weights.sum()

    def run(A):
        f = Quadratic.of(LeastSquares(A, y, l2, mean=True, weights=weights).prepare())
        state = SwapState.empty(f, K_MAX)
        states = []
        for slot, j in [(0, 3), (2, 7), (1, 0), (2, None), (3, 5), (0, None), (0, 8), (2, 1)]:
            state = state.remove(jnp.array(slot)) if j is None else state.insert(f, jnp.array(slot), jnp.array(j))
            states.append((state, state.insertion_gains(f), state.swap_gains(f), state.decrease(f)))
        return states

    with x64():
        states = host(quick(run)(DESIGNS[design](A))) if design != "sparse" else host(run(DESIGNS[design](A)))
    for state, insertion_gains, swap_gains, decrease in states:
        filled = np.flatnonzero(state.indices < D)
        S = state.indices[filled]
        M = np.linalg.inv(H[np.ix_(S, S)])
        np.testing.assert_allclose(state.inverse[np.ix_(filled, filled)], M, rtol=1e-9)
        np.testing.assert_allclose(state.images[filled], M @ H[S], atol=1e-9 * np.abs(M @ H[S]).max())
        np.testing.assert_allclose(state.w[filled], M @ b[S], rtol=1e-9)
        outside = np.setdiff1d(np.arange(D), S)
        schur = np.diagonal(H) - np.sum(H[:, S] * (M @ H[S]).T, axis=1)
        np.testing.assert_allclose(state.remaining[outside], schur[outside], rtol=1e-8)
        np.testing.assert_allclose(state.descent[outside], (b - H[:, S] @ M @ b[S])[outside], rtol=1e-8)
        here = minimum(H, b, S)[0]
        np.testing.assert_allclose(decrease, -here, rtol=1e-9)
        assert np.all(np.delete(state.w, filled) == 0) and np.all(insertion_gains[S] == -np.inf)
        for j in outside:
            np.testing.assert_allclose(insertion_gains[j], here - minimum(H, b, [*S, j])[0], rtol=1e-7)
            for slot in filled:
                swapped = np.append(np.delete(S, np.flatnonzero(filled == slot)), j)
                np.testing.assert_allclose(swap_gains[slot, j], here - minimum(H, b, swapped)[0], rtol=1e-6, atol=1e-9)
        assert np.all(np.delete(swap_gains, filled, axis=0) == -np.inf) and np.all(swap_gains[:, S] == -np.inf)


def of_products(cls, objective, of=Quadratic.of.__func__):
    return dataclasses.replace(of(cls, objective), gram=None)


def test_the_optimum_is_found_and_no_swap_improves_it():
    """200 problems side by side, of columns correlated by 0.8 and of different scale."""
    problems = [make(seed, n=25, d=11) for seed in range(200)]
    A, y = (np.stack(part) for part in zip(*problems, strict=True))
    with x64():
        solve = quick(jax.vmap(lambda A, y: jaxht.solve(LeastSquares(A, y, 1e-3), Sparse(3, k_max=3), LocalSearch())))
        result = host(solve(A, y))
    assert np.all(result.status == Status.NO_PROGRESS)
    optimal = 0
    for (A, y), x, value in zip(problems, result.x, result.value, strict=True):
        H, b, S = A.T @ A + 1e-3 * np.eye(11), A.T @ y, np.flatnonzero(x)
        np.testing.assert_allclose(x[S], minimum(H, b, S)[1], rtol=1e-7)
        reached = value - y @ y / 2
        assert best_swap(H, b, S) >= reached * (1 + 1e-9)
        optimal += reached <= min(minimum(H, b, S)[0] for S in itertools.combinations(range(11), 3)) * (1 - 1e-9)
    assert optimal >= 199


def test_it_improves_on_a_local_optimum_and_keeps_what_must_stay():
    A, y = make(3, n=40, d=30)
    keep = np.isin(np.arange(30), [4, 17])
    with x64():
        f = LeastSquares(A, y, 1e-3)
        free, kept = (
            jaxht.solve(f, Sparse(6, keep=mask), LocalSearch(num_starts=4, num_moves=30)) for mask in (None, keep)
        )
        exchanged = jaxht.solve(f, Sparse(6), jaxht.OMPR())
        again = jaxht.solve(f, Sparse(6), LocalSearch(num_starts=4, num_moves=30), x0=exchanged)
        same = jaxht.solve(f, Sparse(6), LocalSearch(num_starts=4, num_moves=30), key=jax.random.key(0))
        free, kept, exchanged, again, same = host((free, kept, exchanged, again, same))
    assert np.all(kept.x[keep] != 0) and np.count_nonzero(kept.x) == 6
    assert free.value <= kept.value and again.value < exchanged.value
    np.testing.assert_array_equal(same.x, free.x)
    H, b = A.T @ A + 1e-3 * np.eye(30), A.T @ y
    fixed = {4, 17}
    S = set(kept.support.numpy().tolist())
    least = min(minimum(H, b, [*(S - {i}), j])[0] for i in S - fixed for j in set(range(30)) - S)
    assert least >= (float(kept.value) - y @ y / 2) * (1 + 1e-9)


@pytest.mark.parametrize("k", [0, 1, 5, 8])
def test_dependent_columns_and_extreme_sparsity(k, dtype):
    """Copies, zeros and sums of columns never join what they depend on; k = 0, 1 and d are no exceptions."""
    A, y = make(4, n=20, d=5)
    A = np.stack([*A.T[:4], A[:, 0], -2 * A[:, 1], 0 * A[:, 0], A[:, 2] + A[:, 3]], axis=1).astype(dtype)
    result = jaxht.solve(LeastSquares(A, y.astype(dtype)), Sparse(k), LocalSearch(num_moves=10))
    assert np.all(np.isfinite(result.x)) and np.count_nonzero(result.x) <= min(k, 4)
    best = min(
        np.sum((A[:, S] @ np.linalg.lstsq(A[:, S].astype(float), y)[0] - y) ** 2) / 2
        for S in map(list, itertools.combinations(range(8), min(k, 4)))
    )
    np.testing.assert_allclose(result.value, best, rtol=1e-4)


def test_errors_say_what_is_needed():
    A, y = make(5)
    for objective, constraint, message in [
        (jaxht.Logistic(A, np.sign(y)), Sparse(2), "objective must be LeastSquares .*got Logistic"),
        (LeastSquares(A, y), Sparse(2, nonnegative=True), "constraint must be Sparse without bounds"),
        (LeastSquares(A, y), jaxht.Groups(2, np.arange(D)), "constraint must be Sparse without bounds .*Groups"),
    ]:
        with pytest.raises(ValueError, match=message):
            jaxht.solve(objective, constraint, LocalSearch())
    with pytest.raises(ValueError, match="k_max must be given"):
        jax.eval_shape(lambda k: jaxht.solve(LeastSquares(A, y), Sparse(k), LocalSearch()), 2)
    with pytest.raises(ValueError, match="num_starts must be an int of at least 1; got 0"):
        jaxht.solve(LeastSquares(A, y), Sparse(2), LocalSearch(num_starts=0))
