"""Pruning of one layer."""

import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_kind, check_scalars, known_values
from jaxht._typing import Array, Numeric
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.normal_equations import ratio
from jaxht.pruning.alps import ALPS
from jaxht.pruning.layer import Method, PrunedLayer, make_layer
from jaxht.transforms.scope import AnyScope, Scope


def prune_layer(
    weights: Array,
    gram: Array,
    k: Numeric,
    *,
    scope: AnyScope = Scope.LEAF,
    method: Method = ALPS(),
) -> PrunedLayer:
    r"""Make the weights of a dense layer sparse, such that its outputs change little.

    .. math::
        \min_W \; \| X W - X W_0 \|^2 \quad \text{with at most k weights that are not 0}

    X holds the inputs of the layer for some data, one sample a row, of which only ``G = X'X`` is
    needed: :class:`jaxht.Moments` adds it up.

    Args:
        weights: W_0, (inputs, outputs).
        gram: G, (inputs, inputs).
        k: how many weights are kept, as in :func:`jaxht.transforms.hard_threshold`: an integer is
            their number, a floating-point number the fraction; known when the program is traced.
        scope: among which weights: "leaf", all of the layer; ``Axis(0)``, those of each output;
            ``Axis(1)``, those of each input; ``NM(m, 0)``, those of each m inputs of an output: 2:4
            is ``k=2, scope=NM(4, 0)``; ``Blocks(shape)``, whole blocks, of which k are kept. The
            last one is not for SparseGPT, and ``Axis(1)`` and ``Blocks`` are not for Exchanges.
        method: :class:`ALPS`, :class:`Exchanges`, :class:`SparseGPT`, :class:`Wanda` or
            :class:`Magnitude`. The first two compute on the host, outside of jit and vmap.

    Returns:
        :class:`PrunedLayer`: weights, their mask, and the relative error of the outputs.

    Raises:
        ValueError: for shapes, numbers and scopes that are not valid.

    Cost: that of the method.

    Source: the problem is (1) of Frantar & Alistarh 2023.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import pruning, transforms
        >>> X, W = jax.random.normal(jax.random.key(0), (50, 8)), jnp.ones((8, 3))
        >>> pruned = pruning.prune_layer(W, X.T @ X, 2, scope=transforms.NM(4, 0))
        >>> pruned.mask.reshape(2, 4, 3).sum(axis=1).tolist()
        [[2, 2, 2], [2, 2, 2]]
    """
    check_kind(method=method)
    layer, unit = make_layer(weights, gram, k, scope).in_own_units()
    check_scalars(method)
    found, mask = method.prune(layer)
    found = jnp.where(mask, found * unit, 0).astype(jnp.result_type(weights))
    known = known_values(found)
    if known is not None and not np.all(np.isfinite(known)):
        raise ValueError(
            f"gram must be X'X, positive semidefinite; {method!r} gives weights that are not finite: "
            "raise its damping"
        )
    size = jnp.vdot(layer.weights, matmul(layer.gram, layer.weights))
    # A Gram matrix whose entries are rounded may be indefinite.
    error = layer.error(found.astype(unit.dtype) / unit)
    return PrunedLayer(found, mask, ratio(jnp.maximum(error, 0), size))
