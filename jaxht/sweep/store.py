"""Results as labelled arrays: how they are put together, where they lie on disk, and what is noted with them."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import jax
from numpy.typing import NDArray

if TYPE_CHECKING:
    import xarray

FILE = "results.nc"


def require_xarray() -> ModuleType:
    """The module xarray, or an ImportError that says what to install."""
    try:
        import h5netcdf  # noqa: F401
        import xarray
    except ImportError as error:
        raise ImportError(f"jaxht.sweep needs {error.name}: pip install 'jaxht[sweep]'") from error
    return xarray


def assemble(axes: Mapping[str, Sequence[Any]], results: Mapping[str, NDArray[Any]], seed: int) -> "xarray.Dataset":
    """Label results of shape (cells, trials) by the axes of their grid and ``trial``."""
    shape = tuple(map(len, axes.values()))
    dims = (*axes, "trial")
    data = {name: (dims, values.reshape(*shape, -1)) for name, values in results.items()}
    coords = {**axes, "trial": range(next(iter(results.values())).shape[-1])}
    return require_xarray().Dataset(data, coords={k: list(v) for k, v in coords.items()}, attrs=provenance(seed))


def provenance(seed: int | None = None) -> dict[str, Any]:
    """Attributes that say how a result came about: seed, versions, device."""
    device = jax.devices()[0]
    packages = {name: _version(name) for name in ("jaxht", "jax", "jaxlib", "numpy")}
    return {
        **({} if seed is None else {"seed": seed}),
        "versions": json.dumps({"python": platform.python_version(), **packages}),
        "device": f"{device.platform}: {device.device_kind}, {jax.device_count()} device(s), {platform.machine()}",
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a checkout on the path
        return "not installed"


def save(dataset: "xarray.Dataset", path: str | os.PathLike[str]) -> Path:
    """Write a dataset to the folder ``path``, atomically: at any moment the old one is there whole, or the new one.

    Returns:
        The file, NetCDF 4.
    """
    require_xarray()
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    compressed = {name: {"zlib": True} for name, variable in dataset.data_vars.items() if variable.dtype.kind in "biuf"}
    temporary = folder / f".{FILE}.{os.getpid()}"
    try:
        dataset.to_netcdf(temporary, engine="h5netcdf", encoding=compressed)
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        os.replace(temporary, folder / FILE)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return folder / FILE


def load(path: str | os.PathLike[str]) -> "xarray.Dataset":
    """Read the dataset in the folder ``path`` into memory.

    Raises:
        FileNotFoundError: if there is none.
    """
    file = Path(path) / FILE
    if not file.is_file():
        raise FileNotFoundError(f"no {FILE} in {path}")
    return require_xarray().load_dataset(file, engine="h5netcdf")
