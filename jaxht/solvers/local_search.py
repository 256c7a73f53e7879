"""Local search for the best support: swaps and block exchanges, from several starts, with tabu
lists."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from optax.tree_utils import tree_where

from jaxht._dataclass import integer, pytree, static
from jaxht._repr import describe
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.constraints import SelectionConstraint, Sparse, check_selection
from jaxht.linalg.selection import k_largest_mask, mask_to_indices
from jaxht.solvers.iterate import Info, Iterate, evaluate
from jaxht.solvers.omp import complete_selection
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status
from jaxht.subproblems import Refit, refit
from jaxht.subproblems.columns import restrict_columns
from jaxht.subproblems.swaps import (
    Quadratic,
    SwapState,
    is_modelled,
    is_quadratic,
    is_reweighted,
    score_exchanges,
)


@pytree
class LocalSearch(Solver):
    r"""Local search for the best support: tabu search over all swaps, from several starts side by
    side.

    Every step takes ``num_moves`` moves or more from the support of each start, a move being the
    best swap

    .. math::
        (i, j) = \arg\min_{i \in S, j \notin S} \min \{ f : supp \subseteq S \setminus \{i\} \cup \{j\} \}, \qquad
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
      support (under Sparse, see :func:`jaxht.subproblems.swaps.score_exchanges`) or by a separable model,
      and one exchange of a block of items, whose size is reduced whenever the exchange does not
      decrease f (splicing). Each start selects the items that decrease a separable model of f most;
      in all starts but one, the decreases are multiplied by random weights.

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
        ValueError: for :class:`jaxht.LowRank`, which has no coordinates to select, and where k_max
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

    num_starts: int = static(default=8)
    num_moves: Numeric = integer(default=25)
    patience: Numeric = integer(default=8)
    num_candidates: int = static(default=8)

    def max_steps(self, constraint: SelectionConstraint) -> int:
        """1 000 steps; the search ends before."""
        return 1000

    def init(self, objective: Any, constraint: Any, x0: Array, key: PRNGKey | None) -> Step[Any]:
        """x0, and the selection of each start."""
        for name in ("num_starts", "num_candidates"):
            number = getattr(self, name)
            if not (isinstance(number, int) and number >= 1):
                raise ValueError(f"{name} must be an int of at least 1; got {describe(number)}")
        if constraint.k_max is None:
            raise ValueError(
                "k_max must be given for LocalSearch: Sparse(k, k_max=...) where k is traced"
            )
        check_selection(constraint)
        alone = is_quadratic(objective, constraint) or self._descends(objective, constraint)
        starts, seeds = select_starts(objective, constraint, x0, self.num_starts, key, alone)
        moments: Any = ()
        places = Place(starts)
        if is_quadratic(objective, constraint):
            moments = Quadratic.of(
                objective, ROWS * self.num_starts * max(1, constraint.k_max)
            ).moments
        else:
            if self._descends(objective, constraint):
                starts = complete_starts(objective, constraint, x0, starts)
            fits = jax.vmap(lambda selected: refit(objective, constraint.support(selected), x0))(
                starts
            )
            places = Place(starts, fits, jnp.full(starts.shape[:1], largest_block(constraint)))
        state = (moments, places, seeds, jnp.zeros((), jnp.int32), jnp.array(True))
        return evaluate(objective, x0), state, Info()

    def step(self, objective: Any, constraint: Any, iterate: Iterate, state: Any) -> Step[Any]:
        """A walk from each place, and the refit on the best support."""
        moments, places, seeds, num_failed, converged = state

        def search(place: Place, seed: Array, lane: Array) -> Walk:
            if is_quadratic(objective, constraint):
                return search_quadratic(
                    Quadratic(objective, *moments),
                    constraint,
                    place,
                    seed,
                    self.num_moves,
                    lane == 1,
                )
            if self._descends(objective, constraint):
                return search_reweighted(objective, constraint, place, seed, self.num_moves)
            return search_refitted(
                objective, constraint, place, seed, self.num_moves, self.num_candidates
            )

        lanes = lax.iota(jnp.int32, seeds.size)
        if self._descends(objective, constraint):  # one after the other: each refit is large enough
            walks = lax.map(lambda start: search(*start), (places, seeds, lanes))
        else:
            walks = jax.vmap(search)(places, seeds, lanes)
        best = jax.tree.map(lambda lanes: lanes[jnp.argmin(walks.least)], walks.best)
        if is_quadratic(objective, constraint):
            fit = refit(objective, constraint.support(best.selected), iterate.x)
            last: Any = ()
        else:
            fit, refitted = (
                best.fit,
                Refit(iterate.x, iterate.pred, converged),
            )
            last = (refitted, best.block)
        found = evaluate(objective, fit)
        better = found.value < iterate.value
        # A refit that has not converged descends further wherever it goes on: that finds no better
        # support.
        num_failed = jnp.where(better & fit.converged, 0, num_failed + 1)
        # Several walks that all end in the same f have found the least.
        agree = ~better & ~jnp.any(is_below(jnp.min(walks.least), walks.least)) & (seeds.size > 1)
        ended = agree | (num_failed >= self.patience)
        info = Info(
            full_gradients=1,
            status=jnp.where(ended, Status.NO_PROGRESS, Status.RUNNING),
            accepted=better,
            refit_converged=fit.converged,
        )
        best = tree_where(better, best, Place(constraint.active(iterate.x), *last))
        again = rank(walks.least) >= seeds.size - max(1, seeds.size // ELITE)
        places = jax.vmap(lambda again, place: tree_where(again, best, place))(again, walks.place)
        converged = jnp.where(better, fit.converged, converged)
        state = (moments, places, walks.seed, num_failed, converged)
        return tree_where(better, found, iterate), state, info

    def _descends(self, objective: Any, constraint: Any) -> bool:
        """Whether moves are exchanges by the quadratic model alone."""
        return self.num_candidates == 1 and is_reweighted(objective, constraint)


def select_starts(
    objective: Any, constraint: Any, x0: Array, num_starts: int, key: PRNGKey | None, alone: bool
) -> tuple[Array, Array]:
    """The selections to start from, bool (num_starts, ...), and numbers from which random ones
    follow, uint32.

    The first is that of x0. To the others join the items that decrease a separable model of f most,
    but for random factors; or the first of these alone, where :meth:`SwapState.complete` adds the
    others."""
    none = objective.start()
    gains, *_ = score_exchanges(objective, constraint, None, none, objective.predict(none))
    bits = jax.random.bits(
        jax.random.key(0) if key is None else key, (num_starts, 1 + gains.size), jnp.uint32
    )
    factors = (
        jnp.asarray(bits[:, 1:] >> 8, gains.dtype)
        .at[0]
        .set(2**24)
        .reshape(num_starts, *gains.shape)
    )

    def start(lane: Array, factors: Array) -> Array:
        kept = jnp.where(lane == 0, constraint.active(x0), constraint.active(none))
        ranked = jnp.where(
            kept, jnp.inf, jnp.nan_to_num(gains * factors)
        )  # gains that overflow stay below
        if not alone:
            return k_largest_mask(ranked.ravel(), constraint.limit).reshape(gains.shape)
        first = lax.iota(jnp.int32, gains.size) == jnp.argmax(jnp.where(kept, 0, ranked)).astype(
            jnp.int32
        )
        first = first.reshape(gains.shape)
        return kept | (first & (jnp.sum(kept, dtype=jnp.int32) < constraint.limit))

    return jax.vmap(start)(lax.iota(jnp.int32, num_starts), factors), bits[:, 0]


def complete_starts(objective: Any, constraint: Any, x0: Array, starts: Array) -> Array:
    """Starts of :func:`search_reweighted`, bool (num_starts, d).

    The first is that of orthogonal matching pursuit, where that does not take long; the others are
    those of forward selection on the quadratic upper bound of f at 0, from different first items.
    """
    none = objective.start()
    f = Quadratic.bound(
        objective, none, objective.predict(none), ROWS * len(starts) * max(1, constraint.k_max)
    )

    def complete(selected: Array) -> Array:
        fixed = constraint.always_active
        return complete_quadratic(f, constraint, selected, fixed).selected | fixed

    if objective.num_samples * max(1, constraint.k_max) ** 3 > FORWARD:
        return jax.vmap(complete)(starts)
    first = complete_selection(objective, constraint, x0)[None]
    return jnp.concatenate([first, jax.vmap(complete)(starts[1:])]) if len(starts) > 1 else first


def complete_quadratic(
    f: Quadratic, constraint: Any, selected: Array, fixed: Array, by_gradient: Any = False
) -> SwapState:
    """The state of a flat selection and of what is fixed, completed by forward selection on the
    quadratic."""
    k_max = max(1, constraint.k_max or 0)
    # One that must stay has its slot, even where it depends on others and the slot is empty.
    wanted = mask_to_indices(selected | fixed, k_max)
    return SwapState.empty(f, k_max).complete(f, wanted, constraint.limit, by_gradient)


class Place(NamedTuple):
    """A selection.

    Attributes:
        selected: bool, the items that are selected; flat during a walk.
        fit: the :class:`Refit` on them; () for quadratics.
        block: int32, the number of items in the next exchange of a block; () for quadratics.
    """

    selected: Leaf
    fit: Any = ()
    block: Any = ()


class Walk(NamedTuple):
    """A tabu search in progress, or ended.

    Attributes:
        place: the current selection.
        state: what else is known of it.
        best: the best selection met.
        least: f there, up to a constant.
        move: int32, the number of moves taken.
        seed: uint32, from which the next random number follows.
        until: int32, for each item the move from which on it may join or leave again.
        goes_on: bool, whether the last move has found ``best``.
    """

    place: Place
    state: Any
    best: Place
    least: Leaf
    move: Leaf
    seed: Leaf
    until: Leaf
    goes_on: Leaf

    @classmethod
    def begin(cls, place: Place, value: Array, state: Any, seed: Array) -> "Walk":
        """Before the first move."""
        zero, until = jnp.zeros((), jnp.int32), jnp.zeros(place.selected.shape, jnp.int32)
        return cls(place, state, place, value, zero, seed, until, jnp.array(False))

    def take(self, place: Place, value: Array, state: Any, fixed: Array) -> "Walk":
        """A move to another selection, from which ``fixed`` may not leave."""
        here, there = self.place.selected, place.selected
        longest = (
            jnp.stack([jnp.sum(mask, dtype=jnp.int32) for mask in (there & ~fixed, ~there)]) - 1
        )
        # A linear congruential generator (Numerical Recipes), of which the upper bits are used.
        seed = self.seed * jnp.uint32(1664525) + jnp.uint32(1013904223)
        shortest, spread = jnp.array(SHORTEST, jnp.int32), jnp.array(SPREAD, jnp.uint32)
        random = jnp.stack([seed >> 24, (seed >> 16) & 0xFF]) % spread
        until = self.move + 1 + jnp.minimum(shortest + random.astype(jnp.int32), longest)
        until = jnp.where(there & ~here, until[0], jnp.where(here & ~there, until[1], self.until))
        improved = is_below(value, self.least)
        best, least = tree_where(improved, (place, value), (self.best, self.least))
        return Walk(place, state, best, least, self.move + 1, seed, until, improved)

    def allows(self, slots: Array, values: Array) -> Array:
        """Whether each swap is not tabu, or leads to an f below all that was met, bool (k_max,
        number of items).

        Args:
            slots: int32 (k_max,), the items that may leave, padded with the number of items.
            values: (k_max, number of items), f after each swap, up to the constant of ``least``.
        """
        tabu = self.until > self.move
        leaves = tabu.at[slots].get(mode="fill", fill_value=True)
        return (~tabu[None] & ~leaves[:, None]) | is_below(values, self.least)

    def end(self, spread: Callable[[Place], Place]) -> "Walk":
        """The ended walk, its selections among all items."""
        return self._replace(place=spread(self.place), best=spread(self.best), state=(), until=())


def search_quadratic(
    f: Quadratic,
    constraint: Sparse,
    place: Place,
    seed: Array,
    num_moves: Numeric,
    by_gradient: Array,
) -> Walk:
    """Complete a support by forward selection, and take the best swap that is not tabu, again and
    again.

    Moves go on as long as they find a better one: so no swap improves the best support.

    Args:
        f: the quadratic.
        constraint: Sparse without bounds.
        place: the support.
        seed: uint32, of the random numbers of moves that are tabu.
        num_moves: an integer, traced; after so many moves the walk ends where it does not improve.
        by_gradient: bool, whether the forward selection is orthogonal matching pursuit.

    Returns:
        The :class:`Walk`.
    """
    shape, selected = place.selected.shape, place.selected.ravel()
    fixed = jnp.broadcast_to(constraint.always_active, shape).ravel()
    state = complete_quadratic(f, constraint, selected, fixed, by_gradient)
    active = find_active(f.objective, state)
    if active is not None:
        f, state, fixed = f.restrict(active), state.restrict(active), fixed[active]
    walk = walk_quadratic(f, state, fixed, jnp.zeros_like(fixed), seed, num_moves)
    return walk.end(
        lambda place: Place(spread(place.selected, active, selected.size).reshape(shape))
    )


def walk_quadratic(
    f: Quadratic, state: SwapState, fixed: Array, excluded: Array, seed: Array, num_moves: Numeric
) -> Walk:
    """The moves of :func:`search_quadratic` from a state; fixed items may not leave, and excluded
    ones not join."""
    m, k_max = fixed.size, state.indices.size
    movable = ~fixed.at[state.indices].get(
        mode="fill", fill_value=True
    )  # what joins in such a slot may leave it

    def move(walk: Walk) -> Walk:
        state = walk.state
        gains = jnp.where(movable[:, None] & ~excluded[None], state.swap_gains(), -jnp.inf)
        gains = jnp.where(walk.allows(state.indices, -state.decrease(f) - gains), gains, -jnp.inf)
        best = jnp.argmax(gains).astype(jnp.int32)
        possible = gains.ravel()[best] > -jnp.inf
        slot, j = jnp.where(possible, best // m, k_max), jnp.where(possible, best % m, m)
        state = state.remove(slot).insert(f, slot, j)
        return walk.take(Place(state.selected), -state.decrease(f), state, fixed)

    start = Walk.begin(Place(state.selected), -state.decrease(f), state, seed)
    return lax.while_loop(lambda walk: (walk.move < num_moves) | walk.goes_on, move, start)


def search_reweighted(
    objective: Any, constraint: Sparse, place: Place, seed: Array, num_moves: Numeric
) -> Walk:
    """Search by the quadratic with the derivatives of f, refit on what is found, and so on as long
    as f decreases.

    Each search is one of :func:`walk_quadratic` of so many moves, which are halved where f does not
    decrease. What has joined in a single swap that failed does not join in the next ones, of which
    there are FAILURES at most.

    Args:
        objective: a separable loss.
        constraint: Sparse without bounds.
        place: where to start.
        seed: uint32, of the random numbers of moves that are tabu.
        num_moves: an integer, traced; the most refits.

    Returns:
        The :class:`Walk`; in its place a block of 0 where nothing is left to try.

    Cost: a refit takes two products with each of k_max + block columns, or n d^2 where d is at most
    ``ROWS k_max``."""
    fixed, k_max = (
        jnp.broadcast_to(constraint.always_active, place.selected.shape),
        max(1, constraint.k_max or 0),
    )

    def descend(carry: Any) -> Any:
        (selected, fit, _), value, _ = carry
        f = Quadratic.at(objective, fit.x, fit.pred, ROWS * k_max)
        state = SwapState.at(objective, mask_to_indices(selected, k_max), fit.x, fit.pred, f.gram)

        def attempt(carry: Any) -> Any:
            (_, _, block), _, move, excluded, _ = carry
            candidate = walk_quadratic(f, state, fixed, excluded, seed, block).best.selected
            joins = candidate & ~selected
            found = refit(objective, constraint.support(candidate), fit.x)
            new = value_or_inf(objective, found)
            better = is_below(new, value)
            excluded |= (block == 1) & joins
            exhausted = ~jnp.any(joins) | (jnp.sum(excluded, dtype=jnp.int32) >= FAILURES)
            smaller = jnp.where(exhausted, 0, jnp.maximum(1, block // 2))
            place = tree_where(
                better, Place(candidate, found, block), Place(selected, fit, smaller)
            )
            return place, jnp.where(better, new, value), move + 1, excluded, better

        def fails(carry: Any) -> Array:
            place, _, move, _, better = carry
            return ~better & (place.block > 0) & (move < num_moves)

        begin = *carry, jnp.zeros_like(selected), jnp.array(False)
        return lax.while_loop(fails, attempt, begin)[:3]

    def goes_on(carry: Any) -> Array:
        return (carry[0].block > 0) & (carry[2] < num_moves)

    start = place, value_or_inf(objective, place.fit), jnp.zeros((), jnp.int32)
    place, value, move = lax.while_loop(goes_on, descend, start)
    return Walk(place, (), place, value, move, seed, (), jnp.array(False))


def search_refitted(
    objective: Any,
    constraint: Any,
    place: Place,
    seed: Array,
    num_moves: Numeric,
    num_candidates: int,
) -> Walk:
    """Refit on the most promising swaps and an exchange of a block, and take the best, again and
    again.

    Args:
        objective: any.
        constraint: any with items.
        place: where to start.
        seed: uint32, of the random numbers of moves that are tabu.
        num_moves: an integer, traced; after so many moves the walk ends where it does not improve.
        num_candidates: the number of refits in a move.

    Returns:
        The :class:`Walk`.
    """
    selected, fit, block = place
    active, shape = None, selected.shape
    k_max, value = max(1, constraint.k_max or 0), value_or_inf(objective, fit)
    if is_modelled(objective, constraint):
        model = SwapState.at(objective, mask_to_indices(selected.ravel(), k_max), fit.x, fit.pred)
        active = find_active(objective, model)
    items = shape
    if active is not None:
        objective, constraint, items = (
            restrict_columns(objective, active),
            constraint.restrict(active),
            active.shape,
        )
        selected, fit = selected[active], fit._replace(x=fit.x[active])
    fixed = jnp.broadcast_to(constraint.always_active, items).ravel()
    size = fixed.size

    def refit_on(selected: Array, x: Array) -> tuple[Refit, Array]:
        found = refit(objective, constraint.support(selected.reshape(items)), x)
        return found, value_or_inf(objective, found)

    def move(walk: Walk) -> Walk:
        (selected, fit, block), value = walk.place, walk.state
        slots = mask_to_indices(selected, k_max)
        gains, losses, swaps = score_exchanges(objective, constraint, slots, fit.x, fit.pred)
        may_leave = (selected & ~fixed).at[slots].get(mode="fill", fill_value=False)

        # The items of a block that join, and as many that leave.
        gains = jnp.where(selected | ~(gains.ravel() > 0), 0, gains.ravel())
        joins = k_largest_mask(gains, jnp.minimum(block, jnp.sum(may_leave, dtype=jnp.int32))) & (
            gains > 0
        )
        leaves = rank(jnp.where(may_leave, losses, jnp.inf)) < jnp.sum(joins, dtype=jnp.int32)
        out = jnp.where(leaves, slots, size)
        candidates, possible = [selected.at[out].set(False, mode="drop") | joins], [jnp.any(joins)]
        if num_candidates > 1:
            allowed = walk.allows(slots, value - swaps)
            swaps = jnp.where(
                allowed & may_leave[:, None] & ~selected[None] & ~jnp.isnan(swaps), swaps, -jnp.inf
            )
            for _ in range(num_candidates - 1):
                place = jnp.argmax(swaps).astype(jnp.int32)
                i, j = place // size, place % size
                candidates.append(selected.at[slots[i]].set(False, mode="drop").at[j].set(True))
                possible.append(swaps[i, j] > -jnp.inf)
                swaps = swaps.at[i, j].set(-jnp.inf)

        masks = jnp.stack(candidates)
        fits, values = jax.vmap(lambda selected: refit_on(selected, fit.x))(masks)
        values = jnp.where(jnp.stack(possible), values, jnp.inf)
        # An exchange of a block descends; what it exchanges may be tabu.
        descends = is_below(values[0], value)
        values = values.at[0].set(jnp.where(descends, values[0], jnp.inf))
        lane = jnp.argmin(values)
        moves, last = values[lane] < jnp.inf, block == 1
        taken = jax.tree.map(lambda lanes: lanes[lane], (masks, fits, values))
        selected, fit, value = tree_where(moves, taken, (selected, fit, value))
        block = jnp.where(descends & (lane == 0), block, jnp.maximum(1, block // 2))
        walk = walk.take(Place(selected, fit, block), value, value, fixed)
        # Where nothing is left to try the walk has ended; and a refit that has not converged always
        # improves.
        move = jnp.where(moves | ~last, walk.move, num_moves)
        return walk._replace(move=move, goes_on=walk.goes_on & fit.converged)

    if num_candidates > 1:  # the swaps since may have made way for large blocks again
        block = largest_block(constraint)
    start = Walk.begin(Place(selected.ravel(), fit, block), value, value, seed)
    walk = lax.while_loop(lambda walk: (walk.move < num_moves) | walk.goes_on, move, start)

    def end(place: Place) -> Place:
        x = place.fit.x if active is None else spread(place.fit.x, active, shape[0])
        return Place(
            spread(place.selected, active, shape[0]).reshape(shape),
            place.fit._replace(x=x),
            place.block,
        )

    return walk.end(end)


def value_or_inf(objective: Any, fit: Refit) -> Array:
    """f at a refit; infinity where it is not finite."""
    value = objective.value(fit.x, fit.pred)
    return jnp.where(jnp.isfinite(value), value, jnp.inf)


def largest_block(constraint: SelectionConstraint) -> Array:
    """Half of the items."""
    return jnp.maximum(1, jnp.asarray(constraint.limit, jnp.int32) // 2)


def spread(values: Array, active: Array | None, d: int) -> Array:
    """``values`` of the active coordinates among all, 0 elsewhere."""
    return values if active is None else jnp.zeros(d, values.dtype).at[active].set(values)


def find_active(objective: Any, state: SwapState) -> Array | None:
    """The coordinates among which to search: those of S, and of the best swaps with it; None for
    all."""
    k_max, d = state.images.shape
    size = max(ACTIVE, 8 * k_max, PAIRS // k_max)
    if d <= 2 * size or not objective.design.gathers(size):
        return None
    # A gain and the largest loss of f are not negative together.
    promise = jnp.maximum(jnp.max(state.swap_gains(), axis=0) + jnp.max(state.removal_losses()), 0)
    return mask_to_indices(k_largest_mask(jnp.where(state.selected, jnp.inf, promise), size), size)


def rank(values: Array) -> Array:
    """The place of each of a few numbers in increasing order, of equal ones in that of their
    indices; int32."""
    index = lax.iota(jnp.int32, values.size)
    rows, columns = values[:, None], values[None]
    is_before = (columns < rows) | ((columns == rows) & (index[None] < index[:, None]))
    return jnp.sum(is_before, axis=1, dtype=jnp.int32)


def is_below(value: Array, least: Array) -> Array:
    """Whether a value is less by more than rounding."""
    return value < least - ROUNDING * float(jnp.finfo(value.dtype).eps) * jnp.abs(least)


# The number of moves for which a coordinate that joined may not leave, and one that left may not
# join: at least, and how many different ones there are.
SHORTEST, SPREAD = (2, 4), (4, 9)
ROWS = 8  # of H, that a walk asks for, over k_max: a Gram matrix of more is not computed at once
# The least number of coordinates to search among, and of their pairs with selected ones.
ACTIVE, PAIRS = 256, 8192
# One start in so many, and at least one, goes on from the best support of all in the next step.
ELITE = 8
# n k_max^3 up to which a search starts from orthogonal matching pursuit on f itself
FORWARD = 5_000_000_000
FAILURES = 8  # swaps by the quadratic model, one after the other, that do not decrease f
ROUNDING = 64.0  # in ulps: supports of f as nearly equal are not told apart
