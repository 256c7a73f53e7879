"""Symmetric linear operators, known by their products: Hessians, and their upper bounds."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array, ArrayDType
from jaxht.linalg.eigenvalues import SAFETY, largest_eigenvalue
from jaxht.linalg.inner_products import real_dtype, real_vdot

__all__ = ["SymmetricOperator"]


# Unit vectors that are multiplied together where the diagonal is computed.
UNITS_AT_A_TIME = 64


class SymmetricOperator:
    """A symmetric positive semi-definite B on variables of some shape, of which only ``B v`` is
    known.

    Subclasses that know more (a diagonal, a cheaper quadratic form) say so; what stands here holds
    for all.

    Args:
        product: v -> B v, both shaped like the variable.
        shape: of the variable.
        dtype: of the variable. Of complex ones B is Hermitian, or linear over the real numbers and
            symmetric in ``Re(u^H v)``.

    Cost: that of the products.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> B = jaxht.extend.SymmetricOperator(lambda v: 2 * v, (3,), jnp.float32)
        >>> B(jnp.ones(3)).tolist(), B.diagonal().tolist()
        ([2.0, 2.0, 2.0], [2.0, 2.0, 2.0])
    """

    def __init__(
        self, product: Callable[[Array], Array], shape: tuple[int, ...], dtype: ArrayDType
    ) -> None:
        self.product = product
        self.shape = shape
        self.dtype = dtype

    def __call__(self, v: Array) -> Array:
        """``B v``."""
        return self.product(v)

    def quadratic_form(self, v: Array, pred: Array) -> Array:
        """``v' B v``, real; pred is the objective's prediction for v, which spares linear models a
        product."""
        return real_vdot(v, self(v))

    def rows(self, indices: Array) -> Array:
        """The rows at ``indices`` (k,) of the flat variable, (k, d); 0 where an index is d. Cost: k
        products."""
        units = indices[:, None] == lax.iota(jnp.int32, math.prod(self.shape))[None]
        return jax.vmap(self._multiply_flat)(units.astype(self.dtype)).conj()

    def matrix(self) -> Array:
        """The matrix, (d, d). Cost: d products."""
        return self.rows(lax.iota(jnp.int32, math.prod(self.shape)))

    def diagonal(self) -> Array:
        """The diagonal, like the variable. Cost: d products."""
        index = lax.iota(jnp.int32, math.prod(self.shape))

        def entry(i: Array) -> Array:
            unit = (index == i).astype(self.dtype).reshape(self.shape)
            return real_vdot(unit, self(unit))

        return lax.map(entry, index, batch_size=UNITS_AT_A_TIME).reshape(self.shape)

    def preconditioner(self) -> Array:
        """The diagonal, or near it but for a factor, where that costs less than d products; else
        1."""
        return jnp.ones((), real_dtype(self))

    def norm(self) -> Array:
        """An upper estimate of the largest eigenvalue. Cost: some 16 products."""
        d = math.prod(self.shape)
        return SAFETY * largest_eigenvalue(self._multiply_flat, d, self.dtype)

    def _multiply_flat(self, v: Array) -> Array:
        return self(v.reshape(self.shape)).ravel()

    def coordinate_norm(self) -> Array:
        """An upper estimate of the largest diagonal entry: :meth:`norm` bounds it, where the
        diagonal costs more."""
        return self.norm()
