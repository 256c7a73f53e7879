"""The lasso by accelerated proximal gradient steps, with a duality gap."""

import math
from typing import NamedTuple

import jax.numpy as jnp

from jaxht._dataclass import pytree
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.baselines.soft_threshold import check_problem, soft_threshold
from jaxht.constraints import Constraint
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.inner_products import real_vdot
from jaxht.objectives.linear_model import LeastSquares
from jaxht.solvers.iterate import Info, Iterate, check_step_size, evaluate, inverse_smoothness
from jaxht.solvers.pursuit import NesterovPoint
from jaxht.solvers.solver import Solver, Step

# Rounding errors of the terms of the gap, in units in their last place, at least.
ROUNDING_ULPS = 64.0


class FISTAState(NamedTuple):
    """The state of :class:`FISTA`.

    Attributes:
        step_size: eta.
        gradient: that of f at x.
        start: u, the extrapolated point, with the gradient of f there in place of a prediction.
    """

    step_size: Leaf
    gradient: Leaf
    start: NesterovPoint


@pytree
class FISTA(Solver):
    r"""The lasso, ``min f(x) + lambda ||x||_1`` for least squares f, by proximal gradient steps with
    Nesterov's extrapolation, restarted where it points backwards.

    .. math::
        x^+ = S_{\eta \lambda}(u - \eta \nabla f(u)), \qquad
        u^+ = x^+ + \frac{t - 1}{t^+} (x^+ - x)

    S is soft thresholding, of complex numbers by their magnitude. The value of the result is that
    of the penalised objective, and the gap an upper bound of its distance to the minimum, rounding
    errors included: ``Stop(gap_rtol=1e-4)`` ends a run by it. With ``g = grad f(x)``, ``s = min(1,
    lambda / max_j |g_j|)`` and r the weighted residual ``c S (y - A x)`` the dual value is

    .. math::
        D = s \, \langle r, y \rangle - s^2 f(x)

    Args:
        l1: lambda >= 0, a scalar in units of the gradient, traced. Above ``max_j |grad_j f(0)|``
            the solution is 0.
        step_size: eta > 0, a scalar, traced. None: 1/L.

    Raises:
        ValueError: for objectives other than least squares of a vector, and constraints other than
            ``Sparse(d)``, which leaves x free.

    Cost: a step takes one full gradient and one product.

    Source: Beck & Teboulle 2009; O'Donoghue & Candès 2015 for the restarts; the gap: Kim, Koh,
    Lustig, Boyd & Gorinevsky 2007.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([3.0, -1.0, 0.2]), mean=False)
        >>> result = jaxht.solve(f, jaxht.Sparse(3), jaxht.baselines.FISTA(0.5))
        >>> [round(float(x_j), 3) for x_j in result.x], bool(result.gap < 1e-3)
        ([2.5, -0.5, 0.0], True)
    """

    l1: Numeric
    step_size: Numeric | None = None

    fixed_point_test = True
    takes_complex = True
    is_penalised = True
    step_limit = 10_000

    def init(
        self, objective: LeastSquares, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> Step[FISTAState]:
        """The gradient at x0."""
        check_problem("FISTA", objective, constraint)
        step_size = self.step_size
        if step_size is None:
            step_size = inverse_smoothness(objective.majorant().norm())
        plain = evaluate(objective, x0)
        g = objective.gradient(x0, plain.pred)
        iterate, gap = self._penalise(objective, plain, g)
        start = NesterovPoint.init(Iterate(x0, pred=g))
        info = Info(full_gradients=1, status=check_step_size(step_size), gap=gap)
        return iterate, FISTAState(step_size, g, start), info

    def step(
        self, objective: LeastSquares, constraint: Constraint, iterate: Iterate, state: FISTAState
    ) -> Step[FISTAState]:
        """A proximal step from u. The gradient of least squares is affine, so that it is extrapolated
        as x is."""
        eta, g, u = state
        plain = evaluate(objective, soft_threshold(u.x - eta * u.pred, eta * self.l1))
        g_next = objective.gradient(plain.x, plain.pred)
        new, gap = self._penalise(objective, plain, g_next)
        start = u.update(Iterate(plain.x, pred=g_next), Iterate(iterate.x, pred=g))
        return new, FISTAState(eta, g_next, start), Info(full_gradients=1, gap=gap)

    def _penalise(self, objective: LeastSquares, plain: Iterate, g: Array) -> tuple[Iterate, Array]:
        """The iterate with the value of the penalised objective, and the gap."""
        primal = plain.value + self.l1 * jnp.sum(jnp.abs(plain.x))
        largest = jnp.max(jnp.abs(g))
        scale = jnp.where(largest > self.l1, self.l1 / jnp.where(largest > 0, largest, 1), 1)
        r = -objective.loss_derivatives(plain.x, plain.pred)
        linear = scale * real_vdot(r, objective.target)
        quadratic = scale**2 * plain.value
        ulps = max(ROUNDING_ULPS, math.sqrt(objective.num_samples))
        rounding = ulps * machine_eps(plain.x) * (primal + jnp.abs(linear) + quadratic)
        gap = jnp.maximum(primal - linear + quadratic, 0) + rounding
        return Iterate(plain.x, primal, plain.pred), gap
