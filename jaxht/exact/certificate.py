"""Upper bounds on the distance of f(x) from the global optimum, by the dual problem."""

from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._checks import check_kind
from jaxht._dataclass import cast_numbers
from jaxht._meshes import shard_automatically
from jaxht._programs import bounded_jit
from jaxht._repr import short_repr
from jaxht._typing import Array, Leaf, Numeric
from jaxht.constraints import Constraint, SelectionConstraint
from jaxht.exact.pairs import as_pairs, split_pairs
from jaxht.exact.perspective import Node, has_perspective
from jaxht.exact.relaxation import (
    ROUND,
    Goal,
    NodeStart,
    Relaxation,
    Ridge,
    bound_above,
    bound_at,
    relax,
)
from jaxht.linalg.inner_products import is_complex, real_dtype
from jaxht.objectives.dual import check_dual, column_bound, dual_variables
from jaxht.objectives.linear_model import LeastSquares, LinearModel
from jaxht.objectives.objective import Objective, cast_point
from jaxht.runner import Stop, call_on_device, solve
from jaxht.solvers import DIHT

__all__ = ["Certificate", "certify"]

DEFAULT_STEPS = 200  # of the descent on the relaxation


class Certificate(NamedTuple):
    """Bounds on the global optimum f* of a problem; scalars in units of f, of the objective's
    dtype.

    They are computed in that dtype, and hold in spite of rounding: see
    :mod:`jaxht.objectives.dual`. float64 gives sharper ones.

    Attributes:
        value: f(x) plus a bound of its rounding error, an upper bound.
        lower: the best dual value less a bound of its rounding error, a lower bound; -infinity
            where l2 is 0.
        gap: value - lower: no point of the constraint is better than x by more.
    """

    value: Leaf
    lower: Leaf
    gap: Leaf

    def __repr__(self) -> str:
        return short_repr(self, **self._asdict())


@shard_automatically
def certify(
    objective: Objective,
    constraint: Constraint,
    x: Array,
    *,
    solver: DIHT | None = None,
    stop: Stop = Stop(max_steps=DEFAULT_STEPS, gap_rtol=1e-6),
) -> Certificate:
    """Bound how far f(x), for an x of any solver, is from the global optimum. Works under jit and
    vmap.

    Any dual variables give a lower bound on f over the whole constraint. The first ones are those
    that belong to the minimiser of f on the support of x, the next ones to iterates of the
    accelerated descent on the perspective relaxation, whose minimum is the maximum of the dual. For
    other constraints than :class:`jaxht.Sparse` and :class:`jaxht.Groups` the dual is ascended by
    :class:`jaxht.DIHT`. A small gap proves that x is nearly optimal; a large one proves nothing,
    since the maximum of the dual may be below f*.

    Both bounds are differentiable with respect to the numbers of the objective, and ``value`` also
    with respect to x. The derivative of ``lower`` is taken with its dual variables held fixed; at
    the maximiser of the dual it is the derivative of the maximum (Danskin). With a ``solver`` the
    derivative of ``lower`` is NaN.

    Args:
        objective: a linear model of one output with a ridge, l2 > 0. Complex least squares is that
            of the real and imaginary parts, under Sparse or Groups.
        constraint: for example :class:`jaxht.Sparse`.
        x: a feasible point, shaped like the variable.
        solver: None; or a :class:`jaxht.DIHT` to ascend the dual by.
        stop: limits of the ascent, a :class:`jaxht.Stop`: the more steps, the tighter the bound.
            The descent on the relaxation uses only max_steps, a multiple of 10, and gap_rtol.

    Returns:
        :class:`Certificate`, of scalars.

    Raises:
        ValueError: if the objective has no dual: several outputs, or no single l2 > 0, as far as
        known at trace time.

    Cost: a refit, and by default up to 200 steps, each of two products and a proximal operator.

    Source: Yuan et al. 2020, Proposition 7 (weak duality, D); for rounding errors Higham 2002, §3; for
    the relaxation :mod:`jaxht.exact.relaxation`.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([0.0, 4.0, 1.0, 3.0]), 1.0, mean=False)
        >>> proof = jaxht.certify(f, jaxht.Sparse(2), jnp.array([0.0, 2.0, 0.0, 1.5]))
        >>> round(float(proof.value), 3), bool(proof.gap < 1e-3)
        (6.75, True)
    """
    check_kind(objective=objective, constraint=constraint)
    check_dual(objective)
    if is_complex(objective):
        complex_model = cast(LeastSquares, objective.prepare())
        x = split_pairs(cast_point(x, complex_model))
        objective, constraint = as_pairs(complex_model, constraint.prepare(complex_model.shape))
    model = cast(LinearModel, objective.prepare())
    constraint = cast_numbers(constraint.prepare(model.shape), real_dtype(model))
    x = cast_point(x, model)
    if solver is None and has_perspective(constraint):
        gap_rtol = 0.0 if stop.gap_rtol is None else stop.gap_rtol
        max_steps = DEFAULT_STEPS if stop.max_steps is None else stop.max_steps
        return call_on_device(certify_by_relaxation, model, constraint, x, gap_rtol, max_steps)
    result = solve(
        objective, constraint, DIHT(debias=False) if solver is None else solver, x0=x, stop=stop
    )
    value = call_on_device(_bound_above, model, x)
    lower = result.value - result.gap
    return Certificate(value, lower, value - lower)


BOUND_RTOL = 1e-3  # of the gap, by which the bound might still rise


@bounded_jit
def certify_by_relaxation(
    model: LinearModel,
    constraint: SelectionConstraint,
    x: Array,
    gap_rtol: Numeric,
    max_steps: Numeric,
) -> Certificate:
    """:func:`certify`, of what is prepared."""
    value = _bound_above(model, x)
    fixed, at, x = lax.stop_gradient(((model, constraint), value, x))
    problem, root = _relaxation(*fixed, at)
    goal = Goal(at - gap_rtol * jnp.abs(at), BOUND_RTOL, 1 + max_steps // ROUND)
    found = relax(
        problem, goal, NodeStart(root, constraint.active(x) | root.included, x, problem.step_size)
    )
    lower = _lower(model, constraint, at, (found.fit, found.x), found.bound.lower)
    return Certificate(value, lower, value - lower)


@bounded_jit
def _bound_above(model: LinearModel, x: Array) -> Array:
    return bound_above(model, x, model.predict(x), column_bound(model))


def _relaxation(
    model: LinearModel, constraint: SelectionConstraint, value: Array
) -> tuple[Relaxation, Node]:
    """The relaxation of the whole problem, and its root."""
    zero = jnp.zeros((), model.dtype)
    ridge = Ridge(
        rho=model.penalty,
        borrowed=zero,
        added=zero,
        excess=zero,
    )
    problem = Relaxation.of(model, constraint, ridge, lax.stop_gradient(column_bound(model)), value)
    included = jnp.broadcast_to(constraint.always_active, constraint.scores(model.start()).shape)
    return problem, Node(included, jnp.zeros_like(included))


@jax.custom_jvp
def _lower(
    model: LinearModel, constraint: SelectionConstraint, value: Array, points: tuple, lower: Array
) -> Array:
    """The bound as it is, with the derivatives of the better of two points, at its dual
    variables."""
    return lower


@_lower.defjvp
def _lower_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    _, _, value, points, lower = primals

    def bounds(model: LinearModel, constraint: SelectionConstraint) -> Array:
        problem, root = _relaxation(model, constraint, value)
        fit, x = lax.stop_gradient(points)
        variables = [
            dual_variables(f, f.predict(at))
            for f, at in ((problem.nearly_smooth, fit), (problem.smooth, x))
        ]
        found = zip((fit, x), lax.stop_gradient(variables), strict=True)
        return jnp.stack([bound_at(problem, root, at, alpha).lower for at, alpha in found])

    found, found_dot = jax.jvp(bounds, primals[:2], tangents[:2])
    return lower, found_dot[jnp.argmax(found)]
