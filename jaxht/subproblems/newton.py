"""Regularised Newton steps in the coordinates of a subspace, optionally within bounds.

Minimise f over the w that are zero off a set of coordinates, and lie within bounds if there are
any. With B an upper bound of the Hessian (its curvatures replaced by their upper bounds, so H(w) <=
B), a step is

    s = -(H(w) + tau B)^-1 grad f(w)  on the coordinates that are free,    w+ = w + s, clipped to
    the bounds,

and is accepted where f decreases by Armijo's rule: then tau is divided by 100, else multiplied by
10. At tau = 1 the model is an upper bound of f, so that a step is always found; as tau vanishes,
convergence is quadratic; and where the curvature is 0 (hinges, the tails of Huber's loss) the
system stays regular. Where f is infinite (outside the domain of log det) the step is halved first.
Coordinates at a bound at which the gradient points outwards are not free (Bertsekas 1982). There is
a single loop, so that under vmap no lane waits for the line search of another.
"""

import enum
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from optax.tree_utils import tree_where

from jaxht._loops import while_loop
from jaxht._typing import Array, Leaf, Numeric
from jaxht.linalg.eigenvalues import random_vector
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.inner_products import check_real, real_dtype, real_vdot
from jaxht.linalg.lanes import lane_by_lane
from jaxht.linalg.normal_equations import ratio

# Entries of columns from which on those of several lanes no longer fit the caches of a CPU.
MIN_SERIAL_ENTRIES = 2**16


class RefitStatus(enum.IntEnum):
    """How a refit ended."""

    #: At a minimiser, up to rounding.
    CONVERGED = 0
    #: Before it reached a minimiser.
    FAILED = 1
    #: f has no minimiser: it decreases without end along a line, as the logistic loss without a
    #: ridge does where the features separate the classes.
    NO_MINIMISER = 2

    @classmethod
    def of(cls, converged: Any) -> Array:
        """CONVERGED or FAILED, int32."""
        return jnp.where(converged, cls.CONVERGED, cls.FAILED).astype(jnp.int32)


class Refit(NamedTuple):
    """The minimiser of an objective on a support; :func:`jaxht.subproblems.refit` returns one.

    Attributes:
        x: the minimiser, shaped like the variable, exactly zero off the support.
        pred: its prediction.
        status: int32, a :class:`RefitStatus`.
    """

    x: Leaf
    pred: Leaf
    status: Leaf

    @property
    def converged(self) -> Any:
        """Whether x is a minimiser up to rounding."""
        return self.status == RefitStatus.CONVERGED


class SmoothFunction(Protocol):
    """A function of coordinates w of which stationary points are known; a pytree, since derivatives
    pass through it."""

    def predict(self, w: Array) -> Array:
        """An image of w that value and gradient are computed from."""
        ...

    def gradient(self, w: Array, pred: Array) -> Array:
        """grad f at w."""
        ...

    def solver(
        self, w: Array, pred: Array, free: Array, tau: Numeric, rtol: float | None
    ) -> Callable[[Array], Array]:
        """``g -> (H + tau B)^-1 g`` for g that are 0 off ``free``, exactly or to a relative error
        of about rtol; None: of the gradient at w, as exactly as a Newton step asks for."""
        ...

    def curvatures(self) -> Array:
        """The diagonal of H, or near it but for a factor that all have in common; >= 0,
        broadcastable to w."""
        ...


class CoordinateFunction(SmoothFunction, Protocol):
    """A function that is to be minimised, whose predictions are linear in w."""

    def is_coercive(self, inside: Array) -> Any:
        """Whether f has a minimiser for certain, w being 0 where not ``inside``; a bool, or traced.
        None is looked for far away then."""
        ...

    @property
    def is_positive(self) -> bool:
        """Whether f > 0 everywhere, so that an f of 0 is rounding."""
        ...

    def value(self, w: Array, pred: Array) -> Array:
        """f at w."""
        ...


class Region(NamedTuple):
    """The set in which the coordinates w may lie.

    Attributes:
        inside: bool, shaped like w; False where w must be 0.
        bounds: lower and upper, broadcastable to w, or None.
    """

    inside: Leaf
    bounds: tuple[Any, Any] | None = None

    def clip(self, w: Array) -> Array:
        """The nearest point."""
        if self.bounds is not None:
            w = jnp.clip(w, *self.bounds)
        return jnp.where(self.inside, w, 0)

    def free(self, w: Array, gradient: Array) -> Array:
        """The coordinates that are not held at a bound by the gradient."""
        if self.bounds is None:
            return self.inside
        lower, upper = self.bounds
        is_held = (w <= lower) & (gradient > 0) | (w >= upper) & (gradient < 0)
        return self.inside & ~is_held


class RestrictedProblem(NamedTuple):
    """An objective in coordinates of its support, at a point.

    Attributes:
        f: the objective as a function of w, :class:`SmoothFunction`, or a
            :class:`CoordinateFunction`.
        w: the coordinates of the point.
        region: where w may lie.
        point: the variable with coordinates w.
    """

    f: Any
    w: Leaf
    region: Region
    point: Callable[[Array], Any]

    def minimise(self, enough: Numeric = 0.0) -> Refit:
        """The minimiser, from w; differentiable in f and bounds, in forward and reverse mode.

        Args:
            enough: a scalar, traced; steps may end with one that decreases f by less than this share
                of it. 0: at the minimiser up to rounding; infinite: none is taken.
        """
        descend = lane_by_lane(_descend, from_size=MIN_SERIAL_ENTRIES)
        enough = jnp.asarray(enough, real_dtype(self.w))
        found = descend(*lax.stop_gradient((self.f, self.w, self.region, enough)))
        w, pred = _stationary_point(self.f, found.x, found.pred, self.region)
        return Refit(self.point(w), pred, found.status)

    def differentiate(self) -> Any:
        """The point as it is, with the derivatives of a stationary point."""
        w, _ = _stationary_point(self.f, self.w, self.f.predict(self.w), self.region)
        return self.point(w)

    def regularity(self) -> "Regularity":
        """Check the requirements of the implicit function theorem at the point."""
        return _regularity(self.f, self.w, self.region)


class _Point(NamedTuple):
    """A point with what is known of f there."""

    w: Leaf
    pred: Leaf
    value: Leaf
    gradient: Leaf


class _NewtonState(NamedTuple):
    """The carry of Newton steps.

    Attributes:
        count: int32, steps taken, probes included.
        running: bool, whether further steps may help.
        converged: bool, whether ``here`` is a minimiser up to rounding.
        recedes: bool, whether f has been found to have no minimiser.
        probes: bool, whether the next step is only a look far ahead.
        here: the current point.
        tau: the damping of the next step.
        move: the last step.
        slope: the decrease that the last step predicted to first order.
    """

    count: Leaf
    running: Leaf
    converged: Leaf
    recedes: Leaf
    probes: Leaf
    here: _Point
    tau: Leaf
    move: Leaf
    slope: Leaf


class _Verdict(NamedTuple):
    """What a step has shown: :class:`_NewtonState` but for the point.

    Attributes:
        moves: bool, whether the step is taken.
        follows: bool, whether the next probe is along the point itself, not along the step.
    """

    moves: Leaf
    follows: Leaf
    running: Leaf
    converged: Leaf
    recedes: Leaf
    probes: Leaf
    tau: Leaf
    slope: Leaf


# The share of the predicted decrease that a step must reach.
ARMIJO = 0.1
# Relative error of Newton steps whose systems are solved iteratively.
INEXACT = 1e-3
# Changes of so many ulps are rounding.
FINE_ULPS = 100.0
# Slopes of two steps that converge decrease by more than this factor.
STALLED_RATIO = 10.0
# Slopes that fall by less are no longer those of an exponential.
LINEAR_RATIO = 0.9
# Of an exponential the rest of the decrease is 1/e of what the last step predicted. A probe has to
# find this share of it, where it is above so many ulps of f, and no larger share of the slope; and
# to change the predictions by this share of the largest.
PROBED_SHARE = 1 / 8
PROBED_ULPS = 16.0
PROBED_CHANGE = 0.01
# Steps along an exponential change its predictions by 1.
PROBED_LENGTH = 0.5
# Probes begin where slopes are below this power of eps, of steps whose tau is as small.
PROBED_POWER = 0.4
PROBED_TAU = 1e-6
START_TAU = 1e-2
MIN_TAU = 1e-10
MAX_TAU = 1e10
# The shortest share of a step that is tried outside of the domain of f.
MIN_SHARE = 1e-3
MAX_NEWTON_STEPS = 100
# Products of a preconditioned system with the Hessian.
MAX_SYSTEM_PRODUCTS = 200


def _descend(f: CoordinateFunction, w: Array, region: Region, enough: Array) -> Refit:
    """Take Newton steps from w.

    Towards a minimiser each slope is far below the one before. Where f has none, as where features
    separate the classes, it decreases as an exponential does: steps have equal lengths, and slopes
    fall by a factor of e. Once these are below a power of eps, a probe looks as many steps further
    as it takes to eps, beyond which f could not tell: where f has decreased, and is flat there, it
    has no minimiser. Where steps end before, by rounding at an f of about 0, a probe looks at 2 w;
    where the last step changed predictions but not f, ahead along it. Such a last probe is followed
    by one that looks behind.
    """
    eps = machine_eps(w)
    fine = FINE_ULPS * eps
    # Curvatures vanish where features separate the classes: damping would shorten those steps.
    min_tau = min(MIN_TAU, fine)
    num_probed = (1 - PROBED_POWER) * -math.log(eps)
    w = region.clip(w)
    pred = f.predict(w)
    value = f.value(w, pred)
    at_zero = jnp.abs(f.value(jnp.zeros_like(w), jnp.zeros_like(pred)))
    at_zero = jnp.where(jnp.isfinite(at_zero), at_zero, 0)
    rounding = max(FINE_ULPS, math.sqrt(pred.size))
    may_recede = jnp.logical_not(f.is_coercive(region.inside))
    # Between these f is 0 up to rounding, which may be that of larger predictions.
    least, most = (0.0, eps**0.25) if f.is_positive else (eps**1.5, eps**0.5)

    def attempt(state):
        w, pred, value, gradient = state.here
        free = region.free(w, gradient)
        step = f.solver(w, pred, free, state.tau, None)(jnp.where(free, gradient, 0))
        step = jnp.where(state.probes, -num_probed * state.move, step)

        def shorten(carry):
            share = carry[0] / 2
            trial = region.clip(w - share * step)
            pred = f.predict(trial)
            return share, trial, pred, f.value(trial, pred)

        def is_outside(carry):
            share, *_, value = carry
            return (value == jnp.inf) & (share > MIN_SHARE)

        # Outside the domain of f, where it is infinite, the step is halved: a larger tau would need
        # another solve.
        start = (jnp.full_like(state.tau, 2), w, pred, jnp.full_like(value, jnp.inf))
        _, trial, trial_pred, trial_value = while_loop(is_outside, shorten, start)
        there = _Point(
            w=trial,
            pred=trial_pred,
            value=trial_value,
            gradient=f.gradient(trial, trial_pred),
        )
        move = trial - w
        slope = -real_vdot(gradient, move)
        size = jnp.abs(value)
        # Along columns that cancel, steps are rounding errors, which change hardly any prediction.
        farthest = _largest(trial_pred - pred)
        is_long = farthest >= jnp.minimum(PROBED_CHANGE * _largest(pred), PROBED_LENGTH)

        def judge_probe():
            falls = value - trial_value >= PROBED_SHARE * state.slope
            falls &= state.slope >= PROBED_ULPS * eps * size
            # After the last step f may be as low as its rounding can tell.
            falls |= ~state.running & (trial_value <= value + eps * (rounding * size + at_zero))
            has_room = region.bounds is None or jnp.all(trial == w - step)
            # Where f rises there, a minimiser is between, however flat f is in units of the last
            # slope.
            noise = eps * at_zero * farthest
            rise = real_vdot(there.gradient, move)
            most_rise = jnp.maximum(PROBED_SHARE * num_probed * state.slope, noise)
            is_flat = jnp.abs(rise) <= most_rise
            least_rise = fine * jnp.maximum(jnp.abs(trial_value), eps * at_zero)
            rises = rise > jnp.maximum(least_rise, jnp.where(state.running, 0, noise))
            recedes = falls & is_flat & is_long & has_room & ~rises
            # Along what f does not depend on, as on a constant of all predictions of Cox, it is as
            # low behind as ahead.
            is_behind = state.recedes
            has_risen = trial_value - value >= jnp.maximum(math.sqrt(eps) * size, FINE_ULPS * noise)
            looks_behind = recedes & ~state.running & ~is_behind
            recedes = jnp.where(is_behind, has_risen, recedes)
            # Elsewhere, from so far, another refit could not tell.
            vanishes = trial_value <= math.sqrt(eps) * at_zero
            return _Verdict(
                moves=recedes & ~is_behind & vanishes,
                follows=jnp.array(False),
                running=state.running & ~recedes,
                converged=state.converged & (trial_value >= value - PROBED_CHANGE * size),
                recedes=recedes,
                probes=looks_behind,
                tau=state.tau,
                slope=state.slope,
            )

        def judge_step():
            # Of decreases below its rounding, which grows as the root of the number of terms, f
            # itself is no judge.
            is_near = state.tau <= 0.1
            ulps = jnp.where(is_near & (slope <= fine * size), rounding, 8)
            accepted = trial_value <= value - ARMIJO * slope + ulps * eps * size
            # The slope decreases quadratically: once it is below (FINE eps)^2 |f|, the step just
            # taken has made w exact. Where f itself decreases to 0 the step is compared with w,
            # also one that only the rounding of f rejects; it does not become small where w
            # diverges.
            change = real_vdot(move, move)
            square = real_vdot(trial, trial)
            is_exact = is_near & (change <= fine**2 * square)
            ended = is_exact | (is_near & accepted & (slope <= fine**2 * size))
            # Where w has converged except for the last digits, a small step that does not decrease
            # f is rounding.
            # Of a w that is large, since f has no minimiser, steps look small while f still
            # decreases.
            is_level = (slope <= math.sqrt(eps) * size) | (size <= most * at_zero)
            is_small = (slope <= fine * size) | (is_level & (change <= eps * square))
            is_enough = is_near & accepted & (slope <= enough * size)
            converged = is_exact | (is_small & jnp.where(accepted, is_near, state.converged))
            converged |= is_enough
            # While steps without tau converge, each slope is far below the one before; then
            # rounding keeps it where it is.
            is_slow = slope >= state.slope / STALLED_RATIO
            has_stalled = is_small & (state.tau <= MIN_TAU) & is_slow
            ended |= converged & (~accepted | has_stalled)
            ended |= is_enough | (state.count + 1 >= MAX_NEWTON_STEPS)
            is_slow &= accepted & (state.tau <= PROBED_TAU) & (slope <= LINEAR_RATIO * state.slope)
            probes = is_slow & (slope <= eps**PROBED_POWER * jnp.maximum(size, at_zero))
            tau = jnp.where(accepted, jnp.maximum(state.tau / 100, min_tau), 10 * state.tau)
            running = ~ended & (tau < MAX_TAU)
            # Where f has become 0 up to rounding, all that is left to look at is w itself.
            last_size = jnp.where(accepted, jnp.abs(trial_value), size)
            is_zero = (last_size >= least * at_zero) & (last_size <= most * at_zero)
            is_zero &= (at_zero > 0) & ~running
            # A step that changes predictions but not f.
            is_idle = accepted & is_long
            probes = jnp.where(running, probes, is_zero | is_idle) & may_recede
            return _Verdict(
                moves=accepted,
                follows=is_zero,
                running=running,
                converged=converged,
                recedes=jnp.array(False),
                probes=probes,
                tau=tau,
                slope=jnp.where(is_zero, last_size, slope),
            )

        verdict = tree_where(state.probes, judge_probe(), judge_step())
        here = tree_where(verdict.moves, there, state.here)
        move = jnp.where(verdict.follows, here.w / num_probed, move)
        return _NewtonState(
            count=state.count + 1,
            running=verdict.running,
            converged=verdict.converged,
            recedes=verdict.recedes,
            probes=verdict.probes,
            here=here,
            tau=verdict.tau,
            move=jnp.where(state.probes, -2 * state.move, move),
            slope=verdict.slope,
        )

    def goes_on(state):
        return state.running | state.probes

    start = _NewtonState(
        count=0,
        running=jnp.isfinite(value) & (enough < jnp.inf),
        converged=jnp.array(False),
        recedes=jnp.array(False),
        probes=jnp.array(False),
        here=_Point(w, pred, value, f.gradient(w, pred)),
        tau=jnp.full_like(value, START_TAU),
        move=jnp.zeros_like(w),
        slope=jnp.full_like(value, jnp.inf),
    )
    last = while_loop(goes_on, attempt, start)
    recedes = last.recedes
    if f.is_positive:
        recedes |= (last.here.value == 0) & (at_zero > 0) & may_recede
    status = jnp.where(recedes, RefitStatus.NO_MINIMISER, RefitStatus.of(last.converged))
    return Refit(last.here.w, last.here.pred, status.astype(jnp.int32))


@jax.custom_jvp
def _stationary_point(
    f: SmoothFunction, w: Array, pred: Array, region: Region
) -> tuple[Array, Array]:
    """w and pred as they are, with the derivatives of a stationary point of f, by the implicit
    function theorem.

    On the free coordinates ``H dw = -d(grad f)``; those at a bound, where the gradient points
    outwards, move with it. The derivatives are NaN where w is not stationary or the Hessian not
    regular. They cost :func:`_regularity`, two gradients and a system.
    """
    return w, pred


@_stationary_point.defjvp
def _stationary_point_jvp(primals: tuple, tangents: tuple) -> tuple:
    f, w, _, region = primals
    check_real(w)  # the transpose of a Hermitian matrix is another one
    f_dot, *_, region_dot = tangents
    # As a call, so that derivatives of this rule know that w depends on f.
    w, pred = _stationary_point(*primals)
    free = region.free(w, _gradient(f, w))
    bound_dot = jnp.zeros_like(w)
    if region.bounds is not None:
        lower_dot, upper_dot = region_dot.bounds
        held_dot = jnp.where(w <= region.bounds[0], lower_dot, upper_dot)
        bound_dot = jnp.where(region.inside & ~free, held_dot, 0).astype(w.dtype)
    _, gradient_dot = jax.jvp(_gradient, (f, w), (f_dot, bound_dot))
    solve = f.solver(w, pred, free, 0.0, FINE_ULPS * machine_eps(w))
    step = solve(jnp.where(free, gradient_dot, 0))
    # A factor, so that derivatives in reverse mode are NaN as well.
    stationary, regular, _ = _regularity(*lax.stop_gradient((f, w, region)))
    w_dot = (bound_dot - step) * jnp.where(stationary & regular, 1, jnp.nan).astype(w.dtype)
    _, pred_dot = jax.jvp(lambda f, w: f.predict(w), (f, w), (f_dot, w_dot))
    return (w, pred), (w_dot, pred_dot)


# How far a point may be from a stationary one, relative, in roots of machine epsilon.
STATIONARY_ROOTS = 10.0
# The relative error to which systems with a regular Hessian are solved, at worst.
SOLVED_RTOL = 0.1


class Regularity(NamedTuple):
    """What the implicit function theorem requires of a stationary point.

    Attributes:
        stationary: bool, whether a Newton step is at most STATIONARY_ROOTS roots of machine epsilon
            long, relative to w.
        regular: bool, whether a system with the Hessian is solved to SOLVED_RTOL whose solution is
            known and lies where the Hessian is least.
        strict: bool, whether the gradient is not about 0 at any bound that holds a coordinate: a
            Newton step on all coordinates would cross the bound.
    """

    stationary: Leaf
    regular: Leaf
    strict: Leaf


def _regularity(f: SmoothFunction, w: Array, region: Region) -> Regularity:
    """Check the requirements at w, by four systems, one of them roughly, and four products with the
    Hessian; with bounds by a further system."""
    pred = f.predict(w)
    gradient = f.gradient(w, pred)
    tolerance = STATIONARY_ROOTS * machine_eps(w) ** 0.5

    def newton_step(free):
        return f.solver(w, pred, free, 0.0, INEXACT)(jnp.where(free, gradient, 0))

    free = region.free(w, gradient)
    step = newton_step(free)
    stationary = jnp.vdot(step, step) <= tolerance**2 * jnp.vdot(w, w)
    strict = jnp.array(True)
    if region.bounds is not None:
        lower, upper = region.bounds
        at_bound = region.inside & ((w <= lower) | (w >= upper))
        least = tolerance * jnp.sqrt(jnp.vdot(w, w))
        is_small = jnp.abs(newton_step(region.inside)) <= least
        strict = ~jnp.any(at_bound & is_small)
    return Regularity(stationary, _is_regular(f, w, pred, free), strict)


def _is_regular(f: SmoothFunction, w: Array, pred: Array, free: Array) -> Array:
    """Whether systems with the Hessian on the free coordinates can be solved: two steps of inverse
    iteration.

    A random right-hand side b has a part in the null space of a singular H. A factorisation, which
    rounding has made regular, multiplies that part by the inverse of machine epsilon in its
    solution z; conjugate gradients may do so, or leave it in the residual b - H z. Hence one of
    both is nearly a null vector, which solving ``H v = H u`` for a sum u of both loses. For a
    regular H, u is close to the eigenvector of the least eigenvalue, for which rounding matters
    most. A coordinate without curvature is in the residual. Conjugate gradients may also diverge,
    to a u which says nothing: then z is longer than a regular H allows, ``|z| |H| > SOLVED |b| /
    eps``. All in units in which the diagonal of H is about 1.
    """
    eps = machine_eps(w)
    curvatures = f.curvatures()
    scale = jnp.sqrt(jnp.where(curvatures > 0, curvatures, 1))
    solve = f.solver(w, pred, free, 0.0, FINE_ULPS * eps)

    def product(v):
        _, image = jax.jvp(lambda w: _gradient(f, w), (w,), (v,))
        return jnp.where(free, image, 0)

    known = jnp.where(free, random_vector(w.size, w.dtype).reshape(w.shape), 0)
    # About |H|: that of a random vector.
    size = ratio(_largest(product(known / scale) / scale), _largest(known))
    growth: Any = 0.0
    # A second time for null vectors orthogonal to the first b: rounding errors are not.
    for _ in range(2):
        b = scale * known
        z = solve(b)
        growth = jnp.maximum(growth, ratio(_largest(scale * z), _largest(known)))
        known = _unit(scale * z) + _unit((b - product(z)) / scale) / 2  # the two do not cancel
    error = scale * solve(product(known / scale)) - known
    is_solved = jnp.vdot(error, error) <= SOLVED_RTOL**2 * jnp.vdot(known, known)
    return is_solved & (growth * size * eps <= SOLVED_RTOL)


def _largest(v: Array) -> Array:
    return jnp.max(jnp.abs(v), initial=0)


def _unit(v: Array) -> Array:
    v = v * ratio(1.0, _largest(v))  # its square may overflow
    return v * ratio(1.0, jnp.sqrt(jnp.vdot(v, v)))


def _gradient(f: SmoothFunction, w: Array) -> Array:
    return f.gradient(w, f.predict(w))
