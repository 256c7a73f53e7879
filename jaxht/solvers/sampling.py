"""What stochastic solvers share: how samples are drawn, and the loop over the updates of a step."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._loops import fori_loop, scan
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.linalg.inner_products import real_dtype
from jaxht.linalg.products import known_by_products
from jaxht.objectives.objective import SumOverSamples, check_sum
from jaxht.solvers.iterate import Info, Iterate, check_step_size, inverse_smoothness
from jaxht.solvers.status import Status

S = TypeVar("S")


# Draws are made for so many updates at a time: under vmap, one for a single update costs as much as
# the update.
BLOCK_UPDATES = 32
# Rounds of the shuffle that gives a random permutation, as many as its source asks for.
SHUFFLE_ROUNDS = 32
# 2^32 over the golden ratio, by which hashes spread.
GOLDEN = 0x9E3779B9


class SamplingState(NamedTuple):
    """The state of :class:`jaxht.SGHT`, :class:`jaxht.HTSVRG` and :class:`jaxht.SVRGHT`.

    Attributes:
        step_size: eta.
        key: of the next draws.
    """

    step_size: Leaf
    key: Leaf


def init_stochastic(objective: SumOverSamples, x0: Any, step_size: Numeric) -> Info:
    """What is found at the start of a solver that draws samples: whether it can start at all.

    Args:
        objective: a sum over samples, prepared.
        x0: feasible point, shaped like the variable.
        step_size: a scalar; where it is not finite and positive, the status is INVALID_STEP_SIZE.

    Returns:
        An :class:`jaxht.extend.Info`, CONVERGED where ``grad f(x0)`` is exactly 0.

    Raises:
        ValueError: if the objective is not a sum over samples.

    Cost: a full gradient, not counted.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> from jaxht.extend import init_stochastic
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.ones(4))
        >>> int(init_stochastic(f, jnp.ones(4), step_size=0.1).status) == jaxht.Status.CONVERGED
        True
    """
    check_sum(objective)
    status: Numeric = Status.RUNNING
    if not known_by_products(x0):
        # No fixed-point test of random steps would end a run on a design of zeros, or with y = 0.
        stationary = jnp.all(objective.gradient(x0, objective.predict(x0)) == 0)
        status = jnp.where(stationary, Status.CONVERGED, status)
    return Info(status=check_step_size(step_size, status))


def start_sampling(
    objective: SumOverSamples,
    x0: Any,
    key: PRNGKey | None,
    step_size: Numeric | None,
    share: float,
    batch_size: int,
) -> tuple[Iterate, SamplingState, Info]:
    """Start a solver whose step size is a share of 1 over the smoothness of a minibatch, where none
    is given; f at x0 is left to the runner."""
    if step_size is None:
        step_size = share * inverse_smoothness(batch_smoothness(objective, batch_size))
    info = init_stochastic(objective, x0, step_size)
    return Iterate(x0), SamplingState(step_size, key), info


def check_batch_size(batch_size: Any, num_samples: int) -> None:
    """Raise ValueError unless it is an int between 1 and the number of samples."""
    is_integer = isinstance(batch_size, int | np.integer) and not isinstance(batch_size, bool)
    if not (is_integer and 1 <= batch_size <= num_samples):
        raise ValueError(
            f"batch_size must be an int in [1, {num_samples}], the number of samples; "
            f"got {batch_size!r}"
        )


def batch_smoothness(objective: SumOverSamples, batch_size: int) -> Array:
    """The expected smoothness of a minibatch, ``((b - 1) L + L_max) / b``.

    L is the smoothness of f, L_max the largest smoothness of any f_i.

    Args:
        objective: a sum over samples, prepared.
        batch_size: b, an int, static.

    Returns:
        A scalar, an upper estimate, in units of the Hessian of ``f = (1/n) sum_i f_i``.

    Raises:
        ValueError: if the objective is not a sum over samples.

    Cost: the row norms of A; for b > 1 about 16 products with A.

    Source: Gower et al. 2019.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> from jaxht.solvers.sampling import batch_smoothness
        >>> float(batch_smoothness(jaxht.LeastSquares(jnp.eye(4), jnp.ones(4), mean=False), 1))
        4.0
    """
    check_sum(objective)
    largest = objective.sample_smoothness()
    if batch_size == 1:
        return largest
    whole = jnp.minimum(objective.majorant().norm(), largest)
    return ((batch_size - 1) * whole + largest) / batch_size


def project_move(project: Callable[[Array], Array], base: Array, move: Array) -> Array:
    """``P(base + move) - base``, without the rounding error of the sum where the projection P
    leaves it unchanged.

    A variance-reduced step is made of n updates, each of about 1/n of its size. Added to x, every
    update would lose the digits below the last bit of x, and x would stop n times as far from the
    solution as by full gradients.
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
    """Apply ``state = update(batch, indices, state)`` num_updates times; a batch is the mean of new
    f_i.

    Args:
        update: a function of a minibatch objective, its indices (b,) and the state that returns the
            next state.
        state: any pytree of arrays.
        num_updates: an integer, traced.
        objective: a sum over samples, prepared.
        key: PRNG key.
        batch_size: b, an int in [1, n], static.
        replace: bool, static; whether a minibatch may hold the same sample twice.

    Returns:
        The state after the last update.

    Raises:
        ValueError: if batch_size is not an int in [1, n].

    Cost: num_updates minibatches and updates.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> from jaxht.solvers.sampling import run_updates
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]), mean=True)
        >>> def update(batch, indices, x):
        ...     return x - batch.gradient(x, batch.predict(x))
        >>> options = {"key": jax.random.key(0), "batch_size": 4, "replace": False}
        >>> run_updates(update, jnp.zeros(4), 1, f, **options).tolist()
        [0.25, 1.0, 0.5, 0.75]
    """
    num_samples = objective.num_samples
    check_batch_size(batch_size, num_samples)

    shape = (BLOCK_UPDATES, batch_size)
    weights = jnp.full(batch_size, 1 / batch_size, real_dtype(objective))

    def block(number, state):
        block_key = jax.random.fold_in(key, number)
        if replace or batch_size == 1:
            # Probabilities differ from 1/n by a factor of at most 1 + n / 2^32.
            bits = jax.random.bits(block_key, shape, jnp.uint32)
            indices = (bits % num_samples).astype(jnp.int32)
        else:
            position = jnp.broadcast_to(lax.iota(jnp.int32, batch_size), shape)
            indices = permute(block_key, position, num_samples)

        def one(t, state):
            return update(objective.minibatch(indices[t], weights), indices[t], state)

        num_left = num_updates - number * BLOCK_UPDATES
        return fori_loop(0, jnp.minimum(BLOCK_UPDATES, num_left), one, state)

    num_blocks = -(-num_updates // BLOCK_UPDATES)
    return fori_loop(0, num_blocks, block, state)


def permute(key: PRNGKey, position: Array, n: int) -> Array:
    """The images of some positions in [0, n) under a random permutation of [0, n): samples without
    replacement.

    Positions are int32, (b,) for one permutation or (m, b) for m of them, n static. In each round
    of a swap-or-not shuffle, places are paired as (i, K - i mod n), for a random K; a hash of the
    pair, by the finaliser of MurmurHash3, decides whether the two change places. No array of length
    n is made. The distribution of a place differs from uniform by 2^-32, that of a pair of places
    by little more.

    Source: Hoang, Morris & Rogaway 2012, Figure 1.
    """
    words = jax.random.bits(key, (SHUFFLE_ROUNDS, *position.shape[:-1], 1), jnp.uint32)

    def swap_or_not(place, word):
        partner = (word % n).astype(jnp.int32) - place
        partner = jnp.where(partner < 0, partner + n, partner)
        pair = jnp.maximum(place, partner).astype(jnp.uint32)
        bit = _hash(pair * jnp.uint32(GOLDEN) ^ word) >> 31
        return jnp.where(bit == 1, partner, place), None

    return scan(swap_or_not, position, words, unroll=8)[0]


def _hash(h: Array) -> Array:
    for multiplier, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        h = (h ^ (h >> shift)) * jnp.uint32(multiplier)
    return h ^ (h >> 16)
