"""Extreme eigenvalues over all vectors and over sparse ones, and the step sizes that follow from
them."""

from jaxht.diagnostics.spectral import (
    largest_sparse_eigenvalue,
    restricted_condition_number,
    restricted_smoothness,
    restricted_step_size,
    smallest_sparse_eigenvalue,
)

__all__ = [
    "largest_sparse_eigenvalue",
    "restricted_condition_number",
    "restricted_smoothness",
    "restricted_step_size",
    "smallest_sparse_eigenvalue",
]
