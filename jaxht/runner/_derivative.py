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
from jaxht.subproblems import subproblem


def differentiate(objective: Objective, constraint: Constraint, result: Any) -> Any:
    r"""A result whose x and value have derivatives by the numbers of the objective and of the
    constraint's bounds.

    The derivatives of x are those of :meth:`jaxht.subproblems.Subproblem.differentiate` on its
    support, whatever steps have led to x; and

    .. math::
        \dot f = \partial_\theta f(x) + \nabla f(x) \cdot \dot x

    NaN where the theorem says nothing of x, and of the gap.

    Args:
        objective: prepared.
        constraint: prepared for its shape.
        result: a :class:`jaxht.Result` that was found without derivatives.

    Cost: nothing, unless derivatives are asked for; then a system with the Hessian, and two
    predictions.
    """
    x, value, gap = _solution(objective, constraint, result.x, result.value, result.gap)
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
