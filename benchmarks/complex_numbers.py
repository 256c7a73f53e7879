"""Steps on complex problems against those on real ones of the same n and d."""

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


def batch(solver: Any, lanes: int, n: int, d: int, k: int, dtype: type) -> Any:
    """A call that solves problems of noise, each with its own A, so that runs are long."""
    keys = jax.random.split(jax.random.key(0), (2, lanes))
    A = jax.vmap(lambda key: ensembles.gaussian(key, n, d, variance=1 / n, dtype=dtype))(keys[0])
    y = jax.vmap(lambda key: ensembles.gaussian(key, n, 1, dtype=dtype)[:, 0])(keys[1])
    stop = jaxht.Stop(max_steps=MAX_STEPS, rtol=0.0)

    def solve(A: jax.Array, y: jax.Array) -> jax.Array:
        f = jaxht.LeastSquares(A, y, mean=False)
        return jaxht.solve(f, jaxht.Sparse(k), solver, stop=stop).num_steps

    if lanes == 1:
        single = jax.jit(solve)
        return lambda: single(A[0], y[0])
    many = jax.jit(jax.vmap(solve))
    return lambda: many(A, y)


def compare(lanes: int, n: int, d: int, k: int) -> None:
    """The time of a step, of all lanes together, by solver."""
    print(f"\na step, n = {n}, d = {d}, k = {k}, {lanes} problems: real, complex, complex/real")
    for name, solver in SOLVERS.items():
        calls = {kind: batch(solver, lanes, n, d, k, kind) for kind in (float, complex)}
        steps = {kind: int(jnp.max(call())) for kind, call in calls.items()}
        seconds = interleaved({kind.__name__: call for kind, call in calls.items()}, repeats=9)
        real, of_complex = (seconds[kind.__name__] / steps[kind] for kind in (float, complex))
        low, ratio, high = np.percentile(of_complex / real, [10, 50, 90])
        times = f"{np.median(real) * 1e6:10.1f} us {np.median(of_complex) * 1e6:10.1f} us"
        print(f"  {name:24s} {times} {ratio:6.2f}  ({low:.2f} to {high:.2f})", flush=True)


def main() -> None:
    """One problem of two sizes; many lanes; many columns."""
    compare(1, n=100, d=256, k=10)
    compare(1, n=500, d=1000, k=30)
    compare(64, n=128, d=256, k=20)
    compare(16, n=128, d=256, k=40)


if __name__ == "__main__":
    main()
