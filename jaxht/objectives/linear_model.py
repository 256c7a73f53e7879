"""Linear models: a sum of losses of predictions ``A x``, with a ridge."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._checks import check_array, check_scalars, warn_of_rounding
from jaxht._dataclass import cast_numbers, pytree, replace, static
from jaxht._typing import Array, ArrayDType, Numeric
from jaxht.designs import Dense, LinearOperator, MatrixDesign, design
from jaxht.linalg.factored import Factored, Product, square_norm
from jaxht.linalg.operators import SymmetricOperator
from jaxht.linalg.precision import matmul
from jaxht.objectives.losses import Loss, SquaredLoss
from jaxht.objectives.objective import SumOverSamples, no_factors


@pytree
class LinearModel(SumOverSamples):
    """``f(x) = c sum_i s_i l(a_i.x; y_i) + 1/2 sum_j l2_j x_j^2``: base of the objectives on data.

    The number c is 1, or ``1 / sum_i s_i`` where ``mean`` is set; so integer weights s repeat
    samples, and a weight of
    0 leaves a sample out: a vmap over weights is cross-validation.

    Args:
        A: (n, d) design, samples in rows, traced: an argument or a result of :func:`jaxht.design`.
            No scaling of columns is assumed. Float32 or float64; integers are cast to the default
            float. Where all lanes of a vmap share one A, its products are matrix-matrix products.
        y: (n,) targets, traced, cast to the dtype of A.
        l2: ridge parameter lambda >= 0, on the scale of the Hessian, traced: a scalar, or one for
            each coordinate, shaped like x. An intercept is a column of ones with a lambda of 0. A
            Python 0, or None, leaves the ridge out of the program: a compile of its own.
        mean: bool, static; whether the sum is divided by the sum of the weights.
        weights: (n,) sample weights s >= 0, traced; None for ones.
        offset: shaped like the predictions, (n,) or (n, c), traced; None for zeros. It is added to
            them within the loss, which is at ``a_i.x + offset_i``: a part of the predictor that is
            known, such as the logarithm of an exposure, or the predictions of another model.
    """

    A: Any
    y: Array
    l2: Numeric | None = 0.0
    mean: bool = static(default=True, kw_only=True)
    weights: Array | None = dataclasses.field(default=None, kw_only=True)
    offset: Array | None = dataclasses.field(default=None, kw_only=True)

    is_linear_model: ClassVar[bool] = True

    @property
    def loss(self) -> Loss:
        """The loss of one sample, from :mod:`jaxht.objectives.losses`."""
        raise NotImplementedError

    @property
    def design(self) -> Any:
        """A as a design, whatever it is stored as."""
        return design(self.A)

    @property
    def shape(self) -> tuple[int, ...]:
        """(d,), or (m, p) for measurements of a matrix."""
        A = self.design
        return A.matrix_shape if isinstance(A, MatrixDesign) else (A.shape[1],)

    @property
    def target_shape(self) -> tuple[int, ...]:
        """(n,)."""
        return (self.num_samples,)

    @property
    def pred_shape(self) -> tuple[int, ...]:
        """Of the predictions: (n,)."""
        return (self.num_samples,)

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of A, or the default float where A contains integers."""
        dtype = self.design.dtype
        return jnp.result_type(float) if jnp.issubdtype(dtype, jnp.integer) else dtype

    @property
    def num_samples(self) -> int:
        """n."""
        return self.design.shape[0]

    def prepare(self) -> Self:
        """This objective, all of its numbers of one dtype.

        Raises:
            ValueError: naming the argument, where shapes, dtypes or numbers are not valid.
        """
        # Without a ridge its terms are left out of the program.
        A, l2 = self.design, None if isinstance(self.l2, int | float) and self.l2 == 0 else self.l2
        if self.A is not A or self.l2 is not l2:  # once: a sparse matrix is put in order here
            return replace(self, A=A, l2=l2).prepare()
        if len(A.shape) != 2 or 0 in A.shape:
            raise ValueError(
                f"A must have shape (n, d) with n, d >= 1; got {A.shape}: use jax.vmap for a batch"
            )
        warn_of_rounding(A)
        if self.dtype not in (jnp.float32, jnp.float64):
            raise ValueError(f"A must be float32 or float64 (or integer); got {self.dtype}")
        check_array("y", self.y, f"an array of shape {self.target_shape}")
        if self.y.shape != self.target_shape:
            raise ValueError(
                f"y must have shape {self.target_shape}, one entry for each row of A; got {self.y.shape}"
            )
        if not (
            jnp.issubdtype(self.y.dtype, jnp.floating) or jnp.issubdtype(self.y.dtype, jnp.integer)
        ):
            raise ValueError(f"y must be real; got dtype {self.y.dtype}")
        if self.offset is not None:
            check_array("offset", self.offset, f"an array of shape {self.pred_shape}")
            if self.offset.shape != self.pred_shape:
                raise ValueError(
                    f"offset must have shape {self.pred_shape}, that of the predictions; got {self.offset.shape}"
                )
        check_scalars(
            self, but=("A", "y", "offset"), shaped={"l2": self.shape, "weights": A.shape[:1]}
        )
        self.loss.check(self.y)
        return cast_numbers(self, self.dtype)

    def start(self, rank: int | None = None) -> Any:
        """Zero; in factors where the ridge is one number and predictions accept factors."""
        if rank is None:
            return jnp.zeros(self.shape, self.dtype)
        if jnp.ndim(self.penalty) or not self._takes_factors:
            raise no_factors(self)
        return Factored.zeros(self.shape, rank, self.dtype)

    # ---- value, gradient, Hessian ----

    def predict(self, x: Any) -> Array:
        """``A x``. Cost: n d."""
        return self.design.matvec(x)

    def linear_predictor(self, pred: Array) -> Array:
        """``A x + offset`` from pred = A x: where the loss is taken."""
        return pred if self.offset is None else pred + self.offset

    def value(self, x: Any, pred: Array) -> Array:
        """f(x) from pred = A x. Cost: n + d."""
        losses = self.weight(self.loss.value(self.linear_predictor(pred), self.y))
        # A product with ones: XLA's CPU compiler does not vectorise a sum.
        return jnp.vdot(losses, jnp.ones_like(losses)) + self.ridge(x)

    def ridge(self, x: Any) -> Array:
        """``1/2 sum_j l2_j x_j^2``."""
        if self.l2 is None:
            return jnp.zeros((), x.dtype)
        return (
            self.l2 * square_norm(x) / 2
            if isinstance(x, Factored)
            else jnp.vdot(x, self.l2 * x) / 2
        )

    @property
    def penalty(self) -> Array:
        """``l2`` as an array: 0 where there is no ridge."""
        dtype = jax.dtypes.canonicalize_dtype(
            self.dtype
        )  # that of A may be NumPy's float64, which is float32 in JAX
        return jnp.asarray(0.0 if self.l2 is None else self.l2, dtype)

    def gradient(self, x: Any, pred: Array) -> Any:
        """``c A^T (s * l'(A x)) + l2 * x``. Cost: n d."""
        return self.gradient_from(self.loss_derivatives(x, pred), x)

    def hessian(self, x: Array, pred: Array, tau: Numeric = 0.0) -> SymmetricOperator:
        """``c A^T S (l'' + tau b) A + diag(l2)``, b the bound of l''. Cost of a product: 2 n d."""
        undamped, u = isinstance(tau, float) and tau == 0, self.linear_predictor(pred)
        loss = self.loss.fix(u, self.y)

        def curvature(image: Array) -> Array:
            along = loss.hessian_product(u, self.y, image)
            return along if undamped else along + tau * self.curvature_bound() * image

        return WeightedGram(self, curvature)

    def majorant(self) -> SymmetricOperator:
        """``c b A^T S A + diag(l2)``, at least the Hessian everywhere. Cost of a product: 2 n d."""
        return Majorant(self, lambda image: self.curvature_bound() * image)

    # ---- as a sum over samples ----

    def minibatch(self, indices: Array, weights: Array) -> "LinearModel":
        """The objective ``sum_j weights_j f_{i_j}`` with ``f_i = n c s_i l(a_i.x; y_i) + 1/2 sum_j
        l2_j x_j^2``.

        Cost of a gradient: b d; on a sparse design the entries of these rows, and d; on an
        operator, that of all rows.

        Raises:
            ValueError: where the loss couples the samples.
        """
        self._check_separable()
        scale = self.normalise(jnp.asarray(self.num_samples, self.dtype)) * weights
        scale = (
            scale if self.weights is None else scale * jnp.take(self.weights, indices, mode="clip")
        )
        A, y = self.design.rows(indices), jnp.take(self.y, indices, axis=0, mode="clip")
        l2 = None if self.l2 is None else self.l2 * jnp.sum(weights)
        offset = (
            None if self.offset is None else jnp.take(self.offset, indices, axis=0, mode="clip")
        )
        return dataclasses.replace(self, A=A, y=y, l2=l2, mean=False, weights=scale, offset=offset)

    def minibatch_pred(self, pred: Array, indices: Array) -> Array:
        """The predictions of these samples."""
        return jnp.take(pred, indices, axis=0, mode="clip")

    def loss_derivatives(self, x: Any, pred: Array) -> Array:
        """``c s * l'(A x)``: (n,), or (n, c) for c outputs. Cost: n."""
        return self.weight(self.loss.derivative(self.linear_predictor(pred), self.y))

    def gradient_from(self, derivatives: Array, x: Any) -> Any:
        """``A^T derivatives + l2 * x``. Cost: n d; for an x in factors only that of each product
        with the result."""
        adjoint = (
            self._adjoint(derivatives)
            if isinstance(x, Factored)
            else self.design.rmatvec(derivatives)
        )
        return adjoint if self.l2 is None else adjoint + self.l2 * x

    def sample_smoothness(self) -> Array:
        """``max_i n c b s_i ||a_i||^2 + max l2``, b the bound of l''. Cost: n d; for an operator n
        products.

        Raises:
            ValueError: where the loss couples the samples.
        """
        self._check_separable()
        squares = self.design.row_norms() ** 2
        squares = squares if self.weights is None else self.weights * squares
        top = self.normalise(self.num_samples * jnp.max(squares))
        return top * self.curvature_bound() + jnp.max(self.penalty)

    def _check_separable(self) -> None:
        if not self.loss.is_separable:
            raise ValueError(
                f"objective must be a sum over samples, which the loss of {type(self).__name__} couples: use a solver "
                "that takes full gradients, such as NIHT or HTP"
            )

    # ---- weights and bounds ----

    def weight(self, v: Array) -> Array:
        """``c s_i v_i``."""
        if self.weights is not None:
            v = self.weights.reshape(-1, *[1] * (v.ndim - 1)) * v
        return self.normalise(v)

    def normalise(self, v: Array) -> Array:
        """``c v``."""
        if not self.mean:
            return v
        return v / (self.num_samples if self.weights is None else jnp.sum(self.weights))

    def curvature_bound(self) -> Numeric:
        """b, the bound of l''; targets of weight 0 do not count."""
        if self.weights is None:
            return self.loss.smoothness(self.y)
        present = (self.weights > 0).reshape(-1, *[1] * (jnp.ndim(self.y) - 1))
        return self.loss.smoothness(jnp.where(present, self.y, 0))

    def gram_norm(self) -> Array:
        """``c sigma_max(S^(1/2) A)^2``, an upper estimate. Cost: about 16 products."""
        A = self.design
        shape = (
            A.matrix_shape if isinstance(A, MatrixDesign) else (A.shape[1],)
        )  # of several outputs, that of one
        if hasattr(A, "gram_product"):
            weights = self.weight(jnp.ones(self.num_samples, self.dtype))
            return SymmetricOperator(lambda v: A.gram_product(v, weights), shape, self.dtype).norm()
        return SymmetricOperator(
            lambda v: A.rmatvec(self.weight(A.matvec(v))), shape, self.dtype
        ).norm()

    @property
    def _takes_factors(self) -> bool:
        """Whether :meth:`predict` takes factors: of observed entries."""
        return isinstance(self.design, MatrixDesign) and self.design.takes_factors

    def _adjoint(self, derivatives: Array) -> Product:
        """``A^T derivatives`` as a matrix that is known by its products."""
        return self.design.adjoint(derivatives)


class WeightedGram(SymmetricOperator):
    """``c A^T S D A + diag(l2)``, D the curvatures of the losses: blocks of them for losses of
    several outputs."""

    def __init__(self, model: LinearModel, curvature: Callable[[Array], Array]) -> None:
        def product(v: Array) -> Array:
            image = model.design.rmatvec(model.weight(curvature(model.design.matvec(v))))
            return image if model.l2 is None else image + model.l2 * v

        super().__init__(product, model.shape, model.dtype)
        self.model, self.curvature = model, curvature

    def quadratic_form(self, v: Array, pred: Array) -> Array:
        """``c sum_i s_i l''_i (a_i.v)^2 + sum_j l2_j v_j^2``; pred = A v. Cost: n + d.

        At least FLAT of its upper bound: where l'' is 0 for all samples, steps by its inverse stay
        finite."""
        model, along = self.model, jnp.vdot(pred, self.model.weight(self.curvature(pred)))
        if model.loss.is_smooth:
            along = jnp.maximum(
                along, FLAT * model.curvature_bound() * jnp.vdot(pred, model.weight(pred))
            )
        return along if model.l2 is None else along + jnp.vdot(v, model.l2 * v)

    def diagonal(self) -> Array:
        """Cost: n d, or n d c for c outputs; where the loss couples the samples, a product of it
        for each column."""
        model, variable = self.model, jax.ShapeDtypeStruct(self.shape, self.dtype)
        if not model.loss.is_separable:
            return self._coupled_diagonal()
        image_shape = jax.eval_shape(model.design.matvec, variable).shape
        if len(image_shape) == 1:
            return (
                model.design.squared(
                    model.weight(self.curvature(jnp.ones(image_shape, self.dtype)))
                )
                + model.penalty
            )

        def of_output(unit: Array) -> Array:
            along = self.curvature(jnp.broadcast_to(unit, image_shape))
            return model.design.squared(model.weight(matmul(along, unit)))

        return (
            jax.vmap(of_output, out_axes=1)(jnp.eye(image_shape[1], dtype=self.dtype))
            + model.penalty
        )

    def rows(self, indices: Array) -> Array:
        """Of models of one output. Cost: k_max / 2 products where columns are gathered."""
        if len(self.shape) != 1 or not self.model.design.gathers(indices.size):
            return super().rows(indices)
        images = jax.vmap(lambda image: self.model.weight(self.curvature(image)))(
            self.model.design.columns(indices)
        )
        rows = self.model.design.rmatvec(images.T).T
        if self.model.l2 is None:
            return rows
        here = indices[:, None] == lax.iota(jnp.int32, self.shape[0])[None]
        return rows + jnp.where(here, self.model.penalty, 0)

    def matrix(self) -> Array:
        """All rows. Cost: d / 2 products; for one output of a dense design and a separable loss, n
        d^2 in one."""
        model, A = self.model, self.model.design
        if len(self.shape) != 1 or not isinstance(A, Dense) or not model.loss.is_separable:
            return super().matrix()
        weights = model.weight(self.curvature(jnp.ones(A.shape[0], self.dtype)))
        gram = matmul(A.array.T, weights[:, None] * A.array)
        return (
            gram
            if model.l2 is None
            else gram + jnp.diag(jnp.broadcast_to(model.penalty, self.shape))
        )

    def preconditioner(self) -> Array:
        """The diagonal, or 1 where it would cost d products."""
        A = self.model.design
        A = A.vectorised if isinstance(A, MatrixDesign) else A
        if isinstance(A, LinearOperator) and A.norms is None:
            return jnp.ones((), self.dtype)
        return self.diagonal()

    def _coupled_diagonal(self) -> Array:
        """Column by column, ``a_j' C a_j`` with C the Hessian in the predictions."""

        def entry(j: Array) -> Array:
            (column,) = self.model.design.columns(j[None])
            return jnp.vdot(column, self.model.weight(self.curvature(column)))

        indices = lax.iota(jnp.int32, math.prod(self.shape))
        return lax.map(entry, indices, batch_size=BLOCK).reshape(self.shape) + self.model.penalty


class Majorant(WeightedGram):
    """``c b A^T S A + diag(l2)``, b the bound of the curvature of the loss."""

    def diagonal(self) -> Array:
        """``c b sum_i s_i A_ij^2 + l2_j``, (d,), or (d, 1) for several outputs. Cost: n d."""
        model, A = self.model, self.model.design
        squares = A.column_norms() ** 2 if model.weights is None else A.squared(model.weights)
        squares = model.normalise(squares) * model.curvature_bound()
        return (
            squares.reshape(squares.shape + (1,) * (len(model.shape) - squares.ndim))
            + model.penalty
        )

    def norm(self) -> Array:
        """``c b sigma_max(S^(1/2) A)^2 + max l2``."""
        return self.model.curvature_bound() * self.model.gram_norm() + jnp.max(self.model.penalty)

    def coordinate_norm(self) -> Array:
        """``max_j (c b sum_i s_i A_ij^2 + l2_j)``. Cost: n d."""
        return jnp.max(self.diagonal())


@pytree
class LeastSquares(LinearModel):
    """Squared error of a linear model: ``f(x) = c/2 sum_i s_i (a_i.x - y_i)^2 + 1/2 sum_j l2_j
    x_j^2``.

    The number c is ``1 / sum_i s_i`` where ``mean`` is set (the default), else 1.

    Args:
        A: (n, d) design, samples in rows, float32 or float64, traced: an array, a sparse matrix, or
            a result of :func:`jaxht.design`. No scaling of columns is assumed.
        y: (n,) targets, traced, cast to the dtype of A.
        l2: ridge parameter lambda >= 0, on the scale of the Hessian, traced: a scalar, or (d,), one
            for each coordinate.
        mean: bool, static; True is the scaling of Yuan, Li & Zhang 2018, False that of Shen & Li
            2018 and Axiotis & Sviridenko 2020. Step sizes scale with it.
        weights: (n,) sample weights s >= 0, traced; None for ones.
        offset: (n,), traced, added to the predictions; None for zeros. As if y were y - offset.

    Raises:
        ValueError: from :meth:`prepare`, which every solver calls, for shapes, dtypes and numbers
        that are not valid.

    Cost: a prediction ``A x`` n d; a value, from the prediction, n + d; a gradient n d.

    Source: Shen & Li 2018, (3.1); Yuan, Li & Zhang 2018, §6.1.1; Axiotis & Sviridenko 2020, §5.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([3.0, 1.0, 2.0]))
        >>> jaxht.solve(f, jaxht.Sparse(1), jaxht.HTP()).x.tolist()
        [3.0, 0.0, 0.0]
    """

    @property
    def loss(self) -> SquaredLoss:
        """The loss of one sample."""
        return SquaredLoss()

    @property
    def target(self) -> Array:
        """``y - offset``, (n,): what ``A x`` is fitted to."""
        return self.y if self.offset is None else self.y - self.offset

    def value(self, x: Any, pred: Array) -> Array:
        """f(x) from pred = A x. Cost: n + d."""
        residual = pred - self.target
        return jnp.vdot(residual, self.weight(residual)) / 2 + self.ridge(x)

    def loss_derivatives(self, x: Any, pred: Array) -> Array:
        """``c s_i (a_i.x - y_i)``, (n,). Cost: n."""
        return self.weight(pred - self.target)


FLAT = 1e-6
# Columns at a time.
BLOCK = 16
