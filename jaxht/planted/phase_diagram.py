"""The axes of :mod:`jaxht.phase_diagram`."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from numpy.typing import ArrayLike, NDArray

from jaxht._typing import Array, Numeric


def num_measurements(delta: Numeric, d: Numeric) -> Array:
    """Round ``n = delta d`` to a whole number of measurements, at least 1.

    Args:
        delta: undersampling, 0 < delta <= 1; static or traced, of any shape.
        d: dimension.

    Returns:
        int32, shaped like delta.

    Example:
        >>> from jaxht import phase_diagram
        >>> phase_diagram.num_measurements(0.25, 256).item()
        64
    """
    return _rounded(delta * d)


def num_nonzeros(rho: Numeric, n: Numeric) -> Array:
    """Round ``K = rho n`` to a whole number of nonzeros, at least 1.

    Args:
        rho: sparsity relative to the number of measurements, 0 < rho <= 1; static or traced, of any
            shape.
        n: number of measurements, static or traced.

    Returns:
        int32, of the shape of rho and n together.

    Example:
        >>> from jaxht import phase_diagram
        >>> phase_diagram.num_nonzeros(0.1, 64).item()
        6
    """
    return _rounded(rho * n)


def _rounded(size: Numeric) -> Array:
    return jnp.maximum(1, jnp.floor(size + 0.5).astype(jnp.int32))


def l1_transition(delta: ArrayLike) -> NDArray[np.float64]:
    """Compute the rho up to which l1 minimisation recovers most signals from Gaussian measurements,
    as d -> infinity.

        rho(delta) = max_z (1 - 2/delta g(z)) / (1 + z^2 - 2 g(z)),    g(z) = (1 + z^2) Phi(-z) - z
        phi(z)

    Args:
        delta: undersamplings, 0 < delta <= 1, of any shape; concrete.

    Returns:
        An array like delta, to three digits: the maximum is taken over a grid of z.

    Source: Donoho, Maleki & Montanari, PNAS 106 (2009) 18914-18919, equation 2.

    Example:
        >>> from jaxht import phase_diagram
        >>> phase_diagram.l1_transition([0.1, 0.5]).round(2).tolist()
        [0.19, 0.39]
    """
    z = np.linspace(0.001, 12, 6000)  # enough for a delta of 1e-30
    tail = np.asarray(norm.cdf(-z), np.float64)
    density = np.asarray(norm.pdf(z), np.float64)
    g = (1 + z**2) * tail - z * density
    numerator = 1 - 2 / np.asarray(delta)[..., None] * g
    denominator = 1 + z**2 - 2 * g
    return (numerator / denominator).max(axis=-1)
