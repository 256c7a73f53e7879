"""The trust in a selection: stability selection and knockoffs, next to loops over scikit-learn's
estimators."""

import functools
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LassoCV, OrthogonalMatchingPursuit

import jaxht
from benchmarks.choice import d, first_call, k, n, planted
from benchmarks.timing import interleaved, report

REPEATS, BATCH = 1000, 50
NUM_SAMPLES, NUM_FEATURES, NUM_TRUE, CORRELATION, SIZE = 300, 100, 20, 0.5, 0.25
RATES = (0.1, 0.2)


def main() -> None:
    """Print a table for each part."""
    warnings.simplefilter("ignore", ConvergenceWarning)  # of scikit-learn
    stability()
    false_discoveries()


def stability() -> None:
    """Stability selection on 100 subsamples next to a loop of fits."""
    A, y = planted()
    f = jaxht.LeastSquares(jax.numpy.asarray(A), jax.numpy.asarray(y), mean=False)
    key = jax.random.key(0)
    rng = np.random.default_rng(0)
    halves = [half for _ in range(50) for half in np.array_split(rng.permutation(n), 2)]

    def fit(rows: np.ndarray) -> Any:
        return (
            OrthogonalMatchingPursuit(n_nonzero_coefs=k, fit_intercept=False)
            .fit(A[rows], y[rows])
            .coef_
            != 0
        )

    def loop() -> Any:
        return np.mean(Parallel(n_jobs=-1)(delayed(fit)(rows) for rows in halves), axis=0)

    def ours() -> Any:
        found = jaxht.inference.stability_selection(f, jaxht.Sparse(k), jaxht.OMP(), key=key)
        return jax.block_until_ready(found.frequencies)

    calls: dict[str, Callable[[], Any]] = {
        "scikit-learn OMP, joblib": loop,
        "stability_selection": jax.jit(ours),
    }
    print(f"\nstability selection, 100 subsamples, n = {n}, d = {d}, k = {k}")
    found = {name: np.asarray(first_call(name, call)) for name, call in calls.items()}
    for name, frequencies in found.items():
        print(f"  {name}: {np.sum(frequencies > 0.9)} columns in over 90 % of the subsamples")
    report(
        "the same, warm",
        interleaved(calls, repeats=5),
        baseline="scikit-learn OMP, joblib",
        unit="ms",
    )


def draw(key: Any) -> tuple[Any, Any, Any]:
    """Gaussian features correlated by CORRELATION^|i - j|, targets with noise of variance 1, and
    who is true."""
    keys = jax.random.split(key, 4)
    z = jax.random.normal(keys[0], (NUM_SAMPLES, NUM_FEATURES))
    A = z @ jnp.linalg.cholesky(covariance()).T
    order = jax.random.permutation(keys[1], NUM_FEATURES)
    signs = jnp.where(jax.random.bernoulli(keys[2], shape=(NUM_FEATURES,)), 1.0, -1.0)
    x = jnp.where(order < NUM_TRUE, SIZE * signs, 0)
    return A, A @ x + jax.random.normal(keys[3], (NUM_SAMPLES,)), x != 0


def covariance() -> Any:
    """Of the features."""
    i = jnp.arange(NUM_FEATURES)
    return CORRELATION ** jnp.abs(i - i[:, None]).astype(float)


@jax.jit
@jax.vmap
def discover(key: Any) -> tuple[Any, ...]:
    """A, its copies, y, who is true, and the statistics of the l0 path."""
    first, second = jax.random.split(key)
    A, y, true = draw(first)
    found = jaxht.inference.knockoffs(
        jaxht.LeastSquares(A, y, mean=False),
        jaxht.OMP(),
        key=second,
        k_max=2 * NUM_TRUE,
        covariance=covariance(),
    )
    return A, found.copies, y, true, found.statistics


def lasso_differences(A: np.ndarray, copies: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``|b_j| - |b~_j|``, of the lasso on features and copies, its penalty by 5 folds (Candes et
    al. 2018, (3.7))."""
    size = np.abs(LassoCV(cv=5, fit_intercept=False).fit(np.hstack([A, copies]), y).coef_)
    return size[:NUM_FEATURES] - size[NUM_FEATURES:]


def false_discoveries() -> None:
    """The false discovery rate and the power of knockoffs over REPEATS data sets, by both
    statistics."""
    seconds = {"l0 path": 0.0, "lasso": 0.0}
    statistics: dict[str, list[Any]] = {"l0 path": [], "lasso": []}
    true: list[Any] = []
    keys = jax.random.split(jax.random.key(1), REPEATS).reshape(-1, BATCH)
    jax.block_until_ready(discover(keys[0]))  # compiles
    with Parallel(n_jobs=-1) as pool:
        for batch in keys:
            begin = time.perf_counter()
            A, copies, y, is_true, own = map(np.asarray, discover(batch))
            seconds["l0 path"] += time.perf_counter() - begin
            begin = time.perf_counter()
            theirs = pool(
                delayed(lasso_differences)(*data) for data in zip(A, copies, y, strict=True)
            )
            seconds["lasso"] += time.perf_counter() - begin
            statistics["l0 path"].extend(own)
            statistics["lasso"].extend(theirs)
            true.extend(is_true)
    print(
        f"\nknockoff+, {REPEATS} data sets, n = {NUM_SAMPLES}, d = {NUM_FEATURES}, {NUM_TRUE} true of size {SIZE}, "
        f"correlation {CORRELATION}^|i - j|"
    )
    for name, W in statistics.items():
        for fdr in RATES:
            threshold = jax.vmap(functools.partial(jaxht.inference.knockoff_threshold, fdr=fdr))(
                jnp.asarray(W)
            )
            selected = np.asarray(W) >= np.asarray(threshold)[:, None]
            wrong = np.sum(selected & ~np.array(true), axis=1) / np.maximum(
                np.sum(selected, axis=1), 1
            )
            power = np.sum(selected & np.array(true), axis=1) / NUM_TRUE
            errors = [np.std(share) / math.sqrt(REPEATS) for share in (wrong, power)]
            print(
                f"  {name:8s} q = {fdr}: false discovery rate {np.mean(wrong):.3f} +- {errors[0]:.3f}, "
                f"power {np.mean(power):.3f} +- {errors[1]:.3f}, {1e3 * seconds[name] / REPEATS:.1f} ms a data set"
            )
