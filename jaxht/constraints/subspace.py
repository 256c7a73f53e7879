"""The column and row space of a matrix of low rank, the subspace over which it is refitted."""

from typing import Any, ClassVar

import jax.numpy as jnp

from jaxht._dataclass import pytree, replace
from jaxht._typing import Array
from jaxht.linalg.full_precision import matmul

__all__ = ["Subspace"]


@pytree
class Subspace:
    r"""The matrices :math:`\{ U w V^T \}`, w any square matrix: a linear space of matrices of rank
    at most k.

    Attributes:
        U: (m, k_max), an orthonormal basis of the column space, then columns of 0.
        V: (n, k_max), an orthonormal basis of the row space, then columns of 0.
        error: the error of the decomposition that gave it (:class:`jaxht.linalg.svd.TruncatedSVD`),
            a scalar, or None.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> space = jaxht.Subspace(jnp.eye(3, 1), jnp.eye(2, 1))
        >>> space.restrict(jnp.ones((3, 2))).tolist()
        [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """

    U: Array
    V: Array
    error: Array | None = None

    bounds: ClassVar[Any] = None
    coordinatewise: ClassVar[bool] = False

    @property
    def k_max(self) -> int:
        """Static bound on the rank."""
        return self.U.shape[-1]

    @property
    def size(self) -> Array:
        """The dimension of the two spaces, int32."""
        return jnp.sum(jnp.any(self.U != 0, axis=-2), axis=-1, dtype=jnp.int32)

    @property
    def mask(self) -> Array:
        """A matrix of low rank has no support.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "a matrix of low rank has no support: this asks for a constraint such as Sparse or "
            "Groups"
        )

    @property
    def inside(self) -> Array:
        """bool (k_max, k_max): False where w is 0 for all points."""
        return jnp.any(self.U != 0, axis=0)[:, None] & jnp.any(self.V != 0, axis=0)

    def point(self, w: Array) -> Array:
        """``U w V'``."""
        return matmul(matmul(self.U, w), self.V.T)

    def coordinates(self, v: Array) -> Array:
        """``U' v V``, the adjoint of :meth:`point`."""
        return matmul(matmul(self.U.T, v), self.V)

    def diagonal(self, diagonal: Array) -> Array:
        """The diagonal in coordinates w of a quadratic form whose diagonal in the entries of the
        matrix is given."""
        return matmul(matmul((self.U**2).T, diagonal), self.V**2)

    def restrict(self, v: Array) -> Array:
        """``U U' v V V'``, the nearest matrix of the space."""
        return self.point(self.coordinates(v))

    def equals(self, other: "Subspace") -> Array:
        """Whether both have the same bases, bit by bit; in floating point they hardly ever do."""
        return jnp.all(self.U == other.U) & jnp.all(self.V == other.V)

    def row_space(self) -> "Subspace":
        """The subspace of w V' = U' X, that is of X in the basis U: its column space has the
        identity as basis."""
        k = self.k_max
        identity = jnp.where(jnp.any(self.U != 0, axis=0), jnp.eye(k, dtype=self.U.dtype), 0)
        return replace(self, U=identity)
