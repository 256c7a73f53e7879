"""Steps of exact length on least squares, and what the solvers that take them ask of a problem."""

from typing import NamedTuple

import jax.numpy as jnp
from optax.tree_utils import tree_where

from jaxht._typing import Array
from jaxht.constraints import SelectionConstraint, Support, check_selection
from jaxht.linalg.inner_products import real_vdot
from jaxht.linalg.normal_equations import ratio
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.objective import Objective, check_least_squares
from jaxht.solvers.iterate import Iterate


class ExactStep(NamedTuple):
    """The step along a direction p to the minimum of f on it.

    Attributes:
        length: ``-<g, p> / ||A p||^2``, with the weights and the ridge of f; 0 where p = 0.
        move: p times the length.
        image: A times the move.
    """

    length: Array
    move: Array
    image: Array


def exact_step(objective: LinearModel, point: Iterate, g: Array, p: Array) -> ExactStep:
    """The exact step along p from a point of gradient g. Cost: one product."""
    # In units of the largest entry no square over- or underflows.
    scale = jnp.max(jnp.abs(p))
    divisor = jnp.where(scale > 0, scale, 1)
    unit = p / divisor
    image = objective.predict(unit)
    hessian = objective.hessian(point.x, point.pred)
    curvature = hessian.quadratic_form(unit, image)
    length = ratio(-real_vdot(g / divisor, unit), curvature)
    # A p and the length may be too small and too large for their dtype.
    in_units = length * scale
    return ExactStep(length, in_units * unit, in_units * image)


def restrict_or_all(T: Support, v: Array) -> Array:
    """v on T; where that is 0, because x is stationary on T, which may lack items, all of v."""
    v_T = T.restrict(v)
    return jnp.where(jnp.any(v_T != 0), v_T, v)


def start_support(constraint: SelectionConstraint, x0: Array, g: Array) -> Support:
    """supp(x0), or at x0 = 0 that of the k largest entries of the gradient there."""
    _, largest = constraint.project(-g)
    return tree_where(jnp.any(x0 != 0), constraint.support_of(x0), largest)


def check_exact_steps(name: str, objective: Objective, constraint: SelectionConstraint) -> None:
    """Raise ValueError unless f is least squares, and the constraint selects items without
    bounds."""
    check_selection(constraint)
    check_least_squares(name, objective, advice=": use NIHT")
    if constraint.bounds is not None:
        raise ValueError(f"bounds must be None for {name}, whose steps leave them: use NIHT")
