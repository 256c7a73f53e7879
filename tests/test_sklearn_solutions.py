"""Solutions of estimators are those of other estimators, of SciPy, of loops and of enumeration."""

import functools
import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.sparse
import scipy.stats
from sklearn.base import clone
from sklearn.covariance import EmpiricalCovariance
from sklearn.linear_model import (
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
)
from sklearn.metrics import log_loss
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
    ReducedRankRegressor,
    SparseGraphicalModel,
)
from tests.estimators import (
    OMP,
    D,
    N,
    chain,
    costs,
    counts,
    features,
    grades,
    labels,
    lives,
    partial_likelihood,
    signal,
    targets,
    three_labels,
    two_targets,
)
from tests.util import precision

pytestmark = pytest.mark.usefixtures("all_quickly")


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


def test_hazards_within_strata(ties="efron"):
    X, y = features(), lives()
    time, event = y["weeks"], y["died"]
    names = np.array(["b", "a", "c"])[np.arange(N) % 3]
    weights = np.random.default_rng(3).integers(0, 3, N)
    model = L0CoxRegressor(k=2, solver=OMP, ties=ties)
    model.fit(X, y, sample_weight=weights, strata=names)
    assert model.strata_.tolist() == ["a", "b", "c"]
    numbers = np.searchsorted(model.strata_, names)
    columns = np.stack([time, event], axis=1)
    with precision("float64"):
        objective = jaxht.Cox(
            X, columns, weights=1.0 * weights, ties=ties, strata=numbers, offset=X @ model.coef_
        )
        slopes = objective.gradient(np.zeros(D), np.zeros(N))
    np.testing.assert_allclose(slopes[model.support_], 0, atol=1e-7)

    hazards = weights * np.exp(model.predict(X))
    expected = np.zeros((3, len(model.unique_times_)))
    for i, number in enumerate(numbers):
        if not event[i] or not weights[i]:
            continue
        at_risk = np.sum(hazards[(numbers == number) & (time >= time[i])])
        tied = (numbers == number) & (time == time[i]) & event & (weights > 0)
        before = np.count_nonzero(tied[:i]) if ties == "efron" else 0
        weight = np.mean(weights[tied]) if ties == "efron" else weights[i]
        at_risk = at_risk - before / np.count_nonzero(tied) * np.sum(hazards[tied])
        expected[number, model.unique_times_ >= time[i]] += weight / at_risk
    np.testing.assert_allclose(model.cum_baseline_hazard_, expected, rtol=1e-9)
    curves = model.predict_survival_function(X[:4], strata=names[:4])
    ratios = np.exp(model.predict(X[:4]))[:, None]
    np.testing.assert_allclose(curves, np.exp(-ratios * expected[numbers[:4]]), rtol=1e-9)

    each = []
    for number in range(3):
        own = (numbers == number) & (weights > 0)
        pairs = itertools.permutations(np.flatnonzero(own), 2)
        for i, j in pairs:
            if event[i] and (time[i] < time[j] or (time[i] == time[j] and not event[j])):
                each.append(
                    (weights[i] * weights[j], hazards[i] / weights[i] > hazards[j] / weights[j])
                )
    known, right = np.array(each).T
    score = model.score(X, y, sample_weight=weights, strata=names)
    np.testing.assert_allclose(score, np.average(right, weights=known))

    with pytest.raises(ValueError, match="strata must be labels that fit has seen; got 'd'"):
        model.predict_survival_function(X[:1], strata=["d"])
    with pytest.raises(ValueError, match="strata must be given"):
        model.predict_survival_function(X[:1])
    found = model.set_params(k="cv", k_max=3).fit(X, y, strata=names)
    assert found.path_.fold_losses.shape == (5, 4)
    stable = model.set_params(k=2).stability_selection(
        X, y, strata=names, num_pairs=3, random_state=0
    )
    assert stable.frequencies.shape == (D,)
    with pytest.raises(ValueError, match="strata must be None"):
        model.fit(X, y).predict_survival_function(X[:1], strata=["a"])


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
