"""Diagnostics of a solution: optimality conditions, criteria, inference, restricted eigenvalues."""

from jaxht.diagnostics._optimality import Optimality as Optimality
from jaxht.diagnostics._optimality import optimality as optimality
