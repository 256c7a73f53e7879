"""Dataclasses as pytrees: what is traced, what is static, and what a call's numbers are cast to."""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht._dataclass import as_dtype, cast_numbers, integer, pytree, static


@pytree
class Inner:
    rate: Any
    count: Any = integer(0)


@pytree
class Outer:
    inner: Inner
    weights: Any
    flag: Any = None
    size: int = static(3)
    table: Any = integer(None)


def outer(number=1, **changes):
    return dataclasses.replace(
        Outer(Inner(number, number), {"a": number, "b": [number, number]}), **changes
    )


@pytree
class Twin:
    rate: Any
    count: Any = integer(0)


def test_classes_of_the_same_fields_are_told_apart():
    """Else jit runs, now and then, the program of the one on the other: its cache asks whether
    structures are equal."""
    assert jax.tree.structure(Inner(1)) == jax.tree.structure(Inner(2))
    assert jax.tree.structure(Inner(1)) != jax.tree.structure(Twin(1))
    solvers = [
        jaxht.OMPR(),
        jaxht.ExhaustiveLocalSearch(),
        jaxht.HTP(),
        jaxht.OMP(),
        jaxht.SubspacePursuit(),
    ]
    A, y = np.ones((2, 2)), np.ones(2)
    objectives = [
        make(A, y) for make in (jaxht.Hinge, jaxht.SquaredHinge, jaxht.Poisson, jaxht.MultiResponse)
    ]
    for nodes in (solvers, objectives):
        for a, b in itertools.combinations(map(jax.tree.structure, nodes), 2):
            assert a != b


def test_leaves_are_the_fields_not_declared_static():
    tree = outer(2, size=7)
    assert jax.tree.leaves(tree) == [2] * 5
    doubled = jax.tree.map(lambda leaf: 2 * leaf, tree)
    assert isinstance(doubled, Outer) and isinstance(doubled.inner, Inner)
    assert (doubled.inner.rate, doubled.weights, doubled.size, doubled.flag) == (
        4,
        {"a": 4, "b": [4, 4]},
        7,
        None,
    )
    assert jax.tree.structure(tree) != jax.tree.structure(outer(2, size=8))
    assert "rate" in jax.tree_util.keystr(jax.tree_util.tree_flatten_with_path(tree)[0][0][0])


def test_are_frozen_and_equal_only_to_themselves():
    tree = outer(np.ones(2))
    with pytest.raises(dataclasses.FrozenInstanceError):
        tree.size = 4
    assert tree == tree and tree != outer(np.ones(2))
    assert len({tree, tree, outer()}) == 2


def test_one_compile_for_all_numbers_and_one_for_each_static_value():
    traces = []

    @jax.jit
    def total(tree):
        traces.append(None)
        return sum(jax.tree.leaves(tree)) + tree.size

    numbers = (
        1,
        2.5,
        np.float64(3),
        np.int8(4),
        jnp.float32(5),
        jnp.int32(6),
        np.array(7),
        jnp.asarray(8.0),
    )
    for number in numbers:
        expected = int(number) + 4 * float(number) + 3
        assert total(cast_numbers(outer(number), jnp.float32)) == expected
    assert len(traces) == 1
    total(cast_numbers(outer(1, size=4), jnp.float32))
    assert len(traces) == 2


def test_numbers_are_cast_by_declaration(dtype):
    for number in (True, 1, 1.0, np.float16(1), np.ones(2, np.int64), jnp.ones(2), jnp.int32(1)):
        tree = cast_numbers(outer(number, flag=np.array([True]), table=[1, 2.0]), dtype)
        boolean = jnp.result_type(number) == jnp.bool_
        for leaf in (tree.inner.rate, tree.weights["a"], *tree.weights["b"]):
            assert leaf.dtype == (np.bool_ if boolean else dtype) and jnp.shape(leaf) == jnp.shape(
                number
            )
            assert not getattr(leaf, "weak_type", False)
        assert tree.inner.count.dtype == (np.bool_ if boolean else np.int32)
        assert [leaf.dtype for leaf in tree.table] == [np.int32] * 2
        assert tree.flag.dtype == np.bool_ and tree.size == 3 and type(tree.size) is int
    assert cast_numbers(outer(1), dtype).flag is None


def test_arrays_stay_where_they_are():
    on_device, on_host = jnp.ones(3), np.ones(3, np.float32)
    assert as_dtype(on_device, jnp.float32) is on_device
    assert isinstance(as_dtype(on_host, jnp.float32), np.ndarray)
    assert isinstance(as_dtype(2, jnp.float32), np.ndarray)
    traced = jax.make_jaxpr(lambda x: as_dtype(x, jnp.float32))(jnp.int32(1))
    assert traced.out_avals[0].dtype == jnp.float32


def test_rebuild_with_anything_in_the_fields():
    """JAX puts axis numbers, None and tracers there."""
    tree = outer(jnp.arange(3.0))
    axes = jax.tree.map(lambda _: 0, tree)
    doubled = jax.vmap(lambda tree: jax.tree.map(lambda leaf: 2 * leaf, tree), (axes,))(tree)
    np.testing.assert_array_equal(doubled.weights["b"][1], [0, 2, 4])
    assert jax.eval_shape(lambda tree: tree, tree).inner.rate.shape == (3,)
    custom = cast_numbers(
        outer("x"), jnp.float32, convert=lambda leaf, dtype: (leaf, jnp.dtype(dtype).name)
    )
    assert custom.inner.rate == ("x", "float32") and custom.inner.count == ("x", "int32")
