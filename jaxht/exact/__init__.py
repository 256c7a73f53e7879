"""Global optima of sparse problems, by branch and bound, with bounds that certify them."""

from jaxht.exact.search import BranchAndBoundResult as BranchAndBoundResult
from jaxht.exact.search import BranchStatus as BranchStatus
from jaxht.exact.search import Progress as Progress
from jaxht.exact.search import Solution as Solution
from jaxht.exact.search import branch_and_bound as branch_and_bound
