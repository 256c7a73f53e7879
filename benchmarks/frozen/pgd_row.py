"""One row of a phase diagram as anyone would write it in JAX: ``jit(vmap(while_loop))`` with
``lax.top_k``.

Frozen: this is what the engine is compared with, and it must not change.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax


@functools.partial(jax.jit, static_argnames=("max_steps", "k_max"))
def pgd_row(
    A: jax.Array,
    ys: jax.Array,
    ks: jax.Array,
    eta: jax.Array,
    rtol: float,
    max_steps: int,
    k_max: int,
) -> tuple[jax.Array, jax.Array]:
    """Projected gradient descent on ``1/2 ||A x - y||^2`` for all (y, k) at once, from 0.

    Returns:
        x (lanes, d) and the steps taken (lanes,).
    """

    def hard_threshold(z: jax.Array, k: jax.Array) -> jax.Array:
        _, indices = lax.top_k(jnp.abs(z), k_max)
        kept = jnp.where(jnp.arange(k_max) < k, z[indices], 0)
        return jnp.zeros_like(z).at[indices].set(kept)

    def one(y: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
        def going_on(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
            _, steps, still = carry
            return (steps < max_steps) & ~still

        def step(
            carry: tuple[jax.Array, jax.Array, jax.Array],
        ) -> tuple[jax.Array, jax.Array, jax.Array]:
            x, steps, _ = carry
            gradient = A.T @ (A @ x - y)
            x_next = hard_threshold(x - eta * gradient, k)
            still = jnp.linalg.norm(x_next - x) <= rtol * jnp.linalg.norm(x_next)
            return x_next, steps + 1, still

        x, steps, _ = lax.while_loop(going_on, step, (jnp.zeros(A.shape[1]), 0, jnp.bool_(False)))
        return x, steps

    return jax.vmap(one)(ys, ks)
