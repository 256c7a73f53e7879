"""Global optima of sparse problems, by branch and bound, with bounds that certify them."""

from jaxht.exact.certificate import Certificate, certify
from jaxht.exact.result import BranchAndBoundProgress, BranchAndBoundResult, BranchStatus, Solution
from jaxht.exact.search import branch_and_bound

__all__ = [
    "BranchAndBoundProgress",
    "BranchAndBoundResult",
    "BranchStatus",
    "Certificate",
    "Solution",
    "branch_and_bound",
    "certify",
]
