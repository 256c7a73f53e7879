"""Proportional hazards: a linear model of times to an event."""

import dataclasses
from typing import Self

import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_array
from jaxht._dataclass import pytree, replace
from jaxht._typing import Array
from jaxht.linalg.selection import decreasing_order
from jaxht.objectives.linear_model import LinearModel
from jaxht.objectives.losses import CoxLoss, RiskSets

__all__ = ["Cox"]


@pytree
class Cox(LinearModel):
    r"""Proportional hazards regression: minus the log partial likelihood of hazards ``h_0(t)
    exp(a_i.x)``.

    .. math::
        f(x) = c \sum_{i:\, e_i = 1} s_i
            \Big(\log \sum_{j:\, t_j \ge t_i} s_j e^{a_j \cdot x} - a_i \cdot x\Big)
               + \tfrac12 \sum_j l_{2,j} x_j^2

    c = ``1 / sum_i s_i`` where ``mean`` is set, else 1. Tied events are Breslow's. h_0 needs no
    model, x no intercept.

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
            risk sets as well.
        risk_sets: None; :meth:`prepare` fills in the order of the times, which is that of the y it
            was given.

    Raises:
        ValueError: from :meth:`prepare`, which every solver calls, for shapes, dtypes and events
            that are not valid; from stochastic and dual solvers.

    Cost: a prediction ``A x`` n d; a value, from the prediction, cumulative sums of n numbers; a
    gradient n d; a Hessian on k coordinates n k^2 and 2 k cumulative sums; :meth:`prepare` sorts
    the times.

    Source: Cox 1972, 1975; Breslow 1974.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> A = jnp.array([[2.0, 1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, -1.0], [0.0, 1.0]])
        >>> y = jnp.array([[1.0, 1], [2.0, 1], [3.0, 0], [4.0, 1], [5.0, 1]])
        >>> result = jaxht.solve(jaxht.Cox(A, y, 0.1), jaxht.Sparse(1), jaxht.HTP())
        >>> # the first feature shortens lives
        >>> result.support.numpy().tolist(), bool(result.x[0] > 0)
        ([0], True)
    """

    risk_sets: RiskSets | None = dataclasses.field(default=None, kw_only=True, repr=False)

    @property
    def loss(self) -> CoxLoss:
        """The loss of all samples."""
        risk_sets = self.risk_sets
        if risk_sets is None:
            risk_sets = find_risk_sets(self.y[:, 0])
        return CoxLoss(risk_sets, self.weights)

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
        model = super().prepare()
        if model.risk_sets is not None:
            return model
        return replace(model, risk_sets=find_risk_sets(model.y[:, 0]))


def find_risk_sets(time: Array) -> RiskSets:
    """The risk sets of times (n,), by NumPy where these are its array. Cost: a sort."""
    if isinstance(time, np.ndarray):
        order = np.argsort(-time, kind="stable").astype(np.int32)
        decreasing = -time[order]
        first = np.searchsorted(decreasing, -time, side="left").astype(np.int32)
        end = np.searchsorted(decreasing, -time, side="right").astype(np.int32)
        return RiskSets(order, first, end - 1)
    return _find_risk_sets(time)


def _find_risk_sets(time: Array) -> RiskSets:
    order = decreasing_order(time)
    first = jnp.searchsorted(-time[order], -time, side="left").astype(jnp.int32)
    end = jnp.searchsorted(-time[order], -time, side="right").astype(jnp.int32)
    return RiskSets(order, first, end - 1)
