"""Counts of the entries of arrays, which an int32 may not hold: integers of one digit, or of two to
the base 256."""

import functools
import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._typing import Array, Numeric

__all__ = [
    "BASE",
    "LONG",
    "MOST",
    "ROW",
    "Count",
    "add",
    "axis_of_few",
    "clip_count",
    "count_true",
    "difference",
    "equals",
    "is_wide",
    "reaches",
    "split_axes",
    "to_digits",
    "to_number",
]

#: A count of every lane (lanes,), int32: one digit, or two to the base BASE, the higher first.
Count = tuple[Array, ...]

# In rows of ROW an array of at least LONG entries is counted by several cores.
LONG = 2**16
ROW = 1024
MOST = 2**31 - 1 - ROW  # an int32 holds as many, and the padding to rows
BASE = 256


def is_wide(total: int) -> bool:
    """Whether counts of up to so many entries have two digits."""
    return total > MOST


def to_digits(k: int, wide: bool) -> Count:
    """A Python int, as one digit, or as two."""
    digits = divmod(k, BASE) if wide else (k,)
    return tuple(jnp.asarray(digit, jnp.int32) for digit in digits)


def to_number(count: Count) -> Array:
    """The number itself: int32; of two digits float32, rounded."""
    if len(count) == 1:
        return count[0]
    high, low = (digit.astype(jnp.float32) for digit in count)
    return high * BASE + low


def clip_count(k: Numeric, total: int) -> Count:
    """k, integers or floating-point numbers of integer values, clipped to [0, total]."""
    if isinstance(k, int | np.integer):
        return to_digits(min(max(int(k), 0), total), is_wide(total))
    if not is_wide(total):
        k = jnp.asarray(k)
        is_narrow = k.dtype.itemsize < 4  # which total may exceed
        k = k.astype(jnp.int32) if is_narrow else jnp.clip(k, 0, total)
        return (jnp.clip(k.astype(jnp.int32), 0, total),)
    high, low = divmod(jnp.maximum(jnp.asarray(k), 0), BASE)
    count = high.astype(jnp.int32), low.astype(jnp.int32)
    most = to_digits(total, True)
    return tuple(map(functools.partial(jnp.where, reaches(count, most)), most, count))


def count_true(marks: Sequence[Array], wide: bool) -> list[Count]:
    """How many entries of each lane are True, for several boolean arrays (lanes, ...); wide: in two
    digits.

    One reduction of several operands reads what they are made of once; on CPU it is vectorised,
    which the sum of one is not, and takes a fifth of its time. In two stages, rows first, a long
    one runs on several cores.
    """
    counts = [mark.astype(jnp.int32) for mark in marks]
    shape = counts[0].shape
    ndim = len(shape)
    if wide:
        if ndim > 1:
            kept = axis_of_few(shape[1:]) + 1
            counts = _sum(counts, [axis for axis in range(1, ndim) if axis != kept])
        else:
            counts = [count[:, None] for count in counts]
        digits = _sum([digit for count in counts for digit in divmod(count, BASE)], [1])
        return [add([pair]) for pair in zip(digits[::2], digits[1::2], strict=True)]
    in_rows = math.prod(shape[1:]) >= LONG and math.prod(shape[2:]) >= ROW // 16
    for axes in [range(2, ndim), [1]] if in_rows else [range(1, ndim)]:
        counts = _sum(counts, axes)
    return [(count,) for count in counts]


def add(counts: Sequence[Count]) -> Count:
    """The sum of counts."""
    digits = [functools.reduce(jnp.add, of_counts) for of_counts in zip(*counts, strict=True)]
    if len(digits) == 1:
        return tuple(digits)
    high, low = digits
    return high + low // BASE, low % BASE


def reaches(count: Count, k: Count) -> Array:
    """Whether count >= k."""
    if len(k) == 1:
        return count[0] >= k[0]
    return (count[0] > k[0]) | ((count[0] == k[0]) & (count[1] >= k[1]))


def equals(count: Count, k: Count) -> Array:
    """Whether count == k."""
    return functools.reduce(jnp.logical_and, [a == b for a, b in zip(count, k, strict=True)])


def difference(count: Count, k: Count) -> Array:
    """count - k in float32: rounded, but of the right sign, and 0 only where they are equal."""
    if len(k) == 1:
        return (count[0] - k[0]).astype(jnp.float32)
    high, low = (a - b for a, b in zip(count, k, strict=True))
    return high.astype(jnp.float32) * BASE + low.astype(jnp.float32)


def split_axes(shape: Sequence[int]) -> int:
    """The number of leading axes that leaves as many entries along the others as a number of one
    digit counts."""
    return min(split for split in range(len(shape) + 1) if math.prod(shape[split:]) <= MOST)


def axis_of_few(shape: Sequence[int]) -> int:
    """The first axis along which two sums of two digits each hold every count: adjacent entries are
    counted first. ValueError where there is none."""
    fits = [length < MOST // BASE and math.prod(shape) // length <= MOST for length in shape]
    if not any(fits):
        raise ValueError(
            f"an array of more than {MOST} entries needs an axis shorter than {MOST // BASE}, whose other axes have "
            f"at most {MOST} entries in all; got shape {tuple(shape)}"
        )
    return fits.index(True)


def _sum(counts: list[Array], axes: Sequence[int]) -> list[Array]:
    zeros = [jnp.zeros((), jnp.int32)] * len(counts)
    return lax.reduce(counts, zeros, lambda x, y: list(map(jnp.add, x, y)), tuple(axes))
