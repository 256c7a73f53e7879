"""Refits that need products only: for sparse and matrix-free designs, matrices, and any
function."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax

from jaxht._dataclass import pytree
from jaxht._typing import Array, Numeric
from jaxht.constraints.model_subspace import ModelSubspace
from jaxht.linalg.linear_solvers import conjugate_gradients
from jaxht.objectives.objective import Objective
from jaxht.subproblems.newton import Coordinates, Refit


def refit_by_products(
    objective: Objective, support: ModelSubspace, x: Array, ridge: Array | None = None
) -> Refit:
    """Minimise an objective on a support or a model subspace by truncated Newton steps in its
    coordinates.

    Args:
        objective: any.
        support: optionally with bounds; its indices are not needed.
        x: start; it is projected onto the subspace.
        ridge: shaped like x or None, added to f as ``1/2 sum_j ridge_j x_j^2``.

    Returns:
        A :class:`Refit`.

    Cost: a few Newton steps, each of up to MAX_PRODUCTS products with the Hessian, fewer where it
    is well conditioned on the support after diagonal scaling."""
    return in_subspace(objective, support, x, ridge).minimise()


def in_subspace(
    objective: Objective, support: ModelSubspace, x: Array, ridge: Array | None = None
) -> Coordinates:
    """An objective in the coordinates of a model subspace."""
    ridge = jnp.zeros((), x.dtype) if ridge is None else ridge
    entries = jnp.broadcast_to(
        lax.stop_gradient(objective.majorant().preconditioner() + ridge), x.shape
    )
    f = Restricted(objective, support, ridge, support.diagonal(entries.astype(x.dtype)))
    return Coordinates(f, support.coordinates(x), support.inside, support.bounds, support.point)


@pytree
class Restricted:
    """A :class:`jaxht.subproblems.newton.Subproblem`: f as a function of the coordinates of a model
    subspace."""

    objective: Objective
    support: ModelSubspace
    ridge: Array
    diagonal: Array

    def predict(self, w: Array) -> Array:
        """The prediction of the objective."""
        return self.objective.predict(self.support.point(w))

    def value(self, w: Array, pred: Array) -> Array:
        """f plus the ridge."""
        x = self.support.point(w)
        return self.objective.value(x, pred) + jnp.vdot(x, self.ridge * x) / 2

    def gradient(self, w: Array, pred: Array) -> Array:
        """grad f in coordinates."""
        x = self.support.point(w)
        return self.support.coordinates(self.objective.gradient(x, pred) + self.ridge * x)

    def solver(
        self, w: Array, pred: Array, free: Array, tau: Numeric, rtol: float
    ) -> Callable[[Array], Array]:
        """Conjugate gradients on the free coordinates; the identity on the others."""
        hessian = self.objective.hessian(self.support.point(w), pred, tau)
        diagonal = jnp.where(free & (self.diagonal > 0), self.diagonal, 1)

        def product(v: Array) -> Array:
            x = self.support.point(jnp.where(free, v, 0))
            return jnp.where(free, self.support.coordinates(hessian(x) + self.ridge * x), v)

        return lambda g: conjugate_gradients(product, g, diagonal, rtol, MAX_PRODUCTS)

    def curvatures(self) -> Array:
        """Those that systems are preconditioned with."""
        return self.diagonal


MAX_PRODUCTS = 200
