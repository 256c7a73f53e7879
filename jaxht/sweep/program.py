"""The compiled part of a sweep: a pool of lanes whose ended trials are replaced while the others
run.

A pool is an array of lanes, (rows, lanes). The lanes of a row hold once what their trials share,
such as a design matrix, so that products with it are matrix-matrix products. Each row has a buffer
of trials that are drawn and wait for a lane ("staged"). The host calls the pool in chunks of steps.
"""

import functools
import hashlib
import itertools
import re
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from jaxht._typing import Array, Leaf
from jaxht.sweep.grid import GridCell, Indices, stable_hash
from jaxht.sweep.trials import Cell, Run, to_scalars

# A chunk ends when a lane does, but not before MIN_STEPS unless half of the lanes end, since a
# chunk costs the host as much as a few steps; and it ends after MAX_STEPS at most, since progress
# is reported between chunks.
MIN_STEPS = 32
MAX_STEPS = 4096


class Inputs(NamedTuple):
    """What identifies some trials of a cell, on the device."""

    seed: Any  # of the root key
    # Hash, and traced coordinates, on the axes that the cells of a row share.
    shared: tuple[Any, dict[str, Any]]
    # Hash of the coordinates that identify the problem, and the other traced coordinates.
    own: tuple[Any, dict[str, Any]]
    trials: Any  # (num_trials,) int32, indices of the trials


class State(NamedTuple):
    """A pool on the device."""

    rows: list[Leaf]  # the leaves of the cases that a row holds once, each (rows, ...)
    staged: Any  # the trials that wait for a lane: leaves and carry, each (rows, staged, ...)
    lanes: Any  # the trials that run: leaves and carry, each (rows, lanes, ...)


class Chunk(NamedTuple):
    """What the host reads after a chunk of steps."""

    running: Leaf  # (rows, lanes) bool, the trials that have not ended
    results: dict[str, Leaf]  # by name, (rows, lanes)
    steps: Leaf  # number of steps of the pool
    busy: Leaf  # number of steps of lanes with a running trial, over all lanes


class Pool(NamedTuple):
    """The compiled functions of a pool on one device: methods of :class:`Program`."""

    rows: int  # shape of the pool
    lanes: int
    staged: int  # number of trials that are drawn at once for a row
    memory: int  # bytes that the functions take on the device
    draw_shared: Callable[..., list[Array]]
    start_trials: Callable[..., Any]
    init_state: Callable[..., State]
    stage_trials: Callable[..., State]
    run_chunk: Callable[..., tuple[State, Chunk]]


class _Trace(NamedTuple):
    """What the text of the program of one trial tells."""

    digest: str  # hash of the text
    hides_data: bool  # whether arrays of the trial are arguments, of which the text tells nothing
    calls_host: bool  # whether it calls functions of Python, of which the text tells nothing


class Program:
    """The functions of a pool, for cells that agree on all that is static.

    A leaf of a case is held once a row if it depends neither on the trial nor on coordinates
    outside ``shared``, else once a lane. Which leaves do is read off vmap.

    Args:
        run: the trial.
        cell: one of the cells.
        dtypes: of the traced coordinates.
        shared: the axes that the cells of a row agree on.

    Attributes:
        inputs: of one trial, an example.
        results: dtypes of the results by name.
        row_bytes, lane_bytes: memory of what a row holds once, and of a lane.
    """

    def __init__(
        self, run: Run, cell: GridCell, dtypes: Mapping[str, Any], shared: Sequence[str]
    ) -> None:
        self._run = run
        self._dtypes = dtypes
        self._shared = shared
        self._static = dict(cell.static)
        self._bounds = dict(cell.bounds)
        self.inputs = self.make_inputs(0, cell, np.zeros(1, np.int32))
        self._structure, self._is_own = self._split_case()
        row = jax.eval_shape(self.draw_shared, self.inputs)
        lane = jax.eval_shape(self.start_trials, row, self.inputs)
        finish = jax.vmap(self._finish_lane, (None, 0), axis_size=1)
        results = jax.eval_shape(finish, row, lane)
        self.results = {name: leaf.dtype for name, leaf in results.items()}
        self.row_bytes = _count_bytes(row)
        self.lane_bytes = _count_bytes(lane)

    def make_inputs(self, seed: int, cell: GridCell, trials: Indices) -> Inputs:
        """Trials of a cell as the device takes them."""
        shared: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for name, dtype in self._dtypes.items():
            numbers = shared if name in self._shared else own
            numbers[name] = np.asarray(cell.coordinates[name], dtype)
        shared_hash = np.uint32(stable_hash(dict(cell.shared)))
        problem_hash = np.uint32(stable_hash(dict(cell.problem)))
        return Inputs(np.uint32(seed), (shared_hash, shared), (problem_hash, own), trials)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash what a lane computes from its draw to its results, and so all of the trial.

        Raises:
            ValueError: where data of the trial are no part of the hash.
        """
        if self._trace.hides_data:
            raise ValueError(
                "a store compares the data of a trial by the text of its program, which does not "
                "contain them if jax_use_simplified_jaxpr_constants is True; switch that option "
                "off, or pass store=None"
            )
        return self._trace.digest

    @property
    def reuse_key(self) -> Hashable:
        """Equal for programs whose compiled functions can stand for each other, as far as their
        texts tell."""
        is_whole = not (self._trace.hides_data or self._trace.calls_host)
        return self._trace.digest, None if is_whole else id(self), tuple(self.results)

    @functools.cached_property
    def _trace(self) -> _Trace:
        """What the text of the program tells."""

        def run_once(inputs):
            case = self._draw(inputs, inputs.own, inputs.trials[0])
            carry = self._run.advance(case, self._run.start(case))
            return self._run.running(carry), dict(self._run.finish(case, carry))

        text = jax.jit(run_once).lower(self.inputs).as_text()
        return _Trace(
            hashlib.sha256(text.encode()).hexdigest(),
            hides_data="jax.const = true" in text,
            calls_host=_HOST_CALL.search(text) is not None,
        )

    def compile(self, rows: int, lanes: int, staged: int) -> Pool:
        """Compile for a pool of that shape, staged >= lanes, on JAX's default device."""
        inputs = self.inputs._replace(trials=jax.ShapeDtypeStruct((staged,), jnp.int32))
        row = jax.eval_shape(self.draw_shared, inputs)
        batch = jax.eval_shape(self.start_trials, row, inputs)
        init_state = functools.partial(self.init_state, rows, lanes)
        state = jax.eval_shape(init_state, row, batch)
        sources = jax.ShapeDtypeStruct((rows, lanes), jnp.int32)
        occupied = jax.ShapeDtypeStruct((rows, lanes), jnp.bool_)
        index = jax.ShapeDtypeStruct((), jnp.int32)
        flag = jax.ShapeDtypeStruct((), jnp.bool_)
        stage_trials = jax.jit(self.stage_trials, donate_argnums=0)
        run_chunk = jax.jit(self.run_chunk, donate_argnums=0)
        functions = {
            "draw_shared": jax.jit(self.draw_shared).lower(inputs),
            "start_trials": jax.jit(self.start_trials).lower(row, inputs),
            "init_state": jax.jit(init_state).lower(row, batch),
            "stage_trials": stage_trials.lower(state, row, batch, index),
            "run_chunk": run_chunk.lower(state, sources, occupied, flag, index),
        }
        compiled: dict[str, Any] = {name: lowered.compile() for name, lowered in functions.items()}
        memory = max(map(_measure_memory, compiled.values()))
        for name, lowered in functions.items():
            if _BATCHED_LAPACK.search(lowered.as_text()):
                compiled[name] = _run_alone(compiled[name])
        return Pool(rows, lanes, staged, memory, **compiled)

    def draw_shared(self, inputs: Inputs) -> list[Array]:
        """The leaves that a row holds once."""
        first = inputs._replace(trials=inputs.trials[:1])
        leaves = jax.tree.leaves(self._draw_trials(first))
        return [leaf[0] for leaf in itertools.compress(leaves, np.logical_not(self._is_own))]

    def start_trials(self, row: list[Array], inputs: Inputs) -> Any:
        """Draw trials: their own leaves, and their carries before the first step."""
        leaves = jax.tree.leaves(self._draw_trials(inputs))
        own = list(itertools.compress(leaves, self._is_own))

        def start(own):
            return self._run.start(self._join_case(row, own))

        return own, jax.vmap(start, axis_size=len(inputs.trials))(own)

    def init_state(self, rows: int, lanes: int, row: list[Array], batch: Any) -> State:
        """A pool with the same in all rows, none of whose lanes counts yet."""

        def repeat(leaf):
            return jnp.broadcast_to(leaf, (rows, *leaf.shape))

        row, batch = jax.tree.map(repeat, (row, batch))
        return State(row, batch, jax.tree.map(lambda leaf: leaf[:, :lanes], batch))

    def stage_trials(self, state: State, row: list[Array], batch: Any, index: Array) -> State:
        """Put what a row shares, and trials that wait for its lanes, in the row at ``index``."""

        def set_row(old, new):
            return old.at[index].set(new)

        rows = jax.tree.map(set_row, state.rows, row)
        staged = jax.tree.map(set_row, state.staged, batch)
        return State(rows, staged, state.lanes)

    def run_chunk(
        self, state: State, sources: Array, occupied: Array, refilling: Array, max_steps: Array
    ) -> tuple[State, Chunk]:
        """Move staged trials into lanes, take some steps, and compute the results of all lanes.

        ``sources`` (rows, lanes) is the staged trial that a lane takes over, or -1, ``occupied``
        which lanes count, and ``refilling`` whether trials wait, so that it pays to stop when a
        lane ends.
        """

        def take_staged(old, new):
            new = jax.vmap(lambda new, source: new[source])(new, jnp.maximum(sources, 0))
            taken = jnp.reshape(sources >= 0, sources.shape + (1,) * (old.ndim - 2))
            return jnp.where(taken, new, old)

        def map_lanes(f, lanes):
            over_lanes = jax.vmap(f, (None, 0), axis_size=occupied.shape[1])
            return jax.vmap(over_lanes, axis_size=occupied.shape[0])(state.rows, lanes)

        def find_running(lanes):
            return map_lanes(lambda row, lane: self._run.running(lane[1]), lanes) & occupied

        def count(running):
            return jnp.sum(running, dtype=jnp.int32)

        refill = functools.partial(jax.tree.map, take_staged, state.lanes, state.staged)
        lanes = lax.cond(jnp.any(sources >= 0), refill, lambda: state.lanes)
        num_started = count(find_running(lanes))

        def is_worth_going_on(loop):
            steps, _, num_running, _ = loop
            worth = ~refilling | (num_running == num_started)
            worth |= (steps < MIN_STEPS) & (2 * num_running > num_started)
            return (num_running > 0) & (steps < max_steps) & worth

        def step(loop):
            steps, busy, num_running, lanes = loop
            lanes = map_lanes(self._advance_lane, lanes)
            return steps + 1, busy + num_running, count(find_running(lanes)), lanes

        zero = jnp.zeros((), jnp.int32)
        steps, busy, _, lanes = lax.while_loop(
            is_worth_going_on, step, (zero, zero, num_started, lanes)
        )
        chunk = Chunk(find_running(lanes), map_lanes(self._finish_lane, lanes), steps, busy)
        return State(state.rows, state.staged, lanes), chunk

    def _draw(self, inputs: Inputs, own: Any, trial: Array) -> Any:
        """The case of a trial."""
        root = jax.random.key(inputs.seed)
        shared_hash, shared_coordinates = inputs.shared
        problem_hash, own_coordinates = own
        coordinates = {**self._static, **shared_coordinates, **own_coordinates}
        cell = Cell(coordinates, self._bounds, jax.random.fold_in(root, shared_hash))
        key = jax.random.fold_in(jax.random.fold_in(root, problem_hash), trial)
        return jax.tree.map(jnp.asarray, self._run.draw(key, cell))

    def _draw_trials(self, inputs: Inputs, look: Any = lambda case: case) -> Any:
        """The cases of all trials, each leaf with an axis in front."""
        own = jax.tree.map(lambda number: jnp.broadcast_to(number, inputs.trials.shape), inputs.own)
        return jax.vmap(lambda own, trial: look(self._draw(inputs, own, trial)))(own, inputs.trials)

    def _split_case(self) -> tuple[Any, list[bool]]:
        """The tree structure of a case, and which leaves differ between the trials of a row."""
        found: list[bool] = []

        @custom_vmap
        def look(case):
            return case

        @look.def_vmap
        def _(size, batched, case):
            found.extend(jax.tree.leaves(batched[0]))
            return case, batched[0]

        case = jax.eval_shape(lambda inputs: self._draw_trials(inputs, look), self.inputs)
        # The rule is not called where no leaf differs.
        return jax.tree.structure(case), found or [False] * len(jax.tree.leaves(case))

    def _join_case(self, row: list[Array], own: list[Array]) -> Any:
        shared_leaves = iter(row)
        own_leaves = iter(own)
        leaves = [next(own_leaves if is_own else shared_leaves) for is_own in self._is_own]
        return jax.tree.unflatten(self._structure, leaves)

    def _advance_lane(
        self, row: list[Array], lane: tuple[list[Array], Any]
    ) -> tuple[list[Array], Any]:
        own, carry = lane
        return own, self._run.advance(self._join_case(row, own), carry)

    def _finish_lane(self, row: list[Array], lane: tuple[list[Array], Any]) -> dict[str, Array]:
        own, carry = lane
        return to_scalars(self._run.finish(self._join_case(row, own), carry))


# Calls of functions of Python, in the text of a program.
_HOST_CALL = re.compile(r"custom_call @\w*callback")


def _count_bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


# Batched calls of LAPACK on a CPU, in the text of a program. Each waits in a thread of XLA's pool
# for others of its threads: several at once can wait for each other for ever. The library makes
# none, but a trial may.
_BATCHED_LAPACK = re.compile(r"custom_call @(lapack|blas)_.*: \(tensor<\d+x\d+x\d+x")
_LAPACK_LOCK = threading.Lock()


def _run_alone(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which no other of these in this process runs beside."""

    def run(*args):
        with _LAPACK_LOCK:
            return jax.block_until_ready(compiled(*args))

    return run


def _measure_memory(compiled: Any) -> int:
    """Bytes that a compiled function takes on its device; 0 where the backend does not say."""
    memory = compiled.memory_analysis()
    if memory is None:
        return 0
    arguments = memory.argument_size_in_bytes - memory.alias_size_in_bytes
    return arguments + memory.output_size_in_bytes + memory.temp_size_in_bytes
