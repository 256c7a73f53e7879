"""Standard errors against the formulas of textbooks, and how often their intervals cover."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.stats

import jaxht
from jaxht import Support
from jaxht.inference import standard_errors
from jaxht.subproblems import refit
from tests.test_cox import partial_likelihood
from tests.util import precision, quick, x64

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D = 80, 7
F = [1, 3, 4]


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


def data():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(N, D))
    return rng, A, A[:, 1] - 0.5 * A[:, 4]


def errors(f, sandwich=False, k_max=4):
    """At the minimiser on F, with room in the list of its indices; and that minimiser."""
    support = Support(np.isin(np.arange(D), F), k_max=k_max)
    x = refit(f.prepare(), support, jnp.zeros(D)).x
    found = standard_errors(f, support, x, sandwich=sandwich)
    assert np.all(found[~np.isin(np.arange(D), F)] == 0)
    return np.asarray(found)[F], np.asarray(x)


def covariance(bread, meat):
    return np.sqrt(np.diag(np.linalg.inv(bread) @ meat @ np.linalg.inv(bread)))


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("l2", [0.0, 0.2])
def test_least_squares(mean, l2):
    rng, A, u = data()
    y, weights = u + rng.normal(size=N), rng.integers(0, 3, N).astype(float)
    found, x = errors(jaxht.LeastSquares(A, y, l2, mean=mean, weights=weights))
    B = A[:, F]
    J = B.T @ (weights[:, None] * B)
    P = l2 * np.eye(3) * (weights.sum() if mean else 1)
    variance = weights @ (y - A @ x) ** 2 / (weights.sum() - 3)
    np.testing.assert_allclose(found, covariance(J + P, variance * J), rtol=1e-9)
    found, x = errors(jaxht.LeastSquares(A, y, l2, mean=mean, weights=weights), sandwich=True)
    scores = B * (y - A @ x)[:, None]
    np.testing.assert_allclose(
        found, covariance(J + P, scores.T @ (weights[:, None] * scores)), rtol=1e-9
    )


def test_least_squares_is_that_of_scipy():
    rng, A, _ = data()
    y = 2 * A[:, 1] + 1 + rng.normal(size=N)
    B = np.hstack([A[:, [1]], np.ones((N, 1))])
    both = Support(np.ones(2, bool), k_max=2)
    f = jaxht.LeastSquares(B, y, mean=False)
    found = standard_errors(f, both, refit(f.prepare(), both, jnp.zeros(2)).x)
    theirs = scipy.stats.linregress(A[:, 1], y)
    np.testing.assert_allclose(found, [theirs.stderr, theirs.intercept_stderr], rtol=1e-9)


@pytest.mark.parametrize("design", ["dense", "sparse"])
def test_generalised_linear_models(design):
    rng, A, u = data()
    held = jaxht.design(scipy.sparse.csr_array(A)) if design == "sparse" else A
    offset, B = 0.3 * rng.normal(size=N), A[:, F]
    labels = np.where(u + offset + rng.logistic(size=N) > 0, 1.0, -1.0)
    found, x = errors(jaxht.Logistic(held, labels, offset=offset))
    p = 1 / (1 + np.exp(-A @ x - offset))
    J = B.T @ ((p * (1 - p))[:, None] * B)
    np.testing.assert_allclose(found, np.sqrt(np.diag(np.linalg.inv(J))), rtol=1e-7)
    found, x = errors(jaxht.Logistic(held, labels, offset=offset), sandwich=True)
    scores = B * ((labels > 0) - p)[:, None]
    np.testing.assert_allclose(found, covariance(J, scores.T @ scores), rtol=1e-7)

    counts = rng.poisson(np.exp(u)).astype(float)
    found, x = errors(jaxht.Poisson(held, counts))
    J = B.T @ (np.exp(A @ x)[:, None] * B)
    np.testing.assert_allclose(found, np.sqrt(np.diag(np.linalg.inv(J))), rtol=1e-7)

    positive = rng.gamma(4.0, np.exp(u) / 4)
    found, x = errors(jaxht.Gamma(held, positive))
    ratio = positive / np.exp(A @ x)
    J, dispersion = B.T @ (ratio[:, None] * B), np.sum((ratio - 1) ** 2) / (N - 3)
    np.testing.assert_allclose(found, np.sqrt(dispersion * np.diag(np.linalg.inv(J))), rtol=1e-7)

    found, x = errors(jaxht.Huber(held, u + rng.standard_t(2, size=N)), sandwich=True)
    assert np.all(found > 0.05) and np.all(found < 0.5)


def hessian_by_differences(value, w, h=1e-4):
    e = h * np.eye(len(w))
    return np.array(
        [
            [(value(w + a + b) - value(w + a - b) - value(w - a + b) + value(w - a - b)) for b in e]
            for a in e
        ]
    ) / (4 * h * h)


def test_losses_that_couple_the_samples():
    """The inverse of the Hessian of the partial likelihood; of ordered classes, its part beside the
    thresholds."""
    rng, A, u = data()
    y = np.stack([rng.exponential(np.exp(-u)), rng.random(N) < 0.7], axis=1)
    found, x = errors(jaxht.Cox(A, y))
    J = hessian_by_differences(
        lambda w: partial_likelihood(A[:, F] @ w, y[:, 0], y[:, 1], np.ones(N)), x[F]
    )
    np.testing.assert_allclose(found, np.sqrt(np.diag(np.linalg.inv(J))), rtol=1e-5)

    ids = np.searchsorted([-1, 1], u + rng.logistic(size=N))
    f = jaxht.Ordinal(A, ids, num_classes=3)
    found, x = errors(f)

    def value(w):
        bounds = np.array([-np.inf, w[3], w[4], np.inf])
        cdf = scipy.stats.logistic.cdf
        return -np.sum(
            np.log(cdf(bounds[ids + 1] - A[:, F] @ w[:3]) - cdf(bounds[ids] - A[:, F] @ w[:3]))
        )

    J = hessian_by_differences(value, np.append(x[F], f.thresholds(x)))
    np.testing.assert_allclose(found, np.sqrt(np.diag(np.linalg.inv(J)))[:3], rtol=1e-5)


def test_intervals_cover_on_supports_that_were_known_before():
    """Of 400 logistic problems of 200 samples, at 90 %; sandwiches too, where the variance of
    squares varies."""

    @quick
    @jax.vmap
    def run(key):
        keys = jax.random.split(key, 3)
        A = jax.random.normal(keys[0], (200, 6))
        u = A[:, 0] - A[:, 1]
        support = Support(jnp.arange(6) < 2, k_max=2)
        y = jnp.where(u + jax.random.logistic(keys[1], (200,)) > 0, 1.0, -1.0)
        z = u + jax.random.normal(keys[2], (200,)) * jnp.abs(A[:, 0])
        covered = []
        for f, sandwich in (
            (jaxht.Logistic(A, y), False),
            (jaxht.LeastSquares(A, z, mean=False), True),
            (jaxht.LeastSquares(A, z, mean=False), False),
        ):
            x = refit(f.prepare(), support, jnp.zeros(6)).x
            covered.append(
                jnp.abs(x[0] - 1) < 1.645 * standard_errors(f, support, x, sandwich=sandwich)[0]
            )
        return jnp.stack(covered)

    logistic, sandwich, naive = np.asarray(run(jax.random.split(jax.random.key(0), 400))).sum(
        axis=0
    )
    assert 0.001 < scipy.stats.binom.cdf(logistic, 400, 0.9) < 0.999
    assert 0.001 < scipy.stats.binom.cdf(sandwich, 400, 0.89) < 0.999
    assert (
        scipy.stats.binom.cdf(naive, 400, 0.85) < 1e-3
    )  # of errors whose variance varies it covers too rarely


def test_outputs():
    rng, A, u = data()
    Y = np.stack([u, -u], axis=1) + rng.normal(size=(N, 2))
    f = jaxht.MultiResponse(A, Y)
    mask = np.zeros((D, 2), bool)
    mask[[1, 4], [0, 1]] = True
    support = Support(mask, k_max=2, ndim=2)
    x = refit(f.prepare(), support, jnp.zeros((D, 2))).x
    found = np.asarray(standard_errors(f, support, x))
    variance = np.sum((Y - A @ x) ** 2) / (2 * N - 2)
    expected = [np.sqrt(variance / np.sum(A[:, 1] ** 2)), np.sqrt(variance / np.sum(A[:, 4] ** 2))]
    np.testing.assert_allclose(found[[1, 4], [0, 1]], expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("f", "sandwich", "message"),
    [
        (jaxht.Huber(np.eye(3), np.ones(3)), False, "likelihood for its loss.*Huber"),
        (jaxht.Cox(np.eye(3), np.ones((3, 2))), True, "sandwich; got Cox"),
        (jaxht.Hinge(np.eye(3), np.ones(3)), True, "sandwich; got Hinge"),
        (jaxht.MultiResponse(np.eye(3), np.ones((3, 2))), True, "sandwich; got MultiResponse"),
    ],
)
def test_what_cannot_be(f, sandwich, message):
    with pytest.raises(ValueError, match=message):
        standard_errors(f, Support(np.ones(3, bool), k_max=3), np.zeros(3), sandwich=sandwich)


def test_k_max_is_needed():
    with pytest.raises(ValueError, match="k_max must be given"):
        standard_errors(
            jaxht.LeastSquares(np.eye(3), np.ones(3), mean=False),
            Support(np.ones(3, bool)),
            np.zeros(3),
        )


def test_sandwich_errors_where_a_sample_without_weight_is_unknown():
    rng, A, eta = data()
    y = eta + rng.normal(size=N)
    weights = np.ones(N)
    weights[5] = 0
    unknown = y.copy()
    unknown[5] = np.nan
    want, found = (
        errors(jaxht.LeastSquares(A, target, weights=weights), sandwich=True)[0]
        for target in (y, unknown)
    )
    assert np.all(want > 0)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("sandwich", [False, True])
@pytest.mark.parametrize(
    ("unit", "target_unit"), [(1e-12, 1e-12), (1e12, 1e12), (1e-12, 1e12), (1e12, 1e-12), (1e18, 1)]
)
def test_units_of_columns_and_of_targets(unit, target_unit, sandwich):
    """Variances are products of several squares of both."""
    _, A, y = data()
    y = y + 0.3 * A[:, 0]
    plain = errors(jaxht.LeastSquares(A, y), sandwich)[0]
    with precision("float32"):
        other = jaxht.LeastSquares(np.float32(A * unit), np.float32(y * target_unit))
        support = Support(np.isin(np.arange(D), F), k_max=4)
        x = refit(other.prepare(), support, jnp.zeros(D)).x
        found = standard_errors(other, support, x, sandwich=sandwich)
    np.testing.assert_allclose(
        np.asarray(found[np.array(F)], float) * unit / target_unit, plain, rtol=1e-4
    )
