"""The estimators of scikit-learn: its own checks, its own estimators, enumeration, and how they are
put together."""

import functools
import itertools
import logging
import pickle
import re
import subprocess
import sys
import warnings

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.optimize
import scipy.sparse
import scipy.stats
import sklearn
from joblib import Parallel, delayed
from sklearn.base import clone, is_classifier
from sklearn.covariance import EmpiricalCovariance
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
)
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit, check_cv, cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.fixes import parse_version

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

pytestmark = pytest.mark.usefixtures("all_quickly")
N, D, OMP = 60, 6, jaxht.OMP()

# The checks fit data of dozens of shapes, each of which is compiled: by the solver that compiles
# fastest. Rank is that of two features at most, and more features than samples have no one
# minimiser without a ridge.
CHECKED = [
    L0Regressor(solver=OMP),
    L0Regressor(k=0.1, loss="huber", solver=OMP),
    L0Classifier(k=2, solver=OMP),
    L0Classifier(k=2, loss="squared_hinge", solver=OMP),
    L0PoissonRegressor(k=0.5, solver=OMP),
    L0GammaRegressor(k=0.5, solver=OMP),
    L0OrdinalClassifier(k=2, solver=OMP),
    L0CoxRegressor(k=2, l2=0.01, solver=OMP),
    L0MultiTaskRegressor(
        k=0.3, solver=OMP
    ),  # 9 of 30 for 15 samples, which as many features fit but for rounding
    ReducedRankRegressor(k=1, l2=0.01),
    SparseGraphicalModel(k=0.5),
    L0Selector(L0Regressor(k=0.5, solver=OMP)),
]


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


@parametrize_with_checks(CHECKED, expected_failed_checks=fails)
def test_estimator(estimator, check):
    check(estimator)


# ---- data ----------------------------------------------------------------------------------------


def features():
    """In different units, about different means, correlated."""
    rng = np.random.default_rng(0)
    return (rng.normal(size=(N, D)) + rng.normal(size=(N, 1))) * [1, 10, 0.1, 1, 3, 1] + [
        0,
        50,
        1,
        -2,
        0,
        0,
    ]


def signal():
    X = features()
    Z = (X - X.mean(0)) / X.std(0)
    return Z[:, 1] - Z[:, 4] + 0.5 * np.random.default_rng(1).normal(size=N)


def targets():
    return 10 + 3 * signal()


def labels():
    return np.where(signal() > 0.3, "yes", "no")


def three_labels():
    return np.digitize(signal(), [-0.5, 0.5]) + 5


def counts():
    return np.random.default_rng(2).poisson(np.exp(0.5 * signal() + 1))


def costs():
    return np.random.default_rng(2).gamma(3, 100 * np.exp(0.5 * signal()))


def grades():
    return np.array(["a", "b", "c", "d"])[np.digitize(signal(), [-1, 0, 0.7])]


def lives():
    """A structured array: times with ties, some of them of censoring."""
    rng = np.random.default_rng(2)
    time, end = np.ceil(5 * rng.exponential(np.exp(-signal()))), np.ceil(rng.exponential(20, N))
    y = np.zeros(N, [("died", bool), ("weeks", float)])
    y["died"], y["weeks"] = time <= end, np.minimum(time, end)
    return y


def two_targets():
    return np.stack([targets(), targets() + features()[:, 0]], axis=1)


def name_of(argument):
    """The same in every process, unlike the address of a function."""
    return getattr(argument, "__name__", str(argument))


# ---- against other estimators, in double precision -----------------------------------------------


def minimise(loss, A, y):
    """Coefficients and intercept of the least sum of losses l(u, y), by SciPy."""

    def total(w):
        return np.sum(loss(A @ w[:-1] + w[-1], y))

    start = np.zeros(A.shape[1] + 1)
    options = {"maxiter": 20000, "xatol": 1e-10, "fatol": 1e-13, "maxfev": 40000}
    w = scipy.optimize.minimize(total, start, method="BFGS", options={"gtol": 1e-9}).x
    w = scipy.optimize.minimize(total, w, method="Nelder-Mead", options=options).x
    return w[:-1], w[-1]


def huber(u, y):
    size = np.abs(u - y)
    return np.where(size <= 1, size**2 / 2, size - 0.5)


def smoothed_hinge(u, y):
    short = np.clip(1 - y * u, 0, 1)
    return short * (1 - y * u - short / 2)


def refitted(model):
    return lambda A, y: (lambda fit: (fit.coef_, fit.intercept_))(model.fit(A, y))


logistic = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10000)
FITS = {
    "squared": (L0Regressor(), targets, refitted(LinearRegression())),
    "huber": (L0Regressor(loss="huber"), targets, functools.partial(minimise, huber)),
    "logistic": (L0Classifier(l2=0), labels, refitted(logistic)),
    "softmax": (L0Classifier(l2=0), three_labels, refitted(logistic)),
    "squared hinge": (
        L0Classifier(loss="squared_hinge", l2=0),
        labels,
        lambda A, y: minimise(
            lambda u, y: np.maximum(0, 1 - y * u) ** 2, A, np.where(y == "yes", 1, -1)
        ),
    ),
    "smoothed hinge": (
        L0Classifier(loss="smoothed_hinge", l2=0),
        labels,
        lambda A, y: minimise(smoothed_hinge, A, np.where(y == "yes", 1, -1)),
    ),
    "poisson": (
        L0PoissonRegressor(),
        counts,
        refitted(PoissonRegressor(alpha=0, tol=1e-12, max_iter=10000)),
    ),
    "gamma": (
        L0GammaRegressor(),
        costs,
        refitted(GammaRegressor(alpha=0, tol=1e-12, max_iter=10000)),
    ),
    "two targets": (L0MultiTaskRegressor(), two_targets, refitted(LinearRegression())),
}


@pytest.mark.parametrize("name", FITS)
def test_coefficients_are_those_of_a_refit_on_the_support(name):
    model, y, refit = FITS[name]
    X, y = features(), y()
    model = clone(model).set_params(k=3, solver=OMP).fit(X, y)
    assert model.k_ == model.support_.sum() == 3 and model.path_ is None
    S, Z = model.support_, (X - X.mean(0)) / X.std(0)
    coefficients, intercepts = refit(Z[:, S], y)
    np.testing.assert_allclose(
        model.coef_[..., S] * X.std(0)[S],
        coefficients.reshape(*model.coef_.shape[:-1], 3),
        atol=2e-5,
    )
    offset = model.intercept_ + model.coef_ @ X.mean(0)
    intercepts = intercepts - np.mean(intercepts) if name == "softmax" else intercepts
    offset = offset - np.mean(offset) if name == "softmax" else offset
    np.testing.assert_allclose(offset, intercepts, atol=2e-5)
    assert np.all(model.coef_[..., ~S] == 0) and model.coef_.dtype == np.float64


def odds(theta, w, A, ids):
    """Minus the logarithm of the likelihood of proportional odds, sample by sample."""
    bounds, total = [-np.inf, *theta, np.inf], 0.0
    for a, j in zip(A, ids, strict=True):
        total -= np.log(
            scipy.special.expit(bounds[j + 1] - a @ w) - scipy.special.expit(bounds[j] - a @ w)
        )
    return total


def test_ordered_classes_have_the_coefficients_and_thresholds_of_scipy():
    X, y = features(), grades()
    model = L0OrdinalClassifier(k=2, l2=0, solver=OMP).fit(X, y)
    assert model.classes_.tolist() == ["a", "b", "c", "d"] and model.support_.sum() == 2
    S, ids = model.support_, np.searchsorted(model.classes_, y)
    Z = (X[:, S] - X[:, S].mean(0)) / X[:, S].std(0)

    def total(v):
        return odds(v[0] + np.append(0, np.cumsum(np.exp(v[1:3]))), v[3:], Z, ids)

    v = scipy.optimize.minimize(total, [-1, 0, 0, 0, 0], method="BFGS", options={"gtol": 1e-5}).x
    theta, w = v[0] + np.append(0, np.cumsum(np.exp(v[1:3]))), v[3:] / X[:, S].std(0)
    np.testing.assert_allclose(model.coef_[S] * X[:, S].std(0), v[3:], atol=1e-4)
    np.testing.assert_allclose(model.thresholds_ - X.mean(0) @ model.coef_, theta, atol=1e-4)
    assert np.all(model.coef_[~S] == 0)
    theta, w = model.thresholds_, model.coef_[S]
    expected = [[np.exp(-odds(theta, w, [a], [j])) for j in range(4)] for a in X[:, S]]
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-9)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)).sum(1), 1, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), model.classes_[np.argmax(expected, axis=1)])
    assert model.score(X, y) == np.mean(model.predict(X) == y) > 0.5


def test_two_ordered_classes_are_two_classes():
    X, y = features(), labels()
    ordered, two = (
        of(k=2, l2=0.01, solver=OMP).fit(X, y) for of in (L0OrdinalClassifier, L0Classifier)
    )
    np.testing.assert_allclose(ordered.predict_proba(X), two.predict_proba(X), atol=1e-8)


def test_the_order_of_classes_is_that_of_their_labels():
    X, names = features(), ["low", "mid", "top"]
    ids = np.digitize(signal(), [-0.5, 0.5])
    model = L0OrdinalClassifier(k=1, solver=OMP)
    by_number = model.fit(X, ids).predict_proba(X)
    words = pd.Categorical.from_codes(ids, names, ordered=True)
    np.testing.assert_allclose(model.fit(X, words).predict_proba(X), by_number)
    with pytest.raises(ValueError, match="fit numbers, its codes"):
        model.fit(X, pd.Series(words.rename_categories(["low", "high", "top"])))
    weights = np.where(ids == 1, 0, 1)  # a class of no weight
    between = model.fit(X, ids, sample_weight=weights).predict_proba(X)
    assert np.all(between[:, 1] == 0)
    np.testing.assert_allclose(between.sum(1), 1)
    above = model.fit(X, ids, sample_weight=np.where(ids == 2, 0, 1)).predict_proba(X)
    assert np.all(above[:, 2] == 0) and np.all(above[:, :2] > 0)


def partial_likelihood(u, time, event):
    """Minus its logarithm, event by event."""
    return sum(np.log(np.sum(np.exp(u[time >= time[i]]))) - u[i] for i in np.flatnonzero(event))


def test_hazards_are_those_of_loops():
    X, y = features(), lives()
    time, event = y["weeks"], y["died"]
    model = L0CoxRegressor(k=3, solver=OMP).fit(X, y)
    S = model.support_
    Z = (X[:, S] - X[:, S].mean(0)) / X[:, S].std(0)
    found = scipy.optimize.minimize(
        lambda w: partial_likelihood(Z @ w, time, event), np.zeros(3), tol=1e-9
    )
    np.testing.assert_allclose(model.coef_[S] * X[:, S].std(0), found.x, atol=1e-5)
    u = model.predict(X)
    np.testing.assert_allclose(u, (X - X.mean(0)) @ model.coef_, atol=1e-12)
    hazard, hazards = 0.0, []
    for t in sorted(set(time)):
        hazard += np.sum(event & (time == t)) / np.sum(np.exp(u[time >= t]))
        hazards.append(hazard)
    assert model.unique_times_.tolist() == sorted(set(time)) and len(hazards) < N
    np.testing.assert_allclose(model.cum_baseline_hazard_, hazards, rtol=1e-9)
    np.testing.assert_allclose(
        model.predict_survival_function(X[:3]), np.exp(-np.outer(np.exp(u[:3]), hazards)), rtol=1e-9
    )
    first, last = min(time), max(time)
    steps = model.predict_cumulative_hazard_function(
        X[:1], [first - 1, first, last - 1e-9, last, last + 9]
    )[0]
    ratio = np.exp(u[0])
    np.testing.assert_allclose(
        steps, ratio * np.array([0, hazards[0], hazards[-2], hazards[-1], hazards[-1]])
    )


def test_concordance_is_that_of_all_pairs():
    X, y = features(), lives()
    time, event, weights = y["weeks"], y["died"], np.random.default_rng(3).integers(0, 3, N)
    model = L0CoxRegressor(k=1, solver=OMP).fit(X, y)
    A = X.round(0 if model.support_[1] else 1)  # ties
    u = model.predict(A)
    right = known = 0
    for i, j in itertools.permutations(range(N), 2):
        if event[i] and (time[i] < time[j] or (time[i] == time[j] and not event[j])):
            pair = weights[i] * weights[j]
            known, right = (
                known + pair,
                right + pair * (1 if u[i] > u[j] else 0.5 if u[i] == u[j] else 0),
            )
    assert len(set(u)) < N and 0.5 < right / known < 1
    np.testing.assert_allclose(model.score(A, y, sample_weight=weights), right / known, rtol=1e-12)
    rows = np.repeat(np.arange(N), weights)
    np.testing.assert_allclose(model.score(A[rows], y[rows]), right / known, rtol=1e-12)
    with pytest.raises(ValueError, match="who had the event first"):
        model.score(X[:2], [[1, 0], [2, 0]])


def test_times_and_events_of_all_kinds():
    X, y = features(), lives()
    model = L0CoxRegressor(k=2, solver=OMP)
    expected = model.fit(X, y).coef_
    columns = np.stack([y["weeks"], y["died"]], axis=1)
    turned = np.zeros(N, [("t", "i8"), ("e", bool)])
    turned["t"], turned["e"] = y["weeks"], y["died"]
    for same in (columns, columns.tolist(), turned, pd.DataFrame(columns, columns=["t", "e"])):
        np.testing.assert_array_equal(model.fit(X, same).coef_, expected)
    all_died = np.stack([y["weeks"], np.ones(N)], axis=1)
    np.testing.assert_array_equal(model.fit(X, y["weeks"]).coef_, model.fit(X, all_died).coef_)
    # Times that only float64 tells apart.
    close = 2.0**30 + y["weeks"]
    single = model.fit(X.astype("f4"), np.stack([close, y["died"]], axis=1))
    assert single.coef_.dtype == single.cum_baseline_hazard_.dtype == np.float32
    np.testing.assert_allclose(single.coef_, expected, rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(single.unique_times_, np.unique(close))


def test_probabilities_are_those_of_scikit_learn():
    X = features()
    for y in (labels(), three_labels()):
        model = L0Classifier(k=D, l2=1e-2, solver=OMP).fit(X, y)
        own = LogisticRegression(C=1 / (1e-2 * N), tol=1e-12, max_iter=10000)
        scaled = make_pipeline(StandardScaler(), own).fit(X, y)
        np.testing.assert_allclose(model.predict_proba(X), scaled.predict_proba(X), atol=1e-6)
        np.testing.assert_allclose(
            model.predict_log_proba(X), np.log(model.predict_proba(X)), rtol=1e-9
        )
        np.testing.assert_array_equal(model.predict(X), scaled.predict(X))
        np.testing.assert_allclose(
            model.decision_function(X), scaled.decision_function(X), atol=1e-4
        )
    assert not hasattr(L0Classifier(loss="squared_hinge"), "predict_proba")


def test_the_support_is_the_best_of_all():
    """By enumeration of the 20 supports of 3 in 6 features, for squares and for the logistic
    loss."""
    X, y = features(), targets()
    supports = list(map(list, itertools.combinations(range(D), 3)))
    residuals = [
        np.sum((y - LinearRegression().fit(X[:, S], y).predict(X[:, S])) ** 2) for S in supports
    ]
    best = L0Regressor(k=3).fit(X, y)
    assert np.flatnonzero(best.support_).tolist() == supports[np.argmin(residuals)]

    Z, y = StandardScaler().fit_transform(X), labels()
    l2 = 1e-3

    def value(S):
        fit = LogisticRegression(C=1 / (l2 * N), tol=1e-10, max_iter=1000).fit(Z[:, S], y)
        return log_loss(y, fit.predict_proba(Z[:, S])) + l2 / 2 * np.sum(fit.coef_**2)

    best = L0Classifier(k=3, l2=l2).fit(X, y)
    assert np.flatnonzero(best.support_).tolist() == supports[np.argmin(list(map(value, supports)))]


def test_coefficients_of_reduced_rank_are_those_of_the_theorem():
    """Without a ridge: least squares, projected on the leading right singular vectors of the fitted
    values."""
    X = features()
    Y = np.stack([targets(), *np.random.default_rng(3).normal(size=(3, N)), signal()], axis=1)
    full = LinearRegression().fit(X, Y)
    V = np.linalg.svd(full.predict(X) - Y.mean(0), full_matrices=False)[2][:2]
    model = ReducedRankRegressor(k=2).fit(X, Y)
    np.testing.assert_allclose(model.coef_ * X.std(0), (V.T @ V @ full.coef_) * X.std(0), atol=1e-6)
    np.testing.assert_allclose(model.predict(X).mean(0), Y.mean(0), rtol=1e-9)
    assert np.linalg.matrix_rank(model.coef_) == model.k_ == 2


def test_entries_are_chosen_one_by_one():
    X, Y = features(), two_targets()
    model = L0MultiTaskRegressor(k=5, sparsity="entries", solver=OMP).fit(X, Y)
    assert np.count_nonzero(model.coef_) == 5
    for row, y in zip(model.coef_, Y.T, strict=True):
        np.testing.assert_allclose(
            row[row != 0], LinearRegression().fit(X[:, row != 0], y).coef_, rtol=1e-6
        )


def chain(p=5):
    precision = 2 * np.eye(p) - 0.9 * (np.eye(p, k=1) + np.eye(p, k=-1))
    X = np.random.default_rng(4).multivariate_normal(
        np.zeros(p), np.linalg.inv(precision), size=300
    )
    return X * np.arange(1, p + 1) + 7


def test_graphs():
    """The minimum on a graph: its covariance is the empirical one on the edges and the diagonal."""
    X = chain()
    empirical = EmpiricalCovariance().fit(X)
    for k in (4, "ebic", "bic", "cv"):
        model = SparseGraphicalModel(k=k).fit(X)
        if k == 4:
            assert model.k_ == 4 and model.path_ is None
        else:
            assert model.k_ >= 4 and model.path_.k[np.argmin(model.path_.criteria)] == model.k_
        edges = model.precision_ != 0
        np.testing.assert_array_equal(np.triu(model.support_, 1).sum(), model.k_)
        np.testing.assert_array_equal(edges, model.support_ | np.eye(5, dtype=bool))
        assert np.all(np.diagonal(model.support_, 1))
        np.testing.assert_allclose(
            model.covariance_[edges], empirical.covariance_[edges], rtol=1e-5
        )
        np.testing.assert_allclose(model.covariance_ @ model.precision_, np.eye(5), atol=1e-8)
        np.testing.assert_allclose(model.location_, X.mean(0))
    full = SparseGraphicalModel(k=1.0).fit(X)
    np.testing.assert_allclose(full.score(X), empirical.score(X), rtol=1e-8)
    assert full.mahalanobis(X).shape == (300,)


def test_criteria_of_graphs_are_likelihoods_and_prices():
    X = chain()
    n, p = X.shape
    model = SparseGraphicalModel(k="ebic").fit(X)
    free = n * (p * np.log(2 * np.pi) + np.sum(np.log(X.var(0))))  # the constants, and the units
    for k, W, criterion in zip(
        model.path_.k, model.path_.precisions, model.path_.criteria, strict=True
    ):
        assert np.count_nonzero(np.triu(W, 1)) == k
        likelihood = scipy.stats.multivariate_normal.logpdf(X, X.mean(0), np.linalg.inv(W)).sum()
        np.testing.assert_allclose(
            criterion, -2 * likelihood - free + k * (np.log(n) + 2 * np.log(p)), rtol=1e-6
        )


# ---- what counts ---------------------------------------------------------------------------------


def test_the_intercept_is_not_counted_and_not_penalised():
    X, y = features(), targets()
    for model, z in (
        (L0Regressor(k=0, solver=OMP), y),
        (L0PoissonRegressor(k=0, solver=OMP), counts()),
    ):
        np.testing.assert_allclose(model.fit(X, z).predict(X), np.mean(z), rtol=1e-9)
    model = L0Classifier(k=0, l2=10.0, solver=OMP).fit(X, labels())
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], np.mean(labels() == "yes"), rtol=1e-6)
    model = L0Regressor(k=1, fit_intercept=False, solver=OMP).fit(X, targets())
    j = np.flatnonzero(model.support_)
    assert model.intercept_ == 0
    np.testing.assert_allclose(
        model.coef_[j], LinearRegression(fit_intercept=False).fit(X[:, j], targets()).coef_
    )


@pytest.mark.parametrize(
    "model",
    [L0Regressor(k=2), L0Regressor(k=2, l2=0.1, loss="huber"), L0Regressor(k="cv")],
    ids=str,
)
def test_units_do_not_matter(model):
    X, y = features(), targets()
    scale, shift = np.array([1e3, 1e-3, 1, 5, 7, 1e-2]), np.arange(D)
    first, second = (clone(model).set_params(solver=OMP).fit(A, y) for A in (X, X * scale + shift))
    np.testing.assert_array_equal(first.support_, second.support_)
    np.testing.assert_allclose(first.coef_, second.coef_ * scale, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(first.predict(X), second.predict(X * scale + shift), rtol=1e-7)


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (L0Regressor(k="ebic"), targets),
        (L0Classifier(k="bic", class_weight="balanced"), labels),
        (L0PoissonRegressor(k="aic"), counts),
        (ReducedRankRegressor(k="bic"), two_targets),
    ],
    ids=name_of,
)
def test_weights_repeat_samples(model, y):
    X, y = features(), y()
    times = np.random.default_rng(5).integers(0, 3, N)
    model = (
        model if isinstance(model, ReducedRankRegressor) else clone(model).set_params(solver=OMP)
    )
    weighted = clone(model).fit(X, y, sample_weight=times)
    repeated = clone(model).fit(np.repeat(X, times, axis=0), np.repeat(y, times, axis=0))
    assert weighted.k_ == repeated.k_
    np.testing.assert_allclose(weighted.path_.criteria, repeated.path_.criteria, rtol=1e-7)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(weighted.intercept_, repeated.intercept_, rtol=1e-5)


def test_class_weights_are_weights_of_samples():
    X, y = features(), labels()
    weights = {"yes": 3.0, "no": 1.0}
    by_class = L0Classifier(k=2, class_weight=weights, solver=OMP).fit(X, y)
    by_sample = L0Classifier(k=2, solver=OMP).fit(
        X, y, sample_weight=[weights[label] for label in y]
    )
    np.testing.assert_allclose(by_class.coef_, by_sample.coef_, rtol=1e-9)
    balanced = L0Classifier(k=2, class_weight="balanced", solver=OMP).fit(X, y)
    inverse = {label: 1 / np.sum(y == label) for label in ("yes", "no")}
    by_sample = L0Classifier(k=2, solver=OMP).fit(
        X, y, sample_weight=[inverse[label] for label in y]
    )
    np.testing.assert_allclose(balanced.coef_, by_sample.coef_, rtol=1e-6)


def test_groups_enter_together():
    X, y = features(), targets()
    groups = ["a", "b", "b", "c", "c", "c"]
    model = L0Regressor(k=2, groups=groups).fit(X, y)
    chosen = [[0, 1, 2], [0, 3, 4, 5], [1, 2, 3, 4, 5]]
    best = min(
        chosen, key=lambda S: np.sum((y - LinearRegression().fit(X[:, S], y).predict(X[:, S])) ** 2)
    )
    assert np.flatnonzero(model.support_).tolist() == best and model.k_ == 2
    for of in (L0Classifier, L0MultiTaskRegressor):
        y = three_labels() if of is L0Classifier else two_targets()
        found = of(k=1, groups=groups, solver=OMP).fit(X, y)
        assert len({groups[j] for j in np.flatnonzero(found.support_)}) == 1
        assert found.support_.sum() == groups.count(groups[np.argmax(found.support_)])


def test_features_that_are_always_in():
    X = pd.DataFrame(features(), columns=list("abcdef"))
    y = targets()
    for always in (["a", "f"], [0, 5], [0, -1], np.arange(D) % 5 == 0):
        model = L0Regressor(k=3, always=always, solver=OMP).fit(X, y)
        assert model.support_[[0, 5]].all() and model.support_.sum() == 3
    assert list(model.feature_names_in_) == list("abcdef")
    model = L0Classifier(k="bic", always="f", solver=OMP).fit(X, labels())
    assert model.support_[5] and model.path_.k[0] == 1
    assert L0MultiTaskRegressor(k=2, always=[3], solver=OMP).fit(X, two_targets()).support_[3]


def test_bounds_are_in_the_units_of_the_coefficients():
    X, y = features(), targets()
    model = L0Regressor(k=3, nonnegative=True, solver=OMP).fit(X, y)
    S = model.support_
    fit = scipy.optimize.nnls((X - X.mean(0))[:, S], y - y.mean())[0]
    np.testing.assert_allclose(model.coef_[S], fit, rtol=1e-6, atol=1e-9)
    least, most = np.full(D, -0.2), 0.3
    model = L0Regressor(k=D, bounds=(least, most), solver=OMP).fit(X, y)
    centred = X - X.mean(0)
    expected = scipy.optimize.lsq_linear(
        centred / X.std(0), y - y.mean(), (least * X.std(0), most * X.std(0))
    ).x
    np.testing.assert_allclose(model.coef_ * X.std(0), expected, atol=1e-5)
    free = L0Classifier(k=2, nonnegative=True, solver=OMP).fit(X, labels())
    assert np.all(free.coef_ >= 0) and free.intercept_ < 0  # of features about 50


def test_fractions_of_the_features():
    X, y = features(), targets()
    assert [
        L0Regressor(k=k, solver=OMP).fit(X, y).k_
        for k in (0.01, 0.5, 0.99, 1.0, np.float32(0.5), np.int64(2))
    ] == [
        1,
        3,
        5,
        6,
        3,
        2,
    ]


def test_a_certificate_bounds_the_best_value():
    X, y = features(), targets()
    l2 = 0.2
    model = L0Regressor(k=2, l2=l2, certify=True).fit(X, y)
    Z, r = StandardScaler().fit_transform(X), y - y.mean()

    def value(S):
        w = np.linalg.solve(Z[:, S].T @ Z[:, S] / N + l2 * np.eye(2), Z[:, S].T @ r / N)
        return np.mean((Z[:, S] @ w - r) ** 2) / 2 + l2 / 2 * w @ w

    best = min(value(list(S)) for S in itertools.combinations(range(D), 2))
    bound = model.certificate_
    assert bound.lower <= best * (1 + 1e-12) and best <= bound.value * (1 + 1e-12)
    np.testing.assert_allclose(bound.value, best, rtol=1e-6)
    with pytest.raises(ValueError, match="fit_intercept=False"):
        L0Classifier(k=2, certify=True, solver=OMP).fit(X, labels())


# ---- offsets -------------------------------------------------------------------------------------

ALL = {
    "squared": (L0Regressor(), targets),
    "huber": (L0Regressor(loss="huber"), targets),
    "logistic": (L0Classifier(l2=0), labels),
    "squared hinge": (L0Classifier(loss="squared_hinge", l2=0), labels),
    "smoothed hinge": (L0Classifier(loss="smoothed_hinge", l2=0), labels),
    "softmax": (L0Classifier(l2=0), three_labels),
    "ordinal": (L0OrdinalClassifier(l2=0), grades),
    "poisson": (L0PoissonRegressor(), counts),
    "gamma": (L0GammaRegressor(), costs),
    "cox": (L0CoxRegressor(), lives),
    "two targets": (L0MultiTaskRegressor(), two_targets),
    "rank": (ReducedRankRegressor(), two_targets),
}


def predictions(model, X, **options):
    """What a model says of samples."""
    return getattr(model, "predict_proba", getattr(model, "decision_function", model.predict))(
        X, **options
    )


@pytest.mark.parametrize("name", ALL)
def test_an_offset_is_a_part_of_the_linear_predictor(name):
    """Where all features are in, coefficients make up for one that is linear in them, and
    predictions stay."""
    model, y = ALL[name]
    X, y = features(), y()
    model = clone(model).set_params(k=2 if name == "rank" else D)
    if name != "rank":
        model.set_params(solver=OMP)
    outputs = {"softmax": (3,), "two targets": (2,), "rank": (2,)}.get(name, ())
    B = (0.5 * np.random.default_rng(8).normal(size=(*outputs, D)) / X.std(0)).T
    offset = (X - X.mean(0)) @ B
    plain, moved = clone(model).fit(X, y), clone(model).fit(X, y, offset=offset)
    own = B.T - B.T.mean(axis=0) if name == "softmax" else B.T
    scale = X.std(0)
    np.testing.assert_allclose(moved.coef_ * scale, (plain.coef_ - own) * scale, atol=2e-5)
    np.testing.assert_allclose(
        predictions(moved, X, offset=offset), predictions(plain, X), rtol=1e-4, atol=2e-5
    )
    assert np.max(np.abs(predictions(moved, X) - predictions(plain, X))) > 0.01
    np.testing.assert_allclose(moved.score(X, y, offset=offset), plain.score(X, y), rtol=1e-4)
    single = clone(model).fit(X.astype("f4"), y, offset=offset)
    assert single.coef_.dtype == np.float32
    assert predictions(single, X.astype("f4"), offset=offset).dtype == np.float32
    np.testing.assert_allclose(single.coef_ * scale, moved.coef_ * scale, rtol=0.02, atol=0.02)
    with pytest.raises(ValueError, match=r"offset must have shape \(60"):
        model.fit(X, y, offset=offset[1:])
    with pytest.raises(ValueError, match=r"offset must have shape \(60"):
        moved.predict(X, offset=1.0)


def exposures():
    return np.random.default_rng(9).uniform(0.1, 3, N)


def test_exposures_of_counts():
    """Counts over exposures with these as weights have the same likelihood."""
    X, exposure = features(), exposures()
    y = np.random.default_rng(10).poisson(exposure * np.exp(signal() / 2 + 1))
    model = L0PoissonRegressor(k=3, solver=OMP).fit(X, y, offset=np.log(exposure))
    S = model.support_
    rates = PoissonRegressor(alpha=0, tol=1e-12, max_iter=10000)
    rates.fit((X / X.std(0))[:, S], y / exposure, sample_weight=exposure)
    np.testing.assert_allclose(model.coef_[S] * X.std(0)[S], rates.coef_, atol=2e-5)
    np.testing.assert_allclose(model.predict(X), rates.predict((X / X.std(0))[:, S]), rtol=1e-4)
    np.testing.assert_allclose(
        model.predict(X, offset=np.log(exposure)), exposure * model.predict(X)
    )
    frame_of = pd.Series(np.log(exposure))
    np.testing.assert_array_equal(clone(model).fit(X, y, offset=frame_of).coef_, model.coef_)


@pytest.mark.parametrize("name", ["squared", "two targets", "rank"])
def test_squared_errors_are_those_of_targets_less_the_offset(name):
    model, y = ALL[name]
    X, y = features(), y()
    offset = np.random.default_rng(11).normal(size=y.shape)
    chosen = {} if name == "rank" else {"solver": OMP}
    for k in (2, "bic", "cv"):
        model = clone(model).set_params(k=k, **chosen)
        ours, theirs = clone(model).fit(X, y, offset=offset), clone(model).fit(X, y - offset)
        assert ours.k_ == theirs.k_
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9)
        np.testing.assert_allclose(
            ours.predict(X, offset=offset), theirs.predict(X) + offset, rtol=1e-9
        )


def test_offsets_in_the_choice_of_k():
    X, exposure = features(), exposures()
    y, offset = (
        np.random.default_rng(10).poisson(exposure * np.exp(signal() / 2 + 1)),
        np.log(exposure),
    )
    weights = np.random.default_rng(12).integers(0, 3, N)
    model, data = (
        L0PoissonRegressor(solver=OMP, k_max=3),
        {"sample_weight": weights, "offset": offset},
    )
    chosen = clone(model).set_params(k="bic").fit(X, y, **data)
    losses, size = [], weights.sum()
    for k in range(4):
        mean = clone(model).set_params(k=k).fit(X, y, **data).predict(X, offset=offset)
        losses.append(np.sum(weights * (mean - y * np.log(mean))))
    expected = 2 * np.array(losses) + np.arange(4) * np.log(size)
    np.testing.assert_allclose(chosen.path_.criteria, expected, rtol=1e-7)
    folds = []
    for train, held in KFold(3).split(X):
        fits = [
            clone(model)
            .set_params(k=k)
            .fit(X[train], y[train], weights[train], offset[train])
            .predict(X, offset)[held]
            for k in range(4)
        ]
        folds.append(
            [np.average(mean - y[held] * np.log(mean), weights=weights[held]) for mean in fits]
        )
    chosen = clone(model).set_params(k="cv", cv=3).fit(X, y, **data)
    np.testing.assert_allclose(chosen.path_.fold_losses, folds, rtol=1e-6)
    assert chosen.k_ == np.argmin(np.mean(folds, axis=0))


def test_offsets_are_routed():
    X, offset = features(), np.log(exposures())
    y = np.random.default_rng(10).poisson(np.exp(offset + signal() / 2 + 1))
    with sklearn.config_context(enable_metadata_routing=True):
        model = (
            L0PoissonRegressor(solver=OMP)
            .set_fit_request(offset=True)
            .set_score_request(offset=True)
        )
        search = GridSearchCV(model, {"k": [1, 2]}, cv=3).fit(X, y, offset=offset)
        plain = GridSearchCV(L0PoissonRegressor(solver=OMP), {"k": [1, 2]}, cv=3).fit(X, y)
    expected = [
        L0PoissonRegressor(k=k, solver=OMP)
        .fit(X[train], y[train], offset=offset[train])
        .score(X[held], y[held], offset=offset[held])
        for k in (1, 2)
        for train, held in KFold(3).split(X)
    ]
    found = search.cv_results_["mean_test_score"]
    np.testing.assert_allclose(found, np.mean(np.reshape(expected, (2, 3)), axis=1), rtol=1e-9)
    assert np.all(found > plain.cv_results_["mean_test_score"] + 0.1)


def test_offsets_of_selections():
    X, y = features(), targets()
    offset = -3 * (X[:, 4] - X[:, 4].mean()) / X[:, 4].std()
    assert L0Regressor(k=1, solver=OMP).fit(X, y).support_[4]
    known = L0Selector(L0Regressor(k=1, solver=OMP)).fit(X, y, offset=offset)
    assert known.get_support(indices=True).tolist() == [1]
    display = SelectionDisplay.from_estimator(
        known.estimator_, X, y, offset=offset, num_pairs=10, random_state=0
    )
    same = SelectionDisplay.from_estimator(
        known.estimator_, X, y - offset, num_pairs=10, random_state=0
    )
    np.testing.assert_array_equal(display.frequencies, same.frequencies)
    assert np.argmax(display.frequencies) == 1


# ---- the choice of k -----------------------------------------------------------------------------


def deviances(model, X, y):
    """-2 log L of the fits for each k, up to a constant."""
    for k in range(4):
        fit = clone(model).set_params(k=k).fit(X, y)
        mean = None if isinstance(model, L0Classifier) else fit.predict(X)
        if isinstance(model, L0Regressor):
            yield N * np.log(np.mean((mean - y) ** 2))
        elif isinstance(model, L0PoissonRegressor):
            yield 2 * np.sum(mean - y * np.log(mean))
        elif isinstance(model, L0GammaRegressor):

            def total(shape, mean=mean):
                return -2 * np.sum(
                    scipy.stats.gamma.logpdf(y, shape, scale=mean / shape) + np.log(y)
                )

            yield scipy.optimize.minimize_scalar(total, bounds=(0.5, 50), method="bounded").fun
        elif isinstance(model, L0CoxRegressor):
            yield 2 * partial_likelihood(mean, y["weeks"], y["died"])
        else:
            yield 2 * log_loss(y, fit.predict_proba(X), normalize=False)


PRICES = {
    "aic": lambda k, size, n: 2 * size,
    "bic": lambda k, size, n: size * np.log(n),
    "ebic": lambda k, size, n: size * np.log(n) + 2 * np.log(scipy.special.binom(D, k)),
    "gic": lambda k, size, n: size * np.log(D) * np.log(np.log(n)),
    "sic": lambda k, size, n: size * np.log(D) * np.log(np.log(n)),
}
LIKELIHOODS = {
    "squared": (L0Regressor(), targets),
    "poisson": (L0PoissonRegressor(), counts),
    "gamma": (L0GammaRegressor(), costs),
    "softmax": (L0Classifier(), three_labels),
    "ordinal": (L0OrdinalClassifier(), grades),
    "cox": (L0CoxRegressor(), lives),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_criteria_choose_as_a_loop_does(name):
    model, y = LIKELIHOODS[name]
    X, y, model = features(), y(), clone(model).set_params(solver=OMP)
    fits, outputs = np.array(list(deviances(model, X, y))), 2 if name == "softmax" else 1
    n = y["died"].sum() if name == "cox" else N
    for criterion, price in PRICES.items():
        chosen = clone(model).set_params(k=criterion, k_max=3).fit(X, y)
        expected = fits + [price(k, k * outputs, n) for k in range(4)]
        np.testing.assert_allclose(chosen.path_.criteria, expected, rtol=1e-6, atol=1e-5)
        assert chosen.k_ == np.argmin(expected) == chosen.support_.sum()
        np.testing.assert_allclose(chosen.path_.coefficients[chosen.k_], chosen.coef_)
        own = chosen.thresholds_ if name == "ordinal" else chosen.intercept_
        np.testing.assert_allclose(chosen.path_.intercepts[chosen.k_], own)


@pytest.mark.parametrize(
    "cv", [None, 3, ShuffleSplit(4, random_state=0)], ids=["5", "3", "shuffled"]
)
def test_cross_validation_chooses_as_a_loop_does(cv):
    X, y = features(), targets()
    model = L0Regressor(k="cv", cv=cv, k_max=4, solver=OMP).fit(X, y)
    splits = cv if isinstance(cv, ShuffleSplit) else KFold(cv or 5)
    losses = []
    for train, held in splits.split(X):
        fits = [L0Regressor(k=k, solver=OMP).fit(X[train], y[train]) for k in range(5)]
        losses.append([np.mean((fit.predict(X[held]) - y[held]) ** 2) / 2 for fit in fits])
    np.testing.assert_allclose(model.path_.fold_losses, losses, rtol=1e-7)
    np.testing.assert_allclose(model.path_.criteria, np.mean(losses, axis=0), rtol=1e-7)
    assert model.k_ == np.argmin(np.mean(losses, axis=0))


def test_the_default_search_begins_at_the_path():
    X, y = features(), targets()
    model = L0Regressor().fit(X, y)
    np.testing.assert_array_equal(model.support_, L0Regressor(k=model.k_).fit(X, y).support_)
    assert model.path_.k.tolist() == list(range(D + 1))
    assert np.all(np.diff(model.path_.losses) <= 0)
    assert L0Regressor(k_max=2).fit(X, y).path_.k.tolist() == [0, 1, 2]


# ---- data of all kinds ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [L0Regressor(k=3), L0Classifier(k=3), L0Regressor(k="cv")], ids=str
)
def test_sparse_data_of_every_format_are_not_made_dense(model, monkeypatch):
    X = features() * (np.random.default_rng(6).random((N, D)) < 0.6)
    y = labels() if isinstance(model, L0Classifier) else targets()
    dense = clone(model).set_params(solver=OMP).fit(X, y)
    fitted = dense.predict(X)
    kinds = [
        f"{name}_{of}"
        for name in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")
        for of in ("array", "matrix")
    ]
    data = [getattr(scipy.sparse, kind)(X) for kind in kinds]

    def refuse(*args, **kwargs):
        raise AssertionError("made dense")

    for of in {base for kind in data for base in type(kind).__mro__}:
        for name in ("toarray", "todense"):
            if name in vars(of):
                monkeypatch.setattr(of, name, refuse)
    for A in data:
        found = clone(model).set_params(solver=OMP).fit(A, y)
        np.testing.assert_allclose(found.coef_, dense.coef_, rtol=1e-6, atol=1e-9)
        np.testing.assert_array_equal(found.support_, dense.support_)
        if isinstance(model, L0Classifier):
            np.testing.assert_array_equal(found.predict(A), fitted)
        else:
            np.testing.assert_allclose(found.predict(A), fitted, rtol=1e-7)


@pytest.mark.parametrize("enabled", [False, True])
def test_precision_is_that_of_the_data(enabled):
    """Whatever JAX's default is, which is left as it was."""
    X, y = features(), targets()
    with (
        jax.enable_x64(enabled)
        if hasattr(jax, "enable_x64")
        else jax.experimental.enable_x64(enabled)
    ):
        before = jax.numpy.ones(1).dtype
        double, single, integers = (
            L0Regressor(k=2, solver=OMP).fit(A, y) for A in (X, X.astype("f4"), X.astype(int))
        )
        assert jax.numpy.ones(1).dtype == before
    assert [m.coef_.dtype for m in (double, single, integers)] == [
        np.float64,
        np.float32,
        np.float64,
    ]
    assert single.predict(X.astype("f4")).dtype == np.float32
    np.testing.assert_allclose(single.coef_, double.coef_, rtol=1e-3)
    S = double.support_
    np.testing.assert_allclose(
        double.coef_[S], LinearRegression().fit(X[:, S], y).coef_, rtol=1e-10
    )


def test_a_warning_where_there_is_no_minimiser():
    X = features()
    y = X[:, 1] > 50
    with pytest.warns(ConvergenceWarning, match=r"L0Classifier: REFIT_FAILED.*give l2 > 0"):
        L0Classifier(k=2, l2=0, solver=OMP).fit(X, y)


# ---- put together --------------------------------------------------------------------------------


def frame():
    return pd.DataFrame(features(), columns=list("abcdef"))


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


TARGETS = [
    targets,
    targets,
    labels,
    labels,
    counts,
    costs,
    grades,
    lives,
    two_targets,
    two_targets,
    lambda: None,
    targets,
]
EVERY = list(zip(CHECKED, TARGETS, strict=True))
PREDICTORS = [(model, y) for model, y in EVERY if hasattr(model, "predict")]


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
    jax.clear_caches()
    programs = []
    for k in (1, 2, 3):
        caplog.clear()
        with jax.log_compiles(), caplog.at_level(logging.WARNING):
            assert clone(model).set_params(k=k).fit(X, y).k_ == k
        programs.append(len(re.findall(r"Compiling (?:jit\()?_solve", caplog.text)))
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
    found = L0Classifier(k=2, solver=OMP).stability_selection(
        X, three_labels(), num_pairs=10, random_state=0
    )
    assert found.frequencies.shape == (D,)
    np.testing.assert_allclose([found.frequencies.sum(), found.mean_size], 2)
    for estimator in (ReducedRankRegressor(k=1), LinearRegression()):
        with pytest.raises(ValueError, match="selects features"):
            SelectionDisplay.from_estimator(estimator, X, y)
    with pytest.raises(ValueError, match="LowRank has no coordinates"):
        ReducedRankRegressor(k=1).stability_selection(X, two_targets())
    with pytest.raises(ValueError, match="k must be an int"):
        SelectionDisplay.from_estimator(L0Regressor(), X, y)


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
    "bounds of groups": (
        "count coefficients",
        L0Regressor(k=1, nonnegative=True, groups=[0, 0, 1, 1, 2, 2]),
        targets,
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
