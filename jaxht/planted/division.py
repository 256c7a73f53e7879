"""Division where the divisor may be 0."""

import jax.numpy as jnp

from jaxht._typing import Array, Numeric


def divide_where(
    condition: Array, numerator: Numeric, denominator: Numeric, otherwise: Numeric
) -> Array:
    """Divide where the condition holds; derivatives are finite where it does not."""
    divisor = jnp.where(condition, denominator, 1)
    return jnp.where(condition, numerator / divisor, otherwise)
