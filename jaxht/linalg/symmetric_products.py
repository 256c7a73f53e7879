"""Products of two matrices that are symmetric, as Gram matrices and Hessians on a support are."""

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._loops import fori_loop
from jaxht._typing import Array
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.inner_products import is_complex
from jaxht.linalg.lanes import lane_by_lane

__all__ = ["symmetric_product"]

# Rows of a block. XLA divides products of smaller blocks among no threads.
BLOCK_ROWS = 128
# Rows from which blocks are faster on two cores: 1.3 times at 1000 x 10 000, no slower at 512; with
# half of the rows in use 3 to 4 times.
MIN_BLOCKED_ROWS = 512


def symmetric_product(a: Array, b: Array, used: Array) -> Array:
    """``a @ b.T`` of a and b (k, n) for which it is symmetric, or Hermitian; rows of a or b are 0
    where not ``used`` (k,).

    On CPUs large products of real numbers are computed by the blocks of the lower triangle up to
    the last row in use, m. Cost: n m^2 there, 2 n k^2 elsewhere.
    """
    k = a.shape[0]
    if k < MIN_BLOCKED_ROWS or is_complex(a) or jax.default_backend() != "cpu":
        return matmul(a, b.T)
    num_rows = jnp.max(jnp.where(used, jnp.arange(1, k + 1), 0))
    return _product_by_blocks(a, b, num_rows)


@lane_by_lane
def _add_blocks(a: Array, b: Array, num_rows: Array) -> Array:
    # Slices that would reach beyond the last row start earlier: the last blocks overlap others.
    def add_block(i, j, product):
        rows = lax.dynamic_slice_in_dim(a, i * BLOCK_ROWS, BLOCK_ROWS)
        columns = lax.dynamic_slice_in_dim(b, j * BLOCK_ROWS, BLOCK_ROWS)
        block = matmul(rows, columns.T)
        return lax.dynamic_update_slice(product, block, (i * BLOCK_ROWS, j * BLOCK_ROWS))

    def add_row(i, product):
        return fori_loop(0, i + 1, lambda j, product: add_block(i, j, product), product)

    k = a.shape[0]
    num_blocks = -(-num_rows // BLOCK_ROWS)
    product = fori_loop(0, num_blocks, add_row, jnp.zeros((k, k), a.dtype))
    return jnp.tril(product) + jnp.tril(product, -1).T


@jax.custom_jvp
def _product_by_blocks(a: Array, b: Array, num_rows: Array) -> Array:
    return _add_blocks(a, b, num_rows)


@_product_by_blocks.defjvp
def _product_by_blocks_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    a, b, _ = primals
    a_dot, b_dot, _ = tangents
    return _product_by_blocks(*primals), matmul(a_dot, b.T) + matmul(a, b_dot.T)
