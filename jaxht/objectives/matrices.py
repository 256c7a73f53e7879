"""Linear measurements of a matrix: its inner products with others, or some of its entries."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_array, known_values, warn_of_rounding
from jaxht._dataclass import replace
from jaxht._typing import Array, ArrayDType
from jaxht.designs import Entries, MatrixDesign
from jaxht.objectives.effects import Effects, EffectsFit
from jaxht.objectives.linear_model import LeastSquares, LinearModel

__all__ = ["matrix_completion", "matrix_effects", "matrix_sensing", "trace_regression"]


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
    columns: Array | None = None,
    y: Array | None = None,
    shape: tuple[int, int] | None = None,
    *,
    effects: str | None = None,
    model: Callable[..., Any] = LeastSquares,
    **options: Any,
) -> LinearModel:
    """:func:`trace_regression` on observed entries, ``y_i = X[rows_i, columns_i]``, or on the
    entries of a matrix that are not NaN.

    With ``mean=False`` the Hessian is 1 on observed entries and 0 on others: L = 1, while along
    changes of low rank the curvature is about the share p of observed entries. :class:`jaxht.IHT`
    with its default step size is safe and slow; with ``1 / p``, the step size of the source, it
    mostly diverges where p < 1/2. :class:`jaxht.NIHT` adapts its step size, and recovers X from
    fewer entries.

    Args:
        rows: (n,) integers, traced. Where a row is m, nothing is observed, and the weight is 0, so
            that lanes may have different numbers of entries. Or the matrix itself, (m, p), traced,
            NaN where it is not observed: it takes the place of all four.
        columns: (n,) integers, traced.
        y: (n,), the observed values, traced. From a mask: ``rows, columns = np.nonzero(mask)`` and
            ``y = Y[mask]``.
        shape: (m, p), ints, static.
        effects: static; "both": the model is ``mu + a_i + b_j + X_ij``, and f(X) the least sum of
            squares over the mean and the effects a of rows and b of columns, which
            :func:`matrix_effects` gives; "rows" or "columns": without the others. None: X alone.
        model: a class of linear models over vectors, static; :class:`jaxht.LeastSquares` by
            default: ``1/(2 n) sum_i (X[r_i, c_i] - y_i)^2``.
        options: further arguments of the model: l2, mean, weights, offset; with a matrix, weights
            and offset are (m, p). Of a matrix that is traced all entries are samples, and those
            that are NaN have weight 0.

    Returns:
        The model over matrices (m, p).

    Raises:
        ValueError: unless rows and columns are lists of the same length of integers within the
            shape, of fewer than 2^31 entries, or rows is a matrix with an entry that is not NaN,
            and nothing else is given; for effects beside another model than :class:`jaxht.LeastSquares`.

    Cost: a prediction n; a gradient n + m p, or for an x in factors n for each column of a product.
    With effects (m + p)^2 more, (m + p)^3 once, and X is not in factors.

    Source: Jain, Meka & Dhillon 2010, §4; Tanner & Wei 2013; the effects are eliminated, by the
    normal equations of the additive model.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> rows, columns = jnp.array([0, 1]), jnp.array([2, 0])
        >>> f = jaxht.matrix_completion(rows, columns, jnp.array([5.0, 7.0]), (2, 3))
        >>> f.predict(jnp.arange(6.0).reshape(2, 3)).tolist()
        [2.0, 3.0]
        >>> Y = jnp.array([[jnp.nan, jnp.nan, 5.0], [7.0, jnp.nan, jnp.nan]])
        >>> jaxht.matrix_completion(Y).predict(jnp.arange(6.0).reshape(2, 3)).tolist()
        [2.0, 3.0]
    """
    entries = _read_entries(rows, columns, y, shape, options)
    y, (m, p), options = entries.y, entries.shape, entries.options
    warn_of_rounding(y)
    is_float = jnp.issubdtype(jnp.result_type(y), jnp.floating)
    dtype = jnp.result_type(y) if is_float else jnp.result_type(float)
    if effects is None:
        index = jnp.where(entries.rows < m, entries.rows * p + entries.columns, m * p)
        return trace_regression(model(Entries(index, m * p, dtype), y, **options), (m, p))
    if model is not LeastSquares:
        raise ValueError("effects need squared errors: model must be LeastSquares")
    fit = entries.fit(effects, dtype)
    target = fit.remove(entries.target(dtype))
    options["offset"] = None
    return trace_regression(LeastSquares(fit.design, target, **options), (m, p))


def matrix_effects(
    x: Array,
    rows: Array,
    columns: Array | None = None,
    y: Array | None = None,
    shape: tuple[int, int] | None = None,
    *,
    effects: str = "both",
    weights: Array | None = None,
    offset: Array | None = None,
) -> Effects:
    """The effects of rows and columns beside a matrix: those of the least sum of squares ``sum_i
    s_i (mu + a_{r_i} + b_{c_i} + X[r_i, c_i] - y_i)^2``.

    Args:
        x: X (m, p), traced: the solution of :func:`matrix_completion` with these effects.
        rows, columns, y, shape, effects: as of :func:`matrix_completion`.
        weights: s, (n,), or (m, p) with a matrix; None for ones.
        offset: likewise, what is known of the predictions; None for zeros.

    Returns:
        :class:`jaxht.objectives.Effects`: the mean, and the effects, of mean 0. Predictions of all
        entries are ``x + effects.matrix()``.

    Raises:
        ValueError: as :func:`matrix_completion`.

    Cost: n + m p, and (m + p)^3.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> Y = jnp.array([[1.0, 2.0, 3.0], [5.0, 6.0, jnp.nan]])
        >>> f = jaxht.matrix_completion(Y, effects="both")
        >>> x = jaxht.solve(f, jaxht.LowRank(0), jaxht.NIHT()).x
        >>> (x + jaxht.matrix_effects(x, Y).matrix()).round().tolist()
        [[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]]
    """
    options = {"weights": weights, "offset": offset}
    entries = _read_entries(rows, columns, y, shape, options)
    if np.shape(x) != entries.shape:
        raise ValueError(
            f"x must have shape {entries.shape}, that of the matrix; got {np.shape(x)}"
        )
    x = jnp.asarray(x)
    fit = entries.fit(effects, x.dtype)
    fitted = x.at[entries.rows, entries.columns].get(mode="fill", fill_value=0)
    return fit.centre(*fit.fit(entries.target(x.dtype) - fitted))


class _Entries(NamedTuple):
    """The observed entries of a matrix, and further arguments of a model, for these."""

    rows: Array
    columns: Array
    y: Array
    shape: tuple[int, int]
    options: dict[str, Any]

    def fit(self, effects: str, dtype: ArrayDType) -> EffectsFit:
        """The fit of effects to them."""
        weights = self.options.get("weights")
        return EffectsFit.build(self.rows, self.columns, self.shape, weights, effects, dtype)

    def target(self, dtype: ArrayDType) -> Array:
        """y less the offset, and 0 where it has no weight."""
        target = jnp.asarray(self.y, dtype)
        offset = self.options.get("offset")
        if offset is not None:
            target = target - jnp.asarray(offset, dtype)
        weights = self.options.get("weights")
        return target if weights is None else jnp.where(weights > 0, target, 0)


def _read_entries(
    rows: Array,
    columns: Array | None,
    y: Array | None,
    shape: tuple[int, int] | None,
    options: dict[str, Any],
) -> _Entries:
    """The observed entries, checked, of their rows and columns or of a matrix."""
    if columns is None and y is None and shape is None:
        return _read_matrix(rows, options)
    if columns is None or y is None or shape is None:
        raise ValueError(
            "rows, columns, y and shape must be given together, or a matrix alone, NaN where it is "
            "not observed"
        )
    rows = jnp.asarray(rows)
    columns = jnp.asarray(columns)
    if rows.ndim != 1 or rows.shape != columns.shape:
        raise ValueError(
            "rows and columns must be lists of the same length; got "
            f"{rows.shape} and {columns.shape}"
        )
    m, p = shape
    if m * p >= 2**31:
        raise ValueError(
            f"shape must have fewer than 2^31 entries, which are numbered; got {shape}"
        )
    _check_indices("rows", rows, m, m)
    _check_indices("columns", columns, p, p - 1)
    options = dict(options)
    known = known_values(rows)
    has_padding = known is None or np.any(known == m)
    weights = options.get("weights")
    is_array = isinstance(weights, np.ndarray | jax.Array) and weights.shape == rows.shape
    if has_padding and (weights is None or is_array):  # others are refused later
        options["weights"] = jnp.where(rows < m, 1.0 if weights is None else weights, 0)
    return _Entries(
        rows=rows.astype(jnp.int32),
        columns=columns.astype(jnp.int32),
        y=y,
        shape=(m, p),
        options=options,
    )


def _read_matrix(Y: Array, options: dict[str, Any]) -> _Entries:
    """The entries of a matrix that are not NaN."""
    check_array("rows", Y, "a matrix (m, p), where columns, y and shape are not given")
    if np.ndim(Y) != 2:
        raise ValueError(
            "rows must be a matrix (m, p), where columns, y and shape are not given; got shape "
            f"{np.shape(Y)}"
        )
    if not jnp.issubdtype(Y.dtype, jnp.number):
        raise ValueError(f"rows must be a matrix of numbers; got dtype {Y.dtype}")
    shape = np.shape(Y)
    options = dict(options)
    for name in ("weights", "offset"):
        value = options.get(name)
        if value is None:
            continue
        check_array(name, value, f"an array of shape {shape}")
        if value.shape != shape:
            raise ValueError(
                f"{name} must have shape {shape}, that of the matrix; got {np.shape(value)}"
            )
    known = known_values(Y)
    if known is None:
        places = jnp.indices(shape, dtype=jnp.int32)
        is_observed = ~jnp.isnan(Y)
        weights = options.get("weights")
        weights = jnp.ones_like(Y) if weights is None else weights
        options["weights"] = jnp.where(is_observed, weights, 0).ravel()
        if options.get("offset") is not None:
            options["offset"] = jnp.ravel(options["offset"])
        rows = jnp.where(is_observed, places[0], shape[0]).ravel()
        values = jnp.where(is_observed, Y, 0).ravel()
        return _Entries(
            rows=rows,
            columns=places[1].ravel(),
            y=values,
            shape=shape,
            options=options,
        )
    is_observed = ~np.isnan(known)
    if not np.any(is_observed):
        raise ValueError("rows must be a matrix with an entry that is not NaN")
    at = np.nonzero(is_observed)
    for name in ("weights", "offset"):
        if options.get(name) is not None:
            options[name] = options[name][at]
    return _Entries(
        rows=jnp.asarray(at[0]),
        columns=jnp.asarray(at[1]),
        y=known[at],
        shape=shape,
        options=options,
    )


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
