"""Basis pursuit, the least l1 norm of an exact fit, by the alternating direction method of
multipliers."""

from typing import NamedTuple

import jax.numpy as jnp

from jaxht._dataclass import pytree
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.baselines.soft_threshold import check_unweighted, soft_threshold
from jaxht.constraints import Constraint
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.linalg.inner_products import common_unit, real_dtype, real_vdot, scaled_norm
from jaxht.linalg.lapack import eigh
from jaxht.linalg.linear_solvers import conjugate_gradients
from jaxht.linalg.normal_equations import ratio
from jaxht.linalg.products import square_norm
from jaxht.objectives.linear_model import LeastSquares
from jaxht.solvers.iterate import Info, Iterate, check_step_size
from jaxht.solvers.solver import Solver, Step

# Products of a system with A A^*, where it is not factorised.
MAX_PRODUCTS = 200
# Rounding errors of the terms of the gap, and of x and z where they are equal, in units in their
# last place.
ROUNDING_ULPS = 64.0
# Eigenvalues of A A^* below so many rounding errors of the largest one count as 0.
FLAT_ULPS = 16.0


class InverseGram(NamedTuple):
    """The inverse of ``A A^*``, ``D V diag(c) V^* D``, or the pseudo-inverse of ``D A A^* D`` in its
    place where rows of A depend on each other; A in a unit in which its squares are normal numbers.

    Attributes:
        unit: of A, > 0, a scalar; y and products have it as well.
        scale: the diagonal of D, 1 over the norms of the rows of A, (n,).
        vectors: V, (n, n).
        factors: c, (n,); 0 in the directions in which A has no rows.
    """

    unit: Leaf
    scale: Leaf
    vectors: Leaf
    factors: Leaf


class BasisPursuitState(NamedTuple):
    """The state of :class:`BasisPursuit`.

    Attributes:
        multiplier: u, (d,).
        threshold: t.
        inverse: that of ``A A^*``; None where A is not an array.
        damping: what is added to the diagonal of ``A A^*`` where A is not an array and nothing fits
            y; else 0.
    """

    multiplier: Leaf
    threshold: Leaf
    inverse: InverseGram | None
    damping: Leaf


class Fit(NamedTuple):
    """An exact fit.

    Attributes:
        x: (d,).
        price: ``(A A^*)^{-1} (y - A v)`` of the point v to which x is the nearest, A and y in the
            unit of :class:`InverseGram`.
        misses: bool, whether in a direction in which A has no rows more than rounding is left of
            ``y - A x``; of designs that are not arrays, in any.
    """

    x: Leaf
    price: Leaf
    misses: Leaf


@pytree
class BasisPursuit(Solver):
    r"""Basis pursuit, ``min ||x||_1 : A x = y``, by ADMM, the alternating direction method of
    multipliers.

    .. math::
        z^+ = S_t(x + u), \qquad u^+ = u + x - z^+, \qquad
        x^+ = \Pi(z^+ - u^+), \qquad \Pi(v) = v + A^* (A A^*)^{-1} (y - A v)

    S is soft thresholding, of complex numbers by their magnitude. x fits y, and its entries off the
    support are small, and need not be 0. The value of the result is ``||x||_1``, and the gap an
    upper bound of its distance to the minimum, infinite where rows of A depend on each other up to
    rounding and nothing fits y: ``Stop(gap_rtol=1e-4)`` ends a run by it. With ``nu =
    (A A^*)^{-1} (y - A v) / t``, v the argument of the projection, and ``s = min(1, 1 / max_j |A^*
    nu|_j)`` the dual value is ``s <nu, y>``; what is left of ``y - A x`` is counted at the price nu.

    Args:
        threshold: t > 0, a scalar in units of x, traced: 1 / rho of the source; 0, infinity and NaN
            end as INVALID_STEP_SIZE. It has an effect on the number of steps alone. None: the mean
            magnitude of the least-norm solution.

    Raises:
        ValueError: for objectives other than least squares of a vector without weights and ridge,
            constraints other than ``Sparse(d)``, which leaves x free, and more samples than
            columns.

    Cost: a step takes three products, and 2 n^2 with the inverse of ``A A^*``, of which the
    eigenvalues are computed once, n^2 d and some n^3; of designs that are not arrays a system with
    ``A A^*`` by products.

    Source: Boyd, Parikh, Chu, Peleato & Eckstein 2011, §6.2.

    Example:
        >>> import jax, jax.numpy as jnp, jaxht
        >>> A = jaxht.ensembles.gaussian(jax.random.key(0), 50, 100)
        >>> x = jnp.zeros(100).at[:5].set(1.0)
        >>> solver, stop = jaxht.baselines.BasisPursuit(), jaxht.Stop(gap_rtol=1e-4)
        >>> f = jaxht.LeastSquares(A, A @ x)
        >>> result = jaxht.solve(f, jaxht.Sparse(100), solver, stop=stop)
        >>> result.reason, round(float(result.value), 2)
        ('GAP_CLOSED', 5.0)
    """

    threshold: Numeric | None = None

    fixed_point_test = True
    takes_complex = True
    is_penalised = True
    step_limit = 10_000

    def init(
        self, objective: LeastSquares, constraint: Constraint, x0: Array, key: PRNGKey | None
    ) -> Step[BasisPursuitState]:
        """The exact fit that is nearest to x0."""
        check_unweighted("BasisPursuit", objective, constraint)
        A = objective.design
        n, d = A.shape
        if n > d:
            raise ValueError(
                f"A must have at most as many rows as columns for BasisPursuit; got shape {(n, d)}"
            )
        array = A.dense_array
        inverse = None if array is None else _invert(array)
        zero = jnp.zeros((), real_dtype(x0))
        least = _project(objective, inverse, zero, jnp.zeros_like(x0))
        damping = jnp.where(least.misses, _damping(objective), zero)
        x = _project(objective, inverse, damping, x0).x
        x = jnp.where(jnp.all(jnp.isfinite(x)), x, x0)
        threshold = self.threshold
        if threshold is None:
            mean = jnp.mean(jnp.abs(least.x))
            threshold = jnp.where(mean > 0, mean, 1)
        state = BasisPursuitState(jnp.zeros_like(x), threshold, inverse, damping)
        no_gap = jnp.array(jnp.inf, real_dtype(x))
        info = Info(status=check_step_size(threshold), gap=no_gap)
        return _evaluate(objective, x), state, info

    def step(
        self,
        objective: LeastSquares,
        constraint: Constraint,
        iterate: Iterate,
        state: BasisPursuitState,
    ) -> Step[BasisPursuitState]:
        """Threshold, add what it has changed to the multiplier, project."""
        u, t, inverse, damping = state
        x = iterate.x
        z = soft_threshold(x + u, t)
        u = u + x - z
        v = z - u
        fit = _project(objective, inverse, damping, v)
        new = _evaluate(objective, fit.x)

        unit = 1.0 if inverse is None else inverse.unit
        y = objective.target / unit
        nu = ratio(fit.price, t)
        largest = jnp.max(jnp.abs(ratio(fit.x - v, t)))  # of A^* nu
        dual = real_vdot(nu, y) * jnp.where(largest > 1, ratio(1.0, largest), 1)
        rest = jnp.sum(jnp.abs(nu) * jnp.abs(y - new.pred / unit))
        rounding = ROUNDING_ULPS * machine_eps(x) * (new.value + jnp.abs(dual))
        gap = jnp.maximum(new.value - dual, 0) + rest + rounding
        gap = jnp.where(fit.misses, jnp.inf, gap)
        # Where x stays, u may move.
        least = ROUNDING_ULPS * machine_eps(x) * scaled_norm(fit.x)
        moves = scaled_norm(fit.x - z) > least
        info = Info(full_gradients=1, gap=gap, skip_fixed_point_test=moves)
        return new, BasisPursuitState(u, t, inverse, damping), info


def _evaluate(objective: LeastSquares, x: Array) -> Iterate:
    """The iterate with the l1 norm as its value."""
    return Iterate(x, jnp.sum(jnp.abs(x)), objective.predict(x))


def _invert(array: Array) -> InverseGram:
    """The inverse of the Gram matrix of rows, of which each counts in units of its own norm."""
    unit = common_unit(array)[0, 0]
    array = array / unit
    gram = matmul(array, array.conj().T)
    squares = jnp.diagonal(gram).real
    scale = jnp.where(squares > 0, 1 / jnp.sqrt(jnp.where(squares > 0, squares, 1)), 1)
    values, vectors = eigh(scale[:, None] * gram * scale)
    has_inverse = values > FLAT_ULPS * machine_eps(gram) * values[-1]
    factors = jnp.where(has_inverse, 1 / jnp.where(has_inverse, values, 1), 0)
    return InverseGram(unit, scale, vectors, factors)


def _damping(objective: LeastSquares) -> Array:
    """The root of machine epsilon, relative to ``A A^*`` along y."""
    A, y = objective.design, objective.target
    return machine_eps(y) ** 0.5 * ratio(square_norm(A.rmatvec(y)), square_norm(y))


def _project(objective: LeastSquares, inverse: InverseGram | None, damping: Array, v: Array) -> Fit:
    """The exact fit nearest to v; of designs that are not arrays, where nothing fits and conjugate
    gradients diverge, by ``A A^* + damping I``."""
    A, y = objective.design, objective.target
    residual = y - A.matvec(v)
    if inverse is None:
        rtol = machine_eps(v)

        def product(w):
            return A.matvec(A.rmatvec(w)) + damping * w

        price = conjugate_gradients(product, residual, rtol, MAX_PRODUCTS)
        change = A.rmatvec(price)
        left = jnp.sqrt(square_norm(residual - A.matvec(change)))
        missing = jnp.sqrt(square_norm(residual))
        is_worse = ~(left <= missing)
        price = jnp.where(is_worse, 0, price)
        x = jnp.where(is_worse, v, v + change)
        misses = is_worse | (left > rtol**0.5 * (missing + jnp.sqrt(square_norm(y))))
        return Fit(x, price, misses)
    unit, scale, vectors, factors = inverse
    coordinates = matmul(vectors.conj().T, scale * (residual / unit))
    price = scale * matmul(vectors, factors * coordinates)
    left = jnp.where(factors == 0, jnp.abs(coordinates), 0)
    size = scaled_norm(v) + scaled_norm(scale * (y / unit))
    misses = jnp.max(left) > ROUNDING_ULPS * machine_eps(v) * size
    return Fit(v + A.rmatvec(price) / unit, price, misses)
