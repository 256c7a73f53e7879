"""What the searches that refit on each selection have in common."""

import jax
import jax.numpy as jnp

from jaxht._dataclass import pytree
from jaxht._typing import Array
from jaxht.constraints import SelectionConstraint
from jaxht.solvers.local_search.search import RefittedSelection
from jaxht.subproblems import Refit, Subproblem


@pytree
class SearchByRefits:
    """A search whose selections come with the minimiser on them."""

    def refit(self, problem: Subproblem, selection: RefittedSelection, x: Array) -> Refit:
        """Return the minimiser that is known."""
        return selection.fit

    def locate(self, selected: Array, fit: Refit, best: RefittedSelection) -> RefittedSelection:
        """Return the selection with its refit, and the block size of the best walk."""
        return RefittedSelection(selected, fit, best.block_size)


def refit_selections(problem: Subproblem, selected: Array, x0: Array) -> RefittedSelection:
    """Refit on each of several selections, bool (num_starts, ...)."""
    fits = jax.vmap(lambda mask: problem.refit(problem.space.support(mask), x0))(selected)
    block_sizes = jnp.full(len(selected), largest_block(problem.space))
    return RefittedSelection(selected, fits, block_sizes)


def largest_block(constraint: SelectionConstraint) -> Array:
    """Half of the items that may be selected, at least one."""
    return jnp.maximum(1, jnp.asarray(constraint.limit, jnp.int32) // 2)


def value_or_inf(problem: Subproblem, fit: Refit) -> Array:
    """f at a refit; infinity where it is not finite."""
    value = problem.objective.value(fit.x, fit.pred)
    return jnp.where(jnp.isfinite(value), value, jnp.inf)
