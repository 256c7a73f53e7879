"""Adaptive forward-backward selection."""

from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
from chex import Array, Numeric, PRNGKey
from jax import lax

from jaxht._pytree import pytree, where
from jaxht.constraints import Constraint, Sparse
from jaxht.linalg.selection import mask_to_indices
from jaxht.objectives.objective import Objective
from jaxht.solvers.base import best, count
from jaxht.solvers.solver import Iterate, evaluate
from jaxht.solvers.status import Status


@pytree
class FoBa:
    r"""Adaptive forward-backward greedy selection: a coordinate that has become dispensable leaves again.

    A step goes back if it can, and else forward:

    .. math::
        \text{back:}\quad & j = \arg\min_{j \in S} f(x - x_j e_j), \quad S \leftarrow S \setminus \{j\}
        \quad\text{if}\quad f(x - x_j e_j) - f(x) \le \nu \, g_{|S|} \\
        \text{forward:}\quad & i = \arg\max_{i \notin S} (\nabla_i f(x))^2 / B_{ii}, \quad
        S \leftarrow S \cup \{i\}, \quad g_{|S|} = f_{before} - f_{after}

    and minimises f on S. Of the removal the other coefficients are held; g is the gain of the forward step that reached
    the present size. B is a majorant of the Hessian: for least squares B_ii is the squared norm of column i, and i the
    coordinate whose best move lowers f most; for other losses, with columns of one norm, the largest gradient.

    Args:
        threshold: of the gain of a forward step, in units of f, traced: one that gains no more is undone and ends the
            run.
        ratio: nu, traced.

    Ends with FINISHED where k coordinates have survived, or NO_PROGRESS at the threshold.

    Cost a step: one full gradient, one restricted minimisation, and k values of f, n k.

    Source: Zhang 2008, Algorithm 2 ("FoBa"); baseline of Yuan, Li & Zhang 2018, §6.
    """

    threshold: Numeric = 0.0
    ratio: Numeric = 0.5

    fixed_point_test: ClassVar[bool] = False
    needs_key: ClassVar[bool] = False

    def max_steps(self, constraint: Any) -> Numeric:
        """10 k + 100: each step back undoes one forward."""
        return 10 * constraint.k + 100

    def init(self, objective: Objective, constraint: Constraint, x0: Array, key: PRNGKey | None) -> tuple[Iterate, Any]:
        """x0, its support, and no gains: what x0 brings along does not leave before it is dispensable."""
        chosen = constraint.active(x0)
        status = jnp.where(constraint.limit > 0, Status.RUNNING, Status.FINISHED)
        gains = jnp.zeros(_bound(constraint, chosen) + 1, x0.dtype)
        return evaluate(objective, x0, status=status, refit_converged=jnp.array(True)), (chosen, gains)

    def step(self, objective: Objective, constraint: Constraint, iterate: Iterate, state: Any) -> tuple[Iterate, Any]:
        """Back or forward."""
        chosen, gains = state
        size = count(chosen)
        first = (iterate.counts.full_gradients == 0) & (size > 0)

        rises = removals(objective, constraint, chosen, iterate) - iterate.value
        j = best(-rises, chosen & ~constraint.kept)
        back = jnp.any(j & (rises <= self.ratio * gains[size])) & ~first

        gradient = constraint.feasible_direction(-objective.gradient(iterate.x, iterate.pred))
        slopes = constraint.scores(gradient / jnp.sqrt(jnp.maximum(objective.preconditioner(), TINY)))
        forward = ~back & ~first & (size < constraint.limit)
        i = best(slopes, ~chosen & forward)

        moved = (chosen & ~(j & back)) | i
        minimum = objective.minimise(constraint.support(moved), iterate.x)
        counts = iterate.counts.plus(full_gradients=1)
        new = evaluate(objective, minimum.x, counts, pred=minimum.pred, refit_converged=minimum.converged)

        gain = iterate.value - new.value
        useless = forward & (gain <= self.threshold)
        done = ~back & ~first & ~forward
        status = jnp.where(useless, Status.NO_PROGRESS, jnp.where(done, Status.FINISHED, Status.RUNNING))
        kept = where(useless | done, iterate, new)
        gains = jnp.where(forward & (jnp.arange(gains.size, dtype=jnp.int32) == size + 1), gain, gains)
        return replace(kept, counts=counts, status=status.astype(jnp.int32)), (
            jnp.where(useless, chosen, moved),
            gains,
        )


def removals(objective: Objective, constraint: Constraint, chosen: Array, iterate: Iterate) -> Array:
    """f(x) without each of the chosen atoms, the others held; of those not chosen, infinity."""
    x, pred = iterate.x, iterate.pred
    atoms: Any = mask_to_indices(chosen.ravel(), _bound(constraint, chosen))
    index = jnp.arange(chosen.size, dtype=jnp.int32).reshape(chosen.shape)

    def others(i: Array) -> Array:
        return jnp.where(constraint.support(chosen & (index != i)).mask, x, 0)

    def without(i: Array, image: Array) -> Array:
        return objective.value(others(i), pred - image)

    if isinstance(constraint, Sparse):
        images = objective.images(replace(constraint.support(chosen), indices=atoms), x)
    else:
        images = lax.map(lambda i: objective.predict(x - others(i)), atoms, batch_size=BLOCK)
    values = lax.map(lambda pair: without(*pair), (atoms, images), batch_size=BLOCK)
    alone = jnp.full(chosen.size, jnp.inf, x.dtype).at[atoms].set(values, mode="drop")
    return alone.reshape(chosen.shape)


def _bound(constraint: Any, chosen: Array) -> int:
    """On the number of atoms, static."""
    return chosen.size if constraint.k_max is None else constraint.k_max


# Removals at a time.
BLOCK = 16
TINY = 1e-30
