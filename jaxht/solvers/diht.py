"""Dual iterative hard thresholding, with all samples or with random blocks of them."""

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from optax.tree_utils import tree_where

from jaxht._dataclass import integer, pytree, static
from jaxht._loops import fori_loop
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
from jaxht.solvers.iterate import Info, Iterate, check_step_size, evaluate
from jaxht.solvers.sampling import check_batch_size
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status
from jaxht.subproblems import RefitStatus, refit

# Updates without an increase of D after which the step size is first halved.
PATIENCE_UPDATES = 30
# Steps of the runner without one.
PATIENCE_EPOCHS = 5


class Bounds(NamedTuple):
    """What bounds of f and of rounding errors need; a run computes it once.

    Attributes:
        floor: D(0), a lower bound of f.
        columns: the largest norm of a column.
    """

    floor: Leaf
    columns: Leaf


class Ascent(NamedTuple):
    """The dual points of a run.

    Attributes:
        point: the current one.
        best: the one of largest D.
        scale: tau, or eta where it is given.
        waited: int32, for how many updates ``best`` has been the best.
    """

    point: DualPoint
    best: DualPoint
    scale: Leaf
    waited: Leaf

    def move(self, point: DualPoint, patience: int | None) -> "Ascent":
        """The ascent at the next point, or after ``patience / tau`` updates without an increase of
        D at the best one, with half the step size.

        With the same patience at every tau the step sizes would have a finite sum, and the ascent
        would end anywhere; so they fall as those of a subgradient method, c / t.
        """
        is_better = point.value > self.best.value
        best = tree_where(is_better, point, self.best)
        waited = jnp.where(is_better, 0, self.waited + 1)
        if patience is None:
            return Ascent(point, best, self.scale, waited)
        restart = waited.astype(self.scale.dtype) * self.scale >= patience
        scale = jnp.where(restart, self.scale / 2, self.scale)
        point = tree_where(restart, best, point)
        return Ascent(point, best, scale, jnp.where(restart, 0, waited))


class DualState(NamedTuple):
    """The state of :class:`DIHT` and :class:`SDIHT`.

    Attributes:
        ascent: the dual points.
        bounds: what the gap needs.
        couplings: of DIHT sigma^2 / l2, the curvature of D that all samples share, of SDIHT
            b max ||a_i||^2 / l2 for each block.
        num_updates: int32, t.
        key: of the next draws; None where none are made.
    """

    ascent: Ascent
    bounds: Bounds
    couplings: Leaf
    num_updates: Leaf
    key: Any


class DualAscent(Solver):
    """What DIHT and SDIHT share: the start, the step size, and x from the best dual variables."""

    step_size: Numeric | None
    diminishing: bool
    debias: bool

    takes_complex = True

    def start(
        self, objective: LinearModel, constraint: Constraint, x0: Array
    ) -> tuple[Iterate, Ascent, Bounds, Info]:
        """The iterate at x0, the ascent from its dual variables, the bounds that are computed once,
        and the gap.

        D(0) is a lower bound of f, but alpha = 0 is not a good start where l* is steep there.
        """
        check_dual(objective)
        if self.diminishing and self.step_size is None:
            raise ValueError(
                f"step_size must be given for {type(self).__name__}(diminishing=True): where it is "
                "None, steps are adaptive"
            )
        iterate = evaluate(objective, x0)
        columns = column_bound(objective)
        alpha = dual_variables(objective, iterate.pred)
        origin = conjugate_loss(objective).within(jnp.zeros_like(alpha), objective.y)
        points = jax.vmap(lambda alpha: dual_point(objective, constraint, alpha, columns))(
            jnp.stack([alpha, origin])
        )
        point = jax.tree.map(lambda leaf: leaf[0], points)
        bounds = Bounds(floor=points.value[1], columns=columns)
        eta = 1 if self.step_size is None else self.step_size
        scale = jnp.asarray(eta, objective.real_dtype)
        ascent = Ascent(point, point, scale, jnp.zeros((), jnp.int32))
        status = jnp.where(objective.penalty > 0, Status.RUNNING, Status.NO_DUAL)
        gap = duality_gap(objective, iterate, point, bounds)
        return iterate, ascent, bounds, Info(status=check_step_size(scale, status), gap=gap)

    def eta(self, scale: Array, t: Array, curvature: Array) -> Array:
        """The step size of each coordinate in update t."""
        if self.step_size is not None:
            return scale / (t + 2) if self.diminishing else scale
        # For samples of weight 0, whose curvature is 0, it has no effect.
        return scale / jnp.where(curvature > 0, curvature, 1)

    def refit_best(
        self,
        objective: LinearModel,
        constraint: Constraint,
        iterate: Iterate,
        best: DualPoint,
        bounds: Bounds,
    ) -> tuple[Iterate, Info]:
        """w at the best alpha, or the refit on its support, or the iterate before if f is lower
        there; and its gap."""
        x = best.w
        refit_status: Numeric = RefitStatus.CONVERGED
        if self.debias:
            found = refit(objective, constraint.support_of(x), x)
            x = found.x
            refit_status = found.status
        new = evaluate(objective, x)  # by a product, whose rounding error is bounded
        accepted = ~(iterate.value <= new.value)  # NaN is accepted
        new = tree_where(accepted, new, iterate)
        gap = duality_gap(objective, new, best, bounds)
        return new, Info(gap=gap, accepted=accepted, refit_status=refit_status)


def duality_gap(objective: LinearModel, iterate: Iterate, best: DualPoint, bounds: Bounds) -> Array:
    """f(x) less the best lower bound, at least what it is without rounding errors."""
    upper = iterate.value + primal_error(objective, iterate.x, iterate.pred, bounds.columns)
    gap = upper - jnp.maximum(best.value, bounds.floor)
    return jnp.where(jnp.isnan(gap), jnp.inf, gap)  # without a ridge there is no bound


@pytree
class DIHT(DualAscent):
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
            ``30 / tau`` updates, tau is halved and the ascent restarts at the best alpha, because
            near ties w jumps between supports and no constant step size ascends.
        diminishing: bool, static; whether eta_t = eta / (t + 2), for a given eta. For a loss that is
            1/mu-smooth the theory takes ``eta = n / mu`` for the mean over n samples (Theorem 15);
            for the hinge a constant from a search.
        inner_steps: number of updates in one step of the runner, which ends with a new x and gap;
            an integer, traced.
        debias: bool, static; whether w is refitted on its support. Use False, as in the source,
            where a refit takes longer than the updates, for example for the hinge on many columns.

    Raises:
        ValueError: unless the objective is a linear model of one output with a single l2 > 0, and for
            diminishing steps without a step_size.

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
    inner_steps: Numeric = integer(default=10, least=1)
    debias: bool = static(default=True)

    def init(
        self, objective: LinearModel, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> Step[DualState]:
        """Compute alpha from x0."""
        iterate, ascent, bounds, info = self.start(objective, constraint, x0)
        coupling = jnp.zeros((), objective.real_dtype)
        if self.step_size is None:
            coupling = objective.gram_norm() / objective.penalty
        zero = jnp.zeros((), jnp.int32)
        return iterate, DualState(ascent, bounds, coupling, zero, None), info

    def step(
        self, objective: LinearModel, constraint: Constraint, iterate: Iterate, state: DualState
    ) -> Step[DualState]:
        """``inner_steps`` updates of alpha, then x from the best one."""
        bounds = state.bounds
        loss = conjugate_loss(objective)
        y = objective.y
        patience = PATIENCE_UPDATES if self.step_size is None else None

        def update(i, ascent):
            point = ascent.point
            g = supergradient(objective, point.alpha, objective.predict(point.w))
            # Of D / c: with c = 1 / n, g is as small as the curvature that divides it.
            curvature = loss.conjugate_curvature(point.alpha, y) + state.couplings
            curvature = objective.weight(curvature)
            eta = self.eta(ascent.scale, state.num_updates + i, curvature)
            alpha = loss.within(point.alpha + eta * g, y)
            point = dual_point(objective, constraint, alpha, bounds.columns)
            return ascent.move(point, patience)

        m = self.inner_steps
        ascent = fori_loop(0, m, update, state.ascent)
        new, info = self.refit_best(objective, constraint, iterate, ascent.best, bounds)
        state = state._replace(ascent=ascent, num_updates=state.num_updates + m)
        return new, state, replace(info, full_gradients=m, projections=m)


@pytree
class SDIHT(DualAscent):
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
            ascent restarted at the best alpha, whenever D has not increased for ``5 / tau`` steps
            of the runner.
        diminishing: bool, static; whether eta_t = eta / (t + 2), for a given eta. With m blocks and a
            1/mu-smooth loss the theory takes ``eta = m n / mu`` for the mean over n samples (Theorem
            19).
        batch_size: b, an int in [1, n], static.
        inner_steps: number of updates in one step of the runner, which ends with a new x and gap;
            an integer, traced. None: n / b, rounded up.
        debias: as of :class:`DIHT`.

    Raises:
        ValueError: unless the objective is a linear model of one output with a single l2 > 0, or if
            batch_size is not in [1, n], and for diminishing steps without a step_size; from
            :func:`jaxht.solve`, if no key is given.

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
    inner_steps: Numeric | None = integer(default=None, least=1)
    debias: bool = static(default=True)

    needs_key = True
    step_limit = 100  # epochs

    def init(
        self, objective: LinearModel, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> Step[DualState]:
        """Compute alpha from x0."""
        n = objective.num_samples
        check_batch_size(self.batch_size, n)
        iterate, ascent, bounds, info = self.start(objective, constraint, x0)
        b = self.batch_size
        squares = jnp.pad(objective.design.row_norms() ** 2, (0, -n % b))
        largest = jnp.max(squares.reshape(-1, b), axis=1)
        couplings = b * largest / objective.penalty
        zero = jnp.zeros((), jnp.int32)
        return iterate, DualState(ascent, bounds, couplings, zero, key), info

    def step(
        self, objective: LinearModel, constraint: Constraint, iterate: Iterate, state: DualState
    ) -> Step[DualState]:
        """One epoch of updates of alpha, then x from the best one."""
        ascent = state.ascent
        bounds = state.bounds
        key, draws = jax.random.split(state.key)
        n = objective.num_samples
        b = self.batch_size
        loss = conjugate_loss(objective)
        num_blocks = len(state.couplings)
        shares = objective.weight(jnp.ones(n, objective.real_dtype))
        take = functools.partial(jnp.take, mode="clip")

        def update(i, carry):
            alpha, z = carry
            number = jax.random.bits(jax.random.fold_in(draws, i), (), jnp.uint32) % num_blocks
            indices = number.astype(jnp.int32) * b + lax.iota(jnp.int32, b)
            a = take(alpha, indices)
            y = take(objective.y, indices)
            share = take(shares, indices)
            rows = objective.design.rows(indices)
            u = rows.matvec(constraint.project(z)[0])
            if objective.offset is not None:
                u += take(objective.offset, indices)
            g = share * (u - loss.conjugate_derivative(a, y))
            curvature = loss.conjugate_curvature(a, y) + share * state.couplings[number]
            eta = self.eta(ascent.scale, state.num_updates + i, share * curvature)
            # Of weight 0 y may be anything.
            moves = (indices < n) & (share > 0)
            change = jnp.where(moves, loss.within(a + eta * g, y) - a, 0)
            alpha = alpha.at[indices].add(change, mode="drop")
            return alpha, z - rows.rmatvec(share * change) / objective.penalty

        m = self.inner_steps
        if m is None:
            m = num_blocks
        alpha, _ = fori_loop(0, m, update, (ascent.point.alpha, ascent.point.z))
        alpha = loss.within(alpha, objective.y)
        patience = PATIENCE_EPOCHS if self.step_size is None else None
        point = dual_point(objective, constraint, alpha, bounds.columns)
        ascent = ascent.move(point, patience)
        new, info = self.refit_best(objective, constraint, iterate, ascent.best, bounds)
        state = state._replace(ascent=ascent, num_updates=state.num_updates + m, key=key)
        return new, state, replace(info, sample_gradients=m * b, projections=m)
