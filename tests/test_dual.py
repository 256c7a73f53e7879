"""Conjugates, the dual problem, its solvers, and certificates."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import jaxht
from jaxht import DIHT, SDIHT, Sparse, Status, Stop
from jaxht.objectives import dual as duality
from jaxht.objectives.losses import (
    GammaLoss,
    HingeLoss,
    HuberLoss,
    LogisticLoss,
    PoissonLoss,
    SmoothedHingeLoss,
    SquaredHingeLoss,
    SquaredLoss,
)
from tests import reference
from tests.util import host, quick, solve, trace, x64

pytestmark = pytest.mark.usefixtures("all_quickly")


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


LOSSES = {
    "squared": (SquaredLoss(), "real"),
    "Huber": (HuberLoss(0.7), "real"),
    "logistic": (LogisticLoss(), "labels"),
    "logistic, scaled": (LogisticLoss(2.0), "labels"),
    "smoothed hinge": (SmoothedHingeLoss(0.25), "labels"),
    "squared hinge": (SquaredHingeLoss(), "labels"),
    "hinge": (HingeLoss(), "labels"),
    "Poisson": (PoissonLoss(), "counts"),
    "gamma": (GammaLoss(), "positive"),
}


def targets(rng, kind, size):
    if kind == "positive":
        return rng.gamma(2.0, 0.7, size) + 0.01
    draw = {"real": rng.normal, "labels": rng.choice, "counts": rng.poisson}[kind]
    return draw([-1.0, 1.0], size) if kind == "labels" else draw(1.5, size=size).astype(float)


# ---- conjugates ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOSSES)
def test_fenchel_and_young(name):
    """l(u) + l*(a) >= a u, with equality at the slope, of which l*' is the way back; infinite
    beyond the domain."""
    loss, kind = LOSSES[name]
    rng = np.random.default_rng(0)
    y, u, v = targets(rng, kind, 2000), 3 * rng.normal(size=2000), 3 * rng.normal(size=2000)
    a = loss.derivative(u, y)
    bound = loss.value(v, y) + loss.conjugate(a, y) - a * v
    assert np.all(bound >= -1e-12) and np.any(bound > 0.1)
    inner = loss.within(a, y)
    np.testing.assert_allclose(inner, a, rtol=0, atol=1e-15)
    np.testing.assert_allclose(
        loss.value(u, y) + loss.conjugate(inner, y), inner * u, rtol=1e-12, atol=1e-12
    )
    back = loss.derivative(loss.conjugate_derivative(inner, y), y)
    if name != "hinge":
        np.testing.assert_allclose(back, a, rtol=0, atol=1e-9)
    wild = 5 * rng.normal(size=2000)
    nearest = loss.within(wild, y)
    assert np.all(np.isfinite(loss.conjugate(nearest, y))) and np.all(
        np.isfinite(loss.conjugate_derivative(nearest, y))
    )
    outside = np.abs(nearest - wild) > 1e-9
    assert np.all(np.isinf(loss.conjugate(wild, y)) == outside) and outside.any() == (
        name != "squared"
    )


@pytest.mark.parametrize("name", LOSSES)
def test_derivatives_of_conjugates_are_differences(name):
    loss, kind = LOSSES[name]
    rng = np.random.default_rng(1)
    y, step = targets(rng, kind, 200), 1e-6
    a = sum(loss.derivative(u, y) / 2 for u in 1.5 * rng.normal(size=(2, 200)))
    low, high = loss.within(a - step, y), loss.within(a + step, y)
    free = high - low > 1.5 * step
    a, y, low, high = a[free], y[free], low[free], high[free]
    middle = (low + high) / 2
    slope = (loss.conjugate(high, y) - loss.conjugate(low, y)) / (high - low)
    np.testing.assert_allclose(loss.conjugate_derivative(middle, y), slope, rtol=1e-4, atol=1e-4)
    bend = (loss.conjugate_derivative(high, y) - loss.conjugate_derivative(low, y)) / (high - low)
    np.testing.assert_allclose(loss.conjugate_curvature(middle, y), bend, rtol=1e-3, atol=1e-8)
    assert free.sum() > 50


# ---- the dual problem ----------------------------------------------------------------------------

MODELS = {
    "squared": (jaxht.LeastSquares, "real"),
    "Huber": (functools.partial(jaxht.Huber, delta=0.7), "real"),
    "logistic": (jaxht.Logistic, "labels"),
    "smoothed hinge": (functools.partial(jaxht.SmoothedHinge, gamma=0.25), "labels"),
    "squared hinge": (jaxht.SquaredHinge, "labels"),
    "hinge": (jaxht.Hinge, "labels"),
    "Poisson": (jaxht.Poisson, "counts"),
    "gamma": (jaxht.Gamma, "positive"),
}
N, D, K = 12, 9, 3
GROUPS = np.arange(D) % 4
CONSTRAINTS = {
    "sparse": Sparse(K),
    "non-negative": Sparse(K, nonnegative=True),
    "bounded": Sparse(K, bounds=(-0.3, 0.4)),
    "groups": jaxht.Groups(2, GROUPS),
}


def model(name, rng, weights=None, l2=0.3):
    make, kind = MODELS[name]
    return make(rng.normal(size=(N, D)), targets(rng, kind, N), l2, mean=True, weights=weights)


PAIRS = [(name, "sparse") for name in MODELS] + [
    ("squared", other) for other in CONSTRAINTS if other != "sparse"
]


@pytest.mark.parametrize(
    ("name", "constraint"), [*PAIRS, ("logistic", "bounded"), ("hinge", "groups")]
)
def test_weak_duality(name, constraint):
    """f(x) >= D(alpha), for 10 000 pairs of random points; and D is the Lagrangian at its own
    minimiser."""
    rng = np.random.default_rng(2)
    f = model(name, rng, weights=rng.random(N) if name == "squared" else None)
    C = CONSTRAINTS[constraint].prepare((D,))

    @quick
    @jax.vmap
    def both(z, alpha):
        x, point = C.project(z)[0], duality.dual_point(f, C, f.loss.within(alpha, f.y))
        return f.value(x, f.predict(x)), point

    Z, alphas = rng.normal(size=(10_000, D)), 2 * rng.normal(size=(10_000, N))
    values, points = host(both(Z, alphas))
    assert np.all(np.isfinite(points.value))
    assert np.all(values >= points.value)
    # sum_i c s_i (a_i u_i - l*(a_i)) + l2/2 ||w||^2 at w(alpha)
    shares = np.full(N, 1 / N) if f.weights is None else f.weights / np.sum(f.weights)
    alpha, w = points.alpha[0], points.w[0]
    lagrangian = (
        shares @ (alpha * (f.design.array @ w) - np.asarray(f.loss.conjugate(alpha, f.y)))
        + 0.15 * w @ w
    )
    np.testing.assert_allclose(points.value[0], lagrangian, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["squared", "logistic", "Poisson", "gamma"])
def test_supergradients_are_differences(name):
    rng = np.random.default_rng(3)
    f, C = model(name, rng), Sparse(K).prepare((D,))
    alpha, E = duality.dual_variables(f, rng.normal(size=N)), rng.normal(size=N)
    D_at = quick(lambda alpha: duality.dual_point(f, C, alpha).value)
    point = duality.dual_point(f, C, alpha)
    assert duality.support_margin(point, K) > 1e-3  # no tie nearby
    slope = (D_at(alpha + 1e-6 * E) - D_at(alpha - 1e-6 * E)) / 2e-6
    np.testing.assert_allclose(
        duality.supergradient(f, alpha, f.predict(point.w)) @ E, slope, rtol=1e-6
    )


def test_the_papers_example():
    """y = [2, 2, 1], A = I, lambda = 1, k = 1: P* = 4/3, and by the definition of D, 55/42 is its
    maximum."""
    f = jaxht.LeastSquares(np.eye(3), np.array([2.0, 2.0, 1.0]), 1.0, mean=True)
    best = duality.dual_point(f, Sparse(1).prepare((3,)), jnp.array([-12 / 7, -12 / 7, -1]))
    np.testing.assert_allclose(best.value, 55 / 42, rtol=1e-14)
    result = solve(f, Sparse(1, 1), DIHT())
    np.testing.assert_allclose(result.value, 4 / 3, rtol=1e-12)
    gap = 4 / 3 - 55 / 42
    assert gap - 1e-12 <= result.gap < gap + 1e-4


@pytest.mark.parametrize(("lam", "closed"), [(0.3, True), (0.01, False)])
def test_orthonormal_designs(lam, closed):
    """Of A = I the gap is 0 if and only if lam N |y|_(k) / (1 + lam N) >= |y|_(k+1)."""
    y = np.array([3.0, -2.5, 2.0, -1.4, 0.5, 0.1, 1.0, 0.3])
    n, k, f = 8, 3, jaxht.LeastSquares(np.eye(8), y, lam, mean=True)
    size = np.sort(np.abs(y))[::-1]
    assert (lam * n * size[k - 1] / (1 + lam * n) >= size[k]) == closed
    result = solve(f, Sparse(k, k), DIHT())
    np.testing.assert_allclose(
        result.x, reference.hard_threshold(y, k) / (1 + lam * n), rtol=0, atol=1e-12
    )
    assert (result.gap < 1e-8) == closed
    assert (duality.strong_duality_margin(f, Sparse(k), result.x) >= 0) == closed
    if closed:
        top = np.abs(y) >= size[k - 1]
        alpha = np.where(top, -lam * n * y / (1 + lam * n), -y)
        point = duality.dual_point(f, Sparse(k).prepare((8,)), alpha)
        np.testing.assert_allclose(point.value, result.value, rtol=1e-12)
        assert duality.support_margin(point, k) > 0


# ---- solvers -------------------------------------------------------------------------------------


def ascent(f, loss, alpha, k, etas, blocks):
    """Yuan et al. 2020, Algorithms 1 and 2, sample by sample: yields alpha and D after each
    update."""
    n, lam = len(f.y), float(f.l2)

    def point(alpha):
        z = -sum(alpha[i] * f.design.array[i] for i in range(n)) / (lam * n)
        return reference.hard_threshold(z, k)

    for eta, block in zip(etas, blocks, strict=True):
        w, new = point(alpha), alpha.copy()
        for i in block:
            y = f.y[i : i + 1]
            g = (
                f.design.array[i] @ w - float(loss.conjugate_derivative(alpha[i : i + 1], y)[0])
            ) / n
            new[i] = float(loss.within(jnp.asarray([alpha[i] + eta * g]), y)[0])
        alpha = new
        w = point(alpha)
        yield alpha, -np.mean(loss.conjugate(alpha, f.y)) - lam / 2 * w @ w


def values_and_gaps(carry):
    return carry.iterate.x, carry.iterate.value - carry.info.gap


@pytest.mark.parametrize("name", ["squared", "smoothed hinge"])
@pytest.mark.parametrize(
    "solver", [DIHT(6.0, True, 2), DIHT(1.0, inner_steps=2), SDIHT(9.0, True, 5, 4)], ids=repr
)
def test_steps_are_those_of_the_reference(name, solver):
    f = model(name, np.random.default_rng(4))
    key, steps = jax.random.key(0), 3
    m = solver.inner_steps
    times = np.arange(steps * m)
    etas = (
        float(solver.step_size) / (times + 2)
        if solver.diminishing
        else np.full(len(times), solver.step_size)
    )
    blocks = [range(N)] * len(times)
    if isinstance(solver, SDIHT):
        draws, own = [], key
        for _ in range(steps):
            own, drawn = jax.random.split(own)
            draws += [
                int(jax.random.bits(jax.random.fold_in(drawn, t), (), jnp.uint32) % 3)
                for t in range(m)
            ]
        blocks = [range(5 * j, min(5 * j + 5, N)) for j in draws]
    alpha = np.asarray(duality.dual_variables(f, jnp.zeros(N)))
    alphas, expected = zip(*ascent(f, f.loss, alpha, K, etas, blocks), strict=True)
    first = -np.mean(f.loss.conjugate(alpha, f.y)) - 0.15 * np.sum(
        reference.hard_threshold(-f.design.array.T @ alpha / (0.3 * N), K) ** 2
    )
    seen = expected if isinstance(solver, DIHT) else expected[m - 1 :: m]
    bests = np.maximum.accumulate([first, *seen])[:: m if isinstance(solver, DIHT) else 1]
    bests = np.maximum(bests, 0)  # D(0)
    result, (_, lower) = trace(
        f, Sparse(K, K), solver, num_steps=steps, record=values_and_gaps, key=key
    )
    np.testing.assert_allclose(lower, bests, rtol=0, atol=1e-12)
    plain, _ = trace(
        f,
        Sparse(K, K),
        dataclasses.replace(solver, debias=False),
        num_steps=steps,
        key=key,
    )
    np.testing.assert_allclose(plain.value - plain.gap, bests[-1], rtol=0, atol=1e-12)
    images = [
        reference.hard_threshold(-f.design.array.T @ alpha / (0.3 * N), K) for alpha in alphas
    ]
    assert min(np.max(np.abs(plain.x - w)) for w in [np.zeros(D), *images]) < 1e-12
    assert result.counts.projections == steps * m
    gradients = result.counts.full_gradients, result.counts.sample_gradients
    assert gradients == ((0, 5 * steps * m) if isinstance(solver, SDIHT) else (steps * m, 0))


def global_minimiser(A, y, l2, k):
    """The global minimiser of a ridge regression, and its value, support by support."""
    G, b = A.T @ A / N + l2 * np.eye(D), A.T @ y / N
    found = {
        S: np.linalg.solve(G[np.ix_(S, S)], b[list(S)]) for S in itertools.combinations(range(D), k)
    }
    best = max(found, key=lambda S: b[list(S)] @ found[S])
    x = np.zeros(D)
    x[list(best)] = found[best]
    return x, (y @ y / N - b @ x) / 2


def brute_force(f, k):
    """The global minimum of a ridge regression."""
    return global_minimiser(f.design.array, f.y, f.l2, k)[1]


def test_the_gap_closes_if_and_only_if_the_margin_is_not_negative():
    """Theorem 2, on twelve designs and targets, each with a small and a large ridge: about half of
    them close."""
    rng = np.random.default_rng(9)
    A, y, l2 = rng.normal(size=(24, N, D)), rng.normal(size=(24, N)), np.tile([2.0, 8.0], 12)
    best, least = map(
        np.stack, zip(*map(functools.partial(global_minimiser, k=K), A, y, l2), strict=True)
    )

    @quick
    @jax.vmap
    def run(A, y, l2, x):
        f, C = jaxht.LeastSquares(A, y, l2, mean=True), Sparse(K)
        result = jaxht.solve(f, C, DIHT(), stop=Stop(max_steps=60, gap_rtol=1e-9))
        return result, duality.strong_duality_margin(f, C, x)

    result, margin = host(run(A, y, l2, best))
    closes = margin >= 0
    assert 6 <= closes.sum() <= 18 and np.min(np.abs(margin)) > 1e-6
    np.testing.assert_array_equal(result.status == Status.GAP_CLOSED, closes)
    assert np.all(result.gap[~closes] > 1e-5 * result.value[~closes])
    np.testing.assert_allclose(result.value[closes], least[closes], rtol=1e-9)
    np.testing.assert_allclose(result.value, least, rtol=1e-3)


@pytest.mark.parametrize(
    ("make", "sparse"),
    [(DIHT, False), (SDIHT, False), (DIHT, True), (lambda: SDIHT(batch_size=5), True)],
)
def test_with_a_large_ridge_the_optimum_is_found_and_proved(make, sparse):
    f = model("squared", np.random.default_rng(5), l2=20 / np.sqrt(N))
    held = (
        jaxht.LeastSquares(
            jaxht.design(scipy.sparse.csr_array(f.design.array)), f.y, f.l2, mean=True
        )
        if sparse
        else f
    )
    result = solve(held, Sparse(K, K), make(), key=jax.random.key(0), stop=Stop(gap_rtol=1e-9))
    assert result.status == Status.GAP_CLOSED
    np.testing.assert_allclose(result.value, brute_force(f, K), rtol=1e-9)


def test_no_bound_is_below_that_of_zero():
    """D(0) = 0 for squares, which are not negative; an ascent from elsewhere may take long to come
    as far."""
    f = model("squared", np.random.default_rng(8), l2=1e-4)
    result = solve(f, Sparse(K, K), DIHT(), stop=Stop(max_steps=1))
    point = duality.dual_point(f, Sparse(K).prepare((D,)), duality.dual_variables(f, jnp.zeros(N)))
    assert point.value < -1 and 0 < result.gap <= result.value * (1 + 1e-13)


def test_with_a_small_ridge_the_gap_stays_open_and_says_so():
    f = model("squared", np.random.default_rng(5), l2=0.01 / np.sqrt(N))
    result = solve(f, Sparse(K, K), DIHT(), stop=Stop(max_steps=200, gap_rtol=1e-9))
    assert result.status == Status.MAX_STEPS and result.gap > 1e-2 * result.value
    assert result.value - result.gap <= brute_force(f, K) <= result.value + 1e-12


def largest_dual(A, y, l2, k):
    """The maximum of D of a ridge regression: the minimum of its perspective relaxation, of which x
    is eliminated, over z in [0, 1] that sum to k."""

    def value(z):
        alpha = np.linalg.solve(np.eye(N) + A * z @ A.T / (N * l2), y)
        return y @ alpha / (2 * N), -((A.T @ alpha) ** 2) / (2 * N**2 * l2)

    total = {"type": "eq", "fun": lambda z: k - np.sum(z), "jac": lambda z: -np.ones(D)}
    found = scipy.optimize.minimize(
        value,
        np.full(D, k / D),
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * D,
        constraints=total,
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert found.success
    return found.fun


def test_with_a_small_ridge_the_ascent_goes_on():
    """Where D is strongly curved, and its maximum lies at ties, step sizes that fall too soon end
    it at a part of the maximum."""
    for seed in range(3):
        f = model("squared", np.random.default_rng(seed), l2=0.01 / np.sqrt(N))
        most = largest_dual(np.asarray(f.design.array), np.asarray(f.y), f.l2, K)
        result = solve(f, Sparse(K, K), DIHT(), stop=Stop(max_steps=1000))
        lower = result.value - result.gap
        assert 0.97 * most < lower <= most * (1 + 1e-6)


BY_LOSS = {
    "logistic": DIHT(),
    "smoothed hinge": SDIHT(batch_size=4),
    "squared hinge": DIHT(),
    "hinge": SDIHT(batch_size=4),
    "Huber": DIHT(),
}


@pytest.mark.parametrize("name", BY_LOSS)
def test_lanes_of_every_loss(name):
    """k traced, a lane of NaN beside: gaps close where the ridge is large, and hurt nobody."""
    rng = np.random.default_rng(6)
    make, kind = MODELS[name]
    A, y, ks = rng.normal(size=(3, N, D)), targets(rng, kind, (3, N)), np.array([1, 2, 3])
    A[1, 0, 0] = np.nan

    @quick
    @jax.vmap
    def run(A, y, k):
        f, C, stop = make(A, y, 5.0, mean=True), Sparse(k, 3), Stop(max_steps=200)
        return jaxht.solve(f, C, BY_LOSS[name], key=jax.random.key(0), stop=stop)

    result = run(A, y, ks)
    assert result.status[1] == Status.INVALID_DATA and np.all(np.isfinite(result.x))
    for i in (0, 2):
        assert 0 < result.gap[i] < 2e-4 * result.value[i]
        assert np.count_nonzero(result.x[i]) == ks[i]


# ---- certificates --------------------------------------------------------------------------------


def test_a_certificate_of_any_solution():
    f = model("squared", np.random.default_rng(7), l2=3.0)
    least = brute_force(f, K)
    good, bad = solve(f, Sparse(K, K), jaxht.HTP()).x, np.zeros(D)
    many = quick(jax.vmap(lambda x: jaxht.certify(f, Sparse(K), x)))(np.stack([good, bad]))
    for i, x in enumerate((good, bad)):
        proof = jax.tree.map(lambda leaf, i=i: leaf[i], many)
        value = float(f.value(jnp.asarray(x), f.predict(jnp.asarray(x))))
        np.testing.assert_allclose(proof.value, value, rtol=1e-12)
        assert value - proof.gap <= least * (1 + 1e-12) and proof.gap >= value - least - 1e-12
        assert (
            proof.gap - (value - least) < 1e-5 * least
        )  # here strong duality holds, and the bound is tight
    np.testing.assert_allclose(jaxht.certify(f, Sparse(K), bad).gap, many.gap[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_certificates_are_at_least_as_tight_as_those_of_dual_ascent(name):
    for seed, l2 in ((0, 0.03), (1, 0.3), (2, 3.0)):
        f = model(name, np.random.default_rng(seed), l2=l2)
        x = solve(f, Sparse(K, K), jaxht.HTP()).x
        ours, theirs = (
            jaxht.certify(f, Sparse(K, K), x, solver=solver) for solver in (None, DIHT())
        )
        assert ours.value == theirs.value
        assert ours.gap <= 1.002 * theirs.gap + 1e-6 * abs(ours.value)


RIDGE = jaxht.LeastSquares(np.ones((4, 3)), np.ones(4), 0.1, mean=False)
WRONG = {
    "a ridge each": (
        r"l2 must be a single number",
        jaxht.LeastSquares(np.ones((4, 3)), np.ones(4), np.ones(3), mean=False),
        DIHT(),
    ),
    "no loss": (
        r"must be a linear model of one output.*got Custom",
        jaxht.Custom(jnp.sum, like=3),
        SDIHT(),
    ),
    "outputs": (
        r"linear model of one output.*MultiResponse",
        jaxht.MultiResponse(np.ones((4, 3)), np.ones((4, 2)), 1.0),
        DIHT(),
    ),
    "block": (r"batch_size must be an int in \[1, 4\].*got 9", RIDGE, SDIHT(batch_size=9)),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be(name):
    message, f, solver = WRONG[name]
    with pytest.raises(ValueError, match=message):
        jaxht.solve(f, Sparse(1), solver, key=jax.random.key(0))


@pytest.mark.parametrize("solver", [DIHT(), SDIHT()], ids=repr)
def test_without_a_ridge_there_is_no_dual(solver):
    f = jaxht.LeastSquares(np.eye(4), np.ones(4), mean=False)
    result = solve(f, Sparse(1, 1), solver, key=jax.random.key(0))
    assert (result.status, result.num_steps) == (Status.NO_DUAL, 0)
    assert result.gap == np.inf
    for without in (0, 0.0, None, np.float64(0)):
        f = jaxht.LeastSquares(np.eye(4), np.ones(4), without, mean=False)
        with pytest.raises(
            ValueError, match=r"l2 must be a single number above 0 to have a dual; got"
        ):
            jaxht.certify(f, Sparse(1), np.ones(4))
        with pytest.raises(
            ValueError, match=r"l2 must be a single number above 0 to have a dual; got"
        ):
            duality.check_dual(f)
    with pytest.raises(ValueError, match=r"l2 must be .* above 0 to have a dual; got 0"):
        jaxht.solve(
            jaxht.LeastSquares(np.eye(4), np.ones(4), mean=False),
            Sparse(1),
            solver,
            key=jax.random.key(0),
        )
    proof = quick(
        lambda l2: jaxht.certify(
            jaxht.LeastSquares(np.eye(4), np.ones(4), l2, mean=False), Sparse(1, 1), np.ones(4)
        )
    )(0.0)
    assert (proof.lower, proof.gap) == (-np.inf, np.inf) and proof.value >= 0


@pytest.mark.parametrize("absent", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("loss", [jaxht.Poisson, jaxht.Gamma])
def test_targets_of_weight_0_add_no_rounding_error(loss, absent):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(20, 5))
    y = 1.0 + rng.poisson(2.0, size=20)
    weights = np.ones(20)
    weights[3] = 0

    def error(target):
        targets = y.copy()
        targets[3] = target
        f = loss(A, targets, 0.1, weights=weights).prepare()
        x = jnp.full(5, 0.1)
        return duality.primal_error(f, x, f.predict(x), duality.column_bound(f))

    np.testing.assert_allclose(error(absent), error(2.0), rtol=1e-5)
