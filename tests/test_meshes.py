"""Meshes with explicit axes, and ``jax.shard_map`` with its checks, on eight devices of the host:
the results are those of one device."""

import json

import jax
import numpy as np
import pytest

from tests.util import on_devices

pytestmark = [
    pytest.mark.usefixtures("all_quickly"),
    pytest.mark.skipif(
        jax.__version_info__ < (0, 9),
        reason="make_mesh makes other axes, and set_mesh is not there",
    ),
]


def lines_of(group):
    result = on_devices(8, "-m", "tests.meshes", group)
    assert result.returncode == 0, result.stderr[-3000:]
    lines = list(map(json.loads, result.stdout.splitlines()))
    assert lines
    return lines


@pytest.mark.parametrize("group", ["explicit", "shard_map", "context", "transforms"])
def test_results_are_those_of_one_device(group):
    """Of every kind of solver and of every transformation, under jit and operation by operation.

    Results of solvers are on all devices, parameters stay where they were.
    """
    for line in lines_of(group):
        assert line.get("everywhere", True), line["case"]
        found, expected = (
            np.concatenate([np.ravel(part) for part in parts])
            for parts in map(flat, (line["found"], line["expected"]))
        )
        assert found.shape == expected.shape, line["case"]
        np.testing.assert_allclose(found, expected, 2e-4, 2e-5, err_msg=str(line["case"]))


def flat(parts):
    """Lists of lists of numbers as one list of lists of numbers."""
    if parts and isinstance(parts[0], list) and parts[0] and isinstance(parts[0][0], list):
        return [part for group in parts for part in group]
    return [np.atleast_1d(part) for part in parts]
