"""Feature selection as a transformer."""

from dataclasses import field
from typing import Any, Self

from sklearn.base import MetaEstimatorMixin, clone
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from jaxht.sklearn._classification import L0Classifier, L0OrdinalClassifier
from jaxht.sklearn._data import NumpyArray
from jaxht.sklearn._estimator import DataclassEstimator
from jaxht.sklearn._linear import L0Model
from jaxht.sklearn._regression import L0GammaRegressor, L0PoissonRegressor, L0Regressor
from jaxht.sklearn._survival import L0CoxRegressor

SELECTION_ESTIMATORS = {
    "squared": L0Regressor(),
    "huber": L0Regressor(loss="huber"),
    "poisson": L0PoissonRegressor(),
    "gamma": L0GammaRegressor(),
    "cox": L0CoxRegressor(),
    "logistic": L0Classifier(),
    "squared_hinge": L0Classifier(loss="squared_hinge"),
    "smoothed_hinge": L0Classifier(loss="smoothed_hinge"),
    "ordinal": L0OrdinalClassifier(),
}


class L0Selector(MetaEstimatorMixin, SelectorMixin, DataclassEstimator):
    """The columns of the features that an estimator selects, for pipelines.

    Args:
        estimator: one of this module that selects features, which is cloned; or the name of a loss,
            for that with its defaults: "squared", "huber", "poisson", "gamma", "cox", "logistic",
            "squared_hinge", "smoothed_hinge" or "ordinal".
        k: how many features, or how that is chosen, as of :class:`L0Regressor`; None: as the
            estimator says.

    Attributes:
        estimator_: the fitted estimator.
        support_: bool (d,), the selected features.
        k_: how many they are, as was asked for or chosen.
        n_features_in_: d.
        feature_names_in_: (d,), where X is a data frame.

    Cost: that of the estimator.

    Example:
        >>> import numpy as np
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.neighbors import KNeighborsRegressor
        >>> from jaxht.sklearn import L0Selector
        >>> X = np.random.default_rng(0).normal(size=(60, 8))
        >>> model = make_pipeline(L0Selector(k=2), KNeighborsRegressor()).fit(X, X[:, 2] - X[:, 5])
        >>> model[0].get_support(indices=True).tolist(), model[0].transform(X).shape
        ([2, 5], (60, 2))
    """

    estimator: Any = field(default="squared", kw_only=False)
    k: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> Self:
        """Fit the estimator, and take the features that it selects.

        Args:
            X: (n, d), as of the estimator.
            y: (n,) targets or classes, as of the estimator.
            sample_weight: (n,) weights of at least 0; None for ones.
            offset: as of the estimator; None for zeros.

        Returns:
            The selector.

        Raises:
            ValueError: for an estimator that does not select features, and where it raises one.
        """
        estimator = self.build()
        self.estimator_ = estimator.fit(X, y, sample_weight=sample_weight, offset=offset)
        for name in ("support_", "k_", "n_features_in_", "feature_names_in_"):
            if hasattr(estimator, name):
                setattr(self, name, getattr(estimator, name))
            elif hasattr(self, name):  # of other data
                delattr(self, name)
        return self

    def build(self) -> Any:
        """The estimator that will be fitted.

        Returns:
            A clone of the estimator, or one with the loss, with k where it is given.

        Raises:
            ValueError: for an estimator that does not select features.
        """
        estimator = self._named()
        if not isinstance(estimator, L0Model):
            raise ValueError(
                f"estimator must be one of jaxht.sklearn that selects features, or one of {sorted(SELECTION_ESTIMATORS)}; "
                f"got {self.estimator!r}"
            )
        own_k = {} if self.k is None else {"k": self.k}
        return clone(estimator).set_params(**own_k)

    def _named(self) -> Any:
        """The estimator, or the one with the loss; None for a loss that is not known."""
        if isinstance(self.estimator, str):
            return SELECTION_ESTIMATORS.get(self.estimator)
        return self.estimator

    def _get_support_mask(self) -> NumpyArray:
        check_is_fitted(self)
        return self.estimator_.support_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        estimator = self._named()
        if isinstance(estimator, L0Model):
            own = get_tags(estimator)
            tags.input_tags.sparse = own.input_tags.sparse
            tags.target_tags = own.target_tags
        return tags
