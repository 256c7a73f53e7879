"""Steps on complex problems against those on real ones of the same n and d."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from benchmarks.timing import interleaved
from jaxht import ensembles

SOLVERS = {
    "IHT": jaxht.IHT(),
    "NIHT": jaxht.NIHT(),
    "CGIHT": jaxht.CGIHT(),
    "FIHT": jaxht.FIHT(),
    "ALPS": jaxht.ALPS(),
    "HTP": jaxht.HTP(),
    "CoSaMP": jaxht.CoSaMP(),
    "CSMPSP": jaxht.CoSaMP(expand=1),
    "SubspacePursuit": jaxht.SubspacePursuit(),
    "OMP": jaxht.OMP(),
    "OLS": jaxht.OLS(),
}
MAX_STEPS = 30
KINDS = {"real": float, "complex": complex}


def batch(
    solver: Any, lanes: int, n: int, d: int, k: int, dtype: type, max_steps: int
) -> Callable[[], jax.Array]:
    """A call that solves problems of noise, each with its own A, so that runs are long."""
    keys = jax.random.split(jax.random.key(0), (2, lanes))
    A = jax.vmap(lambda key: ensembles.gaussian(key, n, d, variance=1 / n, dtype=dtype))(keys[0])
    y = jax.vmap(lambda key: ensembles.gaussian(key, n, 1, dtype=dtype)[:, 0])(keys[1])
    stop = jaxht.Stop(max_steps=max_steps, rtol=0.0)

    def solve(A: jax.Array, y: jax.Array) -> jax.Array:
        f = jaxht.LeastSquares(A, y, mean=False)
        return jaxht.solve(f, jaxht.Sparse(k), solver, stop=stop).num_steps

    if lanes == 1:
        single = jax.jit(solve)
        return lambda: single(A[0], y[0])
    many = jax.jit(jax.vmap(solve))
    return lambda: many(A, y)


def compare(lanes: int, n: int, d: int, k: int) -> None:
    """The time of a step, of all lanes together, and of a run of one step, by solver."""
    print(f"\nn = {n}, d = {d}, k = {k}, {lanes} problems, in us")
    print(f"  {'':20s}{'run of one step':>20s}{'a further step':>20s}   ratio of these")
    for name, solver in SOLVERS.items():
        runs = {
            f"{kind}, {length}": batch(solver, lanes, n, d, k, dtype, length)
            for kind, dtype in KINDS.items()
            for length in (1, MAX_STEPS)
        }
        further = {kind: int(jnp.max(runs[f"{kind}, {MAX_STEPS}"]())) - 1 for kind in KINDS}
        if min(further.values()) == 0:
            print(f"  {name:20s} ends after one step")
            continue
        seconds = interleaved(runs, repeats=15)
        first = {kind: 1e6 * seconds[f"{kind}, 1"] for kind in KINDS}
        step = {
            kind: (1e6 * seconds[f"{kind}, {MAX_STEPS}"] - first[kind]) / further[kind]
            for kind in KINDS
        }
        low, ratio, high = np.percentile(step["complex"] / step["real"], [10, 50, 90])
        times = "".join(
            f"{np.median(of['real']):10.1f}{np.median(of['complex']):10.1f}" for of in (first, step)
        )
        print(f"  {name:20s}{times}   {ratio:6.2f}  ({low:.2f} to {high:.2f})", flush=True)


def main() -> None:
    """One problem of two sizes; many lanes; many columns."""
    compare(1, n=100, d=256, k=10)
    compare(1, n=500, d=1000, k=30)
    compare(64, n=128, d=256, k=20)
    compare(16, n=128, d=256, k=40)


if __name__ == "__main__":
    main()
