"""Floors, rates and numbers of steps against runs of the algorithms in NumPy, recursions written as
loops, and enumeration."""

import itertools
import math

import numpy as np
import pytest

from jaxht import bounds
from tests.util import host, x64


def exact(fun, *args, **kwargs):
    """The value in float64, as NumPy."""
    with x64():
        return host(fun(*args, **kwargs))


def kept(z, k):
    """The k largest, others 0."""
    out = np.zeros_like(z)
    top = np.argsort(-np.abs(z), kind="stable")[:k]
    out[top] = z[top]
    return out


def restricted(H, s):
    """The extreme eigenvalues of the s x s diagonal blocks."""
    blocks = itertools.combinations(range(len(H)), s)
    values = [np.linalg.eigvalsh(H[np.ix_(S, S)]) for S in map(list, blocks)]
    return max(v[-1] for v in values), min(v[0] for v in values)


def minimum_on(H, b, S):
    """The minimiser of x'Hx/2 - b'x on S."""
    x = np.zeros(len(b))
    S = list(S)
    x[S] = np.linalg.solve(H[np.ix_(S, S)], b[S])
    return x


# ---- Shen & Li ----


@pytest.mark.parametrize("nu", [1.0, 1.02, 1.035])
def test_htsvrg_floor_is_where_the_stages_settle(nu):
    """(D.2) of the proof with equality, update by update; nu = 1.035 is the second case."""
    L, alpha, eta, m, g, omega = 2.0, 0.5, 0.06, 900, 0.3, 2.0
    assert (nu * (1 - eta * alpha) > 1) == (nu == 1.035)
    drive = 4 * nu * eta**2 * g * (4 * L * omega + g)

    def stage(gap):
        """The largest constant gap of the updates for which the last distance is not below 0."""
        growth = max(0.0, nu * (1 - eta * alpha) - 1)
        apart = 2 * omega
        known, weight = 2 / alpha * (gap + g * apart), 0.0
        for _ in range(m):
            known += 4 * nu * eta**2 * L * gap + drive
            known += growth * 2 / alpha * g * apart
            weight += 2 * nu * eta * (1 - 2 * eta * L) - growth * 2 / alpha
        return known / weight

    gap = 10.0
    for _ in range(300):
        gap = stage(gap)
    assert exact(bounds.htsvrg_floor, L, alpha, eta, m, nu, g, omega) == pytest.approx(gap)
    start = 5.0
    slope = (stage(start + 1) - stage(start)) / 1.0
    assert exact(bounds.htsvrg_rate, L, alpha, eta, m, nu) == pytest.approx(slope)


def test_htsvrg_floor_of_the_default_parameters():
    L, alpha, g, omega = 3.0, 0.7, 0.4, 2.5
    eta, m, _ = exact(bounds.htsvrg_parameters, L, alpha, 4)
    nu = 1 / (1 - eta * alpha)
    floor = exact(bounds.htsvrg_floor, L, alpha, eta, m, nu, g, omega)
    assert floor == pytest.approx(6 * omega * g + g**2 / L)
    # The bound of the error tends to that of a gap of tau, and starts above the distance.
    error = exact(bounds.htsvrg_error, L, alpha, 1.1, np.array([0, 400]), 3.0, g, omega)
    assert error[1] == pytest.approx(math.sqrt(2 * floor / alpha) + 2 * g / alpha)
    assert error[0] > 3


def test_htsvrg_floor_is_in_the_units_of_the_objective():
    """c times F has c times the floor; tau_2 as printed, without alpha above, has the same."""
    L, alpha, eta, m, nu, g, omega = 2.0, 0.5, 0.06, 900, 1.02, 0.3, 2.0
    floor = exact(bounds.htsvrg_floor, L, alpha, eta, m, nu, g, omega)
    scaled = exact(bounds.htsvrg_floor, 8 * L, 8 * alpha, eta / 8, m, nu, 8 * g, omega)
    assert scaled == pytest.approx(8 * floor)


def test_htsvrg_updates_is_where_the_rate_is_one():
    L, alpha = 2.0, 0.5
    for eta, nu in [(0.06, 1.0), (0.06, 1.02), (0.06, 1.035)]:
        m = exact(bounds.htsvrg_updates, L, alpha, eta, nu)
        assert exact(bounds.htsvrg_rate, L, alpha, eta, m, nu) == pytest.approx(1)
    assert exact(bounds.htsvrg_updates, L, alpha, 0.06, 1.0) == pytest.approx(
        4 / (0.12 * (1 - 0.48))
    )
    for eta, nu in [(0.125, 1.02), (0.06, 1.1), (0.0, 1.0)]:
        assert exact(bounds.htsvrg_updates, L, alpha, eta, nu) == np.inf


# ---- Zhou, Yuan & Feng ----


def test_hsght_floors_hold_where_the_gradient_is_flat():
    """With k = d nothing is cut, and f = sum h_i x_i^2 / 2 - g x_0 ends at g / h_0: the floors are
    above it, and so is the path of heavy ball."""
    g = 0.3
    for L in (1.0, 20.0, 400.0):
        alpha = 1.0
        floors = [exact(bounds.hsght_floor, L, alpha, 1e9, 1, g, theorem=i) for i in (1, 3)]
        assert min(floors) >= g / alpha
        p = exact(bounds.hsght_parameters, L, alpha, 1, theorem=3)
        x = old = np.zeros(2)
        h, pull = np.array([alpha, L]), np.array([g, 0.0])
        for _ in range(2000):
            x, old = x - p.eta * (h * x - pull) + p.momentum * (x - old), x
            assert np.linalg.norm(x) <= floors[1] * (1 + 1e-9)
        assert np.linalg.norm(x) == pytest.approx(g / alpha)
    # Were kappa under a root in theorem 3, it would not be.
    assert 8 * math.sqrt(400) * g / (math.sqrt(400) + 1) ** 2 < g
    assert exact(bounds.hsght_floor, 2.0, 1.0, 3, 3, g) == np.inf
    with pytest.raises(ValueError, match="theorem must be 1 or 3, got 2"):
        bounds.hsght_floor(2.0, 1.0, 3, 3, g, theorem=2)


def test_hsght_recursion_has_the_constants_of_the_theorem():
    """The recursion that the floor is derived from, with batches as in Theorem 1: the error falls
    as printed, by sqrt(1 - 1/(480 kappa)), down to the floor."""
    L, alpha, K, B, g = 3.0, 1.0, 2, 5.0, 0.1
    k, eta, omega, _, tau = exact(bounds.hsght_parameters, L, alpha, K)
    start = 4.0
    expand = 1 + 2 * math.sqrt(K / (k - K))
    floor = exact(bounds.hsght_floor, L, alpha, k, K, g)
    square = start
    for t in range(20_000):
        batch = tau * B / (start * omega**t)
        descent = (1 - eta * alpha / 2) * square
        square = expand * (descent + (eta / alpha + 3 * eta**2) * g**2 + 3 * eta**2 * B / batch)
        if t % 1000 == 0:
            assert square <= omega ** (t + 1) * start + floor**2
    assert math.sqrt(square) == pytest.approx(floor, rel=1e-3)


# ---- Yuan, Li & Zhang ----


def test_step_interval_has_the_factor_at_its_ends():
    for rho in (0.5, 1 / 1.62):
        for end in exact(bounds.grahtp_steps, 1.12, 1.0, rho):
            contraction = math.sqrt(1 - 2 * end + (end * 1.12) ** 2)
            assert contraction == pytest.approx(rho)
    low, high = exact(bounds.grahtp_steps, 1.12, 1.0)
    root = math.sqrt(4 - 3 * 1.12**2)
    assert (low, high) == pytest.approx(((2 - root) / 2 / 1.12**2, (2 + root) / 2 / 1.12**2))
    assert np.all(np.isnan(exact(bounds.grahtp_steps, 1.16, 1.0)))


def nearly_orthogonal(seed, d, spread):
    """A Hessian near the identity, and b of a planted 1-sparse point with noise."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(d, d))
    H = np.eye(d) + spread * (noise + noise.T) / 2
    x = np.zeros(d)
    x[seed % d] = 1.0
    return H, x, H @ x + 0.03 * rng.normal(size=d)


def test_grahtp_errors_stay_below_their_bounds():
    """GraHTP and FGraHTP on problems of six variables, whose restricted constants are enumerated:
    Theorem 2 with k = 1, Theorem 5 (b) with k = 2."""
    num_judged = 0
    for seed in range(8):
        H, target, b = nearly_orthogonal(seed, 6, 0.02)
        g = np.abs(H @ target - b).max()
        L, alpha = restricted(H, 3)
        eta = alpha / L**2
        mu = exact(bounds.grahtp_factors, L, alpha, eta)
        floors = exact(bounds.grahtp_floors, L, alpha, eta, 1, g)
        assert mu.grahtp < 1 and mu.fgrahtp < 1
        L2, alpha2 = restricted(H, 5)
        eta2 = alpha2 / L2**2
        relaxed = exact(bounds.grahtp_relaxed_factors, L2, alpha2, eta2, 2, 1).fgrahtp
        relaxed_floor = exact(bounds.grahtp_relaxed_floors, L2, alpha2, eta2, 2, 1, g).fgrahtp
        start = np.zeros(6)
        start[(seed + 3) % 6] = -2.0
        paths = {"grahtp": start, "fgrahtp": start, "relaxed": start}
        distance = np.linalg.norm(start - target)
        for t in range(1, 12):
            z = paths["grahtp"] - eta * (H @ paths["grahtp"] - b)
            paths["grahtp"] = minimum_on(H, b, np.flatnonzero(kept(z, 1)))
            z = paths["fgrahtp"] - eta * (H @ paths["fgrahtp"] - b)
            paths["fgrahtp"] = kept(z, 1)
            z = paths["relaxed"] - eta2 * (H @ paths["relaxed"] - b)
            paths["relaxed"] = kept(z, 2)
            error = {name: np.linalg.norm(x - target) for name, x in paths.items()}
            assert error["grahtp"] <= mu.grahtp**t * distance + floors.grahtp
            assert error["fgrahtp"] <= mu.fgrahtp**t * distance + floors.fgrahtp
            if relaxed < 1:
                num_judged += 1
                assert error["relaxed"] <= relaxed**t * distance + relaxed_floor
        assert floors.fgrahtp < 1  # so that it says something
    assert num_judged > 50


def test_relaxed_floor_of_grahtp_and_supports():
    L, alpha, K, g = 1.5, 1.0, 1, 0.02
    pair = exact(bounds.grahtp_relaxed_floors, L, alpha, 1 / (2 * L), 40, K, g)
    assert pair.grahtp == pytest.approx(2 * math.sqrt(2 * 40) * g / alpha, rel=1e-3)
    conditions = exact(bounds.grahtp_support, L, alpha, K, 0.04, math.e)
    k = 1 + 16 * 2.25
    assert conditions == pytest.approx((k, 0.46, 3 * k))
    assert exact(bounds.minimizer_support, L, alpha, 4, K, g) == pytest.approx((0.1836, 10.0))


def test_minimizer_has_the_support_above_the_magnitude():
    """Theorem 10 by enumeration: targets just above the magnitude of its first condition."""
    for seed in range(20):
        H, target, _ = nearly_orthogonal(seed, 6, 0.1)
        rng = np.random.default_rng(seed)
        noise = 0.05 * rng.normal(size=6)
        L, alpha = restricted(H, 4)
        magnitude = exact(bounds.minimizer_support, L, alpha, 2, 1, np.abs(noise).max()).magnitude
        target *= 1.001 * magnitude
        b = H @ target + noise
        points = [minimum_on(H, b, S) for S in itertools.combinations(range(6), 2)]
        best = min(points, key=lambda x: x @ H @ x / 2 - b @ x)
        assert np.argmax(np.abs(best)) == seed % 6


# ---- Axiotis & Sviridenko ----


def test_ompr_steps_by_the_recursion_of_the_proof():
    s, s_star, theta, ratio = 12.0, 4.0, 0.3, 200.0
    for kappa, share in [(1.5, 1.0), (2.5, theta)]:
        steps = exact(bounds.ompr_steps, s, s_star, kappa, ratio, theta)
        gap, t = ratio, 0
        while gap > 1:
            gap *= 1 - math.sqrt(s_star / s) * share / s_star
            t += 1
        assert t <= steps + 1
        assert t > 0.9 * steps
    assert exact(bounds.ompr_steps, s, s_star, 3.2, ratio, theta) == np.inf


def test_arht_counts_by_the_loop_of_the_algorithm():
    """The bisection of Algorithm 6 with the least progress of each kind, the chance of a core."""
    d, ratio = 40, 500.0
    counts = exact(bounds.arht_counts, 8, d, ratio)
    width, guesses = ratio, 0
    while width > 1:
        width = width / 2 + 1 / 3
        guesses += 1
    assert guesses <= counts.guesses
    assert counts.core_steps == pytest.approx(16 * math.log(1500))
    failure = 0.8**counts.cores
    assert failure * 6 * d * math.log(3 * ratio) < 1  # Lemma 3.6 at eps/3
    assert failure * guesses < 1 / d  # Theorem 3.1


def test_arht_error_is_attained_and_the_tolerance_keeps_the_support():
    alpha, zeta, eps = 0.7, 0.4, 0.3
    x = exact(bounds.arht_error, alpha, zeta, eps)
    assert alpha * x**2 / 2 - zeta * x == pytest.approx(eps)
    theta = 0.5
    allowed = zeta**2 / alpha * theta * (1 + theta / 2)
    assert exact(bounds.arht_error, alpha, zeta, allowed) == pytest.approx(2.5 * zeta / alpha)

    num_supports = 0
    for seed in range(10):
        H, target, b = nearly_orthogonal(seed, 6, 0.1)
        _, alpha = restricted(H, 3)
        gradient = H @ target - b
        zeta = np.linalg.norm(kept(gradient, 2))
        tolerance = exact(bounds.arht_tolerance, alpha, zeta, 1.0)
        value = target @ H @ target / 2 - b @ target
        for S in itertools.combinations(range(6), 2):
            x = minimum_on(H, b, S)
            excess = x @ H @ x / 2 - b @ x - value
            if excess < tolerance:
                num_supports += 1
                assert seed % 6 in S
            distance = np.linalg.norm(x - target)
            assert distance <= exact(bounds.arht_error, alpha, zeta, max(excess, 0)) + 1e-12
    assert num_supports > 20


# ---- Yuan, Liu, Wang, Liu & Metaxas ----


def test_sparse_duality_gap_bounds_the_gap_of_a_pair():
    """Theorem 13 for ridge regression: P at the minimiser on the support of w against D at its own
    dual variables, which the optimal values lie between."""
    num_finite = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        N, d, k = 12, 5, 2
        X = rng.normal(size=(N, d))
        w = np.zeros(d)
        w[:k] = 1.0
        y = X @ w + 0.5 * rng.normal(size=N)
        largest, least = restricted(X.T @ X / N, k)
        g = X.T @ (X @ w - y) / N
        for lam in (0.003, 0.03):
            bound = exact(
                bounds.sparse_duality_gap,
                *(1.0, 1.0, largest, least, lam, k),
                np.abs(g).max(),
                np.linalg.norm(w),
            )
            best = minimum_on(X.T @ X / N + lam * np.eye(d), X.T @ y / N, range(k))
            dual = X @ best - y
            P = np.mean(dual**2) / 2 + lam / 2 * best @ best
            connected = kept(-X.T @ dual / (lam * N), k)
            D = -np.mean(dual**2 / 2 + dual * y) - lam / 2 * connected @ connected
            assert -1e-12 <= P - D <= bound
            num_finite += np.isfinite(bound)
    assert num_finite > 5


class Ascent:
    """DIHT in NumPy, on samples of norm 1 whose strong duality margin is positive."""

    def __init__(self):
        rng = np.random.default_rng(3)
        self.N, self.k, self.lam = 20, 2, 0.5
        X = rng.normal(size=(self.N, 4)) + np.array([2.0, -2.0, 0.0, 0.0])
        self.y = np.sign(X[:, 0] - X[:, 1])
        self.y[::5] *= -1
        self.X = X / np.linalg.norm(X, axis=1, keepdims=True)

    def primal(self, a):
        return kept(-self.X.T @ a / (self.lam * self.N), self.k)

    def run(self, step, project, derivative, steps):
        a = np.zeros(self.N)
        path = [a]
        for t in range(steps):
            slope = (self.X @ self.primal(a) - derivative(a)) / self.N
            a = project(a + step(t) * slope)
            path.append(a)
        return path

    def margin(self, w, loss_derivative):
        support = np.abs(w) > 0
        gradient = self.X.T @ loss_derivative(self.X @ w) / self.N + self.lam * w
        assert np.abs(gradient[support]).max() < 1e-8  # stationary on its support
        return np.abs(w[support]).min() - np.abs(gradient).max() / self.lam


def test_diht_rate_bounds_the_path_on_the_smoothed_hinge():
    """Theorem 15: l* = y a + gamma a^2 / 2 on y a in [-1, 0], so that r = q = 1."""
    ascent = Ascent()
    gamma, y, X, N, lam = 0.5, ascent.y, ascent.X, ascent.N, ascent.lam

    def project(a):
        return y * np.clip(y * a, -1, 0)

    def derivative(a):
        return y + gamma * a

    def loss_derivative(u):
        return y * np.clip((y * u - 1) / gamma, -1, 0)

    def gap(a):
        w = ascent.primal(a)
        short = 1 - y * (X @ w)
        loss = np.where(short < gamma, np.maximum(short, 0) ** 2 / (2 * gamma), short - gamma / 2)
        P = loss.mean() + lam / 2 * w @ w
        D = -np.mean(y * a + gamma * a**2 / 2) - lam / 2 * w @ w
        return P - D

    best = ascent.run(lambda t: 2.0, project, derivative, 20_000)[-1]
    margin = ascent.margin(ascent.primal(best), loss_derivative)
    assert margin > 0.01 and gap(best) < 1e-9
    spectral = np.linalg.norm(X, 2)
    given = (N, spectral, lam, gamma, 1.0, 1.0, np.linalg.norm(best), margin)
    rate = exact(bounds.diht_rate, np.arange(1, 301), *given)
    path = ascent.run(lambda t: N / (gamma * (t + 2)), project, derivative, 300)
    assert rate.eta[4] == pytest.approx(N / (gamma * 7))
    errors = np.array([np.sum((a - best) ** 2) for a in path[1:]])
    assert np.all(errors <= rate.error)
    assert np.all(np.array([gap(a) for a in path[1:]]) <= rate.gap)
    # The number of steps is where the bound of the error is within Lemma 31 (a).
    near = lam * N * margin / (2 * spectral)
    at = exact(bounds.diht_rate, rate.steps - 2, *given)
    assert at.error == pytest.approx(near**2)
    blocks = exact(bounds.diht_rate, 10, *given, 4, 0.5)
    assert blocks.error == pytest.approx(4 * rate.error[9])
    assert blocks.steps == pytest.approx(16 * rate.steps)


def test_diht_linear_rate_bounds_the_path_on_squares():
    """Theorem 17: l* = a^2 / 2 + y a."""
    ascent = Ascent()
    y, X, N, lam = ascent.y, ascent.X, ascent.N, ascent.lam

    def derivative(a):
        return a + y

    def gap(a):
        w = ascent.primal(a)
        P = np.mean((X @ w - y) ** 2) / 2 + lam / 2 * w @ w
        return P + np.mean(a**2 / 2 + y * a) + lam / 2 * w @ w

    best = ascent.run(lambda t: 2.0, np.asarray, derivative, 5000)[-1]
    margin = ascent.margin(ascent.primal(best), lambda u: u - y)
    assert margin > 0.01 and gap(best) < 1e-9
    spectral = np.linalg.norm(X, 2)
    given = (N, spectral, lam, 1.0, 1.0, np.linalg.norm(best), margin)
    steps = np.arange(1, 2001, 50)
    rate = exact(bounds.diht_linear_rate, steps, *given)
    path = ascent.run(lambda t: rate.eta, np.asarray, derivative, 2000)
    # where strong duality holds, the step of the theorem contracts every step
    assert all(np.sum((path[t] - best) ** 2) <= e for t, e in zip(steps, rate.error, strict=True))
    assert all(gap(path[t]) <= g for t, g in zip(steps, rate.gap, strict=True))
    near = lam * N * margin / (2 * spectral)
    at = exact(bounds.diht_linear_rate, rate.steps, *given)
    assert at.error <= near**2
    blocks = exact(bounds.diht_linear_rate, 1000, *given, 4)
    whole = exact(bounds.diht_linear_rate, 250, *given)
    assert blocks.error == pytest.approx(whole.error, rel=1e-3)
