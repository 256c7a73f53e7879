"""The bases of the estimators of linear models: intercepts, units, and what is selected."""

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

import jaxht
from jaxht._checks import host_array
from jaxht._programs import bounded_jit
from jaxht.constraints import LatentGroups
from jaxht.designs import Centred
from jaxht.exact import Certificate
from jaxht.inference import Stability
from jaxht.linalg.full_precision import default_precision
from jaxht.objectives.linear_model import is_exact_fit
from jaxht.runner._padding import pad_objective
from jaxht.runner._path import pad_ks
from jaxht.sklearn._data import (
    DTYPES,
    FORMATS,
    NumpyArray,
    Samples,
    StandardizedColumns,
    add_offset,
    check_offset,
    check_units,
    check_weights,
    mark_features,
    multiply_transposed,
    number_groups,
    padding_for,
    random_key,
    read_labels,
    read_overlap,
    split_samples,
    standardize,
)
from jaxht.sklearn._estimator import (
    FitProblem,
    Items,
    SparseEstimator,
    keep_attributes,
    path_solver,
)


@dataclass(frozen=True, kw_only=True)
class LinearFit(FitProblem):
    """The problem of a linear model.

    Attributes:
        columns: the columns of X as the fit takes them; a column of ones last where there is one.
        target_mean: what the targets were centred by; 0 unless errors are squared.
        num_ones: how many of the columns are of ones.
        overlap: where groups overlap, of which features the columns are copies; else None.
        samples: as they were given.
    """

    columns: StandardizedColumns
    target_mean: Any
    num_ones: int
    overlap: LatentGroups | None
    samples: Samples

    def combine(self, v: NumpyArray, axis: int) -> NumpyArray:
        """The sums of v over the copies of each feature, along an axis."""
        if self.overlap is None:
            return v
        v = np.moveaxis(v, axis, 0)
        total = np.zeros((self.overlap.num_features, *v.shape[1:]), v.dtype)
        np.add.at(total, self.overlap.features, v)
        return np.moveaxis(total, 0, axis)


class Fold(NamedTuple):
    """What depends on the fold, with the folds along the first axes.

    Attributes:
        train: (m, n) weights of the training samples, or (m, n, c).
        held_out: (m, n) weights of the samples that are held out, or (m, n, c).
        mean: (m, d), the means of the columns over the training samples; None without centring.
        target: (m, n), the targets less their mean over the training samples; None likewise.
    """

    train: NumpyArray
    held_out: NumpyArray
    mean: NumpyArray | None
    target: NumpyArray | None


# What each criterion of jaxht.criteria is told beside the solutions.
CRITERION_ARGUMENTS = {
    "aic": ("size",),
    "bic": ("size",),
    "ebic": ("size", "items", "selected"),
    "gic": ("size", "items"),
}
# Entries of a design up to which each fold has a centred copy, so that its program serves other
# sizes too.
MAX_COPIED_ENTRIES = 2**18


class LinearEstimator(SparseEstimator):
    """Base of the estimators of linear models.

    A subclass has :meth:`_objective`, :meth:`_find_items`, :meth:`_constraint`,
    :meth:`_count_parameters` and ``predict``, and where targets are no numbers :meth:`_encode`. The
    intercept of squared errors is the mean of the targets less that of the predictions, unless the
    entries of y have weights of their own. Other intercepts are coefficients of a column of ones,
    which is always selected, has no ridge, and is not counted.
    """

    l2: float = 0.0
    fit_intercept: bool = True

    _is_numeric = True  # the target

    @property
    def _has_squared_errors(self) -> bool:
        return False

    @property
    def _num_ones(self) -> int:
        """The number of columns of ones."""
        return int(self.fit_intercept and not self._has_squared_errors)

    def _objective(self, design: Any, target: Any, **options: Any) -> Any:
        """The jaxht objective; the options are l2, weights and offset."""
        raise NotImplementedError

    def _find_items(self, shape: tuple[int, ...]) -> Items:
        """What k counts of coefficients of this shape, (d,) or (d, c)."""
        raise NotImplementedError

    def _find_overlap(self, d: int) -> LatentGroups | None:
        """The groups of features that overlap; None for none."""
        return None

    def _validate(self, X: Any, y: Any) -> tuple[Any, Any]:
        """X and y as arrays."""
        kind = {"accept_sparse": FORMATS, "dtype": DTYPES, "y_numeric": self._is_numeric}
        return validate_data(self, X, y, **kind)

    def _encode(self, y: Any, weights: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
        """The targets of the objective, and the weights of the samples."""
        with np.errstate(over="ignore"):
            target = np.asarray(y, weights.dtype)
        if np.any(np.isinf(target)):
            raise ValueError(
                f"y overflows {target.dtype}, the dtype of X: give it in a larger unit"
            )
        return target, weights

    def _outputs(self, target: NumpyArray) -> tuple[int, ...]:
        """The number of outputs; empty for one."""
        return ()

    # ---- fit ----

    def fit(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> Self:
        """Fit the model, and choose k where it names a criterion.

        Args:
            X: (n, d), an array, a data frame, or a scipy.sparse matrix of any format, which is not
                made dense. float32 is computed in float32, all else in float64, whatever JAX's own
                default is.
            y: (n,) targets, or (n, c) of several outputs.
            sample_weight: (n,) weights of at least 0, which count how often a sample occurs; of
                squared errors of several outputs also (n, c), one for each target; None for ones.
            offset: a known part of the linear predictors, to which it is added with a coefficient
                of 1, such as the logarithm of an exposure: (n,), or (n, c) of several outputs.
                ``predict`` takes that of its samples.

        Returns:
            The estimator.

        Raises:
            ValueError: for arguments and data that cannot be right.
        """
        return self._fit(self._read(X, y, sample_weight, offset), y)

    def _fit(self, samples: Samples, y: Any) -> Self:
        """Fit the model to samples; y is of the splitter."""
        splits = None
        if self._is_cross_validated():
            splits = split_samples(self.cv, samples.X, y, samples.weights, is_classifier(self))
        with default_precision(samples.X.dtype == np.float64):
            problem = self._pose(samples, padding_for(samples.X.shape[0]), splits)
            self._set_solution(problem, self._solve(problem))
        return self

    def _read(self, X: Any, y: Any, sample_weight: Any, offset: Any) -> Samples:
        """The samples; for squared errors the offset is subtracted from the targets."""
        X, y = self._validate(X, y)
        target, weights = self._encode(y, self._check_weights(sample_weight, X, y))
        offset = check_offset(offset, X, self._outputs(target))
        if self._has_squared_errors and offset is not None:
            target = target - offset
            offset = None
        return Samples(X, target, weights, offset)

    def _check_weights(self, sample_weight: Any, X: Any, y: Any) -> NumpyArray:
        """The weights of the samples, in the dtype of X."""
        return check_weights(sample_weight, X)

    def _pose(
        self, samples: Samples, num_padding: int, splits: Any, *, resamples: bool = False
    ) -> LinearFit:
        """The problem of these samples, and of the folds whose weights are in ``splits``. Where it
        ``resamples`` or weighs entries, the intercept is the coefficient of a column of ones."""
        if not self.l2 >= 0:
            raise ValueError(f"l2 must be at least 0; got {self.l2}")
        num_ones = self._num_ones
        weighs_entries = samples.weights.ndim == 2
        if (weighs_entries or resamples) and self.fit_intercept and self._has_squared_errors:
            num_ones = 1  # means differ from output to output, or from sample to sample
        d = samples.X.shape[1]
        outputs = self._outputs(samples.target)
        items = self._find_items((d, *outputs))
        X, target, weights, offset = samples.extend(num_ones, num_padding)
        per_sample = np.mean(weights, axis=1) if weighs_entries else weights
        columns = standardize(X, per_sample, num_ones, self.fit_intercept, self.standardize)
        overlap = self._find_overlap(d)
        if overlap is not None:
            columns = columns.copy(overlap, num_ones)
        target_mean: Any = 0.0
        if self._has_squared_errors and self.fit_intercept:
            # NumPy adds rows up in the dtype of the array, one after the other.
            target_mean = np.average(target.astype(float), axis=0, weights=weights)
            target = (target - target_mean).astype(X.dtype)
        l2: Any = float(self.l2)
        if num_ones and l2:
            l2 = np.full((len(columns.scale), *outputs), l2, X.dtype)
            l2[-num_ones:] = 0
        objective = self._objective(columns.design, target, l2=l2, weights=weights, offset=offset)
        return LinearFit(
            objective=objective,
            items=items,
            num_samples=float(np.sum(per_sample)),
            folds=None if splits is None else self._find_folds(columns, target, num_ones, *splits),
            columns=columns,
            target_mean=target_mean,
            num_ones=num_ones,
            overlap=overlap,
            samples=samples,
        )

    def _find_folds(
        self,
        columns: StandardizedColumns,
        target: NumpyArray,
        num_ones: int,
        train: NumpyArray,
        held_out: NumpyArray,
    ) -> Fold:
        num_padding = len(target) - train.shape[1]
        padding = [(0, 0), (0, num_padding), (0, 0)][: train.ndim]
        train = np.pad(train, padding)
        held_out = np.pad(held_out, padding)
        if num_ones or not (self._has_squared_errors and self.fit_intercept):
            return Fold(
                train=train,
                held_out=held_out,
                mean=None,
                target=None,
            )
        share = train / np.sum(train, axis=1, keepdims=True)
        target_means = np.expand_dims(share @ target, axis=1)
        means = multiply_transposed(columns.design, share)
        return Fold(
            train=train,
            held_out=held_out,
            mean=means,
            target=target - target_means,
        )

    def _split(self, problem: LinearFit, fold: Fold) -> tuple[Any, Any]:
        whole = problem.objective
        if fold.mean is not None:
            whole = replace(whole, A=centre(whole.design, fold.mean), y=fold.target)
        train = replace(whole, weights=fold.train)
        return train, replace(whole, weights=fold.held_out, l2=0.0)

    def _count_parameters(self, problem: LinearFit, path: Any) -> dict[str, NumpyArray]:
        """The arguments of the criteria of :mod:`jaxht.criteria`, each (m,)."""
        raise NotImplementedError

    def _compute_criteria(self, problem: LinearFit, path: Any) -> NumpyArray:
        """The criterion of :mod:`jaxht.criteria` that k names; the intercept is not counted."""
        name = "gic" if self.k == "sic" else self.k
        counts = self._count_parameters(problem, path)
        arguments = {argument: counts[argument] for argument in CRITERION_ARGUMENTS[name]}
        return information_criteria(problem.objective, path.x, arguments, name)

    def _measure(self, problem: LinearFit, path: Any) -> tuple[NumpyArray, NumpyArray, float]:
        objective = problem.objective
        deviances = np.full(len(path.x), np.nan)
        if objective.loss.family is not None:
            deviances = information_criteria(objective, path.x, {}, "deviance")
        n = objective.loss.num_observations(objective.y, objective.sample_weights)
        return deviances, self._count_parameters(problem, path)["size"], float(n)

    def _set_solution(self, problem: LinearFit, x: NumpyArray) -> None:
        """Set the attributes that say what the solution is."""
        self._set_coefficients(problem, x)

    def _count_comparable(self, problem: LinearFit, path: Any) -> int:
        """The sparsities up to an exact fit; without it where as many coefficients fit any
        target."""
        if not self._has_squared_errors:
            return len(path.value)
        objective = problem.objective
        weights = np.asarray(objective.weights, float).reshape(objective.num_samples, -1)
        squares = np.asarray(objective.y, float).reshape(objective.num_samples, -1) ** 2
        total = np.sum(weights * squares) / np.sum(np.mean(weights, axis=1)) / 2
        is_exact = is_exact_fit(path.value, total)
        if not np.any(is_exact):
            return len(path.value)
        first = int(np.argmax(is_exact))
        if first == 0:
            return 1
        num_samples = problem.samples.count_distinct()
        enough = num_samples - int(self.fit_intercept)
        if self._count_features(problem, path.x[first]) < enough:
            return first + 1
        warnings.warn(
            f"{type(self).__name__}: k is chosen so that fewer than {enough} features are selected: "
            f"as many fit any targets of {num_samples} different samples, but for rounding errors",
            stacklevel=4,
        )
        return first

    def _count_features(self, problem: LinearFit, x: NumpyArray) -> int:
        """The features that have a coefficient, without the intercept."""
        num_columns = len(problem.columns.scale)
        is_used = np.any(x.reshape(num_columns, -1), axis=1)[: num_columns - problem.num_ones]
        return int(np.count_nonzero(problem.combine(is_used, 0)))

    def _set_coefficients(self, problem: LinearFit, x: NumpyArray) -> None:
        self.coef_, self.intercept_ = self._in_units_of_X(problem, x)

    def _describe_path(self, problem: LinearFit, x: NumpyArray) -> dict[str, Any]:
        coefficients, intercepts = self._in_units_of_X(problem, x)
        return {"coefficients": coefficients, "intercepts": intercepts}

    def _in_units_of_X(self, problem: LinearFit, x: NumpyArray) -> tuple[Any, Any]:
        """Coefficients (..., d) or (..., c, d), and intercepts (...) or (..., c)."""
        dtype = x.dtype
        columns = problem.columns
        if len(problem.objective.shape) == 2:
            x = np.swapaxes(x, -1, -2)
        with np.errstate(over="ignore"):
            coefficients = x / columns.scale
            overflows = np.isinf(coefficients.astype(dtype)) & np.isfinite(x)
        # Of coefficients that are not rounding.
        counts = np.abs(x) > np.finfo(dtype).eps * np.max(np.abs(x), initial=0)
        underflows = (np.abs(coefficients) < np.finfo(dtype).tiny) & counts
        check_units("coefficients", overflows, underflows, dtype)
        intercepts = problem.target_mean - np.sum(columns.mean * coefficients, axis=-1)
        if problem.num_ones:
            intercepts = intercepts + coefficients[..., -1]
            coefficients = coefficients[..., :-1]
        coefficients = problem.combine(coefficients, -1)
        return coefficients.astype(dtype), np.asarray(intercepts, dtype)[()]

    # ---- predictions ----

    def _multiply(self, X: Any) -> NumpyArray:
        """``X coef``, (n,) or (n, c)."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse=FORMATS, dtype=DTYPES, reset=False)
        return safe_sparse_dot(X, self.coef_.T, dense_output=True)

    def _predict_linear(self, X: Any, offset: Any = None) -> NumpyArray:
        """``X coef + intercept + offset``, (n,) or (n, c)."""
        return add_offset(self._multiply(X) + self.intercept_, offset)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags


class L0Model(LinearEstimator):
    """Base of the estimators that select features."""

    groups: Any = None
    per_group: int | None = None
    always: Any = None
    nonnegative: bool = False
    bounds: Any = None
    certify: bool = False

    def stability_selection(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        offset: Any = None,
        *,
        num_pairs: int = 50,
        sample_groups: Any = None,
        random_state: Any = None,
    ) -> Stability:
        """:func:`jaxht.inference.stability_selection` of this model, with k an int or a fraction.

        Args:
            X: (n, d), as of :meth:`fit`.
            y: as of :meth:`fit`.
            sample_weight: (n,); None for ones.
            offset: as of :meth:`fit`; None for zeros.
            num_pairs: in how many ways the samples are divided into halves, an int.
            sample_groups: (n,) labels of any kind: samples of one label are in the same half; None:
                each sample is a group of its own.
            random_state: an int or a RandomState, for the halves; None: a new one in each call.

        Returns:
            A :class:`jaxht.diagnostics.inference.Stability` in NumPy's arrays, with the frequencies
            of features, or of groups, without the intercept. An estimator without a solver uses the
            solver of its paths.

        Raises:
            ValueError: where k names a criterion, and where :meth:`fit` raises it.
        """
        with keep_attributes(self):
            samples = self._read(X, y, sample_weight, offset)
            return self._select_stably(samples, num_pairs, sample_groups, random_state)

    def _select_stably(
        self, samples: Samples, num_pairs: int, sample_groups: Any, random_state: Any
    ) -> Stability:
        """:meth:`stability_selection` of samples."""
        groups = None
        if sample_groups is not None:
            labels = read_labels("sample_groups", sample_groups, samples.X)
            groups = np.unique(labels, return_inverse=True)[1].astype(np.int32)
        with default_precision(samples.X.dtype == np.float64):
            problem = self._pose(samples, 0, None, resamples=True)
            k: Any = self._read_k(problem.items, criteria=())
            constraint = self._constraint(problem, k)
            solver = self.solver
            if solver is None:
                solver = path_solver(problem.objective, constraint)
            key = random_key(random_state, needed=True)
            found = jaxht.inference.stability_selection(
                problem.objective, constraint, solver, key=key, num_pairs=num_pairs, groups=groups
            )
            frequencies = np.asarray(found.frequencies)[: problem.items.number]
            results = jax.tree.map(np.asarray, found.results)
            return Stability(frequencies, np.sum(frequencies), results)

    def _number_items(self, groups: NumpyArray, outputs: tuple[int, ...]) -> NumpyArray:
        """The item of each coefficient: its group, of all outputs together."""
        return repeat_for_outputs(groups, outputs)

    def _find_items(self, shape: tuple[int, ...]) -> Items:
        if self.certify and self._num_ones:
            raise ValueError(
                "certify needs fit_intercept=False, but for squared errors: an intercept has no "
                "ridge"
            )
        d, *outputs = shape
        names = getattr(self, "feature_names_in_", None)
        is_always = mark_features(self.always, names, d)
        overlap = self._find_overlap(d)
        if overlap is None:
            groups = number_groups(self.groups, d)
        else:
            self._check_overlap()
            groups = np.asarray(overlap.groups)
            is_always = is_always[overlap.features]
        if self.per_group is not None:
            self._check_per_group(groups, outputs)
        labels = groups if self.per_group is None else np.arange(d, dtype=np.int32)
        items = self._number_items(labels, tuple(outputs))
        always = repeat_for_outputs(is_always, outputs)
        least = len(np.unique(items[always]))
        number = int(np.max(items)) + 1
        most = number
        if self.per_group is not None:
            most = int(np.sum(np.minimum(np.bincount(groups), self.per_group)))
        return Items(least, most, number, items, always)

    def _find_overlap(self, d: int) -> LatentGroups | None:
        if self.groups is None:
            return None
        return read_overlap(self.groups, getattr(self, "feature_names_in_", None), d)

    def _check_overlap(self) -> None:
        if self.per_group is not None:
            raise ValueError("per_group must be None for groups that are lists of features")
        if self.bounds is not None:
            raise ValueError(
                "bounds must be None for groups that are lists of features, of whose parts the "
                "coefficients are sums; nonnegative is possible"
            )

    def _check_per_group(self, groups: NumpyArray, outputs: list[int]) -> None:
        is_count = isinstance(self.per_group, int | np.integer) and self.per_group >= 1
        if not is_count or isinstance(self.per_group, bool):
            raise ValueError(f"per_group must be None or an int >= 1; got {self.per_group!r}")
        if self.groups is None:
            raise ValueError("groups must be given with per_group: the label of each feature")
        if outputs:
            raise ValueError(
                f"per_group must be None for several outputs; got {self.per_group} for {outputs[0]}"
            )

    def _constraint(self, problem: LinearFit, k: int) -> Any:
        items = problem.items
        ones = (problem.num_ones, *problem.objective.shape[1:])
        keep: Any = np.concatenate([items.always, np.ones(ones, bool)])
        if not np.any(keep):
            keep = None
        bounds = self._find_bounds(problem)
        if self.per_group is not None:
            groups = number_groups(self.groups, items.number)
            own = np.arange(items.number, items.number + problem.num_ones)
            return jaxht.SparsePerGroup(
                k + problem.num_ones,
                keep=keep,
                bounds=bounds,
                groups=np.append(groups, own).astype(np.int32),
                per_group=self.per_group,
            )
        if np.array_equal(items.of_coefficients.ravel(), np.arange(items.always.size)):
            return jaxht.Sparse(k + int(np.prod(ones)), keep=keep, bounds=bounds)
        numbers = np.concatenate([items.of_coefficients, np.full(ones, items.number)])
        return jaxht.Groups(
            k + problem.num_ones,
            numbers.astype(np.int32),
            keep=keep,
            num_groups=items.number + problem.num_ones,
            bounds=bounds,
        )

    def _find_bounds(self, problem: LinearFit) -> Any:
        """Bounds of standardised coefficients, and of the intercept none; None for none."""
        given = self.bounds
        if given is None:
            if not self.nonnegative:
                return None
            given = (0, None)
        if not (isinstance(given, tuple | list) and len(given) == 2):
            raise ValueError(f"bounds must be a pair (lower, upper); got {given!r}")
        d = len(problem.items.always)
        scale = repeat_for_outputs(problem.columns.scale, problem.objective.shape[1:])
        lower = np.full(scale.shape, -np.inf)
        upper = np.full(scale.shape, np.inf)
        for bound, limit in ((lower, given[0]), (upper, given[1])):
            if limit is None:
                continue
            known = host_array("bounds", limit)
            if len(scale.shape) == 1 and known.shape == (1, d):
                known = known[0]  # shaped like coef_ of two classes
            # One for each coefficient, shaped like coef_, or for each feature.
            shape = bound[:d].T.shape
            if known.shape not in ((), (d,), shape):
                expected = " or ".join(dict.fromkeys([str((d,)), str(shape)]))
                raise ValueError(
                    f"bounds must be numbers, or arrays of shape {expected}; got shape "
                    f"{known.shape}"
                )
            bound[:d] = np.broadcast_to(known, shape).T
        if self.nonnegative:
            lower[:d] = np.maximum(lower[:d], 0)
        return lower * scale, upper * scale

    @property
    def _free_share(self) -> float:
        """The share of the coefficients of an item that is free."""
        return 1.0

    def _count_parameters(self, problem: LinearFit, path: Any) -> dict[str, NumpyArray]:
        items = problem.items
        m = len(path.x)
        is_selected = path.x[:, : len(items.always)] != 0
        is_free = problem.combine(is_selected, 1) > 0
        size = np.sum(is_free.reshape(m, -1), axis=1)
        selected = [np.unique(items.of_coefficients[row]).size for row in is_selected]
        return {
            "size": self._free_share * size,
            "items": np.full(m, items.number),
            "selected": np.array(selected),
        }

    def _set_solution(self, problem: LinearFit, x: NumpyArray) -> None:
        super()._set_solution(problem, x)
        always = problem.items.always
        is_selected = always | (x[: len(always)] != 0)
        is_selected = is_selected.reshape(len(always), -1).any(axis=1)
        self.support_ = problem.combine(is_selected, 0) > 0
        self.certificate_ = None
        if self.certify:
            constraint = self._constraint(problem, self.k_)
            found = jaxht.certify(problem.objective, constraint, x)
            self.certificate_ = Certificate(*(float(bound) for bound in found))


def centre(design: Any, mean: Any) -> Any:
    """The columns less their means: a copy of small ones that are known."""
    array = design.dense_array
    is_traced = isinstance(mean, jax.core.Tracer)
    if array is not None and array.size <= MAX_COPIED_ENTRIES and not is_traced:
        return np.asarray(array) - np.asarray(mean)
    return Centred(design, mean, np.ones(design.shape[0], design.dtype))


def repeat_for_outputs(rows: NumpyArray, outputs: Sequence[int]) -> NumpyArray:
    """Numbers (d,) for each of the outputs, (d, *outputs)."""
    shape = (*outputs, len(rows))
    return np.moveaxis(np.broadcast_to(rows, shape), -1, 0)


def information_criteria(objective: Any, x: Any, arguments: dict[str, Any], name: str) -> Any:
    """The criterion of this name of :mod:`jaxht.criteria`, (m,), of points (m, ...) and arguments
    (m,)."""
    m = len(x)
    objective = objective.prepare()
    padded = pad_objective(objective)
    if padded is not None:  # one program for many sizes
        objective = padded
        num_rows = len(pad_ks(range(m))) - m
        num_added = objective.shape[0] - x.shape[1]
        x = np.pad(x, [(0, num_rows), (0, num_added)] + [(0, 0)] * (x.ndim - 2))
        arguments = {key: np.pad(each, (0, num_rows), "edge") for key, each in arguments.items()}
    return np.asarray(_information_criteria(objective, x, arguments, name))[:m]


@functools.partial(bounded_jit, static_argnames="name")
def _information_criteria(objective: Any, x: Any, arguments: dict[str, Any], name: str) -> Any:
    criterion = getattr(jaxht.criteria, name)
    return jax.vmap(lambda x, arguments: criterion(objective, x, **arguments))(x, arguments)
