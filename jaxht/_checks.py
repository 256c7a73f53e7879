"""Checks of arguments: ValueErrors that say which argument, what it was, and what is needed."""

import functools
import inspect
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxht._dataclass import HOST_NUMBERS, traced_fields
from jaxht._repr import describe
from jaxht._typing import Array, Numeric

__all__ = [
    "check_array",
    "check_count",
    "check_kind",
    "check_labels",
    "check_scalar",
    "check_scalars",
    "host_array",
    "known_values",
    "no_array",
    "none_negative",
    "warn_of_rounding",
]


def check_scalars(
    node: Any,
    skip: tuple[str, ...] = (),
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> None:
    """Apply :func:`check_scalar` to the traced fields of ``node``, a pytree dataclass.

    Fields of ``skip`` are not checked; those of ``shapes`` may have that shape instead of being
    scalars.
    """
    for field in traced_fields(type(node)):  # type: ignore[arg-type]
        value = getattr(node, field.name)
        if value is None or field.name in skip:
            continue
        name = f"{type(node).__name__}.{field.name}"
        shape = shapes.get(field.name, ())
        check_scalar(name, value, least=field.least, integral=field.integer, shape=shape)


def none_negative(*values: Numeric | None) -> Array:
    """Whether all numbers are at least 0, a bool scalar: for those that are not known before the
    program runs. None is left out."""
    is_valid = jnp.array(True)
    for value in values:
        if value is not None:
            is_valid &= jnp.all(jnp.asarray(value) >= 0)
    return is_valid


def check_scalar(
    name: str,
    value: Any,
    *,
    least: float = 0,
    integral: bool = False,
    shape: tuple[int, ...] = (),
) -> None:
    """Raise ValueError unless ``value`` is a scalar or of ``shape``, and valid where it is
    known."""
    is_python_number = type(value) is int or (type(value) is float and not integral)
    if is_python_number:  # the common case, which takes no array
        if not value >= least:
            raise ValueError(f"{name} must be at least {least}; got {value}")
        return
    is_table = hasattr(value, "to_numpy")  # of pandas and its like
    if is_table or isinstance(value, str | bytes | list | tuple):
        expected = "a number or an array" if shape else "a number"
        hint = f": pass {name}.to_numpy()" if is_table else ""
        raise ValueError(f"{name} must be {expected}; got {describe(value)}{hint}")
    if np.shape(value) not in ((), shape):
        expected = f"a scalar or of shape {shape}" if shape else "a scalar"
        raise ValueError(f"{name} must be {expected}; got shape {np.shape(value)}: use jax.vmap")
    if np.iscomplexobj(value):
        raise ValueError(f"{name} must be real; got {describe(value)}")
    if not isinstance(value, HOST_NUMBERS):
        return
    numbers = np.asarray(value)
    if integral and numbers.dtype.kind == "f":
        raise ValueError(f"{name} must be an integer; got {value}")
    if not np.all(numbers >= least):
        raise ValueError(f"{name} must be at least {least}; got {np.min(numbers)}")


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise ValueError unless ``value`` is an int, not traced, that is at least ``least``."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < least:
        raise ValueError(f"{name} must be an int of at least {least}; got {describe(value)}")


def check_array(name: str, value: Any, expected: str = "an array") -> None:
    """Raise ValueError unless ``value`` is an array of NumPy or JAX: lists and data frames are not
    converted, and of masked arrays the mask would be lost."""
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            f"{name} must be {expected}; got a masked array: pass {name}.filled(...), or weights of 0"
        )
    if not isinstance(value, np.ndarray | np.generic | jax.Array | jax.ShapeDtypeStruct):
        raise no_array(name, value, expected)


def check_labels(name: str, labels: Any, num_samples: int) -> None:
    """Raise ValueError unless labels are integers, one for each sample."""
    check_array(name, labels, f"an array of shape ({num_samples},)")
    if labels.shape != (num_samples,):
        raise ValueError(
            f"{name} must have shape ({num_samples},), one label for each sample; got "
            f"{labels.shape}"
        )
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(f"{name} must be integers; got dtype {labels.dtype}")


def host_array(name: str, value: Any) -> np.ndarray:
    """The value as an array of NumPy; ValueError for nested lists of different lengths."""
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must be an array; got lists of different lengths") from error


def no_array(name: str, value: Any, expected: str) -> ValueError:
    """The ValueError for a ``value`` that is not an array, with the call that makes it one."""
    hint = ""
    if hasattr(value, "to_numpy"):  # of pandas and its like
        hint = f": pass {name}.to_numpy()"
    elif isinstance(value, list | tuple):
        host_array(name, value)
        hint = f": pass np.asarray({name})"
    return ValueError(f"{name} must be {expected}; got {describe(value)}{hint}")


def warn_of_rounding(data: Any) -> None:
    """Warn, once in a process, where a pytree has float64 arrays of NumPy and JAX, without 64 bits,
    rounds them."""
    for leaf in jax.tree.leaves(data):
        is_float64 = isinstance(leaf, np.ndarray) and leaf.ndim and leaf.dtype == np.float64
        if is_float64 and jnp.result_type(float) != np.float64:
            _warn_of_rounding()


@functools.cache
def _warn_of_rounding() -> None:
    warnings.warn(
        "float64 data are rounded to float32, since JAX's 64 bits are off; to turn them on, before "
        'JAX makes an array: jax.config.update("jax_enable_x64", True); else pass float32',
        stacklevel=4,
    )


def known_values(array: Any) -> np.ndarray | None:
    """The values of an array on the host; None where they are not known before the program runs.

    Checks read them here alone: within a jit, also an operation on a JAX array that is known gives
    a tracer.
    """
    return None if isinstance(array, jax.core.Tracer | jax.ShapeDtypeStruct) else np.asarray(array)


class _Kind(NamedTuple):
    """What an argument must be: its name with an example, and members of its classes alone."""

    name: str
    example: str
    members: tuple[str, ...]

    def accepts(self, value: Any) -> bool:
        return all(hasattr(type(value), member) for member in self.members)


_KINDS = {
    "objective": _Kind("an objective", "LeastSquares(A, y)", ("predict", "gradient")),
    "constraint": _Kind("a constraint", "Sparse(k)", ("project", "support_of")),
    "solver": _Kind("a solver", "HTP()", ("init", "step")),
    "method": _Kind("a method of pruning", "pruning.ALPS()", ("prune",)),
    "stop": _Kind("a Stop", "Stop(max_steps=100)", ("support_patience", "target_value")),
}


def check_kind(**arguments: Any) -> None:
    """Raise ValueError unless arguments are what their names say: objective, constraint, solver,
    method, stop.

    Classes are known by their methods. A solver of None is the one that :func:`jaxht.solve`
    chooses.
    """
    for name, value in arguments.items():
        if name == "solver" and value is None:
            continue
        kind = _KINDS[name]
        if not kind.accepts(value):
            raise ValueError(
                f"{name} must be {kind.name} such as {kind.example}; got {_describe_kind(value)}"
            )


def _describe_kind(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}: an instance is {value.__name__}(...)"
    if inspect.isroutine(value):
        return f"the function {value.__name__}"
    for kind in _KINDS.values():
        if kind.accepts(value):
            return f"{type(value).__name__}, {kind.name}"
    return describe(value)
