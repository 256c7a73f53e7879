"""Orthogonal matching pursuit of least squares all at once: a plan, which the steps of a run
follow."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxht._dataclass import integer, pytree
from jaxht._loops import fori_loop
from jaxht._typing import Array
from jaxht.constraints.support import Support
from jaxht.designs import Dense
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.kernels.pursuit import pursue, takes_pursuit
from jaxht.linalg.lanes import along_one_axis, map_lanes
from jaxht.linalg.platform import by_platform
from jaxht.objectives.linear_model import LeastSquares
from jaxht.subproblems.by_products import Growth
from jaxht.subproblems.growing_qr import GrowingQR
from jaxht.subproblems.linear_models import ridge_per_sample
from jaxht.subproblems.refits import Refit, RefitStatus


@pytree
class PlannedPursuit(Growth):
    """The supports of orthogonal matching pursuit, and the minimisers on them.

    On a GPU a step of thousands of lanes costs little beside what a loop over steps moves: where
    many lanes share a design, a kernel takes all steps of a lane in registers.

    Attributes:
        order: int32 (k_max,), the coordinates in the order of their selection, those selected at
            first in front.
        coefficients: (k_max, k_max), the minimiser after each step, in this order.
        residuals: (k_max + 1, n), y - A x before the first step and after each.
    """

    order: Array = integer()
    coefficients: Array
    residuals: Array

    @classmethod
    def of(cls, objective: LeastSquares, support: Support) -> "PlannedPursuit":
        """Plan the steps from a support to one of k_max coordinates. Cost: that of k_max steps."""
        penalty = ridge_per_sample(objective, ())
        first = support.require_indices()
        A = objective.design.dense_array
        return cls(*_plan(A, objective.target, penalty, first))

    def derivative_scores(self, problem: Any, selected: Array, x: Array, pred: Array) -> Array:
        """1 for the coordinate of the largest derivative, 0 for the others. Cost: nothing."""
        number = jnp.sum(selected, dtype=jnp.int32)
        chosen = self.order[jnp.minimum(number, self.order.size - 1)]
        is_chosen = lax.iota(jnp.int32, selected.size) == chosen
        return is_chosen.astype(x.dtype)

    def refit(self, problem: Any, support: Support, x: Array) -> tuple[Refit, "PlannedPursuit"]:
        """The minimiser on the first coordinates of the plan. Cost: nothing."""
        number = jnp.sum(support.mask, dtype=jnp.int32)
        last = jnp.maximum(number - 1, 0)
        slot = lax.iota(jnp.int32, self.order.size)
        w = jnp.where(slot < number, self.coefficients[last], 0)
        x = support.scatter(w, self.order)
        pred = problem.objective.target - self.residuals[number]
        return Refit(x, pred, RefitStatus.of(True)), self


def _plan_lane(array: Array, y: Array, penalty: Array, first: Array) -> tuple[Array, Array, Array]:
    """Plan the steps of one lane by a growing QR factorisation."""
    d = array.shape[1]
    k_max = first.size
    f = LeastSquares(Dense(array), y, l2=penalty, mean=False).prepare()
    index = lax.iota(jnp.int32, d)

    def select(step, carry):
        qr, plan = carry
        derivatives = f.design.rmatvec(qr.residual)
        sizes = jnp.where(qr.mask, -1, jnp.abs(derivatives))
        given = first[step]
        largest = jnp.argmax(sizes).astype(jnp.int32)
        item = jnp.where(given < d, given, largest)
        mask = qr.mask | (index == item)
        qr = qr.add(f, Support(mask, k_max=k_max))
        found = PlannedPursuit(
            order=plan.order.at[step].set(item),
            coefficients=plan.coefficients.at[step].set(qr.w),
            residuals=plan.residuals.at[step + 1].set(qr.residual),
        )
        return qr, found

    residuals = jnp.zeros((k_max + 1, y.size), y.dtype)
    start = PlannedPursuit(
        order=jnp.full(k_max, d, jnp.int32),
        coefficients=jnp.zeros((k_max, k_max), y.dtype),
        residuals=residuals.at[0].set(y),
    )
    nothing = Support(jnp.zeros(d, bool), k_max=k_max)
    qr = GrowingQR.of(f, nothing, scored=False)
    _, plan = fori_loop(0, k_max, select, (qr, start))
    return plan.order, plan.coefficients, plan.residuals


def _plan_in_turn(arrays: Array, *others: Array) -> list[Array]:
    return list(map_lanes(_plan_lane, arrays, *others))


def _plan_by_kernel(arrays: Array, y: Array, penalty: Array, first: Array) -> list[Array]:
    rows, n, d = arrays.shape
    lanes, k = first.shape
    if not takes_pursuit(lanes, rows, k, d, arrays.dtype):
        return _plan_in_turn(arrays, y, penalty, first)
    grams = matmul(jnp.swapaxes(arrays, 1, 2), arrays)
    targets = y.reshape(rows, lanes // rows, n)
    duals = matmul(targets, arrays).reshape(lanes, d)
    return pursue(arrays, grams, y, duals, penalty, first)


def _plan_shapes(arrays: Any, y: Any, penalty: Any, first: Any) -> list[Any]:
    lanes, k = first.shape
    n = y.shape[1]
    return [
        jax.ShapeDtypeStruct((lanes, k), jnp.int32),
        jax.ShapeDtypeStruct((lanes, k, k), y.dtype),
        jax.ShapeDtypeStruct((lanes, k + 1, n), y.dtype),
    ]


_plan = along_one_axis(
    by_platform("pursue", _plan_shapes, default=_plan_in_turn, cuda=_plan_by_kernel)
)
