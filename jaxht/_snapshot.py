"""Functions of the user, compared by the values that they refer to as well."""

import contextlib
import dataclasses
import dis
import functools
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def tracing_context() -> Callable[[Hashable], contextlib.AbstractContextManager[None]]:
    """Contexts by key, of a thread, in each of which nothing counts that was traced in another one.

    JAX keeps what it has traced of a function for as long as that is the same object, whatever its
    globals are now: jitted functions and bodies of loops as well. JAX before 0.9 has no contexts.
    """
    make_context: Any = getattr(jax, "make_user_context", None)
    if make_context is None:
        return lambda _: contextlib.nullcontext()
    return make_context(None)


_traced_for = tracing_context()


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A function and the values that it refers to, by which it is compared: JAX compiles it anew
    where one of them has changed, and what it calls."""

    fun: Callable[..., Any]
    values: tuple[Any, ...]

    def __call__(self, *args: Any) -> Any:
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args)):
            return self.fun(*args)
        with _traced_for(self):
            return self.fun(*args)

    def __repr__(self) -> str:
        return repr(self.fun)

    def __reduce__(self) -> tuple[Any, ...]:
        """The values are looked up where it is loaded."""
        return Snapshot.take, (self.fun,)

    @classmethod
    def take(cls, fun: Callable[..., Any]) -> Callable[..., Any]:
        """The function with its code and its values as they are now; itself where it has none, or
        is one of this library."""
        if isinstance(fun, Snapshot):
            fun = fun.fun
        if isinstance(fun, types.FunctionType) and (fun.__module__ or "").startswith("jaxht."):
            return fun
        values = tuple(_referred_values(fun, set()))
        return cls(fun, values) if values else fun


@dataclasses.dataclass(frozen=True, eq=False)
class _Same:
    """A value that is compared by identity."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


# Bytes of an array, and items of a container, up to which they are compared, not their identity.
MAX_COMPARED_BYTES = 2**20
MAX_COMPARED_ITEMS = 1000


def _referred_values(fun: Any, visited: set[int]) -> Iterator[Any]:
    """What stands among the globals, the closure and the defaults of a function, and of the
    functions of its module that it refers to, modules aside."""
    if id(fun) in visited:
        return
    visited.add(id(fun))
    if isinstance(fun, functools.partial):
        yield from _values(("func", fun.func), fun, visited)
        yield from _referred_values(fun.func, visited)
        yield from _values(("args", fun.args), fun.func, visited)
        yield from _values(("keywords", fun.keywords), fun.func, visited)
    if isinstance(fun, types.MethodType):
        yield from _referred_values(fun.__func__, visited)
    if not isinstance(fun, types.FunctionType):
        return
    yield "code", fun.__code__
    found = {name: fun.__globals__.get(name) for name in _names(fun.__code__)}
    for name, cell in zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    defaults = [("defaults", fun.__defaults__), ("keyword defaults", fun.__kwdefaults__)]
    for item in [*sorted(found.items()), *defaults]:
        yield from _values(item, fun, visited)


def _values(item: tuple[Any, Any], fun: Any, visited: set[int]) -> Iterator[Any]:
    """A named value that a function refers to, as something that can be compared."""
    name, value = item
    is_function = isinstance(value, types.FunctionType | functools.partial)
    if is_function and _module(value) == _module(fun):
        yield name, type(value)
        yield from _referred_values(value, visited)
    elif isinstance(value, bool | int | float | complex | str):
        yield name, type(value), repr(value)
    elif _is_comparable(value):
        array = np.asarray(value)
        yield name, str(array.dtype), array.shape, array.tobytes()
    elif isinstance(value, tuple | list | dict) and len(value) <= MAX_COMPARED_ITEMS:
        if id(value) in visited:
            return
        visited.add(id(value))
        yield name, type(value), len(value)
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in items:
            yield from _values((str(key), entry), fun, visited)
    elif value is not None and not isinstance(value, types.ModuleType | jax.core.Tracer):
        yield name, _Same(value)
        within = getattr(value, "__wrapped__", None)  # as of a jitted function
        if isinstance(within, types.FunctionType) and _module(within) == _module(fun):
            yield from _referred_values(within, visited)


def _module(fun: Any) -> str | None:
    return getattr(getattr(fun, "func", fun), "__module__", None)


def _is_comparable(value: Any) -> bool:
    """Whether a value is an array whose entries are known, and few."""
    is_array = isinstance(value, np.ndarray | np.generic | jax.Array)
    if not is_array or isinstance(value, jax.core.Tracer) or value.dtype == object:
        return False
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.extended)
    return not is_key and value.nbytes <= MAX_COMPARED_BYTES


@functools.lru_cache(1024)
def _names(code: types.CodeType) -> frozenset[str]:
    """The globals that a function and those within it may refer to."""
    names = {
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")  # of functions, of classes in them
    }
    within = (_names(each) for each in code.co_consts if isinstance(each, types.CodeType))
    return frozenset(names).union(*within)
