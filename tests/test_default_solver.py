"""The solver that runs where none is given."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxht
from jaxht import HTP, IHT, NIHT, ExhaustiveSearch, LeastSquares, LocalSearch, Logistic, Sparse
from tests.util import host, quick

RNG = np.random.default_rng(0)
A = RNG.normal(size=(40, 12)).astype(np.float32)
Y = A[:, 3] - 2 * A[:, 7] + 0.1 * RNG.normal(size=40).astype(np.float32)
WIDE = RNG.normal(size=(40, 60)).astype(np.float32)
TALL = RNG.normal(size=(60, 30)).astype(np.float32)


def shapes(n, d):
    """Data that has a shape alone: nothing is computed."""
    return jax.ShapeDtypeStruct((n, d), jnp.float32), jax.ShapeDtypeStruct((n,), jnp.float32)


def chosen(objective, constraint):
    """The default on data of some shape."""
    found = []
    jax.eval_shape(lambda f: found.append(jaxht.default_solver(f, constraint)), objective)
    return found[0]


def operator():
    return jaxht.LinearOperator(lambda x, A: A @ x, (40, 12), (jnp.asarray(A),))


@pytest.mark.parametrize(
    ("objective", "constraint", "solver"),
    [
        (LeastSquares(A, Y, mean=False), Sparse(2), ExhaustiveSearch()),
        (LeastSquares(WIDE, Y, mean=False), Sparse(4), LocalSearch()),
        (Logistic(WIDE, np.sign(Y), 1e-2), Sparse(4), LocalSearch(patience=4)),
        (Logistic(TALL, np.sign(TALL[:, 0])), Sparse(4), LocalSearch(patience=4, num_candidates=1)),
        (
            Logistic(A, np.sign(Y), 1e-2),
            jaxht.Groups(2, np.arange(12) // 3),
            ExhaustiveSearch(),
        ),
        (LeastSquares(operator(), Y, mean=False), Sparse(2), HTP()),
        (jaxht.MultiResponse(A, A[:, :3]), jaxht.LowRank(2), HTP()),
        (
            jaxht.matrix_completion(np.arange(4), np.arange(4), Y[:4], shape=(9, 8), mean=False),
            jaxht.LowRank(2, factored=True),
            IHT(),
        ),
        (jaxht.GaussianPrecision(np.eye(4, dtype=np.float32)), jaxht.Edges(2), HTP()),
    ],
    ids=["few", "many", "wide", "tall", "groups", "operator", "low rank", "factors", "graph"],
)
def test_the_default_follows_from_the_kinds(objective, constraint, solver):
    assert repr(jaxht.default_solver(objective, constraint)) == repr(solver)


def test_searches_shrink_as_problems_grow():
    """Fewer refits of larger problems; designs whose columns are not gathered have one start."""
    squares = [
        chosen(LeastSquares(*shapes(n, d), 1e-3, mean=False), Sparse(10))
        for n, d in [(60, 2000), (1000, 20_000)]
    ]
    logistic = [
        chosen(Logistic(*shapes(n, d), 1e-3), Sparse(10))
        for n, d in [(60, 500), (2000, 5000), (10**6, 500)]
    ]
    assert squares[0].num_starts == logistic[0].num_starts == 8
    for larger in (squares, logistic):
        work = [s.num_starts * s.num_moves * s.patience * s.num_candidates for s in larger]
        assert work == sorted(work, reverse=True) and work[-1] < work[0]
    wide = jaxht.design(
        scipy.sparse.random_array((500, 3000), density=0.001, random_state=RNG).astype(np.float32)
    )
    search = jaxht.default_solver(Logistic(wide, np.sign(RNG.normal(size=500)), 1e-3), Sparse(100))
    assert (search.num_starts, search.num_candidates) == (1, 1)
    assert isinstance(
        chosen(LeastSquares(*shapes(60, 20), mean=False), Sparse(jnp.asarray(3))), NIHT
    )


def test_solve_runs_it_and_names_it():
    f, given = (
        LeastSquares(A, Y, mean=False),
        jaxht.solve(LeastSquares(A, Y, mean=False), Sparse(2), LocalSearch()),
    )
    result = jaxht.solve(f, Sparse(2))
    assert (
        result.support.numpy().tolist() == [3, 7]
        and result.solver == "ExhaustiveSearch()"
        and given.solver == ""
    )
    assert "solver=ExhaustiveSearch()" in repr(result) and "solver" not in repr(given)
    np.testing.assert_allclose(result.x, given.x, atol=1e-5)
    batch = host(
        quick(jax.vmap(lambda y: jaxht.solve(LeastSquares(A, y, mean=False), Sparse(2))))(
            np.stack([Y, A[:, 0] + A[:, 1]])
        )
    )
    assert [np.flatnonzero(x).tolist() for x in batch.x] == [[3, 7], [0, 1]]
    with pytest.raises(ValueError, match="constraint must be"):
        jaxht.solve(f, LocalSearch())


def test_the_hinge_loss_has_one_that_works():
    rng = np.random.default_rng(0)
    for n, d in [(50, 100), (200, 8)]:
        A = rng.standard_normal((n, d)).astype(np.float32)
        y = np.sign(A[:, 0] - A[:, 3] + 0.3 * rng.standard_normal(n)).astype(np.float32)
        f = jaxht.Hinge(A, y, 1e-2)
        for constraint in (jaxht.Sparse(3), jaxht.Sparse(3, nonnegative=True)):
            found = jaxht.solve(f, constraint)
            assert found.succeeded and found.x[0] != 0
        groups = jaxht.Groups(2, groups=np.arange(d) // 2)
        assert jaxht.solve(f, groups).succeeded
        product = jaxht.LinearOperator(lambda x, A: A @ x, (n, d), (A,))
        found = jaxht.solve(jaxht.Hinge(product, y, 1e-2), jaxht.Sparse(3))
        assert found.succeeded and found.x[0] != 0
        traced = jax.jit(lambda k, f=f: jaxht.solve(f, jaxht.Sparse(k)))(3)
        assert traced.succeeded and traced.x[0] != 0
