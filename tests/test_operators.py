"""Operators of :mod:`jaxht.operators` against matrices of SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
import scipy.linalg

import jaxht
from jaxht import operators
from tests.util import x64

pytestmark = pytest.mark.usefixtures("all_quickly")

RNG = np.random.default_rng(0)


def draw(*shape, is_complex=True):
    numbers = RNG.normal(size=shape)
    numbers = numbers + 1j * RNG.normal(size=shape) if is_complex else numbers
    return numbers.astype(np.complex64 if is_complex else np.float32)


def dct_matrix(d):
    return scipy.fft.dct(np.eye(d), axis=0, norm="ortho")


ROWS = np.array([0, 3, 5, 11, 4])
KERNEL = draw(12, is_complex=False)
ABOVE = draw(7, is_complex=False)
COLUMN, ROW = draw(4), draw(9)
FREQUENCIES = RNG.uniform(-9, 9, size=(6, 2)).astype(np.float32)


def exponentials(frequencies, *lengths):
    """The matrix of the transform at frequencies (n, axes), entry by entry."""
    grid = np.stack([axis.ravel() for axis in np.indices(lengths)])
    return np.exp(-1j * (np.asarray(frequencies, float) @ grid)) / len(frequencies) ** 0.5


CASES = {
    "nonuniform dft": (
        operators.nonuniform_dft(13, FREQUENCIES[:, 0]),
        exponentials(FREQUENCIES[:, :1], 13),
    ),
    "nonuniform dft of an image": (
        operators.nonuniform_dft((5, 6), FREQUENCIES),
        exponentials(FREQUENCIES, 5, 6),
    ),
    "dft": (
        operators.partial_dft(12, ROWS),
        (12 / 5) ** 0.5 * scipy.linalg.dft(12, scale="sqrtn")[ROWS],
    ),
    "dft of an image": (
        operators.partial_dft((3, 4), ROWS),
        (12 / 5) ** 0.5 * np.kron(scipy.linalg.dft(3, "sqrtn"), scipy.linalg.dft(4, "sqrtn"))[ROWS],
    ),
    "dct": (operators.partial_dct(12, ROWS), (12 / 5) ** 0.5 * dct_matrix(12)[ROWS]),
    "dct of an odd length": (
        operators.partial_dct(13, ROWS, dtype=np.complex64),
        (13 / 5) ** 0.5 * dct_matrix(13)[ROWS],
    ),
    "dct of a volume": (
        operators.partial_dct((2, 3, 2), ROWS),
        (12 / 5) ** 0.5 * np.kron(np.kron(dct_matrix(2), dct_matrix(3)), dct_matrix(2))[ROWS],
    ),
    "hadamard": (
        operators.partial_hadamard(16, ROWS),
        scipy.linalg.hadamard(16)[ROWS] / 5**0.5,
    ),
    "circulant": (operators.circulant(KERNEL), scipy.linalg.circulant(KERNEL)),
    "sampled circulant": (
        operators.circulant(KERNEL + 1j * KERNEL[::-1], ROWS),
        scipy.linalg.circulant(KERNEL + 1j * KERNEL[::-1])[ROWS],
    ),
    "tall toeplitz": (
        operators.toeplitz(KERNEL, ABOVE),
        scipy.linalg.toeplitz(KERNEL, ABOVE),
    ),
    "wide toeplitz": (operators.toeplitz(COLUMN, ROW), scipy.linalg.toeplitz(COLUMN, ROW)),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_are_their_matrices(name):
    A, matrix = CASES[name]
    n, d = A.shape
    assert matrix.shape == (n, d)
    is_complex = jnp.issubdtype(A.dtype, jnp.complexfloating)
    xs = draw(3, d, is_complex=is_complex)
    rs = draw(n, is_complex=is_complex)
    np.testing.assert_allclose(jax.vmap(A.matvec)(xs), xs @ matrix.T, atol=3e-5)
    adjoint = A.rmatvec(rs)
    assert adjoint.dtype == A.dtype
    np.testing.assert_allclose(adjoint, matrix.conj().T @ rs, atol=3e-5)
    np.testing.assert_allclose(A.norms, np.linalg.norm(matrix, axis=0), atol=3e-6)


def test_equal_operators_share_a_compile():
    first = operators.partial_dft(12, jnp.asarray(ROWS))
    second = operators.partial_dft(12, jnp.asarray(ROWS) // 2)
    assert jax.tree.structure(first) == jax.tree.structure(second)


def test_a_signal_is_recovered_from_some_of_its_fourier_coefficients():
    d, k = 256, 6
    rows = RNG.choice(d, 60, replace=False)
    A = operators.partial_dft(d, rows)
    signal = np.zeros(d, np.complex64)
    signal[RNG.choice(d, k, replace=False)] = draw(k) + 1
    result = jaxht.solve(jaxht.LeastSquares(A, A.matvec(signal)), jaxht.Sparse(k), jaxht.HTP())
    np.testing.assert_allclose(result.x, signal, atol=1e-4)


@pytest.mark.parametrize("lengths", [(64,), (1,), (12, 9), (3, 4, 5)])
def test_the_nonuniform_dft_has_the_precision_of_its_numbers(lengths):
    with x64():
        frequencies = RNG.uniform(-np.pi, np.pi, size=(30, len(lengths)))
        A = operators.nonuniform_dft(lengths, jnp.asarray(frequencies))
        matrix = exponentials(frequencies, *lengths)
        x = draw(A.shape[1]).astype(complex)
        image = matrix @ x
        difference = np.linalg.norm(A.matvec(jnp.asarray(x)) - image)
        assert difference < 1e-11 * np.linalg.norm(image)


def test_the_nonuniform_dft_at_the_frequencies_of_the_grid_is_the_dft():
    A = operators.nonuniform_dft(12, 2 * np.pi * ROWS / 12)
    x = draw(12)
    np.testing.assert_allclose(A.matvec(x), operators.partial_dft(12, ROWS).matvec(x), atol=3e-5)


def test_lanes_of_the_nonuniform_dft_have_frequencies_of_their_own():
    xs = draw(6, 13)

    def size(x, frequency):
        A = operators.nonuniform_dft(13, frequency[None])
        return jnp.sum(jnp.abs(A.matvec(x)) ** 2)

    frequencies = jnp.asarray(FREQUENCIES[:, 0])
    gradients = jax.vmap(jax.grad(size))(xs, frequencies)
    for x, frequency, gradient in zip(xs, FREQUENCIES[:, :1], gradients, strict=True):
        matrix = exponentials(frequency[None], 13)
        expected = 2 * (matrix.conj().T @ matrix @ x).conj()
        np.testing.assert_allclose(gradient, expected, atol=1e-3)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: operators.partial_dft(12, ROWS + 1), r"rows must lie in \[0, 12\); got 1 to 12"),
        (lambda: operators.partial_dct(12, ROWS / 2), "rows must be a vector of integers"),
        (lambda: operators.partial_dct((3, 0), ROWS), "shape must be an int or a tuple of ints"),
        (lambda: operators.partial_hadamard(12, ROWS), "d must be a power of 2; got 12"),
        (
            lambda: operators.nonuniform_dft((3, 4), FREQUENCIES[:, 0]),
            r"frequencies must have shape \(n, 2\); got \(6,\)",
        ),
        (lambda: operators.nonuniform_dft(3, draw(4)), "frequencies must be real; got complex64"),
        (
            lambda: operators.nonuniform_dft(3, KERNEL, dtype=float),
            "dtype must be complex64 or complex128; got float32",
        ),
        (lambda: operators.circulant(np.eye(3)), r"kernel must be a vector; got shape \(3, 3\)"),
        (lambda: operators.toeplitz([1.0], ROW), "column must be a vector"),
    ],
)
def test_errors_name_what_is_needed(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(("n", "d"), [(1, 5), (2, 6), (3, 10), (4, 4), (6, 3)])
def test_norms_of_a_toeplitz_matrix_of_any_shape(n, d):
    rng = np.random.default_rng(0)
    column = 10.0 ** rng.integers(-6, 6, n)
    row = 10.0 ** rng.integers(-6, 6, d)
    A = jaxht.operators.toeplitz(jnp.float32(column), jnp.float32(row))
    expected = np.linalg.norm(scipy.linalg.toeplitz(column, row), axis=0)
    np.testing.assert_allclose(A.norms, expected, rtol=1e-5)


@pytest.mark.parametrize("d", [2, 3, 4])
def test_a_complex_circulant_takes_real_vectors(d):
    kernel = np.arange(1, d + 1) + 1j
    A = jaxht.operators.circulant(jnp.asarray(kernel, jnp.complex64))
    x = np.arange(1.0, d + 1)
    matrix = scipy.linalg.circulant(kernel)
    np.testing.assert_allclose(A.matvec(jnp.float32(x)), matrix @ x, rtol=1e-5)
    np.testing.assert_allclose(A.rmatvec(jnp.float32(x)), matrix.conj().T @ x, rtol=1e-5)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_a_real_circulant_takes_complex_vectors(d):
    kernel = np.arange(1.0, d + 1)
    x = np.arange(d) + 1j
    matrix = scipy.linalg.circulant(kernel)
    A = jaxht.operators.circulant(jnp.float32(kernel))
    np.testing.assert_allclose(A @ jnp.complex64(x), matrix @ x, rtol=1e-5, atol=1e-5)
    T = jaxht.operators.toeplitz(jnp.float32(kernel), jnp.float32(kernel))
    expected = scipy.linalg.toeplitz(kernel, kernel) @ x
    np.testing.assert_allclose(T @ jnp.complex64(x), expected, rtol=1e-5, atol=1e-5)


def test_a_fourier_transform_is_complex():
    with pytest.raises(ValueError, match="dtype must be complex64"):
        jaxht.operators.partial_dft(4, jnp.array([0, 1]), dtype=jnp.float32)


def test_complex_parts_are_refused_by_name():
    with pytest.raises(ValueError, match="parts must be real"):
        jaxht.designs.hstack([np.ones((2, 2), np.complex64), np.ones((2, 1), np.float32)])


FACTOR = 1.0


def scaled_part(x):
    return FACTOR * x[:2]


def test_an_operator_is_compiled_with_what_its_product_refers_to(monkeypatch):
    x = jnp.array([1.0, 2.0, 3.0])
    y = jnp.array([3.0, 6.0])

    def products():
        A = jaxht.LinearOperator(scaled_part, (2, 3))
        x_of_y = jaxht.solve(jaxht.LeastSquares(A, y), jaxht.Sparse(1), jaxht.HTP()).x
        return (A @ x).tolist(), x_of_y.tolist()

    assert products() == ([1, 2], [0, 6, 0])
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert products() == ([3, 6], [0, 2, 0])


@pytest.mark.parametrize("d", [256, 65536])
def test_nonuniform_transforms_of_long_signals(d):
    """In single precision, for frequencies that are known."""
    rng = np.random.default_rng(0)
    frequencies = rng.uniform(0, 2 * np.pi, 20).astype(np.float32)
    x = (rng.normal(size=d) + 1j * rng.normal(size=d)).astype(np.complex64)
    angles = np.outer(frequencies.astype(float), np.arange(d))
    expected = np.exp(-1j * angles) @ x / np.sqrt(20)
    found = jaxht.operators.nonuniform_dft(d, jnp.asarray(frequencies)).matvec(x)
    assert np.linalg.norm(found - expected) <= 2e-6 * np.linalg.norm(expected)
