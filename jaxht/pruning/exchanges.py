"""Exchanges of kept and pruned weights, scored by the exact error after each, until none helps."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxht._dataclass import integer, pytree
from jaxht._loops import while_loop
from jaxht._programs import bounded_jit
from jaxht._typing import Array, Numeric
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.linalg.lanes import lane_by_lane
from jaxht.linalg.selection import mask_to_indices
from jaxht.objectives.moments import MomentLeastSquares
from jaxht.pruning.alps import ALPS, refine
from jaxht.pruning.layer import Layer
from jaxht.subproblems.quadratic_model import QuadraticModel
from jaxht.subproblems.swaps import SupportMinimum
from jaxht.transforms.scope import NM

# An exchange must decrease the error of its output by this share.
LEAST_SHARE = 1e-4
# Outputs are treated in at most so many programs, for columns of similar numbers of weights.
NUM_SIZES = 4
NUM_REFINEMENTS = 30


@pytree
class Exchanges:
    r"""Start from another method, refit, and exchange weights of each output until none helps.

    For an output with weights w on a support S, M the inverse of ``G_SS``, r the negative gradient
    and ``s_j`` the curvature left along j, the exchange of i in S for j decreases the error by

    .. math::
        \frac{(r_j + B_{ij} w_i / M_{ii})^2}{s_j + B_{ij}^2 / M_{ii}} - \frac{w_i^2}{M_{ii}},
        \qquad B = M G_S .

    The best exchange is made, among all pairs (or pairs of one N:M group), until none decreases the
    error of the output by a ten-thousandth. Then all weights are refitted. The error is at most
    that of the start, refitted.

    Args:
        start: the method that gives the first mask, a pytree.
        damping: what is added to the diagonal of G, relative to its mean, traced.
        max_moves: the most exchanges of an output, an integer, traced.

    Cost: that of the start; for each output with k of d weights ``k^2 d``, and ``k d`` for each of
    some 5 to 20 exchanges.

    Source: :class:`jaxht.extend.Subproblem` has the swaps of least squares; the start is cited
    there.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import pruning
        >>> W, G = jnp.array([[1.0], [3.0]]), jnp.array([[1.0, 0.5], [0.5, 1.0]])
        >>> pruned = pruning.prune_layer(W, G, 1, method=pruning.Exchanges(damping=0.0))
        >>> [round(float(w), 3) for w in pruned.weights.ravel()]
        [0.0, 3.5]
    """

    start: Any = ALPS(damping=1e-3)
    damping: Numeric = 1e-4
    max_moves: Numeric = integer(default=100)

    def prune(self, layer: Layer) -> tuple[Array, Array]:
        """The refitted weights, and their mask."""
        weights, mask = self.start.prune(layer)
        scaled, norms = layer.damped(self.damping).scaled()
        start = refine(scaled, mask, weights * norms, NUM_REFINEMENTS)
        changed = self._exchange(scaled, np.asarray(mask))
        found = refine(scaled, changed, jnp.where(changed, start, 0), NUM_REFINEMENTS)
        better = _errors(scaled, found) < _errors(scaled, start)
        found = jnp.where(better, found, start)
        return found / norms, jnp.where(better, changed, mask)

    def _exchange(self, layer: Layer, mask: np.ndarray) -> Array:
        """The masks after the exchanges, in batches of columns of similar numbers of weights."""
        num_inputs = mask.shape[0]
        counts = mask.sum(axis=0)
        step = -(-num_inputs // NUM_SIZES)
        sizes = -(-counts // step) * step
        products = np.asarray(matmul(layer.gram, layer.weights))
        dense = np.asarray(layer.weights)
        found = np.array(mask)
        for size in np.unique(sizes[counts > 0]):
            among = np.flatnonzero(sizes == size)
            columns = (dense.T[among], products.T[among], mask.T[among])
            k_max = min(int(size), num_inputs)
            exchanged = _exchange_outputs(
                layer.gram, *columns, self.max_moves, k_max=k_max, scope=layer.scope
            )
            found[:, among] = np.asarray(exchanged).T
        return jnp.asarray(found)


@bounded_jit
def _errors(layer: Layer, weights: Array) -> Array:
    """The error of each output."""
    change = weights - layer.weights
    return jnp.sum(change * matmul(layer.gram, change), axis=0)


@functools.partial(bounded_jit, static_argnames=("k_max", "scope"))
def _exchange_outputs(
    gram: Array,
    dense: Array,
    products: Array,
    masks: Array,
    max_moves: Numeric,
    *,
    k_max: int,
    scope: Any,
) -> Array:
    """The masks (outputs, inputs) after the exchanges of each output."""

    def exchange(dense, products, mask):
        return _exchange_output(gram, dense, products, mask, max_moves, k_max, scope)

    return jax.vmap(lane_by_lane(exchange))(dense, products, masks)


def _exchange_output(
    gram: Array,
    dense: Array,
    products: Array,
    mask: Array,
    max_moves: Numeric,
    k_max: int,
    scope: Any,
) -> Array:
    """The mask of one output after its exchanges."""
    f = MomentLeastSquares(gram, products, mean=False)
    model = QuadraticModel(f, products, jnp.diagonal(gram), gram)
    minimum = SupportMinimum.on(model, mask_to_indices(mask, k_max))
    total = jnp.vdot(dense, products) / 2
    rounding = 16 * machine_eps(total) * total

    def best(minimum):
        gains = minimum.swap_gains()
        if isinstance(scope, NM):
            group = lax.iota(jnp.int32, mask.size) // scope.m
            same = minimum.indices[:, None] // scope.m == group[None]
            gains = jnp.where(same, gains, -jnp.inf)
        place = jnp.argmax(gains).astype(jnp.int32)
        return gains.ravel()[place], place

    def move(carry):
        minimum, _, place, count = carry
        slot = place // mask.size
        minimum = minimum.remove(slot).insert(model, slot, place % mask.size)
        return minimum, *best(minimum), count + 1

    def goes_on(carry):
        minimum, gain, _, count = carry
        error = jnp.maximum(total - minimum.decrease(model), 0)
        return (gain > LEAST_SHARE * error + rounding) & (count < max_moves)

    end = while_loop(goes_on, move, (minimum, *best(minimum), jnp.zeros((), jnp.int32)))
    return end[0].selected
