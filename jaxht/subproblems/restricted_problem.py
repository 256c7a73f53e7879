"""An objective in coordinates of its support."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxht._typing import Array, Leaf, Numeric
from jaxht.linalg.inner_products import real_dtype
from jaxht.linalg.lanes import lane_by_lane
from jaxht.subproblems.coordinate_functions import Region
from jaxht.subproblems.newton import descend
from jaxht.subproblems.refits import Refit
from jaxht.subproblems.stationary_points import Regularity, attach_derivatives, check_regularity

# Entries of columns from which on those of several lanes no longer fit the caches of a CPU.
MIN_SERIAL_ENTRIES = 2**16


class RestrictedProblem(NamedTuple):
    """An objective in coordinates of its support, at a point.

    Attributes:
        f: the objective as a function of w, :class:`SmoothFunction`, or a
            :class:`CoordinateFunction`.
        w: the coordinates of the point.
        region: where w may lie.
        point: the variable with coordinates w.
    """

    f: Any
    w: Leaf
    region: Region
    point: Callable[[Array], Any]

    def minimise(self, enough: Numeric = 0.0) -> Refit:
        """The minimiser, from w; differentiable in f and bounds, in forward and reverse mode.

        Args:
            enough: a scalar, traced; steps may end with one that decreases f by less than this share
                of it. 0: at the minimiser up to rounding; infinite: none is taken.
        """
        minimise = lane_by_lane(descend, from_size=MIN_SERIAL_ENTRIES)
        enough = jnp.asarray(enough, real_dtype(self.w))
        found = minimise(*lax.stop_gradient((self.f, self.w, self.region, enough)))
        w, pred = attach_derivatives(self.f, found.x, found.pred, self.region)
        return Refit(self.point(w), pred, found.status)

    def differentiate(self) -> Any:
        """The point as it is, with the derivatives of a stationary point."""
        w, _ = attach_derivatives(self.f, self.w, self.f.predict(self.w), self.region)
        return self.point(w)

    def regularity(self) -> Regularity:
        """Check the requirements of the implicit function theorem at the point."""
        return check_regularity(self.f, self.w, self.region)
