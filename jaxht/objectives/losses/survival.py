"""The partial likelihood of times to an event."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._checks import known_values
from jaxht._dataclass import integer, pytree
from jaxht._typing import Array, Numeric
from jaxht.objectives.losses.loss import Loss

__all__ = ["CoxLoss", "RiskSets"]


@pytree
class RiskSets:
    """Who is at risk at the time of each sample: all samples whose times are not before it.

    Attributes:
        order: int32 (n,), the samples in falling order of time.
        first: int32 (n,), the place in that order of the first sample of the same time, for each
            sample.
        last: int32 (n,), that of the last one: the risk set of the sample ends there.
    """

    order: Array = integer()
    first: Array = integer()
    last: Array = integer()


@pytree
class CoxLoss(Loss):
    r"""``l(u; y)_i = e_i (log R_i - u_i)``: what sample i adds to minus the logarithm of the
    partial likelihood.

    u is the logarithm of the hazard ratio; tied events are Breslow's. The loss couples the samples:
    its derivative by u_j, over s_j, is ``exp(u_j) H_j - e_j``,

    .. math::
        H_j = \sum_{i: t_i \le t_j} \frac{s_i e_i}{R_i}, \qquad
        R_i = \sum_{j: t_j \ge t_i} s_j e^{u_j}

    and the product of its Hessian with v ``exp(u_j) sum_{i: t_i <= t_j} (s_i e_i / R_i) (v_j -
    m_i)``, m_i the mean of v over the risk set of i with weights ``s exp(u)``. All sums are
    cumulative along the times, and of logarithms.

    Args:
        risk_sets: a :class:`RiskSets`, of the times.
        weights: s, (n,), traced; None for ones: an integer repeats a sample, in the risk sets as
            well.

    Source: Cox 1972, 1975; Breslow 1974.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> y = jnp.array([[1.0, 1.0], [2.0, 0.0], [3.0, 1.0]])  # times and events
        >>> loss = jaxht.Cox(jnp.eye(3), y).loss
        >>> [round(float(l), 4) for l in loss.value(jnp.zeros(3), y)]  # log 3, and log 1
        [1.0986, 0.0, 0.0]
    """

    family = "cox"

    risk_sets: RiskSets
    weights: Array | None = None

    is_separable = False

    def smoothness(self, y: Array) -> Numeric:
        """``max(1, max_j H_j)`` at u = 0: it bounds the Hessian where no ``exp(u_j) H_j`` exceeds
        it, as at u = 0.

        The mean of ``exp(u_j) H_j`` is at most 1 for every u. What bounds it everywhere is half the
        number of events.
        """
        is_integer = jnp.issubdtype(y.dtype, jnp.integer)
        dtype = jnp.result_type(y, float) if is_integer else y.dtype
        log_risks = self._log_risks(jnp.zeros(y.shape[0], dtype))
        return jnp.maximum(1, jnp.max(jnp.exp(self._log_hazards(log_risks, y))))

    def check(self, y: Array) -> None:
        """Raise ValueError for events other than 0 and 1, and for times that are NaN or below 0."""
        known = known_values(y)
        if known is None:
            return
        times, events = known.T
        if not np.all(np.isin(events, (0, 1))):
            raise ValueError(
                "y[:, 1] must hold 1 for events and 0 for censored times; got "
                f"{np.unique(events)[:5]}"
            )
        if np.any(np.isnan(times)):
            raise ValueError("y[:, 0] must hold times; got NaN")
        if np.any(times < 0):
            raise ValueError(f"y[:, 0] must hold times of at least 0; got {np.min(times)}")

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y), (n,)."""
        event = _events(u, y)
        counts = event if self.weights is None else event * self.weights
        terms = jnp.where(counts == 0, 0, event * (self._log_risks(u) - u))
        return jnp.where(jnp.isnan(y[:, 0]), jnp.nan, terms)

    def derivative(self, u: Array, y: Array) -> Array:
        """``exp(u_j) H_j - e_j``, (n,): minus the martingale residuals."""
        return jnp.exp(u + self._log_hazards(self._log_risks(u), y)) - _events(u, y)

    def hessian_product(self, u: Array, y: Array, v: Array) -> Array:
        """``exp(u_j) sum_{i: t_i <= t_j} (s_i e_i / R_i) (v_j - m_i)``, (n,)."""
        order, first, last = self.risk_sets.order, self.risk_sets.first, self.risk_sets.last
        log_risks, means = _cumulate(self._log_shares(u)[order], v[order])
        events = self._log_events(log_risks[last], y)
        log_hazards, means = _cumulate(events[order], means[last][order], reverse=True)
        return jnp.exp(u + log_hazards[first]) * (v - means[first])

    def num_observations(self, y: Array, weights: Array) -> Array:
        """The number of events, ``sum_i s_i e_i``."""
        return jnp.sum(weights * y[:, 1])

    def _log_shares(self, u: Array) -> Array:
        """``log(s exp(u))``; ABSENT for weights of 0."""
        return u if self.weights is None else _log(self.weights, u)

    def _log_risks(self, u: Array) -> Array:
        """``log R_i``, (n,)."""
        return _cumulate(self._log_shares(u)[self.risk_sets.order])[0][self.risk_sets.last]

    def _log_events(self, log_risks: Array, y: Array) -> Array:
        """``log(s_i e_i / R_i)``, (n,)."""
        event = _events(log_risks, y)
        return _log(event if self.weights is None else self.weights * event, -log_risks)

    def _log_hazards(self, log_risks: Array, y: Array) -> Array:
        """``log H_j``, (n,)."""
        events = self._log_events(log_risks, y)[self.risk_sets.order]
        return _cumulate(events, reverse=True)[0][self.risk_sets.first]


def _events(u: Array, y: Array) -> Array:
    return y[:, 1].astype(u.dtype)


#: The logarithm of a weight of 0: not -infinity, whose differences are NaN.
ABSENT = -1e30


def _log(weights: Array, log_factors: Array) -> Array:
    """``log(weights exp(log_factors))``; ABSENT for weights of 0."""
    absent = weights == 0
    return jnp.where(absent, ABSENT, jnp.log(jnp.where(absent, 1, weights)) + log_factors)


BLOCK_LENGTH = 16  # numbers that are summed at a time


def _cumulate(
    logs: Array, values: Array | None = None, reverse: bool = False
) -> tuple[Array, Array]:
    """Compute, for all i, the logarithm of the sum of the first i weights, and the mean of the
    first i values with these weights.

    It goes in blocks, and then in blocks of blocks: few operations for XLA to compile, and products
    of matrices for a batch of values with the same weights. ``logs`` are the logarithms of the
    weights (n,); ``values`` (n,) are zeros where they are None; ``reverse`` is of the last i.
    """
    values = jnp.zeros_like(logs) if values is None else values
    if reverse:
        sums, means = _cumulate(logs[::-1], values[::-1])
        return sums[::-1], means[::-1]
    n = logs.size
    padding = (0, -n % BLOCK_LENGTH)
    rows = jnp.pad(logs, padding, constant_values=ABSENT).reshape(-1, BLOCK_LENGTH)
    values = jnp.pad(values, padding).reshape(-1, BLOCK_LENGTH)
    index = lax.iota(jnp.int32, BLOCK_LENGTH)
    table = jnp.where(index <= index[:, None], rows[:, None, :], ABSENT)
    largest = lax.stop_gradient(jnp.max(table, axis=2))
    shares = jnp.exp(table - largest[:, :, None])
    total = jnp.sum(shares, axis=2)
    shares = shares / total[:, :, None]
    sums = largest + jnp.log(total)
    means = jnp.einsum("rij,rj->ri", shares, values, precision=lax.Precision.HIGHEST)
    if n > BLOCK_LENGTH:
        before, mean = _cumulate(sums[:-1, -1], means[:-1, -1])
        before = jnp.pad(before, (1, 0), constant_values=ABSENT)[:, None]
        mean = jnp.pad(mean, (1, 0))[:, None]
        joined = jnp.logaddexp(before, sums)
        means = mean + jnp.exp(sums - joined) * (means - mean)
        sums = joined
    return sums.ravel()[:n], means.ravel()[:n]
