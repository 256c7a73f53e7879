"""The store of a sweep: no result is lost, computed twice, or read when damaged."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import xarray

from jaxht import Stop, sweep
from jaxht.sweep import store as store_module
from tests.test_sweep import METHODS, problem, same_bits
from tests.util import compiled_quickly

ROOT = Path(__file__).parents[1]


def draws(key, cell):
    """A trial in one piece, with results of several types."""
    return {"bits": jax.random.bits(key), "u": jax.random.uniform(key), "low": jax.random.uniform(key) < cell["K"] / 4}


AXES = {"n": [8, 16], "K": [1, 2, 3]}


def small(path=None, **options):
    return sweep.run(**{"trial": draws, "axes": AXES, "num_trials": 5, "store": path, **options})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole")
    return path, small(path)


@pytest.fixture
def copy(whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "copy")
    return tmp_path / "copy"


def cells(path):
    return sorted((path / "cells").glob("*.npz"))


def content(path):
    """Every file, by name."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def computed(path, **options):
    """What a call finds to do: the number of trials, and the results."""
    totals = []
    dataset = small(path, on_progress=lambda progress: totals.append(progress.total), **options)
    return totals[0], dataset


# ---- what is stored --------------------------------------------------------------------------------------------------


def test_the_store_is_the_result(whole):
    path, dataset = whole
    same_bits(dataset, small())
    xarray.testing.assert_identical(sweep.load(path), dataset)
    assert {name: str(variable.dtype) for name, variable in dataset.items()} == {
        "bits": "uint32", "u": "float32", "low": "bool", "done": "bool",
    }  # fmt: skip
    assert {"seed", "versions", "device", "threads", "revision", "lanes"} <= set(dataset.attrs)
    with np.load(cells(path)[4], allow_pickle=False) as record:  # n = 16, K = 2
        np.testing.assert_array_equal(record["u"], dataset.u.sel(n=16, K=2))
    assert sorted(content(path)) == [*(f"cells/{i:06d}.npz" for i in range(6)), "sweep.json"]


def test_nothing_is_computed_twice(copy, whole):
    for index in 1, 4:
        cells(copy)[index].unlink()
        todo, dataset = computed(copy)
        assert todo == 5
        same_bits(dataset, whole[1])
    assert computed(copy)[0] == 0
    assert content(copy) == content(whole[0])


def test_attributes_come_back(tmp_path):
    dataset = small(tmp_path, attrs={"config": '{"d": 32}', "size": "quick"})
    assert dataset.attrs["config"] == '{"d": 32}'
    assert sweep.load(tmp_path).attrs == dataset.attrs


def test_an_unfinished_store_can_be_read(copy, whole):
    cells(copy)[1].unlink()
    dataset = sweep.load(copy)
    np.testing.assert_array_equal(dataset.done, [[True, False, True], [True, True, True]])
    assert dataset.u.sel(n=8, K=2).isnull().all()
    assert not dataset.low.sel(n=8, K=2).any()
    xarray.testing.assert_equal(dataset.bits.sel(n=16), whole[1].bits.sel(n=16))
    rates = sweep.success_rate(dataset, "low")
    assert bool(rates.rate.isnull().sel(n=8, K=2))
    assert int(rates.rate.isnull().sum()) == 1


@pytest.mark.parametrize("ending", ["nc", "zarr"])
def test_export(whole, tmp_path, ending):
    target = tmp_path / f"results.{ending}"
    for _ in range(2):  # the second time it replaces
        sweep.export(whole[1], target)
    read = xarray.load_dataset(target, engine={"nc": "h5netcdf", "zarr": "zarr"}[ending])
    xarray.testing.assert_equal(read, whole[1])
    assert read.attrs["seed"] == 0
    with pytest.raises(ValueError, match=r"\.csv"):
        sweep.export(whole[1], tmp_path / "results.csv")


def test_a_dataset_that_is_no_sweep(whole, tmp_path):
    written = sweep.save(whole[1], tmp_path / "new")
    xarray.testing.assert_identical(sweep.load(tmp_path / "new"), whole[1])
    with pytest.raises(TypeError):
        sweep.save(whole[1].assign_attrs(wrong=object()), tmp_path / "new")
    xarray.testing.assert_identical(sweep.load(tmp_path / "new"), whole[1])
    assert [path.name for path in written.parent.iterdir()] == [store_module.FILE]
    assert not sweep.is_kept(tmp_path / "new")
    with pytest.raises(FileNotFoundError, match="nothing"):
        sweep.load(tmp_path / "nothing")


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "seed was 0, is 1"),
        ({"num_trials": 6}, "num_trials was 5, is 6"),
        ({"axes": {"n": [8, 16], "K": [1, 2, 4]}}, "axes was"),
        ({"problem": ["n"]}, "problem"),
        ({"shared": ["n"]}, "shared"),
        ({"where": lambda cell: cell["K"] < 3}, "cells was null"),
        ({"attrs": {"config": "other"}}, "attrs"),
        ({"trial": lambda key, cell: {**draws(key, cell), "u": jax.random.uniform(key) + 1}}, "trial.*changed"),
    ],
)
def test_another_sweep_is_refused(copy, change, words):
    before = content(copy)
    with pytest.raises(sweep.StoreError, match=f"holds another sweep.*{words}"):
        small(copy, **change)
    assert content(copy) == before


def test_another_tolerance_is_another_sweep(tmp_path):
    def run(stop):
        trial = sweep.Recovery(lambda key, cell: problem(key, cell, True), METHODS, stop=stop)
        return sweep.run(trial, {"solver": ["IHT"], "n": [20], "K": [1]}, num_trials=2, static=["n"], store=tmp_path)

    with compiled_quickly():
        first = run(Stop(max_steps=60))
        same_bits(run(Stop(max_steps=60)), first)
        with pytest.raises(sweep.StoreError, match="tolerances"):
            run(Stop(max_steps=61))


def test_another_environment_is_asked_about(copy, whole, monkeypatch):
    cells(copy)[0].unlink()
    real = store_environment()
    other = {**real, "versions": {**real["versions"], "jax": "0.0.1"}}
    monkeypatch.setattr("jaxht.sweep.compilation.describe_environment", lambda: other)
    with pytest.raises(sweep.StoreError, match=r"another environment.*0\.0\.1.*mixed"):
        small(copy)
    same_bits(small(copy, mixed=True), whole[1])
    monkeypatch.setattr("jaxht.sweep.compilation.describe_environment", lambda: {**real, "revision": "another commit"})
    assert computed(copy)[0] == 0
    with pytest.raises(sweep.StoreError, match="lanes"):
        small(copy, max_lanes=5)


def store_environment():
    from jaxht.sweep._provenance import describe_environment

    return describe_environment()


def test_a_damaged_manifest_is_no_manifest(copy):
    (copy / "sweep.json").write_text("{")
    for call in small, sweep.load:
        with pytest.raises(sweep.StoreError, match=r"sweep\.json is damaged"):
            call(copy)


# ---- damage ----------------------------------------------------------------------------------------------------------


def test_a_damaged_record_is_never_read(copy, caplog):
    """A bit changed anywhere, or a file cut off anywhere: what is read is right, or nothing."""
    caplog.set_level("ERROR", "jaxht.sweep")
    file = cells(copy)[2]
    original, sound = file.read_bytes(), read(file.parent.parent, 2)
    rng = np.random.default_rng(0)
    believed = 0
    for position in range(0, len(original), 3):
        damaged = bytearray(original)
        damaged[position] ^= 1 << rng.integers(8)
        found = read_bytes(file, bytes(damaged))
        if found is not None:  # a time stamp, or the like
            believed += 1
            assert all(found[name].tobytes() == sound[name].tobytes() for name in sound)
    assert believed < len(original) / 3 / 4
    for length in range(0, len(original), 7):
        assert read_bytes(file, original[:length]) is None


def read(path, index):
    return store_module.read_record(path, index, json_fingerprint(path))


def read_bytes(file, damaged):
    file.write_bytes(damaged)
    return read(file.parent.parent, int(file.stem))


def json_fingerprint(path):
    return store_module.hash_sweep(store_module.read_manifest(path)["sweep"])


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "another cell's sweep"])
def test_damage_is_found_and_repaired(copy, whole, damage, caplog):
    file = cells(copy)[3]
    original = file.read_bytes()
    middle = len(original) // 2
    if damage == "another cell's sweep":
        small(copy.parent / "other", seed=1)
        shutil.copy(cells(copy.parent / "other")[3], file)
    else:
        flipped = original[:middle] + bytes([original[middle] ^ 16]) + original[middle + 1 :]
        file.write_bytes({"cut": original[:middle], "flip": flipped, "empty": b""}[damage])
    assert not sweep.load(copy).done.values.ravel()[3]
    assert "damaged" in caplog.text
    todo, dataset = computed(copy)
    assert todo == 5
    same_bits(dataset, whole[1])
    assert content(copy) == content(whole[0])


def test_a_full_disk_loses_nothing(copy, whole, monkeypatch):
    for index in 5, 2:
        cells(copy)[index].unlink()
    kept = content(copy)

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as context:
        context.setattr(os, "fsync", full)
        with pytest.raises(sweep.StoreError, match=r"No space left.*is safe"):
            small(copy)
    assert content(copy) == kept
    assert computed(copy)[0] == 10
    assert content(copy) == content(whole[0])


LIMITED = """
import resource, sys
from pathlib import Path
from jaxht import sweep
from tests.test_store import small
resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
try:
    small(Path(sys.argv[1]), num_trials=400)
except sweep.StoreError as error:
    print(error)
    sys.exit(3)
"""


def test_a_write_that_really_fails(tmp_path):
    """The system refuses to write a file as large as a record, but the manifest fits."""
    half = small(tmp_path, num_trials=400, shard=(0, 2))
    kept = content(tmp_path)
    run = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 3, run.stderr
    assert "cannot be written: File too large" in run.stdout
    assert content(tmp_path) == kept
    xarray.testing.assert_identical(sweep.load(tmp_path), half)


def test_a_read_only_folder_is_found_before_the_work(tmp_path, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    calls = []
    with monkeypatch.context() as context:
        context.setattr(Path, "mkdir", refuse)
        with pytest.raises(sweep.StoreError, match="Read-only"):
            small(tmp_path / "new", on_progress=calls.append)
    if os.geteuid() != 0:  # nothing is read-only for root
        (tmp_path / "locked").mkdir(mode=0o500)
        with pytest.raises(sweep.StoreError, match="Permission denied"):
            small(tmp_path / "locked", on_progress=calls.append)
    assert not calls


# ---- interruptions ---------------------------------------------------------------------------------------------------


def test_killed_at_any_moment():
    """Two workers, two shards, a full disk; `python -m tests.kill_sweeps` does more, and kills workers of Dask."""
    kills = os.environ.get("JAXHT_TEST_KILLS", "4")  # each takes the start of a process
    arguments = ["-m", "tests.kill_sweeps", "--kills", kills, "--only", "^2.*SIGKILL|disk"]
    command = [sys.executable, "-W", "ignore", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(run.stdout, run.stderr)
    assert run.returncode == 0
    *_, total = run.stdout.splitlines()
    name, *numbers = [cell.strip() for cell in total.strip("|").split("|")]
    assert name == "all" and int(numbers[4]) >= int(kills) and set(numbers[5:]) == {"0"}


class RunsTwice:
    """An executor that runs every task a second time, as one does whose process has died before it answered."""

    def __init__(self):
        self.records = []

    def submit(self, fn, sweep_, cells, store):
        for _ in range(2):
            part = fn(sweep_, cells, store)
            self.records.append({cell.index: (store.path / f"cells/{cell.index:06d}.npz").stat() for cell in cells})
        return SimpleNamespace(result=lambda: part)


def test_a_task_that_runs_again_computes_nothing_again(whole, tmp_path):
    executor, totals = RunsTwice(), []
    same_bits(small(tmp_path, executor=executor, num_tasks=2, on_progress=totals.append), whole[1])
    assert executor.records[0::2] == executor.records[1::2]
    assert [progress.done for progress in totals] == [0, 15, 30]


class SecondFails:
    """An executor whose second task fails."""

    def __init__(self):
        self.cancelled = []

    def submit(self, fn, sweep_, cells, store):
        def result():
            if cells[0].index:
                raise OSError("lost")
            return fn(sweep_, cells, store)

        return SimpleNamespace(result=result, cancel=lambda: self.cancelled.append(cells[0].index))


def test_what_has_not_begun_is_cancelled(tmp_path):
    executor = SecondFails()
    with pytest.raises(OSError, match="lost"):
        small(tmp_path, executor=executor, num_tasks=3)
    assert executor.cancelled == [0, 2, 4]
    assert int(sweep.load(tmp_path).done.sum()) == 2


# ---- Dask ------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default")
def test_two_workers_of_dask(whole, tmp_path):
    distributed = pytest.importorskip("distributed")
    totals = []
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        dataset = small(tmp_path, executor=client.get_executor(), num_tasks=3, workers=1, on_progress=totals.append)
        processes = client.run(os.getpid)
    assert len(set(processes.values())) == 2
    assert os.getpid() not in processes.values()
    same_bits(dataset, whole[1])
    assert [progress.done for progress in totals] == [0, 10, 20, 30]
