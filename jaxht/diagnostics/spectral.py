"""The eigenvalues and step sizes of :mod:`jaxht.spectral`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_count
from jaxht._loops import while_loop
from jaxht._meshes import shard_automatically
from jaxht._typing import Array, ArrayDType, Numeric
from jaxht.linalg.eigenvalues import SAFETY, largest_eigenvalue
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.inner_products import real_dtype, real_products, real_vdot
from jaxht.linalg.projections import hard_threshold
from jaxht.linalg.selection import k_largest_mask, mask_to_indices
from jaxht.objectives.objective import Objective, cast_point
from jaxht.solvers.iterate import inverse_smoothness

#: Starts of the power steps: so many coordinate vectors, and as many random vectors.
NUM_STARTS = 16
MAX_POWER_STEPS = 100


@shard_automatically
def largest_sparse_eigenvalue(
    product: Callable[[Array], Array],
    diagonal: Array,
    s: Numeric,
    rtol: Numeric = 1e-4,
    *,
    dtype: ArrayDType | None = None,
) -> Array:
    """Estimate ``lambda_max(B, s) = max { v^H B v : ||v|| = 1, ||v||_0 <= s }`` from below, by
    truncated power steps.

    ``v <- H_s(Bv) / ||H_s(Bv)||`` until v^H B v stops increasing, from the coordinate vectors of the
    NUM_STARTS largest diagonal entries and from as many pseudo-random vectors; the best value is
    returned.

    Args:
        product: a function v (d,) -> B v (d,), B Hermitian positive semi-definite.
        diagonal: (d,), real, the diagonal of B, or an approximation: it only chooses starts.
        s: sparsity, an integer >= 1, static or traced; more than d count as d.
        rtol: the steps end when no start has increased by more, relative to its value; a scalar,
            traced.
        dtype: of v, real or complex, static. None: that of the diagonal.

    Returns:
        A scalar, at most the true value, which it may miss: a heuristic, not a certificate.

    Cost: 2 NUM_STARTS products a step, at most MAX_POWER_STEPS steps.

    Source: Yuan & Zhang 2013, as used in Yuan, Li & Zhang 2018, §6.2.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> diagonal = jnp.array([1.0, 4.0, 2.0, 3.0])
        >>> round(float(jaxht.spectral.largest_sparse_eigenvalue(lambda v: diagonal * v, diagonal, 2)), 3)
        4.0
    """
    if isinstance(s, int | np.integer):
        check_count("s", s)
    (d,) = diagonal.shape
    num_vertices = min(NUM_STARTS, d)
    largest = mask_to_indices(k_largest_mask(diagonal, num_vertices), num_vertices)
    dtype = diagonal.dtype if dtype is None else dtype
    vertices = jax.nn.one_hot(largest, d, dtype=dtype)
    random = jax.random.normal(jax.random.key(0), (NUM_STARTS, d), dtype)

    def truncate(rows):
        return jax.vmap(lambda row: _normalise(hard_threshold(row, s)))(rows)

    def evaluate(v):
        image = jax.vmap(product)(v)
        return image, jnp.sum(real_products(v, image), axis=1)

    def step(carry):
        count, _, image, value = carry
        image, new = evaluate(truncate(image))
        has_increased = jnp.any(new > (1 + rtol) * value)
        return count + 1, has_increased, image, jnp.maximum(value, new)

    def goes_on(carry):
        count, has_increased, _, _ = carry
        return (count < MAX_POWER_STEPS) & has_increased

    image, value = evaluate(jnp.concatenate([vertices, truncate(random)]))
    *_, value = while_loop(goes_on, step, (0, jnp.array(True), image, value))
    return jnp.max(value)


@shard_automatically
def smallest_sparse_eigenvalue(
    product: Callable[[Array], Array],
    diagonal: Array,
    s: Numeric,
    *,
    dtype: ArrayDType | None = None,
) -> Array:
    """Estimate ``lambda_min(B, s)`` from above, as ``c - lambda_max(c I - B, s)`` with c above all
    eigenvalues of B.

    Args:
        product: a function v (d,) -> B v (d,), B Hermitian positive semi-definite.
        diagonal: (d,), real, the diagonal of B, or an approximation: it only chooses starts.
        s: sparsity, an integer >= 1, static or traced; more than d count as d.
        dtype: of v, as in :func:`largest_sparse_eigenvalue`.

    Returns:
        A scalar, at least the true value up to the rounding error of c: a heuristic, not a
        certificate.

    Cost: that of :func:`largest_sparse_eigenvalue`, and about 16 products for c.

    Source: Yuan, Li & Zhang 2018, §6.2.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> diagonal = jnp.array([1.0, 4.0, 2.0, 3.0])
        >>> round(float(jaxht.spectral.smallest_sparse_eigenvalue(lambda v: diagonal * v, diagonal, 2)), 3)
        1.0
    """
    dtype = diagonal.dtype if dtype is None else dtype
    c = SAFETY * largest_eigenvalue(product, diagonal.shape[0], dtype)
    # c is large compared with the result, so the relative increase of the difference is small.
    rtol = 10 * machine_eps(diagonal)
    largest = largest_sparse_eigenvalue(
        lambda v: c * v - product(v), c - diagonal, s, rtol, dtype=dtype
    )
    return c - largest


@shard_automatically
def restricted_smoothness(objective: Objective, s: Numeric) -> Array:
    """Estimate M_s, the smoothness of f along s-sparse directions; the theory takes the step size
    ``1 / (2 M_2k)``.

    M_s is the largest s-sparse eigenvalue of the objective's upper bound on the Hessian: of ``c b
    A'SA + l2`` for linear models, with b the bound on the curvature of the loss, and of the Hessian
    at 0 for general functions.

    Args:
        objective: over vectors.
        s: sparsity, an integer >= 1, static or traced; more than d count as d.

    Returns:
        A scalar, an estimate from below: see :func:`largest_sparse_eigenvalue`.

    Raises:
        ValueError: if the variable is not a vector.

    Cost: that of :func:`largest_sparse_eigenvalue`, with products of 2 n d.

    Source: Yuan, Li & Zhang 2018, Theorem 8 and §6.2, where the Hessian of the logistic loss lacks
    its 1/n.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.diag(jnp.array([1.0, 2.0])), jnp.ones(2), mean=False)
        >>> round(float(jaxht.spectral.restricted_smoothness(f, 1)), 3)
        4.0
    """
    objective = objective.prepare()
    diagonal = _diagonal(objective)
    return largest_sparse_eigenvalue(objective.majorant(), diagonal, s, dtype=objective.dtype)


@shard_automatically
def restricted_condition_number(objective: Objective, s: Numeric, x: Array | None = None) -> Array:
    """Estimate ``kappa_s = M_s / m_s``, the ratio of the extreme s-sparse eigenvalues of the
    Hessian at x.

    Args:
        objective: over vectors.
        s: sparsity, an integer >= 1, static or traced; more than d count as d.
        x: (d,), the point of the Hessian; None: 0.

    Returns:
        A scalar, an estimate from below on both sides: a diagnostic, not a certificate. Infinity
        where m_s is rounding noise.

    Raises:
        ValueError: if the variable is not a vector.

    Cost: twice that of :func:`largest_sparse_eigenvalue`, with products of 2 n d.

    Source: Yuan, Li & Zhang 2018, §3; Axiotis & Sviridenko 2020, Definition 2.4.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.diag(jnp.array([1.0, 2.0])), jnp.ones(2), mean=False)
        >>> round(float(jaxht.spectral.restricted_condition_number(f, 1)), 2)
        4.0
    """
    objective = objective.prepare()
    zero = jnp.zeros(objective.shape, objective.dtype)
    x = zero if x is None else cast_point(x, objective)
    product = objective.hessian(x, objective.predict(x))
    diagonal = _diagonal(objective)
    top = largest_sparse_eigenvalue(product, diagonal, s, dtype=objective.dtype)
    bottom = smallest_sparse_eigenvalue(product, diagonal, s, dtype=objective.dtype)
    noise = objective.shape[0] * machine_eps(objective) * top
    is_positive = bottom > noise
    return jnp.where(is_positive, top / jnp.where(is_positive, bottom, 1), jnp.inf)


@shard_automatically
def restricted_step_size(objective: Objective, k: Numeric) -> Array:
    """Compute the step size of the theory of gradient hard thresholding pursuit, ``eta = 1 / (2
    M_2k)``.

    Args:
        objective: over vectors of length d.
        k: sparsity of the constraint, static or traced.

    Returns:
        Scalar; M_2k is estimated from below, see :func:`restricted_smoothness`, so that eta may be
        too large.

    Cost: that of :func:`largest_sparse_eigenvalue`.

    Source: Yuan, Li & Zhang 2018, Theorem 8 and §6.2.

    Example:
        >>> import numpy as np
        >>> from jaxht import LeastSquares, spectral
        >>> A = 2 * np.eye(5, dtype=np.float32)
        >>> round(float(spectral.restricted_step_size(LeastSquares(A, A[0], mean=False), 1)), 4)
        0.125
    """
    M = restricted_smoothness(objective, jnp.minimum(2 * k, objective.shape[0]))
    return inverse_smoothness(M) / 2


def _normalise(v: Array) -> Array:
    """Compute v / ||v||, without over- or underflow of the squares; 0 for v = 0."""
    tiny = float(jnp.finfo(real_dtype(v)).tiny)
    unit = v / jnp.clip(jnp.max(jnp.abs(v)), tiny, 1 / tiny)
    norm = jnp.sqrt(real_vdot(unit, unit))
    return unit / jnp.where(norm > 0, norm, 1)


def _diagonal(objective: Objective) -> Array:
    if len(objective.shape) != 1:
        raise ValueError(
            f"objective must be over vectors; its variable has shape {objective.shape}"
        )
    return jnp.broadcast_to(objective.majorant().preconditioner(), objective.shape)
