"""The store of a sweep: no result is lost, computed twice, or read when damaged."""

import errno
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxht import Stop, sweep
from jaxht.sweep import store as store_module
from jaxht.sweep.grid import Grid
from tests.sweeps import (
    METHODS,
    SQUARES,
    STOP,
    Countdown,
    Endless,
    draw_padded,
    problem,
    same_bits,
)
from tests.util import x64

pytestmark = pytest.mark.usefixtures("all_quickly")
ROOT = Path(__file__).parents[1]


def draws(key, cell):
    """A trial in one piece, with results of several types."""
    return {
        "bits": jax.random.bits(key),
        "u": jax.random.uniform(key),
        "low": jax.random.uniform(key) < cell["K"] / 4,
    }


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


def record(path, **coordinates):
    return path / store_module.record_path(coordinates)


def cells(path):
    """The records of AXES, row by row."""
    return [record(path, n=n, K=K) for n in AXES["n"] for K in AXES["K"]]


def content(path):
    """Every file, by name."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def computed(path, **options):
    """What a call finds to do: the number of trials, and the results."""
    totals = []
    dataset = small(path, on_progress=lambda progress: totals.append(progress.total), **options)
    return totals[0], dataset


# ---- what is stored ------------------------------------------------------------------------------


def test_the_store_is_the_result(whole):
    path, dataset = whole
    same_bits(dataset, small())
    xarray.testing.assert_identical(sweep.load(path), dataset)
    assert {name: str(variable.dtype) for name, variable in dataset.items()} == {
        "bits": "uint32", "u": "float32", "low": "bool", "num_trials": "int64", "done": "bool",
    }  # fmt: skip
    assert {"seed", "versions", "device", "threads", "revision", "lanes"} <= set(dataset.attrs)
    with np.load(record(path, n=16, K=2), allow_pickle=False) as found:
        np.testing.assert_array_equal(found["u"], dataset.u.sel(n=16, K=2))
    assert sorted(content(path)) == sorted(
        ["sweep.json", *(str(file.relative_to(path)) for file in cells(path))]
    )


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
    assert computed(tmp_path, attrs={"config": "another"})[0] == 0
    assert (
        sweep.load(tmp_path).attrs["config"] == "another"
        and "size" not in sweep.load(tmp_path).attrs
    )


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


@pytest.mark.parametrize(
    "value", [None, True, [True, False], [1, "a"], [None], [[1], [2, 3]], {"a": 1}, 10**20]
)
def test_attributes_that_are_none_of_netcdf_are_exported_as_text(whole, tmp_path, value):
    target = tmp_path / "results.nc"
    sweep.export(whole[1].assign_attrs(given=value, plain=[1, 2.5]), target)
    attrs = xarray.load_dataset(target, engine="h5netcdf").attrs
    assert json.loads(attrs["given"]) == value and attrs["plain"].tolist() == [1, 2.5]


def test_a_dataset_that_is_no_sweep(whole, tmp_path):
    written = sweep.save(whole[1], tmp_path / "new")
    xarray.testing.assert_identical(sweep.load(tmp_path / "new"), whole[1])
    with pytest.raises(TypeError):
        sweep.save(whole[1].assign_attrs(wrong=object()), tmp_path / "new")
    xarray.testing.assert_identical(sweep.load(tmp_path / "new"), whole[1])
    assert [path.name for path in written.parent.iterdir()] == ["results.npz"]
    assert not sweep.is_kept(tmp_path / "new")
    with pytest.raises(FileNotFoundError, match="nothing"):
        sweep.load(tmp_path / "nothing")


def test_a_dataset_of_something_else_is_not_loaded(whole, tmp_path):
    file = sweep.save(whole[1], tmp_path, "these settings")
    xarray.testing.assert_identical(sweep.load(tmp_path, "these settings"), whole[1])
    with pytest.raises(ValueError, match="something else"):
        sweep.load(tmp_path, "other settings")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(FileNotFoundError):
        sweep.load(tmp_path, "these settings")
    with pytest.raises(TypeError, match="numbers or strings"):
        sweep.save(xarray.Dataset({"x": ("t", np.array([{}, "a"], object))}), tmp_path)


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "seed was 0, is 1"),
        ({"axes": {**AXES, "m": [1]}}, "names of axes was"),
        ({"axes": {"n": [8, 12.5], "K": [1]}}, r'axes of integers was \["K", "n"\], is \["K"\]'),
        ({"static": ["n"]}, "static was"),
        ({"round_up": {"n": 8}}, "round_up was"),
        ({"problem": ["n"]}, "problem"),
        ({"shared": ["n"]}, "shared"),
        (
            {"trial": lambda key, cell: {**draws(key, cell), "u": jax.random.uniform(key) + 1}},
            "trial.*changed",
        ),
        (
            {"trial": lambda key, cell: {**draws(key, cell), "v": 1}, "axes": {"n": [9], "K": [9]}},
            "trial.*changed",
        ),
    ],
)
def test_another_sweep_is_refused(copy, change, words):
    before = content(copy)
    with pytest.raises(sweep.StoreError, match=f"holds another sweep.*{words}"):
        small(copy, **change)
    assert content(copy) == before


def test_another_tolerance_is_another_sweep(tmp_path):
    def run(stop):
        trial = sweep.Recovery(lambda key, cell: problem(key, cell, True), METHODS, SQUARES, stop)
        return sweep.run(
            trial,
            {"solver": ["IHT"], "n": [20], "K": [1]},
            num_trials=2,
            static=["n"],
            store=tmp_path,
        )

    first = run(Stop(max_steps=60))
    same_bits(run(Stop(max_steps=60)), first)
    with pytest.raises(sweep.StoreError, match="tolerances"):
        run(Stop(max_steps=61))


def test_another_environment_is_asked_about(copy, whole):
    cells(copy)[0].unlink()
    manifest = copy / "sweep.json"

    def rewrite(change):
        """As if the store had been begun in another environment."""
        stored = json.loads(manifest.read_text())
        change(stored["environment"])
        manifest.write_text(json.dumps(stored))

    version = json.loads(manifest.read_text())["environment"]["versions"]["jax"]
    rewrite(lambda environment: environment["versions"].update(jax="0.0.1"))
    with pytest.raises(sweep.StoreError, match=r"another environment.*0\.0\.1.*mixed"):
        small(copy)
    same_bits(small(copy, mixed=True), whole[1])
    rewrite(lambda environment: environment["versions"].update(jax=version))
    rewrite(lambda environment: environment.update(revision="another commit"))
    assert computed(copy)[0] == 0
    with pytest.raises(sweep.StoreError, match="lanes"):
        small(copy, max_lanes=5)


def test_a_damaged_manifest_is_no_manifest(copy):
    (copy / "sweep.json").write_text("{")
    for call in small, sweep.load:
        with pytest.raises(sweep.StoreError, match=r"sweep\.json is damaged"):
            call(copy)


def test_a_store_of_another_version_is_refused(copy):
    older = {"sweep": {"axes": AXES, "num_trials": 5, "seed": 0}, "environment": {}, "program": "0"}
    newer = {**json.loads((copy / "sweep.json").read_text()), "format": store_module.FORMAT + 1}
    for manifest, words in (older, "an older version"), (newer, "a newer version"):
        (copy / "sweep.json").write_text(json.dumps(manifest))
        before = content(copy)
        for call in small, sweep.load:
            with pytest.raises(sweep.StoreError, match=f"written by {words}"):
                call(copy)
        assert content(copy) == before


# ---- growth --------------------------------------------------------------------------------------


def test_a_sweep_grows_in_any_order(tmp_path):
    """What is asked for comes back, and only what is missing is computed; the bits are those of one
    run."""
    steps = [  # axes, num_trials, how many are computed
        ({"n": [8, 16], "K": [1, 2]}, 3, 12),
        ({"n": [8, 16], "K": [1, 2]}, 7, 16),
        ({"n": [8, 12, 16], "K": [2, 1]}, 7, 14),
        ({"K": [2], "n": [16, 12]}, 5, 0),
        ({"n": [4, 8], "K": [1, 3]}, 9, 2 + 27),
        ({"n": [16, 4, 8, 12], "K": [1, 2, 3]}, 4, 4 * 3),
    ]
    for axes, num_trials, number in steps:
        todo, dataset = computed(tmp_path, axes=axes, num_trials=num_trials)
        assert todo == number
        same_bits(dataset, small(axes=axes, num_trials=num_trials))
        assert {name: dataset[name].values.tolist() for name in axes} == axes and dataset.sizes[
            "trial"
        ] == num_trials
        assert (dataset.num_trials == num_trials).all() and dataset.done.all()
    union = sweep.load(tmp_path)
    assert union.n.values.tolist() == [4, 8, 12, 16] and union.K.values.tolist() == [1, 2, 3]
    expected = [[9, 4, 9], [9, 7, 9], [7, 7, 4], [7, 7, 4]]
    np.testing.assert_array_equal(union.num_trials, expected)
    np.testing.assert_array_equal(union.done, np.equal(expected, 9))
    whole, there = (
        small(axes={"n": [4, 8, 12, 16], "K": [1, 2, 3]}, num_trials=9),
        union.trial < union.num_trials,
    )
    for name in "bits", "u", "low":
        assert (union[name] == whole[name]).where(there, True).all()
    assert union.u.where(~there).isnull().all() and not union.low.where(~there, False).any()
    rates = sweep.success_rate(union, "low")
    np.testing.assert_array_equal(rates.trials, expected)
    np.testing.assert_array_equal(rates.successes, (whole.low & there).sum("trial"))
    same_bits(small(tmp_path, axes={"n": [4, 8, 12, 16], "K": [1, 2, 3]}, num_trials=9), whole)
    same_bits(sweep.load(tmp_path), whole)


def recovering(methods=METHODS):
    return sweep.Recovery(partial(problem, shared=True), methods, SQUARES, STOP)


def padded():
    return sweep.Recovery(partial(draw_padded, shared=True), METHODS, SQUARES, STOP)


GROWING = {
    "steps": (
        Countdown(),
        {},
        [({"length": [5]}, 7), ({"length": [1, 5, 3]}, 40), ({"length": list(range(1, 12))}, 50)],
    ),
    "recovery": (
        recovering(),
        {"static": ["n"]},
        [
            ({"solver": ["IHT"], "n": [20], "K": [1]}, 3),
            ({"solver": ["SGHT", "IHT"], "n": [20], "K": [1, 3]}, 20),
            ({"solver": ["SGHT", "IHT"], "n": [20, 16], "K": [1, 2, 3]}, 41),
        ],
    ),
    "one row": (
        recovering(),
        {"static": ["n"], "shared": []},
        [
            ({"solver": ["IHT"], "n": [20], "K": [1]}, 3),
            ({"solver": ["IHT"], "n": [20], "K": [1, 3]}, 30),
        ],
    ),
    "padded": (
        padded(),
        {"round_up": {"n": 20}},
        [
            ({"solver": ["HTP"], "n": [12, 20], "K": [2]}, 5),
            ({"solver": ["HTP"], "n": [12, 16, 20], "K": [1, 2, 4]}, 5),
            ({"solver": ["HTP", "IHT"], "n": [12, 16, 20, 22], "K": [1, 2, 3, 4]}, 33),
        ],
    ),
}


@pytest.mark.parametrize("kind", GROWING)
def test_growth_does_not_change_a_bit(kind, tmp_path):
    trial, options, steps = GROWING[kind]
    for workers, (axes, num_trials) in enumerate(steps, 1):
        sweep.run(trial, axes, num_trials=num_trials, store=tmp_path, workers=workers, **options)
    same_bits(
        sweep.load(tmp_path),
        sweep.run(trial, sweep_axes(tmp_path), num_trials=num_trials, **options),
    )


def sweep_axes(path):
    return {name: sweep.load(path)[name].values.tolist() for name in store_module.read_axes(path)}


def test_trials_that_were_ended_stay_so_when_others_are_added(tmp_path):
    """A longer limit runs them again, and them alone."""
    axes, totals = {"length": [0, 1]}, []

    def run(num_trials, limit, store=tmp_path):
        report = lambda progress: totals.append(progress.total)  # noqa: E731
        options = {"max_lanes": 8, "workers": 2, "trial_timeout": limit, "on_progress": report}
        found = sweep.run(Endless(), axes, num_trials=num_trials, store=store, **options)
        return totals[-1], found

    first, once = run(7, 0.4)[1], run(20, 0.4, tmp_path / "once")[1]
    todo, more = run(20, 0.4)
    assert todo == 2 * 13
    same_bits(more, once)
    late = more.timed_out_after.notnull()
    assert 0 < int(first.timed_out_after.notnull().sum()) < int(late.sum())
    assert run(7, 0.5)[0] == int(late.isel(trial=slice(7)).sum())
    todo, last = run(20, 0.5)
    assert todo == int(late.isel(trial=slice(7, None)).sum())
    same_bits(last, once.assign(timed_out_after=once.timed_out_after.where(~late, 0.5)))


def test_a_trial_that_ends_at_last_leaves_no_trace_of_its_limit(copy, whole):
    manifest, cell = json.loads((copy / "sweep.json").read_text()), Grid(AXES).cells[0]
    manifest["programs"] = {
        name: program.split()[1] for name, program in manifest["programs"].items()
    }
    store, one = store_module.Store(copy, manifest), np.array([3], np.int32)
    results = {name: whole[1][name].values[0, 0, one] for name in ("bits", "u", "low")}
    store.write(
        cell,
        one,
        {name: np.zeros_like(values) for name, values in results.items()} | {"late": np.ones(1)},
    )
    np.testing.assert_array_equal(sweep.load(copy).late[0, 0], [np.nan, np.nan, np.nan, 1, np.nan])
    store.write(cell, one, results)
    assert content(copy) == content(whole[0])


def test_a_solver_that_changes_concerns_no_other(tmp_path):
    def run(methods, solvers, **options):
        axes, totals = {"solver": solvers, "n": [20], "K": [1]}, []
        options = {"num_trials": 3, "static": ["n"], "store": tmp_path, **options}
        sweep.run(
            recovering(methods),
            axes,
            on_progress=lambda progress: totals.append(progress.total),
            **options,
        )
        return totals[0]

    other = {**METHODS, "SGHT": lambda objective, cell: METHODS["IHT"](objective, cell)}
    assert run(METHODS, ["IHT", "SGHT"]) == 6
    assert run(other, ["IHT"]) == 0
    assert run(other, ["HTP", "IHT"], num_trials=4) == 4 + 1
    with pytest.raises(sweep.StoreError, match=r'changed, in the program of .*"solver": "SGHT"'):
        run(other, ["IHT", "SGHT"])


def test_other_data_are_another_trial(tmp_path):
    """What a trial holds is in no axis and no option: arrays, of NumPy and of JAX, small and
    large."""
    large = np.random.default_rng(0).normal(size=5000)
    changed = large.copy()
    changed[2500] += 1e-3
    for i, make in enumerate((np.float32, np.asarray, jnp.asarray)):
        before, after = (make(data[2500] if i == 0 else data) for data in (large, changed))

        def run(data, store=tmp_path / str(i), **options):
            trial = lambda key, cell: {"sum": jnp.sum(jnp.asarray(data) * cell["K"])}  # noqa: E731
            return sweep.run(trial, {"K": [1, 2]}, store=store, **{"num_trials": 2, **options})

        run(before)
        run(before.copy(), num_trials=3)
        with pytest.raises(sweep.StoreError, match="data"):
            run(after, num_trials=4)


# Of each dtype that a trial may return: the dtype that is stored.
STORED = {
    "bool": "bool",
    **{f"{kind}{bits}": f"{kind}8" for kind in ("int", "uint") for bits in (2, 4)},
    **{f"{kind}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{name: name for name in ("float16", "float32", "float64", "complex64", "complex128")},
    **{
        name: "float32"
        for name in (
            "bfloat16",
            "float8_e4m3b11fnuz",
            "float8_e4m3fn",
            "float8_e4m3fnuz",
            "float8_e5m2",
            "float8_e5m2fnuz",
            "float8_e8m0fnu",
            "float4_e2m1fn",
        )
    },
}
KNOWN = [name for name in STORED if hasattr(jnp, name)]


class Returns:
    """A trial in steps that takes none, and returns what it was given."""

    def __init__(self, results):
        self.results = results

    def draw(self, key, cell):
        return cell["K"]

    def start(self, case):
        return jnp.zeros((), bool)

    def running(self, carry):
        return carry

    def advance(self, case, carry):
        return carry

    def finish(self, case, carry):
        return self.results


@pytest.mark.parametrize("kind", ["function", "in steps"])
def test_results_of_each_dtype_come_back(tmp_path, kind):
    """Through the store, the dataset and exported files, with the numbers of the trial."""

    def compute(number):
        found = {name: number.astype(name) for name in KNOWN}
        return {**found, "beside": number}

    class InSteps(Returns):
        def finish(self, case, carry):
            return compute(case)

    trial = InSteps(None) if kind == "in steps" else lambda key, cell: compute(cell["K"])
    with x64(True):
        for num_trials in (2, 3):  # the second call adds to records
            found = sweep.run(
                trial, {"K": [0.5, 1]}, num_trials=num_trials, store=tmp_path / "store", workers=1
            )
            assert found.done.all()
    assert sweep.load(tmp_path / "store").identical(found)
    sweep.export(found, tmp_path / "x.zarr")
    sweep.export(found, tmp_path / "x.nc")
    exported = [xarray.open_zarr(tmp_path / "x.zarr"), xarray.open_dataset(tmp_path / "x.nc")]
    for name in KNOWN:
        assert found[name].dtype == STORED[name]
        # 1/2 and 1 are numbers of all floats; integers are cut off.
        is_float = "float" in name or "complex" in name
        half = 0.5 if is_float else int(name == "bool")
        for dataset in (found, *exported):
            np.testing.assert_array_equal(dataset[name].sel(K=0.5), half)
            np.testing.assert_array_equal(dataset[name].sel(K=1), 1)


def test_results_whose_dtype_depends_on_the_program_keep_their_values(tmp_path):
    """The first cell that is stored decides nothing: 1.5 of the second became 1."""
    results = {
        "a": {"x": 2**24 + 1, "y": True, "z": 1},
        "b": {"x": 1.5, "y": 2, "z": 0.5},
    }
    axes = {"solver": ["a", "b", "left out"]}
    for name in ("there", "back"):
        found = sweep.run(
            lambda key, cell: results[cell["solver"]],
            axes,
            num_trials=2,
            store=tmp_path / name,
            where=lambda cell: cell["solver"] in results,
            attrs={"number": np.float32(0.5)},
        )
        assert sweep.load(tmp_path / name).identical(found)
        for solver, values in results.items():
            for result, value in values.items():
                assert (found[result].sel(solver=solver) == value).all()
        assert np.isnan(found.x.sel(solver="left out")).all()
        axes = {"solver": axes["solver"][::-1]}
    assert found.y.dtype == np.int32 and found.attrs["number"] == 0.5


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "'x' is None"),
        ("fast", "'x' is 'fast'"),
        (np.str_("fast"), "'x' is <U"),
        ({"y": 1}, "'x' is dict"),
        (np.datetime64("2020-01-01"), "'x' is datetime64"),
        (2**70, "'x' = 1180591620717411303424, beyond"),
        (jax.random.key(0), "'x' has dtype key"),
        (jax.random.PRNGKey(0), r"'x' has shape \(2,\)"),
        (np.zeros((), jax.dtypes.float0), "'x' has dtype .*float0"),
    ],
)
def test_results_that_are_no_numbers_are_refused(result, words):
    for trial in (lambda key, cell: {"x": result}, Returns({"x": result})):
        with pytest.raises(ValueError, match=words):
            sweep.run(trial, {"K": [1]}, num_trials=1)


@pytest.mark.parametrize(
    ("results", "words"),
    [(None, "None"), (1.5, "1.5"), ([("x", 1)], "list"), ({1: 1.0}, "by strings; got 1")],
)
def test_results_without_names_are_refused(results, words):
    for trial in (lambda key, cell: results, Returns(results)):
        with pytest.raises(ValueError, match=words):
            sweep.run(trial, {"K": [1]}, num_trials=1)


def test_a_dataset_that_files_cannot_hold_is_refused(tmp_path):
    dataset = xarray.Dataset({"x": ("t", np.asarray(jnp.ones(3, jnp.bfloat16)))})
    with pytest.raises(TypeError, match="x has dtype bfloat16"):
        sweep.save(dataset, tmp_path)


HOISTED = """
import sys
import numpy as np
from jaxht import sweep
data = np.arange(5000.0)
sweep.run(lambda key, cell: {"sum": cell["K"] * data.sum()}, {"K": [1]}, num_trials=1, store=sys.argv[1])
sweep.run(lambda key, cell: {"sum": (cell["K"] * data).sum()}, {"K": [1]}, num_trials=1, store=sys.argv[1] + "x")
"""


@pytest.mark.skipif(jax.__version_info__ < (0, 10), reason="nothing works with this flag")
def test_data_that_cannot_be_compared_are_refused(tmp_path):
    """By a flag of JAX, arrays are arguments of a program, and its text does not hold them."""
    command = [sys.executable, "-c", HOISTED, str(tmp_path / "store")]
    environment = {**os.environ, "JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS": "1"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 1 and "jax_use_simplified_jaxpr_constants" in run.stderr
    assert sweep.is_kept(tmp_path / "store") and not sweep.is_kept(tmp_path / "storex")


def test_an_axis_of_numbers_stays_one(tmp_path):
    """Integers are traced as such only where all values of the store are: 0 and 1 were not, beside
    0.5."""
    first = computed(tmp_path, axes={"n": [8], "K": [0, 0.5, 1]})[1]
    todo, some = computed(tmp_path, axes={"n": [8], "K": [1, 0]})
    assert todo == 0
    same_bits(some, first.sel(K=[1, 0]).assign_coords(K=[1, 0]))
    assert computed(tmp_path, axes={"n": [8], "K": [2, 3]})[0] == 10


def test_cells_that_are_left_out_can_be_added(tmp_path):
    few = {"where": lambda cell: cell["K"] < 3}
    assert computed(tmp_path, **few)[0] == 20
    assert computed(tmp_path)[0] == 10
    todo, dataset = computed(tmp_path, **few, num_trials=6)
    assert todo == 4
    same_bits(dataset, small(num_trials=6, **few))
    np.testing.assert_array_equal(sweep.load(tmp_path).num_trials, [[6, 6, 5]] * 2)


def test_what_two_processes_ask_for_is_all_there(tmp_path):
    """Each adds to the manifest that is there when it writes."""
    sweeping = lambda n: small(tmp_path, axes={"n": [n], "K": [1]}, num_trials=n)  # noqa: E731
    sweeping(1)
    calls = [json.loads((tmp_path / "sweep.json").read_text()) for _ in range(40)]
    for i, call in enumerate(calls):
        call["axes"]["n"], call["num_trials"] = [i, i + 1], i
        call["programs"] = {}
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(partial(store_module.Store, tmp_path), calls))
    assert (
        sorted(sweep.load(tmp_path).n.values) == list(range(41))
        and sweep.load(tmp_path).sizes["trial"] == 39
    )


def test_a_manifest_that_lacks_something_loses_no_record(copy, whole):
    """As where two processes write it at once, and the file system has no locks."""
    before = (copy / "sweep.json").read_bytes()
    more = small(copy, axes={"n": [8, 12, 16], "K": [1, 2, 3]}, num_trials=7)
    (copy / "sweep.json").write_bytes(before)
    same_bits(sweep.load(copy), more)
    assert computed(copy, axes={"n": [8, 12, 16], "K": [1, 2, 3]}, num_trials=7)[0] == 0


def test_a_call_that_asked_for_less_takes_nothing_away(tmp_path):
    """Another process adds trials after this one has looked."""
    more = []

    def add(progress):
        if not more:
            more.append(small(tmp_path, num_trials=9))

    same_bits(small(tmp_path, on_progress=add), small())
    same_bits(sweep.load(tmp_path), more[0])


def test_trials_that_vanish_while_others_are_added(copy, caplog):
    """A record never holds a trial that was not run."""

    def remove(progress):
        record(copy, n=8, K=2).unlink(missing_ok=True)

    todo, dataset = len(cells(copy)), small(copy, num_trials=7, on_progress=remove)
    assert (
        dataset.num_trials.values.ravel().tolist() == [7, 0, 7, 7, 7, 7] and "gone" in caplog.text
    )
    assert int(dataset.done.sum()) == todo - 1 and not record(copy, n=8, K=2).exists()
    todo, dataset = computed(copy, num_trials=7)
    assert todo == 7
    same_bits(dataset, small(num_trials=7))


def test_growth_in_another_environment(tmp_path, monkeypatch):
    """Programs of different environments are not compared; those of one are, whoever began."""
    first = small(tmp_path)

    def other_program(key, cell):
        results = draws(key, cell)
        return {**results, "u": 1.0 * results["u"]}

    def changed_program(key, cell):
        results = draws(key, cell)
        return {**results, "u": results["u"] + 0.0}

    with monkeypatch.context() as context:
        context.setenv("NPROC", "1")
        todo, _ = computed(tmp_path, trial=other_program, num_trials=6, mixed=True)
        assert todo == 6
        with pytest.raises(sweep.StoreError, match="has changed"):
            small(tmp_path, trial=changed_program, num_trials=7, mixed=True)
    todo, dataset = computed(tmp_path, num_trials=7)
    assert todo == 6
    same_bits(dataset, small(num_trials=7))
    same_bits(small(tmp_path), first)


def hypotenuse(a, b, times=lambda x, y: x * y):
    """A trial that calls a jitted function twice: once that of the argument, once its own."""

    @jax.jit
    def square(x):
        return times(x, x)

    @jax.jit
    def again(x):
        return times(x, x)

    other = again if b else square
    return lambda key, cell: {"u": square(jax.random.uniform(key)) + other(cell["K"] + a)}


def test_programs_are_compared_by_what_they_compute(tmp_path):
    """Whether two functions of a program that are alike are one depends on what else was traced."""
    first = small(tmp_path, trial=hypotenuse(1.0, False))
    todo, dataset = computed(tmp_path, trial=hypotenuse(1.0, True), num_trials=6)
    assert todo == 6
    same_bits(dataset.isel(trial=slice(5)).drop_vars("num_trials"), first.drop_vars("num_trials"))
    for other in (hypotenuse(2.0, True), hypotenuse(1.0, True, lambda x, y: x + y)):
        with pytest.raises(sweep.StoreError, match="has changed"):
            small(tmp_path, trial=other)


# ---- damage --------------------------------------------------------------------------------------


def test_a_damaged_record_is_never_read(copy, caplog):
    """A bit changed anywhere, or a file cut off anywhere."""
    caplog.set_level("ERROR", "jaxht.storage")
    file = cells(copy)[2]
    original = file.read_bytes()
    rng = np.random.default_rng(0)
    for position in range(0, len(original), 3):
        damaged = bytearray(original)
        damaged[position] ^= 1 << rng.integers(8)
        assert read_bytes(file, bytes(damaged)) is None
    for length in range(0, len(original), 7):
        assert read_bytes(file, original[:length]) is None
    assert read_bytes(file, original) is not None


def read(file):
    found = store_module.read_record(
        file, store_module.hash_json(store_module.read_manifest(file.parents[1])["sweep"])
    )
    return found and found.results


def read_bytes(file, damaged):
    file.write_bytes(damaged)
    return read(file)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "another sweep", "another cell"])
def test_damage_is_found_and_repaired(copy, whole, damage, caplog):
    file = cells(copy)[3]
    original = file.read_bytes()
    middle = len(original) // 2
    if damage == "another sweep":
        small(copy.parent / "other", seed=1)
        shutil.copy(cells(copy.parent / "other")[3], file)
    elif damage == "another cell":
        shutil.copy(cells(copy)[2], file)
    else:
        flipped = original[:middle] + bytes([original[middle] ^ 16]) + original[middle + 1 :]
        file.write_bytes({"cut": original[:middle], "flip": flipped, "empty": b""}[damage])
    assert not sweep.load(copy).done.values.ravel()[3]
    assert "counts as missing" in caplog.text
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
resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500))
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
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
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


# ---- interruptions -------------------------------------------------------------------------------


def test_killed_at_any_moment():
    """Two workers, two shards, a full disk; `python -m tests.kill_sweeps` does more, and kills
    workers of Dask."""
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
    """An executor that runs every task a second time, as one does whose process has died before it
    answered."""

    def __init__(self):
        self.records = []

    def submit(self, fn, sweep_, task, store):
        for _ in range(2):
            part = fn(sweep_, task, store)
            found = [record(store.path, **some.cell.coordinates).stat() for some in task]
            self.records.append(
                [(file.st_ino, file.st_mtime_ns) for file in found]
            )  # not when they were read
        return SimpleNamespace(result=lambda: part)


def test_a_task_that_runs_again_computes_nothing_again(whole, tmp_path):
    executor, totals = RunsTwice(), []
    same_bits(small(tmp_path, executor=executor, num_tasks=2, on_progress=totals.append), whole[1])
    assert executor.records[0::2] == executor.records[1::2]
    assert [progress.done for progress in totals] == [0, 15, 30]
    more = small(tmp_path, num_trials=7, executor=executor, num_tasks=2, on_progress=totals.append)
    same_bits(more, small(num_trials=7))
    assert executor.records[0::2] == executor.records[1::2]
    assert [progress.done for progress in totals[3:]] == [0, 6, 12]


class SecondFails:
    """An executor whose second task fails."""

    def __init__(self):
        self.cancelled = []

    def submit(self, fn, sweep_, task, store):
        first = task[0].cell.index

        def result():
            if first:
                raise OSError("lost")
            return fn(sweep_, task, store)

        return SimpleNamespace(result=result, cancel=lambda: self.cancelled.append(first))


def test_what_has_not_begun_is_cancelled(tmp_path):
    executor = SecondFails()
    with pytest.raises(OSError, match="lost"):
        small(tmp_path, executor=executor, num_tasks=3)
    assert executor.cancelled == [0, 2, 4]
    assert int(sweep.load(tmp_path).done.sum()) == 2


# ---- Dask ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default")
def test_two_workers_of_dask(whole, tmp_path):
    distributed = pytest.importorskip("distributed")
    totals = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        dataset = small(
            tmp_path,
            executor=client.get_executor(),
            num_tasks=3,
            workers=1,
            on_progress=totals.append,
        )
        processes = client.run(os.getpid)
    assert len(set(processes.values())) == 2
    assert os.getpid() not in processes.values()
    same_bits(dataset, whole[1])
    assert [progress.done for progress in totals] == [0, 10, 20, 30]
