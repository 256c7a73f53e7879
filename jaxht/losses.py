"""Scalar losses l(u; y) of a linear prediction u = a.x for a target y, with the derivatives that solvers use."""

from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, Numeric

from jaxht.tree import pytree


class Loss(Protocol):
    """A smooth convex function of u, applied to arrays of predictions and targets of one shape."""

    @property
    def smoothness(self) -> Numeric:
        """An upper bound of the curvature l'' over all u and y."""
        ...

    def check(self, y: Array) -> None:
        """Raise ValueError for targets that cannot be, as far as their values are known."""
        ...

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y)."""
        ...

    def derivative(self, u: Array, y: Array) -> Array:
        """dl/du."""
        ...

    def curvature(self, u: Array, y: Array) -> Array:
        """d^2 l/du^2."""
        ...


@pytree
class LogisticLoss:
    r"""``l(u; y) = log(1 + exp(-s y u))`` for labels y in {-1, +1}.

    Args:
        scale: s > 0: 1 as in Yuan et al. 2020 and Axiotis & Sviridenko 2020, 2 as in Yuan, Li & Zhang 2018, §6.1.2.

    Derivative ``-s y sigma(-s y u)``, curvature ``s^2 sigma(s u) sigma(-s u) <= s^2 / 4``, sigma the logistic function.
    """

    scale: Numeric = 1.0

    @property
    def smoothness(self) -> Numeric:
        """``s^2 / 4``, reached at u = 0."""
        return self.scale**2 / 4

    def check(self, y: Array) -> None:
        """Raise ValueError for labels other than -1 and +1."""
        if not isinstance(y, jax.core.Tracer) and not np.all(np.abs(np.asarray(y)) == 1):
            labels = np.unique(np.asarray(y))
            raise ValueError(f"y must hold labels -1 and +1; got {labels[:5]}{' ...' if len(labels) > 5 else ''}")

    def value(self, u: Array, y: Array) -> Array:
        """Without overflow for any margin."""
        return jnp.logaddexp(0, -self.scale * y * u)

    def derivative(self, u: Array, y: Array) -> Array:
        """dl/du."""
        return -self.scale * y * jax.nn.sigmoid(-self.scale * y * u)

    def curvature(self, u: Array, y: Array) -> Array:
        """d^2 l/du^2, the same for both labels."""
        return self.scale**2 * jax.nn.sigmoid(self.scale * u) * jax.nn.sigmoid(-self.scale * u)
