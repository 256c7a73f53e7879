"""Projections onto the constraint sets: the nearest point of the set in the l2 norm."""

from jaxht.linalg.projections import hard_threshold, l2_ball, low_rank, sparse_l2_ball

__all__ = ["hard_threshold", "l2_ball", "low_rank", "sparse_l2_ball"]
