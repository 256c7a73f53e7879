"""Standardised columns of every kind of design, and the way back to the original units."""

import functools
import itertools
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from sklearn.preprocessing import StandardScaler

import jaxht
from jaxht import LeastSquares, Sparse
from tests.util import host, quick, solve, x64

pytestmark = pytest.mark.usefixtures("all_quickly")
N, D = 30, 12


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


def matrix():
    """With a constant column, one of zeros, and very different units."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.5) * np.exp(2 * rng.normal(size=D))
    A[:, 3], A[:, 4] = 0.1, 0
    return A


def product(x, A):
    return A @ x


MAKE = {
    "dense": lambda A: A,
    "csr": scipy.sparse.csr_array,
    "operator": lambda A: jaxht.LinearOperator(product, A.shape, (A,)),
    "operator of known norms": lambda A: jaxht.LinearOperator(
        product, A.shape, (A,), norms=np.linalg.norm(A, axis=0)
    ),
}


@pytest.mark.parametrize("with_mean", [True, False], ids=["centred", "scaled"])
@pytest.mark.parametrize("kind", MAKE)
def test_designs_are_those_of_scikit_learn(kind, with_mean):
    A, rng = matrix(), np.random.default_rng(1)
    scaler = StandardScaler(with_mean=with_mean).fit(A)
    Z, found = scaler.transform(A), jaxht.standardize(MAKE[kind](A), with_mean=with_mean)
    np.testing.assert_allclose(found.scale, scaler.scale_, rtol=1e-7)
    np.testing.assert_allclose(found.mean, A.mean(0) if with_mean else 0, atol=1e-14)
    S, close = found.design, functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12)
    assert (S.shape, S.dtype) == (A.shape, A.dtype)
    x, r, weights = rng.normal(size=(D, 3)), rng.normal(size=(N, 2)), rng.random(N)
    close(S.matvec(x[:, 0]), Z @ x[:, 0])
    close(S.matvec(x), Z @ x)
    close(S.rmatvec(r[:, 0]), Z.T @ r[:, 0])
    close(S.rmatvec(r), Z.T @ r)
    close(S.columns(jnp.array([7, D, 3])), [Z[:, 7], np.zeros(N), Z[:, 3]])
    rows = S.rows(jnp.array([5, N, 5]))
    close(rows.matvec(x[:, 0]), np.stack([Z[5], np.zeros(D), Z[5]]) @ x[:, 0])
    close(rows.rmatvec(jnp.asarray(r[:3, 0])), (r[0, 0] + r[2, 0]) * Z[5])
    close(S.squared(weights), weights @ Z**2)
    np.testing.assert_allclose(S.column_norms() ** 2, (Z**2).sum(0), rtol=1e-9, atol=1e-10)
    close(S.row_norms(), np.linalg.norm(Z, axis=1))
    if kind == "csr":  # not filled
        assert max(np.size(leaf) for leaf in jax.tree.leaves(S)) < 0.8 * A.size


@pytest.mark.parametrize("kind", MAKE)
def test_weights_repeat_samples(kind):
    A, rng = matrix(), np.random.default_rng(5)
    times = rng.integers(0, 4, N)
    found = jaxht.standardize(MAKE[kind](A), weights=times.astype(float))
    repeated = jaxht.standardize(np.repeat(A, times, axis=0))
    np.testing.assert_allclose(found.mean, repeated.mean, rtol=1e-9)
    np.testing.assert_allclose(found.scale, repeated.scale, rtol=1e-7)
    x = rng.normal(size=D)
    fitted = np.repeat(np.asarray(found.design.matvec(x)), times)
    np.testing.assert_allclose(fitted, repeated.design.matvec(x), rtol=1e-7, atol=1e-12)
    Z = np.stack([found.design.matvec(unit) for unit in np.eye(D)], axis=1)
    np.testing.assert_allclose(
        found.design.column_norms() ** 2, (Z**2).sum(0), rtol=1e-7, atol=1e-10
    )


@pytest.mark.parametrize("kind", MAKE)
def test_some_columns_are_centred_and_none_is_scaled(kind):
    A, rng = matrix(), np.random.default_rng(6)
    mask = rng.random(D) < 0.5
    found = jaxht.standardize(MAKE[kind](A), with_mean=mask, with_std=False)
    x = rng.normal(size=D)
    np.testing.assert_array_equal(found.scale, 1)
    np.testing.assert_allclose(
        found.design.matvec(x), (A - np.where(mask, A.mean(0), 0)) @ x, rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(
        A @ x + found.intercept(x), found.design.matvec(x), rtol=1e-9, atol=1e-12
    )


def test_weights_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"weights must have shape \(30,\)"):
        jaxht.standardize(matrix(), weights=np.ones(3))


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize(
    "solver", [jaxht.HTP(), jaxht.OLS(), jaxht.NIHT()], ids=lambda s: type(s).__name__
)
def test_fits_in_the_original_units_are_those_on_scaled_copies(kind, solver):
    A, rng = matrix(), np.random.default_rng(2)
    y = 5 + rng.normal(size=N)
    found = jaxht.standardize(MAKE[kind](A))
    result = solve(LeastSquares(found.design, y - y.mean(), 0.1, mean=True), Sparse(4, 4), solver)
    dense = LeastSquares(StandardScaler().fit_transform(A), y - y.mean(), 0.1, mean=True)
    expected = solve(dense, Sparse(4, 4), solver)
    np.testing.assert_allclose(result.x, expected.x, atol=1e-7)
    fitted = A @ found.coefficients(result.x) + found.intercept(result.x, y.mean())
    np.testing.assert_allclose(fitted, dense.predict(expected.x) + y.mean(), atol=1e-6)


def test_minibatches_and_logistic_regression_on_centred_sparse_designs():
    A, rng = matrix(), np.random.default_rng(3)
    y = np.sign(rng.normal(size=N))
    ends = [
        jaxht.solve(jaxht.Logistic(design, y, 0.1), Sparse(4), solver, key=jax.random.key(0)).x
        for solver in (jaxht.HTP(), jaxht.SVRGHT(batch_size=3))
        for design in (
            jaxht.standardize(scipy.sparse.csr_array(A)).design,
            StandardScaler().fit_transform(A),
        )
    ]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-8)
    np.testing.assert_allclose(ends[2], ends[3], atol=1e-8)


def test_batches_within_a_program():
    A = np.stack([matrix(), matrix()[::-1] ** 2 + 1])
    y = np.random.default_rng(4).normal(size=(2, N))

    @quick
    @jax.vmap
    def run(A, y):
        found = jaxht.standardize(A)
        result = jaxht.solve(
            LeastSquares(found.design, y - jnp.mean(y), mean=False), Sparse(3), jaxht.OMP()
        )
        return found.coefficients(result.x), found.intercept(result.x, jnp.mean(y)), result.value

    x, intercept, value = run(A, y)
    for i in range(2):
        residual = A[i] @ x[i] + intercept[i] - y[i]
        np.testing.assert_allclose(residual @ residual / 2, value[i], rtol=1e-9)


def test_constant_columns_of_single_precision():
    with x64(False):
        A = np.full((1000, 3), [0.1, 1e4, 3.3e-3], np.float32)
        A[0, 2] = 0
        for design in (A, scipy.sparse.csr_array(A)):
            scale = np.asarray(jaxht.standardize(design).scale)
            assert scale[0] == scale[1] == 1
            np.testing.assert_allclose(scale[2], np.std(A[:, 2].astype(float)), rtol=1e-2)


def test_integers():
    np.testing.assert_allclose(jaxht.standardize(np.array([[1, 2], [3, 6]])).scale, [1, 2])


@pytest.mark.parametrize(
    "A",
    [[[1.0]], "A", np.ones(3), jaxht.matrix_sensing(np.ones((2, 3, 3)), np.ones(2), mean=False).A],
)
def test_other_arguments_are_refused(A):
    with pytest.raises(ValueError, match=r"^A must be"):
        jaxht.standardize(A)


def housing():
    """Eight features of districts, and the median prices of houses there, in 100 000 dollars."""
    path = Path(os.environ.get("JAXHT_DATA", "")) / "cal_housing.npz"
    if not path.is_file():
        pytest.skip("cal_housing.npz is not in JAXHT_DATA")
    data = np.load(path)
    return data["X"].astype(np.float64), data["y"].astype(np.float64) / 1e5


def test_selection_on_housing_data_in_their_own_units():
    A, y = housing()
    found = jaxht.standardize(A)
    for solver in (jaxht.HTP(), jaxht.OMP()):
        raw, scaled = (
            solve(LeastSquares(design, y - y.mean(), mean=True), Sparse(2, 2), solver)
            for design in (A - A.mean(0), found.design)
        )
        np.testing.assert_allclose(raw.value, 0.605, atol=5e-4)
        np.testing.assert_allclose(scaled.value, 0.3268, atol=5e-5)
        residual = A @ found.coefficients(scaled.x) + found.intercept(scaled.x, y.mean()) - y
        np.testing.assert_allclose(np.mean(residual**2) / 2, scaled.value, rtol=1e-9)
    assert host(found.scale).max() > 1e3


def test_local_search_finds_the_best_features_of_housing_data():
    """For each k the best of all supports, from zero, from the least-squares solution and from
    random points."""
    A, y = housing()
    design, y = jaxht.standardize(A).design, y - y.mean()
    rng, ks, n = np.random.default_rng(5), np.arange(2, 6), len(y)
    starts = np.concatenate(
        [np.zeros((1, 8)), np.logspace(-2, 2, 5)[:, None] * rng.normal(size=(5, 8))]
    )

    @quick
    def run(k, starts):
        f, C, search = LeastSquares(design, y, mean=True), Sparse(k, k_max=5), jaxht.LocalSearch()
        dense = jaxht.solve(f, C, search, x0="dense").value
        return jnp.append(
            jax.vmap(lambda x0: jaxht.solve(f, C, search, x0=x0).value)(starts), dense
        )

    Z = StandardScaler().fit_transform(A)
    H, b = Z.T @ Z / n, Z.T @ y / n
    for k, rounded in zip(ks, [0.3268, 0.2768, 0.2703, 0.2524], strict=True):
        supports = map(list, itertools.combinations(range(8), k))
        least = (
            y @ y / (2 * n)
            - max(b[S] @ np.linalg.solve(H[np.ix_(S, S)], b[S]) for S in supports) / 2
        )
        np.testing.assert_allclose(least, rounded, atol=5e-5)
        np.testing.assert_allclose(run(k, starts), least, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("constant", [1, 37.3])
def test_constant_columns_are_never_selected(form, constant, dtype):
    """Of a column that is constant where weights are positive nothing is left, not even rounding;
    also where k is the number of columns."""
    sklearn = pytest.importorskip("jaxht.sklearn")
    # The same for all seeds, so that they share programs.
    has_entry = np.random.default_rng(0).random((50, 5)) < 0.5
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((50, 5)) * has_entry
        y = X @ [1, 0.5, 0, 0, 0.2] + rng.standard_normal(50) + 5
        weights = rng.random(50)
        weights[:5] = 0
        X[5:, 2] = constant
        for model, target in [(sklearn.L0Regressor, y), (sklearn.L0Classifier, y > 5)]:
            for k in (4, 5):
                fit = model(k).fit(form(X.astype(dtype)), target, sample_weight=weights)
                assert fit.coef_.ravel()[2] == 0
    scaled = jaxht.standardize(form(X.astype(dtype)), weights=weights.astype(dtype))
    assert np.all(np.asarray(scaled.design.matvec(np.eye(5, dtype=dtype)[2])) == 0)
    assert scaled.scale[2] == 1


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "value"), [(10_000, 0.1), (50_000, 0.7), (200_000, 0.1)])
def test_a_constant_column_is_empty_in_single_precision(n, value, weighted, form):
    A = form(np.full((n, 1), value, np.float32))
    weights = np.linspace(1, 2, n).astype(np.float32) if weighted else None
    found = jaxht.standardize(A, weights=weights)
    np.testing.assert_allclose(found.mean, value, rtol=1e-6)
    assert float(found.scale[0]) == 1
    np.testing.assert_allclose(found.design.columns(np.array([0])), 0, atol=1e-6 * value)


def test_an_empty_column_beside_weights_needs_no_promotion():
    A = np.eye(4, 3, dtype=np.float32)
    A[:, 2] = 0
    with jax.numpy_dtype_promotion("strict"):
        found = jaxht.standardize(scipy.sparse.csr_array(A), weights=np.float32([1, 2, 1, 0]))
    np.testing.assert_allclose(found.mean, [0.25, 0.5, 0])


@pytest.mark.parametrize("weighted", [False, True])
def test_sparse_moments_are_those_of_a_dense_matrix(weighted):
    rng = np.random.default_rng(0)
    A = rng.normal(3, 1, size=(400, 6)) * (rng.random((400, 6)) < [0.01, 0.2, 0.5, 0.9, 1, 0])
    weights = rng.integers(0, 3, 400).astype(float) if weighted else None
    mean = np.average(A, axis=0, weights=weights)
    deviation = np.sqrt(np.average((A - mean) ** 2, axis=0, weights=weights))
    found = jaxht.standardize(scipy.sparse.csr_array(A.astype(np.float32)), weights=weights)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(found.scale, np.where(deviation > 0, deviation, 1), rtol=1e-5)


def test_variances_of_half_precision_are_no_rounding():
    X = jax.random.normal(jax.random.key(0), (40_000, 1)) + 1
    found = jaxht.standardize(X.astype(jnp.bfloat16))
    np.testing.assert_allclose(np.float32(found.scale), 1, rtol=0.05)


def test_parts_take_a_bool_of_numpy():
    A = np.arange(12.0).reshape(4, 3) ** 2
    both = jaxht.designs.hstack([jaxht.design(A), jaxht.design(A[:, :1])])
    plain = jaxht.standardize(both, with_mean=True)
    again = jaxht.standardize(both, with_mean=np.True_)
    np.testing.assert_array_equal(plain.mean, again.mean)


@pytest.mark.parametrize("mean", [100.0, 1e4])
def test_squares_of_centred_columns_do_not_cancel(mean):
    """Under weights, and where a mask says which are centred."""
    rng = np.random.default_rng(0)
    B = (mean + rng.normal(size=(300, 2))).astype(np.float32)
    weights = (np.arange(300) % 5 > 0).astype(np.float32) * rng.integers(1, 3, 300)
    for found in (
        jaxht.standardize(scipy.sparse.csr_array(B)),
        jaxht.standardize(scipy.sparse.csr_array(B), with_mean=np.array([True, True])),
    ):
        exact = (B - np.float64(found.mean)) / np.float64(found.scale)
        squares = found.design.squared(jnp.asarray(weights, jnp.float32))
        np.testing.assert_allclose(squares, weights @ exact**2, rtol=1e-3)
        norms = np.linalg.norm(exact, axis=0)
        np.testing.assert_allclose(found.design.column_norms(), norms, rtol=1e-3)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_columns_whose_squares_underflow_or_are_not_finite_are_refused(form):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(6, 2)).astype(np.float32)
    A[:, 0] = [1e-25, 2e-25, 3e-25, 0, 0, 1e-25]
    with pytest.raises(ValueError, match=r"columns \[0\] of A"):
        jaxht.standardize(form(A))
    A[:, 0] = 1
    A[5] = 1e20
    with pytest.raises(ValueError, match=r"columns \[0, 1\] of A"):
        jaxht.standardize(form(A), weights=np.float32([1, 2, 1, 1, 1, 0]))


def test_squares_of_centred_columns_are_linear_in_the_weights():
    """Their derivatives, too, by a weight that is 0, of samples that are stored or not."""
    rng = np.random.default_rng(0)
    B = rng.normal(3, 1, size=(40, 6)) * (rng.random((40, 6)) < [0.05, 0.2, 0.5, 0.9, 1, 0])
    weights = rng.integers(0, 3, 40).astype(np.float32)
    found = jaxht.standardize(scipy.sparse.csr_array(B.astype(np.float32)))
    exact = (B - np.float64(found.mean)) / np.float64(found.scale)
    slopes = jax.jacobian(found.design.squared)(weights)
    np.testing.assert_allclose(slopes, exact.T**2, rtol=1e-4, atol=1e-4)
