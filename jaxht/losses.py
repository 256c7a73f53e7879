"""Scalar losses l(u; y) of a linear prediction u = a.x for a target y, with the derivatives that solvers use.

loss                      l(u; y)                                         l'' at most    labels
SquaredLoss               (u - y)^2 / 2                                   1              real
HuberLoss(delta)          that for |u - y| <= delta, linear beyond        1              real
LogisticLoss(scale)       log(1 + exp(-s y u))                            s^2 / 4        -1, +1
SquaredHingeLoss          max(0, 1 - y u)^2 / 2                           1              -1, +1
SmoothedHingeLoss(gamma)  0, (1 - y u)^2 / (2 gamma), 1 - y u - gamma/2   1 / gamma      -1, +1
HingeLoss                 max(0, 1 - y u)                                 not smooth     -1, +1
PoissonLoss               exp(u) - y u                                    not bounded    counts
SoftmaxLoss               logsumexp(u) - u_y, u in R^c                    1 / 2          0 ... c - 1
SquaredNormLoss           ||u - y||^2 / 2, u in R^c                       1              R^c
"""

from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, Numeric

from jaxht.tree import pytree, static


class Loss(Protocol):
    """A convex function of a prediction, applied to n of them: u (n,) or, for c outputs, (n, c), and targets y."""

    def smoothness(self, y: Array) -> Numeric:
        """An upper bound of the curvature l'' over all u."""
        ...

    def check(self, y: Array) -> None:
        """Raise ValueError for targets that cannot be, as far as their values are known."""
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


class ScalarLoss:
    """What losses of one output share."""

    def check(self, y: Array) -> None:
        """Any real target will do."""

    def curvature(self, u: Array, y: Array) -> Array:
        """d^2 l/du^2, (n,)."""
        raise NotImplementedError

    def hessian_product(self, u: Array, y: Array, v: Array) -> Array:
        """``l'' v``."""
        return self.curvature(u, y) * v


class MarginLoss(ScalarLoss):
    """What losses of the margin y u share: labels are -1 and +1."""

    def check(self, y: Array) -> None:
        """Raise ValueError for labels other than -1 and +1."""
        if not isinstance(y, jax.core.Tracer) and not np.all(np.abs(np.asarray(y)) == 1):
            raise ValueError(f"y must hold labels -1 and +1; got {np.unique(y)[:5]}")


@pytree
class SquaredLoss(ScalarLoss):
    """``l(u; y) = (u - y)^2 / 2``."""

    def smoothness(self, y: Array) -> Numeric:
        """1."""
        return 1.0

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y)."""
        return (u - y) ** 2 / 2

    def derivative(self, u: Array, y: Array) -> Array:
        """``u - y``."""
        return u - y

    def curvature(self, u: Array, y: Array) -> Array:
        """1."""
        return jnp.ones_like(u)


@pytree
class HuberLoss(ScalarLoss):
    """``l(u; y) = r^2 / 2 if |r| <= delta, else delta (|r| - delta / 2)``, r = u - y. Source: Huber 1964, (3.4)."""

    delta: Numeric = 1.0

    def smoothness(self, y: Array) -> Numeric:
        """1."""
        return 1.0

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y)."""
        # The clipped residual in place of a branch: no square of a large one.
        clipped = self.derivative(u, y)
        return clipped * (u - y - clipped / 2)

    def derivative(self, u: Array, y: Array) -> Array:
        """r, clipped to [-delta, delta]."""
        return jnp.clip(u - y, -self.delta, self.delta)

    def curvature(self, u: Array, y: Array) -> Array:
        """1 inside, 0 outside."""
        return (jnp.abs(u - y) <= self.delta).astype(u.dtype)


@pytree
class LogisticLoss(MarginLoss):
    r"""``l(u; y) = log(1 + exp(-s y u))`` for labels y in {-1, +1}.

    Args:
        scale: s > 0: 1 as in Yuan et al. 2020 and Axiotis & Sviridenko 2020, 2 as in Yuan, Li & Zhang 2018, §6.1.2.

    Derivative ``-s y sigma(-s y u)``, curvature ``s^2 sigma(s u) sigma(-s u) <= s^2 / 4``, sigma the logistic function.
    """

    scale: Numeric = 1.0

    def smoothness(self, y: Array) -> Numeric:
        """``s^2 / 4``, reached at u = 0."""
        return self.scale**2 / 4

    def value(self, u: Array, y: Array) -> Array:
        """Without overflow for any margin."""
        return jnp.logaddexp(0, -self.scale * y * u)

    def derivative(self, u: Array, y: Array) -> Array:
        """dl/du."""
        return -self.scale * y * jax.nn.sigmoid(-self.scale * y * u)

    def curvature(self, u: Array, y: Array) -> Array:
        """d^2 l/du^2, the same for both labels."""
        return self.scale**2 * jax.nn.sigmoid(self.scale * u) * jax.nn.sigmoid(-self.scale * u)


@pytree
class SmoothedHingeLoss(MarginLoss):
    """``l(u; y) = 0 if m <= 0, m^2 / (2 gamma) if m <= gamma, else m - gamma / 2``, where m = 1 - y u.

    Source: Yuan et al. 2020, §6 (gamma = 0.25 there).
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
        return -y * jnp.clip(1 - y * u, 0, self.gamma) / self.gamma

    def curvature(self, u: Array, y: Array) -> Array:
        """``1 / gamma`` for m in (0, gamma), else 0."""
        shortfall = 1 - y * u
        return ((shortfall > 0) & (shortfall < self.gamma)) / self.gamma


@pytree
class SquaredHingeLoss(MarginLoss):
    """``l(u; y) = max(0, 1 - y u)^2 / 2``."""

    def smoothness(self, y: Array) -> Numeric:
        """1."""
        return 1.0

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y)."""
        return jnp.maximum(0, 1 - y * u) ** 2 / 2

    def derivative(self, u: Array, y: Array) -> Array:
        """``-y max(0, 1 - y u)``."""
        return -y * jnp.maximum(0, 1 - y * u)

    def curvature(self, u: Array, y: Array) -> Array:
        """1 where the margin falls short of 1, else 0."""
        return (y * u < 1).astype(u.dtype)


@pytree
class HingeLoss(MarginLoss):
    """``l(u; y) = max(0, 1 - y u)``, the loss of support vector machines. Source: Yuan et al. 2020, §5.2.2."""

    def smoothness(self, y: Array) -> Numeric:
        """There is none."""
        raise ValueError("the hinge loss has no smoothness to take a step size from: give step_size")

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y)."""
        return jnp.maximum(0, 1 - y * u)

    def derivative(self, u: Array, y: Array) -> Array:
        """A subgradient: -y where the margin falls short of 1, else 0."""
        return jnp.where(y * u < 1, -y, 0)

    def curvature(self, u: Array, y: Array) -> Array:
        """0 but at the kink."""
        return jnp.zeros_like(u)


@pytree
class PoissonLoss(ScalarLoss):
    """``l(u; y) = exp(u) - y u``: minus the log-likelihood of a count y of mean exp(u), less ``log y!``."""

    def smoothness(self, y: Array) -> Numeric:
        """``max(1, max y)``, which bounds l'' = exp(u) wherever no predicted mean exceeds it; beyond, nothing does."""
        return jnp.maximum(1, jnp.max(y))

    def check(self, y: Array) -> None:
        """Raise ValueError for negative counts."""
        if not isinstance(y, jax.core.Tracer) and np.any(np.asarray(y) < 0):
            raise ValueError(f"y must hold counts, at least 0; got {np.min(np.asarray(y))}")

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y)."""
        return jnp.exp(u) - y * u

    def derivative(self, u: Array, y: Array) -> Array:
        """``exp(u) - y``."""
        return jnp.exp(u) - y

    def curvature(self, u: Array, y: Array) -> Array:
        """``exp(u)``."""
        return jnp.exp(u)


@pytree
class SoftmaxLoss:
    """``l(u; y) = log sum_c exp(u_c) - u_y`` for class ids y in 0 ... c - 1 and u in R^c.

    Derivative ``p - e_y``, Hessian ``diag(p) - p p^T <= 1/2``, p the softmax of u. Source: Zhou, Yuan & Feng 2018, §5.
    """

    num_classes: int = static()

    def smoothness(self, y: Array) -> Numeric:
        """1/2."""
        return 0.5

    def check(self, y: Array) -> None:
        """Raise ValueError for class ids other than 0 ... c - 1."""
        if not isinstance(y, jax.core.Tracer) and not np.all(np.isin(np.asarray(y), np.arange(self.num_classes))):
            raise ValueError(f"y must hold class ids 0 ... {self.num_classes - 1}; got {np.unique(y)[:5]}")

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y), without overflow; NaN for a class id beyond c."""
        own = jnp.take_along_axis(u, y.astype(jnp.int32)[:, None], axis=1, mode="fill", fill_value=jnp.nan)
        return jax.nn.logsumexp(u, axis=1) - own[:, 0]

    def derivative(self, u: Array, y: Array) -> Array:
        """``softmax(u) - e_y``."""
        return jax.nn.softmax(u, axis=1) - jax.nn.one_hot(y.astype(jnp.int32), u.shape[1], dtype=u.dtype)

    def hessian_product(self, u: Array, y: Array, v: Array) -> Array:
        """``p * v - p (p.v)``, row by row."""
        weighted = jax.nn.softmax(u, axis=1) * v
        return weighted - jax.nn.softmax(u, axis=1) * jnp.sum(weighted, axis=1, keepdims=True)


@pytree
class SquaredNormLoss:
    """``l(u; y) = ||u - y||^2 / 2`` for u and y in R^c."""

    def smoothness(self, y: Array) -> Numeric:
        """1."""
        return 1.0

    def check(self, y: Array) -> None:
        """Any real target will do."""

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y)."""
        return jnp.sum((u - y) ** 2, axis=1) / 2

    def derivative(self, u: Array, y: Array) -> Array:
        """``u - y``."""
        return u - y

    def hessian_product(self, u: Array, y: Array, v: Array) -> Array:
        """v."""
        return v
