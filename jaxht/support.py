"""The support of a sparse vector as a mask and, where columns are gathered, as a list of indices."""

import dataclasses

import jax.numpy as jnp
from chex import Array

from jaxht.selection import mask_to_indices
from jaxht.tree import pytree, static


@pytree
class Support:
    """A set of coordinates F of [d]: the region on which a sparse vector may be nonzero.

    Attributes:
        mask: bool (d,), True on F.
        indices: int32 (k_max,), F in rising order, padded with d (out of range: gathers fill with 0, scatters drop);
            or None where nobody has asked for them yet: they cost more than a thresholding step.
        k_max: static bound on |F|, or None where it is not known at trace time.
    """

    mask: Array
    indices: Array | None = None
    k_max: int | None = static(default=None)

    @property
    def size(self) -> Array:
        """|F|, as int32."""
        return jnp.sum(self.mask, axis=-1, dtype=jnp.int32)

    def indexed(self) -> "Support":
        """The same support with its indices made.

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
        return dataclasses.replace(self, indices=mask_to_indices(self.mask, self.k_max))

    def completed(self) -> "Support":
        """With the indices made if k_max is known: how a support leaves the library."""
        return self if self.k_max is None else self.indexed()

    def equals(self, other: "Support") -> Array:
        """True where both hold the same coordinates."""
        return jnp.all(self.mask == other.mask, axis=-1)

    def union(self, other: "Support") -> "Support":
        """Coordinates in either; its bound is the sum of both, at most d."""
        bounds = (self.k_max, other.k_max)
        k_max = None if None in bounds else min(sum(bounds), self.mask.shape[-1])  # type: ignore[arg-type]
        return Support(self.mask | other.mask, k_max=k_max)

    def gather(self, v: Array) -> Array:
        """Entries of ``v`` (d,) on the support, in the order of ``indices``, 0 in the padding: (k_max,)."""
        return v.at[self.indexed().indices].get(mode="fill", fill_value=0)

    def scatter(self, values: Array) -> Array:
        """The (d,) vector that has ``values`` (k_max,) on the support and 0 elsewhere."""
        zeros = jnp.zeros(self.mask.shape[-1], values.dtype)
        return zeros.at[self.indexed().indices].set(values, mode="drop")
