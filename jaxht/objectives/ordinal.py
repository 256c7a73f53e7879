"""Proportional odds: a linear model of ordered classes."""

from jaxht._dataclass import pytree, static
from jaxht._typing import Array
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.losses import OrdinalLoss

__all__ = ["Ordinal"]


@pytree
class Ordinal(LinearModel):
    r"""Proportional odds regression of ordered classes: ``P(y <= j) = sigma(theta_j - a.x)``, sigma
    the logistic.

    .. math::
        f(x) = c' \min_\theta \sum_i s_i \big(-\log P(y_i)\big)
            + \tfrac12 \sum_j l_{2,j} x_j^2, \qquad
        P(y) = \sigma(\theta_y - a \cdot x) - \sigma(\theta_{y-1} - a \cdot x)

    c' = ``1 / sum_i s_i`` where ``mean`` is set, else 1. The c - 1 thresholds are minimised over
    for every x; :meth:`thresholds` returns them. They are not coordinates of x: a constraint counts
    features only, and the ridge does not apply to them. f is convex, because the loss is convex in
    x and theta together. For two classes this is logistic regression with an intercept.

    The thresholds couple the samples in the loss: stochastic and dual solvers, which need a sum
    over samples, raise ValueError. Thresholds of held-out samples are fitted to those samples.
    Classes without samples are left out.

    Args:
        A, l2, mean, weights, offset: as in :class:`jaxht.LeastSquares`; A has no column of ones.
        y: (n,) class ids 0 ... c - 1, in their order, traced.
        num_classes: c, an int of at least 2, static.

    Raises:
        ValueError: from :meth:`prepare`, which every solver calls, for shapes, dtypes and class ids
            that are not valid; from stochastic and dual solvers.

    Cost: a prediction ``A x`` n d; a value, from the prediction, some six Newton steps for the
    thresholds, of n c each; a gradient n d more; a Hessian on k coordinates n k^2 + n k c.

    Source: McCullagh 1980; Pratt 1981 (convexity).

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A = jnp.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0], [4.0, 1.0], [2.0, 0.0]])
        >>> f = jaxht.Ordinal(A, jnp.array([0, 0, 1, 2, 2, 2]), 0.1, num_classes=3)
        >>> x = jaxht.solve(f, jaxht.Sparse(1), jaxht.HTP()).x
        >>> (x != 0).tolist(), f.thresholds(x).shape
        ([True, False], (2,))
    """

    num_classes: int = static(kw_only=True)

    @property
    def loss(self) -> OrdinalLoss:
        """The loss of all samples."""
        return OrdinalLoss(self.num_classes, self.weights)

    def thresholds(self, x: Array) -> Array:
        """theta, (c - 1,): increasing; where a class has no samples equal, or infinite. Cost: a
        prediction and n c."""
        return self.loss.thresholds(self.linear_predictor(self.predict(x)), self.y)
