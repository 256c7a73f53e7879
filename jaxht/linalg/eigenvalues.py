"""The largest eigenvalue of a symmetric operator, by the Lanczos method."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from chex import Array, ArrayDType
from jax import lax

NUM_STEPS = 16
# What 16 Lanczos steps from a random start miss of the top of a Marchenko-Pastur spectrum (measured: at most 5 %;
# 16 power steps miss up to 18 %).
SAFETY = 1.05


def largest_eigenvalue(product: Callable[[Array], Array], d: int, dtype: ArrayDType) -> Array:
    """Estimate the largest eigenvalue of a symmetric positive semi-definite operator from below.

    The largest Ritz value in the Krylov space of NUM_STEPS products from a fixed pseudo-random start.

    Args:
        product: v (d,) -> B v (d,).
        d: dimension.
        dtype: float32 or float64.

    Returns:
        Scalar; at most the true value, which times SAFETY it exceeds except for adversarial spectra. 0 for B = 0.

    Cost: NUM_STEPS products, and the eigenvalues of a tridiagonal matrix of that size.

    Source: Lanczos 1950, without reorthogonalisation.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.linalg.eigenvalues import largest_eigenvalue
        >>> diagonal = jnp.array([1.0, 2.0, 3.0])
        >>> round(float(largest_eigenvalue(lambda v: diagonal * v, 3, jnp.float32)), 3)
        3.0
    """

    def step(carry, _):
        v_prev, v, beta = carry
        image = product(v) - beta * v_prev
        alpha = jnp.vdot(v, image)
        image, beta = normalised(image - alpha * v)
        return (v, image, beta), (alpha, beta)

    start, _ = normalised(jax.random.normal(jax.random.key(0), (d,), dtype))
    zero = jnp.zeros((), dtype)
    _, (alpha, beta) = lax.scan(step, (jnp.zeros_like(start), start, zero), length=NUM_STEPS)
    return jnp.linalg.eigvalsh(jnp.diag(alpha) + jnp.diag(beta[:-1], 1) + jnp.diag(beta[:-1], -1))[-1]


def normalised(v: Array) -> tuple[Array, Array]:
    """Compute v / ||v|| and ||v||, without over- or underflow of the squares; 0 and 0 for v = 0."""
    tiny = float(jnp.finfo(v.dtype).tiny)
    scale = jnp.clip(jnp.max(jnp.abs(v)), tiny, 1 / tiny)
    unit = v / scale
    norm = jnp.sqrt(jnp.vdot(unit, unit))
    return unit / jnp.where(norm > 0, norm, 1), scale * norm
