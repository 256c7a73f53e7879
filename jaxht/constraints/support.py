"""The support of a sparse array as a mask and, where columns are gathered, as a list of indices."""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._checks import known_values
from jaxht._dataclass import pytree, replace, static
from jaxht._repr import short_repr
from jaxht._typing import Array
from jaxht.linalg.selection import gather, mask_to_indices

__all__ = ["Support"]


@pytree
class Support:
    """A set F of coordinates on which a sparse variable may be nonzero; its coordinates w are the
    variable itself.

    Attributes:
        mask: bool, shaped like the variable: (d,), or (d, c) for a matrix. True on F.
        bounds: lower and upper bound of the variable on F, broadcastable to it, or None.
        k_max: static bound on |F|, or None where it is not known at trace time.
        ndim: static number of axes of the variable; axes in front of these are lanes.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> support = jaxht.Support(jnp.array([False, True, False, True]), k_max=3)
        >>> support.numpy(), int(support.size)
        (array([1, 3]), 2)
        >>> support.indices.tolist()
        [1, 3, 4]
    """

    mask: Array
    bounds: tuple[Any, Any] | None = None
    k_max: int | None = static(default=None)
    ndim: int = static(default=1)

    coordinatewise: ClassVar[bool] = True

    def __repr__(self) -> str:
        mask = known_values(self.mask)
        size = {}
        if mask is not None and mask.dtype == np.bool_ and mask.ndim == self.ndim:
            size = {"size": int(mask.sum())}
        return short_repr(self, **size, mask=self.mask)

    def numpy(self) -> np.ndarray:
        """F in increasing order (of the flattened variable), on the host, without padding: for
        labels and columns.

        Raises:
            ValueError: for a batch, whose supports differ in size, and within jit or vmap.
        """
        if isinstance(self.mask, jax.core.Tracer):
            raise ValueError(
                "support.numpy() is for the host, outside of jit and vmap: use support.mask or "
                "indices here"
            )
        if self.mask.ndim != self.ndim:
            lanes = self.mask.shape[: self.mask.ndim - self.ndim]
            raise ValueError(
                f"support.numpy() is of one result; got a batch {lanes}: "
                "jax.tree.map(lambda leaf: leaf[i], support)"
            )
        return np.flatnonzero(np.asarray(self.mask))

    @property
    def size(self) -> Array:
        """|F|, as int32."""
        return jnp.sum(self.mask, axis=self._axes, dtype=jnp.int32)

    @property
    def indices(self) -> Array | None:
        """F in increasing order (of the flattened variable), int32 (k_max,); None where k_max is
        not known.

        For programs, whose shapes are fixed: padded with the size of the variable, which is out of
        range. JAX's own indexing then repeats the last entry, unless told otherwise:
        ``v.at[indices].get(mode="fill", fill_value=0)``, ``.set(..., mode="drop")``. On the host
        :meth:`numpy` has no padding. Listed anew whenever they are asked for.
        """
        if self.k_max is None:
            return None
        flat = self.mask.reshape(*self.mask.shape[: self.mask.ndim - self.ndim], -1)
        if isinstance(flat, jax.core.Tracer):
            return mask_to_indices(flat, self.k_max)
        # On the host, where no length of the list needs a program of its own.
        lanes, positions = np.nonzero(np.asarray(flat).reshape(-1, flat.shape[-1]))
        slots = np.arange(len(lanes)) - np.searchsorted(lanes, lanes)
        fits = slots < self.k_max
        listed = np.full((math.prod(flat.shape[:-1]), self.k_max), flat.shape[-1], np.int32)
        listed[lanes[fits], slots[fits]] = positions[fits]
        return jnp.asarray(listed.reshape(*flat.shape[:-1], self.k_max))

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
        """``diagonal``."""
        return diagonal

    def restrict(self, v: Array) -> Array:
        """v on the support, 0 elsewhere."""
        return jnp.where(self.mask, v, 0)

    def equals(self, other: "Support") -> Array:
        """Whether both contain the same coordinates."""
        # One reduction of two operands, which XLA does not split into several kernels as it does
        # that of one.
        missing = [self.mask & ~other.mask, ~self.mask & other.mask]
        none = jnp.zeros((), bool)
        left, right = lax.reduce(
            missing, [none, none], lambda a, b: [a[0] | b[0], a[1] | b[1]], self._axes
        )
        return ~(left | right)

    def union(self, other: "Support") -> "Support":
        """The coordinates in either support; its k_max is the sum of both, at most the size of the
        variable."""
        k_max = None
        if self.k_max is not None and other.k_max is not None:
            total = math.prod(self.mask.shape[-self.ndim :])
            k_max = min(self.k_max + other.k_max, total)
        return replace(self, mask=self.mask | other.mask, k_max=k_max)

    # ---- the entries on the support, as a list ----

    def require_indices(self) -> Array:
        """``indices``.

        Raises:
            ValueError: if k_max is not known; JAX needs a static length for the list.
        """
        indices = self.indices
        if indices is None:
            raise ValueError(
                "this needs the indices of the support, so k_max must be given: "
                "pass Sparse(k, k_max=...) with a Python int wherever k is traced"
            )
        return indices

    def gather(self, v: Array, indices: Array) -> Array:
        """Entries of ``v``, one variable, at ``indices``, those of the support; 0 in the padding:
        (k_max,)."""
        return gather(jnp.ravel(v), indices)

    def gather_bounds(self, indices: Array) -> tuple[Array, Array] | None:
        """The bounds at ``indices``, those of the support."""
        if self.bounds is None:
            return None
        lower, upper = (jnp.broadcast_to(bound, self.mask.shape) for bound in self.bounds)
        return self.gather(lower, indices), self.gather(upper, indices)

    def scatter(self, values: Array, indices: Array) -> Array:
        """The variable that has ``values`` (k_max,) at ``indices``, those of the support, and 0
        elsewhere."""
        zeros = jnp.zeros(self.mask.size, values.dtype)
        return zeros.at[indices].set(values, mode="drop").reshape(self.mask.shape)

    @property
    def _axes(self) -> tuple[int, ...]:
        return tuple(range(self.mask.ndim - self.ndim, self.mask.ndim))
