"""Other projections of parameters as optax transformations."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxht._checks import known_values
from jaxht._typing import Array, ArrayTree, Numeric
from jaxht.linalg import projections
from jaxht.linalg.inner_products import common_unit, squares, widen
from jaxht.transforms.base import Mask, apply_mask, check_inexact, is_function, make_projection
from jaxht.transforms.scope import Scope, count_kept


def low_rank(
    k: Any, *, mask: Mask | None = None, every: Numeric = 1
) -> optax.GradientTransformation:
    """Keep matrices at rank k, up to rounding, after every ``optax.apply_updates``.

    ``u -> P_k(p + u) - p`` with the projection :func:`jaxht.projections.low_rank` over the last two
    axes; further axes are a batch. Arrays with fewer than two axes are left alone.

    Args:
        k: the rank: an integer; a floating-point number, as a fraction of the largest possible
            rank; or a function of the step that gives either. Traced or not.
        mask: pytree of bool, or function from parameters to one: the arrays to project. None: all.
        every: project in every ``every``-th step only, an integer, traced or not.

    Returns:
        A transformation whose state is a count of steps.

    Raises:
        ValueError: for a k or every that cannot be, arrays of integers (with the array's path), or
            if ``update`` is not given the parameters.

    Cost: a full singular value decomposition an array and projected step.

    Source: Yuan, Li & Zhang 2018, §1 (rank-constrained problems); Zhou, Yuan & Feng 2018, (3).

    Example:
        >>> import jax.numpy as jnp
        >>> import optax
        >>> from jaxht import transforms
        >>> W, tx = jnp.diag(jnp.array([3.0, 2.0, 1.0])), transforms.low_rank(1)
        >>> updates, _ = tx.update(jnp.zeros((3, 3)), tx.init(W), W)
        >>> int(jnp.linalg.matrix_rank(optax.apply_updates(W, updates)))
        1
    """

    def project(params: ArrayTree, k: Any) -> ArrayTree:
        check_inexact(params, "the projection onto matrices of low rank")

        def project_array(p: Array) -> Array:
            return p if p.ndim < 2 else projections.low_rank(p, count_kept(k, min(p.shape[-2:])))

        return jax.tree.map(project_array, params)

    return apply_mask(make_projection(project, k, every), mask)


def l2_ball(
    radius: Any, *, scope: Scope | str = Scope.LEAF, mask: Mask | None = None, every: Numeric = 1
) -> optax.GradientTransformation:
    """Keep parameters in an l2 ball, up to rounding, after every ``optax.apply_updates``.

    ``u -> Pi_w(p + u) - p``. Zeros stay exactly zero, so after :func:`hard_threshold` in a chain it
    gives the exact projection onto the sparse vectors in the ball, and the parameters stay exactly
    sparse.

    Args:
        radius: w >= 0, or a function of the step that gives it; traced or not.
        scope: "leaf": a ball for each array; "global": one ball for all arrays together.
        mask: pytree of bool, or function from parameters to one: the arrays to project. None: all.
        every: project in every ``every``-th step only, an integer, traced or not.

    Returns:
        A transformation whose state is a count of steps.

    Raises:
        ValueError: for a radius, scope or every that cannot be, arrays of integers (with the array's
            path), or if ``update`` is not given the parameters.

    Cost: three passes over the parameters a step; sharded arrays are not gathered.

    Source: Shen & Li 2018, Algorithm 1, line 8.

    Example:
        >>> import jax.numpy as jnp
        >>> import optax
        >>> from jaxht import transforms
        >>> x, tx = jnp.array([3.0, 0.0, 4.0]), transforms.l2_ball(1.0)
        >>> updates, _ = tx.update(jnp.zeros(3), tx.init(x), x)
        >>> [round(float(entry), 4) for entry in optax.apply_updates(x, updates)]
        [0.6, 0.0, 0.8]
    """
    scope = Scope(scope)
    known = None if is_function(radius) else known_values(radius)
    if known is not None and known < 0:
        raise ValueError(f"radius must be at least 0; got {radius}")

    def project(params: ArrayTree, radius: Numeric) -> ArrayTree:
        check_inexact(params, "the projection onto an l2 ball")
        leaves, structure = jax.tree.flatten(params)
        wide = [widen(p) for p in leaves]
        norms = [_Norm.of(p) for p in wide]
        if scope is Scope.GLOBAL and norms:
            norms = [functools.reduce(_Norm.join, norms)] * len(norms)
        projected = [
            norm.project(p, radius).astype(leaf.dtype)
            for norm, p, leaf in zip(norms, wide, leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, projected)

    return apply_mask(make_projection(project, radius, every), mask)


class _Norm(NamedTuple):
    """The l2 norm of arrays, ``unit * sqrt(square)``, scalars, which neither over- nor
    underflow."""

    unit: Array
    square: Array

    @classmethod
    def of(cls, p: Array) -> "_Norm":
        """The norm of one array."""
        unit = common_unit(p).reshape(())
        return cls(unit, jnp.sum(squares(p / unit)))

    def join(self, other: "_Norm") -> "_Norm":
        """The norm of the arrays of both."""
        unit = jnp.maximum(self.unit, other.unit)
        parts = [norm.square * (norm.unit / unit) ** 2 for norm in (self, other)]
        return _Norm(unit, parts[0] + parts[1])

    def project(self, p: Array, radius: Numeric) -> Array:
        """One of the arrays, where all are scaled into a ball."""
        return projections.scale_into_ball(
            p, self.unit, self.square, jnp.asarray(radius, self.unit.dtype)
        )
