"""Results on disk: one record for each cell, which grows by more trials."""

import contextlib
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

from jaxht import _storage
from jaxht._storage import hash_json
from jaxht.sweep._provenance import to_attributes
from jaxht.sweep.grid import Grid, GridCell, Indices, Results, Value

if TYPE_CHECKING:
    import xarray

__all__ = ["StoreError", "export", "is_kept", "load", "save"]

MANIFEST = "sweep.json"
CELLS = "cells"
DATASET = "results.npz"
# The number of the manifest's layout; the first one had none.
FORMAT = 3

log = logging.getLogger("jaxht.sweep")


class StoreError(RuntimeError):
    """A store holds something else, or cannot be written: the message says what, and what to do."""


class CellRecord(NamedTuple):
    """The results of the first trials of a cell."""

    coordinates: Mapping[str, Value]  # of the cell
    num_trials: int  # how many trials
    program: str  # fingerprint of the program, behind a hash of the environment that it ran in
    results: Results  # (num_trials,) by name


class Store:
    """A folder with ``sweep.json``, which describes a sweep, and ``cells/<hash>.npz``, a record for
    each cell.

    What determines the results is the same for all calls that share a store. The manifest also
    holds all that they have asked for: the values of each axis, and the largest number of trials.

    Several processes may write to one store: each adds to what is there, alone for that moment
    where the file system has locks. Without locks the manifest may lack what one of two processes
    has asked for, but all records stay, and count.

    Args:
        path: of the folder; made where it is missing.
        call: the manifest of a call on its own: see :meth:`jaxht.sweep.compilation.Sweep.describe`.
        mixed: continue in another environment than the one that began.

    Raises:
        StoreError: if the folder holds another sweep, or if it cannot be written.
    """

    def __init__(
        self, path: str | os.PathLike[str], call: Mapping[str, Any], mixed: bool = False
    ) -> None:
        self.path = Path(path).absolute()
        own = json.loads(json.dumps({"format": FORMAT, **call}))
        # A program's text differs by environment, too, and tells nothing where that differs.
        environment = hash_json(_compared(own["environment"]))
        own["programs"] = {name: f"{environment} {text}" for name, text in own["programs"].items()}
        self._sweep = hash_json(own["sweep"])
        self._programs = own["programs"]
        with self._writing():
            _storage.remove_leftovers(self.path)
            before = read_manifest(self.path) if is_kept(self.path) else None
            if before is not None:
                self._check(before, own, mixed)
            self.manifest = own if before is None else _unite(before, own)
            if self.manifest != before:
                text = json.dumps(self.manifest, indent=2) + "\n"
                _storage.write_file(self.path / MANIFEST, text.encode())

    def _check(self, old: Mapping[str, Any], new: Mapping[str, Any], mixed: bool) -> None:
        """Raise StoreError unless a call goes on with the sweep of the store."""
        if changes := _describe_changes(old["sweep"], new["sweep"]):
            raise StoreError(
                f"{self.path} holds another sweep: {changes}. Give this one another folder."
            )
        changes = _describe_changes(_compared(old["environment"]), _compared(new["environment"]))
        if changes and not mixed:
            raise StoreError(
                f"{self.path} was begun in another environment: {changes}. Results may differ in "
                "their last bits; to go on nevertheless, pass mixed=True (on the command line "
                "--mixed)."
            )
        for name, program in old["programs"].items():
            self._check_program(name, program)

    def _check_program(self, name: str, found: str) -> None:
        """Raise StoreError if another program of this name ran in the same environment."""
        own = self._programs.get(name, found)
        same_environment = found.partition(" ")[0] == own.partition(" ")[0]
        if found != own and same_environment:
            raise StoreError(
                f"{self.path} holds another sweep: the trial (its code, tolerances, metrics or "
                f"data) has changed, in the program of {name}. Give this one another folder."
            )

    def write(self, cell: GridCell, trials: Indices, results: Results) -> None:
        """Store results of some trials of a cell, durably when this returns."""
        with self._writing():
            record = self._extend(cell, trials, results)
            if record is None:  # removed or damaged meanwhile
                log.warning(
                    "The first trials of %s are gone, and will be computed again",
                    dict(cell.coordinates),
                )
                return
            path = record_path(cell.coordinates)
            metadata = record._asdict()
            arrays = metadata.pop("results")
            _storage.write_record(
                self.path / path, _fingerprint(self._sweep, path), arrays, metadata
            )

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """A context in which no other process writes to the store, if the file system has locks."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with _storage.lock_folder(self.path):
                yield
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot be written: {error.strerror or error}. What was stored before "
                "is safe, and the same call goes on from there."
            ) from error

    def read(self, cell: GridCell) -> CellRecord | None:
        """The record of a cell; None if it is missing or damaged. StoreError for another trial."""
        record = read_record(self.path / record_path(cell.coordinates), self._sweep)
        if record is not None:
            self._check_program(cell.program_name, record.program)
        return record

    def _extend(self, cell: GridCell, trials: Indices, results: Results) -> CellRecord | None:
        """The record of a cell with trials added or replaced; None if others would be missing."""
        old = self.read(cell)
        old_results = {} if old is None else old.results
        num_old = 0 if old is None else old.num_trials
        num_trials = max(num_old, int(trials[-1]) + 1)
        num_added = np.count_nonzero(trials >= num_old)
        if num_added < num_trials - num_old:
            return None
        extended = {}
        for name, values in {**old_results, **results}.items():
            blanks = make_blanks(num_trials, values.dtype)
            whole = blanks.copy()
            whole[:num_old] = old_results.get(name, blanks[:num_old])
            whole[trials] = results.get(name, blanks[trials])
            # Of trials that were ended, and have run again, no limit is left.
            if name in results or not np.array_equal(whole, blanks, equal_nan=True):
                extended[name] = whole
        program = self._programs.get(cell.program_name, "")
        return CellRecord(
            coordinates=dict(cell.coordinates),
            num_trials=num_trials,
            program=program,
            results=extended,
        )

    def collect(self, grid: Grid, num_trials: int) -> "xarray.Dataset":
        """The results of the cells of a grid, as many of their first trials as are there."""
        records = filter(None, map(self.read, grid.cells))
        return _to_dataset(self.manifest, grid.axes, num_trials, records)


def read_record(file: Path, sweep: str) -> CellRecord | None:
    """A record; None if it is missing, damaged, or of another sweep than that with this hash."""
    try:
        record = _storage.read_record(file, _fingerprint(sweep, file))
    except _storage.FingerprintError:
        log.warning("%s is of another sweep or cell, and counts as missing", file)
        return None
    return record and CellRecord(results=record.arrays, **record.metadata)


def read_manifest(path: Path) -> dict[str, Any]:
    """The description of the sweep in a store."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        found = manifest.get("format", 1)
        if found == FORMAT:
            names = ("format", "sweep", "environment", "programs", "axes", "num_trials", "attrs")
            return {name: manifest[name] for name in names}
    except (ValueError, KeyError, AttributeError) as error:
        raise StoreError(
            f"{path / MANIFEST} is damaged ({error!r}): remove the folder, or put it back"
        ) from error
    age = "an older" if found < FORMAT else "a newer"
    raise StoreError(
        f"{path} was written by {age} version of jaxht: read it with that one, or give another "
        "folder"
    )


def read_axes(path: str | os.PathLike[str]) -> dict[str, list[Value]]:
    """The values that calls on a store have asked for, by axis; none where there is no store."""
    return dict(read_manifest(Path(path))["axes"]) if is_kept(path) else {}


def _unite(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a store for a call beside those before."""
    axes = {name: _unite_values(values, new["axes"][name]) for name, values in old["axes"].items()}
    return {
        **old,
        "programs": {**new["programs"], **old["programs"]},
        "axes": axes,
        "num_trials": max(old["num_trials"], new["num_trials"]),
        "attrs": new["attrs"],
    }


def _unite_values(old: Sequence[Value], new: Iterable[Value]) -> list[Value]:
    """The values of an axis with others: numbers rise then, strings are appended."""
    united = list(dict.fromkeys([*old, *new]))
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


def load(path: str | os.PathLike[str], fingerprint: str | None = None) -> "xarray.Dataset":
    """Read the results in a folder into memory, finished or not.

    Args:
        path: the ``store`` of :func:`jaxht.sweep.run`, or the folder of :func:`save`.
        fingerprint: what :func:`save` was given; None: anything.

    Returns:
        For a sweep, a Dataset with all of its results as variables over ``trial`` and its axes,
        which hold all values that any call has asked for, with the attributes of the last one;
        ``num_trials`` over its axes, how many trials of a cell are stored; and ``done``, whether
        these are as many as any call has asked for. The results of other trials are NaN, 0 or
        False; so are those of trials that were ended by ``trial_timeout``, where
        ``timed_out_after`` is not NaN. Otherwise what :func:`save` wrote.

    Raises:
        FileNotFoundError: if nothing is there, or nothing that is undamaged.
        ValueError: if :func:`save` was given another fingerprint.
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
        return _load_dataset(path, fingerprint)
    manifest = read_manifest(path)
    sweep = hash_json(manifest["sweep"])
    files = sorted((path / CELLS).glob("*.npz"))
    records = [record for file in files if (record := read_record(file, sweep))]
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
    records: Iterable[CellRecord],
) -> "xarray.Dataset":
    """The first trials of some records as labelled arrays."""
    shape = tuple(map(len, axes.values()))
    positions = {point: index for index, point in enumerate(itertools.product(*axes.values()))}
    records = list(records)
    # A result may be an integer in one program, and a float in another, which holds both.
    dtypes: dict[str, np.dtype[Any]] = {}
    for record in records:
        for name, values in record.results.items():
            dtypes[name] = np.result_type(values.dtype, dtypes.get(name, values.dtype))
    counts = np.zeros(len(positions), int)
    data = {
        name: make_blanks((len(positions), num_trials), dtype) for name, dtype in dtypes.items()
    }
    for record in records:
        index = positions[tuple(record.coordinates[name] for name in axes)]
        size = min(record.num_trials, num_trials)
        counts[index] = size
        for name, values in record.results.items():
            data[name][index, :size] = values[:size]
    variables = {
        name: ((*axes, "trial"), whole.reshape(*shape, num_trials)) for name, whole in data.items()
    }
    counts = counts.reshape(shape)
    cells = {"num_trials": (tuple(axes), counts), "done": (tuple(axes), counts == num_trials)}
    return import_xarray().Dataset(
        {**variables, **cells},
        coords={**axes, "trial": range(num_trials)},
        attrs={
            **manifest["attrs"],
            "seed": manifest["sweep"]["seed"],
            **to_attributes(manifest["environment"]),
        },
    )


def make_blanks(shape: int | tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """What stands for results that are not there: NaN, 0 or False."""
    return np.full(shape, np.nan if np.dtype(dtype).kind in "fc" else 0, dtype)


def record_path(coordinates: Mapping[str, Value]) -> Path:
    """The path of the record of a cell, in the folder of the store."""
    return Path(CELLS) / f"{hash_json(coordinates)[:16]}.npz"


def _fingerprint(sweep: str, record: Path) -> str:
    """The fingerprint of a record of the sweep with this hash."""
    return f"{sweep} {record.stem}"


def _compared(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The environment without the revision: code is compared by the fingerprints of programs."""
    return {name: value for name, value in environment.items() if name != "revision"}


def _describe_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{name} was {_shorten(old.get(name))}, is {_shorten(new.get(name))}"
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    )


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def save(dataset: "xarray.Dataset", path: str | os.PathLike[str], fingerprint: str = "") -> Path:
    """Write a dataset that is no sweep to a folder, whole or not at all.

    Args:
        dataset: of numbers and strings, with attributes that JSON can hold.
        path: of the folder, made where it is missing. :func:`load` reads it.
        fingerprint: says what the dataset was computed from, for :func:`load` to compare.

    Returns:
        The file, in NumPy's format .npz.

    Raises:
        OSError: if it cannot be written.
        TypeError: for other objects, and for attributes that JSON cannot hold.

    Cost: one write of the data, compressed.

    Example:
        >>> import tempfile
        >>> import xarray
        >>> from jaxht import sweep
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = sweep.save(xarray.Dataset({"x": ("t", [1.0, 2.0])}), folder)
        ...     file.name, sweep.load(folder).x.values.tolist()
        ('results.npz', [1.0, 2.0])
    """
    arrays = {}
    for name, variable in dataset.variables.items():
        values = variable.values
        if values.dtype.kind == "O":
            if not all(isinstance(value, str) for value in values.ravel()):
                raise TypeError(f"{name} must hold numbers or strings")
            values = values.astype(str)
        if values.dtype.isbuiltin == 2:  # of a package, such as bfloat16
            raise TypeError(f"{name} has dtype {values.dtype}, which files cannot hold")
        arrays[str(name)] = values
    file = Path(path) / DATASET
    _storage.write_record(file, fingerprint, arrays, dataset.to_dict(data=False))
    return file


def _load_dataset(path: Path, fingerprint: str | None) -> "xarray.Dataset":
    """What :func:`save` wrote to a folder."""
    record = _storage.read_record(path / DATASET, fingerprint)
    if record is None:
        raise FileNotFoundError(f"neither {MANIFEST} nor a sound {DATASET} in {path}")
    description = record.metadata
    for part in "coords", "data_vars":
        for name, variable in description[part].items():
            variable["data"] = record.arrays[name]
    return import_xarray().Dataset.from_dict(description)


def export(dataset: "xarray.Dataset", path: str | os.PathLike[str]) -> None:
    """Write a dataset to one file ``path``.nc (NetCDF 4) or folder ``path``.zarr, compressed,
    replacing what is there.

    Args:
        dataset: results of :func:`jaxht.sweep.run` or :func:`load`, or any other.
        path: of the file or folder.

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
    ending = Path(path).suffix
    texts = {
        name: json.dumps(value) for name, value in dataset.attrs.items() if not _is_attribute(value)
    }
    dataset = dataset.assign_attrs(texts)
    if ending == ".nc":
        numbers = [
            name for name, values in dataset.data_vars.items() if values.dtype.kind in "biuf"
        ]
        encoding = {name: {"zlib": True} for name in numbers}
        dataset.to_netcdf(path, engine="h5netcdf", encoding=encoding)
    elif ending == ".zarr":
        dataset.to_zarr(path, mode="w", zarr_format=2)
    else:
        raise ValueError(f"path must end in .nc or .zarr; got {path}")


def _is_attribute(value: Any) -> bool:
    """Whether NetCDF has such attributes: text or numbers, or a list of one of these kinds."""
    if isinstance(value, np.ndarray | np.generic):
        return True
    values = value if isinstance(value, list) else [value]
    kinds = {type(each) for each in values}
    if kinds <= {int, float}:
        return all(abs(each) < 2**63 for each in values if isinstance(each, int))
    return kinds == {str}


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
