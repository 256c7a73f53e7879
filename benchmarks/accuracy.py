"""The time in which NIHT and CGIHT come within 1e-3 of a planted signal, in the largest entry.

At n = d / 2 and K = .22 n, four fifths of the sparsity at which NIHT recovers half of the signals
of signs from Gaussian measurements.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from benchmarks.timing import interleaved, report
from jaxht import ensembles

n, d, K = 128, 256, 28
LANES = 64
SINGLE = 16  # of the problems that are also solved one by one
SOLVERS = {"NIHT": jaxht.NIHT(), "CGIHT": jaxht.CGIHT()}
MAX_STEPS = 300


def objective(A: jax.Array, signal: jax.Array) -> jaxht.LeastSquares:
    """Without noise."""
    return jaxht.LeastSquares(A, A @ signal, mean=False)


def steps_needed(solver: Any, A: jax.Array, signal: jax.Array) -> jax.Array:
    """Until the error is below 1e-3 of the largest entry; MAX_STEPS where it never is."""
    _, xs = jaxht.trace(
        objective(A, signal),
        jaxht.Sparse(K),
        solver,
        stop=jaxht.Stop(rtol=0.0),
        num_steps=MAX_STEPS,
        record=lambda carry: carry.iterate.x,
    )
    errors = jnp.max(jnp.abs(xs - signal), axis=1) / jnp.max(jnp.abs(signal))
    return jnp.where(jnp.any(errors < 1e-3), jnp.argmax(errors < 1e-3), MAX_STEPS)


def run(solver: Any, A: jax.Array, signal: jax.Array, num_steps: jax.Array) -> jax.Array:
    """x after so many steps."""
    stop = jaxht.Stop(max_steps=num_steps, rtol=0.0)
    return jaxht.solve(objective(A, signal), jaxht.Sparse(K), solver, stop=stop).x


def main() -> None:
    """Problems that both recover, one by one and side by side."""
    keys = jax.random.split(jax.random.key(0), (2, 2 * LANES))
    A = jax.vmap(lambda key: ensembles.gaussian(key, n, d))(keys[0])
    signals = jax.vmap(lambda key: ensembles.sign_signal(key, d, K))(keys[1])
    steps = {
        name: jax.jit(jax.vmap(functools.partial(steps_needed, solver)))(A, signals)
        for name, solver in SOLVERS.items()
    }
    recovered = {name: found < MAX_STEPS for name, found in steps.items()}
    (chosen,) = np.nonzero(functools.reduce(np.logical_and, map(np.asarray, recovered.values())))
    chosen = chosen[:LANES]
    print(
        f"\nn = {n}, d = {d}, K = {K}; of {2 * LANES} problems, recovered; of those that both recover, median steps"
    )
    singles, lanes = {}, {}
    for name, solver in SOLVERS.items():
        needed = np.asarray(steps[name])[chosen]
        share = np.mean(recovered[name])
        print(f"  {name:8s}{share:6.0%}{np.median(needed):6.0f} steps, {needed.max()} at most")
        one = functools.partial(run, solver)
        problems = (A[chosen], signals[chosen], steps[name][chosen])
        lanes[name] = functools.partial(jax.jit(jax.vmap(one)), *problems)
        each = [jax.tree.map(lambda v, i=i: v[i], problems) for i in range(SINGLE)]
        single = jax.jit(one)
        singles[name] = lambda single=single, each=each: [single(*problem) for problem in each]
        x = lanes[name]()
        assert np.max(np.abs(x - problems[1])) < 1.1e-3, "the runs reach what was traced"
    report("one by one", interleaved(singles, repeats=9), baseline="NIHT", per=SINGLE)
    title = f"{LANES} problems side by side, each"
    report(title, interleaved(lanes, repeats=9), baseline="NIHT", per=LANES)


if __name__ == "__main__":
    main()
