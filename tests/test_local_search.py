"""LocalSearch against dense algebra, loops over all swaps, and enumeration."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.special

import jaxht
from jaxht import LeastSquares, LocalSearch, Sparse, Status
from jaxht.linalg.full_precision import matmul
from jaxht.solvers.local_search.refitted import walk_by_refits
from jaxht.solvers.local_search.search import RefittedSelection
from jaxht.subproblems.quadratic_model import QuadraticModel
from jaxht.subproblems.swaps import SupportMinimum
from tests.util import host, quick, x64

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D, K_MAX = 30, 9, 4


def as_operator(A):
    return jaxht.LinearOperator(lambda x, A: matmul(A, x), A.shape, (jnp.asarray(A),))


DESIGNS = {"dense": np.asarray, "sparse": scipy.sparse.csr_array, "operator": as_operator}


def make(seed, n=N, d=D, correlation=0.8):
    """A design of correlated columns of different norms, and a response."""
    rng = np.random.default_rng(seed)
    A = np.sqrt(correlation) * rng.normal(size=(n, 1)) + np.sqrt(1 - correlation) * rng.normal(
        size=(n, d)
    )
    return A * rng.uniform(0.1, 10, d), A @ rng.normal(size=d) + rng.normal(size=n)


def minimum(H, b, S):
    """The minimum of 1/2 x'H x - b'x on a support, and where it is."""
    S = list(S)
    w = np.linalg.solve(H[np.ix_(S, S)], b[S])
    return -b[S] @ w / 2, w


def best_swap(H, b, S):
    """The least minimum after a swap, by a loop over all."""
    return min(
        minimum(H, b, [*(set(S) - {i}), j])[0] for i in S for j in set(range(len(b))) - set(S)
    )


@pytest.mark.parametrize("large", [False, True], ids=["gram", "products"])
@pytest.mark.parametrize("design", DESIGNS)
def test_minima_are_those_of_dense_algebra(design, large):
    """After insertions, removals and swaps, with weights and a ridge for each coordinate."""
    (A, y), rng = make(0), np.random.default_rng(1)
    weights, l2 = rng.uniform(0.5, 2, N), rng.uniform(0, 1, D)
    H = A.T @ (weights[:, None] * A) / weights.sum() + np.diag(l2)
    b = A.T @ (weights * y) / weights.sum()

    def run(A):
        f = QuadraticModel.of(
            LeastSquares(A, y, l2, mean=True, weights=weights).prepare(), num_rows=0 if large else D
        )
        state = SupportMinimum.empty(f, K_MAX)
        states = []
        for slot, j in [(0, 3), (2, 7), (1, 0), (2, None), (3, 5), (0, None), (0, 8), (2, 1)]:
            state = (
                state.remove(jnp.array(slot))
                if j is None
                else state.insert(f, jnp.array(slot), jnp.array(j))
            )
            states.append((state, state.insertion_gains(), state.swap_gains(), state.decrease(f)))
        return states

    with x64():
        states = (
            host(quick(run)(DESIGNS[design](A)))
            if design != "sparse"
            else host(run(DESIGNS[design](A)))
        )
    for state, insertion_gains, swap_gains, decrease in states:
        filled = np.flatnonzero(state.indices < D)
        S = state.indices[filled]
        M = np.linalg.inv(H[np.ix_(S, S)])
        np.testing.assert_allclose(state.inverse[np.ix_(filled, filled)], M, rtol=1e-9)
        np.testing.assert_allclose(
            state.images[filled], M @ H[S], atol=1e-9 * np.abs(M @ H[S]).max()
        )
        np.testing.assert_allclose(state.w[filled], M @ b[S], rtol=1e-9)
        outside = np.setdiff1d(np.arange(D), S)
        schur = np.diagonal(H) - np.sum(H[:, S] * (M @ H[S]).T, axis=1)
        np.testing.assert_allclose(state.remaining[outside], schur[outside], rtol=1e-8)
        np.testing.assert_allclose(
            state.descent[outside], (b - H[:, S] @ M @ b[S])[outside], rtol=1e-8
        )
        here = minimum(H, b, S)[0]
        np.testing.assert_allclose(decrease, -here, rtol=1e-9)
        assert np.all(np.delete(state.w, filled) == 0) and np.all(insertion_gains[S] == -np.inf)
        for j in outside:
            np.testing.assert_allclose(
                insertion_gains[j], here - minimum(H, b, [*S, j])[0], rtol=1e-7
            )
            for slot in filled:
                swapped = np.append(np.delete(S, np.flatnonzero(filled == slot)), j)
                np.testing.assert_allclose(
                    swap_gains[slot, j], here - minimum(H, b, swapped)[0], rtol=1e-6, atol=1e-9
                )
        assert np.all(np.delete(swap_gains, filled, axis=0) == -np.inf) and np.all(
            swap_gains[:, S] == -np.inf
        )


def test_the_optimum_is_found_and_no_swap_improves_it():
    """200 problems side by side, of columns correlated by 0.8 and of different scale."""
    problems = [make(seed, n=25, d=11) for seed in range(200)]
    A, y = (np.stack(part) for part in zip(*problems, strict=True))
    with x64():
        solve = quick(
            jax.vmap(
                lambda A, y: jaxht.solve(
                    LeastSquares(A, y, 1e-3, mean=False), Sparse(3, k_max=3), LocalSearch()
                )
            )
        )
        result = host(solve(A, y))
    assert np.all(result.status == Status.NO_PROGRESS)
    optimal = 0
    for (A, y), x, value in zip(problems, result.x, result.value, strict=True):
        H, b, S = A.T @ A + 1e-3 * np.eye(11), A.T @ y, np.flatnonzero(x)
        np.testing.assert_allclose(x[S], minimum(H, b, S)[1], rtol=1e-7)
        reached = value - y @ y / 2
        assert best_swap(H, b, S) >= reached * (1 + 1e-9)
        optimal += reached <= min(
            minimum(H, b, S)[0] for S in itertools.combinations(range(11), 3)
        ) * (1 - 1e-9)
    assert optimal >= 199


def test_it_improves_on_a_local_optimum_and_keeps_what_must_stay():
    A, y = make(3, n=40, d=30)
    keep = np.isin(np.arange(30), [4, 17])
    with x64():
        f = LeastSquares(A, y, 1e-3, mean=False)
        free, kept = (
            jaxht.solve(f, Sparse(6, keep=mask), LocalSearch(num_starts=4, num_moves=30))
            for mask in (None, keep)
        )
        exchanged = jaxht.solve(f, Sparse(6), jaxht.OMPR())
        again = jaxht.solve(f, Sparse(6), LocalSearch(num_starts=4, num_moves=30), x0=exchanged)
        same = jaxht.solve(
            f, Sparse(6), LocalSearch(num_starts=4, num_moves=30), key=jax.random.key(0)
        )
        free, kept, exchanged, again, same = host((free, kept, exchanged, again, same))
    assert np.all(kept.x[keep] != 0) and np.count_nonzero(kept.x) == 6
    assert free.value <= kept.value and again.value < exchanged.value
    np.testing.assert_array_equal(same.x, free.x)
    H, b = A.T @ A + 1e-3 * np.eye(30), A.T @ y
    fixed = {4, 17}
    S = set(kept.support.numpy().tolist())
    least = min(minimum(H, b, [*(S - {i}), j])[0] for i in S - fixed for j in set(range(30)) - S)
    assert least >= (float(kept.value) - y @ y / 2) * (1 + 1e-9)


@pytest.mark.parametrize("k", [0, 1, 5, 8])
def test_dependent_columns_and_extreme_sparsity(k, dtype):
    """Copies, zeros and sums of columns never join what they depend on; k = 0, 1 and d are no
    exceptions."""
    A, y = make(4, n=20, d=5)
    A = np.stack([*A.T[:4], A[:, 0], -2 * A[:, 1], 0 * A[:, 0], A[:, 2] + A[:, 3]], axis=1).astype(
        dtype
    )
    result = jaxht.solve(
        LeastSquares(A, y.astype(dtype), mean=False), Sparse(k), LocalSearch(num_moves=10)
    )
    assert np.all(np.isfinite(result.x)) and np.count_nonzero(result.x) <= min(k, 4)
    best = min(
        np.sum((A[:, S] @ np.linalg.lstsq(A[:, S].astype(float), y)[0] - y) ** 2) / 2
        for S in map(list, itertools.combinations(range(8), min(k, 4)))
    )
    np.testing.assert_allclose(result.value, best, rtol=1e-4)


LOGISTIC_K, LOGISTIC_L2 = 3, 1e-2


def logistic_minima(A, y, supports):
    """The least mean logistic loss with a ridge on the columns of each support, by damped Newton
    steps side by side."""
    B = y[:, None] * np.moveaxis(A[:, np.array(supports)], 0, 1)
    w, ridge = np.zeros((B.shape[0], B.shape[2])), LOGISTIC_L2 * np.eye(B.shape[2])

    def margins(w):
        return (B @ w[..., None])[..., 0]

    def f(w):
        return np.mean(np.logaddexp(0, -margins(w)), axis=1) + LOGISTIC_L2 / 2 * np.sum(
            w**2, axis=1
        )

    for _ in range(50):
        p = scipy.special.expit(-margins(w))
        gradient = -np.mean(p[..., None] * B, axis=1) + LOGISTIC_L2 * w
        hessian = np.swapaxes((p * (1 - p))[..., None] * B, 1, 2) @ B / len(y) + ridge
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        decrease, t = np.sum(gradient * step, axis=1), np.ones(len(w))
        while np.any(short := (f(w - t[:, None] * step) > f(w) - 1e-4 * t * decrease) & (t > 1e-6)):
            t[short] /= 2
        w = w - t[:, None] * step
        if np.max(decrease) < 1e-20:
            break
    return f(w)


def test_minima_of_other_losses_are_those_of_their_quadratic_model():
    """At a minimiser of a weighted logistic loss: against dense algebra with its Hessian."""
    (A, y), rng = make(6), np.random.default_rng(7)
    A = A / A.std(0)
    y, weights = np.sign(y), rng.uniform(0.5, 2, N)
    indices = np.array([6, D, 1, 4])
    with x64():
        f = jaxht.Logistic(A, y, 0.1, mean=True, weights=weights).prepare()
        mask = jnp.asarray(np.isin(np.arange(D), indices))
        found = jaxht.subproblems.refit(f, jaxht.Support(mask, k_max=4), jnp.zeros(D, f.dtype))
        state = SupportMinimum.at(f, jnp.asarray(indices, jnp.int32), found.x, found.pred)
        losses, state, x = host((state.removal_losses(), state, found.x))
    filled, S = indices < D, indices[indices < D]
    p = 1 / (1 + np.exp(-A @ x))
    H = (A.T * (weights * p * (1 - p))) @ A / weights.sum() + 0.1 * np.eye(D)
    M = np.linalg.inv(H[np.ix_(S, S)])
    np.testing.assert_allclose(state.inverse[np.ix_(filled, filled)], M, rtol=1e-9)
    np.testing.assert_allclose(state.images[filled], M @ H[S], atol=1e-9)
    np.testing.assert_allclose(state.w[filled], x[S])
    outside = np.setdiff1d(np.arange(D), S)
    gradient = -A.T @ (weights * (1 - 1 / (1 + np.exp(-y * (A @ x)))) * y) / weights.sum()
    np.testing.assert_allclose(state.descent[outside], -gradient[outside], rtol=1e-8)
    schur = np.diagonal(H) - np.sum(H[:, S] * (M @ H[S]).T, axis=1)
    np.testing.assert_allclose(state.remaining[outside], schur[outside], rtol=1e-8)
    np.testing.assert_allclose(losses[filled], x[S] ** 2 / (2 * np.diagonal(M)))


def test_the_optimum_of_logistic_losses():
    """20 problems, of correlated columns, against the best of all supports."""
    problems = [make(seed, n=40, d=10) for seed in range(20)]
    A, y = (
        np.stack([A / A.std(0) for A, _ in problems]),
        np.stack([np.sign(y) for _, y in problems]),
    )
    with x64():
        constraint = Sparse(LOGISTIC_K, k_max=LOGISTIC_K)

        def solve(problem):
            return jaxht.solve(
                jaxht.Logistic(*problem, LOGISTIC_L2, mean=True), constraint, LocalSearch()
            )

        result = host(quick(functools.partial(jax.lax.map, solve))((A, y)))
    assert np.all(result.status == Status.NO_PROGRESS)
    supports = list(itertools.combinations(range(10), LOGISTIC_K))
    least = np.array([logistic_minima(A, y, supports).min() for A, y in zip(A, y, strict=True)])
    assert np.all(result.value >= least * (1 - 1e-9))
    assert np.all(result.value <= least * (1 + 1e-9))


def nonnegative_minimum(A, y, S):
    return scipy.optimize.nnls(A[:, S], y)[1] ** 2 / 2


def free_minimum(A, y, S):
    return np.sum((A[:, S] @ np.linalg.lstsq(A[:, S], y)[0] - y) ** 2) / 2


GROUPS = np.array([0, 0, 1, 2, 2, 2, 3, 3, 4])


def squares(x, A, y):
    return jnp.sum((matmul(A, x) - y) ** 2) / 2


@pytest.mark.parametrize(
    ("constraint", "supports", "minimum_of"),
    [
        (Sparse(3, nonnegative=True), itertools.combinations(range(D), 3), nonnegative_minimum),
        (
            jaxht.Groups(2, GROUPS),
            (np.flatnonzero(np.isin(GROUPS, pair)) for pair in itertools.combinations(range(5), 2)),
            free_minimum,
        ),
        (Sparse(3, k_max=3), itertools.combinations(range(D), 3), free_minimum),
    ],
    ids=["bounds", "groups", "function"],
)
def test_bounds_groups_and_functions(request, constraint, supports, minimum_of):
    """Against the best of all supports, on 5 problems."""
    supports = [list(S) for S in supports]
    with x64():
        for seed in range(5):
            A, y = make(10 + seed)
            function = "function" in request.node.callspec.id
            f = (
                jaxht.Custom(squares, jnp.asarray(A), jnp.asarray(y), like=D)
                if function
                else LeastSquares(A, y, mean=False)
            )
            result = host(jaxht.solve(f, constraint, LocalSearch()))
            np.testing.assert_allclose(
                result.value, min(minimum_of(A, y, S) for S in supports), rtol=1e-6
            )


def test_matrices():
    """Two responses, k entries in all: as least squares of the vector of both."""
    with x64():
        for seed in range(3):
            (A, y), (_, z) = make(20 + seed), make(30 + seed)
            Y = np.stack([y, z], axis=1)
            both = host(
                jaxht.solve(jaxht.MultiResponse(A, Y, 1e-2, mean=False), Sparse(4), LocalSearch())
            )
            flat = host(
                jaxht.solve(
                    LeastSquares(np.kron(A, np.eye(2)), Y.ravel(), 1e-2, mean=False),
                    Sparse(4),
                    LocalSearch(),
                )
            )
            np.testing.assert_allclose(both.value, flat.value, rtol=1e-8)
            np.testing.assert_allclose(both.x.ravel(), flat.x, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("model", [LeastSquares, jaxht.Logistic])
def test_many_columns(model):
    """Of 600 columns the moves of a step are among 256: no swap with any other improves the end
    either."""
    n, d = 60, 600
    rng = np.random.default_rng(8)
    A = rng.normal(size=(n, d)) + rng.normal(size=(n, 1))
    y = A[:, [3, 50, 120, 299]] @ [1.0, -1.5, 1.0, 2.0] + 0.5 * rng.normal(size=n)
    target = y if model is LeastSquares else np.sign(y)
    keep = np.arange(d) == 17
    with x64():
        result = host(
            jaxht.solve(
                model(A, target, LOGISTIC_L2, mean=True),
                Sparse(5, k_max=32, keep=keep),
                LocalSearch(),
            )
        )
    S = result.support.numpy()
    assert 17 in S and len(S) == 5
    swaps = [[*(set(S) - {i}), j] for i in set(S) - {17} for j in set(range(d)) - set(S)]
    if model is LeastSquares:
        H = A.T @ A / n + LOGISTIC_L2 * np.eye(d)
        b = A.T @ y / n
        least = min(minimum(H, b, swap)[0] for swap in swaps)
        assert least >= (result.value - y @ y / (2 * n)) * (1 + 1e-9)
        assert {3, 50, 120, 299} <= set(S)
    else:
        is_better = logistic_minima(A, target, swaps) < result.value * (1 - 1e-9)
        assert np.mean(is_better) <= 0.01


def test_exchanges_of_blocks_alone_descend():
    """On a sparse design whose columns are not gathered, one walk of one refit a move: better than
    its start."""
    rng = np.random.default_rng(9)
    A = scipy.sparse.random_array((400, 300), density=0.02, random_state=rng).tocsr()
    y = np.sign(A @ (rng.normal(size=300) * (rng.random(300) < 0.2)) + 1e-3)
    f, k = jaxht.Logistic(jaxht.design(A), y, 1e-3, mean=True), 60
    assert not f.design.gathers(k)
    search = LocalSearch(num_starts=1, num_moves=1, patience=1, num_candidates=1)
    first = jaxht.solve(f, Sparse(k), search, stop=jaxht.Stop(max_steps=1))
    last = jaxht.solve(f, Sparse(k), dataclasses.replace(search, num_moves=100))
    assert last.status == Status.NO_PROGRESS and np.count_nonzero(last.x) <= k
    assert last.value < 0.98 * first.value


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("model", [jaxht.Logistic, jaxht.Poisson, jaxht.SmoothedHinge, jaxht.Huber])
def test_exchanges_by_the_model_alone_descend(model, kind):
    """From orthogonal matching pursuit: never above it, below it on some problems, and a minimiser
    on its support."""
    rng, below = np.random.default_rng(3), 0
    search = LocalSearch(num_starts=2, num_moves=50, patience=1, num_candidates=1)
    run, refit = quick(jaxht.solve), quick(jaxht.subproblems.refit)
    present = rng.random((200, 16)) < 0.5  # entries of all sparse designs: one program
    for _ in range(6):
        A = rng.normal(size=(200, 16)) + 4 * rng.normal(size=(200, 5)) @ rng.normal(size=(5, 16))
        A = A / np.sqrt(np.mean(A**2, axis=0)) * (1 if kind == "dense" else present)
        u = A @ np.where(np.arange(16) < 6, rng.choice([-1.0, 1.0], 16), 0)
        if model is jaxht.Poisson:
            y = rng.poisson(np.exp(np.clip(u, -3, 2)))
        elif model is jaxht.Huber:
            y = u + rng.normal(size=200)
        else:
            y = np.where(u + rng.logistic(size=200) > 0, 1.0, -1.0)
        with x64():
            f = model(
                A if kind == "dense" else jaxht.design(scipy.sparse.csr_array(A)),
                y.astype(float),
                1e-2,
            )
            found = host(run(f, Sparse(5, k_max=5), search))
            greedy = host(run(f, Sparse(5, k_max=5), jaxht.OMP()))
            refitted = host(refit(f, jaxht.Support(found.x != 0, k_max=5), np.zeros(16)))
        assert found.status == Status.NO_PROGRESS and np.count_nonzero(found.x) == 5
        assert found.value <= greedy.value + 1e-9 * abs(greedy.value)
        np.testing.assert_allclose(found.x, refitted.x, atol=1e-7)
        below += found.value < greedy.value - 1e-6 * abs(greedy.value)
    assert below >= 1


@pytest.mark.parametrize("case", ["dependent", "overflow"])
def test_what_must_stay_keeps_its_place(case):
    """Where it depends on columns before it; and where the score of another one, before it,
    overflows."""
    rng, keep = np.random.default_rng(0), np.array([True, True, True, False, True, False])
    A = rng.normal(size=(12, 6)).astype(np.float32)
    if case == "dependent":
        A[:, [1, 4]] = A[:, [0]] * np.float32([2, -1])
        f, k = LeastSquares(A, A @ np.ones(6, np.float32), mean=False), 5
    else:
        A[:, 3] *= np.float32(4e19)
        f, k = jaxht.Logistic(A, np.sign(rng.normal(size=12))), 4
    x = np.asarray(quick(jaxht.solve)(f, Sparse(k, k_max=6, keep=keep), LocalSearch()).x)
    assert np.all(np.isfinite(x)) and np.sum((x != 0) | keep) <= k


def test_refits_that_do_not_converge_end_a_walk():
    """No minimiser, and a column 10^10 times longer than another: every refit descends further."""
    A = np.array(
        [
            [8.6e-04, -1.3e-06, 0.84, -0.85, -2.9e04, 0.18],
            [-1.1e-03, -3.5e-06, 2.08, -0.42, -9.5e02, -0.05],
            [2.3e-04, -1.7e-06, -0.18, -0.57, -3.0e04, -0.24],
            [5.2e-03, -2.5e-06, -0.68, 0.50, 1.6e04, -0.01],
        ]
    )
    with x64():
        objective = jaxht.Logistic(A, np.array([-1.0, -1.0, -1.0, 1.0]), 0.0).prepare()
        constraint = Sparse(4, nonnegative=True).prepare((6,))
        selected = jnp.array([True, False, False, True, True, True])
        fit = jaxht.subproblems.refit(objective, constraint.support(selected), objective.start())
        start = RefittedSelection(selected, fit, jnp.int32(1), jnp.array(True))
        problem = jaxht.subproblems.subproblem(objective, constraint)
        walk = quick(lambda start: walk_by_refits(problem, start, jnp.uint32(0), 9, 8))(start)
        assert not walk.best.fit.converged  # the premise
        assert walk.num_moves == 9


def test_errors_say_what_is_needed():
    A, y = make(5)
    with pytest.raises(ValueError, match="LowRank has no coordinates to select"):
        jaxht.solve(jaxht.MultiResponse(A, A), jaxht.LowRank(2), LocalSearch())
    with pytest.raises(ValueError, match="k_max must be given"):
        jax.eval_shape(
            lambda k: jaxht.solve(LeastSquares(A, y, mean=False), Sparse(k), LocalSearch()), 2
        )
    for name in ("num_starts", "num_candidates"):
        with pytest.raises(ValueError, match=f"{name} must be an int of at least 1; got 0"):
            jaxht.solve(LeastSquares(A, y, mean=False), Sparse(2), LocalSearch(**{name: 0}))


@pytest.mark.parametrize("name", ["SquaredHinge", "Huber", "Logistic", "Poisson"])
def test_the_search_ends_where_no_further_item_decreases_f(name):
    """Classes that one feature separates, a target without noise, and one without a signal."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(60, 40)).astype(np.float32)
    targets = {"Huber": 2 * A[:, 0], "Poisson": np.ones(60)}
    y = targets.get(name, np.sign(A[:, 0])).astype(np.float32)
    f = getattr(jaxht, name)(A, y)
    found = jaxht.solve(f, Sparse(5), LocalSearch(patience=4, num_candidates=1))
    assert found.reason in ("NO_PROGRESS", "NO_MINIMISER")
    if name == "Poisson":
        assert not np.any(found.x)
    else:
        assert found.x[0] != 0 and found.value < 1e-6
