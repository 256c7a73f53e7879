"""Sparse vectors and matrices."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, Numeric

from jaxht._pytree import integer, pytree, static
from jaxht.constraints.constraint import SelectionConstraint, check_sparsity
from jaxht.constraints.support import Support
from jaxht.linalg.selection import k_largest_mask


@pytree
class Sparse(SelectionConstraint):
    """At most k nonzero entries: ``C = { x : ||x||_0 <= k, lower <= x <= upper }``; of a matrix, k entries in all.

    Args:
        k: number of entries that may be nonzero. A Python int alone is static: one compile for each k. With ``k_max``
            it is traced, may differ by lane under vmap, and one compile serves all k <= k_max.
        k_max: static upper bound on k. Solvers that gather columns (HTP on a dense design) need it wherever k is
            traced; the others then run without it, and ``result.support.indices`` is None. A traced k beyond it counts
            as k_max.
        keep: bool, shaped like x: coordinates that are always in the support (an intercept) and count towards k; None
            for none. More than k of them are an error, or, where k or keep is traced, only the first k are kept.
        nonnegative: static; a lower bound of 0.
        bounds: (lower, upper), each a number or an array shaped like x, or None for none; 0 must lie between them.

    The projection is exact: it keeps the k entries by which the distance to z shrinks most when they are clipped to
    their bounds instead of set to 0, ``z_i^2 - (z_i - P(z_i))^2``.

    Source: Shen & Li 2018, (3.1); ``keep`` is the bias term of Axiotis & Sviridenko 2020, §5; bounds: Beck & Hallak
    2016.
    """

    k: Numeric = integer()
    k_max: int | None = static(default=None)
    keep: Array | None = None
    nonnegative: bool = static(default=False)
    bounds: tuple[Any, Any] | None = None

    def prepare(self, shape: tuple[int, ...]) -> "Sparse":
        """Fill in k_max and the bounds, and check what is known at trace time."""
        k_max = check_sparsity(self.k, self.k_max, int(np.prod(shape)), self.keep, shape)
        return dataclasses.replace(self, k_max=k_max, bounds=self._bounds(shape))

    def project(self, z: Array, near: Array | None = None) -> tuple[Array, Support]:
        """The nearest point of C and its support, which has exactly k coordinates; kept ones rank above all others."""
        nearest, gain = z, z
        if self.bounds is not None:
            nearest = jnp.clip(z, *self.bounds)
            # The root of the gain, of which no square overflows, and which is |z| itself where nothing is clipped.
            clipped = jnp.sqrt(jnp.abs(nearest)) * jnp.sqrt(jnp.abs(2 * z - nearest))
            gain = jnp.where(nearest == z, z, clipped)
        ranked = gain if self.keep is None else jnp.where(self.keep, jnp.inf, gain)
        support = self._largest(ranked, self.k, self.k_max)
        return jnp.where(support.mask, nearest, 0), support

    def support_of(self, x: Array) -> Support:
        """``supp(x)``, and the coordinates that are always kept."""
        mask = x != 0
        if self.keep is not None:  # of which a traced k may allow the first ones only
            mask |= self.keep & k_largest_mask(self.keep.astype(jnp.int32).ravel(), self.limit).reshape(x.shape)
        return Support(mask, bounds=self.bounds, k_max=self.k_max, ndim=x.ndim)

    def top_k(self, direction: Array, size: Numeric, size_max: int | None) -> Support:
        """The coordinates of the largest entries of ``direction``, of those that stay within the bounds from 0."""
        return self._largest(self.feasible_direction(direction), size, size_max)

    @property
    def always_active(self) -> Array:
        """``keep``."""
        return jnp.zeros((), bool) if self.keep is None else self.keep

    def active(self, x: Array) -> Array:
        """``supp(x)``, and the coordinates that are always kept."""
        return self.support_of(x).mask

    def scores(self, v: Array) -> Array:
        """``|v|``."""
        return jnp.abs(v)

    def feasible_direction(self, direction: Array) -> Array:
        """Without the entries that leave the bounds from 0."""
        if self.bounds is None:
            return direction
        lower, upper = self.bounds
        return jnp.clip(direction, jnp.where(lower < 0, -jnp.inf, 0), jnp.where(upper > 0, jnp.inf, 0))

    def support(self, selected: Array) -> Support:
        """The selected coordinates."""
        return Support(selected, bounds=self.bounds, k_max=self.k_max, ndim=selected.ndim)

    def _largest(self, z: Array, k: Numeric, k_max: int | None) -> Support:
        if k_max is not None:
            k_max = min(k_max, z.size)
            k = jnp.minimum(k, k_max)
        return Support(k_largest_mask(z.ravel(), k).reshape(z.shape), bounds=self.bounds, k_max=k_max, ndim=z.ndim)

    def _bounds(self, shape: tuple[int, ...]) -> tuple[Any, Any] | None:
        if self.bounds is None and not self.nonnegative:
            return None
        if self.bounds is not None and not (isinstance(self.bounds, tuple) and len(self.bounds) == 2):
            raise ValueError(f"bounds must be a pair (lower, upper); got {self.bounds!r}")
        lower, upper = (None, None) if self.bounds is None else self.bounds
        lower = (0.0 if self.nonnegative else -np.inf) if lower is None else lower
        upper = np.inf if upper is None else upper
        for name, bound, wrong in (("lower", lower, "above"), ("upper", upper, "below")):
            if jnp.shape(bound) not in ((), shape):
                raise ValueError(f"bounds: {name} must be a number or of shape {shape}; got shape {jnp.shape(bound)}")
            if not isinstance(bound, jax.core.Tracer):
                bound = np.asarray(bound)
                if np.any(bound > 0 if name == "lower" else bound < 0):
                    raise ValueError(f"bounds: {name} must not be {wrong} 0, which sparse vectors hold")
        if self.nonnegative:
            lower = jnp.maximum(lower, 0.0) if isinstance(lower, jax.core.Tracer) else np.maximum(lower, 0.0)
        return lower, upper
