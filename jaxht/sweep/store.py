"""Results on disk: one file for each cell, written atomically, checked when it is read, extended by
more trials."""

import contextlib
import hashlib
import io
import itertools
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jaxht.sweep._files import lock_folder, remove_leftovers, replace_file
from jaxht.sweep._provenance import to_attributes
from jaxht.sweep.grid import Grid, GridCell, Value

if TYPE_CHECKING:
    import xarray

MANIFEST = "sweep.json"
CELLS = "cells"
FILE = "results.nc"
# Of what a manifest holds; that of records by the position of their cell had no number.
FORMAT = 2
Results = Mapping[str, NDArray[Any]]

log = logging.getLogger("jaxht.sweep")


class StoreError(RuntimeError):
    """A store holds something else, or cannot be written: the message says what, and what to do."""


class Record(NamedTuple):
    """The results of the first trials of a cell.

    Attributes:
        coordinates: of the cell.
        num_trials: how many trials.
        program: fingerprint of the program, behind a hash of the environment that it ran in.
        results: (num_trials,) by name.
    """

    coordinates: Mapping[str, Value]
    num_trials: int
    program: str
    results: Results


class Store:
    """A folder with ``sweep.json``, which describes a sweep, and ``cells/<hash>.npz``, one record
    for each cell.

    What determines the results is the same for all calls that share a store. The manifest also
    holds what they have asked for, all values of each axis and the largest number of trials, and of
    each program a fingerprint.

    A record is written under another name, synced and renamed, and holds what it is a record of,
    and a checksum of its
    own: it is there whole or not at all, and one that is damaged, or of another sweep, does not
        count. Several
    processes may write to one store: each adds to what is there, alone for that moment where the
    file system has locks. Without locks the manifest may lack what one of two processes has asked
    for, but all records stay, and count.

    Args:
        path: of the folder; made where it is missing.
        call: the manifest of a call on its own: see :meth:`jaxht.sweep.compilation.Sweep.describe`.
        mixed: continue in another environment than the one that began.

    Raises:
        StoreError: if the folder holds another sweep, saying what differs; or if it cannot be
        written.
    """

    def __init__(
        self, path: str | os.PathLike[str], call: Mapping[str, Any], mixed: bool = False
    ) -> None:
        self.path = Path(path)
        own = json.loads(json.dumps({"format": FORMAT, **call}))
        compared = {
            name: value for name, value in own["environment"].items() if name not in NOT_COMPARED
        }
        # A program's text differs by environment, too, and tells nothing where that differs.
        own["programs"] = {
            name: f"{hash_json(compared)} {text}" for name, text in own["programs"].items()
        }
        self._sweep, self._programs = hash_json(own["sweep"]), own["programs"]
        with self._writing():
            remove_leftovers(self.path)
            before = read_manifest(self.path) if is_kept(self.path) else None
            if before is not None:
                self._compare(before, own, mixed)
            self.manifest = own if before is None else _unite(before, own)
            if self.manifest != before:
                self._replace(Path(MANIFEST), (json.dumps(self.manifest, indent=2) + "\n").encode())

    def _compare(self, old: Mapping[str, Any], new: Mapping[str, Any], mixed: bool) -> None:
        if changes := _describe_changes(old["sweep"], new["sweep"]):
            raise StoreError(
                f"{self.path} holds another sweep: {changes}. Give this one another folder."
            )
        changes = _describe_changes(old["environment"], new["environment"], but=NOT_COMPARED)
        if changes and not mixed:
            raise StoreError(
                f"{self.path} was begun in another environment: {changes}. Results may differ in their last bits; "
                "to go on nevertheless, pass mixed=True (on the command line --mixed)."
            )
        for name, program in new["programs"].items():
            self._check_program(name, old["programs"].get(name, program))

    def _check_program(self, name: str, found: str) -> None:
        """Raise StoreError unless a fingerprint is that of the program of this name, or of another
        environment."""
        ours = self._programs.get(name, found)
        if found != ours and found.partition(" ")[0] == ours.partition(" ")[0]:
            raise StoreError(
                f"{self.path} holds another sweep: the trial (its code, tolerances, metrics or data) has changed, in "
                f"the program of {name}. Give this one another folder."
            )

    def write(self, cell: GridCell, trials: NDArray[np.int32], results: Results) -> None:
        """Store the results of some trials of a cell beside what is there, durably when this
        returns."""
        with self._writing():
            record = _extend(self.read(cell), trials, results)
            if record is None:  # removed or damaged meanwhile
                log.warning(
                    "The first trials of %s are gone, and will be computed again",
                    dict(cell.coordinates),
                )
                return
            num_trials, extended = record
            description = {
                "sweep": self._sweep,
                "coordinates": dict(cell.coordinates),
                "num_trials": num_trials,
                "program": self._programs.get(cell.program_name, ""),
            }
            content: dict[str, Any] = {
                **extended,
                "record": np.array(json.dumps(description).encode()),
            }
            file = io.BytesIO()
            np.savez(file, **content, checksum=np.array(_compute_checksum(content)))
            self._replace(record_path(cell.coordinates), file.getvalue())

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """A context in which no other process writes to the store, where the file system has
        locks."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with lock_folder(self.path):
                yield
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot be written: {error.strerror or error}. What was stored before is safe, "
                "and the same call goes on from there."
            ) from error

    def _replace(self, name: Path, content: bytes) -> None:
        with replace_file(self.path / name) as temporary:
            temporary.write_bytes(content)

    def read(self, cell: GridCell) -> Record | None:
        """The record of a cell; None if it is missing or damaged. StoreError if another trial has
        written it."""
        record = read_record(self.path / record_path(cell.coordinates), self._sweep)
        if record is not None:
            self._check_program(cell.program_name, record.program)
        return record

    def collect(self, grid: Grid, num_trials: int) -> "xarray.Dataset":
        """The results of the cells of a grid, as many of their first trials as are there."""
        return _to_dataset(
            self.manifest, grid.axes, num_trials, filter(None, map(self.read, grid.cells))
        )


# Stored, but not compared: the code itself is compared by the fingerprints of its programs.
NOT_COMPARED = ("revision",)


def _extend(
    old: Record | None, trials: NDArray[np.int32], results: Results
) -> tuple[int, Results] | None:
    """Number and results of a record's trials with some added or replaced; None where others would
    be missing."""
    kept = 0 if old is None else old.num_trials
    size = max(kept, int(trials[-1]) + 1)
    if np.sum(trials >= kept) < size - kept:
        return None
    before = {} if old is None else old.results
    extended = {}
    for name in {**before, **results}:
        dtype = (results if name in results else before)[name].dtype
        whole = make_blanks(size, dtype)
        whole[:kept] = before.get(name, whole[:kept])
        whole[trials] = results.get(name, make_blanks((), dtype))
        # Of trials that were ended, and have run again, no limit is left.
        if name in results or not np.array_equal(whole, make_blanks(size, dtype), equal_nan=True):
            extended[name] = whole
    return size, extended


def read_record(file: Path, sweep: str) -> Record | None:
    """A record; None if it is missing, damaged, or of another sweep than that with this hash."""
    try:
        # From memory: a damaged file would be left open.
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as archive:
            content = {name: archive[name] for name in archive.files}
        checksum = str(content.pop("checksum"))
        is_sound = checksum == _compute_checksum(content)
        description = json.loads(content.pop("record").item())
        found, coordinates = description["sweep"], description["coordinates"]
        record = Record(coordinates, description["num_trials"], description["program"], content)
    except FileNotFoundError:
        return None
    except Exception as error:  # whatever zipfile, NumPy and JSON make of a damaged file
        log.warning("%s is damaged and will be computed again: %s", file, error)
        return None
    if not is_sound or found != sweep or record_path(coordinates).name != file.name:
        log.warning("%s is damaged or of another sweep, and will be computed again", file)
        return None
    return record


def read_manifest(path: Path) -> dict[str, Any]:
    """The description of the sweep in a store."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if manifest.get("format", 1) == FORMAT:
            names = ("format", "sweep", "environment", "programs", "axes", "num_trials", "attrs")
            return {name: manifest[name] for name in names}
    except (ValueError, KeyError, AttributeError) as error:
        raise StoreError(
            f"{path / MANIFEST} is damaged ({error!r}): remove the folder, or put it back"
        ) from error
    age = "an older" if manifest.get("format", 1) < FORMAT else "a newer"
    raise StoreError(
        f"{path} was written by {age} version of jaxht: read it with that one, or give another folder"
    )


def read_axes(path: str | os.PathLike[str]) -> dict[str, list[Value]]:
    """All values that calls on a store have asked for, by axis; none where there is no store."""
    return dict(read_manifest(Path(path))["axes"]) if is_kept(path) else {}


def _unite(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a store for a call beside those before: its attributes, and all that was ever
    asked for."""
    return {
        **old,
        "programs": {**new["programs"], **old["programs"]},
        "axes": {
            name: _unite_values(values, new["axes"][name]) for name, values in old["axes"].items()
        },
        "num_trials": max(old["num_trials"], new["num_trials"]),
        "attrs": new["attrs"],
    }


def _unite_values(old: Sequence[Value], new: Iterable[Value]) -> list[Value]:
    """The values of an axis with others: numbers rise then, strings are appended."""
    united = [*dict.fromkeys([*old, *new])]
    if len(united) == len(old) or any(isinstance(value, str) for value in united):
        return united
    return sorted(united)


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
        For a sweep, a Dataset with all of its results as variables over ``trial`` and its axes,
        which hold all values that any call has asked for, with the attributes of the last one;
        ``num_trials`` over its axes, how many trials of a cell are stored; and ``done``, whether
        these are as many as any call has asked for. The results of other trials are NaN, 0 or
        False; so are those of trials that were ended by ``trial_timeout``, where
        ``timed_out_after`` is not NaN. Otherwise what :func:`save` wrote.

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
    sweep = hash_json(manifest["sweep"])
    records = [
        record
        for file in sorted((path / CELLS).glob("*.npz"))
        if (record := read_record(file, sweep))
    ]
    # Where the file system has no locks, there may be records of which the manifest does not know.
    axes = {
        name: _unite_values(values, (record.coordinates[name] for record in records))
        for name, values in manifest["axes"].items()
    }
    num_trials = max([manifest["num_trials"], *(record.num_trials for record in records)])
    return _to_dataset(manifest, axes, num_trials, records)


def _to_dataset(
    manifest: Mapping[str, Any],
    axes: Mapping[str, Sequence[Value]],
    num_trials: int,
    records: Iterable[Record],
) -> "xarray.Dataset":
    """The first trials of some records as labelled arrays."""
    shape = tuple(map(len, axes.values()))
    positions = {point: index for index, point in enumerate(itertools.product(*axes.values()))}
    counts = np.zeros(len(positions), int)
    data: dict[str, Any] = {}
    for record in records:
        index = positions[tuple(record.coordinates[name] for name in axes)]
        counts[index] = size = min(record.num_trials, num_trials)
        for name, values in record.results.items():
            whole = data.setdefault(name, make_blanks((len(counts), num_trials), values.dtype))
            whole[index, :size] = values[:size]
    variables = {
        name: ((*axes, "trial"), whole.reshape(*shape, -1)) for name, whole in data.items()
    }
    counts = counts.reshape(shape)
    return import_xarray().Dataset(
        {
            **variables,
            "num_trials": (tuple(axes), counts),
            "done": (tuple(axes), counts == num_trials),
        },
        coords={**axes, "trial": range(num_trials)},
        attrs={
            **manifest["attrs"],
            "seed": manifest["sweep"]["seed"],
            **to_attributes(manifest["environment"]),
        },
    )


def make_blanks(shape: int | tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """What stands for results that are not there: NaN, 0 or False."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 0, dtype)


def record_path(coordinates: Mapping[str, Value]) -> Path:
    """Where the record of a cell is, in the folder of the store."""
    return Path(CELLS) / f"{hash_json(coordinates)[:16]}.npz"


def _compute_checksum(content: Results) -> str:
    digest = hashlib.sha256()
    for name, values in sorted(content.items()):
        digest.update(f"{name} {values.dtype.str} {values.shape} ".encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def hash_json(description: Mapping[str, Any]) -> str:
    """Hash what JSON can hold; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def _describe_changes(
    old: Mapping[str, Any], new: Mapping[str, Any], but: Sequence[str] = ()
) -> str:
    return "; ".join(
        f"{name} was {_shorten(old.get(name))}, is {_shorten(new.get(name))}"
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name) and name not in but
    )


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def save(dataset: "xarray.Dataset", path: str | os.PathLike[str]) -> Path:
    """Write a dataset that is no sweep to a folder, atomically: at any moment the old one is there,
    or the new one.

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
    with replace_file(file) as temporary:
        export(dataset, temporary, "nc")
    return file


def export(
    dataset: "xarray.Dataset", path: str | os.PathLike[str], kind: str | None = None
) -> None:
    """Write a dataset to one file ``path``.nc (NetCDF 4) or folder ``path``.zarr, compressed,
    replacing what is there.

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
        numbers = (
            name for name, variable in dataset.data_vars.items() if variable.dtype.kind in "biuf"
        )
        dataset.to_netcdf(
            path, engine="h5netcdf", encoding={name: {"zlib": True} for name in numbers}
        )
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
        raise ImportError(
            f"jaxht.sweep needs {error.name}: pip install 'jax-hard-thresholding[sweep]'"
        ) from error
    return xarray
