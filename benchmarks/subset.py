"""Best subset selection on data sets: against abess and skscope's ScopeSolver, objective and time.

Least squares with an intercept (centred data), columns of unit norm. Needs the data sets in
JAXHT_DATA; abess and skscope (``pip install abess skscope``) are left out where they are not
installed.
"""

import functools
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from benchmarks.timing import compiling_anew, double_precision

SETS = {
    "cpu_small": (4, 8),
    "ailerons": (4, 8, 16),
    "blogfeedback": (8, 16, 32),
    "colon_alon": (5, 10, 20),
}
AFTER_OMP = {"OMPR": jaxht.OMPR(), "ELS": jaxht.ExhaustiveLocalSearch(), "ARHT": jaxht.ARHT()}


def load(name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Centred columns of unit norm, and the centred target of unit variance."""
    file = Path(os.environ.get("JAXHT_DATA", "")) / f"{name}.npz"
    if not file.is_file():
        print(f"\n{name}: not in JAXHT_DATA, left out")
        return None
    with np.load(file) as arrays:
        if "indptr" in arrays:
            import scipy.sparse

            X = scipy.sparse.load_npz(file).toarray().astype(np.float64)
        else:
            X = arrays["X"].astype(np.float64)
        y = arrays["y"].astype(np.float64)
    X, y = X - X.mean(axis=0), y - y.mean()
    X = X[:, X.std(axis=0) > 0]
    return X / np.linalg.norm(X, axis=0), y / y.std()


def main() -> None:
    """Print, for every set and k, 1 - R^2 in percent and milliseconds of the second call."""
    with double_precision(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, ks in SETS.items():
            data = load(name)
            if data is not None:
                for k in ks:
                    compare(name, *data, k)


def compare(name: str, A: np.ndarray, y: np.ndarray, k: int) -> None:
    """One data set and k."""
    n, d = A.shape
    f = jaxht.LeastSquares(jnp.asarray(A), jnp.asarray(y), mean=False)

    def ours(solver: Any) -> Any:
        start = jaxht.solve(f, jaxht.Sparse(k), jaxht.OMP())
        return (
            start.x
            if solver is None
            else jaxht.solve(f, jaxht.Sparse(k), solver, x0=start, key=jax.random.key(0)).x
        )

    candidates: dict[str, Callable[[], Any]] = {"jaxht OMP": functools.partial(ours, None)}
    for label, solver in AFTER_OMP.items():
        if label == "ARHT" and k > 8:  # minutes
            continue
        candidates[f"jaxht OMP, then {label}"] = functools.partial(ours, solver)
    try:
        from abess.linear import LinearRegression

        candidates["abess"] = lambda: (
            LinearRegression(support_size=k, fit_intercept=False).fit(A, y).coef_
        )
    except ImportError:
        print("abess is not installed: left out")
    try:
        from skscope import ScopeSolver

        on_device = jnp.asarray(A), jnp.asarray(y)

        def loss(x: jax.Array) -> jax.Array:
            return jnp.sum((on_device[0] @ x - on_device[1]) ** 2) / 2

        candidates["skscope ScopeSolver"] = lambda: ScopeSolver(d, k).solve(loss, jit=True)
    except ImportError:
        print("skscope is not installed: left out")
    print(f"\n{name}, {n} x {d}, k = {k}: 1 - R^2, first and second call")
    for label, call in candidates.items():
        times = []
        for _ in range(2):
            begin = time.perf_counter()
            with compiling_anew():
                x = np.asarray(call())
            times.append(1e3 * (time.perf_counter() - begin))
        left = np.linalg.lstsq(A[:, x != 0], y, rcond=None)[0]
        value = np.sum((A[:, x != 0] @ left - y) ** 2) / np.sum(y**2)
        nonzeros = np.count_nonzero(x)
        print(
            f"  {label:28s} {100 * value:9.4f} %   {times[0]:9.1f} ms {times[1]:9.1f} ms   {nonzeros}",
            flush=True,
        )


if __name__ == "__main__":
    main()
