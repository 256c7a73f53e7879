"""Compressive sampling matching pursuit and its relatives: minimise on a larger support, then prune it."""

from typing import Any

from jaxht._pytree import pytree, static, where
from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
from jaxht.refit.newton import Refit
from jaxht.solvers.base import Pursuit, unless_worse
from jaxht.solvers.solver import Iterate, evaluate


@pytree
class CoSaMP(Pursuit):
    r"""Compressive sampling matching pursuit; for a general f it is GraSP, gradient support pursuit.

    .. math::
        \Omega = supp(\nabla f(x), 2k) \cup supp(x), \qquad
        b = \arg\min \{ f(x) : supp(x) \subseteq \Omega \}, \qquad x^+ = H_k(b)

    until Omega repeats.

    Args:
        expand: static; Omega takes ``expand * k`` coordinates of the gradient. 2 as in the sources and in the
            condition of Shen & Li 2018, Theorem 7; their text prints 1.
        debias: static; whether x+ is then minimised on its support.

    Ends with SUPPORT_STABLE, CYCLING (f may rise in a step), or CONVERGED.

    Cost a step: one full gradient, two projections and a restricted minimisation on up to 3k coordinates; with debias
    a further one on k.

    Source: Needell & Tropp 2009, Algorithm 1; Bahmani, Raj & Boufounos 2013, Algorithm 1; Shen & Li 2018, §3.2; Yuan,
    Li & Zhang 2018, §6.1.
    """

    expand: int = static(default=2)
    debias: bool = static(default=False)

    def find(self, objective: Objective, constraint: Constraint, iterate: Iterate, region: Any, step_size: Any) -> Any:
        """Omega."""
        return merged(objective, constraint, iterate, self.expand)

    def settle(
        self, objective: Objective, constraint: Constraint, minimum: Refit, iterate: Iterate
    ) -> tuple[Iterate, int]:
        """H_k(b)."""
        x, support = constraint.project(minimum.x)
        if self.debias:
            minimum = objective.minimise(support, x)
            return evaluate(
                objective, minimum.x, iterate.counts, pred=minimum.pred, refit_converged=minimum.converged
            ), 1
        return evaluate(objective, x, iterate.counts, refit_converged=minimum.converged), 1


def GraSP(debias: bool = False) -> CoSaMP:
    """Gradient support pursuit: :class:`CoSaMP` by its name for general objectives.

    Args:
        debias: static; whether x+ is minimised on its support, "GraSP with debiasing".

    Source: Bahmani, Raj & Boufounos 2013, Algorithm 1.
    """
    return CoSaMP(debias=debias)


@pytree
class SubspacePursuit(Pursuit):
    r"""Subspace pursuit: as CoSaMP with k coordinates of the gradient, and minimised again after pruning.

    .. math::
        \Omega = supp(\nabla f(x), k) \cup supp(x), \quad
        b = \arg\min \{ f : supp \subseteq \Omega \}, \quad x^+ = \arg\min \{ f : supp \subseteq supp(H_k(b)) \}

    until f does not fall; then the iterate before is returned, as NO_PROGRESS.

    Args: none.

    Cost a step: one full gradient, two projections and restricted minimisations on 2k and on k coordinates.

    Source: Dai & Milenkovic 2009, Algorithm 1.
    """

    def find(self, objective: Objective, constraint: Constraint, iterate: Iterate, region: Any, step_size: Any) -> Any:
        """Omega."""
        return merged(objective, constraint, iterate, 1)

    def settle(
        self, objective: Objective, constraint: Constraint, minimum: Refit, iterate: Iterate
    ) -> tuple[Iterate, int]:
        """The minimiser after pruning, or the iterate before where f has not fallen."""
        x, support = constraint.project(minimum.x)
        minimum = objective.minimise(support, x)
        new = evaluate(objective, minimum.x, iterate.counts, pred=minimum.pred, refit_converged=minimum.converged)
        # At the start nothing has been minimised, and x0 may already be as good as the first minimiser.
        first = iterate.counts.projections <= 1
        checked = unless_worse(objective, new, iterate, 0.0)
        return where(first, new, checked), 1


def merged(objective: Objective, constraint: Any, iterate: Iterate, expand: int) -> Any:
    """The steepest ``expand * k`` coordinates (or groups) at x, and the support of x."""
    bound = None if constraint.k_max is None else expand * constraint.k_max
    descent = -objective.gradient(iterate.x, iterate.pred)
    steepest = constraint.top_k(descent, expand * constraint.k, bound)
    return steepest.union(constraint.support_of(iterate.x))
