"""The methods of ``python -m benchmarks support``, one of which a process of its own runs on one
problem.

``python -m benchmarks.support_methods FOLDER SET K METHOD FILE`` writes what comes out to FILE, as
JSON. It needs NumPy, SciPy and the packages of the method, jaxht for its own solvers alone.
"""

import importlib
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.support_sets import Problem, enumerate_supports, load

Call = Callable[[], Any]  # returns a support, int (k,), or x

WARM_SECONDS, WARM_CALLS = 1.0, 7  # warm calls go on until either is reached
SLOW = (
    10.0  # seconds of a first call beside which what others compile is nothing: it is not repeated
)
# (num_moves, patience) of LocalSearch, each of more work than the last; and the seconds after which
# no more are tried.
BUDGETS = [(1, 1), (5, 1), *((25, 2**i) for i in range(10))]
LONGEST = 3.0
# entries of a sparse design that rivals get as a dense one; of sets whose times are compared
LARGEST = 5e7


class Method(NamedTuple):
    """A method.

    Attributes:
        packages: what is imported before the time is taken.
        make: from the problem and k, the call that is timed; itself it counts as part of the first
            call.
        is_rival: whether it runs in the interpreter of the rivals.
    """

    packages: tuple[str, ...]
    make: Callable[[Problem, int], Call]
    is_rival: bool = False


def objective(problem: Problem) -> Any:
    """The objective of jaxht. Its least squares are not divided by n, so that A and y are."""
    import jaxht

    model, A, y, l2 = problem
    if model == "squares":
        return jaxht.LeastSquares(A / np.sqrt(len(y)), y / np.sqrt(len(y)), l2, mean=False)
    return jaxht.Logistic(A if isinstance(A, np.ndarray) else jaxht.design(A), y, l2)


def dense(A: Any) -> Any:
    """A as an array, unless that is large."""
    return A if isinstance(A, np.ndarray) or math.prod(A.shape) > LARGEST else A.toarray()


def ours(name: str = "", **settings: Any) -> Method:
    """A solver of jaxht; without a name, its default."""

    def make(problem: Problem, k: int) -> Call:
        import jax

        import jaxht

        f, key = objective(problem), jax.random.key(0)
        solver = getattr(jaxht, name)(**settings) if name else None
        return lambda: jax.block_until_ready(jaxht.solve(f, jaxht.Sparse(k), solver, key=key).x)

    return Method(("jax", "jaxht"), make)


def enumeration(problem: Problem, k: int) -> Call:
    """The optimum, where there are few supports."""
    return lambda: enumerate_supports(problem, k)


def l1(problem: Problem, k: int) -> Call:
    """The support of at most k entries with the smallest penalty: of the lasso by LARS, or by
    bisection on C."""
    model, A, y, _ = problem
    if model == "squares":
        from sklearn.linear_model import lars_path

        def follow() -> Any:
            _, _, path = lars_path(A, y, method="lasso", Gram="auto", max_iter=20 * k)
            sizes = np.count_nonzero(path, axis=0)
            return path[:, np.flatnonzero(sizes <= k)[-1]]

        return follow

    from sklearn.linear_model import LogisticRegression

    def bisect() -> Any:
        low, high, best = (
            2 / np.max(np.abs(A.T @ y)),
            np.inf,
            np.zeros(A.shape[1]),
        )  # below low all entries are 0
        C = 2 * low
        for _ in range(30):
            x = LogisticRegression(
                l1_ratio=1.0,
                solver="liblinear",
                C=C,
                fit_intercept=False,
                max_iter=1000,
                random_state=0,
            ).fit(A, y)
            x, size = x.coef_[0], np.count_nonzero(x.coef_)
            if size <= k:
                low = C
                if size >= np.count_nonzero(best):
                    best = x
            else:
                high = C
            if size == k or high < 1.001 * low:
                break
            C = 4 * low if high == np.inf else np.sqrt(low * high)
        return best

    return bisect


def matching_pursuit(problem: Problem, k: int) -> Call:
    """OMP of scikit-learn."""
    from sklearn.linear_model import OrthogonalMatchingPursuit

    if problem.model != "squares":
        raise ValueError("OrthogonalMatchingPursuit needs least squares")
    return lambda: (
        OrthogonalMatchingPursuit(n_nonzero_coefs=k, fit_intercept=False)
        .fit(problem.A, problem.y)
        .coef_
    )


def forward_selection(problem: Problem, k: int) -> Call:
    """SequentialFeatureSelector of scikit-learn, by f on all rows instead of by
    cross-validation."""
    from sklearn.feature_selection import SequentialFeatureSelector
    from sklearn.linear_model import LogisticRegression, Ridge

    model, A, y, l2 = problem
    n = len(y)
    if model == "squares":
        fit, scoring = Ridge(alpha=n * l2, fit_intercept=False), "neg_mean_squared_error"
    else:
        fit, scoring = LogisticRegression(C=1 / (n * l2), fit_intercept=False), "neg_log_loss"
    every = [(np.arange(n), np.arange(n))]
    selector = SequentialFeatureSelector(fit, n_features_to_select=k, scoring=scoring, cv=every)
    return lambda: np.flatnonzero(selector.fit(A, y).get_support())


def abess(problem: Problem, k: int, **settings: Any) -> Call:
    """Adaptive best-subset selection, with the ridge where that helps it."""
    from abess.linear import LinearRegression, LogisticRegression

    settings = {"support_size": k, "fit_intercept": False, **settings}
    if (
        problem.model == "squares"
    ):  # by `alpha` its supports are much worse: twice the loss on cal_housing
        fit = LinearRegression(**settings)
    else:
        fit = LogisticRegression(alpha=len(problem.y) * problem.l2 / 2, **settings)
    A = dense(problem.A)  # on its sparse designs it is ten times slower
    return lambda: fit.fit(A, problem.y).coef_


def abess_path(problem: Problem, k: int) -> Call:
    """The same for all sizes up to k, each from the last, with as many exchanges as it can
    score."""
    sizes = {"support_size": list(range(k + 1)), "ic_type": "loss"}
    return abess(
        problem, k, **sizes, exchange_num=k, splicing_type=1, important_search=0, max_iter=100
    )


def scope(problem: Problem, k: int) -> Call:
    """ScopeSolver of skscope."""
    import jax.numpy as jnp
    from skscope import ScopeSolver

    model, A, y, l2 = problem
    A = dense(A)
    if not isinstance(A, np.ndarray):
        raise ValueError("skscope needs a dense design")
    columns, target = jnp.asarray(A), jnp.asarray(y)

    def f(x: Any) -> Any:
        fit = (
            jnp.mean((columns @ x - target) ** 2) / 2
            if model == "squares"
            else jnp.mean(jnp.logaddexp(0, -target * (columns @ x)))
        )
        return fit + l2 / 2 * jnp.sum(x**2)

    return lambda: ScopeSolver(A.shape[1], k).solve(f, jit=True)


def search_budgets(problem: Problem, k: int) -> Call:
    """LocalSearch with more and more moves: a list of dicts of its settings, warm seconds and
    support."""
    import jax

    import jaxht

    f, key = objective(problem), jax.random.key(0)

    def run(num_moves: int, patience: int) -> tuple[np.ndarray, float]:
        solver, begin = (
            jaxht.LocalSearch(num_moves=num_moves, patience=patience),
            time.perf_counter(),
        )
        x = jax.block_until_ready(jaxht.solve(f, jaxht.Sparse(k), solver, key=key).x)
        return x, time.perf_counter() - begin

    def run_all() -> list[dict[str, Any]]:
        run(*BUDGETS[0])  # compiles
        trials: list[dict[str, Any]] = []
        for num_moves, patience in BUDGETS:
            x, seconds = run(num_moves, patience)
            for _ in range(2 if seconds < LONGEST / 4 else 0):
                seconds = min(seconds, run(num_moves, patience)[1])
            support = np.flatnonzero(x).tolist()
            trials.append(
                {"num_moves": num_moves, "patience": patience, "warm": seconds, "support": support}
            )
            if seconds > LONGEST:
                break
        return trials

    return run_all


SKLEARN = ("sklearn.linear_model", "sklearn.feature_selection")
BUDGET_METHOD = "LocalSearch, budgets"
METHODS = {
    "default": ours(),
    "LocalSearch": ours("LocalSearch"),
    "OLS": ours("OLS"),
    "ExhaustiveLocalSearch": ours("ExhaustiveLocalSearch"),
    "OMP": ours("OMP"),
    "OMPR": ours("OMPR"),
    "FoBa": ours("FoBa"),
    "ARHT": ours("ARHT"),
    "HTP": ours("HTP"),
    "PHT": ours("PHT"),
    "NIHT": ours("NIHT"),
    "IHT": ours("IHT"),
    "GraSP": ours("GraSP"),
    "SubspacePursuit": ours("SubspacePursuit"),
    "DIHT": ours("DIHT"),
    "SDIHT": ours("SDIHT"),
    "SGHT": ours("SGHT"),
    "HSGHT": ours("HSGHT"),
    "SVRGHT": ours("SVRGHT"),
    "HTSVRG": ours("HTSVRG"),
    "HTSAGA": ours("HTSAGA"),
    "l1 refitted": Method(SKLEARN, l1),
    "scikit-learn OMP": Method(SKLEARN, matching_pursuit),
    "scikit-learn SequentialFeatureSelector": Method(SKLEARN, forward_selection),
    "abess": Method(("abess.linear",), abess, is_rival=True),
    "abess, path": Method(("abess.linear",), abess_path, is_rival=True),
    "skscope": Method(("jax", "skscope"), scope, is_rival=True),
    "enumeration": Method((), enumeration),
    BUDGET_METHOD: Method(("jax", "jaxht"), search_budgets),
}


def as_support(found: Any) -> list[int]:
    """The support of x, or a list of indices as it is."""
    found = np.asarray(found)
    return (found if np.issubdtype(found.dtype, np.integer) else np.flatnonzero(found)).tolist()


def run(folder: str, name: str, k: int, method: str, file: str) -> None:
    """Time the first call and warm ones of a method on a problem; FILE has the first while warm
    ones are made."""

    def write(**entries: Any) -> None:
        Path(f"{file}.new").write_text(json.dumps(entries))
        os.replace(f"{file}.new", file)

    packages, make, _ = METHODS[method]
    begin = time.perf_counter()
    try:
        for package in packages:
            importlib.import_module(package)
    except ModuleNotFoundError as error:
        return write(status="not installed", detail=str(error))
    if "jax" in packages:
        import jax

        jax.devices()  # starts the backend
    imported = time.perf_counter() - begin
    problem = load(name, Path(folder))

    begin = time.perf_counter()
    try:
        call = make(problem, k)
        found = call()
    except (ValueError, TypeError) as error:  # what a method does not take
        return write(status="refused", detail=str(error).split("\n")[0][:200])
    entries: dict[str, Any] = {
        "status": "done",
        "import": imported,
        "cold": time.perf_counter() - begin,
    }
    if method == BUDGET_METHOD:
        return write(**entries, trials=found)
    entries["support"] = as_support(found)
    write(**entries)
    if entries["cold"] > SLOW and "jaxht" not in packages:
        return write(**entries, warm=entries["cold"])
    warm: list[float] = []
    while sum(warm) < WARM_SECONDS and len(warm) < WARM_CALLS:
        begin = time.perf_counter()
        call()
        warm.append(time.perf_counter() - begin)
    return write(**entries, warm=statistics.median(warm))


if __name__ == "__main__":
    folder, name, k, method, file = sys.argv[1:]
    run(folder, name, int(k), method, file)
