"""Symmetric linear systems: by a Cholesky factor, or by conjugate gradients."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array, Numeric
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.linalg.lapack import cholesky, solve_by_factor

__all__ = ["cholesky_solver", "conjugate_gradients", "ratio"]


def cholesky_solver(gram: Array, penalty: Array) -> Callable[[Array], Array]:
    """``s -> (B'B + diag(penalty))^-1 s``, as good as one Cholesky factor in working precision
    makes it."""
    k = gram.shape[0]
    norm = jnp.sqrt(jnp.diagonal(gram) + penalty)
    # A column whose square overflows must not drop out unseen, like one of zeros.
    scale = jnp.where(norm < jnp.inf, ratio(1.0, norm), jnp.nan)
    # Columns scaled to unit norm, ones on the diagonal also in the padding; a jitter of a few ulps
    # keeps the factor finite for duplicated or too many columns, and where it does not, the scaling
    # alone has to do.
    diagonal = 1 + 4 * k * machine_eps(gram)
    scaled = gram * scale[None] * scale[:, None]
    scaled = jnp.where(jnp.eye(k, dtype=bool), diagonal, scaled)
    factor = cholesky(scaled)
    factor = jnp.where(jnp.all(jnp.isfinite(factor)), factor, jnp.eye(k, dtype=gram.dtype))

    def solve(s):
        return lax.custom_linear_solve(
            lambda v: matmul(scaled, v), s, lambda _, s: solve_by_factor(factor, s), symmetric=True
        )

    return lambda s: scale * solve(scale * s)


def conjugate_gradients(
    product: Callable[[Array], Array], b: Array, diagonal: Numeric, rtol: float, max_steps: int
) -> Array:
    """Solve ``M v = b`` for a symmetric M known by its products, with a diagonal to precondition
    (Hestenes 1952).

    Ends where the preconditioned residual has fallen to rtol, or at a direction along which M is
    not positive: then with what there is, at least the direction of b (Dembo & Steihaug 1983). NaN
    where b is. Differentiable in b and M.
    """

    def solve(product, b):
        def step(carry):
            count, _, v, residual, direction, norm = carry
            image = product(direction)
            curvature = jnp.vdot(direction, image)
            convex = curvature > 0
            otherwise = jnp.where(count == 0, 1, 0).astype(b.dtype)
            length = jnp.where(convex, ratio(norm, curvature), otherwise)
            v = v + length * direction
            residual = residual - length * image
            scaled = residual / diagonal
            next_norm = jnp.vdot(residual, scaled)
            direction = scaled + ratio(next_norm, norm) * direction
            goes_on = convex & (next_norm > rtol**2 * start_norm)
            return count + 1, goes_on, v, residual, direction, next_norm

        scaled = b / diagonal
        start_norm = jnp.vdot(b, scaled)
        start = (0, start_norm > 0, jnp.zeros_like(b), b, scaled, start_norm)
        v = lax.while_loop(lambda carry: (carry[0] < max_steps) & carry[1], step, start)[2]
        return jnp.where(jnp.isnan(start_norm), jnp.nan, v)

    return lax.custom_linear_solve(product, b, solve, symmetric=True)


def ratio(a: Numeric, b: Array) -> Array:
    """a / b, and 0 where b <= 0; NaN stays NaN."""
    return jnp.where(b <= 0, 0, a / jnp.where(b <= 0, 1, b))
