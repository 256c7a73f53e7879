"""Functions of which vmap computes the lanes one after the other on CPUs."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

__all__ = ["lane_by_lane"]


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
