"""Restricted minimisation with products alone: for sparse and matrix-free designs, matrices, and any function."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from chex import Array, Numeric
from jax import lax

from jaxht._pytree import pytree
from jaxht.objectives.objective import Objective
from jaxht.refit.newton import Refit, conjugate_gradients, newton


def minimise_restricted(objective: Objective, region: Any, x: Array, ridge: Array | None = None) -> Refit:
    """Minimise an objective on a region by truncated Newton steps in its coordinates.

    Args:
        objective: gives predict, value, gradient, ``hessian`` and ``preconditioner``.
        region: a :class:`jaxht.Support`, perhaps with bounds, of which the indices are not needed; or a
            :class:`jaxht.Subspace`.
        x: start; what lies off the region is left out.
        ridge: like x or None, added to f as ``1/2 sum_j ridge_j x_j^2``.

    Cost: a few Newton steps, each of up to MAX_PRODUCTS products with the Hessian, fewer where it is well conditioned
    on the region once its diagonal is scaled.
    """
    ridge = jnp.zeros((), x.dtype) if ridge is None else ridge
    entries = jnp.broadcast_to(lax.stop_gradient(objective.preconditioner() + ridge), x.shape)
    subproblem = Restricted(objective, region, ridge, region.diagonal(entries.astype(x.dtype)))
    w, pred, converged = newton(subproblem, region.coordinates(x), region.inside, region.bounds)
    return Refit(region.point(w), pred, converged)


@pytree
class Restricted:
    """A :class:`jaxht.refit.newton.Subproblem`: f as a function of the coordinates of a region."""

    objective: Any
    region: Any
    ridge: Array
    diagonal: Array

    def predict(self, w: Array) -> Array:
        """That of the objective."""
        return self.objective.predict(self.region.point(w))

    def value(self, w: Array, pred: Array) -> Array:
        """f, with the ridge."""
        x = self.region.point(w)
        return self.objective.value(x, pred) + jnp.vdot(x, self.ridge * x) / 2

    def gradient(self, w: Array, pred: Array) -> Array:
        """grad f along the region."""
        x = self.region.point(w)
        return self.region.coordinates(self.objective.gradient(x, pred) + self.ridge * x)

    def solver(self, w: Array, pred: Array, free: Array, tau: Numeric, rtol: float) -> Callable[[Array], Array]:
        """Conjugate gradients on the free coordinates; the identity on the others."""
        hessian = self.objective.hessian(self.region.point(w), pred, tau)
        diagonal = jnp.where(free & (self.diagonal > 0), self.diagonal, 1)

        def product(v: Array) -> Array:
            x = self.region.point(jnp.where(free, v, 0))
            return jnp.where(free, self.region.coordinates(hessian(x) + self.ridge * x), v)

        return lambda g: conjugate_gradients(product, g, diagonal, rtol, MAX_PRODUCTS)


MAX_PRODUCTS = 200
