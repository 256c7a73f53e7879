"""The metrics of :mod:`jaxht.metrics`."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpy.typing import NDArray

from jaxht.linalg.inner_products import scaled_norm
from jaxht.linalg.selection import k_largest_mask
from jaxht.planted.division import divide_where


def estimation_error(x: Array, x_true: Array) -> Array:
    """Estimation error `||x - x_true||`, the l2 (for a matrix: Frobenius) norm.

    Args:
        x, x_true: arrays of one shape, (d,) or (m, n).

    Returns:
        Scalar of their real dtype.

    Source: SL18 §5.1.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import metrics
        >>> float(metrics.estimation_error(jnp.array([3.0, 0.0]), jnp.array([0.0, 4.0])))
        5.0
    """
    _check_one_shape(x=x, x_true=x_true)
    if not jnp.issubdtype(jnp.result_type(x, x_true), jnp.inexact):  # whose differences wrap
        x, x_true = x.astype(float), x_true.astype(float)
    return _norm(x - x_true)


def relative_error(x: Array, x_true: Array) -> Array:
    """Relative error `||x - x_true|| / ||x_true||`; for x_true = 0 it is 0 if x = 0, and infinite
    otherwise.

    Args:
        x, x_true: arrays of one shape, (d,) or (m, n).

    Returns:
        Scalar of their real dtype, a ratio (not per cent).

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import metrics
        >>> float(metrics.relative_error(jnp.array([3.0, 0.0]), jnp.array([0.0, 4.0])))
        1.25
    """
    error = estimation_error(x, x_true)
    return jnp.where(error == 0, 0, error / _norm(x_true))


def _norm(x: Array) -> Array:
    """The l2 norm of all entries, of integers in floating point."""
    return scaled_norm(x.astype(jnp.result_type(x, float)))


def success(x: Array, x_true: Array, atol: ArrayLike = 1e-3) -> Array:
    """Recovery of the signal, `[ ||x - x_true|| < atol ]`.

    Args:
        x, x_true: arrays of one shape, (d,) or (m, n).
        atol: in units of x, traced. 1e-3 is for signals with entries of order one.

    Returns:
        Boolean scalar.

    Source: SL18 §5.1.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import metrics
        >>> bool(metrics.success(jnp.array([1.0, 1e-4]), jnp.array([1.0, 0.0])))
        True
    """
    return estimation_error(x, x_true) < atol


def exact_recovery(x: Array, x_true: Array) -> Array:
    """Exact support recovery, `[ supp(x_true) = supp(x, kbar) ]` with `kbar = ||x_true||_0`.

    `supp(x, kbar)` are the kbar entries of x largest in magnitude, ties to the lowest index.
    Entries that are 0 do not count, so that an x with too few nonzeros never succeeds by its zeros.

    Args:
        x: solution with any number of nonzeros, (d,) or (m, n).
        x_true: planted signal of the same shape.

    Returns:
        Boolean scalar.

    Source: YLZ18 §6.1, which leaves open whether zeros count.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import metrics
        >>> bool(metrics.exact_recovery(jnp.array([0.9, 0.1, 0.0]), jnp.array([1.0, 0.0, 0.0])))
        True
    """
    _check_one_shape(x=x, x_true=x_true)
    truth = jnp.ravel(x_true != 0)
    x = jnp.ravel(x)
    num_true = jnp.sum(truth, dtype=jnp.int32)
    found = k_largest_mask(x, num_true) & (x != 0)
    return jnp.all(found == truth) & _is_finite(x)


def relaxed_recovery(x: Array, x_true: Array) -> Array:
    """Relaxed support recovery, `[ supp(x_true) is a subset of supp(x) ]`.

    Args:
        x, x_true: arrays of one shape, (d,) or (m, n).

    Returns:
        Boolean scalar.

    Source: YLZ18 §6.1.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import metrics
        >>> bool(metrics.relaxed_recovery(jnp.array([0.1, 0.9]), jnp.array([1.0, 0.0])))
        True
    """
    _check_one_shape(x=x, x_true=x_true)
    is_covered = (x != 0) | (x_true == 0)
    return jnp.all(is_covered) & _is_finite(x)


def precision(x: Array, x_true: Array) -> Array:
    """Precision of the support, `|S & S_true| / |S|`: the part of the found support that is right.

    Args:
        x, x_true: arrays of one shape, or boolean masks.

    Returns:
        Scalar in [0, 1] of JAX's default float; 0/0 is 1 if both supports are empty, else 0.

    Source: YLZ18 §6.3.1.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import metrics
        >>> float(metrics.precision(jnp.array([1.0, 2.0, 0.0]), jnp.array([1.0, 0.0, 0.0])))
        0.5
    """
    count = _count_support(x, x_true)
    return count.hits / jnp.maximum(count.found, 1)


def recall(x: Array, x_true: Array) -> Array:
    """Recall of the support, `|S & S_true| / |S_true|`: the part of the true support that is found.

    Args:
        x, x_true: arrays of one shape, or boolean masks.

    Returns:
        Scalar in [0, 1] of JAX's default float; 0/0 is 1 if both supports are empty, else 0.

    Source: YLZ18 §6.3.1.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import metrics
        >>> float(metrics.recall(jnp.array([1.0, 2.0, 0.0]), jnp.array([1.0, 0.0, 0.0])))
        1.0
    """
    count = _count_support(x, x_true)
    return count.hits / jnp.maximum(count.true, 1)


def f_score(x: Array, x_true: Array) -> Array:
    """F-score of the support, the harmonic mean of precision and recall: `2 |S & S_true| / (|S| +
    |S_true|)`.

    Args:
        x, x_true: arrays of one shape, or boolean masks. For the edges of a graph, zero the
            diagonals first.

    Returns:
        Scalar in [0, 1] of JAX's default float; 0/0 is 1 if both supports are empty, else 0.

    Source: YLZ18 §6.3.1.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import metrics
        >>> float(metrics.f_score(jnp.array([1.0, 2.0, 3.0, 0.0]), jnp.array([1.0, 0.0, 0.0, 0.0])))
        0.5
    """
    count = _count_support(x, x_true)
    return 2 * count.hits / jnp.maximum(count.found + count.true, 1)


def sensitivity(predicted: Array, actual: Array) -> Array:
    """Sensitivity of a classifier, `TP / (TP + FN)`.

    Args:
        predicted, actual: (n,) boolean, True for the positive class.

    Returns:
        Scalar in [0, 1] of JAX's default float; 1 where no actual class is positive.

    Source: YLZ18 §6.3.2.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import metrics
        >>> float(metrics.sensitivity(jnp.array([True, False, True]), jnp.array([True, True, False])))
        0.5
    """
    _check_classes(predicted=predicted, actual=actual)
    positive = _count(actual)
    return divide_where(positive > 0, _count(predicted & actual), positive, 1)


def specificity(predicted: Array, actual: Array) -> Array:
    """Specificity of a classifier, `TN / (TN + FP)`: the sensitivity for the negative class.

    Args:
        predicted, actual: (n,) boolean, True for the positive class.

    Returns:
        Scalar in [0, 1] of JAX's default float; 1 where every actual class is positive.

    Source: YLZ18 §6.3.2.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import metrics
        >>> float(metrics.specificity(jnp.array([True, False, True]), jnp.array([True, False, False])))
        0.5
    """
    _check_classes(predicted=predicted, actual=actual)
    return sensitivity(~predicted, ~actual)


def matthews_correlation(predicted: Array, actual: Array) -> Array:
    """Matthews' correlation coefficient of two classifications.

        (TP TN - FP FN) / sqrt((TP + FP) (TP + FN) (TN + FP) (TN + FN)),   0 where the root is 0

    Args:
        predicted, actual: (n,) boolean, True for the positive class.

    Returns:
        Scalar in [-1, 1] of JAX's default float.

    Source: YLZ18 §6.3.2.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import metrics
        >>> float(metrics.matthews_correlation(jnp.array([True, False]), jnp.array([False, True])))
        -1.0
    """
    _check_classes(predicted=predicted, actual=actual)
    tp = _count(predicted & actual)
    tn = _count(~predicted & ~actual)
    fp = _count(predicted & ~actual)
    fn = _count(~predicted & actual)
    # One root after the other: no product of counts overflows.
    root = jnp.sqrt(tp + fp) * jnp.sqrt(tp + fn) * jnp.sqrt(tn + fp) * jnp.sqrt(tn + fn)
    return divide_where(root > 0, tp * tn - fp * fn, root, 0)


def wilson_interval(
    successes: ArrayLike | Sequence[int],
    trials: ArrayLike | Sequence[int],
    confidence: float = 0.95,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Wilson's score interval for the success probability of binomial counts.

    The probabilities p with `|s/n - p| <= z sqrt(p (1 - p)/n)`, z the normal quantile of (1 +
    confidence)/2.

    Args:
        successes: integers s, 0 <= s <= n, of any shape; on the host.
        trials: numbers of trials n, broadcast against `successes`; n = 0 gives (0, 1).
        confidence: in (0, 1).

    Returns:
        (lower, upper), float64 arrays of the common shape, within [0, 1]; exactly 0 at s = 0 and 1
        at s = n.

    Raises:
        ValueError: a count outside [0, n], or a confidence outside (0, 1).

    Cost: about a millisecond for each different pair (s, n).

    Source: E. B. Wilson, JASA 22 (1927) 209-212, as `scipy.stats.binomtest(s,
    n).proportion_ci(method="wilson")`.

    Example:
        >>> from jaxht import metrics
        >>> lower, upper = metrics.wilson_interval([0, 8, 10], 10)
        >>> lower.round(2).tolist(), upper.round(2).tolist()
        ([0.0, 0.49, 0.72], [0.28, 0.94, 1.0])
    """
    from scipy.stats import binomtest

    s, n = np.broadcast_arrays(successes, trials)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence}")
    if not np.all((s >= 0) & (s <= n)):
        raise ValueError(f"successes must lie between 0 and trials, got {successes} of {trials}")
    counts = np.stack([s.ravel(), n.ravel()], axis=1).astype(int)
    pairs, inverse = np.unique(counts, axis=0, return_inverse=True)
    ends = np.tile([0.0, 1.0], (len(pairs), 1))
    for pair, (s_i, n_i) in enumerate(pairs):
        if n_i > 0:
            ends[pair] = binomtest(s_i, n_i).proportion_ci(confidence, "wilson")
    lower, upper = ends[inverse.ravel()].T
    return lower.reshape(s.shape), upper.reshape(s.shape)


def _check_one_shape(**arrays: ArrayLike) -> None:
    """Raise ValueError unless two arrays have one shape: others would be broadcast."""
    (name, one), (other_name, other) = arrays.items()
    if jnp.shape(one) != jnp.shape(other):
        raise ValueError(
            f"{name} and {other_name} must have one shape; got {jnp.shape(one)} and "
            f"{jnp.shape(other)}"
        )


def _check_classes(predicted: Array, actual: Array) -> None:
    """Raise ValueError unless two arrays have one shape and are boolean: of labels -1, 0 and 1 bits
    would be compared."""
    _check_one_shape(predicted=predicted, actual=actual)
    for name, values in (("predicted", predicted), ("actual", actual)):
        dtype = jnp.result_type(values)
        if dtype != jnp.bool_:
            raise ValueError(f"{name} must be boolean, True for the positive class; got {dtype}")


class _SupportCount(NamedTuple):
    """How many entries are in both supports, in that of x, and in that of x_true."""

    hits: Array
    found: Array
    true: Array


def _count_support(x: Array, x_true: Array) -> _SupportCount:
    """Count, with no hits where x is not finite, and one of each where both supports are empty."""
    _check_one_shape(x=x, x_true=x_true)
    found = x != 0
    true = x_true != 0
    both_empty = ~jnp.any(found | true)
    return _SupportCount(
        hits=_count(found & true & _is_finite(x)) + both_empty,
        found=_count(found) + both_empty,
        true=_count(true) + both_empty,
    )


def _count(mask: Array) -> Array:
    return jnp.sum(mask, dtype=jnp.int32).astype(float)


def _is_finite(x: Array) -> Array:
    return jnp.all(jnp.isfinite(x))
