"""The runner: the only home of the outer loop and of every stopping test."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, Numeric, PRNGKey
from jax import lax
from optax.tree_utils import tree_where

from jaxht._pytree import as_dtype, cast_numbers, check_scalars, integer, pytree
from jaxht.constraints import Constraint, ModelSubspace
from jaxht.linalg.factored import Factored, square_norm
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Counts, Iterate
from jaxht.solvers.solver import Solver
from jaxht.solvers.status import Status

# An objective this many times that of the start (or of 0) will not come back.
DIVERGENCE_FACTOR = 1e8


@pytree
class Stop:
    """Limits and tolerances, the same for every solver. All are traced; None leaves a test out or takes its default.

    Args:
        max_steps: most steps to take; None asks the solver.
        rtol: CONVERGED when ``||x+ - x|| <= rtol ||x+||``, for solvers of which a still iterate is a fixed point. None:
            machine epsilon (of matrices of low rank 32 times that); 0: only an iterate that repeats exactly. It
            matters: near the phase transition PGD at rtol = 1e-6 stops long before it recovers.
        support_patience: SUPPORT_STABLE when supp(x) has not changed for this many steps.
        target_value: TARGET_REACHED when ``f(x) <= target_value``, at the start too.
        gap_rtol: GAP_CLOSED when the duality gap is at most gap_rtol |f(x)|, for solvers that have one; likewise.
    """

    max_steps: Any = integer(default=None)
    rtol: Any = None
    support_patience: Numeric | None = integer(default=None)
    target_value: Numeric | None = None
    gap_rtol: Numeric | None = None


@pytree
class Result:
    """What came out of a run; under vmap every field has the lanes in front.

    Attributes:
        x: (d,) the solution, exactly feasible.
        support: supp(x): ``mask`` (d,), and ``indices`` (k_max,) padded with d, or None where k_max is not known.
        value: f(x).
        num_steps: int32, steps taken.
        status: int32, a :class:`jaxht.Status`.
        counts: gradients and projections; ``counts.ifo`` on the host.
        gap: f(x) minus the best dual value, or None.
    """

    x: Array
    support: ModelSubspace
    value: Array
    num_steps: Numeric = integer()
    status: Numeric = integer()
    counts: Counts = Counts()
    gap: Array | None = None

    def raise_for_status(self) -> "Result":
        """On the host: raise RuntimeError if the status of any lane is a failure (MAX_STEPS ...), else return self."""
        codes, lanes = np.unique(np.asarray(self.status), return_counts=True)
        bad = [(Status(int(code)), n) for code, n in zip(codes, lanes, strict=True) if Status(int(code)).failed]
        if bad:
            total = np.size(np.asarray(self.status))
            raise RuntimeError(" ".join(f"{n} of {total} runs {status.name}: {status.sentence}" for status, n in bad))
        return self


@pytree
class Problem:
    """What stays fixed during a run."""

    objective: Objective
    constraint: Constraint
    solver: Solver
    stop: Stop


@pytree
class Carry:
    """What a run carries from step to step; a sweep may keep many of them and advance them as it likes."""

    iterate: Iterate
    state: Any
    status: Array
    num_steps: Array
    patience: Array
    divergence_threshold: Array


def solve(
    objective: Objective,
    constraint: Constraint,
    solver: Solver,
    *,
    x0: Array | Result | None = None,
    key: PRNGKey | None = None,
    stop: Stop = Stop(),
) -> Result:
    """Minimise an objective over a constraint.

    ``minimise f(x) subject to x in C``, by the solver's steps until one of the tests in ``stop`` or the solver's own
    ends the run. Compiled once for each combination of shapes, dtype, static fields and numbers left None; works
    under jit, vmap and forward differentiation.

    Args:
        objective: for example ``LeastSquares(A, y)``.
        constraint: for example ``Sparse(k)`` or ``Sparse(k, k_max=32)`` with a traced k.
        solver: for example ``HTP()``.
        x0: start, an array or the :class:`Result` of another run; projected onto the constraint first. The objective's
            own (zero) by default. Greedy solvers start from its support, so a mask will do.
        key: PRNG key, for solvers that draw.
        stop: limits and tolerances.

    Returns:
        A :class:`Result`. A lane that diverges returns its last finite iterate and disturbs no other.

    Raises:
        ValueError: for shapes, dtypes and Python numbers that cannot be right, naming the argument.
    """
    return _solve(*prepare(objective, constraint, solver, stop, x0, key))


def trace(
    objective: Objective,
    constraint: Constraint,
    solver: Solver,
    *,
    num_steps: int,
    record: Callable[[Iterate], Any] = lambda iterate: iterate.value,
    x0: Array | Result | None = None,
    key: PRNGKey | None = None,
    stop: Stop = Stop(),
) -> tuple[Result, Any]:
    """Take a fixed number of steps and record something of every iterate.

    Args:
        objective, constraint, solver, x0, key, stop: as in :func:`solve`; by default ``stop.max_steps`` is num_steps.
        num_steps: static. A run that ends earlier repeats its last record.
        record: pure function of a :class:`jaxht.extend.Iterate`, by default its value; defined once it compiles once.

    Returns:
        The result, and the records stacked along a new first axis of length num_steps + 1, the start first.
    """
    if not (isinstance(num_steps, int | np.integer) and num_steps >= 0):
        raise ValueError(f"num_steps must be a Python int of at least 0; got {num_steps!r}")
    if stop.max_steps is None:
        stop = dataclasses.replace(stop, max_steps=num_steps)
    return _trace(*prepare(objective, constraint, solver, stop, x0, key), num_steps, record)


def prepare(
    objective: Objective, constraint: Constraint, solver: Solver, stop: Stop = Stop(), x0: Any = None, key: Any = None
) -> tuple[Problem, Array | None, PRNGKey | None]:
    """What :func:`start` takes, from the arguments of :func:`solve`: the problem, x0 and key.

    They are checked as far as known at trace time, defaults are filled in, and numbers cast so that equal calls share
    one compile. Raises what :func:`solve` does.
    """
    objective = objective.prepare()
    constraint = constraint.prepare(objective.shape)
    if constraint.factored and not solver.takes_factors:
        raise ValueError(
            f"solver must take factored iterates: IHT, SGHT; got {type(solver).__name__}: "
            "leave LowRank(factored=True) out"
        )
    dtype = objective.dtype
    check_scalars(solver)
    check_scalars(stop, signed=("target_value",))
    if solver.needs_key and key is None:
        raise ValueError(f"key must be given: {type(solver).__name__} draws random numbers; pass jax.random.key(seed)")
    if x0 is not None:
        x0 = x0.x if isinstance(x0, Result) else x0
        x0 = cast_numbers(x0, dtype) if isinstance(x0, Factored) else as_dtype(x0, dtype)
        x0 = x0.astype(dtype) if x0.dtype == jnp.bool_ else x0
        if x0.shape != objective.shape:
            raise ValueError(f"x0 must have shape {objective.shape}, that of the variable; got {x0.shape}")
    if stop.max_steps is None:
        stop = dataclasses.replace(stop, max_steps=solver.max_steps(constraint))
    if stop.rtol is None:
        stop = dataclasses.replace(stop, rtol=constraint.rounding * float(jnp.finfo(dtype).eps))
    return cast_numbers(Problem(objective, constraint, solver, stop), dtype), x0, key


def initial_point(objective: Objective, constraint: Constraint) -> Array:
    """Where a run starts by default, held as the constraint holds its points."""
    return objective.start(constraint.k_max if constraint.factored else None)


def start(problem: Problem, x0: Array | None, key: PRNGKey | None) -> Carry:
    """The carry before the first step."""
    problem = jax.tree.map(jnp.asarray, problem)
    objective, constraint = problem.objective, problem.constraint
    origin = initial_point(objective, constraint)
    # A start that is not finite is replaced, and reported as divergence: nothing lies below a threshold of NaN.
    sound = jnp.all(jnp.asarray([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(x0)], bool))
    x0 = origin if x0 is None else tree_where(sound, constraint.project(x0, x0)[0], origin)
    iterate, state = problem.solver.init(objective, constraint, x0, key)
    iterate = _with_value(objective, iterate)
    base = jnp.maximum(jnp.abs(iterate.value), jnp.abs(objective.value(origin, objective.predict(origin))))
    divergence_threshold = jnp.where(sound, DIVERGENCE_FACTOR * base, jnp.nan)
    zero = jnp.zeros((), jnp.int32)
    return Carry(
        iterate, state, _judge(problem.stop, iterate, zero, divergence_threshold), zero, zero, divergence_threshold
    )


def advance(problem: Problem, carry: Carry, num_steps: Numeric) -> Carry:
    """Take up to ``num_steps`` (traced) more steps, fewer where the run ends."""
    # Within a jit of the caller's own, numbers cast on the host would go on by NumPy's rules of promotion.
    problem = jax.tree.map(jnp.asarray, problem)
    last = carry.num_steps + num_steps
    return lax.while_loop(
        lambda carry: (carry.status == Status.RUNNING) & (carry.num_steps < last),
        functools.partial(_one_step, problem),
        carry,
    )


def finish(problem: Problem, carry: Carry) -> Result:
    """The result of a run as it stands."""
    iterate = carry.iterate
    return Result(
        x=iterate.x,
        support=problem.constraint.support_of(iterate.x).complete(),
        value=iterate.value,
        num_steps=carry.num_steps,
        status=carry.status,
        counts=iterate.counts,
        gap=iterate.gap,
    )


def _one_step(problem: Problem, carry: Carry) -> Carry:
    stop, old = problem.stop, carry.iterate
    iterate, state = problem.solver.step(problem.objective, problem.constraint, old, carry.state)
    iterate = _with_value(problem.objective, iterate)
    num_steps, patience = carry.num_steps + 1, carry.patience
    still: Any = False
    stable: Any = False
    if problem.solver.fixed_point_test:
        change = iterate.x - old.x
        still = square_norm(change) <= jnp.square(stop.rtol) * square_norm(iterate.x)
        still &= True if iterate.skip_fixed_point_test is None else ~iterate.skip_fixed_point_test
    if stop.support_patience is not None:
        same = problem.constraint.support_of(iterate.x).equals(problem.constraint.support_of(old.x))
        patience = jnp.where(same, patience + 1, 0)
        stable = patience >= stop.support_patience
    status = _judge(stop, iterate, num_steps, carry.divergence_threshold, still, stable)
    kept = tree_where(status == Status.DIVERGED, old, iterate)
    # The step is taken back, its cost is not.
    kept = dataclasses.replace(kept, counts=iterate.counts)
    return Carry(kept, state, status, num_steps, patience, carry.divergence_threshold)


def _judge(
    stop: Stop, iterate: Iterate, num_steps: Array, divergence_threshold: Array, still: Any = False, stable: Any = False
) -> Array:
    """The status at an iterate, the start included; where several tests are met, the last one here is reported."""
    status = jnp.where(num_steps >= stop.max_steps, Status.MAX_STEPS, Status.RUNNING)
    status = jnp.where(still, Status.CONVERGED, status)
    status = jnp.where(stable, Status.SUPPORT_STABLE, status)
    status = jnp.where(iterate.status != 0, iterate.status, status)
    if iterate.refit_converged is not None:
        at_rest = (status != Status.RUNNING) & (status < Status.TARGET_REACHED) | (status == Status.NO_PROGRESS)
        status = jnp.where(at_rest & ~iterate.refit_converged, Status.REFIT_FAILED, status)
    if stop.gap_rtol is not None and iterate.gap is not None:
        status = jnp.where(iterate.gap <= stop.gap_rtol * jnp.abs(iterate.value), Status.GAP_CLOSED, status)
    if stop.target_value is not None:
        status = jnp.where(iterate.value <= stop.target_value, Status.TARGET_REACHED, status)
    # Written so that NaN fails it.
    sound = jnp.isfinite(iterate.value) & (iterate.value <= divergence_threshold)
    return jnp.where(sound, status, Status.DIVERGED).astype(jnp.int32)


def _with_value(objective: Objective, iterate: Iterate) -> Iterate:
    if iterate.value is not None:
        return iterate
    value = objective.value(iterate.x, objective.predict(iterate.x))
    return dataclasses.replace(iterate, value=value)


@jax.jit
def _solve(problem: Problem, x0: Array | None, key: PRNGKey | None) -> Result:
    return finish(problem, advance(problem, start(problem, x0, key), problem.stop.max_steps))


@functools.partial(jax.jit, static_argnums=(3, 4))
def _trace(
    problem: Problem, x0: Array | None, key: PRNGKey | None, num_steps: int, record: Callable[[Iterate], Any]
) -> tuple[Result, Any]:
    # A scan with selection, not `advance`: reverse-mode differentiation passes through it.
    def body(carry, _):
        carry = tree_where(carry.status == Status.RUNNING, _one_step(problem, carry), carry)
        return carry, record(carry.iterate)

    carry = start(problem, x0, key)
    first = record(carry.iterate)
    carry, rest = lax.scan(body, carry, length=num_steps)
    history = jax.tree.map(lambda first, rest: jnp.concatenate([jnp.asarray(first)[None], rest]), first, rest)
    return finish(problem, carry), history
