"""The cells of a sweep, and the hashes that pair their problems."""

import itertools
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Value = int | float | str


@dataclass(frozen=True)
class Place:
    """A cell of the grid, as the host knows it.

    Attributes:
        index: position in the grid, row-major.
        coordinates: by axis.
        static: the static coordinates, and
        bounds: static upper bounds on traced ones: cells that agree on both run as one program.
        problem: the coordinates that tell problems apart.
        shared: those that tell apart what cells share.
    """

    index: int
    coordinates: Mapping[str, Value]
    static: tuple[tuple[str, Value], ...]
    bounds: tuple[tuple[str, int], ...]
    problem: tuple[tuple[str, Value], ...]
    shared: tuple[tuple[str, Value], ...]

    @property
    def program(self) -> tuple[Any, ...]:
        """What the cells that run as one program agree on."""
        return self.static, self.bounds


class Grid:
    """All combinations of the values of some axes.

    Args:
        axes: name -> values, in the order in which results are laid out.
        static: axes that choose shapes or branches; those that hold strings always do. All others are traced.
        round_up: name -> step, for axes of integers: the coordinate is traced, and next to it stands a static bound,
            the coordinate rounded up to a multiple of the step.
        problem: axes that tell problems apart. Cells that agree on them see the same problems. None: all that hold
            numbers; strings are choices, such as the solver.
        shared: axes, of those in ``problem``, that tell apart what the trials of a cell share. None: all of them.
        where: coordinates -> whether the cell is wanted. None: all are.
    """

    def __init__(
        self,
        axes: Mapping[str, Sequence[Value]],
        static: Sequence[str] = (),
        round_up: Mapping[str, int] | None = None,
        problem: Sequence[str] | None = None,
        shared: Sequence[str] | None = None,
        where: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> None:
        self.axes = {name: [_plain(value) for value in values] for name, values in axes.items()}
        self.round_up = dict(round_up or {})
        strings = {name for name, values in self.axes.items() if any(isinstance(value, str) for value in values)}
        self.static = [name for name in self.axes if name in strings.union(static)]
        self.problem = [name for name in self.axes if name not in strings] if problem is None else list(problem)
        self.shared = self.problem if shared is None else list(shared)
        if "trial" in self.axes:
            raise ValueError("no axis may be named 'trial': results have one of that name")
        for name, values in self.axes.items():
            if not values or len(set(values)) < len(values):
                raise ValueError(f"axis {name!r} must hold one or more distinct values; got {values}")
        named = {"static": static, "round_up": self.round_up, "problem": self.problem, "shared": self.shared}
        for option, names in named.items():
            if unknown := set(names) - set(self.axes):
                raise ValueError(f"{option} names {sorted(unknown)}, which are not among the axes {list(self.axes)}")
        if apart := set(self.shared) - set(self.problem):
            raise ValueError(f"shared names {sorted(apart)}, which must be in problem too; that is {self.problem}")
        every = itertools.product(*self.axes.values())
        cells = [dict(zip(self.axes, values, strict=True)) for values in every]
        self.places = [self._place(index, cell) for index, cell in enumerate(cells) if where is None or where(cell)]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values on each axis."""
        return tuple(map(len, self.axes.values()))

    def _place(self, index: int, cell: Mapping[str, Any]) -> Place:
        return Place(
            index,
            cell,
            static=_some(cell, self.static),
            bounds=tuple((name, -(-cell[name] // step) * step) for name, step in self.round_up.items()),
            problem=_some(cell, self.problem),
            shared=_some(cell, self.shared),
        )


def _some(cell: Mapping[str, Value], names: Sequence[str]) -> tuple[tuple[str, Value], ...]:
    return tuple((name, cell[name]) for name in names)


def stable_hash(name: Any) -> int:
    """A 32-bit hash of numbers, strings and dicts of them that is the same in every process and on every machine."""
    return zlib.crc32(json.dumps(name, sort_keys=True).encode())


def _plain(value: Any) -> Value:
    """The Python value, with 4.0 as 4: equal coordinates hash alike, wherever they come from."""
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value
