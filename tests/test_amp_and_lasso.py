"""The baselines: FISTA against scikit-learn, its gap, AMP against its state evolution."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from sklearn.linear_model import Lasso, LogisticRegression

import jaxht
from benchmarks import message_passing
from experiments.common.l1 import L1
from jaxht import LeastSquares, Sparse
from jaxht.baselines import (
    AMP,
    FISTA,
    BasisPursuit,
    TunedIHT,
    debias,
    l1_transition,
    predict_amp,
)
from jaxht.baselines.state_evolution import _complex_risk, _risk_at_zero
from tests.util import precision

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D = 30, 60
RNG = np.random.default_rng(0)
A = (RNG.normal(size=(N, D)) / np.sqrt(N)).astype(np.float32)
SIGNAL = np.zeros(D, np.float32)
SIGNAL[:4] = [3, -2, 2, 1]
Y = (A @ SIGNAL + 0.05 * RNG.normal(size=N)).astype(np.float32)


def test_the_lasso_is_that_of_scikit_learn():
    lasso = Lasso(alpha=0.01, fit_intercept=False, tol=1e-8, max_iter=100_000)
    lasso.fit(A.astype(float), Y.astype(float))
    stop = jaxht.Stop(gap_rtol=1e-4)
    result = jaxht.solve(LeastSquares(A, Y), Sparse(D), FISTA(0.01), stop=stop)
    assert result.reason == "GAP_CLOSED"
    np.testing.assert_allclose(result.x, lasso.coef_, atol=5e-3)
    x = lasso.coef_
    minimum = np.sum((A @ x - Y) ** 2) / (2 * N) + 0.01 * np.sum(abs(x))
    assert result.value - result.gap <= minimum <= result.value + 1e-6


LABELS = np.where(Y > 0, 1, -1).astype(np.float32)
WEIGHTS = np.linspace(0.5, 2, N)
OFFSET = np.linspace(-0.3, 0.3, N)
PENALISED = {
    "squares": LeastSquares(A, Y, 0.02, mean=False, weights=WEIGHTS),
    "squares, offset": LeastSquares(A, Y, mean=False, offset=OFFSET),
    "logistic": jaxht.Logistic(A, LABELS, 0.02, mean=False, weights=WEIGHTS),
    "logistic, offset": jaxht.Logistic(A, LABELS, 0.0, 2.0, mean=False, offset=OFFSET),
    "Huber": jaxht.Huber(A, Y, 0.0, 0.5, mean=False),
    "squared hinge": jaxht.SquaredHinge(A, LABELS, 0.1, mean=False),
    "smoothed hinge": jaxht.SmoothedHinge(A, LABELS, 0.1, mean=False),
}


@pytest.mark.parametrize("name", PENALISED)
def test_the_gap_is_never_below_the_distance_to_the_minimum(name):
    f = PENALISED[name]

    def record(carry):
        return carry.iterate.value, carry.info.gap

    result, (values, gaps) = jaxht.trace(f, Sparse(D), FISTA(0.1), num_steps=300, record=record)
    minimum = float(values.min())
    assert np.all(np.asarray(values - gaps) <= minimum)
    assert gaps[-1] < 1e-3 * minimum < gaps[0]
    # The optimality conditions of the penalised objective.
    g = np.asarray(f.gradient(result.x, A @ result.x))
    on = np.asarray(result.x) != 0
    assert 0 < np.count_nonzero(on) < D
    np.testing.assert_allclose(g[on], -0.1 * np.sign(result.x[on]), atol=1e-3)
    assert np.all(abs(g) <= 0.1 + 1e-3)


def test_the_penalised_logistic_regression_is_that_of_scikit_learn():
    l1 = 0.02
    model = LogisticRegression(
        C=1 / (N * l1), fit_intercept=False, solver="liblinear", tol=1e-8, **L1
    )
    x = model.fit(A.astype(float), LABELS).coef_[0]
    stop = jaxht.Stop(gap_rtol=1e-4)
    result = jaxht.solve(jaxht.Logistic(A, LABELS), Sparse(D), FISTA(l1), stop=stop)
    assert result.reason == "GAP_CLOSED"
    np.testing.assert_allclose(result.x, x, atol=0.01 * abs(x).max())
    minimum = np.mean(np.logaddexp(0, -LABELS * (A @ x))) + l1 * np.sum(abs(x))
    assert result.value - result.gap <= minimum <= result.value + 1e-6


def test_the_lasso_has_the_derivatives_of_its_optimality_conditions():
    """On the support, where no sign changes: ``B'(B x - y) / n + l2 x + l1 sign = 0``."""
    l1, l2 = 0.02, 0.01

    def solution(l1, l2, y):
        f = LeastSquares(A.astype(float), y, l2)
        return jaxht.solve(f, Sparse(D), FISTA(l1), stop=jaxht.Stop(gap_rtol=1e-12))

    with precision("float64"):
        y = jnp.asarray(Y, float)
        x = np.asarray(solution(l1, l2, y).x)
        support = x != 0
        B = A[:, support].astype(float)
        inverse = np.linalg.inv(B.T @ B / N + l2 * np.eye(B.shape[1]))
        expected = (-inverse @ np.sign(x[support]), -inverse @ x[support], inverse @ B.T / N)
        reverse = jax.jacrev(lambda *at: solution(*at).x, (0, 1, 2))(l1, l2, y)
        forward = jax.jacfwd(lambda *at: solution(*at).x, (0, 1, 2))(l1, l2, y)
        value = jax.grad(lambda *at: solution(*at).value, (0, 1))(l1, l2, y)
    assert 2 < np.sum(support) < D
    for derivatives in jax.tree.map(np.asarray, (reverse, forward)):
        for derivative, on_support in zip(derivatives, expected, strict=True):
            assert np.all(derivative[~support] == 0)
            np.testing.assert_allclose(derivative[support], on_support, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(value, [np.sum(abs(x)), np.sum(x**2) / 2], rtol=1e-6)


@pytest.mark.parametrize("name", ["logistic", "Huber", "smoothed hinge"])
def test_other_losses_have_the_derivative_of_differences(name):
    f = dataclasses.replace(PENALISED[name], A=A.astype(float))

    def entries(l1):
        return jaxht.solve(f, Sparse(D), FISTA(l1), stop=jaxht.Stop(gap_rtol=1e-12)).x

    with precision("float64"):
        derivative = np.asarray(jax.jacfwd(entries)(0.1))
        difference = (entries(0.1 + 1e-5) - entries(0.1 - 1e-5)) / 2e-5
    assert np.sum(derivative != 0) > 2
    np.testing.assert_allclose(derivative, difference, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("solver", "at"),
    [
        (AMP, 1.5),
        (BasisPursuit, 0.3),
        (TunedIHT, 0.05),
        (lambda relaxation: TunedIHT(relaxation=relaxation), 0.65),
    ],
)
def test_what_minimises_no_function_has_no_derivative(solver, at):
    """Neither by the data nor by the solver's numbers, also of an exact fit."""

    def solution(number, y):
        found = jaxht.solve(LeastSquares(A, y), Sparse(D), solver(number))
        return found.x[0], found.value

    exact = A @ SIGNAL
    for of in (jax.jacrev, jax.jacfwd):
        for derivative in jax.tree.leaves(of(solution, (0, 1))(at, exact)):
            assert np.all(np.isnan(derivative))
    constant = jax.grad(lambda c: c + jax.lax.stop_gradient(solution(at, exact)[1]))(1.0)
    assert constant == 1


def test_complex_derivatives_are_refused():
    def value(l1):
        return jaxht.solve(LeastSquares(A + 0j, Y), Sparse(D), FISTA(l1)).value

    with pytest.raises(ValueError, match="complex"):
        jax.grad(value)(0.1)


def test_a_large_penalty_gives_0():
    f = LeastSquares(A, Y)
    largest = float(jnp.max(jnp.abs(f.gradient(jnp.zeros(D), jnp.zeros(N)))))
    result = jaxht.solve(f, Sparse(D), FISTA(1.001 * largest))
    assert not np.any(result.x)


@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
def test_the_refit_is_the_least_squares_fit(is_complex):
    rng = np.random.default_rng(1)
    designs, targets = rng.normal(size=(3, N, D)), rng.normal(size=(3, N))
    if is_complex:
        designs = designs + 1j * rng.normal(size=(3, N, D))
    dtype = np.complex64 if is_complex else np.float32

    @jax.jit
    @partial(jax.vmap, in_axes=(0, 0, None))
    def solve(A, y, k):
        f = LeastSquares(A, y, mean=False)
        x = jaxht.solve(f, Sparse(D), FISTA(5.0), stop=jaxht.Stop(max_steps=300)).x
        return x, debias(f, x, k, k_max=20).x, debias(f, x).x

    designs, targets = designs.astype(dtype), targets.astype(dtype)
    for k in (5, 40):  # of the second there are at most k_max
        for A, y, x, some, whole in zip(designs, targets, *solve(designs, targets, k), strict=True):
            order = np.argsort(-abs(x))
            nonzeros = np.count_nonzero(x)
            assert 5 < nonzeros < N
            for found, size in ((some, min(k, 20, nonzeros)), (whole, nonzeros)):
                kept = np.sort(order[:size])
                expected = np.zeros(D, dtype)
                expected[kept] = np.linalg.lstsq(A[:, kept], y, rcond=None)[0]
                np.testing.assert_allclose(found, expected, atol=2e-4)


def test_the_refit_of_a_logistic_regression_is_the_best_fit_on_its_support():
    f = jaxht.Logistic(A, LABELS, 0.01)
    x = jaxht.solve(f, Sparse(D), FISTA(0.02)).x
    found = debias(f, x)
    on = np.flatnonzero(x)
    model = LogisticRegression(C=1 / (N * 0.01), fit_intercept=False, tol=1e-10, max_iter=10_000)
    expected = model.fit(A[:, on].astype(float), LABELS).coef_[0]
    np.testing.assert_allclose(np.asarray(found.x)[on], expected, atol=1e-3)
    assert np.count_nonzero(found.x) == len(on) > 3
    assert f.value(found.x, found.pred) < f.value(x, f.predict(x))


def test_the_refit_of_basis_pursuit_is_the_signal():
    f = LeastSquares(A, A @ SIGNAL)
    x = jaxht.solve(f, Sparse(D), BasisPursuit(), stop=jaxht.Stop(max_steps=100)).x
    found = debias(f, x, 4)
    assert np.count_nonzero(x) > 4 and bool(found.converged)
    np.testing.assert_allclose(found.x, SIGNAL, atol=1e-5)
    np.testing.assert_allclose(found.pred, A @ SIGNAL, atol=1e-4)
    # With as many columns as rows everything fits, and with none nothing is left.
    assert float(f.value(f.start(), debias(f, x).pred)) < 1e-9
    assert not np.any(debias(f, x, 0).x)


# Donoho, Maleki & Montanari 2009.
RHO = {0.1: 0.189, 0.2: 0.243, 0.3: 0.291, 0.5: 0.386, 0.7: 0.499, 0.9: 0.678}


def test_transitions_are_those_of_the_paper():
    rho = l1_transition(list(RHO)).rho
    np.testing.assert_allclose(rho, list(RHO.values()), atol=6e-4)
    assert np.all(l1_transition(list(RHO), is_complex=True).rho > rho)
    assert l1_transition(1).rho == pytest.approx(1, abs=1e-3)  # all are recovered


@pytest.mark.parametrize("delta", [1e-4, 1e-12, 1e-30])
def test_transitions_of_few_measurements(delta):
    """By another search for the maximum of Donoho & Tanner's form of the curve."""

    def negative_rho(z):
        g = (1 + z**2) * scipy.stats.norm.cdf(-z) - z * scipy.stats.norm.pdf(z)
        return -(1 - 2 / delta * g) / (1 + z**2 - 2 * g)

    found = scipy.optimize.minimize_scalar(negative_rho, bounds=(1, 12), options={"xatol": 1e-9})
    point = l1_transition(delta)
    np.testing.assert_allclose(point.rho, -found.fun, rtol=1e-6)
    np.testing.assert_allclose(point.tau, found.x, rtol=1e-3)


@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize(("delta", "rho"), message_passing.CASES)
def test_message_passing_has_the_predicted_error(delta, rho, is_complex):
    case = 512, delta, rho, is_complex
    errors = np.asarray(message_passing.measure(jax.random.key(0), *case), float)
    predicted = message_passing.predict(*case)
    # The prediction is that of the limit: 2 % are for a finite d.
    off = abs(np.mean(errors, axis=0) - predicted)
    assert np.all(off <= message_passing.half_width(errors) + 0.02 * predicted)
    # The interval is no wider than it must be for this to say something.
    assert np.all(message_passing.half_width(errors) <= 0.11 * predicted)


def undamped(A, x, tau, num_steps):
    """The largest error of AMP as it is printed, by NumPy."""
    n, d = A.shape
    y = A @ x
    estimate, z = np.zeros(d), y
    for _ in range(num_steps):
        v = estimate + A.T @ z
        threshold = tau * np.sqrt(z @ z / n)
        estimate = np.sign(v) * np.maximum(abs(v) - threshold, 0)
        z = y - A @ estimate + np.count_nonzero(estimate) / n * z
    return abs(estimate - x).max()


def largest_errors(designs, signals, num_steps):
    """The largest error of AMP on each of several problems without noise."""
    stop = jaxht.Stop(max_steps=num_steps)

    def error(A, x):
        f = LeastSquares(A, A @ x, mean=False)
        found = jaxht.solve(f, Sparse(len(x)), AMP(), stop=stop)
        return jnp.max(jnp.abs(found.x - x))

    return jax.vmap(error)(designs, signals)


def test_where_steps_are_unstable_they_are_damped():
    """K / n is far below the limit of .678, but d is small, and b / n near 1."""
    n, d, K = 270, 300, 60
    designs, signals, failed = [], [], []
    tau = l1_transition(n / d).tau
    rng = np.random.default_rng(0)
    for _ in range(16):
        A = rng.normal(size=(n, d)) / np.sqrt(n)
        x = np.zeros(d)
        x[:K] = rng.choice([-1, 1], K)
        designs.append(A)
        signals.append(x)
        failed.append(undamped(A, x, tau, 300) > 1e-3)
    assert 1 <= np.sum(failed) <= 8
    errors = largest_errors(np.float32(designs), np.float32(signals), 400)
    assert np.all(errors < 1e-3)


def test_where_the_residual_only_rises_and_falls_steps_are_not_damped():
    """Orthogonal rows: as many signals are recovered as without any damping, which is most."""
    n, d, K = 205, 256, 92
    tau = l1_transition(n / d).tau
    keys = jax.random.split(jax.random.key(7), (16, 2))
    designs = jax.vmap(lambda key: jaxht.ensembles.partial_dct(key, n, d))(keys[:, 0])
    signals = jax.vmap(lambda key: jaxht.ensembles.sign_signal(key, d, K))(keys[:, 1])
    plain = [
        undamped(np.float64(A), np.float64(x), tau, 700) < 1e-3
        for A, x in zip(designs, signals, strict=True)
    ]
    recovered = np.sum(largest_errors(designs, signals, 700) < 1e-3)
    assert 14 <= np.sum(plain) <= recovered + 1


def test_the_risk_of_complex_numbers_is_that_of_samples():
    """One step from errors 1, of a signal without zeros: delta = rho = 1."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2, 10**6)) / np.sqrt(2)
    for amplitude, tau, noise in ((0.3, 1.0, 0.5), (2.0, 1.4, 0.5), (30.0, 0.5, 1.0)):
        sigma = np.sqrt(noise**2 + amplitude**2)
        v = amplitude + sigma * (z[0] + 1j * z[1])
        shrunk = v * np.maximum(0, 1 - tau * sigma / abs(v))
        options = dict(tau=tau, amplitude=amplitude, noise=noise, is_complex=True)
        _, error = predict_amp(1.0, 1.0, 1, **options)
        np.testing.assert_allclose(error, np.mean(abs(shrunk - amplitude) ** 2), rtol=1e-2)
    # The limit of nonzeros far above the noise, on both sides of where it is used.
    risks = [_complex_risk(mu, 1.2) for mu in (1e4, 9e5, 2e6)]
    np.testing.assert_allclose(risks, 1 + 1.2**2, rtol=1e-3)
    np.testing.assert_allclose(_complex_risk(0.0, 1.2), _risk_at_zero(1.2, True), rtol=1e-10)


def test_complex_numbers():
    rows = np.sort(RNG.choice(128, 64, replace=False))
    F = jaxht.operators.partial_dft(128, rows)
    signal = np.zeros(128, np.complex64)
    signal[RNG.choice(128, 8, replace=False)] = np.exp(2j * np.pi * RNG.uniform(size=8))
    f = LeastSquares(F, F.matvec(signal), mean=False)
    found = jaxht.solve(f, Sparse(128), AMP())
    np.testing.assert_allclose(found.x, signal, atol=1e-3)
    found = jaxht.solve(f, Sparse(128), FISTA(0.01))
    np.testing.assert_allclose(found.x, signal, atol=0.05)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: jaxht.solve(LeastSquares(A, Y), Sparse(3), AMP()),
            r"constraint must be Sparse\(60\)",
        ),
        (lambda: jaxht.solve(LeastSquares(A, Y, 0.1), Sparse(D), AMP()), "weights and l2 must be"),
        (
            lambda: jaxht.solve(jaxht.Poisson(A, abs(Y)), Sparse(D), FISTA(0.1)),
            "a linear model of one output whose loss has a bounded curvature for FISTA",
        ),
        (
            lambda: jaxht.solve(jaxht.MultiResponse(A, np.stack([Y, Y], 1)), Sparse(D), FISTA(0.1)),
            "objective must be a linear model of one output for FISTA; got MultiResponse",
        ),
        (lambda: jaxht.solve(jaxht.Huber(A, Y), Sparse(3), FISTA(0.1)), r"must be Sparse\(60\)"),
        (lambda: jaxht.solve(LeastSquares(A, Y), Sparse(D), FISTA(-0.1)), "FISTA.l1 must be at"),
        (lambda: l1_transition(0), "delta must be positive"),
        (lambda: debias(LeastSquares(A, Y), SIGNAL, D + 1), "k must lie between 0 and d = 60"),
        (
            lambda: debias(jaxht.MultiResponse(A, np.stack([Y, Y], 1)), SIGNAL, 3),
            "objective must be a linear model of one output for debias; got MultiResponse",
        ),
        (
            lambda: jax.jit(debias)(LeastSquares(A, Y), SIGNAL, 3),
            "k_max must be given for debias where k is traced",
        ),
    ],
)
def test_errors_name_what_is_needed(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("k", [2, np.int64(2), jnp.array(2)])
def test_a_k_that_leaves_x_not_free_is_refused(k):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(20, 30)).astype(np.float32)
    f = jaxht.LeastSquares(A, A[:, 0])
    with pytest.raises(ValueError, match=r"constraint must be Sparse\(30\) for AMP"):
        jaxht.solve(f, jaxht.Sparse(k, k_max=30), jaxht.baselines.AMP())


def test_the_error_of_many_steps_without_noise_is_0():
    """Where nonzeros have 1e150 standard deviations."""
    assert jaxht.baselines.predict_amp(0.5, 0.05, 1000)[-1] == 0


def test_a_gap_does_not_close_where_values_underflow():
    f = LeastSquares(A, Y * np.float32(1e-18), mean=False)
    result = jaxht.solve(f, Sparse(D), FISTA(1e-21), stop=jaxht.Stop(gap_rtol=1e-3, max_steps=200))
    assert result.reason == "MAX_STEPS" and result.gap >= np.finfo(np.float32).tiny
    nothing = jaxht.solve(
        LeastSquares(A, 0 * Y, mean=False), Sparse(D), FISTA(1e-21), stop=jaxht.Stop(gap_rtol=1e-3)
    )
    assert nothing.reason in ("GAP_CLOSED", "CONVERGED") and nothing.gap == 0


@pytest.mark.parametrize("unit", [2.0**-60, 2.0**60])
def test_steps_of_message_passing_have_the_units_of_the_target(unit):
    plain = jaxht.solve(
        LeastSquares(A, A @ SIGNAL), Sparse(D), AMP(), stop=jaxht.Stop(max_steps=20)
    )
    scaled = jaxht.solve(
        LeastSquares(A, np.float32(unit) * (A @ SIGNAL)),
        Sparse(D),
        AMP(),
        stop=jaxht.Stop(max_steps=20),
    )
    np.testing.assert_allclose(scaled.x / unit, plain.x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mu", [1e3, 1e5, 9.9e5])
def test_the_risk_of_large_complex_signals(mu):
    """Against two terms of its series about the limit, ``1 + tau^2``."""
    tau = 1.5
    assert _complex_risk(mu, tau) == pytest.approx(1 + tau**2 - tau / mu, abs=2 / mu**2 + 1e-8)
