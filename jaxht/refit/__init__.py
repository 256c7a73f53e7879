"""Refits: the minimiser of an objective on the support that a constraint's projection has found."""

from typing import Any

from chex import Array

from jaxht.refit.newton import Refit as Refit


def refit(objective: Any, support: Any, x: Array, ridge: Array | None = None) -> Refit:
    """Minimise ``f(x) + 1/2 sum_i ridge_i x_i^2`` over the x on a support, starting from x."""
    return objective.minimise(support, x, ridge)
