"""Solutions for a range of sparsities, from which one is chosen."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from optax.tree_utils import tree_where

from jaxht._checks import check_kind, known_values
from jaxht._dataclass import as_dtype
from jaxht._typing import Array, PRNGKey
from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
from jaxht.runner._derivative import differentiate
from jaxht.runner._solve import (
    Problem,
    Result,
    Start,
    Stop,
    advance,
    call_on_device,
    finish,
    initial_point,
    prepare,
    start,
)
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
    both_ways: bool = False,
) -> Result:
    """Solve for every sparsity in turn, each starting from the solution before; optionally back and
    forth.

    A run of :class:`jaxht.OMP`, :class:`jaxht.OLS` or :class:`jaxht.FoBa` for k has the same first
    steps as a run for any larger k, so their path is a single run: num_steps and counts of a result
    are then those since its start. To start every k from another path instead, map over both:
    ``jax.vmap(lambda k, x: solve(f, Sparse(k, k_max=50), OMPR(), x0=x))(ks, path(f, Sparse(50),
    OMP(), ks).x)``.

    Args:
        objective: f, for example ``LeastSquares(A, y)``.
        constraint: for example ``Sparse(1)``; its k is replaced by those in ks. ``k_max`` is
            required where ks is traced; else it is the largest of ks.
        solver: for example ``OMP()``.
        ks: (m,) integers, strictly increasing; a list or an array, which may be traced.
        x0: start for the first of them, as in :func:`jaxht.solve`, "dense" included; None: the
            objective's own (zero).
        key: PRNG key, for solvers that draw random numbers; folded with k for each run.
        stop: limits and tolerances of each run, a :class:`jaxht.Stop`.
        both_ways: bool, static; whether each sparsity is then also solved from the solutions of its
            neighbours in ks: downwards from the next larger sparsity, with the smallest entries of
            its solution set to 0, and upwards from the next smaller one, until no solution improves
            by more than the square root of machine epsilon, relative to f. A solution that is worse
            than that of a smaller sparsity is replaced by the latter, so that f never increases
            along the path. num_steps, status and counts are those of the run that found the
            solution.

    Returns:
        A :class:`jaxht.Result` with a first axis of length m in every field; ``.value`` is the
        value of f along the path.

    Raises:
        ValueError: where :func:`jaxht.solve` raises it, and where ks is not strictly increasing.

    Cost: one run for each k, one run in all for OMP, OLS and FoBa; one compile. Both ways 2 m
    further runs in each round, at least one.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]), mean=False)
        >>> jaxht.path(f, jaxht.Sparse(1), jaxht.OMP(), ks=[1, 2, 4]).value.tolist()
        [7.0, 2.5, 0.0]
    """
    return solve_path(objective, constraint, solver, ks, x0, key, stop, both_ways)


def solve_path(
    objective: Objective,
    constraint: Constraint,
    solver: Solver,
    ks: Any,
    x0: Any,
    key: PRNGKey | None,
    stop: Stop,
    both_ways: bool,
    criterion: Callable[[Any, Array], Array] | None = None,
    patience: int | None = None,
) -> Result:
    """:func:`path`, whose first way up ends once a criterion has not decreased for ``patience``
    sparsities in a row.

    Results of sparsities beyond are 0, of status RUNNING. A path that is a single run goes on to
    its end.

    Args:
        objective: as of :func:`path`, like all but the last two.
        constraint: see there.
        solver: see there.
        ks: see there.
        x0: see there.
        key: see there.
        stop: see there.
        both_ways: see there; then the sparsities that were reached are refined.
        criterion: ``criterion(objective, x)``, a scalar, static.
        patience: an int >= 1, static; None: the path is whole.
    """
    check_kind(solver=solver, stop=stop)
    ks, constraint = sparsities(objective, constraint, ks)
    own_limit = stop.max_steps is None
    problem, x0, key = prepare(objective, constraint, solver, stop, x0, key)
    criterion = None if patience is None else criterion
    choices = {
        "own_limit": own_limit,
        "both_ways": both_ways,
        "criterion": criterion,
        "patience": patience,
    }
    return call_on_device(_path, problem, ks, x0, key, **choices)


def sparsities(objective: Objective, constraint: Constraint, ks: Any) -> tuple[Any, Any]:
    """ks as int32, checked, and the constraint with the last of them as k and, where known, a k_max
    for all."""
    check_kind(objective=objective, constraint=constraint)
    known = known_values(ks)
    ks = ks if known is None else known
    if ks.ndim != 1 or ks.size == 0 or not jnp.issubdtype(ks.dtype, jnp.integer):
        raise ValueError(
            f"ks must be a list of integers; got dtype {ks.dtype} and shape {ks.shape}"
        )
    largest: Any = constraint.k_max
    if known is not None:
        if np.any(np.diff(known) <= 0):
            raise ValueError(f"ks must rise strictly; got {ks}")
        largest = int(known[-1]) if largest is None else largest
        dataclasses.replace(constraint, k=int(known[0])).prepare(objective.prepare().shape)  # type: ignore[type-var]
    ks = as_dtype(ks, jnp.int32)
    return ks, dataclasses.replace(constraint, k=ks[-1], k_max=largest)  # type: ignore[type-var]


@functools.partial(jax.jit, static_argnames=("own_limit", "both_ways", "criterion", "patience"))
def _path(
    problem: Problem,
    ks: Array,
    x0: Start,
    key: PRNGKey | None,
    own_limit: bool,
    both_ways: bool,
    criterion: Callable[[Any, Array], Array] | None,
    patience: int | None,
) -> Result:
    objective, constraint = problem.objective, problem.constraint
    problem, x0 = lax.stop_gradient((problem, x0))
    results = _follow_path(problem, ks, x0, key, own_limit, both_ways, criterion, patience)
    return jax.vmap(lambda result: differentiate(objective, constraint, result))(results)


def _follow_path(
    problem: Problem,
    ks: Array,
    x0: Start,
    key: PRNGKey | None,
    own_limit: bool,
    both_ways: bool,
    criterion: Callable[[Any, Array], Array] | None,
    patience: int | None,
) -> Result:
    solver = problem.solver

    def problem_for(k: Array) -> Problem:
        constraint: Constraint = dataclasses.replace(problem.constraint, k=k)  # type: ignore[type-var]
        if not own_limit:
            return dataclasses.replace(problem, constraint=constraint)
        max_steps = jnp.asarray(solver.max_steps(constraint), jnp.int32)
        return dataclasses.replace(
            problem,
            constraint=constraint,
            stop=dataclasses.replace(problem.stop, max_steps=max_steps),
        )

    def continue_run(carry: Any, k: Array) -> tuple[Any, Result]:
        # A run that finished because it had its k coordinates resumes with the next k.
        resumes = (carry.status == Status.FINISHED) & (k > ks[0])
        running = jnp.full((), Status.RUNNING, jnp.int32)
        iterate = dataclasses.replace(
            carry.iterate, status=tree_where(resumes, running, carry.iterate.status)
        )
        carry = dataclasses.replace(
            carry, iterate=iterate, status=tree_where(resumes, running, carry.status)
        )
        carry = advance(problem_for(k), carry, problem_for(k).stop.max_steps)
        return carry, finish(problem_for(k), carry)

    def run_from(x: Array, k: Array) -> Result:
        own_key = None if key is None else jax.random.fold_in(key, k)
        carry = advance(
            problem_for(k), start(problem_for(k), x, own_key), problem_for(k).stop.max_steps
        )
        return finish(problem_for(k), carry)

    def follow(x: Array, k: Array) -> tuple[Array, Result]:
        result = run_from(x, k)
        return result.x, result

    if solver.nested:
        results = lax.scan(continue_run, start(problem_for(ks[0]), x0, key), ks)[1]
        return _walk(run_from, ks, results, None) if both_ways else results
    first = initial_point(problem.objective, problem.constraint, x0)
    if criterion is not None and patience is not None:
        own = functools.partial(criterion, problem.objective)
        return _walk(run_from, ks, None, first, both_ways, own, patience)
    return _walk(run_from, ks, None, first) if both_ways else lax.scan(follow, first, ks)[1]


def _walk(
    run_from: Callable[[Array, Array], Result],
    ks: Array,
    results: Result | None,
    x0: Start,
    both_ways: bool = True,
    criterion: Callable[[Array], Array] | None = None,
    patience: int = 0,
) -> Result:
    """Go up and down the path, each run from the neighbour it comes from, until a round improves no
    solution.

    Args:
        run_from: a run from a start for a sparsity.
        ks: (m,).
        results: those of a first way up, or None: then it is the first way up of the same loop, and
            the program has one run.
        x0: the start of that way.
        both_ways: whether there is more than that way.
        criterion: of a solution; None: the first way up goes to the end.
        patience: how many sparsities in a row without a lower criterion end the first way up, and
            then the path.
    """
    m = ks.size
    begins_at = 0 if results is None else m
    if results is None:
        blank = jax.eval_shape(run_from, x0, ks[0])
        results = jax.tree.map(lambda leaf: jnp.zeros((m, *leaf.shape), leaf.dtype), blank)

    def go_on(carry: Any) -> Array:
        _, t, length, _, idle = carry
        return (t < length) | (both_ways & (idle < 2 * (length - 1)))

    def move(carry: Any) -> Any:
        results, t, length, best, idle = carry
        there_and_back = jnp.maximum(1, 2 * (length - 1))
        phase = t % there_and_back
        first, up = t < length, (phase > 0) & (phase < length)
        i = jnp.where(phase < length, phase, there_and_back - phase)
        current, neighbour = (
            _take(results, j) for j in (i, jnp.where(up, i - 1, jnp.minimum(i + 1, length - 1)))
        )
        begin = neighbour.x if x0 is None else tree_where(t == 0, x0, neighbour.x)
        new = run_from(begin, ks[i])
        # A solution of fewer coordinates is one of more: copied, so that f does not increase, not
        # by rounding either.
        copied = up & (neighbour.value < new.value)
        new = tree_where(copied, neighbour, new)
        rtol = jnp.where(copied, 0, float(jnp.finfo(current.value.dtype).eps) ** 0.5)
        better = (new.value < current.value - rtol * jnp.abs(current.value)) | first
        results = tree_where(
            better, jax.tree.map(lambda rows, row: rows.at[i].set(row), results, new), results
        )
        if criterion is not None:
            value = criterion(new.x)
            lower = value < best[0]
            best = jnp.where(lower, value, best[0]), jnp.where(lower, t, best[1])
            length = jnp.where(first & (t - best[1] >= patience), t + 1, length)
        return results, t + 1, length, best, jnp.where(better, 0, idle + 1)

    begin, length, zero = (jnp.full((), number, jnp.int32) for number in (begins_at, m, 0))
    best = None if criterion is None else (jnp.full((), jnp.inf, results.value.dtype), zero)
    return lax.while_loop(go_on, move, (results, begin, length, best, zero))[0]


def _take(results: Result, i: Array) -> Result:
    return jax.tree.map(lambda leaf: leaf[i], results)
