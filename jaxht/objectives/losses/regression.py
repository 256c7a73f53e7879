"""Losses of real targets and of counts."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy

from jaxht._checks import known_values
from jaxht._dataclass import pytree
from jaxht._typing import Array, Numeric
from jaxht.objectives.losses.likelihoods import gamma_deviance, gaussian_deviance
from jaxht.objectives.losses.loss import ScalarLoss, UnitCurvatureLoss, squared_distance

__all__ = ["GammaLoss", "HuberLoss", "PoissonLoss", "SquaredLoss"]


@pytree
class SquaredLoss(UnitCurvatureLoss):
    """``l(u; y) = |u - y|^2 / 2`` for real or complex targets y.

    Source: Shen & Li 2018, (3.1).

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.objectives.losses import SquaredLoss
        >>> SquaredLoss().value(jnp.array([3.0]), jnp.array([1.0])).tolist()
        [2.0]
    """

    family = "gaussian"
    is_coercive = True
    has_unit = True

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y)."""
        return self.squared_residuals(u, y) / 2

    def derivative(self, u: Array, y: Array) -> Array:
        """``u - y``."""
        return u - y

    def curvature(self, u: Array, y: Array) -> Array:
        """1."""
        return jnp.ones_like(u.real)

    def conjugate(self, a: Array, y: Array) -> Array:
        """``|a|^2 / 2 + Re(conj(a) y)``."""
        square = squared_distance(a, jnp.zeros_like(a))
        return square / 2 + jnp.real(a.conj() * y)

    def within(self, a: Array, y: Array) -> Array:
        """a itself."""
        return a

    def deviance(self, u: Array, y: Array, weights: Array) -> Array:
        """``N log(RSS / N)`` for N targets."""
        return gaussian_deviance(self.squared_residuals(u, y), weights)

    def squared_residuals(self, u: Array, y: Array) -> Array:
        """``|u - y|^2``."""
        return squared_distance(u, y)


@pytree
class HuberLoss(UnitCurvatureLoss):
    """``l(u; y) = r^2 / 2 if |r| <= delta, else delta (|r| - delta / 2)``, r = u - y.

    Args:
        delta: delta > 0, a scalar in units of y, traced: the largest residual that counts by its
            square.

    Source: Huber 1964, (3.4).

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.objectives.losses import HuberLoss
        >>> HuberLoss().value(jnp.array([1.0, 4.0]), jnp.zeros(2)).tolist()
        [0.5, 3.5]
    """

    has_unit = True
    is_coercive = True

    delta: Numeric = 1.0

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y)."""
        # The clipped residual in place of a branch: no square of a large one.
        clipped = self.derivative(u, y)
        return clipped * (u - y - clipped / 2)

    def derivative(self, u: Array, y: Array) -> Array:
        """r, clipped to [-delta, delta]."""
        return jnp.clip(u - y, -self.delta, self.delta)

    def curvature(self, u: Array, y: Array) -> Array:
        """1 where |r| <= delta, else 0."""
        is_small = jnp.abs(u - y) <= self.delta
        return is_small.astype(u.dtype)

    def conjugate(self, a: Array, y: Array) -> Array:
        """``a^2 / 2 + a y`` for |a| <= delta."""
        is_slope = jnp.abs(a) <= self.delta
        conjugate = a**2 / 2 + a * y
        return jnp.where(is_slope, conjugate, jnp.inf)

    def within(self, a: Array, y: Array) -> Array:
        """a, clipped to [-delta, delta]."""
        return jnp.clip(a, -self.delta, self.delta)


@pytree
class PoissonLoss(ScalarLoss):
    """``l(u; y) = exp(u) - y u``: minus the log-likelihood of a count y of mean exp(u), less ``log
    y!``.

    Source: Poisson regression with the canonical link (Nelder & Wedderburn 1972); not in the
    papers.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.objectives.losses import PoissonLoss
        >>> PoissonLoss().derivative(jnp.zeros(1), jnp.array([3.0])).tolist()
        [-2.0]
    """

    family = "poisson"
    is_bounded = False

    def smoothness(self, y: Array) -> Numeric:
        """``max(1, max y)``: it bounds l'' = exp(u) where no predicted mean exceeds it; there is no
        bound for all u."""
        return jnp.maximum(1, jnp.max(y))

    def check(self, y: Array) -> None:
        """Raise ValueError for negative counts."""
        counts = known_values(y)
        if counts is not None and np.any(counts < 0):
            raise ValueError(f"y must hold counts, at least 0; got {np.min(counts)}")

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y)."""
        return jnp.exp(u) - y * u

    def derivative(self, u: Array, y: Array) -> Array:
        """``exp(u) - y``."""
        return jnp.exp(u) - y

    def curvature(self, u: Array, y: Array) -> Array:
        """``exp(u)``."""
        return jnp.exp(u)

    def least(self, y: Array) -> Array:
        """``y - y log y``, at ``u = log y``."""
        return y - xlogy(y, y)

    def value_size(self, u: Array, y: Array) -> Array:
        """``exp(u) + |y u|``."""
        return jnp.exp(u) + jnp.abs(y * u)

    def conjugate_size(self, a: Array, y: Array) -> Array:
        """``|m log m| + m``."""
        mean = a + y
        return jnp.abs(xlogy(mean, mean)) + mean

    def conjugate(self, a: Array, y: Array) -> Array:
        """``m log m - m``, m = a + y >= 0 the mean at which the derivative of the loss is a."""
        mean = a + y
        is_mean = mean >= 0
        conjugate = xlogy(mean, mean) - mean
        return jnp.where(is_mean, conjugate, jnp.inf)

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """``log(a + y)``."""
        return jnp.log(a + y)

    def conjugate_curvature(self, a: Array, y: Array) -> Array:
        """``1 / (a + y)``."""
        return 1 / (a + y)

    def within(self, a: Array, y: Array) -> Array:
        """``a + y > 0``."""
        eps = float(jnp.finfo(a.dtype).eps)
        least_mean = eps * jnp.maximum(y, 1)
        return jnp.maximum(a, least_mean - y)


@pytree
class GammaLoss(ScalarLoss):
    """``l(u; y) = y exp(-u) + u``: minus the log-likelihood of a gamma variable y > 0 of mean
    exp(u), over its shape.

    It is that of an exponential variable where the shape is 1; terms of y and the shape alone are
    left out.

    Source: gamma regression with the log link (McCullagh & Nelder 1989, §8); not in the papers.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.objectives.losses import GammaLoss
        >>> GammaLoss().derivative(jnp.zeros(1), jnp.array([3.0])).tolist()
        [-2.0]
    """

    family = "gamma"
    is_coercive = True
    is_bounded = False

    def smoothness(self, y: Array) -> Numeric:
        """``max(1, max y)``: it bounds l'' = y exp(-u) at u = 0, and where no y / exp(u) exceeds
        it; not for all u."""
        return jnp.maximum(1, jnp.max(y))

    def damping(self, u: Array, y: Array) -> Numeric:
        """``max y exp(-u)``: near 1 at a minimiser, in all units of y."""
        return jnp.max(self.curvature(u, y))

    def check(self, y: Array) -> None:
        """Raise ValueError for targets that are not positive."""
        targets = known_values(y)
        if targets is not None and np.any(targets <= 0):
            raise ValueError(f"y must be above 0; got {np.min(targets)}")

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y)."""
        return y * jnp.exp(-u) + u

    def derivative(self, u: Array, y: Array) -> Array:
        """``1 - y exp(-u)``."""
        return 1 - y * jnp.exp(-u)

    def curvature(self, u: Array, y: Array) -> Array:
        """``y exp(-u)``."""
        return y * jnp.exp(-u)

    def least(self, y: Array) -> Array:
        """``1 + log y``, at ``u = log y``."""
        return 1 + jnp.log(y)

    def value_size(self, u: Array, y: Array) -> Array:
        """``y exp(-u) + |u|``."""
        return y * jnp.exp(-u) + jnp.abs(u)

    def conjugate_size(self, a: Array, y: Array) -> Array:
        """``|m log(m / y)| + m``."""
        share = 1 - a
        return jnp.abs(xlogy(share, share / y)) + share

    def conjugate(self, a: Array, y: Array) -> Array:
        """``m log(m / y) - m``, m = 1 - a >= 0 the share y / exp(u) at which the derivative of the
        loss is a."""
        share = 1 - a
        is_share = share >= 0
        conjugate = xlogy(share, share / y) - share
        return jnp.where(is_share, conjugate, jnp.inf)

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """``log(y / (1 - a))``."""
        return jnp.log(y / (1 - a))

    def conjugate_curvature(self, a: Array, y: Array) -> Array:
        """``1 / (1 - a)``."""
        return 1 / (1 - a)

    def within(self, a: Array, y: Array) -> Array:
        """``a < 1``."""
        eps = float(jnp.finfo(a.dtype).eps)
        return jnp.minimum(a, 1 - eps)

    def deviance(self, u: Array, y: Array, weights: Array) -> Array:
        """``-2 log L`` at the shape that fits best, less terms of y alone."""
        return gamma_deviance(jnp.log(y) - u, weights)

    def squared_residuals(self, u: Array, y: Array) -> Array:
        """``(y / exp(u) - 1)^2``."""
        return jnp.expm1(jnp.log(y) - u) ** 2
