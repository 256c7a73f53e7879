"""Frozen dataclasses as pytrees: which fields are traced, which are static, and to which dtype numbers are cast.

And the types of arrays and numbers in annotations: those of chex, imported for type checkers alone, as it takes 0.1 s.
What stands for them at run time holds there: tests/test_environment.py runs the library under beartype. ``Leaf`` is an
array in a field of a NamedTuple, whose constructor JAX also calls with shapes and axis numbers.
"""

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from chex import Array as Array
    from chex import ArrayDType as ArrayDType
    from chex import ArrayTree as ArrayTree
    from chex import Numeric as Numeric
    from chex import PRNGKey as PRNGKey

    Leaf = Array
else:
    Array = jax.Array | np.ndarray | np.bool_ | np.number
    Leaf = Any
    ArrayDType = jax.typing.DTypeLike
    ArrayTree = Any
    Numeric = Array | float | int
    PRNGKey = jax.Array | np.ndarray

T = TypeVar("T")
_INTEGER, _MIXED, _SIGNED = "integer", "mixed", "signed"


def static(default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """Declare a field that determines shapes or branches: it is part of the compile key, and never traced.

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


def integer(default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """Declare a traced field whose numbers are cast to int32 instead of the objective's dtype.

    Args:
        default: the field's default; by default it has none.
        options: further options of :func:`dataclasses.field`, such as ``kw_only``.

    Returns:
        A field for a class decorated with :func:`pytree`.

    Example:
        >>> import jax
        >>> from jaxht.extend import integer, pytree
        >>> @pytree
        ... class Restart:
        ...     period: int = integer(default=10)
        >>> jax.tree.leaves(Restart())
        [10]
    """
    return dataclasses.field(default=default, metadata={_INTEGER: True}, **options)


def mixed(default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """Declare a traced field of a user's own arguments: only floats are cast to the objective's dtype.

    Args:
        default: the field's default; by default it has none.
        options: further options of :func:`dataclasses.field`, such as ``kw_only``.

    Returns:
        A field for a class decorated with :func:`pytree`.

    Example:
        >>> import jax, numpy as np
        >>> from jaxht.extend import mixed, pytree
        >>> @pytree
        ... class Data:
        ...     args: tuple = mixed(default=())
        >>> len(jax.tree.leaves(Data((np.ones(3), np.arange(3)))))
        2
    """
    return dataclasses.field(default=default, metadata={_MIXED: True}, **options)


def signed(default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """Declare a traced field of a solver that may be negative; :func:`jaxht.solve` refuses numbers below 0 in others.

    Args:
        default: the field's default; by default it has none.
        options: further options of :func:`dataclasses.field`, such as ``kw_only``.

    Returns:
        A field for a class decorated with :func:`pytree`.

    Example:
        >>> import jax
        >>> from jaxht.extend import pytree, signed
        >>> @pytree
        ... class Shift:
        ...     offset: float = signed(default=-1.0)
        >>> jax.tree.leaves(Shift())
        [-1.0]
    """
    return dataclasses.field(default=default, metadata={_SIGNED: True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static, integer, mixed, signed))
def pytree(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass registered with JAX; every field not declared :func:`static` is traced.

    Equality is identity, as the fields hold arrays. Constructors should check nothing, because JAX also rebuilds these
    objects with tracers, batched arrays and axis numbers in their fields.

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
        cls.__repr__ = _repr_fields  # type: ignore[method-assign, assignment]
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    fixed = tuple(field.name for field in fields if field.metadata.get("static", False))
    traced = tuple(field.name for field in fields if not field.metadata.get("static", False))
    names = traced + fixed
    keys = tuple(jax.tree_util.GetAttrKey(name) for name in traced)

    def flatten(node: T) -> tuple[tuple, tuple]:
        return tuple([getattr(node, name) for name in traced]), tuple([getattr(node, name) for name in fixed])

    def flatten_with_keys(node: T) -> tuple[tuple, tuple]:
        children, settings = flatten(node)
        return tuple(zip(keys, children, strict=True)), settings

    def unflatten(settings: tuple, children: Any) -> T:
        node = object.__new__(cls)
        node.__dict__.update(zip(names, (*children, *settings), strict=True))
        return node

    # Not register_dataclass: in JAX 0.10 the structures of two such classes with the same fields compare equal. Their
    # hashes differ, so jit's caches mostly distinguish them; but sometimes the program of one solver runs for another.
    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def cast_numbers(node: T, dtype: ArrayDType, convert: Callable[[Any, ArrayDType], Any] | None = None) -> T:
    """Cast every numeric leaf of ``node`` to ``dtype`` (int32 where declared), so that equal calls share one compile.

    Python, NumPy and JAX numbers become strongly typed arrays; booleans and ``None`` are unchanged. The fields of
    nested pytree dataclasses are cast by their own declarations.

    Args:
        node: a pytree dataclass.
        dtype: float32 or float64.
        convert: the cast of one leaf to a dtype; None: :func:`as_dtype`.
    """
    convert = convert or as_dtype
    changes = {}
    for name, integral, floats_only, _ in _traced_fields(type(node)):  # type: ignore[arg-type]
        value, target = getattr(node, name), jnp.int32 if integral else dtype
        if value is None:
            continue
        if isinstance(value, _NUMBERS) and not floats_only:
            cast = convert(value, target)
        elif dataclasses.is_dataclass(value):
            cast = cast_numbers(value, dtype, convert)
        elif floats_only:
            cast = jax.tree.map(functools.partial(_cast_float, convert, target), value)
        else:
            cast = jax.tree.map(lambda leaf, target=target: convert(leaf, target), value)
        if cast is not value:
            changes[name] = cast
    return replace(node, **changes) if changes else node


def replace(node: T, **changes: Any) -> T:
    """A copy of a pytree dataclass with other values in some fields, without a call of its constructor.

    An eager call copies some ten times, and ``dataclasses.replace`` takes several times as long.
    """
    new = object.__new__(type(node))
    new.__dict__.update(node.__dict__, **changes)
    return new


@functools.cache
def _traced_fields(cls: Any) -> list[tuple[str, bool, bool, bool]]:
    """The traced fields of a class: names, which are integers, of which only floats are cast, which may be negative."""
    fields = [field for field in dataclasses.fields(cls) if not field.metadata.get("static", False)]
    kinds = (_INTEGER, _MIXED, _SIGNED)
    return [(field.name, *(field.metadata.get(kind, False) for kind in kinds)) for field in fields]


# Tuples, as a union of types is made anew wherever it is written.
_HOST_NUMBERS = (int, float, np.number, np.ndarray)
_NUMBERS = (*_HOST_NUMBERS, jax.Array)


def _cast_float(convert: Callable[[Any, ArrayDType], Any], dtype: ArrayDType, leaf: Any) -> Any:
    return convert(leaf, dtype) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else leaf


def check_scalars(
    node: Any,
    but: tuple[str, ...] = (),
    shaped: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> None:
    """Apply :func:`check_scalar` to the fields of ``node``.

    Args:
        node: a pytree dataclass.
        but: names of fields that are not checked.
        shaped: fields that may have this shape instead of being scalars.

    Raises:
        ValueError: naming the first field that is not valid.
    """
    for name, integral, _, may_be_negative in _traced_fields(type(node)):  # type: ignore[arg-type]
        value = getattr(node, name)
        if value is None or name in but:
            continue
        called, shape = f"{type(node).__name__}.{name}", shaped.get(name, ())
        check_scalar(called, value, signed=may_be_negative, integral=integral, shape=shape)


def check_scalar(
    name: str, value: Any, *, signed: bool = False, integral: bool = False, shape: tuple[int, ...] = ()
) -> None:
    """Raise ValueError unless ``value`` is a scalar or of ``shape``, and valid where it is known."""
    if type(value) is int or (type(value) is float and not integral):  # the common case, which takes no array
        if not (signed or value >= 0):
            raise ValueError(f"{name} must be at least 0; got {value}")
        return
    if isinstance(value, (str, bytes, list, tuple)) or hasattr(value, "to_numpy"):
        hint = f": pass {name}.to_numpy()" if hasattr(value, "to_numpy") else ""
        raise ValueError(f"{name} must be a number{' or an array' * bool(shape)}; got {describe(value)}{hint}")
    if np.shape(value) not in ((), shape):
        allowed = f"a scalar or of shape {shape}" if shape else "a scalar"
        raise ValueError(f"{name} must be {allowed}; got shape {np.shape(value)}: use jax.vmap")
    if isinstance(value, _HOST_NUMBERS):
        if integral and np.asarray(value).dtype.kind == "f":
            raise ValueError(f"{name} must be an integer; got {value}")
        if not (signed or np.all(np.asarray(value) >= 0)):
            raise ValueError(f"{name} must be at least 0; got {np.min(np.asarray(value))}")


def check_array(name: str, value: Any, expected: str = "an array") -> None:
    """Raise ValueError unless ``value`` is an array of NumPy or JAX: lists and data frames are not converted."""
    if not isinstance(value, np.ndarray | np.generic | jax.Array | jax.ShapeDtypeStruct):
        raise no_array(name, value, expected)


def no_array(name: str, value: Any, expected: str) -> ValueError:
    """The ValueError for a ``value`` that is not an array, with the call that makes it one."""
    hint = ""
    if hasattr(value, "to_numpy"):  # of pandas and its like
        hint = f": pass {name}.to_numpy()"
    elif isinstance(value, list | tuple):
        hint = f": pass np.asarray({name})"
    return ValueError(f"{name} must be {expected}; got {describe(value)}{hint}")


def warn_of_rounding(data: Any) -> None:
    """Warn, once in a process, where a pytree has float64 arrays of NumPy and JAX, without 64 bits, rounds them."""
    leaves = jax.tree.leaves(data)
    found = any(isinstance(leaf, np.ndarray) and leaf.ndim and leaf.dtype == np.float64 for leaf in leaves)
    if found and jnp.result_type(float) != np.float64:
        _warn_of_rounding()


@functools.cache
def _warn_of_rounding() -> None:
    warnings.warn(
        "float64 data are rounded to float32, since JAX's 64 bits are off; to turn them on, before JAX makes an array: "
        'jax.config.update("jax_enable_x64", True); else pass float32',
        stacklevel=4,
    )


def known_values(array: Any) -> np.ndarray | None:
    """The values of an array on the host; None where they are not known before the program runs.

    Checks read them here alone: within a jit, also an operation on a JAX array that is known gives a tracer.
    """
    return None if isinstance(array, jax.core.Tracer | jax.ShapeDtypeStruct) else np.asarray(array)


# Arguments by what they are: an example, and what only their classes have.
_KINDS = {
    "objective": ("an objective such as LeastSquares(A, y)", ("predict", "gradient")),
    "constraint": ("a constraint such as Sparse(k)", ("project", "support_of")),
    "solver": ("a solver such as HTP()", ("init", "step")),
    "stop": ("a Stop such as Stop(max_steps=100)", ("support_patience", "target_value")),
}


def check_kind(**arguments: Any) -> None:
    """Raise ValueError unless arguments are what their names say: objective, constraint, solver, stop.

    Classes are known by their methods, so that those of users need not inherit from a protocol.
    """
    for name, value in arguments.items():
        needed, members = _KINDS[name]
        if not all(hasattr(type(value), member) for member in members):
            raise ValueError(f"{name} must be {needed}; got {_describe_kind(value)}")


def _describe_kind(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}: an instance is {value.__name__}(...)"
    if inspect.isroutine(value):
        return f"the function {value.__name__}"
    for needed, members in _KINDS.values():
        if all(hasattr(type(value), member) for member in members):
            return f"{type(value).__name__}, {needed.partition(' such')[0]}"
    return describe(value)


def describe(value: Any) -> str:
    """A value in a few words: numbers and text as they are, arrays by dtype and shape, all else by its type."""
    if isinstance(value, np.ndarray | np.generic | jax.Array | jax.ShapeDtypeStruct):
        if value.ndim or isinstance(value, jax.core.Tracer | jax.ShapeDtypeStruct) or not _is_number(value.dtype):
            return f"{value.dtype}[{','.join(map(str, value.shape))}]"
        return f"{value.item():.6g}" if value.dtype.kind == "f" else str(value.item())
    if isinstance(value, bool | int | float | str | bytes | None):
        return repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return repr(value)
    if isinstance(value, np.dtype):
        return str(value)
    return getattr(value, "__name__", type(value).__name__)


def short_repr(node: Any, **parts: Any) -> str:
    """``Name(part=value, ...)``, of each value what :func:`describe` says; text stands as it is."""
    shown = (f"{name}={part if isinstance(part, str) else describe(part)}" for name, part in parts.items())
    return f"{type(node).__name__}({', '.join(shown)})"


def _repr_fields(node: Any) -> str:
    """The fields that are not at their defaults; arrays by dtype and shape."""
    parts = {}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        is_default = value is field.default or (isinstance(value, int | float) and value == field.default)
        if field.repr and not is_default:
            shown = f"({', '.join(map(describe, value))})" if type(value) is tuple else describe(value)
            parts[field.name] = shown
    return short_repr(node, **parts)


def _is_number(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.number) or jnp.issubdtype(dtype, jnp.bool_)


def as_dtype(leaf: Any, dtype: ArrayDType) -> Any:
    """``leaf`` as a strongly typed array of ``dtype``; booleans keep their dtype. Host numbers stay on the host."""
    if isinstance(leaf, jax.Array):
        if leaf.dtype == dtype and not leaf.weak_type:
            return leaf
        dtype = jax.dtypes.canonicalize_dtype(dtype)  # dtype may be NumPy's float64, which is float32 in JAX
        return leaf if leaf.dtype in (dtype, jnp.bool_) and not leaf.weak_type else leaf.astype(dtype)
    if type(leaf) is int and dtype == jnp.int32:
        return np.asarray(min(max(leaf, -(2**31)), 2**31 - 1), np.int32)
    leaf = np.asarray(leaf)
    if dtype == jnp.int32 and leaf.dtype.kind in "iu":
        leaf = np.clip(leaf, -(2**31), 2**31 - 1)  # a larger limit must not wrap around
    return leaf if leaf.dtype == np.bool_ else leaf.astype(dtype)
