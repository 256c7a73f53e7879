"""The search for the k largest of some keys, by counting how many reach a threshold.

IEEE magnitudes order like their bit patterns read as integers, so the k-th largest is found exactly
by searching its bits, two in each counting pass over the data, and fewer wherever a threshold
already separates exactly k entries, which is the usual case. Working on integers also keeps
subnormals apart on hardware that flushes them to 0. A pass takes counts from the data and nothing
else, so arrays that are sharded over devices stay where they are.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from jaxht._loops import cond, while_loop
from jaxht._programs import bounded_jit
from jaxht._typing import Array
from jaxht.linalg.counts import (
    LONG,
    Count,
    add,
    count_true,
    equals,
    reaches,
    to_digits,
)
from jaxht.linalg.kernels.selection import mark_k_largest, takes_vectors
from jaxht.linalg.magnitudes import magnitudes
from jaxht.linalg.platform import by_platform

__all__ = ["compute_keys", "index_along", "mark_largest", "with_lanes"]


def with_lanes(
    find_masks: Callable[[list[Array], Count], list[Array]],
) -> Callable[[tuple[Array, ...], Count], tuple[Array, ...]]:
    """A function of arrays whose leading axes are those of k, the lanes, from one of arrays (lanes,
    ...) with k (lanes,), which has a mask for each array.

    Its batching rule turns vmapped axes into leading axes: a while loop batched lane by lane
    carries a predicate and selects in every pass, which doubles the time. (Within, no
    ``jnp.arange``: before JAX 0.8 it is a constant of the traced function, and the rule is refused
    where a branch on lanes has batched it.)
    """

    @custom_vmap
    def mark(pieces: tuple[Array, ...], k: Count) -> tuple[Array, ...]:
        leading = k[0].shape
        lanes = math.prod(leading)
        if not lanes:
            return tuple(jnp.zeros(piece.shape, bool) for piece in pieces)
        flat = [piece.reshape(lanes, *piece.shape[len(leading) :]) for piece in pieces]
        masks = find_masks(flat, tuple(digit.reshape(lanes) for digit in k))
        return tuple(mask.reshape(piece.shape) for mask, piece in zip(masks, pieces, strict=True))

    @mark.def_vmap
    def _(axis_size, in_batched, pieces, k):
        def move_lanes_first(arg, batched):
            if batched:
                return arg
            return jnp.broadcast_to(arg, (axis_size, *arg.shape))

        pieces_batched, k_batched = in_batched
        pieces = tuple(map(move_lanes_first, pieces, pieces_batched))
        k = tuple(map(move_lanes_first, k, k_batched))
        masks = mark(pieces, k)
        return masks, (True,) * len(pieces)

    return mark


def compute_keys(z: Array) -> Array:
    """Integers of 32 or 64 bits that order as |z| does, with every NaN equal and above infinity."""
    keys = magnitudes(z)
    width = 8 * z.dtype.itemsize - jnp.issubdtype(z.dtype, jnp.floating)
    # Of narrow ones in the upper bits, which are searched first: the lower ones are searched only
    # where keys are equal.
    return keys << 31 - width if width < 31 else keys


#: Vectors of at most so many entries are compared pair by pair.
MAX_RANKED_ENTRIES = 16


@bounded_jit
def _find_masks(pieces: list[Array], k: Count) -> list[Array]:
    """The masks of the k[lane] entries of largest magnitude of each lane (the first axis).

    Jitted, since loops and branches outside of any jit are compiled anew in each call, and so that
    a program that selects in many places traces this once for each shape.
    """
    first = pieces[0]
    is_vector = len(pieces) == 1 and first.ndim == 2
    if not is_vector or first.shape[1] >= LONG:
        keys = [compute_keys(piece) for piece in pieces]
        return _search_masks(keys, k)
    (z,) = pieces
    if z.shape[1] <= MAX_RANKED_ENTRIES:
        keys = compute_keys(z)

        def compare_ranks():
            return _rank(keys) < k[0][:, None]

        def keep_none():
            return jnp.zeros(keys.shape, bool)

        return [cond(keys[0, 0] >= 0, compare_ranks, keep_none)]
    return list(_mark_short(z, k[0]))


def _sort_mask(z: Array, k: Array) -> list[Array]:
    """The same for one array (lanes, d) by a sort: an accelerator waits for the host in each pass
    of a search.

    The mask is made of the order alone, so that it has exactly k entries whatever XLA computes
    anew.
    """
    keys = compute_keys(z)
    lane = lax.broadcasted_iota(jnp.int32, keys.shape, 0)
    index = lax.broadcasted_iota(jnp.int32, keys.shape, 1)
    # Falling keys, then rising indices.
    _, order = lax.sort((~keys, index), dimension=1, is_stable=True, num_keys=1)
    none = jnp.zeros(keys.shape, bool)
    is_among = index < k[:, None]
    return [none.at[lane, order].set(is_among, unique_indices=True)]


def _search_mask(z: Array, k: Array) -> list[Array]:
    return _search_masks([compute_keys(z)], (k,))


def _mark_by_kernel(z: Array, k: Array) -> list[Array]:
    return [mark_k_largest(z, k)] if takes_vectors(z) else _sort_mask(z, k)


def _mask_shape(z: Any, k: Any) -> list[Any]:
    return [jax.ShapeDtypeStruct(z.shape, jnp.bool_)]


_mark_short = by_platform(
    "mark_k_largest", _mask_shape, default=_sort_mask, cpu=_search_mask, cuda=_mark_by_kernel
)


class _BitSearch(NamedTuple):
    """The state of a search.

    Attributes:
        keys: the keys, or the numbers of tied ones.
        threshold: (lanes,) at least k keys reach it.
        shift: (lanes,) the lower of the two bits that are searched next; or that the search has
            ended: EXACT, at a threshold that exactly k keys reach, or TIED, at the k-th largest
            key, which more than k keys reach.
    """

    keys: list[Array]
    threshold: Array
    shift: Array


# In place of the bit of a search that has ended.
EXACT = -1
TIED = -2


def _search_masks(pieces: list[Array], k: Count) -> list[Array]:
    """The same for several arrays of any shapes by counting passes.

    A threshold is searched until exactly k keys reach it. Where that ends at the k-th largest key,
    which further keys equal, ties are numbered and the search goes on among the numbers: one loop,
    and so one program, does both.

    The masks compare what the loop carries, so that all comparisons see the same bits: XLA would
    otherwise compute the caller's values anew for each use, in kernels that round differently, and
    the k-th largest of one need not be that of the other. (An optimization barrier does not prevent
    that on CPU.)
    """
    dtype = pieces[0].dtype
    shapes = [piece.shape[1:] for piece in pieces]
    sizes = list(map(math.prod, shapes))
    total = sum(sizes)
    beyond = jnp.asarray(jnp.iinfo(dtype).max, dtype)

    def count_reaching(trials, keys):
        return count_true([keys >= _align(trial, keys) for trial in trials], wide=False)

    def search_threshold(search):
        def search_two_bits(carry):
            threshold, shift = carry
            searching = shift >= 0
            step = jnp.maximum(shift, 0).astype(dtype)

            def raise_threshold(i):
                return threshold + (jnp.asarray(i, dtype) << step)

            trials = [raise_threshold(i) for i in (1, 2, 3)]
            # Where the sum has wrapped, it is below the threshold.
            trials = [jnp.where(trial < threshold, beyond, trial) for trial in trials]
            counts = [count_reaching(trials, keys) for keys in search.keys]
            totals = [add(of_pieces) for of_pieces in zip(*counts, strict=True)]
            enough = [reaches(count, k).astype(dtype) for count in totals]
            reached = sum(enough, jnp.zeros_like(threshold))
            hits = [equals(count, k) for count in totals]
            exact = functools.reduce(jnp.logical_or, hits)
            higher = threshold + (reached << step)
            higher = jnp.where(searching, higher, threshold)
            next_shift = jnp.where(exact, EXACT, shift - 2)
            return higher, jnp.where(searching, next_shift, shift)

        def goes_on(carry):
            _, shift = carry
            return jnp.any(shift >= 0)

        start = (search.threshold, search.shift)
        threshold, shift = while_loop(goes_on, search_two_bits, start)

        def number_ties():
            # More entries share the k-th key of a lane than may be selected: the first of them are.
            # Their numbers fall along the pieces and rows.
            tied = shift == TIED

            def number(keys, piece):
                shape = shapes[piece]
                index = index_along(shape, range(len(shape)), dtype)
                number = sum(sizes[piece:]) - index
                level = _align(threshold, keys)
                is_equal = keys == level
                others = jnp.where(keys > level, beyond, 0)
                numbered = jnp.where(is_equal, number, others)
                return jnp.where(_align(tied, keys), numbered, keys)

            return _BitSearch(
                keys=[number(keys, piece) for piece, keys in enumerate(search.keys)],
                threshold=jnp.where(tied, 0, threshold),
                shift=jnp.where(tied, _highest_shift(total), shift),
            )

        def go_on():
            return _BitSearch(search.keys, threshold, shift)

        return cond(jnp.any(shift == TIED), number_ties, go_on)

    none = equals(k, to_digits(0, False))
    everything = equals(k, to_digits(total, False))
    highest = _highest_shift(int(jnp.iinfo(dtype).max))
    # None or all take no pass.
    shift = jnp.where(none | everything, EXACT, highest)
    least = jnp.zeros((), dtype)
    threshold = jnp.where(none, beyond, least)
    start = _BitSearch(pieces, threshold, shift)

    def goes_on(search):
        return jnp.any(search.shift >= 0)

    found = while_loop(goes_on, search_threshold, start)
    return [keys >= _align(found.threshold, keys) for keys in found.keys]


def _highest_shift(most: int) -> int:
    return (most.bit_length() - 1) // 2 * 2


def index_along(shape: Sequence[int], axes: range, dtype: jnp.dtype, one: Array | int = 1) -> Array:
    """The index of every entry of an array of that shape among those along some adjacent axes, in
    row-major order; ``one`` is 1, which may be hidden from XLA."""
    index = jnp.zeros(shape, dtype)
    for axis in axes:
        behind = shape[axis + 1 : axes.stop]
        stride = one * math.prod(behind)
        index += stride * lax.broadcasted_iota(dtype, shape, axis)
    return index


def _rank(keys: Array) -> Array:
    """How many keys precede each along the short last axis, the larger and, of equal ones, the
    lower index first."""
    index = lax.iota(jnp.int32, keys.shape[-1])
    rank = jnp.zeros(keys.shape, jnp.int32)
    for i in range(keys.shape[-1]):
        column = keys[:, i, None]
        precedes = jnp.where(i < index, column >= keys, column > keys)
        rank += precedes.astype(jnp.int32)
    return rank


def _align(values: Array, keys: Array) -> Array:
    """``values`` (lanes,) in a shape that broadcasts against ``keys`` (lanes, ...)."""
    ones = [1] * (keys.ndim - 1)
    return values.reshape(-1, *ones)


#: Masks of the k largest keys of all arrays together, whose leading axes are those of k: the lanes.
mark_largest = with_lanes(_find_masks)
