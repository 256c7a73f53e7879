"""Least squares on the columns of a support, for one problem or for many lanes of a vmap at once."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array
from jaxht.designs import Dense
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.inner_products import conj_matmul, real_vdot
from jaxht.linalg.kernels.least_squares import (
    invert_gram_roots,
    minimise_on_columns,
    takes_columns,
)
from jaxht.linalg.lanes import along_one_axis, map_lanes
from jaxht.linalg.linear_solvers import cholesky_solver
from jaxht.linalg.normal_equations import ColumnProducts, minimise
from jaxht.linalg.platform import by_platform

__all__ = ["solve_on_columns"]


def solve_on_columns(A: Dense, y: Array, penalty: Array, indices: Array) -> tuple[Array, Array]:
    """Minimise ``1/2 ||B w - y||^2 + 1/2 sum_i penalty_i w_i^2`` for the columns B at ``indices``.

    Args:
        A: (n, d).
        y: (n,).
        penalty: (k,), >= 0.
        indices: int32 (k,); d is padding and gets w = 0.

    Returns:
        w (k,) and the residual (n,), without derivatives.

    Cost: n k^2 + k^3 / 3, and 4 n k for each refinement.
    """
    array = A.array if A.parts is None else A.parts
    w, residual = _solve_lanes(array, y, penalty, indices)
    return w, residual


def _solve(array: Array, y: Array, penalty: Array, indices: Array) -> tuple[Array, Array]:
    """Solve for one lane, with a Cholesky factor; of complex numbers the array, or its parts."""
    A = Dense(array) if array.dtype == y.dtype else Dense.of_parts(array)
    columns, gram = A.columns_and_gram(indices)
    products = ColumnProducts(
        matvec=lambda w: matmul(w, columns),
        rmatvec=lambda r: conj_matmul(columns, r),
        vdot=real_vdot,
    )
    precondition = cholesky_solver(gram, penalty)
    return minimise(products, y, penalty, jnp.diagonal(gram).real, precondition)


def _solve_in_turn(arrays: Array, y: Array, penalty: Array, indices: Array) -> list[Array]:
    return list(map_lanes(_solve, arrays, y, penalty, indices))


def _solve_by_kernel(arrays: Array, y: Array, penalty: Array, indices: Array) -> list[Array]:
    if not takes_columns(y.shape[1], indices.shape[1], y.dtype):
        return _solve_in_turn(arrays, y, penalty, indices)
    root = invert_gram_roots(*_gram_matrices(arrays, indices), penalty)
    return minimise_on_columns(arrays, y, penalty, indices, root)


def _gram_matrices(arrays: Array, indices: Array) -> tuple[Array, Array]:
    """Gram matrices, and the indices of the columns in them: of the whole designs where many lanes
    share them, else of each lane's columns alone."""
    rows, n, d = arrays.shape
    lanes, k = indices.shape
    if lanes * k**2 >= rows * d * max(n, d):
        return matmul(jnp.swapaxes(arrays, 1, 2), arrays), indices

    def multiply(array, indices):
        _, gram = Dense(array).columns_and_gram(indices)
        return gram

    slots = jnp.broadcast_to(lax.iota(jnp.int32, k), indices.shape)
    return map_lanes(multiply, arrays, indices), jnp.where(indices < d, slots, k)


def _solution_shapes(arrays: Any, y: Any, penalty: Any, indices: Any) -> list[Any]:
    return [jax.ShapeDtypeStruct(penalty.shape, y.dtype), y]


_solve_lanes = along_one_axis(
    by_platform("solve_on_columns", _solution_shapes, default=_solve_in_turn, cuda=_solve_by_kernel)
)
