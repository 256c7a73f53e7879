"""Bounds of the entries of a variable: their checks, and what they change in projections."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import known_values
from jaxht._repr import describe
from jaxht._typing import Array
from jaxht.linalg.inner_products import rankable

Bounds = tuple[Any, Any] | None


def fill_bounds(bounds: Any, nonnegative: bool, shape: tuple[int, ...]) -> Bounds:
    """The pair (lower, upper) for a variable of ``shape``, or None where there are no bounds.

    Raises:
        ValueError: for bounds of a wrong kind or shape, and those that 0 does not lie between.
    """
    if bounds is None and not nonnegative:
        return None
    pair = (None, None) if bounds is None else bounds
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ValueError(f"bounds must be a pair (lower, upper); got {pair!r}")
    lower = -np.inf if pair[0] is None else pair[0]
    upper = np.inf if pair[1] is None else pair[1]
    _check_bound("lower", lower, 1, shape)
    _check_bound("upper", upper, -1, shape)
    if nonnegative:
        maximum = jnp.maximum if isinstance(lower, jax.core.Tracer) else np.maximum
        lower = maximum(lower, 0.0)
    return lower, upper


def clip(z: Array, bounds: Bounds) -> Array:
    """The nearest entries within the bounds."""
    return z if bounds is None else jnp.clip(z, *bounds)


def root_gains(z: Array, bounds: Bounds) -> Array:
    """By how much ``|x_i - z_i|^2`` decreases where x_i is clipped to the bounds instead of being
    0, the root of it: ``|z_i|`` where nothing is clipped."""
    if bounds is None:
        return rankable(z)
    nearest = jnp.clip(z, *bounds)
    # Of the root no square or sum overflows.
    rest = jnp.sqrt(jnp.abs(z - nearest / 2))
    clipped = 2**0.5 * jnp.sqrt(jnp.abs(nearest)) * rest
    clipped = jnp.where(nearest == 0, 0, clipped)
    return jnp.where(nearest == z, z, clipped)


def feasible_part(direction: Array, bounds: Bounds) -> Array:
    """``direction``, with 0 in the entries that leave the bounds from 0."""
    if bounds is None:
        return direction
    lower, upper = bounds
    lowest = jnp.where(lower < 0, -jnp.inf, 0)
    highest = jnp.where(upper > 0, jnp.inf, 0)
    return jnp.clip(direction, lowest, highest)


def _check_bound(name: str, bound: Any, wrong_sign: int, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless the values of ``bound`` are numbers without ``wrong_sign``."""
    expected = f"bounds: {name} must be a number or of shape {shape}"
    if isinstance(bound, list | tuple):
        raise ValueError(f"{expected}; got {describe(bound)}")
    if jnp.shape(bound) not in ((), shape):
        raise ValueError(f"{expected}; got shape {jnp.shape(bound)}")
    values = known_values(bound)
    if values is None:
        return
    if values.dtype.kind not in "iuf":
        raise ValueError(f"{expected}; got {describe(bound)}")
    if np.any(np.isnan(values)):
        raise ValueError(f"bounds: {name} must not be NaN")
    if np.any(np.sign(values) == wrong_sign):
        side = "above" if wrong_sign > 0 else "below"
        raise ValueError(
            f"bounds: {name} must not be {side} 0, the value of entries off the support"
        )
