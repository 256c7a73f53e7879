"""Quadratics on supports that change by one coordinate at a time, and the scores of all such
changes."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxht._dataclass import integer, pytree
from jaxht._typing import Array, Numeric
from jaxht.constraints import SelectionConstraint, Sparse
from jaxht.designs import Dense
from jaxht.linalg.lapack import inverse_cholesky
from jaxht.linalg.linear_solvers import ratio
from jaxht.linalg.operators import SymmetricOperator
from jaxht.linalg.precision import matmul
from jaxht.objectives.linear_model import LeastSquares, LinearModel
from jaxht.objectives.losses import SquaredLoss, SquaredNormLoss
from jaxht.objectives.objective import Objective
from jaxht.subproblems.columns import gather_column, restrict_columns


@pytree
class Quadratic:
    """Least squares as ``f(x) = 1/2 x'H x - b'x + const`` of the flat variable, whose H is known by
    its rows.

    Attributes:
        objective: the least squares.
        b: (d,), minus the gradient at 0.
        diagonal: (d,), that of H.
        gram: (d, d), H, where that is worth it; else None, and a row costs a product with the
            design.
    """

    objective: LinearModel
    b: Array
    diagonal: Array
    gram: Array | None

    @classmethod
    def of(cls, objective: LinearModel, num_rows: int) -> "Quadratic":
        """The quadratic of a least squares objective, of whose H about ``num_rows`` rows are asked
        for.

        Matrix-valued variables are flattened, of at most SMALL entries.

        Cost: n d, and n d^2 where d <= SMALL, or d <= n on a dense design, and d <= num_rows.
        """
        zero, pred = (
            jnp.zeros(objective.shape, objective.dtype),
            jnp.zeros(objective.target_shape, objective.dtype),
        )
        H, vector = objective.hessian(zero, pred), len(objective.shape) == 1
        most = max(SMALL, objective.num_samples if isinstance(objective.design, Dense) else 0)
        if vector and zero.size > min(num_rows, most):
            return cls(objective, -objective.gradient(zero, pred), H.diagonal(), None)
        gram = H.matrix()
        return cls(objective, -objective.gradient(zero, pred).ravel(), jnp.diagonal(gram), gram)

    @classmethod
    def at(cls, objective: LinearModel, x: Array, pred: Array, num_rows: int) -> "Quadratic":
        """That with the derivatives of f at x, of a separable loss of one output: iteratively
        reweighted least squares.

        Cost: 4 n d, and n d^2 where d is at most ``num_rows`` and SMALL.
        """
        f, u = objective, objective.linear_predictor(pred)
        return cls._of_hessian(
            f,
            f.hessian(x, pred),
            f.loss.hessian_product(u, f.y, jnp.ones_like(pred)),
            x,
            pred,
            num_rows,
        )

    @classmethod
    def bound(cls, objective: LinearModel, x: Array, pred: Array, num_rows: int) -> "Quadratic":
        """The upper bound of f that touches it at x, likewise."""
        curvature = objective.curvature_bound() * jnp.ones_like(pred)
        return cls._of_hessian(objective, objective.majorant(), curvature, x, pred, num_rows)

    @classmethod
    def _of_hessian(
        cls,
        f: LinearModel,
        H: SymmetricOperator,
        curvature: Array,
        x: Array,
        pred: Array,
        num_rows: int,
    ) -> "Quadratic":
        """That of f with another Hessian, of these curvatures of the losses."""
        weights = f.weight(curvature)
        squares = LeastSquares(f.A, jnp.zeros_like(pred), f.l2, mean=False, weights=weights)
        gram = H.matrix() if x.size <= min(SMALL, num_rows) else None
        diagonal = H.diagonal() if gram is None else jnp.diagonal(gram)
        return cls(squares, H(x) - f.gradient(x, pred), diagonal, gram)

    def restrict(self, active: Array) -> "Quadratic":
        """That of the coordinates ``active`` (m,) alone, which differ. Cost: a gather of m
        columns."""
        gram = None if self.gram is None else self.gram[active][:, active]
        return Quadratic(
            restrict_columns(self.objective, active), self.b[active], self.diagonal[active], gram
        )

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


def is_quadratic(objective: Objective, constraint: SelectionConstraint) -> bool:
    """Whether the least f after a swap is known in closed form: least squares under Sparse without
    bounds."""
    if not isinstance(objective, LinearModel) or not isinstance(
        objective.loss, SquaredLoss | SquaredNormLoss
    ):
        return False
    short = len(objective.shape) == 1 or math.prod(objective.shape) <= SMALL
    return short and isinstance(constraint, Sparse) and constraint.bounds is None


def is_reweighted(objective: Any, constraint: SelectionConstraint) -> bool:
    """Whether f is a smooth separable loss of one output on gathered columns, and coordinates are
    free of bounds."""
    linear = isinstance(objective, LinearModel) and len(objective.shape) == 1
    linear = linear and objective.loss.is_separable and objective.loss.is_smooth
    free = isinstance(constraint, Sparse) and constraint.bounds is None
    return linear and free and objective.design.gathers(constraint.k_max)


def is_modelled(objective: Any, constraint: SelectionConstraint) -> bool:
    """Whether items are coordinates, and k_max rows of the Hessian and its diagonal cheap."""
    if not isinstance(constraint, Sparse):
        return False
    linear = isinstance(objective, LinearModel) and len(objective.shape) == 1
    return math.prod(objective.shape) <= SMALL or (
        linear and objective.design.gathers(constraint.k_max)
    )


def score_exchanges(
    objective: Any, constraint: SelectionConstraint, slots: Array | None, x: Array, pred: Array
) -> tuple[Array, Any, Any]:
    r"""Score the exchanges of items by a quadratic model of f at x, its minimiser on the selected
    items.

    Under Sparse that of :meth:`SwapState.at`, for linear models of one output whose columns are
    gathered, and for others of at most 512 coordinates; for the rest, and other constraints, a
    separable one,

    .. math::
        \langle \nabla f(x), z - x \rangle + \tfrac12 \sum_i D_i (z_i - x_i)^2

    with D the diagonal of the Hessian of separable losses, else of an upper bound of it, as far as
    it is known, else 1.

    Args:
        objective: prepared.
        constraint: prepared.
        slots: int32 (k_max,), the selected items, padded with their number; or None.
        x: shaped like the variable.
        pred: its prediction.

    Returns:
        By how much the model decreases for each item that joins, shaped like items; and, with
        slots, by how much it increases for each that leaves, (k_max,), and decreases for each swap,
        (k_max, number of items).
    """
    if slots is not None and is_modelled(objective, constraint):
        state = SwapState.at(objective, slots, x, pred)

        def feasible(directions: Array) -> Array:
            return constraint.feasible_direction(directions.reshape(-1, *x.shape)).reshape(
                directions.shape
            )

        return state.insertion_gains(feasible), state.removal_losses(), state.swap_gains(feasible)
    D = objective.majorant().preconditioner()
    if isinstance(objective, LinearModel) and objective.loss.is_separable:
        curvature = objective.hessian(x, pred).preconditioner()
        D = jnp.where(curvature > 0, curvature, D)  # of a hinge it is 0
    root = jnp.sqrt(D)
    descent = constraint.feasible_direction(-objective.gradient(x, pred))
    gains = constraint.scores(ratio(descent, jnp.broadcast_to(root, x.shape))) ** 2 / 2
    if slots is None:
        return gains, None, None
    losses = constraint.scores(root * x) ** 2 / 2
    losses = losses.ravel().at[slots].get(mode="fill", fill_value=0)
    return gains, losses, gains.ravel() - losses[:, None]


@pytree
class SwapState:
    """The minimiser of a quadratic on a support S, a coordinate in each slot, and the scores of
    changes of S.

    Attributes:
        indices: int32 (k_max,), the coordinate in each slot; d where a slot is empty.
        inverse: M = H_SS^-1, (k_max, k_max); 0 in empty slots, like all below.
        images: B = M H_S, (k_max, d).
        w: (k_max,), the minimiser on S.
        descent: g = b - H_S' w, (d,), minus the gradient there: 0 on S.
        remaining: s_j = H_jj - H_jS M H_Sj, (d,), the curvature along j once f is minimised over S:
            0 on S.
        diagonal: H_jj, (d,).

    Source: rank-one updates of the inverse, Sherman & Morrison 1950; Chen, Billings & Luo 1989 for
    the gains."""

    indices: Array = integer()
    inverse: Array
    images: Array
    w: Array
    descent: Array
    remaining: Array
    diagonal: Array

    @classmethod
    def empty(cls, f: Quadratic, k_max: int) -> "SwapState":
        """The state of no coordinate."""
        d, zeros = f.b.size, jnp.zeros(k_max, f.b.dtype)
        indices = jnp.full(k_max, d, jnp.int32)
        images = jnp.zeros((k_max, d), f.b.dtype)
        return cls(indices, jnp.outer(zeros, zeros), images, zeros, f.b, f.diagonal, f.diagonal)

    @classmethod
    def at(
        cls, objective: Objective, indices: Array, x: Array, pred: Array, gram: Array | None = None
    ) -> "SwapState":
        """That of the quadratic which has the derivatives of f at x, the minimiser of f on S.

        Args:
            objective: any.
            indices: int32 (k_max,), S among the d coordinates of the flat variable, padded with d.
            x: shaped like the variable.
            pred: its prediction.
            gram: (d, d), the Hessian, where it is known.

        Cost: k_max products with the Hessian, its diagonal, and k_max^2 d.
        """
        H, filled = objective.hessian(x, pred), indices < x.size
        if gram is None:
            diagonal, rows = H.diagonal().ravel(), H.rows(indices)
        else:
            diagonal, rows = jnp.diagonal(gram), gram.at[indices].get(mode="fill", fill_value=0)
        block = rows.at[:, indices].get(mode="fill", fill_value=0)
        # With a little more on the diagonal, for columns that depend on each other: H is then
        # indefinite by rounding.
        eye, both = jnp.eye(indices.size, dtype=x.dtype), filled[None] & filled[:, None]
        block = jnp.where(
            both, block * (1 + indices.size * float(jnp.finfo(x.dtype).eps) * eye), eye
        )
        half = inverse_cholesky(block)
        # Without the overlaps, where f is not convex.
        half = jnp.where(
            jnp.all(jnp.isfinite(half)), half, jnp.diag(lax.rsqrt(jnp.abs(jnp.diagonal(block))))
        )
        inverse = jnp.where(both, matmul(half.T, half), 0)
        images, outside = (
            matmul(inverse, rows),
            jnp.ones(x.size, bool).at[indices].set(False, mode="drop"),
        )
        remaining = jnp.where(
            outside, diagonal - matmul(jnp.ones_like(inverse[0]), rows * images), 0
        )
        descent = jnp.where(outside, -objective.gradient(x, pred).ravel(), 0)
        w = x.ravel().at[indices].get(mode="fill", fill_value=0)
        return cls(indices, inverse, images, w, descent, remaining, diagonal)

    def restrict(self, active: Array) -> "SwapState":
        """The state among the coordinates ``active`` (m,), which differ and contain S."""
        places = jnp.full(self.diagonal.size + 1, active.size, jnp.int32)
        places = places.at[active].set(lax.iota(jnp.int32, active.size))
        outside = self.descent[active], self.remaining[active], self.diagonal[active]
        return SwapState(
            places[self.indices], self.inverse, self.images[:, active], self.w, *outside
        )

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

    def insertion_gains(
        self, feasible: Callable[[Array], Array] = lambda direction: direction
    ) -> Array:
        r"""How much f decreases for each coordinate that joins S, ``g_j^2 / (2 s_j)``; -infinity
        where none may.

        No coordinate joins that depends on S up to rounding. ``feasible`` sets the directions to 0
        in which none may."""
        independent = ~self.selected & (self.remaining > self._threshold)
        return jnp.where(
            independent,
            feasible(self.descent) ** 2 / jnp.where(independent, 2 * self.remaining, 1),
            -jnp.inf,
        )

    def removal_losses(self) -> Array:
        r"""How much f increases for the coordinate of each slot that leaves S, ``w_i^2 / (2
        M_ii)``; 0 if empty."""
        return self.w**2 / (2 * jnp.where(self.filled, jnp.diagonal(self.inverse), 1))

    def swap_gains(self, feasible: Callable[[Array], Array] = lambda direction: direction) -> Array:
        r"""How much f decreases for the coordinate of each slot i that leaves and each j that joins
        S, (k_max, d).

        .. math::
            \frac{(g_j + B_{ij} w_i / M_{ii})^2}{2 (s_j + B_{ij}^2 / M_{ii})} - \frac{w_i^2}{2 M_{ii}}

        Cost: k_max d, without a product with the design.
        """
        m = jnp.where(self.filled, jnp.diagonal(self.inverse), 1)[:, None]
        w, B = self.w[:, None], self.images
        remaining = self.remaining[None] + B**2 / m
        allowed = (remaining > self._threshold[None]) & ~self.selected[None] & self.filled[:, None]
        gains = feasible(self.descent[None] + w / m * B) ** 2 / jnp.where(allowed, 2 * remaining, 1)
        return jnp.where(allowed, gains - self.removal_losses()[:, None], -jnp.inf)

    def insert(self, f: Quadratic, slot: Numeric, j: Array) -> "SwapState":
        """S with coordinate j in an empty slot; unchanged for j = d. Cost: k_max d, and a row of
        H."""
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
            self.diagonal,
        )

    def remove(self, slot: Numeric) -> "SwapState":
        """S without the coordinate in a slot; unchanged for an empty slot, or none. Cost: k_max
        d."""
        here = (lax.iota(jnp.int32, self.indices.size) == slot) & self.filled
        column, image, w = self.inverse[slot], self.images[slot], self.w[slot]
        per_m = jnp.where(jnp.any(here), 1 / column[slot], 0)
        return SwapState(
            jnp.where(here, self.descent.size, self.indices),
            jnp.where(
                here[:, None] | here[None], 0, self.inverse - jnp.outer(column * per_m, column)
            ),
            jnp.where(here[:, None], 0, self.images - jnp.outer(column * per_m, image)),
            jnp.where(here, 0, self.w - column * per_m * w),
            self.descent + image * (w * per_m),
            self.remaining + image**2 * per_m,
            self.diagonal,
        )

    def complete(
        self, f: Quadratic, wanted: Array, limit: Array, by_gradient: Any = False
    ) -> "SwapState":
        """S with the coordinates ``wanted`` (k_max,), padded with d, and then those of the largest
        gains, up to limit.

        Or, ``by_gradient``, those of the largest ``g_j^2 / H_jj``: orthogonal matching pursuit.

        Cost: that of :meth:`insert` for each.
        """

        def add(slot: Numeric, state: "SwapState") -> "SwapState":
            gains = state.insertion_gains()
            scores = jnp.where(
                by_gradient & (gains > -jnp.inf), ratio(state.descent**2, state.diagonal), gains
            )
            j = jnp.where(
                wanted[slot] < gains.size, wanted[slot], jnp.argmax(scores).astype(jnp.int32)
            )
            # Coordinates that depend on those before leave their slot empty.
            allowed = (gains > -jnp.inf).at[j].get(mode="fill", fill_value=False)
            return state.insert(f, slot, jnp.where(allowed, j, gains.size))

        return lax.fori_loop(0, jnp.minimum(limit, self.indices.size), add, self)

    @property
    def _threshold(self) -> Array:
        return math.sqrt(float(jnp.finfo(self.diagonal.dtype).eps)) * INDEPENDENT * self.diagonal


# Up to this d the Gram matrix is held even where it is larger than the design.
SMALL = 512
# A coordinate is independent of others where more than this times the root of machine epsilon of
# its curvature is left: 1e-5 in single precision.
INDEPENDENT = 0.03
