"""Hard-thresholding methods in JAX: optimisation under a sparsity or rank constraint."""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from jaxht import extend as extend
from jaxht.constraints import Constraint as Constraint
from jaxht.constraints import Edges as Edges
from jaxht.constraints import Groups as Groups
from jaxht.constraints import LowRank as LowRank
from jaxht.constraints import ModelSubspace as ModelSubspace
from jaxht.constraints import SelectionConstraint as SelectionConstraint
from jaxht.constraints import Sparse as Sparse
from jaxht.constraints import Subspace as Subspace
from jaxht.constraints import Support as Support
from jaxht.designs import LinearOperator as LinearOperator
from jaxht.designs import design as design
from jaxht.designs import standardize as standardize
from jaxht.designs import stream as stream
from jaxht.diagnostics import Differentiability as Differentiability
from jaxht.diagnostics import Optimality as Optimality
from jaxht.diagnostics import criteria as criteria
from jaxht.diagnostics import differentiability as differentiability
from jaxht.diagnostics import inference as inference
from jaxht.diagnostics import optimality as optimality
from jaxht.diagnostics import spectral as spectral
from jaxht.diagnostics.optima import exhaustive_search as exhaustive_search
from jaxht.diagnostics.optima import reduced_rank_minimum as reduced_rank_minimum
from jaxht.exact import BranchAndBoundResult as BranchAndBoundResult
from jaxht.exact import Certificate as Certificate
from jaxht.exact import branch_and_bound as branch_and_bound
from jaxht.exact import certify as certify
from jaxht.linalg import projections as projections
from jaxht.linalg import selection as selection
from jaxht.linalg.products import Factored as Factored
from jaxht.objectives import Cox as Cox
from jaxht.objectives import Custom as Custom
from jaxht.objectives import FiniteSum as FiniteSum
from jaxht.objectives import Gamma as Gamma
from jaxht.objectives import GaussianPrecision as GaussianPrecision
from jaxht.objectives import Hinge as Hinge
from jaxht.objectives import Huber as Huber
from jaxht.objectives import LeastSquares as LeastSquares
from jaxht.objectives import Logistic as Logistic
from jaxht.objectives import MultiResponse as MultiResponse
from jaxht.objectives import Objective as Objective
from jaxht.objectives import Ordinal as Ordinal
from jaxht.objectives import Poisson as Poisson
from jaxht.objectives import SmoothedHinge as SmoothedHinge
from jaxht.objectives import Softmax as Softmax
from jaxht.objectives import SquaredHinge as SquaredHinge
from jaxht.objectives import SumOverSamples as SumOverSamples
from jaxht.objectives import matrix_completion as matrix_completion
from jaxht.objectives import matrix_sensing as matrix_sensing
from jaxht.objectives import trace_regression as trace_regression
from jaxht.planted import bounds as bounds
from jaxht.planted import ensembles as ensembles
from jaxht.planted import metrics as metrics
from jaxht.planted import phase_diagram as phase_diagram
from jaxht.runner import Result as Result
from jaxht.runner import Stop as Stop
from jaxht.runner import Validation as Validation
from jaxht.runner import cross_validate as cross_validate
from jaxht.runner import default_solver as default_solver
from jaxht.runner import folds as folds
from jaxht.runner import path as path
from jaxht.runner import solve as solve
from jaxht.runner import trace as trace
from jaxht.runner import validate as validate
from jaxht.solvers import ARHT as ARHT
from jaxht.solvers import DIHT as DIHT
from jaxht.solvers import HSGHT as HSGHT
from jaxht.solvers import HTP as HTP
from jaxht.solvers import HTSAGA as HTSAGA
from jaxht.solvers import HTSVRG as HTSVRG
from jaxht.solvers import IHT as IHT
from jaxht.solvers import NIHT as NIHT
from jaxht.solvers import OLS as OLS
from jaxht.solvers import OMP as OMP
from jaxht.solvers import OMPR as OMPR
from jaxht.solvers import PHT as PHT
from jaxht.solvers import SDIHT as SDIHT
from jaxht.solvers import SGHT as SGHT
from jaxht.solvers import SVRGHT as SVRGHT
from jaxht.solvers import CoSaMP as CoSaMP
from jaxht.solvers import ExhaustiveLocalSearch as ExhaustiveLocalSearch
from jaxht.solvers import FoBa as FoBa
from jaxht.solvers import GraSP as GraSP
from jaxht.solvers import LocalSearch as LocalSearch
from jaxht.solvers import Solver as Solver
from jaxht.solvers import Status as Status
from jaxht.solvers import SubspacePursuit as SubspacePursuit

if TYPE_CHECKING:
    from jaxht import sklearn as sklearn
    from jaxht import sweep as sweep
    from jaxht import transforms as transforms

__version__ = "0.1.0"


def __getattr__(name: str) -> ModuleType:
    """Import the modules that most programs do not use only when they are asked for."""
    if name in ("sklearn", "sweep", "transforms"):
        return importlib.import_module(f"jaxht.{name}")
    raise AttributeError(f"module 'jaxht' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "sklearn", "sweep", "transforms"])
