"""A design of small integers, which stay integers: products turn a block of rows into floats at a
time."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_array
from jaxht._dataclass import mixed, pytree, static
from jaxht._repr import describe
from jaxht._typing import Array, ArrayDType
from jaxht.designs import blockwise
from jaxht.designs.blockwise import Entrywise
from jaxht.linalg.full_precision import matmul

# A block that is converted has at most so many rows, and so many numbers unless it has 8 rows.
MAX_ROWS_IN_BLOCK = 256
MAX_NUMBERS_IN_BLOCK = 2**19
# Of the lower word of a sum.
WORD_BITS = 16


@pytree
class Integers(blockwise.Coded):
    r"""A matrix of integers of 8 bits, such as counts of an allele, with a code for what is
    missing.

    .. math::
        a_{ij} = \frac{b_{ij}}{scale_j}, \qquad b_{ij} = array_{ij}, \text{ or } fill_j \text{ where that is the code}

    The matrix is never held in float: products convert a block of rows at a time. Made by
    :meth:`build`; :func:`jaxht.standardize` keeps it in integers. Genotypes take a quarter of its
    memory as :class:`jaxht.designs.Genotypes`.

    Args:
        array: (n, d) int8 or uint8, samples in rows.
        fill: (d,) what missing entries count as: the means of the others.
        scale: (d,) what columns are divided by; ones.
        missing: static, the code of a missing entry, an int other than 0; None where none is
            missing.

    Cost: n d bytes; a product n d, or n d c for c columns. Memory beside the array: a block.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> from jaxht.designs import Integers
        >>> A = Integers.build(np.array([[0, 2], [1, -1], [2, 4]], np.int8), missing=-1)
        >>> A.matvec(jnp.array([1.0, 10.0])).tolist(), A.rmatvec(jnp.ones(3)).tolist()
        ([20.0, 31.0, 42.0], [3.0, 9.0])
    """

    array: Array = mixed()
    fill: Array
    scale: Array
    missing: int | None = static(default=None)

    @classmethod
    def build(cls, array: Any, missing: Any = None, dtype: ArrayDType = float) -> "Integers":
        """Find what missing entries count as: the means of the others, by column; 0 where there are
        none.

        Args:
            array: (n, d) int8 or uint8.
            missing: the code of a missing entry, an int other than 0.
            dtype: float32 or float64, of products.

        Raises:
            ValueError: if array is no such matrix, or missing is 0 or no int of its dtype.

        Cost: n d.
        """
        check_array("array", array, "an array of shape (n, d) of int8 or uint8")
        if len(array.shape) != 2 or 0 in array.shape or array.dtype not in (jnp.int8, jnp.uint8):
            raise ValueError(
                f"array must be int8 or uint8 of shape (n, d) with n, d >= 1; got {describe(array)}"
            )
        if isinstance(missing, np.integer):
            missing = int(missing)
        if missing is not None and (not isinstance(missing, int) or missing == 0):
            raise ValueError(
                f"missing must be an int other than 0, or None; got {describe(missing)}"
            )
        if missing is not None:
            limits = jnp.iinfo(array.dtype)
            if not limits.min <= missing <= limits.max:
                raise ValueError(f"missing must be of array's dtype, {array.dtype}; got {missing}")
        array = jnp.asarray(array)
        ones = jnp.ones(array.shape[1], jnp.result_type(dtype))
        A = cls(
            array=array,
            fill=ones,
            scale=ones,
            missing=missing,
        )

        def body(first: Array, new: Array, sums: tuple[Array, ...]) -> tuple[Array, ...]:
            block = blockwise.take(array, first, len(new)).astype(jnp.int32)
            is_called = new[:, None] & (True if missing is None else block != missing)
            total = jnp.sum(jnp.where(is_called, block, 0), axis=0, dtype=jnp.int32)
            called = jnp.sum(is_called, axis=0, dtype=jnp.int32)
            # Of millions of rows a sum exceeds an int32: it is kept in two words.
            high, low, num_called = sums
            low += total
            return high + (low >> WORD_BITS), low & (2**WORD_BITS - 1), num_called + called

        zeros = jnp.zeros(array.shape[1], jnp.int32)
        start = (zeros, zeros, zeros)
        high, low, num_called = blockwise.loop(array.shape[0], A._rows(), body, start)
        total = high.astype(ones.dtype) * 2**WORD_BITS + low
        return cls(
            array=array,
            fill=total / jnp.maximum(num_called, 1).astype(ones.dtype),
            scale=ones,
            missing=missing,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.array.shape  # type: ignore[return-value]

    def columns(self, indices: Array) -> Array:
        """``A_F^T``: the columns at ``indices`` (k_max,) as rows (k_max, n); 0 where an index is d.
        Cost: n k_max."""
        array = jnp.take(self.array, indices, axis=1, mode="fill", fill_value=0)
        fill, scale = self.fill_and_scale(indices)
        return (self._decode(array, fill) / scale).T

    def rows(self, indices: Array) -> "Integers":
        """The rows at ``indices`` (b,), as a design (b, d); 0 where an index is n. Cost: b d."""
        array = jnp.take(self.array, indices, axis=0, mode="fill", fill_value=0)
        return Integers(array, self.fill, self.scale, self.missing)

    def central_moments(self, weights: Array | None) -> tuple[Array, Array]:
        """Mean and variance of each column, in two passes."""
        n = self.shape[0]
        share = (jnp.full(n, 1 / n, self.dtype) if weights is None else weights)[:, None]
        mean = self.transposed(share)[:, 0]
        variance = self.transposed(share, lambda block: (block - mean) ** 2)[:, 0]
        return mean / self.scale, variance / self.scale**2

    def times(
        self, u: Array, entrywise: Entrywise = blockwise.unchanged, skip: bool = False
    ) -> Array:
        """``entrywise(A) u``, from (d, c) to (n, c), without the division by ``scale``."""

        def multiply(first: Array, new: Array, image: Array) -> Array:
            block = entrywise(self._block(first, len(new)))
            return blockwise.put(image, matmul(block, u), first)

        start = jnp.zeros((self.shape[0], u.shape[1]), u.dtype)
        return blockwise.loop(self.shape[0], self._rows(), multiply, start)

    def transposed(self, u: Array, entrywise: Entrywise = blockwise.unchanged) -> Array:
        """``entrywise(A)^T u``, from (n, c) to (d, c), without the division by ``scale``."""

        def multiply(first: Array, new: Array, image: Array) -> Array:
            along = jnp.where(new[:, None], blockwise.take(u, first, len(new)), 0)
            return image + matmul(along.T, entrywise(self._block(first, len(new))))

        start = jnp.zeros((u.shape[1], self.shape[1]), u.dtype)
        return blockwise.loop(self.shape[0], self._rows(), multiply, start).T

    def _block(self, first: Array, size: int) -> Array:
        return self._decode(blockwise.take(self.array, first, size), self.fill)

    def _decode(self, array: Array, fill: Array) -> Array:
        """Some rows as numbers."""
        numbers = array.astype(fill.dtype)
        return numbers if self.missing is None else jnp.where(array == self.missing, fill, numbers)

    def _rows(self) -> int:
        """How many rows are converted at a time."""
        n, d = self.shape
        return min(n, max(8, min(MAX_ROWS_IN_BLOCK, MAX_NUMBERS_IN_BLOCK // d)))
