"""SparseGPT: inputs are pruned one after the other, and those after them make up for the error."""

import jax.numpy as jnp
from jax import lax

from jaxht._dataclass import pytree, static
from jaxht._loops import cond, fori_loop
from jaxht._programs import bounded_jit
from jaxht._typing import Array, Numeric
from jaxht.linalg.full_precision import machine_eps, matmul
from jaxht.linalg.lapack import inverse_cholesky
from jaxht.linalg.normal_equations import ratio
from jaxht.pruning.layer import Layer
from jaxht.transforms.scope import Axis, find_support

# On the diagonal of a singular Gram matrix, in ulps of its largest entry for each input.
JITTER_ULPS = 4.0


@pytree
class SparseGPT:
    r"""Prune inputs one after the other, in blocks; the weights of later inputs make up for errors.

    With U the upper Cholesky factor of the inverse Hessian, ``H^-1 = U'U``, the weights of the
    smallest ``w_ij^2 / U_ii^2`` of a block become 0, and for each input i of it

    .. math::
        e_j = (w_{ij} - \hat w_{ij}) / U_{ii}, \qquad w_{lj} \leftarrow w_{lj} - U_{il} e_j, \quad
        l > i.

    Each block keeps the share that the scope asks for: of all of its entries, of those of each
    output or of each input, or of each N:M group, whose scores are taken where the group begins.

    Args:
        damping: what is added to the diagonal of H, relative to its mean, traced.
        block_size: inputs of a block, static.

    Cost: for d inputs and c outputs ``d^2 c + d^3``.

    Source: Frantar & Alistarh 2023, Algorithm 1; the constants are those of the source, but for
    inputs that are always 0, whose diagonal entry is the mean of the others, not 1: the result does
    not depend on the unit of the inputs.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import pruning
        >>> W, G = jnp.array([[1.0], [3.0]]), jnp.array([[1.0, 0.5], [0.5, 1.0]])
        >>> pruned = pruning.prune_layer(W, G, 1, method=pruning.SparseGPT(damping=0.0))
        >>> pruned.weights.ravel().tolist()
        [0.0, 3.5]
    """

    damping: Numeric = 0.01
    block_size: int = static(default=128)

    @bounded_jit
    def prune(self, layer: Layer) -> tuple[Array, Array]:
        """The weights after all blocks, and the mask of what they keep."""
        if not layer.scope.selects_entries:
            raise layer.scope_error("SparseGPT")
        gram = layer.gram
        diagonal = jnp.diagonal(gram)
        is_dead = diagonal == 0
        mean = ratio(jnp.sum(diagonal), jnp.sum(~is_dead, dtype=gram.dtype))
        gram = gram + jnp.diag(jnp.where(is_dead, jnp.where(mean > 0, mean, 1), 0))
        weights = jnp.where(is_dead[:, None], 0, layer.weights)
        damped = Layer(weights, gram, layer.k, layer.scope).damped(self.damping)
        upper = _upper_factor_of_inverse(damped.gram)
        num_inputs = weights.shape[0]
        masks = []
        for first in range(0, num_inputs, self.block_size):
            last = min(first + self.block_size, num_inputs)
            block, errors, mask = _prune_block(
                weights[first:last], upper[first:last, first:last], layer, first
            )
            carried = matmul(upper[first:last, last:].T, errors)
            weights = jnp.concatenate([weights[:first], block, weights[last:] - carried])
            masks.append(mask)
        mask = jnp.concatenate(masks)
        return jnp.where(mask, weights, 0), mask


def _upper_factor_of_inverse(gram: Array) -> Array:
    """U with ``gram^-1 = U'U``, upper triangular; of a singular Gram matrix with a jitter on its
    diagonal."""
    # With both orders reversed, gram = R R' has an upper R, and U is its inverse.
    reverse = gram[::-1, ::-1]

    def jittered() -> Array:
        size = len(gram)
        jitter = JITTER_ULPS * size * machine_eps(gram) * jnp.max(jnp.diagonal(gram))
        return inverse_cholesky(reverse + jitter * jnp.eye(size, dtype=gram.dtype))

    root = inverse_cholesky(reverse)
    root = cond(jnp.all(jnp.isfinite(root)), lambda: root, jittered)
    return root[::-1, ::-1]


def _prune_block(
    weights: Array, upper: Array, layer: Layer, first: int
) -> tuple[Array, Array, Array]:
    """Prune the inputs of a block; the errors that the later ones make up for, and the mask."""
    size = len(weights)
    index = lax.iota(jnp.int32, size)
    diagonal = jnp.diagonal(upper)
    group = layer.scope.group_length or size
    if size % group:
        raise ValueError(f"block_size must be a multiple of {group}, the length of a group")
    scope = layer.scope.within_group
    count = _kept_in_block(layer, first, size)

    def prune_input(i, carry):
        weights, errors, mask = carry
        is_kept = mask[i]
        error = jnp.where(is_kept, 0, weights[i]) / diagonal[i]
        is_later = index > i
        changed = weights - jnp.where(is_later, upper[i], 0)[:, None] * error
        changed = jnp.where((index == i)[:, None], jnp.where(is_kept, weights[i], 0), changed)
        return changed, errors.at[i].set(error), mask

    carry = (weights, jnp.zeros_like(weights), jnp.zeros(weights.shape, bool))

    def prune_group(j, carry):
        weights, errors, mask = carry
        scores = jnp.abs(lax.dynamic_slice_in_dim(weights, j * group, group))
        scores = scores / lax.dynamic_slice_in_dim(diagonal, j * group, group)[:, None]
        kept = find_support(scores, count, scope)
        mask = lax.dynamic_update_slice_in_dim(mask, kept, j * group, 0)
        return fori_loop(j * group, (j + 1) * group, prune_input, (weights, errors, mask))

    return fori_loop(0, size // group, prune_group, carry)


def _kept_in_block(layer: Layer, first: int, size: int) -> Array:
    """How many entries the inputs from ``first`` on keep, such that all blocks together keep k."""
    if layer.scope.group_length or layer.scope == Axis(1):
        return layer.k
    num_inputs = layer.weights.shape[0]
    each = layer.k // num_inputs
    rest = layer.k % num_inputs  # apart, so that no product overflows

    def kept_before(i):
        return each * i + rest * i // num_inputs

    return kept_before(first + size) - kept_before(first)
