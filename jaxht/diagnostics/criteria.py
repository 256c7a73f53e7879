"""The criteria of :mod:`jaxht.criteria`, whose docstring has the formula."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from jaxht._checks import check_count, check_kind
from jaxht._dataclass import integer, pytree
from jaxht._meshes import shard_automatically
from jaxht._repr import describe
from jaxht._typing import Array, Numeric, PRNGKey
from jaxht.constraints import Constraint
from jaxht.diagnostics._models import likelihood
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.objective import Objective, cast_point
from jaxht.runner import Result, Stop
from jaxht.runner._path import solve_path
from jaxht.runner._validation import least_of
from jaxht.solvers.solver import Solver
from jaxht.solvers.status import Status

#: ``criterion(objective, x)``, a scalar: the least is the best.
Criterion = Callable[[Any, Array], Array]


@shard_automatically
def deviance(objective: Objective, x: Array) -> Array:
    """``-2 log L(x)``, up to a number that does not depend on x.

    Args:
        objective: :class:`jaxht.LeastSquares`, :class:`jaxht.MultiResponse`,
            :class:`jaxht.Logistic`, :class:`jaxht.Softmax`, :class:`jaxht.Ordinal`,
            :class:`jaxht.Poisson`, :class:`jaxht.Gamma` or :class:`jaxht.Cox`.
        x: a solution, shaped like the variable.

    Returns:
        A scalar; of squared errors and gamma variables, whose dispersion is then 0, -infinity where
        x fits exactly.

    Raises:
        ValueError: for an objective whose loss is not the logarithm of a likelihood.

    Cost: a prediction.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.Logistic(jnp.eye(2), jnp.array([1.0, -1.0]))
        >>> round(float(jaxht.criteria.deviance(f, jnp.zeros(2))), 4)  # 2 log 2 for each sample
        2.7726
    """
    model, x = _model_and_point(objective, x)
    u = model.linear_predictor(model.predict(x))
    return model.loss.deviance(u, model.y, model.sample_weights)


def aic(objective: Objective, x: Array, *, size: Numeric | None = None) -> Array:
    """The information criterion of Akaike, ``-2 log L + 2 k``.

    Args:
        objective, x: as of :func:`deviance`.
        size: k, the number of free parameters, a scalar; None: of entries that are not 0. Of rank r
            it is ``r (m + p - r)``.

    Returns:
        A scalar.

    Raises:
        ValueError: as :func:`deviance`.

    Cost: a prediction.

    Source: Akaike 1974.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.Poisson(jnp.eye(2), jnp.array([1.0, 1.0]))
        >>> float(jaxht.criteria.aic(f, jnp.zeros(2)))
        4.0
    """
    model, x = _model_and_point(objective, x)
    return deviance(model, x) + 2 * _size(x, size)


def bic(objective: Objective, x: Array, *, size: Numeric | None = None) -> Array:
    """The Bayesian information criterion, ``-2 log L + k log n``.

    Args:
        objective, x: as of :func:`deviance`; n is the number of samples, or for :class:`jaxht.Cox`
            of events.
        size: k, as of :func:`aic`.

    Returns:
        A scalar.

    Raises:
        ValueError: as :func:`deviance`.

    Cost: a prediction.

    Source: Schwarz 1978.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(2), jnp.array([3.0, 1.0]))
        >>> round(float(jaxht.criteria.bic(f, jnp.array([3.0, 0.0]))), 4)  # 2 log(1/2) + log 2
        -0.6931
    """
    model, x = _model_and_point(objective, x)
    return deviance(model, x) + _size(x, size) * jnp.log(_num_observations(model))


def ebic(
    objective: Objective,
    x: Array,
    *,
    gamma: Numeric = 1.0,
    size: Numeric | None = None,
    selected: Numeric | None = None,
    items: Numeric | None = None,
) -> Array:
    """The extended Bayesian information criterion, ``-2 log L + k log n + 2 gamma log binom(m,
    s)``.

    Where d is large compared with n, the last term keeps the criterion from selecting noise; the
    criterion is consistent for ``gamma > 1 - 1 / (2 kappa)`` if d is of the order of n^kappa.

    Args:
        objective, x: as of :func:`deviance`; x has d entries.
        gamma: from 0, where it is the BIC, to 1; a scalar.
        size: k, as of :func:`aic`.
        selected: s, how many items are selected, a scalar; None: k.
        items: m, from how many they are selected, a scalar; None: d. Not d where groups are
            selected, or where x has an intercept.

    Returns:
        A scalar.

    Raises:
        ValueError: as :func:`deviance`.

    Cost: a prediction.

    Source: Chen & Chen 2008.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f, x = jaxht.LeastSquares(jnp.eye(2), jnp.array([3.0, 1.0])), jnp.array([3.0, 0.0])
        >>> round(float(jaxht.criteria.ebic(f, x) - jaxht.criteria.bic(f, x)), 4)  # 2 log 2
        1.3863
    """
    model, x = _model_and_point(objective, x)
    s = jnp.asarray(_size(x, size) if selected is None else selected, x.dtype)
    m = _num_items(x, items)
    return bic(model, x, size=size) + 2 * gamma * _log_binomial(m, s)


# From this argument on Stirling's formula with one correction has the precision of float32.
LEAST_STIRLING = 16.0


def _log_binomial(m: Array, s: Array) -> Array:
    """``log(m over s)``, by Stirling's formula for the difference of two large terms, which
    rounding would leave nothing of."""
    z = m + 1
    a = jnp.maximum(z - s, LEAST_STIRLING)
    stirling = s * jnp.log(z) + (a - 0.5) * jnp.log1p(s / a) - s + (1 / z - 1 / a) / 12
    difference = gammaln(z) - gammaln(z - s)
    return jnp.where(z - s >= LEAST_STIRLING, stirling, difference) - gammaln(s + 1)


def gic(
    objective: Objective, x: Array, *, size: Numeric | None = None, items: Numeric | None = None
) -> Array:
    """The generalised information criterion, ``-2 log L + k log(m) log(log n)``; of squared errors
    the SIC of abess.

    Args:
        objective, x: as of :func:`deviance`, with at least 3 samples; x has d entries.
        size: k, as of :func:`aic`.
        items: m, as of :func:`ebic`.

    Returns:
        A scalar.

    Raises:
        ValueError: as :func:`deviance`.

    Cost: a prediction.

    Source: Fan & Tang 2013; Zhu et al. 2020, where it is called SIC.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f, x = jaxht.LeastSquares(jnp.eye(3), jnp.array([3.0, 1.0, 1.0])), jnp.array([3.0, 0.0, 0.0])
        >>> # log 3 log log 3
        >>> round(float(jaxht.criteria.gic(f, x) - jaxht.criteria.deviance(f, x)), 4)
        0.1033
    """
    model, x = _model_and_point(objective, x)
    price = jnp.log(_num_items(x, items)) * jnp.log(jnp.log(_num_observations(model)))
    return deviance(model, x) + _size(x, size) * price


def _model_and_point(objective: Objective, x: Any) -> tuple[LinearModel, Array]:
    """The likelihood, prepared, and x in its dtype."""
    model = likelihood(objective)
    return model, cast_point(x, model)


def _num_observations(model: LinearModel) -> Array:
    """n, as a number of the model's dtype."""
    weights = model.sample_weights
    return model.loss.num_observations(model.y, weights).astype(weights.dtype)


def _num_items(x: Array, items: Numeric | None) -> Array:
    """m, as a number of the dtype of x."""
    return jnp.asarray(x.size if items is None else items, x.dtype)


def _size(x: Array, size: Numeric | None) -> Numeric:
    """k: the number of entries that are not 0, unless it is given."""
    return jnp.sum(x != 0, dtype=x.dtype) if size is None else size


@pytree
class SparsityChoice:
    """The result of :func:`choose_k` for m sparsities.

    Attributes:
        k: int32, the sparsity of the least criterion, the smallest of equal ones.
        criteria: (m,), the criterion of each solution; infinite where it is NaN, and where none was
            computed.
        results: a :class:`jaxht.Result` with an axis of length m.
    """

    k: Numeric = integer()
    criteria: Array
    results: Result


@shard_automatically
def choose_k(
    objective: Objective,
    constraint: Constraint,
    solver: Solver | None = None,
    *,
    ks: Any,
    criterion: Criterion = ebic,
    key: PRNGKey | None = None,
    stop: Stop = Stop(),
    both_ways: bool = False,
    patience: int | None = None,
) -> SparsityChoice:
    """Solve for every sparsity by :func:`jaxht.path`, and choose the one whose solution has the
    least criterion.

    Args:
        objective: as of :func:`deviance`, or what the criterion takes.
        constraint: for example ``Sparse(1)``; its k is replaced by those in ks.
        solver: for example ``HTP()``.
        ks: (m,) integers, strictly increasing; a list or an array. 0 is a choice as well.
        criterion: of this module, with arguments by ``functools.partial``; or any
            ``criterion(objective, x)``, static.
        key: PRNG key, for solvers that draw random numbers.
        stop: limits and tolerances of each run, a :class:`jaxht.Stop`.
        both_ways: bool, static; see :func:`jaxht.path`.
        patience: an int >= 1, static: the path ends once the criterion has not decreased for this
            many sparsities in a row; results beyond are 0, with status RUNNING. It has no effect
            for solvers whose path is a single run (``OMP()``, ``OLS()``). None: the whole path is
            computed.

    Returns:
        A :class:`SparsityChoice`. Of least squares, counts and gamma variables, the criteria beyond
        the first exact fit are infinite: they are those of rounding errors.

    Raises:
        ValueError: where :func:`jaxht.path` or the criterion raises it, and for a patience that is
        not an int >= 1.

    Cost: that of the path, and a prediction for each k. Defined once, a criterion compiles once.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> A, noise = jax.random.normal(jax.random.key(0), (100, 9)), jax.random.normal(jax.random.key(1), (100,))
        >>> f = jaxht.LeastSquares(A, A[:, :3] @ jnp.array([1.0, -2.0, 3.0]) + 0.3 * noise)
        >>> int(jaxht.criteria.choose_k(f, jaxht.Sparse(), jaxht.OMP(), ks=range(8)).k)
        3
    """
    check_kind(objective=objective)
    if not callable(criterion):
        raise ValueError(
            f"criterion must be a function such as jaxht.criteria.bic; got {describe(criterion)}"
        )
    if patience is not None:
        check_count("patience", patience)
    objective = objective.prepare()  # once: it puts a sparse matrix in order
    results = solve_path(
        objective, constraint, solver, ks, None, key, stop, both_ways, criterion, patience
    )
    values = jax.vmap(lambda x: criterion(objective, x))(results.x)
    is_left_out = jnp.isnan(values) | (results.status == Status.RUNNING)
    is_left_out |= _follows_exact_fit(objective, results)
    values = jnp.where(is_left_out, jnp.inf, values)
    return SparsityChoice(least_of(ks, values), values, results)


def _follows_exact_fit(objective: Objective, results: Result) -> Array:
    """Whether there is an exact fit before each entry, bool (m,)."""
    is_exact = objective.exact_fits(results.value)
    return jnp.cumsum(is_exact) > is_exact
