"""Adaptive forward-backward selection."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from chex import Array, Numeric, PRNGKey
from optax.tree_utils import tree_where

from jaxht._pytree import pytree
from jaxht.constraints import SelectionConstraint, check_selection
from jaxht.objectives.objective import Objective
from jaxht.refit import refit
from jaxht.refit.scores import values_without
from jaxht.solvers.iterate import Iterate, evaluate, evaluate_refit
from jaxht.solvers.selection import best_item, count
from jaxht.solvers.solver import Solver
from jaxht.solvers.status import Status


@pytree
class FoBa(Solver[Objective, SelectionConstraint]):
    r"""Adaptive forward-backward greedy selection: a coordinate that has become dispensable leaves again.

    A step goes back if it can, and else forward:

    .. math::
        \text{back:}\quad & j = \arg\min_{j \in S} f(x - x_j e_j), \quad S \leftarrow S \setminus \{j\}
        \quad\text{if}\quad f(x - x_j e_j) - f(x) \le \nu \, g_{|S|} \\
        \text{forward:}\quad & i = \arg\max_{i \notin S} (\nabla_i f(x))^2 / B_{ii}, \quad
        S \leftarrow S \cup \{i\}, \quad g_{|S|} = f_{before} - f_{after}

    and refits on S. For the removal the other coefficients are held; g is the gain of the forward step that reached the
    present size. B bounds the Hessian from above: for least squares B_ii is the squared norm of column i, and i the
    coordinate whose best move lowers f most; for other losses, with columns of one norm, the largest gradient.

    Args:
        threshold: of the gain of a forward step, in units of f, traced: one that gains no more is undone and ends the
            run.
        ratio: nu, traced.

    Ends with FINISHED where k coordinates have survived, or NO_PROGRESS at the threshold.

    Raises:
        ValueError: for :class:`jaxht.LowRank`, which has no coordinates to select.

    Cost: a step takes one full gradient, one refit, and k values of f, n k.

    Source: Zhang 2008, Algorithm 2 ("FoBa"); baseline of Yuan, Li & Zhang 2018, §6.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.FoBa()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    threshold: Numeric = 0.0
    ratio: Numeric = 0.5

    def max_steps(self, constraint: SelectionConstraint) -> Numeric:
        """10 k + 100: each step back undoes one forward."""
        return 10 * constraint.k + 100

    def init(
        self, objective: Objective, constraint: SelectionConstraint, x0: Array, key: PRNGKey | None
    ) -> tuple[Iterate, Any]:
        """x0, its support, and no gains: what x0 brings along does not leave before it is dispensable."""
        check_selection(constraint)
        S = constraint.active(x0)
        status = jnp.where(constraint.limit > 0, Status.RUNNING, Status.FINISHED)
        gains = jnp.zeros(1 + (S.size if constraint.k_max is None else constraint.k_max), x0.dtype)
        iterate = evaluate(objective, x0, status=status, refit_converged=jnp.array(True))
        return iterate, (S, gains, jnp.any(S))

    def step(
        self, objective: Objective, constraint: SelectionConstraint, iterate: Iterate, state: Any
    ) -> tuple[Iterate, Any]:
        """Back or forward; the first step refits on the support of x0, if it has one."""
        S, gains, refit_only = state
        size = count(S)

        rises = values_without(objective, constraint, S, iterate.x, iterate.pred) - iterate.value
        j = best_item(-rises, S & ~constraint.always_active)
        back = jnp.any(j & (rises <= self.ratio * gains[size])) & ~refit_only

        descent = constraint.feasible_direction(-objective.gradient(iterate.x, iterate.pred))
        B = objective.majorant().preconditioner()
        forward = ~back & ~refit_only & (size < constraint.limit)
        i = best_item(constraint.scores(descent / jnp.sqrt(jnp.maximum(B, TINY))), ~S & forward)

        S_new = (S & ~(j & back)) | i
        found = refit(objective, constraint.support(S_new), iterate.x)
        new = evaluate_refit(objective, found, iterate.counts.plus(full_gradients=1))

        gain = iterate.value - new.value
        useless = forward & (gain <= self.threshold)
        done = ~back & ~refit_only & ~forward
        status = jnp.where(useless, Status.NO_PROGRESS, jnp.where(done, Status.FINISHED, Status.RUNNING))
        gains = jnp.where(forward & (jnp.arange(gains.size, dtype=jnp.int32) == size + 1), gain, gains)
        kept = replace(tree_where(useless | done, iterate, new), counts=new.counts, status=status.astype(jnp.int32))
        return kept, (jnp.where(useless, S, S_new), gains, jnp.array(False))


TINY = 1e-30
