"""From what scikit-learn's users pass to arrays of the library: weights, masks of features, rows,
columns, folds."""

import numbers
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.model_selection import check_cv
from sklearn.utils import check_array, check_consistent_length, check_random_state

from jaxht.designs import Centred
from jaxht.linalg.precision import matmul

#: Formats of scipy.sparse that are taken as they are; others are converted to the first.
FORMATS = ("csr", "csc", "coo")
#: Precisions that are computed in; other dtypes are converted to the first.
DTYPES = (np.float64, np.float32)


def check_weights(sample_weight: Any, X: Any) -> NDArray[Any]:
    """One weight of at least 0 for each sample, in the dtype of X; ones for None."""
    if sample_weight is None or isinstance(sample_weight, numbers.Number):
        sample_weight = np.full(X.shape[0], 1.0 if sample_weight is None else sample_weight)
    weights = check_array(sample_weight, ensure_2d=False, dtype=X.dtype, input_name="sample_weight")
    if weights.ndim != 1:
        raise ValueError(f"Sample weights must be 1D array or scalar, got {weights.ndim}D array.")
    check_consistent_length(X, weights)
    if np.any(weights < 0):
        raise ValueError(
            f"Negative values in sample_weight: it must be at least 0; got {np.min(weights)}"
        )
    if not np.any(weights):
        raise ValueError("sample_weight must not be zero for all samples")
    return weights


def check_offset(offset: Any, pred: Any, outputs: tuple[int, ...]) -> Any:
    """A known part of the predictions, (n, *outputs), in the dtype of an array of n rows; None for
    None."""
    if offset is None:
        return None
    shape = (pred.shape[0], *outputs)
    if np.shape(offset) != shape:
        raise ValueError(
            f"offset must have shape {shape}, a number for each prediction; got {np.shape(offset)}"
        )
    return check_array(offset, ensure_2d=False, dtype=pred.dtype, input_name="offset")


def add_offset(pred: NDArray[Any], offset: Any) -> NDArray[Any]:
    """Predictions, and what is known of them beside."""
    known = check_offset(offset, pred, pred.shape[1:])
    return pred if known is None else pred + known


def mark_features(which: Any, names: Any, d: int) -> NDArray[np.bool_]:
    """The mask (d,) of features given as a mask, by their numbers, or by their names; of none for
    None."""
    mask = np.zeros(d, bool)
    if which is None:
        return mask
    chosen = np.atleast_1d(np.asarray(which))
    if chosen.dtype == np.bool_:
        if chosen.shape != (d,):
            raise ValueError(
                f"always must have one entry for each feature, ({d},), as a mask; got {chosen.shape}"
            )
        return chosen
    if chosen.dtype.kind in "OUS":
        if names is None:
            raise ValueError(
                "always has names of features, but X has none: pass a data frame, or their numbers"
            )
        absent = [name for name in chosen if name not in set(names)]
        if absent:
            raise ValueError(f"always must be names of features; X has no {str(absent[0])!r}")
        return np.isin(names, chosen)
    if chosen.dtype.kind not in "iu" and chosen.size:
        raise ValueError(
            f"always must be a mask, numbers or names of features; got dtype {chosen.dtype}"
        )
    if np.any((chosen < -d) | (chosen >= d)):
        raise ValueError(f"always must be numbers of features below {d}; got {chosen.tolist()}")
    mask[chosen.astype(int)] = True
    return mask


def number_groups(groups: Any, d: int) -> NDArray[np.int32]:
    """The group of each feature, numbered from 0, of labels of any kind; each feature its own for
    None."""
    if groups is None:
        return np.arange(d, dtype=np.int32)
    labels = np.asarray(groups)
    if labels.shape != (d,):
        raise ValueError(
            f"groups must have one label for each feature, ({d},); got shape {labels.shape}"
        )
    return np.unique(labels, return_inverse=True)[1].astype(np.int32)


def extend(
    X: Any,
    target: NDArray[Any],
    weights: NDArray[Any],
    offset: Any,
    num_ones: int,
    share: bool = True,
) -> tuple[Any, NDArray[Any], NDArray[Any], Any]:
    """X with columns of ones, and where programs are shared its first row again, of weight 0, up to
    one of few sizes.

    Numbers of samples that differ little, as those of the folds of a cross-validation, then share
    compiled programs.
    """
    n, d = X.shape
    again = -n % max(64, 2 ** (n.bit_length() - 4)) if share else 0
    if scipy.sparse.issparse(X):
        blocks = [
            scipy.sparse.csr_array(X),
            *num_ones * [scipy.sparse.csr_array(np.ones((n, 1), X.dtype))],
        ]
        wide = scipy.sparse.csr_array(scipy.sparse.hstack(blocks))
        extended: Any = scipy.sparse.vstack([wide, wide[np.zeros(again, int)]]) if again else wide
    else:
        extended = np.ones((n + again, d + num_ones), X.dtype)
        extended[:n, :d], extended[n:, :d] = X, X[0]

    def repeat_first(rows: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([rows, np.repeat(rows[:1], again, axis=0)])

    weights = np.concatenate([weights, np.zeros(again, weights.dtype)])
    return extended, repeat_first(target), weights, None if offset is None else repeat_first(offset)


def centre(design: Any, target: Any, weights: Any) -> tuple[Centred, Any]:
    """A design and targets without their weighted means: an intercept of least squares, which is
    not a coefficient."""
    share = weights / jnp.sum(weights)
    ones = jnp.ones(design.shape[0], design.dtype)
    return Centred(design, design.rmatvec(share), ones), target - matmul(share, target)


def split_samples(
    cv: Any, X: Any, y: Any, weights: NDArray[Any], classifier: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The weights (folds, n) of training samples and of those held out, of a number of folds or a
    splitter."""
    splits = list(check_cv(cv, y, classifier=classifier).split(X, y))
    train, held_out = np.zeros((2, len(splits), len(weights)), weights.dtype)
    for fold, (inside, outside) in enumerate(splits):
        np.add.at(train[fold], inside, weights[inside])
        np.add.at(held_out[fold], outside, weights[outside])
    return train, held_out


def random_key(random_state: Any, needed: bool) -> Any:
    """A PRNG key of a random state; None for None, unless one is needed."""
    if random_state is None and not needed:
        return None
    return jax.random.key(int(check_random_state(random_state).randint(2**31 - 1)))
