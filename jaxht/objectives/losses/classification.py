"""Losses of labels -1 and +1."""

import jax
import jax.numpy as jnp
from jax.scipy.special import xlog1py, xlogy

from jaxht._dataclass import pytree
from jaxht._typing import Array, Numeric
from jaxht.objectives.losses.loss import MarginLoss, UnitCurvatureLoss

__all__ = [
    "HingeLoss",
    "LogisticLoss",
    "OneSidedLoss",
    "SmoothedHingeLoss",
    "SquaredHingeLoss",
]


@pytree
class LogisticLoss(MarginLoss):
    """``l(u; y) = log(1 + exp(-s y u))`` for labels y in {-1, +1}.

    Derivative ``-s y sigma(-s y u)``, curvature ``s^2 sigma(s u) sigma(-s u) <= s^2 / 4``, sigma
    the logistic function.

    Args:
        scale: s > 0, a scalar, traced: 1 as in Yuan et al. 2020 and Axiotis & Sviridenko 2020, 2 as
            in Yuan, Li & Zhang 2018, §6.1.2.

    Source: Yuan, Li & Zhang 2018, §6.1.2.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.objectives.losses import LogisticLoss
        >>> LogisticLoss().derivative(jnp.zeros(2), jnp.array([-1.0, 1.0])).tolist()
        [0.5, -0.5]
    """

    family = "binomial"
    is_positive = True

    scale: Numeric = 1.0

    def smoothness(self, y: Array) -> Numeric:
        """``s^2 / 4``, reached at u = 0."""
        return self.scale**2 / 4

    def value(self, u: Array, y: Array) -> Array:
        """Without overflow for any margin."""
        return jnp.logaddexp(0, -self.scale * y * u)

    def derivative(self, u: Array, y: Array) -> Array:
        """dl/du."""
        factor = -self.scale * y
        return factor * jax.nn.sigmoid(-self.scale * y * u)

    def curvature(self, u: Array, y: Array) -> Array:
        """d^2 l/du^2, the same for both labels."""
        square = self.scale**2
        share = jax.nn.sigmoid(self.scale * u)
        return square * share * jax.nn.sigmoid(-self.scale * u)

    def conjugate(self, a: Array, y: Array) -> Array:
        """``b log b + (1 - b) log(1 - b)``, ``b = -a y / s`` in [0, 1]."""
        b = -a * y / self.scale
        is_share = (b >= 0) & (b <= 1)
        conjugate = xlogy(b, b) + xlog1py(1 - b, -b)
        return jnp.where(is_share, conjugate, jnp.inf)

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """``-(y / s) log(b / (1 - b))``."""
        b = -a * y / self.scale
        factor = -y / self.scale
        return factor * (jnp.log(b) - jnp.log1p(-b))

    def conjugate_curvature(self, a: Array, y: Array) -> Array:
        """``1 / (s^2 b (1 - b))``."""
        b = -a * y / self.scale
        return 1 / (self.scale**2 * b * (1 - b))

    def within(self, a: Array, y: Array) -> Array:
        """b, clipped to [eps, 1 - eps]."""
        eps = float(jnp.finfo(a.dtype).eps)
        factor = -self.scale * y
        b = -a * y / self.scale
        return factor * jnp.clip(b, eps, 1 - eps)


class HingedLoss(MarginLoss):
    """Base of the hinge (gamma = 0) and its smoothed form, with their conjugates."""

    @property
    def gamma(self) -> Numeric:
        """The width of the smoothed kink; 0 for the hinge."""
        return 0.0

    def conjugate(self, a: Array, y: Array) -> Array:
        """``y a + gamma a^2 / 2`` for y a in [-1, 0]."""
        inside = (y * a >= -1) & (y * a <= 0)
        conjugate = y * a + self.gamma * a**2 / 2
        return jnp.where(inside, conjugate, jnp.inf)

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """``y + gamma a``."""
        return y + self.gamma * a

    def conjugate_curvature(self, a: Array, y: Array) -> Array:
        """gamma."""
        return jnp.full_like(a, self.gamma)

    def within(self, a: Array, y: Array) -> Array:
        """y a, clipped to [-1, 0]."""
        return y * jnp.clip(y * a, -1, 0)


@pytree
class SmoothedHingeLoss(HingedLoss):
    """``l(u; y) = 0 if m <= 0, m^2 / (2 gamma) if m <= gamma, else m - gamma / 2``, where m = 1 - y
    u.

    Args:
        gamma: gamma > 0, a scalar in units of the margin, traced: the hinge is the limit gamma = 0.

    Source: Yuan et al. 2020, §6 (gamma = 0.25 there).

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.objectives.losses import SmoothedHingeLoss
        >>> SmoothedHingeLoss().value(jnp.array([0.5, -1.0]), jnp.ones(2)).tolist()
        [0.125, 1.5]
    """

    gamma: Numeric = 1.0

    def smoothness(self, y: Array) -> Numeric:
        """``1 / gamma``."""
        return 1 / self.gamma

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y)."""
        shortfall = 1 - y * u
        clipped = jnp.clip(shortfall, 0, self.gamma)
        return clipped / self.gamma * (shortfall - clipped / 2)

    def derivative(self, u: Array, y: Array) -> Array:
        """``-y m / gamma``, with m clipped to [0, gamma]."""
        shortfall = 1 - y * u
        clipped = jnp.clip(shortfall, 0, self.gamma)
        return -y * clipped / self.gamma

    def curvature(self, u: Array, y: Array) -> Array:
        """``1 / gamma`` for m in (0, gamma), else 0."""
        shortfall = 1 - y * u
        is_in_kink = (shortfall > 0) & (shortfall < self.gamma)
        return is_in_kink / self.gamma


@pytree
class SquaredHingeLoss(MarginLoss, UnitCurvatureLoss):
    """``l(u; y) = max(0, 1 - y u)^2 / 2`` for labels y in {-1, +1}.

    Source: the loss of l2 support vector machines (Chang, Hsieh & Lin 2008); not in the papers.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.objectives.losses import SquaredHingeLoss
        >>> SquaredHingeLoss().value(jnp.array([2.0, -1.0]), jnp.ones(2)).tolist()
        [0.0, 2.0]
    """

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y)."""
        shortfall = jnp.maximum(0, 1 - y * u)
        return shortfall**2 / 2

    def derivative(self, u: Array, y: Array) -> Array:
        """``-y max(0, 1 - y u)``."""
        return -y * jnp.maximum(0, 1 - y * u)

    def curvature(self, u: Array, y: Array) -> Array:
        """1 where the margin falls short of 1, else 0."""
        return (y * u < 1).astype(u.dtype)

    def conjugate(self, a: Array, y: Array) -> Array:
        """``y a + a^2 / 2`` for y a <= 0."""
        is_slope = y * a <= 0
        conjugate = y * a + a**2 / 2
        return jnp.where(is_slope, conjugate, jnp.inf)

    def within(self, a: Array, y: Array) -> Array:
        """y a, at most 0."""
        return y * jnp.minimum(y * a, 0)


@pytree
class HingeLoss(HingedLoss):
    """``l(u; y) = max(0, 1 - y u)`` for labels y in {-1, +1}, the loss of support vector machines.

    Source: Yuan et al. 2020, §5.2.2.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.objectives.losses import HingeLoss
        >>> HingeLoss().value(jnp.array([2.0, -1.0]), jnp.ones(2)).tolist()
        [0.0, 2.0]
    """

    is_smooth = False

    def smoothness(self, y: Array) -> Numeric:
        """The hinge has no smoothness.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "the hinge loss has no smoothness to take a step size from: give step_size"
        )

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y)."""
        return jnp.maximum(0, 1 - y * u)

    def derivative(self, u: Array, y: Array) -> Array:
        """A subgradient: -y where the margin falls short of 1, else 0."""
        return jnp.where(y * u < 1, -y, 0)

    def curvature(self, u: Array, y: Array) -> Array:
        """0; the kink has no curvature."""
        return jnp.zeros_like(u)


@pytree
class OneSidedLoss(MarginLoss):
    """``l(u; y) = max(0, -y u)`` for labels y in {-1, +1}: how far u is on the wrong side of 0.

    Source: Jacques, Laska, Boufounos & Baraniuk 2013 (BIHT).

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.objectives.losses import OneSidedLoss
        >>> OneSidedLoss().value(jnp.array([2.0, -1.0]), jnp.ones(2)).tolist()
        [0.0, 1.0]
    """

    is_smooth = False

    def smoothness(self, y: Array) -> Numeric:
        """The one-sided loss has no smoothness.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "the one-sided loss has no smoothness, and 0 minimises it on every support: use "
            "IHT(step_size=1)"
        )

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y)."""
        return jnp.maximum(0, -y * u)

    def derivative(self, u: Array, y: Array) -> Array:
        """``(sign(u) - y) / 2``, with sign(0) = 0."""
        return (jnp.sign(u) - y) / 2

    def curvature(self, u: Array, y: Array) -> Array:
        """0; the kink has no curvature."""
        return jnp.zeros_like(u)

    def conjugate(self, a: Array, y: Array) -> Array:
        """0 for y a in [-1, 0]."""
        is_slope = (y * a >= -1) & (y * a <= 0)
        return jnp.where(is_slope, 0.0, jnp.inf)

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """0."""
        return jnp.zeros_like(a)

    def conjugate_curvature(self, a: Array, y: Array) -> Array:
        """0."""
        return jnp.zeros_like(a)

    def within(self, a: Array, y: Array) -> Array:
        """y a, clipped to [-1, 0]."""
        return y * jnp.clip(y * a, -1, 0)
