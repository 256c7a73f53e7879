"""Restricted minimisation with products alone: for sparse and matrix-free designs, matrices, and any function."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from chex import Array, Numeric
from jax import lax

from jaxht.objectives.newton import Minimum, conjugate_gradients, newton
from jaxht.objectives.objective import Objective
from jaxht.support import Support
from jaxht.tree import pytree


def minimise_masked(objective: Objective, region: Support, x: Array, ridge: Array | None = None) -> Minimum:
    """Minimise an objective on a support by truncated Newton steps, all in the objective's own variable.

    Args:
        objective: gives predict, value, gradient, ``hessian`` and ``preconditioner``.
        region: support F, perhaps with bounds. Its indices are not needed.
        x: start; entries off F count as 0.
        ridge: like x or None, added to f as ``1/2 sum_j ridge_j x_j^2``.

    Cost: a few Newton steps, each of up to MAX_PRODUCTS products with the Hessian, fewer where it is well conditioned
    on F once its diagonal is scaled.
    """
    ridge = jnp.zeros((), x.dtype) if ridge is None else ridge
    diagonal = lax.stop_gradient(objective.preconditioner() + ridge)
    subproblem = Masked(objective, region.mask, ridge, diagonal)
    return newton(subproblem, x, region.mask, region.bounds)


@pytree
class Masked:
    """A :class:`jaxht.objectives.newton.Subproblem`: f on the vectors that vanish off a mask."""

    objective: Any
    mask: Array
    ridge: Array
    diagonal: Array

    def predict(self, w: Array) -> Array:
        """That of the objective."""
        return self.objective.predict(w)

    def value(self, w: Array, pred: Array) -> Array:
        """f, with the ridge."""
        return self.objective.value(w, pred) + jnp.vdot(w, self.ridge * w) / 2

    def gradient(self, w: Array, pred: Array) -> Array:
        """grad f on the mask."""
        return jnp.where(self.mask, self.objective.gradient(w, pred) + self.ridge * w, 0)

    def solver(self, w: Array, pred: Array, free: Array, tau: Numeric, rtol: float) -> Callable[[Array], Array]:
        """Conjugate gradients on the free coordinates; the identity on the others."""
        hessian = self.objective.hessian(w, pred, tau)
        diagonal = jnp.where(free & (self.diagonal > 0), self.diagonal, 1).astype(w.dtype)

        def product(v: Array) -> Array:
            inner = jnp.where(free, v, 0)
            return jnp.where(free, hessian(inner) + self.ridge * v, v)

        return lambda g: conjugate_gradients(product, g, diagonal, rtol, MAX_PRODUCTS)


MAX_PRODUCTS = 200
