"""The global threshold of ten million parameters in a training step, against ``jax.lax.top_k``."""

import functools

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

from benchmarks.timing import interleaved, report
from jaxht import transforms

SHAPES = {
    "embed": (8000, 512),
    "in": (512, 4096),
    "mid": (4096, 512),
    "out": (512, 3258),
    "norm": (1024,),
}


def top_k_threshold(k: int) -> optax.GradientTransformation:
    """What one writes without this library: k static; all parameters joined, ranked, and cut at the
    k-th."""

    def update(updates, state, params):
        flat, unravel = ravel_pytree(optax.apply_updates(params, updates))
        kth = lax.top_k(jnp.abs(flat), k)[0][-1]
        return jax.tree.map(
            lambda q, p: q - p, unravel(jnp.where(jnp.abs(flat) >= kth, flat, 0)), params
        ), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def main() -> None:
    """Print the time of a thresholding step by k, by scope and by dtype, and count the compiles of
    a schedule."""
    keys = jax.random.split(jax.random.key(0), len(SHAPES))
    params = {
        name: jax.random.normal(key, shape)
        for key, (name, shape) in zip(keys, SHAPES.items(), strict=True)
    }
    updates = jax.tree.map(lambda p: 0.01 * jnp.sin(p), params)
    total = sum(p.size for p in jax.tree.leaves(params))
    compiles: list[None] = []

    @functools.partial(jax.jit, static_argnums=0)
    def step(transform, params, updates):
        return transform.update(updates, transform.init(params), params)[0]

    @jax.jit
    def scheduled(k, params, updates):
        compiles.append(None)
        transform = transforms.hard_threshold(k, scope="global")
        return transform.update(updates, transform.init(params), params)[0]

    one_pass = jax.jit(lambda params: transforms.sparsity(params).total)
    for fraction in (0.02, 0.05, 0.2, 0.5):
        k = round(fraction * total)
        seconds = interleaved(
            {
                "lax.top_k of all parameters": functools.partial(
                    step, top_k_threshold(k), params, updates
                ),
                "hard_threshold(k, scope='global')": functools.partial(
                    scheduled, jnp.int32(k), params, updates
                ),
                "transforms.sparsity, one pass": functools.partial(one_pass, params),
            },
            repeats=5,
        )
        left = one_pass(optax.apply_updates(params, scheduled(jnp.int32(k), params, updates)))
        assert round((1 - float(left)) * total) == k, "exactly k are kept"
        title = f"{total} float32 parameters, k = {fraction:.0%} of them"
        report(title, seconds, baseline="lax.top_k of all parameters", unit="ms")
    print(f"\ncompiles over all k: {len(compiles)}")

    half, half_updates = (
        jax.tree.map(lambda z: z.astype(jnp.bfloat16), tree) for tree in (params, updates)
    )
    kinds = {
        "scope='global'": (transforms.hard_threshold(0.05, scope="global"), params, updates),
        "scope='global', bfloat16": (
            transforms.hard_threshold(0.05, scope="global"),
            half,
            half_updates,
        ),
        "scope='leaf'": (transforms.hard_threshold(0.05), params, updates),
        "scope=Axis(0)": (
            transforms.hard_threshold(0.05, scope=transforms.Axis(0)),
            params,
            updates,
        ),
        "scope=NM(4, axis=0), k = 2": (
            transforms.hard_threshold(2, scope=transforms.NM(4, 0)),
            params,
            updates,
        ),
        "scope=Blocks((2,))": (
            transforms.hard_threshold(0.05, scope=transforms.Blocks((2,))),
            params,
            updates,
        ),
        "support frozen": (
            transforms.hard_threshold(0.05, scope="global", freeze_at=0),
            params,
            updates,
        ),
    }
    seconds = interleaved(
        {name: functools.partial(step, *kind) for name, kind in kinds.items()}, repeats=5
    )
    report(f"{total} parameters, 5 % kept", seconds, baseline="scope='global'", unit="ms")
