"""Hard thresholding inside optax training loops: parameters that are exactly sparse after every
update."""

from jaxht.transforms.density import (
    constant,
    cubic,
    erdos_renyi_kernel,
    exponential,
    one_shot,
    uniform,
)
from jaxht.transforms.momentum import polyak_momentum, reset_moments
from jaxht.transforms.projections import l2_ball, low_rank
from jaxht.transforms.report import Sparsity, sparsity
from jaxht.transforms.scope import NM, Axis, Blocks, Scope
from jaxht.transforms.threshold import hard_threshold, prune, straight_through

__all__ = [
    "NM",
    "Axis",
    "Blocks",
    "Scope",
    "Sparsity",
    "constant",
    "cubic",
    "erdos_renyi_kernel",
    "exponential",
    "hard_threshold",
    "l2_ball",
    "low_rank",
    "one_shot",
    "polyak_momentum",
    "prune",
    "reset_moments",
    "sparsity",
    "straight_through",
    "uniform",
]
