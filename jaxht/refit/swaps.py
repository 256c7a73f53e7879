"""Least squares on supports that change by one coordinate at a time, and the scores of all such changes."""

import math

import jax.numpy as jnp
from jax import lax

from jaxht._pytree import Array, integer, pytree
from jaxht.designs import Dense
from jaxht.linalg.precision import matmul
from jaxht.objectives.linear_model import LeastSquares
from jaxht.refit.columns import gather_column


@pytree
class Quadratic:
    """Least squares as ``f(x) = 1/2 x'H x - b'x + const``, whose H is known by its rows.

    Attributes:
        objective: the least squares.
        b: (d,), minus the gradient at 0.
        diagonal: (d,), that of H.
        gram: (d, d), H, where that is no more than the design; else None, and a row costs a product with the design.
    """

    objective: LeastSquares
    b: Array
    diagonal: Array
    gram: Array | None

    @classmethod
    def of(cls, objective: LeastSquares) -> "Quadratic":
        """The quadratic of an objective. Cost: n d, and n d^2 where d <= n or d <= SMALL on a dense design."""
        A, zero = objective.design, jnp.zeros(objective.shape, objective.dtype)
        pred = jnp.zeros(objective.num_samples, objective.dtype)
        gram = None
        if isinstance(A, Dense) and A.shape[1] <= max(A.shape[0], SMALL):
            columns = A.columns(lax.iota(jnp.int32, A.shape[1]))
            gram = matmul(columns, objective.weight(columns.T)) + jnp.diag(
                jnp.broadcast_to(objective.penalty, objective.shape)
            )
        return cls(objective, -objective.gradient(zero, pred), objective.majorant().diagonal(), gram)

    @property
    def moments(self) -> tuple[Array, Array, Array | None]:
        """``b``, ``diagonal`` and ``gram``: all but the objective."""
        return self.b, self.diagonal, self.gram

    def row(self, j: Array) -> Array:
        """Row j of H, (d,); 0 for j = d. Cost: n d, or d where H is held."""
        if self.gram is not None:
            return self.gram.at[j].get(mode="fill", fill_value=0)
        f, here = self.objective, lax.iota(jnp.int32, self.b.size) == j
        return f.design.rmatvec(f.weight(gather_column(f, j))) + jnp.where(here, f.penalty, 0)


@pytree
class SwapState:
    """The minimiser of a :class:`Quadratic` on a support S, a coordinate in each slot, and the scores of changes of S.

    Attributes:
        indices: int32 (k_max,), the coordinate in each slot; d where a slot is empty.
        inverse: M = H_SS^-1, (k_max, k_max); 0 in empty slots, like all below.
        images: B = M H_S, (k_max, d).
        w: (k_max,), the minimiser on S.
        descent: g = b - H_S' w, (d,), minus the gradient there: 0 on S.
        remaining: s_j = H_jj - H_jS M H_Sj, (d,), the curvature along j once f is minimised over S: 0 on S.

    Source: rank-one updates of the inverse, Sherman & Morrison 1950; Chen, Billings & Luo 1989 for the gains.
    """

    indices: Array = integer()
    inverse: Array
    images: Array
    w: Array
    descent: Array
    remaining: Array

    @classmethod
    def empty(cls, f: Quadratic, k_max: int) -> "SwapState":
        """The state of no coordinate."""
        d, zeros = f.b.size, jnp.zeros(k_max, f.b.dtype)
        indices = jnp.full(k_max, d, jnp.int32)
        return cls(indices, jnp.outer(zeros, zeros), jnp.zeros((k_max, d), f.b.dtype), zeros, f.b, f.diagonal)

    @property
    def selected(self) -> Array:
        """S, bool (d,)."""
        return jnp.zeros(self.descent.shape, bool).at[self.indices].set(True, mode="drop")

    @property
    def filled(self) -> Array:
        """The slots that hold a coordinate, bool (k_max,)."""
        return self.indices < self.descent.size

    def decrease(self, f: Quadratic) -> Array:
        """How far f at the minimiser is below f(0)."""
        return jnp.vdot(self.w, f.b.at[self.indices].get(mode="fill", fill_value=0)) / 2

    def insertion_gains(self, f: Quadratic) -> Array:
        r"""How much f decreases for each coordinate that joins S, ``g_j^2 / (2 s_j)``; -infinity where none may.

        No coordinate joins that depends on S up to rounding.
        """
        independent = ~self.selected & (self.remaining > self._threshold(f))
        return jnp.where(independent, self.descent**2 / jnp.where(independent, 2 * self.remaining, 1), -jnp.inf)

    def swap_gains(self, f: Quadratic) -> Array:
        r"""How much f decreases for the coordinate of each slot i that leaves and each j that joins S, (k_max, d).

        .. math::
            \frac{(g_j + B_{ij} w_i / M_{ii})^2}{2 (s_j + B_{ij}^2 / M_{ii})} - \frac{w_i^2}{2 M_{ii}}

        Cost: k_max d, without a product with the design.
        """
        m = jnp.where(self.filled, jnp.diagonal(self.inverse), 1)[:, None]
        w, B = self.w[:, None], self.images
        remaining = self.remaining + B**2 / m
        allowed = (remaining > self._threshold(f)) & ~self.selected & self.filled[:, None]
        gains = (self.descent + w / m * B) ** 2 / jnp.where(allowed, 2 * remaining, 1) - w**2 / (2 * m)
        return jnp.where(allowed, gains, -jnp.inf)

    def insert(self, f: Quadratic, slot: Array, j: Array) -> "SwapState":
        """S with coordinate j in an empty slot; unchanged for j = d. Cost: k_max d, and a row of H."""
        row, here = f.row(j), lax.iota(jnp.int32, self.indices.size) == slot
        # H_jS, whose entries in empty slots are 0.
        overlap = row.at[self.indices].get(mode="fill", fill_value=0)
        u = matmul(self.inverse, overlap)
        rest = row - matmul(overlap, self.images)
        is_new = j < row.size
        s = jnp.where(is_new, rest.at[j].get(mode="fill", fill_value=1), jnp.inf)
        g = self.descent.at[j].get(mode="fill", fill_value=0)
        direction = jnp.where(here & is_new, 1, -u)  # along which f is minimised anew
        return SwapState(
            jnp.where(here, j, self.indices),
            self.inverse + jnp.outer(direction, direction) / s,
            self.images + jnp.outer(direction, rest) / s,
            self.w + direction * (g / s),
            jnp.where(lax.iota(jnp.int32, row.size) == j, 0, self.descent - rest * (g / s)),
            jnp.where(lax.iota(jnp.int32, row.size) == j, 0, self.remaining - rest**2 / s),
        )

    def remove(self, slot: Array) -> "SwapState":
        """S without the coordinate in a slot; unchanged for an empty slot, or none. Cost: k_max d."""
        here = (lax.iota(jnp.int32, self.indices.size) == slot) & self.filled
        column, image, w = self.inverse[slot], self.images[slot], self.w[slot]
        per_m = jnp.where(jnp.any(here), 1 / column[slot], 0)
        return SwapState(
            jnp.where(here, self.descent.size, self.indices),
            jnp.where(here[:, None] | here, 0, self.inverse - jnp.outer(column * per_m, column)),
            jnp.where(here[:, None], 0, self.images - jnp.outer(column * per_m, image)),
            jnp.where(here, 0, self.w - column * per_m * w),
            self.descent + image * (w * per_m),
            self.remaining + image**2 * per_m,
        )

    def complete(self, f: Quadratic, wanted: Array, limit: Array) -> "SwapState":
        """S with the coordinates ``wanted`` (k_max,), padded with d, and then those of the largest gains, up to limit.

        Cost: that of :meth:`insert` for each.
        """

        def add(slot: Array, state: "SwapState") -> "SwapState":
            gains = state.insertion_gains(f)
            j = jnp.where(wanted[slot] < gains.size, wanted[slot], jnp.argmax(gains).astype(jnp.int32))
            # Coordinates that depend on those before leave their slot empty.
            allowed = (gains > -jnp.inf).at[j].get(mode="fill", fill_value=False)
            return state.insert(f, slot, jnp.where(allowed, j, gains.size))

        return lax.fori_loop(0, jnp.minimum(limit, self.indices.size), add, self)

    def _threshold(self, f: Quadratic) -> Array:
        return math.sqrt(float(jnp.finfo(f.b.dtype).eps)) * INDEPENDENT * f.diagonal


# Up to this d the Gram matrix is held even where it is larger than the design.
SMALL = 512
# A coordinate is independent of others where more than this times the root of machine epsilon of its curvature is left:
# 1e-5 in single precision.
INDEPENDENT = 0.03
