"""Projections onto the constraint sets: the nearest point of the set in the l2 norm."""

import jax.numpy as jnp

from jaxht._meshes import shard_like_first
from jaxht._typing import Array, Numeric
from jaxht.linalg.inner_products import common_unit, real_dtype, squares, widen
from jaxht.linalg.selection import k_largest_mask
from jaxht.linalg.svd import truncated_svd

__all__ = ["hard_threshold", "l2_ball", "low_rank", "sparse_l2_ball"]


@shard_like_first
def hard_threshold(z: Array, k: Numeric) -> Array:
    """Keep the k entries of largest magnitude along the last axis and set the rest to zero.

    ``H_k(z) = argmin { ||x - z|| : ||x||_0 <= k }``.

    Args:
        z: array of shape (..., d), real or complex.
        k: integer, static or traced, broadcastable to the leading shape; clipped to [0, d]. k = 0
            gives zero and k >= d the identity.

    Returns:
        Array like ``z`` with at most k nonzeros. Ties go to the lowest index; NaN ranks above
        infinity and is kept. The derivative with respect to ``z`` is the mask of the kept entries.

    Raises:
        ValueError: for a boolean or unsigned dtype.

    Cost: that of :func:`jaxht.selection.k_largest_mask`; independent of k.

    Source: Shen & Li 2018, §1.2.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import projections
        >>> projections.hard_threshold(jnp.array([1.0, -3.0, 2.0]), 2).tolist()
        [0.0, -3.0, 2.0]
    """
    return jnp.where(k_largest_mask(z, k), z, jnp.zeros((), z.dtype))


@shard_like_first
def l2_ball(v: Array, radius: Numeric) -> Array:
    """Project onto the ball of the given radius: ``Pi_w(v) = v / max(1, ||v|| / w)`` over the last
    axis.

    Args:
        v: array of shape (..., d), real or complex; half precision is squared in float32.
        radius: w >= 0, static or traced, broadcastable to the leading shape; infinity gives the
            identity.

    Returns:
        Array like ``v``, of norm at most ``radius`` up to rounding. Zero stays zero, also at radius
        0. The derivative with respect to v is the identity inside the ball and on its boundary, and
        ``w / ||v|| (I - v v' / ||v||^2)`` outside; with respect to w it is ``v / ||v||`` outside,
        else 0.

    Raises:
        ValueError: for integers and booleans.

    Cost: two passes over v.

    Source: Shen & Li 2018, §1.2.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import projections
        >>> projections.l2_ball(jnp.array([3.0, 4.0]), 2.5).tolist()
        [1.5, 2.0]
    """
    if not jnp.issubdtype(v.dtype, jnp.inexact):
        raise ValueError(f"v must be floating or complex; got {v.dtype}")
    wide = widen(v)
    unit = common_unit(wide, axis=-1)
    square = jnp.sum(squares(wide / unit), axis=-1, keepdims=True)
    radius = jnp.asarray(radius, real_dtype(wide))[..., None]
    return scale_into_ball(wide, unit, square, radius).astype(v.dtype)


def scale_into_ball(v: Array, unit: Array, square: Array, radius: Array) -> Array:
    """v where a norm, whose square in some unit is ``square``, is at most radius; else
    ``v radius / norm``."""
    # The quotient does not depend on the unit, so neither does its derivative.
    inside = jnp.sqrt(square) <= radius / unit
    # The root of 0 has no derivative.
    norm = jnp.sqrt(jnp.where(inside, 1, square))
    return jnp.where(inside, v, v / unit * (radius / norm))


@shard_like_first
def sparse_l2_ball(z: Array, k: Numeric, radius: Numeric) -> Array:
    """Project onto the k-sparse vectors of norm at most ``radius``: ``Pi_w(H_k(z))``.

    The composition in this order is the exact projection onto the intersection, since scaling does
    not change which entries are largest.

    Args:
        z: floating array of shape (..., d).
        k: as in :func:`hard_threshold`.
        radius: as in :func:`l2_ball`.

    Returns:
        Array like ``z`` with at most k nonzeros, of norm at most ``radius`` up to rounding. The
        derivative is that of :func:`l2_ball` on the kept entries, and 0 on the others.

    Cost: that of :func:`hard_threshold` and :func:`l2_ball`.

    Source: Shen & Li 2018, Algorithm 1, lines 7 and 8.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import projections
        >>> projections.sparse_l2_ball(jnp.array([3.0, 1.0, 4.0]), 2, 2.5).tolist()
        [1.5, 0.0, 2.0]
    """
    return l2_ball(hard_threshold(z, k), radius)


@shard_like_first
def low_rank(Z: Array, k: Numeric) -> Array:
    """Keep the k largest singular values of a matrix and set the rest to zero.

    ``P_k(Z) = argmin { ||X - Z||_F : rank(X) <= k } = U_k diag(s_k) V_k'`` over the last two axes.

    Args:
        Z: floating array of shape (..., m, n); half precision is decomposed in float32.
        k: rank, static or traced, broadcastable to the leading shape; 0 gives zero.

    Returns:
        Array like ``Z`` of rank at most k up to rounding. Of equal singular values the
        decomposition's first are kept. The derivative, where the singular values k and k + 1
        differ, is that of the projection: it moves the kept spaces as well. It is NaN where these
        two are equal, and there is none of complex arrays.

    Cost: a full singular value decomposition, ``O(m n min(m, n))``; independent of k. For large
    matrices, and where a matrix nearby is known, see :func:`jaxht.linalg.svd.truncated_svd`.

    Source: Yuan, Li & Zhang 2018, §1; Eckart & Young 1936.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import projections
        >>> X = projections.low_rank(jnp.diag(jnp.array([3.0, 2.0, 1.0])), 2)
        >>> [round(float(entry), 4) for entry in jnp.diagonal(X)]
        [3.0, 2.0, 0.0]
    """

    def project(Z, k):
        return truncated_svd(Z, k, exact=True).matrix

    in_single = widen(Z)
    return jnp.vectorize(project, signature="(m,n),()->(m,n)")(in_single, k).astype(Z.dtype)
