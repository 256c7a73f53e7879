"""The error of approximate message passing after each step, beside what state evolution predicts."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from jaxht import ensembles
from jaxht.baselines import AMP, predict_amp

CASES = ((0.5, 0.2), (0.3, 0.15))  # (n / d, k / n)
NUM_LANES = 64
NUM_STEPS = 5
SHOWN_STEPS = (2, 5)
# The quantile of an interval of 95 %.
QUANTILE = 1.96


@partial(jax.jit, static_argnums=range(1, 5))
def measure(key: jax.Array, d: int, delta: float, rho: float, is_complex: bool) -> jax.Array:
    """``||x_t - x||^2 / d`` for Gaussian A and signals of signs or phases, (NUM_LANES, NUM_STEPS +
    1)."""
    n = round(delta * d)
    k = round(rho * n)
    dtype = complex if is_complex else float

    def run(key: jax.Array) -> jax.Array:
        design = partial(ensembles.gaussian, n=n, d=d, dtype=dtype)
        signal = partial(ensembles.sign_signal, d=d, K=k, dtype=dtype)
        problem = ensembles.planted(key, design, signal)
        f = jaxht.LeastSquares(problem.A, problem.y, mean=False)

        def error(carry: jaxht.extend.Carry) -> jax.Array:
            return jnp.mean(jnp.abs(carry.iterate.x - problem.x_true) ** 2)

        constraint = jaxht.Sparse(d)
        return jaxht.trace(f, constraint, AMP(), num_steps=NUM_STEPS, record=error)[1]

    return jax.lax.map(run, jax.random.split(key, NUM_LANES), batch_size=8)


def predict(d: int, delta: float, rho: float, is_complex: bool) -> np.ndarray:
    """What state evolution predicts, with n / d and k / n as they are after rounding."""
    n = round(delta * d)
    return predict_amp(n / d, round(rho * n) / n, NUM_STEPS, is_complex=is_complex)


def half_width(errors: np.ndarray) -> np.ndarray:
    """Half of the interval of 95 % of the mean over lanes."""
    return QUANTILE * np.std(errors, axis=0, ddof=1) / np.sqrt(len(errors))


def main() -> None:
    """Print a table."""
    print(f"\nAMP, ||x_t - x||^2 / d: the mean of {NUM_LANES} problems against state evolution")
    print("| numbers | d | n/d | k/n | step | mean, 95 % | state evolution | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for is_complex in (False, True):
        for d in (512, 2048):
            for delta, rho in CASES:
                errors = np.asarray(measure(jax.random.key(0), d, delta, rho, is_complex), float)
                predicted = predict(d, delta, rho, is_complex)
                mean, width = errors.mean(axis=0), half_width(errors)
                kind = "complex" if is_complex else "real"
                for t in SHOWN_STEPS:
                    print(
                        f"| {kind} | {d} | {delta:g} | {rho:g} | {t} | {mean[t]:.3g} ± {width[t]:.2g} "
                        f"| {predicted[t]:.3g} | {mean[t] / predicted[t]:.3f} |"
                    )
