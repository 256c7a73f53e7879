"""Logistic regression: in float32, far out, in lanes, and as an optax chain step for step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import jaxht
from examples import logistic_regression
from jaxht import HTP, IHT, PHT, Logistic, Sparse, Support, ensembles, metrics, solve
from jaxht.objectives.losses import LogisticLoss
from jaxht.subproblems import refit
from tests.util import precision, quick

pytestmark = pytest.mark.usefixtures("all_quickly")
N, D, K_MAX = 60, 15, 7


def problem(seed=0, n=N, d=D):
    rng = np.random.default_rng(seed)
    A, x = rng.standard_normal((n, d)), np.zeros(d)
    x[:4] = [2, -1.5, 1, -1]
    return A, np.where(rng.random(n) < 1 / (1 + np.exp(-A @ x)), 1.0, -1.0)


def test_loss_far_out_is_finite_and_right():
    loss, u = LogisticLoss(), jnp.array([-200.0, 0.0, 200.0])
    np.testing.assert_allclose(loss.value(u, 1.0), [200, np.log(2), 0], rtol=1e-6)
    np.testing.assert_allclose(loss.derivative(u, 1.0), [-1, -0.5, 0], rtol=1e-6)
    np.testing.assert_allclose(loss.curvature(u, -1.0), [0, 0.25, 0], rtol=1e-6)


@functools.partial(quick, static_argnums=3)
def minimise(f, mask, ridge, k_max, x):
    return refit(f, Support(mask, k_max=k_max), x, ridge)[:2]


def test_minimiser_in_float32_and_where_there_is_none():
    A, y = (np.asarray(z, "float32") for z in problem())
    mask = np.arange(D) < 5
    x, _ = minimise(Logistic(A, y, 0.01), mask, None, K_MAX, np.zeros(D, "float32"))
    with precision("float64"):
        want, _ = minimise(
            Logistic(A.astype(float), y.astype(float), 0.01), mask, None, K_MAX, np.zeros(D)
        )
    np.testing.assert_allclose(x, want, atol=2e-5)
    # Duplicated columns, and labels that one column separates: finite, and as low as one likes.
    A[:, 1] = A[:, 0]
    x, _ = minimise(Logistic(A, y, 0.0), mask, None, K_MAX, np.zeros(D, "float32"))
    assert np.all(np.isfinite(x))
    f = Logistic(A, np.sign(A[:, 0]), 0.0)
    x, pred = minimise(f, mask, None, K_MAX, np.zeros(D, "float32"))
    assert np.all(np.isfinite(x)) and float(f.value(x, pred)) < 1e-3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_minimiser_of_separable_classes_on_many_columns(dtype):
    """A ridge so small that the minimiser is far away, and curvatures fall on the way."""
    n, k = 120, 150
    rng = np.random.default_rng(0)
    A = rng.standard_normal((n, k))
    A[:, 1] = A[:, 0]
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    l2 = 1e-5

    def value_and_gradient(w):
        u = A @ w
        value = np.logaddexp(0, -y * u).mean() + l2 / 2 * w @ w
        return value, A.T @ (-y / (1 + np.exp(y * u))) / n + l2 * w

    options = {"maxiter": 10_000, "maxfun": 10_000, "ftol": 0, "gtol": 1e-13}
    want = optimize.minimize(
        value_and_gradient, np.zeros(k), jac=True, method="L-BFGS-B", options=options
    )
    with precision(dtype):
        f = Logistic(A.astype(dtype), y.astype(dtype), l2)
        found = quick(refit)(f, Support(np.ones(k, bool), k_max=k), np.zeros(k, dtype))
    assert found.converged
    value, gradient = value_and_gradient(np.asarray(found.x, float))
    assert value <= want.fun * (1 + {"float32": 1e-6, "float64": 1e-12}[dtype])
    assert np.abs(gradient).max() < {"float32": 1e-8, "float64": 1e-14}[dtype]


def test_backtracking_recovers_more_supports():
    """Margins are large, so that the curvature is far below its bound: steps of 1/M_1 hardly change
    the support."""

    def run(key):
        of_A, of_x, of_y = jax.random.split(key, 3)
        A = ensembles.gaussian(of_A, n=80, d=60, variance=1.0)
        x = ensembles.significant_signal(of_x, d=60, K=6, mean=5.0)
        f = Logistic(A, ensembles.logistic_labels(of_y, A @ x, factor=2.0), 1e-3, 2.0)
        solvers = HTP(), HTP(backtrack=True), PHT(), PHT(backtrack=True)
        return [metrics.exact_recovery(solve(f, Sparse(6), solver).x, x) for solver in solvers]

    recovered = quick(jax.vmap(run))(jax.random.split(jax.random.key(0), 100))
    htp, htp_backtracking, pht, pht_backtracking = (
        int(found.sum()) for found in recovered
    )  # 16, 67, 16 and 73
    # The standard deviation of a difference is at most 7.1.
    assert htp_backtracking - htp > 21 and pht_backtracking - pht > 21


def test_lanes_of_their_own():
    rng = np.random.default_rng(0)
    As = rng.standard_normal((3, 80, 10)).astype("float32")
    ys = np.sign(As[:, :, 0] - As[:, :, 1] + 0.5 * rng.standard_normal((3, 80))).astype("float32")
    ys[2, 0] = np.nan

    def lane(A, y, l2):
        return jaxht.solve(Logistic(A, y, l2), Sparse(2), HTP())

    batch = quick(jax.vmap(lane))(As, ys, np.array([0.01, 0.1, 0.01], "float32"))
    for i in range(2):
        alone = quick(lane)(As[i], ys[i], np.float32([0.01, 0.1][i]))
        np.testing.assert_allclose(batch.x[i], alone.x, rtol=1e-4, atol=1e-5)
    assert batch.status.tolist()[2] == jaxht.Status.INVALID_DATA


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (lambda A, y: Logistic(A, (y + 1) / 2), r"y must hold labels -1 and \+1; got \[0\. 1\.\]"),
        (lambda A, y: Logistic(A, y[:-1]), r"y must have shape \(60,\)"),
        (lambda A, y: Logistic(A, y, -1.0), "l2 must be at least 0"),
        (lambda A, y: Logistic(A, y, scale=-2.0), "scale must be at least 0"),
    ],
)
def test_what_cannot_be_is_refused(objective, message):
    with pytest.raises(ValueError, match=message):
        jaxht.solve(objective(*problem()), Sparse(2), IHT())


def test_an_optax_chain_is_iht_step_for_step(capsys):
    with precision("float64"):
        assert logistic_regression.main(num_steps=100) < 1e-12
    assert "nonzeros: 20 of 1000" in capsys.readouterr().out
