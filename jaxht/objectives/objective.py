"""The protocols of objectives: a core for all solvers, and a second one for sums over samples."""

from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_array, host_array
from jaxht._dataclass import as_dtype, cast_numbers
from jaxht._repr import describe
from jaxht._typing import Array, ArrayDType, Numeric
from jaxht.linalg.inner_products import is_complex
from jaxht.linalg.operators import SymmetricOperator
from jaxht.linalg.products import known_by_products

__all__ = [
    "Objective",
    "SumOverSamples",
    "cast_point",
    "check_least_squares",
    "check_linear_model",
    "check_point",
    "check_products",
    "check_sum",
    "float_dtype",
]


@runtime_checkable
class Objective(Protocol):
    """A function f of a variable x, whose value, gradient and Hessian are computed from a
    prediction ``pred``.

    ``pred`` is a linear image of x: A x for a model on data, x itself for a general function. Since
    it is linear, it can be extrapolated together with x without a further product.

    Attributes:
        is_linear_model: whether f is a sum of losses of predictions ``A x``, a
            :class:`LinearModel`.
        has_feasible_start: whether :meth:`start` lies in every constraint set, as zero does; else
            it is projected.
    """

    is_linear_model: ClassVar[bool] = False
    has_feasible_start: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the variable."""
        ...

    @property
    def dtype(self) -> ArrayDType:
        """The dtype of the variable: float32, float64, complex64 or complex128. Values, step sizes
        and norms are real, of the same precision."""
        ...

    @property
    def num_samples(self) -> int:
        """n, the number of functions that f is a sum of: a full gradient costs n IFO. 1 where f is
        not known to be a sum."""
        return 1

    @property
    def is_least_squares(self) -> bool:
        """Whether f is a sum of squared errors of predictions ``A x``, with weights and a ridge
        at most."""
        return False

    def prepare(self) -> Self:
        """This objective with what a run needs to compute only once.

        Raises:
            ValueError: for data of wrong shapes, dtypes or values, as far as known at trace time.
        """
        return self

    def has_valid_numbers(self) -> Array:
        """Whether numbers that are not known to :meth:`prepare` are what it asks for, a bool
        scalar."""
        return jnp.array(True)

    @property
    def needs_entries(self) -> bool:
        """Whether x must be an array; else it may be known by its products alone."""
        return True

    def start(self) -> Array:
        """A point to start from: zero."""
        return jnp.zeros(self.shape, self.dtype)

    def predict(self, x: Array) -> Array:
        """pred of x: x itself."""
        return x

    def value(self, x: Array, pred: Array) -> Array:
        """f(x)."""
        ...

    def gradient(self, x: Array, pred: Array) -> Array:
        """grad f(x), shaped like x: the direction along which f increases most; of a complex x
        twice the Wirtinger derivative by its conjugate."""
        ...

    def hessian(self, x: Array, pred: Array, tau: Numeric = 0.0) -> SymmetricOperator:
        """``H + tau B``, H the Hessian at x and B an upper bound of it, see
        :mod:`jaxht.subproblems.newton`."""
        ...

    def majorant(self) -> SymmetricOperator:
        """B, an upper bound of the Hessian at every x, as far as one is known: its norm is the
        smoothness L of f."""
        ...

    def step_scale(self, pred: Array) -> Numeric:
        """By what a step size that follows from :meth:`majorant` is multiplied at x: 1, where that
        is a bound."""
        return 1.0

    def exact_fits(self, values: Array) -> Array:
        """Which values of f, of any shape, are those of exact fits but for rounding errors, bool;
        none where f does not tell."""
        return jnp.zeros(values.shape, bool)

    def exact_value(self) -> Numeric:
        """f of an exact fit, where :meth:`exact_fits` tells which these are."""
        return 0.0


@runtime_checkable
class SumOverSamples(Objective, Protocol):
    """``f = (1/n) sum_i f_i``: what stochastic solvers require. A mean of some summands is an
    objective again.

    The gradient is a linear function of the derivatives of the losses and x together, so that a
    gradient can also be computed from a table or a difference of derivatives.
    """

    def minibatch(self, indices: Array, weights: Array) -> Self:
        """The objective ``sum_j weights_j f_{i_j}``; indices i (b,) may repeat, and may be n where
        the weight is 0."""
        ...

    def minibatch_pred(self, pred: Array, indices: Array) -> Array:
        """The pred of :meth:`minibatch`, from that of the whole objective."""
        ...

    def loss_derivatives(self, x: Array, pred: Array) -> Array:
        """The derivatives of the losses at their predictions, one row for each sample, weights
        included."""
        ...

    def gradient_from(self, derivatives: Array, x: Array) -> Array:
        """The gradient from :meth:`loss_derivatives`; at x = 0 without terms that all summands
        share (a ridge)."""
        ...

    def sample_smoothness(self) -> Array:
        """An upper estimate of the largest smoothness of any f_i."""
        ...


def float_dtype(dtype: ArrayDType) -> ArrayDType:
    """``dtype``, or the default float for integers."""
    return jnp.result_type(float) if jnp.issubdtype(dtype, jnp.integer) else dtype


def check_point(x: Any, objective: Objective, name: str = "x") -> Any:
    """x as an array, or in factors; a ValueError unless it is shaped like the variable, and real
    where that is."""
    if isinstance(x, list):
        x = host_array(name, x)
    if not known_by_products(x):
        check_array(name, x, f"an array of shape {objective.shape}, such as result.x")
    if x.shape != objective.shape:
        raise ValueError(
            f"{name} must have shape {objective.shape}, that of the variable; got {x.shape}"
        )
    if np.iscomplexobj(x) and not is_complex(objective):
        raise ValueError(f"{name} must be real, like the variable; got {describe(x)}")
    return x


def cast_point(x: Any, objective: Objective, name: str = "x") -> Any:
    """:func:`check_point`, and x in the dtype of the variable."""
    x = check_point(x, objective, name)
    if known_by_products(x):
        return cast_numbers(x, objective.dtype)
    x = as_dtype(x, objective.dtype)
    return x.astype(objective.dtype) if x.dtype == jnp.bool_ else x


def check_least_squares(
    name: str, objective: Objective, *, of_vector: bool = False, advice: str = ""
) -> None:
    """Raise ValueError unless f is least squares, of a vector where that is asked for."""
    is_wide = of_vector and len(objective.shape) != 1
    if not objective.is_least_squares or is_wide:
        raise ValueError(
            f"objective must be LeastSquares for {name}; got {type(objective).__name__}{advice}"
        )


def check_products(objective: Objective) -> None:
    """Raise ValueError unless x may be known by its products alone."""
    if objective.needs_entries:
        raise ValueError(
            "objective must take factored iterates: MultiResponse, Softmax, matrix_completion by "
            f"IHT or SGHT; got {type(objective).__name__}: leave LowRank(factored=True) out"
        )


def check_sum(objective: Objective) -> None:
    """Raise ValueError unless the objective is a sum over samples."""
    if not isinstance(objective, SumOverSamples):
        raise ValueError(
            "objective must be a sum over samples, such as FiniteSum; got "
            f"{type(objective).__name__}"
        )


def check_linear_model(name: str, objective: Any) -> None:
    """Raise ValueError unless f is a linear model of one output, of a vector."""
    if not objective.is_linear_model or len(objective.shape) != 1:
        raise ValueError(
            f"objective must be a linear model of one output for {name}; got "
            f"{type(objective).__name__}"
        )
