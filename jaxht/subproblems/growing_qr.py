"""Least squares on a growing support: a QR factorisation to which columns are added one at a
time."""

from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxht._dataclass import integer, pytree
from jaxht._typing import Array
from jaxht.constraints import SelectionConstraint, Sparse
from jaxht.constraints.support import Support
from jaxht.linalg.precision import matmul
from jaxht.objectives.linear_model import LeastSquares
from jaxht.objectives.objective import Objective
from jaxht.subproblems import Refit, refit
from jaxht.subproblems.columns import gather_column, ridge_per_sample, weight_by


def factorise(
    objective: Objective, constraint: SelectionConstraint, selected: Array
) -> "GrowingQR | None":
    """Factorise the columns of the selected items, for :func:`refit_growing`.

    Returns:
        A :class:`GrowingQR`; or None, so that every refit is computed from scratch: for losses
        other than least squares, for bounds, where k_max is not known, and for groups, which add
        several coordinates at once.
    """
    support = constraint.support(selected)
    if not isinstance(objective, LeastSquares) or not isinstance(constraint, Sparse):
        return None
    if support.k_max is None or support.bounds is not None or len(objective.shape) != 1:
        return None
    return GrowingQR.empty(objective.target, objective.shape[0], support.k_max).grow(
        objective, support
    )


def refit_growing(
    objective: Objective, qr: "GrowingQR | None", support: Support, x: Array
) -> tuple[Refit, "GrowingQR | None"]:
    """:func:`jaxht.subproblems.refit` for a sequence of supports that grow by at most one coordinate at a
    time.

    Returns:
        The :class:`jaxht.subproblems.Refit`, and the factorisation for the next support.

    Cost: 2 or 4 n k_max with a factorisation, else that of a refit.
    """
    if qr is None or not isinstance(objective, LeastSquares):
        return refit(objective, support, x), None
    qr = qr.add(objective, support)
    return Refit(qr.x(), objective.target - qr.residual, jnp.array(True)), qr


@pytree
class GrowingQR:
    """Directions over a support F that are orthonormal for ``H = A'SA + diag(p)``, c H the Hessian,
    p = l2 / c.

    They are computed by Gram-Schmidt, repeated where much of a column cancels (Daniel et al. 1976),
    which keeps them orthogonal to working precision; no Gram matrix is formed, whose condition
    number would be the square of A_F's.

    Attributes:
        mask: bool (d,), F.
        indices: int32 (k_max,), F in the order in which it has grown, padded with d.
        penalty: (k_max,), p on F.
        directions: (k_max, k_max), one direction in each row, over F; 0 in the padding and for a
            column that depends on those before.
        images: (k_max, n), A times the directions.
        w: (k_max,), the minimiser on F.
        residual: (n,), y - A w.
    """

    mask: Array
    indices: Array = integer()
    penalty: Array
    directions: Array
    images: Array
    w: Array
    residual: Array

    @classmethod
    def empty(cls, y: Array, d: int, k_max: int) -> "GrowingQR":
        """The factorisation of no column."""
        n, zeros = y.shape[0], jnp.zeros(k_max, y.dtype)
        square, wide = jnp.zeros((k_max, k_max), y.dtype), jnp.zeros((k_max, n), y.dtype)
        return cls(jnp.zeros(d, bool), jnp.full(k_max, d, jnp.int32), zeros, square, wide, zeros, y)

    def grow(self, objective: LeastSquares, support: Support) -> "GrowingQR":
        """The factorisation of a larger support. Cost: that of :meth:`add` for each new
        coordinate."""
        return lax.while_loop(
            lambda qr: jnp.any(support.mask & ~qr.mask), lambda qr: qr.add(objective, support), self
        )

    def x(self) -> Array:
        """The minimiser, (d,)."""
        zeros = jnp.zeros(self.mask.shape, self.w.dtype)
        return zeros.at[self.indices].set(self.w, mode="drop")

    def add(self, objective: LeastSquares, support: Support) -> "GrowingQR":
        """Add the first coordinate of a support that is not in F yet, if there is one. Cost: 2 or 4
        n k_max."""
        new_mask, eps = support.mask & ~self.mask, float(jnp.finfo(self.w.dtype).eps)
        i, is_new = jnp.argmax(new_mask).astype(jnp.int32), jnp.any(new_mask)
        slot = (
            lax.iota(jnp.int32, self.indices.size) == jnp.sum(self.mask, dtype=jnp.int32)
        ) & is_new
        new, p = gather_column(objective, i), ridge_per_sample(objective, objective.shape)[i]
        penalty = jnp.where(slot, p, self.penalty)

        def product(u: Array, v: Array) -> Array:
            return jnp.vdot(u, weight_by(objective, v))

        def orthogonalise(carry: Any) -> Any:
            count, image, direction, _, square = carry
            overlap = matmul(self.images, weight_by(objective, image)) + matmul(
                self.directions, penalty * direction
            )
            image, direction = (
                image - matmul(overlap, self.images),
                direction - matmul(overlap, self.directions),
            )
            remaining = product(image, image) + jnp.vdot(direction, penalty * direction)
            return count + 1, image, direction, square, remaining

        def cancelled(carry: Any) -> Array:
            count, *_, before, remaining = carry
            return (count < 1) | (remaining < before / 2) & (count < 3)

        total = product(new, new) + p
        start = (0, new, slot.astype(new.dtype), total, total)
        _, image, direction, _, square = lax.while_loop(cancelled, orthogonalise, start)
        # NaN, so that a column whose square overflows is not ignored silently.
        norm = jnp.where(total < jnp.inf, jnp.sqrt(square), jnp.nan)
        norm = jnp.where((square <= (DEPENDENT * eps) ** 2 * total) | ~is_new, jnp.inf, norm)
        image, direction = image / norm, direction / norm
        step = product(image, self.residual) - jnp.vdot(direction, penalty * self.w)
        return GrowingQR(
            self.mask | (lax.iota(jnp.int32, self.mask.size) == i) & is_new,
            jnp.where(slot, i, self.indices),
            penalty,
            jnp.where(slot[:, None], direction, self.directions),
            jnp.where(slot[:, None], image, self.images),
            self.w + step * direction,
            self.residual - step * image,
        )


# In ulps: a column whose part orthogonal to the others is smaller than this, relative to its norm,
# depends on them.
DEPENDENT = 32.0
