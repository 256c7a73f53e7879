"""Matrices that are known by their factors or products, for variables too large to be held entry by
entry.

A :class:`Factored` point minus a step along a gradient that is itself a product is a :class:`Sum`,
of which subspace iteration (:mod:`jaxht.linalg.svd`) takes the products that it needs: no array of
m n entries is ever made.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import jax.numpy as jnp
from jax import lax

from jaxht._dataclass import pytree
from jaxht._typing import Array, ArrayDType, Numeric
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.inner_products import real_vdot, squares
from jaxht.linalg.lapack import triangular_factor

__all__ = [
    "Arithmetic",
    "Factored",
    "Product",
    "Sum",
    "Variable",
    "apply_to_columns",
    "apply_weights",
    "drop_unweighted",
    "known_by_products",
    "multiply",
    "square_norm",
    "squares_in_units",
    "weighted_square",
]


class Arithmetic:
    """Sums and multiples of matrices of which only products are needed."""

    shape: tuple[int, int]

    def __add__(self, other: Any) -> "Sum":
        return Sum((*_terms(self), *_terms(other)))

    def __sub__(self, other: Any) -> "Sum":
        return self + -1.0 * other

    def __rmul__(self, factor: Numeric) -> "Sum":
        return Sum(tuple((factor * number, matrix) for number, matrix in _terms(self)))


@dataclasses.dataclass(frozen=True)
class Sum(Arithmetic):
    """A linear combination of matrices, ``sum_i c_i M_i``.

    Attributes:
        terms: pairs (c_i, M_i); each M_i is an array (m, n), a :class:`Factored` or a
            :class:`Product`.
    """

    terms: tuple[tuple[Any, Any], ...]

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """(m, n)."""
        return self.terms[0][1].shape

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of the first matrix."""
        return self.terms[0][1].dtype

    @property
    def T(self) -> "Sum":
        """The transpose."""
        return Sum(tuple((number, matrix.T) for number, matrix in self.terms))

    def __matmul__(self, W: Array) -> Array:
        images = [number * multiply(matrix, W) for number, matrix in self.terms]
        return sum(images[1:], start=images[0])


@pytree
class Factored(Arithmetic):
    """A matrix of rank at most k_max by its factors, ``U diag(s) V'``.

    Attributes:
        U: (m, k_max), orthonormal columns, then columns of 0.
        s: (k_max,), singular values, falling, then 0.
        V: (n, k_max), orthonormal columns, then columns of 0.

    Cost: memory (m + n + 1) k_max; a product with (n, c) takes (m + n) k_max c.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import Factored
        >>> X = Factored(jnp.eye(3, 1), jnp.array([2.0]), jnp.eye(4, 1))
        >>> X.shape, (X @ jnp.ones((4, 1))).ravel().tolist()
        ((3, 4), [2.0, 0.0, 0.0])
        >>> X.dense()[0].tolist()
        [2.0, 0.0, 0.0, 0.0]
    """

    U: Array
    s: Array
    V: Array

    @classmethod
    def zeros(cls, shape: tuple[int, ...], k_max: int, dtype: ArrayDType) -> "Factored":
        """The zero matrix of shape (m, n), with k_max columns in each factor."""
        m, n = shape
        U = jnp.zeros((m, k_max), dtype)
        V = jnp.zeros((n, k_max), dtype)
        return cls(U, jnp.zeros(k_max, dtype), V)

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """(m, n)."""
        return self.U.shape[-2], self.V.shape[-2]

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of the factors."""
        return self.s.dtype

    @property
    def T(self) -> "Factored":
        """The transpose."""
        return Factored(self.V, self.s, self.U)

    def __matmul__(self, W: Array) -> Array:
        return matmul(self.U, self.s[:, None] * matmul(self.V.T, W))

    def dense(self) -> Array:
        """The matrix as an array (m, n), also where there are lanes in front."""
        return matmul(self.U * self.s[..., None, :], jnp.swapaxes(self.V, -1, -2))

    def entries(self, rows: Array, columns: Array) -> Array:
        """The entries at (rows_i, columns_i), both (n,) integers; 0 where a row is m. Cost: k_max
        each."""
        left = jnp.take(self.U * self.s, rows, axis=0, mode="fill", fill_value=0)
        return jnp.sum(left * jnp.take(self.V, columns, axis=0, mode="clip"), axis=1)


#: The variable of a problem as it is stored.
Variable: TypeAlias = Array | Factored


@dataclasses.dataclass(frozen=True)
class Product(Arithmetic):
    """A matrix by two functions, ``M W = forward(W)`` and ``M' W = backward(W)``, for W of several
    columns."""

    forward: Callable[[Array], Array]
    backward: Callable[[Array], Array]
    shape: tuple[int, int]
    dtype: ArrayDType

    @property
    def T(self) -> "Product":
        """The transpose."""
        return Product(self.backward, self.forward, self.shape[::-1], self.dtype)

    def __matmul__(self, W: Array) -> Array:
        return self.forward(W)


def known_by_products(x: Any) -> bool:
    """Whether a matrix is known by its products alone, and is not an array."""
    return isinstance(x, Arithmetic)


def multiply(matrix: Any, W: Array) -> Array:
    """``matrix @ W`` in full precision, of an array or a matrix that is known by its products."""
    return matrix @ W if known_by_products(matrix) else matmul(matrix, W)


def apply_to_columns(product: Callable[[Array], Array], x: Any) -> Array:
    """``A x`` for a product ``A w`` with arrays: of factors, from that with U."""
    if isinstance(x, Factored):
        return matmul(product(x.U) * x.s, x.V.T)
    return product(x)


# A longer vector takes more time in one reduction than in several kernels.
MAX_ENTRIES_IN_ONE_REDUCTION = 2**14


def squares_in_units(x: Any, y: Any, unit: Array) -> tuple[Array, Array]:
    """``||x||^2`` and ``||y||^2`` in units of ``unit^2``, of arrays in one pass. Not
    differentiable."""
    x, y = (_multiple(1 / unit, v) for v in (x, y))
    if known_by_products(x) or known_by_products(y) or x.size > MAX_ENTRIES_IN_ONE_REDUCTION:
        return square_norm(x), square_norm(y)
    # One reduction of two operands, which XLA does not split into several kernels as it does that
    # of one.
    each = [squares(lax.stop_gradient(v)).ravel() for v in (x, y)]
    zero = jnp.zeros((), each[0].dtype)
    return tuple(lax.reduce(each, [zero, zero], lambda a, b: [a[0] + b[0], a[1] + b[1]], (0,)))


def _multiple(number: Array, x: Any) -> Any:
    """``number x``, of factors as factors."""
    return Factored(x.U, number * x.s, x.V) if isinstance(x, Factored) else number * x


def square_norm(x: Any) -> Array:
    """Compute ``||x||^2`` of an array, of factors or of a sum of factors."""
    if not known_by_products(x):
        return real_vdot(x, x)
    if isinstance(x, Factored):
        return jnp.vdot(x.s, x.s)
    # A difference of the squares would lose what is below the root of machine epsilon.
    left = jnp.concatenate([number * (part.U * part.s) for number, part in x.terms], axis=1)
    right = jnp.concatenate([part.V for _, part in x.terms], axis=1)
    core = matmul(triangular_factor(left), triangular_factor(right).T)
    return jnp.vdot(core, core)


def drop_unweighted(weights: Array, v: Array) -> Array:
    """v, with 0 where it has no weight and is not finite: there it may overflow or be NaN."""
    return jnp.where((weights == 0) & ~jnp.isfinite(v), 0, v)


def apply_weights(weights: Array, v: Array) -> Array:
    """``s v``; 0 where s is 0, whatever v is there."""
    return weights * drop_unweighted(weights, v)


def weighted_square(x: Any, weights: Numeric) -> Array:
    """Compute ``sum_j weights_j |x_j|^2``; of factors with a single weight."""
    if known_by_products(x):
        return weights * square_norm(x)
    return real_vdot(x, weights * x)


def _terms(matrix: Any) -> tuple[tuple[Any, Any], ...]:
    return matrix.terms if isinstance(matrix, Sum) else ((1.0, matrix),)
