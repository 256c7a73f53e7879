"""The modules that the documents name can be imported, and hold what they say is public."""

import importlib
import types

import pytest

import jaxht

ADVERTISED = [
    "bounds",
    "criteria",
    "ensembles",
    "inference",
    "metrics",
    "operators",
    "phase_diagram",
    "projections",
    "selection",
    "spectral",
]
PACKAGES = [
    "baselines",
    "designs",
    "exact",
    "extend",
    "objectives",
    "pruning",
    "sklearn",
    "solvers",
    "sweep",
    "transforms",
]


def public(module):
    """The names without underscore that are no modules of the library."""
    return {
        name
        for name, value in vars(module).items()
        if name[0] != "_" and not is_part_of_jaxht(value)
    }


def is_part_of_jaxht(value):
    return isinstance(value, types.ModuleType) and value.__name__.startswith("jaxht.")


@pytest.mark.parametrize("name", ADVERTISED)
def test_advertised_modules_are_modules(name):
    module = importlib.import_module(f"jaxht.{name}")
    assert module is getattr(jaxht, name)
    assert public(module) == set(module.__all__)


@pytest.mark.parametrize("name", PACKAGES)
def test_public_packages_say_what_is_public(name):
    module = importlib.import_module(f"jaxht.{name}")
    assert module.__all__ and all(hasattr(module, each) for each in module.__all__)


def test_the_package_shows_what_is_public():
    assert {name for name in dir(jaxht) if name[0] != "_"} == set(jaxht.__all__)
    assert public(jaxht) <= set(jaxht.__all__)
    assert all(hasattr(jaxht, name) for name in jaxht.__all__)
