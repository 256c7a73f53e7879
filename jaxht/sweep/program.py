"""The compiled part of a sweep: a pool of lanes whose ended trials are replaced while the others
run.

A pool is an array of lanes, (rows, lanes). The lanes of a row hold once what their trials share,
such as a design matrix, so that products with it are matrix-matrix products. Each row has a buffer
of trials that are drawn and wait for a lane ("staged"). The host calls the pool in chunks of steps,
in which a lane that ends keeps its results and takes a staged trial: a chunk ends for the host only
where lanes wait for trials that are not staged.
"""

import enum
import functools
import itertools
import re
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from jaxht._typing import Array, Leaf
from jaxht.sweep._provenance import hash_program
from jaxht.sweep.grid import GridCell, Indices, stable_hash
from jaxht.sweep.protocol import Cell, Run, to_scalars

# A chunk ends after MAX_CHUNK_STEPS at most, since progress is reported between chunks. One for which the
# host could draw more trials runs MIN_STEPS first where the next one is already submitted: that is
# the time in which the host reads the last one.
MIN_STEPS = 16
MAX_CHUNK_STEPS = 4096
# Results that a chunk holds, in lanes of the pool.
LOG = 4
# Where batches wait for a row: least trials of one, if there are more than two, and most of them.
MIN_BATCH = 128
MAX_BATCHES = 8


class Inputs(NamedTuple):
    """What identifies some trials of a cell, on the device."""

    seed: Any  # of the root key
    # Hash, and traced coordinates, on the axes that the cells of a row share.
    shared: tuple[Any, dict[str, Any]]
    # Hash of the coordinates that identify the problem, and the other traced coordinates.
    own: tuple[Any, dict[str, Any]]
    trials: Any  # (num_trials,) int32, indices of the trials


class Trials(NamedTuple):
    """Some trials on the device, each leaf with axes in front."""

    cells: Any  # index of the cell of each, int32
    trials: Any  # its index in the cell, int32
    own: Any  # leaves of the case
    carry: Any  # of the run


class State(NamedTuple):
    """A pool on the device."""

    rows: list[Leaf]  # the leaves of the cases that a row holds once, each (rows, ...)
    # The trials that wait for a lane, (rows, num_batches * batch, ...). Batch number i of a row is
    # at i mod num_batches.
    staged: Trials
    sizes: Leaf  # (rows, num_batches) int32, how many trials of a batch count
    num_staged: Leaf  # (rows,) int32, how many batches a row has been given
    num_done: Leaf  # (rows,) int32, of how many of them lanes have taken all
    num_taken: Leaf  # (rows,) int32, how many trials of the next batch lanes have taken
    lanes: Trials  # the trials that run, (rows, lanes, ...)
    occupied: Leaf  # (rows, lanes) bool, whether a lane has one


class Chunk(NamedTuple):
    """What the host reads after a chunk of steps."""

    num_ended: Leaf  # how many trials have ended
    rows: Leaf  # (LOG * rows * lanes,) the row of each
    cells: Leaf  # the same, the index of its cell
    trials: Leaf  # the same, its index in the cell
    results: dict[str, Leaf]  # the same, by name
    num_done: Leaf  # as in the state
    occupied: Leaf  # the same
    lane_cells: Leaf  # (rows, lanes), the cells of the lanes
    lane_trials: Leaf  # the same, the trials
    steps: Leaf  # number of steps of the pool
    busy: Leaf  # number of steps of lanes with a running trial, over all lanes


class Wants(enum.IntEnum):
    """What the host has for a row."""

    NOTHING = 0
    ALWAYS = 1  # trials of cells that share what the row holds
    WHEN_EMPTY = 2  # other trials, for a row without any


class Pool(NamedTuple):
    """The compiled functions of a pool on one device: methods of :class:`Program`."""

    rows: int  # shape of the pool
    lanes: int
    batch: int  # number of trials that are drawn at once for a row
    num_batches: int  # how many of them can wait in a row
    ahead: bool  # whether a chunk is submitted before the results of the last one are read
    memory: int  # bytes that the functions take on the device
    draw_shared: Callable[..., list[Array]]
    start_trials: Callable[..., Any]
    init_state: Callable[..., State]
    stage_trials: Callable[..., State]
    run_chunk: Callable[..., tuple[State, Chunk]]


class _Trace(NamedTuple):
    """What the text of the program of one trial tells."""

    digest: str  # hash of what it computes
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
        return Inputs(
            seed=np.uint32(seed),
            shared=(shared_hash, shared),
            own=(problem_hash, own),
            trials=trials,
        )

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
            hash_program(text),
            hides_data="jax.const = true" in text,
            calls_host=_HOST_CALL.search(text) is not None,
        )

    def compile(self, rows: int, lanes: int, slots: int, ahead: bool = False) -> Pool:
        """Compile for a pool of that shape, in which ``slots`` trials can wait in a row, on JAX's
        default device.

        ``ahead``: the host submits a chunk before it reads the last one, and so stages batches
        while others still wait. A batch holds trials of one cell: in a long row several are wanted.
        """
        num_batches = min(max(2, slots // MIN_BATCH), MAX_BATCHES) if ahead else 1
        size = max(1, slots // num_batches)
        inputs = self.inputs._replace(trials=jax.ShapeDtypeStruct((size,), jnp.int32))
        row = jax.eval_shape(self.draw_shared, inputs)
        batch = jax.eval_shape(self.start_trials, row, inputs)
        init_state = functools.partial(self.init_state, rows, lanes, size, num_batches)
        state = jax.eval_shape(init_state, row, batch)
        dropped = jax.ShapeDtypeStruct((rows, lanes), jnp.bool_)
        wants = jax.ShapeDtypeStruct((rows,), jnp.int32)
        number = jax.ShapeDtypeStruct((), jnp.int32)
        stage_trials = jax.jit(self.stage_trials, donate_argnums=0)
        run_chunk = jax.jit(functools.partial(self.run_chunk, ahead), donate_argnums=0)
        functions = {
            "draw_shared": jax.jit(self.draw_shared).lower(inputs),
            "start_trials": jax.jit(self.start_trials).lower(row, inputs),
            "init_state": jax.jit(init_state).lower(row, batch),
            "stage_trials": stage_trials.lower(
                state, row, batch, number, number, inputs.trials, number
            ),
            "run_chunk": run_chunk.lower(state, dropped, wants, number, number),
        }
        # XLA takes all cores of a CPU for one function, and tries out kernels of a GPU one by one.
        compiled = _compile_all(functions, at_once=ahead)
        memory = max(map(_measure_memory, compiled.values()))
        for name, lowered in functions.items():
            if _BATCHED_LAPACK.search(lowered.as_text()):
                compiled[name] = _run_alone(compiled[name])
        return Pool(rows, lanes, size, num_batches, ahead, memory, **compiled)

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

    def init_state(
        self, rows: int, lanes: int, size: int, num_batches: int, row: list[Array], batch: Any
    ) -> State:
        """A pool without trials, whose lanes all hold the first of a batch, which does not count;
        ``num_batches`` of ``size`` trials can wait in a row."""
        own, carry = batch

        def repeat(leaf, *shape):
            return jnp.broadcast_to(leaf, (*shape, *leaf.shape))

        def hold(number):
            nothing = jnp.zeros((rows, number), jnp.int32)
            held = jax.tree.map(lambda leaf: repeat(leaf[0], rows, number), (own, carry))
            return Trials(nothing, nothing, *held)

        return State(
            rows=[repeat(leaf, rows) for leaf in row],
            staged=hold(num_batches * size),
            sizes=jnp.zeros((rows, num_batches), jnp.int32),
            num_staged=jnp.zeros(rows, jnp.int32),
            num_done=jnp.zeros(rows, jnp.int32),
            num_taken=jnp.zeros(rows, jnp.int32),
            lanes=hold(lanes),
            occupied=jnp.zeros((rows, lanes), bool),
        )

    def stage_trials(
        self,
        state: State,
        row: list[Array],
        batch: Any,
        index: Array,
        cell: Array,
        trials: Array,
        size: Array,
    ) -> State:
        """Put what a row shares in the row at ``index``, and behind its waiting trials a batch of
        a cell, of which the first ``size`` count."""
        num_batches = state.sizes.shape[1]
        place = state.num_staged[index] % num_batches

        def put(old, new):
            begin = (index, place * len(trials), *[0] * (old.ndim - 2))
            return lax.dynamic_update_slice(old, new[None], begin)

        def put_row(old, new):
            return lax.dynamic_update_index_in_dim(old, new, index, 0)

        new = Trials(jnp.broadcast_to(cell, trials.shape), trials, *batch)
        return state._replace(
            rows=jax.tree.map(put_row, state.rows, row),
            staged=jax.tree.map(put, state.staged, new),
            sizes=lax.dynamic_update_slice(state.sizes, size[None, None], (index, place)),
            num_staged=state.num_staged.at[index].add(1),
        )

    def run_chunk(
        self,
        ahead: bool,
        state: State,
        dropped: Array,
        wants: Array,
        patience: Array,
        max_steps: Array,
    ) -> tuple[State, Chunk]:
        """Take some steps, give staged trials to the lanes that end, and keep their results.

        Args:
            ahead: as in :meth:`compile`.
            state: the pool.
            dropped: (rows, lanes), lanes whose trial is given up.
            wants: (rows,), of :class:`Wants`.
            patience: how many steps of lanes may be lost before lanes are given other trials, which
                costs as much: ``patience`` / number of lanes steps of the pool.
            max_steps: after which the chunk ends.
        """
        shape = dropped.shape
        num_lanes = dropped.size
        num_batches = state.sizes.shape[1]
        batch = state.staged.trials.shape[1] // num_batches

        def map_lanes(f, lanes):
            over_lanes = jax.vmap(f, (None, 0), axis_size=shape[1])
            held = lanes.own, lanes.carry
            return jax.vmap(over_lanes, axis_size=shape[0])(state.rows, held)

        def find_running(lanes, occupied):
            return map_lanes(lambda row, lane: self._run.running(lane[1]), lanes) & occupied

        def count(numbers, **options):
            return jnp.sum(numbers, dtype=jnp.int32, **options)

        def get_size(num_done):
            """How many trials of the next batch of each row count; 0 where there is none."""
            sizes = jnp.take_along_axis(state.sizes, num_done[:, None] % num_batches, axis=1)
            return jnp.where(num_done < state.num_staged, sizes[:, 0], 0)

        def refill(turn):
            free = ~turn.occupied
            size = get_size(turn.num_done)
            position = turn.num_taken[:, None] + jnp.cumsum(free, axis=1, dtype=jnp.int32) - 1
            taking = free & (position < size[:, None])
            slot = (turn.num_done[:, None] % num_batches) * batch + position
            slot = jnp.where(taking, slot, 0)

            def take(old, staged):
                new = jax.vmap(lambda staged, slot: staged[slot])(staged, slot)
                return jnp.where(jnp.reshape(taking, shape + (1,) * (old.ndim - 2)), new, old)

            num_taken = turn.num_taken + count(taking, axis=1)
            is_done = (size > 0) & (num_taken == size)
            return turn._replace(
                num_done=turn.num_done + is_done,
                num_taken=jnp.where(is_done, 0, num_taken),
                lanes=jax.tree.map(take, turn.lanes, state.staged),
                occupied=turn.occupied | taking,
            )

        def survey(turn):
            """What lanes could be given: by the pool itself, and by the host."""
            is_dry = turn.num_done == state.num_staged
            free = count(~turn.occupied, axis=1)
            is_starving = is_dry & (wants == Wants.ALWAYS)
            is_starving |= is_dry & (wants == Wants.WHEN_EMPTY) & (free == shape[1])
            has_space = state.num_staged - turn.num_done <= num_batches // 2
            has_space &= wants == Wants.ALWAYS
            return _Survey(
                can_refill=jnp.any(~is_dry & (free > 0)),
                starving=count(jnp.where(is_starving, free, 0)),
                refilling=jnp.any(~is_dry | (wants != Wants.NOTHING)),
                # So many rows that the host draws trials for several at once.
                has_space=ahead & (8 * count(has_space) >= shape[0]),
            )

        def is_worth_going_on(turn):
            found = survey(turn)
            worth = found.can_refill | (jnp.any(turn.occupied) & (found.starving == 0))
            if ahead:
                worth |= jnp.any(turn.occupied) & (turn.steps < MIN_STEPS)
                worth &= ~found.has_space | (turn.steps < MIN_STEPS)
            worth &= turn.starved < patience
            has_room = turn.num_ended <= (LOG - 1) * num_lanes
            return worth & has_room & (turn.steps < max_steps)

        def take_turn(turn):
            turn = refill(turn)
            found = survey(turn)
            num_started = count(find_running(turn.lanes, turn.occupied))
            limit = max_steps
            if ahead:
                limit = jnp.where(found.has_space, jnp.minimum(MIN_STEPS, max_steps), max_steps)
                # The next batch is at once at hand where one is done.
                limit = jnp.where(found.can_refill, 0, limit)

            def goes_on(loop):
                steps, _, lost, num_running, _ = loop
                return (num_running > 0) & (steps < limit) & (lost < patience)

            def step(loop):
                steps, busy, lost, num_running, carry = loop
                lanes = turn.lanes._replace(carry=carry)
                carry = map_lanes(self._advance_lane, lanes)
                running = count(find_running(lanes._replace(carry=carry), turn.occupied))
                idle = jnp.where(found.refilling, num_started - running, 0) + found.starving
                return steps + 1, busy + num_running, lost + idle, running, carry

            zero = jnp.zeros((), jnp.int32)
            loop = turn.steps, turn.busy, zero, num_started, turn.lanes.carry
            steps, busy, _, _, carry = lax.while_loop(goes_on, step, loop)
            starved = turn.starved + found.starving * (steps - turn.steps)
            turn = turn._replace(
                lanes=turn.lanes._replace(carry=carry), steps=steps, busy=busy, starved=starved
            )
            return record(turn)

        def record(turn):
            """Append the results of the lanes that have ended."""
            over = jnp.ravel(turn.occupied & ~find_running(turn.lanes, turn.occupied))
            results = map_lanes(self._finish_lane, turn.lanes)
            # The lanes that have ended, one after the other, and behind them any.
            place = jnp.where(over, jnp.cumsum(over, dtype=jnp.int32) - 1, num_lanes)
            number = jnp.arange(num_lanes, dtype=jnp.int32)
            ended = jnp.zeros(num_lanes, jnp.int32).at[place].set(number, mode="drop")

            def append(log, values):
                values = jnp.ravel(values)[ended]
                return lax.dynamic_update_slice(log, values, (turn.num_ended,))

            new = row_numbers, turn.lanes.cells, turn.lanes.trials, results
            return turn._replace(
                occupied=turn.occupied & ~jnp.reshape(over, shape),
                num_ended=turn.num_ended + count(over),
                log=jax.tree.map(append, turn.log, new),
            )

        row_numbers = lax.broadcasted_iota(jnp.int32, shape, 0)
        results = jax.eval_shape(lambda lanes: map_lanes(self._finish_lane, lanes), state.lanes)

        def make_log(leaf):
            return jnp.zeros(LOG * num_lanes, leaf.dtype)

        zero = jnp.zeros((), jnp.int32)
        turn = _Turn(
            steps=zero,
            busy=zero,
            starved=zero,
            num_done=state.num_done,
            num_taken=state.num_taken,
            lanes=state.lanes,
            occupied=state.occupied & ~dropped,
            num_ended=zero,
            log=jax.tree.map(make_log, (row_numbers, row_numbers, row_numbers, results)),
        )
        turn = lax.while_loop(is_worth_going_on, take_turn, turn)
        row_log, cells, trials, values = turn.log
        chunk = Chunk(
            num_ended=turn.num_ended,
            rows=row_log,
            cells=cells,
            trials=trials,
            results=values,
            num_done=turn.num_done,
            occupied=turn.occupied,
            lane_cells=turn.lanes.cells,
            lane_trials=turn.lanes.trials,
            steps=turn.steps,
            busy=turn.busy,
        )
        state = state._replace(
            num_done=turn.num_done,
            num_taken=turn.num_taken,
            lanes=turn.lanes,
            occupied=turn.occupied,
        )
        return state, chunk

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

    def _advance_lane(self, row: list[Array], lane: tuple[list[Array], Any]) -> Any:
        own, carry = lane
        return self._run.advance(self._join_case(row, own), carry)

    def _finish_lane(self, row: list[Array], lane: tuple[list[Array], Any]) -> dict[str, Array]:
        own, carry = lane
        return to_scalars(self._run.finish(self._join_case(row, own), carry))


class _Survey(NamedTuple):
    """What the lanes of a pool could be given."""

    can_refill: Any  # whether a lane is free for which a trial is staged
    starving: Any  # number of free lanes for which the host has trials, and none is staged
    refilling: Any  # whether a lane that ends can be given another trial, now or later
    has_space: Any  # whether it is time for the host to stage more, so that none starves


class _Turn(NamedTuple):
    """A chunk before lanes are given trials."""

    steps: Any  # as in a chunk
    busy: Any  # the same
    starved: Any  # number of steps of lanes that have starved
    num_done: Any  # as in a state
    num_taken: Any  # the same
    lanes: Trials  # the same
    occupied: Any  # the same
    num_ended: Any  # as in a chunk
    log: Any  # rows, cells, trials and results, as in a chunk


def _compile_all(functions: Mapping[str, Any], at_once: bool) -> dict[str, Any]:
    """Compile some lowered functions, on one thread or each on one of its own."""
    num_threads = len(functions) if at_once else 1
    with ThreadPoolExecutor(num_threads, "jaxht-compile") as threads:
        futures = {name: threads.submit(lowered.compile) for name, lowered in functions.items()}
        return {name: future.result() for name, future in futures.items()}


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
