"""What a solver may ask of an objective."""

from collections.abc import Callable
from typing import Any, Protocol

from chex import Array, ArrayDType, Numeric
from jax import lax

from jaxht.refit.newton import Refit


class Objective(Protocol):
    """A function f of a variable x, with the products of x that its value, gradient and curvature share.

    ``pred`` is any linear image of x that they are computed from (A x for a model on data; x itself for a general
    function). Being linear, it can be extrapolated together with x at no cost.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the variable."""
        ...

    @property
    def dtype(self) -> ArrayDType:
        """float32 or float64: the dtype of everything a run computes."""
        ...

    @property
    def num_samples(self) -> int:
        """n, the number of functions f is a sum of: a full gradient costs n IFO."""
        ...

    def prepare(self) -> "Objective":
        """This objective with what can be done once done, on the host."""
        ...

    def check(self) -> None:
        """Raise ValueError for data that cannot be right, as far as known at trace time."""
        ...

    def start(self, constraint: Any) -> Array:
        """A feasible point to start from."""
        ...

    def predict(self, x: Array) -> Array:
        """The image pred of x."""
        ...

    def value(self, x: Array, pred: Array) -> Array:
        """f(x)."""
        ...

    def gradient(self, x: Array, pred: Array) -> Array:
        """grad f(x), shaped like x."""
        ...

    def curvature(self, x: Array, pred: Array, v: Array, image: Array) -> Array:
        """The curvature of f at x along v, ``v' Hf v``, where image = predict(v)."""
        ...

    def hessian(self, x: Array, pred: Array, tau: Numeric = 0.0) -> Callable[[Array], Array]:
        """``v -> (H + tau B) v``, H the Hessian at x and B a majorant of it, for :mod:`jaxht.refit.newton`."""
        ...

    def hessian_diagonal(self, x: Array, pred: Array) -> Array:
        """The diagonal of the Hessian at x, like x."""
        ...

    def majorant(self) -> Callable[[Array], Array]:
        """``v -> B v``, B at least the Hessian at every x, as far as that is known."""
        ...

    def preconditioner(self) -> Numeric:
        """A positive diagonal, like x or a scalar, near that of the Hessian but for a factor."""
        ...

    def smoothness(self) -> Array:
        """L: an upper estimate of the largest eigenvalue of the Hessian."""
        ...

    def coordinate_smoothness(self) -> Array:
        """M_1: an upper estimate of the largest diagonal entry of the Hessian, the curvature along one coordinate."""
        ...

    def minimise(self, region: Any, x: Array, ridge: Array | None = None) -> Refit:
        """The minimiser of ``f(x) + 1/2 sum_i ridge_i x_i^2`` over a region, started from x; see :class:`Refit`."""
        ...

    # What stochastic solvers ask of f = (1/n) sum_i f_i. The gradient is linear in slopes and x together.

    def sampled(self, indices: Array, weights: Array) -> "Objective":
        """The objective ``sum_j weights_j f_{i_j}``, i = indices (b,), which may repeat, or be n for weights of 0."""
        raise _no_sum(self)

    def picked(self, pred: Array, indices: Array) -> Array:
        """Of the image of x under the whole, that under :meth:`sampled`; where it is x, the same."""
        return pred

    def slopes(self, x: Array, pred: Array) -> Array:
        """What :meth:`assembled` takes, a row for each summand."""
        raise _no_sum(self)

    def assembled(self, slopes: Array, x: Array) -> Array:
        """The gradient from slopes; at x = 0 without the part that all summands share, such as a ridge."""
        raise _no_sum(self)

    def sample_smoothness(self) -> Array:
        """An upper estimate of the smoothness of every f_i."""
        raise _no_sum(self)

    # What greedy solvers ask; a class that inherits from this one need not answer.

    def basis(self, region: Any) -> Any:
        """What :meth:`grow` goes on from, for a first region; None where it starts anew each time."""
        return None

    def grow(self, basis: Any, region: Any, x: Array) -> tuple[Refit, Any]:
        """As :meth:`minimise`, for supports of which each has at most one coordinate more than the one before."""
        return self.minimise(region, x), basis

    def insertion_gains(self, region: Any) -> Array | None:
        """How far the minimum on a region falls if one more coordinate joins it, like x; None without a formula."""
        return None

    def images(self, region: Any, x: Array) -> Array:
        """``predict`` of each single entry of x on a region, in the order of its indices: (k_max, ...)."""
        return lax.map(self.predict, region.entries(x), batch_size=BLOCK)


def _no_sum(objective: Objective) -> ValueError:
    return ValueError(f"objective must be a sum over samples, such as FiniteSum; got {type(objective).__name__}")


BLOCK = 16
