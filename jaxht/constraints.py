"""The sets C over which objectives are minimised, as projections with a region to minimise on."""

import dataclasses
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, Numeric

from jaxht.selection import k_largest_mask
from jaxht.support import Support
from jaxht.tree import integer, pytree, static


class Constraint(Protocol):
    """What a solver may ask of a constraint."""

    def prepared(self, shape: tuple[int, ...]) -> "Constraint":
        """This constraint with its static bounds settled, for variables of ``shape``; ValueError if it cannot hold."""
        ...

    def project(self, z: Array) -> tuple[Array, Any]:
        """The nearest point of C to ``z``, and the region of C (a subspace) on which it lies."""
        ...

    def region(self, x: Array) -> Any:
        """The smallest region that holds the feasible point ``x``."""
        ...

    def steepest(self, direction: Array, size: Numeric, size_max: int | None) -> Any:
        """The region of the given size along which ``direction`` is longest; size_max is a static bound on it."""
        ...


@pytree
class Sparse:
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

    def prepared(self, shape: tuple[int, ...]) -> "Sparse":
        """Settle k_max and bounds, and check what is known at trace time."""
        k_max = settled(self.k, self.k_max, int(np.prod(shape)), self.keep, shape)
        return dataclasses.replace(self, k_max=k_max, bounds=self._bounds(shape))

    def project(self, z: Array) -> tuple[Array, Support]:
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

    def region(self, x: Array) -> Support:
        """``supp(x)``, and the coordinates that are always kept."""
        mask = x != 0
        if self.keep is not None:  # of which a traced k may allow the first ones only
            mask |= self.keep & self._largest(self.keep.astype(jnp.int32), self.k, self.k_max).mask
        return Support(mask, bounds=self.bounds, k_max=self.k_max, ndim=x.ndim)

    def steepest(self, direction: Array, size: Numeric, size_max: int | None) -> Support:
        """The coordinates of the largest entries of ``direction``, of those that point into the bounds from 0."""
        if self.bounds is not None:
            lower, upper = self.bounds
            direction = jnp.clip(direction, jnp.where(lower < 0, -jnp.inf, 0), jnp.where(upper > 0, jnp.inf, 0))
        return self._largest(direction, size, size_max)

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


@pytree
class Groups:
    """At most k nonzero groups of coordinates: ``C = { x : |{ g : x_g != 0 }| <= k }``.

    Args:
        k: number of groups that may be nonzero; static or traced, as in :class:`Sparse`.
        groups: integer array shaped like x: the group of each coordinate, 0 ... m - 1. Groups may differ in size and
            need not be contiguous. Row-sparse matrices: ``jnp.arange(d)[:, None]`` broadcast to (d, c).
        k_max: static upper bound on k.
        keep: bool, shaped like x: the groups of these coordinates are always chosen and count towards k.
        num_groups: static, m; None: found on the host, which needs ``groups`` to be concrete, as ``size_max`` does.
        size_max: static bound on the coordinates that k_max groups hold.

    ``project`` keeps the k groups of largest l2 norm (of equal ones, the lowest id), which is exact. Beyond the papers;
    Jain, Rao & Dhillon 2016.
    """

    k: Numeric = integer()
    groups: Array = integer()
    k_max: int | None = static(default=None)
    keep: Array | None = None
    num_groups: int | None = static(default=None)
    size_max: int | None = static(default=None)

    def prepared(self, shape: tuple[int, ...]) -> "Groups":
        """Settle the static bounds, and check what is known at trace time."""
        groups, m, size_max = self.groups, self.num_groups, self.size_max
        if jnp.shape(groups) != shape or not jnp.issubdtype(jnp.result_type(groups), jnp.integer):
            raise ValueError(
                f"groups must be integers of shape {shape}, one for each coordinate; "
                f"got dtype {jnp.result_type(groups)} and shape {jnp.shape(groups)}"
            )
        known = not isinstance(groups, jax.core.Tracer)
        if known and np.min(groups) < 0:
            raise ValueError(f"groups must be numbered from 0; got {np.min(groups)}")
        if m is None and not known:
            raise ValueError("num_groups must be given where groups is traced: JAX needs a static number")
        sizes: Any = np.bincount(np.asarray(groups).ravel()) if known else None
        if m is None:
            m = len(sizes)
        elif sizes is not None and len(sizes) > m:
            raise ValueError(f"groups must be below num_groups = {m}; got {len(sizes) - 1}")
        k_max = settled(self.k, self.k_max, m, self.keep, shape)
        if size_max is None and sizes is not None and k_max is not None:
            size_max = int(np.sort(sizes)[::-1][:k_max].sum())
        return dataclasses.replace(self, k_max=k_max, num_groups=m, size_max=size_max)

    def project(self, z: Array) -> tuple[Array, Support]:
        """The nearest point of C, and all coordinates of the k groups chosen."""
        scores = self._norms(z)
        if self.keep is not None:
            scores = jnp.where(self._touched(self.keep), jnp.inf, scores)
        k = self.k if self.k_max is None else jnp.minimum(self.k, self.k_max)
        support = self._members(k_largest_mask(scores, k), self.size_max)
        return jnp.where(support.mask, z, 0), support

    def region(self, x: Array) -> Support:
        """All coordinates of the groups that x touches, and of those that are always kept."""
        touched = self._touched(x != 0 if self.keep is None else (x != 0) | self.keep)
        return self._members(touched, self.size_max)

    def steepest(self, direction: Array, size: Numeric, size_max: int | None) -> Support:
        """The groups of largest norm in ``direction``; ``size`` counts groups."""
        bound = None
        if self.size_max is not None and size_max is not None and self.k_max:
            # Groups are no larger than size_max, and k_max of the largest hold no less than others.
            bound = min(-(-size_max // self.k_max) * self.size_max, self.groups.size)
        return self._members(k_largest_mask(self._norms(direction), size), bound)

    def _members(self, chosen: Array, size_max: int | None) -> Support:
        return Support(chosen[self.groups], k_max=size_max, ndim=self.groups.ndim)

    def _norms(self, z: Array) -> Array:
        # In units of the largest entry no square over- or underflows.
        largest = jnp.max(jnp.abs(z))
        unit = z / jnp.where(largest > 0, largest, 1)
        return jnp.sqrt(jax.ops.segment_sum((unit * unit).ravel(), self.groups.ravel(), self.num_groups))

    def _touched(self, mask: Array) -> Array:
        return jax.ops.segment_sum(mask.ravel().astype(jnp.int32), self.groups.ravel(), self.num_groups) > 0


def settled(k: Numeric, k_max: int | None, most: int, keep: Array | None, shape: tuple[int, ...]) -> int | None:
    """The static bound on k, from what is known at trace time; ValueError for what cannot be."""
    if not jnp.issubdtype(jnp.result_type(k), jnp.integer):
        raise ValueError(f"k must be an integer; got {k!r}")
    if jnp.ndim(k):
        raise ValueError(f"k must be a scalar; got shape {jnp.shape(k)}: use jax.vmap for a grid of k")
    if k_max is not None and not (isinstance(k_max, int | np.integer) and 0 <= k_max <= most):
        raise ValueError(f"k_max must be a Python int between 0 and d = {most}; got {k_max!r}")
    bound = most if k_max is None else k_max
    known = isinstance(k, int | np.integer | np.ndarray)
    if known and not 0 <= k <= bound:
        raise ValueError(f"k must lie between 0 and {'d' if k_max is None else 'k_max'} = {bound}; got {k}")
    if keep is not None and (jnp.shape(keep) != shape or jnp.result_type(keep) != jnp.bool_):
        raise ValueError(
            f"keep must be a boolean mask of shape {shape}; "
            f"got dtype {jnp.result_type(keep)} and shape {jnp.shape(keep)}"
        )
    if keep is not None and not isinstance(keep, jax.core.Tracer):
        num_kept, allowed = np.count_nonzero(np.asarray(keep)), k if known else bound
        if num_kept > allowed and most == int(np.prod(shape)):
            raise ValueError(
                f"keep must mark at most {'k' if known else 'k_max'} = {allowed} coordinates; got {num_kept}"
            )
    return int(k) if k_max is None and isinstance(k, int | np.integer) else k_max
