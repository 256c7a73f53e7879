"""One face for the design matrix A, whatever it is stored as."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array
from jax import lax
from jax.custom_batching import custom_vmap

from jaxht.tree import pytree

# On recent GPUs the default for float32 products is TF32, which keeps ten bits.
PRECISION = lax.Precision.HIGHEST


@pytree
class Dense:
    """A design held as an n x d array, samples in rows."""

    array: Array

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.array.shape  # type: ignore[return-value]

    def matvec(self, x: Array) -> Array:
        """``A x``, from (d,) to (n,). Cost: n d."""
        return jnp.matmul(self.array, x, precision=PRECISION)

    def rmatvec(self, r: Array) -> Array:
        """``A^T r``, from (n,) to (d,). Cost: n d."""
        return jnp.matmul(r, self.array, precision=PRECISION)

    def column_norms(self) -> Array:
        """Euclidean norms of the columns, (d,). Cost: n d."""
        return jnp.linalg.norm(self.array, axis=0)

    def columns(self, indices: Array) -> Array:
        """``A_F^T``: the columns at ``indices`` (k_max,) as contiguous rows (k_max, n); 0 where an index is d."""
        return jnp.take(self.array.T, indices, axis=0, mode="fill", fill_value=0)

    def gram(self, indices: Array) -> Array:
        """``A_F^T A_F`` (k_max, k_max) for F at ``indices``, as a constant under differentiation.

        Cost: n k_max^2; where many lanes of a vmap share one A, n d^2 once and k_max^2 a lane.
        """
        return _shared_gram(lax.stop_gradient(self.array), indices)


def _gram(array: Array, indices: Array) -> Array:
    columns = Dense(array).columns(indices)
    return jnp.matmul(columns, columns.T, precision=PRECISION)


_shared_gram = custom_vmap(_gram)


@_shared_gram.def_vmap
def _shared_gram_batched(axis_size: int, in_batched: list[bool], array: Array, indices: Array) -> tuple[Array, bool]:
    shared, axes = not in_batched[0], [0 if batched else None for batched in in_batched]
    if shared and axis_size * indices.shape[-1] ** 2 > array.shape[-1] ** 2:
        # The barrier keeps XLA from evaluating the product while compiling where A is a constant of the program.
        array = lax.optimization_barrier(array)
        whole = jnp.matmul(array.T, array, precision=PRECISION)
        rows, cols = indices[..., :, None], indices[..., None, :]
        return whole.at[rows, cols].get(mode="fill", fill_value=0), True
    return jax.vmap(_gram, in_axes=axes)(array, indices), True


def design(A: Any) -> Dense:
    """Wrap ``A`` in the face that the objectives use.

    Args:
        A: (n, d) real array (NumPy or JAX), or a design already wrapped.

    Raises:
        ValueError: if A is neither.
    """
    if isinstance(A, Dense):
        return A
    if not isinstance(A, jax.Array | np.ndarray):
        raise ValueError(f"A must be an array of shape (n, d); got {type(A).__name__}")
    return Dense(A)  # type: ignore[arg-type]
