"""Kernels for GPUs, run by interpretation, and their presence in the programs for one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxht
from jaxht.linalg import full_precision, platform
from jaxht.linalg.kernels.factor import BLOCK, invert_cholesky
from jaxht.linalg.kernels.least_squares import invert_gram_roots, minimise_on_columns
from jaxht.linalg.kernels.pursuit import ENTRIES_AT_A_TIME, pursue
from jaxht.linalg.kernels.selection import mark_k_largest
from jaxht.linalg.lanes import along_one_axis, map_lanes
from jaxht.subproblems import least_squares, planned_pursuit
from tests.util import precision

pytestmark = pytest.mark.skipif(
    not platform.has_kernels(), reason="this version of JAX has no such kernels"
)
HIGHEST = lax.Precision.HIGHEST
F32 = jnp.float32


def largest_by_sort(z, k):
    # NaN comes first.
    magnitude = np.where(np.isnan(z), np.inf, np.abs(z))
    order = np.lexsort((-magnitude, ~np.isnan(z)), axis=1)
    mask = np.zeros(z.shape, bool)
    np.put_along_axis(mask, order, np.arange(z.shape[1])[None] < k[:, None], axis=1)
    return mask


@pytest.mark.parametrize("d", [1, 2, 17, 64, 100])
@pytest.mark.parametrize("values", ["few", "many", "equal", "extreme"])
def test_selection(d, values):
    rng = np.random.default_rng(d)
    lanes = 12
    drawn = {
        "few": rng.integers(-3, 4, (lanes, d)),
        "many": rng.standard_normal((lanes, d)),
        "equal": np.full((lanes, d), 7),
        "extreme": rng.choice([0.0, -0.0, 1e-45, -3e-45, np.inf, -np.inf, np.nan], (lanes, d)),
    }
    z = drawn[values].astype(np.float32)
    k = rng.integers(0, d + 1, lanes).astype(np.int32)
    k[:2] = 0, d
    mask = mark_k_largest(jnp.asarray(z), jnp.asarray(k), interpret=True)
    np.testing.assert_array_equal(mask, largest_by_sort(z, k))


@pytest.mark.parametrize("size", [1, 5, 16, 17, 40, 64])
def test_inverse_cholesky(size):
    rng = np.random.default_rng(size)
    rows = rng.standard_normal((3, size, 2 * size))
    matrices = rows @ np.swapaxes(rows, 1, 2) / size
    expected = np.linalg.inv(np.linalg.cholesky(matrices))
    # The upper half is not read.
    lower = jnp.asarray(np.tril(matrices), F32)
    found = invert_cholesky(lower, precision=HIGHEST, interpret=True)
    np.testing.assert_allclose(found, expected, atol=3e-6 * np.abs(expected).max())


@pytest.mark.parametrize("size", [3, 20])
def test_inverse_cholesky_of_an_indefinite_matrix(size):
    matrix = jnp.eye(size).at[-1, -1].set(-1.0)[None]
    assert not np.isfinite(invert_cholesky(matrix, precision=HIGHEST, interpret=True)).all()


def columns_of_lanes(rng, lanes, d, k):
    indices = np.argsort(rng.random((lanes, d)), axis=1)[:, :k]
    return np.sort(indices, axis=1).astype(np.int32)


def solve_by_numpy(B, y, penalty):
    return np.linalg.solve(B.T @ B + np.diag(penalty), B.T @ y)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("n", "d", "k"), [(20, 30, 5), (50, 60, 20), (100, 50, 40)])
def test_least_squares_on_columns(shared, n, d, k):
    rng = np.random.default_rng(k)
    lanes = 4
    rows = 1 if shared else lanes
    A = rng.standard_normal((rows, n, d))
    y = rng.standard_normal((lanes, n))
    indices = columns_of_lanes(rng, lanes, d, k)
    indices[1, k // 2 :] = d  # padding
    penalty = np.zeros((lanes, k))
    penalty[2] = 0.5
    designs = jnp.asarray(A, F32)
    grams = jnp.asarray(np.swapaxes(A, 1, 2) @ A, F32)
    ridge = jnp.asarray(penalty, F32)
    root = invert_gram_roots(grams, jnp.asarray(indices), ridge, precision=HIGHEST, interpret=True)
    w, residual = minimise_on_columns(
        designs, jnp.asarray(y, F32), ridge, jnp.asarray(indices), root, interpret=True
    )
    for lane in range(lanes):
        inside = indices[lane] < d
        B = A[0 if shared else lane][:, indices[lane][inside]]
        expected = solve_by_numpy(B, y[lane], penalty[lane][inside])
        np.testing.assert_allclose(w[lane][inside], expected, atol=2e-5)
        np.testing.assert_array_equal(w[lane][~inside], 0)
        np.testing.assert_allclose(residual[lane], y[lane] - B @ expected, atol=2e-5)


def test_least_squares_on_equal_columns():
    # Two equal columns share their coefficient, as far as float32 tells them from others.
    A = jnp.asarray(np.random.default_rng(0).standard_normal((1, 20, 3)), F32)
    A = A.at[:, :, 1].set(A[:, :, 0])
    y = 2 * A[:, :, 0]
    indices = jnp.array([[0, 1, 2]], jnp.int32)
    ridge = jnp.zeros((1, 3))
    grams = jnp.swapaxes(A, 1, 2) @ A
    root = invert_gram_roots(grams, indices, ridge, precision=HIGHEST, interpret=True)
    w, _ = minimise_on_columns(A, y, ridge, indices, root, interpret=True)
    np.testing.assert_allclose(w[0], [1, 1, 0], atol=0.1)
    np.testing.assert_allclose(w[0, 0] + w[0, 1], 2, atol=1e-5)


def pursue_by_numpy(A, y, ridge, first, k):
    """The order, the minimisers and the residuals of orthogonal matching pursuit."""
    residual = y
    support = []
    steps = []
    for step in range(k):
        derivative = np.abs(A.T @ residual)
        derivative[support] = -1
        support.append(first[step] if step < len(first) else int(derivative.argmax()))
        B = A[:, support]
        w = solve_by_numpy(B, y, np.full(len(support), ridge))
        residual = y - B @ w
        steps.append((w, residual))
    return support, steps


@pytest.mark.parametrize(("n", "d", "k"), [(600, 1100, 6), (1100, 600, 20)])
def test_pursuit(n, d, k):
    # Several chunks of samples and of coordinates.
    assert min(n, d) > ENTRIES_AT_A_TIME // BLOCK
    rng = np.random.default_rng(k)
    lanes = 4
    A = rng.standard_normal((n, d))
    y = rng.standard_normal((lanes, n))
    first = np.full((lanes, k), d, np.int32)
    first[1, :2] = 3, 40
    ridge = np.array([0, 0, 2.0, 0])
    order, coefficients, residuals = pursue(
        jnp.asarray(A, F32)[None],
        jnp.asarray(A.T @ A, F32)[None],
        jnp.asarray(y, F32),
        jnp.asarray(y @ A, F32),
        jnp.asarray(ridge, F32),
        jnp.asarray(first),
        interpret=True,
    )
    np.testing.assert_array_equal(residuals[:, 0], jnp.asarray(y, F32))
    for lane in range(lanes):
        given = [item for item in first[lane] if item < d]
        support, steps = pursue_by_numpy(A, y[lane], ridge[lane], given, k)
        np.testing.assert_array_equal(order[lane], support)
        for step, (w, residual) in enumerate(steps):
            np.testing.assert_allclose(coefficients[lane, step, : step + 1], w, atol=1e-4)
            np.testing.assert_allclose(residuals[lane, step + 1], residual, atol=1e-4)


def test_pursuit_of_data_that_are_not_finite_hurts_no_other_lane():
    A = jnp.asarray(np.random.default_rng(0).standard_normal((1, 20, 30)), F32)
    y = jnp.asarray(np.random.default_rng(1).standard_normal((2, 20)), F32)
    gram = jnp.swapaxes(A, 1, 2) @ A
    first = jnp.full((2, 3), 30, jnp.int32)

    def order(y):
        return pursue(A, gram, y, y @ A[0], jnp.zeros(2), first, interpret=True)[0]

    np.testing.assert_array_equal(order(y.at[0, 0].set(jnp.nan))[1], order(y)[1])


def test_along_one_axis_gives_lanes_their_rows():
    seen = []

    def multiply(arrays, v):
        seen.append((arrays.shape, v.shape))
        return (map_lanes(lambda array, v: array @ v, arrays, v),)

    def product(array, v):
        return along_one_axis(multiply)(array, v)[0]

    rng = np.random.default_rng(0)
    A = jnp.asarray(rng.standard_normal((3, 4, 5)))
    V = jnp.asarray(rng.standard_normal((2, 3, 6, 5)))
    by_row = jax.vmap(jax.vmap(product, in_axes=(None, 0)))
    found = jax.vmap(by_row, in_axes=(None, 0))(A, V)
    np.testing.assert_allclose(found, jnp.einsum("rnd,brld->brln", A, V), rtol=1e-5)
    assert ((3, 4, 5), (36, 5)) in seen
    shared = jax.vmap(jax.vmap(product, in_axes=(None, 0)), in_axes=(None, 0))
    found = shared(A[0], V[0])
    np.testing.assert_allclose(found, jnp.einsum("nd,rld->rln", A[0], V[0]), rtol=1e-5)
    assert ((1, 4, 5), (18, 5)) in seen
    both = jax.vmap(jax.vmap(product, in_axes=(0, None)))
    found = both(jnp.stack([A, 2 * A]), V[:, 0, 0])
    expected = jnp.einsum("brnd,bd->brn", jnp.stack([A, 2 * A]), V[:, 0, 0])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def lowered(function, *shapes, target):
    """The program of a function for a platform, of which this machine need have none."""
    arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    traced = jax.jit(function).trace(*arguments)
    return traced.lower(lowering_platforms=(target,)).as_text()


def solve_lanes(solver):
    def solve(A, y):
        objective = jaxht.LeastSquares(A, y)
        return jaxht.solve(objective, jaxht.Sparse(5), solver).x

    return jax.vmap(solve, in_axes=(None, 0))


SHAPES = ((20, 50), F32), ((64, 20), F32)
KERNELS = ("mark_k_largest", "invert_gram_roots", "minimise_on_columns")


@pytest.mark.parametrize("solver", [jaxht.HTP(), jaxht.CoSaMP(), jaxht.SubspacePursuit()])
def test_programs_for_a_gpu_contain_the_kernels(solver):
    program = lowered(solve_lanes(solver), *SHAPES, target="cuda")
    for name in KERNELS:
        assert name in program, name


@pytest.mark.parametrize("solver", [jaxht.IHT(), jaxht.NIHT(), jaxht.HTP(), jaxht.OMP()])
@pytest.mark.parametrize("target", ["cpu", "tpu"])
def test_programs_for_other_platforms_do_without(solver, target):
    program = lowered(solve_lanes(solver), *SHAPES, target=target)
    assert "triton" not in program


@pytest.mark.parametrize("solver", [jaxht.IHT(), jaxht.HTP()])
def test_programs_in_float64_do_without(solver):
    with precision("float64"):
        shapes = ((20, 50), jnp.float64), ((64, 20), jnp.float64)
        assert "minimise_on_columns" not in lowered(solve_lanes(solver), *shapes, target="cuda")


@pytest.fixture
def on_a_gpu(monkeypatch):
    """What is traced where there is a GPU, lowered for the platform at hand."""
    jax.clear_caches()
    for module in (platform, full_precision, least_squares):
        monkeypatch.setattr(module, "has_gpu", lambda: True)
    yield
    jax.clear_caches()


def test_precision_of_products(on_a_gpu):
    shapes = ((20, 30), F32), ((30, 4), F32)
    assert "TF32_TF32_F32_X3" in str(
        jax.make_jaxpr(full_precision.matmul)(jnp.ones((2, 3)), jnp.ones(3))
    )
    program = lowered(full_precision.matmul, *shapes, target="cuda")
    assert "tf32" in program
    assert "tf32" not in lowered(full_precision.matmul, *shapes, target="cpu")


def test_a_user_can_ask_for_less_precision(on_a_gpu):
    with jax.default_matmul_precision("tensorfloat32"):
        jaxpr = str(jax.make_jaxpr(full_precision.matmul)(jnp.ones((2, 3)), jnp.ones(3)))
    assert "X3" not in jaxpr
    assert "HIGHEST" not in jaxpr


def test_a_plan_takes_the_steps_of_omp(on_a_gpu):
    n, d, k, lanes = 40, 60, 6, 12
    rng = np.random.default_rng(0)
    A = rng.standard_normal((n, d))
    y = rng.standard_normal((lanes, n))
    x0 = np.zeros((lanes, d))
    x0[1, [4, 7]] = 1.0

    def solve(y, x0):
        objective = jaxht.LeastSquares(jnp.asarray(A, F32), y, l2=0.1)
        return jaxht.solve(objective, jaxht.Sparse(k), jaxht.OMP(), x0=x0)

    program = lowered(
        jax.vmap(lambda y, x0: solve(y, x0).x), *(((lanes, s), F32) for s in (n, d)), target="cuda"
    )
    assert "pursue" in program
    result = jax.vmap(solve)(jnp.asarray(y, F32), jnp.asarray(x0, F32))
    assert (np.asarray(result.status) == jaxht.Status.FINISHED).all()
    for lane in range(lanes):
        given = [4, 7] if lane == 1 else []
        support, steps = pursue_by_numpy(A, y[lane], 0.1 * n, given, k)
        expected = np.zeros(d)
        expected[support] = steps[-1][0]
        np.testing.assert_allclose(result.x[lane], expected, atol=1e-5)


def test_a_plan_by_the_kernel(monkeypatch, on_a_gpu):
    """The kernel in place of the QR factorisation, in whole runs."""
    monkeypatch.setattr(
        planned_pursuit,
        "_plan",
        along_one_axis(
            lambda arrays, y, penalty, first: tuple(
                pursue(
                    arrays,
                    jnp.swapaxes(arrays, 1, 2) @ arrays,
                    y,
                    y @ arrays[0],
                    penalty,
                    first,
                    interpret=True,
                )
            )
        ),
    )
    A = jaxht.ensembles.gaussian(jax.random.key(0), n=40, d=60)
    signals = jax.vmap(lambda key: jaxht.ensembles.gaussian_signal(key, d=60, K=4))(
        jax.random.split(jax.random.key(1), 6)
    )
    result = solve_lanes(jaxht.OMP())(A, signals @ A.T)
    np.testing.assert_allclose(result, signals, atol=1e-4)


def test_a_path_follows_one_plan(on_a_gpu):
    rng = np.random.default_rng(0)
    A = jnp.asarray(rng.standard_normal((30, 40)), F32)
    y = jnp.asarray(rng.standard_normal(30), F32)
    objective = jaxht.LeastSquares(A, y)
    path = jaxht.path(objective, jaxht.Sparse(1), jaxht.OMP(), ks=[0, 1, 3, 7])
    support, steps = pursue_by_numpy(np.asarray(A, float), np.asarray(y, float), 0.0, [], 7)
    for x, k in zip(path.x, [0, 1, 3, 7], strict=True):
        expected = np.zeros(40)
        expected[support[:k]] = steps[k - 1][0] if k else []
        np.testing.assert_allclose(x, expected, atol=1e-5)
