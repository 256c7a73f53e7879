"""Where hard thresholding selects: the scopes, and the masks of the largest entries in each."""

import abc
import dataclasses
import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._meshes import shard_like_first
from jaxht._typing import Array, ArrayTree, Numeric
from jaxht.linalg import counts
from jaxht.linalg.inner_products import common_unit, widen
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

    @property
    def selects_entries(self) -> bool:
        """True: entries one by one."""
        return True

    @property
    def group_length(self) -> int | None:
        """None: there are no groups."""
        return None

    @property
    def within_group(self) -> "Scope":
        """The scope itself."""
        return self

    def for_layer(self) -> "Scope":
        """The scope itself."""
        return self

    def part_size(self, shape: tuple[int, int]) -> int:
        """How many entries a layer has; ValueError for GLOBAL."""
        if self is Scope.GLOBAL:
            raise ValueError(f'scope must be "leaf", Axis, NM(m, 0) or Blocks; got {self}')
        return math.prod(shape)

    def find_mask(self, z: Array, k: Numeric, name: str) -> Array:
        """The mask of one array on its own."""
        (mask,) = k_largest_masks([z], count_kept(k, z.size))
        return mask


class PartScope(abc.ABC):
    """Base of the scopes that select in each part of an array, or among its parts."""

    selects_entries: ClassVar[bool] = True

    @property
    def group_length(self) -> int | None:
        """How many neighbours make a part; None where parts are no groups of neighbours."""
        return None

    @property
    def within_group(self) -> "PartScope":
        """The scope that selects alike in one group of neighbours."""
        return self

    @abc.abstractmethod
    def check(self) -> None:
        """Raise ValueError for sizes below 1."""

    def for_layer(self) -> "PartScope":
        """The scope for an array (inputs, outputs), with its axis as 0 or 1; ValueError for
        another one."""
        return self

    @abc.abstractmethod
    def part_size(self, shape: tuple[int, int]) -> int:
        """How many entries a part of a layer (inputs, outputs) has; of blocks, how many there are.
        ValueError for a shape that has no such parts."""

    @abc.abstractmethod
    def find_mask(self, z: Array, k: Numeric, name: str) -> Array:
        """The mask of one array; ValueError with its name where it has no such parts."""


class AxisScope(PartScope):
    """Base of the scopes along one axis."""

    axis: int

    def for_layer(self) -> Self:
        """The same with axis 0 or 1; ValueError for another one."""
        if not -2 <= self.axis < 2:
            raise ValueError(f"scope must be along an axis of (inputs, outputs); got {self}")
        return dataclasses.replace(self, axis=self.axis % 2)  # type: ignore[type-var]

    def find_mask(self, z: Array, k: Numeric, name: str) -> Array:
        """The mask of one array."""
        if z.size == 0:
            return jnp.zeros(z.shape, bool)
        if not -z.ndim <= self.axis < z.ndim:
            raise ValueError(
                f"{self} needs that axis; {name} has shape {z.shape}: leave it out by mask"
            )
        rows = jnp.moveaxis(z, self.axis, -1)
        length = rows.shape[-1]
        m = self.group_length or length
        if length % m:
            raise ValueError(
                f"{self} needs multiples of {m} along the axis; {name} has shape {z.shape}"
            )
        groups = rows.reshape(*rows.shape[:-1], -1, m)
        mask = k_largest_mask(groups, count_kept(k, m))
        return jnp.moveaxis(mask.reshape(rows.shape), -1, self.axis)


@dataclass(frozen=True)
class Axis(AxisScope):
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

    def check(self) -> None:
        """Any axis may be one."""

    def part_size(self, shape: tuple[int, int]) -> int:
        """The length of the axis."""
        return shape[self.axis]


@dataclass(frozen=True)
class NM(AxisScope):
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

    @property
    def group_length(self) -> int:
        """m."""
        return self.m

    @property
    def within_group(self) -> Axis:
        """Along the axis of the groups."""
        return Axis(self.axis)

    def check(self) -> None:
        """Raise ValueError for m below 1."""
        _check_positive(self, "m", self.m)

    def part_size(self, shape: tuple[int, int]) -> int:
        """m; ValueError unless it divides the inputs."""
        num_inputs, _ = shape
        if self.axis != 0:
            raise ValueError(f"scope must be along the inputs, axis 0; got {self}")
        if num_inputs % self.m:
            raise ValueError(f"{self} needs a multiple of {self.m} inputs; got {num_inputs}")
        return self.m


@dataclass(frozen=True)
class Blocks(PartScope):
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

    selects_entries = False

    def check(self) -> None:
        """Raise ValueError for lengths below 1, and for none."""
        _check_positive(self, "shape", min(self.shape, default=0))

    def tiles(self, shape: Sequence[int]) -> bool:
        """Whether an array of a shape consists of whole blocks."""
        lengths = zip(shape[::-1], self.shape[::-1], strict=False)
        is_divided = all(length % step == 0 for length, step in lengths)
        return len(shape) >= len(self.shape) and is_divided

    def part_size(self, shape: tuple[int, int]) -> int:
        """How many blocks there are; ValueError unless they tile the layer."""
        if not self.tiles(shape):
            raise ValueError(f"{self} must tile the weights; got shape {shape}")
        return math.prod(shape) // math.prod(self.shape)

    def find_mask(self, z: Array, k: Numeric, name: str) -> Array:
        """The mask of the blocks of largest norm; half precision is squared in float32."""
        if z.size == 0:
            return jnp.zeros(z.shape, bool)
        if not self.tiles(z.shape):
            raise ValueError(
                f"Blocks({tuple(self.shape)}) must tile the trailing axes; {name} has shape {z.shape}"
            )
        steps = (1,) * (z.ndim - len(self.shape)) + tuple(self.shape)
        split: list[int] = []
        for length, step in zip(z.shape, steps, strict=True):
            split += [length // step, step]
        wide = widen(z).reshape(split)
        within_blocks = tuple(range(1, 2 * z.ndim, 2))
        scale = common_unit(wide, within_blocks)
        mean = jnp.mean((wide / scale) ** 2, axis=within_blocks, keepdims=True)
        norms = scale * jnp.sqrt(mean)
        (mask,) = k_largest_masks([norms], count_kept(k, norms.size))
        return jnp.broadcast_to(mask, split).reshape(z.shape)


def _check_positive(scope: PartScope, name: str, size: int) -> None:
    if size < 1:
        raise ValueError(f"{type(scope).__name__}.{name} must be positive; got {scope}")


AnyScope = Scope | Axis | NM | Blocks | str


def check_scope(scope: AnyScope) -> Scope | PartScope:
    """The scope as an object; raises ValueError if it is none."""
    if isinstance(scope, PartScope):
        scope.check()
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
    checked_scope = check_scope(scope)
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
    if checked_scope is Scope.GLOBAL:
        if not one_k:
            raise ValueError(f"with scope 'global' k must be one number; got {k!r}")
        masks = k_largest_masks(leaves, count_kept(k, sum(leaf.size for leaf in leaves)))
    else:
        ks = [k] * len(leaves) if one_k else _list_k(k, params)
        masks = list(map(checked_scope.find_mask, leaves, ks, names))
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
    is_countable = not counts.is_wide(size)
    if integral:
        return counts.clip_count(k, size)[0] if is_countable else k
    fraction = widen(k)
    kept = jnp.floor(fraction * float(size) + 0.5)
    if not is_countable:
        return kept
    # In float32 a size above 2^24 is rounded.
    return jnp.where(fraction >= 1, size, jnp.clip(kept, 0, size).astype(jnp.int32))


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
