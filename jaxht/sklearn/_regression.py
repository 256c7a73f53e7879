"""Estimators of real targets, of positive ones and of counts: one output, several, and several of
low rank."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.metrics import d2_tweedie_score, r2_score

import jaxht
from jaxht.sklearn._base import L0Model, Posed, complete_docstring


class RegressorModel(RegressorMixin, L0Model):
    """Base of the regressors whose means are linear predictors."""

    def predict(self, X: Any, offset: Any = None) -> NDArray[Any]:
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


@complete_docstring
class L0Regressor(RegressorModel):
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

    Example:
        >>> import numpy as np
        >>> from jaxht.sklearn import L0Regressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 8))
        >>> model = L0Regressor().fit(X, 3 * X[:, 2] - X[:, 5] + 1 + 0.1 * rng.normal(size=60))
        >>> model.k_, np.flatnonzero(model.support_).tolist(), round(float(model.intercept_), 1)
        (2, [2, 5], 1.0)
    """

    def __init__(
        self,
        k: Any = "ebic",
        *,
        loss: str = "squared",
        delta: float = 1.0,
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
        super().__init__(
            k=k,
            k_max=k_max,
            l2=l2,
            groups=groups,
            always=always,
            nonnegative=nonnegative,
            bounds=bounds,
            fit_intercept=fit_intercept,
            standardize=standardize,
            solver=solver,
            cv=cv,
            certify=certify,
            random_state=random_state,
        )
        self.loss = loss
        self.delta = delta

    def _objective(self, design: Any, target: Any, l2: Any, **data: Any) -> Any:
        if self.loss == "huber":
            return jaxht.Huber(design, target, l2, delta=self.delta, **data)
        if self.loss != "squared":
            raise ValueError(f"loss must be 'squared' or 'huber'; got {self.loss!r}")
        return jaxht.LeastSquares(design, target, l2, mean=True, **data)


class LogLinkModel(RegressorModel):
    """Base of the regressors whose means are exponentials of linear predictors, of targets that are
    not negative."""

    _power: float  # of the mean, to which the variance is proportional

    def predict(self, X: Any, offset: Any = None) -> NDArray[Any]:
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


@complete_docstring
class L0PoissonRegressor(LogLinkModel):
    """Poisson regression of counts, ``log E[y] = a.x + b``, on the best k features.

    Args:
        {arguments}

    Attributes:
        coef_: (d,), coefficients of X.
        intercept_: a number.
        {attributes}

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

    def _objective(self, design: Any, target: Any, l2: Any, **data: Any) -> Any:
        return jaxht.Poisson(design, target, l2, **data)


@complete_docstring
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

    def _objective(self, design: Any, target: Any, l2: Any, **data: Any) -> Any:
        return jaxht.Gamma(design, target, l2, **data)


class MultiOutputModel(MultiOutputMixin, RegressorModel):
    """Base of least squares of several targets."""

    _multi_output = True
    _default_loss = "squared"

    def _encode(self, y: NDArray[Any], weights: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        if y.ndim == 1:
            raise ValueError(
                f"y must have shape (n, c), one target a column; got {y.shape}: of one use L0Regressor"
            )
        return super()._encode(y, weights)

    def _objective(self, design: Any, target: Any, l2: Any, **data: Any) -> Any:
        return jaxht.MultiResponse(design, target, l2, **data)

    def _outputs(self, target: NDArray[Any]) -> tuple[int, ...]:
        return target.shape[1:]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = False
        return tags


@complete_docstring
class L0MultiTaskRegressor(MultiOutputModel):
    """Linear regression of several targets, on the best k features for all of them, or the best k
    coefficients.

    Args:
        {arguments}
        sparsity: what k counts: "rows", features that are selected for all targets; or "entries",
            single coefficients.

    Attributes:
        coef_: (c, d), coefficients of X.
        intercept_: (c,).
        {attributes}

    Example:
        >>> import numpy as np
        >>> from jaxht.sklearn import L0MultiTaskRegressor
        >>> X = np.random.default_rng(0).normal(size=(60, 6))
        >>> model = L0MultiTaskRegressor(k=2).fit(X, np.stack([X[:, 1], X[:, 1] + X[:, 3]], axis=1))
        >>> np.flatnonzero(model.support_).tolist(), model.coef_.shape
        ([1, 3], (2, 6))
    """

    def __init__(
        self,
        k: Any = "ebic",
        *,
        sparsity: str = "rows",
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
        super().__init__(
            k=k,
            k_max=k_max,
            l2=l2,
            groups=groups,
            always=always,
            nonnegative=nonnegative,
            bounds=bounds,
            fit_intercept=fit_intercept,
            standardize=standardize,
            solver=solver,
            cv=cv,
            certify=certify,
            random_state=random_state,
        )
        self.sparsity = sparsity

    def _number_items(self, groups: NDArray[Any], num_outputs: int | None) -> NDArray[Any]:
        if self.sparsity == "rows":
            return super()._number_items(groups, num_outputs)
        if self.sparsity != "entries":
            raise ValueError(f"sparsity must be 'rows' or 'entries'; got {self.sparsity!r}")
        if self.groups is not None:
            raise ValueError("groups must be None with sparsity='entries': they are of features")
        return np.arange(groups.size * (num_outputs or 1)).reshape(groups.size, -1)


@complete_docstring
class ReducedRankRegressor(MultiOutputModel):
    """Linear regression of several targets with coefficients of rank k (Izenman 1975), of all
    features.

    Args:
        k: rank, an int from 1 to min(d, c); a fraction in (0, 1] of that; or "cv", "aic" or "bic":
            of rank r there are r (d + c - r) parameters.
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
    _called = "min(n_features, n_targets)"

    def __init__(
        self,
        k: Any = "bic",
        *,
        k_max: int | None = None,
        l2: float = 0.0,
        fit_intercept: bool = True,
        standardize: bool = True,
        solver: Any = None,
        cv: Any = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            k=k,
            k_max=k_max,
            l2=l2,
            fit_intercept=fit_intercept,
            standardize=standardize,
            solver=solver,
            cv=cv,
            random_state=random_state,
        )

    def _limits(self, items: NDArray[Any], kept: NDArray[np.bool_]) -> tuple[int, int]:
        return 1, min(items.shape)

    def _constraint(self, posed: Posed, k: int) -> Any:
        return jaxht.LowRank(k)

    def _criterion(self, posed: Posed) -> Callable[[Any, Any], Any]:
        criterion, rank_of = (
            getattr(jaxht.criteria, self.k),
            jaxht.LowRank(posed.most).prepare(posed.items.shape),
        )

        def value(objective: Any, x: Any) -> Any:
            rank = rank_of.support_of(x).size.astype(x.dtype)
            return criterion(objective, x, size=rank * (sum(x.shape) - rank))

        return value

    def _set_support(self, posed: Posed, nonzero: NDArray[np.bool_]) -> None:
        """Rank selects no features."""
