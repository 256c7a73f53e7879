"""Other projections of parameters as optax transformations."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from chex import Array, ArrayTree, Numeric

from jaxht.linalg import projections
from jaxht.transforms.base import Mask, masked, projection
from jaxht.transforms.scope import Scope, kept


def low_rank(k: Any, *, mask: Mask | None = None, every: Numeric = 1) -> optax.GradientTransformation:
    """Keep matrices at rank k: to rounding, after every ``optax.apply_updates``.

    ``u -> P_k(p + u) - p`` with the projection :func:`jaxht.projections.low_rank` over the last two axes; further axes
    are a batch. Arrays with fewer than two axes are left alone.

    Args:
        k: the rank, as an integer, as a fraction of the largest that is possible, or as a function of the step that
            gives either; traced or not.
        mask: the arrays to project, as in :func:`hard_threshold`.
        every: project in every so-many-th step only.

    Returns:
        A transformation with a step count as its state.

    Cost: a singular value decomposition an array and step.

    Source: Yuan, Li & Zhang 2018, §1 (rank-constrained problems); Zhou, Yuan & Feng 2018, (3).
    """

    def project(params: ArrayTree, k: Any) -> ArrayTree:
        def one(p: Array) -> Array:
            return p if p.ndim < 2 else projections.low_rank(p, kept(k, min(p.shape[-2:])))

        return jax.tree.map(one, params)

    return masked(projection(project, k, every), mask)


def l2_ball(
    radius: Any, *, scope: Scope | str = Scope.LEAF, mask: Mask | None = None, every: Numeric = 1
) -> optax.GradientTransformation:
    """Keep parameters in the l2 ball of a radius: to rounding, after every ``optax.apply_updates``.

    ``u -> Pi_w(p + u) - p``. Zeros stay exactly zero, so after :func:`hard_threshold` in a chain it gives the exact
    projection onto the sparse vectors in the ball, and the parameters stay exactly sparse.

    Args:
        radius: w >= 0, or a function of the step that gives it; traced or not.
        scope: "leaf", each array has its ball; "global", one ball for all arrays together.
        mask: the arrays to project, as in :func:`hard_threshold`.
        every: project in every so-many-th step only.

    Returns:
        A transformation with a step count as its state.

    Source: Shen & Li 2018, Algorithm 1, line 8.
    """
    scope = Scope(scope)

    def project(params: ArrayTree, radius: Numeric) -> ArrayTree:
        leaves, structure = jax.tree.flatten(params)
        wide = [p.astype(jnp.promote_types(p.dtype, jnp.float32)) for p in leaves]
        # The ball is one of the norms: scaled to it, each array keeps its share.
        norms = jnp.stack([jnp.sqrt(jnp.sum(p * p)) for p in wide]) if wide else jnp.zeros(0)
        inside = projections.l2_ball(norms, radius) if scope is Scope.GLOBAL else jnp.minimum(norms, radius)
        scales = jnp.where(inside < norms, inside / jnp.where(norms > 0, norms, 1), 1)
        scaled = [(p * scales[i]).astype(leaf.dtype) for i, (p, leaf) in enumerate(zip(wide, leaves, strict=True))]
        return jax.tree.unflatten(structure, scaled)

    return masked(projection(project, radius, every), mask)
