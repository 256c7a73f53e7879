"""Hard-thresholding methods in JAX: optimisation under a sparsity or rank constraint."""

import importlib as _importlib
import types as _types
from typing import TYPE_CHECKING as _TYPE_CHECKING

from jaxht import (
    bounds,
    criteria,
    ensembles,
    extend,
    inference,
    metrics,
    operators,
    phase_diagram,
    projections,
    selection,
    spectral,
)
from jaxht._kept_programs import keep_programs
from jaxht._kept_programs import read_environment as _read_environment
from jaxht.constraints import (
    Constraint,
    Edges,
    Groups,
    LatentGroups,
    LowRank,
    ModelSubspace,
    SelectionConstraint,
    Sparse,
    SparsePerGroup,
    Subspace,
    Support,
)
from jaxht.designs import LinearOperator, design, standardize, stream
from jaxht.diagnostics import Differentiability, Optimality, differentiability, optimality
from jaxht.diagnostics.optima import exhaustive_search, reduced_rank_minimum
from jaxht.exact import BranchAndBoundResult, Certificate, branch_and_bound, certify
from jaxht.linalg.products import Factored
from jaxht.objectives import (
    Cox,
    Custom,
    FiniteSum,
    Gamma,
    GaussianPrecision,
    Hinge,
    Huber,
    LeastSquares,
    Logistic,
    MomentLeastSquares,
    Moments,
    MultiResponse,
    Objective,
    Ordinal,
    Poisson,
    SmoothedHinge,
    Softmax,
    SquaredHinge,
    SumOverSamples,
    matrix_completion,
    matrix_effects,
    matrix_sensing,
    trace_regression,
)
from jaxht.runner import (
    Result,
    Stop,
    Validation,
    cross_validate,
    default_solver,
    disable_padding,
    folds,
    path,
    solve,
    trace,
    validate,
)
from jaxht.solvers import (
    ARHT,
    CGIHT,
    DIHT,
    HSGHT,
    HTP,
    HTSAGA,
    HTSVRG,
    IHT,
    NIHT,
    OLS,
    OMP,
    OMPR,
    PHT,
    SDIHT,
    SGHT,
    SVRGHT,
    CoSaMP,
    ExhaustiveLocalSearch,
    ExhaustiveSearch,
    FoBa,
    GraSP,
    LocalSearch,
    Solver,
    Status,
    SubspacePursuit,
)

if _TYPE_CHECKING:
    from jaxht import baselines, pruning, sklearn, sweep, transforms

__all__ = [
    "ARHT",
    "CGIHT",
    "DIHT",
    "HSGHT",
    "HTP",
    "HTSAGA",
    "HTSVRG",
    "IHT",
    "NIHT",
    "OLS",
    "OMP",
    "OMPR",
    "PHT",
    "SDIHT",
    "SGHT",
    "SVRGHT",
    "BranchAndBoundResult",
    "Certificate",
    "CoSaMP",
    "Constraint",
    "Cox",
    "Custom",
    "Differentiability",
    "Edges",
    "ExhaustiveLocalSearch",
    "ExhaustiveSearch",
    "Factored",
    "FiniteSum",
    "FoBa",
    "Gamma",
    "GaussianPrecision",
    "GraSP",
    "Groups",
    "Hinge",
    "Huber",
    "LatentGroups",
    "LeastSquares",
    "LinearOperator",
    "LocalSearch",
    "Logistic",
    "LowRank",
    "ModelSubspace",
    "MomentLeastSquares",
    "Moments",
    "MultiResponse",
    "Objective",
    "Optimality",
    "Ordinal",
    "Poisson",
    "Result",
    "SelectionConstraint",
    "SmoothedHinge",
    "Softmax",
    "Solver",
    "Sparse",
    "SparsePerGroup",
    "SquaredHinge",
    "Status",
    "Stop",
    "Subspace",
    "SubspacePursuit",
    "SumOverSamples",
    "Support",
    "Validation",
    "baselines",
    "bounds",
    "branch_and_bound",
    "certify",
    "criteria",
    "cross_validate",
    "default_solver",
    "design",
    "differentiability",
    "disable_padding",
    "ensembles",
    "exhaustive_search",
    "extend",
    "folds",
    "inference",
    "keep_programs",
    "matrix_completion",
    "matrix_effects",
    "matrix_sensing",
    "metrics",
    "operators",
    "optimality",
    "path",
    "phase_diagram",
    "projections",
    "pruning",
    "reduced_rank_minimum",
    "selection",
    "sklearn",
    "solve",
    "spectral",
    "standardize",
    "stream",
    "sweep",
    "trace",
    "trace_regression",
    "transforms",
    "validate",
]

__version__ = "0.1.0"


_read_environment()


def __getattr__(name: str) -> _types.ModuleType:
    """Import the modules that most programs do not use only when they are asked for."""
    if name in ("baselines", "pruning", "sklearn", "sweep", "transforms"):
        return _importlib.import_module(f"jaxht.{name}")
    raise AttributeError(f"module 'jaxht' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
