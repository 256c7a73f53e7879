"""Operators made of others against the matrices that they stand for."""

import collections
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxht
from jaxht import operators
from tests.util import quick, solve

pytestmark = pytest.mark.usefixtures("all_quickly")

RNG = np.random.default_rng(0)
N, D = 5, 16
ROWS = np.array([0, 3, 5, 11, 4])


def draw(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def make(kernel, phases, M, c):
    """Operators of each kind: complex, real, of known and unknown norms, orthonormal, diagonal,
    dense, sparse."""
    S = jaxht.design(scipy.sparse.csr_array(np.where(PATTERN, draw(N, D), 0)))
    return {
        "F": operators.partial_dft(D, ROWS),
        "W": operators.wavelet(D, "db2", 2),
        "C": operators.circulant(kernel),
        "P": operators.diagonal(jnp.exp(1j * phases)),
        "I": operators.identity(D),
        "U": jaxht.LinearOperator(jnp.cumsum, (D, D), check=False),
        "M": jaxht.design(M),
        "S": S,
        "c": c,
    }


PATTERN = RNG.random((N, D)) < 0.4
PARTS = make(draw(D), draw(D), jnp.asarray(draw(N, D)), np.float32(-3.0))


# (of operators; of matrices, where these are not the same; whether the norms are known)
CASES = {
    "F @ W": (lambda p: p["F"] @ p["W"], None, False),
    "F @ P": (lambda p: p["F"] @ p["P"], None, True),
    "W @ U": (lambda p: p["W"] @ p["U"], None, False),
    "W @ C": (lambda p: p["W"] @ p["C"], None, True),
    "M @ W": (lambda p: p["M"] @ p["W"], None, False),
    "S @ P": (lambda p: p["S"] @ p["P"], None, True),
    "F @ P @ W @ C": (lambda p: p["F"] @ p["P"] @ p["W"] @ p["C"], None, False),
    "c F": (lambda p: p["c"] * p["F"], None, True),
    "C 2i": (lambda p: p["C"] * 2j, None, True),
    "-U / c": (lambda p: -p["U"] / p["c"], None, False),
    "F + M": (lambda p: p["F"] + p["M"], None, False),
    "M - F": (lambda p: p["M"] - p["F"], None, False),
    "C + c I": (lambda p: p["C"] + p["c"] * p["I"], None, False),
    "W - P": (lambda p: p["W"] - p["P"], None, False),
    "(F @ C)^H": (lambda p: (p["F"] @ p["C"]).H, lambda p: (p["F"] @ p["C"]).conj().T, False),
    "F^T": (lambda p: p["F"].T, None, False),
    "U^T": (lambda p: p["U"].T, None, False),
    "W^H": (lambda p: p["W"].H, lambda p: p["W"].T, True),
    "F above M": (
        lambda p: operators.vstack([p["F"], p["M"], p["C"]]),
        lambda p: np.vstack([p["F"], p["M"], p["C"]]),
        True,
    ),
    "U above C": (
        lambda p: operators.vstack([p["U"], p["C"]]),
        lambda p: np.vstack([p["U"], p["C"]]),
        False,
    ),
    "F beside S": (
        lambda p: operators.hstack([p["F"], p["S"]]),
        lambda p: np.hstack([p["F"], p["S"]]),
        True,
    ),
    "U beside I": (
        lambda p: operators.hstack([p["U"], p["I"]]),
        lambda p: np.hstack([p["U"], p["I"]]),
        False,
    ),
}


@quick
def materialise(A):
    return A.matvec(jnp.eye(A.shape[1], dtype=A.dtype))


MATRICES = {}


def matrices():
    if not MATRICES:
        MATRICES.update({name: np.asarray(materialise(PARTS[name])) for name in "FWCPIUMS"})
        MATRICES["c"] = PARTS["c"]
    return MATRICES


@quick
def products(A, xs, rs):
    single = (A.matvec(xs[0]), A.rmatvec(rs[0]))
    return single, (jax.vmap(A.matvec)(xs), jax.vmap(A.rmatvec)(rs)), A.column_norms()


@pytest.mark.parametrize("name", CASES)
def test_operators_are_their_matrices(name):
    of_operators, of_matrices, has_norms = CASES[name]
    A = of_operators(PARTS)
    matrix = (of_matrices or of_operators)(matrices())
    assert A.shape == matrix.shape and A.dtype == matrix.dtype
    n, d = A.shape
    is_complex = np.iscomplexobj(matrix)
    xs, rs = (
        draw(3, size) + 1j * draw(3, size) if is_complex else draw(3, size) for size in (d, n)
    )
    single, lanes, norms = jax.tree.map(np.asarray, products(A, xs, rs))
    images, adjoints = lanes
    assert images.dtype == adjoints.dtype == A.dtype and norms.dtype == np.float32
    np.testing.assert_allclose(images, xs @ matrix.T, atol=2e-4)
    np.testing.assert_allclose(adjoints, rs @ matrix.conj(), atol=2e-4)
    np.testing.assert_allclose(images[0], single[0], atol=1e-5)
    np.testing.assert_allclose(adjoints[0], single[1], atol=1e-5)
    np.testing.assert_allclose(np.vdot(rs[1], images[1]), np.vdot(adjoints[1], xs[1]), rtol=1e-4)
    assert A.has_column_norms == has_norms
    np.testing.assert_allclose(norms, np.linalg.norm(matrix, axis=0), rtol=2e-5)


def test_an_operator_times_arrays():
    A, matrix = PARTS["C"], matrices()["C"]
    x, X = draw(D), draw(D, 2)
    np.testing.assert_allclose(A @ x, matrix @ x, atol=1e-5)
    np.testing.assert_allclose(A @ jnp.asarray(X), matrix @ X, atol=1e-5)


def test_dtypes(dtype):
    """Those of JAX's promotion; integers count as floats, and real vectors as complex ones."""
    whole = jaxht.design(np.arange(6).reshape(2, 3))
    difference = operators.partial_dct(3, ROWS[:2] // 2) - whole
    assert difference.dtype == dtype and (2 * difference).dtype == dtype
    A = 1j * difference
    assert A.dtype == np.result_type(dtype, np.complex64)
    derived = jaxht.LinearOperator(lambda x, A: A @ x, A.shape, (A,), dtype=A.dtype)
    image = derived.H @ np.array([1, -1], dtype)
    np.testing.assert_allclose(image, A.H @ np.array([1, -1], A.dtype), atol=1e-5)
    np.testing.assert_allclose((A @ np.eye(3, dtype=dtype)).imag, difference @ np.eye(3), atol=1e-5)


def test_other_numbers_need_no_compile():
    traced = []

    @quick
    def run(A, x):
        traced.append(A)
        return A @ x

    x = draw(D)
    for c in (2, 3.5, jnp.float32(4)):
        p = make(draw(D), draw(D), jnp.asarray(draw(N, D)), c)
        A = operators.vstack([c * (p["F"] @ p["P"] @ p["C"]), p["M"] @ p["W"].H - p["M"]])
        image = run(A, x)
    np.testing.assert_allclose(image, materialise(A) @ x, atol=2e-4)
    assert len(traced) == 1


def test_lanes_of_operators():
    """Under vmap of what operators are made of."""

    def run(kernel, c, x):
        return (c * operators.circulant(kernel) @ PARTS["W"]) @ x

    kernels, cs, xs = draw(3, D), draw(3), draw(3, D)
    lanes = quick(jax.vmap(run))(kernels, cs, xs)
    loop = [run(*lane) for lane in zip(kernels, cs, xs, strict=True)]
    np.testing.assert_allclose(lanes, loop, atol=1e-5)
    slope = jax.grad(lambda c: jnp.sum(run(kernels[0], c, xs[0])))(2.0)
    np.testing.assert_allclose(slope, jnp.sum(lanes[0]) / cs[0], rtol=1e-4)


def test_operators_of_lineax():
    """As docs/coming_from.md has it: the adjoint is derived, and other numbers need no compile."""
    lineax = pytest.importorskip("lineax")
    traced = collections.deque()  # no list, whose entries would be compared

    def multiply(x, op):
        traced.append(op)
        return op.mv(x)

    @quick
    def both(A, x, r):
        return A @ x, A.H @ r

    x, r = draw(D) + 1j * draw(D), draw(N) + 1j * draw(N)
    for _ in range(2):
        matrix = draw(N, D) + 1j * draw(N, D)
        op = lineax.MatrixLinearOperator(jnp.asarray(matrix)) @ lineax.DiagonalLinearOperator(
            jnp.asarray(draw(D) + 0j)
        )
        shape = (op.out_size(), op.in_size())
        A = jaxht.LinearOperator(multiply, shape, (op,), dtype=np.complex64, check=False)
        image, adjoint = both(A @ PARTS["W"], x, r)
        whole = np.asarray(op.as_matrix()) @ matrices()["W"]
        np.testing.assert_allclose(image, whole @ x, atol=1e-4)
        np.testing.assert_allclose(adjoint, whole.conj().T @ r, atol=1e-4)
    assert len(traced) == 2  # the product, and for its adjoint


def check_example_of(package):
    """What the example of docs/coming_from.md leaves; it finds a solution."""
    pytest.importorskip(package)
    page = pathlib.Path(__file__).parents[1] / "docs" / "coming_from.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if f"import {package}" in block)
    scope = {}
    exec(code, scope)
    A, y = scope["A"], scope["y"]
    assert np.linalg.norm(A @ scope["result"].x - y) < 1e-4 * np.linalg.norm(y)
    return scope


def test_operators_of_pylops():
    """As docs/coming_from.md has it: products are those of the matrix."""
    scope = check_example_of("pylops")
    whole = scope["blur"].todense() @ materialise(operators.wavelet(64, "haar"))
    x = draw(64)
    np.testing.assert_allclose(scope["A"] @ x, whole @ x, atol=1e-5)
    np.testing.assert_allclose(scope["A"].H @ x, whole.T @ x, atol=1e-5)


def test_operators_of_scico():
    """As docs/coming_from.md has it: the derived adjoint is theirs."""
    scope = check_example_of("scico")
    r = draw(16, 16)
    expected = np.ravel(scope["H"].adj(r))
    np.testing.assert_allclose(scope["A"].H @ r.ravel(), expected, atol=1e-5)


def test_spikes_and_cosines():
    """A dictionary of two bases, with the solution of the same dictionary as an array."""
    d = 64
    A = operators.hstack([operators.identity(d), operators.partial_dct(d, np.arange(d)).H])
    signal = np.zeros(2 * d, np.float32)
    signal[[5, 40, 70, 100]] = [2.0, -1.5, 3.0, 2.0]
    f = jaxht.LeastSquares(A, A @ signal, mean=False)
    result = solve(f, jaxht.Sparse(4, k_max=4), jaxht.CGIHT())
    np.testing.assert_allclose(result.x, signal, atol=1e-3)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda p: p["F"] @ p["F"], ValueError, r"must have 16 rows, .* \(5, 16\) and \(5, 16\)"),
        (lambda p: p["F"] + p["C"], ValueError, r"of a sum must have one shape; got \(5, 16\)"),
        (lambda p: draw(D) * p["C"], ValueError, r"c must be a scalar; got shape \(16,\)"),
        (lambda p: p["C"] @ draw(3), ValueError, r"x must have shape \(16,\) or .*; got \(3,\)"),
        (lambda p: p["C"] @ [1.0], ValueError, "x must be an array, or a design; got list"),
        (lambda p: draw(D, D) @ p["C"], TypeError, "unsupported operand"),
        (lambda p: p["C"] + 1, TypeError, "unsupported operand"),
        (lambda p: p["C"] * p["W"], TypeError, "unsupported operand"),
        (lambda p: operators.vstack([]), ValueError, "parts must be designs of one number of col"),
        (lambda p: operators.hstack([p["F"], p["C"]]), ValueError, "of one number of rows; got"),
        (lambda p: operators.diagonal(draw(2, 2)), ValueError, r"entries must be a vector; got"),
    ],
)
def test_errors_name_what_is_needed(call, error, words):
    with pytest.raises(error, match=words):
        call(PARTS)


def test_designs_side_by_side_are_as_cheap_as_the_dearest():
    operator = jaxht.LinearOperator(lambda x: x[:3], (3, 4), check=False)
    both = jaxht.designs.hstack([jnp.ones((3, 1)), operator])
    assert not both.has_column_norms and not both.has_cheap_columns and both.in_memory
    dense = jaxht.designs.hstack([jnp.ones((3, 1)), jnp.eye(3)])
    assert dense.has_column_norms and dense.has_cheap_columns


def test_parts_of_half_precision_have_norms_in_single():
    """Their squares overflow in float16."""
    M = (200 * np.random.default_rng(0).normal(size=(8, 5))).astype(np.float16)
    wide = M.astype(np.float32)
    for A in (
        operators.vstack([M, operators.identity(5)]),
        operators.wavelet(8, "haar") @ jaxht.design(M),
    ):
        expected = np.linalg.norm(np.asarray(A @ jnp.eye(5)), axis=0)
        np.testing.assert_allclose(A.norms, expected, rtol=1e-3)
    for found, expected in [
        (jaxht.design(M).row_norms(), np.linalg.norm(wide, axis=1)),
        (jaxht.design(M).squared(jnp.ones(8)), np.sum(wide**2, axis=0)),
    ]:
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_products_of_integers():
    A = jaxht.LinearOperator(lambda x, s: s * (x[1:] - x[:-1]), (2, 3), (2.0,))
    assert A.matvec(jnp.array([1, 0, 3])).tolist() == [-2, 6]
    assert A.rmatvec(jnp.array([1, 0])).tolist() == [-2, 2, 0]
