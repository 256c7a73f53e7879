"""Sparse precision matrices: refits, and GraHTP beside scikit-learn's graphical lasso, single and
batched."""

import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import solve_triangular
from sklearn.covariance import graphical_lasso

import jaxht
from benchmarks.timing import double_precision, interleaved, report
from jaxht import Edges, GaussianPrecision
from jaxht.constraints.support import Support
from jaxht.ensembles import graph_precision
from jaxht.subproblems import refit

SOLVER = jaxht.HTP(step_size=10.0, backtrack=True)


def main() -> None:
    """Print times, ratios and residuals."""
    with double_precision():
        for p in (30, 60, 120, 200):
            single(p, number=5 if p < 100 else 2)
        for p, number in ((30, 100), (60, 20)):
            batched(p, number)
        for p in (30, 60):
            warm(p)


def problems(p: int, number: int) -> tuple[np.ndarray, int]:
    """Covariances of 100 samples of random graphs, an edge in ten pairs, condition number p; the
    mean edges."""
    rng = np.random.default_rng(p)
    upper = [np.triu(rng.random((p, p)) < 0.1, 1) for _ in range(number)]
    roots = [np.linalg.cholesky(graph_precision(edges | edges.T, p)) for edges in upper]
    X = [
        solve_triangular(root, rng.normal(size=(2, p, 100))[0], lower=True, trans=1)
        for root in roots
    ]
    return np.stack([x @ x.T / 100 for x in X]), int(np.sum(upper)) // number


@functools.partial(jax.jit, static_argnums=1)
def solved(S: Any, k: int) -> Any:
    """By GraHTP."""
    return jaxht.solve(GaussianPrecision(S), Edges(k), SOLVER)


@functools.partial(jax.jit, static_argnums=1)
def all_solved(S: Any, k: int) -> Any:
    """The same under vmap."""
    return jax.vmap(lambda S: jaxht.solve(GaussianPrecision(S), Edges(k), SOLVER))(S)


@functools.partial(jax.jit, static_argnums=1)
def mapped(S: Any, k: int) -> Any:
    """The same, one after the other in one program."""
    return jax.lax.map(lambda S: jaxht.solve(GaussianPrecision(S), Edges(k), SOLVER), S)


def lasso(S: np.ndarray, k: int) -> float:
    """The largest penalty of a grid with k edges or more."""
    most = float(np.max(np.abs(np.triu(S, 1))))
    for share in np.geomspace(0.5, 0.02, 15):
        W = _lasso(S, share * most)
        if np.count_nonzero(np.abs(np.triu(W, 1)) > 1e-8) >= k:
            break
    return float(share * most)


def _lasso(S: np.ndarray, penalty: float) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return graphical_lasso(S, penalty)[1]


def single(p: int, number: int) -> None:
    """One problem after the other, as many edges as the truth has, and the lasso at the penalty
    that gives as many."""
    S, k = problems(p, number)
    penalties = [lasso(s, k) for s in S]
    results = [solved(s, k) for s in S]
    candidates = {
        "graphical_lasso of scikit-learn": lambda: [
            _lasso(s, a) for s, a in zip(S, penalties, strict=True)
        ],
        "GraHTP": lambda: [solved(s, k).x for s in S],
    }
    seconds = interleaved(candidates, repeats=3)
    report(
        f"a precision matrix, p = {p}, {k} edges",
        seconds,
        baseline="graphical_lasso of scikit-learn",
        per=number,
        unit="ms",
    )
    residual = max(
        np.max(np.abs((s - np.linalg.inv(r.x))[np.asarray(r.x) != 0]))
        for s, r in zip(S, results, strict=True)
    )
    steps = np.mean([int(r.num_steps) for r in results])
    failed = sum(not r.succeeded for r in results)
    print(
        f"  largest KKT residual on the graph {residual:.1e}; {steps:.1f} steps; {failed} of {number} failed"
    )


def batched(p: int, number: int) -> None:
    """Many problems under vmap, and one after the other."""
    S, k = problems(p, number)
    penalties = [lasso(s, k) for s in S]
    candidates = {
        "graphical_lasso of scikit-learn": lambda: [
            _lasso(s, a) for s, a in zip(S, penalties, strict=True)
        ],
        "GraHTP, vmap": lambda: all_solved(S, k).x,
        "GraHTP, lax.map": lambda: mapped(S, k).x,
        "GraHTP, one by one": lambda: [solved(s, k).x for s in S],
    }
    report(
        f"{number} precision matrices, p = {p}, {k} edges, each",
        interleaved(candidates, repeats=2),
        baseline="graphical_lasso of scikit-learn",
        per=number,
        unit="ms",
    )


def warm(p: int) -> None:
    """A refit within bounds that are active, by ADMM: from the best diagonal, and from the
    minimiser a swap before."""
    (S, *_), k = problems(p, 1)
    whole = np.linalg.eigvalsh(np.asarray(solved(S, k).x))
    objective = GaussianPrecision(S, lower=1.2 * whole[0], upper=0.8 * whole[-1]).prepare()
    region = Edges(k).prepare((p, p)).project(jnp.asarray(S))[1]
    refit_on = jax.jit(lambda mask, x: refit(objective, Support(mask, k_max=p + 2 * k, ndim=2), x))
    mask = np.asarray(region.mask).copy()
    before = refit_on(mask, objective.start())
    i, j = np.argwhere(np.triu(mask, 1))[0]
    mask[i, j] = mask[j, i] = False
    candidates = {
        "cold": lambda: refit_on(mask, objective.start()),
        "warm": lambda: refit_on(mask, before.x),
    }
    print(f"\na refit within active bounds, p = {p}; converged: {bool(before.converged)}")
    report("  by ADMM", interleaved(candidates, repeats=5), baseline="cold", unit="ms")


if __name__ == "__main__":
    main()
