"""One face for the design matrix A, whatever it is stored as."""

from typing import Any, Protocol

import jax
import numpy as np
from chex import Array, ArrayDType

from jaxht.designs.dense import Dense as Dense
from jaxht.designs.entries import Entries as Entries
from jaxht.designs.matrix import MatrixDesign as MatrixDesign
from jaxht.designs.operator import LinearOperator as LinearOperator
from jaxht.designs.rows import SparseRows as SparseRows
from jaxht.designs.sparse import SparseMatrix as SparseMatrix


class Design(Protocol):
    """What an objective may ask of a design matrix A, n x d, samples in rows."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        ...

    @property
    def dtype(self) -> ArrayDType:
        """That of its numbers."""
        ...

    def gathers(self, k_max: int | None) -> bool:
        """Whether direct methods on k_max gathered columns pay; else minimisation on supports takes products alone."""
        ...

    def matvec(self, x: Array) -> Array:
        """``A x``, from (d,) to (n,), or from (d, c) to (n, c)."""
        ...

    def rmatvec(self, r: Array) -> Array:
        """``A^T r``, from (n,) to (d,), or from (n, c) to (d, c)."""
        ...

    def columns(self, indices: Array) -> Array:
        """``A_F^T``: the columns at ``indices`` (k_max,) as rows (k_max, n); 0 where an index is d."""
        ...

    def rows(self, indices: Array) -> Any:
        """The rows at ``indices`` (b,), which may repeat, as a design with products; 0 where an index is n."""
        ...

    def squared(self, weights: Array) -> Array:
        """``sum_i weights_i A_ij^2`` for all j, (d,)."""
        ...

    def row_norms(self) -> Array:
        """Euclidean norms of the rows, (n,)."""
        ...

    def column_norms(self) -> Array:
        """Euclidean norms of the columns, (d,)."""
        ...


def design(A: Any) -> Any:
    """Wrap ``A`` in the face that the objectives use. They call it themselves; called once before, work is done once.

    Args:
        A: (n, d) real array (NumPy or JAX); a scipy.sparse matrix or array of any format, or a JAX BCOO or BCSR matrix,
            which are put in row and in column order here, on the host; or a design already wrapped, for example a
            :class:`LinearOperator`.

    Raises:
        ValueError: if A is none of them, or is a sparse matrix of traced arrays, whose order cannot be seen.
    """
    if isinstance(A, Dense | SparseMatrix | SparseRows | Entries | LinearOperator | MatrixDesign):
        return A
    if isinstance(A, jax.Array | np.ndarray | jax.ShapeDtypeStruct):
        return Dense(A)  # type: ignore[arg-type]
    if hasattr(A, "tocsr") or hasattr(A, "n_batch"):  # of SciPy or of JAX
        return SparseMatrix.build(A)
    raise ValueError(f"A must be an array of shape (n, d), dense or sparse, or a design; got {type(A).__name__}")
