"""Inner products of real and of complex vectors.

Complex vectors are taken as elements of a real space, with the inner product ``Re(u^H v)``: values
of functions, norms and step sizes are real then, and what holds of real vectors holds of them. Of
real arrays every function here is the ordinary operation, in the same program.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._typing import Array, ArrayDType
from jaxht.linalg.full_precision import matmul

__all__ = [
    "binary_unit",
    "check_real",
    "check_real_array",
    "common_unit",
    "conj_matmul",
    "is_complex",
    "rankable",
    "real_dtype",
    "real_part",
    "real_products",
    "real_vdot",
    "scaled_norm",
    "square_ratio",
    "squares",
    "widen",
]


def is_complex(v: Any) -> bool:
    """Whether an array, or what else has a dtype, is complex."""
    return jnp.issubdtype(v.dtype, jnp.complexfloating)


def real_dtype(v: Any) -> ArrayDType:
    """The dtype of the real parts of an array, or of what else has a dtype."""
    return real_part(v.dtype)


def real_part(dtype: ArrayDType) -> ArrayDType:
    """The dtype of the real parts of numbers of a dtype: itself where they are real."""
    return jnp.finfo(dtype).dtype if jnp.issubdtype(dtype, jnp.complexfloating) else dtype


def check_real(objective: Any) -> None:
    """Raise ValueError for an objective of complex numbers, where these have no place."""
    if is_complex(objective):
        raise ValueError(
            f"objective must be real here; got one of {jnp.dtype(objective.dtype)}: solvers, paths, "
            "validation, optimality and certificates take complex numbers"
        )


def check_real_array(name: str, v: Any) -> None:
    """Raise ValueError for complex numbers, whose imaginary parts would be left out."""
    if np.iscomplexobj(v):
        raise ValueError(f"{name} must be real; got complex numbers")


def real_vdot(u: Array, v: Array) -> Array:
    """``Re(u^H v)`` of all entries, a real scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.linalg.inner_products import real_vdot
        >>> float(real_vdot(jnp.array([1 + 2j]), jnp.array([3j])))
        6.0
    """
    product = jnp.vdot(u, v)
    return product.real if is_complex(product) else product


def real_products(u: Array, v: Array) -> Array:
    """``Re(conj(u_i) v_i)``, entry by entry."""
    if not is_complex(u):
        return u * v
    return u.real * v.real + u.imag * v.imag


def squares(v: Array) -> Array:
    """``|v_i|^2``, real."""
    return v.real**2 + v.imag**2 if is_complex(v) else v**2


def square_ratio(v: Array, r: Array) -> Array:
    """``|v_i|^2 / r_i`` for r > 0, real: nothing over- or underflows that the quotient does not."""
    if not is_complex(v):
        return v * (v / r)
    return v.real * (v.real / r) + v.imag * (v.imag / r)


def widen(v: Array) -> Array:
    """v, in float32 where it is of less precision."""
    is_narrow = jnp.dtype(v.dtype).itemsize < 4
    return v.astype(jnp.float32) if is_narrow else v


def common_unit(v: Array, axis: Any = None) -> Array:
    """The largest magnitude along axes, which stay with length 1, as far as its inverse is a normal
    number: of v divided by it, squares neither over- nor underflow. Its derivative is 0."""
    tiny = float(jnp.finfo(v.dtype).tiny)
    largest = jnp.max(jnp.abs(v), axis=axis, keepdims=True, initial=0)
    return lax.stop_gradient(jnp.clip(largest, tiny, 1 / tiny))


def binary_unit(v: Array) -> Array:
    """:func:`common_unit` rounded down to a power of two: a division by it is exact."""
    _, exponent = jnp.frexp(common_unit(v))
    return jnp.ldexp(jnp.ones((), v.dtype), exponent - 1)


def scaled_norm(v: Array) -> Array:
    """The l2 norm of all entries, in units of the largest: squares neither over- nor underflow."""
    unit = common_unit(v)
    return jnp.ravel(unit)[0] * jnp.sqrt(jnp.sum(squares(v / unit)))


def rankable(z: Array) -> Array:
    """Real numbers whose magnitudes are those of z: z itself where it is real."""
    return jnp.abs(z) if is_complex(z) else z


def conj_matmul(a: Array, b: Array) -> Array:
    """``conj(a) @ b`` in full precision, where b has fewer entries than a: b and the product are
    conjugated, and a is read as it lies."""
    if not is_complex(a):
        return matmul(a, b)
    return matmul(a, b.conj()).conj()
