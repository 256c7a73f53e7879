"""The solvers against their references, step by step, and against what their papers promise."""

import functools
import itertools

import jax
import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import minimize

import jaxht
from jaxht import Status
from tests import reference
from tests.util import QUICK, host, quick, solve, x64

pytestmark = pytest.mark.usefixtures("all_quickly")


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


@functools.partial(
    jax.jit, static_argnames=("num_steps", "k_max", "mean", "shared"), compiler_options=QUICK
)
def traced(solver, A, y, k, x0, l2=None, mean=False, *, num_steps, k_max=None, shared=False):
    """Runs on a batch of problems, which may share A: (Result, x of every iterate, value of every
    iterate)."""

    def lane(A, y, x0, l2):
        objective = jaxht.LeastSquares(A, y, l2, mean=mean)
        record = lambda carry: (carry.iterate.x, carry.iterate.value)  # noqa: E731
        return jaxht.trace(
            objective,
            jaxht.Sparse(k, k_max=k_max),
            solver,
            num_steps=num_steps,
            record=record,
            x0=x0,
        )

    return jax.vmap(lane, (None if shared else 0, 0, 0, 0))(
        A, y, x0, np.zeros(len(y)) if l2 is None else l2
    )


# ---- step by step --------------------------------------------------------------------------------

ETA, NU = 0.3, 0.3
STEP_BY_STEP = [
    ("IHT", jaxht.IHT(step_size=ETA), lambda f, x, k: reference.iht(f, x, k, ETA)),
    (
        "heavy-ball",
        jaxht.IHT(step_size=ETA, momentum=NU),
        lambda f, x, k: reference.iht(f, x, k, ETA, NU),
    ),
    (
        "Nesterov",
        jaxht.IHT(step_size=ETA, momentum=NU, nesterov=True),
        lambda f, x, k: reference.iht(f, x, k, ETA, NU, nesterov=True),
    ),
    ("NIHT", jaxht.NIHT(), reference.niht),
    ("NIHT-careful", jaxht.NIHT(c=0.4, q=3.0), functools.partial(reference.niht, c=0.4, q=3.0)),
    ("CGIHT", jaxht.CGIHT(), reference.cgiht),
    ("CGIHT-projected", jaxht.CGIHT(theta=3.0), functools.partial(reference.cgiht, theta=3.0)),
    ("FIHT", jaxht.FIHT(), functools.partial(reference.alps, expand=False)),
    ("1-ALPS(2)", jaxht.ALPS(), reference.alps),
    ("1-ALPS(0)", jaxht.ALPS(debias=False), functools.partial(reference.alps, debias=False)),
    ("0-ALPS(2)", jaxht.ALPS(memory=0), functools.partial(reference.alps, memory=0)),
    ("HTP", jaxht.HTP(step_size=ETA), lambda f, x, k: (x for x, _ in reference.htp(f, x, k, ETA))),
    ("HTP-backtracking", jaxht.HTP(backtrack=True), reference.backtracking_htp),
    ("PHT", jaxht.PHT(step_size=ETA), lambda f, x, k: reference.pht(f, x, k, ETA, 1)),
    ("PHT-2", jaxht.PHT(r=2, step_size=ETA), lambda f, x, k: reference.pht(f, x, k, ETA, 2)),
    ("CoSaMP", jaxht.CoSaMP(), reference.cosamp),
    ("CoSaMP-k", jaxht.CoSaMP(expand=1), functools.partial(reference.cosamp, expand=1)),
    ("GraSP", jaxht.GraSP(), functools.partial(reference.cosamp, debias=True)),
    ("GraSP-pruned", jaxht.GraSP(debias=False), reference.cosamp),
    ("SubspacePursuit", jaxht.SubspacePursuit(), reference.subspace_pursuit),
    ("OMP", jaxht.OMP(), reference.omp),
    ("OLS", jaxht.OLS(), reference.ols),
    ("OMPR", jaxht.OMPR(), reference.ompr),
    ("ELS", jaxht.ExhaustiveLocalSearch(), reference.exhaustive_local_search),
    ("FoBa", jaxht.FoBa(), reference.foba),
    (
        "FoBa-eager",
        jaxht.FoBa(threshold=0.05, ratio=0.9),
        functools.partial(reference.foba, threshold=0.05, ratio=0.9),
    ),
]


def step_by_step_problems(sparse):
    """Six, every other with a start of its own, a third with a ridge: A, y, k, x0, l2. Sparse ones
    share A, without."""
    n, d = 24, 20
    rng = np.random.default_rng(0)
    x0 = rng.normal(size=(6, d)) * (np.arange(6) % 2)[:, None]
    A, y = stacked(
        [draw(0 if sparse else seed, n, d, 4, noise=0.5, correlation=0.5) for seed in range(6)]
    )
    l2 = 0.2 * (np.arange(6) % 3 == 0)
    if sparse:
        A = np.where(rng.random((n, d)) < 0.5, A * np.sqrt(2 * n), 0)
        y = np.einsum(
            "lnd,ld->ln", A, rng.normal(size=(6, d)) * (rng.random((6, d)) < 0.4)
        ) + rng.normal(size=(6, n))
    return A, y, 4, x0, l2


# The sum on dense designs, and some of the rows for the mean on a sparse one that all share.
CASES = [(*row, False) for row in STEP_BY_STEP] + [
    (*row, True) for row in STEP_BY_STEP if row[0] in ("NIHT", "FIHT", "GraSP", "OMP", "OLS", "ELS")
]


@pytest.mark.parametrize(
    ("name", "solver", "steps", "sparse"),
    CASES,
    ids=[f"{row[0]}-{'sparse' if row[3] else 'dense'}" for row in CASES],
)
def test_iterates_are_those_of_the_reference(name, solver, steps, sparse):
    A, y, k, x0, l2 = step_by_step_problems(sparse)
    design = jaxht.design(scipy.sparse.csr_array(A[0])) if sparse else A
    runs = traced(solver, design, y, k, x0, l2, sparse, num_steps=12, k_max=4, shared=sparse)
    result, (x, value) = host(runs)
    for i in range(6):
        f = reference.LeastSquares(A[i], y[i], l2[i], mean=sparse)
        expected = list(
            itertools.islice(
                steps(f, reference.hard_threshold(x0[i], k), k), int(result.num_steps[i]) + 1
            )
        )
        for t, point in enumerate(expected):
            np.testing.assert_allclose(
                x[i, t], point, rtol=0, atol=1e-8, err_msg=f"problem {i}, step {t}"
            )
            np.testing.assert_allclose(value[i, t], f.value(point), rtol=1e-9)
            slope = np.linalg.norm(f.gradient(point)[point != 0])
            if name.startswith("CGIHT") and slope < 1e-10:
                break  # from here its direction is rounding
        else:
            stuck = result.status[i] == Status.NO_PROGRESS  # a step that found nothing better
            assert len(expected) == result.num_steps[i] + (0 if stuck else 1)
    assert np.max(result.num_steps) > 2


def test_partial_hard_thresholding_of_k_is_htp():
    A, y, k, x0, l2 = step_by_step_problems(sparse=False)
    whole, partial, one = (
        host(traced(solver, A, y, k, x0, l2, False, num_steps=12, k_max=4, shared=False))
        for solver in (
            jaxht.HTP(step_size=ETA),
            jaxht.PHT(r=k, step_size=ETA),
            jaxht.PHT(r=1, step_size=ETA),
        )
    )
    for ours, theirs in zip(jax.tree.leaves(partial), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert not np.array_equal(one[0].x, whole[0].x)
    entered = np.count_nonzero((one[1][0][:, 2:] != 0) & (one[1][0][:, 1:-1] == 0), axis=-1)
    assert np.max(entered) == 1


def test_momentum_zero_is_no_momentum():
    A, y, k, x0, l2 = step_by_step_problems(sparse=False)
    plain, *_ = traced(
        jaxht.IHT(step_size=ETA), A, y, k, x0, l2, False, num_steps=12, k_max=4, shared=False
    )
    for nesterov in (False, True):
        solver = jaxht.IHT(step_size=ETA, momentum=0.0, nesterov=nesterov)
        other, *_ = traced(solver, A, y, k, x0, l2, False, num_steps=12, k_max=4, shared=False)
        np.testing.assert_allclose(other.x, plain.x, rtol=0, atol=1e-14)


# ---- how HTP ends --------------------------------------------------------------------------------


def test_htp_finds_every_cycle_and_no_other():
    n, d, k, num_steps = 8, 10, 3, 100
    problems = [draw(seed, n, d, 4) for seed in range(100)]
    A, y = stacked(problems)
    zeros, periods = np.zeros((100, d)), []
    for eta in (0.3, 1.0, 3.0, 10.0):
        result, _ = host(
            traced(jaxht.HTP(step_size=eta), A, y, k, zeros, num_steps=num_steps, k_max=k)
        )
        for i, problem in enumerate(problems):
            f = reference.LeastSquares(*problem, mean=False)
            outcome, period, first = reference.htp_outcome(f, zeros[i], k, eta, num_steps)
            assert (
                result.status[i]
                == {"stable": Status.SUPPORT_STABLE, "cycle": Status.CYCLING}[outcome]
            )
            if outcome == "stable":
                assert result.num_steps[i] == first + 1
                continue
            points = [
                x
                for x, _ in itertools.islice(reference.htp(f, zeros[i], k, eta), first + period + 1)
            ]
            # The best point of the run; a cycle returns to where its supports repeat.
            values = [f.value(x) for x in points]
            np.testing.assert_allclose(result.value[i], min(values), rtol=1e-10)
            np.testing.assert_allclose(f.value(result.x[i]), min(values), rtol=1e-10)
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

    @quick
    @jax.vmap
    def run(A, y, x0, eta):
        constraint, htp = jaxht.Sparse(k, k_max=k), jaxht.HTP(step_size=eta)
        return jaxht.trace(
            jaxht.LeastSquares(A, y, mean=False), constraint, htp, num_steps=40, x0=x0
        )

    result, values = host(run(A, y, x0, 0.99 / M))
    assert np.all(result.status == Status.SUPPORT_STABLE)
    assert np.all(np.diff(values) <= 1e-13 * values[:, :-1])
    assert np.max(result.num_steps) > 2


# ---- against brute force -------------------------------------------------------------------------

# How often each finds the global optimum of `small_problems`, in 2000 other draws.
SMALL = [("IHT", jaxht.IHT(), 0.32), ("NIHT", jaxht.NIHT(), 0.53), ("HTP", jaxht.HTP(), 0.43)]


@functools.cache
def small_problems():
    """Problems with their optimal values."""
    problems = [draw(seed, 16, 10, 3, noise=1.0, correlation=0.3) for seed in range(100)]
    return *stacked(problems), np.array(
        [reference.exhaustive(reference.LeastSquares(*p, mean=False), 10, 3)[0] for p in problems]
    )


@pytest.mark.parametrize(("name", "solver", "rate"), SMALL, ids=[row[0] for row in SMALL])
def test_no_solver_beats_exhaustive_search(name, solver, rate):
    A, y, optimum = small_problems()
    result, (_, value) = host(traced(solver, A, y, 3, np.zeros((100, 10)), num_steps=1000, k_max=3))
    assert np.all(value >= optimum[:, None] * (1 - 1e-12))
    hits = int(np.sum(result.value <= optimum * (1 + 1e-8)))
    assert reference.plausible(hits, 100, rate), f"{hits} of 100 optima"


@pytest.mark.parametrize(
    "solver", [jaxht.IHT(), jaxht.NIHT(), jaxht.NIHT(q=1.012)], ids=["IHT", "NIHT", "NIHT-slow"]
)
def test_with_its_own_step_the_objective_never_rises(solver):
    A, y, _ = small_problems()
    _, (_, value) = host(traced(solver, A, y, 3, np.zeros((100, 10)), num_steps=1000, k_max=3))
    assert np.all(np.diff(value) <= 1e-13 * value[:, :-1])
    assert np.all(value[:, 2] < value[:, 1])


NEVER_RISES = {
    "HTP": jaxht.HTP(backtrack=True),
    "PHT": jaxht.PHT(r=2, backtrack=True),
    "SubspacePursuit": jaxht.SubspacePursuit(),
}


@pytest.mark.parametrize("name", NEVER_RISES)
def test_a_run_from_a_point_ends_at_or_below_it(name):
    """On correlated columns; from solutions, and from points that are not refitted."""
    rng = np.random.default_rng(0)
    columns = np.arange(40)
    mix = np.linalg.cholesky(0.7 ** np.abs(columns[:, None] - columns)).T
    A = rng.normal(size=(40, 30, 40)) @ mix
    y = rng.normal(size=(40, 30))
    solver = NEVER_RISES[name]
    solve = functools.partial(traced, solver, A, y, 8, num_steps=100, k_max=8)
    first, _ = host(solve(np.zeros((40, 40))))
    rough = np.where(first.x != 0, first.x + 0.1 * rng.normal(size=first.x.shape), 0)
    for start in (first.x, rough):
        value = np.sum((np.einsum("lnd,ld->ln", A, start) - y) ** 2, axis=1) / 2
        again, _ = host(solve(start))
        assert np.all(again.value <= value * (1 + 1e-12))
        assert np.all(again.value <= first.value * (1 + 1e-9))
        assert np.all(again.status < Status.MAX_STEPS)


# ---- designs -------------------------------------------------------------------------------------

EVERY = [
    jaxht.IHT(),
    jaxht.NIHT(),
    jaxht.HTP(),
    jaxht.PHT(),
    jaxht.GraSP(),
    jaxht.SubspacePursuit(),
]


@functools.cache
def easy_logistic():
    """A with zeros, labels, and the best 3-sparse point, by SciPy."""
    rng, truth = np.random.default_rng(0), np.array([0, 2, 0, 0, -1.5, 0, 0, 0, 1, 0, 0, 0])
    A = rng.normal(size=(300, 12)) * (rng.random((300, 12)) < 0.5)
    y = np.where(rng.random(300) < 1 / (1 + np.exp(-2 * A @ truth)), 1.0, -1.0)
    F = np.flatnonzero(truth)

    def f(w):
        m = y * (A[:, F] @ w)
        slope = -A[:, F].T @ (y / (1 + np.exp(m))) / len(y) + 0.01 * w
        return np.mean(np.log1p(np.exp(-m))) + 0.005 * w @ w, slope

    best = np.zeros(12)
    best[F] = minimize(f, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-9}).x
    return A, y, best


# Dense designs are in the table of tests/contract.py.
@pytest.mark.parametrize("solver", EVERY, ids=lambda solver: type(solver).__name__)
def test_every_solver_ends_at_the_best_point_of_an_easy_problem(solver):
    A, y, best = easy_logistic()
    objective = jaxht.Logistic(jaxht.design(scipy.sparse.csr_array(A)), y, 0.01)
    result = solve(objective, jaxht.Sparse(3, 3), solver)
    np.testing.assert_array_equal(result.support.mask, best != 0)
    np.testing.assert_allclose(result.x, best, rtol=0, atol=1e-6)
    assert result.succeeded


# ---- k at its limits -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "solver", "rate"), SMALL, ids=[row[0] for row in SMALL])
def test_k_is_0_or_d(name, solver, rate):
    n, d = 40, 6
    A, y = draw(0, n, d, 4)
    run = jax.vmap(
        lambda k: jaxht.solve(
            jaxht.LeastSquares(A, y, mean=False), jaxht.Sparse(k, k_max=d), solver
        )
    )
    result = host(quick(run)(np.array([0, d])))
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


PURSUITS = [
    jaxht.HTP(),
    jaxht.HTP(backtrack=True),
    jaxht.PHT(),
    jaxht.CoSaMP(),
    jaxht.GraSP(),
    jaxht.SubspacePursuit(),
]


@pytest.mark.parametrize("solver", PURSUITS, ids=str)
def test_an_intercept_whose_best_value_is_zero(solver):
    """The first step, which refits it alone, leaves x where it is; the next ones do not."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(64, 5))
    score = X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=64)
    y = np.where(score > np.median(score), 1.0, -1.0)
    A = np.column_stack([np.ones(64), X])
    f = jaxht.LeastSquares(A, y)
    result = jaxht.solve(f, jaxht.Sparse(3, keep=np.arange(6) == 0), solver)
    assert result.succeeded
    assert np.flatnonzero(result.x).tolist() == [0, 1, 2]
    at_zero = jaxht.solve(f, jaxht.Sparse(1, keep=np.arange(6) == 0), solver)
    assert at_zero.succeeded and at_zero.value < 0.501  # CoSaMP prunes a refit on more


@pytest.mark.parametrize("kept", ["column", "group"])
def test_partial_thresholding_starts_with_the_best_items_beside_those_that_are_kept(kept):
    """After the first refit, on an intercept alone, the support is that of HTP."""
    B = np.random.default_rng(1).normal(size=(30, 12)).astype("float32")
    B[:, 11] = 1
    y = 5 + 3 * B[:, 8] + 2 * B[:, 9] - 1.5 * B[:, 10]
    is_kept = np.arange(12) == 11
    constraint = {
        "column": jaxht.Sparse(4, keep=is_kept),
        "group": jaxht.Groups(4, np.arange(12), keep=is_kept),
    }[kept]

    def supports(solver):
        return jaxht.trace(
            jaxht.LeastSquares(B, y),
            constraint,
            solver,
            num_steps=3,
            record=lambda carry: carry.state.search.support.mask,
        )[1]

    first, second, *_ = np.asarray(supports(jaxht.PHT(r=1)))
    assert np.flatnonzero(first).tolist() == [11]
    np.testing.assert_array_equal(second, supports(jaxht.HTP())[1])


def test_partial_thresholding_fills_a_small_support_with_the_best_items():
    """From x0 of one nonzero the support of four is that of HTP, not the first columns."""
    B = np.random.default_rng(1).normal(size=(30, 12)).astype("float32")
    y = 3 * B[:, 8] + 2 * B[:, 9] - 1.5 * B[:, 10] + B[:, 11]
    x0 = np.where(np.arange(12) == 8, 3.0, 0).astype("float32")
    ends = [
        jaxht.solve(
            jaxht.LeastSquares(B, y), jaxht.Sparse(4), solver, x0=x0, stop=jaxht.Stop(max_steps=1)
        )
        for solver in (jaxht.PHT(r=1), jaxht.HTP())
    ]
    np.testing.assert_array_equal(ends[0].support.mask, ends[1].support.mask)


@pytest.mark.parametrize("constraint", ["Groups", "SparsePerGroup"])
@pytest.mark.parametrize("solver", [jaxht.CoSaMP(), jaxht.ALPS()], ids=["CoSaMP", "ALPS"])
def test_a_traced_k_above_k_max_counts_as_k_max(solver, constraint):
    rng = np.random.default_rng(3)
    A = rng.normal(size=(20, 12)).astype("float32")
    y = A @ rng.normal(size=12).astype("float32")
    labels = np.arange(12) // 2

    @quick
    def solution(k):
        of = {
            "Groups": lambda: jaxht.Groups(k, labels, k_max=2),
            "SparsePerGroup": lambda: jaxht.SparsePerGroup(k, k_max=2, groups=labels, per_group=1),
        }[constraint]()
        return jaxht.solve(jaxht.LeastSquares(A, y), of, solver).x

    np.testing.assert_array_equal(solution(5), solution(2))


def test_the_default_step_of_an_offset_is_short_enough():
    """The curvature of the Poisson loss at x0 may be above what its targets bound."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(50, 6)).astype(np.float32)
    y = rng.poisson(np.exp(A[:, 1])).astype(np.float32)
    f = jaxht.Poisson(A, y, offset=np.full(50, 4, np.float32))
    values = jaxht.trace(f, jaxht.Sparse(2), jaxht.IHT(), num_steps=20)[1]
    assert np.all(np.diff(values) <= 1e-5 * np.abs(values[:-1]))
