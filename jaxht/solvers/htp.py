"""Hard thresholding pursuit, whole and partial."""

from typing import Any

import jax.numpy as jnp
from chex import Numeric

from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
from jaxht.solver import Iterate
from jaxht.solvers.base import Pursuit
from jaxht.tree import integer, pytree


class GradientPursuit(Pursuit):
    """A pursuit that looks for its region along a gradient step."""

    step_size: Numeric | None

    def step_along(self, objective: Objective, constraint: Constraint) -> Numeric:
        """eta."""
        return 1 / constraint.smoothness(objective) if self.step_size is None else self.step_size


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

    Of matrices of low rank the region is U M V', U and V the singular vectors of the gradient step (SVP-Newton of Jain,
    Meka & Dhillon 2010), M_1 is L, and it ends as CONVERGED.

    Ends with SUPPORT_STABLE, CYCLING, or CONVERGED where several supports hold the same x.

    Cost a step: one full gradient, one projection and one restricted minimisation, which for k traced needs
    ``Sparse(k, k_max=...)`` on dense designs.

    Source: Foucart 2011; Yuan, Li & Zhang 2018, Algorithm 1 (GraHTP).
    """

    step_size: Numeric | None = None

    def find(self, objective: Objective, constraint: Constraint, iterate: Iterate, region: Any, step_size: Any) -> Any:
        """S1, S2."""
        x = iterate.x
        return constraint.project(x - step_size * objective.gradient(x, iterate.pred), x)[1]


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

    Ends as HTP does. Cost a step: that of HTP, and one more selection.

    Source: Jain, Tewari & Dhillon 2017; Axiotis & Sviridenko 2020, §1.2.
    """

    r: Numeric = integer(default=1)
    step_size: Numeric | None = None

    def find(self, objective: Objective, constraint: Constraint, iterate: Iterate, region: Any, step_size: Any) -> Any:
        """S+."""
        x = iterate.x
        z = x - step_size * objective.gradient(x, iterate.pred)
        own = constraint.project(x)[1].mask if region is None else region.mask
        entering = constraint.steepest(jnp.where(own, 0, z), self.r, None).mask
        if region is None:
            entering |= jnp.all(x == 0)
        return constraint.project(jnp.where(own | entering, z, 0))[1]
