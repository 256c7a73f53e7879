"""The perspective of a ridge under a sparsity constraint, where some items are fixed, and its
proximal operator."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxht._loops import while_loop
from jaxht._typing import Array, Leaf
from jaxht.constraints import SelectionConstraint


class Node(NamedTuple):
    """A set of supports."""

    included: Leaf  # bool (m,), the items that are in all of them
    excluded: Leaf  # bool (m,), the items that are in none


def has_perspective(constraint: Any) -> bool:
    """Whether the points of a constraint are sparse in entries, or in groups that do not meet, and
    any of these may be selected together."""
    return constraint.items_partition and constraint.is_uniform


def spread(constraint: Any, per_item: Array) -> Array:
    """The entry of its item for each coordinate: (d,)."""
    return per_item if constraint.selects_entries else per_item[constraint.groups]


# By how much the sum of z may be off, relative to k.
SUM_RTOL = 1e-10


def perspective_prox(
    constraint: SelectionConstraint, node: Node, v: Array, scale: Array
) -> tuple[Array, Array, Array]:
    r"""The proximal operator of the perspective term.

    .. math::
        \arg\min_{x,\, z}\ \tfrac12 \|x - v\|^2 + \tfrac{s}{2} \sum_g \frac{\|x_g\|^2}{z_g}

    over x and z as above. For a multiplier tau of the sum of z, with a = ||v_g|| and a bound u of
    ||x_g||,

    .. math::
        z = a \sqrt{s / 2 \tau} - s \ (2 \tau \le s u^2), \qquad
        z = (a - s u / 2 - \tau / u) / u \ \text{ (else)},
        \qquad \|x_g\| = \min(a z / (z + s),\ z u)

    each z clipped to [0, 1]; tau is the root of their sum less k. Of groups of several coordinates
    the finite bounds are applied to x afterwards: then x is not the minimiser, but a point from
    which bounds are as valid. Returns x, z and ``sum_g ||x_g||^2 / z_g``.

    Source: for Sparse without bounds Argyriou, Foygel & Srebro 2012, the k-support norm.
    """
    is_excluded = spread(constraint, node.excluded)
    v = constraint.feasible_direction(jnp.where(is_excluded, 0, v))
    a = constraint.scores(v)
    free = ~(node.included | node.excluded)
    most = None
    if constraint.bounds is not None and constraint.selects_entries:
        lower, upper = constraint.bounds
        most = jnp.where(v > 0, upper, -lower) * jnp.ones_like(v)

    def shares(root):
        """z for tau = 1 / root^2; for infinite root of a without bounds 1."""
        is_nonzero = a > 0
        slope = jnp.sqrt(scale / 2) * root
        z = jnp.where(is_nonzero, a * slope - scale, 0)
        if most is not None:
            is_bounded = jnp.isfinite(most) & (most > 0)
            u = jnp.where(is_bounded, most, 1)
            tau = 1 / root**2
            capped = (a - scale * u / 2 - tau / u) / u
            is_capped = 2 * tau >= scale * most**2
            capped = jnp.where(most > 0, capped, 0)
            z = jnp.where(is_capped, capped, z)
        z = jnp.clip(z, 0, 1)
        return jnp.where(free, z, 0)

    def excess(root):
        return jnp.sum(shares(root)) - left

    left = constraint.limit - jnp.sum(node.included)
    precision = jnp.finfo(a.dtype)
    largest = jnp.max(jnp.where(free, a, 0))
    # Where all z are 0.
    start = jnp.sqrt(2 * scale) / jnp.maximum(largest, float(precision.tiny))
    atol = max(SUM_RTOL, 8 * float(precision.eps)) * left
    root = find_root(excess, start, atol)
    num_free = jnp.sum(free & (a > 0))
    root = jnp.where(num_free <= left, jnp.inf, root)
    z = jnp.where(node.included, 1, shares(root))
    norms = a * z / jnp.where(z > 0, z + scale, 1)
    if most is not None:
        norms = jnp.where(z > 0, jnp.minimum(norms, z * most), 0)
    shrinkage = norms / jnp.where(a > 0, a, 1)
    x = v * spread(constraint, shrinkage)
    if constraint.bounds is not None and not constraint.selects_entries:
        x = jnp.clip(x, *constraint.bounds)
        norms = constraint.scores(x)
    return x, z, jnp.sum(norms**2 / jnp.where(z > 0, z, 1))


class Bracket(NamedTuple):
    """The state of the search for a root: the last trial, and points on both sides of the root."""

    count: Leaf
    x: Leaf
    value: Leaf
    low: Leaf
    at_low: Leaf
    high: Leaf
    at_high: Leaf


MAX_ROOT_TRIES = 60  # of a root


def find_root(function: Callable[[Array], Array], start: Array, atol: Array) -> Array:
    """Find a root, up to ``atol``, of an increasing function that is at most 0 at ``start`` > 0.

    By doubling, then by the Illinois method (Dowell & Jarratt 1971). The function is linear between
    kinks, so that few steps suffice.
    """

    def step(b):
        has_high = jnp.isfinite(b.high)
        width = jnp.where(has_high, b.high - b.low, 1)
        share = -b.at_low / (b.at_high - b.at_low)
        share = jnp.clip(share, 0.01, 0.99)
        inner = b.low + share * width
        x = jnp.where(has_high, inner, 2 * b.low)
        value = function(x)
        below = value <= 0
        # The value at an end that stays once more is halved.
        was_below = b.value <= 0
        factor = jnp.where(below == was_below, 0.5, 1.0)
        return Bracket(
            count=b.count + 1,
            x=x,
            value=value,
            low=jnp.where(below, x, b.low),
            at_low=jnp.where(below, value, factor * b.at_low),
            high=jnp.where(below, b.high, x),
            at_high=jnp.where(below, factor * b.at_high, value),
        )

    def goes_on(b):
        is_far = jnp.abs(b.value) > atol
        return is_far & (b.count < MAX_ROOT_TRIES)

    unknown = jnp.full_like(start, jnp.inf)
    value = function(start)
    begin = Bracket(
        count=jnp.zeros((), jnp.int32),
        x=start,
        value=value,
        low=start,
        at_low=value,
        high=unknown,
        at_high=unknown,
    )
    return while_loop(goes_on, step, begin).x
