"""The k entries of largest sum that are closed under parents, in a forest that is known when a
program is traced.

A price for each entry turns the problem into one that is solved from the leaves to the roots: a
subtree is worth its place where its entries bring more than their prices. The search for the price
at which k entries are worth it takes few such passes, and gives an upper bound of the sum. Where no
price gives k entries exactly, what may still change is decided by dynamic programming, over the
entries alone that the bound leaves open.
"""

import functools
import hashlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._loops import cond, while_loop
from jaxht._programs import bounded_jit
from jaxht._typing import Array, Numeric
from jaxht.linalg.inner_products import real_dtype
from jaxht.linalg.lanes import along_one_axis
from jaxht.linalg.selection import WORD_BITS, k_largest_mask

__all__ = ["Forest", "largest_subtree"]

#: Open entries for which there is room in any case; for more there is a branch, with memory for
#: all.
FEW_ROWS = 1024


class Forest:
    """Trees of entries, on the host. Two with equal parents are equal, as settings of a compiled
    program have to be.

    Args:
        parents: integers, of each entry the number of its parent, counted in the flattened array;
            -1 for roots.

    Attributes:
        given: the array of parents as it was given.
        parents: int32 (d,), the same, flat.
    """

    def __init__(self, parents: Any) -> None:
        self.given = np.array(parents)
        self.parents = self.given.ravel().astype(np.int32)
        settings = f"{self.given.dtype} {self.given.shape}".encode()
        content = settings + self.parents.tobytes()
        self._digest = hashlib.sha256(content).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Forest) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"Forest(d={len(self.parents)})"

    @property
    def size(self) -> int:
        """The number of entries, d."""
        return len(self.parents)

    @functools.cached_property
    def levels(self) -> list[np.ndarray]:
        """The entries of each depth, from the roots on; children are in the order of their
        parents."""
        parents = self.parents
        children = np.argsort(parents, kind="stable")
        counts = self.num_children
        num_roots = len(parents) - counts.sum()
        first = num_roots + np.cumsum(counts) - counts
        levels = []
        level = children[:num_roots]
        while level.size:
            levels.append(level)
            sizes = counts[level]
            before = np.cumsum(sizes) - sizes
            number = np.arange(sizes.sum())
            places = np.repeat(first[level] - before, sizes) + number
            level = children[places]
        return levels

    @functools.cached_property
    def num_children(self) -> np.ndarray:
        """The number of children of each entry, (d,)."""
        inner = self.parents[self.parents >= 0]
        return np.bincount(inner, minlength=self.size)

    @functools.cached_property
    def order(self) -> np.ndarray:
        """The numbers of the entries, level by level, (d,)."""
        return np.concatenate(self.levels).astype(np.int32)

    @functools.cached_property
    def place(self) -> np.ndarray:
        """The place of each entry in ``order``, (d,)."""
        return _inverse_permutation(self.order)

    @functools.cached_property
    def depth(self) -> np.ndarray:
        """The number of entries above each one, in ``order``, (d,)."""
        sizes = [len(level) for level in self.levels]
        depths = np.arange(len(sizes), dtype=np.int32)
        return np.repeat(depths, sizes)

    @functools.cached_property
    def above(self) -> list[np.ndarray]:
        """The place of the parent of each entry within the level above, for all levels but the
        first."""
        number = np.empty(self.size, np.int32)
        for level in self.levels:
            number[level] = np.arange(len(level), dtype=np.int32)
        parents = [self.parents[level] for level in self.levels[1:]]
        return [number[above] for above in parents]

    @functools.cached_property
    def arity(self) -> list[int | None]:
        """The number of children that every entry of a level has, for all levels but the last;
        None where their numbers differ."""
        inner = self.levels[:-1]
        counts = [self.num_children[level] for level in inner]
        return [_common_value(count) for count in counts]

    @functools.cached_property
    def subtree_sizes(self) -> np.ndarray:
        """The number of entries below each one, and itself, (d,)."""
        sizes = np.ones(self.size, np.int32)
        for level in reversed(self.levels[1:]):
            above = self.parents[level]
            np.add.at(sizes, above, sizes[level])
        return sizes

    @functools.cached_property
    def preorder(self) -> np.ndarray:
        """The numbers of the entries, each followed by those below it, (d,)."""
        sizes = self.subtree_sizes
        start = np.empty(self.size, np.int64)
        for number, level in enumerate(self.levels):
            own = sizes[level]
            before = np.cumsum(own) - own
            if number:
                parents = self.parents[level]
                differs = parents[1:] != parents[:-1]
                is_first = np.append(True, differs)
                family = np.cumsum(is_first) - 1
                before_family = before[is_first][family]
                before += 1 + start[parents] - before_family
            start[level] = before
        return _inverse_permutation(start)

    # ---- entries in ``order``, level by level ----

    def split(self, v: Array) -> list[Array]:
        """The parts of v, (d,) by level."""
        sizes = [len(level) for level in self.levels]
        ends = np.cumsum(sizes)
        return jnp.split(v, ends[:-1])

    def to_parents(self, number: int, v: Array) -> Array:
        """Sum v, which is of the level below, over the children of each entry of a
        level."""
        arity = self.arity[number]
        if arity is not None:
            families = v.reshape(-1, arity)
            return jnp.sum(families, axis=1, dtype=v.dtype)
        size = len(self.levels[number])
        above = self.above[number]
        return jax.ops.segment_sum(v, above, size, indices_are_sorted=True)

    def to_children(self, number: int, v: Array) -> Array:
        """Repeat v, which is of a level, for each entry of the level below at its parent."""
        arity = self.arity[number]
        if arity is not None:
            return jnp.repeat(v, arity)
        return v[self.above[number]]

    def accumulate(self, combine: Any, v: Array) -> Array:
        """Combine v, (d,) by level, along the path from its root to each entry."""
        parts = self.split(v)
        found = parts[:1]
        for number, part in enumerate(parts[1:]):
            from_above = self.to_children(number, found[-1])
            found.append(combine(from_above, part))
        return jnp.concatenate(found)

    def close(self, marked: Array) -> Array:
        """The marked entries and all above them, bool (d,), in the order of the variable."""
        by_level = marked[self.order]
        parts = self.split(by_level.astype(jnp.int32))
        for number in reversed(range(len(parts) - 1)):
            below = self.to_parents(number, parts[number + 1])
            any_below = jnp.minimum(below, 1)
            parts[number] = jnp.maximum(parts[number], any_below)
        closed = jnp.concatenate(parts)
        return closed[self.place] > 0

    def with_parents(self, marked: Array) -> Array:
        """The marked entries of which all above are marked, bool (d,), in the order of the
        variable."""
        by_level = marked[self.order]
        is_kept = self.accumulate(jnp.logical_and, by_level)
        return is_kept[self.place]


def _inverse_permutation(order: np.ndarray) -> np.ndarray:
    """The place in ``order`` of each number, int32."""
    place = np.empty(order.size, np.int32)
    place[order] = np.arange(order.size, dtype=np.int32)
    return place


def _common_value(counts: np.ndarray) -> int | None:
    """The value of all counts; None where they differ."""
    first = counts[0]
    return int(first) if np.all(counts == first) else None


def largest_subtree(forest: Forest, sizes: Array, k: Numeric, k_max: int | None = None) -> Array:
    r"""Mark the k entries of the largest sum of squares that contain the parents of all of them.

    Args:
        forest: of d entries, static.
        sizes: real (d,), the magnitudes of entries; NaN and infinite ones count more than all
            others together.
        k: an integer, traced; clipped to [0, k_max].
        k_max: static bound on k; None: d.

    Returns:
        bool (d,) with k True entries; of several best selections one.

    Cost: ten to twenty passes over the entries, level by level; then k_max operations for each
    entry that the bounds of these leave open, at most d, and bits for d k_max decisions.

    Source: the prices are those of Baraniuk & Jones 1994 and of Hegde, Indyk & Schmidt 2014; the
    dynamic program that of Cartis & Thompson 2013, in the order of Johnson & Niemi 1983, over what
    bounds leave open as in Dembo & Hammer 1980.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.linalg.trees import Forest, largest_subtree
        >>> forest = Forest([-1, 0, 0, 1, 1])
        >>> largest_subtree(forest, jnp.array([1.0, 0.0, 2.0, 0.0, 3.0]), 3).tolist()
        [True, True, False, False, True]
    """
    k_max = forest.size if k_max is None else min(k_max, forest.size)
    k = jnp.asarray(k, jnp.int32)
    k = jnp.clip(k, 0, k_max)
    return _select(forest, k_max, lax.stop_gradient(sizes), k)


@functools.partial(bounded_jit, static_argnums=(0, 1))
def _select(forest: Forest, k_max: int, sizes: Array, k: Array) -> Array:
    # Entries of which at least k are above have no part in it, whatever their sizes.
    is_reached = forest.depth < k
    w = _weigh(jnp.where(is_reached, sizes[forest.order], 0))
    inner, price = _find_price(forest, w, k)
    profits = w - price
    gains = _gains(forest, profits)
    # By how much the sum of profits falls at least where an entry is selected, or is not.
    shortfall = jnp.maximum(-gains, 0)
    joining = forest.accumulate(jnp.add, shortfall)
    excess = jnp.maximum(gains, 0)
    leaving = forest.accumulate(jnp.minimum, excess)

    selected = _complete(forest, inner, profits, joining, k)
    added = jnp.where(selected & ~inner, profits, 0)
    loss = -jnp.sum(added)
    is_open = (joining < loss) & (leaving < loss)
    smallest = jnp.finfo(loss.dtype).tiny
    is_sure = leaving >= jnp.maximum(loss, smallest)
    rest = k - jnp.sum(is_sure, dtype=jnp.int32)
    of_open = _best_of_open(forest, k_max, profits, is_open, rest)
    better = is_sure | of_open
    new_profits = jnp.where(better, profits, 0)
    old_profits = jnp.where(selected, profits, 0)
    gained = jnp.sum(new_profits - old_profits)
    has_k = jnp.sum(better, dtype=jnp.int32) == k
    is_better = has_k & (gained > 0)
    best = jnp.where(is_better, better, selected)
    return best[forest.place]


def _weigh(sizes: Array) -> Array:
    """The squares in units of the largest finite one, of which no sum overflows."""
    sizes = jnp.abs(sizes)
    is_finite = sizes < jnp.inf
    # An eighth of the largest number: the inverse of that itself is flushed to 0.
    limits = jnp.finfo(real_dtype(sizes))
    most = float(limits.max) / 8
    finite = jnp.where(is_finite, sizes, 0)
    largest = jnp.max(finite, initial=0)
    unit = jnp.minimum(largest, most)
    divisor = jnp.where(unit > 0, unit, 1)
    squares = (sizes / divisor) ** 2
    above_all = 128.0 * sizes.size
    return jnp.where(is_finite, squares, above_all)


def _gains(forest: Forest, profits: Array) -> Array:
    """The largest sum of profits of entries at and below each one that contain it."""
    parts = forest.split(profits)
    for number in reversed(range(len(parts) - 1)):
        gained = jnp.maximum(parts[number + 1], 0)
        below = forest.to_parents(number, gained)
        parts[number] = parts[number] + below
    return jnp.concatenate(parts)


class _PriceSearch(NamedTuple):
    """The search for the price.

    Attributes:
        inner: the selection of a higher price, of at most k entries.
        outer: that of a lower one, of more than k, or of all entries.
        price: the last one tried.
        goes_on: whether there may be a better one.
    """

    inner: Array
    outer: Array
    price: Array
    goes_on: Array


def _find_price(forest: Forest, w: Array, k: Array) -> tuple[Array, Array]:
    """The least selection at a price where at most k entries are worth it and at a lower one at
    least k are; and the price."""

    def count(mask):
        return jnp.sum(mask, dtype=jnp.int32)

    def step(search):
        inner, outer, _, _ = search
        # Where both are worth the same: the lower bound of the price of one is reached by chords.
        between = outer & ~inner
        weight = jnp.sum(jnp.where(between, w, 0))
        number = jnp.maximum(count(between), 1)
        price = weight / number.astype(w.dtype)
        gains = _gains(forest, w - price)
        least = forest.accumulate(jnp.logical_and, gains > 0)
        most = forest.accumulate(jnp.logical_and, gains >= 0)
        are_many = count(least) > k
        are_few = count(most) < k
        is_found = ~are_many & ~are_few
        shrinks = are_many & (count(least) < count(outer))
        grows = are_few & (count(most) > count(inner))
        larger = jnp.where(grows, most, inner)
        inner = jnp.where(is_found, least, larger)
        outer = jnp.where(shrinks, least, outer)
        return _PriceSearch(inner, outer, price, shrinks | grows)

    nothing = jnp.zeros(w.shape, bool)
    start = _PriceSearch(
        inner=nothing,
        outer=~nothing,
        price=jnp.zeros((), w.dtype),
        goes_on=jnp.array(True),
    )
    end = while_loop(lambda search: search.goes_on, step, start)
    return end.inner, end.price


def _complete(forest: Forest, inner: Array, profits: Array, joining: Array, k: Array) -> Array:
    """A selection of k entries, by level, that contains the inner one: the best of three."""
    # Further entries by what each costs, with all that pay for it below; the same without those
    # that cost nothing, and what is below; and by the cost of the path to it alone. Children cost
    # at least what their parents do, and come after them.
    is_free = forest.accumulate(jnp.logical_or, ~inner & (joining <= 0))
    own_costs = jnp.maximum(-profits, 0)
    paths = forest.accumulate(jnp.add, jnp.where(inner, 0, own_costs))
    not_free = jnp.where(is_free, jnp.inf, joining)
    costs = jnp.stack([joining, not_free, paths])
    largest = float(jnp.finfo(profits.dtype).max)
    merits = jnp.minimum(1 / costs, largest)
    ranks = jnp.where(inner, jnp.inf, merits)
    selected = k_largest_mask(ranks, k)
    added = jnp.where(selected & ~inner, profits, 0)
    values = jnp.sum(added, axis=1)
    is_possible = ~jnp.any(selected & (ranks == 0), axis=1)
    values = jnp.where(is_possible, values, -jnp.inf)
    best = jnp.argmax(values)
    return selected[best.astype(jnp.int32)]


def _best_of_open(forest: Forest, k_max: int, profits: Array, is_open: Array, k: Array) -> Array:
    """Mark, by level, the k open entries of the largest profits that contain the open parents of
    all of them; undefined where there are not k."""
    num_on_path = forest.accumulate(jnp.add, is_open.astype(jnp.int32))
    depth = num_on_path - 1
    fill = along_one_axis(functools.partial(_fill, forest, k_max))
    to_preorder = forest.place[forest.preorder]
    by_level = (profits, is_open, depth)
    in_preorder = [v[to_preorder] for v in by_level]
    (chosen,) = fill(*in_preorder, k)
    return chosen[_inverse_permutation(to_preorder)]


def _fill(
    forest: Forest, k_max: int, profits: Array, is_open: Array, depth: Array, k: Array
) -> tuple[Array]:
    """:func:`_best_of_open` in the order of preorder, for all lanes together."""
    lanes, d = is_open.shape
    profits = jnp.repeat(profits, lanes // profits.shape[0], axis=0)
    in_few_rows = functools.partial(_fill_rows, forest, k_max, FEW_ROWS)
    in_rows = functools.partial(_fill_rows, forest, k_max, d)
    args = (profits, is_open, depth, k)
    if d <= FEW_ROWS:
        return in_rows(*args)
    num_open = jnp.sum(is_open, axis=1, dtype=jnp.int32)
    is_enough = jnp.max(num_open) <= FEW_ROWS
    return cond(is_enough, in_few_rows, in_rows, *args)


class _Rows(NamedTuple):
    """The rows filled so far, from the last open entry backwards.

    Attributes:
        count: int32, how many entries of a lane have been visited at most.
        place: int32 (lanes,), the open entry that is next; -1 where none is left.
        row: (lanes, width), the best sums from the last one on.
        rows: (lanes, levels + 1, width), the last row of each depth.
        table: uint32 (num_rows, lanes, words), by visit and number of entries whether it is taken.
        visits: int32 (num_rows, lanes), which entries have been visited; -1 for none.
    """

    count: Array
    place: Array
    row: Array
    rows: Array
    table: Array
    visits: Array


class _Decisions(NamedTuple):
    """The entries taken so far, from the first open one onwards.

    Attributes:
        count: int32, how many visits are left.
        left: int32 (lanes,), how many entries are still to be taken.
        until: int32 (lanes,), the place before which all is left out.
        chosen: bool (lanes, d).
    """

    count: Array
    left: Array
    until: Array
    chosen: Array


def _fill_rows(
    forest: Forest,
    k_max: int,
    num_rows: int,
    profits: Array,
    is_open: Array,
    depth: Array,
    k: Array,
) -> tuple[Array]:
    """:func:`_fill`, where at most ``num_rows`` entries of a lane are open: a row for each of them
    holds the best sums of 0, 1, ... entries from it on.

    Where the entry is taken, the next one follows; where it is not, the next one that is not below
    it, whose row is the last of its depth.

    Args:
        forest, k_max, num_rows: static.
        profits, is_open: (lanes, d).
        depth: (lanes, d), the number of open entries above.
        k: (lanes,).
    """
    lanes, d = is_open.shape
    num_words = k_max // WORD_BITS + 1
    width = WORD_BITS * num_words
    num_levels = len(forest.levels)
    lane = lax.iota(jnp.int32, lanes)
    index = lax.iota(jnp.int32, d)[None]
    sizes = forest.subtree_sizes[forest.preorder]

    # The next open entry from each place on, that below left out, and the one before.
    end = jnp.full((lanes, 1), d, jnp.int32)
    onwards = lax.cummin(jnp.where(is_open, index, d), axis=1, reverse=True)
    onwards = jnp.concatenate([onwards, end], axis=1)
    behind = np.arange(d, dtype=np.int32) + sizes
    following = onwards[:, behind]
    no_depth = jnp.full((lanes, 1), num_levels, jnp.int32)
    depths = jnp.concatenate([depth, no_depth], axis=1)
    following_depth = jnp.take_along_axis(depths, following, axis=1)
    backwards = lax.cummax(jnp.where(is_open, index, -1), axis=1)
    none = jnp.full((lanes, 1), -1, jnp.int32)
    backwards = jnp.concatenate([none, backwards], axis=1)

    nothing = jnp.full((lanes, width), -jnp.inf, profits.dtype)
    nothing = nothing.at[:, 0].set(0)
    shape = (lanes, num_levels + 1, width)
    rows = jnp.broadcast_to(nothing[:, None], shape)
    bits = lax.iota(jnp.uint32, WORD_BITS)
    table = jnp.zeros((num_rows, lanes, num_words), jnp.uint32)
    visits = jnp.full((num_rows, lanes), -1, jnp.int32)

    def visit(at):
        is_visited = at.place >= 0
        here = jnp.maximum(at.place, 0)
        next_depth = following_depth[lane, here]
        skipped = at.rows[lane, next_depth]
        nothing_yet = jnp.full((lanes, 1), -jnp.inf, at.row.dtype)
        rest = jnp.concatenate([nothing_yet, at.row[:, :-1]], axis=1)
        profit = profits[lane, here]
        taken = profit[:, None] + rest
        is_taken = (taken > skipped).reshape(lanes, num_words, WORD_BITS)
        is_taken = is_taken.astype(jnp.uint32)
        words = jnp.sum(is_taken << bits, axis=2, dtype=jnp.uint32)
        row = jnp.maximum(taken, skipped)
        own_depth = depth[lane, here]
        level = jnp.where(is_visited, own_depth, num_levels + 1)
        return _Rows(
            count=at.count + 1,
            place=jnp.where(is_visited, backwards[lane, here], -1),
            row=row,
            rows=at.rows.at[lane, level].set(row, mode="drop"),
            table=at.table.at[at.count].set(words),
            visits=at.visits.at[at.count].set(at.place),
        )

    count = jnp.zeros((), jnp.int32)
    last = backwards[:, d]
    begin = _Rows(
        count=count,
        place=last,
        row=nothing,
        rows=rows,
        table=table,
        visits=visits,
    )
    filled = while_loop(lambda at: jnp.any(at.place >= 0), visit, begin)

    def decide(at):
        count = at.count - 1
        place = filled.visits[count]
        is_visited = (place >= 0) & (place >= at.until)
        word = filled.table[count, lane, at.left // WORD_BITS]
        shift = at.left % WORD_BITS
        bit = word >> shift.astype(jnp.uint32) & 1
        is_taken = is_visited & (bit > 0)
        size = jnp.asarray(sizes)[jnp.maximum(place, 0)]
        after = place + size
        left = at.left - is_taken.astype(jnp.int32)
        until = jnp.where(is_visited & ~is_taken, after, at.until)
        taken = jnp.where(is_taken, place, d)
        chosen = at.chosen.at[lane, taken].set(True, mode="drop")
        return _Decisions(count, left, until, chosen)

    first = _Decisions(
        count=filled.count,
        left=jnp.clip(k, 0, k_max),
        until=jnp.zeros(lanes, jnp.int32),
        chosen=jnp.zeros((lanes, d), bool),
    )
    decided = while_loop(lambda at: at.count > 0, decide, first)
    return (decided.chosen,)
