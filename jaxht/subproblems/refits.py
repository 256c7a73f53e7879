"""The result of a refit."""

import enum
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxht._typing import Array, Leaf


class RefitStatus(enum.IntEnum):
    """How a refit ended."""

    #: At a minimiser, up to rounding.
    CONVERGED = 0
    #: Before it reached a minimiser.
    FAILED = 1
    #: f has no minimiser: it decreases without end along a line, as the logistic loss without a
    #: ridge does where the features separate the classes.
    NO_MINIMISER = 2

    @classmethod
    def of(cls, converged: Any) -> Array:
        """CONVERGED or FAILED, int32."""
        return jnp.where(converged, cls.CONVERGED, cls.FAILED).astype(jnp.int32)


class Refit(NamedTuple):
    """The minimiser of an objective on a support; :func:`jaxht.subproblems.refit` returns one.

    Attributes:
        x: the minimiser, shaped like the variable, exactly zero off the support.
        pred: its prediction.
        status: int32, a :class:`RefitStatus`.
    """

    x: Leaf
    pred: Leaf
    status: Leaf

    @property
    def converged(self) -> Any:
        """Whether x is a minimiser up to rounding."""
        return self.status == RefitStatus.CONVERGED
