"""Linear measurements of a matrix: its inner products with others, or some of its entries."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_array, known_values, warn_of_rounding
from jaxht._dataclass import replace
from jaxht._typing import Array
from jaxht.designs import Entries, MatrixDesign
from jaxht.objectives.linear_model import LeastSquares, LinearModel

__all__ = ["matrix_completion", "matrix_sensing", "trace_regression"]


def trace_regression(model: LinearModel, matrix_shape: tuple[int, int]) -> LinearModel:
    """A linear model with a matrix X (m, p) in place of a vector: ``f(X) = c sum_i s_i l(<A_i, X>;
    y_i) + ridge``.

    For k-sparse, row-sparse (:class:`jaxht.Groups`) and low-rank X.

    Args:
        model: a linear model over the m p entries of X, row by row, for example ``LeastSquares(A,
            y)`` with a row of A for each A_i. Its loss may be any: :class:`jaxht.Logistic` on
            observed entries gives 1-bit completion.
        matrix_shape: (m, p), ints, static.

    Returns:
        The model over matrices, with a :class:`jaxht.designs.MatrixDesign`.

    Raises:
        ValueError: if the model is not over m p entries.

    Source: Rohde & Tsybakov 2011; Jain, Meka & Dhillon 2010.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> jaxht.trace_regression(jaxht.LeastSquares(jnp.eye(6), jnp.ones(6)), (2, 3)).shape
        (2, 3)
    """
    A = model.design
    size = A.shape[1]
    if len(matrix_shape) != 2 or size != math.prod(matrix_shape):
        raise ValueError(f"matrix_shape must be (m, p), m p = {size}; got {matrix_shape}")
    l2 = model.l2
    if l2 is not None and np.ndim(l2):
        l2 = jnp.reshape(jnp.asarray(l2), matrix_shape)
    return replace(model, A=MatrixDesign(A, matrix_shape), l2=l2)


def matrix_sensing(
    A: Array, y: Array, *, model: Callable[..., Any] = LeastSquares, **options: Any
) -> LinearModel:
    """:func:`trace_regression` on measurements ``y_i = <A_i, X> = sum_jl A_ijl X_jl``.

    Args:
        A: (n, m, p), float32 or float64, traced.
        y: (n,), measurements, traced.
        model: a class of linear models over vectors, static; :class:`jaxht.LeastSquares` by
            default: ``1/(2 n) sum_i (<A_i, X> - y_i)^2``.
        options: further arguments of the model: l2, mean, weights.

    Returns:
        The model over matrices (m, p).

    Raises:
        ValueError: unless A has three axes.

    Cost: a value or gradient n m p.

    Source: Jain, Meka & Dhillon 2010, §1.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> jaxht.matrix_sensing(jnp.ones((4, 2, 3)), jnp.ones(4)).shape
        (2, 3)
    """
    check_array("A", A, "an array of shape (n, m, p)")
    if np.ndim(A) != 3:
        raise ValueError(
            f"A must have shape (n, m, p), a matrix for each measurement; got {np.shape(A)}"
        )
    n, m, p = np.shape(A)
    return trace_regression(model(A.reshape(n, m * p), y, **options), (m, p))


def matrix_completion(
    rows: Array,
    columns: Array,
    y: Array,
    shape: tuple[int, int],
    *,
    model: Callable[..., Any] = LeastSquares,
    **options: Any,
) -> LinearModel:
    """:func:`trace_regression` on observed entries, ``y_i = X[rows_i, columns_i]``.

    With ``mean=False`` the Hessian is 1 on observed entries and 0 on others: L = 1, while along
    changes of low rank the curvature is about the share p of observed entries. :class:`jaxht.IHT`
    with its default step size is safe and slow; with ``1 / p``, the step size of the source, it
    mostly diverges where p < 1/2. :class:`jaxht.NIHT` adapts its step size, and recovers X from
    fewer entries.

    Args:
        rows: (n,) integers, traced. Where a row is m, nothing is observed, so that lanes may have
            different numbers of entries.
        columns: (n,) integers, traced.
        y: (n,), the observed values, traced. From a mask: ``rows, columns = np.nonzero(mask)`` and
            ``y = Y[mask]``.
        shape: (m, p), ints, static.
        model: a class of linear models over vectors, static; :class:`jaxht.LeastSquares` by
            default: ``1/(2 n) sum_i (X[r_i, c_i] - y_i)^2``.
        options: further arguments of the model: l2, mean, weights.

    Returns:
        The model over matrices (m, p).

    Raises:
        ValueError: unless rows and columns are lists of the same length of integers within the
            shape.

    Cost: a prediction n; a gradient n + m p, or for an x in factors n for each column of a product.

    Source: Jain, Meka & Dhillon 2010, §4; Tanner & Wei 2013.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> rows, columns = jnp.array([0, 1]), jnp.array([2, 0])
        >>> f = jaxht.matrix_completion(rows, columns, jnp.array([5.0, 7.0]), (2, 3))
        >>> f.predict(jnp.arange(6.0).reshape(2, 3)).tolist()
        [2.0, 3.0]
    """
    rows = jnp.asarray(rows)
    columns = jnp.asarray(columns)
    if rows.ndim != 1 or rows.shape != columns.shape:
        raise ValueError(
            "rows and columns must be lists of the same length; got "
            f"{rows.shape} and {columns.shape}"
        )
    warn_of_rounding(y)
    m, p = shape
    _check_indices("rows", rows, m, m)
    _check_indices("columns", columns, p, p - 1)
    index = jnp.where(rows < m, rows * p + columns, m * p)
    is_float = jnp.issubdtype(jnp.result_type(y), jnp.floating)
    dtype = jnp.result_type(y) if is_float else float
    return trace_regression(model(Entries(index, m * p, dtype), y, **options), (m, p))


def _check_indices(name: str, indices: Array, size: int, most: int) -> None:
    if not jnp.issubdtype(indices.dtype, jnp.integer):
        raise ValueError(f"{name} must be integers; got dtype {indices.dtype}")
    known = known_values(indices)
    if known is None:
        return
    outside = np.flatnonzero((known < 0) | (known > most))
    if outside.size:
        first = int(outside[0])
        raise ValueError(
            f"{name} must lie between 0 and {most}, in a matrix of {size} {name}; got "
            f"{known[first]} at position {first}"
        )
