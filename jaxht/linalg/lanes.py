"""Functions of which vmap computes the lanes one after the other on CPUs."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap


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
    def _(axis_size: int, in_batched: list[Any], *args: Any) -> tuple[Any, Any]:
        args, batched = jax.tree.map(jnp.asarray, args), tuple(in_batched)
        if not any(
            jax.tree.leaves(batched)
        ):  # of second derivatives, whose tangents alone are batched
            return function(*args), jax.tree.map(lambda _: False, jax.eval_shape(function, *args))

        def one_by_one(*args: Any) -> Any:
            def call(i: Any) -> Any:
                return single(
                    *jax.tree.map(
                        lambda arg, has_lanes: arg[i] if has_lanes else arg, args, batched
                    )
                )

            return lax.map(call, jnp.arange(axis_size))

        at_once = jax.vmap(
            function, jax.tree.map(lambda has_lanes: 0 if has_lanes else None, batched)
        )
        size = sum(
            jax.tree.leaves(
                jax.tree.map(lambda arg, has_lanes: arg.size * has_lanes, args, batched)
            )
        )
        if size < axis_size * from_size:
            result = at_once(*args)
        else:
            result = lax.platform_dependent(*args, cpu=one_by_one, default=at_once)
        return result, jax.tree.map(lambda _: True, result)

    return single
