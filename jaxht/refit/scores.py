"""Scores of the items that a greedy solver may select or drop: how much f changes with each."""

from typing import Any

import jax
import jax.numpy as jnp
from chex import Array
from jax import lax

from jaxht.constraints import SelectionConstraint, Sparse
from jaxht.constraints.support import Support
from jaxht.linalg.precision import matmul
from jaxht.linalg.selection import mask_to_indices
from jaxht.objectives.linear_model import LeastSquares, LinearModel
from jaxht.objectives.multi_output import MultiOutput
from jaxht.objectives.objective import Objective
from jaxht.refit import refit
from jaxht.refit.columns import ridge_per_sample, weight_by_root


def forward_scores(objective: Objective, constraint: SelectionConstraint, selected: Array, x: Array) -> Array:
    """How much the minimum of f on some items falls, up to a constant, if one more is selected: for each item.

    Args:
        objective, constraint: of the problem.
        selected: bool, the items.
        x: where refits start.

    Cost: for least squares on vectors under :class:`jaxht.Sparse` without bounds n d k_max + 4 n k_max^2 for all items;
    else a refit for each, BLOCK at a time.
    """
    support = constraint.support(selected)
    unbounded = isinstance(constraint, Sparse) and support.k_max is not None and support.bounds is None
    if isinstance(objective, LeastSquares) and len(objective.shape) == 1 and unbounded:
        return insertion_gains(objective, support)
    start = support.restrict(x)
    index = lax.iota(jnp.int32, selected.size).reshape(selected.shape)

    def score(i: Array) -> Array:
        found = refit(objective, constraint.support(selected | (index == i)), start)
        return -objective.value(found.x, found.pred)

    return lax.map(score, index.ravel(), batch_size=REFITS).reshape(selected.shape)


def insertion_gains(objective: LeastSquares, support: Support) -> Array:
    """``c (a_i'r)^2 / (2 (||a_i||^2 + p_i - ||Q a_i||^2))``, p = l2 / c, for all i: how much the minimum falls.

    Q is an orthonormal basis of the columns of the support, r the residual of its minimiser; 0 where a_i depends on
    these columns. Cost: n d k_max + 4 n k_max^2.
    """
    support, A, dtype = support.with_indices(), objective.A, objective.dtype
    indices: Any = support.indices
    penalty = ridge_per_sample(objective, objective.shape)
    Q = orthonormalise(weight_by_root(objective, A.columns(indices)), support.gather(penalty))
    b = weight_by_root(objective, objective.y)
    residual = b - matmul(matmul(Q, b), Q)
    products = A.rmatvec(weight_by_root(objective, jnp.concatenate([Q, residual[None]])).T)
    overlaps, slopes = products[:, :-1], products[:, -1]
    squares = A.column_norms() ** 2 if objective.weights is None else A.squared(objective.weights)
    whole = squares + penalty
    left = whole - matmul(overlaps**2, jnp.ones(overlaps.shape[1], dtype))
    independent = left > INDEPENDENT * float(jnp.finfo(dtype).eps) * whole
    gains = jnp.where(independent, slopes**2 / jnp.where(independent, 2 * left, 1), 0)
    return objective.normalise(jnp.where(jnp.isfinite(whole), gains, jnp.nan))


def orthonormalise(columns: Array, penalty: Array) -> Array:
    """The upper part Q (k, n) of an orthonormal basis of the rows of ``[columns, diag(sqrt(penalty))]``.

    By Cholesky factors of the Gram matrix, twice: the second makes up for the condition of the first (Yamamoto et al.
    2015). Padding, and columns that depend on those before as far as the first can tell, give rows of 0. Cost: 4 n k^2.
    """
    k, dtype = columns.shape[0], columns.dtype
    whole = jnp.sum(columns**2, axis=1) + penalty
    scale = lax.rsqrt(jnp.where(whole > 0, whole, 1))[:, None]
    rows = scale * jnp.concatenate([columns, jnp.diag(jnp.sqrt(penalty))], axis=1)
    jitter = 4 * k * float(jnp.finfo(dtype).eps)
    for _ in range(2):
        gram = matmul(rows, rows.T)
        # Of an independent row the first factor leaves nearly all of the length, of a dependent one less than half.
        alive = jnp.diagonal(gram) > 0.5
        gram = jnp.where(alive & alive[:, None], gram, 0) + jnp.diag(jnp.where(alive, jitter, 1))
        rows = jax.scipy.linalg.solve_triangular(
            jnp.linalg.cholesky(gram, symmetrize_input=False), jnp.where(alive[:, None], rows, 0), lower=True
        )
    return rows[:, : columns.shape[1]]


def values_without(
    objective: Objective, constraint: SelectionConstraint, selected: Array, x: Array, pred: Array
) -> Array:
    """f(x) with each selected item set to 0 and the others held; infinity for those that are not selected.

    Cost: for linear models of one output under :class:`jaxht.Sparse` n k_max; else k_max predictions. REMOVALS at a
    time.
    """
    bound = selected.size if constraint.k_max is None else constraint.k_max
    items: Any = mask_to_indices(selected.ravel(), bound)
    index = jnp.arange(selected.size, dtype=jnp.int32).reshape(selected.shape)

    def without(i: Array) -> Array:
        return constraint.support(selected & (index != i)).restrict(x)

    if isinstance(constraint, Sparse) and isinstance(objective, LinearModel) and not isinstance(objective, MultiOutput):
        coefficients = x.ravel().at[items].get(mode="fill", fill_value=0)
        images = coefficients[:, None] * objective.A.columns(items)
    else:
        images = lax.map(lambda i: objective.predict(x - without(i)), items, batch_size=REMOVALS)
    values = lax.map(
        lambda pair: objective.value(without(pair[0]), pred - pair[1]), (items, images), batch_size=REMOVALS
    )
    return jnp.full(selected.size, jnp.inf, x.dtype).at[items].set(values, mode="drop").reshape(selected.shape)


# Refits, and values, at a time.
REFITS, REMOVALS = 64, 16
# In ulps: a column counts as dependent on others where less than this is left of its square.
INDEPENDENT = 64.0
