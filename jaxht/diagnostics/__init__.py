"""Diagnostics of a solution: optimality conditions, certificates by duality, restricted eigenvalues."""

from jaxht.diagnostics._optimality import Optimality as Optimality
from jaxht.diagnostics._optimality import optimality as optimality
from jaxht.diagnostics.certificate import Certificate as Certificate
from jaxht.diagnostics.certificate import certify as certify
