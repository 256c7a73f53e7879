"""Symmetric linear systems: by a Cholesky factor, or by conjugate gradients."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax

from jaxht._loops import while_loop
from jaxht._typing import Array, Numeric
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.inner_products import is_complex, real_vdot
from jaxht.linalg.lapack import cholesky, inverse_cholesky, solve_by_factor
from jaxht.linalg.normal_equations import ratio, scale_gram
from jaxht.linalg.platform import has_gpu

__all__ = ["cholesky_solver", "conjugate_gradients"]


def cholesky_solver(gram: Array, penalty: Array) -> Callable[[Array], Array]:
    """``s -> (B'B + diag(penalty))^-1 s``, as good as one Cholesky factor in working precision
    makes it."""
    scaled, scale = scale_gram(gram, penalty)
    solve_scaled = _scaled_solver(lax.stop_gradient(scaled))

    def product(v):
        return matmul(scaled, v)

    def solve(s):
        if is_complex(scaled):  # of which the transpose is the conjugate
            return lax.custom_linear_solve(
                product,
                s,
                lambda _, s: solve_scaled(s),
                lambda _, s: solve_scaled(s.conj()).conj(),
            )
        return lax.custom_linear_solve(product, s, lambda _, s: solve_scaled(s), symmetric=True)

    return lambda s: scale * solve(scale * s)


def _scaled_solver(scaled: Array) -> Callable[[Array], Array]:
    """Solve with the factor of a scaled matrix."""
    if has_gpu():
        # A product with an inverse takes a tenth of the time of two substitutions.
        root = _finite_or_identity(inverse_cholesky(scaled))
        return lambda s: matmul(matmul(root, s), root.conj())
    factor = _finite_or_identity(cholesky(scaled))
    return lambda s: solve_by_factor(factor, s)


def _finite_or_identity(factor: Array) -> Array:
    """The factor; where there is none, the scaling alone has to do."""
    identity = jnp.eye(factor.shape[0], dtype=factor.dtype)
    return jnp.where(jnp.all(jnp.isfinite(factor)), factor, identity)


def conjugate_gradients(
    product: Callable[[Array], Array],
    b: Array,
    rtol: Numeric,
    max_steps: Numeric,
    precondition: Callable[[Array], Array] = lambda r: r,
) -> Array:
    """Solve ``M v = b`` for a symmetric M known by its products, with an approximation of its
    inverse to precondition (Hestenes 1952).

    Ends where the preconditioned residual has fallen to rtol, or at a direction along which M is
    not positive: then with what there is, at least the direction of b (Dembo & Steihaug 1983). NaN
    where b is. Differentiable in b and M, where they are real.
    """

    def solve(product, b):
        def step(carry):
            count, _, v, residual, direction, norm = carry
            image = product(direction)
            curvature = real_vdot(direction, image)
            convex = curvature > 0
            otherwise = jnp.where(count == 0, 1, 0).astype(curvature.dtype)
            length = jnp.where(convex, ratio(norm, curvature), otherwise)
            v = v + length * direction
            residual = residual - length * image
            scaled = precondition(residual)
            next_norm = real_vdot(residual, scaled)
            direction = scaled + ratio(next_norm, norm) * direction
            goes_on = convex & (next_norm > rtol**2 * start_norm)
            return count + 1, goes_on, v, residual, direction, next_norm

        scaled = precondition(b)
        start_norm = real_vdot(b, scaled)
        start = (0, start_norm > 0, jnp.zeros_like(b), b, scaled, start_norm)
        v = while_loop(lambda carry: (carry[0] < max_steps) & carry[1], step, start)[2]
        return jnp.where(jnp.isnan(start_norm), jnp.nan, v)

    return lax.custom_linear_solve(product, b, solve, symmetric=True)
