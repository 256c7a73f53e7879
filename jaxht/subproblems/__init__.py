"""Subproblems: an objective on the supports of a constraint, by the methods that suit both.

================================  =======================  =========================================
objective                         space                    subproblem
================================  =======================  =========================================
least squares of one output       coordinates              :mod:`jaxht.subproblems.least_squares`
other losses of one output        coordinates              :mod:`jaxht.subproblems.columns`
the hinge                         any                      a sequence of smoothed hinges
least squares from moments        coordinates              :mod:`jaxht.subproblems.moments`
a precision matrix                a graph                  :mod:`jaxht.subproblems.graph`
any                               a column and row space   :mod:`jaxht.subproblems.low_rank`
all others                        any                      :mod:`jaxht.subproblems.by_products`
================================  =======================  =========================================
"""

from typing import Any

import jax.numpy as jnp

from jaxht._typing import Array
from jaxht.constraints.model_subspace import ModelSubspace
from jaxht.designs import MatrixDesign
from jaxht.objectives.glm import Hinge
from jaxht.objectives.linear_model import LeastSquares, LinearModel
from jaxht.objectives.moments import MomentLeastSquares
from jaxht.objectives.multi_output import MultiOutput
from jaxht.objectives.objective import Objective
from jaxht.objectives.precision import GaussianPrecision
from jaxht.subproblems.by_products import Growth, Subproblem
from jaxht.subproblems.columns import (
    ColumnProblem,
    HingeProblem,
    LinearProblem,
)
from jaxht.subproblems.graph import GraphProblem
from jaxht.subproblems.least_squares import LeastSquaresProblem
from jaxht.subproblems.linear_models import least_gamma, smooth_hinge
from jaxht.subproblems.low_rank import LowRankMeasurements, LowRankOutputs, LowRankProblem
from jaxht.subproblems.moments import MomentProblem
from jaxht.subproblems.refits import Refit, RefitStatus
from jaxht.subproblems.stationary_points import Regularity

__all__ = ["Growth", "Refit", "RefitStatus", "Regularity", "Subproblem", "refit", "subproblem"]


def subproblem(objective: Objective, space: Any) -> Subproblem:
    """Choose how an objective is minimised on the supports of a space, and how moves are scored.

    Nothing else in the library asks which class an objective, a design or a constraint has.

    Args:
        objective: prepared.
        space: the problem's constraint, prepared, or one of its supports.

    Returns:
        A :class:`Subproblem`.

    Cost: nothing.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([3.0, 1.0, 2.0])).prepare()
        >>> jaxht.extend.subproblem(f, jaxht.Sparse(2).prepare((3,))).is_quadratic
        True
    """
    f: Any = objective
    vector_kind = LeastSquaresProblem if isinstance(f, LeastSquares) else ColumnProblem
    if isinstance(f, Hinge):
        return HingeProblem(f, space, subproblem(smooth_hinge(f, least_gamma(f)), space))
    if not space.coordinatewise:
        has_single_ridge = isinstance(f, LinearModel) and not jnp.ndim(f.penalty)
        if has_single_ridge and isinstance(f, MultiOutput):
            return LowRankOutputs(f, space)
        if has_single_ridge and isinstance(f.design, MatrixDesign):
            return LowRankMeasurements(f, space, vector_kind)
        return LowRankProblem(f, space)
    if isinstance(f, GaussianPrecision):
        return GraphProblem(f, space)
    if isinstance(f, MomentLeastSquares) and len(f.shape) == 1:
        return MomentProblem(f, space)
    if isinstance(f, MultiOutput):
        return LinearProblem(f, space)
    if isinstance(f, LinearModel):
        return vector_kind(f, space)
    return Subproblem(f, space)


def refit(
    objective: Objective, support: ModelSubspace, x: Array, ridge: Array | None = None
) -> Refit:
    r"""Minimise an objective on a support ("debiasing"), starting from x, optionally with a further
    ridge.

    .. math::
        \arg\min \{ f(x) + \tfrac12 \textstyle\sum_i ridge_i x_i^2 : x \in S \}

    Args:
        objective: for example :class:`jaxht.LeastSquares`; prepared (``objective.prepare()``) where
            that fills in fields.
        support: S, a :class:`jaxht.Support`, optionally with bounds, or a :class:`jaxht.Subspace`.
            On dense designs its k_max must be known.
        x: start, shaped like the variable, in the objective's dtype; entries off the support are
            taken as 0. Closed forms ignore it.
        ridge: >= 0, shaped like the variable, traced, on the scale of ``l2``; None for none.

    Returns:
        :class:`Refit`: the minimiser, exactly zero off the support, its prediction, and whether it
        has converged, or there is none. It is differentiable in the data, in forward and reverse mode: the derivative of
        a solution wherever its support does not change.

    Raises:
        ValueError: where columns are gathered and k_max is not known.

    Cost: least squares on gathered columns n k_max^2 + k_max^3 / 3; other losses that for each of 4
    to 8 Newton steps; on designs whose columns cannot be gathered, about a dozen products for each
    step.

    Source: Yuan, Li & Zhang 2018, Algorithm 1, (S3); the methods are cited in the modules.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([3.0, 1.0, 2.0]), mean=False)
        >>> support = jaxht.Support(jnp.array([True, False, True]), k_max=2)
        >>> jaxht.extend.refit(f, support, jnp.zeros(3)).x.tolist()
        [3.0, 0.0, 2.0]
    """
    return subproblem(objective, support).refit(support, x, ridge)
