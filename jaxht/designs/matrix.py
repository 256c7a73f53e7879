"""A design whose variable is a matrix: linear measurements of it, such as some of its entries."""

from typing import Any

import jax.numpy as jnp

from jaxht._dataclass import pytree, static
from jaxht._typing import Array, ArrayDType, Numeric
from jaxht.designs.entries import Entries
from jaxht.designs.protocol import Design
from jaxht.linalg.products import Factored, Product


@pytree
class MatrixDesign(Design):
    """Inner products with n matrices, ``X (m, p) -> <A_i, X>``, held as a design over the m p
    entries of X by row.

    Args:
        vectorised: a design n x (m p): dense, sparse, an operator, or
            :class:`jaxht.designs.Entries`.
        matrix_shape: static, (m, p).

    With entries, X may be :class:`jaxht.Factored`.

    Cost: that of the design over the entries.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A = jaxht.designs.MatrixDesign(jaxht.design(jnp.eye(6)), (2, 3))
        >>> A.matvec(jnp.arange(6.0).reshape(2, 3)).tolist()
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """

    vectorised: Any
    matrix_shape: tuple[int, int] = static()

    @property
    def shape(self) -> tuple[int, int]:
        """(n, m p)."""
        return self.vectorised.shape

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of the measurements."""
        return self.vectorised.dtype

    def gathers(self, k_max: int | None) -> bool:
        """Whether the design over the entries does."""
        return self.vectorised.gathers(k_max)

    def matvec(self, X: Any) -> Array:
        """``<A_i, X>``, (n,), of X (m, p), or of :class:`jaxht.Factored`. Cost: n m p; with entries
        n, or n k_max."""
        if isinstance(X, Factored):
            return X.entries(*self._places)
        return self.vectorised.matvec(X.ravel())

    def rmatvec(self, r: Array) -> Array:
        """``sum_i r_i A_i``, (m, p). Cost: n m p; with entries n + m p."""
        return self.vectorised.rmatvec(r).reshape(self.matrix_shape)

    def adjoint(self, r: Array) -> Product:
        """With entries, ``sum_i r_i A_i`` known by its products. Cost of a product: n for each
        column."""
        m, p = self.matrix_shape
        rows, columns = self._places

        def forward(W: Array) -> Array:
            images = r[:, None] * jnp.take(W, columns, axis=0)
            return jnp.zeros((m, W.shape[1]), W.dtype).at[rows].add(images, mode="drop")

        def backward(W: Array) -> Array:
            images = r[:, None] * jnp.take(W, rows, axis=0, mode="fill", fill_value=0)
            return jnp.zeros((p, W.shape[1]), W.dtype).at[columns].add(images)

        return Product(forward, backward, self.matrix_shape, self.dtype)

    def columns(self, indices: Array) -> Array:
        """The entries at ``indices`` (k_max,) of every A_i, as rows (k_max, n); 0 where an index is
        m p."""
        return self.vectorised.columns(indices)

    def rows(self, indices: Array) -> "MatrixDesign":
        """The measurements at ``indices`` (b,); 0 where an index is n."""
        return MatrixDesign(self.vectorised.rows(indices), self.matrix_shape)

    def squared(self, weights: Array) -> Array:
        """``sum_i weights_i A_i^2`` entry by entry, (m, p)."""
        return self.vectorised.squared(weights).reshape(self.matrix_shape)

    def row_norms(self) -> Array:
        """Frobenius norms of the A_i, (n,)."""
        return self.vectorised.row_norms()

    def column_norms(self) -> Array:
        """The norm of the n coefficients of each entry of X, (m, p)."""
        return self.vectorised.column_norms().reshape(self.matrix_shape)

    def rounding_norms(self) -> Array:
        """Those of the design of vectors."""
        return self.vectorised.rounding_norms().reshape(self.matrix_shape)

    def cancellation(self) -> Numeric:
        """That of the vectorised design."""
        return self.vectorised.cancellation()

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """(m, p)."""
        return self.matrix_shape

    @property
    def has_column_norms(self) -> bool:
        """Whether the design over the entries does."""
        return self.vectorised.has_column_norms

    @property
    def needs_entries(self) -> bool:
        """Whether X must be an array, and may not be :class:`jaxht.Factored`."""
        return not isinstance(self.vectorised, Entries)

    @property
    def _places(self) -> tuple[Array, Array]:
        """The rows and columns of the observed entries; a row is m where nothing is observed."""
        p = self.matrix_shape[1]
        return self.vectorised.index // p, self.vectorised.index % p
