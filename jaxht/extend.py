"""What authors of solvers, objectives, constraints and trials need beyond the public names of
:mod:`jaxht`.

* Dataclasses that JAX knows, and their fields: :func:`pytree`, :func:`static`, :func:`integer`,
  :func:`at_least`, :func:`mixed`.
* Protocols, which are also names of :mod:`jaxht`: :class:`Solver`, :class:`Objective`,
  :class:`SumOverSamples`, :class:`Constraint`, :class:`SelectionConstraint`,
  :class:`ModelSubspace`. :class:`SymmetricOperator` for Hessians.
* Base classes: :class:`LinearModel` with a :class:`Loss` or :class:`ScalarLoss`, :class:`Design`.
* A step of a solver returns an :class:`Iterate`, made by :func:`evaluate`, its state, and an
  :class:`Info`; the runner adds these up to :class:`Counts`.
* Pursuits: :func:`refit` gives a :class:`Refit`; :class:`CycleDetector`, :func:`has_decreased`,
  :func:`pursuit_step_size`.
* Greedy solvers: :func:`check_selection`, :func:`best_item`; a :class:`Subproblem`, which
  :func:`subproblem` chooses, has scores of items.
* Factorisations in solvers and trials, under vmap on CPUs: :func:`lane_by_lane`.
* Stochastic solvers: :func:`init_stochastic`, :func:`run_updates`, :func:`batch_smoothness`.
* One run, piece by piece: :func:`prepare` a :class:`Problem`, :func:`start`, :func:`advance` a
  :class:`Carry`, :func:`finish`.
"""

from jaxht._dataclass import at_least, integer, mixed, pytree, static
from jaxht.constraints import Constraint, ModelSubspace, SelectionConstraint, check_selection
from jaxht.designs import Design
from jaxht.linalg.lanes import lane_by_lane
from jaxht.linalg.operators import SymmetricOperator
from jaxht.objectives import Objective, SumOverSamples
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.losses import Loss, ScalarLoss
from jaxht.runner import Carry, Problem, advance, finish, prepare, start
from jaxht.solvers import Counts, Info, Iterate, Solver, evaluate
from jaxht.solvers.pursuit import CycleDetector, has_decreased, pursuit_step_size
from jaxht.solvers.sampling import batch_smoothness, init_stochastic, run_updates
from jaxht.solvers.selection import best_item
from jaxht.subproblems import Refit, Subproblem, refit, subproblem

__all__ = [
    "Carry",
    "Constraint",
    "Counts",
    "CycleDetector",
    "Design",
    "Info",
    "Iterate",
    "LinearModel",
    "Loss",
    "ModelSubspace",
    "Objective",
    "Problem",
    "Refit",
    "ScalarLoss",
    "SelectionConstraint",
    "Solver",
    "Subproblem",
    "SumOverSamples",
    "SymmetricOperator",
    "advance",
    "at_least",
    "batch_smoothness",
    "best_item",
    "check_selection",
    "evaluate",
    "finish",
    "has_decreased",
    "init_stochastic",
    "integer",
    "lane_by_lane",
    "mixed",
    "prepare",
    "pursuit_step_size",
    "pytree",
    "refit",
    "run_updates",
    "start",
    "static",
    "subproblem",
]
