"""The Fourier transform at any frequencies: the operator ``jaxht.operators.nonuniform_dft``."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_array, known_values
from jaxht._typing import Array, ArrayDType, Leaf
from jaxht.designs.operator import LinearOperator
from jaxht.designs.transforms import Shape, check_lengths

__all__ = ["nonuniform_dft"]

# The grid is finer than that of the signal by this factor.
GRID_FACTOR = 2
# Grid points that a frequency is interpolated from, along each axis: with w of them errors are about
# 10^(1 - w) of the largest sum of |x|, for rounding errors of each precision.
WIDTHS = {"float32": 7, "float64": 14}
# The shape parameter of the kernel, for each of w, at this oversampling.
BETA = 2.30
NUM_QUADRATURE = 100


class Neighbours(NamedTuple):
    """The grid points that each frequency is interpolated from.

    Attributes:
        indices: int32 (n, number), on the flat grid.
        weights: (n, number), the values of the kernel.
    """

    indices: Leaf
    weights: Leaf


def nonuniform_dft(
    shape: Shape, frequencies: Array, *, dtype: ArrayDType = complex
) -> LinearOperator:
    r"""The Fourier transform of a signal, an image or a volume at any frequencies, as radial and
    spiral lines in magnetic resonance have them.

    .. math::
        A_{jl} = n^{-1/2} e^{-i \langle \omega_j, l \rangle}, \qquad
        l \in \{0, \dots, d_1 - 1\} \times \{0, \dots, d_2 - 1\} \times \dots

    All columns have norm 1. At frequencies ``2 pi r / d`` it is :func:`partial_dft`.

    Args:
        shape: of the signal, static: a length d, or the lengths of several axes, whose product is
            d. x is flat, (d,).
        frequencies: (n,), or (n, axes) where there are several, real, in radians per sample,
            traced; those that differ by 2 pi are the same.
        dtype: complex64 or complex128, static. Default: JAX's default complex dtype.

    Returns:
        A complex :class:`jaxht.LinearOperator` of shape (n, d), with the norms of its columns.
        Products have relative errors of about 1e-6 in complex64 and 1e-11 in complex128; of traced
        frequencies, whose rounding counts, d times the machine epsilon. The adjoint is exactly that
        of the product.

    Raises:
        ValueError: for frequencies of another shape, or that are not real.

    Cost: a product takes an FFT of twice the length along each axis, and the sum of 7 values (14 in
    complex128) for each frequency, of 7^2 of an image and 7^3 of a volume, whose places and weights
    are held.

    Source: Barnett, Magland & af Klinteberg 2019, whose kernel it is; Fessler & Sutton 2003.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A = jaxht.operators.nonuniform_dft(3, jnp.array([0.0, jnp.pi]))
        >>> [round(float(c.real), 3) for c in A.matvec(jnp.array([1.0, 2.0, 4.0], complex))]
        [4.95, 2.121]
    """
    lengths = check_lengths(shape)
    dtype = jnp.result_type(dtype)
    if not jnp.issubdtype(dtype, jnp.complexfloating):
        raise ValueError(f"dtype must be complex64 or complex128; got {dtype}")
    check_array("frequencies", frequencies, "a real array")
    num_axes = len(lengths)
    real = jnp.finfo(dtype).dtype
    expected = "(n,)" if num_axes == 1 else f"(n, {num_axes})"
    points = frequencies[:, None] if num_axes == frequencies.ndim == 1 else frequencies
    if points.ndim != 2 or points.shape[1] != num_axes or points.shape[0] == 0:
        raise ValueError(f"frequencies must have shape {expected}; got {frequencies.shape}")
    if jnp.issubdtype(points.dtype, jnp.complexfloating):
        raise ValueError(f"frequencies must be real; got {points.dtype}")
    known = known_values(points)
    width = WIDTHS[real.name]
    # Positions on the grid and angles are of the size of the lengths: on the host they are computed
    # in double precision.
    xp = jnp if known is None else np
    points = jnp.asarray(points, real) if known is None else known.astype(float)
    indices, weights = _find_neighbours(points, lengths, width, xp)
    neighbours = Neighbours(jnp.asarray(indices), jnp.asarray(weights, real))
    # The modes of the fine grid are centred: those of the signal are turned.
    centre = xp.asarray([m // 2 for m in lengths], points.dtype)
    # Angles of hundreds of radians: no product of less precision.
    angles = xp.sum(points * centre, axis=1)
    phases = jnp.asarray(xp.exp(-1j * angles), dtype) / math.sqrt(len(points))
    d = math.prod(lengths)
    return LinearOperator(
        NonuniformTransform(lengths, width),
        (len(points), d),
        (neighbours, phases),
        norms=jnp.ones(d, real),
        dtype=dtype,
        check=False,
    )


@dataclasses.dataclass(frozen=True)
class NonuniformTransform:
    """An FFT on a finer grid, and the interpolation between its points."""

    lengths: tuple[int, ...]
    width: int

    def __call__(self, x: Array, neighbours: Neighbours, phases: Array) -> Array:
        """Map x (d,) to its samples (n,)."""
        x = x.reshape(self.lengths)
        for axis, m in enumerate(self.lengths):
            factors = jnp.asarray(_correction(m, self.width), x.real.dtype)
            x = x * jnp.expand_dims(factors, [i for i in range(x.ndim) if i != axis])
        finer = [(0, (GRID_FACTOR - 1) * m) for m in self.lengths]
        shifts = [-(m // 2) for m in self.lengths]
        grid = jnp.roll(jnp.pad(x, finer), shifts, range(x.ndim))
        grid = jnp.fft.fftn(grid)
        near = grid.ravel()[neighbours.indices]
        return phases * jnp.sum(neighbours.weights * near, axis=1)


def _find_neighbours(points: Any, lengths: tuple[int, ...], width: int, xp: Any) -> tuple[Any, Any]:
    """The places and weights around frequencies (n, axes), on the grid with ``GRID_FACTOR`` times
    the lengths; arrays of NumPy or of JAX, ``xp``."""
    n = len(points)
    indices = xp.zeros((n, 1), np.int32)
    weights = xp.ones((n, 1), points.dtype)
    for axis, m in enumerate(lengths):
        size = GRID_FACTOR * m
        turns = points[:, axis] / (2 * math.pi)
        position = size * (turns - xp.floor(turns))
        first = xp.ceil(position - width / 2)
        nodes = first[:, None] + xp.arange(width)
        along = nodes.astype(np.int32) % size
        values = _kernel(2 / width * (nodes - position[:, None]), width, xp)
        indices = (size * indices[:, :, None] + along[:, None]).reshape(n, -1)
        weights = (weights[:, :, None] * values[:, None]).reshape(n, -1)
    return indices, weights


def _kernel(z: Any, width: int, numpy: Any) -> Any:
    """The exponential of a semicircle, 1 at its centre; its ends are at z = -1 and 1."""
    inside = numpy.maximum(1 - z**2, 0)
    return numpy.exp(BETA * width * (numpy.sqrt(inside) - 1))


@functools.cache
def _correction(length: int, width: int) -> np.ndarray:
    """One over the Fourier transform of the kernel at the centred modes of an axis."""
    nodes, weights = np.polynomial.legendre.leggauss(NUM_QUADRATURE)
    mode = np.arange(length) - length // 2
    angle = math.pi * width * mode / (GRID_FACTOR * length)
    transform = width / 2 * np.cos(np.outer(angle, nodes)) @ (weights * _kernel(nodes, width, np))
    return 1 / transform
