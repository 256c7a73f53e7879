"""The solver that runs where none is given."""

import math
from typing import Any, cast

from jaxht._checks import check_kind
from jaxht.constraints import Constraint, SelectionConstraint
from jaxht.objectives.objective import Objective
from jaxht.runner._sharing import share_program
from jaxht.solvers import HTP, IHT, NIHT, LocalSearch
from jaxht.solvers.solver import Solver
from jaxht.subproblems import subproblem


def default_solver(objective: Objective, constraint: Constraint) -> Solver:
    """The solver that :func:`jaxht.solve` runs where none is given, from what is static: kinds,
    shapes and k_max.

    * Coordinates and groups of data: :class:`jaxht.LocalSearch`, with as many starts and moves as
      take about a second or a few, and one start where d is huge.
    * Matrices of low rank, matrix-free and streamed designs, and graphs: :class:`jaxht.HTP`;
      :class:`jaxht.IHT` for matrices in factors.
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
        LocalSearch()
    """
    check_kind(objective=objective, constraint=constraint)
    objective = objective.prepare()
    return choose_solver(objective, constraint.prepare(objective.shape))


def choose_solver(objective: Objective, constraint: Constraint) -> Solver:
    """Choose the solver of :func:`default_solver` for what is prepared."""
    if not constraint.stores_entries:
        return IHT()
    if not subproblem(objective, constraint).is_searchable:
        return HTP()
    if constraint.k_max is None or not constraint.selects_items:
        return NIHT()
    return scale_search(objective, cast(SelectionConstraint, constraint))


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
    shared = share_program(constraint, shape)  # by which solve runs
    k = max(1, shared.k_max or 0)
    default = LocalSearch()
    patience = default.patience
    if subproblem(objective, constraint).is_quadratic:
        gram = 0 if d <= n else n * min(d, 1024)
        work = 10 * k * min(d, 1024) + gram + k * n * d // 25
    elif objective.is_linear_model and not objective.design.gathers(k):
        return LocalSearch(num_starts=1, patience=1, num_candidates=1)
    else:
        patience //= 2  # a move takes many refits
        refit = 10 * n * (k * k + 200)
        work = default.num_candidates * refit + 2 * k * n * min(d, 1024) + k * n * d // 25
        if MAX_MULTIPLICATIONS // work < MIN_MOVES_WITH_CANDIDATES:
            return LocalSearch(num_starts=2, num_moves=50, patience=1, num_candidates=1)
    moves = MAX_MULTIPLICATIONS // work
    if moves >= MOVES_OF_ONE_START:
        starts = min(default.num_starts, 2 ** int(math.log2(moves / MOVES_OF_ONE_START)))
        return LocalSearch(num_starts=starts, patience=patience)
    num_moves = max(1, min(25, moves // 16))
    patience = max(1, min(patience, moves // (16 * num_moves)))
    return LocalSearch(num_starts=1, num_moves=num_moves, patience=patience)
