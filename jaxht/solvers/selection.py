"""Selections of items in greedy solvers: the item of the largest score, the number of items, and a
swap of two."""

import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array
from jaxht.constraints import SelectionConstraint


def best_item(scores: Array, among: Array) -> Array:
    """Select the item of the largest score in ``among``, the first of equal ones; none if ``among``
    is empty.

    Args:
        scores: one for each item, real.
        among: bool, shaped like scores: the items that may be selected.

    Returns:
        bool, shaped like scores: True for one item at most.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.solvers.selection import best_item
        >>> best_item(jnp.array([1.0, 4.0, 3.0]), jnp.array([True, False, True])).tolist()
        [False, False, True]
    """
    best = jnp.argmax(jnp.where(among, scores, -jnp.inf))
    selected = (lax.iota(jnp.int32, scores.size) == best.astype(jnp.int32)).reshape(scores.shape)
    return selected & among


def count(selected: Array) -> Array:
    """The number of selected items, int32."""
    return jnp.sum(selected, dtype=jnp.int32)


def is_full(constraint: SelectionConstraint, selected: Array) -> Array:
    """Whether no item may join the selection."""
    full = count(selected) >= constraint.limit
    if constraint.is_uniform:
        return full
    return full | ~jnp.any(constraint.joinable(selected))


def best_swap(
    constraint: SelectionConstraint, selected: Array, scores: Array, sizes: Array
) -> Array:
    """The selection after the item of the largest score has joined and, where it does not fit in
    otherwise, that of the least size has left.

    Args:
        constraint: prepared.
        selected: bool, the selected items.
        scores: of the items that may join, shaped like items.
        sizes: of the items that may leave, shaped like items.
    """
    movable = selected & ~constraint.always_active
    entering = best_item(scores, constraint.joinable(selected & ~movable) & ~selected)
    leaving = best_item(-sizes, movable & constraint.leavable(selected, entering))
    return swap(constraint, selected, entering, leaving)


def swap(
    constraint: SelectionConstraint, selected: Array, entering: Array, leaving: Array
) -> Array:
    """Add the entering item; where it does not fit in otherwise, as where k items are selected
    already, remove the leaving one.

    If it does not fit in and none leaves, the selection does not change.
    """
    full = is_full(constraint, selected)
    possible = ~full | jnp.any(leaving)
    if not constraint.is_uniform:
        full |= ~jnp.any(entering & constraint.joinable(selected))
        possible = jnp.any(entering) & (~full | jnp.any(leaving))
    return jnp.where(possible, (selected & ~(leaving & full)) | entering, selected)
