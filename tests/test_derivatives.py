"""Derivatives of solutions next to finite differences, for every solver; where there are none they
are NaN."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.sparse

import jaxht
from jaxht import solvers
from jaxht.linalg.eigenvalues import random_vector
from jaxht.linalg.full_precision import matmul
from jaxht.subproblems import subproblem
from tests.derivatives import NOT_MINIMISERS, PROBLEMS, D, K, N, compare, data, make_solver
from tests.test_programs import solver_names
from tests.util import check_slopes, quick, slopes, x64

pytestmark = pytest.mark.usefixtures("all_quickly")

# These have their turn on every problem, and each of the others on one of those losses that compile
# fast.
SAMPLE = ("HTP", "HTSAGA", "IHT", "NIHT", "OMP")
IN_TURN = ("huber", "logistic", "smoothed hinge", "hinge", "poisson", "gamma")


def solvers_on(problem):
    if problem not in IN_TURN:
        return SAMPLE
    others = [name for name in solver_names() if name not in SAMPLE]
    return *SAMPLE, *others[IN_TURN.index(problem) :: len(IN_TURN)]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_solutions(problem):
    """Of every solver; all that the theorem sees of it is its x. `python -m tests.derivatives`
    leaves out no pair."""
    with x64():
        found = {name: compare(problem, name) for name in solvers_on(problem)}
    checked = {name: errors for name, errors in found.items() if errors is not None}
    assert len(checked) >= 3
    assert not {name: errors for name, errors in checked.items() if not errors.right}
    without = {name for name, errors in checked.items() if np.isnan(errors.forward)}
    assert without <= NOT_MINIMISERS | ({"NIHT"} if problem == "hinge" else set())


@pytest.mark.parametrize(
    ("problem", "name"),
    [("squares", name) for name in solver_names()]
    + [(problem, "HTP") for problem in ("huber", "logistic", "poisson")],
)
def test_solvers(problem, name):
    """By A, y, the ridge and the weights, of x and of f, through the solve itself; or NaN."""
    at, along, c = data()
    make, constraint, has_targets = PROBLEMS[problem]
    if not has_targets:
        along = along[0], np.zeros(N), *along[2:]

    def function(A, y, l2, w):
        result = jaxht.solve(
            make(A, y, l2, w), constraint, make_solver(name), key=jax.random.key(0)
        )
        return jnp.vdot(c, result.x) + 0.3 * result.value

    with x64():
        forward, reverse, difference = slopes(function, at, along)
    if np.isnan(forward):
        assert name in NOT_MINIMISERS and np.isnan(reverse)
        return
    np.testing.assert_allclose(forward, difference, rtol=1e-6)
    np.testing.assert_allclose(reverse, forward, rtol=1e-8)


def as_operator(A):
    return jaxht.LinearOperator(lambda v, A: matmul(A, v), A.shape, (A,))


@pytest.mark.parametrize(
    "solution",
    {
        "groups": lambda A, y, t: jaxht.solve(
            jaxht.Logistic(A, jnp.sign(y), t), jaxht.Groups(2, np.arange(D) // 2), jaxht.HTP()
        ),
        "sparse design": lambda A, y, t: jaxht.solve(
            jaxht.LeastSquares(scipy.sparse.csr_array(A * (np.abs(A) > 0.3)), y, t, mean=False),
            jaxht.Sparse(K),
            jaxht.HTP(),
        ),
        "operator": lambda A, y, t: jaxht.solve(
            jaxht.LeastSquares(as_operator(A), y, t, mean=False), jaxht.Sparse(K), jaxht.NIHT()
        ),
        "function": lambda A, y, t: jaxht.solve(
            jaxht.Custom(lambda x, t: jnp.sum((A @ x - y) ** 2) + t * jnp.sum(x**4), t, like=D),
            jaxht.Sparse(K),
            jaxht.HTP(),
        ),
        "graph": lambda A, y, t: jaxht.solve(
            jaxht.GaussianPrecision(jnp.cov(A.T) + (0.1 + t) * jnp.eye(D)),
            jaxht.Edges(5),
            jaxht.HTP(),
        ),
        "rows": lambda A, y, t: jaxht.solve(
            jaxht.MultiResponse(A, jnp.stack([y, y**2], 1), t),
            jaxht.Groups(K, np.repeat(np.arange(D)[:, None], 2, axis=1)),
            jaxht.HTP(),
        ),
        "x0 is no part of it": lambda A, y, t: jaxht.solve(
            jaxht.LeastSquares(A, y, t, mean=False), jaxht.Sparse(K), jaxht.HTP(), x0=jnp.full(D, t)
        ),
    }.values(),
    ids=lambda solution: "",
)
def test_other_problems(solution):
    (A, y, *_), _, _ = data(1)
    with x64():
        check_slopes(lambda t: jnp.sum(jnp.sin(solution(A, y, t).x)), (0.1,), (1.0,))


@pytest.mark.parametrize(
    "solver", [solvers.IHT(), solvers.HTP(), solvers.NIHT()], ids=["IHT", "HTP", "NIHT"]
)
@pytest.mark.parametrize("nonnegative", [False, True])
def test_bounds(solver, nonnegative):
    """Coordinates at a bound move with it, and the others with them."""
    (A, y, *_), (_, y_dot, *_), c = data()

    def function(y, lower, upper):
        constraint = jaxht.Sparse(K, bounds=(lower, upper), nonnegative=nonnegative)
        x = jaxht.solve(jaxht.LeastSquares(A, y, 0.1, mean=False), constraint, solver).x
        return jnp.vdot(c, x), x

    with x64():
        at = y, np.full(D, -1.2), np.full(D, 1.3)
        x = np.asarray(quick(function)(*at)[1])
        assert x[0] == 1.3 and (x[1] == -1.2 or nonnegative)
        lower_dot = np.zeros(D) if nonnegative else np.linspace(1, 2, D)
        check_slopes(lambda *at: function(*at)[0], at, (y_dot, lower_dot, np.linspace(-1, 1, D)))


@pytest.mark.parametrize("solver", [solvers.HTP(), solvers.IHT()], ids=["HTP", "IHT"])
def test_low_rank(solver):
    """The column and row spaces of x move, on the curved manifold of the matrices of its rank."""
    (A, _, l2, _), (A_dot, *_), _ = data()
    rng = np.random.default_rng(2)
    Y, C, Y_dot = rng.normal(size=(N, 4)), rng.normal(size=(D, 4)), rng.normal(size=(N, 4))

    def function(A, Y, l2):
        result = jaxht.solve(jaxht.MultiResponse(A, Y, l2), jaxht.LowRank(2), solver)
        return jnp.vdot(C, result.x) + result.value

    with x64():
        check_slopes(function, (A, Y, l2), (A_dot, Y_dot, 1.0))


def completion(y, l2, **options):
    """Of two large singular values; and with a column of factors that stays 0."""
    rng = np.random.default_rng(4)
    rows, columns = np.nonzero(rng.random((7, 6)) < 0.9)
    target = (rng.normal(size=(7, 2)) @ rng.normal(size=(2, 6)) + 0.1 * rng.normal(size=(7, 6)))[
        rows, columns
    ]
    f = jaxht.matrix_completion(rows, columns, target + y, (7, 6), l2=l2, mean=False)
    return jaxht.solve(f, jaxht.LowRank(2, k_max=3, **options), jaxht.IHT())


def test_completion():
    """Of observed entries."""
    C = np.random.default_rng(3).normal(size=(7, 6))
    with x64():
        check_slopes(
            lambda *at: jnp.vdot(C, completion(*at).x),
            (np.zeros(32), 0.1),
            (np.cos(np.arange(32)), 1.0),
        )


def test_factors():
    """The value, the matrix, singular values, and the two spaces: what is a function of the
    decomposition."""
    C = np.random.default_rng(3).normal(size=(7, 7))

    def function(*at):
        result = completion(*at, factored=True)
        U, s, V = result.x.U, result.x.s, result.x.V
        spaces = jnp.vdot(C, U @ U.T), jnp.vdot(C[:6, :6], V @ V.T)
        return jnp.stack(
            [result.value, jnp.vdot(C[:, :6], result.x.dense()), s @ C[0, :3], *spaces]
        )

    with x64():
        check_slopes(function, (np.zeros(32), 0.1), (np.cos(np.arange(32)), 1.0))


def test_factors_of_equal_singular_values():
    """Their vectors have no derivatives, and neither has what is made of them."""
    A, Y = jnp.eye(4), jnp.diag(jnp.array([2.0, 2.0, 0.5]), 1)[:, 1:]

    def solution(l2):
        return jnp.sum(
            jaxht.solve(
                jaxht.MultiResponse(A, Y, l2), jaxht.LowRank(2, factored=True), jaxht.IHT()
            ).x.U
        )

    with x64():
        assert np.isnan(jax.grad(solution)(0.1)) and np.isnan(jax.jvp(solution, (0.1,), (1.0,))[1])


def test_conditions_of_factors():
    """As of arrays; and that singular values differ."""
    f, rank_two = (
        jaxht.MultiResponse(jnp.eye(4), jnp.diag(jnp.array([3.0, 2, 1, 0.5]))),
        jaxht.LowRank(2),
    )
    tied = dataclasses.replace(f, y=jnp.diag(jnp.array([2.0, 2, 1, 0.5])))
    with_values = functools.partial(
        dataclasses.replace, jaxht.Factored(jnp.eye(4, 2), jnp.zeros(2), jnp.eye(4, 2))
    )
    factors = with_values(s=jnp.array([3.0, 2]))
    assert all(jaxht.differentiability(f, rank_two, factors))
    assert not jaxht.differentiability(f, jaxht.LowRank(3), factors).separated
    assert not jaxht.differentiability(f, rank_two, with_values(s=jnp.array([6.0, 4]))).stationary
    equal = with_values(s=jnp.array([2.0, 2]))
    assert jaxht.differentiability(tied, rank_two, equal.dense()).exists
    assert [bool(holds) for holds in jaxht.differentiability(tied, rank_two, equal)[:2]] == [
        True,
        False,
    ]
    with pytest.raises(ValueError, match="objective must take factored iterates"):
        jaxht.differentiability(
            jaxht.matrix_sensing(jnp.ones((3, 4, 4)), jnp.ones(3), mean=False), rank_two, factors
        )
    with pytest.raises(ValueError, match="x must be an array"):
        jaxht.optimality(f, rank_two, factors, swaps=False)


SECOND = {
    "sparse": lambda t: jaxht.solve(jaxht.Logistic(*signs(), t), jaxht.Sparse(K), jaxht.HTP()).x,
    "low rank": lambda t: completion(0, t).x,
    "factors": lambda t: completion(0, t, factored=True).x.dense(),
}


def signs():
    (A, y, *_), _, _ = data()
    return A, jnp.sign(y)


@pytest.mark.parametrize("solution", SECOND.values(), ids=SECOND)
def test_second_derivatives(solution):
    def function(t):
        x = solution(t)
        return jnp.vdot(np.cos(np.arange(x.size)), x)

    with x64():
        check_slopes(jax.grad(function), (0.1,), (1.0,))


def test_paths_and_validation():
    (A, y, l2, w), along, c = data()

    def of_path(both_ways, A, y, l2, w):
        f = jaxht.LeastSquares(A, y, l2, weights=w, mean=False)
        found = jaxht.path(f, jaxht.Sparse(1), jaxht.HTP(), ks=[1, 2, 4], both_ways=both_ways)
        return jnp.vdot(jnp.arange(1.0, 4), found.x @ c + found.value)

    def of_validation(A, y, l2, w):
        train, held_out = (jaxht.LeastSquares(A[part], y[part], l2 * (part.start is None), weights=w[part], mean=False)
                           for part in (slice(25), slice(25, N)))  # fmt: skip
        return jnp.sum(
            jaxht.validate(train, held_out, jaxht.Sparse(1), jaxht.HTP(), ks=[2, 3]).losses
        )

    with x64():
        for function in (
            functools.partial(of_path, False),
            functools.partial(of_path, True),
            of_validation,
        ):
            check_slopes(function, (A, y, l2, w), along)


def test_a_lane_without_a_minimiser_spoils_no_other():
    (A, y, *_), _, c = data()

    @quick
    @functools.partial(jax.vmap, in_axes=(0, None))
    @jax.value_and_grad
    def lanes(l2, y):
        return jnp.vdot(
            c, jaxht.solve(jaxht.LeastSquares(A, y, l2, mean=False), jaxht.Sparse(K), jaxht.HTP()).x
        )

    with x64():
        gradients = lanes(jnp.array([0.1, np.nan, 0.2]), y)[1]
        assert np.isnan(gradients[1])
        np.testing.assert_allclose(gradients[::2], lanes(jnp.array([0.1, 0.2]), y)[1], rtol=1e-12)


def test_points_that_are_no_minimisers_have_none():
    """A run that was cut off; and the gap of a dual solver, of which nothing is known."""
    (A, y, *_), _, _ = data()

    def cut_off(l2):
        f = jaxht.LeastSquares(A, y, l2, mean=False)
        return jnp.sum(jaxht.solve(f, jaxht.Sparse(K), jaxht.IHT(), stop=jaxht.Stop(max_steps=3)).x)

    def gap(l2):
        return jaxht.solve(
            jaxht.LeastSquares(A, y, l2, mean=True), jaxht.Sparse(K), jaxht.DIHT()
        ).gap

    def of_products(l2):
        f = jaxht.LeastSquares(as_operator(A), y, l2, mean=False)
        return jnp.sum(jaxht.solve(f, jaxht.Sparse(K), jaxht.IHT(), stop=jaxht.Stop(max_steps=3)).x)

    def of_function(l2):
        f = jaxht.Custom(lambda x, l2: jnp.sum((A @ x - y) ** 2) + l2 * jnp.sum(x**4), l2, like=D)
        return jnp.sum(jaxht.solve(f, jaxht.Sparse(K), jaxht.IHT(), stop=jaxht.Stop(max_steps=3)).x)

    def of_matrices(l2):
        f = jaxht.MultiResponse(A, jnp.stack([y, y**2, jnp.sin(y)], 1), l2)
        return jnp.sum(
            jaxht.solve(f, jaxht.LowRank(2), jaxht.IHT(), stop=jaxht.Stop(max_steps=3)).x
        )

    def of_graph(l2):
        f = jaxht.GaussianPrecision(jnp.cov(A.T) + l2 * jnp.eye(D))
        return jnp.sum(jaxht.solve(f, jaxht.Edges(5), jaxht.NIHT(), stop=jaxht.Stop(max_steps=1)).x)

    with x64():
        for function in (cut_off, gap, of_products, of_function, of_matrices, of_graph):
            assert np.isfinite(function(0.1))
            assert np.isnan(jax.grad(function)(0.1)) and np.isnan(
                jax.jvp(function, (0.1,), (1.0,))[1]
            )


@pytest.mark.parametrize("name", ["HTP", "IHT"])
def test_derivatives_of_the_steps(name):
    """Where a run converges they are those of the solution; also by the step size, and where it was
    cut off."""
    (A, y, *_), _, c = data()

    def function(adjoint, max_steps, l2, step_size):
        solver = jaxht.IHT(step_size) if name == "IHT" else getattr(solvers, name)()
        stop = jaxht.Stop(max_steps=max_steps, rtol=0.0)
        return jnp.vdot(
            c,
            jaxht.solve(
                jaxht.LeastSquares(A, y, l2, mean=False),
                jaxht.Sparse(K),
                solver,
                stop=stop,
                adjoint=adjoint,
            ).x,
        )

    with x64():
        check_slopes(
            functools.partial(function, "checkpointed", 3),
            (0.1, 0.01),
            (1.0, 0.0 if name != "IHT" else 0.01),
        )
        at = 0.1, 0.01
        of_steps, of_solution = (quick(jax.grad(functools.partial(function, adjoint, 400), (0, 1)))(*at)
                                 for adjoint in ("checkpointed", "implicit"))  # fmt: skip
        np.testing.assert_allclose(of_steps, of_solution, rtol=1e-9, atol=1e-12)
        assert jax.grad(functools.partial(function, "none", 400))(*at) == 0


def test_adjoint_is_checked():
    f = jaxht.LeastSquares(jnp.eye(3), jnp.ones(3), mean=False)
    with pytest.raises(ValueError, match="adjoint must be one of"):
        jaxht.solve(f, jaxht.Sparse(1), jaxht.IHT(), adjoint="direct")
    with pytest.raises(ValueError, match="max_steps must be a Python int"):
        jax.jit(
            lambda m: jaxht.solve(
                f, jaxht.Sparse(1), jaxht.IHT(), stop=jaxht.Stop(m), adjoint="checkpointed"
            )
        )(5)


def test_memory_of_the_gradient():
    """That of the theorem does not depend on the number of steps; that of the steps grows with its
    root."""
    (A, y, *_), _, c = data()

    def size(adjoint, max_steps):
        def function(l2):
            stop = jaxht.Stop(max_steps=max_steps)
            f = jaxht.LeastSquares(A, y, l2, mean=False)
            return jnp.vdot(
                c, jaxht.solve(f, jaxht.Sparse(K), jaxht.IHT(), stop=stop, adjoint=adjoint).x
            )

        return quick(jax.grad(function)).lower(0.1).compile().memory_analysis().temp_size_in_bytes

    assert size("implicit", 10) == size("implicit", 10_000)
    assert size("checkpointed", 10_000) < 60 * size("checkpointed", 10)


def test_where_there_are_none():
    """A singular Hessian on the support: NaN, and so say the conditions."""
    (A, y, *_), _, c = data()
    A[:, 1] = A[:, 0]

    def function(l2):
        f = jaxht.LeastSquares(A, y, l2, mean=False)
        return jnp.vdot(c, jaxht.solve(f, jaxht.Sparse(5), jaxht.IHT()).x)

    def conditions(l2):
        f = jaxht.LeastSquares(A, y, l2, mean=False)
        return jaxht.differentiability(
            f, jaxht.Sparse(5), jaxht.solve(f, jaxht.Sparse(5), jaxht.IHT()).x
        )

    with x64():
        for l2, regular in ((0.0, False), (1e-2, True)):
            l2 = jnp.asarray(l2)
            assert np.isfinite(quick(jax.grad(function))(l2)) == regular
            found = quick(conditions)(l2)
            assert found.stationary and found.regular == regular and found.exists == regular


def designs(kind, precision, k=6, n=20, count=60):
    """Columns of different lengths whose Hessian has a null vector, or a condition number that is
    well resolved."""
    rng, scales = (
        np.random.default_rng(7),
        np.logspace(-0.5, 0.5, k) ** (1 + (precision == "float64")),
    )
    for _ in range(count):
        B, v = rng.normal(size=(n, k)), rng.normal(size=k)
        if kind == "two columns":
            v = np.eye(k)[1] - np.eye(k)[4]
        elif kind == "two pairs":
            v = np.array([1.0, 1, -1, -1, 0, 0])
        elif (
            kind == "orthogonal"
        ):  # to the vector that the search for it starts from, in units of the columns
            start = np.asarray(random_vector(k, jnp.dtype(precision)), float)
            for _ in range(100):
                g = start * np.linalg.norm(B - np.outer(B @ v, v) / (v @ v), axis=0)
                v -= g * (g @ v) / (g @ g)
            assert abs(g @ v) < 1e-14 * np.linalg.norm(v)
        elif kind == "regular":
            Q, _ = np.linalg.qr(B)
            V, _ = np.linalg.qr(rng.normal(size=(k, k)))
            yield (Q * np.logspace(0, -3 if precision == "float64" else -1, k)) @ V * scales
            continue
        yield (B - np.outer(B @ v, v) / (v @ v)) * scales


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize(
    "kind", ["any", "two columns", "two pairs", "orthogonal", "zeros", "regular"]
)
def test_singular_hessians_are_seen(kind, precision):
    """By a factor and by conjugate gradients, whatever the null vector is."""
    x = np.array([1, 1, 1, 1, 2, 1e-3])

    def regular(make, A):
        f = jaxht.LeastSquares(make(A), jnp.ones(20), mean=False).prepare()
        support = jaxht.Support(jnp.ones(6, bool), k_max=6)
        return subproblem(f, support).regularity(support, x.astype(precision)).regular

    with x64(precision == "float64"):
        As = np.array(list(designs(kind, precision)))
        if kind == "zeros":
            As[:, :, 2] = 0
        for make in (jnp.asarray, as_operator):
            found = quick(jax.vmap(functools.partial(regular, make)))(As.astype(precision))
            assert (found == (kind == "regular")).all()


def conditions_of(y, constraint, x, A=None):
    f = jaxht.LeastSquares(np.eye(4) if A is None else A, np.asarray(y), mean=False)
    found = jaxht.differentiability(f, constraint, np.asarray(x))
    return [bool(holds) for holds in (*found, found.exists, found.two_sided)]


def test_conditions():
    """Of the identity, for which everything is known: stationary, regular, strict, separated,
    exists, two-sided."""
    with x64():
        sparse = jaxht.Sparse(2)
        assert conditions_of([4.0, 3, 2, 1], sparse, [4.0, 3, 0, 0]) == [True] * 6
        assert conditions_of([4.0, 3, 2, 1], sparse, [4.0, 3.1, 0, 0]) == [
            False,
            True,
            True,
            True,
            False,
            False,
        ]
        tie = [True, True, True, False, True, False]
        assert conditions_of([4.0, 3, 3, 1], sparse, [4.0, 3, 0, 0]) == tie
        assert conditions_of([4.0, 0, 0, 0], sparse, [4.0, 0, 0, 0]) == tie  # any other may enter
        assert (
            conditions_of([4.0, 3, 2, 1], jaxht.Sparse(4), [4.0, 3, 2, 1]) == [True] * 6
        )  # there is no other
        bounded = jaxht.Sparse(2, bounds=(None, 3.0))
        assert conditions_of([4.0, 2, 1, 1], bounded, [3.0, 2, 0, 0]) == [True] * 6
        assert conditions_of([3.0, 2, 1, 1], bounded, [3.0, 2, 0, 0]) == [
            True,
            True,
            False,
            True,
            True,
            False,
        ]
        groups = jaxht.Groups(1, np.array([0, 0, 1, 1]))
        assert conditions_of([4.0, 3, 2, 1], groups, [4.0, 3, 0, 0]) == [True] * 6
        assert conditions_of([4.0, 3, 3, 4], groups, [4.0, 3, 0, 0])[3] is False


@pytest.mark.parametrize(
    ("constraint", "y", "x", "is_separated"),
    [
        # What clipping to 2 leaves of 4 gains as much as the root of 12.
        (
            jaxht.Sparse(1, bounds=(None, np.array([2.0, 9, 9, 9]))),
            [4.0, 12**0.5, 1, 0],
            [2.0, 0, 0, 0],
            False,
        ),
        (
            jaxht.Sparse(1, bounds=(None, np.array([2.0, 9, 9, 9]))),
            [4.0, 2, 1, 0],
            [2.0, 0, 0, 0],
            True,
        ),
        # An item that is kept cannot leave.
        (jaxht.Sparse(2, keep=np.arange(4) == 0), [1.0, 5, 1, 0], [1.0, 5, 0, 0], True),
        (jaxht.Sparse(2, keep=np.arange(4) == 0), [0.0, 5, 1, 0], [0.0, 5, 0, 0], True),
        (jaxht.Sparse(2, keep=np.arange(4) == 0), [9.0, 5, 5, 0], [9.0, 5, 0, 0], False),
        (
            jaxht.Groups(2, np.arange(4), keep=np.arange(4) == 0),
            [1.0, 3, 1, 0],
            [1.0, 3, 0, 0],
            True,
        ),
        (
            jaxht.SparsePerGroup(
                2, groups=np.array([0, 0, 1, 1]), per_group=1, keep=np.arange(4) == 0
            ),
            [1.0, 1, 3, 0],
            [1.0, 0, 3, 0],
            True,
        ),
    ],
)
def test_ties_are_those_of_the_projection(constraint, y, x, is_separated):
    with x64():
        assert conditions_of(y, constraint, x)[3] is is_separated


def test_one_sided_derivatives():
    """At a bound that just became active they are those of the side on which the coordinate stays
    at it."""

    def function(y):
        constraint = jaxht.Sparse(2, bounds=(None, 3.0))
        return jnp.sum(
            jaxht.solve(jaxht.LeastSquares(jnp.eye(4), y, mean=False), constraint, jaxht.HTP()).x
        )

    with x64():
        up, down = (jax.grad(function)(jnp.array([3.0 + h, 2, 1, 1])) for h in (1e-9, -1e-4))
        np.testing.assert_allclose(up, [0.0, 1, 0, 0], atol=1e-8)
        np.testing.assert_allclose(down, [1.0, 1, 0, 0], atol=1e-8)


# ---- what else is differentiable -----------------------------------------------------------------


def test_certificates():
    """The bound at the maximum of the dual, and f(x) plus a constant."""
    (A, y, _, w), (A_dot, y_dot, _, w_dot), _ = data()

    def bounds(make, A, y, l2, w):
        f = make(A, y, l2, w)
        x = jaxht.solve(f, jaxht.Sparse(K), jaxht.HTP()).x
        found = jaxht.certify(f, jaxht.Sparse(K), x)
        return found.lower + 0.3 * found.value

    with x64():
        at = (A, y, 1.0, w)
        check_slopes(
            functools.partial(bounds, PROBLEMS["squares"].objective), at, (A_dot, y_dot, 0.1, w_dot)
        )
        check_slopes(
            functools.partial(bounds, PROBLEMS["huber"].objective), at, (A_dot, y_dot, 0.1, w_dot)
        )


@pytest.mark.parametrize("radius", [0.5, 100.0])
def test_projections(radius):
    """The mask of the kept entries, the ball's tangent, and matrices whose spaces move."""
    rng = np.random.default_rng(5)
    z, z_dot, c = rng.normal(size=(3, 12))
    Z, Z_dot, C = (v.reshape(4, 3) for v in (z, z_dot, c))
    with x64():
        check_slopes(lambda z: jnp.vdot(c, jaxht.projections.hard_threshold(z, 5)), (z,), (z_dot,))
        mask = jax.jacobian(lambda z: jaxht.projections.hard_threshold(z, 5))(z)
        np.testing.assert_array_equal(mask, np.diag(np.abs(z) >= np.sort(np.abs(z))[-5]))
        check_slopes(
            lambda z, w: jnp.vdot(c, jaxht.projections.l2_ball(z, w)), (z, radius), (z_dot, 0.3)
        )
        check_slopes(
            lambda z, w: jnp.vdot(c, jaxht.projections.sparse_l2_ball(z, 5, w)),
            (z, radius),
            (z_dot, 0.3),
        )
        check_slopes(lambda Z: jnp.vdot(C, jaxht.projections.low_rank(Z, 2)), (Z,), (Z_dot,))


def test_transforms_under_an_outer_objective():
    """The step size and the start of a few training steps with hard thresholding, by the loss after
    them."""
    (A, y, *_), _, _ = data()
    p, p_dot = np.random.default_rng(6).normal(size=(2, D))
    chains = {
        "hard": lambda eta: optax.chain(optax.sgd(eta), jaxht.transforms.hard_threshold(4)),
        "adam, ball": lambda eta: optax.chain(
            optax.adam(eta), jaxht.transforms.hard_threshold(4), jaxht.transforms.l2_ball(1.5)
        ),
        "rank": lambda eta: optax.chain(optax.sgd(eta), jaxht.transforms.low_rank(2)),
    }

    def outer(make, shape, eta, p):
        def inner(p):
            return jnp.mean((A @ p.ravel() - y) ** 2)

        p, tx = p.reshape(shape), make(eta)
        state = tx.init(p)
        for _ in range(3):
            updates, state = tx.update(jax.grad(inner)(p), state, p)
            p = optax.apply_updates(p, updates)
        return inner(p)

    with x64():
        for name, make in chains.items():
            shape = (4, 3) if name == "rank" else (D,)
            check_slopes(functools.partial(outer, make, shape), (0.05, p), (0.1, p_dot), rtol=1e-5)
