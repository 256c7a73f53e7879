"""The trial of a recovery experiment: draw a planted problem, solve it, compare with the truth."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import jax
from chex import Array, Numeric, PRNGKey

from jaxht import metrics
from jaxht.constraints import Constraint
from jaxht.ensembles import Problem
from jaxht.objectives import LeastSquares
from jaxht.objectives.objective import Objective
from jaxht.solve import Stop, solve
from jaxht.solver import Solver
from jaxht.sweep.grid import stable_hash
from jaxht.sweep.lanes import Cell

Ensemble = Callable[[PRNGKey, Cell], Problem]
Method = Callable[[Objective, Cell], tuple[Constraint, Solver]]
Metric = Callable[[Array, Array], Array]


@dataclass(frozen=True, eq=False)
class Recovery:
    """A trial for :func:`jaxht.sweep.run` on a grid with an axis ``solver``.

    Args:
        ensemble: (key, cell) -> :class:`jaxht.ensembles.Problem`. With ``planted(key, ..., design_key=cell.key)`` the
            trials of a cell share one A, and with ``planted(key, ...)`` each has its own.
        methods: by name on the axis: (objective, cell) -> (constraint, solver). A name is a part of its solver's
            keys, so that adding a method changes nothing that others draw.
        objective: (A, y) -> objective.
        stop: limits and tolerances, the same for every method.
        metrics: (x, x_true) -> scalar, by name.

    Returns a dict with the metrics, and of the run: ``status``, ``num_steps``, and its counts of ``full_gradients``,
    ``sample_gradients`` and ``projections``.
    """

    ensemble: Ensemble
    methods: Mapping[str, Method]
    objective: Callable[[Array, Array], Any] = LeastSquares
    stop: Stop = Stop()
    metrics: Mapping[str, Metric] = field(
        default_factory=lambda: {"success": metrics.success, "error": metrics.estimation_error}
    )

    def __call__(self, key: PRNGKey, cell: Cell) -> dict[str, Numeric]:
        """Run one trial in one cell."""
        problem = self.ensemble(key, cell)
        objective = self.objective(problem.A, problem.y)
        constraint, solver = self.methods[cell["solver"]](objective, cell)
        solver_key = jax.random.fold_in(key, stable_hash(cell["solver"]))
        result = solve(objective, constraint, solver, key=solver_key, stop=self.stop)
        counts = {name: count for name, count in asdict(result.counts).items() if name != "num_samples"}
        return {
            **{name: metric(result.x, problem.x_true) for name, metric in self.metrics.items()},
            "status": result.status,
            "num_steps": result.num_steps,
            **counts,
        }
