"""The search by reweighted quadratics, for smooth separable losses: search on the second-order
expansion of f, refit on what is found, and expand again."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from optax.tree_utils import tree_where

from jaxht._dataclass import pytree
from jaxht._loops import while_loop
from jaxht._typing import Array, Leaf, Numeric
from jaxht.linalg.selection import mask_to_indices
from jaxht.solvers.local_search.quadratic import walk_by_swaps
from jaxht.solvers.local_search.search import (
    ROWS_PER_ITEM,
    RefittedSelection,
    Search,
    Starts,
    Walk,
    largest_block,
    value_or_inf,
)
from jaxht.solvers.local_search.tabu import is_below
from jaxht.subproblems import Refit, RefitStatus, Subproblem
from jaxht.subproblems.quadratic_model import QuadraticModel
from jaxht.subproblems.swaps import SupportMinimum

# Refits, about, by which the first walk completes its support; as in matching pursuit where k is
# less than twice as large.
NUM_PURSUIT_REFITS = 8
# Moves of the first search on an expansion, at least. On 250 planted problems of d <= n, 8 starts
# end above the search by refits in 4.
MIN_MOVES_ON_MODEL = 25
# The number of swaps by the model, one after the other, that may fail to decrease f.
MAX_FAILED_SWAPS = 8


@pytree
class ReweightedSearch(Search):
    """Complete the support by forward selection on an upper bound of f, in the first walk by an
    eighth of its items at a time, and refit; then search by swaps on the second-order expansion, as
    long as refits decrease f.

    A search on the expansion takes 25 moves, or half of k where that is more; they are halved where
    the refit does not decrease f. What has joined in a single swap that failed does not join in
    the next ones.
    """

    def start(self, problem: Subproblem, x0: Array, starts: Starts) -> RefittedSelection:
        """Start from x0, and from single items and 0."""
        objective = problem.objective
        selected = starts.first_item(problem.space)
        is_first = lax.iota(jnp.int32, len(selected)) == 0
        x = jnp.where(is_first[:, None], x0[None], objective.start()[None])
        pred = jax.vmap(objective.predict)(x)
        fit = Refit(x, pred, RefitStatus.of(jnp.zeros_like(is_first)))
        limit = jnp.asarray(problem.space.limit, jnp.int32)
        items_of_first = jnp.maximum(1, limit // NUM_PURSUIT_REFITS)
        block_size = jnp.where(is_first, items_of_first, most_moves(problem))
        return RefittedSelection(selected, fit, block_size, jnp.ones_like(is_first))

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

        ends = lax.map(walk, (selections, seeds))
        return Walk(
            end=ends.selection,
            best=ends.selection,
            least=ends.value,
            seed=seeds,
            num_moves=ends.num_refits,
        )


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


def most_moves(problem: Subproblem) -> Array:
    """The moves of the first search on an expansion."""
    return jnp.maximum(largest_block(problem), MIN_MOVES_ON_MODEL)


def walk_by_expansions(
    problem: Subproblem, start: RefittedSelection, seed: Array, num_moves: Numeric
) -> _Descent:
    """Descend by searches on expansions of f, with ``num_moves`` refits at most.

    Cost: a refit takes two products with each of k_max + block_size columns, or n d^2 where d is at
    most ``ROWS_PER_ITEM k_max``.
    """
    objective = problem.objective
    constraint = problem.space
    fixed = jnp.broadcast_to(constraint.always_active, start.selected.shape)
    k_max = max(1, constraint.k_max)

    def expand_and_search(descent):
        selected, fit, block_size, _ = descent.selection
        num_selected = jnp.sum(selected, dtype=jnp.int32)
        lacks_items = num_selected < constraint.limit
        num_rows = ROWS_PER_ITEM * k_max
        # A second-order expansion far from a minimiser, as of the hinge, may have no curvature.
        model = QuadraticModel.at(objective, fit.x, fit.pred, num_rows, is_bound=lacks_items)
        indices = mask_to_indices(selected, k_max)
        minimum = SupportMinimum.on(model, indices)
        most = jnp.minimum(constraint.limit, num_selected + block_size)
        # One at a time they join as in orthogonal matching pursuit.
        by_gradient = block_size == 1
        minimum = minimum.complete(model, indices, constraint, most, by_gradient, num_selected)
        grows = jnp.any(minimum.selected & ~selected)

        def attempt(carry):
            (selection, value, num_refits), excluded, _ = carry
            block_size = selection.block_size
            num_swaps = jnp.where(grows, 0, block_size)
            walk = walk_by_swaps(model, constraint, minimum, fixed, excluded, seed, num_swaps)
            found = problem.refit(constraint.support(walk.best), fit.x)
            new_value = value_or_inf(problem, found)
            is_better = is_below(new_value, value)

            joined = walk.best & ~selected
            excluded |= (block_size == 1) & joined
            num_excluded = jnp.sum(excluded, dtype=jnp.int32)
            # The support that was completed is the only one to try.
            exhausted = grows | ~jnp.any(joined) | (num_excluded >= MAX_FAILED_SWAPS)
            smaller = jnp.where(exhausted, 0, jnp.maximum(1, block_size // 2))
            is_full = jnp.sum(walk.best, dtype=jnp.int32) >= constraint.limit
            next_size = jnp.where(grows & is_full, most_moves(problem), block_size)
            selection = tree_where(
                is_better,
                selection._replace(selected=walk.best, fit=found, block_size=next_size),
                selection._replace(block_size=smaller),
            )
            value = jnp.where(is_better, new_value, value)
            num_refits += jnp.where(grows, 0, 1)
            return _Attempt(_Descent(selection, value, num_refits), excluded, is_better)

        def fails(carry):
            return ~carry.succeeded & carry.descent.goes_on(num_moves)

        begin = _Attempt(descent, jnp.zeros_like(selected), jnp.array(False))
        return while_loop(fails, attempt, begin).descent

    begin = _Descent(start, value_or_inf(problem, start.fit), jnp.zeros((), jnp.int32))
    return while_loop(lambda descent: descent.goes_on(num_moves), expand_and_search, begin)
