"""What authors of solvers, objectives, constraints and trials need beside the public names of :mod:`jaxht`.

* Fields of a dataclass that JAX knows: :func:`pytree`, :func:`static`, :func:`integer`, :func:`mixed`.
* A solver returns an :class:`Iterate` with its :class:`Counts` and :class:`jaxht.Status`, made by :func:`evaluate`.
* A refit on a support: :func:`refit`, which returns a :class:`Refit`.
* One run, step by step: :func:`prepare`, :func:`start`, :func:`advance`, :func:`finish`.
* The protocols: :class:`Solver`, :class:`Objective`, :class:`Constraint`.
"""

from jaxht._pytree import integer as integer
from jaxht._pytree import mixed as mixed
from jaxht._pytree import pytree as pytree
from jaxht._pytree import static as static
from jaxht.constraints import Constraint as Constraint
from jaxht.constraints import ModelSubspace as ModelSubspace
from jaxht.constraints import SelectionConstraint as SelectionConstraint
from jaxht.linalg.operators import SymmetricOperator as SymmetricOperator
from jaxht.objectives import Objective as Objective
from jaxht.objectives import SumOverSamples as SumOverSamples
from jaxht.refit import Refit as Refit
from jaxht.refit import refit as refit
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
from jaxht.solvers import evaluate_refit as evaluate_refit
