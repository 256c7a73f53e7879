"""EM-BG-AMP against loops in double precision, and what it recovers that l1 minimisation does
not."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import LeastSquares, Sparse
from jaxht.baselines import AMP, EMBGAMP, l1_transition
from tests.reference import plausible
from tests.util import quick

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D, STEPS = 30, 60, 8


def problem(is_complex):
    """Columns that are not of norm 1, nonzeros of a mean that is not 0, and noise."""
    rng = np.random.default_rng(1)

    def draw(*shape):
        v = rng.normal(size=shape)
        return (v + 1j * rng.normal(size=shape)) / math.sqrt(2) if is_complex else v

    A = 3 * draw(N, D)
    x = np.where(rng.random(D) < 0.15, 1 + draw(D), 0)
    return A, A @ x + 0.1 * draw(N)


def density(v, variance, is_complex):
    """Of a normal variable of mean 0."""
    if is_complex:
        return math.exp(-(abs(v) ** 2) / variance) / (math.pi * variance)
    return math.exp(-(v**2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)


def embgamp(A, y):
    """Yields x, lambda, theta, phi, psi."""
    is_complex = np.iscomplexobj(A)
    energy = sum(abs(a) ** 2 for a in A.ravel())
    power = sum(abs(v) ** 2 for v in y)
    share = l1_transition(N / D, is_complex=is_complex).rho * N / D
    psi = power / (N * 101)
    phi, theta = (power - N * psi) / (energy * share), 0.0
    x, s, tau_x = np.zeros(D, A.dtype), np.zeros(N, A.dtype), share * phi
    while True:
        yield x, share, theta, phi, psi
        tau_p = energy / N * tau_x
        p = A @ x - tau_p * s
        z = p + tau_p / (tau_p + psi) * (y - p)  # the mean of A x, whose variance is tau_z
        tau_z = tau_p * psi / (tau_p + psi)
        s = (z - p) / tau_p
        tau_r = D / energy / ((1 - tau_z / tau_p) / tau_p)
        r = x + tau_r * A.conj().T @ s
        pi, gamma, nu = np.zeros(D), np.zeros(D, A.dtype), 1 / (1 / phi + 1 / tau_r)
        for j in range(D):
            off = (1 - share) * density(r[j], tau_r, is_complex)
            on = share * density(r[j] - theta, tau_r + phi, is_complex)
            pi[j] = on / (on + off)
            gamma[j] = nu * (theta / phi + r[j] / tau_r)
        x = pi * gamma
        second = pi * (abs(gamma) ** 2 + nu)  # moments
        tau_x = np.mean(second - abs(x) ** 2)
        share = np.mean(pi)
        theta = np.sum(pi * gamma) / np.sum(pi)
        phi = np.sum(pi * (abs(gamma - theta) ** 2 + nu)) / np.sum(pi)
        psi = np.mean(abs(y - z) ** 2) + tau_z


def record(carry):
    prior, unit = carry.state.prior, carry.state.unit
    of_x = unit / carry.state.unit_of_A
    mean, variance, noise = of_x * prior.mean, of_x**2 * prior.variance, unit**2 * prior.noise
    return carry.iterate.x, prior.share, mean, variance, noise


@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
def test_steps_are_those_of_the_paper(is_complex):
    A, y = problem(is_complex)
    single = np.complex64 if is_complex else np.float32
    f = LeastSquares(A.astype(single), y.astype(single))
    _, found = jaxht.trace(f, Sparse(D), EMBGAMP(), num_steps=STEPS, record=record)
    expected = [state for state, _ in zip(embgamp(A, y), range(STEPS + 1), strict=False)]
    for values, name in zip(zip(*expected, strict=True), range(5), strict=True):
        np.testing.assert_allclose(found[name], np.array(values), rtol=2e-3, atol=2e-4)


def test_it_recovers_beyond_the_transition_of_l1():
    """At delta = 0.5 l1 minimisation recovers up to rho = 0.386."""
    n, d, k, trials = 500, 1000, 225, 12
    assert l1_transition(n / d).rho < k / n - 0.05
    stop = jaxht.Stop(max_steps=200, rtol=1e-5)

    @quick
    @jax.vmap
    def run(key):
        first, second = jax.random.split(key)
        A = jaxht.ensembles.gaussian(first, n, d)
        x = jaxht.ensembles.gaussian_signal(second, d, k)

        def error(solver):
            found = jaxht.solve(LeastSquares(A, A @ x), Sparse(d), solver, stop=stop)
            return jnp.linalg.norm(found.x - x) / jnp.linalg.norm(x), found.status

        return error(EMBGAMP()), error(AMP())

    (errors, statuses), (others, _) = run(jax.random.split(jax.random.key(0), trials))
    assert plausible(int(np.sum(errors < 1e-3)), trials, 0.95)
    assert np.all(others > 0.05)
    assert plausible(int(np.sum(statuses < jaxht.Status.MAX_STEPS)), trials, 0.95)


def test_the_prior_and_the_noise_are_learned(dtype):
    n, d, sigma = 300, 500, 0.05
    rng = np.random.default_rng(0)
    A = rng.normal(size=(n, d))
    active = rng.random(d) < 0.1
    x = np.where(active, 2 + 0.5 * rng.normal(size=d), 0)
    y = A @ x + sigma * math.sqrt(n) * rng.normal(size=n)
    f = LeastSquares(A.astype(dtype), y.astype(dtype))
    _, (xs, *prior) = jaxht.trace(f, Sparse(d), EMBGAMP(), num_steps=40, record=record)
    share, mean, variance, noise = (float(v[-1]) for v in prior)
    assert abs(share - active.mean()) < 0.01
    assert abs(mean - x[active].mean()) < 0.1 and abs(math.sqrt(variance) - 0.5) < 0.15
    assert abs(math.sqrt(noise / n) / sigma - 1) < 0.3
    # As accurate as least squares on the true support.
    known = np.linalg.lstsq(A[:, active], y, rcond=None)[0]
    oracle = np.linalg.norm(known - x[active])
    assert np.linalg.norm(xs[-1] - x) < 1.5 * oracle


def test_it_ends_where_rounding_is_left(dtype):
    rng = np.random.default_rng(2)
    A, x = rng.normal(size=(100, 200)), np.zeros(200)
    x[:20] = rng.normal(size=20)
    f = LeastSquares(A.astype(dtype), (A @ x).astype(dtype))
    found = jaxht.solve(f, Sparse(200), EMBGAMP())
    assert found.reason in ("FINISHED", "CONVERGED") and found.num_steps < 300
    np.testing.assert_allclose(found.x, x, atol=50 * np.finfo(dtype).eps)


@pytest.mark.parametrize("of_columns", [1.0, 1e-6, 1e16])
def test_solutions_have_the_units_of_the_data(of_columns):
    rng = np.random.default_rng(2)
    A, x = rng.normal(size=(60, 120)), np.zeros(120)
    x[:8] = rng.normal(size=8)
    scales = np.float32([1, 1e-6, 1e-12, 1e-25 * max(of_columns, 1), 1e12])
    solve = jax.jit(jax.vmap(lambda A, y: jaxht.solve(LeastSquares(A, y), Sparse(120), EMBGAMP())))
    columns = np.stack([of_columns * A] * len(scales)).astype(np.float32)
    found = solve(columns, (scales[:, None] * (A @ x)).astype(np.float32))
    assert np.all(found.status < jaxht.Status.MAX_STEPS)
    ratios = of_columns * np.asarray(found.x) / scales[:, None]
    np.testing.assert_allclose(ratios, np.stack([x] * len(scales)), atol=1e-5)


def test_zeros_and_what_is_refused():
    A, y = (v.astype(np.float32) for v in problem(False))
    found = jaxht.solve(LeastSquares(A, 0 * y), Sparse(D), EMBGAMP())
    assert found.succeeded and not np.any(found.x)
    with pytest.raises(ValueError, match="weights and l2 must be left out of the objective for"):
        jaxht.solve(LeastSquares(A, y, 0.1), Sparse(D), EMBGAMP())
    with pytest.raises(ValueError, match=r"constraint must be Sparse\(60\) for EMBGAMP"):
        jaxht.solve(LeastSquares(A, y), Sparse(3), EMBGAMP())
