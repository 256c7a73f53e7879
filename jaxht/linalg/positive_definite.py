"""Positive definite matrices: Cholesky factor, determinant, inverse."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from jaxht._pytree import Array
from jaxht.linalg.precision import matmul


def lane_by_lane(factorise: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of a matrix of which vmap takes the lanes one after the other on CPUs.

    In JAX 0.10, batched calls of LAPACK share out their lanes among threads, and wait for them; as many such calls as
    there are threads, side by side, wait for each other for ever. Two suffice on two cores: f at two points.
    """
    single = custom_vmap(factorise)

    @single.def_vmap
    def _(axis_size: int, in_batched: list[bool], x: Array) -> tuple[Array, bool]:
        if not in_batched[0]:
            return single(x), False
        lanes = lax.platform_dependent(x, cpu=lambda x: lax.map(single, x), default=jax.vmap(factorise))
        return lanes, True

    return single


@lane_by_lane
def cholesky(x: Array) -> Array:
    """The Cholesky factor from the lower half of x; NaN unless x is positive definite."""
    return jnp.linalg.cholesky(x, symmetrize_input=False)


@lane_by_lane
def _inverse_factor(x: Array) -> Array:
    return jax.scipy.linalg.solve_triangular(cholesky(x), jnp.eye(x.shape[0], dtype=x.dtype), lower=True)


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
    half = _inverse_factor(x)
    return symmetric(matmul(half.T, half))


@inverse.defjvp
def _inverse_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (x_dot,) = primals, tangents
    sigma = inverse(x)
    return sigma, -matmul(matmul(sigma, x_dot), sigma)


def symmetric(v: Array) -> Array:
    """``(v + v') / 2``."""
    return (v + v.T) / 2
