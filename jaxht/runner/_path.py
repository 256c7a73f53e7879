"""Solutions for a range of sparsities: the natural input for choosing one."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, PRNGKey
from jax import lax
from optax.tree_utils import tree_where

from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
from jaxht.runner._solve import Problem, Result, Stop, advance, finish, initial_point, prepare, start
from jaxht.solvers.solver import Solver
from jaxht.solvers.status import Status


def path(
    objective: Objective,
    constraint: Constraint,
    solver: Solver,
    ks: Any,
    *,
    x0: Any = None,
    key: PRNGKey | None = None,
    stop: Stop = Stop(),
) -> Result:
    """Solve for every sparsity in turn, each from the solution before.

    A run of :class:`jaxht.OMP` for k is the beginning of that for any larger k, so its path is one run: num_steps and
    counts of a result are then those since its start. To start every k from another path instead, map over both:
    ``jax.vmap(lambda k, x: solve(f, Sparse(k, k_max=50), OMPR(), x0=x))(ks, path(f, Sparse(50), OMP(), ks).x)``.

    Args:
        objective, solver, key, stop: as in :func:`jaxht.solve`.
        constraint: as there; its k gives way to those in ks. ``k_max`` is needed where ks is traced, else it is the
            largest of ks.
        ks: (m,) integers, strictly rising.
        x0: start for the first of them.

    Returns:
        A :class:`jaxht.Result` with a first axis of length m in every field; ``.value`` is the loss along the path.

    Raises:
        ValueError: as :func:`jaxht.solve`, and where ks does not rise.
    """
    ks, constraint = sparsities(objective, constraint, ks)
    own_limit = stop.max_steps is None
    problem, x0, key = prepare(objective, constraint, solver, stop, x0, key)
    return _path(problem, jnp.asarray(ks, jnp.int32), x0, key, own_limit)


def sparsities(objective: Objective, constraint: Constraint, ks: Any) -> tuple[Any, Any]:
    """ks as an array, checked, and the constraint with the last of them and a k_max for all, where it is known."""
    if not isinstance(ks, jax.Array):
        ks = np.asarray(ks)
    if ks.ndim != 1 or ks.size == 0 or not jnp.issubdtype(ks.dtype, jnp.integer):
        raise ValueError(f"ks must be a list of integers; got dtype {ks.dtype} and shape {ks.shape}")
    largest: Any = constraint.k_max
    if not isinstance(ks, jax.core.Tracer):
        if np.any(np.diff(np.asarray(ks)) <= 0):
            raise ValueError(f"ks must rise strictly; got {ks}")
        largest = int(ks[-1]) if largest is None else largest
        dataclasses.replace(constraint, k=int(ks[0])).prepare(objective.prepare().shape)  # type: ignore[type-var]
    return ks, dataclasses.replace(constraint, k=ks[-1], k_max=largest)  # type: ignore[type-var]


@functools.partial(jax.jit, static_argnums=4)
def _path(problem: Problem, ks: Array, x0: Array | None, key: PRNGKey | None, own_limit: bool) -> Result:
    solver = problem.solver

    def at(k: Array) -> Problem:
        constraint: Constraint = dataclasses.replace(problem.constraint, k=k)  # type: ignore[type-var]
        if not own_limit:
            return dataclasses.replace(problem, constraint=constraint)
        max_steps = jnp.asarray(solver.max_steps(constraint), jnp.int32)
        return dataclasses.replace(
            problem, constraint=constraint, stop=dataclasses.replace(problem.stop, max_steps=max_steps)
        )

    def go_on(carry: Any, k: Array) -> tuple[Any, Result]:
        # All but the first go on where the one before stood still because it had its k coordinates.
        waits = (carry.status == Status.FINISHED) & (k > ks[0])
        running = jnp.full((), Status.RUNNING, jnp.int32)
        iterate = dataclasses.replace(carry.iterate, status=tree_where(waits, running, carry.iterate.status))
        carry = dataclasses.replace(carry, iterate=iterate, status=tree_where(waits, running, carry.status))
        carry = advance(at(k), carry, at(k).stop.max_steps)
        return carry, finish(at(k), carry)

    def go_on_from(x: Array, k: Array) -> tuple[Array, Result]:
        own_key = None if key is None else jax.random.fold_in(key, k)
        carry = advance(at(k), start(at(k), x, own_key), at(k).stop.max_steps)
        return carry.iterate.x, finish(at(k), carry)

    if solver.nested:
        return lax.scan(go_on, start(at(ks[0]), x0, key), ks)[1]
    return lax.scan(go_on_from, initial_point(problem.objective, problem.constraint) if x0 is None else x0, ks)[1]
