"""Every public function of an objective takes complex numbers, or says that it does not; what proves
optima is compared with enumeration by NumPy."""

import dataclasses
import inspect
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import Groups, LeastSquares, Sparse, criteria, exact, extend, inference, spectral
from jaxht.objectives import dual
from tests.test_complex import (
    CLOSE,
    CLOSE_Y,
    HARD,
    LEAST,
    SUPPORTS,
    A,
    K,
    Y,
    energy,
    least,
    times,
)

pytestmark = pytest.mark.usefixtures("all_quickly")

D = CLOSE.shape[1]
SOLVER = jaxht.HTP()
OPERATOR = jaxht.LinearOperator(times, CLOSE.shape, (CLOSE,), dtype=jnp.complex64)
BEST = np.array(SUPPORTS[np.argmin(LEAST)])


def minimiser(columns):
    """Of HARD on some columns, in double precision."""
    weights = np.asarray(HARD.weights, float)
    B = CLOSE[:, columns].astype(complex)
    gram = B.conj().T @ (weights[:, None] * B) + 0.125 * np.eye(len(columns))
    x = np.zeros(D, complex)
    x[list(columns)] = np.linalg.solve(gram, B.conj().T @ (weights * CLOSE_Y))
    return x


X = minimiser(BEST).astype(np.complex64)


def value(x):
    """HARD(x), in double precision."""
    residual = abs(CLOSE.astype(complex) @ x - CLOSE_Y) ** 2
    return np.sum(HARD.weights * residual) / 2 + 0.0625 * np.sum(abs(x) ** 2)


def test_sparse_eigenvalues():
    f = LeastSquares(A, Y, mean=False)
    gram = A.conj().T @ A
    supports = itertools.combinations(range(A.shape[1]), 2)
    blocks = np.array([gram[np.ix_(support, support)] for support in supports])
    values = np.linalg.eigvalsh(blocks)
    largest, smallest = values.max(), values.min()
    np.testing.assert_allclose(spectral.restricted_smoothness(f, 2), largest, rtol=1e-3)
    np.testing.assert_allclose(spectral.restricted_step_size(f, 1), 0.5 / largest, rtol=1e-3)
    kappa = spectral.restricted_condition_number(f, 2)
    np.testing.assert_allclose(kappa, largest / smallest, rtol=0.02)


# ---- proofs --------------------------------------------------------------------------------------


def test_enumeration():
    found = jaxht.exhaustive_search(HARD, Sparse(K))
    np.testing.assert_array_equal(found.support.numpy(), BEST)
    np.testing.assert_allclose(found.x, X, atol=1e-3)
    np.testing.assert_allclose(found.value, LEAST.min(), rtol=1e-4)


def test_the_best_swap_is_that_of_all():
    """Of a point that is not the best: the least f over pairs and values of the entering entry."""
    x = minimiser([0, 1, 7])
    check = jaxht.optimality(HARD, Sparse(K), x.astype(np.complex64))
    gains = {}
    for j, i in itertools.product([0, 1, 7], [2, 3, 4, 5, 6, 8]):
        rest = np.where(np.arange(D) == j, 0, x)
        unit = np.eye(D)[i]
        # f is quadratic in the entry, whose best value follows from four values of f.
        curvature = value(rest + unit) + value(rest - unit) - 2 * value(rest)
        slopes = [value(rest + u * unit) - value(rest - u * unit) for u in (1, 1j)]
        entry = -(slopes[0] + 1j * slopes[1]) / (2 * curvature)
        gains[i, j] = value(x) - value(rest + entry * unit)
    best = max(gains, key=gains.get)
    np.testing.assert_array_equal(check.swap, best)
    np.testing.assert_allclose(check.swap_gain, gains[best], rtol=1e-3)
    assert check.stationarity < 1e-3 < gains[best]
    assert jaxht.optimality(HARD, Sparse(K), X).swap_gain < 0


@pytest.mark.parametrize("mean", [False, True])
def test_certificates_bound_the_optimum(mean):
    scale = np.sum(HARD.weights) if mean else 1.0
    f = dataclasses.replace(HARD, mean=mean, l2=0.125 / scale)
    proofs = [
        jaxht.certify(f, Sparse(K), X),
        jax.jit(lambda x: jaxht.certify(f, Sparse(K), x))(X),
        jaxht.certify(dataclasses.replace(f, A=OPERATOR), Sparse(K), X),
    ]
    for proof in proofs:
        assert 0.3 * LEAST.min() < proof.lower * scale < LEAST.min() < proof.value * scale
        np.testing.assert_allclose(proof.value * scale, LEAST.min(), rtol=1e-3)
    np.testing.assert_allclose(proofs[1].lower, proofs[0].lower, rtol=1e-3)


def test_certificates_of_groups_and_of_a_large_ridge_close():
    groups = np.array([0, 1, 2, 3, 4, 0, 1, 2, 3])
    f = LeastSquares(CLOSE, CLOSE_Y, 30.0, mean=False)
    for constraint in (Groups(2, groups), Sparse(K)):
        best = jaxht.solve(f, constraint, jaxht.ExhaustiveSearch())
        proof = jaxht.certify(f, constraint, best.x)
        assert proof.lower <= best.value <= proof.value
        assert proof.gap < 0.01 * best.value


def test_branch_and_bound_proves_the_three_best_supports():
    keep = np.arange(D) == 0
    found = jaxht.branch_and_bound(HARD, Sparse(K), num_solutions=3, gap_rtol=1e-6, x0=X)
    order = np.argsort(LEAST)[:3]
    for solution, place in zip(found.solutions, order, strict=True):
        np.testing.assert_array_equal(solution.items, SUPPORTS[place])
        np.testing.assert_allclose(solution.value, LEAST[place], rtol=1e-6)
        np.testing.assert_allclose(solution.x, minimiser(SUPPORTS[place]), atol=1e-6)
    assert found.lower <= LEAST.min() and found.gap <= 1e-6 * found.value
    np.testing.assert_array_equal(found.x, found.solutions[0].x)
    held = jaxht.branch_and_bound(HARD, Sparse(K, keep=keep))
    expected = min(least(list(support)) for support in SUPPORTS if 0 in support)
    np.testing.assert_allclose(held.value, expected, rtol=1e-3)


# ---- every function ------------------------------------------------------------------------------

F = LeastSquares(A, Y, 0.1)
PREPARED = F.prepare()
FOUND = jaxht.solve(F, Sparse(K), SOLVER)
PRED = PREPARED.predict(FOUND.x)
SPACE = Sparse(K).prepare(F.shape)
KEY = jax.random.key(0)

# What takes complex numbers, and what of it is to be finite.
TAKES = {
    "jaxht.branch_and_bound": lambda: jaxht.branch_and_bound(F, Sparse(1), node_limit=1).x,
    "jaxht.certify": lambda: jaxht.certify(F, Sparse(K), FOUND.x),
    "jaxht.default_solver": lambda: jaxht.default_solver(F, Sparse(K)),
    "jaxht.exhaustive_search": lambda: jaxht.exhaustive_search(F, Sparse(1)).x,
    "jaxht.optimality": lambda: jaxht.optimality(F, Sparse(K), FOUND.x),
    "jaxht.path": lambda: jaxht.path(F, Sparse(), SOLVER, ks=[1, 2]).x,
    "jaxht.solve": lambda: jaxht.solve(F, Sparse(K), SOLVER).x,
    "jaxht.trace": lambda: jaxht.trace(F, Sparse(2), SOLVER, num_steps=2)[1],
    "jaxht.extend.batch_smoothness": lambda: extend.batch_smoothness(PREPARED, 3),
    "jaxht.extend.evaluate": lambda: extend.evaluate(PREPARED, FOUND.x).value,
    "jaxht.extend.has_decreased": lambda: extend.has_decreased(
        PREPARED, *(extend.evaluate(PREPARED, x) for x in (FOUND.x, 0 * FOUND.x)), 0.0
    ),
    "jaxht.extend.init_stochastic": lambda: (
        extend.init_stochastic(PREPARED, FOUND.x, 0.1).full_gradients
    ),
    "jaxht.extend.prepare": lambda: extend.prepare(F, Sparse(K), SOLVER)[0].stop.rtol,
    "jaxht.extend.pursuit_step_size": lambda: extend.pursuit_step_size(
        PREPARED, SPACE, None, False
    ),
    "jaxht.extend.refit": lambda: extend.refit(PREPARED, FOUND.support, FOUND.x).x,
    "jaxht.extend.run_updates": lambda: extend.run_updates(
        lambda batch, indices, x: x - 0.1 * batch.gradient(x, batch.predict(x)),
        FOUND.x,
        3,
        PREPARED,
        key=KEY,
        batch_size=2,
        replace=True,
    ),
    "jaxht.extend.subproblem": lambda: extend.subproblem(PREPARED, SPACE).is_quadratic,
    "jaxht.objectives.dual.column_bound": lambda: dual.column_bound(PREPARED),
    "jaxht.spectral.restricted_condition_number": lambda: spectral.restricted_condition_number(
        F, 2
    ),
    "jaxht.spectral.restricted_smoothness": lambda: spectral.restricted_smoothness(F, 2),
    "jaxht.spectral.restricted_step_size": lambda: spectral.restricted_step_size(F, 2),
    "jaxht.objectives.dual.check_dual": lambda: dual.check_dual(F) or True,
    "jaxht.objectives.dual.conjugate_loss": lambda: dual.conjugate_loss(PREPARED).conjugate(
        PRED, Y
    ),
    "jaxht.objectives.dual.dual_point": lambda: dual.dual_point(PREPARED, SPACE, PRED),
    "jaxht.objectives.dual.dual_variables": lambda: dual.dual_variables(PREPARED, PRED),
    "jaxht.objectives.dual.primal_error": lambda: dual.primal_error(
        PREPARED, FOUND.x, PRED, dual.column_bound(PREPARED)
    ),
    "jaxht.objectives.dual.rounding_unit": lambda: dual.rounding_unit(PREPARED, FOUND.x),
    "jaxht.objectives.dual.strong_duality_margin": lambda: dual.strong_duality_margin(
        PREPARED, SPACE, FOUND.x
    ),
    "jaxht.objectives.dual.sum_conjugates": lambda: dual.sum_conjugates(PREPARED, PRED, PRED),
    "jaxht.objectives.dual.supergradient": lambda: dual.supergradient(PREPARED, PRED, PRED),
    "jaxht.objectives.dual.underflow": lambda: dual.underflow(PREPARED, FOUND.x, PRED),
    "jaxht.validate": lambda: jaxht.validate(F, F, Sparse(), SOLVER, ks=[1, 2]).losses,
}
REAL = "objective must be real"
REFUSES = {
    "jaxht.differentiability": lambda: jaxht.differentiability(F, Sparse(K), FOUND.x),
    "jaxht.criteria.aic": lambda: criteria.aic(F, FOUND.x),
    "jaxht.criteria.bic": lambda: criteria.bic(F, FOUND.x),
    "jaxht.criteria.choose_k": lambda: criteria.choose_k(F, Sparse(), SOLVER, ks=[1, 2]),
    "jaxht.criteria.deviance": lambda: criteria.deviance(F, FOUND.x),
    "jaxht.criteria.ebic": lambda: criteria.ebic(F, FOUND.x),
    "jaxht.criteria.gic": lambda: criteria.gic(F, FOUND.x),
    "jaxht.inference.bootstrap": lambda: inference.bootstrap(
        F, Sparse(2), SOLVER, key=KEY, num_resamples=2
    ),
    "jaxht.inference.knockoffs": lambda: inference.knockoffs(F, SOLVER, key=KEY),
    "jaxht.inference.stability_selection": lambda: inference.stability_selection(
        F, Sparse(2), SOLVER, key=KEY, num_pairs=2
    ),
    "jaxht.inference.standard_errors": lambda: inference.standard_errors(F, FOUND.support, FOUND.x),
}


def functions_of_objectives():
    """The public functions with an objective among their arguments."""
    for module in (jaxht, criteria, exact, extend, inference, spectral, dual):
        for name in getattr(module, "__all__", dir(module)):
            function = getattr(module, name)
            if inspect.isfunction(function) and not name.startswith("_"):
                parameters = inspect.signature(function).parameters
                is_elsewhere = module is exact and hasattr(jaxht, name)
                if {"objective", "held_out"} & set(parameters) and not is_elsewhere:
                    yield f"{module.__name__}.{name}"


def test_no_function_is_left_out():
    assert not set(TAKES) & set(REFUSES)
    assert set(functions_of_objectives()) == set(TAKES) | set(REFUSES)


@pytest.mark.parametrize("name", TAKES)
def test_it_takes_complex_numbers(name):
    leaves = jax.tree.leaves(TAKES[name]())
    assert leaves or name == "jaxht.default_solver"
    assert all(np.all(np.isfinite(leaf)) for leaf in leaves if not isinstance(leaf, str))


@pytest.mark.parametrize("name", REFUSES)
def test_it_says_that_it_takes_none(name):
    with pytest.raises(ValueError, match=REAL):
        REFUSES[name]()


OTHERS = {
    "a constraint of certificates": (
        "constraint must be Sparse or Groups",
        lambda: jaxht.certify(F, jaxht.SparsePerGroup(2, groups=np.arange(24) % 6), FOUND.x),
    ),
    "an operator of a branch and bound": (
        "A must be dense or sparse",
        lambda: jaxht.branch_and_bound(dataclasses.replace(HARD, A=OPERATOR), Sparse(2)),
    ),
    "several outputs": (
        "must be a linear model of one output to have a dual; got MultiResponse",
        lambda: jaxht.certify(
            jaxht.MultiResponse(A, Y[:, None], 0.1), jaxht.Groups(2), FOUND.x[:, None]
        ),
    ),
    "no ridge": (
        "l2 must be a single number above 0",
        lambda: jaxht.certify(LeastSquares(A, Y), Sparse(2), FOUND.x),
    ),
    "swaps of a function": (
        "swaps of complex numbers are those of LeastSquares",
        lambda: jaxht.optimality(
            jaxht.Custom(energy, CLOSE, CLOSE_Y, like=jax.ShapeDtypeStruct((D,), jnp.complex64)),
            Sparse(K),
            X,
        ),
    ),
    "standardize": ("A must be real; got dtype complex64", lambda: jaxht.standardize(A)),
    "moments": ("A must be real", lambda: jaxht.Moments.zero(24).add(A, Y.real)),
    "targets of moments": ("y must be real", lambda: jaxht.Moments.zero(24).add(A.real, Y)),
    "reduced rank": (
        "Y must be real",
        lambda: jaxht.reduced_rank_minimum(A.real, Y[:, None], 0.1, 1),
    ),
    "pruning": (
        "weights must be real",
        lambda: jaxht.pruning.prune_layer(A[:9, :4], np.eye(9), 3),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_else_takes_none_says_so(name):
    words, call = OTHERS[name]
    with pytest.raises(ValueError, match=words):
        call()
