"""Compiled programs: how they are compiled, and how they are kept for later processes."""

import contextlib
import functools
import hashlib
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

__all__ = ["compile_for", "keep_programs"]

# Entries of a design up to which a program is compiled at these levels of optimisation. Measured
# for LocalSearch on 512 x 64, logistic: levels 0, 1 and 3 compile in 1.5, 3.2 and 7 s, and run in
# 29, 10 and 10 ms.
MAX_ENTRIES_OF_LEVEL = {0: 2**16, 1: 2**20}
# Bytes that kept programs take, when a process starts.
MAX_KEPT_BYTES = 2**30


def compile_for(num_entries: int | None, function: Callable[..., Any], *static: str) -> Any:
    """The jitted function, for a design of so many entries; None stands for an unknown number.

    Programs of small designs, which run for milliseconds, are compiled with less optimisation.

    Args:
        num_entries: of the design.
        function: a function of pytrees, of a module.
        static: the names of static arguments.
    """
    level = None
    if num_entries is not None and jax.default_backend() == "cpu":
        levels = (each for each, most in MAX_ENTRIES_OF_LEVEL.items() if num_entries <= most)
        level = next(levels, None)
    return _jit(function, static, level)


@functools.cache
def _jit(function: Callable[..., Any], static: tuple[str, ...], level: int | None) -> Any:
    if level is None:
        return jax.jit(function, static_argnames=static)
    options: dict[str, Any] = {"xla_backend_optimization_level": level}
    if jax.__version_info__ < (0, 11):  # which refuses the option
        options["xla_cpu_use_fusion_emitters"] = False
    return jax.jit(function, static_argnames=static, compiler_options=options)


def keep_programs(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Keep what JAX compiles in a folder, where later processes find it.

    Call it before anything is compiled. It sets JAX's persistent compilation cache for this
    process and those that it starts, for the programs of jaxht and all others. The environment
    variable ``JAXHT_KEEP_PROGRAMS=1``, or the path of a folder in place of 1, does the same when
    jaxht is imported. Settings made by ``JAX_COMPILATION_CACHE_DIR`` and other variables of JAX
    stand.

    Args:
        folder: where programs are kept; it is made if need be. None: ``jaxht/compiled`` in the
            user's cache folder, one for each kind of processor, of which the files that were used
            longest ago are removed beyond 1 GiB.

    Returns:
        The folder; None where there is none that can be written to.

    Cost: programs are looked up by a hash of what was traced: tracing takes place in every process,
    about a fifth of the time of compiling.

    Example:
        >>> import jaxht
        >>> folder = jaxht.keep_programs()  # doctest: +SKIP
    """
    settings: dict[str, str | float] = {"jax_persistent_cache_min_compile_time_secs": 0.0}
    kept = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if kept is None:
        path = default_folder() if folder is None else Path(folder)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder is None:
                trim(path, MAX_KEPT_BYTES)
        except OSError:
            return None
        if not os.access(path, os.W_OK):
            return None
        kept = str(path)
        settings["jax_compilation_cache_dir"] = kept
    for name, value in settings.items():
        if name.upper() not in os.environ:
            os.environ[name.upper()] = str(value)
            jax.config.update(name, value)
    return Path(kept)


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
    for file in folder.iterdir():
        with contextlib.suppress(OSError):  # another process removes it
            stat = file.stat()
            if file.is_file():
                # Where the file system does not record when a file is read, the oldest go first.
                found.append((max(stat.st_atime, stat.st_mtime), stat.st_size, file))
    total = 0
    for _, size, file in sorted(found, reverse=True):
        total += size
        if not size or total > max_bytes:
            with contextlib.suppress(OSError):
                file.unlink()
