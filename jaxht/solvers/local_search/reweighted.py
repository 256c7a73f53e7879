"""The search by reweighted quadratics, for smooth separable losses: search on the second-order
expansion of f, refit on what is found, and expand again."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from optax.tree_utils import tree_where

from jaxht._dataclass import pytree
from jaxht._typing import Array, Leaf, Numeric
from jaxht.linalg.selection import mask_to_indices
from jaxht.solvers.local_search.quadratic import complete, walk_by_swaps
from jaxht.solvers.local_search.search import (
    ROWS_PER_ITEM,
    RefittedSelection,
    Search,
    Starts,
    Walk,
    refit_selections,
    value_or_inf,
)
from jaxht.solvers.local_search.tabu import is_below
from jaxht.solvers.omp import complete_selection
from jaxht.subproblems import Subproblem
from jaxht.subproblems.quadratic_model import QuadraticModel
from jaxht.subproblems.swaps import SupportMinimum

# n k_max^3 up to which a search starts from orthogonal matching pursuit on f itself.
MAX_PURSUIT_MULTIPLICATIONS = 5_000_000_000
# Moves of the first search on an expansion, at least. On 225 planted problems of d <= n, 8 starts
# end above the search by refits in 3 with 25 moves, in 8 with half of k.
MIN_MOVES_ON_MODEL = 25
# The number of swaps by the model, one after the other, that may fail to decrease f.
MAX_FAILED_SWAPS = 8


@pytree
class ReweightedSearch(Search):
    """Search on the second-order expansion of f and refit, as long as f decreases.

    A search on the expansion takes 25 moves, or half of k where that is more; they are halved where
    the refit does not decrease f. What has joined in a single swap that failed does not join in
    the next ones.
    """

    def start(self, problem: Subproblem, x0: Array, starts: Starts) -> RefittedSelection:
        """Start from the support of matching pursuit, where that does not take long, and from those
        of forward selection on the quadratic upper bound of f at 0, from different first items."""
        objective = problem.objective
        constraint = problem.space
        first = starts.first_item(constraint.limit)
        zero = objective.start()
        k_max = max(1, constraint.k_max)
        num_rows = ROWS_PER_ITEM * len(first) * k_max
        model = QuadraticModel.bound(objective, zero, objective.predict(zero), num_rows)
        fixed = constraint.always_active

        def select(first):
            return complete(model, constraint, first, fixed).selected | fixed

        if objective.num_samples * k_max**3 > MAX_PURSUIT_MULTIPLICATIONS:
            selected = jax.vmap(select)(first)
        else:
            selected = complete_selection(objective, constraint, x0)[None]
            if len(first) > 1:
                selected = jnp.concatenate([selected, jax.vmap(select)(first[1:])])
        found = refit_selections(problem, selected, x0)
        moves = jnp.maximum(found.block_size, MIN_MOVES_ON_MODEL)
        return found._replace(block_size=moves)

    def walk_all(
        self,
        problem: Subproblem,
        selections: RefittedSelection,
        seeds: Array,
        num_moves: Numeric,
    ) -> Walk:
        """Walk one after the other, since each refit is large enough."""

        def walk(start):
            selection, seed = start
            return walk_by_expansions(problem, selection, seed, num_moves)

        return lax.map(walk, (selections, seeds))


class _Descent(NamedTuple):
    """A walk in progress.

    Attributes:
        selection: the current selection; its block size is 0 where nothing is left to try.
        value: f there.
        num_refits: int32.
    """

    selection: RefittedSelection
    value: Leaf
    num_refits: Leaf

    def goes_on(self, num_moves: Numeric) -> Array:
        """Whether something is left to try within so many refits."""
        return (self.selection.block_size > 0) & (self.num_refits < num_moves)


class _Attempt(NamedTuple):
    """Searches on one expansion, until a refit decreases f.

    Attributes:
        descent: the walk.
        excluded: bool, the coordinates that may not join.
        succeeded: bool, whether f has decreased.
    """

    descent: _Descent
    excluded: Leaf
    succeeded: Leaf


def walk_by_expansions(
    problem: Subproblem, start: RefittedSelection, seed: Array, num_moves: Numeric
) -> Walk:
    """Descend by searches on expansions of f, with ``num_moves`` refits at most.

    Cost: a refit takes two products with each of k_max + block_size columns, or n d^2 where d is at
    most ``ROWS_PER_ITEM k_max``.
    """
    objective = problem.objective
    constraint = problem.space
    fixed = jnp.broadcast_to(constraint.always_active, start.selected.shape)
    k_max = max(1, constraint.k_max)

    def expand_and_search(descent):
        selected, fit, _ = descent.selection
        model = QuadraticModel.at(objective, fit.x, fit.pred, ROWS_PER_ITEM * k_max)
        indices = mask_to_indices(selected, k_max)
        minimum = SupportMinimum.at(objective, indices, fit.x, fit.pred, model.gram)

        def attempt(carry):
            (selection, value, num_refits), excluded, _ = carry
            block_size = selection.block_size
            walk = walk_by_swaps(model, minimum, fixed, excluded, seed, block_size)
            found = problem.refit(constraint.support(walk.best), fit.x)
            new_value = value_or_inf(problem, found)
            is_better = is_below(new_value, value)

            joined = walk.best & ~selected
            excluded |= (block_size == 1) & joined
            num_excluded = jnp.sum(excluded, dtype=jnp.int32)
            exhausted = ~jnp.any(joined) | (num_excluded >= MAX_FAILED_SWAPS)
            smaller = jnp.where(exhausted, 0, jnp.maximum(1, block_size // 2))
            selection = tree_where(
                is_better,
                RefittedSelection(walk.best, found, block_size),
                RefittedSelection(selected, fit, smaller),
            )
            value = jnp.where(is_better, new_value, value)
            return _Attempt(_Descent(selection, value, num_refits + 1), excluded, is_better)

        def fails(carry):
            return ~carry.succeeded & carry.descent.goes_on(num_moves)

        begin = _Attempt(descent, jnp.zeros_like(selected), jnp.array(False))
        return lax.while_loop(fails, attempt, begin).descent

    begin = _Descent(start, value_or_inf(problem, start.fit), jnp.zeros((), jnp.int32))
    end = lax.while_loop(lambda descent: descent.goes_on(num_moves), expand_and_search, begin)
    return Walk(end.selection, end.selection, end.value, seed, end.num_refits)
