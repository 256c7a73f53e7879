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

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from optax.tree_utils import tree_where

from jaxht._loops import while_loop
from jaxht._typing import Array, Leaf
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.inner_products import real_vdot
from jaxht.subproblems.coordinate_functions import FINE_ULPS, CoordinateFunction, Region
from jaxht.subproblems.refits import Refit, RefitStatus

# The share of the predicted decrease that a step must reach.
ARMIJO = 0.1
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
# Steps of a tau up to this one are near those of Newton's method.
NEAR_TAU = 0.1
MIN_TAU = 1e-10
MAX_TAU = 1e10
# The shortest share of a step that is tried outside of the domain of f.
MIN_SHARE = 1e-3
MAX_NEWTON_STEPS = 100
# Multiples of a step that are compared. On separable classes of 6000 samples refits on 300 to 900
# columns took a third fewer steps, on sparse text as many.
MULTIPLES = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0)


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


class _Trial(NamedTuple):
    """A point that a step leads to, beside the one before.

    Attributes:
        there: the point.
        move: from the point before to this one.
        is_whole: bool, whether no bound cuts the step.
        slope: the decrease that the step predicts to first order.
        size: |f| before the step.
        farthest: the largest change of a prediction.
        is_long: bool, whether predictions change by more than rounding along columns that cancel.
    """

    there: _Point
    move: Leaf
    is_whole: Leaf
    slope: Leaf
    size: Leaf
    farthest: Leaf
    is_long: Leaf


class _End(NamedTuple):
    """Whether steps end.

    Attributes:
        ended: bool, whether a further step would not help, or none is left.
        converged: bool, whether the point is a minimiser up to rounding, or as near as was asked.
    """

    ended: Leaf
    converged: Leaf


def descend(f: CoordinateFunction, w: Array, region: Region, enough: Array) -> Refit:
    """Take Newton steps from w, until one decreases f by less than the share ``enough`` of it.

    Towards a minimiser each slope is far below the one before. Where f has none, as where features
    separate the classes, it decreases as an exponential does: steps have equal lengths, and slopes
    fall by a factor of e. Once these are below a power of eps, a probe looks as many steps further
    as it takes to eps, beyond which f could not tell: where f has decreased, and is flat there, it
    has no minimiser. Where steps end before, by rounding at an f of about 0, a probe looks at 2 w;
    where the last step changed predictions but not f, ahead along it. Such a last probe is followed
    by one that looks behind.
    """
    w = region.clip(w)
    pred = f.predict(w)
    value = f.value(w, pred)
    at_zero = jnp.abs(f.value(jnp.zeros_like(w), jnp.zeros_like(pred)))
    descent = _Descent(
        f=f,
        region=region,
        enough=enough,
        at_zero=jnp.where(jnp.isfinite(at_zero), at_zero, 0),
        may_recede=jnp.logical_not(f.is_coercive(region.inside)),
        eps=machine_eps(w),
        rounding=max(FINE_ULPS, math.sqrt(pred.size)),
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
    last = while_loop(goes_on, descent.turn, start)
    recedes = last.recedes
    if f.is_positive:
        recedes |= (last.here.value == 0) & (descent.at_zero > 0) & descent.may_recede
    status = jnp.where(recedes, RefitStatus.NO_MINIMISER, RefitStatus.of(last.converged))
    return Refit(last.here.w, last.here.pred, status.astype(jnp.int32))


@dataclasses.dataclass(frozen=True)
class _Descent:
    """What all steps have in common.

    Attributes:
        f: the function.
        region: where its coordinates may lie.
        enough: a scalar; steps may end with one that decreases f by less than this share of it.
        at_zero: |f(0)|, or 0 where it is not finite.
        may_recede: bool, whether f may have no minimiser.
        eps: machine epsilon.
        rounding: of f near a minimiser, in ulps: it grows as the root of the number of terms.
    """

    f: CoordinateFunction
    region: Region
    enough: Array
    at_zero: Array
    may_recede: Array
    eps: float
    rounding: float

    @property
    def fine(self) -> float:
        """A relative change that is rounding."""
        return FINE_ULPS * self.eps

    @property
    def num_probed(self) -> float:
        """How many steps further a probe looks."""
        return (1 - PROBED_POWER) * -math.log(self.eps)

    @property
    def least_zero(self) -> float:
        """From here to ``most_zero``, in units of f(0), f is 0 up to rounding, which may be that of
        larger predictions."""
        return 0.0 if self.f.is_positive else self.eps**1.5

    @property
    def most_zero(self) -> float:
        """The largest f that is 0 up to rounding."""
        return self.eps**0.25 if self.f.is_positive else self.eps**0.5

    def turn(self, state: _NewtonState) -> _NewtonState:
        """Try a step or a probe, and take it where it is accepted."""
        trial = self.attempt(state)
        verdict = tree_where(
            state.probes,
            self.judge_probe(state, trial),
            self.judge_step(state, trial),
        )
        here = tree_where(verdict.moves, trial.there, state.here)
        move = jnp.where(verdict.follows, here.w / self.num_probed, trial.move)
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

    def attempt(self, state: _NewtonState) -> _Trial:
        """Where the next step or probe leads to."""
        f, region = self.f, self.region
        w, pred, value, gradient = state.here
        free = region.free(w, gradient)
        solve = f.solver(w, pred, free, state.tau, None)
        step = solve(jnp.where(free, gradient, 0))
        if self.searches_line:
            step = self.search_line(state.here, step)
        step = jnp.where(state.probes, -self.num_probed * state.move, step)

        there = self.shorten(state.here, step, like=state.tau)
        move = there.w - w
        slope = -real_vdot(gradient, move)
        size = jnp.abs(value)
        # Along columns that cancel, steps are rounding errors, which change hardly any prediction.
        farthest = largest(there.pred - pred)
        least_change = jnp.minimum(PROBED_CHANGE * largest(pred), PROBED_LENGTH)
        return _Trial(
            there=there,
            move=move,
            is_whole=region.bounds is None or jnp.all(there.w == w - step),
            slope=slope,
            size=size,
            farthest=farthest,
            is_long=farthest >= least_change,
        )

    @property
    def searches_line(self) -> bool:
        """Whether multiples of a step are compared; bounds would cut them."""
        return self.region.bounds is None and self.f.has_cheap_values

    def search_line(self, here: _Point, step: Array) -> Array:
        """The multiple of a step that decreases f most, of those that Armijo's rule accepts; the
        step itself where none is clearly better, or f may have no minimiser.

        Far from a minimiser curvatures change along the step: those of a logistic loss fall by
        orders of magnitude where features separate the classes.
        """
        image = self.f.predict(step)
        slope = real_vdot(here.gradient, step)
        multiples = jnp.asarray(MULTIPLES, here.value.dtype)

        def value(multiple):
            return self.f.value(here.w - multiple * step, here.pred - multiple * image)

        values = jax.vmap(value)(multiples)
        of_step = values[MULTIPLES.index(1.0)]
        is_accepted = values <= here.value - ARMIJO * multiples * slope
        values = jnp.where(is_accepted & ~self.may_recede, values, jnp.inf)
        best = jnp.argmin(values)
        # Near a minimiser the step itself is best, where f tells nothing.
        rounding = self.rounding * self.eps * jnp.abs(here.value)
        gain = of_step - values[best]
        is_better = (values[best] < jnp.inf) & (gain > ARMIJO * slope + rounding)
        return step * jnp.where(is_better, multiples[best], 1)

    def shorten(self, here: _Point, step: Array, like: Array) -> _Point:
        """The end of a step, which is halved outside the domain of f, where f is infinite: a larger
        tau would need another solve."""

        def halve(carry):
            share = carry[0] / 2
            trial = self.region.clip(here.w - share * step)
            pred = self.f.predict(trial)
            return share, trial, pred, self.f.value(trial, pred)

        def is_outside(carry):
            share, *_, value = carry
            return (value == jnp.inf) & (share > MIN_SHARE)

        share = jnp.full_like(like, 2)
        outside = jnp.full_like(here.value, jnp.inf)
        _, w, pred, value = while_loop(is_outside, halve, (share, here.w, here.pred, outside))
        return _Point(w, pred, value, self.f.gradient(w, pred))

    def judge_probe(self, state: _NewtonState, trial: _Trial) -> _Verdict:
        """Whether a look far ahead, or behind, shows that f has no minimiser."""
        before = state.here.value
        after = trial.there.value
        falls = before - after >= PROBED_SHARE * state.slope
        falls &= state.slope >= PROBED_ULPS * self.eps * trial.size
        # After the last step f may be as low as its rounding can tell.
        rounding = self.eps * (self.rounding * trial.size + self.at_zero)
        falls |= ~state.running & (after <= before + rounding)

        # Where f rises there, a minimiser is between, however flat f is in units of the last slope.
        noise = self.eps * self.at_zero * trial.farthest
        rise = real_vdot(trial.there.gradient, trial.move)
        most_rise = jnp.maximum(PROBED_SHARE * self.num_probed * state.slope, noise)
        is_flat = jnp.abs(rise) <= most_rise
        least_rise = self.fine * jnp.maximum(jnp.abs(after), self.eps * self.at_zero)
        rises = rise > jnp.maximum(least_rise, jnp.where(state.running, 0, noise))
        recedes = falls & is_flat & trial.is_long & trial.is_whole & ~rises

        # Along what f does not depend on, as on a constant of all predictions of Cox, it is as low
        # behind as ahead.
        is_behind = state.recedes
        least_risen = jnp.maximum(math.sqrt(self.eps) * trial.size, FINE_ULPS * noise)
        has_risen = after - before >= least_risen
        looks_behind = recedes & ~state.running & ~is_behind
        recedes = jnp.where(is_behind, has_risen, recedes)

        # Elsewhere, from so far, another refit could not tell.
        vanishes = after <= math.sqrt(self.eps) * self.at_zero
        return _Verdict(
            moves=recedes & ~is_behind & vanishes,
            follows=jnp.array(False),
            running=state.running & ~recedes,
            converged=state.converged & (after >= before - PROBED_CHANGE * trial.size),
            recedes=recedes,
            probes=looks_behind,
            tau=state.tau,
            slope=state.slope,
        )

    def judge_step(self, state: _NewtonState, trial: _Trial) -> _Verdict:
        """Whether a step is taken, and whether it is the last."""
        accepted = self.accepts(state, trial)
        ended, converged = self.find_end(state, trial, accepted)
        min_tau = min(MIN_TAU, self.fine)
        smaller = jnp.maximum(state.tau / 100, min_tau)
        tau = jnp.where(accepted, smaller, 10 * state.tau)
        running = ~ended & (tau < MAX_TAU)

        # Where f has become 0 up to rounding, all that is left to look at is w itself.
        last_size = jnp.where(accepted, jnp.abs(trial.there.value), trial.size)
        is_zero = last_size >= self.least_zero * self.at_zero
        is_zero &= last_size <= self.most_zero * self.at_zero
        is_zero &= (self.at_zero > 0) & ~running
        # A step that changes predictions but not f.
        is_idle = accepted & trial.is_long
        is_exponential = accepted & self.is_exponential(state, trial)
        probes = jnp.where(running, is_exponential, is_zero | is_idle)
        return _Verdict(
            moves=accepted,
            follows=is_zero,
            running=running,
            converged=converged,
            recedes=jnp.array(False),
            probes=probes & self.may_recede,
            tau=tau,
            slope=jnp.where(is_zero, last_size, trial.slope),
        )

    def accepts(self, state: _NewtonState, trial: _Trial) -> Array:
        """Armijo's rule, up to the rounding of f, which is no judge of decreases below it."""
        is_fine = trial.slope <= self.fine * trial.size
        ulps = jnp.where((state.tau <= NEAR_TAU) & is_fine, self.rounding, 8)
        most = state.here.value - ARMIJO * trial.slope + ulps * self.eps * trial.size
        return trial.there.value <= most

    def find_end(self, state: _NewtonState, trial: _Trial, accepted: Array) -> _End:
        """Whether the step is the last one, and leads to a minimiser."""
        slope, size = trial.slope, trial.size
        is_near = state.tau <= NEAR_TAU
        # The slope decreases quadratically: once it is below (FINE eps)^2 |f|, the step just taken
        # has made w exact. Where f itself decreases to 0 the step is compared with w, also one that
        # only the rounding of f rejects; it does not become small where w diverges.
        change = real_vdot(trial.move, trial.move)
        square = real_vdot(trial.there.w, trial.there.w)
        is_exact = is_near & (change <= self.fine**2 * square)
        ended = is_exact | (is_near & accepted & (slope <= self.fine**2 * size))

        # Where w has converged except for the last digits, a small step that does not decrease f is
        # rounding. Of a w that is large, since f has no minimiser, steps look small while f still
        # decreases.
        is_level = slope <= math.sqrt(self.eps) * size
        is_level |= size <= self.most_zero * self.at_zero
        is_small = (slope <= self.fine * size) | (is_level & (change <= self.eps * square))
        is_enough = is_near & accepted & (slope <= self.enough * size)
        converged = is_exact | (is_small & jnp.where(accepted, is_near, state.converged))
        converged |= is_enough

        # While steps without tau converge, each slope is far below the one before; then rounding
        # keeps it where it is.
        is_slow = slope >= state.slope / STALLED_RATIO
        has_stalled = is_small & (state.tau <= MIN_TAU) & is_slow
        ended |= converged & (~accepted | has_stalled)
        ended |= is_enough | (state.count + 1 >= MAX_NEWTON_STEPS)
        return _End(ended, converged)

    def is_exponential(self, state: _NewtonState, trial: _Trial) -> Array:
        """Whether f decreases as an exponential does, and slopes are so small that a probe is due."""
        is_slow = trial.slope >= state.slope / STALLED_RATIO
        falls = is_slow & (trial.slope <= LINEAR_RATIO * state.slope)
        most = self.eps**PROBED_POWER * jnp.maximum(trial.size, self.at_zero)
        return falls & (state.tau <= PROBED_TAU) & (trial.slope <= most)


def largest(v: Array) -> Array:
    """The largest magnitude; 0 of no entries."""
    return jnp.max(jnp.abs(v), initial=0)
