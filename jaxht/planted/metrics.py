"""How well a solution matches the planted truth: errors, recovery, support scores, and intervals for success rates.

Except `wilson_interval`, which is NumPy on the host, all are pure functions of (x, x_true), two arrays of one shape:
they return a scalar, run under jit, and go through batches by `jax.vmap`. The support of x is where it is not 0. A
solution with a NaN or infinite entry has failed: its errors are NaN or infinite, its successes False, its scores 0.
Sources: SL18 Shen & Li 2018; YLZ18 Yuan, Li & Zhang 2018.
"""

from statistics import NormalDist

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpy.typing import NDArray

from jaxht.linalg.selection import k_largest_mask


def estimation_error(x: Array, x_true: Array) -> Array:
    """Estimation error `||x - x_true||`, the l2 (for a matrix: Frobenius) norm. Source: SL18 §5.1."""
    return jnp.linalg.norm(jnp.ravel(x - x_true))


def relative_error(x: Array, x_true: Array) -> Array:
    """Relative error `||x - x_true|| / ||x_true||`; for x_true = 0 it is 0 if x = 0, and infinite otherwise."""
    error = estimation_error(x, x_true)
    return jnp.where(error == 0, 0, error / jnp.linalg.norm(jnp.ravel(x_true)))


def success(x: Array, x_true: Array, atol: ArrayLike = 1e-3) -> Array:
    """Recovery of the signal, `[ ||x - x_true|| < atol ]`.

    Args:
        x, x_true: arrays of one shape.
        atol: traced. 1e-3 is for signals with entries of order one.

    Returns:
        Boolean scalar.

    Source: SL18 §5.1.
    """
    return estimation_error(x, x_true) < atol


def exact_recovery(x: Array, x_true: Array) -> Array:
    """Exact support recovery, `[ supp(x_true) = supp(x, kbar) ]` with `kbar = ||x_true||_0`.

    `supp(x, kbar)` are the kbar entries of x largest in magnitude, ties to the lowest index. Entries that are 0 do not
    count (YLZ18 leaves this open), so that an x with too few nonzeros never succeeds by its zeros.

    Args:
        x: solution with any number of nonzeros.
        x_true: planted signal of the same shape.

    Returns:
        Boolean scalar.

    Source: YLZ18 §6.1.
    """
    truth = jnp.ravel(x_true != 0)
    x = jnp.ravel(x)
    largest = k_largest_mask(x, jnp.sum(truth, dtype=jnp.int32)) & (x != 0)
    return jnp.all(largest == truth) & _is_finite(x)


def relaxed_recovery(x: Array, x_true: Array) -> Array:
    """Relaxed support recovery, `[ supp(x_true) is a subset of supp(x) ]`: a boolean scalar. Source: YLZ18 §6.1."""
    return jnp.all((x != 0) | (x_true == 0)) & _is_finite(x)


def precision(x: Array, x_true: Array) -> Array:
    """The part of the found support that is right, `|S & S_true| / |S|`. Arguments and 0/0 as `f_score`."""
    hits, found, _ = _support_counts(x, x_true)
    return hits / jnp.maximum(found, 1)


def recall(x: Array, x_true: Array) -> Array:
    """The part of the true support that is found, `|S & S_true| / |S_true|`. Arguments and 0/0 as `f_score`."""
    hits, _, true = _support_counts(x, x_true)
    return hits / jnp.maximum(true, 1)


def f_score(x: Array, x_true: Array) -> Array:
    """F-score of the support, the harmonic mean of precision and recall: `2 |S & S_true| / (|S| + |S_true|)`.

    Args:
        x, x_true: arrays of one shape, or boolean masks. For the edges of a graph, zero the diagonals first.

    Returns:
        Scalar in [0, 1] of JAX's default float; 0/0 is 1 if both supports are empty, else 0.

    Source: YLZ18 §6.3.1.
    """
    hits, found, true = _support_counts(x, x_true)
    return 2 * hits / jnp.maximum(found + true, 1)


def sensitivity(predicted: Array, actual: Array) -> Array:
    """``TP / (TP + FN)`` of boolean classes, True for positive; 1 where none is. Source: YLZ18 §6.3.2."""
    tp, _, _, fn = _confusion(predicted, actual)
    return jnp.where(tp + fn > 0, tp / jnp.maximum(tp + fn, 1), 1)


def specificity(predicted: Array, actual: Array) -> Array:
    """``TN / (TN + FP)``: the sensitivity for the negative class. Source: YLZ18 §6.3.2."""
    return sensitivity(~predicted, ~actual)


def matthews_correlation(predicted: Array, actual: Array) -> Array:
    """Matthews' correlation of two boolean arrays, in [-1, 1].

    ``(TP TN - FP FN) / sqrt((TP + FP)(TP + FN)(TN + FP)(TN + FN))``, and 0 where the root is 0. Source: YLZ18 §6.3.2.
    """
    tp, tn, fp, fn = _confusion(predicted, actual)
    # One root after the other: no product of counts overflows.
    root = jnp.sqrt(tp + fp) * jnp.sqrt(tp + fn) * jnp.sqrt(tn + fp) * jnp.sqrt(tn + fn)
    return jnp.where(root > 0, (tp * tn - fp * fn) / jnp.where(root > 0, root, 1), 0)


def wilson_interval(
    successes: ArrayLike, trials: ArrayLike, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Wilson's score interval for the success chance of a binomial count.

    The chances p with `|s/n - p| <= z sqrt(p (1 - p)/n)`, z the normal quantile of (1 + confidence)/2:

        ( s/n + z^2/(2n)  -+  z sqrt( (s/n)(1 - s/n)/n + z^2/(4n^2) ) ) / (1 + z^2/n)

    Args:
        successes: counts s, 0 <= s <= n, of any shape; on the host.
        trials: numbers of trials n, broadcast against `successes`; n = 0 gives (0, 1).
        confidence: in (0, 1).

    Returns:
        (lower, upper), float64 arrays of the common shape, within [0, 1]; exactly 0 at s = 0 and 1 at s = n.

    Raises:
        ValueError: a count outside [0, n], or a confidence outside (0, 1).

    Source: E. B. Wilson, JASA 22 (1927) 209-212.
    """
    s, n = np.broadcast_arrays(np.asarray(successes, np.float64), np.asarray(trials, np.float64))
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence}")
    if not np.all((s >= 0) & (s <= n)):
        raise ValueError(f"successes must lie between 0 and trials, got {successes} of {trials}")
    z2 = NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    # Multiplied by n, so that n = 0 is no special case; each end is exact where it must be.
    half_width = np.sqrt(z2 * (s * (n - s) / np.maximum(n, 1) + z2 / 4))
    lower = np.where(s == 0, 0.0, (s + z2 / 2 - half_width) / (n + z2))
    upper = np.where(s == n, 1.0, (s + z2 / 2 + half_width) / (n + z2))
    return lower, upper


def _support_counts(x: Array, x_true: Array) -> tuple[Array, Array, Array]:
    """|S & S_true|, |S|, |S_true| as floats: no hits if x is not finite, and one of each if both supports are empty."""
    found, true = x != 0, x_true != 0
    masks = found & true & _is_finite(x), found, true
    both_empty = ~jnp.any(found | true)
    hits, num_found, num_true = ((jnp.sum(mask, dtype=jnp.int32) + both_empty).astype(float) for mask in masks)
    return hits, num_found, num_true


def _confusion(predicted: Array, actual: Array) -> tuple[Array, Array, Array, Array]:
    """TP, TN, FP, FN as floats."""
    cells = predicted & actual, ~predicted & ~actual, predicted & ~actual, ~predicted & actual
    tp, tn, fp, fn = (jnp.sum(cell, dtype=jnp.int32).astype(float) for cell in cells)
    return tp, tn, fp, fn


def _is_finite(x: Array) -> Array:
    return jnp.all(jnp.isfinite(x))
