"""Estimators pass scikit-learn's own checks, name wrong arguments, and are imported when asked for."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import (
    LinearRegression,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.fixes import parse_version

from jaxht.sklearn import (
    L0Classifier,
    L0CoxRegressor,
    L0GammaRegressor,
    L0MultiTaskRegressor,
    L0OrdinalClassifier,
    L0PoissonRegressor,
    L0Regressor,
    L0Selector,
    ReducedRankRegressor,
)
from tests.estimators import (
    CHECKED,
    OMP,
    N,
    costs,
    counts,
    features,
    frame,
    labels,
    lives,
    targets,
    three_labels,
    two_targets,
)

pytestmark = pytest.mark.usefixtures("all_quickly")


def fails(estimator):
    """The checks that cannot pass, and why."""
    tags, old = (
        get_tags(estimator).classifier_tags,
        parse_version(sklearn.__version__) < parse_version("1.7"),
    )
    if old and tags is not None and not tags.multi_class:
        # It makes labels binary by the first of them, which is another one once the samples are
        # shuffled.
        names = (
            "check_sample_weight_equivalence_on_dense_data",
            "check_sample_weight_equivalence_on_sparse_data",
        )
        return dict.fromkeys(names, "scikit-learn 1.6 fits two different problems")
    return {}


# A check has no more samples than features.
@pytest.mark.filterwarnings("ignore:.*as many fit any targets of:UserWarning")
@pytest.mark.filterwarnings("ignore:.*above the number of samples:UserWarning")
@parametrize_with_checks(CHECKED, expected_failed_checks=fails)
def test_estimator(estimator, check):
    check(estimator)


# ---- errors --------------------------------------------------------------------------------------

WRONG = {
    "k is text": (
        r"k must be an int, or a fraction in \(0, 1\] or 'cv' or",
        L0Regressor(k="cp"),
        targets,
    ),
    "k is a bool": ("k must be an int", L0Regressor(k=True), targets),
    "k is too large": ("k must lie between 0 and n_features = 6; got 7", L0Regressor(k=7), targets),
    "k is below always": ("k must lie between 2", L0Regressor(k=1, always=[0, 1]), targets),
    "k is 1.5": ("got 1.5", L0Regressor(k=1.5), targets),
    "k_max": ("k_max must be an int from 0 to 6; got 9", L0Regressor(k_max=9), targets),
    "l2": ("l2 must be at least 0; got -1", L0Regressor(k=1, l2=-1), targets),
    "loss": ("loss must be 'squared' or 'huber'; got 'l1'", L0Regressor(k=1, loss="l1"), targets),
    "loss of classes": ("loss must be 'logistic' or", L0Classifier(k=1, loss="hinge"), labels),
    "criterion of huber": (
        "logarithm of a likelihood",
        L0Regressor(loss="huber", solver=OMP),
        targets,
    ),
    "groups": ("groups must have one label", L0Regressor(k=1, groups=[0, 1]), targets),
    "ragged groups": (
        "groups .* different",
        L0Regressor(k=1, groups=[[[0, 1], [2]], [1]]),
        targets,
    ),
    "labels and lists": (
        "or all lists of features",
        L0Regressor(k=1, groups=[[0, 1], 2, 3, 4, 5, 6]),
        targets,
    ),
    "groups out of range": (
        "groups must be numbers of features below 6",
        L0Regressor(k=1, groups=[[0, 6]]),
        targets,
    ),
    "bounds of overlapping groups": (
        "bounds must be None for groups that are lists",
        L0Regressor(k=1, groups=[[0, 1], [1, 2]], bounds=(0, 1)),
        targets,
    ),
    "missing groups": (
        "a label for each feature; got None at 1",
        L0Regressor(k=1, groups=[0, None, 0, 1, 1, 1]),
        targets,
    ),
    "groups of NaN": (
        "a label for each feature; got nan at 5",
        L0Regressor(k=1, groups=[0, 0, 0, 1, 1, np.nan]),
        targets,
    ),
    "ragged always": ("always .* different", L0Regressor(k=1, always=[[0, 1], [2]]), targets),
    "ragged bounds": (
        "bounds .* different",
        L0Regressor(k=1, bounds=([[0], [0, 0]], None)),
        targets,
    ),
    "bounds of some": (
        r"bounds must .* \(6,\); got shape \(2,\)",
        L0Regressor(k=1, bounds=(None, [1, 1])),
        targets,
    ),
    "groups of entries": (
        "groups must be None",
        L0MultiTaskRegressor(k=1, sparsity="entries", groups=range(6)),
        two_targets,
    ),
    "sparsity": ("sparsity must be", L0MultiTaskRegressor(k=1, sparsity="columns"), two_targets),
    "one target": ("of one use L0Regressor", L0MultiTaskRegressor(k=1), targets),
    "always by name": ("X has none", L0Regressor(k=1, always=["a"]), targets),
    "always out of range": ("below 6", L0Regressor(k=1, always=[6]), targets),
    "always of a wrong length": ("as a mask", L0Regressor(k=1, always=[True]), targets),
    "always of floats": ("mask, numbers or names", L0Regressor(k=1, always=[0.5]), targets),
    "bounds": ("must be a pair", L0Regressor(k=1, bounds=3), targets),
    "bounds without 0": ("must not be above 0", L0Regressor(k=1, bounds=(1, 2)), targets),
    "bounds of rows": (
        r"of shape \(6,\) or \(2, 6\); got shape \(6, 2\)",
        L0MultiTaskRegressor(k=1, bounds=(np.zeros((6, 2)), None)),
        two_targets,
    ),
    "one class": ("at least 2 classes", L0Classifier(k=1), lambda: np.zeros(N, int)),
    "negative counts": ("counts", L0PoissonRegressor(k=1), lambda: -counts() - 1),
    "a cost of 0": (
        "y must be above 0",
        L0GammaRegressor(k=1),
        lambda: costs() * (np.arange(N) > 0),
    ),
    "one ordered class": ("at least 2 classes", L0OrdinalClassifier(k=1), lambda: np.zeros(N, int)),
    "no events": (
        "must have an event",
        L0CoxRegressor(k=1),
        lambda: np.stack([np.arange(N), np.zeros(N)], axis=1),
    ),
    "events of 2": (
        r"y\[:, 1\] must be 1",
        L0CoxRegressor(k=1),
        lambda: np.stack([np.arange(N), 2 + np.zeros(N)], 1),
    ),
    "fields": ("one field of bools", L0CoxRegressor(k=1), lambda: lives()[["weeks"]]),
    "hinge of three classes": (
        "Only binary",
        L0Classifier(k=1, loss="squared_hinge"),
        three_labels,
    ),
    "rank": (
        r"k must lie between 1 and min\(n_features, n_targets\) = 2",
        ReducedRankRegressor(k=3),
        two_targets,
    ),
    "certificate without a ridge": ("l2", L0Regressor(k=1, certify=True, solver=OMP), targets),
    "selector": ("selects features, or one of", L0Selector(LinearRegression()), targets),
    "selector by name": ("got 'l1'", L0Selector("l1"), targets),
    "selector of rank": ("selects features", L0Selector(ReducedRankRegressor()), two_targets),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named(name):
    message, model, y = WRONG[name]
    with pytest.raises(ValueError, match=message):
        model.fit(features(), y())


def test_names_that_are_not_there():
    with pytest.raises(ValueError, match="X has no 'z'"):
        L0Regressor(k=1, always=["a", "z"]).fit(frame(), targets())
    for weights in (-np.ones(N), np.ones((N, 1)), np.ones(N - 1)):
        with pytest.raises(ValueError):
            L0Regressor(k=1).fit(features(), targets(), sample_weight=weights)


def test_hinges_of_several_classes():
    model = OneVsRestClassifier(L0Classifier(k=2, loss="squared_hinge", solver=OMP)).fit(
        features(), three_labels()
    )
    assert model.score(features(), three_labels()) > 0.5


# ---- imports -------------------------------------------------------------------------------------


def run(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


def test_scikit_learn_is_imported_when_it_is_asked_for():
    assert (
        run(
            "import jaxht, sys; assert 'sklearn' not in sys.modules; jaxht.sklearn.L0Regressor"
        ).returncode
        == 0
    )
    found = run("import sys; sys.modules['sklearn'] = None; import jaxht.sklearn")
    assert "ImportError: jaxht.sklearn needs scikit-learn" in found.stderr


def test_plots_are_imported_when_they_are_drawn():
    found = run("import jaxht.sklearn, sys; assert 'matplotlib' not in sys.modules")
    assert found.returncode == 0, found.stderr


def test_data_are_not_warned_of():
    """float64 is computed in float64, so that nothing is rounded."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        L0Regressor(k=2, solver=OMP).fit(features(), targets())
