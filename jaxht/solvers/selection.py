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


def swap(
    constraint: SelectionConstraint, selected: Array, entering: Array, leaving: Array
) -> Array:
    """Add the entering item; if k items are selected already, remove the leaving one.

    If k items are selected and none leaves, the selection does not change.
    """
    full = count(selected) >= constraint.limit
    possible = ~full | jnp.any(leaving)
    return jnp.where(possible, (selected & ~(leaving & full)) | entering, selected)
