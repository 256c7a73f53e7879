"""Linear operators of SciPy as designs, against the arrays that they stand for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse.linalg

import jaxht
from jaxht import Sparse
from tests.util import precision, quick

pytestmark = pytest.mark.usefixtures("all_quickly")
N, D, K = 40, 12, 2
RNG = np.random.default_rng(0)
A = RNG.normal(size=(N, D))
ETA = A[:, 2] - 2 * A[:, 7]
Y = ETA + 0.1 * RNG.normal(size=N)


class Products:
    """What has the methods of an operator and is no class of SciPy; it takes vectors alone, and
    counts them."""

    shape = (N, D)
    dtype = np.dtype(float)

    def __init__(self):
        self.count = 0

    def matvec(self, x):
        self.count += 1
        assert isinstance(x, np.ndarray) and x.shape == (D,) and x.dtype == np.float64
        return A @ x

    def rmatvec(self, r):
        self.count += 1
        assert isinstance(r, np.ndarray) and r.shape == (N,)
        return A.T @ r


def operator(**options):
    """An operator of SciPy of the products alone."""
    options = {"matvec": lambda x: A @ x, "rmatvec": lambda r: A.T @ r, **options}
    return scipy.sparse.linalg.LinearOperator((N, D), dtype=float, **options)


SOLVERS = [jaxht.NIHT(), jaxht.HTP(), jaxht.OMP(), None]


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_solutions_are_those_of_the_array(solver):
    with precision("float64"):
        models = {
            "squares": lambda A: jaxht.LeastSquares(A, Y, 0.1),
            "logistic": lambda A: jaxht.Logistic(A, np.sign(Y), 0.1),
        }
        for make in models.values():
            expected = jaxht.solve(make(A), Sparse(K), solver)
            for products in (operator(), scipy.sparse.linalg.aslinearoperator(A), Products()):
                found = jaxht.solve(make(products), Sparse(K), solver)
                assert found.succeeded
                np.testing.assert_allclose(found.x, expected.x, atol=1e-5)


def test_transforms(dtype):
    """Under jit, vmap, and derivatives of both modes, by the adjoint."""
    design = jaxht.design(operator())
    dense = jnp.asarray(A, dtype)
    assert design.shape == (N, D) and design.dtype == dtype
    x, v = np.random.default_rng(1).normal(size=(2, D)).astype(dtype)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == np.float32 else {"rtol": 1e-10}
    lanes = np.stack([x, v, x + v])
    for many in (jax.vmap(design.matvec), quick(jax.vmap(design.matvec))):
        np.testing.assert_allclose(many(lanes), lanes @ dense.T, **tolerance)
    of_two = jax.vmap(jax.vmap(design.matvec))(lanes[None])
    np.testing.assert_allclose(of_two[0], lanes @ dense.T, **tolerance)
    np.testing.assert_allclose(design.columns(jnp.array([3, D])), [dense[:, 3], 0 * Y], **tolerance)

    def value(product, x):
        return jnp.sum(jnp.sin(product(x)))

    def own(x):
        return value(design.matvec, x)

    def expected(x):
        return value(lambda x: dense @ x, x)

    np.testing.assert_allclose(quick(jax.grad(own))(x), jax.grad(expected)(x), **tolerance)
    curvature = quick(jax.hessian(own))(x)
    np.testing.assert_allclose(curvature, jax.hessian(expected)(x), **tolerance)
    along = jax.jvp(own, (x,), (v,))[1]
    np.testing.assert_allclose(along, jax.grad(expected)(x) @ v, **tolerance)


def test_complex_operators(dtype):
    """Their adjoint is that of the operator, also in derivatives and under vmap."""
    rng = np.random.default_rng(2)
    C = A + 1j * rng.normal(size=(N, D))
    design = jaxht.design(scipy.sparse.linalg.aslinearoperator(C))
    assert design.dtype == np.result_type(dtype, np.complex64)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == np.float32 else {"rtol": 1e-10}
    x, v = (rng.normal(size=(2, D)) + 1j * rng.normal(size=(2, D))).astype(design.dtype)
    lanes = jnp.stack([x, v])
    np.testing.assert_allclose(quick(jax.vmap(design.matvec))(lanes), lanes @ C.T, **tolerance)
    r = design.matvec(x)
    assert r.dtype == design.dtype
    np.testing.assert_allclose(design.rmatvec(r), C.conj().T @ r, **tolerance)
    gradient = quick(jax.grad(lambda x: jnp.sum(jnp.abs(design.matvec(x)) ** 2) / 2))(x)
    np.testing.assert_allclose(gradient.conj(), C.conj().T @ (C @ x), **tolerance)

    truth = np.zeros(D, complex)
    truth[[2, 7]] = 1 + 1j, -2
    f = jaxht.LeastSquares(design, (C @ truth).astype(design.dtype))
    result = jaxht.solve(f, Sparse(K), jaxht.CGIHT())
    np.testing.assert_allclose(result.x, truth, atol=1e-4)


def test_lanes_and_programs():
    """Lanes of targets share an operator; an operator is tested once, and compiles once."""
    products = Products()
    design = jaxht.design(products)
    tested = products.count
    assert jaxht.design(products).product == design.product and products.count == tested
    with precision("float64"):
        targets = np.stack([Y, -Y, ETA])

        @quick
        def run(targets):
            return jax.vmap(
                lambda y: jaxht.solve(jaxht.LeastSquares(products, y), Sparse(K, K), jaxht.NIHT())
            )(targets)

        found = run(targets)
        expected = [
            jaxht.solve(jaxht.LeastSquares(A, y), Sparse(K), jaxht.NIHT()).x for y in targets
        ]
        np.testing.assert_allclose(found.x, expected, atol=1e-6)


def test_a_real_operator_takes_complex_vectors():
    design = jaxht.design(scipy.sparse.linalg.aslinearoperator(A.astype(np.float32)))
    x = (RNG.normal(size=D) + 1j * RNG.normal(size=D)).astype(np.complex64)
    np.testing.assert_allclose(design.matvec(x), A @ x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: operator(rmatvec=None), "A must have a product with its transpose: scipy"),
        (lambda: operator(rmatvec=lambda r: 2 * A.T @ r), "adjoint must be that of product"),
        (lambda: operator(matvec=lambda x: abs(A @ x)), "product must be linear in x"),
        (
            lambda: scipy.sparse.linalg.LinearOperator(
                (N, D), matvec=lambda x: A @ x, rmatvec=lambda r: A.T @ r, dtype="M8[s]"
            ),
            "A must have real or complex numbers; got an operator of dtype datetime64",
        ),
        (
            lambda: scipy.sparse.linalg.LinearOperator(
                (N, D), lambda x: A @ x.conj(), lambda r: A.T @ r.conj(), dtype=complex
            ),
            "product must be linear in x",
        ),
        (
            lambda: scipy.sparse.linalg.LinearOperator(
                (N, D), lambda x: 1j * A @ x, lambda r: 1j * A.T @ r, dtype=complex
            ),
            "adjoint must be that of product",
        ),
        (lambda: operator(matvec=lambda x: A @ x * 1j), "A.matvec must map .* got complex numbers"),
        (
            lambda: operator(matvec=lambda x: A[1:] @ x),
            r"A.matvec must map \(12,\) to \(40,\) in real numbers; got cannot reshape",
        ),
    ],
)
def test_what_cannot_be(make, message):
    with pytest.raises(ValueError, match=message) as error:
        jaxht.solve(jaxht.LeastSquares(make(), Y), Sparse(K))
    assert "\n" not in str(error.value)
