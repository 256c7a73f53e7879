"""Pytrees of parameters, and steps on random gradients, for the tests of the transforms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from tests.util import quick


def tree(seed=0, dtype="float32"):
    """A pytree with arrays of zero to four axes, of very different scales."""
    rng = np.random.default_rng(seed)
    shapes = {"bias": (7,), "conv": (3, 3, 2, 8), "dense": {"kernel": (12, 16), "scale": ()}}
    return jax.tree.map(
        lambda shape: jnp.asarray(rng.standard_normal(shape) * 10 ** rng.uniform(-2, 1), dtype),
        shapes,
        is_leaf=lambda node: isinstance(node, tuple),
    )


NOISE = np.random.default_rng(1).standard_normal(8192).astype("float32")


@jax.jit
def gradients(seed, params):
    """Gaussian gradients, for each seed others: drawn beforehand, since random bits take longest to
    compile."""
    flat, unravel = ravel_pytree(params)
    return unravel(jax.lax.dynamic_slice(NOISE, (3 * seed,), flat.shape).astype(flat.dtype))


def nonzeros(params):
    return [int(np.count_nonzero(np.asarray(leaf, np.float64))) for leaf in jax.tree.leaves(params)]


def sizes(params):
    return [leaf.size for leaf in jax.tree.leaves(params)]


def same(a, b):
    return jax.tree.all(jax.tree.map(lambda x, y: bool(jnp.array_equal(x, y)), a, b))


def small(seed=0):
    """A pytree that compiles quickly, of a matrix and a vector."""
    rng = np.random.default_rng(seed)
    return {
        "kernel": jnp.asarray(rng.standard_normal((6, 8)), "float32"),
        "bias": jnp.asarray(rng.standard_normal(8), "float32"),
    }


def trainer(tx):
    """Steps on random gradients, of one compile for any number of them."""

    def step(seed, carry):
        params, state = carry
        updates, state = tx.update(gradients(seed, params), state, params)
        return optax.apply_updates(params, updates), state

    return lambda first, last, *carry: jax.lax.fori_loop(first, last, step, carry)


compiled = functools.cache(lambda tx: quick(trainer(tx)))


def train(tx, params, num_steps, first=0, state=None):
    return compiled(tx)(
        first, first + num_steps, params, tx.init(params) if state is None else state
    )
