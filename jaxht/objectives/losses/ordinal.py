"""The likelihood of ordered classes."""

import dataclasses
import math
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._dataclass import pytree, static
from jaxht._loops import while_loop
from jaxht._programs import bounded_jit
from jaxht._typing import Array, Leaf, Numeric
from jaxht.objectives.losses.loss import Loss, check_class_ids

__all__ = ["OrdinalLoss"]


@pytree
class OrdinalLoss(Loss):
    r"""``l(u; y) = -log(sigma(theta_y - u) - sigma(theta_(y-1) - u))`` at the thresholds that fit
    all samples best.

    sigma is the logistic function, so that ``P(y <= j) = sigma(theta_j - u)``; theta_-1 is
    -infinity and theta_(c-1) infinity. With delta_j = theta_j - theta_(j-1),

    .. math::
        l(u; y) = \log(1 + e^{u - \theta_y}) + \log(1 + e^{\theta_{y-1} - u})
            - \log(1 - e^{-\delta_y})

    is convex in u and theta together, and so is ``min_theta sum_i s_i l_i`` in u. Its derivative is
    that at fixed thresholds, ``1 - sigma(theta_y - u) - sigma(theta_(y-1) - u)``, its Hessian what
    is left of the Hessian in u once theta is minimised over, and both are at most 1/2. Classes
    without samples are left out.

    Args:
        num_classes: c, an int of at least 2, static.
        weights: s, (n,), traced; None for ones.
        fixed: theta, as :meth:`fix` computes them; None.

    Source: McCullagh 1980 (proportional odds); Pratt 1981 (convexity).

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht.objectives.losses import OrdinalLoss
        >>> loss = OrdinalLoss(3)
        >>> # log 4, and log 2
        >>> [round(float(l), 4) for l in loss.value(jnp.zeros(4), jnp.array([0, 1, 1, 2]))]
        [1.3863, 0.6931, 0.6931, 1.3863]
    """

    family = "ordinal"
    is_positive = True

    num_classes: int = static()
    weights: Array | None = None
    fixed: Array | None = None

    is_separable = False

    def smoothness(self, y: Array) -> Numeric:
        """1/2, and 1/4 for two classes."""
        return 0.5 if self.num_classes > 2 else 0.25

    def check(self, y: Array) -> None:
        """Raise ValueError for class ids other than 0 ... c - 1, and for c below 2."""
        check_class_ids(y, self.num_classes)

    def value(self, u: Array, y: Array) -> Array:
        """l(u; y), (n,); NaN for a class id beyond c."""
        sides = self._sides(u, y)
        theta = self._fit(u, y)
        gaps = jnp.pad(_log_gaps(theta, sides.middle), 1)
        above = jnp.sum(_losses_above(sides, theta, u), axis=1)
        below = jnp.sum(_losses_below(sides, theta, u), axis=1)
        is_class = (y >= 0) & (y < self.num_classes)
        losses = above + below - gaps[sides.rank]
        return jnp.where(is_class, losses, jnp.nan)

    def derivative(self, u: Array, y: Array) -> Array:
        """``1 - sigma(theta_y - u) - sigma(theta_(y-1) - u)``, (n,)."""
        sides = self._sides(u, y)
        theta = self._fit(u, y)
        share = jax.nn.sigmoid(theta - u[:, None])
        slopes = sides.above * (1 - share) - sides.below * share
        return jnp.sum(slopes, axis=1)

    def hessian_product(self, u: Array, y: Array, v: Array) -> Array:
        """``D v - E (H_theta)^-1 E' S v``, (n,): D the curvatures at fixed thresholds, E what these
        have in common."""
        sides = self._sides(u, y)
        theta = self._fit(u, y)
        E = _curvatures(sides, theta, u)
        diagonal, off_diagonal = _hessian(sides, theta, u)
        pull = _times(sides.weights * v, E)
        moved = _solve_tridiagonal(diagonal, off_diagonal, pull)
        at_fixed_theta = jnp.sum(E, axis=1) * v
        return at_fixed_theta - jnp.sum(E * moved, axis=1)

    def fix(self, u: Array, y: Array) -> Self:
        """This loss with the thresholds at u, so that products of the Hessian there need not fit
        them."""
        return dataclasses.replace(self, fixed=self._fit(u, y))

    def thresholds(self, u: Array, y: Array) -> Array:
        """theta, (c - 1,), increasing; equal where a class has no samples, infinite beyond the
        outermost ones."""
        theta = self._fit(u, y)
        present = self._sides(u, y).present
        counts = jnp.cumsum(present, dtype=jnp.int32)
        below = counts[:-1]
        index = jnp.clip(below - 1, 0, theta.size - 1)
        inner = theta[index]
        outer = jnp.where(below == 0, -jnp.inf, jnp.inf)
        is_inner = (below > 0) & (below < counts[-1])
        return jnp.where(is_inner, inner, outer)

    def _sides(self, u: Array, y: Array) -> "_Sides":
        last = self.num_classes - 1
        ids = jnp.clip(y.astype(jnp.int32), 0, last)
        weights = jnp.ones_like(u) if self.weights is None else self.weights
        in_class = jax.nn.one_hot(ids, self.num_classes, dtype=u.dtype)
        present = _times(weights, in_class) > 0
        ranks = jnp.cumsum(present, dtype=jnp.int32) - 1
        rank = jnp.maximum(ranks, 0)[ids]
        in_class = jax.nn.one_hot(rank, self.num_classes, dtype=u.dtype)
        counts = _times(weights, in_class)
        threshold = lax.iota(jnp.int32, self.num_classes)[1:]
        num_present = jnp.sum(present, dtype=jnp.int32)
        inside = (threshold < num_present).astype(u.dtype)
        return _Sides(
            weights=weights,
            rank=rank,
            present=present,
            above=in_class[:, :-1] * inside,
            below=in_class[:, 1:] * inside,
            inside=inside,
            middle=counts[1:-1] * inside[1:],
            counts=counts,
        )

    def _fit(self, u: Array, y: Array) -> Array:
        """The thresholds between classes that have samples, (c - 1,); of no meaning beyond their
        number."""
        if self.fixed is not None:
            return self.fixed
        return _stationary_thresholds(self._sides(u, y), u)


class _Sides(NamedTuple):
    """The sides of the thresholds on which the samples are; classes are counted among those that
    have samples.

    Attributes:
        weights: s, (n,).
        rank: int32 (n,), the class.
        present: bool (c,), the classes that have samples.
        above: (n, c - 1), 1 for the threshold above the class.
        below: (n, c - 1), 1 for that below.
        inside: (c - 1,), 1 for thresholds between two classes.
        middle: (c - 2,), the weight of the classes 1 ... c - 2 that have a threshold on both sides.
        counts: (c,), the weight of each class.
    """

    weights: Leaf
    rank: Leaf
    present: Leaf
    above: Leaf
    below: Leaf
    inside: Leaf
    middle: Leaf
    counts: Leaf


@bounded_jit
def _stationary_thresholds(sides: _Sides, u: Array) -> Array:
    """Find the theta at which the slope is 0, (c - 1,). Jitted, so that a program that needs it
    often traces it once."""

    def slope(theta):
        gradient = _gradient(sides, theta, u)
        return gradient + (1 - sides.inside) * theta

    def solve(_, start):
        return _newton(sides, u, start)

    def solve_linear(product, b):
        identity = jnp.eye(b.size, dtype=b.dtype)
        H = jax.vmap(product)(identity)
        diagonal = jnp.diagonal(H)
        return _solve_tridiagonal(diagonal, jnp.diagonal(H, 1), b)

    start = lax.stop_gradient(_start(sides, u))
    return lax.custom_root(slope, start, solve, solve_linear)


def _times(v: Array, X: Array) -> Array:
    """``X' v`` in full precision."""
    return jnp.matmul(v, X, precision=lax.Precision.HIGHEST)


def _curvature(z: Array) -> Array:
    """The derivative of the logistic function."""
    return jax.nn.sigmoid(z) * jax.nn.sigmoid(-z)


def _differences(theta: Array, middle: Array) -> Array:
    """delta of the middle classes, (c - 2,); 1 for those without samples."""
    has_weight = middle > 0
    delta = theta[1:] - theta[:-1]
    return jnp.where(has_weight, delta, 1)


def _log_gaps(theta: Array, middle: Array) -> Array:
    """``log(1 - exp(-delta))``, (c - 2,); -infinity where thresholds are not in order."""
    delta = _differences(theta, middle)
    positive = jnp.where(delta > 0, delta, 1)
    logs = jnp.log(-jnp.expm1(-positive))
    has_weight = middle > 0
    logs = jnp.where(delta > 0, logs, -jnp.inf)
    return jnp.where(has_weight, logs, 0)


def _losses_above(sides: _Sides, theta: Array, u: Array) -> Array:
    """``log(1 + exp(u - theta))`` at the threshold above each sample, (n, c - 1)."""
    return sides.above * jax.nn.softplus(u[:, None] - theta)


def _losses_below(sides: _Sides, theta: Array, u: Array) -> Array:
    """``log(1 + exp(theta - u))`` at the threshold below each sample, (n, c - 1)."""
    return sides.below * jax.nn.softplus(theta - u[:, None])


def _curvatures(sides: _Sides, theta: Array, u: Array) -> Array:
    """The second derivatives of both, (n, c - 1)."""
    on_a_side = sides.above + sides.below
    return on_a_side * _curvature(theta - u[:, None])


def _total(sides: _Sides, theta: Array, u: Array) -> Array:
    """``sum_i s_i l_i``."""
    above = _losses_above(sides, theta, u)
    below = _losses_below(sides, theta, u)
    middle = sides.middle
    has_weight = middle > 0
    gaps = middle * _log_gaps(theta, middle)
    gaps = jnp.where(has_weight, gaps, 0)
    total = jnp.sum(_times(sides.weights, above + below))
    return total - jnp.sum(gaps)


def _gradient(sides: _Sides, theta: Array, u: Array) -> Array:
    """The gradient of :func:`_total` in theta, (c - 1,)."""
    share = jax.nn.sigmoid(theta - u[:, None])
    slopes = sides.below * share - sides.above * (1 - share)
    slope = _times(sides.weights, slopes)
    delta = _differences(theta, sides.middle)
    repulsion = sides.middle / jnp.expm1(delta)
    slope = slope + jnp.pad(repulsion, (0, 1))
    return slope - jnp.pad(repulsion, (1, 0))


def _hessian(sides: _Sides, theta: Array, u: Array) -> tuple[Array, Array]:
    """The diagonal (c - 1,) and what is beside it (c - 2,) of the Hessian in theta, which is
    tridiagonal."""
    curvatures = _curvatures(sides, theta, u)
    diagonal = _times(sides.weights, curvatures)
    delta = _differences(theta, sides.middle)
    q = 1 / jnp.expm1(delta)
    coupling = sides.middle * q * (1 + q)
    diagonal = diagonal + jnp.pad(coupling, (0, 1))
    diagonal = diagonal + jnp.pad(coupling, (1, 0))
    diagonal = jnp.where(sides.inside > 0, diagonal, 1)
    return diagonal, -coupling


def _solve_tridiagonal(diagonal: Array, off_diagonal: Array, b: Array) -> Array:
    """Solve a symmetric positive definite tridiagonal system, by elimination."""
    pivots = [diagonal[0]]
    rest = [b[0]]
    for j in range(1, diagonal.size):
        beside = off_diagonal[j - 1]
        factor = beside / pivots[-1]
        pivot = diagonal[j] - factor * off_diagonal[j - 1]
        pivots.append(pivot)
        rest.append(b[j] - factor * rest[-1])
    found = [rest[-1] / pivots[-1]]
    for j in reversed(range(diagonal.size - 1)):
        known = off_diagonal[j] * found[-1]
        found.append((rest[j] - known) / pivots[j])
    return jnp.stack(found[::-1])


def _start(sides: _Sides, u: Array) -> Array:
    """About the theta at which ``sum_i s_i sigma(theta_j - u_i)`` is the weight of the classes up
    to j.

    Found by bisection, to within a unit of u, so that Newton's method begins where the function is
    curved: of predictions that are far apart it consists of lines.
    """
    total = jnp.sum(sides.weights)
    below = jnp.cumsum(sides.counts)[:-1]
    is_inside = sides.inside > 0
    share = jnp.where(is_inside, below / total, 0.5)
    logits = jnp.log(share / (1 - share))
    margin = jnp.max(jnp.abs(logits))
    lowest = jnp.min(u) - margin
    width = jnp.max(u) + margin - lowest

    def halve(bracket):
        lower, width = bracket
        middle = lower + width / 2
        shares = jax.nn.sigmoid(middle - u[:, None])
        mass = _times(sides.weights, shares)
        lower = jnp.where(mass < share * total, middle, lower)
        return lower, width / 2

    def is_wide(bracket):
        # Predictions that overflow have no thresholds.
        return (bracket[1] > 1) & (bracket[1] < jnp.inf)

    lower, width = while_loop(is_wide, halve, (jnp.full_like(share, lowest), width))
    # In order where brackets are the same.
    return lower + width * share


class _ThresholdFit(NamedTuple):
    """The state of :func:`_newton`: the best thresholds, and the step that is tried next."""

    count: Leaf
    goes_on: Leaf
    theta: Leaf
    value: Leaf
    step: Leaf
    length: Leaf


MAX_THRESHOLD_STEPS = 100  # of Newton's method, halvings included


def _newton(sides: _Sides, u: Array, theta: Array) -> Array:
    """Minimise :func:`_total` over theta by Newton steps, halved where it increases."""
    eps = float(jnp.finfo(u.dtype).eps)

    # The first trial is the start: so a program has each function once.
    def attempt(at):
        trial = at.theta + at.length * at.step
        new = _total(sides, trial, u)
        size = 1 + jnp.max(jnp.abs(trial))
        # Rounding of thresholds is a relative error of small losses.
        rounding = 8 * eps * size
        slack = rounding * jnp.abs(at.value)
        accepted = new <= at.value + slack
        theta = jnp.where(accepted, trial, at.theta)
        value = jnp.where(accepted, new, at.value)
        diagonal, off_diagonal = _hessian(sides, trial, u)
        gradient = _gradient(sides, trial, u)
        direction = -_solve_tridiagonal(diagonal, off_diagonal, gradient)
        step = jnp.where(accepted, direction, at.step)
        # In units of the logistic function, however large the predictions are.
        largest = jnp.max(jnp.abs(step))
        is_small = largest <= math.sqrt(eps) + 8 * eps * size
        goes_on = ~(accepted & is_small) & (value < jnp.inf)
        length = jnp.where(accepted, 1, at.length / 2)
        return _ThresholdFit(at.count + 1, goes_on, theta, value, step, length)

    infinity = jnp.full((), jnp.inf, u.dtype)
    one = jnp.ones((), u.dtype)
    begin = _ThresholdFit(
        count=0,
        goes_on=jnp.array(True),
        theta=theta,
        value=infinity,
        step=jnp.zeros_like(theta),
        length=one,
    )
    found = while_loop(lambda at: (at.count < MAX_THRESHOLD_STEPS) & at.goes_on, attempt, begin)
    last = found.theta + found.step
    is_in_order = _differences(last, sides.middle) > 0
    return jnp.where(jnp.all(is_in_order), last, found.theta)
