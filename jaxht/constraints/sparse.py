"""Sparse vectors and matrices."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from jaxht._checks import known_values
from jaxht._dataclass import integer, pytree, replace, static
from jaxht._typing import Array, Numeric
from jaxht.constraints.bounds import clip, fill_bounds, root_gains
from jaxht.constraints.constraint import (
    SelectionConstraint,
    check_sparsity,
    pad_rows,
    rank_first,
)
from jaxht.constraints.support import Support
from jaxht.linalg.selection import k_largest_mask

__all__ = ["Sparse"]


@pytree
class Sparse(SelectionConstraint):
    """At most k nonzero entries: ``C = { x : ||x||_0 <= k, lower <= x <= upper }``; in a matrix, k
    entries in all.

    The projection is exact: it keeps the k entries for which clipping to the bounds, instead of
    setting to 0, reduces the distance to z most: those of largest ``z_i^2 - (z_i - P(z_i))^2``.

    Args:
        k: number of entries that may be nonzero, an integer in [0, d]; traced, and may differ
            between lanes under vmap. None where it is given later, as by :func:`jaxht.path`.
        k_max: static upper bound on k, an int; one compile serves all k <= k_max. None: k, where k
            is a Python int; but calls of :func:`jaxht.solve` outside of jit then round k up to a
            multiple of 16, or of about an eighth of k where that is larger, so that neighbouring k
            share a compile: give ``k_max=k`` for refits without padding. Solvers that gather
            columns (HTP on a dense design) need k_max wherever k is traced. Other solvers run
            without it; ``result.support.indices`` is then None, while ``numpy()`` and ``mask``
            remain available. A traced k above k_max is treated as k_max.
        keep: bool, shaped like x, traced: coordinates that are always in the support (an intercept)
            and count towards k; None for none. More than k of them are an error, or, where k or
            keep is traced, only the first k are kept.
        nonnegative: bool, static; whether the lower bound is 0.
        bounds: (lower, upper) in units of x, traced, each a number, an array shaped like x, or
            None; 0 must lie between them. None for no bounds.

    Raises:
        ValueError: from :meth:`prepare`, which every solver calls, for k, k_max, keep or bounds
            that are out of range or of a wrong shape or dtype.

    Cost: a projection takes a selection of the k largest of d numbers, a few passes over them.

    Source: Shen & Li 2018, (3.1); ``keep`` is the bias term of Axiotis & Sviridenko 2020, §5;
    bounds: Beck & Hallak 2016.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> constraint = jaxht.Sparse(2, nonnegative=True).prepare((4,))
        >>> x, support = constraint.project(jnp.array([1.0, -4.0, 2.0, 3.0]))
        >>> x.tolist(), int(support.size)
        ([0.0, 0.0, 2.0, 3.0], 2)
    """

    k: Numeric = integer(default=None)
    k_max: int | None = static(default=None)
    keep: Array | None = None
    nonnegative: bool = static(default=False)
    bounds: tuple[Any, Any] | None = None

    selects_entries = True
    items_partition = True

    def prepare(self, shape: tuple[int, ...]) -> "Sparse":
        """Fill in k_max and the bounds, and check what is known at trace time."""
        k_max = check_sparsity(self.k, self.k_max, math.prod(shape), self.keep, shape)
        prepared = replace(self, k_max=k_max)
        if self.nonnegative or self.bounds is not None:
            bounds = fill_bounds(self.bounds, self.nonnegative, shape)
            prepared = replace(prepared, bounds=bounds)
        if known_values(self.k) is None or known_values(self.keep) is None:
            return prepared.with_k(self.k)
        return prepared

    def with_k(self, k: Numeric) -> "Sparse":
        """This constraint, prepared, with another k; of more coordinates in ``keep`` than that, the
        first stay."""
        changed = replace(self, k=k)
        if self.keep is None:
            return changed
        return replace(changed, keep=changed.first_always_active())

    def num_items(self, shape: tuple[int, ...]) -> int:
        """The number of entries."""
        return math.prod(shape)

    def project(self, z: Array, near: Array | None = None) -> tuple[Array, Support]:
        """The nearest point of C and its support, of exactly k coordinates; those of ``keep`` rank
        above all others."""
        support = self._largest(self.ranks(z), self.k, self.k_max)
        return support.restrict(clip(z, self.bounds)), support

    def ranks(self, z: Array) -> Array:
        """z, or what is gained by clipping its entries to the bounds, the root of it."""
        gains = root_gains(z, self.bounds)
        return rank_first(self.keep, gains)

    def support_of(self, x: Array) -> Support:
        """``supp(x)``, and the coordinates of ``keep``."""
        is_nonzero = x != 0
        return self.support(is_nonzero | self.always_active)

    def top_k(self, direction: Array, size: Numeric, size_max: int | None) -> Support:
        """The coordinates of the largest entries of ``direction``, among those that stay within the
        bounds from 0."""
        feasible = self.feasible_direction(direction)
        return self._largest(feasible, size, size_max)

    @property
    def always_active(self) -> Array:
        """``keep``."""
        if self.keep is None:
            return jnp.zeros((), bool)
        return self.keep

    def active(self, x: Array) -> Array:
        """``supp(x)``, and the coordinates of ``keep``."""
        return self.support_of(x).mask

    def scores(self, v: Array) -> Array:
        """``|v|``."""
        return jnp.abs(v)

    def support(self, selected: Array) -> Support:
        """The selected coordinates."""
        return Support(selected, bounds=self.bounds, k_max=self.k_max, ndim=selected.ndim)

    def restrict(self, indices: Array) -> "Sparse":
        """This constraint, prepared for a vector, on its coordinates at ``indices`` (m,), which
        differ."""

        def take(v):
            is_scalar = v is None or jnp.ndim(v) == 0
            return v if is_scalar else v[indices]

        return self._map_entries(take)

    def pad(self, shape: tuple[int, ...], num_added: int) -> "Sparse":
        """This constraint with further coordinates, that are not kept and whose bounds are 0."""

        def pad(v: Any) -> Any:
            return pad_rows(v, shape, num_added)

        return self._map_entries(pad)

    def _map_entries(self, change: Callable[[Any], Any]) -> "Sparse":
        """This constraint with other arrays of what is given for each entry."""
        bounds = self.bounds
        if bounds is not None:
            lower, upper = bounds
            bounds = change(lower), change(upper)
        return replace(self, keep=change(self.keep), bounds=bounds)

    def _largest(self, z: Array, k: Numeric, k_max: int | None) -> Support:
        if k_max is not None:
            k_max = min(k_max, z.size)
            k = jnp.minimum(k, k_max)
        largest = k_largest_mask(z.ravel(), k)
        mask = largest.reshape(z.shape)
        return Support(mask, bounds=self.bounds, k_max=k_max, ndim=z.ndim)
