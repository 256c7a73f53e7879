"""Least squares: refits in closed form, and the gains of all coordinates."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array
from jaxht.constraints.support import Support
from jaxht.designs import Dense
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.linalg.inner_products import conj_matmul, is_complex, squares
from jaxht.linalg.lapack import inverse_cholesky
from jaxht.linalg.linear_solvers import cholesky_solver
from jaxht.linalg.platform import has_gpu
from jaxht.linalg.products import apply_weights, square_norm
from jaxht.subproblems.by_products import Growth
from jaxht.subproblems.column_lanes import solve_on_columns
from jaxht.subproblems.columns import ColumnProblem
from jaxht.subproblems.growing_qr import GrowingQR, gains_along
from jaxht.subproblems.linear_models import ridge_per_sample
from jaxht.subproblems.planned_pursuit import PlannedPursuit
from jaxht.subproblems.refits import Refit, RefitStatus
from jaxht.subproblems.stationary_points import STATIONARY_ROOTS


class LeastSquaresProblem(ColumnProblem):
    """Least squares of one output: in closed form on supports without bounds."""

    @property
    def has_gains(self) -> bool:
        """Whether items are coordinates of a vector, without bounds, and k_max is known."""
        is_vector = len(self.objective.shape) == 1
        return is_vector and self.is_free and self.space.k_max is not None

    def refit(self, support: Any, x: Array, ridge: Array | None = None) -> Refit:
        """The least-squares solution; if not unique, the one of least norm (for scaled columns).

        Cost: n k_max^2 + k_max^3 / 3, and 4 n k_max for each refinement.
        """
        f = self.objective
        A = f.design
        if support.bounds is not None or not A.gathers(support.k_max):
            return super().refit(support, x, ridge)
        indices = support.require_indices()
        if ridge is None and not jnp.ndim(f.penalty):
            penalty = ridge_per_sample(f, indices.shape)
        else:
            penalty = support.gather(ridge_per_sample(f, f.shape, ridge), indices)
        columns = indices
        if A.dense_array is None or f.weights is not None:
            A = Dense(A.columns(indices).T)
            columns = lax.iota(jnp.int32, indices.size)
        w, pred = least_squares_on_columns(A, f.target, penalty, columns, f.weights)
        x = support.scatter(w, indices)
        return Refit(x, pred, RefitStatus.of(True))

    def differentiate(self, support: Any, x: Array) -> Array:
        """Differentiate x; complex numbers by the derivative of the refit, where columns are
        gathered."""
        f = self.objective
        if not is_complex(f) or not f.design.gathers(support.k_max):
            return super().differentiate(support, x)
        minimiser = self.refit(support, x).x
        distance = square_norm(lax.stop_gradient(minimiser) - x)
        tolerance = STATIONARY_ROOTS**2 * machine_eps(x)
        is_near = distance <= tolerance * square_norm(x)
        factor = jnp.where(is_near, 1, jnp.nan)
        return move_along(x, minimiser, factor.astype(x.dtype))

    def forward_scores(self, selected: Array, x: Array) -> Array:
        """:meth:`insertion_gains`, where they are known."""
        if not self.has_gains:
            return super().forward_scores(selected, x)
        return self.insertion_gains(self.space.support(selected))

    def growth(self, selected: Array, *, scored: bool = False) -> Growth:
        """A factorisation that is updated, where gains are known."""
        if not self.has_gains:
            return super().growth(selected, scored=scored)
        support = self.space.support(selected)
        f = self.objective
        is_dense = f.design.dense_array is not None
        has_one_ridge = f.weights is None and not jnp.ndim(f.penalty)
        is_plain = is_dense and has_one_ridge and not is_complex(f)
        is_plain &= self.space.is_uniform
        if has_gpu() and is_plain and not scored and support.k_max:
            return PlannedPursuit.of(f, support)
        return GrowingQR.of(f, support, scored=scored)

    def insertion_gains(self, support: Support) -> Array:
        r"""How much the minimum decreases for each coordinate that is added to a support.

        .. math::
            \frac{c |a_i^* r|^2}{2 (\|a_i\|^2 + p_i - \|Q^* a_i\|^2)}, \qquad p = l_2 / c

        Q is an orthonormal basis of the columns of the support, r the residual of its minimiser;
        the gain is 0 where a_i depends on these columns.

        Cost: n d k_max + 4 n k_max^2.
        """
        f = self.objective
        A = f.design
        indices = support.require_indices()
        penalty = ridge_per_sample(f, f.shape)
        columns = _weight_by_root(f.weights, A.columns(indices))
        Q = _orthonormalise(columns, support.gather(penalty, indices))
        b = _weight_by_root(f.weights, f.target)
        residual = b - matmul(conj_matmul(Q, b), Q)
        rows = jnp.concatenate([Q, residual[None]])
        rows = _weight_by_root(f.weights, rows)
        products = A.rmatvec(rows.T)
        overlaps = products[:, :-1]
        norms = A.column_norms() ** 2 if f.weights is None else A.squared(f.weights)
        total = norms + penalty
        overlaps = squares(overlaps)
        ones = jnp.ones(overlaps.shape[1], total.dtype)
        remaining = total - matmul(overlaps, ones)
        gains = gains_along(products[:, -1], remaining, total)
        return f.normalise(gains)


def _weight_by_root(weights: Array | None, v: Array) -> Array:
    """``S^(1/2) v``, for v (n,) or (k, n)."""
    return v if weights is None else apply_weights(jnp.sqrt(weights), v)


@jax.custom_jvp
def move_along(x: Array, other: Array, factor: Array) -> Array:
    """x, with the derivative of another point, times a factor."""
    return x


@move_along.defjvp
def _move_along_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    x, _, factor = primals
    _, other_dot, _ = tangents
    return x, factor * other_dot


@jax.custom_jvp
def least_squares_on_columns(
    A: Dense, y: Array, penalty: Array, indices: Array, weights: Array | None = None
) -> tuple[Array, Array]:
    """Minimise ``1/2 sum_i s_i (B w - y)_i^2 + 1/2 sum_j penalty_j w_j^2`` for B = A_F, tall, wide
    or rank-deficient.

    Many lanes are computed at once, see :mod:`jaxht.subproblems.column_lanes`.

    Args:
        A: a design, n x d.
        y: (n,).
        penalty: (k,), >= 0.
        indices: F, int32 (k,); d is padding and gets w = 0.
        weights: s, (n,), >= 0; None for ones.

    Returns:
        w (k,) and B w (n,), differentiable in forward and reverse mode.
    """
    if weights is None:
        w, residual = solve_on_columns(A, y, penalty, indices)
        return w, y - residual
    w, _ = solve_on_columns(_weigh(A, weights), _weight_by_root(weights, y), penalty, indices)
    return w, matmul(w, A.columns(indices))


@least_squares_on_columns.defjvp
def _least_squares_on_columns_jvp(primals: tuple, tangents: tuple) -> tuple:
    """Differentiate the normal equations ``B' S (y - B w) = penalty w``, with one refinement of
    their solution. The root of S has no derivative where a weight is 0."""
    A, y, penalty, indices, weights = primals
    A_dot, y_dot, penalty_dot, _, weights_dot = tangents
    w, pred = least_squares_on_columns(*primals)

    def weigh(v):
        return v if weights is None else weights * v

    columns_dot = A_dot.columns(indices)
    weighted, gram = _weigh(A, weights).columns_and_gram(indices)
    columns = weighted if weights is None else A.columns(indices)
    precondition = cholesky_solver(gram, penalty)
    residual = y - pred
    force_dot = weigh(y_dot - matmul(w, columns_dot))
    if weights is not None:
        force_dot += weights_dot * residual
    b_dot = conj_matmul(columns_dot, weigh(residual))
    b_dot += conj_matmul(columns, force_dot)
    b_dot -= penalty_dot * w
    w_dot = precondition(b_dot)
    of_w_dot = weigh(matmul(w_dot, columns))
    rest = b_dot - conj_matmul(columns, of_w_dot)
    w_dot += precondition(rest - penalty * w_dot)
    pred_dot = matmul(w_dot, columns) + matmul(w, columns_dot)
    return (w, pred), (w_dot, pred_dot)


def _weigh(A: Dense, weights: Array | None) -> Dense:
    """``S^(1/2) A``."""
    return A if weights is None else Dense(_weight_by_root(weights, A.array.T).T)


def _orthonormalise(columns: Array, penalty: Array) -> Array:
    """The upper part Q (k, n) of an orthonormal basis of the rows of ``[columns,
    diag(sqrt(penalty))]``.

    It is computed from two successive Cholesky factors of Gram matrices: the second corrects for
    the condition number of the first (Yamamoto et al. 2015). Padding, and columns that depend on
    those before up to the accuracy of the first factor, give rows of 0.

    Cost: 4 n k^2.
    """
    k = columns.shape[0]
    total = jnp.sum(squares(columns), axis=1) + penalty
    total = jnp.where(total > 0, total, 1)
    scale = lax.rsqrt(total)[:, None]
    roots = jnp.diag(jnp.sqrt(penalty))
    rows = scale * jnp.concatenate([columns, roots], axis=1)
    jitter = 4 * k * machine_eps(columns)
    for _ in range(2):
        gram = matmul(rows, rows.conj().T)
        # After the first factor an independent row has a norm of nearly 1, a dependent one of less
        # than 1/2.
        independent = jnp.diagonal(gram).real > 0.5
        both = independent[None] & independent[:, None]
        gram = jnp.where(both, gram, 0)
        added = jnp.where(independent, jitter, 1)
        inverse = inverse_cholesky(gram + jnp.diag(added))
        kept = jnp.where(independent[:, None], rows, 0)
        rows = matmul(inverse, kept)
    return rows[:, : columns.shape[1]]
