"""Losses of several outputs."""

import jax
import jax.numpy as jnp

from jaxht._dataclass import pytree, static
from jaxht._typing import Array, Numeric
from jaxht.objectives.losses.likelihoods import gaussian_deviance
from jaxht.objectives.losses.loss import Loss, check_class_ids, squared_distance

__all__ = ["SoftmaxLoss", "SquaredNormLoss"]


@pytree
class SoftmaxLoss(Loss):
    """``l(u; y) = log sum_c exp(u_c) - u_y`` for class ids y in 0 ... c - 1 and u in R^c.

    Derivative ``p - e_y``, Hessian ``diag(p) - p p^T <= 1/2``, p the softmax of u.

    Args:
        num_classes: c, an int of at least 2, static.

    Source: Zhou, Yuan & Feng 2018, §5.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.objectives.losses import SoftmaxLoss
        >>> SoftmaxLoss(2).derivative(jnp.zeros((1, 2)), jnp.array([0])).tolist()
        [[-0.5, 0.5]]
    """

    family = "multinomial"
    is_positive = True

    num_classes: int = static()

    def smoothness(self, y: Array) -> Numeric:
        """1/2."""
        return 0.5

    def check(self, y: Array) -> None:
        """Raise ValueError for class ids other than 0 ... c - 1, and for c below 2."""
        check_class_ids(y, self.num_classes)

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y), without overflow; NaN for a class id that is none."""
        ids = y.astype(jnp.int32)
        own = jnp.take_along_axis(u, ids[:, None], axis=1, mode="clip")[:, 0]
        is_class = (ids.astype(y.dtype) == y) & (ids >= 0) & (ids < u.shape[1])
        return jax.nn.logsumexp(u, axis=1) - jnp.where(is_class, own, jnp.nan)

    def derivative(self, u: Array, y: Array) -> Array:
        """``softmax(u) - e_y``."""
        own = jax.nn.one_hot(y.astype(jnp.int32), u.shape[1], dtype=u.dtype)
        return jax.nn.softmax(u, axis=1) - own

    def hessian_product(self, u: Array, y: Array, v: Array) -> Array:
        """``p * v - p (p.v)``, row by row."""
        p = jax.nn.softmax(u, axis=1)
        weighted = p * v
        return weighted - p * jnp.sum(weighted, axis=1, keepdims=True)


@pytree
class SquaredNormLoss(Loss):
    """``l(u; y) = ||u - y||^2 / 2`` for u and y in R^c or C^c.

    Source: Zhou, Yuan & Feng 2018, §5.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.objectives.losses import SquaredNormLoss
        >>> SquaredNormLoss().value(jnp.ones((1, 2)), jnp.zeros((1, 2))).tolist()
        [1.0]
    """

    family = "gaussian"
    is_coercive = True
    has_unit = True

    def smoothness(self, y: Array) -> Numeric:
        """1."""
        return 1.0

    def check(self, y: Array) -> None:
        """Accept any real target."""

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y)."""
        return jnp.sum(self.squared_residuals(u, y), axis=1) / 2

    def derivative(self, u: Array, y: Array) -> Array:
        """``u - y``."""
        return u - y

    def hessian_product(self, u: Array, y: Array, v: Array) -> Array:
        """v."""
        return v

    def num_observations(self, y: Array, weights: Array) -> Array:
        """The number of samples, or that of the targets that are there over c."""
        return jnp.sum(weights) / (weights.shape[1] if weights.ndim == 2 else 1)

    def deviance(self, u: Array, y: Array, weights: Array) -> Array:
        """``N log(RSS / N)`` for N targets."""
        return gaussian_deviance(self.squared_residuals(u, y), weights)

    def squared_residuals(self, u: Array, y: Array) -> Array:
        """``|u - y|^2``."""
        return squared_distance(u, y)
