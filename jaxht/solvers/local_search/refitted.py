"""The search by refits of candidates, for all problems: score the exchanges by a model, refit on
the most promising ones, and take the best."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from optax.tree_utils import tree_where

from jaxht._dataclass import pytree, static
from jaxht._loops import scan, while_loop
from jaxht._typing import Array, Leaf, Numeric
from jaxht.constraints import SelectionConstraint
from jaxht.linalg.selection import k_largest_mask, mask_to_indices
from jaxht.solvers.local_search.search import (
    RefittedSelection,
    Search,
    Starts,
    Walk,
    find_active,
    largest_block,
    num_active,
    scatter,
    value_or_inf,
)
from jaxht.solvers.local_search.tabu import TabuList, is_below, rank
from jaxht.subproblems import Refit, RefitStatus, Subproblem, subproblem
from jaxht.subproblems.swaps import (
    ExchangeScores,
    SupportMinimum,
)


@pytree
class RefittedSearch(Search):
    """Refit on the best swaps and on an exchange of a block, and take what decreases f most.

    The first move of a walk is the refit on its start: of two loops of refits in a program each
    takes a fifth of the time that it compiles.

    Attributes:
        num_candidates: the number of refits in a move, static.
    """

    num_candidates: int = static()

    def start(self, problem: Subproblem, x0: Array, starts: Starts) -> RefittedSelection:
        """Start from the items that decrease a separable model most."""
        selected = starts.best_items(problem.space)
        num_starts = len(selected)

        def begin(mask):
            # Of coordinates those that are selected, as the model of a walk takes them.
            x = jnp.where(mask, x0, 0) if problem.has_cheap_rows else x0
            return Refit(x, problem.objective.predict(x), RefitStatus.of(False))

        return RefittedSelection(
            selected,
            jax.vmap(begin)(selected),
            block_size=jnp.full(num_starts, largest_block(problem)),
            is_fitted=jnp.zeros(num_starts, bool),
        )

    def walk_all(
        self,
        problem: Subproblem,
        selections: RefittedSelection,
        seeds: Array,
        num_moves: Numeric,
    ) -> Walk:
        """Walk side by side."""

        def walk(start, seed):
            return walk_among_active(problem, start, seed, num_moves, self.num_candidates)

        return jax.vmap(walk)(selections, seeds)


def walk_among_active(
    problem: Subproblem,
    start: RefittedSelection,
    seed: Array,
    num_moves: Numeric,
    num_candidates: int,
) -> Walk:
    """Walk by refits, among the most promising coordinates where there are many."""
    k_max = max(1, problem.space.k_max)
    d = start.selected.size
    if not problem.has_cheap_rows or num_active(problem.objective, k_max, d) is None:
        return walk_by_refits(problem, start, seed, num_moves, num_candidates)
    slots = mask_to_indices(start.selected.ravel(), k_max)
    minimum = SupportMinimum.at(
        problem.objective, slots, start.fit.x, start.fit.pred, start.is_fitted
    )
    active = find_active(problem.objective, minimum)
    objective = problem.objective.restrict(active)
    problem = subproblem(objective, problem.space.restrict(active))
    fit = start.fit._replace(x=start.fit.x[active])
    start = start._replace(selected=start.selected[active], fit=fit)
    walk = walk_by_refits(problem, start, seed, num_moves, num_candidates)

    def among_all(selection):
        fit = selection.fit._replace(x=scatter(selection.fit.x, active, d))
        return selection._replace(selected=scatter(selection.selected, active, d), fit=fit)

    return walk._replace(end=among_all(walk.end), best=among_all(walk.best))


class _RefittedWalk(NamedTuple):
    """A walk in progress: the selection here and f there, the best selection, and the tabu list."""

    here: RefittedSelection
    value: Leaf
    best: RefittedSelection
    tabu: TabuList


class _Candidate(NamedTuple):
    """A selection to refit on, flat, and whether it is one."""

    selected: Leaf
    possible: Leaf


def walk_by_refits(
    problem: Subproblem,
    start: RefittedSelection,
    seed: Array,
    num_moves: Numeric,
    num_candidates: int,
) -> Walk:
    """Take the best of ``num_candidates`` refits, again and again."""
    shape = start.selected.shape
    always_active = jnp.broadcast_to(problem.space.always_active, shape)
    moves = _Moves(
        problem=problem,
        shape=shape,
        num_moves=num_moves,
        num_candidates=num_candidates,
        fixed=always_active.ravel(),
        empty=problem.empty_items.ravel(),
    )
    if num_candidates > 1:  # the swaps since may have made way for large blocks again
        start = start._replace(block_size=largest_block(problem))
    start = start._replace(selected=start.selected.ravel())
    value = value_or_inf(problem, start.fit)
    walk = _RefittedWalk(
        here=start,
        value=value,
        best=start,
        tabu=TabuList.begin(value, seed, moves.fixed.size),
    )
    walk = while_loop(lambda walk: walk.tabu.goes_on(num_moves), moves.move, walk)

    def shaped(selection):
        return selection._replace(selected=selection.selected.reshape(shape))

    tabu = walk.tabu
    return Walk(
        end=shaped(walk.here),
        best=shaped(walk.best),
        least=tabu.least,
        seed=tabu.seed,
        num_moves=tabu.num_moves,
    )


@dataclasses.dataclass(frozen=True)
class _Moves:
    """The moves of a walk.

    Attributes:
        problem: the subproblem.
        shape: of the items.
        num_moves: how many there are, at most.
        num_candidates: how many refits each takes.
        fixed: bool, flat, the items that are always selected.
        empty: bool, flat, the items that change no prediction.
    """

    problem: Subproblem
    shape: tuple[int, ...]
    num_moves: Numeric
    num_candidates: int
    fixed: Array
    empty: Array

    def move(self, walk: _RefittedWalk) -> _RefittedWalk:
        """Take the refit that decreases f most; where none does, the smallest increase by a swap."""
        selected, fit, block_size, is_fitted = walk.here
        candidates = self.find_candidates(walk)
        # Before there is a refit here, the first candidate is the selection itself.
        is_first = lax.iota(jnp.int32, self.num_candidates) == 0
        masks = jnp.where(is_fitted, candidates.selected, selected)
        possible = jnp.where(is_fitted, candidates.possible, is_first)
        fits, values = self.refit_all(masks, fit.x)
        values = jnp.where(possible, values, jnp.inf)
        # An exchange of a block descends; what it exchanges may be tabu.
        descends = is_below(values[0], walk.value) | ~is_fitted
        values = values.at[0].set(jnp.where(descends, values[0], jnp.inf))
        best = jnp.argmin(values)
        moves = (values[best] < jnp.inf) | ~is_fitted
        taken = jax.tree.map(lambda lanes: lanes[best], (masks, fits, values))
        after, fit, value = tree_where(moves, taken, (selected, fit, walk.value))

        smaller = jnp.maximum(1, block_size // 2)
        next_size = jnp.where(descends & (best == 0), block_size, smaller)
        here = RefittedSelection(
            selected=after,
            fit=fit,
            block_size=next_size,
            is_fitted=jnp.array(True),
        )
        tabu = walk.tabu.record(selected, after, value, self.fixed, self.empty)
        begun = TabuList.begin(value, walk.tabu.seed, self.fixed.size)
        tabu = tree_where(is_fitted, tabu, begun)
        found = tree_where(tabu.improved | ~is_fitted, here, walk.best)
        # Where nothing is left to try the walk ends. A refit that has not converged always
        # improves.
        is_stuck = ~moves & (block_size == 1)
        tabu = tabu._replace(
            num_moves=jnp.where(is_stuck, self.num_moves, tabu.num_moves),
            improved=tabu.improved & fit.converged,
        )
        return _RefittedWalk(here, value, found, tabu)

    def find_candidates(self, walk: _RefittedWalk) -> _Candidate:
        """An exchange of a block, and the best swaps that are not tabu, stacked."""
        constraint = self.problem.space
        selected, fit, block_size, _ = walk.here
        slots = mask_to_indices(selected, max(1, constraint.k_max))
        movable = (selected & ~self.fixed).at[slots].get(mode="fill", fill_value=False)
        scores = self.problem.exchange_scores(slots, fit.x, fit.pred)
        exchange = _exchange_block if constraint.is_uniform else _exchange_allowed
        block = exchange(scores, selected, slots, movable, block_size, constraint)
        candidates = jax.tree.map(lambda leaf: leaf[None], block)
        if self.num_candidates == 1:
            return candidates
        allowed = walk.tabu.allows(slots, walk.value - scores.swaps)
        allowed &= movable[:, None] & ~selected[None] & ~jnp.isnan(scores.swaps)
        if not constraint.is_uniform:
            allowed &= constraint.exchangeable(selected, slots)
        gains = jnp.where(allowed, scores.swaps, -jnp.inf)
        swaps = _best_swaps(gains, selected, slots, self.num_candidates - 1)
        return jax.tree.map(lambda *some: jnp.concatenate(some), candidates, swaps)

    def refit_all(self, selected: Array, x: Array) -> tuple[Refit, Array]:
        """The refits on selections, and f there."""

        def refit_on(mask):
            support = self.problem.space.support(mask.reshape(self.shape))
            fit = self.problem.refit(support, x)
            return fit, value_or_inf(self.problem, fit)

        return jax.vmap(refit_on)(selected)


def _exchange_block(
    scores: ExchangeScores,
    selected: Array,
    slots: Array,
    movable: Array,
    block_size: Array,
    constraint: SelectionConstraint,
) -> _Candidate:
    """Let the items of the largest gains join, and as many of the least losses leave."""
    gains, most = _block_of_gains(scores, selected, movable, block_size)
    joins = k_largest_mask(gains, most) & (gains > 0)
    num_joined = jnp.sum(joins, dtype=jnp.int32)
    rest = _drop_least(scores, selected, slots, movable, num_joined)
    return _Candidate(rest | joins, jnp.any(joins))


def _exchange_allowed(
    scores: ExchangeScores,
    selected: Array,
    slots: Array,
    movable: Array,
    block_size: Array,
    constraint: SelectionConstraint,
) -> _Candidate:
    """Exchange a block where not all items may be selected together: let the items of the least
    losses leave, those of the largest gains join as far as they are allowed, and of those that left
    come back who still may."""
    gains, most = _block_of_gains(scores, selected, movable, block_size)
    rest = _drop_least(scores, selected, slots, movable, most)
    size = jnp.sum(rest, dtype=jnp.int32)
    joined = constraint.select(jnp.where(rest, jnp.inf, gains), size + most)
    joins = joined & (gains > 0)
    held = jnp.zeros_like(gains).at[slots].set(scores.losses, mode="drop")
    held = jnp.where(rest | joins, jnp.inf, held)
    found = constraint.select(held, size + most) & (selected | joins)
    return _Candidate(found, jnp.any(joins) & constraint.allows(found))


def _block_of_gains(
    scores: ExchangeScores, selected: Array, movable: Array, block_size: Array
) -> tuple[Array, Array]:
    """The gains above 0 of the items that are not selected, and how many may join at most."""
    gains = scores.gains.ravel()
    gains = jnp.where(selected | ~(gains > 0), 0, gains)
    most = jnp.minimum(block_size, jnp.sum(movable, dtype=jnp.int32))
    return gains, most


def _drop_least(
    scores: ExchangeScores, selected: Array, slots: Array, movable: Array, number: Array
) -> Array:
    """The selection without so many of its movable items, those of the least losses."""
    losses = jnp.where(movable, scores.losses, jnp.inf)
    leaves = rank(losses) < number
    left = jnp.where(leaves, slots, selected.size)
    return selected.at[left].set(False, mode="drop")


def _best_swaps(gains: Array, selected: Array, slots: Array, num_swaps: int) -> _Candidate:
    """The swaps of the largest gains (k_max, number of items), stacked; -infinity marks impossible
    ones."""

    def next_best(gains, _):
        best = jnp.argmax(gains).astype(jnp.int32)
        slot = best // selected.size
        j = best % selected.size
        swapped = selected.at[slots[slot]].set(False, mode="drop").at[j].set(True)
        candidate = _Candidate(swapped, gains[slot, j] > -jnp.inf)
        return gains.at[slot, j].set(-jnp.inf), candidate

    return scan(next_best, gains, length=num_swaps)[1]
