"""How sparse parameters are: a report for training loops."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxht._typing import ArrayTree, Leaf
from jaxht.linalg.selection import count_nonzero
from jaxht.transforms.base import Mask, is_function


class Sparsity(NamedTuple):
    """Fractions of entries that are exactly zero.

    Attributes:
        total: float32 scalar, of all arrays together.
        leaves: pytree like the parameters, of each array.
        nonzeros: pytree like the parameters, the number of entries of each array that are not zero:
            int32, but float32 of 2^31 entries or more.
    """

    total: Leaf
    leaves: ArrayTree
    nonzeros: ArrayTree


def sparsity(params: ArrayTree, *, mask: Mask | None = None) -> Sparsity:
    """The sparsity of each array and of all together.

    Args:
        params: pytree of arrays; of an Equinox module, ``eqx.filter(module, eqx.is_array)``.
        mask: as in :func:`jaxht.transforms.hard_threshold`: arrays marked False are left out of the
            report.

    Returns:
        A :class:`Sparsity`; an array without entries has sparsity 0. NaN counts as nonzero.

    Cost: one pass over the parameters, without copies.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import transforms
        >>> report = transforms.sparsity({"w": jnp.array([0.0, 1.0, 0.0, 2.0]), "b": jnp.zeros(4)})
        >>> float(report.total), float(report.leaves["w"]), int(report.nonzeros["w"])
        (0.75, 0.5, 2)
    """
    if mask is not None:
        flags = mask(params) if is_function(mask) else mask
        params = jax.tree.map(lambda flag, part: part if flag else None, flags, params)
    nonzeros = jax.tree.map(count_nonzero, params)
    sizes = [p.size for p in jax.tree.leaves(params)]
    # Zeros are counted as such: 1 - nonzeros / size would lose digits of a density of 1e-6.
    counts = jax.tree.leaves(nonzeros)
    zeros = [
        (jnp.asarray(size, n.dtype) - n).astype(jnp.float32)
        for size, n in zip(sizes, counts, strict=True)
    ]
    leaves = [zero / float(max(size, 1)) for zero, size in zip(zeros, sizes, strict=True)]
    total = sum(zeros, jnp.zeros((), jnp.float32)) / float(max(sum(sizes), 1))
    return Sparsity(total, jax.tree.unflatten(jax.tree.structure(nonzeros), leaves), nonzeros)
