"""Least squares from moments: refits by Cholesky factors of submatrices, and the gains of all
coordinates."""

from typing import Any

import jax.numpy as jnp

from jaxht._typing import Array
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.linear_solvers import cholesky_solver
from jaxht.objectives.moments import MomentLeastSquares
from jaxht.subproblems.by_products import Subproblem
from jaxht.subproblems.quadratic_model import QuadraticModel
from jaxht.subproblems.refits import Refit, RefitStatus
from jaxht.subproblems.swaps import SupportMinimum


class MomentProblem(Subproblem):
    """Least squares of one output, of which the moments are known."""

    objective: MomentLeastSquares

    @property
    def is_quadratic(self) -> bool:
        """Whether coordinates have no bounds."""
        return self.is_free

    @property
    def has_cheap_rows(self) -> bool:
        """Whether items are coordinates."""
        return self.space.selects_entries

    @property
    def has_gains(self) -> bool:
        """Whether coordinates have no bounds, and k_max is known."""
        return self.is_free and self.space.k_max is not None

    @property
    def empty_items(self) -> Array:
        """The columns of zeros, where items are coordinates."""
        if not self.space.selects_entries:
            return super().empty_items
        return jnp.diagonal(self.objective.gram) == 0

    def refit(self, support: Any, x: Array, ridge: Array | None = None) -> Refit:
        """Solve the normal equations; of linearly dependent columns a solution up to rounding.

        Cost: k_max^3 / 3 + k_max d.
        """
        f = self.objective
        if support.bounds is not None or support.k_max is None:
            return super().refit(support, x, ridge)
        indices = support.require_indices()
        penalty = f.penalty if ridge is None else f.penalty + ridge
        penalty = support.gather(jnp.broadcast_to(penalty, f.shape), indices)
        part = f.restrict(indices)
        gram = f.normalise(part.gram)
        b = f.normalise(part.products)
        solve = cholesky_solver(gram, penalty)
        w = solve(b)
        w += solve(b - matmul(gram, w) - penalty * w)
        found = support.scatter(w, indices)
        return Refit(found, f.predict(found), RefitStatus.of(jnp.all(jnp.isfinite(w))))

    def forward_scores(self, selected: Array, x: Array) -> Array:
        """The gains in closed form, where they are known. Cost: k_max^2 d."""
        if not self.has_gains:
            return super().forward_scores(selected, x)
        indices = self.space.support(selected).require_indices()
        model = QuadraticModel.of(self.objective, indices.size)
        return jnp.maximum(SupportMinimum.on(model, indices).insertion_gains(), 0)
