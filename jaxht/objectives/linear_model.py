"""Linear models: a sum of losses of predictions ``A x``, with a ridge."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._checks import (
    check_array,
    check_scalars,
    known_values,
    none_negative,
    warn_of_rounding,
)
from jaxht._dataclass import as_dtype, cast_numbers, pytree, replace, static
from jaxht._typing import Array, ArrayDType, Numeric
from jaxht.designs import Dense, Design, design
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.linalg.inner_products import is_complex, real_dtype, real_part, real_vdot
from jaxht.linalg.operators import SymmetricOperator
from jaxht.linalg.products import (
    Product,
    apply_weights,
    drop_unweighted,
    known_by_products,
    weighted_square,
)
from jaxht.objectives.losses import Loss, SquaredLoss
from jaxht.objectives.objective import SumOverSamples, float_dtype

__all__ = ["LeastSquares", "LinearModel", "Majorant", "WeightedGram"]


Model = TypeVar("Model", bound="LinearModel")

# The residual of an exact fit has at most so many rounding errors of y.
EXACT_FIT_ULPS = 1000.0
# Of other losses f has at most so many rounding errors of the sum of the losses.
EXACT_VALUE_ULPS = 4.0


def is_exact_fit(losses: Any, total: Any) -> Any:
    """Whether losses of least squares are rounding errors of that of 0; of arrays of any kind."""
    return losses <= (EXACT_FIT_ULPS * machine_eps(losses)) ** 2 * total


def repeat_last(rows: Any, num_samples: int) -> Any:
    """The rows, and the last one again up to this number, on the host; None stays None."""
    if rows is None:
        return None
    rows = np.asarray(rows)
    return np.concatenate([rows, np.repeat(rows[-1:], num_samples - len(rows), axis=0)])


@pytree
class LinearModel(SumOverSamples):
    """``f(x) = c sum_i s_i l(a_i.x; y_i) + 1/2 sum_j l2_j x_j^2``: base of the objectives on data.

    Args:
        A, y, l2, mean, weights, offset: as in :class:`jaxht.LeastSquares`. For c outputs the offset
            is (n, c), and l2 may be shaped like x.

    Raises:
        ValueError: from :meth:`prepare`, as of :class:`jaxht.LeastSquares`.

    Cost: as of :class:`jaxht.LeastSquares`, and that of the loss.

    Source: McCullagh & Nelder 1989.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.Huber(jnp.eye(2), jnp.ones(2), delta=0.5)
        >>> isinstance(f, jaxht.extend.LinearModel), f.loss
        (True, HuberLoss(delta=0.5))
    """

    A: Any
    y: Array
    l2: Numeric | None = 0.0
    mean: bool = static(default=True, kw_only=True)
    weights: Array | None = dataclasses.field(default=None, kw_only=True)
    offset: Array | None = dataclasses.field(default=None, kw_only=True)

    is_linear_model = True
    #: Whether A, y and x may be complex.
    takes_complex: ClassVar[bool] = False

    @property
    def loss(self) -> Loss:
        """The loss of one sample, from :mod:`jaxht.objectives.losses`."""
        raise NotImplementedError

    @property
    def design(self) -> Any:
        """A as a design: A itself once the objective is prepared."""
        return self.A if isinstance(self.A, Design) else design(self.A)

    @property
    def shape(self) -> tuple[int, ...]:
        """(d,), or (m, p) for measurements of a matrix."""
        return self.design.variable_shape

    @property
    def is_least_squares(self) -> bool:
        """Whether the losses are squared errors."""
        return self.loss.family == "gaussian"

    @property
    def target_shape(self) -> tuple[int, ...]:
        """(n,)."""
        return (self.num_samples,)

    @property
    def pred_shape(self) -> tuple[int, ...]:
        """The shape of the predictions, (n,)."""
        return (self.num_samples,)

    def weights_shape(self, num_samples: int) -> tuple[int, ...]:
        """(n,)."""
        return (num_samples,)

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of A, or the default float where A contains integers; complex where y is."""
        dtype = float_dtype(self.design.dtype)
        y = self.y
        # What is not an array is refused where the objective is prepared.
        is_array = self.takes_complex and isinstance(y, np.ndarray | jax.Array)
        if is_array and np.iscomplexobj(y) and jnp.issubdtype(dtype, jnp.floating):
            return np.result_type(dtype, np.complex64)
        return dtype

    @property
    def real_dtype(self) -> ArrayDType:
        """The dtype of values, weights and ridges."""
        return real_dtype(self)

    @property
    def num_samples(self) -> int:
        """n."""
        return self.design.shape[0]

    def prepare(self) -> Self:
        """This objective, all of its numbers of one dtype.

        Raises:
            ValueError: naming the argument, where shapes, dtypes or numbers are not valid.
        """
        A = self.design
        # Without a ridge its terms are left out of the program.
        has_no_ridge = isinstance(self.l2, int | float) and self.l2 == 0
        l2 = None if has_no_ridge else self.l2
        is_same = A is self.A and l2 is self.l2
        model = self if is_same else replace(self, A=A, l2=l2)
        shape = A.shape
        if len(shape) != 2 or 0 in shape:
            raise ValueError(
                f"A must have shape (n, d) with n, d >= 1; got {shape}: use jax.vmap for a batch"
            )
        warn_of_rounding(A)
        number = model.dtype
        dtype = real_part(number)
        if dtype not in (jnp.float32, jnp.float64):
            raise ValueError(f"A must be float32 or float64 (or integer); got {dtype}")
        if number != dtype:
            model = _check_complex(model)
        _check_samples(model)
        shapes = {"l2": model.shape, "weights": model.weights_shape(shape[0]), "strata": shape[:1]}
        check_scalars(model, skip=("A", "y", "offset"), shapes=shapes)
        _check_weights(model, dtype)
        if model.loss.has_unit:
            _check_unit(model.y, dtype)
        model.loss.check(_present_targets(model))
        return _fill_absent(cast_numbers(model, dtype))

    def has_valid_numbers(self) -> Array:
        """Whether no weight and no ridge is negative."""
        return none_negative(self.weights, self.l2)

    # ---- other numbers of samples and of columns, on the host ----

    @property
    def is_compressible(self) -> bool:
        """Whether :meth:`compress` needs at most d + 1 samples for every n."""
        return False

    def compress(self) -> Self:
        """The same function of as few samples as are known to be enough; prepared."""
        return self

    def pad(self, num_samples: int, num_columns: int) -> Self | None:
        """The same function, prepared, with further samples, of weight 0, and further columns, of
        zeros and without a ridge; None where the design stays as it is."""
        A = self.design.pad(num_samples, num_columns)
        if A is None:
            return None
        n, d = self.design.shape
        weights = self.weights
        weights = np.ones(n, self.real_dtype) if weights is None else np.asarray(weights)
        added = np.zeros((num_samples - n, *weights.shape[1:]), self.real_dtype)
        l2 = None
        if self.l2 is not None:
            l2 = np.zeros((num_columns, *self.shape[1:]), self.real_dtype)
            l2[:d] = self.l2
        return replace(
            self,
            A=A,
            y=repeat_last(self.y, num_samples),
            l2=l2,
            weights=np.concatenate([weights, added]),
            offset=repeat_last(self.offset, num_samples),
        )

    # ---- value, gradient, Hessian ----

    def predict(self, x: Any) -> Array:
        """``A x``. Cost: n d."""
        return self.design.matvec(x)

    def linear_predictor(self, pred: Array) -> Array:
        """``A x + offset`` from pred = A x: where the loss is taken."""
        return pred if self.offset is None else pred + self.offset

    def value(self, x: Any, pred: Array) -> Array:
        """f(x) from pred = A x. Cost: n + d."""
        losses = self.weighted_losses(pred)
        # A product with ones: XLA's CPU compiler does not vectorise a sum.
        return jnp.vdot(losses, jnp.ones_like(losses)) + self.ridge(x)

    def weighted_losses(self, pred: Array) -> Array:
        """``c s_i l(a_i.x; y_i)``, (n,), from pred = A x. Cost: n."""
        return self.weight(self.loss.value(self.linear_predictor(pred), self.y))

    def ridge(self, x: Any) -> Array:
        """``1/2 sum_j l2_j x_j^2``."""
        if self.l2 is None:
            return jnp.zeros((), real_dtype(x))
        return weighted_square(x, self.l2) / 2

    @property
    def penalty(self) -> Array:
        """``l2`` as an array: 0 where there is no ridge."""
        # The dtype of A may be NumPy's float64, which is float32 in JAX.
        dtype = jax.dtypes.canonicalize_dtype(self.real_dtype)
        return jnp.asarray(0.0 if self.l2 is None else self.l2, dtype)

    def gradient(self, x: Any, pred: Array) -> Any:
        """``c A^H (s * l'(A x)) + l2 * x``. Cost: n d."""
        return self.gradient_from(self.loss_derivatives(x, pred), x)

    def hessian(self, x: Array, pred: Array, tau: Numeric = 0.0) -> SymmetricOperator:
        """``c A^T S (l'' + tau b) A + diag(l2)``, b the bound of l'', or the damping where there is
        none. Cost of a product: 2 n d."""
        u = self.linear_predictor(pred)
        loss = self.loss.fix(u, self.y)
        is_damped = not isinstance(tau, float) or tau != 0
        damping = tau * self.damping(u) if is_damped else None

        def curvature(image):
            along = loss.hessian_product(u, self.y, image)
            return along if damping is None else along + damping * image

        return WeightedGram(self, curvature)

    def majorant(self) -> SymmetricOperator:
        """``c b A^T S A + diag(l2)``, at least the Hessian everywhere. Cost of a product: 2 n d."""
        return Majorant(self, lambda image: self.curvature_bound() * image)

    def step_scale(self, pred: Array) -> Numeric:
        """The bound of l'' over the largest l'' at x, where there is no bound for all x: the
        product has the unit of y. Cost: n."""
        if self.loss.is_bounded:
            return 1.0
        u = self.of_present(self.linear_predictor(pred))
        loss: Any = self.loss
        largest = jnp.max(self.of_present(loss.curvature(u, self.y)))
        scale = self.curvature_bound() / largest
        return jnp.where((largest > 0) & jnp.isfinite(scale), scale, 1)

    def exact_fits(self, values: Array) -> Array:
        """Which values of f are those of exact fits: of squared errors, counts and gamma variables.
        Cost: n."""
        least = self._least_losses()
        if least is not None:
            total, size = jnp.sum(least), jnp.sum(jnp.abs(least))
            return values - total <= EXACT_VALUE_ULPS * machine_eps(values) * size
        if not self.is_least_squares:
            return super().exact_fits(values)
        x = jnp.zeros(self.shape, values.dtype)
        pred = jnp.zeros(self.pred_shape, values.dtype)
        return is_exact_fit(values, self.value(x, pred))

    def exact_value(self) -> Numeric:
        """The sum of the least losses of the targets."""
        least = self._least_losses()
        return super().exact_value() if least is None else jnp.sum(least)

    def _least_losses(self) -> Array | None:
        least = self.loss.least(self.y)
        return None if least is None else self.weight(least)

    # ---- on some columns ----

    def restrict(self, indices: Array) -> Self:
        """This objective of one output on the columns at ``indices`` (m,) alone, which differ, as a
        dense design."""
        l2 = self.l2
        if jnp.ndim(self.penalty):
            l2 = self.penalty[indices]
        return dataclasses.replace(self, A=Dense(self.design.columns(indices).T), l2=l2)

    def forms_hessian(self, num_rows: int, max_formed: int) -> bool:
        """Whether the Hessian is worth forming where ``num_rows`` of its rows are asked for: up to
        ``max_formed`` entries of the variable, on a dense design up to n, and for matrices."""
        if self.design.dense_array is not None:
            max_formed = max(max_formed, self.num_samples)
        is_matrix = len(self.shape) > 1
        return is_matrix or self.shape[0] <= min(num_rows, max_formed)

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

        def take(v):
            return jnp.take(v, indices, axis=0, mode="clip")

        scale = self.normalise(jnp.asarray(self.num_samples, self.real_dtype)) * weights
        return replace(
            self,
            A=self.design.rows(indices),
            y=take(self.y),
            l2=None if self.l2 is None else self.l2 * jnp.sum(weights),
            mean=False,
            weights=scale if self.weights is None else _times(take(self.weights), scale),
            offset=None if self.offset is None else take(self.offset),
        )

    def minibatch_pred(self, pred: Array, indices: Array) -> Array:
        """The predictions of these samples."""
        return jnp.take(pred, indices, axis=0, mode="clip")

    def loss_derivatives(self, x: Any, pred: Array) -> Array:
        """``c s * l'(A x)``: (n,), or (n, c) for c outputs. Cost: n."""
        return self.weight(self.loss.derivative(self.linear_predictor(pred), self.y))

    def gradient_from(self, derivatives: Array, x: Any) -> Any:
        """``A^H derivatives + l2 * x``. Cost: n d; where x is known by its products, so is the
        result, and the cost is that of each product with it."""
        lazy = known_by_products(x)
        adjoint = self._adjoint(derivatives) if lazy else self.design.rmatvec(derivatives)
        return self.add_ridge(adjoint, x)

    def add_ridge(self, v: Any, x: Any) -> Any:
        """``v + l2 * x``."""
        return v if self.l2 is None else v + self.l2 * x

    def sample_smoothness(self) -> Array:
        """``max_i n c b s_i ||a_i||^2 + max l2``, b the bound of l''. Cost: n d; for an operator n
        products.

        Raises:
            ValueError: where the loss couples the samples.
        """
        self._check_separable()
        squares = self.design.row_norms() ** 2
        if self.weights is not None:
            # Of several outputs, the largest of their weights.
            weights = jnp.reshape(self.weights, (self.num_samples, -1))
            squares = apply_weights(jnp.max(weights, axis=1), squares)
        largest = self.normalise(self.num_samples * jnp.max(squares))
        return largest * self.curvature_bound() + jnp.max(self.penalty)

    def _check_separable(self) -> None:
        if not self.loss.is_separable:
            raise ValueError(
                "objective must be a sum over samples, which the loss of "
                f"{type(self).__name__} couples: use a solver that takes full gradients, such as "
                "NIHT or HTP"
            )

    # ---- weights and bounds ----

    @property
    def sample_weights(self) -> Array:
        """``weights`` as an array, (n,) or those of each entry of y: ones where there are none."""
        dtype = self.penalty.dtype
        if self.weights is None:
            return jnp.ones(self.num_samples, dtype)
        return as_dtype(self.weights, dtype)

    def reweight(self, factors: Array) -> Self:
        """This objective with each sample's weight times a factor, (n,)."""
        return replace(self, weights=_times(self.sample_weights, factors))

    def weight(self, v: Array) -> Array:
        """``c s_i v_i``."""
        if self.weights is not None:
            v = apply_weights(_as_column(self.weights, v.ndim), v)
        return self.normalise(v)

    def normalise(self, v: Array) -> Array:
        """``c v``."""
        if not self.mean:
            return v
        return v / (self.num_samples if self.weights is None else self._total_weight)

    @property
    def _total_weight(self) -> Array:
        """The sum of the weights of the samples."""
        return jnp.sum(self.weights)  # type: ignore[arg-type]

    def curvature_bound(self) -> Numeric:
        """b, the bound of l''; targets of weight 0 do not count."""
        return self.loss.smoothness(self.of_present(self.y))

    def damping(self, u: Array) -> Numeric:
        """The curvature of the loss in units of which Newton steps at u are damped."""
        return self.loss.damping(self.of_present(u), self.of_present(self.y))

    def of_present(self, v: Array) -> Array:
        """v (n, ...), with 0 for samples of weight 0."""
        if self.weights is None:
            return v
        return jnp.where(_as_column(self.weights > 0, jnp.ndim(v)), v, 0)

    def gram_norm(self) -> Array:
        """``c sigma_max(S^(1/2) A)^2``, an upper estimate. Cost: about 16 products."""
        A = self.design
        weights = self.weight(jnp.ones(self.num_samples, self.real_dtype))
        # Of several outputs, the norm is that of one.
        gram = SymmetricOperator(lambda v: A.gram_product(v, weights), A.variable_shape, self.dtype)
        return gram.norm()

    @property
    def needs_entries(self) -> bool:
        """False for observed entries, where the ridge is one number."""
        return jnp.ndim(self.penalty) > 0 or self.design.needs_entries

    def _adjoint(self, derivatives: Array) -> Product:
        """``A^T derivatives`` as a matrix that is known by its products."""
        return self.design.adjoint(derivatives)


def _check_samples(model: LinearModel) -> None:
    y = model.y
    shape = model.target_shape
    check_array("y", y, f"an array of shape {shape}")
    if y.shape != shape:
        raise ValueError(f"y must have shape {shape}, one entry for each row of A; got {y.shape}")
    kinds: list[Any] = [jnp.floating, jnp.integer]
    if model.takes_complex:
        kinds.append(jnp.complexfloating)
    if not any(jnp.issubdtype(y.dtype, kind) for kind in kinds):
        numbers = "real or complex" if model.takes_complex else "real"
        raise ValueError(f"y must be {numbers}; got dtype {y.dtype}")
    if model.offset is None:
        return
    shape = model.pred_shape
    check_array("offset", model.offset, f"an array of shape {shape}")
    if np.iscomplexobj(model.offset) and not is_complex(model):
        raise ValueError(f"offset must be real; got dtype {model.offset.dtype}")
    if model.offset.shape != shape:
        raise ValueError(
            f"offset must have shape {shape}, that of the predictions; got {model.offset.shape}"
        )


def _check_complex(model: Model) -> Model:
    """The model with A, y and offset of its complex dtype; a ValueError unless it takes them."""
    if not model.takes_complex:
        raise ValueError(
            f"A must be float32 or float64 (or integer) for {type(model).__name__}; got "
            f"{model.dtype}: LeastSquares and MultiResponse take complex numbers"
        )
    A = model.design
    if not A.takes_complex:
        raise ValueError(
            "A must be an array, a sparse matrix or a LinearOperator for complex numbers; got "
            f"{type(A).__name__}"
        )
    if not is_complex(A):
        A = cast_numbers(A, model.dtype)
    if not is_complex(A):
        raise ValueError(f"A must have a complex dtype, as y has; got an operator of {A.dtype}")
    offset = model.offset
    return replace(
        model,
        A=A,
        y=as_dtype(model.y, model.dtype),
        offset=None if offset is None else as_dtype(offset, model.dtype),
    )


def _check_weights(model: LinearModel, dtype: Any) -> None:
    """Raise ValueError for one weight of all samples, for weights below 0, and for those whose sums,
    times squares of ordinary numbers, over- or underflow: with such a sum the mean of any losses is
    0."""
    weights = model.weights
    if weights is None:
        return
    if jnp.ndim(weights) == 0:
        shape = model.weights_shape(model.num_samples)
        raise ValueError(f"weights must have shape {shape}; got one number: leave it out")
    known = known_values(weights)
    if known is None or known.size == 0:
        return
    if np.min(known) < 0:
        raise ValueError(f"weights must be at least 0; got {np.min(known)}")
    largest = float(np.max(known))
    numbers = np.finfo(dtype)
    if largest > float(numbers.max) ** 0.5 or 0 < largest < float(numbers.tiny) ** 0.5:
        raise ValueError(
            f"weights must be neither huge nor tiny in {np.dtype(dtype)}; the largest is "
            f"{largest:.3g}: divide them by it"
        )


def _check_unit(y: Any, dtype: Any) -> None:
    """Raise ValueError for targets all of whose squares underflow: f is then 0 everywhere."""
    known = known_values(y)
    if known is None:
        return
    largest = float(np.max(np.abs(known), initial=0))
    if 0 < largest < float(np.finfo(dtype).tiny) ** 0.5:
        raise ValueError(
            f"squares of y underflow in {np.dtype(dtype)}, the largest |y| is {largest:.3g}: give y "
            "in a smaller unit"
        )


def _as_column(v: Array, ndim: int) -> Array:
    """``v`` (n, ...) with axes of length 1 behind, ``ndim`` in all."""
    return v.reshape(*v.shape, *[1] * (ndim - v.ndim))


def _times(weights: Array, factors: Array) -> Array:
    """Weights (n,), or (n, c), times factors (n,)."""
    return weights * _as_column(factors, jnp.ndim(weights))


#: The least quadratic form of a Hessian, relative to its upper bound.
LEAST_CURVATURE_SHARE = 1e-6
#: Columns whose products with a coupled Hessian are computed together.
COLUMNS_AT_A_TIME = 16


def _present_targets(model: LinearModel) -> Any:
    """The targets of the samples that have a weight, as far as that is known; of unknown weights
    those that are finite, since NaN may stand where a weight is 0."""
    y = known_values(model.y)
    if model.weights is None or y is None:
        return model.y
    weights = known_values(model.weights)
    if weights is None:
        return y[np.isfinite(y).reshape(len(y), -1).all(axis=1)]
    return y[weights > 0] if weights.shape == y.shape[:1] else model.y


def _fill_absent(model: Model) -> Model:
    """The model with a target of 1, which every loss takes, and an offset of 0, where one of weight
    0 is not finite: in reverse mode its loss has a derivative of 0 times NaN."""
    if model.weights is None:
        return model
    y = _fill_where_absent(model.y, model.weights, 1)
    offset = None
    if model.offset is not None:
        offset = _fill_where_absent(model.offset, model.weights, 0)
    if y is model.y and offset is model.offset:
        return model
    return replace(model, y=y, offset=offset)


def _fill_where_absent(v: Any, weights: Any, value: float) -> Any:
    """Numbers of samples, with a value in place of those of weight 0 that are not finite."""
    is_described = isinstance(weights, jax.ShapeDtypeStruct) or isinstance(v, jax.ShapeDtypeStruct)
    if is_described or not jnp.issubdtype(v.dtype, jnp.inexact):
        return v
    known = known_values(v)
    if known is not None and np.all(np.isfinite(known)):
        return v
    known_weights = known_values(weights)
    if known_weights is None or known is None:
        is_absent = _as_column(weights == 0, jnp.ndim(v)) & ~jnp.isfinite(v)
        return jnp.where(is_absent, v.dtype.type(value), v)
    is_absent = _as_column(known_weights == 0, known.ndim) & ~np.isfinite(known)
    filled = np.where(is_absent, v.dtype.type(value), known)
    return jax.device_put(filled, v.sharding) if isinstance(v, jax.Array) else filled


class WeightedGram(SymmetricOperator):
    """``c A^T S D A + diag(l2)``, D the curvatures of the losses: blocks of them for losses of
    several outputs."""

    def __init__(self, model: LinearModel, curvature: Callable[[Array], Array]) -> None:
        def product(v):
            image = curvature(model.design.matvec(v))
            return model.add_ridge(model.design.rmatvec(model.weight(image)), v)

        super().__init__(product, model.shape, model.dtype)
        self.model, self.curvature = model, curvature

    def quadratic_form(self, v: Array, pred: Array) -> Array:
        """``c sum_i s_i l''_i |a_i.v|^2 + sum_j l2_j |v_j|^2``; pred = A v. Cost: n + d.

        At least LEAST_CURVATURE_SHARE of its upper bound: where l'' is 0 for all samples, steps by its
        inverse stay finite.
        """
        model = self.model
        form = real_vdot(pred, model.weight(self.curvature(pred)))
        if model.loss.is_smooth:
            bound = model.curvature_bound() * real_vdot(pred, model.weight(pred))
            form = jnp.maximum(form, LEAST_CURVATURE_SHARE * bound)
        return form if model.l2 is None else form + real_vdot(v, model.l2 * v)

    def diagonal(self) -> Array:
        """Cost: n d, or n d c for c outputs; where the loss couples the samples, a product of it
        for each column."""
        model = self.model
        if not model.loss.is_separable:
            return self._coupled_diagonal()
        shape = model.pred_shape
        if len(shape) == 1:
            curvatures = self.curvature(jnp.ones(shape, model.real_dtype))
            return model.design.squared(model.weight(curvatures)) + model.penalty

        def of_output(unit):
            along = model.weight(self.curvature(jnp.broadcast_to(unit, shape)))
            return model.design.squared(matmul(along, unit))

        units = jnp.eye(shape[1], dtype=model.real_dtype)
        return jax.vmap(of_output, out_axes=1)(units) + model.penalty

    def rows(self, indices: Array) -> Array:
        """Some rows. Cost, for one output: k_max / 2 products where columns are gathered."""
        model = self.model
        if len(self.shape) != 1 or not model.design.gathers(indices.size):
            return super().rows(indices)
        images = jax.vmap(lambda image: model.weight(self.curvature(image)))(
            model.design.columns(indices)
        )
        rows = model.design.rmatvec(images.T).T.conj()
        if model.l2 is None:
            return rows
        is_diagonal = indices[:, None] == lax.iota(jnp.int32, self.shape[0])[None]
        return rows + jnp.where(is_diagonal, model.penalty, 0)

    def matrix(self) -> Array:
        """The matrix, (d, d). Cost: d / 2 products; for one output of a dense design and a
        separable loss, n d^2 in one."""
        model = self.model
        A = model.design.dense_array
        if len(self.shape) != 1 or A is None or not model.loss.is_separable:
            return super().matrix()
        weights = model.weight(self.curvature(jnp.ones(A.shape[0], model.real_dtype)))
        gram = matmul(A.conj().T, weights[:, None] * A)
        if model.l2 is None:
            return gram
        return gram + jnp.diag(jnp.broadcast_to(model.penalty, self.shape))

    def preconditioner(self) -> Array:
        """The diagonal, or 1 where it would cost d products."""
        if not self.model.design.has_column_norms:
            return jnp.ones((), self.model.real_dtype)
        return self.diagonal()

    def _coupled_diagonal(self) -> Array:
        """``a_j' C a_j`` for each column, C the Hessian in the predictions."""
        model = self.model

        def entry(j):
            (column,) = model.design.columns(j[None])
            return jnp.vdot(column, model.weight(self.curvature(column)))

        indices = lax.iota(jnp.int32, math.prod(self.shape))
        entries = lax.map(entry, indices, batch_size=COLUMNS_AT_A_TIME)
        return entries.reshape(self.shape) + model.penalty


class Majorant(WeightedGram):
    """``c b A^T S A + diag(l2)``, b the bound of the curvature of the loss."""

    def diagonal(self) -> Array:
        """``c b sum_i s_i A_ij^2 + l2_j``, (d,), or for several outputs (d, 1), or (d, c) where
        each entry of y has a weight. Cost: n d, or n d c."""
        model = self.model
        A = model.design
        weights = model.weights
        if weights is None:
            squares = A.column_norms() ** 2
        elif jnp.ndim(weights) == 1:
            squares = A.squared(weights)
        else:
            squares = jax.vmap(A.squared, in_axes=1, out_axes=1)(weights)
        squares = model.normalise(squares) * model.curvature_bound()
        num_outputs = len(model.shape) - squares.ndim
        return squares.reshape(squares.shape + (1,) * num_outputs) + model.penalty

    def norm(self) -> Array:
        """``c b sigma_max(S^(1/2) A)^2 + max l2``."""
        return self.model.curvature_bound() * self.model.gram_norm() + jnp.max(self.model.penalty)

    def coordinate_norm(self) -> Array:
        """``max_j (c b sum_i s_i A_ij^2 + l2_j)``. Cost: n d."""
        return jnp.max(self.diagonal())


@pytree
class LeastSquares(LinearModel):
    """Squared error of a linear model: ``f(x) = c/2 sum_i s_i |a_i.x - y_i|^2 + 1/2 sum_j l2_j
    |x_j|^2``.

    The number c is ``1 / sum_i s_i`` where ``mean`` is set (the default), else 1: integer weights s
    repeat samples, and a weight of 0 leaves a sample out, so that a vmap over weights is
    cross-validation.

    A, y and offset may be complex, and x is then. Its gradient is ``c A^H (s * (A x - y)) + l2 *
    x``, A^H the conjugate transpose: twice the Wirtinger derivative by the conjugate of x, so that
    ``x - eta * gradient`` is a gradient step as for real x.

    Args:
        A: (n, d) design, samples in rows, traced: an argument or a result of :func:`jaxht.design`.
            No scaling of columns is assumed. Float32, float64, complex64 or complex128 (the
            latter two an array or a :class:`jaxht.LinearOperator`); integers are cast to the default
            float. Where all lanes of a vmap share one A, its products are matrix-matrix products.
        y: (n,) targets, traced, cast to the dtype of A, and A to theirs where they are complex.
        l2: ridge parameter lambda >= 0, on the scale of the Hessian, traced: a scalar, or one for
            each coordinate, (d,). An intercept is a column of ones with a lambda of 0. A Python 0,
            or None, leaves the ridge out of the program: a compile of its own.
        mean: bool, static; whether the sum is divided by the sum of the weights: True is the
            scaling of Yuan, Li & Zhang 2018, False that of Shen & Li 2018 and Axiotis & Sviridenko
            2020. Step sizes scale with it.
        weights: (n,) sample weights s >= 0, traced; None for ones.
        offset: (n,), traced; None for zeros. It is added to the predictions within the loss, which
            is at ``a_i.x + offset_i``: a part of the predictor that is known, such as the logarithm
            of an exposure, or the predictions of another model.

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

    takes_complex = True

    @property
    def loss(self) -> SquaredLoss:
        """The loss of one sample."""
        return SquaredLoss()

    @property
    def target(self) -> Array:
        """``y - offset``, (n,): what ``A x`` is fitted to; 0 where it has no weight and is not
        finite."""
        target = self.y if self.offset is None else self.y - self.offset
        if self.weights is None:
            return target
        return drop_unweighted(self.weights, target)

    @property
    def is_compressible(self) -> bool:
        """Whether the design is an array of real numbers."""
        array = self.design.dense_array
        return array is not None and not np.iscomplexobj(array)

    def compress(self) -> Self:
        r"""Least squares of the d + 1 rows of R in a QR factorisation, if there are more samples.

        .. math::
            S^{1/2} [A \; y - offset] = Q R, \qquad
            \sum_i s_i (a_i.x - y_i + offset_i)^2 = |R [x; -1]|^2

        The sum of the weights stays. Cost: 2 n d^2, in double precision on the host.
        """
        n, d = self.design.shape
        if not self.is_compressible or n <= d + 1:
            return self
        array = self.design.dense_array
        target = np.asarray(self.y, np.float64)
        if self.offset is not None:
            target = target - self.offset
        rows = np.column_stack([array, target])
        total = float(n)
        if self.weights is not None:
            weights = np.asarray(self.weights, np.float64)
            total = float(np.sum(weights))
            rows[:, -1] = np.where(weights > 0, target, 0)
            rows = rows * np.sqrt(weights)[:, None]
        factor: Any = np.linalg.qr(rows, mode="r")
        weight = total / (d + 1)
        R = (factor / (math.sqrt(weight) or 1)).astype(array.dtype)  # 0 where all weights are
        weights = np.full(d + 1, weight, array.dtype)
        return replace(self, A=design(R[:, :d]), y=R[:, d], weights=weights, offset=None)

    def value(self, x: Any, pred: Array) -> Array:
        """f(x) from pred = A x. Cost: n + d."""
        residual = pred - self.target
        return real_vdot(residual, self.weight(residual)) / 2 + self.ridge(x)

    def loss_derivatives(self, x: Any, pred: Array) -> Array:
        """``c s_i (a_i.x - y_i)``, (n,). Cost: n."""
        return self.weight(pred - self.target)
