r"""Knockoffs: copies of the features that are known to be null, by which false discoveries are
counted.

For features x with mean mu and covariance Sigma, the copies have the same first two moments, and
the moments of x and its copies together do not change if any features are exchanged with their
copies:

.. math::
    \mathrm{Cov}(x, \tilde x) = \begin{pmatrix} \Sigma & \Sigma - S \\ \Sigma - S & \Sigma \end{pmatrix}, \qquad
    \tilde x \mid x \sim N\big(x - S \Sigma^{-1} (x - \mu),\ 2 S - S \Sigma^{-1} S\big)

with S diagonal: the larger it is, the less the copies resemble the features. A feature that y does
not depend on, given the others, is then as likely to be ahead of its copy as behind it.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_kind, known_values
from jaxht._dataclass import as_dtype, pytree
from jaxht._loops import fori_loop, while_loop
from jaxht._typing import Array, Numeric, PRNGKey
from jaxht.constraints import Sparse
from jaxht.designs import Dense
from jaxht.diagnostics._models import linear_model, refuse
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.linalg.inner_products import common_unit
from jaxht.linalg.lapack import eigh
from jaxht.linalg.positive_definite import inverse
from jaxht.objectives.objective import Objective
from jaxht.runner import Result, Stop, path
from jaxht.solvers.solver import Solver

__all__ = ["Knockoffs", "gaussian_knockoffs", "knockoff_threshold", "knockoffs"]


@pytree
class Knockoffs:
    """The result of :func:`knockoffs`.

    Attributes:
        selected: bool (d,), the features that were discovered.
        statistics: W, (d,): by how much a feature's coefficients along the path exceed those of its
            copy in magnitude; negative where they are smaller, 0 where neither was selected.
        threshold: features with W_j of at least this value are selected, a scalar; infinite where
            none is.
        copies: (n, d), the knockoffs.
        results: a :class:`jaxht.Result` with an axis of length ``k_max``, on the 2 d columns: each
            feature and its copy in the order in which they were shuffled.
    """

    selected: Array
    statistics: Array
    threshold: Array
    copies: Array
    results: Result


def knockoffs(
    objective: Objective,
    solver: Solver | None = None,
    *,
    key: PRNGKey,
    fdr: Numeric = 0.1,
    k_max: int | None = None,
    mean: Array | None = None,
    covariance: Array | None = None,
    construction: str = "mvr",
    stop: Stop = Stop(),
) -> Knockoffs:
    r"""Select features with control of the false discovery rate, by knockoffs along an l0 path.

    It works under jit and vmap. Features compete with their copies (:func:`gaussian_knockoffs`) in
    ``path(..., ks=1 ... k_max)`` over 2 d columns,

    .. math::
        W_j = \sigma_j \sum_{k=1}^{k_{max}} \big( |x_j^{(k)}| - |\tilde x_j^{(k)}| \big)

    where sigma_j is the standard deviation of feature and copy; features with W_j of at least
    :func:`knockoff_threshold` are selected. In expectation at most the share ``fdr`` of the
    selected features is false, that is, does not influence y given all other features. This holds
    for every model of y and any solver if the features are Gaussian with the given covariance, and
    approximately if the covariance is estimated. Every feature and its copy are exchanged at random
    first, so that ties favour neither.

    At least ``1 / fdr`` features, or none, are discovered.

    Args:
        objective: a linear model of one output on a dense design of random features. A column of
            ones, which has no copy, is no feature: centre instead, or give an ``offset``.
        solver: for example ``OMP()``, whose path is a single run.
        key: PRNG key.
        fdr: q, the share of false discoveries, from 0 to 1, a scalar, traced.
        k_max: the length of the path, an int, static; None: ``min(n // 2, d)``, without samples
            of weight 0. It should hold all features that are true, and some copies.
        mean, covariance, construction: as of :func:`gaussian_knockoffs`.
        stop: limits and tolerances of each run, a :class:`jaxht.Stop`.

    Returns:
        :class:`Knockoffs`.

    Raises:
        ValueError: for an objective that is no such linear model, for a k_max not in [1, d], and
            where :func:`gaussian_knockoffs` and :func:`jaxht.path` raise it.

    Cost: that of the copies, of the path on 2 d columns, and d^2.

    Source: Candès, Fan, Janson & Lv 2018, §3 (statistics by differences of coefficients); Barber &
    Candès 2015 (knockoff+).

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> A, noise = jax.random.normal(jax.random.key(0), (200, 30)), jax.random.normal(jax.random.key(1), (200,))
        >>> f = jaxht.LeastSquares(A, A[:, :8].sum(axis=1) + noise)
        >>> found = jaxht.inference.knockoffs(f, jaxht.OMP(), key=jax.random.key(2), fdr=0.15, covariance=jnp.eye(30))
        >>> found.selected.nonzero()[0].tolist()
        [0, 1, 2, 3, 4, 5, 6, 7]
    """
    check_kind(objective=objective, solver=solver, stop=stop)
    requirement = "a linear model of one output on a dense design"
    model = linear_model(objective, requirement)
    if model.design.dense_array is None or len(model.shape) != 1:
        refuse(objective, requirement)
    _, d = model.design.shape
    weights = model.sample_weights / jnp.mean(model.sample_weights)
    k_max = max(1, min(_count_samples(weights) // 2, d)) if k_max is None else k_max
    if not 1 <= k_max <= d:
        raise ValueError(f"k_max must lie between 1 and the number of features, {d}; got {k_max}")
    A = jnp.asarray(as_dtype(model.design.dense_array, model.penalty.dtype))
    copy_key, exchange_key, path_key = jax.random.split(key, 3)
    copies = _draw_knockoffs(A, copy_key, mean, covariance, construction, weights)
    exchanged = jax.random.bernoulli(exchange_key, shape=(d,))
    left = jnp.where(exchanged, copies, A)
    right = jnp.where(exchanged, A, copies)
    l2 = jnp.tile(model.penalty, 2) if jnp.ndim(model.penalty) else model.l2
    features = jnp.concatenate([left, right], axis=1)
    both = dataclasses.replace(model, A=Dense(features), l2=l2)
    results = path(both, Sparse(), solver, ks=range(1, k_max + 1), key=path_key, stop=stop)
    size_left, size_right = jnp.sum(jnp.abs(results.x), axis=0).reshape(2, d)
    ahead = jnp.where(exchanged, size_right - size_left, size_left - size_right)
    variance = _weighted_moments(jnp.concatenate([A, copies]), jnp.tile(weights, 2))[1]
    statistics = ahead * jnp.sqrt(variance)
    threshold = knockoff_threshold(statistics, fdr)
    return Knockoffs(statistics >= threshold, statistics, threshold, copies, results)


def knockoff_threshold(statistics: Array, fdr: Numeric, *, plus: bool = True) -> Array:
    r"""The threshold of knockoff statistics at which the estimated false discovery rate is at most
    q.

    .. math::
        \tau = \min \Big\{ t \in \{|W_j|\}, t > 0 :
               \frac{1 + \#\{j: W_j \le -t\}}{\max(1, \#\{j: W_j \ge t\})} \le q \Big\}

    Args:
        statistics: W, (d,).
        fdr: q, a scalar, traced.
        plus: bool, static; False leaves out the 1: it then controls a rate with ``1/q`` more in its
            denominator.

    Returns:
        A scalar; infinite where there is none: nothing is selected.

    Cost: d^2.

    Source: Barber & Candès 2015, (1.9), where ``plus`` makes it knockoff+; Candès, Fan, Janson & Lv
    2018, Theorem 3.4.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> W = jnp.array([5.0, 4.0, -1.0, 3.0, 2.0])
        >>> [float(jaxht.inference.knockoff_threshold(W, q)) for q in (0.25, 0.1)]
        [2.0, inf]
    """
    W = jnp.asarray(statistics)
    sizes = jnp.abs(W)
    behind = jnp.sum(W <= -sizes[:, None], axis=1, dtype=W.dtype)
    ahead = jnp.sum(W >= sizes[:, None], axis=1, dtype=W.dtype)
    rate = (behind + int(plus)) / jnp.maximum(ahead, 1)
    # In the dtype of the rates, so that 1/10 <= 0.1.
    is_low = rate <= as_dtype(fdr, rate.dtype)
    return jnp.min(jnp.where(is_low & (sizes > 0), sizes, jnp.inf))


def gaussian_knockoffs(
    A: Array,
    key: PRNGKey,
    *,
    mean: Array | None = None,
    covariance: Array | None = None,
    construction: str = "mvr",
) -> Array:
    r"""Draw knockoffs of Gaussian features, or such that agree with features of any law in their
    first two moments.

    Args:
        A: (n, d), float32 or float64, or integers, traced: samples in rows, independent of each
            other.
        key: PRNG key.
        mean: mu, (d,), traced; None: that of the samples.
        covariance: Sigma, (d, d), positive definite, traced; None: that of the samples, for n > d.
            Better a known one, or one of many more samples without y. Where a traced one is
            singular, the copies are the features.
        construction: static. "mvr" minimises reconstructability, the sum over all features and
            copies of the variance divided by the conditional variance given all others, ``tr (2
            Sigma - S)^-1 + tr S^-1`` in units of variance 1, by coordinate descent;
            "equicorrelated" takes ``min(2 lambda_min, 1)`` for all, in these units: features and
            copies are then linearly dependent, which costs power where features are correlated.

    Returns:
        (n, d).

    Raises:
        ValueError: for shapes that do not fit, an unknown construction, n <= d without a
        covariance, and a covariance that is known to be singular.

    Cost: n d^2, an eigenvalue decomposition of Sigma, and for "mvr" d^3 for each of about ten
    sweeps.

    Source: Candès, Fan, Janson & Lv 2018, §3.4.1 (second order, equicorrelated); Spector & Janson
    2022 (MVR).

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> A = jax.random.normal(jax.random.key(0), (2000, 2))
        >>> copies = jaxht.inference.gaussian_knockoffs(A, jax.random.key(1), covariance=jnp.eye(2))
        >>> bool(jnp.all(jnp.abs(A.T @ copies) < 200))  # independent
        True
    """
    A = jnp.asarray(A)
    A = A.astype(jnp.result_type(A, float))
    weights = jnp.ones(A.shape[:1], A.dtype)
    return _draw_knockoffs(A, key, mean, covariance, construction, weights)


def _draw_knockoffs(
    A: Array,
    key: PRNGKey,
    mean: Array | None,
    covariance: Array | None,
    construction: str,
    weights: Array,
) -> Array:
    """:func:`gaussian_knockoffs`, with weights of the samples, of mean 1, for their moments."""
    if construction not in ("mvr", "equicorrelated"):
        raise ValueError(f'construction must be "mvr" or "equicorrelated"; got {construction!r}')
    if A.ndim != 2:
        raise ValueError(f"A must have shape (n, d); got {A.shape}")
    n, d = A.shape
    if covariance is None and _count_samples(weights) <= d:
        raise ValueError(
            "covariance must be given where there are no more samples than features; got n = "
            f"{_count_samples(weights)}, d = {d}"
        )
    mean = _weighted_moments(A, weights)[0] if mean is None else jnp.asarray(mean, A.dtype)
    centred = jnp.where(weights[:, None] > 0, A - mean, 0)
    unit = jnp.ones(d, A.dtype)
    if covariance is None:
        unit = common_unit(centred, axis=0)[0]
        z = centred / unit
        covariance = matmul((weights[:, None] * z).T, z) / n
    sigma = jnp.asarray(covariance, A.dtype)
    if mean.shape != (d,) or sigma.shape != (d, d):
        raise ValueError(
            f"mean and covariance must have shapes ({d},) and ({d}, {d}); got {mean.shape}, "
            f"{sigma.shape}"
        )
    scale = jnp.sqrt(jnp.diagonal(sigma))
    scale = jnp.where(scale > 0, scale, 1)
    R = sigma / scale / scale[:, None]
    eigenvalues, V = eigh(R)
    floor = d * machine_eps(A)
    is_singular = ~(eigenvalues[0] > floor)
    if known_values(is_singular):
        raise ValueError(
            "covariance must be positive definite: a feature that is constant, or depends on "
            "others, has no knockoff that differs from it; got a smallest eigenvalue of "
            f"{float(eigenvalues[0]):.2g} of the correlations"
        )
    R_inverse = matmul(V / jnp.maximum(eigenvalues, floor), V.T)
    s = jnp.full(d, jnp.clip(2 * eigenvalues[0], 0, 1))
    if construction == "mvr":
        s = minimise_reconstructability(R, s / 2)
    s = jnp.where(is_singular, 0, s)  # each copy is its feature
    slopes = R_inverse * s
    variances, Q = eigh(2 * jnp.diag(s) - slopes * s[:, None])
    root = Q * jnp.sqrt(jnp.maximum(variances, 0))
    noise = jax.random.normal(key, (n, d), A.dtype)
    scale = scale * unit
    z = centred / scale
    return mean + scale * (z - matmul(z, slopes) + matmul(noise, root.T))


def _count_samples(weights: Array) -> int:
    """The number of samples, without those that are known to have no weight."""
    known = known_values(weights)
    return weights.size if known is None else int(np.count_nonzero(known))


def _weighted_moments(A: Array, weights: Array) -> tuple[Array, Array]:
    """The mean and the variance of each column; rows of weight 0 do not count, whatever they hold."""
    weights = weights[:, None] / weights.size
    # Of a constant column the variance is 0, not rounding.
    largest = jnp.max(jnp.where(weights > 0, A, -jnp.inf), axis=0)
    mean = largest + jnp.sum(jnp.where(weights > 0, weights * (A - largest), 0), axis=0)
    squares = jnp.where(weights > 0, weights * (A - mean) ** 2, 0)
    return mean, jnp.sum(squares, axis=0)


#: A coordinate descent ends where no s_j changes by more than this, times the root of the epsilon.
CHANGE_IN_ROOT_EPS = 4.0
MAX_SWEEPS = 100


def minimise_reconstructability(R: Array, s: Array) -> Array:
    """Minimise ``tr (2 R - diag(s))^-1 + sum_j 1 / s_j`` by exact coordinate descent.

    R (d, d) is a positive definite correlation matrix, s (d,) a start with ``0 < diag(s) < 2 R``.
    """
    tolerance = CHANGE_IN_ROOT_EPS * machine_eps(R) ** 0.5

    def update(j, carry):
        # With C = (2 R - diag(s))^-1 and s_j + t: C grows by t c c' / (1 - t c_j), c its column.
        s, C = carry
        column = C[:, j]
        root = jnp.sqrt(jnp.vdot(column, column))
        t = (1 - root * s[j]) / (root + column[j])
        C = C + jnp.outer(column, column) * (t / (1 - t * column[j]))
        return s.at[j].add(t), C

    def sweep(carry):
        count, s, _ = carry
        C = inverse(2 * R - jnp.diag(s))
        new, _ = fori_loop(0, s.size, update, (s, C))
        return count + 1, new, jnp.max(jnp.abs(new - s))

    def goes_on(carry):
        count, _, change = carry
        return (count < MAX_SWEEPS) & (change > tolerance)

    start = (jnp.zeros((), jnp.int32), s, jnp.full((), jnp.inf, s.dtype))
    _, s, _ = while_loop(goes_on, sweep, start)
    return s
