"""What runs where: the sweep as any process knows it, the shapes of its pools, and what is compiled for it."""

import hashlib
import itertools
import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxht.sweep.grid import Grid, Place
from jaxht.sweep.lanes import Pool, Program
from jaxht.sweep.provenance import environment
from jaxht.sweep.trials import Run, Whole

T = TypeVar("T")

# What a trial must not return: the store and its Dataset have it.
RESERVED = {"trial", "done", "file", "fingerprint", "checksum"}

# (lanes of a row at least, lanes of a pool at most). On a CPU a step costs as much per lane in blocks of 8 as of 1000
# (measured, d = 256), and short rows have short ends; an accelerator needs many lanes.
LANES = {"cpu": (8, 32)}
LANES_ELSEWHERE = (128, 8192)
# A row ends with lanes that wait for its slowest: it should see this many generations of trials.
GENERATIONS = 32
# Trials that are drawn at once, at most, in lanes of a row.
LONGEST_WAVE = 8
# Of the memory of a device, for its pools.
MEMORY_SHARE = 0.5
# Of a lane in memory: one runs, one waits, and a step makes more. A guess, put right by what the compiler says.
COPIES = 4


@dataclass(frozen=True)
class Block:
    """How many lanes run at once. The bits of a result may depend on it.

    Attributes:
        least: lanes of a row, at least.
        most: lanes of a pool, at most.
        memory: bytes that a pool may take.
    """

    least: int
    most: int
    memory: int

    @classmethod
    def of(cls, device: jax.Device, pools: int, max_lanes: int | None = None) -> "Block":
        """What suits a device with a number of pools."""
        least, most = LANES.get(device.platform, LANES_ELSEWHERE)
        most = most if max_lanes is None else max_lanes
        limit = (device.memory_stats() or {}).get("bytes_limit") or _host_memory()
        return cls(min(least, most), most, int(MEMORY_SHARE * limit / pools))

    def shape(self, trials: int, cells: int, groups: int, row_bytes: int, lane_bytes: int) -> tuple[int, int, int]:
        """Rows and lanes of a pool, and how many trials are drawn at once.

        Args:
            trials: of a cell.
            cells: of a group; they share what a row holds.
            groups: how many there are.
            row_bytes, lane_bytes: memory of what a row holds once, and of a lane.
        """
        most = max(1, min(self.most, self.memory // (COPIES * max(1, lane_bytes))))
        lanes = min(self.least, most)
        # Where there is one group only, one row holds it, and ends once: it may be as wide as to hold all trials.
        widest = 2 * trials * cells - 1 if groups == 1 else trials * cells // GENERATIONS
        while 2 * lanes <= min(most, widest):
            lanes *= 2
        # What is shared is drawn again for each wave: it should pay. Short waves are shared better at the end.
        waves = min(LONGEST_WAVE, trials // (4 * lanes)) if row_bytes > lane_bytes else 1
        return max(1, min(most // lanes, groups)), lanes, lanes * max(1, waves)


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
    float64: bool = field(default_factory=lambda: jnp.result_type(float) == jnp.float64)
    # Tells sweeps apart in processes that get a copy with each task.
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def described(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """What determines the results, up to rounding, but for the trial itself."""
        grid = self.grid
        cells = [place.index for place in grid.places]
        return {
            "axes": grid.axes,
            "problem": grid.problem,
            "shared": grid.shared,
            **({} if len(cells) == np.prod(grid.shape) else {"cells": cells}),
            "num_trials": self.num_trials,
            "seed": self.seed,
            "attrs": dict(attrs),
        }

    def environment(self) -> dict[str, Any]:
        """What the last bits may depend on."""
        block = self.block(jax.local_devices()[0])
        return {**environment(), "lanes": [block.least, block.most]}

    def devices(self) -> list[jax.Device]:
        """That of each pool."""
        devices = jax.local_devices()
        return list(itertools.islice(itertools.cycle(devices), self.workers or len(devices)))

    def block(self, device: jax.Device) -> Block:
        """How many lanes run at once."""
        return Block.of(device, -(-len(self.devices()) // len(jax.local_devices())), self.max_lanes)


class Programs:
    """What is compiled for a trial, each made once, by the first thread that needs it."""

    def __init__(self, sweep: Sweep) -> None:
        self._id, self._run = sweep.id, sweep.run
        self._lock = threading.Lock()
        self._made: dict[Any, Future[Any]] = {}

    @classmethod
    def of(cls, sweep: Sweep) -> "Programs":
        """Those of the trial that ran last in this process, if it is the same."""
        if not (_LATEST and _LATEST[0].fits(sweep)):
            _LATEST[:] = [cls(sweep)]
        return _LATEST[0]

    def fits(self, sweep: Sweep) -> bool:
        """Whether this is the sweep's trial. A task brings a copy, which the id of its sweep tells."""
        mine, other = (run.trial if isinstance(run, Whole) else run for run in (self._run, sweep.run))
        return mine is other or self._id == sweep.id

    def program(self, sweep: Sweep, place: Place) -> Program:
        """What runs the cells that agree with one on all that is static."""
        axes = {name: values for name, values in sweep.grid.axes.items() if name not in sweep.grid.static}
        whole = {name: all(isinstance(value, int) for value in values) for name, values in axes.items()}
        dtypes = {name: np.int32 if whole[name] else jnp.result_type(float) for name in axes}
        key = place.program, tuple(dtypes.items()), tuple(sweep.grid.shared), sweep.float64
        return self._once(key, lambda: Program(self._run, place, dtypes, sweep.grid.shared))

    def pool(self, sweep: Sweep, place: Place, device: jax.Device) -> tuple[Program, Pool]:
        """The same, compiled for a device, as large as suits it and as its memory allows."""
        program = self.program(sweep, place)
        alike = [other for other in sweep.grid.places if other.program == place.program]
        groups, block = Counter(other.shared for other in alike), sweep.block(device)
        cells, memory = max(groups.values()), (program.row_bytes, program.lane_bytes)
        shape = block.shape(sweep.num_trials, cells, len(groups), *memory)

        def make() -> Pool:
            pool = program.compile(*shape)
            while pool.bytes > block.memory and pool.rows * pool.lanes > 1:
                rows, lanes = (pool.rows // 2, pool.lanes) if pool.rows > 1 else (1, pool.lanes // 2)
                pool = program.compile(rows, lanes, lanes)
            return pool

        return program, self._once((id(program), shape, block.memory, device), make)

    def all(self, sweep: Sweep) -> list[Program]:
        """The programs of all cells."""
        return [self.program(sweep, place) for place in {place.program: place for place in sweep.grid.places}.values()]

    def check(self, sweep: Sweep) -> None:
        """Raise ValueError for names of results that cannot be."""
        for program in self.all(sweep):
            if taken := {*sweep.grid.axes, *RESERVED}.intersection(program.names):
                raise ValueError(f"a trial must not return {min(taken)!r}: it is the name of an axis, or reserved")

    def fingerprint(self, sweep: Sweep) -> str:
        """Of what all cells compute."""
        prints = [self._once((id(program), "fingerprint"), program.fingerprint) for program in self.all(sweep)]
        return hashlib.sha256(" ".join(prints).encode()).hexdigest()

    def _once(self, key: Any, make: Callable[[], T]) -> T:
        with self._lock:
            first = key not in self._made
            future = self._made.setdefault(key, Future())
        if first:
            try:
                future.set_result(make())
            except BaseException as error:
                with self._lock:
                    del self._made[key]
                future.set_exception(error)
        return future.result()


_LATEST: list[Programs] = []
