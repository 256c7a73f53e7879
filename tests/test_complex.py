"""Complex numbers: every solver that takes them does what it does of the real problem of twice the
size, whose pairs of real and imaginary parts are groups."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxht
from jaxht import CoSaMP, Groups, LeastSquares, Sparse
from jaxht.subproblems import subproblem
from jaxht.subproblems.quadratic_model import QuadraticModel
from jaxht.subproblems.swaps import SupportMinimum

pytestmark = pytest.mark.usefixtures("all_quickly")

RNG = np.random.default_rng(3)
N, D, K = 20, 24, 3


def draw(*shape):
    return RNG.normal(size=shape) + 1j * RNG.normal(size=shape)


A = (draw(N, D) / np.sqrt(2 * N)).astype(np.complex64)
SUPPORT = np.array([2, 9, 17])
SIGNAL = np.zeros(D, np.complex64)
SIGNAL[SUPPORT] = np.exp(2j * np.pi * RNG.uniform(size=K)) * [3, 2, 1]
Y = (A @ SIGNAL + 0.02 * draw(N)).astype(np.complex64)
WEIGHTS = RNG.uniform(0.5, 2, N).astype(np.float32)
RIDGE = RNG.uniform(0.01, 0.1, D).astype(np.float32)
OFFSET = (0.1 * draw(N)).astype(np.complex64)


def pairs(v):
    return np.stack([v.real, v.imag], axis=-1).reshape(*v.shape[:-1], -1)


def realify(A):
    """The real matrix (2 n, 2 d) of A, parts of an entry beside each other."""
    n, d = A.shape
    blocks = np.array([[A.real, -A.imag], [A.imag, A.real]])
    return blocks.transpose(2, 0, 3, 1).reshape(2 * n, 2 * d)


def of_pairs(x):
    return x[0::2] + 1j * x[1::2]


# The sum is twice as long, so that its mean would be half of that of the complex problem.
COMPLEX = LeastSquares(A, Y, RIDGE, mean=False, weights=WEIGHTS, offset=OFFSET)
REAL = LeastSquares(
    realify(A),
    pairs(Y),
    np.repeat(RIDGE, 2),
    mean=False,
    weights=np.repeat(WEIGHTS, 2),
    offset=pairs(OFFSET),
)
ENTRIES = Groups(K, np.repeat(np.arange(D), 2))


def times(x, A):
    return A @ x


OPERATOR = jaxht.LinearOperator(times, (N, D), (A,), dtype=jnp.complex64)

SOLVERS = {
    "IHT": jaxht.IHT(step_size=0.2),
    "IHT-momentum": jaxht.IHT(momentum=0.3, nesterov=True),
    "NIHT": jaxht.NIHT(),
    "CGIHT": jaxht.CGIHT(),
    "CGIHT-projected": jaxht.CGIHT(theta=3.0),
    "FIHT": jaxht.FIHT(),
    "ALPS": jaxht.ALPS(),
    "HTP": jaxht.HTP(),
    "HTP-backtrack": jaxht.HTP(backtrack=True),
    "PHT": jaxht.PHT(r=2),
    "CoSaMP": CoSaMP(),
    "GraSP": jaxht.GraSP(),
    "SubspacePursuit": jaxht.SubspacePursuit(),
    "OMP": jaxht.OMP(),
    "OLS": jaxht.OLS(),
    "OMPR": jaxht.OMPR(),
    "ELS": jaxht.ExhaustiveLocalSearch(),
    "FoBa": jaxht.FoBa(),
    "ARHT": jaxht.ARHT(num_cores=2),
    "ExhaustiveSearch": jaxht.ExhaustiveSearch(),
    "LocalSearch": jaxht.LocalSearch(num_starts=2, num_moves=4, patience=1),
    "default": None,
}
KEY = jax.random.key(0)


def minimise_on(support):
    """The minimiser of COMPLEX on a support, by NumPy in double precision."""
    columns = A[:, support].astype(complex)
    gram = columns.conj().T @ (WEIGHTS[:, None] * columns) + np.diag(RIDGE[support])
    x = np.zeros(D, complex)
    x[support] = np.linalg.solve(gram, columns.conj().T @ (WEIGHTS * (Y - OFFSET)))
    return x


@functools.cache
def solution(name):
    return jaxht.solve(COMPLEX, Sparse(K), SOLVERS[name], key=KEY)


@pytest.mark.parametrize("name", SOLVERS)
def test_solvers_find_the_best_support_and_its_minimiser(name):
    found = solution(name)
    assert found.succeeded and found.x.dtype == jnp.complex64
    assert found.value.dtype == jnp.float32
    np.testing.assert_array_equal(found.support.numpy(), SUPPORT)
    if name == "CoSaMP":  # which prunes, and does not refit
        return
    best = minimise_on(SUPPORT)
    np.testing.assert_allclose(found.x, best, atol=5e-5)
    residual = A @ best + OFFSET - Y
    value = np.sum(WEIGHTS * abs(residual) ** 2) / 2 + np.sum(RIDGE * abs(best) ** 2) / 2
    np.testing.assert_allclose(found.value, value, rtol=1e-4)


DUAL = LeastSquares(A, Y, 0.1, mean=False, weights=WEIGHTS, offset=OFFSET)
DUAL_OF_PAIRS = dataclasses.replace(REAL, l2=0.1)
DUAL_SOLVERS = {
    "DIHT": (jaxht.DIHT(), jaxht.DIHT()),
    "DIHT-diminishing": (jaxht.DIHT(2.0, diminishing=True), jaxht.DIHT(2.0, diminishing=True)),
    # The same draws: as many blocks, of the same numbers.
    "SDIHT": (jaxht.SDIHT(0.5, batch_size=5), jaxht.SDIHT(0.5, batch_size=10)),
}


@pytest.mark.parametrize("name", DUAL_SOLVERS)
def test_dual_solvers_take_the_steps_of_pairs(name):
    stop = jaxht.Stop(max_steps=15)
    solver, solver_of_pairs = DUAL_SOLVERS[name]
    found = jaxht.solve(DUAL, Sparse(K), solver, key=KEY, stop=stop)
    expected = jaxht.solve(DUAL_OF_PAIRS, ENTRIES, solver_of_pairs, key=KEY, stop=stop)
    assert found.x.dtype == jnp.complex64 and found.gap.dtype == jnp.float32
    np.testing.assert_allclose(found.x, of_pairs(expected.x), atol=1e-4)
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-4)
    # The bound of rounding errors, which is a part of both, is larger for complex numbers.
    difference = found.gap - expected.gap
    assert -1e-4 * found.value < difference < 1e-2 * found.value


def test_dual_bounds_are_below_all_values():
    with jax.enable_x64(True):
        f = LeastSquares(A.astype(complex), Y.astype(complex), 0.1, mean=False)
        best = jaxht.exhaustive_search(f, Sparse(K))
        found = jaxht.solve(f, Sparse(K), jaxht.DIHT(), stop=jaxht.Stop(max_steps=200))
        assert found.value - found.gap <= best.value <= found.value
        assert found.gap < 0.5 * found.value
        problem = jaxht.solve(f, Sparse(K), jaxht.DIHT(), stop=jaxht.Stop(gap_rtol=0.5))
        assert problem.reason == "GAP_CLOSED"


# Where entries of complex numbers and groups of pairs are not searched by the same method.
SEARCHES = ("LocalSearch", "default")


@pytest.mark.parametrize("name", [name for name in SOLVERS if name not in SEARCHES])
def test_solutions_are_those_of_pairs(name):
    found = solution(name)
    of_pairs_found = jaxht.solve(REAL, ENTRIES, SOLVERS[name], key=KEY)
    x = of_pairs(of_pairs_found.x)
    np.testing.assert_array_equal(found.x != 0, x != 0)
    np.testing.assert_allclose(found.x, x, atol=1e-4)
    np.testing.assert_allclose(found.value, of_pairs_found.value, rtol=1e-4)
    # The step size comes from a power iteration; the directions of the last steps are rounding.
    if name not in ("IHT-momentum", "ALPS", "CGIHT-projected"):
        assert found.num_steps == of_pairs_found.num_steps


@pytest.mark.parametrize("name", ["IHT", "CGIHT-projected", "FIHT", "ALPS", "HTP", "OMP"])
def test_steps_are_those_of_pairs(name):
    """Of a problem whose supports change on the way."""
    records = [
        jaxht.trace(f, constraint, SOLVERS[name], num_steps=4, record=lambda c: c.iterate.x)[1]
        for f, constraint in ((COMPLEX, Sparse(K)), (REAL, ENTRIES))
    ]
    for x, of_reals in zip(*map(np.asarray, records), strict=True):
        np.testing.assert_allclose(x, of_pairs(of_reals), atol=2e-5)
        np.testing.assert_array_equal(x != 0, of_pairs(of_reals) != 0)


@pytest.mark.parametrize(
    "solver",
    [
        jaxht.SGHT(batch_size=4),
        jaxht.HTSVRG(batch_size=4),
        jaxht.SVRGHT(batch_size=4),
        jaxht.HTSAGA(batch_size=4),
        jaxht.HSGHT(),
    ],
    ids=lambda solver: type(solver).__name__,
)
def test_stochastic_solvers_converge(solver):
    f = LeastSquares(A, A @ SIGNAL)
    stop = jaxht.Stop(max_steps=300)
    start = (0.8 + 0.1j) * SIGNAL
    found = jaxht.solve(f, Sparse(K), solver, x0=start, key=jax.random.key(0), stop=stop)
    np.testing.assert_allclose(found.x, SIGNAL, atol=5e-2)


@pytest.mark.parametrize(
    "solver",
    [
        jaxht.SGHT(0.2, inner_steps=2, replace=False),
        jaxht.HTSVRG(0.2, inner_steps=4, replace=False),
        jaxht.HTSAGA(0.05, inner_steps=4, replace=False),
        jaxht.HSGHT(0.2),
    ],
    ids=lambda solver: type(solver).__name__,
)
def test_updates_with_all_samples_are_those_of_pairs(solver):
    stop = jaxht.Stop(max_steps=3)
    found, of_reals = (
        jaxht.solve(f, constraint, dataclasses.replace(solver, batch_size=size), key=KEY, stop=stop)
        for f, constraint, size in ((COMPLEX, Sparse(K), N), (REAL, ENTRIES, 2 * N))
    )
    x = of_pairs(of_reals.x)
    np.testing.assert_array_equal(found.x != 0, x != 0)
    np.testing.assert_allclose(found.x, x, atol=1e-5)
    assert np.count_nonzero(x) == K


def test_a_gradient_is_that_of_the_pairs():
    x = draw(D).astype(np.complex64)
    pred = COMPLEX.predict(x)
    reals = REAL.predict(pairs(x))
    np.testing.assert_allclose(COMPLEX.value(x, pred), REAL.value(pairs(x), reals), rtol=1e-5)
    gradient = COMPLEX.gradient(x, pred)
    expected = of_pairs(np.asarray(REAL.gradient(pairs(x), reals)))
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)
    v = draw(D).astype(np.complex64)
    hessian = COMPLEX.hessian(x, pred)
    expected = of_pairs(np.asarray(REAL.hessian(pairs(x), reals)(pairs(v))))
    np.testing.assert_allclose(hessian(v), expected, rtol=1e-4, atol=1e-5)
    bound = REAL.majorant()
    np.testing.assert_allclose(COMPLEX.majorant().norm(), bound.norm(), rtol=0.03)
    np.testing.assert_allclose(COMPLEX.majorant().diagonal(), bound.diagonal()[::2], rtol=1e-4)


def test_entries_are_selected_by_magnitude_and_ties_by_index():
    z = jnp.array([1, -1j, 3 + 4j, 1j, 5, -5], jnp.complex64)
    x, support = Sparse(3).prepare((6,)).project(z)
    np.testing.assert_array_equal(support.numpy(), [2, 4, 5])
    np.testing.assert_array_equal(Sparse(4).prepare((6,)).project(z)[1].numpy(), [0, 2, 4, 5])
    np.testing.assert_array_equal(x, [0, 0, 3 + 4j, 0, 5, -5])
    keep = np.arange(6) == 3
    kept = Sparse(2, keep=keep).prepare((6,)).project(z)[1]
    np.testing.assert_array_equal(kept.numpy(), [2, 3])
    groups = Groups(1, np.array([0, 0, 1, 1, 2, 2])).prepare((6,))
    np.testing.assert_array_equal(groups.project(z)[1].numpy(), [4, 5])
    np.testing.assert_allclose(groups.scores(z), [2**0.5, 26**0.5, 50**0.5], rtol=1e-6)
    limited = jaxht.SparsePerGroup(3, groups=groups.groups, per_group=1).prepare((6,))
    np.testing.assert_array_equal(limited.project(z)[1].numpy(), [0, 2, 4])


def test_operators_have_the_adjoint():
    r = draw(N).astype(np.complex64)
    np.testing.assert_allclose(OPERATOR.rmatvec(r), A.conj().T @ r, rtol=1e-4, atol=1e-6)
    weights = RNG.uniform(size=N).astype(np.float32)
    np.testing.assert_allclose(OPERATOR.squared(weights), weights @ abs(A) ** 2, rtol=1e-4)
    with pytest.raises(ValueError, match="adjoint must be that of product"):
        jaxht.LinearOperator(
            lambda x: A @ x, (N, D), adjoint=lambda r: A.T @ r, dtype=jnp.complex64
        )
    f = LeastSquares(OPERATOR, Y, RIDGE, mean=False, weights=WEIGHTS, offset=OFFSET)
    found = jaxht.solve(f, Sparse(K), jaxht.HTP())
    np.testing.assert_allclose(found.x, minimise_on(SUPPORT), atol=5e-5)


FEW_ENTRIES = np.where(np.random.default_rng(5).random((N, D)) < 0.4, A, 0)
ON_SPARSE = {
    "default": None,
    "NIHT": jaxht.NIHT(),
    "HTP": jaxht.HTP(),
    "OMP": jaxht.OMP(),
    "SGHT": jaxht.SGHT(0.2, inner_steps=4, batch_size=5),
}


@pytest.mark.parametrize("name", ON_SPARSE)
def test_sparse_designs_are_the_dense_ones(name):
    f = dataclasses.replace(DUAL, A=FEW_ENTRIES)
    g = dataclasses.replace(f, A=scipy.sparse.csr_array(FEW_ENTRIES))
    stop = jaxht.Stop(max_steps=20)
    found, expected = (
        jaxht.solve(h, Sparse(K), ON_SPARSE[name], key=KEY, stop=stop) for h in (g, f)
    )
    assert found.x.dtype == jnp.complex64 and np.count_nonzero(found.x) == K
    np.testing.assert_allclose(found.x, expected.x, atol=1e-4)
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-4)


def test_the_best_support_of_a_sparse_design_is_that_of_all():
    f = LeastSquares(scipy.sparse.csc_array(FEW_ENTRIES), Y, 0.1, mean=False)
    gram = FEW_ENTRIES.conj().T @ FEW_ENTRIES.astype(complex) + 0.1 * np.eye(D)
    along = FEW_ENTRIES.conj().T @ Y
    values = [
        -np.vdot(along[S], np.linalg.solve(gram[np.ix_(S, S)], along[S])).real
        for S in map(list, itertools.combinations(range(D), K))
    ]
    found = jaxht.branch_and_bound(f, Sparse(K))
    least = (np.vdot(Y, Y).real + min(values)) / 2
    np.testing.assert_allclose(found.value, least, rtol=1e-4)


# ---- the search for the best support, on columns of which any two are nearly parallel -----------

CLOSE = (draw(10, 1) + 0.4 * draw(10, 9)).astype(np.complex64)
CLOSE_Y = (CLOSE @ np.where(np.arange(9) % 3 == 1, [1, 2j, 0, 1, -1 - 1j, 1, 1, 1.5, 2], 0)).astype(
    np.complex64
) + 0.3 * draw(10).astype(np.complex64)
HARD = LeastSquares(CLOSE, CLOSE_Y, 0.125, mean=False, weights=WEIGHTS[:10])


def least(columns):
    """The minimum of HARD on some columns, by NumPy."""
    root = np.sqrt(WEIGHTS[:10].astype(float))[:, None]
    B = np.vstack([root * CLOSE[:, columns], np.sqrt(0.125) * np.eye(len(columns))])
    b = np.append(root[:, 0] * CLOSE_Y, np.zeros(len(columns)))
    w = np.linalg.lstsq(B.astype(complex), b)[0] if columns else np.zeros(0)
    return np.sum(abs(B @ w - b) ** 2) / 2


SUPPORTS = list(itertools.combinations(range(9), K))
LEAST = np.array([least(list(support)) for support in SUPPORTS])


@pytest.mark.parametrize("name", ["ExhaustiveSearch", "LocalSearch", "default"])
def test_searches_find_the_best_of_all_supports(name):
    found = jaxht.solve(HARD, Sparse(K), SOLVERS[name])
    np.testing.assert_array_equal(found.support.numpy(), SUPPORTS[np.argmin(LEAST)])
    np.testing.assert_allclose(found.value, LEAST.min(), rtol=1e-4)
    # Which selection by magnitude does not.
    assert jaxht.solve(HARD, Sparse(K), jaxht.OMP()).value > 1.01 * LEAST.min()


def test_searches_by_refits_and_groups_find_the_best_of_all_pairs():
    groups = np.array([0, 1, 2, 3, 4, 0, 1, 2, 3])
    pairs = list(itertools.combinations(range(5), 2))
    values = [least(np.flatnonzero(np.isin(groups, pair)).tolist()) for pair in pairs]
    for solver in (SOLVERS["LocalSearch"], jaxht.ExhaustiveSearch()):
        found = jaxht.solve(HARD, Groups(2, groups), solver)
        np.testing.assert_allclose(found.value, min(values), rtol=1e-4)
    f = jaxht.Custom(energy, CLOSE, CLOSE_Y, like=jax.ShapeDtypeStruct((9,), jnp.complex64))
    found = jaxht.solve(f, Sparse(K), SOLVERS["LocalSearch"])
    best = jaxht.solve(LeastSquares(CLOSE, CLOSE_Y, mean=False), Sparse(K))
    np.testing.assert_allclose(found.x, best.x, atol=1e-3)


@pytest.mark.parametrize(
    ("A", "num_rows"),
    [
        (CLOSE, 100),
        (CLOSE, 5),  # too few for the Gram matrix
        (jaxht.LinearOperator(times, CLOSE.shape, (CLOSE,), dtype=jnp.complex64), 100),
    ],
    ids=["gram", "rows", "operator"],
)
def test_scores_of_moves_are_the_changes_of_the_minimum(A, num_rows):
    """Of coordinates that join, leave and are exchanged, refitted one by one; after the support has
    grown and shrunk by updates."""
    f = dataclasses.replace(HARD, A=A).prepare()
    space = Sparse(4).prepare((9,))
    problem = subproblem(f, space)
    S = [1, 4, 7]
    value = least(S)

    @jax.jit
    def score():
        model = QuadraticModel.of(f, num_rows)
        grown = SupportMinimum.on(model, jnp.array([1, 5, 9, 7]))
        updated = grown.insert(model, 2, jnp.array(4)).remove(1)
        gains = problem.insertion_gains(space.support(updated.selected))
        return [
            (minimum, minimum.insertion_gains(), minimum.removal_losses(), minimum.swap_gains())
            for minimum in (updated, SupportMinimum.on(model, updated.indices))
        ], gains

    both, gains = score()
    outside = [j for j in range(9) if j not in S]
    expected = np.array([value - least([*S, j]) for j in outside])
    np.testing.assert_allclose(gains[np.array(outside)], expected, rtol=2e-3)
    for minimum, joins, leaves, swaps in both:
        np.testing.assert_array_equal(minimum.indices, [1, 9, 4, 7])
        np.testing.assert_allclose(joins[np.array(outside)], expected, rtol=2e-3)
        for slot, i in ((0, 1), (2, 4), (3, 7)):
            rest = [j for j in S if j != i]
            np.testing.assert_allclose(leaves[slot], least(rest) - value, rtol=2e-3)
            after = [value - least([*rest, j]) for j in outside]
            np.testing.assert_allclose(swaps[slot][np.array(outside)], after, rtol=2e-3, atol=1e-3)


def energy(x, A, y):
    return jnp.sum(jnp.abs(A @ x - y) ** 2) / 2


def test_custom_functions_of_complex_numbers():
    f = jaxht.Custom(energy, A, Y, like=jax.ShapeDtypeStruct((D,), jnp.complex64))
    x = draw(D).astype(np.complex64)
    np.testing.assert_allclose(f.gradient(x, x), A.conj().T @ (A @ x - Y), rtol=1e-3, atol=1e-4)
    reference = jaxht.solve(LeastSquares(A, Y, mean=False), Sparse(K), jaxht.HTP())
    for solver in (jaxht.NIHT(), jaxht.HTP()):
        found = jaxht.solve(f, Sparse(K), solver)
        np.testing.assert_allclose(found.x, reference.x, atol=5e-5)


def test_lanes_a_path_and_a_real_design():
    ys = np.stack([Y, 1j * Y, Y[::-1]])
    solve = jax.jit(jax.vmap(lambda y: jaxht.solve(LeastSquares(A, y), Sparse(K), jaxht.HTP())))
    xs = solve(ys).x
    np.testing.assert_allclose(xs[1], 1j * xs[0], atol=2e-5)
    path = jaxht.path(LeastSquares(A, Y), Sparse(), jaxht.OMP(), ks=[1, 3])
    np.testing.assert_allclose(path.x[1], xs[0], atol=2e-5)
    assert np.count_nonzero(path.x[0]) == 1
    # Real columns and complex targets: the parts are fitted on one support.
    found = jaxht.solve(LeastSquares(A.real, Y, mean=False), Sparse(2), jaxht.OMP())
    columns = A.real[:, found.support.numpy()]
    parts = np.linalg.lstsq(columns, np.stack([Y.real, Y.imag], 1), rcond=None)[0]
    np.testing.assert_allclose(found.x[found.x != 0], parts[:, 0] + 1j * parts[:, 1], atol=1e-4)


def test_a_real_x_under_complex_products():
    """The operator of the stacked parts, as docs/guides/signals.md has it, against their matrix."""

    def parts(v, F):
        image = F @ v.astype(complex)
        return jnp.concatenate([image.real, image.imag])

    stacked = np.concatenate([A.real, A.imag])
    B = jaxht.LinearOperator(parts, (2 * N, D), (OPERATOR,))
    y = np.concatenate([Y.real, Y.imag])
    np.testing.assert_allclose(B.rmatvec(y), stacked.T @ y, rtol=1e-4, atol=1e-5)
    found, expected = (
        jaxht.solve(LeastSquares(design, y, mean=False), Sparse(K), jaxht.HTP())
        for design in (B, stacked)
    )
    np.testing.assert_allclose(found.x, expected.x, atol=1e-4)


def test_derivatives_of_a_solution():
    direction = [draw(*v.shape).astype(np.complex64) for v in (A, Y)]

    def minimiser(t):
        f = LeastSquares(A + t * direction[0], Y + t * direction[1], 0.1, mean=False)
        return jaxht.solve(f, Sparse(K), jaxht.HTP()).x

    def size(t):
        return jnp.sum(jnp.abs(minimiser(t)[SUPPORT]) ** 2 * np.arange(1, 4))

    h = 2e-3
    _, derivative = jax.jvp(minimiser, (0.0,), (1.0,))
    expected = (minimiser(h) - minimiser(-h)) / (2 * h)
    np.testing.assert_allclose(derivative, expected, atol=5e-3)
    np.testing.assert_allclose(jax.grad(size)(0.0), (size(h) - size(-h)) / (2 * h), rtol=2e-2)


class OfRealNumbers(jaxht.IHT):
    """A solver that does not take complex numbers."""

    takes_complex = False


REFUSED = {
    "bounds": (
        "bounds must be None for complex",
        lambda: jaxht.solve(COMPLEX, Sparse(2, nonnegative=True), jaxht.HTP()),
    ),
    "a solver": (
        "solver must take complex numbers",
        lambda: jaxht.solve(COMPLEX, Sparse(2), OfRealNumbers()),
    ),
    "a rank": (
        "constraint must select entries",
        lambda: jaxht.solve(
            jaxht.Custom(lambda x: jnp.sum(abs(x) ** 2), like=np.zeros((3, 3), np.complex64)),
            jaxht.LowRank(1),
        ),
    ),
    "responses of low rank": (
        "constraint must select entries",
        lambda: jaxht.solve(jaxht.MultiResponse(A, Y[:, None]), jaxht.LowRank(1)),
    ),
    "Huber": (
        "LeastSquares and MultiResponse take complex",
        lambda: jaxht.Huber(A, Y).prepare(),
    ),
    "a stream": (
        "A must be an array, a sparse matrix or a LinearOperator",
        lambda: LeastSquares(jaxht.designs.Integers.build(np.ones((N, D), np.int8)), Y).prepare(),
    ),
    "a real operator": (
        "A must have a complex dtype",
        lambda: LeastSquares(jaxht.LinearOperator(lambda x: x, (D, D)), draw(D)).prepare(),
    ),
    "x0": (
        "x0 must be real",
        lambda: jaxht.solve(LeastSquares(A.real, Y.real), Sparse(2), jaxht.IHT(), x0=SIGNAL),
    ),
    "moments": (
        "products must be real",
        lambda: jaxht.MomentLeastSquares(np.eye(2), np.ones(2, np.complex64)).prepare(),
    ),
    "x": (
        "x must be real",
        lambda: jaxht.optimality(LeastSquares(A.real, Y.real), Sparse(K), SIGNAL),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_complex_form_says_so(name):
    words, call = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        call()


def test_recovery_of_a_complex_support():
    signal = jnp.asarray(SIGNAL)
    assert jaxht.metrics.exact_recovery(1j * signal, signal)
    assert jaxht.metrics.success(signal, signal)
