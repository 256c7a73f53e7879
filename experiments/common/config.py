"""Configurations: a TOML file with the sizes ``[quick]`` and ``[paper]`` over common keys,
validated as a whole.

Those of the demo have a third size, ``[demo]``, of a few seconds.
"""

import json
import tomllib
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

import click
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

SIZES = ("quick", "paper", "demo")
OPTIONAL = {"demo"}
WORDING = {"title", "remark"}  # the keys that change no result


class Failure(click.ClickException):
    """A mistake that the user can mend: one line on standard error, exit code 2, no traceback."""

    exit_code = 2


def identity(dumped: str, apart: Collection[str] = ()) -> dict[str, Any]:
    """Return what identifies results of a configuration, in JSON: all keys but the wording and
    those ``apart``."""
    return {
        key: value
        for key, value in json.loads(dumped).items()
        if key not in WORDING and key not in apart
    }


class BaseConfig(BaseModel):
    """The keys that every experiment has."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    experiment: str  # a name in the registry
    title: str  # of the figure
    remark: str = ""  # what differs from the paper; printed under the figure
    seed: Annotated[int, Field(ge=0)] = 0  # of all random draws
    # minutes: that a run takes on two cores, at most. It orders them, and is no part of what
    # identifies results.
    minutes: Annotated[float | None, Field(gt=0, exclude=True)] = None


Number = TypeVar("Number", int, float)


def rising(values: list[Number]) -> list[Number]:
    """Return the values; ValueError unless each is above the one before."""
    if not values or any(a >= b for a, b in pairwise(values)):
        raise ValueError("must be a list of rising numbers")
    return values


Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Counts = Annotated[list[Count], AfterValidator(rising)]
Positives = Annotated[list[Positive], AfterValidator(rising)]
Names = Annotated[list[str], Field(min_length=1)]
Fractions = Annotated[list[Annotated[float, Field(gt=0, le=1)]], AfterValidator(rising)]


def read(path: Path) -> dict[str, Any]:
    """Return the keys of a TOML file; Failure where it is none."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    except ValueError as error:  # of TOML or of UTF-8
        raise Failure(f"{path}: not valid TOML: {error}") from error


def load(path: Path, size: str, models: Mapping[str, type[BaseConfig]]) -> BaseConfig:
    """Read a configuration in one of its SIZES; all are checked, and a Failure names the file and
    the key."""
    table = read(path)
    name = table.get("experiment")
    if not isinstance(name, str) or name not in models:
        raise Failure(f"{path}: experiment: got {name!r}, known are {', '.join(models)}")
    present = [known for known in SIZES if known in table or known not in OPTIONAL]
    sizes = {known: _merged(path, table, known, models[name]) for known in present}
    if size not in sizes:
        raise Failure(f"{path}: it has no size {size!r}, only {', '.join(sizes)}")
    return sizes[size]


def _merged(path: Path, table: dict[str, Any], size: str, model: type[BaseConfig]) -> BaseConfig:
    own = table.get(size, {})
    if not isinstance(own, dict):
        raise Failure(f"{path}: {size}: must be a table [{size}]; got {own!r}")
    common = {key: value for key, value in table.items() if key not in SIZES}
    try:
        return model.model_validate({**common, **own})
    except ValidationError as error:
        mistakes = "; ".join(_sentence(mistake, size, own) for mistake in error.errors())
        raise Failure(f"{path}: {mistakes}") from error


def _sentence(mistake: Any, size: str, own: Mapping[str, Any]) -> str:
    key = ".".join(map(str, mistake["loc"]))
    if mistake["type"] == "missing":
        return f"{key}: missing, for size {size}"
    where = f"[{size}] {key}" if mistake["loc"] and mistake["loc"][0] in own else key
    if mistake["type"] == "extra_forbidden":
        return f"{where}: unknown key"
    message = mistake["msg"].removeprefix("Value error, ")
    return f"{where}: {message[0].lower()}{message[1:]}; got {mistake['input']!r}"
