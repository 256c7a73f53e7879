"""Settings of JAX that contexts make for one thread, for other threads and processes."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax

Settings = tuple[tuple[str, Any], ...]

# Those on which a trace depends, but for the default float, which sweeps keep by themselves; JAX
# has a context of each, named as the setting without "jax_".
NAMES = (
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_threefry_partitionable",
)


def _context(name: str) -> Callable[[Any], contextlib.AbstractContextManager[Any]] | None:
    return getattr(jax, name.removeprefix("jax_"), None)


def current_settings() -> Settings:
    """The settings of this thread, by name."""
    return tuple((name, getattr(jax.config, name)) for name in NAMES if _context(name) is not None)


@contextlib.contextmanager
def use_settings(settings: Settings) -> Iterator[None]:
    """A context, of this thread, in which they hold."""
    with contextlib.ExitStack() as stack:
        for name, value in settings:
            context = _context(name)
            if context is not None:
                stack.enter_context(context(value))
        yield
