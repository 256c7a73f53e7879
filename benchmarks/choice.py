"""The choice of k: paths by a criterion and grid searches, next to what else there is.

abess (``pip install abess``) is left out where it is not installed. Paths on data sets need
JAXHT_DATA. Cold is the first call, with its compiles.
"""

import functools
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import VarianceThreshold
from sklearn.linear_model import LassoCV, LogisticRegression, LogisticRegressionCV, lars_path
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import jaxht
from benchmarks.support_sets import load, loss
from benchmarks.timing import compiling_anew, interleaved, report
from jaxht.designs import design
from jaxht.sklearn import L0Classifier

n, d, k = 500, 1000, 10
KS = range(1, 51)
ROWS = 32_561


def main() -> None:
    """Print a table for each part."""
    for category in (ConvergenceWarning, FutureWarning, UserWarning):  # of scikit-learn
        warnings.simplefilter("ignore", category)
    paths()
    for name in ("blogfeedback", "rcv1"):
        path_on(name)
    grid_search()


def planted() -> tuple[np.ndarray, np.ndarray]:
    """Columns correlated by 0.3 and noise, float32."""
    rng = np.random.default_rng(0)
    A = np.sqrt(0.7) * rng.standard_normal((n, d)) + np.sqrt(0.3) * rng.standard_normal((n, 1))
    x = np.zeros(d)
    x[rng.choice(d, k, replace=False)] = rng.choice([-1, 1], k) * rng.uniform(0.5, 2, k)
    return A.astype(np.float32), (A @ x + rng.standard_normal(n)).astype(np.float32)


def choose(objective: Any, solver: Any, ks: Any, **options: Any) -> Any:
    """k by EBIC, and the supports of the path."""
    choice = jaxht.criteria.choose_k(objective, jaxht.Sparse(1), solver, ks=ks, **options)
    return jax.block_until_ready(choice)


def paths() -> None:
    """A path of 50 sparsities and EBIC on planted data."""
    A, y = planted()
    f = jaxht.LeastSquares(jax.numpy.asarray(A), jax.numpy.asarray(y), mean=False)
    calls: dict[str, Callable[[], Any]] = {
        "jaxht OMP": lambda: choose(f, jaxht.OMP(), KS),
        "jaxht OLS": lambda: choose(f, jaxht.OLS(), KS),
        "jaxht HTP, until it turns": lambda: choose(f, jaxht.HTP(), KS, patience=5),
    }
    if abess := import_abess():
        calls["abess, EBIC"] = lambda: abess.LinearRegression(support_size=KS, ic_type="ebic").fit(
            A, y
        )
    calls["LassoCV, 5 folds"] = lambda: LassoCV(cv=5).fit(A, y)
    calls["lars_path, 50 steps"] = lambda: lars_path(A, y, method="lasso", max_iter=50)
    print(f"\nfirst calls, n = {n}, d = {d}, k = 1 ... 50 by EBIC, planted k = {k}")
    found = {name: first_call(name, call) for name, call in calls.items()}
    for name in list(calls)[:3]:
        print(f"  {name}: k = {int(found[name].k)}")
    if abess:
        print(f"  abess: k = {np.count_nonzero(found['abess, EBIC'].coef_)}")
    baseline = "abess, EBIC" if abess else "LassoCV, 5 folds"
    report("the same, warm", interleaved(calls, repeats=5), baseline=baseline, unit="ms")


def path_on(name: str) -> None:
    """A path of 50 sparsities on a data set, standardised as in ``python -m benchmarks
    support``."""
    if (folder := data_folder(name)) is None:
        return
    problem = load(name, folder)
    A, y = design(problem.A.astype(np.float32)), problem.y.astype(np.float32)
    model = jaxht.LeastSquares if problem.model == "squares" else jaxht.Logistic
    f = model(A, y, problem.l2, mean=True).prepare()
    calls: dict[str, Callable[[], Any]] = {
        "jaxht OMP": lambda: choose(f, jaxht.OMP(), KS),
        "jaxht HTP, until it turns": lambda: choose(f, jaxht.HTP(), KS, patience=5),
    }
    if abess := import_abess():
        kind = abess.LinearRegression if problem.model == "squares" else abess.LogisticRegression
        calls["abess, EBIC"] = lambda: kind(
            support_size=KS, ic_type="ebic", fit_intercept=False
        ).fit(problem.A, y if problem.model == "squares" else (y > 0).astype(int))
    if problem.model == "squares":
        calls["LassoCV, 5 folds"] = lambda: LassoCV(cv=5).fit(problem.A, y)
    else:
        calls["LogisticRegressionCV, l1, 5 folds"] = lambda: LogisticRegressionCV(
            Cs=10, penalty="l1", solver="liblinear", fit_intercept=False, cv=5
        ).fit(problem.A, y)
    size = " x ".join(map(str, problem.A.shape))
    print(f"\n{name}, {size}, {problem.model}, k = 1 ... 50 by EBIC: first and later call")
    found = {}
    for label, call in calls.items():
        found[label] = first_call(label, call)
        first_call(f"{label}, again", call)
    for label, result in found.items():
        x = (
            result.coef_.ravel()
            if hasattr(result, "coef_")
            else np.asarray(result.results.x[int(result.k) - 1])
        )
        support = np.flatnonzero(x)
        print(f"  {label}: {len(support)} columns, f = {loss(problem, support):.6f} refitted")


def grid_search() -> None:
    """A grid search over k in a pipeline, 10 fits and the last one, on rows of a data set as many
    as a9a has."""
    if (folder := data_folder("w8a")) is None:
        return
    with np.load(folder / "w8a.npz") as arrays:
        y = arrays["y"][:ROWS]
    X = scipy.sparse.load_npz(folder / "w8a.npz").tocsr()[:ROWS]
    ks = {"l0classifier__k": [5, 10, 20, 40, 60]}
    own, greedy = (
        make_pipeline(VarianceThreshold(), L0Classifier(solver=solver))
        for solver in (None, jaxht.OMP())
    )
    l1 = make_pipeline(VarianceThreshold(), LogisticRegression(penalty="l1", solver="liblinear"))
    searches = {
        "L0Classifier, k": GridSearchCV(own, ks, cv=2),
        "L0Classifier(solver=OMP()), k": GridSearchCV(greedy, ks, cv=2),
        "LogisticRegression, l1, C": GridSearchCV(
            l1, {"logisticregression__C": [0.01, 0.1, 1, 10, 100]}, cv=2
        ),
    }
    print(
        f"\ngrid searches, 10 fits, w8a, {' x '.join(map(str, X.shape))}, logistic: first and later call"
    )
    for name, search in searches.items():
        fit = functools.partial(search.fit, X, y)
        first_call(name, fit)
        first_call(f"{name}, again", fit)
        print(f"  {name}: {search.best_params_}, accuracy {search.best_score_:.4f}")


def first_call(name: str, call: Callable[[], Any]) -> Any:
    """The result of a call, whose time is printed."""
    begin = time.perf_counter()
    with compiling_anew():
        result = jax.block_until_ready(call())
    print(f"  {name:42s} {time.perf_counter() - begin:10.3f} s", flush=True)
    return result


def data_folder(name: str) -> Path | None:
    """The folder of data sets; None, and a line that says so, where there is none."""
    folder = os.environ.get("JAXHT_DATA")
    if folder is None or not Path(folder).is_dir():
        print(f"\n{name}: JAXHT_DATA must name the folder of data sets; left out")
        return None
    return Path(folder)


def import_abess() -> Any:
    """abess.linear, or None."""
    try:
        import abess.linear
    except ImportError:
        return None
    return abess.linear
