"""How often each solver reaches the global optimum of small problems, all of whose supports are
tried."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from benchmarks.timing import double_precision

SOLVERS = {
    "IHT": jaxht.IHT(),
    "NIHT": jaxht.NIHT(),
    "HTP": jaxht.HTP(),
    "PHT(1)": jaxht.PHT(),
    "GraSP": jaxht.GraSP(),
    "SubspacePursuit": jaxht.SubspacePursuit(),
    "OMP": jaxht.OMP(),
    "OLS": jaxht.OLS(),
    "FoBa": jaxht.FoBa(),
    "OMPR": jaxht.OMPR(),
    "ExhaustiveLocalSearch": jaxht.ExhaustiveLocalSearch(),
    "ARHT": jaxht.ARHT(),
    "LocalSearch": jaxht.LocalSearch(),
}
# (n, d, k), correlation of neighbouring columns
DESIGNS = {
    "iid": ((25, 11, 3), 0.0),
    "correlated, 0.8": ((25, 11, 3), 0.8),
    "square": ((12, 12, 4), 0.0),
}
NUMBER = {"linear": 200, "logistic": 200}
L2 = 0.05


def problems(
    model: str, shape: tuple[int, int, int], correlation: float
) -> tuple[np.ndarray, np.ndarray]:
    """A and y: noise 0.5, or labels of a logistic model with it."""
    (n, d, k), number, rng = shape, NUMBER[model], np.random.default_rng(0)
    covariance = correlation ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    A = rng.normal(size=(number, n, d)) @ np.linalg.cholesky(covariance).T
    x = rng.normal(size=(number, d)) * (np.argsort(rng.random((number, d))) < k)
    u = np.einsum("tnd,td->tn", A, x) + 0.5 * rng.normal(size=(number, n))
    return A, u if model == "linear" else np.where(
        rng.random(u.shape) < 1 / (1 + np.exp(-2 * u)), 1.0, -1.0
    )


def main() -> None:
    """Print a table of percentages: at the optimum, to 1e-7; a count below it or with more than k
    nonzeros is a bug."""
    with double_precision():
        for model in NUMBER:
            columns = []
            for shape, correlation in DESIGNS.values():
                A, y = (jnp.asarray(v) for v in problems(model, shape, correlation))
                f = (
                    jaxht.LeastSquares
                    if model == "linear"
                    else functools.partial(jaxht.Logistic, l2=L2)
                )
                columns.append(table(f, A, y, shape[2]))
            print(
                f"\n{model}: optima reached (%), n x d and k: {', '.join(f'{k} {v[0]}' for k, v in DESIGNS.items())}"
            )
            for i, name in enumerate(SOLVERS):
                print(
                    f"  {name:24s}" + "".join(f"{column[i]:8.1f}" for column in columns), flush=True
                )


def table(f: Callable[..., Any], A: jax.Array, y: jax.Array, k: int) -> list[float]:
    """Percentages by solver."""
    search = jax.jit(
        lambda A, y: jaxht.exhaustive_search(f(A, y), jaxht.Sparse(k), batch_size=128).value
    )
    optimum = np.array([search(*problem) for problem in zip(A, y, strict=True)])
    keys = jax.random.split(jax.random.key(0), len(A))
    rates = []
    for name, solver in SOLVERS.items():
        run = jax.jit(
            jax.vmap(lambda A, y, key, s=solver: jaxht.solve(f(A, y), jaxht.Sparse(k), s, key=key))
        )
        result = run(A, y, keys)
        wrong = np.sum(result.value < optimum * (1 - 1e-7)) + np.sum(
            np.count_nonzero(result.x, axis=1) > k
        )
        if wrong:
            print(f"  {name}: {wrong} results below the optimum or infeasible")
        rates.append(100 * float(np.mean(result.value <= optimum * (1 + 1e-7))))
    return rates


if __name__ == "__main__":
    main()
