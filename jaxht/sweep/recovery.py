"""Trials that solve planted problems and compare the solution with the truth."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from optax.tree_utils import tree_where

from jaxht._typing import Array, Numeric, PRNGKey
from jaxht.constraints import Constraint
from jaxht.objectives import LeastSquares
from jaxht.objectives.objective import Objective
from jaxht.planted import ensembles, metrics
from jaxht.runner import Carry, Problem, Stop, finish, one_turn, prepare, start
from jaxht.solvers.solver import Solver
from jaxht.solvers.status import Status
from jaxht.sweep.grid import stable_hash
from jaxht.sweep.protocol import Cell

__all__ = ["Ensemble", "Method", "Metric", "Recovery"]

Ensemble = Callable[[PRNGKey, Cell], ensembles.PlantedProblem]
Method = Callable[[Objective, Cell], tuple[Constraint, Solver]]
Metric = Callable[[Array, Array], Array]


class RecoveryCase(NamedTuple):
    """A trial of :class:`Recovery`: the prepared problem, the key of its solver, and the truth."""

    problem: Problem
    key: PRNGKey
    x_true: Array


class RecoveryCarry(NamedTuple):
    """The state of such a trial: the loop's, and x at the last look, or None without looks."""

    loop: Carry
    x_before: Any


# A run is left if it would not reach the truth though it went so many times as fast as before, or
# if it is so many times as near to the truth as it has to be.
FASTER = 10
NEARER = 2

# What the run of a solver gives, beside the metrics.
RUN_RESULTS = {"status", "num_steps", "full_gradients", "sample_gradients", "projections"}


@dataclass(frozen=True, eq=False)
class Recovery:
    """Planted recovery: draw a problem, solve it, compare with the truth; for a grid with an axis
    ``solver``.

    Args:
        ensemble: (key, cell) -> :class:`jaxht.ensembles.PlantedProblem`. With ``planted(key, ...,
            design_key=cell.key)`` trials share one A, and with ``planted(key, ...)`` each has its
            own.
        methods: by name on the axis ``solver``: (objective, cell) -> (constraint, solver). A name
            is a part of the keys of its solver, so that adding a method changes nothing that others
            draw.
        objective: (A, y) -> objective.
        stop: limits and tolerances, the same for every method; or a function from a cell to them.
        metrics: (x, x_true) -> scalar, by name.
        look_every: W, an even number, static: every W steps, a run whose success or failure is
            already decided is stopped early, with status RUNNING. A run will not reach the truth
            where ``10 (steps left / W) ||x - x_W|| < ||x - x_true|| - radius``, x_W the iterate W
            steps before: while the supports of IHT repeat every step or every second one, at a step
            size up to 2/L, the remaining steps move x no farther than ``(steps left / W) ||x -
            x_W||``; the factor of 10 allows for supports that change. A run has reached the truth
            where ``||x - x_true|| < radius / 2``: on a support that holds the true one, IHT at such
            a step size comes nearer in every step. None: no run is stopped early.
        radius: distance from the truth within which it counts as recovered, as in
            :func:`jaxht.metrics.success`.

    Its results are the metrics, and of the run ``status``, ``num_steps`` and the counts
    ``full_gradients``, ``sample_gradients`` and ``projections``.

    Raises:
        ValueError: for a ``look_every`` that is odd or below 2, and a metric with the name of a
            result of the run.

    Cost: that of the solver, :func:`jaxht.solve`.

    Source: Shen & Li 2018, §5.1 (success rates over a grid of n and K).

    Example:
        >>> import jaxht
        >>> from jaxht import ensembles, sweep
        >>> def ensemble(key, cell):
        ...     design = lambda key: ensembles.gaussian(key, cell["n"], 32)
        ...     signal = lambda key: ensembles.gaussian_signal(key, 32, cell["K"])
        ...     return ensembles.planted(key, design, signal)
        >>> method = lambda objective, cell: (jaxht.Sparse(cell["K"]), jaxht.IHT())
        >>> trial = sweep.Recovery(ensemble, {"IHT": method})
        >>> axes = {"solver": ["IHT"], "n": [24], "K": [1]}
        >>> results = sweep.run(trial, axes, num_trials=4, static=["n"])
        >>> int(results.success.sum())
        4
    """

    ensemble: Ensemble
    methods: Mapping[str, Method]
    objective: Callable[[Array, Array], Any] = LeastSquares
    stop: Stop | Callable[[Cell], Stop] = Stop()
    metrics: Mapping[str, Metric] = field(
        default_factory=lambda: {"success": metrics.success, "error": metrics.estimation_error}
    )
    look_every: int | None = None
    radius: float = 1e-3

    def __post_init__(self) -> None:
        if self.look_every is not None and (self.look_every < 2 or self.look_every % 2):
            raise ValueError(
                f"look_every must be even and at least 2, or None; got {self.look_every}"
            )
        if taken := RUN_RESULTS.intersection(self.metrics):
            raise ValueError(
                f"no metric may be named {min(taken)!r}: the run has a result of that name"
            )

    def draw(self, key: PRNGKey, cell: Cell) -> RecoveryCase:
        """The prepared problem, the key of the solver, and the truth."""
        planted = self.ensemble(key, cell)
        objective = self.objective(planted.A, planted.y)
        constraint, solver = self.methods[cell["solver"]](objective, cell)
        stop = self.stop(cell) if callable(self.stop) else self.stop
        problem, _, _ = prepare(objective, constraint, solver, key=key, stop=stop)
        solver_key = jax.random.fold_in(key, stable_hash(cell["solver"]))
        return RecoveryCase(problem, solver_key, planted.x_true)

    def start(self, case: RecoveryCase) -> RecoveryCarry:
        """The carry of the runner before the first step, and its x where it is looked at."""
        loop = start(case.problem, None, case.key)
        return RecoveryCarry(loop, None if self.look_every is None else loop.iterate.x)

    def running(self, carry: RecoveryCarry) -> Array:
        """Whether no stopping test has been met, and the run has not been left."""
        return carry.loop.status == Status.RUNNING

    def advance(self, case: RecoveryCase, carry: RecoveryCarry) -> RecoveryCarry:
        """Take a turn of the solver, and perhaps a look at where the last steps have led."""
        is_running = carry.loop.status == Status.RUNNING
        loop = tree_where(is_running, one_turn(case.problem, carry.loop), carry.loop)
        if self.look_every is None:
            return RecoveryCarry(loop, None)
        x = loop.iterate.x
        looks = (loop.num_steps % self.look_every == 0) & (loop.status == Status.RUNNING)
        looks &= loop.info.ends_step
        steps_left = case.problem.stop.max_steps - loop.num_steps
        move = metrics.estimation_error(x, carry.x_before)
        reach = FASTER * steps_left / self.look_every * move
        error = metrics.estimation_error(x, case.x_true)
        is_decided = (reach < error - self.radius) | (NEARER * error < self.radius)
        # With another status than RUNNING it stays as it is from here.
        status = jnp.where(looks & is_decided, Status.MAX_STEPS, loop.status)
        x_before = jnp.where(looks, x, carry.x_before)
        return RecoveryCarry(replace(loop, status=status), x_before)

    def finish(self, case: RecoveryCase, carry: RecoveryCarry) -> dict[str, Numeric]:
        """The metrics, and the counts of the run."""
        loop = carry.loop
        result = finish(case.problem, loop)
        has_steps_left = loop.num_steps < case.problem.stop.max_steps
        was_left = (loop.status == Status.MAX_STEPS) & has_steps_left
        return {
            **{name: metric(result.x, case.x_true) for name, metric in self.metrics.items()},
            "status": jnp.where(was_left, Status.RUNNING, result.status),
            "num_steps": result.num_steps,
            "full_gradients": result.counts.full_gradients,
            "sample_gradients": result.counts.sample_gradients,
            "projections": result.counts.projections,
        }
