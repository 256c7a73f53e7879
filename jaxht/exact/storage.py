"""The file of a branch and bound that is to be continued."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxht.exact.result import Solution
from jaxht.exact.tree import CANDIDATES, OpenNode

Arrays = dict[str, Any]

FIELDS = ("included", "excluded", "lower", "x", "step_size")  # of a node


def fingerprint(problem: Any, settings: Any) -> bytes:
    """A hash of a pytree of arrays and of the settings on which a search depends."""
    leaves, structure = jax.tree.flatten(problem)
    digest = hashlib.sha256(repr((structure, settings)).encode())
    for leaf in leaves:
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.digest()


def write(path: Path, of: bytes, arrays: Arrays) -> None:
    """Write arrays to a file, with the fingerprint of their problem; whole or not at all."""
    temporary = path.with_name(path.name + ".part")
    with open(temporary, "wb") as file:
        np.savez_compressed(file, fingerprint=np.frombuffer(of, np.uint8), **arrays)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read(path: Path, of: bytes) -> Arrays:
    """The arrays of a file.

    Raises:
        ValueError: if its fingerprint is another one.
    """
    with np.load(path) as file:
        arrays = dict(file)
    if arrays["fingerprint"].tobytes() != of:
        raise ValueError(
            f"checkpoint {str(path)!r} is of another problem: other data, constraint or settings"
        )
    return arrays


def nodes_to_arrays(nodes: Iterable[OpenNode]) -> Arrays:
    """Open nodes, a row each."""
    nodes = list(nodes)
    items = [
        np.pad(node.items, (0, CANDIDATES - len(node.items)), constant_values=-1) for node in nodes
    ]
    return {name: np.array([getattr(node, name) for node in nodes]) for name in FIELDS} | {
        "items": np.array(items)
    }


def nodes_from_arrays(arrays: Arrays) -> list[OpenNode]:
    """The inverse of :func:`nodes_to_arrays`."""
    rows = zip(*(arrays[name] for name in FIELDS), arrays["items"], strict=True)
    return [
        OpenNode(a, b, lower, x, step_size, items[items >= 0])
        for a, b, lower, x, step_size, items in rows
    ]


def solutions_to_arrays(solutions: list[Solution]) -> Arrays:
    """Points on supports, a row each."""
    supports = [np.isin(np.arange(len(s.x)), s.items) for s in solutions]
    return {
        "solutions": np.array([s.x for s in solutions]),
        "supports": np.array(supports),
        "values": np.array([s.value for s in solutions]),
    }


def solutions_from_arrays(arrays: Arrays) -> list[Solution]:
    """The inverse of :func:`solutions_to_arrays`."""
    rows = zip(arrays["solutions"], arrays["supports"], arrays["values"], strict=True)
    return [Solution(x, np.flatnonzero(support), float(value)) for x, support, value in rows]
