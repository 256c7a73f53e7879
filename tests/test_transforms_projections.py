"""The transforms beside the threshold: low rank, l2 balls, the straight-through estimator, and the
report of sparsity."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxht
from jaxht import transforms
from jaxht.transforms import hard_threshold
from tests.pytrees import nonzeros, same, small, train, tree
from tests.util import quick


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


# ---- extreme numbers, other dtypes ----


def project_once(tx, params):
    updates, _ = tx.update(jax.tree.map(jnp.zeros_like, params), tx.init(params), params)
    return optax.apply_updates(params, updates)


@pytest.mark.parametrize("scope", ["leaf", "global"])
@pytest.mark.parametrize("size", [1e-25, 1e20, 1e25])
def test_l2_ball_of_extreme_numbers(size, scope):
    x = jnp.array([size, size, 0], jnp.float32)
    new = project_once(transforms.l2_ball(size, scope=scope), x)
    np.testing.assert_allclose(new, np.float32(size) * np.array([0.5**0.5, 0.5**0.5, 0]), rtol=1e-6)


@pytest.mark.parametrize("scope", ["leaf", "global"])
def test_l2_ball_where_the_norm_overflows(scope):
    x = jnp.array([1, -3, 2, 0.5], jnp.float32) * 1e38
    new = project_once(transforms.l2_ball(1e38, scope=scope), [x, jnp.zeros(2)])
    expected = 1e38 * np.array([1, -3, 2, 0.5]) / 14.25**0.5
    np.testing.assert_allclose(new[0], expected, rtol=1e-6)


def test_l2_ball_of_complex_numbers():
    x = jnp.array([3 + 4j, 1j])
    expected = np.asarray(x) / 26**0.5
    np.testing.assert_allclose(project_once(transforms.l2_ball(1.0), x), expected, rtol=1e-6)


@pytest.mark.parametrize("tx", [transforms.l2_ball(1.0), transforms.low_rank(1)])
def test_integers_are_refused_by_their_path(tx):
    params = {"w": jnp.ones((2, 2)), "steps": jnp.ones((2, 2), int)}
    with pytest.raises(ValueError, match=r"\['steps'\] has dtype int32"):
        project_once(tx, params)


def test_a_negative_radius_is_refused():
    with pytest.raises(ValueError, match="radius must be at least 0"):
        transforms.l2_ball(-1.0)


@pytest.mark.parametrize("function", [transforms.prune, transforms.straight_through])
def test_an_infinite_entry_that_is_not_kept_is_zero(function):
    new = function(jnp.array([jnp.inf, -jnp.inf, 1.0]), 1)
    np.testing.assert_array_equal(new, [np.inf, 0, 0])
