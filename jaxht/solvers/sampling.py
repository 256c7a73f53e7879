"""What stochastic solvers have in common: which samples are drawn, and the loop of updates within a step."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, Numeric, PRNGKey
from jax import lax

from jaxht.objectives.objective import SumOverSamples, check_sum
from jaxht.solvers.iterate import Counts, Iterate, check_step_size
from jaxht.solvers.status import Status

S = TypeVar("S")


def init_stochastic(objective: SumOverSamples, x0: Array, step_size: Numeric) -> Iterate:
    """The iterate at the start; its value, like those to come, is left to the runner, which does not count it."""
    check_sum(objective)
    return Iterate(x0, None, Counts.zero(objective.num_samples), check_step_size(Status.RUNNING, step_size))


def batch_smoothness(objective: SumOverSamples, batch_size: int) -> Array:
    """``((b - 1) L + L_max) / b``: L of f, L_max of every f_i; the expected smoothness of Gower et al. 2019."""
    check_sum(objective)
    largest = objective.sample_smoothness()
    if batch_size == 1:
        return largest
    return ((batch_size - 1) * jnp.minimum(objective.majorant().norm(), largest) + largest) / batch_size


def project_move(project: Callable[[Array], Array], base: Array, move: Array) -> Array:
    """``P(base + move) - base``, without the rounding of the sum where P leaves it as it is.

    A step along a mean of n gradients that is taken sample by sample is n steps: added to x, each would lose what is
    below its last bit, and x would come to rest n times as far from the end as by full gradients.
    """
    z = base + move
    x = project(z)
    return jnp.where(x == z, move, x - base)


def run_updates(
    update: Callable[[SumOverSamples, Array, S], S],
    state: S,
    num_updates: Numeric,
    objective: SumOverSamples,
    *,
    key: PRNGKey,
    batch_size: int,
    replace: bool,
) -> S:
    """``state = update(batch, indices, state)``, num_updates (traced) times, each with the mean of batch_size new f_i.

    Indices are drawn for BLOCK updates at a time: in a batch of lanes, a draw by itself costs as much as the rest.
    """
    num_samples = objective.num_samples
    if not (isinstance(batch_size, int | np.integer) and 1 <= batch_size <= num_samples):
        raise ValueError(f"batch_size must be an int in [1, {num_samples}], the number of samples; got {batch_size!r}")

    weights = jnp.full(batch_size, 1 / batch_size, objective.dtype)

    def block(number: Array, state: S) -> S:
        own = jax.random.fold_in(key, number)
        if replace or batch_size == 1:
            # Off from uniform by a factor of at most 1 + n / 2^32.
            indices = (jax.random.bits(own, (BLOCK, batch_size), jnp.uint32) % num_samples).astype(jnp.int32)
        else:
            position = jnp.broadcast_to(lax.iota(jnp.int32, batch_size), (BLOCK, batch_size))
            indices = permute(own, position, num_samples)

        def one(t: Array, state: S) -> S:
            return update(objective.minibatch(indices[t], weights), indices[t], state)

        return lax.fori_loop(0, jnp.minimum(BLOCK, num_updates - number * BLOCK), one, state)

    return lax.fori_loop(0, (num_updates + BLOCK - 1) // BLOCK, block, state)


def permute(key: PRNGKey, position: Array, n: int) -> Array:
    """Where the positions in [0, n) go in a random permutation of [0, n): samples without replacement.

    Args:
        key: that of the permutation, or of as many as position has rows.
        position: int32, (b,) for one permutation or (m, b) for m of them.
        n: static.

    Returns:
        Array like position. Different positions of a row go to different places, in [0, n).

    Swap or not: in each round, places come in pairs (i, K - i mod n), for a random K; a hash of the pair says whether
    the two change places. Nothing of length n is made, and a part of the permutation costs as much as it is long: 32
    rounds of some ten operations a position. A place is off from uniform by 2^-32, a pair of them by little more.

    Source: Hoang, Morris & Rogaway 2012, Figure 1; rounds are hashed by the finaliser of MurmurHash3.
    """
    words = jax.random.bits(key, (ROUNDS, *position.shape[:-1], 1), jnp.uint32)

    def swap_or_not(place: Array, word: Array) -> tuple[Array, None]:
        partner = (word % n).astype(jnp.int32) - place
        partner = jnp.where(partner < 0, partner + n, partner)
        swap = _hash(jnp.maximum(place, partner).astype(jnp.uint32) * jnp.uint32(GOLDEN) ^ word) >> 31
        return jnp.where(swap == 1, partner, place), None

    return lax.scan(swap_or_not, position, words, unroll=8)[0]


def _hash(h: Array) -> Array:
    for multiplier, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        h = (h ^ (h >> shift)) * jnp.uint32(multiplier)
    return h ^ (h >> 16)


GOLDEN = 0x9E3779B9
BLOCK, ROUNDS = 32, 32
