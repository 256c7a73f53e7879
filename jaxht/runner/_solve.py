"""The entry points of a run, and the programs that they compile."""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from optax.tree_utils import tree_where

from jaxht._checks import check_count, check_kind, known_values
from jaxht._dataclass import replace
from jaxht._loops import cond_of_lanes, scan
from jaxht._meshes import shard_automatically
from jaxht._programs import bounded_jit
from jaxht._snapshot import Snapshot
from jaxht._typing import PRNGKey
from jaxht.constraints import Constraint
from jaxht.linalg.products import Variable
from jaxht.objectives.objective import Objective
from jaxht.runner._compile import compile_for
from jaxht.runner._derivative import differentiate
from jaxht.runner._loop import Carry, advance, finish, for_products, one_step, start
from jaxht.runner._padding import pad_problem
from jaxht.runner._problem import Problem, Start, prepare
from jaxht.runner._result import Result
from jaxht.runner._stop import Stop
from jaxht.solvers.solver import Solver
from jaxht.solvers.status import Status

T = TypeVar("T")

#: Where derivatives of a solution come from, see :func:`solve`.
Adjoint = Literal["implicit", "checkpointed", "none"]
ADJOINTS = get_args(Adjoint)


@shard_automatically
def solve(
    objective: Objective,
    constraint: Constraint,
    solver: Solver | None = None,
    *,
    x0: Variable | Result | Literal["dense"] | None = None,
    key: PRNGKey | None = None,
    stop: Stop = Stop(),
    adjoint: Adjoint = "implicit",
) -> Result:
    """Minimise an objective over a constraint.

    ``minimise f(x) subject to x in C``, by the solver's steps, until one of the tests in ``stop``
    or of the solver ends the run. Compiled once for each combination of shapes, dtype, static
    fields and numbers left None; works under jit, vmap, ``jax.jvp`` and ``jax.grad``.

    Derivatives of x and of the value with respect to the numbers of the objective and the
    constraint's bounds come from the implicit function theorem: they are those of the minimiser on
    the support of x (for matrices of low rank: among the matrices of its rank), whatever steps have
    led to x. With respect to the start, the solver and the stopping test they are 0. They are NaN
    where x is not that minimiser, as after a run that was cut off and for solvers that only end
    near one (``CoSaMP()``, dual and stochastic solvers); where the Hessian on the support is
    singular; and for factors, where singular values coincide. At a bound that has just become
    active, and where supports tie, they are one-sided. :func:`jaxht.differentiability` reports
    which of these cases holds.

    Args:
        objective: f, for example ``LeastSquares(A, y)``.
        constraint: C, for example ``Sparse(k)``, or ``Sparse(k, k_max=32)`` with a traced k.
        solver: for example ``HTP()``. None: the solver that :func:`jaxht.default_solver` chooses,
            in most cases a search for the best support; ``result.solver`` names it.
        x0: start, an array shaped like the variable or the :class:`Result` of another run;
            projected onto the constraint first. None: the objective's own (zero). Greedy solvers
            start from its support, so it may be a bool mask. "dense": the minimiser of f without
            the constraint, for linear models with n >= d only; where columns are strongly
            correlated, its k largest entries may form a support that steps from zero do not find.
        key: PRNG key; required by solvers that draw random numbers, ignored by the others.
        stop: limits and tolerances, a :class:`Stop`.
        adjoint: how derivatives are computed; static. "implicit": by the implicit function theorem,
            as above; memory and time do not depend on the number of steps. "checkpointed": by
            differentiating the steps, also with respect to the start and the solver's numbers; for
            solvers whose steps JAX can differentiate (IHT, HTP and similar solvers, whose steps
            contain no loop). Reverse mode stores about 2 sqrt(max_steps) iterates and takes each
            step two more times; max_steps must be known at trace time. "none": x and the value are
            constants, as after ``jax.lax.stop_gradient``.

    Returns:
        A :class:`Result`. A lane that diverges returns its last finite iterate and does not affect
        other lanes.

    Raises:
        ValueError: naming the argument, for shapes, dtypes and Python numbers that are not valid.

    Cost: that of a step, see the solver, times ``result.num_steps``; under vmap all lanes take the
    steps of the longest run. Of a derivative, see docs/derivatives.md.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]), mean=False)
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.HTP()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """
    if adjoint not in ADJOINTS:
        choices = ", ".join(map(repr, ADJOINTS))
        raise ValueError(f"adjoint must be one of {choices}; got {adjoint!r}")
    problem, x0, key = prepare(objective, constraint, solver, x0=x0, key=key, stop=stop)
    shares = constraint.k_max is None
    result = _run(problem, x0, key, adjoint, shares=shares, pads=shares and solver is None)
    if solver is None:
        result = replace(result, solver=describe_solver(problem.solver))
    return result


def describe_solver(solver: Solver) -> str:
    """The expression that makes a solver whose numbers are known."""
    return repr(jax.tree.map(lambda number: np.asarray(number).item(), solver))


def _run(
    problem: Problem,
    x0: Start,
    key: PRNGKey | None,
    adjoint: Adjoint,
    *,
    shares: bool,
    pads: bool,
) -> Result:
    if adjoint == "checkpointed":
        return call_on_device(_unroll, problem, x0, key, max_steps=_known_limit(problem))
    if adjoint == "none":
        problem = lax.stop_gradient(problem)
    padding = pad_problem(problem, x0, shares=shares, pads=pads)
    program = compile_for(padding.shape, solve_prepared)
    return padding.restore(call_on_device(program, padding.problem, padding.x0, key))


def call_on_device(program: Callable[..., T], *arguments: Any, **choices: Any) -> T:
    """Call a compiled program, whose traced arguments have numbers on the host."""
    # Where JAX may not move them by itself they are moved explicitly; in every call that would take
    # a third of the time of a small problem.
    try:
        return program(*arguments, **choices)
    except jax.errors.JaxRuntimeError as error:
        if "Disallowed host-to-device transfer" not in str(error):
            raise
        return program(*jax.tree.map(jax.device_put, arguments), **choices)


@shard_automatically
def trace(
    objective: Objective,
    constraint: Constraint,
    solver: Solver | None = None,
    *,
    num_steps: int,
    record: Callable[[Carry], Any] = lambda carry: carry.iterate.value,
    x0: Variable | Result | Literal["dense"] | None = None,
    key: PRNGKey | None = None,
    stop: Stop = Stop(),
) -> tuple[Result, Any]:
    """Take a fixed number of steps and record a function of every one.

    Its derivatives, forward and reverse, are those of the steps; those of :func:`solve` are of the
    solution.

    Args:
        objective: f, as in :func:`solve`.
        constraint: C, as in :func:`solve`.
        solver: as in :func:`solve`.
        num_steps: an int >= 0, static. A run that ends earlier repeats its last record.
        record: pure function of a :class:`jaxht.extend.Carry`, static; by default the value of its
            iterate. Defined once, it compiles once.
        x0: start, as in :func:`solve`.
        key: PRNG key, as in :func:`solve`.
        stop: limits and tolerances; by default ``stop.max_steps`` is num_steps.

    Returns:
        The :class:`Result`, and the records stacked along a new first axis of length num_steps + 1,
        the start first.

    Raises:
        ValueError: where :func:`solve` raises it, and for a num_steps that is not an int >= 0.

    Cost: num_steps steps, and a record of each iterate.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]), mean=False)
        >>> result, values = jaxht.trace(f, jaxht.Sparse(2), jaxht.IHT(step_size=1.0), num_steps=2)
        >>> values.tolist()
        [15.0, 2.5, 2.5]
    """
    check_count("num_steps", num_steps, least=0)
    check_kind(stop=stop)
    if stop.max_steps is None:
        stop = replace(stop, max_steps=num_steps)
    arguments = prepare(objective, constraint, solver, x0=x0, key=key, stop=stop)
    return call_on_device(_trace, *arguments, num_steps=num_steps, record=Snapshot.take(record))


def solve_prepared(problem: Problem, x0: Start, key: PRNGKey | None) -> Result:
    """:func:`solve` for what is prepared, with derivatives by the implicit function theorem."""
    fixed, x0 = lax.stop_gradient((problem, x0))
    fixed = for_products(fixed)
    result = finish(fixed, advance(fixed, start(fixed, x0, key), fixed.stop.max_steps))
    return differentiate(problem, result)


def _known_limit(problem: Problem) -> int:
    limit = known_values(problem.stop.max_steps)
    if limit is None:
        raise ValueError(
            'stop.max_steps must be a Python int for adjoint="checkpointed": it fixes the memory'
        )
    return int(limit)


@functools.partial(bounded_jit, static_argnames="max_steps")
def _unroll(problem: Problem, x0: Start, key: PRNGKey | None, max_steps: int) -> Result:
    """The run as blocks of steps, of which reverse mode keeps where they start, and then each step
    of one block."""

    def unless_ended(advance):
        def body(carry, _):
            is_running = carry.status == Status.RUNNING
            return cond_of_lanes(is_running, advance, lambda carry: carry, carry), None

        return body

    size = max(1, math.isqrt(max_steps))
    step = unless_ended(functools.partial(one_step, problem))

    @jax.checkpoint
    def take_steps(carry):
        return scan(step, carry, length=size)[0]

    block = unless_ended(take_steps)
    carry = start(problem, x0, key)
    carry, _ = scan(block, carry, length=-(-max_steps // size))
    return finish(problem, carry)


@functools.partial(bounded_jit, static_argnames=("num_steps", "record"))
def _trace(
    problem: Problem,
    x0: Start,
    key: PRNGKey | None,
    num_steps: int,
    record: Callable[[Carry], Any],
) -> tuple[Result, Any]:
    # A scan with selection, not `advance`: reverse-mode differentiation passes through it.
    def body(carry, _):
        carry = tree_where(carry.status == Status.RUNNING, one_step(problem, carry), carry)
        return carry, record(carry)

    carry = start(problem, x0, key)
    first = record(carry)
    carry, rest = scan(body, carry, length=num_steps)
    history = jax.tree.map(
        lambda first, rest: jnp.concatenate([jnp.asarray(first)[None], rest]), first, rest
    )
    return finish(problem, carry), history
