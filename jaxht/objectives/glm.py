"""Linear models of one output, named by their loss."""

from jaxht._dataclass import pytree
from jaxht._typing import Array, Numeric
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.losses import (
    GammaLoss,
    HingeLoss,
    HuberLoss,
    LogisticLoss,
    OneSidedLoss,
    PoissonLoss,
    SmoothedHingeLoss,
    SquaredHingeLoss,
)

__all__ = [
    "Gamma",
    "Hinge",
    "Huber",
    "Logistic",
    "OneBit",
    "Poisson",
    "SmoothedHinge",
    "SquaredHinge",
]


@pytree
class Logistic(LinearModel):
    """Logistic regression: the loss is ``log(1 + exp(-s y u))``, u = a.x, for labels -1 and +1.

    Without a ridge, data that a k-sparse classifier separates have no minimiser, and iterates grow
    without end.

    Args:
        A, y, l2, mean, weights, offset: as in :class:`jaxht.LeastSquares`; y holds labels.
        scale: s > 0, a scalar, traced: 1 as in Yuan et al. 2020 and Axiotis & Sviridenko 2020, 2 as
            in Yuan, Li & Zhang 2018, §6.1.2.

    Raises:
        ValueError: from :meth:`prepare`, as of :class:`jaxht.LeastSquares`.

    Cost: as of :class:`jaxht.LeastSquares`.

    Source: Yuan, Li & Zhang 2018, §6.1.2.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.Logistic(jnp.eye(2), jnp.array([1.0, -1.0]), 0.1)
        >>> f.gradient(jnp.zeros(2), jnp.zeros(2)).tolist()
        [-0.25, 0.25]
    """

    scale: Numeric = 1.0

    @property
    def loss(self) -> LogisticLoss:
        """The loss of one sample."""
        return LogisticLoss(self.scale)


@pytree
class SquaredHinge(LinearModel):
    """An l2 support vector machine: the loss is ``max(0, 1 - y u)^2 / 2``, u = a.x, for labels -1
    and +1.

    Args:
        A, y, l2, mean, weights, offset: as in :class:`jaxht.LeastSquares`; y holds labels.

    Raises:
        ValueError: from :meth:`prepare`, as of :class:`jaxht.LeastSquares`.

    Cost: as of :class:`jaxht.LeastSquares`.

    Source: Chang, Hsieh & Lin 2008; not in the papers.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.SquaredHinge(jnp.eye(2), jnp.array([1.0, -1.0]), 0.1)
        >>> f.gradient(jnp.zeros(2), jnp.zeros(2)).tolist()
        [-0.5, 0.5]
    """

    @property
    def loss(self) -> SquaredHingeLoss:
        """The loss of one sample."""
        return SquaredHingeLoss()


@pytree
class SmoothedHinge(LinearModel):
    """A support vector machine with a smooth loss: 0 for m <= 0, ``m^2 / (2 gamma)`` for m up to
    gamma, else ``m - gamma / 2``, m = 1 - y u.

    Args:
        A, y, l2, mean, weights, offset: as in :class:`jaxht.LeastSquares`; y holds labels -1, +1.
        gamma: gamma > 0, a scalar in units of the margin, traced: the hinge is the limit gamma = 0.

    Raises:
        ValueError: from :meth:`prepare`, as of :class:`jaxht.LeastSquares`.

    Cost: as of :class:`jaxht.LeastSquares`.

    Source: Yuan et al. 2020, §6 (gamma = 0.25 there).

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.SmoothedHinge(jnp.eye(2), jnp.array([1.0, -1.0]), 0.1)
        >>> f.gradient(jnp.zeros(2), jnp.zeros(2)).tolist()
        [-0.5, 0.5]
    """

    gamma: Numeric = 1.0

    @property
    def loss(self) -> SmoothedHingeLoss:
        """The loss of one sample."""
        return SmoothedHingeLoss(self.gamma)


@pytree
class Hinge(LinearModel):
    """A support vector machine: the loss is ``max(0, 1 - y u)``, u = a.x, for labels -1 and +1.

    The hinge has no smoothness: ``gradient`` gives a subgradient, solvers with a step size need it
    given, and with a constant one they end within a neighbourhood of a minimum.

    Args:
        A, y, l2, mean, weights, offset: as in :class:`jaxht.LeastSquares`; y holds labels.

    Raises:
        ValueError: from :meth:`prepare`, as of :class:`jaxht.LeastSquares`.

    Cost: as of :class:`jaxht.LeastSquares`.

    Source: Yuan et al. 2020, §5.2.2.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.Hinge(jnp.eye(2), jnp.array([1.0, -1.0]), 0.1)
        >>> f.gradient(jnp.zeros(2), jnp.zeros(2)).tolist()
        [-0.5, 0.5]
    """

    @property
    def loss(self) -> HingeLoss:
        """The loss of one sample."""
        return HingeLoss()


@pytree
class Huber(LinearModel):
    """Robust regression: the loss is ``r^2 / 2`` for |r| <= delta, else ``delta (|r| - delta /
    2)``, r = u - y.

    Args:
        A, y, l2, mean, weights, offset: as in :class:`jaxht.LeastSquares`.
        delta: delta > 0, a scalar in units of y, traced: the largest residual that counts by its
            square.

    Raises:
        ValueError: from :meth:`prepare`, as of :class:`jaxht.LeastSquares`.

    Cost: as of :class:`jaxht.LeastSquares`.

    Source: Huber 1964, (3.4).

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.Huber(jnp.eye(2), jnp.array([0.5, 9.0]))
        >>> f.gradient(jnp.zeros(2), jnp.zeros(2)).tolist()
        [-0.25, -0.5]
    """

    delta: Numeric = 1.0

    @property
    def loss(self) -> HuberLoss:
        """The loss of one sample."""
        return HuberLoss(self.delta)


@pytree
class Poisson(LinearModel):
    """Poisson regression: the loss is ``exp(u) - y u``, u = a.x, for a count y of mean ``exp(u)``.

    The curvature ``exp(u)`` has no bound; automatic step sizes take ``max(1, max y)``, which holds
    wherever no predicted mean exceeds it. :class:`jaxht.NIHT`, whose step adapts, needs no bound.

    Args:
        A, y, l2, mean, weights, offset: as in :class:`jaxht.LeastSquares`; y holds counts, and
            offset the logarithms of exposures.

    Raises:
        ValueError: from :meth:`prepare`, as of :class:`jaxht.LeastSquares`.

    Cost: as of :class:`jaxht.LeastSquares`.

    Source: the canonical link of Nelder & Wedderburn 1972; not in the papers.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.Poisson(jnp.eye(2), jnp.array([0.0, 3.0]))
        >>> f.gradient(jnp.zeros(2), jnp.zeros(2)).tolist()
        [0.5, -1.0]
    """

    @property
    def loss(self) -> PoissonLoss:
        """The loss of one sample."""
        return PoissonLoss()


@pytree
class Gamma(LinearModel):
    """Gamma regression: the loss is ``y exp(-u) + u``, u = a.x, for a positive y of mean
    ``exp(u)``.

    The curvature ``y exp(-u)`` has no bound; automatic step sizes take ``max(1, max y)``, which
    holds at x = 0 and wherever no target exceeds its predicted mean by a larger factor.
    :class:`jaxht.NIHT`, whose step adapts, needs no bound. The unit of y is a shift of the
    predictions: give y a geometric mean of about 1, or an intercept.

    Args:
        A, y, l2, mean, weights, offset: as in :class:`jaxht.LeastSquares`; y is positive.

    Raises:
        ValueError: from :meth:`prepare`, as of :class:`jaxht.LeastSquares`.

    Cost: as of :class:`jaxht.LeastSquares`.

    Source: the logarithmic link of McCullagh & Nelder 1989, §8; not in the papers.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.Gamma(jnp.eye(2), jnp.array([1.0, 3.0]))
        >>> f.gradient(jnp.zeros(2), jnp.zeros(2)).tolist()
        [0.0, -1.0]
    """

    @property
    def loss(self) -> GammaLoss:
        """The loss of one sample."""
        return GammaLoss()


@pytree
class OneBit(LinearModel):
    r"""One-bit compressed sensing: of the measurements ``A x`` only the signs y are known.

    .. math::
        f(x) = c \sum_i s_i \max(0, -y_i a_i.x), \qquad
        \nabla f(x) = \tfrac{c}{2} A' S (sign(A x) - y)

    With ``IHT(step_size=1)`` it is binary iterative hard thresholding (BIHT) from x = 0, whose first
    step :meth:`start` is. f is 0 where all signs agree, and the norm of x is not known: divide the
    solution by it. x = 0 is a minimiser of no use, on every support: solvers that minimise on one
    raise ``ValueError``.

    Where no x agrees with all signs, x shrinks from step to step, until short steps are long for it
    and its direction is lost. There a few short steps are best: ``IHT(step_size=0.1)`` with
    ``Stop(max_steps=30)``.

    Args:
        A, mean, weights, offset: as in :class:`jaxht.LeastSquares`; an offset is what is known of
            the thresholds, ``y = sign(A x + offset)``, and fixes the norm of x.
        y: (n,) signs -1 and +1, traced.
        l2: as in :class:`jaxht.LeastSquares`; a ridge only shrinks x.

    Raises:
        ValueError: from :meth:`prepare`, as of :class:`jaxht.LeastSquares`.

    Cost: as of :class:`jaxht.LeastSquares`.

    Source: Jacques, Laska, Boufounos & Baraniuk 2013 (BIHT).

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> A = jax.random.normal(jax.random.key(0), (400, 100))
        >>> x = jnp.zeros(100).at[:3].set(jnp.array([0.6, 0.0, -0.8]))
        >>> f = jaxht.OneBit(A, jnp.sign(A @ x))
        >>> found = jaxht.solve(f, jaxht.Sparse(2), jaxht.IHT(step_size=1.0)).x
        >>> bool(jnp.linalg.norm(found / jnp.linalg.norm(found) - x) < 0.05)
        True
    """

    has_feasible_start = False

    @property
    def loss(self) -> OneSidedLoss:
        """The loss of one sample."""
        return OneSidedLoss()

    def start(self) -> Array:
        """``c A' S y / 2``, to be projected: the first step of BIHT from 0."""
        return self.design.rmatvec(self.weight(self.y)) / 2
