"""The host's part of a sweep: which trials run in which lanes, and what becomes of their results."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from jaxht.sweep.grid import Place
from jaxht.sweep.lanes import Pool, Program, State

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    Attributes:
        done: trials finished, without those that were stored before.
        total: trials to run.
        lived: steps taken by lanes that were running.
        executed: steps of lanes in all, waiting ones included.
    """

    done: int
    total: int
    lived: int = 0
    executed: int = 0

    def plus(self, done: int, lived: int, executed: int) -> "Progress":
        """After some more work."""
        return Progress(self.done + done, self.total, self.lived + lived, self.executed + executed)

    @property
    def utilisation(self) -> float:
        """The part of all lane-steps that served a running lane; 1 where trials take no steps."""
        return self.lived / self.executed if self.executed else 1.0


class Wave(NamedTuple):
    """Trials of one cell that are drawn together.

    Attributes:
        place: the cell.
        trials: their numbers; the last one is repeated where there are too few.
        size: how many of them count.
    """

    place: Place
    trials: NDArray[np.int32]
    size: int


@dataclass
class _Cell:
    """What is to be drawn of a cell, and what has come of it."""

    place: Place
    trials: int
    drawn: int = 0
    finished: int = 0
    results: dict[str, NDArray[Any]] = field(default_factory=dict)


class Queue:
    """The trials that wait, handed out to the rows of pools in several threads, and their results, cell by cell.

    Args:
        places: the cells, in the order in which they are to be done.
        num_trials: of each.
        finished: called with every cell that is finished, and its results (num_trials,) by name.
        on_progress: called with a :class:`Progress`, by one thread at a time.
    """

    def __init__(
        self,
        places: Sequence[Place],
        num_trials: int,
        finished: Callable[[Place, Mapping[str, NDArray[Any]]], None],
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._cells = {place.index: _Cell(place, num_trials) for place in places}
        self._waiting: dict[Key, dict[int, _Cell]] = {}
        for index, cell in self._cells.items():
            self._waiting.setdefault(cell.place.program, {})[index] = cell
        self._finished, self._on_progress = finished, on_progress
        self._lock = threading.Lock()
        self._pools: dict[Key, int] = dict.fromkeys(self._waiting, 0)
        self._progress = Progress(0, len(places) * num_trials)
        self.closed = False
        on_progress(self._progress)

    def program(self) -> Place | None:
        """One of the cells that a free pool should run: of the program on which the fewest pools are at work."""
        with self._lock:
            if self.closed or not self._waiting:
                return None
            key = min(self._waiting, key=lambda key: self._pools[key])
            self._pools[key] += 1
            return next(iter(self._waiting[key].values())).place

    def leave(self, key: Key) -> None:
        """A pool has no more to do for these cells."""
        with self._lock:
            self._pools[key] -= 1

    def waits(self, key: Key) -> bool:
        """Whether there are trials to draw."""
        return key in self._waiting and not self.closed

    def take(self, key: Key, number: int, last: Place | None, bound: bool) -> Wave | None:
        """Trials for a row: of its own cell as long as there are any, then of one that nobody has begun, then of the
        one with most of them left.

        Args:
            key: of the program.
            number: how many trials at most.
            last: the cell that the row had before.
            bound: whether lanes still run that hold the row to what it shares.
        """
        with self._lock:
            cells = self._waiting.get(key, {})
            if self.closed:
                return None
            choice = [cell for cell in cells.values() if not bound or (last and cell.place.shared == last.shared)]
            if not choice:
                return None

            def rank(cell: _Cell) -> tuple[bool, bool, int]:
                return last is None or cell.place.index != last.index, cell.drawn > 0, cell.drawn - cell.trials

            cell = min(choice, key=rank)
            size = min(number, cell.trials - cell.drawn)
            trials = np.minimum(cell.drawn + np.arange(number), cell.trials - 1).astype(np.int32)
            cell.drawn += size
            if cell.drawn == cell.trials:
                del cells[cell.place.index]
                if not cells:
                    del self._waiting[key]
            return Wave(cell.place, trials, size)

    def give(self, indices: NDArray[np.int32], trials: NDArray[np.int32], results: Mapping[str, NDArray[Any]]) -> None:
        """Results of some trials of some cells."""
        for index in np.unique(indices):
            cell, mine = self._cells[int(index)], indices == index
            with self._lock:
                for name, values in results.items():
                    whole = cell.results.setdefault(name, np.zeros(cell.trials, values.dtype))
                    whole[trials[mine]] = values[mine]
                cell.finished += int(mine.sum())
                whole_cell = cell.finished == cell.trials
                if whole_cell:
                    del self._cells[int(index)]
            if whole_cell:
                self._finished(cell.place, cell.results)

    def account(self, done: int, lived: int, executed: int) -> None:
        """Count a turn."""
        with self._lock:
            self._progress = self._progress.plus(done, lived, executed)
            self._on_progress(self._progress)


@dataclass
class _Row:
    """What the host knows of a row of lanes.

    Attributes:
        cells, trials: (lanes,), what runs in each.
        occupied: (lanes,) bool, whether it counts.
        place: the cell of the staged trials.
        staged: their numbers.
        next, size: which of them is the next to run, and how many count.
    """

    cells: NDArray[np.int32]
    trials: NDArray[np.int32]
    occupied: NDArray[np.bool_]
    place: Place | None = None
    staged: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    next: int = 0
    size: int = 0

    @classmethod
    def empty(cls, lanes: int) -> "_Row":
        return cls(np.zeros(lanes, np.int32), np.zeros(lanes, np.int32), np.zeros(lanes, bool))

    def refill(self) -> NDArray[np.int32]:
        """Let staged trials run in free lanes; of each lane, the place in the staging of what it takes, or -1."""
        sources = np.full(len(self.cells), -1, np.int32)
        free = np.flatnonzero(~self.occupied)[: self.size - self.next]
        if self.place is not None and len(free):
            taken = self.next + np.arange(len(free), dtype=np.int32)
            sources[free], self.cells[free], self.trials[free] = taken, self.place.index, self.staged[taken]
            self.occupied[free] = True
            self.next += len(free)
        return sources


def run_pool(program: Program, pool: Pool, key: Key, seed: int, queue: Queue) -> None:
    """Run the trials of a queue that belong to a program, until none waits and none runs."""
    rows = [_Row.empty(pool.lanes) for _ in range(pool.rows)]
    bound: list[Any] = [None] * len(rows)
    state: State | None = None
    while not queue.closed:
        for number, row in enumerate(rows):
            if row.next < row.size:
                continue
            taken = queue.take(key, pool.staged, row.place, bool(row.occupied.any()))
            if taken is None:
                continue
            place, row.staged, row.size = taken
            inputs = program.inputs(seed, place, row.staged)
            if row.place is None or row.place.shared != place.shared:
                bound[number] = pool.row(inputs)
            row.place, row.next = place, 0
            wave = pool.wave(bound[number], inputs)
            state = pool.reset(bound[number], wave) if state is None else state
            state = pool.put(state, bound[number], wave, np.int32(number))
        if state is None:
            return
        sources = np.stack([row.refill() for row in rows])
        occupied = np.stack([row.occupied for row in rows])
        if not occupied.any():
            return
        refilling = queue.waits(key) or any(row.next < row.size for row in rows)
        state, turn = pool.turn(state, sources, occupied, np.bool_(refilling))
        ended = occupied & ~np.asarray(turn.live)
        if ended.any():
            results = {name: np.asarray(values)[ended] for name, values in jax.device_get(turn.results).items()}
            queue.give(
                np.stack([row.cells for row in rows])[ended], np.stack([row.trials for row in rows])[ended], results
            )
        for row, over in zip(rows, ended, strict=True):
            row.occupied &= ~over
        queue.account(int(ended.sum()), int(turn.lived), int(turn.steps) * occupied.size)
