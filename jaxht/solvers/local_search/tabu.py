"""Tabu lists: a walk from selection to selection that may go upwards and does not go back."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array, Leaf, Numeric
from jaxht.linalg.full_precision import machine_eps

# The number of moves for which an item that joined may not leave, and for which one that left may
# not join: at least, and how many different numbers are drawn.
MIN_TABU_MOVES = (2, 4)
TABU_MOVES_SPREAD = (4, 9)
# Values of f that differ by less are not told apart.
EQUAL_VALUES_ULPS = 64.0


class TabuList(NamedTuple):
    """The memory of a walk.

    Attributes:
        least: the least f met, up to a constant.
        improved: bool, whether the last move found it.
        num_moves: int32, the number of moves taken.
        seed: uint32, from which the next random number follows.
        free_from: int32, for each item the move from which on it may join or leave again.
    """

    least: Leaf
    improved: Leaf
    num_moves: Leaf
    seed: Leaf
    free_from: Leaf

    @classmethod
    def begin(cls, value: Array, seed: Array, num_items: int) -> "TabuList":
        """Return the memory of a walk that starts at a value of f."""
        zero = jnp.zeros((), jnp.int32)
        return cls(
            least=value,
            improved=jnp.array(False),
            num_moves=zero,
            seed=seed,
            free_from=jnp.zeros(num_items, jnp.int32),
        )

    def goes_on(self, num_moves: Numeric) -> Array:
        """Whether fewer than ``num_moves`` moves are taken, or the last one improved."""
        return (self.num_moves < num_moves) | self.improved

    def allows(self, slots: Array, values: Array) -> Array:
        """Whether each swap is not tabu, or leads below all values met, bool (k_max, num_items).

        Args:
            slots: int32 (k_max,), the items that may leave, padded with the number of items.
            values: (k_max, num_items), f after each swap, up to the constant of ``least``.
        """
        is_tabu = self.free_from > self.num_moves
        may_not_leave = is_tabu.at[slots].get(mode="fill", fill_value=True)
        is_free = ~is_tabu[None] & ~may_not_leave[:, None]
        return is_free | is_below(values, self.least)

    def record(
        self, before: Array, after: Array, value: Array, fixed: Array, empty: Array
    ) -> "TabuList":
        """Return the memory after a move to another selection and its value.

        Items that are ``fixed`` do not leave, and those ``empty`` do not join. At least one other
        item, and one that is not selected, stays free.
        """
        most_joined = jnp.sum(after & ~fixed, dtype=jnp.int32) - 1
        most_left = jnp.sum(~after & ~empty, dtype=jnp.int32) - 1
        # A linear congruential generator (Numerical Recipes), of which the upper bits are used.
        seed = self.seed * jnp.uint32(1664525) + jnp.uint32(1013904223)
        random = jnp.stack([seed >> 24, (seed >> 16) & 0xFF])
        spread = (random % jnp.array(TABU_MOVES_SPREAD, jnp.uint32)).astype(jnp.int32)
        drawn = jnp.array(MIN_TABU_MOVES, jnp.int32) + spread
        num_moves = self.num_moves + 1
        until = num_moves + jnp.minimum(drawn, jnp.stack([most_joined, most_left]))
        free_from = jnp.where(before & ~after, until[1], self.free_from)
        free_from = jnp.where(after & ~before, until[0], free_from)
        improved = is_below(value, self.least)
        least = jnp.where(improved, value, self.least)
        return TabuList(least, improved, num_moves, seed, free_from)


def is_below(value: Array, least: Array) -> Array:
    """Whether a value is less by more than rounding."""
    rounding = EQUAL_VALUES_ULPS * machine_eps(value)
    return value < least - rounding * jnp.abs(least)


def rank(values: Array) -> Array:
    """The position of each number in increasing order, int32; equal ones stay in order."""
    index = lax.iota(jnp.int32, values.size)
    mine = values[:, None]
    other = values[None]
    is_before = (other < mine) | ((other == mine) & (index[None] < index[:, None]))
    return jnp.sum(is_before, axis=1, dtype=jnp.int32)
