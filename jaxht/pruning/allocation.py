"""How many weights each layer of a model keeps, by what its weights are worth."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_kind
from jaxht._programs import bounded_jit
from jaxht._snapshot import Snapshot
from jaxht._typing import Array, ArrayTree
from jaxht.linalg.inner_products import widen
from jaxht.pruning.inputs import (
    from_matrix,
    gram_matrices,
    layer_axes,
    list_batches,
    parameter_names,
    to_matrix,
)
from jaxht.pruning.layer import Method
from jaxht.pruning.prune import prune_layer
from jaxht.pruning.scores import Wanda
from jaxht.transforms.scope import count_kept

ALLOCATION_LOSSES = ("layers", "outputs")


def budgets(
    apply: Callable[..., Any],
    params: ArrayTree,
    batches: Iterable[Any],
    k: float,
    *,
    loss: str = "layers",
    fractions: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    method: Method = Wanda(),
) -> dict[str, int]:
    r"""Divide the weights that a model may keep among its dense layers, by marginal losses.

    .. math::
        \min_{k_1, \dots, k_L} \; \sum_l E_l(k_l) \quad \text{with} \quad \sum_l k_l = k

    E_l is measured where the layer keeps each of the fractions, and is 0 where it keeps all; the
    largest convex function below these values takes its place. A weight more is given where the
    loss decreases most, until none is left. No layer keeps less than the least fraction.

    Args:
        apply: as of :func:`jaxht.pruning.capture`, with an array as its result.
        params: pytree of arrays.
        batches: as of :func:`jaxht.pruning.gram_matrices`.
        k: the fraction of the weights of all dense layers that is kept.
        loss: "layers", the relative error of the layer's outputs, or "outputs", that of the model's
            outputs where only this layer is pruned: its sensitivity.
        fractions: increasing, between 0 and 1.
        method: which prunes the layers, one at a time, to measure E.

    Returns:
        How many weights each layer keeps, by its name: the ``k`` of
        :func:`jaxht.pruning.prune_model` in the scope "leaf". They sum up to k, or where that is less
        to the least fractions, rounded.

    Raises:
        ValueError: for another loss, fractions that do not increase, a k that is not between the
            first of them and 1, and outputs that are not finite, where these are compared.

    Cost: that of the method, for each layer and fraction; for "outputs" a pass over the data for
    each as well.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jaxht import pruning
        >>> params = {"a": jnp.eye(4), "b": 1.0 + jnp.arange(16.0).reshape(4, 4)}
        >>> x = jax.random.normal(jax.random.key(0), (50, 4))
        >>> apply = lambda params, x: x @ params["a"] @ params["b"]
        >>> pruning.budgets(apply, params, [x], 0.5, fractions=(0.25, 0.5, 0.75))  # a has four
        {"['a']": 4, "['b']": 12}
    """
    fractions = [float(fraction) for fraction in fractions]
    _check(k, loss, fractions)
    apply = Snapshot.take(apply)
    batches = list_batches(batches)
    check_kind(method=method)
    axes = layer_axes(apply, params, batches[0])
    grams = gram_matrices(apply, params, batches)
    names = parameter_names(params)
    leaves, structure = jax.tree.flatten(params)
    dense = [_run(apply, params, batch) for batch in batches] if loss == "outputs" else []
    unit = _unit_of_outputs(dense)
    size = sum(float(jnp.sum((before / unit) ** 2)) for before in dense) or 1.0

    def change_of_outputs(i: int, weights: Array) -> float:
        changed = jax.tree.unflatten(structure, [*leaves[:i], weights, *leaves[i + 1 :]])
        errors = [
            float(jnp.sum(((_run(apply, changed, batch) - before) / unit) ** 2))
            for batch, before in zip(batches, dense, strict=True)
        ]
        return sum(errors) / size

    curves = {}
    for name, along in axes.items():
        i = names.index(name)
        weights = to_matrix(leaves[i], along)
        losses = []
        for fraction in fractions:
            pruned = prune_layer(weights, grams[name], fraction, method=method)
            found = from_matrix(pruned.weights, leaves[i].shape, along)
            is_of_layer = loss == "layers"
            losses.append(float(pruned.error) if is_of_layer else change_of_outputs(i, found))
        sizes = np.array([count_kept(fraction, weights.size) for fraction in [*fractions, 1.0]])
        # Of few weights several fractions keep as many.
        differs = np.diff(sizes, append=np.inf) > 0
        curves[name] = _largest_convex(sizes[differs], np.array([*losses, 0.0])[differs])
    total = sum(leaves[names.index(name)].size for name in axes)
    return _divide(curves, int(count_kept(float(k), total)))


@functools.partial(bounded_jit, static_argnums=0)
def _run(apply: Callable[..., Any], params: ArrayTree, args: tuple[Any, ...]) -> Array:
    # Sums of squares of halves would overflow.
    return widen(jnp.asarray(apply(params, *args)))


def _unit_of_outputs(outputs: list[Array]) -> float:
    """The largest magnitude of the outputs, in which no square over- or underflows; 1 for zeros."""
    if not all(bool(jnp.all(jnp.isfinite(each))) for each in outputs):
        raise ValueError("apply must return finite numbers; got NaN or infinity")
    largest = [float(jnp.max(jnp.abs(each), initial=0)) for each in outputs]
    return max(largest, default=0.0) or 1.0


def _check(k: Any, loss: str, fractions: Sequence[float]) -> None:
    if loss not in ALLOCATION_LOSSES:
        raise ValueError(f"loss must be one of {ALLOCATION_LOSSES}; got {loss!r}")
    ends = np.array([0.0, *fractions, 1.0])
    if not fractions or np.any(np.diff(ends) <= 0):
        raise ValueError(f"fractions must increase between 0 and 1; got {tuple(fractions)}")
    if not fractions[0] <= k <= 1:
        raise ValueError(
            f"k must be between {fractions[0]}, the least of fractions, and 1; got {k}"
        )


def _largest_convex(sizes: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The corners of the largest convex function below the losses, that does not increase."""
    losses = np.minimum.accumulate(losses)
    corners = [0]
    for i in range(1, len(sizes)):
        while len(corners) > 1:
            before, last = corners[-2:]
            slope = (losses[last] - losses[before]) / (sizes[last] - sizes[before])
            if (losses[i] - losses[last]) / (sizes[i] - sizes[last]) > slope:
                break
            corners.pop()
        corners.append(i)
    return sizes[corners], losses[corners]


def _divide(curves: dict[str, tuple[np.ndarray, np.ndarray]], total: int) -> dict[str, int]:
    """Give what is left of the total to the pieces of steepest descent."""
    counts = {name: int(sizes[0]) for name, (sizes, _) in curves.items()}
    left = max(0, total - sum(counts.values()))
    pieces = []
    for name, (sizes, losses) in curves.items():
        slopes = np.diff(losses) / np.diff(sizes)
        pieces += [(slope, j, name) for j, slope in enumerate(slopes)]
    for _, j, name in sorted(pieces):
        sizes = curves[name][0]
        given = min(int(sizes[j + 1] - sizes[j]), left)
        counts[name] += given
        left -= given
    return counts
