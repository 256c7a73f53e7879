"""Objectives: an objective consists of a loss, a design and a ridge; :mod:`jaxht.subproblems` decides how
to refit it."""

from jaxht.objectives.custom import Custom as Custom
from jaxht.objectives.finite_sum import FiniteSum as FiniteSum
from jaxht.objectives.glm import Gamma as Gamma
from jaxht.objectives.glm import Hinge as Hinge
from jaxht.objectives.glm import Huber as Huber
from jaxht.objectives.glm import Logistic as Logistic
from jaxht.objectives.glm import Poisson as Poisson
from jaxht.objectives.glm import SmoothedHinge as SmoothedHinge
from jaxht.objectives.glm import SquaredHinge as SquaredHinge
from jaxht.objectives.linear_model import LeastSquares as LeastSquares
from jaxht.objectives.linear_model import LinearModel as LinearModel
from jaxht.objectives.matrices import matrix_completion as matrix_completion
from jaxht.objectives.matrices import matrix_sensing as matrix_sensing
from jaxht.objectives.matrices import trace_regression as trace_regression
from jaxht.objectives.multi_output import MultiResponse as MultiResponse
from jaxht.objectives.multi_output import Softmax as Softmax
from jaxht.objectives.objective import Objective as Objective
from jaxht.objectives.objective import SumOverSamples as SumOverSamples
from jaxht.objectives.objective import check_sum as check_sum
from jaxht.objectives.ordinal import Ordinal as Ordinal
from jaxht.objectives.precision import GaussianPrecision as GaussianPrecision
from jaxht.objectives.survival import Cox as Cox
