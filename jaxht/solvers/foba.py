"""Adaptive forward-backward selection."""

from typing import NamedTuple

import jax.numpy as jnp
from optax.tree_utils import tree_where

from jaxht._dataclass import pytree
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.constraints import SelectionConstraint, check_selection
from jaxht.linalg.inner_products import real_dtype
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Info, Iterate, evaluate
from jaxht.solvers.selection import best_item, count
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status
from jaxht.subproblems import refit, subproblem

# What the curvature along a column of zeros is replaced by.
CURVATURE_OF_ZEROS = 1e-30


class FoBaState(NamedTuple):
    """The state of :class:`FoBa`.

    Attributes:
        selected: bool, S.
        gains: g, the gain of the forward step that reached each size.
        refit_only: bool, whether the next step refits on S, which is that of x0.
    """

    selected: Leaf
    gains: Leaf
    refit_only: Leaf


@pytree
class FoBa(Solver):
    r"""Adaptive forward-backward greedy selection: a coordinate that is no longer needed is removed
    again.

    A step goes backward if the condition below holds, and else forward:

    .. math::
        \text{back:}\quad & j = \arg\min_{j \in S} f(x - x_j e_j), \quad
        S \leftarrow S \setminus \{j\}
        \quad\text{if}\quad f(x - x_j e_j) - f(x) \le \nu \, g_{|S|} \\
        \text{forward:}\quad & i = \arg\max_{i \notin S} (\nabla_i f(x))^2 / B_{ii}, \quad
        S \leftarrow S \cup \{i\}, \quad g_{|S|} = f_{before} - f_{after}

    and refits on S. The condition for a removal keeps the other coefficients fixed; g is the gain
    of the forward step that reached the current size. B is an upper bound of the Hessian: for least
    squares B_ii is the squared norm of column i, and i the coordinate that decreases f most if it
    changes alone; for other losses, with columns of equal norm, it is the coordinate of the largest
    derivative. The run ends with FINISHED once k coordinates are selected and none of them is
    removed, or with NO_PROGRESS where a forward step gains no more than the threshold.

    For least squares without a ridge the selection does not depend on the scale of columns.

    Args:
        threshold: smallest gain of a forward step, a scalar in units of f, traced: a step that
            gains no more is undone and ends the run.
        ratio: nu, a scalar, traced; share of the gain of a forward step that a backward step may
            lose.

    Raises:
        ValueError: for :class:`jaxht.LowRank`, which has no coordinates to select, and for
            :class:`jaxht.TreeSparse`, whose entries cannot leave one by one.

    Cost: a step takes one full gradient, one refit, and k values of f at n k in all (p^3 in all for
    a precision matrix). A run for k has the same first steps as a run for any larger k, so that
    :func:`jaxht.path` is a single run.

    Source: Zhang 2008, Algorithm 2 ("FoBa"); baseline of Yuan, Li & Zhang 2018, §6.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.FoBa()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    threshold: Numeric = 0.0
    ratio: Numeric = 0.5

    nested = True
    ignores_empty_columns = True
    takes_complex = True

    def max_steps(self, constraint: SelectionConstraint) -> Numeric:
        """10 k + 100 steps: each backward step undoes a forward step."""
        return 10 * constraint.k + 100

    def init(
        self, objective: Objective, constraint: SelectionConstraint, x0: Array, key: PRNGKey | None
    ) -> Step[FoBaState]:
        """x0, its support, and gains of 0: an item of x0 is removed only where that does not
        increase f."""
        check_selection(constraint, exchanges=True)
        S = constraint.active(x0)
        most = S.size if constraint.k_max is None else constraint.k_max
        state = FoBaState(S, jnp.zeros(1 + most, real_dtype(x0)), jnp.any(S))
        status = jnp.where(constraint.limit > 0, Status.RUNNING, Status.FINISHED)
        return evaluate(objective, x0), state, Info(status=status)

    def step(
        self,
        objective: Objective,
        constraint: SelectionConstraint,
        iterate: Iterate,
        state: FoBaState,
    ) -> Step[FoBaState]:
        """A step backward or forward; the first one refits on the support of x0, if any."""
        S, gains, refit_only = state
        size = count(S)

        values = subproblem(objective, constraint).values_without(S, iterate.x, iterate.pred)
        increase = values - iterate.value
        j = best_item(-increase, S & ~constraint.always_active)
        back = jnp.any(j & (increase <= self.ratio * gains[size])) & ~refit_only

        forward = ~back & ~refit_only & (size < constraint.limit)
        descent = constraint.feasible_direction(-objective.gradient(iterate.x, iterate.pred))
        B = jnp.maximum(objective.majorant().preconditioner(), CURVATURE_OF_ZEROS)
        i = best_item(constraint.scores(descent / jnp.sqrt(B)), constraint.joinable(S) & forward)

        S_new = (S & ~(j & back)) | i
        found = refit(objective, constraint.support(S_new), iterate.x)
        new = evaluate(objective, found)

        gain = iterate.value - new.value
        reached = jnp.arange(gains.size, dtype=jnp.int32) == size + 1
        gains = jnp.where(forward & reached, gain, gains)
        below_threshold = forward & (gain <= self.threshold)
        done = ~back & ~refit_only & ~forward
        status = jnp.where(done, Status.FINISHED, Status.RUNNING)
        info = Info(
            full_gradients=1,
            status=jnp.where(below_threshold, Status.NO_PROGRESS, status),
            accepted=~(below_threshold | done),
            refit_status=found.status,
        )
        S = jnp.where(below_threshold, S, S_new)
        kept = tree_where(info.accepted, new, iterate)
        return kept, FoBaState(S, gains, jnp.array(False)), info
