"""What solvers ask of an objective: a core for all, and more of sums over samples."""

from typing import Any, Protocol, Self, runtime_checkable

from chex import Array, ArrayDType, Numeric

from jaxht.linalg.operators import SymmetricOperator


class Objective(Protocol):
    """A function f of a variable x, and what value, gradient and Hessian share: the prediction ``pred``.

    ``pred`` is any linear image of x that they are computed from (A x for a model on data; x itself for a general
    function). Being linear, it can be extrapolated together with x at no cost.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the variable."""
        ...

    @property
    def dtype(self) -> ArrayDType:
        """float32 or float64: the dtype of everything that a run computes."""
        ...

    @property
    def num_samples(self) -> int:
        """n, the number of functions that f is a sum of: a full gradient costs n IFO."""
        ...

    def prepare(self) -> Self:
        """This objective with what can be done once done; ValueError for data that cannot be right, where known."""
        ...

    def start(self, rank: int | None = None) -> Any:
        """A point to start from; for a rank, as :class:`jaxht.Factored` with so many columns.

        Raises:
            ValueError: if the variable of this objective cannot be held in factors.
        """
        ...

    def predict(self, x: Array) -> Array:
        """pred of x."""
        ...

    def value(self, x: Array, pred: Array) -> Array:
        """f(x)."""
        ...

    def gradient(self, x: Array, pred: Array) -> Array:
        """grad f(x), shaped like x."""
        ...

    def hessian(self, x: Array, pred: Array, tau: Numeric = 0.0) -> SymmetricOperator:
        """``H + tau B``, H the Hessian at x and B its upper bound, see :mod:`jaxht.refit.newton`."""
        ...

    def majorant(self) -> SymmetricOperator:
        """B, at least the Hessian at every x, as far as that is known: its norm is the smoothness L of f."""
        ...


@runtime_checkable
class SumOverSamples(Objective, Protocol):
    """``f = (1/n) sum_i f_i``, as stochastic solvers need it: some of its summands are an objective again.

    The gradient is linear in the derivatives of the losses and in x together, so that a table or a difference of
    derivatives makes a gradient as well.
    """

    def minibatch(self, indices: Array, weights: Array) -> Self:
        """The objective ``sum_j weights_j f_{i_j}``, i = indices (b,), which may repeat, or be n for weights of 0."""
        ...

    def minibatch_pred(self, pred: Array, indices: Array) -> Array:
        """From pred of the whole objective that of :meth:`minibatch`."""
        ...

    def loss_derivatives(self, x: Array, pred: Array) -> Array:
        """The derivatives of the losses at their predictions, a row for each sample, weights included."""
        ...

    def gradient_from(self, derivatives: Array, x: Array) -> Array:
        """The gradient from :meth:`loss_derivatives`; at x = 0 without what all summands share, such as a ridge."""
        ...

    def sample_smoothness(self) -> Array:
        """An upper estimate of the smoothness of every f_i."""
        ...


def check_sum(objective: Objective) -> None:
    """Raise ValueError unless the objective is a sum over samples."""
    if not isinstance(objective, SumOverSamples):
        raise ValueError(f"objective must be a sum over samples, such as FiniteSum; got {type(objective).__name__}")


def no_factors(objective: Objective) -> ValueError:
    """What :meth:`Objective.start` raises for a rank where the variable cannot be held in factors."""
    return ValueError(
        "objective must take factored iterates: MultiResponse, Softmax, MatrixCompletion by IHT or SGHT; "
        f"got {type(objective).__name__}: leave LowRank(factored=True) out"
    )
