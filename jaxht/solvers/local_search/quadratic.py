"""The exact search, for least squares: tabu search over all swaps, in closed form."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._dataclass import pytree
from jaxht._loops import while_loop
from jaxht._typing import Array, Leaf, Numeric
from jaxht.constraints import SelectionConstraint
from jaxht.linalg.selection import mask_to_indices
from jaxht.solvers.local_search.search import (
    ROWS_PER_ITEM,
    Search,
    Starts,
    Walk,
    find_active,
    scatter,
)
from jaxht.solvers.local_search.tabu import TabuList
from jaxht.subproblems import Refit, Subproblem
from jaxht.subproblems.quadratic_model import QuadraticModel
from jaxht.subproblems.swaps import SupportMinimum


@pytree
class QuadraticSearch(Search):
    """Complete a support by forward selection, then take the best swap that is not tabu.

    A walk goes on as long as it finds something better, so that no swap improves its best support.

    Attributes:
        b: as in :class:`QuadraticModel`, like all below.
        diagonal: the diagonal of H.
        gram: H or None.
    """

    b: Array
    diagonal: Array
    gram: Array | None

    @classmethod
    def prepare(cls, problem: Subproblem, num_starts: int) -> "QuadraticSearch":
        """Compute what all walks have in common."""
        num_rows = ROWS_PER_ITEM * num_starts * max(1, problem.space.k_max)
        model = QuadraticModel.of(problem.objective, num_rows)
        return cls(model.b, model.diagonal, model.gram)

    def start(self, problem: Subproblem, x0: Array, starts: Starts) -> Array:
        """Start from single coordinates."""
        return starts.first_item(problem.space)

    def walk_all(
        self, problem: Subproblem, selections: Array, seeds: Array, num_moves: Numeric
    ) -> Walk:
        """Walk side by side; the second walk completes its support by matching pursuit."""
        model = QuadraticModel(problem.objective, self.b, self.diagonal, self.gram)

        def walk(selected, seed, by_gradient):
            return walk_on_quadratic(model, problem.space, selected, seed, num_moves, by_gradient)

        by_gradient = lax.iota(jnp.int32, seeds.size) == 1
        return jax.vmap(walk)(selections, seeds, by_gradient)

    def refit(self, problem: Subproblem, selection: Array, x: Array) -> Refit:
        """Solve least squares on the support."""
        return problem.refit(problem.space.support(selection), x)

    def locate(self, selected: Array, fit: Refit, best: Array) -> Array:
        """Return the selection alone."""
        return selected


def walk_on_quadratic(
    model: QuadraticModel,
    constraint: Any,
    selected: Array,
    seed: Array,
    num_moves: Numeric,
    by_gradient: Array,
) -> Walk:
    """Complete a support, and walk among the most promising coordinates."""
    fixed = jnp.broadcast_to(constraint.always_active, selected.shape).ravel()
    minimum = complete(model, constraint, selected.ravel(), fixed, by_gradient)
    active = find_active(model.objective, minimum)
    if active is not None:
        model = model.restrict(active)
        minimum = minimum.restrict(active)
        fixed = fixed[active]
        constraint = constraint.restrict(active)
    excluded = jnp.zeros_like(fixed)
    walk = walk_by_swaps(model, constraint, minimum, fixed, excluded, seed, num_moves)

    def shaped(mask):
        return scatter(mask, active, selected.size).reshape(selected.shape)

    return walk._replace(end=shaped(walk.end), best=shaped(walk.best))


def complete(
    model: QuadraticModel,
    constraint: SelectionConstraint,
    selected: Array,
    fixed: Array,
    by_gradient: Numeric = False,
) -> SupportMinimum:
    """Complete a flat selection, and what is fixed, by forward selection on the quadratic."""
    k_max = max(1, constraint.k_max or 0)
    # One that must stay has its slot, even where it depends on others and the slot is empty.
    wanted = mask_to_indices(selected | fixed, k_max)
    empty = SupportMinimum.empty(model, k_max)
    return empty.complete(model, wanted, constraint, constraint.limit, by_gradient)


class _SwapWalk(NamedTuple):
    """A walk in progress: the minimum here, the best support, and the tabu list."""

    minimum: SupportMinimum
    best: Leaf
    tabu: TabuList


def walk_by_swaps(
    model: QuadraticModel,
    constraint: SelectionConstraint,
    minimum: SupportMinimum,
    fixed: Array,
    excluded: Array,
    seed: Array,
    num_moves: Numeric,
) -> Walk:
    """Take the best swap that is not tabu, again and again.

    Coordinates that are ``fixed`` do not leave, and those ``excluded`` do not join, both bool (d,).
    """
    d = minimum.descent.size
    empty = model.diagonal <= 0
    # A coordinate that joins in the slot of a fixed one, which was empty, may leave it.
    movable = ~fixed.at[minimum.indices].get(mode="fill", fill_value=True)

    def move(walk):
        minimum, best, tabu = walk
        value = -minimum.decrease(model)
        gains = minimum.swap_gains()
        possible = movable[:, None] & ~excluded[None] & tabu.allows(minimum.indices, value - gains)
        if not constraint.is_uniform:
            possible &= constraint.exchangeable(minimum.selected, minimum.indices)
        slot, j = _best_swap(jnp.where(possible, gains, -jnp.inf))
        after = minimum.remove(slot).insert(model, slot, j)
        value = -after.decrease(model)
        tabu = tabu.record(minimum.selected, after.selected, value, fixed, empty)
        best = jnp.where(tabu.improved, after.selected, best)
        return _SwapWalk(after, best, tabu)

    begin = TabuList.begin(-minimum.decrease(model), seed, d)
    start = _SwapWalk(minimum, minimum.selected, begin)
    end = while_loop(lambda walk: walk.tabu.goes_on(num_moves), move, start)
    tabu = end.tabu
    return Walk(end.minimum.selected, end.best, tabu.least, tabu.seed, tabu.num_moves)


def _best_swap(gains: Array) -> tuple[Array, Array]:
    """The slot and coordinate of the largest gain; (k_max, d) where no swap is possible."""
    k_max, d = gains.shape
    best = jnp.argmax(gains).astype(jnp.int32)
    possible = gains.ravel()[best] > -jnp.inf
    return jnp.where(possible, best // d, k_max), jnp.where(possible, best % d, d)
