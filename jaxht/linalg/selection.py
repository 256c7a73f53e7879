"""Exact selection of the k entries of largest magnitude, with one rule for ties.

Ties go to the lowest index, -0.0 equals 0.0, and NaN (of any sign and payload) ranks above
infinity, on every path and every device. ``k`` may be traced: selection is a search for the k-th
largest magnitude, not a sort of length k: by the bits of one (:mod:`jaxht.linalg.counting_search`),
or of many entries by interpolation (:mod:`jaxht.linalg.threshold_search`). (But on a GPU, where
each pass of the search waits for the host, vectors below 2^16 entries are sorted.)
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._meshes import shard_automatically, shard_like_first
from jaxht._programs import bounded_jit
from jaxht._typing import Array, Numeric
from jaxht.linalg.counting_search import compute_keys, mark_largest
from jaxht.linalg.counts import (
    LONG,
    ROW,
    add,
    clip_count,
    count_true,
    is_wide,
    to_number,
)
from jaxht.linalg.inner_products import rankable
from jaxht.linalg.threshold_search import mark_largest_of_many, mark_largest_of_vector

__all__ = [
    "count_nonzero",
    "decreasing_order",
    "gather",
    "k_largest_indices",
    "k_largest_mask",
    "k_largest_masks",
    "mark_in_groups",
    "mask_to_indices",
    "stand_out",
]

#: From so many entries on thresholds are interpolated: there a pass takes so much time that this is
#: faster even where the sample is not like the others.
MANY = 2**22


@shard_like_first
def k_largest_mask(z: Array, k: Numeric) -> Array:
    """Mark the k entries of largest magnitude along the last axis.

    ``mask[..., i]`` is True iff fewer than k entries precede i when ordered by falling ``|z|``,
    then by rising index.

    Args:
        z: floating (float16, bfloat16, float32, float64), complex or signed integer array of shape
            (..., d).
        k: integer, Python or traced, broadcastable to the leading shape of ``z``; clipped to [0,
            d].

    Returns:
        Boolean array shaped like ``z`` with exactly ``min(max(k, 0), d)`` True entries along the
        last axis.

    Raises:
        ValueError: for a boolean or unsigned dtype.

    Cost: from 2^22 entries on four to six counting passes, rarely more, beside a sample of at most
    a thousandth; with fewer entries at most 16 in float32 (8 in half precision, 32 in float64),
    typically 12 to 14. Of both some more where the k-th and the (k+1)-th magnitudes are equal. One
    pass for d <= 16. Independent of k; no sort of all entries, no scatter. On an NVIDIA GPU a kernel takes float32
    vectors of up to 8192 entries in one pass; longer ones below 2^16, other dtypes and other accelerators take a sort
    and a scatter.

    Source: supp(z, k) of Shen & Li 2018 §1.2, "ties are broken lexicographically".

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import selection
        >>> selection.k_largest_mask(jnp.array([1.0, -3.0, 2.0, 3.0]), 2).tolist()
        [False, True, False, True]
    """
    *lanes, d = z.shape
    if d == 0:
        return jnp.zeros(z.shape, bool)
    z = rankable(lax.stop_gradient(z))
    count = tuple(jnp.broadcast_to(digit, lanes) for digit in clip_count(k, d))
    if d < LONG:
        return mark_largest((z,), count)[0]
    if d >= MANY or is_wide(d):
        return mark_largest_of_vector((z,), count)[0]
    # In rows a long vector is counted by several cores. The padding comes after every entry that
    # could be chosen.
    widths = [(0, 0)] * len(lanes)
    padded = jnp.pad(z, [*widths, (0, -d % ROW)])
    rows = padded.reshape(*lanes, -1, ROW)
    (mask,) = mark_largest((rows,), count)
    mask = mask.reshape(*lanes, -1)
    return mask[..., :d]


def gather(v: Array, indices: Array) -> Array:
    """The entries of v at indices along its first axis; 0 where an index is beyond the end.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.linalg.selection import gather
        >>> gather(jnp.array([5.0, 6.0]), jnp.array([1, 2])).tolist()
        [6.0, 0.0]
    """
    return v.at[indices].get(mode="fill", fill_value=0)


@shard_like_first
def k_largest_masks(arrays: Sequence[Array], k: Numeric) -> list[Array]:
    """Mark the k entries of largest magnitude among all entries of several arrays.

    :func:`k_largest_mask` of the concatenation of the flattened arrays; but nothing is flattened,
    joined or moved: arrays that are sharded over devices stay so, and the devices exchange counts,
    of rows at most, not entries.

    Args:
        arrays: floating arrays of any shapes, with fewer than 2^39 entries in all; one of 2^31
            entries or more needs an axis shorter than 2^23, the others with fewer than 2^31 entries
            in all. Their dtypes may differ: they are compared in the one that holds all, which is
            exact.
        k: integer scalar, Python or traced, or a traced floating-point number of an integer value;
            clipped to [0, number of entries].

    Returns:
        Boolean masks shaped like the arrays, with ``min(max(k, 0), number of entries)`` True
        entries in all.

    Raises:
        ValueError: for arrays of such sizes that they cannot be counted, or a dtype that
            :func:`k_largest_mask` refuses.

    Cost: that of :func:`k_largest_mask`. From 2^22 entries on nothing is held in memory beside the
    arrays, where they are in memory, and the masks. With 2^31 entries or more counts have two
    digits (``python -m benchmarks long``, in 16 GB at most).

    Source: that of :func:`k_largest_mask`; ties go to the first array.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import selection
        >>> masks = selection.k_largest_masks([jnp.array([1.0, 5.0]), jnp.array([[4.0], [3.0]])], 2)
        >>> [mask.tolist() for mask in masks]
        [[False, True], [[True], [False]]]
    """
    filled = [lax.stop_gradient(z) for z in arrays if z.size]
    if not filled:
        return [jnp.zeros(z.shape, bool) for z in arrays]
    total = sum(z.size for z in filled)
    count = clip_count(k, total)
    if total >= MANY or is_wide(total):
        found = mark_largest_of_many(tuple(filled), count)
    else:
        common = jnp.result_type(*(z.dtype for z in filled))
        found = mark_largest(tuple(z.astype(common) for z in filled), count)
    masks = iter(found)
    return [next(masks) if z.size else jnp.zeros(z.shape, bool) for z in arrays]


def count_nonzero(z: Array) -> Array:
    """Count the entries of a real array that are not zero, NaN among them.

    Args:
        z: real array of any shape, as :func:`k_largest_masks` takes them.

    Returns:
        int32 scalar; float32, rounded, for 2^31 entries or more.

    Cost: one pass.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import selection
        >>> int(selection.count_nonzero(jnp.array([0.0, -0.0, jnp.nan, 2.0])))
        2
    """
    z = z[None]
    is_positive = z > 0
    is_negative_or_nan = ~(z >= 0)
    counts = count_true([is_positive, is_negative_or_nan], is_wide(z.size))
    (number,) = to_number(add(counts))
    return number


WORD_BITS = 32  # of the unsigned integers that hold marks


@functools.partial(bounded_jit, static_argnums=1)
def mask_to_indices(mask: Array, k_max: int) -> Array:
    """List the positions of the True entries along the last axis in rising order.

    Args:
        mask: boolean array of shape (..., d).
        k_max: static length of the list.

    Returns:
        int32 array of shape (..., k_max): the first k_max True positions; slots beyond their number
        hold d, which is out of range: JAX's ``mode="drop"`` scatters and ``mode="fill"`` gathers
        skip it.

    Cost: a pass over the mask, and 32 k_max operations for each factor of 32 in d.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import selection
        >>> selection.mask_to_indices(jnp.array([False, True, False, True]), 3).tolist()
        [1, 3, 4]
    """
    if mask.ndim > 1:
        return jax.vmap(lambda mask: mask_to_indices(mask, k_max))(mask)
    # Words of 32 bits, blocks of 32 words, and so on: how many True precede each word of a block.
    each = lax.iota(jnp.uint32, WORD_BITS)
    padded = jnp.pad(mask, (0, -mask.size % WORD_BITS)).reshape(-1, WORD_BITS)
    words = jnp.sum(padded.astype(jnp.uint32) << each[None], axis=1, dtype=jnp.uint32)
    counts = lax.population_count(words).astype(jnp.int32)
    is_before = (each[None] < each[:, None])[None]
    levels: list[Array] = []
    while not levels or counts.size > 1:
        blocks = jnp.pad(counts, (0, -counts.size % WORD_BITS)).reshape(-1, 1, WORD_BITS)
        levels.append(jnp.sum(jnp.where(is_before, blocks, 0), axis=2, dtype=jnp.int32))
        counts = levels[-1][:, -1] + blocks[:, 0, -1]

    def descend(index, preceding, rank):
        """The last one within a block that at most ``rank`` True precede."""
        inside = jnp.sum(preceding <= rank[:, None], axis=1, dtype=jnp.int32)
        return WORD_BITS * index + inside - 1

    # From the largest block down to the word, and to the bit.
    slot = lax.iota(jnp.int32, k_max)
    rank = slot
    index = jnp.zeros_like(slot)
    for preceding in reversed(levels):
        index = descend(index, preceding[index], rank)
        rank = rank - preceding.ravel()[index]
    lower_bits = ((1 << each) - 1).astype(jnp.uint32)[None]
    preceding = lax.population_count(words[index][:, None] & lower_bits).astype(jnp.int32)
    index = descend(index, preceding, rank)
    return jnp.where(slot < counts[0], index, mask.size)


@shard_automatically
def k_largest_indices(z: Array, k_max: int, k: Numeric | None = None) -> Array:
    """List the indices of the k entries of largest magnitude in rising order of index.

    Args:
        z: real array of shape (..., d).
        k_max: static length of the list, at most d.
        k: how many of them to list, traced or not, ``k <= k_max``. None: ``k_max``.

    Returns:
        int32 array of shape (..., k_max); slots beyond k hold d.

    Raises:
        ValueError: for a k_max outside [0, d].

    Cost: that of :func:`k_largest_mask` and :func:`mask_to_indices`.

    Source: supp(z, k) of Shen & Li 2018 §1.2.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import selection
        >>> selection.k_largest_indices(jnp.array([1.0, -3.0, 2.0, 3.0]), 2).tolist()
        [1, 3]
    """
    if not 0 <= k_max <= z.shape[-1]:
        raise ValueError(f"k_max must lie in [0, {z.shape[-1]}], the length of z; got {k_max}")
    k = k_max if k is None else jnp.minimum(k, k_max)
    return mask_to_indices(k_largest_mask(z, k), k_max)


@shard_automatically
def decreasing_order(z: Array) -> Array:
    """List all indices of a vector in decreasing order of the entries, of equal ones in increasing
    order.

    Args:
        z: real array of shape (n,); NaN comes last.

    Returns:
        int32 array of shape (n,).

    Cost: a sort.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import selection
        >>> selection.decreasing_order(jnp.array([1.0, -3.0, 2.0, 1.0])).tolist()
        [2, 0, 3, 1]
    """
    # A descending sort has NaN first.
    if jnp.issubdtype(z.dtype, jnp.floating):
        return jnp.argsort(-z, stable=True).astype(jnp.int32)
    return jnp.argsort(z, stable=True, descending=True).astype(jnp.int32)


def mark_in_groups(z: Array, groups: Array, most: Array) -> Array:
    """Mark the entries that are among the largest in magnitude of their group.

    Args:
        z: real array of shape (d,).
        groups: int32 (d,), the group of each entry.
        most: int32 (d,), how many of the group of each entry are marked.

    Returns:
        Boolean array (d,); of equal entries the first are marked.

    Cost: a sort.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.linalg.selection import mark_in_groups
        >>> groups = jnp.array([0, 1, 0, 0])
        >>> mark_in_groups(jnp.array([1.0, 2.0, -3.0, 1.0]), groups, jnp.array([2, 2, 2, 2])).tolist()
        [True, True, True, False]
    """
    index = lax.iota(jnp.int32, z.size)
    falling = ~compute_keys(lax.stop_gradient(z))
    groups, _, order = lax.sort((groups, falling, index), num_keys=2, is_stable=True)
    is_first = jnp.concatenate([jnp.ones(1, bool), groups[1:] != groups[:-1]])
    first = lax.cummax(jnp.where(is_first, index, 0))
    is_among = index - first < most[order]
    return jnp.zeros(z.size, bool).at[order].set(is_among)


def stand_out(z: Array, marked: Array) -> Array:
    """Whether the marked entries are all larger in magnitude than the others.

    Then they are the ``k_largest_mask`` of their number; where they are not, they can be so by ties
    alone.

    Args:
        z: real array of any shape, as :func:`k_largest_mask` takes it.
        marked: boolean array shaped like z.

    Returns:
        Boolean scalar; True where nothing or all is marked, and where all others are 0.

    Cost: one pass.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.linalg.selection import stand_out
        >>> bool(stand_out(jnp.array([1.0, -3.0, 2.0]), jnp.array([False, True, True])))
        True
    """
    keys = compute_keys(z)
    limits = jnp.iinfo(keys.dtype)
    first = [jnp.asarray(limit, keys.dtype) for limit in (limits.max, limits.min)]
    # One reduction of two operands, of integers, which XLA's CPU compiler vectorises: a tenth of
    # the time of one of floating-point numbers.
    lowest, highest = lax.reduce(
        [jnp.where(marked, keys, first[0]), jnp.where(marked, first[1], keys)],
        first,
        lambda a, b: [jnp.minimum(a[0], b[0]), jnp.maximum(a[1], b[1])],
        tuple(range(z.ndim)),
    )
    return (lowest > highest) | (highest <= 0)
