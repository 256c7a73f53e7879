"""Global optima against brute force in NumPy, and the ensembles and axes that experiments draw
on."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

import jaxht
from jaxht import ensembles, phase_diagram
from jaxht.subproblems import refit
from tests.util import x64

pytestmark = pytest.mark.usefixtures("all_quickly")


def least_squares(A, y, l2, support):
    """The minimum on a support: a ridge is least squares with more rows."""
    rows = np.vstack([A[:, support], np.sqrt(l2) * np.eye(len(support))])
    right = np.concatenate([y, np.zeros(len(support))])
    return np.sum((rows @ np.linalg.lstsq(rows, right, rcond=None)[0] - right) ** 2) / 2


def test_exhaustive_search_is_brute_force():
    rng = np.random.default_rng(0)
    A, y, k, l2 = rng.normal(size=(7, 9)), rng.normal(size=7), 3, 0.3
    A[:, 5] = A[:, 2]  # dependent columns, and fewer rows than columns
    values = {S: least_squares(A, y, l2, list(S)) for S in itertools.combinations(range(9), k)}
    kept = {S: value for S, value in values.items() if 8 in S}
    with x64():
        f = jaxht.LeastSquares(A, y, l2, mean=False)
        best = jax.jit(lambda f: jaxht.exhaustive_search(f, jaxht.Sparse(k), batch_size=20))(f)
        with_last = jaxht.exhaustive_search(f, jaxht.Sparse(k, keep=np.arange(9) == 8))
        singular = jaxht.exhaustive_search(jaxht.LeastSquares(A, y, mean=False), jaxht.Sparse(k))
    np.testing.assert_allclose(best.value, min(values.values()), rtol=1e-10)
    assert values[tuple(best.support.indices.tolist())] == pytest.approx(min(values.values()))
    np.testing.assert_array_equal(np.flatnonzero(best.x), best.support.indices)
    assert tuple(with_last.support.indices.tolist()) == min(kept, key=kept.get)
    np.testing.assert_allclose(
        singular.value, min(least_squares(A, y, 0, list(S)) for S in values), rtol=1e-8
    )


@pytest.mark.parametrize("kind", ["bounds", "groups"])
def test_exhaustive_search_refits_where_there_is_no_formula(kind):
    """Every support refitted, one after the other."""
    rng = np.random.default_rng(1)
    A, y, num = rng.normal(size=(12, 4)), rng.normal(size=12), {"bounds": 4, "groups": 3}[kind]
    with x64():
        f = (
            jaxht.LeastSquares(A, y, mean=False)
            if kind == "bounds"
            else jaxht.Logistic(A, np.sign(y), 0.1)
        )
        constraint = (
            jaxht.Sparse(2, nonnegative=True)
            if kind == "bounds"
            else jaxht.Groups(2, np.array([0, 1, 1, 2]))
        )
        found = jaxht.exhaustive_search(f, constraint, batch_size=4)
        prepared = constraint.prepare((4,))
        refit = jax.jit(
            lambda mask: jaxht.subproblems.refit(f.prepare(), prepared.support(mask), jnp.zeros(4))
        )
        fits = [refit(np.isin(np.arange(num), S)) for S in itertools.combinations(range(num), 2)]
        values = [float(f.value(fit.x, fit.pred)) for fit in fits]
    np.testing.assert_allclose(found.value, min(values), rtol=1e-9)
    assert kind != "bounds" or (np.asarray(found.x) >= 0).all()


def test_exhaustive_search_refuses_what_it_cannot_enumerate():
    f = jaxht.LeastSquares(np.ones((2, 60), np.float32), np.ones(2, np.float32), mean=False)
    with pytest.raises(ValueError, match="too many"):
        jaxht.exhaustive_search(f, jaxht.Sparse(10))
    with pytest.raises(ValueError, match="traced"):
        jax.eval_shape(lambda k: jaxht.exhaustive_search(f, jaxht.Sparse(k, k_max=2)).value, 1)


def test_the_minimum_of_reduced_rank_regression():
    """Over rank 1 by brute force: all row spaces of R^2, and the best X for each."""
    rng, (n, d, l2) = np.random.default_rng(0), (30, 5, 0.1)
    A, Y = rng.normal(size=(n, d)), np.eye(2)[rng.integers(0, 2, n)]
    ridge = np.linalg.solve(A.T @ A / n + l2 * np.eye(d), A.T @ Y / n)

    def f(X):
        return np.sum((A @ X - Y) ** 2) / (2 * n) + l2 / 2 * np.sum(X**2)

    angles = np.linspace(0, np.pi, 2000)
    lines = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    least = min(f(ridge @ np.outer(v, v)) for v in lines)
    np.testing.assert_allclose(jaxht.reduced_rank_minimum(A, Y, l2, 1), least, 1e-6)
    np.testing.assert_allclose(jaxht.reduced_rank_minimum(sparse.csr_matrix(A), Y, l2, 2), f(ridge))


@pytest.mark.parametrize("n", [7, 20])
def test_the_entries_observed_are_n_and_distinct(n):
    m, n_max = 6, 20
    problem = jax.jit(
        lambda r, n: ensembles.low_rank_entries(jax.random.key(1), m, r, n, r_max=3, n_max=n_max)
    )(2, n)
    assert np.linalg.matrix_rank(problem.x_true) == 2
    inside, beyond = np.split(np.asarray(problem.A), [n])
    assert (
        len(set(inside.tolist())) == n
        and (0 <= inside).all()
        and (inside < m**2).all()
        and (beyond == m**2).all()
    )
    np.testing.assert_array_equal(problem.y[:n], np.ravel(problem.x_true)[inside])
    # Of an objective at 0 the gradient is minus what is observed.
    objective = jaxht.matrix_completion(
        problem.A // m, problem.A % m, problem.y, (m, m), mean=False
    ).prepare()
    zero = np.zeros((m, m), np.float32)
    gradient = np.ravel(objective.gradient(zero, objective.predict(zero)))
    np.testing.assert_array_equal(np.flatnonzero(gradient), np.sort(inside))
    np.testing.assert_allclose(gradient[inside], -problem.y[:n])


def test_rows_beyond_n_are_zero_and_the_others_as_drawn():
    problem = ensembles.planted(
        jax.random.key(0),
        lambda key: ensembles.gaussian(key, 8, 5),
        lambda key: ensembles.gaussian_signal(key, 5, 2),
        lambda key, u: ensembles.gaussian_noise(key, u, 1.0),
    )
    masked = ensembles.mask_rows(problem, 3)
    np.testing.assert_array_equal(masked.A, np.vstack([problem.A[:3], np.zeros((5, 5))]))
    np.testing.assert_array_equal(masked.y, np.concatenate([problem.y[:3], np.zeros(5)]))
    np.testing.assert_array_equal(masked.x_true, problem.x_true)


def test_graphs_and_samples_of_their_precision():
    with x64():
        graph = ensembles.random_graph(jax.random.key(0), 20, 0.1)
        W = ensembles.graph_precision(graph, 20.0)
        X = np.asarray(ensembles.gaussian_rows(jax.random.key(1), 100_000, W))
        W, graph = np.asarray(W), np.asarray(graph)
    np.testing.assert_allclose(np.linalg.cond(W), 20, rtol=1e-9)
    np.testing.assert_array_equal(W - np.diag(np.diag(W)), graph)
    assert 5 < graph.sum() / 2 < 35 and (graph == graph.T).all()
    np.testing.assert_allclose(X.T @ X / len(X) @ W, np.eye(20), atol=0.05)


def test_axes_of_a_phase_diagram():
    n = phase_diagram.num_measurements(np.array([0.1, 0.26, 1e-9]), 50)
    np.testing.assert_array_equal(n, [5, 13, 1])
    np.testing.assert_array_equal(phase_diagram.num_nonzeros(0.1, n), [1, 1, 1])
    assert int(phase_diagram.num_nonzeros(0.5, 13)) == 7


def test_the_step_size_of_the_theory():
    """Of a diagonal A, the largest of the 2k-sparse eigenvalues is that of one coordinate."""
    f = jaxht.LeastSquares(np.diag(np.float32([1, 2, 3, 4])), np.ones(4, np.float32), mean=False)
    np.testing.assert_allclose(jaxht.spectral.restricted_step_size(f, 1), 1 / 32, rtol=1e-5)
    np.testing.assert_allclose(jaxht.spectral.restricted_step_size(f, 3), 1 / 32, rtol=1e-5)


@pytest.mark.parametrize("name", ["MultiResponse", "Softmax"])
def test_exhaustive_search_of_rows(name):
    """Where each item is a row of x, by enumeration."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(30, 4))
    B = rng.normal(size=(4, 3)) * np.array([1, 0, 2, 0])[:, None]
    if name == "MultiResponse":
        f = jaxht.MultiResponse(A, A @ B + 0.1 * rng.normal(size=(30, 3)), 0.1)
    else:
        f = jaxht.Softmax(A, np.argmax(A @ B + rng.gumbel(size=(30, 3)), 1), 0.1, num_classes=3)
    with x64():
        best = jaxht.exhaustive_search(f, jaxht.Groups(2))
        entries = jaxht.exhaustive_search(f, jaxht.Sparse(2))
        solution = jaxht.solve(f, jaxht.Groups(2), jaxht.ExhaustiveSearch())
        values = []
        for S in itertools.combinations(range(12), 2):
            support = jaxht.Support(jnp.zeros(12, bool).at[jnp.array(S)].set(True).reshape(4, 3))
            x = refit(f.prepare(), support, jnp.zeros((4, 3))).x
            values.append(f.value(x, f.predict(x)))
    assert float(best.value) == pytest.approx(float(solution.value), rel=1e-7)
    assert float(entries.value) == pytest.approx(min(map(float, values)), rel=1e-7)
    assert np.count_nonzero(entries.x) == 2


def test_bounds_beside_data_of_single_precision():
    """Where JAX's default is double precision, whatever the numbers of the bounds are."""
    A = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    f = jaxht.LeastSquares(A, A[:, 0], np.float32(0.1))
    with x64():
        for options in ({"nonnegative": True}, {"bounds": (np.zeros(6), np.full(6, 5.0))}):
            constraint = jaxht.Sparse(2, **options)
            best = jaxht.exhaustive_search(f, constraint)
            assert best.x.dtype == best.value.dtype == np.float32
            proof = jaxht.certify(f, constraint, best.x)
            assert proof.lower.dtype == np.float32
            assert float(proof.lower) <= float(best.value) <= float(proof.value) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("l2", "k", "message"), [(0.0, 1, "l2 must be above 0"), (0.1, 3, "k must be a rank")]
)
def test_reduced_rank_regression_refuses(l2, k, message):
    A = np.random.default_rng(0).normal(size=(12, 6))
    with pytest.raises(ValueError, match=message):
        jaxht.reduced_rank_minimum(A, A[:, :2], l2, k)
