"""Positive definite matrices: determinant, inverse."""

import jax
import jax.numpy as jnp

from jaxht._typing import Array
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.lapack import cholesky, inverse_cholesky

__all__ = ["inverse", "logdet", "symmetric"]


@jax.custom_jvp
def logdet(x: Array) -> Array:
    """log det x, and -infinity unless x is positive definite. Cost: p^3 / 3."""
    # A NaN in x goes unseen here; the trace of S x, which has it too, shows it.
    value = 2 * jnp.sum(jnp.log(jnp.diagonal(cholesky(x))))
    return jnp.where(jnp.isnan(value), -jnp.inf, value)


@logdet.defjvp
def _logdet_jvp(primals: tuple, tangents: tuple) -> tuple:
    return logdet(*primals), jnp.vdot(inverse(*primals), *tangents)


@jax.custom_jvp
def inverse(x: Array) -> Array:
    """x^-1, exactly symmetric; NaN unless x is positive definite. Cost: 10/3 p^3."""
    half = inverse_cholesky(x)
    return symmetric(matmul(half.T, half))


@inverse.defjvp
def _inverse_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,) = primals
    (x_dot,) = tangents
    sigma = inverse(x)
    return sigma, -matmul(matmul(sigma, x_dot), sigma)


def symmetric(v: Array) -> Array:
    """``(v + v') / 2``."""
    return (v + v.T) / 2
