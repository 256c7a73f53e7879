"""Arguments of estimators: what k counts, units, weights, bounds, offsets, and the choice of k."""

import functools
import itertools

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.sparse
import scipy.stats
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    LinearRegression,
    PoissonRegressor,
)
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

import jaxht
from jaxht import Sparse
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
    SelectionDisplay,
    SparseGraphicalModel,
)
from jaxht.sklearn._data import number_groups
from tests.estimators import (
    ALL,
    OMP,
    D,
    N,
    costs,
    counts,
    features,
    grades,
    labels,
    lives,
    name_of,
    partial_likelihood,
    signal,
    targets,
    three_labels,
    two_targets,
)
from tests.util import precision

pytestmark = pytest.mark.usefixtures("all_quickly")


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


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({0: 0, 1: 1}, "class_weight must leave at least 2 classes"),
        ({0: 0, 1: 0}, "class_weight must leave at least 2 classes"),
        ({0: -1, 1: 1}, "class_weight must be finite and at least 0"),
        ({0: np.nan, 1: 1}, "class_weight must be finite and at least 0"),
    ],
)
def test_class_weights_leave_two_classes(weights, message):
    X = np.random.default_rng(0).normal(size=(30, 3))
    with pytest.raises(ValueError, match=message):
        L0Classifier(k=1, class_weight=weights, solver=OMP).fit(X, (X[:, 0] > 0).astype(int))


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


def test_labels_of_groups_may_differ_in_type():
    """1 and "1" are two labels, of which an array makes one."""
    mixed = number_groups([1, "1", 2, "a", 1, "a"], 6)
    assert mixed.tolist() == [0, 1, 2, 3, 0, 3]
    assert number_groups(["b", "a", "b"], 3).tolist() == [1, 0, 1]
    assert number_groups((7, 3, 7), 3).tolist() == [1, 0, 1]


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


def test_rows_and_groups_within_bounds():
    X, Y = features(), two_targets()
    centred = X - X.mean(0)
    model = L0MultiTaskRegressor(k=2, nonnegative=True).fit(X, Y)
    assert np.all(model.coef_ >= 0) and model.support_.sum() == 2
    losses = {}
    for S in itertools.combinations(range(D), 2):
        fits = [scipy.optimize.nnls(centred[:, list(S)], y - y.mean()) for y in Y.T]
        losses[S] = sum(rest**2 for _, rest in fits), [coefficients for coefficients, _ in fits]
    best = min(losses, key=lambda S: losses[S][0])
    np.testing.assert_allclose(model.coef_[:, best], losses[best][1], atol=1e-6)
    least = np.array([np.full(D, -0.1), np.zeros(D)])
    model = L0MultiTaskRegressor(k=3, bounds=(least, 0.2), solver=OMP).fit(X, Y)
    assert np.all(model.coef_ >= least - 1e-12) and np.all(model.coef_ <= 0.2 + 1e-12)
    model = L0Regressor(k=2, nonnegative=True, groups=[0, 0, 1, 1, 2, 2]).fit(X, Y[:, 0])
    assert np.all(model.coef_ >= 0) and np.any(model.coef_ > 0)
    three = np.arange(N) % 3
    model = L0Classifier(k=2, nonnegative=True, solver=OMP).fit(X, three)
    assert np.all(model.coef_ >= 0) and np.any(model.coef_ > 0)


FUNCTIONS = {
    "aic": lambda c: c.deviance + 2 * c.size,
    "bic": lambda c: c.deviance + np.log(c.n) * c.size,
    "gic": lambda c: c.deviance + c.size * np.log(c.d) * np.log(np.log(c.n)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_chooses_k(name):
    """It has the quantities of the criteria by name: the paths of both are the same."""
    X = features()
    weights = 1 + np.arange(N) % 3
    for model, y in (
        (L0Regressor(solver=OMP), targets()),
        (L0Classifier(solver=OMP), three_labels()),
        (L0PoissonRegressor(solver=OMP), counts()),
        (L0CoxRegressor(solver=OMP), lives()),
        (L0MultiTaskRegressor(solver=OMP), two_targets()),
        (ReducedRankRegressor(), two_targets()),
    ):
        if name == "gic" and isinstance(model, ReducedRankRegressor):
            continue
        expected = clone(model).set_params(k=name).fit(X, y, sample_weight=weights)
        found = clone(model).set_params(k=FUNCTIONS[name]).fit(X, y, sample_weight=weights)
        np.testing.assert_allclose(found.path_.criteria, expected.path_.criteria, rtol=1e-6)
        assert found.k_ == expected.k_
        np.testing.assert_array_equal(found.coef_, expected.coef_)


def test_what_a_function_sees():
    seen = []

    def largest(candidate):
        seen.append(candidate)
        return -candidate.k if candidate.k != 4 else np.nan

    X, y = features(), targets()
    model = L0Regressor(k=largest, k_max=4, loss="huber", always=[0], solver=OMP).fit(X, y)
    assert model.k_ == 3 and [c.k for c in seen] == [1, 2, 3, 4]
    assert all(np.isnan(c.deviance) and c.n == N and c.d == D and c.size == c.k for c in seen)
    np.testing.assert_allclose([c.loss for c in seen], model.path_.losses)
    graph = SparseGraphicalModel(k=lambda c: c.deviance + np.log(c.n) * c.size).fit(X)
    assert graph.k_ == SparseGraphicalModel(k="bic").fit(X).k_
    with pytest.raises(ValueError, match=r"k must return a number.*got \[1\] for Candidate"):
        L0Regressor(k=lambda c: [1], solver=OMP).fit(X, y)
    with pytest.raises(ValueError, match=r"k must return a number.*got None for Candidate"):
        L0Regressor(k=lambda c: None, solver=OMP).fit(X, y)
    with pytest.raises(ValueError, match=r"k must be an int, or a fraction in \(0, 1\]; got <"):
        L0Regressor(k=largest).stability_selection(X, y)


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


# ---- offsets ----


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
    with pytest.warns(ConvergenceWarning, match=r"L0Classifier: NO_MINIMISER.*give l2 > 0"):
        L0Classifier(k=2, l2=0, solver=OMP).fit(X, y)


# ---- other data beside those of the fit ----


def test_frequencies_of_groups_are_in_the_order_of_their_labels():
    """Also where each group is one feature."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    y = 2 * X[:, 1] + 0.3 * X[:, 3] + rng.normal(size=60)
    model = L0Regressor(1, solver=jaxht.OMP(), groups=[4, 3, 2, 1, 0])
    found = model.stability_selection(X, y, random_state=0, num_pairs=10)
    assert np.argmax(found.frequencies) == 3


def test_stability_selection_leaves_a_fitted_model_as_it_is():
    X, y = features(), lives()
    model = L0CoxRegressor(k=1, solver=OMP).fit(X, y)
    before = model.predict_survival_function(X[:3], times=[0.5])
    others = y[:40].copy()
    others["weeks"] *= 10
    model.stability_selection(X[:40], others, num_pairs=2, random_state=0)
    np.testing.assert_array_equal(model.predict_survival_function(X[:3], times=[0.5]), before)
    classes = labels()
    classifier = L0Classifier(k=1, solver=OMP).fit(X, classes)
    expected = classifier.predict(X)
    others = np.where(classes == classes[0], "d", "c")
    classifier.stability_selection(X, others, num_pairs=2, random_state=0)
    np.testing.assert_array_equal(classifier.predict(X), expected)


def test_a_selector_forgets_the_names_of_other_data():
    X, y = features(), targets()
    selector = L0Selector(L0Regressor(k=2, solver=OMP))
    selector.fit(pd.DataFrame(X, columns=[f"name {j}" for j in range(D)]), y)
    names = selector.fit(X, y).get_feature_names_out()
    assert all(name.startswith("x") for name in names)


# ---- what cannot be chosen, lost or shaped ----


def test_a_fold_without_samples_of_weight_is_refused():
    X, y = features(), targets()
    weights = np.ones(N)
    weights[: N // 5] = 0
    for model in (L0Regressor("cv", solver=OMP), L0Classifier("cv", solver=OMP)):
        target = y if isinstance(model, L0Regressor) else labels()
        model.set_params(cv=KFold(5))
        with pytest.raises(ValueError, match="fold 0 holds out none"):
            model.fit(X, target, sample_weight=weights)


def test_criteria_that_are_no_numbers_choose_nothing():
    model = L0Regressor(k=lambda candidate: np.nan, k_max=2, solver=OMP)
    with pytest.raises(ValueError, match="no criterion of k from 0 to 2 is a number"):
        model.fit(features(), targets())


@pytest.mark.parametrize(("fraction", "k"), [(0.29, 29), (0.57, 57), (0.58, 58), (0.075, 7)])
def test_fractions_of_a_hundred_features(fraction, k):
    X = np.random.default_rng(0).normal(size=(120, 100))
    assert L0Regressor(fraction, solver=OMP).fit(X, X[:, 0]).k_ == k


def test_bounds_shaped_like_the_coefficients_of_two_classes():
    X, y = features(), labels()
    upper = np.full((1, D), 0.1)
    model = L0Classifier(k=2, bounds=(None, upper)).fit(X, y)
    same = L0Classifier(k=2, bounds=(None, upper[0])).fit(X, y)
    np.testing.assert_allclose(model.coef_, same.coef_)
    assert model.coef_.shape == upper.shape and np.all(model.coef_ <= 0.1 * (1 + 1e-6))


def test_coefficients_that_underflow_are_refused():
    X, y = features().astype(np.float32), targets().astype(np.float32)
    with pytest.raises(ValueError, match="underflow float32"):
        L0Regressor(2, solver=OMP).fit(X * np.float32(1e30), y * np.float32(1e-18))


@pytest.mark.parametrize("constant", [0.0, 1.0, 0.1, 1e8 + 0.1])
def test_a_constant_column_has_no_precision(constant):
    X = np.column_stack([features()[:, :3], np.full(N, constant)])
    with pytest.raises(ValueError, match=r"columns \[3\] are"):
        SparseGraphicalModel(k=1).fit(X)


def test_means_of_many_float32_rows():
    """NumPy adds rows up in the dtype of the array, one after the other."""
    rng = np.random.default_rng(0)
    X = (1000 + rng.normal(size=(200_000, 3))).astype("float32")
    y = (X.astype(float) @ [[1, 2], [0, 1], [0, 0]]).astype("float32")
    model = L0MultiTaskRegressor(k=2, solver=OMP).fit(X, y)
    assert np.abs(model.predict(X) - y).max() < 0.01
    graph = SparseGraphicalModel(k="bic").fit(X)
    np.testing.assert_allclose(graph.location_, X.mean(axis=0, dtype=float), atol=1e-3)
    np.testing.assert_allclose(np.diag(graph.covariance_), 1, atol=0.02)
    pressure = (101_325 + rng.normal(size=20_000)).astype("float32")
    columns = np.column_stack([pressure, rng.normal(size=(20_000, 2))]).astype("float32")
    model = L0Regressor(k=1, solver=OMP).fit(columns, pressure - 101_325)
    assert model.support_.tolist() == [True, False, False]


def test_score_where_a_target_is_missing_everywhere():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    y = X[:, :2] + 0.1 * rng.normal(size=(30, 2))
    model = L0MultiTaskRegressor(k=2, solver=OMP).fit(X, y)
    partly = y.copy()
    partly[:, 1] = np.nan
    fitted = model.predict(X)[:, 0]
    assert model.score(X, partly) == pytest.approx(r2_score(y[:, 0], fitted))
    with pytest.raises(ValueError, match="not missing"):
        model.score(X, np.full_like(y, np.nan))


@pytest.mark.parametrize("name", ["L0CoxRegressor", "L0OrdinalClassifier"])
def test_stability_selection_has_no_intercept_where_the_model_has_none(name):
    """The halves are those of `jaxht.inference` on the standardised columns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    if name == "L0CoxRegressor":
        y = np.column_stack([rng.exponential(np.exp(-X[:, 2])), rng.random(60) < 0.8])
        f = jaxht.Cox
    else:
        y = np.digitize(2 * X[:, 2] + rng.logistic(size=60), [-1, 1])
        f = functools.partial(jaxht.Ordinal, num_classes=3)
    model = getattr(jaxht.sklearn, name)(k=2, solver=jaxht.NIHT())
    found = model.stability_selection(X, y, num_pairs=5, random_state=0)
    assert found.results.x.shape[-1] == 5
    with precision("float64"):
        Z = jaxht.standardize(X).design.dense_array
        seed = check_random_state(0).randint(2**31 - 1)
        expected = jaxht.inference.stability_selection(
            f(Z, y), Sparse(2), jaxht.NIHT(), num_pairs=5, key=jax.random.key(seed)
        )
    np.testing.assert_allclose(found.frequencies, expected.frequencies)


def test_targets_that_overflow_in_the_precision_of_the_features_are_refused():
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    with pytest.raises(ValueError, match="y overflows float32"):
        L0Regressor(k=1).fit(X, 1e39 * X[:, 0].astype(float))


@pytest.mark.parametrize(("unit", "verb"), [(1e20, "underflow"), (1e-20, "overflow")])
def test_precisions_beyond_single_precision_are_refused(unit, verb):
    X = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    with pytest.raises(ValueError, match=f"precisions of features .* {verb} float32"):
        SparseGraphicalModel(k=1).fit(X * np.float32(unit))
    near = SparseGraphicalModel(k=2).fit(X * np.float32(unit**0.75))
    plain = SparseGraphicalModel(k=2).fit(X)
    scaled = near.precision_.astype(float) * unit**1.5
    np.testing.assert_allclose(scaled, plain.precision_, rtol=1e-4, atol=1e-6)


def test_numbers_of_features_are_numbers_whatever_array_holds_them():
    X = np.random.default_rng(0).normal(size=(20, 4))
    model = L0Regressor(k=2, always=np.array([1, 2], dtype=object)).fit(X, X[:, 0])
    assert np.flatnonzero(model.support_).tolist() == [1, 2]
