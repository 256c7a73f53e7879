"""What authors of solvers, objectives, constraints and trials need beyond the public names of
:mod:`jaxht`.

* Dataclasses that JAX knows, and their fields: :func:`pytree`, :func:`static`, :func:`integer`,
  :func:`mixed`.
* Protocols, which are also names of :mod:`jaxht`: :class:`Solver`, :class:`Objective`,
  :class:`SumOverSamples`, :class:`Constraint`, :class:`SelectionConstraint`,
  :class:`ModelSubspace`. :class:`SymmetricOperator` for Hessians.
* A step of a solver returns an :class:`Iterate` with its :class:`Counts`, made by :func:`evaluate`.
* Pursuits: :func:`refit` gives a :class:`Refit`; :class:`CycleDetector`, :func:`accept_decrease`,
  :func:`pursuit_step_size`.
* Greedy solvers: :func:`check_selection`, :func:`best_item`, :func:`forward_scores`.
* Factorisations in solvers and trials, under vmap on CPUs: :func:`lane_by_lane`.
* Stochastic solvers: :func:`init_stochastic`, :func:`run_updates`, :func:`batch_smoothness`.
* One run, piece by piece: :func:`prepare` a :class:`Problem`, :func:`start`, :func:`advance` a
  :class:`Carry`, :func:`finish`.
"""

from jaxht._dataclass import integer as integer
from jaxht._dataclass import mixed as mixed
from jaxht._dataclass import pytree as pytree
from jaxht._dataclass import signed as signed
from jaxht._dataclass import static as static
from jaxht.constraints import Constraint as Constraint
from jaxht.constraints import ModelSubspace as ModelSubspace
from jaxht.constraints import SelectionConstraint as SelectionConstraint
from jaxht.constraints import check_selection as check_selection
from jaxht.linalg.lanes import lane_by_lane as lane_by_lane
from jaxht.linalg.operators import SymmetricOperator as SymmetricOperator
from jaxht.objectives import Objective as Objective
from jaxht.objectives import SumOverSamples as SumOverSamples
from jaxht.runner import Carry as Carry
from jaxht.runner import Problem as Problem
from jaxht.runner import advance as advance
from jaxht.runner import finish as finish
from jaxht.runner import prepare as prepare
from jaxht.runner import start as start
from jaxht.solvers import Counts as Counts
from jaxht.solvers import Iterate as Iterate
from jaxht.solvers import Solver as Solver
from jaxht.solvers import evaluate as evaluate
from jaxht.solvers.pursuit import CycleDetector as CycleDetector
from jaxht.solvers.pursuit import accept_decrease as accept_decrease
from jaxht.solvers.pursuit import pursuit_step_size as pursuit_step_size
from jaxht.solvers.sampling import batch_smoothness as batch_smoothness
from jaxht.solvers.sampling import init_stochastic as init_stochastic
from jaxht.solvers.sampling import run_updates as run_updates
from jaxht.solvers.selection import best_item as best_item
from jaxht.subproblems import Refit as Refit
from jaxht.subproblems import refit as refit
from jaxht.subproblems.scores import forward_scores as forward_scores
