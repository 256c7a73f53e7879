"""The record of a branch and bound that is to be continued."""

import hashlib
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from jaxht.exact.result import Solution
from jaxht.exact.tree import CANDIDATES, OpenNode

Arrays = dict[str, Any]

NODE_FIELDS = ("included", "excluded", "lower", "x", "step_size")


def hash_problem(problem: Any) -> str:
    """Hash a pytree of arrays."""
    leaves, structure = jax.tree.flatten(problem)
    digest = hashlib.sha256(repr(structure).encode())
    for leaf in leaves:
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def nodes_to_arrays(nodes: Iterable[OpenNode]) -> Arrays:
    """Open nodes, a row each; lists of items are filled up by -1."""
    nodes = list(nodes)
    arrays = {name: np.array([getattr(node, name) for node in nodes]) for name in NODE_FIELDS}
    arrays["items"] = np.full((len(nodes), CANDIDATES), -1)
    for row, node in zip(arrays["items"], nodes, strict=True):
        row[: len(node.items)] = node.items
    return arrays


def nodes_from_arrays(arrays: Arrays) -> list[OpenNode]:
    """The inverse of :func:`nodes_to_arrays`."""
    nodes = []
    for row, items in enumerate(arrays["items"]):
        fields = {name: arrays[name][row] for name in NODE_FIELDS}
        nodes.append(OpenNode(**fields, items=items[items >= 0]))
    return nodes


def solutions_to_arrays(solutions: list[Solution]) -> Arrays:
    """Points on supports, a row each."""
    # Numbers of groups may be above that of coordinates.
    width = max((1 + max([len(s.x) - 1, *s.items]) for s in solutions), default=0)
    supports = [np.isin(np.arange(width), s.items) for s in solutions]
    return {
        "solutions": np.array([s.x for s in solutions]),
        "supports": np.array(supports),
        "values": np.array([s.value for s in solutions]),
    }


def solutions_from_arrays(arrays: Arrays) -> list[Solution]:
    """The inverse of :func:`solutions_to_arrays`."""
    rows = zip(arrays["solutions"], arrays["supports"], arrays["values"], strict=True)
    return [Solution(x, np.flatnonzero(support), float(value)) for x, support, value in rows]
