"""Solutions for a range of sparsities, from which one is chosen."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from optax.tree_utils import tree_where

from jaxht._checks import check_kind, host_array, known_values
from jaxht._dataclass import as_dtype, replace
from jaxht._loops import scan, while_loop
from jaxht._meshes import shard_automatically
from jaxht._typing import Array, Numeric, PRNGKey
from jaxht.constraints import Constraint
from jaxht.linalg.full_precision import machine_eps
from jaxht.objectives.objective import Objective
from jaxht.runner._compile import compile_for
from jaxht.runner._derivative import differentiate
from jaxht.runner._loop import Carry, advance, finish, start
from jaxht.runner._padding import pad_problem
from jaxht.runner._problem import Problem, Start, initial_point, prepare
from jaxht.runner._result import Result
from jaxht.runner._solve import call_on_device
from jaxht.runner._stop import Stop
from jaxht.solvers.solver import Solver
from jaxht.solvers.status import Status

__all__ = ["path"]


@shard_automatically
def path(
    objective: Objective,
    constraint: Constraint,
    solver: Solver | None = None,
    *,
    ks: Any,
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
    ``jax.vmap(lambda k, x: solve(f, Sparse(k, k_max=50), OMPR(), x0=x))(ks, path(f, Sparse(), OMP(),
    ks=ks).x)``.

    Args:
        objective: f, for example ``LeastSquares(A, y)``.
        constraint: for example ``Sparse()``; its k is replaced by those in ks. ``k_max`` is
            required where ks is traced; else it is the largest of ks.
        solver: for example ``OMP()``. None: the one that :func:`jaxht.solve` chooses for the
            largest of ks.
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
        >>> jaxht.path(f, jaxht.Sparse(), jaxht.OMP(), ks=[1, 2, 4]).value.tolist()
        [7.0, 2.5, 0.0]
    """
    return solve_path(objective, constraint, solver, ks, x0, key, stop, both_ways)


def solve_path(
    objective: Objective,
    constraint: Constraint,
    solver: Solver | None,
    ks: Any,
    x0: Any,
    key: PRNGKey | None,
    stop: Stop,
    both_ways: bool,
    criterion: Callable[[Any, Array], Array] | None = None,
    patience: int | None = None,
) -> Result:
    """Solve a path whose first way up ends once ``criterion(objective, x)`` has not decreased for
    ``patience`` sparsities in a row.

    Results of sparsities beyond are 0, of status RUNNING. A path that is a single run goes on to
    its end.
    """
    problem, ks, x0, key = prepare_path(objective, constraint, solver, ks, x0, key, stop)
    criterion = None if patience is None else criterion
    options = Options(stop.max_steps is None, both_ways, criterion, patience)
    # A criterion may depend on the number of columns.
    padding = pad_problem(problem, x0, shares=constraint.k_max is None, pads=criterion is None)
    num_ks = ks.size
    if padding.is_padded:
        ks = pad_ks(ks)
    program = compile_for(padding.shape, solve_all, "options")
    length = np.int32(num_ks)
    results = call_on_device(program, padding.problem, ks, padding.x0, key, length, options=options)
    return padding.restore(results, num_ks)


def prepare_path(
    objective: Objective,
    constraint: Constraint,
    solver: Solver | None,
    ks: Any,
    x0: Any,
    key: PRNGKey | None,
    stop: Stop,
) -> tuple[Problem, Array, Start, PRNGKey | None]:
    """Prepare the problem of the largest of ks, with a k_max for all where it is known."""
    check_kind(objective=objective, constraint=constraint, stop=stop)
    ks = check_ks(ks)
    known = known_values(ks)
    k_max = constraint.k_max
    if k_max is None and known is not None:
        k_max = int(known[-1])
    bounded = replace(constraint, k=ks[-1], k_max=k_max)
    problem, x0, key = prepare(objective, bounded, solver, x0=x0, key=key, stop=stop)
    if known is not None:  # the smallest may be too small
        replace(constraint, k=int(known[0])).prepare(problem.objective.shape)
    return problem, ks, x0, key


def check_ks(ks: Any) -> Any:
    """Return ks as int32; raise ValueError unless they are integers that rise strictly."""
    if isinstance(ks, list | tuple):
        ks = host_array("ks", ks)
    known = known_values(ks)
    if known is not None:
        ks = known
    if ks.ndim != 1 or ks.size == 0 or not jnp.issubdtype(ks.dtype, jnp.integer):
        raise ValueError(
            f"ks must be a list of integers; got dtype {ks.dtype} and shape {ks.shape}"
        )
    # A difference of unsigned integers would wrap around.
    if known is not None and np.any(known[1:] <= known[:-1]):
        raise ValueError(f"ks must rise strictly; got {ks}")
    return as_dtype(ks, jnp.int32)


# A padded path has a multiple of so many sparsities.
KS_PER_STEP = 16


def pad_ks(ks: Any) -> Any:
    """Repeat the last of ks, known, up to a number that has a program."""
    return np.pad(ks, (0, -len(ks) % KS_PER_STEP), "edge")


class Options(NamedTuple):
    """What a program of a path depends on.

    Attributes:
        own_limit: whether max_steps is the limit that the solver has for each k.
        both_ways: as in :func:`path`.
        criterion: as in :func:`solve_path`; None for a path that goes on to its end.
        patience: as in :func:`solve_path`.
        side_by_side: whether every k is solved from the same start, unless runs are nested.
    """

    own_limit: bool
    both_ways: bool = False
    criterion: Callable[[Any, Array], Array] | None = None
    patience: int | None = None
    side_by_side: bool = False


class Runs(NamedTuple):
    """The runs of a problem for several k."""

    problem: Problem
    key: PRNGKey | None
    own_limit: bool

    def problem_for(self, k: Array) -> Problem:
        """The problem with another k."""
        constraint: Any = self.problem.constraint
        constraint = constraint.with_k(k)
        stop = self.problem.stop
        if self.own_limit:
            max_steps = self.problem.solver.max_steps(constraint)
            stop = replace(stop, max_steps=jnp.asarray(max_steps, jnp.int32))
        return replace(self.problem, constraint=constraint, stop=stop)

    def run(self, x0: Start, k: Array) -> Result:
        """A run for k from its start."""
        problem = self.problem_for(k)
        key = None if self.key is None else jax.random.fold_in(self.key, k)
        carry = advance(problem, start(problem, x0, key), problem.stop.max_steps)
        return finish(problem, carry)

    def resume(self, carry: Carry, k: Array, is_first: Array) -> tuple[Carry, Result]:
        """A run that goes on where it finished because it had as many coordinates as it may, as a
        run for this k does, however the refit before ended."""
        is_full = carry.info.status == Status.FINISHED
        kept = [Status.FINISHED, Status.REFIT_FAILED, Status.NO_MINIMISER]
        resumes = is_full & jnp.isin(carry.status, jnp.asarray(kept)) & ~is_first
        status = jnp.where(resumes, Status.RUNNING, carry.status)
        problem = self.problem_for(k)
        carry = advance(problem, replace(carry, status=status), problem.stop.max_steps)
        return carry, finish(problem, carry)


def solve_all(
    problem: Problem,
    ks: Array,
    x0: Start,
    key: PRNGKey | None,
    length: Numeric | None = None,
    *,
    options: Options,
) -> Result:
    """Solve for every k in turn, or side by side.

    A path goes back and forth on the first ``length`` of ks; None stands for all.
    """
    length = jnp.asarray(ks.size if length is None else length, jnp.int32)
    fixed, x0 = lax.stop_gradient((problem, x0))
    runs = Runs(fixed, key, options.own_limit)

    def resume(carry, k):
        return runs.resume(carry, k, k == ks[0])

    def follow(x, k):
        result = runs.run(x, k)
        return result.x, result

    def add_derivatives(result):
        return differentiate(problem, result)

    if problem.solver.nested:
        carry = start(runs.problem_for(ks[0]), x0, key)
        _, results = scan(resume, carry, ks)
        if options.both_ways:
            results = _walk(runs, ks, length, options, results=results)
    elif options.side_by_side:
        results = jax.vmap(lambda k: runs.run(x0, k))(ks)
    else:
        x0 = initial_point(fixed.objective, fixed.constraint, x0)
        if options.both_ways or options.criterion is not None:
            results = _walk(runs, ks, length, options, x0=x0)
        else:
            _, results = scan(follow, x0, ks)
    return jax.vmap(add_derivatives)(results)


class _Walk(NamedTuple):
    """The state of a walk along a path.

    Attributes:
        results: the best one of each k.
        moves: how many were made.
        length: of the path.
        least: the least criterion on the first way up.
        least_at: the move that found it.
        idle: moves since the last one that improved a result.
    """

    results: Result
    moves: Array
    length: Array
    least: Array
    least_at: Array
    idle: Array


def _walk(
    runs: Runs,
    ks: Array,
    length: Array,
    options: Options,
    results: Result | None = None,
    x0: Start = None,
) -> Result:
    """Go up and down a path, each run from the result before, until a round improves no result.

    The first way up starts at x0, unless there are results.
    """
    moves = jnp.zeros((), jnp.int32)
    if results is None:  # the first way up is in the same loop, so that the program has one run
        blank = jax.eval_shape(runs.run, x0, ks[0])
        results = jax.tree.map(lambda leaf: jnp.zeros((ks.size, *leaf.shape), leaf.dtype), blank)
    else:
        moves = length

    def count(number):
        return jnp.full((), number, jnp.int32)

    infinity = jnp.full((), jnp.inf, results.value.dtype)
    first = _Walk(
        results=results,
        moves=moves,
        length=length,
        least=infinity,
        least_at=count(0),
        idle=count(0),
    )
    walker = _Walker(runs, ks, options, x0)
    return while_loop(walker.goes_on, walker.move, first).results


class _Walker(NamedTuple):
    """The moves of a walk; attributes as in :func:`_walk`."""

    runs: Runs
    ks: Array
    options: Options
    x0: Start

    def goes_on(self, walk: _Walk) -> Array:
        """Whether the first way up has not ended, or a result was improved in the last round."""
        is_first = walk.moves < walk.length
        return is_first | (self.options.both_ways & (walk.idle < 2 * (walk.length - 1)))

    def move(self, walk: _Walk) -> _Walk:
        """Run for the next k from the result of the k before, and keep what is better."""
        length, results = walk.length, walk.results
        is_first = walk.moves < length
        there_and_back = jnp.maximum(1, 2 * (length - 1))
        phase = walk.moves % there_and_back
        goes_up = (phase > 0) & (phase < length)
        i = jnp.where(phase < length, phase, there_and_back - phase)
        before = jnp.where(goes_up, i - 1, jnp.minimum(i + 1, length - 1))
        current = _take(results, i)
        neighbour = _take(results, before)

        x = neighbour.x
        if self.x0 is not None:
            x = tree_where(walk.moves == 0, self.x0, x)
        new = self.runs.run(x, self.ks[i])
        # A solution of fewer coordinates is one of more: copied, so that f does not increase, not
        # by rounding either.
        is_copied = goes_up & (neighbour.value < new.value)
        new = tree_where(is_copied, neighbour, new)
        rtol = jnp.where(is_copied, 0, machine_eps(current.value) ** 0.5)
        threshold = current.value - rtol * jnp.abs(current.value)
        is_better = (new.value < threshold) | is_first
        changed = jax.tree.map(lambda rows, row: rows.at[i].set(row), results, new)
        moved = walk._replace(
            results=tree_where(is_better, changed, results),
            moves=walk.moves + 1,
            idle=jnp.where(is_better, 0, walk.idle + 1),
        )
        criterion = self.options.criterion
        if criterion is None:
            return moved
        return self.shorten(moved, criterion(self.runs.problem.objective, new.x), is_first)

    def shorten(self, walk: _Walk, value: Array, is_first: Array) -> _Walk:
        """End the first way up, and with it the path, where the criterion has not fallen for
        ``patience`` moves."""
        is_least = value < walk.least
        least_at = jnp.where(is_least, walk.moves - 1, walk.least_at)
        ends = is_first & (walk.moves - 1 - least_at >= self.options.patience)
        return walk._replace(
            least=jnp.where(is_least, value, walk.least),
            least_at=least_at,
            length=jnp.where(ends, walk.moves, walk.length),
        )


def _take(results: Result, i: Array) -> Result:
    return jax.tree.map(lambda leaf: leaf[i], results)
