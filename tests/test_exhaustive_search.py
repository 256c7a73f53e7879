"""The enumeration of all supports, against a loop over them in NumPy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import ExhaustiveSearch, Sparse, Stop
from jaxht.solvers.exhaustive_search import Combinations
from tests.util import precision


def data(n=25, d=9, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d)) + rng.standard_normal((n, 1))
    return A, A[:, :3].sum(axis=1) + rng.standard_normal(n)


def best_by_loop(A, y, k, always=()):
    """The support of the least sum of squares, and that sum over 2 n."""
    least, best = np.inf, None
    for S in itertools.combinations(range(A.shape[1]), k):
        if set(always) <= set(S):
            r = y - A[:, S] @ np.linalg.lstsq(A[:, S], y, rcond=None)[0]
            if r @ r < least:
                least, best = r @ r, list(S)
    return best, least / 2 / len(y)


@pytest.mark.parametrize("k", [0, 1, 4, 8, 9])
def test_it_finds_the_best_support(k):
    with precision("float64"):
        A, y = data()
        result = jaxht.solve(jaxht.LeastSquares(A, y), Sparse(k), ExhaustiveSearch())
        best, value = best_by_loop(A, y, k)
        assert result.support.numpy().tolist() == best and result.reason == "FINISHED"
        np.testing.assert_allclose(result.value, value, rtol=1e-10)


def test_what_is_kept_is_in_every_support_and_zeros_in_none():
    with precision("float64"):
        A, y = data(seed=1)
        A[:, 2] = 0
        keep = np.isin(np.arange(9), [5, 7])
        result = jaxht.solve(jaxht.LeastSquares(A, y), Sparse(4, keep=keep), ExhaustiveSearch())
        rest = [0, 1, 3, 4, 5, 6, 7, 8]
        best, value = best_by_loop(A[:, rest], y, 4, always=[4, 6])
        assert result.support.numpy().tolist() == [rest[i] for i in best]
        np.testing.assert_allclose(result.value, value, rtol=1e-10)


def test_other_losses_and_groups():
    """They agree with the search over all supports that refits on each."""
    with precision("float64"):
        A, y = data(seed=2)
        f = jaxht.Logistic(A, np.sign(y), 0.01)
        for constraint in (
            Sparse(3),
            jaxht.Groups(2, np.arange(9) // 2),
            Sparse(3, bounds=(-1, 1)),
        ):
            result = jaxht.solve(f, constraint, ExhaustiveSearch())
            best = jaxht.exhaustive_search(f, constraint)
            np.testing.assert_allclose(result.x, best.x, atol=1e-8)
            assert result.reason == "FINISHED"


def test_lanes_and_a_traced_k():
    A, y = data(seed=3)
    f = jaxht.LeastSquares(jnp.asarray(A, jnp.float32), jnp.asarray(y, jnp.float32))
    ks = jnp.array([1, 2, 5])
    lanes = jax.vmap(lambda k: jaxht.solve(f, Sparse(k, k_max=5), ExhaustiveSearch()))(ks)
    for k, mask in zip(ks.tolist(), lanes.support.mask, strict=True):
        assert np.flatnonzero(mask).tolist() == best_by_loop(A, y, k)[0]


def test_a_run_that_is_cut_off_says_so():
    A, y = data()
    f = jaxht.LeastSquares(A.astype(np.float32), y.astype(np.float32))
    result = jaxht.solve(f, Sparse(4), ExhaustiveSearch(), stop=Stop(max_steps=1))
    assert result.reason == "MAX_STEPS"  # 64 of 126 supports


def test_it_needs_coordinates():
    response = jaxht.MultiResponse(jnp.eye(4), jnp.ones((4, 3)))
    with pytest.raises(ValueError):
        jaxht.solve(response, jaxht.LowRank(1), ExhaustiveSearch())


def test_sets_are_in_lexicographic_order():
    kept = jnp.array([False, True, False, False, False, False])
    empty = jnp.array([False, False, False, True, False, False])
    sets = Combinations.of(kept, empty, 3, 4)
    assert int(sets.number) == 6
    masks = jax.vmap(sets.unrank)(jnp.arange(6))
    found = [np.flatnonzero(mask).tolist() for mask in masks]
    expected = [sorted([1, *pair]) for pair in itertools.combinations([0, 2, 4, 5], 2)]
    assert found == expected


def test_it_is_the_default_where_there_are_few_supports():
    A, y = data()
    f = jaxht.LeastSquares(A.astype(np.float32), y.astype(np.float32))
    assert jaxht.solve(f, Sparse(4)).solver == "ExhaustiveSearch()"
    keep = np.arange(9) < 4
    assert str(jaxht.default_solver(f, Sparse(5, keep=keep))) == "ExhaustiveSearch()"
    wide = jaxht.LeastSquares(np.ones((20, 60), np.float32), y[:20].astype(np.float32))
    assert "LocalSearch" in str(jaxht.default_solver(wide, Sparse(5)))
