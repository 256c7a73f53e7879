"""Normalised iterative hard thresholding."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from optax.tree_utils import tree_where

from jaxht._dataclass import pytree, static
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.constraints import Constraint, ModelSubspace
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.inner_products import real_dtype, real_vdot
from jaxht.linalg.lanes import either
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Info, Iterate, check_step_size, evaluate
from jaxht.solvers.pursuit import NesterovPoint
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status

# 2^-60 of the exact step is far below rounding.
MAX_STEP_HALVINGS = 60
# A try divides the step by at least so much where the most tries are counted.
MIN_SHRINKAGE = 1.01
# Rounding errors of f(x0), in units in its last place: far above what sums of n terms lose, and far
# below what matters.
VALUE_NOISE_ULPS = 64.0


class NIHTState(NamedTuple):
    """The state of :class:`NIHT`.

    Attributes:
        gradient: g, at the point from which the next step is taken.
        support: S, that of the current x.
        rounding: a bound of the rounding errors of f, a scalar.
        start: the extrapolated point from which the next step is taken; None: the iterate.
        tries: int32, how many step sizes the current step has tried in vain.
        step_size: the last one that was tried, a scalar.
    """

    gradient: Leaf
    support: ModelSubspace
    rounding: Leaf
    start: NesterovPoint | None
    tries: Leaf
    step_size: Leaf


@pytree
class NIHT(Solver):
    r"""Iterative hard thresholding with the exact step on the current support: no step size to
    choose.

    .. math::
        g = \nabla f(x), \quad S = supp(x) \text{ (at } x = 0:\ supp(g, k)), \quad
        \eta = \frac{\|g_S\|^2}{\|A g_S\|^2}, \quad \tilde x = H_k(x - \eta g)

    If supp(x~) is not S, the step must also satisfy ``eta <= (1 - c) ||x~ - x||^2 / ||A (x~ -
    x)||^2``; a step that does not is retried with eta divided by ``q (1 - c)``. Where g_S = 0, eta
    is the exact step along g. For general f, eta uses the curvature of f at x along g_S, and the
    condition uses the mean curvature along the step, ``(x~ - x)' (grad f(x~) - grad f(x))``. Every
    step must then satisfy the condition, with 2 in place of 1 - c where the support does not change
    and there are no bounds. Quadratic f then never increases; for other f, ``f(x~) <= f(x)`` is
    required as well, up to a rounding error of f(x0).

    For matrices of low rank ``g_S`` is ``U U' g V V'``, with the singular vectors of x (Tanner &
    Wei 2013 take U alone), and steps start from an extrapolated point, see ``nesterov``.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        c: in (0, 1), a scalar, traced: margin of the step condition.
        q: > 1 / (1 - c), a scalar, traced: how fast the step size shrinks; others end as
            INVALID_STEP_SIZE.
        nesterov: bool, static; for :class:`jaxht.LowRank`: whether a step is taken from ``x + nu
            (x - x_prev)``, Nesterov's extrapolation, restarted where it points backwards. Then f
            may increase in a step. Elsewhere it has no effect.

    Cost: a step takes one full gradient and one product for eta; each further trial a projection
    and a gradient; with acceleration a further gradient. A trial is a turn of the run's loop: lanes
    under vmap do not wait for each other's trials.

    Source: Blumensath & Davies 2010, Algorithm 1, which does not fix c and q; O'Donoghue & Candès
    2015 for the acceleration.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.NIHT()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    c: Numeric = 0.01
    q: Numeric = 2.0
    nesterov: bool = static(default=True)

    fixed_point_test = True
    takes_turns = True
    takes_complex = True
    step_limit = 5_000

    @property
    def shrinkage(self) -> Numeric:
        """By what a step that is too long is divided."""
        return self.q * (1 - self.c)

    @property
    def max_tries(self) -> Array:
        """After how many tries a step is far below rounding."""
        tries = MAX_STEP_HALVINGS / jnp.log2(jnp.maximum(self.shrinkage, MIN_SHRINKAGE))
        return jnp.ceil(tries).astype(jnp.int32)

    def init(
        self, objective: Objective, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> Step[NIHTState]:
        """The gradient at x0, and S."""
        iterate = evaluate(objective, x0)
        g = objective.gradient(x0, iterate.pred)
        _, first_support = constraint.project(-g)
        S = tree_where(jnp.any(x0 != 0), constraint.support_of(x0), first_support)
        rounding = VALUE_NOISE_ULPS * machine_eps(x0) * jnp.abs(iterate.value)
        extrapolates = self.nesterov and not constraint.coordinatewise
        start = NesterovPoint.init(iterate) if extrapolates else None
        state = NIHTState(
            gradient=g,
            support=S,
            rounding=rounding,
            start=start,
            tries=jnp.zeros((), jnp.int32),
            step_size=jnp.ones((), real_dtype(g)),
        )
        return iterate, state, Info(full_gradients=1, projections=1)

    def step(
        self, objective: Objective, constraint: Constraint, iterate: Iterate, state: NIHTState
    ) -> Step[NIHTState]:
        """Try the exact step on the support, or, where that was too long, a shorter one."""
        g, S, start = state.gradient, state.support, state.start
        point: Iterate | NesterovPoint = iterate
        most = iterate.value + state.rounding
        if start is not None:
            point = start
            most = jnp.inf  # the point lies outside of the set
        x = point.x

        shorter = state.step_size / self.shrinkage
        is_first = state.tries == 0
        eta, flat = either(is_first, _exact_step, _keep, objective, point, g, S, shorter)
        projected, S_new = constraint.project(x - eta * g, iterate.x)
        new = evaluate(objective, projected)
        gradient = objective.gradient(new.x, new.pred)
        move = new.x - x
        is_same = S_new.equals(S) & (S_new.bounds is None)
        # Multiplied out: no division by a vanishing curvature; and in units of the move, in which
        # no square over- or underflows.
        length = jnp.max(jnp.abs(move))
        unit = move / jnp.where(length > 0, length, 1)
        margin = jnp.where(is_same, 2, 1 - self.c)
        rise = real_vdot(unit, gradient - g)
        is_short = eta * rise <= margin * length * real_vdot(unit, unit)
        # A NaN is never accepted: the bound on tries ends the step, and the runner reports
        # DIVERGED.
        accepted = is_short & (new.value <= most)
        accepted |= state.tries + 1 >= self.max_tries

        # Where g = 0 a step of 0 is no failure.
        status = check_step_size(jnp.where(flat, 1, eta))
        status = jnp.where(self.shrinkage > 1, status, Status.INVALID_STEP_SIZE)
        full_gradients = jnp.ones((), jnp.int32)
        if start is not None:
            next_start = start.update(new, iterate)
            gradient, _ = either(accepted, _gradient_at, _keep, objective, next_start, gradient)
            start = tree_where(accepted, next_start, start)
            full_gradients += accepted.astype(jnp.int32)
        state = NIHTState(
            gradient=jnp.where(accepted, gradient, g),
            support=tree_where(accepted, S_new, S),
            rounding=state.rounding,
            start=start,
            tries=jnp.where(accepted, 0, state.tries + 1),
            step_size=eta,
        )
        info = Info(
            full_gradients=full_gradients,
            projections=1,
            status=status,
            accepted=accepted,
            ends_step=accepted,
        )
        return tree_where(accepted, new, iterate), state, info


def _exact_step(
    objective: Objective, point: Iterate | NesterovPoint, g: Array, S: ModelSubspace, shorter: Array
) -> tuple[Array, Array]:
    """``||g_S||^2 / ||A g_S||^2``, and whether g = 0."""
    g_S = S.restrict(g)
    # In units of the largest entry no square over- or underflows.
    scale_S = jnp.max(jnp.abs(g_S))
    # Where x is stationary on S, which may lack items, the step is that of the whole gradient.
    on_S = scale_S > 0
    direction = jnp.where(on_S, g_S, g)
    scale = jnp.where(on_S, scale_S, jnp.max(jnp.abs(g)))
    flat = scale == 0
    v = direction / jnp.where(flat, 1, scale)
    hessian = objective.hessian(point.x, point.pred)
    curvature = hessian.quadratic_form(v, objective.predict(v))
    eta = real_vdot(v, v) / jnp.where(flat, 1, curvature)
    return jnp.where(jnp.isfinite(eta), eta, 0), flat  # x stays, and the step size is reported


def _gradient_at(
    objective: Objective, point: NesterovPoint, gradient: Array
) -> tuple[Array, Array]:
    return objective.gradient(point.x, point.pred), jnp.array(False)


def _keep(*args: Any) -> tuple[Array, Array]:
    return args[-1], jnp.array(False)
