"""Matrices of many kinds as designs: wrapped, side by side, standardised."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from jaxht._checks import check_array, known_values, no_array
from jaxht._dataclass import cast_numbers
from jaxht._repr import describe
from jaxht._typing import Array
from jaxht.designs.dense import Dense
from jaxht.designs.on_host import has_products, wrap_operator
from jaxht.designs.protocol import Design
from jaxht.designs.scaling import Standardized, standardize_columns
from jaxht.designs.sharded import ShardedMatrix
from jaxht.designs.sparse import SparseMatrix
from jaxht.designs.stacked import Stacked
from jaxht.linalg.inner_products import is_complex

__all__ = ["design", "hstack", "standardize"]


def design(A: Any, sharding: NamedSharding | None = None) -> Any:
    """Wrap a matrix as a design, with the products that objectives use.

    Objectives call this function themselves; call it beforehand to do its work on the host only
    once.

    Args:
        A: (n, d) array (NumPy or JAX); a scipy.sparse matrix or array of any format, or a JAX
            BCOO or BCSR matrix, which are ordered by row and by column here, on the host; a
            ``scipy.sparse.linalg.LinearOperator``, or what has its ``shape``, ``matvec`` and
            ``rmatvec``; or a design, for example a :class:`LinearOperator`.
        sharding: how a matrix of the host (an array, or a sparse matrix) is placed on the devices
            of a mesh: over rows, columns, or both, as an array of shape (n, d). A is then the part
            of the matrix that this process has: with a single process, all of it. None: A stays
            where it is, also where it is a sharded array.

    Products with an operator of SciPy are callbacks: the program waits for the host in each, where
    it is computed in the operator's dtype, on one core if that is what the operator uses; on a GPU
    vectors move to the host and back. They work under jit, and under vmap by ``matmat``, which
    takes one vector after the other unless the operator has a better one; derivatives are by its
    adjoint. Columns are products with unit vectors: step sizes by default and solvers that refit on
    them take d products where :class:`jaxht.NIHT` takes none. An operator written in JAX, as a
    :class:`LinearOperator`, has none of these costs.

    Returns:
        A :class:`jaxht.designs.Design` of shape (n, d) and the dtype of A (integers and booleans of
        a sparse matrix become JAX's default float); with a sharding a
        :class:`jaxht.designs.ShardedMatrix`.

    Raises:
        ValueError: if A is none of them, or is a sparse matrix of traced arrays, whose order cannot
            be seen; for an operator of SciPy that is not linear, or without ``rmatvec``;
            with a sharding, if rows or columns do not divide evenly over the shards.

    Cost: nothing for arrays and designs; two sorts of the entries of a sparse matrix, on the host;
    for an operator of SciPy a product and two adjoints, once.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxht
        >>> A = jaxht.design(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
        >>> A.shape, A.matvec(jnp.array([1.0, -1.0])).tolist(), A.rmatvec(jnp.array([1.0, 0.0])).tolist()
        ((2, 2), [-1.0, -1.0], [1.0, 2.0])
    """
    if sharding is not None:
        return _shard(A, sharding)
    if isinstance(A, Design):
        return A
    if isinstance(A, np.ma.MaskedArray):
        check_array("A", A)
    if isinstance(A, np.ndarray):
        A = _in_native_order(A)
    if isinstance(A, jax.Array | np.ndarray | jax.ShapeDtypeStruct):
        return Dense(A)  # type: ignore[arg-type]
    if hasattr(A, "tocsr") or hasattr(A, "n_batch"):  # of SciPy or of JAX
        return SparseMatrix.build(A)
    if has_products(A):
        return wrap_operator(A)
    raise no_array("A", A, "an array of shape (n, d), dense or sparse, or a design")


def _shard(A: Any, sharding: NamedSharding) -> Any:
    if not isinstance(sharding, NamedSharding):
        raise ValueError(
            f"sharding must be a jax.sharding.NamedSharding; got {type(sharding).__name__}"
        )
    if not (isinstance(A, np.ndarray | jax.Array) or hasattr(A, "tocsr") or hasattr(A, "n_batch")):
        raise no_array("A", A, "an array of shape (n, d) or a sparse matrix, for a sharding")
    if len(A.shape) != 2:
        raise ValueError(f"A must have shape (n, d); got {A.shape}")
    if isinstance(A, np.ndarray | jax.Array):
        A = _in_native_order(np.asarray(A))
        if A.dtype.kind in "iub":  # which sparse matrices do not keep either
            A = A.astype(jnp.result_type(float))
    return ShardedMatrix.build(A, sharding)


def _in_native_order(A: np.ndarray) -> np.ndarray:
    """A with the bytes of its numbers in this machine's order."""
    return A if A.dtype.isnative else A.astype(A.dtype.newbyteorder("="))


def hstack(parts: Sequence[Any]) -> Stacked:
    """Put designs side by side, such as covariates beside genotypes; each stays stored as it is.

    Args:
        parts: matrices and designs of n rows each, as :func:`design` takes them, traced; their
            numbers are cast to the dtype that holds those of all parts.

    Returns:
        A :class:`Stacked` of shape (n, d_1 + d_2 + ...).

    Raises:
        ValueError: if parts is empty, if numbers of rows differ, or if a stream or an operator,
            whose entries cannot be cast here, has another dtype than the result.

    Cost: a copy of what is cast.

    Example:
        >>> import jax.numpy as jnp, numpy as np, jaxht
        >>> genotypes = jaxht.designs.Genotypes.build(np.array([[0, 2], [1, 1]], np.int8))
        >>> A = jaxht.designs.hstack([jnp.array([[1.0], [1.0]]), genotypes])
        >>> A.rmatvec(jnp.array([1.0, 2.0])).tolist()
        [3.0, 2.0, 4.0]
    """
    designs = [design(part) for part in parts]
    shapes = [A.shape for A in designs]
    if not designs or any(len(shape) != 2 or shape[0] != shapes[0][0] for shape in shapes):
        raise ValueError(
            f"parts must be designs (n, d_i) of one number of rows; got shapes {shapes}"
        )
    floats = [A.dtype for A in designs if jnp.issubdtype(A.dtype, jnp.floating)]
    dtype = jnp.result_type(*floats or [float])
    designs = [cast_numbers(A, dtype) for A in designs]
    if any(jnp.issubdtype(A.dtype, jnp.complexfloating) for A in designs):
        raise ValueError(
            f"parts must be real; got {[str(jnp.dtype(A.dtype)) for A in designs]}: use "
            "jnp.concatenate for complex arrays"
        )
    if any(jax.dtypes.canonicalize_dtype(A.dtype) != dtype for A in designs):
        raise ValueError(
            f"booleans, streams and operators must be of {dtype}; got {[str(jnp.dtype(A.dtype)) for A in designs]}"
        )
    return Stacked(tuple(designs))


def standardize(
    A: Any, *, with_mean: bool | Array = True, with_std: bool = True, weights: Array | None = None
) -> Standardized:
    r"""Centre columns and scale them to variance 1, as scikit-learn's ``StandardScaler`` does.

    .. math::
        z_{ij} = \frac{a_{ij} - mean_j}{scale_j}, \qquad
        mean_j = \tfrac1n \textstyle\sum_i a_{ij}, \qquad scale_j^2 = \tfrac1n \sum_i (a_{ij} - mean_j)^2

    and with sample weights s the weighted means ``sum_i s_i (...) / sum_i s_i``.

    Solvers that select by magnitude (:class:`jaxht.IHT`, :class:`jaxht.HTP`, :class:`jaxht.OMP`
    ...) depend on the units of the columns; on standardised columns they do not. Coefficients x of
    the standardised columns correspond to the coefficients ``x / scale`` of the columns of A itself
    and an intercept: see :meth:`jaxht.designs.Standardized.coefficients` and
    :meth:`jaxht.designs.Standardized.intercept`. For least squares centre y as well. For other
    losses the intercept is a column of ones that the constraint keeps; leave that column as it is
    by ``with_mean=False``, or by a mask ``with_mean`` that is False there.

    Args:
        A: (n, d), an array, a sparse matrix or a :class:`jaxht.LinearOperator`, as
            :func:`jaxht.design` takes it; traced, but for matrices of scipy.sparse;
            :class:`jaxht.designs.Genotypes`, :class:`jaxht.designs.Integers`, or these side by
            side, by :func:`jaxht.designs.hstack`.
        with_mean: bool, static, whether columns are centred; or bool (d,), traced, which of them.
        with_std: bool, static; whether columns are scaled to variance 1.
        weights: (n,) sample weights s >= 0, traced; None for ones.

    Returns:
        A :class:`jaxht.designs.Standardized`: its ``design`` for objectives, ``mean`` (0 where
        columns are not centred) and ``scale`` (1 for columns of variance 0). A sparse matrix stays
        sparse, an operator a product and genotypes packed, centred as ``A - 1 mean'``, a matrix of
        rank 1 that is never formed. Missing calls, which count as the mean of the others without
        weights, are then 0 where there are none.

    Raises:
        ValueError: if A is none of these or complex, for weights of a wrong shape or that are
            negative or all 0, and for columns whose squares over- or underflow.

    Cost: two passes over A, and a copy of it, but of genotypes and integers none; for an operator d
    products unless its norms are known.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A, y = jnp.array([[1.0, 5.0], [2.0, 5.0], [3.0, 8.0]]), jnp.array([10.0, 12.0, 14.0])
        >>> standardized = jaxht.standardize(A)
        >>> f = jaxht.LeastSquares(standardized.design, y - y.mean())
        >>> x = jaxht.solve(f, jaxht.Sparse(1), jaxht.OMP()).x
        >>> [round(float(v), 3) for v in (*standardized.coefficients(x), standardized.intercept(x, y.mean()))]
        [2.0, 0.0, 8.0]
    """
    A = design(A)
    if isinstance(A, Stacked):
        return _standardize_parts(A, with_mean, with_std, weights)
    if not A.divides_columns or len(A.shape) != 2:
        raise ValueError(
            f"A must be an array (n, d), a sparse matrix or a LinearOperator; got {describe(A)}"
        )
    if is_complex(A):
        raise ValueError(f"A must be real; got dtype {jnp.dtype(A.dtype)}")
    if A.dense_array is not None:
        is_floating = jnp.issubdtype(A.dtype, jnp.floating)
        A = Dense(jnp.asarray(A.dense_array, None if is_floating else float))
    if weights is not None:
        if np.shape(weights) != A.shape[:1]:
            raise ValueError(
                f"weights must have shape {A.shape[:1]}, one for each row of A; got {np.shape(weights)}"
            )
        known = known_values(weights)
        if known is not None and not (np.min(known) >= 0 and np.any(known)):
            raise ValueError("weights must be at least 0, and not 0 for all samples")
        weights = jnp.asarray(weights, A.dtype)
    return standardize_columns(A, with_mean, with_std, weights)


def _standardize_parts(
    A: Stacked, with_mean: bool | Array, with_std: bool, weights: Array | None
) -> Standardized:
    if isinstance(with_mean, bool | np.bool_):
        masks: list[Any] = [bool(with_mean)] * len(A.parts)
    else:
        masks = A.split(jnp.asarray(with_mean))
    parts = [
        standardize(part, with_mean=mask, with_std=with_std, weights=weights)
        for part, mask in zip(A.parts, masks, strict=True)
    ]
    return Standardized(
        Stacked(tuple(part.design for part in parts)),
        jnp.concatenate([part.mean for part in parts]),
        jnp.concatenate([part.scale for part in parts]),
    )
