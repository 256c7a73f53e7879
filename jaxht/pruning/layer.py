"""A layer to prune: its weights, the Gram matrix of its inputs, and where zeros may lie."""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._checks import check_array, known_values
from jaxht._dataclass import integer, pytree, static
from jaxht._typing import Array, Leaf, Numeric
from jaxht.linalg.full_precision import matmul
from jaxht.linalg.inner_products import binary_unit, check_real_array
from jaxht.transforms.scope import AnyScope, check_scope, count_kept, find_support

# The most that the two halves of a Gram matrix may differ, relative to its largest entry.
ASYMMETRY = 1e-3


@pytree
class Layer:
    r"""The least squares of a layer, one problem for each output, which share a Gram matrix.

    .. math::
        \min_W \| X W - X W_0 \|^2 = tr (W - W_0)' G (W - W_0), \qquad G = X'X

    Attributes:
        weights: W_0, (inputs, outputs).
        gram: G, (inputs, inputs).
        k: how many entries are kept in each part of the scope, or how many blocks, int32.
        scope: the parts: the whole array, columns, rows, groups along the inputs, or blocks, static.
    """

    weights: Array
    gram: Array
    k: Array = integer()
    scope: Any = static()

    def select(self, scores: Array) -> Array:
        """The mask of the largest scores in each part of the scope."""
        return find_support(scores, self.k, self.scope)

    def scope_error(self, method: str) -> ValueError:
        """The error of a method that does not take the scope."""
        return ValueError(f"{method} does not take the scope {self.scope}; ALPS does")

    def check_on_host(self, method: str) -> None:
        """Raise ValueError where the layer is traced."""
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(self)):
            raise ValueError(
                f"{method} computes on the host: call it outside of jit and vmap; SparseGPT, Wanda and "
                "Magnitude may be traced"
            )

    def error(self, weights: Array) -> Array:
        """``|X W - X W_0|^2``."""
        change = weights - self.weights
        return jnp.vdot(change, matmul(self.gram, change))

    def in_own_units(self) -> tuple["Layer", Array]:
        """With weights and a Gram matrix of about 1, of which no product over- or underflows, and
        the unit of the weights, a power of two."""
        unit = binary_unit(self.weights)
        gram = self.gram / binary_unit(self.gram)
        return Layer(self.weights / unit, gram, self.k, self.scope), unit

    def damped(self, share: Numeric) -> "Layer":
        """With a share of the mean of its diagonal added to the diagonal of G."""
        raised = jnp.asarray(share, self.gram.dtype) * jnp.mean(jnp.diagonal(self.gram))
        eye = jnp.eye(self.gram.shape[0], dtype=self.gram.dtype)
        return Layer(self.weights, self.gram + raised * eye, self.k, self.scope)

    def scaled(self) -> tuple["Layer", Array]:
        """With inputs of unit norm, and their norms, (inputs, 1), by which weights are
        multiplied; those of dead inputs are 1."""
        norms = jnp.sqrt(jnp.diagonal(self.gram))
        norms = jnp.where(norms > 0, norms, 1)
        gram = self.gram / norms[:, None] / norms[None]
        norms = norms[:, None]
        return Layer(self.weights * norms, gram, self.k, self.scope), norms


class Method(Protocol):
    """How a layer is pruned."""

    def prune(self, layer: Layer) -> tuple[Array, Array]:
        """The pruned weights and their mask."""
        ...


class PrunedLayer(NamedTuple):
    """A layer whose weights are sparse.

    Attributes:
        weights: (inputs, outputs), exactly 0 off the mask.
        mask: bool, shaped like the weights, True where a weight is kept.
        error: ``|X W - X W_0|^2 / |X W_0|^2``, the relative error of the outputs, a scalar.
    """

    weights: Leaf
    mask: Leaf
    error: Leaf


def make_layer(weights: Any, gram: Any, k: Any, scope: AnyScope) -> Layer:
    """Check what describes a layer.

    Raises:
        ValueError: naming the argument.
    """
    check_array("weights", weights, "an array (inputs, outputs)")
    check_array("gram", gram, "an array (inputs, inputs)")
    check_real_array("weights", weights)
    check_real_array("gram", gram)
    if not jnp.issubdtype(jnp.result_type(weights), jnp.floating):
        raise ValueError(f"weights must be floating-point numbers; got {jnp.result_type(weights)}")
    if np.ndim(weights) != 2 or 0 in weights.shape:
        raise ValueError(f"weights must have shape (inputs, outputs); got {np.shape(weights)}")
    num_inputs = weights.shape[0]
    if np.shape(gram) != (num_inputs, num_inputs):
        raise ValueError(
            f"gram must have shape {(num_inputs, num_inputs)}, that of the inputs of weights; got "
            f"{np.shape(gram)}"
        )
    layer_scope = check_scope(scope).for_layer()
    size = layer_scope.part_size(weights.shape)
    if isinstance(k, jax.core.Tracer):
        raise ValueError("k must be a number that is known when the program is traced")
    count = int(count_kept(k, size))
    dtype = jnp.result_type(gram, weights, jnp.float32)
    _check_numbers(weights, gram)
    # The number is traced: one program serves all.
    return Layer(
        weights=jnp.asarray(weights, dtype),
        gram=jnp.asarray(gram, dtype),
        k=jnp.asarray(count, jnp.int32),
        scope=layer_scope,
    )


def _check_numbers(weights: Any, gram: Any) -> None:
    for name, array in (("weights", weights), ("gram", gram)):
        known = known_values(array)
        if known is not None and not np.all(np.isfinite(known)):
            raise ValueError(f"{name} must be finite; got NaN or infinity")
    known = known_values(gram)
    if known is None:
        return
    scale = np.max(np.abs(known))
    if np.min(np.diagonal(known)) < 0 or np.max(np.abs(known - known.T)) > ASYMMETRY * scale:
        raise ValueError("gram must be X'X, symmetric with a diagonal that is not negative")
