"""Products in full precision, and the precision of an array.

On recent GPUs the default for float32 products is TF32, which keeps ten bits.
"""

import contextlib
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["default_precision", "machine_eps", "matmul"]

matmul = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def machine_eps(x: Any) -> float:
    """The machine epsilon of the dtype of x, an array or an objective."""
    return float(jnp.finfo(x.dtype).eps)


def default_precision(float64: bool) -> contextlib.AbstractContextManager[None]:
    """A context, of this thread, in which the default float is float64, or float32."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(float64)
    from jax.experimental import enable_x64  # type: ignore[attr-defined]  # JAX before 0.8

    return enable_x64(float64)
