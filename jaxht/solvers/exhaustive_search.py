"""The best of all supports, by enumeration."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from optax.tree_utils import tree_where

from jaxht._dataclass import pytree
from jaxht._loops import scan
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.constraints import SelectionConstraint, check_selection
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Info, Iterate, evaluate
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status
from jaxht.subproblems import Refit, subproblem

__all__ = ["ExhaustiveSearch"]

# Supports of a step. More of them compute values that the last step does not need.
SUPPORTS_PER_STEP = 64
MAX_SUPPORTS = 10_000_000


class ExhaustiveSearchState(NamedTuple):
    """The state of :class:`ExhaustiveSearch`.

    Attributes:
        empty: bool, the items that are in no support, as no prediction depends on them.
        rank: int32, the number of supports that are done, in lexicographic order.
    """

    empty: Leaf
    rank: Leaf


@pytree
class ExhaustiveSearch(Solver):
    r"""Refit on every support of k items, and return the best.

    .. math::
        x = \arg\min_{|S| = k} \min \{ f(x) : supp(x) \subseteq S \}

    Every step refits on the next 64 supports in lexicographic order. The run ends with FINISHED
    when all are done, and then x is a global minimiser, up to the tolerance of the refits, where f
    is convex. Items that are always active are in every support; columns of zeros are in none. It
    has no arguments.

    Raises:
        ValueError: for :class:`jaxht.LowRank`, which has no coordinates to select; on dense
            designs, where k is traced without ``Sparse(k, k_max=...)``.

    Cost: a refit for each of the ``binom(d, k)`` supports.

    Source: enumeration; :func:`jaxht.branch_and_bound` proves optima where there are too many
        supports.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> result = jaxht.solve(f, jaxht.Sparse(2), jaxht.ExhaustiveSearch())
        >>> result.x.tolist(), result.reason
        ([0.0, 4.0, 0.0, 3.0], 'FINISHED')
    """

    ignores_empty_columns = True
    takes_complex = True
    step_limit = MAX_SUPPORTS // SUPPORTS_PER_STEP

    def init(
        self, objective: Objective, constraint: SelectionConstraint, x0: Array, key: PRNGKey | None
    ) -> Step[ExhaustiveSearchState]:
        """Return x0, before the first support."""
        check_selection(constraint)
        empty = subproblem(objective, constraint).empty_items
        state = ExhaustiveSearchState(empty, jnp.zeros((), jnp.int32))
        return evaluate(objective, x0), state, Info()

    def step(
        self,
        objective: Objective,
        constraint: SelectionConstraint,
        iterate: Iterate,
        state: ExhaustiveSearchState,
    ) -> Step[ExhaustiveSearchState]:
        """Refit on the next supports, and keep the best."""
        problem = subproblem(objective, constraint)
        zero = objective.start()
        empty = state.empty
        k_max = empty.size if constraint.k_max is None else constraint.k_max
        size = constraint.limit
        if not constraint.is_uniform:
            size = jnp.minimum(size, constraint.capacity(~empty | constraint.always_active))
        supports = Combinations.of(constraint.always_active, empty, size, k_max)

        def refit_on(rank):
            selected = supports.unrank(rank)
            found = problem.refit(constraint.support(selected), zero)
            value = objective.value(found.x, found.pred)
            is_valid = ~jnp.isnan(value) & constraint.allows(selected)
            return jnp.where(is_valid, value, jnp.inf), found

        ranks = state.rank + lax.iota(jnp.int32, SUPPORTS_PER_STEP)
        # The last step repeats the last support.
        values, fits = jax.vmap(refit_on)(jnp.minimum(ranks, supports.number - 1))
        best: Refit = jax.tree.map(lambda lanes: lanes[jnp.argmin(values)], fits)
        found = evaluate(objective, best)
        is_better = found.value < iterate.value
        if not constraint.is_uniform:
            is_better &= jnp.min(values) < jnp.inf

        rank = state.rank + SUPPORTS_PER_STEP
        is_done = rank >= supports.number
        info = Info(
            full_gradients=1,
            status=jnp.where(is_done, Status.FINISHED, Status.RUNNING),
            accepted=is_better,
            refit_status=best.status,
        )
        return tree_where(is_better, found, iterate), state._replace(rank=rank), info


class Combinations(NamedTuple):
    """The sets of ``size`` items that hold all ``kept`` ones and no ``empty`` one.

    Attributes:
        kept: bool, shaped like items.
        free: bool, shaped like items: those from which the others are chosen.
        num_chosen: int32, how many are chosen.
        binomials: int32 (number of items + 1, k_max + 1), binomial coefficients.
    """

    kept: Leaf
    free: Leaf
    num_chosen: Leaf
    binomials: Leaf

    @classmethod
    def of(cls, kept: Array, empty: Array, size: Numeric, k_max: int) -> "Combinations":
        """Return the sets of a size, at most k_max; of fewer items where there are too few."""
        kept = jnp.broadcast_to(kept, empty.shape)
        free = ~kept & ~empty
        num_free = jnp.sum(free, dtype=jnp.int32)
        num_chosen = jnp.clip(size - jnp.sum(kept, dtype=jnp.int32), 0, num_free)
        largest = np.iinfo(np.int32).max
        table = [
            [min(math.comb(n, r), largest) for r in range(k_max + 1)] for n in range(kept.size + 1)
        ]
        return cls(kept, free, num_chosen, jnp.asarray(np.array(table, np.int32)))

    @property
    def number(self) -> Array:
        """How many sets there are, int32; the largest int32 where there are more."""
        return self.binomials[jnp.sum(self.free, dtype=jnp.int32), self.num_chosen]

    def unrank(self, rank: Array) -> Array:
        """The set of a rank in lexicographic order, a mask shaped like items."""

        def decide(carry, is_free):
            rank, num_left, num_free = carry
            # The sets in which this item is the next one.
            num_sets = self.binomials[jnp.maximum(num_free - 1, 0), jnp.maximum(num_left - 1, 0)]
            is_next = is_free & (num_left > 0) & (rank < num_sets)
            skips = is_free & (num_left > 0) & ~is_next
            rank = jnp.where(skips, rank - num_sets, rank)
            num_left = num_left - is_next.astype(jnp.int32)
            return (rank, num_left, num_free - is_free.astype(jnp.int32)), is_next

        start = (rank, self.num_chosen, jnp.sum(self.free, dtype=jnp.int32))
        _, chosen = scan(decide, start, self.free.ravel())
        return self.kept | chosen.reshape(self.kept.shape)
