"""The k largest of 2^31 bfloat16 entries and a few more, which an int32 does not count, against a
few fewer.

Needs 16 GB of memory. What is selected is compared with its definition, row by row in NumPy.
"""

import argparse
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.timing import peak_memory
from jaxht import selection

COLUMNS = 2**16


@functools.partial(jax.jit, static_argnums=0)
def draw(rows: int) -> jax.Array:
    """Entries in [-1, 1]: hashes of the indices, since no generator of JAX draws so many at
    once."""
    shape = (rows, COLUMNS)
    bits = lax.broadcasted_iota(jnp.uint32, shape, 0) * COLUMNS + lax.broadcasted_iota(
        jnp.uint32, shape, 1
    )
    for shift, factor in ((16, 0x45D9F3B), (15, 0x2C1B3C6D)):
        bits = (bits ^ (bits >> shift)) * jnp.uint32(factor)
    return ((bits ^ (bits >> 16)).astype(jnp.float32) / 2.0**31 - 1).astype(jnp.bfloat16)


def check(z: jax.Array, mask: jax.Array, k: int) -> None:
    """Raise AssertionError unless the k largest are marked, of equal ones the first."""
    marked, threshold = 0, np.inf
    for row in range(len(z)):
        chosen = np.asarray(mask[row])
        marked += chosen.sum(dtype=np.int64)
        threshold = np.abs(np.asarray(z[row]), dtype=np.float32).min(
            where=chosen, initial=threshold
        )
    assert marked == k, (marked, k)
    full = False  # whether an entry at the threshold was left out
    for row in range(len(z)):
        magnitudes, chosen = np.abs(np.asarray(z[row]), dtype=np.float32), np.asarray(mask[row])
        assert chosen[magnitudes > threshold].all()
        tied = chosen[magnitudes == threshold]
        assert not (full and tied.any()) and (np.diff(tied.astype(int)) <= 0).all()
        full = full or not tied.all()


def main(arguments: list[str]) -> None:
    """Print the seconds of each selection, the first with its compilation."""
    argparse.ArgumentParser(prog="python -m benchmarks long", description=__doc__).parse_args(
        arguments
    )
    select = jax.jit(lambda z, k: selection.k_largest_masks([z], k)[0])
    for rows in (2**15 - 1, 2**15 + 1):
        z = draw(rows)
        for k in (10**6, 2**30, z.size - 20_000):
            traced = jnp.asarray(k, jnp.int32) if k < 2**31 else jnp.asarray(k, jnp.float32)
            begin = time.perf_counter()
            mask = jax.block_until_ready(select(z, traced))
            seconds = time.perf_counter() - begin
            check(z, mask, int(traced))
            print(f"{z.size} entries, k = {int(traced):10d}: {seconds:5.1f} s", flush=True)
            del mask
        del z
    print(f"{peak_memory() / 1e9:.1f} GB of memory at most")
