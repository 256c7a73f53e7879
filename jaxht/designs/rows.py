"""Some rows of a sparse matrix as a design: the minibatches of stochastic solvers."""

import math
from collections.abc import Callable

import jax.numpy as jnp
from jax import lax

from jaxht._dataclass import integer, pytree, static
from jaxht._loops import fori_loop
from jaxht._typing import Array, ArrayDType, Numeric
from jaxht.designs.chunks import Chunks, take
from jaxht.designs.protocol import Design

# A block of a product has at least MIN_CHUNKS_IN_BLOCK chunks, and as many as ROWS_IN_BLOCK rows of
# mean length have, times CHUNKS_MARGIN.
MIN_CHUNKS_IN_BLOCK = 32
ROWS_IN_BLOCK = 64
CHUNKS_MARGIN = 1.25


@pytree
class SparseRows(Design):
    """b rows of a sparse matrix, which may repeat: products read the entries of these rows only.

    Args:
        by_row: the whole matrix.
        first: (b,) the first chunk of each row.
        ends: (b,) the number of chunks of the rows up to and with each.
        num_columns: d, static.

    Cost: a product goes through the chunks of the rows in blocks of a static size; one to (d,) also
    writes d zeros.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> import scipy.sparse
        >>> import jaxht
        >>> A = jaxht.design(scipy.sparse.csr_array(np.eye(3, dtype=np.float32)))
        >>> A.rows(jnp.array([2, 0])).shape
        (2, 3)
    """

    by_row: Chunks
    first: Array = integer()
    ends: Array = integer()
    num_columns: int = static()

    @classmethod
    def select(cls, by_row: Chunks, indices: Array, num_columns: int) -> "SparseRows":
        """The rows at ``indices`` (b,); where one is n, a row without entries."""
        first, end = (by_row.starts.at[i].get(mode="clip") for i in (indices, indices + 1))
        return cls(by_row, first, jnp.cumsum(end - first), num_columns)

    @property
    def shape(self) -> tuple[int, int]:
        """(b, d)."""
        return self.first.shape[-1], self.num_columns

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of the values."""
        return self.by_row.values.dtype

    takes_complex = True

    def matvec(self, x: Array) -> Array:
        """``A x``, from (d,) to (b,), or from (d, c) to (b, c). Cost: the entries of the rows,
        times c."""

        def add(product: Array, values: Array, columns: Array, row: Array) -> Array:
            sums = 0
            for value, column in zip(values.T, columns.T, strict=True):
                entry = take(x, jnp.minimum(column, self.num_columns - 1))
                # The padding reads 0.
                entry = jnp.where(_align(column < self.num_columns, entry), entry, 0)
                sums += _align(value, entry) * entry
            return product.at[row].add(sums, mode="drop")

        dtype = jnp.result_type(self.dtype, x)
        return self._loop_blocks(add, jnp.zeros((self.shape[0], *x.shape[1:]), dtype))

    def rmatvec(self, r: Array) -> Array:
        """``A^H r``, from (b,) to (d,), or from (b, c) to (d, c). Cost: the entries of the rows,
        times c, and d c."""

        r = jnp.asarray(r)

        def add(product: Array, values: Array, columns: Array, row: Array) -> Array:
            entries = r.at[row].get(mode="fill", fill_value=0)[:, None]
            terms = _align(values.conj(), entries) * entries
            return product.at[columns].add(terms, mode="drop")

        dtype = jnp.result_type(self.dtype, r)
        return self._loop_blocks(add, jnp.zeros((self.num_columns, *r.shape[1:]), dtype))

    def _loop_blocks(
        self, add: Callable[[Array, Array, Array, Array], Array], start: Array
    ) -> Array:
        """``start`` after ``add(product, values, columns, row)`` for each block; row is b beyond
        the last chunk."""
        b = self.shape[0]
        num_chunks = len(self.by_row.rows)
        # Mostly, as many as ROWS_IN_BLOCK rows drawn at random fit into one block.
        chunks_of_row = math.ceil(CHUNKS_MARGIN * num_chunks / self.by_row.num_rows)
        size = max(MIN_CHUNKS_IN_BLOCK, min(b, ROWS_IN_BLOCK) * chunks_of_row)
        shift = jnp.append(self.first, 0) - jnp.insert(self.ends, 0, 0)

        def add_block(block: Numeric, product: Array) -> Array:
            position = block * size + lax.iota(jnp.int32, size)
            # The row of each position: the number of rows that end at it or before.
            ends = jnp.maximum(self.ends - block * size, 0)
            row = jnp.cumsum(jnp.zeros(size, jnp.int32).at[ends].add(1, mode="drop"))
            chunk = jnp.clip(take(shift, row) + position, 0, num_chunks - 1)
            return add(
                product, take(self.by_row.values, chunk), take(self.by_row.indices, chunk), row
            )

        return fori_loop(0, (self.ends[-1] + size - 1) // size, add_block, start)


def _align(values: Array, other: Array) -> Array:
    """``values`` with axes of length 1 behind, as many as ``other`` has more."""
    return values.reshape(*values.shape, *[1] * (other.ndim - values.ndim))
