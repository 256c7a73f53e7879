"""Forward selection: orthogonal matching pursuit by derivatives, orthogonal least squares by the
decrease of f."""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from optax.tree_utils import tree_where

from jaxht._dataclass import pytree
from jaxht._loops import while_loop
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.constraints import SelectionConstraint, check_selection
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Info, Iterate, evaluate
from jaxht.solvers.pursuit import has_decreased
from jaxht.solvers.selection import best_item, count
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status
from jaxht.subproblems import Growth, Subproblem, subproblem


class ForwardState(NamedTuple):
    """The state of :class:`OMP` and :class:`OLS`.

    Attributes:
        selected: bool, S.
        growth: the refits on S.
        refit_only: bool, whether the next step refits on S, which is that of x0, and adds nothing.
    """

    selected: Leaf
    growth: Growth
    refit_only: Leaf


class ForwardSelection(Solver):
    """The steps of OMP and OLS, which differ in the scores of the items."""

    nested = True
    ignores_empty_columns = True
    takes_complex = True
    #: Whether growth is asked for scores.
    scored: ClassVar[bool]

    def max_steps(self, constraint: SelectionConstraint) -> Numeric:
        """k steps."""
        return constraint.k

    def init(
        self, objective: Objective, constraint: SelectionConstraint, x0: Array, key: PRNGKey | None
    ) -> Step[ForwardState]:
        """The selection of x0, and FINISHED where k is 0."""
        check_selection(constraint)
        S = constraint.active(x0)
        status = jnp.where(constraint.limit > 0, Status.RUNNING, Status.FINISHED)
        growth = subproblem(objective, constraint).growth(S, scored=self.scored)
        return evaluate(objective, x0), ForwardState(S, growth, jnp.any(S)), Info(status=status)

    def step(
        self,
        objective: Objective,
        constraint: SelectionConstraint,
        iterate: Iterate,
        state: ForwardState,
    ) -> Step[ForwardState]:
        """Add the item of the largest score and refit; the first step refits on the support of x0,
        if it has one."""
        S, _, refit_only = state
        problem = subproblem(objective, constraint)
        scores, growth = self.score(problem, iterate, state)
        candidates = constraint.joinable(S) & ~refit_only & (count(S) < constraint.limit)
        S |= best_item(scores, candidates)
        found, growth = growth.refit(problem, constraint.support(S), iterate.x)
        new = evaluate(objective, found)
        accepted = refit_only | has_decreased(objective, new, iterate)

        status = jnp.where(count(S) < constraint.limit, Status.RUNNING, Status.FINISHED)
        info = Info(
            full_gradients=1,
            status=jnp.where(accepted, status, Status.NO_PROGRESS),
            accepted=accepted,
            refit_status=found.status,
        )
        return tree_where(accepted, new, iterate), ForwardState(S, growth, jnp.array(False)), info

    def score(
        self, problem: Subproblem, iterate: Iterate, state: ForwardState
    ) -> tuple[Array, Growth]:
        """The scores of the items at x, and the growth after them."""
        raise NotImplementedError


@pytree
class OMP(ForwardSelection):
    r"""Orthogonal matching pursuit; for a general f it is forward selection (FBS), for groups group
    OMP, for rows of a matrix simultaneous OMP (SOMP).

    .. math::
        i = \arg\max_{i \notin S} |\nabla_i f(x)|, \qquad S \leftarrow S \cup \{i\}, \qquad
        x \leftarrow \arg\min \{ f(x) : supp(x) \subseteq S \}

    until S has k coordinates. It starts from the support of x0 and the coordinates that are always
    active; where there are any, the first step refits on them. It ends with FINISHED, or with
    NO_PROGRESS where no coordinate decreases f: then x has fewer than k nonzeros. It has no
    arguments.

    It selects by the size of derivatives: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Raises:
        ValueError: for :class:`jaxht.LowRank`, which has no coordinates to select.

    Cost: a step takes one full gradient and a refit. For least squares with k_max known the refit
    updates the factorisation of the step before, on all designs, at 2 to 4 n k_max.

    Source: Axiotis & Sviridenko 2020, Algorithm 2; Yuan, Li & Zhang 2018, §6.1; Pati, Rezaiifar &
    Krishnaprasad 1993.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.OMP()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    scored = False

    def score(
        self, problem: Subproblem, iterate: Iterate, state: ForwardState
    ) -> tuple[Array, Growth]:
        """The sizes of the derivatives."""
        growth = state.growth
        return growth.derivative_scores(problem, state.selected, iterate.x, iterate.pred), growth


@pytree
class OLS(ForwardSelection):
    r"""Orthogonal least squares: forward selection by the true decrease of f.

    .. math::
        i = \arg\min_{i \notin S} \min \{ f : supp \subseteq S \cup \{i\} \}, \qquad
        S \leftarrow S \cup \{i\}, \qquad x \leftarrow \arg\min \{ f(x) : supp(x) \subseteq S \}

    until S has k coordinates. Where :class:`OMP` takes the coordinate of the largest derivative,
    this one takes that of the largest decrease once all of S is refitted, so that the selection
    does not depend on the scale of the columns (without a ridge). For groups it is the group that
    decreases f most. It starts and ends as :class:`OMP` does, and has no arguments.

    Raises:
        ValueError: for :class:`jaxht.LowRank`, which has no coordinates to select.

    Cost: for least squares on vectors under :class:`jaxht.Sparse`, without bounds and with k_max
    known, a step takes two products with A, one for the gradient and one for the curvature that is
    left along each coordinate, and a refit at 2 to 4 n k_max, on all designs; else a refit for each
    candidate.

    Source: Chen, Billings & Luo 1989.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.OLS()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    scored = True

    def score(
        self, problem: Subproblem, iterate: Iterate, state: ForwardState
    ) -> tuple[Array, Growth]:
        """The decreases of f, by the curvature that is left along each coordinate."""
        return state.growth.scores(problem, state.selected, iterate.x, iterate.pred)


class Completed(NamedTuple):
    """A selection that was completed.

    Attributes:
        selected: bool, as many items as the constraint allows, if there are.
        num_steps: int32, how many steps of orthogonal matching pursuit that took.
    """

    selected: Leaf
    num_steps: Leaf


def complete_selection(
    objective: Objective, constraint: SelectionConstraint, x0: Array
) -> Completed:
    """The active items of x0, and those that orthogonal matching pursuit adds up to k: a start for
    exchanges."""
    omp = OMP()

    def is_unfinished(carry):
        _, state, status, _ = carry
        return (status == Status.RUNNING) & (count(state.selected) < constraint.limit)

    def add(carry):
        iterate, state, _, num_steps = carry
        iterate, state, info = omp.step(objective, constraint, iterate, state)
        return iterate, state, info.as_arrays().status, num_steps + 1

    iterate, state, info = omp.init(objective, constraint, x0, None)
    start = iterate, state, info.as_arrays().status, jnp.zeros((), jnp.int32)
    _, state, _, num_steps = while_loop(is_unfinished, add, start)
    return Completed(state.selected, num_steps)
