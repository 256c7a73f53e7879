"""Least squares on a few columns, for many lanes: a program of the kernel for each lane, whose
columns stay in registers."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.kernels.factor import BLOCK, invert_blocks
from jaxht.linalg.normal_equations import ColumnProducts, inverse_norm, minimise

__all__ = ["invert_gram_roots", "minimise_on_columns", "takes_columns"]

#: Of the columns of a lane, padded to powers of two.
MAX_COLUMN_ENTRIES = 16_384
MAX_COLUMNS = 64
MAX_WARPS = 4
COLUMN_ENTRIES_A_WARP = 2048


def takes_columns(n: int, k: int, dtype: Any) -> bool:
    """Whether the kernel takes k columns of n samples."""
    num_slots = max(BLOCK, 1 << (k - 1).bit_length())
    num_samples = 1 << (n - 1).bit_length()
    is_small = num_slots * num_samples <= MAX_COLUMN_ENTRIES
    has_columns = 0 < k <= MAX_COLUMNS and 0 < n
    return dtype == jnp.float32 and has_columns and is_small


def invert_gram_roots(
    grams: Array,
    indices: Array,
    penalty: Array,
    *,
    precision: Any = lax.DotAlgorithmPreset.TF32_TF32_F32_X3,
    interpret: bool = False,
) -> Array:
    """R with ``R' R`` about ``(B'B + diag(penalty))^-1`` for each lane: the inverse of a Cholesky
    factor, or the scaling of the columns alone where there is none.

    Args:
        grams: (rows, d, d), Gram matrices of designs. The lanes are divided among them in their
            order, as many to each.
        indices: int32 (lanes, k), of the columns B; d is padding.
        penalty: (lanes, k), >= 0.
        precision: of the products of blocks.
        interpret: whether to run on any platform, slowly.

    Returns:
        (lanes, k, k).

    Cost: the entries of the Gram matrices of the columns are read once.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    rows, d, _ = grams.shape
    lanes, k = indices.shape
    blocks = range(pl.cdiv(k, BLOCK))

    def kernel(grams_ref: Any, indices_ref: Any, penalty_ref: Any, root_ref: Any) -> None:
        lane = pl.program_id(0)
        design = lane // (lanes // rows)
        index = lax.iota(jnp.int32, BLOCK)
        row = lax.broadcasted_iota(jnp.int32, (BLOCK, BLOCK), 0)
        column = lax.broadcasted_iota(jnp.int32, (BLOCK, BLOCK), 1)

        def load(ref: Any, i: int, other: Any) -> Array:
            slot = BLOCK * i + index
            return triton.load(ref.at[lane, slot], mask=slot < k, other=other)

        items = {i: load(indices_ref, i, d) for i in blocks}

        def load_block(i: int, j: int) -> Array:
            left = jnp.broadcast_to(items[i][:, None], row.shape)
            right = jnp.broadcast_to(items[j][None], row.shape)
            inside = (left < d) & (right < d)
            return triton.load(grams_ref.at[design, left, right], mask=inside, other=0)

        zero = jnp.zeros((BLOCK, BLOCK), grams.dtype)
        gram = {(i, j): load_block(i, j) for i in blocks for j in range(i + 1)}
        jitter = 4 * k * machine_eps(grams)

        def measure(i: int) -> Array:
            diagonal = jnp.where(row == column, gram[i, i], 0)
            squares = jnp.sum(diagonal, axis=1)
            return inverse_norm(squares + load(penalty_ref, i, 0))

        scale = {i: measure(i) for i in blocks}
        for i, j in gram:
            left = scale[i][:, None]
            right = scale[j][None]
            scaled = gram[i, j] * left * right
            is_diagonal = (row == column) & (i == j)
            gram[i, j] = jnp.where(is_diagonal, 1 + jitter, scaled)
        root = invert_blocks(gram, precision)

        def any_infinite(block: Array) -> Array:
            return jnp.max(jnp.where(jnp.abs(block) < jnp.inf, 0, 1))

        marks = map(any_infinite, root.values())
        is_finite = functools.reduce(jnp.maximum, marks) == 0
        for i in blocks:
            for j in blocks:
                identity = ((row == column) & (i == j)).astype(zero.dtype)
                block = root.get((i, j), zero)
                block = jnp.where(is_finite, block, identity)
                block = block * scale[j][None]
                at_row = BLOCK * i + row
                at_column = BLOCK * j + column
                inside = (at_row < k) & (at_column < k)
                triton.store(root_ref.at[lane, at_row, at_column], block, mask=inside)

    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((lanes, k, k), grams.dtype),
        grid=(lanes,),
        in_specs=[pl.no_block_spec] * 3,
        out_specs=pl.no_block_spec,
        compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
        name="invert_gram_roots",
    )
    return call(grams, indices, penalty)


def minimise_on_columns(
    arrays: Array,
    y: Array,
    penalty: Array,
    indices: Array,
    root: Array,
    *,
    interpret: bool = False,
) -> list[Array]:
    """Minimise ``1/2 ||B w - y||^2 + 1/2 sum_i penalty_i w_i^2`` for each lane, see
    :func:`jaxht.linalg.normal_equations.minimise`.

    Args:
        arrays: (rows, n, d), the designs. The lanes are divided among them in their order, as many
            to each.
        y: (lanes, n).
        penalty: (lanes, k), >= 0.
        indices: int32 (lanes, k), of the columns; d is padding.
        root: (lanes, k, k), of which ``root' root`` is the preconditioner.
        interpret: whether to run on any platform, slowly.

    Returns:
        w (lanes, k) and the residuals (lanes, n).

    Cost: the columns are read once.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    rows, n, d = arrays.shape
    lanes, k = indices.shape
    # Columns that many lanes read are worth turning into contiguous ones.
    is_shared = lanes > rows
    designs = jnp.swapaxes(arrays, 1, 2) if is_shared else arrays
    num_slots = max(BLOCK, pl.next_power_of_2(k))
    num_samples = max(BLOCK, pl.next_power_of_2(n))

    def kernel(
        designs_ref: Any,
        y_ref: Any,
        penalty_ref: Any,
        indices_ref: Any,
        root_ref: Any,
        w_ref: Any,
        r_ref: Any,
    ) -> None:
        lane = pl.program_id(0)
        design = lane // (lanes // rows)
        slots = lax.iota(jnp.int32, num_slots)
        samples = lax.iota(jnp.int32, num_samples)

        def load_slots(ref: Any, other: Any) -> Array:
            return triton.load(ref.at[lane, slots], mask=slots < k, other=other)

        column = load_slots(indices_ref, d)[:, None]
        sample = lax.broadcasted_iota(jnp.int32, (num_slots, num_samples), 1)
        column = jnp.broadcast_to(column, sample.shape)
        place = (design, column, sample) if is_shared else (design, sample, column)
        inside = (column < d) & (sample < n)
        columns = triton.load(designs_ref.at[place], mask=inside, other=0)
        ridge = load_slots(penalty_ref, 0)
        row = lax.broadcasted_iota(jnp.int32, (num_slots, num_slots), 0)
        slot = lax.broadcasted_iota(jnp.int32, (num_slots, num_slots), 1)
        both = (row < k) & (slot < k)
        root = triton.load(root_ref.at[lane, row, slot], mask=both, other=0)

        def precondition(s: Array) -> Array:
            image = jnp.sum(root * s[None], axis=1)
            return jnp.sum(root * image[:, None], axis=0)

        products = ColumnProducts(
            matvec=lambda w: jnp.sum(w[:, None] * columns, axis=0),
            rmatvec=lambda r: jnp.sum(columns * r[None], axis=1),
            vdot=lambda u, v: jnp.sum(u * v),
        )
        squares = jnp.sum(columns * columns, axis=1)
        measured = triton.load(y_ref.at[lane, samples], mask=samples < n, other=0)
        w, residual = minimise(products, measured, ridge, squares, precondition)
        triton.store(w_ref.at[lane, slots], w, mask=slots < k)
        triton.store(r_ref.at[lane, samples], residual, mask=samples < n)

    num_entries = num_slots * num_samples
    warps = max(1, num_entries // COLUMN_ENTRIES_A_WARP)
    warps = min(MAX_WARPS, warps)
    call = pl.pallas_call(
        kernel,
        out_shape=[
            jax.ShapeDtypeStruct((lanes, k), y.dtype),
            jax.ShapeDtypeStruct((lanes, n), y.dtype),
        ],
        grid=(lanes,),
        in_specs=[pl.no_block_spec] * 5,
        out_specs=[pl.no_block_spec] * 2,
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1),
        interpret=interpret,
        name="minimise_on_columns",
    )
    return call(designs, y, penalty, indices, root)
