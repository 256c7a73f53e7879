"""Upper bounds on the distance of f(x) from the global optimum, by the dual problem."""

from typing import NamedTuple

import jax.numpy as jnp

from jaxht._pytree import Array, short_repr
from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
from jaxht.runner import Stop, solve
from jaxht.solvers import DIHT


class Certificate(NamedTuple):
    """Bounds on the global optimum f* of a problem; scalars in units of f.

    Attributes:
        value: f(x), an upper bound.
        lower: the best dual value, a lower bound up to rounding.
        gap: value - lower: no point of the constraint is better than x by more.
    """

    value: Array
    lower: Array
    gap: Array

    def __repr__(self) -> str:
        return short_repr(self, **self._asdict())


def certify(
    objective: Objective,
    constraint: Constraint,
    x: Array,
    *,
    solver: DIHT = DIHT(),
    stop: Stop = Stop(max_steps=200, gap_rtol=1e-6),
) -> Certificate:
    """Bound how far f(x), for an x of any solver, is from the global optimum. Works under jit and vmap.

    A dual ascent starts at the dual variables that belong to x; its best value is a lower bound on f over the whole
    constraint. A small gap proves that x is nearly optimal; a large one proves nothing, since the maximum of the dual
    may be below f*.

    Args:
        objective: a linear model of one output with a ridge, l2 > 0.
        constraint: for example :class:`jaxht.Sparse`.
        x: a feasible point, shaped like the variable.
        solver: the dual solver, a :class:`jaxht.DIHT`.
        stop: its limits, a :class:`jaxht.Stop`: the more steps, the tighter the bound.

    Returns:
        :class:`Certificate`, of scalars.

    Raises:
        ValueError: if the objective has no dual: several outputs, or no single l2 > 0.

    Cost: a run of the dual solver: by default up to 200 steps, each of 10 full gradients and projections and a refit.

    Source: Yuan et al. 2020, Theorem 3 (weak duality).

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([0.0, 4.0, 1.0, 3.0]), 1.0)
        >>> proof = jaxht.certify(f, jaxht.Sparse(2), jnp.array([0.0, 2.0, 0.0, 1.5]))
        >>> float(proof.value), bool(proof.gap < 1e-4)
        (6.75, True)
    """
    result = solve(objective, constraint, solver, x0=x, stop=stop)
    lower = result.value - result.gap
    objective = objective.prepare()
    x = jnp.asarray(x, objective.dtype)
    value = objective.value(x, objective.predict(x))
    return Certificate(value, lower, value - lower)
