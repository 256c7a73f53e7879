"""Refits of matrices over a column and a row space: a problem of k_max^2 or k_max c unknowns."""

import dataclasses
from collections.abc import Callable

from jaxht._typing import Array
from jaxht.constraints.subspace import Subspace
from jaxht.constraints.support import Support
from jaxht.designs import Dense, MatrixDesign
from jaxht.linalg.precision import matmul
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.multi_output import MultiOutput
from jaxht.subproblems.newton import Refit
from jaxht.subproblems.newton_cg import refit_by_products


def refit_low_rank(
    objective: LinearModel,
    space: Subspace,
    x: Array,
    refit: Callable[[LinearModel, Support, Array], Refit],
) -> Refit:
    """Minimise a linear model with a scalar ridge over ``U w V'``.

    Args:
        objective: on a matrix, with measurements ``<A_i, X>`` or as a model of several outputs.
        space: U and V.
        x: (m, p), start.
        refit: refits a model of vectors on a support.

    Returns:
        A :class:`Refit`.

    Cost: for a model of several outputs, that of k_max columns in place of d. For measurements n m
    p k_max^2 once and a problem of k_max^2 unknowns, where these are no more than SMALL; else
    products with the Hessian, each of two products with all A_i."""
    k = space.k_max
    if isinstance(objective, MultiOutput):  # with X = U W, ||X|| = ||W|| and A X = (A U) W
        in_rows = dataclasses.replace(objective, A=Dense(objective.predict(space.U)))
        W, pred, converged = refit_by_products(in_rows, space.row_space(), matmul(space.U.T, x))
        return Refit(matmul(space.U, W), pred, converged)
    if k**2 > SMALL or not isinstance(objective.design, MatrixDesign):
        return refit_by_products(objective, space, x)
    pairs = space.U[:, None, :, None] * space.V[None, :, None, :]  # u_a v_b', its entries by row
    measurements = objective.design.vectorised.matvec(pairs.reshape(-1, k**2))
    in_coordinates = dataclasses.replace(objective, A=Dense(measurements))
    w, pred, converged = refit(
        in_coordinates, Support(space.inside.ravel(), k_max=k**2), space.coordinates(x).ravel()
    )
    return Refit(space.point(w.reshape(k, k)), pred, converged)


# Largest number of unknowns for which the problem in w is formed.
SMALL = 64
