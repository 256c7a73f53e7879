"""OMP of complex problems, with a matrix for each, against that of PyLops.

PyLops (``pip install pylops``) is left out where it is not installed.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from benchmarks.timing import compiling_anew, interleaved, report

LANES = 100
FEW = 4


def problems(n: int, d: int, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Complex Gaussian matrices with columns of norm 1, and y = A x plus noise, complex64."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        real, imag = rng.standard_normal((2, *shape), np.float32)
        return real + 1j * imag

    A = draw(LANES, n, d)
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    signals = np.zeros((LANES, d), np.complex64)
    for signal in signals:
        signal[rng.choice(d, K, replace=False)] = draw(K)
    return A, np.einsum("tnd,td->tn", A, signals) + 0.02 * draw(LANES, n)


def ours(k: int, at_once: int, A: jax.Array, y: jax.Array) -> jax.Array:
    """All problems, so many at once: the matrices of these should fit into a cache."""

    def solve(problem: tuple[jax.Array, jax.Array]) -> jax.Array:
        f = jaxht.LeastSquares(*problem, mean=False)
        return jaxht.solve(f, jaxht.Sparse(k), jaxht.OMP()).x

    return jax.lax.map(solve, (A, y), batch_size=at_once)


def theirs(k: int, A: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A loop: PyLops solves one problem a call."""
    from pylops import MatrixMult
    from pylops.optimization.sparsity import omp

    # Each refit by LSQR in at most 40 steps, which is the default.
    found = [
        omp(MatrixMult(a, dtype=a.dtype), b, niter_outer=k, sigma=0)[0]
        for a, b in zip(A, y, strict=True)
    ]
    return np.stack(found)


def compare(n: int, d: int, k: int) -> None:
    """Supports, the time of the first call with its compile, and warm times."""
    A, y = problems(n, d, k)
    candidates: dict[str, Callable[[], Any]] = {}
    for at_once in (LANES, FEW):
        call = jax.jit(functools.partial(ours, k, at_once))
        batch = functools.partial(call, jnp.asarray(A), jnp.asarray(y))
        candidates[f"jaxht OMP, {at_once} at once"] = batch
    try:
        import pylops  # noqa: F401

        candidates = {"PyLops omp, a loop": functools.partial(theirs, k, A, y)} | candidates
    except ImportError:
        print("\nPyLops is not installed: left out")
    print(f"\ncomplex OMP, n = {n}, d = {d}, k = {k}, {LANES} problems: first call")
    supports = []
    for name, candidate in candidates.items():
        begin = time.perf_counter()
        with compiling_anew():
            x = np.asarray(candidate())
        print(f"  {name:42s} {time.perf_counter() - begin:10.2f} s", flush=True)
        supports.append(x != 0)
    same = np.mean(np.all(supports[0] == supports[-1], axis=1))
    print(f"  the same support in {same:.1%}")
    baseline = next(iter(candidates))
    report("warm, all problems", interleaved(candidates, repeats=5), baseline=baseline, unit="ms")


def main() -> None:
    """Two sizes."""
    compare(n=100, d=256, k=10)
    compare(n=200, d=1000, k=20)


if __name__ == "__main__":
    main()
