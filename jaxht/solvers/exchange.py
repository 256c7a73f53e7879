"""Exchanges of one coordinate for another: OMP with replacement, and exhaustive local search."""

from typing import Any, ClassVar

import jax.numpy as jnp
from chex import Array, Numeric, PRNGKey
from jax import lax

from jaxht._pytree import pytree, where
from jaxht.constraints import Constraint, Sparse
from jaxht.objectives.objective import Objective
from jaxht.solvers.base import best, count, exchanged, unless_worse
from jaxht.solvers.omp import completed
from jaxht.solvers.solver import Iterate, evaluate


class Exchange:
    """A solver that swaps one coordinate of the support for another while f falls.

    It starts from the support of x0; one of fewer than k coordinates is completed by orthogonal matching pursuit.
    """

    fixed_point_test: ClassVar[bool] = False
    needs_key: ClassVar[bool] = False

    rtol: Numeric | None

    def exchange(self, objective: Objective, constraint: Constraint, iterate: Iterate, chosen: Array) -> Array:
        """The coordinates after the swap."""
        raise NotImplementedError

    def max_steps(self, constraint: Constraint) -> int:
        """1000: exchanges end by themselves."""
        return 1000

    def init(self, objective: Objective, constraint: Constraint, x0: Array, key: PRNGKey | None) -> tuple[Iterate, Any]:
        """x0, and the support to start from, on which the first step minimises."""
        return evaluate(objective, x0, refit_converged=jnp.array(False)), completed(objective, constraint, x0)

    def step(self, objective: Objective, constraint: Constraint, iterate: Iterate, state: Any) -> tuple[Iterate, Any]:
        """Swap, minimise, and go back where f has not fallen."""
        first, chosen = iterate.counts.full_gradients == 0, state
        chosen = lax.cond(first, lambda: chosen, lambda: self.exchange(objective, constraint, iterate, chosen))
        minimum = objective.minimise(constraint.support(chosen), iterate.x)
        counts = iterate.counts.plus(full_gradients=1)
        new = evaluate(objective, minimum.x, counts, pred=minimum.pred, refit_converged=minimum.converged)
        rtol = ULPS * float(jnp.finfo(new.x.dtype).eps) if self.rtol is None else self.rtol
        return where(first, new, unless_worse(objective, new, iterate, rtol)), chosen


@pytree
class OMPR(Exchange):
    r"""Orthogonal matching pursuit with replacement.

    .. math::
        i = \arg\max_{i \notin S} |\nabla_i f(x)|, \quad j = \arg\min_{j \in S} |x_j|, \quad
        S \leftarrow S \cup \{i\} \setminus \{j\}, \quad x \leftarrow \arg\min \{ f : supp \subseteq S \}

    until f does not fall; then the iterate before is returned, as NO_PROGRESS. It starts from the support of x0, which
    orthogonal matching pursuit completes where it has fewer than k coordinates; the source's box starts from the first
    k, its experiments from OMP. Groups are exchanged whole.

    Args:
        rtol: the relative decrease of f that is asked for, traced. None: 64 machine epsilons; f may tie exactly, and
            rounding would make endless swaps of it.

    Cost a step: one full gradient and one restricted minimisation.

    Source: Jain, Tewari & Dhillon 2011; Axiotis & Sviridenko 2020, Algorithm 3.
    """

    rtol: Numeric | None = None

    def exchange(self, objective: Objective, constraint: Constraint, iterate: Iterate, chosen: Array) -> Array:
        """S + i - j."""
        descent = constraint.feasible_direction(-objective.gradient(iterate.x, iterate.pred))
        i = best(constraint.scores(descent), ~chosen)
        j = best(-constraint.scores(iterate.x), chosen & ~constraint.kept)
        return exchanged(constraint, chosen, i, j)


@pytree
class ExhaustiveLocalSearch(Exchange):
    r"""Exhaustive local search: as :class:`OMPR`, but with the coordinate after which the minimum is least.

    .. math::
        j = \arg\min_{j \in S} |x_j|, \quad
        i = \arg\min_{i \notin S} \min \{ f : supp \subseteq S \cup \{i\} \setminus \{j\} \}

    Args:
        rtol: as in :class:`OMPR`.

    Cost a step: for least squares on vectors without bounds, all candidates come from two products, n d k (see
    :meth:`jaxht.objectives.LeastSquares.insertion_gains`); else one restricted minimisation a candidate.

    Source: Axiotis & Sviridenko 2020, Algorithm 4.
    """

    rtol: Numeric | None = None

    def exchange(self, objective: Objective, constraint: Constraint, iterate: Iterate, chosen: Array) -> Array:
        """S + i - j."""
        j = best(-constraint.scores(iterate.x), chosen & ~constraint.kept)
        rest = chosen & ~(j & (count(chosen) >= constraint.limit))
        i = best(gains(objective, constraint, rest, iterate.x), ~chosen)
        return exchanged(constraint, chosen, i, j)


def gains(objective: Objective, constraint: Constraint, chosen: Array, x: Array) -> Array:
    """How much the minimum of f on some atoms falls, up to a constant, if one more joins them, for each one."""
    region = constraint.support(chosen)
    formula = objective.insertion_gains(region) if isinstance(constraint, Sparse) else None
    if formula is not None:
        return formula
    start = jnp.where(region.mask, x, 0)
    index = lax.iota(jnp.int32, chosen.size).reshape(chosen.shape)

    def gain(i: Array) -> Array:
        minimum = objective.minimise(constraint.support(chosen | (index == i)), start)
        return -objective.value(minimum.x, minimum.pred)

    return lax.map(gain, index.ravel(), batch_size=BLOCK).reshape(chosen.shape)


ULPS = 64.0
# Candidates at a time.
BLOCK = 64
