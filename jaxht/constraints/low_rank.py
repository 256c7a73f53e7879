"""Matrices of low rank."""

from typing import Any, cast

import jax.numpy as jnp

from jaxht._dataclass import integer, pytree, replace, static
from jaxht._typing import ArrayDType, Numeric
from jaxht.constraints.constraint import Constraint, check_sparsity
from jaxht.constraints.subspace import Subspace
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.products import Factored
from jaxht.linalg.svd import TruncatedSVD, truncated_svd

__all__ = ["LowRank"]


@pytree
class LowRank(Constraint):
    """Matrices of rank at most k: ``C = { X : rank(X) <= k }``.

    The projection keeps the k largest singular values (Eckart & Young 1936). For
    :class:`jaxht.IHT`, :class:`jaxht.NIHT`, :class:`jaxht.HTP` and all stochastic solvers; solvers
    that select coordinates one by one raise ValueError. The model subspace of a point, and so
    ``result.support``, is a :class:`jaxht.Subspace`.

    A decomposition rounds: an x that has converged still changes by some units in its last place,
    and so do its singular vectors. Therefore ``Stop.rtol`` is 32 times machine epsilon by default,
    and ``support_patience`` ends no run.

    Args:
        k: rank, an integer; static or traced, as in :class:`jaxht.Sparse`.
        k_max: static upper bound on k, an int. None: k, where k is a Python int; else min(m, n),
            for which all decompositions are full.
        exact: bool, static; whether singular value decompositions are full. None: they are full
            where min(m, n) < 2.5 (k_max + 8); otherwise the leading triplets are computed by
            subspace iteration, started at the column space of the previous iterate. Near
            convergence of the run this takes a few products with a block of k_max + 8 columns.
        rtol: error to which that iteration is run, a scalar, traced, see
            :func:`jaxht.linalg.svd.truncated_svd`; a decomposition that does not reach it is
            computed in full. None: the square root of machine epsilon.
        factored: bool, static; whether x is stored as a :class:`jaxht.Factored`, ``U diag(s) V'``,
            so that no array of m n numbers is made: for IHT and SGHT, on MultiResponse, Softmax and
            matrix_completion. It saves time where k_max is far below m and n, and the data are
            smaller than m n: see docs/problems.md.

    Raises:
        ValueError: from :meth:`prepare`, which every solver calls, for variables that are no
            matrices, and for k or k_max that are out of range or of a wrong dtype.

    Cost: a projection takes a full singular value decomposition, O(m n min(m, n)), or subspace
    iterations of O(m n k_max) each, as ``exact`` says.

    Source: Zhou, Yuan & Feng 2018, §2; Jain, Meka & Dhillon 2010.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> constraint = jaxht.LowRank(1).prepare((3, 2))
        >>> x, space = constraint.project(jnp.array([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
        >>> [round(float(x_ij), 3) for x_ij in x.ravel()], space.U.shape
        ([3.0, 0.0, 0.0, 0.0, 0.0, 0.0], (3, 1))
    """

    k: Numeric = integer(default=None)
    k_max: int | None = static(default=None)
    exact: bool | None = static(default=None)
    rtol: Numeric | None = None
    factored: bool = static(default=False)

    coordinatewise = False  # along a matrix of rank 1 the curvature of f may be the largest
    rounding = 32.0  # measured: up to 10

    def prepare(self, shape: tuple[int, ...]) -> "LowRank":
        """Fill in k_max, and check what is known at trace time."""
        if len(shape) != 2:
            raise ValueError(
                f"LowRank constrains matrices; the objective's variable has shape {shape}"
            )
        smallest = min(shape)
        k_max = check_sparsity(self.k, self.k_max, smallest, None, shape, "min(m, n)")
        return replace(self, k_max=smallest if k_max is None else k_max)

    @property
    def stores_entries(self) -> bool:
        """Whether points are arrays."""
        return not self.factored

    def zero(self, shape: tuple[int, ...], dtype: ArrayDType) -> Any:
        """The zero matrix, as an array or in factors."""
        if self.factored:
            return Factored.zeros(shape, self._width, dtype)
        return super().zero(shape, dtype)

    def project(self, z: Any, near: Any = None) -> tuple[Any, Subspace]:
        """The nearest matrix of rank k, with its column and row space; near: a matrix with a
        similar column space."""
        found = self._svd(z, near)
        x = Factored(found.U, found.s, found.V) if self.factored else found.matrix
        return x, Subspace(found.U, found.V, found.error)

    def support_of(self, x: Any) -> Subspace:
        """The column and row space of x, without singular values that are rounding errors."""
        in_factors = isinstance(x, Factored)
        found = TruncatedSVD(x, x.U, x.s, x.V, None) if in_factors else self._svd(x, x)
        noise = max(x.shape) * machine_eps(x) * found.s[:1]
        U = jnp.where(found.s <= noise, 0, found.U)
        V = jnp.where(found.s <= noise, 0, found.V)
        return Subspace(U, V, found.error)

    @property
    def limit(self) -> Numeric:
        """The smaller of k and k_max."""
        return jnp.minimum(self.k, self._width)

    @property
    def _width(self) -> int:
        """k_max, which :meth:`prepare` has filled in."""
        return cast(int, self.k_max)

    def _svd(self, z: Any, near: Any) -> TruncatedSVD:
        return truncated_svd(z, self.limit, self.k_max, near=near, exact=self.exact, rtol=self.rtol)
