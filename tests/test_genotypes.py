"""Designs of packed genotypes and of small integers: their products, standardised, by every solver;
files of PLINK."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht.designs import Dense, Genotypes, Integers, hstack, read_bed
from tests.util import solve, x64

pytestmark = pytest.mark.usefixtures("all_quickly")
# Of samples, more than a word and no multiple of four; of markers, more than a block.
N, D = 53, 150


def calls(n=N, d=D, missing=0.05, seed=0):
    """Copies of an allele of various frequencies; -1 where missing. A marker without variation, one
    never called."""
    rng = np.random.default_rng(seed)
    G = rng.binomial(2, rng.uniform(0.1, 0.9, d), (n, d)).astype(np.int8)
    G[rng.random((n, d)) < missing] = -1
    G[:, 5] = 1
    if missing:
        G[:, 7] = -1
    return G


def imputed(G):
    """By loops: missing calls are the mean of their column, 0 where there is none."""
    A = np.zeros(G.shape)
    for j in range(G.shape[1]):
        called = [int(g) for g in G[:, j] if g >= 0]
        mean = sum(called) / len(called) if called else 0
        for i in range(len(G)):
            A[i, j] = G[i, j] if G[i, j] >= 0 else mean
    return A


def decode(data, n):
    """By loops, what a .bed file says: 00 two copies, 01 missing, 10 one, 11 none; the lowest bits
    first."""
    G = np.zeros((n, len(data)), np.int8)
    for j, row in enumerate(data):
        for i in range(n):
            G[i, j] = {0b00: 2, 0b01: -1, 0b10: 1, 0b11: 0}[int(row[i // 4]) >> 2 * (i % 4) & 3]
    return G


MAKE = {
    "packed": lambda G, dtype: Genotypes.build(G, dtype),
    "int8": lambda G, dtype: Integers.build(G, -1, dtype),
}
both = pytest.mark.parametrize("kind", MAKE)


def close(found, expected, dtype, scale=1.0):
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(found, expected, rtol=1e3 * eps, atol=1e3 * eps * scale)


@both
def test_products_are_those_of_the_matrix(kind, dtype):
    G, rng = calls(), np.random.default_rng(1)
    A, F = MAKE[kind](G, dtype), imputed(G)
    assert A.shape == F.shape
    assert A.dtype == dtype
    x, r, weights = (
        rng.normal(size=(D, 9)).astype(dtype),
        rng.normal(size=(N, 9)).astype(dtype),
        rng.random(N),
    )
    x[np.arange(D) // 64 == 1] = 0  # a block that A x passes over
    for part in (np.s_[:, 0], np.s_[:, :2], np.s_[:]):  # in registers, and by matrix products
        close(A.matvec(x[part]), F @ x[part], dtype)
        close(A.rmatvec(r[part]), F.T @ r[part], dtype)
    close(A.squared(weights.astype(dtype)), weights @ F**2, dtype)
    close(A.row_norms(), np.linalg.norm(F, axis=1), dtype)
    close(A.column_norms(), np.linalg.norm(F, axis=0), dtype)
    padded = np.pad(F, ((0, 1), (0, 1)))
    close(A.columns(jnp.array([3, D, 149, 3])), padded[:N, [3, D, 149, 3]].T, dtype)
    rows = A.rows(jnp.array([3, N, 52, 3]))
    close(rows.matvec(x), padded[[3, N, 52, 3], :D] @ x, dtype)
    close(rows.rmatvec(r[:4]), padded[[3, N, 52, 3], :D].T @ r[:4], dtype)


@both
@pytest.mark.parametrize("size", [(1, 1), (16, 64), (17, 65)])
def test_sizes(kind, size):
    G, rng = np.random.default_rng(2).integers(-1, 3, size, np.int8), np.random.default_rng(3)
    A, F = MAKE[kind](G, float), imputed(G)
    x, r = rng.normal(size=size[1]).astype(np.float32), rng.normal(size=size[0]).astype(np.float32)
    np.testing.assert_allclose(A.matvec(x), F @ x, atol=1e-4)
    np.testing.assert_allclose(A.rmatvec(r), F.T @ r, atol=1e-4)


@pytest.fixture
def float64():
    with x64():
        yield


@both
@pytest.mark.usefixtures("float64")
def test_transformations(kind):
    G, rng = calls(), np.random.default_rng(1)
    A, F = MAKE[kind](G, float), imputed(G)
    x, r = rng.normal(size=(3, D)), rng.normal(size=(3, N))

    def f(x, A):
        return jnp.sum(A.matvec(x) ** 3)

    def g(r, A):
        return jnp.sum(A.rmatvec(r) ** 3)

    close(jax.jit(type(A).matvec)(A, x[0]), F @ x[0], float)
    close(jax.vmap(A.matvec)(x), x @ F.T, float)
    close(jax.jit(jax.vmap(A.rmatvec))(r), r @ F, float)
    close(jax.grad(f)(x[0], A), 3 * F.T @ (F @ x[0]) ** 2, float, 1e3)
    close(jax.jit(jax.vmap(jax.grad(g), (0, None)))(r, A), 3 * (r @ F) ** 2 @ F.T, float, 1e3)
    close(jax.hessian(f)(x[0], A), 6 * F.T @ np.diag(F @ x[0]) @ F, float, 1e3)
    # What missing calls count as is a number like any other.
    moved = jax.grad(f, 1, allow_int=True)(x[0], A).fill
    close(moved, 3 * ((F @ x[0]) ** 2) @ (G < 0) * x[0], float, 1e3)
    # Lanes with designs of their own.
    other = MAKE[kind](np.roll(G, 1, 0), float)
    lanes = jax.tree.map(lambda *leaves: jnp.stack(leaves), A, other)
    close(
        jax.vmap(lambda A: A.matvec(x[0]))(lanes),
        np.stack([F @ x[0], np.roll(F, 1, 0) @ x[0]]),
        float,
    )


def test_a_gradient_holds_no_matrix():
    A = Genotypes.build(calls(400, 16384))

    def f(x):
        return jnp.sum(A.matvec(x) ** 2) + jnp.sum(A.rmatvec(A.matvec(x)) ** 2)

    memory = jax.jit(jax.grad(f)).lower(jnp.ones(16384)).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 400 * 16384  # a quarter of the matrix in float


@both
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_standardised(kind, weighted):
    G, rng, dtype = calls(), np.random.default_rng(3), np.dtype(float)
    F, weights = imputed(G), rng.random(N) if weighted else np.ones(N)
    share = weights / weights.sum()
    mean = share @ F
    variance = share @ (F - mean) ** 2
    scale = np.where(variance > 1e-12, np.sqrt(variance), 1)
    Z = (F - mean) / scale
    S = jaxht.standardize(MAKE[kind](G, dtype), weights=weights.astype(dtype) if weighted else None)
    close(S.mean, mean, dtype)
    close(S.scale, scale, dtype)
    x, r = rng.normal(size=(D, 2)).astype(dtype), rng.normal(size=(N, 2)).astype(dtype)
    close(S.design.matvec(x), Z @ x, dtype, 10)
    close(S.design.rmatvec(r), Z.T @ r, dtype, 10)
    close(S.design.column_norms() ** 2, np.sum(Z**2, axis=0), dtype, 10)
    columns = S.design.columns(jnp.arange(D))
    close(columns, Z.T, dtype)
    if not weighted:
        close(np.asarray(columns)[G.T < 0], 0, dtype)  # missing calls
    assert isinstance(S.design.base, type(MAKE[kind](G, dtype)))


@pytest.mark.parametrize("frequency", [1e-3, 1 - 1e-3])
def test_rare_alleles_keep_their_digits(frequency):
    G = np.random.default_rng(4).binomial(2, frequency, (5000, 40)).astype(np.int8)
    S = jaxht.standardize(Genotypes.build(G))
    varies = G.std(0) > 0
    np.testing.assert_allclose(np.asarray(S.scale)[varies], G.std(0)[varies], rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(S.scale)[~varies], 1)


def planted(n=120, d=90, seed=5):
    G = calls(n, d, seed=seed)
    F = imputed(G)
    scale = np.where(F.std(0) > 0, F.std(0), 1)
    Z = (F - F.mean(0)) / scale
    y = Z[:, [10, 20, 30, 40]] @ [2, -1.5, 1, 1] + 0.5 * np.random.default_rng(seed).normal(size=n)
    return G, Z, y


SOLVERS = [
    None,
    jaxht.IHT(),
    jaxht.NIHT(),
    jaxht.HTP(),
    jaxht.GraSP(),
    jaxht.OMP(),
]
CASES = [(solver, "packed") for solver in SOLVERS] + [(jaxht.HTP(), "int8"), (jaxht.OMP(), "int8")]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("solver", "kind"),
    CASES,
    ids=lambda case: case if isinstance(case, str) else type(case).__name__,
)
def test_solvers_find_what_they_find_on_the_dense_matrix(kind, solver):
    G, Z, y = planted()
    S = jaxht.standardize(MAKE[kind](G, float))
    models = (
        [jaxht.LeastSquares, jaxht.Logistic]
        if isinstance(solver, jaxht.HTP | jaxht.OMP)
        else [jaxht.LeastSquares]
    )
    for model in models:
        target = np.sign(y) if model is jaxht.Logistic else y
        packed, dense = (
            jaxht.solve(model(A, target, 1e-2), jaxht.Sparse(4), solver) for A in (S.design, Z)
        )
        np.testing.assert_array_equal(packed.support.numpy(), dense.support.numpy())
        np.testing.assert_allclose(packed.x, dense.x, atol=1e-8)
        assert packed.status == dense.status


@pytest.mark.usefixtures("float64")
def test_covariates_traits_and_genes():
    G, Z, y = planted()
    n, d = Z.shape
    rng = np.random.default_rng(6)
    covariates = np.concatenate([np.ones((n, 1)), rng.normal(size=(n, 2))], axis=1)
    A = hstack([covariates, Genotypes.build(G)])
    first = jnp.arange(3 + d) < 1  # the column of ones is not centred
    S = jaxht.standardize(A, with_mean=~first)
    C = (covariates - [0, *covariates[:, 1:].mean(0)]) / [1, *covariates[:, 1:].std(0)]
    full = np.concatenate([C, Z], axis=1)
    x, r, indices = rng.normal(size=3 + d), rng.normal(size=n), jnp.array([0, 2, 3, 3 + d, 50])
    close(S.design.matvec(x), full @ x, float)
    close(S.design.rmatvec(r), full.T @ r, float, 10)
    close(S.design.columns(indices), np.pad(full, ((0, 0), (0, 1)))[:, indices].T, float)
    close(S.design.rows(jnp.array([5, n])).matvec(x), [full[5] @ x, 0], float)
    close(S.design.squared(r**2), r**2 @ full**2, float, 10)
    close(S.design.row_norms(), np.linalg.norm(full, axis=1), float)
    close(S.design.column_norms(), np.linalg.norm(full, axis=0), float)

    keep = jaxht.Sparse(7, keep=jnp.arange(3 + d) < 3)
    targets = np.stack([y, rng.normal(size=n) + Z[:, 10]], axis=1)
    genes, traits = jaxht.Groups(3, jnp.arange(d) // 5), jnp.repeat(jnp.arange(d), 2).reshape(d, 2)
    problems = [
        (lambda A: jaxht.LeastSquares(A, y + 3 + C[:, 1], mean=False), keep, (S.design, full)),
        (lambda A: jaxht.MultiResponse(A, targets, 1e-3), jaxht.Groups(4, traits), None),
        (lambda A: jaxht.LeastSquares(A, y, mean=False), genes, None),
    ]
    alone = jaxht.standardize(Genotypes.build(G)).design
    for model, constraint, designs in problems:
        packed, dense = (
            jaxht.solve(model(A), constraint, jaxht.NIHT()) for A in designs or (alone, Z)
        )
        np.testing.assert_array_equal(packed.support.numpy(), dense.support.numpy())
        np.testing.assert_allclose(packed.x, dense.x, atol=1e-6)


def test_order_of_samples_and_markers():
    G, x = calls(), np.random.default_rng(7).normal(size=D).astype(np.float32)
    rows, columns = np.random.default_rng(8).permutation(N), np.random.default_rng(9).permutation(D)
    image = Genotypes.build(G).matvec(x)
    permuted = Genotypes.build(G[rows][:, columns]).matvec(x[columns])
    np.testing.assert_allclose(permuted, image[rows], atol=1e-4)


def test_lanes_and_traced_designs():
    G, _, y = planted()
    A = jaxht.standardize(Genotypes.build(G)).design
    targets = jnp.asarray(np.stack([y, y[::-1]]), jnp.float32)
    one = [
        solve(jaxht.LeastSquares(A, t, mean=False), jaxht.Sparse(4, k_max=4), jaxht.HTP())
        for t in targets
    ]
    lanes = jax.vmap(
        lambda t: jaxht.solve(
            jaxht.LeastSquares(A, t, mean=False), jaxht.Sparse(4, k_max=4), jaxht.HTP()
        )
    )(targets)
    np.testing.assert_allclose(lanes.x, np.stack([result.x for result in one]), atol=1e-5)
    # The derivative of a solution, whose design is packed.
    dense = jaxht.design(A.columns(jnp.arange(G.shape[1])).T)
    slopes = [
        jax.grad(
            lambda y, A=A: jaxht.solve(
                jaxht.LeastSquares(A, y, mean=False), jaxht.Sparse(4, k_max=4), jaxht.HTP()
            ).x[10]
        )(targets[0])
        for A in (A, dense)
    ]
    np.testing.assert_allclose(*slopes, atol=1e-5)


def write(folder, data, n, header=(0x6C, 0x1B, 0x01)):
    """Files of PLINK by hand, byte by byte."""
    (folder / "study.bed").write_bytes(
        bytes(header) + bytes(int(byte) for row in data for byte in row)
    )
    (folder / "study.fam").write_text("".join(f"f{i} s{i} 0 0 {1 + i % 2} -9\n" for i in range(n)))
    (folder / "study.bim").write_text(
        "".join(f"1\trs{j}\t0\t{100 * j}\tA\tG\n" for j in range(len(data)))
    )
    return folder / "study.bed"


@pytest.mark.parametrize("n", [1, 4, 14, 16, 35])
def test_files_of_plink(tmp_path, n):
    data = np.random.default_rng(n).integers(
        0, 256, (21, -(-n // 4)), np.uint8
    )  # also behind the last sample
    path = write(tmp_path, data, n)
    bed = read_bed(path)
    G = decode(data, n)
    np.testing.assert_allclose(bed.design.columns(jnp.arange(21)).T, imputed(G), rtol=1e-6)
    np.testing.assert_array_equal(bed.design.words, Genotypes.build(G).words)
    np.testing.assert_array_equal(bed.design.words, Genotypes.from_bed(data, n).words)
    assert bed.samples.tolist() == [f"s{i}" for i in range(n)]
    assert bed.markers.tolist() == [f"rs{j}" for j in range(21)]
    assert set(bed.counted) == {"A"}
    path.with_suffix(".bim").write_text("1 rs0 0 100")
    with pytest.raises(ValueError, match=r"row 1 of .*study\.bim has 4 columns"):
        read_bed(path)
    write(tmp_path, data, n)
    assert read_bed(str(path.with_suffix(""))).design.shape == (n, 21)


@pytest.mark.skipif(importlib.util.find_spec("bed_reader") is None, reason="needs bed-reader")
def test_bed_reader_reads_the_same(tmp_path):
    from bed_reader import open_bed

    data = np.random.default_rng(0).integers(0, 256, (40, 6), np.uint8)
    path = write(tmp_path, data, 23)
    with open_bed(path, count_A1=True) as file:
        theirs = file.read(dtype="int8")
        assert file.iid.tolist() == read_bed(path).samples.tolist()
    np.testing.assert_array_equal(np.where(theirs < 0, -1, theirs), decode(data, 23))
    packed = Genotypes.build(theirs, missing=-127)
    np.testing.assert_array_equal(packed.words, read_bed(path).design.words)


def test_what_is_wrong_is_said(tmp_path):
    G = calls()
    for build, message in [
        (lambda: Genotypes.build(G.astype(float)), "calls must be integers"),
        (lambda: Genotypes.build(G + 1), "calls must be 0, 1, 2 or -1 where missing; got 3 at"),
        (lambda: Genotypes.build(G, missing=2), "missing must be an int other than 0, 1 and 2"),
        (lambda: Genotypes.build(G[0]), "calls must be integers of shape"),
        (lambda: Genotypes.build(G.tolist()), r"calls must be .*np.asarray\(calls\)"),
        (lambda: Genotypes.build(G[:, :0]), "n, d >= 1"),
        (
            lambda: Genotypes.from_bed(np.zeros((3, 4), np.uint8), 30),
            r"data must be uint8 of shape \(d, 8\)",
        ),
        (lambda: Genotypes.from_bed(np.zeros((3, 8), np.int8), 30), "data must be uint8"),
        (lambda: Integers.build(G.astype(np.int16)), "array must be int8 or uint8"),
        (lambda: Integers.build(G, missing=0), "missing must be an int other than 0"),
        (lambda: hstack([]), "parts must be designs"),
        (lambda: hstack([np.ones((3, 1)), Genotypes.build(G)]), "one number of rows"),
        (
            lambda: jaxht.LeastSquares(Genotypes.build(G), np.ones(3), mean=False).prepare(),
            "y must have shape",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            build()
    data = np.zeros((3, 2), np.uint8)
    for header, rows, message in [
        ((0x6C, 0x1B, 0x00), data, "begins with 6c1b01"),
        ((0x6C, 0x1B, 0x01), data[:, :1], "has 6"),
    ]:
        path = write(tmp_path, data, 7)
        path.write_bytes(bytes(header) + rows.tobytes())
        with pytest.raises(ValueError, match=message):
            read_bed(path)
    path.with_suffix(".fam").unlink()
    with pytest.raises(FileNotFoundError):
        read_bed(path)


@pytest.mark.usefixtures("float64")
@both
@pytest.mark.parametrize(
    "dtypes", [(np.float32, np.float64), (np.float64, np.float32), (np.float32, np.int32)]
)
def test_a_product_has_the_dtype_that_holds_the_numbers_of_both(kind, dtypes):
    G, (own, other) = calls(), dtypes
    A, Z = MAKE[kind](G, own), imputed(G)
    for x, r in [
        (np.arange(D), np.arange(N)),
        (np.arange(2 * D).reshape(D, 2), np.arange(2 * N).reshape(N, 2)),
    ]:
        image, back = jax.jit(lambda A, x, r: (A.matvec(x), A.rmatvec(r)))(
            A, x.astype(other), r.astype(other)
        )
        assert image.dtype == back.dtype == jnp.result_type(own, other)
        np.testing.assert_allclose(image, Z @ x, rtol=1e-5)
        np.testing.assert_allclose(back, Z.T @ r, rtol=1e-5)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_dtype_of_designs_side_by_side_holds_that_of_each(dtype):
    G, ones = calls(), np.full((N, 1), 1 / 3, dtype)
    parts = [ones, Genotypes.build(G, dtype=np.float32), Integers.build(G, -1, dtype=np.float32)]
    A, twice = hstack(parts), hstack([*parts, np.ones((N, 1))])
    assert (
        A.dtype == (np.float64 if dtype is np.float64 else np.float32) and twice.dtype == np.float64
    )
    for B in (A, twice):
        x = np.arange(1.0, B.shape[1] + 1).astype(B.dtype)
        want = ones[:, 0] + sum(
            part.matvec(x[1:][i * D :][:D].astype(part.dtype)) for i, part in enumerate(parts[1:])
        )
        np.testing.assert_allclose(B.matvec(x), want + x[1 + 2 * D :].sum(), rtol=1e-5)
        assert B.matvec(x).dtype == B.rmatvec(np.ones(N, B.dtype)).dtype == B.dtype
    single = jaxht.LinearOperator(lambda x: x, (N, N), dtype=np.float32)
    assert hstack([single, parts[1]]).dtype == np.float32
    with pytest.raises(
        ValueError, match=r"operators must be of float64; got \['float32', 'float64'\]"
    ):
        hstack([single, np.ones((N, 1))])


def test_integers_of_a_column_beside_a_design():
    A = hstack([np.arange(N).reshape(-1, 1), Integers.build(calls(), -1)])
    assert isinstance(A.parts[0], Dense)
    assert A.dtype == jnp.float32
    assert A.shape == (N, D + 1)


@pytest.mark.parametrize("code", [-256, -254, -129, -2, 3, 255, 2**31 - 1, -(2**31)])
def test_other_codes_are_refused(code):
    """Of any integer dtype: none wraps around to a valid one; -2^31 is a NaN cast to integers."""
    G = calls().astype(np.int64)
    G[7, 2] = code
    for dtype in (np.int64, np.int32, np.uint32):
        if np.iinfo(dtype).min <= min(code, -1) and code <= np.iinfo(dtype).max:
            with pytest.raises(ValueError, match=f"got {code} at sample 7, marker 2"):
                Genotypes.build(G.astype(dtype))
    G[G == -1] = 9
    G[7, 2] = 9
    found = Genotypes.build(G, missing=np.int8(9)).words
    G[G == 9] = -1
    np.testing.assert_array_equal(found, Genotypes.build(G).words)
    assert Integers.build(G.astype(np.int8), missing=np.int8(-1)).missing == -1


def test_sums_of_millions_of_codes_do_not_wrap_around():
    codes = np.full((9_000_000, 1), 250, np.uint8)
    codes[0] = 255
    np.testing.assert_allclose(Integers.build(codes, missing=255).fill, 250, rtol=1e-6)
    np.testing.assert_allclose(
        Integers.build(-(codes // 2).astype(np.int8), missing=-127).fill, -125, rtol=1e-6
    )


def test_codes_of_missing_entries_that_the_dtype_does_not_have():
    array = np.array([[0, 255], [1, 3]], np.uint8)
    with pytest.raises(ValueError, match="missing must be of array's dtype"):
        jaxht.designs.Integers.build(array, missing=-1)


@pytest.mark.parametrize("kind", ["genotypes", "stream", "stack"])
def test_no_column_is_gathered_for_a_k_of_0(kind):
    G = Genotypes.build(np.random.default_rng(0).integers(0, 3, (6, 4)))
    ones = np.ones((6, 1), np.float32)
    make = {
        "genotypes": lambda: G,
        "stream": lambda: jaxht.stream(ones),
        "stack": lambda: hstack([ones, G]),
    }
    f = jaxht.LeastSquares(make[kind](), np.ones(6, np.float32))
    for solver in (None, jaxht.HTP()):
        result = jaxht.solve(f, jaxht.Sparse(0), solver)
        assert result.succeeded and not np.any(result.x)
