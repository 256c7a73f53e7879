"""Selections of items as greedy solvers make them: the best one, one for another, and a start by matching pursuit."""

import jax.numpy as jnp
from chex import Array
from jax import lax

from jaxht.constraints import SelectionConstraint


def best_item(scores: Array, among: Array) -> Array:
    """The item of the largest score among some, the first of equal ones, as a selection; none where there are none."""
    place = jnp.argmax(jnp.where(among, scores, -jnp.inf))
    selected = (lax.iota(jnp.int32, scores.size) == place.astype(jnp.int32)).reshape(scores.shape)
    return selected & among


def count(selected: Array) -> Array:
    """How many items are selected, int32."""
    return jnp.sum(selected, dtype=jnp.int32)


def swap(constraint: SelectionConstraint, selected: Array, entering: Array, leaving: Array) -> Array:
    """One item enters, and where there are k already, one leaves; if none may leave, none enters."""
    full = count(selected) >= constraint.limit
    possible = ~full | jnp.any(leaving)
    return jnp.where(possible, (selected & ~(leaving & full)) | entering, selected)
