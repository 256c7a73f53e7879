"""When the transforms threshold, and how many entries they keep: schedules and budgets."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxht import transforms
from jaxht.transforms import hard_threshold
from tests.pytrees import gradients, nonzeros, same, sizes, small, train
from tests.util import quick

# ---- schedules, every, hold, freeze ----


def test_schedules_follow_their_formulas():
    steps = np.arange(0, 130)
    progress = np.clip((steps - 20) / 80, 0, 1)
    cubic = transforms.cubic(0.05, begin=20, end=100, initial=0.8)
    exponential = transforms.exponential(0.05, begin=20, end=100, initial=0.8)
    np.testing.assert_allclose(
        [cubic(t) for t in steps], 0.05 + 0.75 * (1 - progress) ** 3, rtol=1e-6
    )
    np.testing.assert_allclose(
        [exponential(t) for t in steps], 0.8 * (0.05 / 0.8) ** progress, rtol=1e-5
    )
    for schedule in (cubic, exponential):
        assert (float(schedule(20)), float(schedule(100))) == (
            np.float32(0.8),
            np.float32(0.05),
        )  # exactly
    assert [float(transforms.one_shot(0.25, 3)(t)) for t in range(5)] == [1, 1, 1, 0.25, 0.25]
    assert transforms.constant(0.1)(7) == 0.1
    assert float(transforms.cubic(0.1, end=0)(0)) == pytest.approx(0.1)  # no time to get there


@pytest.mark.parametrize(
    "schedule",
    [
        transforms.cubic(0.13, end=8),
        transforms.one_shot(0.13, 3),
        optax.linear_schedule(1.0, 0.13, 8),
        lambda step: jnp.maximum(40 - 5 * step, 3),
    ],
)
def test_a_schedule_is_followed_in_one_compile(schedule):
    params, compiles = small(), []
    tx = optax.chain(optax.sgd(0.1), hard_threshold(schedule, scope="global"))

    @quick
    def step(params, state, seed):
        compiles.append(seed)
        updates, state = tx.update(gradients(seed, params), state, params)
        return optax.apply_updates(params, updates), state

    state, total = tx.init(params), sum(sizes(params))
    for t in range(12):
        params, state = step(params, state, t)
        k = schedule(jnp.int32(t))
        want = k if jnp.issubdtype(k.dtype, jnp.integer) else np.floor(float(k) * total + 0.5)
        assert sum(nonzeros(params)) == want
    assert len(compiles) == 1


def supports(tx, num_steps):
    """The support after each step."""
    params, seen = small(), []
    state = tx.init(params)
    update = quick(tx.update)
    for seed in range(num_steps):
        updates, state = update(gradients(seed, params), state, params)
        params = optax.apply_updates(params, updates)
        seen.append(np.concatenate([np.asarray(p).ravel() != 0 for p in jax.tree.leaves(params)]))
    return seen


def test_every_thresholds_some_steps_and_leaves_the_rest_free():
    sgd, total = optax.sgd(1.0), sum(sizes(small()))
    for every in (3, jnp.int32(3)):
        counts = [
            seen.sum()
            for seen in supports(
                optax.chain(sgd, hard_threshold(9, scope="global", every=every)), 7
            )
        ]
        assert counts == [total, total, 9, total, total, 9, total]


def test_hold_keeps_the_support_between_these_steps():
    seen = supports(
        optax.chain(optax.sgd(1.0), hard_threshold(9, scope="global", every=3, hold=True)), 9
    )
    assert all(support.sum() == 9 for support in seen)
    changes = [int((a != b).any()) for a, b in itertools.pairwise(seen)]
    assert changes == [0, 1, 0, 0, 1, 0, 0, 1]  # chosen in steps 0, 2, 5, 8


def test_freeze_at_fixes_the_support():
    seen = supports(optax.chain(optax.sgd(1.0), hard_threshold(9, scope="global", freeze_at=4)), 9)
    changes = [int((a != b).any()) for a, b in itertools.pairwise(seen)]
    assert changes == [1, 1, 1, 0, 0, 0, 0, 0]
    assert all(support.sum() == 9 for support in seen)


def test_freeze_at_0_keeps_the_zeros_of_a_pruned_model():
    params = quick(transforms.prune)(small(), 0.2)
    new, _ = train(optax.chain(optax.adam(0.1), hard_threshold(0.2, freeze_at=0)), params, 20)
    assert same(jax.tree.map(lambda p: p != 0, new), jax.tree.map(lambda p: p != 0, params))
    assert not same(new, params)


# ---- budgets ----


@pytest.mark.parametrize("density", [0.0, 0.01, 0.1, 0.5, 0.93, 1.0])
def test_erdos_renyi_kernel_against_bisection(density):
    shapes = {
        "conv": (3, 3, 4, 8),
        "wide": (64, 300),
        "bias": (300,),
        "out": (300, 10),
        "square": (40, 40),
    }
    params = jax.tree.map(jnp.zeros, shapes, is_leaf=lambda node: isinstance(node, tuple))
    counted = {name: shape for name, shape in shapes.items() if len(shape) > 1}
    size = {name: np.prod(shape) for name, shape in counted.items()}

    def fractions(epsilon):
        return {name: min(1, epsilon * sum(shape) / size[name]) for name, shape in counted.items()}

    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        total = sum(f * size[name] for name, f in fractions(middle).items())
        low, high = (middle, high) if total <= density * sum(size.values()) else (low, middle)
    want = {**fractions(low), "bias": 1.0}
    budgets = transforms.erdos_renyi_kernel(params, density)
    assert all(isinstance(f, float) for f in budgets.values())
    assert budgets == pytest.approx(want, abs=1e-9)
    traced = jax.jit(transforms.erdos_renyi_kernel)(params, density)
    assert {name: float(f) for name, f in traced.items()} == pytest.approx(want, abs=1e-5)


def test_budgets_compose_with_schedules():
    params = small()
    density = transforms.cubic(0.2, end=5)
    tx = optax.chain(
        optax.sgd(0.1),
        hard_threshold(lambda step: transforms.erdos_renyi_kernel(params, density(step))),
    )
    new, _ = train(tx, params, 8)
    want = jax.tree.map(
        lambda p, f: int(f * p.size + 0.5), params, transforms.erdos_renyi_kernel(params, 0.2)
    )
    assert nonzeros(new) == jax.tree.leaves(want)
    assert nonzeros(transforms.prune(params, transforms.uniform(params, 0.3))) == nonzeros(
        transforms.prune(params, 0.3)
    )


def test_each_array_may_have_a_schedule():
    params = {"w": jnp.arange(1.0, 11), "b": jnp.arange(1.0, 5)}
    tx = transforms.hard_threshold({"w": transforms.one_shot(0.2, at=1), "b": 0.5})
    state = tx.init(params)
    counts = []
    for _ in range(3):
        updates, state = tx.update(jax.tree.map(jnp.zeros_like, params), state, params)
        new = optax.apply_updates(params, updates)
        counts.append({name: np.count_nonzero(leaf) for name, leaf in new.items()})
    assert counts[0] == {"w": 10, "b": 2}
    assert counts[-1] == {"w": 2, "b": 2}
