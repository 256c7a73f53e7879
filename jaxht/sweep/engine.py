"""The Monte-Carlo engine: cells x trials on all devices, in threads, processes or machines, stored cell by cell."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np

from jaxht.sweep.compilation import ProgramCache, Sweep
from jaxht.sweep.grid import Grid, GridCell, Value
from jaxht.sweep.progress import COMPILING, Progress
from jaxht.sweep.scheduler import Queue, run_pool
from jaxht.sweep.store import Store, import_xarray, load
from jaxht.sweep.trials import FunctionRun, Run, Trial

if TYPE_CHECKING:
    import xarray

OnProgress = Callable[[Progress], None]


class Executor(Protocol):
    """What runs tasks elsewhere: an executor of ``concurrent.futures``, of Dask, of submitit, of mpi4py ..."""

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
    on_progress: OnProgress | None = None,
) -> "xarray.Dataset":
    """Run trials in all cells of a grid, and return their results as labelled arrays.

    Trial t of a cell gets the key ``fold_in(fold_in(root, hash), t)`` with a stable hash of the cell's coordinates on
    the axes ``problem``. So cells that differ on other axes only (the solver, its k) see the same problems, and a finer
    grid, more trials or another solver change nothing that has been drawn. A lane whose trial ends takes over another,
    of the same cell first. The results of a cell are stored as soon as it is finished, and the same call continues from
    what is stored.

    Results are equal to the last bit whether a run is interrupted or not, in any order, in any lane, by any number of
    shards, tasks, workers and devices, as long as machine, versions and ``max_lanes`` are the same. Otherwise the
    problems are the same, and results agree up to rounding.

    Args:
        trial: pure function (key, :class:`jaxht.sweep.Cell`) -> dict of scalars; or a trial in steps
            (:class:`jaxht.sweep.Run`), such as a run of a solver, :class:`jaxht.sweep.Recovery`, whose lane is filled
            again when it ends.
        axes: name -> values: numbers, or strings for choices such as the solver.
        num_trials: of each cell.
        seed: of the root key.
        static: axes that choose shapes, such as n; strings are static anyway, all others are traced (int32 if all
            values are integers, else JAX's default float). One compile for each combination of static coordinates.
        round_up: name -> step, for axes of integers whose trial pads: ``{"n": 64}`` makes n traced and
            ``cell.bounds["n"]`` the static n rounded up to a multiple of 64, with one compile for each bound instead
            of each n.
        problem: axes that identify the problems; None: all that hold numbers.
        shared: axes, of those in ``problem``, that identify what trials share through ``cell.key``; None: all of them.
            With ``["n"]`` one design serves all K; with ``[]`` trials of any cells fill the lanes of a row, as suits
            a design for each trial.
        where: coordinates -> whether to run the cell; None: all.
        store: folder of the results; None: none are stored.
        attrs: attributes of the results, such as a configuration. A store with others is refused.
        mixed: continue a store that another machine, version or ``max_lanes`` began.
        shard: (i, m): run every m-th cell, from the i-th on. Processes that run the shards of one sweep share a store.
        executor: where to run tasks instead of here; its processes write to the store, so they must see its folder.
        num_tasks: how many to make.
        workers: pools of lanes in this process, each in a thread of its own; None: one for each device. Pools on one
            device share its memory. On a CPU, one for each core pays. But XLA deadlocks when all threads of its own
            pool wait in large batched LAPACK calls (SVD, Cholesky ...): give it more of them before JAX starts, by
            the environment variable NPROC, say four times the cores.
        max_lanes: most lanes of a pool; None: as suits the device. Fewer where its memory is too small.
        on_progress: called with :class:`jaxht.sweep.Progress` at the start, where compiling begins and ends, and after
            every chunk of steps, by one thread at a time; see :func:`jaxht.sweep.progress_bar`.

    Returns:
        A Dataset with the results of the trials as variables over the axes and ``trial``, with ``done`` over the axes,
        and as attributes ``attrs``, the seed, the versions and the device.

    Raises:
        ValueError: for axes or options that cannot be right.
        StoreError: for a store that holds something else, or that cannot be written.
        ImportError: without the extra ``jax-hard-thresholding[sweep]``.

    Cost: one compile for each combination of static coordinates, and little more than the steps of the trials: in the
    sweep of ``benchmarks/sweep.py`` 88 % of the steps of all lanes serve a running trial.

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
    """
    import_xarray()
    first, every = shard
    if not 0 <= first < every:
        raise ValueError(f"shard must be (i, m) with 0 <= i < m; got {shard}")
    for name, number in {
        "num_trials": num_trials,
        "num_tasks": num_tasks,
        "workers": workers,
        "max_lanes": max_lanes,
    }.items():
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1; got {number}")
    grid = Grid(axes, static, round_up, problem, shared, where)
    sweep = Sweep(trial if isinstance(trial, Run) else FunctionRun(trial), grid, num_trials, seed, workers, max_lanes)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory()) if store is None else store
        programs = ProgramCache.find(sweep)
        programs.check_names(sweep)
        # A temporary folder has nothing to compare with, and lowering takes time.
        fingerprint = "" if store is None else programs.fingerprint(sweep)
        opened = Store(folder, sweep.describe(attrs or {}), sweep.describe_environment(), fingerprint, mixed)
        cells = [cell for cell in grid.cells[first::every] if opened.read(cell.index) is None]
        report = on_progress or (lambda progress: None)
        if executor is None:
            _run_here(sweep, cells, opened, report)
        else:
            _run_elsewhere(sweep, cells, opened, executor, num_tasks, report)
        return load(folder)


def _run_here(sweep: Sweep, cells: Sequence[GridCell], store: Store, report: OnProgress) -> None:
    """Run some cells on the devices of this process."""
    programs = ProgramCache.find(sweep)
    queue = Queue(cells, sweep.num_trials, lambda cell, results: store.write(cell.index, results), report)

    def work(device: jax.Device) -> None:
        # Both hold for one thread.
        with jax.default_device(device), _set_precision(sweep.float64):
            try:
                while (cell := queue.join_program()) is not None:
                    with queue.compiling():
                        program, pool = programs.get_pool(sweep, cell, device)
                    run_pool(program, pool, cell.program, sweep.seed, queue)
                    queue.leave_program(cell.program)
            except BaseException:
                queue.closed = True  # the others end after their chunk
                raise

    devices = sweep.assign_devices()
    with ThreadPoolExecutor(len(devices), "jaxht-sweep") as threads:
        try:
            for future in as_completed([threads.submit(work, device) for device in devices]):
                future.result()
        except BaseException:
            queue.closed = True
            raise


def _run_elsewhere(
    sweep: Sweep, cells: Sequence[GridCell], store: Store, executor: Executor, num_tasks: int, report: OnProgress
) -> None:
    """Run some cells in tasks of neighbouring ones, which often share a program."""
    tasks = [list(task) for task in np.array_split(np.array(cells, object), min(num_tasks, len(cells)) or 1)]
    progress = Progress(0, len(cells) * sweep.num_trials)
    report(replace(progress, note=COMPILING if cells else ""))
    for future in [executor.submit(_run_task, sweep, task, store) for task in tasks]:
        part = future.result()
        progress = progress.add(part.done, part.busy, part.executed)
        report(progress)


def _run_task(sweep: Sweep, cells: Sequence[GridCell], store: Store) -> Progress:
    """Run some cells in this process."""
    reports: list[Progress] = []
    _run_here(sweep, cells, store, reports.append)
    return reports[-1]


def _set_precision(float64: bool) -> contextlib.AbstractContextManager[None]:
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(float64)
    from jax.experimental import enable_x64  # type: ignore[attr-defined]  # JAX before 0.8

    return enable_x64(float64)
