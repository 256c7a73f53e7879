"""The host's part of a sweep: which trials run in which lanes, and what becomes of their
results."""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from jaxht.sweep.grid import CellTrials, GridCell, Indices, Results
from jaxht.sweep.program import MAX_STEPS, Pool, Program, State
from jaxht.sweep.progress import COMPILING, Progress
from jaxht.sweep.store import make_blanks

__all__ = ["TrialTimeout"]

Key = tuple[Any, ...]

TIMED_OUT_AFTER = "timed_out_after"


class TrialTimeout(TimeoutError):
    """A call of the device has not come back within ``trial_timeout``: the message names the
    cells."""


class Batch(NamedTuple):
    """Trials of one cell that are drawn together."""

    cell: GridCell  # the cell
    # (staged,) their indices; the last one is repeated where there are fewer.
    trials: Indices
    size: int  # how many of them count


@dataclass
class _CellProgress:
    """How many of the trials of a cell have been handed out, which of them have ended, and their
    results."""

    cell: GridCell
    trials: Indices
    started: int = 0
    results: dict[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ended = np.zeros(len(self.trials), bool)

    def set(self, name: str, positions: NDArray[Any], values: NDArray[Any]) -> None:
        """Set a result of the trials at some positions."""
        if name not in self.results:
            self.results[name] = make_blanks(len(self.trials), values.dtype)
        self.results[name][positions] = values


@dataclass
class _Call:
    """A call of the device that a pool waits for."""

    program: Program
    rows: "list[_Row]"
    begin: float = field(default_factory=time.monotonic)
    given_up: bool = False  # its cells have been recorded as timed out


class Queue:
    """The trials to run, handed out to the pools of several threads, and their results, collected
    cell by cell.

    Args:
        missing: the trials of each cell, in the order in which they are to be done.
        on_cell: called with every cell whose trials have ended, with these, and with their results
            by name.
        on_progress: called with a :class:`Progress`, by one thread at a time.
        trial_timeout: seconds that a trial, and a call of the device, may take; None: no limit.

    Attributes:
        closed: set to make all pools stop after their chunk.
    """

    def __init__(
        self,
        missing: Sequence[CellTrials],
        on_cell: Callable[[GridCell, Indices, Results], None],
        on_progress: Callable[[Progress], None],
        trial_timeout: float | None = None,
    ) -> None:
        self._cells = {some.cell.index: _CellProgress(some.cell, some.trials) for some in missing}
        self._waiting: dict[Key, dict[int, _CellProgress]] = {}
        for index, entry in self._cells.items():
            self._waiting.setdefault(entry.cell.program, {})[index] = entry
        self._on_cell = on_cell
        self._on_progress = on_progress
        self.trial_timeout = math.inf if trial_timeout is None else trial_timeout
        self._calls: dict[int | None, _Call] = {}  # by the number of the thread
        self._lock = threading.Lock()
        self._num_pools: dict[Key, int] = dict.fromkeys(self._waiting, 0)
        self._num_compiling = 0
        total = sum(len(some.trials) for some in missing)
        self._progress = Progress(0, total, note=COMPILING if missing else "")
        self.closed = False
        on_progress(self._progress)

    def join_program(self) -> GridCell | None:
        """A cell of the program that a free pool should run: of the one with the fewest pools.
        None: nothing waits."""
        with self._lock:
            if self.closed or not self._waiting:
                return None
            key = min(self._waiting, key=self._num_pools.__getitem__)
            self._num_pools[key] += 1
            return next(iter(self._waiting[key].values())).cell

    def leave_program(self, key: Key) -> None:
        """The reverse of :meth:`join_program`."""
        with self._lock:
            self._num_pools[key] -= 1

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """A context in which a pool waits for its program, as is reported."""
        self._count_compiling(1)
        try:
            yield
        finally:
            self._count_compiling(-1)

    def _count_compiling(self, number: int) -> None:
        with self._lock:
            self._num_compiling += number
            self._progress = replace(self._progress, note=COMPILING if self._num_compiling else "")
            self._on_progress(self._progress)

    def has_trials(self, key: Key) -> bool:
        """Whether trials of a program wait."""
        return key in self._waiting and not self.closed

    def pop_batch(self, key: Key, number: int, last: GridCell | None, bound: bool) -> Batch | None:
        """Trials for a row: of its last cell while there are any, then of a cell that has not
        begun, then of the one with most of them left.

        Args:
            key: of the program.
            number: how many trials at most.
            last: the cell of the row's last batch.
            bound: whether trials of it still run, so that the row must keep what they share.
        """
        with self._lock:
            waiting = self._waiting.get(key, {})
            if self.closed:
                return None
            choice = list(waiting.values())
            if bound and last is not None:
                choice = [entry for entry in choice if entry.cell.shared == last.shared]
            if not choice:
                return None

            def rank(entry):
                is_other = last is None or entry.cell.index != last.index
                return is_other, entry.started > 0, entry.started - len(entry.trials)

            entry = min(choice, key=rank)
            total = len(entry.trials)
            size = min(number, total - entry.started)
            trials = entry.trials[np.minimum(entry.started + np.arange(number), total - 1)]
            entry.started += size
            if entry.started == total:
                del waiting[entry.cell.index]
                if not waiting:
                    del self._waiting[key]
            return Batch(entry.cell, trials, size)

    def record_chunk(
        self,
        indices: Indices,
        trials: Indices,
        results: Results,
        busy: int,
        executed: int,
    ) -> None:
        """Collect the results of the trials that ended in a chunk, by index of their cell, and
        count its steps."""
        for index in np.unique(indices):
            mine = indices == index
            with self._lock:
                if (entry := self._cells.get(int(index))) is None:  # given up
                    continue
                positions = np.searchsorted(entry.trials, trials[mine])
                for name, values in results.items():
                    entry.set(name, positions, values[mine])
                entry.ended[positions] = True
                is_complete = bool(entry.ended.all())
                if is_complete:
                    del self._cells[int(index)]
            if is_complete:
                self._on_cell(entry.cell, entry.trials, entry.results)
        with self._lock:
            self._progress = self._progress.add(len(indices), busy, executed)
            self._on_progress(self._progress)

    @contextlib.contextmanager
    def calling(self, program: Program, rows: "list[_Row]") -> Iterator[_Call]:
        """A context in which this thread waits for the device, which should take no longer than
        ``trial_timeout``."""
        call = _Call(program, rows)
        with self._lock:
            self._calls[threading.get_ident()] = call
        try:
            yield call
        except Exception as error:
            running = set().union(*(row.list_cells() for row in rows))
            with self._lock:
                entries = [self._cells[index] for index in sorted(running & self._cells.keys())]
            error.add_note(
                f"in the trials of a sweep that ran together, of {_name_cells(entries)}; with "
                "max_lanes=1 and workers=1 each runs alone"
            )
            raise
        finally:
            with self._lock:
                del self._calls[threading.get_ident()]

    def is_overdue(self, thread: threading.Thread) -> bool:
        """Whether a thread waits for the device longer than ``trial_timeout``."""
        call = self._calls.get(thread.ident)
        return call is not None and self._is_late(call)

    def check_calls(self) -> None:
        """Raise TrialTimeout if a call of the device is overdue.

        What has not ended of the cells in the call is recorded as timed out, so that a sweep that
        is continued does not wait for them again. No other call is begun.
        """
        entries: list[_CellProgress] = []
        with self._lock:
            overdue = [call for call in self._calls.values() if self._is_late(call)]
            for call in overdue:
                entries += self._give_up(call)
        for entry in entries:
            self._on_cell(entry.cell, entry.trials, entry.results)
        if overdue:
            raise TrialTimeout(
                "a call of the device has not come back within "
                f"trial_timeout={self.trial_timeout:g} s. It holds trials of "
                f"{_name_cells(entries)}: what is missing of these cells is recorded as "
                "timed out. The call ends with this process; what was stored is safe, and a new "
                "process goes on with the other cells."
            )

    def _is_late(self, call: _Call) -> bool:
        return time.monotonic() - call.begin > self.trial_timeout

    def _give_up(self, call: _Call) -> list[_CellProgress]:
        """Record what has not ended of the cells in a call as timed out, and close the queue."""
        self.closed = True
        call.given_up = True
        indices = set().union(*(row.list_cells() for row in call.rows))
        entries = [self._cells.pop(index) for index in sorted(indices & self._cells.keys())]
        for entry in entries:
            left = np.flatnonzero(~entry.ended)
            for name, dtype in call.program.results.items():
                entry.set(name, left, make_blanks(len(left), dtype))
            entry.set(TIMED_OUT_AFTER, left, np.full(len(left), self.trial_timeout))
        return entries


def _name_cells(entries: Sequence[_CellProgress]) -> str:
    """The first of some cells by their coordinates, and how many more there are."""
    cells = [str(dict(entry.cell.coordinates)) for entry in entries]
    more = f" and {len(cells) - 3} more" if len(cells) > 3 else ""
    return ", ".join(cells[:3]) + more


class _Row:
    """A row of lanes as the host knows it.

    Attributes:
        cells, trials: (lanes,), the index of the cell and of the trial in each lane.
        occupied: (lanes,) bool, whether a trial runs in it.
        batch: the trials that are staged, or were.
        next: position in the batch of the next one to run.
        shared: on the device, what the row holds once.
        begun: (lanes,), when the trial in each lane was given to it.
    """

    def __init__(self, lanes: int) -> None:
        self.cells, self.trials = np.zeros((2, lanes), np.int32)
        self.occupied = np.zeros(lanes, bool)
        self.batch: Batch | None = None
        self.next = 0
        self.shared: list[Any] = []
        self.begun = np.zeros(lanes)

    @property
    def num_staged(self) -> int:
        return 0 if self.batch is None else self.batch.size - self.next

    def list_cells(self) -> set[int]:
        """The indices of the cells whose trials are in the row, running or staged."""
        staged = set() if self.batch is None else {self.batch.cell.index}
        return staged | set(self.cells[self.occupied].tolist())

    def refill(self) -> Indices:
        """Give staged trials to free lanes; returns what each takes of the batch, or -1."""
        sources = np.full(len(self.cells), -1, np.int32)
        free = np.flatnonzero(~self.occupied)[: self.num_staged]
        if self.batch is not None and len(free):
            taken = self.next + np.arange(len(free), dtype=np.int32)
            sources[free] = taken
            self.cells[free] = self.batch.cell.index
            self.trials[free] = self.batch.trials[taken]
            self.occupied[free] = True
            self.begun[free] = time.monotonic()
            self.next += len(free)
        return sources


# Of the time limit of a trial, for a chunk: between chunks trials can be ended.
CHUNK_SHARE = 0.25


def run_pool(program: Program, pool: Pool, key: Key, seed: int, queue: Queue) -> None:
    """Run the trials of a queue that belong to a program, until none waits and none runs."""
    rows = [_Row(pool.lanes) for _ in range(pool.rows)]
    state: State | None = None
    max_steps = MAX_STEPS if math.isinf(queue.trial_timeout) else 1
    while not queue.closed:
        with queue.calling(program, rows) as call:
            for index, row in enumerate(rows):
                if row.num_staged:
                    continue
                last = None if row.batch is None else row.batch.cell
                batch = queue.pop_batch(key, pool.staged, last, bool(row.occupied.any()))
                if batch is None:
                    continue
                row.batch = batch
                row.next = 0
                inputs = program.make_inputs(seed, batch.cell, batch.trials)
                if last is None or last.shared != batch.cell.shared:
                    row.shared = pool.draw_shared(inputs)
                started = pool.start_trials(row.shared, inputs)
                if state is None:
                    state = pool.init_state(row.shared, started)
                state = pool.stage_trials(state, row.shared, started, np.int32(index))
            if state is None:
                return
            sources = np.stack([row.refill() for row in rows])
            occupied = np.stack([row.occupied for row in rows])
            if not occupied.any():
                return
            refilling = queue.has_trials(key) or any(row.num_staged for row in rows)
            state, chunk = pool.run_chunk(
                state, sources, occupied, np.bool_(refilling), np.int32(max_steps)
            )
            running = np.asarray(chunk.running)
            steps = int(chunk.steps)
            now = time.monotonic()
            begun = np.stack([row.begun for row in rows])
            late = running & (now - begun > queue.trial_timeout)
            ended = (occupied & ~running) | late
            # Most chunks of long trials end none: their results stay on the device.
            values = jax.device_get(chunk.results) if ended.any() else {}
        if call.given_up:
            return
        results = {name: np.array(value)[ended] for name, value in values.items()}
        if late.any():
            for value in results.values():
                value[late[ended]] = make_blanks((), value.dtype)
            results[TIMED_OUT_AFTER] = np.where(late[ended], queue.trial_timeout, np.nan)
        cells = np.stack([row.cells for row in rows])
        trials = np.stack([row.trials for row in rows])
        for row, over in zip(rows, ended, strict=True):
            row.occupied &= ~over
        executed = steps * occupied.size
        queue.record_chunk(cells[ended], trials[ended], results, int(chunk.busy), executed)
        if steps and not math.isinf(queue.trial_timeout):
            affordable = CHUNK_SHARE * queue.trial_timeout * steps / max(now - call.begin, 1e-6)
            max_steps = max(1, min(int(affordable), 8 * max_steps, MAX_STEPS))
