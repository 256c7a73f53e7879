"""Knockoffs: their moments, the choice of S, the threshold, and what is discovered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from scipy import optimize

import jaxht
from jaxht.diagnostics.inference.model_x import (
    gaussian_knockoffs,
    knockoff_threshold,
    knockoffs,
    minimise_reconstructability,
)
from tests.util import host, quick, x64

pytestmark = pytest.mark.usefixtures("all_quickly")


def correlations(d, rho):
    """Of an autoregressive sequence."""
    return rho ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))


@pytest.mark.parametrize("construction", ["mvr", "equicorrelated"])
def test_exchanging_features_and_copies_changes_no_second_moment(construction):
    d, n = 5, 100_000
    rng = np.random.default_rng(0)
    scale, mean = np.array([0.1, 1, 2, 5, 1]), np.array([3.0, 0, -1, 0, 10])
    sigma = correlations(d, 0.6) * np.outer(scale, scale)
    A = mean + rng.normal(size=(n, d)) @ np.linalg.cholesky(sigma).T
    with x64():
        copies = np.asarray(
            gaussian_knockoffs(
                A, jax.random.key(0), mean=mean, covariance=sigma, construction=construction
            )
        )
    both = np.hstack([A, copies]) / np.tile(scale, 2)
    np.testing.assert_allclose(both.mean(axis=0), np.tile(mean / scale, 2), atol=5 / np.sqrt(n))
    G, R = np.cov(both.T), correlations(d, 0.6)
    # Standard errors of covariances of unit variances are at most sqrt(2 / n).
    near = 5 * np.sqrt(2 / n)
    np.testing.assert_allclose(G[:d, :d], R, atol=near)
    np.testing.assert_allclose(G[d:, d:], R, atol=near)
    cross = G[:d, d:]
    off = ~np.eye(d, dtype=bool)
    np.testing.assert_allclose(cross[off], R[off], atol=near)
    s = 1 - np.diagonal(cross)
    expected = np.full(d, min(1, 2 * np.linalg.eigvalsh(R)[0]))
    if construction == "equicorrelated":
        np.testing.assert_allclose(s, expected, atol=near)
    else:
        # Far from the end of what is possible, where features and copies depend on each other.
        assert np.linalg.eigvalsh(2 * R - np.diag(s))[0] > 0.15 and s.min() > 0.3


@pytest.mark.parametrize("construction", ["mvr", "equicorrelated"])
def test_moments_of_samples_are_kept(construction):
    """Without a covariance that of the samples is taken: copies agree with it."""
    rng = np.random.default_rng(1)
    A = rng.exponential(size=(20_000, 4)) @ rng.normal(size=(4, 4))
    with x64():
        copies = np.asarray(gaussian_knockoffs(A, jax.random.key(0), construction=construction))
    scale = np.sqrt(np.outer(A.var(axis=0), A.var(axis=0)))
    np.testing.assert_allclose(np.cov(copies.T) / scale, np.cov(A.T) / scale, atol=0.06)


def test_reconstructability_is_minimal():
    rng = np.random.default_rng(2)
    for d in (2, 6):
        X = rng.normal(size=(d, 2 * d))
        C = X @ X.T
        R = C / np.sqrt(np.outer(np.diag(C), np.diag(C)))

        def loss(s, R=R):
            D = 2 * R - np.diag(s)
            if s.min() <= 0 or np.linalg.eigvalsh(D)[0] <= 0:
                return np.inf
            G = np.block([[R, R - np.diag(s)], [R - np.diag(s), R]])
            return np.trace(np.linalg.inv(G))

        least = np.linalg.eigvalsh(R)[0]
        with x64():
            s = np.asarray(minimise_reconstructability(jnp.asarray(R), jnp.full(d, least)))
        best = optimize.minimize(
            loss,
            np.full(d, least),
            method="Nelder-Mead",
            options={"maxiter": 20_000, "fatol": 1e-12, "xatol": 1e-9, "adaptive": True},
        )
        assert loss(s) <= best.fun * (1 + 1e-6)


def threshold_by_loop(W, q, plus):
    for t in sorted(np.abs(W)):
        if t > 0 and (plus + np.sum(W <= -t)) / max(1, np.sum(W >= t)) <= q:
            return t
    return np.inf


def test_the_threshold_is_that_of_a_loop():
    rng = np.random.default_rng(3)
    finite = 0
    for _ in range(200):
        W = rng.integers(-8, 9, size=20) + rng.choice([0, 3])
        q, plus = rng.choice([0.1, 0.2, 0.5]), bool(rng.integers(2))
        expected = threshold_by_loop(W, q, plus)
        assert knockoff_threshold(W.astype(np.float32), q, plus=plus) == expected
        finite += np.isfinite(expected)
    assert 40 < finite < 180


@pytest.mark.parametrize(
    ("model", "construction"),
    [("squares", "mvr"), ("squares", "equicorrelated"), ("logistic", "mvr")],
)
def test_false_discoveries_and_power(model, construction):
    """Of 200 problems of correlated features: at most the share that was asked for, of the true
    ones nearly all."""
    n, d, K, q, runs = (250, 30, 10, 0.2, 200) if model == "squares" else (400, 20, 8, 0.2, 60)
    R = correlations(d, 0.4).astype(np.float32)
    half = np.linalg.cholesky(R)
    truth = np.zeros(d, np.float32)
    truth[:: d // K][:K] = 0.5 if model == "squares" else 1.0

    @quick
    @jax.vmap
    def run(key):
        keys = jax.random.split(key, 3)
        A = jax.random.normal(keys[0], (n, d)) @ half.T
        if model == "squares":
            f = jaxht.LeastSquares(A, A @ truth + jax.random.normal(keys[1], (n,)), mean=False)
        else:
            y = jnp.where(A @ truth + jax.random.logistic(keys[1], (n,)) > 0, 1.0, -1.0)
            f = jaxht.Logistic(A, y, 1e-3)
        found = knockoffs(
            f, jaxht.OMP(), key=keys[2], fdr=q, covariance=R, construction=construction, k_max=d
        )
        return found.selected, found.statistics

    selected, W = (np.asarray(part) for part in run(jax.random.split(jax.random.key(0), runs)))
    null = truth == 0
    shares = selected[:, null].sum(axis=1) / np.maximum(1, selected.sum(axis=1))
    assert shares.mean() <= q + 2 * shares.std() / np.sqrt(runs)
    assert selected[:, ~null].mean() > (0.75 if construction == "mvr" else 0.6)
    # Of those that are null as many are ahead of their copies as behind.
    ahead, behind = np.sum(W[:, null] > 0), np.sum(W[:, null] < 0)
    assert (
        ahead + behind > 100
        and scipy.stats.binomtest(int(ahead), int(ahead + behind)).pvalue > 1e-3
    )
    # The test could fail: without the copies' part of the threshold far more is selected.
    naive = (W[:, null] > 0).sum(axis=1) / np.maximum(1, (W > 0).sum(axis=1))
    assert naive.mean() > q + 0.05


def test_statistics_are_differences_of_coefficients():
    """Along a path over features and copies in order, whatever order they were shuffled into, and
    in any units."""
    rng = np.random.default_rng(4)
    A = rng.normal(size=(80, 6))
    y = A @ np.array([3.0, 0, 2.0, 0, 1.0, 0]) + 0.1 * rng.normal(size=80)
    statistics = []
    for factor in (np.ones(6), np.array([1, 1, 2.0, 1, 1, 1])):
        with x64():
            f = jaxht.LeastSquares(A * factor, y, 0.1 * factor**2, mean=False)
            found = knockoffs(
                f, jaxht.OLS(), key=jax.random.key(0), k_max=5, covariance=np.diag(factor**2)
            )
            both = np.hstack([A * factor, found.copies])
            results = jaxht.path(
                jaxht.LeastSquares(both, y, np.tile(f.l2, 2), mean=False),
                jaxht.Sparse(1),
                jaxht.OLS(),
                ks=range(1, 6),
            )
        found, x = host(found), np.asarray(results.x)
        scale = np.std(np.vstack([A * factor, found.copies]), axis=0)
        expected = [
            scale[j] * sum(abs(x[k, j]) - abs(x[k, j + 6]) for k in range(5)) for j in range(6)
        ]
        np.testing.assert_allclose(found.statistics, expected, rtol=1e-9, atol=1e-12)
        assert found.statistics[0] > 10 and np.all(
            found.selected == (found.statistics >= found.threshold)
        )
        statistics.append(found.statistics)
    np.testing.assert_allclose(*statistics, rtol=1e-6, atol=1e-9)


def test_samples_of_weight_0_are_left_out():
    """Copies of the others have their moments, in units of integer weights too."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(400, 4)) @ np.linalg.cholesky(correlations(4, 0.5)).T
    y = 3 * A[:, 0] + rng.normal(size=400)
    hostile = np.where(np.arange(400)[:, None] < 50, 1e6, A)
    weights = np.where(np.arange(400) < 50, 0.0, 1 + np.arange(400) % 2)
    with x64():
        found = knockoffs(
            jaxht.LeastSquares(hostile, y, weights=weights), jaxht.OMP(), key=jax.random.key(1)
        )
        repeated = np.repeat(A, weights.astype(int), axis=0)
        of_others = knockoffs(
            jaxht.LeastSquares(repeated, np.repeat(y, weights.astype(int))),
            jaxht.OMP(),
            key=jax.random.key(1),
        )
    copies = np.asarray(found.copies)[50:]
    kept = weights[50:] / weights[50:].sum()

    def between(A, B, w):
        A, B = A - w @ A, B - w @ B
        return (w[:, None] * A).T @ B

    np.testing.assert_allclose(
        between(copies, copies, kept), between(A[50:], A[50:], kept), atol=0.15
    )
    first = float(found.statistics[0])
    assert first > 1
    np.testing.assert_allclose(first, float(of_others.statistics[0]), rtol=0.2)


def test_copies_of_dependent_features():
    """Known to be, they are refused; traced, each is its own copy, and nothing is discovered."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(60, 4))
    assert np.isfinite(gaussian_knockoffs(X, jax.random.key(0))).all()
    for last in (np.ones(60), X[:, 0]):
        Z = X.astype(np.float32)
        Z[:, 3] = last
        with pytest.raises(ValueError, match="constant, or depends on others, has no knockoff"):
            gaussian_knockoffs(Z, jax.random.key(0))
        copies = jax.jit(gaussian_knockoffs)(Z, jax.random.key(0))
        np.testing.assert_allclose(copies, Z, atol=1e-5)


F = jaxht.LeastSquares(np.ones((4, 5), np.float32), np.ones(4, np.float32), mean=False)
WRONG = [
    (
        lambda: knockoffs(F, jaxht.OMP(), key=jax.random.key(0)),
        "covariance must be given .* n = 4, d = 5",
    ),
    (
        lambda: knockoffs(F, jaxht.OMP(), key=jax.random.key(0), k_max=6, covariance=np.eye(5)),
        "k_max must lie .* 5; got 6",
    ),
    (
        lambda: knockoffs(jaxht.GaussianPrecision(np.eye(3)), jaxht.OMP(), key=jax.random.key(0)),
        "dense design; got Gaussian",
    ),
    (
        lambda: gaussian_knockoffs(F.A, jax.random.key(0), construction="sdp"),
        "construction must be \"mvr\" or .* 'sdp'",
    ),
    (
        lambda: gaussian_knockoffs(F.A, jax.random.key(0), covariance=np.eye(4)),
        r"shapes \(5,\) and \(5, 5\); got",
    ),
    (lambda: gaussian_knockoffs(F.y, jax.random.key(0)), r"A must have shape \(n, d\); got \(4,\)"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_what_cannot_be(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_units_of_features_are_those_of_their_copies():
    A = np.random.default_rng(0).normal(size=(65, 3)).astype(np.float32)
    units = np.array([1, 2.0**66, 2.0**-66], np.float32)
    copies = gaussian_knockoffs(A, jax.random.key(0))
    found = gaussian_knockoffs(A * units, jax.random.key(0))
    np.testing.assert_allclose(found / units, copies, rtol=1e-3, atol=1e-4)
