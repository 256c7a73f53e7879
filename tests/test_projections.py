"""The projections are the nearest points: against brute force over supports, float64 NumPy and
random rivals."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxht.linalg.projections import hard_threshold, l2_ball, low_rank, sparse_l2_ball
from tests.util import quick


def nearest_in_ball(v, radius):
    v = np.asarray(v, np.float64)
    norm = np.linalg.norm(v)
    return v if norm <= radius else v * (radius / norm)


def nearest_by_brute_force(z, k, radius):
    """The nearest point of every coordinate subspace, and of those the nearest; the first where
    several are."""
    best = None
    for support in itertools.combinations(range(len(z)), min(k, len(z))):
        x = np.zeros(len(z))
        x[list(support)] = nearest_in_ball(z[list(support)], radius)
        if best is None or np.linalg.norm(z - x) < np.linalg.norm(z - best) - 1e-12:
            best = x
    return best


def lanes(dtype):
    """Vectors of 6 entries with and without ties, each with every k and several radii."""
    rng = np.random.default_rng(0)
    zs = [
        rng.standard_normal(6),
        rng.integers(-2, 3, 6),
        np.ones(6),
        np.zeros(6),
        [0, 3, 0, -4, 0, 1e-3],
    ]
    cases = [(z, k, r) for z in zs for k in range(8) for r in (0.0, 0.7, 5.0, np.inf)]
    z, k, radius = zip(*cases, strict=True)
    return np.array(z, dtype), np.array(k), np.array(radius, dtype)


def test_are_the_nearest_points(dtype):
    z, k, radius = lanes(dtype)
    got = quick(jax.vmap(sparse_l2_ball))(z, k, radius)
    assert got.dtype == dtype
    for lane in range(len(z)):
        want = nearest_by_brute_force(z[lane].astype(float), k[lane], float(radius[lane]))
        np.testing.assert_allclose(
            got[lane], want, rtol=8 * np.finfo(dtype).eps, atol=0, err_msg=f"{lane}"
        )


def test_are_idempotent_and_nearer_than_other_feasible_points(dtype):
    z, k, radius = lanes(dtype)
    tolerance = 8 * np.finfo(dtype).eps
    project = quick(jax.vmap(sparse_l2_ball))
    x = np.asarray(project(z, k, radius))
    np.testing.assert_allclose(project(x, k, radius), x, rtol=tolerance)
    assert np.all((x != 0).sum(1) <= k)
    assert np.all(np.linalg.norm(x.astype(float), axis=1) <= radius * (1 + tolerance))

    rng = np.random.default_rng(1)
    distance = np.linalg.norm(z.astype(float) - x, axis=1)
    for _ in range(50):
        support = rng.permuted(np.tile(np.arange(6), (len(z), 1)), axis=1) < k[:, None]
        rival = 3 * support * rng.standard_normal(z.shape)
        rival *= np.minimum(1, radius / np.maximum(np.linalg.norm(rival, axis=1), 1e-9))[:, None]
        assert np.all(np.linalg.norm(z - rival, axis=1) >= distance - 1e-6)


def test_hard_threshold_keeps_what_it_keeps():
    z = jnp.array([0.5, jnp.nan, -jnp.inf, -0.0, 2.0])
    kept = quick(jax.vmap(hard_threshold, (None, 0)))(z, np.arange(-1, 7))
    x = np.asarray(z)
    for k, order in enumerate([[], [], [1], [1, 2], [1, 2, 4], [0, 1, 2, 4], range(5), range(5)]):
        want = np.zeros(5)
        want[list(order)] = x[list(order)]
        np.testing.assert_array_equal(kept[k], want)


BALLS = quick(jax.vmap(l2_ball, (None, 0)))


@pytest.mark.parametrize("exponent", [0, 30, 60, 126, -30, -60, -120])
@pytest.mark.parametrize(
    "entries", [[1.5, -2.0], [1.0], [0.0, 1.0, 0.0], [1.0, 1.0, -1.0, 1.0, 1.0], [1.9] * 64]
)
def test_l2_ball_neither_over_nor_underflows(exponent, entries):
    """Over the range of float32: with v and radius scaled by a power of two, so is the
    projection."""
    v = np.pad(np.array(entries, np.float32), (0, 64 - len(entries)))
    scale = np.float32(2.0) ** exponent
    radii = np.array([0.25, 0.5, 1, 1.75], np.float32)
    np.testing.assert_allclose(BALLS(v * scale, radii * scale), BALLS(v, radii) * scale, rtol=1e-6)
    want = [nearest_in_ball(v.astype(float) * float(scale), float(radius)) for radius in radii]
    np.testing.assert_allclose(BALLS(v * scale, radii), want, rtol=1e-6)
    extremes = np.array([0, np.inf, 0, np.inf], np.float32)
    np.testing.assert_array_equal(BALLS(v * scale, extremes), v * scale * (extremes > 0)[:, None])


def test_l2_ball_of_zero_of_infinity_and_of_lanes():
    v = np.array([[0, 0], [0, 0], [0, 0], [3, 4], [0.3, 0.4], [-3, 4], [np.inf, 1]], np.float32)
    radius = np.array([0, 1, np.inf, 1, 1, 2.5, np.inf], np.float32)
    want = np.array([[0, 0], [0, 0], [0, 0], [0.6, 0.8], [0.3, 0.4], [-1.5, 2], [np.inf, 1]])
    for ball in (l2_ball, jax.vmap(l2_ball)):
        np.testing.assert_allclose(quick(ball)(v, radius), want, rtol=1e-6)
    np.testing.assert_allclose(l2_ball(np.float16([300, 400]), 5), [3, 4], rtol=1e-3)


def test_derivatives_of_l2_ball(dtype):
    """The identity inside, zero included; outside, radius / norm times the projection off v."""
    inside, zero, outside = np.array([[0.3, -0.4, 0.1], [0, 0, 0], [3, -4, 12]], dtype)
    v = outside.astype(float)
    off = 2.0 / 13 * (np.eye(3) - np.outer(v, v) / 169)
    for jacobian in (jax.jacfwd(l2_ball), jax.jacrev(l2_ball)):
        got = quick(jax.vmap(jacobian, (0, None)))(np.stack([inside, zero, outside]), 2.0)
        np.testing.assert_allclose(got, [np.eye(3), np.eye(3), off], atol=8 * np.finfo(dtype).eps)


def test_ball_of_complex_numbers():
    v = np.array([3 + 4j, 1j], np.complex64)
    np.testing.assert_allclose(l2_ball(jnp.asarray(v), 1.0), v / 26**0.5, rtol=1e-6)
    np.testing.assert_array_equal(l2_ball(jnp.asarray(v), 6.0), v)


@pytest.mark.parametrize(("size", "value"), [(70_000, 1.0), (5000, 60_000.0)])
def test_ball_in_half_precision_does_not_overflow(size, value):
    found = l2_ball(jnp.full(size, value, jnp.float16), 1.0)
    assert found.dtype == jnp.float16
    np.testing.assert_allclose(found, size**-0.5, rtol=2e-3)


def test_ball_of_integers_is_refused():
    with pytest.raises(ValueError, match="v must be floating or complex"):
        l2_ball(jnp.array([3, 4]), 1.0)


def test_any_number_of_entries_is_clipped():
    x = jnp.arange(5.0)
    for k, kept in ((np.uint32(2**32 - 1), 5), (np.int8(3), 3), (np.int32(-2), 0)):
        found = hard_threshold(x, jnp.asarray(k))
        np.testing.assert_array_equal(found, jnp.where(x >= 5 - kept, x, 0))


@pytest.mark.parametrize("unit", [1e18, 1e22, 1e-18, 1e-30])
def test_the_derivative_of_low_rank_has_no_unit(unit):
    rng = np.random.default_rng(0)
    Z, E = rng.normal(size=(2, 5, 4)).astype(np.float32)

    def derivative(Z):
        return jax.jvp(lambda Z: low_rank(Z, 2), (Z,), (E,))[1]

    np.testing.assert_allclose(derivative(np.float32(unit) * Z), derivative(Z), atol=1e-5)


def test_low_rank_has_no_derivative_of_complex_numbers():
    Z = jnp.ones((3, 2)) + 1j
    with pytest.raises(ValueError, match="must be real"):
        jax.jvp(lambda Z: low_rank(Z, 1), (Z,), (Z,))


def test_an_empty_axis_has_no_entry_to_keep():
    assert hard_threshold(jnp.ones((3, 0)), 1).shape == (3, 0)
