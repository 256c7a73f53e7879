"""Hard thresholding pursuit."""

from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from chex import Array, Numeric, PRNGKey

from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
from jaxht.solver import Iterate, evaluated
from jaxht.status import Status
from jaxht.tree import pytree


@pytree
class HTP:
    r"""Hard thresholding pursuit: threshold a gradient step, then minimise on the support that it found.

    .. math::
        F^+ = supp(x - \eta \nabla f(x), k) \quad\text{(S1, S2)}, \qquad
        x^+ = \arg\min \{ f(x) : supp(x) \subseteq F^+ \} \quad\text{(S3)}

    until F+ = F. The next support depends on the present one alone, so a support seen before means a cycle; it is
    found exactly, by comparison with a support remembered at every power of two (Brent 1980).

    Args:
        step_size: eta > 0, traced; 0, infinity and NaN end as DIVERGED. Termination is guaranteed below 1/M_2k, the
            restricted smoothness; too small a step freezes the first support, too large a one can cycle. None: 1/M_1,
            M_1 the largest curvature along one coordinate (``max_i ||a_i||^2`` for least squares): slightly beyond the
            guarantee, it recovers far more signals than 1/L does, on Gaussian and on correlated designs, and cycles are
            rare.

    Ends with SUPPORT_STABLE, CYCLING, or CONVERGED where several supports hold the same x.

    Cost a step: one full gradient, one projection and one restricted minimisation, which for k traced needs
    ``Sparse(k, k_max=...)``.

    Source: Foucart 2011; Yuan, Li & Zhang 2018, Algorithm 1 (GraHTP).
    """

    step_size: Numeric | None = None

    # The next support is a function of x alone, so x repeats for ever once it does.
    still_means_converged: ClassVar[bool] = True
    needs_key: ClassVar[bool] = False

    def max_steps(self, constraint: Constraint) -> int:
        """100: it ends by itself, mostly within ten."""
        return 100

    def init(self, objective: Objective, constraint: Constraint, x0: Array, key: PRNGKey | None) -> tuple[Iterate, Any]:
        """The first support, from a gradient step at x0, which need not minimise f on its own support."""
        step_size = 1 / objective.coordinate_smoothness() if self.step_size is None else self.step_size
        iterate = evaluated(objective, x0, step_size=step_size)
        support = self._next_support(objective, constraint, iterate, step_size)
        age, horizon = jnp.zeros((), jnp.int32), jnp.ones((), jnp.int32)
        counts = iterate.counts.plus(full_gradients=1, projections=1)
        return replace(iterate, counts=counts), (step_size, support, support, age, horizon)

    def step(self, objective: Objective, constraint: Constraint, iterate: Iterate, state: Any) -> tuple[Iterate, Any]:
        """Debias on the support at hand, then find the next one: if it is the same, nothing needs to be done twice."""
        step_size, support, remembered, age, horizon = state
        # S3
        x, pred = objective.minimise(support, iterate.x)
        new = evaluated(objective, x, iterate.counts.plus(full_gradients=1, projections=1), pred=pred)
        # S1, S2 of the next iteration
        support_next = self._next_support(objective, constraint, new, step_size)

        cycling = support_next.equals(remembered)
        verdict = jnp.where(cycling, Status.CYCLING, Status.RUNNING)
        verdict = jnp.where(support_next.equals(support), Status.SUPPORT_STABLE, verdict)

        renew = age + 1 == horizon
        remembered = jax.tree.map(lambda new, old: jnp.where(renew, new, old), support_next, remembered)
        age, horizon = jnp.where(renew, 0, age + 1), jnp.where(renew, 2 * horizon, horizon)
        return replace(new, verdict=verdict.astype(jnp.int32)), (step_size, support_next, remembered, age, horizon)

    @staticmethod
    def _next_support(objective: Objective, constraint: Constraint, iterate: Iterate, step_size: Numeric) -> Any:
        gradient = objective.gradient(iterate.x, iterate.pred)
        return constraint.project(iterate.x - step_size * gradient)[1]
