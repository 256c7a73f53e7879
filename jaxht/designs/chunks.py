"""Sparse matrices in chunks of rows, and their products with vectors."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

from jaxht._dataclass import integer, pytree, replace, static
from jaxht._rounding import round_up
from jaxht._typing import Array
from jaxht.linalg.inner_products import squares

# In a product, a chunk costs as much as about this many of its slots: its sum is written, read and
# scattered.
CHUNK_COST_IN_SLOTS = 2.5
# Slots of a chunk; wider ones were no faster.
CHUNK_WIDTHS = (1, 2, 4, 8)
# Numbers of slots between a power of two and the next that matrices of nearly equal size share.
SIZES_PER_OCTAVE = 32


@pytree
class Chunks:
    """A sparse matrix M (m x p) for products from the left: rows cut into chunks of one width W,
    padded at their ends.

    XLA makes one loop on all cores of W gathers, products and their sum, where W is static, but
    scatters one number after the other on one core. So a product scatters sums of chunks, not
    entries.

    Args:
        values: (C, W) entries of M; 0 in the padding.
        indices: (C, W) their columns; p in the padding, which reads 0: no NaN in what M is
            multiplied with hurts it, and its gradient is 0.
        rows: (C,) the row that each chunk belongs to, rising; the last row for chunks of padding at
            the end.
        starts: (m + 1,) the first chunk of each row, and the first of the padding.
        num_rows: m, static.
    """

    values: Array
    indices: Array = integer()
    rows: Array = integer()
    starts: Array = integer()
    num_rows: int = static()

    @classmethod
    def build(
        cls,
        rows: np.ndarray,
        indices: np.ndarray,
        values: np.ndarray,
        shape: tuple[int, int],
        sizes: np.ndarray | None = None,
    ) -> "Chunks":
        """Make the chunks from the coordinates of the entries, ordered by row, and ``shape = (m,
        p)``: arrays of the host.

        ``sizes`` are the numbers of chunks of each of CHUNK_WIDTHS; by default, those that the matrix
        needs.
        """
        num_rows, num_columns = shape
        counts = np.bincount(rows, minlength=num_rows)
        if sizes is None:
            sizes = num_chunks(counts)
        costs = np.add(CHUNK_WIDTHS, CHUNK_COST_IN_SLOTS) * sizes
        best = np.argmin(costs)
        width = CHUNK_WIDTHS[best]
        total = round_up(max(int(sizes[best]), 1), SIZES_PER_OCTAVE)
        chunks = -(-counts // width)
        # An entry moves up by the padding of all rows before its own.
        padding = width * chunks - counts
        before = np.cumsum(padding) - padding
        slots = np.arange(len(rows)) + before[rows]
        padded_values = np.zeros(width * total, values.dtype)
        padded_values[slots] = values
        padded_indices = np.full(width * total, num_columns, np.int32)
        padded_indices[slots] = indices
        starts = np.append(0, np.cumsum(chunks))
        rows_of_chunks = np.full(total, num_rows - 1, np.int32)
        rows_of_chunks[: starts[-1]] = np.repeat(np.arange(num_rows), chunks)
        return cls(
            values=padded_values.reshape(-1, width),
            indices=padded_indices.reshape(-1, width),
            rows=rows_of_chunks,
            starts=starts.astype(np.int32),
            num_rows=num_rows,
        )

    def pad(self, num_rows: int, before: int, num_columns: int) -> "Chunks":
        """The matrix with further rows, and columns in place of those ``before``, without entries;
        on the host."""
        num_added = num_rows - self.num_rows
        indices = np.array(self.indices)
        indices[indices == before] = num_columns
        return replace(
            self,
            indices=indices,
            starts=np.pad(self.starts, (0, num_added), mode="edge"),
            num_rows=num_rows,
        )

    def dot(self, u: Array) -> Array:
        """``M u``, from (p, ...) to (m, ...)."""
        return _dot(self, u)

    def squared(self) -> "Chunks":
        """The matrix of the squared magnitudes of the entries."""
        return replace(self, values=squares(self.values))


def num_chunks(counts: np.ndarray) -> np.ndarray:
    """The number of chunks of each of CHUNK_WIDTHS in a matrix with that many entries in each
    row."""
    chunks = -(-counts // np.array(CHUNK_WIDTHS)[:, None])
    return chunks.sum(axis=1)


@jax.custom_jvp
def _dot(M: Chunks, u: Array) -> Array:
    # Where M is a constant of the program, the barrier keeps XLA from evaluating the product at
    # compile time.
    values = lax.optimization_barrier(M.values)
    return _multiply_lanes(replace(M, values=values), u)


@functools.partial(_dot.defjvp, symbolic_zeros=True)
def _dot_jvp(primals: tuple[Chunks, Array], tangents: tuple[Chunks, Array]) -> tuple[Array, Any]:
    M, u = primals
    dM, du = tangents
    terms = []
    if not isinstance(du, SymbolicZero):
        terms.append(_multiply(M, du))
    if not isinstance(dM.values, SymbolicZero):
        change = replace(M, values=dM.values)
        terms.append(_multiply(change, u))
    return _dot(M, u), sum(terms)


def _multiply(M: Chunks, u: Array) -> Array:
    """``M u`` in operations that JAX can transpose."""
    # The zero is what the padding reads. Appending it also makes XLA store u first, which it would
    # else compute anew in each slot, and saves the comparison of each index with p.
    zero = jnp.zeros_like(u, shape=(1, *u.shape[1:]))
    u = jnp.concatenate([u, zero])
    C, W = M.values.shape
    values = M.values.reshape(C, W, *[1] * (u.ndim - 1))
    sums: Any = 0
    for w in range(W):
        sums += values[:, w] * take(u, M.indices[:, w])
    return jax.ops.segment_sum(sums, M.rows, M.num_rows, indices_are_sorted=True)


def take(u: Array, indices: Array) -> Array:
    """``u[indices]`` along the first axis. Unlike indexing it does not look for negative
    indices."""
    axes = tuple(range(1, u.ndim))
    dimensions = lax.GatherDimensionNumbers(axes, (0,), (0,))
    return lax.gather(u, indices[:, None], dimensions, (1, *u.shape[1:]), mode="promise_in_bounds")


_multiply_lanes = custom_vmap(_multiply)


@_multiply_lanes.def_vmap
def _multiply_vmapped(
    axis_size: int, in_batched: list[Any], M: Chunks, u: Array
) -> tuple[Array, bool]:
    """Lanes that share M become the last axis of u, where a gather reads them side by side."""
    M_batched, _ = in_batched
    if any(jax.tree.leaves(M_batched)):
        axes = jax.tree.map(lambda batched: 0 if batched else None, tuple(in_batched))
        return jax.vmap(_multiply, axes)(M, u), True
    columns = jnp.moveaxis(u, 0, -1)
    images = _multiply_lanes(M, columns)
    return jnp.moveaxis(images, -1, 0), True
