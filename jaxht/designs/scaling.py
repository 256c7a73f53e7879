"""Columns of mean 0 and variance 1, without making a sparse matrix dense or an operator a
matrix."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxht._checks import known_values
from jaxht._dataclass import pytree
from jaxht._typing import Array, ArrayDType, Numeric
from jaxht.designs.dense import Dense
from jaxht.designs.protocol import Design
from jaxht.linalg.full_precision import machine_eps, matmul


@pytree
class Centred(Design):
    """A design minus a matrix of rank 1, ``B - u m'``: u is 1 for each row, m the means of the
    columns of B.

    Args:
        base: B, a design n x d.
        mean: m, (d,).
        ones: u, (n,); 0 for rows that are padding.
        norms: (d,) Euclidean norms of the centred columns.

    Cost: a product is one with B, and n + d.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A = jaxht.designs.Centred(jaxht.design(jnp.eye(2)), jnp.full(2, 0.5), jnp.ones(2), jnp.full(2, 0.5**0.5))
        >>> A.matvec(jnp.array([1.0, 3.0])).tolist()
        [-1.0, 1.0]
    """

    base: Any
    mean: Array
    ones: Array
    norms: Array | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.base.shape

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of B."""
        return self.base.dtype

    @property
    def has_column_norms(self) -> bool:
        """Whether they are given, or B has its own."""
        return self.norms is not None or self.base.has_column_norms

    @property
    def has_cheap_columns(self) -> bool:
        """Whether those of B are."""
        return self.base.has_cheap_columns

    @property
    def in_memory(self) -> bool:
        """Whether B is."""
        return self.base.in_memory

    def gathers(self, k_max: int | None) -> bool:
        """Whether B gathers columns."""
        return self.base.gathers(k_max)

    def matvec(self, x: Array) -> Array:
        """``B x - u (m'x)``: x is (d,) or (d, c)."""
        return self.base.matvec(x) - _outer(self.ones, matmul(self.mean, x))

    def rmatvec(self, r: Array) -> Array:
        """``B'r - m (u'r)``: r is (n,) or (n, c)."""
        return self.base.rmatvec(r) - _outer(self.mean, matmul(self.ones, r))

    def columns(self, indices: Array) -> Array:
        """The columns at ``indices`` (k_max,) as rows (k_max, n); 0 where an index is d."""
        mean = self.mean.at[indices].get(mode="fill", fill_value=0)
        return self.base.columns(indices) - _outer(mean, self.ones)

    def rows(self, indices: Array) -> "Centred":
        """The rows at ``indices`` (b,), as a design (b, d); 0 where an index is n."""
        ones = self.ones.at[indices].get(mode="fill", fill_value=0)
        return Centred(self.base.rows(indices), self.mean, ones)

    def pad(self, num_samples: int, num_columns: int) -> "Centred | None":
        """B with further rows, that are not centred, and columns of zeros."""
        base = self.base.pad(num_samples, num_columns)
        if base is None:
            return None
        n, d = self.shape
        num_added = num_columns - d
        ones = np.pad(self.ones, (0, num_samples - n))
        mean = np.pad(self.mean, (0, num_added))
        norms = None if self.norms is None else np.pad(self.norms, (0, num_added))
        return Centred(base, mean, ones, norms)

    def squared(self, weights: Array) -> Array:
        """``sum_i weights_i A_ij^2`` for all j, (d,), of weights that are not negative, and 0 where u
        is. Cost: that of B."""
        return self.base.squared_about(self.mean, weights * self.ones)

    def row_norms(self) -> Array:
        """Euclidean norms of the rows, (n,). Cost: that of B, and a product."""
        along = self.base.row_norms() ** 2 - 2 * self.ones * self.base.matvec(self.mean)
        return jnp.sqrt(jnp.maximum(along + self.ones**2 * jnp.vdot(self.mean, self.mean), 0))

    def rounding_norms(self) -> Array:
        """Those of B and of what is subtracted, which cancel."""
        return self.base.rounding_norms() + jnp.abs(self.mean) * jnp.sqrt(jnp.sum(self.ones))

    def cancellation(self) -> Numeric:
        """The largest quotient of :meth:`rounding_norms` and the norms of the columns."""
        if not self.has_column_norms:
            return self.base.cancellation()
        norms = self.column_norms()
        ratios = jnp.where(norms > 0, self.rounding_norms() / norms, 1)
        return jnp.max(ratios, initial=1)

    def column_norms(self) -> Array:
        """Euclidean norms of the columns, (d,): as given, else by :meth:`squared`."""
        return super().column_norms() if self.norms is None else self.norms


@pytree
class Standardized:
    """A design with standardised columns, and the way back: the result of
    :func:`jaxht.standardize`.

    Attributes:
        design: columns ``(a_j - mean_j) / scale_j``, a design of the shape of A, for objectives.
        mean: (d,), the means of the columns of A; 0 where they are not centred.
        scale: (d,), the standard deviations of the columns of A; 1 for columns of variance 0.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> standardized = jaxht.standardize(jnp.array([[1.0, 10.0], [3.0, 50.0]]))
        >>> standardized.mean.tolist(), standardized.scale.tolist(), standardized.design.matvec(jnp.ones(2)).tolist()
        ([2.0, 30.0], [1.0, 20.0], [-2.0, 2.0])
    """

    design: Any
    mean: Array
    scale: Array

    def coefficients(self, x: Array) -> Array:
        """Coefficients for the columns of A itself, ``x / scale``; x is (..., d), for the columns
        of ``design``."""
        return x / self.scale

    def intercept(self, x: Array, offset: Any = 0.0) -> Array:
        """The intercept beside :meth:`coefficients`: ``offset - mean . (x / scale)``, x (..., d).

        Args:
            x: coefficients for the columns of ``design``.
            offset: the intercept beside x: for least squares the mean of y, where y was centred as
                well.

        Returns:
            One number for each x.
        """
        return offset - jnp.sum(self.mean * self.coefficients(x), axis=-1)


class ColumnMoments(NamedTuple):
    """The mean, the variance (over n, not n - 1) and the mean square of each column, (d,)."""

    mean: Array
    variance: Array
    square: Array


def find_moments(A: Design, weights: Array | None = None) -> ColumnMoments:
    """The moments of each column, weighted where there are weights.

    A variance within rounding errors of 0 is 0.

    Cost: n d; for a sparse matrix its entries, for an operator d products unless its norms are
    known.
    """
    n = A.shape[0]
    share = None if weights is None else weights / jnp.sum(weights)
    central = A.central_moments(share)
    if central is not None:
        mean, variance = central
        square = mean**2 + variance
    else:
        mean = A.rmatvec(jnp.ones(n, A.dtype)) / n if share is None else A.rmatvec(share)
        square = A.column_norms() ** 2 / n if share is None else A.squared(share)
        variance = square - mean**2
    eps = machine_eps(mean)
    # The root of n ulps is what a mean loses; in two passes its square alone is lost, and from
    # counts nothing.
    noise = n**0.5 * eps if central is None else min(n * eps**2, eps)
    return ColumnMoments(mean, jnp.where(variance <= noise * square, 0, variance), square)


def _check_squares(A: Design, weights: Array | None, variance: Array, square: Array) -> None:
    """Raise ValueError where the squares of a column overflow or all underflow, as far as this is
    known: the column would become 0."""
    known = known_values(square)
    if known is None:
        return
    is_lost = ~np.isfinite(known) | ~np.isfinite(np.asarray(variance))
    if np.any(known == 0) and A.has_cheap_columns:
        # Random signs, so that no sum is 0; the product of an operator would be rounded.
        signs = np.random.default_rng(0).normal(size=A.shape[0]).astype(known.dtype)
        if weights is not None:
            signs = np.where(np.asarray(weights) > 0, signs, 0)
        sums = A.rmatvec(jnp.asarray(signs))
        is_lost |= (known == 0) & (np.asarray(sums) != 0)
    if np.any(is_lost):
        columns = np.flatnonzero(is_lost)[:5].tolist()
        raise ValueError(
            f"squares of columns {columns} of A over- or underflow in {np.dtype(A.dtype)}, or entries "
            "are not finite: give these columns in other units"
        )


def standardize_columns(
    A: Design, with_mean: bool | Array, with_std: bool, weights: Array | None
) -> Standardized:
    """Scale columns to variance 1, and centre them, where this is asked for."""
    n = A.shape[0]
    mean, variance, square = find_moments(A, weights)
    _check_squares(A, weights, variance, square)
    scale = jnp.where(variance > 0, jnp.sqrt(variance), 1) if with_std else jnp.ones_like(variance)
    mean = jnp.where(jnp.asarray(with_mean), mean, 0)
    # What is left of a constant column is rounding, which would be selected: it becomes 0.
    is_empty = (variance <= 0) & jnp.asarray(with_mean)
    divisor = jnp.where(is_empty, jnp.inf, scale)
    if A.dense_array is not None:
        return Standardized(Dense((A.dense_array - mean) / divisor), mean, scale)
    # Norms that follow from the moments; with weights these say nothing of them.
    norms = jnp.sqrt(n * square) / divisor if weights is None else None
    scaled = A.divide_columns(divisor, norms)
    if with_mean is False:
        return Standardized(scaled, mean, scale)
    is_centred = with_mean is True and weights is None
    norms = jnp.sqrt(n * variance) / divisor if is_centred else None
    return Standardized(Centred(scaled, mean / divisor, jnp.ones(n, A.dtype), norms), mean, scale)


def _outer(u: Array, v: Array) -> Array:
    return u.reshape(u.shape + (1,) * v.ndim) * v
