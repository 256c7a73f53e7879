"""Forward selection: orthogonal matching pursuit by derivatives, orthogonal least squares by the
decrease of f."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import lax
from optax.tree_utils import tree_where

from jaxht._dataclass import pytree
from jaxht._typing import Array, Numeric, PRNGKey
from jaxht.constraints import SelectionConstraint, check_selection
from jaxht.objectives.linear_model import LeastSquares
from jaxht.objectives.objective import Objective
from jaxht.solvers.iterate import Iterate, evaluate
from jaxht.solvers.pursuit import accept_decrease
from jaxht.solvers.selection import best_item, count
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status
from jaxht.subproblems.columns import weight_by
from jaxht.subproblems.growing_qr import GrowingQR, factorise, refit_growing
from jaxht.subproblems.scores import forward_scores, gains_along


@pytree
class OMP(Solver):
    r"""Orthogonal matching pursuit; for a general f it is forward selection (FBS), for groups group
    OMP.

    .. math::
        i = \arg\max_{i \notin S} |\nabla_i f(x)|, \qquad S \leftarrow S \cup \{i\}, \qquad
        x \leftarrow \arg\min \{ f(x) : supp(x) \subseteq S \}

    until S has k coordinates. It starts from the support of x0 and the coordinates that are always
    active; where there are any, the first step refits on them. It ends with FINISHED, or with
    NO_PROGRESS where no coordinate decreases f: then x has fewer than k nonzeros. It has no
    arguments.

    It selects by the size of derivatives: standardise columns of different units first,
    :func:`jaxht.standardize`.

    Raises:
        ValueError: for :class:`jaxht.LowRank`, which has no coordinates to select.

    Cost: a step takes one full gradient and a refit. For least squares with k_max known the refit
    updates the factorisation of the step before, on all designs, at 2 to 4 n k_max.

    Source: Axiotis & Sviridenko 2020, Algorithm 2; Yuan, Li & Zhang 2018, §6.1; Pati, Rezaiifar &
    Krishnaprasad 1993.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.OMP()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    nested: ClassVar[bool] = True

    def max_steps(self, constraint: SelectionConstraint) -> Numeric:
        """k steps."""
        return constraint.k

    def init(
        self, objective: Objective, constraint: SelectionConstraint, x0: Array, key: PRNGKey | None
    ) -> Step:
        """x0 and its support, and a factorisation of these columns."""
        check_selection(constraint)
        S = constraint.active(x0)
        status = jnp.where(constraint.limit > 0, Status.RUNNING, Status.FINISHED)
        iterate = evaluate(objective, x0, status=status)
        return iterate, (S, factorise(objective, constraint, S), jnp.any(S))

    def step(
        self, objective: Objective, constraint: SelectionConstraint, iterate: Iterate, state: Any
    ) -> Step:
        """i, S and x; the first step refits on the support of x0, if it has one."""
        descent = constraint.feasible_direction(-objective.gradient(iterate.x, iterate.pred))
        return add_best(objective, constraint, iterate, state, constraint.scores(descent))


@pytree
class OLS(Solver):
    r"""Orthogonal least squares: forward selection by the true decrease of f.

    .. math::
        i = \arg\min_{i \notin S} \min \{ f : supp \subseteq S \cup \{i\} \}, \qquad S \leftarrow S \cup \{i\},
        \qquad x \leftarrow \arg\min \{ f(x) : supp(x) \subseteq S \}

    until S has k coordinates. Where :class:`OMP` takes the coordinate of the largest derivative,
    this one takes that of the largest decrease once all of S is refitted, so that the selection
    does not depend on the scale of the columns (without a ridge). For groups it is the group that
    decreases f most. It starts from the support of x0 and the coordinates that are always active;
    where there are any, the first step refits on them. It ends with FINISHED, or with NO_PROGRESS
    where no coordinate decreases f. It has no arguments.

    Raises:
        ValueError: for :class:`jaxht.LowRank`, which has no coordinates to select.

    Cost: for least squares on vectors under :class:`jaxht.Sparse`, without bounds and with k_max
    known, a step takes two products with A, one for the gradient and one for the curvature that is
    left along each coordinate, and a refit at 2 to 4 n k_max, on all designs; else a refit for each
    candidate.

    Source: Chen, Billings & Luo 1989.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]))
        >>> jaxht.solve(f, jaxht.Sparse(2), jaxht.OLS()).x.tolist()
        [0.0, 4.0, 0.0, 3.0]
    """

    nested: ClassVar[bool] = True

    def max_steps(self, constraint: SelectionConstraint) -> Numeric:
        """k steps."""
        return constraint.k

    def init(
        self, objective: Objective, constraint: SelectionConstraint, x0: Array, key: PRNGKey | None
    ) -> Step:
        """x0 and its support, a factorisation of these columns, and the curvature of f along each
        coordinate."""
        iterate, state = OMP().init(objective, constraint, x0, key)
        if state[1] is None:
            return iterate, (state, None)
        total = objective.majorant().diagonal()
        return iterate, (state, (total, total, jnp.zeros((), jnp.int32)))

    def step(
        self, objective: Objective, constraint: SelectionConstraint, iterate: Iterate, state: Any
    ) -> Step:
        """i, S and x; the first step refits on the support of x0, if it has one."""
        selection, curvature = state
        S, qr, _ = selection
        if qr is None or not isinstance(objective, LeastSquares):
            gains = forward_scores(objective, constraint, S, iterate.x)
        else:
            remaining, total, size = curvature
            remaining = subtract_directions(objective, qr, remaining, size)
            gains = gains_along(objective.gradient(iterate.x, iterate.pred), remaining, total)
            curvature = remaining, total, count(qr.mask)
        new, selection = add_best(objective, constraint, iterate, selection, gains)
        return new, (selection, curvature)


def add_best(
    objective: Objective,
    constraint: SelectionConstraint,
    iterate: Iterate,
    state: Any,
    scores: Array,
) -> tuple[Iterate, tuple[Array, GrowingQR | None, Array]]:
    """Add the item of the largest score and refit; the first step refits on the support of x0, if
    it has one."""
    S, qr, refit_only = state
    S |= best_item(scores, ~S & ~refit_only & (count(S) < constraint.limit))
    found, qr = refit_growing(objective, qr, constraint.support(S), iterate.x)

    status = jnp.where(count(S) < constraint.limit, Status.RUNNING, Status.FINISHED)
    new = evaluate(objective, found, iterate.counts.plus(full_gradients=1), status=status)
    new = tree_where(refit_only, new, accept_decrease(objective, new, iterate, 0.0))
    return new, (S, qr, jnp.array(False))


def subtract_directions(
    objective: LeastSquares, qr: GrowingQR, remaining: Array, size: Array
) -> Array:
    r"""The curvature that is left along each coordinate once f is minimised over the directions of
    a factorisation.

    .. math::
        s_j = H_{jj} - \sum_q c (a_j' q)^2

    Args:
        objective: the least squares.
        qr: the factorisation.
        remaining: (d,), what is left once f is minimised over its first directions.
        size: int32, their number.

    Returns:
        (d,); values on the support have no meaning.

    Cost: n d for each further direction.
    """

    def subtract(i: Numeric, remaining: Array) -> Array:
        overlaps = objective.design.rmatvec(weight_by(objective, qr.images[i]))
        return remaining - objective.normalise(overlaps**2)

    return lax.fori_loop(size, count(qr.mask), subtract, remaining)


def complete_selection(objective: Objective, constraint: SelectionConstraint, x0: Array) -> Array:
    """The active items of x0, and those that orthogonal matching pursuit adds up to k: a start for
    exchanges."""
    omp = OMP()

    def unfinished(carry: Any) -> Array:
        iterate, (S, *_) = carry
        return (iterate.status == Status.RUNNING) & (count(S) < constraint.limit)

    start = omp.init(objective, constraint, x0, None)
    _, (S, *_) = lax.while_loop(
        unfinished, lambda carry: omp.step(objective, constraint, *carry), start
    )
    return S
