"""The optax side: exact counts in long runs, the same iterates as IHT, NumPy loops for every scope,
and optax's own wrappers around it."""

import dataclasses
import functools
import itertools
import operator
import textwrap
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import jaxht
from jaxht import transforms
from jaxht.transforms import NM, Axis, Blocks, hard_threshold
from jaxht.transforms.scope import count_kept
from tests import reference
from tests.contract import QUICK
from tests.util import on_devices, precision

DTYPES = ["float32", "bfloat16"]
quick = functools.partial(jax.jit, compiler_options=QUICK)


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


# ---- exactly sparse, exactly the inner optimiser ----


@pytest.mark.parametrize(
    ("k", "options", "dtype"),
    [
        *((9, {}, dtype) for dtype in DTYPES),
        *((0.2, {"scope": "global"}, dtype) for dtype in DTYPES),
        (2, {"scope": Axis(-1)}, "float32"),
        (0.25, {"scope": "leaf", "every": 1, "hold": True}, "bfloat16"),
    ],
    ids=str,
)
def test_every_one_of_1000_adam_steps_is_exactly_sparse(k, options, dtype):
    params = {
        name: (scale * p).astype(dtype)
        for (name, p), scale in zip(small(3).items(), (0.02, 5), strict=True)
    }
    inner, outer = optax.adam(0.03), hard_threshold(k, **options)
    count, eps = (
        functools.partial(jax.tree.map, lambda z: jnp.sum(z != 0)),
        float(jnp.finfo(dtype).eps),
    )

    def step(carry, seed):
        params, (inner_state, outer_state) = carry
        updates, inner_state = inner.update(gradients(seed, params), inner_state, params)
        free = optax.apply_updates(params, updates)
        updates, outer_state = outer.update(updates, outer_state, params)
        new = optax.apply_updates(params, updates)

        def changed(p, new, free):  # in units in the last place of what was added
            p, new, free = (z.astype(jnp.float32) for z in (p, new, free))
            ulp = 2 * eps * jnp.maximum(jnp.abs(p), jnp.abs(free))
            return jnp.max(jnp.where(new == 0, 0, jnp.abs(new - free) / ulp), initial=0)

        return (new, (inner_state, outer_state)), (
            count(new),
            jax.tree.map(changed, params, new, free),
        )

    start = (params, (inner.init(params), outer.init(params)))
    (params, _), (counts, errors) = jax.jit(
        lambda start: jax.lax.scan(step, start, jnp.arange(1000))
    )(start)
    assert all(np.max(error) <= 1 for error in jax.tree.leaves(errors))
    match k, options.get("scope"):
        case _, "global":
            assert set(np.asarray(sum(jax.tree.leaves(counts)))) == {round(k * sum(sizes(params)))}
        case _, Axis():
            for count, leaf in zip(jax.tree.leaves(counts), jax.tree.leaves(params), strict=True):
                assert set(np.asarray(count)) == {
                    min(k, leaf.shape[-1]) * (leaf.size // leaf.shape[-1])
                }
        case _:
            for count, size in zip(jax.tree.leaves(counts), sizes(params), strict=True):
                assert set(np.asarray(count)) == {
                    min(k, size) if isinstance(k, int) else int(k * size + 0.5)
                }


@pytest.mark.parametrize("k", [2, 3])
def test_ranks_and_values_are_computed_from_the_same_bits(k):
    """Compiled together, p + u may be computed anew for each comparison and rounded differently;
    here it was."""
    tx = optax.chain(optax.adam(0.01), hard_threshold(k, scope=Axis(0)))

    def step(carry, seed):
        p, state = carry
        grads = 2 * (p - gradients(seed, p)) * jnp.arange(p.size).reshape(p.shape)
        updates, state = tx.update(grads, state, p)
        p = optax.apply_updates(p, updates)
        return (p, state), jnp.sum(p != 0, axis=0)

    p = jax.random.normal(jax.random.key(0), (3, 1000))
    step, carry = jax.jit(step), (p, tx.init(p))
    for seed in range(20):
        carry, counts = step(carry, seed)
        assert set(np.asarray(counts)) == {k}


def test_the_global_threshold_and_the_result_are_of_the_same_bits():
    """Of more than four million entries, as :func:`test_ranks_and_values_are_computed_from_the_same_bits`
    has it."""
    tx = optax.chain(optax.adam(0.01), hard_threshold(54_321, scope="global"))

    @jax.jit
    def step(p, state, seed):
        grads = 2 * (p - jax.random.normal(jax.random.key(seed), p.shape)) * (1 + jnp.arange(1100))
        updates, state = tx.update(grads, state, p)
        p = optax.apply_updates(p, updates)
        return p, state, jnp.sum(p != 0)

    p = jax.random.normal(jax.random.key(0), (4000, 1100))
    state = tx.init(p)
    for seed in range(3):
        p, state, count = step(p, state, seed)
        assert count == 54_321


def test_updates_narrower_than_the_parameters_give_exact_zeros():
    """-p of a float32 does not fit bfloat16; the transformation widens the update."""
    params = tree(0)
    updates = jax.tree.map(lambda p: (0.1 * p).astype(jnp.bfloat16), params)
    tx = hard_threshold(2)
    updates, _ = quick(tx.update)(updates, tx.init(params), params)
    assert {leaf.dtype for leaf in jax.tree.leaves(updates)} == {jnp.dtype("float32")}
    assert nonzeros(optax.apply_updates(params, updates)) == [
        min(2, size) for size in sizes(params)
    ]


def test_half_precision_parameters_with_float32_updates():
    params, updates = tree(0, "bfloat16"), jax.tree.map(lambda p: 1e-3 * jnp.cos(p), tree(1))
    tx = hard_threshold(0.1, scope="global")
    new = optax.apply_updates(params, quick(tx.update)(updates, tx.init(params), params)[0])
    assert {leaf.dtype for leaf in jax.tree.leaves(new)} == {jnp.dtype("bfloat16")}
    assert sum(nonzeros(new)) == round(0.1 * sum(sizes(params)))


def test_sgd_and_threshold_is_iht():
    with precision("float64"):
        A, y = reference_problem()
        step_size = 0.7 / np.linalg.norm(A, 2) ** 2
        _, xs = jaxht.trace(
            jaxht.LeastSquares(A, y, mean=False),
            jaxht.Sparse(6),
            jaxht.IHT(step_size=step_size),
            num_steps=200,
            record=lambda carry: carry.iterate.x,
        )
        tx = optax.chain(optax.sgd(step_size), hard_threshold(6))
        assert_iterates(tx, A, y, xs, 1e-12)


def test_polyak_momentum_is_iht_with_momentum_and_the_trace_of_sgd_is_not():
    with precision("float64"):
        A, y = reference_problem()
        step_size, momentum = 0.4 / np.linalg.norm(A, 2) ** 2, 0.8
        solver = jaxht.IHT(step_size=step_size, momentum=momentum)
        _, xs = jaxht.trace(
            jaxht.LeastSquares(A, y, mean=False),
            jaxht.Sparse(6),
            solver,
            num_steps=200,
            record=lambda carry: carry.iterate.x,
        )
        heavy = optax.chain(
            optax.sgd(step_size), transforms.polyak_momentum(momentum), hard_threshold(6)
        )
        assert_iterates(heavy, A, y, xs, 1e-12)
        # optax's momentum sums the gradients of all entries: another method under a projection,
        traced = optax.chain(optax.sgd(step_size, momentum=momentum), hard_threshold(6))
        with pytest.raises(AssertionError):
            assert_iterates(traced, A, y, xs, 1e-3)
        # and the same one without.
        free = optax.chain(optax.sgd(step_size), transforms.polyak_momentum(momentum))
        np.testing.assert_allclose(
            iterates(free, A, y, 50),
            iterates(optax.sgd(step_size, momentum=momentum), A, y, 50),
            rtol=0,
            atol=1e-12,
        )


def test_adam_updates_moments_outside_the_support_and_polyak_momentum_has_none_there():
    params = {"x": jnp.array([1.0, 0.0])}
    grads = {
        "x": jnp.array([0.0, -1.0])
    }  # pulls at the entry that is out, too weakly to bring it in
    adam = optax.chain(optax.adam(0.01), hard_threshold(1))
    forgetful = transforms.reset_moments(optax.adam(0.01), hard_threshold(1))
    heavy = optax.chain(optax.sgd(0.01), transforms.polyak_momentum(0.9), hard_threshold(1))
    state, memory, ball = adam.init(params), forgetful.init(params), heavy.init(params)
    for _ in range(10):
        _, state = adam.update(grads, state, params)
        _, memory = forgetful.update(grads, memory, params)
        updates, ball = heavy.update(grads, ball, params)
        assert optax.apply_updates(params, updates)["x"][1] == 0
    assert state[0][0].mu["x"][1] < -0.6  # 1 - 0.9^10
    np.testing.assert_array_equal(ball[1].prev["x"], params["x"])  # no displacement, no momentum
    # What never was in the support does not leave it: its moments go on, until it enters.
    np.testing.assert_array_equal(memory.inner[0].mu["x"], state[0][0].mu["x"])


def reference_problem(n=40, d=60):
    rng = np.random.default_rng(5)
    A, x = rng.standard_normal((n, d)), np.zeros(d)
    x[rng.choice(d, 6, replace=False)] = rng.standard_normal(6)
    return A, A @ x + 0.01 * rng.standard_normal(n)


def iterates(tx, A, y, num_steps):
    def step(carry, _):
        x, state = carry
        updates, state = tx.update(A.T @ (A @ x - y), state, x)
        x = optax.apply_updates(x, updates)
        return (x, state), x

    x = jnp.zeros(A.shape[1])
    return np.asarray(jax.lax.scan(step, (x, tx.init(x)), length=num_steps)[1])


def assert_iterates(tx, A, y, xs, atol):
    np.testing.assert_allclose(iterates(tx, A, y, len(xs) - 1), xs[1:], rtol=0, atol=atol)


# ---- scopes against loops ----


def loop_threshold(z, k):
    return reference.hard_threshold(z, k)


def by_loops(params, k, scope):
    """H_k of a pytree of NumPy arrays, in plain loops."""
    leaves, structure = jax.tree.flatten(params)
    if scope == "global":
        flat = loop_threshold(np.concatenate([leaf.ravel() for leaf in leaves]), k)
        pieces = np.split(flat, np.cumsum([leaf.size for leaf in leaves])[:-1])
        return jax.tree.unflatten(
            structure, [p.reshape(leaf.shape) for p, leaf in zip(pieces, leaves, strict=True)]
        )

    def one(z):
        if scope == "leaf":
            return loop_threshold(z.ravel(), k).reshape(z.shape)
        if isinstance(scope, Axis):
            return np.apply_along_axis(loop_threshold, scope.axis, z, k)
        if isinstance(scope, NM):
            return np.apply_along_axis(
                lambda v: np.concatenate([loop_threshold(g, k) for g in v.reshape(-1, scope.m)]),
                scope.axis,
                z,
            )
        out, (a, b) = np.zeros_like(z), scope.shape
        corners = [
            (*lead, slice(i, i + a), slice(j, j + b))
            for lead in np.ndindex(z.shape[:-2])
            for i in range(0, z.shape[-2], a)
            for j in range(0, z.shape[-1], b)
        ]
        norms = np.array([np.sum(z[corner].astype(np.float64) ** 2) for corner in corners])
        for i in np.flatnonzero(loop_threshold(norms, k)):
            out[corners[i]] = z[corners[i]]
        return out

    return jax.tree.map(one, params)


SCOPES = ["leaf", "global", Axis(0), Axis(-1), Axis(-2), NM(4, -1), NM(2, 0), Blocks((2, 4))]


@pytest.mark.parametrize(
    ("scope", "dtype"),
    [
        *((scope, "float32") for scope in SCOPES),
        *((scope, "bfloat16") for scope in ("leaf", "global", SCOPES[-1])),
    ],
    ids=str,
)
def test_prune_is_the_loop(scope, dtype):
    rng = np.random.default_rng(0)
    params = {
        "a": rng.standard_normal((8, 16)),
        "b": [rng.standard_normal((2, 4, 8)), rng.standard_normal((6, 4))],
    }
    whole = jax.tree.map(lambda z: np.round(2 * z), params)  # many ties, many zeros
    prune = quick(lambda params, k: transforms.prune(params, k, scope=scope))
    # The squares of the loop are not scaled: ties of blocks may differ.
    for values in [params] if isinstance(scope, Blocks) else [params, whole]:
        values = jax.tree.map(lambda z: np.asarray(z, jnp.dtype(dtype)), values)
        for k in (0, 1, 2, 3, 30, 1000):
            want = by_loops(jax.tree.map(lambda z: np.asarray(z, np.float64), values), k, scope)
            got = jax.tree.map(lambda z: np.asarray(z, np.float64), prune(values, np.int32(k)))
            jax.tree.map(
                functools.partial(np.testing.assert_array_equal, err_msg=f"k = {k}"), got, want
            )


def test_global_scope_mixes_dtypes_and_breaks_ties_in_order():
    params = [
        jnp.array([1.0, -2.0], "bfloat16"),
        jnp.array([2.0, 1.0], "float32"),
        jnp.zeros((0, 3)),
        jnp.array(2.0),
    ]
    for k, want in (
        (1, [[0, -2], [0, 0], 0]),
        (2, [[0, -2], [2, 0], 0]),
        (3, [[0, -2], [2, 0], 2]),
    ):
        got = transforms.prune(params, k, scope="global")
        assert [np.asarray(z, float).tolist() for z in (got[0], got[1], got[3])] == want
        assert got[0].dtype == jnp.bfloat16


def test_fraction_is_rounded_to_the_nearest_count():
    params, traced = tree(0), quick(transforms.prune)
    for fraction in (0.0, 0.05, 0.5, 1.0):
        want = [int(fraction * size + 0.5) for size in sizes(params)]
        assert nonzeros(traced(params, fraction)) == want
        for number in (fraction, np.float32(fraction), jnp.float32(fraction)):
            assert [int(count_kept(number, size)) for size in sizes(params)] == want


def test_counts_beyond_two_to_the_24():
    """A float32 count stands still at 2^24."""
    z = jnp.ones((2**12 + 3, 2**12), jnp.bfloat16)

    @jax.jit
    def prune(z, k):
        kept = transforms.prune(z, k, scope="global")
        return kept.reshape(-1) != 0, transforms.sparsity(kept).nonzeros

    for k in (2**24 + 1, 2**24 + 12_001):
        flat, nonzeros = map(np.asarray, prune(z, k))
        assert flat[:k].all() and not flat[k:].any()
        assert nonzeros == k


def test_k_for_each_array():
    params = tree(0)
    ks = jax.tree.map(lambda p: min(p.size, p.ndim), params)
    tx = hard_threshold(ks)
    updates, _ = quick(tx.update)(jax.tree.map(jnp.zeros_like, params), tx.init(params), params)
    assert nonzeros(optax.apply_updates(params, updates)) == jax.tree.leaves(ks)
    # A pytree for all arrays also where optax.masked hides some.
    mask = jax.tree.map(lambda p: p.ndim >= 2, params)
    new = quick(lambda params: transforms.prune(params, ks, mask=mask))(params)
    want = [
        k if m else s
        for k, m, s in zip(*map(jax.tree.leaves, (ks, mask)), nonzeros(params), strict=True)
    ]
    assert nonzeros(new) == want


def test_k_and_mask_may_be_pytrees_that_can_be_called():
    """As modules are whose fields are the parameters."""

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Module:
        w: Any
        b: Any

        def __call__(self, x):
            raise AssertionError("a pytree is not a schedule")

    params = Module(jnp.arange(1.0, 7.0).reshape(2, 3), jnp.ones(4))
    assert nonzeros(transforms.prune(params, Module(2, 0.5))) == [2, 2]
    assert nonzeros(transforms.prune(params, 2, mask=Module(True, False))) == [2, 4]
    assert float(transforms.sparsity(params, mask=Module(True, False)).total) == 0
    assert nonzeros(transforms.prune(params, Module([2], 0.5))) == [2, 2]  # a number in a box
    with pytest.raises(ValueError, match=r"k must be one number for \.w; got \[2, 3\]"):
        transforms.prune(params, Module([2, 3], 0.5))


# ---- when: schedules, every, hold, freeze ----


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


# ---- resetting moments ----


OPTIMISERS = {
    "adam": optax.adam(1.0),
    "amsgrad": optax.amsgrad(1.0),
    "adagrad": optax.adagrad(1.0, initial_accumulator_value=0.1),
    "momentum": optax.sgd(1.0, momentum=0.9),
    "lion": optax.lion(1.0),
    "clipped": optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1.0)),
    "masked": optax.masked(optax.adam(1.0), {"a": True, "b": False}),
    "partition": optax.transforms.partition(
        {"x": optax.adam(1.0), "y": optax.rmsprop(1.0)}, {"a": "x", "b": "y"}
    ),
}


@pytest.mark.parametrize(
    ("name", "leave", "enter"),
    [*((name, True, True) for name in OPTIMISERS), ("adam", True, False), ("adam", False, True)],
)
def test_moments_are_reset_where_the_support_changes(name, leave, enter):
    """Against the plain chain, entry by entry, in each array of the state that has the shape of its
    parameters."""
    inner, shapes = OPTIMISERS[name], {"a": (5, 6), "b": (30,)}
    rng = np.random.default_rng(0)
    params = {
        name: jnp.asarray(rng.standard_normal(shape), "float32") for name, shape in shapes.items()
    }
    tx = transforms.reset_moments(inner, hard_threshold(8), leave=leave, enter=enter)

    @quick
    def step(seed, state, params):
        grads = gradients(seed, params)
        _, unreset = inner.update(grads, state.inner, params)
        updates, state = tx.update(grads, state, params)
        return unreset, state, optax.apply_updates(params, updates)

    state, fresh, seen = tx.init(params), inner.init(params), 0
    for seed in range(6):
        unreset, state, new = step(seed, state, params)
        for old, now, start in zip(
            *map(jax.tree.leaves, (unreset, state.inner, fresh)), strict=True
        ):
            whose = [key for key in params if params[key].shape == old.shape]
            if not whose:
                np.testing.assert_array_equal(old, now)
                continue
            before, after = (np.asarray(p[whose[0]]) != 0 for p in (params, new))
            changed = (leave & before & ~after) | (enter & ~before & after)
            np.testing.assert_allclose(now, np.where(changed, start, old), rtol=1e-5, atol=1e-7)
            seen += int(changed.sum())
        params = new
    assert seen > 0


def test_moments_of_a_single_array():
    tx = transforms.reset_moments(optax.adam(0.1), hard_threshold(2))
    x = jnp.arange(1.0, 6.0)
    updates, state = quick(tx.update)(jnp.ones(5), tx.init(x), x)
    np.testing.assert_array_equal(state.inner[0].mu != 0, optax.apply_updates(x, updates) != 0)
    assert int(state.inner[0].count) == 1


# ---- other projections ----


def test_low_rank_is_the_truncated_svd():
    params = {"m": tree(0)["dense"]["kernel"], "batch": tree(0)["conv"], "v": jnp.ones(5)}
    tx = optax.chain(optax.sgd(0.1), transforms.low_rank(2))
    new, _ = train(tx, params, 5)
    for z in (new["m"], *np.asarray(new["batch"]).reshape(-1, 2, 8)):
        s = np.linalg.svd(np.asarray(z, np.float64))[1]
        assert np.all(s[2:] <= 1e-5 * s[0])
    assert nonzeros(new["v"]) == [5]
    low_rank = quick(jaxht.projections.low_rank)
    for k in (0, 1, 3, 12):
        Z = np.asarray(params["m"], np.float64)
        U, s, Vt = np.linalg.svd(Z, full_matrices=False)
        got = low_rank(params["m"], k)
        np.testing.assert_allclose(got, (U[:, :k] * s[:k]) @ Vt[:k], atol=1e-5 * s[0])
    half = jax.eval_shape(low_rank, params["m"].astype(jnp.bfloat16), 3)
    assert half.dtype == jnp.bfloat16
    many = low_rank(params["batch"], np.arange(9).reshape(3, 3))
    one = quick(jax.vmap(jax.vmap(jaxht.projections.low_rank)))(
        params["batch"], np.arange(9).reshape(3, 3)
    )
    np.testing.assert_allclose(many, one, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_l2_ball_and_its_composition_with_the_threshold(dtype):
    params, eps = jax.tree.map(lambda p: p.astype(dtype), small()), float(jnp.finfo(dtype).eps)
    updates = jax.tree.map(lambda p: 0.3 * p, params)

    @functools.partial(quick, static_argnums=0)
    def apply(make, *numbers):
        tx = make(*numbers)
        return optax.apply_updates(params, tx.update(updates, tx.init(params), params)[0])

    moved = jax.tree.map(
        lambda p, u: np.asarray((p + u).astype(p.dtype), np.float64), params, updates
    )
    norm = np.sqrt(sum(np.sum(z**2) for z in jax.tree.leaves(moved)))
    in_all = functools.partial(transforms.l2_ball, scope="global")
    for radius in (0.0, 0.5 * norm, 2 * norm):
        want = jax.tree.map(lambda z, radius=radius: z * min(1, radius / norm), moved)
        got = jax.tree.map(lambda z: np.asarray(z, np.float64), apply(in_all, radius))
        jax.tree.map(
            lambda g, w: np.testing.assert_allclose(
                g, w, rtol=8 * eps, atol=8 * eps * np.abs(w).max()
            ),
            got,
            want,
        )
    each = apply(transforms.l2_ball, 1.0)
    for z, q in zip(jax.tree.leaves(each), jax.tree.leaves(moved), strict=True):
        assert np.linalg.norm(np.asarray(z, np.float64)) == pytest.approx(
            min(1.0, np.linalg.norm(q)), rel=8 * eps
        )
    # In this order it is the projection onto the intersection, and as sparse as before, to the last
    # entry.
    both = apply(lambda: optax.chain(hard_threshold(5), transforms.l2_ball(1.0)))
    alone = apply(lambda: hard_threshold(5))
    jax.tree.map(
        lambda z, w: np.testing.assert_array_equal(np.asarray(z) != 0, np.asarray(w) != 0),
        both,
        alone,
    )
    vector = jnp.asarray(np.random.default_rng(0).standard_normal(20), dtype)
    tx = optax.chain(hard_threshold(4), transforms.l2_ball(0.5))
    got = optax.apply_updates(
        vector, quick(tx.update)(jnp.zeros_like(vector), tx.init(vector), vector)[0]
    )
    want = quick(jaxht.projections.sparse_l2_ball)(vector.astype("float32"), 4, 0.5)
    np.testing.assert_allclose(got.astype("float32"), want, atol=2 * eps)


def test_projections_follow_schedules_and_every():
    x = jnp.arange(1.0, 5.0)
    tx = transforms.l2_ball(lambda step: jnp.where(step < 3, 1.0, 0.5), every=2)
    state, norms = tx.init(x), []
    for _ in range(4):
        updates, state = jax.jit(tx.update)(jnp.ones(4), state, x)
        norms.append(float(jnp.linalg.norm(optax.apply_updates(x, updates))))
    assert norms == pytest.approx(
        [np.linalg.norm(np.arange(2, 6)), 1.0, np.linalg.norm(np.arange(2, 6)), 0.5], rel=1e-5
    )


def test_straight_through_is_sparse_forward_and_dense_backward():
    params = small()
    sparse, pruned = quick(
        lambda p: (transforms.straight_through(p, 0.1), transforms.prune(p, 0.1))
    )(params)
    assert same(sparse, pruned)
    weights = small(1)

    def loss(params):
        sparse = transforms.straight_through(params, 0.1)
        return sum(jax.tree.leaves(jax.tree.map(lambda w, z: jnp.sum(w * z**2), weights, sparse)))

    want = jax.tree.map(lambda w, z: 2 * w * z, weights, sparse)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-6),
        quick(jax.grad(loss))(params),
        want,
    )
    total = lambda p: sum(jnp.sum(z) for z in jax.tree.leaves(transforms.straight_through(p, 0.1)))  # noqa: E731
    dense = quick(jax.grad(total))(params)
    assert all(bool(jnp.all(g == 1)) for g in jax.tree.leaves(dense))


def test_sparsity_report():
    params = {
        "a": jnp.array([[0.0, -0.0], [jnp.nan, 1.0]]),
        "b": jnp.zeros(3),
        "c": jnp.zeros((0,)),
        "n": None,
    }
    report = jax.jit(transforms.sparsity)(params)
    assert jax.tree.map(float, report.leaves) == {"a": 0.5, "b": 1.0, "c": 0.0, "n": None}
    assert float(report.total) == pytest.approx(5 / 7)
    assert jax.tree.map(int, report.nonzeros) == {"a": 2, "b": 0, "c": 0, "n": None}
    assert (
        float(transforms.sparsity(params, mask={"a": True, "b": False, "c": True, "n": True}).total)
        == 0.5
    )
    assert (
        float(
            transforms.sparsity(params, mask=lambda p: jax.tree.map(lambda z: z.ndim == 1, p)).total
        )
        == 1.0
    )


# ---- compatibility: optax's wrappers, jit, vmap, checkpoints ----


def test_mask_leaves_arrays_alone():
    params = small()
    for mask in (
        jax.tree.map(lambda p: p.ndim >= 2, params),
        lambda p: jax.tree.map(lambda z: z.ndim >= 2, p),
    ):
        new, _ = train(
            optax.chain(optax.adam(0.1), hard_threshold(5, mask=mask, hold=True)), params, 5
        )
        free, _ = train(
            optax.chain(optax.masked(hard_threshold(5), mask), optax.identity()), params, 1
        )
        want = [min(5, p.size) if p.ndim >= 2 else p.size for p in jax.tree.leaves(params)]
        assert nonzeros(new) == want == nonzeros(free)


def test_partition_and_injected_hyperparameters():
    params = small()
    labels = jax.tree.map(lambda p: "sparse" if p.ndim >= 2 else "dense", params)
    sparse = optax.chain(optax.adam(0.1), hard_threshold(6, scope="global"))
    new, _ = train(
        optax.transforms.partition({"sparse": sparse, "dense": optax.sgd(0.1)}, labels), params, 5
    )
    dense = [p.size for p in jax.tree.leaves(params) if p.ndim < 2]
    assert sum(nonzeros(new)) == 6 + sum(dense)
    injected = optax.inject_hyperparams(hard_threshold, static_args=("every", "hold", "freeze_at"))
    tx = injected(k=0.5, scope="global")
    new, state = train(tx, params, 3)
    assert sum(nonzeros(new)) == round(0.5 * sum(sizes(params)))
    state.hyperparams["k"] = jnp.asarray(0.25)
    new, _ = train(tx, params, 3, state=state)
    assert sum(nonzeros(new)) == int(0.25 * sum(sizes(params)) + 0.5)


def test_multi_steps_and_apply_if_finite():
    params = small()
    tx = optax.MultiSteps(optax.chain(optax.adam(0.1), hard_threshold(4)), every_k_schedule=3)
    want = [min(4, size) for size in sizes(params)]
    for num_steps in (3, 4, 6):
        assert nonzeros(train(tx, params, num_steps)[0]) == want
    assert same(train(tx, params, 2)[0], params)
    guarded = optax.apply_if_finite(optax.chain(optax.adam(0.1), hard_threshold(4)), 5)
    new, state = train(guarded, params, 3)
    update, state = guarded.update(
        jax.tree.map(lambda p: jnp.full_like(p, jnp.nan), new), state, new
    )
    assert same(optax.apply_updates(new, update), new) and nonzeros(new) == want


def test_vmap_over_seeds_and_hyper_parameters_is_the_loop():
    def run(seed, k, rate, every):
        x = gradients(100 * seed, jnp.zeros((6, 7)))
        tx = optax.chain(optax.adam(rate), hard_threshold(k, every=every, hold=True, freeze_at=7))
        return trainer(tx)(0, 10, x, tx.init(x))[0]

    seeds, ks = jnp.arange(4), jnp.array([1, 5, 20, 42])
    rates, every = jnp.array([0.1, 0.2, 0.1, 0.3]), jnp.array([1, 2, 3, 4])
    batch, alone = quick(jax.vmap(run))(seeds, ks, rates, every), quick(run)
    for i in range(4):
        np.testing.assert_allclose(
            batch[i], alone(seeds[i], ks[i], rates[i], every[i]), rtol=1e-5, atol=1e-6
        )
    assert nonzeros(list(batch)) == ks.tolist()


def test_donated_buffers_and_no_second_compile():
    tx, compiles = optax.chain(optax.adam(0.1), hard_threshold(5, every=2, hold=True)), []

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params, state, grads):
        compiles.append(None)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params = small()
    state = jax.jit(tx.init)(params)
    for seed in range(4):
        params, state = step(params, state, gradients(seed, params))
    assert nonzeros(params) == [min(5, size) for size in sizes(params)]
    assert len(compiles) == 1


@pytest.mark.filterwarnings("ignore")  # of the checkpointing library, on import and on saving
def test_a_run_goes_on_from_a_checkpoint(tmp_path):
    checkpoint = pytest.importorskip("orbax.checkpoint")
    tx = transforms.reset_moments(
        optax.adam(0.1),
        hard_threshold(transforms.cubic(0.1, end=8), every=3, hold=True, freeze_at=9),
    )
    whole, _ = train(tx, small(), 12)
    params, state = train(tx, small(), 5)
    with checkpoint.StandardCheckpointer() as saver:
        saver.save(tmp_path / "run", {"params": params, "state": state})
        saver.wait_until_finished()
        fresh = small(7)
        restored = saver.restore(tmp_path / "run", {"params": fresh, "state": tx.init(fresh)})
    again, _ = train(tx, restored["params"], 7, first=5, state=restored["state"])
    assert same(again, whole)


def test_state_keeps_its_types_and_tree_map_params_finds_it():
    params = tree(0, "bfloat16")
    tx = hard_threshold(0.5, hold=True)
    state = tx.init(params)
    _, after = jax.eval_shape(tx.update, params, state, params)
    assert jax.tree.map(operator.attrgetter("dtype", "shape"), state) == jax.tree.map(
        operator.attrgetter("dtype", "shape"), after
    )
    marked = optax.tree_map_params(tx, lambda leaf: "like the parameters", state)
    assert jax.tree.leaves(marked.support) == ["like the parameters"] * len(sizes(params))


SHARDED = """
    import re
    import jax, jax.numpy as jnp, numpy as np, optax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    from jaxht import transforms

    mesh = Mesh(jax.devices(), ("x",))
    assert len(jax.devices()) == 8
    shapes = {"a": (64, 96), "b": (40, 128), "c": (512,), "d": (24, 10)}
    places = {"a": P("x", None), "b": P(None, "x"), "c": P("x"), "d": P()}
    rng = np.random.default_rng(0)
    values = {name: np.round(rng.standard_normal(shape), 1).astype("float32") for name, shape in shapes.items()}
    placed = {name: jax.device_put(values[name], NamedSharding(mesh, places[name])) for name in shapes}

    def chain(threshold):
        tx = optax.chain(optax.adam(1e-3), threshold)

        def step(params):
            updates, state = tx.update(params, tx.init(params), params)
            return optax.apply_updates(params, updates), state

        return step

    for threshold in (
        transforms.hard_threshold(0.05, scope="global"),
        transforms.hard_threshold(777, every=2, hold=True, freeze_at=5),
        transforms.l2_ball(1.0, scope="global"),
    ):
        step = jax.jit(chain(threshold), compiler_options={"xla_backend_optimization_level": 0})
        compiled = step.lower(placed).compile()
        movement = r"= \\(?(\\w+)\\[([0-9,]*)\\].* (all-\\w+|collective-permute|reduce-scatter)"
        moved = re.findall(movement, compiled.as_text())
        assert moved, "the devices must exchange counts"
        for dtype, shape, name in moved:
            # At most the counts of the rows from each device: never the entries.
            size = int(np.prod([int(n) for n in shape.split(",") if n]))
            assert dtype in ("s32", "pred", "f32") and size <= 8 * 64, (name, dtype, shape)
        new, _ = compiled(placed)
        alone, _ = step(values)
        for name in shapes:
            assert new[name].sharding.is_equivalent_to(placed[name].sharding, len(shapes[name]))
            np.testing.assert_allclose(new[name], alone[name], atol=1e-6)
            np.testing.assert_array_equal(np.asarray(new[name]) != 0, np.asarray(alone[name]) != 0)

    # Of many entries a sample moves as well, and where shards are no multiple of its steps a few
    # rows.
    for shape, place in (((4096, 1024), P("x")), ((4096, 1024), P(None, "x")), ((4000, 1056), P("x"))):
        z = jax.device_put(rng.standard_normal(shape).astype("float32"), NamedSharding(mesh, place))
        prune = jax.jit(lambda z: transforms.prune(z, 0.05), out_shardings=z.sharding)
        compiled = prune.lower(z).compile()
        moved = re.findall(movement, compiled.as_text())
        for dtype, size, name in moved:
            size = int(np.prod([int(n) for n in size.split(",") if n]))
            assert size <= 64 * 1056, (name, dtype, size)
        kept = np.asarray(compiled(z)) != 0
        np.testing.assert_array_equal(kept, np.asarray(transforms.prune(np.asarray(z), 0.05)) != 0)
        assert kept.sum() == round(0.05 * z.size)
    print("done")
"""


def test_sharded_parameters_stay_where_they_are():
    """On eight devices: what the compiled program moves between them, and that the result is that
    of one."""
    result = on_devices(8, "-c", textwrap.dedent(SHARDED))
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.strip() == "done"


# ---- errors ----


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: hard_threshold(1, scope="layer"),
            "scope must be 'leaf', 'global', an Axis, an NM or Blocks; got 'layer'",
        ),
        (lambda: hard_threshold(1, scope=NM(0, 0)), "NM.m must be positive"),
        (lambda: hard_threshold(1, scope=Blocks((2, 0))), "Blocks.shape must be positive"),
        (lambda: hard_threshold(1, every=0), "every must be at least 1; got 0"),
        (lambda: hard_threshold(1, every=2.0), "every must be an integer; got 2.0"),
        (lambda: transforms.l2_ball(1.0, scope="axis"), "'axis' is not a valid Scope"),
    ],
)
def test_invalid_arguments_are_refused_when_it_is_made(make, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        make()


@pytest.mark.parametrize(
    ("k", "scope", "message"),
    [
        (-1, "leaf", "k must be an integer of at least 0, or a fraction from 0 to 1; got -1"),
        (1.5, "leaf", "fraction from 0 to 1; got 1.5"),
        (lambda step: 20.0, "leaf", "fraction from 0 to 1; got 20.0"),
        (True, "leaf", "k must be an integer or a fraction; got True"),
        (np.ones(3), "leaf", r"k must be a scalar; got shape \(3,\): use jax.vmap"),
        ({"w": 1}, "global", "with scope 'global' k must be one number"),
        ({"v": 1}, "leaf", "pytree with the structure of the parameters"),
        (1, Axis(2), r"needs that axis; \['w'\] has shape \(6, 4\)"),
        (1, NM(3, -1), r"needs multiples of 3 along the axis; \['w'\] has shape \(6, 4\)"),
        (1, Blocks((4, 4)), r"must tile the trailing axes; \['w'\] has shape \(6, 4\)"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_when_it_is_traced(k, scope, message):
    params = {"w": jnp.ones((6, 4))}
    tx = hard_threshold(k, scope=scope)
    with pytest.raises(ValueError, match=message):
        jax.jit(tx.update)(params, tx.init(params), params)


def test_parameters_are_needed_and_must_be_real():
    tx = hard_threshold(1)
    with pytest.raises(ValueError, match="needs the parameters"):
        tx.update(jnp.ones(3), tx.init(jnp.ones(3)))
    with pytest.raises(ValueError, match=r"\['n'\] has dtype int32: leave it out by mask"):
        transforms.prune({"n": jnp.arange(3)}, 1)
    with pytest.raises(ValueError, match="dtype complex64"):
        transforms.prune(jnp.ones(3, "complex64"), 1)
    with pytest.raises(
        ValueError, match=r"needs an axis shorter than .* got shape \(4294967296,\)"
    ):
        jax.eval_shape(
            lambda z: transforms.prune(z, 0.1), jax.ShapeDtypeStruct((2**32,), "float32")
        )


@pytest.mark.parametrize("scope", ["leaf", "global"])
def test_more_parameters_than_an_int32_counts(scope):
    """Nothing of that size is computed here; tests/test_selection.py has counts of two digits."""
    params = {
        "w": jax.ShapeDtypeStruct((2**16, 2**16), "float32"),
        "b": jax.ShapeDtypeStruct((2**16,), "float32"),
    }
    for k in (0.1, 3 * 2**30, jnp.float32(0.1), jnp.int32(5)):
        kept = jax.eval_shape(lambda params, k=k: transforms.prune(params, k, scope=scope), params)
        assert kept == params
        if not isinstance(k, int):
            jax.eval_shape(lambda params, k: transforms.prune(params, k, scope=scope), params, k)
    report = jax.eval_shape(transforms.sparsity, params)
    assert report.nonzeros["w"].dtype == "float32" and report.nonzeros["b"].dtype == "int32"
