"""What the transformations share: where the inner update leads, and numbers that follow the step."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from chex import Array, ArrayTree, Numeric
from jax import lax

Schedule: TypeAlias = Callable[[Numeric], Any]
Mask: TypeAlias = Any | Callable[[ArrayTree], Any]  # a pytree of bool


class Step(NamedTuple):
    """State of a projection without memory.

    Attributes:
        count: int32, steps taken.
    """

    count: Array


def is_function(value: Any) -> bool:
    """Whether to call it; a pytree that can be called, such as a module, is a pytree."""
    return callable(value) and jax.tree_util.treedef_is_leaf(jax.tree.structure(value))


def at_step(value: Any, step: Numeric) -> Any:
    """``value``, or what it gives for the step if it is a schedule."""
    return value(step) if is_function(value) else value


def check_every(every: Any) -> None:
    """Raise ValueError unless ``every`` can be a number of steps."""
    if not jnp.issubdtype(jnp.result_type(every), jnp.integer) or jnp.ndim(every) != 0:
        raise ValueError(f"every must be an integer; got {every!r}")
    if not isinstance(every, jax.core.Tracer) and every < 1:
        raise ValueError(f"every must be at least 1; got {every}")


def is_masked(node: Any) -> bool:
    """Whether ``optax.masked`` has put this in the place of an array."""
    return isinstance(node, optax.MaskedNode)


def masked(transform: optax.GradientTransformation, mask: Mask | None) -> optax.GradientTransformation:
    """``transform`` of the arrays that the mask marks True, the others left alone; of all if there is none."""
    if mask is None:
        return transform
    return optax.masked(transform, mask if is_function(mask) else lambda _: mask)


def check_given(params: ArrayTree | None) -> None:
    """Raise ValueError if ``update`` was called without the parameters."""
    if params is None:
        raise ValueError("a projection needs the parameters: call update(updates, state, params)")


def moved(params: ArrayTree | None, updates: ArrayTree) -> ArrayTree:
    """What ``optax.apply_updates`` will make of the parameters."""
    check_given(params)
    return jax.tree.map(lambda p, u: (p + u).astype(p.dtype), params, updates)


def in_common(p: Array, u: Array) -> tuple[Array, Array]:
    """Both in the dtype that holds both exactly, so that u can be -p, and ``p + u`` exactly zero."""
    common = jnp.promote_types(p.dtype, u.dtype)
    return p.astype(common), u.astype(common)


def projection(
    project: Callable[[ArrayTree, Any], ArrayTree], value: Any, every: Numeric
) -> optax.GradientTransformation:
    """The transformation ``u -> project(p + u, value) - p`` in each ``every``-th step.

    Entries that the projection leaves as they are keep their update to the last bit, and those that it sets to zero
    become exactly zero.
    """
    check_every(every)

    def init(params: ArrayTree) -> Step:
        del params
        return Step(jnp.zeros((), jnp.int32))

    def update(updates: ArrayTree, state: Step, params: ArrayTree | None = None) -> tuple[ArrayTree, Step]:
        def step_to(p: Array, u: Array, q: Array, target: Array) -> Array:
            p, u = in_common(p, u)
            return jnp.where(target == q, u, target.astype(p.dtype) - p)

        q = moved(params, updates)
        target = on_turn(
            (state.count + 1) % every == 0, every, lambda: project(q, at_step(value, state.count)), lambda: q
        )
        return jax.tree.map(step_to, params, updates, q, target), Step(optax.safe_increment(state.count))

    return optax.GradientTransformation(init, update)


def on_turn(due: Array, every: Numeric, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """``then()`` where it is due, computed only then; without a branch where it always is."""
    return then() if isinstance(every, int) and every == 1 else lax.cond(due, then, otherwise)
