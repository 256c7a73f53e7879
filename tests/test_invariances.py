"""What a support does not depend on: the units of the target and of the columns, the order of samples
and of columns, and whether samples are repeated or weighted."""

import numpy as np
import pytest

import jaxht
from jaxht import Sparse, Status
from tests.util import host, quick

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D, K = 120, 7, 4  # of the columns, the last is an intercept
RNG = np.random.default_rng(0)
A = np.column_stack([RNG.standard_normal((N, D - 1)), np.ones(N)])
ETA = A @ np.array([1.0, -0.7, 0, 0.5, 0, 0, 1.0])
KEEP = np.arange(D) == D - 1
CLASSES = np.where(ETA + RNG.logistic(size=N) > 0, 1.0, -1.0)
TARGETS = {
    "LeastSquares": ETA + RNG.standard_normal(N),
    "Huber": ETA + RNG.standard_normal(N),
    "Poisson": RNG.poisson(np.exp(ETA)).astype(float),
    "Gamma": np.exp(ETA) * RNG.gamma(2, 0.5, N),
    "Logistic": CLASSES,
    "SquaredHinge": CLASSES,
    "SmoothedHinge": CLASSES,
}
SOLVERS = {"default": None, "OMP": jaxht.OMP(), "HTP": jaxht.HTP()}
#: With these no test has ended a run too early.
ENDED = (Status.CONVERGED, Status.SUPPORT_STABLE, Status.FINISHED, Status.NO_PROGRESS)


@pytest.fixture(params=SOLVERS)
def solver(request):
    return SOLVERS[request.param]


def make(name, A, y, unit=1.0, weights=None):
    """An objective, in the precision of the test."""
    dtype = A.dtype
    options = {"delta": 1.345 * unit} if name == "Huber" else {}
    if weights is not None:
        options["weights"] = weights.astype(dtype)
    return getattr(jaxht, name)(A, (unit * y).astype(dtype), **options)


def solve(objective, solver, keep=KEEP):
    run = quick(jaxht.solve)
    x0 = None
    if isinstance(solver, jaxht.HTP) and isinstance(objective, jaxht.Poisson | jaxht.Gamma):
        # Its first support is that of the gradient at x0, where the means should have the unit of y.
        x0 = run(objective, Sparse(1, k_max=1, keep=keep), jaxht.OMP())
    found = host(run(objective, Sparse(K, k_max=K, keep=keep), solver, x0=x0))
    assert Status(int(found.status)) in ENDED
    return found


def support(objective, solver):
    return np.flatnonzero(solve(objective, solver).x).tolist()


@pytest.mark.parametrize("name", ["LeastSquares", "Huber", "Poisson", "Gamma"])
def test_units_of_the_target(name, solver, dtype):
    """And the gradient on the support is rounding, in units of its terms."""
    y = TARGETS[name]
    expected = support(make(name, A.astype(dtype), y), solver)
    assert expected == [0, 1, 3, D - 1]
    for unit in (1e-6, 1e-3, 3e3, 3e4, 1e6, 1e8):
        f = make(name, A.astype(dtype), y, unit).prepare()
        found = solve(f, solver)
        assert np.flatnonzero(found.x).tolist() == expected, unit
        pred = np.asarray(A.astype(dtype) @ found.x)
        gradient = np.asarray(f.gradient(found.x, pred))[expected]
        slopes = np.asarray(f.loss.derivative(pred, f.y), float)
        terms = np.abs(A[:, expected]) * np.abs(slopes)[:, None] / N
        if name in ("Poisson", "Gamma"):  # whose derivative is a difference
            terms = terms + np.abs(A[:, expected]) / N * (1 if name == "Gamma" else f.y[:, None])
        rounding = 300 * np.finfo(dtype).eps * np.maximum(1, np.abs(pred).max())
        assert np.all(np.abs(gradient) <= rounding * np.sum(terms, axis=0)), unit


@pytest.mark.parametrize("name", TARGETS)
def test_units_of_the_columns(name, dtype):
    """The default search does not depend on them; OMP and HTP select by size."""
    units = 10.0 ** np.array([-3, 2, 0, 3, -2, 1, 0])
    y = TARGETS[name]
    expected = support(make(name, A.astype(dtype), y), None)
    assert support(make(name, (A * units).astype(dtype), y), None) == expected


@pytest.mark.parametrize("name", TARGETS)
def test_repeated_samples_are_weights(name, solver, dtype):
    y = TARGETS[name]
    times = np.random.default_rng(1).integers(1, 4, N)
    repeated = np.repeat(np.arange(N), times)
    weighted = solve(make(name, A.astype(dtype), y, weights=times), solver)
    several = solve(make(name, A[repeated].astype(dtype), y[repeated]), solver)
    np.testing.assert_array_equal(weighted.x != 0, several.x != 0)
    tolerance = 1e-3 if dtype == np.float32 else 1e-7
    np.testing.assert_allclose(weighted.x, several.x, atol=tolerance)


@pytest.mark.parametrize("name", TARGETS)
def test_the_order_of_samples_and_columns(name, solver, dtype):
    y = TARGETS[name]
    rng = np.random.default_rng(2)
    rows = rng.permutation(N)
    columns = rng.permutation(D)
    plain = solve(make(name, A.astype(dtype), y), solver)
    moved = A[rows][:, columns].astype(dtype)
    mixed = solve(make(name, moved, y[rows]), solver, keep=KEEP[columns])
    np.testing.assert_array_equal(mixed.x != 0, plain.x[columns] != 0)
    tolerance = 1e-3 if dtype == np.float32 else 1e-7
    np.testing.assert_allclose(mixed.x, plain.x[columns], atol=tolerance)


@pytest.mark.parametrize("unit", [1e-6, 3e4, 1e8])
@pytest.mark.parametrize("single", [False, True])
def test_units_of_the_target_of_estimators(unit, single):
    """Sparsities, supports and coefficients; a float32 table as well."""
    sklearn = pytest.importorskip("jaxht.sklearn")
    X = A[:, :-1].astype(np.float32 if single else np.float64)
    for model, name in [
        (sklearn.L0GammaRegressor("ebic"), "Gamma"),
        (sklearn.L0PoissonRegressor("ebic"), "Poisson"),
        (sklearn.L0Regressor("ebic"), "LeastSquares"),
    ]:
        y = TARGETS[name]
        if name == "Poisson" and unit > 1:
            continue  # as counts they are then another likelihood: every term is significant
        plain = model.fit(X, y.astype(X.dtype))
        coef = plain.coef_.copy()
        k = plain.k_
        changed = model.fit(X, (unit * y).astype(X.dtype))
        if name == "Poisson":
            continue
        assert changed.k_ == k
        scale = unit if name == "LeastSquares" else 1
        np.testing.assert_allclose(changed.coef_ / scale, coef, atol=2e-3 if single else 1e-6)


def test_times_of_cox_may_have_any_unit(dtype):
    rng = np.random.default_rng(3)
    times = rng.exponential(np.exp(-ETA))
    event = rng.random(N) < 0.8
    supports = []
    for unit in (1e-6, 1, 1e8):
        y = np.column_stack([unit * times, event]).astype(dtype)
        f = jaxht.Cox(A[:, :-1].astype(dtype), y)
        found = host(quick(jaxht.solve)(f, Sparse(3, k_max=3), jaxht.OMP()))
        assert found.status == Status.FINISHED
        supports.append(np.flatnonzero(found.x).tolist())
    assert supports == [[0, 1, 3]] * 3
