"""Frozen dataclasses as pytrees: which fields are traced numbers, which are static, and how a call casts them."""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from chex import ArrayDType

T = TypeVar("T")
_INTEGER, _MIXED = "integer", "mixed"


def static(default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """Declare a field that chooses shapes or branches: part of the compile key, never traced."""
    return dataclasses.field(default=default, metadata={"static": True}, **options)


def integer(default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """Declare a field whose numbers are cast to int32 instead of the objective's dtype."""
    return dataclasses.field(default=default, metadata={_INTEGER: True}, **options)


def mixed(default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """Declare a field of a user's own arguments: floats are cast to the objective's dtype, all else stays."""
    return dataclasses.field(default=default, metadata={_MIXED: True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static, integer, mixed))
def pytree(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen dataclass registered with JAX; every field not declared :func:`static` is traced.

    Equality is identity: the fields hold arrays. Constructors check nothing, because JAX also rebuilds these objects
    with tracers, batched arrays and axis numbers in their fields.
    """
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    fixed = tuple(field.name for field in fields if field.metadata.get("static", False))
    traced = tuple(field.name for field in fields if not field.metadata.get("static", False))
    keys = tuple(jax.tree_util.GetAttrKey(name) for name in traced)

    def flatten(node: T) -> tuple[tuple, tuple]:
        return tuple([getattr(node, name) for name in traced]), tuple([getattr(node, name) for name in fixed])

    def flatten_with_keys(node: T) -> tuple[tuple, tuple]:
        children, settings = flatten(node)
        return tuple(zip(keys, children, strict=True)), settings

    def unflatten(settings: tuple, children: Any) -> T:
        node = object.__new__(cls)
        for name, value in zip(traced + fixed, (*children, *settings), strict=True):
            object.__setattr__(node, name, value)
        return node

    # Not register_dataclass: in JAX 0.10 structures of two such classes with like fields compare equal. Their hashes
    # differ, so jit's caches mostly tell them apart; but now and then the program of one solver runs for another.
    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def cast_numbers(node: T, dtype: ArrayDType, convert: Callable[[Any, ArrayDType], Any] | None = None) -> T:
    """Cast every numeric leaf of ``node`` to ``dtype`` (int32 where declared), so that equal calls share one compile.

    Python, NumPy and JAX numbers become strongly typed arrays; booleans and ``None`` stay what they are. Nested
    pytree dataclasses are followed, and each decides by its own declarations.
    """
    convert = convert or as_dtype
    changes = {}
    for field in dataclasses.fields(node):  # type: ignore[arg-type]
        value = getattr(node, field.name)
        if field.metadata.get("static", False) or value is None:
            continue
        if dataclasses.is_dataclass(value):
            changes[field.name] = cast_numbers(value, dtype, convert)
        else:
            target = jnp.int32 if field.metadata.get(_INTEGER, False) else dtype
            untouched = field.metadata.get(_MIXED, False)

            def cast(leaf: Any, target: ArrayDType = target, untouched: bool = untouched) -> Any:
                return (
                    leaf
                    if untouched and not jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
                    else convert(leaf, target)
                )

            changes[field.name] = jax.tree.map(cast, value)
    return dataclasses.replace(node, **changes)  # type: ignore[type-var]


def check_scalars(
    node: Any,
    signed: tuple[str, ...] = (),
    but: tuple[str, ...] = (),
    shaped: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> None:
    """:func:`check_scalar` on the fields of ``node``.

    Args:
        node: a pytree dataclass.
        signed: fields that may be negative.
        but: fields that are not looked at.
        shaped: fields that may have this shape instead of being scalars.
    """
    for field in dataclasses.fields(node):
        value, fixed = getattr(node, field.name), field.metadata.get("static", False)
        if fixed or value is None or field.name in but:
            continue
        name, integral = f"{type(node).__name__}.{field.name}", field.metadata.get(_INTEGER, False)
        check_scalar(name, value, signed=field.name in signed, integral=integral, shape=shaped.get(field.name, ()))


def check_scalar(
    name: str, value: Any, *, signed: bool = False, integral: bool = False, shape: tuple[int, ...] = ()
) -> None:
    """Raise ValueError unless ``value`` is a scalar (or of ``shape``) and, on the host, of the kind asked."""
    if np.shape(value) not in ((), shape):
        allowed = f"a scalar or of shape {shape}" if shape else "a scalar"
        raise ValueError(f"{name} must be {allowed}; got shape {np.shape(value)}: use jax.vmap")
    if isinstance(value, int | float | np.number | np.ndarray):
        if integral and np.asarray(value).dtype.kind == "f":
            raise ValueError(f"{name} must be an integer; got {value}")
        if not (signed or np.all(np.asarray(value) >= 0)):
            raise ValueError(f"{name} must be at least 0; got {np.min(np.asarray(value))}")


def as_dtype(leaf: Any, dtype: ArrayDType) -> Any:
    """``leaf`` as a strongly typed array of ``dtype``; booleans keep theirs. Host numbers stay on the host."""
    if isinstance(leaf, jax.Array):
        dtype = jax.dtypes.canonicalize_dtype(dtype)  # NumPy's float64, beside which it stands, is float32 in JAX
        return leaf if leaf.dtype in (dtype, jnp.bool_) and not leaf.weak_type else leaf.astype(dtype)
    leaf = np.asarray(leaf)
    if dtype == jnp.int32 and leaf.dtype.kind in "iu":
        leaf = np.clip(leaf, -(2**31), 2**31 - 1)  # a larger limit is none: it must not wrap
    return leaf if leaf.dtype == np.bool_ else leaf.astype(dtype)
