"""Sparse designs against SciPy: the products both ways, and iterative hard thresholding of logistic
regression.

Then, on 1.7 million features, hard thresholding pursuit against as many gradients of iterative hard
thresholding.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from benchmarks.timing import interleaved, report
from jaxht.designs.sparse import SparseMatrix

k, l2, num_steps = 500, 1e-5, 200


def plain_iht(A: Any, y: np.ndarray, step_size: np.float32) -> np.ndarray:
    """The loop one writes with SciPy: a product each way and a partition a step."""
    x, transposed = np.zeros(A.shape[1], A.dtype), A.T
    for _ in range(num_steps):
        residual = -y / (1 + np.exp(y * (A @ x))) / len(y)
        z = x - step_size * (transposed @ residual + np.float32(l2) * x)
        support = np.argpartition(np.abs(z), -k)[-k:]
        x = np.zeros_like(x)
        x[support] = z[support]
    return x


def loss(A: Any, y: np.ndarray, x: np.ndarray) -> float:
    """f(x), in double precision."""
    x = np.asarray(x, np.float64)
    return float(np.mean(np.logaddexp(0, -y * (A @ x))) + l2 / 2 * x @ x)


def data_set(name: str) -> tuple[Any, np.ndarray] | None:
    """The samples of one set, and their labels; None, and a line, where they are not at hand."""
    path = Path(os.environ.get("JAXHT_DATA", ""), f"{name}.npz")
    if not os.environ.get("JAXHT_DATA") or not path.is_file():
        print(f"needs {path.name} in $JAXHT_DATA: left out")
        return None
    import scipy.sparse

    with np.load(path) as file:
        y = file["y"].astype(np.float32)
        n = (
            int(file["n_main"]) if "n_main" in file else len(y)
        )  # as many rows of rcv1 as rcv1.binary has
    return scipy.sparse.load_npz(path).tocsr()[:n].astype(np.float32), y[:n]


def pursue() -> None:
    """Print the seconds of HTP, and those of IHT in as many gradients; step sizes are their own."""
    data = data_set("news20_bigram_binary")
    if data is None:
        return
    A, y = data
    f, constraint = jaxht.Logistic(jaxht.design(A), y, l2, mean=True), jaxht.Sparse(k)
    found = jaxht.solve(f, constraint, jaxht.HTP())
    gradients = int(found.counts.full_gradients)
    stop = jaxht.Stop(max_steps=gradients, rtol=0)
    seconds = interleaved(
        {
            "IHT": lambda: jaxht.solve(f, constraint, jaxht.IHT(), stop=stop).x,
            "HTP": lambda: jaxht.solve(f, constraint, jaxht.HTP()).x,
        },
        repeats=5,
    )
    status = found.reason
    report(
        f"HTP to its end ({status}), k = {k}, {A.shape[0]} x {A.shape[1]}, {A.nnz} entries: {gradients} gradients",
        seconds,
        baseline="IHT",
        unit="s",
    )


def main() -> None:
    """Print milliseconds a product and a step, seconds of HTP, and the ratios."""
    pursue()
    data = data_set("rcv1_subsets_binary")
    if data is None:
        return
    import scipy.sparse.linalg
    from jax.experimental.sparse import BCOO

    A, y = data
    n = len(y)
    ours, bcoo = jaxht.design(A), BCOO.from_scipy_sparse(A)
    assert isinstance(ours, SparseMatrix)

    rng = np.random.default_rng(0)
    sizes = f"rcv1, {n} x {A.shape[1]}, {A.nnz} entries"
    matvec, rmatvec = jax.jit(SparseMatrix.matvec), jax.jit(SparseMatrix.rmatvec)
    multiply, rmultiply = jax.jit(lambda A, x: A @ x), jax.jit(lambda A, r: r @ A)
    for title, size, plain, ours_both, theirs in (
        ("A x", A.shape[1], A, matvec, multiply),
        ("A' r", n, A.T, rmatvec, rmultiply),
    ):
        u = rng.standard_normal(size, np.float32)
        seconds = interleaved(
            {
                "SciPy CSR": functools.partial(plain.__matmul__, u),
                "JAX BCOO": functools.partial(theirs, bcoo, jnp.asarray(u)),
                "jaxht": functools.partial(ours_both, ours, jnp.asarray(u)),
            },
            repeats=31,
        )
        report(f"{title}, {sizes}", seconds, baseline="SciPy CSR", unit="ms")

    step_size = 1 / (
        np.float32(scipy.sparse.linalg.svds(A, 1, return_singular_vectors=False)[0] ** 2 / (4 * n))
        + l2
    )

    @jax.jit
    def iht(A: SparseMatrix, y: jax.Array) -> jax.Array:
        stop = jaxht.Stop(max_steps=num_steps, rtol=0)
        return jaxht.solve(
            jaxht.Logistic(A, y, l2), jaxht.Sparse(k), jaxht.IHT(step_size), stop=stop
        ).x

    candidates: dict[str, Callable[[], Any]] = {
        "SciPy CSR": functools.partial(plain_iht, A, y, step_size),
        "jaxht": functools.partial(iht, ours, jnp.asarray(y)),
    }
    losses = {name: round(loss(A, y, call()), 6) for name, call in candidates.items()}
    report(
        f"IHT, logistic regression, k = {k}, {sizes}: per step; losses after {num_steps}: {losses}",
        interleaved(candidates, repeats=5),
        baseline="SciPy CSR",
        per=num_steps,
        unit="ms",
    )
