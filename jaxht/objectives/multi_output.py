"""Linear models of several outputs: the variable is a matrix X (d, c), and predictions are A X (n,
c)."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxht._dataclass import pytree, static
from jaxht._typing import Array
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.operators import SymmetricOperator
from jaxht.linalg.products import Product, apply_to_columns
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.losses import SoftmaxLoss, SquaredNormLoss

__all__ = ["MultiOutput", "MultiResponse", "Softmax"]


class MultiOutput(LinearModel):
    """A linear model of c outputs, whose X may be known by its products where the ridge is one
    number."""

    @property
    def needs_entries(self) -> bool:
        """Whether there is a ridge of its own for each entry."""
        return jnp.ndim(self.penalty) > 0

    @property
    def pred_shape(self) -> tuple[int, ...]:
        """The shape of the predictions, (n, c)."""
        return (self.num_samples, self.shape[1])

    def predict(self, x: Any) -> Array:
        """``A X``. Cost: n d c; of factors n (d + c) k_max."""
        return apply_to_columns(self.design.matvec, x)

    def _adjoint(self, derivatives: Array) -> Product:
        def forward(W):
            return self.design.rmatvec(matmul(derivatives, W))

        def backward(W):
            return matmul(derivatives.T, self.design.matvec(W))

        return Product(forward, backward, self.shape, self.dtype)  # type: ignore[arg-type]


@pytree
class Softmax(MultiOutput):
    """Multinomial logistic regression: ``l(u; y) = log sum_b exp(u_b) - u_y``, u = X^T a, X (d, c).

    The objective is ``f(X) = c' sum_i s_i l(X^T a_i; y_i) + l2/2 ||X||_F^2``, c' = ``1 / sum_i
    s_i`` (mean) or 1. A constraint counts entries of the whole matrix.

    Args:
        A, mean, weights: as in :class:`jaxht.LeastSquares`.
        y: (n,) class ids 0 ... c - 1, traced.
        l2: ridge parameter >= 0, on the scale of the Hessian, traced: a scalar, or (d, c). Zhou,
            Yuan & Feng 2018 divide their lambda by c: l2 = lambda / c.
        offset: (n, c), traced, added to the predictions; None for zeros.
        num_classes: c, an int of at least 2, static.

    Raises:
        ValueError: from :meth:`prepare`, which every solver calls, for shapes, dtypes and class ids
        that are not valid.

    Cost: a prediction ``A X`` n d c; a value, from the prediction, n c; a gradient n d c.

    Source: Zhou, Yuan & Feng 2018, §5.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.Softmax(jnp.eye(3), jnp.array([0, 1, 2]), 0.1, num_classes=3)
        >>> f.shape, round(float(f.value(jnp.zeros((3, 3)), jnp.zeros((3, 3)))), 4)
        ((3, 3), 1.0986)
    """

    num_classes: int = static(kw_only=True)

    @property
    def loss(self) -> SoftmaxLoss:
        """The loss of a row of predictions."""
        return SoftmaxLoss(self.num_classes)

    @property
    def shape(self) -> tuple[int, ...]:
        """(d, c)."""
        return (self.design.shape[1], self.num_classes)


@pytree
class MultiResponse(MultiOutput):
    """Least squares with c responses: ``f(X) = c'/2 sum_ij s_ij |A X - Y|_ij^2 + l2/2 ||X||_F^2``,
    c' = c / sum_ij s_ij (mean) or 1.

    Under ``Groups(k)``, k nonzero rows, it is joint sparse recovery from multiple measurement
    vectors (MMV), by other names simultaneous or row sparse approximation: c signals with one
    support. The solvers are then SNIHT (:class:`jaxht.NIHT`), SHTP (:class:`jaxht.HTP`), SOMP
    (:class:`jaxht.OMP`), SCoSaMP (:class:`jaxht.CoSaMP`) and CGIHT for joint sparsity
    (:class:`jaxht.CGIHT`). Rows are selected by their l2 norms, as in M-OMP (Cotter et al. 2005);
    Tropp, Gilbert & Strauss 2006 take the l1 norms in SOMP.

    A, Y and offset may be complex, and X is then, as of :class:`jaxht.LeastSquares`.

    Args:
        A, mean: as in :class:`jaxht.LeastSquares`.
        y: (n, c) responses Y, traced. A missing one has weight 0; what stands there, be it NaN, has
            no effect.
        weights: s >= 0, traced: (n,), one for each sample, or (n, c), one for each entry of Y; None
            for ones.
        l2: ridge parameter >= 0, on the scale of the Hessian, traced: a scalar, or (d, c).
        offset: (n, c), traced, added to the predictions; None for zeros.

    Raises:
        ValueError: from :meth:`prepare`, which every solver calls, for shapes, dtypes and numbers
        that are not valid.

    Cost: a prediction ``A X`` n d c; a value, from the prediction, n c; a gradient n d c.

    Source: Zhou, Yuan & Feng 2018, §5; the factor 1/2 is ours: the beginning of the formula is
    missing in the source's print. Joint sparsity: Blanchard, Cermak, Hanle & Jing 2014.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.MultiResponse(jnp.eye(3), jnp.diag(jnp.array([3.0, 2.0, 1.0])))
        >>> int(jaxht.solve(f, jaxht.LowRank(1), jaxht.HTP()).support.size)
        1
        >>> jaxht.solve(f, jaxht.Groups(1), jaxht.OMP()).x.tolist()
        [[3.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """

    takes_complex = True

    @property
    def loss(self) -> SquaredNormLoss:
        """The loss of a row of predictions."""
        return SquaredNormLoss()

    @property
    def shape(self) -> tuple[int, ...]:
        """(d, c)."""
        return (self.design.shape[1], self.target_shape[1])

    @property
    def target_shape(self) -> tuple[int, ...]:
        """(n, c)."""
        return (self.num_samples, np.shape(self.y)[1] if np.ndim(self.y) == 2 else 1)

    # ---- weights of the entries of Y ----

    @property
    def _weighs_entries(self) -> bool:
        return self.weights is not None and np.ndim(self.weights) == 2

    def weights_shape(self, num_samples: int) -> tuple[int, ...]:
        """(n, c) where there is one for each entry of Y, else (n,)."""
        return self.target_shape if self._weighs_entries else (num_samples,)

    @property
    def _total_weight(self) -> Array:
        total = super()._total_weight
        return total / self.target_shape[1] if self._weighs_entries else total

    def weighted_losses(self, pred: Array) -> Array:
        """``c' sum_j s_ij (A X - Y)_ij^2 / 2``, (n,), from pred = A X. Cost: n c."""
        if not self._weighs_entries:
            return super().weighted_losses(pred)
        squares = self.loss.squared_residuals(self.linear_predictor(pred), self.y)
        return jnp.sum(self.weight(squares), axis=1) / 2

    def gram_norm(self) -> Array:
        """The largest of the norms of the outputs, which differ where the weights of their entries
        do. Cost: about 16 products."""
        if not self._weighs_entries:
            return super().gram_norm()

        def product(V):
            return self.design.rmatvec(self.weight(self.design.matvec(V)))

        return SymmetricOperator(product, self.shape, self.dtype).norm()
