"""The axes of :mod:`jaxht.phase_diagram`."""

import jax.numpy as jnp

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
