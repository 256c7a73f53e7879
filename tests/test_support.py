"""Supports as masks and as lists of indices, next to NumPy's own indexing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxht.constraints.support import Support
from tests.util import quick

D = 7
SETS = [[], [0], [6], [0, 6], [1, 2, 5], [2, 3, 4, 6]]


def support(indices, k_max=None):
    return Support(jnp.zeros(D, bool).at[jnp.array(indices, int)].set(True), k_max=k_max)


@pytest.mark.parametrize("k_max", [4, 5, D])
def test_gather_and_scatter(k_max):
    v = np.arange(1.0, D + 1, dtype=np.float32)

    @quick
    def both(region, v):
        gathered = region.gather(v, region.indices)
        return region.indices, gathered, region.scatter(gathered, region.indices), region.size

    for F in SETS:
        indices, gathered, scattered, size = both(support(F, k_max), v)
        padding = k_max - len(F)
        np.testing.assert_array_equal(indices, F + [D] * padding)
        np.testing.assert_array_equal(gathered, [*v[F], *[0] * padding])
        np.testing.assert_array_equal(scattered, np.where(np.isin(range(D), F), v, 0))
        assert size == len(F) and size.dtype == jnp.int32 and indices.dtype == jnp.int32


def test_padding_is_never_read_nor_written():
    region = support([1, 2], 4)
    np.testing.assert_array_equal(
        region.gather(jnp.full(D, jnp.nan), region.indices), [jnp.nan, jnp.nan, 0, 0]
    )
    np.testing.assert_array_equal(
        region.scatter(jnp.array([5.0, 6.0, jnp.nan, jnp.nan]), region.indices),
        [0, 5, 6, 0, 0, 0, 0],
    )


def test_lanes_of_different_size():
    masks = jnp.stack([support(F).mask for F in SETS])
    v = np.arange(1.0, D + 1, dtype=np.float32)

    @quick
    @jax.vmap
    def both(mask):
        region = Support(mask, k_max=4)
        return region.gather(jnp.asarray(v), region.indices), region.scatter(
            jnp.ones(4), region.indices
        )

    gathered, back = both(masks)
    for lane, F in enumerate(SETS):
        np.testing.assert_array_equal(gathered[lane], [*v[F], *[0] * (4 - len(F))])
    np.testing.assert_array_equal(back, masks)


def test_union_and_equality():
    for F in SETS:
        for G in SETS:
            union = support(F, 4).union(support(G, 4))
            np.testing.assert_array_equal(np.flatnonzero(union.mask), sorted({*F, *G}))
            assert union.k_max == D  # 8, cut to d
            assert union.indices.tolist() == sorted({*F, *G}) + [D] * (D - len({*F, *G}))
            assert bool(support(F, 4).equals(support(G, 5))) == (F == G)
    assert support([0], 1).union(support([5], 2)).k_max == 3
    assert support([0], 1).union(support([5])).k_max is None


def test_indices_are_known_only_where_k_max_is():
    assert support([3, 1], 3).indices.tolist() == [1, 3, D]
    unbounded = support([3])
    assert unbounded.indices is None
    with pytest.raises(ValueError, match=r"k_max must be given.*Sparse\(k, k_max="):
        unbounded.require_indices()
