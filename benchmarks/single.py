"""One problem at a time: against skscope on least squares and logistic regression, and against
liblinear's l1 on rcv1.

skscope (``pip install skscope``) is left out where it is not installed, rcv1 where JAXHT_DATA does
not have it.
"""

import functools
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from benchmarks.sparse import data_set
from benchmarks.timing import compiling_anew, interleaved, report

n, d, k = 500, 1000, 25
SOLVERS = {"HTP": jaxht.HTP(), "GraSP": jaxht.GraSP(), "SubspacePursuit": jaxht.SubspacePursuit()}
SKSCOPE = ("ScopeSolver", "HTPSolver", "GraspSolver", "OMPSolver")


def problems() -> dict[str, tuple[Any, Callable[[jax.Array], jax.Array]]]:
    """Each objective, and the same as a function for skscope. Gaussian design, correlated by 0.3,
    and noise."""
    rng = np.random.default_rng(0)
    A = (
        np.sqrt(0.7) * rng.standard_normal((n, d)) + np.sqrt(0.3) * rng.standard_normal((n, 1))
    ).astype(np.float32)
    truth = np.zeros(d, np.float32)
    truth[rng.choice(d, k, replace=False)] = rng.choice([-1, 1], k) * rng.uniform(0.5, 2, k)
    u = A @ truth
    y = (u + rng.standard_normal(n)).astype(np.float32)
    labels = np.where(rng.random(n) < 1 / (1 + np.exp(-u)), 1, -1).astype(np.float32)
    l2 = 1e-3
    return {
        "least squares": (
            jaxht.LeastSquares(A, y, mean=False),
            lambda x: jnp.sum((A @ x - y) ** 2) / 2,
        ),
        "logistic": (
            jaxht.Logistic(A, labels, l2),
            lambda x: jnp.mean(jnp.logaddexp(0, -labels * (A @ x))) + l2 / 2 * jnp.sum(x**2),
        ),
    }


def main() -> None:
    """Print cold and warm times, objectives, and the ratios."""
    for name, (objective, fun) in problems().items():
        against_skscope(name, objective, fun)
    against_liblinear()


def against_skscope(name: str, objective: Any, fun: Callable[[jax.Array], jax.Array]) -> None:
    """Every solver of either library on one problem."""
    candidates: dict[str, Callable[[], Any]] = {}
    for solver, settings in SOLVERS.items():
        candidates[f"jaxht {solver}"] = functools.partial(
            jaxht.solve, objective, jaxht.Sparse(k), settings
        )
    if name == "logistic":  # of which the others leave something to gain
        candidates["jaxht SubspacePursuit, then PHT"] = functools.partial(swapped, objective)
    try:
        import skscope

        def solve_by(solver: str) -> Any:
            return getattr(skscope, solver)(d, k).solve(fun, jit=True)

        for solver in SKSCOPE:  # which solve once
            candidates[f"skscope {solver}"] = functools.partial(solve_by, solver)
    except ImportError:
        print("\nskscope is not installed: left out")
    print(f"\n{name}, n = {n}, d = {d}, k = {k}: first call and objective")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for label, call in candidates.items():
            begin = time.perf_counter()
            with compiling_anew():
                found = jax.block_until_ready(call())
            seconds = time.perf_counter() - begin
            x = found.x if isinstance(found, jaxht.Result) else jnp.asarray(found, jnp.float32)
            print(f"  {label:42s} {seconds * 1e3:10.1f} ms   f = {float(fun(x)):.6f}", flush=True)
        report(
            f"{name}, warm",
            interleaved(candidates, repeats=5),
            baseline=next(reversed(candidates)),
            unit="ms",
        )


def swapped(objective: Any) -> jaxht.Result:
    """Subspace pursuit, and from its end swaps of one entry a step, with a step size long enough to
    make them."""
    start = jaxht.solve(objective, jaxht.Sparse(k), jaxht.SubspacePursuit())
    step_size = 8 * 4 * n / np.max(np.sum(objective.A**2, axis=0))  # 8 / M_1
    return jaxht.solve(objective, jaxht.Sparse(k), jaxht.PHT(1, step_size), x0=start.x)


def against_liblinear() -> None:
    """rcv1, logistic, lambda = 1e-5: HTP to a relative change of 1e-4 and, as sparse,
    scikit-learn's l1."""
    data = data_set("rcv1_subsets_binary")
    if data is None:
        return
    from sklearn.linear_model import LogisticRegression

    A, y = data
    f = jaxht.Logistic(jaxht.design(A), y, 1e-5)
    print(
        f"\nrcv1, {A.shape[0]} x {A.shape[1]}, logistic, lambda = 1e-5: second call, objective, accuracy in training"
    )

    def line(label: str, seconds: float, x: np.ndarray) -> None:
        value, accuracy = float(f.value(x, f.predict(x))), np.mean(np.sign(A @ x) == y)
        size = np.count_nonzero(x)
        print(
            f"  {label:42s} {seconds:8.2f} s   f = {value:.5f}   {accuracy:.2%}   {size} nonzeros",
            flush=True,
        )

    for C in (0.3, 1.0, 3.0):
        l1 = LogisticRegression(
            l1_ratio=1.0, solver="liblinear", C=C, fit_intercept=False, max_iter=1000
        )
        begin = time.perf_counter()
        l1.fit(A, y)
        seconds, x = time.perf_counter() - begin, l1.coef_[0].astype(np.float32)
        size = int(np.count_nonzero(x))
        line(f"liblinear, l1, C = {C}", seconds, x)
        refit = jaxht.solve(
            f, jaxht.Sparse(size), jaxht.HTP(step_size=1e-9), x0=x
        )  # too short a step to leave it
        line("  minimised on its support", float("nan"), np.asarray(refit.x))
        for name, solver in (("HTP", jaxht.HTP()), ("NIHT", jaxht.NIHT())):
            call = functools.partial(
                jaxht.solve, f, jaxht.Sparse(size), solver, stop=jaxht.Stop(rtol=1e-4)
            )
            jax.block_until_ready(call())
            begin = time.perf_counter()
            result = jax.block_until_ready(call())
            line(f"jaxht {name}, k = {size}", time.perf_counter() - begin, np.asarray(result.x))


if __name__ == "__main__":
    main()
