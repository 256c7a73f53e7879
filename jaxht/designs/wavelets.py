"""Orthonormal wavelet transforms of signals, images and volumes, by filter banks."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from jaxht._typing import Array, ArrayDType
from jaxht.designs.operator import LinearOperator
from jaxht.designs.transforms import Shape, check_lengths
from jaxht.linalg.inner_products import real_dtype

__all__ = ["wavelet", "wavelet_parents"]

# Beyond this the roots of the polynomial lose digits.
MOST_MOMENTS = 12


def wavelet(
    shape: Shape, name: str = "db4", levels: int | None = None, *, dtype: ArrayDType = float
) -> LinearOperator:
    r"""The synthesis ``x = W c`` of a signal, an image or a volume from its Daubechies wavelet
    coefficients c.

    .. math::
        x_{(2 i + j) \bmod m} = \sum_{i, j} h_j a_i + g_j b_i, \qquad g_j = (-1)^j h_{2 N - 1 - j}

    is one level along an axis of length m, with a of half the resolution and the details b. In
    several dimensions it is taken along each axis, and the next level is that of the part which is
    a along all axes. The signal is continued periodically.

    W is orthonormal: its inverse, the analysis ``c = W^H x``, is ``W.rmatvec``, the columns have
    norm 1, and ``A @ W`` is the operator of measurements A of a signal with sparse coefficients.
    c lies as an array of ``shape``, flat: the coarsest a in the first corner, and the details of
    each level beside it, the finest in the last half of each axis.

    Args:
        shape: of the signal, static: a length, or the lengths of several axes, whose product is d;
            each a multiple of ``2^levels``.
        name: static, ``"haar"`` or ``"dbN"``, with N of 1 to 12 vanishing moments and 2 N filter
            coefficients h, those of PyWavelets; ``"haar"`` is ``"db1"``. The "periodization" there
            begins N - 1 entries later at each level.
        levels: static, at least 1. None: as many as filter no signal shorter than h.
        dtype: static; complex ones for complex x. Default: JAX's default float.

    Returns:
        A :class:`jaxht.LinearOperator` of shape (d, d), with the norms of its columns.

    Raises:
        ValueError: for another name, and lengths that are no multiples of ``2^levels``.

    Cost: a product takes 4 N d multiplications along each axis.

    Source: Daubechies 1988; Mallat 1989 for the levels.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> W = jaxht.operators.wavelet(4, "haar", levels=2)
        >>> [round(float(c_j), 3) for c_j in W.rmatvec(jnp.array([1.0, 1.0, 5.0, 5.0]))]
        [6.0, -4.0, 0.0, 0.0]
        >>> [round(float(x_i), 3) for x_i in W.matvec(jnp.array([6.0, -4.0, 0.0, 0.0]))]
        [1.0, 1.0, 5.0, 5.0]
    """
    lengths = check_lengths(shape)
    num_moments = _num_moments(name)
    levels = _num_levels(lengths, num_moments, levels)
    d = math.prod(lengths)
    synthesis = Synthesis(lengths, levels, num_moments)
    analysis = Analysis(lengths, levels, num_moments)
    W = LinearOperator(
        product=synthesis,
        shape=(d, d),
        args=(),
        adjoint=analysis,
        dtype=dtype,
        check=False,
    )
    return dataclasses.replace(W, norms=jnp.ones(d, real_dtype(W)))


def wavelet_parents(shape: Shape, name: str = "db4", levels: int | None = None) -> np.ndarray:
    r"""The parents of the coefficients of :func:`wavelet`, for :class:`jaxht.TreeSparse`.

    .. math::
        parent(i) = \lfloor i / 2 \rfloor

    along each axis is that of a detail, at the next coarser level in the same place and of the same
    kind. Those of the coarsest level have the coefficient a of their place as parent, and these are
    roots. In a signal a root has one child and any other inner one two, in an image three and four.

    Args:
        shape, name, levels: of the operator, static.

    Returns:
        int32 (d,), on the host: numbers of coefficients, and -1 for roots.

    Raises:
        ValueError: as :func:`wavelet`.

    Cost: some passes over d numbers on the host.

    Source: Shapiro 1993, zerotrees; Baraniuk, Cevher, Duarte & Hegde 2010, §V.

    Example:
        >>> import jaxht
        >>> jaxht.operators.wavelet_parents(8, "haar", levels=2).tolist()
        [-1, -1, 0, 1, 2, 2, 3, 3]
    """
    lengths = check_lengths(shape)
    levels = _num_levels(lengths, _num_moments(name), levels)
    coarse = np.array([m >> levels for m in lengths])
    places = np.indices(lengths)
    places = places.reshape(len(lengths), -1).T
    is_root = np.all(places < coarse, axis=1)
    is_coarsest = np.all(places < 2 * coarse, axis=1)
    same_place = places % coarse
    next_coarser = places // 2
    above = np.where(is_coarsest[:, None], same_place, next_coarser)
    parents = np.ravel_multi_index(tuple(above.T), lengths)
    parents = np.where(is_root, -1, parents)
    return parents.astype(np.int32)


# ---- products, equal where their settings are ----


@dataclasses.dataclass(frozen=True)
class Synthesis:
    """The map from the coefficients to the signal, from the coarsest level to the finest."""

    lengths: tuple[int, ...]
    levels: int
    num_moments: int
    is_isometry: ClassVar[bool] = True

    def __call__(self, c: Array) -> Array:
        """From (d,) to (d,)."""
        filters = polyphase(self.num_moments)
        c = c.reshape(self.lengths)
        return _synthesise(c, self.levels, filters).ravel()


@dataclasses.dataclass(frozen=True)
class Analysis:
    """The inverse of :class:`Synthesis`, which is its adjoint."""

    lengths: tuple[int, ...]
    levels: int
    num_moments: int

    def __call__(self, x: Array) -> Array:
        """From (d,) to (d,)."""
        filters = polyphase(self.num_moments)
        x = x.reshape(self.lengths)
        return _analyse(x, self.levels, filters).ravel()


def _synthesise(c: Array, levels: int, filters: np.ndarray) -> Array:
    if levels > 1:
        coarser = _synthesise(_corner(c), levels - 1, filters)
        c = _replace_corner(c, coarser)
    return _map_axes(_merge, c, filters)


def _analyse(x: Array, levels: int, filters: np.ndarray) -> Array:
    c = _map_axes(_split, x, filters)
    if levels > 1:
        coarser = _analyse(_corner(c), levels - 1, filters)
        c = _replace_corner(c, coarser)
    return c


def _corner(c: Array) -> Array:
    """The first half along each axis."""
    halves = tuple(slice(m // 2) for m in c.shape)
    return c[halves]


def _replace_corner(c: Array, corner: Array) -> Array:
    """c with another first corner. Not by ``at[...].set``: where the new one is computed from the
    old one in the same program, XLA may write over entries that it has yet to read."""
    for axis in reversed(range(c.ndim)):
        before = [slice(m) for m in corner.shape[:axis]]
        behind = slice(corner.shape[axis], None)
        rest = c[(*before, behind)]
        corner = jnp.concatenate([corner, rest], axis=axis)
    return corner


def _map_axes(
    function: Callable[[Array, np.ndarray], Array], x: Array, filters: np.ndarray
) -> Array:
    for axis in range(x.ndim):
        last = jnp.moveaxis(x, axis, -1)
        x = jnp.moveaxis(function(last, filters), -1, axis)
    return x


def _split(x: Array, filters: np.ndarray) -> Array:
    """The coarse half and the details of x along the last axis, one after the other."""
    half = x.shape[-1] // 2
    num_pairs = len(filters)
    pairs = x.reshape(*x.shape[:-1], half, 2)
    even = _continue(pairs[..., 0], 0, num_pairs - 1)
    odd = _continue(pairs[..., 1], 0, num_pairs - 1)
    bands = []
    for band in range(2):

        def term(j, band=band):
            h_even, h_odd = filters[j, :, band].tolist()
            places = slice(j, j + half)
            return h_even * even[..., places] + h_odd * odd[..., places]

        terms = [term(j) for j in range(num_pairs)]
        bands.append(sum(terms))
    return jnp.concatenate(bands, axis=-1)


def _merge(c: Array, filters: np.ndarray) -> Array:
    """The inverse of :func:`_split`."""
    half = c.shape[-1] // 2
    num_pairs = len(filters)
    coarse = _continue(c[..., :half], num_pairs - 1, 0)
    details = _continue(c[..., half:], num_pairs - 1, 0)
    phases = []
    for phase in range(2):

        def term(j, phase=phase):
            h, g = filters[j, phase].tolist()
            first = num_pairs - 1 - j
            of_coarse = h * coarse[..., first:][..., :half]
            return of_coarse + g * details[..., first:][..., :half]

        terms = [term(j) for j in range(num_pairs)]
        phases.append(sum(terms))
    return jnp.stack(phases, axis=-1).reshape(c.shape)


def _continue(x: Array, before: int, after: int) -> Array:
    """x with some entries more along its last axis, periodically."""
    other_axes = [(0, 0)] * (x.ndim - 1)
    return jnp.pad(x, [*other_axes, (before, after)], mode="wrap")


# ---- filters ----


@functools.cache
def polyphase(num_moments: int) -> np.ndarray:
    """Filters in pairs, (N, 2, 2): of each pair j the coefficients 2 j and 2 j + 1 of h, and of
    g."""
    h = daubechies(num_moments)
    signs = (-1.0) ** np.arange(h.size)
    g = h[::-1] * signs
    filters = np.stack([h, g], axis=-1)
    return filters.reshape(-1, 2, 2)


def daubechies(num_moments: int) -> np.ndarray:
    r"""The filter h of 2 N coefficients and N vanishing moments, with the least phase.

    The square of its transform is ``2 cos^{2N}(w/2) P(sin^2(w/2))`` with ``P(y) = sum_k C(N - 1 +
    k, k) y^k``; h has a double zero of P's in half: those within the unit circle.
    """
    N = num_moments
    powers = [math.comb(N - 1 + k, k) for k in range(N)]
    y = np.roots(powers[::-1]).astype(complex)
    b = 1 - 2 * y  # (z + 1/z) / 2
    z = b + np.sqrt(b**2 - 1)
    inside = np.where(np.abs(z) < 1, z, 1 / z)
    roots = np.concatenate([-np.ones(N), inside])
    h = np.poly(roots).real
    return math.sqrt(2) * h / h.sum()


def _num_moments(name: Any) -> int:
    text = "db1" if name == "haar" else name
    found = re.fullmatch(r"db(\d{1,2})", text) if isinstance(text, str) else None
    number = int(found[1]) if found else 0
    if not 1 <= number <= MOST_MOMENTS:
        raise ValueError(f"name must be 'haar' or one of 'db1' to 'db{MOST_MOMENTS}'; got {name!r}")
    return number


def _num_levels(lengths: tuple[int, ...], num_moments: int, levels: Any) -> int:
    most = min(map(_num_halvings, lengths))
    if levels is None:
        filter_length = 2 * num_moments
        useful = [(m // filter_length).bit_length() for m in lengths]
        levels = max(min(most, *useful), 1)
    is_int = isinstance(levels, int | np.integer) and not isinstance(levels, bool)
    if not is_int or levels < 1:
        raise ValueError(f"levels must be an integer of at least 1, or None; got {levels!r}")
    if levels > most:
        shape = lengths if len(lengths) > 1 else lengths[0]
        raise ValueError(
            f"shape must have multiples of 2^levels = {2**levels} alone; got {shape!r}"
        )
    return int(levels)


def _num_halvings(m: int) -> int:
    """How often m can be halved."""
    return (m & -m).bit_length() - 1
