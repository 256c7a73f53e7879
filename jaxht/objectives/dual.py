r"""The dual of a linear model with a ridge over a constraint, of which every value is a lower bound on f.

With ``f(x) = c sum_i s_i l(a_i.x; y_i) + l2/2 ||x||^2``, C the constraint and l* the conjugate of the loss,

.. math::
    z(\alpha) = -\tfrac{c}{l_2} \sum_i s_i \alpha_i a_i, \qquad w(\alpha) = P_C(z(\alpha)), \qquad
    D(\alpha) = -c \sum_i s_i l^*(\alpha_i; y_i) + \tfrac{l_2}{2} \|w\|^2 - l_2 \langle w, z \rangle

and ``f(x) >= D(alpha)`` for all x in C and all alpha: D is the minimum over C of the Lagrangian. On sparse vectors the
last two terms are ``-l2/2 ||w||^2``. f and D may stay apart at their best; where they meet, both are optimal.

Source: Yuan et al. 2020, §2 and §3.
"""

from typing import NamedTuple, cast

import jax.numpy as jnp
from chex import Array, Numeric

from jaxht.constraints import Constraint
from jaxht.linalg.selection import k_largest_mask
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.losses import ScalarLoss
from jaxht.objectives.objective import Objective


class DualPoint(NamedTuple):
    """What follows from dual variables.

    Attributes:
        alpha: (n,), within the domain of l*.
        z: like x; w before the projection.
        w: like x, in C: the minimiser of the Lagrangian.
        value: D(alpha).
    """

    alpha: Array
    z: Array
    w: Array
    value: Array


def check_dual(objective: Objective) -> None:
    """Raise ValueError where there is no dual problem."""
    if not isinstance(objective, LinearModel) or not isinstance(objective.loss, ScalarLoss):
        raise ValueError(
            f"objective must be a linear model of one output to have a dual; got {type(objective).__name__}"
        )
    if jnp.ndim(objective.l2) or (isinstance(objective.l2, int | float) and objective.l2 <= 0):
        raise ValueError(f"l2 must be a single number above 0 to have a dual; got {objective.l2!r}")


def conjugate_loss(objective: LinearModel) -> ScalarLoss:
    """The loss of the objective, of one output, as one that has a conjugate."""
    return cast(ScalarLoss, objective.loss)


def dual_point(objective: LinearModel, constraint: Constraint, alpha: Array) -> DualPoint:
    """w(alpha) and D(alpha) from alpha (n,). Cost: a product with the transpose of A and a projection.

    Source: Yuan et al. 2020, Theorem 3 and (8).
    """
    z = -objective.A.rmatvec(objective.weight(alpha)) / objective.l2
    w, _ = constraint.project(z)
    loss = conjugate_loss(objective)
    value = -jnp.sum(objective.weight(loss.conjugate(alpha, objective.y))) + objective.l2 * (
        jnp.vdot(w, w) / 2 - jnp.vdot(w, z)
    )
    return DualPoint(alpha, z, w, value)


def supergradient(objective: LinearModel, alpha: Array, pred: Array) -> Array:
    """``c s_i (a_i.w - l*'(alpha_i; y_i))``, (n,), a supergradient of the concave D at alpha; pred = A w(alpha).

    Source: Yuan et al. 2020, Theorem 3.
    """
    loss = conjugate_loss(objective)
    return objective.weight(pred - loss.conjugate_derivative(alpha, objective.y))


def dual_variables(objective: LinearModel, pred: Array) -> Array:
    """The dual variables ``l'(a_i.x; y_i)`` that belong to x, pred = A x; just within the domain of l*.

    Where x is optimal and the problem has no duality gap these are optimal (Yuan et al. 2020, Theorem 2).
    """
    loss = conjugate_loss(objective)
    return loss.within(loss.derivative(pred, objective.y), objective.y)


def strong_duality_margin(objective: LinearModel, constraint: Constraint, x: Array) -> Array:
    """``min_{i in supp} |x_i| - max_j |grad f(x)_j| / l2``, at an x that minimises f on its support of k coordinates.

    There is no duality gap and x is optimal if and only if it is at least 0.

    Args:
        objective, constraint: a linear model with a ridge, and :class:`jaxht.Sparse`.
        x: (d,).

    Source: Yuan et al. 2020, Theorem 2 and the margin of §4.
    """
    smallest = jnp.min(jnp.where(k_largest_mask(x, constraint.k), jnp.abs(x), jnp.inf))
    return smallest - jnp.max(jnp.abs(objective.gradient(x, objective.predict(x)))) / objective.l2


def support_margin(point: DualPoint, k: Numeric) -> Array:
    """``|z|_(k) - |z|_(k+1)``, by which the support of w(alpha) is without a tie.

    Where alpha maximises D, l* is differentiable and this is above 0, w(alpha) is the only k-sparse minimiser of f, and
    there is no duality gap.

    Source: Yuan et al. 2020, Theorems 8 and 9.
    """
    size, kept = jnp.abs(point.z), k_largest_mask(point.z, k)
    return jnp.min(jnp.where(kept, size, jnp.inf)) - jnp.max(jnp.where(kept, 0, size))
