"""Linear models of several outputs: the variable is a matrix X (d, c), and predictions are A X (n, c)."""

import numpy as np

from jaxht.losses import SoftmaxLoss, SquaredNormLoss
from jaxht.objectives.linear_model import LinearModel
from jaxht.tree import pytree, static


@pytree
class Softmax(LinearModel):
    """Multinomial logistic regression: ``l(u; y) = log sum_b exp(u_b) - u_y``, u = X^T a, X (d, c).

    Args:
        A, l2, mean, weights: as in :class:`jaxht.objectives.linear_model.LinearModel`. Zhou, Yuan & Feng 2018 divide
            their lambda by c: l2 = lambda / c.
        y: (n,) class ids 0 ... c - 1.
        num_classes: static, c.

    A constraint counts entries of the whole matrix. Source: Zhou, Yuan & Feng 2018, §5.
    """

    num_classes: int = static(kw_only=True)

    @property
    def loss(self) -> SoftmaxLoss:
        """The loss of a row of predictions."""
        return SoftmaxLoss(self.num_classes)

    @property
    def shape(self) -> tuple[int, ...]:
        """(d, c)."""
        return (*super().shape, self.num_classes)

    def check(self) -> None:
        """Raise ValueError naming the argument that cannot be right."""
        if not isinstance(self.num_classes, int) or self.num_classes < 2:
            raise ValueError(f"num_classes must be a Python int of at least 2; got {self.num_classes!r}")
        super().check()


@pytree
class MultiResponse(LinearModel):
    """Least squares with c responses: ``f(X) = c'/2 ||A X - Y||_F^2 + l2/2 ||X||_F^2``, c' = 1/n (mean) or 1.

    Args:
        A, l2, mean, weights: as in :class:`jaxht.objectives.linear_model.LinearModel`.
        y: (n, c) responses Y.

    The factor 1/2 is ours: the formula's start is lost in the source's print. Source: Zhou, Yuan & Feng 2018, §5.
    """

    @property
    def loss(self) -> SquaredNormLoss:
        """The loss of a row of predictions."""
        return SquaredNormLoss()

    @property
    def shape(self) -> tuple[int, ...]:
        """(d, c)."""
        return (*super().shape, self.target_shape[1])

    @property
    def target_shape(self) -> tuple[int, ...]:
        """(n, c)."""
        return (self.num_samples, np.shape(self.y)[1] if np.ndim(self.y) == 2 else 1)
