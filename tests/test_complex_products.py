"""Products and factors of complex arrays from their parts, against NumPy's in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxht.designs import Dense
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.lapack import cholesky, inverse_cholesky

RNG = np.random.default_rng(0)


def draw(*shape):
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(np.complex64)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((40, 60), (60,)),
        ((60,), (60, 40)),
        ((30, 60), (60, 7)),
        ((7, 60), (60, 30)),
        ((2, 30, 40), (40, 5)),
        ((2, 5, 40), (2, 40, 30)),
        ((3, 4), (4,)),
        ((50,), (50,)),
    ],
    ids=str,
)
def test_products(left, right):
    a, b = draw(*left), draw(*right)
    found = matmul(jnp.asarray(a), jnp.asarray(b))
    assert found.dtype == jnp.complex64
    np.testing.assert_allclose(found, a.astype(complex) @ b, rtol=1e-4, atol=1e-4)


LANES = {"one": None, "shared": (None, 0), "own": (0, 0)}


@pytest.mark.parametrize("lanes", LANES)
def test_products_with_vectors_and_their_derivatives(lanes):
    """Of one problem, of lanes that share A, and of lanes with an A each."""
    axes = LANES[lanes]
    owns = lanes == "own"
    A = draw(*[3] * owns, 30, 40)
    x, r = (draw(*[3] * (axes is not None), size) for size in (40, 30))

    def both(A, x, r):
        design = Dense(A).for_products()
        return design.matvec(x), design.rmatvec(r)

    over_lanes = both if axes is None else jax.vmap(both, (*axes, 0))
    image, back = jax.jit(over_lanes)(A, x, r)
    wide = A.astype(complex)
    np.testing.assert_allclose(image, (wide @ x[..., None])[..., 0], rtol=1e-4, atol=1e-4)
    adjoint = wide.conj().swapaxes(-1, -2)
    np.testing.assert_allclose(back, (adjoint @ r[..., None])[..., 0], rtol=1e-4, atol=1e-4)

    def size(A, x, r):
        return sum(jnp.sum(jnp.abs(v) ** 2) for v in over_lanes(A, x, r)) / 2

    # JAX's gradients are the conjugates of those of the steps.
    gradient = jax.grad(size, argnums=1)(A, x, r).conj()
    expected = (adjoint @ wide @ x[..., None])[..., 0]
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("size", [10, 40, 63, 64, 77, 100])
def test_factors_of_few_and_of_many_columns(size):
    B = draw(size, 2 * size)
    gram = B @ B.conj().T / (2 * size)
    # The upper half is not read.
    factor = cholesky(np.tril(gram))
    expected = np.linalg.cholesky(gram.astype(complex))
    np.testing.assert_allclose(factor, expected, atol=1e-4)
    np.testing.assert_array_equal(factor, np.tril(factor))
    inverse = inverse_cholesky(np.tril(gram))
    np.testing.assert_allclose(inverse, np.linalg.inv(expected), atol=1e-3)
    lanes = jax.jit(jax.vmap(cholesky))(np.stack([gram, -gram, 4 * gram]))
    np.testing.assert_allclose(lanes[2], 2 * factor, atol=1e-4)
    assert not np.all(np.isfinite(lanes[1]))
