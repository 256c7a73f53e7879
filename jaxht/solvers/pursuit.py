"""Parts of solvers that alternate between a support and a refit on it: cycle detection,
backtracking, descent."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax
from optax.tree_utils import tree_where

from jaxht._dataclass import integer, pytree
from jaxht._typing import Array, Numeric
from jaxht.constraints import Constraint, ModelSubspace
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Iterate, inverse_smoothness
from jaxht.solvers.status import Status

#: The support that a gradient step finds, as a function of its step size.
FindSupport = Callable[[Numeric], ModelSubspace]


def pursuit_step_size(
    objective: Objective, constraint: Constraint, step_size: Numeric | None, backtrack: bool = False
) -> Numeric:
    """``step_size``; if it is None 1/M_1, M_1 the largest curvature along a coordinate, or 1/L for
    low rank.

    Args:
        objective: the problem's objective, prepared.
        constraint: the problem's constraint, prepared.
        step_size: a scalar, or None.
        backtrack: whether steps backtrack from it: then, for coordinates, 256/M_1 in place of
            1/M_1.

    Returns:
        A scalar, in units of 1 over the Hessian.

    Cost: where step_size is None, the column norms of A (n d), or for low rank about 16 products
    with A.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> from jaxht.solvers.pursuit import pursuit_step_size
        >>> f = jaxht.LeastSquares(2 * jnp.eye(4), jnp.ones(4), mean=False)
        >>> float(pursuit_step_size(f, jaxht.Sparse(2), None))
        0.25
    """
    if step_size is not None:
        return step_size
    bound = objective.majorant()
    if not constraint.coordinatewise:
        return inverse_smoothness(bound.norm())
    return (LONG if backtrack else 1) * inverse_smoothness(bound.coordinate_norm())


@runtime_checkable
class Point(Protocol):
    """What momentum asks of an iterate: x, and a linear function of x such as its prediction."""

    @property
    def x(self) -> Array:
        """The point."""

    @property
    def pred(self) -> Array:
        """The linear function of it."""


@pytree
class Momentum:
    r"""Nesterov's extrapolation, which is restarted where it points backwards: where steps go on
    from.

    .. math::
        u = x + \frac{t - 1}{t^+} (x - x_{prev}), \qquad t^+ = \frac{1 + \sqrt{1 + 4 t^2}}{2},

    with t = 1 at the start and where ``<u_prev - x, x - x_prev> > 0``. On matrices of low rank the
    spaces turn by a little in every step, along ill-conditioned directions hardly at all: it takes
    about the root of the number of steps.

    Attributes:
        x: u.
        pred: the prediction for u.
        t: a scalar.

    Source: Nesterov 1983; O'Donoghue & Candès 2015, §3.2, for the restarts.
    """

    x: Array
    pred: Array
    t: Array

    @classmethod
    def init(cls, point: Point) -> "Momentum":
        """The start: x itself."""
        return cls(point.x, point.pred, jnp.ones((), point.x.dtype))

    def update(self, new: Point, old: Point) -> "Momentum":
        """Extrapolate from two points, of which the second step was taken from u."""
        backwards = jnp.vdot(self.x - new.x, new.x - old.x) > 0
        t = jnp.where(backwards, 1, self.t)
        t_next = (1 + jnp.sqrt(1 + 4 * t**2)) / 2
        nu = (t - 1) / t_next
        return Momentum(new.x + nu * (new.x - old.x), new.pred + nu * (new.pred - old.pred), t_next)


@pytree
class CycleDetector:
    """Detects supports that repeat, where each support depends on the one before alone.

    Every support is compared with one stored support, which is replaced after 1, 2, 4, 8, ...
    steps, so that every cycle is detected.

    Attributes:
        remembered: the stored support.
        age: int32, the number of steps since it was stored.
        horizon: int32, the number of steps after which it is replaced.

    Source: Brent 1980.
    """

    remembered: ModelSubspace
    age: Array = integer()
    horizon: Array = integer()

    @classmethod
    def init(cls, support: ModelSubspace) -> "CycleDetector":
        """Store the first support."""
        return cls(support, jnp.zeros((), jnp.int32), jnp.ones((), jnp.int32))

    def update(
        self, new: Iterate, old: ModelSubspace, support: ModelSubspace
    ) -> tuple[Iterate, "CycleDetector"]:
        """The iterate with SUPPORT_STABLE where the next support is the old one, CYCLING where it
        is an earlier one.

        A status that the solver has set takes precedence.
        """
        status = jnp.where(support.equals(self.remembered), Status.CYCLING, Status.RUNNING)
        status = jnp.where(support.equals(old), Status.SUPPORT_STABLE, status)
        status = jnp.where(new.status != Status.RUNNING, new.status, status).astype(jnp.int32)
        renew = self.age + 1 == self.horizon
        age, horizon = (
            jnp.where(renew, 0, self.age + 1),
            jnp.where(renew, 2 * self.horizon, self.horizon),
        )
        return replace(new, status=status), CycleDetector(
            tree_where(renew, support, self.remembered), age, horizon
        )


@pytree
class FixedStep:
    """The choice of supports with a constant step size: every step is accepted, and cycles are
    detected.

    Attributes:
        step_size: eta.
        support: the support of the next refit.
        cycles: the cycle detector.
    """

    step_size: Numeric
    support: ModelSubspace
    cycles: CycleDetector

    @property
    def accepted(self) -> ModelSubspace:
        """The support of the current x, once a step has been taken: ``support``."""
        return self.support

    @classmethod
    def init(
        cls, iterate: Iterate, find: FindSupport, step_size: Numeric
    ) -> tuple[Iterate, "FixedStep"]:
        """Find the first support, from x0."""
        support = find(step_size)
        return iterate, cls(step_size, support, CycleDetector.init(support))

    def accept(self, new: Iterate, old: Iterate) -> tuple[Iterate, "FixedStep"]:
        """Accept ``new``."""
        return new, self

    def update(self, new: Iterate, find: FindSupport) -> tuple[Iterate, "FixedStep"]:
        """Find the support that follows ``new``."""
        support = find(self.step_size)
        new, cycles = self.cycles.update(new, self.support, support)
        return new, FixedStep(self.step_size, support, cycles)


@pytree
class Backtracking:
    """The choice of supports with backtracking: a step that does not decrease f is rejected, and
    retried with eta / 2.

    Attributes:
        step_size: eta, the first step size tried after every accepted step.
        support: the support of the next refit.
        accepted: the support of the current x.
        halvings: int32, how often eta has been halved since the last accepted step.
        is_accepted: bool, whether the last step was accepted.
        is_first: bool, whether x is x0, which has not been refitted on its support: the first step
            is always accepted.
    """

    step_size: Numeric
    support: ModelSubspace
    accepted: ModelSubspace
    halvings: Array = integer()
    is_accepted: Array
    is_first: Array

    @classmethod
    def init(
        cls, iterate: Iterate, find: FindSupport, step_size: Numeric
    ) -> tuple[Iterate, "Backtracking"]:
        """Find the first support, from x0."""
        support, yes = find(step_size), jnp.array(True)
        return replace(iterate, skip_fixed_point_test=yes), cls(
            step_size, support, support, jnp.zeros((), jnp.int32), yes, yes
        )

    def accept(self, new: Iterate, old: Iterate) -> tuple[Iterate, "Backtracking"]:
        """``new`` where f has decreased, else ``old`` with the counts of ``new``."""
        accept = self.is_first | ~(
            new.value >= old.value
        )  # also where it is NaN, for the runner to report
        rejected = replace(old, counts=new.counts)
        new, accepted = tree_where(accept, (new, self.support), (rejected, self.accepted))
        return new, replace(self, accepted=accepted, is_accepted=accept, is_first=jnp.array(False))

    def update(self, new: Iterate, find: FindSupport) -> tuple[Iterate, "Backtracking"]:
        """The next support; after a rejected step eta is halved until the support differs from the
        rejected one."""

        def find_after(halvings: Array) -> ModelSubspace:
            return find(self.step_size * jnp.exp2(-halvings.astype(new.x.dtype)))

        start = jnp.where(self.is_accepted, 0, self.halvings + 1)
        halvings, support = lax.while_loop(
            lambda carry: (
                ~self.is_accepted & carry[1].equals(self.support) & (carry[0] < MAX_HALVINGS)
            ),
            lambda carry: (carry[0] + 1, find_after(carry[0] + 1)),
            (start, find_after(start)),
        )
        is_stable = support.equals(self.accepted) | (halvings >= MAX_HALVINGS)
        status = jnp.where(is_stable, Status.SUPPORT_STABLE, Status.RUNNING)
        status = jnp.where(new.status != Status.RUNNING, new.status, status).astype(jnp.int32)
        counts = new.counts.plus(projections=halvings - start)
        new = replace(new, counts=counts, status=status, skip_fixed_point_test=~self.is_accepted)
        return new, replace(self, support=support, halvings=halvings)


def accept_decrease(objective: Objective, new: Iterate, old: Iterate, rtol: Numeric) -> Iterate:
    """``new`` where f has decreased by more than ``rtol |f|``, else ``old`` with NO_PROGRESS.

    A further term, the rounding error of f(0), ends exchanges of coordinates that only fit rounding
    errors once f is near 0; it is 0 where f(0) is infinite. A value of NaN is accepted, for the
    runner to report.

    Args:
        objective: the problem's objective, prepared.
        new: the :class:`jaxht.extend.Iterate` after a step, with its value and pred.
        old: the iterate before the step.
        rtol: a scalar >= 0, relative to the value of f.

    Returns:
        An iterate, with the counts of ``new``.

    Cost: one value of f.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> from jaxht.extend import evaluate
        >>> from jaxht.solvers.pursuit import accept_decrease
        >>> f = jaxht.LeastSquares(jnp.eye(2), jnp.ones(2), mean=False)
        >>> old, new = evaluate(f, jnp.ones(2)), evaluate(f, jnp.zeros(2))
        >>> iterate = accept_decrease(f, new, old, rtol=0.0)
        >>> iterate.x.tolist(), jaxht.Status(int(iterate.status)).name
        ([1.0, 1.0], 'NO_PROGRESS')
    """
    eps, (x, pred) = (
        float(jnp.finfo(new.x.dtype).eps),
        jax.tree.map(jnp.zeros_like, (new.x, new.pred)),
    )
    size = jnp.abs(objective.value(x, pred))
    floor = eps * jnp.where(size < jnp.inf, size, 0)
    no_decrease = new.value >= old.value - rtol * (jnp.abs(old.value) + floor)
    status = jnp.where(no_decrease, Status.NO_PROGRESS, new.status).astype(jnp.int32)
    return replace(tree_where(no_decrease, old, new), counts=new.counts, status=status)


# 2^-38 of eta is below rounding: the support is then the current one.
MAX_HALVINGS = 38
LONG = (
    256  # in units of 1/M_1, where steps backtrack: f ends lower the longer it is, up to about here
)
