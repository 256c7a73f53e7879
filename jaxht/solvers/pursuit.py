"""Pieces of solvers that alternate between a support and a refit on it: cycle detection, backtracking, descent."""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
from chex import Array, Numeric
from jax import lax
from optax.tree_utils import tree_where

from jaxht._pytree import integer, pytree
from jaxht.constraints import Constraint, ModelSubspace
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Iterate
from jaxht.solvers.status import Status

#: From a step size to the support that a gradient step of this size finds.
FindSupport = Callable[[Numeric], ModelSubspace]


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
        return replace(new, status=status), CycleDetector(tree_where(renew, support, self.remembered), age, horizon)


@pytree
class FixedStep:
    """A search for supports with one step size, in which every step is accepted and cycles are detected.

    Attributes:
        step_size: eta.
        support: on which to refit next.
        cycles: the detector.
    """

    step_size: Numeric
    support: ModelSubspace
    cycles: CycleDetector

    @property
    def accepted(self) -> ModelSubspace:
        """The support of the present x, once a step has been made: ``support``."""
        return self.support

    @classmethod
    def init(cls, iterate: Iterate, find: FindSupport, step_size: Numeric) -> tuple[Iterate, "FixedStep"]:
        """The first support, from x0."""
        support = find(step_size)
        return iterate, cls(step_size, support, CycleDetector.init(support))

    def accept(self, new: Iterate, old: Iterate) -> tuple[Iterate, "FixedStep"]:
        """``new``."""
        return new, self

    def update(self, new: Iterate, find: FindSupport) -> tuple[Iterate, "FixedStep"]:
        """The support after that of ``new``."""
        support = find(self.step_size)
        new, cycles = self.cycles.update(new, self.support, support)
        return new, FixedStep(self.step_size, support, cycles)


@pytree
class Backtracking:
    """A search for supports where a step after which f has not fallen is taken back and tried with half of eta.

    Attributes:
        step_size: eta, with which every accepted step starts anew.
        support: on which to refit next.
        accepted: the support of the present x.
        halvings: of eta, since the last accepted step.
        is_accepted: whether the last step was.
        is_first: whether x is x0, which has not been refitted on its support: the first step is always accepted.
    """

    step_size: Numeric
    support: ModelSubspace
    accepted: ModelSubspace
    halvings: Array = integer()
    is_accepted: Array
    is_first: Array

    @classmethod
    def init(cls, iterate: Iterate, find: FindSupport, step_size: Numeric) -> tuple[Iterate, "Backtracking"]:
        """The first support, from x0."""
        support, yes = find(step_size), jnp.array(True)
        return replace(iterate, skip_fixed_point_test=yes), cls(
            step_size, support, support, jnp.zeros((), jnp.int32), yes, yes
        )

    def accept(self, new: Iterate, old: Iterate) -> tuple[Iterate, "Backtracking"]:
        """``new`` where f has fallen, else ``old`` at the cost of ``new``."""
        accept = self.is_first | ~(new.value >= old.value)  # a value of NaN is accepted, and ends the run
        back = replace(old, counts=new.counts, skip_fixed_point_test=None)
        new, accepted = tree_where(accept, (new, self.support), (back, self.accepted))
        return new, replace(self, accepted=accepted, is_accepted=accept, is_first=jnp.array(False))

    def update(self, new: Iterate, find: FindSupport) -> tuple[Iterate, "Backtracking"]:
        """The next support; after a step that was taken back eta is halved until it is not the one that failed."""

        def find_after(halvings: Array) -> ModelSubspace:
            return find(self.step_size * jnp.exp2(-halvings.astype(new.x.dtype)))

        start = jnp.where(self.is_accepted, 0, self.halvings + 1)
        halvings, support = lax.while_loop(
            lambda carry: ~self.is_accepted & carry[1].equals(self.support) & (carry[0] < MAX_HALVINGS),
            lambda carry: (carry[0] + 1, find_after(carry[0] + 1)),
            (start, find_after(start)),
        )
        at_rest = support.equals(self.accepted) | (halvings >= MAX_HALVINGS)
        status = jnp.where(at_rest, Status.SUPPORT_STABLE, Status.RUNNING)
        status = jnp.where(new.status != Status.RUNNING, new.status, status).astype(jnp.int32)
        counts = new.counts.plus(projections=halvings - start)
        new = replace(new, counts=counts, status=status, skip_fixed_point_test=~self.is_accepted)
        return new, replace(self, support=support, halvings=halvings)


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
    return replace(tree_where(stuck, old, new), counts=new.counts, status=status)


# Of eta, to eight digits: what is found beyond is the present support.
MAX_HALVINGS = 30
