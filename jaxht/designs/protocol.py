"""The base class of designs: what objectives ask of a matrix."""

import abc
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp

from jaxht._typing import Array, ArrayDType, Numeric
from jaxht.linalg.inner_products import real_dtype

__all__ = ["Design"]


class Design(abc.ABC):
    """What an objective may ask of a design matrix A (n, d), samples in rows.

    The rows of a design need no more than a minibatch asks of them.
    """

    if TYPE_CHECKING:  # at run time no property, which the field of a dataclass could not replace

        @property
        def shape(self) -> tuple[int, int]:
            """(n, d)."""

        @property
        def dtype(self) -> ArrayDType:
            """float32, float64, complex64 or complex128."""

    #: Whether its entries, and the vectors of its products, may be complex.
    takes_complex: ClassVar[bool] = False

    def gathers(self, k_max: int | None) -> bool:
        """Whether a refit on k_max columns should gather them and solve directly; else it uses
        products alone."""
        raise NotImplementedError

    @abc.abstractmethod
    def matvec(self, x: Array) -> Array:
        """``A x``: x is (d,) or (d, c), the result (n,) or (n, c)."""

    @abc.abstractmethod
    def rmatvec(self, r: Array) -> Array:
        """``A^H r``, the adjoint: r is (n,) or (n, c), the result (d,) or (d, c)."""

    def columns(self, indices: Array) -> Array:
        """The columns at ``indices`` (k_max,) as rows (k_max, n), ``A_F^T``; 0 where an index is
        d."""
        raise NotImplementedError

    def rows(self, indices: Array) -> Any:
        """The rows at ``indices`` (b,), which may repeat, as a design (b, d) with products; 0 where
        an index is n."""
        raise NotImplementedError

    def squared(self, weights: Array) -> Array:
        """``sum_i weights_i |A_ij|^2`` for all j: weights is (n,), the result (d,)."""
        raise NotImplementedError

    def squared_about(self, center: Array, weights: Array) -> Array:
        """``sum_i weights_i (A_ij - center_j)^2`` for all j, (d,), of a real A and weights (n,) that
        are not negative; without loss of digits where there are :meth:`central_moments`."""
        total = jnp.sum(weights)
        moments = self.central_moments(weights / jnp.where(total > 0, total, 1))
        if moments is None:
            along = 2 * center * self.rmatvec(weights)
            return jnp.maximum(self.squared(weights) - along + center**2 * total, 0)
        mean, variance = moments
        squares = variance + (mean - center) ** 2
        return jnp.where(total > 0, total * squares, 0)

    def row_norms(self) -> Array:
        """Euclidean norms of the rows, (n,)."""
        raise NotImplementedError

    def column_norms(self) -> Array:
        """Euclidean norms of the columns, (d,)."""
        return jnp.sqrt(self.squared(jnp.ones(self.shape[0], real_dtype(self))))

    def rounding_norms(self) -> Array:
        """What the rounding errors of products are relative to, as they are to the norms of the
        columns where nothing cancels, (d,)."""
        return self.column_norms()

    def cancellation(self) -> Numeric:
        """By how much the rounding errors of products may exceed those of products in which nothing
        cancels, a bound."""
        return 1

    def central_moments(self, weights: Array | None) -> tuple[Array, Array] | None:
        """Mean and variance of each column, for weights (n,) of sum 1, or None for equal ones.

        None: the variance must be found from :meth:`squared`, at the loss of the digits of the
        squared mean.
        """
        return None

    #: Whether there is :meth:`divide_columns`, and so :func:`jaxht.standardize`.
    divides_columns: ClassVar[bool] = False

    def divide_columns(self, divisors: Array, norms: Array | None) -> "Design":
        """The design with column j divided by ``divisors_j``, stored in the same way.

        ``norms`` are those of the result where they are known, for a design that needs products to
        find them.
        """
        raise NotImplementedError

    def pad(self, num_samples: int, num_columns: int) -> "Design | None":
        """The design with further rows, whatever they are, and further columns, of zeros in the
        rows that it has; on the host. None: its shape stays as it is."""
        return None

    def for_products(self) -> "Design":
        """The same design as it is fastest in many products, computed within a program."""
        return self

    def gram_product(self, v: Array, weights: Array) -> Array:
        """``A^H (weights * (A v))``; a design may compute it in one pass."""
        return self.rmatvec(weights * self.matvec(v))

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of x for one output: (d,), unless x is a matrix."""
        return self.shape[1:]

    @property
    def needs_entries(self) -> bool:
        """Whether x must be an array; else it may be known by its products alone."""
        return True

    @property
    def has_column_norms(self) -> bool:
        """Whether :meth:`column_norms` costs less than a product for each column."""
        return True

    @property
    def has_cheap_columns(self) -> bool:
        """Whether a few columns cost less than a product."""
        return True

    @property
    def in_memory(self) -> bool:
        """Whether its entries are in memory, unless it is known by products alone."""
        return True

    @property
    def dense_array(self) -> Array | None:
        """A as an array (n, d), where it is stored as one."""
        return None
