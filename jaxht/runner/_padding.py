"""One compiled program for problems of neighbouring sizes: samples, columns and slots are added.

Outside of a caller's jit, the numbers of samples, of columns and of items are rounded up to one of
few sizes before a program is compiled: by samples of weight 0, by columns of zeros that are never
selected, and by empty slots of supports. The function, its values and the results stay the same.
"""

import contextlib
import contextvars
import math
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from jaxht._dataclass import replace
from jaxht.constraints import Constraint, SelectionConstraint
from jaxht.runner._problem import DenseStart, Problem, Start
from jaxht.runner._result import Result
from jaxht.runner._sizes import round_k_max, round_shape

__all__ = [
    "Padding",
    "crop",
    "disable_padding",
    "has_dense_columns",
    "is_padding_enabled",
    "pad_objective",
    "pad_problem",
]

# Multiplications of a QR factorisation that replaces the samples of least squares; about 0.2 s.
MAX_COMPRESSION = 2_000_000_000

T = TypeVar("T")

_is_enabled = contextvars.ContextVar("jaxht_padding", default=True)


@contextlib.contextmanager
def disable_padding() -> Iterator[None]:
    """Compile programs for the shapes as they are, while this context is open.

    Outside of ``jit``, ``solve`` without a solver, ``path`` and ``choose_k`` of forward selection,
    and the estimators round shapes up to one of few sizes, so that the next data set finds a
    compiled program: columns to 64, 128, 256 or 512, samples to 512, 2048 or 8192, and
    beyond 2^18 entries both to an eighth of a power of two. Least squares of more samples than
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
    is_tracing = isinstance(jax.device_put(np.int32(0)), jax.core.Tracer)
    return _is_enabled.get() and not is_tracing


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
    def num_entries(self) -> int | None:
        """The number of entries of a design that was padded."""
        if not self.is_padded:
            return None
        objective: Any = self.problem.objective
        return math.prod(objective.design.shape)

    @property
    def is_padded(self) -> bool:
        """Whether samples or columns were added."""
        return self.num_columns is not None

    def restore(self, result: Result, num_lanes: int | None = None) -> Result:
        """Return a result of the problem as one of the original, or the first of several lanes."""
        if num_lanes is not None and self.is_padded:
            result = crop(result, slice(num_lanes))
        original = self.original
        is_same_support = original is self.problem.constraint
        if is_same_support or not isinstance(original, SelectionConstraint):
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


def pad_problem(problem: Problem, x0: Start, pads: bool, shares: bool) -> Padding:
    """Return a problem of a size that has a program already, or will serve others.

    Args:
        problem: prepared.
        x0: its start.
        pads: whether samples and columns may be added.
        shares: whether slots of supports may be added.
    """
    original = problem.constraint
    num_samples = problem.objective.num_samples
    same = Padding(problem, x0, original, num_samples, None)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((problem, x0))):
        return same
    num_columns = None
    shape = problem.objective.shape
    if pads and is_padding_enabled() and _can_pad(problem, x0):
        num_columns = shape[0]
        problem, x0 = _pad(problem, x0)
        shape = problem.objective.shape
    if shares:
        constraint = round_k_max(problem.constraint, shape)
        problem = replace(problem, constraint=constraint)
    return Padding(problem, x0, original, num_samples, num_columns)


def _can_pad(problem: Problem, x0: Start) -> bool:
    if not problem.constraint.selects_entries or isinstance(x0, DenseStart):
        return False
    return problem.solver.ignores_empty_columns and has_dense_columns(problem.objective)


def has_dense_columns(objective: Any) -> bool:
    """Whether an objective, prepared, is a linear model of one output on a dense design, whose
    losses are those of single samples."""
    if not objective.is_linear_model or len(objective.shape) != 1:
        return False
    if not objective.loss.is_separable:
        return False
    return objective.design.dense_array is not None


def _pad(problem: Problem, x0: Start) -> tuple[Problem, Start]:
    objective: Any = problem.objective
    constraint: Any = problem.constraint
    n, d = objective.design.shape
    if n * d * d <= MAX_COMPRESSION:
        objective = objective.compress()
    objective = pad_objective(objective, objective.is_compressible)
    num_added = objective.shape[0] - d
    constraint = constraint.pad(d, num_added)
    if x0 is not None:
        x0 = np.pad(np.asarray(x0), (0, num_added))
    return replace(problem, objective=objective, constraint=constraint), x0


def pad_objective(objective: Any, is_compressed: bool = False) -> Any:
    """Round up the numbers of samples and columns of an objective with dense columns, prepared."""
    n, d = objective.design.shape
    return objective.pad(*round_shape(n, d, is_compressed))
