"""The Monte-Carlo engine: cells x trials on all devices, in threads, processes or machines, kept cell by cell."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np

from jaxht.sweep.grid import Grid, Place, Value
from jaxht.sweep.plan import Programs, Sweep
from jaxht.sweep.pool import Progress, Queue, run_pool
from jaxht.sweep.store import Store, load, require_xarray
from jaxht.sweep.trials import Run, Trial, Whole

if TYPE_CHECKING:
    import xarray

OnProgress = Callable[[Progress], None]


class Executor(Protocol):
    """What takes tasks elsewhere: an executor of ``concurrent.futures``, of Dask, of submitit, of mpi4py ..."""

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
    """Run trials in all cells of a grid.

    Trial t of a cell gets the key ``fold_in(fold_in(root, hash), t)``, with a stable hash of its coordinates on the
    axes ``problem``. So cells that differ on other axes only (the solver, its k) see the same problems, and a finer
    grid, more trials or another solver change nothing that has been drawn. Lanes whose trials end take others over, of
    the same cell first; the results of a cell are stored as soon as it is finished, and the same call goes on from what
    is stored.

    Equal are, to the last bit, the results of interrupted and uninterrupted runs, in any order, in any lane, by any
    number of shards, tasks, workers and devices, as long as machine, versions and ``max_lanes`` are the same. Else the
    problems are the same, and results agree but for rounding.

    Args:
        trial: pure function (key, cell) -> dict of scalars; or a trial in steps (:class:`jaxht.sweep.Run`), such as a
            solver run, :class:`jaxht.sweep.Recovery`, whose lane is filled again when it ends.
        axes: name -> values: numbers, or strings for choices such as the solver.
        num_trials: of each cell.
        seed: of the root key.
        static: axes that choose shapes, such as n; strings are static anyway, all others are traced. One compile for
            each combination of static coordinates.
        round_up: name -> step. For a trial that pads: ``{"n": 64}`` makes n traced and ``cell.bounds["n"]`` the
            static n rounded up to a multiple of 64, with one compile for each bound instead of each n.
        problem: axes that tell problems apart; None: all that hold numbers.
        shared: axes, of those, that tell apart what trials share through ``cell.key``; None: the same. With ``["n"]``
            one design serves all K; with ``[]`` trials of any cells fill the lanes, as suits a design for each trial.
        where: coordinates -> whether to run the cell; None: all.
        store: folder of the results; None: none are kept.
        attrs: attributes of the results, such as a configuration. A store with others is refused.
        mixed: go on with a store that another machine, version or ``max_lanes`` began.
        shard: (i, m): run every m-th cell, from the i-th on. Processes that run the shards of one sweep share a store.
        executor: where to run tasks instead of here; its processes write to the store, so they must see its folder.
        num_tasks: how many to make.
        workers: pools of lanes at work in this process, each in a thread of its own; None: one for each device. Pools
            on one device share its memory. On a CPU, one for each core pays. But XLA deadlocks when all threads of its
            own pool wait in large batched LAPACK calls (SVD, Cholesky ...): give it more of them before JAX starts, by
            the environment variable NPROC, say four times the cores.
        max_lanes: most lanes of a pool; None: as suits the device. Fewer where its memory is too small.
        on_progress: called with :class:`jaxht.sweep.Progress` at the start and after every turn, by one thread at a
            time; see :func:`jaxht.sweep.progress_bar`.

    Returns:
        A Dataset with the results of the trials as variables over the axes and ``trial``, with ``done`` over the axes,
        and as attributes ``attrs``, the seed, the versions and the device.

    Raises:
        ValueError: for axes or options that cannot be right.
        StoreError: for a store that holds something else, or that cannot be written.
        ImportError: without the extra ``jaxht[sweep]``.
    """
    require_xarray()
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
    steps = trial if isinstance(trial, Run) else Whole(trial)
    sweep = Sweep(steps, grid, num_trials, seed, workers, max_lanes)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory()) if store is None else store
        programs = Programs.of(sweep)
        programs.check(sweep)
        # A folder of our own has nothing to compare with, and lowering takes time.
        program = "" if store is None else programs.fingerprint(sweep)
        kept = Store(folder, sweep.described(attrs or {}), sweep.environment(), program, mixed)
        places = [place for place in grid.places[first::every] if kept.read(place.index) is None]
        report = on_progress or (lambda progress: None)
        if executor is None:
            _compute(sweep, places, kept, report)
        else:
            _distribute(sweep, places, kept, executor, num_tasks, report)
        return load(folder)


def _compute(sweep: Sweep, places: Sequence[Place], store: Store, report: OnProgress) -> None:
    """Run some cells on the devices of this process."""
    programs = Programs.of(sweep)
    queue = Queue(places, sweep.num_trials, lambda place, results: store.write(place.index, results), report)

    def work(device: jax.Device) -> None:
        # Both hold for one thread.
        with jax.default_device(device), _precision(sweep.float64):
            try:
                while (place := queue.program()) is not None:
                    run_pool(*programs.pool(sweep, place, device), place.program, sweep.seed, queue)
                    queue.leave(place.program)
            except BaseException:
                queue.closed = True  # the others end after their turn
                raise

    devices = sweep.devices()
    with ThreadPoolExecutor(len(devices), "jaxht-sweep") as threads:
        try:
            for future in as_completed([threads.submit(work, device) for device in devices]):
                future.result()
        except BaseException:
            queue.closed = True
            raise


def _distribute(
    sweep: Sweep, places: Sequence[Place], store: Store, executor: Executor, num_tasks: int, report: OnProgress
) -> None:
    """Run some cells elsewhere, in tasks of neighbouring ones, which often share a program."""
    tasks = [list(task) for task in np.array_split(np.array(places, object), min(num_tasks, len(places)) or 1)]
    progress = Progress(0, len(places) * sweep.num_trials)
    report(progress)
    for future in [executor.submit(_task, sweep, task, store) for task in tasks]:
        part = future.result()
        progress = progress.plus(part.done, part.lived, part.executed)
        report(progress)


def _task(sweep: Sweep, places: Sequence[Place], store: Store) -> Progress:
    """Run some cells in this process."""
    reports: list[Progress] = []
    _compute(sweep, places, store, reports.append)
    return reports[-1]


def _precision(float64: bool) -> contextlib.AbstractContextManager[None]:
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(float64)
    from jax.experimental import enable_x64  # type: ignore[attr-defined]  # JAX before 0.8

    return enable_x64(float64)
