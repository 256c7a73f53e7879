"""What solvers that minimise on supports have in common."""

from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from chex import Array, Numeric, PRNGKey
from jax import lax

from jaxht._pytree import where
from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
from jaxht.refit.newton import Refit
from jaxht.solvers.solver import Iterate, evaluate
from jaxht.solvers.status import Status


def unless_worse(objective: Objective, new: Iterate, old: Iterate, rtol: Numeric) -> Iterate:
    """``new``, or the iterate before with the status NO_PROGRESS where f has not fallen by more than ``rtol |f|``.

    The floor, rounding of f(0), ends exchanges of what is noise where f has fallen to 0; there is none where f(0) is
    infinite. NaN gets through.
    """
    eps, (x, pred) = float(jnp.finfo(new.x.dtype).eps), jax.tree.map(jnp.zeros_like, (new.x, new.pred))
    size = jnp.abs(objective.value(x, pred))
    floor = eps * jnp.where(size < jnp.inf, size, 0)
    stuck = new.value >= old.value - rtol * (jnp.abs(old.value) + floor)
    status = jnp.where(stuck, Status.NO_PROGRESS, new.status).astype(jnp.int32)
    return replace(where(stuck, old, new), counts=new.counts, status=status)


def best(scores: Array, among: Array) -> Array:
    """The atom of the largest score among some, the first of equal ones, as a choice; none where there are none."""
    place = jnp.argmax(jnp.where(among, scores, -jnp.inf))
    chosen = (lax.iota(jnp.int32, scores.size) == place.astype(jnp.int32)).reshape(scores.shape)
    return chosen & among


def count(chosen: Array) -> Array:
    """How many atoms are chosen, int32."""
    return jnp.sum(chosen, dtype=jnp.int32)


def exchanged(constraint: Constraint, chosen: Array, entering: Array, leaving: Array) -> Array:
    """One atom enters, and where there are k already, one leaves; if none may, none enters."""
    full = count(chosen) >= constraint.limit
    possible = ~full | jnp.any(leaving)
    return jnp.where(possible, (chosen & ~(leaving & full)) | entering, chosen)


class Pursuit:
    """A solver that alternates between ``find``, a region from x, and ``settle``, the next x from a minimiser on it.

    The next region depends on the present one alone, so that a region seen before means a cycle; it is found exactly,
    by comparison with a region remembered at every power of two (Brent 1980). A step begins with the minimisation and
    ends with the next region: the last step, which only confirms the region, costs no minimisation.
    """

    # The next region is a function of x alone, so x repeats for ever once it does.
    fixed_point_test: ClassVar[bool] = True
    needs_key: ClassVar[bool] = False

    def find(self, objective: Objective, constraint: Constraint, iterate: Iterate, region: Any, step_size: Any) -> Any:
        """The region to minimise on next; ``region`` is the present one, None at the start."""
        raise NotImplementedError

    def settle(
        self, objective: Objective, constraint: Constraint, minimum: Refit, iterate: Iterate
    ) -> tuple[Iterate, int]:
        """The next iterate, from the minimiser on the region and the present iterate, and the projections it cost."""
        return evaluate(objective, minimum.x, iterate.counts, pred=minimum.pred, refit_converged=minimum.converged), 0

    def step_along(self, objective: Objective, constraint: Constraint) -> Any:
        """The step size of a run; None for pursuits that have none."""
        return None

    def max_steps(self, constraint: Constraint) -> int:
        """100: pursuits end by themselves, mostly within ten."""
        return 100

    def init(self, objective: Objective, constraint: Constraint, x0: Array, key: PRNGKey | None) -> tuple[Iterate, Any]:
        """The first region, from x0, which need not minimise f on its own support."""
        step_size = self.step_along(objective, constraint)
        iterate = evaluate(objective, x0, step_size=step_size, refit_converged=jnp.array(False))
        region = self.find(objective, constraint, iterate, None, step_size)
        age, horizon = jnp.zeros((), jnp.int32), jnp.ones((), jnp.int32)
        counts = iterate.counts.plus(full_gradients=1, projections=1)
        return replace(iterate, counts=counts), (step_size, region, region, age, horizon)

    def step(self, objective: Objective, constraint: Constraint, iterate: Iterate, state: Any) -> tuple[Iterate, Any]:
        """Minimise on the region at hand, then find the next one: if it is the same, nothing needs to be done twice."""
        return self.pursue(objective, constraint, iterate, state)

    def pursue(self, objective: Objective, constraint: Constraint, iterate: Iterate, state: Any) -> tuple[Iterate, Any]:
        """A step, whatever f does in it."""
        step_size, region, remembered, age, horizon = state
        new, projections = self.settle(objective, constraint, objective.minimise(region, iterate.x), iterate)
        new = replace(new, counts=new.counts.plus(full_gradients=1, projections=1 + projections))
        next_region = self.find(objective, constraint, new, region, step_size)

        status = jnp.where(next_region.equals(remembered), Status.CYCLING, Status.RUNNING)
        status = jnp.where(next_region.equals(region), Status.SUPPORT_STABLE, status)
        # What settle has found comes first.
        status = jnp.where(new.status != Status.RUNNING, new.status, status).astype(jnp.int32)

        renew = age + 1 == horizon
        remembered = where(renew, next_region, remembered)
        age, horizon = jnp.where(renew, 0, age + 1), jnp.where(renew, 2 * horizon, horizon)
        return replace(new, status=status), (step_size, next_region, remembered, age, horizon)
