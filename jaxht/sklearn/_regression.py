"""Estimators of real targets, of positive ones and of counts: one output, several, and several of
low rank."""

from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.metrics import d2_tweedie_score, r2_score
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import validate_data

import jaxht
from jaxht.sklearn._data import DTYPES, FORMATS, NumpyArray, check_weights
from jaxht.sklearn._estimator import Items
from jaxht.sklearn._linear import (
    L0Model,
    LinearEstimator,
    LinearFit,
)


class RegressorModel(RegressorMixin, LinearEstimator):
    """Base of the regressors whose means are linear predictors."""

    def predict(self, X: Any, offset: Any = None) -> NumpyArray:
        """Predict targets.

        Args:
            X: (n, d), as of ``fit``.
            offset: as of ``fit``, for these samples; None for zeros.

        Returns:
            (n,), or (n, c) of several targets, ``X coef_.T + intercept_ + offset``.
        """
        return self._predict_linear(X, offset)

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """The share of the variance that is explained, R^2; of several targets the mean of theirs.

        Args:
            X: (n, d), as of ``fit``.
            y: (n,) or (n, c), as of ``fit``.
            sample_weight: (n,); None for ones.
            offset: as of ``fit``, for these samples; None for zeros.

        Returns:
            At most 1; 0 for a model that predicts the mean of y.
        """
        return r2_score(y, self.predict(X, offset), sample_weight=sample_weight)


class L0Regressor(RegressorModel, L0Model):
    """Linear regression on the best k features.

    .. math::
        \\min_{x, b} \\frac{1}{\\sum_i s_i} \\sum_i s_i\\, l(a_i \\cdot x + b;\\, y_i) + \\frac{l_2}{2} \\|x\\|^2,
        \\qquad \\|x\\|_0 \\le k

    Args:
        {arguments}
        loss: l: "squared", half the square of the error; or "huber", that up to delta and linear
            beyond, which has no information criterion: give k or "cv".
        delta: of "huber", in units of y.

    Attributes:
        coef_: (d,), coefficients of X.
        intercept_: a number.
        {attributes}

    {cost}

    Example:
        >>> import numpy as np
        >>> from jaxht.sklearn import L0Regressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 8))
        >>> model = L0Regressor().fit(X, 3 * X[:, 2] - X[:, 5] + 1 + 0.1 * rng.normal(size=60))
        >>> model.k_, np.flatnonzero(model.support_).tolist(), round(float(model.intercept_), 1)
        (2, [2, 5], 1.0)
    """

    loss: str = "squared"
    delta: float = 1.0

    @property
    def _has_squared_errors(self) -> bool:
        return self.loss == "squared"

    def _objective(self, design: Any, target: Any, **options: Any) -> Any:
        if self.loss == "huber":
            return jaxht.Huber(design, target, delta=self.delta, **options)
        if self.loss != "squared":
            raise ValueError(f"loss must be 'squared' or 'huber'; got {self.loss!r}")
        return jaxht.LeastSquares(design, target, **options)


class LogLinkModel(RegressorModel, L0Model):
    """Base of the regressors whose means are exponentials of linear predictors, of targets that are
    not negative."""

    _power: ClassVar[float]  # of the mean, to which the variance is proportional

    def predict(self, X: Any, offset: Any = None) -> NumpyArray:
        """Predict means.

        Args:
            X: (n, d), as of ``fit``.
            offset: as of ``fit``, for these samples; None for zeros.

        Returns:
            (n,), ``exp(X coef_ + intercept_ + offset)``.
        """
        return np.exp(self._predict_linear(X, offset))

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """The share of the deviance that is explained, D^2, as of scikit-learn's regressors of this
        distribution.

        Args:
            X: (n, d), as of ``fit``.
            y: (n,), as of ``fit``.
            sample_weight: (n,); None for ones.
            offset: as of ``fit``, for these samples; None for zeros.

        Returns:
            At most 1; 0 for a model that predicts the mean of y.
        """
        return d2_tweedie_score(
            y, self.predict(X, offset), sample_weight=sample_weight, power=self._power
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


class L0PoissonRegressor(LogLinkModel):
    """Poisson regression of counts, ``log E[y] = a.x + b``, on the best k features.

    Args:
        {arguments}

    Attributes:
        coef_: (d,), coefficients of X.
        intercept_: a number.
        {attributes}

    {cost}

    Example:
        >>> import numpy as np
        >>> from jaxht.sklearn import L0PoissonRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(100, 6))
        >>> model = L0PoissonRegressor(k=1).fit(X, rng.poisson(np.exp(0.8 * X[:, 4] + 1)))
        >>> np.flatnonzero(model.support_).tolist(), bool(model.predict(X).min() > 0)
        ([4], True)
    """

    _power = 1

    def _objective(self, design: Any, target: Any, **options: Any) -> Any:
        return jaxht.Poisson(design, target, **options)


class L0GammaRegressor(LogLinkModel):
    """Gamma regression of positive targets, ``log E[y] = a.x + b``, on the best k features.

    The standard deviation of a target is proportional to its mean: costs, durations, sizes.
    Criteria are at the shape of the gamma distribution that fits best.

    Args:
        {arguments}

    Attributes:
        coef_: (d,), coefficients of X.
        intercept_: a number.
        {attributes}

    {cost}

    Example:
        >>> import numpy as np
        >>> from jaxht.sklearn import L0GammaRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(100, 6))
        >>> model = L0GammaRegressor(k=1).fit(X, rng.gamma(2.0, np.exp(0.8 * X[:, 4] + 1)))
        >>> np.flatnonzero(model.support_).tolist(), bool(model.predict(X).min() > 0)
        ([4], True)
    """

    _power = 2

    def _objective(self, design: Any, target: Any, **options: Any) -> Any:
        return jaxht.Gamma(design, target, **options)


class MultiOutputModel(MultiOutputMixin, RegressorModel):
    """Base of least squares of several targets, of which some may be missing: NaN, or entries of
    weight 0."""

    @property
    def _has_squared_errors(self) -> bool:
        return True

    def _validate(self, X: Any, y: Any) -> tuple[Any, Any]:
        options: dict[str, Any] = {"dtype": DTYPES}
        X_options = options | {"accept_sparse": FORMATS}
        y_options = options | {"ensure_2d": False, "ensure_all_finite": "allow-nan"}
        X, y = validate_data(self, X, y, validate_separately=(X_options, y_options))
        check_consistent_length(X, y)
        if y.ndim == 1:
            raise ValueError(
                f"y must have shape (n, c), one target a column; got {y.shape}: of one use L0Regressor"
            )
        return X, y

    def _check_weights(self, sample_weight: Any, X: Any, y: NumpyArray) -> NumpyArray:
        return check_weights(sample_weight, X, y.shape)

    def _encode(self, y: NumpyArray, weights: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
        """The targets and their weights: 0 where they are missing, for all samples or each
        entry."""
        is_missing = np.isnan(y)
        if np.any(is_missing):
            weights = np.where(is_missing, 0, weights.reshape(len(y), -1))
            y = np.where(is_missing, 0, y)
        is_empty = ~np.any(weights.reshape(len(y), -1), axis=0)
        if np.any(is_empty):
            raise ValueError(
                "y must have an entry that is not missing, of weight above 0, in each column; "
                f"column {np.argmax(is_empty)} has none"
            )
        return super()._encode(y, weights)

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """The share of the variance that is explained, R^2, the mean of those of the targets.

        Args:
            X: (n, d), as of ``fit``.
            y: (n, c), as of ``fit``; NaN where a target is missing.
            sample_weight: (n,) or (n, c); None for ones.
            offset: as of ``fit``, for these samples; None for zeros.

        Returns:
            At most 1; 0 for a model that predicts the means of y. Targets that are missing in all
            samples are left out.
        """
        pred = self.predict(X, offset)
        y = np.asarray(y, pred.dtype)
        if y.shape != pred.shape:
            raise ValueError(f"y must have shape {pred.shape}; got {y.shape}")
        weights = check_weights(sample_weight, pred, pred.shape).reshape(len(y), -1)
        weights = np.where(np.isnan(y), 0, weights)
        scores = []
        for target, fitted, weight in zip(y.T, pred.T, weights.T, strict=True):
            is_there = weight > 0
            if not np.any(is_there):
                continue
            score = r2_score(target[is_there], fitted[is_there], sample_weight=weight[is_there])
            scores.append(score)
        if not scores:
            raise ValueError("y must have a target that is not missing")
        return float(np.mean(scores))

    def _objective(self, design: Any, target: Any, **options: Any) -> Any:
        return jaxht.MultiResponse(design, target, **options)

    def _outputs(self, target: NumpyArray) -> tuple[int, ...]:
        return target.shape[1:]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = False
        return tags


class L0MultiTaskRegressor(MultiOutputModel, L0Model):
    """Linear regression of several targets, on the best k features for all of them, or the best k
    coefficients.

    Missing targets are NaN in y, or have weight 0 in a ``sample_weight`` (n, c), and are left out.

    Args:
        {arguments}
        sparsity: what k counts: "rows", features that are selected for all targets; or "entries",
            single coefficients.

    Attributes:
        coef_: (c, d), coefficients of X.
        intercept_: (c,).
        {attributes}

    {cost}

    Example:
        >>> import numpy as np
        >>> from jaxht.sklearn import L0MultiTaskRegressor
        >>> X = np.random.default_rng(0).normal(size=(60, 6))
        >>> model = L0MultiTaskRegressor(k=2).fit(X, np.stack([X[:, 1], X[:, 1] + X[:, 3]], axis=1))
        >>> np.flatnonzero(model.support_).tolist(), model.coef_.shape
        ([1, 3], (2, 6))
    """

    sparsity: str = "rows"

    def _number_items(self, groups: NumpyArray, outputs: tuple[int, ...]) -> NumpyArray:
        if self.sparsity == "rows":
            return super()._number_items(groups, outputs)
        if self.sparsity != "entries":
            raise ValueError(f"sparsity must be 'rows' or 'entries'; got {self.sparsity!r}")
        if self.groups is not None:
            raise ValueError("groups must be None with sparsity='entries': they are of features")
        shape = (len(groups), *outputs)
        return np.arange(np.prod(shape)).reshape(shape)


class ReducedRankRegressor(MultiOutputModel):
    """Linear regression of several targets with coefficients of rank k (Izenman 1975), of all
    features.

    Missing targets are NaN in y, or have weight 0 in a ``sample_weight`` (n, c), and are left out;
    this needs ``fit_intercept=False``.

    Args:
        k: rank, an int from 1 to min(d, c); a fraction in (0, 1] of that; or "cv", "aic" or "bic":
            of rank r there are r (d + c - r) parameters; or a function of a :class:`Candidate`,
            which is least for the best.
        k_max: the largest rank from which one is chosen, an int; None: min(d, c, n / log n, 50).
        l2: ridge parameter >= 0 of "the mean of the losses + l2/2 ||x||^2", x the coefficients in
            the units that are computed in, those of standardised columns; the intercept has none.
        fit_intercept: whether there is an intercept.
        standardize: whether features are scaled to variance 1 for the fit; ``coef_`` is for X as it
            is.
        solver: a solver of jaxht, such as ``jaxht.NIHT()``; None: that of
            :func:`jaxht.default_solver`.
        cv: the folds of k="cv": an int, a splitter of scikit-learn, or an iterable of pairs of
            indices; None: 5.
        random_state: an int or a RandomState, for solvers that draw random numbers.

    Attributes:
        coef_: (c, d), coefficients of X, of rank k_.
        intercept_: (c,).
        k_: the rank that was asked for or chosen.
        path_: where it was chosen, a Bunch, as of :class:`L0Regressor`; else None.
        n_iter_: steps of the solver.
        n_features_in_: d.
        feature_names_in_: (d,), where X is a data frame.

    {cost}

    Example:
        >>> import numpy as np
        >>> from jaxht.sklearn import ReducedRankRegressor
        >>> rng = np.random.default_rng(0)
        >>> X, B = rng.normal(size=(80, 5)), rng.normal(size=(5, 1)) * rng.normal(size=(1, 4))
        >>> model = ReducedRankRegressor(k="bic").fit(X, X @ B + 0.1 * rng.normal(size=(80, 4)))
        >>> model.k_, int(np.linalg.matrix_rank(model.coef_))
        (1, 1)
    """

    _criteria = ("cv", "aic", "bic")
    _most_name = "min(n_features, n_targets)"

    k: Any = field(default="bic", kw_only=False)

    def _find_items(self, shape: tuple[int, ...]) -> Items:
        return Items(1, min(shape), min(shape))

    def _constraint(self, problem: LinearFit, k: int) -> Any:
        if problem.num_ones:
            raise ValueError(
                "fit_intercept must be False where entries of y are missing or have weights of "
                "their own: an intercept would count towards the rank"
            )
        return jaxht.LowRank(k)

    def _count_parameters(self, problem: LinearFit, path: Any) -> dict[str, NumpyArray]:
        is_used = np.any(path.support.U != 0, axis=-2)  # columns of a basis, the others are 0
        rank = np.sum(is_used, axis=-1)
        size = rank * (sum(problem.objective.shape) - rank)
        return {"size": size}
