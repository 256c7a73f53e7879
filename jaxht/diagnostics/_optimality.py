"""How good a solution is: what one can check of a k-sparse point without solving the problem."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from chex import Array, Numeric
from jax import lax

from jaxht._pytree import as_dtype, cast_numbers
from jaxht.constraints import Constraint, Sparse
from jaxht.objectives.objective import Objective


class Optimality(NamedTuple):
    """Necessary conditions of a minimum, each 0 (or, ``swap_gain``, not above rounding) where it holds.

    Attributes:
        stationarity: ``||grad f(x)_S||``, S = supp(x): 0 at a minimiser on the support.
        restricted_gradient: ``zeta_k``, the l2 norm of the k largest entries of grad f(x). It bounds the distance to
            any k-sparse x* that is no worse: ``||x - x*|| <= 2 zeta_2k / m_2k <= 2.83 zeta_k / m_2k``. (AS20
            Definition 2.6.)
        fixed_point_residual: ``||x - H_k(x - eta grad f(x))||``: 0 at a fixed point of IHT, whose minima all are.
        swap_gain: how far f falls by the best single swap, ``f(x) - min f(x - x_j e_j + t e_i)`` over j in S, i off S
            and t; below 0 where every swap raises f. The pair is the best of a quadratic model at x, exact for least
            squares; its gain is then that of f itself. None where not asked for.
        swap: int32 (2,), the entries i (in) and j (out) of that swap, of the flattened variable.
    """

    stationarity: Array
    restricted_gradient: Array
    fixed_point_residual: Array
    swap_gain: Array | None = None
    swap: Array | None = None


def optimality(
    objective: Objective, constraint: Constraint, x: Array, *, step_size: Numeric | None = None, swaps: bool = True
) -> Optimality:
    """Check a feasible point.

    Args:
        objective: of the problem.
        constraint: of the problem. Bounds and kept coordinates of :class:`jaxht.Sparse` count for the projection; a
            swap moves no kept coordinate, and is only considered without bounds. Of :class:`jaxht.Groups` the k largest
            groups count in place of entries, of :class:`jaxht.LowRank` the k largest singular values, of
            :class:`jaxht.Edges` the k largest edges and the diagonal.
        x: feasible point, for example ``result.x``.
        step_size: eta of the fixed point; None: 1/L. The smaller it is, the more points are fixed.
        swaps: static; whether the best swap is looked for.

    Returns:
        :class:`Optimality`, of scalars. Works under jit and vmap.

    Cost: a gradient and a projection; for swaps the diagonal of the Hessian and its rows on the support, which on a
    dense design is n d k_max, else k_max products with the Hessian (and d of them where its diagonal is not known).
    """
    objective = objective.prepare()
    dtype = objective.dtype
    x = as_dtype(x, dtype)
    if jnp.shape(x) != objective.shape:
        raise ValueError(f"x must have shape {objective.shape}, that of the variable; got {jnp.shape(x)}")
    constraint = constraint.prepare(objective.shape)
    if swaps and (not isinstance(constraint, Sparse) or constraint.bounds is not None):
        raise ValueError("swaps are looked for under Sparse without bounds only: pass swaps=False")
    objective, constraint = cast_numbers(objective, dtype), cast_numbers(constraint, dtype)
    return _optimality(objective, constraint, x, None if step_size is None else as_dtype(step_size, dtype), swaps)


@functools.partial(jax.jit, static_argnums=4)
def _optimality(
    objective: Objective, constraint: Constraint, x: Array, step_size: Array | None, swaps: bool
) -> Optimality:
    objective, constraint = jax.tree.map(jnp.asarray, (objective, constraint))
    pred = objective.predict(x)
    gradient = objective.gradient(x, pred)
    eta = 1 / objective.majorant().norm() if step_size is None else step_size
    # Without bounds, and without coordinates that are always kept.
    free = Sparse(constraint.k, constraint.k_max) if isinstance(constraint, Sparse) else constraint
    found = Optimality(
        stationarity=jnp.linalg.norm(constraint.support_of(x).restrict(gradient)),
        restricted_gradient=jnp.linalg.norm(free.project(gradient)[0]),
        fixed_point_residual=jnp.linalg.norm(x - constraint.project(x - eta * gradient, x)[0]),
    )
    if not swaps or not isinstance(constraint, Sparse):
        return found
    gain, i, j = _best_swap(objective, constraint, x, pred, gradient)
    return found._replace(swap_gain=gain, swap=jnp.stack([i, j]))


def _best_swap(
    objective: Objective, constraint: Sparse, x: Array, pred: Array, gradient: Array
) -> tuple[Array, Array, Array]:
    """Gain of f, entry that comes in, and entry that goes out."""
    shape, size, dtype = x.shape, x.size, x.dtype
    support = constraint.support_of(x).with_indices()
    product = objective.hessian(x, pred)
    diagonal = product.diagonal().ravel()
    flat, slope = x.ravel(), gradient.ravel()
    inside = support.mask.ravel()
    fixed = jnp.zeros(size, bool) if constraint.keep is None else constraint.keep.ravel()
    index = lax.iota(jnp.int32, size)

    def best_in_place_of(j: Array) -> tuple[Array, Array, Array]:
        """The gain of the quadratic model at x, the entry and its value, if entry j goes."""
        unit = index == j
        out = jnp.sum(jnp.where(unit, flat, 0))
        row = product(unit.astype(dtype).reshape(shape)).ravel()
        lost = jnp.sum(jnp.where(unit, out * out * row / 2 - out * slope, 0))
        after = slope - out * row
        gains = jnp.where(diagonal > 0, after * after / (2 * jnp.where(diagonal > 0, diagonal, 1)), 0) - lost
        gains = jnp.where(inside, -jnp.inf, gains)
        i = jnp.argmax(gains).astype(jnp.int32)
        allowed = (j < size) & ~jnp.any(unit & fixed)
        return jnp.where(allowed, gains[i], -jnp.inf), i, -after[i] / jnp.where(diagonal[i] > 0, diagonal[i], 1)

    gains, entering, values = lax.map(best_in_place_of, support.indices, batch_size=BLOCK)
    best = jnp.argmax(gains)
    i, j = entering[best], support.indices[best]  # type: ignore[index]
    swapped = jnp.where(index == i, values[best], jnp.where(index == j, 0, flat)).reshape(shape)
    gain = objective.value(x, pred) - objective.value(swapped, objective.predict(swapped))
    return jnp.where(gains[best] > -jnp.inf, gain, -jnp.inf), i, j


# Rows of the Hessian at a time.
BLOCK = 16
