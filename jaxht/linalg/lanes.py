"""Functions whose lanes vmap arranges in another way, one after the other or along one axis, and
branches whose lanes share arrays."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from optax.tree_utils import tree_where

from jaxht._loops import cond
from jaxht._typing import Array

__all__ = ["along_one_axis", "either", "keep_last", "lane_by_lane", "map_lanes"]


def lane_by_lane(function: Callable[..., Any], *, from_size: int = 0) -> Callable[..., Any]:
    """A function of arrays of which vmap computes the lanes one after the other on CPUs, all at
    once elsewhere.

    For functions that call LAPACK (``jnp.linalg.svd``, ``solve`` ...), of which batched calls side
    by side may wait for each other for ever; and for loops over arrays that the caches of a CPU
    hold for one lane, but not for all.

    Args:
        function: pure, of positional pytrees of arrays, to a pytree of arrays.
        from_size: the least size of a lane, in entries of the arrays that have lanes; smaller lanes
            are computed all at once on CPUs as well.

    Returns:
        A function of the same arguments. It has no derivative: give one by ``jax.custom_jvp``.

    Cost: that of the function for each lane; lanes of a CPU share one core.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht.extend import lane_by_lane
        >>> largest = lane_by_lane(lambda x: jnp.linalg.svd(x, compute_uv=False)[0])
        >>> jax.vmap(largest)(jnp.stack([jnp.eye(2), 3 * jnp.eye(2)])).tolist()
        [1.0, 3.0]
    """
    single = custom_vmap(function)

    @single.def_vmap
    def _(axis_size, in_batched, *args):
        args = jax.tree.map(jnp.asarray, args)
        batched = tuple(in_batched)
        # In second derivatives the tangents alone are batched.
        if not any(jax.tree.leaves(batched)):
            return function(*args), jax.tree.map(lambda _: False, jax.eval_shape(function, *args))

        def one_by_one(*args):
            def call(i):
                return single(*jax.tree.map(lambda v, lanes: v[i] if lanes else v, args, batched))

            return lax.map(call, jnp.arange(axis_size))

        at_once = jax.vmap(function, jax.tree.map(lambda lanes: 0 if lanes else None, batched))
        sizes = jax.tree.map(lambda arg, has_lanes: arg.size * has_lanes, args, batched)
        size = sum(jax.tree.leaves(sizes))
        if size < axis_size * from_size:
            result = at_once(*args)
        else:
            result = lax.platform_dependent(*args, cpu=one_by_one, default=at_once)
        return result, jax.tree.map(lambda _: True, result)

    return single


def along_one_axis(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of an array and of other arrays that vmap gives all lanes along one axis, however
    many times it is vmapped.

    Args:
        function: of an array (rows, ...) and of others (lanes, ...), to a tuple of arrays (lanes,
            ...). Lanes ``i m`` to ``i m + m - 1`` share the i-th row, with m lanes a row: what
            many lanes share is there once.

    Returns:
        A function of the same arguments without these axes. It has no derivative.

    Cost: that of the function.
    """

    @custom_vmap
    def many(shared, *others):
        return function(shared, *others)

    @many.def_vmap
    def _(axis_size, in_batched, shared, *others):
        has_rows, *batched = in_batched
        rows = shared.shape[1 if has_rows else 0]
        lanes = others[0].shape[1 if batched[0] else 0]
        a_row = lanes // rows

        def merge(other, has_axis):
            """Make one axis of the new one and that of lanes, those of a row beside each other."""
            if not has_axis:
                other = jnp.broadcast_to(other, (axis_size, *other.shape))
            rest = other.shape[2:]
            if not has_rows:
                other = jnp.swapaxes(other.reshape(axis_size, rows, a_row, *rest), 0, 1)
            return other.reshape(axis_size * lanes, *rest)

        def split(found):
            rest = found.shape[1:]
            if not has_rows:
                found = jnp.swapaxes(found.reshape(rows, axis_size, a_row, *rest), 0, 1)
            return found.reshape(axis_size, lanes, *rest)

        if has_rows:
            shared = shared.reshape(axis_size * rows, *shared.shape[2:])
        found = jax.tree.map(split, many(shared, *map(merge, others, batched)))
        return found, jax.tree.map(lambda _: True, found)

    def single(shared, *others):
        found = many(shared[None], *[other[None] for other in others])
        return jax.tree.map(lambda v: v[0], found)

    return single


def map_lanes(function: Callable[..., Any], shared: Array, *others: Array) -> Any:
    """A function of an array and of others for all lanes of :func:`along_one_axis`, each with its
    row."""
    rows = shared.shape[0]
    lanes = others[0].shape[0] // rows

    def map_row(row, *others):
        if lanes == 1:
            return jax.tree.map(lambda v: v[None], function(row, *[v[0] for v in others]))
        return jax.vmap(functools.partial(function, row))(*others)

    by_row = [other.reshape(rows, lanes, *other.shape[1:]) for other in others]
    if rows == 1:
        return map_row(shared[0], *[other[0] for other in by_row])
    found = jax.vmap(map_row)(shared, *by_row)
    return jax.tree.map(lambda v: v.reshape(rows * lanes, *v.shape[2:]), found)


def either(
    condition: Array, then: Callable[..., Any], otherwise: Callable[..., Any], *args: Any
) -> Any:
    """``then(*args)`` where a condition holds, elsewhere ``otherwise(*args)``: ``lax.cond`` for
    functions of arrays that lanes may share.

    One run alone computes one of them. Lanes under vmap compute both, and arrays without lanes stay
    so; ``lax.cond`` would copy a shared design once for every lane.

    Args:
        condition: bool, a scalar.
        then: pure, of all of args; must not use traced values of its surroundings.
        otherwise: a function like ``then``, to a pytree of the same shapes and dtypes.
        args: pytrees of arrays.

    Returns:
        The value of one of the functions. Reverse mode does not pass through it.

    Cost: that of one function; under vmap of both.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.linalg.lanes import either
        >>> int(either(jnp.array(True), lambda x: x + 1, lambda x: x, jnp.array(1)))
        2
    """

    @custom_vmap
    def choose(condition, *args):
        return cond(condition, then, otherwise, *args)

    @choose.def_vmap
    def _(axis_size, in_batched, condition, *args):
        has_own_condition, *batched = in_batched
        axes = jax.tree.map(lambda lanes: 0 if lanes else None, tuple(batched))

        def over_lanes(function):
            return jax.vmap(function, axes, axis_size=axis_size)

        if not has_own_condition:
            result = either(condition, over_lanes(then), over_lanes(otherwise), *args)
        else:
            first = over_lanes(then)(*args)
            second = over_lanes(otherwise)(*args)
            result = jax.vmap(tree_where)(condition, first, second)
        return result, jax.tree.map(lambda _: True, result)

    return choose(condition, *args)


def keep_last(*args: Any) -> Any:
    """The last argument: what stays as it is, where :func:`either` has no other function."""
    return args[-1]
