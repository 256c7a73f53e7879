"""The theory functions against brute force, the numbers that the papers print, and their own
inverses."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxht import bounds
from tests.util import host, x64

GOLDEN = (1 + math.sqrt(5)) / 2

# (d, k, K) with d >= k + K, then with d < k + K
SIZES = [(10, 4, 2), (10, 3, 3), (40, 4, 1), (12, 6, 5), (60, 30, 10), (3, 1, 1)]
SIZES += [(10, 7, 5), (6, 5, 4), (7, 6, 6), (50, 45, 20), (9, 7, 3)]

# every public function once, with arguments inside its range
CALLS = {
    "expansion": (bounds.expansion, (10, 4, 2)),
    "expansion_jain": (bounds.expansion_jain, (10, 4, 2)),
    "relaxed_sparsity": (bounds.relaxed_sparsity, (1.3, 4)),
    "iht_rip": (bounds.iht_rip, (4, 2)),
    "cosamp_rip": (bounds.cosamp_rip, (4, 2)),
    "htsvrg_rate": (bounds.htsvrg_rate, (2.0, 0.5, 0.06, 400, 1.02)),
    "htsvrg_parameters": (bounds.htsvrg_parameters, (2.0, 0.5, 3)),
    "ompr_rip": (bounds.ompr_rip, (4, 2)),
    "ompr_excess": (bounds.ompr_excess, (8, 4, 2.0, 0.25)),
    "arht_sparsity": (bounds.arht_sparsity, (4, 2.0)),
    "grahtp_factors": (bounds.grahtp_factors, (1.1, 1.0, 0.9)),
    "grahtp_relaxed_factors": (bounds.grahtp_relaxed_factors, (2.0, 1.0, 0.25, 40, 2)),
    "grahtp_relaxed_sparsity": (bounds.grahtp_relaxed_sparsity, (2.0, 1.0, 0.25, 2)),
    "num_steps": (bounds.num_steps, (0.9, 100.0)),
    "hsght_parameters": (bounds.hsght_parameters, (2.0, 0.5, 3)),
    "htsvrg_updates": (bounds.htsvrg_updates, (2.0, 0.5, 0.06, 1.02)),
    "htsvrg_floor": (bounds.htsvrg_floor, (2.0, 0.5, 0.06, 400, 1.02, 0.3, 2.0)),
    "htsvrg_error": (bounds.htsvrg_error, (2.0, 0.5, 1.5, 7, 3.0, 0.3, 2.0)),
    "hsght_floor": (bounds.hsght_floor, (2.0, 0.5, 400000, 3, 0.3)),
    "grahtp_steps": (bounds.grahtp_steps, (1.1, 1.0, 0.55)),
    "grahtp_floors": (bounds.grahtp_floors, (1.1, 1.0, 0.9, 4, 0.3)),
    "grahtp_relaxed_floors": (bounds.grahtp_relaxed_floors, (2.0, 1.0, 0.25, 80, 2, 0.3)),
    "grahtp_support": (bounds.grahtp_support, (2.0, 1.0, 2, 0.3, 50.0)),
    "minimizer_support": (bounds.minimizer_support, (2.0, 1.0, 4, 2, 0.3)),
    "ompr_steps": (bounds.ompr_steps, (8, 4, 2.0, 50.0, 0.25)),
    "arht_counts": (bounds.arht_counts, (8, 40, 500.0)),
    "arht_error": (bounds.arht_error, (0.5, 0.3, 0.2)),
    "arht_tolerance": (bounds.arht_tolerance, (0.5, 0.3, 2.0)),
    "sparse_duality_gap": (
        bounds.sparse_duality_gap,
        (1.2, 1.0, 1.5, 0.5, 0.1, 2, 0.2, 0.5),
    ),
    "diht_rate": (bounds.diht_rate, (30, 100, 4.0, 0.5, 0.25, 1.0, 1.5, 5.0, 0.5, 2.0, 0.5)),
    "diht_linear_rate": (
        bounds.diht_linear_rate,
        (30, 100, 2.0, 0.5, 0.25, 1.0, 5.0, 0.5, 2.0, 0.5),
    ),
}
HAS_THEOREMS = {bounds.hsght_parameters, bounds.hsght_floor}


@functools.cache
def compiled(fun):
    return jax.jit(fun, static_argnames="theorem" if fun in HAS_THEOREMS else ())


def exact(fun, *args, **kwargs):
    """The value in float64, as NumPy."""
    with x64():
        return host(compiled(fun)(*args, **kwargs))


def hard_threshold(z, k):
    """H_k by definition: the k largest in magnitude, ties to the lowest index."""
    out = np.zeros_like(z)
    for i in sorted(range(len(z)), key=lambda i: (-abs(z[i]), i))[:k]:
        out[i] = z[i]
    return out


def ratio(b, x, k):
    return np.sum((hard_threshold(b, k) - x) ** 2) / np.sum((b - x) ** 2)


def worst_target(b, k, K):
    """The K-sparse x with the largest ratio for this b: SL18 (2.5) for every number j of its
    entries outside H_k(b)."""
    order = sorted(range(len(b)), key=lambda i: (-abs(b[i]), i))
    best, worst = 1.0, None
    for j in range(1, min(K, len(b) - k) + 1):
        inside, outside = order[: K - j], order[k : k + j]
        q = np.sum(b[outside] ** 2) / np.sum(b[order[K - j : k]] ** 2)
        gamma = 1 + (q + math.sqrt((4 + q) * q)) / 2
        if gamma > best:
            x = np.zeros_like(b)
            x[inside], x[outside] = b[inside], gamma / (gamma - 1) * b[outside]
            best, worst = gamma, x
    return worst


@pytest.mark.parametrize(("d", "k", "K"), SIZES)
def test_expansion_is_attained(d, k, K):
    """SL18 Remark 5: b has exactly k + t nonzeros of one magnitude, x is b inside H_k(b) and
    stretched outside."""
    rng = np.random.default_rng(d)
    t = min(K, d - k)
    nu = exact(bounds.expansion, d, k, K)
    b = np.zeros(d)
    b[rng.permutation(d)[: k + t]] = 3.0
    b *= rng.choice([-1, 1], d)
    kept = np.flatnonzero(hard_threshold(b, k))
    dropped = np.setdiff1d(np.flatnonzero(b), kept)
    x = np.zeros(d)
    x[kept[: K - t]] = b[kept[: K - t]]
    x[dropped] = nu / (nu - 1) * b[dropped]
    assert np.count_nonzero(x) == K
    assert ratio(b, x, k) == pytest.approx(nu, rel=1e-12)
    # the same b in a larger space: the bound for r-sparse b still is attained
    pad = np.zeros(2 * d)
    assert ratio(np.append(b, pad), np.append(x, pad), k) == pytest.approx(
        exact(bounds.expansion, 3 * d, k, K, r=k + t), rel=1e-12
    )


@pytest.mark.parametrize(("d", "k", "K"), SIZES)
def test_expansion_is_never_exceeded(d, k, K):
    rng = np.random.default_rng(k)
    worst = 0.0
    bound = exact(bounds.expansion, d, k, K, r=np.arange(61))
    assert np.all(bound <= exact(bounds.expansion, d, k, K))
    for trial in range(60):
        r = rng.integers(k + 1, d + 1)
        b = np.zeros(d)
        flat = 10.0 ** -rng.integers(0, 4)  # from Gaussian entries to nearly equal ones
        b[rng.permutation(d)[:r]] = rng.choice([-1, 1], r) * (1 + flat * rng.normal(size=r))
        x = worst_target(b, k, K)
        if trial % 3 == 0:
            x = x * (rng.random(d) < 0.9) + flat * rng.normal(size=d) * (x != 0)
        assert ratio(b, x, k) <= bound[r] * (1 + 1e-12)
        worst = max(worst, ratio(b, x, k) / bound[r])
    assert worst > 0.98  # the search does come near the bound


def test_expansion_where_nothing_is_lost():
    for d, k, K, r in [
        (10, 10, 3, None),
        (10, 12, 3, None),
        (10, 10, 10, None),
        (10, 4, 0, None),
        (10, 0, 0, None),
    ]:
        assert bounds.expansion(d, k, K, r=r) == 1
    assert bounds.expansion(10, 4, 2, r=4) == bounds.expansion(10, 4, 2, r=0) == 1
    assert (
        bounds.expansion(10, 4, 2, r=5)
        < bounds.expansion(10, 4, 2, r=6)
        == bounds.expansion(10, 4, 2)
    )


def test_expansion_numbers():
    assert exact(bounds.expansion, 10, 4, 2) == pytest.approx(2)
    assert exact(bounds.expansion, jnp.inf, 7, 7) == pytest.approx(
        GOLDEN**2
    )  # sqrt(nu) = 1.618, SL18 Remark 2
    d, k, K = np.meshgrid(np.arange(1, 30), np.arange(1, 30), np.arange(0, 30))
    nu = exact(bounds.expansion, d, k, np.minimum(K, k))
    assert nu.max() == pytest.approx(GOLDEN**2)
    assert nu.min() == 1


def test_older_expansions():
    d, k, K = 30, np.arange(5, 31), 5
    jain, tight = exact(bounds.expansion_jain, d, k, K), exact(bounds.expansion, d, k, K)
    np.testing.assert_allclose(jain, (1 + np.sqrt((d - k) / (d - K))) ** 2, rtol=1e-14)
    assert np.all(tight[:-1] < jain[:-1])
    assert tight[-1] == jain[-1] == 1
    assert bounds.expansion_jain(10**7, 50, 5) == pytest.approx(
        bounds.CLASSICAL_EXPANSION, rel=1e-4
    )
    assert bounds.expansion_jain(jnp.inf, 50, 5) == bounds.CLASSICAL_EXPANSION
    assert bounds.expansion_jain(5, 5, 5) == 1


def test_relaxed_sparsity_inverts_expansion():
    nu = np.linspace(1.01, 2.6, 40)
    k = exact(bounds.relaxed_sparsity, nu, 6)
    np.testing.assert_allclose(exact(bounds.expansion, jnp.inf, k, 6), nu, rtol=1e-12)
    np.testing.assert_array_equal(
        exact(bounds.relaxed_sparsity, np.array([2.7, 1e30, np.inf]), 6), 6
    )
    assert (
        bounds.relaxed_sparsity(1.0, 6) == bounds.relaxed_sparsity(jnp.float32(0.5), 6) == jnp.inf
    )
    c = np.array([1.0, 2.0, 10.0])
    np.testing.assert_allclose(
        exact(bounds.relaxed_sparsity, 4 * c / (4 * c - 1), 3), (16 * c**2 - 4 * c) * 3
    )


@pytest.mark.parametrize(
    ("bound", "kwargs", "printed", "places"),
    [
        (bounds.iht_rip, {"k": 5, "K": 5}, 0.2185, 4),
        (bounds.iht_rip, {"k": 100, "K": 5}, 0.316, 3),
        (bounds.iht_rip, {"nu": bounds.CLASSICAL_EXPANSION}, 0.177, 3),
        (bounds.cosamp_rip, {"k": 5, "K": 5}, 0.312, 3),
        (bounds.cosamp_rip, {"nu": bounds.CLASSICAL_EXPANSION}, 0.299, 3),
        (bounds.ompr_rip, {"s": 7, "s_star": 7}, 1 / 3, 7),
        (bounds.ompr_rip, {"s": 14, "s_star": 7}, 0.4776, 3),
        (bounds.ompr_rip, {"s": 21, "s_star": 7}, 0.552, 3),
        (bounds.ompr_rip, {"s": 210, "s_star": 7}, 0.833, 3),
    ],
)
def test_rip_numbers(bound, kwargs, printed, places):
    assert bound(**kwargs) == pytest.approx(printed, abs=0.5001 * 10**-places)


def test_rip_conditions_solve_their_equations():
    d, k, K = 40, np.arange(6, 45), 6
    nu = exact(bounds.expansion, d, k, K)
    iht, cosamp = exact(bounds.iht_rip, k, K, d=d), exact(bounds.cosamp_rip, k, K, d=d)
    np.testing.assert_allclose(np.sqrt(2 * nu) * iht, 0.5, rtol=1e-13)
    u = cosamp**2
    np.testing.assert_allclose(2 * u * (1 + (nu - 1) * u) / (1 - u), 0.25, rtol=1e-13)
    relaxed = nu > 1
    printed = np.sqrt(np.sqrt(32 * nu[relaxed] + 49) - 9) / (4 * np.sqrt(nu[relaxed] - 1))
    np.testing.assert_allclose(cosamp[relaxed], printed, rtol=1e-12)
    assert cosamp[~relaxed] == pytest.approx(1 / 3)


@pytest.mark.parametrize("c", [1.0, 3.7, 250.0])
def test_htsvrg_parameters(c):
    alpha = 0.3
    L = c * alpha
    eta, m, k = exact(bounds.htsvrg_parameters, L, alpha, 5)
    assert (eta * L, m, k / 5) == pytest.approx((1 / 8, 32 * c - 4, 64 * c**2 - 8 * c))
    nu = exact(bounds.expansion, 1e9, k, 5)
    assert nu == pytest.approx(1 / (1 - eta * alpha), rel=1e-12)
    assert exact(bounds.htsvrg_rate, L, alpha, eta, m, nu) == pytest.approx(2 / 3, rel=1e-9)


def test_htsvrg_rate_is_each_case_of_the_theorem():
    L, alpha, m = 2.0, 0.5, 300.0
    eta = np.array([0.03, 0.06, 0.1, 0.12])[:, None]
    nu = np.linspace(1, 4 * L / (4 * L - alpha) - 1e-9, 50)
    beta = exact(bounds.htsvrg_rate, L, alpha, eta, m, nu)
    D = 2 * nu * eta * alpha - 2 * nu * eta**2 * alpha * L - nu + 1
    small = 1 / (nu * eta * alpha * (1 - 2 * eta * L) * m) + 2 * eta * L / (1 - 2 * eta * L)
    large = np.where(D > 0, 1 / (D * m) + 2 * nu * eta**2 * alpha * L / D, np.inf)
    first = nu <= 1 / (1 - eta * alpha)
    assert first.any() and not first.all()
    np.testing.assert_allclose(beta, np.where(first, small, large), rtol=1e-10)
    # Proposition 14: the best nu is where the cases meet
    meet = exact(bounds.htsvrg_rate, L, alpha, eta, m, 1 / (1 - eta * alpha))
    assert np.all(meet <= beta + 1e-12)


def test_htsvrg_rate_promises_nothing_outside_its_conditions():
    L, alpha = 2.0, 0.5
    limit = 4 * L / (4 * L - alpha)
    assert bounds.htsvrg_rate(L, alpha, 0.1, 1e6, 1.05) < 1
    assert 1 < bounds.htsvrg_rate(L, alpha, 0.1, 10, 1.05) < jnp.inf  # m too small
    for eta, nu in [
        (0.125, 1.05),
        (-0.1, 1.05),
        (0.0, 1.0),
        (0.1, limit),
        (0.1, bounds.CLASSICAL_EXPANSION),
    ]:
        assert bounds.htsvrg_rate(L, alpha, eta, 1e6, nu) == jnp.inf
    assert bounds.htsvrg_rate(L, alpha, 0.1, 1e6, jnp.float32(0.99)) == jnp.inf
    # inside the printed conditions (eta < 1/(4L), nu < limit), and yet D < 0
    assert bounds.htsvrg_rate(L, alpha, 0.01, 1e6, 0.5 * (1 + limit)) == jnp.inf


def test_ompr_forms_agree():
    s = np.array([2.0, 5.0, 17.0, 90.0])
    delta = exact(bounds.ompr_rip, s, 2)
    kappa = (1 + delta) / (1 - delta)
    np.testing.assert_allclose(2 * kappa**2 / 4, s, rtol=1e-12)
    # theta of Corollary 4.5: the excess of Theorem 4.2 is finite up to there
    theta = 0.25
    limit = exact(bounds.ompr_rip, s, 2, theta)
    reached = (1 + limit) / (1 - limit)
    assert np.all(np.isfinite(exact(bounds.ompr_excess, s, 2, reached * 0.999, theta)))
    assert np.all(np.isinf(exact(bounds.ompr_excess, s, 2, reached * 1.001, theta)))
    assert np.all(np.isfinite(exact(bounds.ompr_excess, s, 2, kappa * 0.999)))
    assert np.all(np.isinf(exact(bounds.ompr_excess, s, 2, kappa * 1.001)))


def test_ompr_excess_numbers():
    assert bounds.ompr_excess(16, 4, 2.0) == bounds.ompr_excess(25, 4, 2.0) == 0  # q = 1, q < 1
    assert bounds.ompr_excess(16, 4, 3.0) == pytest.approx(8)  # q = 3/2: 4 (1/2) / (1/2)^2
    assert bounds.ompr_excess(16, 4, 3.0, 0.25) == pytest.approx(24)  # 4 (3/4) (1/2) / (1/4)^2
    assert bounds.ompr_excess(16, 4, 3.0, 0.5) == jnp.inf


def test_arht_sparsity():
    np.testing.assert_allclose(bounds.arht_sparsity(3, np.array([1.0, 10.0])), [54.0, 378.0])
    assert bounds.arht_sparsity(3, jnp.float32(0.0625)) == pytest.approx(
        3 * 7.25
    )  # the first branch, if ever


def best_factors(kappa):
    return exact(bounds.grahtp_factors, kappa, 1.0, 1 / np.square(kappa))


def test_grahtp_factors():
    assert best_factors(1.0) == (0, 0)
    rho = math.sqrt(1 - 1 / 1.1**2)
    assert best_factors(1.1) == pytest.approx((rho / (1 - rho), 1.62 * rho))
    off = exact(bounds.grahtp_factors, 2.0, 1.0, np.array([0.1, 0.5, 1.0]))
    np.testing.assert_allclose(off.fgrahtp / 1.62, np.sqrt([0.84, 1.0, 3.0]))
    np.testing.assert_allclose(
        off.grahtp, [math.sqrt(0.84) / (1 - math.sqrt(0.84)), np.inf, np.inf]
    )


def test_grahtp_factors_pass_one_and_cross():
    limit = 2 / math.sqrt(3)
    assert best_factors(limit - 1e-6).grahtp < 1 < best_factors(limit + 1e-6).grahtp
    assert best_factors(1.26).fgrahtp < 1 < best_factors(1.2713).fgrahtp
    kappa = np.linspace(1.001, 1.26, 2000)
    mu_1, mu_2 = best_factors(kappa)
    (crossing,) = np.flatnonzero(np.diff(np.sign(mu_1 - mu_2)))
    assert mu_1[0] < mu_2[0]
    assert kappa[crossing] == pytest.approx(1.082, abs=5e-4)
    assert mu_2[crossing] / 1.62 == pytest.approx(0.383, abs=1e-3)


def test_grahtp_relaxed_factors():
    kappa = np.linspace(1, 60, 500)
    K = 10
    k = exact(bounds.grahtp_relaxed_sparsity, kappa, 1.0, 1 / (2 * kappa), K).grahtp
    np.testing.assert_allclose(k, (2 + 16 * kappa**2) * K)
    mubar_1 = exact(bounds.grahtp_relaxed_factors, kappa, 1.0, 1 / (2 * kappa), k, K).grahtp
    np.testing.assert_allclose(mubar_1, 1 - 1 / (8 * kappa))
    assert mubar_1[0] == 0.875 and mubar_1[-1] < 1  # "(0.87, 1)"
    mubar_2 = exact(bounds.grahtp_relaxed_factors, kappa, 1.0, 1 / kappa**2, k, K).fgrahtp
    np.testing.assert_allclose(
        mubar_2,
        np.sqrt((1 - 1 / kappa**2) * exact(bounds.expansion, jnp.inf, k, K)),
        rtol=1e-6,
        atol=1e-7,
    )
    # better than mubar_1 for small kappa only; with this k it passes 1 at kappa^4 - 17 kappa^2 - 2
    # = 0
    last = math.sqrt((17 + math.sqrt(297)) / 2)
    np.testing.assert_array_equal(mubar_2 < 1, kappa < last)
    assert np.all((mubar_2 < mubar_1)[kappa < 1.4]) and not np.any((mubar_2 < mubar_1)[kappa > 2.5])
    assert np.any((mubar_2 < 0.65) & (kappa < 1.3)) and np.any(
        mubar_2[kappa < last] > 0.99
    )  # "(0.65, 1)"


def test_fgrahtp_contracts_exactly_from_its_sparsity_on():
    L, alpha, K = 2.5, 1.0, 10
    for eta in (0.05, 0.16, 0.25):
        k = exact(bounds.grahtp_relaxed_sparsity, L, alpha, eta, K).fgrahtp
        rho = math.sqrt(1 - 2 * eta * alpha + (eta * L) ** 2)
        assert K < k <= K * rho / (1 - rho) ** 2 / 4
        below, above = (
            exact(bounds.grahtp_relaxed_factors, L, alpha, eta, k * f, K).fgrahtp
            for f in (0.999, 1.001)
        )
        assert above < 1 < below
    assert bounds.grahtp_relaxed_sparsity(1.0, 1.0, 1.0, K).fgrahtp == K  # rho = 0
    assert bounds.grahtp_relaxed_sparsity(L, alpha, 0.4, K).fgrahtp == jnp.inf  # rho > 1


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.7, 33.3, 2.0**29, 1e9])
def test_num_steps_is_the_least_number(ratio):
    for factor in (0.0, 0.11, 0.5, 0.53, 0.9, 0.997):
        t = 0
        while factor**t * ratio > 1:
            t += 1
        assert exact(bounds.num_steps, factor, ratio) == t
    stuck = exact(bounds.num_steps, np.array([1.0, 1.2, np.inf]), ratio)
    np.testing.assert_array_equal(stuck, np.inf if ratio > 1 else 0)


def test_num_steps_is_not_the_printed_count():
    assert 0.9 ** math.ceil(math.log(1e3) / 0.9) * 1e3 > 1
    assert 0.9 ** float(bounds.num_steps(0.9, 1e3)) * 1e3 <= 1


def test_hsght_parameters():
    one, two, three = (exact(bounds.hsght_parameters, 2.0, 0.5, 3, theorem=i) for i in (1, 2, 3))
    tau = 40 * (1 + 2 * math.sqrt(3 / (34179 - 3))) / 3
    assert one == pytest.approx((34179, 1 / 12, 1 - 1 / 1920, 0, tau))
    assert two == pytest.approx((3075, 1 / 4, 1 - 1 / 64, 0, 4736))
    assert three == pytest.approx((195, 8 / 9, (35 / 36) ** 2, 1 / 9, 4))
    assert exact(bounds.hsght_parameters, 2.0, 0.5, 3) == one
    with pytest.raises(ValueError, match="theorem must be 1, 2 or 3, got 4"):
        bounds.hsght_parameters(2.0, 0.5, 3, theorem=4)


def test_hsght_momentum_is_optimal_heavy_ball():
    """Both extreme curvatures contract by sqrt(momentum), the fastest that heavy ball can do."""
    L, alpha = 7.0, 0.4
    p = exact(bounds.hsght_parameters, L, alpha, 3, theorem=3)
    for h in (alpha, L):
        radius = np.abs(
            np.linalg.eigvals([[1 + p.momentum - p.eta * h, -p.momentum], [1, 0]])
        ).max()
        assert radius == pytest.approx(math.sqrt(p.momentum), rel=1e-6)
    assert math.sqrt(p.momentum) < math.sqrt(p.omega) < 1


def test_monotone():
    d, K = 60, 8
    k = np.arange(K, d)
    assert np.all(np.diff(exact(bounds.expansion, d, k, K)) < 0)
    assert np.all(np.diff(exact(bounds.expansion, d, 30, np.arange(0, 31))) > 0)
    assert np.all(np.diff(exact(bounds.expansion, np.arange(20, 29), 20, K)) > 0)
    assert np.ptp(exact(bounds.expansion, np.arange(28, 90), 20, K)) == 0
    assert np.all(np.diff(exact(bounds.expansion, d, 20, K, r=np.arange(20, 29))) > 0)
    for rip in (bounds.iht_rip, bounds.cosamp_rip):
        assert np.all(np.diff(exact(rip, k, K, d=d)) > 0)
    assert np.all(
        np.diff(exact(bounds.htsvrg_rate, 2.0, 0.5, 0.06, np.arange(100, 900, 100), 1.02)) < 0
    )
    assert np.all(np.diff(exact(bounds.ompr_excess, np.arange(11, 40), 10, 2.0)) < 0)


def test_every_public_function_is_in_the_table():
    public = {name for name in bounds.__all__ if name.islower()}
    assert public == set(CALLS)


def assert_close(a, b):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=2e-5), a, b)


@pytest.mark.parametrize(("fun", "args"), CALLS.values(), ids=CALLS)
def test_jit_and_vmap(fun, args):
    """A compiled call, vmap, broadcasting and a loop agree, also on integers where implicit
    promotion is forbidden."""
    assert all(jnp.isfinite(leaf) for leaf in jax.tree.leaves(fun(*args)))
    assert_close(compiled(fun)(*args), fun(*args))
    assert_close(exact(fun, *args), fun(*args))
    rows = [[a * (1 + i / 8) if isinstance(a, float) else a + i for a in args] for i in range(3)]
    stacked = [jnp.array(column) for column in zip(*rows, strict=True)]
    loop = jax.tree.map(lambda *leaves: np.stack(leaves), *(fun(*row) for row in rows))
    with jax.numpy_dtype_promotion("strict"):
        assert_close(compiled(fun)(*stacked), loop)
        assert_close(jax.jit(jax.vmap(fun))(*stacked), loop)


@pytest.mark.parametrize(("fun", "args"), CALLS.values(), ids=CALLS)
def test_dtypes(fun, args):
    """Results are in the default float, or in that of the floating arguments; Python numbers and
    integers yield."""

    def dtypes(*args):
        return {leaf.dtype.name for leaf in jax.tree.leaves(jax.eval_shape(lambda: fun(*args)))}

    assert dtypes(*args) == {"float32"}
    with x64():
        assert dtypes(*args) == {"float64"}
        assert dtypes(*(jnp.int32(a) if isinstance(a, int) else a for a in args)) == {"float64"}
        for i in range(len(args)):
            assert dtypes(*args[:i], jnp.float32(args[i]), *args[i + 1 :]) == {"float32"}


@pytest.mark.parametrize(("fun", "args"), CALLS.values(), ids=CALLS)
def test_gradients(fun, args):
    """Automatic derivatives against central differences, in every argument."""

    def total(args):
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(fun(*args)))

    with x64():
        at = np.array(args, float)
        value_and_grad = jax.jit(jax.value_and_grad(total))
        _, gradient = value_and_grad(at)
        if fun is bounds.num_steps:
            assert np.all(gradient == 0)
            return
        assert np.any(gradient != 0)
        for h, partial in zip(np.diag(1e-6 * at), gradient, strict=True):
            difference = (value_and_grad(at + h)[0] - value_and_grad(at - h)[0]) / (2 * h.sum())
            np.testing.assert_allclose(partial, difference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fun", [bounds.expansion, bounds.expansion_jain])
def test_gradients_are_finite_where_the_bound_is_flat(fun):
    sizes = np.array([(10, 10, 4), (10, 12, 4), (10, 4, 0), (4, 4, 4)], float)
    slopes = jax.jit(jax.vmap(jax.grad(lambda a: fun(*a))))(sizes)
    assert np.all(np.isfinite(slopes))


def test_traced_sizes_are_not_checked():
    nu = jax.jit(bounds.expansion)(10, jnp.array([3, 4, 5]), 4)
    assert (
        nu[0] == jnp.inf
        and nu[1] == bounds.expansion(10, 4, 4)
        and nu[2] == bounds.expansion(10, 5, 4)
    )
    assert jax.jit(bounds.iht_rip)(3, 4) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.expansion(10, 3, 4), "K must be at most k, got K = 4, k = 3"),
        (lambda: bounds.expansion(10, -1, 0), "k must be at least 0, got k = -1"),
        (lambda: bounds.expansion(10, 3, -2), "K must be at least 0, got K = -2"),
        (lambda: bounds.expansion(10, 3, 2, r=-1), "r must be at least 0, got r = -1"),
        (lambda: bounds.expansion_jain(-10, 3, 2), "d must be at least 0, got d = -10"),
        (lambda: bounds.iht_rip(3, 4), "K must be at most k, got K = 4, k = 3"),
        (lambda: bounds.cosamp_rip(nu=0.5), "nu must be at least 1, got nu = 0.5"),
        (
            lambda: bounds.htsvrg_parameters(1.0, 2.0, 3),
            "alpha must be at most L, got alpha = 2.0, L = 1.0",
        ),
        (
            lambda: bounds.grahtp_relaxed_factors(2.0, 1.0, 0.1, 3, 4),
            "K must be at most k, got K = 4, k = 3",
        ),
        (lambda: bounds.ompr_rip(-1, 2), "s must be at least 0, got s = -1"),
        (lambda: bounds.arht_sparsity(4, 0.5), "kappa must be at least 1, got kappa = 0.5"),
    ],
)
def test_wrong_python_numbers_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_ends_of_the_domain():
    assert float(bounds.relaxed_sparsity(1.0, 0.0)) == np.inf
    assert np.isnan(float(bounds.num_steps(0.5, np.nan)))
    assert float(bounds.num_steps(0.5, 1.0)) == 0
