"""Symmetric products by the blocks of their lower triangle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht.constraints import Support
from jaxht.linalg.symmetric_products import MIN_BLOCKED_ROWS, symmetric_product
from jaxht.subproblems import refit


def factors(k, used, dtype=np.float32):
    """b and a = b S for a diagonal S, rows of b being 0 where not ``used``."""
    rng = np.random.default_rng(0)
    b = rng.standard_normal((k, 40)) * used[:, None]
    return (b * rng.random(40)).astype(dtype), b.astype(dtype)


@pytest.mark.parametrize("k", [MIN_BLOCKED_ROWS, 640, 701])
@pytest.mark.parametrize("last", [0, 1, 128, 129, 500])
def test_equals_the_product(k, last):
    used = (np.arange(k) < last) & (np.arange(k) % 7 != 3)
    a, b = factors(k, used)
    product = jax.jit(symmetric_product)(a, b, used)
    expected = a.astype(np.float64) @ b.T.astype(np.float64)
    np.testing.assert_allclose(product, expected, rtol=0, atol=2e-5)
    np.testing.assert_array_equal(product, product.T)


def test_a_refit_does_not_depend_on_the_slots_of_its_support():
    rng = np.random.default_rng(2)
    A = rng.standard_normal((300, 700)).astype(np.float32)
    y = np.sign(A[:, 0] + rng.standard_normal(300)).astype(np.float32)
    f = jaxht.Logistic(A, y, l2=1e-3).prepare()
    mask = jnp.zeros(700, bool).at[jnp.arange(0, 700, 35)].set(True)
    few, many = (refit(f, Support(mask, k_max=k_max), jnp.zeros(700)) for k_max in (20, 600))
    assert few.converged and many.converged
    np.testing.assert_allclose(many.x, few.x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("k", [300, 600])
def test_all_rows_under_vmap(k):
    lanes = [factors(k, np.arange(k) < last) for last in (3, k)]
    a, b = (jnp.stack(v) for v in zip(*lanes, strict=True))
    used = jnp.arange(k) < jnp.array([[3], [k]])
    product = jax.vmap(symmetric_product)(a, b, used)
    np.testing.assert_allclose(product, a @ b.mT, rtol=0, atol=2e-5)


def test_derivatives_are_those_of_the_product():
    k = MIN_BLOCKED_ROWS
    a, b = factors(k, np.arange(k) < 200)
    v = jnp.asarray(np.random.default_rng(1).standard_normal(k), jnp.float32)

    def by_blocks(a, b):
        return v @ jnp.sin(symmetric_product(a, b, jnp.arange(k) < 200)) @ v

    def plain(a, b):
        return v @ jnp.sin(a @ b.T) @ v

    for one, other in zip(
        jax.grad(by_blocks, (0, 1))(a, b), jax.grad(plain, (0, 1))(a, b), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-3 * float(jnp.abs(other).max()))
