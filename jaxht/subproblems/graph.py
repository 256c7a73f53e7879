"""Covariance selection (Dempster 1972): the precision matrix of a Gaussian on a given graph.

Minimise ``f(W) = -log det W + <S, W> + 1/2 sum_ij ridge_ij W_ij^2`` over the symmetric W that are
zero off a pattern, by Newton steps in the entries on and above the diagonal; where the minimiser is
not within ``lower I <= W <= upper I``, by the alternating direction method of multipliers (ADMM).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._dataclass import integer, pytree, static
from jaxht._loops import while_loop
from jaxht._typing import Array, Numeric
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.linalg.inner_products import real_vdot
from jaxht.linalg.lapack import eigh
from jaxht.linalg.linear_solvers import cholesky_solver, conjugate_gradients
from jaxht.linalg.normal_equations import ratio
from jaxht.linalg.positive_definite import inverse, logdet, symmetric
from jaxht.linalg.selection import gather, mask_to_indices
from jaxht.subproblems.by_products import Subproblem
from jaxht.subproblems.coordinate_functions import FINE_ULPS, MAX_SYSTEM_PRODUCTS, Region
from jaxht.subproblems.refits import Refit, RefitStatus
from jaxht.subproblems.restricted_problem import RestrictedProblem

MAX_ADMM_ITERATIONS = 2000
# Relative error of long Newton steps; that of short ones falls with their length (Dembo, Eisenstat &
# Steihaug 1982).
ROUGH = 0.3
# The decrease of f, relative, below which a Newton step ends a refit that need not be exact.
APPROACHED = 1e-4
# Up to m = 4 p entries a factor of the Hessian, m^3 / 3, costs less than a few dozen products with
# it and with its preconditioner, 8 p^3 together.
FACTORISED_ENTRIES_PER_ROW = 4


class GraphProblem(Subproblem):
    """A precision matrix on a graph, within the bounds on its eigenvalues."""

    def restrict(
        self, support: Any, x: Array, ridge: Array | None = None, enough: Numeric = 0.0
    ) -> RestrictedProblem:
        """The objective, without the bounds on the eigenvalues, on a graph."""
        p = self.objective.shape[0]
        k_max = p * p if support.k_max is None else support.k_max
        num_entries = (k_max + p) // 2
        pattern = Pattern.of(support.mask, num_entries)
        ridge = jnp.zeros((), x.dtype) if ridge is None else ridge
        S = symmetric(self.objective.S)
        f = CovarianceSelection(S, pattern, ridge, jnp.asarray(enough, x.dtype))
        w = pattern.gather(x)
        region = Region(pattern.inside)
        return RestrictedProblem(f, w, region, pattern.point)

    @property
    def is_approached(self) -> bool:
        """True."""
        return True

    def approach(self, support: Any, x: Array, enough: Numeric | None = None) -> Refit:
        """A refit that ends where f is above its minimum by less than APPROACHED of it, which saves
        most of the products."""
        return self._refit(support, x, None, APPROACHED if enough is None else enough)

    def refit(self, support: Any, x: Array, ridge: Array | None = None) -> Refit:
        """Fit the precision matrix on a graph, starting from x.

        Cost: about 5 to 10 Newton steps, each of (p + k_max)^3 / 3 where k_max is known and below
        3 p, else of some 5 to 50 products with the Hessian and its preconditioner, 8 p^3 together;
        where a bound is active, an eigendecomposition in each iteration of ADMM.
        """
        return self._refit(support, x, ridge, 0.0)

    def _refit(self, support: Any, x: Array, ridge: Array | None, enough: Numeric) -> Refit:
        objective = self.objective
        lower = jnp.asarray(objective.lower, x.dtype)
        upper = jnp.asarray(objective.upper, x.dtype)
        start = _shrink(support.restrict(x), objective.start())
        found = self.restrict(support, start, ridge, enough).minimise(enough)
        x = found.x
        bounds = (lower, upper)
        is_skipped = jnp.isinf(jnp.asarray(enough))
        within = is_skipped | found.converged & inside(x, bounds)
        ridge = jnp.zeros((), x.dtype) if ridge is None else ridge
        S = symmetric(objective.S)
        data = lax.stop_gradient((S, support.mask, ridge, x, bounds))
        T, done = minimise_within(*data, within)
        x = _choose(x, T, within)
        is_definite = jnp.isfinite(logdet(T))
        status = RefitStatus.of(within | done & is_definite)
        return Refit(x, x, status)

    def values_without(self, selected: Array, x: Array, pred: Array) -> Array:
        r"""f(W) with each edge (i, j), i < j, set to 0, by the inverse of W; infinity where that is
        not positive definite.

        .. math::
            f(W) - \log\big((1 - w \sigma_{ij})^2 - w^2 \sigma_{ii} \sigma_{jj}\big)
            - 2 w S_{ij}, \qquad w = W_{ij}, \ \sigma = W^{-1}

        The logarithm is that of the determinant of a matrix that changes by rank 2. Both factors of
        its argument are linear in w, and positive as long as the matrix is positive definite on the
        way from W.

        Cost: 10/3 p^3.
        """
        i, j = np.triu_indices(x.shape[0], 1)
        if selected.shape != i.shape:  # other items than edges
            return super().values_without(selected, x, pred)
        w = x[i, j]
        sigma = inverse(x)
        own = 1 - w * sigma[i, j]
        size = jnp.abs(w)
        root = size * jnp.sqrt(sigma[i, i] * sigma[j, j])
        is_inside = jnp.minimum(own - root, own + root) > 0
        product = (own - root) * (own + root)
        determinant = jnp.where(is_inside, product, 1)
        logarithm = jnp.log(determinant)
        linear = 2 * w * symmetric(self.objective.S)[i, j]
        change = logarithm + linear
        values = self.objective.value(x, pred) - change
        return jnp.where(selected & is_inside, values, jnp.inf)


def _shrink(x: Array, origin: Array) -> Array:
    """A positive definite convex combination of x and the origin, found by halving the weight of x
    a few times."""

    def point(t):
        return t * x + (1 - t) * origin

    def is_indefinite(t):
        return (t > 0) & ~jnp.isfinite(logdet(point(t)))

    def halve(t):
        return jnp.where(t > 0.1, t / 2, 0)

    whole = jnp.ones((), x.dtype)
    return point(while_loop(is_indefinite, halve, whole))


@jax.custom_jvp
def _choose(x: Array, T: Array, within: Array) -> Array:
    """x where it is within the bounds, else T, whose derivative is not known."""
    return jnp.where(within, x, T)


@_choose.defjvp
def _choose_jvp(primals: tuple, tangents: tuple) -> tuple:
    _, _, within = primals
    x_dot, *_ = tangents
    chosen = _choose(*primals)
    return chosen, jnp.where(within, x_dot, jnp.nan)


@pytree
class Pattern:
    """Coordinates of the symmetric matrices that are zero off a pattern: their entries on and above
    the diagonal.

    Attributes:
        indices: int32 (m,), positions in the flattened p x p matrix in increasing order, padded
            with p^2.
        p: static, the number of rows.
    """

    indices: Array = integer()
    p: int = static()

    @classmethod
    def of(cls, mask: Array, num_entries: int) -> "Pattern":
        """The pattern of a symmetric mask (p, p), with at most ``num_entries`` entries on and above
        the diagonal."""
        p = mask.shape[0]
        upper = mask & np.tri(p, dtype=bool).T
        return cls(mask_to_indices(upper.ravel(), num_entries), p)

    @property
    def inside(self) -> Array:
        """False in the padding."""
        return self.indices < self.p**2

    @property
    def places(self) -> tuple[Array, Array]:
        """Row and column; those of the last entry in the padding."""
        last = self.p**2 - 1
        indices = jnp.minimum(self.indices, last)
        i, j = jnp.divmod(indices, self.p)
        return i, j

    def multiplicity(self, dtype: Any) -> Array:
        """How many entries of the matrix a coordinate stands for: 2 off the diagonal, else 1."""
        i, j = self.places
        return jnp.where(i == j, 1, 2).astype(dtype)

    def gather(self, v: Array) -> Array:
        """The coordinates of v, 0 in the padding."""
        return gather(v.ravel(), self.indices)

    def point(self, w: Array) -> Array:
        """The matrix with these coordinates."""
        upper = jnp.zeros(self.p**2, w.dtype)
        upper = upper.at[self.indices].set(w, mode="drop")
        upper = upper.reshape(self.p, self.p)
        return upper + jnp.triu(upper, 1).T


def _curvatures(x: Array, i: Array, j: Array) -> Array:
    """``x_ii x_jj + x_ij^2``, the entry (i, j) of ``x V x`` for a V that is 1 at (i, j) and (j, i),
    2 where these are one."""
    own = jnp.diagonal(x)
    return own[i] * own[j] + x[i, j] ** 2


@pytree
class CovarianceSelection:
    """The objective in the coordinates of a pattern, a
    :class:`jaxht.subproblems.coordinate_functions.CoordinateFunction`.

    A constant is added to its value: newton estimates rounding errors by the size of the value, and
    f is a difference of two terms that may cancel.
    """

    S: Array
    pattern: Pattern
    ridge: Array
    enough: Array  # of f above its minimum, relative: no step is needed that decreases it by less

    is_positive = False
    has_cheap_values = False

    def is_coercive(self, inside: Array) -> bool:
        """Not on every pattern."""
        return False

    def predict(self, w: Array) -> Array:
        """W."""
        return self.pattern.point(w)

    def value(self, w: Array, pred: Array) -> Array:
        """f plus a constant."""
        diagonal = jnp.diagonal(self.S)
        positive = jnp.where(diagonal > 0, diagonal, 1)
        logarithms = jnp.log(positive)
        offset = self.pattern.p + jnp.sum(jnp.abs(logarithms))
        ridge = jnp.vdot(pred, self.ridge * pred) / 2
        return offset - logdet(pred) + jnp.vdot(self.S, pred) + ridge

    def gradient(self, w: Array, pred: Array) -> Array:
        """``c (S - W^-1 + ridge W)``, c the multiplicity."""
        gradient = self.S - inverse(pred) + self.ridge * pred
        count = self.pattern.multiplicity(w.dtype)
        return count * self.pattern.gather(gradient)

    def solver(
        self, w: Array, pred: Array, free: Array, tau: Numeric, rtol: float | None
    ) -> Callable[[Array], Array]:
        r"""Solve by a factor of the Hessian or its products; B is its diagonal, since f has no
        quadratic upper bound.

        For entries (i, j) and (k, l) the Hessian is ``c c' / 2 (s_ik s_jl + s_il s_jk)``, s = W^-1,
        c the multiplicity. On all symmetric matrices it is ``V -> s V s``, with the inverse ``V -> W
        V W``, whose entries on the pattern precondition the products:

        .. math::
            (H_{FF})^{-1} \preceq (H^{-1})_{FF} = P_F (W \otimes W) P_F'

        So the preconditioned residual of a Newton step bounds how much f is above its minimum:
        below the rounding of f, or what is ``enough``, the system ends.
        """
        pattern = self.pattern
        sigma = inverse(pred)
        count = pattern.multiplicity(w.dtype)
        ridges = self.ridge * jnp.ones_like(pred)
        ridge = count * pattern.gather(ridges)
        i, j = pattern.places
        curvature = count**2 / 2 * _curvatures(sigma, i, j)
        damping = ridge + tau * curvature

        if pattern.indices.size <= FACTORISED_ENTRIES_PER_ROW * pattern.p:
            root = jnp.sqrt(jnp.asarray(2, w.dtype))
            weight = jnp.where(free, count / root, 0)
            of_same = sigma[i][:, i] * sigma[j][:, j]
            of_other = sigma[i][:, j] * sigma[j][:, i]
            products = of_same + of_other
            hessian = products * weight * weight[:, None]
            return cholesky_solver(hessian, jnp.where(free, damping, tau))

        def between(v, matrix):
            """The entries of ``matrix V matrix`` on the pattern."""
            left = matmul(matrix, pattern.point(v))
            return pattern.gather(matmul(left, matrix))

        def product(v):
            moved = jnp.where(free, v, 0)
            image = count * between(moved, sigma) + damping * v
            return jnp.where(free, image, v)

        # What is added to the diagonal of H makes that of its inverse smaller.
        curvature_of_inverse = _curvatures(pred, i, j)
        scale = lax.rsqrt(1 + damping * curvature_of_inverse / 2)

        def precondition(r):
            scaled = jnp.where(free, scale * r / count, 0)
            image = scale * between(scaled, pred)
            return jnp.where(free, image, r)

        def error_of_step(g):
            square = real_vdot(g, precondition(g))
            decrement = jnp.sqrt(square / pattern.p)
            # Near its minimum f is about 2 p, and above it by half of the square.
            needed = 2 * jnp.sqrt(self.enough)
            rounding = FINE_ULPS * machine_eps(w)
            least = ratio(jnp.maximum(rounding, needed), decrement)
            return jnp.clip(least, jnp.minimum(decrement, ROUGH), 1)

        def solve(g):
            error = error_of_step(g) if rtol is None else rtol
            return conjugate_gradients(product, g, error, MAX_SYSTEM_PRODUCTS, precondition)

        return solve

    def curvatures(self) -> Array:
        """The curvatures where W is diagonal, with an inverse like S."""
        i, j = self.pattern.places
        own = jnp.diagonal(self.S)
        return own[i] * own[j]


def minimise_within(
    S: Array, mask: Array, ridge: Array, x: Array, bounds: tuple[Array, Array], within: Array
) -> tuple[Array, Array]:
    r"""Minimise within the bounds on the eigenvalues, by ADMM; where x is known to be ``within``
    them, return x.

    .. math::
        W \leftarrow \arg\min -\log\det W + \langle S - G, W \rangle + \rho/2 \|W - T\|^2
        \ \text{ over } \ lower \cdot I \preceq W \preceq upper \cdot I, \qquad
        T \leftarrow [W - G / \rho]_F, \qquad G \leftarrow G - \rho (W - T)

    The first step is computed from an eigendecomposition. rho is adapted to the residuals (Boyd et
    al. 2011, §3.4.1).

    Returns T, which is exactly sparse and within the bounds up to the tolerance, and whether it has
    converged. T starts at x, which is positive definite on F, and G at the gradient. An iteration
    costs an eigendecomposition, about 10 p^3.

    Source: Yuan, Li & Zhang 2018, Appendix D.2.
    """
    lower, upper = bounds
    tolerance = machine_eps(x) ** 0.6

    def iterate(carry):
        count, *_, T, G, rho = carry
        values, V = eigh(T - (S - G) / rho)
        roots = jnp.sqrt(values**2 + 4 / rho)
        values = jnp.clip((values + roots) / 2, lower, upper)
        W = symmetric(matmul(V * values, V.T))
        shrunk = (rho * W - G) / (rho + ridge)
        next_T = jnp.where(mask, shrunk, 0)
        G = G - rho * (W - next_T)
        primal = jnp.linalg.norm(W - next_T)
        dual = rho * jnp.linalg.norm(next_T - T)
        size = jnp.linalg.norm(next_T)
        dual_size = jnp.linalg.norm(S)
        done = (primal <= tolerance * size) & (dual <= tolerance * dual_size)
        ratio = (primal / size) / (dual / dual_size)
        is_adapted = (count % 10 == 9) & (count < MAX_ADMM_ITERATIONS // 2)
        is_unbalanced = [ratio > 10, ratio < 0.1]
        factor = jnp.select(is_unbalanced, [2.0, 0.5], 1.0)
        factor = factor.astype(rho.dtype)
        rho = jnp.where(is_adapted, factor * rho, rho)
        count = count + 1
        ends = done | ~jnp.isfinite(primal)
        return count, ends, done, next_T, G, rho

    def goes_on(carry):
        count, ends, *_ = carry
        return ~ends & (count < MAX_ADMM_ITERATIONS)

    rho = jnp.mean(jnp.diagonal(S)) ** 2
    G = jnp.where(mask, 0, S - inverse(x))
    start = (0, within, within, x, G, rho)
    _, _, done, T, *_ = while_loop(goes_on, iterate, start)
    return T, done


def inside(x: Array, bounds: tuple[Array, Array]) -> Array:
    """Whether the eigenvalues of x lie within bounds. Cost: 2/3 p^3."""
    lower, upper = bounds
    identity = jnp.eye(x.shape[0], dtype=x.dtype)
    is_above = jnp.isfinite(logdet(x - lower * identity))
    is_below = jnp.isfinite(logdet(identity - x / upper))
    return is_above & is_below
