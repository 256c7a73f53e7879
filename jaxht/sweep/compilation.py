"""What a sweep compiles: one program for cells that agree on all that is static, as a pool that fits each device."""

import hashlib
import itertools
import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxht.sweep._provenance import describe_environment
from jaxht.sweep.grid import Grid, GridCell
from jaxht.sweep.program import Pool, Program
from jaxht.sweep.trials import FunctionRun, Run

T = TypeVar("T")

# Names that a trial must not return: the store and its Dataset use them.
RESERVED = {"trial", "done", "file", "fingerprint", "checksum", "timed_out_after"}

# (least lanes of a row, most lanes of a pool). On a CPU a step costs as much per lane in blocks of 8 as of 1000
# (measured, d = 256), and short rows have short ends; an accelerator needs many lanes.
LANES = {"cpu": (8, 32)}
LANES_ELSEWHERE = (128, 8192)
# A row ends with lanes that wait for its slowest: it should see this many generations of trials.
GENERATIONS = 32
# Most trials that are drawn at once, in lanes of a row.
MAX_STAGED = 8
# Of the memory of a device, for its pools.
MEMORY_SHARE = 0.5
# Most compiled pools, for each device, and most traced programs that a process keeps: a pool takes 3 MiB (measured, a
# small trial on a CPU), a program next to nothing. A sweep needs a pool no more once the cells of its program are done.
MAX_POOLS, MAX_PROGRAMS = 64, 2048
# Of a lane in memory: one runs, one is staged, and a step makes more. A guess, corrected by what the compiler says.
COPIES = 4


@dataclass(frozen=True)
class PoolLimits:
    """How many lanes a pool may have. The last bits of a result may depend on it.

    Attributes:
        row_lanes_min: least lanes of a row.
        lanes_max: most lanes of a pool.
        memory: bytes that a pool may take.
    """

    row_lanes_min: int
    lanes_max: int
    memory: int

    @classmethod
    def for_device(cls, device: jax.Device, num_pools: int, max_lanes: int | None = None) -> "PoolLimits":
        """The limits of each of several pools on one device."""
        least, most = LANES.get(device.platform, LANES_ELSEWHERE)
        most = most if max_lanes is None else max_lanes
        memory = (device.memory_stats() or {}).get("bytes_limit") or _host_memory()
        return cls(min(least, most), most, int(MEMORY_SHARE * memory / num_pools))

    def choose_shape(
        self, num_trials: int, num_cells: int, num_groups: int, row_bytes: int, lane_bytes: int
    ) -> tuple[int, int, int]:
        """Rows and lanes of a pool, and how many trials are drawn at once.

        Args:
            num_trials: of a cell.
            num_cells: of a group; its cells share what a row holds.
            num_groups: how many groups there are.
            row_bytes, lane_bytes: memory of what a row holds once, and of a lane.
        """
        most = max(1, min(self.lanes_max, self.memory // (COPIES * max(1, lane_bytes))))
        lanes = min(self.row_lanes_min, most)
        # A single group is held by one row, which ends once: it may be as wide as to hold all trials.
        trials = num_trials * num_cells
        widest = 2 * trials - 1 if num_groups == 1 else trials // GENERATIONS
        while 2 * lanes <= min(most, widest):
            lanes *= 2
        # What is shared is drawn again for each batch: it should pay. Small batches are shared better at the end.
        staged = min(MAX_STAGED, num_trials // (4 * lanes)) if row_bytes > lane_bytes else 1
        return max(1, min(most // lanes, num_groups)), lanes, lanes * max(1, staged)


def count_workers() -> int | None:
    """How many pools a process should have: one for each core that it may use on a CPU, else (None) one a device."""
    if jax.default_backend() != "cpu":
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(cores, len(jax.local_devices()))


def _host_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@dataclass(frozen=True)
class Sweep:
    """What a process needs to know to run some cells."""

    run: Run
    grid: Grid
    num_trials: int
    seed: int
    workers: int | None
    max_lanes: int | None
    trial_timeout: float | None = None
    float64: bool = field(default_factory=lambda: jnp.result_type(float) == jnp.float64)
    # Identifies the sweep in processes that get a copy with each task.
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def describe(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """What determines the results up to rounding, but for the trial itself, as JSON."""
        grid = self.grid
        cells = [cell.index for cell in grid.cells]
        return {
            "axes": grid.axes,
            "problem": grid.problem,
            "shared": grid.shared,
            **({} if len(cells) == np.prod([*map(len, grid.axes.values())]) else {"cells": cells}),
            "num_trials": self.num_trials,
            "seed": self.seed,
            "attrs": dict(attrs),
        }

    def describe_environment(self) -> dict[str, Any]:
        """What the last bits may depend on, as JSON."""
        limits = self.find_limits(jax.local_devices()[0])
        return {**describe_environment(), "lanes": [limits.row_lanes_min, limits.lanes_max]}

    def assign_devices(self) -> list[jax.Device]:
        """The device of each pool."""
        devices = jax.local_devices()
        return list(itertools.islice(itertools.cycle(devices), self.workers or len(devices)))

    def count_pools(self, cells: Sequence[GridCell]) -> int:
        """How many pools can be of use to some cells, on a CPU: as many as their trials fill, of each program."""
        limits = self.find_limits(jax.local_devices()[0])
        sizes = Counter(cell.program for cell in cells).values()
        return sum(-(-size * self.num_trials // limits.lanes_max) for size in sizes)

    def find_limits(self, device: jax.Device) -> PoolLimits:
        """How many lanes a pool on the device may have."""
        num_pools = -(-len(self.assign_devices()) // len(jax.local_devices()))
        return PoolLimits.for_device(device, num_pools, self.max_lanes)


class OnceCache(Generic[T]):
    """Values by key, each made by the first thread that asks for it. Those that were used longest ago are dropped.

    Args:
        max_size: most values that are kept.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._lock = threading.Lock()
        self._made: dict[Hashable, Future[T]] = {}  # the one used last at the end

    def __len__(self) -> int:
        return len(self._made)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key; where there is none, what ``make`` returns."""
        with self._lock:
            is_first = key not in self._made
            future = self._made[key] = Future() if is_first else self._made.pop(key)
            for oldest in list(self._made)[: -self._max_size]:
                del self._made[oldest]
        if is_first:
            try:
                future.set_result(make())
            except BaseException as error:
                with self._lock:
                    self._made.pop(key, None)
                future.set_exception(error)
        return future.result()


class ProgramCache:
    """What is traced and compiled for a trial, each once, by the first thread that needs it."""

    def __init__(self, sweep: Sweep) -> None:
        self._id, self._run = sweep.id, sweep.run
        self.programs: OnceCache[Program] = OnceCache(MAX_PROGRAMS)
        self.fingerprints: OnceCache[str] = OnceCache(MAX_PROGRAMS)
        self.pools: OnceCache[Pool] = OnceCache(MAX_POOLS * len(jax.local_devices()))

    @classmethod
    def find(cls, sweep: Sweep) -> "ProgramCache":
        """The cache of the trial that ran last in this process, if it is the same; else a new one."""
        latest = _LATEST[:]  # another thread may run another sweep
        if not (latest and latest[0].serves(sweep)):
            _LATEST[:] = latest = [cls(sweep)]
        return latest[0]

    def get_program(self, sweep: Sweep, cell: GridCell) -> Program:
        """The program of the cells that agree with one on all that is static."""
        key, dtypes = self._describe_program(sweep, cell)
        return self.programs.get(key, lambda: Program(self._run, cell, dtypes, sweep.grid.shared))

    def _describe_program(self, sweep: Sweep, cell: GridCell) -> tuple[Hashable, dict[str, Any]]:
        """What a program depends on, and the dtypes of its traced coordinates."""
        axes = {name: values for name, values in sweep.grid.axes.items() if name not in sweep.grid.static}
        integral = {name: all(isinstance(value, int) for value in values) for name, values in axes.items()}
        dtypes = {name: np.int32 if integral[name] else jnp.result_type(float) for name in axes}
        return (cell.program, tuple(dtypes.items()), tuple(sweep.grid.shared), sweep.float64), dtypes

    def get_pool(self, sweep: Sweep, cell: GridCell, device: jax.Device) -> tuple[Program, Pool]:
        """The same, compiled for a device, as large as suits it and as its memory allows."""
        program, limits = self.get_program(sweep, cell), sweep.find_limits(device)
        groups = Counter(other.shared for other in sweep.grid.cells if other.program == cell.program)
        sizes = sweep.num_trials, max(groups.values()), len(groups)
        shape = limits.choose_shape(*sizes, program.row_bytes, program.lane_bytes)

        def compile_pool() -> Pool:
            pool = program.compile(*shape)
            while pool.memory > limits.memory and pool.rows * pool.lanes > 1:
                rows, lanes = (pool.rows // 2, pool.lanes) if pool.rows > 1 else (1, pool.lanes // 2)
                pool = program.compile(rows, lanes, lanes)
            return pool

        key, _ = self._describe_program(sweep, cell)
        return program, self.pools.get((key, shape, limits.memory, device), compile_pool)

    def check_names(self, sweep: Sweep) -> None:
        """Raise ValueError where a result has a name that is taken."""
        for cell in _list_programs(sweep):
            program = self.get_program(sweep, cell)
            if taken := {*sweep.grid.axes, *RESERVED}.intersection(program.results):
                raise ValueError(f"a trial must not return {min(taken)!r}: it is the name of an axis, or reserved")

    def fingerprint(self, sweep: Sweep) -> str:
        """Hash what all cells compute."""

        def find(cell: GridCell) -> str:
            key, _ = self._describe_program(sweep, cell)
            return self.fingerprints.get(key, lambda: self.get_program(sweep, cell).fingerprint())

        prints = [find(cell) for cell in _list_programs(sweep)]
        return hashlib.sha256(" ".join(prints).encode()).hexdigest()

    def serves(self, sweep: Sweep) -> bool:
        """Whether this is the cache of the sweep's trial."""
        # A task brings a copy of the trial; the id of its sweep identifies it.
        mine, other = (run.trial if isinstance(run, FunctionRun) else run for run in (self._run, sweep.run))
        return mine is other or self._id == sweep.id


def _list_programs(sweep: Sweep) -> list[GridCell]:
    """A cell of each program."""
    return list({cell.program: cell for cell in sweep.grid.cells}.values())


_LATEST: list[ProgramCache] = []


def clear_cache() -> None:
    """Forget what the last sweep of this process has traced and compiled, and the trial with its data.

    It is kept for another sweep of the same trial: for each device the 64 programs that were used last. What JAX itself
    keeps, ``jax.clear_caches()`` clears.

    Cost: the next sweep compiles anew.

    Example:
        >>> from jaxht import sweep
        >>> sweep.clear_cache()
    """
    _LATEST.clear()
