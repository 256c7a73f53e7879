"""Regularised Newton steps in the coordinates of a subspace, optionally within bounds.

Minimise f over the w that are zero off a set of coordinates, and lie within bounds if there are any. With B an upper
bound of the Hessian (its curvatures replaced by their upper bounds, so H(w) <= B), a step is

    s = -(H(w) + tau B)^-1 grad f(w)  on the coordinates that are free,    w+ = w + s, clipped to the bounds,

and is accepted where f decreases by Armijo's rule: then tau is divided by 100, else multiplied by 10. At tau = 1 the
model is an upper bound of f, so that a step is always found; as tau vanishes, convergence is quadratic; and where the
curvature is 0 (hinges, the tails of Huber's loss) the system stays regular. Where f is infinite (outside the domain of
log det) the step is halved first. Coordinates at a bound at which the gradient points outwards are not free (Bertsekas
1982). There is a single loop, so that under vmap no lane waits for the line search of another.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._pytree import Array, Numeric


class Refit(NamedTuple):
    """The minimiser of an objective on a support; :func:`jaxht.refit.refit` returns one.

    Attributes:
        x: the minimiser, shaped like the variable, exactly zero off the support.
        pred: its prediction.
        converged: bool, whether it is a minimiser up to rounding. It is False where f has no minimiser on the support:
            the logistic loss, without a ridge, of data that a k-sparse classifier separates.
    """

    x: Array
    pred: Array
    converged: Array


class Subproblem(Protocol):
    """A function of coordinates w, to be minimised; a pytree, since derivatives pass through it."""

    def predict(self, w: Array) -> Array:
        """A linear image of w that value and gradient are computed from."""
        ...

    def value(self, w: Array, pred: Array) -> Array:
        """f at w."""
        ...

    def gradient(self, w: Array, pred: Array) -> Array:
        """grad f at w."""
        ...

    def solver(self, w: Array, pred: Array, free: Array, tau: Numeric, rtol: float) -> Callable[[Array], Array]:
        """``g -> (H + tau B)^-1 g`` for g that are 0 off ``free``, exactly or to a relative error of about rtol."""
        ...


@jax.custom_jvp
def newton(f: Subproblem, w: Array, inside: Array, bounds: tuple[Any, Any] | None) -> Refit:
    """Minimise f, starting from w.

    Args:
        f: the function.
        w: start.
        inside: bool, shaped like w; False where w must be 0.
        bounds: lower and upper, broadcastable to w, or None.

    Returns:
        Minimiser, pred, and whether it converged; differentiable in f and bounds, in forward and reverse mode.
    """
    eps = float(jnp.finfo(w.dtype).eps)

    def clipped(w: Array) -> Array:
        return jnp.where(inside, w if bounds is None else jnp.clip(w, *bounds), 0)

    def attempt(carry: Any) -> Any:
        count, _, converged, w, pred, value, gradient, tau = carry
        free = _free(w, gradient, inside, bounds)
        gradient_free = jnp.where(free, gradient, 0)
        step = f.solver(w, pred, free, tau, INEXACT)(gradient_free)

        def along(t: Array) -> Any:
            trial = clipped(w - t * step)
            pred = f.predict(trial)
            return t, trial, pred, f.value(trial, pred)

        # Outside the domain of f, where it is infinite, the step is halved: a larger tau would need another solve.
        _, trial, trial_pred, trial_value = lax.while_loop(
            lambda carry: (carry[3] == jnp.inf) & (carry[0] > SHORT),
            lambda carry: along(carry[0] / 2),
            along(jnp.ones((), w.dtype)),
        )
        move = trial - w
        slope, size = -jnp.vdot(gradient, move), jnp.abs(value)
        accepted = trial_value <= value - ARMIJO * slope + 8 * eps * size
        w, pred = jnp.where(accepted, trial, w), jnp.where(accepted, trial_pred, pred)
        value = jnp.where(accepted, trial_value, value)
        gradient = jnp.where(accepted, f.gradient(trial, trial_pred), gradient)

        # The slope decreases quadratically: once it is below (FINE eps)^2 |f|, the step just taken has made w exact.
        # Where f itself decreases to 0 the step is compared with w; it does not become small where w diverges.
        change, square = jnp.vdot(move, move), jnp.vdot(w, w)
        near = accepted & (tau <= 0.1)
        ended = near & ((slope <= (FINE * eps) ** 2 * size) | (change <= (FINE * eps) ** 2 * square))
        small = slope <= FINE * eps * size
        # Where w has converged except for the last digits, a small step that does not decrease f is rounding.
        converged = jnp.where(accepted, near & (small | (change <= eps * square)), converged & small)
        ended |= converged & ~accepted
        tau = jnp.where(accepted, jnp.maximum(tau / 100, MIN_TAU), 10 * tau)
        return count + 1, ~ended & (tau < MAX_TAU), converged, w, pred, value, gradient, tau

    w = clipped(w)
    pred = f.predict(w)
    value = f.value(w, pred)
    tau = jnp.full_like(value, START_TAU)
    start = (0, jnp.isfinite(value), jnp.array(False), w, pred, value, f.gradient(w, pred), tau)
    _, _, converged, w, pred, *_ = lax.while_loop(lambda carry: (carry[0] < MAX_STEPS) & carry[1], attempt, start)
    return Refit(w, pred, converged)


@newton.defjvp
def _newton_jvp(primals: tuple, tangents: tuple) -> tuple:
    """The implicit function theorem: ``H dw = -d(grad f)`` on free coordinates; the others move with their bounds."""
    (f, _, inside, bounds), (f_dot, _, _, bounds_dot) = primals, tangents
    minimum = newton(*primals)
    w, pred, _ = minimum
    free = _free(w, f.gradient(w, pred), inside, bounds)
    bound_dot = jnp.zeros_like(w)
    if bounds is not None:
        lower_dot, upper_dot = bounds_dot
        bound_dot = jnp.where(inside & ~free, jnp.where(w <= bounds[0], lower_dot, upper_dot), 0).astype(w.dtype)
    _, gradient_dot = jax.jvp(lambda f, w: f.gradient(w, f.predict(w)), (f, w), (f_dot, bound_dot))
    eps = float(jnp.finfo(w.dtype).eps)
    w_dot = bound_dot - f.solver(w, pred, free, MIN_TAU, FINE * eps)(jnp.where(free, gradient_dot, 0))
    _, pred_dot = jax.jvp(lambda f, w: f.predict(w), (f, w), (f_dot, w_dot))
    return minimum, Refit(w_dot, pred_dot, np.zeros((), jax.dtypes.float0))  # type: ignore[arg-type]


def _free(w: Array, gradient: Array, inside: Array, bounds: tuple[Any, Any] | None) -> Array:
    if bounds is None:
        return inside
    lower, upper = bounds
    return inside & ~((w <= lower) & (gradient > 0)) & ~((w >= upper) & (gradient < 0))


ARMIJO = 0.1
INEXACT = 1e-3  # relative error of systems that are solved iteratively
FINE = 100.0
START_TAU, MIN_TAU, MAX_TAU = 1e-2, 1e-10, 1e10
SHORT = 1e-3
MAX_STEPS = 100
