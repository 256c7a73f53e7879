"""The choice of a sparsity by samples that were held out."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from chex import Array, Numeric, PRNGKey

from jaxht._pytree import integer, pytree
from jaxht.constraints import Constraint
from jaxht.objectives.objective import Objective
from jaxht.runner._path import path, sparsities
from jaxht.runner._solve import Result, Stop, solve
from jaxht.solvers.solver import Solver


@pytree
class Validation:
    """What validation gives, for m sparsities; of cross-validation, results and losses have the folds in front.

    Attributes:
        k: the sparsity of the least loss, the smallest of equal ones, int32; of cross-validation, of the least mean.
        losses: (m,), the objective of the held-out samples at each solution; infinite where it is not a number.
        results: a :class:`jaxht.Result` with an axis of length m: the solutions on the other samples.
    """

    k: Numeric = integer()
    losses: Array
    results: Result


def validate(
    train: Objective,
    held_out: Objective,
    constraint: Constraint,
    solver: Solver,
    ks: Any,
    *,
    key: PRNGKey | None = None,
    stop: Stop = Stop(),
) -> Validation:
    """Solve for every sparsity, and choose the one whose solution has the least loss on samples held out.

    All sparsities run side by side; those of a solver whose runs are nested (:class:`jaxht.OMP`) are one
    :func:`jaxht.path`.

    Args:
        train: what is minimised.
        held_out: of the same kind, on other samples: the loss. Its l2 counts in it; 0 is usual.
        constraint, solver, stop: as in :func:`jaxht.solve`; the constraint's k gives way to those in ks. ``k_max`` is
            needed where ks is traced, else it is the largest of ks.
        ks: (m,) integers, strictly rising.
        key: PRNG key, for solvers that draw.

    Returns:
        A :class:`Validation`.

    Raises:
        ValueError: as :func:`jaxht.path`.
    """
    if solver.nested:
        results = path(train, constraint, solver, ks, key=key, stop=stop)
    else:
        ks, bounded = sparsities(train, constraint, ks)

        def at(k: Array) -> Result:
            own = None if key is None else jax.random.fold_in(key, k)
            return solve(train, dataclasses.replace(bounded, k=k), solver, key=own, stop=stop)

        results = jax.vmap(at)(jnp.asarray(ks, jnp.int32))
    held_out = held_out.prepare()
    losses = jax.vmap(lambda x: held_out.value(x, held_out.predict(x)))(results.x)
    losses = jnp.where(jnp.isnan(losses), jnp.inf, losses)
    return Validation(_least(ks, losses), losses, results)


def cross_validate(
    split: Callable[[Any], tuple[Objective, Objective]],
    folds: Any,
    constraint: Constraint,
    solver: Solver,
    ks: Any,
    *,
    key: PRNGKey | None = None,
    stop: Stop = Stop(),
) -> Validation:
    """:func:`validate` on every fold, side by side; the sparsity of the least mean loss is chosen.

    Args:
        split: from one fold to the objectives of the samples kept and of those held out.
        folds: what tells folds apart, stacked: as a rule the masks of :func:`folds`.
        constraint, solver, ks, key, stop: as in :func:`validate`.

    Returns:
        A :class:`Validation`; a final fit on all samples, at its k, is up to the caller.

    Raises:
        ValueError: as :func:`validate`.
    """
    lanes = jax.vmap(lambda fold: validate(*split(fold), constraint, solver, ks, key=key, stop=stop))(folds)
    return dataclasses.replace(lanes, k=_least(ks, jnp.mean(lanes.losses, axis=0)))


def folds(key: PRNGKey, num_samples: int, num_folds: int) -> Array:
    """Part samples at random into folds that differ by at most one in size.

    Args:
        key: PRNG key.
        num_samples: static, n.
        num_folds: static, from 2 to n.

    Returns:
        bool (num_folds, n): the samples that each fold holds out.

    Raises:
        ValueError: for fewer than 2 folds or more than samples.
    """
    if not 2 <= num_folds <= num_samples:
        raise ValueError(f"num_folds must lie between 2 and num_samples = {num_samples}; got {num_folds}")
    fold = jax.random.permutation(key, jnp.arange(num_samples, dtype=jnp.int32) % num_folds)
    return fold == jnp.arange(num_folds, dtype=jnp.int32)[:, None]


def _least(ks: Any, losses: Array) -> Array:
    return jnp.asarray(ks, jnp.int32)[jnp.argmin(losses)]
