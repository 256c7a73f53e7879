"""Compiled programs, of which a process holds a bounded number."""

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import jax
import numpy as np

__all__ = ["PROGRAMS", "TRACES", "bounded_jit", "is_tracing"]

# Programs of the library that a process holds; then all are dropped. Each takes some hundreds of
# kB, and up to 300 of the 65 530 pieces into which Linux lets a process divide its memory; beyond
# them LLVM says "Cannot allocate memory".
MAX_HELD_PROGRAMS = 128


class ProgramHolder(Protocol):
    """What holds compiled programs."""

    def drop_programs(self) -> None:
        """Forget all of them."""


class ProgramCount:
    """The number of programs that several holders of a process hold."""

    def __init__(self) -> None:
        self.number = 0
        self._lock = threading.Lock()
        self._holders: weakref.WeakSet[Any] = weakref.WeakSet()

    def register(self, holder: ProgramHolder) -> None:
        """Note whom to ask to drop its programs."""
        with self._lock:
            self._holders.add(holder)

    def add(self) -> None:
        """Count one more, and drop all where there are too many."""
        with self._lock:
            self.number += 1
            if self.number <= MAX_HELD_PROGRAMS:
                return
            self.number = 0
            holders = list(self._holders)
        for holder in holders:
            holder.drop_programs()


#: What is compiled, and what is traced within other programs: each sweep traces its trial anew.
PROGRAMS = ProgramCount()
TRACES = ProgramCount()


class _CountedJit:
    """A jitted function that counts what it traces."""

    def __init__(
        self, function: Callable[..., Any], count: ProgramCount, options: dict[str, Any]
    ) -> None:
        self._function = function
        self._count = count
        self._options = options
        self._num_traces = 0
        self._jitted = self._compile_anew()
        count.register(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        before = self._num_traces
        found = self._jitted(*args, **kwargs)
        if self._num_traces != before:
            self._count.add()
        return found

    def drop_programs(self) -> None:
        # Calls of it that have not ended keep theirs: a cache is not emptied while it is in use.
        self._jitted = self._compile_anew()

    def _compile_anew(self) -> Any:
        @functools.wraps(self._function)
        def count_and_trace(*args: Any, **kwargs: Any) -> Any:
            self._num_traces += 1
            return self._function(*args, **kwargs)

        return jax.jit(count_and_trace, **self._options)


def bounded_jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``jax.jit`` for functions of the library, which are compiled for many shapes."""
    compiled = _CountedJit(function, PROGRAMS, options)
    traced = _CountedJit(function, TRACES, options)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves = jax.tree.leaves((args, kwargs))
        is_within = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
        return (traced if is_within else compiled)(*args, **kwargs)

    return call


def is_tracing() -> bool:
    """Whether a function is being traced here."""
    return isinstance(jax.device_put(np.int32(0)), jax.core.Tracer)
