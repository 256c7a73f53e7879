"""What a support does not depend on: the units of the target and of the columns, the order of samples
and of columns, the names of classes, and whether samples are repeated, weighted or absent."""

from typing import NamedTuple

import numpy as np
import pytest

import jaxht
from jaxht import Groups, LowRank, Sparse, Status
from tests.util import host, quick

pytestmark = pytest.mark.usefixtures("all_quickly")

N = 120
RNG = np.random.default_rng(0)
FULL = RNG.standard_normal((N, 24))
FULL[:, -1] = 1  # an intercept
COEF = np.zeros(24)
COEF[[0, 3, 7, 8]] = [1.0, -0.8, 0.9, -0.7]
ETA = FULL @ COEF + 0.5
CLASSES = np.where(ETA + 0.5 * RNG.logistic(size=N) > 0, 1.0, -1.0)
LATENT = np.column_stack([ETA - 1, np.zeros(N), -ETA]) + 0.5 * RNG.gumbel(size=(N, 3))
TIMES = RNG.exponential(np.exp(-ETA))
TARGETS = {
    "LeastSquares": ETA + RNG.standard_normal(N),
    "Huber": ETA + RNG.standard_normal(N),
    "Poisson": RNG.poisson(np.exp(ETA)).astype(float),
    "Gamma": np.exp(ETA) * RNG.gamma(2, 0.5, N),
    "Logistic": CLASSES,
    "SquaredHinge": CLASSES,
    "SmoothedHinge": CLASSES,
    "Hinge": CLASSES,
    "MultiResponse": np.outer(ETA, [1, 0.5, -1]) + 0.5 * RNG.standard_normal((N, 3)),
    "Softmax": np.argmax(LATENT, axis=1).astype(float),
    "Ordinal": np.digitize(ETA + 0.5 * RNG.logistic(size=N), [-0.5, 0.5, 1.5]).astype(float),
    "Cox": np.column_stack([TIMES, RNG.random(N) < 0.8]),
}
#: Of these, whose refits take longer, the default enumerates the supports of few columns; of all
#: others it is a local search.
FEW = {"MultiResponse": [0, 1, 3, 5, 7], "Softmax": [0, 1, 3, 5, 7]}
FEW |= {"Ordinal": [*range(9)], "Cox": [*range(9)]}
#: The baseline hazard and the thresholds take the place of an intercept.
WITHOUT_INTERCEPT = ("Ordinal", "Cox")
OPTIONS = {
    "Hinge": {"l2": 1e-2},
    "Softmax": {"l2": 1e-3, "num_classes": 3},
    "Ordinal": {"num_classes": 4},
}
SOLVERS = {"default": None, "OMP": jaxht.OMP(), "HTP": jaxht.HTP()}
#: With these no test has ended a run too early.
ENDED = (Status.CONVERGED, Status.SUPPORT_STABLE, Status.FINISHED, Status.NO_PROGRESS)
UNITS = (1e-6, 1e-3, 3e4, 1e8)


def run(f, keep, solver, name):
    """With groups that are known when it is compiled: then the default may enumerate them."""
    if name in WITHOUT_INTERCEPT:
        constraint = Sparse(4)
    elif name in ("MultiResponse", "Softmax"):
        rows = np.repeat(np.arange(len(keep))[:, None], 3, axis=1)
        constraint = Groups(4, groups=rows, keep=keep[:, None].repeat(3, axis=1))
    else:
        constraint = Sparse(5, keep=keep)
    return jaxht.solve(f, constraint, solver)


RUN = quick(run, static_argnames="name")


class Case(NamedTuple):
    """A problem, in NumPy; all cases of an objective share the programs of its solvers."""

    name: str
    A: np.ndarray
    y: np.ndarray
    weights: np.ndarray = np.ones(N)
    keep: np.ndarray | None = None
    delta: float = 1.345

    def objective(self, dtype):
        options = {
            option: value if isinstance(value, int) else np.asarray(value, dtype)
            for option, value in OPTIONS.get(self.name, {}).items()
        }
        if self.name == "Huber":
            options["delta"] = np.asarray(self.delta, dtype)
        model = getattr(jaxht, self.name)
        weights = self.weights.astype(dtype)
        return model(self.A.astype(dtype), self.y.astype(dtype), weights=weights, **options)

    def solve(self, solver, dtype):
        found = host(RUN(self.objective(dtype), self.keep, solver, self.name))
        assert Status(int(found.status)) in ENDED
        return np.asarray(found.x, float)


def plain(name):
    """The case that others are compared with."""
    columns = FEW.get(name, [*range(23)])
    A = FULL[:, columns if name in WITHOUT_INTERCEPT else [*columns, 23]]
    return Case(name, A, TARGETS[name], keep=np.arange(A.shape[1]) == A.shape[1] - 1)


def check(x, expected, dtype):
    """The same support, and values up to rounding."""
    np.testing.assert_array_equal(x != 0, expected != 0)
    size = np.abs(expected).max()
    tolerance = 2e-3 if dtype == np.float32 else 1e-6
    np.testing.assert_allclose(x / size, expected / size, atol=tolerance)


def changes_of_order(case, expected):
    """The order of samples and of columns."""
    rng = np.random.default_rng(1)
    rows = rng.permutation(N)
    columns = rng.permutation(len(case.keep))
    mixed = case._replace(A=case.A[rows][:, columns], y=case.y[rows], keep=case.keep[columns])
    yield mixed, expected[columns]


def changes_of_weights(case, expected):
    """All weights in another unit."""
    for unit in (1e-6, 1e8):
        yield case._replace(weights=unit * case.weights), expected


def changes_of_the_target(case, expected):
    """Its unit, or the names of classes."""
    if case.name == "Ordinal":
        yield case._replace(y=3 - case.y), -expected
    elif case.name == "Softmax":
        yield case._replace(y=2 - case.y), expected[:, ::-1]
    elif case.y is CLASSES:
        yield case._replace(y=-case.y), -expected
    elif case.name == "Cox":
        for unit in UNITS:
            yield case._replace(y=case.y * [unit, 1]), expected
    else:
        for unit in UNITS:
            x = unit * expected
            if case.name in ("Poisson", "Gamma"):
                x = expected + np.log(unit) * case.keep
            yield case._replace(y=unit * case.y, delta=unit * case.delta), x


def changes_of_columns(case, expected, each):
    """One unit of all, or units of their own."""
    if "l2" in OPTIONS.get(case.name, {}):
        return  # a ridge has units of its own
    for unit in (1e-6, 1e3, 1e8):
        yield case._replace(A=unit * case.A), expected / unit
    if each:
        units = 10.0 ** np.random.default_rng(2).integers(-3, 4, len(case.keep))
        shape = (-1,) + (1,) * (expected.ndim - 1)
        yield case._replace(A=case.A * units), expected / units.reshape(shape)


def absent_samples(case):
    """60 samples that are repeated once to three times; and with these weights, where the other 60
    have weight 0, are huge, and of some no target is known."""
    times = np.zeros(N, int)
    times[:60] = 1 + np.arange(60) % 3
    repeated = np.repeat(np.arange(N), times)
    A = case.A.copy()
    y = case.y.copy()
    A[60:90] *= 1e4
    y[75:] = np.nan
    weighted = case._replace(A=A, y=y, weights=times.astype(float))
    return case._replace(A=case.A[repeated], y=case.y[repeated]), weighted


@pytest.fixture(params=SOLVERS)
def solver(request):
    return SOLVERS[request.param]


@pytest.mark.parametrize("name", TARGETS)
def test_supports_and_values(name, solver, dtype):
    """One test for all: they share a program. OMP and HTP select columns by size."""
    if name == "Hinge" and isinstance(solver, jaxht.HTP):
        pytest.skip("The hinge has no default step size")
    case = plain(name)
    expected = case.solve(solver, dtype)
    if solver is None:
        found = np.flatnonzero(expected.reshape(len(case.keep), -1).any(axis=1))
        terms = [0, 2, 4, 5] if name in ("MultiResponse", "Softmax") else [0, 3, 7, 8]
        np.testing.assert_array_equal(found[:4], terms)
    for changed, x in (
        *changes_of_order(case, expected),
        *changes_of_weights(case, expected),
        *changes_of_the_target(case, expected),
        *changes_of_columns(case, expected, each=solver is None),
    ):
        check(changed.solve(solver, dtype), x, dtype)
    repeated, weighted = absent_samples(case)
    several = repeated.solve(solver, dtype)
    check(weighted.solve(solver, dtype), several, dtype)


@pytest.mark.parametrize("name", ["LeastSquares", "Huber", "Poisson", "Gamma"])
def test_the_gradient_on_the_support_is_rounding(name, solver, dtype):
    """In units of its terms, whatever the unit of the target is."""
    case = plain(name)
    for unit in UNITS:
        changed = case._replace(y=unit * case.y, delta=unit * case.delta)
        f = changed.objective(dtype).prepare()
        x = changed.solve(solver, dtype).astype(dtype)
        chosen = x != 0
        pred = np.asarray(case.A.astype(dtype) @ x)
        gradient = np.asarray(f.gradient(x, pred))[chosen]
        slopes = np.asarray(f.loss.derivative(pred, f.y), float)
        terms = np.abs(case.A[:, chosen]) * np.abs(slopes)[:, None] / N
        if name in ("Poisson", "Gamma"):  # whose derivative is a difference
            size = f.y[:, None] if name == "Poisson" else 1
            terms = terms + np.abs(case.A[:, chosen]) / N * size
        rounding = 300 * np.finfo(dtype).eps * np.maximum(1, np.abs(pred).max())
        assert np.all(np.abs(gradient) <= rounding * np.sum(terms, axis=0)), unit


@pytest.mark.parametrize("kind", ["sensing", "completion"])
def test_matrices_of_low_rank(kind, dtype):
    """Units of y, the order of samples, their weights, and the transpose."""
    rng = np.random.default_rng(3)
    X = np.outer(rng.standard_normal(6), rng.standard_normal(6))
    A = rng.standard_normal((N, 6, 6))
    rows, columns = np.divmod(rng.permutation(np.arange(N) % 30), 6)
    y = np.sum(A * X, axis=(1, 2)) if kind == "sensing" else X[rows, columns]
    y = y + 0.1 * rng.standard_normal(N)

    def solve(y, order=slice(None), weights=None, transposed=False):
        weights = (np.ones(N) if weights is None else weights)[order].astype(dtype)
        y = y[order].astype(dtype)
        if kind == "sensing":
            matrices = A[order].astype(dtype)
            matrices = matrices.transpose(0, 2, 1) if transposed else matrices
            f = jaxht.matrix_sensing(matrices, y, weights=weights)
        else:
            places = (columns, rows) if transposed else (rows, columns)
            places = [np.asarray(place[order], np.int32) for place in places]
            f = jaxht.matrix_completion(*places, y, (6, 6), weights=weights)
        found = host(quick(jaxht.solve)(f, LowRank(1, k_max=1)))
        assert Status(int(found.status)) in ENDED
        return np.asarray(found.x, float)

    expected = solve(y)
    tolerance = (2e-3 if dtype == np.float32 else 1e-6) * np.abs(expected).max()
    for unit in UNITS:
        np.testing.assert_allclose(solve(unit * y) / unit, expected, atol=tolerance)
    order = rng.permutation(N)
    np.testing.assert_allclose(solve(y, order), expected, atol=tolerance)
    np.testing.assert_allclose(solve(y, transposed=True).T, expected, atol=tolerance)
    times = np.zeros(N, int)
    times[:60] = 1 + np.arange(60) % 3
    repeated = solve(y, np.repeat(np.arange(N), times))
    unknown = np.where(times > 0, y, np.nan)
    weighted = solve(unknown, weights=times.astype(float))
    np.testing.assert_allclose(weighted, repeated, atol=tolerance)


@pytest.mark.parametrize("single", [False, True])
def test_units_of_the_target_of_estimators(single):
    """Sparsities, supports and coefficients; a float32 table as well."""
    sklearn = pytest.importorskip("jaxht.sklearn")
    X = FULL[:, :9].astype(np.float32 if single else np.float64)
    for model, name in [
        (sklearn.L0GammaRegressor("ebic"), "Gamma"),
        (sklearn.L0PoissonRegressor(4), "Poisson"),  # the evidence of counts is in their size
        (sklearn.L0Regressor("ebic"), "LeastSquares"),
    ]:
        y = TARGETS[name]
        coef = model.fit(X, y.astype(X.dtype)).coef_.copy()
        for unit in (1e-6, 3e4, 1e8):
            changed = model.fit(X, (unit * y).astype(X.dtype))
            scale = unit if name == "LeastSquares" else 1
            np.testing.assert_array_equal(changed.coef_ != 0, coef != 0)
            np.testing.assert_allclose(changed.coef_ / scale, coef, atol=2e-3 if single else 1e-6)


# ---- powers of two, which round nothing ----


SCALED_SOLVERS = {
    "OLS": jaxht.OLS(),
    "LocalSearch": jaxht.LocalSearch(num_starts=4, num_moves=5, patience=2),
    "ExhaustiveLocalSearch": jaxht.ExhaustiveLocalSearch(),
    "CGIHT": jaxht.CGIHT(),
    "FIHT": jaxht.FIHT(),
    "ALPS": jaxht.ALPS(),
}
EXTREMES = [(33, 33), (-30, -33), (40, 0), (-40, 0), (-40, -40)]


@pytest.mark.parametrize("name", SCALED_SOLVERS)
def test_units_at_the_ends_of_single_precision(name):
    """The same support, value and status; CGIHT compares squares of gradients, which overflow, and
    ALPS takes its last steps among rounding errors."""
    rng = np.random.default_rng(3)
    A = (rng.normal(size=(30, 20)) + 0.5 * rng.normal(size=(30, 1))).astype(np.float32)
    y = (A[:, :4] @ np.array([1, -1, 1, -1.0]) + rng.normal(size=30)).astype(np.float32)
    weights = rng.uniform(0.5, 2, size=30).astype(np.float32)

    def run(of_A, of_y):
        scaled = A * np.float32(2.0**of_A), y * np.float32(2.0**of_y)
        f = jaxht.LeastSquares(*scaled, weights=weights)
        solver, stop = SCALED_SOLVERS[name], jaxht.Stop(max_steps=60)
        result = jaxht.solve(f, Sparse(4, k_max=4), solver, stop=stop)
        return result, float(result.value) / 4.0**of_y

    base, least = run(0, 0)
    skipped = {"CGIHT": (33, 33), "ALPS": (-40, -40)}.get(name)
    for units in EXTREMES:
        if units == skipped:
            continue
        result, value = run(*units)
        assert result.reason == base.reason, units
        assert value == pytest.approx(least, rel=1e-4), units
        assert result.support.numpy().tolist() == base.support.numpy().tolist(), units
