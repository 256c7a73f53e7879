"""Least squares on a growing support: a QR factorisation to which columns are added one at a
time."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxht._dataclass import integer, pytree
from jaxht._loops import fori_loop, while_loop
from jaxht._typing import Array
from jaxht.constraints.support import Support
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.linalg.inner_products import conj_matmul, real_vdot, square_ratio, squares
from jaxht.objectives.linear_model import LeastSquares
from jaxht.subproblems.by_products import Growth
from jaxht.subproblems.linear_models import gather_column, ridge_per_sample, weight_by
from jaxht.subproblems.refits import Refit, RefitStatus

# A column whose part orthogonal to the others has a norm below so many ulps of its own depends on
# them.
DEPENDENT_ULPS = 32.0
# A coordinate depends on others where so many ulps of its curvature are left.
NO_CURVATURE_ULPS = 64.0


@pytree
class GrowingQR(Growth):
    """Directions over a support F that are orthonormal for ``H = A'SA + diag(p)``, c H the Hessian,
    p = l2 / c.

    They are computed by Gram-Schmidt, repeated where much of a column cancels (Daniel et al. 1976),
    which keeps them orthogonal to working precision; no Gram matrix is formed, whose condition
    number would be the square of that of A_F.

    Attributes:
        mask: bool (d,), F.
        indices: int32 (k_max,), F in the order in which it has grown, padded with d.
        penalty: (k_max,), p on F.
        directions: (k_max, k_max), one direction in each row, over F; 0 in the padding and for a
            column that depends on those before.
        images: (k_max, n), A times the directions.
        w: (k_max,), the minimiser on F.
        residual: (n,), y - A w.
        curvature: (d,), of f along each coordinate; None where no scores are asked for.
        remaining: (d,), the curvature that is left once f is minimised over the first
            ``num_counted`` directions; or None.
        num_counted: int32, or None.
    """

    mask: Array
    indices: Array = integer()
    penalty: Array
    directions: Array
    images: Array
    w: Array
    residual: Array
    curvature: Array | None = None
    remaining: Array | None = None
    num_counted: Array | None = integer(default=None)

    @classmethod
    def of(cls, objective: LeastSquares, support: Support, *, scored: bool) -> "GrowingQR":
        """Factorise the columns of a support, one after the other."""
        n, d = objective.design.shape
        y = objective.target
        k_max = support.require_indices().size
        qr = cls(
            mask=jnp.zeros(d, bool),
            indices=jnp.full(k_max, d, jnp.int32),
            penalty=jnp.zeros(k_max, objective.real_dtype),
            directions=jnp.zeros((k_max, k_max), y.dtype),
            images=jnp.zeros((k_max, n), y.dtype),
            w=jnp.zeros(k_max, y.dtype),
            residual=y,
        )
        qr = while_loop(
            lambda qr: jnp.any(support.mask & ~qr.mask), lambda qr: qr.add(objective, support), qr
        )
        if not scored:
            return qr
        curvature = objective.majorant().diagonal()
        zero = jnp.zeros((), jnp.int32)
        return dataclasses.replace(qr, curvature=curvature, remaining=curvature, num_counted=zero)

    @property
    def size(self) -> Array:
        """The number of coordinates, int32."""
        return jnp.sum(self.mask, dtype=jnp.int32)

    def refit(self, problem: Any, support: Support, x: Array) -> tuple[Refit, "GrowingQR"]:
        """Update the factorisation. Cost: 2 or 4 n k_max."""
        qr = self.add(problem.objective, support)
        x = support.scatter(qr.w, qr.indices)
        return Refit(x, problem.objective.target - qr.residual, RefitStatus.of(True)), qr

    def scores(
        self, problem: Any, selected: Array, x: Array, pred: Array
    ) -> tuple[Array, "GrowingQR"]:
        r"""The decrease of f for each coordinate, from the curvature that is left along it.

        .. math::
            s_j = H_{jj} - \sum_q c |a_j^* q|^2

        Cost: a gradient, and n d for each further direction.
        """
        f = problem.objective

        def subtract(i, remaining):
            overlaps = f.design.rmatvec(weight_by(f, self.images[i]))
            return remaining - f.normalise(squares(overlaps))

        remaining = self.remaining
        if self.indices.size:  # else there is no direction to index
            remaining = fori_loop(self.num_counted, self.size, subtract, remaining)
        gains = gains_along(f.gradient(x, pred), remaining, self.curvature)
        return gains, dataclasses.replace(self, remaining=remaining, num_counted=self.size)

    def add(self, objective: LeastSquares, support: Support) -> "GrowingQR":
        """Add the first coordinate of a support that is not in F yet, if there is one."""
        eps = machine_eps(self.w)
        new_mask = support.mask & ~self.mask
        is_new = jnp.any(new_mask)
        i = jnp.argmax(new_mask).astype(jnp.int32)
        slot = (lax.iota(jnp.int32, self.indices.size) == self.size) & is_new
        new = gather_column(objective, i)
        p = ridge_per_sample(objective, objective.shape)[i]
        penalty = jnp.where(slot, p, self.penalty)

        def product(u, v):
            return jnp.vdot(u, weight_by(objective, v))

        def orthogonalise(carry):
            count, image, direction, _, square = carry
            overlap = conj_matmul(self.images, weight_by(objective, image))
            overlap += conj_matmul(self.directions, penalty * direction)
            image = image - matmul(overlap, self.images)
            direction = direction - matmul(overlap, self.directions)
            remaining = product(image, image).real + real_vdot(direction, penalty * direction)
            return count + 1, image, direction, square, remaining

        def has_cancelled(carry):
            count, *_, before, remaining = carry
            return (count < 1) | (remaining < before / 2) & (count < 3)

        total = product(new, new).real + p
        start = (0, new, slot.astype(new.dtype), total, total)
        _, image, direction, _, square = while_loop(has_cancelled, orthogonalise, start)
        # NaN, so that a column whose square overflows is not ignored silently.
        norm = jnp.where(total < jnp.inf, jnp.sqrt(square), jnp.nan)
        is_dependent = square <= (DEPENDENT_ULPS * eps) ** 2 * total
        norm = jnp.where(is_dependent | ~is_new, jnp.inf, norm)
        image = image / norm
        direction = direction / norm
        step = product(image, self.residual) - jnp.vdot(direction, penalty * self.w)
        here = lax.iota(jnp.int32, self.mask.size) == i
        return dataclasses.replace(
            self,
            mask=self.mask | here & is_new,
            indices=jnp.where(slot, i, self.indices),
            penalty=penalty,
            directions=jnp.where(slot[:, None], direction, self.directions),
            images=jnp.where(slot[:, None], image, self.images),
            w=self.w + step * direction,
            residual=self.residual - step * image,
        )


def gains_along(derivatives: Array, remaining: Array, total: Array) -> Array:
    """``|derivatives|^2 / (2 remaining)``: 0 where nothing of the curvature ``total`` remains, NaN
    where it overflows."""
    eps = machine_eps(total)
    is_independent = remaining > NO_CURVATURE_ULPS * eps * total
    gains = square_ratio(derivatives, jnp.where(is_independent, 2 * remaining, 1))
    return jnp.where(jnp.isfinite(total), jnp.where(is_independent, gains, 0), jnp.nan)
