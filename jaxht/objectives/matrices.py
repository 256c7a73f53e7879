"""Linear measurements of a matrix: its inner products with others, or some of its entries."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from chex import Array, ArrayDType, Numeric

from jaxht._pytree import pytree, static
from jaxht.constraints.subspace import Subspace
from jaxht.constraints.support import Support
from jaxht.designs import Dense, Entries, design
from jaxht.linalg.factored import Factored, Product, square_norm
from jaxht.objectives.least_squares import LeastSquares
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.objective import Objective
from jaxht.refit.newton import Refit
from jaxht.refit.products import minimise_restricted


@pytree
class TraceRegression(Objective):
    """``f(X) = c sum_i s_i l(<A_i, X>; y_i) + l2/2 ||X||_F^2``: an objective over vectors, with a matrix X (m, p).

    Args:
        model: an objective over the m p entries of X, row by row, for example ``LeastSquares(A, y)`` with a row of A
            for each A_i. Any loss will do: with :class:`jaxht.Logistic` on observed entries it is 1-bit completion.
        matrix_shape: static, (m, p).

    For k-sparse, row-sparse (``Groups``) and low-rank X. On a column and a row space, U M V', the measurements are
    taken down to ``U' A_i V`` where that makes up to SMALL columns.

    Source: Rohde & Tsybakov 2011; Jain, Meka & Dhillon 2010.
    """

    model: Any
    matrix_shape: tuple[int, int] = static()

    @property
    def shape(self) -> tuple[int, ...]:
        """(m, p)."""
        return self.matrix_shape

    @property
    def dtype(self) -> ArrayDType:
        """That of the model."""
        return self.model.dtype

    @property
    def num_samples(self) -> int:
        """n."""
        return self.model.num_samples

    def prepare(self) -> "TraceRegression":
        """With the model prepared."""
        return dataclasses.replace(self, model=self.model.prepare())

    def check(self) -> None:
        """Raise ValueError naming the argument that cannot be right."""
        if len(self.matrix_shape) != 2 or self.model.shape != (math.prod(self.matrix_shape),):
            raise ValueError(f"matrix_shape must be (m, p), m p = {self.model.shape[0]}; got {self.matrix_shape}")
        self.model.check()

    def start(self, constraint: Any) -> Array:
        """Zero."""
        return constraint.zeros(self.shape, self.dtype)

    def predict(self, x: Array) -> Array:
        """``<A_i, X>``, (n,)."""
        if isinstance(x, Factored):
            return x.entries(*self._observed())
        return self.model.predict(x.ravel())

    def value(self, x: Array, pred: Array) -> Array:
        """f(X)."""
        if isinstance(x, Factored):
            return self.model.value(jnp.zeros(1, self.dtype), pred) + self.model.l2 * square_norm(x) / 2
        return self.model.value(x.ravel(), pred)

    def gradient(self, x: Array, pred: Array) -> Array:
        """grad f(X)."""
        return self.assembled(self.slopes(x, pred), x)

    def curvature(self, x: Array, pred: Array, v: Array, image: Array) -> Array:
        """Of f at X along v."""
        return self.model.curvature(x.ravel(), pred, v.ravel(), image)

    def hessian(self, x: Array, pred: Array, tau: Numeric = 0.0) -> Callable[[Array], Array]:
        """``V -> (H + tau B) V``."""
        product = self.model.hessian(x.ravel(), pred, tau)
        return lambda v: product(v.ravel()).reshape(self.shape)

    def hessian_diagonal(self, x: Array, pred: Array) -> Array:
        """The diagonal of the Hessian at X, like X."""
        return self.model.hessian_diagonal(x.ravel(), pred).reshape(self.shape)

    def majorant(self) -> Callable[[Array], Array]:
        """``V -> B V``."""
        product = self.model.majorant()
        return lambda v: product(v.ravel()).reshape(self.shape)

    def preconditioner(self) -> Array:
        """Like X."""
        diagonal = jnp.asarray(self.model.preconditioner(), self.dtype)
        return jnp.broadcast_to(diagonal, self.model.shape).reshape(self.shape)

    def smoothness(self) -> Array:
        """L."""
        return self.model.smoothness()

    def coordinate_smoothness(self) -> Array:
        """M_1."""
        return self.model.coordinate_smoothness()

    def minimise(self, region: Any, x: Array, ridge: Array | None = None) -> Refit:
        """The minimiser on a support, as the model has it, or on a column and a row space.

        Cost of the latter: n m p k_max^2 once and a problem of k_max^2 unknowns, where these are no more than SMALL;
        else products with the Hessian, each of two with all A_i.
        """
        if isinstance(region, Support):
            flat = None if region.bounds is None else self._flat_bounds(region.bounds)
            support = Support(region.mask.ravel(), bounds=flat, k_max=region.k_max)
            found = self.model.minimise(support, x.ravel(), None if ridge is None else ridge.ravel())
            return found._replace(x=found.x.reshape(self.shape))
        small = isinstance(self.model, LinearModel) and region.k_max**2 <= SMALL
        if not small or ridge is not None or jnp.ndim(self.model.l2):
            return minimise_restricted(self, region, x, ridge)
        return self._minimise_small(region, x)

    def _minimise_small(self, region: Subspace, x: Array) -> Refit:
        k = region.k_max
        pairs = region.U[:, None, :, None] * region.V[None, :, None, :]  # u_a v_b', its entries by row
        few = design(self.model.A).matvec(pairs.reshape(-1, k**2))
        found = dataclasses.replace(self.model, A=Dense(few)).minimise(
            Support(region.inside.ravel(), k_max=k**2), region.coordinates(x).ravel()
        )
        return found._replace(x=region.point(found.x.reshape(k, k)))

    def sampled(self, indices: Array, weights: Array) -> "TraceRegression":
        """The objective ``sum_j weights_j f_{i_j}``."""
        return dataclasses.replace(self, model=self.model.sampled(indices, weights))

    def picked(self, pred: Array, indices: Array) -> Array:
        """Those of these samples."""
        return self.model.picked(pred, indices)

    def slopes(self, x: Array, pred: Array) -> Array:
        """Those of the model."""
        return self.model.slopes(None if isinstance(x, Factored) else x.ravel(), pred)

    def assembled(self, slopes: Array, x: Array) -> Array:
        """The gradient from slopes."""
        if isinstance(x, Factored):
            return self._scattered(slopes) + self.model.l2 * x
        return self.model.assembled(slopes, x.ravel()).reshape(self.shape)

    def sample_smoothness(self) -> Array:
        """An upper estimate of the smoothness of every f_i."""
        return self.model.sample_smoothness()

    @property
    def takes_factors(self) -> bool:
        """Whether x may be :class:`jaxht.Factored`: for observed entries."""
        return isinstance(self.model, LinearModel) and isinstance(self.model.A, Entries) and not jnp.ndim(self.model.l2)

    def _observed(self) -> tuple[Array, Array]:
        """The rows and columns of the entries that are observed; a row is m where nothing is."""
        return self.model.A.index // self.shape[1], self.model.A.index % self.shape[1]

    def _scattered(self, values: Array) -> Product:
        """The matrix with these values in the observed entries. Cost of a product: n for each column."""
        (m, p), (rows, columns) = self.shape, self._observed()

        def forward(W: Array) -> Array:
            images = values[:, None] * jnp.take(W, columns, axis=0)
            return jnp.zeros((m, W.shape[1]), W.dtype).at[rows].add(images, mode="drop")

        def backward(W: Array) -> Array:
            images = values[:, None] * jnp.take(W, rows, axis=0, mode="fill", fill_value=0)
            return jnp.zeros((p, W.shape[1]), W.dtype).at[columns].add(images)

        return Product(forward, backward, self.matrix_shape, self.dtype)

    def _flat_bounds(self, bounds: tuple[Any, Any]) -> tuple[Any, Any]:
        lower, upper = (jnp.ravel(bound) if jnp.ndim(bound) else bound for bound in bounds)
        return lower, upper


def MatrixSensing(A: Array, y: Array, *, model: Callable[..., Any] = LeastSquares, **options: Any) -> TraceRegression:
    """:class:`TraceRegression` on measurements ``y_i = <A_i, X> = sum_jl A_ijl X_jl``.

    Args:
        A: (n, m, p).
        y: (n,).
        model: objective over vectors; :class:`jaxht.LeastSquares` by default: ``1/2 sum_i (<A_i, X> - y_i)^2``.
        options: of the model: l2, mean, weights.

    Source: Jain, Meka & Dhillon 2010, §1.
    """
    if np.ndim(A) != 3:
        raise ValueError(f"A must have shape (n, m, p), a matrix for each measurement; got {np.shape(A)}")
    n, m, p = np.shape(A)
    return TraceRegression(model(A.reshape(n, m * p), y, **options), (m, p))


def MatrixCompletion(
    rows: Array,
    columns: Array,
    y: Array,
    shape: tuple[int, int],
    *,
    model: Callable[..., Any] = LeastSquares,
    **options: Any,
) -> TraceRegression:
    """:class:`TraceRegression` on observed entries, ``y_i = X[rows_i, columns_i]``.

    Args:
        rows, columns: (n,) integers. Where a row is m, nothing is observed, so that a batch may have different n.
        y: (n,) their values. Of a mask: ``rows, columns = np.nonzero(mask)`` and ``y = Y[mask]``.
        shape: (m, p).
        model: objective over vectors; :class:`jaxht.LeastSquares` by default: ``1/2 sum_i (X[r_i, c_i] - y_i)^2``.
        options: of the model: l2, mean, weights.

    The Hessian is 1 on observed entries and 0 on others: L = 1, while on a low-rank move it is about the share p of
    entries that are observed. :class:`jaxht.IHT` with its own step is safe and slow; with ``1 / p``, the step of the
    source, it mostly diverges where p < 1/2. :class:`jaxht.NIHT` finds the step, and recovers from fewer entries.

    Source: Jain, Meka & Dhillon 2010, §4; Tanner & Wei 2013.
    """
    rows, columns = jnp.asarray(rows), jnp.asarray(columns)
    if rows.ndim != 1 or rows.shape != columns.shape:
        raise ValueError(f"rows and columns must be lists of the same length; got {rows.shape} and {columns.shape}")
    m, p = shape
    index = jnp.where(rows < m, rows * p + columns, m * p)
    dtype = jnp.result_type(y) if jnp.issubdtype(jnp.result_type(y), jnp.floating) else float
    return TraceRegression(model(Entries(index, m * p, dtype), y, **options), (m, p))


# Unknowns.
SMALL = 64
