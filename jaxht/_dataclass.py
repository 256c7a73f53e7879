"""Frozen dataclasses as pytrees: which fields are traced, which are static, and how numbers are
cast."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._repr import repr_fields
from jaxht._typing import ArrayDType

__all__ = [
    "HOST_NUMBERS",
    "PYTREES",
    "as_dtype",
    "at_least",
    "cast_numbers",
    "integer",
    "mixed",
    "pytree",
    "replace",
    "static",
    "traced_fields",
]

T = TypeVar("T")

#: All classes that :func:`pytree` has made.
PYTREES: list[type] = []


def static(default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """Declare a field that determines shapes or branches: it is part of the compile key, and never
    traced.

    Args:
        default: the field's default; by default it has none.
        options: further options of :func:`dataclasses.field`, such as ``kw_only``.

    Returns:
        A field for a class decorated with :func:`pytree`.

    Example:
        >>> import jax
        >>> from jaxht.extend import pytree, static
        >>> @pytree
        ... class Power:
        ...     scale: float
        ...     exponent: int = static(default=2)
        >>> jax.tree.leaves(Power(3.0))
        [3.0]
    """
    return dataclasses.field(default=default, metadata={"static": True}, **options)


def integer(default: Any = dataclasses.MISSING, *, least: int = 0, **options: Any) -> Any:
    """Declare a traced field whose numbers are cast to int32 instead of the objective's dtype.

    Args:
        default, **options: as of :func:`static`.
        least: what :func:`jaxht.solve` refuses smaller numbers than.

    Returns:
        A field for a class decorated with :func:`pytree`.

    Example:
        >>> from jaxht.extend import integer
        >>> dict(integer(default=10).metadata)
        {'integer': True}
    """
    metadata = {"integer": True, "least": least} if least else {"integer": True}
    return dataclasses.field(default=default, metadata=metadata, **options)


def at_least(least: float, default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """Declare a traced field whose numbers :func:`jaxht.solve` refuses below ``least``; others are
    refused below 0.

    Args:
        least: a number.
        default, **options: as of :func:`static`.

    Returns:
        A field for a class decorated with :func:`pytree`.

    Example:
        >>> from jaxht.extend import at_least
        >>> dict(at_least(1.0, default=1.1).metadata)
        {'least': 1.0}
    """
    return dataclasses.field(default=default, metadata={"least": least}, **options)


def mixed(default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """Declare a traced field of a user's own arguments: only floats are cast to the objective's
    dtype.

    Args:
        default, **options: as of :func:`static`.

    Returns:
        A field for a class decorated with :func:`pytree`.

    Example:
        >>> from jaxht.extend import mixed
        >>> dict(mixed(default=()).metadata)
        {'mixed': True}
    """
    return dataclasses.field(default=default, metadata={"mixed": True}, **options)


@dataclass_transform(
    frozen_default=True,
    field_specifiers=(dataclasses.field, static, integer, at_least, mixed),
)
def pytree(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass registered with JAX; every field not declared :func:`static`
    is traced.

    Equality is identity, as the fields hold arrays. Constructors should check nothing, because JAX
    also rebuilds these objects with tracers, batched arrays and axis numbers in their fields.

    Args:
        cls: a class with annotated fields, written like a dataclass.

    Returns:
        The class.

    Example:
        >>> import jax
        >>> from jaxht.extend import pytree
        >>> @pytree
        ... class Interval:
        ...     lower: float
        ...     upper: float = 1.0
        >>> jax.tree.map(lambda bound: 2 * bound, Interval(0.5)).upper
        2.0
    """
    cls = dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
    if cls.__repr__ is object.__repr__:
        cls.__repr__ = repr_fields  # type: ignore[method-assign, assignment]
    traced: list[str] = []
    fixed: list[str] = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        (fixed if "static" in field.metadata else traced).append(field.name)
    keys = [jax.tree_util.GetAttrKey(name) for name in traced]

    def flatten(node):
        children = [getattr(node, name) for name in traced]
        return tuple(children), tuple([getattr(node, name) for name in fixed])

    def flatten_with_keys(node):
        children, settings = flatten(node)
        return tuple(zip(keys, children, strict=True)), settings

    def unflatten(settings, children):
        node = object.__new__(cls)
        node.__dict__.update(zip(traced, children, strict=True))
        node.__dict__.update(zip(fixed, settings, strict=True))
        return node

    # Not register_dataclass: in JAX 0.10 the structures of two such classes with the same fields
    # compare equal. Their hashes differ, so jit's caches mostly distinguish them; but sometimes the
    # program of one solver runs for another.
    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    PYTREES.append(cls)
    return cls


def replace(node: T, **changes: Any) -> T:
    """A copy of a pytree dataclass with other values in some fields, without a call of its
    constructor.

    An eager call copies some ten times, and ``dataclasses.replace`` takes several times as long.
    """
    new = object.__new__(type(node))
    new.__dict__.update(node.__dict__, **changes)
    return new


class TracedField(NamedTuple):
    """The name of a traced field, whether its numbers are integers or of any kind, and the least
    that they may be."""

    name: str
    integer: bool
    mixed: bool
    least: float


@functools.cache
def traced_fields(cls: Any) -> list[TracedField]:
    """The traced fields of a class."""
    found = []
    for field in dataclasses.fields(cls):
        kind = field.metadata
        if "static" not in kind:
            least = kind.get("least", 0)
            found.append(TracedField(field.name, "integer" in kind, "mixed" in kind, least))
    return found


# Tuples, as a union of types is made anew wherever it is written.
HOST_NUMBERS = (int, float, np.number, np.ndarray)
_NUMBERS = (*HOST_NUMBERS, jax.Array)


def cast_numbers(
    node: T, dtype: ArrayDType, convert: Callable[[Any, ArrayDType], Any] | None = None
) -> T:
    """Cast every numeric leaf of ``node`` to ``dtype`` (int32 where declared), so that equal calls
    share one compile.

    Python, NumPy and JAX numbers become strongly typed arrays; booleans and ``None`` are unchanged.
    The fields of nested pytree dataclasses are cast by their own declarations. ``convert(leaf,
    dtype)`` is the cast of one leaf, by default :func:`as_dtype`.
    """
    convert = convert or as_dtype

    def convert_float(leaf):
        is_float = jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
        return convert(leaf, dtype) if is_float else leaf

    changes = {}
    for field in traced_fields(type(node)):  # type: ignore[arg-type]
        value = getattr(node, field.name)
        target = jnp.int32 if field.integer else dtype
        if value is None:
            continue
        if isinstance(value, _NUMBERS) and not field.mixed:
            cast = convert(value, target)
        elif dataclasses.is_dataclass(value):
            cast = cast_numbers(value, dtype, convert)
        elif field.mixed:
            cast = jax.tree.map(convert_float, value)
        else:
            cast = jax.tree.map(lambda leaf, target=target: convert(leaf, target), value)
        if cast is not value:
            changes[field.name] = cast
    return replace(node, **changes) if changes else node


def as_dtype(leaf: Any, dtype: ArrayDType) -> Any:
    """``leaf`` as a strongly typed array of ``dtype``; booleans keep their dtype, and complex
    numbers stay complex, in the precision of a real ``dtype``. Host numbers stay on the host."""
    if isinstance(leaf, jax.Array):
        if leaf.dtype == dtype and not leaf.weak_type:
            return leaf
        # dtype may be NumPy's float64, which is float32 in JAX.
        dtype = jax.dtypes.canonicalize_dtype(_complex_like(leaf, dtype))
        is_kept = leaf.dtype in (dtype, jnp.bool_) and not leaf.weak_type
        return leaf if is_kept else leaf.astype(dtype)
    smallest, largest = -(2**31), 2**31 - 1  # a larger limit must not wrap around
    if type(leaf) is int and dtype == jnp.int32:
        return np.asarray(min(max(leaf, smallest), largest), np.int32)
    leaf = np.asarray(leaf)
    if dtype == jnp.int32 and leaf.dtype.kind in "iu":
        leaf = np.clip(leaf, smallest, largest)
    return leaf if leaf.dtype == np.bool_ else leaf.astype(_complex_like(leaf, dtype))


def _complex_like(leaf: Any, dtype: ArrayDType) -> ArrayDType:
    """``dtype``, or the complex one of its precision where the leaf is complex and it is real."""
    if leaf.dtype.kind != "c" or np.dtype(dtype).kind != "f":
        return dtype
    return np.result_type(dtype, np.complex64)
