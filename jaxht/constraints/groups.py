"""Group sparsity."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import known_values
from jaxht._dataclass import integer, pytree, replace, static
from jaxht._typing import Array, Numeric
from jaxht.constraints.bounds import fill_bounds
from jaxht.constraints.constraint import (
    SelectionConstraint,
    check_groups,
    check_sparsity,
    pad_rows,
)
from jaxht.constraints.support import Support
from jaxht.linalg.inner_products import squares
from jaxht.linalg.selection import k_largest_mask

__all__ = ["Groups"]


@pytree
class Groups(SelectionConstraint):
    """At most k nonzero groups of coordinates: ``C = { x : |{ g : x_g != 0 }| <= k, lower <= x <=
    upper }``.

    The projection is exact up to the rounding of sums of squares: it keeps the k groups of largest
    l2 norm, of equal ones those of the lowest number. In float32 groups below 1e-19 of the largest
    entry are equal. Within bounds it keeps those for which clipping to the bounds, instead of
    setting to 0, reduces the distance to z most, as that of :class:`jaxht.Sparse` does.

    Args:
        k: number of groups that may be nonzero, an integer in [0, m]; static or traced, as in
            :class:`jaxht.Sparse`.
        groups: integers shaped like x, traced: the group of each coordinate, 0 ... m - 1. Groups
            may differ in size and need not be contiguous. None: the rows of a matrix x, so that
            ``Groups(k)`` is joint sparsity.
        k_max: static upper bound on k, an int; None: k, where k is a Python int; but calls of
            :func:`jaxht.solve` outside of jit then take the next multiple of 4 or more, so that
            neighbouring k share a compile.
        keep: bool, shaped like x, traced: the groups of these coordinates are always active and
            count towards k; None for none. More than k groups are an error, or, where k, keep or
            groups is traced, only the first k are kept.
        num_groups: m, static. None: found on the host, which needs ``groups`` to be concrete.
        size_max: static bound on the number of coordinates in k_max groups. None: found on the
            host, where ``groups`` is concrete.
        nonnegative: bool, static; whether the lower bound is 0.
        bounds: (lower, upper) in units of x, traced, each a number, an array shaped like x, or
            None; 0 must lie between them. None for no bounds.

    Raises:
        ValueError: from :meth:`prepare`, which every solver calls, for k, k_max, groups, keep or
            bounds that are out of range or of a wrong shape or dtype; for traced groups without
            num_groups.

    Cost: a projection takes the sums of d squares by group, and a selection of the k largest of m
    numbers.

    Source: Jain, Rao & Dhillon 2016; groups are not in the other papers. Bounds: Beck & Hallak
        2016.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> constraint = jaxht.Groups(1, jnp.array([0, 0, 1, 1])).prepare((4,))
        >>> constraint.project(jnp.array([1.0, 4.0, 3.0, 3.0]))[0].tolist()
        [0.0, 0.0, 3.0, 3.0]
    """

    items_partition = True

    k: Numeric = integer(default=None)
    groups: Array = integer(default=None)
    k_max: int | None = static(default=None)
    keep: Array | None = None
    num_groups: int | None = static(default=None)
    size_max: int | None = static(default=None)
    nonnegative: bool = static(default=False)
    bounds: tuple[Any, Any] | None = None

    def prepare(self, shape: tuple[int, ...]) -> "Groups":
        """Fill in the static bounds, and check what is known at trace time."""
        groups = self.groups
        if groups is None and len(shape) == 2:
            groups = _rows(shape)
        check_groups(groups, shape)
        dtype = jnp.result_type(groups)
        if jnp.shape(groups) != shape or not jnp.issubdtype(dtype, jnp.integer):
            raise ValueError(
                f"groups must be integers of shape {shape}, one for each coordinate; "
                f"got dtype {dtype} and shape {jnp.shape(groups)}"
            )
        known = known_values(groups)
        num_groups = _count_groups(known, self.num_groups)

        def count_kept(keep: Any) -> int | None:
            return None if known is None else np.unique(known[keep]).size

        k_max = check_sparsity(
            self.k,
            self.k_max,
            num_groups,
            self.keep,
            shape,
            count="the number of groups",
            items="groups",
            count_kept=count_kept,
        )
        size_max = self.size_max
        if size_max is None and known is not None and k_max is not None:
            size_max = _largest_groups(known, k_max)
        prepared = replace(
            self,
            groups=groups,
            k_max=k_max,
            num_groups=num_groups,
            size_max=size_max,
            bounds=fill_bounds(self.bounds, self.nonnegative, shape),
        )
        is_known = all(known_values(v) is not None for v in (self.k, self.keep, groups))
        return prepared if is_known else prepared.with_k(self.k)

    def with_k(self, k: Numeric) -> "Groups":
        """This constraint, prepared, with another k; of more groups in ``keep`` than that, the
        first stay."""
        changed = replace(self, k=k)
        if self.keep is None:
            return changed
        first = changed.first_always_active()
        return replace(changed, keep=self.keep & first[self.groups])

    def num_items(self, shape: tuple[int, ...]) -> int | None:
        """The number of groups; None where their sizes are traced."""
        return None if known_values(self.groups) is None else self.num_groups

    def with_k_max(self, k_max: int) -> "Groups":
        """This constraint, prepared, with another static bound on k, and the size_max of it."""
        return replace(self, k_max=k_max, size_max=_largest_groups(self.groups, k_max))

    def pad(self, shape: tuple[int, ...], num_added: int) -> "Groups | None":
        """This constraint with further groups, none larger than the largest one."""
        groups = known_values(self.groups)
        if groups is None:
            return None
        first: Any = self.num_groups
        added = np.arange(num_added * math.prod(shape[1:]), dtype=groups.dtype)
        added = first + added // _largest_groups(groups, 1)
        added = added.reshape(num_added, *shape[1:])

        def pad(v: Any) -> Any:
            return pad_rows(v, shape, num_added)

        return replace(
            self,
            groups=np.concatenate([groups, added]),
            keep=pad(self.keep),
            num_groups=int(np.max(added, initial=first - 1)) + 1,
            bounds=None if self.bounds is None else tuple(map(pad, self.bounds)),
        )

    def support_size(self, shape: tuple[int, ...]) -> int | None:
        """size_max, the number of entries in the k_max largest groups."""
        return self.size_max

    def top_k(self, direction: Array, size: Numeric, size_max: int | None) -> Support:
        """The groups of largest norm in ``direction``, where it stays within the bounds from 0;
        ``size`` counts groups."""
        bound = None
        if self.size_max is not None and size_max is not None and self.k_max:
            # Any k_max groups have at most size_max coordinates in all.
            bound = min(-(-size_max // self.k_max) * self.size_max, self.groups.size)
        scores = self.scores(self.feasible_direction(direction))
        support = self.support(k_largest_mask(scores, size))
        return replace(support, k_max=bound)

    @property
    def always_active(self) -> Array:
        """The groups of ``keep``."""
        return jnp.zeros((), bool) if self.keep is None else self._touched(self.keep)

    def active(self, x: Array) -> Array:
        """The groups on which x is not zero, and those of ``keep``: bool (m,)."""
        return self._touched(x != 0) | self.always_active

    def scores(self, v: Array) -> Array:
        """The l2 norms of the groups of v, (m,)."""
        # In units of the largest entry no square over- or underflows.
        # An eighth of the largest number: the inverse of that itself is flushed to 0.
        largest = jnp.minimum(jnp.max(jnp.abs(v)), float(jnp.finfo(v.dtype).max) / 8)
        unit = jnp.where(largest > 0, largest, 1)
        return jnp.sqrt(self._sums(squares(v / unit))) * unit

    def support(self, selected: Array) -> Support:
        """All coordinates of the selected groups."""
        mask = selected[self.groups]
        return Support(mask, bounds=self.bounds, k_max=self.size_max, ndim=self.groups.ndim)

    def _sums(self, v: Array) -> Array:
        """The sum of v over each group, (m,)."""
        return jax.ops.segment_sum(v.ravel(), self.groups.ravel(), self.num_groups)

    def _touched(self, mask: Array) -> Array:
        """The groups of the coordinates in ``mask``, bool (m,)."""
        return self._sums(mask.astype(jnp.int32)) > 0


def _rows(shape: tuple[int, ...]) -> Any:
    """The number of the row of each entry of a matrix."""
    d, _ = shape
    numbers = np.arange(d, dtype=np.int32)
    return np.broadcast_to(numbers[:, None], shape)


def _count_groups(known: Any, num_groups: int | None) -> int:
    """The number of groups, of numbers that are known or None."""
    if known is None:
        if num_groups is None:
            raise ValueError(
                "num_groups must be given where groups is traced: JAX needs a static number"
            )
        return num_groups
    if known.size and known.min() < 0:
        raise ValueError(f"groups must be numbered from 0; got {known.min()}")
    largest = int(known.max()) if known.size else -1
    if num_groups is None:
        return largest + 1
    if largest >= num_groups:
        raise ValueError(f"groups must be below num_groups = {num_groups}; got {largest}")
    return num_groups


def _largest_groups(groups: Array, k_max: int) -> int:
    """How many coordinates the k_max largest groups have."""
    sizes = np.sort(np.bincount(np.ravel(groups)))[::-1]
    return int(sizes[:k_max].sum())
