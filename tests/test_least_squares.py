"""Least squares: formulas against autodiff, minimisers against LAPACK in float64, errors against
their wording."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import HTP, IHT, LeastSquares, Sparse, Support
from jaxht.subproblems import refit
from tests.util import as_users, precision, quick, x64

N, D, K_MAX = 30, 12, 8


def problem(seed=0, n=N, d=D, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)).astype(dtype), rng.standard_normal(n).astype(dtype)


def masks_of(sizes, d=D, seed=1):
    rng = np.random.default_rng(seed)
    return np.stack([np.isin(np.arange(d), rng.permutation(d)[:size]) for size in sizes])


def lstsq(A, y, mask, penalty=0.0):
    """The minimiser on a mask, in float64 from the augmented rows, of least norm in scaled
    columns."""
    B, penalty = np.asarray(A, np.float64)[:, mask], np.broadcast_to(penalty, np.shape(mask))[mask]
    rows = np.vstack([B, np.diag(np.sqrt(penalty))])
    norms = np.linalg.norm(rows, axis=0)
    norms[norms == 0] = 1
    x = np.zeros(len(mask))
    x[mask] = (
        np.linalg.lstsq(rows / norms, np.append(y, np.zeros(B.shape[1])), rcond=1e-7)[0] / norms
    )
    return x


def minimisers(objective, masks, ridge=None, *, k_max, shared=False):
    """For every lane, x and pred. ``shared``: A has no lanes."""
    axes = LeastSquares(None if shared else 0, 0, None, mean=objective.mean)

    def lane(objective, mask, ridge):
        return refit(objective, Support(mask, k_max=k_max), jnp.zeros(mask.shape), ridge)[:2]

    return jax.vmap(lane, (axes, 0, None if ridge is None else 0))(objective, masks, ridge)


minimise = quick(minimisers, static_argnames=("k_max", "shared"))
# Where rounding decides what is compared: as users compile it.
minimise_as_users = as_users(minimisers, static_argnames=("k_max", "shared"))


def relative_error(x, want):
    return np.linalg.norm(np.asarray(x, np.float64) - want) / np.linalg.norm(want)


@pytest.mark.parametrize("mean", [False, True])
def test_value_gradient_and_curvature(mean):
    A, y = problem()
    x, v = np.random.default_rng(2).standard_normal((2, D))

    @quick
    def everything(f, x, v):
        def value(x):
            return f.value(x, f.predict(x))

        pred, image = f.predict(x), f.predict(v)
        mine = (
            value(x),
            f.gradient(x, pred),
            f.hessian(x, pred).quadratic_form(v, image),
            f.majorant().norm(),
        )
        return mine, (jax.grad(value)(x), v @ jax.hessian(value)(x) @ v)

    with x64():
        for l2 in (0.0, 0.7):
            f = LeastSquares(jnp.asarray(A), jnp.asarray(y), l2, mean=mean)
            (value, grad, curvature, smoothness), (grad_auto, curvature_auto) = everything(f, x, v)
            c = 1 / N if mean else 1
            want = c / 2 * sum((A[i] @ x - y[i]) ** 2 for i in range(N)) + l2 / 2 * sum(x**2)
            np.testing.assert_allclose(value, want, rtol=1e-12)
            np.testing.assert_allclose(grad, grad_auto, rtol=1e-10)
            np.testing.assert_allclose(curvature, curvature_auto, rtol=1e-10)
            top = c * np.linalg.norm(A, 2) ** 2 + l2
            assert 0.99 * top <= smoothness <= 1.051 * top
            assert f.shape == (D,) and f.num_samples == N and f.dtype == jnp.float64
            assert f.start().dtype == jnp.float64


@pytest.mark.parametrize("mean", [False, True])
def test_minimise_on_supports_of_every_size(dtype, mean):
    masks = masks_of([*range(K_MAX + 1)] * 3)
    A, y = map(
        np.stack, zip(*(problem(seed, dtype=dtype) for seed in range(len(masks))), strict=True)
    )
    ridge = np.random.default_rng(3).exponential(size=masks.shape).astype(dtype)
    ridge[::2] = 0
    rtol = {4: 1e-5, 8: 1e-9}[dtype.itemsize]
    for l2 in (0.0, 0.6):
        x, pred = minimise(LeastSquares(A, y, l2, mean=mean), masks, ridge, k_max=K_MAX)
        assert x.dtype == pred.dtype == dtype
        assert not np.any(np.asarray(x)[~masks])
        for lane, mask in enumerate(masks):
            penalty = (l2 + ridge[lane]) * (N if mean else 1)
            want = lstsq(A[lane], y[lane], mask, penalty)
            np.testing.assert_allclose(
                x[lane], want, atol=rtol * np.linalg.norm(want), err_msg=f"{lane}, l2={l2}"
            )
            np.testing.assert_allclose(
                pred[lane], A[lane] @ want, atol=rtol * np.linalg.norm(y[lane])
            )


def test_lanes_that_share_the_design(dtype):
    A, _ = problem(dtype=dtype)
    masks = masks_of(
        [K_MAX] * 20 + [3, 0]
    )  # so many that the Gram matrix of the whole design is made
    y = np.random.default_rng(4).standard_normal((len(masks), N)).astype(dtype)
    few = slice(-2, None)  # and so few that it is not
    for part in (slice(None), few):
        x, _ = minimise(
            LeastSquares(A, y[part], 0.1, mean=False), masks[part], k_max=K_MAX, shared=True
        )
        for got, one_y, mask in zip(x, y[part], masks[part], strict=True):
            want = lstsq(A, one_y, mask, 0.1)
            np.testing.assert_allclose(
                got, want, atol={4: 1e-5, 8: 1e-9}[dtype.itemsize] * np.linalg.norm(want)
            )


SPECTRA = {
    "geometric": lambda k, cond: np.logspace(0, -np.log10(cond), k),
    "one small": lambda k, cond: np.append(np.ones(k - 1), 1 / cond),
    "one large": lambda k, cond: np.append(1, np.full(k - 1, 1 / cond)),
}


def ill_conditioned(spectrum, cond, noise, same, seeds=16, n=100, k=20, d=30):
    """Designs whose columns on a mask have the given spectrum, and targets with relative noise, in
    float32."""
    designs, targets, masks = [], [], []
    for seed in range(seeds):
        rng = np.random.default_rng(0 if same else seed)
        A, mask = (
            rng.standard_normal((n, d)) / np.sqrt(n),
            np.isin(np.arange(d), rng.permutation(d)[:k]),
        )
        left, right = (np.linalg.qr(rng.standard_normal((rows, k)))[0] for rows in (n, k))
        A[:, mask] = left * SPECTRA[spectrum](k, cond) @ right.T
        rng = np.random.default_rng(1000 + seed)
        clean, error = A[:, mask] @ rng.standard_normal(k), rng.standard_normal(n) / np.sqrt(n)
        targets.append(clean + noise * np.linalg.norm(clean) * error)
        designs.append(A)
        masks.append(mask)
    return np.array(designs, np.float32), np.array(targets, np.float32), np.array(masks)


def test_lanes_of_different_weights_do_not_copy_the_design():
    """As in a bootstrap: each lane holds its own columns alone."""
    lanes, (A, y) = 16, problem(n=100, d=200, dtype=np.float32)

    def run(weights):
        return jaxht.solve(
            LeastSquares(A, y, weights=weights, mean=False), Sparse(4, k_max=4), HTP()
        ).x

    memory = (
        as_users(jax.vmap(run)).lower(np.ones((lanes, 100), np.float32)).compile().memory_analysis()
    )
    assert memory.temp_size_in_bytes < lanes * A.nbytes / 2


@pytest.mark.parametrize("noise", [0, 0.01, 0.1, 1])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_float32_at_condition_1000(spectrum, noise):
    """The normal equations alone have a relative error of about eps cond^2 = 0.1.

    Rounding in the gradient B'r costs eps cond^2 ||r|| / (||B|| ||x||) with any method that uses
    it: seen only with noise as large as the signal and all the ill-conditioning in one direction.
    """
    bound = 1e-2 if (spectrum, noise) == ("one small", 1) else 1e-3
    for shared in (False, True):
        A, y, masks = ill_conditioned(spectrum, 1e3, noise, same=shared)
        x, _ = minimise(
            LeastSquares(A[0] if shared else A, y, mean=False), masks, k_max=20, shared=shared
        )
        worst = max(relative_error(x[i], lstsq(A[i], y[i], masks[i])) for i in range(len(y)))
        print(
            f"worst relative error, {spectrum}, noise {noise}, {'shared' if shared else 'own'} A: {worst:.1e}"
        )
        assert worst <= bound


def degenerate(n=N, k=K_MAX):
    """Columns that determine no unique minimiser, or hardly one."""
    rng = np.random.default_rng(5)
    normal = rng.standard_normal((n, k))
    scales = np.logspace(-4, 4, k)

    def changed(**columns):
        B = normal.copy()
        for column, values in columns.items():
            B[:, int(column[1:])] = values
        return B

    return {
        "duplicate": changed(c3=normal[:, 1]),
        "duplicates and opposites": changed(c3=normal[:, 1], c5=normal[:, 1], c6=-2 * normal[:, 0]),
        "duplicate up to rounding": changed(c3=normal[:, 1] * (1 + 1e-7)),
        "zero columns": changed(c0=0, c4=0),
        "all zero": 0 * normal,
        "rank 1": np.outer(normal[:, 0], normal[0]),
        "rank 3": normal[:, :3] @ normal[:3],
        "more columns than rows": np.where(np.arange(n)[:, None] < 5, normal, 0),
        "one row": np.where(np.arange(n)[:, None] < 1, normal, 0),
        "badly scaled": normal * scales,
        "badly scaled duplicate": changed(c3=normal[:, 1]) * scales,
        "badly scaled, more columns than rows": np.where(np.arange(n)[:, None] < 5, normal, 0)
        * scales,
    }


@pytest.mark.parametrize("noise", [0, 1])
def test_degenerate_supports(dtype, noise):
    """Finite, and no residual is smaller; of least norm, or not far from it where rounding blurs
    the rank."""
    cases = degenerate()
    B = np.stack(list(cases.values())).astype(dtype)
    rng = np.random.default_rng(6)
    y = np.einsum(
        "snk,k->sn",
        B / np.maximum(np.linalg.norm(B, axis=1, keepdims=True), 1e-9),
        rng.standard_normal(8),
    )
    y = (y + noise * rng.standard_normal(y.shape)).astype(dtype)
    masks = np.ones((len(B), K_MAX), bool)
    xs, preds = (
        np.asarray(part, np.float64)
        for part in minimise_as_users(LeastSquares(B, y, mean=False), masks, k_max=K_MAX)
    )
    tolerance = 1e3 * np.finfo(dtype).eps
    for name, A, one_y, x, pred in zip(cases, B.astype(np.float64), y, xs, preds, strict=True):
        want = lstsq(A, one_y, masks[0])
        size = np.linalg.norm(one_y) + 1e-30
        assert np.all(np.isfinite(x)), name
        np.testing.assert_allclose(
            pred, A @ x, atol=tolerance * (size + np.linalg.norm(A * x)), err_msg=name
        )
        excess = np.linalg.norm(A @ x - one_y) - np.linalg.norm(A @ want - one_y)
        assert excess <= tolerance * size, f"{name}: {excess / size:.1e}"
        norms = np.linalg.norm(A, axis=0)
        times = 1e3 if name.startswith(("rank", "duplicate up to")) else 1.1
        assert np.linalg.norm(norms * x) <= times * np.linalg.norm(norms * want) + 1e-30, name


@pytest.mark.parametrize("noise", [0.1, 1, 10])
def test_duplicated_columns_share_the_coefficient(noise):
    """Least norm, up to a percent: rounding errors of large residuals once added up along A_i -
    A_j."""
    rng = np.random.default_rng(8)
    A = rng.standard_normal((500, 30, 8))
    A[:, :, 3] = A[:, :, 1]
    A = (A * 10 ** rng.uniform(-4, 4, (500, 1, 8))).astype(np.float32)
    norms = np.linalg.norm(A, axis=1)
    y = np.einsum("snk,sk->sn", A / norms[:, None], rng.standard_normal((500, 8)))
    y = (y + noise * rng.standard_normal(y.shape)).astype(np.float32)
    x, _ = minimise(LeastSquares(A, y, mean=False), np.ones((500, 8), bool), k_max=8)
    want = [lstsq(A[i], y[i], np.ones(8, bool)) for i in range(500)]
    sizes = [np.linalg.norm(norms * np.asarray(each, float), axis=1) for each in (x, want)]
    assert np.max(sizes[0] / sizes[1]) <= 1.01


def test_badly_scaled_columns_cost_no_accuracy():
    """Scaling a column scales its entry of x: to 1e-5 in float32, over 24 orders of magnitude."""
    A, y = problem(dtype=np.float32)
    mask = masks_of([K_MAX])[0]
    scales = np.float32(2.0) ** np.random.default_rng(7).integers(-40, 40, D).astype(np.float32)
    x, _ = minimise(LeastSquares((A * scales)[None], y[None], mean=False), mask[None], k_max=K_MAX)
    assert relative_error(np.asarray(x[0]) * scales, lstsq(A, y, mask)) < 1e-5


def test_padding_and_nan_lanes_change_nothing(dtype):
    A, y = problem(dtype=dtype)
    mask = masks_of([5])[0]
    want = lstsq(A, y, mask)
    # A lane with NaN on its support, or in its targets, shows it; one with NaN elsewhere, and one
    # with none, do not.
    designs, targets = np.stack([A] * 4), np.stack([y] * 4)
    designs[0, 3, np.flatnonzero(mask)[2]] = targets[1, 3] = designs[
        2, 3, np.flatnonzero(~mask)[0]
    ] = np.nan
    for k_max in (5, 7):
        x, pred = minimise(
            LeastSquares(designs, targets, mean=False), np.stack([mask] * 4), k_max=k_max
        )
        assert np.isnan(np.asarray(pred)[:2]).any(axis=1).all()
        np.testing.assert_allclose(x[2:], [want, want], atol={4: 1e-5, 8: 1e-9}[dtype.itemsize])


@pytest.mark.parametrize("shared", [False, True])
def test_derivatives_of_minimise(shared):
    """Forward and reverse mode against central differences, in every argument, for lanes of
    different support."""
    rng = np.random.default_rng(8)
    masks = masks_of([4, 2])
    shape = (N, D) if shared else (2, N, D)
    point = (
        rng.standard_normal(shape),
        rng.standard_normal((2, N)),
        np.array(0.3),
        rng.exponential(size=(2, D)),
    )
    direction = tuple(rng.standard_normal(np.shape(part)) for part in point)
    weights = rng.standard_normal((2, D)), rng.standard_normal((2, N))

    def fun(A, y, l2, ridge):
        x, pred = minimisers(
            LeastSquares(A, y, l2, mean=True), masks, ridge, k_max=4, shared=shared
        )
        return jnp.vdot(weights[0], x) + jnp.vdot(weights[1], pred)

    with x64():
        value, forward = (
            quick(fun),
            quick(lambda point, direction: jax.jvp(fun, point, direction)[1]),
        )
        reverse = quick(jax.grad(fun, argnums=(0, 1, 2, 3)))(*point)
        for argument in range(4):
            one = tuple(part * (i == argument) for i, part in enumerate(direction))
            step = 1e-6
            ends = [
                value(*(p + sign * step * v for p, v in zip(point, one, strict=True)))
                for sign in (1, -1)
            ]
            want = (ends[0] - ends[1]) / (2 * step)
            np.testing.assert_allclose(forward(point, one), want, rtol=1e-6)
            np.testing.assert_allclose(np.vdot(reverse[argument], one[argument]), want, rtol=1e-6)


def solve_with(**changes):
    """A sound call of ``solve`` with some of its arguments replaced."""
    A, y = problem(n=6, d=4, dtype=np.float32)
    args = {
        "A": A,
        "y": y,
        "l2": 0.0,
        "k": 2,
        "k_max": None,
        "keep": None,
        "solver": IHT(),
        **changes,
    }
    objective = LeastSquares(args["A"], args["y"], args["l2"], mean=False)
    return jaxht.solve(objective, Sparse(args["k"], args["k_max"], args["keep"]), args["solver"])


# what is replaced, and the words that the message must hold: argument, what it was, what is needed
ERRORS = [
    ({"A": np.ones((2, 6, 4))}, ["A must have shape (n, d)", "(2, 6, 4)", "vmap"]),
    ({"A": np.ones(6)}, ["A must have shape (n, d)", "(6,)"]),
    ({"A": np.ones((6, 0))}, ["A must have shape (n, d)", "(6, 0)"]),
    ({"A": np.ones((0, 4)), "y": np.ones(0)}, ["A must have shape (n, d)", "(0, 4)"]),
    ({"A": np.ones((6, 4), np.float16)}, ["A must be float32 or float64", "float16"]),
    ({"A": np.ones((6, 4), bool)}, ["A must be float32 or float64", "bool"]),
    ({"A": np.full((6, 4), "a")}, ["A must be float32 or float64", "<U1"]),
    ({"A": [[1.0] * 4] * 6}, ["A must be an array of shape (n, d)", "list"]),
    ({"A": None}, ["A must be an array of shape (n, d)", "got None"]),
    ({"y": np.ones(5)}, ["y must have shape (6,)", "(5,)"]),
    ({"y": np.ones((6, 1))}, ["y must have shape (6,)", "(6, 1)"]),
    ({"y": 1.0}, ["y must be an array of shape (6,)", "got 1.0"]),
    ({"y": [1.0] * 6}, ["y must be an array of shape (6,)", "list"]),
    ({"y": None}, ["y must be an array of shape (6,)", "got None"]),
    ({"y": np.array(["a"] * 6)}, ["y must be real", "<U1"]),
    ({"y": np.ones(6, bool)}, ["y must be real", "bool"]),
    ({"y": jnp.ones(6, bool)}, ["y must be real", "bool"]),
    ({"l2": np.ones(3)}, ["l2 must be a scalar", "(3,)", "vmap"]),
    ({"l2": -1.0}, ["l2 must be at least 0", "-1.0"]),
    ({"k": 2.0}, ["k must be an integer", "2.0"]),
    ({"k": True}, ["k must be an integer", "True"]),
    ({"k": None}, ["k must be given, an integer", "None"]),
    ({"k": np.array([1, 2])}, ["k must be a scalar", "(2,)", "vmap"]),
    ({"k": -1}, ["k must lie between 0 and d = 4", "-1"]),
    ({"k": 5}, ["k must lie between 0 and d = 4", "5"]),
    ({"k": np.int64(5)}, ["k must lie between 0 and d = 4", "5"]),
    ({"k": 3, "k_max": 2}, ["k must lie between 0 and k_max = 2", "3"]),
    ({"k_max": 5}, ["k_max must be a Python int between 0 and d = 4", "5"]),
    ({"k_max": -1}, ["k_max must be a Python int between 0 and d = 4", "-1"]),
    ({"k_max": 2.0}, ["k_max must be a Python int between 0 and d = 4", "2.0"]),
    ({"keep": np.ones(3, bool)}, ["keep must be a boolean mask of shape (4,)", "(3,)"]),
    ({"keep": np.ones(4)}, ["keep must be a boolean mask of shape (4,)", "float"]),
    ({"k": jnp.int32(2), "solver": HTP()}, ["k_max must be given", "Sparse(k, k_max="]),
]


@pytest.mark.parametrize("changes, words", ERRORS, ids=str)
def test_errors_name_argument_value_and_need(changes, words):
    with pytest.raises(ValueError) as error:
        solve_with(**changes)
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize("kind", ["int32", "int8", "float64", "wrapped", "wrapped integers", "jax"])
def test_designs_of_other_kinds_are_taken_as_float32(kind):
    A = np.random.default_rng(9).integers(0, 2, (6, 4))
    y = np.arange(6)
    given = {
        "wrapped": lambda: jaxht.design(A.astype(np.float32)),
        "wrapped integers": lambda: jaxht.design(A),
        "jax": lambda: jnp.asarray(A, jnp.float32),
    }.get(kind, lambda: A.astype(kind))()
    result = solve_with(A=given, y=y, solver=HTP())
    want = solve_with(A=A.astype(np.float32), y=y.astype(np.float32), solver=HTP())
    assert result.x.dtype == result.value.dtype == jnp.float32
    np.testing.assert_array_equal(result.x, want.x)


def test_float64_designs_stay_float64():
    with precision("float64"):
        A, y = problem(n=6, d=4)
        for dtype, other in ("float64", "float32"), ("float32", "float64"):
            call = functools.partial(solve_with, A=A.astype(dtype), y=y.astype(other))
            assert jax.eval_shape(call).x.dtype == dtype
