"""Products in full precision, and the precision of an array.

On recent GPUs the default for float32 products is TF32, which keeps ten bits.
"""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array
from jaxht.linalg.platform import has_gpu

__all__ = ["default_precision", "machine_eps", "matmul"]

#: Three products of TF32 have the accuracy of float32, and take less to compile on NVIDIA's GPUs
#: than HIGHEST, for which XLA tries many kernels.
CUDA_PRECISION = lax.DotAlgorithmPreset.TF32_TF32_F32_X3


def matmul(a: Array, b: Array) -> Array:
    """``a @ b``, of float32 in the precision of float32, unless the user asks for another one by
    ``jax.default_matmul_precision``."""
    asked = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]  # noqa: TID251
    if asked is not None:
        return jnp.matmul(a, b)
    # Where there is no GPU, there is no second product to trace.
    if a.dtype == b.dtype == jnp.float32 and has_gpu():
        return lax.platform_dependent(a, b, cuda=_matmul_on_cuda, default=_matmul)
    return _matmul(a, b)


def _matmul(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _matmul_on_cuda(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=CUDA_PRECISION)


def machine_eps(x: Any) -> float:
    """The machine epsilon of the dtype of x, an array or an objective."""
    return float(jnp.finfo(x.dtype).eps)


def default_precision(float64: bool) -> contextlib.AbstractContextManager[None]:
    """A context, of this thread, in which the default float is float64, or float32."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(float64)
    from jax.experimental import enable_x64  # type: ignore[attr-defined]  # JAX before 0.8

    return enable_x64(float64)
