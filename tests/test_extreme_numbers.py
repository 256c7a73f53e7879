"""Numbers whose squares over- or underflow, sums that do, columns that depend on each other, and
complex numbers: right, or refused by name."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxht
from jaxht import Sparse
from tests.util import precision

pytestmark = pytest.mark.usefixtures("all_quickly")

N = 40
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 6))
Y = 2 * X[:, 0] - X[:, 1] + 0.1 * RNG.standard_normal(N)


def regressor(k=2):
    return pytest.importorskip("jaxht.sklearn").L0Regressor(k)


@pytest.mark.parametrize("storage", [np.asarray, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_of_any_size(dtype, storage):
    """Their squares overflow or underflow, each in its own unit and all in the same."""
    largest = 30 if dtype == np.float32 else 200
    sizes = np.array([-1, -0.75, 0, 0.5, 0.9, 1]) * largest
    y = Y.astype(dtype)
    expected = regressor().fit(storage(X.astype(dtype)), y).coef_.astype(float)
    assert np.flatnonzero(expected).tolist() == [0, 1]
    for units in (10.0**sizes, 10.0**-sizes, np.full(6, 10.0**largest)):
        coef = regressor().fit(storage((X * units).astype(dtype)), y).coef_
        np.testing.assert_allclose(coef * units, expected, rtol=1e-3, atol=1e-12)


def test_coefficients_that_no_float32_holds():
    tiny = (1e-40 * X).astype(np.float32)
    with pytest.raises(ValueError, match=r"features \[0, 1\] overflow float32"):
        regressor().fit(tiny, Y.astype(np.float32))


@pytest.mark.parametrize("largest", [1e306, 1e-310])
def test_weights_whose_sums_are_lost(largest):
    """Other columns had been selected, with FINISHED."""
    with pytest.raises(ValueError, match="neither huge nor tiny"):
        regressor().fit(X, Y, sample_weight=np.full(N, largest))
    with precision("float64"), pytest.raises(ValueError, match="neither huge nor tiny"):
        jaxht.solve(jaxht.LeastSquares(X, Y, weights=np.full(N, largest)), Sparse(2))


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (jaxht.LeastSquares, Y),
        (jaxht.Huber, Y),
        (jaxht.MultiResponse, np.column_stack([Y, Y])),
    ],
)
def test_targets_whose_squares_underflow(model, y):
    """All coefficients had been 0."""
    for dtype, unit in (("float32", 1e-25), ("float64", 1e-160)):
        with precision(dtype):
            tiny = (unit * y).astype(dtype)
            with pytest.raises(ValueError, match="squares of y underflow"):
                jaxht.solve(model(X.astype(dtype), tiny), Sparse(2))


@pytest.mark.parametrize("name", ["weights", "offset", "l2"])
def test_complex_numbers_are_refused(name):
    """NumPy's cast leaves out half of them."""
    value = 1j if name == "l2" else np.full(N, 1j)
    with pytest.raises(ValueError, match=f"{name} must be real"):
        jaxht.solve(jaxht.LeastSquares(X, Y, **{name: value}), Sparse(2))
    with pytest.raises(ValueError, match="must be real"):
        jaxht.solve(jaxht.LeastSquares(X, Y), jaxht.Sparse(2), jaxht.IHT(step_size=1j))


@pytest.mark.parametrize("name", ["LeastSquares", "Logistic", "Poisson", "Cox"])
def test_errors_of_columns_that_depend_on_each_other(name, dtype):
    """NaN, and not a rounding error; that of a third column is known."""
    A = np.column_stack([X[:, 0], 3 * X[:, 0], X[:, 1]]).astype(dtype)
    y = {
        "LeastSquares": Y,
        "Logistic": np.sign(Y + RNG.standard_normal(N)),
        "Poisson": np.round(np.abs(Y)),
        "Cox": np.column_stack([np.exp(Y), np.ones(N)]),
    }[name].astype(dtype)
    f = getattr(jaxht, name)(A, y)
    alone = jaxht.Support(jnp.array([True, False, True]), k_max=3)
    x = jaxht.extend.refit(f.prepare(), alone, jnp.zeros(3, dtype)).x
    known = jaxht.inference.standard_errors(f, alone, x)
    everything = jaxht.Support(jnp.ones(3, bool), k_max=3)
    errors = jaxht.inference.standard_errors(f, everything, x)
    assert np.isnan(errors[:2]).all()
    assert np.isnan(errors[2]) or abs(errors[2] / known[2] - 1) < 2e-2


def test_units_of_columns_that_standardize_cannot_square():
    with precision("float32"):
        for unit in (1e25, 1e-25):
            with pytest.raises(ValueError, match="squares of columns"):
                jaxht.standardize((unit * X).astype(np.float32))


@pytest.mark.parametrize(("of_A", "of_y"), [(1.0, 1.0), (1e18, 1.0), (1e-18, 1.0), (1.0, 1e-18)])
@pytest.mark.parametrize("name", ["IHT", "NIHT"])
def test_a_tiny_or_huge_solution_has_converged_where_it_is_one(name, of_A, of_y):
    A = np.array([[1, 0.9], [0, 0.3]], np.float32) * np.float32(of_A)
    y = np.array([1, -0.5], np.float32) * np.float32(of_y)
    f = jaxht.LeastSquares(A, y, mean=False)
    result = jaxht.solve(f, Sparse(2), getattr(jaxht, name)())
    assert result.reason == "CONVERGED"
    np.testing.assert_allclose(np.asarray(result.x) * of_A / of_y, [2.5, -5 / 3], rtol=1e-4)


@pytest.mark.parametrize("solver", [jaxht.ALPS(), jaxht.FIHT(), jaxht.CGIHT()])
def test_values_are_those_of_x_where_columns_are_tiny(solver):
    """Steps are so long that a product with a direction underflows."""
    f = jaxht.LeastSquares(np.float32(1e-18 * X), np.float32(Y))
    result = jaxht.solve(f, Sparse(2), solver)
    x = np.asarray(result.x, float)
    expected = 0.5 * np.mean((np.asarray(f.A, float) @ x - Y) ** 2)
    assert np.flatnonzero(x).tolist() == [0, 1]
    np.testing.assert_allclose(result.value, expected, rtol=1e-4)
