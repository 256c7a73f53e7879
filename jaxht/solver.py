"""The protocol of a solver, and how to write one.

A solver is a frozen dataclass of numbers with two pure methods::

    init(objective, constraint, x0, key) -> (iterate, state)
    step(objective, constraint, iterate, state) -> (iterate, state)

It holds no loop over steps, no tolerance, no jit and no printing: :mod:`jaxht.solve` runs every solver with the same
loop and the same stopping tests, which keeps methods comparable. ``state`` is any pytree of its own, None if it
needs none. What a step has at hand it passes on in the iterate, so that no product is done twice.
"""

from typing import Any, ClassVar, Protocol

import jax.numpy as jnp
import numpy as np
from chex import Array, Numeric, PRNGKey

from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
from jaxht.status import Status
from jaxht.tree import integer, pytree, static


@pytree
class Counts:
    """What a run has cost, in the measures of the field; int32, one number a lane.

    Attributes:
        full_gradients: gradients of the whole objective.
        sample_gradients: gradients of single summands f_i.
        projections: projections onto the constraint set ("HT").
        num_samples: n, static.

    Source: Zhou, Yuan & Feng 2018, Definition 1. Stopping tests are not counted.
    """

    full_gradients: Numeric = integer(default=0)
    sample_gradients: Numeric = integer(default=0)
    projections: Numeric = integer(default=0)
    num_samples: int = static(default=1)

    @classmethod
    def zero(cls, num_samples: int) -> "Counts":
        """The counts before any work."""
        none = jnp.zeros((), jnp.int32)
        return cls(none, none, none, num_samples)

    def plus(self, full_gradients: Numeric = 0, sample_gradients: Numeric = 0, projections: Numeric = 0) -> "Counts":
        """The counts after some more work."""
        return Counts(
            self.full_gradients + full_gradients,
            self.sample_gradients + sample_gradients,
            self.projections + projections,
            self.num_samples,
        )

    @property
    def ifo(self) -> Any:
        """Incremental first-order oracle calls: n a full gradient, 1 a sample. On the host, in int64."""
        full, samples = (np.asarray(c, np.int64) for c in (self.full_gradients, self.sample_gradients))
        return full * self.num_samples + samples


@pytree
class Iterate:
    """Where a solver stands.

    Attributes:
        x: the feasible point.
        value: f(x); None leaves it to the runner (stochastic solvers), whose look is not counted.
        counts: cost so far.
        verdict: 0 to go on, or the solver's own finding as a :class:`jaxht.Status`.
        pred: the objective's image of x, if the solver passes it on.
        gap: primal minus dual value, for dual solvers.
        minimised: for solvers that minimise on supports, whether that of x converged.
    """

    x: Array
    value: Any
    counts: Counts
    verdict: Numeric = integer(default=0)
    pred: Array | None = None
    gap: Array | None = None
    minimised: Array | None = None


def evaluated(
    objective: Objective,
    x: Array,
    counts: Counts | None = None,
    *,
    pred: Array | None = None,
    verdict: Numeric = Status.RUNNING,
    step_size: Numeric | None = None,
    minimised: Array | None = None,
) -> Iterate:
    """The iterate at ``x`` with its value; ``counts`` start at zero, ``pred`` saves a product where it is known.

    The verdict is DIVERGED where ``step_size`` is not finite and positive: with no step, x would seem to be a fixed
    point, and an infinite curvature (the square of a large column) makes a step of 0.
    """
    counts = Counts.zero(objective.num_samples) if counts is None else counts
    pred = objective.predict(x) if pred is None else pred
    if step_size is not None:
        verdict = jnp.where(jnp.isfinite(step_size) & (step_size > 0), verdict, Status.DIVERGED)
    return Iterate(x, objective.value(x, pred), counts, jnp.asarray(verdict, jnp.int32), pred=pred, minimised=minimised)


class Solver(Protocol):
    """What the runner asks of a solver. Solvers need not inherit from it."""

    #: Whether ``x`` repeating means that it will for ever; only then does the runner test its change against rtol.
    still_means_converged: ClassVar[bool]
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
