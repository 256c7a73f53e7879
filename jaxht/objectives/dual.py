r"""The dual of a linear model with a ridge over a constraint; each of its values is a lower bound on f.

With ``f(x) = c sum_i s_i l(a_i.x; y_i) + l2/2 ||x||^2``, C the constraint and l* the conjugate of the loss,

.. math::
    z(\alpha) = -\tfrac{c}{l_2} \sum_i s_i \alpha_i a_i, \qquad w(\alpha) = P_C(z(\alpha)), \qquad
    D(\alpha) = -c \sum_i s_i l^*(\alpha_i; y_i) + \tfrac{l_2}{2} \|w\|^2 - l_2 \langle w, z \rangle

and ``f(x) >= D(alpha)`` for all x in C and all alpha: D is the minimum over C of the Lagrangian. On sparse vectors the
last two terms are ``-l2/2 ||w||^2``. The minimum of f may exceed the maximum of D; where both are equal, x and alpha
are optimal.

Source: Yuan et al. 2020, §2 and §3.
"""

from typing import NamedTuple, cast

import jax.numpy as jnp

from jaxht._pytree import Array, Numeric
from jaxht.constraints import Constraint
from jaxht.linalg.selection import k_largest_mask
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.losses import ScalarLoss
from jaxht.objectives.objective import Objective


class DualPoint(NamedTuple):
    """Dual variables, and what is computed from them.

    Attributes:
        alpha: (n,), within the domain of l*, on the scale of the derivative of the loss.
        z: like x; w before the projection.
        w: like x, in C: the minimiser of the Lagrangian.
        value: D(alpha), a scalar.
    """

    alpha: Array
    z: Array
    w: Array
    value: Array


def check_dual(objective: Objective) -> None:
    """Raise ValueError where an objective has no dual.

    Args:
        objective: any objective.

    Raises:
        ValueError: unless it is a linear model of one output with a single l2 > 0 (as far as known at trace time).

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> jaxht.objectives.dual.check_dual(jaxht.LeastSquares(jnp.eye(2), jnp.ones(2), 0.1))
    """
    if not isinstance(objective, LinearModel) or not isinstance(objective.loss, ScalarLoss):
        raise ValueError(
            f"objective must be a linear model of one output to have a dual; got {type(objective).__name__}"
        )
    if objective.l2 is None or jnp.ndim(objective.l2) or (isinstance(objective.l2, int | float) and objective.l2 <= 0):
        raise ValueError(f"l2 must be a single number above 0 to have a dual; got {objective.l2!r}")


def conjugate_loss(objective: LinearModel) -> ScalarLoss:
    """The loss of an objective of one output, typed as a loss that has a conjugate.

    Args:
        objective: a linear model that :func:`check_dual` accepts.

    Returns:
        Its loss, a :class:`jaxht.objectives.losses.ScalarLoss`.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(2), jnp.ones(2), 0.1)
        >>> type(jaxht.objectives.dual.conjugate_loss(f)).__name__
        'SquaredLoss'
    """
    return cast(ScalarLoss, objective.loss)


def dual_point(objective: LinearModel, constraint: Constraint, alpha: Array) -> DualPoint:
    """Compute w(alpha) and D(alpha) from dual variables.

    Args:
        objective: a linear model that :func:`check_dual` accepts, prepared.
        constraint: C, prepared.
        alpha: (n,), within the domain of l*; see ``within`` of the loss.

    Returns:
        A :class:`DualPoint`.

    Cost: a product with the transpose of A and a projection.

    Source: Yuan et al. 2020, Theorem 3 and (8).

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([0.0, 4.0, 1.0]), 1.0)
        >>> point = jaxht.objectives.dual.dual_point(f, jaxht.Sparse(1), jnp.array([0.0, -2.0, -0.5]))
        >>> point.w.tolist(), float(point.value)
        ([0.0, 2.0, 0.0], 4.375)
    """
    z = -objective.design.rmatvec(objective.weight(alpha)) / objective.penalty
    w, _ = constraint.project(z)
    loss = conjugate_loss(objective)
    value = -jnp.sum(objective.weight(loss.conjugate(alpha, objective.y))) + objective.penalty * (
        jnp.vdot(w, w) / 2 - jnp.vdot(w, z)
    )
    return DualPoint(alpha, z, w, value)


def supergradient(objective: LinearModel, alpha: Array, pred: Array) -> Array:
    """A supergradient of the concave D at alpha, ``c s_i (a_i.w - l*'(alpha_i; y_i))``.

    Args:
        objective: a linear model that :func:`check_dual` accepts, prepared.
        alpha: (n,), within the domain of l*.
        pred: (n,), ``A w(alpha)``.

    Returns:
        (n,).

    Cost: O(n).

    Source: Yuan et al. 2020, Theorem 3.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> from jaxht.objectives import dual
        >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([0.0, 4.0, 1.0]), 1.0)
        >>> point = dual.dual_point(f, jaxht.Sparse(1), jnp.array([0.0, -2.0, -0.5]))
        >>> dual.supergradient(f, point.alpha, f.predict(point.w)).tolist()
        [0.0, 0.0, -0.5]
    """
    loss = conjugate_loss(objective)
    return objective.weight(pred - loss.conjugate_derivative(alpha, objective.y))


def dual_variables(objective: LinearModel, pred: Array) -> Array:
    """The dual variables ``l'(a_i.x; y_i)`` that belong to x, moved just inside the domain of l* where needed.

    Where x is optimal and the problem has no duality gap, they are optimal as well.

    Args:
        objective: a linear model that :func:`check_dual` accepts, prepared.
        pred: (n,), ``A x``.

    Returns:
        alpha, (n,).

    Cost: O(n).

    Source: Yuan et al. 2020, Theorem 2.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([0.0, 4.0, 1.0]), 1.0)
        >>> jaxht.objectives.dual.dual_variables(f, jnp.array([0.0, 2.0, 0.0])).tolist()
        [0.0, -2.0, -1.0]
    """
    loss = conjugate_loss(objective)
    return loss.within(loss.derivative(pred, objective.y), objective.y)


def strong_duality_margin(objective: LinearModel, constraint: Constraint, x: Array) -> Array:
    """``min_{i in supp} |x_i| - max_j |grad f(x)_j| / l2``, at an x that minimises f on its support of k coordinates.

    There is no duality gap and x is optimal if and only if it is at least 0.

    Args:
        objective: a linear model that :func:`check_dual` accepts, prepared.
        constraint: a :class:`jaxht.Sparse` without bounds.
        x: (d,), with k nonzero entries.

    Returns:
        A scalar, in units of x.

    Cost: a gradient.

    Source: Yuan et al. 2020, Theorem 2 and the margin of §4.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([0.0, 4.0, 1.0]), 1.0)
        >>> x = jnp.array([0.0, 2.0, 0.0])
        >>> float(jaxht.objectives.dual.strong_duality_margin(f, jaxht.Sparse(1), x))
        1.0
    """
    smallest = jnp.min(jnp.where(k_largest_mask(x, constraint.k), jnp.abs(x), jnp.inf))
    return smallest - jnp.max(jnp.abs(objective.gradient(x, objective.predict(x)))) / objective.penalty


def support_margin(point: DualPoint, k: Numeric) -> Array:
    """``|z|_(k) - |z|_(k+1)``, how far the support of w(alpha) is from a tie.

    Where alpha maximises D, l* is differentiable and this is above 0, w(alpha) is the only k-sparse minimiser of f, and
    there is no duality gap.

    Args:
        point: a :class:`DualPoint`.
        k: sparsity, an integer, static or traced.

    Returns:
        A scalar, in units of x.

    Cost: a selection of the k largest of d numbers.

    Source: Yuan et al. 2020, Theorems 8 and 9.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([0.0, 4.0, 1.0]), 1.0)
        >>> point = jaxht.objectives.dual.dual_point(f, jaxht.Sparse(1), jnp.array([0.0, -2.0, -0.5]))
        >>> float(jaxht.objectives.dual.support_margin(point, 1))
        1.5
    """
    size, kept = jnp.abs(point.z), k_largest_mask(point.z, k)
    return jnp.min(jnp.where(kept, size, jnp.inf)) - jnp.max(jnp.where(kept, 0, size))
