"""Exchanges of the weights of one output, among its most promising coordinates."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxht._loops import while_loop
from jaxht._typing import Array, Leaf, Numeric
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.linalg.lapack import inverse_cholesky
from jaxht.linalg.selection import gather, k_largest_mask, mask_to_indices

# An exchange must decrease the error of its output by this share.
LEAST_SHARE = 1e-4
# A coordinate is independent of others where more than this share of its curvature is left.
LEAST_INDEPENDENT_SHARE = 1e-5


class Tableau(NamedTuple):
    """The minimum on a support S, and what exchanges with the candidates C would change.

    Slots of S and of C hold a coordinate or are empty (d); all arrays are 0 in empty slots.

    Attributes:
        support: int32 (k_max,), the coordinate in each slot of S.
        candidates: int32 (c + 1,), those in the slots of C; one at least is empty.
        inverse: M = G_SS^-1, (k_max, k_max).
        images: B = M G_SC, (k_max, c + 1).
        w: (k_max,), the minimiser on S.
        descent: r, (c + 1,), minus half of the gradient along C.
        remaining: s, (c + 1,), the curvature left along C.
        error: at the minimum.
    """

    support: Leaf
    candidates: Leaf
    inverse: Leaf
    images: Leaf
    w: Leaf
    descent: Leaf
    remaining: Leaf
    error: Leaf

    @classmethod
    def of(
        cls, gram: Array, dense: Array, mask: Array, curvatures: Array, k_max: int, c: int
    ) -> "Tableau":
        """The minimum on a mask, and the candidates of the largest ``r_j^2 / curvature_j``."""
        size = mask.size
        support = mask_to_indices(mask, k_max)
        filled = support < size
        rows = gather(gram, support)
        block = rows.at[:, support].get(mode="fill", fill_value=0)
        ridge = k_max * machine_eps(gram) * jnp.diagonal(block)
        block = block + jnp.diag(jnp.where(filled, ridge, 1))
        half = inverse_cholesky(block)
        inverse = jnp.where(filled[None] & filled[:, None], matmul(half.T, half), 0)
        # In units of the change from the dense weights: no digits are lost in the error.
        others = jnp.where(mask, 0, dense)
        pulled = matmul(gram, others)
        change = matmul(inverse, gather(pulled, support))
        w = gather(dense, support) + change
        descent = pulled - matmul(change, rows)
        error = jnp.vdot(others, descent)
        promise = jnp.where(mask, 0, descent**2 / curvatures)
        chosen = k_largest_mask(promise, c) & ~mask
        candidates = jnp.append(mask_to_indices(chosen, c), size).astype(jnp.int32)
        between = rows.at[:, candidates].get(mode="fill", fill_value=0)
        images = matmul(inverse, between)
        remaining = gather(jnp.diagonal(gram), candidates) - jnp.sum(between * images, axis=0)
        return cls(
            support=support,
            candidates=candidates,
            inverse=inverse,
            images=images,
            w=w,
            descent=gather(descent, candidates),
            remaining=jnp.maximum(remaining, 0),
            error=error,
        )

    def losses(self, size: int) -> Array:
        """The increase of the error for each of S that leaves; infinity in empty slots."""
        m = jnp.diagonal(self.inverse)
        filled = self.support < size
        return jnp.where(filled, self.w**2 / jnp.where(filled, m, 1), jnp.inf)

    def gains(self, curvatures: Array) -> Array:
        """The decrease of the error for each of C that joins; 0 for those that depend on S."""
        independent = self.remaining > LEAST_INDEPENDENT_SHARE * gather(curvatures, self.candidates)
        return jnp.where(
            independent, self.descent**2 / jnp.where(independent, self.remaining, 1), 0
        )

    def exchange_gains(self, size: int, curvatures: Array) -> Array:
        """The decrease of the error for each pair that leaves and joins, (k_max, c + 1)."""
        m = jnp.diagonal(self.inverse)
        filled = self.support < size
        m = jnp.where(filled, m, 1)[:, None]
        remaining = self.remaining[None] + self.images**2 / m
        descent = self.descent[None] + self.images * (self.w[:, None] / m)
        exists = self.candidates < size
        least = LEAST_INDEPENDENT_SHARE * gather(curvatures, self.candidates)
        allowed = filled[:, None] & exists[None] & (remaining > least[None])
        gains = descent**2 / jnp.where(allowed, remaining, 1)
        return jnp.where(allowed, gains - self.losses(size)[:, None], -jnp.inf)

    def exchange(self, gram: Array, slot: Array, place: Array) -> "Tableau":
        """Let the coordinate of a slot of S leave, and that of a place in C join."""
        size = gram.shape[0]
        is_slot = lax.iota(jnp.int32, self.w.size) == slot
        is_place = lax.iota(jnp.int32, self.descent.size) == place
        is_empty = lax.iota(jnp.int32, self.descent.size) == jnp.argmax(self.candidates == size)
        leaves = self.support[slot]
        joins = self.candidates[place]

        # The one that leaves becomes a candidate, in an empty place.
        column = self.inverse[slot]
        m = column[slot]
        image = self.images[slot]
        back = jnp.where(is_slot, 0, -column / m)
        crossed = is_slot[:, None] | is_slot[None]
        inverse = jnp.where(crossed, 0, self.inverse + jnp.outer(back, column))
        images = jnp.where(is_slot[:, None], 0, self.images + jnp.outer(back, image))
        images = jnp.where(is_empty[None], back[:, None], images)
        w = jnp.where(is_slot, 0, self.w + back * self.w[slot])
        step = self.w[slot] / m
        descent = jnp.where(is_empty, step, self.descent + image * step)
        remaining = jnp.where(is_empty, 1 / m, self.remaining + image**2 / m)
        error = self.error + self.w[slot] * step
        candidates = jnp.where(is_empty, leaves, self.candidates)

        # The one that joins takes the slot, along the direction that minimises the rest anew.
        direction = jnp.where(is_slot, 1, -images[:, place])
        row = gather(gram, joins)
        overlap = jnp.where(is_slot, 0, gather(row, self.support))
        rest = gather(row, candidates) - matmul(overlap, images)
        s = remaining[place]
        step = descent[place] / s
        inverse = inverse + jnp.outer(direction, direction / s)
        images = images + jnp.outer(direction, rest / s)
        return Tableau(
            support=jnp.where(is_slot, joins, self.support),
            candidates=jnp.where(is_place, size, candidates),
            inverse=inverse,
            images=jnp.where(is_place[None], 0, images),
            w=w + direction * step,
            descent=jnp.where(is_place, 0, descent - rest * step),
            remaining=jnp.where(is_place, 0, jnp.maximum(remaining - rest**2 / s, 0)),
            error=error - descent[place] * step,
        )


class Exchanged(NamedTuple):
    """An output after its exchanges.

    Attributes:
        mask: bool (d,).
        leaves: the coordinate whose removal costs least, int32, and what it costs.
        loss: that cost.
        joins: the coordinate whose insertion gains most, int32, and what it gains.
        gain: that gain.
    """

    mask: Leaf
    leaves: Leaf
    loss: Leaf
    joins: Leaf
    gain: Leaf


def exchange_output(
    gram: Array,
    curvatures: Array,
    dense: Array,
    mask: Array,
    max_moves: Numeric,
    k_max: int,
    num_candidates: int,
    scope: Any,
) -> Exchanged:
    """Make the best exchange of one output, again and again, until none helps."""
    size = mask.size
    tableau = Tableau.of(gram, dense, mask, curvatures, k_max, num_candidates)
    least = LEAST_SHARE * tableau.error

    def best(tableau):
        gains = tableau.exchange_gains(size, curvatures)
        group_length = scope.group_length
        if group_length:
            leaving = tableau.support[:, None] // group_length
            joining = tableau.candidates[None] // group_length
            same = leaving == joining
            gains = jnp.where(same, gains, -jnp.inf)
        place = jnp.argmax(gains).astype(jnp.int32)
        return gains.ravel()[place], place

    def move(carry):
        tableau, _, place, count = carry
        num_places = tableau.candidates.size
        tableau = tableau.exchange(gram, place // num_places, place % num_places)
        return tableau, *best(tableau), count + 1

    def goes_on(carry):
        _, gain, _, count = carry
        return (gain > least) & (count < max_moves)

    start = (tableau, *best(tableau), jnp.zeros((), jnp.int32))
    tableau, *_ = while_loop(goes_on, move, start)
    found = jnp.zeros(size, bool).at[tableau.support].set(True, mode="drop")
    losses = tableau.losses(size)
    gains = tableau.gains(curvatures)
    leaves = jnp.argmin(losses)
    joins = jnp.argmax(gains)
    return Exchanged(
        mask=found,
        leaves=tableau.support[leaves],
        loss=losses[leaves],
        joins=tableau.candidates[joins],
        gain=gains[joins],
    )
