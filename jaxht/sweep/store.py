"""Results on disk: one file for each finished cell, written atomically and checked when it is read."""

import hashlib
import io
import json
import logging
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jaxht.sweep._provenance import to_attributes

if TYPE_CHECKING:
    import xarray

MANIFEST = "sweep.json"
CELLS = "cells"
FILE = "results.nc"
Results = Mapping[str, NDArray[Any]]

log = logging.getLogger("jaxht.sweep")


class StoreError(RuntimeError):
    """A store holds something else, or cannot be written: the message says what, and what to do."""


class Store:
    """A folder with ``sweep.json``, which describes the sweep, and ``cells/<index>.npz``, one record a cell.

    A record is written under another name, synced and renamed, and holds the hash of the sweep and a checksum of its
    own: it is there whole or not at all, and one that is damaged, or of another sweep, does not count. Several
    processes may write to one store.

    Args:
        path: of the folder; made where it is missing.
        sweep: what determines the results but for the trial itself, JSON.
        environment: what their last bits may depend on, JSON.
        program: hash of the trial. It differs by environment too, and tells nothing where that differs.
        mixed: continue in another environment than the one that began.

    Raises:
        StoreError: if the folder holds another sweep, saying what differs; or if it cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        sweep: Mapping[str, Any],
        environment: Mapping[str, Any],
        program: str,
        mixed: bool = False,
    ) -> None:
        self.path = Path(path)
        self.fingerprint = hash_sweep(sweep)
        manifest = {"sweep": sweep, "environment": environment, "program": program}
        if not (self.path / MANIFEST).is_file():
            self._write(Path(MANIFEST), (json.dumps(manifest, indent=2) + "\n").encode())
        self._remove_leftovers()
        old, new = read_manifest(self.path), json.loads(json.dumps(manifest))
        if changes := _describe_changes(old["sweep"], new["sweep"]):
            raise StoreError(f"{self.path} holds another sweep: {changes}. Give this one another folder.")
        if changes := _describe_changes(old["environment"], new["environment"], but=NOT_COMPARED):
            if not mixed:
                raise StoreError(
                    f"{self.path} was begun in another environment: {changes}. Results may differ in their last bits; "
                    "to go on nevertheless, pass mixed=True (on the command line --mixed)."
                )
        elif old["program"] != new["program"]:
            raise StoreError(
                f"{self.path} holds another sweep: the trial (its code, tolerances, metrics or data) has changed. "
                "Give this one another folder."
            )

    def _remove_leftovers(self) -> None:
        """Remove the temporary files of processes of this machine that were killed while they wrote."""
        # Elsewhere os.kill does more than ask.
        for file in self.path.glob(f"**/.*.{platform.node()}.*") if os.name == "posix" else ():
            try:
                os.kill(int(file.suffix[1:]), 0)
            except ProcessLookupError:
                file.unlink(missing_ok=True)
            except (ValueError, OSError):  # a process of another user
                pass

    def write(self, index: int, results: Results) -> None:
        """Store the results of a cell, durably when this returns."""
        content: dict[str, Any] = {**results, "fingerprint": np.array(self.fingerprint)}
        file = io.BytesIO()
        np.savez(file, **content, checksum=np.array(_compute_checksum(content)))
        self._write(_record_path(index), file.getvalue())

    def _write(self, name: Path, content: bytes) -> None:
        path = self.path / name
        try:
            with _replace_file(path) as temporary:
                temporary.write_bytes(content)
        except OSError as error:
            raise StoreError(
                f"{path} cannot be written: {error.strerror or error}. What was stored before is safe, "
                "and the same call goes on from there."
            ) from error

    def read(self, index: int) -> Results | None:
        """The results of a cell; None if they are missing or damaged."""
        return read_record(self.path, index, self.fingerprint)


# Stored, but not compared: the code itself is compared by the fingerprints of its programs.
NOT_COMPARED = ("revision",)


def read_record(path: Path, index: int, fingerprint: str) -> Results | None:
    """The results of a cell; None if they are missing, damaged, or of another sweep."""
    file = path / _record_path(index)
    try:
        # From memory: a damaged file would be left open.
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as archive:
            content = {name: archive[name] for name in archive.files}
        checksum, found = str(content.pop("checksum")), str(content["fingerprint"])
    except FileNotFoundError:
        return None
    except Exception as error:  # whatever zipfile and NumPy make of a damaged file
        log.warning("%s is damaged and will be computed again: %s", file, error)
        return None
    if checksum != _compute_checksum(content) or found != fingerprint:
        log.warning("%s is damaged or of another sweep, and will be computed again", file)
        return None
    del content["fingerprint"]
    return content


def read_manifest(path: Path) -> dict[str, Any]:
    """The description of the sweep in a store."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        return {"sweep": manifest["sweep"], "environment": manifest["environment"], "program": manifest["program"]}
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path / MANIFEST} is damaged ({error!r}): remove the folder, or put it back") from error


def is_kept(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds the store of a sweep, unfinished or finished.

    Args:
        path: of the folder, which may be missing.

    Returns:
        True where :func:`load` finds a sweep; False also where :func:`save` wrote.

    Cost: a look at one file.

    Example:
        >>> from jaxht import sweep
        >>> sweep.is_kept("no such folder")
        False
    """
    return (Path(path) / MANIFEST).is_file()


def load(path: str | os.PathLike[str]) -> "xarray.Dataset":
    """Read the results in a folder into memory, finished or not.

    Args:
        path: the ``store`` of :func:`jaxht.sweep.run`, or the folder of :func:`save`.

    Returns:
        For a sweep, a Dataset with its results as variables over its axes and ``trial``, and ``done`` over its axes:
        where it is False nothing is stored yet, and the results are NaN, 0 or False; so they are in trials that were
        ended by ``trial_timeout``, where ``timed_out_after`` is not NaN. Otherwise what :func:`save` wrote.

    Raises:
        FileNotFoundError: if nothing is there.
        StoreError: if the description of the sweep is damaged. Damaged results count as missing.
        ImportError: without the extra ``jax-hard-thresholding[sweep]``.

    Cost: reads every record once.

    Example:
        >>> import tempfile
        >>> from jaxht import sweep
        >>> def trial(key, cell):
        ...     return {"twice": 2 * cell["K"]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     results = sweep.run(trial, {"K": [1, 5]}, num_trials=3, store=folder)
        ...     sweep.load(folder).equals(results)
        True
    """
    path = Path(path)
    if not is_kept(path):
        if not (path / FILE).is_file():
            raise FileNotFoundError(f"neither {MANIFEST} nor {FILE} in {path}")
        return import_xarray().load_dataset(path / FILE, engine="h5netcdf")
    manifest = read_manifest(path)
    sweep = manifest["sweep"]
    fingerprint = hash_sweep(sweep)
    axes = sweep["axes"]
    shape = tuple(map(len, axes.values()))
    data: dict[str, Any] = {}
    done = np.zeros(int(np.prod(shape)), bool)
    for index in _list_records(path):
        if (record := read_record(path, index, fingerprint)) is not None:
            done[index] = True
            for name, values in record.items():
                whole = data.setdefault(name, make_blanks((len(done), sweep["num_trials"]), values.dtype))
                whole[index] = values
    variables = {name: ((*axes, "trial"), whole.reshape(*shape, -1)) for name, whole in data.items()}
    return import_xarray().Dataset(
        {**variables, "done": (tuple(axes), done.reshape(shape))},
        coords={**axes, "trial": range(sweep["num_trials"])},
        attrs={**sweep["attrs"], "seed": sweep["seed"], **to_attributes(manifest["environment"])},
    )


def make_blanks(shape: int | tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """What stands for results that are not there: NaN, 0 or False."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 0, dtype)


def _list_records(path: Path) -> list[int]:
    return sorted(int(file.stem) for file in (path / CELLS).glob("*.npz") if file.stem.isdigit())


def _record_path(index: int) -> Path:
    return Path(CELLS) / f"{index:06d}.npz"


def _compute_checksum(content: Results) -> str:
    digest = hashlib.sha256()
    for name, values in sorted(content.items()):
        digest.update(f"{name} {values.dtype.str} {values.shape} ".encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def hash_sweep(sweep: Mapping[str, Any]) -> str:
    """Hash the description of a sweep, which every record holds."""
    return hashlib.sha256(json.dumps(sweep, sort_keys=True).encode()).hexdigest()


def _describe_changes(old: Mapping[str, Any], new: Mapping[str, Any], but: Sequence[str] = ()) -> str:
    return "; ".join(
        f"{name} was {_shorten(old.get(name))}, is {_shorten(new.get(name))}"
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name) and name not in but
    )


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@contextmanager
def _replace_file(path: Path) -> Iterator[Path]:
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


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def save(dataset: "xarray.Dataset", path: str | os.PathLike[str]) -> Path:
    """Write a dataset that is no sweep to a folder, atomically: at any moment the old one is there, or the new one.

    Args:
        dataset: with numbers and strings as attributes.
        path: of the folder, made where it is missing. :func:`load` reads it.

    Returns:
        The file, NetCDF 4.

    Raises:
        OSError: if it cannot be written.

    Cost: one write of the data, compressed.

    Example:
        >>> import tempfile
        >>> import xarray
        >>> from jaxht import sweep
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = sweep.save(xarray.Dataset({"x": ("t", [1.0, 2.0])}), folder)
        ...     file.name, sweep.load(folder).x.values.tolist()
        ('results.nc', [1.0, 2.0])
    """
    file = Path(path) / FILE
    with _replace_file(file) as temporary:
        export(dataset, temporary, "nc")
    return file


def export(dataset: "xarray.Dataset", path: str | os.PathLike[str], kind: str | None = None) -> None:
    """Write a dataset to one file ``path``.nc (NetCDF 4) or folder ``path``.zarr, compressed, replacing what is there.

    Args:
        dataset: results of :func:`jaxht.sweep.run` or :func:`load`, or any other.
        path: of the file or folder.
        kind: "nc" or "zarr"; None: the ending of ``path``.

    Raises:
        ValueError: for another ending.
        ImportError: without zarr, ``jax-hard-thresholding[zarr]``.

    Cost: one write of the data.

    Example:
        >>> import os, tempfile
        >>> import xarray
        >>> from jaxht import sweep
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sweep.export(xarray.Dataset({"x": ("t", [1.0, 2.0])}), os.path.join(folder, "x.nc"))
        ...     os.listdir(folder)
        ['x.nc']
    """
    kind = kind or Path(path).suffix[1:]
    if kind == "nc":
        numbers = (name for name, variable in dataset.data_vars.items() if variable.dtype.kind in "biuf")
        dataset.to_netcdf(path, engine="h5netcdf", encoding={name: {"zlib": True} for name in numbers})
    elif kind == "zarr":
        dataset.to_zarr(path, mode="w", zarr_format=2)
    else:
        raise ValueError(f"path must end in .nc or .zarr; got {path}")


def import_xarray() -> ModuleType:
    """The module xarray, or an ImportError that says what to install."""
    try:
        import h5netcdf  # noqa: F401
        import xarray
    except ImportError as error:
        raise ImportError(f"jaxht.sweep needs {error.name}: pip install 'jax-hard-thresholding[sweep]'") from error
    return xarray
