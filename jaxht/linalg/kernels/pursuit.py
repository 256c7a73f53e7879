"""Orthogonal matching pursuit of many lanes that share a design: a program of the kernel for each
lane takes all of its steps."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.kernels.factor import BLOCK
from jaxht.linalg.normal_equations import REFINEMENT_ULPS

__all__ = ["pursue", "takes_pursuit"]

#: Coordinates of a support: the Cholesky factor of their Gram matrix has four blocks a side.
MAX_ITEMS = 64
#: Entries of a Gram matrix that a program loads at a time.
ENTRIES_AT_A_TIME = 8192
#: Of a program, one for each lane.
WARPS = 4
#: Refinements of a solution, in each step; most end before by REFINEMENT_ULPS.
MAX_CORRECTIONS = 10


def takes_pursuit(lanes: int, rows: int, k: int, d: int, dtype: Any) -> bool:
    """Whether the kernel takes supports of k of d coordinates: where the lanes of a design are
    worth its Gram matrix."""
    return dtype == jnp.float32 and 0 < k <= MAX_ITEMS and lanes * k >= rows * d


class _Selection(NamedTuple):
    """What a lane carries from step to step.

    Attributes:
        items: int32 (k,), the support in the order in which it has grown, padded with d.
        w: (k,), the minimiser on it.
        gradient: (k,), B' (y - B w) - ridge w, what is left of it.
        root: (k, k), lower triangular: R with R' R the inverse of the Gram matrix of the columns.
        chosen: int32, the coordinate of the largest derivative.
    """

    items: Array
    w: Array
    gradient: Array
    root: Array
    chosen: Array


class _Correction(NamedTuple):
    """The state of the refits of a step.

    Attributes:
        count: how many corrections have been applied.
        w: (k,), the solution.
        gradient: (k,), B' (y - B w) - ridge w.
        delta: (k,), the next correction.
        size: its squared norm.
        is_running: whether it is needed.
    """

    count: Array
    w: Array
    gradient: Array
    delta: Array
    size: Array
    is_running: Array


def pursue(
    arrays: Array,
    grams: Array,
    y: Array,
    duals: Array,
    penalty: Array,
    first: Array,
    *,
    interpret: bool = False,
) -> list[Array]:
    """The steps of orthogonal matching pursuit for each lane.

    A derivative is ``A' y - A' A_S w``, from the Gram matrix; a refit is a correction from the
    residual itself, which the Cholesky factor of the Gram matrix of the columns preconditions.

    Args:
        arrays: (rows, n, d), the designs. The lanes are divided among them in their order, as many
            to each.
        grams: (rows, d, d), their Gram matrices.
        y: (lanes, n).
        duals: (lanes, d), A' y.
        penalty: (lanes,), the ridge, >= 0.
        first: int32 (lanes, k), the coordinates that are selected at first, then d.
        interpret: whether to run on any platform, slowly.

    Returns:
        The order of the coordinates, int32 (lanes, k); the minimiser after each step in this order,
        (lanes, k, k); the residuals, (lanes, k + 1, n), of which the first one is y.

    Cost: in each step the columns of the support, and their rows of the Gram matrix, are read once.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    rows, n, d = arrays.shape
    lanes, k = first.shape
    designs = jnp.swapaxes(arrays, 1, 2)
    num_slots = max(BLOCK, pl.next_power_of_2(k))
    width = ENTRIES_AT_A_TIME // num_slots
    block_width = ENTRIES_AT_A_TIME // BLOCK
    eps = machine_eps(y)

    def synchronise() -> None:
        if not interpret:
            triton.debug_barrier()

    def kernel(
        designs_ref: Any,
        grams_ref: Any,
        y_ref: Any,
        _: Any,
        penalty_ref: Any,
        first_ref: Any,
        duals_ref: Any,
        order_ref: Any,
        w_ref: Any,
        residuals_ref: Any,
    ) -> None:
        lane = pl.program_id(0)
        design = lane // (lanes // rows)
        ridge = triton.load(penalty_ref.at[lane])
        slots = lax.iota(jnp.int32, num_slots)
        places = lax.iota(jnp.int32, width)
        block = lax.iota(jnp.int32, BLOCK)
        block_places = lax.iota(jnp.int32, block_width)

        def load_rows(ref: Any, items: Array, places: Array, inside: Array) -> Array:
            """Some entries of the rows of some items."""
            shape = items.shape[0], places.shape[0]
            item = jnp.broadcast_to(items[:, None], shape)
            place = jnp.broadcast_to(places[None], shape)
            mask = (item < d) & jnp.broadcast_to(inside[None], shape)
            return triton.load(ref.at[design, item, place], mask=mask, other=0)

        def choose(step: Array) -> Array:
            """The coordinate of the largest derivative after some steps."""

            def compare(chunk: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
                place = block_width * chunk + block_places
                inside = place < d

                def subtract(number: Array, derivative: Array) -> Array:
                    slot = BLOCK * number + block
                    before = slot < step
                    items = triton.load(order_ref.at[lane, slot], mask=before, other=d)
                    w = triton.load(w_ref.at[lane, step - 1, slot], mask=before, other=0)
                    gram = load_rows(grams_ref, items, place, inside)
                    return derivative - jnp.sum(w[:, None] * gram, axis=0)

                dual = triton.load(duals_ref.at[lane, place], mask=inside, other=jnp.nan)
                derivative = lax.fori_loop(0, pl.cdiv(step, BLOCK), subtract, dual)
                # The duals of selected coordinates are NaN.
                score = jnp.where(derivative == derivative, jnp.abs(derivative), -1)
                is_better = score > best[0]
                return jnp.where(is_better, score, best[0]), jnp.where(is_better, place, best[1])

            nothing = jnp.full(block_width, -1, y.dtype), jnp.full(block_width, d, jnp.int32)
            score, place = lax.fori_loop(0, pl.cdiv(d, block_width), compare, nothing)
            return jnp.min(jnp.where(score == jnp.max(score), place, d))

        def begin(step: Array, item: Array) -> Array:
            """Copy the residual into the next row; return its product with the column of an
            item."""

            def copy(chunk: Array, dual: Array) -> Array:
                sample = block_width * chunk + block_places
                inside = sample < n
                before = triton.load(y_ref.at[lane, sample], mask=inside & (step == 0), other=0)
                after = triton.load(
                    residuals_ref.at[lane, step, sample], mask=inside & (step > 0), other=0
                )
                residual = before + after
                first_row = residuals_ref.at[lane, step, sample]
                triton.store(first_row, residual, mask=inside & (step == 0))
                triton.store(residuals_ref.at[lane, step + 1, sample], residual, mask=inside)
                column = triton.load(
                    designs_ref.at[design, item, sample], mask=inside & (item < d), other=0
                )
                return dual + column * residual

            dual = jnp.zeros(block_width, y.dtype)
            dual = lax.fori_loop(0, pl.cdiv(n, block_width), copy, dual)
            synchronise()
            return jnp.sum(dual)

        def correct(row: Array, items: Array, delta: Array) -> Array:
            """Take ``B delta`` from a residual; return ``B' residual``."""

            def update(chunk: Array, dual: Array) -> Array:
                sample = width * chunk + places
                inside = sample < n
                target = residuals_ref.at[lane, row, sample]
                columns = load_rows(designs_ref, items, sample, inside)
                residual = triton.load(target, mask=inside, other=0)
                residual = residual - jnp.sum(delta[:, None] * columns, axis=0)
                triton.store(target, residual, mask=inside)
                return dual + jnp.sum(columns * residual[None], axis=1)

            dual = lax.fori_loop(0, pl.cdiv(n, width), update, jnp.zeros_like(delta))
            synchronise()
            return dual

        def grow(step: Array, items: Array, root: Array) -> Array:
            """The row of the root for the item at slot ``step``."""
            here = slots == step
            item = jnp.sum(jnp.where(here, items, 0))
            # There is no item where data are not finite.
            inside = (items < d) & (item < d)
            cross = triton.load(grams_ref.at[design, item, items], mask=inside, other=0)
            total = jnp.sum(jnp.where(here, cross, 0)) + ridge
            image = jnp.sum(root * cross[None], axis=1)
            # The jitter keeps the factor finite where the column depends on the others.
            remaining = total - jnp.sum(image * image)
            remaining = jnp.maximum(remaining, 4 * k * eps * total)
            scale = jnp.where(remaining > 0, 1 / jnp.sqrt(remaining), 0)
            row = scale * (here.astype(root.dtype) - jnp.sum(image[:, None] * root, axis=0))
            return jnp.where(here[:, None], row[None], root)

        def take_step(step: Array, selection: _Selection) -> _Selection:
            given = triton.load(first_ref.at[lane, step])
            item = jnp.where(given < d, given, selection.chosen)
            items = jnp.where(slots == step, item, selection.items)
            root = grow(step, items, selection.root)

            def precondition(gradient: Array) -> tuple[Array, Array]:
                image = jnp.sum(root * gradient[None], axis=1)
                delta = jnp.sum(root * image[:, None], axis=0)
                return delta, jnp.sum(delta * delta)

            def apply(state: _Correction) -> _Correction:
                w = state.w + state.delta
                gradient = correct(step + 1, items, state.delta) - ridge * w
                delta, size = precondition(gradient)
                is_large = size > (REFINEMENT_ULPS * eps) ** 2 * jnp.sum(w * w)
                is_falling = size < state.size / 4
                goes_on = is_large & is_falling & (state.count + 1 < MAX_CORRECTIONS)
                return _Correction(
                    count=state.count + 1,
                    w=w,
                    gradient=gradient,
                    delta=delta,
                    size=size,
                    is_running=goes_on,
                )

            gradient = jnp.where(slots == step, begin(step, item), selection.gradient)
            delta, size = precondition(gradient)
            start = _Correction(
                count=jnp.int32(0),
                w=selection.w,
                gradient=gradient,
                delta=delta,
                size=size,
                is_running=size > 0,
            )
            found = lax.while_loop(lambda state: state.is_running, apply, start)
            triton.store(order_ref.at[lane, step], item)
            triton.store(w_ref.at[lane, step, slots], found.w, mask=slots < k)
            triton.store(duals_ref.at[lane, item], jnp.float32(jnp.nan), mask=item < d)
            synchronise()
            return _Selection(items, found.w, found.gradient, root, choose(step + 1))

        zero = jnp.zeros(num_slots, y.dtype)
        start = _Selection(
            items=jnp.full(num_slots, d, jnp.int32),
            w=zero,
            gradient=zero,
            root=jnp.zeros((num_slots, num_slots), y.dtype),
            chosen=choose(jnp.int32(0)),
        )
        lax.fori_loop(0, k, take_step, start)

    call = pl.pallas_call(
        kernel,
        out_shape=[
            jax.ShapeDtypeStruct((lanes, d), y.dtype),
            jax.ShapeDtypeStruct((lanes, k), jnp.int32),
            jax.ShapeDtypeStruct((lanes, k, k), y.dtype),
            jax.ShapeDtypeStruct((lanes, k + 1, n), y.dtype),
        ],
        grid=(lanes,),
        in_specs=[pl.no_block_spec] * 6,
        out_specs=[pl.no_block_spec] * 4,
        input_output_aliases={3: 0},
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=1),
        interpret=interpret,
        name="pursue",
    )
    _, order, coefficients, residuals = call(designs, grams, y, duals, penalty, first)
    return [order, coefficients, residuals]
