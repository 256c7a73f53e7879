"""How far a solution can be from the global optimum, proved by the dual problem."""

from typing import NamedTuple

import jax.numpy as jnp
from chex import Array

from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
from jaxht.runner import Stop, solve
from jaxht.solvers import DIHT


class Certificate(NamedTuple):
    """Bounds on the global optimum f* of a problem.

    Attributes:
        value: f(x), from above.
        lower: max D, from below, but for rounding.
        gap: their distance: no point of the constraint is lower than x by more.
    """

    value: Array
    lower: Array
    gap: Array


def certify(
    objective: Objective,
    constraint: Constraint,
    x: Array,
    *,
    solver: DIHT = DIHT(),
    stop: Stop = Stop(max_steps=200, gap_rtol=1e-6),
) -> Certificate:
    """Bound how far a solution, of whatever solver, is from the global optimum.

    A dual ascent from the dual variables that belong to x, whose best value is a lower bound on f over the whole
    constraint. A small gap proves x nearly optimal; a large one proves nothing, since the dual's best may lie below f*.

    Args:
        objective: a linear model of one output with a ridge, l2 > 0.
        constraint: for example :class:`jaxht.Sparse`.
        x: a point of it.
        solver: of the dual.
        stop: its limits: the more steps, the tighter the bound.

    Returns:
        :class:`Certificate`, of scalars. Works under jit and vmap.

    Source: Yuan et al. 2020, Theorem 3 (weak duality).
    """
    result = solve(objective, constraint, solver, x0=x, stop=stop)
    lower = result.value - result.gap
    objective = objective.prepare()
    x = jnp.asarray(x, objective.dtype)
    value = objective.value(x, objective.predict(x))
    return Certificate(value, lower, value - lower)
