"""Estimators of scikit-learn: the best k features, in ``fit`` and ``predict``, pipelines and grid
searches.

They are thin: each poses a problem of this library, solves it, and reports the solution in the
units of X. The default float of JAX does not matter: float64 data are computed in float64, float32
data in float32. Imported by ``import jaxht.sklearn``; needs scikit-learn.

Example:
    >>> from sklearn.datasets import load_diabetes
    >>> from jaxht.sklearn import L0Regressor
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = L0Regressor(k=3).fit(X, y)
    >>> X.columns[model.support_].tolist()
    ['bmi', 'bp', 's5']
"""

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "jaxht.sklearn needs scikit-learn, 1.6 or newer, which the extra jax-hard-thresholding[sklearn] installs"
    ) from error

from jaxht.sklearn._classification import L0Classifier, L0OrdinalClassifier
from jaxht.sklearn._displays import PathDisplay, SelectionDisplay
from jaxht.sklearn._estimator import Candidate
from jaxht.sklearn._matrices import SparseGraphicalModel
from jaxht.sklearn._regression import (
    L0GammaRegressor,
    L0MultiTaskRegressor,
    L0PoissonRegressor,
    L0Regressor,
    ReducedRankRegressor,
)
from jaxht.sklearn._selector import L0Selector
from jaxht.sklearn._survival import L0CoxRegressor

__all__ = [
    "Candidate",
    "L0Classifier",
    "L0CoxRegressor",
    "L0GammaRegressor",
    "L0MultiTaskRegressor",
    "L0OrdinalClassifier",
    "L0PoissonRegressor",
    "L0Regressor",
    "L0Selector",
    "PathDisplay",
    "ReducedRankRegressor",
    "SelectionDisplay",
    "SparseGraphicalModel",
]
