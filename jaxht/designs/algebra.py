"""Products of operators that are made of others: sums, compositions, adjoints, and operators side by
side or one above the other.

Each takes a vector and the designs, as functions that are defined once, so that operators made in
the same way share a compile.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._typing import Array, ArrayDType
from jaxht.designs.protocol import Design
from jaxht.linalg.inner_products import is_complex, squares


def times(x: Array, A: Design) -> Array:
    """``A x``, with the real and the imaginary part as two columns where A alone is real."""
    return _multiply(A.matvec, A, x)


def adjoint_times(r: Array, A: Design) -> Array:
    """``A^H r``, as :func:`times`."""
    return _multiply(A.rmatvec, A, r)


def _multiply(product: Callable[[Array], Array], A: Design, v: Array) -> Array:
    if is_complex(A) or not is_complex(v):
        return product(v)
    parts = jnp.stack([v.real, v.imag], axis=1)
    images = product(parts)
    return lax.complex(images[:, 0], images[:, 1])


# ---- composition ----


def compose(x: Array, A: Design, B: Design) -> Array:
    """``A B x``."""
    image = times(x, B)
    return times(image, A)


def compose_adjoint(r: Array, A: Design, B: Design) -> Array:
    """``B^H A^H r``."""
    image = adjoint_times(r, A)
    return adjoint_times(image, B)


def norms_of_composition(A: Any, B: Any) -> Array | None:
    """The norms of the columns of ``A B`` where they follow: A has orthonormal columns, or B is
    diagonal."""
    if is_isometry(A):
        return known_norms(B)
    norms = known_norms(A)
    is_diagonal = getattr(B, "product", None) is scale_entries
    if norms is None or not is_diagonal:
        return None
    (entries,) = B.args
    return jnp.abs(entries) * norms


# ---- sums and multiples ----


def add(x: Array, A: Design, B: Design) -> Array:
    """``(A + B) x``."""
    left = times(x, A)
    right = times(x, B)
    return left + right


def add_adjoint(r: Array, A: Design, B: Design) -> Array:
    """``(A + B)^H r``."""
    left = adjoint_times(r, A)
    right = adjoint_times(r, B)
    return left + right


def scale(x: Array, A: Design, c: Array) -> Array:
    """``c A x``."""
    return c * times(x, A)


def scale_adjoint(r: Array, A: Design, c: Array) -> Array:
    """``(c A)^H r``."""
    return c.conj() * adjoint_times(r, A)


def scale_entries(x: Array, entries: Array) -> Array:
    """``diag(entries) x``."""
    return entries * x


def scale_entries_adjoint(r: Array, entries: Array) -> Array:
    """``diag(entries)^H r``."""
    return entries.conj() * r


# ---- adjoints ----


#: ``A^H r`` as a product, and ``A x`` as its adjoint.
swap = adjoint_times
swap_adjoint = times


def transpose(r: Array, A: Design) -> Array:
    """``A^T r``, without conjugates."""
    image = adjoint_times(r.conj(), A)
    return image.conj()


def transpose_adjoint(x: Array, A: Design) -> Array:
    """``conj(A) x``."""
    image = times(x.conj(), A)
    return image.conj()


# ---- side by side, and one above the other ----


def stack_rows(x: Array, *parts: Design) -> Array:
    """``(A_1 x, A_2 x, ...)``."""
    images = [times(x, A) for A in parts]
    return jnp.concatenate(images)


def stack_rows_adjoint(r: Array, *parts: Design) -> Array:
    """``sum_i A_i^H r_i``."""
    heights = [A.shape[0] for A in parts]
    images = map(adjoint_times, _split(r, heights), parts)
    return sum(images)  # type: ignore[return-value]


def stack_columns(x: Array, *parts: Design) -> Array:
    """``sum_i A_i x_i``."""
    widths = [A.shape[1] for A in parts]
    images = map(times, _split(x, widths), parts)
    return sum(images)  # type: ignore[return-value]


def stack_columns_adjoint(r: Array, *parts: Design) -> Array:
    """``(A_1^H r, A_2^H r, ...)``."""
    images = [adjoint_times(r, A) for A in parts]
    return jnp.concatenate(images)


def _split(v: Array, sizes: list[int]) -> list[Array]:
    ends = np.cumsum(sizes).tolist()
    return jnp.split(v, ends[:-1])


def norms_of_rows(parts: tuple[Any, ...]) -> Array | None:
    """The norms of the columns of designs one above the other, where those of all are known."""
    norms = _norms_of_all(parts)
    if norms is None:
        return None
    return jnp.sqrt(sum(map(squares, norms)))


def norms_of_columns(parts: tuple[Any, ...]) -> Array | None:
    """The norms of the columns of designs side by side, where those of all are known."""
    norms = _norms_of_all(parts)
    if norms is None:
        return None
    return jnp.concatenate(norms)


def _norms_of_all(parts: tuple[Any, ...]) -> list[Array] | None:
    norms = []
    for A in parts:
        own = known_norms(A)
        if own is None:
            return None
        norms.append(own)
    return norms


# ---- what is known of a design ----


def known_norms(A: Design) -> Array | None:
    """The norms of the columns where they cost no products, and no pass over a file."""
    if A.has_column_norms and A.in_memory:
        return A.column_norms()
    return None


def common_dtype(*numbers: Any) -> ArrayDType:
    """The dtype that holds numbers of all these dtypes, or scalars: JAX's default float where all
    are integers."""
    known = []
    for each in numbers:
        if isinstance(each, np.dtype):
            each = jax.dtypes.canonicalize_dtype(each)
        known.append(each)
    dtype = jnp.result_type(*known)
    if jnp.issubdtype(dtype, jnp.inexact):
        return dtype
    return jnp.result_type(float)


def is_isometry(A: Any) -> bool:
    """Whether the columns are known to be orthonormal."""
    product = getattr(A, "product", None)
    return getattr(product, "is_isometry", False)
