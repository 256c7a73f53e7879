"""Sparse precision matrices: the likelihood, its minimisation on graphs, and the solvers that
choose the graph."""

import functools
import itertools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import Edges, GaussianPrecision, Status
from jaxht.constraints.support import Support
from jaxht.linalg.positive_definite import inverse, logdet
from jaxht.objectives.precision import XI
from jaxht.subproblems import refit as refit_on_support
from jaxht.subproblems import subproblem
from tests import reference
from tests.util import host, quick, x64

pytestmark = pytest.mark.usefixtures("all_quickly")

P = 7


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


def covariance(rng, p=P, n=60):
    """Of samples of a sparse precision matrix."""
    truth = 2.0 * np.eye(p)
    for i, j in [*zip(range(p - 1), range(1, p), strict=True), (0, p - 1), (1, p - 2)]:
        truth[i, j] = truth[j, i] = rng.choice([-0.6, 0.5])
    X = rng.normal(size=(n, p)) @ np.linalg.cholesky(np.linalg.inv(truth)).T
    return X.T @ X / n


def graph(edges, p=P):
    mask = np.eye(p, dtype=bool)
    for i, j in edges:
        mask[i, j] = mask[j, i] = True
    return mask


def edges_of(W):
    return np.count_nonzero(np.triu(W, 1))


PAIRS = list(itertools.combinations(range(P), 2))
MOST = len(PAIRS)
CHAIN, CYCLE = [(i, i + 1) for i in range(P - 1)], [(i, (i + 1) % P) for i in range(P)]
GRAPHS = np.stack([graph(edges) for edges in ([], CHAIN, CYCLE, PAIRS[::2], PAIRS)])


# ---- the likelihood ------------------------------------------------------------------------------


def test_derivatives_are_those_of_the_formula():
    rng = np.random.default_rng(0)
    S, x, v = covariance(rng), np.linalg.inv(covariance(rng)), rng.normal(size=(P, P))
    v = v + v.T
    objective = GaussianPrecision(S).prepare()
    formula = jaxht.Custom(lambda x, S: -jnp.linalg.slogdet(x)[1] + jnp.sum(S * x), S, like=x)
    for name in ("value", "gradient"):
        np.testing.assert_allclose(
            getattr(objective, name)(x, x), getattr(formula, name)(x, x), rtol=1e-10, atol=1e-10
        )
    np.testing.assert_allclose(
        objective.hessian(x, x)(v), formula.hessian(x, x)(v), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(
        objective.hessian(x, x).quadratic_form(v, v),
        formula.hessian(x, x).quadratic_form(v, v),
        rtol=1e-9,
    )
    diagonal = [objective.hessian(x, x)(np.eye(P)[:, [i]] * np.eye(P)[[i]])[i, i] for i in range(P)]
    np.testing.assert_allclose(np.diagonal(objective.hessian(x, x).diagonal()), diagonal, rtol=1e-9)
    assert objective.value(-x, -x) == np.inf and np.isnan(objective.gradient(-x, -x)).all()


def test_derivatives_of_determinant_and_inverse():
    rng = np.random.default_rng(1)
    x, v = covariance(rng), covariance(rng)
    assert np.isclose(jax.jvp(logdet, (x,), (v,))[1], np.trace(np.linalg.solve(x, v)))
    np.testing.assert_allclose(
        jax.jvp(inverse, (x,), (v,))[1], -np.linalg.inv(x) @ v @ np.linalg.inv(x), atol=1e-9
    )
    np.testing.assert_array_equal(inverse(x), inverse(x).T)


def test_default_bounds():
    S = covariance(np.random.default_rng(2))
    lower = 1 / (np.linalg.norm(S, 2) + P * XI)
    objective = GaussianPrecision(S).prepare()
    np.testing.assert_allclose(
        objective.lower, lower, rtol=0.05
    )  # the norm is an estimate from above
    assert objective.lower <= lower
    np.testing.assert_allclose(objective.upper, (P - objective.lower * np.trace(S)) / XI)


@pytest.mark.parametrize(
    ("message", "S", "bounds"),
    [
        ("square", np.ones((2, 3)), {}),
        ("symmetric", np.array([[1.0, 0.5], [0.1, 1.0]]), {}),
        ("lower must be a number", np.eye(2), {"lower": -1.0}),
        ("upper must be a number", np.eye(2), {"upper": np.ones(2)}),
        ("lower must be below upper", np.eye(2), {"lower": 2.0, "upper": 1.0}),
    ],
)
def test_wrong_arguments(message, S, bounds):
    with pytest.raises(ValueError, match=message):
        jaxht.solve(GaussianPrecision(S, **bounds), Edges(1), jaxht.HTP())


# ---- on a given graph ----------------------------------------------------------------------------


def refit(S, mask, *, k_max=MOST, x=None, **bounds):
    objective = GaussianPrecision(S, **bounds).prepare()
    region = Support(mask, k_max=None if k_max is None else P + 2 * k_max, ndim=2)
    return refit_on_support(objective, region, objective.start() if x is None else x)


FREE = {"lower": 0.0, "upper": np.inf}


# From here on a Hessian of all entries costs more than products with it.
LARGE_P = 20


def add_isolated(matrices):
    """Matrices of LARGE_P nodes: P of them, and others without edges or covariances."""
    large = np.broadcast_to(np.eye(LARGE_P), (len(matrices), LARGE_P, LARGE_P)).copy()
    large[:, :P, :P] = matrices
    return large


@functools.cache
def refitted(k_max, dtype):
    """Minimisers on all graphs, side by side, with S and the graphs; among many nodes where k_max
    is None."""
    rng = np.random.default_rng(3)
    S, graphs = np.stack([covariance(rng) for _ in GRAPHS]), GRAPHS
    if k_max is None:
        S, graphs = add_isolated(S), add_isolated(graphs).astype(bool)
    S = S.astype(dtype)
    with x64(dtype == "float64"):
        run = quick(jax.vmap(lambda S, mask: refit(S, mask, k_max=k_max)))
        return S, graphs, host(run(S, graphs))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k_max", [MOST, None])
def test_minimisers_are_those_of_a_loop_over_nodes(k_max, dtype):
    S, graphs, minima = refitted(k_max, dtype)
    tol = 1e-9 if dtype == "float64" else 2e-4
    assert minima.converged.all()
    for s, mask, W in zip(S.astype(float), graphs, minima.x, strict=True):
        np.testing.assert_array_equal(W, W.T)
        assert not W[~mask].any()
        few = reference.covariance_selection(s[:P, :P], mask[:P, :P])
        np.testing.assert_allclose(W[:P, :P], few, rtol=tol, atol=tol)
        # KKT: on the graph the covariances are those of the samples.
        np.testing.assert_allclose(np.linalg.inv(W.astype(float))[mask], s[mask], atol=tol)


def test_a_chain_in_closed_form():
    """The sum of the inverses of cliques, less those of what two of them share (Lauritzen 1996,
    Proposition 5.9)."""
    S = covariance(np.random.default_rng(4))
    W = np.zeros_like(S)
    for i, j in CHAIN:
        W[np.ix_([i, j], [i, j])] += np.linalg.inv(S[np.ix_([i, j], [i, j])])
    for i in range(1, P - 1):
        W[i, i] -= 1 / S[i, i]
    np.testing.assert_allclose(refit(S, graph(CHAIN)).x, W, atol=1e-10)


def test_bounds_on_all_entries_in_closed_form():
    S = covariance(np.random.default_rng(5))
    values, V = np.linalg.eigh(S)
    lower, upper = 1 / values[-3], 1 / values[2]
    found = refit(S, GRAPHS[-1], lower=lower, upper=upper)
    assert found.converged
    np.testing.assert_allclose(found.x, (V * np.clip(1 / values, lower, upper)) @ V.T, atol=1e-6)


@pytest.mark.parametrize("ridge", [None, 0.3])
def test_bounds_on_a_graph_are_met_and_optimal(ridge):
    """No direction to a feasible point descends, which is optimality for a convex f."""
    rng = np.random.default_rng(6)
    S, mask, lower, upper = covariance(rng), graph(PAIRS[::2]), 1.0, 3.2
    objective = GaussianPrecision(S, lower, upper).prepare()
    region = Support(mask, k_max=P + 2 * MOST, ndim=2)
    found = refit_on_support(
        objective, region, objective.start(), None if ridge is None else jnp.full((P, P), ridge)
    )
    W = np.asarray(found.x)
    values = np.linalg.eigvalsh(W)
    assert found.converged and not W[~mask].any() and np.array_equal(W, W.T)
    assert lower - 1e-6 < values[0] < lower + 1e-3 and values[-1] < upper + 1e-6
    gradient = S - np.linalg.inv(W) + (ridge or 0) * W
    for _ in range(300):
        V = np.where(mask, rng.normal(size=(P, P)), 0)
        V = V + V.T
        low, high = np.linalg.eigvalsh(V)[[0, -1]]
        V = (V - low * np.eye(P)) * (upper - lower) / (high - low) + lower * np.eye(P)
        assert np.sum(gradient * (V - W)) > -1e-5


def test_a_ridge_counts_in_the_minimiser():
    S, mask = covariance(np.random.default_rng(7)), graph(CYCLE)
    objective = GaussianPrecision(S, **FREE).prepare()
    ridge = jnp.full((P, P), 0.5)
    W = refit_on_support(
        objective, Support(mask, k_max=P + 2 * MOST, ndim=2), objective.start(), ridge
    ).x
    np.testing.assert_allclose(np.where(mask, S - np.linalg.inv(W) + 0.5 * W, 0), 0, atol=1e-10)


def test_a_start_that_is_not_positive_definite():
    S = covariance(np.random.default_rng(8))
    far = np.eye(P) + 5 * (graph(CHAIN) - np.eye(P))
    np.testing.assert_allclose(
        refit(S, graph(CHAIN), x=far).x, refit(S, graph(CHAIN)).x, atol=1e-10
    )


def test_samples_too_few_for_a_minimiser():
    """Where S is singular on a clique f has none, and the bounds make one."""
    S = covariance(np.random.default_rng(9), n=3)
    found = refit(S, GRAPHS[-1])
    upper = float(GaussianPrecision(S).prepare().upper)
    assert found.converged
    np.testing.assert_allclose(np.linalg.eigvalsh(found.x)[-1], upper, rtol=1e-3)
    assert not refit(S, GRAPHS[-1], **FREE).converged


def test_minimisers_have_derivatives_within_the_bounds():
    S, D = covariance(np.random.default_rng(10)), covariance(np.random.default_rng(11))

    def run(t, lower, upper):
        return refit(S + t * D, graph(CYCLE), lower=lower, upper=upper).x

    minimum, tangent = (
        quick(run),
        quick(lambda *bounds: jax.jvp(lambda t: run(t, *bounds), (0.0,), (1.0,))[1]),
    )
    bounds = FREE["lower"], FREE["upper"]
    slope = tangent(*bounds)
    difference = (np.asarray(minimum(1e-5, *bounds)) - np.asarray(minimum(-1e-5, *bounds))) / 2e-5
    np.testing.assert_allclose(slope, difference, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        quick(jax.grad(lambda t: run(t, *bounds)[0, 1]))(0.0), slope[0, 1], rtol=1e-9
    )
    assert np.isnan(tangent(1.0, 2.0)).any()


def test_factorisations_side_by_side_do_not_wait_for_each_other():
    """In JAX 0.10 they did: for ever, on two cores. In a process of its own, since a hang would be
    the end of all."""
    code = (
        "import jax, jax.numpy as jnp; from jaxht.linalg.positive_definite import inverse;"
        "x = jnp.broadcast_to(2 * jnp.eye(40), (300, 40, 40));"
        "f = jax.jit(jax.vmap(lambda x, y: inverse(x) + inverse(y) + inverse(x + y)));"
        "[jax.block_until_ready(f(x, i * x)) for i in range(1, 20)]"
    )
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True)


# ---- edges ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1, 3, 6])
def test_the_projection_is_the_nearest_by_enumeration(k):
    rng, p = np.random.default_rng(k), 4
    z = rng.normal(size=(p, p))
    nearest = min(
        (
            np.where(graph(edges, p), (z + z.T) / 2, 0)
            for edges in itertools.combinations(_pairs(p), k)
        ),
        key=lambda x: np.sum((x - z) ** 2),
    )
    for constraint in (Edges(k), Edges(k, k_max=6), Edges(jnp.int32(9), k_max=k)):
        x, region = constraint.prepare((p, p)).project(jnp.asarray(z))
        np.testing.assert_allclose(x, nearest, atol=1e-15)
        np.testing.assert_array_equal(region.mask, (nearest != 0))


def _pairs(p):
    return list(itertools.combinations(range(p), 2))


def test_ties_and_kept_edges():
    z, keep = jnp.ones((4, 4)), np.zeros((4, 4), bool)
    assert edges_of(Edges(2).prepare((4, 4)).project(z)[0]) == 2
    assert Edges(2).prepare((4, 4)).project(z)[0][0, 1:].tolist() == [1, 1, 0]
    keep[3, 2] = True  # given below the diagonal
    x = Edges(2, keep=keep).prepare((4, 4)).project(z)[0]
    assert x[2, 3] == x[3, 2] == x[0, 1] == 1 and edges_of(x) == 2


def test_wrong_edges():
    for wrong, message in [
        (Edges(7), "p \\(p - 1\\) / 2 = 6"),
        (Edges(1, keep=np.zeros(4, bool)), "keep"),
    ]:
        with pytest.raises(ValueError, match=message):
            wrong.prepare((4, 4))


# ---- the solvers ---------------------------------------------------------------------------------

SOLVERS = {
    "HTP": jaxht.HTP(step_size=4.0, backtrack=True),
    "GraSP": jaxht.GraSP(),
    "FBS": jaxht.OMP(),
    "OLS": jaxht.OLS(),
    "FoBa": jaxht.FoBa(),
    "OMPR": jaxht.OMPR(),
}
LANES = 12


@functools.cache
def solved(name):
    """LANES problems with k = 1 ... 6, and the results."""
    rng = np.random.default_rng(12)
    S, k = (
        np.stack([covariance(rng) for _ in range(LANES)]),
        np.arange(LANES, dtype=np.int32) % 6 + 1,
    )
    with x64():
        run = jax.vmap(
            lambda S, k: jaxht.solve(GaussianPrecision(S), Edges(k, k_max=6), SOLVERS[name])
        )
        return S, k, host(quick(run)(S, k))


@pytest.mark.parametrize("name", SOLVERS)
def test_solutions_are_sparse_symmetric_definite_and_minimisers(name):
    S, k, results = solved(name)
    assert (results.status < Status.MAX_STEPS).sum() >= LANES - 2  # GraSP may cycle
    for s, size, W, value in zip(S, k, results.x, results.value, strict=True):
        np.testing.assert_array_equal(W, W.T)
        assert edges_of(W) <= size
        np.linalg.cholesky(W)
        np.testing.assert_allclose(np.linalg.inv(W)[W != 0], s[W != 0], atol=1e-9)
        assert np.isclose(value, np.sum(s * W) - np.linalg.slogdet(W)[1])


@functools.cache
def optima():
    """The least f of three edges, of all C(21, 3) graphs, for the lanes that have k = 3."""
    S, k, _ = solved("HTP")
    masks = np.stack([graph(edges) for edges in itertools.combinations(PAIRS, 3)])

    def best(S):
        values = jax.lax.map(
            lambda mask: GaussianPrecision(S).value(*[refit(S, mask, k_max=3).x] * 2), masks
        )
        return jnp.min(values)

    with x64():
        return np.asarray(quick(jax.vmap(best))(S[k == 3]))


def test_solvers_against_all_graphs():
    k = solved("HTP")[1]
    reached = 0
    for name in SOLVERS:
        values = solved(name)[2].value[k == 3]
        assert (values >= optima() - 1e-9).all()
        reached += np.sum(values <= optima() + 1e-7)
    assert reached >= 0.7 * len(SOLVERS) * len(optima())


def test_values_without_an_edge():
    """Against f of each matrix; of the last one the rest is not positive definite without any one
    of its edges."""
    rng = np.random.default_rng(3)
    inner = np.full((3, 3), 0.9) + 0.1 * np.eye(3)
    for W in [*(np.linalg.inv(covariance(rng)) for _ in range(4)), inner]:
        p = len(W)
        i, j = np.triu_indices(p, 1)
        S, selected = np.linalg.inv(W) + 0.1 * np.eye(p), (rng.random(i.size) < 0.7) | (p == 3)
        f, edges = GaussianPrecision(S), Edges(1, k_max=i.size).prepare(W.shape)
        values = quick(
            lambda f, W, selected, edges=edges: subproblem(f, edges).values_without(selected, W, W)
        )(f, W, selected)
        rests = np.repeat(W[None], i.size, axis=0)
        rests[range(i.size), i, j] = rests[range(i.size), j, i] = 0
        inside = selected & (np.linalg.eigvalsh(rests)[:, 0] > 0)
        expected = np.where(
            inside, np.sum(S * rests, axis=(1, 2)) - np.linalg.slogdet(rests)[1], np.inf
        )
        np.testing.assert_allclose(values, expected, rtol=1e-9)
        assert inside.any() == (p > 3)


def test_htp_step_by_step():
    S, k, results = solved("HTP")
    for s, size, W in list(zip(S, k, results.x, strict=True))[:8]:
        points = reference.graphical_htp(s, size, 4.0, 50)
        np.testing.assert_allclose(W, points[-1], atol=1e-6)


def test_the_last_refit_is_exact_and_its_support_comes_back():
    """On more entries than a Hessian is formed for; by NumPy from the x that is returned."""
    rng, p, k, eta = np.random.default_rng(14), 24, 90, 10.0
    X = rng.normal(size=(p, 60))
    S = X @ X.T / 60
    run = quick(
        lambda S: jaxht.solve(GaussianPrecision(S), Edges(k), jaxht.HTP(eta, backtrack=True))
    )
    result = run(S)
    W = np.asarray(result.x)
    assert result.status == Status.SUPPORT_STABLE and edges_of(W) == k
    residual = S - np.linalg.inv(W)
    np.testing.assert_allclose(residual[W != 0], 0, atol=1e-11)
    # With some of the step sizes that are tried the support is the same one.
    places = np.triu_indices(p, 1)
    steps = [W - eta / 2**halvings * residual for halvings in range(39)]
    largest = [set(np.argsort(-np.abs(z[places]))[:k]) for z in steps]
    assert set(np.flatnonzero(W[places])) in largest


def test_backtracking_ends_cycles():
    """On correlated columns, with too long a step."""
    rng = np.random.default_rng(13)
    A = rng.normal(size=(40, 20, 40)) + 2 * rng.normal(size=(40, 20, 1))
    y = rng.normal(size=(40, 20))

    def run(solver):
        lane = jax.vmap(
            lambda A, y: jaxht.trace(
                jaxht.LeastSquares(A, y, mean=False), jaxht.Sparse(6), solver, num_steps=60
            ),
            in_axes=0,
        )
        return host(quick(lane)(A, y))

    plain, _ = run(jaxht.HTP(step_size=0.05))
    ended, values = run(jaxht.HTP(step_size=0.05, backtrack=True))
    assert (plain.status == Status.CYCLING).sum() >= 10
    assert (ended.status == Status.SUPPORT_STABLE).all()
    assert (np.diff(values[:, 1:], axis=1) <= 0).all()
    assert np.mean(ended.value) < np.mean(plain.value)
