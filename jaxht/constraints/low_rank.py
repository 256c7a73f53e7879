"""Matrices of low rank."""

import dataclasses
from typing import Any, ClassVar, cast

import jax.numpy as jnp
from chex import Numeric

from jaxht._pytree import integer, pytree, static
from jaxht.constraints.constraint import Constraint, check_sparsity
from jaxht.constraints.subspace import Subspace
from jaxht.linalg.factored import Factored
from jaxht.linalg.svd import TruncatedSVD, truncated_svd


@pytree
class LowRank(Constraint):
    """Matrices of rank at most k: ``C = { X : rank(X) <= k }``.

    Args:
        k: rank; static or traced, as in :class:`jaxht.Sparse`.
        k_max: static upper bound on a traced k, worth giving: None is min(m, n), by which all decompositions are full.
        exact: static; whether singular value decompositions are full. None: where min(m, n) < 2.5 (k_max + 8); else the
            leading triplets come by subspace iteration, from the column space of the iterate before. In a run that
            comes to rest so does the iteration: it costs a few products with a block of k_max + 8 columns.
        rtol: error to which that iteration goes, see :func:`jaxht.linalg.svd.truncated_svd`; a decomposition that does
            not reach it is done in full.
        factored: static; whether x is held as a :class:`jaxht.Factored`, ``U diag(s) V'``, and no array of m n numbers
            is made: for IHT and SG-HT, on MultiResponse, Softmax and MatrixCompletion. Worth it where k_max is far
            below m and n, and the data are as well: see docs/problems.md.

    ``project`` keeps the k largest singular values (Eckart & Young 1936). For :class:`jaxht.IHT`, :class:`jaxht.NIHT`,
    :class:`jaxht.HTP` and all stochastic solvers; those that select coordinates one by one refuse it. The model
    subspace of a point is a :class:`jaxht.Subspace`, which is what ``result.support`` holds.

    A decomposition rounds: x at rest still moves by some units in its last place, and its spaces turn. ``Stop.rtol`` is
    32 times machine epsilon by default, and ``support_patience`` ends no run.

    Source: Zhou, Yuan & Feng 2018, §2; Jain, Meka & Dhillon 2010.
    """

    k: Numeric = integer()
    k_max: int | None = static(default=None)
    exact: bool | None = static(default=None)
    rtol: Numeric | None = None
    factored: bool = static(default=False)

    coordinatewise: ClassVar[bool] = False  # along a matrix of rank 1 the curvature of f may be the largest
    rounding: ClassVar[float] = 32.0  # measured: up to 10

    def prepare(self, shape: tuple[int, ...]) -> "LowRank":
        """Fill in k_max, and check what is known at trace time."""
        if len(shape) != 2:
            raise ValueError(f"LowRank constrains matrices; the objective's variable has shape {shape}")
        smallest = min(shape)
        k_max = check_sparsity(self.k, self.k_max, smallest, None, shape, called="min(m, n)")
        return dataclasses.replace(self, k_max=smallest if k_max is None else k_max)

    def project(self, z: Any, near: Any = None) -> tuple[Any, Subspace]:
        """The nearest matrix of rank k, with its column and row space; near: one whose column space is not far."""
        found = self._svd(z, near)
        x = Factored(found.U, found.s, found.V) if self.factored else found.matrix
        return x, Subspace(found.U, found.V, found.error)

    def support_of(self, x: Any) -> Subspace:
        """The column and row space of x: singular values that are rounding count as 0."""
        found = TruncatedSVD(x, x.U, x.s, x.V, None) if isinstance(x, Factored) else self._svd(x, x)
        noise = max(x.shape) * float(jnp.finfo(x.dtype).eps) * found.s[:1]
        U, V = (jnp.where(found.s <= noise, 0, basis) for basis in (found.U, found.V))
        return Subspace(U, V, found.error)

    @property
    def limit(self) -> Numeric:
        """k, at most k_max."""
        return jnp.minimum(self.k, self._width)

    @property
    def _width(self) -> int:
        """k_max, which :meth:`prepare` has filled in."""
        return cast(int, self.k_max)

    def _svd(self, z: Any, near: Any) -> TruncatedSVD:
        return truncated_svd(z, self.limit, self.k_max, near=near, exact=self.exact, rtol=self.rtol)
