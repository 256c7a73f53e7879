"""Values in a few words, for representations and error messages."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["describe", "repr_fields", "short_repr"]

MAX_LENGTH = 60  # characters of a number or a text that is shown


def describe(value: Any) -> str:
    """A value in a few words: numbers and text as they are, arrays by dtype and shape, all else by
    its type."""
    if isinstance(value, np.ndarray | np.generic | jax.Array | jax.ShapeDtypeStruct):
        return _describe_array(value)
    if isinstance(value, bool | int | float | str | bytes | None):
        text = repr(value)
        return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 3]}..."
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return repr(value)
    if isinstance(value, np.dtype):
        return str(value)
    return getattr(value, "__name__", type(value).__name__)


def _describe_array(array: Any) -> str:
    is_known = not isinstance(array, jax.core.Tracer | jax.ShapeDtypeStruct)
    is_number = any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.number, jnp.bool_))
    if array.ndim or not is_known or not is_number:
        return f"{array.dtype}[{','.join(map(str, array.shape))}]"
    return f"{array.item():.6g}" if array.dtype.kind == "f" else str(array.item())


def short_repr(node: Any, **parts: Any) -> str:
    """``Name(part=value, ...)``, of each value what :func:`describe` says; text stands as it is."""
    shown = []
    for name, part in parts.items():
        text = part if isinstance(part, str) else describe(part)
        shown.append(f"{name}={text}")
    return f"{type(node).__name__}({', '.join(shown)})"


def repr_fields(node: Any) -> str:
    """The fields that are not at their defaults; arrays by dtype and shape."""
    parts = {}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        is_number = isinstance(value, int | float)
        is_default = value is field.default or (is_number and value == field.default)
        if not field.repr or is_default:
            continue
        if type(value) is tuple:
            parts[field.name] = f"({', '.join(map(describe, value))})"
        else:
            parts[field.name] = describe(value)
    return short_repr(node, **parts)
