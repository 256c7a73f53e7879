"""The k largest of many short vectors: a program of the kernel for each vector, which stays in
registers."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array
from jaxht.linalg.magnitudes import magnitudes

#: Longer vectors do not fit into the registers of a program.
MAX_VECTOR_LENGTH = 8192
KEYS_A_WARP = 1024
KEY_BITS = 31


def takes_vectors(z: Array) -> bool:
    """Whether the kernel takes vectors z (lanes, d)."""
    return z.dtype == jnp.float32 and z.shape[1] <= MAX_VECTOR_LENGTH


def mark_k_largest(z: Array, k: Array, *, interpret: bool = False) -> Array:
    """Mark the k[lane] entries of largest magnitude of each lane, of equal ones those of the lowest
    indices.

    Args:
        z: float32 (lanes, d).
        k: int32 (lanes,), in [0, d].
        interpret: whether to run on any platform, slowly.

    Returns:
        bool (lanes, d).

    Cost: one pass over z, and some 14 to 31 counts in registers.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    lanes, d = z.shape
    width = pl.next_power_of_2(d)

    def kernel(z_ref: Any, k_ref: Any, mask_ref: Any) -> None:
        lane = pl.program_id(0)
        index = lax.iota(jnp.int32, width)
        inside = index < d
        entries = triton.load(z_ref.at[lane, index], mask=inside, other=0)
        row = jnp.where(inside, magnitudes(entries), -1)
        marked = _mark(row, triton.load(k_ref.at[lane]))
        target = mask_ref.at[lane, index]
        triton.store(target, marked.astype(jnp.int8), mask=inside)

    warps = min(8, max(1, width // KEYS_A_WARP))
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((lanes, d), jnp.int8),
        grid=(lanes,),
        in_specs=[pl.no_block_spec, pl.no_block_spec],
        out_specs=pl.no_block_spec,
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1),
        interpret=interpret,
        name="mark_k_largest",
    )
    return call(z, k) != 0


def _mark(row: Array, k: Array) -> Array:
    """The mask of the k largest keys of one vector."""

    def count(reached: Array) -> Array:
        return jnp.sum(reached.astype(jnp.int32))

    def is_open(carry: tuple[Array, Array, Array]) -> Array:
        bit, _, reached = carry
        return (bit >= 0) & (reached != k)

    def search_bit(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        bit, threshold, reached = carry
        trial = threshold | (jnp.int32(1) << bit)
        number = count(row >= trial)
        enough = number >= k
        return (
            bit - 1,
            jnp.where(enough, trial, threshold),
            jnp.where(enough, number, reached),
        )

    start = jnp.int32(KEY_BITS - 1), jnp.int32(0), count(row >= 0)
    _, threshold, reached = lax.while_loop(is_open, search_bit, start)

    def take_first_ties() -> Array:
        above = row > threshold
        tied = row == threshold
        order = jnp.cumsum(tied.astype(jnp.int32))
        return above | (tied & (order <= k - count(above)))

    def take_all() -> Array:
        return row >= threshold

    return lax.cond(reached == k, take_all, take_first_ties)
