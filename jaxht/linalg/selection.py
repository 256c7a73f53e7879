"""Exact selection of the k entries of largest magnitude, with one rule for ties.

Ties go to the lowest index, -0.0 equals 0.0, and NaN (of any sign and payload) ranks above
infinity, on every path and every device. ``k`` may be traced: selection is a search for the k-th
largest magnitude, not a sort of length k. (But on a GPU, where each pass of the search waits for
the host, vectors below 2^16 entries are sorted.)

IEEE magnitudes order like their bit patterns read as integers, so the k-th largest is found exactly
by searching its bits, two in each counting pass over the data, and fewer wherever a threshold
already separates exactly k entries, which is the usual case. Working on integers also keeps
subnormals apart on hardware that flushes them to 0. A pass takes counts from the data and nothing
else, so arrays that are sharded over devices stay where they are."""

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from jaxht._typing import Array, Numeric
from jaxht.linalg.counts import (
    LONG,
    ROW,
    Count,
    add,
    clip_count,
    count_true,
    equals,
    is_wide,
    reaches,
    split_axes,
    to_digits,
    to_number,
)


def k_largest_mask(z: Array, k: Numeric) -> Array:
    """Mark the k entries of largest magnitude along the last axis.

    ``mask[..., i]`` is True iff fewer than k entries precede i when ordered by falling ``|z|``,
    then by rising index.

    Args:
        z: floating (float16, bfloat16, float32, float64) or signed integer array of shape (..., d),
            d >= 1.
        k: integer, Python or traced, broadcastable to the leading shape of ``z``; clipped to [0,
            d].

    Returns:
        Boolean array shaped like ``z`` with exactly ``min(max(k, 0), d)`` True entries along the
        last axis.

    Raises:
        ValueError: for a complex, boolean or unsigned dtype.

    Cost: at most 16 counting passes in float32 (8 in half precision, 32 in float64), typically 12
    to 14; up to ``log2(d) / 2`` more only where the k-th and the (k+1)-th magnitudes are equal; one
    pass for d <= 16. Independent of k; no sort, no scatter. On a GPU below 2^16 entries a sort and
    a scatter instead, about a third of the time (H200, 8192 vectors of 256 entries in a loop).

    Source: supp(z, k) of Shen & Li 2018 §1.2, "ties are broken lexicographically".

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import selection
        >>> selection.k_largest_mask(jnp.array([1.0, -3.0, 2.0, 3.0]), 2).tolist()
        [False, True, False, True]
    """
    *lanes, d = z.shape
    keys = _compute_keys(z)
    count = tuple(jnp.broadcast_to(digit, lanes) for digit in clip_count(k, d))
    if d < LONG:
        return _select((keys,), count)[0]
    # In rows a long vector is counted by several cores. The padding comes after every entry that
    # could be chosen.
    rows = jnp.pad(keys, [(0, 0)] * len(lanes) + [(0, -d % ROW)]).reshape(*lanes, -1, ROW)
    return _select((rows,), count)[0].reshape(*lanes, -1)[..., :d]


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

    Cost: that of :func:`k_largest_mask`, in at least four bytes of memory an entry. With 2^31
    entries or more counts
    have two digits, which takes no longer: 11 to 16 s of 2^31 bfloat16 on two cores, in 15 GB
    (``python -m benchmarks long``).

    Source: that of :func:`k_largest_mask`; ties go to the first array.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import selection
        >>> masks = selection.k_largest_masks([jnp.array([1.0, 5.0]), jnp.array([[4.0], [3.0]])], 2)
        >>> [mask.tolist() for mask in masks]
        [[False, True], [[True], [False]]]
    """
    filled = [z for z in arrays if z.size]
    if not filled:
        return [jnp.zeros(z.shape, bool) for z in arrays]
    common = jnp.result_type(*(z.dtype for z in filled))
    keys = tuple(_compute_keys(z.astype(common)) for z in filled)
    masks = iter(_select(keys, clip_count(k, sum(z.size for z in filled))))
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
    return to_number(add(count_true([z[None] > 0, ~(z[None] >= 0)], is_wide(z.size))))[0]


@custom_vmap
def _select(pieces: tuple[Array, ...], k: Count) -> tuple[Array, ...]:
    """Masks of the k largest keys of all ``pieces`` together, whose leading axes are those of k:
    the lanes.

    Its batching rule turns vmapped axes into leading axes of the one flat search below: a while
    loop batched lane by lane carries a predicate and selects in every pass, which doubles the time.
    (Within, no ``jnp.arange``: before JAX 0.8 it is a constant of the traced function, and the rule
    is refused where a branch on lanes has batched it.)"""
    leading = k[0].shape
    lanes = math.prod(leading)
    if not lanes:
        return tuple(jnp.zeros(piece.shape, bool) for piece in pieces)
    flat = [piece.reshape(lanes, *piece.shape[len(leading) :]) for piece in pieces]
    masks = _find_masks(flat, tuple(digit.reshape(lanes) for digit in k))
    return tuple(mask.reshape(piece.shape) for mask, piece in zip(masks, pieces, strict=True))


@_select.def_vmap
def _select_vmapped(
    axis_size: int, in_batched: list, pieces: tuple[Array, ...], k: Count
) -> tuple[tuple[Array, ...], tuple[bool, ...]]:
    def move_lanes_first(arg: Array, batched: bool) -> Array:
        return arg if batched else jnp.broadcast_to(arg, (axis_size, *arg.shape))

    pieces_batched, k_batched = in_batched
    pieces = tuple(map(move_lanes_first, pieces, pieces_batched))
    return _select(pieces, tuple(map(move_lanes_first, k, k_batched))), (True,) * len(pieces)


@jax.jit
def _find_masks(pieces: list[Array], k: Count) -> list[Array]:
    """For each lane (the first axis) the masks of its k[lane] largest keys, which are not negative.

    Jitted, since loops and branches outside of any jit are compiled anew in each call, and so that
    a program that selects in many places traces this once for each shape."""
    if len(pieces) > 1 or len(k) > 1 or pieces[0].ndim != 2 or pieces[0].shape[1] >= LONG:
        return _search_masks(pieces, k)
    (keys,) = pieces
    if keys.shape[1] <= _SHORT:
        return [
            lax.cond(
                keys[0, 0] >= 0,
                lambda: _rank(keys) < k[0][:, None],
                lambda: jnp.zeros(keys.shape, bool),
            )
        ]
    return lax.platform_dependent(pieces, k, cpu=_search_masks, default=_sort_masks)


def _sort_masks(pieces: list[Array], k: Count) -> list[Array]:
    """The same for one array (lanes, d) by a sort: a GPU waits for the host in each pass of a
    search.

    The mask is made of the order alone, so that it has exactly k entries whatever XLA computes
    anew."""
    (keys,) = pieces
    lane, index = (lax.broadcasted_iota(jnp.int32, keys.shape, axis) for axis in (0, 1))
    _, order = lax.sort(
        (~keys, index), dimension=1, is_stable=True, num_keys=1
    )  # falling keys, then rising indices
    return [
        jnp.zeros(keys.shape, bool).at[lane, order].set(index < k[0][:, None], unique_indices=True)
    ]


def _search_masks(pieces: list[Array], k: Count) -> list[Array]:
    """The same for several arrays of any shapes by counting passes.

    A threshold is searched until exactly k keys reach it. Where that ends at the k-th largest key,
    which further keys equal, ties are numbered and the search goes on among the numbers: one loop,
    and so one program, does both. Where the numbers need two digits, it goes on once more, among
    those with the same first digit.

    The masks compare what the loop carries, so that all comparisons see the same bits: XLA would
    otherwise compute the caller's values anew for each use, in kernels that round differently, and
    the k-th largest of one need not be that of the other. (An optimization barrier does not prevent
    that on CPU.)"""
    shapes, dtype = [piece.shape[1:] for piece in pieces], pieces[0].dtype
    total = sum(map(math.prod, shapes))
    wide = len(k) > 1
    # How many leading axes make the first digit of an entry's number, the others the second.
    splits = [split_axes(shape) if wide else len(shape) for shape in shapes]
    leading = [math.prod(shape[:split]) for shape, split in zip(shapes, splits, strict=True)]
    trailing = max(math.prod(shape[split:]) for shape, split in zip(shapes, splits, strict=True))
    beyond = jnp.asarray(jnp.iinfo(dtype).max, dtype)

    def search_threshold(carry: _Search) -> _Search:
        pieces, threshold, shift, digit = carry

        # Invariant: at least k keys reach the threshold.
        def search_two_bits(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            threshold, shift = carry
            searching, step = shift >= 0, jnp.maximum(shift, 0).astype(dtype)
            trials = [threshold + (jnp.asarray(i, dtype) << step) for i in (1, 2, 3)]
            trials = [
                jnp.where(trial < threshold, beyond, trial) for trial in trials
            ]  # the sum has wrapped
            counts = [
                count_true([keys >= _align(trial, keys) for trial in trials], wide)
                for keys in pieces
            ]
            totals = [add(of_pieces) for of_pieces in zip(*counts, strict=True)]
            reached = sum(
                (reaches(count, k).astype(dtype) for count in totals), jnp.zeros_like(threshold)
            )
            exact = functools.reduce(jnp.logical_or, [equals(count, k) for count in totals])
            higher = jnp.where(searching, threshold + (reached << step), threshold)
            return higher, jnp.where(searching, jnp.where(exact, _EXACT, shift - 2), shift)

        threshold, shift = lax.while_loop(
            lambda carry: jnp.any(carry[1] >= 0), search_two_bits, (threshold, shift)
        )

        def number_ties() -> _Search:
            # More entries share the k-th key of a lane than may be selected: the first of them are.
            # Their numbers fall along the pieces and rows.
            tied = shift == _TIED

            def number(keys: Array, piece: int) -> Array:
                shape, split = shapes[piece], splits[piece]
                number = sum(leading[piece:]) - _index(shape, range(split), dtype)
                if wide:
                    second = trailing - _index(shape, range(split, len(shape)), dtype)
                    number = jnp.where(_align(digit, keys) == 0, number, second)
                level = _align(threshold, keys)
                numbered = jnp.where(keys == level, number, jnp.where(keys > level, beyond, 0))
                return jnp.where(_align(tied, keys), numbered, keys)

            numbered = [number(keys, piece) for piece, keys in enumerate(pieces)]
            highest = jnp.where(digit == 0, _highest_shift(sum(leading)), _highest_shift(trailing))
            shift_on = jnp.where(tied, highest, shift)
            return (
                numbered,
                jnp.where(tied, 0, threshold),
                shift_on,
                jnp.where(tied, digit + 1, digit),
            )

        return lax.cond(
            jnp.any(shift == _TIED), number_ties, lambda: (pieces, threshold, shift, digit)
        )

    none = equals(k, to_digits(0, wide))
    none_or_all = none | equals(k, to_digits(total, wide))  # which takes no pass
    shift = jnp.where(none_or_all, _EXACT, _highest_shift(int(jnp.iinfo(dtype).max)))
    search = pieces, jnp.where(none, beyond, jnp.zeros((), dtype)), shift, jnp.zeros_like(shift)
    pieces, threshold, *_ = lax.while_loop(
        lambda carry: jnp.any(carry[2] >= 0), search_threshold, search
    )
    return [keys >= _align(threshold, keys) for keys in pieces]


#: Keys, thresholds, and the lower of the two bits that are searched next; or that the search has
#: ended: at a threshold that exactly k keys reach, or at the k-th largest key, which more than k
#: keys reach. Last, how often ties of a lane were numbered.
_Search = tuple[list[Array], Array, Array, Array]
_EXACT, _TIED = -1, -2


def _highest_shift(most: int) -> int:
    return (most.bit_length() - 1) // 2 * 2


def _index(shape: Sequence[int], axes: range, dtype: jnp.dtype) -> Array:
    """The index of every entry of an array of that shape among those along some adjacent axes, in
    row-major order."""
    index = jnp.zeros(shape, dtype)
    for axis in axes:
        index += math.prod(shape[axis + 1 : axes.stop]) * lax.broadcasted_iota(dtype, shape, axis)
    return index


def _rank(keys: Array) -> Array:
    """How many keys precede each along the short last axis, the larger and, of equal ones, the
    lower index first."""
    index = lax.iota(jnp.int32, keys.shape[-1])
    columns = [keys[:, i, None] for i in range(keys.shape[-1])]
    before = [
        jnp.where(i < index, column >= keys, column > keys) for i, column in enumerate(columns)
    ]
    return sum(
        (precedes.astype(jnp.int32) for precedes in before), jnp.zeros(keys.shape, jnp.int32)
    )


def _align(values: Array, keys: Array) -> Array:
    """``values`` (lanes,) in a shape that broadcasts against ``keys`` (lanes, ...)."""
    return values.reshape(-1, *[1] * (keys.ndim - 1))


@functools.partial(jax.jit, static_argnums=1)
def mask_to_indices(mask: Array, k_max: int) -> Array:
    """List the positions of the True entries along the last axis in rising order.

    Args:
        mask: boolean array of shape (..., d).
        k_max: static length of the list.

    Returns:
        int32 array of shape (..., k_max): the first k_max True positions; slots beyond their number
        hold d, which is
        out of range: JAX's ``mode="drop"`` scatters and ``mode="fill"`` gathers skip it.

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
    each = lax.iota(jnp.uint32, _BLOCK)
    bits = jnp.pad(mask, (0, -mask.size % _BLOCK)).reshape(-1, _BLOCK).astype(jnp.uint32)
    words = jnp.sum(bits << each[None], axis=1, dtype=jnp.uint32)
    counts = lax.population_count(words).astype(jnp.int32)
    levels: list[Array] = []
    while not levels or counts.size > 1:
        blocks = jnp.pad(counts, (0, -counts.size % _BLOCK)).reshape(-1, 1, _BLOCK)
        levels.append(
            jnp.sum(
                jnp.where((each[None] < each[:, None])[None], blocks, 0), axis=2, dtype=jnp.int32
            )
        )
        counts = levels[-1][:, -1] + blocks[:, 0, -1]
    # From the largest block down to the word: the last one that at most ``rank`` True precede, and
    # the rank within it.
    slot = lax.iota(jnp.int32, k_max)
    index, rank = jnp.zeros_like(slot), slot
    for preceding in reversed(levels):
        index = (
            _BLOCK * index + jnp.sum(preceding[index] <= rank[:, None], axis=1, dtype=jnp.int32) - 1
        )
        rank = rank - preceding.ravel()[index]
    preceding = lax.population_count(
        words[index][:, None] & ((1 << each) - 1).astype(jnp.uint32)[None]
    ).astype(jnp.int32)
    index = _BLOCK * index + jnp.sum(preceding <= rank[:, None], axis=1, dtype=jnp.int32) - 1
    return jnp.where(slot < counts[0], index, mask.size)


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
    return jnp.argsort(z, stable=True, descending=True).astype(jnp.int32)


def _compute_keys(z: Array) -> Array:
    """Integers of 32 or 64 bits that order as |z| does, with every NaN equal and above infinity."""
    z = lax.stop_gradient(z)
    if jnp.issubdtype(z.dtype, jnp.signedinteger):
        # |most negative| does not fit the signed type; read as unsigned it is right.
        keys = lax.bitcast_convert_type(jnp.abs(z), f"uint{8 * z.dtype.itemsize}")
    elif jnp.issubdtype(z.dtype, jnp.floating):
        # Without the sign bit there is none to search, and none to be had in a signed integer.
        signed = jnp.dtype(f"int{8 * z.dtype.itemsize}")
        bits = lax.bitcast_convert_type(z, signed) & jnp.asarray(jnp.iinfo(signed).max, signed)
        keys = jnp.minimum(
            bits, lax.bitcast_convert_type(jnp.asarray(jnp.inf, z.dtype), signed) + 1
        )
    else:
        raise ValueError(f"z must be real floating or signed integer; got dtype {z.dtype}")
    if keys.dtype.itemsize >= 4:
        return keys
    # In the upper bits, which are searched first: the lower ones are searched only where keys are
    # equal.
    return keys.astype(jnp.int32) << 31 - int(jnp.iinfo(keys.dtype).max).bit_length()


_BLOCK = 32
_SHORT = 16
