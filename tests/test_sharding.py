"""Designs sharded over rows, columns or both, on eight devices of the host: the same solutions, and
no A that moves."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxht
from jaxht.designs import ShardedMatrix
from tests.sharded import PRODUCTS, SOLVERS, D, K, N
from tests.util import on_devices

pytestmark = pytest.mark.usefixtures("all_quickly")

# Solvers that refit gather k_max columns, GraSP, CoSaMP and dual solvers 3 k_max; all others move
# vectors alone.
COLUMNS = {"HTP": K, "CoSaMP": 3 * K, "GraSP": 3 * K, "OMP": K, "DIHT": K, "SDIHT": K}
LEAST_SQUARES = "least squares"
# Every solver on a dense design, one of each kind on a sparse one, and some on other layouts.
CASES = [("dense", "both", name, LEAST_SQUARES) for name in SOLVERS]
CASES += [
    ("sparse", "rows", name, LEAST_SQUARES)
    for name in ("IHT", "HTP", "OMP", "SVRGHT", "HSGHT", "SDIHT")
]
CASES += [
    (kind, "columns", name, LEAST_SQUARES)
    for kind in ("dense", "sparse")
    for name in ("HTP", "SVRGHT")
]
CASES += [("sparse", "both", "SVRGHT", LEAST_SQUARES), ("sparse", "both", "IHT", "logistic")]
CASES += [("dense", "rows", "HTP", "logistic")]


def of_sharded(argument):
    result = on_devices(8, "-m", "tests.sharded", argument)
    assert result.returncode == 0, result.stderr[-3000:]
    return list(map(json.loads, result.stdout.splitlines()))


@pytest.mark.parametrize("placed", sorted({case[:2] for case in CASES}), ids="-".join)
def test_the_same_solution_and_no_design_moves(placed):
    """Solvers end as on one device. At most vectors or the columns of a refit move, of which counts
    are gathered."""
    for result in of_sharded(json.dumps([case for case in CASES if case[:2] == placed])):
        case, transfers = result["case"], result["transfers"]
        assert result["support"][0] == result["support"][1] and len(result["support"][0]) == K, case
        assert result["status"][0] == result["status"][1] != jaxht.Status.DIVERGED, case
        np.testing.assert_allclose(*result["value"], rtol=1e-5, err_msg=str(case))
        assert result["error"] < 1e-4, case
        assert transfers, "devices must exchange something"
        most = max(N, D, COLUMNS.get(case[2], 0) * N)
        assert all(size <= most for _, size in transfers), (case, transfers)
        assert all(size <= N for name, size in transfers if name == "all-gather"), (case, transfers)


# ---- products ----


@pytest.mark.parametrize("layout", ["rows", "both"])
def test_products_of_sparse_blocks(layout):
    """As of the matrix in one piece, in jit. Indices out of range are empty, and rows may
    repeat."""
    found = of_sharded(layout)
    assert [line["case"] for line in found] == list(PRODUCTS)
    for line in found:
        assert line["error"] < 1e-6 * line["size"], line
        assert all(size <= max(2 * D, 4 * N) for _, size in line["transfers"]), line


def test_one_device_is_a_grid_too():
    """And what is built there has the products, derivatives and columns of the matrix in one
    piece."""
    A = scipy.sparse.random(6, 8, 0.4, "csr", np.float32, np.random.default_rng(0))
    mesh = Mesh(np.array(jax.devices()[:1]), ("a",))
    blocks, whole = jaxht.design(A, NamedSharding(mesh, P("a"))), jaxht.design(A)
    assert (
        blocks.shape == whole.shape
        and blocks.dtype == whole.dtype
        and blocks.gathers(2) == whole.gathers(2)
    )

    def value(A, x):
        return jnp.sum(jnp.sin(A.matvec(x)))

    x = jnp.arange(8.0)
    np.testing.assert_allclose(
        jax.grad(value, 1)(blocks, x), jax.grad(value, 1)(whole, x), rtol=1e-5
    )
    xs = jnp.stack([x, x**2])
    np.testing.assert_allclose(jax.vmap(blocks.matvec)(xs), xs @ A.toarray().T, rtol=1e-5)


@pytest.mark.parametrize(
    ("A", "sharding", "message"),
    [
        (
            np.ones((2, 2), np.float32),
            P("a"),
            "sharding must be a jax.sharding.NamedSharding; got P",
        ),
        (
            jaxht.LinearOperator(lambda x: x, (2, 2)),
            None,
            "A must be an array of shape (n, d) or a sparse matrix",
        ),
    ],
)
def test_what_cannot_be_sharded(A, sharding, message):
    sharding = sharding or NamedSharding(Mesh(np.array(jax.devices()[:1]), ("a",)), P("a"))
    with pytest.raises(ValueError, match=re.escape(message)):
        jaxht.design(A, sharding)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((5, 8), "rows that divide evenly over the 2 shards of this process; got 5"),
        ((6, 7), "columns that divide"),
    ],
)
def test_uneven_shards_are_refused(sizes, message):
    code = f"""
import jax, numpy as np, scipy.sparse, jaxht
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
jaxht.design(scipy.sparse.csr_array(np.ones({sizes}, np.float32)), NamedSharding(mesh, P("a", "b")))
"""
    result = on_devices(4, "-c", code)
    assert "ValueError" in result.stderr and message in result.stderr


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_blocks_are_standardised_as_the_whole_matrix(form, weighted):
    """Of large means, and where all rows of a block have weight 0; two by two blocks, here on one
    device."""
    rng = np.random.default_rng(0)
    A = np.stack([1000 + rng.normal(size=400), rng.normal(size=400)], axis=1)
    A = np.hstack([A, 2 * A + rng.normal(size=(400, 2))]).astype(np.float32)
    A[:, 3] = 37.3
    weights = rng.integers(0, 3, 400).astype(np.float32) * (np.arange(400) >= 200)
    weights = weights if weighted else None
    mesh = Mesh(np.array(jax.devices()[:1]), ("a",))
    parts = [
        [
            jaxht.design(form(A[i : i + 200, j : j + 2]), NamedSharding(mesh, P())).blocks
            for j in (0, 2)
        ]
        for i in (0, 200)
    ]
    blocks = join_blocks(parts)
    found = jaxht.standardize(ShardedMatrix(blocks), weights=weights)
    mean = np.average(A, axis=0, weights=weights)
    scale = np.sqrt(np.average((A - mean) ** 2, axis=0, weights=weights))
    scale[3] = 1
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(found.scale, scale, rtol=1e-4)
    x = np.float32([1, -2, 0.5, 3])
    exact = (A - mean) / scale
    exact[:, 3] = 0  # constant
    np.testing.assert_allclose(found.design.matvec(x), exact @ x, rtol=0, atol=2e-3)
    slopes = jax.jacobian(found.design.squared)(np.zeros(400, np.float32))
    assert not np.any(slopes[3])
    np.testing.assert_allclose(slopes, exact.T**2, rtol=1e-2, atol=1e-2)


def join_blocks(parts):
    """One grid of grids of one block each, with as many chunks as the fullest needs."""

    def join(*leaves):
        size = max(leaf.shape[2] for leaf in leaves) if leaves[0].ndim > 2 else None

        def fill(leaf):
            missing = 0 if size is None else size - leaf.shape[2]
            widths = [(0, missing if axis == 2 else 0) for axis in range(leaf.ndim)]
            return np.pad(leaf, widths, mode="edge")

        rows = [np.concatenate([fill(leaf) for leaf in leaves[r : r + 2]], axis=1) for r in (0, 2)]
        return np.concatenate(rows, axis=0)

    return jax.tree.map(join, *parts[0], *parts[1])


def test_blocks_of_integers_are_cast():
    """Beside weights; arrays of another byte order, and no vectors."""
    rng = np.random.default_rng(0)
    A = rng.integers(-5, 6, (6, 4)).astype(np.int8)
    weights = np.array([0.5, 0.25, 1, 1, 1, 1], np.float32)
    everywhere = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("a",)), P())
    for matrix in (A, A > 0):
        found = jaxht.standardize(jaxht.design(matrix, everywhere), weights=weights)
        mean = np.average(matrix, axis=0, weights=weights)
        np.testing.assert_allclose(found.mean, mean, atol=1e-6)
    swapped = jaxht.design(A.astype(">f4"), everywhere)
    np.testing.assert_allclose(swapped.matvec(jnp.ones(4)), A.sum(axis=1))
    with pytest.raises(ValueError, match=r"A must have shape \(n, d\); got \(4,\)"):
        jaxht.design(A[0], everywhere)
    nothing = jaxht.solve(jaxht.LeastSquares(swapped, weights), jaxht.Sparse(0), jaxht.HTP())
    assert nothing.succeeded and not np.any(nothing.x)
