"""Among which entries of a pytree the largest are sought, and how many of them are kept."""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array, ArrayTree, Numeric

from jaxht.linalg.selection import k_largest_mask, k_largest_masks
from jaxht.transforms.base import is_masked


class Scope(enum.Enum):
    """Whole arrays: each array on its own, or all of them together. The strings "leaf" and "global" mean the same."""

    LEAF = "leaf"
    GLOBAL = "global"


@dataclass(frozen=True)
class Axis:
    """Each vector along one axis on its own: k inputs of every unit, say, with ``Axis(0)`` on a kernel (in, out)."""

    axis: int


@dataclass(frozen=True)
class NM:
    """Each group of m neighbours along an axis on its own: N:M sparsity, where k is N.

    ``hard_threshold(2, scope=NM(4, axis=0))`` is the 2:4 pattern of a kernel (in, out) along its inputs. The length of
    the axis must be a multiple of m.
    """

    m: int
    axis: int


@dataclass(frozen=True)
class Blocks:
    """Blocks of the trailing axes as a whole, ranked by their l2 norm; k counts blocks of each array.

    ``Blocks((4, 4))`` tiles the last two axes; ``Blocks((1, 64))`` keeps or drops pieces of rows. The lengths of the
    axes must be multiples of the block's.
    """

    shape: tuple[int, ...]


AnyScope = Scope | Axis | NM | Blocks | str


def checked(scope: AnyScope) -> Scope | Axis | NM | Blocks:
    """The scope as an object; ValueError if it is none."""
    if isinstance(scope, Axis | NM | Blocks):
        sizes = {"m": getattr(scope, "m", 1), "shape": min(getattr(scope, "shape", (1,)), default=0)}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{type(scope).__name__}.{name} must be positive; got {scope}")
        return scope
    try:
        return Scope(scope)
    except ValueError:
        known = ", ".join(repr(member.value) for member in Scope)
        raise ValueError(f"scope must be {known}, an Axis, an NM or Blocks; got {scope!r}") from None


def support(params: ArrayTree, k: Any, scope: AnyScope = Scope.LEAF) -> ArrayTree:
    """Mark the entries of largest magnitude.

    Args:
        params: pytree of real floating arrays.
        k: how many entries (blocks) to keep in each place where they are sought: an integer is their number, a
            floating-point number the fraction of those there are, rounded to the nearest count; traced or not. With
            scopes other than GLOBAL also a pytree of them, one for each array.
        scope: where they are sought, see :class:`Scope`, :class:`Axis`, :class:`NM`, :class:`Blocks`.

    Returns:
        Pytree of boolean arrays like ``params``. Ties go to the lowest index; in GLOBAL scope to the first array.

    Cost: see :func:`jaxht.selection.k_largest_mask`. In LEAF and GLOBAL scope sharded arrays are not moved.
    """
    scope = checked(scope)
    paths_and_leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    leaves = [leaf for _, leaf in paths_and_leaves]
    names = [jax.tree_util.keystr(path) or "params" for path, _ in paths_and_leaves]
    for name, leaf in zip(names, leaves, strict=True):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise ValueError(
                f"hard thresholding is of real floating arrays; {name} has dtype {jnp.result_type(leaf)}: "
                "leave it out by mask"
            )
    one_k = jax.tree_util.treedef_is_leaf(jax.tree.structure(k))
    if scope is Scope.GLOBAL:
        if not one_k:
            raise ValueError(f"with scope 'global' k must be one number; got {k!r}")
        masks = k_largest_masks(leaves, kept(k, sum(leaf.size for leaf in leaves)))
    else:
        ks = [k] * len(leaves) if one_k else _of_leaves(k, params)
        masks = [_within(leaf, k, scope, name) for leaf, k, name in zip(leaves, ks, names, strict=True)]
    return jax.tree.unflatten(structure, masks)


def kept(k: Numeric, size: int) -> Numeric:
    """The number of entries among ``size`` that ``k``, a number or a fraction, asks for: from 0 to ``size``."""
    integral = jnp.issubdtype(jnp.result_type(k), jnp.integer)
    if not (integral or jnp.issubdtype(jnp.result_type(k), jnp.floating)):
        raise ValueError(f"k must be an integer or a fraction; got {k!r}")
    if jnp.ndim(k) != 0:
        raise ValueError(f"k must be a scalar; got shape {jnp.shape(k)}: use jax.vmap for a grid of k")
    if not isinstance(k, jax.core.Tracer):
        k = np.asarray(k).item()
        if k < 0 or not (integral or k <= 1):
            raise ValueError(f"k must be an integer of at least 0, or a fraction from 0 to 1; got {k}")
        return min(k, size) if integral else math.floor(k * size + 0.5)
    if not integral:
        k = jnp.floor(k.astype(jnp.promote_types(k.dtype, jnp.float32)) * size + 0.5)
    return jnp.clip(k, 0, size).astype(jnp.int32)


def _of_leaves(k: Any, params: ArrayTree) -> list[Numeric]:
    """The k of each array of ``params``, in order; those of arrays that ``optax.masked`` has taken out are skipped."""
    ks: list[Numeric] = []

    def collect(path: Any, leaf: Any, k: Any) -> None:
        if not is_masked(leaf):
            numbers = jax.tree.leaves(k)  # also of one in a box, as Flax's variables are
            if len(numbers) != 1:
                raise ValueError(f"k must be one number for {jax.tree_util.keystr(path)}; got {k!r}")
            ks.extend(numbers)

    try:
        jax.tree_util.tree_map_with_path(collect, params, k, is_leaf=is_masked)
    except ValueError as error:
        raise ValueError(f"k must be one number or a pytree with the structure of the parameters: {error}") from error
    return ks


def _within(z: Array, k: Numeric, scope: Scope | Axis | NM | Blocks, name: str) -> Array:
    """Mask of one array."""
    if isinstance(scope, Scope):
        return k_largest_masks([z], kept(k, z.size))[0]
    if z.size == 0:
        return jnp.zeros(z.shape, bool)
    if isinstance(scope, Blocks):
        return _blocks(z, k, scope.shape, name)
    if not -z.ndim <= scope.axis < z.ndim:
        raise ValueError(f"{scope} needs that axis; {name} has shape {z.shape}: leave it out by mask")
    rows = jnp.moveaxis(z, scope.axis, -1)
    m = scope.m if isinstance(scope, NM) else rows.shape[-1]
    if rows.shape[-1] % m:
        raise ValueError(f"{scope} needs multiples of {m} along the axis; {name} has shape {z.shape}")
    mask = k_largest_mask(rows.reshape(*rows.shape[:-1], -1, m), kept(k, m))
    return jnp.moveaxis(mask.reshape(rows.shape), -1, scope.axis)


def _blocks(z: Array, k: Numeric, shape: Sequence[int], name: str) -> Array:
    """Mask of the blocks of largest norm; half precision is squared in float32."""
    if z.ndim < len(shape) or any(length % step for length, step in zip(z.shape[::-1], shape[::-1], strict=False)):
        raise ValueError(f"Blocks({tuple(shape)}) must tile the trailing axes; {name} has shape {z.shape}")
    steps = (1,) * (z.ndim - len(shape)) + tuple(shape)
    split = [part for length, step in zip(z.shape, steps, strict=True) for part in (length // step, step)]
    wide = z.astype(jnp.promote_types(z.dtype, jnp.float32)).reshape(split)
    # Relative to the largest entry the squares do not overflow; of a zero array all blocks are equal.
    largest = jnp.max(jnp.abs(wide), initial=0)
    wide = wide / jnp.where(largest > 0, largest, 1)
    norms = jnp.sum(wide * wide, axis=tuple(range(1, 2 * z.ndim, 2)), keepdims=True)
    mask = k_largest_masks([norms], kept(k, norms.size))[0]
    return jnp.broadcast_to(mask, split).reshape(z.shape)
