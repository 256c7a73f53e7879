"""Refits of linear models on gathered columns: closed form for least squares, Newton steps for
other losses."""

import dataclasses
import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._dataclass import pytree
from jaxht._typing import Array, Numeric
from jaxht.constraints.support import Support
from jaxht.designs import Dense
from jaxht.linalg.linear_solvers import cholesky_solver, ratio
from jaxht.linalg.precision import matmul
from jaxht.objectives.glm import SmoothedHinge
from jaxht.objectives.linear_model import LeastSquares, LinearModel
from jaxht.subproblems.newton import Coordinates, Refit

Model = TypeVar("Model", bound=LinearModel)


def refit_least_squares(
    objective: LeastSquares, support: Support, ridge: Array | None = None
) -> Refit:
    """The least-squares solution on a support without bounds; if not unique, that of least norm
    (for scaled columns).

    Args:
        objective: on a design that gathers columns.
        support: F, |F| <= k_max.
        ridge: shaped like the variable or None, added to ``l2`` by coordinate.

    Returns:
        A :class:`Refit`, always converged.

    Cost: n k_max^2 + k_max^3 / 3, and 4 n k_max for each refinement.
    """
    A, indices = objective.design, support.require_indices()
    if ridge is None and not jnp.ndim(objective.penalty):
        penalty = ridge_per_sample(objective, indices.shape)
    else:
        penalty = support.gather(ridge_per_sample(objective, support.mask.shape, ridge), indices)
    columns = indices
    if (
        not isinstance(A, Dense) or objective.weights is not None
    ):  # the columns are then all of a small dense design
        A, columns = Dense(A.columns(indices).T), lax.iota(jnp.int32, indices.size)
    if objective.weights is None:
        values, pred = least_squares_on_columns(A, objective.target, penalty, columns)
    else:
        weighted, y = (
            Dense(weight_by_root(objective, A.array.T).T),
            weight_by_root(objective, objective.target),
        )
        values, _ = least_squares_on_columns(weighted, y, penalty, columns)
        pred = matmul(values, A.columns(columns))
    return Refit(support.scatter(values, indices), pred, jnp.array(True))


def refit_columns(
    objective: LinearModel, support: Support, x: Array, ridge: Array | None = None
) -> Refit:
    """Minimise a linear model of one output on a support, by Newton steps with a factorised
    Hessian.

    Args:
        objective: on a design that gathers columns.
        support: F, |F| <= k_max, optionally with bounds.
        x: start; entries off F are taken as 0.
        ridge: shaped like x or None, added to ``l2`` by coordinate.

    Returns:
        A :class:`Refit`.

    Cost: n k_max^2 + k_max^3 / 3 for each step, typically 4 to 8 steps.
    """
    return in_columns(objective, support, x, ridge).minimise()


def in_columns(
    objective: LinearModel, support: Support, x: Array, ridge: Array | None = None
) -> Coordinates:
    """A linear model of one output on the columns of a support."""
    indices = support.require_indices()
    penalty = jnp.broadcast_to(objective.penalty, objective.shape)
    penalty = support.gather(penalty if ridge is None else penalty + ridge, indices)
    gathered = dataclasses.replace(
        objective, A=Dense(objective.design.columns(indices).T), l2=penalty
    )
    inside, bounds = indices < math.prod(objective.shape), support.gather_bounds(indices)
    w = support.gather(x, indices)
    return Coordinates(Gathered(gathered), w, inside, bounds, lambda w: support.scatter(w, indices))


def refit_hinge(
    objective: LinearModel, refit: Callable[[LinearModel, Array], Refit], x: Array
) -> Refit:
    """Minimise a hinge objective by smoothed hinges of gamma = 1, 1/10, ..., each started at the
    solution before.

    The smoothed hinge is below the hinge by gamma/2 at most, so the last gamma, the square root of
    machine epsilon,
    bounds the error of f(x): 2e-8 c n in float64, 4e-4 c n in float32.

    Args:
        objective: a :class:`jaxht.Hinge`.
        refit: refits a smooth objective on the support, from a start.
        x: start.

    Returns:
        A :class:`Refit`.
    """
    last = least_gamma(objective)
    gammas = jnp.asarray(
        [*(10.0**-i for i in range(math.ceil(-math.log10(last)))), last], objective.dtype
    )

    def stage(i: Numeric, found: Refit) -> Refit:
        return refit(smooth_hinge(objective, gammas[i]), found.x)

    return lax.fori_loop(0, gammas.size, stage, Refit(x, objective.predict(x), jnp.array(False)))


def smooth_hinge(objective: LinearModel, gamma: Numeric) -> LinearModel:
    """A :class:`jaxht.Hinge` with its loss smoothed: below it by gamma/2 at most."""
    f = objective
    return SmoothedHinge(f.A, f.y, f.l2, gamma, mean=f.mean, weights=f.weights, offset=f.offset)


def least_gamma(objective: LinearModel) -> float:
    """The gamma of the smoothed hinge that a refit of the hinge minimises in the end."""
    return math.sqrt(jnp.finfo(objective.dtype).eps)


def restrict_columns(objective: Model, indices: Array) -> Model:
    """A linear model of one output on the columns at ``indices`` (m,) alone, which differ, as a
    dense design."""
    l2 = objective.penalty[indices] if jnp.ndim(objective.penalty) else objective.l2
    return dataclasses.replace(objective, A=Dense(objective.design.columns(indices).T), l2=l2)


def gather_column(objective: LinearModel, i: Array) -> Array:
    """Column i of the design, (n,); 0 for i = d."""
    A = objective.design
    if isinstance(A, Dense):
        return A.columns(i[None])[0]
    # For a single column of a sparse design a product is faster.
    return A.matvec(jax.nn.one_hot(i, A.shape[1], dtype=objective.dtype))


def weight_by(objective: LinearModel, v: Array) -> Array:
    """``S v``, for v (n,)."""
    return v if objective.weights is None else objective.weights * v


def weight_by_root(objective: LinearModel, v: Array) -> Array:
    """``S^(1/2) v``, for v (n,) or (k, n)."""
    if objective.weights is None:
        return v
    root = jnp.sqrt(objective.weights)
    return root * v if v.ndim == 1 else root[None] * v


def ridge_per_sample(
    objective: LinearModel, shape: tuple[int, ...], ridge: Array | None = None
) -> Array:
    """``(l2 + ridge) / c``, of a given shape: the ridge for a sum of squares without the factor
    c."""
    penalty = objective.penalty if ridge is None else objective.penalty + ridge
    return jnp.broadcast_to(penalty / objective.normalise(jnp.ones((), objective.y.dtype)), shape)


@jax.custom_jvp
def least_squares_on_columns(
    A: Dense, y: Array, penalty: Array, indices: Array
) -> tuple[Array, Array]:
    """Minimise ``1/2 ||B w - y||^2 + 1/2 sum_i penalty_i w_i^2`` for B = A_F, tall, wide or
    rank-deficient.

    The condition number of B'B is the square of B's, so its Cholesky factor is only used as the
    preconditioner of conjugate gradients on the normal equations, whose residuals are computed from
    B and y themselves (CGLS: Björck 1996, §7.4): one step where B is well conditioned, a few where
    it is not. Since the steps start at zero, the result has no component in the null space.

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
    precondition = cholesky_solver(gram, penalty)
    diagonal = jnp.diagonal(gram) + penalty

    def refine(carry):
        step, _, w, residual, gradient, direction, decrease = carry
        image = matmul(direction, columns)
        curvature = jnp.vdot(image, image) + jnp.vdot(direction, penalty * direction)
        # The exact line search, not decrease / curvature: with rounding errors, directions are no
        # longer conjugate. Along a direction that is nearly in the null space of B, a long step
        # would decrease f by little.
        is_curved = curvature > FLATNESS * eps * jnp.vdot(direction, diagonal * direction)
        step_size = jnp.where(is_curved, ratio(jnp.vdot(gradient, direction), curvature), 0)
        w, residual = w + step_size * direction, residual - step_size * image
        gradient = matmul(columns, residual) - penalty * w
        correction = precondition(gradient)
        next_decrease = jnp.vdot(gradient, correction)
        direction = correction + ratio(next_decrease, decrease) * direction
        is_large = jnp.vdot(correction, correction) > (REFINEMENT_RTOL * eps) ** 2 * jnp.vdot(w, w)
        # The correction of a gradient of rounding errors is large in the null space, where f does
        # not change.
        noise = NOISE_RTOL * eps * jnp.sqrt(jnp.diagonal(gram) * jnp.vdot(residual, residual))
        is_running = is_large & (
            next_decrease > jnp.sqrt(jnp.vdot(jnp.square(noise), jnp.square(correction)))
        )
        return step + 1, is_running, w, residual, gradient, direction, next_decrease

    gradient = matmul(columns, y)
    correction = precondition(gradient)
    decrease = jnp.vdot(gradient, correction)
    start = (0, ~(decrease <= 0), jnp.zeros_like(gradient), y, gradient, correction, decrease)
    _, _, w, residual, *_ = lax.while_loop(
        lambda carry: (carry[0] < MAX_REFINEMENTS) & carry[1], refine, start
    )
    return w, y - residual


@least_squares_on_columns.defjvp
def _least_squares_on_columns_jvp(primals: tuple, tangents: tuple) -> tuple:
    """Differentiate the normal equations ``B'(y - B w) = penalty w``, with one refinement of their
    solution."""
    A, y, penalty, indices = primals
    A_dot, y_dot, penalty_dot, _ = tangents
    w, pred = least_squares_on_columns(*primals)
    columns_dot = A_dot.columns(indices)
    columns, gram = A.subproblem(indices)
    precondition = cholesky_solver(gram, penalty)
    b_dot = (
        matmul(columns_dot, y - pred)
        + matmul(columns, y_dot - matmul(w, columns_dot))
        - penalty_dot * w
    )
    w_dot = precondition(b_dot)
    w_dot += precondition(b_dot - matmul(columns, matmul(w_dot, columns)) - penalty * w_dot)
    return (w, pred), (w_dot, matmul(w_dot, columns) + matmul(w, columns_dot))


@pytree
class Gathered:
    """A :class:`jaxht.subproblems.newton.Subproblem`: a linear model on gathered columns, with its
    Hessian as a matrix."""

    model: LinearModel

    def predict(self, w: Array) -> Array:
        """``B w``, B the columns."""
        return self.model.predict(w)

    def value(self, w: Array, pred: Array) -> Array:
        """f at w."""
        return self.model.value(w, pred)

    def gradient(self, w: Array, pred: Array) -> Array:
        """grad f; 0 in the padding, whose columns are 0."""
        return self.model.gradient(w, pred)

    def solver(
        self, w: Array, pred: Array, free: Array, tau: Numeric, rtol: float
    ) -> Callable[[Array], Array]:
        """Solve by a Cholesky factor. Cost: n k^2 + k^3 / 3; k products of a loss that couples the
        samples."""
        model, columns = self.model, jnp.where(free[:, None], self.model.design.array.T, 0)
        u, bound = model.linear_predictor(pred), tau * model.curvature_bound()

        def curve(image: Array) -> Array:
            return model.weight(model.loss.hessian_product(u, model.y, image) + bound * image)

        curved = (
            columns * curve(jnp.ones_like(pred))[None]
            if model.loss.is_separable
            else jax.vmap(curve)(columns)
        )
        return cholesky_solver(matmul(curved, columns.T), model.penalty)

    def curvatures(self) -> Array:
        """Those of a loss of curvature 1."""
        return jnp.sum(self.model.design.array**2, axis=0)


# In ulps: a correction this small relative to the solution needs no further step, and an entry of
# the gradient this small relative to column and residual is rounding noise.
REFINEMENT_RTOL = 64.0
NOISE_RTOL = 1.0
MAX_REFINEMENTS = 30
# Condition numbers up to 3e4 in float32 and 7e8 in float64 are resolved; above, a matrix counts as
# rank-deficient.
FLATNESS = 0.01
