"""A sparse design matrix whose products both ways are gathers, at the speed of a CSR loop or
better."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._checks import warn_of_rounding
from jaxht._dataclass import integer, pytree
from jaxht._typing import Array, ArrayDType
from jaxht.designs.chunks import Chunks
from jaxht.designs.protocol import Design
from jaxht.designs.rows import SparseRows
from jaxht.linalg.inner_products import is_complex, real_dtype

# A refit gathers dense columns if they have at most so many numbers for each stored one of A.
MAX_GATHERED_PER_STORED = 4


@pytree
class SparseMatrix(Design):
    """A sparse design A (n, d) that stores its entries by row and by column; made by
    :func:`jaxht.design`.

    The positions of the entries are fixed; their values are traced, in two copies: ``A x`` reads
    the first and ``A^T r`` the second, and a gradient with respect to A comes in the same two
    parts. Gradients with respect to x and r are right, but scatter all entries: where time counts,
    write ``A.rmatvec`` instead of the gradient of ``A.matvec``, as the objectives do. (And instead
    of ``jax.linear_transpose``, which does not know these products; ``jax.vjp`` does.)

    Args:
        by_row: A.
        by_column: A^T.
        nnz: number of entries stored, without padding.

    Cost: a product is one pass over the entries, padding included (less than a tenth of them where
    rows and columns are long), and scatters an eighth as many numbers. Lanes of a vmap that share A
    read it together. Matrices of one shape and of nearly as many entries are padded to one size, so
    that they share programs.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> import scipy.sparse
        >>> import jaxht
        >>> A = jaxht.design(scipy.sparse.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]], np.float32)))
        >>> A.nnz, A.matvec(jnp.ones(3)).tolist()
        (3, [3.0, 3.0])
    """

    by_row: Chunks
    by_column: Chunks
    nnz: int = integer()

    @classmethod
    def build(cls, A: Any) -> "SparseMatrix":
        """Order the entries of a matrix by row and by column, on the host.

        Args:
            A: (n, d) SciPy sparse matrix or array of any format, real or complex, or
                ``jax.experimental.sparse`` BCOO or BCSR without batch or dense dimensions,
                concrete. Duplicate entries are summed, entries out of range (how JAX pads) are
                dropped, zeros are kept; integers and booleans become the default float.

        Raises:
            ValueError: if A is none of these.

        Cost: two sorts of the entries, and temporary memory of about ten integers an entry.
        """
        rows, columns, values, shape = read_entries(A)
        by_row = Chunks.build(rows, columns, values, shape)
        order = np.argsort(columns, kind="stable")
        by_column = Chunks.build(columns[order], rows[order], values[order], shape[::-1])
        by_row, by_column = jax.tree.map(jnp.asarray, (by_row, by_column))
        return cls(by_row, by_column, len(values))

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.by_row.num_rows, self.by_column.num_rows

    @property
    def dtype(self) -> ArrayDType:
        """That of the values."""
        return self.by_row.values.dtype

    takes_complex = True

    def gathers(self, k_max: int | None) -> bool:
        """Whether k_max dense columns take at most MAX_GATHERED_PER_STORED times the memory of A."""
        return k_max is not None and may_gather(k_max * self.shape[0], self.by_row)

    def matvec(self, x: Array) -> Array:
        """``A x``, from (d,) to (n,), or from (d, c) to (n, c). Cost: nnz c."""
        return self.by_row.dot(x)

    def rmatvec(self, r: Array) -> Array:
        """``A^H r``, from (n,) to (d,), or from (n, c) to (d, c). Cost: nnz c."""
        return self.by_column.dot(r.conj()).conj()

    def squared(self, weights: Array) -> Array:
        """``sum_i weights_i |A_ij|^2`` for all j, (d,). Cost: nnz."""
        return self.by_column.squared().dot(weights)

    def squared_about(self, center: Array, weights: Array) -> Array:
        """``sum_i weights_i (A_ij - center_j)^2`` for all j, (d,), of a real A. Cost: nnz."""
        stored = self._sum_stored(self._residuals(center) ** 2, weights)
        return stored + self._weight_of_zeros(weights) * center**2

    def central_moments(self, weights: Array | None) -> tuple[Array, Array] | None:
        """Mean and variance of each column, the mean corrected by that of the residuals, since a
        sum goes through a column entry by entry; None of complex numbers."""
        if is_complex(self):
            return None
        n = self.shape[0]
        if weights is None:
            share = jnp.full(n, 1 / n, self.dtype)
            zeros = self._count_zeros(share > 0) / n  # without rounding errors
        else:
            share = weights
            zeros = self._weight_of_zeros(weights)
        mean = self.rmatvec(share)
        mean += self._sum_stored(self._residuals(mean), share) - zeros * mean
        variance = self._sum_stored(self._residuals(mean) ** 2, share) + zeros * mean**2
        return mean, variance

    def _residuals(self, center: Array) -> Array:
        """The entries less the number of their column, as ``by_column`` stores them."""
        part = self.by_column
        return part.values - center[part.rows][:, None]

    def _sum_stored(self, values: Array, weights: Array) -> Array:
        """The weighted sum of each column, (d,), of values in place of the entries."""
        part = self.by_column
        is_stored = part.indices < self.shape[0]
        return dataclasses.replace(part, values=jnp.where(is_stored, values, 0)).dot(weights)

    def _weight_of_zeros(self, weights: Array) -> Array:
        """The weight of the rows in which a column stores nothing, (d,), linear in the weights."""
        stored = self._sum_stored(jnp.ones_like(self.by_column.values), weights)
        others = jnp.sum(weights) - stored
        # 0, and no rounding error, where all rows of weight are stored.
        exact = jnp.where(self._count_zeros(weights > 0) > 0, jnp.maximum(others, 0), 0)
        return others + lax.stop_gradient(exact - others)

    def _count_zeros(self, has_weight: Array) -> Array:
        """The number of these rows in which a column stores nothing, (d,)."""
        part = self.by_column
        is_counted = has_weight.at[part.indices].get(mode="fill", fill_value=False)
        of_chunks = jnp.sum(is_counted, axis=1, dtype=jnp.int32)
        stored = jax.ops.segment_sum(of_chunks, part.rows, self.shape[1])
        zeros = jnp.sum(has_weight, dtype=jnp.int32) - stored
        return zeros.astype(self.dtype)

    divides_columns = True

    def divide_columns(self, divisors: Array, norms: Array | None) -> "SparseMatrix":
        """The matrix with each column divided by its number."""
        factors = 1 / divisors
        by_row = self.by_row
        by_column = self.by_column
        in_rows = by_row.values * factors.at[by_row.indices].get(mode="fill", fill_value=1)
        in_columns = by_column.values * factors[by_column.rows][:, None]
        return SparseMatrix(
            dataclasses.replace(by_row, values=in_rows),
            dataclasses.replace(by_column, values=in_columns),
            self.nnz,
        )

    def pad(self, num_samples: int, num_columns: int) -> "SparseMatrix":
        """The matrix with further rows and columns, without entries."""
        n, d = self.shape
        by_row = self.by_row.pad(num_samples, d, num_columns)
        by_column = self.by_column.pad(num_columns, n, num_samples)
        return SparseMatrix(by_row, by_column, self.nnz)

    def rows(self, indices: Array) -> SparseRows:
        """The rows at ``indices`` (b,), as a design (b, d); 0 where one is n. Its products read
        these rows alone."""
        return SparseRows.select(self.by_row, indices, self.shape[1])

    def row_norms(self) -> Array:
        """Euclidean norms of the rows, (n,). Cost: nnz."""
        return jnp.sqrt(self.by_row.squared().dot(jnp.ones(self.shape[1], real_dtype(self))))

    def columns(self, indices: Array) -> Array:
        """``A_F^T``: the columns at ``indices`` (k_max,), dense, as rows (k_max, n); 0 where an
        index is d.

        The indices below d must differ from each other. Cost: a scatter of all entries, most of
        which it drops.
        """
        n, d = self.shape
        num = len(indices)
        # Position of each column in F; num, out of range, for those not in F, and for d.
        position = (
            jnp.full(d, num, jnp.int32)
            .at[indices]
            .set(jnp.arange(num, dtype=jnp.int32), mode="drop")
        )
        part = self.by_column
        zeros = jnp.zeros((num, n), self.dtype)
        return zeros.at[position[part.rows][:, None], part.indices].set(part.values, mode="drop")


def may_gather(size: int, by_row: Chunks) -> bool:
    """Whether a refit should gather dense columns of so many numbers."""
    return size <= MAX_GATHERED_PER_STORED * by_row.values.size


def read_entries(A: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]:
    """Rows (rising), columns (rising within a row), values and shape; all in range, without
    duplicates."""
    rows, columns, values = _read_stored(A)
    n, d = (int(size) for size in A.shape)
    if max(n, d) >= 2**31:
        raise ValueError(f"A must have fewer than 2^31 rows and columns; got shape {A.shape}")
    if values.dtype.kind not in "fciub" or values.dtype.char in "gG":  # of 80 or 128 bits
        raise ValueError(
            "A must be float32, float64, complex64 or complex128 (or integer); got dtype "
            f"{values.dtype}"
        )
    warn_of_rounding(values)
    if values.dtype.kind not in "fc":
        values = values.astype(jnp.result_type(float))
    inside = (rows < n) & (columns < d)
    if not np.all(inside):
        rows = rows[inside]
        columns = columns[inside]
        values = values[inside]
    places = rows.astype(np.int64) * d + columns
    if np.any(places[1:] <= places[:-1]):
        order = np.argsort(places, kind="stable")
        places = places[order]
        values = values[order]
        first = np.flatnonzero(np.diff(places, prepend=-1))
        places = places[first]
        values = np.add.reduceat(values, first)
    return (places // d).astype(np.int32), (places % d).astype(np.int32), values, (n, d)


def _read_stored(A: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows, columns and values as A stores them."""
    ndim = len(getattr(A, "shape", ()))
    if isinstance(getattr(A, "data", None), jax.core.Tracer):
        raise ValueError(
            "A must be concrete where it is a sparse matrix: call jaxht.design(A) outside of jit and vmap"
        )
    if hasattr(A, "tocoo") and ndim == 2:  # SciPy
        A = A.tocoo()
        return A.row, A.col, A.data
    if (
        ndim == 2 and getattr(A, "n_batch", None) == 0 and getattr(A, "n_dense", None) == 0
    ):  # BCOO or BCSR
        values = np.asarray(A.data)
        indices = np.asarray(A.indices)
        if not hasattr(A, "indptr"):
            return indices[:, 0], indices[:, 1], values
        counts = np.diff(np.asarray(A.indptr))
        rows = np.repeat(np.arange(len(counts)), counts)
        stored = int(np.sum(counts))
        return rows, indices[:stored], values[:stored]
    raise ValueError(
        "A must be a matrix of shape (n, d) of scipy.sparse, or a BCOO or BCSR of jax.experimental.sparse without "
        f"batch or dense dimensions; got {type(A).__name__}"
        + (f" of shape {A.shape}" if ndim else "")
    )
