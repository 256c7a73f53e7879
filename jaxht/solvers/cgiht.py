"""Conjugate gradient iterative hard thresholding."""

from typing import NamedTuple

import jax.numpy as jnp
from optax.tree_utils import tree_where

from jaxht._dataclass import pytree
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.constraints import SelectionConstraint, Support
from jaxht.linalg.inner_products import real_vdot
from jaxht.linalg.normal_equations import ratio
from jaxht.linalg.products import square_norm
from jaxht.objectives.linear_model import LinearModel
from jaxht.solvers.exact_steps import (
    check_exact_steps,
    exact_step,
    restrict_or_all,
    start_support,
)
from jaxht.solvers.iterate import Info, Iterate, check_step_size, evaluate
from jaxht.solvers.solver import Solver, Step


class CGIHTState(NamedTuple):
    """The state of :class:`CGIHT`.

    Attributes:
        gradient: g, at x.
        support: T, that of x.
        direction: p, of the last step; 0 where the next one starts anew.
        size: ``||g_T||^2`` at the point before, on the support of the last step.
    """

    gradient: Leaf
    support: Support
    direction: Leaf
    size: Leaf


@pytree
class CGIHT(Solver):
    r"""Iterative hard thresholding with conjugate gradients while the support stays: "CGIHT
    restarted"; or, with theta, "CGIHT projected".

    .. math::
        \beta = \frac{\|g_T\|^2}{\|g^-_T\|^2} \text{ if } T = T^-, \text{ else } 0, \qquad
        p = -g + \beta p^-

        \alpha = -\frac{\langle g_T, p_T \rangle}{\|A p_T\|^2}, \qquad
        x^+ = H_k(x + \alpha p)

    T is the support of x (at x = 0: supp(g, k)), and the superscript - stands for the step before.
    On one support these are conjugate gradients of least squares on it, which need about the root
    of the number of steps that :class:`jaxht.NIHT` takes, at the same cost of a step; but f may
    increase where the support changes. The best point is returned where a run reaches its limit.

    With theta, steps stay on T for as long as the gradient is not much larger elsewhere:

    .. math::
        x^+ = x + \alpha p_T \text{ where } \|g + p_T\| \le \theta \|g_T\|, \quad
        p_T = -g_T + \beta p_T^-, \qquad \text{ else } x^+ = H_k(x - \alpha g), \quad p^- = 0

    The first step is of the second kind. A large theta takes many steps on one support, as a refit
    does.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        theta: > 0, a scalar, traced. None: "CGIHT restarted". The source takes 6, and 3 for n / d
            above .5.

    Raises:
        ValueError: for objectives other than least squares, for bounds, and for
            :class:`jaxht.LowRank`, which has no coordinates to select.

    Cost: a step takes one full gradient, one product for alpha and one projection.

    Source: Blanchard, Tanner & Wei 2015, CGIHT restarted and CGIHT projected for compressed sensing;
    there the first step has length 1, in place of the exact one.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.CGIHT()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    theta: Numeric | None = None

    fixed_point_test = True
    keeps_best = True
    takes_complex = True
    step_limit = 5_000
    fixed_point_steps = 2  # a direction also depends on the one before

    def init(
        self,
        objective: LinearModel,
        constraint: SelectionConstraint,
        x0: Array,
        key: PRNGKey | None,
    ) -> Step[CGIHTState]:
        """The gradient at x0, and T."""
        check_exact_steps("CGIHT", objective, constraint)
        iterate = evaluate(objective, x0)
        g = objective.gradient(x0, iterate.pred)
        T = start_support(constraint, x0, g)
        state = CGIHTState(
            gradient=g,
            support=T,
            direction=jnp.zeros_like(g),
            size=jnp.zeros_like(iterate.value),
        )
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
        if self.theta is not None:
            p_T = T.restrict(p)
            is_on_T = (square_norm(g + p_T) <= self.theta**2 * size) & (size_prev > 0)
            p = jnp.where(is_on_T, p_T, -g)
        # Among rounding errors p may point upwards.
        falls = real_vdot(g_T, p) < 0
        p = jnp.where(falls, p, -g)
        alpha = exact_step(objective, iterate, g, restrict_or_all(T, p)).length
        x_next, T_next = constraint.project(iterate.x + alpha * p)

        new = evaluate(objective, x_next)
        gradient = objective.gradient(new.x, new.pred)
        if self.theta is None:
            goes_on = T_next.equals(T)
        else:
            goes_on = is_on_T & falls
            T_next = tree_where(goes_on, T, T_next)
        state = CGIHTState(
            gradient=gradient,
            support=T_next,
            direction=jnp.where(goes_on, p, 0),
            size=size,
        )
        # Where the gradient is 0 a length of 0 is no failure.
        status = check_step_size(jnp.where(jnp.any(g != 0), alpha, 1))
        return new, state, Info(full_gradients=1, projections=1, status=status)
