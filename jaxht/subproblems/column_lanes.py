"""Least squares on the columns of a support, for one problem or for many at once.

Designs have an axis of rows in front: lanes ``i m`` to ``i m + m - 1`` share the i-th one, where m
is the number of lanes over that of rows.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from jaxht._typing import Array
from jaxht.designs import Dense
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.kernels.least_squares import invert_gram_roots, minimise_on_columns, takes_columns
from jaxht.linalg.linear_solvers import cholesky_solver
from jaxht.linalg.normal_equations import Columns, minimise
from jaxht.linalg.platform import by_platform

__all__ = ["solve_on_columns"]


def solve_on_columns(array: Array, y: Array, penalty: Array, indices: Array) -> tuple[Array, Array]:
    """Minimise ``1/2 ||B w - y||^2 + 1/2 sum_i penalty_i w_i^2`` for the columns B at ``indices``.

    Args:
        array: (n, d).
        y: (n,).
        penalty: (k,), >= 0.
        indices: int32 (k,); d is padding and gets w = 0.

    Returns:
        w (k,) and the residual (n,), without derivatives.

    Cost: n k^2 + k^3 / 3, and 4 n k for each refinement.
    """
    w, residual = _solve_lanes(array[None], y[None], penalty[None], indices[None])
    return w[0], residual[0]


@custom_vmap
def _solve_lanes(arrays: Array, y: Array, penalty: Array, indices: Array) -> tuple[Array, Array]:
    w, residual = _solve_on_platform(arrays, y, penalty, indices)
    return w, residual


@_solve_lanes.def_vmap
def _(
    axis_size: int, in_batched: list[bool], arrays: Array, *others: Array
) -> tuple[tuple[Array, Array], tuple[bool, bool]]:
    """Make one axis of lanes of two, with the lanes of a row beside each other."""
    has_arrays, *batched = in_batched
    rows = arrays.shape[1 if has_arrays else 0]
    lanes = others[0].shape[1 if batched[0] else 0]
    in_rows = (axis_size, rows, lanes // rows)

    def merge(other, has_axis):
        if not has_axis:
            other = jnp.broadcast_to(other, (axis_size, *other.shape))
        size = other.shape[-1]
        if not has_arrays:
            other = jnp.swapaxes(other.reshape(*in_rows, size), 0, 1)
        return other.reshape(axis_size * lanes, size)

    def split(found):
        size = found.shape[-1]
        if not has_arrays:
            by_row = found.reshape(rows, axis_size, lanes // rows, size)
            found = jnp.swapaxes(by_row, 0, 1)
        return found.reshape(axis_size, lanes, size)

    if has_arrays:
        arrays = arrays.reshape(axis_size * rows, *arrays.shape[2:])
    w, residual = _solve_lanes(arrays, *map(merge, others, batched))
    return (split(w), split(residual)), (True, True)


def _solve_by_lapack(arrays: Array, y: Array, penalty: Array, indices: Array) -> list[Array]:
    """Solve with a Cholesky factor by LAPACK or what stands for it."""

    def solve(array, y, penalty, indices):
        columns, gram = Dense(array).columns_and_gram(indices)
        products = Columns(
            matvec=lambda w: matmul(w, columns),
            rmatvec=lambda r: matmul(columns, r),
            vdot=jnp.vdot,
        )
        precondition = cholesky_solver(gram, penalty)
        return minimise(products, y, penalty, jnp.diagonal(gram), precondition)

    w, residual = _map_lanes(solve, arrays, y, penalty, indices)
    return [w, residual]


def _map_lanes(function: Callable[..., Any], arrays: Array, *others: Array) -> Any:
    """A function of a design and other arrays for all lanes, those of a row with its design."""
    rows = arrays.shape[0]
    lanes = others[0].shape[0] // rows

    def map_row(array, *others):
        if lanes == 1:
            return jax.tree.map(lambda v: v[None], function(array, *[v[0] for v in others]))
        return jax.vmap(functools.partial(function, array))(*others)

    by_row = [other.reshape(rows, lanes, *other.shape[1:]) for other in others]
    if rows == 1:
        return map_row(arrays[0], *[other[0] for other in by_row])
    found = jax.vmap(map_row)(arrays, *by_row)
    return jax.tree.map(lambda v: v.reshape(rows * lanes, *v.shape[2:]), found)


def _solve_by_kernel(arrays: Array, y: Array, penalty: Array, indices: Array) -> list[Array]:
    if not takes_columns(y.shape[1], indices.shape[1], y.dtype):
        return _solve_by_lapack(arrays, y, penalty, indices)

    half = invert_gram_roots(arrays, penalty, indices)
    return minimise_on_columns(arrays, y, penalty, indices, half)


def _solution_shapes(arrays: Array, y: Array, penalty: Array, indices: Array) -> list[Array]:
    return [penalty, y]


_solve_on_platform = by_platform(
    "solve_on_columns", _solution_shapes, default=_solve_by_lapack, cuda=_solve_by_kernel
)
