"""The sets C over which objectives are minimised, as projections; and the linear subspaces on which
points of C lie."""

from jaxht.constraints.constraint import Constraint as Constraint
from jaxht.constraints.constraint import SelectionConstraint as SelectionConstraint
from jaxht.constraints.constraint import check_selection as check_selection
from jaxht.constraints.edges import Edges as Edges
from jaxht.constraints.groups import Groups as Groups
from jaxht.constraints.low_rank import LowRank as LowRank
from jaxht.constraints.model_subspace import ModelSubspace as ModelSubspace
from jaxht.constraints.sparse import Sparse as Sparse
from jaxht.constraints.subspace import Subspace as Subspace
from jaxht.constraints.support import Support as Support
