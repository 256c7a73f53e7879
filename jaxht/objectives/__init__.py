"""What is minimised, and its restricted minimisation."""

from jaxht.objectives.custom import Custom as Custom
from jaxht.objectives.finite_sum import FiniteSum as FiniteSum
from jaxht.objectives.generalised import Hinge as Hinge
from jaxht.objectives.generalised import Huber as Huber
from jaxht.objectives.generalised import Logistic as Logistic
from jaxht.objectives.generalised import Poisson as Poisson
from jaxht.objectives.generalised import SmoothedHinge as SmoothedHinge
from jaxht.objectives.generalised import SquaredHinge as SquaredHinge
from jaxht.objectives.least_squares import LeastSquares as LeastSquares
from jaxht.objectives.multi_output import MultiResponse as MultiResponse
from jaxht.objectives.multi_output import Softmax as Softmax
from jaxht.objectives.precision import GaussianPrecision as GaussianPrecision
from jaxht.objectives.trace_regression import MatrixCompletion as MatrixCompletion
from jaxht.objectives.trace_regression import MatrixSensing as MatrixSensing
from jaxht.objectives.trace_regression import TraceRegression as TraceRegression
