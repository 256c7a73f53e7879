"""Local search for the best support: all swaps of two coordinates at once, from several starts, with tabu lists."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from optax.tree_utils import tree_where

from jaxht._pytree import Array, Numeric, PRNGKey, describe, integer, pytree, static
from jaxht.constraints import Sparse
from jaxht.linalg.linear_solvers import ratio
from jaxht.linalg.selection import k_largest_mask, mask_to_indices
from jaxht.objectives.linear_model import LeastSquares
from jaxht.objectives.objective import Objective
from jaxht.refit import refit
from jaxht.refit.swaps import Quadratic, SwapState
from jaxht.solvers.iterate import Iterate, evaluate
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status


@pytree
class LocalSearch(Solver):
    r"""Local search for the best support: tabu search over all swaps, from several starts side by side. Least squares.

    Forward selection by the true decrease of f (orthogonal least squares) from ``num_starts`` different first
    coordinates gives the starts. A step takes ``num_moves`` moves or more from each, a move being the best swap

    .. math::
        (i, j) = \arg\min_{i \in S, j \notin S} \min \{ f : supp \subseteq S \setminus \{i\} \cup \{j\} \}, \qquad
        S \leftarrow S \setminus \{i\} \cup \{j\},

    even where f increases; but what left may not join again, and what joined may not leave, for some moves, of a random
    number, unless f falls below all that was met (tabu search). Then f is refitted on the best support of all. The
    walks go on in the next step, and the run ends with NO_PROGRESS once ``patience`` steps have not decreased f: x is
    then the minimiser on a support that no single swap improves.

    Scores do not depend on the scale of columns. Coordinates that depend on the selected ones up to rounding are left
    out. It starts from the support of x0, if it has one. Results are deterministic for a key; None is one of them.

    Args:
        num_starts: an int, static; walks side by side, which cost little more than one.
        num_moves: an integer >= 1, traced; moves between two refits.
        patience: an integer >= 1, traced; the steps without a decrease of f after which the run ends: with it and
            num_moves the budget grows, for problems of correlated columns.

    Raises:
        ValueError: for objectives other than :class:`jaxht.LeastSquares`, constraints other than :class:`jaxht.Sparse`
            without bounds, and where k_max is not known.

    Cost: a move of each start takes ``k_max d`` for the scores of all swaps, and a column of A'A: n d, or nothing where
    d <= n or d <= 512 on a dense design, whose A'A is computed once, n d^2. A step takes k_max more for the start, and
    a refit.

    Source: Glover 1989 for tabu search; Chen, Billings & Luo 1989 for the forward selection. Not in the papers, whose
    Axiotis & Sviridenko 2020, Algorithm 4, scores the swaps of one leaving coordinate.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.LocalSearch()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    num_starts: int = static(default=8)
    num_moves: Numeric = integer(default=50)
    patience: Numeric = integer(default=4)

    def max_steps(self, constraint: Sparse) -> int:
        """1 000 steps; the search ends before."""
        return 1000

    def init(self, objective: Objective, constraint: Sparse, x0: Array, key: PRNGKey | None) -> Step:
        """x0, and for each start its support with another coordinate of a large gain."""
        least_squares, k_max = self.check_problem(objective, constraint)
        f, S = Quadratic.of(least_squares), constraint.active(x0)
        iterate = evaluate(objective, x0)
        gains = ratio(objective.gradient(x0, iterate.pred) ** 2, f.diagonal)
        starts = min(self.num_starts, x0.size)
        firsts = mask_to_indices(k_largest_mask(jnp.where(S, 0, gains), starts), starts)
        kept, size = mask_to_indices(S, max(1, k_max)), jnp.sum(S, dtype=jnp.int32)
        supports = jax.vmap(lambda j: kept.at[size].set(j, mode="drop"))(firsts)
        key = jax.random.key(0) if key is None else key
        return iterate, (f.moments, supports, key, jnp.zeros((), jnp.int32))

    def step(self, objective: Objective, constraint: Sparse, iterate: Iterate, state: Any) -> Step:
        """A walk from each start, and the refit on the best support."""
        moments, supports, key, num_failed = state
        f = Quadratic(self.check_problem(objective, constraint)[0], *moments)
        fixed = jnp.broadcast_to(constraint.always_active, iterate.x.shape)
        key, *keys = jax.random.split(key, 1 + supports.shape[0])

        def search(support: Array, key: PRNGKey) -> Walk:
            begin = SwapState.empty(f, support.size).complete(f, support, constraint.limit)
            return walk(f, begin, fixed, key, self.num_moves)

        walks = jax.vmap(search)(supports, jnp.stack(keys))
        best = walks.best[jnp.argmax(walks.most)]
        selected = jnp.zeros(iterate.x.shape, bool).at[best].set(True, mode="drop")
        counts = iterate.counts.plus(full_gradients=1)
        found = evaluate(objective, refit(objective, constraint.support(selected), iterate.x), counts)
        better = found.value < iterate.value
        num_failed = jnp.where(better, 0, num_failed + 1)
        status = jnp.where(num_failed >= self.patience, Status.NO_PROGRESS, Status.RUNNING).astype(jnp.int32)
        new = replace(tree_where(better, found, iterate), status=status, counts=counts)
        return new, (moments, walks.state.indices, key, num_failed)

    def check_problem(self, objective: Objective, constraint: Any) -> tuple[LeastSquares, int]:
        """The objective, and k_max.

        Raises:
            ValueError: unless swaps can be scored in closed form.
        """
        if not (isinstance(self.num_starts, int) and self.num_starts >= 1):
            raise ValueError(f"num_starts must be an int of at least 1; got {describe(self.num_starts)}")
        if not isinstance(objective, LeastSquares) or len(objective.shape) != 1:
            raise ValueError(f"objective must be LeastSquares for LocalSearch; got {type(objective).__name__}")
        if not isinstance(constraint, Sparse) or constraint.bounds is not None:
            raise ValueError(f"constraint must be Sparse without bounds for LocalSearch; got {describe(constraint)}")
        if constraint.k_max is None:
            raise ValueError("k_max must be given for LocalSearch: Sparse(k, k_max=...) where k is traced")
        return objective, constraint.k_max


class Walk(NamedTuple):
    """A tabu search in progress.

    Attributes:
        state: of the current support.
        move: int32, the number of moves taken.
        joins: int32 (d,), the move from which on a coordinate may join again.
        leaves: int32 (k_max,), the move from which on the coordinate in a slot may leave.
        best: int32 (k_max,), the best support met.
        most: the decrease of f below 0 that it reaches.
        improved: bool, whether the last move has found it.
    """

    state: SwapState
    move: Array
    joins: Array
    leaves: Array
    best: Array
    most: Array
    improved: Array


def walk(f: Quadratic, state: SwapState, fixed: Array, key: PRNGKey, num_moves: Numeric) -> Walk:
    """Take the best swap that is not tabu, again and again, and keep the best support met.

    Moves go on as long as they find a better one: so no swap improves the best support.

    Args:
        f: the quadratic.
        state: of the first support.
        fixed: bool (d,), coordinates that may not leave.
        key: PRNG key.
        num_moves: an integer, traced; after so many moves the walk ends where it does not improve.

    Returns:
        The :class:`Walk`.
    """
    k_max, d = state.images.shape
    movable = ~fixed.at[state.indices].get(mode="fill", fill_value=True)  # what joins in such a slot may leave it
    longest = jnp.array([d, jnp.sum(movable, dtype=jnp.int32) - 1], jnp.int32)
    ulps = ROUNDING * float(jnp.finfo(state.w.dtype).eps)

    def move(walk: Walk) -> Walk:
        state, t = walk.state, walk.move
        gains = jnp.where(movable[:, None], state.swap_gains(f), -jnp.inf)
        free = (walk.leaves <= t)[:, None] & (walk.joins <= t)
        gains = jnp.where(free | (state.decrease(f) + gains > (1 + ulps) * walk.most), gains, -jnp.inf)
        best = jnp.argmax(gains).astype(jnp.int32)
        possible = gains.ravel()[best] > -jnp.inf
        slot, j = jnp.where(possible, best // d, k_max), jnp.where(possible, best % d, d)

        out = state.indices.at[slot].get(mode="fill", fill_value=d)
        shortest, spread = jnp.array(SHORTEST, jnp.int32), jnp.array(SPREAD, jnp.uint32)
        random = jax.random.bits(jax.random.fold_in(key, t), (2,), jnp.uint32) % spread
        until = t + 1 + jnp.minimum(shortest + random.astype(jnp.int32), longest)
        joins = walk.joins.at[out].set(until[0], mode="drop")
        leaves = walk.leaves.at[slot].set(until[1], mode="drop")

        state = state.remove(slot).insert(f, slot, j)
        reached = state.decrease(f)
        improved = reached > (1 + ulps) * walk.most
        support, most = tree_where(improved, (state.indices, reached), (walk.best, walk.most))
        return Walk(state, t + 1, joins, leaves, support, most, improved)

    begin, never = jnp.zeros((), jnp.int32), (jnp.zeros(d, jnp.int32), jnp.zeros(k_max, jnp.int32))
    start = Walk(state, begin, *never, state.indices, state.decrease(f), jnp.array(False))
    return lax.while_loop(lambda walk: (walk.move < num_moves) | walk.improved, move, start)


# The number of moves for which a coordinate that left may not join again, and one that joined may not leave: at least,
# and how many different ones there are.
SHORTEST, SPREAD = (4, 2), (9, 4)
ROUNDING = 64.0  # in ulps: supports of f as nearly equal are not told apart
