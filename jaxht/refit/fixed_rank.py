"""The matrices of a fixed rank as a manifold: derivatives of stationary points, whose spaces move as well."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._pytree import Array, Numeric, pytree
from jaxht.constraints.subspace import Subspace
from jaxht.linalg.linear_solvers import cholesky_solver, conjugate_gradients
from jaxht.linalg.precision import matmul
from jaxht.objectives.objective import Objective
from jaxht.refit.newton import Coordinates

MAX_PRODUCTS = 1000


def at_rank(objective: Objective, space: Subspace, x: Array) -> Coordinates:
    """An objective on the matrices of the rank of x (m, p), in their entries.

    Cost of a system: conjugate gradients, a product with the Hessian and a few with the bases in each step.
    """
    f = FixedRank(objective, lax.stop_gradient(dataclasses.replace(space, error=None)))
    return Coordinates(f, x, jnp.ones(x.shape, bool), None, lambda x: x)


@pytree
class FixedRank:
    r"""A :class:`jaxht.refit.newton.Subproblem`: f near a matrix X = U w V', on the matrices of its rank.

    A matrix Y near X is retracted to R(Y) of this rank, and the gradient of f there projected onto the tangent space,

    .. math::
        P_T \nabla f(R) + Y - R, \qquad R = P_U Y P_V, \qquad P_T G = P_U G + (I - P_U)\, G\, P_V

    with the projections P_U onto the column space of Y V and P_V onto that of Y' U, which are the column and row space
    of Y where its rank is that of X. It is 0 where Y is a stationary point on these matrices, and its derivative at X
    is the Riemannian Hessian on the tangent space, the curvature of the manifold included, and the identity on its
    complement.
    """

    objective: Objective
    space: Subspace

    def predict(self, w: Array) -> Array:
        """The prediction of the objective."""
        return self.objective.predict(w)

    def value(self, w: Array, pred: Array) -> Array:
        """f."""
        return self.objective.value(w, pred)

    def gradient(self, w: Array, pred: Array) -> Array:
        """The Riemannian gradient, and the distance from the manifold."""
        of_columns, of_rows = _onto(matmul(w, self.space.V)), _onto(matmul(w.T, self.space.U))
        point = of_rows(of_columns(w).T).T
        G = self.objective.gradient(point, self.objective.predict(point))
        along = of_columns(G)
        return along + of_rows((G - along).T).T + w - point

    def solver(self, w: Array, pred: Array, free: Array, tau: Numeric, rtol: float) -> Callable[[Array], Array]:
        """Conjugate gradients; without tau."""
        product = jax.linearize(lambda w: self.gradient(w, pred), w)[1]
        return lambda g: conjugate_gradients(product, g, jnp.ones((), w.dtype), rtol, MAX_PRODUCTS)

    def curvatures(self) -> Array:
        """1: the entries of a matrix have one unit."""
        return jnp.ones((), self.space.U.dtype)


def _onto(basis: Array) -> Callable[[Array], Array]:
    """The projection of columns onto the space that the columns of ``basis`` span, of which some may be 0."""
    solve = cholesky_solver(matmul(basis.T, basis), jnp.zeros(basis.shape[1], basis.dtype))
    return lambda G: matmul(basis, jax.vmap(solve, in_axes=1, out_axes=1)(matmul(basis.T, G)))
