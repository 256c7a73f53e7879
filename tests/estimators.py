"""Data and estimators that the tests of :mod:`jaxht.sklearn` share."""

import numpy as np
import pandas as pd

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


def chain(p=5):
    precision = 2 * np.eye(p) - 0.9 * (np.eye(p, k=1) + np.eye(p, k=-1))
    X = np.random.default_rng(4).multivariate_normal(
        np.zeros(p), np.linalg.inv(precision), size=300
    )
    return X * np.arange(1, p + 1) + 7


def frame():
    return pd.DataFrame(features(), columns=list("abcdef"))


def partial_likelihood(u, time, event):
    """Minus its logarithm, event by event."""
    return sum(np.log(np.sum(np.exp(u[time >= time[i]]))) - u[i] for i in np.flatnonzero(event))


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
