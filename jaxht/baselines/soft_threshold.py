"""Soft thresholding, and what the baselines ask of a problem."""

from typing import Any

import jax.numpy as jnp

from jaxht._typing import Array, Numeric
from jaxht.objectives.objective import check_least_squares


def soft_threshold(z: Array, threshold: Numeric) -> Array:
    """``z max(0, 1 - threshold / |z|)``, the proximal operator of ``threshold ||x||_1``, of real
    and complex z."""
    size = jnp.abs(z)
    kept = jnp.maximum(size - threshold, 0)
    return z * (kept / jnp.where(size > 0, size, 1))


def check_free(name: str, objective: Any, constraint: Any) -> None:
    """Raise ValueError unless a constraint leaves the vector of an objective free."""
    (d,) = objective.shape
    is_free = constraint.selects_entries and constraint.is_uniform and constraint.bounds is None
    if not is_free or constraint.k_max != d:
        raise ValueError(
            f"constraint must be Sparse({d}) for {name}, which leaves x free; got {constraint!r}"
        )


def check_problem(name: str, objective: Any, constraint: Any) -> None:
    """Raise ValueError unless an objective is least squares of a vector, and a constraint leaves it
    free."""
    check_least_squares(name, objective, of_vector=True)
    check_free(name, objective, constraint)


def check_unweighted(name: str, objective: Any, constraint: Any) -> None:
    """:func:`check_problem`, and that the objective has neither weights nor a ridge."""
    check_problem(name, objective, constraint)
    if objective.weights is not None or objective.l2 is not None:
        raise ValueError(f"weights and l2 must be left out of the objective for {name}")
