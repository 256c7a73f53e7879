"""Limits and tolerances of a run."""

import math
from typing import Any

from jaxht._dataclass import at_least, integer, pytree
from jaxht._typing import Numeric

__all__ = ["Stop"]


@pytree
class Stop:
    """Limits and tolerances, the same for every solver. All are scalars and traced, and may differ
    between lanes.

    Args:
        max_steps: MAX_STEPS after this many steps, an integer; None: the solver's own limit.
        rtol: CONVERGED when ``||x+ - x|| <= rtol ||x+||``, for solvers with a fixed-point test.
            None: machine epsilon (32 times that for matrices of low rank); 0: only an iterate that
            repeats exactly. Near the phase transition the choice matters: at rtol = 1e-6 PGD stops
            long before it recovers the signal.
        support_patience: SUPPORT_STABLE when supp(x) has not changed for this many steps, an
            integer; None: not tested.
        target_value: TARGET_REACHED when ``f(x) <= target_value``, in units of f, at the start as
            well; None: not tested.
        gap_rtol: GAP_CLOSED when the duality gap is at most ``gap_rtol |f(x)|``, at the start as
            well, for solvers that have a gap; None: not tested.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]), mean=False)
        >>> stop = jaxht.Stop(max_steps=1)
        >>> result = jaxht.solve(f, jaxht.Sparse(2), jaxht.IHT(step_size=0.5), stop=stop)
        >>> result.x.tolist(), result.reason
        ([0.0, 2.0, 0.0, 1.5], 'MAX_STEPS')
    """

    # None until a run is prepared.
    max_steps: Any = integer(default=None)
    rtol: Any = None
    support_patience: Numeric | None = integer(default=None)
    target_value: Numeric | None = at_least(-math.inf, default=None)
    gap_rtol: Numeric | None = None
