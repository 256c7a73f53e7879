"""Objectives: the functions that are minimised; those on data consist of a loss, a design and a
ridge."""

from jaxht.objectives.custom import Custom
from jaxht.objectives.effects import Effects
from jaxht.objectives.finite_sum import FiniteSum
from jaxht.objectives.glm import (
    Gamma,
    Hinge,
    Huber,
    Logistic,
    OneBit,
    Poisson,
    SmoothedHinge,
    SquaredHinge,
)
from jaxht.objectives.linear_model import LeastSquares, LinearModel
from jaxht.objectives.matrices import (
    matrix_completion,
    matrix_effects,
    matrix_sensing,
    trace_regression,
)
from jaxht.objectives.moments import MomentLeastSquares, Moments
from jaxht.objectives.multi_output import MultiResponse, Softmax
from jaxht.objectives.objective import Objective, SumOverSamples, check_sum
from jaxht.objectives.ordinal import Ordinal
from jaxht.objectives.precision import GaussianPrecision
from jaxht.objectives.survival import Cox

__all__ = [
    "Cox",
    "Custom",
    "Effects",
    "FiniteSum",
    "Gamma",
    "GaussianPrecision",
    "Hinge",
    "Huber",
    "LeastSquares",
    "LinearModel",
    "Logistic",
    "MomentLeastSquares",
    "Moments",
    "MultiResponse",
    "Objective",
    "OneBit",
    "Ordinal",
    "Poisson",
    "SmoothedHinge",
    "Softmax",
    "SquaredHinge",
    "SumOverSamples",
    "check_sum",
    "matrix_completion",
    "matrix_effects",
    "matrix_sensing",
    "trace_regression",
]
