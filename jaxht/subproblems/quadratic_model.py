"""Quadratic models of an objective whose Hessian is known by its rows."""

from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxht._dataclass import pytree
from jaxht._typing import Array, Numeric
from jaxht.linalg.selection import gather
from jaxht.objectives.linear_model import LeastSquares, LinearModel, WeightedGram
from jaxht.objectives.moments import MomentLeastSquares
from jaxht.subproblems.linear_models import gather_column

# Entries of the variable up to which its Hessian may be formed.
MAX_FORMED_ENTRIES = 512


@pytree
class QuadraticModel:
    """Least squares as ``f(x) = 1/2 x^H H x - Re(b^H x) + const`` of the flat variable.

    Attributes:
        objective: the least squares.
        b: (d,), minus the gradient at 0.
        diagonal: (d,), the diagonal of H, real.
        gram: (d, d), H, where it pays to hold it; else None, and a row costs a product.
    """

    objective: LinearModel | MomentLeastSquares
    b: Array
    diagonal: Array
    gram: Array | None

    @classmethod
    def of(cls, objective: LinearModel | MomentLeastSquares, num_rows: int) -> "QuadraticModel":
        """Return the model of least squares, which is exact; about ``num_rows`` rows of H are used.

        Matrix variables have at most MAX_FORMED_ENTRIES entries.

        Cost: n d, and n d^2 where d <= MAX_FORMED_ENTRIES, or d <= n on a dense design, and
        d <= num_rows; from moments d^2.
        """
        zero = jnp.zeros(objective.shape, objective.dtype)
        pred = jnp.zeros(objective.pred_shape, objective.dtype)
        H = objective.hessian(zero, pred)
        b = -objective.gradient(zero, pred)
        if not objective.forms_hessian(num_rows, MAX_FORMED_ENTRIES):
            return cls(
                objective=objective,
                b=b,
                diagonal=H.diagonal(),
                gram=None,
            )
        gram = H.matrix()
        return cls(
            objective=objective,
            b=b.ravel(),
            diagonal=jnp.diagonal(gram).real,
            gram=gram,
        )

    @classmethod
    def at(
        cls,
        objective: LinearModel,
        x: Array,
        pred: Array,
        num_rows: int,
        is_bound: Numeric = False,
    ) -> "QuadraticModel":
        """Return the second-order expansion at x of a separable loss of one output, or the
        quadratic upper bound that touches f there.

        Cost: 4 n d, and n d^2 where d is at most ``num_rows`` and MAX_FORMED_ENTRIES.
        """
        u = objective.linear_predictor(pred)
        local = objective.loss.hessian_product(u, objective.y, jnp.ones_like(pred))
        curvature = jnp.where(is_bound, objective.curvature_bound(), local)
        H = WeightedGram(objective, lambda image: curvature * image)
        squares = LeastSquares(
            objective.A,
            jnp.zeros_like(pred),
            objective.l2,
            mean=False,
            weights=objective.weight(curvature),
        )
        b = H(x) - objective.gradient(x, pred)
        if x.size > min(MAX_FORMED_ENTRIES, num_rows):
            return cls(
                objective=squares,
                b=b,
                diagonal=H.diagonal(),
                gram=None,
            )
        gram = H.matrix()
        return cls(
            objective=squares,
            b=b,
            diagonal=jnp.diagonal(gram),
            gram=gram,
        )

    def restrict(self, active: Array) -> "QuadraticModel":
        """Return the model of the coordinates ``active`` (m,) alone, which differ."""
        gram = None if self.gram is None else self.gram[active][:, active]
        return QuadraticModel(
            objective=self.objective.restrict(active),
            b=self.b[active],
            diagonal=self.diagonal[active],
            gram=gram,
        )

    def rows(self, indices: Array) -> Array:
        """Rows of H, (k_max, d); 0 for an index d. Cost: k_max n d, or k_max d where H is held."""
        if self.gram is not None:
            return gather(self.gram, indices)
        f: Any = self.objective
        zero = jnp.zeros_like(self.b)
        return f.hessian(zero, jnp.zeros_like(f.y)).rows(indices)

    def row(self, j: Array) -> Array:
        """Row j of H, (d,); 0 for j = d. Cost: n d, or d where H is held."""
        if self.gram is not None:
            return gather(self.gram, j)
        f: Any = self.objective
        is_j = lax.iota(jnp.int32, self.b.size) == j
        column = f.design.rmatvec(f.weight(gather_column(f, j)))
        return column.conj() + jnp.where(is_j, f.penalty, 0)
