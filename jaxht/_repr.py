"""Values in a few words, for representations and error messages."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def describe(value: Any) -> str:
    """A value in a few words: numbers and text as they are, arrays by dtype and shape, all else by
    its type."""
    if isinstance(value, np.ndarray | np.generic | jax.Array | jax.ShapeDtypeStruct):
        if (
            value.ndim
            or isinstance(value, jax.core.Tracer | jax.ShapeDtypeStruct)
            or not _is_number(value.dtype)
        ):
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
    shown = (
        f"{name}={part if isinstance(part, str) else describe(part)}"
        for name, part in parts.items()
    )
    return f"{type(node).__name__}({', '.join(shown)})"


def repr_fields(node: Any) -> str:
    """The fields that are not at their defaults; arrays by dtype and shape."""
    parts = {}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        is_default = value is field.default or (
            isinstance(value, int | float) and value == field.default
        )
        if field.repr and not is_default:
            shown = (
                f"({', '.join(map(describe, value))})" if type(value) is tuple else describe(value)
            )
            parts[field.name] = shown
    return short_repr(node, **parts)


def _is_number(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.number) or jnp.issubdtype(dtype, jnp.bool_)
