"""Fast transforms and convolutions as designs: the operators of :mod:`jaxht.operators`."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import jax.scipy.fft
import numpy as np
from jax import lax

from jaxht._checks import check_array, known_values
from jaxht._typing import Array, ArrayDType
from jaxht.designs.operator import LinearOperator
from jaxht.linalg.inner_products import is_complex, real_dtype, squares

__all__ = ["circulant", "partial_dct", "partial_dft", "partial_hadamard", "toeplitz"]

Shape = int | tuple[int, ...]


def partial_dft(shape: Shape, rows: Array, *, dtype: ArrayDType = complex) -> LinearOperator:
    r"""Some coefficients of the discrete Fourier transform of a signal, an image or a volume.

    .. math::
        A = \sqrt{d / n} \; P_R F, \qquad F_{jl} = d^{-1/2} e^{-2 \pi i j l / d}

    In several dimensions F is the product of the transforms along the axes. F is unitary, and the
    columns of A have norm 1.

    Args:
        shape: of the signal, static: a length d, or the lengths of several axes, whose product is
            d. x is flat, (d,).
        rows: R, (n,) integers in [0, d), traced: indices of the flat transform.
        dtype: complex64 or complex128, static. Default: JAX's default complex dtype.

    Returns:
        A complex :class:`jaxht.LinearOperator` of shape (n, d), with the norms of its columns.

    Raises:
        ValueError: for rows that are no vector of integers in [0, d), as far as known, and for a
            real dtype.

    Cost: a product takes an FFT, d log d.

    Source: Candès, Romberg & Tao 2006.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A = jaxht.operators.partial_dft(4, jnp.array([0, 2]))
        >>> [round(abs(complex(c)), 3) for c in A.matvec(jnp.ones(4, complex))]
        [2.828, 0.0]
    """
    lengths = _check_rows(shape, rows)
    dtype = jnp.result_type(dtype)
    if not jnp.issubdtype(dtype, jnp.complexfloating):
        raise ValueError(f"dtype must be complex64 or complex128; got {dtype}")
    A = _sampled(_fft, _inverse_fft, lengths, rows, dtype)
    return dataclasses.replace(A, norms=jnp.ones(A.shape[1], real_dtype(A)))


def partial_dct(shape: Shape, rows: Array, *, dtype: ArrayDType = float) -> LinearOperator:
    r"""Some coefficients of the orthonormal discrete cosine transform, DCT-II, of a signal, an
    image or a volume.

    .. math::
        A = \sqrt{d / n} \; P_R C, \qquad
        C_{kl} = s_k \cos \frac{\pi (2 l + 1) k}{2 d}, \quad s_0^2 = \tfrac1d, \; s_k^2 = \tfrac2d

    In several dimensions C is the product of the transforms along the axes.

    Args:
        shape: of the signal, as in :func:`partial_dft`.
        rows: R, as in :func:`partial_dft`.
        dtype: static; complex ones for complex x. Default: JAX's default float.

    Returns:
        A :class:`jaxht.LinearOperator` of shape (n, d), with the norms of its columns.

    Raises:
        ValueError: where :func:`partial_dft` raises it.

    Cost: a product takes a DCT, d log d; the norms a DCT along each axis, once.

    Source: Ahmed, Natarajan & Rao 1974.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A = jaxht.operators.partial_dct(4, jnp.array([0, 1]))
        >>> [round(float(norm), 3) for norm in A.norms]
        [1.163, 0.804, 0.804, 1.163]
    """
    lengths = _check_rows(shape, rows)
    A = _sampled(_dct, _inverse_dct, lengths, rows, dtype)
    n, d = A.shape
    counts = jnp.zeros(d, real_dtype(A)).at[rows].add(1).reshape(lengths)
    for axis in range(len(lengths)):
        counts = _sum_squared_cosines(counts, axis)
    norms = math.sqrt(d / n) * jnp.sqrt(jnp.maximum(counts.ravel(), 0))
    return dataclasses.replace(A, norms=norms)


def partial_hadamard(d: int, rows: Array, *, dtype: ArrayDType = float) -> LinearOperator:
    r"""Some coefficients of the Walsh-Hadamard transform.

    .. math::
        A = n^{-1/2} P_R H_d, \qquad H_1 = 1, \quad
        H_{2 m} = \begin{pmatrix} H_m & H_m \\ H_m & -H_m \end{pmatrix}

    Entries are +-1 / sqrt(n), and the columns of A have norm 1.

    Args:
        d: a power of 2, static.
        rows: R, as in :func:`partial_dft`, in the order of Sylvester's matrix.
        dtype: static; complex ones for complex x. Default: JAX's default float.

    Returns:
        A :class:`jaxht.LinearOperator` of shape (n, d), with the norms of its columns.

    Raises:
        ValueError: for a d that is no power of 2, and where :func:`partial_dft` raises it.

    Cost: a product takes d log2 d additions.

    Source: Sylvester 1867.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A = jaxht.operators.partial_hadamard(4, jnp.array([1, 3]))
        >>> [round(float(c), 3) for c in A.matvec(jnp.array([1.0, 2.0, 3.0, 5.0]))]
        [-2.121, 0.707]
    """
    if not isinstance(d, int | np.integer) or d < 1 or d & (d - 1):
        raise ValueError(f"d must be a power of 2; got {d!r}")
    lengths = _check_rows(d, rows)
    A = _sampled(_hadamard, _hadamard, lengths, rows, dtype)
    return dataclasses.replace(A, norms=jnp.ones(d, real_dtype(A)))


def circulant(kernel: Array, rows: Array | None = None) -> LinearOperator:
    r"""The circular convolution with a kernel, such as a random one, sampled at some places.

    .. math::
        (A x)_i = \sum_j h_{(i - j) \bmod d} \, x_j, \qquad i \in R

    Args:
        kernel: h, (d,), real or complex, traced.
        rows: R, as in :func:`partial_dft`; None for all.

    Returns:
        A :class:`jaxht.LinearOperator` of shape (n, d), with the norms of its columns, which are
        those of h where all rows are there. Products and norms are those of an FFT: in float32
        columns with less than about 1e-3 of the largest norm are rounding errors.

    Raises:
        ValueError: for a kernel that is no vector, and where :func:`partial_dft` raises it.

    Cost: a product takes two FFTs, d log d; the kernel's, and the norms, are computed once.

    Source: Romberg 2009.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A = jaxht.operators.circulant(jnp.array([1.0, 2.0, 0.0]), jnp.array([0, 1]))
        >>> [round(float(c), 3) for c in A.matvec(jnp.array([1.0, 0.0, 5.0]))]
        [11.0, 2.0]
    """
    kernel = check_vector("kernel", kernel)
    (d,) = kernel.shape
    powers = squares(kernel)
    if rows is None:
        n = d
        norms = jnp.full(d, jnp.sqrt(jnp.sum(powers)))
    else:
        _check_rows(d, rows)
        n = rows.shape[0]
        counts = jnp.zeros(d, powers.dtype).at[rows].add(1)
        sums = _convolve(counts, _spectrum(powers, d).conj(), d)
        norms = jnp.sqrt(jnp.maximum(sums, 0))
    return _convolution(kernel, (n, d), norms, rows)


def toeplitz(column: Array, row: Array) -> LinearOperator:
    r"""A Toeplitz matrix, ``A_ij = t_{i - j}``: the convolution of a signal with a filter, or a
    channel.

    Args:
        column: (n,), the first column, t_0 ... t_{n - 1}, real or complex, traced.
        row: (d,), the first row, t_0 ... t_{-(d - 1)}, of which the first entry does not count, as
            in ``scipy.linalg.toeplitz``.

    Returns:
        A :class:`jaxht.LinearOperator` of shape (n, d), with the norms of its columns.

    Raises:
        ValueError: for a column or row that is no vector.

    Cost: a product takes two FFTs of length n + d - 1; that of t, and the norms, are computed once.

    Source: Golub & Van Loan 2013, §4.8.4.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A = jaxht.operators.toeplitz(jnp.array([1.0, 2.0]), jnp.array([1.0, 3.0, 4.0]))
        >>> [round(float(c), 3) for c in A.matvec(jnp.array([1.0, 0.0, 1.0]))]
        [5.0, 5.0]
    """
    column = check_vector("column", column)
    row = check_vector("row", row)
    dtype = jnp.result_type(column, row)
    column = column.astype(dtype)
    above = row[1:].astype(dtype)
    (n,) = column.shape
    d = row.shape[0]
    kernel = jnp.concatenate([column, above[::-1]])

    zero = jnp.zeros(1, real_dtype(column))
    below_sums = jnp.concatenate([zero, jnp.cumsum(squares(column))])
    above_sums = jnp.concatenate([zero, jnp.cumsum(squares(above))])
    if d > n:
        above_sums = jnp.concatenate([above_sums[:n], _window_sums(squares(above), n)])
    sums = below_sums[jnp.maximum(n - jnp.arange(d), 0)] + above_sums
    return _convolution(kernel, (n, d), jnp.sqrt(sums))


def _window_sums(v: Array, length: int) -> Array:
    """The sums of v over all windows of a length: each of the end of a block and the beginning of
    the next one, as a difference of sums would lose those that are small."""
    blocks = jnp.pad(v, (0, -v.size % length + length)).reshape(-1, length)
    suffixes = jnp.cumsum(blocks[:, ::-1], axis=1)[:, ::-1].ravel()
    prefixes = jnp.cumsum(blocks, axis=1).ravel()
    first = jnp.arange(v.size - length + 1)
    return suffixes[first] + jnp.where(first % length > 0, prefixes[first + length - 1], 0)


def _convolution(
    kernel: Array, shape: tuple[int, int], norms: Array, rows: Array | None = None
) -> LinearOperator:
    """The first entries of a circular convolution with a kernel, or those at ``rows``."""
    (length,) = kernel.shape
    n, d = shape
    return LinearOperator(
        product=Convolution(length, n),
        shape=shape,
        args=(_spectrum(kernel, length), rows),
        adjoint=ConvolutionAdjoint(length, d),
        norms=norms,
        dtype=kernel.dtype,
        check=False,
    )


# ---- products, equal where their settings are, so that equal operators share a compile ----


@dataclasses.dataclass(frozen=True)
class Sampled:
    """Some rows of an orthonormal transform, times sqrt(d / n)."""

    transform: Callable[[Array], Array]
    lengths: tuple[int, ...]

    def __call__(self, x: Array, rows: Array) -> Array:
        """Map x (d,) to A x (n,)."""
        coefficients = self.transform(x.reshape(self.lengths)).ravel()[rows]
        return math.sqrt(x.size / rows.shape[0]) * coefficients


@dataclasses.dataclass(frozen=True)
class SampledAdjoint:
    """The adjoint of :class:`Sampled`, by the inverse transform."""

    inverse: Callable[[Array], Array]
    lengths: tuple[int, ...]

    def __call__(self, r: Array, rows: Array) -> Array:
        """Map r (n,) to the image (d,) of the adjoint."""
        d = math.prod(self.lengths)
        coefficients = jnp.zeros(d, r.dtype).at[rows].add(r)
        image = self.inverse(coefficients.reshape(self.lengths)).ravel()
        return math.sqrt(d / rows.shape[0]) * image


@dataclasses.dataclass(frozen=True)
class Convolution:
    """Entries of a circular convolution of some length: those at rows, else the first ``size``."""

    length: int
    size: int

    def __call__(self, x: Array, spectrum: Array, rows: Array | None) -> Array:
        """Map x (d,) to A x (n,)."""
        image = _convolve(x, spectrum, self.length)
        return image[: self.size] if rows is None else image[rows]


@dataclasses.dataclass(frozen=True)
class ConvolutionAdjoint:
    """The adjoint of :class:`Convolution`, of which the first ``size`` entries are kept."""

    length: int
    size: int

    def __call__(self, r: Array, spectrum: Array, rows: Array | None) -> Array:
        """Map r (n,) to the image (d,) of the adjoint."""
        if rows is not None:
            r = jnp.zeros(self.length, r.dtype).at[rows].add(r)
        return _convolve(r, spectrum.conj(), self.length)[: self.size]


def _sampled(
    transform: Callable[[Array], Array],
    inverse: Callable[[Array], Array],
    lengths: tuple[int, ...],
    rows: Array,
    dtype: ArrayDType,
) -> LinearOperator:
    return LinearOperator(
        product=Sampled(transform, lengths),
        shape=(rows.shape[0], math.prod(lengths)),
        args=(rows,),
        adjoint=SampledAdjoint(inverse, lengths),
        dtype=dtype,
        check=False,
    )


def _fft(x: Array) -> Array:
    return jnp.fft.fftn(x, norm="ortho")


def _inverse_fft(x: Array) -> Array:
    return jnp.fft.ifftn(x, norm="ortho")


def _dct(x: Array) -> Array:
    return _along_axes(jax.scipy.fft.dct, x)


def _inverse_dct(x: Array) -> Array:
    return _along_axes(jax.scipy.fft.idct, x)


def _along_axes(function: Callable[..., Array], x: Array) -> Array:
    if is_complex(x):
        return _along_axes(function, x.real) + 1j * _along_axes(function, x.imag)
    for axis in range(x.ndim):
        x = function(x, axis=axis, norm="ortho")
    return x


def _hadamard(x: Array) -> Array:
    """The orthonormal transform, one factor of 2 after the other."""
    d = x.size
    half = 1
    while half < d:
        pairs = x.reshape(-1, 2, half)
        first = pairs[:, 0]
        second = pairs[:, 1]
        x = jnp.stack([first + second, first - second], axis=1)
        half *= 2
    return x.reshape(d) / math.sqrt(d)


def _sum_squared_cosines(counts: Array, axis: int) -> Array:
    r"""``sum_k counts_k C_{kl}^2`` along an axis, from ``2 cos^2 = 1 + cos`` of twice the angle.

    Twice a frequency k is 2 k, or beyond d that of 2 d - 2 k with the other sign.
    """
    counts = jnp.moveaxis(counts, axis, -1)
    d = counts.shape[-1]
    k = jnp.arange(d)
    squared_scale = jnp.where(k == 0, 1 / d, 2 / d).astype(counts.dtype)
    weights = counts * squared_scale
    doubled = jnp.where(2 * k < d, 2 * k, (2 * d - 2 * k) % d)
    signs = jnp.sign(d - 2 * k).astype(counts.dtype)
    folded = jnp.zeros_like(weights).at[..., doubled].add(signs * weights)
    # The inverse transform has a scale of its own.
    cosines = jax.scipy.fft.idct(folded / jnp.sqrt(squared_scale), axis=-1, norm="ortho")
    sums = (jnp.sum(weights, axis=-1, keepdims=True) + cosines) / 2
    return jnp.moveaxis(sums, -1, axis)


def _spectrum(kernel: Array, length: int) -> Array:
    transform = jnp.fft.fft if is_complex(kernel) else jnp.fft.rfft
    return transform(kernel, length)


def _convolve(x: Array, spectrum: Array, length: int) -> Array:
    """The circular convolution of x with a kernel of a spectrum, whole or, of a real kernel, one
    half of it."""
    is_half = spectrum.shape[0] != length
    if is_complex(x) and is_half:
        parts = _convolve(x.real, spectrum, length), _convolve(x.imag, spectrum, length)
        return lax.complex(*parts)
    if is_complex(x):
        return jnp.fft.ifft(jnp.fft.fft(x, length) * spectrum)
    return jnp.fft.irfft(jnp.fft.rfft(x, length) * spectrum, length)


def check_lengths(shape: Any) -> tuple[int, ...]:
    """The lengths of the axes of a signal; ValueError unless these are ints of at least 1."""
    lengths = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    if not lengths or not all(isinstance(m, int | np.integer) and m > 0 for m in lengths):
        raise ValueError(f"shape must be an int or a tuple of ints of at least 1; got {shape!r}")
    return lengths


def _check_rows(shape: Any, rows: Any) -> tuple[int, ...]:
    """The lengths of the axes of a signal; ValueError unless rows are indices of its entries."""
    lengths = check_lengths(shape)
    d = math.prod(lengths)
    check_array("rows", rows, "a vector of integers")
    if rows.ndim != 1 or rows.size == 0 or not jnp.issubdtype(rows.dtype, jnp.integer):
        raise ValueError(
            f"rows must be a vector of integers; got {rows.dtype} of shape {rows.shape}"
        )
    known = known_values(rows)
    if known is not None and not np.all((known >= 0) & (known < d)):
        raise ValueError(f"rows must lie in [0, {d}); got {known.min()} to {known.max()}")
    return lengths


def check_vector(name: str, v: Any) -> Array:
    """v as an array of floats; ValueError unless it is a vector."""
    check_array(name, v, "a vector")
    if v.ndim != 1 or v.size == 0:
        raise ValueError(f"{name} must be a vector; got shape {v.shape}")
    v = jnp.asarray(v)
    return v if jnp.issubdtype(v.dtype, jnp.inexact) else v.astype(float)
