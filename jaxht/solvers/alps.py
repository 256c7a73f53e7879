"""Thresholding of exact steps from exactly extrapolated points: FIHT and ALPS."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxht._dataclass import pytree, static
from jaxht._typing import Array, Leaf, PRNGKey
from jaxht.constraints import SelectionConstraint, Support
from jaxht.linalg.inner_products import real_vdot
from jaxht.linalg.normal_equations import ratio
from jaxht.objectives.linear_model import LinearModel
from jaxht.solvers.exact_steps import (
    check_exact_steps,
    exact_step,
    restrict_or_all,
    start_support,
)
from jaxht.solvers.iterate import Info, Iterate, check_step_size, evaluate
from jaxht.solvers.solver import Solver, Step


class Start(NamedTuple):
    """The point v from which a step of :class:`FIHT` and :class:`ALPS` is taken.

    Attributes:
        point: v, without its value.
        gradient: that of f at v.
        support: that of v.
    """

    point: Iterate
    gradient: Leaf
    support: Support


class ExtrapolatedState(NamedTuple):
    """The state of :class:`FIHT` and :class:`ALPS`.

    Attributes:
        gradient: that of f at x.
        support: T, that of x.
        start: v.
    """

    gradient: Leaf
    support: Support
    start: Start


class ExtrapolatedThresholding(Solver):
    """The steps of FIHT and ALPS, which differ in where the length of a step is exact.

    Attributes:
        memory: 1, or 0 for steps from x itself.
        debias: whether a step on the support follows.
    """

    memory: int
    debias: bool

    fixed_point_test = True
    keeps_best = True
    takes_complex = True
    step_limit = 5_000
    fixed_point_steps = 2  # a step starts from a point beyond x

    def first_support(self, constraint: SelectionConstraint, x0: Array, g: Array) -> Support:
        """The support of x0."""
        raise NotImplementedError

    def active(self, constraint: SelectionConstraint, support: Support, g: Array) -> Support:
        """S, on which the length of a step is exact, from the support of v and the gradient
        there."""
        raise NotImplementedError

    def init(
        self,
        objective: LinearModel,
        constraint: SelectionConstraint,
        x0: Array,
        key: PRNGKey | None,
    ) -> Step[ExtrapolatedState]:
        """v = x0, and the gradient there."""
        check_exact_steps(type(self).__name__, objective, constraint)
        iterate = evaluate(objective, x0)
        g = objective.gradient(x0, iterate.pred)
        T = self.first_support(constraint, x0, g)
        start = Start(Iterate(x0, pred=iterate.pred), g, T.union(T) if self.memory else T)
        state = ExtrapolatedState(g, T, start)
        return iterate, state, Info(full_gradients=1)

    def step(
        self,
        objective: LinearModel,
        constraint: SelectionConstraint,
        iterate: Iterate,
        state: ExtrapolatedState,
    ) -> Step[ExtrapolatedState]:
        """An exact step from v, threshold, an exact step on T, and the next v."""
        v = state.start
        S = self.active(constraint, v.support, v.gradient)
        direction = -restrict_or_all(S, v.gradient)
        mu = exact_step(objective, v.point, v.gradient, direction).length
        w, T = constraint.project(v.point.x - mu * v.gradient)
        new = evaluate(objective, w)
        g = objective.gradient(new.x, new.pred)
        if self.debias:
            p = -T.restrict(g)
            step = exact_step(objective, new, g, p)
            x, pred = new.x + step.move, new.pred + step.image
            new = Iterate(x, objective.value(x, pred), pred)
            g = objective.gradient(x, pred)

        start = Start(Iterate(new.x, pred=new.pred), g, T)
        if self.memory:
            start = _extrapolate(objective, start, iterate, state)
        # Where the gradient is 0 a length of 0 is no failure.
        status = check_step_size(jnp.where(jnp.any(v.gradient != 0), mu, 1))
        info = Info(full_gradients=1 + self.debias, projections=1, status=status)
        return new, ExtrapolatedState(g, T, start), info


def _extrapolate(
    objective: LinearModel, new: Start, old: Iterate, state: ExtrapolatedState
) -> Start:
    """v of least f on the line through x+ and x.

    The gradient of least squares is affine, so that it is extrapolated as x is.
    """
    x, pred = new.point.x, new.point.pred
    move, image = x - old.x, pred - old.pred
    largest = jnp.max(jnp.abs(move))
    unit = jnp.where(largest > 0, largest, 1)
    curvature = objective.hessian(x, pred).quadratic_form(move / unit, image / unit)
    tau = ratio(-real_vdot(new.gradient / unit, move / unit), curvature)
    return Start(
        point=Iterate(x + tau * move, pred=pred + tau * image),
        gradient=new.gradient + tau * (new.gradient - state.gradient),
        support=new.support.union(state.support),
    )


@pytree
class FIHT(ExtrapolatedThresholding):
    r"""Fast iterative hard thresholding: exact steps from points that are extrapolated exactly, and
    after each one a step on the support that it found. There is no step size to choose.

    .. math::
        v = x + \tau (x - x_{prev}), \qquad S = supp(v), \qquad
        w = H_k(v - \mu \nabla f(v)), \qquad
        x^+ = w - \alpha \nabla f(w)_T, \quad T = supp(w)

    with the lengths that are best along their directions, tau of f from x along ``x - x_prev``,
    ``mu = ||g_S||^2 / ||A g_S||^2`` for g the gradient at v, and alpha likewise for that at w on T.
    At x = 0 S is supp(g, k). f may increase in a step; the best point is returned where a run
    reaches its limit. It has no arguments.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Raises:
        ValueError: for objectives other than least squares, for bounds, and for
            :class:`jaxht.LowRank`, which has no coordinates to select.

    Cost: a step takes two full gradients, two products and one projection, twice as much as one of
    :class:`jaxht.NIHT`.

    Source: Wei 2015; there the first two steps have length 1, in place of the exact one.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.FIHT()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    memory = 1
    debias = True

    def first_support(self, constraint: SelectionConstraint, x0: Array, g: Array) -> Support:
        """supp(x0), or at 0 supp(g, k)."""
        return start_support(constraint, x0, g)

    def active(self, constraint: SelectionConstraint, support: Support, g: Array) -> Support:
        """supp(v)."""
        return support


@pytree
class ALPS(ExtrapolatedThresholding):
    r"""Algebraic pursuits by gradient steps: as FIHT, with a length that is exact on more
    coordinates, those that may enter the support.

    .. math::
        S = supp(v) \cup supp(g_{\overline{supp(v)}}, k), \quad g = \nabla f(v), \qquad
        \mu = \frac{\|g_S\|^2}{\|A g_S\|^2}, \qquad w = H_k(v - \mu g_S)

    v and the step from w to x+ are those of :class:`jaxht.FIHT`. In the names of the source
    ``memory``-ALPS(2) has a step on the support, and ``memory``-ALPS(0) none. Those with least
    squares in place of steps are there under other names: 0-ALPS(4) is ``CoSaMP(expand=1)``, and
    0-ALPS(5) ``GraSP(expand=1)``.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        memory: 0 or 1, static; how many former points v is extrapolated from: 0 takes v = x.
        debias: bool, static; whether a step on the support follows.

    Raises:
        ValueError: for another memory, for objectives other than least squares, for bounds, and for
            :class:`jaxht.LowRank`, which has no coordinates to select.

    Cost: a step takes two full gradients, two products, one projection and one further selection;
    without debias one full gradient and one product less.

    Source: Cevher 2011, "An ALPS view of sparse recovery"; Kyrillidis & Cevher 2011, "Recipes on
    hard thresholding methods", 0-ALPS and 1-ALPS. Their step along g_S selects what one along g
    does, for S has all that may enter.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.ALPS()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    memory: int = static(default=1)
    debias: bool = static(default=True)

    def init(self, objective: Any, constraint: Any, x0: Array, key: PRNGKey | None) -> Any:
        """v = x0, and the gradient there."""
        if self.memory not in (0, 1):
            raise ValueError(f"memory must be 0 or 1; got {self.memory!r}")
        return super().init(objective, constraint, x0, key)

    def first_support(self, constraint: SelectionConstraint, x0: Array, g: Array) -> Support:
        """supp(x0)."""
        return constraint.support_of(x0)

    def active(self, constraint: SelectionConstraint, support: Support, g: Array) -> Support:
        """supp(v), and the k largest entries of the gradient outside."""
        outside = jnp.where(support.mask, 0, g)
        entering = constraint.top_k(-outside, constraint.limit, constraint.k_max)
        return support.union(entering)
