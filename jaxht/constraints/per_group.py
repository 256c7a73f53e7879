"""Sparse vectors and matrices of which each group has few nonzero entries."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_scalar, known_values
from jaxht._dataclass import integer, pytree, replace, static
from jaxht._typing import Array, Numeric
from jaxht.constraints.bounds import clip
from jaxht.constraints.constraint import check_groups
from jaxht.constraints.sparse import Sparse
from jaxht.constraints.support import Support
from jaxht.linalg.inner_products import rankable
from jaxht.linalg.selection import gather, mark_in_groups

__all__ = ["SparsePerGroup"]


@pytree
class SparsePerGroup(Sparse):
    r"""At most k nonzero entries, and at most N of each group.

    .. math::
        C = \{ x : \|x\|_0 \le k,\ \|x_g\|_0 \le N_g \text{ for all } g,\ lower \le x \le upper \}

    The projection is exact: the supports are the independent sets of a matroid, for which taking
    the largest of what clipping gains that still fits in is optimal. It keeps the N_g largest of
    each group, and of these the k largest.

    Args:
        k, k_max, keep, nonnegative, bounds: as in :class:`jaxht.Sparse`. Also k is at most the
            number of entries that the groups allow in all, and ``keep`` marks at most N_g of a
            group.
        groups: integers shaped like x, from 0, traced: the group of each entry.
        per_group: N, an integer, or (m,) integers, one for each group; traced.
        num_groups: m, static; None: the number of entries.

    Raises:
        ValueError: from :meth:`prepare`, as of :class:`jaxht.Sparse`, and for groups or per_group
            that are out of range or of a wrong shape or dtype.

    Cost: a projection takes a sort of d numbers, beside that of :class:`jaxht.Sparse`.

    Source: Edmonds 1971, the greedy algorithm on matroids; not in the papers.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> constraint = jaxht.SparsePerGroup(2, groups=jnp.array([0, 0, 1, 1])).prepare((4,))
        >>> constraint.project(jnp.array([4.0, 3.0, 1.0, 2.0]))[0].tolist()
        [4.0, 0.0, 0.0, 2.0]
    """

    groups: Array = integer(default=None)
    per_group: Numeric = integer(default=1)
    num_groups: int | None = static(default=None)

    is_uniform = False

    def prepare(self, shape: tuple[int, ...]) -> "SparsePerGroup":
        """Fill in k_max, the bounds and num_groups, and check what is known at trace time."""
        filled = replace(self, num_groups=self._check_groups(shape))
        prepared: Any = super(SparsePerGroup, filled).prepare(shape)
        k = known_values(self.k)
        most = _known_capacity(prepared)
        if k is not None and most is not None and np.max(k) > most:
            raise ValueError(f"k must be at most {most}, what the groups allow in all; got {k}")
        keep = self.keep
        if keep is None:
            return prepared
        mask = known_values(keep)
        groups = known_values(self.groups)
        per_group = known_values(self.per_group)
        if mask is None or groups is None or per_group is None:
            return prepared.trim_keep()
        num_kept = np.bincount(groups[mask], minlength=filled.num_groups or 0)
        if np.any(num_kept > per_group):
            raise ValueError("keep must mark at most per_group entries of each group")
        return prepared

    def trim_keep(self) -> "SparsePerGroup":
        """This constraint, with only the first N_g of each group in ``keep``."""
        keep: Any = self.keep
        first = self._largest_of_each(keep.astype(jnp.int32))
        return replace(self, keep=keep & first)

    def project(self, z: Array, near: Array | None = None) -> tuple[Array, Support]:
        """The nearest point of C, and its support."""
        ranks = super().ranks(z)
        support = self._select(ranks, self.k, self.k_max)
        return support.restrict(clip(z, self.bounds)), support

    def ranks(self, z: Array) -> Array:
        """The ranks of :class:`jaxht.Sparse`, and 0 beyond the N_g largest of a group."""
        ranks, _ = self._rank(super().ranks(z))
        return ranks

    def top_k(self, direction: Array, size: Numeric, size_max: int | None) -> Support:
        """The coordinates of the largest entries of ``direction``, of each group at most as many
        times N_g as ``size`` is times k, rounded up."""
        times = -(-size // jnp.maximum(self.limit, 1))
        feasible = self.feasible_direction(direction)
        return self._select(rankable(feasible), size, size_max, times)

    @property
    def limit(self) -> Numeric:
        """The smaller of k, k_max, and what the groups allow in all."""
        limit = super().limit
        everything = jnp.ones(jnp.shape(self.groups), bool)
        return jnp.minimum(limit, self.capacity(everything))

    def capacity(self, among: Array) -> Array:
        """How many of some entries may be selected together."""
        counts = self._count(among)
        allowed = jnp.minimum(counts, self._most)
        return jnp.sum(allowed, dtype=jnp.int32)

    def allows(self, selected: Array) -> Array:
        """Whether at most N_g of each group are selected."""
        return jnp.all(self._count(selected) <= self._most)

    def joinable(self, selected: Array) -> Array:
        """The entries that are not selected, of groups with fewer than N_g that are."""
        has_room = self._count(selected) < self._most
        is_open = has_room[self.groups]
        return ~selected & is_open.reshape(selected.shape)

    def leavable(self, selected: Array, entering: Array) -> Array:
        """The selected entries of the group that is joined if it is full, else all of them."""
        joined = self._count(entering) > 0
        counts = self._count(selected)
        is_full = joined & (counts >= self._most)
        in_group = joined[self.groups].reshape(selected.shape)
        return selected & (in_group | ~jnp.any(is_full))

    def exchangeable(self, selected: Array, slots: Array) -> Array:
        """Whether entry i fits in once that of slot s has left, bool (slots, entries)."""
        groups = self.groups.ravel()
        counts = self._count(selected)[groups]
        left = gather(1 + groups, slots)
        is_same = left[:, None] == 1 + groups[None]
        rest = counts[None] - is_same.astype(jnp.int32)
        most = self._most[groups]
        return rest < most[None]

    def select(self, scores: Array, k: Numeric) -> Array:
        """The k entries of the largest scores that may be selected together."""
        return self._select(scores, k, None).mask

    def restrict(self, indices: Array) -> "SparsePerGroup":
        """This constraint, prepared for a vector, on its coordinates at ``indices`` (m,), which
        differ."""
        restricted: Any = super().restrict(indices)
        return replace(restricted, groups=self.groups.ravel()[indices])

    def pad(self, shape: tuple[int, ...], num_added: int) -> "SparsePerGroup":
        """This constraint with further coordinates, each a group of its own."""
        padded: Any = super().pad(shape, num_added)
        first: Any = self.num_groups
        added_shape = (num_added, *shape[1:])
        num_groups = first + math.prod(added_shape)
        added = np.arange(first, num_groups, dtype=np.int32)
        per_group: Any = self.per_group
        if np.ndim(per_group):
            per_group = np.asarray(per_group, np.int32)
            per_group = np.append(per_group, np.ones_like(added))
        groups = np.asarray(self.groups, np.int32)
        groups = np.concatenate([groups, added.reshape(added_shape)])
        return replace(padded, groups=groups, per_group=per_group, num_groups=num_groups)

    def _check_groups(self, shape: tuple[int, ...]) -> int:
        """The number of groups."""
        groups = self.groups
        check_groups(groups, shape)
        if jnp.shape(groups) != shape or not jnp.issubdtype(groups.dtype, jnp.integer):
            raise ValueError(
                f"groups must be integers of shape {shape}, one for each entry; got dtype "
                f"{groups.dtype} and shape {jnp.shape(groups)}"
            )
        num_groups = self.num_groups
        if num_groups is None:
            per_each = np.shape(self.per_group)
            num_groups = per_each[0] if len(per_each) == 1 else int(np.prod(shape))
        check_scalar("per_group", self.per_group, integral=True, shape=(num_groups,))
        known = known_values(groups)
        if known is None:
            return num_groups
        is_outside = (known < 0) | (known >= num_groups)
        if np.any(is_outside):
            raise ValueError(
                f"groups must be from 0 to num_groups - 1 = {num_groups - 1}; got "
                f"{known[is_outside][0]}"
            )
        return num_groups

    @property
    def _most(self) -> Array:
        """N_g, (num_groups,)."""
        per_group = jnp.asarray(self.per_group, jnp.int32)
        return jnp.broadcast_to(per_group, (self.num_groups,))

    def _count(self, mask: Array) -> Array:
        """The number of entries of each group in a mask, (num_groups,)."""
        marked = mask.ravel().astype(jnp.int32)
        groups = jnp.ravel(self.groups)
        return jax.ops.segment_sum(marked, groups, self.num_groups)

    def _largest_of_each(self, z: Array, times: Numeric = 1) -> Array:
        """The entries that are among the ``times`` N_g largest of their group."""
        groups = jnp.ravel(self.groups)
        # No product overflows where there is no limit.
        most = times * jnp.minimum(self._most, groups.size)[groups]
        marked = mark_in_groups(z.ravel(), groups, most)
        return marked.reshape(z.shape)

    def _rank(self, z: Array, times: Numeric = 1) -> tuple[Array, Array]:
        """|z|, above 0 where an entry is allowed, and 0 elsewhere; and which are allowed."""
        allowed = self._largest_of_each(z, times)
        tiny = float(jnp.finfo(z.dtype).tiny)
        sizes = jnp.maximum(jnp.abs(z), tiny)
        return jnp.where(allowed, sizes, 0), allowed

    def _select(self, z: Array, k: Numeric, k_max: int | None, times: Numeric = 1) -> Support:
        ranks, allowed = self._rank(z, times)
        support = self._largest(ranks, k, k_max)
        # Where fewer than k are allowed others are marked beside them.
        return replace(support, mask=support.mask & allowed)


def _known_capacity(constraint: SparsePerGroup) -> int | None:
    """How many entries may be selected together, where that is known."""
    groups = known_values(constraint.groups)
    most = known_values(constraint.per_group)
    if groups is None or most is None:
        return None
    sizes = np.bincount(groups.ravel(), minlength=constraint.num_groups or 0)
    allowed = np.minimum(sizes, most)
    return int(np.sum(allowed))
