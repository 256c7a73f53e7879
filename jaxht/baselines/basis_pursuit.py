"""Basis pursuit, the least l1 norm of an exact fit, by the alternating direction method of
multipliers."""

from typing import NamedTuple

import jax.numpy as jnp

from jaxht._dataclass import pytree
from jaxht._typing import Array, Leaf, Numeric, PRNGKey
from jaxht.baselines.soft_threshold import check_unweighted, soft_threshold
from jaxht.constraints import Constraint
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.linalg.inner_products import real_dtype, real_vdot
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


class BasisPursuitState(NamedTuple):
    """The state of :class:`BasisPursuit`.

    Attributes:
        multiplier: u, (d,).
        threshold: t.
        root: R with ``R R^* = (A A^*)^{-1}``, (n, n); None where A is not an array.
    """

    multiplier: Leaf
    threshold: Leaf
    root: Leaf | None


@pytree
class BasisPursuit(Solver):
    r"""Basis pursuit, ``min ||x||_1 : A x = y``, by ADMM, the alternating direction method of
    multipliers.

    .. math::
        z^+ = S_t(x + u), \qquad u^+ = u + x - z^+, \qquad
        x^+ = \Pi(z^+ - u^+), \qquad \Pi(v) = v + A^* (A A^*)^{-1} (y - A v)

    S is soft thresholding, of complex numbers by their magnitude. x fits y, and its entries off the
    support are small, and need not be 0. The value of the result is ``||x||_1``, and the gap an
    upper bound of its distance to the minimum, which does not vanish where nothing fits y:
    ``Stop(gap_rtol=1e-4)`` ends a run by it. With ``nu =
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
        root = None if array is None else _inverse_root(matmul(array, array.conj().T))
        x, _ = _project(objective, root, x0)
        threshold = self.threshold
        if threshold is None:
            least, _ = _project(objective, root, jnp.zeros_like(x0))
            mean = jnp.mean(jnp.abs(least))
            threshold = jnp.where(mean > 0, mean, 1)
        state = BasisPursuitState(jnp.zeros_like(x), threshold, root)
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
        u, t, root = state
        x = iterate.x
        z = soft_threshold(x + u, t)
        u = u + x - z
        v = z - u
        x_next, price = _project(objective, root, v)
        new = _evaluate(objective, x_next)

        y = objective.target
        nu = ratio(price, t)
        largest = jnp.max(jnp.abs(ratio(x_next - v, t)))  # of A^* nu
        dual = real_vdot(nu, y) * jnp.where(largest > 1, ratio(1.0, largest), 1)
        rest = jnp.sum(jnp.abs(nu) * jnp.abs(y - new.pred))
        rounding = ROUNDING_ULPS * machine_eps(x) * (new.value + jnp.abs(dual))
        gap = jnp.maximum(new.value - dual, 0) + rest + rounding
        # Where x stays, u may move.
        least = (ROUNDING_ULPS * machine_eps(x)) ** 2 * square_norm(x_next)
        moves = square_norm(x_next - z) > least
        info = Info(full_gradients=1, gap=gap, skip_fixed_point_test=moves)
        return new, BasisPursuitState(u, t, root), info


def _evaluate(objective: LeastSquares, x: Array) -> Iterate:
    """The iterate with the l1 norm as its value."""
    return Iterate(x, jnp.sum(jnp.abs(x)), objective.predict(x))


def _inverse_root(gram: Array) -> Array:
    """R with ``R R^* = gram^{-1}``, or the pseudo-inverse where rows of A depend on each other."""
    values, vectors = eigh(gram)
    has_inverse = values > FLAT_ULPS * machine_eps(gram) * values[-1]
    inverse = jnp.where(has_inverse, 1 / jnp.where(has_inverse, values, 1), 0)
    return vectors * jnp.sqrt(inverse)


def _project(objective: LeastSquares, root: Array | None, v: Array) -> tuple[Array, Array]:
    """The exact fit nearest to v, and ``w = (A A^*)^{-1} (y - A v)``."""
    A = objective.design
    residual = objective.target - A.matvec(v)
    if root is not None:
        w = matmul(root, matmul(root.conj().T, residual))
    else:
        rtol = machine_eps(v)
        w = conjugate_gradients(lambda w: A.matvec(A.rmatvec(w)), residual, rtol, MAX_PRODUCTS)
    return v + A.rmatvec(w), w
