"""Exchanges of one coordinate for another: OMP with replacement, and exhaustive local search."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from optax.tree_utils import tree_where

from jaxht._dataclass import pytree
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.constraints import SelectionConstraint, check_selection
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.lanes import either, keep_last
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Info, Iterate, evaluate
from jaxht.solvers.omp import complete_selection
from jaxht.solvers.pursuit import has_decreased
from jaxht.solvers.selection import best_item, best_swap, is_full, swap
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status
from jaxht.subproblems import RefitStatus, Subproblem, refit, subproblem

# The least relative decrease of f by a swap, in units in the last place.
DECREASE_ULPS = 64.0


class ExchangeState(NamedTuple):
    """The state of :class:`OMPR` and :class:`ExhaustiveLocalSearch`.

    Attributes:
        selected: bool, S.
        is_first: bool, whether the next step refits on S as it is.
    """

    selected: Leaf
    is_first: Leaf


class Exchange(Solver):
    """The steps of OMPR and exhaustive local search, which differ in the pair that they exchange.

    Attributes:
        rtol: the relative decrease of f that a swap must reach; None: DECREASE_ULPS.
    """

    rtol: Numeric | None

    takes_complex = True

    def init(
        self, objective: Objective, constraint: SelectionConstraint, x0: Array, key: PRNGKey | None
    ) -> Step[ExchangeState]:
        """x0, and its selection, completed, on which the first step refits."""
        check_selection(constraint, exchanges=True)
        selected, num_gradients = complete_selection(objective, constraint, x0)
        state = ExchangeState(selected, jnp.array(True))
        info = Info(full_gradients=num_gradients, refit_status=RefitStatus.FAILED)
        return evaluate(objective, x0), state, info

    def step(
        self,
        objective: Objective,
        constraint: SelectionConstraint,
        iterate: Iterate,
        state: ExchangeState,
    ) -> Step[ExchangeState]:
        """Swap and refit; keep the iterate before where f has not decreased."""
        S, is_first = state
        # A selection has no derivative.
        args = lax.stop_gradient((self, objective, constraint, iterate, S))
        S = either(is_first, keep_last, _exchange, *args)
        found = refit(objective, constraint.support(S), iterate.x)
        new = evaluate(objective, found)
        rtol = self.rtol
        if rtol is None:
            rtol = DECREASE_ULPS * machine_eps(new.x)
        accepted = is_first | has_decreased(objective, new, iterate, rtol)
        info = Info(
            full_gradients=jnp.where(is_first, 0, 1),
            status=jnp.where(accepted, Status.RUNNING, Status.NO_PROGRESS),
            accepted=accepted,
            refit_status=found.status,
        )
        return tree_where(accepted, new, iterate), ExchangeState(S, jnp.array(False)), info

    def exchange(self, problem: Subproblem, iterate: Iterate, S: Array) -> Array:
        """S after the swap."""
        raise NotImplementedError


def _exchange(
    solver: Exchange,
    objective: Objective,
    constraint: SelectionConstraint,
    iterate: Iterate,
    S: Array,
) -> Array:
    return solver.exchange(subproblem(objective, constraint), iterate, S)


@pytree
class OMPR(Exchange):
    r"""Orthogonal matching pursuit with replacement.

    .. math::
        i = \arg\max_{i \notin S} |\nabla_i f(x)|, \quad j = \arg\min_{j \in S} |x_j|, \quad
        S \leftarrow S \cup \{i\} \setminus \{j\}, \quad
        x \leftarrow \arg\min \{ f : supp \subseteq S \}

    until f does not decrease; then the iterate before is returned, with NO_PROGRESS. It starts from
    the support of x0, to which orthogonal matching pursuit adds coordinates where it has fewer than
    k; in the source Algorithm 3 starts from the first k coordinates, the experiments from OMP.
    Groups are exchanged as a whole.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        rtol: the relative decrease of f that a swap must reach, a scalar, traced. None: 64 machine
            epsilons, since rounding errors would lead to endless swaps between supports of equal f.

    Raises:
        ValueError: for :class:`jaxht.LowRank`, which has no coordinates to select, and for
            :class:`jaxht.TreeSparse`, whose entries cannot leave one by one.

    Cost: a step takes one full gradient and one refit.

    Source: Jain, Tewari & Dhillon 2011; Axiotis & Sviridenko 2020, Algorithm 3.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> x0 = jnp.array([1.0, 1.0, 0.0, 0.0])
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.OMPR(), x0=x0).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    rtol: Numeric | None = None

    def exchange(self, problem: Subproblem, iterate: Iterate, S: Array) -> Array:
        """Swap the largest derivative for the smallest entry."""
        constraint = problem.space
        gradient = problem.objective.gradient(iterate.x, iterate.pred)
        scores = constraint.scores(constraint.feasible_direction(-gradient))
        return best_swap(constraint, S, scores, constraint.scores(iterate.x))


@pytree
class ExhaustiveLocalSearch(Exchange):
    r"""Exhaustive local search: as :class:`OMPR`, but adding the coordinate that gives the least
    minimum of f.

    .. math::
        j = \arg\min_{j \in S} |x_j|, \quad
        i = \arg\min_{i \notin S} \min \{ f : supp \subseteq S \cup \{i\} \setminus \{j\} \}, \quad
        S \leftarrow S \cup \{i\} \setminus \{j\}, \quad
        x \leftarrow \arg\min \{ f : supp \subseteq S \}

    What joins does not depend on the scale of columns, but what leaves does: standardise columns of
    different units first, :func:`jaxht.standardize`.

    Args:
        rtol: as of :class:`OMPR`.

    Raises:
        ValueError: for :class:`jaxht.LowRank`, which has no coordinates to select, and for
            :class:`jaxht.TreeSparse`, whose entries cannot leave one by one.

    Cost: a step scores all candidates, for least squares on vectors without bounds by two products,
    n d k; else by one refit for each candidate.

    Source: Axiotis & Sviridenko 2020, Algorithm 4.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.ExhaustiveLocalSearch()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    rtol: Numeric | None = None

    def exchange(self, problem: Subproblem, iterate: Iterate, S: Array) -> Array:
        """Swap the item of the largest gain for the smallest entry."""
        constraint = problem.space
        j = best_item(-constraint.scores(iterate.x), S & ~constraint.always_active)
        rest = S & ~(j & is_full(constraint, S))
        among = constraint.joinable(rest) & ~S
        i = best_item(problem.forward_scores(rest, iterate.x), among)
        return swap(constraint, S, i, j)
