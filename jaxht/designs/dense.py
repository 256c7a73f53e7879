"""A design stored as an array."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from jaxht._dataclass import pytree
from jaxht._typing import Array, ArrayDType
from jaxht.designs.protocol import Design
from jaxht.linalg.full_precision import (
    join_parts,
    matmul,
    stack_parts,
    times_vector,
    vector_times,
)
from jaxht.linalg.inner_products import squares, widen
from jaxht.linalg.symmetric_products import symmetric_product


@pytree
class Dense(Design):
    """A design stored as an array.

    Args:
        array: (n, d), real or complex, samples in rows.
        parts: (2 n, d), the real part of a complex array above the imaginary part, from
            :meth:`for_products`; or None.

    Cost: a product takes n d, or n d c for c columns.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.designs import Dense
        >>> Dense(jnp.array([[1.0, 2.0], [3.0, 4.0]])).squared(jnp.array([1.0, 1.0])).tolist()
        [10.0, 20.0]
    """

    array: Array
    parts: Array | None = None

    @classmethod
    def of_parts(cls, parts: Array) -> "Dense":
        """A complex design from its real part above its imaginary part, (2 n, d)."""
        return cls(join_parts(parts), parts)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.array.shape  # type: ignore[return-value]

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of the array."""
        return self.array.dtype

    @property
    def dense_array(self) -> Array:
        """The array."""
        return self.array

    takes_complex = True

    def gathers(self, k_max: int | None) -> bool:
        """True: columns are available."""
        return True

    def for_products(self) -> "Dense":
        """The design with the parts of complex numbers, from which products are faster on CPUs.
        Cost: n d."""
        if self.parts is not None:
            return self
        return Dense(self.array, stack_parts(self.array))

    def matvec(self, x: Array) -> Array:
        """``A x``, from (d,) to (n,), or from (d, c) to (n, c). Cost: n d, or n d c."""
        if x.ndim == 1 and self.parts is not None:
            return times_vector(self.parts, x)
        return matmul(self.array, x)

    def rmatvec(self, r: Array) -> Array:
        """``A^H r``, from (n,) to (d,), or from (n, c) to (d, c). Cost: n d, or n d c."""
        # A product from the left reads A in its own order.
        if r.ndim == 1 and self.parts is not None:
            return vector_times(self.parts, r.conj()).conj()
        return matmul(r.T.conj(), self.array).T.conj()

    def rows(self, indices: Array) -> "Dense":
        """The rows at ``indices`` (b,), as a design b x d; 0 where an index is n. Cost: b d."""
        return Dense(jnp.take(self.array, indices, axis=0, mode="fill", fill_value=0))

    def row_norms(self) -> Array:
        """Euclidean norms of the rows, (n,). Cost: n d."""
        return jnp.linalg.norm(widen(self.array), axis=1)

    def squared(self, weights: Array) -> Array:
        """``sum_i weights_i A_ij^2`` for all j, (d,): the diagonal of ``A^T diag(weights) A``.
        Cost: n d."""
        is_float = jnp.issubdtype(self.dtype, jnp.inexact)
        array = widen(self.array) if is_float else self.array.astype(float)
        return matmul(weights, squares(array))

    def squared_about(self, center: Array, weights: Array) -> Array:
        """``sum_i weights_i (A_ij - center_j)^2`` for all j, (d,). Cost: n d."""
        return matmul(weights, (self.array - center) ** 2)

    def column_norms(self) -> Array:
        """Euclidean norms of the columns, (d,). Cost: n d."""
        return jnp.linalg.norm(widen(self.array), axis=0)

    def central_moments(self, weights: Array | None) -> tuple[Array, Array]:
        """Mean and variance of each column, in two passes."""
        mean = jnp.average(self.array, axis=0, weights=weights)
        if weights is not None:  # what the sum has lost
            mean += jnp.average(self.array - mean, axis=0, weights=weights)
        return mean, jnp.average((self.array - mean) ** 2, axis=0, weights=weights)

    divides_columns = True

    def divide_columns(self, divisors: Array, norms: Array | None) -> "Dense":
        """The matrix with each column divided by its number."""
        return Dense(self.array * (1 / divisors))

    def pad(self, num_samples: int, num_columns: int) -> "Dense":
        """The array with further rows and columns of zeros."""
        n, d = self.shape
        array = np.zeros((num_samples, num_columns), self.dtype)
        array[:n, :d] = self.array
        return Dense(jax.device_put(array))

    def columns(self, indices: Array) -> Array:
        """``A_F^T``: the columns at ``indices`` (k_max,) as contiguous rows (k_max, n); 0 where an
        index is d."""
        return _gather_columns(self, indices)

    def columns_and_gram(self, indices: Array) -> tuple[Array, Array]:
        """:meth:`columns` at ``indices`` and their Gram matrix ``A_F^H A_F`` (k_max, k_max).

        Cost: n k_max^2. Where many lanes of a vmap share one A, n d^2 once, and a gather a lane.
        """
        return _columns_and_gram(self, indices)


def _gather_columns(A: Dense, indices: Array) -> Array:
    """Complex columns come from the parts, so that a loop reads one of the two copies alone."""
    if A.parts is None:
        return _columns(A.array, indices)
    return join_parts(_columns(A.parts, indices).T).T


@jax.custom_jvp
def _columns(array: Array, indices: Array) -> Array:
    return jnp.take(array.T, indices, axis=0, mode="fill", fill_value=0)


@_columns.defjvp
def _columns_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """Gathered in n x d, into which the transpose scatters then: d x n would be turned in a further
    pass."""
    array, indices = primals
    return _columns(array, indices), jnp.take(
        tangents[0], indices, axis=1, mode="fill", fill_value=0
    ).T


def _gather(A: Dense, indices: Array) -> tuple[Array, Array]:
    columns = _gather_columns(A, indices)
    is_column = indices < A.shape[1]
    return columns, symmetric_product(columns.conj(), columns, is_column)


_columns_and_gram = custom_vmap(_gather)


@_columns_and_gram.def_vmap
def _gather_many(
    axis_size: int, in_batched: list[Any], A: Dense, indices: Array
) -> tuple[Any, Any]:
    has_own, _ = in_batched
    array = A.array
    if has_own.array or axis_size * indices.shape[-1] ** 2 < array.shape[-1] * max(array.shape):
        axes = jax.tree.map(lambda batched: 0 if batched else None, in_batched)
        return jax.vmap(_gather, in_axes=axes)(A, indices), (True, True)
    n, d = array.shape
    # Two products in one, A^H A and A^H I = A^H, with zeros at index d, where the padding points. The
    # second is for speed: XLA would fuse a transposition into the gather, which then reads down the
    # columns of A. The barrier keeps XLA from evaluating the product at compile time where A is a
    # constant of the program.
    array = lax.optimization_barrier(array)
    right = jnp.concatenate(
        [array, jnp.zeros((n, 1), array.dtype), jnp.eye(n, dtype=array.dtype)], axis=1
    )
    both = jnp.pad(matmul(array.T.conj(), right), ((0, 1), (0, 0)))
    columns = jnp.take(both[:, d + 1 :], indices, axis=0, mode="clip").conj()
    gram = both.at[indices[..., :, None], indices[..., None, :]].get(mode="clip")
    return (columns, gram), (True, True)
