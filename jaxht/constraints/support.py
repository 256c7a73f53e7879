"""The support of a sparse array as a mask and, where columns are gathered, as a list of indices."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
from chex import Array

from jaxht._pytree import pytree, static
from jaxht.linalg.selection import mask_to_indices


@pytree
class Support:
    """A set F of coordinates on which a sparse variable may be nonzero; its coordinates are those of the variable.

    Attributes:
        mask: bool, shaped like the variable: (d,), or (d, c) for a matrix. True on F.
        indices: int32 (k_max,), F in rising order (of the flattened variable), padded with its number of entries (out
            of range: gathers fill with 0, scatters drop); or None where nobody has asked for them yet: they cost more
            than a thresholding step.
        bounds: lower and upper bound of the variable on F, broadcastable to it, or None.
        k_max: static bound on |F|, or None where it is not known at trace time.
        ndim: static number of axes of the variable: further ones in front are lanes.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> support = jaxht.Support(jnp.array([False, True, False, True]), k_max=3).with_indices()
        >>> support.indices.tolist(), int(support.size)
        ([1, 3, 4], 2)
    """

    mask: Array
    indices: Array | None = None
    bounds: tuple[Any, Any] | None = None
    k_max: int | None = static(default=None)
    ndim: int = static(default=1)

    @property
    def size(self) -> Array:
        """|F|, as int32."""
        return jnp.sum(self.mask, axis=self._axes, dtype=jnp.int32)

    @property
    def inside(self) -> Array:
        """``mask``."""
        return self.mask

    def point(self, w: Array) -> Array:
        """w, which is 0 off the support."""
        return w

    def coordinates(self, v: Array) -> Array:
        """v on the support, 0 elsewhere."""
        return self.restrict(v)

    def diagonal(self, diagonal: Array) -> Array:
        """Itself."""
        return diagonal

    def restrict(self, v: Array) -> Array:
        """v on the support, 0 elsewhere."""
        return jnp.where(self.mask, v, 0)

    def equals(self, other: "Support") -> Array:
        """True where both hold the same coordinates."""
        return jnp.all(self.mask == other.mask, axis=self._axes)

    def complete(self) -> "Support":
        """With the indices, if k_max is known: how a support leaves the library."""
        return self if self.k_max is None else self.with_indices()

    def with_indices(self) -> "Support":
        """With the indices.

        Raises:
            ValueError: if k_max is not known; JAX needs a static length for the list.
        """
        if self.indices is not None:
            return self
        if self.k_max is None:
            raise ValueError(
                "this needs the indices of the support, so k_max must be given: "
                "pass Sparse(k, k_max=...) with a Python int wherever k is traced"
            )
        flat = self.mask.reshape(*self.mask.shape[: -self.ndim], -1)
        return dataclasses.replace(self, indices=mask_to_indices(flat, self.k_max))

    def union(self, other: "Support") -> "Support":
        """Coordinates in either; its k_max is the sum of both, at most all."""
        sizes = (self.k_max, other.k_max)
        total = math.prod(self.mask.shape[-self.ndim :])
        k_max = None if None in sizes else min(sum(sizes), total)  # type: ignore[arg-type]
        return Support(self.mask | other.mask, bounds=self.bounds, k_max=k_max, ndim=self.ndim)

    # ---- the entries on the support, as a list ----

    def gather(self, v: Array) -> Array:
        """Entries of ``v``, one variable, on the support, in the order of ``indices``, 0 in the padding: (k_max,)."""
        return jnp.ravel(v).at[self.with_indices().indices].get(mode="fill", fill_value=0)

    def gather_bounds(self) -> tuple[Array, Array] | None:
        """The bounds on the support, in the order of ``indices``."""
        if self.bounds is None:
            return None
        lower, upper = (self.gather(jnp.broadcast_to(bound, self.mask.shape)) for bound in self.bounds)
        return lower, upper

    def scatter(self, values: Array) -> Array:
        """The variable that has ``values`` (k_max,) on the support and 0 elsewhere."""
        zeros = jnp.zeros(self.mask.size, values.dtype)
        return zeros.at[self.with_indices().indices].set(values, mode="drop").reshape(self.mask.shape)

    @property
    def _axes(self) -> tuple[int, ...]:
        return tuple(range(-self.ndim, 0))
