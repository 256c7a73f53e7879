"""The search for the k largest of many entries, of one array or of several, in few counting passes.

A sample gives thresholds about the k-th largest magnitude. A pass counts how many entries reach
each of them, and the next ones are interpolated between the nearest two: of the N entries between
these, about the square root of N are left after the pass. The search ends at a threshold that
exactly k entries reach, or at the k-th magnitude, where further entries equal it; then their
numbers are searched in the same way. No sample and no interpolation needs to be right: the quarters
of the interval are tried in every pass.

A pass takes counts from the data and nothing else, so arrays that are sharded over devices stay
where they are: of their entries the sample alone moves.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._loops import while_loop
from jaxht._programs import bounded_jit
from jaxht._typing import Array
from jaxht.linalg.counting_search import index_along, with_lanes
from jaxht.linalg.counts import (
    ROW,
    Count,
    add,
    axis_of_few,
    count_true,
    difference,
    equals,
    split_axes,
    to_digits,
    to_number,
)
from jaxht.linalg.magnitudes import end_of_magnitudes, magnitudes

__all__ = ["find_masks", "mark_largest_of_many", "mark_largest_of_vector"]

#: Where thresholds are about the expected place of the k-th, in standard deviations. One more is
#: just above the lower bound, where ties are. On CPUs eight counts take as long as three.
OFFSETS = (-6, -2, -0.7, 0, 0.7, 2, 6)
NUM_TRIALS = len(OFFSETS) + 1

#: A pass does as expected if it leaves at most one of so many entries between the bounds; and of so
#: few nothing is expected.
SHRINKAGE = 4
FEW_BETWEEN = 8

#: The sample has so many entries, or one of so many.
MIN_SAMPLE = 1024
MAX_STEP = 2048


class _ThresholdSearch(NamedTuple):
    """The state of a search.

    Attributes:
        arrays: the arrays. They are carried, though no pass changes them, so that the passes and
            the masks see the same bits: XLA would otherwise compute the caller's values anew for
            each use, in kernels that round differently, and the k-th largest of one need not be
            that of the other.
        low: (lanes,) a key, or number, that at least k entries reach.
        high: (lanes,) one that fewer than k reach.
        surplus: (lanes,) float32, how many more than k reach ``low``: 0 where the search has ended.
        deficit: (lanes,) float32, how many fewer than k reach ``high``.
        between: (lanes,) float32, how many entries were between the bounds before the last pass.
        digit: (lanes,) how often ties were numbered.
        level: (lanes,) the k-th largest key, where ties are numbered.
        row: (lanes,) the first digit of the number of the last entry that is selected, where the
            second is searched.
        trials: (NUM_TRIALS, lanes) the thresholds that are counted next.
    """

    arrays: list[Array]
    low: Array
    high: Array
    surplus: Array
    deficit: Array
    between: Array
    digit: Array
    level: Array
    row: Array
    trials: Array


class _Piece(NamedTuple):
    """The shape of an array without lanes, and how many leading axes make the first digit of an
    entry's number, the others the second."""

    shape: tuple[int, ...]
    split: int

    @classmethod
    def build(cls, shape: tuple[int, ...], wide: bool) -> "_Piece":
        """Raises ValueError where the entries cannot be counted."""
        if not wide:
            return cls(shape, len(shape))
        if shape:
            axis_of_few(shape)
        return cls(shape, split_axes(shape))

    @property
    def num_leading(self) -> int:
        """The number of values of the first digit."""
        return math.prod(self.shape[: self.split])

    @property
    def num_trailing(self) -> int:
        """The number of values of the second digit."""
        return math.prod(self.shape[self.split :])


@bounded_jit
def find_masks(arrays: list[Array], k: Count) -> list[Array]:
    """The masks of the k[lane] entries of largest magnitude of each lane (the first axis).

    Jitted, since loops outside of any jit are compiled anew in each call.
    """
    return _search(arrays, k, arrays)


@bounded_jit
def _find_in_rows(arrays: list[Array], k: Count) -> list[Array]:
    """The same for one array (lanes, d)."""
    (z,) = arrays
    lanes, d = z.shape
    # In rows a long vector is counted by several cores. The padding comes after every entry that
    # could be chosen.
    padding = -d % ROW
    rows = jnp.pad(z, [(0, 0), (0, padding)])
    rows = rows.reshape(lanes, -1, ROW)
    (mask,) = _search([rows], k, arrays)
    mask = mask.reshape(lanes, -1)
    return [mask[:, :d]]


def _search(arrays: list[Array], k: Count, sampled: list[Array]) -> list[Array]:
    """The masks; the first thresholds are those of a sample of other arrays with these entries."""
    lanes = len(k[0])
    dtypes = [z.dtype for z in arrays]
    common = jnp.result_type(*dtypes)
    wide = len(k) > 1
    pieces = [_Piece.build(z.shape[1:], wide) for z in arrays]
    total = sum(math.prod(piece.shape) for piece in pieces)
    leading = [piece.num_leading for piece in pieces]
    trailing = max(piece.num_trailing for piece in pieces)

    def compute_keys(z):
        return magnitudes(z.astype(common))

    dtype = jax.eval_shape(compute_keys, arrays[0]).dtype
    end = jnp.asarray(end_of_magnitudes(common), dtype)
    beyond = jnp.asarray(jnp.iinfo(dtype).max, dtype)

    def number_ties(search, i, one=1):
        """The keys of a piece, or in lanes with ties numbers: of the entries that equal the k-th
        largest key, falling along the pieces and rows."""
        shape, split = pieces[i]
        keys = compute_keys(search.arrays[i])
        level = align(search.level, keys)
        first = one * sum(leading[i:])
        number = first - index_along(shape, range(split), dtype, one)
        if wide:
            row = align(search.row, keys)
            last_axes = range(split, len(shape))
            second = one * trailing - index_along(shape, last_axes, dtype, one)
            second = number_equal(number, row, second)
            number = jnp.where(align(search.digit, keys) == 2, second, number)
        numbered = number_equal(keys, level, number)
        return jnp.where(align(search.digit, keys) > 0, numbered, keys)

    def number_equal(keys, level, numbers):
        """Numbers in place of the keys at a level; of the others, none or all are selected."""
        is_equal = keys == level
        others = jnp.where(keys > level, beyond, 0)
        return jnp.where(is_equal, numbers, others)

    def align(values, keys):
        """``values`` (lanes,) in a shape that broadcasts against ``keys``."""
        leading_axes = [-1] if lanes > 1 else []
        other_axes = [1] * (keys.ndim - len(leading_axes))
        return values.reshape(leading_axes + other_axes)

    def turn(search):
        # XLA would compute the keys and the numbers once, in memory.
        one = jnp.ones((), dtype)
        search, one = lax.optimization_barrier((search, one))
        counts = []
        for i, piece in enumerate(pieces):
            keys = number_ties(search, i, one)
            reached = [keys >= align(trial, keys) for trial in search.trials]
            shape = (lanes, *piece.shape)
            of_lanes = [mark.reshape(shape) for mark in reached]
            counts.append(count_true(of_lanes, wide))
        of_trials = zip(*counts, strict=True)
        totals = list(map(add, of_trials))
        return number_where_tied(narrow(search, totals))

    def narrow(search, totals):
        """The interval between the nearest two trials."""
        trials = search.trials
        rest = jnp.stack([difference(count, k) for count in totals])
        higher = (rest >= 0) & (trials > search.low)
        lower = (rest < 0) & (trials < search.high)
        low = jnp.where(higher, trials, search.low)
        low = jnp.max(low, axis=0)
        high = jnp.where(lower, trials, search.high)
        high = jnp.min(high, axis=0)
        surplus = jnp.where(higher, rest, search.surplus)
        surplus = jnp.min(surplus, axis=0)
        deficit = jnp.where(lower, -rest, search.deficit)
        deficit = jnp.min(deficit, axis=0)
        between = search.surplus + search.deficit
        return search._replace(
            low=low,
            high=high,
            surplus=surplus,
            deficit=deficit,
            between=between,
        )

    def number_where_tied(search):
        """Where more entries share the k-th key of a lane than may be selected, the first of them
        are: their numbers are searched next."""
        low, high, digit = search.low, search.high, search.digit
        tied = (search.surplus > 0) & (high - low == 1)
        most = jnp.where(digit == 0, sum(leading), trailing)
        most = most.astype(dtype)
        low_number = jnp.where(tied, 1, low)
        high_number = jnp.where(tied, most + 1, high)
        next_digit = jnp.where(tied, digit + 1, digit)
        is_first = tied & (digit == 0)
        level = jnp.where(is_first, low, search.level)
        is_second = tied & (digit == 1)
        row = jnp.where(is_second, low, search.row)
        search = search._replace(
            low=low_number,
            high=high_number,
            digit=next_digit,
            level=level,
            row=row,
        )
        return search._replace(trials=_interpolate(search))

    zero = to_digits(0, wide)
    none = equals(k, zero)
    # Of one lane as they came: then the caller's result can take their place in memory.
    carried = [z[0] for z in arrays] if lanes == 1 else arrays
    least = jnp.zeros((), dtype)
    low = jnp.where(none, end, least)
    high = jnp.full(none.shape, end)
    num_left_out = difference(to_digits(total, wide), k)
    surplus = jnp.where(none, 0.0, num_left_out)
    start = _ThresholdSearch(
        arrays=carried,
        low=low,
        high=high,
        surplus=surplus,
        deficit=-difference(zero, k),
        between=jnp.zeros(none.shape, jnp.float32),
        digit=jnp.zeros(none.shape, jnp.int32),
        level=jnp.zeros(none.shape, dtype),
        row=jnp.zeros(none.shape, dtype),
        trials=jnp.zeros((NUM_TRIALS, *none.shape), dtype),
    )
    sample = _draw_sample(sampled, total, compute_keys)
    share = to_number(k) / float(total)
    trials = _add_lowest(_bracket(sample, share), start)
    start = start._replace(trials=trials)

    def goes_on(search):
        return jnp.any(search.surplus > 0)

    found = while_loop(goes_on, turn, start)
    keys = [number_ties(found, i) for i in range(len(pieces))]
    masks = [of_piece >= align(found.low, of_piece) for of_piece in keys]
    shapes = [(lanes, *piece.shape) for piece in pieces]
    return [mask.reshape(shape) for mask, shape in zip(masks, shapes, strict=True)]


#: Masks of the k entries of largest magnitude of all arrays together, whose leading axes are those
#: of k: the lanes.
mark_largest_of_many = with_lanes(find_masks)

#: The same of one array, along its last axis.
mark_largest_of_vector = with_lanes(_find_in_rows)


def _draw_sample(arrays: list[Array], total: int, compute_keys: Callable[[Array], Array]) -> Array:
    """Rising keys (lanes, m) of some entries, which lie on a lattice: a slice of a sharded array is
    one of each shard."""
    step = max(1, min(total // MIN_SAMPLE, MAX_STEP))
    bits = step.bit_length() - 1
    keys = []
    # Arrays of fewer entries are left out, if others are there.
    large = [z for z in arrays if z.size >= step * len(z)]
    for z in large or arrays:
        strides = [1] * z.ndim
        sizes = [1, *z.shape[1:]]
        for _ in range(bits):
            longest = max(range(z.ndim), key=sizes.__getitem__)
            strides[longest] *= 2
            sizes[longest] = -(-z.shape[longest] // strides[longest])
        first = [0] * z.ndim
        chosen = lax.slice(z, first, z.shape, strides)
        of_array = compute_keys(chosen)
        keys.append(of_array.reshape(len(z), -1))
    sample = jnp.concatenate(keys, axis=1)
    return jnp.sort(sample, axis=1)


def _bracket(sample: Array, share: Array) -> Array:
    """Keys (7, lanes) of the sample about the one with that share of the entries above
    it."""
    size = sample.shape[1]
    offsets = jnp.asarray(OFFSETS, jnp.float32)[:, None]
    deviation = jnp.sqrt(size * share * (1 - share))
    deviation = jnp.maximum(deviation, 1)
    places = size * (1 - share) - 0.5 + offsets * deviation
    places = jnp.clip(jnp.round(places), 0, size - 1)
    places = places.astype(jnp.int32)
    keys = jnp.take_along_axis(sample, places.T, axis=1).T
    # The upper ones just above those of the sample: if many entries are equal, the interval has no
    # others.
    is_upper = offsets > 0
    return keys + is_upper.astype(keys.dtype)


def _interpolate(search: _ThresholdSearch) -> Array:
    """The thresholds to count next: about the place where k entries would be reached if those
    between the bounds were spread evenly; where the last pass was not as expected of such, six that
    divide the interval, and its end."""
    span = search.high - search.low
    between = jnp.maximum(search.surplus + search.deficit, 1)
    place = search.surplus / between
    offsets = jnp.asarray(OFFSETS, jnp.float32)[:, None]
    deviation = jnp.sqrt(place * (1 - place) / between)
    places = place + offsets * deviation
    near = jnp.clip(places, 0, 1) * span.astype(jnp.float32)
    near = jnp.round(near).astype(span.dtype)
    number = lax.broadcasted_iota(span.dtype, near.shape, 0) + 1
    # The last one is cut to the end.
    is_inner = number < len(OFFSETS)
    part = span // len(OFFSETS)
    spread = jnp.where(is_inner, part * number, span)
    has_shrunk = SHRINKAGE * between <= search.between
    as_expected = has_shrunk & (between > FEW_BETWEEN)
    steps = jnp.where(as_expected, near, spread)
    is_short = span <= NUM_TRIALS + 1
    steps = jnp.where(is_short, number + 1, steps)
    return _add_lowest(search.low + steps, search)


def _add_lowest(trials: Array, search: _ThresholdSearch) -> Array:
    """The thresholds, cut to the interval, and the lowest in it."""
    lowest = search.low + 1
    highest = search.high - 1
    trials = jnp.clip(trials, lowest, highest)
    return jnp.concatenate([trials, lowest[None]])
