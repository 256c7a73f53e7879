"""Sparse matrices in chunks of rows, and their products with vectors."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

from jaxht._dataclass import integer, pytree, static
from jaxht._rounding import round_up
from jaxht._typing import Array

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
        """From the coordinates of the entries, ordered by row, and ``shape = (m, p)``: arrays of
        the host.

        ``sizes`` are the numbers of chunks of each of CHUNK_WIDTHS; by default, those that the matrix
        needs.
        """
        counts = np.bincount(rows, minlength=shape[0])
        sizes = num_chunks(counts) if sizes is None else sizes
        best = np.argmin((np.asarray(CHUNK_WIDTHS) + CHUNK_COST_IN_SLOTS) * sizes)
        width = CHUNK_WIDTHS[best]
        total = round_up(int(sizes[best]), SIZES_PER_OCTAVE)
        chunks = -(-counts // width)
        # An entry moves up by the padding of all rows before its own.
        before = np.cumsum(width * chunks - counts) - (width * chunks - counts)
        slots = np.arange(len(rows)) + before[rows]
        size = width * total
        padded_values = np.zeros(size, values.dtype)
        padded_values[slots] = values
        padded_indices = np.full(size, shape[1], np.int32)
        padded_indices[slots] = indices
        num_padding = total - int(np.sum(chunks))
        rows = np.repeat(np.arange(shape[0], dtype=np.int32), chunks)
        return cls(
            padded_values.reshape(-1, width),
            padded_indices.reshape(-1, width),
            np.pad(rows, (0, num_padding), constant_values=shape[0] - 1),
            np.append(0, np.cumsum(chunks)).astype(np.int32),
            shape[0],
        )

    def pad(self, num_rows: int, before: int, num_columns: int) -> "Chunks":
        """The matrix with further rows, and columns in place of those ``before``, without entries;
        on the host."""
        starts = np.pad(self.starts, (0, num_rows - self.num_rows), mode="edge")
        indices = np.asarray(self.indices)
        indices = np.where(indices == before, np.int32(num_columns), indices)
        return dataclasses.replace(self, indices=indices, starts=starts, num_rows=num_rows)

    def dot(self, u: Array) -> Array:
        """``M u``, from (p, ...) to (m, ...)."""
        return _dot(self, u)

    def squared(self) -> "Chunks":
        """The matrix of the squares of the entries."""
        return dataclasses.replace(self, values=self.values**2)


def num_chunks(counts: np.ndarray) -> np.ndarray:
    """Of a matrix with that many entries in each row the number of chunks of each of CHUNK_WIDTHS."""
    return np.array([np.sum(-(-counts // width)) for width in CHUNK_WIDTHS])


@jax.custom_jvp
def _dot(M: Chunks, u: Array) -> Array:
    # Where M is a constant of the program, the barrier keeps XLA from evaluating the product at
    # compile time.
    return _multiply_lanes(dataclasses.replace(M, values=lax.optimization_barrier(M.values)), u)


@functools.partial(_dot.defjvp, symbolic_zeros=True)
def _dot_jvp(primals: tuple[Chunks, Array], tangents: tuple[Chunks, Array]) -> tuple[Array, Any]:
    M, u = primals
    dM, du = tangents
    terms = [] if isinstance(du, SymbolicZero) else [_multiply(M, du)]
    if not isinstance(dM.values, SymbolicZero):
        terms.append(_multiply(dataclasses.replace(M, values=dM.values), u))
    return _dot(M, u), sum(terms)


def _multiply(M: Chunks, u: Array) -> Array:
    """``M u`` in operations that JAX can transpose."""
    # The zero is what the padding reads. Appending it also makes XLA store u first, which it would
    # else compute anew in each slot, and saves the comparison of each index with p.
    u = jnp.concatenate([u, jnp.zeros_like(u, shape=(1, *u.shape[1:]))])
    values = M.values.reshape(M.values.shape + (1,) * (u.ndim - 1))
    sums = sum(values[:, w] * take(u, M.indices[:, w]) for w in range(values.shape[1]))
    return jax.ops.segment_sum(sums, M.rows, M.num_rows, indices_are_sorted=True)


def take(u: Array, indices: Array) -> Array:
    """``u[indices]`` along the first axis. Unlike indexing it does not look for negative
    indices."""
    dimensions = lax.GatherDimensionNumbers(tuple(range(1, u.ndim)), (0,), (0,))
    return lax.gather(u, indices[:, None], dimensions, (1, *u.shape[1:]), mode="promise_in_bounds")


_multiply_lanes = custom_vmap(_multiply)


@_multiply_lanes.def_vmap
def _multiply_vmapped(
    axis_size: int, in_batched: list[Any], M: Chunks, u: Array
) -> tuple[Array, bool]:
    """Lanes that share M become the last axis of u, where a gather reads them side by side."""
    if any(jax.tree.leaves(in_batched[0])):
        axes = jax.tree.map(lambda batched: 0 if batched else None, tuple(in_batched))
        return jax.vmap(_multiply, in_axes=axes)(M, u), True
    return jnp.moveaxis(_multiply_lanes(M, jnp.moveaxis(u, 0, -1)), -1, 0), True
