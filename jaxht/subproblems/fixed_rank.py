"""The matrices of a fixed rank as a manifold: derivatives of stationary points, whose spaces move
as well."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._dataclass import pytree, static
from jaxht._typing import Array, Numeric
from jaxht.constraints.subspace import Subspace
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.linalg.linear_solvers import conjugate_gradients
from jaxht.linalg.products import Factored, known_by_products, multiply
from jaxht.objectives.objective import Objective
from jaxht.subproblems.coordinate_functions import INEXACT, Region
from jaxht.subproblems.restricted_problem import RestrictedProblem

# Products of a system with the Hessian, without a preconditioner.
MAX_MANIFOLD_PRODUCTS = 1000


def restrict_to_rank(objective: Objective, space: Subspace, x: Any) -> RestrictedProblem:
    """An objective on the matrices of the rank of x, an array (m, p) or in factors, in two factors
    of this rank.

    Cost of a system: conjugate gradients, a product with the Hessian and a few with the bases in
    each step.
    """
    in_factors = known_by_products(x)
    space = lax.stop_gradient(dataclasses.replace(space, error=None))
    present = jnp.any(space.U != 0, axis=0)
    P = lax.stop_gradient(multiply(x, space.V))
    norms = jnp.linalg.norm(P, axis=0)
    s = jnp.where(present, norms, 1)
    f = FixedRank(objective, space, s, in_factors)
    w = jnp.concatenate([P, jnp.zeros_like(space.V)])

    def point(w):
        P, W = f.factors(w)
        return _decompose(P, W, x) if in_factors else f.point(P, W)

    is_free = jnp.broadcast_to(present, w.shape)
    return RestrictedProblem(f, w, Region(is_free), point)


@pytree
class FixedRank:
    r"""An objective near a matrix X, on the matrices of its rank: a
    :class:`jaxht.subproblems.coordinate_functions.SmoothFunction`.

    With orthonormal bases U and V of its column and row space, and s its singular values, the
    coordinates are two factors, one above the other,

    .. math::
        w = (P; Q) \mapsto P\, (V + (I - V V^T)\, Q\, diag(s)^{-1})^T

    with P = X V and Q = 0 at X, where the derivative is an isometry onto the tangent space. The
    part of Q in the row space, which moves nothing, adds half of its square to f. The Hessian at X
    is the Riemannian one, in which the manifold's curvature counts. Of factors, no array of m p
    numbers is made.
    """

    objective: Objective
    space: Subspace
    s: Array
    in_factors: bool = static()

    def factors(self, w: Array) -> tuple[Array, Array]:
        """P (m, k) and W (p, k) of the point P W'."""
        num_rows = self.space.U.shape[0]
        P, Q = jnp.split(w, [num_rows])
        outside = Q - self._in_row_space(Q)
        return P, self.space.V + outside / self.s

    def point(self, P: Array, W: Array) -> Any:
        """``P W'``; in factors that are not orthonormal, for products alone."""
        if not self.in_factors:
            return matmul(P, W.T)
        ones = jnp.ones(P.shape[1], P.dtype)
        return Factored(P, ones, W)

    def predict(self, w: Array) -> Array:
        """The prediction of the objective."""
        P, W = self.factors(w)
        return self.objective.predict(self.point(P, W))

    def gradient(self, w: Array, pred: Array) -> Array:
        """The derivative by w, from products with that of f by the matrix."""
        (P, W), pull_back = jax.vjp(self.factors, w)
        G = self.objective.gradient(self.point(P, W), pred)
        idle = self._in_row_space(w[P.shape[0] :])
        by_factors = (multiply(G, W), multiply(G.T, P))
        (gradient,) = pull_back(by_factors)
        return gradient + jnp.concatenate([jnp.zeros_like(P), idle])

    def solver(
        self, w: Array, pred: Array, free: Array, tau: Numeric, rtol: float | None
    ) -> Callable[[Array], Array]:
        """Conjugate gradients; without tau."""

        def gradient(w):
            return self.gradient(w, self.predict(w))

        _, hessian = jax.linearize(gradient, w)

        def product(v):
            moved = jnp.where(free, v, 0)
            return jnp.where(free, hessian(moved), v)

        rtol = INEXACT if rtol is None else rtol
        return lambda g: conjugate_gradients(product, g, rtol, MAX_MANIFOLD_PRODUCTS)

    def curvatures(self) -> Array:
        """1: the coordinates are isometric."""
        return jnp.ones((), self.s.dtype)

    def _in_row_space(self, Q: Array) -> Array:
        V = self.space.V
        return matmul(V, matmul(V.T, Q))


@jax.custom_jvp
def _decompose(P: Array, W: Array, x: Factored) -> Factored:
    """x as it is, with the derivatives of the singular value decomposition of ``P W'``, which is x.

    They are NaN where :func:`has_vectors` is False. Columns of 0 in W stay.
    """
    return x


def has_vectors(s: Array) -> Array:
    """Whether no two singular values other than 0 coincide, to the root of machine epsilon: bool,
    for s (k,)."""
    larger = s[:-1]
    smaller = s[1:]
    rtol = machine_eps(s) ** 0.5
    is_close = larger - smaller <= rtol * larger
    tied = (smaller > 0) & is_close
    return ~jnp.any(tied)


@_decompose.defjvp
def _decompose_jvp(primals: tuple, tangents: tuple) -> tuple[Factored, Factored]:
    P, W, _ = primals
    P_dot, W_dot, _ = tangents
    # As a call, so that derivatives of this rule know that x depends on the factors.
    x = _decompose(*primals)
    present = jnp.any(W != 0, axis=0)
    U = jnp.where(present, x.U, 0)
    V = jnp.where(present, x.V, 0)
    s = jnp.where(present, x.s, 1)
    # A factor, so that all is NaN in reverse mode as well.
    factor = jnp.where(has_vectors(x.s), 1, jnp.nan)
    factor = factor.astype(s.dtype)
    P_dot = factor * P_dot
    W_dot = factor * W_dot
    # V and U multiplied by the derivative of P W' and by its transpose.
    by_P = matmul(P_dot, matmul(W.T, V))
    image = by_P + matmul(P, matmul(W_dot.T, V))
    by_W = matmul(W_dot, matmul(P.T, U))
    adjoint = by_W + matmul(W, matmul(P_dot.T, U))
    core = matmul(U.T, image)
    # 0 on the diagonal, where a difference of squares may not be.
    gaps = (s[None] - s[:, None]) * (s[None] + s[:, None])
    is_tied = gaps == 0
    divisors = jnp.where(is_tied, 1, gaps)
    inverse = jnp.where(is_tied, 0, 1 / divisors)
    inverse *= present[:, None] & present
    left = inverse * (core * s + s[:, None] * core.T)
    right = inverse * (core.T * s + s[:, None] * core)
    U_turn = matmul(U, left)
    U_dot = U_turn + (image - matmul(U, core)) / s
    V_turn = matmul(V, right)
    V_dot = V_turn + (adjoint - matmul(V, core.T)) / s
    return x, Factored(U_dot, jnp.diagonal(core), V_dot)
