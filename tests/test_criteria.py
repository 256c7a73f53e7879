"""Information criteria against the likelihoods of SciPy, and what they choose."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.special
import scipy.stats

import jaxht
from jaxht import criteria
from tests.util import host, precision, quick, x64

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D = 60, 8


def gaussian(f, x):
    residuals = np.asarray(f.y - f.A @ x)
    return scipy.stats.norm.logpdf(residuals, scale=np.sqrt(np.mean(residuals**2))).sum()


def binomial(f, x):
    return scipy.stats.bernoulli.logpmf((f.y > 0).astype(int), scipy.special.expit(f.A @ x)).sum()


def poisson(f, x):
    return scipy.stats.poisson.logpmf(f.y, np.exp(f.A @ x)).sum()


def multinomial(f, x):
    return np.log(scipy.special.softmax(f.A @ x, axis=1)[np.arange(N), f.y]).sum()


def gamma(f, x):
    """At the shape that fits best."""
    mean = np.exp(f.A @ x)

    def minus(log_shape):
        return -scipy.stats.gamma.logpdf(
            f.y, np.exp(log_shape), scale=mean / np.exp(log_shape)
        ).sum()

    return -scipy.optimize.minimize_scalar(
        minus, bounds=(-8, 12), method="bounded", options={"xatol": 1e-9}
    ).fun


def ordinal(f, x):
    """At SciPy's thresholds."""
    u = f.A @ x

    def minus(w):
        bounds = np.array([-np.inf, w[0], w[0] + np.exp(w[1]), np.inf])
        share = scipy.stats.logistic.cdf(bounds[f.y + 1] - u) - scipy.stats.logistic.cdf(
            bounds[f.y] - u
        )
        return -np.log(share).sum()

    return -scipy.optimize.minimize(minus, np.zeros(2), method="BFGS", options={"gtol": 1e-9}).fun


def cox(f, x):
    (time, event), hazard = f.y.T, np.exp(f.A @ x)
    return sum(np.log(hazard[i] / hazard[time >= time[i]].sum()) for i in range(N) if event[i])


def models():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(N, D))
    u = A[:, 0] - A[:, 1]
    return {
        "squares": (jaxht.LeastSquares(A, u + rng.normal(size=N), 0.1, mean=False), gaussian),
        "mean of squares": (
            jaxht.LeastSquares(A, u + rng.normal(size=N), 0.1, mean=True),
            gaussian,
        ),
        "responses": (
            jaxht.MultiResponse(A, np.stack([u, -u], 1) + rng.normal(size=(N, 2))),
            gaussian,
        ),
        "logistic": (
            jaxht.Logistic(A, np.where(u + rng.normal(size=N) > 0, 1.0, -1.0), 0.1),
            binomial,
        ),
        "poisson": (jaxht.Poisson(A, rng.poisson(np.exp(0.5 * u)).astype(float)), poisson),
        "gamma": (jaxht.Gamma(A, rng.gamma(3.0, np.exp(0.5 * u) / 3), 0.1), gamma),
        "gamma, little noise": (jaxht.Gamma(A, rng.gamma(900.0, np.exp(0.5 * u) / 900)), gamma),
        "ordinal": (
            jaxht.Ordinal(A, np.searchsorted([-1, 1], u + rng.logistic(size=N)), num_classes=3),
            ordinal,
        ),
        "cox": (jaxht.Cox(A, np.stack([rng.exponential(np.exp(-u)), rng.random(N) < 0.7], 1)), cox),
        "softmax": (jaxht.Softmax(A, rng.integers(3, size=N), num_classes=3), multinomial),
    }


@pytest.mark.parametrize("name", models())
def test_deviances_differ_as_likelihoods_do(name):
    f, log_likelihood = models()[name]
    rng = np.random.default_rng(1)
    shape = f.prepare().shape
    x, z = 0.5 * rng.normal(size=(2, *shape))
    if "little noise" in name:  # near the truth the shape is large
        x, z = (
            np.array([0.5, -0.5, *[0] * 6]) + 0.01 * x,
            np.array([0.5, -0.5, *[0] * 6]) + 0.01 * z,
        )
    with x64():
        difference = criteria.deviance(f, x) - criteria.deviance(f, z)
    np.testing.assert_allclose(
        difference, -2 * (log_likelihood(f, x) - log_likelihood(f, z)), rtol=1e-9
    )


def test_penalties():
    f, _ = models()["squares"]
    x = np.array([1.0, -1.0, 0.0, 0.5, 0, 0, 0, 0])
    with x64():
        fit = criteria.deviance(f, x)
        assert criteria.aic(f, x) - fit == pytest.approx(6)
        assert criteria.bic(f, x) - fit == pytest.approx(3 * np.log(N))
        assert criteria.bic(f, x, size=2) - fit == pytest.approx(2 * np.log(N))
        extended = 3 * np.log(N) + 2 * 0.5 * np.log(scipy.special.binom(D, 3))
        assert criteria.ebic(f, x, gamma=0.5) - fit == pytest.approx(extended)
        assert criteria.gic(f, x) - fit == pytest.approx(3 * np.log(D) * np.log(np.log(N)))


def test_penalties_of_groups():
    """Two of five groups, with three parameters, beside an intercept."""
    f, _ = models()["squares"]
    x = np.array([1.0, -1.0, 0.0, 0.5, 0, 0, 0, 0])
    with x64():
        fit = criteria.deviance(f, x)
        extended = 3 * np.log(N) + 2 * np.log(scipy.special.binom(5, 2))
        assert criteria.ebic(f, x, selected=2, items=5) - fit == pytest.approx(extended)
        assert criteria.gic(f, x, items=5) - fit == pytest.approx(3 * np.log(5) * np.log(np.log(N)))


@pytest.mark.parametrize("name", ["squares", "mean of squares", "poisson", "gamma", "cox"])
def test_weights_repeat_samples(name):
    f, _ = models()[name]
    weights = np.random.default_rng(2).integers(0, 3, N)
    make = functools.partial(type(f), mean=f.mean)
    weighted = make(f.A, f.y, weights=weights.astype(float))
    repeated = make(np.repeat(f.A, weights, axis=0), np.repeat(f.y, weights, axis=0))
    x = np.array([0.5, -0.3, 0, 0, 0, 0, 0, 0])
    with x64():
        for criterion in (criteria.aic, criteria.bic, criteria.ebic, criteria.gic):
            assert criterion(weighted, x) == pytest.approx(float(criterion(repeated, x)))


def test_the_samples_of_a_partial_likelihood_are_its_events():
    f, _ = models()["cox"]
    x = np.array([1.0, -1.0, 0, 0, 0, 0, 0, 0])
    with x64():
        price = criteria.bic(f, x) - criteria.deviance(f, x)
    assert 20 < f.y[:, 1].sum() < N and price == pytest.approx(2 * np.log(f.y[:, 1].sum()))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gamma_shapes_of_any_size(dtype):
    """Deviances of little noise do not lose their digits."""
    rng = np.random.default_rng(4)
    for shape in (0.05, 1.0, 30.0, 1e4):
        y = np.maximum(rng.gamma(shape, 1 / shape, size=N), 1e-30)
        A = np.eye(N)[:, :1]
        with precision(dtype):
            f = jaxht.Gamma(A.astype(dtype), y.astype(dtype))
            ours = criteria.deviance(f, np.array([0.1], dtype)) - criteria.deviance(
                f, np.zeros(1, dtype)
            )
        theirs = -2 * (
            gamma(jaxht.Gamma(A, y), np.array([0.1])) - gamma(jaxht.Gamma(A, y), np.zeros(1))
        )
        assert float(ours) == pytest.approx(
            theirs, rel=1e-3 if dtype == "float32" else 1e-7, abs=1e-3
        )


@pytest.mark.parametrize(
    ("criterion", "least"), [(criteria.bic, 0.3), (criteria.gic, 0.5), (criteria.ebic, 0.9)]
)
def test_the_planted_sparsity_is_chosen(criterion, least):
    """In 60 problems of 200 x 30, of which the EBIC takes up the least noise."""

    @quick
    @jax.vmap
    def choose(key):
        A, noise = (
            jax.random.normal(key, (200, 30)),
            jax.random.normal(jax.random.fold_in(key, 1), (200,)),
        )
        f = jaxht.LeastSquares(A, A[:, :3] @ jnp.array([1.0, -1.0, 2.0]) + noise, mean=False)
        return criteria.choose_k(
            f, jaxht.Sparse(1), jaxht.OMP(), ks=range(7), criterion=criterion
        ).k

    right = int(np.sum(np.asarray(choose(jax.random.split(jax.random.key(0), 60))) == 3))
    assert scipy.stats.binom.cdf(right, 60, least) > 1e-3


def test_nothing_is_chosen_from_noise():
    rng = np.random.default_rng(3)
    choice = criteria.choose_k(
        jaxht.LeastSquares(rng.normal(size=(100, 40)), rng.normal(size=100), mean=False),
        jaxht.Sparse(1),
        jaxht.OMP(),
        ks=[0, 1, 2, 4],
    )
    assert choice.k == 0
    assert choice.criteria.shape == choice.results.value.shape == (4,)
    assert np.argmin(choice.criteria) == 0


def test_criteria_of_a_users_own():
    f, _ = models()["poisson"]
    choice = criteria.choose_k(
        f, jaxht.Sparse(1), jaxht.HTP(), ks=[1, 2, 3], criterion=lambda f, x: -jnp.sum(x != 0)
    )
    assert choice.k == 3


@pytest.mark.parametrize(
    "f", [jaxht.Huber(np.eye(3), np.ones(3)), jaxht.GaussianPrecision(np.eye(3))]
)
def test_losses_without_a_likelihood(f):
    with pytest.raises(ValueError, match="likelihood"):
        criteria.aic(f, np.ones(3))


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("patience", [1, 3])
def test_a_path_ends_once_the_criterion_has_turned(both_ways, patience):
    """As the whole path does, to where so many sparsities in a row have not lowered the
    criterion."""
    rng = np.random.default_rng(4)
    A = rng.normal(size=(60, 14))
    with x64():
        f, ks = (
            jaxht.LeastSquares(
                A, A[:, :3] @ [2.0, -1.5, 1.0] + 0.5 * rng.normal(size=60), mean=False
            ),
            np.arange(1, 12),
        )

        @functools.partial(quick, static_argnums=1)
        def choose(f, patience):
            options = {"criterion": criteria.bic, "both_ways": both_ways, "patience": patience}
            return criteria.choose_k(f, jaxht.Sparse(1), jaxht.HTP(), ks=ks, **options)

        whole, part = host(choose(f, None)), host(choose(f, patience))
        one_way = quick(lambda f: jaxht.path(f, jaxht.Sparse(1), jaxht.HTP(), ks=ks))(f)
        one_way, values = host((jax.vmap(lambda x: criteria.bic(f, x))(one_way.x), one_way.value))
    best, length = 0, len(ks)
    for t, value in enumerate(np.asarray(one_way)):
        best = t if value < one_way[best] else best
        if t - best >= patience:
            length = t + 1
            break
    assert length < len(ks)
    assert (
        np.isinf(part.criteria[length:]).all()
        and (part.results.status[length:] == jaxht.Status.RUNNING).all()
    )
    if both_ways:  # refined among those alone, or with the others
        assert np.all(part.results.value[:length] <= values[:length])
    else:
        np.testing.assert_array_equal(part.results.x[:length], whole.results.x[:length])
        np.testing.assert_array_equal(part.criteria[:length], whole.criteria[:length])
        assert part.k == ks[best]


@pytest.mark.parametrize("patience", [0, 1.5, "3"])
def test_patience_is_an_int(patience):
    with pytest.raises(ValueError, match="patience must be an int of at least 1"):
        criteria.choose_k(
            jaxht.LeastSquares(np.eye(3), np.ones(3), mean=False),
            jaxht.Sparse(1),
            jaxht.HTP(),
            ks=[1],
            patience=patience,
        )


def test_no_term_of_rounding_errors_joins():
    """Without noise the planted k is chosen, by all criteria and by cross-validation; where repeated
    samples let fewer features than there are fit any target, a warning names their number."""
    sklearn = pytest.importorskip("jaxht.sklearn")
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        X = rng.standard_normal((100, 20)).astype(dtype)
        y = 2 * X[:, 0] - X[:, 3]
        with precision(dtype):
            f = jaxht.LeastSquares(X, y)
            for criterion in (jaxht.criteria.bic, jaxht.criteria.aic, jaxht.criteria.ebic):
                found = jaxht.criteria.choose_k(
                    f, jaxht.Sparse(), jaxht.OMP(), ks=range(1, 9), criterion=criterion
                )
                assert int(found.k) == 2
                assert np.all(found.criteria[2:] == np.inf)
            both = jaxht.MultiResponse(X, np.stack([y, -3 * y], axis=1))
            rows = jaxht.Groups(groups=np.repeat(np.arange(20)[:, None], 2, axis=1))
            assert int(jaxht.criteria.choose_k(both, rows, jaxht.OMP(), ks=range(1, 9)).k) == 2

            def split(held, X=X, y=y):
                train = jaxht.LeastSquares(X, y, weights=1 - held)
                return train, jaxht.LeastSquares(X, y, weights=held)

            masks = (np.arange(100) % 5 == np.arange(5)[:, None]).astype(dtype)
            for solver in (jaxht.OMP(), jaxht.HTP()):
                held = jaxht.cross_validate(split, masks, jaxht.Sparse(), solver, ks=range(1, 9))
                assert int(held.k) == 2
        for k in ("ebic", "gic", "cv"):
            fit = sklearn.L0Regressor(k, k_max=10).fit(X, y)
            assert fit.k_ == 2 and np.flatnonzero(fit.coef_).tolist() == [0, 3]

        repeated = np.repeat(rng.standard_normal((12, 30)), 4, axis=0).astype(dtype)
        target = np.repeat(rng.standard_normal(12), 4).astype(dtype)
        for k in ("ebic", "gic"):
            with pytest.warns(UserWarning, match="fewer than 11 features"):
                assert sklearn.L0Regressor(k, k_max=20).fit(repeated, target).k_ < 11


def test_an_exact_fit_by_all_features_is_chosen():
    """Also of a feature that is given twice; three coefficients do not fit any 60 targets."""
    sklearn = pytest.importorskip("jaxht.sklearn")
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = X @ [1, 2, 3] + 1
    for k in ("ebic", "cv"):
        for features in (X, X[:, [0, 1, 2, 2]]):
            fit = sklearn.L0Regressor(k).fit(features, y)
            assert fit.k_ == 3
            np.testing.assert_allclose(fit.predict(features), y)


def test_a_fit_of_noise_is_not_chosen_in_any_form():
    """Of a sparse matrix, and of groups that overlap, as of an array; samples that occur twice count
    once."""
    sklearn = pytest.importorskip("jaxht.sklearn")
    rng = np.random.default_rng(0)
    n, d = 20, 40
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    y = rng.normal(size=n)
    twice = np.repeat(np.arange(n), 2)
    labels = np.arange(d) // 4
    lists = [np.flatnonzero(labels == j) for j in range(10)]
    chosen = []
    for form, groups in [
        (np.asarray, labels),
        (scipy.sparse.csr_array, labels),
        (np.asarray, lists),
    ]:
        model = sklearn.L0Regressor(groups=groups, solver=jaxht.OMP())
        with pytest.warns(UserWarning, match="fewer than 19 features"):
            chosen.append(model.fit(form(X[twice]), y[twice]).k_)
    assert len(set(chosen)) == 1 and 4 * chosen[0] < 19


@pytest.mark.parametrize("name", ["Gamma", "Poisson"])
def test_no_term_joins_an_exact_fit_of_means(name):
    """Also where f(x) is large, as for targets in a small unit, and far from 0."""
    rng = np.random.default_rng(1)
    A = np.column_stack([np.ones(60), rng.normal(size=(60, 12))]).astype(np.float32)
    y = np.exp(A[:, [0, 2, 5]] @ [0.7, 0.8, -0.5] + (9 if name == "Gamma" else 0))
    f = getattr(jaxht, name)(A, y.astype(np.float32))
    found = jaxht.criteria.choose_k(f, jaxht.Sparse(), jaxht.HTP(), ks=range(1, 6))
    assert int(found.k) == 3 and np.all(np.isinf(found.criteria[3:]))
    model = f.prepare()
    least = model.exact_value()
    assert model.exact_fits(jnp.stack([least, least + 1e-4 * abs(least)])).tolist() == [True, False]


def test_deviances_of_perfect_fits():
    """-infinity where the dispersion is estimated, else that of the likelihood."""
    y = np.array([1.0, 2.0, 3.0])
    with x64():
        for model in (jaxht.Gamma, jaxht.LeastSquares):
            x = np.log(y) if model is jaxht.Gamma else y
            assert criteria.deviance(model(np.eye(3), y), x) == -np.inf
        expected = -2 * np.sum(y * np.log(y) - y)
        np.testing.assert_allclose(
            criteria.deviance(jaxht.Poisson(np.eye(3), y), np.log(y)), expected
        )


@pytest.mark.parametrize("items", [9, 30, 10**5, 10**7])
def test_the_number_of_models_in_float32(items):
    """EBIC minus BIC is twice the logarithm of a binomial coefficient, of large terms whose
    differences are small."""
    rng = np.random.default_rng(0)
    f = jaxht.LeastSquares(*(rng.standard_normal(shape).astype("float32") for shape in ((9, 4), 9)))
    x = np.zeros(4, "float32")
    for size in 0, 3, 9:
        more = criteria.ebic(f, x, selected=size, items=items) - criteria.bic(f, x)
        want = 2 * np.log(scipy.special.comb(items, size))
        assert abs(more - want) <= 2e-6 * max(10, want), (items, size)
