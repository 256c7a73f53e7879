"""Designs side by side: a few float columns beside packed or sparse ones."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxht._dataclass import mixed, pytree
from jaxht._typing import Array, ArrayDType, Numeric
from jaxht.designs.protocol import Design


@pytree
class Stacked(Design):
    """The columns of several designs, ``A = [A_1, A_2, ...]``; made by
    :func:`jaxht.designs.hstack`.

    Args:
        parts: designs of n rows each and of one dtype; each stays stored as it is.

    Cost: that of the parts.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A = jaxht.designs.hstack([jnp.ones((2, 1)), jnp.eye(2)])
        >>> A.shape, A.matvec(jnp.array([1.0, 2.0, 3.0])).tolist()
        ((2, 3), [3.0, 4.0])
    """

    parts: tuple[Any, ...] = mixed()

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.parts[0].shape[0], sum(self.widths)

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of the parts."""
        return self.parts[0].dtype

    @property
    def widths(self) -> list[int]:
        """The number of columns of each part."""
        return [part.shape[1] for part in self.parts]

    @property
    def has_column_norms(self) -> bool:
        """Whether all parts have them."""
        return all(part.has_column_norms for part in self.parts)

    @property
    def has_cheap_columns(self) -> bool:
        """Whether those of all parts are."""
        return all(part.has_cheap_columns for part in self.parts)

    @property
    def in_memory(self) -> bool:
        """Whether all parts are."""
        return all(part.in_memory for part in self.parts)

    def gathers(self, k_max: int | None) -> bool:
        """Whether all parts gather columns."""
        return all(part.gathers(k_max) for part in self.parts)

    def split(self, x: Array) -> list[Array]:
        """What belongs to each part of x (d, ...)."""
        return jnp.split(x, np.cumsum(self.widths)[:-1].tolist())

    def matvec(self, x: Array) -> Array:
        """``A x``, from (d,) to (n,), or from (d, c) to (n, c)."""
        return sum(part.matvec(own) for part, own in zip(self.parts, self.split(x), strict=True))  # type: ignore[return-value]

    def rmatvec(self, r: Array) -> Array:
        """``A^T r``, from (n,) to (d,), or from (n, c) to (d, c)."""
        return jnp.concatenate([part.rmatvec(r) for part in self.parts])

    def columns(self, indices: Array) -> Array:
        """The columns at ``indices`` (k_max,) as rows (k_max, n); 0 where an index is d."""
        columns = jnp.zeros((len(indices), self.shape[0]), self.dtype)
        first = 0
        for part, width in zip(self.parts, self.widths, strict=True):
            columns += part.columns(positions_within(indices, first, width))
            first += width
        return columns

    def rows(self, indices: Array) -> "Stacked":
        """The rows at ``indices`` (b,), as a design (b, d); 0 where an index is n."""
        return Stacked(tuple(part.rows(indices) for part in self.parts))

    def squared(self, weights: Array) -> Array:
        """``sum_i weights_i A_ij^2`` for all j, (d,)."""
        return jnp.concatenate([part.squared(weights) for part in self.parts])

    def row_norms(self) -> Array:
        """Euclidean norms of the rows, (n,)."""
        return jnp.sqrt(sum(part.row_norms() ** 2 for part in self.parts))

    def column_norms(self) -> Array:
        """Euclidean norms of the columns, (d,)."""
        return jnp.concatenate([part.column_norms() for part in self.parts])

    def rounding_norms(self) -> Array:
        """Those of the parts."""
        return jnp.concatenate([part.rounding_norms() for part in self.parts])

    def cancellation(self) -> Numeric:
        """The largest of the parts."""
        largest = [part.cancellation() for part in self.parts]
        return functools.reduce(jnp.maximum, largest)


def positions_within(indices: Array, first: Numeric, size: int) -> Array:
    """Positions of columns, or of rows, in a part of ``size`` from ``first`` on; ``size`` for those
    of other parts."""
    own = indices - first
    return jnp.where((own >= 0) & (own < size), own, size)
