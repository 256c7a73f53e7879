r"""The dual of a linear model with a ridge over a constraint; each of its values is a lower bound
on f.

With ``f(x) = c sum_i s_i l(a_i.x; y_i) + l2/2 ||x||^2``, C the constraint and l* the conjugate of
the loss,

.. math::
    z(\alpha) = -\tfrac{c}{l_2} \sum_i s_i \alpha_i a_i, \qquad w(\alpha) = P_C(z(\alpha)), \qquad
    D(\alpha) = -c \sum_i s_i l^*(\alpha_i; y_i) + \tfrac{l_2}{2} \|w\|^2 - l_2 \langle w, z \rangle

and ``f(x) >= D(alpha)`` for all x in C and all alpha: D is the minimum over C of the Lagrangian. On
sparse vectors the last two terms are ``-l2/2 ||w||^2``. The minimum of f may exceed the maximum of
D; where both are equal, x and alpha are optimal. Where the objective has an offset, ``l*(alpha_i;
y_i) - alpha_i offset_i`` takes the place of l*. Of complex numbers products are ``Re(conj(u) v)``.

The bound also holds in floating-point arithmetic: a bound on the rounding errors is subtracted from
D, and one is added to f. Each of these two is ``gamma`` times the size of the terms that are
summed, in N additions including those of products and predictions,

.. math::
    \gamma = \frac{m u}{1 - m u}, \qquad m = \min(N, 8 \sqrt{N}),

u half of machine epsilon. For N <= 64 no rounding error exceeds it (Higham 2002, §3.1 and §3.5);
above, errors that are random and independent of each other exceed it with a probability of at most
``2 exp(-32) = 3e-14`` (Higham & Mary 2019, Theorem 2.4), and those of blocked sums are smaller.
With 500 to 20 000 samples and k = 25 they are about 1e-3 of f in float32, and 1e-12 in float64.
What underflows is lost: of each term at most the smallest normal number, which is counted as well.

Source: Yuan et al. 2020, §2 and §3; Higham 2002; Higham & Mary 2019.
"""

from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._typing import Array, Leaf, Numeric
from jaxht.constraints import Constraint
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.inner_products import (
    is_complex,
    real_dtype,
    real_products,
    real_vdot,
)
from jaxht.linalg.operators import SymmetricOperator
from jaxht.linalg.selection import k_largest_mask
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.losses import ScalarLoss

__all__ = [
    "DualPoint",
    "Projection",
    "SizedSum",
    "check_dual",
    "column_bound",
    "conjugate_loss",
    "dual_point",
    "dual_variables",
    "primal_error",
    "rounding_unit",
    "strong_duality_margin",
    "sum_conjugates",
    "supergradient",
    "support_margin",
    "underflow",
]


@runtime_checkable
class Projection(Protocol):
    """What a bound asks of a constraint C: see :class:`jaxht.extend.Constraint`."""

    @property
    def rounding(self) -> float:
        """The error of a projection, in units in its last place."""

    def project(self, z: Array) -> tuple[Array, Any]:
        """The nearest point of C to ``z``, and where it lies."""


class DualPoint(NamedTuple):
    """Dual variables, and what is computed from them.

    Attributes:
        alpha: (n,), within the domain of l*, on the scale of the derivative of the loss.
        z: like x; w before the projection.
        w: like x, in C: the minimiser of the Lagrangian.
        value: D(alpha) less its rounding error, a scalar.
        error: the bound of the rounding error that was subtracted, a scalar.
    """

    alpha: Leaf
    z: Leaf
    w: Leaf
    value: Leaf
    error: Leaf


def check_dual(objective: Any) -> None:
    """Raise ValueError where an objective has no dual.

    Args:
        objective: any objective.

    Raises:
        ValueError: unless it is a linear model of one output with a single l2 > 0 (as far as known
        at trace time).

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> jaxht.objectives.dual.check_dual(jaxht.LeastSquares(jnp.eye(2), jnp.ones(2), 0.1))
    """
    if not objective.is_linear_model or not objective.loss.has_conjugate:
        raise ValueError(
            "objective must be a linear model of one output to have a dual; got "
            f"{type(objective).__name__}"
        )
    l2 = 0 if objective.l2 is None else objective.l2
    is_known = isinstance(l2, int | float | np.number | np.ndarray)
    if jnp.ndim(l2) or (is_known and not l2 > 0):
        raise ValueError(f"l2 must be a single number above 0 to have a dual; got {l2!r}")


def conjugate_loss(objective: LinearModel) -> ScalarLoss:
    """The loss of an objective of one output, typed as a loss that has a conjugate.

    Args:
        objective: a linear model that :func:`check_dual` accepts.

    Returns:
        Its loss, a :class:`jaxht.objectives.losses.ScalarLoss`.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(2), jnp.ones(2), 0.1, mean=False)
        >>> type(jaxht.objectives.dual.conjugate_loss(f)).__name__
        'SquaredLoss'
    """
    return cast(ScalarLoss, objective.loss)


def column_bound(objective: LinearModel) -> Array:
    """An upper bound of the Euclidean norms of the columns of A, and of what cancels in them, by
    which rounding errors of products are bounded.

    Of operators without known norms it is an estimate.

    Args:
        objective: a linear model that :func:`check_dual` accepts, prepared.

    Returns:
        A scalar.

    Cost: n d; 16 products where columns are known by a product each.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.array([[3.0, 1.0], [4.0, 1.0]]), jnp.ones(2), 1.0)
        >>> float(jaxht.objectives.dual.column_bound(f))
        5.0
    """
    A = objective.design
    if A.has_column_norms:
        return jnp.max(A.rounding_norms())
    gram = SymmetricOperator(lambda v: A.rmatvec(A.matvec(v)), A.variable_shape, objective.dtype)
    return jnp.sqrt(gram.norm()) * A.cancellation()


# Operations beside the sums: of a term of a loss and its conjugate (functions of XLA have errors of
# a few ulps), and of what is done with the sums.
EXTRA_OPERATIONS = 32
RANDOM_FACTOR = 8.0  # lambda of Higham & Mary 2019


def rounding_unit(objective: LinearModel, x: Array) -> Array:
    """gamma for sums over the samples, of predictions of x: see above.

    Args:
        objective: a linear model, prepared.
        x: like the variable; products with its zeros are not rounded.

    Returns:
        A scalar; infinite where sums are too long for the dtype.

    Source: Higham 2002, (3.1) and Lemma 3.1; Higham & Mary 2019, (1.2).

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.ones(4), 1.0, mean=False)
        >>> bool(jaxht.objectives.dual.rounding_unit(f, jnp.ones(4)) < 3e-6)
        True
    """
    N = _num_operations(objective, x)
    error = jnp.minimum(N, RANDOM_FACTOR * jnp.sqrt(N)) * (machine_eps(x) / 2)
    return jnp.where(error < 1, error / (1 - error), jnp.inf)


def _num_operations(objective: LinearModel, x: Array) -> Array:
    """N: the length of the sums.

    Of complex numbers sums of real parts are twice as long, and the errors of both parts add up: in
    norm that is at most sqrt(2) times as much, and with the square root of N four times N is enough
    for both.
    """
    num_sums = 1 if objective.weights is None else 2  # the weights have a sum of their own
    N = num_sums * objective.num_samples + _num_nonzeros(x) + EXTRA_OPERATIONS
    return 4 * N if is_complex(x) else N


def _num_nonzeros(x: Array) -> Array:
    return jnp.sum(x != 0, dtype=real_dtype(x))


def underflow(objective: LinearModel, x: Array, slopes: Array) -> Array:
    """What sums of N terms lose at most where terms underflow; nothing where all are exactly 0.

    Args:
        objective: a linear model, prepared.
        x: like the variable.
        slopes: (n,), derivatives of the losses.

    Returns:
        A scalar: N times the smallest normal number, or 0.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(2), jnp.array([0.0, 4.0]))
        >>> lost = jaxht.objectives.dual.underflow(f, jnp.zeros(2), jnp.array([0.0, -4.0]))
        >>> 0 < float(lost) < 1e-30
        True
    """
    lost = _num_operations(objective, x) * float(jnp.finfo(x.dtype).tiny)
    return jnp.where(jnp.any(x != 0) | jnp.any(slopes != 0), lost, 0)


def primal_error(objective: LinearModel, x: Array, pred: Array, columns: Array) -> Array:
    """A bound of the rounding error of ``objective.value(x, pred)``, where ``pred =
    objective.predict(x)``.

    Args:
        objective: a linear model that :func:`check_dual` accepts, prepared.
        x: like the variable.
        pred: (n,), a single product: that of a refit may have been updated many times.
        columns: :func:`column_bound` of the objective.

    Returns:
        A scalar in units of f, at least 0.

    Cost: O(n + d).

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> from jaxht.objectives import dual
        >>> f, x = jaxht.LeastSquares(jnp.eye(4), jnp.ones(4), 1.0, mean=False), jnp.ones(4)
        >>> bool(0 < dual.primal_error(f, x, f.predict(x), dual.column_bound(f)) < 1e-4)
        True
    """
    loss = conjugate_loss(objective)
    y = objective.y
    gamma = rounding_unit(objective, x)
    u = objective.linear_predictor(pred)
    slopes = loss.derivative(u, y)
    lost = underflow(objective, x, slopes)
    # Of all predictions, in norm.
    shift = gamma * columns * jnp.sqrt(_num_nonzeros(x)) * _norm(x) + lost
    if objective.offset is not None:
        shift += gamma * _norm(objective.of_present(objective.offset))
    size = jnp.sum(objective.weight(loss.value_size(u, y))) + objective.ridge(x)
    shares = objective.weight(jnp.ones_like(u.real))
    if loss.is_smooth:
        largest = jnp.max(objective.of_present(loss.curvature(u, y)))
        curvature = jnp.maximum(loss.smoothness(objective.of_present(y)), largest)
        change = _norm(objective.weight(slopes)) + jnp.max(shares) * curvature * shift
    else:  # slopes of at most 1
        change = _norm(shares)
    return gamma * size + change * shift + lost * (1 + jnp.max(objective.penalty))


def _norm(v: Array) -> Array:
    """The Euclidean norm."""
    return jnp.sqrt(real_vdot(v, v))


def dual_point(
    objective: LinearModel,
    constraint: Projection,
    alpha: Array,
    columns: Array | None = None,
    *,
    ridge: Array | None = None,
    borrowed: Array | None = None,
    x: Array | None = None,
) -> DualPoint:
    r"""Compute w(alpha) and a lower bound from dual variables.

    For the squared loss a part of its curvature can serve as a ridge as well: ``1/2 ||A x - y||^2 -
    mu/2 ||x||^2`` is convex for mu up to the least eigenvalue of A' A, so above its tangent at x.
    With alpha = A x - y,

    .. math::
        z = \frac{1}{\rho} \Big(\mu x - c \sum_i s_i \alpha_i a_i\Big), \qquad
        D = -c \sum_i s_i l^*(\alpha_i; y_i) + \tfrac{\mu}{2} \|x\|^2
            + \tfrac{\rho}{2} \|w\|^2 - \rho \langle w, z \rangle, \qquad \rho = l_2 + \mu

    Args:
        objective: a linear model that :func:`check_dual` accepts, prepared.
        constraint: C, prepared.
        alpha: (n,), within the domain of l*; see ``within`` of the loss.
        columns: :func:`column_bound` of the objective; None: computed.
        ridge: rho > 0, a scalar: D is then a bound of ``f(x) + (rho - l2 - mu)/2 ||x||^2``; None:
            l2 + mu.
        borrowed: mu, a scalar; None for 0. Above 0 only for the squared loss, and a little below
            the least eigenvalue, so that rounding errors of alpha are made up for.
        x: the point to which alpha belongs, for mu above 0.

    Returns:
        A :class:`DualPoint`.

    Cost: a product with the transpose of A and a projection.

    Source: Yuan et al. 2020, Proposition 7 and (8).

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([0.0, 4.0, 1.0]), 1.0, mean=False)
        >>> alpha = jnp.array([0.0, -2.0, -0.5])
        >>> point = jaxht.objectives.dual.dual_point(f, jaxht.Sparse(1), alpha)
        >>> point.w.tolist(), round(float(point.value), 3)
        ([0.0, 2.0, 0.0], 4.375)
    """
    columns = column_bound(objective) if columns is None else columns
    slopes = objective.weight(alpha)
    pull = -objective.design.rmatvec(slopes)
    constant = jnp.zeros((), real_dtype(slopes))
    rho = objective.penalty if ridge is None else ridge
    if borrowed is not None and x is not None:
        rho = rho + borrowed if ridge is None else rho
        pull = pull + borrowed * x
        constant = borrowed / 2 * real_vdot(x, x)
    z = pull / rho
    w, _ = constraint.project(z)
    square = real_vdot(w, w)
    product = real_vdot(w, z)
    conjugates = sum_conjugates(objective, alpha, alpha)
    value = -conjugates.value + constant + rho * (square / 2 - product)
    # With h(z) = max_C <w, z> - ||w||^2 / 2 it is -rho h(z), and |h(z + e) - h(z)| <= (||w|| +
    # ||e||) ||e|| for an error e of z, on the coordinates of the maximiser.
    gamma = rounding_unit(objective, w)
    lost = underflow(objective, w, slopes)
    length = jnp.sqrt(jnp.maximum(_num_nonzeros(w), 1))
    shift = gamma * columns * length * _norm(slopes) + lost  # rho ||e||
    if borrowed is not None and x is not None:
        shift += gamma * borrowed * _norm(x)
    size = conjugates.size + constant + rho * (square + jnp.abs(product))
    # A projection on matrices of low rank rounds.
    inexact = constraint.rounding * machine_eps(w) * rho * jnp.abs(product)
    error = gamma * size + shift * (jnp.sqrt(square) + shift / rho) + inexact + lost * (1 + rho)
    # A bound of rounding errors is no part of what is differentiated.
    return DualPoint(alpha, z, w, value - lax.stop_gradient(error), error)


class SizedSum(NamedTuple):
    """A sum, and the size of its terms.

    Attributes:
        value: a scalar.
        size: a scalar; rounding errors of the sum are some ulps of it.
    """

    value: Leaf
    size: Leaf


def sum_conjugates(objective: LinearModel, alpha: Array, inside: Array) -> SizedSum:
    """``c sum_i s_i (l*(alpha_i; y_i) - alpha_i offset_i)``: of l(u + offset) the conjugate is
    l*(alpha) - alpha offset.

    Args:
        objective: a linear model whose loss has a conjugate, prepared.
        alpha: (n,); the sum is infinite out of the domain of l*.
        inside: (n,), alpha itself, or where it may be at an end of the domain the nearest point
            within: the sizes of l* are taken there.

    Returns:
        A :class:`SizedSum`.

    Cost: O(n).

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(2), jnp.array([0.0, 4.0]), mean=False)
        >>> alpha = jnp.array([0.0, -2.0])
        >>> float(jaxht.objectives.dual.sum_conjugates(f, alpha, alpha).value)
        -6.0
    """
    loss = conjugate_loss(objective)
    conjugates = loss.conjugate(alpha, objective.y)
    sizes = jnp.abs(conjugates) + loss.conjugate_size(inside, objective.y)
    if objective.offset is not None:
        known = real_products(alpha, objective.offset)
        conjugates = conjugates - known
        sizes = sizes + jnp.abs(known)
    return SizedSum(jnp.sum(objective.weight(conjugates)), jnp.sum(objective.weight(sizes)))


def supergradient(objective: LinearModel, alpha: Array, pred: Array) -> Array:
    """A supergradient of the concave D at alpha, ``c s_i (a_i.w - l*'(alpha_i; y_i))``.

    Args:
        objective: a linear model that :func:`check_dual` accepts, prepared.
        alpha: (n,), within the domain of l*.
        pred: (n,), ``A w(alpha)``.

    Returns:
        (n,).

    Cost: O(n).

    Source: Yuan et al. 2020, Proposition 7.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> from jaxht.objectives import dual
        >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([0.0, 4.0, 1.0]), 1.0, mean=False)
        >>> point = dual.dual_point(f, jaxht.Sparse(1), jnp.array([0.0, -2.0, -0.5]))
        >>> dual.supergradient(f, point.alpha, f.predict(point.w)).tolist()
        [0.0, 0.0, -0.5]
    """
    loss = conjugate_loss(objective)
    u = objective.linear_predictor(pred)
    return objective.weight(u - loss.conjugate_derivative(alpha, objective.y))


def dual_variables(objective: LinearModel, pred: Array) -> Array:
    """The dual variables ``l'(a_i.x; y_i)`` that belong to x, moved just inside the domain of l*
    where needed.

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
        >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([0.0, 4.0, 1.0]), 1.0, mean=False)
        >>> jaxht.objectives.dual.dual_variables(f, jnp.array([0.0, 2.0, 0.0])).tolist()
        [0.0, -2.0, -1.0]
    """
    loss = conjugate_loss(objective)
    return loss.within(loss.derivative(objective.linear_predictor(pred), objective.y), objective.y)


def strong_duality_margin(objective: LinearModel, constraint: Constraint, x: Array) -> Array:
    """``min_{i in supp} |x_i| - max_j |grad f(x)_j| / l2``, at an x that minimises f on its support
    of k coordinates.

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
        >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([0.0, 4.0, 1.0]), 1.0, mean=False)
        >>> x = jnp.array([0.0, 2.0, 0.0])
        >>> float(jaxht.objectives.dual.strong_duality_margin(f, jaxht.Sparse(1), x))
        1.0
    """
    smallest = jnp.min(jnp.where(k_largest_mask(x, constraint.k), jnp.abs(x), jnp.inf))
    gradient = objective.gradient(x, objective.predict(x))
    return smallest - jnp.max(jnp.abs(gradient)) / objective.penalty


def support_margin(point: DualPoint, k: Numeric) -> Array:
    """``|z|_(k) - |z|_(k+1)``, how far the support of w(alpha) is from a tie.

    Where alpha maximises D, l* is differentiable and this is above 0, w(alpha) is the only k-sparse
    minimiser of f, and there is no duality gap.

    Args:
        point: a :class:`DualPoint`.
        k: sparsity, an integer, static or traced.

    Returns:
        A scalar, in units of x.

    Cost: a selection of the k largest of d numbers.

    Source: Yuan et al. 2020, Theorems 8 and 9.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([0.0, 4.0, 1.0]), 1.0, mean=False)
        >>> alpha = jnp.array([0.0, -2.0, -0.5])
        >>> point = jaxht.objectives.dual.dual_point(f, jaxht.Sparse(1), alpha)
        >>> float(jaxht.objectives.dual.support_margin(point, 1))
        1.5
    """
    size = jnp.abs(point.z)
    kept = k_largest_mask(size, k)
    return jnp.min(jnp.where(kept, size, jnp.inf)) - jnp.max(jnp.where(kept, 0, size))
