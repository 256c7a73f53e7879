"""Where hard thresholding selects: the scopes, and the masks of the largest entries in each."""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._meshes import shard_like_first
from jaxht._typing import Array, ArrayTree, Numeric
from jaxht.linalg.selection import k_largest_mask, k_largest_masks
from jaxht.transforms.base import is_masked


class Scope(enum.Enum):
    """Select among whole arrays: LEAF ("leaf"), each on its own, or GLOBAL ("global"), all of them
    together.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import transforms
        >>> params = [jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])]
        >>> [p.tolist() for p in transforms.prune(params, 1, scope="leaf")]
        [[0.0, 2.0], [0.0, 4.0]]
        >>> [p.tolist() for p in transforms.prune(params, 1, scope="global")]
        [[0.0, 0.0], [0.0, 4.0]]
    """

    LEAF = "leaf"
    GLOBAL = "global"


@dataclass(frozen=True)
class Axis:
    """Select in each vector along one axis: with ``Axis(0)`` on a kernel (in, out), k inputs of
    every unit.

    Args:
        axis: an integer, static; negative ones count from the end.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import transforms
        >>> transforms.prune(jnp.array([[1.0, 4.0], [3.0, 2.0]]), 1, scope=transforms.Axis(0)).tolist()
        [[0.0, 4.0], [3.0, 0.0]]
    """

    axis: int


@dataclass(frozen=True)
class NM:
    """Select in each group of m neighbours along an axis: N:M sparsity, where k is N.

    ``hard_threshold(2, scope=NM(4, axis=0))`` is the 2:4 pattern of a kernel (in, out) along its
    inputs.

    Args:
        m: length of a group, static; the length of the axis must be a multiple of it.
        axis: an integer, static; negative ones count from the end.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import transforms
        >>> transforms.prune(jnp.array([1.0, 2.0, 4.0, 3.0]), 1, scope=transforms.NM(2, axis=0)).tolist()
        [0.0, 2.0, 4.0, 0.0]
    """

    m: int
    axis: int


@dataclass(frozen=True)
class Blocks:
    """Select whole blocks of the trailing axes by their l2 norm; k counts the blocks of each array.

    ``Blocks((4, 4))`` tiles the last two axes; ``Blocks((1, 64))`` keeps or drops pieces of rows.

    Args:
        shape: of a block, static; the lengths of the trailing axes must be multiples of it.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxht import transforms
        >>> transforms.prune(jnp.array([1.0, 1.0, 5.0, 0.5]), 1, scope=transforms.Blocks((2,))).tolist()
        [0.0, 0.0, 5.0, 0.5]
    """

    shape: tuple[int, ...]


AnyScope = Scope | Axis | NM | Blocks | str


def check_scope(scope: AnyScope) -> Scope | Axis | NM | Blocks:
    """The scope as an object; raises ValueError if it is none."""
    if isinstance(scope, Axis | NM | Blocks):
        sizes = {
            "m": getattr(scope, "m", 1),
            "shape": min(getattr(scope, "shape", (1,)), default=0),
        }
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{type(scope).__name__}.{name} must be positive; got {scope}")
        return scope
    try:
        return Scope(scope)
    except ValueError:
        known = ", ".join(repr(member.value) for member in Scope)
        raise ValueError(
            f"scope must be {known}, an Axis, an NM or Blocks; got {scope!r}"
        ) from None


@shard_like_first
def find_support(params: ArrayTree, k: Any, scope: AnyScope = Scope.LEAF) -> ArrayTree:
    """Mark the entries of largest magnitude.

    Args:
        params: pytree of real floating arrays.
        k: how many entries (blocks) to select in each array, vector or group of the scope: an
            integer is their number, a floating-point number the fraction, rounded to the nearest
            count; traced or not. With scopes other than GLOBAL also a pytree of them, one for each
            array.
        scope: see :class:`Scope`, :class:`Axis`, :class:`NM`, :class:`Blocks`.

    Returns:
        Pytree of boolean arrays like ``params``. Ties go to the lowest index; in GLOBAL scope to
        the first array.

    Cost: see :func:`jaxht.selection.k_largest_mask`. In LEAF and GLOBAL scope sharded arrays are
    not moved.
    """
    scope = check_scope(scope)
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
        masks = k_largest_masks(leaves, count_kept(k, sum(leaf.size for leaf in leaves)))
    else:
        ks = [k] * len(leaves) if one_k else _list_k(k, params)
        masks = [
            _find_in_array(leaf, k, scope, name)
            for leaf, k, name in zip(leaves, ks, names, strict=True)
        ]
    return jax.tree.unflatten(structure, masks)


def count_kept(k: Numeric, size: int) -> Numeric:
    """The number of entries among ``size`` that ``k``, a number or a fraction, asks for: from 0 to
    ``size``.

    A traced one, among more entries than an int32 counts, is what k asks for, and left to the
    selection to clip: of a fraction a floating-point number.
    """
    if isinstance(k, str):
        raise ValueError(f"k must be an integer or a fraction; got {k!r}")
    integral = jnp.issubdtype(jnp.result_type(k), jnp.integer)
    if not (integral or jnp.issubdtype(jnp.result_type(k), jnp.floating)):
        raise ValueError(f"k must be an integer or a fraction; got {k!r}")
    if jnp.ndim(k) != 0:
        raise ValueError(
            f"k must be a scalar; got shape {jnp.shape(k)}: use jax.vmap for a grid of k"
        )
    if not isinstance(k, jax.core.Tracer):
        k = np.asarray(k).item()
        if k < 0 or not (integral or k <= 1):
            raise ValueError(
                f"k must be an integer of at least 0, or a fraction from 0 to 1; got {k}"
            )
        return min(k, size) if integral else math.floor(k * size + 0.5)
    if not integral:
        k = jnp.floor(k.astype(jnp.promote_types(k.dtype, jnp.float32)) * float(size) + 0.5)
    return jnp.clip(k, 0, size).astype(jnp.int32) if size <= jnp.iinfo(jnp.int32).max else k


def _list_k(k: Any, params: ArrayTree) -> list[Numeric]:
    """The k of each array of ``params``, in order, without those of arrays that ``optax.masked``
    has removed."""
    ks: list[Numeric] = []

    def collect(path: Any, leaf: Any, k: Any) -> None:
        if not is_masked(leaf):
            numbers = jax.tree.leaves(k)  # also of one in a box, as Flax's variables are
            if len(numbers) != 1:
                raise ValueError(
                    f"k must be one number for {jax.tree_util.keystr(path)}; got {k!r}"
                )
            ks.extend(numbers)

    try:
        jax.tree_util.tree_map_with_path(collect, params, k, is_leaf=is_masked)
    except ValueError as error:
        raise ValueError(
            f"k must be one number or a pytree with the structure of the parameters: {error}"
        ) from error
    return ks


def _find_in_array(z: Array, k: Numeric, scope: Scope | Axis | NM | Blocks, name: str) -> Array:
    """The mask of one array."""
    if isinstance(scope, Scope):
        return k_largest_masks([z], count_kept(k, z.size))[0]
    if z.size == 0:
        return jnp.zeros(z.shape, bool)
    if isinstance(scope, Blocks):
        return _find_blocks(z, k, scope.shape, name)
    if not -z.ndim <= scope.axis < z.ndim:
        raise ValueError(
            f"{scope} needs that axis; {name} has shape {z.shape}: leave it out by mask"
        )
    rows = jnp.moveaxis(z, scope.axis, -1)
    m = scope.m if isinstance(scope, NM) else rows.shape[-1]
    if rows.shape[-1] % m:
        raise ValueError(
            f"{scope} needs multiples of {m} along the axis; {name} has shape {z.shape}"
        )
    mask = k_largest_mask(rows.reshape(*rows.shape[:-1], -1, m), count_kept(k, m))
    return jnp.moveaxis(mask.reshape(rows.shape), -1, scope.axis)


def _find_blocks(z: Array, k: Numeric, shape: Sequence[int], name: str) -> Array:
    """The mask of the blocks of largest norm; half precision is squared in float32."""
    if z.ndim < len(shape) or any(
        length % step for length, step in zip(z.shape[::-1], shape[::-1], strict=False)
    ):
        raise ValueError(
            f"Blocks({tuple(shape)}) must tile the trailing axes; {name} has shape {z.shape}"
        )
    steps = (1,) * (z.ndim - len(shape)) + tuple(shape)
    split = [
        part for length, step in zip(z.shape, steps, strict=True) for part in (length // step, step)
    ]
    wide = z.astype(jnp.promote_types(z.dtype, jnp.float32)).reshape(split)
    # Relative to the largest entry the squares do not overflow; of a zero array all blocks are
    # equal.
    largest = jnp.max(jnp.abs(wide), initial=0)
    wide = wide / jnp.where(largest > 0, largest, 1)
    norms = jnp.sum(wide * wide, axis=tuple(range(1, 2 * z.ndim, 2)), keepdims=True)
    mask = k_largest_masks([norms], count_kept(k, norms.size))[0]
    return jnp.broadcast_to(mask, split).reshape(z.shape)
