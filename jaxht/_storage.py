"""Files of results: written whole or not at all, and read only where not a bit has changed.

A record is a .npz file of named arrays with a JSON text. Its last characters, the comment of the
archive, are the SHA-256 of all before them.
"""

import contextlib
import hashlib
import io
import json
import logging
import os
import platform
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

CHECKSUM_CHARACTERS = 64  # of SHA-256, in hexadecimal
RECORD_NAME = "record.json"

log = logging.getLogger("jaxht.storage")


class Record(NamedTuple):
    """What a file holds: arrays by name, and metadata, whatever JSON can hold."""

    arrays: dict[str, NDArray[Any]]
    metadata: dict[str, Any]


class FingerprintError(ValueError):
    """A file holds a record of something else than what was asked for."""


def write_record(
    path: Path,
    fingerprint: str,
    arrays: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, Any],
) -> None:
    """Replace a file by a record, durably when this returns; ``fingerprint`` says of what it is."""
    header = json.dumps({"fingerprint": fingerprint, "metadata": metadata})
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open(RECORD_NAME, "w") as entry:
            entry.write(header.encode())
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(values), allow_pickle=False)
        archive.comment = bytes(CHECKSUM_CHARACTERS)
    write_file(path, add_checksum(file.getvalue()[:-CHECKSUM_CHARACTERS]))


def read_record(path: Path, fingerprint: str | None = None) -> Record | None:
    """Read a record; None where there is none, or where it is damaged, which is logged.

    Raises:
        FingerprintError: if the record is sound, and its fingerprint another one.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("%s cannot be read, and counts as missing: %s", path, error)
        return None
    if without_checksum(content) is None:
        log.warning("%s is damaged, and counts as missing", path)
        return None
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        header = json.loads(archive.read(RECORD_NAME))
        arrays = {
            name.removesuffix(".npy"): _read_array(archive.read(name))
            for name in archive.namelist()
            if name != RECORD_NAME
        }
    if fingerprint is not None and header["fingerprint"] != fingerprint:
        raise FingerprintError(f"{path} holds a record of something else")
    return Record(arrays, header["metadata"])


def write_file(path: Path, content: bytes) -> None:
    """Replace a file, durably when this returns: at any moment the old or the new one is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Processes on several machines may have one number.
    temporary = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # elsewhere a folder cannot be opened
        with _open_folder(path.parent) as descriptor:
            os.fsync(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of processes of this machine that were killed as they wrote."""
    if os.name != "posix":  # os.kill does more there than ask
        return
    for file in folder.glob(f"**/.*.{platform.node()}.*"):
        try:
            os.kill(int(file.suffix[1:]), 0)
        except ProcessLookupError:
            file.unlink(missing_ok=True)
        except (ValueError, OSError):  # a process of another user
            pass


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """A context that one thread of one process is in at a time, where the file system has locks."""
    if os.name != "posix":
        yield
        return
    import fcntl

    with _open_folder(folder) as descriptor:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # By itself, it would last as long as a fork has the descriptor.
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)


def hash_json(description: Any) -> str:
    """Hash what JSON can hold; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def add_checksum(content: bytes) -> bytes:
    """The content of a file with its checksum at the end."""
    return content + _checksum(content)


def without_checksum(content: bytes) -> bytes | None:
    """The same without it; None where it is not that of what stands before it."""
    before, checksum = content[:-CHECKSUM_CHARACTERS], content[-CHECKSUM_CHARACTERS:]
    return before if checksum == _checksum(before) else None


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _read_array(content: bytes) -> NDArray[Any]:
    return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)


@contextlib.contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
