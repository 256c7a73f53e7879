"""Pieces of solvers that alternate between a support and a refit on it: cycle detection, backtracking, descent."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from chex import Array, Numeric
from jax import lax

from jaxht._pytree import integer, pytree, where
from jaxht.constraints import Constraint, ModelSubspace
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Iterate
from jaxht.solvers.status import Status

#: From x, the gradient there, the present support (None at the start) and a step size to the next support.
NextSupport = Callable[[Array, Array, Any, Numeric], Any]


def pursuit_step_size(objective: Objective, constraint: Constraint, step_size: Numeric | None) -> Numeric:
    """The step size, or where it is None 1/M_1, M_1 the largest curvature along a coordinate; 1/L for low rank."""
    if step_size is not None:
        return step_size
    bound = objective.majorant()
    return 1 / (bound.coordinate_norm() if constraint.coordinatewise else bound.norm())


@pytree
class CycleDetector:
    """Whether a support has been seen before, where each support follows from the one before alone.

    The support is compared with one that is remembered at every power of two steps, so that a cycle is found exactly.

    Source: Brent 1980.
    """

    remembered: ModelSubspace
    age: Array = integer()
    horizon: Array = integer()

    @classmethod
    def init(cls, support: ModelSubspace) -> "CycleDetector":
        """Remember the first support."""
        return cls(support, jnp.zeros((), jnp.int32), jnp.ones((), jnp.int32))

    def update(self, new: Iterate, old: ModelSubspace, support: ModelSubspace) -> tuple[Iterate, "CycleDetector"]:
        """The iterate with SUPPORT_STABLE where the next support is the old one, CYCLING where it was met before that.

        A status that the solver has found already comes first.
        """
        status = jnp.where(support.equals(self.remembered), Status.CYCLING, Status.RUNNING)
        status = jnp.where(support.equals(old), Status.SUPPORT_STABLE, status)
        status = jnp.where(new.status != Status.RUNNING, new.status, status).astype(jnp.int32)
        renew = self.age + 1 == self.horizon
        age, horizon = jnp.where(renew, 0, self.age + 1), jnp.where(renew, 2 * self.horizon, self.horizon)
        return replace(new, status=status), CycleDetector(where(renew, support, self.remembered), age, horizon)


@pytree
class FixedStep:
    """The search for supports with one step size: the next support, and the detection of cycles."""

    step_size: Numeric
    support: Any
    cycles: CycleDetector

    @classmethod
    def init(
        cls, objective: Objective, iterate: Iterate, next_support: NextSupport, step_size: Numeric
    ) -> tuple[Iterate, "FixedStep"]:
        """The first support, from the gradient at x0."""
        support = next_support(iterate.x, objective.gradient(iterate.x, iterate.pred), None, step_size)
        counts = iterate.counts.plus(full_gradients=1, projections=1)
        return replace(iterate, counts=counts), cls(step_size, support, CycleDetector.init(support))

    def update(
        self, objective: Objective, old: Iterate, new: Iterate, next_support: NextSupport
    ) -> tuple[Iterate, "FixedStep"]:
        """The support after that of ``new``, which is always accepted."""
        support = next_support(new.x, objective.gradient(new.x, new.pred), self.support, self.step_size)
        new = replace(new, counts=new.counts.plus(full_gradients=1, projections=1))
        new, cycles = self.cycles.update(new, self.support, support)
        return new, FixedStep(self.step_size, support, cycles)


@pytree
class Backtracking:
    """The search for supports where a step after which f has not fallen is taken back and tried with half of eta.

    Attributes:
        step_size: eta, with which every accepted step starts anew.
        support: on which to refit next.
        accepted: that of the present x.
        halvings: of eta, since the last accepted step.
        first: whether x is x0, which has not been refitted on its support: the first step is always accepted.
    """

    step_size: Numeric
    support: Any
    accepted: Any
    halvings: Array = integer()
    first: Array

    @classmethod
    def init(
        cls, objective: Objective, iterate: Iterate, next_support: NextSupport, step_size: Numeric
    ) -> tuple[Iterate, "Backtracking"]:
        """The first support, from the gradient at x0."""
        support = next_support(iterate.x, objective.gradient(iterate.x, iterate.pred), None, step_size)
        counts = iterate.counts.plus(full_gradients=1, projections=1)
        iterate = replace(iterate, counts=counts, skip_fixed_point_test=jnp.array(True))
        return iterate, cls(step_size, support, support, jnp.zeros((), jnp.int32), jnp.array(True))

    def update(
        self, objective: Objective, old: Iterate, new: Iterate, next_support: NextSupport
    ) -> tuple[Iterate, "Backtracking"]:
        """``new`` where f has fallen, else ``old``; and the next support, with eta halved until it is another one."""
        taken = self.first | ~(new.value >= old.value)  # a NaN gets through
        back = replace(old, counts=new.counts, skip_fixed_point_test=None)
        new, accepted = where(taken, (new, self.support), (back, self.accepted))
        gradient = objective.gradient(new.x, new.pred)

        def ahead(halvings: Array) -> Any:
            step_size = self.step_size * jnp.exp2(-halvings.astype(new.x.dtype))
            return next_support(new.x, gradient, accepted, step_size)

        # A support that has just failed would fail again.
        start = jnp.where(taken, 0, self.halvings + 1)
        halvings, support = lax.while_loop(
            lambda carry: ~taken & carry[1].equals(self.support) & (carry[0] < MAX_HALVINGS),
            lambda carry: (carry[0] + 1, ahead(carry[0] + 1)),
            (start, ahead(start)),
        )
        at_rest = support.equals(accepted) | (halvings >= MAX_HALVINGS)
        status = jnp.where(at_rest, Status.SUPPORT_STABLE, Status.RUNNING)
        status = jnp.where(new.status != Status.RUNNING, new.status, status).astype(jnp.int32)
        counts = new.counts.plus(full_gradients=1, projections=1 + halvings - start)
        new = replace(new, counts=counts, status=status, skip_fixed_point_test=~taken)
        return new, Backtracking(self.step_size, support, accepted, halvings, jnp.zeros_like(self.first))


def accept_decrease(objective: Objective, new: Iterate, old: Iterate, rtol: Numeric) -> Iterate:
    """``new``, or the iterate before with NO_PROGRESS where f has not fallen by more than ``rtol |f|``.

    The floor, rounding of f(0), ends exchanges of what is noise where f has fallen to 0; there is none where f(0) is
    infinite. NaN gets through.
    """
    eps, (x, pred) = float(jnp.finfo(new.x.dtype).eps), jax.tree.map(jnp.zeros_like, (new.x, new.pred))
    size = jnp.abs(objective.value(x, pred))
    floor = eps * jnp.where(size < jnp.inf, size, 0)
    stuck = new.value >= old.value - rtol * (jnp.abs(old.value) + floor)
    status = jnp.where(stuck, Status.NO_PROGRESS, new.status).astype(jnp.int32)
    return replace(where(stuck, old, new), counts=new.counts, status=status)


# Of eta, to eight digits: what is found beyond is the present support.
MAX_HALVINGS = 30
