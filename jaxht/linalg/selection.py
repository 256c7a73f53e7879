"""Exact selection of the k entries of largest magnitude, with one rule for ties.

Ties go to the lowest index, -0.0 equals 0.0, and NaN (of any sign and payload) ranks above infinity, on every path
and every device. ``k`` may be traced: selection is a search for the k-th largest magnitude, not a sort of length k.

IEEE magnitudes order like their bit patterns read as integers, so the k-th largest is found exactly by searching its
bits, two in each counting pass over the data, and fewer wherever a threshold already separates exactly k entries,
which is the usual case. Working on integers also keeps subnormals apart on hardware that flushes them to 0. A pass
takes counts from the data and nothing else, so arrays that are sharded over devices stay where they are.
"""

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from chex import Array, ArrayDType, Numeric
from jax import lax
from jax.custom_batching import custom_vmap


def k_largest_mask(z: Array, k: Numeric) -> Array:
    """Mark the k entries of largest magnitude along the last axis.

    ``mask[..., i]`` is True iff fewer than k entries precede i when ordered by falling ``|z|``, then by rising index.

    Args:
        z: floating (float16, bfloat16, float32, float64) or signed integer array of shape (..., d), d >= 1.
        k: integer, Python or traced, broadcastable to the leading shape of ``z``; clipped to [0, d].

    Returns:
        Boolean array shaped like ``z`` with exactly ``min(max(k, 0), d)`` True entries along the last axis.

    Raises:
        ValueError: for a complex, boolean or unsigned dtype.

    Cost: at most 16 counting passes in float32 (8 in half precision, 32 in float64), typically 12 to 14; up to
    ``log2(d) / 2`` more only where the k-th and the (k+1)-th magnitudes are equal; one pass for d <= 16. Independent
    of k; no sort, no scatter.

    Source: supp(z, k) of Shen & Li 2018 §1.2, "ties are broken lexicographically".

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import selection
        >>> selection.k_largest_mask(jnp.array([1.0, -3.0, 2.0, 3.0]), 2).tolist()
        [False, True, False, True]
    """
    *lanes, d = z.shape
    keys = _compute_keys(z)
    k = jnp.broadcast_to(jnp.clip(jnp.asarray(k, jnp.int32), 0, d), lanes)
    if d < _LONG:
        return _select((keys,), k)[0]
    # In rows a long vector is counted by several cores. The padding comes after every entry that could be chosen.
    rows = jnp.pad(keys, [(0, 0)] * len(lanes) + [(0, -d % _ROW)]).reshape(*lanes, -1, _ROW)
    return _select((rows,), k)[0].reshape(*lanes, -1)[..., :d]


def k_largest_masks(arrays: Sequence[Array], k: Numeric) -> list[Array]:
    """Mark the k entries of largest magnitude among all entries of several arrays.

    :func:`k_largest_mask` of the concatenation of the flattened arrays; but nothing is flattened, joined or moved:
    arrays that are sharded over devices stay so, and the devices exchange counts, of rows at most, not entries.

    Args:
        arrays: floating arrays of any shapes with fewer than 2^31 entries in all. Their dtypes may differ: they are
            compared in the one that holds all, which is exact.
        k: integer scalar, Python or traced; clipped to [0, number of entries].

    Returns:
        Boolean masks shaped like the arrays, with ``min(max(k, 0), number of entries)`` True entries in all.

    Raises:
        ValueError: for 2^31 entries or more, or a dtype that :func:`k_largest_mask` refuses.

    Cost: that of :func:`k_largest_mask`.

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
    total = sum(z.size for z in filled)
    masks = iter(_select(keys, jnp.clip(jnp.asarray(k, jnp.int32), 0, min(total, 2**31 - 1))))
    return [next(masks) if z.size else jnp.zeros(z.shape, bool) for z in arrays]


def count_nonzero(z: Array) -> Array:
    """Count the entries of a real array that are not zero, NaN among them.

    Args:
        z: real array of any shape, with fewer than 2^31 entries.

    Returns:
        int32 scalar.

    Cost: one pass.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import selection
        >>> int(selection.count_nonzero(jnp.array([0.0, -0.0, jnp.nan, 2.0])))
        2
    """
    return jnp.sum(_count_true([z[None] > 0, ~(z[None] >= 0)]), dtype=jnp.int32)


@custom_vmap
def _select(pieces: tuple[Array, ...], k: Array) -> tuple[Array, ...]:
    """Masks of the k largest keys of all ``pieces`` together, whose leading axes are those of k: the lanes.

    Its batching rule turns vmapped axes into leading axes of the one flat search below: a while loop batched lane by
    lane carries a predicate and selects in every pass, which doubles the time. (Within, no ``jnp.arange``: before JAX
    0.8 it is a constant of the traced function, and the rule is refused where a branch on lanes has batched it.)
    """
    lanes = math.prod(k.shape)
    if not lanes:
        return tuple(jnp.zeros(piece.shape, bool) for piece in pieces)
    masks = _find_masks([piece.reshape(lanes, *piece.shape[k.ndim :]) for piece in pieces], k.reshape(lanes))
    return tuple(mask.reshape(piece.shape) for mask, piece in zip(masks, pieces, strict=True))


@_select.def_vmap
def _select_vmapped(
    axis_size: int, in_batched: list, pieces: tuple[Array, ...], k: Array
) -> tuple[tuple[Array, ...], tuple[bool, ...]]:
    def move_lanes_first(arg: Array, batched: bool) -> Array:
        return arg if batched else jnp.broadcast_to(arg, (axis_size, *arg.shape))

    pieces_batched, k_batched = in_batched
    pieces = tuple(map(move_lanes_first, pieces, pieces_batched))
    return _select(pieces, move_lanes_first(k, k_batched)), (True,) * len(pieces)


@jax.jit
def _find_masks(pieces: list[Array], k: Array) -> list[Array]:
    """For each lane (the first axis) the masks of its k[lane] largest keys, which are not negative.

    The masks are computed behind a branch that XLA cannot decide beforehand, so that all comparisons see the same bits:
    it would otherwise compute the caller's values anew for each use, in kernels that round differently, and the k-th
    largest of one need not be that of the other. (An optimization barrier does not prevent that on CPU.)

    Jitted, since loops and branches outside of any jit are compiled anew in each call, and so that a program that
    selects in many places traces this once for each shape.
    """
    sizes = [math.prod(piece.shape[1:]) for piece in pieces]
    total = sum(sizes)
    if total >= 2**31 - 1:
        raise ValueError(f"one selection is from fewer than 2^31 entries; got {total}")
    if len(pieces) == 1 and pieces[0].ndim == 2 and total <= _SHORT:
        keys = pieces[0]
        return [lax.cond(keys[0, 0] >= 0, lambda: _rank(keys) < k[:, None], lambda: jnp.zeros(keys.shape, bool))]
    dtype = pieces[0].dtype
    everything = k == total
    search_k = jnp.where(everything, 0, k)  # which takes no pass
    largest = int(jnp.iinfo(dtype).max)
    threshold, above, exact = _find_kth_largest(pieces, lambda keys, _: keys, largest, search_k, dtype)
    threshold = jnp.where(everything, 0, threshold)

    def break_ties() -> list[Array]:
        # More entries share the k-th key of a lane than may be selected. The first of them are, by a second search
        # among numbers that fall along the pieces and rows.
        def number_ties(keys: Array, piece: int) -> Array:
            shape = keys.shape[1:]
            index = jnp.full(shape, sum(sizes[:piece]), jnp.int32)
            for axis in range(len(shape)):
                index += math.prod(shape[axis + 1 :]) * lax.broadcasted_iota(jnp.int32, shape, axis)
            return jnp.where(keys == _align(threshold, keys), total - index, 0)

        last, _, _ = _find_kth_largest(pieces, number_ties, total, jnp.where(exact, 0, k - above), jnp.int32)
        lowest = threshold + (~exact).astype(threshold.dtype)
        return [
            (keys >= _align(lowest, keys)) | (number_ties(keys, piece) >= _align(last, keys))
            for piece, keys in enumerate(pieces)
        ]

    return lax.cond(jnp.all(exact), lambda: [keys >= _align(threshold, keys) for keys in pieces], break_ties)


def _rank(keys: Array) -> Array:
    """How many keys precede each along the short last axis, the larger and, of equal ones, the lower index first."""
    index = lax.iota(jnp.int32, keys.shape[-1])
    columns = [keys[:, i, None] for i in range(keys.shape[-1])]
    before = [jnp.where(i < index, column >= keys, column > keys) for i, column in enumerate(columns)]
    return sum((precedes.astype(jnp.int32) for precedes in before), jnp.zeros(keys.shape, jnp.int32))


def _find_kth_largest(
    pieces: list[Array], view: Callable[[Array, int], Array], most: int, k: Array, dtype: ArrayDType
) -> tuple[Array, Array, Array]:
    """For each lane a threshold, how many keys are above it, and whether it is exact: reached by exactly k keys.

    A threshold that is not exact is the k-th largest key itself. The keys are ``view(piece, its number)`` of
    ``dtype``, from 0 to ``most``; the view is taken anew in each pass, which costs less than to write it down.
    """
    beyond = jnp.asarray(jnp.iinfo(dtype).max, dtype)

    # Invariant: at least k keys reach the threshold, or none are asked for and none do.
    def search_two_bits(carry):
        shift, threshold, above, exact = carry
        trials = threshold[:, None] + (lax.iota(dtype, 3) + 1 << shift.astype(dtype))
        trials = jnp.where(trials < threshold[:, None], beyond, trials)  # the sum has wrapped
        keys = [view(piece, i) for i, piece in enumerate(pieces)]
        counts = sum(_count_true([each >= _align(trial, each) for trial in trials.T]) for each in keys)
        enough = counts >= k[:, None]
        higher = threshold + (jnp.sum(enough, axis=1, dtype=dtype) << shift.astype(dtype))
        above = jnp.maximum(above, jnp.max(jnp.where(enough, 0, counts), axis=1))
        return shift - 2, jnp.where(exact, threshold, higher), above, exact | jnp.any(counts == k[:, None], axis=1)

    none = jnp.zeros(k.shape, jnp.int32)
    _, threshold, above, exact = lax.while_loop(
        lambda carry: (carry[0] >= 0) & ~jnp.all(carry[3]),
        search_two_bits,
        (
            jnp.asarray((most.bit_length() - 1) // 2 * 2, jnp.int32),
            jnp.where(k == 0, beyond, jnp.zeros((), dtype)),
            none,
            k == 0,
        ),
    )
    return threshold, above, exact


def _count_true(marks: Sequence[Array]) -> Array:
    """How many entries of each lane are True, for several boolean arrays (lanes, ...): int32 (lanes, arrays), exactly.

    One reduction of several operands reads what they are made of once; on CPU it is vectorised, which the sum of one
    is not, and takes a fifth of its time. In two stages, rows first, a long one runs on several cores.
    """
    counts = [mark.astype(jnp.int32) for mark in marks]
    ndim, shape = counts[0].ndim, counts[0].shape
    in_rows = math.prod(shape[1:]) >= _LONG and math.prod(shape[2:]) >= _ROW // 16
    stages = [range(2, ndim), [1]] if in_rows else [range(1, ndim)]
    for axes in stages:
        zeros = [jnp.zeros((), jnp.int32)] * len(counts)
        counts = lax.reduce(counts, zeros, lambda x, y: [a + b for a, b in zip(x, y, strict=True)], tuple(axes))
    return jnp.stack(counts, axis=1)


def _align(values: Array, keys: Array) -> Array:
    """``values`` (lanes,) in a shape that broadcasts against ``keys`` (lanes, ...)."""
    return values.reshape(-1, *[1] * (keys.ndim - 1))


def mask_to_indices(mask: Array, k_max: int) -> Array:
    """List the positions of the True entries along the last axis in rising order.

    Args:
        mask: boolean array of shape (..., d).
        k_max: static length of the list.

    Returns:
        int32 array of shape (..., k_max): the first k_max True positions; slots beyond their number hold d, which is
        out of range: JAX's ``mode="drop"`` scatters and ``mode="fill"`` gathers skip it.

    Cost: one running count of the mask and k_max binary searches.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import selection
        >>> selection.mask_to_indices(jnp.array([False, True, False, True]), 3).tolist()
        [1, 3, 4]
    """
    search = jnp.vectorize(jnp.searchsorted, signature="(d),(k)->(k)")
    return search(_count_running(mask), jnp.arange(1, k_max + 1, dtype=jnp.int32)).astype(jnp.int32)


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


def _compute_keys(z: Array) -> Array:
    """Integers that order as |z| does, with every NaN equal and above infinity."""
    z = lax.stop_gradient(z)
    if not jnp.issubdtype(z.dtype, jnp.floating):
        if jnp.issubdtype(z.dtype, jnp.signedinteger):
            # |most negative| does not fit the signed type; read as unsigned it is right.
            return lax.bitcast_convert_type(jnp.abs(z), f"uint{8 * z.dtype.itemsize}")
        raise ValueError(f"z must be real floating or signed integer; got dtype {z.dtype}")
    # Without the sign bit there is none to search, and none to be had in a signed integer.
    signed = jnp.dtype(f"int{8 * z.dtype.itemsize}")
    bits = lax.bitcast_convert_type(z, signed) & jnp.asarray(jnp.iinfo(signed).max, signed)
    infinity = lax.bitcast_convert_type(jnp.asarray(jnp.inf, z.dtype), signed)
    return jnp.minimum(bits, infinity + 1)


def _count_running(selected: Array) -> Array:
    """Number of True entries up to and including each position of the last axis, as int32.

    In blocks, as products with a triangle of ones: an order of magnitude faster than a cumulative sum on CPU.
    """
    d = selected.shape[-1]
    padding = [(0, 0)] * (selected.ndim - 1) + [(0, -d % _BLOCK)]
    blocks = jnp.pad(selected, padding).reshape(*selected.shape[:-1], -1, _BLOCK)
    within = (blocks.astype(jnp.float32) @ jnp.triu(jnp.ones((_BLOCK, _BLOCK), jnp.float32))).astype(jnp.int32)
    total = within[..., -1]
    before = jnp.cumsum(total, axis=-1) - total
    return (within + before[..., None]).reshape(*selected.shape[:-1], -1)[..., :d]


_BLOCK = 32
_SHORT, _LONG, _ROW = 16, 2**16, 1024
