"""Orthogonal matching pursuit, also known as forward selection."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import lax
from optax.tree_utils import tree_where

from jaxht._pytree import Array, Numeric, PRNGKey, pytree
from jaxht.constraints import SelectionConstraint, check_selection
from jaxht.objectives.objective import Objective
from jaxht.refit.growing_qr import factorise, refit_growing
from jaxht.solvers.iterate import Iterate, evaluate
from jaxht.solvers.pursuit import accept_decrease
from jaxht.solvers.selection import best_item, count
from jaxht.solvers.solver import Solver, Step
from jaxht.solvers.status import Status


@pytree
class OMP(Solver):
    r"""Orthogonal matching pursuit; for a general f it is forward selection (FBS), for groups group OMP.

    .. math::
        i = \arg\max_{i \notin S} |\nabla_i f(x)|, \qquad S \leftarrow S \cup \{i\}, \qquad
        x \leftarrow \arg\min \{ f(x) : supp(x) \subseteq S \}

    until S has k coordinates. It starts from the support of x0 and the coordinates that are always active; where there
    are any, the first step refits on them. The columns of A are not scaled: scale columns of very different norms
    first. It ends with FINISHED, or with NO_PROGRESS where no coordinate decreases f: then x has fewer than k nonzeros.
    It has no arguments.

    Raises:
        ValueError: for :class:`jaxht.LowRank`, which has no coordinates to select.

    Cost: a step takes one full gradient and a refit. For least squares with k_max known the refit updates the
    factorisation of the step before, on all designs, at 2 to 4 n k_max.

    Source: Axiotis & Sviridenko 2020, Algorithm 2; Yuan, Li & Zhang 2018, §6.1; Pati, Rezaiifar & Krishnaprasad 1993.

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

    def init(self, objective: Objective, constraint: SelectionConstraint, x0: Array, key: PRNGKey | None) -> Step:
        """x0 and its support, and a factorisation of these columns."""
        check_selection(constraint)
        S = constraint.active(x0)
        status = jnp.where(constraint.limit > 0, Status.RUNNING, Status.FINISHED)
        iterate = evaluate(objective, x0, status=status)
        return iterate, (S, factorise(objective, constraint, S), jnp.any(S))

    def step(self, objective: Objective, constraint: SelectionConstraint, iterate: Iterate, state: Any) -> Step:
        """i, S and x; the first step refits on the support of x0, if it has one."""
        S, qr, refit_only = state
        descent = constraint.feasible_direction(-objective.gradient(iterate.x, iterate.pred))
        i = best_item(constraint.scores(descent), ~S & ~refit_only & (count(S) < constraint.limit))
        S |= i
        found, qr = refit_growing(objective, qr, constraint.support(S), iterate.x)

        status = jnp.where(count(S) < constraint.limit, Status.RUNNING, Status.FINISHED)
        new = evaluate(objective, found, iterate.counts.plus(full_gradients=1), status=status)
        new = tree_where(refit_only, new, accept_decrease(objective, new, iterate, 0.0))
        return new, (S, qr, jnp.array(False))


def complete_selection(objective: Objective, constraint: SelectionConstraint, x0: Array) -> Array:
    """The active items of x0, and those that orthogonal matching pursuit adds up to k: a start for exchanges."""
    omp = OMP()

    def unfinished(carry: Any) -> Array:
        iterate, (S, *_) = carry
        return (iterate.status == Status.RUNNING) & (count(S) < constraint.limit)

    start = omp.init(objective, constraint, x0, None)
    _, (S, *_) = lax.while_loop(unfinished, lambda carry: omp.step(objective, constraint, *carry), start)
    return S
