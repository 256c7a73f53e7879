"""Greedy solvers against brute force, scikit-learn and constructions of their paper; paths in k."""

import functools
import itertools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from scipy import special
from scipy.optimize import nnls
from sklearn.linear_model import orthogonal_mp

import jaxht
from jaxht import (
    ARHT,
    IHT,
    OLS,
    OMP,
    OMPR,
    ExhaustiveLocalSearch,
    FoBa,
    LeastSquares,
    Sparse,
    Status,
)
from jaxht.extend import pytree
from jaxht.subproblems import refit, subproblem
from tests import reference
from tests.util import host, quick, solve, x64

pytestmark = pytest.mark.usefixtures("all_quickly")


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


# ---- against brute force -------------------------------------------------------------------------

n, d, k = 25, 11, 3
GREEDY = [OMP(), OMPR(), ExhaustiveLocalSearch(), FoBa(), ARHT(num_cores=5)]
NAMES = ["OMP", "OMPR", "ELS", "FoBa", "ARHT"]
# How many of 100 random problems each solves at least.
LEAST = {"linear": (75, 85, 90, 85, 90), "logistic": (75, 80, 90, 75, 85)}


@functools.cache
def small_problems(model, number):
    """Gaussian designs, planted signals, noise 0.5 or labels, and the optimal values by trying each
    support."""
    rng = np.random.default_rng(0)
    A, noise = rng.normal(size=(number, n, d)), 0.5 * rng.normal(size=(number, n))
    x = rng.normal(size=(number, d)) * (np.argsort(rng.random((number, d))) < k)
    u = np.einsum("tnd,td->tn", A, x) + noise
    supports = np.array(list(itertools.combinations(range(d), k)))
    if model == "linear":
        return A, u, np.min(np.stack([least_squares(A[:, :, F], u) for F in supports]), axis=0)
    y = np.where(rng.random((number, n)) < 1 / (1 + np.exp(-2 * u)), 1.0, -1.0)
    return A, y, np.min(np.stack([ridged_logistic(A[:, :, F], y) for F in supports]), axis=0)


def least_squares(B, y):
    w = np.linalg.solve(np.swapaxes(B, 1, 2) @ B, np.einsum("tnk,tn->tk", B, y)[..., None])
    return np.sum(((B @ w)[..., 0] - y) ** 2, axis=1) / 2


def ridged_logistic(B, y, l2=0.05):
    """By Newton's method, for all problems at once."""
    w = np.zeros((len(y), B.shape[2]))
    for _ in range(12):
        p = 1 / (1 + np.exp(y * np.einsum("tnk,tk->tn", B, w)))
        slope = -np.einsum("tnk,tn->tk", B, y * p) / n + l2 * w
        curvature = np.einsum("tnk,tn,tnl->tkl", B, p * (1 - p), B) / n + l2 * np.eye(B.shape[2])
        w -= np.linalg.solve(curvature, slope[..., None])[..., 0]
    margins = y * np.einsum("tnk,tk->tn", B, w)
    return np.mean(np.log1p(np.exp(-margins)), axis=1) + l2 / 2 * np.sum(w**2, axis=1)


def objective(model, A, y):
    return LeastSquares(A, y, mean=False) if model == "linear" else jaxht.Logistic(A, y, 0.05)


@pytest.mark.parametrize("model", ["linear", "logistic"])
@pytest.mark.parametrize("solver", GREEDY, ids=NAMES)
def test_no_greedy_solver_beats_brute_force_and_most_reach_it(solver, model):
    number = 100 if model == "linear" else 50
    A, y, optimum = small_problems(model, number)

    @quick
    @jax.vmap
    def run(A, y, key):
        return jaxht.solve(objective(model, A, y), Sparse(k), solver, key=key)

    result = host(run(A, y, jax.random.split(jax.random.key(1), number)))
    assert np.all(np.count_nonzero(result.x, axis=1) <= k)
    assert np.all(result.value >= optimum * (1 - 1e-9))
    assert result.succeeded.all()
    hits = np.mean(result.value <= optimum * (1 + 1e-7))
    assert (
        100 * hits
        >= LEAST[model][NAMES.index(type(solver).__name__.replace("ExhaustiveLocalSearch", "ELS"))]
    )


# ---- OMP -----------------------------------------------------------------------------------------


def test_omp_has_the_supports_of_scikit_learn():
    rng, number = np.random.default_rng(0), 200
    A = rng.normal(size=(number, 30, 50)) * np.exp(rng.normal(size=(number, 1, 50)))
    y = rng.normal(size=(number, 30))

    @quick
    def run(A, y):
        shared = jax.vmap(
            lambda y: jaxht.solve(LeastSquares(A[0], y, mean=False), Sparse(10), OMP()).x
        )(y)
        return jax.vmap(
            lambda A, y: jaxht.solve(LeastSquares(A, y, mean=False), Sparse(10), OMP()).x
        )(A, y), shared

    own, shared = host(run(A, y))
    for i in range(number):
        np.testing.assert_array_equal(
            own[i] != 0, orthogonal_mp(A[i], y[i], n_nonzero_coefs=10) != 0
        )
        np.testing.assert_array_equal(
            shared[i] != 0, orthogonal_mp(A[0], y[i], n_nonzero_coefs=10) != 0
        )


@pytest.mark.parametrize("stored", ["dense", "sparse"])
def test_the_growing_factorisation_is_that_of_a_minimiser(stored):
    """Of near-dependent columns, in float32: the error of x is that of a backward stable method."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(40, 12)).astype(np.float32)
    A[:, 6:] = A[:, :6] + 1e-3 * A[:, 6:]
    y = (A @ rng.normal(size=12) + 0.1 * rng.normal(size=40)).astype(np.float32)
    l2 = np.float32(1e-4)
    design = A if stored == "dense" else jaxht.design(scipy.sparse.csr_array(A))
    for weights in (np.ones(40, np.float32), rng.random(40).astype(np.float32)):
        result = solve(
            LeastSquares(design, y, l2, mean=True, weights=weights), Sparse(12, 12), OMP()
        )
        root = np.sqrt(weights / weights.sum())
        rows = np.vstack(
            [root[:, None] * A.astype(np.float64), np.sqrt(np.float64(l2)) * np.eye(12)]
        )
        x = np.linalg.lstsq(rows, np.append(root * y, np.zeros(12)), rcond=None)[0]
        condition = np.linalg.cond(rows)
        assert condition > 100
        error = np.linalg.norm(result.x - x) / np.linalg.norm(x)
        assert error < 10 * condition * np.finfo(np.float32).eps
        assert result.status == Status.FINISHED


@pytest.mark.parametrize(
    "solver", [OMP(), FoBa(), ExhaustiveLocalSearch()], ids=["OMP", "FoBa", "ELS"]
)
def test_every_design_and_a_matrix_of_entries_give_the_same(solver):
    """A function of products, a function by itself, and two responses as one problem of twice the
    size."""
    rng = np.random.default_rng(0)
    A, Y = rng.normal(size=(20, 8)), rng.normal(size=(20, 2))
    times = lambda x, A: A @ x  # noqa: E731
    constraint = Sparse(3, 3)
    one = solve(LeastSquares(A, Y[:, 0], 0.1, mean=False), constraint, solver)
    assert np.count_nonzero(one.x) == 3
    operator = LeastSquares(jaxht.LinearOperator(times, A.shape, (A,)), Y[:, 0], 0.1, mean=False)
    function = jaxht.Custom(squares, A, Y[:, 0], like=np.zeros(8))
    # The scores of FoBa know no norms of columns there.
    others = {"OMP": [operator, function], "ExhaustiveLocalSearch": [operator], "FoBa": []}
    for other in others[type(solver).__name__]:
        np.testing.assert_allclose(solve(other, constraint, solver).x, one.x, atol=1e-6)
    two = solve(jaxht.MultiResponse(A, Y), constraint, solver)
    flat = solve(LeastSquares(np.kron(A, np.eye(2)), Y.ravel(), mean=False), constraint, solver)
    np.testing.assert_allclose(two.x.ravel(), flat.x, atol=1e-8)


def squares(x, A, y):
    return jnp.sum((A @ x - y) ** 2) / 2 + 0.05 * jnp.sum(x**2)


def test_omp_ends_where_no_column_lowers_the_loss():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(10, 6))
    A = np.hstack([A, A, np.zeros((10, 2))])
    result, of_zero = (
        solve(LeastSquares(A, y, mean=False), Sparse(9, 9), OMP())
        for y in (rng.normal(size=10), np.zeros(10))
    )
    assert result.status == Status.NO_PROGRESS
    assert np.count_nonzero(result.x) == 6
    assert of_zero.num_steps == 1


def test_omp_of_groups_is_the_loop():
    rng = np.random.default_rng(0)
    A, y, groups = rng.normal(size=(30, 12)), rng.normal(size=30), np.arange(12) % 4
    f, chosen, x = reference.LeastSquares(A, y, mean=False), [], np.zeros(12)
    for _ in range(3):
        gradient = f.gradient(x)
        norms = [0 if g in chosen else np.linalg.norm(gradient[groups == g]) for g in range(4)]
        chosen.append(int(np.argmax(norms)))
        x = f.minimise(np.flatnonzero(np.isin(groups, chosen)))
    result = solve(
        LeastSquares(A, y, mean=False),
        jaxht.Groups(3, groups, k_max=3, num_groups=4, size_max=9),
        OMP(),
    )
    np.testing.assert_allclose(result.x, x, atol=1e-10)


# ---- starts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", GREEDY, ids=NAMES)
def test_a_start_is_a_support_and_what_is_kept_stays(solver):
    """A mask, the result of another run, and an intercept that is not worth its place."""
    rng = np.random.default_rng(3)
    A = np.hstack([np.ones((60, 1)), rng.normal(size=(60, 14))])
    f = LeastSquares(A, A[:, 1:5] @ [3.0, -2, 1, 0.5] + 0.3 * rng.normal(size=60), mean=False)
    keep, key = np.arange(15) == 0, jax.random.key(0)
    mask = np.isin(np.arange(15), [0, 7, 8, 9])
    run = quick(lambda x0: jaxht.solve(f, Sparse(4, keep=keep), solver, x0=x0, key=key))
    result = run(mask.astype(float))
    worst = reference.LeastSquares(A, f.y, mean=False).minimise(np.flatnonzero(mask))
    assert result.value <= f.value(worst, f.predict(worst)) * (1 + 1e-12)
    assert result.x[0] != 0 and np.count_nonzero(result.x) <= 4
    again = run(result if isinstance(solver, OMP) else result.x)
    assert again.value <= result.value * (1 + 1e-12)


def test_within_bounds_the_gain_of_a_candidate_is_its_refit():
    """No formula holds there: nonnegative least squares by exhaustive local search, against all
    supports."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(20, 30, 8))
    y = np.einsum("tnd,d->tn", A, [-3.0, 2, 0, 1.5, -2, 0, 1, 0]) + rng.normal(size=(20, 30))

    @quick
    @jax.vmap
    def run(A, y):
        return jaxht.solve(
            LeastSquares(A, y, mean=False), Sparse(2, nonnegative=True), ExhaustiveLocalSearch()
        )

    result = host(run(A, y))
    assert np.all(result.x >= 0)
    supports = list(itertools.combinations(range(8), 2))
    best = [min(nnls(A[t][:, F], y[t])[1] for F in supports) ** 2 / 2 for t in range(20)]
    assert np.all(result.value >= np.array(best) * (1 - 1e-9))
    assert np.mean(result.value <= np.array(best) * (1 + 1e-7)) >= 0.9


# ---- local search --------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_the_gains_of_all_candidates_are_those_of_refits(l2, weighted):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(30, 12))
    A[:, 9] = A[:, 2]  # of which the support has one
    weights = rng.random(30) if weighted else None
    f = LeastSquares(A, rng.normal(size=30), l2, mean=True, weights=weights)
    constraint = Sparse(4, k_max=6).prepare((12,))  # with padding
    inside = np.isin(np.arange(12), [0, 2, 5, 7])

    @quick
    def both():
        minimum = refit(f, constraint.support(jnp.asarray(inside)), jnp.zeros(12))

        def value(i):
            more = refit(
                f, constraint.support(jnp.asarray(inside) | (jnp.arange(12) == i)), minimum.x
            )
            return f.value(more.x, more.pred)

        refits = f.value(minimum.x, minimum.pred) - jax.lax.map(value, jnp.arange(12))
        return refits, subproblem(f, constraint).forward_scores(jnp.asarray(inside), jnp.zeros(12))

    refits, gains = both()
    np.testing.assert_allclose(gains[~inside], refits[~inside], atol=1e-10)
    assert l2 or gains[9] == 0


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted ridge"])
def test_selections_of_ols_do_not_depend_on_the_scale_of_columns(weighted):
    rng, number, d = np.random.default_rng(0), 50, 40
    A = rng.normal(size=(number, 30, d)) + rng.normal(size=(number, 30, 1))
    y, scale = rng.normal(size=(number, 30)), np.exp(2 * rng.normal(size=(number, d)))
    weights = rng.random((number, 30)) if weighted else np.ones((number, 30))

    @quick
    @jax.vmap
    def run(A, y, scale, weights):
        def select(A, l2, solver):
            return jaxht.solve(
                LeastSquares(A, y, l2, mean=True, weights=weights), Sparse(8), solver
            ).support.mask

        l2 = 0.1 * weighted
        return [
            (select(A, l2, solver), select(A * scale, l2 * scale**2, solver))
            for solver in (OLS(), OMP())
        ]

    (plain, scaled), (omp, omp_scaled) = run(A, y, scale, weights)
    np.testing.assert_array_equal(plain, scaled)
    assert np.any(omp != omp_scaled)


def test_ols_of_dependent_columns_and_of_a_kept_intercept():
    rng = np.random.default_rng(0)
    A = np.repeat(rng.normal(size=(20, 4)), 3, axis=1)
    A[:, 1::3] *= 7  # still dependent
    result = solve(LeastSquares(A, rng.normal(size=20), mean=False), Sparse(8, 8), OLS())
    assert (
        result.status == Status.NO_PROGRESS and np.unique(np.flatnonzero(result.x) // 3).size == 4
    )
    A, y = np.column_stack([rng.normal(size=(30, 9)), np.ones(30)]), rng.normal(size=30) + 5
    result = solve(LeastSquares(A, y, mean=False), Sparse(3, 3, keep=np.arange(10) == 9), OLS())
    centred = solve(
        LeastSquares(A[:, :9] - A[:, :9].mean(0), y - y.mean(), mean=False), Sparse(2, 2), OLS()
    )
    np.testing.assert_allclose(result.x[:9], centred.x, atol=1e-10)


def test_foba_takes_back_what_has_become_dispensable():
    """A column near the sum of two enters first, and leaves when both are there."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(100, 4))
    A[:, 3] = A[:, 0] + A[:, 1] + 0.5 * rng.normal(size=100)
    y = A[:, 0] + A[:, 1] + 0.05 * rng.normal(size=100)
    path = quick(
        lambda: jaxht.path(LeastSquares(A, y, mean=False), Sparse(1), OMP(), ks=[1, 2, 3])
    )()
    assert [np.flatnonzero(x).tolist() for x in path.x] == [[3], [0, 3], [0, 1, 3]]
    result = solve(LeastSquares(A, y, mean=False), Sparse(3, 3), FoBa(threshold=0.1))
    assert np.flatnonzero(result.x).tolist() == [0, 1] and result.status == Status.NO_PROGRESS
    assert result.value < path.value[2] + 0.1


# ---- constructions of Axiotis & Sviridenko 2020 --------------------------------------------------


def lemma_5_2(kappa, s, delta=1e-3):
    """Lemma 5.2: f, the optimum, its value, and the start."""
    sizes = [s, s * kappa, s * kappa**2]
    a = np.repeat([1, np.sqrt(kappa), 1], sizes)
    b = np.repeat(
        [kappa * np.sqrt(1 - 4 * delta), np.sqrt(kappa) * np.sqrt(1 - 2 * delta), 1], sizes
    )
    x0 = np.arange(sum(sizes)) >= sum(sizes) - s * kappa**2 // 2
    return LeastSquares(np.diag(a), b, mean=False), s * kappa**2 * (1 - delta), x0


def test_replacement_is_stuck_where_adaptive_regularisation_is_not():
    f, optimum, x0 = lemma_5_2(8, 2)
    stuck = quick(lambda: jaxht.solve(f, Sparse(64), OMPR(), x0=x0))()
    assert stuck.status == Status.NO_PROGRESS and stuck.num_steps == 3
    np.testing.assert_allclose(stuck.value, 156.124, rtol=1e-12)
    # The first guess is half way between the bound and the start, so this bound makes it f(x*).
    start = 2 * 64 * (5 / 4 - 3e-3)
    solver = ARHT(num_cores=1, rho=8.0, lower=2 * optimum - start)
    _, values = quick(
        lambda: jaxht.trace(f, Sparse(64), solver, num_steps=10, x0=x0, key=jax.random.key(0))
    )()
    np.testing.assert_allclose(values[1], stuck.value, rtol=1e-12)
    assert np.all(np.diff(values) < 0) and values[-2] > optimum
    np.testing.assert_allclose(values[-1], 124.696, rtol=1e-12)


@pytest.mark.parametrize("lower", [0.0, -1100.0])
def test_adaptive_regularisation_goes_below_a_bound_that_is_none(lower):
    """f less 1000 is below the default of 0, as negative log-likelihoods may be; a bound may be
    negative."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 30)) @ (np.eye(30) + 1 / 3)
    y = A @ np.where(np.arange(30) < 6, rng.standard_normal(30), 0) + 0.3 * rng.standard_normal(40)
    below = jaxht.Custom(
        lambda x, data: jnp.sum((data[0] @ x - data[1]) ** 2) / 2 - 1000, (A, y), like=30
    )
    greedy = quick(lambda: jaxht.solve(LeastSquares(A, y, mean=False), Sparse(6), OMP()))()
    result = quick(
        lambda: jaxht.solve(below, Sparse(6), ARHT(lower=lower), key=jax.random.key(0))
    )()
    assert result.status == Status.FINISHED and result.num_steps > 10
    assert result.value + 1000 < greedy.value - 0.01


@pytest.mark.parametrize(
    "solver", [ARHT(num_cores=5), ExhaustiveLocalSearch()], ids=["ARHT", "ELS"]
)
def test_refits_are_side_by_side_or_in_turn(solver):
    """As those of short and of long columns are, alone and under vmap: the mean over copies of the
    samples is that over the samples."""
    rng = np.random.default_rng(3)
    A, keys = rng.standard_normal((40, 12)), jax.random.split(jax.random.key(1), 3)
    y = np.sign(A[:, :4].sum(axis=1) + rng.logistic(size=40))

    def runs(copies):
        f = jaxht.Logistic(np.tile(A, (copies, 1)), np.tile(y, copies), 1e-2)

        def run(f, key):
            stop = jaxht.Stop(max_steps=8)
            result = jaxht.solve(f, Sparse(4, k_max=4), solver, key=key, stop=stop)
            return result.x, result.value, result.num_steps, result.counts.full_gradients

        single = quick(run)
        lanes = quick(jax.vmap(run, in_axes=(None, 0)))
        return [*(single(f, key) for key in keys), lanes(f, keys)]

    side_by_side, in_turn = runs(copies=1), runs(copies=410)
    for one, other in zip(side_by_side, in_turn, strict=True):
        jax.tree.map(
            functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12), one, other
        )


def test_from_zero_nobody_enters_the_support_of_section_5_1():
    N = 16
    t = 1 / (2 * N)
    A = np.zeros((N + 1, N + 2))
    A[:N, :N] = np.eye(N)
    A[:N, N:], A[N, N:] = t, np.sqrt(1 - t**2 * N) * np.array([1, -1])
    f = LeastSquares(A, np.append(np.ones(N), 0), mean=False)
    np.testing.assert_allclose(A @ np.append(np.zeros(N), [N, N]), f.y, atol=1e-12)
    for solver in (OMP(), OMPR(), ExhaustiveLocalSearch(), IHT()):
        run = quick(lambda k, solver=solver: jaxht.solve(f, Sparse(k, k_max=N), solver))
        fewer, enough = run(N // 2), run(N)
        assert not np.any(fewer.x[N:]) and fewer.value > 1
        assert not np.any(enough.x[N:]) and enough.value < 1e-12


def test_the_theory_of_arht_has_its_numbers():
    solver = ARHT.theory(k=10, d=100, rtol=1e-2)
    assert solver.num_cores == int(np.ceil(5 * np.log(600 * np.log(300))))
    assert solver.core_steps == int(np.ceil(20 * np.log(300))) and solver.progress == 1


# ---- paths ---------------------------------------------------------------------------------------

KS = [0, 2, 3, 7]


def path_problem():
    rng = np.random.default_rng(0)
    return LeastSquares(rng.normal(size=(30, 12)), rng.normal(size=30), 0.1, mean=False)


@pytest.mark.parametrize(
    ("solver", "last_steps"), [(OMP(), 0), (OLS(), 0), (FoBa(), 1)], ids=["OMP", "OLS", "FoBa"]
)
def test_a_nested_path_is_one_run(solver, last_steps):
    """FoBa takes a step at each sparsity that finds nothing to remove; a run for the largest takes
    only the last."""
    f = path_problem()
    run = quick(
        lambda target: jaxht.path(f, Sparse(1), solver, ks=KS, stop=jaxht.Stop(target_value=target))
    )
    path = run(-1.0)
    assert path.support.indices.shape == (4, 7)
    for i, size in enumerate(KS):
        alone = solve(f, Sparse(size, k_max=7), solver)
        np.testing.assert_allclose(path.x[i], alone.x, atol=1e-12)
        np.testing.assert_allclose(path.value[i], alone.value)
        assert (path.status[i], path.num_steps[i]) == (
            alone.status,
            alone.num_steps + last_steps * max(0, i - 1),
        )
    assert path.counts.full_gradients[-1] == path.num_steps[-1] >= 7
    limited = run(path.value[1] * (1 + 1e-9))
    np.testing.assert_array_equal(limited.status[1:], Status.TARGET_REACHED)
    np.testing.assert_array_equal(limited.x[2:], limited.x[1:2].repeat(2, 0))


@pytest.mark.parametrize("solver", [OMP(), OLS(), FoBa()], ids=["OMP", "OLS", "FoBa"])
def test_a_nested_path_goes_on_where_a_refit_has_no_minimiser(solver):
    """Rare columns whose samples have one label: f decreases without end along each."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 8))
    y = np.where(rng.random(200) < special.expit(A[:, 3] - A[:, 5]), 1.0, -1.0)
    positive = np.flatnonzero(y > 0)
    for j, samples in enumerate(np.split(positive[:60], 3)):
        A[:, j] = 5.0 * np.isin(np.arange(200), samples)
    f = jaxht.Logistic(A, y)
    path = quick(lambda f: jaxht.path(f, Sparse(1), solver, ks=KS))(f)
    assert Status.NO_MINIMISER in path.status[:-1]
    assert np.all(np.diff(path.value) < 0)
    for i, size in enumerate(KS):
        alone = solve(f, Sparse(size, k_max=7), solver)
        np.testing.assert_array_equal(path.support.mask[i], alone.support.mask)
        np.testing.assert_allclose(path.value[i], alone.value, rtol=1e-6)
        assert path.status[i] == alone.status


def test_the_path_of_others_is_a_chain_of_warm_starts():
    f, x = path_problem(), np.zeros(12)
    path = quick(lambda f: jaxht.path(f, Sparse(1), OMPR(), ks=KS))(f)
    for i, size in enumerate(KS):
        alone = solve(f, Sparse(size, k_max=7), OMPR(), x0=x)
        x = alone.x
        np.testing.assert_allclose(path.x[i], x, atol=1e-10)
        assert path.num_steps[i] == alone.num_steps
    assert np.all(np.diff(path.value) < 0)


def test_paths_of_traced_sparsities_and_other_constraints():
    f, groups = path_problem(), np.arange(12) % 6
    run = quick(jax.vmap(lambda ks: jaxht.path(f, Sparse(1, k_max=8), OMP(), ks=ks).value))
    values = run(jnp.array([[1, 2, 3], [2, 5, 8]]))
    np.testing.assert_allclose(values[0, 1], values[1, 0])
    by_group = quick(lambda: jaxht.path(f, jaxht.Groups(1, groups), OMP(), ks=[1, 3]))()
    assert [np.count_nonzero(x) for x in by_group.x] == [2, 6]


def correlated_problems(number):
    rng = np.random.default_rng(0)
    C = np.linalg.cholesky(0.9 ** np.abs(np.subtract.outer(range(30), range(30))))
    A = rng.normal(size=(number, 50, 30)) @ C.T
    x = rng.normal(size=(number, 30)) * (rng.random((number, 30)) < 0.3)
    return A, np.einsum("tnd,td->tn", A, x) + rng.normal(size=(number, 50))


def test_a_path_both_ways_takes_back_what_has_become_dispensable():
    """As `FoBa` does: the column near the sum of two is left out once both are there."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(100, 4))
    A[:, 3] = A[:, 0] + A[:, 1] + 0.5 * rng.normal(size=100)
    y = A[:, 0] + A[:, 1] + 0.05 * rng.normal(size=100)
    f, ks = LeastSquares(A, y, mean=False), [1, 2, 3, 4]
    one_way, both = (
        jaxht.path(f, Sparse(1), OMP(), ks=ks, both_ways=both) for both in (False, True)
    )
    assert [np.flatnonzero(x).tolist() for x in one_way.x][1:3] == [[0, 3], [0, 1, 3]]
    best = [jaxht.exhaustive_search(f, Sparse(k)).value for k in ks]
    np.testing.assert_allclose(both.value, best, rtol=1e-10)
    assert both.value[1] < 0.02 * one_way.value[1] and both.support.indices.shape == (4, 4)


@pytest.mark.parametrize(
    "solver",
    [jaxht.HTP(), jaxht.SubspacePursuit(), OLS()],
    ids=lambda solver: type(solver).__name__,
)
def test_no_neighbour_improves_a_path_both_ways(solver):
    (A, y), ks = correlated_problems(8), np.array([2, 3, 4, 6, 7])

    @quick
    @jax.vmap
    def run(A, y):
        f = LeastSquares(A, y, mean=False)

        def end(k, x):
            return jaxht.solve(f, Sparse(k, k_max=7), solver, x0=x).value

        one_way, both = (
            jaxht.path(f, Sparse(1), solver, ks=ks, both_ways=both) for both in (False, True)
        )
        up, down = jax.vmap(end)(ks[1:], both.x[:-1]), jax.vmap(end)(ks[:-1], both.x[1:])
        again = jax.vmap(lambda x: f.value(x, f.predict(x)))(both.x)
        return one_way, both, up, down, again

    one_way, both, up, down, again = run(A, y)
    assert np.all(np.diff(both.value) <= 0)
    assert np.all(np.count_nonzero(both.x, axis=-1) <= ks)
    np.testing.assert_allclose(both.value, again, rtol=1e-9)
    assert (
        np.all(both.value <= one_way.value * (1 + 1e-9))
        and np.mean(both.value < 0.99 * one_way.value) > 0.2
    )
    assert np.all(up >= both.value[:, 1:] * (1 - 1e-7)) and np.all(
        down >= both.value[:, :-1] * (1 - 1e-7)
    )


@pytree
class CountingHTP(jaxht.HTP):
    """HTP that notes how often it is traced."""

    begun: ClassVar[list] = []

    def init(self, *args):
        self.begun.append(None)
        return super().init(*args)


def test_a_path_both_ways_is_one_program():
    """However many sparsities there are, which may be traced; one alone is a run from x0."""
    (A, y), begun = correlated_problems(1), CountingHTP.begun
    f, counts = LeastSquares(A[0], y[0], mean=False), []
    for ks in ([2, 3], [1, 2, 3, 4, 5, 6, 7, 8]):
        before = len(begun)
        path = jax.jit(
            lambda ks: jaxht.path(f, Sparse(1, k_max=8), CountingHTP(), ks=ks, both_ways=True).value
        )
        assert np.all(np.diff(path(np.array(ks))) <= 0)
        counts.append(len(begun) - before)
    assert counts[0] == counts[1] <= 3
    x0 = np.arange(30.0)
    alone = jaxht.path(f, Sparse(1), jaxht.HTP(), ks=[3], x0=x0, both_ways=True)
    np.testing.assert_allclose(
        alone.x[0], jaxht.solve(f, Sparse(3), jaxht.HTP(), x0=x0).x, atol=1e-12
    )


@pytest.mark.parametrize("solver", [OMP, OLS, jaxht.FoBa, jaxht.LocalSearch, jaxht.HTP])
def test_a_path_of_no_coordinates(solver):
    """k = 0, alone and before others: zero, whose value is that of f."""
    f = path_problem()
    for ks in ([0], [0, 1]):
        path = jaxht.path(f, Sparse(), solver(), ks=ks)
        assert not path.x[0].any() and not path.support.mask[0].any()
        zero = np.zeros(f.shape)
        np.testing.assert_allclose(path.value[0], f.value(zero, f.predict(zero)), rtol=1e-6)


@pytest.mark.parametrize(
    ("ks", "says"),
    [
        ([[1, 2], [3]], "ks must be an array; got lists of different lengths"),
        ([3, 2], "rise strictly"),
        ([2, 2], "rise strictly"),
        ([-1, 2], "got -1"),
        ([1.0], "integers"),
        (3, "shape ()"),
    ],
)
def test_paths_say_what_is_wrong_with_ks(ks, says):
    with pytest.raises(ValueError, match=says.replace("(", r"\(").replace(")", r"\)")):
        jaxht.path(path_problem(), Sparse(1), OMP(), ks=ks)


def test_gradients_of_the_start_are_counted():
    """An exchange begins with orthogonal matching pursuit, and refits on what that selects."""
    rng = np.random.default_rng(0)
    f = jaxht.LeastSquares(rng.normal(size=(12, 6)), rng.normal(size=12))
    none = jaxht.Stop(max_steps=0)
    one = jaxht.Stop(max_steps=1)
    for solver in (jaxht.OMPR(), jaxht.ExhaustiveLocalSearch(), jaxht.ARHT(num_cores=1)):
        options = {"key": jax.random.key(0)} if solver.needs_key else {}
        start = jaxht.solve(f, jaxht.Sparse(3), solver, stop=none, **options)
        assert start.counts.full_gradients == 3
        if not isinstance(solver, jaxht.ARHT):
            first = jaxht.solve(f, jaxht.Sparse(3), solver, stop=one, **options)
            assert first.counts.full_gradients == 3
    start = jaxht.solve(f, jaxht.Sparse(3), jaxht.NIHT(), stop=none)
    assert (start.counts.full_gradients, start.counts.projections) == (1, 1)


@pytest.mark.parametrize("expand", [0, -1, 1.5, True])
def test_expansions_are_checked(expand):
    f = jaxht.LeastSquares(np.eye(4, dtype=np.float32), np.ones(4, np.float32))
    for solver in (jaxht.CoSaMP(expand=expand), jaxht.GraSP(expand=expand)):
        with pytest.raises(ValueError, match="expand must be an int of at least 1"):
            jaxht.solve(f, jaxht.Sparse(2), solver)
