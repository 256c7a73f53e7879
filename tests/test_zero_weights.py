"""A sample of weight 0 is left out, whatever its target is and however large its prediction; a
design that is not finite is told, whatever the weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxht
from jaxht import Sparse, Status
from jaxht.sklearn import L0Classifier, L0Regressor
from tests.util import host, precision, quick

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D, K = 60, 8, 3
ABSENT = [3, 17]
RNG = np.random.default_rng(0)
A = RNG.standard_normal((N, D))
ETA = A @ np.array([1.0, -1.0, 0.5, 0, 0, 0, 0, 0])
CLASSES = np.sign(ETA + RNG.logistic(size=N))
TARGETS = {
    jaxht.LeastSquares: ETA + RNG.standard_normal(N),
    jaxht.Logistic: CLASSES,
    jaxht.Poisson: RNG.poisson(np.exp(ETA)).astype(float),
    jaxht.Gamma: np.exp(ETA) * RNG.gamma(2, 0.5, N),
    jaxht.Huber: ETA + RNG.standard_normal(N),
    jaxht.SquaredHinge: CLASSES,
    jaxht.SmoothedHinge: CLASSES,
}
WEIGHTS = np.ones(N)
WEIGHTS[ABSENT] = 0
SOLVERS = {"default": None, "OMP": jaxht.OMP(), "HTP": jaxht.HTP(), "NIHT": jaxht.NIHT()}


def solve(objective, solver):
    """Eagerly where no solver is given, so that the table is padded."""
    if solver is None:
        return host(jaxht.solve(objective, Sparse(K)))
    return host(quick(jaxht.solve)(objective, Sparse(K, k_max=K), solver))


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("model", TARGETS, ids=lambda model: model.__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_absent_samples_change_nothing(model, name, dtype):
    y = TARGETS[model]
    with precision(dtype):

        def make(A, y, weights=WEIGHTS):
            return model(A.astype(dtype), y.astype(dtype), 1e-3, weights=weights.astype(dtype))

        present = WEIGHTS > 0
        expected = solve(make(A[present], y[present], WEIGHTS[present]), SOLVERS[name])
        huge = A.copy()
        huge[ABSENT] *= [[1e4], [-1e5]]
        unknown = y.copy()
        unknown[ABSENT] = [np.nan, np.inf]
        for found in (
            solve(make(huge, y), SOLVERS[name]),
            solve(make(A, unknown), SOLVERS[name]),
            solve(make(huge, unknown), SOLVERS[name]),
        ):
            assert found.status == expected.status
            np.testing.assert_array_equal(found.x != 0, expected.x != 0)
            tolerance = 1e-3 if dtype == "float32" else 1e-6
            np.testing.assert_allclose(found.x, expected.x, atol=tolerance)

        infinite = A.copy()
        infinite[ABSENT[0], 0] = np.nan
        assert solve(make(infinite, y), SOLVERS[name]).status == Status.INVALID_DATA


def test_counts_that_overflow():
    """A row of 2000 whose exponential overflows."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((2000, 20))
    y = rng.poisson(np.exp(X[:, 0] - X[:, 5])).astype(np.float32)
    weights = np.ones(2000, np.float32)
    weights[7] = 0
    far = X.copy()
    far[7] = 1e6
    for solver in (None, jaxht.OMP(), jaxht.HTP()):
        supports = []
        for design in (X, far, scipy.sparse.csr_array(far)):
            f = jaxht.Poisson(jaxht.design(design.astype(np.float32)), y, weights=weights)
            found = jaxht.solve(f, Sparse(2), solver)
            assert found.succeeded
            supports.append(np.flatnonzero(found.x).tolist())
        assert supports == [[0, 5]] * 3


@pytest.mark.parametrize("loss", ["finite sum", "softmax", "ordinal", "cox"])
def test_other_losses(loss):
    """Those that couple samples or outputs, and sums of a user's own functions."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, 3, N)
    times = np.column_stack([rng.exponential(np.exp(-ETA)), rng.random(N) < 0.8])

    def make(A, target):
        if loss == "softmax":
            return jaxht.Softmax(A, target, 1e-2, num_classes=3, weights=WEIGHTS)
        if loss == "ordinal":
            return jaxht.Ordinal(A, target, 1e-2, num_classes=3, weights=WEIGHTS)
        if loss == "cox":
            return jaxht.Cox(A, target, 1e-2, weights=WEIGHTS)
        samples = {"a": A, "y": target}
        return jaxht.FiniteSum(square_loss, samples, like=D, weights=WEIGHTS / N)

    target = times if loss == "cox" else y
    with precision("float64"):
        expected = host(jaxht.solve(make(A, target), Sparse(K), jaxht.HTP()))
        huge = A.copy()
        huge[ABSENT] *= [[1e4], [-1e5]]
        found = host(jaxht.solve(make(huge, target), Sparse(K), jaxht.HTP()))
        np.testing.assert_array_equal(found.x != 0, expected.x != 0)
        np.testing.assert_allclose(found.x, expected.x, atol=1e-6)


def square_loss(x, sample):
    return (x @ sample["a"] - sample["y"]) ** 2


def test_a_finite_sum_has_finite_derivatives_where_a_sample_without_weight_is_none():
    a = A.astype(np.float32)
    absent = a.copy()
    absent[ABSENT] = np.nan

    def make(samples):
        def loss(x, row):
            return (row @ x - 1) ** 2

        like = np.zeros(D, np.float32)
        return jaxht.FiniteSum(loss, samples, like=like, weights=np.float32(WEIGHTS)).prepare()

    x = np.full(D, 0.1, np.float32)
    f, g = make(absent), make(a)
    np.testing.assert_allclose(f.value(x, x), g.value(x, x), rtol=1e-6)
    np.testing.assert_allclose(f.gradient(x, x), g.gradient(x, x), rtol=1e-6)


def test_a_class_id_that_is_none_gives_nan():
    from jaxht.objectives.losses import SoftmaxLoss

    ids = np.array([-1, 0, 2, 3, np.nan, 1.5])
    values = SoftmaxLoss(3).value(jnp.zeros((6, 3)), jnp.asarray(ids))
    np.testing.assert_array_equal(np.isnan(values), [True, False, False, True, True, True])


@pytest.mark.parametrize(
    "model", [jaxht.Logistic, jaxht.SquaredHinge, jaxht.Ordinal, jaxht.Softmax, jaxht.Cox]
)
def test_unknown_targets_beside_traced_weights(model):
    """NaN where the weight is 0 is no target, where it is not, invalid data; other targets are still
    checked."""
    y = CLASSES.copy()
    options = {"l2": 0.1}
    if model in (jaxht.Ordinal, jaxht.Softmax):
        y = (y + 1) / 2
        options["num_classes"] = 2
    if model is jaxht.Cox:
        y = np.stack([np.exp(ETA), (y + 1) / 2], axis=1)
    rows = jaxht.Groups(K, np.repeat(np.arange(D)[:, None], 2, axis=1))
    constraint = rows if model is jaxht.Softmax else Sparse(K)

    def fit(weights, y):
        f = model(A.astype(np.float32), y.astype(np.float32), weights=weights, **options)
        return jaxht.solve(f, constraint, jaxht.HTP())

    unknown = y.copy()
    unknown[ABSENT] = np.nan
    weights = np.stack([WEIGHTS, 2 * WEIGHTS, np.ones(N)]).astype(np.float32)
    found = jax.vmap(lambda weights: fit(weights, unknown))(weights)
    np.testing.assert_allclose(found.x[0], fit(weights[0], y).x, rtol=1e-4, atol=1e-5)
    assert np.all(found.succeeded[:2]) and found.status[2] == Status.INVALID_DATA
    with pytest.raises(ValueError, match="must hold"):
        jax.vmap(lambda weights: fit(weights, unknown - 7))(weights)


def test_least_squares_of_no_sample_at_all():
    """By the default solver, eagerly, where the table is compressed."""
    f = jaxht.LeastSquares(A[:, :4], ETA, 0.1, weights=np.zeros(N), mean=False)
    result = jaxht.solve(f, Sparse(2))
    assert result.succeeded and not np.any(result.x)


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray])
def test_known_weights_below_0_are_refused(convert):
    weights = convert(np.where(np.arange(N) == 5, -1, WEIGHTS).astype(np.float32))
    with pytest.raises(ValueError, match=r"weights must be at least 0; got -1"):
        jaxht.LeastSquares(A.astype(np.float32), ETA.astype(np.float32), weights=weights).prepare()
    for wrong in (weights, 0 * weights):
        with pytest.raises(ValueError, match="weights must be at least 0, and not 0 for all"):
            jaxht.standardize(A.astype(np.float32), weights=wrong)


@pytest.mark.parametrize("model", [jaxht.LeastSquares, jaxht.Logistic])
def test_numbers_below_0_that_are_not_known_are_invalid_in_their_lane(model):
    a, y = A.astype(np.float32), TARGETS[model].astype(np.float32)

    def lane(weights, l2):
        return jaxht.solve(model(a, y, l2, weights=weights), Sparse(K, k_max=K), jaxht.HTP())

    weights = np.tile(np.float32(WEIGHTS), (4, 1))
    weights[1, 7] = -1e-3
    l2 = np.array([0.1, 0.1, -1e-3, 0.1], np.float32)
    found = host(jax.jit(jax.vmap(lane))(weights, l2))
    invalid = found.status == Status.INVALID_DATA
    np.testing.assert_array_equal(invalid, [False, True, True, False])
    np.testing.assert_array_equal(found.x[1:3], 0)
    expected = host(lane(weights[0], l2[0]))
    for i in (0, 3):
        np.testing.assert_allclose(found.x[i], expected.x, rtol=1e-5)


def test_a_ridge_below_0_of_moments_is_invalid():
    a, y = A.astype(np.float32), ETA.astype(np.float32)

    def run(l2):
        f = jaxht.MomentLeastSquares(a.T @ a, a.T @ y, y @ y, N, l2)
        return jaxht.solve(f, Sparse(K, k_max=K), jaxht.HTP()).status

    status = jax.jit(jax.vmap(run))(np.array([0.1, -0.1], np.float32))
    assert (status[0], status[1]) == (Status.SUPPORT_STABLE, Status.INVALID_DATA)


@pytest.mark.parametrize("solver", [jaxht.DIHT(), jaxht.SDIHT()], ids=["DIHT", "SDIHT"])
def test_dual_solvers_close_the_gap(solver):
    """Whatever y is where there is no weight."""
    y = np.where(WEIGHTS > 0, ETA, np.nan)
    f = jaxht.LeastSquares(A, y, 0.5, weights=WEIGHTS)
    stop = jaxht.Stop(gap_rtol=1e-3)
    result = jaxht.solve(f, Sparse(K), solver, key=jax.random.key(0), stop=stop)
    assert result.reason == "GAP_CLOSED"


GLMS = [kind for kind in TARGETS if kind is not jaxht.LeastSquares]


@pytest.mark.parametrize("kind", GLMS, ids=lambda kind: kind.__name__)
def test_derivatives_in_reverse_mode(kind):
    """Of NaN as target they are those of any number in its place."""

    def derivative(absent):
        y = TARGETS[kind].copy()
        y[ABSENT] = absent

        def value(l2):
            f = kind(A, y, l2, weights=WEIGHTS)
            return jaxht.solve(f, Sparse(K), jaxht.HTP(), stop=jaxht.Stop(max_steps=20)).value

        return quick(jax.grad(value))(0.1)

    with precision("float64"):
        np.testing.assert_allclose(derivative(np.nan), derivative(1.0), rtol=1e-12)


@pytest.mark.parametrize("adjoint", ["implicit", "checkpointed"])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_derivatives_by_a_weight_of_0(kind, adjoint):
    design = A if kind == "real" else A + 1j * A[::-1]
    y = TARGETS[jaxht.LeastSquares] + (0 if kind == "real" else 1j)

    def total(weights):
        f = jaxht.LeastSquares(design, y, 0.1, weights=weights)
        stop = jaxht.Stop(max_steps=5)
        x = jaxht.solve(f, Sparse(K), jaxht.HTP(), adjoint=adjoint, stop=stop).x
        return jnp.sum(x.real)

    with precision("float64"):
        h = 1e-6
        first = jnp.zeros(N).at[ABSENT[0]].set(h)
        difference = (total(WEIGHTS + first) - total(jnp.asarray(WEIGHTS))) / h
        assert abs(difference) > 1e-4
        derivatives = jax.grad(total)(jnp.asarray(WEIGHTS))
        np.testing.assert_allclose(derivatives[ABSENT[0]], difference, rtol=1e-4)
        assert np.all(np.isfinite(derivatives))


def test_refits_are_differentiable_by_a_weight_of_0():
    support = jaxht.Support(np.arange(D) < K, k_max=K)

    def total(weights):
        f = jaxht.LeastSquares(A, TARGETS[jaxht.LeastSquares], 0.1, weights=weights).prepare()
        return jnp.sum(jaxht.extend.refit(f, support, jnp.zeros(D)).x)

    with precision("float64"):
        h = 1e-6
        weights = jnp.asarray(WEIGHTS)
        difference = (total(weights.at[ABSENT[0]].set(h)) - total(weights)) / h
        for derivative in (jax.grad(total), jax.jacfwd(total)):
            np.testing.assert_allclose(derivative(weights)[ABSENT[0]], difference, rtol=1e-4)


CRITERIA_KINDS = [jaxht.LeastSquares, jaxht.Logistic, jaxht.Poisson, jaxht.Gamma]


@pytest.mark.parametrize("absent", ["target", "prediction"])
@pytest.mark.parametrize("kind", CRITERIA_KINDS, ids=lambda kind: kind.__name__)
def test_criteria_are_those_of_the_other_samples(kind, absent):
    design = A.copy()
    y = TARGETS[kind].copy()
    x = np.where(np.arange(D) < 2, [1.0, -1.0] + [0] * (D - 2), 0)
    if absent == "target":
        y[ABSENT] = np.nan
    else:
        design[ABSENT] = -2000 * np.sign(x)  # exp(-A x) and exp(A x) overflow or vanish
    present = WEIGHTS > 0
    with precision("float64"):
        whole = jaxht.criteria.bic(kind(design, y, weights=WEIGHTS), x)
        part = jaxht.criteria.bic(kind(design[present], y[present]), x)
    np.testing.assert_allclose(whole, part, rtol=1e-12)


def test_moments_of_a_padded_batch():
    moments = jaxht.Moments.zero(2).add(
        np.array([[1.0, 2.0], [np.nan, np.inf]]), np.array([1, np.nan]), np.array([1.0, 0.0])
    )
    np.testing.assert_array_equal(moments.gram, [[1, 2], [2, 4]])
    np.testing.assert_array_equal(moments.products, [1, 2])
    assert moments.squares == 1


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("missing", [9.97e36, 1e20])
def test_estimators_look_at_no_sample_of_weight_0(form, missing):
    """Whose features say by a huge number that they are missing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4)).astype(np.float32)
    y = X[:, 1] - 0.5 * X[:, 3]
    weights = np.ones(40)
    weights[[0, 17]] = 0
    kept = weights > 0
    expected = L0Regressor(k=2).fit(form(X[kept]), y[kept])
    X[~kept] = missing
    found = L0Regressor(k=2).fit(form(X), y, weights)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.intercept_, expected.intercept_, atol=1e-5)
    classes = np.where(y > 0, "yes", "no")
    expected = L0Classifier(k=1).fit(form(np.where(kept[:, None], X, 0)), classes, weights)
    found = L0Classifier(k=1).fit(form(X), classes, weights)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("traced", [False, True])
def test_an_absent_offset_has_finite_derivatives(traced):
    rng = np.random.default_rng(1)
    A = rng.normal(size=(12, 5)).astype(np.float32)
    y, weights = np.where(A[:, 0] > 0, 1, -1).astype(np.float32), np.ones(12, np.float32)
    weights[0] = 0
    offset = 0.1 * rng.normal(size=12).astype(np.float32)

    def slope(offset):
        def value(l2):
            f = jaxht.Logistic(A, y, l2, weights=weights, offset=offset)
            return jaxht.solve(f, Sparse(2, k_max=2), jaxht.HTP()).value

        return jax.grad(value)(0.1)

    slope = jax.jit(slope) if traced else slope
    expected = slope(offset)
    offset[0] = np.nan
    np.testing.assert_allclose(slope(offset), expected, rtol=1e-5)
