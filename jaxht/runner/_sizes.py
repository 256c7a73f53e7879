"""The sizes that shapes are rounded up to, so that neighbouring problems share a program."""

import math
import sys
from typing import cast

from jaxht._rounding import round_up
from jaxht.constraints import Constraint, SelectionConstraint

__all__ = ["MAX_SMALL_COLUMNS", "is_small_shape", "round_k_max", "round_shape"]

# k_max becomes a multiple of this many entries, and of this many items. A refit with so many more
# columns takes little longer.
ENTRIES_PER_STEP = 16
ITEMS_PER_STEP = 4

# Numbers of columns and of samples of small problems, whose programs take seconds to compile and
# milliseconds to run.
SMALL_COLUMNS = (64, 128)
SMALL_SAMPLES = (128, 1024, 4096)
# Entries of a padded small problem.
MAX_SMALL_ENTRIES = 2**19
# Beyond this many columns a problem runs for longer than what a coarse size may add to it: the
# sizes are sixteenths of powers of two, which adds 6 % on average. A search on 100 x 300, logistic,
# takes eight times as long on 1024 x 512.
MAX_SMALL_COLUMNS = 100


def round_shape(n: int, d: int, is_compressed: bool, is_cheap: bool = True) -> tuple[int, int]:
    """Round numbers of samples and of columns up; those of compressed least squares are one.

    Args:
        n: the number of samples.
        d: the number of columns.
        is_compressed: whether more samples than columns are never needed.
        is_cheap: whether small problems take milliseconds.
    """
    columns = _next(SMALL_COLUMNS, d)
    samples = _next(SMALL_SAMPLES, n)
    is_small = is_cheap and d <= MAX_SMALL_COLUMNS and columns * samples <= MAX_SMALL_ENTRIES
    if not is_small:
        columns = round_up(d, 16, least=8)
        samples = round_up(n, 16, least=8)
    if is_compressed and (is_small or n > d) and n <= columns + 1:
        samples = columns + 1
    return samples, columns


def is_small_shape(shape: tuple[int, int]) -> bool:
    """Whether a padded shape is one of the sizes of small problems."""
    samples, columns = shape
    if columns not in SMALL_COLUMNS or math.prod(shape) > MAX_SMALL_ENTRIES:
        return False
    return samples in SMALL_SAMPLES or samples == columns + 1


def _next(sizes: tuple[int, ...], size: int) -> int:
    return min((each for each in sizes if each >= size), default=sys.maxsize)


def round_k_max(constraint: Constraint, shape: tuple[int, ...]) -> Constraint:
    """Round k_max of a constraint, prepared for ``shape``, up to a multiple of 16 entries, or of
    about an eighth of itself where that is larger."""
    k_max = constraint.k_max
    if not constraint.selects_items or k_max is None:
        return constraint
    constraint = cast(SelectionConstraint, constraint)
    most = constraint.num_items(shape)
    if most is None:
        return constraint
    items_of_entries = ENTRIES_PER_STEP * most // max(1, math.prod(shape))
    rounded = round_up(k_max, 4, least=max(ITEMS_PER_STEP, items_of_entries))
    return constraint.with_k_max(min(most, rounded))
