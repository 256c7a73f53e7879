"""How results came about: what is noted with them, and compared before a store goes on."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax


def environment() -> dict[str, Any]:
    """What results may depend on beside the program: versions, device, machine; and the git revision of the code."""
    device = jax.devices()[0]
    packages = {name: _version(name) for name in ("jaxht", "jax", "jaxlib", "numpy")}
    return {
        "versions": {"python": platform.python_version(), **packages},
        "device": f"{device.platform}: {device.device_kind}, {platform.machine()}, {os.cpu_count()} cores",
        # Of XLA's pool on the CPU: how a product is split among them may show in its last bits.
        "threads": os.environ.get("NPROC", "as many as cores"),
        "revision": _revision(),
    }


def provenance() -> dict[str, Any]:
    """:func:`environment` as attributes of a Dataset."""
    return as_attributes(environment())


def as_attributes(environment: Mapping[str, Any]) -> dict[str, Any]:
    """As attributes of a Dataset: strings and numbers."""
    return {name: value if isinstance(value, str | int) else json.dumps(value) for name, value in environment.items()}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a checkout on the path
        return "not installed"


def _revision() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
