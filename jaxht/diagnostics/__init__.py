"""Diagnostics of a solution: optimality conditions, criteria, inference, restricted eigenvalues."""

from jaxht.diagnostics._optimality import Differentiability as Differentiability
from jaxht.diagnostics._optimality import Optimality as Optimality
from jaxht.diagnostics._optimality import differentiability as differentiability
from jaxht.diagnostics._optimality import optimality as optimality
