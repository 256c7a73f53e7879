"""The cells of a sweep, and the hashes that pair their problems."""

import itertools
import json
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from jaxht._repr import MAX_LENGTH, describe

__all__ = ["stable_hash"]

Value = int | float | str
Indices = NDArray[np.int32]  # of trials, or of cells
Results = Mapping[str, NDArray[Any]]  # of some trials, by name

# Names that neither an axis nor a result may have: the Dataset of a sweep uses them.
RESERVED = {"trial", "num_trials", "done", "timed_out_after"}

# Up to it float64 holds all integers.
MAX_EXACT = 2**53


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
    """The combinations of the values of some axes. Arguments as in :func:`jaxht.sweep.run`, and
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
        given = {name: _read_axis(name, values) for name, values in axes.items()}
        self.axes = {name: list(map(_to_coordinate, values)) for name, values in given.items()}
        numbers = [name for name, values in self.axes.items() if not _has_strings(values)]
        self.static = [name for name in self.axes if name in static or name not in numbers]
        self.round_up = dict(round_up or {})
        self.problem = numbers if problem is None else list(problem)
        self.shared = self.problem if shared is None else list(shared)
        self._check_axes()
        self._check_names(static)
        self._check_steps()
        self.integer = self._find_integers(given, known or {})
        self.cells = self._make_cells(where)

    def _check_axes(self) -> None:
        if taken := RESERVED.intersection(self.axes):
            raise ValueError(
                f"no axis may be named {min(taken)!r}: the dataset of results has one of that name"
            )
        for name, values in self.axes.items():
            if not values or len(set(values)) < len(values):
                raise ValueError(
                    f"axis {name!r} must hold one or more distinct values; got {values}"
                )

    def _check_names(self, static: Sequence[str]) -> None:
        """Check the options that name axes."""
        named = {
            "static": static,
            "round_up": self.round_up,
            "problem": self.problem,
            "shared": self.shared,
        }
        for option, names in named.items():
            if isinstance(names, str):
                raise ValueError(f"{option} must hold names of axes; got the string {names!r}")
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

    def _check_steps(self) -> None:
        for name, step in self.round_up.items():
            are_integers = all(isinstance(number, int) for number in (step, *self.axes[name]))
            if step < 1 or not are_integers:
                raise ValueError(
                    f"round_up needs integers, and steps of at least 1; got {step} for axis "
                    f"{name!r} with {self.axes[name]}"
                )

    def _find_integers(
        self, given: Mapping[str, Sequence[Value]], known: Mapping[str, Sequence[Value]]
    ) -> dict[str, bool]:
        """Of each traced axis, whether all of its values are integers."""
        integer = {}
        for name, values in self.axes.items():
            if name in self.static:
                continue
            all_values = [*values, *known.get(name, ())]
            integer[name] = all(map(_fits_int32, all_values))
            if not integer[name]:
                _check_floats(name, given[name], all_values)
        return integer

    def _make_cells(self, where: Callable[[Mapping[str, Any]], bool] | None) -> list[GridCell]:
        cells = []
        for index, point in enumerate(itertools.product(*self.axes.values())):
            coordinates = dict(zip(self.axes, point, strict=True))
            if where is None or where(coordinates):
                cells.append(self._make_cell(index, coordinates))
        return cells

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


def _read_axis(name: str, values: Sequence[Any]) -> list[Value]:
    """The values of an axis as Python numbers or strings, or ValueError for what is neither."""
    if not isinstance(name, str):
        raise ValueError(f"axes must be named by strings; got {name!r}")
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"axis {name!r} must be a sequence of values; got {describe(values)}")
    given = [_to_python(name, value) for value in values]
    if _has_strings(given) and not all(isinstance(value, str) for value in given):
        raise ValueError(f"axis {name!r} must hold numbers or strings, not both; got {given}")
    return given


def _to_python(axis: str, value: Any) -> Value:
    """A scalar of Python, or of an array package, as a Python number or string."""
    if hasattr(value, "item") and np.ndim(value) == 0:
        value = value.item()
    if not isinstance(value, int | float | str):
        raise ValueError(
            f"axis {axis!r} must hold numbers or strings; got {_shorten(value)}: name it by a "
            "string, which the trial looks up"
        )
    if isinstance(value, float) and math.isnan(value):
        raise ValueError(f"axis {axis!r} holds NaN, which equals no coordinate")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"axis {axis!r} holds {value}, beyond the integers of 64 bits")
    return value


def _shorten(value: Any) -> str:
    text = repr(value) if isinstance(value, tuple | list) else describe(value)
    return text if len(text) <= MAX_LENGTH else describe(value)


def _to_coordinate(value: Value) -> Value:
    """4.0 and True as 4 and 1: equal coordinates hash alike, wherever they come from."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_EXACT:
        return int(value)
    return value


def _fits_int32(value: Value) -> bool:
    return isinstance(value, int) and -(2**31) <= value < 2**31


def _check_floats(axis: str, given: Sequence[Value], all_values: Sequence[Value]) -> None:
    """Raise ValueError where an axis that is traced as floats holds what these round too much."""
    dtype = jnp.result_type(float)
    only_integers = all(isinstance(value, int) for value in [*given, *all_values])
    for value in given:
        with np.errstate(over="ignore", under="ignore"):
            rounded = float(np.asarray(value, np.float64).astype(dtype))
        if only_integers and not _fits_int32(value):
            raise ValueError(
                f"axis {axis!r} holds {value}, beyond the int32 in which integers are traced: "
                "name the axis in static, or give floats"
            )
        if isinstance(value, int) and int(rounded) != value:
            raise ValueError(
                f"axis {axis!r} holds the integer {value} beside numbers that are none, and is "
                f"traced in {dtype}, which rounds it to {int(rounded)}: name the axis in static, "
                "or switch on JAX's 64 bits"
            )
        is_lost = math.isinf(rounded) or (rounded == 0) != (value == 0)
        if is_lost and np.isfinite(value):
            raise ValueError(f"axis {axis!r} holds {value}, which is {rounded} in {dtype}")
