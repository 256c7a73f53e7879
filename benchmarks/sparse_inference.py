"""A layer of a sparse model: the dense product, JAX's BCOO and scipy's CSR, by the share of zeros
and the batch."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.experimental import sparse

from benchmarks.timing import interleaved, report
from jaxht import transforms

WIDTH = 1024
ZEROS = (0.8, 0.9, 0.95, 0.99)
BATCHES = (1, 64)


def main() -> None:
    """Print the time of a product of a sparse matrix with a batch of vectors; all products are
    those of one matrix."""
    weights = jax.random.normal(jax.random.key(0), (WIDTH, WIDTH))
    for batch in BATCHES:
        x = jax.random.normal(jax.random.key(1), (WIDTH, batch))
        for zeros in ZEROS:
            pruned = transforms.prune(weights, 1 - zeros)
            compressed, indexed = (
                scipy.sparse.csr_array(np.asarray(pruned)),
                sparse.BCOO.fromdense(pruned),
            )
            candidates = {
                "dense, JAX": functools.partial(jax.jit(jnp.matmul), pruned, x),
                "BCOO, JAX": functools.partial(jax.jit(lambda matrix, x: matrix @ x), indexed, x),
                "CSR, scipy": functools.partial(
                    lambda matrix, x: matrix @ x, compressed, np.asarray(x)
                ),
            }
            for name, call in candidates.items():
                np.testing.assert_allclose(
                    call(), np.asarray(pruned) @ np.asarray(x), atol=1e-3, err_msg=name
                )
            title = f"{WIDTH} x {WIDTH}, {zeros:.0%} zeros, batch {batch}"
            report(title, interleaved(candidates, repeats=25), baseline="dense, JAX")


if __name__ == "__main__":
    main()
