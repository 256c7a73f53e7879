"""hard_threshold against ``jax.lax.top_k`` followed by a scatter."""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.timing import interleaved, report
from jaxht.linalg.projections import hard_threshold


@functools.partial(jax.jit, static_argnums=1)
def top_k_threshold(z: jax.Array, k: int) -> jax.Array:
    """What one writes without this library: k static, ties as top_k breaks them (lowest index)."""

    def one(z: jax.Array) -> jax.Array:
        _, indices = lax.top_k(jnp.abs(z), k)
        return jnp.zeros_like(z).at[indices].set(z[indices])

    return one(z) if z.ndim == 1 else jax.vmap(one)(z)


def main() -> None:
    """Print the ratios for many short vectors and for one long one."""
    batched, single = jax.jit(jax.vmap(hard_threshold)), jax.jit(hard_threshold)
    for shape, ks in (((1000, 256), (16, 36, 128)), ((1_350_000,), (10_000, 67_500))):
        z = jax.random.normal(jax.random.key(0), shape)
        for k in ks:
            ours = batched if z.ndim == 2 else single
            traced = jnp.full(shape[:-1], k, jnp.int32)
            assert bool(jnp.all(ours(z, traced) == top_k_threshold(z, k)))
            seconds = interleaved(
                {
                    "lax.top_k + scatter": functools.partial(top_k_threshold, z, k),
                    "jaxht.projections.hard_threshold": functools.partial(ours, z, traced),
                },
                repeats=31,
            )
            title = f"hard_threshold, {' x '.join(map(str, shape))} float32, k = {k}"
            report(title, seconds, baseline="lax.top_k + scatter", unit="ms")
