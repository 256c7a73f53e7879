"""The minimum of a quadratic model on a support that changes by one coordinate at a time, and the
scores of all such changes."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxht._dataclass import integer, pytree
from jaxht._loops import fori_loop
from jaxht._typing import Array, Leaf, Numeric
from jaxht.constraints import SelectionConstraint
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.linalg.inner_products import real_vdot, square_ratio, squares
from jaxht.linalg.lapack import inverse_cholesky
from jaxht.linalg.selection import gather
from jaxht.objectives.objective import Objective
from jaxht.subproblems.quadratic_model import QuadraticModel


class ExchangeScores(NamedTuple):
    """How much a model of f changes when items join and leave a selection.

    Attributes:
        gains: shaped like items, the decrease for each item that joins.
        losses: (k_max,), the increase for each selected item that leaves.
        swaps: (k_max, number of items), the decrease for each pair that leaves and joins.
    """

    gains: Leaf
    losses: Leaf
    swaps: Leaf


# A coordinate is independent of others where more than this times the root of machine epsilon of
# its curvature is left: 1e-5 in single precision.
INDEPENDENT_ROOT_EPS = 0.03


def _unrestricted(directions: Array) -> Array:
    return directions


@pytree
class SupportMinimum:
    """The minimiser of a quadratic on a support S, and the scores of changes of S.

    Each slot holds a coordinate of S or is empty; all arrays are 0 in empty slots.

    Attributes:
        indices: int32 (k_max,), the coordinate in each slot; d where a slot is empty.
        inverse: M = H_SS^-1, (k_max, k_max).
        images: B = M H_S, (k_max, d).
        w: (k_max,), the minimiser on S.
        descent: g = b - H_S^H w, (d,), minus the gradient there; 0 on S.
        remaining: s_j = H_jj - H_jS M H_Sj, (d,), the curvature along j once f is minimised over S;
            0 on S; real.
        diagonal: H_jj, (d,), real.

    Source: rank-one updates of the inverse, Sherman & Morrison 1950; Chen, Billings & Luo 1989 for
    the gains.
    """

    indices: Array = integer()
    inverse: Array
    images: Array
    w: Array
    descent: Array
    remaining: Array
    diagonal: Array

    @classmethod
    def empty(cls, f: QuadraticModel, k_max: int) -> "SupportMinimum":
        """Return the minimum on no coordinate."""
        dtype = f.b.dtype
        return cls(
            indices=jnp.full(k_max, f.b.size, jnp.int32),
            inverse=jnp.zeros((k_max, k_max), dtype),
            images=jnp.zeros((k_max, f.b.size), dtype),
            w=jnp.zeros(k_max, dtype),
            descent=f.b,
            remaining=f.diagonal,
            diagonal=f.diagonal,
        )

    @classmethod
    def at(
        cls,
        objective: Objective,
        indices: Array,
        x: Array,
        pred: Array,
        is_fitted: Numeric = True,
    ) -> "SupportMinimum":
        """Return the minimum of the second-order expansion of f at x on S.

        Args:
            objective: any.
            indices: int32 (k_max,), S among the d coordinates of the flat variable, padded with d.
            x: shaped like the variable, 0 outside S.
            pred: the prediction of x.
            is_fitted: whether x is the minimiser of f on S, True or traced; the minimum is one Newton
                step away from any other.

        Cost: k_max products with the Hessian, its diagonal, and k_max^2 d.
        """
        H = objective.hessian(x, pred)
        diagonal = H.diagonal().ravel()
        rows = H.rows(indices)
        inverse = _invert_block(rows, indices)
        gradient = objective.gradient(x, pred).ravel()
        w = gather(x.ravel(), indices)
        if is_fitted is not True:
            step = jnp.where(is_fitted, 0, matmul(inverse, gather(gradient, indices)))
            w = w - step
            gradient = gradient - matmul(step.conj(), rows).conj()
        return cls._from_rows(indices, rows, inverse, w, gradient, diagonal)

    @classmethod
    def on(cls, f: QuadraticModel, indices: Array) -> "SupportMinimum":
        """Return the minimum of a quadratic on S, ``indices`` (k_max,) padded with d.

        Cost: k_max rows of H, and k_max^2 d.
        """
        rows = f.rows(indices)
        inverse = _invert_block(rows, indices)
        w = matmul(inverse, gather(f.b, indices))
        gradient = matmul(w.conj(), rows).conj() - f.b
        return cls._from_rows(indices, rows, inverse, w, gradient, f.diagonal)

    @classmethod
    def _from_rows(
        cls,
        indices: Array,
        rows: Array,
        inverse: Array,
        w: Array,
        gradient: Array,
        diagonal: Array,
    ) -> "SupportMinimum":
        images = matmul(inverse, rows)
        overlaps = (rows.conj() * images).real
        explained = matmul(jnp.ones(w.shape, overlaps.dtype), overlaps)
        outside = jnp.ones(diagonal.size, bool).at[indices].set(False, mode="drop")
        return cls(
            indices=indices,
            inverse=inverse,
            images=images,
            w=w,
            descent=jnp.where(outside, -gradient, 0),
            remaining=jnp.where(outside, diagonal - explained, 0),
            diagonal=diagonal,
        )

    def restrict(self, active: Array) -> "SupportMinimum":
        """Return the minimum among the coordinates ``active`` (m,), which differ and contain S."""
        positions = jnp.full(self.diagonal.size + 1, active.size, jnp.int32)
        positions = positions.at[active].set(lax.iota(jnp.int32, active.size))
        return SupportMinimum(
            indices=positions[self.indices],
            inverse=self.inverse,
            images=self.images[:, active],
            w=self.w,
            descent=self.descent[active],
            remaining=self.remaining[active],
            diagonal=self.diagonal[active],
        )

    @property
    def selected(self) -> Array:
        """S, bool (d,)."""
        return jnp.zeros(self.descent.shape, bool).at[self.indices].set(True, mode="drop")

    @property
    def filled(self) -> Array:
        """The slots that hold a coordinate, bool (k_max,)."""
        return self.indices < self.descent.size

    def decrease(self, f: QuadraticModel) -> Array:
        """How far f at the minimiser is below f(0)."""
        return real_vdot(self.w, gather(f.b, self.indices)) / 2

    def insertion_gains(self, feasible: Callable[[Array], Array] = _unrestricted) -> Array:
        """How much f decreases for each coordinate that joins S, ``|g_j|^2 / (2 s_j)``.

        It is -infinity for coordinates of S and those that depend on S up to rounding.
        ``feasible`` sets directions to 0 along which no coordinate may join.
        """
        independent = ~self.selected & (self.remaining > self._threshold)
        curvature = jnp.where(independent, self.remaining, 1)
        gains = square_ratio(feasible(self.descent), 2 * curvature)
        return jnp.where(independent, gains, -jnp.inf)

    def removal_losses(self) -> Array:
        """The increase of f for the coordinate of each slot that leaves, ``|w_i|^2 / (2 M_ii)``."""
        return square_ratio(self.w, 2 * self._inverse_diagonal)

    def swap_gains(self, feasible: Callable[[Array], Array] = _unrestricted) -> Array:
        r"""How much f decreases for each slot i that leaves and each j that joins, (k_max, d).

        .. math::
            \frac{|g_j + \bar{B}_{ij} w_i / M_{ii}|^2}{2 (s_j + |B_{ij}|^2 / M_{ii})}
            - \frac{|w_i|^2}{2 M_{ii}}

        Cost: k_max d, without a product with the design.
        """
        m = self._inverse_diagonal[:, None]
        remaining = self.remaining[None] + squares(self.images / jnp.sqrt(m))
        descent = self.descent[None] + self.w[:, None] / m * self.images.conj()
        allowed = (remaining > self._threshold[None]) & ~self.selected[None] & self.filled[:, None]
        # In units of the columns no square over- or underflows, and there is no root of each entry.
        unit = jnp.where(self.diagonal > 0, 1 / jnp.sqrt(self.diagonal), 1)[None]
        curvature = jnp.where(allowed, 2 * remaining * unit**2, 1)
        gains = squares(feasible(descent) * unit) / curvature
        return jnp.where(allowed, gains - self.removal_losses()[:, None], -jnp.inf)

    def insert(self, f: QuadraticModel, slot: Numeric, j: Array) -> "SupportMinimum":
        """Put coordinate j into an empty slot; j = d changes nothing. Cost: k_max d, a row of H."""
        row = f.row(j)
        is_slot = lax.iota(jnp.int32, self.indices.size) == slot
        is_j = lax.iota(jnp.int32, row.size) == j
        overlap = gather(row, self.indices)  # H_jS
        rest = row - matmul(overlap, self.images)
        exists = j < row.size
        s = jnp.where(exists, rest.real.at[j].get(mode="fill", fill_value=1), jnp.inf)
        step = gather(self.descent, j) / s
        # The direction along which f is minimised anew.
        direction = jnp.where(is_slot & exists, 1, -matmul(self.inverse, overlap.conj()))
        return SupportMinimum(
            indices=jnp.where(is_slot, j, self.indices),
            inverse=self.inverse + jnp.outer(direction, direction.conj()) / s,
            images=self.images + jnp.outer(direction, rest) / s,
            w=self.w + direction * step,
            descent=jnp.where(is_j, 0, self.descent - rest.conj() * step),
            remaining=jnp.where(is_j, 0, self.remaining - square_ratio(rest, jnp.abs(s))),
            diagonal=self.diagonal,
        )

    def remove(self, slot: Numeric) -> "SupportMinimum":
        """Empty a slot; nothing changes if it is empty or does not exist. Cost: k_max d."""
        is_slot = (lax.iota(jnp.int32, self.indices.size) == slot) & self.filled
        column = self.inverse[slot].conj()
        image = self.images[slot]
        w = self.w[slot]
        m = jnp.where(jnp.any(is_slot), column[slot].real, jnp.inf)
        per_m = 1 / m
        scaled = column * per_m
        crossed = is_slot[:, None] | is_slot[None]
        return SupportMinimum(
            indices=jnp.where(is_slot, self.descent.size, self.indices),
            inverse=jnp.where(crossed, 0, self.inverse - jnp.outer(scaled, column.conj())),
            images=jnp.where(is_slot[:, None], 0, self.images - jnp.outer(scaled, image)),
            w=jnp.where(is_slot, 0, self.w - scaled * w),
            descent=self.descent + image.conj() * (w * per_m),
            remaining=self.remaining + square_ratio(image, m),
            diagonal=self.diagonal,
        )

    def complete(
        self,
        f: QuadraticModel,
        wanted: Array,
        constraint: SelectionConstraint,
        limit: Numeric,
        by_gradient: Numeric = False,
        num_filled: Numeric = 0,
    ) -> "SupportMinimum":
        """Fill slots up to ``limit`` by forward selection.

        Args:
            f: the quadratic.
            wanted: (k_max,), the coordinates to begin with, padded with d.
            constraint: which coordinates may be selected together.
            limit: an integer, traced.
            num_filled: an integer, traced, the slots that are filled already.
            by_gradient: bool, whether the next coordinate is that of the largest ``g_j^2 / H_jj``
                (orthogonal matching pursuit) and not that of the largest gain.

        Cost: that of :meth:`insert` for each.
        """

        def add(slot, minimum):
            gains = minimum.insertion_gains()
            possible = gains > -jnp.inf
            if not constraint.is_uniform:
                possible &= constraint.joinable(minimum.selected)
                gains = jnp.where(possible, gains, -jnp.inf)
            has_curvature = minimum.diagonal > 0
            curvature = jnp.where(has_curvature, minimum.diagonal, 1)
            by_derivative = jnp.where(has_curvature, square_ratio(minimum.descent, curvature), 0)
            scores = jnp.where(by_gradient & possible, by_derivative, gains)
            best = jnp.argmax(scores).astype(jnp.int32)
            j = jnp.where(wanted[slot] < gains.size, wanted[slot], best)
            # Coordinates that depend on those before leave their slot empty.
            allowed = possible.at[j].get(mode="fill", fill_value=False)
            return minimum.insert(f, slot, jnp.where(allowed, j, gains.size))

        return fori_loop(num_filled, jnp.minimum(limit, self.indices.size), add, self)

    @property
    def _inverse_diagonal(self) -> Array:
        """M_ii; 1 in empty slots."""
        return jnp.where(self.filled, jnp.diagonal(self.inverse).real, 1)

    @property
    def _threshold(self) -> Array:
        root_eps = math.sqrt(machine_eps(self.diagonal))
        return root_eps * INDEPENDENT_ROOT_EPS * self.diagonal


def _invert_block(rows: Array, indices: Array) -> Array:
    """The inverse of H_SS, (k_max, k_max), from the rows H_S; 0 in slots that are not filled."""
    block = rows.at[:, indices].get(mode="fill", fill_value=0)
    filled = indices < rows.shape[1]
    num_slots = filled.size
    both = filled[None] & filled[:, None]
    eye = jnp.eye(num_slots, dtype=block.dtype)
    # The diagonal is raised a little for columns that depend on each other, where rounding makes
    # H indefinite.
    raised = block * (1 + num_slots * machine_eps(block) * eye)
    block = jnp.where(both, raised, eye)
    half = inverse_cholesky(block)
    # Where f is not convex, overlaps are left out.
    without_overlaps = jnp.diag(lax.rsqrt(jnp.abs(jnp.diagonal(block)))).astype(half.dtype)
    half = jnp.where(jnp.all(jnp.isfinite(half)), half, without_overlaps)
    return jnp.where(both, matmul(half.conj().T, half), 0)
