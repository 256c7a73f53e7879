"""The iterate of a solver, what a step has cost and found, and what a run has cost."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._dataclass import integer, pytree, static
from jaxht._typing import Array, Numeric
from jaxht.objectives.objective import Objective
from jaxht.solvers.status import Status
from jaxht.subproblems import Refit, RefitStatus


@pytree
class Iterate:
    """The current point of a solver, with the products that the next step can use.

    Attributes:
        x: the feasible point, shaped like the variable, in the objective's dtype.
        value: f(x), a scalar; None leaves its evaluation to the runner, which does not count it.
        pred: the objective's prediction for x, or None if the solver does not have it.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.extend import Iterate
        >>> Iterate(jnp.zeros(3)).x.tolist()
        [0.0, 0.0, 0.0]
    """

    x: Any
    value: Any = None
    pred: Any = None


@pytree
class Info:
    """What one call of ``init`` or ``step`` has cost and found.

    Attributes:
        full_gradients: number of gradients of the whole objective.
        sample_gradients: number of gradients of single summands f_i, less than 2^31.
        projections: number of projections onto the constraint set, less than 2^31.
        status: a :class:`jaxht.Status` that the solver has reached; RUNNING (0) to continue.
        gap: primal minus dual value, plus a bound of their rounding errors, a scalar; None for all
            but dual solvers.
        accepted: bool, whether the iterate is a new one; False where the step was rejected, and the
            iterate is the one before.
        refit_status: how the refit that gave a new iterate ended, a ``RefitStatus``; CONVERGED (0)
            for solvers that do not refit.
        skip_fixed_point_test: bool, whether an x that did not move in this step may move in the
            next one, because steps are random.
        ends_step: bool; False where the call has tried in vain, and the next one tries again: the
            iterate is the one before, ``accepted`` is False, and it does not count as a step. Only
            for solvers with ``takes_turns``.

    Example:
        >>> from jaxht.extend import Info
        >>> Info(full_gradients=1, projections=2).projections
        2
    """

    full_gradients: Numeric = integer(default=0)
    sample_gradients: Numeric = integer(default=0)
    projections: Numeric = integer(default=0)
    status: Numeric = integer(default=0)
    gap: Any = None
    accepted: Array | np.bool_ | bool = True
    refit_status: Numeric = integer(default=0)
    skip_fixed_point_test: Array | np.bool_ | bool = False
    ends_step: Array | np.bool_ | bool = True

    def as_arrays(self) -> "Info":
        """The same numbers as arrays of int32 and bool."""
        return Info(
            full_gradients=jnp.asarray(self.full_gradients, jnp.int32),
            sample_gradients=jnp.asarray(self.sample_gradients, jnp.int32),
            projections=jnp.asarray(self.projections, jnp.int32),
            status=jnp.asarray(self.status, jnp.int32),
            gap=self.gap,
            accepted=jnp.asarray(self.accepted, bool),
            refit_status=jnp.asarray(self.refit_status, jnp.int32),
            skip_fixed_point_test=jnp.asarray(self.skip_fixed_point_test, bool),
            ends_step=jnp.asarray(self.ends_step, bool),
        )


@pytree
class Counts:
    """What a run has cost: gradients and projections; under vmap one number for each lane.

    The last two are stored in two 32-bit words each, since a long run exceeds one of them. On the
    host they are exact, as int64; within jit they are int32, and stay at 2^31 - 1 beyond that.
    Evaluations for stopping tests are not counted.

    Attributes:
        full_gradients: int32, gradients of the whole objective.
        sample_words: gradients of single summands f_i, as uint32 (low, high); read them as
            ``sample_gradients``.
        projection_words: projections onto the constraint set, "HT" in the papers, as uint32 (low,
            high); read them as ``projections``.
        num_samples: n, the number of summands, static.

    Source: Zhou, Yuan & Feng 2018, Definition 1.

    Example:
        >>> from jaxht.extend import Counts, Info
        >>> int(Counts.zero(num_samples=10).plus(Info(full_gradients=2, sample_gradients=5)).ifo)
        25
    """

    full_gradients: Numeric = integer(default=0)
    sample_words: tuple[Any, Any] = (0, 0)
    projection_words: tuple[Any, Any] = (0, 0)
    num_samples: int = static(default=1)

    @classmethod
    def zero(cls, num_samples: int) -> "Counts":
        """The counts before any work; num_samples is n, an int."""
        no_words = (jnp.zeros((), jnp.uint32),) * 2
        return cls(
            full_gradients=jnp.zeros((), jnp.int32),
            sample_words=no_words,
            projection_words=no_words,
            num_samples=num_samples,
        )

    def plus(self, info: Info) -> "Counts":
        """The counts after a further step."""
        return Counts(
            full_gradients=self.full_gradients + info.full_gradients,
            sample_words=_add(self.sample_words, info.sample_gradients),
            projection_words=_add(self.projection_words, info.projections),
            num_samples=self.num_samples,
        )

    @property
    def sample_gradients(self) -> Any:
        """The number of gradients of single summands f_i."""
        return _total(self.sample_words)

    @property
    def projections(self) -> Any:
        """The number of projections onto the constraint set."""
        return _total(self.projection_words)

    @property
    def ifo(self) -> Any:
        """Incremental first-order oracle calls: n for a full gradient, 1 for that of a sample. On
        the host, int64."""
        return np.asarray(self.full_gradients, np.int64) * self.num_samples + self.sample_gradients


def _add(words: tuple[Any, Any], more: Numeric) -> tuple[Any, Any]:
    if isinstance(more, int) and more == 0:
        return words  # which keeps programs small
    low, high = words
    total = low + jnp.asarray(more, jnp.uint32)
    carry = (total < low).astype(jnp.uint32)
    return total, high + carry


def _total(words: tuple[Any, Any]) -> Any:
    low, high = words
    if isinstance(low, jax.core.Tracer):
        most = jnp.asarray(2**31 - 1, jnp.uint32)
        return jnp.where(high > 0, most, jnp.minimum(low, most)).astype(jnp.int32)
    return (np.asarray(high, np.int64) << 32) + np.asarray(low, np.int64)


def check_step_size(step_size: Numeric, status: Numeric = Status.RUNNING) -> Array:
    """INVALID_STEP_SIZE where a step size is not finite and positive, elsewhere ``status``.

    With a step of 0 every x would be a fixed point; and an infinite curvature (the square of a
    large column) gives a step of 0.
    """
    is_valid = jnp.isfinite(step_size) & (step_size > 0)
    return jnp.where(is_valid, status, Status.INVALID_STEP_SIZE)


def inverse_smoothness(smoothness: Array) -> Array:
    """``1 / L``, the step size of solvers that are given none; finite and positive where L is
    finite.

    L is 0 for a design of zeros, on which every point is stationary, and where the squares of its
    entries underflow. The true L is then below tiny / eps, tiny the smallest normal number, as long
    as fewer than 1 / eps squares are summed, so that the step is no longer than its inverse.
    """
    numbers = jnp.finfo(smoothness.dtype)
    least = float(numbers.tiny) / float(numbers.eps)
    return 1 / jnp.where(smoothness == 0, least, smoothness)


def evaluate(objective: Objective, x: Any) -> Iterate:
    """The iterate at ``x``, or at the minimiser that a refit has found, with its value.

    Args:
        objective: the problem's objective, prepared.
        x: feasible point, shaped like the variable; or a :class:`jaxht.extend.Refit`, whose
            prediction is used.

    Returns:
        An :class:`Iterate` with x, value and pred.

    Cost: one evaluation of f, and one prediction for a point.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(2), jnp.array([3.0, 4.0]), mean=False)
        >>> float(jaxht.extend.evaluate(f, jnp.zeros(2)).value)
        12.5
    """
    found = x if isinstance(x, Refit) else Refit(x, objective.predict(x), RefitStatus.CONVERGED)
    return Iterate(found.x, objective.value(found.x, found.pred), found.pred)
