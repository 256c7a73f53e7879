"""What a branch and bound returns and reports."""

import dataclasses
import enum
import sys
from typing import Any

from numpy.typing import NDArray

from jaxht._repr import short_repr

__all__ = ["BranchAndBoundProgress", "BranchAndBoundResult", "BranchStatus", "Solution"]


class BranchStatus(enum.IntEnum):
    """Why a branch and bound ended."""

    #: The gap is at most ``gap_rtol``: no support is better by more.
    OPTIMAL = 1
    #: ``time_limit`` has passed.
    TIME_LIMIT = 2
    #: ``node_limit`` nodes were bounded.
    NODE_LIMIT = 3
    #: Ctrl-C.
    INTERRUPTED = 4
    #: Nothing is left to branch on, but the bounds of single supports are not as close as
    #: ``gap_rtol``.
    INEXACT = 5


@dataclasses.dataclass(frozen=True)
class Solution:
    """A point on a support.

    Attributes:
        x: (d,), the minimiser of f on the support.
        items: int64, sorted: the coordinates of the support; of :class:`jaxht.Groups`, the groups.
        value: f(x) plus a bound of its rounding error.
    """

    x: NDArray[Any]
    items: NDArray[Any]
    value: float


@dataclasses.dataclass(frozen=True)
class BranchAndBoundResult:
    """The best point that was found, and a lower bound on f over the whole constraint.

    Attributes:
        x: (d,), the best point, in double precision.
        value: f(x) plus a bound of its rounding error, in double precision.
        lower: a lower bound of f over the constraint, in double precision, less a bound of its
            rounding error.
        status: a :class:`jaxht.exact.BranchStatus`.
        num_nodes: how many relaxations were solved, the root included.
        root_lower: the lower bound at the root, before branching.
        seconds: wall time, compiling included.
        history: (t, 4) of seconds, num_nodes, value and lower, over time.
        solutions: the best points found, each on another support, the best first: ``num_solutions``
            of them at most.
        big_m: the bound of |x| under which ``lower`` holds; None where no bound had to be assumed.
        closing_ridge: an estimate of the l2 that would close the gap at the root, by the margin of
            Yuan et al. 2020, Theorem 2.
    """

    x: NDArray[Any]
    value: float
    lower: float
    status: BranchStatus
    num_nodes: int
    root_lower: float
    seconds: float
    history: NDArray[Any]
    solutions: list[Solution]
    big_m: float | None
    closing_ridge: float

    @property
    def gap(self) -> float:
        """``value - lower``: no point of the constraint is better than x by more."""
        return self.value - self.lower

    def __repr__(self) -> str:
        return short_repr(
            self,
            status=self.status.name,
            value=self.value,
            lower=self.lower,
            gap=self.gap,
            num_nodes=self.num_nodes,
            seconds=round(self.seconds, 3),
        )


@dataclasses.dataclass(frozen=True)
class BranchAndBoundProgress:
    """How far a branch and bound is.

    Attributes:
        seconds: since its start.
        num_nodes: relaxations that were solved.
        num_open: nodes that wait.
        value: of the best point.
        lower: the lower bound.
    """

    seconds: float
    num_nodes: int
    num_open: int
    value: float
    lower: float

    def __str__(self) -> str:
        gap = (self.value - self.lower) / max(abs(self.value), sys.float_info.min)
        return (
            f"{self.seconds:8.1f} s  {self.num_nodes:8d} nodes  {self.num_open:8d} open  "
            f"f = {self.value:.8g}  lower = {self.lower:.8g}  gap = {100 * gap:.4f} %"
        )
