"""Exact selection of the k entries of largest magnitude, with one rule for ties.

Ties go to the lowest index, -0.0 equals 0.0, and NaN (of any sign and payload) ranks above
infinity, on every path and every device. ``k`` may be traced.
"""

from jaxht.linalg.selection import (
    count_nonzero,
    decreasing_order,
    k_largest_indices,
    k_largest_mask,
    k_largest_masks,
    mask_to_indices,
)

__all__ = [
    "count_nonzero",
    "decreasing_order",
    "k_largest_indices",
    "k_largest_mask",
    "k_largest_masks",
    "mask_to_indices",
]
