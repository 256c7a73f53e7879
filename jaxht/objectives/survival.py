"""Proportional hazards: a linear model of times to an event."""

import dataclasses
from typing import Any, Self

import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_array, check_labels, known_values
from jaxht._dataclass import integer, pytree, replace, static
from jaxht._typing import Array
from jaxht.objectives.linear_model import LinearModel, repeat_last
from jaxht.objectives.losses import CoxLoss, RiskSets

__all__ = ["Cox"]

#: How tied events are treated.
TIES = ("breslow", "efron")


@pytree
class Cox(LinearModel):
    r"""Proportional hazards regression: minus the log partial likelihood of hazards ``h_0(t)
    exp(a_i.x)``.

    .. math::
        f(x) = c \sum_{i:\, e_i = 1} s_i
            \Big(\log \sum_{j:\, t_j \ge t_i} s_j e^{a_j \cdot x} - a_i \cdot x\Big)
               + \tfrac12 \sum_j l_{2,j} x_j^2

    c = ``1 / sum_i s_i`` where ``mean`` is set, else 1. h_0 needs no model, x no intercept. With
    strata each stratum has an h_0 of its own: the sum over j is of the stratum of i.

    Events of the same time are tied. By Breslow's method they have the same risk set, as above. By
    Efron's, which is closer to the likelihood of times that are rounded, the i-th of m tied events
    has the others at risk with the share ``1 - (i - 1) / m``, averaged over their orders: the log
    is of ``sum_{t_j >= t} s_j exp(a_j.x) - (i - 1) / m sum_{tied} s_j exp(a_j.x)``, and its weight
    the mean of theirs.

    The loss couples the samples: stochastic and dual solvers, which need a sum over samples, raise
    ValueError. Its curvature has no useful bound; automatic step sizes use the largest cumulative
    hazard at x = 0 (the Nelson-Aalen estimate), at least 1, which bounds the curvature at x = 0 and
    wherever no ``exp(a_i.x)`` times the cumulative hazard exceeds it. :class:`jaxht.NIHT`, whose
    step adapts, needs no bound. Held-out samples form their own risk sets.

    Args:
        A, l2, mean, offset: as in :class:`jaxht.LeastSquares`; A has no column of ones.
        y: (n, 2), traced: the times t, in any unit, and 1 where a time is that of an event, 0 where
            it is censored: ``jnp.stack([time, event], axis=1)``.
        weights: (n,) sample weights s >= 0, traced; None for ones. Integers repeat samples, in the
            risk sets as well; not so by Efron's method, by which repeated events are tied, and
            weighted ones are not.
        ties: "breslow" or "efron", static. Without ties they are the same.
        strata: (n,) integers of at least 0, traced: the stratum of each sample; None for one of
            all.
        risk_sets: None; :meth:`prepare` fills in the order of the times, which is that of the y and
            strata it was given.

    Raises:
        ValueError: from :meth:`prepare`, which every solver calls, for shapes, dtypes, events,
            strata and ties that are not valid; from stochastic and dual solvers.

    Cost: a prediction ``A x`` n d; a value, from the prediction, cumulative sums of n numbers; a
    gradient n d; a Hessian on k coordinates n k^2 and 2 k cumulative sums; :meth:`prepare` sorts
    the times.

    Source: Cox 1972, 1975; Breslow 1974; Efron 1977; weights of tied events: Therneau & Grambsch
    2000, §3.3.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A = jnp.array([[2.0, 1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, -1.0], [0.0, 1.0]])
        >>> y = jnp.array([[1.0, 1], [2.0, 1], [3.0, 0], [4.0, 1], [5.0, 1]])
        >>> result = jaxht.solve(jaxht.Cox(A, y, 0.1), jaxht.Sparse(1), jaxht.HTP())
        >>> # the first feature shortens lives
        >>> result.support.numpy().tolist(), bool(result.x[0] > 0)
        ([0], True)
    """

    ties: str = static(default="breslow", kw_only=True)
    strata: Array | None = integer(default=None, kw_only=True)
    risk_sets: RiskSets | None = dataclasses.field(default=None, kw_only=True, repr=False)

    @property
    def loss(self) -> CoxLoss:
        """The loss of all samples."""
        risk_sets = self.risk_sets
        if risk_sets is None:
            risk_sets = find_risk_sets(self.y, self.strata)
        # As an array of JAX: it is indexed by what may be traced.
        strata = None if self.strata is None else jnp.asarray(self.strata)
        return CoxLoss(risk_sets, self.weights, strata, self.ties)

    @property
    def target_shape(self) -> tuple[int, ...]:
        """(n, 2)."""
        return (self.num_samples, 2)

    def prepare(self) -> Self:
        """This objective with the order of the times.

        Raises:
            ValueError: naming the argument that is not valid.
        """
        check_array("y", self.y, "an array of shape (n, 2)")
        if np.ndim(self.y) != 2 or np.shape(self.y)[1] != 2:
            raise ValueError(
                "y must have shape (n, 2), jnp.stack([time, event], axis=1); got shape "
                f"{np.shape(self.y)}"
            )
        if self.ties not in TIES:
            raise ValueError(f"ties must be one of {TIES}; got {self.ties!r}")
        if self.strata is not None:
            _check_strata(self.strata, len(self.y))
        model = super().prepare()
        if model.risk_sets is not None:
            return model
        model = replace(model, y=_distinguish_times(self.y, model.y))
        return replace(model, risk_sets=find_risk_sets(model.y, model.strata))

    def pad(self, num_samples: int, num_columns: int) -> Self | None:
        """Pad the samples, as every linear model does, with the order of all times."""
        padded = super().pad(num_samples, num_columns)
        if padded is None:
            return None
        strata = repeat_last(self.strata, num_samples)
        risk_sets = find_risk_sets(np.asarray(padded.y), strata)
        return replace(padded, strata=strata, risk_sets=risk_sets)


def _distinguish_times(y: Array, cast: Array) -> Array:
    """Times and events in the dtype of ``cast``; where known times that differ would be equal
    there, as seconds since 1970 in float32, the ranks of the times, of which f depends alone."""
    known = known_values(y)
    if known is None:
        return cast
    times, ranks = np.unique(known[:, 0], return_inverse=True)
    if np.unique(times.astype(cast.dtype)).size == times.size:
        return cast
    return np.stack([ranks.ravel(), known[:, 1]], axis=1).astype(cast.dtype)


def _check_strata(strata: Array, num_samples: int) -> None:
    check_labels("strata", strata, num_samples)
    known = known_values(strata)
    if known is None:
        return
    largest = np.iinfo(np.int32).max
    if np.any((known < 0) | (known > largest)):
        raise ValueError(
            f"strata must lie from 0 to {largest}; got {np.min(known)} to {np.max(known)}"
        )


def find_risk_sets(y: Array, strata: Array | None = None) -> RiskSets:
    """The risk sets of times and events (n, 2), by NumPy where all are its arrays. Cost: a
    sort."""
    is_known = isinstance(y, np.ndarray) and isinstance(strata, np.ndarray | None)
    xp: Any = np if is_known else jnp
    y = xp.asarray(y)
    time = y[:, 0]
    event = y[:, 1] == 1
    keys = (event, -time) if strata is None else (event, -time, strata)
    order = xp.lexsort(keys)  # the last key is the first that counts
    place = _invert(order)
    sorted_times = time[order]
    is_new = sorted_times[1:] != sorted_times[:-1]
    if strata is not None:
        sorted_strata = xp.asarray(strata)[order]
        is_new = is_new | (sorted_strata[1:] != sorted_strata[:-1])
    # The number of the stratum and time, in order.
    number = xp.concatenate([xp.zeros(1, np.int32), xp.cumsum(is_new, dtype=np.int32)])
    numbers = number[place]
    first = xp.searchsorted(number, numbers, side="left")
    first_event = xp.searchsorted(2 * number + event[order], 2 * numbers + 1, side="left")
    last = xp.searchsorted(number, numbers, side="right") - 1
    places = (order, place, first, first_event, last)
    return RiskSets(*[each.astype(np.int32) for each in places])


def _invert(order: Any) -> Any:
    """The place of each sample in an order."""
    places = np.arange(len(order))
    if isinstance(order, np.ndarray):
        inverse = np.empty_like(order)
        inverse[order] = places
        return inverse
    return jnp.zeros_like(order).at[order].set(places)
