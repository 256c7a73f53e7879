"""Every objective on every kind of design: formulas against autodiff of their definition,
minimisers against SciPy."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from scipy import optimize, special

import jaxht
from jaxht import Status, Support
from jaxht.extend import pytree
from jaxht.objectives.losses import LogisticLoss
from jaxht.subproblems import RefitStatus, refit
from tests.util import QUICK, quick, x64

pytestmark = pytest.mark.usefixtures("all_quickly")
N, D, C, K_MAX = 24, 6, 3, 4


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


# ---- the objectives, and what they are -----------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Kind:
    """An objective with its loss, written down once more for NumPy or JAX (`xp`), and the targets
    that it takes."""

    name: str
    make: Callable[..., Any]
    loss: Callable[..., Any]
    targets: str = "labels"

    @property
    def shape(self):
        """That of the variable."""
        return (D, C) if self.targets in ("classes", "responses") else (D,)

    def y(self, rng, u):
        """Targets that go with predictions u (n, c)."""
        noise = rng.normal(size=u.shape)
        return {
            "reals": u[:, 0] + noise[:, 0],
            "labels": np.where(u[:, 0] + noise[:, 0] > 0, 1.0, -1.0),
            "counts": rng.poisson(np.exp(0.5 * u[:, 0])).astype(float),
            "positive": np.exp(0.5 * u[:, 0]) * rng.gamma(2.0, 0.5, size=len(u)),
            "classes": np.argmax(u + noise, axis=1),
            "responses": u + noise,
        }[self.targets]

    def value(self, x, A, y, l2, s, c, xp=np):
        """``c sum_i s_i l_i + 1/2 sum_j l2_j x_j^2``."""
        return c * xp.sum(s * self.loss(A @ x, y, xp)) + xp.sum(l2 * x**2) / 2


def huber(u, y, xp, delta=0.7):
    r = abs(u - y)
    return xp.where(r <= delta, r**2 / 2, delta * (r - delta / 2))


def smoothed_hinge(u, y, xp, gamma=0.25):
    m = 1 - y * u
    return xp.where(m < 0, 0, xp.where(m < gamma, m**2 / (2 * gamma), m - gamma / 2))


def softmax(u, y, xp):
    return xp.log(xp.sum(xp.exp(u), axis=1)) - xp.sum(
        u * (xp.asarray(y)[:, None] == np.arange(u.shape[1])), axis=1
    )


HINGE = Kind("hinge", jaxht.Hinge, lambda u, y, xp: xp.where(y * u < 1, 1 - y * u, 0))
SMOOTH = [
    Kind("least-squares", jaxht.LeastSquares, lambda u, y, xp: (u - y) ** 2 / 2, "reals"),
    Kind("huber", functools.partial(jaxht.Huber, delta=0.7), huber, "reals"),
    Kind("logistic", jaxht.Logistic, lambda u, y, xp: xp.log(1 + xp.exp(-y * u))),
    Kind(
        "logistic-2",
        functools.partial(jaxht.Logistic, scale=2.0),
        lambda u, y, xp: xp.log(1 + xp.exp(-2 * y * u)),
    ),
    Kind(
        "squared-hinge",
        jaxht.SquaredHinge,
        lambda u, y, xp: xp.where(y * u < 1, 1 - y * u, 0) ** 2 / 2,
    ),
    Kind("smoothed-hinge", functools.partial(jaxht.SmoothedHinge, gamma=0.25), smoothed_hinge),
    Kind("poisson", jaxht.Poisson, lambda u, y, xp: xp.exp(u) - y * u, "counts"),
    Kind("gamma", jaxht.Gamma, lambda u, y, xp: y * xp.exp(-u) + u, "positive"),
    Kind("softmax", functools.partial(jaxht.Softmax, num_classes=C), softmax, "classes"),
    Kind(
        "responses",
        jaxht.MultiResponse,
        lambda u, y, xp: xp.sum((u - y) ** 2, axis=1) / 2,
        "responses",
    ),
]
NAMED = {kind.name: kind for kind in [*SMOOTH, HINGE]}
each_smooth = pytest.mark.parametrize("kind", SMOOTH, ids=lambda kind: kind.name)
each_kind = pytest.mark.parametrize("kind", NAMED.values(), ids=NAMED)


def times(x, A):
    return A @ x


DESIGNS = {
    "dense": jnp.asarray,
    "sparse": lambda A: jaxht.design(scipy.sparse.csr_matrix(A)),
    "operator": lambda A: jaxht.LinearOperator(times, A.shape, (A,)),
    "operator with norms": lambda A: jaxht.LinearOperator(
        times, A.shape, (A,), norms=np.linalg.norm(A, axis=0)
    ),
}


@functools.cache
def data(kind, seed=0):
    """A with zeros, y, and a point x."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.6)
    x = rng.normal(size=(D, C))
    return (
        A,
        kind.y(rng, A @ x),
        0.4 * x.reshape(D, C)[:, : np.prod(kind.shape) // D].reshape(kind.shape),
    )


def objective(kind, design, weighted, by_coordinate, mean):
    """The objective, and the arguments l2, s and c of its definition."""
    rng = np.random.default_rng(1)
    A, y, _ = data(kind)
    weights = rng.exponential(size=N) if weighted else None
    l2 = rng.exponential(size=kind.shape) if by_coordinate else 0.3
    s = np.ones(N) if weights is None else weights
    f = kind.make(DESIGNS[design](A), jnp.asarray(y), l2, mean=mean, weights=weights)
    return f, (A, y, l2, s, 1 / np.sum(s) if mean else 1.0)


# design, weighted, by_coordinate, mean
CONFIGURATIONS = [
    ("dense", True, True, True),
    ("dense", False, False, False),
    ("sparse", True, False, False),
    ("operator with norms", False, True, True),
]


# ---- formulas ------------------------------------------------------------------------------------


@each_kind
def test_value_and_derivatives(kind):
    x, v = data(kind)[2], np.random.default_rng(2).normal(size=kind.shape)
    for configuration in CONFIGURATIONS:
        f, definition = objective(kind, *configuration)
        A, _, l2, s, c = definition
        close = functools.partial(
            np.testing.assert_allclose, rtol=1e-11, atol=1e-12, err_msg=str(configuration)
        )
        assert (f.shape, f.num_samples, f.dtype) == (kind.shape, N, jnp.float64)
        pred, image = f.predict(x), f.predict(v)
        close(pred, A @ x)
        close(f.value(x, pred), kind.value(x, *definition))
        slope = jax.grad(lambda x: kind.value(x, *definition, xp=jnp))  # noqa: B023
        gradient, product = jax.jvp(slope, (x,), (v,))
        close(f.gradient(x, pred), gradient)
        if kind is HINGE:
            close(f.hessian(x, pred).quadratic_form(v, image), np.sum(l2 * v**2))
            continue
        close(f.hessian(x, pred)(v), product)
        close(f.hessian(x, pred).quadratic_form(v, image), np.sum(v * product))
        majorant = np.sum(v * (f.hessian(x, pred, 1.0)(v) - product))
        unit = f.loss.smoothness(f.y)
        if kind.name == "gamma":  # whose curvature has no bound
            unit = np.max((f.y * np.exp(-f.linear_predictor(pred)))[f.sample_weights > 0])
        bound = c * np.sum((s * (A @ v).T ** 2).T) * unit
        close(majorant, bound)
        assert np.sum(v * product) <= (bound + np.sum(l2 * v**2)) * (1 + 1e-12)


@each_kind
def test_weights_repeat_and_leave_out_samples(kind):
    A, y, x = data(kind)
    counts = np.random.default_rng(3).permutation(np.arange(N) % 3)
    if kind.targets in ("counts", "positive"):
        counts[np.argmax(y)] = 2  # whose curvature bound is taken over all samples
    rows = np.repeat(np.arange(N), counts)
    v = np.ones(kind.shape)
    for mean, design in ((True, "dense"), (False, "sparse")):
        f = kind.make(
            DESIGNS[design](A), jnp.asarray(y), 0.2, mean=mean, weights=counts.astype(float)
        )
        g = kind.make(DESIGNS[design](A[rows]), jnp.asarray(y[rows]), 0.2, mean=mean)
        for ours, theirs in zip(looks(f, x, v), looks(g, x, v), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


@each_kind
def test_some_samples(kind):
    """Their gradients are those of the summands f_i of f = (1/n) sum_i f_i, and as smooth as the
    objective says."""
    x = data(kind)[2]
    indices, shares = np.array([3, 0, 3, 7, N]), np.array([0.5, 1.0, 0.25, 2.0, 0.0])
    for configuration in (
        CONFIGURATIONS if kind.name in ("huber", "softmax") else CONFIGURATIONS[:1]
    ):
        f, (A, y, l2, s, c) = objective(kind, *configuration)
        f = f.prepare()

        def summand(x, a, y, s, l2=l2, c=c):
            return kind.value(x, a[None], y[None], l2, s, N * c, xp=jnp)

        gradients = quick(jax.vmap(jax.grad(summand), (None, 0, 0, 0)))(x, A, y, s)
        gradients = np.asarray(gradients)
        batch = f.minibatch(jnp.asarray(indices), jnp.asarray(shares))
        expected = np.tensordot(shares[:-1], gradients[indices[:-1]], 1)
        np.testing.assert_allclose(
            batch.gradient(x, batch.predict(x)), expected, rtol=1e-11, atol=1e-12
        )
        np.testing.assert_allclose(
            f.gradient(x, f.predict(x)), gradients.mean(axis=0), rtol=1e-10, atol=1e-12
        )
        if kind.name in ("least-squares", "responses"):
            largest = np.max(N * c * s * np.sum(A**2, axis=1)) + np.max(l2)
            np.testing.assert_allclose(f.sample_smoothness(), largest, rtol=1e-12)
        if kind is not HINGE:
            assert f.sample_smoothness() >= f.majorant().coordinate_norm() / 1.1


def looks(f, x, v):
    """What an objective says, without its smoothness."""
    pred, image = f.predict(x), f.predict(v)
    said = [f.value(x, pred), f.gradient(x, pred), f.hessian(x, pred).quadratic_form(v, image)]
    if isinstance(f, jaxht.Hinge):
        return said
    return [
        *said,
        f.hessian(x, pred)(v),
        f.majorant().coordinate_norm(),
        f.majorant().preconditioner(),
    ]


# ---- minimisers ----------------------------------------------------------------------------------


@quick
def minimised(f, masks, x0, ridge, bounds=None):
    """A Minimum for every lane."""

    def lane(mask, x0, ridge, bounds):
        k_max = K_MAX if mask.ndim == 1 else None
        return refit(f, Support(mask, bounds=bounds, k_max=k_max, ndim=mask.ndim), x0, ridge)

    return jax.vmap(lane)(masks, x0, ridge, bounds)


@functools.cache
def definition_of(kind):
    """(f, grad f, Hf) of the definition, at flat vectors."""

    def value(x, *definition):
        return kind.value(x.reshape(kind.shape), *definition, xp=jnp)

    def everything(x, *definition):
        return (
            value(x, *definition),
            jax.grad(value)(x, *definition),
            jax.hessian(value)(x, *definition),
        )

    return quick(everything)


def lanes(kind):
    """Supports of several sizes, starts that are not 0, and ridges by coordinate, none in the first
    lane."""
    rng = np.random.default_rng(4)
    size = int(np.prod(kind.shape))
    sizes = (K_MAX, K_MAX, 2, 0) if len(kind.shape) == 1 else (8, 5, 3, 0)
    masks = np.stack(
        [np.isin(np.arange(size), rng.permutation(size)[:k]).reshape(kind.shape) for k in sizes]
    )
    ridge = rng.exponential(size=masks.shape)
    ridge[0] = 0
    return masks, rng.normal(size=masks.shape), ridge


def scipys(kind, definition, mask, ridge):
    """SciPy's minimiser on a support, and two Newton steps from there for the last digits."""
    A, y, l2, s, c = definition
    everything, F = definition_of(kind), np.flatnonzero(mask)

    def on_support(w):
        x = np.zeros(mask.size)
        x[F] = w
        value, slope, hessian = everything(x, A, y, l2 + ridge, s, c)
        return float(value), np.asarray(slope)[F], np.asarray(hessian)[np.ix_(F, F)]

    w = np.zeros(len(F))
    if len(F):
        value, slope, hessian = (lambda w, i=i: on_support(w)[i] for i in range(3))
        found = optimize.minimize(
            value, w, jac=slope, hess=hessian, method="trust-exact", options={"gtol": 1e-8}
        )
        w = found.x
        for _ in range(2):
            w = w - np.linalg.solve(hessian(w), slope(w))
        assert np.abs(slope(w)).max() < 1e-10
    x = np.zeros(mask.size)
    x[F] = w
    return x.reshape(mask.shape)


# Three kinds on every design, since these differ in how supports are minimised on; the others share
# their code.
MINIMISED = [
    (kind, configuration)
    for kind in SMOOTH
    for configuration in [
        ("dense", True, True, True),
        ("sparse", True, False, False),
        ("operator", False, False, True),
    ]
    if configuration[0] == "dense" or kind.name in ("least-squares", "logistic", "softmax")
]


@pytest.mark.parametrize(
    ("kind", "configuration"), MINIMISED, ids=[f"{a.name}-{b[0]}" for a, b in MINIMISED]
)
def test_minimisers_on_supports_are_scipys(kind, configuration):
    f, definition = objective(kind, *configuration)
    masks, x0, ridge = lanes(kind)
    found = minimised(f, masks, x0, ridge)
    x, pred, converged = found.x, found.pred, found.converged
    assert np.all(converged)
    assert not np.any(np.asarray(x)[~masks])
    A, y, l2, s, c = definition
    np.testing.assert_allclose(pred, [A @ point for point in x], rtol=0, atol=1e-12)
    for i, mask in enumerate(masks):
        np.testing.assert_allclose(
            x[i], scipys(kind, definition, mask, ridge[i]), rtol=0, atol=1e-8, err_msg=f"{i}"
        )

    tops, corners = [], []
    for point in [np.zeros(kind.shape), *x]:
        hessian = definition_of(kind)(np.ravel(point), A, y, l2, s, c)[2]
        tops.append(np.linalg.eigvalsh(hessian)[-1])
        corners.append(np.diag(hessian).max())
    M = f.majorant().coordinate_norm()
    assert max(corners) <= M * (1 + 1e-12)
    reached = kind.name in ("least-squares", "logistic", "logistic-2", "responses")  # at 0
    if reached:
        np.testing.assert_allclose(M, max(corners), rtol=1e-12)
    if configuration[0] == "dense" and kind.name in ("least-squares", "logistic", "softmax"):
        L, spread = quick(lambda f: f.majorant().norm())(f), np.max(l2) - np.min(l2)
        assert max(tops) <= L <= (1.06 * max(tops) + spread if reached else np.inf)


@pytest.mark.parametrize(
    "configuration", [("dense", True, True, True), ("sparse", False, False, False)]
)
def test_minimiser_of_the_hinge_closes_the_duality_gap(configuration):
    f, definition = objective(HINGE, *configuration)
    A, y, l2, s, c = definition
    masks, x0, ridge = lanes(HINGE)
    found = minimised(f, masks, x0, ridge)
    x = found.x
    assert np.all(found.converged)
    assert not np.any(np.asarray(x)[~masks])
    for i, mask in enumerate(masks):
        # f >= 1'a - ||P^(-1/2) B'a||^2 / 2 for all 0 <= a <= c s, with B of rows y_i a_i and P the
        # ridge.
        B, penalty = y[:, None] * A[:, mask], (l2 + ridge[i])[mask]

        def dual(a, B=B, penalty=penalty):
            w = B.T @ a / penalty
            return penalty @ w**2 / 2 - np.sum(a), B @ w - 1

        options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10000}
        box = optimize.Bounds(0, c * s)
        found = optimize.minimize(
            dual, c * s / 2, jac=True, bounds=box, method="L-BFGS-B", options=options
        )
        value = HINGE.value(np.asarray(x)[i], A, y, l2 + ridge[i], s, c)
        assert -found.fun - 1e-12 <= value <= -found.fun + 1e-7


BOUNDED = [("least-squares", "dense"), ("logistic", "sparse"), ("softmax", "dense")]


@pytest.mark.parametrize(("name", "design"), BOUNDED)
def test_minimisers_within_bounds(name, design):
    kind = NAMED[name]
    f, definition = objective(kind, design, True, False, False)
    A, y, l2, s, c = definition
    masks, x0, ridge = lanes(kind)
    lower, upper = (
        np.zeros(masks.shape),
        np.full(masks.shape, np.inf),
    )  # in the first lane: not negative
    lower[1:], upper[1:] = -0.2 * ridge[1:], 0.1 * ridge[1:]
    lower[3], masks[3], ridge[3] = -np.inf, masks[2], 0
    found = minimised(f, masks, x0, ridge, (lower, upper))
    x, pred, converged = found.x, found.pred, found.converged
    x = np.asarray(x)
    assert np.all(converged)
    assert not np.any(x[~masks]) and np.all(lower <= x) and np.all(x <= upper)
    np.testing.assert_allclose(pred, [A @ point for point in x], rtol=0, atol=1e-12)
    pressed = 0
    for i, mask in enumerate(masks):
        value, slope, _ = definition_of(kind)(x[i].ravel(), A, y, l2 + ridge[i], s, c)
        slope = np.asarray(slope).reshape(kind.shape)
        # f is convex: a fixed point of the projected gradient is the minimiser.
        step = np.clip(x[i] - slope, lower[i], upper[i]) - x[i]
        assert np.abs(step[mask]).max() < 1e-9
        pressed += np.count_nonzero((np.abs(slope) > 1e-6) & mask)

        def on_support(w, i=i, mask=mask):
            point = np.zeros(kind.shape)
            point[mask] = w
            value, slope, _ = definition_of(kind)(point.ravel(), A, y, l2 + ridge[i], s, c)
            return float(value), np.asarray(slope).reshape(kind.shape)[mask]

        box = optimize.Bounds(lower[i][mask], upper[i][mask])
        found = optimize.minimize(
            on_support, x0[i][mask], jac=True, bounds=box, method="L-BFGS-B", tol=1e-13
        )
        np.testing.assert_allclose(x[i][mask], found.x, rtol=0, atol=1e-4)
        assert value <= found.fun + 1e-10
        if name == "least-squares":
            B = np.vstack(
                [np.sqrt(s)[:, None] * A[:, mask], np.diag(np.sqrt((l2 + ridge[i])[mask]))]
            )
            target = np.append(np.sqrt(s) * y, np.zeros(B.shape[1]))
            exact = optimize.lsq_linear(B, target, (box.lb, box.ub), method="bvls", tol=1e-15).x
            np.testing.assert_allclose(x[i][mask], exact, rtol=0, atol=1e-8)
    assert pressed >= 4


# ---- derivatives of minimisers -------------------------------------------------------------------


DERIVED = [
    ("least-squares", "dense", False),
    ("least-squares", "sparse", False),
    ("logistic", "sparse", True),
    ("responses", "dense", False),
]


@pytest.mark.parametrize(("name", "design", "bounded"), DERIVED)
def test_derivatives_of_minimisers(name, design, bounded):
    """By y and l2, and by A where it is dense: forward, reverse and by differences."""
    kind = NAMED[name]
    f, (A, y, l2, _, _) = objective(kind, design, True, True, True)
    masks, x0, _ = lanes(kind)
    mask, start, rng = masks[0], x0[0], np.random.default_rng(5)
    bounds = (
        (np.full(kind.shape, -np.inf), np.where(np.arange(D) % 2, 0.1, np.inf)) if bounded else None
    )
    support = Support(mask, bounds=bounds, k_max=K_MAX if mask.ndim == 1 else None, ndim=mask.ndim)

    def minimiser(y, l2, A):
        g = dataclasses.replace(f, y=y, l2=l2, A=f.A if A is None else A)
        return refit(g, support, start).x

    def both(point, along, weights):
        x, forward = jax.linearize(minimiser, *point)
        (reverse,) = [jax.linear_transpose(lambda tangent: forward(*tangent), along)(weights)]
        return x, forward(*along), reverse[0]

    compiled = quick(both)
    point = (y, l2, A if design == "dense" else None)
    along = jax.tree.map(lambda leaf: rng.normal(size=np.shape(leaf)), point)
    weights = rng.normal(size=kind.shape)
    x, forward, reverse = compiled(point, along, weights)
    if bounded:
        assert np.any(x == 0.1) and np.any((x != 0) & (x != 0.1))
    h = 1e-5
    ahead, behind = (
        compiled(jax.tree.map(lambda a, b, h=h: a + h * b, point, along), along, weights)[0]
        for h in (h, -h)
    )
    difference = (ahead - behind) / (2 * h)
    assert np.abs(difference).max() > 0.01
    np.testing.assert_allclose(forward, difference, rtol=1e-6, atol=1e-7)
    along_reverse = sum(
        np.vdot(a, b) for a, b in zip(jax.tree.leaves(reverse), jax.tree.leaves(along), strict=True)
    )
    np.testing.assert_allclose(along_reverse, np.vdot(weights, forward), rtol=1e-9)


# ---- where there is no minimiser -----------------------------------------------------------------


PURSUITS = [jaxht.HTP(), jaxht.CoSaMP(), jaxht.SubspacePursuit()]


@functools.partial(jax.jit, static_argnames="k", compiler_options=QUICK)
def solved(f, solver, *, k, stop=None):
    return jaxht.solve(f, jaxht.Sparse(k), solver, stop=stop or jaxht.Stop())


@pytest.mark.parametrize("solver", PURSUITS, ids=lambda solver: type(solver).__name__)
def test_separable_data_without_a_ridge_are_reported(solver):
    A = np.random.default_rng(6).normal(size=(40, 8))
    y = np.sign(A[:, 2])
    result = solved(jaxht.Logistic(A, y, 0.0), solver, k=2)
    assert result.status == Status.NO_MINIMISER
    assert np.all(np.isfinite(result.x)) and result.x[2] > 1
    with pytest.raises(RuntimeError, match="give l2 > 0"):
        result.raise_for_status()
    well = solved(jaxht.Logistic(A, y, 1e-3), solver, k=2)
    assert well.status in (Status.SUPPORT_STABLE, Status.CONVERGED, Status.NO_PROGRESS)
    assert well.support.mask[2]


def test_convergence_is_reported_by_lane():
    """Labels that one column separates, with a ridge there and without."""
    A = data(NAMED["logistic"])[0] + 0.1  # no zeros
    masks = np.arange(D) < np.array([[1], [1], [2], [0]])
    ridge = np.array([0.0, 1e-2, 0.0, 0.0])[:, None] * np.ones(D)
    f = jaxht.Logistic(A, np.sign(A[:, 0]), np.zeros(D), weights=np.ones(N))
    found = minimised(f, masks, np.zeros(masks.shape), ridge)
    assert found.converged.tolist() == [False, True, False, True]
    assert np.all(found.status[::2] == RefitStatus.NO_MINIMISER)
    assert np.all(np.isfinite(found.x))


def make_separable(name, A, seed):
    """An objective without a ridge that a combination of three columns separates, in part where a
    column is the indicator of a few samples; and one with a few targets that contradict."""
    rng = np.random.default_rng(seed)
    score = A @ rng.normal(size=3)
    noise = rng.normal(size=len(A))

    def make(score):
        if name == "Logistic":
            return jaxht.Logistic(A, np.where(score > 0, 1.0, -1.0).astype(A.dtype))
        if name == "Ordinal":
            classes = np.digitize(score, np.quantile(score, [0.3, 0.7]))
            return jaxht.Ordinal(A, classes, num_classes=3)
        if name == "Cox":
            times = 1.0 + np.argsort(np.argsort(-score))
            return jaxht.Cox(A, np.stack([times, np.ones(len(A))], axis=1).astype(A.dtype))
        rare = A[:, 0] if score is noise else np.arange(len(A)) < 4
        columns = np.stack([np.ones(len(A)), A[:, 1], rare], axis=1).astype(A.dtype)
        counts = np.where(rare == 1, 0, rng.poisson(2.0, len(A)))
        return jaxht.Poisson(columns, counts.astype(A.dtype))

    return make(score), make(noise)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["Logistic", "Ordinal", "Cox", "Poisson"])
def test_what_has_no_minimiser_is_told_from_what_has_one(name, dtype):
    """Coefficients end where f's rounding could tell no more, and refits from there as well."""
    with x64(dtype == np.float64):
        support = Support(np.ones(3, bool), k_max=3)

        @quick
        def fit(f):
            first = refit(f.prepare(), support, jnp.zeros(3, dtype))
            return first, refit(f.prepare(), support, first.x)

        for seed in range(6):
            A = np.random.default_rng(seed).normal(size=(40, 3)).astype(dtype)
            separable, noisy = make_separable(name, A, seed)
            for found in fit(separable):
                assert found.status == RefitStatus.NO_MINIMISER
                assert np.all(np.isfinite(found.x)) and np.all(np.isfinite(found.pred))
            least = fit(separable)[0]
            f = separable.prepare()
            at_zero = f.value(jnp.zeros_like(least.x), jnp.zeros_like(least.pred))
            if name != "Poisson":  # whose infimum is above 0
                assert f.value(least.x, least.pred) <= 0.02 * at_zero
            assert np.max(np.abs(least.x)) < 1e6
            assert fit(noisy)[0].converged


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_with_a_ridge_there_is_a_minimiser_however_small_the_ridge(form, dtype):
    """It is reached, or the refit says that it is not: where the ridge is below rounding."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(60, 3)).astype(dtype)
    y = np.sign(A @ [2, -3, 1]).astype(dtype)
    ridges = 10.0 ** -np.arange(2, 31, 2)
    with x64(dtype == np.float64):
        support = Support(np.ones(3, bool), k_max=3)
        design = jaxht.design(form(A))

        @quick
        @jax.vmap
        def fit(l2):
            f = jaxht.Logistic(design, y, l2).prepare()
            return refit(f, support, jnp.zeros(3, dtype))

        found = fit(ridges.astype(dtype))
    assert np.all(found.status != RefitStatus.NO_MINIMISER)
    assert np.sum(found.converged) >= 5
    assert found.converged.tolist() == sorted(found.converged.tolist(), reverse=True)
    A, y = A.astype(float), y.astype(float)
    for l2, x in zip(ridges[found.converged], found.x[found.converged].astype(float), strict=True):
        p = special.expit(-y * (A @ x))
        gradient = -A.T @ (y * p) / 60 + l2 * x
        hessian = (A.T * (p * (1 - p))) @ A / 60 + l2 * np.eye(3)
        step = np.linalg.solve(hessian, gradient)
        np.testing.assert_allclose(step, 0, atol=1e-3 * np.max(np.abs(x)))


def test_collinear_columns_with_a_ridge_are_not_without_a_minimiser():
    """Steps along differences of columns change predictions but not f, in float32."""

    @quick
    @jax.vmap
    def fit(key):
        a, b, c = jax.random.split(key, 3)
        factors = jax.random.normal(a, (60, 4))
        A = factors @ jax.random.normal(b, (4, 12)) + 1e-3 * jax.random.normal(c, (60, 12))
        y = jnp.sign(factors[:, 0] + 0.3 * jax.random.normal(b, (60,)))
        f = jaxht.Logistic(A / A.std(0), y, 1e-7, 2.0)
        return jaxht.solve(f, jaxht.Sparse(12), jaxht.HTP())

    status = fit(jax.random.split(jax.random.key(0), 100)).status
    assert np.all(status != Status.NO_MINIMISER)
    assert np.mean(status == Status.SUPPORT_STABLE) >= 0.95


@pytest.mark.parametrize("solver", [None, jaxht.OMP(), jaxht.HTP()], ids=["default", "OMP", "HTP"])
@pytest.mark.parametrize("name", ["Ordinal", "Cox"])
def test_solvers_say_that_there_is_no_minimiser(name, solver):
    A = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    f, _ = make_separable(name, A, 0)
    result = solved(f, solver, k=3)
    assert result.reason == "NO_MINIMISER"
    with pytest.raises(RuntimeError, match=r"separate.*give l2 > 0"):
        result.raise_for_status()


def test_softmax_of_separable_classes_has_no_minimiser():
    A = np.random.default_rng(0).normal(size=(40, 3))
    classes = np.digitize(A[:, 0], [-0.5, 0.5])
    f = jaxht.Softmax(np.column_stack([A[:, :1], np.ones(40)]), classes, num_classes=3)
    assert solved(f, jaxht.HTP(), k=6).reason == "NO_MINIMISER"


def test_minimisers_that_interpolate_converge():
    """f is 0 there up to rounding, which then decides whether it decreases in a step."""
    rng, run = np.random.default_rng(0), quick(jaxht.solve)
    with x64():
        for _ in range(60):
            A, y = (
                scipy.sparse.csr_array(rng.random((15, 30))),
                rng.integers(0, 3, (15, 1)).astype(float),
            )
            result = run(
                jaxht.MultiResponse(jaxht.design(A), y), jaxht.Sparse(15, k_max=15), jaxht.OMP()
            )
            assert result.status == Status.FINISHED and result.value < 1e-25


@pytest.mark.parametrize("name", ["logistic", "softmax"])
def test_lanes_one_after_the_other_are_those_at_once(name):
    """The minimisers and their derivatives, in forward and reverse mode, of lanes of lanes: those
    of short samples run at once, those of many copies of the samples one after the other."""
    kind = NAMED[name]
    A, y, _ = data(kind)
    masks, x0, ridge = (jnp.stack([leaf, leaf[::-1]]) for leaf in lanes(kind))

    def everything(copies):
        f = kind.make(np.tile(A, (copies, 1)), np.tile(y, copies))

        def found(s):
            def lane(mask, x0, ridge):
                # The weights have lanes as well, and so make the lanes long.
                weights = jnp.tile(s, copies) + 0 * jnp.sum(ridge)
                weighted = dataclasses.replace(f, l2=jnp.asarray(0.1), weights=weights)
                k_max = K_MAX if mask.ndim == 1 else None
                return refit(weighted, Support(mask, k_max=k_max, ndim=mask.ndim), x0, ridge).x

            return jax.vmap(jax.vmap(lane))(masks, x0, ridge)

        def derivatives(s):
            x, tangent = jax.jvp(found, (s,), (s**2,))
            return x, tangent, jax.grad(lambda s: jnp.sum(found(s) ** 2))(s)

        return quick(derivatives)(np.random.default_rng(0).uniform(0.5, 2, N))

    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12),
        everything(copies=1),
        everything(copies=2**16 // N + 1),
    )


HESSIANS = []


@pytree
class CountingLoss(LogisticLoss):
    """The logistic loss, which notes each product with its Hessian: one a Newton step."""

    def hessian_product(self, u, y, v):
        jax.debug.callback(lambda _: HESSIANS.append(None), u[0])
        return super().hessian_product(u, y, v)


@pytree
class CountingLogistic(jaxht.Logistic):
    """Logistic regression by the loss that counts."""

    @property
    def loss(self):
        return CountingLoss(self.scale)


def count_steps(run, *args):
    """The Newton steps that a function takes, and what it returns."""
    HESSIANS.clear()
    found = jax.block_until_ready(run(*args))
    jax.effects_barrier()
    return len(HESSIANS), found


@pytest.mark.parametrize(("num_samples", "calls"), [(100, "of the longest"), (20_000, "of each")])
def test_lanes_with_long_columns_wait_for_no_other(num_samples, calls):
    """The last lane is separable and takes all steps."""
    rng, k = np.random.default_rng(0), 4
    A = rng.standard_normal((num_samples, k))
    y = np.where(A[:, 0] + rng.standard_normal((3, num_samples)) > 0, 1.0, -1.0)
    y[2] = np.sign(A[:, 0])

    def alone(mask, y):
        return refit(CountingLogistic(A, y), Support(mask, k_max=k), np.zeros(k))

    single, batch, masks = quick(alone), quick(jax.vmap(alone)), np.ones((3, k), bool)
    steps = [count_steps(single, *each)[0] for each in zip(masks, y, strict=True)]
    assert steps[2] > 2 * max(steps[:2])
    together, _ = count_steps(batch, masks, y)
    assert together == (3 * steps[2] if calls == "of the longest" else sum(steps))


def test_newton_steps_end_where_rounding_ends_them():
    """Of columns that are nearly parallel, whose last steps never become short."""
    rng, n, k = np.random.default_rng(0), 2000, 8
    A, y = 1 + 1e-3 * rng.standard_normal((n, k)), np.where(rng.standard_normal(n) > 1, 1.0, -1.0)
    f = CountingLogistic(A, y, mean=False).prepare()
    support = Support(np.ones(k, bool), k_max=k)
    num_steps, found = count_steps(quick(lambda x: refit(f, support, x)), np.zeros(k))
    assert found.converged and num_steps <= 12
    np.testing.assert_allclose(f.gradient(found.x, found.pred), 0, atol=1e-10)


# ---- one objective as another --------------------------------------------------------------------


def test_two_classes_are_logistic_regression():
    A, y, _ = data(NAMED["logistic"])
    x = np.random.default_rng(7).normal(size=(D, 2))
    both, logistic = jaxht.Softmax(A, (y > 0).astype(int), num_classes=2), jaxht.Logistic(A, y)
    w = x[:, 1] - x[:, 0]
    np.testing.assert_allclose(
        both.value(x, both.predict(x)), logistic.value(w, logistic.predict(w)), rtol=1e-12
    )


def test_softmax_is_that_of_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    A, y, _ = data(NAMED["softmax"])
    l2 = 0.1
    f = jaxht.Softmax(
        jnp.asarray(A), jnp.asarray(y), np.full((D, C), l2), weights=np.ones(N), num_classes=C
    )
    everywhere = np.ones((4, D, C), bool)
    x, _, _ = minimised(f, everywhere, np.zeros((4, D, C)), np.zeros((4, D, C)))
    theirs = linear_model.LogisticRegression(
        C=1 / (N * l2), fit_intercept=False, tol=1e-10, max_iter=1000
    ).fit(A, y)
    np.testing.assert_allclose(x[0], theirs.coef_.T, rtol=0, atol=1e-7)


def as_function(name):
    """The mean loss with a ridge as a function of x and data."""
    kind = NAMED[name]
    return lambda x, A, y, l2: kind.value(x, A, y, l2, 1.0, 1 / len(y), xp=jnp)


FUNCTIONS = {name: as_function(name) for name in ("least-squares", "logistic", "responses")}


@pytest.mark.parametrize("name", ["logistic", "responses"])
def test_a_function_is_an_objective(name):
    kind = NAMED[name]
    A, y, x = data(kind)
    l2 = 0.3
    like = D if len(kind.shape) == 1 else jax.ShapeDtypeStruct(kind.shape, float)
    f = jaxht.Custom(FUNCTIONS[name], A, y, l2, like=like)
    f = f.prepare()
    g = kind.make(jnp.asarray(A), y, l2, mean=True)
    assert (f.shape, f.dtype, f.num_samples) == (kind.shape, jnp.float64, 1)
    v = np.random.default_rng(8).normal(size=kind.shape)
    for ours, theirs in zip(looks(f, x, v)[:4], looks(g, x, v)[:4], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12)
    masks, x0, ridge = lanes(kind)
    found = minimised(f, masks, x0, ridge)
    minima = found.x
    assert np.all(found.converged)
    definition = (A, y, l2, np.ones(N), 1 / N)
    for i, mask in enumerate(masks):
        np.testing.assert_allclose(
            minima[i], scipys(kind, definition, mask, ridge[i]), rtol=0, atol=1e-8
        )
    top = np.linalg.eigvalsh(definition_of(kind)(np.zeros(f.shape).ravel(), *definition)[2])[-1]
    if name == "logistic":
        assert top <= f.majorant().norm() <= 1.06 * top


WHOLE_RUNS = [("least-squares", jaxht.NIHT()), ("logistic", jaxht.CoSaMP())]


@pytest.mark.parametrize(("name", "solver"), WHOLE_RUNS, ids=["NIHT", "CoSaMP"])
def test_runs_on_a_function_are_those_on_the_objective(name, solver):
    A, y, _ = data(NAMED[name])
    f, g = (
        jaxht.Custom(FUNCTIONS[name], A, y, 0.1, like=D),
        NAMED[name].make(jnp.asarray(A), y, 0.1, mean=True),
    )
    ours, theirs = (solved(objective, solver, k=3) for objective in (f, g))
    np.testing.assert_array_equal(ours.support.mask, theirs.support.mask)
    np.testing.assert_allclose(ours.x, theirs.x, rtol=0, atol=1e-7)
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-12)
    assert ours.status == theirs.status and ours.succeeded


SEEN = []


def network(parameters, rows, flag, A, y):
    SEEN.append((rows.dtype, flag.dtype, A.dtype, y.dtype))
    x = jnp.concatenate([parameters["weights"].ravel(), parameters["bias"]])
    assert parameters["weights"].shape == (2, 2) and parameters["bias"].shape == (2,)
    return jnp.where(flag, jnp.sum((A[rows] @ x - y[rows]) ** 2) / 2, jnp.nan)


def test_a_function_of_a_pytree():
    """Integers and booleans arrive as they were given, floats in the precision of x."""
    A, _, _ = data(NAMED["least-squares"])
    A, rows = A.astype("float32"), np.arange(0, N, 2, dtype=np.int16)
    y = A @ np.array([0, 2, 0, -3, 2.5, 0], "float32")  # the last two are the bias
    like = {"weights": jax.ShapeDtypeStruct((2, 2), float), "bias": np.zeros(2)}
    f = jaxht.Custom(network, rows, np.array(True), A, y, like=like)
    result = solved(f, jaxht.HTP(step_size=0.1), k=3)
    assert [str(dtype) for dtype in SEEN[-1]] == ["int16", "bool", "float64", "float64"]
    x = f.unravel(result.x)
    assert (x["weights"].shape, x["bias"].shape, result.x.shape) == ((2, 2), (2,), (6,))
    np.testing.assert_allclose(
        np.append(np.ravel(x["weights"]), x["bias"]), [0, 2, 0, -3, 2.5, 0], atol=1e-6
    )
    assert np.count_nonzero(result.x) == 3


# ---- what is refused -----------------------------------------------------------------------------

A_, Y_ = np.ones((4, 2)), np.array([1.0, -1.0, 1.0, 1.0])
REFUSED = [
    *[
        (make(A_, Y_ + 1), "y must hold labels")
        for make in (jaxht.Logistic, jaxht.Hinge, jaxht.SquaredHinge)
    ],
    (jaxht.SmoothedHinge(A_, 0 * Y_), "y must hold labels"),
    (jaxht.Poisson(A_, Y_), "y must hold counts, at least 0; got -1"),
    (jaxht.Gamma(A_, Y_), "y must be above 0; got -1"),
    (jaxht.Softmax(A_, Y_, num_classes=3), r"y must hold class ids 0 \.\.\. 2; got \[-1"),
    (jaxht.Softmax(A_, Y_ + 1, num_classes=2), r"y must hold class ids 0 \.\.\. 1"),
    (jaxht.Softmax(A_, Y_ + 0.5, num_classes=3), "y must hold class ids"),
    (jaxht.Softmax(A_, Y_ + 1, num_classes=1), "num_classes must be an int of at least 2"),
    (jaxht.Softmax(A_, Y_[:, None] + 1, num_classes=3), r"y must have shape \(4,\)"),
    (
        jaxht.Softmax(A_, Y_ + 1, np.ones(2), num_classes=3),
        r"l2 must be a scalar or of shape \(2, 3\)",
    ),
    (jaxht.MultiResponse(A_, Y_), r"y must have shape \(4, 1\)"),
    (
        jaxht.Huber(A_, Y_, np.ones(4)),
        r"Huber.l2 must be a scalar or of shape \(2,\); got shape \(4,\)",
    ),
    (jaxht.Huber(A_, Y_, -np.ones(2)), "Huber.l2 must be at least 0"),
    (jaxht.Huber(A_, Y_, delta=np.ones(2)), "Huber.delta must be a scalar"),
    (jaxht.Huber(A_, Y_, delta=-1.0), "Huber.delta must be at least 0"),
    (
        jaxht.LeastSquares(A_, Y_, weights=np.ones(2), mean=False),
        r"LeastSquares.weights must be a scalar or of shape \(4,\)",
    ),
    (
        jaxht.LeastSquares(A_, Y_, weights=-Y_, mean=False),
        "LeastSquares.weights must be at least 0; got -1",
    ),
    (jaxht.Poisson(scipy.sparse.csr_matrix(A_), Y_[:3]), r"y must have shape \(4,\)"),
    (jaxht.Custom(lambda x: x, like=2), "fun must return a real scalar"),
    (jaxht.Custom(lambda x: (jnp.sum(x), 1), like=2), "fun must return a real scalar"),
    (jaxht.Custom(lambda x: jnp.sum(x).astype(int), like=2), "fun must return a real scalar"),
    (jaxht.Custom(3.0, like=2), "fun must be a function of x; got float"),
    (
        jaxht.Custom(jnp.sum, like=np.zeros(2, np.float16)),
        "like must describe arrays of float32, float64",
    ),
    (jaxht.Custom(jnp.sum, like=()), "like must describe arrays"),
]


@pytest.mark.parametrize(
    ("f", "message"), REFUSED, ids=[f"{type(f).__name__}-{i}" for i, (f, _) in enumerate(REFUSED)]
)
def test_what_cannot_be_is_refused(f, message):
    with pytest.raises(ValueError, match=message):
        jaxht.solve(f, jaxht.Sparse(1), jaxht.IHT())


def test_the_hinge_has_no_step_size():
    with pytest.raises(ValueError, match="give step_size"):
        jaxht.solve(jaxht.Hinge(A_, Y_), jaxht.Sparse(1), jaxht.IHT())
