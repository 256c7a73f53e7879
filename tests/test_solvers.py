"""The solvers against their references, step by step, and against what their papers promise."""

import functools
import itertools

import jax
import numpy as np
import pytest

import jaxht
from jaxht import Status
from tests import reference
from tests.contract import QUICK
from tests.util import host, x64


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


def draw(seed, n, d, K, noise=0.1, correlation=0.0):
    """A and y of a planted problem; `correlation` is that of neighbouring columns."""
    rng = np.random.default_rng(seed)
    covariance = correlation ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    A = rng.normal(size=(n, d)) @ np.linalg.cholesky(covariance).T / np.sqrt(n)
    x = np.zeros(d)
    x[rng.choice(d, K, replace=False)] = rng.normal(size=K)
    return A, A @ x + noise * rng.normal(size=n) / np.sqrt(n)


def stacked(problems):
    return tuple(np.stack(arrays) for arrays in zip(*problems, strict=True))


@functools.partial(jax.jit, static_argnames=("num_steps", "k_max", "mean"), compiler_options=QUICK)
def traced(solver, A, y, k, x0, l2=0.0, mean=False, *, num_steps, k_max=None):
    """Runs on a batch of problems: (Result, x of every iterate, value of every iterate)."""

    def lane(A, y, x0):
        objective = jaxht.LeastSquares(A, y, l2, mean=mean)
        record = lambda iterate: (iterate.x, iterate.value)  # noqa: E731
        return jaxht.trace(objective, jaxht.Sparse(k, k_max=k_max), solver, num_steps=num_steps, record=record, x0=x0)

    return jax.vmap(lane)(A, y, x0)


# ---- step by step --------------------------------------------------------------------------------------------------

ETA, NU = 0.3, 0.3
STEP_BY_STEP = [
    ("IHT", jaxht.IHT(step_size=ETA), lambda f, x, k: reference.iht(f, x, k, ETA)),
    ("heavy-ball", jaxht.IHT(step_size=ETA, momentum=NU), lambda f, x, k: reference.iht(f, x, k, ETA, NU)),
    (
        "Nesterov",
        jaxht.IHT(step_size=ETA, momentum=NU, nesterov=True),
        lambda f, x, k: reference.iht(f, x, k, ETA, NU, nesterov=True),
    ),
    ("NIHT", jaxht.NIHT(), reference.niht),
    ("NIHT-careful", jaxht.NIHT(c=0.4, q=3.0), functools.partial(reference.niht, c=0.4, q=3.0)),
    ("HTP", jaxht.HTP(step_size=ETA), lambda f, x, k: ((x, F) for x, F in reference.htp(f, x, k, ETA))),
]


def step_by_step_problems(mean):
    """Six, every other with a start of its own: A, y, k, x0."""
    n, d = 24, 20
    A, y = stacked([draw(seed, n, d, 4, noise=0.5, correlation=0.5) for seed in range(6)])
    x0 = np.random.default_rng(0).normal(size=(6, d)) * (np.arange(6) % 2)[:, None]
    return A * np.sqrt(n) if mean else A, y, 4, x0


@pytest.mark.parametrize(("l2", "mean"), [(0.0, False), (0.2, True)], ids=["sum", "mean-ridge"])
@pytest.mark.parametrize(("name", "solver", "steps"), STEP_BY_STEP, ids=[row[0] for row in STEP_BY_STEP])
def test_iterates_are_those_of_the_reference(name, solver, steps, l2, mean):
    A, y, k, x0 = step_by_step_problems(mean)
    result, (x, value) = host(traced(solver, A, y, k, x0, l2, mean, num_steps=12, k_max=4))
    for i in range(6):
        f = reference.LeastSquares(A[i], y[i], l2, mean)
        expected = itertools.islice(steps(f, reference.hard_threshold(x0[i], k), k), int(result.num_steps[i]) + 1)
        for t, point in enumerate(expected):
            point = point[0] if isinstance(point, tuple) else point
            np.testing.assert_allclose(x[i, t], point, rtol=0, atol=1e-10, err_msg=f"problem {i}, step {t}")
            np.testing.assert_allclose(value[i, t], f.value(point), rtol=1e-10)
    assert np.max(result.num_steps) > 2


def test_momentum_zero_is_no_momentum():
    A, y, k, x0 = step_by_step_problems(mean=False)
    plain, *_ = traced(jaxht.IHT(step_size=ETA), A, y, k, x0, num_steps=12, k_max=4)
    for nesterov in (False, True):
        solver = jaxht.IHT(step_size=ETA, momentum=0.0, nesterov=nesterov)
        other, *_ = traced(solver, A, y, k, x0, num_steps=12, k_max=4)
        np.testing.assert_allclose(other.x, plain.x, rtol=0, atol=1e-14)


# ---- how HTP ends --------------------------------------------------------------------------------------------------


def test_htp_finds_every_cycle_and_no_other():
    n, d, k, num_steps = 8, 10, 3, 100
    problems = [draw(seed, n, d, 4) for seed in range(100)]
    A, y = stacked(problems)
    zeros, periods = np.zeros((100, d)), []
    for eta in (0.3, 1.0, 3.0, 10.0):
        result, _ = host(traced(jaxht.HTP(step_size=eta), A, y, k, zeros, num_steps=num_steps, k_max=k))
        for i, problem in enumerate(problems):
            f = reference.LeastSquares(*problem)
            outcome, period, first = reference.htp_outcome(f, zeros[i], k, eta, num_steps)
            assert result.status[i] == {"stable": Status.SUPPORT_STABLE, "cycle": Status.CYCLING}[outcome]
            if outcome == "stable":
                assert result.num_steps[i] == first + 1
                continue
            points = [x for x, _ in itertools.islice(reference.htp(f, zeros[i], k, eta), first + period + 1)]
            assert np.min(np.max(np.abs(points[first + 1 :] - result.x[i]), axis=1)) < 1e-10
            assert result.num_steps[i] <= 3 * max(first, period) + period  # Brent 1980
            periods.append(period)
    assert {2, 3, 4} <= set(periods)


def test_htp_below_the_restricted_smoothness_ends_and_falls():
    """YLZ18 after Algorithm 1: for eta < 1/M_2k the objective falls until the support repeats."""
    n, d, k = 12, 9, 2
    A, y = stacked([draw(seed, n, d, 3, noise=1.0, correlation=0.8) for seed in range(40)])
    supports = [list(F) for F in itertools.combinations(range(d), 2 * k)]
    M = np.array([max(np.linalg.norm(a[:, F], 2) ** 2 for F in supports) for a in A])
    x0 = np.random.default_rng(1).normal(size=(40, d))

    @jax.jit
    @jax.vmap
    def run(A, y, x0, eta):
        constraint, htp = jaxht.Sparse(k, k_max=k), jaxht.HTP(step_size=eta)
        return jaxht.trace(jaxht.LeastSquares(A, y), constraint, htp, num_steps=40, x0=x0)

    result, values = host(run(A, y, x0, 0.99 / M))
    assert np.all(result.status == Status.SUPPORT_STABLE)
    assert np.all(np.diff(values) <= 1e-13 * values[:, :-1])
    assert np.max(result.num_steps) > 2


# ---- against brute force -------------------------------------------------------------------------------------------

# How often each finds the global optimum of `small_problems`, in 2000 other draws.
SMALL = [("IHT", jaxht.IHT(), 0.32), ("NIHT", jaxht.NIHT(), 0.53), ("HTP", jaxht.HTP(), 0.43)]


@functools.cache
def small_problems():
    """Problems with their optimal values."""
    problems = [draw(seed, 16, 10, 3, noise=1.0, correlation=0.3) for seed in range(200)]
    return *stacked(problems), np.array([reference.exhaustive(reference.LeastSquares(*p), 10, 3)[0] for p in problems])


@pytest.mark.parametrize(("name", "solver", "rate"), SMALL, ids=[row[0] for row in SMALL])
def test_no_solver_beats_exhaustive_search(name, solver, rate):
    A, y, optimum = small_problems()
    result, (_, value) = host(traced(solver, A, y, 3, np.zeros((200, 10)), num_steps=1000, k_max=3))
    assert np.all(value >= optimum[:, None] * (1 - 1e-12))
    hits = int(np.sum(result.value <= optimum * (1 + 1e-8)))
    assert reference.plausible(hits, 200, rate), f"{hits} of 200 optima"


@pytest.mark.parametrize("solver", [jaxht.IHT(), jaxht.NIHT()], ids=["IHT", "NIHT"])
def test_with_its_own_step_the_objective_never_rises(solver):
    A, y, _ = small_problems()
    _, (_, value) = host(traced(solver, A, y, 3, np.zeros((200, 10)), num_steps=1000, k_max=3))
    assert np.all(np.diff(value) <= 1e-13 * value[:, :-1])
    assert np.all(value[:, 2] < value[:, 1])


# ---- k at its limits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "solver", "rate"), SMALL, ids=[row[0] for row in SMALL])
def test_k_is_0_or_d(name, solver, rate):
    n, d = 40, 6
    A, y = draw(0, n, d, 4)
    run = jax.jit(jax.vmap(lambda k: jaxht.solve(jaxht.LeastSquares(A, y), jaxht.Sparse(k, k_max=d), solver)))
    result = host(run(np.array([0, d])))
    np.testing.assert_array_equal(result.x[0], 0)
    np.testing.assert_array_equal(result.support.indices, [[d] * d, range(d)])
    np.testing.assert_allclose(result.x[1], np.linalg.lstsq(A, y, rcond=None)[0], rtol=0, atol=1e-7)
    assert np.all(result.status < Status.MAX_STEPS)


@pytest.mark.parametrize(("name", "solver", "rate"), SMALL, ids=[row[0] for row in SMALL])
def test_fewer_rows_than_k(name, solver, rate):
    n, d, k = 4, 12, 8
    A, y = stacked([draw(seed, n, d, 4) for seed in range(20)])
    A[::2, :, 1] = A[::2, :, 0]  # and a duplicated column
    result, _ = host(traced(solver, A, y, k, np.zeros((20, d)), num_steps=3000, k_max=k))
    assert np.all(np.count_nonzero(result.x, axis=1) <= k)
    assert np.all(np.isfinite(result.x))
    assert np.all(np.abs(result.x) < 1e2)
    assert np.all(result.value < 1e-10)
