"""The cells of a sweep, and the hashes that pair their problems."""

import itertools
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["stable_hash"]

Value = int | float | str
Indices = NDArray[np.int32]  # of trials, or of cells
Results = Mapping[str, NDArray[Any]]  # of some trials, by name


@dataclass(frozen=True)
class GridCell:
    """A cell of the grid on the host; :class:`jaxht.sweep.Cell` is what a trial sees of it."""

    index: int  # position in the grid, row-major
    coordinates: Mapping[str, Value]  # value by axis
    static: tuple[tuple[str, Value], ...]  # the coordinates on static axes
    # Static upper bounds of the coordinates that are rounded up.
    bounds: tuple[tuple[str, int], ...]
    problem: tuple[tuple[str, Value], ...]  # the coordinates that identify the problems
    shared: tuple[tuple[str, Value], ...]  # the coordinates that identify what trials share

    @property
    def program(self) -> tuple[Any, ...]:
        """Key of the compiled program: cells that agree on it run together."""
        return self.static, self.bounds

    @property
    def program_name(self) -> str:
        """The same as JSON, whatever the order of the axes."""
        bounds = {f"{name} up to": most for name, most in self.bounds}
        return json.dumps({**dict(self.static), **bounds}, sort_keys=True)


@dataclass(frozen=True, eq=False)
class CellTrials:
    """Trials of a cell that are to be run."""

    cell: GridCell  # the cell
    trials: Indices  # their indices, rising


class Grid:
    """All combinations of the values of some axes. Arguments as in :func:`jaxht.sweep.run`, and
    values known before.

    Attributes:
        axes: values by name, as Python numbers and strings.
        static, problem, shared: names of axes.
        round_up: step by name.
        integer: of each traced axis, whether all of its values are integers, those known before
            included.
        cells: the cells to run, in row-major order.
    """

    def __init__(
        self,
        axes: Mapping[str, Sequence[Value]],
        static: Sequence[str] = (),
        round_up: Mapping[str, int] | None = None,
        problem: Sequence[str] | None = None,
        shared: Sequence[str] | None = None,
        where: Callable[[Mapping[str, Any]], bool] | None = None,
        known: Mapping[str, Sequence[Value]] | None = None,
    ) -> None:
        self.axes = {name: [_to_python(value) for value in values] for name, values in axes.items()}
        self.round_up = dict(round_up or {})
        numbers = [name for name, values in self.axes.items() if not _has_strings(values)]
        self.static = [name for name in self.axes if name in static or name not in numbers]
        self.problem = numbers if problem is None else list(problem)
        self.shared = self.problem if shared is None else list(shared)
        if "trial" in self.axes:
            raise ValueError("no axis may be named 'trial': results have one of that name")
        for name, values in self.axes.items():
            if not values or len(set(values)) < len(values):
                raise ValueError(
                    f"axis {name!r} must hold one or more distinct values; got {values}"
                )
        named = {
            "static": static,
            "round_up": self.round_up,
            "problem": self.problem,
            "shared": self.shared,
        }
        for option, names in named.items():
            if unknown := set(names) - set(self.axes):
                raise ValueError(
                    f"{option} names {sorted(unknown)}, which are not among the axes "
                    f"{list(self.axes)}"
                )
        if missing := set(self.shared) - set(self.problem):
            raise ValueError(
                f"shared names {sorted(missing)}, which must be in problem too; that is "
                f"{self.problem}"
            )
        known = known or {}
        self.integer = {}
        for name, values in self.axes.items():
            if name not in self.static:
                all_values = [*values, *known.get(name, ())]
                self.integer[name] = all(isinstance(value, int) for value in all_values)
        self.cells = []
        for index, point in enumerate(itertools.product(*self.axes.values())):
            coordinates = dict(zip(self.axes, point, strict=True))
            if where is None or where(coordinates):
                self.cells.append(self._make_cell(index, coordinates))

    def _make_cell(self, index: int, coordinates: dict[str, Any]) -> GridCell:
        def select(names):
            return tuple((name, coordinates[name]) for name in names)

        bounds = [
            (name, -(-coordinates[name] // step) * step) for name, step in self.round_up.items()
        ]
        return GridCell(
            index,
            coordinates,
            static=select(self.static),
            bounds=tuple(bounds),
            problem=select(self.problem),
            shared=select(self.shared),
        )


def stable_hash(value: Any) -> int:
    """Hash numbers, strings and dicts of them to 32 bits, equally in every process and on every
    machine.

    Args:
        value: anything that JSON can hold. The order of a dict's keys does not matter.

    Returns:
        Integer in [0, 2^32): the CRC-32 of the JSON text, fit for ``jax.random.fold_in``.

    Raises:
        TypeError: for what JSON cannot hold.

    Cost: the length of the text.

    Source: :func:`jaxht.sweep.run` derives the keys of cells from it, ``fold_in(key,
    stable_hash(coordinates))``.

    Example:
        >>> from jaxht import sweep
        >>> sweep.stable_hash({"n": 8, "K": 2}) == sweep.stable_hash({"K": 2, "n": 8})
        True
        >>> sweep.stable_hash("HTP")
        669868407
    """
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())


def _has_strings(values: Sequence[Value]) -> bool:
    return any(isinstance(value, str) for value in values)


def _to_python(value: Any) -> Value:
    """A Python number or string, with 4.0 as 4: equal coordinates hash alike, wherever they come
    from."""
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value
