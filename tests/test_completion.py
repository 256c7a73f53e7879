"""Completion of matrices with missing entries, and effects of rows and columns, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import LowRank
from tests.util import precision, quick, solve

pytestmark = pytest.mark.usefixtures("all_quickly")
M, P, K = 14, 11, 2
RNG = np.random.default_rng(0)
LOW = RNG.normal(size=(M, K)) @ RNG.normal(size=(K, P))
TRUTH = LOW + 5 + 3 * RNG.normal(size=M)[:, None] + 2 * RNG.normal(size=P)
MISSING = RNG.random((M, P)) < 0.25
Y = np.where(MISSING, np.nan, TRUTH)
WEIGHTS = RNG.exponential(size=(M, P)) * (RNG.random((M, P)) < 0.9)
OFFSET = RNG.normal(size=(M, P))
X = RNG.normal(size=(M, P))


def test_a_matrix_is_its_entries(dtype):
    rows, columns = np.nonzero(~MISSING)
    matrix = Y.astype(dtype)
    at = (rows, columns)
    whole = jaxht.matrix_completion(matrix, l2=0.1, weights=WEIGHTS, offset=OFFSET)
    entries = jaxht.matrix_completion(
        rows, columns, matrix[at], (M, P), l2=0.1, weights=WEIGHTS[at], offset=OFFSET[at]
    )
    assert whole.num_samples == rows.size
    for found, expected in zip(jax.tree.leaves(whole), jax.tree.leaves(entries), strict=True):
        np.testing.assert_array_equal(found, expected)

    @quick
    def look(Y, x):
        f = jaxht.matrix_completion(Y, l2=0.1, weights=WEIGHTS, offset=OFFSET).prepare()
        pred = f.predict(x)
        return f.value(x, pred), f.gradient(x, pred)

    entries = entries.prepare()
    x = jnp.asarray(X, dtype)
    pred = entries.predict(x)
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == np.float32 else {"rtol": 1e-12}
    value, gradient = look(matrix, x)
    np.testing.assert_allclose(value, entries.value(x, pred), **tolerance)
    np.testing.assert_allclose(gradient, entries.gradient(x, pred), **tolerance)


def test_lanes_of_matrices():
    """Each lane has its own missing entries; a matrix of integers has none."""
    masks = RNG.random((3, M, P)) < 0.2
    lanes = np.where(masks, np.nan, LOW)

    def run(Y):
        return jaxht.solve(jaxht.matrix_completion(Y), LowRank(K, K), jaxht.NIHT())

    with precision("float64"):
        found = quick(jax.vmap(run))(lanes)
        for x, Z in zip(found.x, lanes, strict=True):
            np.testing.assert_allclose(x, run(Z).x, atol=1e-6)
            np.testing.assert_allclose(x, LOW, atol=1e-4)
        of_integers = jaxht.matrix_completion(np.arange(6).reshape(2, 3)).prepare()
        assert of_integers.num_samples == 6 and of_integers.dtype == np.float64


def minimise(x, Y, kind, weights, offset):
    """The least sum of squares over effects, and their matrix, by least squares of NumPy."""
    rows, columns = np.nonzero(~np.isnan(Y) & (weights > 0))
    at = (rows, columns)
    Z = np.zeros((rows.size, M + P))
    if kind != "columns":
        Z[np.arange(rows.size), rows] = 1
    if kind != "rows":
        Z[np.arange(rows.size), M + columns] = 1
    roots = np.sqrt(weights[at])
    residual = (Y - offset - x)[at]
    effects = np.linalg.lstsq(roots[:, None] * Z, roots * residual, rcond=None)[0]
    rest = residual - Z @ effects
    value = np.sum(weights[at] * rest**2) / 2 / np.sum(weights[at])
    return value, effects[:M, None] + effects[M:]


def in_two_parts():
    """A matrix whose observed rows and columns fall apart, with a row that has no entries."""
    parts = Y.copy()
    parts[:6, 5:] = np.nan
    parts[6:, :5] = np.nan
    parts[3] = np.nan
    return parts


@pytest.mark.parametrize("kind", ["rows", "columns", "both"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("whole", [True, False])
def test_effects_are_those_of_least_squares(kind, weighted, whole):
    matrix = Y if whole else in_two_parts()
    weights = WEIGHTS if weighted else np.ones((M, P))
    offset = OFFSET if weighted else np.zeros((M, P))
    given = {"weights": WEIGHTS, "offset": OFFSET} if weighted else {}
    expected, effects = minimise(X, matrix, kind, weights, offset)
    with precision("float64"):
        f = jaxht.matrix_completion(matrix, effects=kind, **given).prepare()
        np.testing.assert_allclose(f.value(X, f.predict(X)), expected, rtol=1e-10)

        @quick
        def look(matrix):
            f = jaxht.matrix_completion(matrix, effects=kind, **given).prepare()
            found = jaxht.matrix_effects(X, matrix, effects=kind, **given)
            pred = f.predict(X)
            return f.value(X, pred), f.gradient(X, pred), found

        value, gradient, traced = look(matrix)
        np.testing.assert_allclose(value, expected, rtol=1e-10)
        h, V = 1e-5, np.random.default_rng(1).normal(size=(M, P))
        ends = [minimise(X + s * h * V, matrix, kind, weights, offset)[0] for s in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * h)
        np.testing.assert_allclose(np.vdot(gradient, V), slope, rtol=1e-6, atol=1e-9)
        own = f.gradient(X, f.predict(X))
        np.testing.assert_allclose(gradient, own, rtol=1e-9, atol=1e-12)

        found = jaxht.matrix_effects(X, matrix, effects=kind, **given)
        seen = ~np.isnan(matrix) & (weights > 0)
        np.testing.assert_allclose(found.matrix()[seen], effects[seen], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(traced.matrix()[seen], effects[seen], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(np.sum(found.rows), 0, atol=1e-10)
        np.testing.assert_allclose(np.sum(found.columns), 0, atol=1e-10)
        assert kind != "columns" or not np.any(found.rows)
        assert not np.any(found.rows[~seen.any(axis=1)])


@pytest.mark.parametrize("solver", [jaxht.NIHT(), jaxht.HTP(), jaxht.IHT()], ids=str)
def test_a_matrix_with_effects_is_completed(solver):
    """All entries, by its observed ones; without effects four ranks would be needed."""
    with precision("float64"):
        f = jaxht.matrix_completion(Y, effects="both")
        result = solve(f, LowRank(K, K), solver, stop=jaxht.Stop(max_steps=5000))
        effects = jaxht.matrix_effects(result.x, Y)
        assert result.support.size == K
        np.testing.assert_allclose(result.x + effects.matrix(), TRUTH, atol=1e-4)


def test_a_noisy_matrix_ends_where_alternation_ends():
    """Effects given the matrix, and the matrix given the effects, until neither changes."""
    noisy = Y + 0.3 * np.random.default_rng(2).normal(size=(M, P))
    ones, zeros = np.ones((M, P)), np.zeros((M, P))
    x = zeros
    for _ in range(4000):
        _, effects = minimise(x, noisy, "both", ones, zeros)
        filled = np.where(MISSING, x, noisy - effects)
        U, s, Vt = np.linalg.svd(filled)
        x = (U[:, :K] * s[:K]) @ Vt[:K]
    expected, _ = minimise(x, noisy, "both", ones, zeros)
    with precision("float64"):
        f = jaxht.matrix_completion(noisy, effects="both")
        result = solve(f, LowRank(K, K), jaxht.NIHT(), stop=jaxht.Stop(max_steps=5000))
        assert result.value <= expected * (1 + 1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: jaxht.matrix_completion(Y[0]), r"a matrix \(m, p\), .* got shape \(11,\)"),
        (lambda: jaxht.matrix_completion(Y.tolist()), r"a matrix \(m, p\), .* got list: pass"),
        (lambda: jaxht.matrix_completion(Y.astype(str)), r"a matrix of numbers; got dtype <U"),
        (
            lambda: jaxht.matrix_completion(np.ma.masked_invalid(Y)),
            "got a masked array: pass rows.filled",
        ),
        (lambda: jaxht.matrix_completion(np.nan * Y), "an entry that is not NaN"),
        (lambda: jaxht.matrix_completion(Y, weights=np.ones(M)), r"weights must have shape \(14, "),
        (lambda: jaxht.matrix_completion(Y, np.arange(3)), "rows, columns, y and shape must be"),
        (
            lambda: jaxht.matrix_completion(Y, effects="all"),
            "effects must be None or one of .*'all'",
        ),
        (
            lambda: jaxht.matrix_completion(Y, effects="both", model=jaxht.Huber),
            "effects need squared errors: model must be LeastSquares",
        ),
        (
            lambda: jaxht.matrix_effects(X[1:], Y),
            r"x must have shape \(14, 11\), .* got \(13, 11\)",
        ),
    ],
)
def test_what_cannot_be(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_infinite_entries_end_at_once():
    """Of LAPACK, singular values of an infinite matrix are a loop without end."""
    Y = np.outer(np.arange(1.0, 9), np.arange(1.0, 7)).astype(np.float32)
    Y[0, 0] = np.inf
    result = jaxht.solve(jaxht.matrix_completion(Y), jaxht.LowRank(1))
    assert result.reason == "INVALID_DATA"


def test_rank_0():
    Y = np.outer(np.arange(1.0, 9), np.arange(1.0, 7)).astype(np.float32)
    Y[0, 0] = np.nan
    f = jaxht.matrix_completion(Y)
    for solver in (None, jaxht.IHT()):
        result = jaxht.solve(f, jaxht.LowRank(0), solver)
        assert result.succeeded and not np.any(result.x)
        np.testing.assert_allclose(result.value, np.nanmean(Y**2) / 2, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64"])
def test_numbers_of_rows_of_any_integers(dtype):
    """Products of 8-bit numbers wrap."""
    f = jaxht.matrix_completion(
        np.array([0, 120, 7], dtype), np.array([3, 1, 99], dtype), np.ones(3), (128, 100)
    )
    x = np.arange(12_800.0).reshape(128, 100)
    np.testing.assert_array_equal(f.predict(x), [3, 12_001, 799])


def test_more_entries_than_can_be_numbered_are_refused():
    with pytest.raises(ValueError, match="entries, which are numbered"):
        jaxht.matrix_completion(np.array([0]), np.array([5]), np.ones(1), (70_000, 70_000))


@pytest.mark.parametrize("traced", [False, True])
def test_padded_entries_are_no_samples(traced):
    """Whatever stands there; also beside weights."""
    rng = np.random.default_rng(0)
    rows, columns = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 2, 2])
    y, weights = rng.normal(size=5), np.array([1.0, 2, 1, 0.5, 1])

    def value(rows, columns, y, weights):
        f = jaxht.matrix_completion(rows, columns, y, (3, 3), l2=0.1, weights=weights)
        return jaxht.solve(f, jaxht.Sparse(3), jaxht.HTP()).value

    value = jax.jit(value) if traced else value
    padding = np.full(4, 3), np.zeros(4, int), np.full(4, 7.0), np.ones(4)
    for given in (weights, None):
        whole = [np.append(a, b) for a, b in zip((rows, columns, y), padding[:3], strict=True)]
        longer = None if given is None else np.append(given, padding[3])
        expected = value(rows, columns, y, given)
        np.testing.assert_allclose(value(*whole, longer), expected, rtol=1e-5)
