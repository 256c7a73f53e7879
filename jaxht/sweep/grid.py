"""The cells of a sweep, the blocks in which they run, and the hashes that pair their problems."""

import itertools
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = int | float | str


@dataclass(frozen=True)
class Batch:
    """A block of cells x trials that runs as one program.

    Attributes:
        static: the static coordinates, the same for all cells of the block: part of the compile key.
        bounds: static upper bounds on traced coordinates: part of the compile key too.
        cells: positions of the cells in the grid, row-major.
        hashes: uint32, one for each cell; equal where cells see the same problems.
        numbers: the traced coordinates, an array of one number a cell for each.
        trials: the trials to run of every cell.
    """

    static: tuple[tuple[str, Value], ...]
    bounds: tuple[tuple[str, int], ...]
    cells: NDArray[np.int32]
    hashes: NDArray[np.uint32]
    numbers: dict[str, NDArray[Any]]
    trials: NDArray[np.int32]

    @property
    def num_lanes(self) -> int:
        """Cells times trials."""
        return len(self.cells) * len(self.trials)


class Grid:
    """All combinations of the values of some axes.

    Args:
        axes: name -> values, in the order in which results are laid out.
        static: axes that choose shapes or branches; those that hold strings always do. All others are traced.
        round_up: name -> step, for axes of integers: the coordinate is traced, and next to it stands a static bound,
            the coordinate rounded up to a multiple of the step.
        problem: axes that tell problems apart. Cells that agree on them see the same problems. None: all that hold
            numbers; strings are choices, such as the solver.
    """

    def __init__(
        self,
        axes: Mapping[str, Sequence[Value]],
        static: Sequence[str] = (),
        round_up: Mapping[str, int] | None = None,
        problem: Sequence[str] | None = None,
    ) -> None:
        self.axes = {name: [_plain(value) for value in values] for name, values in axes.items()}
        self.round_up = dict(round_up or {})
        strings = {name for name, values in self.axes.items() if any(isinstance(value, str) for value in values)}
        self.static = [name for name in self.axes if name in strings.union(static)]
        self.traced = [name for name in self.axes if name not in self.static]
        self.problem = [name for name in self.axes if name not in strings] if problem is None else list(problem)
        if "trial" in self.axes:
            raise ValueError("no axis may be named 'trial': results have one of that name")
        for name, values in self.axes.items():
            if not values or len(set(values)) < len(values):
                raise ValueError(f"axis {name!r} must hold one or more distinct values; got {values}")
        for option, names in {"static": static, "round_up": self.round_up, "problem": self.problem}.items():
            if unknown := set(names) - set(self.axes):
                raise ValueError(f"{option} names {sorted(unknown)}, which are not among the axes {list(self.axes)}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values on each axis."""
        return tuple(map(len, self.axes.values()))

    def batches(self, num_trials: int, max_lanes: int) -> list[Batch]:
        """Cut cells x trials into blocks of at most ``max_lanes`` that share what is static.

        Blocks that share it have one shape and so one compile: where a number of cells or trials does not divide, the
        last block overlaps the one before. The trials of a cell are split only where they are more than max_lanes.
        """
        cells = [dict(zip(self.axes, values, strict=True)) for values in itertools.product(*self.axes.values())]
        groups: dict[Any, list[int]] = {}
        for position, cell in enumerate(cells):
            groups.setdefault((self._static(cell), self._bounds(cell)), []).append(position)
        trial_blocks = list(_blocks(num_trials, max_lanes))
        cells_at_once = max(1, max_lanes // len(trial_blocks[0]))
        batches = []
        for (static, bounds), group in groups.items():
            for block in _blocks(len(group), cells_at_once):
                positions = np.asarray(group)[block]
                chosen = [cells[position] for position in positions]
                hashes = np.array([self._hash(cell) for cell in chosen], np.uint32)
                numbers = {name: _array([cell[name] for cell in chosen]) for name in self.traced}
                batches += [Batch(static, bounds, positions, hashes, numbers, trials) for trials in trial_blocks]
        return batches

    def _static(self, cell: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
        return tuple((name, cell[name]) for name in self.static)

    def _bounds(self, cell: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
        return tuple((name, -(-cell[name] // step) * step) for name, step in self.round_up.items())

    def _hash(self, cell: Mapping[str, Value]) -> int:
        return stable_hash({name: cell[name] for name in self.problem})


def stable_hash(name: Any) -> int:
    """A 32-bit hash of numbers, strings and dicts of them that is the same in every process and on every machine."""
    return zlib.crc32(json.dumps(name, sort_keys=True).encode())


def _blocks(total: int, limit: int) -> Iterator[NDArray[np.int32]]:
    """Cover range(total) by the least number of ranges of one length <= limit; the last may overlap."""
    number = -(-total // limit)
    length = -(-total // number)
    for i in range(number):
        yield min(i * length, total - length) + np.arange(length, dtype=np.int32)


def _plain(value: Any) -> Value:
    """The Python value, with 4.0 as 4: equal coordinates hash alike, wherever they come from."""
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _array(values: list[Value]) -> NDArray[Any]:
    array = np.asarray(values)
    return array.astype(np.int32) if array.dtype.kind == "i" else array
