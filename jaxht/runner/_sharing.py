"""One compiled program for neighbouring numbers of items: k_max is rounded up."""

import math

from jaxht._dataclass import replace
from jaxht.constraints import Constraint, SelectionConstraint
from jaxht.runner._result import Result

__all__ = ["narrow_support", "share_program"]

# k_max becomes a multiple of this many entries, and of this many items. A refit with so many more
# columns takes little longer.
ENTRIES_PER_STEP = 16
ITEMS_PER_STEP = 4


def share_program(constraint: Constraint, shape: tuple[int, ...]) -> Constraint:
    """Round k_max of a constraint, prepared for ``shape``, up to a multiple of 16 entries, or of
    about an eighth of itself where that is larger."""
    if not isinstance(constraint, SelectionConstraint) or constraint.k_max is None:
        return constraint
    most = constraint.num_items(shape)
    if most is None:
        return constraint
    items_of_entries = ENTRIES_PER_STEP * most // max(1, math.prod(shape))
    eighth = 2 ** max(0, constraint.k_max.bit_length() - 3)
    step = max(ITEMS_PER_STEP, items_of_entries, eighth)
    rounded = -(-constraint.k_max // step) * step
    return constraint.with_k_max(min(most, rounded))


def narrow_support(result: Result, constraint: Constraint) -> Result:
    """Give the support of a result of the shared program the static bound of ``constraint``."""
    if not isinstance(constraint, SelectionConstraint):
        return result
    size = constraint.support_size(result.x.shape)
    return replace(result, support=replace(result.support, k_max=size))
