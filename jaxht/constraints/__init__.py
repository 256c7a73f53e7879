"""The sets C over which objectives are minimised, as projections with a region to minimise on."""

from jaxht.constraints.constraint import Constraint as Constraint
from jaxht.constraints.edges import Edges as Edges
from jaxht.constraints.groups import Groups as Groups
from jaxht.constraints.rank import LowRank as LowRank
from jaxht.constraints.sparse import Sparse as Sparse
