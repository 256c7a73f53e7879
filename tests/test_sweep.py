"""What the trials of a sweep draw and share, and the arguments that it takes."""

import json
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxht import HTP, sweep
from tests.sweeps import bits
from tests.util import x64

pytestmark = pytest.mark.usefixtures("all_quickly")


# ---- what is drawn -------------------------------------------------------------------------------


def test_a_finer_grid_changes_nothing_drawn():
    coarse = sweep.run(bits, {"n": [8, 16], "K": [2, 4]}, num_trials=3, seed=7)
    fine = sweep.run(
        bits,
        {"K": [1, 2, 3, 4.0], "solver": ["a", "b"], "n": np.arange(4, 20, 2)},
        num_trials=11,
        seed=7,
    )
    for solver in fine.solver:
        common = fine.sel(solver=solver, n=coarse.n, K=coarse.K, trial=coarse.trial).drop_vars(
            "solver"
        )
        for name in "own", "shared":
            xarray.testing.assert_equal(common[name].transpose(*coarse.dims), coarse[name])
    assert len(np.unique(fine.own)) == fine.sizes["n"] * fine.sizes["K"] * fine.sizes["trial"]
    other = sweep.run(bits, {"n": [8, 16], "K": [2, 4]}, num_trials=3, seed=8)
    assert not (other.own == coarse.own).any()


def test_what_cells_share():
    def shared(**options):
        return sweep.run(bits, {"n": [8, 16], "K": [2, 4]}, num_trials=3, **options)

    alone, by_n, everywhere = shared(), shared(shared=["n"]), shared(shared=[])
    xarray.testing.assert_equal(alone.own, by_n.own)
    xarray.testing.assert_equal(alone.own, everywhere.own)
    assert len(np.unique(alone["shared"])) == 4
    assert (by_n["shared"] == by_n["shared"].isel(K=0, trial=0)).all()
    assert len(np.unique(by_n["shared"])) == 2
    assert len(np.unique(everywhere["shared"])) == 1


def test_hashes_are_stable():
    assert sweep.stable_hash({"n": 8, "K": 2}) == sweep.stable_hash({"K": 2, "n": 8}) == 0x52FCABAE
    assert sweep.stable_hash("HTP") != sweep.stable_hash("IHT")


def test_equal_hashes_mix_no_cells():
    """32 bits may coincide; then cells share draws, but never what they are."""
    same_hash = [1201935968, 1889808839]
    assert len({sweep.stable_hash({"K": K}) for K in same_hash}) == 1

    def trial(key, cell):
        return {"half": cell["K"] // 2, "bits": jax.random.bits(cell.key)}

    dataset = sweep.run(trial, {"K": same_hash}, num_trials=20)
    assert (dataset.half == dataset.K // 2).all()
    assert len(np.unique(dataset.bits)) == 1


def test_where_leaves_cells_out():
    dataset = sweep.run(
        bits,
        {"n": [8, 16], "K": [2, 4]},
        num_trials=3,
        where=lambda cell: cell["n"] > 4 * cell["K"] - 1,
    )
    np.testing.assert_array_equal(dataset.done, [[True, False], [True, True]])
    full = sweep.run(bits, {"n": [8, 16], "K": [2, 4]}, num_trials=3)
    xarray.testing.assert_equal(dataset.own.where(dataset.done, 0), full.own.where(dataset.done, 0))
    assert (dataset.own.sel(n=8, K=4) == 0).all()


# ---- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"axes": {"K": []}}, "K"),
        ({"axes": {"K": [1, 1.0]}}, "distinct"),
        ({"axes": {"K": [1, None]}}, "axis 'K' must hold numbers or strings; got None"),
        ({"axes": {"K": [(1, 2), (3, 4)]}}, r"axis 'K' must hold .*; got \(1, 2\)"),
        ({"axes": {"K": [[1, 2]]}}, r"axis 'K' must hold .*; got \[1, 2\]"),
        ({"axes": {"K": [np.arange(2)]}}, r"axis 'K' must hold .*; got int64\[2\]"),
        ({"axes": {"K": [1j]}}, "axis 'K' must hold .*; got complex"),
        ({"axes": {"K": [HTP()]}}, "axis 'K' must hold .*; got HTP"),
        ({"axes": {"K": [1, float("nan")]}}, "axis 'K' holds NaN"),
        ({"axes": {"K": np.array([np.nan], np.float32)}}, "axis 'K' holds NaN"),
        ({"axes": {"K": ["auto", 1]}}, "axis 'K' .* not both"),
        ({"axes": {"K": "HTP"}}, "axis 'K' must be a sequence.* 'HTP'"),
        ({"axes": {"K": 3}}, "axis 'K' must be a sequence.* 3"),
        ({"axes": {1: [3]}}, "axes must be named by strings; got 1"),
        ({"axes": {"done": [3]}}, "no axis may be named 'done'"),
        ({"axes": {"K": [16777217, 0.5]}}, "16777217 .* rounds it to 16777216"),
        ({"axes": {"K": [1, 2**31]}}, "2147483648, beyond the int32"),
        ({"axes": {"K": [-(2**31) - 1]}}, "-2147483649, beyond the int32"),
        ({"axes": {"K": [2**63]}, "static": ["K"]}, "beyond the integers of 64 bits"),
        ({"axes": {"K": [0.5, 1e39]}}, "1e.39, which is inf in float32"),
        ({"axes": {"K": [0.5, 1e-60]}}, "1e-60, which is 0.0 in float32"),
        ({"static": "K"}, "static must hold names"),
        ({"axes": [1, 2]}, "axes must map names"),
        ({"trial": None}, "trial must be a function"),
        ({"shard": 1}, "shard must be a pair"),
        ({"shard": (0.0, 2)}, "shard must be a pair"),
        ({"attrs": {"a": jnp.ones(2)}}, "attrs must hold .* 'a' is float"),
        ({"round_up": {"K": 0}}, "round_up needs"),
        ({"axes": {"K": [0.5]}, "round_up": {"K": 2}}, "round_up needs"),
        ({"axes": {"K": ["a"]}, "round_up": {"K": 2}}, "round_up needs"),
        ({"seed": -1}, "seed must"),
        ({"seed": 2**32}, "seed must"),
        ({"seed": 0.5}, "seed must"),
        ({"num_trials": 2.5}, "num_trials must"),
        ({"num_trials": 2**31}, "num_trials must"),
        ({"static": ["n"]}, "static"),
        ({"problem": ["n"]}, "problem"),
        ({"shared": ["n"]}, "shared"),
        ({"problem": [], "shared": ["K"]}, "shared.*problem"),
        ({"round_up": {"n": 8}}, "round_up"),
        ({"axes": {"trial": [1]}}, "trial"),
        ({"num_trials": 0}, "num_trials"),
        ({"num_trials": True}, "num_trials must"),
        ({"num_trials": None}, "num_trials must"),
        ({"workers": 0}, "workers"),
        ({"max_lanes": 0}, "max_lanes"),
        ({"memory": 0}, "memory"),
        ({"shard": (2, 2)}, "shard"),
        ({"trial_timeout": 0}, "trial_timeout"),
        ({"trial": lambda key, cell: {"K": cell["K"]}}, "name of an axis"),
        ({"trial": lambda key, cell: {"done": cell["K"]}}, "reserved"),
        ({"trial": lambda key, cell: {"x": jnp.zeros(3)}}, "scalars"),
    ],
)
def test_invalid_arguments_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        sweep.run(**{"trial": bits, "axes": {"K": [1, 2]}, "num_trials": 2, **options})


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ([2**31 - 1, -(2**31), 16777217], {}),
        ([2**40, 2**62 + 1], {"static": ["K"]}),
        ([16777216, 0.5], {}),
        ([1e10, 2e30], {}),
        ([1, 2.0**60], {}),
        ([float("inf"), -1.5], {}),
        ([-0.0, 0.5], {}),
        ([False, True], {}),
        (np.array([0.1, 3], np.float32), {}),
        (np.array([2**32 - 1], np.uint64), {"static": ["K"]}),
        (jnp.arange(3), {}),
        ([jnp.float32(0.5), np.int8(3)], {}),
    ],
)
def test_the_values_of_an_axis_stay_exact(values, options, tmp_path):
    """The trial computes with them, the dataset is labelled by them, and the store returns both."""

    def trial(key, cell):
        return {"low": cell["K"] % 1024}

    with x64(False):
        for num_trials in (1, np.int64(2)):
            found = sweep.run(
                trial, {"K": values}, num_trials=num_trials, store=tmp_path, workers=1, **options
            )
    assert sweep.load(tmp_path).identical(found)
    numbers = [np.asarray(value).item() for value in values]
    assert found.K.values.tolist() == numbers
    for number, low in zip(numbers, found.low.values[:, 1], strict=True):
        exact = number if isinstance(number, int) else np.float32(number).item()
        if np.isfinite(number):
            assert low == pytest.approx(exact % 1024, rel=1e-6)


def test_missing_xarray(monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ImportError, match=r"jax-hard-thresholding\[sweep\]"):
        sweep.run(bits, {"K": [1]}, num_trials=1)


def test_results_with_any_attributes_are_exported(tmp_path):
    def trial(key, cell):
        return {"x": jnp.asarray(cell["a"], float)}

    attributes = {"flag": True, "none": None, "table": {"a": 1}, "text": "b", "number": 2.0}
    results = sweep.run(trial, {"a": [1.0]}, num_trials=1, attrs=attributes)
    sweep.export(results, tmp_path / "x.nc")
    with xarray.open_dataset(tmp_path / "x.nc") as read:
        assert json.loads(read.attrs["flag"]) is True
        assert json.loads(read.attrs["none"]) is None
        assert json.loads(read.attrs["table"]) == {"a": 1}
        assert (read.attrs["text"], read.attrs["number"]) == ("b", 2)


def test_a_store_stays_where_it_was(tmp_path, monkeypatch):
    """Its path is read once, whatever the process's folder is later."""
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    sweep.run(
        lambda key, cell: {"double": 2 * cell["p"]},
        {"p": [1, 2]},
        num_trials=2,
        store="mine",
        on_progress=lambda progress: os.chdir(elsewhere),
    )
    assert sweep.load(tmp_path / "mine").done.all() and not any(elsewhere.iterdir())


def test_booleans_are_the_coordinates_0_and_1(tmp_path):
    def trial(key, cell):
        return {"bits": jax.random.bits(key)}

    found = sweep.run(trial, {"p": [False, True]}, num_trials=2, store=tmp_path)
    grown = sweep.run(trial, {"p": [0, 1]}, num_trials=3, store=tmp_path)
    np.testing.assert_array_equal(grown.bits[:, :2], found.bits)
    assert sweep.load(tmp_path).done.all()
