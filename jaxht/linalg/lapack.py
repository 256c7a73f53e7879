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
from jax import lax
from jax.custom_batching import custom_vmap

from jaxht._loops import fori_loop
from jaxht._typing import Array
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.inner_products import is_complex
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
    leaf = LEAF_SIZE // 2 if is_complex(L) else LEAF_SIZE
    if p < leaf or p > MAX_LEAVES * leaf:
        return _invert_leaf(L)
    h = -(-p // 2)
    upper = _inverse_triangular(L[:h, :h])
    lower = _inverse_triangular(L[h:, h:])
    below = -matmul(lower, matmul(L[h:, :h], upper))
    return jnp.block([[upper, jnp.zeros((h, p - h), L.dtype)], [below, lower]])


def _invert_leaf(L: Array) -> Array:
    p = L.shape[0]
    if not is_complex(L) or p >= LEAF_SIZE:
        return jax.scipy.linalg.solve_triangular(L, jnp.eye(p, dtype=L.dtype), lower=True)
    # With 2 x 2 real matrices in place of complex numbers: OpenBLAS uses threads for less of these.
    pairs = jnp.array([[L.real, -L.imag], [L.imag, L.real]])
    pairs = pairs.transpose(2, 0, 3, 1).reshape(2 * p, 2 * p)
    identity = jnp.eye(2 * p, dtype=pairs.dtype)[:, ::2]
    inverse = jax.scipy.linalg.solve_triangular(pairs, identity, lower=True)
    return lax.complex(inverse[::2], inverse[1::2])


# From this size on OpenBLAS factorises complex matrices by such threads: 1 ms instead of 20 us for
# p = 96, or 50 ms where the cores are not idle.
COMPLEX_SIZE = 64
PANEL_SIZE = 48


def _factorise(x: Array) -> Array:
    """The Cholesky factor of x (p, p): of many complex columns panel by panel."""
    p = x.shape[0]
    if not is_complex(x) or p < COMPLEX_SIZE:
        return jnp.linalg.cholesky(x, symmetrize_input=False)
    num_panels = -(-p // PANEL_SIZE)
    b = -(-p // num_panels)
    size = num_panels * b
    x = jnp.pad(x, (0, size - p)) + jnp.diag((jnp.arange(size) >= p).astype(x.dtype))
    rows = lax.iota(jnp.int32, size)[:, None]

    def eliminate(i, x):
        first = i * b
        panel = lax.dynamic_slice(x, (0, first), (size, b))
        root = jnp.linalg.cholesky(
            lax.dynamic_slice(panel, (first, 0), (b, b)), symmetrize_input=False
        )
        below = matmul(panel, _inverse_triangular(root).conj().T)
        below = jnp.where(rows >= first + b, below, 0)
        x = x - matmul(below, below.conj().T)
        panel = lax.dynamic_update_slice(below, root, (first, 0))
        return lax.dynamic_update_slice(x, panel, (0, first))

    return fori_loop(0, num_panels, eliminate, x)[:p, :p]


@_factorisation
def cholesky(x: Array) -> Array:
    """The Cholesky factor L of x = L L^H from the lower half of x (p, p); not finite unless x is
    positive definite."""
    return _factorise(x)


@lane_by_lane
def _invert_by_lapack(x: Array) -> Array:
    return _inverse_triangular(_factorise(x))


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
