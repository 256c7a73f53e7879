"""Recovery and divergence rates that the papers' experiments rest on, in float32."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from jaxht import ensembles, metrics
from jaxht.solvers.solver import Solver

d = 256


@functools.partial(jax.jit, static_argnums=(1, 5))
def run(
    key: jax.Array,
    n: int,
    K: jax.Array,
    solver: Solver,
    k: jax.Array,
    trials: int,
    stop: jaxht.Stop,
) -> tuple[jax.Array, jaxht.Result]:
    """Success by trial and the results, for one Gaussian A shared by all signals."""
    A = ensembles.gaussian(jax.random.fold_in(key, 0), n, d)
    draw = functools.partial(ensembles.gaussian_signal, d=d, K=K)
    keys = jax.random.split(jax.random.fold_in(key, 1), trials)

    def trial(key: jax.Array) -> tuple[jax.Array, jaxht.Result]:
        x_true = draw(key)
        y = jnp.matmul(A, x_true, precision="highest")
        result = jaxht.solve(
            jaxht.LeastSquares(A, y, mean=False), jaxht.Sparse(k), solver, key=key, stop=stop
        )
        return metrics.success(result.x, x_true), result

    return jax.vmap(trial)(keys)


def main() -> None:
    """Print success rates of PGD at three points of the phase diagram, and how IHT at eta = 1
    ends."""
    eps = float(jnp.finfo(jnp.float32).eps)
    print("\nPGD, eta = 2 / sigma_max^2, up to 70 000 steps, success: ||x - x*|| < 1e-3")
    for n, K, k, draws, trials, rtol in (
        (100, 4, 36, 1, 1000, eps),
        (150, 8, 72, 1, 1000, eps),
        (184, 16, 144, 5, 200, eps),
        (184, 16, 144, 5, 200, 0.0),
    ):
        rates = []
        for draw in range(draws):
            key = jax.random.key(draw)
            norm2 = jnp.linalg.norm(ensembles.gaussian(jax.random.fold_in(key, 0), n, d), 2) ** 2
            stop = jaxht.Stop(max_steps=70_000, rtol=rtol)
            success, _ = run(key, n, K, jaxht.IHT(step_size=2 / norm2), k, trials, stop)
            rates.append(float(np.mean(success)))
        listed = ", ".join(f"{rate:.1%}" for rate in rates)
        setting = f"(n, K, k) = ({n}, {K}, {k}), {trials} signals a matrix, rtol = {rtol:.2g}"
        print(f"  {setting}: {np.mean(rates):.1%}  ({listed})", flush=True)

    print(
        "\nHT-SVRG, eta = 2 / sigma_max^2, m = 3n, k = 9K, up to 1500 stages; the paper: 95% at n = 1.7 K ln 256 + 33"
    )
    for n, K, trials in ((100, 4, 200), (103, 6, 128), (124, 8, 128)):
        norm2 = (
            jnp.linalg.norm(ensembles.gaussian(jax.random.fold_in(jax.random.key(0), 0), n, d), 2)
            ** 2
        )
        stop = jaxht.Stop(max_steps=1500, target_value=1e-9)
        success, _ = run(
            jax.random.key(0), n, K, jaxht.HTSVRG(2 / norm2 / n, 3 * n), 9 * K, trials, stop
        )
        line = 1.7 * K * np.log(d) + 33
        print(
            f"  (n, K) = ({n}, {K}), n / line = {n / line:.2f}, {trials} signals: {np.mean(success):.1%}",
            flush=True,
        )

    trials = 1000
    print(f"\nIHT, eta = 1, (n, K, k) = (175, 16, 16), {trials} signals")
    _, result = run(
        jax.random.key(0), 175, 16, jaxht.IHT(step_size=1.0), 16, trials, jaxht.Stop(max_steps=7000)
    )
    reasons, counts = np.unique(result.reason, return_counts=True)
    print(
        "  "
        + ", ".join(f"{reason} {n / trials:.1%}" for reason, n in zip(reasons, counts, strict=True))
    )
    print(
        f"  every x and value finite: {bool(jnp.all(jnp.isfinite(result.x)) & jnp.all(jnp.isfinite(result.value)))}"
    )
