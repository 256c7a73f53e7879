"""Compressive sampling matching pursuit and its relatives: refit on a larger support, then prune
it."""

from typing import NamedTuple

import jax.numpy as jnp
from optax.tree_utils import tree_where

from jaxht._dataclass import pytree, static
from jaxht._typing import Array, Leaf, PRNGKey
from jaxht.constraints import SelectionConstraint, Support, check_selection
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Info, Iterate, evaluate
from jaxht.solvers.pursuit import CycleDetector, has_decreased
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status
from jaxht.subproblems import refit


class CoSaMPState(NamedTuple):
    """The state of :class:`CoSaMP` and :class:`GraSP`.

    Attributes:
        omega: the support of the next refit.
        cycles: the cycle detector.
    """

    omega: Support
    cycles: CycleDetector


class SubspacePursuitState(NamedTuple):
    """The state of :class:`SubspacePursuit`.

    Attributes:
        merged: Omega and the cycle detector.
        is_first: bool, whether x is x0, which has not been refitted.
    """

    merged: CoSaMPState
    is_first: Leaf


@pytree
class CoSaMP(Solver):
    r"""Compressive sampling matching pursuit; for a general f it is GraSP, gradient support
    pursuit.

    .. math::
        \Omega = supp(\nabla f(x), 2k) \cup supp(x), \qquad
        b = \arg\min \{ f(x) : supp(x) \subseteq \Omega \}, \qquad x^+ = H_k(b)

    until Omega repeats. It ends with SUPPORT_STABLE, CYCLING (f may increase in a step), or
    CONVERGED.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        expand: an int, static; Omega takes the top ``expand * k`` coordinates of the gradient. 2 as
            in the sources and in the condition of Shen & Li 2018, Theorem 7; their text prints 1.

    Raises:
        ValueError: for :class:`jaxht.LowRank`, which has no coordinates to select; on dense
            designs, where k is traced without ``Sparse(k, k_max=...)``.

    Cost: a step takes one full gradient, two projections and a refit on up to 3k coordinates.

    Source: Needell & Tropp 2009, Algorithm 1; Bahmani, Raj & Boufounos 2013, Algorithm 1; Shen & Li
    2018, §3.2; Yuan, Li & Zhang 2018, §6.1.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.CoSaMP()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    expand: int = static(default=2)

    fixed_point_test = True
    keeps_best = True
    step_limit = 100  # most runs end within ten steps

    def init(
        self, objective: Objective, constraint: SelectionConstraint, x0: Array, key: PRNGKey | None
    ) -> Step[CoSaMPState]:
        """The first Omega."""
        return init_merged(objective, constraint, x0, self.expand)

    def step(
        self,
        objective: Objective,
        constraint: SelectionConstraint,
        iterate: Iterate,
        state: CoSaMPState,
    ) -> Step[CoSaMPState]:
        """Refit on Omega and prune; then the next Omega."""
        return step_merged(objective, constraint, iterate, state, self.expand)


@pytree
class GraSP(Solver):
    """Gradient support pursuit: :class:`CoSaMP` for general objectives, by default with a refit
    after pruning.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Args:
        debias: bool, static; whether x+ is refitted on its support, "GraSP with debiasing", so that
            the run ends at a minimiser of f on its support. False is Algorithm 1 of the source,
            which prunes b and leaves it at that: its f may be far above that minimum where columns
            are correlated.
        expand: an int, static; as in :class:`CoSaMP`.

    Raises:
        ValueError: where :class:`CoSaMP` raises it.

    Cost: that of :class:`CoSaMP`; with debias a further refit, on k coordinates.

    Source: Bahmani, Raj & Boufounos 2013, Algorithm 1.

    Example:
        >>> import jaxht
        >>> jaxht.GraSP(debias=False)
        GraSP(debias=False)
    """

    debias: bool = static(default=True)
    expand: int = static(default=2, kw_only=True)

    fixed_point_test = True
    keeps_best = True
    step_limit = 100  # most runs end within ten steps

    def init(
        self, objective: Objective, constraint: SelectionConstraint, x0: Array, key: PRNGKey | None
    ) -> Step[CoSaMPState]:
        """The first Omega."""
        return init_merged(objective, constraint, x0, self.expand)

    def step(
        self,
        objective: Objective,
        constraint: SelectionConstraint,
        iterate: Iterate,
        state: CoSaMPState,
    ) -> Step[CoSaMPState]:
        """Refit on Omega, prune, and refit on what is left; then the next Omega."""
        return step_merged(objective, constraint, iterate, state, self.expand, self.debias)


@pytree
class SubspacePursuit(Solver):
    r"""Subspace pursuit: as CoSaMP with k coordinates of the gradient, and refitted after pruning.

    .. math::
        \Omega = supp(\nabla f(x), k) \cup supp(x), \quad
        b = \arg\min \{ f : supp \subseteq \Omega \}, \quad
        x^+ = \arg\min \{ f : supp \subseteq supp(H_k(b)) \}

    until f does not decrease; then the iterate before is returned, with NO_PROGRESS. It has no
    arguments.

    It selects by magnitude: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Raises:
        ValueError: for :class:`jaxht.LowRank`, which has no coordinates to select; on dense
            designs, where k is traced without ``Sparse(k, k_max=...)``.

    Cost: a step takes one full gradient, two projections and refits on 2k and on k coordinates.

    Source: Dai & Milenkovic 2009, Algorithm 1.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.SubspacePursuit()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    fixed_point_test = True
    keeps_best = True
    step_limit = 100  # most runs end within ten steps

    def init(
        self, objective: Objective, constraint: SelectionConstraint, x0: Array, key: PRNGKey | None
    ) -> Step[SubspacePursuitState]:
        """The first Omega."""
        iterate, merged, info = init_merged(objective, constraint, x0, 1)
        return iterate, SubspacePursuitState(merged, jnp.array(True)), info

    def step(
        self,
        objective: Objective,
        constraint: SelectionConstraint,
        iterate: Iterate,
        state: SubspacePursuitState,
    ) -> Step[SubspacePursuitState]:
        """Refit on Omega, prune, refit; keep the iterate before where f has not decreased; then the
        next Omega."""
        b = refit(objective, state.merged.omega, iterate.x)
        x, support = constraint.project(b.x)
        found = refit(objective, support, x)
        new = evaluate(objective, found)
        # x0 has not been refitted, and may already be as good as the first refit.
        accepted = state.is_first | has_decreased(objective, new, iterate)
        new = tree_where(accepted, new, iterate)
        merged, status = next_omega(objective, constraint, new, 1, state.merged)
        info = Info(
            full_gradients=1,
            projections=2,
            status=jnp.where(accepted, status, Status.NO_PROGRESS),
            accepted=accepted,
            refit_converged=found.converged,
        )
        return new, SubspacePursuitState(merged, jnp.array(False)), info


def init_merged(
    objective: Objective, constraint: SelectionConstraint, x0: Array, expand: int
) -> Step[CoSaMPState]:
    """The first Omega, from x0, which need not minimise f on its own support."""
    check_selection(constraint)
    iterate = evaluate(objective, x0)
    omega = merge_supports(objective, constraint, iterate, expand)
    info = Info(full_gradients=1, projections=1, refit_converged=False)
    return iterate, CoSaMPState(omega, CycleDetector.init(omega)), info


def step_merged(
    objective: Objective,
    constraint: SelectionConstraint,
    iterate: Iterate,
    state: CoSaMPState,
    expand: int,
    debias: bool = False,
) -> Step[CoSaMPState]:
    """Refit on Omega, prune, with ``debias`` refit on what is left, and find the next Omega."""
    found = refit(objective, state.omega, iterate.x)
    x, support = constraint.project(found.x)
    if debias:
        found = refit(objective, support, x)
        new = evaluate(objective, found)
    else:
        new = evaluate(objective, x)
    state, status = next_omega(objective, constraint, new, expand, state)
    info = Info(full_gradients=1, projections=2, status=status, refit_converged=found.converged)
    return new, state, info


def next_omega(
    objective: Objective,
    constraint: SelectionConstraint,
    iterate: Iterate,
    expand: int,
    state: CoSaMPState,
) -> tuple[CoSaMPState, Array]:
    """The state with the next Omega, and the status that follows from it."""
    omega = merge_supports(objective, constraint, iterate, expand)
    status, cycles = state.cycles.update(state.omega, omega)
    return CoSaMPState(omega, cycles), status


def merge_supports(
    objective: Objective, constraint: SelectionConstraint, iterate: Iterate, expand: int
) -> Support:
    """The top ``expand * k`` coordinates (or groups) of the gradient at x, and the support of x."""
    k_max = None if constraint.k_max is None else expand * constraint.k_max
    descent = -objective.gradient(iterate.x, iterate.pred)
    top = constraint.top_k(descent, expand * constraint.k, k_max)
    return top.union(constraint.support_of(iterate.x))
