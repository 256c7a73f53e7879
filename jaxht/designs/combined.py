"""Diagonal operators, and operators side by side or one above the other."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from jaxht._checks import check_count
from jaxht._typing import Array, ArrayDType
from jaxht.designs import algebra, design
from jaxht.designs.operator import LinearOperator
from jaxht.designs.transforms import check_vector

__all__ = ["diagonal", "hstack", "identity", "vstack"]


def diagonal(entries: Array) -> LinearOperator:
    """A diagonal matrix, such as weights of measurements (``diagonal(w) @ A``), units of
    coefficients (``A @ diagonal(s)``), or a pattern of phases.

    Args:
        entries: (d,), real or complex, traced.

    Returns:
        A :class:`jaxht.LinearOperator` of shape (d, d), with the norms of its columns.

    Raises:
        ValueError: for entries that are no vector.

    Cost: a product takes d multiplications.

    Source: Golub & Van Loan 2013, §1.2.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A = jaxht.operators.diagonal(jnp.array([2.0, 3.0]))
        >>> (A @ jnp.array([1.0, 1.0])).tolist()
        [2.0, 3.0]
    """
    entries = check_vector("entries", entries)
    (d,) = entries.shape
    return LinearOperator(
        product=algebra.scale_entries,
        shape=(d, d),
        args=(entries,),
        adjoint=algebra.scale_entries_adjoint,
        norms=jnp.abs(entries),
        dtype=entries.dtype,
        check=False,
    )


def identity(d: int, *, dtype: ArrayDType = float) -> LinearOperator:
    """The identity: ``A + c * identity(d)``, or a basis beside another one, ``hstack([identity(d),
    W])``.

    Args:
        d: static, at least 1.
        dtype: static. Default: JAX's default float.

    Returns:
        A :class:`jaxht.LinearOperator` of shape (d, d), with the norms of its columns.

    Raises:
        ValueError: for a d below 1.

    Cost: a product takes d multiplications.

    Source: Golub & Van Loan 2013, §1.2.

    Example:
        >>> import jaxht
        >>> jaxht.operators.identity(3).shape
        (3, 3)
    """
    check_count("d", d)
    return diagonal(jnp.ones(d, dtype))


def vstack(parts: Sequence[Any]) -> LinearOperator:
    """Put operators one above the other: the measurements of several instruments, or rows
    ``sqrt(l2) * D`` that penalise.

    Args:
        parts: designs (n_i, d) of one d, traced, as :func:`jaxht.design` takes them, matrices among
            them.

    Returns:
        A :class:`jaxht.LinearOperator` of shape (n_1 + n_2 + ..., d) and the dtype that holds those
        of all parts, with the norms of its columns where those of the parts are known.

    Raises:
        ValueError: if parts is empty, or numbers of columns differ.

    Cost: a product takes one of each part.

    Source: Golub & Van Loan 2013, §1.3.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A = jaxht.operators.vstack([jnp.array([[1.0, 2.0]]), jaxht.operators.identity(2)])
        >>> (A @ jnp.array([1.0, 1.0])).tolist()
        [3.0, 1.0, 1.0]
    """
    designs = _designs(parts, axis=1)
    shape = (sum(A.shape[0] for A in designs), designs[0].shape[1])
    return LinearOperator(
        product=algebra.stack_rows,
        shape=shape,
        args=designs,
        adjoint=algebra.stack_rows_adjoint,
        norms=algebra.norms_of_rows(designs),
        dtype=algebra.common_dtype(*(A.dtype for A in designs)),
        check=False,
    )


def hstack(parts: Sequence[Any]) -> LinearOperator:
    """Put operators side by side: a dictionary of several bases. For matrices alone
    :func:`jaxht.designs.hstack` makes a design whose columns can be gathered.

    Args:
        parts: designs (n, d_i) of one n, traced, as :func:`jaxht.design` takes them, matrices among
            them.

    Returns:
        A :class:`jaxht.LinearOperator` of shape (n, d_1 + d_2 + ...) and the dtype that holds those
        of all parts, with the norms of its columns where those of the parts are known.

    Raises:
        ValueError: if parts is empty, or numbers of rows differ.

    Cost: a product takes one of each part.

    Source: Golub & Van Loan 2013, §1.3.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A = jaxht.operators.hstack([jaxht.operators.identity(2), jnp.array([[1.0], [2.0]])])
        >>> (A @ jnp.array([1.0, 0.0, 3.0])).tolist()
        [4.0, 6.0]
    """
    designs = _designs(parts, axis=0)
    shape = (designs[0].shape[0], sum(A.shape[1] for A in designs))
    return LinearOperator(
        product=algebra.stack_columns,
        shape=shape,
        args=designs,
        adjoint=algebra.stack_columns_adjoint,
        norms=algebra.norms_of_columns(designs),
        dtype=algebra.common_dtype(*(A.dtype for A in designs)),
        check=False,
    )


def _designs(parts: Sequence[Any], axis: int) -> tuple[Any, ...]:
    designs = tuple(design(part) for part in parts)
    sizes = {A.shape[axis] for A in designs}
    if len(sizes) != 1:
        unit = "columns" if axis else "rows"
        shapes = [A.shape for A in designs]
        raise ValueError(f"parts must be designs of one number of {unit}; got shapes {shapes}")
    return designs
