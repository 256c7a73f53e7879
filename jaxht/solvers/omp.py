"""Orthogonal matching pursuit, also known as forward selection."""

from typing import Any, ClassVar

import jax.numpy as jnp
from chex import Array, Numeric, PRNGKey
from jax import lax

from jaxht._pytree import pytree, where
from jaxht.constraints import Constraint, Sparse
from jaxht.objectives.objective import Objective
from jaxht.solvers.base import best, count, unless_worse
from jaxht.solvers.solver import Iterate, evaluate
from jaxht.solvers.status import Status


@pytree
class OMP:
    r"""Orthogonal matching pursuit; for a general f it is forward selection (FBS), for groups group OMP.

    .. math::
        i = \arg\max_{i \notin S} |\nabla_i f(x)|, \qquad S \leftarrow S \cup \{i\}, \qquad
        x \leftarrow \arg\min \{ f(x) : supp(x) \subseteq S \}

    until S has k coordinates. It starts from the support of x0 and the coordinates that are always kept; where there
    are any, the first step minimises on them. The columns of A are not scaled: with columns of very different norms,
    scale them.

    Args: none.

    Ends with FINISHED, or NO_PROGRESS where no coordinate lowers f: then x has fewer than k nonzeros.

    Cost a step: one full gradient, and a restricted minimisation. For least squares with k_max known it goes on from
    the step before, on all designs: 2 to 4 n k_max.

    Source: Axiotis & Sviridenko 2020, Algorithm 2; Yuan, Li & Zhang 2018, §6.1; Pati, Rezaiifar & Krishnaprasad 1993.
    """

    fixed_point_test: ClassVar[bool] = False
    needs_key: ClassVar[bool] = False
    #: A run with a larger k begins like this one, so :func:`jaxht.path` takes one run.
    nested: ClassVar[bool] = True

    def max_steps(self, constraint: Any) -> Numeric:
        """k."""
        return constraint.k

    def init(self, objective: Objective, constraint: Constraint, x0: Array, key: PRNGKey | None) -> tuple[Iterate, Any]:
        """x0, its support, and a factorisation of no columns."""
        chosen = constraint.active(x0)
        status = jnp.where(constraint.limit > 0, Status.RUNNING, Status.FINISHED)
        iterate = evaluate(objective, x0, status=status, refit_converged=jnp.array(True))
        # Groups come in by several coordinates at once.
        basis = objective.basis(constraint.support(chosen)) if isinstance(constraint, Sparse) else None
        return iterate, (chosen, basis)

    def step(self, objective: Objective, constraint: Constraint, iterate: Iterate, state: Any) -> tuple[Iterate, Any]:
        """i, S and x."""
        return extended(objective, constraint, iterate, state)


def extended(objective: Objective, constraint: Constraint, iterate: Iterate, state: Any) -> tuple[Iterate, Any]:
    """A step of OMP."""
    chosen, basis = state
    first = (iterate.counts.full_gradients == 0) & jnp.any(chosen)
    descent = constraint.feasible_direction(-objective.gradient(iterate.x, iterate.pred))
    i = best(constraint.scores(descent), ~chosen & ~first & (count(chosen) < constraint.limit))
    chosen |= i
    minimum, basis = objective.grow(basis, constraint.support(chosen), iterate.x)

    status = jnp.where(count(chosen) < constraint.limit, Status.RUNNING, Status.FINISHED)
    counts = iterate.counts.plus(full_gradients=1)
    new = evaluate(objective, minimum.x, counts, pred=minimum.pred, status=status, refit_converged=minimum.converged)
    return where(first, new, unless_worse(objective, new, iterate, 0.0)), (chosen, basis)


def completed(objective: Objective, constraint: Constraint, x0: Array) -> Array:
    """The atoms of x0, and as many more as orthogonal matching pursuit adds to them: a start for exchanges."""

    def going_on(carry: Any) -> Array:
        iterate, (chosen, _) = carry
        return (iterate.status == Status.RUNNING) & (count(chosen) < constraint.limit)

    start = OMP().init(objective, constraint, x0, None)
    _, (chosen, _) = lax.while_loop(going_on, lambda carry: extended(objective, constraint, *carry), start)
    return chosen
