"""Magnitudes as integers, which order as they do."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._typing import Array

__all__ = ["end_of_magnitudes", "magnitudes"]


def magnitudes(z: Array) -> Array:
    """Integers of 32 or 64 bits that order as |z| does, with every NaN equal and above infinity.

    IEEE magnitudes order like their bit patterns read as integers, which also keeps subnormals
    apart on hardware that flushes them to 0.
    """
    if jnp.issubdtype(z.dtype, jnp.signedinteger):
        # |most negative| does not fit the signed type; read as unsigned it is right.
        found = lax.bitcast_convert_type(jnp.abs(z), f"uint{8 * z.dtype.itemsize}")
    elif jnp.issubdtype(z.dtype, jnp.floating):
        # Without the sign bit there is none to search, and none to be had in a signed integer.
        signed = jnp.dtype(f"int{8 * z.dtype.itemsize}")
        bits = lax.bitcast_convert_type(z, signed) & int(jnp.iinfo(signed).max)
        found = jnp.minimum(bits, end_of_magnitudes(z.dtype) - 1)
    else:
        raise ValueError(f"z must be real floating or signed integer; got dtype {z.dtype}")
    return found if found.dtype.itemsize >= 4 else found.astype(jnp.int32)


def end_of_magnitudes(dtype: jnp.dtype) -> int:
    """The first integer above all :func:`magnitudes` of that dtype."""
    if jnp.issubdtype(dtype, jnp.signedinteger):
        return -int(jnp.iinfo(dtype).min) + 1
    infinity = np.asarray(np.inf, dtype)
    return int(infinity.view(f"int{8 * dtype.itemsize}")) + 2
