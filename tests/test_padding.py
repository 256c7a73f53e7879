"""Padded problems have the results of the problems as they are, and share programs."""

import logging
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxht
from jaxht import OLS, OMP, Sparse
from jaxht._dataclass import replace
from jaxht._rounding import round_up
from jaxht.exact.problem import ReducedProblem
from jaxht.exact.result import Solution
from jaxht.runner._padding import pad_problem
from jaxht.runner._problem import prepare
from jaxht.runner._sizes import is_small_shape, round_shape
from tests.util import drop_programs, precision

pytestmark = pytest.mark.usefixtures("all_quickly")


def columns(rng, n, d):
    """Correlated columns, and a linear predictor of three of them."""
    X = rng.standard_normal((n, d)) + 0.7 * rng.standard_normal((n, 1))
    return X, X[:, :3] @ rng.choice([-1.0, 1.0], 3)


def signs(eta):
    return np.where(eta > 0, 1.0, -1.0)


def thirds(eta):
    """Classes 0, 1 and 2."""
    return np.digitize(eta, np.quantile(eta, [0.3, 0.6]))


def times(eta, rng):
    """Times, some of which are equal, and a third of them censored."""
    time = np.ceil(9 * np.exp(-eta / 4) * rng.exponential(size=eta.size))
    return np.stack([time, rng.random(eta.size) < 0.7], axis=1)


def strata(eta):
    """And ties by their number: weights of 0 must not count."""
    return {"ties": "efron", "strata": np.arange(eta.size) % 2}


def responses(eta, rng):
    return np.stack([eta, -eta], axis=1) + rng.standard_normal((eta.size, 2))


# Each objective from columns, a noisy linear predictor, random numbers, and options.
OBJECTIVES = {
    "least squares": lambda X, eta, rng, **o: jaxht.LeastSquares(X, eta, **o),
    "logistic": lambda X, eta, rng, **o: jaxht.Logistic(X, signs(eta), **o),
    "squared hinge": lambda X, eta, rng, **o: jaxht.SquaredHinge(X, signs(eta), **o),
    "hinge": lambda X, eta, rng, **o: jaxht.Hinge(X, signs(eta), **o),
    "huber": lambda X, eta, rng, **o: jaxht.Huber(X, eta, **o),
    "poisson": lambda X, eta, rng, **o: jaxht.Poisson(X, rng.poisson(np.exp(eta / 9)), **o),
    "gamma": lambda X, eta, rng, **o: jaxht.Gamma(X, np.exp(eta / 5) + rng.random(eta.size), **o),
    "smoothed hinge": lambda X, eta, rng, **o: jaxht.SmoothedHinge(X, signs(eta), **o),
    "ordinal": lambda X, eta, rng, **o: jaxht.Ordinal(X, thirds(eta), num_classes=3, **o),
    "cox": lambda X, eta, rng, **o: jaxht.Cox(X, times(eta, rng), **strata(eta), **o),
    "softmax": lambda X, eta, rng, **o: jaxht.Softmax(X, thirds(eta), num_classes=3, **o),
    "responses": lambda X, eta, rng, **o: jaxht.MultiResponse(X, responses(eta, rng), **o),
}
NUM_OUTPUTS = {"softmax": 3, "responses": 2}
SLOW = ("ordinal", "cox")


def draw(name, seed, n, d):
    """A problem; of odd seeds with weights, an offset and ridges."""
    rng = np.random.default_rng(seed)
    X, eta = columns(rng, n, d)
    eta = eta + rng.standard_normal(n)
    options = {}
    outputs = [NUM_OUTPUTS[name]] if name in NUM_OUTPUTS else []
    if seed % 2:
        options["l2"] = rng.random((d, *outputs))
        options["weights"] = rng.integers(1, 4, n).astype(float)
        options["offset"] = rng.standard_normal((n, *outputs)) / 9
    elif "hinge" in name or name == "softmax":
        options["l2"] = 0.05
    return OBJECTIVES[name](X, eta, rng, **options)


def constraint_of(name, d, k):
    """Of several outputs rows, in groups."""
    if name not in NUM_OUTPUTS:
        return Sparse(k)
    rows = np.broadcast_to(np.arange(d)[:, None], (d, NUM_OUTPUTS[name]))
    return jaxht.Groups(k, rows)


@jax.jit
def run(problem):
    """One program for many problems of a size."""
    carry = jaxht.extend.start(problem, None, None)
    carry = jaxht.extend.advance(problem, carry, problem.stop.max_steps)
    return jaxht.extend.finish(problem, carry)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_results_agree(name):
    """On 1000 random problems in all of all objectives."""
    with precision("float64"):
        for seed in range(10 if name in SLOW else 98):
            n, d = [(37, 9), (61, 23)][seed // 2 % 2]
            solver = OLS() if name == "least squares" else OMP()
            f = draw(name, seed, n, d)
            problem, x0, _ = prepare(
                f, replace(constraint_of(name, d, 3 + seed % 3), k_max=5), solver
            )
            padding = pad_problem(problem, x0, shares=True, pads=True)
            assert padding.is_padded
            padded = padding.restore(run(padding.problem))
            exact = run(problem)
            assert padded.support.numpy().tolist() == exact.support.numpy().tolist()
            assert padded.x.shape == exact.x.shape and padded.support.k_max == exact.support.k_max
            assert int(padded.num_steps) == int(exact.num_steps)
            assert padded.reason == exact.reason
            scale = 1 + abs(float(exact.value))
            assert abs(float(padded.value - exact.value)) <= 1e-12 * scale
            np.testing.assert_allclose(padded.x, exact.x, atol=1e-8 if name == "hinge" else 1e-10)


@pytest.mark.parametrize("name", ["least squares", "logistic", "squared hinge"])
def test_the_default_search_agrees(name, dtype):
    for seed in range(12):
        f = draw(name, seed, 80, 30)
        padded = jaxht.solve(f, Sparse(6))
        with jaxht.disable_padding():
            exact = jaxht.solve(f, Sparse(6))
        assert padded.solver == exact.solver and "LocalSearch" in padded.solver
        if dtype == np.float64:
            assert padded.support.numpy().tolist() == exact.support.numpy().tolist()
        atol = 1e-12 if dtype == np.float64 else 1e-5
        np.testing.assert_allclose(padded.value, exact.value, atol=atol * (1 + abs(exact.value)))


def test_constraints_agree():
    """Coordinates that are kept, bounds, and a start."""
    with precision("float64"):
        rng = np.random.default_rng(0)
        X, eta = columns(rng, 50, 20)
        f = jaxht.LeastSquares(X, eta + rng.standard_normal(50))
        keep = np.arange(20) == 17
        for constraint in (
            Sparse(4, keep=keep),
            Sparse(4, nonnegative=True),
            Sparse(4, bounds=(-np.linspace(0, 0.3, 20), 0.2)),
        ):
            x0 = np.where(keep, 0.1, 0.0)
            padded = jaxht.solve(f, constraint, x0=x0)
            with jaxht.disable_padding():
                exact = jaxht.solve(f, constraint, x0=x0)
            np.testing.assert_allclose(padded.x, exact.x, atol=1e-12)
            assert padded.support.numpy().tolist() == exact.support.numpy().tolist()


def test_groups_and_designs_agree():
    with precision("float64"):
        rng = np.random.default_rng(0)
        X, eta = columns(rng, 50, 20)
        y = eta + rng.standard_normal(50)
        pairs = np.arange(20) // 2
        keep = np.arange(20) == 17
        sparse = scipy.sparse.csr_array(np.where(rng.random(X.shape) < 0.4, X, 0))
        standardized = jaxht.standardize(sparse).design
        for A, constraint in (
            (X, jaxht.Groups(groups=pairs)),
            (X, jaxht.Groups(groups=np.minimum(pairs, 7), keep=keep)),
            (X, jaxht.SparsePerGroup(groups=pairs)),
            (sparse, Sparse()),
            (standardized, Sparse()),
        ):
            f = jaxht.LeastSquares(A, y)
            padded = jaxht.path(f, constraint, OMP(), ks=[2, 3])
            with jaxht.disable_padding():
                exact = jaxht.path(f, constraint, OMP(), ks=[2, 3])
            assert jax.tree.structure(padded) == jax.tree.structure(exact)
            np.testing.assert_allclose(padded.x, exact.x, atol=1e-12)


def test_branch_and_bound_agrees():
    X, eta = columns(np.random.default_rng(0), 60, 17)
    for f, constraint in (
        (jaxht.LeastSquares(X, eta, 0.01), jaxht.Groups(2, np.arange(17) // 2)),
        (jaxht.Logistic(X, signs(eta), 0.01), Sparse(3, bounds=(-1.0, 1.0))),
    ):
        padded = jaxht.branch_and_bound(f, constraint)
        with jaxht.disable_padding():
            exact = jaxht.branch_and_bound(f, constraint)
        assert padded.status == exact.status
        assert padded.x.shape == (17,)
        np.testing.assert_allclose(padded.value, exact.value, rtol=1e-12)
        np.testing.assert_allclose(padded.x, exact.x, atol=1e-8)
        assert padded.lower <= exact.value and exact.lower <= padded.value


def test_branch_and_bound_of_other_tables_has_the_same_program():
    relaxations = []
    for n, d, k in [(58, 17, 3), (62, 22, 4)]:
        with precision("float64"):
            f = jaxht.LeastSquares(*columns(np.random.default_rng(0), n, d), 0.01).prepare()
            constraint = Sparse(k).prepare((d,))
            best = Solution(np.zeros(d), np.arange(k), 1.0)
            problem = ReducedProblem.on(f, constraint, np.arange(d), None, best, 1e-6)
            relaxations.append(problem.relaxation)
    one, other = relaxations
    assert jax.tree.structure(one) == jax.tree.structure(other)
    shapes = [[np.shape(leaf) for leaf in jax.tree.leaves(each)] for each in relaxations]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize(("name", "solver"), [("least squares", OLS()), ("logistic", OMP())])
def test_paths_agree(name, solver, both_ways):
    with precision("float64"):
        f = draw(name, 7, 70, 12)
        ks = [1, 2, 4, 7]
        padded = jaxht.path(f, Sparse(), solver, ks=ks, both_ways=both_ways)
        with jaxht.disable_padding():
            exact = jaxht.path(f, Sparse(), solver, ks=ks, both_ways=both_ways)
        assert padded.x.shape == (4, 12)
        assert jax.tree.structure(padded) == jax.tree.structure(exact)
        np.testing.assert_allclose(padded.x, exact.x, atol=1e-12)
        np.testing.assert_array_equal(padded.num_steps, exact.num_steps)


def test_cross_validation_agrees():
    with precision("float64"):
        rng = np.random.default_rng(3)
        X, eta = columns(rng, 60, 9)
        y = eta + rng.standard_normal(60)

        def split(held):
            train = jaxht.LeastSquares(X, y, weights=1.0 - held)
            return train, jaxht.LeastSquares(X, y, weights=1.0 * held)

        masks = np.arange(60) % 5 == np.arange(5)[:, None]
        padded = jaxht.cross_validate(split, masks, Sparse(), OLS(), ks=[1, 3, 5])
        with jaxht.disable_padding():
            exact = jaxht.cross_validate(split, masks, Sparse(), OLS(), ks=[1, 3, 5])
        assert jax.tree.structure(padded) == jax.tree.structure(exact)
        for one, other in zip(jax.tree.leaves(padded), jax.tree.leaves(exact), strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("name", ["least squares", "logistic"])
def test_resamples_agree(name):
    key = jax.random.key(0)
    with precision("float64"):
        f = draw(name, 7, 70, 12)
        halves = jaxht.inference.stability_selection(f, Sparse(3), OMP(), key=key, num_pairs=4)
        resamples = jaxht.inference.bootstrap(f, Sparse(3), OMP(), key=key, num_resamples=5)
        with jaxht.disable_padding():
            exact = jaxht.inference.stability_selection(f, Sparse(3), OMP(), key=key, num_pairs=4)
            exact_resamples = jaxht.inference.bootstrap(
                f, Sparse(3), OMP(), key=key, num_resamples=5
            )
    for found, expected in ((halves, exact), (resamples, exact_resamples)):
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-10)


def test_tables_of_different_shapes_share_a_program(caplog):
    """Least squares of 20 to 64 columns and any number of samples."""
    drop_programs()
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for n, d, k in [(100, 27, 5), (451, 20, 5), (40, 30, 4), (77, 41, 6), (300, 64, 7)]:
            X, eta = columns(np.random.default_rng(n), n, d)
            jaxht.solve(jaxht.LeastSquares(X.astype(np.float32), eta.astype(np.float32)), Sparse(k))
    compiled = re.findall(r"XLA compilation of (?:jit\()?(\w+)", caplog.text)
    assert compiled.count("solve_prepared") == 1


def test_proofs_of_different_shapes_share_programs(caplog):
    drop_programs()
    with precision("float64"), jax.log_compiles(), caplog.at_level(logging.WARNING):
        for n, d in [(66, 13), (70, 15)]:
            X, eta = columns(np.random.default_rng(n), n, d)
            eta += 0.1 * np.random.default_rng(d).standard_normal(n)
            best = jaxht.branch_and_bound(jaxht.LeastSquares(X, eta), Sparse(3), batch=16)
            assert best.solutions[0].items.tolist() == [0, 1, 2]
    compiled = re.findall(r"XLA compilation of (?:jit\()?(\w+)", caplog.text)
    assert all(compiled.count(name) <= 1 for name in PROGRAMS_OF_PROOFS)


PROGRAMS_OF_PROOFS = ("solve_prepared", "_evaluate_projection", "relax")


def test_nothing_is_padded_within_a_trace():
    A = jax.random.normal(jax.random.key(0), (30, 20))

    def fit(y):
        return jaxht.solve(jaxht.LeastSquares(A, y), Sparse(3))

    y = A[:, 2] - A[:, 5]
    shapes = [leaf.shape for leaf in jax.tree.leaves(jax.make_jaxpr(fit)(y).out_avals)]
    assert (20,) in shapes
    assert "f32[128,64]" not in str(jax.make_jaxpr(fit)(y)) and "f32[65,64]" not in str(
        jax.make_jaxpr(fit)(y)
    )
    lanes = jax.vmap(fit)(jnp.stack([y, -y]))
    np.testing.assert_allclose(lanes.x[0], fit(y).x, atol=1e-4)
    slope = jax.grad(lambda y: jnp.sum(fit(y).x))(y)
    assert slope.shape == (30,) and np.all(np.isfinite(slope))


def test_sizes():
    """Few of them, none smaller than the shape, and of large shapes at most an eighth larger."""
    for n in (1, 3, 100, 1000, 8192):
        for d in (1, 16, 17, 300):
            samples, width = round_shape(n, d, is_compressed=False)
            assert samples >= n and width >= d
    assert round_shape(11, 10, is_compressed=True) == (65, 64)
    # Samples that are fewer than the columns stay few.
    assert round_shape(100, 200, is_compressed=True) == (104, 200)
    assert round_shape(62, 2000, is_compressed=True) == (64, 2048)
    assert round_shape(100, 300, is_compressed=False) == (104, 304)
    for n, d in [(10_000, 1000), (100_001, 77), (33, 60_000)]:
        samples, width = round_shape(n, d, is_compressed=False)
        assert n <= samples <= max(n + 7, 1.125 * n) and d <= width <= 1.125 * d
    for n, d in [(442, 10), (100, 100), (3000, 100)]:
        for is_compressed in (False, True):
            assert is_small_shape(round_shape(n, d, is_compressed))
    for n, d in [(2000, 120), (200, 150), (20_000, 60)]:
        assert not is_small_shape(round_shape(n, d, is_compressed=False))
    assert {round_up(size, 8) for size in range(1024, 2049)} == set(range(1024, 2049, 128))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_invalid_data_are_told(bad):
    X, eta = columns(np.random.default_rng(0), 50, 10)
    X[3, 4] = bad
    for y in (eta, signs(eta)):
        make = jaxht.LeastSquares if y is eta else jaxht.Logistic
        assert jaxht.solve(make(X.astype(np.float32), y.astype(np.float32)), Sparse(3)).reason == (
            "INVALID_DATA"
        )
