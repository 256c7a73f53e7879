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

__all__ = [
    "default_precision",
    "join_parts",
    "machine_eps",
    "matmul",
    "stack_parts",
    "times_vector",
    "vector_times",
]

#: Three products of TF32 have the accuracy of float32, and take less to compile on NVIDIA's GPUs
#: than HIGHEST, for which XLA tries many kernels.
CUDA_PRECISION = lax.DotAlgorithmPreset.TF32_TF32_F32_X3

#: On CPUs XLA multiplies complex arrays where that takes fewer products of numbers.
MIN_PRODUCTS_BY_PARTS = 1024


def matmul(a: Array, b: Array) -> Array:
    """``a @ b``, of float32 in the precision of float32, unless the user asks for another one by
    ``jax.default_matmul_precision``."""
    if _is_asked():
        return jnp.matmul(a, b)
    if _takes_parts(a, b):
        return _matmul_by_parts(a, b)
    # Where there is no GPU, there is no second product to trace.
    if a.dtype == b.dtype == jnp.float32 and has_gpu():
        return lax.platform_dependent(a, b, cuda=_matmul_on_cuda, default=_matmul)
    return _matmul(a, b)


def _matmul(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _matmul_on_cuda(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=CUDA_PRECISION)


def _is_asked() -> bool:
    """Whether the user asks for a precision."""
    asked = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]  # noqa: TID251
    return asked is not None


def _takes_parts(a: Array, b: Array) -> bool:
    """Whether a product is computed from real and imaginary parts: XLA's CPU compiler has no fast
    product of complex numbers."""
    if not jnp.iscomplexobj(a) or a.dtype != b.dtype or max(a.ndim, b.ndim) < 2 or has_gpu():
        return False
    return a.size * b.size >= MIN_PRODUCTS_BY_PARTS * a.shape[-1]


def _matmul_by_parts(a: Array, b: Array) -> Array:
    """``a @ b`` of complex arrays by one product of real matrices.

    Of the array of more entries the real part is put above the imaginary part, whether it is on the
    left or on the right: in a loop XLA does so once for all products with a design.
    """
    if a.ndim == 1:
        return _matmul_by_parts(a[None], b)[..., 0, :]
    if b.ndim == 1:
        return _matmul_by_parts(a, b[:, None])[..., 0]
    if a.shape[-2] >= b.shape[-1]:
        return _join_columns(_matmul(_above(a.real, a.imag), _beside(b.real, b.imag)))
    return join_parts(_matmul(_above(*_rows_of_parts(a)), _above(b.real, b.imag)))


def stack_parts(a: Array) -> Array | None:
    """The real part of a complex matrix (n, d) above its imaginary part, (2 n, d), for
    :func:`times_vector` and :func:`vector_times`; None where :func:`matmul` is as fast."""
    takes_parts = not _is_asked() and _takes_parts(a, a[0])
    return _above(a.real, a.imag) if takes_parts else None


def join_parts(parts: Array) -> Array:
    """The complex matrix (..., n, d) of a real part above an imaginary part, (..., 2 n, d)."""
    return lax.complex(*jnp.split(parts, 2, axis=-2))


def times_vector(parts: Array, v: Array) -> Array:
    """``A v``, from the parts (2 n, d) of A and v."""
    # The two rows on the left: where lanes have parts of their own, XLA is slow the other way round.
    rows = jnp.stack([v.real, v.imag])
    along_rows = (((1,), (1,)), ((), ()))
    products = lax.dot_general(rows, parts, along_rows, precision=lax.Precision.HIGHEST)
    return _join_columns(products.T)[:, 0]


def vector_times(parts: Array, v: Array) -> Array:
    """``v A``, from the parts (2 n, d) of A and v."""
    return join_parts(_matmul(jnp.stack(_rows_of_parts(v)), parts))[0]


def _above(real: Array, imag: Array) -> Array:
    return jnp.concatenate([real, imag], axis=-2)


def _beside(real: Array, imag: Array) -> Array:
    return jnp.concatenate([real, imag], axis=-1)


def _rows_of_parts(a: Array) -> tuple[Array, Array]:
    """What makes the real part, and the imaginary part, of a product with stacked parts."""
    return _beside(a.real, -a.imag), _beside(a.imag, a.real)


def _join_columns(products: Array) -> Array:
    """The complex matrix (m, p) from the products of both parts with both parts, (2 m, 2 p)."""
    upper, lower = jnp.split(products, 2, axis=-2)
    (a, b), (c, d) = jnp.split(upper, 2, axis=-1), jnp.split(lower, 2, axis=-1)
    return lax.complex(a - d, b + c)


def machine_eps(x: Any) -> float:
    """The machine epsilon of the dtype of x, an array or an objective."""
    return float(jnp.finfo(x.dtype).eps)


def default_precision(float64: bool) -> contextlib.AbstractContextManager[None]:
    """A context, of this thread, in which the default float is float64, or float32."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(float64)
    from jax.experimental import enable_x64  # type: ignore[attr-defined]  # JAX before 0.8

    return enable_x64(float64)
