"""The only loop over the steps of a solver, with every stopping test."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from optax.tree_utils import tree_where

from jaxht._dataclass import pytree, replace
from jaxht._loops import while_loop
from jaxht._meshes import shard_automatically
from jaxht._typing import Array, Numeric, PRNGKey
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.inner_products import is_complex
from jaxht.linalg.products import known_by_products, squares_in_units
from jaxht.objectives.objective import Objective
from jaxht.runner._problem import Problem, Start, initial_point
from jaxht.runner._result import Result
from jaxht.runner._stop import Stop
from jaxht.solvers.iterate import Counts, Info, Iterate
from jaxht.solvers.status import Status
from jaxht.subproblems import RefitStatus

__all__ = ["Carry", "advance", "finish", "for_products", "one_step", "one_turn", "start"]

# A run has diverged where f exceeds this many times its value at the start (or at 0).
DIVERGENCE_FACTOR = 1e8
# Of the steps before the last one, changes of so many ulps leave x as it is.
STILL_ULPS = 100.0
# With which the best point of a run is returned.
_BEST_OF_RUN = (Status.MAX_STEPS, Status.CYCLING, Status.REFIT_FAILED, Status.NO_MINIMISER)


@pytree
class Carry:
    """What a run carries from step to step; :func:`start` makes one. A sweep keeps many, and
    advances them in batches.

    Attributes:
        iterate: the current :class:`Iterate`.
        state: the solver's state, any pytree.
        info: what the last call of ``step`` has cost and found, an :class:`Info` of arrays.
        counts: what the run has cost, a :class:`Counts`.
        status: int32, a :class:`jaxht.Status`.
        num_steps: int32, steps taken.
        unit: about the norm of x, in units of which the fixed-point test takes squares, a scalar.
        num_still: int32, the number of steps in a row that have left x as it is, up to rtol or
            rounding.
        patience: int32, the number of steps for which the support has not changed, where
            ``support_patience`` is given.
        divergence_threshold: the value of f above which the run is DIVERGED, a scalar.
        best: the x of least f so far and its f, for solvers with ``keeps_best``; else None.
    """

    iterate: Iterate
    state: Any
    info: Info
    counts: Counts
    status: Array
    num_steps: Array
    unit: Array
    num_still: Array
    patience: Array
    divergence_threshold: Array
    best: tuple[Array, Array] | None = None


@shard_automatically
def start(problem: Problem, x0: Start, key: PRNGKey | None) -> Carry:
    """The carry before the first step.

    Args:
        problem: a :class:`Problem` made by :func:`prepare`.
        x0: start, a point as the constraint stores it, what :func:`prepare` returns for "dense",
            or None; one that is not finite is replaced by the objective's own, and the run ends as
            INVALID_START.
        key: PRNG key, or None.

    Returns:
        A :class:`Carry` with num_steps = 0; its status may differ from RUNNING already.

    Cost: that of the solver's ``init``, a projection and two values of f.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> from jaxht.extend import prepare, start
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]), mean=False)
        >>> carry = start(*prepare(f, jaxht.Sparse(2), jaxht.HTP()))
        >>> int(carry.num_steps), float(carry.iterate.value)
        (0, 15.0)
    """
    problem = for_products(problem)
    objective, constraint = problem.objective, problem.constraint
    origin = initial_point(objective, constraint)
    is_finite = jnp.array(True)
    if x0 is None and objective.has_feasible_start:
        x0 = origin
    elif x0 is None:
        x0, _ = constraint.project(origin, origin)
    else:
        x0 = initial_point(objective, constraint, x0)
        for leaf in jax.tree.leaves(x0):
            is_finite &= jnp.all(jnp.isfinite(leaf))
        projected, _ = constraint.project(x0, x0)
        x0 = tree_where(is_finite, projected, origin)
    iterate, state, info = problem.solver.init(objective, constraint, x0, key)
    info = info.as_arrays()
    iterate = _with_value(objective, iterate)
    pred = objective.predict(origin)
    base = jnp.abs(objective.value(origin, pred))
    # At 0 a prediction is NaN where the design is not finite, which f does not show where it has no
    # weight.
    is_valid = jnp.isfinite(base) & objective.has_valid_numbers()
    for leaf in jax.tree.leaves(pred):
        is_valid &= jnp.all(jnp.isfinite(leaf))
    divergence_threshold = DIVERGENCE_FACTOR * jnp.maximum(jnp.abs(iterate.value), base)
    zero = jnp.zeros((), jnp.int32)
    status = _judge(problem.stop, iterate, info, zero, divergence_threshold)
    status = jnp.where(is_finite & jnp.isfinite(iterate.value), status, Status.INVALID_START)
    status = jnp.where(is_valid, status, Status.INVALID_DATA).astype(jnp.int32)
    best = (iterate.x, iterate.value) if problem.solver.keeps_best else None
    return Carry(
        iterate=iterate,
        state=state,
        info=info,
        counts=Counts.zero(objective.num_samples).plus(info),
        status=status,
        num_steps=zero,
        unit=_first_unit(iterate.x, divergence_threshold.dtype),
        num_still=zero,
        patience=zero,
        divergence_threshold=divergence_threshold,
        best=best,
    )


@shard_automatically
def advance(problem: Problem, carry: Carry, num_steps: Numeric) -> Carry:
    """Take up to ``num_steps`` more steps, fewer where the run ends.

    Args:
        problem: a :class:`Problem` made by :func:`prepare`.
        carry: a :class:`Carry` of :func:`start` or :func:`advance`.
        num_steps: an integer >= 0, traced.

    Returns:
        The :class:`Carry` after these steps; the same one where the run has ended.

    Cost: that of the steps taken.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> from jaxht.extend import advance, prepare, start
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]), mean=False)
        >>> problem, x0, key = prepare(f, jaxht.Sparse(2), jaxht.OMP())
        >>> carry = advance(problem, start(problem, x0, key), num_steps=1)
        >>> carry.iterate.x.tolist()
        [0.0, 4.0, 0.0, 0.0]
    """
    problem = for_products(problem)
    last = carry.num_steps + num_steps

    def is_running(carry):
        return (carry.status == Status.RUNNING) & (carry.num_steps < last)

    return while_loop(is_running, functools.partial(one_turn, problem), carry)


@shard_automatically
def finish(problem: Problem, carry: Carry) -> Result:
    """The result of a run at its current iterate, or at the best one, see :class:`jaxht.Status`.

    Args:
        problem: a :class:`Problem` made by :func:`prepare`.
        carry: a :class:`Carry` of :func:`start` or :func:`advance`; the run need not have ended.

    Returns:
        A :class:`jaxht.Result`.

    Cost: the support of x.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> from jaxht.extend import advance, finish, prepare, start
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]), mean=False)
        >>> problem, x0, key = prepare(f, jaxht.Sparse(2), jaxht.OMP())
        >>> finish(problem, advance(problem, start(problem, x0, key), num_steps=2)).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """
    iterate = carry.iterate
    x, value = iterate.x, iterate.value
    if carry.best is not None:
        fell_short = [carry.status == status for status in _BEST_OF_RUN]
        x, value = tree_where(functools.reduce(jnp.logical_or, fell_short), carry.best, (x, value))
    return Result(
        x=x,
        support=problem.constraint.support_of(x),
        value=value,
        num_steps=carry.num_steps,
        status=carry.status,
        counts=carry.counts,
        gap=carry.info.gap,
    )


def for_products(problem: Problem) -> Problem:
    """The problem as a program computes with it."""
    # Within a jit of the caller, numbers cast on the host would follow NumPy's rules of promotion.
    problem = jax.tree.map(jnp.asarray, problem)
    objective: Any = problem.objective
    if not objective.is_linear_model or not is_complex(objective):
        return problem
    return replace(problem, objective=replace(objective, A=objective.design.for_products()))


def one_step(problem: Problem, carry: Carry) -> Carry:
    """Take one step, of as many turns as it needs; without a loop where solvers take none."""
    if problem.solver.takes_turns:
        return advance(problem, carry, 1)
    return one_turn(problem, carry)


def one_turn(problem: Problem, carry: Carry) -> Carry:
    """Call the solver's ``step``, which takes a step or tries one, and apply the stopping
    tests."""
    objective, constraint, solver = problem.objective, problem.constraint, problem.solver
    stop, old = problem.stop, carry.iterate
    iterate, state, info = solver.step(objective, constraint, old, carry.state)
    iterate = _with_value(objective, iterate)
    # A step that diverges is undone, but its cost counts.
    counts = carry.counts.plus(info)
    info = info.as_arrays()
    # After a rejected step, x is still that of an earlier refit.
    refit_status = jnp.where(info.accepted, info.refit_status, carry.info.refit_status)
    info = replace(info, refit_status=refit_status)
    step_ended = jnp.asarray(info.ends_step, jnp.int32)
    num_steps = carry.num_steps + step_ended
    unit = carry.unit
    num_still = carry.num_still
    patience = carry.patience
    still: Any = False
    stable: Any = False
    if solver.fixed_point_test:
        change, size = squares_in_units(iterate.x - old.x, iterate.x, unit)
        unit, is_known = _next_unit(unit, size)
        is_tested = is_known & info.accepted & ~info.skip_fixed_point_test
        rtol = jnp.asarray(stop.rtol)
        # Momentum moves x by some ulps for ever, in turns with steps that leave it as it is.
        loose = jnp.maximum(rtol, STILL_ULPS * machine_eps(change))
        num_still = jnp.where(is_tested & (change <= loose**2 * size), num_still + 1, 0)
        still = is_tested & (change <= rtol**2 * size) & (num_still >= solver.fixed_point_steps)
    if stop.support_patience is not None:
        same = constraint.support_of(iterate.x).equals(constraint.support_of(old.x))
        patience = jnp.where(same, patience + step_ended, 0)
        stable = patience >= stop.support_patience
    # Where f is 0 at the start, as without the constant of a quadratic function, that says nothing.
    threshold = carry.divergence_threshold
    threshold = jnp.where(threshold > 0, threshold, DIVERGENCE_FACTOR * jnp.abs(iterate.value))
    status = _judge(stop, iterate, info, num_steps, threshold, still, stable)
    diverged = status == Status.DIVERGED
    iterate, info = tree_where(diverged, (old, carry.info), (iterate, info))
    best = carry.best
    if best is not None:
        best = tree_where(iterate.value < best[1], (iterate.x, iterate.value), best)
    return Carry(
        iterate=iterate,
        state=state,
        info=info,
        counts=counts,
        status=status,
        num_steps=num_steps,
        unit=unit,
        num_still=num_still,
        patience=patience,
        divergence_threshold=threshold,
        best=best,
    )


def _least_unit(dtype: Any) -> float:
    """The root of the least normal number: in units of it all normal numbers have squares, or these
    overflow, and the square of its inverse does not."""
    return 2.0 ** (jnp.finfo(dtype).minexp // 2)


def _first_unit(x: Any, dtype: Any) -> Array:
    """1, or for x = 0 the least unit, of which other squares overflow."""
    is_zero = jnp.all((x.s if known_by_products(x) else x) == 0)
    return jnp.where(is_zero, _least_unit(dtype), 1).astype(dtype)


def _next_unit(unit: Array, size: Array) -> tuple[Array, Array]:
    """The norm of x, where ``size`` is its square in units of ``unit``, and whether that is known.

    Where the square is too large or too small the unit is changed by a large factor; of the least
    unit it is 0 for x = 0 alone.
    """
    limits = jnp.finfo(unit.dtype)
    least = _least_unit(unit.dtype)
    large = 2.0 ** (0.4 * limits.maxexp)
    # So that squares of an ulp of x are normal numbers.
    is_known = (size >= float(limits.tiny) / limits.eps**2) & (size < jnp.inf)
    is_least = unit <= least
    lost = jnp.where(size > 1, jnp.where(is_least, 1, unit * large), unit / large)
    new = jnp.where(is_known, unit * jnp.sqrt(size), lost)
    return jnp.clip(new, least, 1 / least), is_known | (is_least & (size == 0))


def _judge(
    stop: Stop,
    iterate: Iterate,
    info: Info,
    num_steps: Array,
    divergence_threshold: Array,
    still: Any = False,
    stable: Any = False,
) -> Array:
    """The status at an iterate, the start included; where several tests are met, the last one below
    is reported."""
    status = jnp.where(num_steps >= stop.max_steps, Status.MAX_STEPS, Status.RUNNING)
    status = jnp.where(still, Status.CONVERGED, status)
    status = jnp.where(stable, Status.SUPPORT_STABLE, status)
    status = jnp.where(info.status != Status.RUNNING, info.status, status)
    succeeded = (status != Status.RUNNING) & (status < Status.TARGET_REACHED)
    ended = succeeded | (status == Status.NO_PROGRESS)
    has_failed = info.refit_status == RefitStatus.FAILED
    has_none = info.refit_status == RefitStatus.NO_MINIMISER
    status = jnp.where(ended & has_failed, Status.REFIT_FAILED, status)
    status = jnp.where(ended & has_none, Status.NO_MINIMISER, status)
    if stop.gap_rtol is not None and info.gap is not None:
        closed = info.gap <= stop.gap_rtol * jnp.abs(iterate.value)
        status = jnp.where(closed, Status.GAP_CLOSED, status)
    if stop.target_value is not None:
        status = jnp.where(iterate.value <= stop.target_value, Status.TARGET_REACHED, status)
    # Written so that NaN counts as divergence.
    is_bounded = jnp.isfinite(iterate.value) & (iterate.value <= divergence_threshold)
    return jnp.where(is_bounded, status, Status.DIVERGED).astype(jnp.int32)


def _with_value(objective: Objective, iterate: Iterate) -> Iterate:
    if iterate.value is not None:
        return iterate
    value = objective.value(iterate.x, objective.predict(iterate.x))
    return replace(iterate, value=value)
