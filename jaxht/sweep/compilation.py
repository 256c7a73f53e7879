"""What a sweep compiles: one program for cells that agree on all that is static, as a pool that
fits each device."""

import contextlib
import itertools
import math
import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._settings import Settings, current_settings, use_settings
from jaxht._snapshot import tracing_context
from jaxht.linalg.full_precision import default_precision
from jaxht.sweep._provenance import describe_environment
from jaxht.sweep.grid import RESERVED, CellTrials, Grid, GridCell
from jaxht.sweep.pool import Pool
from jaxht.sweep.program import Program
from jaxht.sweep.protocol import FunctionRun, Run

__all__ = ["clear_cache"]

T = TypeVar("T")

# (lanes of a row, lanes of a pool). On a CPU a step costs as much per lane in blocks of 8 as of
# 1000 (measured, d = 256), and short rows have short ends; an accelerator needs many lanes.
LANES = {"cpu": (8, 32)}
ROW_LANES_ELSEWHERE = 128
# For each multiprocessor of an accelerator, of which it may not say the number: a step of fewer
# lanes takes hardly less time, since most of it goes into starting kernels (measured, 132 of them).
LANES_OF_PROCESSOR = 64
NUM_PROCESSORS = 128
# Batches of trials for a row which shares a design, in lanes of the row. The design is drawn again
# for each batch: that costs as much as drawing 12 trials (measured, 136 x 256).
SHARED_BATCH = 2
# Bytes of the lanes of a pool, which a step goes through, on a CPU: more do not stay in its cache.
# Lanes of 2 MB took 60 % less time a trial by four than by 32, those of 16 MB a half by one
# (measured, NIHT with a design for each trial), those of 128 x 256 in float32 as much by 4 as by 32.
CACHE = {"cpu": 2**23}
# Of the memory of a device, for its pools.
MEMORY_SHARE = 0.5
# Of a lane in memory: one runs, one is staged, and a step makes more. A guess, corrected by what
# the compiler says.
COPIES = 4


@dataclass(frozen=True)
class PoolLimits:
    """How large a pool may be. The last bits of a result may depend on it."""

    row_lanes: int  # lanes of a row
    lanes_max: int  # most lanes of a pool
    memory: int  # bytes that a pool may take
    cache: float = math.inf  # bytes that its lanes should take, where there is more than one
    # Whether the next chunk is submitted before the last one is read, and the next program compiled
    # while this one runs: on a CPU the host would take the time from the device.
    ahead: bool = False

    @classmethod
    def for_device(
        cls,
        device: jax.Device,
        num_pools: int,
        max_lanes: int | None = None,
        memory: int | None = None,
    ) -> "PoolLimits":
        """The limits of each of several pools on one device, of so many bytes or as it says."""
        ahead = device.platform not in LANES
        row_lanes, most = _count_lanes(device) if ahead else LANES[device.platform]
        cache = CACHE.get(device.platform, math.inf)
        if max_lanes is not None:
            most, cache = max_lanes, math.inf
        if memory is None:
            memory = (device.memory_stats() or {}).get("bytes_limit") or _host_memory()
        share = int(MEMORY_SHARE * memory / num_pools)
        return cls(min(row_lanes, most), most, share, cache, ahead)

    def choose_shape(
        self, in_one_row: bool, row_bytes: int, lane_bytes: int
    ) -> tuple[int, int, int]:
        """Rows and lanes of a pool, and how many trials can wait in a row.

        It depends neither on the number of trials nor on that of cells, so that a sweep that grows
        has the same bits.
        """
        room = min(self.memory // COPIES, self.cache)
        most = max(1, min(self.lanes_max, int(room // max(1, lane_bytes))))
        lanes = most if in_one_row else min(self.row_lanes, most)
        slots = lanes if in_one_row or row_bytes <= lane_bytes else SHARED_BATCH * lanes
        return most // lanes, lanes, slots


def _count_lanes(device: jax.Device) -> tuple[int, int]:
    """Lanes of a row and of a pool on an accelerator: so many full rows as its multiprocessors
    suit."""
    processors = getattr(device, "core_count", None) or NUM_PROCESSORS
    # A power of two: kernels take such shapes as they are.
    most = 2 ** int(math.log2(max(1, LANES_OF_PROCESSOR * processors)))
    return ROW_LANES_ELSEWHERE, max(ROW_LANES_ELSEWHERE, most)


def count_workers() -> int | None:
    """How many pools a process should have: on a CPU one a core, else (None) one a device."""
    if jax.default_backend() != "cpu":
        return None
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
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
    memory: int | None = None  # bytes of each device; None: as many as it has
    float64: bool = field(default_factory=lambda: jnp.result_type(float) == jnp.float64)
    settings: Settings = field(default_factory=current_settings)  # those of the caller
    # Identifies the sweep in processes that get a copy with each task.
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def describe(self, programs: Mapping[str, str], attrs: Mapping[str, Any]) -> dict[str, Any]:
        """The manifest of this call: see :class:`jaxht.sweep.store.Store`.

        Its ``sweep`` determines the results up to rounding but for the trial itself, of which
        ``programs`` has fingerprints; the last bits may depend on ``environment``.
        """
        grid = self.grid
        limits = self.find_limits(jax.local_devices()[0])
        integers = [name for name, is_integer in grid.integer.items() if is_integer]
        return {
            "sweep": {
                "names of axes": sorted(grid.axes),
                "axes of integers": sorted(integers),
                "static": sorted(grid.static),
                "round_up": grid.round_up,
                "problem": sorted(grid.problem),
                "shared": sorted(grid.shared),
                "seed": self.seed,
            },
            "environment": {
                **describe_environment(),
                "lanes": [limits.row_lanes, limits.lanes_max],
            },
            "programs": dict(programs),
            "axes": grid.axes,
            "num_trials": self.num_trials,
            "attrs": dict(attrs),
        }

    @contextlib.contextmanager
    def in_thread(self, device: jax.Device) -> Iterator[None]:
        """A context of a thread in which the settings of the caller hold."""
        with (
            jax.default_device(device),
            default_precision(self.float64),
            use_settings(self.settings),
        ):
            yield

    def assign_devices(self) -> list[jax.Device]:
        """The device of each pool."""
        devices = jax.local_devices()
        return list(itertools.islice(itertools.cycle(devices), self.workers or len(devices)))

    def count_pools(self, missing: Sequence[CellTrials]) -> int:
        """How many pools can be of use to some trials, on a CPU: as many as they fill, of each
        program."""
        limits = self.find_limits(jax.local_devices()[0])
        sizes: Counter[Hashable] = Counter()
        for some in missing:
            sizes[some.cell.program] += len(some.trials)
        return sum(-(-size // limits.lanes_max) for size in sizes.values())

    def find_limits(self, device: jax.Device) -> PoolLimits:
        """How many lanes a pool on the device may have."""
        num_pools = -(-len(self.assign_devices()) // len(jax.local_devices()))
        return PoolLimits.for_device(device, num_pools, self.max_lanes, self.memory)


class OnceCache(Generic[T]):
    """Values by key, each made by the first thread that asks for it. Those that were used longest
    ago are dropped.

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


# Most compiled pools, for each device, and most traced programs that a process keeps: a pool takes
# 3 MiB (measured, a small trial on a CPU), a program next to nothing. A sweep needs a pool no more
# once the cells of its program are done.
MAX_POOLS = 64
MAX_PROGRAMS = 2048


# In which a thread traces for the sweep of an id.
_tracing_for = tracing_context()


class ProgramCache:
    """What is traced and compiled for a sweep, each once, by the first thread that needs it.

    Each sweep traces its trial anew, since what a function refers to may have changed: globals,
    attributes, entries of arrays. The compiled pools serve all sweeps of a trial, each those whose
    programs compute what its own do.

    Args:
        sweep: whose programs these are.
        max_pools: most compiled pools that are kept for each device.
        max_programs: most traced programs that are kept.
        pools: those of an earlier sweep of the trial.
    """

    def __init__(
        self,
        sweep: Sweep,
        max_pools: int = MAX_POOLS,
        max_programs: int = MAX_PROGRAMS,
        pools: OnceCache[Pool] | None = None,
    ) -> None:
        self._id = sweep.id
        self._run = sweep.run
        self.programs: OnceCache[Program] = OnceCache(max_programs)
        self.pools = pools or OnceCache[Pool](max_pools * len(jax.local_devices()))

    @classmethod
    def find(cls, sweep: Sweep) -> "ProgramCache":
        """The cache of a sweep: that which was found last, if it is of the sweep; else a new one,
        with the pools of that if it is of the same trial."""
        latest = _LATEST[0] if _LATEST else None
        if latest is not None and latest.serves(sweep):
            return latest
        pools = None if latest is None else latest.share_pools(sweep)
        found = cls(sweep, pools=pools)
        _LATEST[:] = [found]
        return found

    def get_program(self, sweep: Sweep, cell: GridCell) -> Program:
        """The program of the cells that agree with one on all that is static."""
        key, dtypes = self._describe_program(sweep, cell)

        def trace_program() -> Program:
            with self._tracing(cell):
                return Program(self._run, cell, dtypes, sweep.grid.shared)

        return self.programs.get(key, trace_program)

    def _describe_program(self, sweep: Sweep, cell: GridCell) -> tuple[Hashable, dict[str, Any]]:
        """What a program depends on, and the dtypes of its traced coordinates."""
        dtypes = {
            name: np.int32 if is_integer else jnp.result_type(float)
            for name, is_integer in sweep.grid.integer.items()
        }
        settings = sweep.float64, sweep.settings
        key = cell.program, tuple(dtypes.items()), tuple(sweep.grid.shared), settings
        return key, dtypes

    def get_pool(self, sweep: Sweep, cell: GridCell, device: jax.Device) -> tuple[Program, Pool]:
        """The same, compiled for a device, as large as suits it and as its memory allows."""
        program = self.get_program(sweep, cell)
        limits = sweep.find_limits(device)
        shape = limits.choose_shape(not sweep.grid.shared, program.row_bytes, program.lane_bytes)

        def compile_pool() -> Pool:
            with self._tracing(cell):
                pool = program.compile(*shape, limits.ahead)
                while pool.memory > limits.memory and pool.rows * pool.lanes > 1:
                    rows = max(1, pool.rows // 2)
                    lanes = pool.lanes if pool.rows > 1 else pool.lanes // 2
                    pool = program.compile(rows, lanes, lanes, limits.ahead)
            return pool

        key, _ = self._describe_program(sweep, cell)
        with self._tracing(cell):
            key = key, program.reuse_key, shape, limits, device
        return program, self.pools.get(key, compile_pool)

    def check_names(self, sweep: Sweep) -> None:
        """Raise ValueError where a result has a name that is taken."""
        for cell in _list_programs(sweep):
            program = self.get_program(sweep, cell)
            if taken := {*sweep.grid.axes, *RESERVED}.intersection(program.results):
                raise ValueError(
                    f"a trial must not return {min(taken)!r}: it is the name of an axis, or "
                    "reserved"
                )

    def fingerprint(self, sweep: Sweep) -> dict[str, str]:
        """Hash what each program computes, by name."""
        found = {}
        for cell in _list_programs(sweep):
            program = self.get_program(sweep, cell)
            with self._tracing(cell):
                found[cell.program_name] = program.fingerprint
        return found

    @contextlib.contextmanager
    def _tracing(self, cell: GridCell) -> Iterator[None]:
        """A context in which the trial is traced for the program of a cell: anew, and an error names
        the cells."""
        try:
            with _tracing_for(self._id):
                yield
        except Exception as error:
            error.add_note(f"in the trial of a sweep, traced for {_describe_cells(cell)}")
            raise

    def serves(self, sweep: Sweep) -> bool:
        """Whether this is the cache of the sweep."""
        # A task brings a copy of the trial; the id of its sweep identifies it.
        return self._id == sweep.id

    def share_pools(self, sweep: Sweep) -> OnceCache[Pool] | None:
        """The pools, if the sweep is of the same trial."""
        return self.pools if _trial_of(self._run) is _trial_of(sweep.run) else None


def _trial_of(run: Run) -> Any:
    return run.trial if isinstance(run, FunctionRun) else run


def _describe_cells(cell: GridCell) -> str:
    """The cells for which a program is traced, in words: those that agree on all that is static."""
    if not cell.static and not cell.bounds:
        return "all cells"
    return f"the cells with {cell.program_name}"


def _list_programs(sweep: Sweep) -> list[GridCell]:
    """A cell of each program."""
    return list({cell.program: cell for cell in sweep.grid.cells}.values())


_LATEST: list[ProgramCache] = []


def clear_cache() -> None:
    """Forget what the last sweep of this process has traced and compiled, and the trial with its
    data.

    The cache serves further sweeps of the same trial, which trace it anew and compile only what has
    changed; it holds, for each device, the 64 programs that were used last. JAX's own caches are
    cleared by ``jax.clear_caches()``.

    Cost: the next sweep compiles anew.

    Example:
        >>> from jaxht import sweep
        >>> sweep.clear_cache()
    """
    _LATEST.clear()
