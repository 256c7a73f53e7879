"""One compiled program for problems of neighbouring sizes: samples, columns and slots are added.

Outside of a caller's jit, the numbers of samples, of columns and of items are rounded up to one of
few sizes before a program is compiled: by samples of weight 0, by columns of zeros that are never
selected, and by empty slots of supports. The function, its values and the results stay the same.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from jaxht._dataclass import replace
from jaxht._programs import is_tracing
from jaxht.constraints import Constraint
from jaxht.linalg.inner_products import is_complex
from jaxht.runner._problem import DenseStart, Problem, Start
from jaxht.runner._result import Result
from jaxht.runner._sizes import MAX_SMALL_COLUMNS, round_k_max, round_shape

__all__ = [
    "Padding",
    "crop",
    "disable_padding",
    "is_padding_enabled",
    "pad_objective",
    "pad_problem",
]

# Multiplications of a QR factorisation that replaces the samples of least squares; about 0.2 s.
MAX_COMPRESSION = 2_000_000_000
# Samples per column from which it pays where there are many columns: 2000 x 120 takes twice as long
# with it, in fits that are repeated.
COMPRESSION_RATIO = 32
# Entries of a design, stored or not, beyond which a copy of it costs more than a program saves.
MAX_PADDED_ENTRIES = 2**24

T = TypeVar("T")

_is_enabled = contextvars.ContextVar("jaxht_padding", default=True)


@contextlib.contextmanager
def disable_padding() -> Iterator[None]:
    """Compile programs for the shapes as they are, while this context is open.

    Outside of ``jit``, ``solve`` without a solver, ``path`` and ``choose_k`` of forward selection,
    and the estimators round shapes up to one of few sizes, so that the next data set finds a
    compiled program: columns to 64 or 128 and samples to 128, 1024 or 4096; beyond 100 columns,
    and beyond 2^19 entries, both to a sixteenth of a power of two. Least squares of more samples than
    columns are replaced by those of their QR factorisation, whose program does not depend on n.
    Results agree but for rounding.

    Returns:
        A context manager.

    Cost: none; each new shape compiles.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> with jaxht.disable_padding():
        ...     result = jaxht.solve(jaxht.LeastSquares(jnp.eye(2), jnp.ones(2)), jaxht.Sparse(1))
        >>> result.x.tolist()
        [1.0, 0.0]
    """
    token = _is_enabled.set(False)
    try:
        yield
    finally:
        _is_enabled.reset(token)


def is_padding_enabled() -> bool:
    """Whether shapes are padded here: outside of every trace, unless it is turned off."""
    return _is_enabled.get() and not is_tracing()


class Padding(NamedTuple):
    """A problem of a size that has a program, and how its results become those of the original.

    Attributes:
        problem: that is solved.
        x0: its start.
        original: the constraint of the original problem.
        num_samples: of the original problem.
        num_columns: of the original problem; None where columns are as they were.
    """

    problem: Problem
    x0: Start
    original: Constraint
    num_samples: int
    num_columns: int | None

    @property
    def shape(self) -> tuple[int, int] | None:
        """The shape of a design that was padded."""
        if not self.is_padded:
            return None
        objective: Any = self.problem.objective
        return objective.design.shape

    @property
    def is_padded(self) -> bool:
        """Whether samples or columns were added."""
        return self.num_columns is not None

    def restore(self, result: Result, num_lanes: int | None = None) -> Result:
        """Return a result of the problem as one of the original, or the first of several lanes."""
        if num_lanes is not None and self.is_padded:
            result = crop(result, slice(num_lanes))
        original: Any = self.original
        is_same_support = original is self.problem.constraint
        if is_same_support or not original.selects_items:
            return result
        support = result.support
        axis = result.x.ndim - support.ndim
        x = result.x
        mask = support.mask
        bounds = support.bounds
        if self.is_padded:
            x = self._crop(x, axis)
            mask = self._crop(mask, axis)
            bounds = None if bounds is None else tuple(self._crop(b, axis) for b in bounds)
            result = replace(result, counts=replace(result.counts, num_samples=self.num_samples))
        k_max = original.support_size(x.shape[axis:])
        support = replace(support, mask=mask, bounds=bounds, k_max=k_max)
        return replace(result, x=x, support=support)

    def _crop(self, array: Any, axis: int) -> Any:
        if np.ndim(array) <= axis:
            return array
        return crop(array, *[slice(None)] * axis, slice(self.num_columns))


def crop(tree: T, *slices: slice) -> T:
    """The same part of every array, cut on the host: on a device each length would be a program of
    its own."""
    return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[slices]), tree)


def pad_problem(
    problem: Problem, x0: Start, pads: bool, shares: bool, compresses: bool = True
) -> Padding:
    """Return a problem of a size that has a program already, or will serve others.

    Args:
        problem: prepared.
        x0: its start.
        pads: whether samples and columns may be added.
        shares: whether slots of supports may be added.
        compresses: whether the samples of least squares may be replaced by fewer.
    """
    original = problem.constraint
    num_samples = problem.objective.num_samples
    same = Padding(problem, x0, original, num_samples, None)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((problem, x0))):
        return same
    num_columns = None
    shape = problem.objective.shape
    if pads and is_padding_enabled():
        padded = _pad(problem, x0, shape, compresses)
        if padded is not None:
            num_columns = shape[0]
            problem, x0 = padded
            shape = problem.objective.shape
    if shares:
        constraint = round_k_max(problem.constraint, shape)
        problem = replace(problem, constraint=constraint)
    return Padding(problem, x0, original, num_samples, num_columns)


def _pad(
    problem: Problem, x0: Start, shape: tuple[int, ...], compresses: bool
) -> tuple[Problem, Start] | None:
    """Add samples and columns; None where one of the parts does not allow it."""
    constraint: Any = problem.constraint
    if not problem.solver.ignores_empty_columns or not constraint.selects_items:
        return None
    if isinstance(x0, DenseStart):
        return None
    objective: Any = pad_objective(problem.objective, compresses=compresses)
    if objective is None:
        return None
    num_added = objective.design.shape[1] - shape[0]
    padded_constraint = constraint.pad(shape, num_added)
    if padded_constraint is None:
        return None
    if x0 is not None:
        x0 = np.pad(np.asarray(x0), [(0, num_added)] + [(0, 0)] * (len(shape) - 1))
    return replace(problem, objective=objective, constraint=padded_constraint), x0


def pad_objective(objective: Any, *, compresses: bool = False, is_cheap: bool = True) -> Any:
    """Round up the numbers of samples and columns of an objective, prepared; None for one that
    keeps its own.

    Args:
        objective: any.
        compresses: whether least squares may first become those of a QR factorisation.
        is_cheap: whether what is computed of a small problem takes milliseconds.
    """
    if not objective.is_linear_model or is_complex(objective):
        return None
    n, d = objective.design.shape
    if n * d > MAX_PADDED_ENTRIES:
        return None
    is_compressed = compresses and objective.is_compressible
    has_fewer = d <= MAX_SMALL_COLUMNS or n >= COMPRESSION_RATIO * d
    if is_compressed and has_fewer and n * d * d <= MAX_COMPRESSION:
        objective = objective.compress()
        n = objective.num_samples
    # With several outputs, and where the loss couples the samples, a refit is that much dearer.
    is_cheap &= len(objective.shape) == 1 and objective.loss.is_separable
    return objective.pad(*round_shape(n, d, is_compressed, is_cheap))
