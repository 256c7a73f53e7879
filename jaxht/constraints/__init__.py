"""The sets C over which objectives are minimised, as projections; and the linear subspaces on which
points of C lie."""

from jaxht.constraints.constraint import Constraint, SelectionConstraint, check_selection
from jaxht.constraints.edges import Edges
from jaxht.constraints.groups import Groups
from jaxht.constraints.latent import LatentGroups
from jaxht.constraints.low_rank import LowRank
from jaxht.constraints.model_subspace import ModelSubspace
from jaxht.constraints.per_group import SparsePerGroup
from jaxht.constraints.sparse import Sparse
from jaxht.constraints.subspace import Subspace
from jaxht.constraints.support import Support
from jaxht.constraints.trees import TreeSparse

__all__ = [
    "Constraint",
    "Edges",
    "Groups",
    "LatentGroups",
    "LowRank",
    "ModelSubspace",
    "SelectionConstraint",
    "Sparse",
    "SparsePerGroup",
    "Subspace",
    "Support",
    "TreeSparse",
    "check_selection",
]
