"""Factorisations of many small matrices: a warp for each, whose blocks stay in registers."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array

__all__ = ["BLOCK", "invert_blocks", "invert_cholesky", "multiply_blocks", "takes_matrices"]

#: Tensor cores multiply blocks of no fewer rows.
BLOCK = 16
MAX_SIZE = 64


def takes_matrices(size: int, dtype: Any) -> bool:
    """Whether the kernel takes matrices (size, size)."""
    return dtype == jnp.float32 and 0 < size <= MAX_SIZE


def invert_cholesky(
    matrices: Array,
    *,
    precision: Any = lax.DotAlgorithmPreset.TF32_TF32_F32_X3,
    interpret: bool = False,
) -> Array:
    """``L^-1`` for each of the matrices L L', by elimination in blocks.

    Args:
        matrices: float32 (lanes, k, k), of which the lower halves are read.
        precision: of the products of blocks.
        interpret: whether to run on any platform, slowly.

    Returns:
        float32 (lanes, k, k), lower triangular; not finite unless the matrix is positive definite.

    Cost: the matrices are read and written once.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    lanes, k, _ = matrices.shape
    blocks = range(pl.cdiv(k, BLOCK))

    def kernel(matrices_ref: Any, inverses_ref: Any) -> None:
        lane = pl.program_id(0)
        row = lax.broadcasted_iota(jnp.int32, (BLOCK, BLOCK), 0)
        column = lax.broadcasted_iota(jnp.int32, (BLOCK, BLOCK), 1)

        def load(i: int, j: int) -> Array:
            at_row = BLOCK * i + row
            at_column = BLOCK * j + column
            later = jnp.maximum(at_row, at_column)
            earlier = jnp.minimum(at_row, at_column)
            identity = (at_row == at_column).astype(matrices.dtype)
            place = matrices_ref.at[lane, later, earlier]
            return triton.load(place, mask=later < k, other=identity)

        def store(i: int, j: int, block: Array) -> None:
            at_row = BLOCK * i + row
            at_column = BLOCK * j + column
            inside = (at_row < k) & (at_column < k)
            triton.store(inverses_ref.at[lane, at_row, at_column], block, mask=inside)

        rest = {(i, j): load(i, j) for i in blocks for j in range(i + 1)}
        inverse = invert_blocks(rest, precision)
        for i in blocks:
            for j in blocks:
                zero = jnp.zeros_like(rest[0, 0])
                store(i, j, inverse.get((i, j), zero))

    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(matrices.shape, matrices.dtype),
        grid=(lanes,),
        in_specs=[pl.no_block_spec],
        out_specs=pl.no_block_spec,
        compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
        name="invert_cholesky",
    )
    return call(matrices)


def multiply_blocks(a: Array, b: Array, precision: Any, *, transposed: bool = False) -> Array:
    """``a @ b``, or ``a @ b.T``, in a kernel."""
    contracted = (1,), (1 if transposed else 0,)
    return lax.dot_general(
        a, b, (contracted, ((), ())), precision=precision, preferred_element_type=a.dtype
    )


def invert_blocks(
    matrix: dict[tuple[int, int], Array], precision: Any
) -> dict[tuple[int, int], Array]:
    """The blocks of ``L^-1``, from those of the lower half of L L', in a kernel."""
    multiply = functools.partial(multiply_blocks, precision=precision)
    size = 1 + max(i for i, _ in matrix)
    rest = dict(matrix)
    inverse = {}
    for j in range(size):
        inverse[j, j] = invert_block(rest[j, j])
        for i in range(j + 1, size):
            rest[i, j] = multiply(rest[i, j], inverse[j, j], transposed=True)
        for i in range(j + 1, size):
            for other in range(j + 1, i + 1):
                known = multiply(rest[i, j], rest[other, j], transposed=True)
                rest[i, other] -= known
    for j in range(size):
        for i in range(j + 1, size):
            between = range(j, i)
            images = [multiply(rest[i, m], inverse[m, j]) for m in between]
            inverse[i, j] = -multiply(inverse[i, i], sum(images))
    return inverse


def invert_block(matrix: Array) -> Array:
    """``L^-1`` for one symmetric block L L' in a kernel; not finite unless it is positive
    definite."""
    row = lax.broadcasted_iota(jnp.int32, matrix.shape, 0)
    column = lax.broadcasted_iota(jnp.int32, matrix.shape, 1)
    index = lax.iota(jnp.int32, BLOCK)

    def eliminate(j: Array, reduced: Array) -> Array:
        """Eliminate column j, in the place of which the inverse grows."""
        at_row = jnp.where(row == j, reduced, 0)
        pivot_row = jnp.sum(at_row, axis=0)
        at_column = jnp.where(column == j, reduced, 0)
        pivot_column = jnp.sum(at_column, axis=1)
        pivot = jnp.sum(jnp.where(index == j, pivot_row, 0))
        factor = jnp.where(index > j, pivot_column / pivot, 0)
        # Column j of the inverse becomes -factor, whatever is left of it in the matrix.
        pivot_row = jnp.where(index == j, 1 + pivot, pivot_row)
        return reduced - factor[:, None] * pivot_row[None]

    reduced = lax.fori_loop(0, BLOCK, eliminate, matrix)
    diagonal = jnp.where(row == column, reduced, 0)
    pivots = jnp.sum(diagonal, axis=1)
    root = jnp.where(pivots > 0, jnp.sqrt(pivots), jnp.nan)
    identity = (row == column).astype(matrix.dtype)
    unit = jnp.where(row > column, reduced, identity)
    return unit / root[:, None]
