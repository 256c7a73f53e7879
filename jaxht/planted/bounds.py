"""The guarantees of :mod:`jaxht.bounds`, whose docstring has the symbols."""

import functools
import inspect
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

import jax.numpy as jnp
from jax import Array

from jaxht._typing import Numeric
from jaxht.planted.division import divide_where

#: ``||H_k(b) - x|| <= 2 ||b - x||``, SL18 (1.1): the nu behind the older RIP conditions.
CLASSICAL_EXPANSION = 4.0

_LEAST = {"d": 0, "k": 0, "K": 0, "r": 0, "s": 0, "s_star": 0, "kappa": 1, "nu": 1}
_ORDERED = [("K", "k"), ("alpha", "L")]

P = ParamSpec("P")
Result = TypeVar("Result")


def promotes(bound: Callable[P, Result]) -> Callable[P, Result]:
    """Let a bound check its Python numbers, then promote its arguments to one floating dtype."""
    signature = inspect.signature(bound)

    @functools.wraps(bound)
    def promoted(*args: P.args, **kwargs: P.kwargs) -> Result:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        numbers = {
            name: value
            for name, value in given.arguments.items()
            if value is not None and name != "theorem"
        }
        _check(numbers)
        floats = [
            value
            for value in numbers.values()
            if jnp.issubdtype(jnp.result_type(value), jnp.floating)
        ]
        dtype = jnp.result_type(float, *floats)
        for name, value in numbers.items():
            given.arguments[name] = jnp.asarray(value, dtype)
        return bound(*given.args, **given.kwargs)

    return promoted


def _check(numbers: dict[str, Numeric]) -> None:
    known = {name: value for name, value in numbers.items() if isinstance(value, int | float)}
    for name, least in _LEAST.items():
        if known.get(name, least) < least:
            raise ValueError(f"{name} must be at least {least}, got {name} = {known[name]}")
    for small, large in _ORDERED:
        if small in known and large in known and known[small] > known[large]:
            given = f"{small} = {known[small]}, {large} = {known[large]}"
            raise ValueError(f"{small} must be at most {large}, got {given}")


@promotes
def expansion(d: Numeric, k: Numeric, K: Numeric, *, r: Numeric | None = None) -> Array:
    """Expansion factor nu of hard thresholding, the least that holds for every b and every K-sparse
    x.

        ||H_k(b) - x||^2 <= nu ||b - x||^2,   nu = 1 + (rho + sqrt((4 + rho) rho)) / 2,
        rho = t / (k - K + t),   t = min(K, d - k)

    Args:
        d: dimension; `jnp.inf` gives the dimension-free bound, as any d >= k + K does.
        k: number of entries kept.
        K: number of nonzeros of x, K <= k.
        r: number of nonzeros of b, in place of d. None: d.

    Returns:
        nu in [1, (3 + sqrt 5)/2]; 1 for K = 0 and where H_k keeps all of b; `inf` (no bound) for a
        traced K > k.

    Source: SL18 Theorem 1; r: Remark 5.

    Example:
        >>> from jaxht import bounds
        >>> float(bounds.expansion(10, 4, 2))
        2.0
    """
    num_dropped = (d if r is None else jnp.minimum(d, r)) - k
    t = jnp.clip(num_dropped, 0, K)
    rho = divide_where(t > 0, t, k - K + t, 0)
    rho = jnp.where((t > 0) & (K > k), jnp.inf, rho)
    return 1 + (rho + jnp.sqrt((4 + rho) * rho)) / 2


@promotes
def expansion_jain(d: Numeric, k: Numeric, K: Numeric) -> Array:
    """Expansion factor by the triangle inequality, for comparison: it tends to 4 as d grows.

        nu = (1 + sqrt((d - k) / (d - K)))^2

    Args:
        d: dimension.
        k: number of entries kept.
        K: number of nonzeros of x, K <= k.

    Returns:
        nu in [1, 4]; 1 for k >= d.

    Source: SL18 (2.10), from Jain, Tewari & Kar 2014, Lemma 1; printed for norms, hence squared
    here.

    Example:
        >>> from jaxht import bounds
        >>> float(bounds.expansion_jain(12, 10, 4))
        2.25
    """
    share = divide_where(k < d, k - K, d - K, 1)
    return (1 + jnp.sqrt(1 - share)) ** 2


@promotes
def relaxed_sparsity(nu: Numeric, K: Numeric) -> Array:
    """Sparsity from which thresholding expands by at most nu in any dimension.

        k = max(1, nu / (nu - 1)^2) K

    Args:
        nu: admissible expansion, 4 kappa / (4 kappa - 1) for HT-SVRG.
        K: number of nonzeros of the target.

    Returns:
        k >= K; `inf` for nu <= 1.

    Source: SL18 Theorem 1 solved for k; (4.2) is the case of HT-SVRG, k > (16 kappa^2 - 4 kappa) K.

    Example:
        >>> from jaxht import bounds
        >>> float(bounds.relaxed_sparsity(2, 5))
        10.0
    """
    u = 1 / nu  # nu / (nu - 1)^2 = u / (1 - u)^2, which is safe at nu = inf
    ratio = divide_where(u < 1, u, (1 - u) ** 2, jnp.inf)
    return jnp.where(nu > 1, K * jnp.maximum(1, ratio), jnp.inf)


@promotes
def iht_rip(
    k: Numeric = 1, K: Numeric = 1, *, d: Numeric = jnp.inf, nu: Numeric | None = None
) -> Array:
    """Restricted isometry constant up to which every IHT step halves the error.

        delta_{2k+K} <= 1 / sqrt(8 nu),   0.2185 for k = K, 0.354 for k >> K

    Args:
        k, K, d: as in `expansion`, by default k = K.
        nu: expansion, used in place of `expansion(d, k, K)`; `CLASSICAL_EXPANSION` gives the older
            0.177. None: that.

    Returns:
        The bound on delta, in (0, 1).

    Source: SL18 Theorem 6.

    Example:
        >>> from jaxht import bounds
        >>> round(float(bounds.iht_rip()), 4)
        0.2185
    """
    nu = expansion(d, k, K) if nu is None else nu
    return 1 / jnp.sqrt(8 * nu)


@promotes
def cosamp_rip(
    k: Numeric = 1, K: Numeric = 1, *, d: Numeric = jnp.inf, nu: Numeric | None = None
) -> Array:
    """Restricted isometry constant up to which every CoSaMP step halves the error.

        delta_{3k+K} <= sqrt(2 / (9 + sqrt(32 nu + 49))),   0.312 for k = K, 1/3 for k >> K

    Args:
        k, K, d: as in `expansion`, by default k = K.
        nu: expansion, used in place of `expansion(d, k, K)`; `CLASSICAL_EXPANSION` gives the older
            0.299. None: that.

    Returns:
        The bound on delta, the root of 2 u (1 + (nu - 1) u) / (1 - u) = 1/4, u = delta^2.

    Source: SL18 Theorem 7, sqrt(sqrt(32 nu + 49) - 9) / (4 sqrt(nu - 1)), rewritten to hold at nu =
    1 too.

    Example:
        >>> from jaxht import bounds
        >>> round(float(bounds.cosamp_rip()), 4)
        0.3122
    """
    nu = expansion(d, k, K) if nu is None else nu
    root = jnp.sqrt(49 + 32 * nu)
    return jnp.sqrt(2 / (9 + root))


def htsvrg_divisor(L: Numeric, alpha: Numeric, eta: Numeric, nu: Numeric) -> Array:
    """The divisor D of :func:`htsvrg_rate`."""
    gain = nu * eta * alpha * (1 - 2 * eta * L)
    return gain - jnp.maximum(0, nu * (1 - eta * alpha) - 1)


@promotes
def htsvrg_rate(L: Numeric, alpha: Numeric, eta: Numeric, m: Numeric, nu: Numeric) -> Array:
    """Factor beta by which a stage of HT-SVRG contracts the expected objective gap.

        beta = (1/m + 2 nu eta^2 alpha L) / D,   D = nu eta alpha (1 - 2 eta L) - max(0, nu (1 - eta
        alpha) - 1)

    Args:
        L: smoothness of *every single* f_i at level 3k + K.
        alpha: strong convexity of their mean at level k + K.
        eta: step size.
        m: number of inner steps of a stage.
        nu: expansion.

    Returns:
        beta; 1 or more if m is too small; `inf` outside 0 < eta < 1/(4L), 1 <= nu < 4L/(4L -
        alpha), D > 0.

    Source: SL18 Theorem 10, both cases in one. Its proof needs D > 0, its text omits it: for nu > 1
    a small eta fails.

    Example:
        >>> from jaxht import bounds
        >>> round(float(bounds.htsvrg_rate(2.0, 0.5, 0.06, 400, 1.02)), 4)
        0.4233
    """
    D = htsvrg_divisor(L, alpha, eta, nu)
    is_short_step = 4 * eta * L < 1
    is_valid_expansion = (nu >= 1) & (nu * (4 * L - alpha) < 4 * L)
    holds = is_short_step & is_valid_expansion & (D > 0)
    variance = 2 * nu * eta**2 * alpha * L
    return divide_where(holds, 1 / m + variance, D, jnp.inf)


class HTSVRGParameters(NamedTuple):
    """Parameters of HT-SVRG.

    Attributes:
        eta: step size.
        m: number of inner steps of a stage.
        k: sparsity of the iterates.
    """

    eta: Array
    m: Array
    k: Array


@promotes
def htsvrg_parameters(L: Numeric, alpha: Numeric, K: Numeric) -> HTSVRGParameters:
    """Parameters with which a stage of HT-SVRG contracts the expected objective gap by 2/3.

        eta = 1 / (8L),   m = 4 (8 kappa - 1),   k = 8 kappa (8 kappa - 1) K

    Args:
        L, alpha: as in `htsvrg_rate`.
        K: number of nonzeros of the target.

    Returns:
        `HTSVRGParameters`, for which nu = 1 / (1 - eta alpha), the best expansion at this eta and m
        (Proposition 14).

    Source: SL18 (4.5).

    Example:
        >>> from jaxht import bounds
        >>> [float(number) for number in bounds.htsvrg_parameters(2.0, 0.5, 3)]
        [0.0625, 124.0, 2976.0]
    """
    c = 8 * L / alpha
    return HTSVRGParameters(
        eta=1 / (8 * L),
        m=4 * (c - 1),
        k=c * (c - 1) * K,
    )


@promotes
def ompr_rip(s: Numeric, s_star: Numeric, theta: Numeric = 0.0) -> Array:
    """Restricted isometry constant below which OMPR with s entries recovers an s*-sparse signal.

        delta_{s+s*} < ((2 - theta) q - 1) / ((2 - theta) q + 1),   q = sqrt(s / s*)

    Args:
        s: sparsity of the iterates.
        s_star: sparsity of the signal.
        theta: in [0, 1); the number of steps grows as 1/theta, and 0 gives the supremum.

    Returns:
        The bound on the scale-free delta = (kappa - 1) / (kappa + 1); nothing is promised where it
        is negative.

    Source: AS20 Corollary 4.5; Table 1 for theta = 0 (truncated there).

    Example:
        >>> from jaxht import bounds
        >>> round(float(bounds.ompr_rip(4, 4)), 4)
        0.3333
    """
    q = (2 - theta) * jnp.sqrt(s / s_star)
    return (q - 1) / (q + 1)


@promotes
def ompr_excess(s: Numeric, s_star: Numeric, kappa: Numeric, theta: Numeric = 0.0) -> Array:
    """How far above the target OMPR may end, in units of f(x*) - min f over (s + s*)-sparse
    vectors.

        0 for q <= 1,   4 (1 - theta) (q - 1) / (2 - q - theta)^2 for 1 < q < 2 - theta,   q = kappa
        sqrt(s*/s)

    Args:
        s: sparsity of the iterates.
        s_star: sparsity of the target.
        kappa: rho_2^+ / rho_{s+s*}^-, at least 1.
        theta: in (0, 1); the number of steps grows as 1/theta, and 0 gives the infimum.

    Returns:
        The multiple; `inf` for q >= 2 - theta, so finite at theta = 0 iff s > s* kappa^2 / 4.

    Source: AS20 Theorem 4.2.

    Example:
        >>> from jaxht import bounds
        >>> float(bounds.ompr_excess(16, 4, 3.0))
        8.0
    """
    q = kappa * jnp.sqrt(s_star / s)
    room = jnp.maximum(2 - q - theta, 0)
    excess = 4 * (1 - theta) * (q - 1) / room**2
    return jnp.where(q > 1, excess, 0)


@promotes
def arht_sparsity(s_star: Numeric, kappa: Numeric) -> Array:
    """Sparsity from which ARHT finds f(x) <= f(x*) + eps, with high probability.

        s >= s* max(4 kappa + 7, 12 kappa + 6)

    Args:
        s_star: sparsity of the target.
        kappa: rho_2^+ / rho_{s+s*}^-, at least 1.

    Returns:
        The bound on s, always its second branch since kappa >= 1.

    Source: AS20 Theorem 3.1.

    Example:
        >>> from jaxht import bounds
        >>> float(bounds.arht_sparsity(3, 10.0))
        378.0
    """
    return s_star * jnp.maximum(4 * kappa + 7, 12 * kappa + 6)


class GraHTPPair(NamedTuple):
    """A number for each of the two methods.

    Attributes:
        grahtp: for GraHTP (HTP).
        fgrahtp: for FGraHTP (IHT).
    """

    grahtp: Array
    fgrahtp: Array


def gradient_factor(L: Numeric, alpha: Numeric, eta: Numeric) -> Array:
    """The contraction rho of a gradient step, ``rho^2 = 1 - 2 eta alpha + eta^2 L^2``."""
    # As squares: no cancellation near 0.
    return jnp.sqrt((1 - eta * alpha) ** 2 + eta**2 * (L - alpha) * (L + alpha))


@promotes
def grahtp_factors(L: Numeric, alpha: Numeric, eta: Numeric) -> GraHTPPair:
    """Contraction of the error in a step towards any k-sparse target.

        mu_1 = rho / (1 - rho),   mu_2 = 1.62 rho,   rho = sqrt(1 - 2 eta alpha + eta^2 L^2), least
        at eta = alpha / L^2

    Args:
        L: smoothness at level 3k.
        alpha: strong convexity at level 3k.
        eta: step size.

    Returns:
        `GraHTPPair` (mu_1, mu_2), which can be below 1 for kappa < 2/sqrt 3 and kappa < 1.271; mu_1
        is `inf` for rho >= 1.

    Source: YLZ18 Theorem 2, which prints kappa < 1.26, and rho < 0.62 for rho < 1/1.62.

    Example:
        >>> from jaxht import bounds
        >>> [round(float(factor), 4) for factor in bounds.grahtp_factors(1.1, 1.0, 0.9)]
        [0.7373, 0.6875]
    """
    rho = gradient_factor(L, alpha, eta)
    mu_1 = rho / jnp.maximum(1 - rho, 0)
    return GraHTPPair(grahtp=mu_1, fgrahtp=1.62 * rho)


@promotes
def grahtp_relaxed_factors(
    L: Numeric, alpha: Numeric, eta: Numeric, k: Numeric, K: Numeric
) -> GraHTPPair:
    """Contraction in a step towards any K-sparse target: of the *objective gap* by GraHTP, of the
    error by FGraHTP.

        mubar_1 = 1 - eta alpha (1 - eta L) / 2,   mubar_2 = rho sqrt(nu),   nu = expansion(inf, k,
        K)

    Args:
        L: smoothness at level 2k (GraHTP) or 2k + K (FGraHTP).
        alpha: strong convexity at the same level.
        eta: step size.
        k: sparsity of the iterates.
        K: sparsity of the target.

    Returns:
        `GraHTPPair` (mubar_1, mubar_2), valid for the k of `grahtp_relaxed_sparsity`; GraHTP's
        error falls by sqrt(mubar_1).

    Source: YLZ18 Theorem 5.

    Example:
        >>> from jaxht import bounds
        >>> [round(float(factor), 4) for factor in bounds.grahtp_relaxed_factors(2.0, 1.0, 0.25, 40, 2)]
        [0.9375, 0.9682]
    """
    rho = gradient_factor(L, alpha, eta)
    nu = expansion(jnp.inf, k, K)
    mubar_1 = 1 - eta * alpha * (1 - eta * L) / 2
    return GraHTPPair(grahtp=mubar_1, fgrahtp=rho * jnp.sqrt(nu))


@promotes
def grahtp_relaxed_sparsity(L: Numeric, alpha: Numeric, eta: Numeric, K: Numeric) -> GraHTPPair:
    """Sparsity for which the `grahtp_relaxed_factors` are valid and below 1, given eta < 1/L and
    rho < 1.

        GraHTP: k >= (2 + 4 / (eta alpha)^2) K,   FGraHTP: k > max(1, rho^2 / (1 - rho^2)^2) K

    Args:
        L, alpha, eta: as in `grahtp_relaxed_factors`.
        K: number of nonzeros of the target.

    Returns:
        `GraHTPPair` of the two bounds on k; `inf` for FGraHTP with rho >= 1.

    Source: YLZ18 Theorem 5; for FGraHTP it prints rho / (1 - rho)^2, at least 4 times the exact
    rho^2 / (1 - rho^2)^2.

    Example:
        >>> from jaxht import bounds
        >>> [round(float(k), 4) for k in bounds.grahtp_relaxed_sparsity(2.0, 1.0, 0.25, 2)]
        [132.0, 24.0]
    """
    nu = gradient_factor(L, alpha, eta) ** -2
    ratio = 2 + 4 / (eta * alpha) ** 2
    return GraHTPPair(grahtp=ratio * K, fgrahtp=relaxed_sparsity(nu, K))


@promotes
def num_steps(factor: Numeric, ratio: Numeric) -> Array:
    """Number of steps after which an error that contracts by `factor` has fallen by `ratio`.

        least t >= 0 with factor^t ratio <= 1:   ceil(ln(ratio) / ln(1/factor))

    Args:
        factor: contraction of one step.
        ratio: initial over wanted error. GraHTP has found the support of xbar at 2 ||x0 - xbar|| /
            xbar_min, or at 8 (f(x0) - f(xbar)) / (alpha xbar_min^2) for mubar_1.

    Returns:
        The count as a float; `inf` for a factor >= 1.

    Source: YLZ18 Corollaries 3 and 7; the printed ceil(ln(ratio) / factor) falls short for factors
    above 0.567.

    Example:
        >>> from jaxht import bounds
        >>> float(bounds.num_steps(0.5, 100.0))
        7.0
    """
    factor = jnp.minimum(factor, 1)
    steps = jnp.ceil(jnp.log(ratio) / jnp.log(1 / factor))
    # Of a whole number the quotient of logarithms may be rounded up.
    before = steps - 1
    steps = jnp.where(factor**before * ratio <= 1, before, steps)
    return jnp.where(ratio <= 1, 0, jnp.maximum(steps, 1))


class HSGHTParameters(NamedTuple):
    """Parameters of HSG-HT and AHSG-HT.

    Attributes:
        k: sparsity of the iterates.
        eta: step size.
        omega: rate at which the batches grow.
        momentum: of the heavy ball; 0 for HSG-HT.
        tau: size of the first batch, in the units of the theorem.
    """

    k: Array
    eta: Array
    omega: Array
    momentum: Array
    tau: Array


@promotes
def hsght_parameters(
    L: Numeric, alpha: Numeric, K: Numeric, *, theorem: int = 1
) -> HSGHTParameters:
    """Parameters of HSG-HT (theorems 1, 2) and AHSG-HT (theorem 3) with batches ceil(tau B / (gap
    omega^t)).

        1: k = (1 + 712 kappa^2) K, eta = 1/(6L), omega = 1 - 1/(480 kappa), tau = 40 (1 + 2
        sqrt(K/(k-K)))/(3 alpha L)
        2: k = (1 + 64 kappa^2) K, eta = 1/(2L), omega = 1 - 1/(16 kappa), tau = 148 kappa^2/alpha
        3: k = (1 + 16 kappa) K, eta = 4/(sqrt L + sqrt alpha)^2, omega = (1 - 1/(18 sqrt kappa))^2,
           tau = 81 kappa/(4 (sqrt L + sqrt alpha)^4), momentum = ((sqrt kappa - 1)/(sqrt kappa +
           1))^2

    Args:
        L: smoothness of *every single* f_i at level 2k + K (theorem 3: 3k + K).
        alpha: strong convexity of f at the same level.
        K: number of nonzeros of the target.
        theorem: 1, 2 or 3, static; 3 is for quadratic f.

    Returns:
        `HSGHTParameters`, k and tau the least allowed; B bounds every ||grad f_i - grad f||^2.
        Steps contract the error by sqrt(omega), gap = ||x0 - x*||^2; in theorem 2 f - f(x*) by
        omega, gap = f(x0) - f(x*).

    Raises:
        ValueError: for another theorem.

    Source: ZYF18 Theorems 1-3; the square in B is missing in the text, but the dimensions need it.

    Example:
        >>> from jaxht import bounds
        >>> [round(float(number), 4) for number in bounds.hsght_parameters(2.0, 0.5, 3, theorem=3)]
        [195.0, 0.8889, 0.9452, 0.1111, 4.0]
    """
    kappa = L / alpha
    momentum = jnp.zeros_like(kappa)
    if theorem == 1:
        ratio = 712 * kappa**2
        eta = 1 / (6 * L)
        omega = 1 - 1 / (480 * kappa)
        tau = 40 * (1 + 2 / jnp.sqrt(ratio)) / (3 * alpha * L)
    elif theorem == 2:
        ratio = 64 * kappa**2
        eta = 1 / (2 * L)
        omega = 1 - 1 / (16 * kappa)
        tau = 148 * kappa**2 / alpha
    elif theorem == 3:
        root = jnp.sqrt(kappa)
        total = jnp.sqrt(L) + jnp.sqrt(alpha)
        momentum = ((root - 1) / (root + 1)) ** 2
        ratio = 16 * kappa
        eta = 4 / total**2
        omega = (1 - 1 / (18 * root)) ** 2
        tau = 81 * kappa / (4 * total**4)
    else:
        raise ValueError(f"theorem must be 1, 2 or 3, got {theorem}")
    return HSGHTParameters((1 + ratio) * K, eta, omega, momentum, tau)
