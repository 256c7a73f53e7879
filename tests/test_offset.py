"""Offsets: as a further column whose coefficient is 1, everywhere that predictions are used."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from scipy import optimize

import jaxht
from jaxht import Sparse, criteria
from jaxht.objectives import dual
from tests.test_objectives import NAMED, lanes, minimised
from tests.util import quick, solve, x64

pytestmark = pytest.mark.usefixtures("all_quickly")
N, D, C, K = 24, 6, 3, 2


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


def problem(kind, design="dense"):
    """An objective with weights and an offset, and its definition as a function of x."""
    rng = np.random.default_rng(0)
    A, x = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.7), rng.normal(size=(D, C))
    offset = rng.normal(size=(N, C) if len(kind.shape) == 2 else N)
    y = kind.y(rng, A @ x + (offset if offset.ndim == 2 else offset[:, None]))
    weights = rng.exponential(size=N)
    held = jaxht.design(scipy.sparse.csr_array(A)) if design == "sparse" else jnp.asarray(A)
    f = kind.make(held, jnp.asarray(y), 0.3, mean=True, weights=weights, offset=offset)
    share = weights / weights.sum()

    def value(x, l2=0.3):
        return jnp.sum(share * kind.loss(A @ x + offset, y, jnp)) + jnp.sum(l2 * x**2) / 2

    return f, value


@pytest.mark.parametrize("name", NAMED)
def test_value_and_derivatives(name):
    kind = NAMED[name]
    f, value = problem(kind)
    rng = np.random.default_rng(1)
    x, v = 0.4 * rng.normal(size=kind.shape), rng.normal(size=kind.shape)
    pred = f.predict(x)
    np.testing.assert_allclose(f.value(x, pred), value(x), rtol=1e-11)
    gradient, product = jax.jvp(jax.grad(value), (x,), (v,))
    np.testing.assert_allclose(f.gradient(x, pred), gradient, rtol=1e-10, atol=1e-12)
    indices, shares = np.array([3, 0, 7, N]), np.array([0.5, 1.0, 2.0, 0.0])
    batches = [
        f.minibatch(jnp.array([i]), jnp.array([w])) for i, w in zip(indices, shares, strict=True)
    ]
    whole = f.minibatch(jnp.asarray(indices), jnp.asarray(shares))
    apart = sum(batch.gradient(x, batch.predict(x)) for batch in batches)
    np.testing.assert_allclose(whole.gradient(x, whole.predict(x)), apart, rtol=1e-10, atol=1e-12)
    everything = f.minibatch(jnp.arange(N), jnp.full(N, 1 / N))
    np.testing.assert_allclose(
        everything.gradient(x, everything.predict(x)), gradient, rtol=1e-10, atol=1e-12
    )
    if name != "hinge":
        np.testing.assert_allclose(f.hessian(x, pred)(v), product, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("design", ["dense", "sparse"])
@pytest.mark.parametrize("name", ["least-squares", "logistic", "gamma", "softmax", "responses"])
def test_minimisers_on_supports(name, design):
    """Their gradients are 0 on the support: all are strictly convex there."""
    kind = NAMED[name]
    f, value = problem(kind, design)
    masks, x0, ridge = lanes(kind)
    found = minimised(f, masks, x0, ridge)
    x, pred, converged = found.x, found.pred, found.converged
    assert np.all(converged)
    gradients = quick(jax.vmap(jax.grad(value)))(x, 0.3 + ridge)
    np.testing.assert_allclose(np.where(masks, gradients, 0), 0, atol=1e-8)
    np.testing.assert_allclose(pred, [f.predict(point) for point in x], rtol=0, atol=1e-12)


SOLVERS = [
    jaxht.HTP(),
    jaxht.NIHT(),
    jaxht.OMP(),
    jaxht.OLS(),
    jaxht.FoBa(),
    jaxht.ExhaustiveLocalSearch(),
    jaxht.LocalSearch(),
    jaxht.ARHT(),
    jaxht.DIHT(),
    jaxht.SDIHT(batch_size=4),
    jaxht.SGHT(batch_size=4),
    jaxht.HTSVRG(),
    jaxht.HTSAGA(),
]


@pytest.mark.parametrize(
    ("solver", "weighted"),
    [(solver, True) for solver in SOLVERS]
    + [(solver, False) for solver in (jaxht.HTP(), jaxht.DIHT(), jaxht.HTSAGA())],
    ids=repr,
)
def test_runs_are_those_on_targets_less_the_offset(solver, weighted):
    rng = np.random.default_rng(2)
    A, y, offset = rng.normal(size=(N, D)), rng.normal(size=N), rng.normal(size=N)
    weights = rng.exponential(size=N) if weighted else None
    make = functools.partial(jaxht.LeastSquares, A, l2=0.2, mean=True, weights=weights)
    run = functools.partial(solve, constraint=Sparse(K, K), solver=solver, key=jax.random.key(0))
    ours, theirs = run(make(y, offset=offset)), run(make(y - offset))
    np.testing.assert_allclose(ours.x, theirs.x, rtol=0, atol=1e-7)
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-9)
    assert ours.gap is None or np.isclose(ours.gap, theirs.gap, rtol=0, atol=1e-6)


def classified(l2=0.1):
    rng = np.random.default_rng(3)
    A = rng.normal(size=(40, D))
    offset = 2 * A[:, 1] + rng.normal(size=40)
    y = np.where(A[:, 0] - A[:, 3] + offset + rng.logistic(size=40) > 0, 1.0, -1.0)
    return jaxht.Logistic(A, y, l2, offset=offset)


def least(f, k):
    """The least value over supports of size k, by SciPy."""

    def minimum(S):
        def value(w):
            return (
                np.mean(np.logaddexp(0, -f.y * (f.A[:, S] @ w + f.offset)))
                + float(f.l2) / 2 * w @ w
            )

        return optimize.minimize(value, np.zeros(k), tol=1e-12).fun

    return min((minimum(list(S)), S) for S in itertools.combinations(range(D), k))


def test_the_best_support_of_a_logistic_model_and_its_certificate():
    f = classified()
    value, S = least(f, K)
    assert S != least(dataclasses.replace(f, offset=0 * f.offset), K)[1]  # the offset matters
    found = jaxht.solve(f, Sparse(K))
    assert found.support.numpy().tolist() == list(S)
    np.testing.assert_allclose(found.value, value, rtol=1e-9)
    for solver in (None, jaxht.DIHT()):
        proof = jaxht.certify(f, Sparse(K), found.x, solver=solver)
        assert proof.lower <= value + 1e-12 and proof.value >= value - 1e-12
        assert proof.gap < 0.1 * value
    best = jaxht.branch_and_bound(f, Sparse(K), gap_rtol=1e-6)
    assert best.status.name == "OPTIMAL" and best.lower <= value * (1 + 1e-9)
    np.testing.assert_allclose(best.value, value, rtol=1e-6)


def test_certificates_of_squares_and_their_tails():
    rng = np.random.default_rng(4)
    A, y, offset = rng.normal(size=(30, D)), rng.normal(size=30), rng.normal(size=30)
    for make in (jaxht.LeastSquares, jaxht.Huber):
        ours, theirs = (
            make(A, y, 0.5, mean=True, offset=offset),
            make(A, y - offset, 0.5, mean=True),
        )
        x = jaxht.solve(theirs, Sparse(K), jaxht.HTP()).x
        proofs = [jaxht.certify(f, Sparse(K), x) for f in (ours, theirs)]
        np.testing.assert_allclose(proofs[0], proofs[1], rtol=0, atol=1e-9)
        bests = [jaxht.branch_and_bound(f, Sparse(K), gap_rtol=1e-9) for f in (ours, theirs)]
        np.testing.assert_allclose(bests[0].value, bests[1].value, rtol=1e-9)
    ours, theirs = (
        jaxht.LeastSquares(A, y, offset=offset, mean=False),
        jaxht.LeastSquares(A, y - offset, mean=False),
    )
    bests = [jaxht.exhaustive_search(f, Sparse(K)) for f in (ours, theirs)]
    np.testing.assert_allclose(bests[0].value, bests[1].value, rtol=1e-12)


@pytest.mark.parametrize("name", ["squared", "logistic", "hinge", "gamma"])
def test_weak_duality(name):
    """f(x) >= D(alpha) at random points, where offsets are large."""
    make = {
        "squared": jaxht.LeastSquares,
        "logistic": jaxht.Logistic,
        "hinge": jaxht.Hinge,
        "gamma": jaxht.Gamma,
    }[name]
    rng = np.random.default_rng(5)
    y = {"squared": rng.normal(size=N), "gamma": rng.gamma(2.0, size=N)}.get(
        name, rng.choice([-1.0, 1.0], N)
    )
    f = make(rng.normal(size=(N, D)), y, 0.3, mean=True, offset=2 * rng.normal(size=N))
    ready = Sparse(K).prepare((D,))

    @quick
    @jax.vmap
    def both(z, alpha):
        x = ready.project(z)[0]
        own = dual.dual_variables(f, f.predict(x))
        alphas = jnp.stack([f.loss.within(alpha, f.y), own])
        return f.value(x, f.predict(x)), jax.vmap(
            lambda alpha: dual.dual_point(f, ready, alpha).value
        )(alphas)

    values, bounds = both(rng.normal(size=(2000, D)), 2 * rng.normal(size=(2000, N)))
    assert np.all(np.min(values) >= bounds)


def test_criteria_and_cross_validation():
    rng = np.random.default_rng(6)
    A, offset = rng.normal(size=(60, D)), 3 * rng.normal(size=60)
    y = A[:, 0] + offset + 0.1 * rng.normal(size=60)
    x = np.eye(D)[0]
    ours, theirs = (
        jaxht.LeastSquares(A, y, offset=offset, mean=False),
        jaxht.LeastSquares(A, y - offset, mean=False),
    )
    assert criteria.bic(ours, x) == pytest.approx(float(criteria.bic(theirs, x)), rel=1e-12)
    counts = rng.poisson(np.exp(0.5 * offset)).astype(float)
    f = jaxht.Poisson(A, counts, offset=0.5 * offset)
    mean = np.exp(A @ x + 0.5 * offset)
    assert criteria.deviance(f, x) == pytest.approx(
        2 * np.sum(mean - counts * np.log(mean)), rel=1e-12
    )

    def split(held):
        weights = [1.0 - held, 1.0 * held]
        return tuple(
            jaxht.LeastSquares(A, y, weights=w, offset=offset, mean=False) for w in weights
        )

    masks = np.arange(60) % 3 == np.arange(3)[:, None]
    choice = jaxht.cross_validate(split, masks, Sparse(1), jaxht.OMP(), ks=[1, 2])
    for fold, held in enumerate(masks):
        part = jaxht.solve(
            jaxht.LeastSquares(A[~held], (y - offset)[~held], mean=False), Sparse(1), jaxht.OMP()
        )
        loss = np.sum((A[held] @ part.x - (y - offset)[held]) ** 2) / 2
        assert choice.losses[fold, 0] == pytest.approx(float(loss), rel=1e-9)


def test_matrices():
    rng = np.random.default_rng(7)
    rows, columns = np.nonzero(rng.random((6, 5)) < 0.8)
    y, offset = rng.normal(size=(2, len(rows)))
    ours = jaxht.matrix_completion(rows, columns, y, (6, 5), offset=offset, mean=False)
    theirs = jaxht.matrix_completion(rows, columns, y - offset, (6, 5), mean=False)
    results = [solve(f, jaxht.LowRank(1, 1), jaxht.HTP()) for f in (ours, theirs)]
    np.testing.assert_allclose(results[0].x, results[1].x, atol=1e-8)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (
            jaxht.LeastSquares(np.ones((4, 2)), np.ones(4), offset=np.ones(3), mean=False),
            r"offset must have shape \(4,\).*\(3,\)",
        ),
        (
            jaxht.LeastSquares(np.ones((4, 2)), np.ones(4), offset=1.0, mean=False),
            r"offset must be an array of shape \(4,\)",
        ),
        (
            jaxht.Softmax(np.ones((4, 2)), np.zeros(4, int), num_classes=3, offset=np.ones(4)),
            r"offset must have shape \(4, 3\)",
        ),
    ],
)
def test_shapes(f, message):
    with pytest.raises(ValueError, match=message):
        jaxht.solve(f, Sparse(1), jaxht.HTP())
