"""Runs on the same samples with many weights, side by side in one program."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._dataclass import replace
from jaxht._typing import Array, PRNGKey
from jaxht.constraints import SelectionConstraint
from jaxht.linalg.full_precision import machine_eps
from jaxht.objectives.linear_model import LinearModel
from jaxht.runner._compile import compile_for
from jaxht.runner._padding import crop, is_padding_enabled, pad_problem
from jaxht.runner._problem import Problem, prepare
from jaxht.runner._result import Result
from jaxht.runner._solve import call_on_device, describe_solver, solve_prepared
from jaxht.runner._stop import Stop
from jaxht.solvers.solver import Solver
from jaxht.subproblems import refit

__all__ = ["Resamples", "solve_resamples"]


class Resamples(NamedTuple):
    """The solutions of several resamples.

    Attributes:
        results: a :class:`Result` with a first axis of resamples.
        coefficients: the minimisers on their supports; None where they are not asked for.
        exact: bool (B,), which of the results are exact fits, but for rounding errors, by fewer
            items than they have.
    """

    results: Result
    coefficients: Array | None
    exact: Array


def solve_resamples(
    model: LinearModel,
    factors: Array,
    constraint: SelectionConstraint,
    solver: Solver | None,
    keys: PRNGKey,
    stop: Stop,
    *,
    refits: bool = False,
) -> Resamples:
    """Solve with each sample's weight times a factor, (B, n), for B keys.

    Outside of every trace the program serves other sizes, too.
    """
    weighted = model.reweight(np.ones(model.num_samples, factors.dtype))
    problem, _, _ = prepare(weighted, constraint, solver, x0=None, key=keys[0], stop=stop)
    is_traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((model, factors)))
    pads = is_padding_enabled() and not is_traced
    shares = constraint.k_max is None and pads
    padding = pad_problem(problem, None, pads=pads, shares=shares, compresses=False)
    if padding.is_padded:
        num_added = padding.problem.objective.num_samples - model.num_samples
        factors = np.pad(np.asarray(factors), ((0, 0), (0, num_added)))
    program = compile_for(padding.shape, _solve_resamples, "refits")
    found = call_on_device(program, padding.problem, factors, keys, refits=refits)
    coefficients = found.coefficients
    if padding.is_padded and refits:
        coefficients = crop(coefficients, slice(None), slice(padding.num_columns))
    results = padding.restore(found.results)
    if solver is None:
        results = replace(results, solver=describe_solver(problem.solver))
    return Resamples(results, coefficients, found.exact)


def _solve_resamples(problem: Problem, factors: Array, keys: PRNGKey, refits: bool) -> Resamples:
    def run(factors: Array, key: PRNGKey) -> Resamples:
        objective: Any = problem.objective.reweight(factors)  # type: ignore[attr-defined]
        result = solve_prepared(replace(problem, objective=objective), None, key)
        coefficients = refit(objective, result.support, result.x).x if refits else None
        constraint: Any = problem.constraint
        is_short = jnp.sum(constraint.active(result.x)) < constraint.k
        is_exact = objective.exact_fits(result.value)
        is_exact &= is_short | _has_rounding_errors(constraint, result.x)
        return Resamples(result, coefficients, is_exact)

    return jax.vmap(run)(factors, keys)


def _has_rounding_errors(constraint: Any, x: Array) -> Array:
    """Whether an item that is not 0, and could be left out, is far smaller than the largest."""
    sizes = jnp.where(constraint.always_active, 0, constraint.scores(x))
    least = jnp.min(jnp.where(sizes > 0, sizes, jnp.inf))
    return least <= machine_eps(x) ** 0.5 * jnp.max(sizes)
