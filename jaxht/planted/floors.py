"""How near to its target a method comes, and in how many steps; :mod:`jaxht.bounds` has the
symbols."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxht._typing import Numeric
from jaxht.planted.bounds import (
    GraHTPPair,
    expansion,
    gradient_factor,
    htsvrg_divisor,
    htsvrg_rate,
    promotes,
)
from jaxht.planted.division import divide_where


@promotes
def htsvrg_updates(L: Numeric, alpha: Numeric, eta: Numeric, nu: Numeric) -> Array:
    """Number m of inner updates above which a stage of HT-SVRG contracts the expected gap.

        m > 1 / (D - 2 nu eta^2 alpha L),   for nu <= 1 / (1 - eta alpha):
        m > 1 / (nu eta alpha (1 - 4 eta L))

    Args:
        L, alpha, eta, nu: as in `htsvrg_rate`, which has D.

    Returns:
        The bound on m; `inf` where no m is enough.

    Source: SL18 (4.4), there with c = L / alpha and eta' = eta L: m > c / (nu eta' (1 - 4 eta')).

    Example:
        >>> from jaxht import bounds
        >>> round(float(bounds.htsvrg_updates(2.0, 0.5, 0.0625, 1.02)), 3)
        62.745
    """
    variance = 2 * nu * eta**2 * alpha * L
    room = htsvrg_divisor(L, alpha, eta, nu) - variance
    holds = (eta > 0) & (4 * eta * L < 1) & (nu >= 1) & (room > 0)
    return divide_where(holds, 1, room, jnp.inf)


@promotes
def htsvrg_floor(
    L: Numeric,
    alpha: Numeric,
    eta: Numeric,
    m: Numeric,
    nu: Numeric,
    gradient: Numeric,
    radius: Numeric,
) -> Array:
    """Floor tau of the expected gap of HT-SVRG: E F(x_s) - F(x) <= beta^s (F(x_0) - F(x)) + tau.

        Q = (16 nu eta^2 L omega m + 4 (1 + e m) omega / alpha) g + 4 nu eta^2 m g^2,
        tau = alpha Q / (2 D (1 - beta) m),   e = max(0, nu (1 - eta alpha) - 1)

    Args:
        L, alpha, eta, m, nu: as in `htsvrg_rate`, which has beta and D.
        gradient: g, the norm of the 3k + K largest entries of grad F(x).
        radius: omega, the radius of the ball, which holds x.

    Returns:
        tau; `inf` where beta is not below 1. With `htsvrg_parameters` it is 6 omega g + g^2 / L.

    Source: SL18 Theorem 10, tau_1 and tau_2, with three corrections. Its proof divides by 2 D m, so
    that tau_2 lacks a factor alpha, without which it is not in the units of F; 2 omega / alpha in Q
    takes points of the ball for at most omega apart, which are 2 omega apart; and for e > 0 the
    same term stands before the distance at the random iterate. (4.6) prints 5 omega g / alpha +
    g^2 / (alpha L) accordingly.

    Example:
        >>> from jaxht import bounds
        >>> round(float(bounds.htsvrg_floor(2.0, 0.5, 0.0625, 124, 32 / 31, 0.1, 3.0)), 4)
        1.805
    """
    beta = htsvrg_rate(L, alpha, eta, m, nu)
    growth = jnp.maximum(0, nu * (1 - eta * alpha) - 1)
    drift = 16 * nu * eta**2 * L * m + 4 * (1 + growth * m) / alpha
    noise = 4 * nu * eta**2 * m
    Q = drift * radius * gradient + noise * gradient**2
    D = htsvrg_divisor(L, alpha, eta, nu)
    return divide_where(beta < 1, alpha * Q, 2 * D * (1 - beta) * m, jnp.inf)


@promotes
def htsvrg_error(
    L: Numeric,
    alpha: Numeric,
    smoothness: Numeric,
    s: Numeric,
    distance: Numeric,
    gradient: Numeric,
    radius: Numeric,
) -> Array:
    """Bound of the expected error ||x_s - x*|| of HT-SVRG with `htsvrg_parameters`.

        (2/3)^{s/2} (sqrt(2 L'/alpha) ||x_0 - x*|| + g / sqrt(alpha L')) + sqrt(2 tau/alpha)
        + 2 g / alpha,   tau = 6 omega g + g^2 / L

    Args:
        L, alpha: as in `htsvrg_rate`.
        smoothness: L', that of the mean F at level 3k + K.
        s: number of stages.
        distance: ||x_0 - x*||.
        gradient: g, the norm of the 3k + K largest entries of grad F(x*).
        radius: omega, the radius of the ball, which holds x*.

    Returns:
        The bound; its limit for s to infinity is the floor.

    Source: SL18 Corollary 16 by its proof, with the tau of `htsvrg_floor`.

    Example:
        >>> from jaxht import bounds
        >>> round(float(bounds.htsvrg_error(2.0, 0.5, 1.0, 30, 3.0, 0.0, 3.0)), 4)
        0.0137
    """
    tau = 6 * radius * gradient + gradient**2 / L
    start = jnp.sqrt(2 * smoothness / alpha) * distance
    start += gradient / jnp.sqrt(alpha * smoothness)
    return (2 / 3) ** (s / 2) * start + jnp.sqrt(2 * tau / alpha) + 2 * gradient / alpha


@promotes
def hsght_floor(
    L: Numeric, alpha: Numeric, k: Numeric, K: Numeric, gradient: Numeric, *, theorem: int = 1
) -> Array:
    """Floor of the expected error ||x_t - x*|| of HSG-HT (theorem 1) and AHSG-HT (theorem 3).

        1: g sqrt(a (2 kappa + 1) / (12 (1 - beta))) / L,   a = 1 + 2 sqrt(K / (k - K)),
           beta = a (1 - 1/(12 kappa))
        3: 8 kappa g / (sqrt L + sqrt alpha)^2

    Args:
        L, alpha: as in `hsght_parameters`.
        k, K: sparsity of the iterates and of the target.
        gradient: g, the norm of grad f(x*) on its 2k (theorem 3: 3k) largest entries and the
            support of x*.
        theorem: 1 or 3, static; theorem 2 bounds the gap to f(x*) and has no floor.

    Returns:
        The floor; `inf` where beta is not below 1.

    Raises:
        ValueError: for another theorem.

    Source: ZYF18 Theorems 1 and 3. The factor of the first is not legible in the text at hand: it
    is derived here as the rest of the theorem is, whose constants 480 and 40 come out. A quadratic
    of curvature alpha ends g / alpha away, which both respect; 8 sqrt(kappa) would not.

    Example:
        >>> from jaxht import bounds
        >>> round(float(bounds.hsght_floor(2.0, 0.5, 195, 3, 0.1, theorem=3)), 4)
        0.7111
    """
    kappa = L / alpha
    if theorem == 1:
        share = divide_where(k > K, K, k - K, jnp.inf)
        extra = 2 * jnp.sqrt(share)  # a - 1
        contraction = 1 / (12 * kappa)
        room = contraction - extra * (1 - contraction)  # 1 - beta, without cancellation
        square = divide_where(room > 0, (1 + extra) * (2 * kappa + 1), 12 * room, jnp.inf)
        return gradient * jnp.sqrt(square) / L
    if theorem == 3:
        return 8 * kappa * gradient / (jnp.sqrt(L) + jnp.sqrt(alpha)) ** 2
    raise ValueError(f"theorem must be 1 or 3, got {theorem}")


class StepInterval(NamedTuple):
    """An open interval of step sizes.

    Attributes:
        low: its lower end.
        high: its upper end.
    """

    low: Array
    high: Array


@promotes
def grahtp_steps(L: Numeric, alpha: Numeric, rho: Numeric = 0.5) -> StepInterval:
    """Step sizes whose gradient step contracts by less than rho.

        (alpha -+ sqrt(alpha^2 - L^2 (1 - rho^2))) / L^2

    Args:
        L, alpha: as in `grahtp_factors`.
        rho: 1/2 for GraHTP, 1/1.62 for FGraHTP.

    Returns:
        `StepInterval`; NaN where there is none, for kappa >= 1/sqrt(1 - rho^2).

    Source: YLZ18 (3), for rho = 1/2.

    Example:
        >>> from jaxht import bounds
        >>> [round(float(end), 4) for end in bounds.grahtp_steps(1.1, 1.0)]
        [0.5751, 1.0778]
    """
    square = alpha**2 - L**2 * (1 - rho**2)
    exists = square > 0
    half = jnp.sqrt(jnp.where(exists, square, 1))

    def end(sign: int) -> Array:
        return jnp.where(exists, (alpha + sign * half) / L**2, jnp.nan)

    return StepInterval(low=end(-1), high=end(+1))


@promotes
def grahtp_floors(
    L: Numeric, alpha: Numeric, eta: Numeric, k: Numeric, gradient: Numeric
) -> GraHTPPair:
    """Floors of the error towards a k-sparse target, to which it falls by `grahtp_factors`.

        GraHTP: 2.83 eta sqrt(k) g / (1 - 2 rho),   FGraHTP: 2.81 eta sqrt(k) g / (1 - 1.62 rho)

    Args:
        L, alpha, eta: as in `grahtp_factors`, which has rho.
        k: sparsity of the iterates and of the target.
        gradient: g = ||grad f(xbar)||_inf.

    Returns:
        `GraHTPPair` of the floors; `inf` where 2 rho or 1.62 rho is not below 1. The supports are
        those of xbar if its smallest nonzero is above twice the floor.

    Source: YLZ18 Theorem 2; the condition on xbar_min: Corollary 3.

    Example:
        >>> from jaxht import bounds
        >>> [round(float(floor), 4) for floor in bounds.grahtp_floors(1.1, 1.0, 0.9, 4, 0.01)]
        [0.3368, 0.1619]
    """
    rho = gradient_factor(L, alpha, eta)
    scale = eta * jnp.sqrt(k) * gradient
    return GraHTPPair(
        grahtp=divide_where(2 * rho < 1, 2.83 * scale, 1 - 2 * rho, jnp.inf),
        fgrahtp=divide_where(1.62 * rho < 1, 2.81 * scale, 1 - 1.62 * rho, jnp.inf),
    )


@promotes
def grahtp_relaxed_floors(
    L: Numeric, alpha: Numeric, eta: Numeric, k: Numeric, K: Numeric, gradient: Numeric
) -> GraHTPPair:
    """Floors of the error towards a K-sparse target, to which it falls by `grahtp_relaxed_factors`.

        GraHTP: 2.83 sqrt(k) g / alpha,   FGraHTP: sqrt(nu) eta sqrt(2k + K) g / (1 - mubar_2)

    Args:
        L, alpha, eta, k, K: as in `grahtp_relaxed_factors`, which has nu and mubar_2.
        gradient: g = ||grad f(xbar)||_inf.

    Returns:
        `GraHTPPair` of the floors; `inf` for FGraHTP where mubar_2 is not below 1. The supports
        hold that of xbar if its smallest nonzero is above twice the floor.

    Source: YLZ18 Theorem 5; the condition on xbar_min: Corollary 7.

    Example:
        >>> from jaxht import bounds
        >>> pair = bounds.grahtp_relaxed_floors(2.0, 1.0, 0.25, 144, 2, 0.001)
        >>> [round(float(floor), 4) for floor in pair]
        [0.034, 0.0554]
    """
    gamma = jnp.sqrt(expansion(jnp.inf, k, K))
    mubar_2 = gradient_factor(L, alpha, eta) * gamma
    scale = gamma * eta * jnp.sqrt(2 * k + K) * gradient
    return GraHTPPair(
        grahtp=2.83 * jnp.sqrt(k) * gradient / alpha,
        fgrahtp=divide_where(mubar_2 < 1, scale, 1 - mubar_2, jnp.inf),
    )


class GraHTPSupport(NamedTuple):
    """The conditions under which GraHTP with step size 1/(2L) ends with the support of the target
    on top.

    Attributes:
        k: least sparsity of the iterates.
        magnitude: what the smallest nonzero of the target has to exceed.
        steps: number of steps, with this k.
    """

    k: Array
    magnitude: Array
    steps: Array


@promotes
def grahtp_support(
    L: Numeric, alpha: Numeric, K: Numeric, excess: Numeric, ratio: Numeric
) -> GraHTPSupport:
    """The conditions under which GraHTP with step size 1/(2L) ends with the support of the target
    on top.

        k = (1 + 16 kappa^2) K,   xbar_min > 2.3 sqrt((f(xbar) - f*) / alpha),
        t = 2 k kappa ln((f(x0) - f*) / Delta)

    Args:
        L, alpha: smoothness and strong convexity at level 2k.
        K: sparsity of the target xbar.
        excess: f(xbar) - f*, with f* the least value of a k-sparse vector.
        ratio: (f(x0) - f*) / Delta, with Delta the distance from f* to the least value above it
            that a vector of another support of k entries has.

    Returns:
        `GraHTPSupport`.

    Source: YLZ18 Theorem 8.

    Example:
        >>> from jaxht import bounds
        >>> [round(float(bound), 2) for bound in bounds.grahtp_support(2.0, 1.0, 1, 0.01, 100.0)]
        [65.0, 0.23, 1197.34]
    """
    kappa = L / alpha
    k = (1 + 16 * kappa**2) * K
    magnitude = 2.3 * jnp.sqrt(excess / alpha)
    return GraHTPSupport(k=k, magnitude=magnitude, steps=2 * k * kappa * jnp.log(ratio))


class MinimizerSupport(NamedTuple):
    """The conditions, of which one suffices, that the k-sparse minimiser has the support of the
    target on top.

    Attributes:
        magnitude: what the smallest nonzero of the target has to exceed, for any k >= K.
        k: sparsity from which the magnitude of `grahtp_support` is enough.
    """

    magnitude: Array
    k: Array


@promotes
def minimizer_support(
    L: Numeric, alpha: Numeric, k: Numeric, K: Numeric, gradient: Numeric
) -> MinimizerSupport:
    """The conditions that the k-sparse minimiser of f has the support of the target on top.

        xbar_min > 4.59 sqrt(k) g / alpha,   or
        k >= (1 + 4 kappa^2) K and xbar_min > 2.3 sqrt((f(xbar) - f*) / alpha)

    Args:
        L, alpha: smoothness and strong convexity at level 2k.
        k: sparsity of the minimiser.
        K: sparsity of the target xbar.
        gradient: g = ||grad f(xbar)||_inf.

    Returns:
        `MinimizerSupport`.

    Source: YLZ18 Theorem 10.

    Example:
        >>> from jaxht import bounds
        >>> [float(bound) for bound in bounds.minimizer_support(2.0, 1.0, 4, 2, 0.5)]
        [4.590000152587891, 34.0]
    """
    kappa = L / alpha
    magnitude = 4.59 * jnp.sqrt(k) * gradient / alpha
    return MinimizerSupport(magnitude=magnitude, k=(1 + 4 * kappa**2) * K)


@promotes
def ompr_steps(
    s: Numeric, s_star: Numeric, kappa: Numeric, ratio: Numeric, theta: Numeric = 1.0
) -> Array:
    """Number of steps after which OMPR is within eps (and `ompr_excess`) of the target.

        sqrt(s s*) ln(ratio) for q <= 1,   sqrt(s s*) ln(ratio) / theta for 1 < q < 2 - theta,
        q = kappa sqrt(s*/s)

    Args:
        s, s_star, kappa: as in `ompr_excess`.
        ratio: (f(x0) - f(x*)) over the wanted gap: eps, or in the second case eps plus
            `ompr_excess`.
        theta: in (0, 1), as in `ompr_excess`; without effect in the first case.

    Returns:
        The count, not rounded; `inf` for q >= 2 - theta where q > 1.

    Source: AS20 Theorem 4.2, whose O() has the factor 1 by its proof.

    Example:
        >>> from jaxht import bounds
        >>> round(float(bounds.ompr_steps(16, 4, 2.0, 100.0)), 3)
        36.841
    """
    q = kappa * jnp.sqrt(s_star / s)
    steps = jnp.sqrt(s * s_star) * jnp.log(ratio)
    slower = divide_where(q < 2 - theta, steps, theta, jnp.inf)
    return jnp.where(q > 1, slower, steps)


class ARHTCounts(NamedTuple):
    """How much ARHT does at most.

    Attributes:
        guesses: of the optimum, calls of Algorithm 6 to its robust search.
        cores: of each guess.
        core_steps: T, of each core.
    """

    guesses: Array
    cores: Array
    core_steps: Array


@promotes
def arht_counts(s: Numeric, d: Numeric, ratio: Numeric) -> ARHTCounts:
    """Numbers of guesses, cores and steps with which ARHT finds f(x) <= f(x*) + eps with
    probability 1 - 1/d.

        guesses = 6 ln(ratio),   cores = 5 ln(6 d ln(3 ratio)),   core_steps = 2 s ln(3 ratio)

    Args:
        s: sparsity of the iterates.
        d: number of coordinates.
        ratio: (f(0) - B) / eps, with B a lower bound of f.

    Returns:
        `ARHTCounts`, not rounded.

    Source: AS20 Lemma 3.7 for the guesses, Algorithm 5 for the others, to which Algorithm 6 passes
    eps/3.

    Example:
        >>> from jaxht import bounds
        >>> [round(float(count), 2) for count in bounds.arht_counts(10, 100, 1000.0)]
        [41.45, 42.39, 160.13]
    """
    log = jnp.log(3 * ratio)
    return ARHTCounts(
        guesses=6 * jnp.log(ratio),
        cores=5 * jnp.log(6 * d * log),
        core_steps=2 * s * log,
    )


@promotes
def arht_error(alpha: Numeric, gradient: Numeric, eps: Numeric = 0.0) -> Array:
    """Bound of ||x - x*|| where f(x) <= f(x*) + eps.

        (zeta + sqrt(zeta^2 + 2 eps alpha)) / alpha,   at most (2 + theta) zeta / alpha for
        eps <= (theta + theta^2 / 2) zeta^2 / alpha

    Args:
        alpha: rho^-, strong convexity at level s + s*.
        gradient: zeta, the norm of the s largest entries of grad f(x*).
        eps: the excess of f.

    Returns:
        The bound, which a quadratic attains.

    Source: AS20 Corollary 3.11.

    Example:
        >>> from jaxht import bounds
        >>> float(bounds.arht_error(2.0, 1.0, 2.0))
        2.0
    """
    return (gradient + jnp.sqrt(gradient**2 + 2 * eps * alpha)) / alpha


@promotes
def arht_tolerance(alpha: Numeric, gradient: Numeric, x_min: Numeric) -> Array:
    """Excess of f below which the support holds that of x*.

        eps < (alpha x_min^2 - zeta^2 / alpha) / 2

    Args:
        alpha, gradient: as in `arht_error`.
        x_min: smallest nonzero of x*, in magnitude.

    Returns:
        The bound on eps; it is positive for x_min > zeta / alpha, and else nothing is promised.

    Source: AS20 Corollary 3.12.

    Example:
        >>> from jaxht import bounds
        >>> float(bounds.arht_tolerance(2.0, 1.0, 1.0))
        0.75
    """
    return (alpha * x_min**2 - gradient**2 / alpha) / 2


@promotes
def sparse_duality_gap(
    L: Numeric,
    alpha: Numeric,
    largest: Numeric,
    least: Numeric,
    lam: Numeric,
    k: Numeric,
    gradient: Numeric,
    norm: Numeric,
) -> Array:
    """Bound of the gap between the optimal values of the sparse problem and of its dual.

        P* - D* <= (k/lam) (2 + L g+ / (alpha g- + lam))^2 G^2,
        for lam <= alpha g- sqrt(k) G / (L g+ ||w||)

    Args:
        L, alpha: smoothness and strong convexity of the losses l_i.
        largest: g+, the largest k-sparse eigenvalue of X X' / N.
        least: g-, the least one.
        lam: weight of (lam/2) ||w||^2.
        k: sparsity.
        gradient: G = ||grad f(w)||_inf for any k-sparse w, f without the term of lam.
        norm: ||w||.

    Returns:
        The bound; `inf` for a larger lam.

    Source: YLW20 Theorem 13. It also asks for a w whose smallest nonzero exceeds
    sqrt(k) G (1/(alpha g-) + 1/(L g+)), which serves only to keep its support.

    Example:
        >>> from jaxht import bounds
        >>> round(float(bounds.sparse_duality_gap(1.0, 1.0, 1.5, 0.5, 0.1, 2, 0.2, 0.5)), 4)
        16.2
    """
    limit = alpha * least * jnp.sqrt(k) * gradient
    holds = lam * L * largest * norm <= limit
    factor = 2 + L * largest / (alpha * least + lam)
    return jnp.where(holds, k / lam * (factor * gradient) ** 2, jnp.inf)


class DIHTRate(NamedTuple):
    """What DIHT (m = 1) and SDIHT have reached after t steps.

    Attributes:
        eta: step size.
        error: bound of E ||alpha_t - alpha*||^2.
        gap: bound of the expected gap.
        steps: number of steps after which the support is that of the optimum, with probability 1 -
            delta for m > 1, surely for m = 1 and delta = 1.
    """

    eta: Array
    error: Array
    gap: Array
    steps: Array


def _gap_factor(
    N: Array, spectral: Array, lam: Array, alpha: Array, dual_norm: Array, margin: Array
) -> tuple[Array, Array]:
    """``||w(a) - w|| <= lipschitz ||a - a*||`` (Lemma 31), and the factor of the gap's bound."""
    scale = spectral / (lam * N)
    lipschitz = scale * (1 + 4 * scale * dual_norm / margin)
    return lipschitz, 1 + jnp.sqrt(N) / alpha * lipschitz


@promotes
def diht_rate(
    t: Numeric,
    N: Numeric,
    spectral: Numeric,
    lam: Numeric,
    alpha: Numeric,
    r: Numeric,
    q: Numeric,
    dual_norm: Numeric,
    margin: Numeric,
    m: Numeric = 1.0,
    delta: Numeric = 1.0,
) -> DIHTRate:
    """What DIHT and SDIHT reach with step sizes m N / (alpha (t + 2)) for smooth losses.

        error = m (R / (lam alpha))^2 / (t + 2),   R = r ||X|| + lam sqrt(N) q,
        gap = R / (lam N) (1 + (sqrt(N)/alpha) c) sqrt(error),
        c = ||X||/(lam N) (1 + 4 ||X|| ||alpha*|| / (lam N margin)),
        steps = 4 m ||X||^2 R^2 / (delta^2 lam^4 alpha^2 N^2 margin^2)

    Args:
        t: number of steps.
        N: number of samples, each of norm 1 at most.
        spectral: ||X||, the spectral norm of the samples.
        lam: weight of (lam/2) ||w||^2.
        alpha: the losses are 1/alpha-smooth (the paper's mu).
        r, q: bounds of the dual variables and of |l*'| over their domains.
        dual_norm: ||alpha*||, of the optimal dual variables.
        margin: min |w_i| over the support of the optimal w, less ||P'(w)||_inf / lam; positive.
        m: number of blocks, 1 for DIHT.
        delta: allowed probability of failure, for SDIHT.

    Returns:
        `DIHTRate`, in expectation for SDIHT.

    Source: YLW20 Theorem 15 for DIHT, 19 for SDIHT.

    Example:
        >>> from jaxht import bounds
        >>> rate = bounds.diht_rate(98, 100, 4.0, 0.1, 0.25, 1.0, 1.0, 5.0, 0.5)
        >>> [round(float(bound), 1) for bound in rate]
        [4.0, 400.0, 2730.0, 102400.0]
    """
    R = r * spectral + lam * jnp.sqrt(N) * q
    error = m * (R / (lam * alpha)) ** 2 / (t + 2)
    _, factor = _gap_factor(N, spectral, lam, alpha, dual_norm, margin)
    near = delta * lam * N * margin / (2 * spectral)
    return DIHTRate(
        eta=m * N / (alpha * (t + 2)),
        error=error,
        gap=R / (lam * N) * factor * jnp.sqrt(error),
        steps=m * (R / (lam * alpha)) ** 2 / near**2,
    )


@promotes
def diht_linear_rate(
    t: Numeric,
    N: Numeric,
    spectral: Numeric,
    lam: Numeric,
    alpha: Numeric,
    L: Numeric,
    dual_norm: Numeric,
    margin: Numeric,
    m: Numeric = 1.0,
    delta: Numeric = 1.0,
) -> DIHTRate:
    """What DIHT and SDIHT reach with a constant step size for smooth, strongly convex losses.

        eta = (alpha/N) / l^2,   factor = 1 - (alpha/N)^2 / (m l^2),
        l = sqrt(2) L/N + sqrt(2/N) c,   error = ||alpha*||^2 factor^t,
        gap = l (1 + (sqrt(N)/alpha) c) error,
        steps = m l^2 (N/alpha)^2 ln(4 ||alpha*||^2 ||X||^2 / (delta^2 lam^2 N^2 margin^2))

    Args:
        t, N, spectral, lam, alpha: as in `diht_rate`, which has c.
        L: the losses are 1/L-strongly convex, L >= alpha.
        dual_norm, margin, m, delta: as in `diht_rate`.

    Returns:
        `DIHTRate`, in expectation for SDIHT.

    Source: YLW20 Theorem 17 for DIHT, 22 for SDIHT.

    Example:
        >>> from jaxht import bounds
        >>> rate = bounds.diht_linear_rate(100, 100, 4.0, 1.0, 1.0, 1.0, 9.0, 0.5)
        >>> [round(float(bound), 3) for bound in rate]
        [7.677, 0.027, 0.003, 9.499]
    """
    lipschitz, factor = _gap_factor(N, spectral, lam, alpha, dual_norm, margin)
    smoothness = jnp.sqrt(2) * (L / N + lipschitz / jnp.sqrt(N))
    ratio = alpha / (N * smoothness)
    error = dual_norm**2 * (1 - ratio**2 / m) ** t
    near = delta * lam * N * margin / (2 * spectral)
    steps = m / ratio**2 * jnp.log((dual_norm / near) ** 2)
    return DIHTRate(
        eta=alpha / (N * smoothness**2),
        error=error,
        gap=smoothness * factor * error,
        steps=jnp.maximum(steps, 0),
    )
