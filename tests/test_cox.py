"""The Cox model against the partial likelihood written as loops, its differences, and
enumeration."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from scipy import optimize

import jaxht
from jaxht import Sparse, Status, Support, sweep
from jaxht.objectives.losses.survival import _cumulate, _Log
from jaxht.subproblems import refit
from tests.util import check_slopes, quick, solve, x64

pytestmark = pytest.mark.usefixtures("all_quickly")
N, D, K = 30, 7, 2


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


def partial_likelihood(u, time, event, weights):
    """Minus its logarithm, event by event, with Breslow's ties."""
    total = 0.0
    for i in range(len(u)):
        if event[i] and weights[i]:
            at_risk = sum(weights[j] * np.exp(u[j]) for j in range(len(u)) if time[j] >= time[i])
            total += weights[i] * (np.log(at_risk) - u[i])
    return total


def efron_likelihood(u, time, event, weights):
    """The same with Efron's ties, time by time."""
    total = 0.0
    for t in np.unique(time):
        tied = np.flatnonzero((time == t) & (event == 1) & (weights > 0))
        hazards = weights * np.exp(u)
        for place, i in enumerate(tied):
            at_risk = np.sum(hazards[time >= t]) - place / len(tied) * np.sum(hazards[tied])
            total += np.mean(weights[tied]) * np.log(at_risk) - weights[i] * u[i]
    return total


LIKELIHOODS = {"breslow": partial_likelihood, "efron": efron_likelihood}


def stratified(likelihood, strata):
    """The sum of a likelihood over strata."""

    def value(u, *samples):
        of_strata = []
        for label in np.unique(strata):
            is_in = strata == label
            of_strata.append(likelihood(u[is_in], *[each[is_in] for each in samples]))
        return sum(of_strata)

    return value


def data(seed=0, n=N, d=D, ties=True):
    """A, times with ties, events, weights of which some are 0, and an offset."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, d))
    time = rng.exponential(np.exp(-A[:, 0] + A[:, 3]))
    time = np.ceil(4 * time) if ties else time
    weights = rng.exponential(size=n) * (rng.random(n) < 0.8)
    return A, time, (rng.random(n) < 0.7).astype(float), weights, 0.5 * rng.normal(size=n)


DESIGNS = {
    "dense": jnp.asarray,
    "sparse": lambda A: jaxht.design(scipy.sparse.csr_array(A)),
    "operator": lambda A: jaxht.LinearOperator(lambda x, A: A @ x, A.shape, (A,)),
}


def problem(design="dense", weighted=True, mean=True, l2=0.05):
    """An objective, and the loops it stands for."""
    A, time, event, weights, offset = data()
    s = weights if weighted else np.ones(N)
    y = np.stack([time, event], axis=1)
    f = jaxht.Cox(
        DESIGNS[design](A), y, l2, mean=mean, weights=s if weighted else None, offset=offset
    )

    def value(x):
        share = 1 / s.sum() if mean else 1.0
        return share * partial_likelihood(A @ x + offset, time, event, s) + l2 / 2 * x @ x

    return f, value


def differences(fun, x, h):
    """The derivative of a function by central differences."""
    return np.stack([(fun(x + h * e) - fun(x - h * e)) / (2 * h) for e in np.eye(len(x))])


@pytest.mark.parametrize(
    ("design", "weighted", "mean"), [("dense", True, True), ("sparse", False, False)]
)
@pytest.mark.parametrize("prepared", [False, True])
def test_value_and_derivatives(design, weighted, mean, prepared):
    f, value = problem(design, weighted, mean)
    f = f.prepare() if prepared else f
    x = 0.7 * np.random.default_rng(1).normal(size=D)

    @quick
    def gradient(x):
        return f.gradient(x, f.predict(x))

    np.testing.assert_allclose(f.value(x, f.predict(x)), value(x), rtol=1e-12)
    np.testing.assert_allclose(gradient(x), differences(value, x, 1e-5), rtol=1e-7, atol=1e-7)
    H, expected = f.hessian(x, f.predict(x)), differences(gradient, x, 1e-5)
    np.testing.assert_allclose(H.rows(jnp.arange(D)), expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(H.diagonal(), np.diag(expected), rtol=1e-6, atol=1e-8)
    v = np.random.default_rng(2).normal(size=D)
    np.testing.assert_allclose(H.quadratic_form(v, f.predict(v)), v @ expected @ v, rtol=1e-6)


@pytest.mark.parametrize("ties", ["breslow", "efron"])
@pytest.mark.parametrize(
    ("n", "num_strata", "weighted"), [(1, 1, False), (40, 1, True), (70, 4, True), (300, 9, False)]
)
def test_ties_and_strata(ties, n, num_strata, weighted):
    A, time, event, weights, offset = data(n, n, 4)
    strata = np.random.default_rng(n).integers(0, num_strata, n)
    s = weights if weighted else np.ones(n)
    y = np.stack([time, event], axis=1)
    f = jaxht.Cox(
        A,
        y,
        weights=s if weighted else None,
        offset=offset,
        mean=False,
        ties=ties,
        strata=strata if num_strata > 1 else None,
    )
    likelihood = stratified(LIKELIHOODS[ties], strata)
    x, v = np.random.default_rng(1).normal(size=(2, 4))

    def value(x):
        return likelihood(A @ x + offset, time, event, s)

    @quick
    def look(f, x):
        f = f.prepare()
        pred = f.predict(x)
        return f.value(x, pred), f.gradient(x, pred), f.hessian(x, pred)(v)

    found, gradient, product = look(f, x)
    np.testing.assert_allclose(found, value(x), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gradient, differences(value, x, 1e-5), rtol=1e-6, atol=1e-6)
    h = 1e-5
    along = (look(f, x + h * v)[1] - look(f, x - h * v)[1]) / (2 * h)
    np.testing.assert_allclose(product, along, rtol=1e-6, atol=1e-6)
    # What is known before the program runs is sorted by NumPy.
    prepared = f.prepare()
    assert isinstance(prepared.risk_sets.order, np.ndarray)
    np.testing.assert_allclose(prepared.value(x, A @ x), found, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("ties", "of_strata", "coefficients", "likelihood", "errors"),
    [
        (
            "breslow",
            True,
            [0.6711623523306018, -0.28861564979452003, -0.23663747503851917],
            -115.59736303387704,
            [0.1609855941077289, 0.1758372043014576, 0.1583371833631037],
        ),
        (
            "efron",
            False,
            [0.6289291123187581, -0.19436955734700093, -0.2816985770354397],
            -169.74073946356066,
            [0.14261224293526747, 0.16524996644979817, 0.15574479771169641],
        ),
        (
            "efron",
            True,
            [0.6941102295024784, -0.3007771685713621, -0.2368647058633305],
            -113.012873552594,
            [0.16074384435889696, 0.17734432705090436, 0.15936186049542853],
        ),
    ],
)
def test_numbers_of_statsmodels(ties, of_strata, coefficients, likelihood, errors):
    """``PHReg(time, A, event, ties=ties, strata=strata).fit()`` of statsmodels 0.15."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(80, 3))
    time = np.ceil(4 * rng.exponential(np.exp(-A[:, 0] + 0.5 * A[:, 2])))
    y = np.stack([time, rng.random(80) < 0.7], axis=1)
    strata = np.arange(80) % 3 if of_strata else None
    f = jaxht.Cox(A, y, mean=False, ties=ties, strata=strata)
    result = jaxht.solve(f, Sparse(3), jaxht.HTP())
    np.testing.assert_allclose(result.x, coefficients, rtol=1e-9)
    np.testing.assert_allclose(-result.value, likelihood, rtol=1e-10)
    found = jaxht.inference.standard_errors(f, result.support, result.x)
    np.testing.assert_allclose(found, errors, rtol=1e-9)


def test_solutions_within_strata_by_efrons_ties():
    """The best support of all, and its coefficients; lanes of strata; folds; a sweep's lanes."""
    A, time, event, _, _ = data(5, 60, 5)
    strata = np.arange(60) % 3
    y = np.stack([time, event], axis=1)

    def run(strata, weights):
        f = jaxht.Cox(A, y, 0.01, weights=weights, ties="efron", strata=strata)
        return jaxht.solve(f, Sparse(2, 2), jaxht.HTP())

    some = 1.0 * (np.random.default_rng(0).random(60) < 0.7)
    labels = jnp.asarray(np.stack([strata, 7 * strata, np.zeros(60, int)]))
    lanes = quick(jax.vmap(run))(labels, np.stack([np.ones(60), some, some]))
    for lane, (own, weights) in enumerate(
        [(strata, np.ones(60)), (strata, some), (0 * strata, some)]
    ):
        likelihood = stratified(efron_likelihood, own)

        def value(x, likelihood=likelihood, weights=weights):
            fit = likelihood(A @ x, time, event, weights) / np.sum(weights)
            return fit + 0.005 * x @ x

        found = lanes.x[lane]
        support = np.flatnonzero(found)
        best = optimize.minimize(
            lambda w, support=support, value=value: value(np.eye(5)[:, support] @ w), np.zeros(2)
        )
        np.testing.assert_allclose(lanes.value[lane], best.fun, rtol=1e-8)
        np.testing.assert_allclose(found[support], best.x, atol=1e-4)

    def split(held):
        return tuple(
            jaxht.Cox(A, y, weights=w, ties="efron", strata=strata)
            for w in (1.0 - held, 1.0 * held)
        )

    masks = jaxht.folds(jax.random.key(0), 60, 2)
    choice = jaxht.cross_validate(split, masks, Sparse(), jaxht.OMP(), ks=[1, 2])
    x, held = np.asarray(choice.results.x[0, 1]), np.asarray(masks[0])
    likelihood = stratified(efron_likelihood, strata[held])
    expected = likelihood(A[held] @ x, time[held], event[held], np.ones(held.sum())) / held.sum()
    np.testing.assert_allclose(choice.losses[0, 1], expected, rtol=1e-10)


def test_ties_and_strata_are_axes_of_a_sweep():
    A, time, event, _, _ = data(6, 40, 4)
    y = np.stack([time, event], axis=1)

    def fit(ties, strata):
        f = jaxht.Cox(A, y, 0.01, ties=ties, strata=strata)
        return jaxht.solve(f, Sparse(2, 2), jaxht.NIHT()).value

    def trial(key, cell):
        return {"value": fit(cell["ties"], jnp.arange(40) % cell["strata"])}

    axes = {"ties": ["breslow", "efron"], "strata": [1, 3]}
    found = sweep.run(trial, axes, num_trials=1, static=["ties"])
    for ties in axes["ties"]:
        for number in axes["strata"]:
            expected = fit(ties, np.arange(40) % number)
            value = found.value.sel(ties=ties, strata=number)
            np.testing.assert_allclose(value, expected, rtol=1e-9)


def test_the_majorant_bounds_the_hessian_at_zero():
    for seed in range(20):
        A, time, event, weights, _ = data(seed)
        f = jaxht.Cox(jnp.asarray(A), np.stack([time, event], axis=1), weights=weights)
        zeros = jnp.zeros(D)
        gap = f.majorant().rows(jnp.arange(D)) - f.hessian(zeros, f.predict(zeros)).rows(
            jnp.arange(D)
        )
        assert np.linalg.eigvalsh(gap)[0] >= -1e-12


def test_weights_repeat_and_leave_out_samples():
    A, time, event, _, offset = data()
    counts = np.random.default_rng(3).integers(0, 3, N)
    y, rows = np.stack([time, event], axis=1), np.repeat(np.arange(N), counts)
    weighted = jaxht.Cox(A, y, 0.1, weights=counts.astype(float), offset=offset)
    repeated = jaxht.Cox(A[rows], y[rows], 0.1, offset=offset[rows])
    x, v = np.random.default_rng(4).normal(size=(2, D))

    def looks(f):
        pred = f.predict(x)
        return (
            f.value(x, pred),
            f.gradient(x, pred),
            f.hessian(x, pred)(v),
            f.majorant().coordinate_norm(),
        )

    for ours, theirs in zip(looks(weighted), looks(repeated), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11)


def minimiser(value, F):
    """SciPy's on the coordinates F."""
    found = optimize.minimize(
        lambda w: value(np.bincount(F, w, D)), np.zeros(len(F)), method="BFGS", tol=1e-9
    )
    return np.bincount(F, found.x, D), found.fun


@pytest.mark.parametrize("design", DESIGNS)
def test_minimisers_on_supports_are_scipys(design):
    f, value = problem(design)
    supports = [[0, 3], [1, 2, 4, 5], [6], []]
    masks = np.stack([np.isin(np.arange(D), F) for F in supports])
    run = quick(jax.vmap(lambda mask, x0: refit(f.prepare(), Support(mask, k_max=4), x0)))
    found = run(masks, np.random.default_rng(5).normal(size=masks.shape))
    x, pred, converged = found.x, found.pred, found.converged
    assert np.all(converged)
    for i, F in enumerate(supports):
        expected = minimiser(value, np.array(F, int))[0] if F else np.zeros(D)
        np.testing.assert_allclose(x[i], expected, atol=1e-5)
        gradient = f.gradient(x[i], pred[i])
        assert np.max(np.abs(np.where(masks[i], gradient, 0))) < 1e-9


def test_the_best_support_is_that_of_enumeration():
    f, value = problem()
    best = min((minimiser(value, np.array(F))[1], F) for F in itertools.combinations(range(D), K))
    for found in (jaxht.solve(f, Sparse(K)), jaxht.exhaustive_search(f, Sparse(K))):
        assert tuple(found.support.numpy()) == best[1]
        np.testing.assert_allclose(found.value, best[0], rtol=1e-8)


SOLVERS = [
    jaxht.IHT(),
    jaxht.NIHT(),
    jaxht.HTP(),
    jaxht.PHT(1),
    jaxht.GraSP(),
    jaxht.GraSP(),
    jaxht.SubspacePursuit(),
    jaxht.OMP(),
    jaxht.OLS(),
    jaxht.FoBa(),
    jaxht.OMPR(),
    jaxht.ExhaustiveLocalSearch(),
    jaxht.LocalSearch(num_starts=2, num_moves=4, patience=2),
    jaxht.ARHT(),
]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
def test_solvers_find_what_is_planted(solver):
    rng = np.random.default_rng(6)
    A = rng.normal(size=(300, 20))
    time = rng.exponential(np.exp(-1.5 * (A[:, 4] - A[:, 11] + A[:, 17])))
    event = time < np.quantile(time, 0.8)
    f = jaxht.Cox(A, np.stack([np.minimum(time, np.quantile(time, 0.8)), event], axis=1), 1e-3)
    result = solve(f, Sparse(3, 3), solver, key=jax.random.key(0), stop=jaxht.Stop(max_steps=200))
    assert result.support.mask.nonzero()[0].tolist() == [4, 11, 17]
    best = refit(f.prepare(), result.support, result.x)
    assert result.value <= f.value(best.x, best.pred) * 1.01


@pytest.mark.parametrize("n", [1, 15, 16, 17, 300, 5000])
def test_sums_of_any_length(n):
    rng = np.random.default_rng(n)
    logs, values = 10 * rng.normal(size=n), rng.normal(size=n)
    nothing = np.zeros(n)
    sums, means = quick(_cumulate)(_Log(logs, nothing), values)
    np.testing.assert_allclose(sums.high + sums.low, np.logaddexp.accumulate(logs), rtol=1e-12)
    expected = np.cumsum(np.exp(logs) * values) / np.cumsum(np.exp(logs))
    np.testing.assert_allclose(means, expected, rtol=1e-8, atol=1e-12)
    backwards = sum(_cumulate(_Log(logs, nothing), reverse=True)[0])
    np.testing.assert_allclose(backwards, np.logaddexp.accumulate(logs[::-1])[::-1], rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_predictions_of_any_size(dtype):
    """Hazards whose ratio overflows: an early event of a large one does not hide the later
    events."""
    with x64(dtype == "float64"):
        u = np.array([400, 0, -300, -700], dtype)
        y = np.array([[1, 1], [2, 1], [3, 1], [4, 1]], dtype)
        f = jaxht.Cox(np.eye(4, dtype=dtype), y, mean=False).prepare()
        loss = f.loss
        np.testing.assert_allclose(loss.value(u, y), 0, atol=1e-6)
        np.testing.assert_allclose(f.gradient(u, u), 0, atol=1e-4)
        # The other way round every event is a surprise.
        np.testing.assert_allclose(loss.value(-u, y), [1100, 700, 400, 0], rtol=1e-6)
        assert np.all(np.isfinite(f.hessian(u, -u)(jnp.ones(4, dtype))))


@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_differences_of_large_predictions_keep_their_digits(ties):
    """Of one prediction for all, however large, nothing depends; in float32 as in float64."""
    rng = np.random.default_rng(9)
    n = 20
    u = rng.integers(-64, 64, n) / 4  # exact beside 2**16
    y = np.stack([rng.integers(1, 8, n), rng.random(n) < 0.7], axis=1)
    found = {}
    for dtype in (np.float64, np.float32):
        with x64(dtype == np.float64):
            f = jaxht.Cox(np.eye(n, dtype=dtype), y.astype(dtype), ties=ties).prepare()
            at = u.astype(dtype) + (2**16 if dtype == np.float32 else 0)
            found[dtype] = [f.loss.value(at, f.y), f.loss.derivative(at, f.y)]
            found[dtype].append(f.loss.hessian_product(at, f.y, jnp.arange(n, dtype=dtype)))
    for single, double in zip(found[np.float32], found[np.float64], strict=True):
        np.testing.assert_allclose(single, double, rtol=1e-5, atol=1e-6 * np.max(np.abs(double)))


def test_monotone_likelihoods_are_reported():
    """Where the order of times is that of a feature, there is no minimiser without a ridge."""
    A = np.random.default_rng(7).normal(size=(20, 4))
    y = np.stack([-A[:, 1], np.ones(20)], axis=1)
    result = solve(jaxht.Cox(A, y), Sparse(1, 1), jaxht.HTP())
    assert result.status == Status.NO_MINIMISER and np.all(np.isfinite(result.x))
    result = solve(jaxht.Cox(A, y, 1e-3), Sparse(1, 1), jaxht.HTP())
    assert result.succeeded and result.x[1] > 1


def test_derivatives_of_minimisers():
    """By A, l2 and the offset: forward, and reverse."""
    f, _ = problem()
    support = Support(np.isin(np.arange(D), [0, 3, 5]), k_max=3)

    def minimum(A, l2, offset):
        g = dataclasses.replace(f, A=A, l2=l2, offset=offset).prepare()
        return refit(g, support, jnp.zeros(D)).x

    point = (f.A, f.l2, f.offset)
    rng = np.random.default_rng(8)
    along = jax.tree.map(lambda leaf: rng.normal(size=np.shape(leaf)), point)
    check_slopes(minimum, point, along, rtol=1e-5, atol=1e-7)


def test_lanes_of_times():
    """Times and events traced: as one by one, with a lane of NaN beside."""
    rng = np.random.default_rng(9)
    A = rng.normal(size=(40, 6))
    times, events = (
        rng.exponential(np.exp(-A[:, 2]), (4, 40)),
        (rng.random((4, 40)) < 0.8).astype(float),
    )
    times[3, 5] = np.nan

    def run(time, event):
        return jaxht.solve(
            jaxht.Cox(A, jnp.stack([time, event], axis=1), 0.01), Sparse(2, 2), jaxht.HTP()
        )

    lanes = quick(jax.vmap(run))(times, events)
    assert lanes.status[3] == Status.INVALID_DATA
    for i in range(3):
        alone = run(times[i], events[i])
        np.testing.assert_allclose(lanes.x[i], alone.x, atol=1e-10)


def test_validation_on_held_out_samples():
    rng = np.random.default_rng(10)
    A = rng.normal(size=(150, 8))
    y = np.stack([rng.exponential(np.exp(-2 * A[:, 1] + 2 * A[:, 6])), np.ones(150)], axis=1)

    def split(held):
        return tuple(jaxht.Cox(A, y, weights=w) for w in (1.0 - held, 1.0 * held))

    masks = jaxht.folds(jax.random.key(0), 150, 3)
    choice = jaxht.cross_validate(split, masks, Sparse(1), jaxht.OMP(), ks=[1, 2, 3])
    x = np.asarray(choice.results.x[0, 1])
    held = np.asarray(masks[0])
    expected = (
        partial_likelihood(A[held] @ x, y[held, 0], y[held, 1], np.ones(held.sum())) / held.sum()
    )
    np.testing.assert_allclose(choice.losses[0, 1], expected, rtol=1e-10)
    assert choice.k in (2, 3)


Y = np.stack([np.arange(4.0), np.ones(4)], axis=1)
make = functools.partial(jaxht.Cox, np.ones((4, 2)))


@pytest.mark.parametrize(
    ("f", "solver", "message"),
    [
        (make(Y), jaxht.SGHT(batch_size=2), "sum over samples, which the loss of Cox couples"),
        (make(Y), jaxht.SGHT(0.1, batch_size=2), "sum over samples, which the loss of Cox couples"),
        (make(Y), jaxht.HTSAGA(0.1), "sum over samples, which the loss of Cox couples"),
        (make(Y), jaxht.HSGHT(0.1), "sum over samples, which the loss of Cox couples"),
        (make(Y, 1.0), jaxht.DIHT(), "to have a dual; got Cox"),
        (make(Y[:, 0]), jaxht.HTP(), r"y must have shape \(n, 2\), jnp.stack.*\(4,\)"),
        (make(2 * Y), jaxht.HTP(), r"y\[:, 1\] must hold 1 for events and 0 .* got \[2"),
        (make(Y, ties="exact"), jaxht.HTP(), r"ties must be one of .*; got 'exact'"),
        (
            make(Y, strata=np.arange(3)),
            jaxht.HTP(),
            r"strata must have shape \(4,\), .* got \(3,\)",
        ),
        (make(Y, strata=np.ones(4)), jaxht.HTP(), "strata must be integers; got dtype float64"),
        (make(Y, strata=np.arange(4) - 1), jaxht.HTP(), "strata must lie from 0 to .* got -1 to 2"),
        (make(Y, strata=[0, 0, 1, 1]), jaxht.HTP(), "strata must be an array .* got list"),
        (make(np.where(Y == 2, np.nan, Y)), jaxht.HTP(), r"y\[:, 0\] must hold times; got NaN"),
    ],
)
def test_what_cannot_be(f, solver, message):
    with pytest.raises(ValueError, match=message):
        jaxht.solve(f, Sparse(1), solver, key=jax.random.key(0))


def test_no_certificate():
    with pytest.raises(ValueError, match="got Cox"):
        jaxht.certify(make(Y, 1.0), Sparse(1), np.zeros(2))
    with pytest.raises(ValueError, match="got Cox"):
        jaxht.branch_and_bound(make(Y, 1.0), Sparse(1))


def test_negative_times_are_refused():
    sklearn = pytest.importorskip("jaxht.sklearn")
    X = np.random.default_rng(0).standard_normal((6, 2))
    y = np.array([(True, 1.0)] * 5 + [(True, -0.5)], [("event", bool), ("time", float)])
    with pytest.raises(ValueError, match=r"times of at least 0; got -0\.5"):
        sklearn.L0CoxRegressor(k=1).fit(X, y)
    with pytest.raises(ValueError, match=r"times of at least 0; got -0\.5"):
        jaxht.Cox(X, np.array([[t, e] for e, t in y])).prepare()


@pytest.mark.parametrize("weighted", [False, True])
def test_predictions_after_perfectly_ordered_times(weighted):
    """The likelihood has no maximum: this is told, and predictions are those of the coefficients."""
    sklearn = pytest.importorskip("jaxht.sklearn")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    time = np.exp(-X[:, 0])
    y = np.array(
        list(zip(np.ones(60, bool), time, strict=True)), [("event", bool), ("time", float)]
    )
    weights = np.where(np.arange(60) % 7 == 0, 0.0, 1.0) if weighted else None
    with pytest.warns(Warning, match="NO_MINIMISER"):
        model = sklearn.L0CoxRegressor(k=2).fit(X, y, sample_weight=weights)
    with np.errstate(all="raise", under="ignore"):
        survival = model.predict_survival_function(X)
    assert np.all((survival >= 0) & (survival <= 1)) and not np.any(np.isnan(survival))
    assert np.all(np.diff(survival, axis=1) <= 1e-12)
    # Right after its own time a sample has a probability between those of the others.
    order = np.argsort(time)
    before = model.predict_survival_function(X[order], times=[time.min() / 2])
    np.testing.assert_allclose(before, 1)
    hazards = model.predict_cumulative_hazard_function(X)
    assert not np.any(np.isnan(hazards)) and np.all(hazards >= 0)


@pytest.mark.parametrize("first", [2**24, 1_700_000_000])
def test_times_that_float32_does_not_tell_apart_are_no_ties(first):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(6, 2))
    times, events = rng.permutation(6), np.array([1, 1, 0, 1, 1, 1])

    def value(times):
        f = jaxht.Cox(A, np.stack([times, events], axis=1)).prepare()
        x = jnp.ones(2)
        return f.value(x, f.predict(x))

    np.testing.assert_allclose(value(first + times), value(times), rtol=1e-6)
    np.testing.assert_allclose(value(np.uint32(first) + times.astype(np.uint32)), value(times))


def test_efrons_ties_within_strata_in_a_jit():
    """Of an objective that the program refers to."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(20, 4))
    y = np.stack([rng.integers(1, 6, 20), rng.integers(0, 2, 20)], axis=1)
    f = jaxht.Cox(A, y, 0.1, ties="efron", strata=rng.integers(0, 3, 20))

    def value(x):
        return f.value(x, f.predict(x))

    x = jnp.ones(4)
    np.testing.assert_allclose(jax.jit(value)(x), value(x), rtol=1e-6)
