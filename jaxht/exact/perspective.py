"""The perspective of a ridge under a sparsity constraint, where some items are fixed, and its
proximal operator."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxht._loops import while_loop
from jaxht._typing import Array, Leaf
from jaxht.constraints import Constraint, Groups, SelectionConstraint, Sparse


class Node(NamedTuple):
    """A set of supports."""

    included: Leaf  # bool (m,), the items that are in all of them
    excluded: Leaf  # bool (m,), the items that are in none


def has_perspective(constraint: Constraint) -> bool:
    """Whether the points of a constraint are sparse in entries, or in groups that do not meet, and
    any of these may be selected together."""
    return isinstance(constraint, Sparse | Groups) and constraint.is_uniform


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
    v = constraint.feasible_direction(jnp.where(spread(constraint, node.excluded), 0, v))
    a = constraint.scores(v)
    free = ~(node.included | node.excluded)
    most = None
    if constraint.bounds is not None and constraint.selects_entries:
        lower, upper = constraint.bounds
        most = jnp.where(v > 0, upper, -lower) * jnp.ones_like(v)

    def shares(root):
        """z for tau = 1 / root^2; for infinite root of a without bounds 1."""
        z = jnp.where(a > 0, a * (jnp.sqrt(scale / 2) * root) - scale, 0)
        if most is not None:
            u = jnp.where(jnp.isfinite(most) & (most > 0), most, 1)
            tau = 1 / root**2
            capped = (a - scale * u / 2 - tau / u) / u
            is_capped = 2 * tau >= scale * most**2
            z = jnp.where(is_capped, jnp.where(most > 0, capped, 0), z)
        return jnp.where(free, jnp.clip(z, 0, 1), 0)

    left = constraint.limit - jnp.sum(node.included)
    precision = jnp.finfo(a.dtype)
    largest = jnp.max(jnp.where(free, a, 0))
    # Where all z are 0.
    start = jnp.sqrt(2 * scale) / jnp.maximum(largest, float(precision.tiny))
    atol = max(SUM_RTOL, 8 * float(precision.eps)) * left
    found = find_root(lambda root: jnp.sum(shares(root)) - left, start, atol)
    all_fit = jnp.sum(free & (a > 0)) <= left
    root = jnp.where(all_fit, jnp.inf, found)
    z = jnp.where(node.included, 1, shares(root))
    norms = a * z / jnp.where(z > 0, z + scale, 1)
    if most is not None:
        norms = jnp.where(z > 0, jnp.minimum(norms, z * most), 0)
    x = v * spread(constraint, norms / jnp.where(a > 0, a, 1))
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


MAX_TRIES = 60  # of a root


def find_root(function: Callable[[Array], Array], start: Array, atol: Array) -> Array:
    """Find a root, up to ``atol``, of an increasing function that is at most 0 at ``start`` > 0.

    By doubling, then by the Illinois method (Dowell & Jarratt 1971). The function is linear between
    kinks, so that few steps suffice.
    """

    def step(b):
        has_high = jnp.isfinite(b.high)
        width = jnp.where(has_high, b.high - b.low, 1)
        share = jnp.clip(-b.at_low / (b.at_high - b.at_low), 0.01, 0.99)
        x = jnp.where(has_high, b.low + share * width, 2 * b.low)
        value = function(x)
        below = value <= 0
        # The value at an end that stays once more is halved.
        factor = jnp.where(below == (b.value <= 0), 0.5, 1.0)
        return Bracket(
            b.count + 1,
            x,
            value,
            low=jnp.where(below, x, b.low),
            at_low=jnp.where(below, value, factor * b.at_low),
            high=jnp.where(below, b.high, x),
            at_high=jnp.where(below, factor * b.at_high, value),
        )

    inf = jnp.full_like(start, jnp.inf)
    value = function(start)
    begin = Bracket(jnp.zeros((), jnp.int32), start, value, start, value, inf, inf)
    goes_on = lambda b: (jnp.abs(b.value) > atol) & (b.count < MAX_TRIES)  # noqa: E731
    return while_loop(goes_on, step, begin).x
