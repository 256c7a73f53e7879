"""Effects of the rows and columns of a matrix, which are fitted beside it."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxht._checks import known_values
from jaxht._dataclass import pytree
from jaxht._typing import Array, ArrayDType
from jaxht.designs import LinearOperator
from jaxht.linalg.full_precision import matmul

__all__ = ["Effects", "EffectsFit"]

#: What may have effects.
KINDS = ("rows", "columns", "both")


@pytree
class Effects:
    """``mean + rows_i + columns_j``, made by :func:`jaxht.matrix_effects`.

    Attributes:
        mean: a scalar.
        rows: (m,), of mean 0 over the rows with observed entries, and 0 for the others; zeros where
            rows have no effects.
        columns: (p,), likewise.
    """

    mean: Array
    rows: Array
    columns: Array

    def matrix(self) -> Array:
        """The matrix of all entries, (m, p)."""
        return self.mean + self.rows[:, None] + self.columns


@pytree
class EffectsFit:
    """The least squares fit of effects to numbers at observed entries.

    Attributes:
        rows: int32 (n,), the rows of the entries; m where nothing is observed.
        columns: int32 (n,).
        weights: (n,); 0 where nothing is observed.
        of_rows: (m, m + p), the effects of rows, of weighted sums over rows and columns.
        of_columns: (p, m + p).
    """

    rows: Array
    columns: Array
    weights: Array
    of_rows: Array
    of_columns: Array

    @staticmethod
    def build(
        rows: Array,
        columns: Array,
        shape: tuple[int, int],
        weights: Array | None,
        kind: str,
        dtype: ArrayDType,
    ) -> "EffectsFit":
        """The fit to entries of weights; in double precision on the host where they are known."""
        if kind not in KINDS:
            raise ValueError(f"effects must be None or one of {KINDS}; got {kind!r}")
        arrays = (rows, columns, weights)
        is_known = all(each is None or known_values(each) is not None for each in arrays)
        xp: Any = np if is_known else jnp
        m, p = shape
        rows = xp.asarray(rows)
        columns = xp.asarray(columns)
        precision = np.float64 if is_known else dtype
        weights = xp.ones(rows.shape) if weights is None else weights
        weights = xp.where(rows < m, xp.asarray(weights, precision), 0)
        inside = xp.minimum(rows, m - 1)
        if is_known:
            table: Any = np.zeros(shape)
            np.add.at(table, (inside, columns), weights)
        else:
            table = jnp.zeros(shape, dtype).at[inside, columns].add(weights)
        off_diagonal = table if kind == "both" else xp.zeros_like(table)
        of_rows = xp.sum(table, axis=1) * (kind != "columns")
        of_columns = xp.sum(table, axis=0) * (kind != "rows")
        gram = xp.block([[xp.diag(of_rows), off_diagonal], [off_diagonal.T, xp.diag(of_columns)]])
        cutoff = (m + p) * float(jnp.finfo(precision).eps)
        inverse = xp.linalg.pinv(gram, cutoff, hermitian=True)
        inverse = jnp.asarray(inverse, dtype)
        return EffectsFit(
            rows=jnp.asarray(rows, jnp.int32),
            columns=jnp.asarray(columns, jnp.int32),
            weights=jnp.asarray(weights, dtype),
            of_rows=inverse[:m],
            of_columns=inverse[m:],
        )

    @property
    def design(self) -> LinearOperator:
        """The design of all entries of a matrix, less the effects that are fitted to them."""
        size = self.of_rows.shape[0] * self.of_columns.shape[0]
        n = self.rows.shape[0]
        return LinearOperator(
            _remove_from_entries,
            (n, size),
            (self,),
            adjoint=_remove_adjoint,
            dtype=self.of_rows.dtype,
            check=False,
        )

    def fit(self, r: Array) -> tuple[Array, Array]:
        """The effects of rows and of columns, of least norm, of numbers at the entries (n,)."""
        sums = self._sum(self.weights * r)
        return matmul(self.of_rows, sums), matmul(self.of_columns, sums)

    def remove(self, r: Array) -> Array:
        """Numbers at the entries (n,), less their fitted effects."""
        return r - self._take(*self.fit(r))

    def remove_adjoint(self, r: Array) -> Array:
        """The adjoint of :meth:`remove`."""
        sums = self._sum(r)
        # The fit's matrix is symmetric.
        effects = matmul(self.of_rows, sums), matmul(self.of_columns, sums)
        return r - self.weights * self._take(*effects)

    def _take(self, of_rows: Array, of_columns: Array) -> Array:
        own = jnp.take(of_rows, self.rows, mode="fill", fill_value=0)
        return own + jnp.take(of_columns, self.columns)

    def _sum(self, r: Array) -> Array:
        r = jnp.where(self.rows < self.of_rows.shape[0], r, 0)
        of_rows = jnp.zeros(self.of_rows.shape[0], r.dtype).at[self.rows].add(r, mode="drop")
        of_columns = jnp.zeros(self.of_columns.shape[0], r.dtype).at[self.columns].add(r)
        return jnp.concatenate([of_rows, of_columns])

    def centre(self, of_rows: Array, of_columns: Array) -> Effects:
        """Effects of mean 0 where entries are observed, and their mean."""
        is_observed = self.weights > 0
        seen_rows = jnp.zeros(of_rows.size, bool).at[self.rows].max(is_observed, mode="drop")
        seen_columns = jnp.zeros(of_columns.size, bool).at[self.columns].max(is_observed)
        row_mean = jnp.mean(of_rows, where=seen_rows)
        column_mean = jnp.mean(of_columns, where=seen_columns)
        return Effects(
            row_mean + column_mean,
            jnp.where(seen_rows, of_rows - row_mean, 0),
            jnp.where(seen_columns, of_columns - column_mean, 0),
        )


def _remove_from_entries(x: Array, fit: EffectsFit) -> Array:
    p = fit.of_columns.shape[0]
    index = jnp.where(fit.rows < fit.of_rows.shape[0], fit.rows * p + fit.columns, x.size)
    return fit.remove(jnp.take(x, index, mode="fill", fill_value=0))


def _remove_adjoint(r: Array, fit: EffectsFit) -> Array:
    m, p = fit.of_rows.shape[0], fit.of_columns.shape[0]
    index = jnp.where(fit.rows < m, fit.rows * p + fit.columns, m * p)
    return jnp.zeros(m * p, r.dtype).at[index].add(fit.remove_adjoint(r), mode="drop")
