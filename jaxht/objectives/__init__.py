"""What is minimised, and its restricted minimisation."""

from jaxht.objectives.least_squares import LeastSquares as LeastSquares
from jaxht.objectives.logistic import Logistic as Logistic
