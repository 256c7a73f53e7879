"""Matrices that are known by their factors and products, for variables too large to be held entry by entry.

A :class:`Factored` point minus a step along a gradient that is itself a product is a :class:`Sum`, of which subspace
iteration (:mod:`jaxht.linalg.svd`) takes the products that it needs: no array of m n entries is ever made.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from chex import Array, ArrayDType, Numeric

from jaxht._pytree import pytree
from jaxht.linalg.precision import matmul


class Arithmetic:
    """Sums and multiples of matrices, of which only the products are asked."""

    shape: tuple[int, int]

    def __add__(self, other: Any) -> "Sum":
        return Sum((*_terms(self), *_terms(other)))

    def __sub__(self, other: Any) -> "Sum":
        return self + -1.0 * other

    def __rmul__(self, factor: Numeric) -> "Sum":
        return Sum(tuple((factor * number, matrix) for number, matrix in _terms(self)))


@dataclasses.dataclass(frozen=True)
class Sum(Arithmetic):
    """``sum_i c_i M_i``.

    Attributes:
        terms: pairs (c_i, M_i); each M_i is an array, a :class:`Factored` or a :class:`Product`.
    """

    terms: tuple[tuple[Any, Any], ...]

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """(m, n)."""
        return self.terms[0][1].shape

    @property
    def dtype(self) -> ArrayDType:
        """That of the first matrix."""
        return self.terms[0][1].dtype

    @property
    def T(self) -> "Sum":
        """Transposed."""
        return Sum(tuple((number, matrix.T) for number, matrix in self.terms))

    def __matmul__(self, W: Array) -> Array:
        images = [number * multiply(matrix, W) for number, matrix in self.terms]
        return sum(images[1:], start=images[0])


@pytree
class Factored(Arithmetic):
    """``U diag(s) V'``.

    Attributes:
        U: (m, k_max), orthonormal columns, then columns of 0.
        s: (k_max,), falling, then 0.
        V: (n, k_max), likewise.
    """

    U: Array
    s: Array
    V: Array

    @classmethod
    def zeros(cls, shape: tuple[int, ...], k_max: int, dtype: ArrayDType) -> "Factored":
        """0."""
        (m, n), k = shape, k_max
        return cls(jnp.zeros((m, k), dtype), jnp.zeros(k, dtype), jnp.zeros((n, k), dtype))

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """(m, n)."""
        return self.U.shape[-2], self.V.shape[-2]

    @property
    def dtype(self) -> ArrayDType:
        """That of the factors."""
        return self.s.dtype

    @property
    def T(self) -> "Factored":
        """Transposed."""
        return Factored(self.V, self.s, self.U)

    def __matmul__(self, W: Array) -> Array:
        return matmul(self.U, self.s[:, None] * matmul(self.V.T, W))

    def dense(self) -> Array:
        """As an array (m, n), also where there are lanes in front."""
        return matmul(self.U * self.s[..., None, :], jnp.swapaxes(self.V, -1, -2))

    def entries(self, rows: Array, columns: Array) -> Array:
        """Those at (rows_i, columns_i), 0 where a row is m. Cost: k_max each."""
        left = jnp.take(self.U * self.s, rows, axis=0, mode="fill", fill_value=0)
        return jnp.sum(left * jnp.take(self.V, columns, axis=0, mode="clip"), axis=1)


@dataclasses.dataclass(frozen=True)
class Product(Arithmetic):
    """A matrix by two functions, ``M W = forward(W)`` and ``M' W = backward(W)``, for W of several columns."""

    forward: Callable[[Array], Array]
    backward: Callable[[Array], Array]
    shape: tuple[int, int]
    dtype: ArrayDType

    @property
    def T(self) -> "Product":
        """Transposed."""
        return Product(self.backward, self.forward, self.shape[::-1], self.dtype)

    def __matmul__(self, W: Array) -> Array:
        return self.forward(W)


def multiply(matrix: Any, W: Array) -> Array:
    """``matrix @ W`` in full precision, of an array or a matrix that is known by its products."""
    return matrix @ W if isinstance(matrix, Arithmetic) else matmul(matrix, W)


def square_norm(x: Any) -> Array:
    """``||x||^2`` of an array, of factors or of a sum of them."""
    if not isinstance(x, Arithmetic):
        return jnp.vdot(x, x)
    if isinstance(x, Factored):
        return jnp.vdot(x.s, x.s)
    # A difference of the squares would lose what is below the root of machine epsilon.
    left = jnp.concatenate([number * (part.U * part.s) for number, part in x.terms], axis=1)  # type: ignore[attr-defined]
    right = jnp.concatenate([part.V for _, part in x.terms], axis=1)  # type: ignore[attr-defined]
    core = matmul(jnp.linalg.qr(left, mode="r"), jnp.linalg.qr(right, mode="r").T)
    return jnp.vdot(core, core)


def _terms(matrix: Any) -> tuple[tuple[Any, Any], ...]:
    return matrix.terms if isinstance(matrix, Sum) else ((1.0, matrix),)
