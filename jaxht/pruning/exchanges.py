"""Exchanges of kept and pruned weights, scored by the exact error after each, until none helps."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._dataclass import integer, pytree, static
from jaxht._programs import bounded_jit
from jaxht._typing import Array, Numeric
from jaxht.linalg.lanes import lane_by_lane
from jaxht.linalg.lapack import inverse_cholesky
from jaxht.pruning.alps import ALPS, refine
from jaxht.pruning.layer import Layer
from jaxht.pruning.one_output import Exchanged, exchange_output
from jaxht.transforms.scope import Axis, Scope

# Outputs are treated in at most so many programs, for columns of similar numbers of weights.
NUM_SIZES = 4
OUTPUTS_AT_A_TIME = 64
REFINEMENTS_OF_RESULT = 30
# A weight moves to another output where it gains this much more than it costs.
MOVED_GAIN = 1.001


@pytree
class Exchanges:
    r"""Start from another method, refit, and exchange weights of each output until none helps.

    For an output with weights w on a support S, M the inverse of ``G_SS``, r half of the negative
    gradient and ``s_j`` the curvature left along j, the exchange of i in S for j decreases the
    error by

    .. math::
        \frac{(r_j + B_{ij} w_i / M_{ii})^2}{s_j + B_{ij}^2 / M_{ii}} - \frac{w_i^2}{M_{ii}},
        \qquad B = M G_S .

    The best exchange is made, among all pairs with the ``num_candidates`` most promising weights
    (of one N:M group each), until none decreases the error of the output by a ten-thousandth. Where
    the scope is the whole layer, outputs also hand weights on: one whose cheapest weight costs less
    than the best further weight of another gains, by ``w_i^2 / M_ii`` and ``r_j^2 / s_j``. Then all
    weights are refitted. The error is at most that of the start, refitted.

    Args:
        start: the method that gives the first mask, a pytree.
        damping: what is added to the diagonal of G, relative to its mean, traced. With less of it
            errors on the calibration data are lower, on other data higher where these are few.
        max_moves: the most exchanges of an output, an integer, traced.
        num_candidates: an int, static.
        num_rounds: how often outputs may hand on a weight, an int, static.

    Cost: that of the start; for each output with k of d weights ``k^3``, and ``k^2`` for each of
    some 5 to 20 exchanges.

    Source: the gains are those of one-step changes of least squares, as in Chen, Billings & Luo
    1989; the start is cited there.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import pruning
        >>> W, G = jnp.array([[1.0], [3.0]]), jnp.array([[1.0, 0.5], [0.5, 1.0]])
        >>> pruned = pruning.prune_layer(W, G, 1, method=pruning.Exchanges(damping=0.0))
        >>> [round(float(w), 3) for w in pruned.weights.ravel()]
        [0.0, 3.5]
    """

    start: Any = ALPS()
    damping: Numeric = 0.01
    max_moves: Numeric = integer(default=100)
    num_candidates: int = static(default=64)
    num_rounds: int = static(default=10)

    def prune(self, layer: Layer) -> tuple[Array, Array]:
        """The refitted weights, and their mask."""
        if not layer.scope.selects_entries or layer.scope == Axis(1):
            raise layer.scope_error("Exchanges")
        layer.check_on_host("Exchanges")
        weights, mask = self.start.prune(layer)
        scaled, norms = layer.damped(self.damping).scaled()
        start = refine(scaled, mask, weights * norms, REFINEMENTS_OF_RESULT)
        changed = jnp.asarray(self._exchange(scaled, np.asarray(mask)))
        found = refine(scaled, changed, jnp.where(changed, start, 0), REFINEMENTS_OF_RESULT)
        is_better = scaled.error(found) < scaled.error(start)
        found = jnp.where(is_better, found, start)
        return found / norms, jnp.where(is_better, changed, mask)

    def _exchange(self, layer: Layer, mask: np.ndarray) -> np.ndarray:
        """The mask after the exchanges."""
        mask = np.array(mask)
        curvatures = _least_curvatures(layer.gram)
        outputs = np.arange(mask.shape[1])
        num_rounds = self.num_rounds if layer.scope is Scope.LEAF else 0
        last: dict[str, np.ndarray] = {}
        for turn in range(num_rounds + 1):
            found = self._exchange_some(layer, curvatures, mask, outputs)
            mask[:, outputs] = found.mask.T
            if not last:
                last = {name: np.array(getattr(found, name)) for name in found._fields[1:]}
            for name, values in last.items():
                values[outputs] = getattr(found, name)
            outputs = _hand_on(mask, last) if turn < num_rounds else outputs[:0]
            if not outputs.size:
                break
        return mask

    def _exchange_some(
        self, layer: Layer, curvatures: Array, mask: np.ndarray, outputs: np.ndarray
    ) -> Exchanged:
        """Exchange within some outputs, in batches of similar numbers of weights."""
        num_inputs = mask.shape[0]
        step = -(-num_inputs // NUM_SIZES)
        sizes = np.maximum(1, -(-mask[:, outputs].sum(axis=0) // step)) * step
        dense = np.asarray(layer.weights).T
        found: list[Any] = [None] * len(outputs)
        for size in np.unique(sizes):
            among = np.flatnonzero(sizes == size)
            for first in range(0, len(among), OUTPUTS_AT_A_TIME):
                batch = among[first : first + OUTPUTS_AT_A_TIME]
                # The last one again, so that all batches share a program.
                lanes = np.pad(batch, (0, OUTPUTS_AT_A_TIME - len(batch)), mode="edge")
                columns = outputs[lanes]
                exchanged = _exchange_outputs(
                    layer.gram,
                    curvatures,
                    dense[columns],
                    mask.T[columns],
                    self.max_moves,
                    k_max=min(int(size), num_inputs),
                    num_candidates=min(self.num_candidates, num_inputs),
                    scope=layer.scope,
                )
                exchanged = jax.tree.map(np.asarray, exchanged)
                for lane, i in enumerate(batch):
                    found[i] = jax.tree.map(lambda leaf, lane=lane: leaf[lane], exchanged)
        return jax.tree.map(lambda *leaves: np.stack(leaves), *found)


@functools.partial(bounded_jit, static_argnames=("k_max", "num_candidates", "scope"))
def _exchange_outputs(
    gram: Array,
    curvatures: Array,
    dense: Array,
    masks: Array,
    max_moves: Numeric,
    *,
    k_max: int,
    num_candidates: int,
    scope: Any,
) -> Exchanged:
    """The exchanges of several outputs, whose weights and masks are rows."""

    def exchange(dense, mask):
        return exchange_output(
            gram, curvatures, dense, mask, max_moves, k_max, num_candidates, scope
        )

    return jax.vmap(lane_by_lane(exchange))(dense, masks)


@bounded_jit
def _least_curvatures(gram: Array) -> Array:
    """What is left of the curvature of each input beside all others, ``1 / (G^-1)_jj``; that of a
    dead input is 1."""
    size = gram.shape[0]
    eye = jnp.eye(size, dtype=gram.dtype)
    is_dead = jnp.diagonal(gram) == 0
    half = inverse_cholesky(gram + (1e-6 + is_dead) * eye)
    return 1 / jnp.sum(half**2, axis=0)


def _hand_on(mask: np.ndarray, last: dict[str, np.ndarray]) -> np.ndarray:
    """Move weights of little cost to outputs where they gain more; the outputs that have
    changed."""
    counts = mask.sum(axis=0)
    givers = np.argsort(np.where(counts > 1, last["loss"], np.inf))
    takers = np.argsort(-last["gain"])
    changed: set[int] = set()
    position = 0
    for giver in givers:
        while position < len(takers) and takers[position] in changed:
            position += 1
        if giver in changed:
            continue
        if position == len(takers) or takers[position] == giver:
            break
        taker = takers[position]
        if not last["gain"][taker] > MOVED_GAIN * last["loss"][giver]:
            break
        mask[last["leaves"][giver], giver] = False
        mask[last["joins"][taker], taker] = True
        changed |= {int(giver), int(taker)}
    return np.array(sorted(changed), int)
