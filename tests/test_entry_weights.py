"""Weights of the entries of Y, and missing entries, against loops and against separate fits of each
output."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.model_selection import GridSearchCV

import jaxht
from jaxht import Groups, LowRank, MultiResponse, Sparse
from tests.util import host, precision, quick, x64

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D, C, L2 = 30, 6, 3, 0.05
RNG = np.random.default_rng(0)
A = RNG.normal(size=(N, D))
X = np.zeros((D, C))
X[[1, 4]] = [[1.0, -0.8, 0.5], [-0.6, 1.2, 0.9]]
Y = A @ X + 0.3 * RNG.normal(size=(N, C))
WEIGHTS = RNG.integers(0, 4, size=(N, C)).astype(float)
OFFSET = 0.1 * RNG.normal(size=(N, C))
ROWS = np.broadcast_to(np.arange(D)[:, None], (D, C))
UNKNOWN = np.where(WEIGHTS == 0, np.nan, Y)


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


def value(x, mean=True):
    """f, entry by entry."""
    total = 0.0
    for i, j in itertools.product(range(N), range(C)):
        total += WEIGHTS[i, j] * (A[i] @ x[:, j] + OFFSET[i, j] - Y[i, j]) ** 2 / 2
    scale = C / WEIGHTS.sum() if mean else 1.0
    return scale * total + L2 / 2 * np.sum(x**2)


def objective(y=UNKNOWN, design=A, mean=True):
    return MultiResponse(design, y, L2, mean=mean, weights=WEIGHTS, offset=OFFSET)


def fit(rows, mean=True):
    """The minimiser on some rows, output by output."""
    x = np.zeros((D, C))
    B = A[:, rows]
    scale = C / WEIGHTS.sum() if mean else 1.0
    for j in range(C):
        s = scale * WEIGHTS[:, j]
        H = B.T @ (s[:, None] * B) + L2 * np.eye(len(rows))
        x[rows, j] = np.linalg.solve(H, B.T @ (s * (Y - OFFSET)[:, j]))
    return x


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("design", [A, scipy.sparse.csr_array(A)], ids=["dense", "sparse"])
def test_value_gradient_and_hessian_are_those_of_loops(design, mean):
    f = objective(design=design, mean=mean).prepare()
    x, v = RNG.normal(size=(2, D, C))
    pred = f.predict(x)
    np.testing.assert_allclose(f.value(x, pred), value(x, mean), rtol=1e-12)
    gradient = f.gradient(x, pred)
    size = 1e-5
    along = (value(x + size * v, mean) - value(x - size * v, mean)) / (2 * size)
    np.testing.assert_allclose(np.vdot(gradient, v), along, rtol=1e-8)
    H = f.hessian(x, pred)
    image = (f.gradient(x + v, f.predict(x + v)) - gradient).ravel()
    np.testing.assert_allclose(H(v).ravel(), image, rtol=1e-9, atol=1e-12)
    matrix = np.asarray(H.matrix())
    np.testing.assert_allclose(H.diagonal().ravel(), np.diagonal(matrix), rtol=1e-12)
    bound = f.majorant()
    np.testing.assert_allclose(bound.diagonal().ravel(), np.diagonal(matrix), rtol=1e-12)
    largest = np.linalg.eigvalsh(matrix)[-1]
    assert largest * (1 - 1e-9) <= bound.norm() <= 1.1 * largest
    np.testing.assert_allclose(bound.coordinate_norm(), np.max(np.diagonal(matrix)), rtol=1e-12)


def test_minibatches_add_up_to_the_whole():
    f = objective().prepare()
    x = RNG.normal(size=(D, C))
    parts = [f.minibatch(np.array([i]), np.array([1 / N])) for i in range(N)]
    gradients = sum(part.gradient(x, part.predict(x)) for part in parts)
    np.testing.assert_allclose(gradients, f.gradient(x, f.predict(x)), rtol=1e-10)
    curvatures = [
        np.linalg.eigvalsh(
            np.asarray(f.minibatch(np.array([i]), np.ones(1)).hessian(x, f.predict(x)[:1]).matrix())
        )[-1]
        for i in range(N)
    ]
    assert f.sample_smoothness() >= np.max(curvatures) * (1 - 1e-9)


SOLVERS = [
    None,
    jaxht.IHT(),
    jaxht.NIHT(),
    jaxht.HTP(),
    jaxht.GraSP(),
    jaxht.OMP(),
    jaxht.OLS(),
    jaxht.LocalSearch(num_starts=2),
]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
def test_solvers_find_the_best_rows(solver):
    best = min((fit(list(rows)) for rows in itertools.combinations(range(D), 2)), key=value)
    result = jaxht.solve(objective(), Groups(2, ROWS), solver)
    assert result.succeeded
    np.testing.assert_allclose(result.value, value(best), rtol=1e-9)
    np.testing.assert_allclose(result.x, best, atol=1e-6)


def test_entries_are_selected_by_least_squares_in_closed_form():
    result = jaxht.solve(objective(), Sparse(6), jaxht.LocalSearch(num_starts=2))
    columns = []
    for size in itertools.product(range(5), repeat=C):
        if sum(size) != 6:
            continue
        columns.append(size)
    least = {}
    for j, size in itertools.product(range(C), range(5)):
        values = []
        for S in itertools.combinations(range(D), size):
            x = np.zeros((D, C))
            x[:, j] = fit(list(S))[:, j]
            values.append(value(x))
        least[j, size] = min(values)
    empty = value(np.zeros((D, C)))
    optimum = min(sum(least[j, size[j]] - empty for j in range(C)) + empty for size in columns)
    np.testing.assert_allclose(result.value, optimum, rtol=1e-9)


def test_a_weight_of_two_repeats_an_entry_and_one_of_zero_leaves_it_out():
    """Of one output the entries are samples; and the same weight in all entries is the sample's."""
    weights = WEIGHTS[:, :1]
    one = jaxht.LeastSquares(A, Y[:, 0], L2, weights=weights[:, 0])
    many = MultiResponse(A, UNKNOWN[:, :1], L2, weights=weights)
    x = RNG.normal(size=(D, 1))
    np.testing.assert_allclose(
        many.value(x, many.predict(x)), one.value(x[:, 0], one.predict(x[:, 0])), rtol=1e-12
    )
    each = WEIGHTS[:, 0]
    by_sample = MultiResponse(A, Y, L2, weights=each)
    by_entry = MultiResponse(A, Y, L2, weights=np.tile(each[:, None], C))
    x = RNG.normal(size=(D, C))
    pred = by_sample.predict(x)
    np.testing.assert_allclose(by_entry.value(x, pred), by_sample.value(x, pred), rtol=1e-12)
    for criterion in (jaxht.criteria.deviance, jaxht.criteria.bic, jaxht.criteria.ebic):
        np.testing.assert_allclose(criterion(by_entry, x), criterion(by_sample, x), rtol=1e-12)
    S = jaxht.Support(jnp.asarray(X != 0), k_max=6, ndim=2)
    found = [jaxht.inference.standard_errors(f, S, X) for f in (by_entry, by_sample)]
    np.testing.assert_allclose(*found, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("constraint", [LowRank(2), Groups(2, ROWS)], ids=["rank", "rows"])
def test_missing_entries_change_nothing(dtype, constraint):
    """Whatever stands where the weight is 0."""
    with precision(dtype):
        filled = np.where(WEIGHTS == 0, 1e30, Y)

        def run(Y):
            f = MultiResponse(*(v.astype(dtype) for v in (A, Y)), L2, weights=WEIGHTS.astype(dtype))
            return host(jaxht.solve(f, constraint, jaxht.HTP()))

        first, second, third = (run(y) for y in (Y, UNKNOWN, filled))
        assert first.succeeded and second.succeeded and third.succeeded
        np.testing.assert_array_equal(first.x, second.x)
        np.testing.assert_array_equal(first.x, third.x)


def test_factors_find_the_same_matrix():
    dense = jaxht.solve(objective(), LowRank(1), jaxht.IHT())
    factored = jaxht.solve(objective(), LowRank(1, factored=True), jaxht.IHT())
    np.testing.assert_allclose(factored.value, dense.value, rtol=1e-6)
    np.testing.assert_allclose(factored.x.dense(), dense.x, atol=1e-4)


def test_low_rank_is_stationary_on_its_spaces():
    f = objective()
    result = jaxht.solve(f, LowRank(2), jaxht.HTP())
    gradient = f.gradient(result.x, f.predict(result.x))
    assert np.linalg.norm(result.support.coordinates(gradient)) < 1e-8
    U, s, V = np.linalg.svd(fit(list(range(D))))
    start = (U[:, :2] * s[:2]) @ V[:2]
    assert result.value <= value(start)


def test_weights_are_traced_and_mapped_over():
    @quick
    @jax.vmap
    def run(weights):
        f = MultiResponse(A, Y, L2, weights=weights)
        return jaxht.solve(f, Groups(2, ROWS, k_max=2, num_groups=D, size_max=6), jaxht.HTP()).x

    lanes = np.stack([WEIGHTS, np.ones((N, C))])
    found = run(lanes)
    for weights, x in zip(lanes, found, strict=True):
        f = MultiResponse(A, Y, L2, weights=weights)
        np.testing.assert_allclose(jaxht.solve(f, Groups(2, ROWS), jaxht.HTP()).x, x, atol=1e-10)

    def size(weights):
        f = MultiResponse(A, Y, L2, weights=weights)
        return jnp.sum(jaxht.solve(f, Groups(2, ROWS), jaxht.HTP()).x ** 2)

    direction = RNG.normal(size=(N, C))
    step = 1e-5
    weights = WEIGHTS + 0.5
    slope = (size(weights + step * direction) - size(weights - step * direction)) / (2 * step)
    np.testing.assert_allclose(np.vdot(jax.grad(size)(weights), direction), slope, rtol=1e-5)


def test_inference_and_validation_take_weights_of_entries():
    f = objective()
    found = jaxht.inference.stability_selection(
        f, Groups(2, ROWS), jaxht.OMP(), key=jax.random.key(0), num_pairs=10
    )
    assert np.asarray(found.frequencies)[[1, 4]].min() >= 0.8
    drawn = jaxht.inference.bootstrap(
        f, Groups(2, ROWS), jaxht.OMP(), key=jax.random.key(0), num_resamples=10
    )
    assert np.all(np.isfinite(drawn.coefficients))
    held_out = jaxht.validate(f, f, Groups(1, ROWS), jaxht.OMP(), ks=[1, 2])
    assert np.all(np.isfinite(held_out.standard_errors))


def test_weights_of_a_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"MultiResponse.weights .* shape \(30, 3\)"):
        jaxht.solve(MultiResponse(A, Y, weights=np.ones((N, 2))), Groups(1, ROWS), jaxht.IHT())
    with pytest.raises(ValueError, match="weights must be at least 0"):
        jaxht.solve(MultiResponse(A, Y, weights=-WEIGHTS), Groups(1, ROWS), jaxht.IHT())
    with pytest.raises(ValueError, match=r"LeastSquares\.weights"):
        jaxht.solve(jaxht.LeastSquares(A, Y[:, 0], weights=WEIGHTS), Sparse(1), jaxht.IHT())


# ---- estimators ----------------------------------------------------------------------------------


def fit_outputs(features, Y, weights, l2=0.0):
    """Weighted least squares of each output with an intercept, and the sum of the squares."""
    coefficients, intercepts, total = [], [], 0.0
    ones = np.ones((len(features), 1))
    B = np.hstack([features, ones])
    for y, s in zip(Y.T, weights.T, strict=True):
        root = np.sqrt(s)[:, None]
        w = np.linalg.lstsq(root * B, root[:, 0] * np.nan_to_num(y), rcond=None)[0]
        coefficients.append(w[:-1])
        intercepts.append(w[-1])
        total += np.sum(s * (B @ w - np.nan_to_num(y)) ** 2)
    return np.array(coefficients), np.array(intercepts), total


@pytest.mark.parametrize("missing", [True, False], ids=["missing", "weights"])
def test_estimators_take_weights_of_entries(missing):
    from jaxht.sklearn import L0MultiTaskRegressor

    features = A + 5
    targets = Y + 3
    weights = WEIGHTS
    given = {"sample_weight": weights}
    if missing:
        targets = np.where(weights == 0, np.nan, targets)
        weights = (weights > 0).astype(float)
        given = {}
    fits = {
        S: fit_outputs(features[:, list(S)], targets, weights)
        for S in itertools.combinations(range(D), 2)
    }
    best = min(fits, key=lambda S: fits[S][2])
    model = L0MultiTaskRegressor(k=2).fit(features, targets, **given)
    assert np.flatnonzero(model.support_).tolist() == list(best)
    np.testing.assert_allclose(model.coef_[:, best], fits[best][0], rtol=1e-7)
    np.testing.assert_allclose(model.intercept_, fits[best][1], rtol=1e-7)
    for k in ("ebic", "cv"):
        chosen = L0MultiTaskRegressor(k=k).fit(features, targets, **given)
        assert set(best) <= set(np.flatnonzero(chosen.support_))
    pred = model.predict(features)
    scores = []
    for j in range(C):
        s = weights[:, j]
        y = np.nan_to_num(targets[:, j])
        mean = np.average(y, weights=s)
        scores.append(1 - s @ (y - pred[:, j]) ** 2 / (s @ (y - mean) ** 2))
    np.testing.assert_allclose(model.score(features, targets, **given), np.mean(scores))
    found = L0MultiTaskRegressor(k=2).stability_selection(
        features, targets, **given, num_pairs=5, random_state=0
    )
    assert found.frequencies.shape == (D,)


def test_tables_and_searches_with_missing_targets():
    from jaxht.sklearn import L0MultiTaskRegressor

    targets = np.where(WEIGHTS == 0, np.nan, Y)
    dense = L0MultiTaskRegressor(k=2).fit(A, targets)
    sparse = L0MultiTaskRegressor(k=2).fit(scipy.sparse.csr_array(A), targets)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-8)
    np.testing.assert_allclose(sparse.intercept_, dense.intercept_, atol=1e-8)
    table = pd.DataFrame(targets)
    search = GridSearchCV(L0MultiTaskRegressor(solver=jaxht.OMP()), {"k": [1, 2]}, cv=3)
    assert search.fit(A, table).best_params_ == {"k": 2}
    single = L0MultiTaskRegressor(k=2).fit(A.astype(np.float32), targets.astype(np.float32))
    np.testing.assert_allclose(single.coef_, dense.coef_, atol=1e-4)


def test_equal_weights_of_entries_are_those_of_samples():
    from jaxht.sklearn import L0MultiTaskRegressor, ReducedRankRegressor

    each = WEIGHTS[:, 0]
    for model in (
        L0MultiTaskRegressor(k=2, l2=0.1),
        L0MultiTaskRegressor(k=4, sparsity="entries"),
        ReducedRankRegressor(k=2, fit_intercept=False),
    ):
        first = model.fit(A, Y, sample_weight=each)
        coefficients, intercepts = first.coef_, first.intercept_
        second = model.fit(A, Y, sample_weight=np.tile(each[:, None], C))
        np.testing.assert_allclose(second.coef_, coefficients, atol=1e-5)
        np.testing.assert_allclose(second.intercept_, intercepts, atol=1e-5)


def test_what_estimators_refuse():
    from jaxht.sklearn import L0MultiTaskRegressor, ReducedRankRegressor

    with pytest.raises(ValueError, match="column 1 has none"):
        L0MultiTaskRegressor(k=1).fit(A, np.where(np.arange(C) == 1, np.nan, Y))
    with pytest.raises(ValueError, match=r"shape \(30,\), or \(30, 3\), that of y; got \(30, 2\)"):
        L0MultiTaskRegressor(k=1).fit(A, Y, sample_weight=np.ones((N, 2)))
    with pytest.raises(ValueError, match="fit_intercept must be False"):
        ReducedRankRegressor(k=1).fit(A, UNKNOWN)
    found = ReducedRankRegressor(k=2, fit_intercept=False, standardize=False).fit(A, UNKNOWN)
    assert np.linalg.matrix_rank(found.coef_) == 2
