"""Upper bounds on the distance of f(x) from the global optimum, by the dual problem."""

from typing import NamedTuple, cast

import jax.numpy as jnp

from jaxht._pytree import Array, short_repr
from jaxht.constraints import Constraint
from jaxht.objectives.dual import check_dual, column_bound, primal_error
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.objective import Objective
from jaxht.runner import Stop, solve
from jaxht.solvers import DIHT


class Certificate(NamedTuple):
    """Bounds on the global optimum f* of a problem; scalars in units of f, of the objective's dtype.

    They are computed in that dtype, and hold in spite of rounding: see :mod:`jaxht.objectives.dual`. float64 gives
    sharper ones.

    Attributes:
        value: f(x) plus a bound of its rounding error, an upper bound.
        lower: the best dual value less a bound of its rounding error, a lower bound; -infinity where l2 is 0.
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
        ValueError: if the objective has no dual: several outputs, or no single l2 > 0, as far as known at trace time.

    Cost: a run of the dual solver: by default up to 200 steps, each of 10 full gradients and projections and a refit.

    Source: Yuan et al. 2020, Theorem 3 (weak duality); for rounding errors Higham 2002, §3.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([0.0, 4.0, 1.0, 3.0]), 1.0)
        >>> proof = jaxht.certify(f, jaxht.Sparse(2), jnp.array([0.0, 2.0, 0.0, 1.5]))
        >>> round(float(proof.value), 3), bool(proof.gap < 1e-3)
        (6.75, True)
    """
    check_dual(objective)
    result = solve(objective, constraint, solver, x0=x, stop=stop)
    lower = result.value - result.gap
    model = cast(LinearModel, objective.prepare())
    x = jnp.asarray(x, model.dtype)
    pred = model.predict(x)
    value = model.value(x, pred) + primal_error(model, x, pred, column_bound(model))
    return Certificate(value, lower, value - lower)
