"""What all objectives on the predictions of a linear model have in common."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, ArrayDType, Numeric

from jaxht._pytree import check_scalars, pytree, static
from jaxht.constraints.support import Support
from jaxht.designs import PRECISION, Dense, LinearOperator, design
from jaxht.linalg.eigenvalues import SAFETY, largest_eigenvalue
from jaxht.objectives.losses import Loss
from jaxht.objectives.objective import Objective
from jaxht.refit.newton import Refit, newton, preconditioner
from jaxht.refit.products import minimise_restricted


@pytree
class LinearModel(Objective):
    """``f(x) = c sum_i s_i l(a_i.x; y_i) + 1/2 sum_j l2_j x_j^2``: base of the objectives on data.

    The number c is 1, or ``1 / sum_i s_i`` where ``mean`` is set; so integer weights s are repeated samples, and a
    weight of 0 leaves a sample out: vmap over weights is cross-validation.

    Args:
        A: (n, d) design, samples in rows: what :func:`jaxht.design` takes or gives. No scaling of columns is assumed.
            Float32 or float64; integers are taken as the default float. Shared by all lanes of a vmap that closes over
            it, its products are matrix-matrix products.
        y: (n,) targets, cast to the dtype of A.
        l2: ridge parameter lambda >= 0, traced: a scalar, or one for each coordinate, shaped like x. An intercept is a
            column of ones whose lambda is 0.
        mean: static; whether the sum is divided by n.
        weights: (n,) sample weights s >= 0, or None for ones.
    """

    A: Any
    y: Array
    l2: Numeric = 0.0
    mean: bool = static(default=True, kw_only=True)
    weights: Array | None = dataclasses.field(default=None, kw_only=True)

    @property
    def loss(self) -> Loss:
        """The loss of one sample, from :mod:`jaxht.objectives.losses`."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """(d,)."""
        return (design(self.A).shape[1],)

    @property
    def dtype(self) -> ArrayDType:
        """That of A, or the default float where A holds integers."""
        dtype = design(self.A).dtype
        return jnp.result_type(float) if jnp.issubdtype(dtype, jnp.integer) else dtype

    @property
    def num_samples(self) -> int:
        """n."""
        return design(self.A).shape[0]

    def prepare(self) -> "LinearModel":
        """This objective with its design wrapped, so that a sparse matrix is put in order once."""
        return dataclasses.replace(self, A=design(self.A))

    def check(self) -> None:
        """Raise ValueError naming the argument where shapes, dtypes or numbers cannot be right."""
        A = design(self.A)
        if len(A.shape) != 2 or 0 in A.shape:
            raise ValueError(f"A must have shape (n, d) with n, d >= 1; got {A.shape}: use jax.vmap for a batch")
        if self.dtype not in (jnp.float32, jnp.float64):
            raise ValueError(f"A must be float32 or float64 (or integer); got {self.dtype}")
        if not isinstance(self.y, jax.Array | np.ndarray):
            raise ValueError(f"y must be an array of shape {self.target_shape}; got {type(self.y).__name__}")
        if self.y.shape != self.target_shape:
            raise ValueError(f"y must have shape {self.target_shape}, one entry for each row of A; got {self.y.shape}")
        if not (jnp.issubdtype(self.y.dtype, jnp.floating) or jnp.issubdtype(self.y.dtype, jnp.integer)):
            raise ValueError(f"y must be real; got dtype {self.y.dtype}")
        check_scalars(self, but=("A", "y"), shaped={"l2": self.shape, "weights": A.shape[:1]})
        self.loss.check(self.y)

    @property
    def target_shape(self) -> tuple[int, ...]:
        """(n,)."""
        return (self.num_samples,)

    def start(self, constraint: Any) -> Array:
        """Zero."""
        return constraint.zeros(self.shape, self.dtype)

    def predict(self, x: Array) -> Array:
        """``A x``. Cost: n d."""
        return design(self.A).matvec(x)

    def value(self, x: Array, pred: Array) -> Array:
        """f(x) from pred = A x. Cost: n + d."""
        losses = self.weighted(self.loss.value(pred, self.y))
        # A product with ones: XLA's CPU compiler does not vectorise a sum.
        return jnp.vdot(losses, jnp.ones_like(losses)) + jnp.vdot(x, self.l2 * x) / 2

    def gradient(self, x: Array, pred: Array) -> Array:
        """``c A^T (s * l'(A x)) + l2 * x``. Cost: n d."""
        return self.assembled(self.slopes(x, pred), x)

    def slopes(self, x: Array, pred: Array) -> Array:
        """``c s * l'(A x)``: (n,), or (n, c) for c outputs. Cost: n."""
        return self.weighted(self.loss.derivative(pred, self.y))

    def assembled(self, slopes: Array, x: Array) -> Array:
        """``A^T slopes + l2 * x``. Cost: n d."""
        return design(self.A).rmatvec(slopes) + self.l2 * x

    def sampled(self, indices: Array, weights: Array) -> "LinearModel":
        """The objective ``sum_j weights_j f_{i_j}`` with ``f_i = n c s_i l(a_i.x; y_i) + 1/2 sum_j l2_j x_j^2``.

        Cost of a gradient: b d; on a sparse design the entries of these rows, and d; on an operator, that of all rows.
        """
        scale = self._total(jnp.asarray(self.num_samples, self.dtype)) * weights
        scale = scale if self.weights is None else scale * jnp.take(self.weights, indices, mode="clip")
        A, y = design(self.A).rows(indices), jnp.take(self.y, indices, axis=0, mode="clip")
        return dataclasses.replace(self, A=A, y=y, l2=self.l2 * jnp.sum(weights), mean=False, weights=scale)

    def picked(self, pred: Array, indices: Array) -> Array:
        """The predictions of these samples."""
        return jnp.take(pred, indices, axis=0, mode="clip")

    def sample_smoothness(self) -> Array:
        """``max_i n c b s_i ||a_i||^2 + max l2``, b the bound of l''. Cost: n d; for an operator n products."""
        squares = design(self.A).row_norms() ** 2
        squares = squares if self.weights is None else self.weights * squares
        top = self._total(self.num_samples * jnp.max(squares))
        return top * self._bound() + jnp.max(jnp.asarray(self.l2))

    def curvature(self, x: Array, pred: Array, v: Array, image: Array) -> Array:
        """``c sum_i s_i l''_i (a_i.v)^2 + sum_j l2_j v_j^2``; image = A v. Cost: n + d.

        At least FLAT of its upper bound: where l'' is 0 for all samples, steps by its inverse stay finite.
        """
        along = jnp.vdot(image, self.weighted(self.loss.hessian_product(pred, self.y, image)))
        bound = self._bound() * jnp.vdot(image, self.weighted(image))
        return jnp.maximum(along, FLAT * bound) + jnp.vdot(v, self.l2 * v)

    def hessian(self, x: Array, pred: Array, tau: Numeric = 0.0) -> Callable[[Array], Array]:
        """``v -> c A^T S (l'' + tau b) A v + l2 * v``, b the bound of l''. Cost of a product: 2 n d."""
        A, damping = design(self.A), tau * self._bound()

        def product(v: Array) -> Array:
            image = A.matvec(v)
            along = self.loss.hessian_product(pred, self.y, image) + damping * image
            return A.rmatvec(self.weighted(along)) + self.l2 * v

        return product

    def hessian_diagonal(self, x: Array, pred: Array) -> Array:
        """The diagonal of the Hessian at x, shaped like x. Cost: n d."""
        curvature = self.loss.hessian_product(pred, self.y, jnp.ones_like(pred))
        return design(self.A).squared(self.weighted(curvature)) + self.l2

    def majorant(self) -> Callable[[Array], Array]:
        """``v -> c b A^T S A v + l2 * v``, at least the Hessian everywhere. Cost of a product: 2 n d."""
        A, bound = design(self.A), self._bound()
        return lambda v: A.rmatvec(self.weighted(bound * A.matvec(v))) + self.l2 * v

    def preconditioner(self) -> Array:
        """An upper bound of the diagonal of the Hessian, (d,), or 1 where it would cost d products."""
        A = design(self.A)
        if isinstance(A, LinearOperator) and A.norms is None:
            return jnp.ones((), self.dtype)
        return self._diagonal()

    def smoothness(self) -> Array:
        """``c b sigma_max(S^(1/2) A)^2 + max l2``, b the bound of l'', from :mod:`jaxht.spectral`."""
        return self._bound() * self.gram_norm() + jnp.max(jnp.asarray(self.l2))

    def gram_norm(self) -> Array:
        """``c sigma_max(S^(1/2) A)^2``, an upper estimate. Cost: some 16 products."""
        A = design(self.A)
        return SAFETY * largest_eigenvalue(lambda v: A.rmatvec(self.weighted(A.matvec(v))), A.shape[1], self.dtype)

    def coordinate_smoothness(self) -> Array:
        """``max_j (c b sum_i s_i A_ij^2 + l2_j)``. Cost: n d."""
        return jnp.max(self._diagonal())

    def minimise(self, region: Any, x: Array, ridge: Array | None = None) -> Refit:
        """Minimiser on a support by regularised Newton steps, started from x.

        On a dense design, and on a sparse one for small k_max, the Hessian of the k_max columns is formed and
        factorised; elsewhere it is known by its products (see :mod:`jaxht.refit.newton` and
        :mod:`jaxht.refit.products`).

        Args:
            region: support F, |F| <= k_max, perhaps with bounds.
            x: like the variable; entries off F count as 0.
            ridge: like the variable or None, added to ``l2`` by coordinate.

        Returns:
            The minimiser, exactly zero off F, its pred, and whether it converged.

        Cost: dense: n k_max^2 + k_max^3 / 3 a step, typically 4 to 8 steps.
        """
        if not design(self.A).gathers(region.k_max):
            return minimise_restricted(self, region, x, ridge)
        region = region.with_indices()
        subproblem = Gathered(self.restricted(region, ridge))
        inside = region.indices < self.shape[0]  # type: ignore[operator]
        w, pred, converged = newton(subproblem, region.gather(x), inside, region.gathered_bounds())
        return Refit(region.scatter(w), pred, converged)

    def images(self, region: Support, x: Array) -> Array:
        """``x_i a_i``, a_i column i, for i in the region: (k_max, n). Cost: n k_max."""
        region = region.with_indices()
        return region.gather(x)[:, None] * design(self.A).columns(region.indices)

    def restricted(self, region: Support, ridge: Array | None = None) -> "LinearModel":
        """The same objective on the columns of a support, in the order of its indices, with l2 by coordinate."""
        columns = design(self.A).columns(region.indices)
        penalty = jnp.broadcast_to(jnp.asarray(self.l2, self.dtype), self.shape)
        penalty = region.gather(penalty if ridge is None else penalty + ridge)
        return dataclasses.replace(self, A=Dense(columns.T), l2=penalty)

    def _diagonal(self) -> Array:
        """``c b sum_i s_i A_ij^2 + l2_j``, shaped (d,) or (d, 1)."""
        A = design(self.A)
        squares = A.column_norms() ** 2 if self.weights is None else A.squared(self.weights)
        squares = self._total(squares) * self._bound()
        return squares.reshape(-1, *[1] * (len(self.shape) - 1)) + self.l2

    def _bound(self) -> Numeric:
        """b; targets of weight 0, which are as if not there, do not count."""
        if self.weights is None:
            return self.loss.smoothness(self.y)
        present = (self.weights > 0).reshape(-1, *[1] * (jnp.ndim(self.y) - 1))
        return self.loss.smoothness(jnp.where(present, self.y, 0))

    def weighted(self, v: Array) -> Array:
        """``c s_i v_i``."""
        if self.weights is not None:
            v = self.weights.reshape(-1, *[1] * (v.ndim - 1)) * v
        return self._total(v)

    def _total(self, v: Array) -> Array:
        """``c v``."""
        if not self.mean:
            return v
        return v / (self.num_samples if self.weights is None else jnp.sum(self.weights))


FLAT = 1e-6


@pytree
class Gathered:
    """A :class:`jaxht.refit.newton.Subproblem`: a linear model of few columns, with its Hessian as a matrix."""

    model: Any

    def predict(self, w: Array) -> Array:
        """``B w``, B the columns."""
        return self.model.predict(w)

    def value(self, w: Array, pred: Array) -> Array:
        """f."""
        return self.model.value(w, pred)

    def gradient(self, w: Array, pred: Array) -> Array:
        """grad f; 0 in the padding, whose columns are 0."""
        return self.model.gradient(w, pred)

    def solver(self, w: Array, pred: Array, free: Array, tau: Numeric, rtol: float) -> Callable[[Array], Array]:
        """By a Cholesky factor. Cost: n k^2 + k^3 / 3."""
        model = self.model
        ones = jnp.ones_like(pred)
        curvature = model.loss.hessian_product(pred, model.y, ones) + tau * model._bound()
        columns = jnp.where(free[:, None], model.A.array.T, 0)
        hessian = jnp.matmul(columns * model.weighted(curvature), columns.T, precision=PRECISION)
        return preconditioner(hessian, model.l2)
