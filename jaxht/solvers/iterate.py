"""Where a solver stands, and what it has cost so far."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, Numeric

from jaxht._pytree import integer, pytree, static
from jaxht.objectives.objective import Objective
from jaxht.refit import Refit
from jaxht.solvers.status import Status


@pytree
class Counts:
    """What a run has cost, in the measures of the field; one number a lane.

    ``full_gradients`` are those of the whole objective, ``sample_gradients`` those of single summands f_i, and
    ``projections`` those onto the constraint set ("HT").

    The last two are held in two words of 32 bits, for a long run goes beyond one of them. On the host they are exact,
    in int64; within jit they are int32, and stay at 2^31 - 1 beyond that.

    Source: Zhou, Yuan & Feng 2018, Definition 1. Stopping tests are not counted.
    """

    full_gradients: Numeric = integer(default=0)
    sample_words: tuple[Any, Any] = (0, 0)
    projection_words: tuple[Any, Any] = (0, 0)
    num_samples: int = static(default=1)

    @classmethod
    def zero(cls, num_samples: int) -> "Counts":
        """The counts before any work; num_samples is n."""
        none = jnp.zeros((), jnp.int32), (jnp.zeros((), jnp.uint32),) * 2, (jnp.zeros((), jnp.uint32),) * 2
        return cls(*none, num_samples)

    def plus(self, full_gradients: Numeric = 0, sample_gradients: Numeric = 0, projections: Numeric = 0) -> "Counts":
        """The counts after some more work, of less than 2^31 each."""
        return Counts(
            self.full_gradients + full_gradients,
            _add(self.sample_words, sample_gradients),
            _add(self.projection_words, projections),
            self.num_samples,
        )

    @property
    def sample_gradients(self) -> Any:
        """Gradients of single summands f_i."""
        return _total(self.sample_words)

    @property
    def projections(self) -> Any:
        """Projections onto the constraint set."""
        return _total(self.projection_words)

    @property
    def ifo(self) -> Any:
        """Incremental first-order oracle calls: n a full gradient, 1 a sample. On the host, in int64."""
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
    """Where a solver stands.

    Attributes:
        x: the feasible point.
        value: f(x); None leaves it to the runner (stochastic solvers), whose evaluation is not counted.
        counts: cost so far.
        status: a :class:`jaxht.Status` found by the solver; RUNNING (0) to go on.
        pred: the objective's prediction for x, if the solver passes it on.
        gap: primal minus dual value, for dual solvers.
        refit_converged: for solvers that refit, whether the refit that gave x converged.
        skip_fixed_point_test: whether an x that has not moved in this step may yet move in the next, for solvers of
            which some steps draw samples, or are taken back, and others do not.
    """

    x: Array
    value: Any
    counts: Counts
    status: Numeric = integer(default=0)
    pred: Array | None = None
    gap: Array | None = None
    refit_converged: Array | None = None
    skip_fixed_point_test: Array | None = None

    def move(self, x: Array, *, skip_fixed_point_test: Array | None = None, **work: Numeric) -> "Iterate":
        """The iterate at ``x``, whose value is left to the runner, after some work for :meth:`Counts.plus`."""
        return Iterate(x, None, self.counts.plus(**work), self.status, skip_fixed_point_test=skip_fixed_point_test)


def check_step_size(status: Numeric, step_size: Numeric) -> Array:
    """The status, and DIVERGED where ``step_size`` is not finite and positive.

    With no step, x would seem to be a fixed point, and an infinite curvature (the square of a large column) makes a
    step of 0.
    """
    return jnp.where(jnp.isfinite(step_size) & (step_size > 0), status, Status.DIVERGED).astype(jnp.int32)


def evaluate(
    objective: Objective,
    x: Array,
    counts: Counts | None = None,
    *,
    pred: Array | None = None,
    status: Numeric = Status.RUNNING,
    step_size: Numeric | None = None,
    refit_converged: Array | None = None,
) -> Iterate:
    """The iterate at ``x`` with its value; ``counts`` start at zero, ``pred`` saves a product where it is known.

    Where ``step_size`` is given, it is checked by :func:`check_step_size`.
    """
    counts = Counts.zero(objective.num_samples) if counts is None else counts
    pred = objective.predict(x) if pred is None else pred
    status = jnp.asarray(status if step_size is None else check_step_size(status, step_size), jnp.int32)
    return Iterate(x, objective.value(x, pred), counts, status, pred=pred, refit_converged=refit_converged)


def evaluate_refit(objective: Objective, found: Refit, counts: Counts, *, status: Numeric = Status.RUNNING) -> Iterate:
    """The iterate at the minimiser on a support."""
    return evaluate(
        objective, found.x, counts, pred=found.pred, status=status, refit_converged=jnp.asarray(found.converged)
    )
