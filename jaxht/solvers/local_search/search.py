"""What the three searches have in common: their protocol, and where they start."""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.constraints import SelectionConstraint
from jaxht.linalg.selection import k_largest_mask, mask_to_indices
from jaxht.subproblems import Refit, Subproblem
from jaxht.subproblems.swaps import SupportMinimum

# A walk uses about so many rows of a Hessian for each selected item. A Gram matrix of more rows is
# not computed in advance.
ROWS_PER_ITEM = 8
# The least number of coordinates to search among, and of their pairs with selected ones.
MIN_ACTIVE_COORDINATES = 256
MIN_ACTIVE_PAIRS = 8192


class RefittedSelection(NamedTuple):
    """A selection and the minimiser on it.

    Attributes:
        selected: bool, the selected items.
        fit: the :class:`Refit` on them.
        block_size: int32, the number of items, or of moves on a model, of the next exchange.
        is_fitted: bool, whether ``fit`` is that; of a start it may be left to the first move.
    """

    selected: Leaf
    fit: Refit
    block_size: Leaf
    is_fitted: Leaf


#: What a walk moves through: the selected items, bool; or those with their refit.
Selection = Any


class Walk(NamedTuple):
    """The outcome of a walk.

    Attributes:
        end: the selection where it ended.
        best: the best selection that it met.
        least: f there, up to a constant that all walks have in common.
        seed: uint32, from which the random numbers of the next walk follow.
        num_moves: int32, how many moves it took.
    """

    end: Selection
    best: Selection
    least: Leaf
    seed: Leaf
    num_moves: Leaf


class Starts(NamedTuple):
    """The places where walks may start, one entry in each array for each walk.

    Attributes:
        kept: bool (num_starts, ...), the items that are selected in any case: of the first walk
            those of x0, of the others those that are always active.
        scores: (num_starts, ...), by how much a separable model of f decreases for each item, in
            all walks but the first times random numbers; infinity for the kept ones.
        seeds: uint32 (num_starts,), of the random numbers of walks.
    """

    kept: Leaf
    scores: Leaf
    seeds: Leaf

    @classmethod
    def draw(
        cls,
        problem: Subproblem,
        x0: Array,
        num_starts: int,
        key: PRNGKey | None,
    ) -> "Starts":
        """Draw the random numbers of the walks; None stands for a fixed key."""
        zero = problem.objective.start()
        gains = problem.separable_scores(zero, problem.objective.predict(zero))
        key = jax.random.key(0) if key is None else key
        # Those of an item do not depend on how many items there are.
        bits = jax.random.bits(key, (1 + gains.size, num_starts), jnp.uint32).T
        factors = jnp.asarray(bits[:, 1:] >> 8, gains.dtype).at[0].set(2**24)
        scores = jnp.nan_to_num(gains[None] * factors.reshape(num_starts, *gains.shape))
        is_first = lax.iota(jnp.int32, num_starts).reshape(-1, *[1] * gains.ndim) == 0
        active = problem.space.active
        kept = jnp.where(is_first, active(x0)[None], active(zero)[None])
        return cls(kept, jnp.where(kept, jnp.inf, scores), bits[:, 0])

    def best_items(self, constraint: SelectionConstraint) -> Array:
        """The kept items and those of the largest scores, up to the limit, bool."""
        return jax.vmap(lambda scores: constraint.select(scores, constraint.limit))(self.scores)

    def first_item(self, constraint: SelectionConstraint) -> Array:
        """The kept items and, if the constraint allows, the one of the largest score, bool."""
        limit = constraint.limit
        joins = jax.vmap(constraint.joinable)(self.kept)
        flat = jnp.where(joins, self.scores, 0).reshape(len(self.scores), -1)
        best = jnp.argmax(flat, axis=1).astype(jnp.int32)[:, None]
        is_best = lax.iota(jnp.int32, flat.shape[1])[None] == best
        num_kept = jnp.sum(self.kept, axis=tuple(range(1, self.kept.ndim)), dtype=jnp.int32)
        is_best = is_best & (num_kept < limit)[:, None]
        return self.kept | (is_best.reshape(self.kept.shape) & joins)


class Search(Protocol):
    """Base of the three searches; a pytree with what it computes once for each run.

    A search whose selections are :class:`RefittedSelection` inherits ``refit`` and ``locate``.
    """

    def start(self, problem: Subproblem, x0: Array, starts: Starts) -> Selection:
        """Return the selections where the walks start, stacked."""
        ...

    def walk_all(
        self, problem: Subproblem, selections: Selection, seeds: Array, num_moves: Numeric
    ) -> Walk:
        """Walk from each selection, ``num_moves`` moves or more; return the walks, stacked."""
        ...

    def refit(self, problem: Subproblem, selection: Selection, x: Array) -> Refit:
        """Return the minimiser on a selection that a walk has found."""
        return selection.fit

    def locate(self, selected: Array, fit: Refit, best: Selection) -> Selection:
        """Return the selection of an iterate, from which walks can start again.

        Args:
            selected: bool, the items of the iterate.
            fit: the refit that gave it.
            best: the best selection of the last walks.
        """
        return best._replace(selected=selected, fit=fit)


def largest_block(problem: Subproblem) -> Array:
    """Half of the items that may be selected, at least one."""
    return jnp.maximum(1, jnp.asarray(problem.space.limit, jnp.int32) // 2)


def value_or_inf(problem: Subproblem, fit: Refit) -> Array:
    """f at a refit; infinity where it is not finite."""
    value = problem.objective.value(fit.x, fit.pred)
    return jnp.where(jnp.isfinite(value), value, jnp.inf)


def num_active(objective: Any, k_max: int, d: int) -> int | None:
    """Return the number of coordinates among which a walk searches; None stands for all of them."""
    size = max(MIN_ACTIVE_COORDINATES, 8 * k_max, MIN_ACTIVE_PAIRS // k_max)
    if d <= 2 * size or (objective.is_linear_model and not objective.design.gathers(size)):
        return None
    return size


def find_active(objective: Any, minimum: SupportMinimum) -> Array | None:
    """Find the coordinates among which a walk searches: S and those of the best swaps with S.

    Returns:
        Indices in increasing order, int32; None stands for all coordinates.
    """
    size = num_active(objective, *minimum.images.shape)
    if size is None:
        return None
    # A gain plus the largest loss is not negative.
    best = jnp.max(minimum.swap_gains(), axis=0) + jnp.max(minimum.removal_losses())
    promise = jnp.where(minimum.selected, jnp.inf, jnp.maximum(best, 0))
    return mask_to_indices(k_largest_mask(promise, size), size)


def scatter(values: Array, active: Array | None, d: int) -> Array:
    """Put the values of the active coordinates in their places among all d, and 0 elsewhere."""
    if active is None:
        return values
    return jnp.zeros(d, values.dtype).at[active].set(values)
