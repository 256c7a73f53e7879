"""Estimators are copied, put into pipelines and searches, run in processes, and drawn."""

import logging
import pickle
import re

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from joblib import Parallel, delayed
from sklearn.base import clone, is_classifier
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
)
from sklearn.model_selection import GridSearchCV, check_cv, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import jaxht
from jaxht.sklearn import (
    L0Classifier,
    L0CoxRegressor,
    L0GammaRegressor,
    L0MultiTaskRegressor,
    L0OrdinalClassifier,
    L0PoissonRegressor,
    L0Regressor,
    L0Selector,
    PathDisplay,
    ReducedRankRegressor,
    SelectionDisplay,
    SparseGraphicalModel,
)
from tests.estimators import (
    ALL,
    EVERY,
    OMP,
    PREDICTORS,
    D,
    N,
    chain,
    features,
    frame,
    labels,
    name_of,
    targets,
    three_labels,
    two_targets,
)
from tests.util import drop_programs

pytestmark = pytest.mark.usefixtures("all_quickly")


def test_a_selector_in_a_pipeline():
    X, y = frame(), labels()
    selector = L0Selector(L0Classifier(k=3, solver=OMP)).set_output(transform="pandas")
    model = make_pipeline(
        StandardScaler().set_output(transform="pandas"), selector, LogisticRegression()
    ).fit(X, y)
    chosen = [
        name for name, selected in zip("abcdef", model[1].get_support(), strict=True) if selected
    ]
    assert len(chosen) == 3 and model[:2].get_feature_names_out().tolist() == chosen
    pd.testing.assert_frame_equal(model[:2].transform(X), model[0].transform(X)[chosen])
    assert model[1].get_support(indices=True).tolist() == ["abcdef".index(name) for name in chosen]
    assert model.score(X, y) > 0.7
    assert model[1].inverse_transform(model[1].transform(X)).shape == (N, D)


KINDS = {
    "poisson": L0PoissonRegressor,
    "gamma": L0GammaRegressor,
    "ordinal": L0OrdinalClassifier,
    "cox": L0CoxRegressor,
}
NAMES = ["squared", "huber", *KINDS, "logistic", "squared_hinge", "smoothed_hinge"]


@pytest.mark.parametrize("loss", NAMES)
def test_selectors_by_the_name_of_a_loss(loss):
    selector = L0Selector(loss, k=1)
    if loss == "squared":  # one is fitted; of the others the estimator is looked at
        assert selector.fit(features(), targets()).k_ == 1 and selector.transform(
            features()
        ).shape == (N, 1)
    estimator = selector.build()
    assert (
        type(estimator) is KINDS[loss] if loss in KINDS else estimator.loss == loss
    ) and estimator.k == 1


def scores(model, X, y, weights=None):
    """On three folds, one after the other."""
    cv, found = check_cv(3, y, classifier=is_classifier(model)), []
    for train, held in cv.split(X, y):
        parts = [None if y is None else y[part] for part in (train, held)]
        given = [
            {} if weights is None else {"sample_weight": weights[part]} for part in (train, held)
        ]
        fitted = clone(model).fit(
            X.iloc[train] if hasattr(X, "iloc") else X[train], parts[0], **given[0]
        )
        found.append(
            fitted.score(X.iloc[held] if hasattr(X, "iloc") else X[held], parts[1], **given[1])
        )
    return found


@pytest.mark.parametrize(("model", "y"), EVERY, ids=name_of)
def test_copies(model, y):
    X, y = frame(), y()
    fitted = clone(model).fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    assert vars(again).keys() == vars(fitted).keys() and repr(again) == repr(model) == repr(
        clone(fitted)
    )
    assert list(again.feature_names_in_) == list("abcdef") and not hasattr(clone(fitted), "k_")
    for method in (
        "predict",
        "predict_proba",
        "decision_function",
        "transform",
        "predict_survival_function",
    ):
        if hasattr(fitted, method):
            np.testing.assert_array_equal(getattr(again, method)(X), getattr(fitted, method)(X))


@pytest.mark.parametrize(("model", "y"), EVERY, ids=name_of)
def test_polars(model, y):
    """A data frame and a series of polars give what those of pandas give."""
    X, y = frame(), y()
    is_series = np.ndim(y) == 1 and y.dtype.names is None
    expected = clone(model).fit(X, pd.Series(y) if is_series else y)
    X = pl.from_pandas(X)
    found = clone(model).fit(X, pl.Series(y) if is_series else y)
    assert list(found.feature_names_in_) == list("abcdef")
    for method in ("predict", "predict_proba", "decision_function", "transform", "score"):
        if hasattr(expected, method):
            arguments = (y,) if method == "score" else ()
            now, before = (
                getattr(found, method)(X, *arguments),
                getattr(expected, method)(frame(), *arguments),
            )
            np.testing.assert_array_equal(now, before)


def test_a_selector_among_frames_of_polars():
    X = pl.from_pandas(frame())
    selector = (
        L0Selector(L0Classifier(k=3, solver=OMP)).set_output(transform="polars").fit(X, labels())
    )
    chosen = [
        name for name, selected in zip("abcdef", selector.get_support(), strict=True) if selected
    ]
    assert selector.transform(X).equals(X.select(chosen))


def test_copies_of_paths():
    X, y = features(), labels()
    chosen = L0Classifier(k="bic", solver=OMP, class_weight="balanced").fit(X, y)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(chosen)).path_.criteria, chosen.path_.criteria
    )


@pytest.mark.parametrize(("model", "y"), EVERY, ids=name_of)
def test_grid_search_in_a_pipeline_of_data_frames(model, y):
    X, y, place = frame(), y(), type(model).__name__.lower()
    steps = [LinearRegression()] if isinstance(model, L0Selector) else []
    pipeline = make_pipeline(StandardScaler(), clone(model), *steps).set_output(transform="pandas")
    ks = [1, 2]
    search = GridSearchCV(pipeline, {f"{place}__k": ks}, cv=3).fit(X, y)
    expected = [np.mean(scores(clone(pipeline).set_params(**{f"{place}__k": k}), X, y)) for k in ks]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], expected, rtol=1e-9)
    best = search.best_estimator_[place]
    assert list(best.feature_names_in_) == list("abcdef") and best.k_ == ks[np.argmax(expected)]


@pytest.mark.parametrize(("model", "y"), PREDICTORS, ids=name_of)
def test_predictions_of_samples_left_out(model, y):
    X, y = features(), y()
    found = cross_val_predict(model, X, y, cv=3)
    for train, held in check_cv(3, y, classifier=is_classifier(model)).split(X, y):
        np.testing.assert_array_equal(
            found[held], clone(model).fit(X[train], y[train]).predict(X[held])
        )


def test_processes_agree_with_one(monkeypatch):
    folder = jax.config.jax_compilation_cache_dir
    if folder:  # for what other runs of the tests have compiled
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", folder)
    X = features()
    here = [clone(model).fit(X, y()) for model, y in EVERY]
    there = Parallel(n_jobs=2)(delayed(clone(model).fit)(X, y()) for model, y in EVERY)
    for one, other in zip(here, there, strict=True):
        for name in ("coef_", "thresholds_", "cum_baseline_hazard_", "precision_", "support_"):
            if hasattr(one, name):
                np.testing.assert_allclose(
                    getattr(other, name), getattr(one, name), rtol=1e-6, atol=1e-9
                )


@pytest.mark.parametrize(("model", "y"), PREDICTORS, ids=name_of)
def test_weights_are_routed(model, y):
    X, y = features(), y()
    weights = np.random.default_rng(7).integers(0, 3, N).astype(float)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = (
            clone(model).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        )
        search = GridSearchCV(routed, {"k": [2]}, cv=3).fit(X, y, sample_weight=weights)
    expected = np.mean(scores(clone(model).set_params(k=2), X, y, weights))
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], expected, rtol=1e-9)
    assert abs(expected - np.mean(scores(clone(model).set_params(k=2), X, y))) > 1e-6


@pytest.mark.filterwarnings("ignore:.*MAX_STEPS:sklearn.exceptions.ConvergenceWarning")
def test_solvers_that_draw_random_numbers():
    X, y = features(), targets()
    solver = jaxht.HTSVRG(step_size=0.1)
    first, same = (
        L0Regressor(k=2, solver=solver, random_state=0).fit(X, y).coef_ for _ in range(2)
    )
    np.testing.assert_array_equal(first, same)


@pytest.mark.parametrize("name", ["two targets", "softmax", "graph"])
def test_neighbouring_k_share_a_program(name, caplog):
    if name == "graph":
        model, X, y = SparseGraphicalModel(), chain(), None
    else:
        model, X, y = clone(ALL[name][0]).set_params(solver=OMP), features(), ALL[name][1]()
    drop_programs()
    jax.clear_caches()
    programs = []
    for k in (1, 2, 3):
        caplog.clear()
        with jax.log_compiles(), caplog.at_level(logging.WARNING):
            assert clone(model).set_params(k=k).fit(X, y).k_ == k
        programs.append(len(re.findall(r"Compiling (?:jit\()?solve_prepared", caplog.text)))
    assert programs == [1, 0, 0]


# ---- displays ------------------------------------------------------------------------------------


@pytest.fixture
def axes(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    import matplotlib.pyplot as plt

    yield plt.subplots()[1]
    plt.close("all")


def test_paths_are_drawn(axes):
    X, y = frame(), targets()
    model = L0Regressor(k="bic", solver=OMP).fit(X, y)
    display = PathDisplay.from_estimator(model, ax=axes)
    assert display.ax_ is axes and display.figure_ is axes.figure and len(display.lines_) == D
    for line in display.lines_:
        np.testing.assert_array_equal(
            line.get_ydata(), model.path_.coefficients[:, "abcdef".index(line.get_label())]
        )
    (line,) = display.plot(kind="criteria").lines_
    assert display.ax_ is not axes
    np.testing.assert_array_equal(
        line.get_xydata(), np.stack([model.path_.k, model.path_.criteria], axis=1)
    )
    folds = L0MultiTaskRegressor(k="cv", k_max=2, solver=OMP).fit(X, two_targets())
    (line,) = PathDisplay.from_path(folds.path_, kind="criteria").lines_
    np.testing.assert_array_equal(line.get_ydata(), folds.path_.criteria)
    several = np.count_nonzero(folds.path_.coefficients.any(axis=(0, 1)))
    assert len(PathDisplay.from_estimator(folds).lines_) == 2 * several
    with pytest.raises(ValueError, match="must have chosen k"):
        PathDisplay.from_estimator(L0Regressor(k=1, solver=OMP).fit(X, y))
    with pytest.raises(ValueError, match="kind must be"):
        display.plot(kind="losses")
    graph = SparseGraphicalModel(k_max=6).fit(chain())
    with pytest.raises(ValueError, match="kind must be 'criteria'"):
        PathDisplay.from_estimator(graph)
    assert len(PathDisplay.from_estimator(graph, kind="criteria").lines_) == 1


def test_selections_are_drawn(axes):
    X, y = frame(), targets()
    model = L0Regressor(k=2, solver=OMP)
    display = SelectionDisplay.from_estimator(model, X, y, num_pairs=10, random_state=0, ax=axes)
    assert display.ax_ is axes and len(display.bars_) == D
    np.testing.assert_allclose([bar.get_height() for bar in display.bars_], display.frequencies)
    np.testing.assert_allclose(display.frequencies.sum(), 2)
    assert display.frequencies[1] == display.frequencies.max() and display.expected_false >= 0
    same = SelectionDisplay.from_estimator(model.fit(X, y), X, y, num_pairs=10, random_state=0)
    np.testing.assert_array_equal(same.frequencies, display.frequencies)
    patients = np.repeat(np.arange(N // 4), 4)
    by_patient = [
        model.stability_selection(X, y, sample_groups=labels, num_pairs=10, random_state=0)
        for labels in (patients, [f"patient {100 + label}" for label in patients])
    ]
    np.testing.assert_array_equal(by_patient[0].results.x, by_patient[1].results.x)
    assert np.any(
        by_patient[0].results.x
        != model.stability_selection(X, y, num_pairs=10, random_state=0).results.x
    )
    with pytest.raises(ValueError, match=r"sample_groups must have a label .* none at 3"):
        model.stability_selection(X, y, sample_groups=[1.0, 1.0, 1.0, np.nan, *patients[4:]])
    found = L0Classifier(k=2, solver=OMP).stability_selection(
        X, three_labels(), num_pairs=10, random_state=0
    )
    assert found.frequencies.shape == (D,)
    np.testing.assert_allclose([found.frequencies.sum(), found.mean_size], 2)
    for estimator in (ReducedRankRegressor(k=1), LinearRegression()):
        with pytest.raises(ValueError, match="selects features"):
            SelectionDisplay.from_estimator(estimator, X, y)
    assert not hasattr(ReducedRankRegressor(k=1), "stability_selection")
    with pytest.raises(ValueError, match="k must be an int"):
        SelectionDisplay.from_estimator(L0Regressor(), X, y)


def test_an_enum_of_polars_is_ordered():
    labels = ["low", "mid", "high"]
    y = pl.Series(labels * 10, dtype=pl.Enum(labels))
    X = np.random.default_rng(0).normal(size=(30, 3))
    with pytest.raises(ValueError, match="y must be ordered as its labels sort"):
        L0OrdinalClassifier(k=1).fit(X, y)


def test_every_half_has_its_own_intercept():
    """With one outlier among the targets the halves with and without it have other means. Huber's
    loss, of so large a delta the squared error, has a column of ones."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 5))
    y = X[:, 0] + 0.1 * rng.normal(size=30)
    y[0] += 100
    models = [
        L0Regressor(k=1, solver=OMP, **loss) for loss in ({}, {"loss": "huber", "delta": 1e6})
    ]
    squared, huber = [
        model.stability_selection(X, y, num_pairs=20, random_state=0) for model in models
    ]
    np.testing.assert_array_equal(squared.frequencies, huber.frequencies)
    # Of each pair one half is without the outlier, and finds the first feature.
    assert squared.frequencies[0] >= 0.45
    several = L0MultiTaskRegressor(k=1).stability_selection(
        X, np.stack([y, y], axis=1), num_pairs=20, random_state=0
    )
    assert several.frequencies[0] >= 0.45


def test_groups_are_not_drawn_under_names_of_features(axes):
    """Also where there are as many of them as features."""
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)), columns=list("abc"))
    options = {"num_pairs": 3, "random_state": 0, "ax": axes}
    y = X.a + X.b + 0.1 * np.random.default_rng(1).normal(size=30)
    pairs = L0Regressor(k=1, groups=[["b", "c"], ["a", "b"], ["a", "c"]])
    assert SelectionDisplay.from_estimator(pairs, X, y, **options).feature_names is None
    per_group = L0Regressor(k=1, groups=["u", "u", "v"], per_group=1, solver=OMP)
    names = SelectionDisplay.from_estimator(per_group, X, y, **options).feature_names
    assert list(names) == ["a", "b", "c"]
