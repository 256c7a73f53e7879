"""Conjugate gradient iterative hard thresholding."""

from typing import NamedTuple

import jax.numpy as jnp
from optax.tree_utils import tree_where

from jaxht._dataclass import pytree
from jaxht._typing import Array, Leaf, PRNGKey
from jaxht.constraints import SelectionConstraint, Support, check_selection
from jaxht.linalg.inner_products import real_vdot
from jaxht.linalg.normal_equations import ratio
from jaxht.linalg.products import square_norm
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Info, Iterate, check_step_size, evaluate
from jaxht.solvers.solver import Solver, Step


class CGIHTState(NamedTuple):
    """The state of :class:`CGIHT`.

    Attributes:
        gradient: g, at x.
        support: T, that of x.
        direction: p, of the last step; 0 where the support has changed in it.
        size: ``||g_T||^2`` at the point before, on the support of the last step.
    """

    gradient: Leaf
    support: Support
    direction: Leaf
    size: Leaf


@pytree
class CGIHT(Solver):
    r"""Iterative hard thresholding with conjugate gradients while the support stays: "CGIHT
    restarted".

    .. math::
        \beta = \frac{\|g_T\|^2}{\|g^-_T\|^2} \text{ if } T = T^-, \text{ else } 0, \qquad
        p = -g + \beta p^-

        \alpha = -\frac{\langle g_T, p_T \rangle}{\|A p_T\|^2}, \qquad
        x^+ = H_k(x + \alpha p)

    T is the support of x (at x = 0: supp(g, k)), and the superscript - stands for the step before.
    On one support these are conjugate gradients of least squares on it, which need about the root
    of the number of steps that :class:`jaxht.NIHT` takes, at the same cost of a step; but f may
    increase where the support changes. The best point is returned where a run reaches its limit. It
    has no arguments.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Raises:
        ValueError: for objectives other than least squares, for bounds, and for
            :class:`jaxht.LowRank`, which has no coordinates to select.

    Cost: a step takes one full gradient, one product for alpha and one projection.

    Source: Blanchard, Tanner & Wei 2015, CGIHT restarted for compressed sensing; there the first
    step has length 1, in place of the exact one.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.CGIHT()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    fixed_point_test = True
    keeps_best = True
    takes_complex = True
    step_limit = 5_000

    def init(
        self,
        objective: LinearModel,
        constraint: SelectionConstraint,
        x0: Array,
        key: PRNGKey | None,
    ) -> Step[CGIHTState]:
        """The gradient at x0, and T."""
        check_selection(constraint)
        _check(objective, constraint)
        iterate = evaluate(objective, x0)
        g = objective.gradient(x0, iterate.pred)
        _, first_support = constraint.project(-g)
        T = tree_where(jnp.any(x0 != 0), constraint.support_of(x0), first_support)
        state = CGIHTState(g, T, jnp.zeros_like(g), jnp.zeros_like(iterate.value))
        return iterate, state, Info(full_gradients=1)

    def step(
        self,
        objective: LinearModel,
        constraint: SelectionConstraint,
        iterate: Iterate,
        state: CGIHTState,
    ) -> Step[CGIHTState]:
        """A step along p with the exact length on T, then threshold."""
        g, T, p_prev, size_prev = state
        g_T = T.restrict(g)
        size = square_norm(g_T)
        p = -g + ratio(size, size_prev) * p_prev
        # Among rounding errors p may point upwards.
        p = jnp.where(real_vdot(g_T, p) < 0, p, -g)
        alpha = _exact_length(objective, iterate, g, T, p)
        x_next, T_next = constraint.project(iterate.x + alpha * p)

        new = evaluate(objective, x_next)
        gradient = objective.gradient(new.x, new.pred)
        stays = T_next.equals(T)
        state = CGIHTState(gradient, T_next, jnp.where(stays, p, 0), size)
        # Where the gradient is 0 a length of 0 is no failure.
        status = check_step_size(jnp.where(jnp.any(g != 0), alpha, 1))
        return new, state, Info(full_gradients=1, projections=1, status=status)


def _exact_length(
    objective: LinearModel, iterate: Iterate, g: Array, T: Support, p: Array
) -> Array:
    """``-<g_T, p_T> / ||A p_T||^2``; where x is stationary on T, which may lack items, that along
    all of p."""
    p_T = T.restrict(p)
    direction = jnp.where(jnp.any(p_T != 0), p_T, p)
    # In units of the largest entry no square over- or underflows.
    scale = jnp.max(jnp.abs(direction))
    unit = direction / jnp.where(scale > 0, scale, 1)
    hessian = objective.hessian(iterate.x, iterate.pred)
    curvature = hessian.quadratic_form(unit, objective.predict(unit))
    return ratio(-real_vdot(g, unit), scale * curvature)


def _check(objective: Objective, constraint: SelectionConstraint) -> None:
    is_quadratic = objective.is_linear_model and objective.loss.family == "gaussian"  # type: ignore[attr-defined]
    if not is_quadratic:
        raise ValueError(
            f"objective must be LeastSquares for CGIHT; got {type(objective).__name__}: use NIHT"
        )
    if constraint.bounds is not None:
        raise ValueError("bounds must be None for CGIHT, whose steps leave them: use NIHT")
