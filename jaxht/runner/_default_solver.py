"""The solver that runs where none is given."""

import math
from typing import Any, cast

import numpy as np

from jaxht._checks import check_kind, known_values
from jaxht.constraints import Constraint, SelectionConstraint
from jaxht.objectives.objective import Objective
from jaxht.runner._sizes import round_k_max
from jaxht.solvers import HTP, IHT, NIHT, OMP, ExhaustiveSearch, LocalSearch
from jaxht.solvers.solver import Solver
from jaxht.subproblems import subproblem


def default_solver(objective: Objective, constraint: Constraint) -> Solver:
    """The solver that :func:`jaxht.solve` runs where none is given, from what is static: kinds,
    shapes and k_max.

    * Coordinates, groups and trees of data: :class:`jaxht.ExhaustiveSearch` where there are few
      supports, at most 2048, and refits are cheap. Else, but for trees,
      :class:`jaxht.LocalSearch`, with as many starts and moves as take about a second or a few, and
      one start where d is huge; for smooth losses of one output, such as the logistic, with
      ``num_candidates=1`` where d <= n.
    * Matrices of low rank, trees, matrix-free and streamed designs, and graphs: :class:`jaxht.HTP`;
      :class:`jaxht.IHT` for matrices in factors.
    * The hinge loss, whose swaps have no scores: :class:`jaxht.OMP`, and :class:`jaxht.NIHT` on
      matrix-free and streamed designs.
    * Where k is traced and k_max is not known: :class:`jaxht.NIHT`.

    This default is meant for a single problem whose best support is wanted. On many problems solved
    side by side, or on planted problems with weakly correlated columns, ``HTP()`` and ``NIHT()``
    find the same supports in a small fraction of the time.

    Args:
        objective: as for :func:`jaxht.solve`.
        constraint: as for :func:`jaxht.solve`.

    Returns:
        A solver.

    Raises:
        ValueError: where the objective or the constraint is not valid.

    Cost: no computation.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]), mean=False)
        >>> jaxht.default_solver(f, jaxht.Sparse(2))
        ExhaustiveSearch()
        >>> f = jaxht.LeastSquares(jnp.ones((50, 100)), jnp.ones(50))
        >>> jaxht.default_solver(f, jaxht.Sparse(5))
        LocalSearch()
    """
    check_kind(objective=objective, constraint=constraint)
    objective = objective.prepare()
    return choose_solver(objective, constraint.prepare(objective.shape))


def choose_solver(objective: Objective, constraint: Constraint) -> Solver:
    """Choose the solver of :func:`default_solver` for what is prepared."""
    if not constraint.stores_entries:
        return IHT()
    problem = subproblem(objective, constraint)
    if not problem.is_searchable:
        return HTP() if problem.is_smooth else NIHT()
    if constraint.k_max is None or not constraint.selects_items:
        return NIHT()
    selection = cast(SelectionConstraint, constraint)
    if is_enumerable(objective, selection):
        return ExhaustiveSearch()
    if not problem.is_smooth:
        return OMP()
    if not selection.is_hereditary:
        return HTP()
    return scale_search(objective, selection)


# Supports that are enumerated, and multiplications in their refits: milliseconds.
MAX_ENUMERATED_SUPPORTS = 2048
MAX_ENUMERATION = 100_000_000


def is_enumerable(objective: Any, constraint: SelectionConstraint) -> bool:
    """Whether all supports are refitted in less time than a search takes."""
    shape = objective.shape
    num_items = constraint.num_items(shape)
    if num_items is None:
        return False
    kept = known_values(constraint.always_active)
    num_kept = 0 if kept is None else int(np.sum(kept))
    num_chosen = max(0, (constraint.k_max or 0) - num_kept)
    num_supports = math.comb(num_items - num_kept, num_chosen)
    k = max(1, constraint.support_size(shape) or 0)
    if subproblem(objective, constraint).is_quadratic:
        refit = min(objective.num_samples, math.prod(shape)) * k * k
    else:
        refit = newton_multiplications(objective, k)
    return num_supports <= MAX_ENUMERATED_SUPPORTS and num_supports * refit <= MAX_ENUMERATION


def newton_multiplications(objective: Any, k: int) -> int:
    """An estimate of the multiplications of a refit on k columns by Newton steps."""
    return 10 * objective.num_samples * (k * k + 200)


# Multiplications in a run: about a second or a few.
MAX_MULTIPLICATIONS = 40_000_000_000
# Moves of a start that go without cutting down on starts.
MOVES_OF_ONE_START = 400
# With fewer moves there is one refit in each.
MIN_MOVES_WITH_CANDIDATES = 128


def scale_search(objective: Any, constraint: SelectionConstraint) -> LocalSearch:
    """LocalSearch with the starts and moves that MAX_MULTIPLICATIONS allow."""
    shape = objective.shape
    n, d = objective.num_samples, math.prod(shape)
    shared = round_k_max(constraint, shape)  # by which solve runs
    k = max(1, shared.k_max or 0)
    default = LocalSearch()
    patience = default.patience
    problem = subproblem(objective, constraint)
    if problem.is_quadratic:
        gram = 0 if d <= n else n * min(d, 1024)
        work = 10 * k * min(d, 1024) + gram + k * n * d // 25
    elif objective.is_linear_model and not objective.design.gathers(k):
        return LocalSearch(num_starts=1, patience=1, num_candidates=1)
    else:
        patience //= 2  # a move takes many refits
        refit = newton_multiplications(objective, k)
        work = default.num_candidates * refit + 2 * k * n * min(d, 1024) + k * n * d // 25
        if MAX_MULTIPLICATIONS // work < MIN_MOVES_WITH_CANDIDATES:
            return LocalSearch(num_starts=2, num_moves=50, patience=1, num_candidates=1)
        # With more columns than samples its supports are worse.
        if problem.is_expandable and d <= n:
            return LocalSearch(patience=patience, num_candidates=1)
    moves = MAX_MULTIPLICATIONS // work
    if moves >= MOVES_OF_ONE_START:
        starts = min(default.num_starts, 2 ** int(math.log2(moves / MOVES_OF_ONE_START)))
        return LocalSearch(num_starts=starts, patience=patience)
    num_moves = max(1, min(25, moves // 16))
    patience = max(1, min(patience, moves // (16 * num_moves)))
    return LocalSearch(num_starts=1, num_moves=num_moves, patience=patience)
