"""Pruning by a score of each weight: its magnitude, or with the norm of its input."""

import jax.numpy as jnp

from jaxht._dataclass import pytree
from jaxht._typing import Array
from jaxht.pruning.layer import Layer


@pytree
class Magnitude:
    r"""Keep the weights of largest magnitude, as they are.

    Cost: a selection.

    Source: Han, Pool, Tran & Dally 2015.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import pruning
        >>> W, G = jnp.array([[1.0], [3.0], [2.0]]), jnp.diag(jnp.array([9.0, 1.0, 1.0]))
        >>> pruning.prune_layer(W, G, 1, method=pruning.Magnitude()).weights.ravel().tolist()
        [0.0, 3.0, 0.0]
    """

    def prune(self, layer: Layer) -> tuple[Array, Array]:
        """The weights of the mask."""
        mask = layer.select(layer.weights)
        return jnp.where(mask, layer.weights, 0), mask


@pytree
class Wanda:
    r"""Keep the weights of the largest ``|W_ij| |X_i|``, as they are.

    .. math::
        s_{ij} = |W_{ij}| \, \|X_i\|_2 = |W_{ij}| \sqrt{G_{ii}}

    The source compares the weights of one output with each other: ``scope=Axis(0)``.

    Cost: a selection.

    Source: Sun, Liu, Bair & Kolter 2024, (1).

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import pruning
        >>> W, G = jnp.array([[1.5], [3.0], [2.0]]), jnp.diag(jnp.array([9.0, 1.0, 1.0]))
        >>> pruning.prune_layer(W, G, 1, method=pruning.Wanda()).weights.ravel().tolist()
        [1.5, 0.0, 0.0]
    """

    def prune(self, layer: Layer) -> tuple[Array, Array]:
        """The weights of the mask."""
        norms = jnp.sqrt(jnp.diagonal(layer.gram))
        mask = layer.select(jnp.abs(layer.weights) * norms[:, None])
        return jnp.where(mask, layer.weights, 0), mask
