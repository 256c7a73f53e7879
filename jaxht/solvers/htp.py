"""Hard thresholding pursuit, whole and partial."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from chex import Array, Numeric, PRNGKey
from jax import lax

from jaxht._pytree import integer, pytree, static, where
from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
from jaxht.solvers.base import Pursuit
from jaxht.solvers.solver import Iterate
from jaxht.solvers.status import Status


class GradientPursuit(Pursuit):
    """A pursuit that looks for its region along a gradient step, of which the size may adapt."""

    step_size: Numeric | None
    backtrack: bool

    def along(self, constraint: Constraint, x: Array, gradient: Array, region: Any, step_size: Any) -> Any:
        """The region to minimise on next, from the gradient at x; ``region`` is the present one, None at the start."""
        raise NotImplementedError

    def find(self, objective: Objective, constraint: Constraint, iterate: Iterate, region: Any, step_size: Any) -> Any:
        """The region along the gradient at the iterate."""
        return self.along(constraint, iterate.x, objective.gradient(iterate.x, iterate.pred), region, step_size)

    def step_along(self, objective: Objective, constraint: Constraint) -> Numeric:
        """eta."""
        return 1 / constraint.smoothness(objective) if self.step_size is None else self.step_size

    def init(self, objective: Objective, constraint: Constraint, x0: Array, key: PRNGKey | None) -> tuple[Iterate, Any]:
        """That of a pursuit."""
        iterate, state = super().init(objective, constraint, x0, key)
        return replace(iterate, skip_fixed_point_test=jnp.array(True)) if self.backtrack else iterate, state

    def step(self, objective: Objective, constraint: Constraint, iterate: Iterate, state: Any) -> tuple[Iterate, Any]:
        """That of a pursuit, or with backtracking: where f has not fallen, go back, and halve eta."""
        if not self.backtrack:
            return self.pursue(objective, constraint, iterate, state)
        step_size, tried, own, halvings, unused = state
        new, projections = self.settle(objective, constraint, objective.minimise(tried, iterate.x), iterate)
        # x0 has not been minimised on its support. A NaN gets through.
        taken = (iterate.counts.projections <= 1) | ~(new.value >= iterate.value)
        new, own = where(taken, (new, tried), (replace(iterate, counts=new.counts, skip_fixed_point_test=None), own))
        gradient = objective.gradient(new.x, new.pred)

        def ahead(halvings: Array) -> Any:
            return self.along(constraint, new.x, gradient, own, step_size * jnp.exp2(-halvings.astype(new.x.dtype)))

        # What has just failed would fail again.
        first = jnp.where(taken, 0, halvings + 1)
        halvings, region = lax.while_loop(
            lambda carry: ~taken & carry[1].equals(tried) & (carry[0] < MAX_HALVINGS),
            lambda carry: (carry[0] + 1, ahead(carry[0] + 1)),
            (first, ahead(first)),
        )
        at_rest = region.equals(own) | (halvings >= MAX_HALVINGS)
        status = jnp.where(at_rest, Status.SUPPORT_STABLE, Status.RUNNING)
        status = jnp.where(new.status != Status.RUNNING, new.status, status).astype(jnp.int32)
        counts = new.counts.plus(full_gradients=1, projections=1 + projections + halvings - first)
        new = replace(new, counts=counts, status=status, skip_fixed_point_test=~taken)
        return new, (step_size, region, own, halvings, unused)


@pytree
class HTP(GradientPursuit):
    r"""Hard thresholding pursuit: threshold a gradient step, then minimise on the support that it found.

    .. math::
        F^+ = supp(x - \eta \nabla f(x), k) \quad\text{(S1, S2)}, \qquad
        x^+ = \arg\min \{ f(x) : supp(x) \subseteq F^+ \} \quad\text{(S3)}

    until F+ = F.

    Args:
        step_size: eta > 0, traced; 0, infinity and NaN end as DIVERGED. Termination is guaranteed below 1/M_2k, the
            restricted smoothness; too small a step freezes the first support, too large a one can cycle. None: 1/M_1,
            M_1 the largest curvature along one coordinate (``max_i ||a_i||^2`` for least squares): slightly beyond the
            guarantee, it recovers far more signals than 1/L does, on Gaussian and on correlated designs, and cycles are
            rare.
        backtrack: static; whether a step after which f has not fallen is taken back and tried again with half of eta,
            until the present support is what it finds; the next step starts with eta anew. Then f falls in every step,
            no run cycles, and eta may start large, at several times 1/M_1; more steps, for a lower f.

    Of matrices of low rank the region is U M V', U and V the singular vectors of the gradient step (SVP-Newton of Jain,
    Meka & Dhillon 2010), M_1 is L, and it ends as CONVERGED.

    Ends with SUPPORT_STABLE, CYCLING, or CONVERGED where several supports hold the same x.

    Cost a step: one full gradient, one projection and one restricted minimisation, which for k traced needs
    ``Sparse(k, k_max=...)`` on dense designs.

    Source: Foucart 2011; Yuan, Li & Zhang 2018, Algorithm 1 (GraHTP).
    """

    step_size: Numeric | None = None
    backtrack: bool = static(default=False)

    def along(self, constraint: Constraint, x: Array, gradient: Array, region: Any, step_size: Any) -> Any:
        """S1, S2."""
        return constraint.project(x - step_size * gradient, x)[1]


@pytree
class PHT(GradientPursuit):
    r"""Partial hard thresholding: as HTP, but at most r coordinates enter the support in a step.

    .. math::
        z = x - \eta \nabla f(x), \quad J = S \cup \{ r \text{ largest } |z_i| \text{ off } S \}, \quad
        S^+ = supp(z_J, k), \qquad x^+ = \arg\min \{ f(x) : supp(x) \subseteq S^+ \}

    With r = k it is HTP. With r = 1 it is orthogonal matching pursuit with replacement, which swaps where
    ``eta |grad_i f(x)| > |x_j|``. At x0 = 0 the first support is that of HTP.

    Args:
        r: number of coordinates (or groups) that may enter, traced.
        step_size: as in :class:`HTP`.
        backtrack: likewise, static.

    Ends as HTP does. Cost a step: that of HTP, and one more selection.

    Source: Jain, Tewari & Dhillon 2017; Axiotis & Sviridenko 2020, §1.2.
    """

    r: Numeric = integer(default=1)
    step_size: Numeric | None = None
    backtrack: bool = static(default=False)

    def along(self, constraint: Constraint, x: Array, gradient: Array, region: Any, step_size: Any) -> Any:
        """S+."""
        z = x - step_size * gradient
        own = constraint.project(x)[1].mask if region is None else region.mask
        entering = constraint.top_k(jnp.where(own, 0, z), self.r, None).mask
        if region is None:
            entering |= jnp.all(x == 0)
        return constraint.project(jnp.where(own | entering, z, 0))[1]


# Of eta, to eight digits: what is found beyond is the present support.
MAX_HALVINGS = 30
