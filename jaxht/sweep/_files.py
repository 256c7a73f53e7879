"""How files are written: atomically, and by one process at a time."""

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """A context that one thread of one process is in at a time; without effect where the file
    system has no locks."""
    if os.name != "posix":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(
                    descriptor, fcntl.LOCK_UN
                )  # by itself, it would last as long as a fork has the descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A name to write to, synced and renamed to ``path`` if all goes well, and else removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Processes on several machines may have one number.
    temporary = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}")
    try:
        yield temporary
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of processes of this machine that were killed while they wrote."""
    # Elsewhere os.kill does more than ask.
    for file in folder.glob(f"**/.*.{platform.node()}.*") if os.name == "posix" else ():
        try:
            os.kill(int(file.suffix[1:]), 0)
        except ProcessLookupError:
            file.unlink(missing_ok=True)
        except (ValueError, OSError):  # a process of another user
            pass


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
