"""A design with some columns of another, which may repeat."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxht._dataclass import integer, pytree
from jaxht._loops import fori_loop
from jaxht._typing import Array, ArrayDType, Numeric
from jaxht.designs.protocol import Design
from jaxht.linalg.inner_products import real_dtype, squares


@pytree
class RepeatedColumns(Design):
    """The columns of a design at some indices, which may repeat; they are not copied.

    Args:
        base: a design n x d.
        indices: int32 (p,), from 0 to d - 1.

    Cost: a product is one with the base, and p.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A = jaxht.designs.RepeatedColumns(jaxht.design(jnp.eye(2)), jnp.array([0, 1, 1]))
        >>> A.matvec(jnp.array([1.0, 2.0, 3.0])).tolist(), A.rmatvec(jnp.array([4.0, 5.0])).tolist()
        ([1.0, 5.0], [4.0, 5.0, 5.0])
    """

    base: Any
    indices: Array = integer()

    @property
    def shape(self) -> tuple[int, int]:
        """(n, p)."""
        return self.base.shape[0], jnp.shape(self.indices)[0]

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of the base."""
        return self.base.dtype

    def gathers(self, k_max: int | None) -> bool:
        """As the base."""
        return self.base.gathers(k_max)

    def matvec(self, x: Array) -> Array:
        """``A x``, of the sums of x over the copies of a column: x is (p,) or (p, c)."""
        return self.base.matvec(jax.ops.segment_sum(x, self.indices, self.base.shape[1]))

    def rmatvec(self, r: Array) -> Array:
        """``A^T r``: r is (n,) or (n, c)."""
        return self.base.rmatvec(r)[self.indices]

    def columns(self, indices: Array) -> Array:
        """The columns at ``indices`` (k_max,) as rows (k_max, n); 0 where an index is p."""
        padding = self.base.shape[1]
        of_base = self.indices.at[indices].get(mode="fill", fill_value=padding)
        # Copies of one column are asked for once, as sparse designs require.
        distinct, place = jnp.unique(
            of_base, return_inverse=True, size=of_base.size, fill_value=padding
        )
        return self.base.columns(distinct)[place.reshape(of_base.shape)]

    def rows(self, indices: Array) -> "RepeatedColumns":
        """The rows at ``indices`` (b,), as a design (b, p); 0 where an index is n."""
        return RepeatedColumns(self.base.rows(indices), self.indices)

    def squared(self, weights: Array) -> Array:
        """``sum_i weights_i A_ij^2`` for all j, (p,)."""
        return self.base.squared(weights)[self.indices]

    def row_norms(self) -> Array:
        """Euclidean norms of the rows, (n,). Cost: p columns."""

        def add(j, sums):
            return sums + squares(self.columns(j[None])[0])

        zero = jnp.zeros(self.shape[0], real_dtype(self))
        return jnp.sqrt(fori_loop(jnp.int32(0), jnp.int32(self.shape[1]), add, zero))

    def column_norms(self) -> Array:
        """Euclidean norms of the columns, (p,)."""
        return self.base.column_norms()[self.indices]

    def rounding_norms(self) -> Array:
        """Those of the base."""
        return self.base.rounding_norms()[self.indices]

    def cancellation(self) -> Numeric:
        """That of B."""
        return self.base.cancellation()

    @property
    def has_column_norms(self) -> bool:
        """As the base."""
        return self.base.has_column_norms

    @property
    def has_cheap_columns(self) -> bool:
        """As the base."""
        return self.base.has_cheap_columns

    @property
    def in_memory(self) -> bool:
        """As the base."""
        return self.base.in_memory
