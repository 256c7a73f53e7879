"""Proportional odds against SciPy's minimum over coefficients and thresholds, differences, and
enumeration."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from scipy import optimize
from scipy.special import expit

import jaxht
from jaxht import Sparse, Status, Support
from jaxht.subproblems import refit
from tests.util import check_slopes, quick, solve, x64

pytestmark = pytest.mark.usefixtures("all_quickly")
N, D, K = 60, 6, 2


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


def likelihood(theta, u, y, weights):
    """Minus its logarithm, from the probabilities of the classes."""
    bounds = np.concatenate([[-np.inf], theta, [np.inf]])
    a, b = bounds[y] - u, bounds[y + 1] - u
    # In whichever tail is not rounded to 1.
    return -np.sum(weights * np.log(np.where(a < 0, expit(b) - expit(a), expit(-a) - expit(-b))))


def best_thresholds(u, y, weights, c):
    """SciPy's minimum over increasing thresholds, which are sums of exponentials."""

    def increasing(w):
        return w[0] + np.concatenate([[0], np.cumsum(np.exp(w[1:]))])

    start = np.zeros(c - 1)
    fun = lambda w: likelihood(increasing(w), u, y, weights)  # noqa: E731
    found = optimize.minimize(fun, start, method="BFGS", options={"gtol": 1e-9})
    found = optimize.minimize(
        fun, found.x, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-14}
    )
    return increasing(found.x), found.fun


def data(c, seed=0, n=N):
    rng = np.random.default_rng(seed)
    A, offset = rng.normal(size=(n, D)), 0.5 * rng.normal(size=n)
    noisy = 2 * (A[:, 0] - A[:, 3]) + offset + rng.logistic(size=n)
    y = np.searchsorted(np.quantile(noisy, np.arange(1, c) / c), noisy)
    weights = rng.exponential(size=n) * (rng.random(n) < 0.8)
    return A, y, weights, offset


DESIGNS = {
    "dense": jnp.asarray,
    "sparse": lambda A: jaxht.design(scipy.sparse.csr_array(A)),
    "operator": lambda A: jaxht.LinearOperator(lambda x, A: A @ x, A.shape, (A,)),
}


def problem(c, design="dense", weighted=True, mean=True, l2=0.05):
    A, y, weights, offset = data(c)
    s = weights if weighted else None
    return jaxht.Ordinal(
        DESIGNS[design](A), y, l2, mean=mean, weights=s, offset=offset, num_classes=c
    )


def differences(fun, x, h):
    return np.stack([(fun(x + h * e) - fun(x - h * e)) / (2 * h) for e in np.eye(len(x))])


@pytest.mark.parametrize(
    ("c", "weighted", "mean"), [(2, True, True), (3, False, False), (5, True, True)]
)
def test_value_and_derivatives(c, weighted, mean):
    f = problem(c, weighted=weighted, mean=mean)
    A, y, weights, offset = data(c)
    s = weights if weighted else np.ones(N)
    x = 0.7 * np.random.default_rng(1).normal(size=D)
    pred = f.predict(x)
    theta, least = best_thresholds(A @ x + offset, y, s, c)
    np.testing.assert_allclose(f.thresholds(x), theta, rtol=0, atol=1e-5)
    share = 1 / s.sum() if mean else 1.0
    np.testing.assert_allclose(f.value(x, pred), share * least + 0.05 / 2 * x @ x, rtol=1e-9)

    value = quick(lambda x: f.value(x, f.predict(x)))
    gradient = quick(lambda x: f.gradient(x, f.predict(x)))
    np.testing.assert_allclose(gradient(x), differences(value, x, 1e-5), rtol=1e-6, atol=1e-7)
    H, expected = f.hessian(x, pred), differences(gradient, x, 1e-5)
    np.testing.assert_allclose(H.rows(jnp.arange(D)), expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(H.diagonal(), np.diag(expected), rtol=1e-6, atol=1e-8)
    gap = f.majorant().rows(jnp.arange(D)) - expected
    assert np.linalg.eigvalsh((gap + gap.T) / 2)[0] >= -1e-9


def test_two_classes_are_logistic_regression_with_an_intercept():
    A, y, weights, offset = data(2)
    f = jaxht.Ordinal(A, y, 0.1, weights=weights, offset=offset, num_classes=2)
    ones, l2 = np.ones((N, 1)), np.append(np.full(D, 0.1), 0.0)
    g = jaxht.Logistic(
        np.hstack([A, ones]), np.where(y > 0, 1.0, -1.0), l2, weights=weights, offset=offset
    )
    ours = jaxht.solve(f, Sparse(K), jaxht.HTP())
    theirs = refit(
        g.prepare(), Support(np.append(ours.support.mask, True), k_max=K + 1), np.zeros(D + 1)
    )
    np.testing.assert_allclose(ours.x, theirs.x[:-1], atol=1e-8)
    np.testing.assert_allclose(f.thresholds(ours.x), [-theirs.x[-1]], atol=1e-8)


def test_weights_repeat_and_leave_out_samples():
    A, y, _, offset = data(4)
    counts = np.random.default_rng(3).integers(0, 3, N)
    rows = np.repeat(np.arange(N), counts)
    weighted = jaxht.Ordinal(A, y, 0.1, weights=counts.astype(float), offset=offset, num_classes=4)
    repeated = jaxht.Ordinal(A[rows], y[rows], 0.1, offset=offset[rows], num_classes=4)
    x, v = np.random.default_rng(4).normal(size=(2, D))
    for look in (
        lambda f: f.value(x, f.predict(x)),
        lambda f: f.gradient(x, f.predict(x)),
        lambda f: f.thresholds(x),
    ):
        np.testing.assert_allclose(look(weighted), look(repeated), rtol=1e-9, atol=1e-10)
    ours, theirs = (f.hessian(x, f.predict(x))(v) for f in (weighted, repeated))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_classes_without_samples_are_left_out():
    """By ids that do not occur, and by weights of 0; thresholds of the classes beside them are
    where they were."""
    A, y, _, offset = data(3)
    apart = np.array([1, 2, 4])[y]  # of six classes
    x, v = np.random.default_rng(5).normal(size=(2, D))
    few, many = (
        jaxht.Ordinal(A, ids, offset=offset, num_classes=c) for ids, c in ((y, 3), (apart, 6))
    )
    for look in (lambda f: f.value(x, f.predict(x)), lambda f: f.gradient(x, f.predict(x))):
        np.testing.assert_allclose(look(few), look(many), rtol=1e-10)
    ours, theirs = (f.hessian(x, f.predict(x))(v) for f in (few, many))
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    low, high = few.thresholds(x)
    np.testing.assert_allclose(many.thresholds(x), [-np.inf, low, high, high, np.inf], rtol=1e-10)
    left_out = jaxht.Ordinal(A, y, weights=(y != 1).astype(float), offset=offset, num_classes=3)
    pair = jaxht.Ordinal(A[y != 1], y[y != 1], offset=offset[y != 1], num_classes=3)
    np.testing.assert_allclose(
        left_out.value(x, left_out.predict(x)), pair.value(x, pair.predict(x)), rtol=1e-12
    )
    assert left_out.thresholds(x)[0] == left_out.thresholds(x)[1]


def minimum(f, F):
    """SciPy's over the coefficients F and the thresholds together."""
    A, y, weights, offset = data(f.num_classes)
    share, c = 1 / weights.sum(), f.num_classes

    def value(w):
        theta = w[len(F)] + np.concatenate([[0], np.cumsum(np.exp(w[len(F) + 1 :]))])
        x = np.bincount(F, w[: len(F)], D)
        return share * likelihood(theta, A @ x + offset, y, weights) + 0.05 / 2 * x @ x

    found = optimize.minimize(
        value, np.zeros(len(F) + c - 1), method="BFGS", options={"gtol": 1e-8}
    )
    return np.bincount(F, found.x[: len(F)], D), found.fun


@pytest.mark.parametrize("design", DESIGNS)
def test_minimisers_on_supports_are_scipys(design):
    f = problem(4, design)
    supports = [[0, 3], [1, 2, 4, 5], [6 - 1], []]
    masks = np.stack([np.isin(np.arange(D), F) for F in supports])
    run = quick(jax.vmap(lambda mask, x0: refit(f.prepare(), Support(mask, k_max=4), x0)))
    found = run(masks, np.random.default_rng(6).normal(size=masks.shape))
    x, pred, converged = found.x, found.pred, found.converged
    assert np.all(converged)
    for i, F in enumerate(supports):
        expected = minimum(f, np.array(F))[0] if F else np.zeros(D)
        np.testing.assert_allclose(x[i], expected, atol=1e-5)
        assert np.max(np.abs(np.where(masks[i], f.gradient(x[i], pred[i]), 0))) < 1e-9


def test_the_best_support_is_that_of_enumeration():
    f = problem(3)
    best = min((minimum(f, np.array(F))[1], F) for F in itertools.combinations(range(D), K))
    for found in (jaxht.solve(f, Sparse(K)), jaxht.exhaustive_search(f, Sparse(K))):
        assert tuple(found.support.numpy()) == best[1]
        np.testing.assert_allclose(found.value, best[0], rtol=1e-8)


SOLVERS = [
    jaxht.IHT(),
    jaxht.NIHT(),
    jaxht.HTP(),
    jaxht.GraSP(),
    jaxht.SubspacePursuit(),
    jaxht.OMP(),
]


@pytest.mark.parametrize(
    "solver", [*SOLVERS, jaxht.OMPR(), jaxht.FoBa()], ids=lambda solver: type(solver).__name__
)
def test_solvers_find_what_is_planted(solver):
    rng = np.random.default_rng(7)
    A = rng.normal(size=(300, 20))
    u = 2 * (A[:, 4] - A[:, 11] + A[:, 17]) + rng.logistic(size=300)
    f = jaxht.Ordinal(A, np.searchsorted([-2, 0, 3], u), 1e-3, num_classes=4)
    result = solve(f, Sparse(3, 3), solver, key=jax.random.key(0), stop=jaxht.Stop(max_steps=500))
    assert result.support.mask.nonzero()[0].tolist() == [4, 11, 17]
    best = refit(f.prepare(), result.support, result.x)
    assert result.value <= f.value(best.x, best.pred) * 1.01


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_predictions_of_any_size(dtype):
    """Classes far apart, in order and not."""
    with x64(dtype == "float64"):
        y = np.array([0, 0, 1, 1, 2, 2])
        f = jaxht.Ordinal(np.eye(6, dtype=dtype), y, num_classes=3)
        u = np.array([-900, -800, 0, 10, 600, 700], dtype)
        assert 0 <= f.value(u, u) < 1e-3
        theta = f.thresholds(u)
        assert -800 < theta[0] < 0 and 10 < theta[1] < 600
        for pred in (-u, u * 0, 1e3 * u):
            assert np.all(np.isfinite(f.gradient(u, pred))) and np.isfinite(f.value(u, pred))
            assert np.all(np.diff(f.loss.thresholds(pred, y)) > 0)


def test_derivatives_of_minimisers():
    """By A, l2, the weights and the offset: forward, and reverse."""
    f = problem(4)
    support = Support(np.isin(np.arange(D), [0, 3, 5]), k_max=3)

    def minimum(A, l2, weights, offset):
        g = dataclasses.replace(f, A=A, l2=l2, weights=weights, offset=offset).prepare()
        return refit(g, support, jnp.zeros(D)).x

    point = tuple(map(jnp.asarray, (f.A, f.l2, f.weights + 0.1, f.offset)))
    rng = np.random.default_rng(8)
    along = jax.tree.map(lambda leaf: rng.normal(size=np.shape(leaf)), point)
    check_slopes(minimum, point, along, rtol=1e-5, atol=1e-7)


def test_lanes():
    rng = np.random.default_rng(9)
    A, y = rng.normal(size=(40, 6)), rng.integers(0, 3, (4, 40))
    A = np.stack([A] * 4)
    A[3, 0, 0] = np.nan

    def run(A, y):
        return jaxht.solve(jaxht.Ordinal(A, y, 0.01, num_classes=3), Sparse(2, 2), jaxht.HTP())

    lanes = quick(jax.vmap(run))(A, y)
    assert lanes.status[3] == Status.INVALID_DATA
    for i in range(3):
        np.testing.assert_allclose(lanes.x[i], run(A[i], y[i]).x, atol=1e-9)


@pytest.mark.parametrize(
    ("y", "c", "solver", "message"),
    [
        ([0, 1, 2, 1], 3, jaxht.SGHT(0.1), "sum over samples, which the loss of Ordinal couples"),
        ([0, 1, 2, 1], 3, jaxht.DIHT(), "to have a dual; got Ordinal"),
        ([0, 1, 3, 1], 3, jaxht.HTP(), r"y must hold class ids 0 ... 2; got \[0 1 3\]"),
        ([0, 0, 0, 0], 1, jaxht.HTP(), "num_classes must be an int of at least 2; got 1"),
    ],
)
def test_what_cannot_be(y, c, solver, message):
    f = jaxht.Ordinal(np.ones((4, 2)), np.array(y), 1.0, num_classes=c)
    with pytest.raises(ValueError, match=message):
        jaxht.solve(f, Sparse(1), solver, key=jax.random.key(0))


@pytest.mark.parametrize("far", [np.inf, 2e38])
def test_predictions_that_overflow_end_with_a_status(far):
    offset = np.zeros(N, np.float32)
    offset[:2] = far, -far
    rng = np.random.default_rng(0)
    A = rng.normal(size=(N, D)).astype(np.float32)
    f = jaxht.Ordinal(A, np.arange(N) % 3, l2=0.1, num_classes=3, offset=offset)
    result = solve(f, Sparse(K), jaxht.IHT())
    assert result.status in (Status.INVALID_DATA, Status.DIVERGED, Status.INVALID_START)
