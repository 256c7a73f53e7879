"""Pruning of all layers of a model, one after the other."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_kind
from jaxht._typing import Array, ArrayTree, Numeric
from jaxht.pruning.alps import ALPS
from jaxht.pruning.inputs import (
    from_matrix,
    gram_matrices,
    gram_matrix,
    layer_axes,
    list_batches,
    parameter_names,
    to_matrix,
)
from jaxht.pruning.layer import Method
from jaxht.pruning.prune import prune_layer
from jaxht.transforms.scope import AnyScope, Scope


class LayerReport(NamedTuple):
    """How a layer was pruned.

    Attributes:
        name: of the parameter.
        shape: (inputs, outputs); inputs of a convolution are those of a patch, the places of a
            feature side by side.
        kept: the share of the weights that are kept.
        error: the relative error of the outputs, as of :class:`PrunedLayer`.
    """

    name: str
    shape: tuple[int, int]
    kept: float
    error: float


class PrunedModel(NamedTuple):
    """A model of which layers were pruned.

    Attributes:
        params: pytree of the parameters, weights off the masks exactly 0.
        masks: pytree of bool like the parameters, True where an entry may differ from 0.
        layers: a :class:`LayerReport` for each layer that was pruned, in their order.
    """

    params: ArrayTree
    masks: ArrayTree
    layers: list[LayerReport]


def prune_model(
    apply: Callable[..., Any],
    params: ArrayTree,
    batches: Iterable[Any],
    k: Numeric | Mapping[str, Numeric],
    *,
    scope: AnyScope = Scope.LEAF,
    method: Method = ALPS(),
    is_sequential: bool = True,
    start: PrunedModel | None = None,
    report: Callable[[PrunedModel], None] | None = None,
) -> PrunedModel:
    """Prune the layers of a trained model, such that the outputs of each change little.

    Layers are dense ones and convolutions. They are pruned in the order of their products, each for the inputs that it has in the model
    whose earlier layers are pruned already. The zeros stay in further training by
    ``hard_threshold(k, freeze_at=0)`` of :mod:`jaxht.transforms`, started from the result.

    Args:
        apply: a function of the parameters and a batch, as of :func:`jaxht.pruning.capture`.
        params: pytree of arrays.
        batches: calibration data, as of :func:`jaxht.pruning.gram_matrices`.
        k: of each layer, as of :func:`jaxht.pruning.prune_layer`; or a mapping from names of
            parameters to it, which says which layers are pruned.
        scope: as of :func:`jaxht.pruning.prune_layer`.
        method: as there.
        is_sequential: whether each layer's inputs are computed anew with the pruned layers before
            it; else all are those of the dense model, and the data are read once.
        start: a result that ``report`` was called with in a run that was interrupted; the layers
            that it has are not pruned again.
        report: called with the result so far, once a layer is pruned: the last of its layers. To
            resume, save it, and give it as ``start``.

    Returns:
        :class:`PrunedModel`: parameters, masks, and the errors by layer.

    Raises:
        ValueError: for a name that is no layer, a start of another model, and for what a layer
            cannot be pruned with.

    Cost: that of the method for each layer, and a pass over the data for each, or one.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import pruning
        >>> params = {"hidden": jnp.ones((3, 4)), "out": jnp.ones((4, 2))}
        >>> apply = lambda params, x: jax.nn.relu(x @ params["hidden"]) @ params["out"]
        >>> x = jax.random.normal(jax.random.key(0), (50, 3))
        >>> pruned = pruning.prune_model(apply, params, [x], {"['out']": 0.5})
        >>> int(jnp.sum(pruned.params["out"] != 0)), pruned.layers[0].name
        (4, "['out']")
    """
    check_kind(method=method)
    batches = list_batches(batches)
    axes = layer_axes(apply, params, batches[0])
    wanted = k if isinstance(k, Mapping) else dict.fromkeys(axes, k)
    unknown = set(wanted) - set(axes)
    if unknown:
        raise ValueError(
            f"k names {sorted(unknown)}, which are no weights of dense layers: {list(axes)} are"
        )
    if start is None:
        masks = jax.tree.map(lambda leaf: jnp.ones(jnp.shape(leaf), bool), params)
        start = PrunedModel(params, masks, [])
    _check_start(start, params)
    structure = jax.tree.structure(params)
    names = parameter_names(params)
    leaves = jax.tree.leaves(start.params)
    masks = jax.tree.leaves(start.masks)
    layers = list(start.layers)
    done = {layer.name for layer in layers}
    grams = None if is_sequential else gram_matrices(apply, params, batches)
    for name in axes:
        if name not in wanted or name in done:
            continue
        current = jax.tree.unflatten(structure, leaves)
        gram = gram_matrix(apply, current, batches, name) if grams is None else grams[name]
        i = names.index(name)
        weights = to_matrix(leaves[i], axes[name])
        pruned = prune_layer(weights, gram, wanted[name], scope=scope, method=method)
        shape = leaves[i].shape
        leaves[i] = from_matrix(pruned.weights, shape, axes[name])
        masks[i] = from_matrix(pruned.mask, shape, axes[name])
        kept = float(np.mean(pruned.mask))
        layers.append(LayerReport(name, weights.shape, kept, float(pruned.error)))
        if report is not None:
            report(_result(structure, leaves, masks, layers))
    return _result(structure, leaves, masks, layers)


def _result(
    structure: Any, leaves: list[Array], masks: list[Array], layers: list[LayerReport]
) -> PrunedModel:
    params = jax.tree.unflatten(structure, leaves)
    return PrunedModel(params, jax.tree.unflatten(structure, masks), list(layers))


def _check_start(start: PrunedModel, params: ArrayTree) -> None:
    shapes = [jax.tree.map(jnp.shape, tree) for tree in (params, start.params, start.masks)]
    for name, found in zip(("params", "masks"), shapes[1:], strict=True):
        if found != shapes[0]:
            raise ValueError(f"start.{name} must be like params, {shapes[0]}; got {found}")
