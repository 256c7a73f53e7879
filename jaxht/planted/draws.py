"""Random numbers of a dtype, real or complex."""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike

from jaxht._typing import Numeric


def as_real(number: Numeric, dtype: DTypeLike) -> Array:
    """A number in the dtype of the real parts of a dtype."""
    real = jnp.finfo(jnp.result_type(dtype)).dtype
    return jnp.asarray(number, real)


def draw_signs(key: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """-1 and +1 with equal probability; of a complex dtype phases, uniform on the unit circle."""
    dtype = jnp.result_type(dtype)
    if not jnp.issubdtype(dtype, jnp.complexfloating):
        return jax.random.rademacher(key, shape, dtype)
    turns = jax.random.uniform(key, shape, jnp.finfo(dtype).dtype)
    angles = 2 * jnp.pi * turns
    return lax.complex(jnp.cos(angles), jnp.sin(angles))
