"""Derivatives of a solution by its problem: the implicit function theorem on the support."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._pytree import Array, replace
from jaxht.constraints import Constraint
from jaxht.linalg.factored import Factored, square_norms
from jaxht.objectives.objective import Objective
from jaxht.refit import refit

# The distance of a solution from the minimiser on its support, relative, in roots of machine epsilon, up to which it
# counts as that minimiser.
STATIONARY = 10.0


def differentiate(objective: Objective, constraint: Constraint, result: Any) -> Any:
    r"""A result whose x and value have derivatives by the numbers of the objective and of the constraint's bounds.

    On the support S of x, with the coordinates at their bounds left out,

    .. math::
        H_{SS}\, \dot x_S = -\dot{(\nabla f)}_S, \qquad \dot f = \partial_\theta f(x) + \nabla f(x) \cdot \dot x

    in forward and reverse mode, whatever steps have led to x. NaN where x is not the minimiser on S up to STATIONARY
    roots of machine epsilon (the theorem says nothing of it), and for matrices in factors.

    Args:
        objective: prepared.
        constraint: prepared for its shape.
        result: a :class:`jaxht.Result` that was found without derivatives.

    Cost: nothing, unless derivatives are asked for; then a refit from x, and a system of its Hessian.
    """
    x, value, gap = _solution(objective, constraint, result.x, result.value, result.gap)
    return replace(result, x=x, value=value, gap=gap)


@jax.custom_jvp
def _solution(
    objective: Objective, constraint: Constraint, x: Any, value: Array, gap: Array | None
) -> tuple[Any, Array, Array | None]:
    """x, value and gap as they are."""
    return x, value, gap


@_solution.defjvp
def _solution_jvp(primals: tuple, tangents: tuple) -> tuple:
    objective, _, x, _, gap = primals
    point = lax.stop_gradient(x)

    def minimum(objective: Objective, constraint: Constraint) -> tuple[Any, Array]:
        fit = refit(objective, constraint.support_of(point), point)
        return fit.x, fit.converged

    if isinstance(x, Factored):
        nan = jnp.full((), jnp.nan, x.dtype)
        x_dot = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), x)
        return _solution(*primals), (x_dot, nan, None if gap is None else nan)
    (found, converged), (x_dot, _) = jax.jvp(minimum, primals[:2], tangents[:2])
    distance, size = square_norms(found - point, point)
    is_minimum = converged & (distance <= STATIONARY**2 * float(jnp.finfo(x.dtype).eps) * size)
    # A factor, so that derivatives in reverse mode are NaN as well.
    x_dot = x_dot * jnp.where(is_minimum, 1, jnp.nan).astype(x.dtype)
    x, value, gap = _solution(*primals)

    def at(objective: Objective, x: Array) -> Array:
        return objective.value(x, objective.predict(x))

    value_dot = jax.jvp(at, (objective, x), (tangents[0], x_dot))[1]
    return (x, value, gap), (x_dot, value_dot, None if gap is None else jnp.nan * value_dot)
