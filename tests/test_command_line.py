"""The command line of the experiments."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray

from experiments import __main__ as command_line
from experiments.common import config, data
from jaxht import sweep
from tests.tiny_experiments import CONFIGS, MODELS, ROOT, call, draw, fails, tiny, write

pytestmark = pytest.mark.usefixtures("all_quickly")


@pytest.fixture(autouse=True)
def _forget_programs():
    yield
    jax.clear_caches()


def test_a_figure_by_the_command_line(tmp_path):
    """Plots read the store only: neither the configuration nor the data."""
    path = tiny("yuan2018/figure1", tmp_path)
    result = call("run", path, "--out", tmp_path / "store")
    assert result.exit_code == 0, result.output
    assert "100%" in result.output
    path.unlink()
    shutil.move(tmp_path / "store", tmp_path / "moved")
    result = call("plot", tmp_path / "moved", env={"JAXHT_DATA": ""})
    assert result.exit_code == 0, result.output
    assert (tmp_path / "moved" / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "moved" / "figure.pdf").read_bytes().startswith(b"%PDF")
    loaded = sweep.load(tmp_path / "moved")
    assert (
        json.loads(loaded.attrs["config"])["title"] == "Contraction factors of GraHTP and FGraHTP"
    )
    assert "jaxht" in loaded.attrs["versions"]

    attrs = {"config": json.dumps({"experiment": "yuan2018.contraction", "title": "", "old": 1})}
    sweep.save(loaded.assign_attrs(attrs), tmp_path / "old")
    assert "of another version" in fails("plot", tmp_path / "old")


def test_the_demo(tmp_path):
    """Each figure is drawn before the next one is begun; other configurations have no such size."""
    for name in command_line.DEMO:
        (tmp_path / name).parent.mkdir()
        quick = tomllib.loads(tiny(name, tmp_path).read_text(encoding="utf-8"))
        write(tmp_path / f"{name}.toml", {**quick, "demo": {"seed": 3}})
    result = call("demo", "--out", tmp_path / "out", "--configs", tmp_path)
    assert result.exit_code == 0, result.output
    printed = result.output.splitlines()
    pictures = [line for line in printed if line.endswith(".png")]
    assert [Path(line).parent.name for line in pictures] == [
        "shen2018-figure1",
        "axiotis2020-diabetes",
    ]
    assert all(Path(line).read_bytes().startswith(b"\x89PNG") for line in pictures)
    second = next(i for i, line in enumerate(printed) if line.startswith("diabetes, demo"))
    assert printed[0].startswith("figure1, demo") and "compiling ..." in printed[0]
    assert printed.index(pictures[0]) < second
    attrs = sweep.load(Path(pictures[0]).parent).attrs
    assert attrs["size"] == "demo" and json.loads(attrs["config"])["seed"] == 3
    assert "no size 'demo'" in fails("run", tiny("shen2018/figure2", tmp_path), "--size", "demo")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_configuration_is_valid_and_listed(path):
    sizes = set(config.read(path)) & set(config.SIZES)
    assert sizes >= set(config.SIZES) - config.OPTIONAL
    for size in sizes:
        chosen = config.load(path, size, MODELS)
        assert chosen.experiment.split(".")[0] == path.parent.name
    result = call("list")
    assert result.exit_code == 0 and str(path.relative_to(ROOT)) in result.output


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_step": 5}, ["max_step", "unknown key"]),
        ({"quick": {"max_step": 5}}, ["[quick] max_step", "unknown key"]),
        ({"paper": {"max_steps": "many"}}, ["[paper] max_steps", "integer", "'many'"]),
        ({"max_steps": 2.5}, ["max_steps", "2.5"]),
        ({"max_steps": 0}, ["max_steps", "0"]),
        ({"k": [1, 3, 3]}, ["k", "rising"]),
        ({"k": [1, 66]}, ["k", "66", "65"]),
        ({"solvers": ["IHT", "HPT"]}, ["solvers.1", "'HPT'", "HTP"]),
        ({"solvers": []}, ["solvers"]),
        ({"title": None}, ["title", "missing"]),
        ({"experiment": "axiotis2021"}, ["experiment", "'axiotis2021'", "axiotis2020"]),
        ({"experiment": None}, ["experiment"]),
        ({"quick": 3}, ["quick", "table"]),
        ({"datasets": ["iris"]}, ["'iris'", "JAXHT_DATA"]),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_a_mistake_is_one_line(changes, words, tmp_path):
    table = (
        tomllib.loads(tiny("axiotis2020/diabetes", tmp_path).read_text(encoding="utf-8")) | changes
    )
    path = write(
        tmp_path / "wrong.toml", {key: value for key, value in table.items() if value is not None}
    )
    line = fails("run", path, "--out", tmp_path / "store", env={"JAXHT_DATA": ""})
    assert all(word in line for word in words), line
    assert "iris" in line or words[0] == "k" or str(path) in line


def test_files_that_are_not_there_or_not_right(tmp_path):
    assert str(tmp_path / "no.toml") in fails("run", tmp_path / "no.toml")
    assert str(tmp_path) in fails("run", tmp_path)
    (tmp_path / "broken.toml").write_text("k = [1,\nexperiment")
    assert "broken.toml: not valid TOML" in fails("run", tmp_path / "broken.toml")
    (tmp_path / "latin.toml").write_bytes("# é".encode("latin-1"))
    assert "latin.toml: not valid TOML" in fails("run", tmp_path / "latin.toml")
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in fails(
        "run", tiny("shen2018/figure1", tmp_path), "--out", tmp_path / "file" / "store"
    )

    assert str(tmp_path) in fails("plot", tmp_path)
    (tmp_path / "results.npz").write_bytes(b"no such thing")
    assert str(tmp_path) in fails("plot", tmp_path)
    sweep.save(sweep.run(lambda key, cell: {"x": cell["K"]}, {"K": [1]}, num_trials=1), tmp_path)
    assert "not the results of an experiment" in fails("plot", tmp_path)


def test_data_are_looked_for_and_never_replaced(tmp_path, monkeypatch):
    housing = tiny("axiotis2020/figure1", tmp_path, datasets=["cal_housing"])
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "sklearn"))
    line = fails("run", housing, "--out", tmp_path / "s", env={"JAXHT_DATA": str(tmp_path)})
    assert str(tmp_path / "cal_housing.npz") in line and str(tmp_path / "sklearn") in line
    line = fails("run", housing, "--out", tmp_path / "s", "--data-dir", tmp_path / "none")
    assert str(tmp_path / "none" / "cal_housing.npz") in line
    assert not (tmp_path / "s").exists()
    (tmp_path / "cal_housing.npz").write_bytes(b"no such thing")
    line = fails("run", housing, "--out", tmp_path / "s", "--data-dir", tmp_path)
    assert "cal_housing.npz: not an .npz file" in line

    rng = np.random.default_rng(0)
    np.savez(tmp_path / "cal_housing.npz", X=rng.normal(size=(30, 5)), y=rng.normal(size=30))
    assert data.load("cal_housing", tmp_path).names == ["x1", "x2", "x3", "x4", "x5"]


def test_as_a_program(tmp_path):
    """Nothing but the one line on standard error, also from outside the click test runner."""
    command = [sys.executable, "-m", "experiments", "run", str(tmp_path / "no.toml")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.splitlines() == [
        f"Error: {tmp_path / 'no.toml'}: No such file or directory"
    ]


def test_a_sweep_in_parts(tmp_path):
    """Two shards in one store; half of it can be drawn; the whole is exported; another
    configuration is refused."""
    path, store = tiny("shen2018/figure1", tmp_path, solvers=["IHT"]), tmp_path / "store"
    assert call("run", path, "--out", store, "--shard", "1/2").exit_code == 0
    assert int(sweep.load(store).done.sum()) == 2
    assert call("plot", store).exit_code == 0
    assert call("run", path, "--out", store, "--shard", "2/2", "--workers", "1").exit_code == 0
    assert call("run", path, "--out", tmp_path / "whole").exit_code == 0
    xarray.testing.assert_identical(sweep.load(store), sweep.load(tmp_path / "whole"))

    assert call("export", store, tmp_path / "results.nc").exit_code == 0
    xarray.testing.assert_equal(
        xarray.load_dataset(tmp_path / "results.nc", engine="h5netcdf"), sweep.load(store)
    )
    assert ".nc or .zarr" in fails("export", store, tmp_path / "results.csv")
    line = fails("run", tiny("shen2018/figure1", tmp_path, solvers=["IHT"], seed=1), "--out", store)
    assert "another sweep" in line
    assert "seed was 0, is 1" in line
    (store / "sweep.json").write_text("{")
    assert "sweep.json is damaged" in fails("plot", store)
    for shard in "0/2", "3/2", "half":
        assert call("run", path, "--out", store, "--shard", shard).exit_code == 2


def test_a_configuration_that_changes(tmp_path):
    """More signals, another n and another solver are added; the figure shows what the last one asks
    for."""
    store, changes = tmp_path / "store", {"solvers": ["IHT"], "n": [16, 32], "K": [2, 4]}

    def run(**others):
        path = tiny("shen2018/figure1", tmp_path, **changes | others)
        result = call("run", path, "--out", store)
        assert result.exit_code == 0, result.output
        return result.output, config.load(path, "quick", MODELS)

    for others, number in [
        ({}, 4 * 3),
        ({"num_signals": 5}, 4 * 2),
        ({"num_signals": 4, "n": [16, 24, 32], "solvers": ["IHT", "HTP"]}, 2 * 4 + 6 * 4),
        ({"num_signals": 5, "n": [16, 24]}, 2),
        ({"n": [24], "title": "Another"}, 0),
    ]:
        output, chosen = run(**others)
        assert f"{number}/{number} [" in output if number else " 0 runs [" in output
        shown = command_line.load_asked(store)
        assert {name: shown[name].values.tolist() for name in ("n", "K")} == {
            "n": chosen.n,
            "K": chosen.K,
        }
        assert shown.sizes["trial"] == chosen.num_signals and shown.done.all()
        assert shown.solver.values.tolist() == chosen.solvers
        assert command_line.draw(store).equals(shown.done)
        draw(chosen, shown)
    whole = tmp_path / "whole"
    assert (
        call(
            "run", tiny("shen2018/figure1", tmp_path, **changes, num_signals=5), "--out", whole
        ).exit_code
        == 0
    )
    kept = sweep.load(store).sel({name: sweep.load(whole)[name] for name in ("solver", "n", "K")})
    xarray.testing.assert_equal(kept.drop_vars("done"), sweep.load(whole).drop_vars("done"))
    for others in {"max_steps": 51}, {"d": 40}:
        line = fails("run", tiny("shen2018/figure1", tmp_path, **changes | others), "--out", store)
        assert "tolerances, metrics or data) has changed" in line


def test_a_picture_that_follows_a_sweep(tmp_path, capsys):
    """It is drawn anew when results have come, and no more once all are there."""
    path, store = tiny("shen2018/figure1", tmp_path, solvers=["IHT"]), tmp_path / "store"
    assert call("run", path, "--out", store, "--shard", "1/2").exit_code == 0
    begun = tmp_path / "begun"
    begun.mkdir()
    shutil.copy(store / "sweep.json", begun)
    assert "no cell has results yet" in fails("plot", begun)
    command_line.draw_as_results_come(begun, lambda: call("run", path, "--out", begun))
    assert (begun / "figure.png").exists()
    looks = []

    def wait():
        looks.append((store / "figure.png").stat().st_mtime_ns)
        if len(looks) == 2:
            assert (
                call("run", path, "--out", store, "--shard", "2/2", "--workers", "1").exit_code == 0
            )
        assert len(looks) < 3

    command_line.draw_as_results_come(store, wait)
    assert len(looks) == 2 and looks[0] == looks[1]
    assert (store / "figure.png").stat().st_mtime_ns > looks[1]
    assert capsys.readouterr().out.splitlines()[-1] == "4 of 4 cells"
    followed = call("plot", store, "--follow", "--every", "0.5")
    assert followed.exit_code == 0 and followed.output == call("plot", store).output
