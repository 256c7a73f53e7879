"""The open nodes of a branch and bound, and how nodes are fixed and divided; on the host."""

import dataclasses
import heapq
import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROUNDING = 4096.0  # units in the last place of a bound
CANDIDATES = 8  # items that a node may be divided by
MEMORY = 2**30  # bytes of open nodes, above which the deepest are divided first

Mask = NDArray[np.bool_]
Numbers = NDArray[np.float64]


@dataclasses.dataclass(eq=False)
class OpenNode:
    """A set of supports: those that hold the items included, and none of those excluded.

    Attributes:
        included: bool (m,).
        excluded: bool (m,).
        lower: f is nowhere below it on these supports.
        x: (d,), the minimiser of its relaxation, about; of a child, that of its parent.
        step_size: with which the descent to it goes on.
        items: what it may be divided by, the best first.
        closed: whether its only support was bounded.
    """

    included: Mask
    excluded: Mask
    lower: float
    x: Numbers
    step_size: float
    items: NDArray[np.int64]
    closed: bool = False

    @property
    def is_leaf(self) -> bool:
        """Whether it holds one support."""
        return bool(np.all(self.included | self.excluded))

    def child(self, included: Mask, excluded: Mask, limit: int) -> "OpenNode":
        """A part of it; ``limit`` is k."""
        included, excluded = settle(included, excluded, limit)
        return dataclasses.replace(self, included=included, excluded=excluded)

    def on(self, kept: NDArray[np.int64]) -> "OpenNode":
        """With the items at ``kept`` alone; all others are excluded."""
        none = np.array([], np.int64)
        return OpenNode(
            self.included[kept], self.excluded[kept], self.lower, self.x[kept], self.step_size, none
        )


def settle(included: Mask, excluded: Mask, limit: int) -> tuple[Mask, Mask]:
    """The masks with the last items fixed where there is no choice."""
    if included.sum() >= limit:
        return included, ~included
    return (~excluded, excluded) if (~excluded).sum() <= limit else (included, excluded)


def fix_items(
    included: Mask,
    excluded: Mask,
    lower: float,
    error: float,
    gains: Numbers,
    limit: int,
    target: float,
) -> tuple[Mask, Mask]:
    """The masks with the items fixed without which, or with which, the bound of a node is above the
    target.

    With the same dual variables, a support that holds another item in place of the last one has a
    bound that is higher by the difference of their gains; see
    :class:`jaxht.exact.relaxation.Bound`.

    Source: Atamtürk & Gómez 2020, Proposition 1.
    """
    left, free = limit - int(included.sum()), ~(included | excluded)
    if np.isfinite(lower) and 0 < left < free.sum():
        ranked = np.where(free, gains, -np.inf)
        order = np.argsort(-ranked, kind="stable")
        last, following = ranked[order[left - 1]], ranked[order[left]]
        least = lower - 4 * error - ROUNDING * np.finfo(float).eps * abs(lower)
        inside = np.zeros_like(free)
        inside[order[:left]] = True
        excluded = excluded | (free & ~inside & (least + last - ranked > target))
        included = included | (inside & (least + ranked - following > target))
    return settle(included, excluded, limit)


def round_to_support(node: OpenNode, sizes: Numbers, limit: int) -> Mask:
    """The items of a support below a node: those of the largest ``sizes``, besides those that are
    included."""
    ranks = np.where(node.excluded, -1, np.where(node.included, np.inf, sizes))
    chosen = np.zeros(len(ranks), bool)
    chosen[np.argsort(-ranks, kind="stable")[:limit]] = True
    return chosen & ~node.excluded


def divide(
    node: OpenNode, best: Mask, sizes: Numbers, limit: int, tries: int
) -> list[list[OpenNode]]:
    """Ways to divide a node, of which one is to be chosen when their parts have been bounded.

    * A leaf remains what it is.
    * The node that holds the best support: into that support, and for each of its items the
      supports that hold the items before it but not itself. These are the nodes that a dive to the
      best support leaves open.
    * Another one: into the supports with an item and those without it, for each of ``tries`` items.

    Args:
        node: to be divided.
        best: bool (m,), the items of the best support.
        sizes: (m,), of its items in the relaxation: the largest one comes first.
        limit: k.
        tries: at least 1.
    """
    if node.is_leaf:
        return [[node]]
    steps = np.flatnonzero(best & ~node.included)
    numbers = np.arange(len(best))
    if len(steps) and np.all(best | ~node.included) and not np.any(best & node.excluded):
        parts, included = [], node.included
        for item in steps[np.argsort(-sizes[steps], kind="stable")]:
            parts.append(node.child(included, node.excluded | (numbers == item), limit))
            included = included | (numbers == item)
        return [[*parts, node.child(included, node.excluded, limit)]]
    return [
        [
            node.child(node.included | (numbers == item), node.excluded, limit),
            node.child(node.included, node.excluded | (numbers == item), limit),
        ]
        for item in node.items[:tries]
    ]


def choose_division(ways: list[list[OpenNode]], lower: float, target: float) -> list[OpenNode]:
    """The division whose parts have the highest bounds, by their product (Achterberg, Koch & Martin
    2005)."""

    def score(parts: list[OpenNode]) -> float:
        return math.prod(min(part.lower, target) - lower + 1e-9 * abs(target) for part in parts)

    return max(ways, key=score)


class Tree:
    """The nodes that wait: by their bounds and by their depth."""

    def __init__(self) -> None:
        self.nodes: dict[int, OpenNode] = {}
        self.closed_lower = math.inf  # the least bound of what was closed
        self._by_bound: list[tuple[float, int]] = []
        self._by_depth: list[tuple[int, int]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def lower(self) -> float:
        """The least bound of all nodes, open or closed."""
        while self._by_bound and self._by_bound[0][1] not in self.nodes:
            heapq.heappop(self._by_bound)
        return min(self.closed_lower, self._by_bound[0][0] if self._by_bound else math.inf)

    def add(self, nodes: Iterable[OpenNode], target: float) -> None:
        """Open those that may hold what is looked for, and close the others."""
        for node in nodes:
            if node.lower > target or node.closed:
                self.closed_lower = min(self.closed_lower, node.lower)
                continue
            number = next(self._numbers)
            self.nodes[number] = node
            heapq.heappush(self._by_bound, (node.lower, number))
            heapq.heappush(self._by_depth, (-int(np.sum(node.included | node.excluded)), number))

    def select(self, most: int, target: float) -> list[int]:
        """The numbers of the nodes to divide next: a quarter the deepest, the others of the lowest
        bounds.

        They stay open until :meth:`remove`. Where memory gets short all are the deepest ones.
        """
        each = 16 * len(next(iter(self.nodes.values())).x)
        deep = most if len(self.nodes) * each > MEMORY else most // 4
        chosen = self._take(self._by_depth, deep, target)
        return chosen + self._take(self._by_bound, most - len(chosen), target, but=chosen)

    def _take(
        self, heap: list[Any], most: int, target: float, but: Iterable[int] = ()
    ) -> list[int]:
        entries: list[Any] = []
        chosen: list[int] = []
        while heap and len(chosen) < most:
            entry = heapq.heappop(heap)
            node = self.nodes.get(entry[-1])
            if node is None:
                continue
            if node.lower > target:  # a better value has closed it
                self.closed_lower = min(self.closed_lower, node.lower)
                del self.nodes[entry[-1]]
                continue
            entries.append(entry)
            if entry[-1] not in but:
                chosen.append(entry[-1])
        for entry in entries:
            heapq.heappush(heap, entry)
        return chosen

    def remove(self, numbers: Iterable[int]) -> None:
        """Drop nodes whose parts were added."""
        for number in numbers:
            del self.nodes[number]
