"""A design of genotypes at two bits a call, which stays packed: products decode it block by
block."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_array
from jaxht._dataclass import mixed, pytree, static
from jaxht._loops import cond_of_lanes, fori_loop
from jaxht._repr import describe
from jaxht._typing import Array, ArrayDType
from jaxht.designs import blockwise
from jaxht.designs.blockwise import Entrywise
from jaxht.designs.integers import Integers
from jaxht.linalg.full_precision import matmul

CALLS = 16  # in a word of 32 bits
LOW = np.int32(0x55555555)  # the lower bit of each call
# A word that holds the calls of 16 samples: masks, and what brings the masked calls back to 0 ...
# 3. The last would reach the sign, and is shifted.
MASKS = [np.int32(3 << 2 * p) for p in range(CALLS - 1)]
WEIGHTS = [4.0**-p for p in range(CALLS - 1)] + [1.0]
# A block that is decoded has at most so many markers, fewer where it may be left out, and so many
# words unless it has 8 markers.
MAX_MARKERS_IN_BLOCK = 512
MAX_MARKERS_IN_SKIPPED_BLOCK = 64
MAX_WORDS_IN_BLOCK = 2**16
# Up to so many columns a product decodes in registers.
MAX_COLUMNS_IN_REGISTERS = 8

# Of a byte, how many of its four calls are one copy, two, and missing.
TABLES = [
    sum((np.arange(256) >> 2 * p & 3) == code for p in range(4)).astype(np.uint8)
    for code in (2, 0, 1)
]

# No code of a call.
UNKNOWN = 255

# Markers are read from a file in blocks of at most so many bytes.
MAX_BYTES_READ = 2**24
ALIGNMENT = 64  # bytes, of arrays of NumPy that JAX takes on a CPU as they are, without a copy


@pytree
class Genotypes(blockwise.Coded):
    r"""Counts of an allele (0, 1 or 2; n samples, d markers) at two bits a call, as in a .bed file
    of PLINK.

    .. math::
        a_{ij} = \frac{g_{ij}}{scale_j}, \qquad g_{ij} \in \{0, 1, 2\} \text{ the copies of allele } A_1,
        \text{ or } fill_j \text{ where the call is missing}

    The four codes are 00: two copies of A1, 10: one, 11: none, 01: missing. The matrix is never
    held in float: a product reads the packed words, decodes a block of markers and multiplies; ``A
    x`` leaves out the blocks of markers whose coefficients are all 0. Made by :meth:`build` from
    calls, by :meth:`from_bed` from bytes, and by :func:`jaxht.designs.read_bed` from a file;
    :func:`jaxht.standardize` keeps it packed.

    Args:
        words: (d, ceil(n / 16)) int32, a marker in each row, sample 16 w + p in bits 2 p and 2 p +
            1 of word w; 11 behind the last sample.
        counts: (3, d) int32, how many samples have one copy, two, and a missing call.
        fill: (d,) what missing calls count as: the means of the others.
        scale: (d,) what columns are divided by; ones.
        num_samples: n, static.

    Cost: n d / 4 bytes, and memory for one decoded block. A product takes n d, or n d c for c
    columns. Compared with a product of floats that are already decoded and in the cache, it takes
    twice the time for one column, and two thirds of the time for three.

    Source: the format of .bed files of PLINK 1.9, Chang et al. 2015.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> from jaxht.designs import Genotypes
        >>> A = Genotypes.build(np.array([[0, 2], [1, -1], [2, 2]], np.int8))  # -1: missing
        >>> A.matvec(jnp.array([1.0, 10.0])).tolist(), A.rmatvec(jnp.ones(3)).tolist()
        ([20.0, 21.0, 22.0], [3.0, 6.0])
    """

    words: Array = mixed()
    counts: Array = mixed()
    fill: Array
    scale: Array
    num_samples: int = static()

    @classmethod
    def build(cls, calls: Any, dtype: ArrayDType = float, *, missing: int = -1) -> "Genotypes":
        """Pack calls, on the host.

        Args:
            calls: (n, d) integers: 0, 1 or 2 copies of the allele that is counted, or ``missing``.
            dtype: float32 or float64, of products.
            missing: the code of a missing call, an int.

        Raises:
            ValueError: if calls are no such matrix, with the place of the first other code.

        Cost: n d.
        """
        check_array("calls", calls, "an array of shape (n, d) of integers")
        calls = np.asarray(calls)
        if calls.ndim != 2 or calls.dtype.kind not in "iu":
            raise ValueError(f"calls must be integers of shape (n, d); got {describe(calls)}")
        is_integer = isinstance(missing, int | np.integer) and not isinstance(missing, bool)
        if not is_integer or missing in (0, 1, 2):
            raise ValueError(f"missing must be an int other than 0, 1 and 2; got {missing!r}")
        missing = int(missing)

        def pack(first: int, last: int) -> np.ndarray:
            block = calls[:, first:last]
            part = np.full(block.T.shape, UNKNOWN, np.uint8)
            for call, code in [(0, 3), (1, 2), (2, 0), (missing, 1)]:
                part[block.T == call] = code
            unknown = np.argwhere(part == UNKNOWN)
            if unknown.size:
                marker, sample = unknown[0]
                raise ValueError(
                    f"calls must be 0, 1, 2 or {missing} where missing; got "
                    f"{block[sample, marker]} at sample {sample}, marker {first + marker}"
                )
            padding = -len(calls) % 4
            part = np.pad(part, ((0, 0), (0, padding)), constant_values=3)
            part = part.reshape(last - first, -1, 4)
            shifts = 2 * np.arange(4, dtype=np.uint8)
            return np.bitwise_or.reduce(part << shifts, axis=-1)

        return cls.pack(pack, calls.shape, dtype)

    @classmethod
    def from_bed(cls, data: Any, num_samples: int, dtype: ArrayDType = float) -> "Genotypes":
        """Take the bytes of a .bed file, without its header.

        Args:
            data: (d, ceil(n / 4)) uint8, of NumPy: the calls of a marker in each row, four a byte,
                the first in the lowest bits. What is behind the last sample counts for nothing.
            num_samples: n.
            dtype: float32 or float64, of products.

        Raises:
            ValueError: if data has another shape or dtype.

        Cost: a pass over the bytes, and a copy of them.
        """
        data = np.asarray(data)
        width = -(-num_samples // 4)
        if data.ndim != 2 or data.dtype != np.uint8 or data.shape[1] != width:
            raise ValueError(
                f"data must be uint8 of shape (d, {width}) for {num_samples} samples; got {data.dtype} {data.shape}"
            )
        shape = (num_samples, len(data))
        return cls.pack(lambda first, last: data[first:last], shape, dtype)

    @classmethod
    def pack(
        cls,
        read: Callable[[int, int], np.ndarray],
        shape: tuple[int, int],
        dtype: ArrayDType = float,
    ) -> "Genotypes":
        """Pack the bytes that ``read(first, last)`` returns of some markers; it is called for one
        block of markers after the other."""
        n, d = shape
        if n < 1 or d < 1:
            raise ValueError(f"calls must have shape (n, d) with n, d >= 1; got {shape}")
        width = 4 * -(-n // CALLS)
        used = -(-n // 4)
        counts = np.empty((3, d), np.int32)
        block = max(1, MAX_BYTES_READ // width)
        size = d * width
        room = np.empty(size + ALIGNMENT, np.uint8)
        start = -room.ctypes.data % ALIGNMENT
        data = room[start:][:size].reshape(d, width)
        data[:, used:] = 255
        for first in range(0, d, block):
            last = min(d, first + block)
            part = data[first:last, :used]
            part[:] = read(first, last)
            num_in_last = n % 4
            if num_in_last:
                part[:, -1] |= 255 << 2 * num_in_last & 255
            for count, table in zip(counts, TABLES, strict=True):
                numbers = table[part]
                count[first:last] = np.sum(numbers, axis=1, dtype=np.int32)
        one, two, missing = counts
        ones = jnp.ones(d, jnp.result_type(dtype))
        called = np.maximum(n - missing, 1)
        fill = (one + 2 * two) / called
        fill = fill.astype(ones.dtype)
        words = data.view("<i4").astype(np.int32, copy=False)
        words = jax.device_put(words)
        return cls(
            words=words,
            counts=jnp.asarray(counts),
            fill=jnp.asarray(fill),
            scale=ones,
            num_samples=n,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.num_samples, self.words.shape[0]

    def columns(self, indices: Array) -> Array:
        """``A_F^T``: the columns at ``indices`` (k_max,) as rows (k_max, n); 0 where an index is d.
        Cost: n k_max."""
        words = jnp.take(self.words, indices, axis=0, mode="fill", fill_value=-1)
        fill, scale = self.fill_and_scale(indices)
        calls = [_decode(words, p, fill[:, None]) for p in range(CALLS)]
        columns = jnp.stack(calls, axis=-1).reshape(len(indices), CALLS * words.shape[1])
        return columns[:, : self.num_samples] / scale[:, None]

    def rows(self, indices: Array) -> Integers:
        """The rows at ``indices`` (b,), unpacked, as a design (b, d); 0 where an index is n. Cost:
        b d."""
        place = indices // CALLS
        words = jnp.take(self.words, place, axis=1, mode="fill", fill_value=-1)
        shift = 2 * (indices % CALLS)
        codes = words >> shift & 3
        is_sample = indices < self.num_samples
        codes = jnp.where(is_sample, codes, 3)
        is_missing = codes == 1
        copies = 2 - codes + (codes >> 1)
        calls = jnp.where(is_missing, -1, copies)
        calls = calls.astype(jnp.int8)
        return Integers(
            array=calls.T,
            fill=self.fill,
            scale=self.scale,
            missing=-1,
        )

    def column_norms(self) -> Array:
        """Euclidean norms of the columns, (d,), from counts. Cost: d."""
        one, two, missing = self.counts
        squares = one + 4 * two + missing * self.fill**2
        return jnp.sqrt(squares) / self.scale

    def central_moments(self, weights: Array | None) -> tuple[Array, Array] | None:
        """Mean and variance of each column, from counts, unless there are weights."""
        if weights is not None:
            return None
        n = self.num_samples
        one, two, missing = (count.astype(self.dtype) for count in self.counts)
        called = jnp.maximum(n - missing, 1)
        none = n - missing - one - two
        mean = (one + 2 * two) / called
        spread = (none * one + one * two + 4 * none * two) / called
        # Missing calls count as fill.
        apart = self.fill - mean
        share = missing / n
        mean = mean + share * apart
        between = share * (called / n) * apart**2
        mean = mean / self.scale
        variance = (spread / n + between) / self.scale**2
        return mean, variance

    def transposed(self, u: Array, entrywise: Entrywise = blockwise.unchanged) -> Array:
        """``entrywise(A)^T u``, from (n, c) to (d, c), without the division by ``scale``."""
        if u.shape[1] > MAX_COLUMNS_IN_REGISTERS or entrywise is not blockwise.unchanged:
            return self._transposed_by_field(u, entrywise)
        weights = jnp.asarray(WEIGHTS, u.dtype)[:, None]
        fields = self._fields(u).transpose(2, 0, 1) * weights  # (c, 16, w)
        ones = jnp.ones(fields.shape[2], u.dtype)

        def multiply(first: Array, new: Array, image: Array) -> Array:
            words, fill = self._block(first, len(new))
            # Of each call its copies, 1 where it is missing, and whether it is missing. All of a
            # word are one elementwise loop, which XLA vectorises and does not store.
            copies = ~words - (~words >> 1 & LOW)
            missing = words & ~(words >> 1) & LOW
            copies = copies[:, None]
            missing = missing[:, None]
            beyond = fill[:, None] - 1

            def weigh(p: int) -> Array:
                called = _field(copies, p, u.dtype)
                filled = beyond * _field(missing, p, u.dtype)
                return (called + filled) * fields[None, :, p]

            sums = sum(weigh(p) for p in range(CALLS))
            return blockwise.put(image, matmul(sums, ones), first)

        return self._loop_markers(multiply, u)

    def _transposed_by_field(self, u: Array, entrywise: Entrywise) -> Array:
        """The same by matrix products with the p-th calls of all words, for each p."""
        fields = self._fields(u)

        def multiply(first: Array, new: Array, image: Array) -> Array:
            words, fill = self._block(first, len(new))

            def add(p: Array, part: Array) -> Array:
                entries = entrywise(_decode(words, p, fill))
                return part + matmul(entries, fields[p])

            start = jnp.zeros((len(new), u.shape[1]), u.dtype)
            found = fori_loop(0, CALLS, add, start)
            return blockwise.put(image, found, first)

        return self._loop_markers(multiply, u)

    def _loop_markers(self, multiply: Callable[[Array, Array, Array], Array], u: Array) -> Array:
        d = self.shape[1]
        start = jnp.zeros((d, u.shape[1]), u.dtype)
        size = self._block_size(MAX_MARKERS_IN_BLOCK)
        return blockwise.loop(d, size, multiply, start)

    def times(
        self, u: Array, entrywise: Entrywise = blockwise.unchanged, skip: bool = False
    ) -> Array:
        """``entrywise(A) u``, from (d, c) to (n, c), without the division by ``scale``."""

        def multiply(first: Array, new: Array, image: Array) -> Array:
            words, fill = self._block(first, len(new))
            is_new = new[:, None]
            rows = blockwise.take(u, first, len(new))
            along = jnp.where(is_new, rows, 0).T

            def add(p: Array, image: Array) -> Array:
                entries = entrywise(_decode(words, p, fill))
                return image.at[p].add(matmul(along, entries))

            def add_all(image: Array) -> Array:
                return fori_loop(0, CALLS, add, image)

            if not skip:
                return add_all(image)
            is_needed = jnp.any(along != 0)
            return cond_of_lanes(is_needed, add_all, lambda image: image, image)

        num_columns = u.shape[1]
        d, words_of_marker = self.words.shape
        start = jnp.zeros((CALLS, num_columns, words_of_marker), u.dtype)
        size = self._block_size(MAX_MARKERS_IN_SKIPPED_BLOCK)
        image = blockwise.loop(d, size, multiply, start)
        image = image.transpose(2, 0, 1).reshape(-1, num_columns)
        return image[: self.num_samples]

    def _fields(self, u: Array) -> Array:
        """u (n, c) by place within a word, (16, w, c)."""
        padding = -len(u) % CALLS
        u = jnp.pad(u, ((0, padding), (0, 0)))
        words = u.reshape(-1, CALLS, u.shape[1])
        return words.transpose(1, 0, 2)

    def _block(self, first: Array, size: int) -> tuple[Array, Array]:
        """The words of some markers, and what missing calls count as."""
        words = blockwise.take(self.words, first, size)
        fill = blockwise.take(self.fill, first, size)
        return words, fill[:, None]

    def _block_size(self, max_markers: int) -> int:
        """How many markers are decoded at a time."""
        d, words_of_marker = self.words.shape
        most = MAX_WORDS_IN_BLOCK // words_of_marker
        size = max(8, min(max_markers, most))
        return min(d, size)


def _field(words: Array, p: int, dtype: ArrayDType) -> Array:
    """The p-th calls of words, times ``4^p`` but for the last."""
    is_last = p == CALLS - 1
    calls = words >> 2 * p & 3 if is_last else words & MASKS[p]
    return calls.astype(dtype)


def _decode(words: Array, p: Any, fill: Array) -> Array:
    """The p-th calls of words, as numbers."""
    codes = words >> jnp.asarray(2 * p, jnp.int32)
    high = (codes & 2) != 0
    low = (codes & 1) != 0
    none, one, two = (jnp.asarray(value, fill.dtype) for value in (0, 1, 2))
    none_or_one = jnp.where(low, none, one)
    fill_or_two = jnp.where(low, fill, two)
    return jnp.where(high, none_or_one, fill_or_two)
