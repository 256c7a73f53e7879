"""The base of the estimators of linear models: their arguments, intercepts, scales, and the choice
of k."""

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

import jaxht
from jaxht.constraints import check_selection
from jaxht.designs import Standardized
from jaxht.exact import Certificate
from jaxht.inference import Stability
from jaxht.linalg.precision import default_precision
from jaxht.sklearn._choice import (
    CRITERIA,
    choose,
    count_of,
    path_solver,
    range_of_k,
    warn_of_failure,
)
from jaxht.sklearn._data import (
    DTYPES,
    FORMATS,
    add_offset,
    centre,
    check_offset,
    check_weights,
    extend,
    mark_features,
    number_groups,
    random_key,
    split_samples,
)


@dataclass(frozen=True)
class Posed:
    """A model on data, for every k.

    Attributes:
        columns: the columns of X in the units that are computed in; a column of ones last where
            there is one.
        target: what is predicted, less its mean where the objective has no column of ones.
        mean: that mean; 0 where there is none.
        weights: (n,).
        offset: what is added to the predictions, shaped like these; None.
        objective: the jaxht objective.
        items: integers shaped like the coefficients of X: the item of each, of which k are
            selected.
        kept: bool, of that shape: the coefficients that are always in the support.
        least, most: of how many items.
    """

    columns: Standardized
    target: Any
    mean: Any
    weights: Any
    offset: Any
    objective: Any
    items: NDArray[Any]
    kept: NDArray[np.bool_]
    least: int
    most: int


T = TypeVar("T")

ARGUMENTS = """
    k: how many features have coefficients that are not 0: an int; a fraction in (0, 1] of the features; or how it is
        chosen: "cv", by the mean loss on held-out samples, or one of the information criteria "aic", "bic", "ebic",
        "gic" and "sic" (gic by another name). An intercept is not counted.
    k_max: the largest k of the path from which one is chosen, an int; None: min(d, n / log n, 50), n the sum of the
        weights.
    l2: ridge parameter >= 0 in the objective "the mean of the losses + l2/2 ||x||^2", where x are the coefficients in
        the units of the fit, those of the standardised columns; the intercept has no ridge.
    groups: (d,) labels of any kind: features of one label are selected together, and k counts groups. None: each
        feature is a group of its own.
    always: features that are always selected, and count towards k: a mask (d,), their numbers, or their names in a data
        frame.
    nonnegative: whether coefficients must not be negative.
    bounds: (lower, upper) of the coefficients of X, each a number, (d,), or None; 0 lies between them.
    fit_intercept: whether there is an intercept.
    standardize: whether features are scaled to variance 1 for the fit; ``coef_`` is for X as it is. Without it the
        units of features matter to most solvers, and to the ridge.
    solver: a solver of jaxht, such as ``jaxht.HTP()``; None: that of :func:`jaxht.default_solver`, which searches for
        the best features. A path is then computed by forward selection (:class:`jaxht.OLS` or :class:`jaxht.OMP`),
        refined in both directions, and the search begins at its solution.
    cv: the folds of k="cv": an int, a splitter of scikit-learn, or an iterable of pairs of indices; None: 5.
    certify: whether :func:`jaxht.certify` bounds the distance from the optimum. This needs l2 > 0 and one output; an
        intercept is possible for squared errors only.
    random_state: an int or a RandomState, for solvers that draw random numbers; None: searches always draw the same
        numbers.
"""

ATTRIBUTES = """
    support_: bool (d,), the selected features.
    k_: the k that was asked for or chosen.
    path_: where k was chosen, a Bunch of m sparsities: ``k`` (m,); ``criteria`` (m,), of which k_ has the least;
        ``losses`` (m,), the objective; ``coefficients`` and ``intercepts``; ``fold_losses`` (folds, m) of "cv". Else
        None.
    certificate_: with certify a :class:`jaxht.Certificate` in floats; else None.
    n_iter_: steps of the solver.
    n_features_in_: d.
    feature_names_in_: (d,), where X is a data frame.
"""

COST = """
Cost: a run of the solver. Where k is chosen, a path over all k before it, and of "cv" one for each fold. The first fit
to data of a shape and dtype compiles.

"""


def complete_docstring(cls: type[T]) -> type[T]:
    """Put the arguments and attributes that estimators share, and the cost, into the docstring of
    one of them."""
    taken = inspect.signature(cls).parameters
    arguments = [entry for entry in _entries(ARGUMENTS) if entry.split(":")[0].strip() in taken]
    attributes = [
        entry for entry in _entries(ATTRIBUTES) if "certify" in taken or "certify" not in entry
    ]
    doc = inspect.cleandoc(cls.__doc__ or "")
    doc = doc.replace("    {arguments}", "\n".join(arguments)).replace(
        "    {attributes}", "\n".join(attributes)
    )
    cls.__doc__ = doc.replace("\nExample:", f"{COST}Example:")
    return cls


def _entries(section: str) -> list[str]:
    """The entries of a section of a docstring, each with the lines that are further in."""
    return re.split(r"\n(?= {4}\w)", section.strip("\n"))


class L0Model(BaseEstimator):
    """Base of the estimators of linear models; a subclass has at least :meth:`_objective` and
    ``predict``.

    It may also have :meth:`_encode`, for targets that are no numbers, and class attributes: where
    the loss is "squared" the intercept is the mean of the targets less that of the predictions, as
    squared errors have it. Other intercepts are coefficients of a column of ones, which is always
    selected, has no ridge, and is not counted.
    """

    _multi_output = False
    _default_loss = ""  # of estimators without an argument ``loss``
    _y_numeric = True
    _criteria: tuple[str, ...] = CRITERIA
    _called = "n_features"  # the number of items, in messages

    def __init__(
        self,
        k: Any = "ebic",
        *,
        k_max: int | None = None,
        l2: float = 0.0,
        groups: Any = None,
        always: Any = None,
        nonnegative: bool = False,
        bounds: Any = None,
        fit_intercept: bool = True,
        standardize: bool = True,
        solver: Any = None,
        cv: Any = None,
        certify: bool = False,
        random_state: Any = None,
    ) -> None:
        self.k = k
        self.k_max = k_max
        self.l2 = l2
        self.groups = groups
        self.always = always
        self.nonnegative = nonnegative
        self.bounds = bounds
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.solver = solver
        self.cv = cv
        self.certify = certify
        self.random_state = random_state

    # ---- what subclasses say ----

    @property
    def _centres(self) -> bool:
        """Whether the intercept is what centred targets leave."""
        return getattr(self, "loss", self._default_loss) == "squared"

    @property
    def _freedom(self) -> float:
        """Of the coefficients of an item, the share that is free."""
        return 1.0

    def _objective(self, design: Any, target: Any, l2: Any, **data: Any) -> Any:
        """The jaxht objective, a mean over samples; ``data`` are their weights and offset."""
        raise NotImplementedError

    def _validate(self, X: Any, y: Any) -> tuple[Any, Any]:
        """X and y as arrays."""
        options = {"multi_output": True} if self._multi_output else {"y_numeric": self._y_numeric}
        return validate_data(self, X, y, accept_sparse=FORMATS, dtype=DTYPES, **options)

    def _encode(self, y: Any, weights: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The targets of the objective, and the weights of the samples."""
        return np.asarray(y, weights.dtype), weights

    def _outputs(self, target: NDArray[Any]) -> tuple[int, ...]:
        """How many outputs there are; empty for one."""
        return ()

    def _number_items(self, groups: NDArray[Any], num_outputs: int | None) -> NDArray[Any]:
        """The item of each coefficient: its group, of all outputs together."""
        return groups if num_outputs is None else np.repeat(groups[:, None], num_outputs, axis=1)

    def _limits(self, items: NDArray[Any], kept: NDArray[np.bool_]) -> tuple[int, int]:
        """The least and the largest k."""
        return len(np.unique(items[kept])), int(np.max(items)) + 1

    def _constraint(self, posed: Posed, k: int) -> Any:
        """C for k items."""
        shape = (self._num_ones, *posed.items.shape[1:])
        items = np.concatenate([posed.items, np.full(shape, posed.most, posed.items.dtype)])
        kept: Any = np.concatenate([posed.kept, np.ones(shape, bool)])
        kept = kept if np.any(kept) else None
        bounds = self._bounds(posed)
        if posed.most == posed.items.size:
            return jaxht.Sparse(k + int(np.prod(shape)), keep=kept, bounds=bounds)
        if bounds is not None:
            raise ValueError(
                "nonnegative and bounds need k to count coefficients, not groups of them or rows"
            )
        return jaxht.Groups(
            k + self._num_ones, items, keep=kept, num_groups=posed.most + self._num_ones
        )

    def _criterion(self, posed: Posed) -> Callable[[Any, Any], Any]:
        """The function of :mod:`jaxht.criteria` that k names; the intercept is not counted."""

        def criterion(objective: Any, x: Any) -> Any:
            nonzero = x[: len(posed.items)] != 0
            selected = jnp.zeros(posed.most, bool).at[posed.items].max(nonzero)
            size = self._freedom * jnp.sum(nonzero, dtype=x.dtype)
            options = {"ebic": {"selected": jnp.sum(selected, dtype=x.dtype), "items": posed.most}}
            options["gic"] = {"items": posed.most}
            name = "gic" if self.k == "sic" else self.k
            return getattr(jaxht.criteria, name)(objective, x, size=size, **options.get(name, {}))

        return criterion

    # ---- fit ----

    def fit(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> Self:
        """Fit the model, and choose k where it names a criterion.

        Args:
            X: (n, d), an array, a data frame, or a scipy.sparse matrix of any format, which is not
                made dense. float32 is computed in float32, all else in float64, whatever JAX's own
                default is.
            y: (n,) targets, or (n, c) of several outputs.
            sample_weight: (n,) weights of at least 0, which count how often a sample occurs; None
                for ones.
            offset: a known part of the linear predictors, to which it is added with a coefficient
                of 1, such as the logarithm of an exposure: (n,), or (n, c) of several outputs.
                ``predict`` takes that of its samples.

        Returns:
            The estimator.

        Raises:
            ValueError: for arguments and data that cannot be right.
        """
        X, target, weights, offset = self._read(X, y, sample_weight, offset)
        folds = (
            split_samples(self.cv, X, y, weights, is_classifier(self)) if _is_cv(self.k) else None
        )
        samples = extend(X, target, weights, offset, self._num_ones)
        with default_precision(X.dtype == np.float64):
            self._solve(self._pose(*samples), folds)
        return self

    def stability_selection(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        offset: Any = None,
        *,
        num_pairs: int = 50,
        random_state: Any = None,
    ) -> Stability:
        """:func:`jaxht.inference.stability_selection` of this model, with k an int or a fraction.

        Args:
            X: (n, d), as of :meth:`fit`.
            y: as of :meth:`fit`.
            sample_weight: (n,); None for ones.
            offset: as of :meth:`fit`; None for zeros.
            num_pairs: in how many ways the samples are divided into halves, an int.
            random_state: an int or a RandomState, for the halves; None: a new one in each call.

        Returns:
            A :class:`jaxht.diagnostics.inference.Stability` in NumPy's arrays, with the frequencies
            of features, or of groups, without the intercept. An estimator without a solver uses the
            solver of its paths.

        Raises:
            ValueError: where k names a criterion, and where :meth:`fit` raises it.
        """
        samples = extend(*self._read(X, y, sample_weight, offset), self._num_ones, share=False)
        with default_precision(samples[0].dtype == np.float64):
            posed = self._pose(*samples)
            k = count_of(self.k, posed.least, posed.most, self._called, ())
            constraint = self._constraint(posed, cast(int, k))
            check_selection(constraint)
            solver = (
                path_solver(posed.objective, constraint) if self.solver is None else self.solver
            )
            key = random_key(random_state, needed=True)
            found = jaxht.inference.stability_selection(
                posed.objective, constraint, solver, key=key, num_pairs=num_pairs
            )
            frequencies = np.asarray(found.frequencies)[: posed.most]
            return Stability(
                frequencies, np.sum(frequencies), jax.tree.map(np.asarray, found.results)
            )

    def _read(
        self, X: Any, y: Any, sample_weight: Any, offset: Any
    ) -> tuple[Any, NDArray[Any], NDArray[Any], Any]:
        """X, the targets of the objective, the weights, and the offset, which targets of squared
        errors leave out."""
        X, y = self._validate(X, y)
        target, weights = self._encode(y, check_weights(sample_weight, X))
        offset = check_offset(offset, X, self._outputs(target))
        if self._centres and offset is not None:
            target, offset = target - offset, None
        return X, target, weights, offset

    def _pose(self, X: Any, target: Any, weights: Any, offset: Any) -> Posed:
        """The model on X, which has a column of ones last where it needs one."""
        d = X.shape[1] - self._num_ones
        with_mean = (
            (np.arange(X.shape[1]) < d if self._num_ones else True) if self.fit_intercept else False
        )
        columns = jaxht.standardize(
            X, with_mean=with_mean, with_std=self.standardize, weights=weights
        )
        mean: Any = np.zeros((), X.dtype)
        if self._centres and self.fit_intercept:
            mean = np.average(target, axis=0, weights=weights).astype(X.dtype)
            target = target - mean
        if not self.l2 >= 0:
            raise ValueError(f"l2 must be at least 0; got {self.l2}")
        l2: Any = float(self.l2)
        if self._num_ones and l2:
            l2 = np.full(
                self._objective(columns.design, target, 0.0, weights=weights).shape, l2, X.dtype
            )
            l2[d:] = 0
        objective = self._objective(columns.design, target, l2, weights=weights, offset=offset)
        shape = objective.shape
        num_outputs = shape[1] if len(shape) == 2 else None
        items = self._number_items(number_groups(self.groups, d), num_outputs)
        kept = mark_features(self.always, getattr(self, "feature_names_in_", None), d)
        kept = kept if num_outputs is None else np.repeat(kept[:, None], num_outputs, axis=1)
        return Posed(
            columns,
            target,
            mean,
            weights,
            offset,
            objective,
            items,
            kept,
            *self._limits(items, kept),
        )

    def _solve(self, posed: Posed, folds: Any) -> None:
        """Find k and the solution, and set the attributes."""
        if self.certify and self._num_ones:
            raise ValueError(
                "certify needs fit_intercept=False, but for squared errors: an intercept has no ridge"
            )
        key = random_key(self.random_state, self.solver is not None and self.solver.needs_key)
        k = count_of(self.k, posed.least, posed.most, self._called, self._criteria)
        self.path_: Any = None  # a Bunch where k was chosen
        if k is not None:
            result = jaxht.solve(posed.objective, self._constraint(posed, k), self.solver, key=key)
        else:
            ks = range_of_k(self.k_max, posed.least, posed.most, float(np.sum(posed.weights)))
            first = self._constraint(posed, ks[0])
            shift = int(first.k) - ks[0]  # what is kept for the intercept
            chosen = choose(
                *(posed.objective, first, self.solver, [k + shift for k in ks]),
                criterion=None if folds is not None else self._criterion(posed),
                split=functools.partial(self._split, posed),
                folds=None if folds is None else tuple(_pad_columns(folds, len(posed.weights))),
                key=key,
            )
            k, result = ks[chosen.place], chosen.result
            coefficients, intercepts = self._in_units_of_X(posed, chosen.path.x)
            self.path_ = chosen.report(ks, coefficients=coefficients, intercepts=intercepts)
        warn_of_failure(self, result)
        self.k_, self.n_iter_ = k, int(result.num_steps)
        self._set_coefficients(posed, result.x)
        self._set_support(posed, np.asarray(result.x)[: len(posed.items)] != 0)
        self.certificate_ = None
        if self.certify:
            proof = jaxht.certify(posed.objective, self._constraint(posed, k), result.x)
            self.certificate_ = Certificate(*(float(bound) for bound in proof))

    def _set_coefficients(self, posed: Posed, x: Any) -> None:
        """Say what the solution is."""
        self.coef_, self.intercept_ = self._in_units_of_X(posed, x)

    def _set_support(self, posed: Posed, nonzero: NDArray[np.bool_]) -> None:
        """Say which features were selected."""
        selected = nonzero | posed.kept
        self.support_ = selected if selected.ndim == 1 else np.any(selected, axis=1)

    def _split(self, posed: Posed, fold: Any) -> tuple[Any, Any]:
        """The objectives of the training samples of a fold, and of those held out."""
        train, held_out = fold
        design, target, l2 = posed.columns.design, posed.target, posed.objective.l2
        if self._centres and self.fit_intercept:
            design, target = centre(design, target, train)
        fitted = self._objective(
            design, target, 0.0 if l2 is None else l2, weights=train, offset=posed.offset
        )
        return fitted, self._objective(design, target, 0.0, weights=held_out, offset=posed.offset)

    # ---- the pieces ----

    @property
    def _num_ones(self) -> int:
        """How many columns of ones the model has."""
        return int(self.fit_intercept and not self._centres)

    def _bounds(self, posed: Posed) -> Any:
        """Those of the coefficients in the units that are computed in; None for none."""
        if self.bounds is None and not self.nonnegative:
            return None
        if self.bounds is not None and not (
            isinstance(self.bounds, tuple | list) and len(self.bounds) == 2
        ):
            raise ValueError(f"bounds must be a pair (lower, upper); got {self.bounds!r}")
        lower, upper = (None, None) if self.bounds is None else self.bounds
        lower = -np.inf if lower is None else lower
        lower, upper = (
            np.maximum(lower, 0) if self.nonnegative else lower,
            np.inf if upper is None else upper,
        )
        scale, shape = np.asarray(posed.columns.scale), posed.items.shape
        both = np.stack(
            [np.broadcast_to(np.asarray(bound, scale.dtype), shape) for bound in (lower, upper)]
        )
        both = both * scale[: shape[0]].reshape(-1, *[1] * (len(shape) - 1))
        free = np.full((self._num_ones, *shape[1:]), np.inf, scale.dtype)
        return np.concatenate([both[0], -free]), np.concatenate([both[1], free])

    def _in_units_of_X(self, posed: Posed, x: Any) -> tuple[Any, Any]:
        """Coefficients (..., d) or (..., c, d), and intercepts (...) or (..., c)."""
        x = jnp.swapaxes(x, -1, -2) if posed.items.ndim == 2 else x
        coefficients = np.asarray(posed.columns.coefficients(x))
        intercepts = np.asarray(posed.columns.intercept(x, posed.mean))
        if self._num_ones:
            coefficients, intercepts = coefficients[..., :-1], intercepts + coefficients[..., -1]
        return coefficients, intercepts[()]

    # ---- predictions ----

    def _multiply(self, X: Any) -> NDArray[Any]:
        """``X coef``, (n,) or (n, c)."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse=FORMATS, dtype=DTYPES, reset=False)
        return safe_sparse_dot(X, self.coef_.T, dense_output=True)

    def _predict_linear(self, X: Any, offset: Any = None) -> NDArray[Any]:
        """``X coef + intercept + offset``, (n,) or (n, c)."""
        return add_offset(self._multiply(X) + self.intercept_, offset)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags


def _is_cv(k: Any) -> bool:
    return isinstance(k, str) and k == "cv"


def _pad_columns(folds: Any, size: int) -> Any:
    """The weights of folds, with 0 for the samples that were added."""
    return (np.pad(weights, ((0, 0), (0, size - weights.shape[1]))) for weights in folds)
