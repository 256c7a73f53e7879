"""Dual iterative hard thresholding, with all samples or with random blocks of them."""

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from optax.tree_utils import tree_where

from jaxht._dataclass import integer, pytree, static
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.constraints import Constraint
from jaxht.objectives.dual import (
    DualPoint,
    check_dual,
    column_bound,
    conjugate_loss,
    dual_point,
    dual_variables,
    primal_error,
    supergradient,
)
from jaxht.objectives.linear_model import LinearModel
from jaxht.solvers.iterate import Iterate, check_step_size, evaluate
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status
from jaxht.subproblems import refit


class Bounds(NamedTuple):
    """What bounds of f and of rounding errors need and a run computes once: D(0), and the largest
    norm of a column."""

    floor: Leaf
    columns: Leaf


@pytree
class DIHT(Solver):
    r"""Projected supergradient ascent on the dual D of a linear model with a ridge, which gives x a
    duality gap.

    .. math::
        w = H_k\Big(-\tfrac{c}{l_2} \sum_i \alpha_i a_i\Big), \qquad
        \alpha^+ = P_F\big(\alpha + \eta_t \, c \, (A w - l^{*\prime}(\alpha; y))\big)

    starting at ``alpha_i = l'(a_i.x0; y_i)``, F the domain of the conjugate l*. x is the refit on
    the support of w at the best alpha so far (with ``debias=False`` this w), or an earlier x if f
    is lower there. ``gap = f(x) - max D``, with a bound of the rounding errors of both, is an upper
    bound of f(x) less the optimum. The run ends with GAP_CLOSED where ``Stop(gap_rtol=...)`` is
    given and met, else at the step limit: the gap may remain open.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        step_size: eta > 0, a scalar, traced; 0, infinity and NaN end as INVALID_STEP_SIZE. None:
            adaptive, ``tau / (c l*'' + c sigma^2 / l2)`` for each coordinate, with c sigma^2 the
            largest eigenvalue of ``c A'A``. With tau = 1 this is the inverse of D's smoothness
            while the support does not change. tau starts at 1; whenever D has not increased for
            PATIENCE updates, tau is halved and the ascent restarts at the best alpha, because near
            ties w jumps between supports and no constant step size ascends.
        diminishing: bool, static; whether eta_t = eta / (t + 2). For a loss that is 1/mu-smooth the
            theory takes ``eta = n / mu`` for the mean over n samples (Theorem 15); for the hinge a
            constant from a search.
        inner_steps: number of updates in one step of the runner, which ends with a new x and gap;
            an integer, traced.
        debias: bool, static; whether w is refitted on its support. Use False, as in the source,
            where a refit takes longer than the updates, for example for the hinge on many columns.

    Raises:
        ValueError: unless the objective is a linear model of one output with a single l2 > 0.

    Cost: an update takes one full gradient and one projection; a step ends with a refit.

    Source: Yuan et al. 2020, Algorithm 1, which starts at alpha = 0.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([0.0, 4.0, 1.0, 3.0]), 1.0, mean=False)
        >>> result = jaxht.solve(f, jaxht.Sparse(2), jaxht.DIHT(), stop=jaxht.Stop(gap_rtol=1e-4))
        >>> result.reason
        'GAP_CLOSED'
    """

    step_size: Numeric | None = None
    diminishing: bool = static(default=False)
    inner_steps: Numeric = integer(default=10)
    debias: bool = static(default=True)

    def max_steps(self, constraint: Constraint) -> int:
        """1 000 steps."""
        return 1_000

    def init(
        self, objective: LinearModel, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> Step:
        """Compute alpha from x0."""
        iterate, point, bounds = init_dual(objective, constraint, x0)
        if self.step_size is None:
            scale, coupling = (
                jnp.ones((), objective.dtype),
                objective.gram_norm() / objective.penalty,
            )
        else:
            scale, coupling = jnp.asarray(self.step_size), jnp.zeros((), objective.dtype)
        iterate = replace(iterate, status=check_step_size(iterate.status, scale))
        none = jnp.zeros((), jnp.int32)
        return iterate, (bounds, (point, point, scale, coupling, none, none))

    def step(
        self, objective: LinearModel, constraint: Constraint, iterate: Iterate, state: Any
    ) -> Step:
        """``inner_steps`` updates of alpha, then x from the best one."""
        bounds, ascent = state

        def update(_: Numeric, state: Any) -> Any:
            point, best, scale, coupling, t, waited = state
            alpha, loss, y = point.alpha, conjugate_loss(objective), objective.y
            g = supergradient(objective, alpha, objective.predict(point.w))
            if self.step_size is None:
                # Of D / c: with c = 1 / n, g is as small as the curvature that divides it.
                eta = adaptive_step(
                    scale, objective.weight(loss.conjugate_curvature(alpha, y) + coupling)
                )
            else:
                eta = scale / (t + 2) if self.diminishing else scale
            point = dual_point(
                objective, constraint, loss.within(alpha + eta * g, y), bounds.columns
            )
            patience = PATIENCE if self.step_size is None else None
            point, best, scale, waited = keep_best(point, best, scale, waited, patience)
            return point, best, scale, coupling, t + 1, waited

        ascent = lax.fori_loop(0, self.inner_steps, update, ascent)
        work = {"full_gradients": self.inner_steps, "projections": self.inner_steps}
        new = primal_from_dual(objective, constraint, iterate, ascent[1], bounds, work, self.debias)
        return new, (bounds, ascent)


@pytree
class SDIHT(Solver):
    """Stochastic dual iterative hard thresholding: :class:`DIHT` with a random block of samples in
    each update.

    The samples are divided into blocks of batch_size, in their order. An update draws one block,
    ascends along its part of the supergradient and updates z, of which w is the projection; z is
    recomputed in each step of the runner. It ends as :class:`DIHT` does.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        step_size: eta > 0, a scalar, traced; 0, infinity and NaN end as INVALID_STEP_SIZE. None:
            adaptive, ``tau / (c l*'' + c^2 s b max ||a_i||^2 / l2)`` for each coordinate. While the
            support does not change, an update then maximises D over a block of one sample, for
            losses with quadratic l* (Shalev-Shwartz & Zhang 2013). tau = 1 is halved, and the
            ascent restarted at the best alpha, whenever D has not increased for EPOCHS steps of the
            runner.
        diminishing: bool, static; whether eta_t = eta / (t + 2). With m blocks and a 1/mu-smooth
            loss the theory takes ``eta = m n / mu`` for the mean over n samples (Theorem 19).
        batch_size: b, an int in [1, n], static.
        inner_steps: number of updates in one step of the runner, which ends with a new x and gap;
            an integer, traced. None: n / b, rounded up.
        debias: as of :class:`DIHT`.

    Raises:
        ValueError: unless the objective is a linear model of one output with a single l2 > 0, or if
            batch_size is not in [1, n]; from :func:`jaxht.solve`, if no key is given.

    Cost: an update takes b sample gradients, O(b d), and a projection; a step ends with a full
    product, a projection and a refit.

    Source: Yuan et al. 2020, Algorithm 2.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]), 1.0, mean=False)
        >>> result = jaxht.solve(f, jaxht.Sparse(2), jaxht.SDIHT(), key=jax.random.key(0))
        >>> [round(float(x_i), 3) for x_i in result.x]
        [0.0, 2.0, 0.0, 1.5]
    """

    step_size: Numeric | None = None
    diminishing: bool = static(default=False)
    batch_size: int = static(default=1)
    inner_steps: Numeric | None = integer(default=None)
    debias: bool = static(default=True)

    needs_key: ClassVar[bool] = True

    def max_steps(self, constraint: Constraint) -> int:
        """100 epochs."""
        return 100

    def init(
        self, objective: LinearModel, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> Step:
        """Compute alpha from x0."""
        n = objective.num_samples
        if not (isinstance(self.batch_size, int) and 1 <= self.batch_size <= n):
            raise ValueError(
                f"batch_size must be an int in [1, {n}], the number of samples; got {self.batch_size!r}"
            )
        iterate, point, bounds = init_dual(objective, constraint, x0)
        scale = (
            jnp.ones((), objective.dtype) if self.step_size is None else jnp.asarray(self.step_size)
        )
        iterate = replace(iterate, status=check_step_size(iterate.status, scale))
        squares = jnp.pad(objective.design.row_norms() ** 2, (0, -n % self.batch_size))
        couplings = (
            self.batch_size
            * jnp.max(squares.reshape(-1, self.batch_size), axis=1)
            / objective.penalty
        )
        none = jnp.zeros((), jnp.int32)
        return iterate, (bounds, point, point, scale, couplings, key, none, none)

    def step(
        self, objective: LinearModel, constraint: Constraint, iterate: Iterate, state: Any
    ) -> Step:
        """One epoch of updates of alpha, then x from the best one."""
        bounds, point, best, scale, couplings, key, first, waited = state
        key, draws = jax.random.split(key)
        n, b, loss, A, l2 = (
            objective.num_samples,
            self.batch_size,
            conjugate_loss(objective),
            objective.design,
            objective.penalty,
        )
        num_blocks = len(couplings)
        shares = objective.weight(jnp.ones(n, objective.dtype))

        def update(t: Numeric, carry: Any) -> Any:
            alpha, z = carry
            number = jax.random.bits(jax.random.fold_in(draws, t), (), jnp.uint32) % num_blocks
            indices = number.astype(jnp.int32) * b + lax.iota(jnp.int32, b)
            a, y, share = (jnp.take(v, indices, mode="clip") for v in (alpha, objective.y, shares))
            rows = A.rows(indices)
            u = rows.matvec(constraint.project(z)[0])
            if objective.offset is not None:
                u += jnp.take(objective.offset, indices, mode="clip")
            g = share * (u - loss.conjugate_derivative(a, y))
            if self.step_size is None:
                eta = adaptive_step(
                    scale, share * (loss.conjugate_curvature(a, y) + share * couplings[number])
                )
            else:
                eta = scale / (first + t + 2) if self.diminishing else scale
            change = jnp.where(indices < n, loss.within(a + eta * g, y) - a, 0)
            return alpha.at[indices].add(change, mode="drop"), z - rows.rmatvec(share * change) / l2

        m = num_blocks if self.inner_steps is None else self.inner_steps
        alpha, _ = lax.fori_loop(0, m, update, (point.alpha, point.z))
        point = dual_point(objective, constraint, loss.within(alpha, objective.y), bounds.columns)
        patience = EPOCHS if self.step_size is None else None
        point, best, scale, waited = keep_best(point, best, scale, waited, patience)
        work = {"sample_gradients": m * b, "projections": m}
        state = (bounds, point, best, scale, couplings, key, first + m, waited)
        return primal_from_dual(
            objective, constraint, iterate, best, bounds, work, self.debias
        ), state


def init_dual(
    objective: LinearModel, constraint: Constraint, x0: Array
) -> tuple[Iterate, DualPoint, Bounds]:
    """The iterate at x0, its dual variables, and the bounds that are computed once.

    D(0) is a lower bound of f, but alpha = 0 is not a good start where l* is steep there.
    """
    check_dual(objective)
    iterate, columns = evaluate(objective, x0), column_bound(objective)
    alpha = dual_variables(objective, iterate.pred)
    origin = conjugate_loss(objective).within(jnp.zeros_like(alpha), objective.y)
    both = jax.vmap(lambda alpha: dual_point(objective, constraint, alpha, columns))(
        jnp.stack([alpha, origin])
    )
    point, bounds = jax.tree.map(lambda leaf: leaf[0], both), Bounds(both.value[1], columns)
    status = jnp.where(objective.penalty > 0, iterate.status, Status.NO_DUAL).astype(jnp.int32)
    return replace(with_gap(objective, iterate, point, bounds), status=status), point, bounds


def with_gap(objective: LinearModel, iterate: Iterate, best: DualPoint, bounds: Bounds) -> Iterate:
    """The iterate with f(x) less the best lower bound for its gap, at least what it is without
    rounding errors."""
    upper = iterate.value + primal_error(objective, iterate.x, iterate.pred, bounds.columns)
    gap = upper - jnp.maximum(best.value, bounds.floor)
    return replace(
        iterate, gap=jnp.where(jnp.isnan(gap), jnp.inf, gap)
    )  # without a ridge there is no bound


def adaptive_step(scale: Array, curvature: Array) -> Array:
    """The step size of each coordinate; for samples of weight 0, whose curvature is 0, it has no
    effect."""
    return scale / jnp.where(curvature > 0, curvature, 1)


def keep_best(
    point: DualPoint, best: DualPoint, scale: Array, waited: Array, patience: int | None
) -> tuple[DualPoint, DualPoint, Array, Array]:
    """The better of two dual points, and for how many updates it has been the best.

    After ``patience`` updates, if it is not None, the ascent restarts there with half the step
    size."""
    is_better = point.value > best.value
    best, waited = tree_where(is_better, point, best), jnp.where(is_better, 0, waited + 1)
    if patience is not None:
        restart = waited >= patience
        scale, point = jnp.where(restart, scale / 2, scale), tree_where(restart, best, point)
        waited = jnp.where(restart, 0, waited)
    return point, best, scale, waited


def primal_from_dual(
    objective: LinearModel,
    constraint: Constraint,
    iterate: Iterate,
    best: DualPoint,
    bounds: Bounds,
    work: Any,
    debias: bool,
) -> Iterate:
    """w at the best alpha, or the refit on its support, or the iterate before if f is lower
    there."""
    counts, x, converged = iterate.counts.plus(**work), best.w, np.True_
    if debias:
        x, _, converged = refit(objective, constraint.support_of(best.w), best.w)
    new = evaluate(
        objective, x, counts, refit_converged=converged
    )  # the error of a product is bounded
    new = tree_where(
        iterate.value <= new.value, replace(iterate, gap=None, counts=counts), new
    )  # NaN is kept
    return with_gap(objective, new, best, bounds)


PATIENCE, EPOCHS = 10, 5
