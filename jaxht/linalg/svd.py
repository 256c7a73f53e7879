"""The leading singular triplets of a matrix: by full decomposition, or by subspace iteration with a
warm start."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._loops import while_loop
from jaxht._typing import Array, Leaf, Numeric
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.linalg.inner_products import check_real_array, common_unit
from jaxht.linalg.lapack import qr, svd
from jaxht.linalg.products import Arithmetic, multiply

__all__ = ["TruncatedSVD", "truncated_svd"]


#: Columns beside the k_max wanted ones, in subspace iteration.
OVERSAMPLING = 8
#: Iterations, after which a matrix is decomposed in full.
MAX_SUBSPACE_ITERATIONS = 40


class TruncatedSVD(NamedTuple):
    """The best approximation of a matrix by one of rank k, and its factors.

    Attributes:
        matrix: (m, n), ``U diag(s) V'``; None where Z is known by its products alone.
        U: (m, k_max), orthonormal columns, then columns of 0.
        s: (k_max,) singular values, falling, then 0.
        V: (n, k_max), orthonormal columns, then columns of 0.
        error: scalar, ``||Z'U - V diag(s)||_F / ||Z'U||_F``, whose square is the share of energy
            that half an iteration more would gain; 0 for a full decomposition.
    """

    matrix: Any
    U: Leaf
    s: Leaf
    V: Leaf
    error: Leaf


def truncated_svd(
    Z: Any,
    k: Numeric,
    k_max: int | None = None,
    *,
    near: Any = None,
    exact: bool | None = None,
    rtol: Numeric | None = None,
) -> TruncatedSVD:
    r"""Compute the k leading singular triplets of a matrix.

    Full decomposition, or subspace iteration on k_max + OVERSAMPLING columns,

    .. math::
        V = orth(Y), \quad Z V = U R, \quad \text{the SVD of } R \text{ rotates } U \text{ and } V, \quad Y = Z^T U,

    from ``Y = Z^T [near G, H]``, G and H pseudo-random and fixed: near a matrix of which the
    decomposition is known, as in projected gradient descent, one or two iterations suffice; without
    ``near`` this is the randomised SVD. Where the error is not met in MAX_SUBSPACE_ITERATIONS iterations the
    matrix is decomposed in full.

    Args:
        Z: (m, n), float32 or float64; or a matrix known by its products, see
            :mod:`jaxht.linalg.products`, for which ``matrix`` is None, and which is never
            decomposed in full.
        k: rank, static or traced.
        k_max: static bound on k; None: min(m, n).
        near: (m, n), of rank at most k_max; only its column space counts, and only for the cost.
            None: a random start.
        exact: static; whether to decompose in full. None: where min(m, n) < 2.5 (k_max +
            OVERSAMPLING).
        rtol: bound on the error, traced; None: the root of machine epsilon, with which the distance
            to Z is the least up to rounding.

    Returns:
        :class:`TruncatedSVD`. ``matrix`` has a derivative in Z, and so have U and V but for
        rotations among the columns, if the singular values k and k + 1 differ.

    Cost: in full O(m n min(m, n)); else 4 m n (k_max + OVERSAMPLING) an iteration, once 2 m n k_max
    for near, and QR decompositions of (m + n) (k_max + OVERSAMPLING) numbers. A derivative costs a
    full decomposition.

    Source: Halko, Martinsson & Tropp 2011, Algorithms 4.4 and 5.1; Stewart 1969 for the Ritz
    values.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.linalg.svd import truncated_svd
        >>> found = truncated_svd(jnp.diag(jnp.array([3.0, 2.0, 1.0])), k=1, k_max=2)
        >>> found.U.shape, [round(float(value), 4) for value in found.s]
        ((3, 2), [3.0, 0.0])
    """
    smallest = min(Z.shape)
    k_max = smallest if k_max is None else min(k_max, smallest)
    if exact is None:
        exact = 2 * smallest < 5 * (k_max + OVERSAMPLING)
    if rtol is None:
        rtol = machine_eps(Z) ** 0.5
    rtol = jnp.asarray(rtol, Z.dtype)
    near = None if exact else near
    k = jnp.asarray(k)
    if isinstance(Z, Arithmetic):
        return _iterate(Z, k, near, rtol, k_max)
    return _truncated_svd(Z, k, near, rtol, k_max, exact)


@functools.partial(jax.custom_jvp, nondiff_argnums=(4, 5))
def _truncated_svd(
    Z: Array, k: Array, near: Array | None, rtol: Array, k_max: int, exact: bool
) -> TruncatedSVD:
    if exact:
        return _decompose(Z, k, k_max)
    found = _add_matrix(_iterate(Z, k, near, rtol, k_max))

    def fall_back(carry):
        # XLA hoists out of a loop what does not change in it, even if the loop may not run: so Z is
        # returned changed.
        _, Z, _ = carry
        return jnp.array(False), jnp.zeros_like(Z), _decompose(Z, k, k_max)

    # A loop of at most one iteration, in place of a branch, both sides of which lanes of a vmap
    # would always compute.
    start = found.error > rtol, Z, found
    *_, found = while_loop(lambda carry: carry[0], fall_back, start)
    return found


def _decompose(Z: Array, k: Array, k_max: int) -> TruncatedSVD:
    U, s, Vt = svd(Z)
    U = U[:, :k_max]
    s = s[:k_max]
    V = Vt[:k_max].T
    no_error = jnp.zeros((), Z.dtype)
    return _add_matrix(_cut(U, s, V, k, no_error))


def _iterate(Z: Any, k: Array, near: Any, rtol: Array, k_max: int) -> TruncatedSVD:
    m, n = Z.shape
    b = min(k_max + OVERSAMPLING, m, n)
    start = jax.random.normal(jax.random.key(0), (m, b), Z.dtype)
    if near is not None:
        test = jax.random.normal(jax.random.key(1), (n, k_max), Z.dtype)
        image = multiply(near, test)
        has_range = jnp.any(image != 0)
        image = jnp.where(has_range, image, start[:, :k_max])
        start = jnp.concatenate([image, start[:, k_max:]], axis=1)
    wanted = lax.iota(jnp.int32, b) < k

    def step(carry):
        count, _, Y, *_ = carry
        V, _ = qr(Y)
        U, R = qr(multiply(Z, V))
        P, s, Qt = svd(R)
        U = matmul(U, P)
        V = matmul(V, Qt.T)
        Y = multiply(Z.T, U)
        residual = jnp.where(wanted, Y - V * s, 0)
        kept = jnp.where(wanted, Y, 0)
        unit = common_unit(kept)  # of which no square over- or underflows
        left = jnp.linalg.norm(residual / unit)
        whole = jnp.linalg.norm(kept / unit)
        # With nothing wanted (k = 0) the error is 0; NaN ends the loop.
        count = count + 1
        error = left / jnp.where(whole == 0, 1, whole)
        return count, error, Y, U, s, V

    def go_on(carry):
        count, error, *_ = carry
        return (count < MAX_SUBSPACE_ITERATIONS) & (error > rtol)

    infinity = jnp.full((), jnp.inf, Z.dtype)
    Y = multiply(Z.T, start)
    shapes = ((m, b), (b,), (n, b))
    zeros = [jnp.zeros(shape, Z.dtype) for shape in shapes]
    first = (0, infinity, Y, *zeros)
    _, error, _, U, s, V = while_loop(go_on, step, first)
    U, s, V = (part[..., :k_max] for part in (U, s, V))
    return _cut(U, s, V, k, error)


def _cut(U: Array, s: Array, V: Array, k: Array, error: Array) -> TruncatedSVD:
    """The triplets, those beyond k set to 0."""
    kept = lax.iota(jnp.int32, s.size) < k
    # By selection: multiplied by 0, a NaN would stay in columns beyond k, and the rank seem to be
    # higher.
    U, s, V = (jnp.where(kept, part, 0) for part in (U, s, V))
    return TruncatedSVD(None, U, s, V, error)


def _add_matrix(found: TruncatedSVD) -> TruncatedSVD:
    matrix = matmul(found.U * found.s, found.V.T)
    return found._replace(matrix=matrix)


@_truncated_svd.defjvp
def _truncated_svd_jvp(k_max: int, exact: bool, primals: tuple, tangents: tuple) -> tuple:
    """Perturbation theory: kept and dropped singular vectors mix by ``1 / (s_i^2 - s_j^2)``, i <= k
    < j."""
    Z, k, *_ = primals
    check_real_array("Z, of which derivatives are taken,", Z)
    E = tangents[0]
    found = _truncated_svd(*primals, k_max, exact)
    U, s, Vt = svd(Z)
    V = Vt.T
    kept = lax.iota(jnp.int32, s.size) < k
    between = kept[:, None] & ~kept
    unit = common_unit(s)  # of which no square over- or underflows
    t = s / unit
    gap = (t[:, None] - t) * (t[:, None] + t)
    divisor = jnp.where(between, gap, 1)
    mixing = jnp.where(between, 1 / divisor, 0)
    a = matmul(matmul(U.T, E), V)
    forth = mixing * t[:, None] ** 2
    back = mixing * t[:, None] * t
    of_kept = jnp.where(kept[:, None] & kept, a, 0)
    of_dropped = (forth + forth.T) * a
    inner = of_kept + of_dropped + (back + back.T) * a.T
    U_k = jnp.where(kept, U, 0)
    V_k = jnp.where(kept, V, 0)
    # What E moves out of the spaces of U and V.
    right = matmul(E, V_k)
    right = right - matmul(U, matmul(U.T, right))
    left = matmul(U_k.T, E)
    left = left - matmul(matmul(left, V), Vt)
    within = matmul(matmul(U, inner), Vt)
    matrix = within + matmul(right, V_k.T) + matmul(U_k, left)

    has_inverse = kept & (s > 0)
    divisor = jnp.where(s > 0, s, 1)
    inverse = jnp.where(has_inverse, 1 / divisor, 0)
    of_rows = (mixing * t[:, None]).T / unit
    of_columns = (mixing * t).T / unit
    U_turn = of_rows * a + of_columns * a.T
    U_rotation = matmul(U, U_turn) + right * inverse
    V_turn = of_rows * a.T + of_columns * a
    V_rotation = matmul(V, V_turn) + left.T * inverse
    U_dot = matmul(U_rotation, matmul(U.T, found.U))
    V_dot = matmul(V_rotation, matmul(V.T, found.V))
    s_dot = jnp.sum(found.U * matmul(E, found.V), axis=0)
    error_dot = jnp.zeros_like(found.error)
    return found, TruncatedSVD(matrix, U_dot, s_dot, V_dot, error_dot)
