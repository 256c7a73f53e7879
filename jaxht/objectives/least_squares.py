"""Least squares, and its minimiser on a support."""

from typing import Any

import jax
import jax.numpy as jnp
from chex import Array
from jax import lax

from jaxht._pytree import pytree, static
from jaxht.constraints.support import Support
from jaxht.designs import PRECISION, Dense, design
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.losses import SquaredLoss
from jaxht.refit.growing_qr import Basis, orthonormal
from jaxht.refit.newton import Refit, preconditioner, ratio


@pytree
class LeastSquares(LinearModel):
    """Squared error of a linear model: ``f(x) = c/2 ||A x - y||^2 + l2/2 ||x||^2``, c = 1 (sum) or 1/n (mean).

    Args:
        A, y, l2, weights: as in :class:`jaxht.objectives.linear_model.LinearModel`.
        mean: static; False, the default here, is the scaling of Shen & Li 2018 and Axiotis & Sviridenko 2020, True that
            of Yuan, Li & Zhang 2018. Step sizes scale with it.

    Source: Shen & Li 2018, (3.1); Yuan, Li & Zhang 2018, §6.1.1; Axiotis & Sviridenko 2020, §5.
    """

    mean: bool = static(default=False, kw_only=True)

    @property
    def loss(self) -> SquaredLoss:
        """The scalar loss."""
        return SquaredLoss()

    def value(self, x: Array, pred: Array) -> Array:
        """f(x) from pred = A x. Cost: n + d."""
        residual = pred - self.y
        return jnp.vdot(residual, self.weighted(residual)) / 2 + jnp.vdot(x, self.l2 * x) / 2

    def curvature(self, x: Array, pred: Array, v: Array, image: Array) -> Array:
        """``c ||A v||^2 + l2 ||v||^2``, the same at every x; image = A v."""
        return jnp.vdot(image, self.weighted(image)) + jnp.vdot(v, self.l2 * v)

    def minimise(self, region: Support, x: Array, ridge: Array | None = None) -> Refit:
        """Closed-form minimiser on a support, of least norm (in scaled columns) where it is not unique.

        Args:
            region: support F, |F| <= k_max.
            x: start, where F has bounds or the design does not gather columns; else ignored.
            ridge: (d,) or None, added to ``l2`` by coordinate.

        Returns:
            (d,) minimiser, exactly zero off F, its pred, and whether it converged.

        Cost: n k_max^2 + k_max^3 / 3, and 4 n k_max for each refinement.
        """
        A = design(self.A)
        if not A.gathers(region.k_max) or region.bounds is not None:
            return super().minimise(region, x, ridge)
        region = region.with_indices()
        indices: Any = region.indices
        if not isinstance(A, Dense):  # the columns are then all of a small dense design
            A, indices = Dense(A.columns(indices).T), lax.iota(jnp.int32, indices.size)
        penalty = self._penalty()
        penalty = region.gather(penalty if ridge is None else penalty + ridge / self._total(jnp.ones((), self.dtype)))
        if self.weights is None:
            values, pred = restricted_least_squares(A, self.y, penalty, indices)
        else:
            rooted = Dense(jnp.sqrt(self.weights)[:, None] * A.array)
            values, _ = restricted_least_squares(rooted, self._rooted(self.y), penalty, indices)
            pred = _matmul(values, A.columns(indices))
        return Refit(region.scatter(values), pred, jnp.array(True))

    def basis(self, region: Support) -> Basis | None:
        """A :class:`jaxht.refit.growing_qr.Basis`; None for bounds, and where k_max is not known."""
        if region.k_max is None or region.bounds is not None:
            return None
        return Basis.empty(self._rooted(self.y), self.shape[0], region.k_max).grown(self, region)

    def grow(self, basis: Basis | None, region: Support, x: Array) -> tuple[Refit, Any]:
        """The minimiser on the support before and one coordinate more, or none. Cost: 2 or 4 n k_max."""
        if basis is None:
            return self.minimise(region, x), None
        basis = basis.joined(self, region)
        x = basis.x()
        pred = self.y - basis.residual if self.weights is None else self.predict(x)
        return Refit(x, pred, jnp.array(True)), basis

    def column(self, i: Array) -> tuple[Array, Array]:
        """Column i of ``S^(1/2) A`` and ``l2_i / c``."""
        A = design(self.A)
        if isinstance(A, Dense):
            column = A.columns(i[None])[0]
        else:  # a single column of a sparse design comes sooner as a product
            column = A.matvec(jax.nn.one_hot(i, self.shape[0], dtype=self.dtype))
        return self._rooted(column), self._penalty()[i]

    def insertion_gains(self, region: Support) -> Array | None:
        """``c (a_i'r)^2 / (2 (||a_i||^2 + p_i - ||Q a_i||^2))``, p = l2 / c; None where :meth:`basis` is.

        Q is an orthonormal basis of the columns of the region, r the residual of its minimiser; 0 where a_i depends on
        these columns. Cost: n d k_max + 4 n k_max^2, for all i.
        """
        if region.k_max is None or region.bounds is not None:
            return None
        region, A = region.with_indices(), design(self.A)
        penalty = self._penalty()
        Q = orthonormal(self._rooted(A.columns(region.indices)), region.gather(penalty))
        b = self._rooted(self.y)
        residual = b - _matmul(_matmul(Q, b), Q)
        products = A.rmatvec(self._rooted(jnp.concatenate([Q, residual[None]])).T)
        overlaps, slopes = products[:, :-1], products[:, -1]
        squares = A.column_norms() ** 2 if self.weights is None else A.squared(self.weights)
        whole = squares + penalty
        left = whole - jnp.matmul(overlaps**2, jnp.ones(overlaps.shape[1], self.dtype), precision=PRECISION)
        independent = left > INDEPENDENT * float(jnp.finfo(self.dtype).eps) * whole
        gains = jnp.where(independent, slopes**2 / jnp.where(independent, 2 * left, 1), 0)
        return self._total(jnp.where(jnp.isfinite(whole), gains, jnp.nan))

    def _rooted(self, v: Array) -> Array:
        """``S^(1/2) v``, for v (n,) or (k, n)."""
        return v if self.weights is None else jnp.sqrt(self.weights) * v

    def _penalty(self) -> Array:
        """``l2 / c``, (d,)."""
        return jnp.broadcast_to(self.l2 / self._total(jnp.ones((), self.dtype)), self.shape)


@jax.custom_jvp
def restricted_least_squares(A: Dense, y: Array, penalty: Array, indices: Array) -> tuple[Array, Array]:
    """Minimise ``1/2 ||B w - y||^2 + 1/2 sum_i penalty_i w_i^2`` for B = A_F, tall, wide or rank-deficient.

    The Cholesky factor of B'B squares the condition number, so it only preconditions conjugate gradients on the
    normal equations, whose residuals are computed from B and y themselves (CGLS: Björck 1996, §7.4): one step where B
    is well conditioned, a few where it is not. As they start at zero, the result has no component that lowers nothing.

    Args:
        A: a design, n x d.
        y: (n,).
        penalty: (k,), >= 0.
        indices: F, int32 (k,); d is padding and gets w = 0.

    Returns:
        w (k,) and B w (n,), differentiable in forward and reverse mode.
    """
    eps = float(jnp.finfo(y.dtype).eps)
    columns, gram = A.subproblem(indices)
    precondition = preconditioner(gram, penalty)
    diagonal = jnp.diagonal(gram) + penalty

    def refine(carry):
        step, _, w, residual, gradient, direction, decrease = carry
        image = _matmul(direction, columns)
        curvature = jnp.vdot(image, image) + jnp.vdot(direction, penalty * direction)
        # The exact line search, not decrease / curvature: in rounding noise, directions are no longer conjugate.
        # Along a direction that B hardly sees there is little to gain, and far to go.
        seen = curvature > FLATNESS * eps * jnp.vdot(direction, diagonal * direction)
        length = jnp.where(seen, ratio(jnp.vdot(gradient, direction), curvature), 0)
        w, residual = w + length * direction, residual - length * image
        gradient = _matmul(columns, residual) - penalty * w
        correction = precondition(gradient)
        next_decrease = jnp.vdot(gradient, correction)
        direction = correction + ratio(next_decrease, decrease) * direction
        visible = jnp.vdot(correction, correction) > (REFINEMENT_RTOL * eps) ** 2 * jnp.vdot(w, w)
        noise = NOISE_RTOL * eps * jnp.sqrt(jnp.diagonal(gram) * jnp.vdot(residual, residual))
        going_on = visible & jnp.any(jnp.abs(gradient) > noise)
        return step + 1, going_on, w, residual, gradient, direction, next_decrease

    gradient = _matmul(columns, y)
    correction = precondition(gradient)
    decrease = jnp.vdot(gradient, correction)
    start = (0, ~(decrease <= 0), jnp.zeros_like(gradient), y, gradient, correction, decrease)
    _, _, w, residual, *_ = lax.while_loop(lambda carry: (carry[0] < MAX_REFINEMENTS) & carry[1], refine, start)
    return w, y - residual


@restricted_least_squares.defjvp
def _restricted_least_squares_jvp(primals: tuple, tangents: tuple) -> tuple:
    """Differentiate the normal equations ``B'(y - B w) = penalty w``, with one refinement of their solution."""
    A, y, penalty, indices = primals
    A_dot, y_dot, penalty_dot, _ = tangents
    w, pred = restricted_least_squares(*primals)
    columns_dot = A_dot.columns(indices)
    columns, gram = A.subproblem(indices)
    precondition = preconditioner(gram, penalty)
    b_dot = _matmul(columns_dot, y - pred) + _matmul(columns, y_dot - _matmul(w, columns_dot)) - penalty_dot * w
    w_dot = precondition(b_dot)
    w_dot += precondition(b_dot - _matmul(columns, _matmul(w_dot, columns)) - penalty * w_dot)
    return (w, pred), (w_dot, _matmul(w_dot, columns) + _matmul(w, columns_dot))


def _matmul(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=PRECISION)


# In ulps: a correction this small relative to the solution is not worth another step, and a slope this small relative
# to column and residual is rounding noise.
REFINEMENT_RTOL = 64.0
NOISE_RTOL = 4.0
MAX_REFINEMENTS = 30
# Condition numbers up to 3e4 in float32 and 7e8 in float64 are resolved; more counts as rank deficient.
FLATNESS = 0.01
# A column counts as dependent on others where less than this is left of its square.
INDEPENDENT = 64.0
