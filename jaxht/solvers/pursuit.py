"""Parts of solvers that alternate between a support and a refit on it: cycle detection,
backtracking, descent."""

from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
from optax.tree_utils import tree_where

from jaxht._dataclass import integer, pytree
from jaxht._typing import Array, Numeric
from jaxht.constraints import Constraint, ModelSubspace, SelectionConstraint, Support
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.inner_products import real_dtype, real_vdot
from jaxht.linalg.selection import stand_out
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Info, Iterate, inverse_smoothness
from jaxht.solvers.status import Status

# The step size from which steps backtrack, in units of 1/M_1: f ends lower the longer it is, up to
# about here.
LONG_STEP = 256
# 2^-38 of eta is below rounding: the support is then the current one.
MAX_HALVINGS = 38


@pytree
class GradientStep:
    """Gradient steps from a point with all step sizes, and the supports that they find.

    Attributes:
        constraint: the problem's constraint, prepared.
        x: the point.
        gradient: g there.
        near: a point of the constraint near to it, from which a projection may start.
        candidates: bool, the entries that may be in the support; None for all.
        scale: by what every step size is multiplied here.
    """

    constraint: Constraint
    x: Any
    gradient: Any
    near: Any
    candidates: Array | None = None
    scale: Numeric = 1.0

    def find(self, step_size: Numeric) -> ModelSubspace:
        """The support of ``x - step_size g``."""
        return self.constraint.project(self._point(step_size), self.near)[1]

    def separates(self, step_size: Numeric, items: Array) -> Array:
        """Whether the given items, k of them, are all above all others with this step size; where
        it is not, the support is another one, but for ties."""
        constraint = cast(SelectionConstraint, self.constraint)
        return stand_out(constraint.ranks(self._point(step_size)), items)

    def _point(self, step_size: Numeric) -> Any:
        z = self.x - self.scale * step_size * self.gradient
        return z if self.candidates is None else jnp.where(self.candidates, z, 0)


def pursuit_step_size(
    objective: Objective, constraint: Constraint, step_size: Numeric | None, backtrack: bool = False
) -> Numeric:
    """``step_size``; if it is None 1/M_1, M_1 the largest curvature along a coordinate, or 1/L for
    low rank.

    Args:
        objective: the problem's objective, prepared.
        constraint: the problem's constraint, prepared.
        step_size: a scalar, or None.
        backtrack: whether steps backtrack from it: then, for coordinates, 256/M_1 in place of
            1/M_1.

    Returns:
        A scalar, in units of 1 over the Hessian.

    Cost: where step_size is None, the column norms of A (n d), or for low rank about 16 products
    with A.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> from jaxht.solvers.pursuit import pursuit_step_size
        >>> f = jaxht.LeastSquares(2 * jnp.eye(4), jnp.ones(4), mean=False)
        >>> float(pursuit_step_size(f, jaxht.Sparse(2), None))
        0.25
    """
    if step_size is not None:
        return step_size
    bound = objective.majorant()
    if not constraint.coordinatewise:
        return inverse_smoothness(bound.norm())
    step_size = inverse_smoothness(bound.coordinate_norm())
    return LONG_STEP * step_size if backtrack else step_size


def kept_support(constraint: Constraint, x: Any) -> Support | None:
    """The support of the items that are always active, such as an intercept; None where a constraint
    has no such items."""
    if not constraint.selects_items:
        return None
    selection = cast(SelectionConstraint, constraint)
    if jnp.ndim(selection.always_active) == 0:
        return None
    return selection.support_of(jnp.zeros_like(x))


def first_support(constraint: Constraint, x0: Any, found: ModelSubspace) -> ModelSubspace:
    """``found``, or where no item of x0 is active the items that always are.

    The gradient at 0 tells how far these, an intercept, are from their best values: with counts in
    other units, or another mean of y, it finds other items. After a refit it does not.
    """
    kept = kept_support(constraint, x0)
    if kept is None:
        return found
    scores = cast(SelectionConstraint, constraint).scores(x0)
    is_first = jnp.any(kept.mask) & jnp.all(scores == 0)
    support = cast(Support, found)
    return replace(support, mask=jnp.where(is_first, kept.mask, support.mask))


def support_at_start(constraint: Constraint, x0: Any, first: ModelSubspace) -> ModelSubspace:
    """The support of x0, on which a refit cannot increase f; where x0 has no items,
    :func:`first_support`, on which it cannot either."""
    if not constraint.selects_items:
        return tree_where(jnp.any(x0 != 0), constraint.support_of(x0), first)
    selection = cast(SelectionConstraint, constraint)
    support = cast(Support, first)
    has_items = jnp.any(selection.scores(x0) != 0)
    mask = jnp.where(has_items, selection.support_of(x0).mask, support.mask)
    return replace(support, mask=mask)


def follows_first(
    constraint: Constraint, x: Any, support: ModelSubspace, found: ModelSubspace
) -> Array | bool:
    """Whether ``support`` is that of the items that always are active, and ``found`` is another.

    At 0, the best values of these items, x does not move in the first step, but does in the next.
    """
    kept = kept_support(constraint, x)
    if kept is None:
        return False
    return support.equals(kept) & ~found.equals(kept)


@pytree
class NesterovPoint:
    r"""The point from which a step is taken: Nesterov's extrapolation, restarted where it points
    backwards.

    .. math::
        u = x + \frac{t - 1}{t^+} (x - x_{prev}), \qquad t^+ = \frac{1 + \sqrt{1 + 4 t^2}}{2},

    with t = 1 at the start and where ``<u_prev - x, x - x_prev> > 0``. On matrices of low rank the
    spaces turn by a little in every step, along ill-conditioned directions hardly at all: it takes
    about the root of the number of steps.

    Attributes:
        x: u.
        pred: the prediction for u.
        t: a scalar.

    Source: Nesterov 1983; O'Donoghue & Candès 2015, §3.2, for the restarts.
    """

    x: Array
    pred: Array
    t: Array

    @classmethod
    def init(cls, point: Any) -> "NesterovPoint":
        """The start: x itself."""
        return cls(point.x, point.pred, jnp.ones((), real_dtype(point.x)))

    def update(self, new: Any, old: Any) -> "NesterovPoint":
        """Extrapolate from two points, of which the second step was taken from u."""
        backwards = real_vdot(self.x - new.x, new.x - old.x) > 0
        t = jnp.where(backwards, 1, self.t)
        t_next = (1 + jnp.sqrt(1 + 4 * t**2)) / 2
        nu = (t - 1) / t_next
        pred = new.pred + nu * (new.pred - old.pred)
        return NesterovPoint(new.x + nu * (new.x - old.x), pred, t_next)


@pytree
class CycleDetector:
    """Detects supports that repeat, where each support depends on the one before alone.

    Every support is compared with one stored support, which is replaced after 1, 2, 4, 8, ...
    steps, so that every cycle is detected.

    Attributes:
        remembered: the stored support.
        age: int32, the number of steps since it was stored.
        horizon: int32, the number of steps after which it is replaced.

    Source: Brent 1980.
    """

    remembered: ModelSubspace
    age: Array = integer()
    horizon: Array = integer()

    @classmethod
    def init(cls, support: ModelSubspace) -> "CycleDetector":
        """Store the first support."""
        return cls(support, jnp.zeros((), jnp.int32), jnp.ones((), jnp.int32))

    def update(self, old: ModelSubspace, new: ModelSubspace) -> tuple[Array, "CycleDetector"]:
        """SUPPORT_STABLE where the new support is the old one, CYCLING where it is an earlier one,
        else RUNNING; and the detector after this step."""
        status = jnp.where(new.equals(self.remembered), Status.CYCLING, Status.RUNNING)
        status = jnp.where(new.equals(old), Status.SUPPORT_STABLE, status)
        renew = self.age + 1 == self.horizon
        remembered = tree_where(renew, new, self.remembered)
        age = jnp.where(renew, 0, self.age + 1)
        horizon = jnp.where(renew, 2 * self.horizon, self.horizon)
        return status, CycleDetector(remembered, age, horizon)


@pytree
class FixedStep:
    """The search for supports with a constant step size: every step is accepted, and cycles are
    detected.

    Attributes:
        step_size: eta.
        support: the support of the next refit.
        cycles: the cycle detector.
    """

    step_size: Numeric
    support: ModelSubspace
    cycles: CycleDetector

    @property
    def accepted(self) -> ModelSubspace:
        """The support of the current x, once a step has been taken: ``support``."""
        return self.support

    @classmethod
    def init(cls, step: GradientStep, step_size: Numeric) -> "FixedStep":
        """Find the first support, from x0."""
        support = first_support(step.constraint, step.near, step.find(step_size))
        return cls(step_size, support, CycleDetector.init(support))

    def accept(self, new: Iterate, old: Iterate) -> tuple[Iterate, "FixedStep"]:
        """Accept ``new``."""
        return new, self

    def repeat(self, step: GradientStep) -> ModelSubspace:
        """The support that is found from a point nearer to the minimiser on the current one."""
        return step.find(self.step_size)

    def update(self, step: GradientStep) -> tuple["FixedStep", Info]:
        """Find the next support."""
        support = step.find(self.step_size)
        status, cycles = self.cycles.update(self.support, support)
        info = Info(
            full_gradients=1,
            projections=1,
            status=status,
            skip_fixed_point_test=follows_first(step.constraint, step.near, self.support, support),
        )
        return FixedStep(self.step_size, support, cycles), info


@pytree
class Backtracking:
    """The search for supports with backtracking: a step that does not decrease f is rejected, and
    retried with eta / 2. The first refit is one on the support of x0.

    Attributes:
        step_size: eta, the first step size tried after every accepted step.
        support: the support of the next refit.
        accepted: the support of the current x.
        halvings: int32, how often eta has been halved since the last accepted step.
        is_accepted: bool, whether the last step was accepted.
        is_first: bool, whether x is x0, or its refit: the first step is always accepted.
    """

    step_size: Array
    support: ModelSubspace
    accepted: ModelSubspace
    halvings: Array = integer()
    is_accepted: Array
    is_first: Array

    @classmethod
    def init(cls, step: GradientStep, step_size: Numeric) -> "Backtracking":
        """Find the first support, from x0."""
        first = first_support(step.constraint, step.near, step.find(step_size))
        support = support_at_start(step.constraint, step.near, first)
        return cls(
            step_size=jnp.asarray(step_size),
            support=support,
            accepted=support,
            halvings=jnp.zeros((), jnp.int32),
            is_accepted=jnp.array(True),
            is_first=jnp.array(True),
        )

    def accept(self, new: Iterate, old: Iterate) -> tuple[Iterate, "Backtracking"]:
        """``new`` where f has decreased, else ``old``."""
        # A value of NaN is accepted, for the runner to report.
        accept = self.is_first | ~(new.value >= old.value)
        search = replace(
            self,
            accepted=tree_where(accept, self.support, self.accepted),
            is_accepted=accept,
        )
        return tree_where(accept, new, old), search

    def update(self, step: GradientStep) -> tuple["Backtracking", Info]:
        """Find the next support; after a rejected step eta is halved until the support differs from
        the rejected one."""
        halvings = jnp.where(self.is_accepted, 0, self.next_halvings(step))
        support = step.find(self.halved(halvings))
        is_stable = support.equals(self.accepted) | (halvings >= MAX_HALVINGS)
        follows = follows_first(step.constraint, step.near, self.accepted, support)
        info = Info(
            full_gradients=1,
            projections=1,
            status=jnp.where(is_stable, Status.SUPPORT_STABLE, Status.RUNNING),
            accepted=self.is_accepted,
            skip_fixed_point_test=follows | (self.is_first & ~is_stable),
        )
        search = replace(self, support=support, halvings=halvings, is_first=jnp.array(False))
        return search, info

    def repeat(self, step: GradientStep) -> ModelSubspace:
        """The support that is found from a point nearer to the minimiser on the accepted one."""
        return step.find(self.halved(self.halvings))

    def halved(self, halvings: Array) -> Array:
        """eta after so many halvings."""
        return self.step_size * jnp.exp2(-halvings.astype(self.step_size.dtype))

    def next_halvings(self, step: GradientStep) -> Array:
        """After how many halvings the support is no longer the rejected one.

        A bisection by comparisons, not projections: on the support of x, which has been refitted,
        the gradient is 0, so that its items come back one by one as eta falls. All lanes take the
        same few passes.
        """
        if not step.constraint.selects_items:
            return self.halvings + 1  # subspaces turn with every step size
        indicator = cast(Support, self.support).mask.astype(self.step_size.dtype)
        items = cast(SelectionConstraint, step.constraint).active(indicator)
        same = self.halvings
        other = jnp.full((), MAX_HALVINGS, jnp.int32)
        for _ in range(MAX_HALVINGS.bit_length()):
            middle = (same + other + 1) // 2
            is_same = step.separates(self.halved(middle), items)
            same = jnp.where(is_same, middle, same)
            other = jnp.where(is_same, other, middle)
        return other


def has_decreased(objective: Objective, new: Iterate, old: Iterate, rtol: Numeric = 0.0) -> Array:
    """Whether f has decreased by more than ``rtol |f|``.

    A further term, the rounding error of f(0), ends exchanges of coordinates that only fit rounding
    errors once f is near 0; it is 0 where f(0) is infinite. A value of NaN counts as a decrease,
    for the runner to report.

    Args:
        objective: the problem's objective, prepared.
        new: the :class:`jaxht.extend.Iterate` after a step, with its value and pred.
        old: the iterate before the step.
        rtol: a scalar >= 0, relative to the value of f.

    Returns:
        bool, a scalar.

    Cost: one value of f.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> from jaxht.extend import evaluate, has_decreased
        >>> f = jaxht.LeastSquares(jnp.eye(2), jnp.ones(2), mean=False)
        >>> old, new = evaluate(f, jnp.ones(2)), evaluate(f, jnp.zeros(2))
        >>> bool(has_decreased(f, new, old))
        False
    """
    zero = jax.tree.map(jnp.zeros_like, new)
    size_at_zero = jnp.abs(objective.value(zero.x, zero.pred))
    eps = machine_eps(new.x)
    rounding = eps * jnp.where(size_at_zero < jnp.inf, size_at_zero, 0)
    required = rtol * (jnp.abs(old.value) + rounding)
    return ~(new.value >= old.value - required)
