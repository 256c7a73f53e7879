"""Refits: minimise an objective on the support that a solver has found, by the method that suits
both.

============================  =========================================  ===========================
objective                     support                                    method
============================  =========================================  ===========================
precision matrix              a graph                                    :mod:`jaxht.subproblems.graph`
least squares                 without bounds, gathered columns           closed form, :mod:`jaxht.subproblems.columns`
other losses of one output    gathered columns                           Newton, :mod:`jaxht.subproblems.columns`
linear models of a matrix     a column and a row space                   :mod:`jaxht.subproblems.low_rank`
all others                    any                                        Newton-CG, :mod:`jaxht.subproblems.newton_cg`
============================  =========================================  ===========================
"""

from typing import Any

import jax.numpy as jnp

from jaxht._typing import Array
from jaxht.constraints.model_subspace import ModelSubspace
from jaxht.constraints.subspace import Subspace
from jaxht.constraints.support import Support
from jaxht.linalg.products import known_by_products
from jaxht.objectives.glm import Hinge
from jaxht.objectives.linear_model import LeastSquares, LinearModel
from jaxht.objectives.multi_output import MultiOutput
from jaxht.objectives.objective import Objective
from jaxht.objectives.precision import GaussianPrecision
from jaxht.subproblems.columns import (
    in_columns,
    least_gamma,
    refit_columns,
    refit_hinge,
    refit_least_squares,
    smooth_hinge,
)
from jaxht.subproblems.fixed_rank import at_rank, has_vectors
from jaxht.subproblems.graph import on_graph, refit_graph
from jaxht.subproblems.low_rank import refit_low_rank
from jaxht.subproblems.newton import Coordinates, Regularity, regularity
from jaxht.subproblems.newton import Refit as Refit
from jaxht.subproblems.newton_cg import in_subspace, refit_by_products


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
        converged. It is differentiable in the data, in forward and reverse mode: the derivative of
        a solution wherever its support does not change.

    Raises:
        ValueError: where columns are gathered and k_max is not known.

    Cost: least squares on gathered columns n k_max^2 + k_max^3 / 3; other losses that for each of 4
    to 8 Newton steps; on designs whose columns cannot be gathered, about a dozen products for each
    step.

    Source: Yuan, Li & Zhang 2018, Algorithm 1, (S3); the methods are cited in the modules.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([3.0, 1.0, 2.0]))
        >>> support = jaxht.Support(jnp.array([True, False, True]), k_max=2)
        >>> jaxht.subproblems.refit(f, support, jnp.zeros(3)).x.tolist()
        [3.0, 0.0, 2.0]
    """
    match objective, support:
        case GaussianPrecision(), Support():
            return refit_graph(objective, support, x, ridge)
        case Hinge(), _:
            return refit_hinge(
                objective, lambda smoothed, start: refit(smoothed, support, start, ridge), x
            )
        case LinearModel(), Subspace() if ridge is None and not jnp.ndim(objective.penalty):
            return refit_low_rank(objective, support, x, refit)
        case LeastSquares(), Support() if support.bounds is None and objective.design.gathers(
            support.k_max
        ):
            return refit_least_squares(objective, support, ridge)
        case LinearModel(), Support() if _of_columns(objective, support):
            return refit_columns(objective, support, x, ridge)
        case _:
            return refit_by_products(objective, support, x, ridge)


def differentiate_at(objective: Objective, support: ModelSubspace, x: Any) -> Any:
    r"""x as it is, with the derivatives of the minimiser on a support, by the implicit function
    theorem.

    With S the coordinates of the support that are free, those at a bound left out,

    .. math::
        H_{SS}\, \dot x_S = -\dot{(\nabla f)}_S

    in forward and reverse mode, any number of times. On matrices of low rank S is the tangent space
    of the matrices of this rank, on which H has a term of their curvature. The derivatives are NaN
    where x is not stationary on S, and
    where H is singular there: see :func:`jaxht.subproblems.newton.regularity`; those of factors are those
    of the singular value decomposition, and NaN where singular values coincide.

    Args:
        objective: prepared.
        support: of x, with or without bounds.
        x: shaped like the variable.

    Cost: a system with the Hessian; on gathered columns n k_max^2 + k_max^3 / 3, else products.

    Source: Krantz & Parks 2013; on matrices of a fixed rank Vandereycken 2013, §2.3.
    """
    return _coordinates(objective, support, x).differentiate()


def theorem_holds(objective: Objective, support: ModelSubspace, x: Any) -> Regularity:
    """Whether the derivatives of :func:`differentiate_at` are numbers, and not those of one side.

    Args:
        objective: prepared.
        support: of x, with or without bounds.
        x: shaped like the variable; of factors no two singular values may coincide for ``regular``.

    Cost: five systems with the Hessian.
    """
    at = _coordinates(objective, support, x)
    found = regularity(at.f, at.w, at.inside, at.bounds)
    return (
        found._replace(regular=found.regular & has_vectors(x.s)) if known_by_products(x) else found
    )


def _coordinates(objective: Objective, support: ModelSubspace, x: Any) -> Coordinates:
    match objective, support:
        case GaussianPrecision(), Support():
            return on_graph(objective, support, x)
        case Hinge(), _:
            return _coordinates(smooth_hinge(objective, least_gamma(objective)), support, x)
        case _, Subspace():
            return at_rank(objective, support, x)
        case LinearModel(), Support() if _of_columns(objective, support):
            return in_columns(objective, support, x)
        case _:
            return in_subspace(objective, support, x)


def _of_columns(objective: LinearModel, support: Support) -> bool:
    return not isinstance(objective, MultiOutput) and objective.design.gathers(support.k_max)
