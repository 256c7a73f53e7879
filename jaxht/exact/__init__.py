"""Global optima of sparse problems, by branch and bound, with bounds that certify them."""

from jaxht.exact.certificate import Certificate as Certificate
from jaxht.exact.certificate import certify as certify
from jaxht.exact.result import BranchAndBoundResult as BranchAndBoundResult
from jaxht.exact.result import BranchStatus as BranchStatus
from jaxht.exact.result import Progress as Progress
from jaxht.exact.result import Solution as Solution
from jaxht.exact.search import branch_and_bound as branch_and_bound
