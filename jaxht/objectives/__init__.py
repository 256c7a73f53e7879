"""What is minimised, and its restricted minimisation."""

from jaxht.objectives.custom import Custom as Custom
from jaxht.objectives.finite_sum import FiniteSum as FiniteSum
from jaxht.objectives.glm import Hinge as Hinge
from jaxht.objectives.glm import Huber as Huber
from jaxht.objectives.glm import Logistic as Logistic
from jaxht.objectives.glm import Poisson as Poisson
from jaxht.objectives.glm import SmoothedHinge as SmoothedHinge
from jaxht.objectives.glm import SquaredHinge as SquaredHinge
from jaxht.objectives.least_squares import LeastSquares as LeastSquares
from jaxht.objectives.matrices import MatrixCompletion as MatrixCompletion
from jaxht.objectives.matrices import MatrixSensing as MatrixSensing
from jaxht.objectives.matrices import TraceRegression as TraceRegression
from jaxht.objectives.multi_output import MultiResponse as MultiResponse
from jaxht.objectives.multi_output import Softmax as Softmax
from jaxht.objectives.precision import GaussianPrecision as GaussianPrecision
