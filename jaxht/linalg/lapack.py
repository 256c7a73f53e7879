"""Factorisations of matrices by LAPACK, on CPUs one lane of a vmap after the other.

In JAX 0.10 a batched call of LAPACK divides its lanes among the threads of XLA's pool and waits for
them on one of these threads. As many such calls side by side as the pool has threads wait for each
other for ever; two suffice on two cores. A call for a single matrix does not use the pool.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from jaxht._typing import Array
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.kernels.factor import invert_cholesky, takes_matrices
from jaxht.linalg.lanes import lane_by_lane
from jaxht.linalg.platform import by_platform

__all__ = [
    "cholesky",
    "eigh",
    "inverse_cholesky",
    "qr",
    "solve_by_factor",
    "svd",
    "triangular_factor",
]


def _factorisation(function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """A function of a matrix, lane by lane, and so its derivative, in forward mode."""
    differentiable = jax.custom_jvp(lane_by_lane(function))
    tangent = lane_by_lane(lambda x, x_dot: jax.jvp(function, (x,), (x_dot,))[1])
    differentiable.defjvp(
        lambda primals, tangents: (differentiable(*primals), tangent(*primals, *tangents))
    )
    return functools.wraps(function)(differentiable)


@_factorisation
def qr(x: Array) -> tuple[Array, Array]:
    """The reduced QR decomposition of x (m, n)."""
    Q, R = jnp.linalg.qr(x)
    return Q, R


@_factorisation
def triangular_factor(x: Array) -> Array:
    """R of the reduced QR decomposition of x (m, n)."""
    return jnp.linalg.qr(x, mode="r")


@_factorisation
def svd(x: Array) -> tuple[Array, Array, Array]:
    """U, s and V' of the reduced singular value decomposition of x (m, n)."""
    # LAPACK does not end where entries are infinite; of NaN it makes NaN.
    x = jnp.where(jnp.all(jnp.isfinite(x)), x, jnp.nan)
    U, s, Vt = jnp.linalg.svd(x, full_matrices=False)
    return U, s, Vt


@_factorisation
def eigh(x: Array) -> tuple[Array, Array]:
    """Eigenvalues, increasing, and eigenvectors of a symmetric x (p, p), of which the lower half is
    read."""
    values, V = jnp.linalg.eigh(x, symmetrize_input=False)
    return values, V


@_factorisation
def cholesky(x: Array) -> Array:
    """The Cholesky factor L of x = L L' from the lower half of x (p, p); NaN unless x is positive
    definite."""
    return jnp.linalg.cholesky(x, symmetrize_input=False)


@lane_by_lane
def solve_by_factor(factor: Array, b: Array) -> Array:
    """``(L L')^-1 b`` for a Cholesky factor L (p, p) and b (p,). Without a derivative."""
    return jax.scipy.linalg.cho_solve((factor, True), b)


# From this size on OpenBLAS, whose LAPACK JAX calls on CPUs, solves for a matrix by threads of its
# own, beside those of XLA: 0.7 ms instead of 10 us for p = 32, on two cores that are not idle.
LEAF_SIZE = 32
MAX_LEAVES = 8


def _inverse_triangular(L: Array) -> Array:
    """``L^-1`` of a lower triangular L (p, p), in few blocks of less than LEAF_SIZE, if any."""
    p = L.shape[0]
    if p < LEAF_SIZE or p > MAX_LEAVES * LEAF_SIZE:
        return jax.scipy.linalg.solve_triangular(L, jnp.eye(p, dtype=L.dtype), lower=True)
    h = -(-p // 2)
    upper = _inverse_triangular(L[:h, :h])
    lower = _inverse_triangular(L[h:, h:])
    below = -matmul(lower, matmul(L[h:, :h], upper))
    return jnp.block([[upper, jnp.zeros((h, p - h), L.dtype)], [below, lower]])


@lane_by_lane
def _invert_by_lapack(x: Array) -> Array:
    return _inverse_triangular(jnp.linalg.cholesky(x, symmetrize_input=False))


def _invert_lanes_by_lapack(x: Array) -> list[Array]:
    return [jax.vmap(_invert_by_lapack)(x) if x.shape[0] > 1 else _invert_by_lapack(x[0])[None]]


def _invert_lanes_by_kernel(x: Array) -> list[Array]:
    takes = takes_matrices(x.shape[1], x.dtype)
    return [invert_cholesky(x)] if takes else _invert_lanes_by_lapack(x)


_invert_lanes = by_platform(
    "invert_cholesky", lambda x: [x], default=_invert_lanes_by_lapack, cuda=_invert_lanes_by_kernel
)


@custom_vmap
def _invert_factors(x: Array) -> Array:
    """``L^-1`` of each of the matrices x (lanes, p, p)."""
    return _invert_lanes(x)[0]


@_invert_factors.def_vmap
def _(axis_size: int, in_batched: list[bool], x: Array) -> tuple[Array, bool]:
    return _invert_factors(x.reshape(-1, *x.shape[2:])).reshape(x.shape), True


def _invert_factor(x: Array) -> Array:
    return _invert_factors(x[None])[0]


@jax.custom_jvp
def inverse_cholesky(x: Array) -> Array:
    """``L^-1`` for x = L L' (p, p), whose lower half is read; NaN unless x is positive definite.
    Cost: 2/3 p^3."""
    return _invert_factor(x)


@inverse_cholesky.defjvp
def _inverse_cholesky_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,) = primals
    (x_dot,) = tangents
    half = inverse_cholesky(x)
    # d(L) = L phi(L^-1 dx L^-T), where phi takes the lower half and half of the diagonal.
    change = matmul(matmul(half, x_dot), half.T)
    lower = jnp.tril(change) - jnp.diag(jnp.diagonal(change)) / 2
    return half, -matmul(lower, half)
