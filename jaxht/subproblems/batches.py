"""Many refits at once: side by side, or one after the other."""

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax import lax

from jaxht.constraints import SelectionConstraint
from jaxht.objectives.objective import Objective
from jaxht.subproblems.newton import LARGE

T = TypeVar("T")


def map_refits(
    f: Callable[..., T], objective: Objective, constraint: SelectionConstraint, *, batch_size: int
) -> Callable[..., T]:
    """A function that calls f, which refits, for every place along the first axis of its arguments.

    On a CPU calls whose columns together exceed its caches come one after the other. Under a vmap
    only the Newton steps do; here also their columns are gathered for one call at a time (measured,
    408 refits on 10 000 x 10: 3.5 MB instead of 110), and ``lax.cond`` leaves out the branch that
    is not taken.

    Args:
        f: a pure function of pytrees of arrays.
        objective, constraint: of the refits, whose columns have the size of k_max predictions.
        batch_size: how many are computed side by side elsewhere, and where columns are short.
    """

    def in_batches(*args: Any) -> T:
        if batch_size >= len(jax.tree.leaves(args)[0]):
            return jax.vmap(f)(*args)
        return lax.map(lambda each: f(*each), args, batch_size=batch_size)

    def in_turn(*args: Any) -> T:
        return lax.map(lambda each: f(*each), args)

    pred = jax.eval_shape(objective.predict, jax.ShapeDtypeStruct(objective.shape, objective.dtype))
    k_max = math.prod(objective.shape) if constraint.k_max is None else constraint.k_max
    if pred.size * k_max < LARGE:
        return in_batches
    return functools.partial(lax.platform_dependent, cpu=in_turn, default=in_batches)
