"""What users pass becomes arrays: weights, masks of features, standardised columns, folds."""

import numbers
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.model_selection import check_cv
from sklearn.utils import (
    check_array,
    check_consistent_length,
    check_random_state,
    column_or_1d,
)

import jaxht
from jaxht._checks import host_array
from jaxht._rounding import round_up
from jaxht._typing import ArrayDType
from jaxht.constraints import LatentGroups
from jaxht.designs import Dense, Design, RepeatedColumns

NumpyArray: TypeAlias = NDArray[Any]

#: Formats of scipy.sparse that are taken as they are; others are converted to the first.
FORMATS = ("csr", "csc", "coo")
#: Precisions that are computed in; other dtypes are converted to the first.
DTYPES = (np.float64, np.float32)
#: Below this the squares that are summed may have lost digits to underflow.
LEAST_VARIANCE = np.finfo(float).tiny / np.finfo(float).eps ** 2


def check_weights(sample_weight: Any, X: Any, shape: tuple[int, ...] | None = None) -> NumpyArray:
    """Return a weight of at least 0 for each sample, in the dtype of X, or where a ``shape`` is
    given one for each entry of y; ones for None."""
    if sample_weight is None:
        sample_weight = 1.0
    if isinstance(sample_weight, numbers.Number):
        sample_weight = np.full(X.shape[0], sample_weight)
    weights = check_array(sample_weight, ensure_2d=False, dtype=X.dtype, input_name="sample_weight")
    if weights.ndim == 2 and shape is not None and weights.shape != shape:
        raise ValueError(
            f"sample_weight must have shape {shape[:1]}, or {shape}, that of y; got {weights.shape}"
        )
    if weights.ndim != 1 and weights.shape != shape:
        raise ValueError(f"Sample weights must be 1D array or scalar, got {weights.ndim}D array.")
    check_consistent_length(X, weights)
    if np.any(weights < 0):
        raise ValueError(
            f"Negative values in sample_weight: it must be at least 0; got {np.min(weights)}"
        )
    if not np.any(weights):
        raise ValueError("sample_weight must not be zero for all samples")
    largest = np.max(weights)
    limits = np.finfo(weights.dtype)
    if not float(limits.tiny) ** 0.5 <= largest <= float(limits.max) ** 0.5:
        raise ValueError(
            f"sample_weight must be neither huge nor tiny in {weights.dtype}; the largest is "
            f"{largest:.3g}: divide it by that"
        )
    return weights


def check_offset(offset: Any, pred: Any, outputs: tuple[int, ...]) -> Any:
    """A known part of the predictions, (n, *outputs), in the dtype of an array of n rows; None for
    None."""
    if offset is None:
        return None
    shape = (pred.shape[0], *outputs)
    found = host_array("offset", offset).shape if isinstance(offset, list) else np.shape(offset)
    if found != shape:
        raise ValueError(
            f"offset must have shape {shape}, a number for each prediction; got {found}"
        )
    return check_array(offset, ensure_2d=False, dtype=pred.dtype, input_name="offset")


def add_offset(pred: NumpyArray, offset: Any) -> NumpyArray:
    """Predictions, and what is known of them beside."""
    known = check_offset(offset, pred, pred.shape[1:])
    return pred if known is None else pred + known


def mark_features(which: Any, names: Any, d: int, argument: str = "always") -> NumpyArray:
    """The mask (d,) of features given as a mask, by their numbers, or by their names; of none for
    None."""
    mask = np.zeros(d, bool)
    if which is None:
        return mask
    chosen = np.atleast_1d(host_array(argument, which))
    if chosen.dtype.kind == "O" and not any(isinstance(each, str) for each in chosen):
        chosen = np.asarray(chosen.tolist())
    if chosen.dtype == np.bool_:
        if chosen.shape != (d,):
            raise ValueError(
                f"{argument} must have one entry for each feature, ({d},), as a mask; got {chosen.shape}"
            )
        return chosen
    if chosen.dtype.kind in "OUS":
        if names is None:
            raise ValueError(
                f"{argument} has names of features, but X has none: pass a data frame, or their numbers"
            )
        absent = [name for name in chosen if name not in set(names)]
        if absent:
            raise ValueError(f"{argument} must be names of features; X has no {str(absent[0])!r}")
        return np.isin(names, chosen)
    if chosen.dtype.kind not in "iu" and chosen.size:
        raise ValueError(
            f"{argument} must be a mask, numbers or names of features; got dtype {chosen.dtype}"
        )
    if np.any((chosen < -d) | (chosen >= d)):
        raise ValueError(f"{argument} must be numbers of features below {d}; got {chosen.tolist()}")
    mask[chosen.astype(int)] = True
    return mask


def read_overlap(groups: Any, names: Any, d: int) -> LatentGroups | None:
    """Groups that are lists of features, or masks (m, d); None for labels of the features."""
    listed = list(groups)
    are_lists = [isinstance(group, list | tuple | np.ndarray) for group in listed]
    if not any(are_lists):
        return None
    if not all(are_lists):
        raise ValueError("groups must be labels, one for each feature, or all lists of features")
    masks = [mark_features(group, names, d, "groups") for group in listed]
    return LatentGroups.build(masks, d)


def number_groups(groups: Any, d: int) -> NumpyArray:
    """The group of each feature, numbered from 0, of labels of any kind; each feature its own for
    None."""
    if groups is None:
        return np.arange(d, dtype=np.int32)
    labels = host_array("groups", groups)
    if labels.shape != (d,):
        raise ValueError(
            f"groups must have one label for each feature, ({d},); got shape {labels.shape}"
        )
    listed = list(groups)
    for j, label in enumerate(listed):
        if label is None or label != label:
            raise ValueError(f"groups must have a label for each feature; got {label} at {j}")
    are_text = [isinstance(label, str) for label in listed]
    if any(are_text) and not all(are_text):
        # They have no order, and an array makes 1 and "1" one label.
        numbers_of = {label: number for number, label in enumerate(dict.fromkeys(listed))}
        return np.array([numbers_of[label] for label in listed], np.int32)
    _, numbers_of_groups = np.unique(labels, return_inverse=True)
    return numbers_of_groups.astype(np.int32)


def read_labels(name: str, labels: Any, X: Any) -> NumpyArray:
    """Labels of any kind, one for each sample, (n,)."""
    labels = column_or_1d(host_array(name, labels))
    check_consistent_length(X, labels)
    is_missing = [label is None or label != label for label in labels.tolist()]
    if any(is_missing):
        raise ValueError(
            f"{name} must have a label for each sample; got none at {np.argmax(is_missing)}"
        )
    return labels


class Samples(NamedTuple):
    """The data of a fit.

    Attributes:
        X: (n, d), an array or a sparse matrix.
        target: (n,) or (n, c), as the objective takes it.
        weights: (n,), or (n, c).
        offset: what is added to the predictions, shaped like these; None for zeros.
    """

    X: Any
    target: NumpyArray
    weights: NumpyArray
    offset: NumpyArray | None

    @property
    def has_weight(self) -> NumpyArray:
        """Which samples have a weight, of an output where they have several, (n,)."""
        return np.any(self.weights.reshape(self.X.shape[0], -1) > 0, axis=1)

    def count_distinct(self) -> int:
        """How many different rows have a weight."""
        if not scipy.sparse.issparse(self.X):
            return len(np.unique(self.X[self.has_weight], axis=0))
        rows = scipy.sparse.csr_array(self.X)[self.has_weight]
        rows.sum_duplicates()
        rows.eliminate_zeros()
        columns = np.split(rows.indices, rows.indptr[1:-1])
        entries = np.split(rows.data, rows.indptr[1:-1])
        return len({(j.tobytes(), a.tobytes()) for j, a in zip(columns, entries, strict=True)})

    def extend(self, num_ones: int, num_padding: int) -> "Samples":
        """Add columns of ones, and a sample again with weight 0, which also takes the place of those
        that have no weight: whatever stands there changes no unit."""
        X = self.X
        n = X.shape[0]
        is_present = self.has_weight
        first = np.argmax(is_present)
        rows = np.where(is_present, np.arange(n), first)
        rows = np.append(rows, np.full(num_padding, first))
        ones = np.ones((rows.size, num_ones), X.dtype)
        if scipy.sparse.issparse(X):
            X = scipy.sparse.csr_array(X)[rows]
            X = scipy.sparse.csr_array(scipy.sparse.hstack([X, ones]))
        else:
            X = np.hstack([X[rows], ones])
        weights = np.append(self.weights, np.zeros_like(self.weights[:1]).repeat(num_padding, 0), 0)
        offset = None if self.offset is None else self.offset[rows]
        return Samples(X, self.target[rows], weights, offset)


def padding_for(n: int) -> int:
    """The number of samples to add, so that similar numbers of samples, as those of the folds of a
    cross-validation, share compiled programs."""
    return round_up(n, 8, least=64) - n


class StandardizedColumns(NamedTuple):
    """Standardised columns, or copies of them.

    Attributes:
        design: the columns ``(a_j - mean_j) / scale_j``.
        mean: (d,); 0 where columns are not centred.
        scale: (d,); 1 where columns are not scaled.
    """

    design: Design
    mean: NumpyArray
    scale: NumpyArray

    def copy(self, overlap: LatentGroups, num_ones: int) -> "StandardizedColumns":
        """The columns that overlapping groups ask for, and the last ``num_ones`` as they are."""
        d = overlap.num_features
        ones = np.arange(d, d + num_ones, dtype=np.int32)
        indices = np.append(np.asarray(overlap.features), ones)
        design = RepeatedColumns(self.design, jax.device_put(indices))
        return StandardizedColumns(design, self.mean[indices], self.scale[indices])


def standardize(
    X: Any, weights: NumpyArray, num_ones: int, with_mean: bool, with_std: bool
) -> StandardizedColumns:
    """Standardise all columns but the last ``num_ones``, as :func:`jaxht.standardize` does.

    Of an array this is done by NumPy and in place, and compiles no programs.
    """
    n, size = X.shape
    d = size - num_ones
    if scipy.sparse.issparse(X):
        centred: Any = np.arange(size) < d if with_mean and num_ones else with_mean
        unit = np.ones(size)
        if with_std:
            X, unit = _ordinary_units(X)
        columns = jaxht.standardize(X, with_mean=centred, with_std=with_std, weights=weights)
        mean = np.asarray(columns.mean) * unit
        return StandardizedColumns(columns.design, mean, np.asarray(columns.scale) * unit)
    features = X[:, :d]
    share = weights / np.sum(weights, dtype=float)
    mean = np.einsum("i,ij->j", share, features)
    deviations = features - mean.astype(X.dtype)
    with np.errstate(over="ignore"):
        variance = np.einsum("i,ij,ij->j", share, deviations, deviations)
    # In units of the largest, where squares over- or underflow.
    unit = np.ones(d)
    is_rough = ~((variance > LEAST_VARIANCE) & (variance < np.inf))
    if np.any(is_rough) and with_std:
        rough = deviations[:, is_rough].astype(float)
        present = rough[weights > 0]
        largest = np.max(np.abs(present), axis=0, initial=0)
        largest = np.where(largest > 0, largest, 1)
        rough /= largest
        unit[is_rough] = largest
        variance[is_rough] = np.einsum("i,ij,ij->j", share, rough, rough)
    # Variances within rounding errors of 0 are 0; they were summed in float64.
    noise = n * np.finfo(float).eps ** 2
    is_present = weights[:, None] > 0
    largest = np.max(features, axis=0, initial=-np.inf, where=is_present)
    least = np.min(features, axis=0, initial=np.inf, where=is_present)
    with np.errstate(over="ignore"):
        squares = (mean / unit) ** 2 + variance
    is_constant = (variance <= noise * squares) | (largest == least)
    scale = np.where(is_constant, 1, unit * np.sqrt(variance)) if with_std else np.ones(d)
    if not with_mean:
        mean = np.zeros(d)
    features -= mean
    features /= scale
    if with_mean:  # what is left of them is rounding, which may be selected
        features[:, is_constant] = 0
    mean = np.append(mean, np.zeros(num_ones))
    scale = np.append(scale, np.ones(num_ones))
    return StandardizedColumns(Dense(jax.device_put(X)), mean, scale)


def _ordinary_units(X: Any) -> tuple[Any, NumpyArray]:
    """A sparse matrix, and the units of its columns, 1 but where squares over- or underflow."""
    entries = X.tocoo()
    largest = np.zeros(X.shape[1])
    np.maximum.at(largest, entries.col, np.abs(entries.data))
    numbers = np.finfo(X.dtype)
    is_ordinary = (largest > float(numbers.tiny) ** 0.4) & (largest < float(numbers.max) ** 0.4)
    unit = np.where(is_ordinary | (largest == 0), 1, largest)
    if np.all(unit == 1):
        return X, unit
    columns = scipy.sparse.csc_matrix(X, dtype=float, copy=True)
    columns.data /= np.repeat(unit, np.diff(columns.indptr))
    return columns.astype(X.dtype), unit


def check_units(
    name: str, overflows: NumpyArray, underflows: NumpyArray, dtype: ArrayDType
) -> None:
    """Raise ValueError where numbers (..., d) over- or underflow in the units of X."""
    for is_lost, verb, unit in (
        (overflows, "overflow", "smaller"),
        (underflows, "underflow", "larger"),
    ):
        if np.any(is_lost):
            features = np.flatnonzero(is_lost.reshape(-1, is_lost.shape[-1]).any(axis=0))
            raise ValueError(
                f"{name} of features {features[:5].tolist()} {verb} {dtype}: give these columns of "
                f"X in a {unit} unit"
            )


def multiply(design: Design, x: NumpyArray) -> NumpyArray:
    """``A x``; by NumPy where A is an array."""
    array = design.dense_array
    if array is None:
        return np.asarray(design.matvec(x))
    return np.asarray(array) @ x


def multiply_transposed(design: Design, r: NumpyArray) -> NumpyArray:
    """``r A``, r (m, n); by NumPy where A is an array."""
    array = design.dense_array
    if array is None:
        return np.asarray(design.rmatvec(r.T)).T
    return r @ np.asarray(array)


def split_samples(
    cv: Any, X: Any, y: Any, weights: NumpyArray, classifier: bool
) -> tuple[NumpyArray, NumpyArray]:
    """The weights (folds, n), or (folds, n, c), of training samples and of those held out, of a
    number of folds or a splitter."""
    splits = list(check_cv(cv, y, classifier=classifier).split(X, y))
    train, held_out = np.zeros((2, len(splits), *weights.shape), weights.dtype)
    for fold, (inside, outside) in enumerate(splits):
        np.add.at(train[fold], inside, weights[inside])
        np.add.at(held_out[fold], outside, weights[outside])
    for part, verb in (train, "trains on"), (held_out, "holds out"):
        is_empty = ~np.any(part, axis=tuple(range(1, part.ndim)))
        if np.any(is_empty):
            raise ValueError(
                f"cv must have samples of weight above 0 in each part; fold {np.argmax(is_empty)} "
                f"{verb} none: shuffle, or leave samples of weight 0 out of X"
            )
    return train, held_out


def random_key(random_state: Any, needed: bool) -> Any:
    """A PRNG key of a random state; None for None, unless one is needed."""
    if random_state is None and not needed:
        return None
    seed = check_random_state(random_state).randint(2**31 - 1)
    return jax.random.key(int(seed))
