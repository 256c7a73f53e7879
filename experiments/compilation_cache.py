"""JAX's persistent compilation cache in the user's cache directory: a program is compiled once a
machine."""

import contextlib
import hashlib
import os
import platform
import sys
from pathlib import Path

import jax

MAX_BYTES = 2**30  # of the folder, when a process starts


def enable() -> None:
    """Have this process, and those that it starts, keep what they compile, and read what was
    compiled before.

    A setting that the user has made by its environment variable stands:
    ``JAX_COMPILATION_CACHE_DIR`` names another folder, ``JAX_ENABLE_COMPILATION_CACHE=false``
    switches the cache off. Without a folder to write to there is none.
    """
    settings: dict[str, str | float] = {"jax_persistent_cache_min_compile_time_secs": 0.0}
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = find_folder()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            trim(folder, MAX_BYTES)
        except OSError:
            return
        if not os.access(folder, os.W_OK):
            return
        settings["jax_compilation_cache_dir"] = str(folder)
    for name, value in settings.items():
        if name.upper() not in os.environ:
            os.environ[name.upper()] = str(value)
            jax.config.update(name, value)


def find_folder() -> Path:
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
