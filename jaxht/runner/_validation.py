"""The choice of a sparsity by held-out samples."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_labels, known_values
from jaxht._dataclass import integer, pytree, replace
from jaxht._meshes import shard_automatically
from jaxht._programs import bounded_jit
from jaxht._repr import describe
from jaxht._typing import Array, Numeric, PRNGKey
from jaxht.constraints import Constraint
from jaxht.linalg.inner_products import real_dtype
from jaxht.linalg.selection import decreasing_order
from jaxht.objectives.objective import Objective
from jaxht.runner._compile import compile_for
from jaxht.runner._padding import (
    crop,
    is_padding_enabled,
    pad_objective,
    pad_problem,
)
from jaxht.runner._path import Options, check_ks, pad_ks, prepare_path, solve_all
from jaxht.runner._problem import Problem
from jaxht.runner._result import Result
from jaxht.runner._solve import call_on_device
from jaxht.runner._stop import Stop
from jaxht.solvers.solver import Solver

__all__ = ["Validation", "cross_validate", "folds", "validate"]


@pytree
class Validation:
    """The result of validation for m sparsities; in cross-validation, results and losses have the
    folds as first axis.

    Attributes:
        k: int32, the sparsity of least loss, in cross-validation of least mean loss; the smallest
            one in case of ties.
        k_1se: int32, the smallest sparsity whose (mean) loss is at most that of k plus its standard
            error: the one-standard-error rule of Breiman, Friedman, Olshen & Stone 1984, §3.4.3.
            Equal to k where the standard error is not known.
        losses: (m,), the objective of the held-out samples at each solution, in its units; infinite
            where it is NaN, and 0 where squared errors are rounding errors.
        standard_errors: (m,), of the losses, from the variance of the held-out samples (NaN where
            the objective is no sum of their losses); of cross-validation, of the mean losses, from
            the variance of the folds.
        results: a :class:`jaxht.Result` with an axis of length m: the solutions on the training
            samples.
    """

    k: Numeric = integer()
    k_1se: Numeric = integer()
    losses: Array
    standard_errors: Array
    results: Result


@shard_automatically
def validate(
    train: Objective,
    held_out: Objective,
    constraint: Constraint,
    solver: Solver | None = None,
    *,
    ks: Any,
    key: PRNGKey | None = None,
    stop: Stop = Stop(),
) -> Validation:
    """Solve for every sparsity, and choose the one whose solution has the least loss on held-out
    samples.

    All sparsities are solved under vmap; for a solver whose runs are nested (:class:`jaxht.OMP`,
    :class:`jaxht.OLS`, :class:`jaxht.FoBa`) by one :func:`jaxht.path`.

    Args:
        train: the objective that is minimised.
        held_out: the same objective on held-out samples, whose value is the loss. Its ridge is part
            of the loss; l2 = 0 is usual.
        constraint: for example ``Sparse()``; its k is replaced by those in ks. ``k_max`` is
            required where ks is traced; else it is the largest of ks.
        solver: for example ``HTP()``. None: the one that :func:`jaxht.solve` chooses for the
            largest of ks.
        ks: (m,) integers, strictly increasing; a list or an array.
        key: PRNG key, for solvers that draw random numbers; folded with k for each run.
        stop: limits and tolerances of each run, a :class:`jaxht.Stop`.

    Returns:
        A :class:`Validation`.

    Raises:
        ValueError: where :func:`jaxht.path` raises it.

    Cost: m runs, each with the steps of the longest; one run in all for OMP, OLS and FoBa.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> train = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 0.0, 3.0]))
        >>> held_out = jaxht.LeastSquares(jnp.eye(4), jnp.array([-1.0, 4.0, 0.0, 3.0]))
        >>> int(jaxht.validate(train, held_out, jaxht.Sparse(), jaxht.OMP(), ks=[1, 2, 3]).k)
        2
    """
    problem, ks, _, key = prepare_path(train, constraint, solver, ks, None, key, stop)
    held_out = _prepare_held_out(held_out, problem)
    options = Options(own_limit=stop.max_steps is None, side_by_side=True)
    program = compile_for(None, validate_prepared, "options")
    return call_on_device(program, problem, held_out, ks, key, options=options)


def _check_split(split: Callable[[Any], Any]) -> Callable[[Any], tuple[Objective, Objective]]:
    """The split, with a ValueError where it is no function or its value no pair of objectives."""
    if not callable(split):
        raise ValueError(f"split must be a function of a fold; got {describe(split)}")

    def checked(fold):
        pair = split(fold)
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise ValueError(
                f"split must return (train, held_out), two objectives; got {describe(pair)}"
            )
        return tuple(pair)

    return checked


def _prepare_held_out(held_out: Objective, problem: Problem) -> Any:
    """The held-out objective, prepared, whose variable is that of the problem."""
    held_out = held_out.prepare()
    shape = problem.objective.shape
    if held_out.shape != shape:
        raise ValueError(
            f"held_out must have a variable of shape {shape}, as train has; got {held_out.shape}"
        )
    return held_out


def validate_prepared(
    problem: Problem, held_out: Objective, ks: Array, key: PRNGKey | None, options: Options
) -> Validation:
    """:func:`validate` of what is prepared. Of equal numbers in ks the last ones do not count."""
    results = solve_all(problem, ks, None, key, options=options)

    def evaluate(x):
        pred = held_out.predict(x)
        return held_out.value(x, pred), _standard_error(held_out, pred)

    losses, errors = jax.vmap(evaluate)(results.x)
    losses = jnp.where(jnp.isnan(losses), jnp.inf, losses)
    is_exact = held_out.exact_fits(losses)
    losses = jnp.where(is_exact, held_out.exact_value(), losses)
    k = least_of(ks, losses)
    k_1se = least_of(ks, losses, errors)
    return Validation(k, k_1se, losses, errors, results)


def cross_validate(
    split: Callable[[Any], tuple[Objective, Objective]],
    folds: Any,
    constraint: Constraint,
    solver: Solver | None = None,
    *,
    ks: Any,
    key: PRNGKey | None = None,
    stop: Stop = Stop(),
) -> Validation:
    """:func:`validate` on every fold, all under vmap; the sparsity of the least mean loss is
    chosen.

    Args:
        split: a function from one fold to a pair of objectives: of the training samples and of the
            held-out samples.
        folds: a pytree of arrays with the folds along their first axes: usually the masks of
            :func:`folds`.
        constraint: as in :func:`validate`.
        solver: as in :func:`validate`.
        ks: (m,) integers, strictly increasing; a list or an array.
        key: PRNG key, for solvers that draw random numbers; the same for all folds.
        stop: limits and tolerances of each run, a :class:`jaxht.Stop`.

    Returns:
        A :class:`Validation` with the folds as a first axis of losses and results; the fit on all
        samples, with its k, is left to the caller.

    Raises:
        ValueError: where :func:`validate` raises it.

    Cost: that of :func:`validate` for every fold, in one program.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> A, y = jnp.tile(jnp.eye(4), (3, 1)), jnp.tile(jnp.array([0.0, 4.0, 0.0, 3.0]), 3)
        >>> def split(held):
        ...     return jaxht.LeastSquares(A, y, weights=1.0 - held), jaxht.LeastSquares(A, y, weights=1.0 * held)
        >>> masks = jnp.arange(12) // 4 == jnp.arange(3)[:, None]
        >>> choice = jaxht.cross_validate(split, masks, jaxht.Sparse(), jaxht.OMP(), ks=[1, 2, 3])
        >>> int(choice.k), choice.losses.shape
        (2, (3, 3))
    """
    split = _check_split(split)
    if not jax.tree.leaves(folds) or any(jnp.ndim(leaf) == 0 for leaf in jax.tree.leaves(folds)):
        raise ValueError(
            f"folds must be arrays with the folds along their first axes, such as jaxht.folds(...); "
            f"got {describe(folds)}"
        )
    lengths = {jnp.shape(leaf)[0] for leaf in jax.tree.leaves(folds)}
    if len(lengths) > 1:
        raise ValueError(f"arrays of folds must be of one length; got {sorted(lengths)}")
    found = _validate_padded(split, folds, constraint, solver, ks, key, stop)
    if found is not None:
        return found

    def validate_on(fold):
        return validate(*split(fold), constraint, solver, ks=ks, key=key, stop=stop)

    lanes = jax.vmap(validate_on)(folds)
    return call_on_device(_compare_folds, check_ks(ks), lanes)


@bounded_jit
def _compare_folds(ks: Array, lanes: Validation) -> Validation:
    """Choose the sparsity by the losses of all folds."""
    losses = lanes.losses
    mean = jnp.mean(losses, axis=0)
    errors = jnp.std(losses, axis=0, ddof=1) / math.sqrt(losses.shape[0])
    k = least_of(ks, mean)
    k_1se = least_of(ks, mean, errors)
    return replace(lanes, k=k, k_1se=k_1se, standard_errors=errors)


# Entries of the designs of all folds up to which each fold has a design of its own.
MAX_ENTRIES_OF_FOLDS = 2**22


def _take_fold(i: int, leaf: Any) -> Array:
    """Row i, on the host where that takes no program; not of keys."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
    return leaf[i] if is_key else jax.device_put(np.asarray(leaf)[i])


def _validate_padded(
    split: Callable[[Any], tuple[Objective, Objective]],
    folds: Any,
    constraint: Constraint,
    solver: Solver | None,
    ks: Any,
    key: PRNGKey | None,
    stop: Stop,
) -> Validation | None:
    """Validate by a program that serves other sizes too; None where there is none."""
    leaves = jax.tree.leaves(folds)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves) or not is_padding_enabled():
        return None
    num_folds = len(leaves[0])
    problems: list[Problem] = []
    held_outs: list[Objective] = []
    for i in range(num_folds):
        fold = jax.tree.map(functools.partial(_take_fold, i), folds)
        train, held_out = split(fold)
        problem, known, _, key = prepare_path(train, constraint, solver, ks, None, key, stop)
        padding = pad_problem(problem, None, shares=constraint.k_max is None, pads=True)
        held_out = pad_objective(_prepare_held_out(held_out, problem))
        if padding.shape is None or held_out is None:
            return None
        if math.prod(padding.shape) * num_folds > MAX_ENTRIES_OF_FOLDS:
            return None
        problems.append(padding.problem)
        held_outs.append(held_out)

    def stack(trees):
        return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)

    options = Options(own_limit=stop.max_steps is None, side_by_side=True)
    program = compile_for(padding.shape, _validate_folds, "options")
    found: Validation = call_on_device(
        program, stack(problems), stack(held_outs), pad_ks(known), key, options=options
    )
    own = slice(len(known))
    losses, results = crop((found.losses, found.results), slice(None), own)
    return replace(
        found,
        losses=losses,
        standard_errors=crop(found.standard_errors, own),
        results=padding.restore(results),
    )


def _validate_folds(
    problems: Problem, held_outs: Objective, ks: Array, key: PRNGKey | None, options: Options
) -> Validation:
    def validate_on(problem, held_out):
        return validate_prepared(problem, held_out, ks, key, options)

    return _compare_folds(ks, jax.vmap(validate_on)(problems, held_outs))


def folds(key: PRNGKey, num_samples: int, num_folds: int, groups: Array | None = None) -> Array:
    """Divide samples at random into folds whose sizes differ by at most one.

    Args:
        key: PRNG key.
        num_samples: n, an int, static.
        num_folds: an int from 2 to n, static.
        groups: (n,) integers, traced: samples of equal labels, such as those of one patient, stay
            in one fold, and the folds' numbers of groups differ by at most one. None: each sample
            is a group of its own.

    Returns:
        bool (num_folds, n): the samples that each fold holds out.

    Raises:
        ValueError: for fewer than 2 folds, or more folds than samples or groups.

    Cost: a random permutation of n numbers; with groups two sorts.

    Example:
        >>> import jax, jaxht
        >>> masks = jaxht.folds(jax.random.key(0), num_samples=10, num_folds=3)
        >>> masks.sum(axis=0).tolist(), sorted(masks.sum(axis=1).tolist())
        ([1, 1, 1, 1, 1, 1, 1, 1, 1, 1], [3, 3, 4])
        >>> groups = jax.numpy.array([7, 7, 7, 1, 1, 2])
        >>> sorted(jaxht.folds(jax.random.key(0), 6, 3, groups).sum(axis=1).tolist())
        [1, 2, 3]
    """
    if not 2 <= num_folds <= num_samples:
        raise ValueError(
            f"num_folds must lie between 2 and num_samples = {num_samples}; got {num_folds}"
        )
    if groups is not None:
        return _folds_of_groups(key, num_samples, num_folds, groups)
    fold = np.arange(num_samples, dtype=np.int32) % num_folds
    numbers = np.arange(num_folds, dtype=np.int32)[:, None]
    return jax.random.permutation(key, jax.device_put(fold)) == jax.device_put(numbers)


def _folds_of_groups(key: PRNGKey, num_samples: int, num_folds: int, groups: Array) -> Array:
    number, num_groups = number_groups(groups, num_samples)
    known = known_values(num_groups)
    if known is not None and num_folds > known:
        raise ValueError(
            f"num_folds must be at most {known}, the number of groups; got {num_folds}"
        )
    is_group = jnp.arange(num_samples) < num_groups
    draws = jnp.where(is_group, jax.random.uniform(key, (num_samples,)), -1)
    order = decreasing_order(draws)
    places = jnp.arange(num_samples, dtype=jnp.int32)
    fold = jnp.zeros_like(order).at[order].set(places % num_folds)
    return fold[number] == jnp.arange(num_folds)[:, None]


def number_groups(groups: Array, num_samples: int) -> tuple[Array, Numeric]:
    """The number of the group of each sample, (n,), in order of the labels, and how many groups
    there are."""
    check_labels("groups", groups, num_samples)
    known = known_values(groups)
    if known is not None:
        labels, number = np.unique(known, return_inverse=True)
        return jax.device_put(number.astype(np.int32)), labels.size
    _, number = jnp.unique(groups, return_inverse=True, size=num_samples)
    return number.astype(jnp.int32), jnp.max(number) + 1


def least_of(ks: Any, values: Array, slack: Array | None = None) -> Array:
    """Return the sparsity of the least value, or the first one whose value exceeds it by at most
    the slack at the least value; NaN is no slack."""
    best = jnp.argmin(values)
    if slack is not None:
        is_close = values <= values[best] + slack[best]
        best = jnp.argmax(is_close | (jnp.arange(values.size) == best))
    return jnp.asarray(ks, jnp.int32)[best]


def _standard_error(objective: Any, pred: Array) -> Array:
    """Estimate the error of the sum of the losses of n samples from their variance; NaN where the
    objective is no such sum."""
    if not objective.is_linear_model or not objective.loss.is_separable:
        return jnp.full((), jnp.nan, real_dtype(pred))
    losses = objective.weighted_losses(pred)
    present = jnp.ones(losses.shape, bool)
    if objective.weights is not None:
        present = jnp.any(objective.weights.reshape(losses.size, -1) > 0, axis=1)
    n = jnp.sum(present, dtype=losses.dtype)
    # The share of each sample in the sum: a mean of equal losses has no variance.
    shares = 1 / n
    if objective.mean and objective.weights is not None:
        weights = objective.sample_weights.reshape(losses.size, -1).sum(axis=1)
        shares = weights / jnp.sum(weights)
    deviations = jnp.where(present, losses - shares * jnp.sum(losses), 0)
    return jnp.sqrt(n / (n - 1) * jnp.sum(deviations**2))
