"""The threshold after optax's optimisers: exact counts in long runs, the iterates of IHT, moments
that are reset, and errors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxht
from jaxht import transforms
from jaxht.transforms import NM, Axis, Blocks, hard_threshold
from tests.pytrees import gradients, nonzeros, sizes, small, tree
from tests.util import precision, quick

# ---- exactly sparse, exactly the inner optimiser ----


DTYPES = ["float32", "bfloat16"]


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


@pytest.mark.parametrize("function", [transforms.prune, transforms.straight_through])
def test_a_schedule_is_no_number(function):
    with pytest.raises(ValueError, match="k must be the value of a schedule at a step"):
        function(jnp.arange(3.0), transforms.cubic(0.3, end=10))


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
