"""The partial likelihood of times to an event."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._checks import known_values
from jaxht._dataclass import integer, pytree, static
from jaxht._typing import Array, Leaf, Numeric
from jaxht.objectives.losses.loss import Loss

__all__ = ["CoxLoss", "RiskSets"]


@pytree
class RiskSets:
    """The samples at risk at the time of each sample: those of its stratum whose times are not
    before it.

    The samples are in order of their strata, within a stratum in falling order of time, and of
    equal times those of events are last.

    Attributes:
        order: int32 (n,), the samples in that order.
        place: int32 (n,), the place in it of each sample.
        first: int32 (n,), the place of the first sample of the same stratum and time.
        first_event: int32 (n,), that of the first event among them; after ``last`` for none.
        last: int32 (n,), that of the last of them: the risk set of the sample ends there.
    """

    order: Array = integer()
    place: Array = integer()
    first: Array = integer()
    first_event: Array = integer()
    last: Array = integer()


@pytree
class CoxLoss(Loss):
    r"""``l(u; y)_i = e_i (log R_i - u_i)``: what sample i adds to minus the logarithm of the
    partial likelihood.

    u is the logarithm of the hazard ratio. The loss couples the samples: its derivative by u_j,
    over s_j, is ``exp(u_j) H_j - e_j``,

    .. math::
        H_j = \sum_{i: t_i \le t_j} \frac{s_i e_i}{R_i}, \qquad
        R_i = \sum_{j: t_j \ge t_i} s_j e^{u_j}

    and the product of its Hessian with v ``exp(u_j) sum_{i: t_i <= t_j} (s_i e_i / R_i) (v_j -
    m_i)``, m_i the mean of v over the risk set of i with weights ``s exp(u)``. All sums are within
    the stratum, cumulative along the times, and of logarithms; these are kept as sums of a large and
    a small number, so that of ``log R_i - u_i`` no digits are lost where all u are large.

    These are Breslow's ties. By Efron's, the m events of one time are numbered, and the i-th has
    the others at risk with the share ``1 - (i - 1) / m`` only; s_i in H_j is their mean weight, and
    log R_i in l their mean.

    Args:
        risk_sets: a :class:`RiskSets`, of the times.
        weights: s, (n,), traced; None for ones: an integer repeats a sample, in the risk sets as
            well.
        strata: int32 (n,), the stratum of each sample, traced; None for one of all.
        ties: "breslow" or "efron", static.

    Source: Cox 1972, 1975; Breslow 1974; Efron 1977.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> y = jnp.array([[1.0, 1.0], [2.0, 0.0], [3.0, 1.0]])  # times and events
        >>> loss = jaxht.Cox(jnp.eye(3), y).loss
        >>> [round(float(l), 4) for l in loss.value(jnp.zeros(3), y)]  # log 3, and log 1
        [1.0986, 0.0, 0.0]
    """

    family = "cox"
    is_positive = True

    risk_sets: RiskSets
    weights: Array | None = None
    strata: Array | None = integer(default=None)
    ties: str = static(default="breslow")

    is_separable = False

    def smoothness(self, y: Array) -> Numeric:
        """``max(1, max_j H_j)`` at u = 0: it bounds the Hessian where no ``exp(u_j) H_j`` exceeds
        it, as at u = 0.

        The mean of ``exp(u_j) H_j`` is at most 1 for every u. What bounds it everywhere is half the
        number of events.
        """
        is_integer = jnp.issubdtype(y.dtype, jnp.integer)
        dtype = jnp.result_type(y, float) if is_integer else y.dtype
        u = jnp.zeros(y.shape[0], dtype)
        risks, _ = self._at_risk(u, y)
        hazards, _ = self._hazards(risks, y)
        return jnp.maximum(1, jnp.max(hazards.times_exp(u)))

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
        risks, _ = self._at_risk(u, y)
        if self.ties == "efron":
            # That of the last of them, about which the others of one time are averaged.
            sets = self.risk_sets
            reference = risks.high[sets.order][sets.last]
            above = (risks.high - reference) + risks.low
            marks = jnp.where(self._is_event(y), 0, ABSENT)
            marks = marks.astype(u.dtype)
            _, means = self._sum_ties(_Log(marks, jnp.zeros_like(u)), above)
            risks = _Log(reference, means)
        is_without = counts == 0
        losses = event * ((risks.high - u) + risks.low)
        terms = jnp.where(is_without, 0, losses)
        is_unknown = jnp.any(jnp.isnan(y), axis=1)
        return jnp.where(is_unknown, jnp.nan, terms)

    def derivative(self, u: Array, y: Array) -> Array:
        """``exp(u_j) H_j - e_j``, (n,): minus the martingale residuals."""
        risks, _ = self._at_risk(u, y)
        hazards, _ = self._hazards(risks, y)
        return hazards.times_exp(u) - _events(u, y)

    def hessian_product(self, u: Array, y: Array, v: Array) -> Array:
        """``exp(u_j) sum_{i: t_i <= t_j} (s_i e_i / R_i) (v_j - m_i)``, (n,)."""
        risks, means = self._at_risk(u, y, v)
        hazards, means = self._hazards(risks, y, means)
        return hazards.times_exp(u) * (v - means)

    def num_observations(self, y: Array, weights: Array) -> Array:
        """The number of events, ``sum_i s_i e_i``."""
        return jnp.sum(weights * _events(weights, y))

    def _at_risk(self, u: Array, y: Array, v: Array | None = None) -> "tuple[_Log, Array]":
        """``log R_i``, and the mean m_i of v over the risk set, of each event i, (n,)."""
        sets = self.risk_sets
        shares = _Log(u, jnp.zeros_like(u))
        if self.weights is not None:
            shares = shares.times(self.weights)
        v = jnp.zeros_like(u) if v is None else v
        order = sets.order
        whole = _cumulate(shares.take(order), v[order], self._sorted_strata())
        if self.ties == "breslow":
            return _take(whole, sets.last)
        others = self._take_after(whole, sets.first_event - 1)
        of_events = shares.where(self._is_event(y))
        ties, means = self._sum_ties(of_events, v)
        remaining = self._log_remaining(u, y)
        ties = _Log(ties.high, ties.low + remaining)
        return _join(others, (ties, means))

    def _hazards(
        self, risks: "_Log", y: Array, values: Array | None = None
    ) -> "tuple[_Log, Array]":
        """``log H_j``, and the mean of values over the events of H_j, of each sample j, (n,)."""
        sets = self.risk_sets
        values = jnp.zeros_like(risks.high) if values is None else values
        steps = self._log_steps(risks, y)
        order = sets.order
        until = _cumulate(steps.take(order), values[order], self._sorted_strata(), reverse=True)
        hazards = _take(until, sets.first)
        if self.ties == "breslow":
            return hazards
        # Of the events at its own time, an event feels the part in which it is at risk.
        earlier = self._take_after(until, sets.last + 1)
        log_remaining = self._log_remaining(risks.high, y)
        remaining = _Log(steps.high, steps.low + log_remaining)
        own = self._sum_ties(remaining, values)
        of_events = _join(earlier, own)
        is_event = self._is_event(y)
        return jax.tree.map(lambda a, b: jnp.where(is_event, a, b), of_events, hazards)

    def _log_steps(self, risks: "_Log", y: Array) -> "_Log":
        """``log(s_i e_i / R_i)``, (n,), s_i by Efron's ties the mean weight."""
        steps = _Log(-risks.high, -risks.low)
        event = _events(risks.high, y)
        if self.weights is None:
            return steps.times(event)
        if self.ties == "breslow":
            return steps.times(self.weights * event)
        is_event = self._is_event(y)
        nothing = jnp.zeros_like(risks.high)
        ones = _Log(nothing, nothing)
        weights = ones.times(jnp.where(is_event, self.weights, 0))
        totals, _ = self._sum_ties(weights, nothing)
        _, num_events = self._count_ties(y)
        numbers = jnp.maximum(num_events, 1)
        log_numbers = jnp.log(numbers.astype(nothing.dtype))
        log_means = (totals.high + totals.low) - log_numbers
        return _Log(steps.high, log_means + steps.low).where(is_event)

    def _is_event(self, y: Array) -> Array:
        """Which samples are events of a weight above 0, (n,)."""
        is_event = y[:, 1] == 1
        if self.weights is None:
            return is_event
        return is_event & (self.weights > 0)

    def _count_ties(self, y: Array) -> tuple[Array, Array]:
        """How many events of its time are before each sample, and how many there are, int32
        (n,)."""
        sets = self.risk_sets
        is_event = self._is_event(y)[sets.order]
        until = jnp.cumsum(is_event, dtype=jnp.int32)
        before = until - is_event
        start = before[sets.first]
        num_before = before[sets.place] - start
        num_events = until[sets.last] - start
        return num_before, num_events

    def _log_remaining(self, like: Array, y: Array) -> Array:
        """``log(1 - (i - 1) / m)`` of the i-th of m events of one time, (n,)."""
        num_before, num_events = self._count_ties(y)
        num_left = jnp.where(self._is_event(y), num_events - num_before, 1)
        num_events = jnp.where(self._is_event(y), num_events, 1)
        log_left = jnp.log(num_left.astype(like.dtype))
        log_all = jnp.log(num_events.astype(like.dtype))
        return log_left - log_all

    def _sum_ties(self, logs: "_Log", values: Array) -> "tuple[_Log, Array]":
        """The logarithm of the sum of the weights of all samples of the same stratum and time, and
        the mean of their values, (n,)."""
        sets = self.risk_sets
        order = sets.order
        sums = _cumulate(logs.take(order), values[order], sets.first[order])
        return _take(sums, sets.last)

    def _sorted_strata(self) -> Array | None:
        if self.strata is None:
            return None
        return self.strata[self.risk_sets.order]

    def _take_after(self, sums: "tuple[_Log, Array]", places: Array) -> "tuple[_Log, Array]":
        """Sums at the places; of nothing where these are outside of the stratum of the sample."""
        n = places.size
        is_within = (places >= 0) & (places < n)
        places = jnp.clip(places, 0, n - 1)
        if self.strata is not None:
            samples = jnp.asarray(self.risk_sets.order)[places]
            is_within &= self.strata[samples] == self.strata
        logs, means = _take(sums, places)
        logs = logs.where(is_within)
        means = jnp.where(is_within, means, 0)
        return logs, means


#: The logarithm of a weight of 0: not -infinity, whose differences are NaN.
ABSENT = -1e30


class _Log(NamedTuple):
    """Logarithms of weights, each the sum of a number that may be large and of a small one."""

    high: Leaf
    low: Leaf

    def times_exp(self, u: Array) -> Array:
        """The weights times exp(u)."""
        return jnp.exp((u + self.high) + self.low)

    def times(self, weights: Array) -> "_Log":
        """The product with weights, which may be 0."""
        is_absent = weights == 0
        positive = jnp.where(is_absent, 1, weights)
        low = self.low + jnp.log(positive)
        return _Log(self.high, low).where(~is_absent)

    def take(self, places: Any) -> "_Log":
        """The logarithms at an index, of any kind."""
        return _Log(self.high[places], self.low[places])

    def where(self, is_present: Array) -> "_Log":
        """The same, and the logarithm of 0 elsewhere."""
        high = jnp.where(is_present, self.high, ABSENT)
        low = jnp.where(is_present, self.low, 0)
        return _Log(high, low)

    def relative_to(self, largest: Array) -> Array:
        """The weights over exp(largest)."""
        return jnp.exp((self.high - largest) + self.low)


def _take(sums: tuple[_Log, Array], places: Any) -> tuple[_Log, Array]:
    logs, means = sums
    return logs.take(places), means[places]


def _events(u: Array, y: Array) -> Array:
    """1 for events; not NaN where nothing is known of a sample of weight 0."""
    return (y[:, 1] == 1).astype(u.dtype)


def _join(a: tuple[_Log, Array], b: tuple[_Log, Array]) -> tuple[_Log, Array]:
    """The logarithm of the sum of two weights, and the mean of two values with these weights."""
    logs_a, means_a = a
    logs_b, means_b = b
    largest = jnp.maximum(sum(logs_a), sum(logs_b))
    largest = lax.stop_gradient(largest)
    weights_b = logs_b.relative_to(largest)
    total = logs_a.relative_to(largest) + weights_b
    joined = _Log(largest, jnp.log(total))
    share_b = weights_b / total
    return joined, means_a + share_b * (means_b - means_a)


BLOCK_LENGTH = 16  # numbers that are summed at a time
BACKWARDS = slice(None, None, -1)


def _cumulate(
    logs: _Log,
    values: Array | None = None,
    segments: Array | None = None,
    reverse: bool = False,
) -> tuple[_Log, Array]:
    """Compute, for all i, the logarithm of the sum of the first i weights, and the mean of the
    first i values with these weights.

    It goes in blocks, and then in blocks of blocks: few operations for XLA to compile, and products
    of matrices for a batch of values with the same weights. ``logs`` are the logarithms of the
    weights (n,); ``values`` (n,) are zeros where they are None. ``segments`` (n,) are integers,
    equal ones next to each other: sums begin anew where they change. ``reverse`` is of the last i.
    """
    values = jnp.zeros_like(logs.high) if values is None else values
    if reverse:
        turned = None if segments is None else segments[BACKWARDS]
        sums = _cumulate(logs.take(BACKWARDS), values[BACKWARDS], turned)
        return _take(sums, BACKWARDS)
    n = values.size
    padding = (0, -n % BLOCK_LENGTH)
    high = jnp.pad(logs.high, padding, constant_values=ABSENT)
    high = high.reshape(-1, 1, BLOCK_LENGTH)
    low = jnp.pad(logs.low, padding)
    low = low.reshape(-1, 1, BLOCK_LENGTH)
    values = jnp.pad(values, padding)
    values = values.reshape(-1, BLOCK_LENGTH)
    index = lax.iota(jnp.int32, BLOCK_LENGTH)
    is_summed = index <= index[:, None]
    if segments is not None:
        segments = jnp.pad(segments, padding, mode="edge")
        segments = segments.reshape(-1, BLOCK_LENGTH)
        is_same = segments[:, None, :] == segments[:, :, None]
        is_summed = is_summed & is_same
    table = _Log(high, low).where(is_summed)
    whole = table.high + table.low
    largest = lax.stop_gradient(jnp.max(whole, axis=2))
    shares = table.relative_to(largest[:, :, None])
    total = jnp.sum(shares, axis=2)
    shares = shares / total[:, :, None]
    sums = _Log(largest, jnp.log(total))
    means = jnp.einsum("rij,rj->ri", shares, values, precision=lax.Precision.HIGHEST)
    if n > BLOCK_LENGTH:
        last = None if segments is None else segments[:-1, -1]
        ends, end_means = _take((sums, means), np.s_[:-1, -1])
        before, mean = _cumulate(ends, end_means, last)

        def shift(v, first):
            """Move each value into the row of the next block."""
            return jnp.pad(v, (1, 0), constant_values=first)[:, None]

        high = shift(before.high, ABSENT)
        low = shift(before.low, 0)
        mean = shift(mean, 0)
        before = _Log(high, low)
        if last is not None:
            continues = segments == shift(last, -1)
            before = before.where(continues)
            mean = jnp.where(continues, mean, 0)
        sums, means = _join((before, mean), (sums, means))
    return jax.tree.map(lambda rows: rows.ravel()[:n], (sums, means))
