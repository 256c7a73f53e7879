"""Compiled programs are kept for later processes, by JAX's persistent compilation cache."""

import contextlib
import functools
import hashlib
import importlib.util
import logging
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.monitoring

from jaxht import _settings

__all__ = ["keep_programs"]

# Bytes that kept programs take, when a process starts.
MAX_KEPT_BYTES = 2**30


def keep_programs(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Keep what JAX compiles in a folder, where later processes find it.

    Call it before anything is compiled. It sets JAX's persistent compilation cache for this
    process and those that it starts, for the programs of jaxht and all others. The environment
    variable ``JAXHT_KEEP_PROGRAMS=1``, or the path of a folder in place of 1, does the same when
    jaxht is imported. Settings made by JAX's own variables stand, ``JAX_COMPILATION_CACHE_DIR``
    where no folder is given.

    Args:
        folder: where programs are kept; it is made if need be. None: ``jaxht/compiled`` in the
            user's cache folder, one for each kind of processor, of which the files that were used
            longest ago are removed beyond 1 GiB.

    Returns:
        The folder; None where there is none that can be written to.

    Cost: the programs of small tables are read in 0.1 to 0.2 s, where the package flatbuffers is
    installed (the extra sklearn brings it). Other programs are looked up by a hash of what was
    traced, which takes about a fifth of the time of compiling in every process.

    Example:
        >>> import jaxht
        >>> folder = jaxht.keep_programs()  # doctest: +SKIP
    """
    chosen = None if folder is not None else os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if chosen is None:
        path = default_folder() if folder is None else Path(folder).expanduser().absolute()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder is None:
                trim(path, MAX_KEPT_BYTES)
        except OSError:
            return None
        if not os.access(path, os.W_OK):
            return None
        chosen = str(path)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = chosen  # for processes that this one starts
        jax.config.update("jax_compilation_cache_dir", chosen)
    elif getattr(jax.config, "jax_compilation_cache_dir", None) is None:  # set after the import
        jax.config.update("jax_compilation_cache_dir", chosen)
    name = "jax_persistent_cache_min_compile_time_secs"
    if name.upper() not in os.environ:
        os.environ[name.upper()] = "0.0"
        jax.config.update(name, 0.0)
    return Path(chosen)


# The settings on which a trace depends, and those with which none is kept: they look into it.
TRACING_SETTINGS = ("jax_enable_x64", *_settings.NAMES)
DEBUG_SETTINGS = ("jax_debug_infs", "jax_debug_nans", "jax_disable_jit")


def tracing_settings() -> tuple[Any, ...]:
    """Return JAX's settings on which a trace depends."""
    return tuple([getattr(jax.config, name, None) for name in TRACING_SETTINGS])


def kept_folder() -> Path | None:
    """Return the folder where traces are kept beside compiled programs; None where they are not.

    They are written by ``jax.export``, which needs the package flatbuffers.
    """
    config: Any = jax.config
    folder = config.jax_compilation_cache_dir
    if folder is None or not config.jax_enable_compilation_cache or not _can_serialize():
        return None
    is_debugging = any(getattr(config, name, False) for name in DEBUG_SETTINGS)
    return None if is_debugging else Path(folder)


@functools.cache
def _can_serialize() -> bool:
    return importlib.util.find_spec("flatbuffers") is not None


# Seconds of compiling from which a fit says how programs are kept.
ADVICE_SECONDS = 1.0
ADVICE = (
    "jaxht compiled for %.1f s; jaxht.keep_programs(), or JAXHT_KEEP_PROGRAMS=1 in the environment, "
    "keeps compiled programs for later processes"
)


@functools.cache
def _compile_seconds() -> list[float]:
    """The seconds of each compile from now on."""
    seconds: list[float] = []

    def listen(event: str, duration_secs: float, **options: str | int) -> None:
        if event.endswith("/backend_compile_duration"):
            seconds.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    return seconds


@contextlib.contextmanager
def advise_to_keep() -> Iterator[None]:
    """Log once a process how programs are kept, where more than a second is spent on compiling."""
    seconds = _compile_seconds()
    before = len(seconds)
    yield
    spent = sum(seconds[before:])
    config: Any = jax.config
    is_kept = config.jax_compilation_cache_dir is not None
    if spent > ADVICE_SECONDS and not is_kept:
        _advise(round(spent, 1))


_advised: list[float] = []


def _advise(spent: float) -> None:
    if not _advised:
        _advised.append(spent)
        logging.getLogger("jaxht").warning(ADVICE, spent)


def read_environment() -> None:
    """Keep programs where ``JAXHT_KEEP_PROGRAMS`` asks for it."""
    value = os.environ.get("JAXHT_KEEP_PROGRAMS", "")
    if value not in ("", "0"):
        keep_programs(None if value == "1" else value)


def default_folder() -> Path:
    """Return the folder for this machine: another processor may lack instructions, and homes may be
    shared."""
    if sys.platform == "win32":
        caches = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    processor = {platform.machine(), platform.processor()}
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        processor.update(
            line for line in lines if line.startswith(("model name", "flags", "Features"))
        )
    return (
        caches
        / "jaxht"
        / "compiled"
        / hashlib.sha256("\n".join(sorted(processor)).encode()).hexdigest()[:16]
    )


def trim(folder: Path, max_bytes: int) -> None:
    """Remove the files that were used longest ago, so that the others take at most max_bytes; and
    all empty ones.

    JAX's own bound, ``jax_compilation_cache_max_size``, needs filelock, reads the whole folder at
    every write, and in JAX 0.10 writes nothing more once a write was interrupted. An empty file is
    such a write: JAX would warn of it at every start, and never replace it.
    """
    found = []
    # One stat a file: there may be tens of thousands of small programs.
    with os.scandir(folder) as files:
        for file in files:
            with contextlib.suppress(OSError):  # another process removes it
                if file.is_file():
                    stat = file.stat()
                    # Where the file system does not record when a file is read, the oldest go
                    # first.
                    found.append((max(stat.st_atime, stat.st_mtime), stat.st_size, file.path))
    total = 0
    for _, size, path in sorted(found, reverse=True):
        total += size
        if not size or total > max_bytes:
            with contextlib.suppress(OSError):
                os.unlink(path)
