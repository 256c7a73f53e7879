"""The compiled part of a sweep: a pool of lanes whose ended trials are replaced while the others
run.

The host calls the pool in chunks of steps, in which a lane that ends keeps its results and takes a
staged trial: a chunk ends for the host only where lanes wait for trials that are not staged.
"""

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

from jaxht._typing import Array
from jaxht.sweep._provenance import hash_program
from jaxht.sweep.chunk import ChunkRunner, LaneFunctions
from jaxht.sweep.grid import GridCell, Indices, stable_hash
from jaxht.sweep.pool import Chunk, Inputs, Pool, State, Trials
from jaxht.sweep.protocol import Cell, Run, to_scalars

# Where batches wait for a row: least trials of one, if there are more than two, and most of them.
MIN_BATCH = 128
MAX_BATCHES = 8


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
        # Unlike an id, nothing made later equals it: a key that holds it keeps it alive.
        self._identity = object()
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
        return self._trace.digest, None if is_whole else self._identity, tuple(self.results)

    @functools.cached_property
    def _trace(self) -> _Trace:
        """What the text of the program tells."""

        def run_once(inputs):
            case = self._draw(inputs, inputs.own, inputs.trials[0])
            start = self._run.start(case)
            carry = self._run.advance(case, start)
            # The carries as well: what only later steps read is a part of the trial.
            return start, carry, self._run.running(carry), dict(self._run.finish(case, carry))

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
        """Take some steps, give staged trials to the lanes that end, and keep their results; the
        arguments are those of :class:`ChunkRunner`."""
        runner = ChunkRunner(
            functions=LaneFunctions(self._is_lane_running, self._advance_lane, self._finish_lane),
            ahead=ahead,
            state=state,
            dropped=dropped,
            wants=wants,
            patience=patience,
            max_steps=max_steps,
        )
        return runner.run()

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

    def _is_lane_running(self, row: list[Array], lane: tuple[list[Array], Any]) -> Array:
        _, carry = lane
        return self._run.running(carry)

    def _advance_lane(self, row: list[Array], lane: tuple[list[Array], Any]) -> Any:
        own, carry = lane
        return self._run.advance(self._join_case(row, own), carry)

    def _finish_lane(self, row: list[Array], lane: tuple[list[Array], Any]) -> dict[str, Array]:
        own, carry = lane
        return to_scalars(self._run.finish(self._join_case(row, own), carry))


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
