"""The lasso and its kin by accelerated proximal gradient steps, with a duality gap."""

import math
from typing import NamedTuple

import jax.numpy as jnp

from jaxht._dataclass import pytree
from jaxht._typing import Array, ArrayDType, Leaf, Numeric, PRNGKey
from jaxht.baselines.soft_threshold import check_free, soft_threshold
from jaxht.constraints import Constraint
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.operators import SymmetricOperator
from jaxht.objectives.dual import SizedSum, conjugate_loss, sum_conjugates, underflow
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.objective import Objective, check_linear_model
from jaxht.solvers.iterate import Info, Iterate, check_step_size, evaluate, inverse_smoothness
from jaxht.solvers.pursuit import NesterovPoint
from jaxht.solvers.solver import Solver, Step

# Rounding errors of the terms of the gap, in units in their last place, at least.
ROUNDING_ULPS = 64.0


class FISTAState(NamedTuple):
    """The state of :class:`FISTA`.

    Attributes:
        step_size: eta.
        start: u, the extrapolated point, with its prediction.
    """

    step_size: Leaf
    start: NesterovPoint


@pytree
class FISTA(Solver):
    r"""The lasso and regressions of other losses with an l1 penalty, ``min f(x) + lambda ||x||_1``,
    by proximal gradient steps with Nesterov's extrapolation, restarted where it points backwards.

    .. math::
        x^+ = S_{\eta \lambda}(u - \eta \nabla f(u)), \qquad
        u^+ = x^+ + \frac{t - 1}{t^+} (x^+ - x)

    S is soft thresholding, of complex numbers by their magnitude. The value of the result is that
    of the penalised objective, and the gap an upper bound of its distance to the minimum, rounding
    errors included: ``Stop(gap_rtol=1e-4)`` ends a run by it. With ``g = grad f(u)``, ``rho = min(1,
    lambda / max_j |g_j|)``, ``alpha_i = rho l'(a_i.u; y_i)`` and l* the conjugate of the loss, the
    dual value is

    .. math::
        D = -c \sum_i s_i l^*(\alpha_i; y_i) - \tfrac{\rho^2}{2} \sum_j l2_j |u_j|^2

    A result is differentiated on its support, where no sign changes, by lambda as well.

    Args:
        l1: lambda >= 0, a scalar in units of the gradient, traced. Above ``max_j |grad_j f(0)|``
            the solution is 0.
        step_size: eta > 0, a scalar, traced. None: 1/L.

    Raises:
        ValueError: for objectives other than linear models of one output whose loss has a bounded
            curvature (``LeastSquares``, ``Logistic``, ``Huber``, ``SquaredHinge``,
            ``SmoothedHinge``), and constraints other than ``Sparse(d)``, which leaves x free.

    Cost: a step takes one full gradient and one product.

    Source: Beck & Teboulle 2009; O'Donoghue & Candès 2015 for the restarts; the gap: Kim, Koh,
    Lustig, Boyd & Gorinevsky 2007 and Koh, Kim & Boyd 2007, of any loss with a conjugate.

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
    fixed_point_steps = 2  # a step starts from a point beyond x

    def init(
        self, objective: LinearModel, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> Step[FISTAState]:
        """The gradient at x0."""
        check_linear_model("FISTA", objective)
        _check_loss(objective)
        check_free("FISTA", objective, constraint)
        step_size = self.step_size
        if step_size is None:
            step_size = inverse_smoothness(objective.majorant().norm())
        plain = evaluate(objective, x0)
        start = NesterovPoint.init(plain)
        g = objective.gradient(x0, plain.pred)
        iterate, gap = self._penalise(objective, plain, self._dual(objective, start, g))
        info = Info(full_gradients=1, status=check_step_size(step_size), gap=gap)
        return iterate, FISTAState(step_size, start), info

    def step(
        self, objective: LinearModel, constraint: Constraint, iterate: Iterate, state: FISTAState
    ) -> Step[FISTAState]:
        """A proximal step from u, whose prediction is extrapolated as u is."""
        eta, u = state
        g = objective.gradient(u.x, u.pred)
        plain = evaluate(objective, soft_threshold(u.x - eta * g, eta * self.l1))
        new, gap = self._penalise(objective, plain, self._dual(objective, u, g))
        return new, FISTAState(eta, u.update(new, iterate)), Info(full_gradients=1, gap=gap)

    def local_objective(self, objective: LinearModel, x: Array) -> "LocallyPenalised":
        """f with the penalty, which is linear where no sign changes."""
        return LocallyPenalised(objective, self.l1 * jnp.sign(x))

    def _penalise(
        self, objective: LinearModel, plain: Iterate, dual: SizedSum
    ) -> tuple[Iterate, Array]:
        """The iterate with the value of the penalised objective, and the gap."""
        penalty = self.l1 * jnp.sum(jnp.abs(plain.x))
        loss = conjugate_loss(objective)
        u = objective.linear_predictor(plain.pred)
        sizes = objective.weight(loss.value_size(u, objective.y))
        size = jnp.sum(sizes) + objective.ridge(plain.x) + penalty
        ulps = max(ROUNDING_ULPS, math.sqrt(objective.num_samples))
        rounding = ulps * machine_eps(plain.x) * (size + dual.size)
        lost = underflow(objective, plain.x, loss.derivative(u, objective.y))
        value = plain.value + penalty
        gap = jnp.maximum(value - dual.value, 0) + rounding + lost
        return Iterate(plain.x, value, plain.pred), gap

    def _dual(self, objective: LinearModel, at: NesterovPoint, g: Array) -> SizedSum:
        """D from a point and its gradient."""
        loss = conjugate_loss(objective)
        y = objective.y
        largest = jnp.max(jnp.abs(g))
        scale = jnp.where(largest > self.l1, self.l1 / jnp.where(largest > 0, largest, 1), 1)
        alpha = scale * loss.derivative(objective.linear_predictor(at.pred), y)
        conjugates = sum_conjugates(objective, alpha, loss.within(alpha, y))
        ridge = scale**2 * objective.ridge(at.x)
        return SizedSum(-conjugates.value - ridge, conjugates.size + ridge)


@pytree
class LocallyPenalised(Objective):
    """``f(x) + lambda sum_j sign_j x_j``: f with an l1 penalty, for x of these signs.

    Attributes:
        objective: f, prepared.
        slope: lambda times the signs, shaped like x.
    """

    objective: LinearModel
    slope: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the variable."""
        return self.objective.shape

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of the variable."""
        return self.objective.dtype

    def predict(self, x: Array) -> Array:
        """A x."""
        return self.objective.predict(x)

    def value(self, x: Array, pred: Array) -> Array:
        """The value with the penalty."""
        return self.objective.value(x, pred) + jnp.vdot(self.slope, x)

    def gradient(self, x: Array, pred: Array) -> Array:
        """The gradient with that of the penalty."""
        return self.objective.gradient(x, pred) + self.slope

    def hessian(self, x: Array, pred: Array, tau: Numeric = 0.0) -> SymmetricOperator:
        """That of f."""
        return self.objective.hessian(x, pred, tau)

    def majorant(self) -> SymmetricOperator:
        """That of f."""
        return self.objective.majorant()


def _check_loss(objective: LinearModel) -> None:
    """Raise ValueError unless the loss has a conjugate and a curvature that is bounded."""
    loss = objective.loss
    if not (loss.has_conjugate and loss.is_smooth and loss.is_bounded):
        raise ValueError(
            "objective must be a linear model of one output whose loss has a bounded curvature for "
            f"FISTA, such as LeastSquares or Logistic; got {type(objective).__name__}"
        )
