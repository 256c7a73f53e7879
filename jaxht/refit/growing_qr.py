"""Least squares on a support that grows: a factorisation to which coordinates are added one at a time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from chex import Array
from jax import lax

from jaxht._pytree import integer, pytree
from jaxht.constraints import SelectionConstraint, Sparse
from jaxht.constraints.support import Support
from jaxht.designs import Dense
from jaxht.linalg.precision import matmul
from jaxht.objectives.linear_model import LeastSquares
from jaxht.objectives.objective import Objective
from jaxht.refit import Refit, refit
from jaxht.refit.columns import ridge_per_sample, weight_by_root

# Column i of B, (n,), and p_i, of ``1/2 ||B w - b||^2 + 1/2 sum_i p_i w_i^2``.
Column = Callable[[Array], tuple[Array, Array]]


def factorise(objective: Objective, constraint: SelectionConstraint, selected: Array) -> "GrowingQR | None":
    """A factorisation of the columns of the selected items, for :func:`refit_growing`.

    None where there is none, and each refit starts anew: for losses other than least squares, with bounds, where k_max
    is not known, and for groups, which bring in several coordinates at once.
    """
    support = constraint.support(selected)
    if not isinstance(objective, LeastSquares) or not isinstance(constraint, Sparse):
        return None
    if support.k_max is None or support.bounds is not None or len(objective.shape) != 1:
        return None
    b = weight_by_root(objective, objective.y)
    return GrowingQR.empty(b, objective.shape[0], support.k_max).grow(_columns(objective), support)


def refit_growing(
    objective: Objective, qr: "GrowingQR | None", support: Support, x: Array
) -> tuple[Refit, "GrowingQR | None"]:
    """As :func:`jaxht.refit.refit`, for supports of which each has at most one coordinate more than the one before.

    Cost: 2 or 4 n k_max with a factorisation, else that of a refit.
    """
    if qr is None or not isinstance(objective, LeastSquares):
        return refit(objective, support, x), None
    qr = qr.add(_columns(objective), support)
    x = qr.x()
    pred = objective.y - qr.residual if objective.weights is None else objective.predict(x)
    return Refit(x, pred, jnp.array(True)), qr


def _columns(objective: LeastSquares) -> Column:
    """Columns of ``S^(1/2) A``, each with ``l2_i / c``."""

    def column(i: Array) -> tuple[Array, Array]:
        A = objective.A
        if isinstance(A, Dense):
            new = A.columns(i[None])[0]
        else:  # a single column of a sparse design comes sooner as a product
            new = A.matvec(jax.nn.one_hot(i, objective.shape[0], dtype=objective.dtype))
        return weight_by_root(objective, new), ridge_per_sample(objective, objective.shape)[i]

    return column


@pytree
class GrowingQR:
    r"""Directions of the coordinates of a support F that are orthonormal for the Hessian ``H = B'B + diag(p)``.

    By Gram-Schmidt, once more where much of a column was cancelled (Daniel et al. 1976), which keeps them orthogonal to
    working precision; no Gram matrix is formed, whose condition number would be the square of B_F's.

    Attributes:
        mask: bool (d,), F.
        indices: int32 (k_max,), F in the order it has grown, padded with d.
        penalty: (k_max,), p on F.
        directions: (k_max, k_max), one a row, over F; 0 in the padding and for a column that depends on those before.
        images: (k_max, n), B times the directions.
        w: (k_max,), the minimiser on F.
        residual: (n,), b - B w.
    """

    mask: Array
    indices: Array = integer()
    penalty: Array
    directions: Array
    images: Array
    w: Array
    residual: Array

    @classmethod
    def empty(cls, b: Array, d: int, k_max: int) -> "GrowingQR":
        """That of no coordinate."""
        n, zeros = b.shape[0], jnp.zeros(k_max, b.dtype)
        square, wide = jnp.zeros((k_max, k_max), b.dtype), jnp.zeros((k_max, n), b.dtype)
        return cls(jnp.zeros(d, bool), jnp.full(k_max, d, jnp.int32), zeros, square, wide, zeros, b)

    def grow(self, column: Column, support: Support) -> "GrowingQR":
        """That of a larger support. Cost: as :meth:`add`, for each coordinate that is new."""
        return lax.while_loop(lambda qr: jnp.any(support.mask & ~qr.mask), lambda qr: qr.add(column, support), self)

    def x(self) -> Array:
        """The minimiser, (d,)."""
        zeros = jnp.zeros(self.mask.shape, self.w.dtype)
        return zeros.at[self.indices].set(self.w, mode="drop")

    def add(self, column: Column, support: Support) -> "GrowingQR":
        """With the first coordinate of a support that is not in it yet, if there is one. Cost: 2 or 4 n k_max."""
        missing, eps = support.mask & ~self.mask, float(jnp.finfo(self.w.dtype).eps)
        i, is_new = jnp.argmax(missing).astype(jnp.int32), jnp.any(missing)
        slot = (lax.iota(jnp.int32, self.indices.size) == jnp.sum(self.mask, dtype=jnp.int32)) & is_new
        new, p = column(i)
        penalty = jnp.where(slot, p, self.penalty)

        def orthogonalise(carry: Any) -> Any:
            count, image, direction, _, square = carry
            overlap = matmul(self.images, image) + matmul(self.directions, penalty * direction)
            image, direction = image - matmul(overlap, self.images), direction - matmul(overlap, self.directions)
            left = jnp.vdot(image, image) + jnp.vdot(direction, penalty * direction)
            return count + 1, image, direction, square, left

        def cancelled(carry: Any) -> Array:
            count, *_, before, left = carry
            return (count < 1) | (left < before / 2) & (count < 3)

        whole = jnp.vdot(new, new) + p
        start = (0, new, slot.astype(new.dtype), whole, whole)
        _, image, direction, _, square = lax.while_loop(cancelled, orthogonalise, start)
        # A column whose square overflows must not drop out unseen.
        norm = jnp.where(whole < jnp.inf, jnp.sqrt(square), jnp.nan)
        norm = jnp.where((square <= (DEPENDENT * eps) ** 2 * whole) | ~is_new, jnp.inf, norm)
        image, direction = image / norm, direction / norm
        length = jnp.vdot(image, self.residual) - jnp.vdot(direction, penalty * self.w)
        return GrowingQR(
            self.mask | (lax.iota(jnp.int32, self.mask.size) == i) & is_new,
            jnp.where(slot, i, self.indices),
            penalty,
            jnp.where(slot[:, None], direction, self.directions),
            jnp.where(slot[:, None], image, self.images),
            self.w + length * direction,
            self.residual - length * image,
        )


# In ulps: a column of which less than this is left, once orthogonal to the others, depends on them.
DEPENDENT = 32.0
