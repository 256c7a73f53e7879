"""The perspective of a ridge under a sparsity constraint, where some items are fixed, and its
proximal operator."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array, Leaf
from jaxht.constraints import Groups, Sparse

MAX_TRIES, SUM_RTOL = 60, 1e-10  # to find the multiplier, and by how much the sum of z may be off


class Node(NamedTuple):
    """A set of supports.

    Attributes:
        included: bool (m,), the items that are in all of them.
        excluded: bool (m,), the items that are in none.
    """

    included: Leaf
    excluded: Leaf


def spread(constraint: Sparse | Groups, per_item: Array) -> Array:
    """The entry of its item for each coordinate: (d,)."""
    return per_item[constraint.groups] if isinstance(constraint, Groups) else per_item


def perspective_prox(
    constraint: Sparse | Groups, node: Node, v: Array, scale: Array
) -> tuple[Array, Array, Array]:
    r"""The proximal operator of the perspective term.

    .. math::
        \arg\min_{x,\, z}\ \tfrac12 \|x - v\|^2 + \tfrac{s}{2} \sum_g \frac{\|x_g\|^2}{z_g}

    over x and z as above. For a multiplier tau of the sum of z, with a = ||v_g|| and a bound u of
    ||x_g||,

    .. math::
        z = a \sqrt{s / 2 \tau} - s \ (2 \tau \le s u^2), \qquad z = (a - s u / 2 - \tau / u) / u \ \text{ (else)},
        \qquad \|x_g\| = \min(a z / (z + s),\ z u)

    each z clipped to [0, 1]; tau is the root of their sum less k.

    Args:
        constraint: prepared.
        node: items that are fixed.
        v: (d,).
        scale: s > 0, a scalar.

    Returns:
        (x, z, sum_g ||x_g||^2 / z_g), (d,), (m,) and a scalar.

    Source: for Sparse without bounds Argyriou, Foygel & Srebro 2012, the k-support norm.
    """
    v = constraint.feasible_direction(jnp.where(spread(constraint, node.excluded), 0, v))
    a, free = constraint.scores(v), ~(node.included | node.excluded)
    most = None
    if isinstance(constraint, Sparse) and constraint.bounds is not None:
        lower, upper = constraint.bounds
        most = jnp.where(v > 0, upper, -lower) * jnp.ones_like(v)

    def shares(root: Array) -> Array:
        """z for tau = 1 / root^2; for infinite root of a without bounds 1."""
        z = jnp.where(a > 0, a * (jnp.sqrt(scale / 2) * root) - scale, 0)
        if most is not None:
            u, tau = jnp.where(jnp.isfinite(most) & (most > 0), most, 1), 1 / root**2
            capped = (a - scale * u / 2 - tau / u) / u
            z = jnp.where(2 * tau >= scale * most**2, jnp.where(most > 0, capped, 0), z)
        return jnp.where(free, jnp.clip(z, 0, 1), 0)

    left = constraint.limit - jnp.sum(node.included)
    tiny = float(jnp.finfo(a.dtype).tiny)
    least = jnp.sqrt(2 * scale) / jnp.maximum(
        jnp.max(jnp.where(free, a, 0)), tiny
    )  # there all z are 0
    fits, rtol = jnp.sum(free & (a > 0)) <= left, max(SUM_RTOL, 8 * float(jnp.finfo(a.dtype).eps))
    root = jnp.where(
        fits, jnp.inf, find_root(lambda root: jnp.sum(shares(root)) - left, least, rtol * left)
    )
    z = jnp.where(node.included, 1, shares(root))
    norms = a * z / jnp.where(z > 0, z + scale, 1)
    if most is not None:
        norms = jnp.where(z > 0, jnp.minimum(norms, z * most), 0)
    x = v * spread(constraint, norms / jnp.where(a > 0, a, 1))
    return x, z, jnp.sum(norms**2 / jnp.where(z > 0, z, 1))


def find_root(function: Callable[[Array], Array], start: Array, atol: Array) -> Array:
    """A root of an increasing function that is at most 0 at ``start`` > 0: by doubling, then by the
    Illinois method.

    Args:
        function: of a scalar; linear between kinks, so that few steps suffice.
        start: a scalar.
        atol: the absolute value at which a number counts as a root, a scalar.

    Source: Dowell & Jarratt 1971.
    """

    def step(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        count, _, value, low, at_low, high, at_high = carry
        width = jnp.where(jnp.isfinite(high), high - low, 1)
        inside = jnp.clip(-at_low / (at_high - at_low), 0.01, 0.99) * width
        trial = jnp.where(jnp.isfinite(high), low + inside, 2 * low)
        new = function(trial)
        below, repeated = new <= 0, (new <= 0) == (value <= 0)
        at_low = jnp.where(below, new, jnp.where(repeated, at_low / 2, at_low))
        at_high = jnp.where(below, jnp.where(repeated, at_high / 2, at_high), new)
        return (
            count + 1,
            trial,
            new,
            jnp.where(below, trial, low),
            at_low,
            jnp.where(below, high, trial),
            at_high,
        )

    inf, value = jnp.full_like(start, jnp.inf), function(start)
    begin = (jnp.zeros((), jnp.int32), start, value, start, value, inf, inf)
    return lax.while_loop(
        lambda carry: (jnp.abs(carry[2]) > atol) & (carry[0] < MAX_TRIES), step, begin
    )[1]
