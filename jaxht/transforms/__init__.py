"""Hard thresholding inside optax training loops: parameters that are exactly sparse after every
update."""

from jaxht.transforms.density import constant as constant
from jaxht.transforms.density import cubic as cubic
from jaxht.transforms.density import erdos_renyi_kernel as erdos_renyi_kernel
from jaxht.transforms.density import exponential as exponential
from jaxht.transforms.density import one_shot as one_shot
from jaxht.transforms.density import uniform as uniform
from jaxht.transforms.momentum import heavy_ball as heavy_ball
from jaxht.transforms.momentum import reset_moments as reset_moments
from jaxht.transforms.projections import l2_ball as l2_ball
from jaxht.transforms.projections import low_rank as low_rank
from jaxht.transforms.report import Sparsity as Sparsity
from jaxht.transforms.report import sparsity as sparsity
from jaxht.transforms.scope import NM as NM
from jaxht.transforms.scope import Axis as Axis
from jaxht.transforms.scope import Blocks as Blocks
from jaxht.transforms.scope import Scope as Scope
from jaxht.transforms.threshold import hard_threshold as hard_threshold
from jaxht.transforms.threshold import prune as prune
from jaxht.transforms.threshold import straight_through as straight_through
