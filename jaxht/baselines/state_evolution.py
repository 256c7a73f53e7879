"""State evolution of approximate message passing, and the phase transition of l1 minimisation."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfc, i0e, i1e, ndtr

# Thresholds among which the best is looked for, then once more between its neighbours.
NUM_THRESHOLDS = 2001
LEAST_THRESHOLD = 1e-4
LARGEST_THRESHOLD = 12.0
# Nodes of an integral over a smooth function, and how far a normal variable reaches.
NUM_NODES = 100
REACH = 9.0
# Where a nonzero has so many standard deviations, its risk is the limit, up to 1e-6.
LARGE = 1e6
# Arguments of Bessel functions above which two terms of 1 - I_1/I_0 are exact to 1e-8.
LARGE_BESSEL = 1e4


class Transition(NamedTuple):
    """Points of the phase transition of l1 minimisation, float64 shaped like delta.

    Attributes:
        rho: the largest k / n at which signals are recovered, in the limit of large d.
        tau: the threshold, in units of the noise, that recovers them.
    """

    rho: np.ndarray | np.float64
    tau: np.ndarray | np.float64


def l1_transition(delta: ArrayLike, *, is_complex: bool = False) -> Transition:
    r"""How many nonzeros per sample l1 minimisation, and message passing with the best threshold,
    recover.

    .. math::
        \rho(\delta) = \max_\tau \frac{\delta - g(\tau)}{\delta (1 + \tau^2 - g(\tau))}, \qquad
        g(\tau) = 2 [(1 + \tau^2) \Phi(-\tau) - \tau \phi(\tau)]

    and for complex numbers ``g(tau) = exp(-tau^2) - tau sqrt(pi) erfc(tau)``: the risk of soft
    thresholding at 0, the least favourable signal having infinite nonzeros.

    Args:
        delta: n / d, in (0, 1]; numbers, of any shape.
        is_complex: whether signal and measurements are complex.

    Returns:
        :class:`Transition`.

    Raises:
        ValueError: for a delta that is not positive.

    Cost: a millisecond each, on the host.

    Source: Donoho, Maleki & Montanari 2009, (5); complex: Maleki, Anitori, Yang & Baraniuk 2013.

    Example:
        >>> from jaxht.baselines import l1_transition
        >>> l1_transition([0.1, 0.5]).rho.round(3).tolist()
        [0.189, 0.386]
    """
    delta = np.asarray(delta, np.float64)[..., None]
    if not np.all(delta > 0):
        raise ValueError(f"delta must be positive; got {delta.min()}")
    low = np.full_like(delta, LEAST_THRESHOLD)
    high = np.full_like(delta, LARGEST_THRESHOLD)
    for _ in range(2):
        tau = np.linspace(low[..., 0], high[..., 0], NUM_THRESHOLDS, axis=-1)
        g = _risk_at_zero(tau, is_complex)
        rho = (delta - g) / (delta * (1 + tau**2 - g))
        best = np.argmax(rho, axis=-1, keepdims=True)
        low = np.take_along_axis(tau, np.maximum(best - 1, 0), -1)
        high = np.take_along_axis(tau, np.minimum(best + 1, NUM_THRESHOLDS - 1), -1)
    rho = np.take_along_axis(rho, best, -1)
    tau = np.take_along_axis(tau, best, -1)
    return Transition(np.minimum(rho, 1)[..., 0][()], tau[..., 0][()])


def predict_amp(
    delta: float,
    rho: float,
    num_steps: int,
    *,
    tau: float | None = None,
    amplitude: float = 1.0,
    noise: float = 0.0,
    is_complex: bool = False,
) -> np.ndarray:
    r"""The mean squared error of :class:`AMP` after each step, in the limit of large d, for signals
    whose nonzeros are +- amplitude, or complex numbers of this magnitude.

    .. math::
        \sigma_t^2 = \text{noise}^2 + \frac{m_t}{\delta}, \qquad
        m_{t + 1} = E |S_{\tau \sigma_t}(X + \sigma_t Z) - X|^2, \qquad m_0 = E |X|^2

    Z is a normal variable with ``E |Z|^2 = 1``, complex where X is.

    Args:
        delta: n / d; a number.
        rho: k / n; a number.
        num_steps: T, an int.
        tau: as of :class:`AMP`.
        amplitude: of the nonzeros.
        noise: the standard deviation of the entries of y - A x.
        is_complex: whether signal and measurements are complex.

    Returns:
        m_0 ... m_T, float64 (T + 1,): ``||x_t - x||^2 / d``.

    Cost: some microseconds a step, on the host.

    Source: Donoho, Maleki & Montanari 2009, (3) and (4); complex: Maleki, Anitori, Yang & Baraniuk
    2013.

    Example:
        >>> from jaxht.baselines import predict_amp
        >>> predict_amp(0.5, 0.2, 2).round(4).tolist()
        [0.1, 0.0666, 0.0462]
    """
    if tau is None:
        tau = float(l1_transition(delta, is_complex=is_complex).tau)
    risk_at = _complex_risk if is_complex else _risk
    share = delta * rho
    errors = [share * amplitude**2]
    for _ in range(num_steps):
        sigma = math.sqrt(noise**2 + errors[-1] / delta)
        mu = amplitude / sigma if sigma > 0 else math.inf
        risk = share * risk_at(mu, tau) + (1 - share) * _risk_at_zero(tau, is_complex)
        errors.append(float(sigma**2 * risk))
    return np.array(errors)


def _risk_at_zero(tau: np.ndarray | float, is_complex: bool) -> np.ndarray | float:
    """``E |S_tau(Z)|^2`` of a standard normal Z."""
    if is_complex:
        return np.exp(-(tau**2)) - tau * math.sqrt(math.pi) * erfc(tau)
    return 2 * ((1 + tau**2) * ndtr(-tau) - tau * _density(tau))


def _risk(mu: float, tau: float) -> float:
    """``E (S_tau(mu + Z) - mu)^2`` of a standard normal Z."""
    if mu > LARGE:
        return 1 + tau**2
    inside = ndtr(tau - mu) - ndtr(-tau - mu)
    tails = (tau - mu) * _density(tau + mu) + (tau + mu) * _density(tau - mu)
    return float(1 + tau**2 + (mu**2 - tau**2 - 1) * inside - tails)


def _complex_risk(mu: float, tau: float) -> float:
    """``E |S_tau(mu + Z) - mu|^2`` of a complex standard normal Z: an integral over the magnitude r
    of mu + Z.

    That is Rice distributed; its cosine with mu has the mean ``I_1(2 r mu) / I_0(2 r mu)``.
    """
    if mu > LARGE:
        return 1 + tau**2
    nodes, weights = np.polynomial.legendre.leggauss(NUM_NODES)
    low, high = max(0.0, mu - REACH), mu + REACH
    kink = min(max(tau, low), high)
    risk = 0.0
    for start, end in ((low, kink), (kink, high)):
        half = (end - start) / 2
        r = start + half * (1 + nodes)
        shrunk = np.maximum(r - tau, 0)
        z = 2 * r * mu
        along = i0e(z)
        # Of large z by its series, where the difference cancels.
        series = along * (0.5 + 0.125 / np.maximum(z, 1)) / np.maximum(z, 1)
        across = np.where(z > LARGE_BESSEL, series, along - i1e(z))
        error = (shrunk - mu) ** 2 * along + 2 * shrunk * mu * across
        risk += half * float(weights @ (2 * r * np.exp(-((r - mu) ** 2)) * error))
    return risk


def _density(v: np.ndarray | float) -> np.ndarray | float:
    return np.exp(-(v**2) / 2) / math.sqrt(2 * math.pi)
