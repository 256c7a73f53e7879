"""The protocol of a loss, and base classes of losses of one output."""

from typing import ClassVar, Protocol, Self, runtime_checkable

import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_count, known_values
from jaxht._typing import Array, Numeric
from jaxht.objectives.losses.likelihoods import weighted_sum


@runtime_checkable
class Loss(Protocol):
    """A convex function of predictions u and targets y, applied to n samples: u is (n,) or, for c
    outputs, (n, c).

    Where it couples the samples, :meth:`derivative` and :meth:`hessian_product` are those of
    ``sum_i s_i l_i``, sample by sample divided by s_i.
    """

    #: Whether the loss of a sample is a function of its own prediction alone.
    is_separable: ClassVar[bool] = True
    #: Whether the derivative has a derivative, and ``smoothness`` a value.
    is_smooth: ClassVar[bool] = True
    #: Whether it grows without end either way: f then has a minimiser on every support.
    is_coercive: ClassVar[bool] = False
    #: Whether targets have a unit, and the loss squares it.
    has_unit: ClassVar[bool] = False
    #: Whether ``smoothness`` bounds the curvature at every u; else at ordinary predictions.
    is_bounded: ClassVar[bool] = True
    #: Whether it has a conjugate, as a :class:`ScalarLoss` has.
    has_conjugate: ClassVar[bool] = False
    #: Whether l > 0 everywhere, so that an l of 0 is one whose infimum has been reached by rounding.
    is_positive: ClassVar[bool] = False
    #: The distribution of which it is minus the log likelihood, such as "gaussian"; or None.
    family: ClassVar[str | None] = None

    def smoothness(self, y: Array) -> Numeric:
        """An upper bound of the curvature l'' over all u."""
        ...

    def damping(self, u: Array, y: Array) -> Numeric:
        """The curvature in units of which Newton steps at u are damped: where l'' has no bound, one
        of its size there."""
        return self.smoothness(y)

    def check(self, y: Array) -> None:
        """Raise ValueError for targets out of the domain of the loss, as far as their values are
        known."""
        ...

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y), (n,)."""
        ...

    def derivative(self, u: Array, y: Array) -> Array:
        """dl/du, shaped like u; at a kink, one subgradient."""
        ...

    def hessian_product(self, u: Array, y: Array, v: Array) -> Array:
        """``(d^2 l/du^2) v``, shaped like u."""
        ...

    def fix(self, u: Array, y: Array) -> Self:
        """This loss, with what products of its Hessian at u share computed once."""
        return self

    def num_observations(self, y: Array, weights: Array) -> Array:
        """The sample size n of a likelihood, a scalar."""
        return jnp.sum(weights)

    def least(self, y: Array) -> Array | None:
        """``min_u l(u; y)``, where the deviance compares with it, else None."""
        return None

    def deviance(self, u: Array, y: Array, weights: Array) -> Array:
        """``-2 log L`` at the most likely dispersion, up to a number that does not depend on u."""
        return 2 * weighted_sum(weights, self.value(u, y))

    def squared_residuals(self, u: Array, y: Array) -> Array | None:
        """Squared residuals of mean phi, the dispersion, shaped like u; None where phi is 1."""
        return None


class ScalarLoss(Loss):
    """Base of the losses of one output, which also have a conjugate ``l*(a; y) = sup_u (a u - l(u;
    y))``."""

    has_conjugate: ClassVar[bool] = True

    def check(self, y: Array) -> None:
        """Accept any real target."""

    def curvature(self, u: Array, y: Array) -> Array:
        """d^2 l/du^2, (n,)."""
        raise NotImplementedError

    def conjugate(self, a: Array, y: Array) -> Array:
        """l*(a; y), (n,); infinite outside of its domain."""
        raise NotImplementedError

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """dl*/da, (n,): the u at which the derivative of the loss is a, for a in the domain
        (:meth:`within`)."""
        raise NotImplementedError

    def conjugate_curvature(self, a: Array, y: Array) -> Array:
        """d^2 l*/da^2, (n,), at least 1 / max l''; 0 for the hinge."""
        raise NotImplementedError

    def within(self, a: Array, y: Array) -> Array:
        """The nearest a in the domain of l*, or just inside where the derivative of l* is infinite
        at its end."""
        raise NotImplementedError

    def value_size(self, u: Array, y: Array) -> Array:
        """The size of the terms of which :meth:`value` is made, (n,): its rounding error is some
        ulps of that."""
        return jnp.abs(self.value(u, y))

    def conjugate_size(self, a: Array, y: Array) -> Array:
        """A number that with |l*| is at least a third of the size of the terms of which l* is made,
        (n,)."""
        return jnp.abs(a * self.conjugate_derivative(a, y))

    def hessian_product(self, u: Array, y: Array, v: Array) -> Array:
        """``l'' v``."""
        return self.curvature(u, y) * v


class UnitCurvatureLoss(ScalarLoss):
    """Base of the losses that are squares with curvature 1 where they are not linear."""

    def smoothness(self, y: Array) -> Numeric:
        """1."""
        return 1.0

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """``a + y``."""
        return a + y

    def conjugate_curvature(self, a: Array, y: Array) -> Array:
        """1."""
        return jnp.ones_like(a.real)


class MarginLoss(ScalarLoss):
    """Base of the losses of the margin y u, for labels -1 and +1."""

    def value_size(self, u: Array, y: Array) -> Array:
        """The size of the value and of what the rounding of the margin adds."""
        return jnp.abs(self.value(u, y)) + jnp.abs(u * self.derivative(u, y))

    def check(self, y: Array) -> None:
        """Raise ValueError for labels other than -1 and +1."""
        labels = known_values(y)
        if labels is not None and not np.all(np.abs(labels) == 1):
            raise ValueError(f"y must hold labels -1 and +1; got {np.unique(labels)[:5]}")


def squared_distance(u: Array, y: Array) -> Array:
    """``|u - y|^2``, entry by entry, real."""
    residual = u - y
    if jnp.iscomplexobj(residual):
        return residual.real**2 + residual.imag**2
    return residual**2


def check_class_ids(y: Array, num_classes: int) -> None:
    """Raise ValueError for targets other than 0 ... num_classes - 1, as far as they are known."""
    check_count("num_classes", num_classes, least=2)
    ids = known_values(y)
    if ids is not None and not np.all(np.isin(ids, np.arange(num_classes))):
        raise ValueError(f"y must hold class ids 0 ... {num_classes - 1}; got {np.unique(ids)[:5]}")
