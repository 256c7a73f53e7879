"""A fit compiles the programs that the runner compiles, and few others; a prediction compiles
none."""

import contextlib
import logging
import re
import traceback

import jax
import numpy as np
import pytest

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
    ReducedRankRegressor,
    SparseGraphicalModel,
)
from tests.util import drop_programs

pytestmark = pytest.mark.usefixtures("all_quickly")
N, D, OMP = 70, 5, jaxht.OMP()
COMPILING = re.compile(r"Compiling (?:jit\()?([\w-]+)")


class Programs(logging.Handler):
    """The names of the programs that JAX compiles, without those that the runner compiles."""

    def __init__(self):
        super().__init__()
        self.names = []

    def emit(self, record):
        match = COMPILING.match(record.getMessage())
        if match and not self.is_in_runner():
            self.names.append(match[1])

    @staticmethod
    def is_in_runner():
        return any("/jaxht/runner/" in frame.filename for frame in traceback.extract_stack())


@contextlib.contextmanager
def programs():
    """Collects the names of what is compiled, from empty caches on."""
    drop_programs()
    jax.clear_caches()
    found, logger = Programs(), logging.getLogger("jax")
    logger.addHandler(found)
    try:
        with jax.log_compiles():
            yield found.names
    finally:
        logger.removeHandler(found)


def features():
    return np.random.default_rng(0).normal(size=(N, D)) * [1, 10, 0.1, 1, 3] + 2


def signal():
    X = features()
    return X[:, 1] / 10 - X[:, 4] / 3 + np.random.default_rng(1).normal(size=N)


def two_targets():
    return np.stack([signal(), features()[:, 0]], axis=1)


def lives():
    return np.stack([np.ceil(5 * np.exp(-signal())), np.arange(N) % 3 > 0], axis=1)


CASES = {
    "squared": (L0Regressor(k=2, solver=OMP), signal, []),
    "huber": (L0Regressor(k=2, loss="huber", solver=OMP), signal, []),
    "weighted": (L0Regressor(k=2, l2=0.1, fit_intercept=False, solver=OMP), signal, []),
    "bounded": (L0Regressor(k=2, bounds=(-1, 1), always=[0], solver=OMP), signal, []),
    "groups": (L0Regressor(k=2, groups=[0, 0, 1, 1, 2], solver=OMP), signal, []),
    "logistic": (L0Classifier(k=2, solver=OMP), lambda: signal() > 0, []),
    "softmax": (L0Classifier(k=2, solver=OMP), lambda: np.digitize(signal(), [-0.5, 0.5]), []),
    "ordinal": (
        L0OrdinalClassifier(k=2, solver=OMP),
        lambda: np.digitize(signal(), [-0.5, 0.5]),
        ["find_thresholds"],
    ),
    "poisson": (L0PoissonRegressor(k=2, solver=OMP), lambda: np.exp(signal()).round(), []),
    "gamma": (L0GammaRegressor(k=2, solver=OMP), lambda: np.exp(signal()), []),
    "cox": (L0CoxRegressor(k=2, l2=0.1, solver=OMP), lives, []),
    "several targets": (L0MultiTaskRegressor(k=2, solver=OMP), two_targets, []),
    "rank": (ReducedRankRegressor(k=1), two_targets, []),
    "graph": (SparseGraphicalModel(k=3), lambda: None, ["prepare"]),
    "selector": (L0Selector(L0Regressor(k=2, solver=OMP)), signal, []),
    "criterion": (L0Regressor(k="ebic", solver=OMP), signal, ["_information_criteria"]),
    "criterion of a rank": (ReducedRankRegressor(k="bic"), two_targets, ["_information_criteria"]),
    "criterion of a graph": (SparseGraphicalModel(k="ebic", k_max=4), lambda: None, ["prepare"]),
    "folds": (L0Regressor(k="cv", cv=3, solver=OMP), signal, []),
    "folds of a graph": (
        SparseGraphicalModel(k="cv", cv=3, k_max=4),
        lambda: None,
        ["prepare"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_few_programs_are_compiled_beside_those_of_the_runner(name):
    model, y, expected = CASES[name]
    weights = {"sample_weight": np.arange(N) % 3} if name == "weighted" else {}
    X = features()
    y = y()
    with programs() as found:
        model.fit(X, y, **weights)
    assert found == expected
    with programs() as found:
        for method in (
            "predict",
            "predict_proba",
            "predict_log_proba",
            "decision_function",
            "predict_survival_function",
            "predict_cumulative_hazard_function",
            "transform",
            "mahalanobis",
        ):
            if hasattr(model, method):
                getattr(model, method)(X[:-3])
        if hasattr(model, "score"):
            model.score(X[:-3], None if y is None else y[:-3])
        assert repr(model) and model._repr_html_()
    assert found == []


def test_programs_are_seen():
    with programs() as found:
        jax.numpy.cumsum(jax.numpy.ones(3))
    assert "cumsum" in found
