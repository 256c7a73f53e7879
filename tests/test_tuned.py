"""The settings of Maleki and Donoho: their programs with loops, recovery without a sparsity, and the
share of false alarms."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from scipy.stats import norm

import jaxht
from jaxht import CoSaMP, LeastSquares, Sparse
from jaxht.baselines import TunedIHT, tuned_sparsity
from tests import reference
from tests.util import precision, record_x, x64

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D, K = 60, 120, 5


def draw(dtype):
    """A, whose columns have norms of about 3, a signal of K nonzeros, and A times it."""
    rng = np.random.default_rng(0)
    A, x = rng.normal(size=(N, D)), np.zeros(D)
    if np.issubdtype(dtype, np.complexfloating):
        A = (A + 1j * rng.normal(size=(N, D))) / np.sqrt(2)
        x = x + 0j
    A *= 3 / np.sqrt(N)
    x[rng.choice(D, K, replace=False)] = np.array([1, -1, 1, 1, -1]) * (
        1 if x.dtype == float else 1j
    )
    return tuple(v.astype(dtype) for v in (A, x, A @ x))


def iterate(A, y):
    """RecommendedIHT of the authors, an entry at a time; of complex numbers with the median and the
    tail of a Rayleigh variable."""
    norms = [np.sqrt(sum(abs(a) ** 2)) for a in A.T]
    A, y = A / np.mean(norms), y / np.mean(norms)
    delta = A.shape[0] / A.shape[1]
    far = 0.04 if delta >= 0.85 else 0.0465 * delta**2 + 0.0041 * delta + 0.0012
    x = np.zeros(A.shape[1], A.dtype)
    while True:
        yield x
        r = y - A @ x
        c = np.array([np.vdot(a, r) for a in A.T])
        ranked = sorted(abs(c))
        median = (ranked[(D - 1) // 2] + ranked[D // 2]) / 2
        if np.iscomplexobj(A):
            threshold = 0.65 * median / np.sqrt(np.log(2)) * np.sqrt(np.log(1 / far))
        else:
            threshold = 0.65 * median / 0.6745 * norm.isf(far / 2)
        v = x + 0.65 * c
        x = np.array([v_j if abs(v_j) >= threshold else 0 for v_j in v], A.dtype)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("n", [N, 110])
def test_steps_are_those_of_the_program(dtype, n):
    with x64():
        rng = np.random.default_rng(1)
        A, x, _ = draw(dtype)
        A = np.concatenate([A, A[: n - N] * rng.choice([-1, 1], D)])
        y = A @ x + 0.05 * rng.normal(size=n)
        f = LeastSquares(A, y, mean=False)
        _, xs = jaxht.trace(f, Sparse(D), TunedIHT(), num_steps=8, record=record_x)
        expected = list(itertools.islice(iterate(A, y), 9))
    np.testing.assert_allclose(xs, expected, atol=1e-10)
    assert 0 < np.count_nonzero(xs[-1]) < D


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_signals_are_recovered_without_a_sparsity(dtype):
    A, x, y = draw(dtype)
    with precision("float64" if dtype == "float64" else "float32"):
        f = LeastSquares(A, y, mean=False)
        tolerance = 1e-12 * float(np.sum(abs(y) ** 2))
        stop = jaxht.Stop(target_value=tolerance)
        for solver, k in ((TunedIHT(), D), (CoSaMP(expand=1), tuned_sparsity(N, D))):
            found = jaxht.solve(f, Sparse(k, k_max=k), solver, stop=stop)
            assert found.reason == "TARGET_REACHED" and found.x.dtype == dtype
            np.testing.assert_allclose(found.x, x, atol=1e-5)


def test_operators_and_sparse_designs():
    rng = np.random.default_rng(4)
    F = jaxht.operators.partial_dft(128, np.sort(rng.choice(128, 80, replace=False)))
    signal = np.zeros(128, np.complex64)
    signal[[5, 40, 99]] = [1, 1j, -1]
    stop = jaxht.Stop(target_value=1e-8)
    found = jaxht.solve(LeastSquares(F, F.matvec(signal)), Sparse(128), TunedIHT(), stop=stop)
    assert found.reason == "TARGET_REACHED"
    np.testing.assert_allclose(found.x, signal, atol=2e-3)
    A, x, y = draw("float32")
    f = LeastSquares(scipy.sparse.csr_array(A), y)
    found = jaxht.solve(f, Sparse(D), TunedIHT(), stop=stop)
    np.testing.assert_allclose(found.x, x, atol=2e-3)


def test_a_share_of_noise_exceeds_the_threshold():
    """From x = 0 and y of noise alone, an entry of kappa A'y passes with chance FAR."""
    rng = np.random.default_rng(2)
    d = 4000
    for is_complex in (False, True):
        A = rng.normal(size=(50, d)) + 1j * is_complex * rng.normal(size=(50, d))
        y = rng.normal(size=50) + 1j * is_complex * rng.normal(size=50)
        f = LeastSquares(*((A, y) if is_complex else (A.real, y.real)), mean=False)
        stop = jaxht.Stop(max_steps=1)
        found = jaxht.solve(f, Sparse(d), TunedIHT(false_alarm_rate=0.05), stop=stop)
        share = np.mean(found.x != 0)
        assert abs(share - 0.05) < 5 * np.sqrt(0.05 * 0.95 / d)


def test_two_stage_thresholding_is_cosamp_with_k():
    """RecommendedTST of the authors, from the sparsity that they recommend on."""
    rng = np.random.default_rng(3)
    A = rng.normal(size=(40, 80)) / np.sqrt(40)
    y = A @ np.where(np.arange(80) < 8, 1.0, 0) + 0.1 * rng.normal(size=40)
    k = tuned_sparsity(40, 80)
    assert k == int((0.044417 / 4 + 0.34142 / 2 + 0.14844) * 40)
    with x64():
        f = LeastSquares(A, y, mean=False)
        _, xs = jaxht.trace(f, Sparse(k), CoSaMP(expand=1), num_steps=6, record=record_x)
    x, support = np.zeros(80), set()
    for found in np.asarray(xs)[1:]:
        support |= set(reference.largest(A.T @ (y - A @ x), k))
        listed = sorted(support)
        fit = np.linalg.lstsq(A[:, listed], y, rcond=None)[0]
        kept = reference.largest(fit, k)
        x, support = np.zeros(80), {listed[i] for i in kept}
        x[[listed[i] for i in kept]] = fit[kept]
        np.testing.assert_allclose(found, x, atol=1e-9)


def test_lanes_and_traced_settings():
    A, x, y = draw("float32")

    @jax.jit
    @jax.vmap
    def steps(rate, y):
        solver = TunedIHT(false_alarm_rate=rate)
        return jaxht.solve(LeastSquares(A, y), Sparse(D), solver, stop=jaxht.Stop(max_steps=40)).x

    xs = steps(jnp.array([1e-12, 0.02, 1.0]), jnp.stack([y, y, y]))
    assert not np.any(xs[0])  # nothing is above so high a threshold
    np.testing.assert_allclose(xs[1], x, atol=1e-2)
    assert np.all(xs[2] != 0)  # and everything above one of 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda f: jaxht.solve(f, Sparse(3), TunedIHT()),
            rf"constraint must be Sparse\({D}\) for TunedIHT",
        ),
        (
            lambda f: jaxht.solve(LeastSquares(f.A, f.y, 0.1), Sparse(D), TunedIHT()),
            "weights and l2 must be left out of the objective for TunedIHT",
        ),
        (
            lambda f: jaxht.solve(jaxht.Huber(f.A, f.y), Sparse(D), TunedIHT()),
            "objective must be LeastSquares for TunedIHT",
        ),
        (
            lambda f: jaxht.solve(f, Sparse(D), TunedIHT(false_alarm_rate=-0.1)),
            "TunedIHT.false_alarm_rate must be at least 0",
        ),
        (lambda f: tuned_sparsity(0, 5), "n and d must be at least 1; got 0 and 5"),
    ],
)
def test_errors_name_what_is_needed(call, words):
    A, _, y = draw("float32")
    with pytest.raises(ValueError, match=words):
        call(LeastSquares(A, y))


@pytest.mark.parametrize("rate", [1e-3, 1e-7, 1e-10])
def test_thresholds_of_small_false_alarm_rates(rate):
    """They are finite in single precision, where ``1 - rate`` is 1: entries far above them are
    found."""
    rng = np.random.default_rng(0)
    n = 2000
    A = rng.normal(size=(n, 100)).astype(np.float32) / n**0.5
    x = np.zeros(100, np.float32)
    x[:3] = 100
    f = jaxht.LeastSquares(A, A @ x, mean=False)
    result = jaxht.solve(f, jaxht.Sparse(100), jaxht.baselines.TunedIHT(rate))
    np.testing.assert_allclose(result.x[:3], 100, rtol=1e-2)
