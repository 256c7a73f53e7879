"""Designs that are read from a disk, against the same arrays in memory."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxht
from jaxht import sweep
from jaxht.designs import reading, streamed
from tests.util import drop_programs, precision, quick, record_x, solve, trace, with_interrupts

n, d, k = 90, 24, 4
ERRORS = (jax.errors.JaxRuntimeError, ValueError)  # what JAX makes of an error in a callback
SOLVERS = {
    "IHT": jaxht.IHT(),
    "NIHT": jaxht.NIHT(),
    "HTP": jaxht.HTP(),
    "GraSP": jaxht.GraSP(),
    "OMP": jaxht.OMP(),
    "SVRGHT": jaxht.SVRGHT(batch_size=10),
    "HSGHT": jaxht.HSGHT(batch_size=4, batch_growth=1.2),
}


def matrix(dtype=np.float32):
    return np.random.default_rng(0).standard_normal((n, d)).astype(dtype)


def targets(dtype=np.float32):
    rng = np.random.default_rng(1)
    return (matrix()[:, :k] @ np.arange(1.0, k + 1) + 0.3 * rng.standard_normal(n)).astype(dtype)


def chunk_bytes(rows, dtype=np.float32):
    """Those of chunks of so many rows."""
    return rows * d * np.dtype(dtype).itemsize


def pieces(A, lengths=(7, 31, 1, 50, 1)):
    """A function that gives the rows in pieces of these lengths."""
    return lambda: iter(np.split(A, np.cumsum(lengths)[:-1]))


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "jaxht.stream"]


@pytest.fixture(autouse=True)
def no_threads_left():
    yield
    for reader in list(reading.READERS):
        reader.close()
    wait_for(lambda: not threads())


# ---- the same as in memory -----------------------------------------------------------------------


@pytest.mark.parametrize("name", SOLVERS)
def test_the_same_iterates(name, dtype):
    A, y, solver = matrix(dtype), targets(dtype), SOLVERS[name]
    key = jax.random.key(0) if solver.needs_key else None

    def run(A):
        f = jaxht.LeastSquares(A, y, 1e-3, mean=True)
        return trace(f, jaxht.Sparse(k, k_max=k), solver, num_steps=12, record=record_x, key=key)

    streamed, points = run(jaxht.stream(A, chunk_bytes=chunk_bytes(32, dtype)))  # 32 + 32 + 26
    expected, expected_points = run(A)
    assert points.dtype == dtype
    tolerance = 200 * np.finfo(dtype).eps
    np.testing.assert_allclose(points, expected_points, rtol=0, atol=k * tolerance)
    np.testing.assert_array_equal(streamed.support.mask, expected.support.mask)
    assert (streamed.status, streamed.num_steps) == (expected.status, expected.num_steps)
    assert streamed.counts.ifo == expected.counts.ifo
    np.testing.assert_allclose(streamed.value, expected.value, rtol=tolerance)


def sources(tmp_path):
    import zarr

    A = matrix()
    np.save(tmp_path / "A.npy", A)
    np.save(tmp_path / "wide.npy", A.astype(np.float64))
    map_of_file = np.memmap(tmp_path / "A.bin", np.float32, "w+", shape=(n, d))
    map_of_file[:] = A
    stored = zarr.create_array(tmp_path / "A.zarr", shape=A.shape, chunks=(13, 10), dtype="f4")
    stored[:] = A
    sparse = scipy.sparse.csr_array(np.where(np.abs(A) > 1, A, 0))
    return {
        "array": (A, A),
        "integers": (np.round(9 * A).astype(np.int16), np.round(9 * A)),
        "half": (A.astype(np.float16), A.astype(np.float16)),
        "Fortran": (np.asfortranarray(A), A),
        "memmap": (map_of_file, A),
        "view of a memmap": (map_of_file[10:80], A[10:80]),
        "npy": (tmp_path / "A.npy", A),
        "npy, float64": (tmp_path / "wide.npy", A),
        "zarr": (stored, A),
        "pieces": (pieces(A), A),
        "sparse pieces": (lambda: iter([sparse[:40], sparse[40:]]), sparse.toarray()),
    }


def test_chunks_hold_whole_chunks_of_an_array(tmp_path):
    """So that each is read and decoded once a pass; unless one is larger than ``chunk_bytes``."""
    import zarr

    stored = zarr.create_array(tmp_path / "A.zarr", shape=(n, d), chunks=(13, 10), dtype="f4")
    row = 4 * d
    rows = [
        jaxht.stream(stored, chunk_bytes=size * row).reader.chunk_rows
        for size in (5, 13, 25, 26, 30, 10 * n)
    ]
    assert rows == [5, 13, 13, 26, 26, n]


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="chunks are larger on other devices")
@pytest.mark.parametrize(("columns", "rows"), [(4096, 64), (10**5, 16), (10**7, 1)])
def test_chunks_by_default(columns, rows):
    """Of 1 MB, or 16 rows where these are larger, but at most 64 MB."""
    source = Counted(10**6)
    source.shape = (10**6, columns)
    assert jaxht.stream(source).reader.chunk_rows == rows


@quick
def everything(A, x, r, X, R, indices):
    """All that a design can do."""
    products = A.matvec(x), A.rmatvec(r), A.matvec(X), A.rmatvec(R), A.gram_product(x, r)
    return *products, A.squared(r), A.row_norms(), A.column_norms(), A.columns(indices)


def check_products(A, dense):
    m = len(dense)
    assert (A.shape, A.dtype) == ((m, d), jnp.float32)
    rng, dense = np.random.default_rng(2), dense.astype(np.float32)
    x, r, X, R = (
        rng.standard_normal(shape).astype(np.float32) for shape in [(d,), (m,), (d, 3), (m, 3)]
    )
    indices, squares = np.array([d - 1, 0, d, d]), dense**2
    expected = [
        dense @ x,
        dense.T @ r,
        dense @ X,
        dense.T @ R,
        dense.T @ (r * (dense @ x)),
        r @ squares,
    ]
    expected += [
        np.sqrt(squares.sum(1)),
        np.sqrt(squares.sum(0)),
        np.pad(dense, ((0, 0), (0, 1))).T[indices],
    ]
    for ours, theirs in zip(everything(A, x, r, X, R, indices), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=3e-6 * max(1, np.max(np.abs(theirs))))


def test_products_of_all_sources(tmp_path):
    for source, dense in sources(tmp_path).values():
        with jaxht.stream(source, chunk_bytes=chunk_bytes(40)) as A:
            check_products(A, dense)


@pytest.mark.parametrize("rows", [1, 13, 45, 90, 1000])
def test_products_in_chunks_of(rows):
    with jaxht.stream(matrix(), chunk_bytes=chunk_bytes(rows)) as A:
        assert A.reader.num_chunks == -(-n // rows)
        check_products(A, matrix())


def test_products_on_other_devices(monkeypatch):
    """By programs that take the chunks, here on the CPU."""
    monkeypatch.setattr(
        streamed.lax, "platform_dependent", lambda *args, cpu, default: default(*args)
    )
    with jaxht.stream(matrix(), chunk_bytes=chunk_bytes(40)) as A:
        check_products(A, matrix())


def test_lanes_of_products():
    """Batch axes at several places, and one lane with numbers that are not finite."""
    dense, indices = matrix(), np.array([[[0, 3], [d, 2]], [[d - 1, 1], [3, 3]]])
    x, r = (
        np.random.default_rng(3).standard_normal(shape).astype(np.float32)
        for shape in [(2, d, 5), (n, 5, 2)]
    )
    x[0, 1, 3] = np.inf
    with jaxht.stream(dense, chunk_bytes=chunk_bytes(40)) as A:
        across = quick(jax.vmap(jax.vmap(A.matvec, 1, 1), 0, 1))(x)  # (n, 2, 5)
        back = quick(jax.vmap(jax.vmap(A.rmatvec, 1), 2))(r)  # (2, 5, d)
        gathered = quick(jax.vmap(jax.vmap(A.columns)))(indices)  # (2, 2, 2, n)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(across, np.einsum("nd,ldm->nlm", dense, x), atol=1e-4)
    np.testing.assert_allclose(back, np.einsum("nd,nlm->mld", dense, r), atol=1e-4)
    np.testing.assert_array_equal(gathered, np.pad(dense, ((0, 0), (0, 1))).T[indices])


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({f"column {j}": column for j, column in enumerate(matrix().T)})
    parquet.write_table(table, tmp_path / "A.parquet", row_group_size=27)
    check_products(jaxht.stream(tmp_path / "A.parquet", chunk_bytes=chunk_bytes(40)), matrix())


def test_without_pyarrow(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ImportError, match="needs pyarrow"):
        jaxht.stream("A.parquet")


@pytest.mark.parametrize("name", ["array", "memmap", "npy, float64", "zarr"])
def test_rows(name, tmp_path):
    source, dense = sources(tmp_path)[name]
    A = jaxht.stream(source, chunk_bytes=chunk_bytes(40))
    indices, padded = np.array([[5, 89, 5], [90, 0, 90]]), np.pad(dense, ((0, 1), (0, 0)))
    found = (
        quick(lambda i: A.rows(i).array)(indices[0]),
        quick(jax.vmap(lambda i: A.rows(i).array))(indices),
    )
    for ours, theirs in zip(found, (padded[indices[0]], padded[indices]), strict=True):
        np.testing.assert_array_equal(ours, theirs.astype(np.float32))


def test_a_map_of_a_file_does_not_become_memory(tmp_path):
    source, _ = sources(tmp_path)["npy"]
    opened = np.load(source, mmap_mode="r")
    assert isinstance(jaxht.stream(opened).reader.source, reading.FileRows)
    assert isinstance(jaxht.stream(opened[3:]).reader.source, reading.ArrayRows)


def test_numbers_in_the_other_byte_order():
    A = np.random.default_rng(0).normal(size=(6, 4)).astype(">f4")
    x = np.arange(4, dtype=np.float32)
    for design in (jaxht.stream(A), jaxht.design(A)):
        np.testing.assert_allclose(design.matvec(x), A.astype(np.float32) @ x, rtol=1e-5)
    f = jaxht.LeastSquares(A, A[:, 1], mean=False)
    assert jaxht.solve(f, jaxht.Sparse(1), jaxht.OMP()).support.numpy().tolist() == [1]


def test_double_precision():
    with precision("float64"):
        A = jaxht.stream(matrix(np.float64), chunk_bytes=chunk_bytes(40, np.float64))
        x = np.random.default_rng(2).standard_normal(d)
        np.testing.assert_allclose(quick(A.matvec)(x), matrix(np.float64) @ x, rtol=0, atol=1e-13)
        assert jaxht.stream(np.ones((2, 2), int)).dtype == np.float64
        assert jaxht.stream(matrix(np.float64), dtype=np.float32).dtype == np.float32


def test_double_precision_everywhere():
    """Where 64 bits are on for all threads, and not only within a context of one of them."""
    script = """
        import numpy as np, jaxht
        from tests.test_stream import chunk_bytes, d, k, matrix, n
        dense, y = matrix(np.float64), matrix(np.float64)[:, 2] + 0.1
        with jaxht.stream(dense, chunk_bytes=chunk_bytes(40, np.float64)) as A:
            i = np.arange(3)
            products = A.matvec(dense[0]), A.rmatvec(y), A.squared(y), A.columns(i), A.rows(i).array
            expected = dense @ dense[0], y @ dense, y @ dense**2, dense[:, :3].T, dense[:3]
            for ours, theirs in zip(products, expected, strict=True):
                assert ours.dtype == np.float64
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
            x = jaxht.solve(jaxht.LeastSquares(A, y, mean=False), jaxht.Sparse(k), jaxht.HTP()).x
        np.testing.assert_allclose(x, jaxht.solve(jaxht.LeastSquares(dense, y, mean=False), jaxht.Sparse(k), jaxht.HTP()).x)
    """
    environment = {**os.environ, "JAX_ENABLE_X64": "1"}
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=environment, timeout=300, check=True
    )


def test_other_objectives():
    labels = np.where(targets() > 0, 1.0, -1.0).astype(np.float32)
    weights = np.linspace(0, 2, n, dtype=np.float32)

    def run(A):
        f = jaxht.Logistic(A, labels, 0.01, weights=weights, offset=0.1 * weights)
        return solve(f, jaxht.Sparse(k, k_max=k), jaxht.HTP())

    ours, theirs = run(jaxht.stream(matrix(), chunk_bytes=chunk_bytes(40))), run(matrix())
    np.testing.assert_allclose(ours.x, theirs.x, atol=1e-5)
    assert ours.status == theirs.status


def test_lanes_share_the_chunks():
    A = jaxht.stream(matrix(), chunk_bytes=chunk_bytes(40))
    ys = np.stack([targets(), -targets(), targets()[::-1]])

    def run(A):
        def solve_one(y):
            return jaxht.solve(
                jaxht.LeastSquares(A, y, mean=False),
                jaxht.Sparse(k, k_max=k),
                jaxht.HTP(step_size=0.01),
            ).x

        return quick(jax.vmap(solve_one))(ys)

    found = run(A)
    passes = A.reader.num_passes
    np.testing.assert_allclose(found, run(matrix()), atol=1e-5)
    assert passes < 2 * 3 * 3  # a run takes at least so many


def test_derivatives():
    A, y = jaxht.stream(matrix(), chunk_bytes=chunk_bytes(40)), targets()

    def value(y, A):
        return jaxht.solve(
            jaxht.LeastSquares(A, y, mean=False),
            jaxht.Sparse(k, k_max=k),
            jaxht.HTP(step_size=0.01),
        ).value

    found, expected = (quick(jax.grad(value))(y, design) for design in (A, matrix()))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    x = np.ones(d, np.float32)
    gradient = jax.grad(lambda x: jnp.sum(A.matvec(x) ** 2))
    lanes = quick(jax.vmap(lambda x: jax.jvp(gradient, (x,), (x,))))(
        np.stack([x, 2 * x])
    )  # forward over reverse
    for factor, *both in zip((2, 4), *lanes, strict=True):
        np.testing.assert_allclose(
            both, [factor * matrix().T @ matrix() @ x] * 2, rtol=1e-4, atol=1e-3
        )


def test_default_solver():
    f = jaxht.LeastSquares(jaxht.stream(matrix()), targets(), mean=False)
    assert isinstance(jaxht.default_solver(f, jaxht.Sparse(k)), jaxht.HTP)


def test_a_second_solve_does_not_compile(caplog):
    A = jaxht.stream(matrix(), chunk_bytes=chunk_bytes(40))

    def run(y, step_size):
        return jaxht.solve(
            jaxht.LeastSquares(A, y, mean=False), jaxht.Sparse(k), jaxht.IHT(step_size)
        ).x

    drop_programs()
    run(targets(), 0.005)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        run(-targets(), 0.004)
    assert "Compiling" not in caplog.text


# ---- the thread that reads -----------------------------------------------------------------------


class Counted:
    """Rows of zeros that count how many of them were asked for, in chunks of one row."""

    def __init__(self, rows):
        self.shape, self.dtype, self.read = (rows, d), np.dtype(np.float32), 0

    def __getitem__(self, rows):
        self.read += rows.stop - rows.start
        return np.zeros((rows.stop - rows.start, d), np.float32)


def test_the_thread_is_ahead_as_far_as_it_has_buffers():
    source = Counted(50)
    reader = jaxht.stream(source, chunk_bytes=chunk_bytes(1)).reader
    for i in range(20):
        held = reader.chunk(i)
        wait_for(lambda i=i: source.read == i + reading.BUFFERS)
        time.sleep(0.001)
        assert source.read == i + reading.BUFFERS  # the one that is held, and two
    del held
    wait_for(lambda: source.read == 20 + reading.BUFFERS)


def test_reading_and_computing_overlap():
    """While the program is busy with a chunk, here until it is so, the next one of the pass is
    read."""
    source, met = Counted(8), []

    def busy(progress):
        is_end = progress.done % 8 == 0
        wait_for(lambda: source.read > progress.done - is_end)
        met.append(source.read - progress.done + is_end)

    A = jaxht.stream(source, chunk_bytes=chunk_bytes(1), on_progress=busy)
    f = jaxht.LeastSquares(A, np.zeros(8, np.float32), mean=False)
    assert solve(f, jaxht.Sparse(1, k_max=1), jaxht.IHT(step_size=1.0)).x.shape == (d,)
    assert len(met) > 16 and min(met) >= 1 and max(met) <= 2 * reading.BUFFERS


def test_chunks_are_not_overwritten_while_they_are_held():
    reader = jaxht.stream(matrix(), chunk_bytes=chunk_bytes(10)).reader
    held = [reader.chunk(i) for i in range(reading.BUFFERS)]
    for i, rows in enumerate(held):
        np.testing.assert_array_equal(rows, matrix()[10 * i : 10 * i + 10])


def test_two_products_side_by_side():
    """In one program, of pieces that come in order: no pass starts again for the other's sake."""
    starts = []

    def source():
        starts.append(None)
        return pieces(matrix())()

    A = jaxht.stream(source, shape=(n, d), dtype=np.float32, chunk_bytes=chunk_bytes(10))
    starts.clear()
    x, r = np.ones(d, np.float32), np.ones(n, np.float32)
    for _ in range(5):
        found = quick(lambda x, r: (A.matvec(x), A.rmatvec(r)))(x, r)
    np.testing.assert_allclose(found[0], matrix() @ x, atol=1e-5)
    np.testing.assert_allclose(found[1], r @ matrix(), atol=1e-5)
    assert A.reader.num_passes == 10 and len(starts) <= 10 + 2 + 5  # and those that are read ahead


def test_the_thread_ends_when_nobody_asks():
    A = jaxht.stream(matrix(), chunk_bytes=chunk_bytes(40), idle_seconds=0.02)
    for _ in range(3):
        check_products(A, matrix())
        wait_for(lambda: not threads() and not A.reader.cursors)


def test_an_error_of_the_reader():
    failures = [True, False]

    def source():
        fails = failures.pop(0) if failures else False
        for i, piece in enumerate(pieces(matrix(), [10] * 9)()):
            if i == 6 and fails:
                raise OSError("the disk is gone")
            yield piece

    A = jaxht.stream(source, shape=(n, d), dtype=np.float32, chunk_bytes=chunk_bytes(20))
    run = quick(
        lambda y: (
            jaxht.solve(
                jaxht.LeastSquares(A, y, mean=False), jaxht.Sparse(k, k_max=k), jaxht.IHT(0.005)
            ).x
        )
    )
    with pytest.raises(ERRORS, match=r"rows 60 to 80 of the stream.*OSError: the disk is gone"):
        jax.block_until_ready(run(targets()))
    wait_for(lambda: not threads())
    assert np.count_nonzero(run(targets())) == k  # what was wrong is over


@pytest.mark.parametrize("count", [80, 100])
def test_pieces_of_another_number_of_rows(count):
    rows = np.ones((count, d), np.float32)
    A = jaxht.stream(
        lambda: iter([rows]), shape=(n, d), dtype=np.float32, chunk_bytes=chunk_bytes(20)
    )
    with pytest.raises(ERRORS, match="end before row 90" if count < n else "more than 90 rows"):
        jax.block_until_ready(quick(A.matvec)(np.ones(d, np.float32)))


def test_a_file_that_is_cut_off(tmp_path):
    np.save(tmp_path / "A.npy", matrix())
    A = jaxht.stream(tmp_path / "A.npy", chunk_bytes=chunk_bytes(20))
    os.truncate(tmp_path / "A.npy", 5000)
    with pytest.raises(ERRORS, match=r"ends .* bytes too early"):
        jax.block_until_ready(quick(A.matvec)(np.ones(d, np.float32)))


def test_an_interrupt_ends_a_run():
    """In the middle of a pass; without the block it would come at the end of the program."""
    asked = []

    def source():
        for piece in pieces(matrix(), [10] * 9)():
            asked.append(None)
            if len(asked) == 40:
                os.kill(os.getpid(), signal.SIGINT)
            yield piece

    A = jaxht.stream(source, shape=(n, d), dtype=np.float32, chunk_bytes=chunk_bytes(10))
    f, stop = jaxht.LeastSquares(A, targets(), mean=False), jaxht.Stop(max_steps=1000, rtol=0.0)
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    with with_interrupts(), pytest.raises(KeyboardInterrupt), A:
        jax.block_until_ready(solve(f, jaxht.Sparse(k, k_max=k), jaxht.IHT(1e-4), stop=stop))
    assert len(asked) < 60
    wait_for(lambda: not threads())
    assert signal.set_wakeup_fd(before) == before
    with pytest.raises(ERRORS, match="the stream is closed"):
        jax.block_until_ready(quick(A.matvec)(np.ones(d, np.float32)))


def test_progress(capsys):
    seen = []
    A = jaxht.stream(matrix(), chunk_bytes=chunk_bytes(40), on_progress=seen.append)
    quick(lambda x: A.rmatvec(A.matvec(x)))(np.ones(d, np.float32)).block_until_ready()
    assert [report.done for report in seen] == [40, 80, 90, 130, 170, 180]
    assert [report.note for report in seen] == [
        f"pass {p}, {share}%" for p in (1, 2) for share in (33, 67, 100)
    ]
    with sweep.progress_bar("A", unit=" rows") as bar:
        A = jaxht.stream(matrix(), chunk_bytes=chunk_bytes(40), on_progress=bar)
        quick(A.matvec)(np.ones(d, np.float32)).block_until_ready()
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert "A: 90.0 rows" in last and "rows/s" in last and "pass 1, 100%" in last


# ---- what is refused -----------------------------------------------------------------------------

BAD = [
    ((3,), {}, "source must be an array .* got 3"),
    (([np.ones((2, 2))],), {}, "source must be an array .* got list"),
    (
        (iter([np.ones((2, 2))]),),
        {},
        "source must be an array .* function that returns a new iterator",
    ),
    (("A.csv",), {}, "source must be a path of a .npy or a .parquet file; got 'A.csv'"),
    ((np.ones(3),), {}, r"source must have shape \(n, d\) with n, d >= 1; got \(3,\)"),
    ((np.ones((0, 3)),), {}, r"source must have shape \(n, d\) with n, d >= 1; got \(0, 3\)"),
    ((np.ones((2, 2), complex),), {}, "source must be real; got dtype complex128"),
    (
        (np.ones((2, 2)),),
        {"shape": (3, 2)},
        r"shape must be that of source, \(2, 2\); got \(3, 2\)",
    ),
    ((lambda: iter([]),), {}, "source must have at least one row"),
    ((lambda: iter([np.ones(3)]),), {}, r"pieces must have shape \(rows, d\); got \(3,\)"),
    ((lambda: iter([]),), {"shape": 3}, "shape must be a pair of ints"),
    (
        (np.ones((2, 2)),),
        {"chunk_bytes": 0},
        "chunk_bytes must be an int of at least 1; got 0",
    ),
    (
        (np.ones((2, 2)),),
        {"chunk_bytes": 1.5},
        "chunk_bytes must be an int of at least 1; got 1.5",
    ),
    ((np.ones((2, 2)),), {"dtype": np.int32}, "dtype must be float32 or float64; got int32"),
    ((np.ones((2, 2)),), {"on_progress": 1}, "on_progress must be a function or None; got 1"),
]


@pytest.mark.parametrize(("args", "options", "message"), BAD, ids=range(len(BAD)))
def test_bad_input(args, options, message):
    with pytest.raises(ValueError, match=message):
        jaxht.stream(*args, **options)


@pytest.mark.parametrize("name", ["SVRGHT", "HSGHT"])
def test_samples_need_random_access(name):
    f = jaxht.LeastSquares(jaxht.stream(pieces(matrix())), targets(), mean=True)
    with pytest.raises(ValueError, match="A must give any of its rows"):
        jaxht.solve(f, jaxht.Sparse(k), SOLVERS[name], key=jax.random.key(0))


def test_no_dense_start():
    f = jaxht.LeastSquares(jaxht.stream(matrix()), targets(), mean=False)
    with pytest.raises(ValueError, match="A must be in memory"):
        jaxht.solve(f, jaxht.Sparse(k), jaxht.HTP(), x0="dense")


def test_it_prints_in_a_line():
    assert repr(jaxht.stream(matrix())) == "Streamed(shape=(90, 24), dtype=float32, chunk_rows=90)"


def test_targets_of_another_length():
    f = jaxht.LeastSquares(jaxht.stream(matrix()), np.ones(3, np.float32), mean=False)
    with pytest.raises(ValueError, match=r"y must have shape \(90,\)"):
        jaxht.solve(f, jaxht.Sparse(k), jaxht.IHT())


def test_masks_and_sparse_matrices_are_refused():
    masked = np.ma.array(np.ones((3, 2)), mask=np.arange(6).reshape(3, 2) == 0)
    with pytest.raises(ValueError, match="source must be arrays without a mask"):
        jaxht.stream(masked)
    with pytest.raises(ValueError, match="pieces must be arrays without a mask"):
        jaxht.stream(lambda: iter([masked]))
    with pytest.raises(ValueError, match="source must be a dense array; got a sparse one"):
        jaxht.stream(scipy.sparse.csr_array(np.eye(3)))


def test_pieces_without_rows():
    """At the beginning, within and at the end; their columns are those of the others."""
    A = matrix()
    none = A[:0]
    found = jaxht.stream(lambda: iter([none, A[:50], none, A[50:], none]))
    np.testing.assert_allclose(found.matvec(jnp.ones(d)), A.sum(axis=1), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="pieces must have 24 columns"):
        jaxht.stream(lambda: iter([A[:50], A[50:, :3]]))


def test_vectors_of_integers_and_of_single_precision():
    """Beside a matrix of double precision."""
    with precision("float64"):
        A = matrix(np.float64)
        found = jaxht.stream(A)
        for dtype in (np.float32, np.int32):
            x, r = np.ones(d, dtype), np.ones(n, dtype)
            np.testing.assert_allclose(found.matvec(jnp.asarray(x)), A @ x, atol=1e-12)
            np.testing.assert_allclose(found.rmatvec(jnp.asarray(r)), A.T @ r, atol=1e-12)
            np.testing.assert_allclose(found.squared(jnp.asarray(r)), r @ A**2)


def test_a_pass_reads_what_is_there_when_it_begins(tmp_path):
    """Nothing was read ahead while nobody asked."""
    A = matrix()
    x = jnp.ones(d)
    path = tmp_path / "A.npy"
    np.save(path, A)
    shown = {"A": A}
    sources = (shown["A"], path, lambda: iter([shown["A"]]))
    streams = [jaxht.stream(s, shape=(n, d), chunk_bytes=chunk_bytes(11)) for s in sources]
    for scale in (1, 2, 4):
        for design in streams:
            np.testing.assert_allclose(design.matvec(x), scale * matrix() @ x, rtol=1e-5, atol=1e-5)
        time.sleep(0.05)  # in which a thread would read
        A *= 2
        np.save(path, A)


def test_a_file_of_another_layout_is_refused(tmp_path):
    path = tmp_path / "A.npy"
    np.save(path, matrix())
    design = jaxht.stream(path)
    np.save(path, np.ones((d, n)))
    with pytest.raises(ERRORS, match="another shape or dtype"):
        design.matvec(jnp.ones(d)).block_until_ready()


def test_streams_are_closed_in_any_order():
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    streams = [jaxht.stream(matrix()) for _ in range(3)]
    for design in streams:
        design.__enter__()
    for index in (1, 0, 2):
        streams[index].close()
    after = signal.set_wakeup_fd(before)
    assert after == before
