"""Deviances of likelihoods whose dispersion is not known, at the dispersion that fits best."""

import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln, polygamma

from jaxht._loops import fori_loop
from jaxht._typing import Array


def weighted_sum(weights: Array, v: Array) -> Array:
    """``sum_i s_i v_i`` of those of positive weight: of others v may be infinite or NaN."""
    return jnp.sum(jnp.where(weights > 0, weights * v, 0))


def gaussian_deviance(squares: Array, weights: Array) -> Array:
    """``N log(RSS / N)`` of squared residuals, N the number of all targets, for weights (n,) or one
    for each target."""
    num_samples = squares.shape[0]
    outputs = squares.reshape(num_samples, -1)
    weights = jnp.broadcast_to(weights.reshape(num_samples, -1), outputs.shape)
    num_targets = jnp.sum(weights)
    total = weighted_sum(weights, outputs)
    return num_targets * jnp.log(total / num_targets)


def gamma_deviance(log_ratios: Array, weights: Array) -> Array:
    r"""``-2 log L`` of gamma variables at the most likely shape nu, for ``log(y / mean)``.

    .. math::
        \log L = n (g(\nu) - \nu D), \qquad g(\nu) = \nu \log \nu - \log \Gamma(\nu) - \nu, \qquad
        D = \tfrac1n \textstyle\sum_i s_i (r_i - \log r_i - 1), \quad r_i = y_i / \mathrm{mean}_i

    The maximum is where ``g'(nu) = log nu - psi(nu) = D``: by Newton's method for log nu (Minka
    2002 has the start).
    """
    n = jnp.sum(weights)
    D = weighted_sum(weights, jnp.expm1(log_ratios) - log_ratios) / n

    def improve(_, nu):
        _, slope = _stirling(nu)
        curvature = 1 / nu - polygamma(1, nu)  # below 0
        return nu * jnp.exp(jnp.clip((D - slope) / (nu * curvature), -1, 1))

    is_exact = D <= 0
    D = jnp.where(is_exact, 1, D)
    start = (3 - D + jnp.sqrt((D - 3) ** 2 + 24 * D)) / (12 * D)
    nu = fori_loop(0, 8, improve, start)
    return jnp.where(is_exact, -jnp.inf, -2 * n * (_stirling(nu)[0] - nu * D))


#: The shape above which a series is more accurate than a difference.
LARGE_SHAPE = 20.0


def _stirling(nu: Array) -> tuple[Array, Array]:
    """``g = nu log nu - log Gamma(nu) - nu`` and ``g' = log nu - psi(nu)``, without
    cancellation."""
    is_large = nu > LARGE_SHAPE
    small = jnp.where(is_large, LARGE_SHAPE, nu)
    large = jnp.where(is_large, nu, LARGE_SHAPE)
    inverse = 1 / large
    square = inverse**2
    series = 1 / 12 - square * (1 / 360 - square / 1260)
    slope_series = 1 / 12 - square * (1 / 120 - square / 252)
    log = jnp.log(small)
    value = jnp.where(
        is_large,
        jnp.log(large / (2 * jnp.pi)) / 2 - inverse * series,
        small * log - gammaln(small) - small,
    )
    slope = jnp.where(is_large, inverse / 2 + square * slope_series, log - digamma(small))
    return value, slope
