"""Hard thresholding of parameters: as an optax transformation, at once, and in the forward pass only."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from chex import Array, ArrayTree, Numeric
from jax import lax

from jaxht.transforms.base import Mask, at_step, check_every, in_common, masked, moved, on_turn
from jaxht.transforms.scope import AnyScope, Scope, checked, support


class HardThresholdState(NamedTuple):
    """State of :func:`hard_threshold`.

    Attributes:
        count: int32, steps taken.
        support: pytree of boolean arrays like the parameters, the support chosen last; None where it is not kept
            from one step to the next.
    """

    count: Array
    support: ArrayTree | None


def hard_threshold(
    k: Any,
    *,
    scope: AnyScope = Scope.LEAF,
    mask: Mask | None = None,
    every: Numeric = 1,
    hold: bool = False,
    freeze_at: Numeric | None = None,
) -> optax.GradientTransformation:
    r"""Keep the parameters sparse: exactly, after every ``optax.apply_updates``.

    .. math:: u \mapsto H_k(p + u) - p

    The last link of a chain: ``optax.chain(optax.adam(1e-3), hard_threshold(0.05))``. Entries that are kept become, to
    the last bit, what the links before it make of them; the others become 0.

    Args:
        k: how many entries to keep. An integer is their number; a floating-point number the fraction kept, from 0 to
            1, rounded to the nearest number of entries; a function of the step (an optax schedule, or one of
            :mod:`jaxht.transforms`) gives either. All may be traced: one compile serves a whole schedule. With every
            scope but GLOBAL also a pytree of them, one for each array, see :func:`erdos_renyi_kernel`.
        scope: among which entries: "leaf", each array on its own; "global", all arrays together; :class:`Axis`,
            :class:`NM`, :class:`Blocks`.
        mask: pytree of bool, or function from parameters to one, as in ``optax.masked``: True for the arrays to
            threshold. The others are left alone and not counted. None: all.
        every: threshold in every so-many-th step only, traced or not.
        hold: between those steps keep the support fixed, instead of leaving the parameters free. The support is then
            chosen in the first step too.
        freeze_at: the step (counted from 0) from which on the support no longer changes, traced or not. 0 keeps the
            zeros of the parameters given to ``init``: the fine-tuning of a pruned model.

    Returns:
        A transformation with state :class:`HardThresholdState`. The updates have the dtype that holds both those
        given and the parameters.

    Invariant: never more than k nonzeros wherever k entries are sought and the parameters are finite (p + u = 0
    cannot be had from an infinite p), in any floating dtype, in each step that thresholds or holds.

    Raises:
        ValueError: for a k, scope or every that cannot be, arrays that are not real floating or that the scope does
            not fit (with the array's path), or if ``update`` is not given the parameters.

    Cost: one selection, see :func:`jaxht.selection.k_largest_mask`; one boolean an entry of memory with ``hold`` or
    ``freeze_at``, otherwise none. Sharded parameters are not gathered in scopes "leaf" and "global".

    Source: H_k as in Shen & Li 2018, §1.2; thresholding after an update as in Zhou, Yuan & Feng 2018, Algorithm 1.
    With ``optax.sgd(eta)`` before it a step is one of :class:`jaxht.IHT`.
    """
    scope = checked(scope)
    check_every(every)
    remembers = hold or freeze_at is not None

    def init(params: ArrayTree) -> HardThresholdState:
        nonzero = jax.tree.map(lambda p: p != 0, params) if remembers else None
        return HardThresholdState(jnp.zeros((), jnp.int32), nonzero)

    def update(
        updates: ArrayTree, state: HardThresholdState, params: ArrayTree | None = None
    ) -> tuple[ArrayTree, HardThresholdState]:
        step = state.count
        q = moved(params, updates)

        def choose() -> ArrayTree:
            return support(q, at_step(k, step), scope)

        due = (step + 1) % every == 0
        if not remembers:
            chosen = on_turn(due, every, choose, lambda: jax.tree.map(lambda p: jnp.ones(p.shape, bool), q))
            kept, remembered = chosen, None
        else:
            frozen = False if freeze_at is None else step >= freeze_at
            due = (due | (hold & (step == 0))) & jnp.logical_not(frozen)
            remembered = lax.cond(due, choose, lambda: state.support)
            free = jnp.logical_not(due | frozen | hold)
            kept = jax.tree.map(lambda mask: mask | free, remembered)

        def keep(kept: Array, p: Array, u: Array) -> Array:
            # p + u is what it was and p + (-p) is exactly 0, where p + (q - p) would be neither.
            p, u = in_common(p, u)
            return jnp.where(kept, u, -p)

        return jax.tree.map(keep, kept, params, updates), HardThresholdState(optax.safe_increment(step), remembered)

    return masked(optax.GradientTransformation(init, update), mask)


def prune(params: ArrayTree, k: Any, *, scope: AnyScope = Scope.LEAF, mask: Mask | None = None) -> ArrayTree:
    """Hard-threshold parameters at once: ``H_k(params)``, magnitude pruning. Arguments as in :func:`hard_threshold`."""
    return optax.apply_updates(params, _dropped(params, k, scope, mask))


def straight_through(params: ArrayTree, k: Any, *, scope: AnyScope = Scope.LEAF, mask: Mask | None = None) -> ArrayTree:
    """``H_k(params)`` whose derivative is that of the identity: the straight-through estimator.

    For dense parameters that are thresholded in the forward pass only: ``loss(straight_through(params, 0.05), batch)``.
    The gradient, taken at the sparse point, also moves entries that are out, so they can come back. What to use after
    training is :func:`prune` of the parameters. Arguments as in :func:`hard_threshold`, for the present step: give a
    schedule's value, not the schedule.

    Source: Bengio, Léonard & Courville 2013; with H_k, as in Jayakumar et al. 2020 (Top-KAST), dense backward.
    """
    return jax.tree.map(jnp.add, params, lax.stop_gradient(_dropped(params, k, scope, mask)))


def _dropped(params: ArrayTree, k: Any, scope: AnyScope, mask: Mask | None) -> ArrayTree:
    """0 for the entries that are kept, -p for the others."""
    tx = hard_threshold(k, scope=scope, mask=mask)
    return tx.update(jax.tree.map(jnp.zeros_like, params), tx.init(params), params)[0]
