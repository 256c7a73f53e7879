"""A sparse design matrix whose products both ways are gathers, at the speed of a CSR loop or better."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, ArrayDType
from jax import lax
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

from jaxht.tree import integer, pytree, static

# In a product, a chunk costs about as much as this many of the slots in it: its sum is written, read and scattered.
CHUNK_COST = 2.5
WIDTHS = (1, 2, 4, 8)  # slots a chunk; wider ones were no faster
GATHERED = 4


@pytree
class Chunks:
    """A sparse matrix M (m x p) for products from the left: rows cut into chunks of one width W, padded at their ends.

    XLA makes one loop on all cores of W gathers, products and their sum, where W is static, but scatters one number
    after the other on one core. So a product scatters sums of chunks, not entries.

    Args:
        values: (C, W) entries of M; 0 in the padding.
        indices: (C, W) their columns; p in the padding, which reads 0: no NaN in what M is multiplied with hurts it,
            and its gradient is 0.
        rows: (C,) the row that each chunk belongs to, rising.
        num_rows: m, static.
    """

    values: Array
    indices: Array = integer()
    rows: Array = integer()
    num_rows: int = static()

    @classmethod
    def build(cls, rows: np.ndarray, indices: np.ndarray, values: np.ndarray, shape: tuple[int, int]) -> "Chunks":
        """From the coordinates of the entries, ordered by row, and ``shape = (m, p)``. On the host."""
        counts = np.bincount(rows, minlength=shape[0])
        width = min(WIDTHS, key=lambda W: (W + CHUNK_COST) * np.sum(-(-counts // W)))
        chunks = -(-counts // width)
        # An entry moves up by the padding of all rows before its own.
        before = np.cumsum(width * chunks - counts) - (width * chunks - counts)
        slots = np.arange(len(rows)) + before[rows]
        size = width * int(np.sum(chunks))
        padded_values, padded_indices = np.zeros(size, values.dtype), np.full(size, shape[1], np.int32)
        padded_values[slots], padded_indices[slots] = values, indices
        return cls(
            jnp.asarray(padded_values.reshape(-1, width)),
            jnp.asarray(padded_indices.reshape(-1, width)),
            jnp.asarray(np.repeat(np.arange(shape[0], dtype=np.int32), chunks)),
            shape[0],
        )

    def dot(self, u: Array) -> Array:
        """``M u``, from (p, ...) to (m, ...)."""
        return _dot(self, u)


@pytree
class SparseMatrix:
    """A design A (n x d) held by its nonzero entries, once by row and once by column: see :meth:`build`.

    Where the entries are is fixed; their values are traced, in two copies: ``A x`` reads the first and ``A^T r`` the
    second, and a gradient by A comes in the same two parts. Gradients by x and r are right, but scatter all entries:
    where time counts, write ``A.rmatvec`` instead of the gradient of ``A.matvec``, as the objectives do. (And instead
    of ``jax.linear_transpose``, which does not know these products; ``jax.vjp`` does.)

    Args:
        by_row: A.
        by_column: A^T.
        nnz: number of entries stored, static.

    Cost: a product is one pass over the entries, padding included (less than a tenth of them where rows and columns
    are long), and scatters an eighth as many numbers. Lanes of a vmap that share A read it together.
    """

    by_row: Chunks
    by_column: Chunks
    nnz: int = static()

    @classmethod
    def build(cls, A: Any) -> "SparseMatrix":
        """Arrange a matrix on the host.

        Args:
            A: (n, d) real SciPy sparse matrix or array of any format, or ``jax.experimental.sparse`` BCOO or BCSR
                without batch or dense dimensions, concrete. Duplicate entries are summed, entries out of range (how
                JAX pads) are dropped, zeros are kept; integers and booleans become the default float.

        Raises:
            ValueError: if A is none of these.

        Cost: two sorts of the entries, and memory for about ten integers an entry on the way.
        """
        rows, columns, values, shape = _coordinates(A)
        by_row = Chunks.build(rows, columns, values, shape)
        order = np.argsort(columns, kind="stable")
        by_column = Chunks.build(columns[order], rows[order], values[order], shape[::-1])
        return cls(by_row, by_column, len(values))

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.by_row.num_rows, self.by_column.num_rows

    @property
    def dtype(self) -> ArrayDType:
        """That of the values."""
        return self.by_row.values.dtype

    def gathers(self, k_max: int | None) -> bool:
        """Where k_max dense columns take no more than GATHERED times the memory of A."""
        return k_max is not None and k_max * self.shape[0] <= GATHERED * self.nnz

    def matvec(self, x: Array) -> Array:
        """``A x``, from (d,) to (n,), or from (d, c) to (n, c). Cost: nnz c."""
        return self.by_row.dot(x)

    def rmatvec(self, r: Array) -> Array:
        """``A^T r``, from (n,) to (d,), or from (n, c) to (d, c). Cost: nnz c."""
        return self.by_column.dot(r)

    def squared(self, weights: Array | None = None) -> Array:
        """``sum_i w_i A_ij^2`` for each column j, (d,); weights w (n,), or None for ones. Cost: nnz."""
        part = self.by_column
        weights = jnp.ones(self.shape[:1], self.dtype) if weights is None else weights
        return Chunks(part.values**2, part.indices, part.rows, part.num_rows).dot(weights)

    def column_norms(self) -> Array:
        """Euclidean norms of the columns, (d,). Cost: nnz."""
        return jnp.sqrt(self.squared())

    def columns(self, indices: Array) -> Array:
        """``A_F^T``: the columns at ``indices`` (k_max,), dense, as rows (k_max, n); 0 where an index is d.

        The indices below d must differ from each other. Cost: a scatter of all entries, most of which it drops.
        """
        (n, d), num = self.shape, len(indices)
        # Where in F each column is; num, out of range, for those not in F, and for d.
        place = jnp.full(d, num, jnp.int32).at[indices].set(jnp.arange(num, dtype=jnp.int32), mode="drop")
        part = self.by_column
        zeros = jnp.zeros((num, n), self.dtype)
        return zeros.at[place[part.rows][:, None], part.indices].set(part.values, mode="drop")


@jax.custom_jvp
def _dot(M: Chunks, u: Array) -> Array:
    # Where M is a constant of the program, the barrier keeps XLA from evaluating products of constants as it compiles.
    return _lanes_last(dataclasses.replace(M, values=lax.optimization_barrier(M.values)), u)


@functools.partial(_dot.defjvp, symbolic_zeros=True)
def _dot_jvp(primals: tuple[Chunks, Array], tangents: tuple[Chunks, Array]) -> tuple[Array, Any]:
    (M, u), (dM, du) = primals, tangents
    terms = [] if isinstance(du, SymbolicZero) else [_products(M, du)]
    if not isinstance(dM.values, SymbolicZero):
        terms.append(_products(dataclasses.replace(M, values=dM.values), u))
    return _dot(M, u), sum(terms)


def _products(M: Chunks, u: Array) -> Array:
    """``M u`` in operations that JAX can transpose."""
    # Besides what the padding reads, this makes XLA write u down first, which it would else compute anew in each slot;
    # and it spares the comparison of each index with p.
    u = jnp.concatenate([u, jnp.zeros_like(u, shape=(1, *u.shape[1:]))])
    values = M.values.reshape(M.values.shape + (1,) * (u.ndim - 1))
    sums = sum(values[:, w] * _take(u, M.indices[:, w]) for w in range(values.shape[1]))
    return jax.ops.segment_sum(sums, M.rows, M.num_rows, indices_are_sorted=True)


def _take(u: Array, indices: Array) -> Array:
    """``u[indices]`` along the first axis. Unlike indexing it does not look for negative indices."""
    dimensions = lax.GatherDimensionNumbers(tuple(range(1, u.ndim)), (0,), (0,))
    return lax.gather(u, indices[:, None], dimensions, (1, *u.shape[1:]), mode="promise_in_bounds")


_lanes_last = custom_vmap(_products)


@_lanes_last.def_vmap
def _vmapped(axis_size: int, in_batched: list[Any], M: Chunks, u: Array) -> tuple[Array, bool]:
    """Lanes that share M become the last axis of u, where a gather reads them side by side."""
    if any(jax.tree.leaves(in_batched[0])):
        axes = jax.tree.map(lambda batched: 0 if batched else None, tuple(in_batched))
        return jax.vmap(_products, in_axes=axes)(M, u), True
    return jnp.moveaxis(_lanes_last(M, jnp.moveaxis(u, 0, -1)), -1, 0), True


def _coordinates(A: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]:
    """Rows (rising), columns (rising within a row), values and shape; each place in range, and once."""
    rows, columns, values = _stored(A)
    n, d = (int(size) for size in A.shape)
    if max(n, d) >= 2**31:
        raise ValueError(f"A must have fewer than 2^31 rows and columns; got shape {A.shape}")
    if values.dtype.kind not in "fiub":
        raise ValueError(f"A must be real; got dtype {values.dtype}")
    if values.dtype.kind != "f":
        values = values.astype(jnp.result_type(float))
    inside = (rows < n) & (columns < d)
    if not np.all(inside):
        rows, columns, values = rows[inside], columns[inside], values[inside]
    places = rows.astype(np.int64) * d + columns
    if np.any(places[1:] <= places[:-1]):
        order = np.argsort(places, kind="stable")
        places, values = places[order], values[order]
        first = np.flatnonzero(np.diff(places, prepend=-1))
        places, values = places[first], np.add.reduceat(values, first)
    return (places // d).astype(np.int32), (places % d).astype(np.int32), values, (n, d)


def _stored(A: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows, columns and values that A stores, as it stores them."""
    ndim = len(getattr(A, "shape", ()))
    if isinstance(getattr(A, "data", None), jax.core.Tracer):
        raise ValueError("A must be concrete where it is a sparse matrix: call jaxht.design(A) outside of jit and vmap")
    if hasattr(A, "tocoo") and ndim == 2:  # SciPy
        A = A.tocoo()
        return A.row, A.col, A.data
    if ndim == 2 and getattr(A, "n_batch", None) == 0 and getattr(A, "n_dense", None) == 0:  # BCOO or BCSR
        values, indices = np.asarray(A.data), np.asarray(A.indices)
        if not hasattr(A, "indptr"):
            return indices[:, 0], indices[:, 1], values
        counts = np.diff(np.asarray(A.indptr))
        rows, stored = np.repeat(np.arange(len(counts)), counts), int(np.sum(counts))
        return rows, indices[:stored], values[:stored]
    raise ValueError(
        "A must be a matrix of shape (n, d) of scipy.sparse, or a BCOO or BCSR of jax.experimental.sparse without "
        f"batch or dense dimensions; got {type(A).__name__}" + (f" of shape {A.shape}" if ndim else "")
    )
