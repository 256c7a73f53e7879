"""A design whose rows are rows of the identity."""

import jax.numpy as jnp

from jaxht._dataclass import integer, pytree, static
from jaxht._typing import Array, ArrayDType
from jaxht.designs.protocol import Design


@pytree
class Entries(Design):
    """Rows of the identity, ``(A x)_i = x[index_i]``: the observed entries of a vector or a
    flattened matrix.

    Args:
        index: (n,) integers in [0, d], which may repeat; d is a row of zeros.
        num_columns: d, static.
        dtype: static; float32 or float64. Default: JAX's default float.

    Cost: a product takes n, or n + d for ``A^T r``.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.designs import Entries
        >>> A = Entries(jnp.array([2, 0]), 3)
        >>> A.matvec(jnp.array([5.0, 6.0, 7.0])).tolist(), A.rmatvec(jnp.array([1.0, 2.0])).tolist()
        ([7.0, 5.0], [2.0, 0.0, 1.0])
    """

    index: Array = integer()
    num_columns: int = static()
    dtype: ArrayDType = static(default=float)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", jnp.result_type(self.dtype))

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return jnp.shape(self.index)[0], self.num_columns

    def gathers(self, k_max: int | None) -> bool:
        """False: systems on supports are diagonal, and conjugate gradients solve them in one
        step."""
        return False

    def matvec(self, x: Array) -> Array:
        """``A x``, from (d,) to (n,), or from (d, c) to (n, c). Cost: n, or n c."""
        return jnp.take(x, self.index, axis=0, mode="fill", fill_value=0)

    def rmatvec(self, r: Array) -> Array:
        """``A^T r``, from (n,) to (d,), or from (n, c) to (d, c). Cost: n + d, or c times as
        much."""
        return (
            jnp.zeros((self.num_columns, *r.shape[1:]), r.dtype).at[self.index].add(r, mode="drop")
        )

    def columns(self, indices: Array) -> Array:
        """``A_F^T``: the columns at ``indices`` (k_max,) as rows (k_max, n); 0 where an index is d.
        Cost: n k_max."""
        return ((self.index == indices[:, None]) & (self.index < self.num_columns)).astype(
            self.dtype
        )

    def rows(self, indices: Array) -> "Entries":
        """The rows at ``indices`` (b,), as a design b x d; 0 where an index is n. Cost: b."""
        index = jnp.take(self.index, indices, mode="fill", fill_value=self.num_columns)
        return Entries(index, self.num_columns, self.dtype)

    def squared(self, weights: Array) -> Array:
        """``sum_i weights_i A_ij^2`` for all j, (d,). Cost: n + d."""
        return self.rmatvec(weights)

    def row_norms(self) -> Array:
        """Euclidean norms of the rows, (n,): 1, or 0 where an index is d."""
        return (jnp.asarray(self.index) < self.num_columns).astype(self.dtype)
