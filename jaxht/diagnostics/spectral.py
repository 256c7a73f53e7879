"""Extreme eigenvalues, of all vectors and of sparse ones, and the step sizes that follow from them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from chex import Array, Numeric
from jax import lax

from jaxht.linalg.eigenvalues import SAFETY, largest_eigenvalue, normalised
from jaxht.linalg.projections import hard_threshold
from jaxht.linalg.selection import k_largest_mask, mask_to_indices
from jaxht.objectives.objective import Objective

NUM_STARTS = 16
MAX_POWER_STEPS = 100


def largest_sparse_eigenvalue(
    product: Callable[[Array], Array], diagonal: Array, s: Numeric, rtol: Numeric = 1e-4
) -> Array:
    """Estimate ``lambda_max(B, s) = max { v'Bv : ||v|| = 1, ||v||_0 <= s }`` from below, by truncated power steps.

    ``v <- H_s(Bv) / ||H_s(Bv)||`` until v'Bv stops rising, from the coordinate vectors of the NUM_STARTS largest
    diagonal entries and from as many pseudo-random vectors; the best counts.

    Args:
        product: v (d,) -> B v (d,), B symmetric positive semi-definite.
        diagonal: (d,) that of B, or anything near it: it chooses starts.
        s: sparsity, static or traced, at least 1.
        rtol: ends when no start has risen by more, relative to its value; traced.

    Returns:
        Scalar, at most the true value, which it may miss: a heuristic, not a certificate.

    Cost: 2 NUM_STARTS products a step, at most MAX_POWER_STEPS steps.

    Source: Yuan & Zhang 2013, as used in Yuan, Li & Zhang 2018, §6.2.
    """
    d, dtype = diagonal.shape[0], diagonal.dtype
    num = min(NUM_STARTS, d)
    largest = mask_to_indices(k_largest_mask(diagonal, num), num)
    vertices = (largest[:, None] == lax.iota(jnp.int32, d)).astype(dtype)
    random = jax.random.normal(jax.random.key(0), (NUM_STARTS, d), dtype)
    v = jnp.concatenate([vertices, jax.vmap(lambda z: normalised(hard_threshold(z, s))[0])(random)])

    def step(carry: Any) -> Any:
        count, _, v, image, value = carry
        v = jax.vmap(lambda z: normalised(hard_threshold(z, s))[0])(image)
        image = jax.vmap(product)(v)
        new = jnp.sum(v * image, axis=1)
        return count + 1, jnp.any(new > (1 + rtol) * value), v, image, jnp.maximum(value, new)

    image = jax.vmap(product)(v)
    start = (0, jnp.array(True), v, image, jnp.sum(v * image, axis=1))
    value = lax.while_loop(lambda carry: (carry[0] < MAX_POWER_STEPS) & carry[1], step, start)[-1]
    return jnp.max(value)


def smallest_sparse_eigenvalue(product: Callable[[Array], Array], diagonal: Array, s: Numeric) -> Array:
    """Estimate ``lambda_min(B, s)`` from above, as ``c - lambda_max(c I - B, s)`` with c above all eigenvalues of B.

    Arguments and cost as in :func:`largest_sparse_eigenvalue`. The result is at least the true value but for rounding,
    which is that of c.

    Source: Yuan, Li & Zhang 2018, §6.2.
    """
    c = SAFETY * largest_eigenvalue(product, diagonal.shape[0], diagonal.dtype)
    # c is large against what is looked for, so the rise of its difference is slow.
    rtol = 10 * float(jnp.finfo(diagonal.dtype).eps)
    return c - largest_sparse_eigenvalue(lambda v: c * v - product(v), c - diagonal, s, rtol)


def restricted_smoothness(objective: Objective, s: Numeric) -> Array:
    """Estimate M_s, the smoothness of f along s-sparse directions: ``eta = 1 / (2 M_2k)`` is the step of the theory.

    The largest s-sparse eigenvalue of the objective's majorant of the Hessian: for linear models ``c b A'SA + l2``, b
    the bound on the curvature of the loss; for any function the Hessian at 0.

    Args:
        objective: over vectors.
        s: sparsity, static or traced.

    Returns:
        Scalar, from below: see :func:`largest_sparse_eigenvalue`.

    Source: Yuan, Li & Zhang 2018, Theorem 8 and §6.2, where the Hessian of the logistic loss lacks its 1/n.
    """
    return largest_sparse_eigenvalue(objective.majorant(), _diagonal(objective), s)


def restricted_condition_number(objective: Objective, s: Numeric, x: Array | None = None) -> Array:
    """Estimate ``kappa_s = M_s / m_s``, the ratio of the extreme s-sparse eigenvalues of the Hessian at x.

    Args:
        objective: over vectors.
        s: sparsity, static or traced.
        x: (d,); 0 by default.

    Returns:
        Scalar, from below on both sides: a diagnostic, not a certificate. Infinity where m_s is rounding noise.

    Source: Yuan, Li & Zhang 2018, §3; Axiotis & Sviridenko 2020, Definition 2.4.
    """
    x = jnp.zeros(objective.shape, objective.dtype) if x is None else x
    product, diagonal = objective.hessian(x, objective.predict(x)), _diagonal(objective)
    top, bottom = largest_sparse_eigenvalue(product, diagonal, s), smallest_sparse_eigenvalue(product, diagonal, s)
    noise = objective.shape[0] * float(jnp.finfo(objective.dtype).eps) * top
    return jnp.where(bottom > noise, top / jnp.where(bottom > noise, bottom, 1), jnp.inf)


def _diagonal(objective: Objective) -> Array:
    if len(objective.shape) != 1:
        raise ValueError(f"objective must be over vectors; its variable has shape {objective.shape}")
    return jnp.broadcast_to(objective.majorant().preconditioner(), objective.shape)
