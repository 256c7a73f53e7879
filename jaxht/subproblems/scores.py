"""Scores of the items that a greedy solver may add or remove: how much f changes with each."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._typing import Array
from jaxht.constraints import Edges, SelectionConstraint, Sparse
from jaxht.constraints.support import Support
from jaxht.linalg.lapack import inverse_cholesky
from jaxht.linalg.positive_definite import inverse, symmetric
from jaxht.linalg.precision import matmul
from jaxht.linalg.selection import mask_to_indices
from jaxht.objectives.linear_model import LeastSquares, LinearModel
from jaxht.objectives.multi_output import MultiOutput
from jaxht.objectives.objective import Objective
from jaxht.objectives.precision import GaussianPrecision
from jaxht.subproblems import refit
from jaxht.subproblems.batches import map_refits
from jaxht.subproblems.columns import ridge_per_sample, weight_by_root


def forward_scores(
    objective: Objective, constraint: SelectionConstraint, selected: Array, x: Array
) -> Array:
    """Score each item by how much the minimum of f on the selected items decreases if it is added,
    up to a constant.

    Args:
        objective: the problem's objective, prepared.
        constraint: the problem's constraint, prepared.
        selected: bool, the selected items.
        x: where refits start, shaped like the variable.

    Returns:
        Shaped like ``selected``, in units of f; values of selected items have no meaning.

    Cost: for least squares on vectors under :class:`jaxht.Sparse` without bounds n d k_max + 4 n
    k_max^2 for all items; else a refit for each, REFITS at a time, or one at a time: see
    :func:`jaxht.subproblems.batches.map_refits`.

    Source: for least squares the gain of a column orthogonal to the others, as in Axiotis &
    Sviridenko 2020, Algorithm 4.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> from jaxht.subproblems.scores import forward_scores
        >>> f = jaxht.LeastSquares(jnp.eye(3), jnp.array([1.0, 4.0, 2.0]), mean=False)
        >>> forward_scores(f, jaxht.Sparse(2).prepare((3,)), jnp.array([False, True, False]), jnp.zeros(3)).tolist()
        [0.5, 0.0, 2.0]
    """
    support = constraint.support(selected)
    unbounded = (
        isinstance(constraint, Sparse) and support.k_max is not None and support.bounds is None
    )
    if isinstance(objective, LeastSquares) and len(objective.shape) == 1 and unbounded:
        return insertion_gains(objective, support)
    start = support.restrict(x)
    index = lax.iota(jnp.int32, selected.size).reshape(selected.shape)

    def score(i: Array) -> Array:
        found = refit(objective, constraint.support(selected | (index == i)), start)
        return -objective.value(found.x, found.pred)

    return map_refits(score, objective, constraint, batch_size=REFITS)(index.ravel()).reshape(
        selected.shape
    )


def insertion_gains(objective: LeastSquares, support: Support) -> Array:
    r"""How much the minimum of least squares decreases for each coordinate that is added to a
    support.

    .. math::
        \frac{c (a_i' r)^2}{2 (\|a_i\|^2 + p_i - \|Q a_i\|^2)}, \qquad p = l_2 / c

    Q is an orthonormal basis of the columns of the support, r the residual of its minimiser; the
    gain is 0 where a_i depends on these columns.

    Cost: n d k_max + 4 n k_max^2.
    """
    A, dtype, indices = objective.design, objective.dtype, support.require_indices()
    penalty = ridge_per_sample(objective, objective.shape)
    Q = orthonormalise(
        weight_by_root(objective, A.columns(indices)), support.gather(penalty, indices)
    )
    b = weight_by_root(objective, objective.target)
    residual = b - matmul(matmul(Q, b), Q)
    products = A.rmatvec(weight_by_root(objective, jnp.concatenate([Q, residual[None]])).T)
    overlaps, derivatives = products[:, :-1], products[:, -1]
    squares = A.column_norms() ** 2 if objective.weights is None else A.squared(objective.weights)
    total = squares + penalty
    remaining = total - matmul(overlaps**2, jnp.ones(overlaps.shape[1], dtype))
    return objective.normalise(gains_along(derivatives, remaining, total))


def gains_along(derivatives: Array, remaining: Array, total: Array) -> Array:
    """``derivatives^2 / (2 remaining)``: 0 where nothing of the curvature ``total`` remains, NaN
    where it overflows."""
    independent = remaining > INDEPENDENT * float(jnp.finfo(total.dtype).eps) * total
    gains = jnp.where(independent, derivatives**2 / jnp.where(independent, 2 * remaining, 1), 0)
    return jnp.where(jnp.isfinite(total), gains, jnp.nan)


def orthonormalise(columns: Array, penalty: Array) -> Array:
    """The upper part Q (k, n) of an orthonormal basis of the rows of ``[columns,
    diag(sqrt(penalty))]``.

    It is computed from two successive Cholesky factors of Gram matrices: the second corrects for
    the condition number of the first (Yamamoto et al. 2015). Padding, and columns that depend on
    those before up to the accuracy of the first factor, give rows of 0.

    Cost: 4 n k^2.
    """
    k, dtype = columns.shape[0], columns.dtype
    total = jnp.sum(columns**2, axis=1) + penalty
    scale = lax.rsqrt(jnp.where(total > 0, total, 1))[:, None]
    rows = scale * jnp.concatenate([columns, jnp.diag(jnp.sqrt(penalty))], axis=1)
    jitter = 4 * k * float(jnp.finfo(dtype).eps)
    for _ in range(2):
        gram = matmul(rows, rows.T)
        # After the first factor an independent row has a norm of nearly 1, a dependent one of less
        # than 1/2.
        independent = jnp.diagonal(gram) > 0.5
        gram = jnp.where(independent[None] & independent[:, None], gram, 0) + jnp.diag(
            jnp.where(independent, jitter, 1)
        )
        rows = matmul(inverse_cholesky(gram), jnp.where(independent[:, None], rows, 0))
    return rows[:, : columns.shape[1]]


def values_without(
    objective: Objective, constraint: SelectionConstraint, selected: Array, x: Array, pred: Array
) -> Array:
    """f(x) with each selected item set to 0 and the others unchanged; infinity for items that are
    not selected.

    Cost: for linear models of one output under :class:`jaxht.Sparse` n k_max; for a precision
    matrix under :class:`jaxht.Edges` p^3; else k_max predictions, REMOVALS at a time."""
    if isinstance(objective, GaussianPrecision) and isinstance(constraint, Edges):
        return jnp.where(selected, values_without_edges(objective, x, pred), jnp.inf)
    bound = selected.size if constraint.k_max is None else constraint.k_max
    items: Any = mask_to_indices(selected.ravel(), bound)
    index = jnp.arange(selected.size, dtype=jnp.int32).reshape(selected.shape)

    def without(i: Array) -> Array:
        return constraint.support(selected & (index != i)).restrict(x)

    if (
        isinstance(constraint, Sparse)
        and isinstance(objective, LinearModel)
        and not isinstance(objective, MultiOutput)
    ):
        coefficients = x.ravel().at[items].get(mode="fill", fill_value=0)
        images = coefficients[:, None] * objective.design.columns(items)
    else:
        images = lax.map(lambda i: objective.predict(x - without(i)), items, batch_size=REMOVALS)
    values = lax.map(
        lambda pair: objective.value(without(pair[0]), pred - pair[1]),
        (items, images),
        batch_size=REMOVALS,
    )
    return (
        jnp.full(selected.size, jnp.inf, x.dtype)
        .at[items]
        .set(values, mode="drop")
        .reshape(selected.shape)
    )


def values_without_edges(objective: GaussianPrecision, x: Array, pred: Array) -> Array:
    r"""f(W) with each edge (i, j), i < j, set to 0, by the inverse of W; infinity where that is not
    positive definite.

    .. math::
        f(W) - \log\big((1 - w \sigma_{ij})^2 - w^2 \sigma_{ii} \sigma_{jj}\big) - 2 w S_{ij}, \qquad
        w = W_{ij}, \ \sigma = W^{-1}

    The logarithm is that of the determinant of a matrix that changes by rank 2. Both factors of its
    argument are linear in w, and positive as long as the matrix is positive definite on the way
    from W.

    Cost: 10/3 p^3.
    """
    i, j = np.triu_indices(x.shape[0], 1)
    sigma, w = inverse(x), x[i, j]
    own, root = 1 - w * sigma[i, j], jnp.abs(w) * jnp.sqrt(sigma[i, i] * sigma[j, j])
    factors = own - root, own + root
    inside = jnp.minimum(*factors) > 0
    change = (
        jnp.log(jnp.where(inside, factors[0] * factors[1], 1))
        + 2 * w * symmetric(objective.S)[i, j]
    )
    return jnp.where(inside, objective.value(x, pred) - change, jnp.inf)


# Number of refits, and of values, computed at a time.
REFITS, REMOVALS = 64, 16
# In ulps: a column counts as dependent on others where its orthogonal part is less than this, of
# its square.
INDEPENDENT = 64.0
