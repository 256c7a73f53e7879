"""Sparse designs against dense NumPy arrays."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.experimental import sparse as jax_sparse

import jaxht
from jaxht._dataclass import cast_numbers
from jaxht.designs.sparse import SparseMatrix
from tests.util import precision


def random(n, d, density=0.2, seed=0):
    """A dense array with zeros."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, d)) < density, rng.standard_normal((n, d)), 0)


def huge(n, d):
    """Few entries, but for one full row and one full column; the first and last row and column are
    empty."""
    A = random(n, d, 0.02)
    A[n // 2], A[:, d // 3] = 1.5, -0.5
    A[[0, -1]], A[:, [0, -1]] = 0, 0
    return A


DENSE = {
    "random": random(13, 21),
    "huge": huge(60, 90),
    "one row": random(1, 30, 0.5),
    "one column": random(30, 1, 0.5),
    "no entries": np.zeros((4, 3)),
    "one by one": np.ones((1, 1)),
}


def tolerance(dtype):
    return {"rtol": 0, "atol": 400 * np.finfo(dtype).eps}


matvec = jax.jit(SparseMatrix.matvec)


@jax.jit
def everything(A, x, r, X, R, w, indices):
    """All that a design can do."""
    products = A.matvec(x), A.rmatvec(r), A.matvec(X), A.rmatvec(R)
    return (
        *products,
        A.squared(w),
        A.squared(jnp.ones_like(w)),
        A.column_norms(),
        A.columns(indices),
    )


@pytest.mark.parametrize("name", DENSE)
def test_against_dense(name):
    check_against_dense(DENSE[name].astype(np.float32))


def test_against_dense_in_double_precision():
    with precision("float64"):
        check_against_dense(DENSE["huge"])


def test_complex_against_dense():
    dense = (DENSE["huge"] * (1 + 0.5j) + DENSE["huge"][::-1] * 2j).astype(np.complex64)
    check_against_dense(dense)
    with precision("float64"):
        check_against_dense(dense.astype(complex))


def check_against_dense(dense):
    (n, d), dtype = dense.shape, dense.dtype
    A = SparseMatrix.build(scipy.sparse.csr_array(dense))
    assert (A.shape, A.dtype, A.nnz) == ((n, d), dtype, np.count_nonzero(dense))
    rng = np.random.default_rng(1)

    def draw(*shape):
        numbers = rng.standard_normal(shape)
        if np.iscomplexobj(dense):
            numbers = numbers + 1j * rng.standard_normal(shape)
        return numbers.astype(dtype)

    x, r, X, R = draw(d), draw(n), draw(d, 3), draw(n, 3)
    w = rng.standard_normal(n).astype(dense.real.dtype)
    indices = np.array([d - 1, 0, d, d] if d > 1 else [0, d])
    padded = np.pad(dense, ((0, 0), (0, 1)))
    adjoint, squares = dense.conj().T, np.abs(dense) ** 2
    expected = [dense @ x, adjoint @ r, dense @ X, adjoint @ R, w @ squares, squares.sum(0)]
    expected += [np.sqrt(squares.sum(0)), padded.T[indices]]
    for ours, theirs in zip(everything(A, x, r, X, R, w, indices), expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, **tolerance(dtype))


def test_formats_agree_bit_by_bit():
    dense = random(13, 21).astype(np.float32)
    coordinates = scipy.sparse.coo_matrix(dense)
    stored = coordinates.nnz
    order = np.random.default_rng(2).permutation(stored)
    places = np.stack([coordinates.row, coordinates.col], axis=1)[order]
    values = coordinates.data[order]
    twice = np.concatenate([values / 2, values / 2]), np.concatenate([places, places])
    # JAX pads with places out of range.
    padded = (
        np.append(values, np.ones(5, np.float32)),
        np.append(places, np.full((5, 2), [13, 21]), axis=0),
    )
    rows = scipy.sparse.csr_matrix(dense)
    padded_rows = (
        np.append(rows.data, np.ones(5, np.float32)),
        np.append(rows.indices, [21] * 5),
        rows.indptr,
    )
    matrices = [rows.asformat(name) for name in ("csc", "coo", "lil", "dok", "bsr", "dia")]
    matrices += [
        scipy.sparse.csc_array(dense),
        scipy.sparse.coo_matrix((twice[0], twice[1].T), (13, 21)),
    ]
    matrices += [
        jax_sparse.BCOO(parts, shape=(13, 21)) for parts in ((values, places), twice, padded)
    ]
    matrices += [
        jax_sparse.BCSR(parts, shape=(13, 21))
        for parts in ((rows.data, rows.indices, rows.indptr), padded_rows)
    ]
    expected = jax.tree.leaves(SparseMatrix.build(scipy.sparse.csr_matrix(dense)))
    for matrix in matrices:
        ours = SparseMatrix.build(matrix)
        assert ours.nnz == stored
        for one, other in zip(jax.tree.leaves(ours), expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_zeros_are_kept_and_the_source_is_left_alone():
    # Row 0 holds a duplicate, and row 1 a zero.
    A = scipy.sparse.csr_matrix(([1.0, 2.0, 0.0], [2, 2, 0], [0, 2, 3]), (2, 3))
    ours = SparseMatrix.build(A)
    assert ours.nnz == 2 and A.nnz == 3
    np.testing.assert_array_equal(matvec(ours, jnp.eye(3)), [[0, 0, 3], [0, 0, 0]])


def test_integers_and_booleans_become_floats():
    for kind in (np.int64, np.bool_):
        ours = SparseMatrix.build(scipy.sparse.csr_matrix(np.eye(3, dtype=kind)))
        assert ours.dtype == jnp.result_type(float)


def test_casts_values_alone():
    with precision("float64"):
        cast = cast_numbers(SparseMatrix.build(scipy.sparse.csr_matrix(np.eye(3))), jnp.float32)
        for part in (cast.by_row, cast.by_column):
            assert [leaf.dtype for leaf in jax.tree.leaves(part)] == [
                jnp.float32,
                jnp.int32,
                jnp.int32,
                jnp.int32,
            ]


def test_each_entry_is_stored_once_each_way_with_little_padding():
    dense = random(400, 300, 0.3)
    A = SparseMatrix.build(scipy.sparse.csr_matrix(dense))
    for part in (A.by_row, A.by_column):
        assert np.count_nonzero(part.values) == A.nnz
        assert part.values.size < 1.1 * A.nnz
        assert np.all(np.diff(part.rows) >= 0)
    # Rows of one entry are not padded at all.
    assert SparseMatrix.build(scipy.sparse.eye(50)).by_row.values.size == 50


def test_folds_share_a_program():
    """Matrices of one shape and of nearly as many entries are stored in the same shapes,
    exactly."""
    A = scipy.sparse.random(1000, 300, 0.05, format="csr", random_state=0, dtype=np.float32)
    x, r = np.ones(300, np.float32), np.ones(800, np.float32)
    traces = []

    @jax.jit
    def products(design, x, r):
        traces.append(design)
        return design.matvec(x), design.rmatvec(r)

    sizes = set()
    for fold in range(5):
        rows = np.arange(1000) % 5 != fold
        sizes.add(A[rows].nnz)
        image, adjoint = products(jaxht.design(A[rows]), x, r)
        np.testing.assert_allclose(image, A[rows] @ x, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(adjoint, A[rows].T @ r, rtol=1e-5, atol=1e-5)
    assert len(sizes) > 2 and len(traces) <= 2


def test_padding_reads_no_nan():
    dense = random(13, 21)
    dense[3] = 0
    A = SparseMatrix.build(scipy.sparse.csr_matrix(dense))
    preds = matvec(A, np.where(np.eye(21, dtype=np.float32) > 0, np.nan, 0))
    np.testing.assert_array_equal(np.isnan(preds), dense != 0)


def test_lanes():
    dense, dtype = random(13, 21).astype(np.float32), np.float32
    A = SparseMatrix.build(scipy.sparse.csr_matrix(dense))
    rng = np.random.default_rng(3)
    X, R = rng.standard_normal((5, 21)).astype(dtype), rng.standard_normal((5, 13)).astype(dtype)
    doubled = dataclasses.replace(
        A, by_row=dataclasses.replace(A.by_row, values=A.by_row.values * 2)
    )
    indices = np.array([[1, 20, 21], [4, 2, 0]])

    def products(A, x, r):
        return A.matvec(x), A.rmatvec(r)

    @jax.jit
    def lanes(A, many, X, R):
        shared = jax.vmap(products, in_axes=(None, 0, 0))
        nested = jax.vmap(shared, in_axes=(None, 0, None))(A, jnp.stack([X, 3 * X]), R)
        gradients = jax.vmap(jax.grad(lambda x, r: jnp.vdot(A.matvec(x), r)))(X, R)
        return (
            shared(A, X, R),
            nested,
            jax.vmap(products)(many, X, R),
            gradients,
            jax.vmap(A.columns)(indices),
        )

    shared, nested, own, gradients, columns = lanes(
        A, jax.tree.map(lambda *leaves: jnp.stack(leaves), A, *[doubled] * 4), X, R
    )
    images, backwards = X @ dense.T, R @ dense
    factors = np.array([1, 2, 2, 2, 2], dtype)[:, None]
    for ours, theirs in [
        (shared[0], images),
        (shared[1], backwards),
        (nested[0], np.stack([images, 3 * images])),
        (nested[1], np.stack([backwards, backwards])),
        (own[0], factors * images),
        (own[1], backwards),
        (gradients, backwards),
        (columns, np.pad(dense, ((0, 0), (0, 1))).T[indices]),
    ]:
        np.testing.assert_allclose(ours, theirs, **tolerance(dtype))


def test_derivatives_by_vectors():
    dense, dtype = random(13, 21).astype(np.float32), np.float32
    A = SparseMatrix.build(scipy.sparse.csr_matrix(dense))
    rng = np.random.default_rng(4)
    x, dx = rng.standard_normal((2, 21)).astype(dtype)
    r, dr = rng.standard_normal((2, 13)).astype(dtype)

    @jax.jit
    def derivatives(x, dx, r, dr):
        forward = jax.jvp(A.matvec, (x,), (dx,))[1], jax.jvp(A.rmatvec, (r,), (dr,))[1]
        backward = jax.vjp(A.matvec, x)[1](r)[0], jax.vjp(A.rmatvec, r)[1](x)[0]
        return forward, backward, (jnp.vdot(A.matvec(x), r), jnp.vdot(x, A.rmatvec(r)))

    forward, backward, inner = derivatives(x, dx, r, dr)
    for ours, theirs in [
        (forward[0], dense @ dx),
        (forward[1], dense.T @ dr),
        (backward[0], dense.T @ r),
        (backward[1], dense @ x),
        (inner[0], inner[1]),
    ]:
        np.testing.assert_allclose(ours, theirs, **tolerance(dtype))


def test_derivatives_by_values():
    dense, dtype = random(13, 21).astype(np.float32), np.float32
    A = SparseMatrix.build(scipy.sparse.csr_matrix(dense))
    rng = np.random.default_rng(5)
    x, r = rng.standard_normal(21).astype(dtype), rng.standard_normal(13).astype(dtype)
    halves = A.by_row, A.by_column

    @jax.jit
    @jax.grad
    def gradient(parts, x, r):
        by_row, by_column = map(
            lambda part, values: dataclasses.replace(part, values=values), halves, parts
        )
        own = SparseMatrix(by_row, by_column, A.nnz)
        return jnp.vdot(own.matvec(x), r) + 2 * jnp.vdot(own.rmatvec(r), x)

    ours = gradient([part.values for part in halves], x, r)
    outer = np.outer(r, x)
    for part, found, expected in zip(halves, ours, (outer, 2 * outer.T), strict=True):
        # The padding, beyond the last column, has no gradient.
        extended = np.pad(expected, ((0, 0), (0, 1)))
        np.testing.assert_allclose(
            found, extended[np.asarray(part.rows)[:, None], part.indices], **tolerance(dtype)
        )


@pytest.mark.parametrize(
    ("A", "why"),
    [
        (np.eye(3), "ndarray"),
        (3.0, "float"),
        (jax_sparse.BCOO.fromdense(jnp.eye(3, dtype=jnp.bfloat16)), "got dtype bfloat16"),
        (scipy.sparse.coo_array((np.ones(1), (np.zeros(1, int),)), shape=(3,)), "shape"),
        (scipy.sparse.coo_matrix((2**31, 3)), "2\\^31"),
        (jax_sparse.BCOO.fromdense(np.ones((2, 3, 3)), n_batch=1), "batch"),
        (jax_sparse.BCOO.fromdense(np.ones((3, 3)), n_dense=1), "dense dim"),
    ],
)
def test_invalid_matrices_are_refused(A, why):
    with pytest.raises(ValueError, match=f"^A must .*{why}"):
        SparseMatrix.build(A)


def test_design_wraps_it():
    A = jaxht.design(scipy.sparse.csr_matrix(np.eye(3)))
    assert isinstance(A, SparseMatrix)
    assert jaxht.design(A) is A


def test_rows_are_complex_where_the_matrix_is():
    rng = np.random.default_rng(0)
    M = (rng.normal(size=(6, 5)) * (rng.random((6, 5)) < 0.6) * (1 + 2j)).astype(np.complex64)
    rows = jaxht.design(scipy.sparse.csr_array(M)).rows(jnp.array([0, 3]))
    x, r = jnp.arange(1, 6, dtype=jnp.float32), jnp.array([1, 2], jnp.float32)
    np.testing.assert_allclose(rows.matvec(x), M[[0, 3]] @ x, rtol=1e-5)
    np.testing.assert_allclose(rows.rmatvec(r), M[[0, 3]].conj().T @ r, rtol=1e-5)


def test_rows_do_not_read_entries_that_they_do_not_have():
    M = np.array([[1, 0, 0], [0, 2, 0], [3, 3, 0]], np.float32)
    rows = jaxht.design(scipy.sparse.csr_array(M)).rows(jnp.arange(3))
    np.testing.assert_array_equal(rows.matvec(jnp.array([1, 1, jnp.nan])), [1, 2, 6])


def test_numbers_of_more_than_64_bits_are_refused():
    with pytest.raises(ValueError, match="A must be float32, float64"):
        jaxht.design(scipy.sparse.csr_array(np.eye(2, dtype=np.longdouble)))


def test_a_matrix_without_entries():
    A = scipy.sparse.csr_array((6, 4), dtype=np.float32)
    rows = jaxht.design(A).rows(jnp.array([0, 5, 6]))
    assert rows.matvec(jnp.ones(4)).tolist() == [0, 0, 0]
    f = jaxht.LeastSquares(A, np.ones(6, np.float32))
    solver = jaxht.SGHT(step_size=0.1)
    result = jaxht.solve(f, jaxht.Sparse(1), solver, key=jax.random.key(0))
    assert result.succeeded and not np.any(result.x)
