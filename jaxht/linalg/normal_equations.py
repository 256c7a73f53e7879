"""Least squares by conjugate gradients on the normal equations, preconditioned by a Cholesky factor
of the Gram matrix.

In plain operations on small arrays, which the kernels of :mod:`jaxht.kernels` run as well.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from jaxht._loops import while_loop
from jaxht._typing import Array, Numeric
from jaxht.linalg.full_precision import machine_eps
from jaxht.linalg.inner_products import rankable

__all__ = ["ColumnProducts", "inverse_norm", "minimise", "ratio", "scale_gram"]

# A correction of so many ulps of the solution needs no further step.
REFINEMENT_ULPS = 64.0
# An entry of the gradient of so many ulps, relative to column and residual, is rounding noise.
GRADIENT_NOISE_ULPS = 1.0
MAX_REFINEMENTS = 30
# Condition numbers up to 3e4 in float32 and 7e8 in float64 are resolved; above, a matrix counts as
# rank-deficient.
FLAT_DIRECTION_ULPS = 0.01


class ColumnProducts(NamedTuple):
    """The products with the columns B of a support, n x k, and the inner product.

    Attributes:
        matvec: w -> B w.
        rmatvec: r -> B' r, the adjoint.
        vdot: (u, v) -> u'v, of complex vectors its real part.
    """

    matvec: Callable[[Array], Array]
    rmatvec: Callable[[Array], Array]
    vdot: Callable[[Array, Array], Array]


class _Refinement(NamedTuple):
    """The state of the conjugate gradients.

    Attributes:
        step: how many steps have been taken.
        is_running: whether a further one is needed.
        w: (k,), the solution.
        residual: (n,), y - B w.
        gradient: (k,), B' residual - penalty w.
        direction: (k,), that of the next step.
        decrease: the inner product of the gradient and its preconditioned version.
    """

    step: Array
    is_running: Array
    w: Array
    residual: Array
    gradient: Array
    direction: Array
    decrease: Array


def minimise(
    columns: ColumnProducts,
    y: Array,
    penalty: Array,
    squares: Array,
    precondition: Callable[[Array], Array],
) -> tuple[Array, Array]:
    """Minimise ``1/2 ||B w - y||^2 + 1/2 sum_i penalty_i w_i^2`` for B tall, wide or
    rank-deficient.

    The condition number of B'B is the square of B's, so its Cholesky factor is only used as the
    preconditioner of conjugate gradients on the normal equations, whose residuals are computed from
    B and y themselves (CGLS: Björck 1996, §7.4): one step where B is well conditioned, a few where
    it is not. Since the steps start at zero, the result has no component in the null space.

    Args:
        columns: the products with B.
        y: (n,).
        penalty: (k,), >= 0.
        squares: (k,), of the norms of the columns.
        precondition: ``s -> (B'B + diag(penalty))^-1 s``, about.

    Returns:
        w (k,) and the residual y - B w (n,).
    """
    eps = machine_eps(y)
    vdot = columns.vdot
    diagonal = squares + penalty

    def refine(state: _Refinement) -> _Refinement:
        direction = state.direction
        image = columns.matvec(direction)
        curvature = vdot(image, image) + vdot(direction, penalty * direction)
        # The exact line search, not decrease / curvature: with rounding errors, directions are no
        # longer conjugate. Along a direction that is nearly in the null space of B, a long step
        # would decrease f by little.
        is_curved = curvature > FLAT_DIRECTION_ULPS * eps * vdot(direction, diagonal * direction)
        step_size = jnp.where(is_curved, ratio(vdot(state.gradient, direction), curvature), 0)
        w = state.w + step_size * direction
        residual = state.residual - step_size * image
        gradient = columns.rmatvec(residual) - penalty * w
        correction = precondition(gradient)
        decrease = vdot(gradient, correction)
        is_large = vdot(correction, correction) > (REFINEMENT_ULPS * eps) ** 2 * vdot(w, w)
        # The correction of a gradient of rounding errors is large in the null space, where f does
        # not change.
        noise = GRADIENT_NOISE_ULPS * eps * jnp.sqrt(squares * vdot(residual, residual))
        noise_decrease = jnp.sqrt(vdot(jnp.square(noise), jnp.square(rankable(correction))))
        return _Refinement(
            step=state.step + 1,
            is_running=is_large & (decrease > noise_decrease),
            w=w,
            residual=residual,
            gradient=gradient,
            direction=correction + ratio(decrease, state.decrease) * direction,
            decrease=decrease,
        )

    gradient = columns.rmatvec(y)
    correction = precondition(gradient)
    decrease = vdot(gradient, correction)
    start = _Refinement(
        step=jnp.int32(0),
        is_running=~(decrease <= 0),
        w=jnp.zeros_like(gradient),
        residual=y,
        gradient=gradient,
        direction=correction,
        decrease=decrease,
    )

    def is_unfinished(state: _Refinement) -> Array:
        return (state.step < MAX_REFINEMENTS) & state.is_running

    found = while_loop(is_unfinished, refine, start)
    return found.w, found.residual


def scale_gram(gram: Array, penalty: Array) -> tuple[Array, Array]:
    """``B'B + diag(penalty)`` for columns scaled to unit norm, and their scale.

    The diagonal is one, also in the padding; a jitter of a few ulps keeps a factor finite for
    duplicated or too many columns.
    """
    size = gram.shape[0]
    scale = inverse_norm(jnp.diagonal(gram).real + penalty)
    scaled = gram * scale[None] * scale[:, None]
    is_diagonal = jnp.eye(size, dtype=bool)
    return jnp.where(is_diagonal, 1 + 4 * size * machine_eps(gram), scaled), scale


def inverse_norm(squares: Array) -> Array:
    """``squares^(-1/2)``, and 0 for 0."""
    norm = jnp.sqrt(squares)
    # A column whose square overflows must not drop out unseen, like one of zeros.
    return jnp.where(norm < jnp.inf, ratio(1.0, norm), jnp.nan)


def ratio(a: Numeric, b: Array) -> Array:
    """a / b, and 0 where b <= 0; NaN stays NaN."""
    return jnp.where(b <= 0, 0, a / jnp.where(b <= 0, 1, b))
