"""Derivatives of solutions next to finite differences, for every solver; where there are none they are NaN."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxht
from jaxht import solvers
from jaxht.linalg.precision import matmul
from tests.test_programs import solver_names
from tests.util import quick, x64

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D, K = 40, 12, 3
# These end at a point that is not the minimiser on its support, or near it only as far as their steps go.
NOT_MINIMISERS = {"CoSaMP", "SGHT", "HTSAGA", "HTSVRG", "HSGHT", "DIHT", "SDIHT"}
LOSSES = {
    "squares": lambda A, y, l2, w: jaxht.LeastSquares(A, y, l2, mean=True, weights=w),
    "logistic": lambda A, y, l2, w: jaxht.Logistic(A, jnp.sign(y), l2, weights=w),
    "huber": lambda A, y, l2, w: jaxht.Huber(A, y, l2, weights=w),
}


def data(seed=0):
    """A, y, l2 and weights; a direction of each; and weights of the entries of x."""
    rng = np.random.default_rng(seed)
    A, w = rng.normal(size=(N, D)), rng.uniform(0.5, 1.5, N)
    y = A[:, :K] @ [2.0, -1.5, 1.0] + 0.1 * rng.normal(size=N)
    along = rng.normal(size=(N, D)), rng.normal(size=N), 0.1, rng.normal(size=N)
    return (A, y, 0.05, w), along, rng.normal(size=D)


def slopes(function, at, along, h=1e-5):
    """Along a direction, of forward and of reverse mode, and the central difference."""
    forward = quick(lambda *at: jax.jvp(function, at, along))
    gradient = quick(jax.grad(function, tuple(range(len(at)))))(*at)
    reverse = sum(np.vdot(g, direction) for g, direction in zip(gradient, along, strict=True))
    ahead, behind = (forward(*(a + s * h * b for a, b in zip(at, along, strict=True)))[0] for s in (1, -1))
    return np.asarray(forward(*at)[1]), reverse, np.asarray((ahead - behind) / (2 * h))


def check(function, at, along, rtol=1e-6):
    forward, reverse, difference = slopes(function, at, along)
    np.testing.assert_allclose(forward, difference, rtol=rtol)
    np.testing.assert_allclose(reverse, forward, rtol=1e-8)


@pytest.mark.parametrize(
    ("loss", "name"),
    [("squares", name) for name in solver_names()]
    + [(loss, name) for loss in ("logistic", "huber") for name in ("HTP", "IHT", "OMP")],
)
def test_solvers(loss, name):
    """By A, y, the ridge and the weights, of x and of f; or NaN."""
    solver = getattr(solvers, name)(**({"num_starts": 2} if name == "LocalSearch" else {}))
    at, along, c = data()
    if loss == "logistic":
        along = along[0], np.zeros(N), *along[2:]

    def function(A, y, l2, w):
        f = LOSSES[loss](A, y, l2, w)
        result = jaxht.solve(f, jaxht.Sparse(K), solver, key=jax.random.key(0))
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
            jaxht.LeastSquares(scipy.sparse.csr_array(A * (np.abs(A) > 0.3)), y, t), jaxht.Sparse(K), jaxht.HTP()
        ),
        "operator": lambda A, y, t: jaxht.solve(
            jaxht.LeastSquares(as_operator(A), y, t), jaxht.Sparse(K), jaxht.NIHT()
        ),
        "function": lambda A, y, t: jaxht.solve(
            jaxht.Custom(lambda x, t: jnp.sum((A @ x - y) ** 2) + t * jnp.sum(x**4), t, like=D),
            jaxht.Sparse(K),
            jaxht.HTP(),
        ),
        "graph": lambda A, y, t: jaxht.solve(
            jaxht.GaussianPrecision(jnp.cov(A.T) + (0.1 + t) * jnp.eye(D)), jaxht.Edges(5), jaxht.HTP()
        ),
        "rows": lambda A, y, t: jaxht.solve(
            jaxht.MultiResponse(A, jnp.stack([y, y**2], 1), t),
            jaxht.Groups(K, np.repeat(np.arange(D)[:, None], 2, axis=1)),
            jaxht.HTP(),
        ),
        "x0 is no part of it": lambda A, y, t: jaxht.solve(
            jaxht.LeastSquares(A, y, t), jaxht.Sparse(K), jaxht.HTP(), x0=jnp.full(D, t)
        ),
    }.values(),
    ids=lambda solution: "",
)
def test_other_problems(solution):
    (A, y, *_), _, _ = data(1)
    with x64():
        check(lambda t: jnp.sum(jnp.sin(solution(A, y, t).x)), (0.1,), (1.0,))


@pytest.mark.parametrize("solver", [solvers.IHT(), solvers.HTP(), solvers.NIHT()], ids=["IHT", "HTP", "NIHT"])
@pytest.mark.parametrize("nonnegative", [False, True])
def test_bounds(solver, nonnegative):
    """Coordinates at a bound move with it, and the others with them."""
    (A, y, *_), (_, y_dot, *_), c = data()

    def function(y, lower, upper):
        constraint = jaxht.Sparse(K, bounds=(lower, upper), nonnegative=nonnegative)
        x = jaxht.solve(jaxht.LeastSquares(A, y, 0.1), constraint, solver).x
        return jnp.vdot(c, x), x

    with x64():
        at = y, np.full(D, -1.2), np.full(D, 1.3)
        x = np.asarray(quick(function)(*at)[1])
        assert x[0] == 1.3 and (x[1] == -1.2 or nonnegative)
        lower_dot = np.zeros(D) if nonnegative else np.linspace(1, 2, D)
        check(lambda *at: function(*at)[0], at, (y_dot, lower_dot, np.linspace(-1, 1, D)))


def test_low_rank():
    """f has the derivative of the refit in the column and row spaces; x, whose spaces move too, that within them."""
    (A, _, l2, _), (A_dot, *_), _ = data()
    Y = np.random.default_rng(2).normal(size=(N, 4))

    def value(A, l2):
        return jaxht.solve(jaxht.MultiResponse(A, Y, l2), jaxht.LowRank(2), jaxht.HTP()).value

    with x64():
        check(value, (A, l2), (A_dot, 1.0))


def test_second_derivatives():
    (A, y, *_), _, c = data()

    def slope(t):
        def function(t):
            return jnp.vdot(c, jaxht.solve(jaxht.Logistic(A, jnp.sign(y), t), jaxht.Sparse(K), jaxht.HTP()).x)

        return jax.grad(function)(t)

    with x64():
        check(slope, (0.1,), (1.0,))


def test_paths_and_validation():
    (A, y, l2, w), along, c = data()

    def of_path(both_ways, A, y, l2, w):
        f = jaxht.LeastSquares(A, y, l2, weights=w)
        found = jaxht.path(f, jaxht.Sparse(1), jaxht.HTP(), [1, 2, 4], both_ways=both_ways)
        return jnp.vdot(jnp.arange(1.0, 4), found.x @ c + found.value)

    def of_validation(A, y, l2, w):
        train, held_out = (jaxht.LeastSquares(A[part], y[part], l2 * (part.start is None), weights=w[part])
                           for part in (slice(25), slice(25, N)))  # fmt: skip
        return jnp.sum(jaxht.validate(train, held_out, jaxht.Sparse(1), jaxht.HTP(), [2, 3]).losses)

    with x64():
        for function in (functools.partial(of_path, False), functools.partial(of_path, True), of_validation):
            check(function, (A, y, l2, w), along)


def test_a_lane_without_a_minimiser_spoils_no_other():
    (A, y, *_), _, c = data()

    @quick
    @functools.partial(jax.vmap, in_axes=(0, None))
    @jax.value_and_grad
    def lanes(l2, y):
        return jnp.vdot(c, jaxht.solve(jaxht.LeastSquares(A, y, l2), jaxht.Sparse(K), jaxht.HTP()).x)

    with x64():
        gradients = lanes(jnp.array([0.1, np.nan, 0.2]), y)[1]
        assert np.isnan(gradients[1])
        np.testing.assert_allclose(gradients[::2], lanes(jnp.array([0.1, 0.2]), y)[1], rtol=1e-12)


def test_points_that_are_no_minimisers_have_none():
    """A run that was cut off; and the gap of a dual solver, of which nothing is known."""
    (A, y, *_), _, _ = data()

    def cut_off(l2):
        f = jaxht.LeastSquares(A, y, l2)
        return jnp.sum(jaxht.solve(f, jaxht.Sparse(K), jaxht.IHT(), stop=jaxht.Stop(max_steps=3)).x)

    def gap(l2):
        return jaxht.solve(jaxht.LeastSquares(A, y, l2, mean=True), jaxht.Sparse(K), jaxht.DIHT()).gap

    with x64():
        for function in (cut_off, gap):
            assert np.isfinite(function(0.1))
            assert np.isnan(jax.grad(function)(0.1)) and np.isnan(jax.jvp(function, (0.1,), (1.0,))[1])
