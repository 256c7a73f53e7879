"""The protocol of a solver, and how to write one.

A solver is a frozen dataclass of numbers with two pure methods::

    init(objective, constraint, x0, key) -> (iterate, state)
    step(objective, constraint, iterate, state) -> (iterate, state)

It holds no loop over steps, no tolerance, no jit and no printing: :mod:`jaxht.runner` runs every solver with the same
loop and the same stopping tests, which keeps methods comparable. ``state`` is any pytree of its own, None if it
needs none. What a step has at hand it passes on in the iterate, so that no product is done twice.
"""

from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, Numeric, PRNGKey

from jaxht._pytree import integer, pytree, static
from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
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
            _increased(self.sample_words, sample_gradients),
            _increased(self.projection_words, projections),
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


def _increased(words: tuple[Any, Any], more: Numeric) -> tuple[Any, Any]:
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
        value: f(x); None leaves it to the runner (stochastic solvers), whose look is not counted.
        counts: cost so far.
        status: 0 to go on, or the solver's own finding as a :class:`jaxht.Status`.
        pred: the objective's image of x, if the solver passes it on.
        gap: primal minus dual value, for dual solvers.
        refit_converged: for solvers that minimise on supports, whether that of x converged.
        skip_fixed_point_test: whether an x that has not moved in this step may yet move in the next, for solvers of which some
            steps draw samples, or are taken back, and others do not.
    """

    x: Array
    value: Any
    counts: Counts
    status: Numeric = integer(default=0)
    pred: Array | None = None
    gap: Array | None = None
    refit_converged: Array | None = None
    skip_fixed_point_test: Array | None = None

    def moved(self, x: Array, *, skip_fixed_point_test: Array | None = None, **work: Numeric) -> "Iterate":
        """The iterate at ``x``, whose value is left to the runner, after some work for :meth:`Counts.plus`."""
        return Iterate(x, None, self.counts.plus(**work), self.status, skip_fixed_point_test=skip_fixed_point_test)


def checked(status: Numeric, step_size: Numeric) -> Array:
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

    Where ``step_size`` is given, the status is :func:`checked`.
    """
    counts = Counts.zero(objective.num_samples) if counts is None else counts
    pred = objective.predict(x) if pred is None else pred
    if step_size is not None:
        status = checked(status, step_size)
    return Iterate(
        x, objective.value(x, pred), counts, jnp.asarray(status, jnp.int32), pred=pred, refit_converged=refit_converged
    )


class Solver(Protocol):
    """What the runner asks of a solver. Solvers need not inherit from it."""

    #: Whether ``x`` repeating means that it will for ever; only then does the runner test its change against rtol.
    fixed_point_test: ClassVar[bool]
    #: Whether ``solve`` must be given a PRNG key.
    needs_key: ClassVar[bool]

    def max_steps(self, constraint: Constraint) -> int:
        """Step limit where :class:`jaxht.Stop` gives none."""
        ...

    def init(self, objective: Objective, constraint: Constraint, x0: Array, key: PRNGKey | None) -> tuple[Iterate, Any]:
        """The iterate at the feasible point x0, and the solver's state."""
        ...

    def step(self, objective: Objective, constraint: Constraint, iterate: Iterate, state: Any) -> tuple[Iterate, Any]:
        """One step of the algorithm."""
        ...
