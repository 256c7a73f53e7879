"""Least squares on a support that grows: a factorisation to which coordinates are added one at a time."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from chex import Array
from jax import lax

from jaxht._pytree import integer, pytree
from jaxht.constraints.support import Support
from jaxht.designs import PRECISION


class Columns(Protocol):
    """Minimise ``1/2 ||B w - b||^2 + 1/2 sum_i p_i w_i^2`` over the w of a support."""

    def column(self, i: Array) -> tuple[Array, Array]:
        """Column i of B, (n,), and p_i."""
        ...


@pytree
class Basis:
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
    def empty(cls, b: Array, d: int, k_max: int) -> "Basis":
        """That of no coordinate."""
        n, zeros = b.shape[0], jnp.zeros(k_max, b.dtype)
        square, wide = jnp.zeros((k_max, k_max), b.dtype), jnp.zeros((k_max, n), b.dtype)
        return cls(jnp.zeros(d, bool), jnp.full(k_max, d, jnp.int32), zeros, square, wide, zeros, b)

    def grown(self, columns: Columns, region: Support) -> "Basis":
        """That of a larger support. Cost: as :meth:`joined`, for each coordinate that is new."""
        return lax.while_loop(
            lambda basis: jnp.any(region.mask & ~basis.mask), lambda basis: basis.joined(columns, region), self
        )

    def x(self) -> Array:
        """The minimiser, (d,)."""
        zeros = jnp.zeros(self.mask.shape, self.w.dtype)
        return zeros.at[self.indices].set(self.w, mode="drop")

    def joined(self, columns: Columns, region: Support) -> "Basis":
        """With the first coordinate of a support that it does not have, if there is one. Cost: 2 or 4 n k_max."""
        missing, eps = region.mask & ~self.mask, float(jnp.finfo(self.w.dtype).eps)
        i, is_new = jnp.argmax(missing).astype(jnp.int32), jnp.any(missing)
        slot = (lax.iota(jnp.int32, self.indices.size) == jnp.sum(self.mask, dtype=jnp.int32)) & is_new
        column, p = columns.column(i)
        penalty = jnp.where(slot, p, self.penalty)

        def orthogonalise(carry: Any) -> Any:
            count, image, direction, _, square = carry
            overlap = _matmul(self.images, image) + _matmul(self.directions, penalty * direction)
            image, direction = image - _matmul(overlap, self.images), direction - _matmul(overlap, self.directions)
            left = jnp.vdot(image, image) + jnp.vdot(direction, penalty * direction)
            return count + 1, image, direction, square, left

        def cancelled(carry: Any) -> Array:
            count, *_, before, left = carry
            return (count < 1) | (left < before / 2) & (count < 3)

        whole = jnp.vdot(column, column) + p
        start = (0, column, slot.astype(column.dtype), whole, whole)
        _, image, direction, _, square = lax.while_loop(cancelled, orthogonalise, start)
        # A column whose square overflows must not drop out unseen.
        norm = jnp.where(whole < jnp.inf, jnp.sqrt(square), jnp.nan)
        norm = jnp.where((square <= (DEPENDENT * eps) ** 2 * whole) | ~is_new, jnp.inf, norm)
        image, direction = image / norm, direction / norm
        length = jnp.vdot(image, self.residual) - jnp.vdot(direction, penalty * self.w)
        return Basis(
            self.mask | (lax.iota(jnp.int32, self.mask.size) == i) & is_new,
            jnp.where(slot, i, self.indices),
            penalty,
            jnp.where(slot[:, None], direction, self.directions),
            jnp.where(slot[:, None], image, self.images),
            self.w + length * direction,
            self.residual - length * image,
        )


def orthonormal(columns: Array, penalty: Array) -> Array:
    """The upper part Q (k, n) of an orthonormal basis of the rows of ``[columns, diag(sqrt(penalty))]``.

    By Cholesky factors of the Gram matrix, twice: the second makes up for the condition of the first (Yamamoto et al.
    2015). Padding, and columns that depend on those before as far as the first can tell, give rows of 0. Cost: 4 n k^2.
    """
    k, dtype = columns.shape[0], columns.dtype
    whole = jnp.sum(columns**2, axis=1) + penalty
    scale = lax.rsqrt(jnp.where(whole > 0, whole, 1))[:, None]
    rows = scale * jnp.concatenate([columns, jnp.diag(jnp.sqrt(penalty))], axis=1)
    jitter = 4 * k * float(jnp.finfo(dtype).eps)
    for _ in range(2):
        gram = _matmul(rows, rows.T)
        # Of an independent row the first factor leaves nearly all of the length, of a dependent one less than half.
        alive = jnp.diagonal(gram) > 0.5
        gram = jnp.where(alive & alive[:, None], gram, 0) + jnp.diag(jnp.where(alive, jitter, 1))
        rows = jax.scipy.linalg.solve_triangular(
            jnp.linalg.cholesky(gram, symmetrize_input=False), jnp.where(alive[:, None], rows, 0), lower=True
        )
    return rows[:, : columns.shape[1]]


def _matmul(a: Array, b: Array) -> Any:
    return jnp.matmul(a, b, precision=PRECISION)


# In ulps: a column of which less than this is left, once orthogonal to the others, depends on them.
DEPENDENT = 32.0
