"""What the frame costs: an eager call, the runner's tests, and compiles over a grid of numbers."""

import functools

import jax
import jax.numpy as jnp
from jax import lax

import jaxht
from benchmarks.timing import interleaved, report
from jaxht.linalg.projections import hard_threshold

n, d, k, lanes, steps = 136, 256, 36, 1000, 200


def main() -> None:
    """Print the cost of an eager call and of the runner's part in a PGD step."""
    A = jax.random.normal(jax.random.key(0), (n, d)) / jnp.sqrt(n)
    ys = jax.random.normal(jax.random.key(1), (lanes, n))
    eta = 1 / jnp.linalg.norm(A, 2) ** 2

    @jax.jit
    def bare(A: jax.Array, ys: jax.Array) -> jax.Array:
        def step(_: int, x: jax.Array) -> jax.Array:
            residual = jnp.matmul(x, A.T, precision="highest") - ys
            return jax.vmap(hard_threshold, (0, None))(
                x - eta * jnp.matmul(residual, A, precision="highest"), k
            )

        return lax.fori_loop(0, steps, step, jnp.zeros((lanes, d)))

    @jax.jit
    def runner(A: jax.Array, ys: jax.Array) -> jax.Array:
        stop = jaxht.Stop(max_steps=steps, rtol=0.0)
        solver = jaxht.IHT(step_size=eta)
        return jax.vmap(
            lambda y: (
                jaxht.solve(
                    jaxht.LeastSquares(A, y, mean=False), jaxht.Sparse(k), solver, stop=stop
                ).x
            )
        )(ys)

    seconds = interleaved(
        {
            "the three formulas in a fori_loop": functools.partial(bare, A, ys),
            "jaxht.solve": functools.partial(runner, A, ys),
        },
        repeats=9,
    )
    title = f"PGD, {lanes} lanes, n = {n}, d = {d}, k = {k}: per step of a lane"
    report(title, seconds, baseline="the three formulas in a fori_loop", per=lanes * steps)

    tiny = jaxht.LeastSquares(jnp.eye(4), jnp.ones(4), mean=False)
    eager = functools.partial(jaxht.solve, tiny, jaxht.Sparse(2), jaxht.IHT(step_size=1.0))
    report(
        "an eager call on a 4 x 4 problem",
        interleaved({"jaxht.solve": eager}, repeats=201),
        baseline="jaxht.solve",
    )
