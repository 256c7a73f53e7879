"""Iterative hard thresholding, plain and with momentum."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxht._dataclass import pytree, static
from jaxht._typing import Leaf, Numeric, PRNGKey
from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import (
    Info,
    Iterate,
    check_step_size,
    evaluate,
    inverse_smoothness,
)
from jaxht.solvers.solver import Solver, Step


class IHTState(NamedTuple):
    """The state of :class:`IHT`.

    Attributes:
        step_size: eta.
        prev: the iterate before the current one; None without momentum.
    """

    step_size: Leaf
    prev: Iterate | None


@pytree
class IHT(Solver):
    r"""Projected gradient descent onto C, optionally with momentum.

    .. math::
        x^+ = H_k(x - \eta \nabla f(x) + \nu (x - x_{prev})) \quad\text{(heavy ball)}

        u = x + \nu (x - x_{prev}), \qquad x^+ = H_k(u - \eta \nabla f(u)) \quad\text{(Nesterov)}

    Without momentum this is IHT (eta = 1, k = K), by other names PGD (eta = 2 / sigma_max^2), FG-HT
    and FGraHTP; for matrices of low rank SVP (Jain, Meka & Dhillon 2010).

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        step_size: eta > 0, a scalar in units of 1 over the Hessian, traced; 0, infinity and NaN end
            as INVALID_STEP_SIZE. None: 1/L, L an upper estimate of the largest eigenvalue of the
            Hessian; then f never increases without momentum, where L holds for all x. For the
            losses without a bounded curvature, Poisson and Gamma regression, and for
            :class:`jaxht.Custom` it holds near x0 at best: :class:`jaxht.NIHT` adapts its step. On
            ``1/2 ||Ax - y||^2`` eta = 1 diverges for many A, and ends as DIVERGED.
        momentum: nu in [0, 1), a scalar, traced. None, the default, is 0, without the cost of
            storing x_prev.
        nesterov: bool, static; which of the two forms is used with momentum.

    Raises:
        ValueError: where step_size is None and f has no smoothness (the hinge).

    Cost: a step takes one full gradient and one projection.

    Source: Shen & Li 2018, (3.4) and §5; Axiotis & Sviridenko 2020, Algorithm 1; Yuan, Li & Zhang
    2018, Algorithm 1 (FGraHTP); heavy ball: Zhou, Yuan & Feng 2018, Algorithm 1 (O2) at full batch;
    Nesterov: Khanna & Kyrillidis 2018.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]), mean=False)
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.IHT(step_size=1.0)).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    step_size: Numeric | None = None
    momentum: Numeric | None = None
    nesterov: bool = static(default=False)

    fixed_point_test = True
    needs_entries = False
    takes_complex = True
    step_limit = 10_000  # convergence is linear, at a rate set by the restricted condition number

    @property
    def fixed_point_steps(self) -> int:
        """2 with momentum, which can hold x at a bound for a step."""
        return 1 if self.momentum is None else 2

    def init(
        self, objective: Objective, constraint: Constraint, x0: Any, key: PRNGKey | None
    ) -> Step[IHTState]:
        """Evaluate f at x0; x_prev = x0."""
        iterate = evaluate(objective, x0)
        step_size = self.step_size
        if step_size is None:
            scale = jnp.minimum(objective.step_scale(iterate.pred), 1)
            step_size = scale * inverse_smoothness(objective.majorant().norm())
        state = IHTState(step_size, None if self.momentum is None else iterate)
        return iterate, state, Info(status=check_step_size(step_size))

    def step(
        self, objective: Objective, constraint: Constraint, iterate: Iterate, state: IHTState
    ) -> Step[IHTState]:
        """Gradient step with momentum, then threshold."""
        eta, prev = state
        u = x = iterate.x
        pred = iterate.pred
        if prev is not None:
            u = x + self.momentum * (x - prev.x)
            state = IHTState(eta, iterate)
        if prev is not None and self.nesterov:
            # pred is linear in x, so the gradient at u needs no product beyond its own.
            pred_u = pred + self.momentum * (pred - prev.pred)
            gradient = objective.gradient(u, pred_u)
        else:
            gradient = objective.gradient(x, pred)
        x_next, _ = constraint.project(u - eta * gradient, x)
        return evaluate(objective, x_next), state, Info(full_gradients=1, projections=1)
