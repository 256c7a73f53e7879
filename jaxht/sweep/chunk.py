"""A chunk of steps of a pool: lanes run, and those whose trials end keep the results and take staged
trials."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array
from jaxht.sweep.pool import Chunk, State, Trials, Wants

# A chunk ends after MAX_CHUNK_STEPS at most, since progress is reported between chunks. One for
# which the host could draw more trials runs MIN_STEPS first where the next one is already
# submitted: that is the time in which the host reads the last one.
MIN_STEPS = 16
MAX_CHUNK_STEPS = 4096
# Results that a chunk holds, in lanes of the pool.
LOG = 4


class LaneFunctions(NamedTuple):
    """What a lane does, given what its row holds once, and its own leaves and carry."""

    is_running: Callable[[Any, Any], Array]  # whether its trial has steps left
    advance: Callable[[Any, Any], Any]  # the carry after a step
    finish: Callable[[Any, Any], dict[str, Array]]  # the results of its trial


class _Survey(NamedTuple):
    """What the lanes of a pool could be given."""

    can_refill: Any  # whether a lane is free for which a trial is staged
    starving: Any  # number of free lanes for which the host has trials, and none is staged
    refilling: Any  # whether a lane that ends can be given another trial, now or later
    has_space: Any  # whether it is time for the host to stage more, so that none starves


class _Log(NamedTuple):
    """The trials that have ended, as in a chunk."""

    rows: Any
    cells: Any
    trials: Any
    results: Any


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
    log: _Log


class _Steps(NamedTuple):
    """Steps in which no lane is given a trial."""

    steps: Any  # as in a chunk
    busy: Any  # the same
    lost: Any  # number of steps of lanes without a trial that they could be given
    num_running: Any  # of lanes
    carry: Any  # of all lanes


@dataclasses.dataclass(frozen=True)
class ChunkRunner:
    """A pool for the time of a chunk.

    Attributes:
        functions: of a lane.
        ahead: whether the host submits a chunk before it reads the last one.
        state: the pool before the chunk.
        dropped: (rows, lanes), lanes whose trial is given up.
        wants: (rows,), of :class:`Wants`.
        patience: how many steps of lanes may be lost before lanes are given other trials, which
            costs as much: ``patience`` / number of lanes steps of the pool.
        max_steps: after which the chunk ends.
    """

    functions: LaneFunctions
    ahead: bool
    state: State
    dropped: Array
    wants: Array
    patience: Array
    max_steps: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, and of lanes in each."""
        return self.dropped.shape

    @property
    def num_batches(self) -> int:
        """How many batches can wait in a row."""
        return self.state.sizes.shape[1]

    def run(self) -> tuple[State, Chunk]:
        """Take steps until the host is needed, or ``max_steps``; the pool after them."""
        turn = lax.while_loop(self.is_worth_going_on, self.take_turn, self.start())
        chunk = Chunk(
            num_ended=turn.num_ended,
            rows=turn.log.rows,
            cells=turn.log.cells,
            trials=turn.log.trials,
            results=turn.log.results,
            num_done=turn.num_done,
            occupied=turn.occupied,
            lane_cells=turn.lanes.cells,
            lane_trials=turn.lanes.trials,
            steps=turn.steps,
            busy=turn.busy,
        )
        state = self.state._replace(
            num_done=turn.num_done,
            num_taken=turn.num_taken,
            lanes=turn.lanes,
            occupied=turn.occupied,
        )
        return state, chunk

    def start(self) -> _Turn:
        """Before the first step, with an empty log."""
        lanes = self.state.lanes
        results = jax.eval_shape(self.finish_lanes, lanes)
        number = self.row_numbers()
        log = _Log(rows=number, cells=number, trials=number, results=results)

        def make_log(leaf):
            return jnp.zeros(LOG * self.dropped.size, leaf.dtype)

        zero = jnp.zeros((), jnp.int32)
        return _Turn(
            steps=zero,
            busy=zero,
            starved=zero,
            num_done=self.state.num_done,
            num_taken=self.state.num_taken,
            lanes=lanes,
            occupied=self.state.occupied & ~self.dropped,
            num_ended=zero,
            log=jax.tree.map(make_log, log),
        )

    def is_worth_going_on(self, turn: _Turn) -> Array:
        """Whether lanes have steps to take, and none waits for the host."""
        found = self.survey(turn)
        is_busy = jnp.any(turn.occupied)
        worth = found.can_refill | (is_busy & (found.starving == 0))
        if self.ahead:
            is_early = turn.steps < MIN_STEPS
            worth |= is_busy & is_early
            worth &= ~found.has_space | is_early
        worth &= turn.starved < self.patience
        has_room = turn.num_ended <= (LOG - 1) * self.dropped.size
        return worth & has_room & (turn.steps < self.max_steps)

    def take_turn(self, turn: _Turn) -> _Turn:
        """Refill the lanes, and take steps until it is worth refilling them again."""
        turn = self.refill(turn)
        found = self.survey(turn)
        num_started = _count(self.find_running(turn.lanes, turn.occupied))
        limit = self.max_steps
        if self.ahead:
            early = jnp.minimum(MIN_STEPS, self.max_steps)
            limit = jnp.where(found.has_space, early, self.max_steps)
            # The next batch is at once at hand where one is done.
            limit = jnp.where(found.can_refill, 0, limit)

        def goes_on(loop):
            is_patient = loop.lost < self.patience
            return (loop.num_running > 0) & (loop.steps < limit) & is_patient

        def step(loop):
            lanes = turn.lanes._replace(carry=loop.carry)
            carry = self.map_lanes(self.functions.advance, lanes)
            lanes = lanes._replace(carry=carry)
            num_running = _count(self.find_running(lanes, turn.occupied))
            idle = jnp.where(found.refilling, num_started - num_running, 0) + found.starving
            return _Steps(
                steps=loop.steps + 1,
                busy=loop.busy + loop.num_running,
                lost=loop.lost + idle,
                num_running=num_running,
                carry=carry,
            )

        start = _Steps(
            steps=turn.steps,
            busy=turn.busy,
            lost=jnp.zeros((), jnp.int32),
            num_running=num_started,
            carry=turn.lanes.carry,
        )
        last = lax.while_loop(goes_on, step, start)
        turn = turn._replace(
            steps=last.steps,
            busy=last.busy,
            starved=turn.starved + found.starving * (last.steps - turn.steps),
            lanes=turn.lanes._replace(carry=last.carry),
        )
        return self.record(turn)

    def refill(self, turn: _Turn) -> _Turn:
        """Give the free lanes of each row trials of its next batch."""
        batch = self.state.staged.trials.shape[1] // self.num_batches
        free = ~turn.occupied
        size = self.size_of_next_batch(turn.num_done)
        position = turn.num_taken[:, None] + jnp.cumsum(free, axis=1, dtype=jnp.int32) - 1
        taking = free & (position < size[:, None])
        slot = (turn.num_done[:, None] % self.num_batches) * batch + position
        slot = jnp.where(taking, slot, 0)

        def take(old, staged):
            new = jax.vmap(lambda staged, slot: staged[slot])(staged, slot)
            is_taking = jnp.reshape(taking, self.shape + (1,) * (old.ndim - 2))
            return jnp.where(is_taking, new, old)

        num_taken = turn.num_taken + _count(taking, axis=1)
        is_done = (size > 0) & (num_taken == size)
        return turn._replace(
            num_done=turn.num_done + is_done,
            num_taken=jnp.where(is_done, 0, num_taken),
            lanes=jax.tree.map(take, turn.lanes, self.state.staged),
            occupied=turn.occupied | taking,
        )

    def size_of_next_batch(self, num_done: Array) -> Array:
        """How many trials of the next batch of each row count; 0 where there is none."""
        place = num_done[:, None] % self.num_batches
        sizes = jnp.take_along_axis(self.state.sizes, place, axis=1)
        return jnp.where(num_done < self.state.num_staged, sizes[:, 0], 0)

    def survey(self, turn: _Turn) -> _Survey:
        """What lanes could be given: by the pool itself, and by the host."""
        num_rows, num_lanes = self.shape
        is_dry = turn.num_done == self.state.num_staged
        free = _count(~turn.occupied, axis=1)
        is_starving = is_dry & (self.wants == Wants.ALWAYS)
        is_starving |= is_dry & (self.wants == Wants.WHEN_EMPTY) & (free == num_lanes)
        has_space = self.state.num_staged - turn.num_done <= self.num_batches // 2
        has_space &= self.wants == Wants.ALWAYS
        return _Survey(
            can_refill=jnp.any(~is_dry & (free > 0)),
            starving=_count(jnp.where(is_starving, free, 0)),
            refilling=jnp.any(~is_dry | (self.wants != Wants.NOTHING)),
            # So many rows that the host draws trials for several at once.
            has_space=self.ahead & (8 * _count(has_space) >= num_rows),
        )

    def record(self, turn: _Turn) -> _Turn:
        """Append the results of the lanes that have ended."""
        num_lanes = self.dropped.size
        over = jnp.ravel(turn.occupied & ~self.find_running(turn.lanes, turn.occupied))
        results = self.finish_lanes(turn.lanes)
        # The lanes that have ended, one after the other, and behind them any.
        place = jnp.where(over, jnp.cumsum(over, dtype=jnp.int32) - 1, num_lanes)
        number = jnp.arange(num_lanes, dtype=jnp.int32)
        ended = jnp.zeros(num_lanes, jnp.int32).at[place].set(number, mode="drop")

        def append(log, values):
            values = jnp.ravel(values)[ended]
            return lax.dynamic_update_slice(log, values, (turn.num_ended,))

        new = _Log(self.row_numbers(), turn.lanes.cells, turn.lanes.trials, results)
        return turn._replace(
            occupied=turn.occupied & ~jnp.reshape(over, self.shape),
            num_ended=turn.num_ended + _count(over),
            log=jax.tree.map(append, turn.log, new),
        )

    def find_running(self, lanes: Trials, occupied: Array) -> Array:
        """(rows, lanes) bool, the lanes that have steps left."""
        return self.map_lanes(self.functions.is_running, lanes) & occupied

    def finish_lanes(self, lanes: Trials) -> dict[str, Array]:
        """The results of all lanes, each (rows, lanes)."""
        return self.map_lanes(self.functions.finish, lanes)

    def map_lanes(self, function: Callable[[Any, Any], Any], lanes: Trials) -> Any:
        """A function of rows and lanes, of all lanes."""
        num_rows, num_lanes = self.shape
        over_lanes = jax.vmap(function, (None, 0), axis_size=num_lanes)
        over_rows = jax.vmap(over_lanes, axis_size=num_rows)
        return over_rows(self.state.rows, (lanes.own, lanes.carry))

    def row_numbers(self) -> Array:
        """(rows, lanes) int32, the row of each lane."""
        return lax.broadcasted_iota(jnp.int32, self.shape, 0)


def _count(numbers: Array, axis: int | None = None) -> Array:
    return jnp.sum(numbers, axis=axis, dtype=jnp.int32)
