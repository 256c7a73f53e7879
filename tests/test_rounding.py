"""Bounds by duality hold in floating-point numbers, against an evaluation with more digits than the
library has."""

import functools

import jax
import numpy as np
import pytest

import jaxht
from jaxht.objectives import dual
from tests.util import host, precision, quick

pytestmark = pytest.mark.usefixtures("all_quickly")

DELTA, SCALE, GAMMA = float(np.float32(0.7)), 3.25, 0.25


def log_loss(m):
    return np.maximum(-m, 0) + np.log1p(np.exp(-np.abs(m)))


def entropy(b):
    return b * np.log(b) + (1 - b) * np.log1p(-b)


def huber(u, y):
    r = np.abs(u - y)
    return np.where(r <= DELTA, r**2 / 2, DELTA * (r - r.dtype.type(DELTA) / 2))


def smoothed_hinge(u, y):
    clipped = np.clip(1 - y * u, 0, GAMMA)
    return clipped / GAMMA * (1 - y * u - clipped / 2)


# By name: the objective, its loss, its conjugate, and its targets. The numbers of losses are exact
# in float32.
MODELS = {
    "squared": (
        jaxht.LeastSquares,
        lambda u, y: (u - y) ** 2 / 2,
        lambda a, y: a**2 / 2 + a * y,
        "real",
    ),
    "Huber": (
        functools.partial(jaxht.Huber, delta=DELTA),
        huber,
        lambda a, y: a**2 / 2 + a * y,
        "real",
    ),
    "logistic": (
        jaxht.Logistic,
        lambda u, y: log_loss(y * u),
        lambda a, y: entropy(-a * y),
        "labels",
    ),
    "logistic, scaled": (
        functools.partial(jaxht.Logistic, scale=SCALE),
        lambda u, y: log_loss(SCALE * y * u),
        lambda a, y: entropy(-a * y / SCALE),
        "labels",
    ),
    "smoothed hinge": (
        functools.partial(jaxht.SmoothedHinge, gamma=GAMMA),
        smoothed_hinge,
        lambda a, y: y * a + GAMMA * a**2 / 2,
        "labels",
    ),
    "squared hinge": (
        jaxht.SquaredHinge,
        lambda u, y: np.maximum(1 - y * u, 0) ** 2 / 2,
        lambda a, y: y * a + a**2 / 2,
        "labels",
    ),
    "hinge": (jaxht.Hinge, lambda u, y: np.maximum(1 - y * u, 0), lambda a, y: y * a, "labels"),
    "Poisson": (
        jaxht.Poisson,
        lambda u, y: np.exp(u) - y * u,
        lambda a, y: (a + y) * np.log(a + y) - (a + y),
        "counts",
    ),
    "gamma": (
        jaxht.Gamma,
        lambda u, y: y * np.exp(-u) + u,
        lambda a, y: (1 - a) * np.log((1 - a) / y) - (1 - a),
        "positive",
    ),
}
LANES = 200


def problems(rng, name, n, d, k, dtype):
    """Designs of scales from 1e-4 to 1e4, half of them with columns of different ones, ridges of
    seven decades."""
    scale = 10.0 ** rng.uniform(-4, 4, LANES)
    A = rng.normal(size=(LANES, n, d)) * 10.0 ** (
        rng.uniform(-2, 0, (LANES, 1, d)) * rng.integers(0, 2, (LANES, 1, 1))
    )
    A[::5, :, 1] = A[::5, :, 0]
    x = rng.normal(size=(LANES, d)) * (rng.permuted(np.tile(np.arange(d), (LANES, 1)), axis=1) < k)
    x *= 10.0 ** rng.uniform(-2, 0.3, (LANES, 1))
    u = np.einsum("lij,lj->li", A, x)
    y = {
        "real": u + 10.0 ** rng.uniform(-3, 1, (LANES, 1)) * rng.normal(size=u.shape),
        "labels": np.where(u + rng.normal(size=u.shape) > 0, 1, -1),
        "counts": rng.poisson(1.5, u.shape),
        "positive": rng.gamma(2.0, 0.5, u.shape),
    }[MODELS[name][3]]
    l2, weights = 10.0 ** rng.uniform(-5, 2, LANES), rng.random((LANES, n)) + 0.1
    data = A * scale[:, None, None], y, l2 * scale**2, weights, x / scale[:, None]
    return [array.astype(dtype) for array in data]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MODELS)
def test_no_bound_is_violated(name, dtype):
    """f from above, D from below: 1600 of each, of short and long sums, with weights and without,
    and none far away."""
    make, loss, conjugate, _ = MODELS[name]
    exact = np.longdouble if dtype == "float64" else np.float64
    rng = np.random.default_rng([len(name), len(dtype)])
    slack = []
    with precision(dtype):
        for n, d, k, weighted in [(7, 5, 2, False), (90, 30, 6, True)]:
            constraint = jaxht.Sparse(k, k)

            @quick
            @jax.vmap
            def bounds(A, y, l2, weights, x, weighted=weighted, constraint=constraint):
                f = make(A, y, l2, mean=weighted, weights=weights if weighted else None)
                pred = f.predict(x)
                upper = f.value(x, pred) + dual.primal_error(f, x, pred, dual.column_bound(f))
                alpha = dual.dual_variables(f, pred)
                ready = constraint.prepare(x.shape)
                points = [
                    dual.dual_point(f, ready, f.loss.within(size * alpha, f.y)) for size in (1, 0.6)
                ]
                return upper, [(point.alpha, point.value) for point in points]

            data = problems(rng, name, n, d, k, dtype)
            upper, points = host(bounds(*data))
            A, y, l2, weights, x = (array.astype(exact) for array in data)
            shares = (
                weights / np.sum(weights, axis=1, keepdims=True) if weighted else np.ones_like(y)
            )
            u = np.sum(A * x[:, None], axis=2)
            value = np.sum(shares * loss(u, y), axis=1) + l2 / 2 * np.sum(x**2, axis=1)
            assert np.all(upper >= value)
            slack.append((upper - value) / np.abs(value))
            for alpha, lower in points:
                alpha = alpha.astype(exact)
                z = np.sum(A * (shares * alpha)[..., None], axis=1)
                largest = np.sort(z**2, axis=1)[:, -k:]
                best = -np.sum(shares * conjugate(alpha, y), axis=1) - np.sum(largest, axis=1) / (
                    2 * l2
                )
                assert np.all(lower <= best)
                slack.append((best - lower) / np.maximum(np.abs(best), np.abs(value)))
    assert np.median(np.concatenate(slack)) < 2e3 * np.finfo(dtype).eps


@pytest.mark.parametrize("name", ["squared", "logistic", "hinge"])
def test_gaps_are_never_too_small(name):
    """Of runs in float32: f(x) less its gap is below f of every other run, and of their own
    starts."""
    make, loss, _, _ = MODELS[name]
    data = problems(np.random.default_rng(1), name, 40, 20, 3, np.float32)
    constraint, stop = jaxht.Sparse(3, 3), jaxht.Stop(max_steps=8, gap_rtol=1e-5)
    solver = jaxht.DIHT(1.0) if name == "hinge" else jaxht.DIHT()

    @quick
    @jax.vmap
    def run(A, y, l2, x):
        f = make(A, y, l2, mean=True)
        result = jaxht.solve(f, constraint, solver, stop=stop, x0=x)
        return result, jaxht.certify(f, constraint, x, solver=solver, stop=stop)

    A, y, l2, _, x = data
    result, proof = host(run(A, y, l2, x))
    A, y, l2 = (array.astype(np.float64) for array in (A, y, l2))

    def value(x):
        x = x.astype(np.float64)
        return np.mean(loss(np.einsum("lij,lj->li", A, x), y), axis=1) + l2 / 2 * np.sum(
            x**2, axis=1
        )

    least = np.minimum(value(x), value(result.x))
    assert np.all(result.gap > 0) and np.all(result.value - result.gap.astype(np.float64) <= least)
    assert np.all(proof.lower <= least) and np.all(proof.value >= value(x))
    assert np.all(proof.gap.astype(np.float64) >= value(x) - least)
    assert np.any(result.status == jaxht.Status.GAP_CLOSED) or name != "squared"
