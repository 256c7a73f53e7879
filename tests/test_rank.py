"""Rank constraints: decompositions, the region of a matrix, and the solvers that project onto
it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import LowRank, Status, Stop, Subspace
from jaxht.designs import Entries
from jaxht.linalg.products import Factored, square_norm
from jaxht.linalg.svd import MAX_SUBSPACE_ITERATIONS, truncated_svd
from jaxht.subproblems import refit
from tests import reference, test_stochastic
from tests.util import host, quick, record_x, solve, trace, x64

pytestmark = pytest.mark.usefixtures("all_quickly")


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


def best(Z, k):
    """The nearest matrix of rank k."""
    U, s, Vt = np.linalg.svd(Z, full_matrices=False)
    return (U[:, :k] * s[:k]) @ Vt[:k]


def low_rank(rng, m, n, k):
    return rng.normal(size=(m, k)) @ rng.normal(size=(k, n)) / np.sqrt(n)


# ---- decompositions ------------------------------------------------------------------------------

SHAPES = [(60, 50), (45, 70), (7, 5)]


@functools.cache
def decomposed(m, n, exact, dtype):
    """Lanes of k = 0, 2, 4 and more than k_max = 4 of matrices with noise, and the matrices."""
    rng = np.random.default_rng([m, n])
    Z = np.stack(
        [low_rank(rng, m, n, 6) + 0.02 * rng.normal(size=(m, n)) / np.sqrt(n) for _ in range(4)]
    )
    near = np.stack([best(z + 0.1 * low_rank(rng, m, n, 2), 4) for z in Z])
    near[0] = 0
    Z, near = Z.astype(dtype), near.astype(dtype)
    run = jax.vmap(lambda z, k, near: truncated_svd(z, k, 4, near=near, exact=exact))
    return host(quick(run)(Z, np.array([0, 2, 4, 9]), near)), Z


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_decomposition_is_the_best(shape, exact):
    found, Z = decomposed(*shape, exact, "float64")
    for i, k in enumerate([0, 2, 4, 4]):
        U, s, V = found.U[i], found.s[i], found.V[i]
        np.testing.assert_allclose(s[:k], np.linalg.svd(Z[i], compute_uv=False)[:k], rtol=1e-12)
        np.testing.assert_allclose(found.matrix[i], best(Z[i], k), rtol=0, atol=1e-6)
        np.testing.assert_allclose(found.matrix[i], (U * s) @ V.T, rtol=0, atol=1e-14)
        for basis in (U, V):
            np.testing.assert_allclose(
                basis.T @ basis, np.diag(np.arange(4) < k), rtol=0, atol=1e-12
            )
        assert not np.any(s[k:]) and not np.any(U[:, k:]) and not np.any(V[:, k:])
        residual = np.linalg.norm(Z[i].T @ U - V * s) / max(np.linalg.norm(Z[i].T @ U), 1e-300)
        assert residual <= 1.5e-8 and (exact or abs(found.error[i] - residual) < 1e-12)


def test_single_precision():
    found, Z = decomposed(60, 50, False, "float32")
    assert {leaf.dtype for leaf in found} == {np.dtype("float32")}
    for i, k in enumerate([0, 2, 4, 4]):
        kept, least = (
            np.linalg.norm(Z[i] - x) for x in (found.matrix[i], best(Z[i].astype(float), k))
        )
        assert kept <= (1 + 1e-6) * least


def test_a_start_nearby_saves_iterations_and_none_is_needed():
    """Seen in what one iteration gives; a far start is no obstacle."""
    rng = np.random.default_rng(0)
    Z = jnp.asarray(low_rank(rng, 80, 70, 5) + 0.3 * rng.normal(size=(80, 70)) / np.sqrt(70))
    run = quick(lambda near, rtol: truncated_svd(Z, 5, 5, near=near, exact=False, rtol=rtol).matrix)
    for near in (np.zeros_like(Z), best(rng.normal(size=Z.shape), 5)):
        np.testing.assert_allclose(run(near, 1e-8), best(Z, 5), rtol=0, atol=1e-6)
    nearby = best(Z, 5) + best(1e-3 * rng.normal(size=Z.shape), 5)
    cold, warm = (
        np.linalg.norm(run(near, 0.5) - best(Z, 5)) for near in (np.zeros_like(Z), nearby)
    )  # one iteration
    assert warm < cold / 20


def test_an_array_of_numpy_is_an_array():
    Z = np.diag([3.0, 2.0, 1.0])
    np.testing.assert_allclose(
        truncated_svd(Z, 2).matrix, np.diag([3.0, 2.0, 0.0]), rtol=0, atol=1e-14
    )


def test_what_does_not_converge_is_decomposed_in_full():
    """Singular values that are nearly equal: MAX_SUBSPACE_ITERATIONS iterations do not tell them apart to that
    error."""
    rng = np.random.default_rng(1)
    Q, R = (np.linalg.qr(rng.normal(size=(60, 60)))[0] for _ in range(2))
    hard = (Q * np.linspace(1, 0.9, 60)) @ R.T
    easy = (Q * (np.arange(60) < 3)) @ R.T
    run = quick(jax.vmap(lambda z: truncated_svd(z, 3, 3, exact=False, rtol=1e-10)))
    together = host(run(np.stack([hard, easy])))
    np.testing.assert_allclose(together.matrix[0], best(hard, 3), rtol=0, atol=1e-11)
    np.testing.assert_allclose(together.matrix[1], easy, rtol=0, atol=1e-12)
    assert together.error[0] == 0 and MAX_SUBSPACE_ITERATIONS < 100


def test_a_lane_of_nan_or_of_zeros_hurts_no_other():
    found, Z = decomposed(60, 50, False, "float64")
    broken = Z.copy()
    broken[1, 3, 4], broken[2] = np.nan, 0
    run = jax.vmap(lambda z, k, near: truncated_svd(z, k, 4, near=near, exact=False))
    near = np.where(np.isnan(broken), 0, broken)
    other = host(quick(run)(broken, np.array([0, 2, 4, 9]), near))
    assert np.all(np.isnan(other.matrix[1]))
    np.testing.assert_array_equal(other.matrix[2], 0)
    np.testing.assert_allclose(other.matrix[3], found.matrix[3], rtol=0, atol=1e-7)
    assert np.all(np.isfinite(other.matrix[[0, 2, 3]]))


@pytest.mark.parametrize("k", [0, 2, 4])
def test_derivatives_are_differences(k):
    rng = np.random.default_rng(2)
    Z, E, G = rng.normal(size=(3, 7, 5))

    @jax.jit
    def parts(Z):
        found = truncated_svd(Z, k, 4, exact=True)
        return found.matrix, found.U @ found.U.T, found.V @ found.V.T

    ours = jax.jvp(parts, (Z,), (E,))[1]
    step = 1e-6
    theirs = [
        (a - b) / (2 * step) for a, b in zip(parts(Z + step * E), parts(Z - step * E), strict=True)
    ]
    for own, difference in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, difference, rtol=0, atol=1e-7)
    pulled = jax.grad(lambda Z: jnp.vdot(G, parts(Z)[0]))(Z)
    np.testing.assert_allclose(np.vdot(pulled, E), np.vdot(G, ours[0]), rtol=1e-10, atol=1e-12)


# ---- minimising on a column and a row space ------------------------------------------------------

M, P, N = 6, 5, 40


def spaces(rng, k=2, k_max=3):
    """Of dimension k, with columns of zeros up to k_max."""
    U, V = (np.linalg.qr(rng.normal(size=(d, k_max)))[0] * (np.arange(k_max) < k) for d in (M, P))
    return Subspace(jnp.asarray(U), jnp.asarray(V))


def objectives(rng):
    A = rng.normal(size=(N, M))
    measured = rng.normal(size=(N, M, P))
    observed = rng.integers(0, M, N), rng.integers(0, P, N)
    y = rng.normal(size=N)
    weights = rng.random(N)
    return {
        "responses": jaxht.MultiResponse(A, rng.normal(size=(N, P)), 0.3),
        "responses, a ridge each": jaxht.MultiResponse(
            A, rng.normal(size=(N, P)), rng.random((M, P)), weights=weights
        ),
        "softmax": jaxht.Softmax(A, rng.integers(0, P, N), 0.05, num_classes=P),
        "sensing": jaxht.matrix_sensing(measured, y, l2=0.1, mean=False),
        "sensing, a ridge each": jaxht.matrix_sensing(
            measured, y, l2=rng.random(M * P), mean=False
        ),
        "completion": jaxht.matrix_completion(*observed, y, (M, P), l2=0.2, mean=True),
        "one bit": jaxht.matrix_completion(
            *observed, np.sign(y), (M, P), model=jaxht.Logistic, l2=0.05
        ),
        "custom": jaxht.Custom(lambda x: jnp.sum((x - 1) ** 4 + x**2), like=np.zeros((M, P))),
    }


NAMES = list(objectives(np.random.default_rng(0)))


@pytest.mark.parametrize("name", NAMES)
def test_the_minimiser_on_two_spaces_has_no_slope_along_them(name):
    rng = np.random.default_rng(3)
    region, f = spaces(rng), objectives(rng)[name]
    x0 = rng.normal(size=(M, P))
    found = quick(lambda region, x: refit(f, region, x))(region, x0)
    x = np.asarray(found.x)
    np.testing.assert_allclose(region.restrict(x), x, rtol=0, atol=1e-12)
    assert np.linalg.matrix_rank(x, tol=1e-9) == 2 and found.converged
    np.testing.assert_allclose(found.pred, f.predict(x), rtol=0, atol=1e-12)
    gradient, scale = f.gradient(x, f.predict(x)), f.gradient(0 * x, f.predict(0 * x))
    assert np.linalg.norm(region.coordinates(gradient)) < 1e-6 * np.linalg.norm(scale)


def test_the_products_of_trace_regression_are_those_of_its_model():
    """Sensing by einsum, and completion as the sensing that it is; entries beyond the matrix are
    not observed."""
    rng = np.random.default_rng(4)
    rows, columns, y, X, V = (
        *rng.integers(0, [[M + 1], [P]], (2, N)),
        *[rng.normal(size=s) for s in (N, (M, P), (M, P))],
    )
    units = np.zeros((N, M + 1, P))
    units[np.arange(N), rows, columns] = 1
    units = units[:, :M]
    assert np.any(rows == M)
    y[rows == M] = 0  # which sensing would count
    completion = jaxht.matrix_completion(rows, columns, y, (M, P), l2=0.3, mean=False)
    sensing = jaxht.matrix_sensing(units, y, l2=0.3, mean=False)
    residual = np.einsum("nij,ij->n", units, X) - y
    for f in (completion, sensing):
        pred = f.predict(X)
        np.testing.assert_allclose(pred, residual + y, rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            f.value(X, pred), residual @ residual / 2 + 0.15 * np.sum(X**2), rtol=1e-12
        )
        gradient = np.einsum("n,nij->ij", residual, units) + 0.3 * X
        np.testing.assert_allclose(f.gradient(X, pred), gradient, rtol=0, atol=1e-12)
        image = np.einsum("nij,ij->n", units, V)
        product = np.einsum("n,nij->ij", image, units) + 0.3 * V
        np.testing.assert_allclose(f.hessian(X, pred)(V), product, rtol=0, atol=1e-12)
        np.testing.assert_allclose(f.majorant()(V), product, rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            f.hessian(X, pred).quadratic_form(V, f.predict(V)), np.vdot(V, product), rtol=1e-12
        )
        diagonal = np.sum(units, axis=0) + 0.3
        np.testing.assert_allclose(f.hessian(X, pred).diagonal(), diagonal, rtol=1e-12)
        np.testing.assert_allclose(f.majorant().preconditioner(), diagonal, rtol=1e-12)
        np.testing.assert_allclose(f.majorant().coordinate_norm(), diagonal.max(), rtol=1e-12)
        assert diagonal.max() <= f.majorant().norm() * (1 + 1e-9) <= 1.06 * diagonal.max() + 1
        np.testing.assert_allclose(f.sample_smoothness(), N + 0.3, rtol=1e-12)


def test_the_design_of_entries_is_rows_of_the_identity():
    rng = np.random.default_rng(5)
    index, d = np.array([3, 0, 3, 5, 2]), 5
    design, dense = Entries(index, d), jaxht.design(np.vstack([np.eye(d), np.zeros(d)])[index])
    x, r, w = rng.normal(size=d), rng.normal(size=5), rng.random(5)
    picked = np.array([4, 1, 5, 1])
    for ours, theirs in [
        (design.matvec(x), dense.matvec(x)),
        (design.rmatvec(r), dense.rmatvec(r)),
        (design.squared(w), dense.squared(w)),
        (design.row_norms(), dense.row_norms()),
        (design.column_norms(), dense.column_norms()),
        (design.columns(np.array([3, 5, 0])), dense.columns(np.array([3, 5, 0]))),
        (design.rows(picked).matvec(x), dense.rows(picked).matvec(x)),
        (design.matvec(np.stack([x, x], 1)), dense.matvec(np.stack([x, x], 1))),
    ]:
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-14)
    assert design.shape == dense.shape and design.dtype == np.float64


# ---- solvers -------------------------------------------------------------------------------------

SHAPE, K, STEPS, ETA = (4, 3), 2, 3, 0.02


def to_rank(z, k):
    """What the references project by here: matrices of rank k take the place of sparse vectors."""
    return best(z.reshape(SHAPE), k).ravel()


@functools.cache
def measured():
    rng = np.random.default_rng(6)
    n, d = test_stochastic.N, SHAPE[0] * SHAPE[1]
    return reference.LeastSquares(rng.normal(size=(n, d)), rng.normal(size=n), 0.1, mean=True)


def drawn(key, m, b):
    return test_stochastic.drawn(key, m, b)


def keys():
    """Of STEPS steps: those of their draws."""
    key = jax.random.key(0)
    for _ in range(STEPS):
        key, draws = jax.random.split(key)
        yield draws


def svrg_stages():
    key = jax.random.key(0)
    for _ in range(STEPS):
        key, draws, _ = jax.random.split(key, 3)
        yield drawn(draws, 7, 2), 7


def epochs():
    return [batch for draws in keys() for batch in drawn(draws, 5, 2)]


def growing():
    n = test_stochastic.N
    sizes = np.minimum(n, np.ceil(4 * 2.0 ** np.arange(STEPS))).astype(int)
    return [
        test_stochastic.shuffle(
            jax.random.fold_in(jax.random.key(0), t), np.arange(s, dtype=np.int32), n
        )
        for t, s in enumerate(sizes)
    ]


BY_REFERENCE = {
    "IHT": (
        jaxht.IHT(0.1, 0.3),
        lambda f, x: list(reference_steps(reference.iht(f, x, K, 0.1, 0.3, project=to_rank)))[1:],
    ),
    "SGHT": (
        jaxht.SGHT(ETA, 2),
        lambda f, x: list(reference.sght(f, x, K, ETA, epochs(), to_rank))[4::5],
    ),
    "SVRGHT": (
        jaxht.SVRGHT(ETA, 7, 2),
        lambda f, x: list(reference.htsvrg(f, x, K, ETA, svrg_stages(), project=to_rank)),
    ),
    "HTSAGA": (
        jaxht.HTSAGA(ETA, 2),
        lambda f, x: list(reference.htsaga(f, x, K, ETA, epochs(), to_rank))[4::5],
    ),
    "HSGHT": (
        jaxht.HSGHT(ETA, 0.3, 4, 2.0, inner_steps=1),
        lambda f, x: list(reference.hsght(f, x, K, ETA, host(growing()), 0.3, to_rank)),
    ),
}


def reference_steps(steps):
    return (x for x, _ in zip(steps, range(STEPS + 1), strict=False))


@pytest.mark.parametrize("name", BY_REFERENCE)
def test_steps_are_those_of_the_reference(name):
    solver, steps = BY_REFERENCE[name]
    f, x0 = measured(), np.random.default_rng(7).normal(size=SHAPE)
    ours = jaxht.trace_regression(jaxht.LeastSquares(f.A, f.y, f.l2, mean=True), SHAPE)
    options = {"num_steps": STEPS, "record": record_x, "key": jax.random.key(0)}
    result, x = trace(ours, LowRank(K), solver, x0=x0, **options)
    start = best(x0, K)
    expected = [start, *(v.reshape(SHAPE) for v in steps(f, start.ravel()))]
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.value, f.value(expected[-1].ravel()), rtol=1e-12)
    assert isinstance(result.support, Subspace) and result.support.size == K


def planted(rng, m, p, k, oversampling=5):
    X = low_rank(rng, m, p, k)
    n = oversampling * k * (m + p - k)
    A = rng.normal(size=(n, m, p)) / np.sqrt(n)
    return A, np.einsum("nij,ij->n", A, X), X


# Full decompositions are in the table of tests/contract.py.
@pytest.mark.parametrize(
    ("solver", "exact"),
    [(jaxht.IHT(), False), (jaxht.NIHT(), False), (jaxht.HTP(0.8), False), (jaxht.HTP(0.8), True)],
    ids=lambda s: type(s).__name__ if not isinstance(s, bool) else str(s),
)
def test_lanes_of_different_rank_are_recovered_together(solver, exact):
    """One compile, k traced; NaN in a lane is INVALID_DATA there and changes nothing elsewhere."""
    rng, ks = np.random.default_rng(8), np.array([1, 2, 3])
    A, y, X = (
        np.stack(parts) for parts in zip(*[planted(rng, 20, 15, 3) for _ in ks], strict=True)
    )
    for i, k in enumerate(ks):
        X[i] = best(X[i], k)
        y[i] = np.einsum("nij,ij->n", A[i], X[i])

    @quick
    @jax.vmap
    def run(A, y, k):
        stop = Stop(rtol=1e-9, max_steps=600)
        return jaxht.solve(
            jaxht.matrix_sensing(A, y, mean=False), LowRank(k, 3, exact=exact), solver, stop=stop
        )

    result = run(A, y, ks)
    for x, truth, k in zip(result.x, X, ks, strict=True):
        assert np.linalg.norm(x - truth) < 1e-6 * np.linalg.norm(truth)
        assert np.linalg.matrix_rank(x, tol=1e-9) == k
    np.testing.assert_array_equal(result.support.size, ks)
    broken = y.copy()
    broken[1, 0] = np.nan
    other = run(A, broken, ks)
    assert other.status[1] == Status.INVALID_DATA and np.all(np.isfinite(other.x))
    np.testing.assert_array_equal(other.x[::2], result.x[::2])


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    "solver", [jaxht.IHT(), jaxht.NIHT(), jaxht.HTP()], ids=lambda s: type(s).__name__
)
def test_runs_in_single_precision_end_by_themselves(solver, exact):
    """As CONVERGED, though decompositions round, where f has no slope that its rank allows it to
    follow."""
    with x64(False):
        rng = np.random.default_rng(15)
        A, y, _ = planted(rng, 30, 25, 2)
        y += 0.1 * rng.normal(size=y.size)
        f = jaxht.matrix_sensing(A.astype(np.float32), y.astype(np.float32), mean=False)
        result = solve(f, LowRank(2, 2, exact=exact), solver, stop=Stop(max_steps=400))
        assert result.status == Status.CONVERGED
        A, x = A.reshape(len(y), -1), np.asarray(result.x, np.float64)
        gradient = (A.T @ (A @ x.ravel() - y)).reshape(x.shape)
        U, V = (np.asarray(basis, np.float64) for basis in (result.support.U, result.support.V))
        slope = np.linalg.norm(U.T @ gradient) + np.linalg.norm(gradient @ V)
        bound = (
            2e-5 if jax.default_backend() == "cpu" else 5e-5
        )  # decompositions of a GPU round more
        assert slope < bound * np.linalg.norm(A.T @ y)


def test_normalised_steps_never_raise_f():
    rng = np.random.default_rng(9)
    A, y, _ = planted(rng, 12, 10, 3, oversampling=2)
    f = jaxht.matrix_sensing(A, y + 0.1 * rng.normal(size=y.size), mean=False)
    _, values = trace(f, LowRank(2, 2), jaxht.NIHT(nesterov=False), num_steps=60)
    assert np.all(np.diff(values) <= 1e-13 * values[0]) and values[-1] < 0.9 * values[0]


@pytest.mark.parametrize("single", [True, False], ids=["float32", "float64"])
def test_runs_by_default_end_at_the_optimum_of_correlated_columns(single):
    """NumPy's float64 data are rounded where JAX has no 64 bits; plain steps are far from the end
    after 100."""
    with x64(not single):
        rng, (n, d, c) = np.random.default_rng(0), (200, 60, 30)
        A = (
            rng.normal(size=(n, d))
            @ np.linalg.cholesky(0.9 ** np.abs(np.subtract.outer(range(d), range(d)))).T
        )
        Y = A @ rng.normal(size=(d, 5)) @ rng.normal(size=(5, c)) + 5 * rng.normal(size=(n, c))
        f, least = (
            jaxht.MultiResponse(A, Y, 1e-3, mean=True),
            jaxht.reduced_rank_minimum(A, Y, 1e-3, 3),
        )
        for solver in (jaxht.HTP(), jaxht.NIHT()):
            result = solve(f, LowRank(3), solver)
            assert result.status == Status.CONVERGED
            np.testing.assert_allclose(result.value, least, rtol=1e-5)
        plain = solve(f, LowRank(3), jaxht.HTP(nesterov=False), stop=Stop(max_steps=100))
        assert plain.status == Status.MAX_STEPS and plain.value > 1.04 * least


def test_pursuit_rests_where_gradient_steps_do():
    """Minimising on the two spaces changes the path, not the end."""
    rng = np.random.default_rng(10)
    A, Y = rng.normal(size=(50, 12)), rng.normal(size=(50, 8))
    f = jaxht.MultiResponse(A, A @ low_rank(rng, 12, 8, 2) + 0.05 * Y, 0.01)
    ends = [
        solve(f, LowRank(2, 2), solver, stop=Stop(500, 1e-12))
        for solver in (jaxht.IHT(), jaxht.HTP())
    ]
    assert {int(end.status) for end in ends} == {Status.CONVERGED}
    np.testing.assert_allclose(ends[0].x, ends[1].x, rtol=0, atol=1e-8)
    assert ends[1].num_steps < ends[0].num_steps


@pytest.mark.parametrize("constraint", ["rank", "entries", "rows"])
def test_one_objective_under_every_constraint_on_matrices(constraint):
    """At full size each is the unconstrained minimiser; at less it is feasible, and higher."""
    rng = np.random.default_rng(11)
    A, Y = rng.normal(size=(40, 6)), rng.normal(size=(40, 5))
    f, rows = (
        jaxht.MultiResponse(A, Y, 0.1, mean=False),
        np.broadcast_to(np.arange(6)[:, None], (6, 5)),
    )
    make, size, few, full = {
        "rank": (lambda k: LowRank(k, 5), lambda x: np.linalg.matrix_rank(x, tol=1e-9), 2, 5),
        "entries": (jaxht.Sparse, np.count_nonzero, 7, 30),
        "rows": (
            lambda k: jaxht.Groups(k, rows, num_groups=6),
            lambda x: np.count_nonzero(np.any(x, axis=1)),
            2,
            6,
        ),
    }[constraint]
    ridge = np.linalg.solve(A.T @ A + 0.1 * np.eye(6), A.T @ Y)
    ends = [solve(f, make(k), jaxht.IHT(), stop=Stop(rtol=1e-11)) for k in (few, full)]
    np.testing.assert_allclose(ends[1].x, ridge, rtol=0, atol=1e-8)
    assert size(ends[0].x) == few and ends[0].value > ends[1].value


def test_conditions_of_a_minimum():
    rng = np.random.default_rng(16)
    f = jaxht.MultiResponse(rng.normal(size=(40, 6)), rng.normal(size=(40, 5)), 0.1)
    x = solve(f, LowRank(2, 2), jaxht.IHT()).x
    at_end, at_zero = (jaxht.optimality(f, LowRank(2), at, swaps=False) for at in (x, 0 * x))
    assert at_end.stationarity < 1e-9 and at_end.fixed_point_residual < 1e-9
    gradient = f.gradient(0 * x, f.predict(0 * x))
    np.testing.assert_allclose(
        at_zero.restricted_gradient, np.linalg.norm(best(gradient, 2)), rtol=1e-12
    )
    assert at_zero.stationarity == 0 and at_zero.fixed_point_residual > 1e-3
    with pytest.raises(ValueError, match="under Sparse without bounds only: pass swaps=False"):
        jaxht.optimality(f, LowRank(2), x)


# ---- factored iterates ---------------------------------------------------------------------------


def wide(name, rng):
    """An objective on 70 x 60 matrices, and a step size."""
    if name == "completion":
        X, rows, columns = low_rank(rng, 70, 60, 3), *rng.integers(0, [[71], [60]], (2, 2000))
        y = np.vstack([X, np.zeros(60)])[rows, columns]
        return jaxht.matrix_completion(rows, columns, y, (70, 60), l2=1e-3, mean=False), 1.0
    A = rng.normal(size=(90, 70))
    if name == "softmax":
        return jaxht.Softmax(A, rng.integers(0, 60, 90), 1e-3, num_classes=60), 0.2
    return jaxht.MultiResponse(
        A, A @ low_rank(rng, 70, 60, 3) + 0.01 * rng.normal(size=(90, 60)), 1e-3
    ), 0.2


@pytest.mark.parametrize("name", ["completion", "responses", "softmax"])
def test_factors_take_the_steps_of_the_array(name):
    f, eta = wide(name, np.random.default_rng(12))
    solver = jaxht.SGHT(eta / 50, 10, inner_steps=4) if name == "responses" else jaxht.IHT(eta, 0.2)
    options = {"stop": Stop(max_steps=4), "key": jax.random.key(0)}
    dense, factored = (
        solve(f, LowRank(3, 3, factored=held), solver, **options) for held in (False, True)
    )
    assert isinstance(factored.x, Factored) and factored.status == dense.status == Status.MAX_STEPS
    np.testing.assert_allclose(factored.x.dense(), dense.x, rtol=0, atol=1e-9)
    np.testing.assert_allclose(factored.value, dense.value, rtol=1e-9)
    np.testing.assert_array_equal(factored.support.U, factored.x.U)
    if name == "responses":  # it goes on from where either has ended
        starts = (factored, dense.x)
        ends = [solve(f, LowRank(3, 3, factored=True), solver, x0=x0, **options) for x0 in starts]
        np.testing.assert_allclose(ends[0].value, ends[1].value, rtol=1e-9)
        assert ends[0].value < factored.value


def test_no_array_of_all_entries_is_made():
    """Of 30 000 x 30 000 entries."""
    rng, d, n = np.random.default_rng(13), 30_000, 1000
    f = jaxht.matrix_completion(*rng.integers(0, d, (2, n)), rng.normal(size=n), (d, d), mean=False)
    result = solve(f, LowRank(2, 2, factored=True), jaxht.IHT(0.5), stop=Stop(max_steps=2))
    assert result.status == Status.MAX_STEPS and result.value < f.value(jnp.zeros(1), jnp.zeros(n))
    assert max(leaf.size for leaf in jax.tree.leaves(result)) < 10**6


def test_the_norm_of_a_difference_is_not_the_difference_of_norms():
    rng = np.random.default_rng(14)
    U, V = (np.linalg.qr(rng.normal(size=(d, 3)))[0] for d in (9, 8))
    x = Factored(U, np.array([3.0, 2.0, 1.0]), V)
    moved = dataclasses.replace(x, s=x.s + 1e-10)
    np.testing.assert_allclose(np.sqrt(square_norm(moved - x)), np.sqrt(3) * 1e-10, rtol=1e-5)
    np.testing.assert_allclose(square_norm(x), 14)
    np.testing.assert_allclose(
        (2.0 * x - moved + 0.5 * moved).T @ U, (1.5 * x.dense()).T @ U, rtol=0, atol=1e-9
    )


# ---- what cannot be ------------------------------------------------------------------------------

F = jaxht.MultiResponse(np.ones((4, 3)), np.ones((4, 2)))
VECTOR = jaxht.LeastSquares(np.ones((4, 3)), np.ones(4), mean=False)
WRONG = {
    "vector": ("LowRank constrains matrices.*shape \\(3,\\)", VECTOR, LowRank(1), jaxht.IHT()),
    "rank": ("k must lie between 0 and min\\(m, n\\) = 2; got 3", F, LowRank(3), jaxht.IHT()),
    "bound": (
        "k_max must be a Python int between 0 and min\\(m, n\\) = 2; got 5",
        F,
        LowRank(1, 5),
        jaxht.IHT(),
    ),
    "no coordinates": ("(?i)low.?rank", F, LowRank(1), jaxht.CoSaMP()),
    "one by one": ("(?i)low.?rank", F, LowRank(1), jaxht.OMP()),
    "partial": ("(?i)low.?rank", F, LowRank(1), jaxht.PHT()),
    "solver": ("solver must take factored.*got NIHT", F, LowRank(1, factored=True), jaxht.NIHT()),
    "objective": (
        "objective must take factored.*got LeastSquares",
        jaxht.matrix_sensing(np.ones((4, 3, 2)), np.ones(4), mean=False),
        LowRank(1, factored=True),
        jaxht.IHT(),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be(name):
    message, f, constraint, solver = WRONG[name]
    with pytest.raises(ValueError, match=message):
        jaxht.solve(f, constraint, solver)


def test_measurements_must_fit():
    with pytest.raises(ValueError, match=r"matrix_shape must be \(m, p\), m p = 3; got \(2, 2\)"):
        jaxht.trace_regression(VECTOR, (2, 2))
    with pytest.raises(ValueError, match=r"A must have shape \(n, m, p\).*got \(4, 3\)"):
        jaxht.matrix_sensing(np.ones((4, 3)), np.ones(4), mean=False)
    with pytest.raises(ValueError, match="lists of the same length"):
        jaxht.matrix_completion(np.arange(3), np.arange(4), np.ones(3), (5, 5), mean=False)


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        (
            [0, 3],
            [0, 1],
            "rows must lie between 0 and 2, in a matrix of 2 rows; got 3 at position 1",
        ),
        ([0, -1], [0, 1], "rows must lie between .* got -1 at position 1"),
        ([0, 1], [0, 3], "columns must lie between 0 and 2, .* got 3 at position 1"),
        ([0, 1], [-1, 0], "columns must lie .* got -1 at position 0"),
        ([0.0, 1.0], [0, 1], "rows must be integers"),
    ],
)
def test_indices_outside_of_the_matrix_are_refused(rows, columns, message):
    with pytest.raises(ValueError, match=message):
        jaxht.matrix_completion(np.array(rows), np.array(columns), np.ones(2), (2, 3))


def test_truncated_decompositions_in_any_unit():
    """Of singular values that fall slowly; squares of entries over- or underflow."""
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.normal(size=(n, 50)))[0] for n in (60, 50))
    Z = (U * 0.9 ** np.arange(50)) @ V.T
    for unit in (1.0, 1e-18, 1e-25, 1e20):
        found = truncated_svd(jnp.asarray(Z * unit, jnp.float32), 3, 3, exact=False)
        np.testing.assert_allclose(found.s / np.float32(unit), [1, 0.9, 0.81], rtol=1e-3)
        assert 0 < found.error < 1e-3
