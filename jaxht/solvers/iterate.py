"""The iterate that a solver returns, and the counts of what the run has cost so far."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._dataclass import integer, pytree, static
from jaxht._typing import Array, Numeric
from jaxht.objectives.objective import Objective
from jaxht.solvers.status import Status
from jaxht.subproblems import Refit


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
        >>> from jaxht.extend import Counts
        >>> int(Counts.zero(num_samples=10).plus(full_gradients=2, sample_gradients=5).ifo)
        25
    """

    full_gradients: Numeric = integer(default=0)
    sample_words: tuple[Any, Any] = (0, 0)
    projection_words: tuple[Any, Any] = (0, 0)
    num_samples: int = static(default=1)

    @classmethod
    def zero(cls, num_samples: int) -> "Counts":
        """The counts before any work; num_samples is n, an int."""
        none = (
            jnp.zeros((), jnp.int32),
            (jnp.zeros((), jnp.uint32),) * 2,
            (jnp.zeros((), jnp.uint32),) * 2,
        )
        return cls(*none, num_samples)

    def plus(
        self, full_gradients: Numeric = 0, sample_gradients: Numeric = 0, projections: Numeric = 0
    ) -> "Counts":
        """The counts after more work, less than 2^31 of each kind."""
        return Counts(
            self.full_gradients + full_gradients,
            _add(self.sample_words, sample_gradients),
            _add(self.projection_words, projections),
            self.num_samples,
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
        return words
    low = words[0] + jnp.asarray(more, jnp.uint32)
    return low, words[1] + (low < words[0]).astype(jnp.uint32)


def _total(words: tuple[Any, Any]) -> Any:
    low, high = words
    if isinstance(low, jax.core.Tracer):
        most = jnp.asarray(2**31 - 1, jnp.uint32)
        return jnp.where(high > 0, most, jnp.minimum(low, most)).astype(jnp.int32)
    return (np.asarray(high, np.int64) << 32) + np.asarray(low, np.int64)


@pytree
class Iterate:
    """The current point of a solver, with what the runner needs to know about it.

    Attributes:
        x: the feasible point, shaped like the variable, in the objective's dtype.
        value: f(x), a scalar; None leaves its evaluation to the runner (stochastic solvers), which
            does not count it.
        counts: cost so far, a :class:`Counts`.
        status: int32, a :class:`jaxht.Status` that the solver has reached; RUNNING (0) to continue.
        pred: the objective's prediction for x, or None if the solver does not have it.
        gap: primal minus dual value, plus a bound of their rounding errors, a scalar; None for all
            but dual solvers.
        refit_converged: bool, whether the refit that gave x converged; True for solvers that do not
            refit.
        skip_fixed_point_test: bool, whether an x that did not move in this step may move in the
            next one, because steps are random or were rejected.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.extend import Counts, Iterate
        >>> iterate = Iterate(jnp.zeros(3), None, Counts.zero(num_samples=10))
        >>> int(iterate.move(jnp.ones(3), sample_gradients=4).counts.ifo)
        4
    """

    x: Any
    value: Any
    counts: Counts
    status: Numeric = integer(default=0)
    pred: Any = None
    gap: Any = None
    refit_converged: Array | np.bool_ = np.True_
    skip_fixed_point_test: Array | np.bool_ = np.False_

    def move(
        self, x: Any, *, skip_fixed_point_test: Array | np.bool_ = np.False_, **work: Numeric
    ) -> "Iterate":
        """The iterate at ``x``, whose value is left to the runner; :meth:`Counts.plus` adds
        ``work`` to the counts."""
        return Iterate(
            x,
            None,
            self.counts.plus(**work),
            self.status,
            skip_fixed_point_test=skip_fixed_point_test,
        )


def check_step_size(status: Numeric, step_size: Numeric) -> Array:
    """``status``, but INVALID_STEP_SIZE where ``step_size`` is not finite and positive.

    With a step of 0 every x would be a fixed point; and an infinite curvature (the square of a
    large column) gives a step of 0."""
    return jnp.where(
        jnp.isfinite(step_size) & (step_size > 0), status, Status.INVALID_STEP_SIZE
    ).astype(jnp.int32)


def inverse_smoothness(smoothness: Array) -> Array:
    """``1 / L``, the step size of solvers that are given none.

    L is 0 for a design of zeros, on which every point is stationary, and where the squares of its
    entries underflow. The true L is then below tiny / eps, tiny the smallest normal number, as long
    as fewer than 1 / eps squares are summed, so that the step is no longer than its inverse.

    Args:
        smoothness: L >= 0, a scalar in units of the Hessian.

    Returns:
        A scalar; finite and positive unless L is infinite or NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.solvers.iterate import inverse_smoothness
        >>> float(inverse_smoothness(jnp.array(4.0))), bool(inverse_smoothness(jnp.array(0.0)) < jnp.inf)
        (0.25, True)
    """
    numbers = jnp.finfo(smoothness.dtype)
    return 1 / jnp.where(smoothness == 0, float(numbers.tiny) / float(numbers.eps), smoothness)


def evaluate(
    objective: Objective,
    x: Any,
    counts: Counts | None = None,
    *,
    pred: Any = None,
    status: Numeric = Status.RUNNING,
    step_size: Numeric | None = None,
    refit_converged: Array | np.bool_ = np.True_,
) -> Iterate:
    """The iterate at ``x``, or at the minimiser that a refit has found, with its value.

    Args:
        objective: the problem's objective, prepared.
        x: feasible point, shaped like the variable; or a :class:`jaxht.extend.Refit`, which also
            gives pred and refit_converged.
        counts: the :class:`Counts` so far; None starts at zero.
        pred: the prediction of x, which saves a product where it is known; None computes it.
        status: int32, a :class:`jaxht.Status` that the solver has reached.
        step_size: a scalar; where it is not finite and positive, the status is INVALID_STEP_SIZE.
            None is not checked.
        refit_converged: bool, whether the refit that gave x converged; True for solvers that do not
            refit.

    Returns:
        An :class:`Iterate` with x, value, counts, status, pred and refit_converged.

    Cost: one evaluation of f, and one prediction where pred is None.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(2), jnp.array([3.0, 4.0]), mean=False)
        >>> float(jaxht.extend.evaluate(f, jnp.zeros(2)).value)
        12.5
    """
    if isinstance(x, Refit):
        x, pred, refit_converged = x
    counts = Counts.zero(objective.num_samples) if counts is None else counts
    pred = objective.predict(x) if pred is None else pred
    status = jnp.asarray(
        status if step_size is None else check_step_size(status, step_size), jnp.int32
    )
    return Iterate(
        x, objective.value(x, pred), counts, status, pred=pred, refit_converged=refit_converged
    )
