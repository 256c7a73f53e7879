"""Random planted problems against SciPy, closed forms and chi-square or binomial bounds, with fixed
keys.

Compiling is what takes time here: draws of all kinds come from a few functions that are compiled
once.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
import scipy.linalg
from scipy import stats

import jaxht
from jaxht import ensembles
from jaxht.ensembles import PlantedProblem, planted
from tests.util import precision, x64

pytestmark = pytest.mark.usefixtures("all_quickly")
DESIGNS = {
    "gaussian": ensembles.gaussian,
    "rademacher": ensembles.rademacher,
    "sparse": partial(ensembles.sparse_columns, degree=3),
    "partial_dct": ensembles.partial_dct,
    "toeplitz": partial(ensembles.toeplitz, rho=0.6),
    "conditioned": partial(ensembles.conditioned, kappa=30.0),  # and with_spectrum, which it calls
}
SIGNALS = {
    "gaussian": ensembles.gaussian_signal,
    "sign": ensembles.sign_signal,
    "decaying": partial(ensembles.decaying_signal, ratio=0.8),
    "power law": partial(ensembles.power_law_signal, exponent=0.7),
    "uniform": partial(ensembles.uniform_signal, low=0.5, high=2.0),
    "significant": ensembles.significant_signal,
    "either sign": partial(ensembles.significant_signal, mean=-2.0, std=0.25, random_signs=True),
    # The guards: all powers but the first few underflow; every value is drawn as 0.
    "underflow": partial(ensembles.decaying_signal, ratio=1e-20),
    "zero": partial(ensembles.significant_signal, mean=0.0, std=0.0),
}
KEY = jax.random.key(7)
RARE = 1e-6  # chance that a correct law would break a bound below, had the keys not been fixed

each_signal = pytest.mark.parametrize("name", SIGNALS)


def chi2_bounds(df):
    return stats.chi2.ppf([RARE / 2, 1 - RARE / 2], df)


def binomial_bounds(num, chance=0.5):
    return stats.binom.ppf([RARE / 2, 1 - RARE / 2], num, chance)


def assert_within(value, bounds):
    assert bounds[0] <= value <= bounds[1], (value, bounds)


def assert_law(sample, law):
    assert stats.kstest(np.ravel(sample), law.cdf).pvalue > RARE


# ---- designs ----


@pytest.mark.parametrize("name", DESIGNS)
def test_design_dtype(name, dtype):
    for given in {}, {"dtype": dtype}, {"dtype": jnp.float32}:
        A = jax.eval_shape(partial(DESIGNS[name], n=5, d=8, **given), KEY)
        assert A.shape == (5, 8) and A.dtype == given.get("dtype", dtype) and not A.weak_type


def test_gaussian_is_standard_normal_after_scaling():
    n, d = 40, 100
    draw = jax.jit(lambda variance: ensembles.gaussian(KEY, n, d, variance=variance))
    for variance in 1.0, 0.3:
        Z = np.asarray(draw(variance)) / np.sqrt(variance)
        assert_within((Z**2).sum(), chi2_bounds(n * d))
        assert_law(Z, stats.norm())


def test_rademacher_signs_are_balanced_and_uncorrelated():
    n, d = 60, 50
    A = np.asarray(ensembles.rademacher(KEY, n, d))
    np.testing.assert_allclose(np.abs(A), 1 / np.sqrt(n), rtol=1e-6)
    assert_within((A > 0).sum(), binomial_bounds(A.size))
    assert_within((A[:, 1:] * A[:, :-1] > 0).sum(), binomial_bounds(A[:, 1:].size))


@pytest.mark.parametrize(("n", "d"), [(4, 8), (64, 64)])
def test_partial_dct_is_distinct_random_rows_of_the_dct_matrix(n, d):
    C = scipy.fft.dct(np.eye(d), axis=0, norm="ortho")
    num = 500
    draw = jax.jit(jax.vmap(lambda key: ensembles.partial_dct(key, n, d)))
    A = np.asarray(draw(jax.random.split(KEY, num)), np.float64)
    rows = np.abs(A @ C.T).argmax(axis=2)
    np.testing.assert_allclose(A, C[rows] * np.sqrt(d / n), atol=2e-6)
    assert all(len(set(lane)) == n for lane in rows)
    np.testing.assert_allclose(A[0] @ A[0].T, d / n * np.eye(n), atol=1e-5)
    if 2 * n == d:
        for row in range(d):
            assert_within((rows == row).sum(), binomial_bounds(num))


def test_sparse_columns_have_their_degree_at_uniform_places():
    n, d, num = 12, 10, 300

    @jax.jit
    @jax.vmap
    def draw(key, degree):
        plain = ensembles.sparse_columns(key, n, d, degree, random_signs=False)
        return ensembles.sparse_columns(key, n, d, degree), plain

    degrees = np.arange(num) % n + 1
    A, plain = map(np.asarray, draw(jax.random.split(KEY, num), degrees))
    np.testing.assert_array_equal(np.count_nonzero(A, axis=1), np.tile(degrees[:, None], d))
    np.testing.assert_allclose(np.abs(A), plain)
    np.testing.assert_allclose(np.linalg.norm(A, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(plain.max(axis=(1, 2)), degrees**-0.5, rtol=1e-6)
    assert_within((A > 0).sum(), binomial_bounds(np.count_nonzero(A)))
    single = A[degrees == 1] != 0
    places = single.argmax(axis=1)
    assert stats.chisquare(np.bincount(places.ravel(), minlength=n)).pvalue > RARE
    # Columns are drawn independently of each other.
    same = places[:, 1:] == places[:, :-1]
    assert_within(same.sum(), binomial_bounds(same.size, 1 / n))


def test_sparse_columns_need_a_degree_that_fits():
    for degree in 0, 6:
        with pytest.raises(ValueError, match=rf"degree must lie in \[1, 5\]; got {degree}"):
            ensembles.sparse_columns(KEY, 5, 8, degree)


def test_partial_dct_needs_no_more_rows_than_there_are():
    with pytest.raises(ValueError, match="n <= d; got n = 9, d = 8"):
        ensembles.partial_dct(KEY, 9, 8)


@pytest.mark.parametrize(("n", "d"), [(3, 8), (5, 7)])
def test_random_convolutions_are_rows_of_circulant_unitary_matrices(n, d):
    num = 400

    @jax.jit
    @jax.vmap
    def draw(key):
        A = ensembles.random_convolution(key, n, d)
        r = jnp.arange(n, dtype=A.dtype)
        return A.args[1], A @ jnp.eye(d), A.column_norms(), A.rmatvec(r)

    rows, A, norms, adjoints = map(np.asarray, draw(jax.random.split(KEY, num)))
    assert A.dtype == np.float32 and all(len(set(lane)) == n for lane in rows)
    np.testing.assert_allclose(
        A @ A.swapaxes(1, 2), np.tile(d / n * np.eye(n), (num, 1, 1)), atol=1e-5
    )
    np.testing.assert_allclose(norms, np.linalg.norm(A, axis=1), atol=1e-5)
    np.testing.assert_allclose(adjoints, np.arange(n) @ A, atol=1e-4)
    kernels = np.stack(
        [
            [A[lane, i, (rows[lane, i] - j) % d] for j in range(d)]
            for lane in range(num)
            for i in range(n)
        ]
    ).reshape(num, n, d)
    np.testing.assert_allclose(kernels, kernels[:, :1] + np.zeros((num, n, d)), atol=1e-5)
    phases = np.fft.fft(kernels[:, 0]) * np.sqrt(n / d)
    np.testing.assert_allclose(np.abs(phases), 1, atol=1e-4)
    assert_law(np.angle(phases[:, 1]), stats.uniform(-np.pi, 2 * np.pi))
    assert_within((phases[:, 0].real > 0).sum(), binomial_bounds(num))


def test_spread_spectrum_is_the_transform_of_signs():
    n, shape = 4, (2, 3)

    @jax.jit
    @jax.vmap
    def draw(key):
        A = ensembles.spread_spectrum(key, n, shape)
        return A @ jnp.eye(6), A.norms, A.rmatvec(jnp.ones(n, complex))

    num = 200
    A, norms, adjoints = map(np.asarray, draw(jax.random.split(KEY, num)))
    assert A.dtype == np.complex64
    np.testing.assert_allclose(norms, 1)
    np.testing.assert_allclose(np.linalg.norm(A, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(adjoints, A.conj().sum(axis=1), atol=1e-5)
    # Signs up to a common one: the first row of A over that of the transform is +-1.
    F = np.kron(scipy.linalg.dft(2), scipy.linalg.dft(3)) / np.sqrt(n)
    signs = np.stack([lane[0] / next(f for f in F if is_multiple(lane[0], f)) for lane in A])
    np.testing.assert_allclose(signs.imag, 0, atol=1e-5)
    np.testing.assert_allclose(np.abs(signs.real), 1, atol=1e-5)
    assert_within((signs.real > 0).sum(), binomial_bounds(signs.size))
    rows = np.einsum("lij,fj->lif", A * signs[:, None], F.conj())  # unit vectors, times d / n
    np.testing.assert_allclose(np.sort(np.abs(rows)), [[[0] * 5 + [6 / n]] * n] * num, atol=1e-5)
    assert all(len(set(lane)) == n for lane in np.abs(rows).argmax(axis=2))


def is_multiple(row, f):
    """Whether a row is f times signs."""
    ratio = row / f
    return np.allclose(ratio.imag, 0, atol=1e-4)


def test_a_matrix_without_entries_needs_no_more_rows_than_there_are():
    for draw in (ensembles.random_convolution, ensembles.spread_spectrum):
        with pytest.raises(ValueError, match="n <= d; got n = 9, d = 8"):
            draw(KEY, 9, 8)


def test_toeplitz_covariance():
    n, d = 20_000, 6
    rhos = np.array([-1.0, -0.5, 0.0, 0.7, 0.95, 1.0])
    draw = jax.jit(jax.vmap(lambda rho: ensembles.toeplitz(KEY, n, d, rho, variance=2.0)))
    A = np.asarray(draw(rhos), np.float64)
    lag = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    for rho, A_rho in zip(rhos, A, strict=True):
        sigma = 2.0 * rho**lag
        # var(sample cov_ij) = (sigma_ii sigma_jj + sigma_ij^2)/n; five standard deviations
        np.testing.assert_array_less(
            np.abs(A_rho.T @ A_rho / n - sigma), 5 * np.sqrt((4.0 + sigma**2) / n)
        )
    np.testing.assert_array_equal(A[0, :, 1:], -A[0, :, :-1])
    np.testing.assert_array_equal(A[-1, :, 1:], A[-1, :, :-1])


def test_conditioned_covariance_is_exact():
    # For one key A = Z L^(1/2) Q^T, so A(1)^+ A(kappa) = Q L^(1/2) Q^T, whatever Z and Q are.
    n, d = 300, 12
    with x64():
        draw = jax.jit(
            lambda kappa, variance: ensembles.conditioned(KEY, n, d, kappa, variance=variance)
        )
        white = np.asarray(draw(1.0, 1.0))
        for kappa, variance in (1.0, 3.0), (10.0, 1.0), (1e4, 0.25):
            root = np.linalg.lstsq(white, np.asarray(draw(kappa, variance)))[0]
            np.testing.assert_allclose(root, root.T, atol=1e-10)
            expected = np.linspace(1, kappa, d) * 2 * variance / (1 + kappa)
            np.testing.assert_allclose(np.linalg.eigvalsh(root) ** 2, expected, rtol=1e-9)
    assert_within((white**2).sum(), chi2_bounds(n * d))
    assert np.abs(white.T @ white / n - np.eye(d)).max() < 5 * np.sqrt(2 / n)


def test_spectrum_that_the_docstring_of_conditioned_gives_for_a_shifted_covariance():
    kappa, lam, d = 40.0, 0.3, 9
    eigenvalues = np.linspace(0, (2 * kappa - 1) * lam, d) + lam * kappa / (kappa - 1)
    assert (eigenvalues[-1] + lam) / (eigenvalues[0] + lam) == pytest.approx(kappa, rel=1e-12)


def test_with_spectrum_has_haar_eigenvectors():
    d, num = 4, 4000
    draw = jax.jit(jax.vmap(lambda key: ensembles.with_spectrum(key, 2, d, jnp.arange(d) == 0)))
    A = np.asarray(draw(jax.random.split(KEY, num)), np.float64)
    np.testing.assert_allclose(
        A[:, 0] * A[:, 1, :1], A[:, 1] * A[:, 0, :1], atol=1e-5
    )  # the rank of the spectrum, 1
    q2 = A[:, 0] ** 2 / (A[:, 0] ** 2).sum(axis=1, keepdims=True)
    # On the unit sphere E q_i^2 = 1/d and E q_i^4 = 3/(d(d+2)); both have standard deviations of at
    # most 1/4.
    bound = 5 * 0.25 / np.sqrt(num)
    np.testing.assert_allclose(q2.mean(axis=0), 1 / d, atol=bound)
    np.testing.assert_allclose((q2**2).mean(axis=0), 3 / (d * (d + 2)), atol=bound)


# ---- signals ----

LENGTH, NONZEROS, NUM = 50, 20, 2000
num_traces = 0


@jax.jit
@jax.vmap
def draw_signals(key, K):
    global num_traces
    num_traces += 1
    return {name: signal(key, LENGTH, K) for name, signal in SIGNALS.items()}


@pytest.fixture(scope="module")
def signals():
    """NUM signals of each kind with K = NONZEROS, from the same keys."""
    return jax.tree.map(
        np.asarray, draw_signals(jax.random.split(KEY, NUM), jnp.full(NUM, NONZEROS, jnp.int32))
    )


@pytest.fixture(scope="module")
def signals_of_many_sizes():
    """The same with another K in each lane, a few beyond its range."""
    return jax.tree.map(
        np.asarray,
        draw_signals(jax.random.split(KEY, NUM), jnp.arange(NUM, dtype=jnp.int32) % 56 - 3),
    )


@each_signal
def test_signal_has_exactly_K_nonzeros_for_traced_K(name, signals, signals_of_many_sizes):
    assert (np.count_nonzero(signals[name], axis=1) == NONZEROS).all()
    num_nonzeros = np.count_nonzero(signals_of_many_sizes[name], axis=1)
    np.testing.assert_array_equal(num_nonzeros, np.clip(np.arange(NUM) % 56 - 3, 0, LENGTH))
    assert num_traces == 1


def test_signal_depends_on_its_key_alone_and_its_support_not_on_its_kind(signals):
    backwards = draw_signals(jax.random.split(KEY, NUM)[::-1], jnp.full(NUM, NONZEROS, jnp.int32))
    for name, x in signals.items():
        np.testing.assert_array_equal(x, backwards[name][::-1])
        assert len(np.unique(x, axis=0)) == NUM or name == "zero"
        np.testing.assert_array_equal(x != 0, signals["sign"] != 0)


@each_signal
def test_signal_dtype(name, dtype):
    for given in {}, {"dtype": dtype}, {"dtype": jnp.float32}:
        x = jax.eval_shape(partial(SIGNALS[name], d=40, **given), KEY, K=9)
        assert x.shape == (40,) and x.dtype == given.get("dtype", dtype) and not x.weak_type


def test_signals_of_one_key_are_nested_in_K(signals, signals_of_many_sizes):
    few, many = signals["gaussian"], signals_of_many_sizes["gaussian"]
    in_both = (few != 0) & (many != 0)
    np.testing.assert_array_equal(few[in_both], many[in_both])
    np.testing.assert_array_equal(
        in_both.sum(axis=1), np.minimum((few != 0).sum(axis=1), (many != 0).sum(axis=1))
    )


def test_support_is_uniform(signals):
    S = (signals["sign"] != 0).astype(float)
    # The counts of the coordinates depend on each other through their sum alone: LENGTH - 1 degrees
    # of freedom.
    p = NONZEROS / LENGTH
    statistic = ((S.sum(axis=0) - NUM * p) ** 2).sum() / (NUM * p * (1 - p)) * (LENGTH - 1) / LENGTH
    assert_within(statistic, chi2_bounds(LENGTH - 1))
    pair = p * (NONZEROS - 1) / (LENGTH - 1)
    deviation = (S.T @ S / NUM - pair)[~np.eye(LENGTH, dtype=bool)]
    assert np.abs(deviation).max() < 6 * np.sqrt(pair * (1 - pair) / NUM)


def test_values_of_signals(signals):
    values = {name: x[x != 0].reshape(NUM, NONZEROS) for name, x in signals.items()}
    assert_law(values["gaussian"], stats.norm())
    assert_law(values["significant"], stats.norm(5, 1))
    assert_law(np.abs(values["either sign"]), stats.norm(2, 0.25))
    assert_law(np.abs(values["uniform"]), stats.uniform(0.5, 1.5))
    assert set(np.unique(values["sign"])) == {-1.0, 1.0}
    for name in "sign", "either sign", "decaying", "underflow", "uniform", "power law":
        assert_within((values[name] > 0).sum(), binomial_bounds(NUM * NONZEROS))
    assert set(np.unique(values["zero"])) == {np.finfo(values["zero"].dtype).eps}


def test_decaying_magnitudes_are_the_powers_in_random_order(signals):
    for name, powers in [
        ("power law", np.arange(1, NONZEROS + 1) ** -0.7),
        ("decaying", 0.8 ** np.arange(NONZEROS)),
    ]:
        magnitudes = np.abs(signals[name])
        expected = np.append(powers, np.zeros(LENGTH - NONZEROS))
        np.testing.assert_allclose(
            -np.sort(-magnitudes, axis=1), np.tile(expected, (NUM, 1)), rtol=1e-5
        )
    for power in 0, 5, 19:
        where = np.argmin(np.abs(magnitudes - 0.8**power), axis=1)
        assert stats.chisquare(np.bincount(where, minlength=LENGTH)).pvalue > RARE
    powers_of_tiny_ratio = np.unique(np.abs(signals["underflow"]))
    smallest = max(np.finfo(magnitudes.dtype).tiny, 1e-20 ** (NONZEROS - 1))
    np.testing.assert_allclose(powers_of_tiny_ratio[[1, -2, -1]], [smallest, 1e-20, 1], rtol=1e-5)


# ---- responses and planted problems ----

N, D = 24, 40


def draw_problem(key, design_key=None, *, K=6, sigma=None, variance=None):
    design = partial(ensembles.gaussian, n=N, d=D, variance=variance)
    response = None if sigma is None else partial(ensembles.gaussian_noise, sigma=sigma)
    return planted(
        key, design, partial(ensembles.gaussian_signal, d=D, K=K), response, design_key=design_key
    )


def test_one_compile_serves_a_phase_diagram_and_a_change_in_one_part_leaves_the_others():
    num_traces = 0

    @jax.jit
    @jax.vmap
    def draw(K, sigma, variance):
        nonlocal num_traces
        num_traces += 1
        return draw_problem(KEY, K=K, sigma=sigma, variance=variance)

    # lanes: as it is, without noise, sparser, sparser without noise, a larger design, twice the
    # noise
    K, sigma = np.array([6, 6, 2, 2, 6, 6]), np.array([0.5, 0.0, 0.5, 0.0, 0.5, 1.0])
    variance = np.array([1.0, 1.0, 1.0, 1.0, 4.0, 1.0])
    problem = jax.tree.map(np.asarray, draw(K, sigma, variance))
    draw(K[::-1], sigma[::-1], variance[::-1])
    assert num_traces == 1
    np.testing.assert_allclose(
        problem.A, problem.A[:1] * np.sqrt(variance)[:, None, None], rtol=1e-6
    )
    np.testing.assert_array_equal(np.count_nonzero(problem.x_true, axis=1), K)
    for lane in 1, 4, 5:
        np.testing.assert_array_equal(problem.x_true[lane], problem.x_true[0])
    clean = np.einsum("lnd,ld->ln", problem.A, problem.x_true)
    noise = (problem.y - clean) / np.where(sigma > 0, sigma, 1)[:, None]
    np.testing.assert_allclose(noise[[1, 3]], 0, atol=1e-5)
    np.testing.assert_allclose(noise[[2, 4, 5]], noise[[0, 0, 0]], atol=1e-4)
    assert_within((noise[0] ** 2).sum(), chi2_bounds(N))


def test_trials_share_the_design_of_their_cell_or_have_their_own():
    cell_key = jax.random.key(3)
    keys = jnp.stack([cell_key, *(jax.random.fold_in(cell_key, trial) for trial in range(5))])
    axes = PlantedProblem(
        A=None, y=0, x_true=0
    )  # None is refused for an A that differs from trial to trial
    draw = jax.vmap(
        lambda key: (draw_problem(key, cell_key), draw_problem(key)), out_axes=(axes, 0)
    )
    shared, own = jax.tree.map(np.asarray, jax.jit(draw)(keys))
    assert shared.A.shape == (N, D) and shared.y.shape == (6, N) and shared.x_true.shape == (6, D)
    np.testing.assert_allclose(shared.A, own.A[0], rtol=1e-6)
    assert_within((own.A**2).sum() * N, chi2_bounds(own.A.size))  # variance 1/n by default
    np.testing.assert_array_equal(
        shared.x_true, own.x_true
    )  # the signal does not depend on where A comes from
    assert len(np.unique(own.x_true, axis=0)) == 6 and len(np.unique(own.A[:, 0, 0])) == 6
    # free of noise by default
    np.testing.assert_allclose(shared.y, shared.x_true @ shared.A.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        own.y, np.einsum("lnd,ld->ln", own.A, own.x_true), rtol=1e-5, atol=1e-5
    )


def test_parts_and_trials_are_independent():
    # All parts standard normal: bits shared by any two of them, in any two of the problems, would
    # show up here.
    d, cell_key = 400, jax.random.key(11)

    @jax.jit
    @jax.vmap
    def draw(key):
        return planted(
            key,
            lambda key: jax.random.normal(key, (d, d)),
            lambda key: jax.random.normal(key, (d,)),
            lambda key, u: jax.random.normal(key, u.shape),
        )

    trial_keys = [jax.random.fold_in(cell_key, trial) for trial in range(6)]
    p = draw(jnp.stack([cell_key, *trial_keys]))
    parts = np.concatenate([p.A[:, 0], p.A[:, 1], p.A[:, :, 0], p.x_true, p.y])
    correlation = np.corrcoef(parts) - np.eye(len(parts))
    assert np.abs(correlation).max() < 5.5 / np.sqrt(d)


def test_noise_and_signal_to_noise_ratio():
    u = jnp.linspace(-3.0, 3.0, 2000)
    noise = np.asarray(ensembles.gaussian_noise(KEY, u, 0.2) - u) / 0.2
    assert_within((noise**2).sum(), chi2_bounds(2000))
    assert_law(noise, stats.norm())
    sigma = ensembles.sigma_for_snr(u, 25.0)
    np.testing.assert_allclose(sigma, np.sqrt(np.mean(np.asarray(u) ** 2) / 25), rtol=1e-5)
    assert ensembles.sigma_for_snr(u, jnp.inf) == 0
    np.testing.assert_array_equal(ensembles.gaussian_noise(KEY, u, 0.0), u)


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_logistic_labels_follow_their_chance(factor):
    num, u = 4000, np.array([-2.0, -0.3, 0.0, 1.1, -1e4, 1e4])
    labels = np.asarray(
        ensembles.logistic_labels(KEY, jnp.asarray(np.repeat(u[:, None], num, axis=1)), factor)
    )
    assert set(np.unique(labels)) == {-1.0, 1.0}
    for row, chance in zip(labels, 1 / (1 + np.exp(-factor * u.clip(-300, 300))), strict=True):
        assert_within((row > 0).sum(), binomial_bounds(num, chance))


def test_problem_has_one_dtype_throughout(dtype):
    design = partial(ensembles.gaussian, n=N, d=D, dtype=dtype)
    signal = partial(ensembles.sign_signal, d=D, K=3, dtype=dtype)
    with x64():  # where a float32 problem could turn into float64
        for response in (
            None,
            partial(ensembles.gaussian_noise, sigma=0.1),
            ensembles.logistic_labels,
        ):
            problem = jax.eval_shape(lambda key, r=response: planted(key, design, signal, r), KEY)
            assert {leaf.dtype for leaf in jax.tree.leaves(problem)} == {dtype}


@pytest.mark.parametrize(("n", "d"), [(8, 8), (3, 7)])
def test_partial_dct_operator_is_the_matrix(n, d):
    @jax.jit
    def both(x, r):
        operator = ensembles.partial_dct_operator(KEY, n, d, variance=2.0)
        products = (
            operator.matvec(x),
            operator.rmatvec(r),
            operator.column_norms(),
            operator.squared(r),
        )
        return (
            ensembles.partial_dct(KEY, n, d, variance=2.0),
            products,
            operator.columns(np.array([1, d])),
        )

    with precision("float64"):
        x, r = np.random.default_rng(0).standard_normal((2, d))
        r = r[:n]
        A, products, columns = jax.tree.map(np.asarray, both(x, r))
        for got, want in zip(
            products, (A @ x, A.T @ r, np.linalg.norm(A, axis=0), r @ A**2), strict=True
        ):
            np.testing.assert_allclose(got, want, atol=1e-12)
        np.testing.assert_allclose(columns, [A[:, 1], 0 * A[:, 1]], atol=1e-12)


def test_a_signal_is_recovered_from_transforms_alone():
    A = ensembles.partial_dct_operator(KEY, 600, 2000)
    x = ensembles.gaussian_signal(jax.random.key(1), d=2000, K=40)
    f = jaxht.LeastSquares(A, A.matvec(x), mean=False)
    result = jaxht.solve(f, jaxht.Sparse(40), jaxht.HTP())
    np.testing.assert_allclose(result.x, x, atol=1e-4)


# ---- complex numbers, in a wider range of ensembles ----


def of_circle(angles):
    """Whether phases are uniform on the unit circle."""
    assert_law(np.ravel(angles) / (2 * np.pi) + 0.5, stats.uniform())


def test_complex_normal_numbers_have_independent_parts_of_variance_one_half():
    n, d = 60, 80
    for Z in (
        np.asarray(ensembles.gaussian(KEY, n, d, variance=4.0, dtype=complex)) / 2,
        np.asarray(ensembles.row_signal(KEY, n, d, n, dtype=complex)),
        np.asarray(ensembles.gaussian_noise(KEY, jnp.zeros((n, d), complex), 3.0)) / 3,
    ):
        assert Z.dtype == np.complex64
        for part in Z.real, Z.imag:
            assert_law(part, stats.norm(0, 0.5**0.5))
        correlation = np.corrcoef(Z.real.ravel(), Z.imag.ravel())[0, 1]
        assert abs(correlation) < 5 / np.sqrt(Z.size)
        np.testing.assert_allclose(np.mean(Z**2), 0, atol=5 / np.sqrt(Z.size))


def test_complex_signs_are_phases():
    n, d = 40, 90
    A = np.asarray(ensembles.rademacher(KEY, n, d, dtype=complex))
    np.testing.assert_allclose(np.abs(A), n**-0.5, rtol=1e-5)
    of_circle(np.angle(A))
    sparse = np.asarray(ensembles.sparse_columns(KEY, n, d, 4, dtype=complex))
    np.testing.assert_array_equal(np.count_nonzero(sparse, axis=0), 4)
    np.testing.assert_allclose(np.abs(sparse[sparse != 0]), 0.5, rtol=1e-5)
    of_circle(np.angle(sparse[sparse != 0]))
    K, d = 900, 1000
    laws = {"uniform": stats.uniform(0.5, 1.5), "gaussian": stats.rayleigh(scale=0.5**0.5)}
    for name in "sign", *laws:
        x = np.asarray(SIGNALS[name](KEY, d, K, dtype=complex))
        assert np.count_nonzero(x) == K and x.dtype == np.complex64
        of_circle(np.angle(x[x != 0]))
        if name == "sign":
            np.testing.assert_allclose(np.abs(x[x != 0]), 1, rtol=1e-5)
        else:
            assert_law(np.abs(x[x != 0]), laws[name])
    for name in "decaying", "power law":
        x = np.asarray(SIGNALS[name](KEY, d, 30, dtype=complex))
        reals = np.asarray(SIGNALS[name](KEY, d, 30))
        np.testing.assert_allclose(np.abs(x), np.abs(reals), rtol=1e-5)


def test_complex_designs_have_the_covariance():
    n, d, rho = 20_000, 5, 0.7
    A = np.asarray(ensembles.toeplitz(KEY, n, d, rho, dtype=complex), complex)
    sigma = rho ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    np.testing.assert_allclose(A.conj().T @ A / n, sigma, atol=5 / np.sqrt(n))
    np.testing.assert_allclose(A.T @ A / n, 0, atol=5 / np.sqrt(n))
    with x64():
        white, wide = (
            np.asarray(ensembles.conditioned(KEY, 60, d, kappa, dtype=complex))
            for kappa in (1.0, 50.0)
        )
    root = np.linalg.lstsq(white, wide)[0]
    assert root.dtype == complex and np.abs(root.imag).max() > 0.01
    np.testing.assert_allclose(root, root.conj().T, atol=1e-10)
    expected = np.linspace(1, 50, d) * 2 / 51
    np.testing.assert_allclose(np.linalg.eigvalsh(root) ** 2, expected, rtol=1e-9)


TRANSFORMS = {
    "dft": (ensembles.partial_dft_operator, scipy.linalg.dft(16, scale="sqrtn"), "complex64"),
    "hadamard": (ensembles.partial_hadamard_operator, scipy.linalg.hadamard(16) / 4, "float32"),
    "complex dct": (
        partial(ensembles.partial_dct_operator, dtype=complex),
        scipy.fft.dct(np.eye(16), axis=0, norm="ortho"),
        "complex64",
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_operators_are_distinct_random_rows_of_the_transform(name):
    operator, whole, dtype = TRANSFORMS[name]
    n, d, num = 8, 16, 200

    @jax.jit
    @jax.vmap
    def draw(key, variance):
        A, scaled = operator(key, n, d), operator(key, n, d, variance=variance)
        norms = A.column_norms(), scaled.column_norms()
        unit = jnp.ones(n, A.dtype)
        return A.columns(jnp.arange(d)), scaled.columns(jnp.arange(d)), scaled.rmatvec(unit), norms

    variance = np.linspace(0.5, 3, num)
    A, scaled, adjoint, norms = jax.tree.map(np.asarray, draw(jax.random.split(KEY, num), variance))
    assert A.dtype == scaled.dtype == dtype
    A, scaled = np.swapaxes(A, 1, 2), np.swapaxes(scaled, 1, 2)
    rows = np.abs(A @ whole.conj().T).argmax(axis=2)
    np.testing.assert_allclose(A, whole[rows] * np.sqrt(d / n), atol=2e-6)
    assert all(len(set(lane)) == n for lane in rows)
    for row in range(d):
        assert_within((rows == row).sum(), binomial_bounds(num))
    factor = np.sqrt(n * variance)
    np.testing.assert_allclose(scaled, A * factor[:, None, None], atol=1e-5)
    np.testing.assert_allclose(adjoint, scaled.conj().sum(axis=1), atol=1e-5)
    for found, matrix in zip(norms, (A, scaled), strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, np.linalg.norm(matrix, axis=1), rtol=1e-4, atol=1e-5)


def test_rows_of_a_matrix_are_planted():
    d, c, K = 30, 4, 7
    X = np.asarray(ensembles.row_signal(KEY, d, c, K))
    support = np.asarray(ensembles.gaussian_signal(KEY, d, K)) != 0
    np.testing.assert_array_equal((X != 0), np.repeat(support[:, None], c, axis=1))
    signal = partial(ensembles.row_signal, d=d, c=c, K=K)
    first, second = (
        planted(KEY, partial(design, n=12, d=d), signal)
        for design in (ensembles.partial_dct, ensembles.partial_dct_operator)
    )
    np.testing.assert_array_equal(first.x_true, second.x_true)
    np.testing.assert_allclose(first.y, first.A @ first.x_true, atol=1e-5)
    np.testing.assert_allclose(second.y, first.y, atol=1e-5)


def test_noise_at_a_ratio_in_decibels():
    n = 5000
    for u in (jnp.linspace(-3.0, 3.0, n), 2 * jnp.exp(1j * jnp.arange(n))):
        for db in -10.0, 20.0:
            noise = np.asarray(ensembles.noise_at_snr(KEY, u, db) - u)
            sigma = np.sqrt(np.mean(np.abs(u) ** 2) / 10 ** (db / 10))
            df = 2 * n if np.iscomplexobj(u) else n
            assert_within(np.sum(np.abs(noise) ** 2) / sigma**2 * df / n, chi2_bounds(df))
        np.testing.assert_array_equal(ensembles.noise_at_snr(KEY, u, np.inf), u)
        assert ensembles.sigma_for_snr(u, 2.0).dtype == jnp.float32


def test_the_noise_target_of_a_whole_number():
    assert ensembles.noise_target(60, 1) == ensembles.noise_target(60, 1.0)


def test_low_rank_entries_at_the_ends_of_their_range():
    problem = ensembles.low_rank_entries(jax.random.key(0), 3, 0, 9)
    np.testing.assert_array_equal(problem.y, 0)
    np.testing.assert_array_equal(np.sort(problem.A), np.arange(9))
    with pytest.raises(ValueError, match=r"n must be at most m\^2 = 9, .* got 10"):
        ensembles.low_rank_entries(jax.random.key(0), 3, 1, 10)


@pytest.mark.parametrize("dtype", [float, complex])
def test_a_residual_is_below_the_noise_target(dtype):
    num = 4000
    for n in 5, 80:
        noise = ensembles.gaussian_noise(KEY, jnp.zeros((num, n), dtype), 0.3)
        values = np.sum(np.abs(np.asarray(noise)) ** 2, axis=1) / 2
        target = ensembles.noise_target(n, 0.3)
        exact = 0.3**2 * (n + 2 * np.sqrt(n * np.log(n))) / 2
        np.testing.assert_allclose(target, exact, rtol=1e-5)
        assert (values > target).sum() <= stats.binom.ppf(1 - RARE, num, 1 / n)
        # And not far below: the noise itself is not fitted.
        assert np.mean(values) > target / 4


def test_labels_are_of_real_numbers():
    with pytest.raises(ValueError, match="u must be real for labels; got complex64"):
        ensembles.logistic_labels(KEY, jnp.ones(3, complex))


def test_precision_matrices_in_the_dtype_that_is_asked_for():
    with x64():
        W = ensembles.graph_precision(np.eye(2)[::-1], np.float64(3), dtype=np.float32)
    assert W.dtype == np.float32
