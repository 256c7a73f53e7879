"""Momentum of the thresholded iterates, and resets of an optimiser's moments where the support
changes."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxht._typing import Array, ArrayTree, Numeric
from jaxht.transforms.base import check_params, is_masked


class PolyakMomentumState(NamedTuple):
    """State of :func:`polyak_momentum`.

    Attributes:
        prev: the parameters of the step before.
    """

    prev: ArrayTree


def polyak_momentum(momentum: Numeric) -> optax.GradientTransformation:
    r"""Add the last displacement of the parameters: ``u -> u + nu (p - p_prev)``.

    .. math:: x^{t+1} = H_k\bigl(x^t - \eta g^t + \nu (x^t - x^{t-1})\bigr)

    as ``optax.chain(optax.sgd(eta), polyak_momentum(nu), hard_threshold(k))``. The displacement is that
    of the *thresholded*
    iterates: an entry that was zero in both steps has none. ``optax.sgd(eta, momentum=nu)`` is
    another method: it sums the gradients of all entries, so that entries outside the support gather
    momentum and re-enter with it. Without a projection, and from rest, both are the same method.

    Args:
        momentum: nu in [0, 1), traced or not.

    Returns:
        A transformation with state :class:`PolyakMomentumState`, a copy of the parameters. The first
        step has no displacement.

    Raises:
        ValueError: if ``update`` is not given the parameters.

    Cost: one pass over the parameters a step, and a copy of them.

    Source: Zhou, Yuan & Feng 2018, Algorithm 1, (O2): AHSG-HT; :class:`jaxht.IHT` with
    ``momentum``.

    Example:
        >>> import jax.numpy as jnp
        >>> import optax
        >>> from jaxht import transforms
        >>> x, tx = jnp.zeros(2), optax.chain(optax.sgd(1.0), transforms.polyak_momentum(0.5))
        >>> state = tx.init(x)
        >>> for _ in range(2):
        ...     updates, state = tx.update(jnp.array([-1.0, 0.0]), state, x)
        ...     x = optax.apply_updates(x, updates)
        >>> x.tolist()
        [2.5, 0.0]
    """

    def init(params: ArrayTree) -> PolyakMomentumState:
        return PolyakMomentumState(jax.tree.map(jnp.array, params))

    def update(
        updates: ArrayTree, state: PolyakMomentumState, params: ArrayTree | None = None
    ) -> tuple[ArrayTree, PolyakMomentumState]:
        check_params(params)
        new = jax.tree.map(
            lambda u, p, prev: u + (momentum * (p - prev)).astype(u.dtype),
            updates,
            params,
            state.prev,
        )
        return new, PolyakMomentumState(params)

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
    """``optax.chain(inner, threshold)`` that resets the state of ``inner`` for entries that leave
    or enter the support.

    ``reset_moments(optax.adam(1e-3), hard_threshold(0.05))``. In a plain chain Adam updates the
    moments of all entries, inside the support or not. Here, where an entry leaves or enters, every
    array of ``inner``'s state that belongs to the parameters is set to what ``inner.init`` gives
    for the new parameters. These arrays are found by structure alone: a part of the state with the
    tree structure of the parameters, and in it the floating arrays with their shapes; so it works
    for any optimiser, also inside ``optax.masked`` or ``optax.partition``. Factored moments
    (Adafactor's) belong to rows and columns, not to entries, and stay.

    Args:
        inner: the optimiser.
        threshold: the transformation that sets entries to zero, such as :func:`hard_threshold`.
        leave: static; reset entries that become 0.
        enter: static; reset entries that were 0, of arrays that still have zeros.

    Returns:
        A transformation with state :class:`ResetState`.

    Raises:
        ValueError: if ``update`` is not given the parameters.

    Cost: one ``inner.init`` and one pass over the state a step.

    Source: our own; Evci et al. 2020 (RigL) also reset the momentum of new connections.

    Example:
        >>> import jax.numpy as jnp
        >>> import optax
        >>> from jaxht import transforms
        >>> tx = transforms.reset_moments(optax.adam(0.1), transforms.hard_threshold(1))
        >>> x = jnp.array([1.0, 2.0])
        >>> updates, state = tx.update(jnp.ones(2), tx.init(x), x)
        >>> [round(float(entry), 3) for entry in state.inner[0].mu]  # the first left the support
        [0.0, 0.1]
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
        check_params(params)
        new = optax.apply_updates(params, updates)

        def find_changes(p: Array, q: Array) -> Array:
            # An array without zeros is dense: no entry of it has entered a support.
            has_entered = (p == 0) & (q != 0) & jnp.any(q == 0)
            return (leave & (p != 0) & (q == 0)) | (enter & has_entered)

        changed = jax.tree.map(find_changes, params, new)
        return updates, ResetState(
            _reset_where(inner_state, inner.init(new), changed), threshold_state
        )

    return optax.GradientTransformationExtraArgs(init, update)


def _reset_where(state: Any, fresh: Any, changed: ArrayTree) -> Any:
    """``state`` with the entries of ``fresh`` where ``changed``, in its parts that have the
    parameters' structure."""
    structure: Any = jax.tree_util.tree_structure(changed, is_leaf=is_masked)

    def is_like_params(node: Any) -> bool:
        return structure == jax.tree_util.tree_structure(node, is_leaf=is_masked)

    def reset_array(old: Any, new: Any, changed: Array) -> Any:
        if (
            is_masked(old)
            or is_masked(changed)
            or jnp.shape(old) != changed.shape
            or not jnp.issubdtype(old.dtype, jnp.floating)
        ):
            return old
        return jnp.where(changed, new, old)

    def reset_part(old: Any, new: Any) -> Any:
        return (
            jax.tree.map(reset_array, old, new, changed, is_leaf=is_masked)
            if is_like_params(old)
            else old
        )

    return jax.tree.map(reset_part, state, fresh, is_leaf=is_like_params)
