"""Global minima, to compare solvers with: by trying all supports, and of reduced-rank regression in
closed form."""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import ArrayLike

from jaxht._checks import check_count, check_kind
from jaxht._dataclass import cast_numbers, pytree
from jaxht._meshes import shard_automatically
from jaxht._typing import Array
from jaxht.constraints import ModelSubspace, SelectionConstraint, Support, check_selection
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.inner_products import check_real_array, is_complex, real_dtype
from jaxht.linalg.normal_equations import ratio
from jaxht.objectives.objective import Objective
from jaxht.solvers.exhaustive_search import MAX_SUPPORTS
from jaxht.subproblems import subproblem


@pytree
class Optimum:
    """The best of all supports.

    Attributes:
        x: the global minimiser, shaped like the variable.
        support: on which it lies, as the constraint's projection returns it.
        value: f(x), scalar.
    """

    x: Array
    support: ModelSubspace
    value: Array


@shard_automatically
def exhaustive_search(
    objective: Objective, constraint: SelectionConstraint, *, batch_size: int = 4096
) -> Optimum:
    """Find the global minimum under a sparsity constraint by trying every support.

        min over S of  min { f(x) : supp(x) in S }

    where S are all choices of k coordinates (groups, edges).

    Args:
        objective: any that has a refit.
        constraint: :class:`jaxht.Sparse`, :class:`jaxht.Groups` or :class:`jaxht.Edges`, whose k (a
            Python int) and keep are concrete; what keep marks is in every support.
        batch_size: supports that are refitted at a time, under vmap. Static. On CPUs one at a time
            where columns are long: see :meth:`jaxht.subproblems.Subproblem.map_refits`.

    Returns:
        An :class:`Optimum`. Among equal supports it is the first in lexicographic order. Of convex
        objectives it is the global minimum, up to the tolerance of the refit.

    Raises:
        ValueError: for a traced k or keep, and for more than MAX_SUPPORTS supports.

    Cost: a refit for each of the ``binom(d, k)`` supports. Real least squares without bounds is faster:
    a Cholesky factor of k x k, vectorised over supports, compares them, and only the best is
    refitted; in float32 it does not tell apart supports whose values agree to rounding.

    Example:
        >>> import numpy as np
        >>> from jaxht import LeastSquares, Sparse, exhaustive_search
        >>> A = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
        >>> best = exhaustive_search(LeastSquares(A, A[:, 1] - A[:, 4]), Sparse(2))
        >>> best.support.numpy().tolist(), round(float(best.value), 4)
        ([1, 4], 0.0)
    """
    check_kind(objective=objective, constraint=constraint)
    objective = objective.prepare()
    constraint = cast_numbers(constraint.prepare(objective.shape), real_dtype(objective))
    check_selection(constraint)
    with jax.ensure_compile_time_eval():
        active = constraint.always_active
    if isinstance(constraint.k, jax.core.Tracer) or isinstance(active, jax.core.Tracer):
        raise ValueError(
            "k and keep must not be traced: supports are enumerated before the program is compiled"
        )
    problem = subproblem(objective, constraint)
    zeros = jnp.zeros(objective.shape, objective.dtype)
    items = jax.eval_shape(constraint.scores, zeros)
    num = items.size
    kept = np.flatnonzero(np.broadcast_to(np.ravel(active), (num,)))
    subsets = _subsets(num, int(constraint.k), kept)
    if not constraint.is_uniform:
        masks = np.zeros((len(subsets), num), bool)
        np.put_along_axis(masks, subsets, True, axis=1)
        with jax.ensure_compile_time_eval():
            allowed = jax.vmap(constraint.allows)(masks.reshape(-1, *items.shape))
            subsets = subsets[np.asarray(allowed)]

    def refit_on(subset: Array) -> tuple[Array, Support, Array]:
        selected = jnp.zeros(num, bool).at[subset].set(True)
        support = constraint.support(selected.reshape(items.shape))
        found = problem.refit(support, zeros)
        return found.x, support, objective.value(found.x, found.pred)

    if problem.is_quadratic and not is_complex(objective):
        values = _quadratic_values(objective, subsets, batch_size)
    else:
        evaluate = problem.map_refits(lambda subset: refit_on(subset)[-1], batch_size=batch_size)
        values = evaluate(subsets)
    best = jnp.argmin(jnp.where(jnp.isnan(values), jnp.inf, values))
    # As a loop of one step it is one program also outside jit.
    x, support, value = jax.tree.map(
        lambda leaf: leaf[0], lax.map(refit_on, jnp.asarray(subsets)[best][None])
    )
    return Optimum(x, support, value)


def _subsets(num: int, k: int, kept: np.ndarray) -> np.ndarray:
    """The subsets of size k of 0 ... num - 1 that hold what is kept: (m, k)."""
    free = np.setdiff1d(np.arange(num), kept)
    size = k - len(kept)
    count = math.comb(len(free), size)
    if count > MAX_SUPPORTS:
        raise ValueError(
            f"{count} supports of size {k} are too many to enumerate; at most {MAX_SUPPORTS}"
        )
    chosen = np.fromiter(
        itertools.chain.from_iterable(itertools.combinations(free, size)), np.int32, count * size
    )
    always = np.tile(kept.astype(np.int32), (count, 1))
    return np.hstack([always, chosen.reshape(count, size)])


def _quadratic_values(objective: Objective, subsets: np.ndarray, batch_size: int) -> Array:
    """The minimum of a quadratic on each support, ``f(0) - 1/2 b_S' (G_SS)^-1 b_S``, G its Hessian,
    b = -grad f(0).

    The Cholesky factor is written out over its k (k + 1) / 2 entries, each a vector over supports:
    batched LAPACK calls take far longer for such small matrices. Columns that depend on those
    before them add nothing.
    """
    zeros = jnp.zeros(objective.shape, objective.dtype)

    def value(x: Array) -> Array:
        return objective.value(x, objective.predict(x))

    d = zeros.size
    m, k = subsets.shape
    with jax.default_matmul_precision("highest"):
        G = jax.hessian(value)(zeros).reshape(d, d)
        b = -jax.grad(value)(zeros).ravel()
    batch = min(batch_size, m)
    filled = np.pad(subsets, ((0, -m % batch), (0, 0)), "edge")
    batches = filled.reshape(len(filled) // batch, batch, k)
    tolerance = 64 * machine_eps(objective)

    def inner(u, v):
        return sum((a * b for a, b in zip(u, v, strict=False)), jnp.zeros((), objective.dtype))

    def decrease(S):
        """``|L^-1 b_S|^2`` for each S of the batch, L the Cholesky factor of G_SS."""
        L: list[list[Array]] = []
        solution: list[Array] = []
        for i in range(k):
            row: list[Array] = []
            for j in range(i):
                pivot = L[j][j]  # 0 where column j depends on those before
                rest = G[S[:, i], S[:, j]] - inner(row, L[j])
                row.append(ratio(rest, pivot))
            diagonal = G[S[:, i], S[:, i]]
            square = diagonal - inner(row, row)
            independent = square > tolerance * diagonal
            root = jnp.sqrt(jnp.where(independent, square, 1))
            rest = b[S[:, i]] - inner(row, solution)
            solution.append(jnp.where(independent, rest / root, 0))
            L.append([*row, jnp.where(independent, root, 0)])
        return jnp.broadcast_to(inner(solution, solution), S.shape[:1])

    return value(zeros) - lax.map(decrease, jnp.asarray(batches)).ravel()[:m] / 2


def reduced_rank_minimum(A: Any, Y: ArrayLike, l2: float, k: int) -> float:
    """Compute the minimum of ridge regression of several responses under a rank constraint.

        f* = min { 1/(2n) ||A X - Y||_F^2 + l2/2 ||X||_F^2 : rank(X) <= k } = 1/(2n) ||Y||_F^2 - 1/2
           sum_{i <= k} lambda_i(C' G^-1 C),    G = A'A/n + l2 I,  C = A'Y/n

    This is the objective of ``jaxht.MultiResponse(A, Y, l2)`` under ``jaxht.LowRank(k)``. As ``f(X)
    = 1/2 ||G^(1/2) X - G^(-1/2) C||_F^2 + const``, it follows from the theorem of Eckart & Young.

    Args:
        A: (n, d) design, an array or a SciPy sparse matrix.
        Y: (n, c) responses.
        l2: > 0.
        k: rank, from 0 to min(d, c).

    Returns:
        f*, computed in double precision on the host.

    Raises:
        ValueError: for complex numbers, a k that is no rank, and an l2 that is not above 0.

    Cost: ``n d^2 + d^3``.

    Source: Izenman 1975, reduced-rank regression; here with a ridge.

    Example:
        >>> import numpy as np
        >>> from jaxht import reduced_rank_minimum
        >>> A = np.eye(3)
        >>> Y = np.diag([3.0, 2.0, 1.0])
        >>> [round(reduced_rank_minimum(A, Y, 1e-9, k), 4) for k in (0, 1, 2, 3)]
        [2.3333, 0.8333, 0.1667, 0.0]
    """
    check_real_array("A", A)
    check_real_array("Y", Y)
    check_count("k", k, least=0)
    A = np.asarray(A.toarray() if hasattr(A, "toarray") else A, np.float64)
    Y = np.asarray(Y, np.float64)
    n, d = A.shape
    if Y.ndim != 2:
        raise ValueError(f"Y must have shape (n, c); got {Y.shape}")
    max_rank = min(d, Y.shape[1])
    if k > max_rank:
        raise ValueError(f"k must be a rank, at most {max_rank}; got {k}")
    if not l2 > 0:
        raise ValueError(f"l2 must be above 0; got {l2}")
    C = A.T @ Y / n
    G = A.T @ A / n + l2 * np.eye(d)
    decreases = np.linalg.eigvalsh(C.T @ np.linalg.solve(G, C))[::-1]
    return float(np.sum(Y**2) / (2 * n) - np.sum(decreases[:k]) / 2)
