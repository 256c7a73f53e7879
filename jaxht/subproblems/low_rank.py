"""Matrices on a column and a row space: problems of k_max^2 or k_max c unknowns."""

import dataclasses
from typing import Any

from jaxht._typing import Array
from jaxht.constraints.support import Support
from jaxht.designs import Dense
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.products import known_by_products
from jaxht.subproblems.by_products import Subproblem
from jaxht.subproblems.fixed_rank import has_vectors, restrict_to_rank
from jaxht.subproblems.refits import Refit
from jaxht.subproblems.stationary_points import Regularity

# Up to so many unknowns the problem in coordinates is formed.
MAX_FORMED_UNKNOWNS = 64


class LowRankProblem(Subproblem):
    """An objective on matrices of low rank: refits on two spaces, derivatives at a fixed rank."""

    def differentiate(self, support: Any, x: Any) -> Any:
        """Differentiate on the matrices of this rank, whose spaces move as well."""
        return restrict_to_rank(self.objective, support, x).differentiate()

    def regularity(self, support: Any, x: Any) -> Regularity:
        """The regularity on the matrices of this rank."""
        found = restrict_to_rank(self.objective, support, x).regularity()
        if known_by_products(x):
            found = found._replace(regular=found.regular & has_vectors(x.s))
        return found


class LowRankOutputs(LowRankProblem):
    """A linear model of several outputs with a scalar ridge: with X = U W, ``||X|| = ||W||`` and
    A X = (A U) W, so that k_max columns take the place of d."""

    def refit(self, support: Any, x: Array, ridge: Array | None = None) -> Refit:
        """Minimise over W in the row space."""
        if ridge is not None:
            return super().refit(support, x, ridge)
        in_rows = dataclasses.replace(self.objective, A=Dense(self.objective.predict(support.U)))
        rows = Subproblem(in_rows, self.space)
        W, pred, status = rows.refit(support.row_space(), matmul(support.U.T, x))
        return Refit(matmul(support.U, W), pred, status)


@dataclasses.dataclass(frozen=True)
class LowRankMeasurements(LowRankProblem):
    """A linear model of measurements ``<A_i, X>`` with a scalar ridge.

    Attributes:
        kind: the class of the subproblems of its loss on vectors.
    """

    kind: type[Subproblem]

    def refit(self, support: Any, x: Array, ridge: Array | None = None) -> Refit:
        """Minimise over the k_max^2 coordinates, where these are few; their measurements cost
        n m p k_max^2 once."""
        k = support.k_max
        if ridge is not None or not 0 < k**2 <= MAX_FORMED_UNKNOWNS:
            return super().refit(support, x, ridge)
        pairs = (
            support.U[:, None, :, None] * support.V[None, :, None, :]
        )  # u_a v_b', entries by row
        measurements = self.objective.design.vectorised.matvec(pairs.reshape(-1, k**2))
        in_coordinates = dataclasses.replace(self.objective, A=Dense(measurements))
        region = Support(support.inside.ravel(), k_max=k**2)
        w, pred, status = self.kind(in_coordinates, region).refit(
            region, support.coordinates(x).ravel()
        )
        return Refit(support.point(w.reshape(k, k)), pred, status)
