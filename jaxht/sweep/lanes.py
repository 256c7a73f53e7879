"""The compiled part of a sweep: rows of lanes that hold once what their trials share, refilled while others run."""

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array
from jax import lax
from jax.custom_batching import custom_vmap
from numpy.typing import NDArray

from jaxht.sweep.grid import Place, stable_hash
from jaxht.sweep.trials import Cell, Run

# A turn ends when a lane does, but lasts this many steps unless half of the lanes end, since it costs the host about as
# much as a few of them; and it lasts at most so many, since only between turns there is news.
MIN_STEPS, MAX_STEPS = 32, 4096


class Inputs(NamedTuple):
    """Where some trials stand, for the device.

    Attributes:
        seed: of the root key.
        shared: hash and traced coordinates that a row agrees on.
        own: hash and traced coordinates of the cell.
        trials: int32, their numbers.
    """

    seed: Any
    shared: tuple[Any, dict[str, Any]]
    own: tuple[Any, dict[str, Any]]
    trials: Any


class State(NamedTuple):
    """A pool on the device.

    Attributes:
        rows: the leaves of the cases that a row holds once, each (rows, ...).
        staged: lanes that are drawn and wait: leaves and carry, each (rows, staged, ...).
        lanes: lanes that run, each (rows, lanes, ...).
    """

    rows: list[Array]
    staged: Any
    lanes: Any


class Turn(NamedTuple):
    """What the host learns from a turn.

    Attributes:
        live: (rows, lanes), which go on.
        results: by name, (rows, lanes).
        steps: taken by the pool.
        lived: steps taken by lanes that were live, in all.
    """

    live: Array
    results: dict[str, Array]
    steps: Array
    lived: Array


class Pool(NamedTuple):
    """The compiled functions of a pool, for one device: see the methods of :class:`Program` of the same names.

    Attributes:
        rows, lanes: shape of the pool.
        staged: trials that are drawn at once, and wait in a row.
        bytes: memory that it takes on the device.
    """

    rows: int
    lanes: int
    staged: int
    bytes: int
    row: Callable[[Inputs], list[Array]]
    wave: Callable[[list[Array], Inputs], Any]
    reset: Callable[[list[Array], Any], State]
    put: Callable[[State, list[Array], Any, np.int32], State]
    turn: Callable[[State, NDArray[np.int32], NDArray[np.bool_], np.bool_], tuple[State, Turn]]


class Program:
    """What a pool does, for cells that agree on all that is static.

    The leaves of a case are held once a row where they depend neither on the trial nor on coordinates outside
    ``shared``, else once a lane. Which are which, vmap itself says.

    Args:
        run: the trial.
        place: one of the cells.
        dtypes: of the traced coordinates.
        shared: the axes that the cells of a row agree on.

    Attributes:
        names: of the results.
        row_bytes, lane_bytes: memory of what a row holds once, and of a lane.
    """

    def __init__(self, run: Run, place: Place, dtypes: Mapping[str, Any], shared: Sequence[str]) -> None:
        self._run, self._dtypes, self._shared = run, dtypes, shared
        self._static, self._bounds = dict(place.static), dict(place.bounds)
        self._inputs = self.inputs(0, place, np.zeros(1, np.int32))
        self._own_leaf = self._find_own_leaves()
        row = jax.eval_shape(self._row, self._inputs)
        lane = jax.eval_shape(self._wave, row, self._inputs)
        one = jax.eval_shape(lambda lane: jax.tree.map(lambda leaf: leaf[0], lane), lane)
        self.names = list(jax.eval_shape(self._finished, row, one))
        self.row_bytes, self.lane_bytes = map(_bytes, (row, lane))

    def inputs(self, seed: int, place: Place, trials: NDArray[np.int32]) -> Inputs:
        """Trials of a cell as the device takes them."""
        numbers = {name: np.asarray(place.coordinates[name], dtype) for name, dtype in self._dtypes.items()}
        shared = {name: value for name, value in numbers.items() if name in self._shared}
        own = {name: value for name, value in numbers.items() if name not in self._shared}
        hashes = [np.uint32(stable_hash(dict(coordinates))) for coordinates in (place.shared, place.problem)]
        return Inputs(np.uint32(seed), (hashes[0], shared), (hashes[1], own), trials)

    def fingerprint(self) -> str:
        """A hash of what a lane computes from its first draw to its results: any change of the trial changes it."""

        def whole(inputs: Inputs) -> Any:
            case = jax.tree.unflatten(self._structure, self._draw(inputs, inputs.own, inputs.trials[0]))
            carry = self._run.advance(case, self._run.start(case))
            return self._run.running(carry), dict(self._run.finish(case, carry))

        return hashlib.sha256(jax.jit(whole).lower(self._inputs).as_text().encode()).hexdigest()

    def compile(self, rows: int, lanes: int, staged: int) -> Pool:
        """Compile for a pool of that shape, staged >= lanes, on the device that is JAX's default."""
        inputs = self._inputs._replace(trials=jax.ShapeDtypeStruct((staged,), jnp.int32))
        row = jax.eval_shape(self._row, inputs)
        wave = jax.eval_shape(self._wave, row, inputs)
        reset = functools.partial(self._reset, rows, lanes)
        state = jax.eval_shape(reset, row, wave)
        sources, occupied = (jax.ShapeDtypeStruct((rows, lanes), dtype) for dtype in (jnp.int32, jnp.bool_))
        index, flag = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((), jnp.bool_)
        functions = {
            "row": jax.jit(self._row).lower(inputs),
            "wave": jax.jit(self._wave).lower(row, inputs),
            "reset": jax.jit(reset).lower(row, wave),
            "put": jax.jit(self._put, donate_argnums=0).lower(state, row, wave, index),
            "turn": jax.jit(self._turn, donate_argnums=0).lower(state, sources, occupied, flag),
        }
        compiled: dict[str, Any] = {name: lowered.compile() for name, lowered in functions.items()}
        return Pool(rows, lanes, staged, max(map(_memory, compiled.values())), **compiled)

    # ---- a lane ------------------------------------------------------------------------------------------------------

    def _draw(self, inputs: Inputs, own: Any, trial: Array) -> list[Array]:
        """The leaves of a case."""
        root = jax.random.key(inputs.seed)
        (shared_hash, shared_numbers), (problem_hash, numbers) = inputs.shared, own
        coordinates = {**self._static, **shared_numbers, **numbers}
        cell = Cell(coordinates, self._bounds, jax.random.fold_in(root, shared_hash))
        key = jax.random.fold_in(jax.random.fold_in(root, problem_hash), trial)
        leaves, self._structure = jax.tree.flatten(self._run.draw(key, cell))
        return [jnp.asarray(leaf) for leaf in leaves]

    def _drawn(self, inputs: Inputs, look: Any = lambda leaves: leaves) -> list[Array]:
        """The leaves of the cases of all trials, each with an axis in front."""
        own = jax.tree.map(lambda number: jnp.broadcast_to(number, inputs.trials.shape), inputs.own)
        return jax.vmap(lambda own, trial: look(self._draw(inputs, own, trial)))(own, inputs.trials)

    def _find_own_leaves(self) -> list[bool]:
        """Of each leaf of a case, whether it differs by lane."""
        found: list[bool] = []

        @custom_vmap
        def look(leaves: list[Array]) -> list[Array]:
            return leaves

        @look.def_vmap
        def _(size: int, batched: list[list[bool]], leaves: list[Array]) -> tuple[list[Array], list[bool]]:
            found.extend(batched[0])
            return leaves, batched[0]

        leaves = jax.eval_shape(lambda inputs: self._drawn(inputs, look), self._inputs)
        return found or [False] * len(leaves)  # the rule is not asked where no leaf differs

    def _case(self, row: list[Array], own: list[Array]) -> Any:
        rows, owns = iter(row), iter(own)
        return jax.tree.unflatten(self._structure, [next(owns if own else rows) for own in self._own_leaf])

    def _advanced(self, row: list[Array], lane: tuple[list[Array], Any]) -> tuple[list[Array], Any]:
        own, carry = lane
        return own, self._run.advance(self._case(row, own), carry)

    def _finished(self, row: list[Array], lane: tuple[list[Array], Any]) -> dict[str, Array]:
        own, carry = lane
        results = {name: jnp.asarray(value) for name, value in self._run.finish(self._case(row, own), carry).items()}
        for name, value in results.items():
            if value.ndim:
                raise ValueError(f"a trial must return scalars; {name!r} has shape {value.shape}")
        return results

    # ---- a pool ------------------------------------------------------------------------------------------------------

    def _row(self, inputs: Inputs) -> list[Array]:
        """What a row holds once."""
        leaves = self._drawn(inputs._replace(trials=inputs.trials[:1]))
        return [leaf[0] for leaf, own in zip(leaves, self._own_leaf, strict=True) if not own]

    def _wave(self, row: list[Array], inputs: Inputs) -> tuple[list[Array], Any]:
        """Lanes at their start."""
        leaves = [leaf for leaf, own in zip(self._drawn(inputs), self._own_leaf, strict=True) if own]
        start = jax.vmap(lambda own: self._run.start(self._case(row, own)), axis_size=len(inputs.trials))
        return leaves, start(leaves)

    def _reset(self, rows: int, lanes: int, row: list[Array], wave: Any) -> State:
        """A pool with the same in all rows, whose lanes may run but do not count."""
        row, wave = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (rows, *leaf.shape)), (row, wave))
        return State(row, wave, jax.tree.map(lambda leaf: leaf[:, :lanes], wave))

    def _put(self, state: State, row: list[Array], wave: Any, index: Array) -> State:
        """Bind a row, and stage a wave in it."""
        rows, staged = jax.tree.map(lambda old, new: old.at[index].set(new), (state.rows, state.staged), (row, wave))
        return State(rows, staged, state.lanes)

    def _turn(self, state: State, sources: Array, occupied: Array, refilling: Array) -> tuple[State, Turn]:
        """Take staged lanes (their number, or -1 to keep what is there), run, and look at the results of all."""

        def take(old: Array, new: Array) -> Array:
            new = jax.vmap(lambda new, source: new[source])(new, jnp.maximum(sources, 0))
            return jnp.where(jnp.reshape(sources >= 0, sources.shape + (1,) * (old.ndim - 2)), new, old)

        def over_pool(f: Any, lanes: Any) -> Any:
            over_lanes = jax.vmap(f, (None, 0), axis_size=occupied.shape[1])
            return jax.vmap(over_lanes, axis_size=occupied.shape[0])(state.rows, lanes)

        def live(lanes: Any) -> Array:
            return over_pool(lambda row, lane: self._run.running(lane[1]), lanes) & occupied

        def count(live: Array) -> Array:
            return jnp.sum(live, dtype=jnp.int32)

        refilled = functools.partial(jax.tree.map, take, state.lanes, state.staged)
        lanes = lax.cond(jnp.any(sources >= 0), refilled, lambda: state.lanes)
        entered = count(live(lanes))

        def going_on(loop: tuple[Array, Array, Array, Any]) -> Array:
            steps, _, left, _ = loop
            worth = ~refilling | (left == entered) | ((steps < MIN_STEPS) & (2 * left > entered))
            return (left > 0) & (steps < MAX_STEPS) & worth

        def step(loop: tuple[Array, Array, Array, Any]) -> tuple[Array, Array, Array, Any]:
            steps, lived, left, lanes = loop
            lanes = over_pool(self._advanced, lanes)
            return steps + 1, lived + left, count(live(lanes)), lanes

        zero = jnp.zeros((), jnp.int32)
        steps, lived, _, lanes = lax.while_loop(going_on, step, (zero, zero, entered, lanes))
        turn = Turn(live(lanes), over_pool(self._finished, lanes), steps, lived)
        return State(state.rows, state.staged, lanes), turn


def _bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _memory(compiled: Any) -> int:
    """Bytes that a compiled function takes on its device; 0 where the backend does not tell."""
    told = compiled.memory_analysis()
    if told is None:
        return 0
    return told.argument_size_in_bytes + told.output_size_in_bytes - told.alias_size_in_bytes + told.temp_size_in_bytes
