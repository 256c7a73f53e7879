"""What the transformations share: schedules, masks, and the form ``u -> project(p + u) - p``."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from jaxht._checks import known_values
from jaxht._loops import cond
from jaxht._meshes import shard_like_first
from jaxht._typing import Array, ArrayTree, Leaf, Numeric

Schedule: TypeAlias = Callable[[Numeric], Any]
Mask: TypeAlias = Any | Callable[[ArrayTree], Any]  # a pytree of bool


class ProjectionState(NamedTuple):
    """State of a projection without memory.

    Attributes:
        count: int32, steps taken.
    """

    count: Leaf


def is_function(value: Any) -> bool:
    """Whether to call it; a pytree that can be called, such as a module, is a pytree."""
    return callable(value) and jax.tree_util.treedef_is_leaf(jax.tree.structure(value))


def evaluate_schedule(value: Any, step: Numeric) -> Any:
    """``value``, or what it gives for the step if it is a schedule."""
    return value(step) if is_function(value) else value


def check_every(every: Any) -> None:
    """Raise ValueError unless ``every`` can be a number of steps."""
    if (
        isinstance(every, str)
        or not jnp.issubdtype(jnp.result_type(every), jnp.integer)
        or jnp.ndim(every) != 0
    ):
        raise ValueError(f"every must be an integer; got {every!r}")
    known = known_values(every)
    if known is not None and known < 1:
        raise ValueError(f"every must be at least 1; got {every}")


def check_params(params: ArrayTree | None) -> None:
    """Raise ValueError if ``update`` was called without the parameters."""
    if params is None:
        raise ValueError("a projection needs the parameters: call update(updates, state, params)")


def check_inexact(params: ArrayTree, name: str) -> None:
    """Raise ValueError for an array that is neither floating nor complex, with its path."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        dtype = jnp.result_type(leaf)
        if not jnp.issubdtype(dtype, jnp.inexact):
            raise ValueError(
                f"{name} is of floating or complex arrays; "
                f"{jax.tree_util.keystr(path) or 'params'} has dtype {dtype}: leave it out by mask"
            )


def is_masked(node: Any) -> bool:
    """Whether ``optax.masked`` has put this in the place of an array."""
    return isinstance(node, optax.MaskedNode)


def apply_mask(
    transform: optax.GradientTransformation, mask: Mask | None
) -> optax.GradientTransformation:
    """``transform`` of the arrays that the mask marks True, the others left alone; of all if there
    is no mask."""
    if mask is None:
        return transform
    return optax.masked(transform, mask if is_function(mask) else lambda _: mask)


def promote(p: Array, u: Array) -> tuple[Array, Array]:
    """Both in the dtype that holds both exactly, so that u can be -p, and ``p + u`` exactly
    zero."""
    common = jnp.result_type(p, u)
    return jnp.asarray(p, common), jnp.asarray(u, common)


def run_if_due(
    is_due: Array, every: Numeric, then: Callable[[], Any], otherwise: Callable[[], Any]
) -> Any:
    """``then()`` where it is due, computed only then; without a branch where it always is."""
    return then() if isinstance(every, int) and every == 1 else cond(is_due, then, otherwise)


def make_projection(
    project: Callable[[ArrayTree, Any], ArrayTree], value: Any, every: Numeric
) -> optax.GradientTransformation:
    """The transformation ``u -> project(p + u, value) - p`` in each ``every``-th step.

    Entries that the projection leaves as they are keep their update to the last bit, and those that
    it sets to zero become exactly zero.
    """
    check_every(every)
    project = shard_like_first(project)

    def init(params: ArrayTree) -> ProjectionState:
        del params
        return ProjectionState(jnp.zeros((), jnp.int32))

    def update(
        updates: ArrayTree, state: ProjectionState, params: ArrayTree | None = None
    ) -> tuple[ArrayTree, ProjectionState]:
        def step_to(p: Array, u: Array, q: Array, target: Array) -> Array:
            p, u = promote(p, u)
            return jnp.where(target == q, u, target.astype(p.dtype) - p)

        check_params(params)
        q = optax.apply_updates(params, updates)
        is_due = (state.count + 1) % every == 0
        target = run_if_due(
            is_due, every, lambda: project(q, evaluate_schedule(value, state.count)), lambda: q
        )
        new_updates = jax.tree.map(step_to, params, updates, q, target)
        return new_updates, ProjectionState(optax.safe_increment(state.count))

    return optax.GradientTransformation(init, update)
