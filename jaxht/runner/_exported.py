"""Traced programs that later processes read, where programs are kept.

JAX's cache of compiled programs is asked by what was traced, and tracing a search takes most of the
time of its first call. Here a program is asked by what it is traced from: the function, the
structure, shapes and dtypes of its arguments, the versions and the settings.
"""

import ast
import functools
import hashlib
import importlib.metadata
import sys
import time
import types
from collections.abc import Callable, Hashable
from enum import Enum
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

from jaxht._dataclass import PYTREES
from jaxht._kept_programs import kept_folder, tracing_settings
from jaxht._programs import PROGRAMS, bounded_jit
from jaxht._storage import add_checksum, without_checksum, write_file

__all__ = ["ExportedProgram"]


# In the place of a program that was not asked for yet; None stands for one that cannot be kept.
MISSING: Any = object()
# When this process read the library's files.
IMPORTED = time.time()


class ExportedProgram:
    """A function of pytrees that is traced once for all processes that keep programs.

    What cannot be described by names and numbers, such as a user's own functions, and what
    ``jax.export`` refuses, is traced in each process.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        static: tuple[str, ...],
        options: dict[str, Any],
    ) -> None:
        self._function = function
        self._options = options
        self._traced = bounded_jit(function, static_argnames=static, compiler_options=options)
        self._programs: dict[Hashable, Callable[..., Any] | None] = {}
        PROGRAMS.register(self)

    def __call__(self, *arguments: Any, **static: Any) -> Any:
        """Call the function; ``static`` are all of its static arguments."""
        folder = kept_folder()
        if folder is None:
            return self._traced(*arguments, **static)
        leaves, tree = jax.tree.flatten(arguments)
        if not all(map(_is_plain, leaves)):
            return self._traced(*arguments, **static)
        shapes = tuple([(leaf.shape, leaf.dtype) for leaf in leaves])
        key = (folder, tree, shapes, tuple(static.items()), tracing_settings())
        program = self._programs.get(key, MISSING)
        if program is MISSING:
            PROGRAMS.add()
            program = self._programs[key] = self._find(folder, leaves, tree, static)
        if program is None:
            return self._traced(*arguments, **static)
        return program(*leaves)

    def drop_programs(self) -> None:
        """Forget all programs; they are read or traced again."""
        self._programs.clear()

    def _find(
        self, folder: Path, leaves: list[Any], tree: Any, static: dict[str, Any]
    ) -> Callable[..., Any] | None:
        """Read the program, or trace and keep it; None where it cannot be kept."""
        try:
            text = self._describe(leaves, tree, static)
        except _NoDescriptionError:
            return None
        _register_results()
        file = folder / f"{hashlib.sha256(text.encode()).hexdigest()}.trace"
        exported = _read(file)
        if exported is None:

            @functools.wraps(self._function)
            def function(*leaves: Any) -> Any:
                return self._function(*jax.tree.unflatten(tree, leaves), **static)

            try:
                exported = export.export(jax.jit(function))(*leaves)
                write_file(file, add_checksum(bytes(exported.serialize())))
            except (ValueError, TypeError, NotImplementedError, OSError):
                return None

        @functools.wraps(self._function)
        def call(*leaves: Any) -> Any:
            return exported.call(*leaves)

        return jax.jit(call, compiler_options=self._options)

    def _describe(self, leaves: list[Any], tree: Any, static: dict[str, Any]) -> str:
        """Describe all that the trace depends on."""
        parts = [
            _versions(),
            str(tracing_settings()),
            jax.default_backend(),
            _describe(self._function),
            _describe(tuple(sorted(static.items()))),
            _describe_tree(tree),
            str([(leaf.shape, str(leaf.dtype)) for leaf in leaves]),
        ]
        return "\n".join(parts)


def _is_plain(leaf: Any) -> bool:
    """Whether an argument is an array or a key, on one device."""
    if isinstance(leaf, np.ndarray | np.number):
        return True
    if not isinstance(leaf, jax.Array) or getattr(leaf, "weak_type", False):
        return False
    return len(leaf.sharding.device_set) == 1


@functools.cache
def _versions() -> str:
    """The versions of what is traced, with a hash of the library's files."""
    names = ("jax", "jaxlib", "numpy", "optax")
    versions = [f"{name} {importlib.metadata.version(name)}" for name in names]
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        changed = file.stat()
        if max(changed.st_mtime, changed.st_ctime) > IMPORTED:  # it is not what is traced
            raise _NoDescriptionError
        digest.update(file.read_bytes())
    return " ".join([*versions, sys.version, digest.hexdigest()])


_registered: set[type] = set()


def _register_results() -> None:
    """Let programs return the library's classes."""
    for cls in PYTREES:
        if cls not in _registered and _is_known(cls):
            _registered.add(cls)
            export.register_pytree_node_serialization(
                cls,
                serialized_name=f"{cls.__module__}.{cls.__qualname__}",
                serialize_auxdata=_write_settings,
                deserialize_auxdata=_read_settings,
            )


def _write_settings(settings: Any) -> bytes:
    data = repr(settings).encode()
    try:
        is_same = _read_settings(data) == settings
    except SyntaxError:  # as of a function
        is_same = False
    if not is_same:
        raise ValueError(f"static fields {settings!r} cannot be written")
    return data


def _read_settings(data: bytes) -> Any:
    return ast.literal_eval(data.decode())


class _NoDescriptionError(Exception):
    """An object is not described by names and numbers."""


def _describe_tree(tree: Any) -> str:
    """Describe the nodes of a structure of arguments."""
    node = tree.node_data()
    if node is None:
        return "leaf"
    kind, settings = node
    if kind is type(None):
        return "None"
    children = ", ".join([_describe_tree(child) for child in tree.children()])
    return f"{_describe(kind)}[{_describe(settings)}]({children})"


def _describe(value: Any) -> str:
    """Describe a static value such that equal descriptions mean equal values in every process."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, tuple | list):
        return f"{_describe(type(value))}({', '.join([_describe(item) for item in value])})"
    if isinstance(value, Enum):
        return f"{_describe(type(value))}.{value.name}"
    if isinstance(value, np.dtype):
        return f"dtype {value}"
    if isinstance(value, type | types.FunctionType) and _is_known(value):
        return f"{value.__module__}.{value.__qualname__}"
    raise _NoDescriptionError


def _is_known(value: Any) -> bool:
    """Whether a class or a function is found by its name, and does not change but with a
    version."""
    package = value.__module__.partition(".")[0]
    if package not in ("jaxht", "builtins", "numpy", "jax"):
        return False
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def _read(file: Path) -> Any:
    """The program in a file; None where there is none, or it is damaged."""
    try:
        data = without_checksum(file.read_bytes())
    except OSError:
        return None
    if data is None:
        return None
    try:
        return export.deserialize(bytearray(data))
    except Exception:  # whatever a file of another version of JAX makes of it
        return None
