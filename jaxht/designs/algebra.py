"""Products of operators that are made of others: sums, compositions, adjoints, and operators side by
side or one above the other.

Each takes a vector and the designs, as functions that are defined once, so that operators made in
the same way share a compile.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._typing import Array, ArrayDType
from jaxht.designs.design import Design
from jaxht.linalg.inner_products import is_complex, squares


def times(A: Design, x: Array) -> Array:
    """``A x``, with the real and the imaginary part as two columns where A alone is real."""
    if is_complex(x) and not is_complex(A):
        return _join(A.matvec(_parts(x)))
    return A.matvec(x)


def adjoint_times(A: Design, r: Array) -> Array:
    """``A^H r``, as :func:`times`."""
    if is_complex(r) and not is_complex(A):
        return _join(A.rmatvec(_parts(r)))
    return A.rmatvec(r)


def _parts(v: Array) -> Array:
    return jnp.stack([v.real, v.imag], axis=1)


def _join(parts: Array) -> Array:
    return lax.complex(parts[:, 0], parts[:, 1])


# ---- composition ----


def compose(x: Array, A: Design, B: Design) -> Array:
    """``A B x``."""
    return times(A, times(B, x))


def compose_adjoint(r: Array, A: Design, B: Design) -> Array:
    """``B^H A^H r``."""
    return adjoint_times(B, adjoint_times(A, r))


def norms_of_composition(A: Any, B: Any) -> Array | None:
    """The norms of the columns of ``A B`` where they follow: A has orthonormal columns, or B is
    diagonal."""
    if is_isometry(A):
        return known_norms(B)
    norms = known_norms(A)
    if norms is None or getattr(B, "product", None) is not scale_entries:
        return None
    (entries,) = B.args
    return jnp.abs(entries) * norms


# ---- sums and multiples ----


def add(x: Array, A: Design, B: Design) -> Array:
    """``(A + B) x``."""
    return times(A, x) + times(B, x)


def add_adjoint(r: Array, A: Design, B: Design) -> Array:
    """``(A + B)^H r``."""
    return adjoint_times(A, r) + adjoint_times(B, r)


def scale(x: Array, A: Design, c: Array) -> Array:
    """``c A x``."""
    return c * times(A, x)


def scale_adjoint(r: Array, A: Design, c: Array) -> Array:
    """``(c A)^H r``."""
    return c.conj() * adjoint_times(A, r)


def scale_entries(x: Array, entries: Array) -> Array:
    """``diag(entries) x``."""
    return entries * x


def scale_entries_adjoint(r: Array, entries: Array) -> Array:
    """``diag(entries)^H r``."""
    return entries.conj() * r


# ---- adjoints ----


def swap(r: Array, A: Design) -> Array:
    """``A^H r``."""
    return adjoint_times(A, r)


def swap_adjoint(x: Array, A: Design) -> Array:
    """``A x``."""
    return times(A, x)


def transpose(r: Array, A: Design) -> Array:
    """``A^T r``, without conjugates."""
    return adjoint_times(A, r.conj()).conj()


def transpose_adjoint(x: Array, A: Design) -> Array:
    """``conj(A) x``."""
    return times(A, x.conj()).conj()


# ---- side by side, and one above the other ----


def stack_rows(x: Array, *parts: Design) -> Array:
    """``(A_1 x, A_2 x, ...)``."""
    return jnp.concatenate([times(A, x) for A in parts])


def stack_rows_adjoint(r: Array, *parts: Design) -> Array:
    """``sum_i A_i^H r_i``."""
    pieces = _cut(r, [A.shape[0] for A in parts])
    return sum(adjoint_times(A, piece) for A, piece in zip(parts, pieces, strict=True))  # type: ignore[return-value]


def stack_columns(x: Array, *parts: Design) -> Array:
    """``sum_i A_i x_i``."""
    pieces = _cut(x, [A.shape[1] for A in parts])
    return sum(times(A, piece) for A, piece in zip(parts, pieces, strict=True))  # type: ignore[return-value]


def stack_columns_adjoint(r: Array, *parts: Design) -> Array:
    """``(A_1^H r, A_2^H r, ...)``."""
    return jnp.concatenate([adjoint_times(A, r) for A in parts])


def _cut(v: Array, sizes: list[int]) -> list[Array]:
    return jnp.split(v, np.cumsum(sizes)[:-1].tolist())


def norms_of_rows(parts: tuple[Any, ...]) -> Array | None:
    """The norms of the columns of designs one above the other, where those of all are known."""
    norms = [known_norms(A) for A in parts]
    known = [squares(each) for each in norms if each is not None]
    return jnp.sqrt(sum(known)) if len(known) == len(parts) else None


def norms_of_columns(parts: tuple[Any, ...]) -> Array | None:
    """The norms of the columns of designs side by side, where those of all are known."""
    norms = [known_norms(A) for A in parts]
    known = [each for each in norms if each is not None]
    return jnp.concatenate(known) if len(known) == len(parts) else None


# ---- what is known of a design ----


def known_norms(A: Design) -> Array | None:
    """The norms of the columns where they cost no products, and no pass over a file."""
    return A.column_norms() if A.has_column_norms and A.in_memory else None


def common_dtype(*numbers: Any) -> ArrayDType:
    """The dtype that holds numbers of all these dtypes, or scalars: JAX's default float where all
    are integers."""
    known = [
        jax.dtypes.canonicalize_dtype(each) if isinstance(each, np.dtype) else each
        for each in numbers
    ]
    dtype = jnp.result_type(*known)
    return dtype if jnp.issubdtype(dtype, jnp.inexact) else jnp.result_type(float)


def is_isometry(A: Any) -> bool:
    """Whether the columns are known to be orthonormal."""
    return getattr(getattr(A, "product", None), "is_isometry", False)
