"""The Monte-Carlo engine: cells x trials on all devices, in threads, processes or machines, stored
cell by cell."""

import contextlib
import json
import os
import queue as queues
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from jaxht._checks import check_count
from jaxht._repr import describe
from jaxht.sweep.compilation import ProgramCache, Sweep, count_workers
from jaxht.sweep.grid import CellTrials, Grid, GridCell, Indices, Results, Value
from jaxht.sweep.progress import COMPILING, Progress
from jaxht.sweep.protocol import FunctionRun, Run, Trial
from jaxht.sweep.scheduler import TIMED_OUT_AFTER, Queue, run_pool
from jaxht.sweep.store import Store, StoreError, import_xarray, read_axes

if TYPE_CHECKING:
    import xarray

OnProgress = Callable[[Progress], None]


@runtime_checkable
class Executor(Protocol):
    """What runs tasks elsewhere: an executor of ``concurrent.futures``, of Dask, of submitit, of
    mpi4py ..."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Begin ``fn(*args)``; returns a future with a method ``result()``."""
        ...


def run(
    trial: Trial | Run,
    axes: Mapping[str, Sequence[Value]],
    *,
    num_trials: int,
    seed: int = 0,
    static: Sequence[str] = (),
    round_up: Mapping[str, int] | None = None,
    problem: Sequence[str] | None = None,
    shared: Sequence[str] | None = None,
    where: Callable[[Mapping[str, Any]], bool] | None = None,
    store: str | os.PathLike[str] | None = None,
    attrs: Mapping[str, str | int | float] | None = None,
    mixed: bool = False,
    shard: tuple[int, int] = (0, 1),
    executor: Executor | None = None,
    num_tasks: int = 32,
    workers: int | None = None,
    max_lanes: int | None = None,
    trial_timeout: float | None = None,
    memory: int | None = None,
    on_progress: OnProgress | None = None,
) -> "xarray.Dataset":
    """Run trials in all cells of a grid, and return their results as labelled arrays.

    Trial t of a cell gets the key ``fold_in(fold_in(root, hash), t)`` with a stable hash of the
    cell's coordinates on the axes ``problem``. So cells that differ on other axes only (the solver,
    its k) see the same problems, and a finer grid, more trials or another solver change nothing
    that has been drawn. A lane whose trial ends takes over another, of the same cell first. The
    results of a cell are stored as soon as it is finished, and the same call continues from what is
    stored.

    A store grows: a call with more trials, with other values on an axis, or both, runs the trials
    that are not stored yet, and returns what it asks for; one that asks for less runs nothing. What
    determines the results stays: ``seed``, the names of the axes, ``static``, ``round_up``,
    ``problem``, ``shared``, and whether all values of a traced axis are integers. So does the
    trial, which is compared by its programs, one for each combination of static coordinates:
    another solver on an axis changes none of the others.

    Results are equal to the last bit whether a run is interrupted or not, however a store has
    grown, in any order, in any lane, by any number of shards, tasks, workers and devices, as long
    as machine, versions and ``max_lanes`` are the same. Otherwise the problems are the same, and
    results agree up to rounding.

    Args:
        trial: pure function (key, :class:`jaxht.sweep.Cell`) -> dict of scalars, numbers or booleans
            (bfloat16 and other floats that NumPy lacks are stored as float32); or a trial in
            steps (:class:`jaxht.sweep.Run`), such as a run of a solver,
            :class:`jaxht.sweep.Recovery`, whose lane is filled again when it ends.
        axes: name -> values: numbers, or strings for choices such as the solver. An integer beside
            other numbers must be one of JAX's default float.
        num_trials: of each cell.
        seed: of the root key.
        static: axes that choose shapes, such as n, or whose integers exceed int32; strings are
            static anyway, all others are traced (int32 if all values are integers, else JAX's
            default float). One compile for each
            combination of static coordinates.
        round_up: name -> step, for axes of integers whose trial pads: ``{"n": 64}`` makes n traced
            and ``cell.bounds["n"]`` the static n rounded up to a multiple of 64, with one compile
            for each bound instead of each n.
        problem: axes that identify the problems; None: all that hold numbers.
        shared: axes, of those in ``problem``, that identify what trials share through ``cell.key``;
            None: all of them. With ``["n"]`` one design serves all K; with ``[]`` trials of any
            cells fill the lanes of a row, as suits a design for each trial.
        where: coordinates -> whether to run the cell; None: all.
        store: folder of the results; None: none are stored.
        attrs: attributes of the results, such as a configuration. A store keeps those of the last
            call.
        mixed: continue a store that another machine, version or ``max_lanes`` began.
        shard: (i, m): run every m-th cell, from the i-th on. Processes that run the shards of one
            sweep share a store.
        executor: where to run tasks instead of here; its processes write to the store, so they must
            see its folder.
        num_tasks: how many to make.
        workers: pools of lanes in this process, each in a thread of its own; None: on a CPU one for
            each core, but no more than there are trials for, elsewhere one for each device; in the
            tasks of an executor one for each device in any case. Pools on one device share its
            memory.
        max_lanes: most lanes of a pool; None: as suits the device, on a CPU 32 or as many as take 8
            MiB, elsewhere 64 for each multiprocessor, such as 8192. Fewer where its memory is too
            small. A step costs as much whether all lanes have a trial or not: fewer suit a small
            sweep.
        trial_timeout: seconds that a trial may take once it has a lane, and that a call of the
            device may take; None: no limit. A trial in steps that takes longer is ended between two
            chunks of steps: its results are NaN, 0 or False, ``timed_out_after`` is the limit (NaN
            for all others), and it counts in no rate. A call that does not come back, since a step
            or the draw of a batch hangs, cannot be interrupted: TrialTimeout is raised, and what is
            missing of its cells is recorded in the same way. Which trials are ended depends on the
            clock. They run again under a longer limit, or none. Compiling is not limited.
        memory: bytes of each device that pools may be planned for, of which they take half at most;
            None: as many as the device has.
        on_progress: called with :class:`jaxht.sweep.Progress` at the start, where compiling begins
            and ends, and after every chunk of steps, by one thread at a time; see
            :func:`jaxht.sweep.progress_bar`.

    Returns:
        A Dataset with the results of the trials as variables over the axes and ``trial``; over the
        axes ``num_trials``, how many trials are there, and ``done``, whether all are; and as
        attributes ``attrs``, the seed, the versions and the device. :func:`load` returns all that a
        store holds.

    Raises:
        ValueError: for axes or options that cannot be right.
        TrialTimeout: for a call of the device that does not come back within ``trial_timeout``.
            What was stored is safe, and the same call, in a new process, goes on with the other
            cells.
        StoreError: for a store that holds another sweep, also where only the trial has changed (its
            code, tolerances, metrics or data), or that cannot be written.
        Exception: what a trial raises, with a note that names its cells.
        ImportError: without the extra ``jax-hard-thresholding[sweep]``.

    Cost: one compile for each combination of static coordinates, and little more than the steps of
    the trials: in the sweep of ``benchmarks/sweep.py`` 88 % of the steps of all lanes serve a
    running trial.

    Source: :func:`jaxht.sweep.stable_hash` for the keys of cells.

    Example:
        >>> import jax
        >>> from jaxht import sweep
        >>> def trial(key, cell):
        ...     return {"above": jax.random.uniform(key) > cell["p"]}
        >>> results = sweep.run(trial, {"p": [0.0, 0.5, 1.0]}, num_trials=100)
        >>> dict(results.sizes)
        {'p': 3, 'trial': 100}
        >>> results.above.sum("trial").values[[0, 2]].tolist()
        [100, 0]

        The store of a small sweep becomes that of a larger one:

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     small = sweep.run(trial, {"p": [0.0, 0.5, 1.0]}, num_trials=10, store=folder)
        ...     large = sweep.run(trial, {"p": [0.0, 0.25, 0.5, 1.0]}, num_trials=100, store=folder)
        >>> bool((large.above.sel(p=results.p) == results.above).all())
        True
    """
    import_xarray()
    is_pair = isinstance(shard, tuple | list) and len(shard) == 2
    if not (is_pair and all(isinstance(number, int) for number in shard)):
        raise ValueError(f"shard must be a pair of integers (i, m); got {shard}")
    first, every = shard
    if not 0 <= first < every:
        raise ValueError(f"shard must be (i, m) with 0 <= i < m; got {shard}")
    optional = {"workers": workers, "max_lanes": max_lanes, "memory": memory}
    given = {name: number for name, number in optional.items() if number is not None}
    for name, number in {"num_trials": num_trials, "num_tasks": num_tasks, **given}.items():
        check_count(name, number)
    if num_trials >= 2**31:
        raise ValueError(f"num_trials must be below 2^31; got {num_trials}")
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be an integer in [0, 2^32); got {seed}")
    num_trials = int(num_trials)
    seed = int(seed)
    if trial_timeout is not None and not trial_timeout > 0:
        raise ValueError(f"trial_timeout must be positive, or None; got {trial_timeout}")
    if not (isinstance(trial, Run) or callable(trial)):
        raise ValueError(f"trial must be a function (key, cell), or a Run; got {describe(trial)}")
    if not isinstance(axes, Mapping):
        raise ValueError(f"axes must map names to values; got {describe(axes)}")
    attrs = {name: _to_attribute(name, value) for name, value in (attrs or {}).items()}
    grid = Grid(
        axes, static, round_up, problem, shared, where, {} if store is None else read_axes(store)
    )
    one = trial if isinstance(trial, Run) else FunctionRun(trial)
    # What runs tasks shares out the cores by itself.
    workers = count_workers() if workers is None and executor is None else workers
    sweep = Sweep(one, grid, num_trials, seed, workers, max_lanes, trial_timeout, memory)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory()) if store is None else store
        programs = ProgramCache.find(sweep)
        programs.check_names(sweep)
        # A temporary folder has nothing to compare with.
        fingerprints = {} if store is None else programs.fingerprint(sweep)
        opened = Store(folder, sweep.describe(fingerprints, attrs), mixed)
        missing = _find_missing(sweep, grid.cells[first::every], opened)
        report = on_progress or (lambda progress: None)
        if executor is None:
            _run_here(sweep, missing, opened, report)
        else:
            _run_elsewhere(sweep, missing, opened, executor, num_tasks, report)
        return opened.collect(grid, num_trials)


def _to_attribute(name: str, value: Any) -> Any:
    """A value that JSON can hold, or ValueError."""
    value = value.item() if isinstance(value, np.generic) else value
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"attrs must hold what JSON can; {name!r} is {describe(value)}: give its text"
        ) from error
    return value


def _find_missing(sweep: Sweep, cells: Sequence[GridCell], store: Store) -> list[CellTrials]:
    """The trials of some cells that are not stored, or were ended by a shorter limit."""
    limit = np.inf if sweep.trial_timeout is None else sweep.trial_timeout
    found = []
    for cell in cells:
        is_missing = np.ones(sweep.num_trials, bool)
        if (record := store.read(cell)) is not None:
            limits = record.results.get(TIMED_OUT_AFTER, np.full(record.num_trials, limit))
            is_missing[: record.num_trials] = limits[: sweep.num_trials] < limit
        if is_missing.any():
            found.append(CellTrials(cell, np.flatnonzero(is_missing).astype(np.int32)))
    return found


def _run_here(
    sweep: Sweep, missing: Sequence[CellTrials], store: Store, report: OnProgress
) -> None:
    """Run some trials on the devices of this process."""
    programs = ProgramCache.find(sweep)
    # Cells whose trials have ended, errors, and None from each thread at its end: this thread
    # stores while the others go on.
    events: queues.SimpleQueue[_CellRecord | BaseException | None] = queues.SimpleQueue()

    def hand_over(*record: Any) -> None:
        events.put(_CellRecord(*record))

    queue = Queue(missing, hand_over, report, sweep.trial_timeout)

    def work(device: jax.Device) -> None:
        try:
            with sweep.in_thread(device):
                while (cell := queue.join_program()) is not None:
                    with queue.compiling():
                        program, pool = programs.get_pool(sweep, cell, device)
                    with _compiling_ahead(sweep, programs, queue, device, pool.ahead):
                        run_pool(program, pool, cell.program, sweep.seed, queue)
                    queue.leave_program(cell.program)
        except BaseException as error:
            queue.closed = True  # the others end after their chunk
            events.put(error)
        else:
            events.put(None)

    # Not those of an executor: the interpreter would wait at its end for one that does not come
    # back.
    devices = sweep.assign_devices()
    if devices[0].platform == "cpu":
        devices = devices[: max(1, sweep.count_pools(missing))]
    threads = [
        threading.Thread(target=work, args=[device], name="jaxht-sweep", daemon=True)
        for device in devices
    ]
    try:
        for thread in threads:
            thread.start()
        num_running = len(threads)
        while num_running:
            with contextlib.suppress(queues.Empty):
                event = events.get(timeout=min(1.0, queue.trial_timeout / 4))
                if isinstance(event, _CellRecord):
                    store.write(*event)
                elif event is not None:
                    raise event
                else:
                    num_running -= 1
            queue.check_calls()
    except BaseException as error:
        queue.closed = True
        for thread in threads:
            while thread.is_alive() and not queue.is_overdue(thread):
                thread.join(1.0)
        if not isinstance(error, StoreError):
            _store_rest(events, store)
        raise


class _CellRecord(NamedTuple):
    """A cell whose trials have ended."""

    cell: GridCell
    trials: Indices
    results: Results


def _store_rest(events: "queues.SimpleQueue[Any]", store: Store) -> None:
    """Store the cells that have been handed over."""
    while not events.empty():
        event = events.get()
        if isinstance(event, _CellRecord):
            store.write(*event)


@contextlib.contextmanager
def _compiling_ahead(
    sweep: Sweep, programs: ProgramCache, queue: Queue, device: jax.Device, ahead: bool
) -> Iterator[None]:
    """A context during which the program that a pool will run next is compiled."""
    cell = queue.find_next_program() if ahead else None
    if cell is None:
        yield
        return

    def compile_pool() -> None:
        # An error comes again where the program is needed.
        with contextlib.suppress(Exception), sweep.in_thread(device):
            programs.get_pool(sweep, cell, device)

    thread = threading.Thread(target=compile_pool, name="jaxht-compile", daemon=True)
    thread.start()
    yield
    thread.join()


def _run_elsewhere(
    sweep: Sweep,
    missing: Sequence[CellTrials],
    store: Store,
    executor: Executor,
    num_tasks: int,
    report: OnProgress,
) -> None:
    """Run some trials in tasks of neighbouring cells, which often share a program."""
    tasks = [
        list(task)
        for task in np.array_split(np.array(missing, object), min(num_tasks, len(missing)) or 1)
    ]
    progress = Progress(0, _count(missing))
    report(replace(progress, note=COMPILING if missing else ""))
    futures = [executor.submit(_run_task, sweep, task, store) for task in tasks]
    try:
        for future in futures:
            part = future.result()
            progress = progress.add(part.done, part.busy, part.executed)
            report(progress)
    except BaseException:
        for future in futures:
            if hasattr(future, "cancel"):
                future.cancel()
        raise


def _run_task(sweep: Sweep, task: Sequence[CellTrials], store: Store) -> Progress:
    """Run some trials in this process."""
    reports: list[Progress] = []
    # A scheduler gives the task of a process that has died to another one, which must not begin
    # anew.
    missing = _find_missing(sweep, [some.cell for some in task], store)
    _run_here(sweep, missing, store, reports.append)
    return reports[-1].add(_count(task) - _count(missing), 0, 0)


def _count(missing: Sequence[CellTrials]) -> int:
    return sum(len(some.trials) for some in missing)
