"""Where results come from: what is stored with them, and compared before a store is continued."""

import functools
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax


def describe_environment() -> dict[str, Any]:
    """What results may depend on beside the program: versions, device, machine; and the git
    revision of the code."""
    device = jax.devices()[0]
    packages = {name: version(name) for name in ("jax", "jaxlib", "numpy")}
    # The package is not imported, since it imports this module.
    own = sys.modules["jaxht"].__version__
    return {
        "versions": {"python": platform.python_version(), "jaxht": own, **packages},
        "device": f"{device.platform}: {device.device_kind}, {platform.machine()}, "
        f"{os.cpu_count()} cores",
        # Of XLA's pool on the CPU: how a product is split among them may show in its last bits.
        "threads": os.environ.get("NPROC", "as many as cores"),
        "revision": _find_revision(),
    }


def provenance() -> dict[str, Any]:
    """Describe versions, device, machine and the git revision of the code, as attributes of a
    Dataset.

    Returns:
        Strings by name: ``versions`` (JSON), ``device``, ``threads``, ``revision``.
        :func:`jaxht.sweep.run` adds them to its results by itself.

    Cost: one call of git.

    Example:
        >>> from jaxht import sweep
        >>> sorted(sweep.provenance())
        ['device', 'revision', 'threads', 'versions']
    """
    return to_attributes(describe_environment())


def to_attributes(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The environment as strings and numbers, which a Dataset can hold as attributes."""
    return {
        name: value if isinstance(value, str | int) else json.dumps(value)
        for name, value in environment.items()
    }


def hash_program(text: str) -> str:
    """Hash what a module of StableHLO computes, whatever its functions are called.

    Where JAX traces a jitted function twice, the module has two functions that are alike, and other
    numbers in the names of those that follow; whether it does depends on what else the process has
    traced. So each call stands for the hash of what it calls.
    """
    bodies = {function["name"]: function[0] for function in _FUNCTION.finditer(text)}

    @functools.cache
    def hash_function(name: str) -> str:
        def expand(symbol: re.Match[str]) -> str:
            called = symbol[0]
            return hash_function(called) if called != name and called in bodies else called

        return _hash(_SYMBOL.sub(expand, bodies[name].replace(name, "@", 1)))

    around = _FUNCTION.sub("", text)
    return _hash(around + hash_function("@main"))


# A symbol of MLIR, and a function with its body.
_SYMBOL = re.compile(r'@(?:"[^"]*"|[\w.$-]+)')
_FUNCTION = re.compile(
    rf"^  func\.func (?:\w+ )?(?P<name>{_SYMBOL.pattern}).*?^  }}\n", re.MULTILINE | re.DOTALL
)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _find_revision() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
