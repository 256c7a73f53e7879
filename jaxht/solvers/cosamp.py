"""Compressive sampling matching pursuit and its relatives: refit on a larger support, then prune
it."""

from dataclasses import replace
from typing import Any, NamedTuple, cast

import jax.numpy as jnp
from optax.tree_utils import tree_where

from jaxht._checks import check_count
from jaxht._dataclass import pytree, static
from jaxht._typing import Array, Leaf, PRNGKey
from jaxht.constraints import SelectionConstraint, Support, check_selection
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Info, Iterate, evaluate
from jaxht.solvers.pursuit import (
    CycleDetector,
    first_support,
    follows_first,
    has_decreased,
    support_at_start,
)
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status
from jaxht.subproblems import RefitStatus, refit


class MergingState(NamedTuple):
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
        merging: Omega and the cycle detector.
        is_first: bool, whether x is x0.
    """

    merging: MergingState
    is_first: Leaf


class MergingPursuit(Solver):
    """The steps of CoSaMP and GraSP; subspace pursuit adds a test of the decrease.

    Attributes:
        expand: Omega takes the top ``expand * k`` coordinates of the gradient.
        debias: whether x+ is refitted on its support.
    """

    expand: int
    debias: bool

    fixed_point_test = True
    keeps_best = True
    takes_complex = True
    step_limit = 100  # most runs end within ten steps

    def init(
        self, objective: Objective, constraint: SelectionConstraint, x0: Array, key: PRNGKey | None
    ) -> Step[Any]:
        """The first Omega, from x0, which need not minimise f on its own support."""
        check_selection(constraint)
        check_count("expand", self.expand)
        iterate = evaluate(objective, x0)
        merged = self._merge(objective, constraint, iterate)
        omega = cast(Support, first_support(constraint, x0, merged))
        info = Info(full_gradients=1, projections=1, refit_status=RefitStatus.FAILED)
        return iterate, MergingState(omega, CycleDetector.init(omega)), info

    def step(
        self, objective: Objective, constraint: SelectionConstraint, iterate: Iterate, state: Any
    ) -> Step[Any]:
        """Refit on Omega and prune; then the next Omega."""
        new, refit_status = self.refit_pruned(objective, constraint, iterate, state.omega)
        merging, status = self.next_omega(objective, constraint, new, state)
        info = Info(
            full_gradients=1,
            projections=2,
            status=status,
            refit_status=refit_status,
            skip_fixed_point_test=follows_first(constraint, new.x, state.omega, merging.omega),
        )
        return new, merging, info

    def refit_pruned(
        self,
        objective: Objective,
        constraint: SelectionConstraint,
        iterate: Iterate,
        omega: Support,
    ) -> tuple[Iterate, Leaf]:
        """x+, and how its last refit ended."""
        b = refit(objective, omega, iterate.x)
        x, support = constraint.project(b.x)
        if not self.debias:
            return evaluate(objective, x), b.status
        # Of fewer than k entries in Omega, all others are ties at 0.
        inside = replace(support, mask=support.mask & omega.mask)
        found = refit(objective, inside, x)
        return evaluate(objective, found), found.status

    def next_omega(
        self,
        objective: Objective,
        constraint: SelectionConstraint,
        iterate: Iterate,
        state: MergingState,
    ) -> tuple[MergingState, Array]:
        """The state with the next Omega, and the status that follows from it."""
        omega = self._merge(objective, constraint, iterate)
        status, cycles = state.cycles.update(state.omega, omega)
        return MergingState(omega, cycles), status

    def _merge(
        self, objective: Objective, constraint: SelectionConstraint, iterate: Iterate
    ) -> Support:
        """The top coordinates (or groups) of the gradient at x, and the support of x."""
        k_max = None if constraint.k_max is None else self.expand * constraint.k_max
        descent = -objective.gradient(iterate.x, iterate.pred)
        top = constraint.top_k(descent, self.expand * constraint.limit, k_max)
        return top.union(constraint.support_of(iterate.x))


@pytree
class CoSaMP(MergingPursuit):
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

    debias = False


@pytree
class GraSP(MergingPursuit):
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


@pytree
class SubspacePursuit(MergingPursuit):
    r"""Subspace pursuit: as CoSaMP with k coordinates of the gradient, and refitted after pruning.

    .. math::
        \Omega = supp(\nabla f(x), k) \cup supp(x), \quad
        b = \arg\min \{ f : supp \subseteq \Omega \}, \quad
        x^+ = \arg\min \{ f : supp \subseteq supp(H_k(b)) \}

    until f does not decrease; then the iterate before is returned, with NO_PROGRESS. The first
    Omega is the support of x0, if that is not 0. It has no arguments.

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

    expand = 1
    debias = True

    def init(
        self, objective: Objective, constraint: SelectionConstraint, x0: Array, key: PRNGKey | None
    ) -> Step[SubspacePursuitState]:
        """The first Omega, the support of x0 where it has one."""
        iterate, merging, info = super().init(objective, constraint, x0, key)
        omega = cast(Support, support_at_start(constraint, x0, merging.omega))
        merging = MergingState(omega, CycleDetector.init(omega))
        return iterate, SubspacePursuitState(merging, jnp.array(True)), info

    def step(
        self,
        objective: Objective,
        constraint: SelectionConstraint,
        iterate: Iterate,
        state: SubspacePursuitState,
    ) -> Step[SubspacePursuitState]:
        """Refit on Omega, prune, refit; keep the iterate before where f has not decreased; then the
        next Omega."""
        new, refit_status = self.refit_pruned(objective, constraint, iterate, state.merging.omega)
        # x0 may already be as good as its refit.
        accepted = state.is_first | has_decreased(objective, new, iterate)
        new = tree_where(accepted, new, iterate)
        omega = state.merging.omega
        merging, status = self.next_omega(objective, constraint, new, state.merging)
        follows = follows_first(constraint, new.x, omega, merging.omega)
        info = Info(
            full_gradients=1,
            projections=2,
            status=jnp.where(accepted, status, Status.NO_PROGRESS),
            accepted=accepted,
            refit_status=refit_status,
            skip_fixed_point_test=follows | (state.is_first & (status == Status.RUNNING)),
        )
        return new, SubspacePursuitState(merging, jnp.array(False)), info
