"""Hard thresholding of parameters: as an optax transformation, at once, and in the forward pass
only."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jaxht._loops import cond
from jaxht._typing import Array, ArrayTree, Leaf, Numeric
from jaxht.transforms.base import (
    Mask,
    apply_mask,
    check_every,
    check_params,
    evaluate_schedule,
    is_function,
    promote,
    run_if_due,
)
from jaxht.transforms.scope import AnyScope, Scope, check_scope, find_support


class HardThresholdState(NamedTuple):
    """State of :func:`hard_threshold`.

    Attributes:
        count: int32, steps taken.
        support: pytree of boolean arrays like the parameters, the support selected last; None
            without ``hold`` and ``freeze_at``.
    """

    count: Leaf
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
    r"""Keep the parameters exactly sparse after every ``optax.apply_updates``.

    .. math:: u \mapsto H_k(p + u) - p

    The last transformation of a chain: ``optax.chain(optax.adam(1e-3), hard_threshold(0.05))``.
    Entries that are kept become, to the last bit, what the transformations before it make of them;
    the others become 0.

    Args:
        k: how many entries to keep. An integer is their number; a floating-point number the
            fraction kept, from 0 to 1, rounded to the nearest number of entries; a function of the
            step (an optax schedule, or one of :mod:`jaxht.transforms`) gives either. All may be
            traced: one compile serves a whole schedule. With every scope but GLOBAL also a pytree
            of them, one for each array, see :func:`erdos_renyi_kernel`.
        scope: among which entries to select: "leaf", each array on its own; "global", all arrays
            together; :class:`Axis`, :class:`NM`, :class:`Blocks`. Static.
        mask: pytree of bool, or function from parameters to one, as in ``optax.masked``: True for
            the arrays to threshold. The others are left alone and not counted. None: all.
        every: threshold in every ``every``-th step only, an integer, traced or not.
        hold: static; between those steps keep the support fixed, instead of leaving the parameters
            free. The support is then selected in the first step too.
        freeze_at: the step (counted from 0) from which on the support no longer changes, traced or
            not. 0 keeps the zeros of the parameters given to ``init``: the fine-tuning of a pruned
            model.

    Returns:
        A transformation with state :class:`HardThresholdState`. The updates have the dtype that
        holds both those given and the parameters.

        Invariant: never more than k nonzeros in any array, vector or group of the scope, in any
        floating dtype, in each step that thresholds or holds, as long as the parameters are finite
        (no u makes an infinite p zero).

    Raises:
        ValueError: for a k, scope or every that cannot be, arrays that are not real floating or
            that the scope does not fit (with the array's path), or if ``update`` is not given the
            parameters.

    Cost: one selection, see :func:`jaxht.selection.k_largest_mask`; one boolean an entry of memory
    with ``hold`` or ``freeze_at``, otherwise none. Sharded parameters are not gathered in scopes
    "leaf" and "global", but for a sample.

    Source: H_k as in Shen & Li 2018, §1.2; thresholding after an update as in Zhou, Yuan & Feng
    2018, Algorithm 1. With ``optax.sgd(eta)`` before it a step is one of :class:`jaxht.IHT`.

    Example:
        >>> import jax.numpy as jnp
        >>> import optax
        >>> from jaxht import transforms
        >>> params = {"w": jnp.array([0.5, -2.0, 1.0, 3.0]), "b": jnp.array([1.0, 0.1])}
        >>> tx = optax.chain(optax.sgd(0.5), transforms.hard_threshold(0.5))
        >>> # the gradient of ||p||^2 / 2
        >>> updates, state = tx.update(params, tx.init(params), params)
        >>> new = optax.apply_updates(params, updates)
        >>> new["w"].tolist(), new["b"].tolist()
        ([0.0, -1.0, 0.0, 1.5], [0.5, 0.0])
    """
    check_scope(scope)
    check_every(every)
    keeps_support = hold or freeze_at is not None

    def init(params: ArrayTree) -> HardThresholdState:
        nonzero = jax.tree.map(lambda p: p != 0, params) if keeps_support else None
        return HardThresholdState(jnp.zeros((), jnp.int32), nonzero)

    def update(
        updates: ArrayTree, state: HardThresholdState, params: ArrayTree | None = None
    ) -> tuple[ArrayTree, HardThresholdState]:
        step = state.count
        check_params(params)
        q = optax.apply_updates(params, updates)

        def select() -> ArrayTree:
            each = jax.tree.map(lambda number: evaluate_schedule(number, step), k)
            return find_support(q, each, scope)

        support = None
        is_due = (step + 1) % every == 0
        if not keeps_support:
            kept = run_if_due(
                is_due, every, select, lambda: jax.tree.map(lambda p: (p != 0) | True, q)
            )
        else:
            frozen = False if freeze_at is None else step >= freeze_at
            is_due = (is_due | (hold & (step == 0))) & jnp.logical_not(frozen)
            support = cond(is_due, select, lambda: state.support)
            is_free = jnp.logical_not(is_due | frozen | hold)
            kept = jax.tree.map(lambda mask: mask | is_free, support)

        def keep(kept: Array, p: Array, u: Array) -> Array:
            # p + u is what it was and p + (-p) is exactly 0, where p + (q - p) would be neither.
            p, u = promote(p, u)
            return jnp.where(kept, u, -p)

        return jax.tree.map(keep, kept, params, updates), HardThresholdState(
            optax.safe_increment(step), support
        )

    return apply_mask(optax.GradientTransformation(init, update), mask)


def prune(
    params: ArrayTree, k: Any, *, scope: AnyScope = Scope.LEAF, mask: Mask | None = None
) -> ArrayTree:
    """Hard-threshold parameters at once: ``H_k(params)``, magnitude pruning.

    Args:
        params: pytree of real floating arrays.
        k: how many entries to keep: a number, a fraction, or a pytree of them, as in
            :func:`hard_threshold`.
        scope: among which entries to select, as in :func:`hard_threshold`.
        mask: pytree of bool, or function from parameters to one: the arrays to threshold. None:
            all.

    Returns:
        Pytree like ``params``.

    Raises:
        ValueError: as :func:`hard_threshold`.

    Cost: one selection, see :func:`jaxht.selection.k_largest_mask`.

    Source: H_k as in Shen & Li 2018, §1.2.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import transforms
        >>> transforms.prune(jnp.array([1.0, -3.0, 2.0]), 2).tolist()
        [0.0, -3.0, 2.0]
    """
    return jax.tree.map(_drop, params, _compute_drop(params, k, scope, mask))


def straight_through(
    params: ArrayTree, k: Any, *, scope: AnyScope = Scope.LEAF, mask: Mask | None = None
) -> ArrayTree:
    """``H_k(params)`` whose derivative is that of the identity: the straight-through estimator.

    For dense parameters that are thresholded in the forward pass only:
    ``loss(straight_through(params, 0.05), batch)``. The gradient, taken at the sparse point, also
    changes entries outside the support, so they can come back. After training, :func:`prune` the
    parameters.

    Args:
        params: pytree of real floating arrays.
        k: how many entries to keep: a number, a fraction, or a pytree of them; the value of a
            schedule at the present step, not the schedule.
        scope: among which entries to select, as in :func:`hard_threshold`.
        mask: pytree of bool, or function from parameters to one: the arrays to threshold. None:
            all.

    Returns:
        Pytree like ``params``.

    Raises:
        ValueError: as :func:`hard_threshold`.

    Cost: that of :func:`prune`.

    Source: Bengio, Léonard & Courville 2013; with H_k, as in Jayakumar et al. 2020 (Top-KAST),
    dense backward.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import transforms
        >>> def loss(x):
        ...     return (transforms.straight_through(x, 1) ** 2).sum() / 2 + x.sum()
        >>> jax.grad(loss)(jnp.array([1.0, -3.0])).tolist()
        [1.0, -2.0]
    """
    drop = lax.stop_gradient(_compute_drop(params, k, scope, mask))
    return jax.tree.map(lambda p, u: _with_derivative_of(p, _drop(p, u)), params, drop)


def _drop(p: Array, u: Array) -> Array:
    """``p + u`` for u that are 0 or -p, also where p is infinite; 0 where XLA takes p as 0."""
    if not jnp.issubdtype(jnp.result_type(p), jnp.floating):  # masked out: integers, PRNG keys
        return p
    return jnp.where((u == 0) & (p != 0), p, jnp.zeros((), jnp.result_type(p)))


@jax.custom_jvp
def _with_derivative_of(p: Array, value: Array) -> Array:
    """The value, with the derivative of p."""
    return value


@_with_derivative_of.defjvp
def _with_derivative_of_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    return primals[1], tangents[0]


def _compute_drop(params: ArrayTree, k: Any, scope: AnyScope, mask: Mask | None) -> ArrayTree:
    """0 for the entries that are kept, -p for the others."""
    if any(map(is_function, jax.tree.leaves(k))):
        raise ValueError(f"k must be the value of a schedule at a step; got the schedule {k!r}")
    tx = hard_threshold(k, scope=scope, mask=mask)
    return tx.update(jax.tree.map(jnp.zeros_like, params), tx.init(params), params)[0]
