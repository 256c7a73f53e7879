"""Wavelet transforms against loops, and what defines their filters."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import operators
from jaxht.designs.wavelets import daubechies
from tests.util import quick, solve, x64

pytestmark = pytest.mark.usefixtures("all_quickly")

RNG = np.random.default_rng(0)
# Daubechies 1992, table 6.1, in the other normalisation.
DB2 = [(1 + 3**0.5) / 4, (3 + 3**0.5) / 4, (3 - 3**0.5) / 4, (1 - 3**0.5) / 4]
DB4 = [
    *(0.2303778133088964, 0.7148465705529154, 0.6308807679298587, -0.0279837694168599),
    *(-0.1870348117190931, 0.0308413818355607, 0.0328830116668852, -0.0105974017850690),
]


def test_filters_are_those_of_the_tables():
    np.testing.assert_allclose(daubechies(2), np.array(DB2) / 2**0.5, atol=1e-14)
    np.testing.assert_allclose(daubechies(4), DB4, atol=1e-11)


@pytest.mark.parametrize("N", range(1, 13))
def test_filters_are_orthonormal_and_have_their_moments(N):
    h = daubechies(N)
    k = np.arange(2 * N)
    for shift in range(N):
        product = sum(h[i] * h[i + 2 * shift] for i in range(2 * N - 2 * shift))
        np.testing.assert_allclose(product, float(shift == 0), atol=1e-13)
    for power in range(N):  # in units in which no power is large
        moments = h * (-1.0) ** k * (2 * k / (2 * N - 1) - 1) ** power
        np.testing.assert_allclose(moments.sum(), 0, atol=1e-11)


def split_by_loops(x, h):
    """One level of a signal: m/2 coarse entries, then the details."""
    m = len(x)
    c = np.zeros(m, x.dtype)
    for i in range(m // 2):
        for j in range(len(h)):
            c[i] += h[j] * x[(2 * i + j) % m]
            c[m // 2 + i] += (-1) ** j * h[len(h) - 1 - j] * x[(2 * i + j) % m]
    return c


def analyse_by_loops(x, h, levels):
    c = x.copy()
    for level in range(levels):
        size = [m >> level for m in x.shape]
        for axis in range(x.ndim):
            lines = [*size[:axis], 1, *size[axis + 1 :]]
            for start in itertools.product(*map(range, lines)):
                index = [*start]
                index[axis] = slice(0, size[axis])
                c[tuple(index)] = split_by_loops(c[tuple(index)], h)
    return c


@quick
def products(W, x):
    d = W.shape[1]
    units = jnp.eye(d, dtype=W.dtype)
    return jax.vmap(W.matvec)(units), jax.vmap(W.rmatvec)(units), W.rmatvec(x)


@pytest.mark.parametrize(
    ("shape", "name", "N", "levels"),
    [
        (16, "haar", 1, 4),
        (24, "db3", 3, 3),  # the filter is twice as long as the coarsest signal
        (4, "db12", 12, 2),  # and here many times
        ((8, 12), "db2", 2, 2),
        ((4, 8, 4), "db1", 1, 2),
    ],
)
def test_the_transform_is_that_of_loops(shape, name, N, levels):
    with x64():
        W = operators.wavelet(shape, name, levels)
        d = W.shape[1]
        x = RNG.normal(size=shape)
        synthesis, analysis, c = map(np.asarray, products(W, x.ravel()))
        assert c.dtype == W.norms.dtype == np.float64
        np.testing.assert_allclose(W.norms, 1)
    np.testing.assert_allclose(
        c, analyse_by_loops(x, daubechies(N), levels).ravel(), atol=1e-13 * d
    )
    np.testing.assert_allclose(synthesis, analysis.T, atol=1e-14)
    np.testing.assert_allclose(synthesis @ synthesis.T, np.eye(d), atol=1e-13)


def test_complex_signals_and_default_levels():
    W = operators.wavelet((32, 64), dtype=np.complex64)
    assert W.product.levels == 3  # 32, 16 and 8 are filtered by 8 coefficients
    x = (RNG.normal(size=2048) + 1j * RNG.normal(size=2048)).astype(np.complex64)
    c, back = quick(lambda W, x: (W.rmatvec(x), W.matvec(W.rmatvec(x))))(W, x)
    assert c.dtype == np.complex64
    reference = analyse_by_loops(x.reshape(32, 64), daubechies(4), 3)
    np.testing.assert_allclose(c, reference.ravel(), atol=1e-4)
    np.testing.assert_allclose(back, x, atol=1e-5)


def test_steps_are_recovered_from_a_third_of_numbers():
    d, n = 128, 48
    steps = np.repeat([1.0, -0.5, 2.0], [40, 48, 40]).astype(np.float32)
    W = operators.wavelet(d, "haar")
    A = jaxht.design(RNG.normal(size=(n, d)).astype(np.float32)) @ W
    k = int(np.sum(np.abs(W.rmatvec(steps)) > 1e-4))
    assert k < 14
    f = jaxht.LeastSquares(A, A.matvec(W.rmatvec(steps)), mean=False)
    result = solve(f, jaxht.Sparse(k, k_max=k), jaxht.CGIHT())
    np.testing.assert_allclose(W @ result.x, steps, atol=1e-3)
    assert math.isclose(float(jnp.linalg.norm(result.x)), np.linalg.norm(steps), rel_tol=1e-4)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((8, "sym4"), "name must be 'haar' or one of 'db1' to 'db12'; got 'sym4'"),
        ((8, "db13"), "name must be"),
        ((8, 4), "name must be"),
        ((12, "haar", 3), r"shape must have multiples of 2\^levels = 8 alone; got 12"),
        (((8, 7), "haar"), r"shape must have multiples of 2\^levels = 2 alone; got \(8, 7\)"),
        ((8, "haar", 0), "levels must be an integer of at least 1, or None; got 0"),
        ((8, "haar", 1.0), "levels must be an integer"),
        ((0, "haar"), "shape must be an int or a tuple of ints"),
    ],
)
def test_errors_name_what_is_needed(args, words):
    with pytest.raises(ValueError, match=words):
        operators.wavelet(*args)
