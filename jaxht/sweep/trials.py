"""What runs in a lane: any function of a key and a cell, or a solver on a planted problem."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from chex import Array, Numeric, PRNGKey

from jaxht.constraints import Constraint
from jaxht.objectives import LeastSquares
from jaxht.objectives.objective import Objective
from jaxht.planted import metrics
from jaxht.planted.ensembles import Problem
from jaxht.runner import Carry, Stop, advance, finish, prepare, start
from jaxht.runner import Problem as Prepared
from jaxht.solvers.solver import Solver
from jaxht.solvers.status import Status
from jaxht.sweep.grid import stable_hash


@dataclass(frozen=True)
class Cell:
    """Where in the grid a trial stands: ``cell["K"]``.

    Attributes:
        coordinates: by axis; Python values on static axes, traced scalars on the others.
        bounds: static upper bounds on the traced coordinates that are rounded up.
        key: PRNG key for what trials share: those of a cell, and those of all cells that agree on the axes ``shared``.
            What is computed from it and from shared coordinates alone is held once for all of them, and products with
            a shared matrix are matrix-matrix products.
    """

    coordinates: Mapping[str, Any]
    bounds: Mapping[str, int]
    key: PRNGKey

    def __getitem__(self, axis: str) -> Any:
        return self.coordinates[axis]


@runtime_checkable
class Run(Protocol):
    """A trial in steps, whose lane another trial takes over as soon as it ends. All methods are pure functions."""

    def draw(self, key: PRNGKey, cell: Cell) -> Any:
        """The case: all that stays fixed during the run, as a pytree. What is the same for all keys is held once."""
        ...

    def start(self, case: Any) -> Any:
        """What is carried from step to step."""
        ...

    def running(self, carry: Any) -> Array:
        """Whether there are steps to take, a boolean."""
        ...

    def advance(self, case: Any, carry: Any) -> Any:
        """One more step; an ended run stays as it is."""
        ...

    def finish(self, case: Any, carry: Any) -> Mapping[str, Numeric]:
        """The results, scalars by name."""
        ...


Trial = Callable[[PRNGKey, Cell], Mapping[str, Numeric]]


@dataclass(frozen=True, eq=False)
class Whole:
    """A trial in one piece, as a :class:`Run` without steps."""

    trial: Trial

    def draw(self, key: PRNGKey, cell: Cell) -> dict[str, Numeric]:
        """The results: the case is all there is."""
        return dict(self.trial(key, cell))

    def start(self, case: Any) -> None:
        """Nothing."""

    def running(self, carry: None) -> Array:
        """False."""
        return jnp.zeros((), bool)

    def advance(self, case: Any, carry: None) -> None:
        """Nothing."""

    def finish(self, case: dict[str, Numeric], carry: None) -> dict[str, Numeric]:
        """The results."""
        return case


Ensemble = Callable[[PRNGKey, Cell], Problem]
Method = Callable[[Objective, Cell], tuple[Constraint, Solver]]
Metric = Callable[[Array, Array], Array]


@dataclass(frozen=True, eq=False)
class Recovery:
    """Planted recovery: draw a problem, solve it, compare with the truth; for a grid with an axis ``solver``.

    Args:
        ensemble: (key, cell) -> :class:`jaxht.ensembles.Problem`. With ``planted(key, ..., design_key=cell.key)``
            trials share one A, and with ``planted(key, ...)`` each has its own.
        methods: by name on the axis: (objective, cell) -> (constraint, solver). A name is a part of its solver's
            keys, so that adding a method changes nothing that others draw.
        objective: (A, y) -> objective.
        stop: limits and tolerances, the same for every method; or a function from a cell to them.
        metrics: (x, x_true) -> scalar, by name.

    The results are the metrics, and of the run: ``status``, ``num_steps``, and its counts of ``full_gradients``,
    ``sample_gradients`` and ``projections``.
    """

    ensemble: Ensemble
    methods: Mapping[str, Method]
    objective: Callable[[Array, Array], Any] = LeastSquares
    stop: Stop | Callable[[Cell], Stop] = Stop()
    metrics: Mapping[str, Metric] = field(
        default_factory=lambda: {"success": metrics.success, "error": metrics.estimation_error}
    )

    def draw(self, key: PRNGKey, cell: Cell) -> tuple[Prepared, PRNGKey, Array]:
        """What :func:`jaxht.solve` works on, the solver's key, and the truth."""
        planted = self.ensemble(key, cell)
        objective = self.objective(planted.A, planted.y)
        constraint, solver = self.methods[cell["solver"]](objective, cell)
        stop = self.stop(cell) if callable(self.stop) else self.stop
        problem, _, _ = prepare(objective, constraint, solver, stop, None, key)
        return problem, jax.random.fold_in(key, stable_hash(cell["solver"])), planted.x_true

    def start(self, case: tuple[Prepared, PRNGKey, Array]) -> Carry:
        """Before the first step."""
        problem, key, _ = case
        return start(problem, None, key)

    def running(self, carry: Carry) -> Array:
        """Whether none of the stopping tests has been met."""
        return carry.status == Status.RUNNING

    def advance(self, case: tuple[Prepared, PRNGKey, Array], carry: Carry) -> Carry:
        """One step of the solver."""
        return advance(case[0], carry, 1)

    def finish(self, case: tuple[Prepared, PRNGKey, Array], carry: Carry) -> dict[str, Numeric]:
        """The metrics, and what the run has cost."""
        problem, _, x_true = case
        result = finish(problem, carry)
        counts = ("full_gradients", "sample_gradients", "projections")
        return {
            **{name: metric(result.x, x_true) for name, metric in self.metrics.items()},
            "status": result.status,
            "num_steps": result.num_steps,
            **{name: getattr(result.counts, name) for name in counts},
        }
