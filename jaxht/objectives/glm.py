"""Generalised linear models: one scalar loss each, from the table in :mod:`jaxht.objectives.losses`."""

import math

import jax.numpy as jnp
from chex import Array, Numeric
from jax import lax

from jaxht._pytree import pytree
from jaxht.constraints.support import Support
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.losses import (
    HingeLoss,
    HuberLoss,
    LogisticLoss,
    PoissonLoss,
    SmoothedHingeLoss,
    SquaredHingeLoss,
)
from jaxht.refit.newton import Refit


@pytree
class Logistic(LinearModel):
    """Logistic regression: ``l(u; y) = log(1 + exp(-s y u))``, y in {-1, +1}.

    Args:
        A, y, l2, mean, weights: as in :class:`jaxht.objectives.linear_model.LinearModel`; labels are -1 or +1. Without
            a ridge, data that a k-sparse classifier separates have no minimiser, and iterates grow without end.
        scale: s, traced; 2 is the scaling of Yuan, Li & Zhang 2018, §6.1.2.

    Source: Axiotis & Sviridenko 2020, §5; Yuan, Li & Zhang 2018, §6.1.2; Yuan et al. 2020, §6.
    """

    scale: Numeric = 1.0

    @property
    def loss(self) -> LogisticLoss:
        """The scalar loss."""
        return LogisticLoss(self.scale)


@pytree
class SquaredHinge(LinearModel):
    """L2-loss support vector machine: ``l(u; y) = max(0, 1 - y u)^2 / 2``, y in {-1, +1}.

    Args:
        A, y, l2, mean, weights: as in :class:`jaxht.objectives.linear_model.LinearModel`; labels are -1 or +1.

    Source: beyond the papers; Chapelle 2007.
    """

    @property
    def loss(self) -> SquaredHingeLoss:
        """The scalar loss."""
        return SquaredHingeLoss()


@pytree
class SmoothedHinge(LinearModel):
    """Support vector machine with a smoothed hinge: ``l(u; y)`` is 0 for m <= 0, ``m^2 / (2 gamma)`` for m <= gamma,
    and ``m - gamma/2`` beyond, where m = 1 - y u and y in {-1, +1}.

    Args:
        A, y, l2, mean, weights: as in :class:`jaxht.objectives.linear_model.LinearModel`; labels are -1 or +1.
        gamma: > 0, traced; 0.25 in the source's experiments.

    Source: Yuan et al. 2020, §6.
    """

    gamma: Numeric = 1.0

    @property
    def loss(self) -> SmoothedHingeLoss:
        """The scalar loss."""
        return SmoothedHingeLoss(self.gamma)


@pytree
class Hinge(LinearModel):
    """Support vector machine: ``l(u; y) = max(0, 1 - y u)``, y in {-1, +1}. ``gradient`` gives a subgradient.

    It has no smoothness, so solvers with a step size need it given; with a constant one they end within a neighbourhood
    of a minimum.

    Args:
        A, y, l2, mean, weights: as in :class:`jaxht.objectives.linear_model.LinearModel`; labels are -1 or +1.

    Source: Yuan et al. 2020, §5.2.2.
    """

    @property
    def loss(self) -> HingeLoss:
        """The scalar loss."""
        return HingeLoss()

    def curvature(self, x: Array, pred: Array, v: Array, image: Array) -> Array:
        """``sum_j l2_j v_j^2``: the loss is linear but at its kinks."""
        return jnp.vdot(v, self.l2 * v)

    def minimise(self, region: Support, x: Array, ridge: Array | None = None) -> Refit:
        """Minimiser on a support, by way of smoothed hinges of gamma = 1, 1/10, ..., each started from the one before.

        The smoothed hinge is below the hinge by gamma/2 at most, so the last gamma, the root of the dtype's epsilon,
        bounds the error of f(x): 2e-8 c n in float64, 4e-4 c n in float32.
        """
        last = math.sqrt(jnp.finfo(self.dtype).eps)
        falling = (10.0**-i for i in range(math.ceil(-math.log10(last))))
        gammas = jnp.asarray([*falling, last], self.dtype)

        def stage(i: Array, minimum: Refit) -> Refit:
            smoothed = SmoothedHinge(self.A, self.y, self.l2, gammas[i], mean=self.mean, weights=self.weights)
            return smoothed.minimise(region, minimum.x, ridge)

        start = Refit(x, self.predict(x), jnp.array(False))
        return lax.fori_loop(0, gammas.size, stage, start)


@pytree
class Huber(LinearModel):
    """Robust regression: ``l(u; y) = r^2/2`` for |r| <= delta, ``delta (|r| - delta/2)`` beyond, r = u - y.

    Args:
        A, y, l2, mean, weights: as in :class:`jaxht.objectives.linear_model.LinearModel`.
        delta: > 0, traced, in units of y: residuals beyond it count as outliers.

    Source: Huber 1964; beyond the papers.
    """

    delta: Numeric = 1.0

    @property
    def loss(self) -> HuberLoss:
        """The scalar loss."""
        return HuberLoss(self.delta)


@pytree
class Poisson(LinearModel):
    """Poisson regression with the log link: ``l(u; y) = exp(u) - y u``, y = 0, 1, 2, ...

    Its curvature ``exp(u)`` has no bound; automatic step sizes take ``max(1, max y)``, which holds wherever no
    predicted mean exceeds it. :class:`jaxht.NIHT`, whose step adapts, needs no bound.

    Args:
        A, y, l2, mean, weights: as in :class:`jaxht.objectives.linear_model.LinearModel`; y holds counts.

    Source: beyond the papers; McCullagh & Nelder 1989, ch. 6.
    """

    @property
    def loss(self) -> PoissonLoss:
        """The scalar loss."""
        return PoissonLoss()
