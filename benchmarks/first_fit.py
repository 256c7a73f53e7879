"""The first fit of estimators: twenty tables of different shapes, a grid search, and warm fits.

Each measurement is a process of its own, whose import is not counted: with an empty cache of
programs; with one that it keeps, :func:`jaxht.keep_programs`; and once more with what was kept.
Next to it scikit-learn's OrthogonalMatchingPursuitCV, and abess (``pip install abess``) where it is
installed. Warm fits are compared with those of :func:`jaxht.disable_padding`.
"""

import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

# Neither jax nor jaxht: the processes import them before the clock starts.

NUM_TABLES = 20
K = 5
# At most, in seconds: twenty fits from an empty cache, a fit with kept programs, a grid search from
# an empty cache, a warm fit of 442 x 10.
GOALS = {
    "L0Regressor": {"all": 12.0, "kept": 0.15, "grid": 3.0, "warm": 0.004},
    "L0Classifier": {"all": 25.0, "kept": 0.3, "grid": 8.0, "warm": 0.03},
}


def main() -> None:
    """Print a table for each part."""
    for name, goals in GOALS.items():
        with tempfile.TemporaryDirectory() as folder:
            empty = fresh("fit_tables", name)
            fresh("fit_tables", name, keep=folder)
            kept = fresh("fit_tables", name, keep=folder)
            unseen = fresh("fit_tables", name, "1", keep=folder)
        grid = fresh("fit_grid", name)
        warm = fresh("fit_again", name)
        print(f"\n{name}(k={K}), {NUM_TABLES} tables of {describe_shapes()}")
        rows = [
            ("all, from an empty cache", sum(empty["seconds"]), goals["all"]),
            ("slowest of them", max(empty["seconds"]), None),
            ("mean of one, programs kept", statistics.mean(kept["seconds"]), goals["kept"]),
            ("the same, other tables", statistics.mean(unseen["seconds"]), None),
            ("grid search over k, 5 folds, from an empty cache", grid["seconds"], goals["grid"]),
            ("442 x 10, warm", warm["442 x 10"][0], goals["warm"]),
        ]
        for label, seconds, goal in rows:
            verdict = "" if goal is None else f"  (goal {goal:g})"
            print(f"  {label:50} {seconds:8.3f} s{verdict}")
        print(f"  {'compiles of all':50} {empty['compiles']:8d}")
        for shape, (padded, exact) in warm.items():
            print(f"  {shape + ', warm: padded over as it is':50} {padded / exact:8.2f} x")
    for rival in ("sklearn", "abess"):
        if importlib.util.find_spec(rival) is None:
            print(f"\n{rival} is not installed")
            continue
        found = fresh("fit_tables", rival)
        print(
            f"\n{rival}: all {sum(found['seconds']):.2f} s, slowest {max(found['seconds']):.2f} s"
        )


def shapes(seed: int) -> list[tuple[int, int]]:
    """Numbers of samples from 100 to 3000, and of columns from 5 to 300, uniform in logarithms."""
    rng = np.random.default_rng(seed)
    n = np.exp(rng.uniform(np.log(100), np.log(3000), NUM_TABLES))
    d = np.exp(rng.uniform(np.log(5), np.log(300), NUM_TABLES))
    return list(zip(n.astype(int).tolist(), np.ceil(d).astype(int).tolist(), strict=True))


def describe_shapes() -> str:
    """The range of the shapes."""
    sizes = np.array(shapes(0))
    least, most = sizes.min(axis=0), sizes.max(axis=0)
    return f"{least[0]} to {most[0]} x {least[1]} to {most[1]}"


def table(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Correlated columns, and a target that depends on five of them."""
    rng = np.random.default_rng(1000 * n + d + seed)
    X = rng.standard_normal((n, d)) + 0.5 * rng.standard_normal((n, 1))
    weights = np.zeros(d)
    weights[rng.permutation(d)[:K]] = rng.choice([-1.0, 1.0], min(K, d))
    return X, X @ weights + rng.standard_normal(n)


def make(name: str) -> tuple[Any, Callable[[np.ndarray], np.ndarray]]:
    """An estimator, and what it takes as target."""
    if name == "sklearn":
        from sklearn.linear_model import OrthogonalMatchingPursuitCV

        return OrthogonalMatchingPursuitCV(max_iter=K), lambda y: y
    if name == "abess":
        from abess import LinearRegression

        return LinearRegression(support_size=K), lambda y: y
    import jaxht.sklearn

    is_classifier = name == "L0Classifier"
    return getattr(jaxht.sklearn, name)(k=K), lambda y: y > 0 if is_classifier else y


def fit_tables(name: str, seed: str = "0") -> dict[str, Any]:
    """Fit all tables in turn."""
    model, encode = make(name)
    compiles = count_compiles() if name.startswith("L0") else []
    seconds = []
    for n, d in shapes(int(seed)):
        X, y = table(n, d)
        target = encode(y)
        start = time.perf_counter()
        model.fit(X, target)
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds, "compiles": len(compiles)}


def fit_grid(name: str) -> dict[str, Any]:
    """Search k = 1 to 10 by five folds, on data of scikit-learn."""
    from sklearn.datasets import load_breast_cancer, load_diabetes
    from sklearn.model_selection import GridSearchCV

    model, _ = make(name)
    load = load_breast_cancer if name == "L0Classifier" else load_diabetes
    X, y = load(return_X_y=True)
    search = GridSearchCV(model, {"k": list(range(1, 11))}, cv=5)
    start = time.perf_counter()
    search.fit(X, y)
    return {"seconds": time.perf_counter() - start}


def fit_again(name: str) -> dict[str, Any]:
    """The median seconds of warm fits, padded and as they are."""
    import jaxht

    model, encode = make(name)
    found = {}
    for n, d in [(442, 10), (200, 150), (2000, 120), (250, 400), (62, 2000)]:
        X, y = table(n, d)
        target = encode(y)
        padded = median_seconds(partial(model.fit, X, target))
        with jaxht.disable_padding():
            exact = median_seconds(partial(model.fit, X, target))
        found[f"{n} x {d}"] = padded, exact
    return found


def median_seconds(call: Callable[[], Any]) -> float:
    """The median of eleven calls, after one."""
    call()
    seconds = []
    for _ in range(11):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def count_compiles() -> list[str]:
    """A list that grows by each program that is compiled, or read from the cache."""
    import jax.monitoring

    found: list[str] = []

    def listen(name: str, seconds: float, **options: Any) -> None:
        if name.endswith("backend_compile_duration"):
            found.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)  # type: ignore[arg-type]
    return found


def fresh(function: str, *arguments: str, keep: str | None = None) -> Any:
    """What a function of this module returns in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX")}
    if keep is not None:
        environment["JAXHT_KEEP_PROGRAMS"] = keep
    command = [sys.executable, "-m", "benchmarks.first_fit", function, *arguments]
    root = Path(__file__).parents[1]
    run = subprocess.run(
        command, env=environment, cwd=root, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(run.stdout.splitlines()[-1])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[2] not in ("sklearn", "abess"):
        importlib.import_module("jaxht.sklearn")
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
