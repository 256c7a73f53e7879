"""The host's part of a sweep: which trials run in which lanes, and what becomes of their
results."""

import contextlib
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from jaxht.sweep.chunk import MAX_CHUNK_STEPS
from jaxht.sweep.grid import CellTrials, GridCell, Indices, Results
from jaxht.sweep.pool import Chunk, Pool, State, Wants
from jaxht.sweep.program import Program
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
    # (batch,) their indices; the last one is repeated where there are fewer.
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
        # How many of these cells there are, by program and by what their trials share.
        self._num_waiting: Counter[Key] = Counter()
        for index, entry in self._cells.items():
            self._waiting.setdefault(entry.cell.program, {})[index] = entry
            self._num_waiting[entry.cell.program, entry.cell.shared] += 1
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

    def find_next_program(self) -> GridCell | None:
        """A cell of a program that waits for a pool; None: none does."""
        with self._lock:
            free = [key for key in self._waiting if not self._num_pools[key]]
            if self.closed or not free:
                return None
            return next(iter(self._waiting[free[0]].values())).cell

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

    def find_wants(self, key: Key, last: GridCell | None) -> Wants:
        """Which trials of a program wait for a row, whose last cell was this one."""
        if key not in self._waiting or self.closed:
            return Wants.NOTHING
        if last is not None and self._num_waiting[key, last.shared]:
            return Wants.ALWAYS
        return Wants.WHEN_EMPTY

    def pop_batch(self, key: Key, number: int, last: GridCell | None, bound: bool) -> Batch | None:
        """Trials for a row: of its last cell while there are any, then of a cell that has not
        begun, then of the one with most of them left.

        Args:
            key: of the program.
            number: how many trials at most.
            last: the cell of the row's last batch.
            bound: whether trials of it still wait or run, so that the row must keep what they share.
        """
        with self._lock:
            if self.closed or key not in self._waiting:
                return None
            waiting = self._waiting[key]
            entry = None if last is None else waiting.get(last.index)
            if entry is None:
                entry = self._choose_cell(key, last if bound else None)
            if entry is None:
                return None
            total = len(entry.trials)
            size = min(number, total - entry.started)
            trials = entry.trials[np.minimum(entry.started + np.arange(number), total - 1)]
            entry.started += size
            if entry.started == total:
                del waiting[entry.cell.index]
                self._num_waiting[key, entry.cell.shared] -= 1
                if not waiting:
                    del self._waiting[key]
            return Batch(entry.cell, trials, size)

    def _choose_cell(self, key: Key, bound_to: GridCell | None) -> _CellProgress | None:
        """A cell that has not begun, else the one with most trials left; of those that share with
        another one if the row is bound to it."""
        choice = list(self._waiting[key].values())
        if bound_to is not None:
            choice = [entry for entry in choice if entry.cell.shared == bound_to.shared]
        return min(
            choice,
            key=lambda entry: (entry.started > 0, entry.started - len(entry.trials)),
            default=None,
        )

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
        last: the cell of the last trials that were staged.
        num_staged: how many batches it has been given.
        num_done: of how many of them lanes had taken all when the last chunk was read.
        outstanding: number of trials that have been given to it, and not ended, by index of the
            cell.
        shared: on the device, what the row holds once.
    """

    def __init__(self) -> None:
        self.last: GridCell | None = None
        self.num_staged = 0
        self.num_done = 0
        self.outstanding: Counter[int] = Counter()
        self.shared: list[Any] = []

    def list_cells(self) -> set[int]:
        """The indices of the cells whose trials are in the row, running or staged."""
        return set(self.outstanding)


class _Ages:
    """Since when the trials in the lanes of a pool have run, as far as the host has seen."""

    def __init__(self, rows: int, lanes: int) -> None:
        self._trials = np.full((2, rows, lanes), -1, np.int32)
        self._begun = np.zeros((rows, lanes))

    def find_late(self, chunk: Chunk, limit: float) -> NDArray[Any]:
        """The lanes whose trials take longer than a time limit."""
        now = time.monotonic()
        trials = np.stack([chunk.lane_cells, chunk.lane_trials])
        is_new = (trials != self._trials).any(axis=0)
        self._begun[is_new] = now
        self._trials = trials
        return np.asarray(chunk.occupied) & (now - self._begun > limit)


# Of the time limit of a trial, for a chunk: between chunks trials can be ended.
CHUNK_SHARE = 0.25
# Steps of the pool that are lost before ended lanes are given other trials, which costs as much.
PATIENCE = 0.5
PATIENCE_AHEAD = 2.0


def run_pool(program: Program, pool: Pool, key: Key, seed: int, queue: Queue) -> None:
    """Run the trials of a queue that belong to a program, until none waits and none runs.

    Where the pool works ahead, the device has the next chunk to run while the host reads the last
    one. Not so under a time limit: then the host must know which trial each lane has.
    """
    has_limit = not math.isinf(queue.trial_timeout)
    depth = 2 if pool.ahead and not has_limit else 1
    share = PATIENCE_AHEAD if pool.ahead else PATIENCE
    patience = max(1, int(share * pool.rows * pool.lanes))
    rows = [_Row() for _ in range(pool.rows)]
    ages = _Ages(pool.rows, pool.lanes)
    nothing = np.zeros((pool.rows, pool.lanes), bool)
    dropped = nothing
    state: State | None = None
    max_steps = 1 if has_limit else MAX_CHUNK_STEPS
    submitted: deque[Chunk] = deque()
    while True:
        with queue.calling(program, rows) as call:
            is_open = not queue.closed
            if is_open:
                state = _stage_rows(program, pool, key, seed, queue, rows, state)
                is_open = any(row.outstanding for row in rows)
            if is_open:
                wants = np.array([queue.find_wants(key, row.last) for row in rows], np.int32)
                state, chunk = pool.run_chunk(
                    state, dropped, wants, np.int32(patience), np.int32(max_steps)
                )
                submitted.append(chunk)
                dropped = nothing
            if not submitted:
                return
            if is_open and len(submitted) < depth:
                continue
            chunk = submitted.popleft()
            ended = read_results(chunk)
            for row, number in zip(rows, np.asarray(chunk.num_done).tolist(), strict=True):
                row.num_done = number
        if call.given_up:
            return
        steps = int(chunk.steps)
        _record(queue, rows, ended, int(chunk.busy), steps * pool.rows * pool.lanes)
        if has_limit:
            dropped = ages.find_late(chunk, queue.trial_timeout)
            if dropped.any():
                late = _make_late(program, chunk, dropped, queue.trial_timeout)
                _record(queue, rows, late, 0, 0)
            if steps:
                seconds = max(time.monotonic() - call.begin, 1e-6)
                affordable = CHUNK_SHARE * queue.trial_timeout * steps / seconds
                max_steps = max(1, min(int(affordable), 8 * max_steps, MAX_CHUNK_STEPS))


def _stage_rows(
    program: Program,
    pool: Pool,
    key: Key,
    seed: int,
    queue: Queue,
    rows: Sequence[_Row],
    state: State | None,
) -> State | None:
    """Stage trials in the rows that have room for a batch; None where there have been none yet."""
    for index, row in enumerate(rows):
        while row.num_staged - row.num_done < pool.num_batches:
            bound = bool(row.outstanding)
            wants = queue.find_wants(key, row.last)
            if wants == Wants.NOTHING or (bound and wants != Wants.ALWAYS):
                break
            batch = queue.pop_batch(key, pool.batch, row.last, bound)
            if batch is None:
                break
            is_new = row.last is None or row.last.shared != batch.cell.shared
            row.last = batch.cell
            row.num_staged += 1
            row.outstanding[batch.cell.index] += batch.size
            inputs = program.make_inputs(seed, batch.cell, batch.trials)
            if is_new:
                row.shared = pool.draw_shared(inputs)
            started = pool.start_trials(row.shared, inputs)
            if state is None:
                state = pool.init_state(row.shared, started)
            state = pool.stage_trials(
                state,
                row.shared,
                started,
                np.int32(index),
                np.int32(batch.cell.index),
                batch.trials,
                np.int32(batch.size),
            )
    return state


class _Ended(NamedTuple):
    """Some trials that have ended: rows, indices of cells and of trials, results by name."""

    rows: Indices
    cells: Indices
    trials: Indices
    results: Results


def read_results(chunk: Chunk) -> _Ended:
    """The trials that have ended in a chunk, once the device has run it."""
    number = int(chunk.num_ended)
    if number == 0:  # most chunks of long trials: their results stay on the device
        none = np.zeros(0, np.int32)
        return _Ended(
            rows=none,
            cells=none,
            trials=none,
            results={},
        )
    log = jax.device_get((chunk.rows, chunk.cells, chunk.trials, chunk.results))
    return _Ended(*jax.tree.map(lambda values: np.array(values[:number]), log))


def _make_late(program: Program, chunk: Chunk, late: NDArray[Any], limit: float) -> _Ended:
    """The trials in some lanes, as ended by a time limit."""
    rows, _ = np.nonzero(late)
    number = len(rows)
    results = {name: make_blanks(number, dtype) for name, dtype in program.results.items()}
    results[TIMED_OUT_AFTER] = np.full(number, limit)
    cells = np.asarray(chunk.lane_cells)[late]
    trials = np.asarray(chunk.lane_trials)[late]
    return _Ended(rows.astype(np.int32), cells, trials, results)


PAIR = np.int64(2**32)  # a row and a cell as one number


def _record(queue: Queue, rows: Sequence[_Row], ended: _Ended, busy: int, executed: int) -> None:
    """Hand over the results of trials that have ended, and count them off their rows."""
    pairs, counts = np.unique(ended.rows * PAIR + ended.cells, return_counts=True)
    for pair, number in zip(pairs.tolist(), counts.tolist(), strict=True):
        row, cell = divmod(pair, PAIR)
        outstanding = rows[row].outstanding
        outstanding[cell] -= number
        if not outstanding[cell]:
            del outstanding[cell]
    queue.record_chunk(ended.cells, ended.trials, ended.results, busy, executed)
