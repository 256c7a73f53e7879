"""The preparation of a run: arguments are checked once, and defaults filled in."""

import math
import warnings
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_kind, check_scalars, known_values
from jaxht._dataclass import cast_numbers, pytree, replace
from jaxht._repr import describe
from jaxht._typing import PRNGKey
from jaxht.constraints import Constraint, Support
from jaxht.linalg.inner_products import real_part
from jaxht.linalg.products import Variable
from jaxht.objectives.objective import Objective, cast_point, check_products
from jaxht.runner._default_solver import choose_solver
from jaxht.runner._result import Result
from jaxht.runner._stop import Stop
from jaxht.solvers.solver import Solver
from jaxht.subproblems import refit

__all__ = ["DenseStart", "Problem", "Start", "initial_point", "prepare"]


@pytree
class Problem:
    """What does not change during a run; :func:`prepare` makes one.

    Attributes:
        objective: prepared.
        constraint: prepared for the objective's shape.
        solver: its numbers cast to the objective's dtype.
        stop: a :class:`jaxht.Stop` with max_steps and rtol filled in.
    """

    objective: Objective
    constraint: Constraint
    solver: Solver
    stop: Stop


@pytree
class DenseStart:
    """A mark for the minimiser of f without the constraint, which the program computes."""


#: The start of a run, as :func:`prepare` returns it.
Start: TypeAlias = Variable | DenseStart | None


def prepare(
    objective: Objective,
    constraint: Constraint,
    solver: Solver | None = None,
    *,
    x0: Any = None,
    key: PRNGKey | None = None,
    stop: Stop = Stop(),
) -> tuple[Problem, Start, PRNGKey | None]:
    """Check the arguments of :func:`jaxht.solve`, fill in defaults, and cast numbers: equal calls
    share one compile.

    Args:
        objective: f, as in :func:`jaxht.solve`.
        constraint: C, as in :func:`jaxht.solve`.
        solver: as in :func:`jaxht.solve`.
        x0: start, as in :func:`jaxht.solve`.
        key: PRNG key, as in :func:`jaxht.solve`.
        stop: limits and tolerances, a :class:`jaxht.Stop`.

    Returns:
        The arguments of :func:`start`: a :class:`Problem`, x0 as an array, a mark for "dense" or
        None, and key.

    Raises:
        ValueError: naming the argument, for shapes, dtypes and Python numbers that are not valid,
            as far as known at trace time.

    Cost: what ``objective.prepare()`` costs; no step is taken.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> from jaxht.extend import prepare
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]), mean=False)
        >>> problem, x0, key = prepare(f, jaxht.Sparse(2), jaxht.HTP())
        >>> problem.constraint.k_max, int(problem.stop.max_steps)
        (2, 100)
    """
    check_kind(objective=objective, constraint=constraint, solver=solver, stop=stop)
    objective = objective.prepare()
    number = objective.dtype
    dtype = real_part(number)
    constraint = constraint.prepare(objective.shape)
    if solver is None:
        solver = choose_solver(objective, constraint)
    if number != dtype:
        _check_complex(constraint, solver)
    if not constraint.stores_entries:
        check_products(objective)
        if solver.needs_entries:
            raise ValueError(
                f"solver must take factored iterates (IHT, SGHT do); got {type(solver).__name__}: "
                "use one of these, or LowRank without factored=True"
            )
    check_scalars(solver)
    check_scalars(stop)
    _check_key(key, solver)
    if solver.is_penalised:
        _check_free(objective, constraint, solver)
    else:
        _warn_of_few_samples(objective, constraint)
    stop = _complete(stop, constraint, solver, dtype)
    problem = cast_numbers(Problem(objective, constraint, solver, stop), dtype)
    return problem, _check_start(x0, objective), key


def _check_complex(constraint: Any, solver: Solver) -> None:
    """Raise ValueError for what has no complex form."""
    if not constraint.selects_items or constraint.is_graph:
        raise ValueError(
            "constraint must select entries or groups for complex numbers (Sparse, Groups, "
            f"SparsePerGroup, TreeSparse); got {type(constraint).__name__}"
        )
    if constraint.bounds is not None:
        raise ValueError("bounds must be None for complex numbers, which have no order")
    if not solver.takes_complex:
        raise ValueError(
            "solver must take complex numbers, as all of jaxht do (takes_complex = True); got "
            f"{type(solver).__name__}"
        )


def _warn_of_few_samples(objective: Any, constraint: Any) -> None:
    """Warn where more coefficients than samples are asked for, without a ridge: as many as samples
    fit any targets. What is traced is not looked at."""
    if not constraint.selects_entries or not objective.is_linear_model:
        return
    k, l2, weights = constraint.k, objective.l2, objective.weights
    # Within a trace nothing is computed of JAX's arrays.
    is_known = isinstance(k, int | np.integer) and not isinstance(objective.y, jax.core.Tracer)
    if not is_known or any(isinstance(v, jax.Array) for v in (l2, weights)):
        return
    n = objective.A.shape[0] if weights is None else np.count_nonzero(weights)
    has_ridge = l2 is not None and np.any(l2)
    if k > n and not has_ridge and len(objective.shape) == 1:
        warnings.warn(
            f"k = {k} is above the number of samples, {n}: as many coefficients fit any "
            "targets, and the result has no more; give a smaller k, or l2 > 0",
            stacklevel=4,
        )


def _check_free(objective: Objective, constraint: Constraint, solver: Solver) -> None:
    """Raise ValueError for a known k that would leave out entries of a vector, as a penalty does
    not."""
    size = math.prod(objective.shape)
    k = known_values(constraint.k)
    is_selection = constraint.selects_entries and len(objective.shape) == 1
    if is_selection and k is not None and k != size:
        raise ValueError(
            f"constraint must be Sparse({size}) for {type(solver).__name__}, which leaves x free; "
            f"got k = {k}"
        )


def _check_key(key: Any, solver: Solver) -> None:
    if key is None:
        if solver.needs_key:
            raise ValueError(
                f"key must be given: {type(solver).__name__} draws random numbers; "
                "pass jax.random.key(seed)"
            )
    elif not isinstance(key, jax.Array | np.ndarray):
        raise ValueError(
            f"key must be a PRNG key such as jax.random.key(seed); got {describe(key)}"
        )


def _complete(stop: Stop, constraint: Constraint, solver: Solver, dtype: Any) -> Stop:
    """Fill in max_steps and rtol."""
    max_steps = stop.max_steps
    rtol = stop.rtol
    if max_steps is None:
        max_steps = solver.max_steps(constraint)
    if rtol is None:
        # The dtype may be NumPy's float64, which is float32 in JAX: with the epsilon of the former
        # no run would end.
        eps = float(jnp.finfo(jax.dtypes.canonicalize_dtype(dtype)).eps)
        rtol = constraint.rounding * eps
    return replace(stop, max_steps=max_steps, rtol=rtol)


def _check_start(x0: Any, objective: Objective) -> Start:
    if x0 is None:
        return None
    if isinstance(x0, str):
        return _check_dense(x0, objective)
    if isinstance(x0, Result):
        x0 = x0.x
    return cast_point(x0, objective, "x0")


def _check_dense(x0: str, objective: Any) -> DenseStart:
    if x0 != "dense":
        raise ValueError(
            f'x0 must have shape {objective.shape}, that of the variable, or be "dense"; got {x0!r}'
        )
    design = objective.design if objective.is_linear_model else None
    if design is None or len(design.variable_shape) != 1:
        raise ValueError(
            f'objective must be a linear model for x0="dense"; got {type(objective).__name__}'
        )
    n, d = design.shape
    if not design.in_memory:
        raise ValueError(
            'A must be in memory for x0="dense", which takes all of its columns; got a stream'
        )
    if n < d:
        raise ValueError(
            f'A must have at least as many rows as columns for x0="dense"; got shape {(n, d)}'
        )
    return DenseStart()


def initial_point(objective: Objective, constraint: Constraint, x0: Start = None) -> Any:
    """The start of a run, before its projection: x0; by default zero."""
    if isinstance(x0, DenseStart):
        zero = objective.start()
        return refit(objective, Support(jnp.ones(zero.shape, bool), k_max=zero.size), zero).x
    if x0 is not None:
        return x0
    if constraint.stores_entries:
        return objective.start()
    return constraint.zero(objective.shape, objective.dtype)
