"""Linear models of several outputs: the variable is a matrix X (d, c), and predictions are A X (n, c)."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array

from jaxht._pytree import pytree, static
from jaxht.constraints.subspace import Subspace
from jaxht.constraints.support import Support
from jaxht.designs import PRECISION, Dense, design
from jaxht.linalg.factored import Factored, Product, square_norm
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.losses import SoftmaxLoss, SquaredNormLoss
from jaxht.objectives.objective import Objective
from jaxht.refit.newton import Refit
from jaxht.refit.products import minimise_restricted


class MultiOutput(LinearModel):
    """What linear models of several outputs do in their own way."""

    @property
    def takes_factors(self) -> bool:
        """Whether x may be :class:`jaxht.Factored`: where the ridge is one number."""
        return not jnp.ndim(self.l2)

    def predict(self, x: Any) -> Array:
        """``A X``. Cost: n d c; of factors n (d + c) k_max."""
        if isinstance(x, Factored):
            return jnp.matmul(design(self.A).matvec(x.U) * x.s, x.V.T, precision=PRECISION)
        return super().predict(x)

    def value(self, x: Any, pred: Array) -> Array:
        """f(X) from pred = A X. Cost: n c + d c."""
        if isinstance(x, Factored):
            return super().value(jnp.zeros(1, self.dtype), pred) + self.l2 * square_norm(x) / 2
        return super().value(x, pred)

    def assembled(self, slopes: Array, x: Any) -> Any:
        """``A^T slopes + l2 * X``. Cost: n d c; beside factors nothing, but n (d + c) for each column of a product."""
        if not isinstance(x, Factored):
            return super().assembled(slopes, x)
        A = design(self.A)

        def forward(W: Array) -> Array:
            return A.rmatvec(jnp.matmul(slopes, W, precision=PRECISION))

        def backward(W: Array) -> Array:
            return jnp.matmul(slopes.T, A.matvec(W), precision=PRECISION)

        return Product(forward, backward, x.shape, self.dtype) + self.l2 * x

    def hessian_diagonal(self, x: Array, pred: Array) -> Array:
        """The diagonal of the Hessian at x, shaped like x. Cost: n d c."""

        def of_output(unit: Array) -> Array:
            along = self.loss.hessian_product(pred, self.y, jnp.broadcast_to(unit, pred.shape))
            return design(self.A).squared(self.weighted(jnp.matmul(along, unit, precision=PRECISION)))

        return jax.vmap(of_output, out_axes=1)(jnp.eye(pred.shape[1], dtype=pred.dtype)) + self.l2

    def minimise(self, region: Support | Subspace, x: Array, ridge: Array | None = None) -> Refit:
        """:func:`jaxht.refit.products.minimise_restricted`, on a column and row space with k_max columns."""
        if isinstance(region, Support) or ridge is not None or jnp.ndim(self.l2):
            return minimise_restricted(self, region, x, ridge)
        # With X = U W, ||X|| = ||W|| and A X = (A U) W: k_max columns in place of d.
        few = dataclasses.replace(self, A=Dense(self.predict(region.U)))
        W, pred, converged = minimise_restricted(few, region.reduced(), jnp.matmul(region.U.T, x, precision=PRECISION))
        return Refit(jnp.matmul(region.U, W, precision=PRECISION), pred, converged)

    def images(self, region: Support, x: Array) -> Array:
        """:meth:`jaxht.objectives.objective.Objective.images`. Cost: k_max products."""
        return Objective.images(self, region, x)


@pytree
class Softmax(MultiOutput):
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
class MultiResponse(MultiOutput):
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
