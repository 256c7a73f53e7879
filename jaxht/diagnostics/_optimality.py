"""Conditions that can be checked at a feasible point without solving the problem: of optimality,
and of derivatives."""

import functools
from dataclasses import fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._checks import check_kind
from jaxht._dataclass import as_dtype, cast_numbers, replace
from jaxht._meshes import shard_automatically
from jaxht._programs import bounded_jit
from jaxht._repr import short_repr
from jaxht._typing import Array, Leaf, Numeric
from jaxht.constraints import Constraint, Sparse, check_selection
from jaxht.constraints.bounds import root_gains
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.inner_products import (
    check_real,
    is_complex,
    real_dtype,
    real_vdot,
    scaled_norm,
    square_ratio,
)
from jaxht.linalg.products import Variable, known_by_products
from jaxht.objectives.objective import Objective, cast_point, check_products
from jaxht.runner import call_on_device
from jaxht.solvers.iterate import inverse_smoothness
from jaxht.subproblems import subproblem


class Optimality(NamedTuple):
    """Necessary conditions of a minimum, each 0 (or, for ``swap_gain``, not above rounding) where
    it holds; scalars.

    Attributes:
        stationarity: ``||grad f(x)_S||``, S = supp(x): 0 at a minimiser on the support, unless a
            bound holds a coordinate of it.
        restricted_gradient: ``zeta_k``, the l2 norm of the k largest entries of grad f(x). It
            bounds the distance to any k-sparse x* with f(x*) <= f(x): ``||x - x*|| <= 2 zeta_2k /
            m_2k <= 2.83 zeta_k / m_2k``. (Axiotis & Sviridenko 2020, Definition 2.6.)
        fixed_point_residual: ``||x - H_k(x - eta grad f(x))||``: 0 at a fixed point of IHT, as all
            minima are for eta <= 1/L.
        swap_gain: how much the best swap of two entries decreases f, ``f(x) - min f(x - x_j e_j + t
            e_i)`` over j in S, i off S and t; negative where every swap increases f. The pair is
            the best one of a quadratic model at x, exact for least squares; its gain is that of f
            itself. None where not asked for.
        swap: int32 (2,), the entering entry i and the leaving entry j of that swap, in the
            flattened variable; or None.
    """

    stationarity: Leaf
    restricted_gradient: Leaf
    fixed_point_residual: Leaf
    swap_gain: Leaf | None = None
    swap: Leaf | None = None

    def __repr__(self) -> str:
        return short_repr(
            self, **{name: part for name, part in self._asdict().items() if part is not None}
        )


@shard_automatically
def optimality(
    objective: Objective,
    constraint: Constraint,
    x: Array,
    *,
    step_size: Numeric | None = None,
    swaps: bool = True,
) -> Optimality:
    """Check necessary conditions of optimality at a feasible point. Works under jit and vmap.

    Args:
        objective: f, for example ``LeastSquares(A, y)``.
        constraint: C. Bounds and kept coordinates of :class:`jaxht.Sparse` count for the
            projection; a swap moves no kept coordinate, and requires that there are no bounds. For
            :class:`jaxht.Groups` the k largest groups take the place of entries, for
            :class:`jaxht.LowRank` the k largest singular values, for :class:`jaxht.Edges` the k
            largest edges and the diagonal.
        x: feasible point, shaped like the variable, for example ``result.x``.
        step_size: eta of the fixed point, a scalar, traced; None: 1/L. The smaller it is, the more
            points are fixed points.
        swaps: bool, static; whether the best swap is computed.

    Returns:
        :class:`Optimality`, of scalars.

    Raises:
        ValueError: for an x of a wrong shape, for swaps under other constraints than Sparse without
            bounds, and for an objective or a constraint that is not valid.

    Cost: a gradient and a projection; for swaps the diagonal of the Hessian and its rows on the
    support, which on a dense design is n d k_max, else k_max products with the Hessian (and d of
    them where its diagonal is not known).

    Source: Axiotis & Sviridenko 2020, Definition 2.6, for the restricted gradient; the fixed points
    are those of Beck & Eldar 2013.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 3.0]), mean=False)
        >>> check = jaxht.optimality(f, jaxht.Sparse(2), jnp.array([0.0, 4.0, 2.0, 0.0]))
        >>> float(check.stationarity), float(check.swap_gain), check.swap.tolist()
        (0.0, 2.5, [3, 2])
    """
    if known_by_products(x):
        raise ValueError("x must be an array; got factors: pass x.dense()")
    objective, constraint, x, step_size = _prepare(objective, constraint, x, step_size)
    if swaps and is_complex(objective) and not objective.is_linear_model:
        raise ValueError("swaps of complex numbers are those of LeastSquares: pass swaps=False")
    is_free = constraint.selects_entries and constraint.bounds is None
    if swaps and not (is_free and constraint.is_hereditary):
        raise ValueError("swaps are computed under Sparse without bounds only: pass swaps=False")
    return call_on_device(_optimality, objective, constraint, x, step_size, swaps=swaps)


def _prepare(
    objective: Objective, constraint: Constraint, x: Any, step_size: Numeric | None
) -> tuple[Any, ...]:
    check_kind(objective=objective, constraint=constraint)
    objective = objective.prepare()
    if known_by_products(x):
        check_products(objective)
    x = cast_point(x, objective)
    real = real_dtype(objective)
    constraint = cast_numbers(constraint.prepare(objective.shape), real)
    step_size = None if step_size is None else as_dtype(step_size, real)
    return cast_numbers(objective, real), constraint, x, step_size


class Differentiability(NamedTuple):
    """The conditions of the theorem that gives the derivatives of a solution; bool scalars.

    Attributes:
        stationary: whether x is the minimiser on its support: a Newton step is at most 10 roots of
            machine epsilon long, relative to x. Else derivatives are NaN.
        regular: whether the Hessian on the support is regular to working precision: a system whose
            solution is known is solved to 10 %; and for x in factors no two singular values
            coincide. Else derivatives are NaN.
        strict: whether every coordinate at a bound is held there by a gradient that is not 0.
            Otherwise derivatives are one-sided: those with the coordinate staying at its bound.
        separated: whether x has k active items, and no other item ties with the smallest of those
            that may leave at the threshold of a gradient step. Otherwise an arbitrarily small change of the problem
            may change the support, and derivatives are those for a fixed support. For matrices of
            low rank: whether the rank is k.
    """

    stationary: Leaf
    regular: Leaf
    strict: Leaf
    separated: Leaf

    def __repr__(self) -> str:
        return short_repr(self, **self._asdict())

    @property
    def exists(self) -> Array:
        """Whether derivatives are numbers: stationary and regular."""
        return self.stationary & self.regular

    @property
    def two_sided(self) -> Array:
        """Whether they are derivatives in every direction: all four."""
        return self.exists & self.strict & self.separated


@shard_automatically
def differentiability(
    objective: Objective,
    constraint: Constraint,
    x: Variable,
    *,
    step_size: Numeric | None = None,
) -> Differentiability:
    r"""Check whether a solution is differentiable with respect to the numbers of its problem. Works
    under jit and vmap.

    The implicit function theorem gives the derivatives of :func:`jaxht.solve` where x is a
    stationary point on its support, with a regular Hessian there. The check does not see which of
    several supports of equal f a solver finds.

    Args:
        objective: f, for example ``LeastSquares(A, y)``.
        constraint: C.
        x: a feasible point, shaped like the variable, for example ``result.x``; also in factors.
        step_size: eta > 0, a scalar, traced: items tie at the threshold of ``x - eta grad f(x)``;
            None: that of :class:`jaxht.HTP`, the inverse of the largest curvature along a
            coordinate.

    Returns:
        :class:`Differentiability`, of scalars.

    Raises:
        ValueError: for an x of a wrong shape, and for an objective or a constraint that is not
        valid.

    Cost: a gradient, and about five systems with the Hessian on the support; without ``step_size``
    also that largest curvature. Nothing of it is computed by ``solve``.

    Source: Krantz & Parks 2013.

    Example:
        >>> import jax.numpy as jnp, jaxht
        >>> f = jaxht.LeastSquares(jnp.eye(4), jnp.array([1.0, 4.0, 2.0, 2.0]), mean=False)
        >>> x = jaxht.solve(f, jaxht.Sparse(2), jaxht.HTP()).x
        >>> [bool(holds) for holds in jaxht.differentiability(f, jaxht.Sparse(2), x)]
        [True, True, True, False]
    """
    check_kind(objective=objective)
    check_real(objective)
    if constraint.selects_items:
        check_selection(constraint, exchanges=True)
    objective, constraint, x, step_size = _prepare(objective, constraint, x, step_size)
    return call_on_device(_differentiability, objective, constraint, x, step_size)


@bounded_jit
def _differentiability(
    objective: Objective, constraint: Any, x: Array, step_size: Array | None
) -> Differentiability:
    objective, constraint = jax.tree.map(jnp.asarray, (objective, constraint))
    support = constraint.support_of(x)
    stationary, regular, strict = subproblem(objective, constraint).regularity(support, x)
    gradient = objective.gradient(x, objective.predict(x))
    eta = step_size
    if eta is None:
        eta = inverse_smoothness(objective.majorant().coordinate_norm())
    slack = jnp.sqrt(jnp.asarray(machine_eps(x), x.dtype))
    if not constraint.selects_items:
        return Differentiability(stationary, regular, strict, support.size == constraint.limit)
    active = constraint.active(x)
    gains = constraint.scores(root_gains(x - eta * gradient, constraint.bounds))
    may_leave = active & ~constraint.always_active
    least_gain = jnp.min(jnp.where(may_leave, gains, jnp.inf))
    most_gain = jnp.max(jnp.where(active, -jnp.inf, gains))
    noise = slack * jnp.max(gains)
    ties = jnp.abs(least_gain - most_gain) <= noise
    if not constraint.is_uniform:
        ties = _ties_with_its_rivals(constraint, active, gains, noise)
    sizes = constraint.scores(x)
    least_size = jnp.min(jnp.where(may_leave, sizes, jnp.inf))
    is_full = jnp.sum(active, dtype=jnp.int32) == constraint.limit
    separated = is_full & (least_size > slack * jnp.max(sizes)) & ~ties
    return Differentiability(stationary, regular, strict, jnp.all(active) | separated)


def _ties_with_its_rivals(constraint: Any, active: Array, gains: Array, noise: Array) -> Array:
    """Whether an item ties with the least of those one of which must leave where it joins."""
    flat = active.ravel()
    index = lax.iota(jnp.int32, flat.size)
    may_leave = active & ~constraint.always_active

    def margin(i):
        entering = (index == i).reshape(active.shape)
        rivals = constraint.leavable(active, entering) & may_leave
        return jnp.min(jnp.where(rivals, gains, jnp.inf)) - gains.ravel()[i]

    margins = jnp.where(flat, jnp.inf, lax.map(margin, index, batch_size=ROWS_AT_A_TIME))
    return jnp.any(jnp.abs(margins) <= noise)


@functools.partial(bounded_jit, static_argnames="swaps")
def _optimality(
    objective: Objective, constraint: Any, x: Array, step_size: Array | None, swaps: bool
) -> Optimality:
    objective, constraint = jax.tree.map(jnp.asarray, (objective, constraint))
    pred = objective.predict(x)
    gradient = objective.gradient(x, pred)
    eta = inverse_smoothness(objective.majorant().norm()) if step_size is None else step_size
    # Without bounds, and without coordinates that are always kept.
    free = constraint
    if constraint.selects_entries:
        free = Sparse(constraint.k, constraint.k_max)
    elif constraint.selects_items:
        names = {each.name for each in fields(constraint)} & {"keep", "bounds"}
        free = replace(constraint, **dict.fromkeys(names))
    found = Optimality(
        stationarity=scaled_norm(constraint.support_of(x).restrict(gradient)),
        restricted_gradient=scaled_norm(free.project(gradient)[0]),
        fixed_point_residual=scaled_norm(x - constraint.project(x - eta * gradient, x)[0]),
    )
    if not swaps:
        return found
    gain, i, j = _best_swap(objective, constraint, x, pred, gradient)
    return found._replace(swap_gain=gain, swap=jnp.stack([i, j]))


# Rows of the Hessian that are computed at a time.
ROWS_AT_A_TIME = 16


def _best_swap(
    objective: Objective, constraint: Any, x: Array, pred: Array, gradient: Array
) -> tuple[Array, Array, Array]:
    """The gain of f, the entering entry and the leaving entry."""
    support = constraint.support_of(x)
    H = objective.hessian(x, pred)
    diagonal = H.diagonal().ravel()
    is_curved = diagonal > 0
    curvature = jnp.where(is_curved, diagonal, 1)
    flat = x.ravel()
    slope = gradient.ravel()
    inside = support.mask.ravel()
    fixed = constraint.always_active.ravel()
    index = lax.iota(jnp.int32, x.size)

    def best_in_place_of(j):
        """The gain in the quadratic model at x, the entering entry and its value, if entry j
        leaves."""
        unit = index == j
        out = jnp.sum(jnp.where(unit, flat, 0))
        column = H(unit.astype(x.dtype).reshape(x.shape)).ravel()
        lost = real_vdot(out, jnp.sum(jnp.where(unit, out * column / 2 - slope, 0)))
        after = slope - out * column
        gains = jnp.where(is_curved, square_ratio(after, 2 * curvature), 0) - lost
        gains = jnp.where(inside, -jnp.inf, gains)
        if not constraint.is_uniform:
            gains = jnp.where(constraint.joinable(inside & ~unit).ravel(), gains, -jnp.inf)
        i = jnp.argmax(gains).astype(jnp.int32)
        allowed = (j < x.size) & ~jnp.any(unit & fixed)
        return jnp.where(allowed, gains[i], -jnp.inf), i, -after[i] / curvature[i]

    indices = support.require_indices()
    if not indices.size:
        none = jnp.full((), x.size, jnp.int32)
        return jnp.full((), -jnp.inf, diagonal.dtype), none, none
    gains, entering, values = lax.map(best_in_place_of, indices, batch_size=ROWS_AT_A_TIME)
    best = jnp.argmax(gains)
    i = entering[best]
    j = indices[best]
    swapped = jnp.where(index == j, 0, flat)
    swapped = jnp.where(index == i, values[best], swapped).reshape(x.shape)
    gain = objective.value(x, pred) - objective.value(swapped, objective.predict(swapped))
    return jnp.where(gains[best] > -jnp.inf, gain, -jnp.inf), i, j
