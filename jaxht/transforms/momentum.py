"""Momentum of the thresholded iterates, and what a change of support does to an optimiser's memory."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from chex import Array, ArrayTree, Numeric

from jaxht.transforms.base import check_given, is_masked, moved


class HeavyBallState(NamedTuple):
    """State of :func:`heavy_ball`.

    Attributes:
        prev: the parameters of the step before.
    """

    prev: ArrayTree


def heavy_ball(momentum: Numeric) -> optax.GradientTransformation:
    r"""Add the last displacement of the parameters: ``u -> u + nu (p - p_prev)``.

    .. math:: x^{t+1} = H_k\bigl(x^t - \eta g^t + \nu (x^t - x^{t-1})\bigr)

    as ``optax.chain(optax.sgd(eta), heavy_ball(nu), hard_threshold(k))``. The displacement is that of the *thresholded*
    iterates: what the projection has taken away is gone, and an entry that was out in both steps has none. The trace
    of ``optax.sgd(eta, momentum=nu)`` is another: it sums the gradients of all entries for ever, so entries that are
    out gather momentum and re-enter with it. Without a projection, and from rest, both are the same method.

    Args:
        momentum: nu in [0, 1), traced or not.

    Returns:
        A transformation with state :class:`HeavyBallState`: a copy of the parameters. The first step has no
        displacement.

    Source: Zhou, Yuan & Feng 2018, Algorithm 1, (O2): AHSG-HT; :class:`jaxht.IHT` with ``momentum``.
    """

    def init(params: ArrayTree) -> HeavyBallState:
        return HeavyBallState(jax.tree.map(jnp.array, params))

    def update(
        updates: ArrayTree, state: HeavyBallState, params: ArrayTree | None = None
    ) -> tuple[ArrayTree, HeavyBallState]:
        check_given(params)
        new = jax.tree.map(lambda u, p, prev: u + (momentum * (p - prev)).astype(u.dtype), updates, params, state.prev)
        return new, HeavyBallState(params)

    return optax.GradientTransformation(init, update)


class ResetState(NamedTuple):
    """State of :func:`reset_moments`: those of its two parts."""

    inner: Any
    threshold: Any


def reset_moments(
    inner: optax.GradientTransformation,
    threshold: optax.GradientTransformation,
    *,
    leave: bool = True,
    enter: bool = True,
) -> optax.GradientTransformationExtraArgs:
    """``optax.chain(inner, threshold)`` that makes ``inner`` forget entries whose support membership changes.

    ``reset_moments(optax.adam(1e-3), hard_threshold(0.05))``. In a plain chain the moments of Adam go on over all
    entries, in the support or out. Here, where an entry leaves or enters, every array of ``inner``'s state that
    belongs to the parameters goes back to what ``inner.init`` gives for the new parameters. Which those are is told by
    their place alone: a part of the state with the tree structure of the parameters, and in it the floating arrays
    with their shapes; so it serves any optimiser, also inside ``optax.masked`` or ``optax.partition``. Factored
    moments (Adafactor's) belong to rows and columns, not to entries, and stay.

    Args:
        inner: the optimiser.
        threshold: the transformation that sets entries to zero, such as :func:`hard_threshold`.
        leave: static; reset entries that become 0.
        enter: static; reset entries that were 0.

    Returns:
        A transformation with state :class:`ResetState`.

    Cost: one ``inner.init`` and one pass over the state a step.
    """
    inner = optax.with_extra_args_support(inner)
    threshold = optax.with_extra_args_support(threshold)

    def init(params: ArrayTree) -> ResetState:
        return ResetState(inner.init(params), threshold.init(params))

    def update(
        updates: ArrayTree, state: ResetState, params: ArrayTree | None = None, **extra: Any
    ) -> tuple[ArrayTree, ResetState]:
        updates, inner_state = inner.update(updates, state.inner, params, **extra)
        updates, threshold_state = threshold.update(updates, state.threshold, params, **extra)
        new = moved(params, updates)

        def changes(p: Array, q: Array) -> Array:
            return (leave & (p != 0) & (q == 0)) | (enter & (p == 0) & (q != 0))

        changed = jax.tree.map(changes, params, new)
        return updates, ResetState(_reset(inner_state, inner.init(new), changed), threshold_state)

    return optax.GradientTransformationExtraArgs(init, update)


def _reset(state: Any, fresh: Any, changed: ArrayTree) -> Any:
    """``state`` with the entries of ``fresh`` where ``changed``, in its parts that are like the parameters."""
    structure: Any = jax.tree_util.tree_structure(changed)

    def is_like_params(node: Any) -> bool:
        return structure == jax.tree_util.tree_structure(node, is_leaf=is_masked)

    def one(old: Any, new: Any, changed: Array) -> Any:
        if is_masked(old) or jnp.shape(old) != changed.shape or not jnp.issubdtype(old.dtype, jnp.floating):
            return old
        return jnp.where(changed, new, old)

    def part(old: Any, new: Any) -> Any:
        return jax.tree.map(one, old, new, changed, is_leaf=is_masked) if is_like_params(old) else old

    return jax.tree.map(part, state, fresh, is_leaf=is_like_params)
