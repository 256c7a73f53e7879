"""Estimators of classes."""

from dataclasses import field
from typing import Any

import jax
import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

import jaxht
from jaxht._programs import bounded_jit
from jaxht.sklearn._data import NumpyArray, add_offset
from jaxht.sklearn._linear import L0Model, LinearFit

MARGINS = {"squared_hinge": jaxht.SquaredHinge, "smoothed_hinge": jaxht.SmoothedHinge}


def _has_probabilities(model: "L0Classifier") -> bool:
    return model.loss == "logistic"


class ClassifierModel(ClassifierMixin, L0Model):
    """Base of the classifiers, which have an argument ``class_weight``."""

    l2: float = 1e-3
    class_weight: Any = None

    _is_numeric = False

    def _encode(self, y: NumpyArray, weights: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
        """The classes as 0 ... c - 1, in the order of ``classes_``, and weights with those of the
        classes."""
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        totals = np.bincount(numbers, weights)
        if np.count_nonzero(totals) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes, of weights above 0; the data contain only "
                f"one class: {self.classes_[totals > 0][0]!r}"
            )
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            is_present = totals > 0
            mean = np.sum(totals) / np.count_nonzero(is_present)
            by_class = np.divide(mean, totals, out=np.zeros_like(totals), where=is_present)
        else:
            by_class = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
        if not np.all((by_class >= 0) & (by_class < np.inf)):
            raise ValueError(f"class_weight must be finite and at least 0; got {by_class.tolist()}")
        if np.count_nonzero(totals * by_class) < 2:
            raise ValueError(
                f"class_weight must leave at least 2 classes with weights above 0; got {by_class.tolist()}"
            )
        factors = by_class[numbers].astype(weights.dtype)
        return numbers.astype(np.int32), weights * factors

    def _score_classes(self, X: Any, offset: Any) -> NumpyArray:
        """Scores (n, c), the largest for the class that is predicted, the first of equal ones."""
        raise NotImplementedError

    def predict(self, X: Any, offset: Any = None) -> NumpyArray:
        """Predict classes.

        Args:
            X: (n, d), as of ``fit``.
            offset: as of ``fit``, for these samples; None for zeros.

        Returns:
            (n,) labels.
        """
        scores = self._score_classes(X, offset)
        return self.classes_[np.argmax(scores, axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """The share of the samples whose class is predicted.

        Args:
            X: (n, d), as of ``fit``.
            y: (n,) labels.
            sample_weight: (n,); None for ones.
            offset: as of ``fit``, for these samples; None for zeros.

        Returns:
            At most 1.
        """
        return accuracy_score(y, self.predict(X, offset), sample_weight=sample_weight)


class L0Classifier(ClassifierModel):
    """Logistic regression, multinomial for more than two classes, or a support vector machine, on
    the best k features.

    For more than two classes a feature has one coefficient for each class, and k counts features.
    The coefficients of a feature then have mean 0 over the classes, which changes no prediction,
    unless they have bounds.
    Without a ridge, there is no minimiser if k features separate the data.

    Args:
        {arguments}
        loss: "logistic"; or, for two classes, "squared_hinge", or "smoothed_hinge", linear below a
            margin of 0 (the hinge itself has no second derivative to refit by). The hinge losses
            have no information criterion: give k or "cv". For several classes, wrap the estimator
            in ``OneVsRestClassifier`` of scikit-learn.

    Attributes:
        coef_: (1, d), or of c > 2 classes (c, d), coefficients of X.
        intercept_: (1,) or (c,).
        classes_: (c,), the labels.
        {attributes}

    {cost}

    Example:
        >>> import numpy as np
        >>> from jaxht.sklearn import L0Classifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(100, 6))
        >>> y = np.where(X[:, 3] + 0.3 * rng.normal(size=100) > 0, "yes", "no")
        >>> model = L0Classifier(k=1).fit(X, y)
        >>> np.flatnonzero(model.support_).tolist(), model.predict(X[:2]).shape, model.score(X, y) > 0.8
        ([3], (2,), True)
    """

    loss: str = "logistic"

    def _encode(self, y: NumpyArray, weights: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
        """-1 and +1, or 0 ... c - 1; and weights with those of the classes."""
        if self.loss != "logistic" and self.loss not in MARGINS:
            raise ValueError(
                f"loss must be 'logistic' or one of {sorted(MARGINS)}; got {self.loss!r}"
            )
        numbers, weights = super()._encode(y, weights)
        if len(self.classes_) == 2:
            return np.where(numbers == 1, 1, -1).astype(weights.dtype), weights
        if self.loss != "logistic":
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass: with a hinge use "
                "loss='logistic', or OneVsRestClassifier of scikit-learn"
            )
        return numbers, weights

    @property
    def _is_multinomial(self) -> bool:
        return len(self.classes_) > 2

    def _objective(self, design: Any, target: Any, **options: Any) -> Any:
        if self._is_multinomial:
            return jaxht.Softmax(design, target, num_classes=len(self.classes_), **options)
        return MARGINS.get(self.loss, jaxht.Logistic)(design, target, **options)

    def _outputs(self, target: NumpyArray) -> tuple[int, ...]:
        return self.classes_.shape if self._is_multinomial else ()

    @property
    def _free_share(self) -> float:
        """The share of the coefficients that are free: of several classes, one has what the others
        leave."""
        return 1 - 1 / len(self.classes_) if self._is_multinomial else 1.0

    def _in_units_of_X(self, problem: LinearFit, x: NumpyArray) -> tuple[Any, Any]:
        coefficients, intercepts = super()._in_units_of_X(problem, x)
        if not self._is_multinomial:
            return coefficients[..., None, :], np.asarray(intercepts)[..., None]
        if self.fit_intercept:
            intercepts = intercepts - intercepts.mean(axis=-1, keepdims=True)
        if self.nonnegative or self.bounds is not None:
            return coefficients, intercepts
        return coefficients - coefficients.mean(axis=-2, keepdims=True), intercepts

    # ---- predictions ----

    def decision_function(self, X: Any, offset: Any = None) -> NumpyArray:
        """Predict scores of classes.

        Args:
            X: (n, d), as of ``fit``.
            offset: as of ``fit``, for these samples; None for zeros.

        Returns:
            Of two classes (n,), above 0 for the second; else (n, c), the largest for the class that
            is predicted.
        """
        scores = self._predict_linear(X)
        if not self._is_multinomial:
            scores = scores.ravel()
        return add_offset(scores, offset)

    def _score_classes(self, X: Any, offset: Any) -> NumpyArray:
        scores = self.decision_function(X, offset)
        return np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any, offset: Any = None) -> NumpyArray:
        """Predict probabilities of classes; of the logistic loss.

        Args:
            X: (n, d), as of ``fit``.
            offset: as of ``fit``, for these samples; None for zeros.

        Returns:
            (n, c), rows of sum 1, in the order of ``classes_``.
        """
        scores = self._score_classes(X, offset)
        return softmax(scores, axis=1) if self._is_multinomial else expit(scores)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any, offset: Any = None) -> NumpyArray:
        """Predict logarithms of the probabilities of classes.

        Args:
            X: (n, d), as of ``fit``.
            offset: as of ``fit``, for these samples; None for zeros.

        Returns:
            (n, c), in the order of ``classes_``.
        """
        scores = self._score_classes(X, offset)
        return log_softmax(scores, axis=1) if self._is_multinomial else log_expit(scores)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.loss == "logistic"
        return tags


class L0OrdinalClassifier(ClassifierModel):
    """Proportional odds regression of ordered classes (McCullagh 1980), on the best k features.

    .. math::
        P(y \\le j) = \\sigma(\\theta_j - a \\cdot x), \\qquad \\theta_1 \\le \\dots \\le \\theta_{c-1}

    sigma the logistic function: a feature has one coefficient for all classes, positive where
    higher classes become more probable. The thresholds theta are fitted with the coefficients; they
    have no ridge and are not counted. With k="cv" the loss of the held-out samples of a fold is
    computed at thresholds fitted to these samples.

    Classes are ordered as their labels sort, which is also the order of scikit-learn's columns of
    probabilities; encode names such as "low", "mid" and "high" as numbers. An ordered categorical
    whose order differs is an error.

    :meth:`predict` gives the most probable class. scikit-learn's ``decision_function`` would have a
    column for each class, so there is none: the linear score is ``X @ coef_``, the mean of a latent
    variable that the thresholds cut.

    Args:
        {arguments}

    Attributes:
        coef_: (d,), coefficients of X.
        thresholds_: (c - 1,), theta, increasing; for the ``intercepts`` of ``path_`` (m, c - 1).
        classes_: (c,), the labels in their order.
        {attributes}

    {cost}

    Example:
        >>> import jaxht, numpy as np
        >>> from jaxht.sklearn import L0OrdinalClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(200, 6))
        >>> y = np.digitize(2 * X[:, 3] + rng.logistic(size=200), [-1, 1])
        >>> model = L0OrdinalClassifier(k=1, solver=jaxht.OMP()).fit(X, y)
        >>> np.flatnonzero(model.support_).tolist(), model.thresholds_.shape, model.predict_proba(X).shape
        ([3], (2,), (200, 3))
    """

    fit_intercept: bool = field(default=True, init=False)
    certify: bool = field(default=False, init=False)

    @property
    def _num_ones(self) -> int:
        """The thresholds are intercepts."""
        return 0

    def _validate(self, X: Any, y: Any) -> tuple[Any, Any]:
        kind: Any = getattr(y, "dtype", None)
        # A categorical of pandas may be ordered, an Enum of polars is.
        if getattr(kind, "ordered", type(kind).__name__ == "Enum"):
            names = list(kind.categories)
            if names != sorted(names):
                raise ValueError(
                    f"y must be ordered as its labels sort; the categorical {names} is not: fit numbers, its codes"
                )
        return super()._validate(X, y)

    def _objective(self, design: Any, target: Any, **options: Any) -> Any:
        return jaxht.Ordinal(design, target, num_classes=len(self.classes_), **options)

    def _in_units_of_X(self, problem: LinearFit, x: NumpyArray) -> tuple[Any, Any]:
        coefficients, shift = super()._in_units_of_X(problem, x)
        points = x.reshape(-1, x.shape[-1])
        thresholds = np.asarray(find_thresholds(problem.objective, points))
        thresholds = thresholds.reshape(*x.shape[:-1], -1)
        return coefficients, thresholds - np.asarray(shift)[..., None]

    def _set_coefficients(self, problem: LinearFit, x: NumpyArray) -> None:
        self.coef_, self.thresholds_ = self._in_units_of_X(problem, x)

    def predict_log_proba(self, X: Any, offset: Any = None) -> NumpyArray:
        """Predict logarithms of the probabilities of classes.

        Args:
            X: (n, d), as of ``fit``.
            offset: as of ``fit``, for these samples; None for zeros.

        Returns:
            (n, c), in the order of ``classes_``.
        """
        u = add_offset(self._multiply(X), offset)[:, None]
        upper = np.append(self.thresholds_, np.inf)
        lower = np.insert(self.thresholds_, 0, -np.inf)
        # sigma(b) - sigma(a) = sigma(b) sigma(-a) (1 - exp(a - b)); classes without samples have a
        # = b.
        with np.errstate(divide="ignore", invalid="ignore"):
            gaps = np.where(upper > lower, np.log(-np.expm1(lower - upper)), -np.inf)
        logs = log_expit(upper - u) + log_expit(u - lower) + gaps
        return logs.astype(u.dtype)

    def predict_proba(self, X: Any, offset: Any = None) -> NumpyArray:
        """Predict probabilities of classes.

        Args:
            X: (n, d), as of ``fit``.
            offset: as of ``fit``, for these samples; None for zeros.

        Returns:
            (n, c), rows of sum 1, in the order of ``classes_``.
        """
        return np.exp(self.predict_log_proba(X, offset))

    def _score_classes(self, X: Any, offset: Any) -> NumpyArray:
        return self.predict_log_proba(X, offset)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Scores are expected of three classes at the corners of a triangle, which lie in no order.
        tags.classifier_tags.poor_score = True
        return tags


@bounded_jit
def find_thresholds(objective: jaxht.Ordinal, points: Any) -> Any:
    """The thresholds (m, c - 1) at points (m, d)."""
    return jax.vmap(objective.thresholds)(points)
