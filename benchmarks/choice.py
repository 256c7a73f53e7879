"""The choice of k and the trust in a selection: paths by a criterion, stability selection, next to what else there is.

abess (``pip install abess``) is left out where it is not installed. Paths on data sets need JAXHT_DATA. Cold is the
first call, with its compiles.
"""

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LassoCV, LogisticRegressionCV, OrthogonalMatchingPursuit, lars_path

import jaxht
from benchmarks.support_sets import load, loss
from benchmarks.timing import compiling_anew, interleaved, report
from jaxht.designs import design

n, d, k = 500, 1000, 10
KS = range(1, 51)


def main() -> None:
    """Print a table for each part."""
    for category in (ConvergenceWarning, FutureWarning, UserWarning):  # of scikit-learn
        warnings.simplefilter("ignore", category)
    paths()
    for name in ("blogfeedback", "rcv1"):
        path_on(name)
    stability()


def planted() -> tuple[np.ndarray, np.ndarray]:
    """Columns correlated by 0.3 and noise, float32."""
    rng = np.random.default_rng(0)
    A = np.sqrt(0.7) * rng.standard_normal((n, d)) + np.sqrt(0.3) * rng.standard_normal((n, 1))
    x = np.zeros(d)
    x[rng.choice(d, k, replace=False)] = rng.choice([-1, 1], k) * rng.uniform(0.5, 2, k)
    return A.astype(np.float32), (A @ x + rng.standard_normal(n)).astype(np.float32)


def choose(objective: Any, solver: Any, ks: Any, **options: Any) -> Any:
    """k by EBIC, and the supports of the path."""
    choice = jaxht.criteria.choose_k(objective, jaxht.Sparse(1), solver, ks, **options)
    return jax.block_until_ready(choice)


def paths() -> None:
    """A path of 50 sparsities and EBIC on planted data."""
    A, y = planted()
    f = jaxht.LeastSquares(jax.numpy.asarray(A), jax.numpy.asarray(y))
    calls: dict[str, Callable[[], Any]] = {
        "jaxht OMP": lambda: choose(f, jaxht.OMP(), KS),
        "jaxht OLS": lambda: choose(f, jaxht.OLS(), KS),
        "jaxht HTP, until it turns": lambda: choose(f, jaxht.HTP(), KS, patience=5),
    }
    if abess := import_abess():
        calls["abess, EBIC"] = lambda: abess.LinearRegression(support_size=KS, ic_type="ebic").fit(A, y)
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
    """A path of 50 sparsities on a data set, standardised as in ``python -m benchmarks support``."""
    folder = os.environ.get("JAXHT_DATA")
    if folder is None or not Path(folder).is_dir():
        print(f"\n{name}: JAXHT_DATA must name the folder of data sets; left out")
        return
    problem = load(name, Path(folder))
    A, y = design(problem.A.astype(np.float32)), problem.y.astype(np.float32)
    model = jaxht.LeastSquares if problem.model == "squares" else jaxht.Logistic
    f = model(A, y, problem.l2, mean=True).prepare()
    calls: dict[str, Callable[[], Any]] = {
        "jaxht OMP": lambda: choose(f, jaxht.OMP(), KS),
        "jaxht HTP, until it turns": lambda: choose(f, jaxht.HTP(), KS, patience=5),
    }
    if abess := import_abess():
        kind = abess.LinearRegression if problem.model == "squares" else abess.LogisticRegression
        calls["abess, EBIC"] = lambda: kind(support_size=KS, ic_type="ebic", fit_intercept=False).fit(
            problem.A, y if problem.model == "squares" else (y > 0).astype(int)
        )
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
        x = result.coef_.ravel() if hasattr(result, "coef_") else np.asarray(result.results.x[int(result.k) - 1])
        support = np.flatnonzero(x)
        print(f"  {label}: {len(support)} columns, f = {loss(problem, support):.6f} refitted")


def stability() -> None:
    """Stability selection on 100 subsamples next to a loop of fits."""
    A, y = planted()
    f = jaxht.LeastSquares(jax.numpy.asarray(A), jax.numpy.asarray(y))
    key = jax.random.key(0)
    rng = np.random.default_rng(0)
    halves = [half for _ in range(50) for half in np.array_split(rng.permutation(n), 2)]

    def fit(rows: np.ndarray) -> Any:
        return OrthogonalMatchingPursuit(n_nonzero_coefs=k, fit_intercept=False).fit(A[rows], y[rows]).coef_ != 0

    def loop() -> Any:
        return np.mean(Parallel(n_jobs=-1)(delayed(fit)(rows) for rows in halves), axis=0)

    def ours() -> Any:
        found = jaxht.inference.stability_selection(f, jaxht.Sparse(k), jaxht.OMP(), key)
        return jax.block_until_ready(found.frequencies)

    calls = {"scikit-learn OMP, joblib": loop, "stability_selection": jax.jit(ours)}
    print(f"\nstability selection, 100 subsamples, n = {n}, d = {d}, k = {k}")
    found = {name: np.asarray(first_call(name, call)) for name, call in calls.items()}
    for name, frequencies in found.items():
        print(f"  {name}: {np.sum(frequencies > 0.9)} columns in over 90 % of the subsamples")
    report("the same, warm", interleaved(calls, repeats=5), baseline="scikit-learn OMP, joblib", unit="ms")


def first_call(name: str, call: Callable[[], Any]) -> Any:
    """The result of a call, whose time is printed."""
    begin = time.perf_counter()
    with compiling_anew():
        result = jax.block_until_ready(call())
    print(f"  {name:42s} {time.perf_counter() - begin:10.3f} s", flush=True)
    return result


def import_abess() -> Any:
    """abess.linear, or None."""
    try:
        import abess.linear
    except ImportError:
        return None
    return abess.linear
