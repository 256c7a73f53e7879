"""The open nodes of a branch and bound, and how nodes are fixed and divided; on the host."""

import dataclasses
import heapq
import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jaxht.exact.relaxation import VALUE_ULPS

CANDIDATES = 8  # items that a node may be divided by

Mask = NDArray[np.bool_]
Numbers = NDArray[np.float64]


@dataclasses.dataclass(eq=False)
class OpenNode:
    """A set of supports: those that hold the items included, and none of those excluded."""

    included: Mask  # bool (m,)
    excluded: Mask  # bool (m,)
    lower: float  # f is nowhere below it on these supports
    x: Numbers  # (d,), the minimiser of its relaxation, about; of a child, that of its parent
    step_size: float  # with which the descent to it goes on
    items: NDArray[np.int64]  # what it may be divided by, the best first
    closed: bool = False  # whether its only support was bounded

    @property
    def is_leaf(self) -> bool:
        """Whether it holds one support."""
        return bool(np.all(self.included | self.excluded))

    def with_fixed(self, included: Mask, excluded: Mask, limit: int) -> "OpenNode":
        """The part of it with these items fixed; ``limit`` is k."""
        included, excluded = settle(included, excluded, limit)
        return dataclasses.replace(self, included=included, excluded=excluded)

    def on(self, kept: NDArray[np.int64]) -> "OpenNode":
        """With the items at ``kept`` alone, in order, and all that are not excluded."""
        return dataclasses.replace(
            self,
            included=self.included[kept],
            excluded=self.excluded[kept],
            x=self.x[kept],
            items=np.searchsorted(kept, self.items),
        )


def settle(included: Mask, excluded: Mask, limit: int) -> tuple[Mask, Mask]:
    """The masks with the last items fixed where there is no choice."""
    if included.sum() >= limit:
        return included, ~included
    if (~excluded).sum() <= limit:
        return ~excluded, excluded
    return included, excluded


def fix_items(
    included: Mask,
    excluded: Mask,
    lower: float,
    error: float,
    gains: Numbers,
    limit: int,
    target: float,
) -> tuple[Mask, Mask]:
    """The masks with the items fixed that decide whether the bound of a node is above the target.

    With the same dual variables, a support that holds another item in place of the last one has a
    bound that is higher by the difference of their gains; see
    :class:`jaxht.exact.relaxation.Bound`.

    Source: Atamtürk & Gómez 2020, Proposition 1.
    """
    left = limit - int(included.sum())
    free = ~(included | excluded)
    if np.isfinite(lower) and 0 < left < free.sum():
        ranked = np.where(free, gains, -np.inf)
        order = np.argsort(-ranked, kind="stable")
        last = ranked[order[left - 1]]
        following = ranked[order[left]]
        least = lower - 4 * error - VALUE_ULPS * np.finfo(float).eps * abs(lower)
        inside = np.zeros_like(free)
        inside[order[:left]] = True
        excluded = excluded | (free & ~inside & (least + last - ranked > target))
        included = included | (inside & (least + ranked - following > target))
    return settle(included, excluded, limit)


def round_to_support(node: OpenNode, sizes: Numbers, limit: int) -> Mask:
    """The items of a support below a node: those included, and those of the largest ``sizes``."""
    ranks = np.where(node.included, np.inf, sizes)
    ranks = np.where(node.excluded, -1, ranks)
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
      best support leaves open. Items of large ``sizes`` come first.
    * Another one: into the supports with an item and those without it, for each of ``tries`` items.
    """
    if node.is_leaf:
        return [[node]]
    steps = np.flatnonzero(best & ~node.included)
    numbers = np.arange(len(best))
    holds_best = np.all(best | ~node.included) and not np.any(best & node.excluded)
    if len(steps) and holds_best:
        parts = []
        included = node.included
        for item in steps[np.argsort(-sizes[steps], kind="stable")]:
            parts.append(node.with_fixed(included, node.excluded | (numbers == item), limit))
            included = included | (numbers == item)
        return [[*parts, node.with_fixed(included, node.excluded, limit)]]
    return [
        [
            node.with_fixed(node.included | (numbers == item), node.excluded, limit),
            node.with_fixed(node.included, node.excluded | (numbers == item), limit),
        ]
        for item in node.items[:tries]
    ]


def choose_division(ways: list[list[OpenNode]], lower: float, target: float) -> list[OpenNode]:
    """The division whose parts have the highest bounds.

    Bounds are compared by their product (Achterberg, Koch & Martin 2005).
    """

    def score(parts):
        return math.prod(min(part.lower, target) - lower + 1e-9 * abs(target) for part in parts)

    return max(ways, key=score)


class Tree:
    """The nodes that wait: by their bounds and by their depth.

    Args:
        memory: bytes of open nodes, above which the deepest are divided first.
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory
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
        """The numbers of the nodes to divide next.

        A quarter are the deepest, the others those of the lowest bounds; where memory gets short
        all are the deepest ones. They stay open until :meth:`remove`.
        """
        bytes_per_node = 16 * len(next(iter(self.nodes.values())).x)
        is_short = len(self.nodes) * bytes_per_node > self.memory
        deepest = self._take(self._by_depth, most if is_short else most // 4, target)
        lowest = self._take(self._by_bound, most - len(deepest), target, excluded=deepest)
        return deepest + lowest

    def _take(
        self, heap: list[Any], most: int, target: float, excluded: Iterable[int] = ()
    ) -> list[int]:
        entries: list[Any] = []
        chosen: list[int] = []
        try:
            while heap and len(chosen) < most:
                entry = heap[0]
                node = self.nodes.get(entry[-1])
                if node is not None and node.lower > target:  # a better value has closed it
                    self.closed_lower = min(self.closed_lower, node.lower)
                    del self.nodes[entry[-1]]
                    node = None
                if node is not None:
                    entries.append(entry)
                    if entry[-1] not in excluded:
                        chosen.append(entry[-1])
                heapq.heappop(heap)
        finally:  # also at an interrupt
            for entry in entries:
                heapq.heappush(heap, entry)
        return chosen

    def remove(self, numbers: Iterable[int]) -> None:
        """Drop nodes whose parts were added."""
        for number in numbers:
            del self.nodes[number]
