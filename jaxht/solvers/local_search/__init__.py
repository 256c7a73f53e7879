"""Local search for the best support: swaps and block exchanges, from several starts, with tabu
lists.

:class:`LocalSearch` is the frame: starts, what becomes of them after each step, and the end. A step
walks from each start by the search that suits the problem, of which each has a file of its own.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from optax.tree_utils import tree_where

from jaxht._checks import check_count
from jaxht._dataclass import integer, pytree, static
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.constraints import check_selection
from jaxht.solvers.iterate import Info, Iterate, evaluate
from jaxht.solvers.local_search.quadratic import QuadraticSearch
from jaxht.solvers.local_search.refitted import RefittedSearch
from jaxht.solvers.local_search.reweighted import ReweightedSearch
from jaxht.solvers.local_search.search import Search, Selection, Starts, Walk
from jaxht.solvers.local_search.tabu import is_below, rank
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status
from jaxht.subproblems import Refit, RefitStatus, Subproblem, subproblem

__all__ = ["LocalSearch", "LocalSearchState"]

# One walk in so many, and at least one, goes on from the best support of all in the next step.
WALKS_PER_ELITE_WALK = 8


class LocalSearchState(NamedTuple):
    """The state of :class:`LocalSearch`.

    Attributes:
        search: the search that suits the problem, with what it has computed once.
        selections: where the next walks start, stacked.
        seeds: uint32 (num_starts,), of their random numbers.
        num_failed: int32, the steps in a row without a converged refit that decreases f.
        refit_status: int32, how the refit that gave the iterate ended.
    """

    search: Search
    selections: Selection
    seeds: Leaf
    num_failed: Leaf
    refit_status: Leaf


@pytree
class LocalSearch(Solver):
    r"""Local search for the best support: tabu search over all swaps, from several starts side by
    side.

    Every step takes ``num_moves`` moves or more from the support of each start, a move being the
    best swap

    .. math::
        (i, j) = \arg\min_{i \in S, j \notin S}
        \min \{ f : supp \subseteq S \setminus \{i\} \cup \{j\} \}, \qquad
        S \leftarrow S \setminus \{i\} \cup \{j\},

    even where f increases. For a random number of moves, an item that has left may not join again
    and one that has joined may not leave, unless the swap brings f below every value met so far
    (tabu search). Then f is refitted on the best support that any walk has found. In the next step
    one walk in eight continues from that support, the others from where they ended. The run ends
    with NO_PROGRESS after ``patience`` steps in a row without a converged refit that decreases f,
    or after one step that does not decrease f and in which all walks meet the same least f. Scores
    do not depend on the scale of columns.

    * *Least squares* under :class:`jaxht.Sparse` without bounds (matrix variables: up to 512
      entries): a move is the best of all swaps, computed in closed form. The starts are supports
      found by forward selection from different first coordinates: by the true decrease of f
      (orthogonal least squares), and for one start by the gradient (orthogonal matching pursuit).
      The returned x is the minimiser on a support that no single swap improves.
    * *Everything else*: a move refits f on several candidate supports and takes the best. The
      candidates are the ``num_candidates - 1`` best swaps by the quadratic model of f on the
      support (under Sparse, see :meth:`jaxht.extend.Subproblem.exchange_scores`) or by a separable
      model, and one exchange of a block of items, whose size is reduced whenever the exchange does
      not decrease f (splicing). Each start selects the items that decrease a separable model of f
      most; in all starts but one, the decreases are multiplied by random weights.

    On more than 512 columns the moves of a step are restricted to the most promising coordinates:
    those of S, and those of the best swaps with S. One start is the support of x0, completed where
    it has fewer than k items. Coordinates whose columns depend linearly, up to rounding, on those
    of the selected ones are left out. Results are deterministic for a given key; ``key=None``
    stands for a fixed key.

    Args:
        num_starts: an int, static; number of walks that run side by side, at little more than the
            cost of one.
        num_moves: an integer >= 1, traced; moves between two refits of the best support.
        patience: an integer >= 1, traced; number of steps without a decrease of f after which the
            run ends. Increase it to search longer on problems with correlated columns.
        num_candidates: an int, static; number of supports refitted in a move, where f is not least
            squares. 1 suits problems on which every refit takes long: a walk then makes one
            exchange after another as long as f decreases. For smooth separable losses of one output
            under Sparse without bounds these exchanges are found by a search on the quadratic model
            of f (iteratively reweighted least squares); otherwise blocks are exchanged.

    Raises:
        ValueError: for :class:`jaxht.TreeSparse`, whose entries cannot leave one by one, and for
            :class:`jaxht.LowRank`, which has no coordinates to select, and where k_max
        is not known.

    Cost: a step takes for each start k_max products with A, and a move ``(k_max + n) m`` for m
        columns, at most ``max(256, 8 k_max, 8192 / k_max)`` of them. Where d <= n or d <= 512, and
        d <= 8 num_starts k_max, the Gram matrix of a dense design is computed once, n d^2. If f is
        not least squares, a move takes k_max products with m columns and ``num_candidates`` refits.

    Source: Glover 1989 for tabu search; Chen, Billings & Luo 1989 for the forward selection; Zhu et
    al. 2020 for splicing. Not in the papers, whose Axiotis & Sviridenko 2020, Algorithm 4, scores
    the swaps of one leaving coordinate.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.LocalSearch()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    ignores_empty_columns = True
    takes_complex = True

    num_starts: int = static(default=8)
    num_moves: Numeric = integer(default=25)
    patience: Numeric = integer(default=8)
    num_candidates: int = static(default=8)

    def init(
        self, objective: Any, constraint: Any, x0: Array, key: PRNGKey | None
    ) -> Step[LocalSearchState]:
        """Return x0, and the selections of the starts."""
        self._check()
        if constraint.k_max is None:
            raise ValueError(
                "k_max must be given for LocalSearch: Sparse(k, k_max=...) where k is traced"
            )
        check_selection(constraint, exchanges=True)
        problem = subproblem(objective, constraint)
        search = self._choose_search(problem)
        starts = Starts.draw(problem, x0, self.num_starts, key)
        selections = search.start(problem, x0, starts)
        num_failed = jnp.zeros((), jnp.int32)
        state = LocalSearchState(search, selections, starts.seeds, num_failed, RefitStatus.of(True))
        return evaluate(objective, x0), state, Info()

    def step(
        self, objective: Any, constraint: Any, iterate: Iterate, state: LocalSearchState
    ) -> Step[LocalSearchState]:
        """Walk from each selection, and refit on the best support."""
        problem = subproblem(objective, constraint)
        search = state.search
        walks = search.walk_all(problem, state.selections, state.seeds, self.num_moves)
        best = jax.tree.map(lambda lanes: lanes[jnp.argmin(walks.least)], walks.best)
        fit = search.refit(problem, best, iterate.x)
        found = evaluate(objective, fit)
        is_better = found.value < iterate.value

        # A refit that has not converged descends further wherever it goes on: that finds no better
        # support.
        num_failed = jnp.where(is_better & fit.converged, 0, state.num_failed + 1)
        # Several walks that all end in the same f have found the least.
        differ = jnp.any(is_below(jnp.min(walks.least), walks.least))
        agree = ~is_better & ~differ & (self.num_starts > 1)
        has_ended = agree | (num_failed >= self.patience)
        info = Info(
            full_gradients=1,
            status=jnp.where(has_ended, Status.NO_PROGRESS, Status.RUNNING),
            accepted=is_better,
            refit_status=fit.status,
        )

        here = Refit(iterate.x, iterate.pred, state.refit_status)
        best = tree_where(is_better, best, search.locate(constraint.active(iterate.x), here, best))
        selections = self._restart(walks, best)
        last_status = jnp.where(is_better, fit.status, state.refit_status)
        state = LocalSearchState(
            search=search,
            selections=selections,
            seeds=walks.seed,
            num_failed=num_failed,
            refit_status=last_status,
        )
        return tree_where(is_better, found, iterate), state, info

    def _check(self) -> None:
        for name in ("num_starts", "num_candidates"):
            check_count(name, getattr(self, name))

    def _choose_search(self, problem: Subproblem) -> Search:
        if problem.is_quadratic:
            return QuadraticSearch.prepare(problem, self.num_starts)
        if problem.is_expandable and self.num_candidates == 1:
            return ReweightedSearch()
        return RefittedSearch(self.num_candidates)

    def _restart(self, walks: Walk, best: Selection) -> Selection:
        """The places where the next walks start: the worst of these at the best selection, the
        others where they ended."""
        num_elite = max(1, self.num_starts // WALKS_PER_ELITE_WALK)
        is_elite = rank(walks.least) >= self.num_starts - num_elite

        def choose(is_elite, end):
            return tree_where(is_elite, best, end)

        return jax.vmap(choose)(is_elite, walks.end)
