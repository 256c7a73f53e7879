"""The benchmarks can be run: each has what it imports, and a function that is called by name."""

import importlib

import pytest

from benchmarks.__main__ import ALONE, NAMES


@pytest.mark.parametrize("name", [*NAMES, *ALONE])
def test_a_benchmark_is_there(name):
    assert callable(importlib.import_module(f"benchmarks.{name}").main)
