"""Derivatives of a solution by its problem: the implicit function theorem on the support."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from jaxht._dataclass import replace
from jaxht._loops import vary_alike
from jaxht._typing import Array
from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
from jaxht.runner._problem import Problem
from jaxht.subproblems import subproblem


def differentiate(problem: Problem, result: Any) -> Any:
    r"""A result whose x and value have derivatives by the numbers of the objective, of a penalty
    and of the constraint's bounds.

    The derivatives of x are those of :meth:`jaxht.subproblems.Subproblem.differentiate` on its
    support, whatever steps have led to x; and

    .. math::
        \dot f = \partial_\theta f(x) + \nabla f(x) \cdot \dot x

    NaN where the theorem says nothing of x, and of the gap. With a penalty f is the
    solver's ``local_objective``, and all derivatives are NaN where it has none.

    Args:
        problem: that was solved, whose numbers may have tangents.
        result: a :class:`jaxht.Result` that was found without derivatives.

    Cost: nothing, unless derivatives are asked for; then a system with the Hessian, and two
    predictions.
    """
    objective = problem.solver.local_objective(problem.objective, lax.stop_gradient(result.x))
    found = (result.x, result.value, result.gap)
    if objective is None:
        x, value, gap = _without_derivative((problem.objective, problem.solver), found)
    else:
        x, value, gap = _solution(objective, problem.constraint, *found)
    return replace(result, x=x, value=value, gap=gap)


@jax.custom_jvp
def _solution(
    objective: Objective, constraint: Constraint, x: Any, value: Array, gap: Array | None
) -> tuple[Any, Array, Array | None]:
    """x, value and gap as they are."""
    return x, value, gap


def _solution_jvp(primals: tuple, tangents: tuple) -> tuple:
    # As a call, so that derivatives of this rule know that x depends on the problem.
    x, value, gap = _solution(*primals)
    # By what moves alone: derivatives by a design are arrays as large as it is.
    leaves, structure = jax.tree.flatten(primals[:2])
    dots = jax.tree.leaves(tangents[:2], is_leaf=lambda dot: isinstance(dot, SymbolicZero))
    moving = [i for i, dot in enumerate(dots) if not isinstance(dot, SymbolicZero)]

    def problem(numbers: list[Array]) -> tuple[Objective, Constraint]:
        new = dict(zip(moving, numbers, strict=True))
        return jax.tree.unflatten(structure, [new.get(i, leaf) for i, leaf in enumerate(leaves)])

    def minimum(numbers: list[Array]) -> Any:
        objective, constraint = problem(numbers)
        point = lax.stop_gradient(x)
        support = constraint.support_of(point)
        return subproblem(objective, support).differentiate(support, point)

    def minimal_value(numbers: list[Array], x: Any) -> Array:
        objective, _ = problem(numbers)
        return objective.value(x, objective.predict(x))

    # Where data are not finite, x is a start. A factor, so that derivatives in reverse mode are NaN
    # as well.
    sound = jnp.where(jnp.isfinite(lax.stop_gradient(value)), 1, jnp.nan)
    at = [leaves[i] for i in moving]
    along = [sound.astype(dots[i].dtype) * dots[i] for i in moving]
    at, along = vary_alike((at, along), (at, along))
    _, x_dot = jax.jvp(minimum, (at,), (along,))
    _, value_dot = jax.jvp(minimal_value, (at, x), (along, x_dot))
    return (x, value, gap), (x_dot, value_dot, None if gap is None else jnp.nan * value_dot)


_solution.defjvp(_solution_jvp, symbolic_zeros=True)


@jax.custom_jvp
def _without_derivative(numbers: Any, found: Any) -> Any:
    """What was found, as it is; its derivatives by these numbers are NaN."""
    return found


def _without_derivative_jvp(primals: tuple, tangents: tuple) -> tuple:
    dots = jax.tree.leaves(tangents[0], is_leaf=lambda dot: isinstance(dot, SymbolicZero))
    moves = [jnp.sum(dot).real for dot in dots if not isinstance(dot, SymbolicZero)]
    change: Any = jnp.nan * sum(moves)
    found = _without_derivative(*primals)

    def fill(leaf):
        return jnp.ones_like(leaf) * change.astype(leaf.dtype)

    return found, jax.tree.map(fill, found)


_without_derivative.defjvp(_without_derivative_jvp, symbolic_zeros=True)
