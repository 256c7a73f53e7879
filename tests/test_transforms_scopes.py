"""Which entries the transforms keep: NumPy loops for every scope; counts, fractions and masks."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxht import transforms
from jaxht.transforms import NM, Axis, Blocks, hard_threshold
from jaxht.transforms.scope import count_kept
from tests import reference
from tests.pytrees import nonzeros, sizes, tree
from tests.util import quick


def loop_threshold(z, k):
    return reference.hard_threshold(z, k)


def by_loops(params, k, scope):
    """H_k of a pytree of NumPy arrays, in plain loops."""
    leaves, structure = jax.tree.flatten(params)
    if scope == "global":
        flat = loop_threshold(np.concatenate([leaf.ravel() for leaf in leaves]), k)
        pieces = np.split(flat, np.cumsum([leaf.size for leaf in leaves])[:-1])
        return jax.tree.unflatten(
            structure, [p.reshape(leaf.shape) for p, leaf in zip(pieces, leaves, strict=True)]
        )

    def one(z):
        if scope == "leaf":
            return loop_threshold(z.ravel(), k).reshape(z.shape)
        if isinstance(scope, Axis):
            return np.apply_along_axis(loop_threshold, scope.axis, z, k)
        if isinstance(scope, NM):
            return np.apply_along_axis(
                lambda v: np.concatenate([loop_threshold(g, k) for g in v.reshape(-1, scope.m)]),
                scope.axis,
                z,
            )
        out, (a, b) = np.zeros_like(z), scope.shape
        corners = [
            (*lead, slice(i, i + a), slice(j, j + b))
            for lead in np.ndindex(z.shape[:-2])
            for i in range(0, z.shape[-2], a)
            for j in range(0, z.shape[-1], b)
        ]
        norms = np.array([np.sum(z[corner].astype(np.float64) ** 2) for corner in corners])
        for i in np.flatnonzero(loop_threshold(norms, k)):
            out[corners[i]] = z[corners[i]]
        return out

    return jax.tree.map(one, params)


SCOPES = ["leaf", "global", Axis(0), Axis(-1), Axis(-2), NM(4, -1), NM(2, 0), Blocks((2, 4))]


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.int16])
@pytest.mark.parametrize("scope", ["leaf", "global"])
def test_a_traced_k_of_few_bits(dtype, scope):
    """Whose dtype does not hold the number of entries."""
    params = jnp.asarray(np.random.default_rng(0).normal(size=(20, 50)), jnp.float32)
    ks = jnp.array([0, 10, 100], dtype)
    pruned = jax.vmap(lambda k: transforms.prune(params, k, scope=scope))(ks)
    assert np.count_nonzero(pruned, axis=(1, 2)).tolist() == [0, 10, 100]


@pytest.mark.parametrize(
    ("scope", "dtype"),
    [
        *((scope, "float32") for scope in SCOPES),
        *((scope, "bfloat16") for scope in ("leaf", "global", SCOPES[-1])),
    ],
    ids=str,
)
def test_prune_is_the_loop(scope, dtype):
    rng = np.random.default_rng(0)
    params = {
        "a": rng.standard_normal((8, 16)),
        "b": [rng.standard_normal((2, 4, 8)), rng.standard_normal((6, 4))],
    }
    whole = jax.tree.map(lambda z: np.round(2 * z), params)  # many ties, many zeros
    prune = quick(lambda params, k: transforms.prune(params, k, scope=scope))
    # The squares of the loop are not scaled: ties of blocks may differ.
    for values in [params] if isinstance(scope, Blocks) else [params, whole]:
        values = jax.tree.map(lambda z: np.asarray(z, jnp.dtype(dtype)), values)
        for k in (0, 1, 2, 3, 30, 1000):
            want = by_loops(jax.tree.map(lambda z: np.asarray(z, np.float64), values), k, scope)
            got = jax.tree.map(lambda z: np.asarray(z, np.float64), prune(values, np.int32(k)))
            jax.tree.map(
                functools.partial(np.testing.assert_array_equal, err_msg=f"k = {k}"), got, want
            )


def test_global_scope_mixes_dtypes_and_breaks_ties_in_order():
    params = [
        jnp.array([1.0, -2.0], "bfloat16"),
        jnp.array([2.0, 1.0], "float32"),
        jnp.zeros((0, 3)),
        jnp.array(2.0),
    ]
    for k, want in (
        (1, [[0, -2], [0, 0], 0]),
        (2, [[0, -2], [2, 0], 0]),
        (3, [[0, -2], [2, 0], 2]),
    ):
        got = transforms.prune(params, k, scope="global")
        assert [np.asarray(z, float).tolist() for z in (got[0], got[1], got[3])] == want
        assert got[0].dtype == jnp.bfloat16


def test_fraction_is_rounded_to_the_nearest_count():
    params, traced = tree(0), quick(transforms.prune)
    for fraction in (0.0, 0.05, 0.5, 1.0):
        want = [int(fraction * size + 0.5) for size in sizes(params)]
        assert nonzeros(traced(params, fraction)) == want
        for number in (fraction, np.float32(fraction), jnp.float32(fraction)):
            assert [int(count_kept(number, size)) for size in sizes(params)] == want


def test_counts_beyond_two_to_the_24():
    """A float32 count stands still at 2^24."""
    z = jnp.ones((2**12 + 3, 2**12), jnp.bfloat16)

    @jax.jit
    def prune(z, k):
        kept = transforms.prune(z, k, scope="global")
        return kept.reshape(-1) != 0, transforms.sparsity(kept).nonzeros

    for k in (2**24 + 1, 2**24 + 12_001):
        flat, nonzeros = map(np.asarray, prune(z, k))
        assert flat[:k].all() and not flat[k:].any()
        assert nonzeros == k


def test_k_for_each_array():
    params = tree(0)
    ks = jax.tree.map(lambda p: min(p.size, p.ndim), params)
    tx = hard_threshold(ks)
    updates, _ = quick(tx.update)(jax.tree.map(jnp.zeros_like, params), tx.init(params), params)
    assert nonzeros(optax.apply_updates(params, updates)) == jax.tree.leaves(ks)
    # A pytree for all arrays also where optax.masked hides some.
    mask = jax.tree.map(lambda p: p.ndim >= 2, params)
    new = quick(lambda params: transforms.prune(params, ks, mask=mask))(params)
    want = [
        k if m else s
        for k, m, s in zip(*map(jax.tree.leaves, (ks, mask)), nonzeros(params), strict=True)
    ]
    assert nonzeros(new) == want


def test_k_and_mask_may_be_pytrees_that_can_be_called():
    """As modules are whose fields are the parameters."""

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Module:
        w: Any
        b: Any

        def __call__(self, x):
            raise AssertionError("a pytree is not a schedule")

    params = Module(jnp.arange(1.0, 7.0).reshape(2, 3), jnp.ones(4))
    assert nonzeros(transforms.prune(params, Module(2, 0.5))) == [2, 2]
    assert nonzeros(transforms.prune(params, 2, mask=Module(True, False))) == [2, 4]
    assert float(transforms.sparsity(params, mask=Module(True, False)).total) == 0
    assert nonzeros(transforms.prune(params, Module([2], 0.5))) == [2, 2]  # a number in a box
    with pytest.raises(ValueError, match=r"k must be one number for \.w; got \[2, 3\]"):
        transforms.prune(params, Module([2, 3], 0.5))


def test_norms_of_blocks_are_relative_to_each_block():
    params = jnp.array([[1.0, 1.0], [5.0, 5.0], [jnp.inf, 0], [2.0, 2.0]])
    mask = transforms.prune(params, 2, scope=Blocks((1, 2))) != 0
    np.testing.assert_array_equal(np.any(mask, axis=1), [False, True, True, False])
    params = jnp.array([[1e-25, 1e-25], [1e-22, 1e-22], [1e3, 1.0], [1e-23, 1e-23]], jnp.float32)
    mask = transforms.prune(params, 2, scope=Blocks((1, 2))) != 0
    np.testing.assert_array_equal(np.any(mask, axis=1), [False, True, True, False])
    largest = float(jnp.finfo(jnp.float32).max)
    params = jnp.array([[largest, 1.0], [largest, largest]])
    mask = transforms.prune(params, 1, scope=Blocks((1, 2))) != 0
    np.testing.assert_array_equal(np.any(mask, axis=1), [False, True])


@pytest.mark.parametrize("size", [7, 2**24 + 1, 2**25 + 3])
def test_the_traced_fraction_1_keeps_all(size):
    assert int(jax.jit(lambda k: count_kept(k, size))(1.0)) == size == count_kept(1.0, size)
