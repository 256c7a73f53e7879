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
a single loop, so that under vmap no lane waits for the line search of another."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array, Leaf, Numeric
from jaxht.linalg.eigenvalues import random_vector
from jaxht.linalg.lanes import lane_by_lane
from jaxht.linalg.linear_solvers import ratio


class Refit(NamedTuple):
    """The minimiser of an objective on a support; :func:`jaxht.subproblems.refit` returns one.

    Attributes:
        x: the minimiser, shaped like the variable, exactly zero off the support.
        pred: its prediction.
        converged: bool, whether it is a minimiser up to rounding. It is False where f has no
            minimiser on the support: the logistic loss, without a ridge, of data that a k-sparse
            classifier separates.
    """

    x: Leaf
    pred: Leaf
    converged: Leaf


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
        self, w: Array, pred: Array, free: Array, tau: Numeric, rtol: float
    ) -> Callable[[Array], Array]:
        """``g -> (H + tau B)^-1 g`` for g that are 0 off ``free``, exactly or to a relative error
        of about rtol."""
        ...

    def curvatures(self) -> Array:
        """The diagonal of H, or near it but for a factor that all have in common; >= 0,
        broadcastable to w."""
        ...


class CoordinateFunction(SmoothFunction, Protocol):
    """A function that is to be minimised, whose predictions are linear in w."""

    def value(self, w: Array, pred: Array) -> Array:
        """f at w."""
        ...


class RestrictedProblem(NamedTuple):
    """An objective in coordinates of its support, at a point.

    Attributes:
        f: the objective as a function of w, :class:`SmoothFunction`, or a :class:`CoordinateFunction`.
        w: the coordinates of the point.
        inside: bool, shaped like w; False where w must be 0.
        bounds: lower and upper, broadcastable to w, or None.
        point: the variable with coordinates w.
    """

    f: Any
    w: Leaf
    inside: Leaf
    bounds: tuple[Any, Any] | None
    point: Callable[[Array], Any]

    def minimise(self) -> Refit:
        """The minimiser, from w."""
        w, pred, converged = newton(self.f, self.w, self.inside, self.bounds)
        return Refit(self.point(w), pred, converged)

    def differentiate(self) -> Any:
        """The point as it is, with the derivatives of :func:`stationary_point`."""
        w, _ = stationary_point(self.f, self.w, self.f.predict(self.w), self.inside, self.bounds)
        return self.point(w)

    def regularity(self) -> "Regularity":
        """The :func:`regularity` of the point."""
        return regularity(self.f, self.w, self.inside, self.bounds)


def newton(f: CoordinateFunction, w: Array, inside: Array, bounds: tuple[Any, Any] | None) -> Refit:
    """Minimise f, starting from w.

    Args:
        f: the function.
        w: start.
        inside: bool, shaped like w; False where w must be 0.
        bounds: lower and upper, broadcastable to w, or None.

    Returns:
        Minimiser, pred, and whether it converged; differentiable in f and bounds, in forward and
        reverse mode.
    """
    descend = lane_by_lane(_descend, from_size=MIN_SERIAL_ENTRIES)
    found = descend(*lax.stop_gradient((f, w, inside, bounds)))
    w, pred = stationary_point(f, found.x, found.pred, inside, bounds)
    return Refit(w, pred, found.converged)


class _State(NamedTuple):
    """Of the loop of Newton steps; ``slope`` is the decrease that the last step predicted to first
    order."""

    count: Leaf
    running: Leaf
    converged: Leaf
    w: Leaf
    pred: Leaf
    value: Leaf
    gradient: Leaf
    tau: Leaf
    slope: Leaf


def _descend(
    f: CoordinateFunction, w: Array, inside: Array, bounds: tuple[Any, Any] | None
) -> Refit:
    """:func:`newton`, without derivatives."""
    eps = float(jnp.finfo(w.dtype).eps)

    def clipped(w: Array) -> Array:
        return jnp.where(inside, w if bounds is None else jnp.clip(w, *bounds), 0)

    def attempt(state: _State) -> _State:
        _, _, converged, w, pred, value, gradient, tau, last = state
        free = _free(w, gradient, inside, bounds)
        gradient_free = jnp.where(free, gradient, 0)
        step = f.solver(w, pred, free, tau, INEXACT)(gradient_free)

        def along(t: Array) -> Any:
            trial = clipped(w - t * step)
            pred = f.predict(trial)
            return t, trial, pred, f.value(trial, pred)

        # Outside the domain of f, where it is infinite, the step is halved: a larger tau would need
        # another solve.
        _, trial, trial_pred, trial_value = lax.while_loop(
            lambda carry: (carry[3] == jnp.inf) & (carry[0] > SHORT),
            lambda carry: along(carry[0] / 2),
            (jnp.full_like(tau, 2), w, pred, jnp.full_like(value, jnp.inf)),
        )
        move = trial - w
        slope, size, near = -jnp.vdot(gradient, move), jnp.abs(value), tau <= 0.1
        # Of decreases below its rounding, which grows as the root of the number of terms, f itself
        # is no judge.
        units = jnp.where(near & (slope <= FINE * eps * size), max(FINE, math.sqrt(pred.size)), 8)
        accepted = trial_value <= value - ARMIJO * slope + units * eps * size
        w, pred = jnp.where(accepted, trial, w), jnp.where(accepted, trial_pred, pred)
        value = jnp.where(accepted, trial_value, value)
        gradient = jnp.where(accepted, f.gradient(trial, trial_pred), gradient)

        # The slope decreases quadratically: once it is below (FINE eps)^2 |f|, the step just taken
        # has made w exact. Where f itself decreases to 0 the step is compared with w, also one that
        # only the rounding of f rejects; it does not become small where w diverges.
        change, square = jnp.vdot(move, move), jnp.vdot(w, w)
        exact = near & (change <= (FINE * eps) ** 2 * square)
        ended = exact | (near & accepted & (slope <= (FINE * eps) ** 2 * size))
        # Where w has converged except for the last digits, a small step that does not decrease f is
        # rounding.
        small = (slope <= FINE * eps * size) | (change <= eps * square)
        converged = exact | (small & jnp.where(accepted, near, converged))
        # While steps without tau converge, each slope is far below the one before; then rounding
        # keeps it where it is.
        ended |= converged & (~accepted | (small & (tau <= MIN_TAU) & (slope >= last / STALLED)))
        tau = jnp.where(accepted, jnp.maximum(tau / 100, MIN_TAU), 10 * tau)
        return _State(
            state.count + 1,
            ~ended & (tau < MAX_TAU),
            converged,
            w,
            pred,
            value,
            gradient,
            tau,
            slope,
        )

    w = clipped(w)
    pred = f.predict(w)
    value = f.value(w, pred)
    tau, slope = jnp.full_like(value, START_TAU), jnp.full_like(value, jnp.inf)
    start = _State(
        0, jnp.isfinite(value), jnp.array(False), w, pred, value, f.gradient(w, pred), tau, slope
    )
    last = lax.while_loop(lambda state: (state.count < MAX_STEPS) & state.running, attempt, start)
    return Refit(last.w, last.pred, last.converged)


@jax.custom_jvp
def stationary_point(
    f: SmoothFunction, w: Array, pred: Array, inside: Array, bounds: tuple[Any, Any] | None
) -> tuple[Array, Array]:
    """w and pred as they are, with the derivatives of a stationary point of f, by the implicit
    function theorem.

    On the free coordinates ``H dw = -d(grad f)``; those at a bound, where the gradient points
    outwards, move with it. The derivatives are NaN where w is not :class:`Regularity.stationary
    <Regularity>` or the Hessian not regular.

    Args:
        f: the function.
        w: found by any means.
        pred: its prediction.
        inside: as of :func:`newton`.
        bounds: as of :func:`newton`.

    Returns:
        w and pred, differentiable in f and bounds, in forward and reverse mode, any number of
        times.

    Cost: nothing without derivatives; else :func:`regularity`, two gradients and a system.
    """
    return w, pred


@stationary_point.defjvp
def _stationary_point_jvp(primals: tuple, tangents: tuple) -> tuple:
    (f, _, _, inside, bounds), (f_dot, *_, bounds_dot) = primals, tangents
    w, pred = stationary_point(
        *primals
    )  # so that derivatives of this rule know that w depends on f
    free = free_coordinates(f, w, inside, bounds)
    bound_dot = jnp.zeros_like(w)
    if bounds is not None:
        lower_dot, upper_dot = bounds_dot
        bound_dot = jnp.where(
            inside & ~free, jnp.where(w <= bounds[0], lower_dot, upper_dot), 0
        ).astype(w.dtype)
    _, gradient_dot = jax.jvp(_gradient, (f, w), (f_dot, bound_dot))
    step = f.solver(w, pred, free, 0.0, FINE * float(jnp.finfo(w.dtype).eps))(
        jnp.where(free, gradient_dot, 0)
    )
    # A factor, so that derivatives in reverse mode are NaN as well.
    stationary, regular, _ = regularity(*lax.stop_gradient((f, w, inside, bounds)))
    w_dot = (bound_dot - step) * jnp.where(stationary & regular, 1, jnp.nan).astype(w.dtype)
    _, pred_dot = jax.jvp(lambda f, w: f.predict(w), (f, w), (f_dot, w_dot))
    return (w, pred), (w_dot, pred_dot)


class Regularity(NamedTuple):
    """What the implicit function theorem requires of a stationary point.

    Attributes:
        stationary: bool, whether a Newton step is at most STATIONARY roots of machine epsilon long,
            relative to w.
        regular: bool, whether a system with the Hessian is solved to SOLVED, relative, whose
            solution is known and lies where the Hessian is least: see :func:`_is_regular`.
        strict: bool, whether the gradient is not about 0 at any bound that holds a coordinate: a
            Newton step on all coordinates would cross the bound.
    """

    stationary: Leaf
    regular: Leaf
    strict: Leaf


def regularity(
    f: SmoothFunction, w: Array, inside: Array, bounds: tuple[Any, Any] | None
) -> Regularity:
    """Check the requirements of the implicit function theorem at a point w; arguments as of
    :func:`newton`.

    Cost: four systems, one of them roughly, and four products with the Hessian; with bounds a
    further system."""
    pred, eps = f.predict(w), float(jnp.finfo(w.dtype).eps)
    gradient = f.gradient(w, pred)
    free = inside if bounds is None else _free(w, gradient, inside, bounds)
    step = f.solver(w, pred, free, 0.0, INEXACT)(jnp.where(free, gradient, 0))
    tolerance = STATIONARY * eps**0.5
    stationary = jnp.vdot(step, step) <= tolerance**2 * jnp.vdot(w, w)
    regular = _is_regular(f, w, pred, free)
    strict = jnp.array(True)
    if bounds is not None:
        at_bound = inside & ((w <= bounds[0]) | (w >= bounds[1]))
        step = f.solver(w, pred, inside, 0.0, INEXACT)(jnp.where(inside, gradient, 0))
        strict = ~jnp.any(at_bound & (jnp.abs(step) <= tolerance * jnp.sqrt(jnp.vdot(w, w))))
    return Regularity(stationary, regular, strict)


def _is_regular(f: SmoothFunction, w: Array, pred: Array, free: Array) -> Array:
    """Whether systems with the Hessian on the free coordinates can be solved: two steps of inverse
    iteration.

    A random right-hand side b has a part in the null space of a singular H. A factorisation, which
    rounding has made regular, multiplies that part by the inverse of machine epsilon in its
    solution z; conjugate gradients may do so, or leave it in the residual b - H z. Hence one of
    both is nearly a null vector, which solving ``H v = H u`` for a sum u of both loses. For a
    regular H, u is close to the eigenvector of the least eigenvalue, for which rounding matters
    most. A coordinate without curvature is in the residual. Conjugate gradients may also diverge,
    to a u which says
    nothing: then z is longer than a regular H allows, ``|z| |H| > SOLVED |b| / eps``. All in units
    in which the diagonal of H is about 1."""
    curvatures, eps = f.curvatures(), float(jnp.finfo(w.dtype).eps)
    scale = jnp.sqrt(jnp.where(curvatures > 0, curvatures, 1))
    solve = f.solver(w, pred, free, 0.0, FINE * eps)

    def product(v: Array) -> Array:
        return jnp.where(free, jax.jvp(lambda w: _gradient(f, w), (w,), (v,))[1], 0)

    known = jnp.where(free, random_vector(w.size, w.dtype).reshape(w.shape), 0)
    size = ratio(
        _largest(product(known / scale) / scale), _largest(known)
    )  # about |H|: that of a random vector
    growth: Any = 0.0
    for _ in range(
        2
    ):  # a second time for null vectors orthogonal to the first b: rounding errors are not
        b = scale * known
        z = solve(b)
        growth = jnp.maximum(growth, ratio(_largest(scale * z), _largest(known)))
        known = _unit(scale * z) + _unit((b - product(z)) / scale) / 2  # the two do not cancel
    error = scale * solve(product(known / scale)) - known
    is_solved = jnp.vdot(error, error) <= SOLVED**2 * jnp.vdot(known, known)
    return is_solved & (growth * size * eps <= SOLVED)


def _largest(v: Array) -> Array:
    return jnp.max(jnp.abs(v), initial=0)


def _unit(v: Array) -> Array:
    v = v * ratio(1.0, _largest(v))  # its square may overflow
    return v * ratio(1.0, jnp.sqrt(jnp.vdot(v, v)))


def _gradient(f: SmoothFunction, w: Array) -> Array:
    return f.gradient(w, f.predict(w))


def free_coordinates(
    f: SmoothFunction, w: Array, inside: Array, bounds: tuple[Any, Any] | None
) -> Array:
    """The coordinates that are not held at a bound by the gradient."""
    return inside if bounds is None else _free(w, _gradient(f, w), inside, bounds)


def _free(w: Array, gradient: Array, inside: Array, bounds: tuple[Any, Any] | None) -> Array:
    if bounds is None:
        return inside
    lower, upper = bounds
    return inside & ~((w <= lower) & (gradient > 0)) & ~((w >= upper) & (gradient < 0))


ARMIJO = 0.1
INEXACT = 1e-3  # relative error of systems that are solved iteratively
FINE = 100.0
STALLED = 10.0  # of the slopes of two steps: converging ones decrease faster
START_TAU, MIN_TAU, MAX_TAU = 1e-2, 1e-10, 1e10
SHORT = 1e-3
MAX_STEPS = 100
MIN_SERIAL_ENTRIES = (
    2**16
)  # entries of the columns from which on those of several lanes no longer fit the caches of a CPU
# How far a point may be from a stationary one, relative, in roots of machine epsilon; and the
# relative error to which systems with a regular Hessian are solved, at worst.
STATIONARY = 10.0
SOLVED = 0.1
