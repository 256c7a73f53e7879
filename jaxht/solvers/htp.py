"""Hard thresholding pursuit, full and partial."""

from dataclasses import replace
from typing import Any, NamedTuple, cast

import jax.numpy as jnp

from jaxht._dataclass import integer, pytree, static
from jaxht._loops import cond
from jaxht._typing import Array, Numeric, PRNGKey
from jaxht.constraints import (
    Constraint,
    ModelSubspace,
    SelectionConstraint,
    Support,
    check_selection,
)
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Info, Iterate, check_step_size, evaluate
from jaxht.solvers.pursuit import (
    Backtracking,
    FixedStep,
    GradientStep,
    NesterovPoint,
    pursuit_step_size,
)
from jaxht.solvers.selection import is_full
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status
from jaxht.subproblems import RefitStatus, refit, subproblem


class HTPState(NamedTuple):
    """The state of :class:`HTP`.

    Attributes:
        search: the support of the next refit, and how it is found.
        start: the extrapolated point from which the next gradient step is taken; None: the iterate.
    """

    search: FixedStep | Backtracking
    start: NesterovPoint | None


class PHTState(NamedTuple):
    """The state of :class:`PHT`.

    Attributes:
        search: the support of the next refit, and how it is found.
    """

    search: FixedStep | Backtracking


@pytree
class HTP(Solver):
    r"""Hard thresholding pursuit: threshold a gradient step, then refit on the support that it
    found.

    .. math::
        z = x - \eta \nabla f(x) \quad\text{(S1)}, \qquad F^+ = supp(z, k) \quad\text{(S2)}, \qquad
        x^+ = \arg\min \{ f(x) : supp(x) \subseteq F^+ \} \quad\text{(S3)}

    until F+ = F. It ends with SUPPORT_STABLE, CYCLING, or CONVERGED where x is the same on several
    supports. From x0 = 0 the first support is that of the coordinates in ``keep``, such as an
    intercept, where there are any: the others are then judged at their best values.

    For matrices of low rank the support is the subspace U w V', U and V the singular vectors of the
    gradient step (SVP-Newton of Jain, Meka & Dhillon 2010), L takes the place of M_1, and the run
    ends with CONVERGED. The column and row spaces rotate slightly in every step, so the gradient
    step then starts from an extrapolated point, see ``nesterov``.

    On graphs of precision matrices the refits of steps end with a Newton step that decreases f by
    less than 1e-5 of it. Where the support comes back, or repeats in a cycle, the last one is exact;
    where a test of :class:`jaxht.Stop` ends the run before, it is not.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        step_size: eta > 0, a scalar in units of 1 over the Hessian, traced; 0, infinity and NaN end
            as INVALID_STEP_SIZE. Termination is guaranteed below 1/M_2k, the restricted smoothness;
            with a much smaller step the support does not change any more, with a much larger one
            supports can cycle. None: 1/M_1, M_1 the largest curvature along one coordinate (``max_i
            ||a_i||^2`` for least squares): slightly above the guarantee, it recovers far more
            signals than 1/L does, on Gaussian and on correlated designs, and cycles are rare. For
            counts and gamma variables, whose curvature has no bound, M_1 is that at x. With
            ``backtrack`` 256/M_1.
        backtrack: bool, static; whether a step that does not decrease f is rejected and retried
            with eta halved, until the support no longer changes; the next step starts with eta
            again. Every accepted step then decreases f (the first one is a refit on the support of
            x0, if that is not 0) and no run cycles, so that eta can start far above 1/M_1: f ends
            lower, and far more supports are recovered, above all for losses whose curvature is
            mostly far below its bound (logistic, Poisson), at 3 to 10 times the steps.
        nesterov: bool, static; for :class:`jaxht.LowRank`, where step_size is None and steps do
            not backtrack: whether the gradient step is taken from ``x + nu (x - x_prev)``,
            Nesterov's extrapolation, restarted where it points backwards. Then f may increase in a
            step. Elsewhere this has no effect, because with a step size above 1/L extrapolation
            need not converge.

    Raises:
        ValueError: on dense designs, where k is traced without ``Sparse(k, k_max=...)``.

    Cost: a step takes one full gradient, one projection and one refit.

    Source: Foucart 2011; Yuan, Li & Zhang 2018, Algorithm 1 (GraHTP). Backtracking is not in the
    sources.

    Example:
        >>> import jax, jaxht
        >>> A = jaxht.ensembles.gaussian(jax.random.key(0), n=40, d=60)
        >>> y = A @ jaxht.ensembles.gaussian_signal(jax.random.key(1), d=60, K=4)
        >>> result = jaxht.solve(jaxht.LeastSquares(A, y), jaxht.Sparse(4), jaxht.HTP())
        >>> result.reason, bool(result.value < 1e-8)
        ('SUPPORT_STABLE', True)
    """

    step_size: Numeric | None = None
    backtrack: bool = static(default=False)
    nesterov: bool = static(default=True)

    fixed_point_test = True
    keeps_best = True
    takes_complex = True

    def max_steps(self, constraint: Constraint) -> int:
        """100 steps, most runs end within ten; 5 000 for low rank, where spaces turn by a little in
        each."""
        return 100 if constraint.coordinatewise else 5_000

    def init(
        self, objective: Objective, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> Step[HTPState]:
        """The first support, from x0, which need not minimise f on its own support."""
        iterate = evaluate(objective, x0)
        gradient = objective.gradient(x0, iterate.pred)
        scale = step_scale(self, objective, iterate.pred)
        first = GradientStep(
            constraint=constraint,
            x=x0,
            gradient=gradient,
            near=x0,
            scale=scale,
        )
        search, info = start_search(self, objective, first)
        has_default_step = self.step_size is None and not self.backtrack
        extrapolates = self.nesterov and has_default_step and not constraint.coordinatewise
        start = NesterovPoint.init(iterate) if extrapolates else None
        return iterate, HTPState(search, start), info

    def step(
        self, objective: Objective, constraint: Constraint, iterate: Iterate, state: HTPState
    ) -> Step[HTPState]:
        """S3 on the current support, then S1 and S2 for the next one: no support is refitted
        twice."""
        problem = subproblem(objective, constraint)
        found = problem.approach(state.search.support, iterate.x)  # S3
        new, search = state.search.accept(evaluate(objective, found), iterate)
        support = search.accepted
        start = state.start
        point: Iterate | NesterovPoint = new
        if start is not None:
            start = start.update(new, iterate)
            point = start
        gradient = objective.gradient(point.x, point.pred)
        scale = step_scale(self, objective, point.pred)
        onwards = GradientStep(constraint, point.x, gradient, new.x, scale=scale)
        search, info = search.update(onwards)  # S1, S2
        info = replace(info, refit_status=found.status)
        if problem.is_approached:
            new, search, info = refine(objective, support, new, search, info, onwards)
        return new, HTPState(search, start), info


def refine(
    objective: Objective,
    support: ModelSubspace,
    iterate: Iterate,
    search: Any,
    info: Info,
    step: GradientStep,
) -> tuple[Iterate, Any, Info]:
    """Refit exactly where a run would end, on the support of the iterate, and go on if that finds
    another support."""
    ends = jnp.asarray(info.status) != Status.RUNNING

    def exactly(iterate):
        # Under vmap lanes that go on come here, too, and take no steps.
        enough = jnp.where(ends, 0.0, jnp.inf)
        found = subproblem(objective, support).approach(support, iterate.x, enough)
        new = evaluate(objective, found)
        gradient = objective.gradient(new.x, new.pred)
        onwards = replace(step, x=new.x, gradient=gradient, near=new.x)
        return new, found.status, search.repeat(onwards)

    def as_it_is(iterate):
        return iterate, jnp.asarray(info.refit_status, jnp.int32), search.support

    iterate, refit_status, next_support = cond(ends, exactly, as_it_is, iterate)
    has_come_back = (info.status == Status.SUPPORT_STABLE) & search.support.equals(support)
    goes_on = has_come_back & ~next_support.equals(support)
    search = replace(search, support=next_support)
    more = ends.astype(jnp.int32)
    info = replace(
        info,
        full_gradients=info.full_gradients + more,
        projections=info.projections + more,
        status=jnp.where(goes_on, Status.RUNNING, info.status),
        refit_status=refit_status,
        accepted=ends | jnp.asarray(info.accepted),
    )
    return iterate, search, info


@pytree
class PHT(Solver):
    r"""Partial hard thresholding: as HTP, but at most r coordinates enter the support in a step.

    .. math::
        z = x - \eta \nabla f(x), \quad
        J = S \cup \{ r \text{ largest } |z_i| \text{ off } S \}, \quad
        S^+ = supp(z_J, k), \qquad x^+ = \arg\min \{ f(x) : supp(x) \subseteq S^+ \}

    With r = k it is HTP. With r = 1 it is orthogonal matching pursuit with replacement, which swaps
    where ``eta |grad_i f(x)| > |x_j|``. While S has fewer than k coordinates, as at x0 = 0, the next
    support is that of HTP. It ends as :class:`HTP` does.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        r: number of coordinates (or groups) that may enter, an integer, traced.
        step_size: as of :class:`HTP`, for coordinates.
        backtrack: as of :class:`HTP`.

    Raises:
        ValueError: for :class:`jaxht.TreeSparse`, whose entries cannot leave one by one, and for
            :class:`jaxht.LowRank`, which has no coordinates to select; on dense
            designs, where k is traced without ``Sparse(k, k_max=...)``.

    Cost: a step takes one full gradient, one projection, one further selection and one refit.

    Source: Jain, Tewari & Dhillon 2017; Axiotis & Sviridenko 2020, §1.2.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> x0 = jnp.array([1.0, 1.0, 0.0, 0.0])
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.PHT(r=1), x0=x0).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    r: Numeric = integer(default=1)
    step_size: Numeric | None = None
    backtrack: bool = static(default=False)

    fixed_point_test = True
    keeps_best = True
    takes_complex = True
    step_limit = 100

    def init(
        self, objective: Objective, constraint: SelectionConstraint, x0: Array, key: PRNGKey | None
    ) -> Step[PHTState]:
        """The first support, from x0."""
        check_selection(constraint, exchanges=True)
        iterate = evaluate(objective, x0)
        S = constraint.support_of(x0).mask
        first = self._gradient_step(objective, constraint, iterate, S)
        search, info = start_search(self, objective, first)
        return iterate, PHTState(search), info

    def step(
        self,
        objective: Objective,
        constraint: SelectionConstraint,
        iterate: Iterate,
        state: PHTState,
    ) -> Step[PHTState]:
        """x+ on the current support, then the next support."""
        found = refit(objective, state.search.support, iterate.x)  # x+
        new, search = state.search.accept(evaluate(objective, found), iterate)
        S = cast(Support, search.accepted).mask
        onwards = self._gradient_step(objective, constraint, new, S)
        search, info = search.update(onwards)
        return new, PHTState(search), replace(info, refit_status=found.status)

    def _gradient_step(
        self,
        objective: Objective,
        constraint: SelectionConstraint,
        iterate: Iterate,
        S: Array,
    ) -> GradientStep:
        """Gradient steps to J; all coordinates where S has room for more items."""
        gradient = objective.gradient(iterate.x, iterate.pred)
        # Off S, where x = 0, the order of |z_i| is that of |g_i|, whatever the step size.
        entering = constraint.top_k(jnp.where(S, 0, -gradient), self.r, None).mask
        selected = constraint.active(S.astype(iterate.x.dtype))
        has_room = ~is_full(constraint, selected)
        J = S | entering | has_room
        scale = step_scale(self, objective, iterate.pred)
        return GradientStep(
            constraint=constraint,
            x=iterate.x,
            gradient=gradient,
            near=iterate.x,
            candidates=J,
            scale=scale,
        )


def step_scale(solver: HTP | PHT, objective: Objective, pred: Array) -> Numeric:
    """By what the step size is multiplied at a point; 1 where it is given."""
    return objective.step_scale(pred) if solver.step_size is None else 1.0


def start_search(
    solver: HTP | PHT, objective: Objective, step: GradientStep
) -> tuple[FixedStep | Backtracking, Info]:
    """The search for supports from the iterate at x0, which has not been refitted."""
    step_size = pursuit_step_size(objective, step.constraint, solver.step_size, solver.backtrack)
    kind = Backtracking if solver.backtrack else FixedStep
    search = kind.init(step, step_size)
    info = Info(
        full_gradients=1,
        projections=1,
        status=check_step_size(step_size),
        refit_status=RefitStatus.FAILED,
    )
    return search, info
