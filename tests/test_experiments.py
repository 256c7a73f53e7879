"""The experiments through their command line: every figure in a tiny size, and every mistake as one clear line."""

import itertools
import json
import os
import runpy
import shutil
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import xarray
from click.testing import CliRunner
from scipy import sparse
from sklearn import datasets
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import orthogonal_mp

import jaxht
from experiments import (
    axiotis2020,
    baselines,
    completion,
    config,
    data,
    phase,
    reduced_rank,
    yuan2018,
    yuan2018_lda,
    yuan2018_precision,
    yuan2018_real,
    yuan2020,
    yuan2020_gaps,
    yuan2020_real,
    zhou2018,
)
from experiments.__main__ import main
from experiments.registry import EXPERIMENTS
from experiments.solvers import SOLVERS
from jaxht import sweep
from tests.util import x64

pytestmark = pytest.mark.usefixtures("all_quickly")
ROOT = Path(__file__).parents[1]
CONFIGS = sorted((ROOT / "configs").rglob("*.toml"))
MODELS = {name: experiment.config for name, experiment in EXPERIMENTS.items()}
SETS = Path(os.environ["JAXHT_DATA"]) if os.environ.get("JAXHT_DATA") else None

# By experiment, and by file where its figure is of another kind.
TINY = {
    "shen2018.phase_transition": {
        "solvers": ["IHT-1", "PGD"],
        "n": [16, 32],
        "K": [2, 4],
        "d": 32,
        "num_signals": 4,
        "max_steps": 50,
        "round_n": 32,
    },
    "shen2018.measurements_needed": {
        "K": [1, 2],
        "d": 32,
        "coarse_n": [4, 16, 32],
        "coarse_signals": 3,
        "num_signals": 4,
        "step": 8,
        "solvers": ["IHT-1"],
        "max_steps": 50,
        "round_n": 32,
    },
    "shen2018.success_curves": {
        "n": [16],
        "K": [2, 4],
        "d": 32,
        "shown_n": [16],
        "shown_K": [2],
        "num_signals": 4,
        "max_steps": 70,
    },
    "shen2018.stages": {
        "d": 32,
        "n": 16,
        "K": 2,
        "k": 4,
        "num_signals": 3,
        "num_stages": 2,
        "varied_k": [3],
        "varied_m": [5],
        "varied_eta": [1e3],
    },
    "shen2018.digits": {
        "dataset": "digits",
        "pairs": ["0v9"],
        "k": [2, 4],
        "shown_k": [2],
        "num_stages": 2,
        "max_rows": 40,
    },
    "phase.delta_rho": {
        "solvers": ["IHT"],
        "d": 32,
        "n": [16, 32],
        "rho": [0.1, 0.3],
        "num_signals": 3,
        "max_steps": 50,
        "round_n": 32,
    },
    "phase.completion": {
        "m": 6,
        "r": [1, 2],
        "n": [18, 36],
        "solvers": ["IHT-1"],
        "num_matrices": 3,
        "max_steps": 50,
    },
    "yuan2018.contraction": {"num_points": 5},
    "yuan2018.support_recovery": {
        "solvers": ["IHT"],
        "d": 32,
        "K": 2,
        "k": [2, 3],
        "n": [16, 32],
        "num_trials": 3,
        "max_steps": 50,
        "round_n": 32,
    },
    "yuan2018.against_sparsity": {"datasets": ["tiny"], "k": [3], "solvers": ["GraHTP"]},
    "yuan2018.against_penalty": {"datasets": ["tiny"], "penalties": [0.5], "solvers": ["IHT"]},
    "yuan2018.precision_matrices": {
        "p": [6],
        "num_trials": 2,
        "solvers": ["GraHTP"],
        "density": [0.1, 0.4],
        "penalties": [0.2, 0.5],
    },
    "yuan2018.tumour_classification": {
        "datasets": ["tiny"],
        "test_positive": [5],
        "test_negative": [5],
        "num_genes": 6,
        "num_folds": 2,
        "num_splits": 2,
        "solvers": ["FBS"],
        "density": [0.1, 0.4],
        "penalties": [0.2, 0.5],
    },
    "yuan2020.gap": {"d": [6], "k": [1], "l0": [0.1, 10.0], "num_problems": 2, "max_steps": 5},
    "yuan2020.conditioning": {"d": [6], "k": [1], "l0": [1.0], "kappa": [1.0, 9.0], "num_problems": 2, "max_steps": 5},
    "yuan2020.against_primal": {"d": 8, "k": 2, "n": [4, 8], "num_problems": 2, "max_steps": 5, "solvers": ["DIHT"]},
    "zhou2018.gap_against_cost": {
        "model": "softmax",
        "datasets": ["tiny"],
        "k": [3],
        "factors": [1.0, 4.0],
        "passes": 3.0,
        "batch_size": 4,
        "points": 5,
        "batch_growth": 1.3,
        "momentum_growth": 1.3,
        "max_steps": 50,
    },
    "figure2_rank.toml": {"model": "regression", "domain": {}, "k": [1]},
    "yuan2020.time_to_accuracy": {
        "datasets": ["tiny"],
        "k": [3],
        "l0": [0.4, 1.0],
        "gap_l0": [1.0],
        "factors": [0.25, 1.0],
        "dual_factors": [1.0],
        "num_steps": {"IHT": 3, "SDIHT": 2},
    },
    "figure8.toml": {"num_steps": {"SVRG-HT": 2, "DIHT": 2}},
    "axiotis2020.stuck": {"kappa": 4, "num_steps": 4},
    "axiotis2020.loss_against_sparsity": {"datasets": ["tiny"], "k": [1, 2, 5], "solvers": ["OMPR"]},
}


def write(path, table):
    """A flat TOML file, perhaps with tables of sizes; the values that occur here look alike in JSON."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict)]
    for size, own in table.items():
        if isinstance(own, dict):
            lines += [f"[{size}]", *(f"{key} = {json.dumps(value)}" for key, value in own.items())]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def tiny(path, folder, **changes):
    """The configuration at ``path``, small enough for a test."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    quick = {**table.pop("quick"), **TINY[table["experiment"]], **TINY.get(path.name, {}), **changes}
    return write(folder / path.name, {**table, **quick, "quick": {}, "paper": {}})


def write_csr(file, n=60, d=20, **others):
    """A sparse data set whose labels depend on the first two features; two thirds of it for training."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((n, d), density=0.4, rng=rng, data_sampler=lambda size: rng.normal(size=size), format="csr")
    y = np.where(X.toarray()[:, :2] @ [3, -3] + 0.3 * rng.normal(size=n) > 0, 1, -1)
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape, "format": b"csr"}
    np.savez(file, **parts, **{"y": y, "n_train": 2 * n // 3, **others})


def call(*args, env=None):
    return CliRunner(env=env).invoke(main, list(map(str, args)))


def fails(*args, env=None):
    """The one line on which a call fails with exit code 2."""
    result = call(*args, env=env)
    assert result.exit_code == 2, result.output
    (line,) = result.output.splitlines()
    return line


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_figure(path, tmp_path):
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    for size in config.SIZES:
        config.load(path, size, MODELS)
    write_csr(tmp_path / "tiny.npz")
    # One pool of lanes: only who starts the process can give XLA the threads that several take (docs/design.md).
    own = ["--workers", 1, *(["--data-dir", tmp_path] if "datasets" in {**table, **table["paper"]} else [])]
    result = call("run", tiny(path, tmp_path), "--out", tmp_path / "store", *own)
    assert result.exit_code == 0, result.output
    assert "100%" in result.output

    # Plots read the store only: neither the configuration nor the data.
    (tmp_path / path.name).unlink()
    shutil.move(tmp_path / "store", tmp_path / "moved")
    result = call("plot", tmp_path / "moved", env={"JAXHT_DATA": ""})
    assert result.exit_code == 0, result.output
    assert (tmp_path / "moved" / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "moved" / "figure.pdf").read_bytes().startswith(b"%PDF")
    loaded = sweep.load(tmp_path / "moved")
    assert json.loads(loaded.attrs["config"])["title"] == table["title"]


def test_list_names_every_configuration():
    result = call("list")
    assert result.exit_code == 0
    for path in CONFIGS:
        assert str(path.relative_to(ROOT)) in result.output


BUNDLED = ["diabetes_quadratic"]
DIABETES = ROOT / "configs" / "axiotis2020" / "diabetes.toml"
SHEN = ROOT / "configs" / "shen2018" / "figure1.toml"


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
    table = tomllib.loads(tiny(DIABETES, tmp_path, datasets=BUNDLED).read_text(encoding="utf-8")) | changes
    path = write(tmp_path / "wrong.toml", {key: value for key, value in table.items() if value is not None})
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
    assert str(tmp_path / "file") in fails("run", tiny(SHEN, tmp_path), "--out", tmp_path / "file" / "store")

    assert str(tmp_path) in fails("plot", tmp_path)
    (tmp_path / "results.nc").write_bytes(b"no such thing")
    assert str(tmp_path) in fails("plot", tmp_path)
    sweep.save(sweep.run(lambda key, cell: {"x": cell["K"]}, {"K": [1]}, num_trials=1), tmp_path)
    assert "not the results of an experiment" in fails("plot", tmp_path)


def test_data_are_looked_for_and_never_replaced(tmp_path, monkeypatch):
    figure1 = ROOT / "configs" / "axiotis2020" / "figure1.toml"
    housing = tiny(figure1, tmp_path, datasets=["cal_housing"])
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
    result = call("run", housing, "--out", tmp_path / "s", "--data-dir", tmp_path)
    assert result.exit_code == 0, result.output
    assert sweep.load(tmp_path / "s").feature.values.tolist() == ["intercept", "x1", "x2", "x3", "x4", "x5"]


def test_as_a_program(tmp_path, monkeypatch, capfd):
    """Nothing but the one line on standard error, also from outside the click test runner."""
    monkeypatch.setattr(sys, "argv", ["experiments", "run", str(tmp_path / "no.toml")])
    monkeypatch.delitem(sys.modules, "experiments.__main__")
    with pytest.raises(SystemExit, match="2"):
        runpy.run_module("experiments", run_name="__main__", alter_sys=True)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [f"Error: {tmp_path / 'no.toml'}: No such file or directory"]


def test_a_sweep_in_parts(tmp_path):
    """Two shards in one store; half of it can be drawn; the whole is exported; another configuration is refused."""
    path, store = tiny(SHEN, tmp_path, solvers=["IHT"]), tmp_path / "store"
    assert call("run", path, "--out", store, "--shard", "1/2").exit_code == 0
    assert int(sweep.load(store).done.sum()) == 2
    assert call("plot", store).exit_code == 0
    assert call("run", path, "--out", store, "--shard", "2/2", "--workers", "1").exit_code == 0
    assert call("run", path, "--out", tmp_path / "whole").exit_code == 0
    xarray.testing.assert_identical(sweep.load(store), sweep.load(tmp_path / "whole"))

    assert call("export", store, tmp_path / "results.nc").exit_code == 0
    xarray.testing.assert_equal(xarray.load_dataset(tmp_path / "results.nc", engine="h5netcdf"), sweep.load(store))
    assert ".nc or .zarr" in fails("export", store, tmp_path / "results.csv")
    line = fails("run", tiny(SHEN, tmp_path, solvers=["IHT"], seed=1), "--out", store)
    assert "another sweep" in line
    assert "seed was 0, is 1" in line
    (store / "sweep.json").write_text("{")
    assert "sweep.json is damaged" in fails("plot", store)
    for shard in "0/2", "3/2", "half":
        assert call("run", path, "--out", store, "--shard", shard).exit_code == 2


def test_diabetes_is_the_quadratic_model():
    table = data.load("diabetes_quadratic", None)
    assert table.X.shape == (442, 64)
    assert len(set(table.names)) == 64
    assert {"bmi", "bmi²", "age·sex"} <= set(table.names) and "sex²" not in table.names
    np.testing.assert_allclose(table.X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(table.X, axis=0), 1)


def test_california_housing_is_what_statlib_has(monkeypatch):
    rng = np.random.default_rng(0)
    households = rng.integers(1, 6000, 500)
    rooms, bedrooms, population = (rng.integers(1, 40000, 500) for _ in range(3))
    income, age, latitude, longitude = rng.normal(size=(4, 500))
    averages = [income, age, rooms / households, bedrooms / households, population, population / households]
    bunch = SimpleNamespace(data=np.stack([*averages, latitude, longitude], axis=1), target=np.full(500, 4.526))
    monkeypatch.setattr(datasets, "fetch_california_housing", lambda download_if_missing: bunch)
    monkeypatch.delenv("JAXHT_DATA", raising=False)
    table = data.load("cal_housing", None)
    original = [longitude, latitude, age, rooms, bedrooms, population, households, income]
    np.testing.assert_array_equal(table.X, np.stack(original, axis=1))
    np.testing.assert_allclose(table.y, 452600)


def test_preprocessing_and_reference_losses():
    rng = np.random.default_rng(1)
    X, y = 3 + rng.normal(size=(40, 6)), rng.normal(size=40)
    X[7, 2], y[9] = np.nan, np.nan
    A, b, names = axiotis2020.prepared(data.Table(X, y, list("abcdef")))
    assert A.shape == (38, 7) and names == ["intercept", *"abcdef"]
    np.testing.assert_allclose(np.linalg.norm(A, axis=0), 1)
    np.testing.assert_allclose(A[:, 0], A[0, 0])

    def loss(support):
        return np.sum((A[:, support] @ np.linalg.lstsq(A[:, support], b, rcond=None)[0] - b) ** 2) / 2

    k = [1, 2, 4, 7]
    settings = {"experiment": "", "title": "", "datasets": ["six"], "k": k, "solvers": ["ELS"]}
    task = axiotis2020.Task("six", data.Table(X, y, list("abcdef")), axiotis2020.LossAgainstSparsity(**settings))
    best = [min(loss([0, *rest]) for rest in itertools.combinations(range(1, 7), i - 1)) for i in k]
    np.testing.assert_allclose(task.best(), best)
    np.testing.assert_allclose(task.intercept_loss(), loss([0]))
    with x64():
        omp, els, l1, refitted = task.omp(), task.solved("ELS", task.omp().x.values), task.l1(False), task.l1(True)
    path = orthogonal_mp(A[:, 1:] - A[:, 1:].mean(axis=0), b - b.mean(), n_nonzero_coefs=6, return_path=True)
    expected = [loss([0, *(1 + np.flatnonzero(path[:, i - 2]))] if i > 1 else [0]) for i in k]
    np.testing.assert_allclose(omp.loss, expected)
    assert (els.loss <= omp.loss * (1 + 1e-12)).all() and (els.loss >= task.best() * (1 - 1e-12)).all()
    assert (l1.loss >= refitted.loss).all()
    for fit in (omp, els, l1, refitted):
        assert (fit.x.sel(feature="intercept") != 0).all() and ((fit.x != 0).sum("feature") <= fit.k).all()
        for x, value in zip(fit.x.values, fit.loss.values, strict=True):
            np.testing.assert_allclose(np.sum((A @ x - b) ** 2) / 2, value)


def test_the_l1_penalty_leaves_the_intercept_alone():
    """Logistic: the slopes are those of the penalty on the nonzeros, below it elsewhere, and 0 for the intercept."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 6)) + 1
    y = np.where(X @ [2.0, -1, 1, 0, 0, 0] + rng.normal(size=80) > 1, 1.0, -1.0)
    settings = {"experiment": "", "title": "", "datasets": ["six"], "model": "logistic", "k": [4], "solvers": ["OMPR"]}
    table = data.Table(X, y, list("abcdef"))
    task = axiotis2020.Task("six", table, axiotis2020.LossAgainstSparsity(**settings))
    with x64():
        fit = task.l1(False)
    x = fit.x.values[0]
    assert np.count_nonzero(x[1:]) == 3
    slopes = -task.A.T @ (y / (1 + np.exp(y * (task.A @ x))))
    penalty = np.abs(slopes[1:]).max()
    np.testing.assert_allclose(np.abs(slopes[1:])[x[1:] != 0], penalty, rtol=1e-2)
    assert abs(slopes[0]) < 1e-2 * penalty
    np.testing.assert_allclose(fit.loss, np.sum(np.logaddexp(0, -y * (task.A @ x))))
    shares = np.mean(y == 1), np.mean(y == -1)
    np.testing.assert_allclose(task.intercept_loss(), -80 * sum(p * np.log(p) for p in shares))


def test_what_has_an_A_of_its_own():
    cell = sweep.Cell({"n": 5, "K": 2}, {"n": 5}, jax.random.key(3))
    for designs, same in ("cell", True), ("trial", False):
        one, other = (phase.draw(jax.random.key(key), cell, 16, designs=designs) for key in (4, 5))
        assert np.array_equal(one.A, other.A) == same
        assert not np.array_equal(one.x_true, other.x_true)


def test_l1_transition_is_the_published_one():
    """Donoho & Tanner, Proceedings of the IEEE 2010, print 0.386 at delta = 1/2; at delta = 1 all are recovered."""
    np.testing.assert_allclose(phase.l1_transition(np.array([0.5, 1.0])), [0.3858, 1], atol=2e-3)


def test_the_fine_sweep_runs_where_the_coarse_one_points(tmp_path):
    """Also where a solver never gets there, and then alone."""
    figure3 = ROOT / "configs" / "shen2018" / "figure3.toml"
    path = tiny(figure3, tmp_path, solvers=["HTP"], K=[1, 6], coarse_n=[4, 16, 28], below=2, above=4, step=1)
    assert call("run", path, "--out", tmp_path / "store").exit_code == 0
    results = sweep.load(tmp_path / "store")
    fine, coarse = sweep.load(tmp_path / "store" / "fine"), sweep.load(tmp_path / "store" / "coarse")
    assert fine.done.any() and not fine.done.all() and coarse.done.all()
    trials = results.trials.sel(n=fine.n)
    np.testing.assert_array_equal((trials == 4).transpose(*fine.done.dims), fine.done)
    assert (results.trials.sel(n=coarse.n) >= 3).all()

    path = tiny(figure3, tmp_path, solvers=["IHT"], max_steps=1, coarse_n=[4, 8])
    assert call("run", path, "--out", tmp_path / "never").exit_code == 0
    assert not (tmp_path / "never" / "fine").exists()
    assert call("plot", tmp_path / "never").exit_code == 0


def test_solvers_that_draw_rows_have_as_many_as_there_are(tmp_path):
    figure2 = ROOT / "configs" / "shen2018" / "figure2.toml"
    assert "round_n must be 1" in fails("run", tiny(figure2, tmp_path, round_n=8), "--out", tmp_path / "wrong")
    assert call("run", tiny(figure2, tmp_path), "--out", tmp_path / "store").exit_code == 0
    results = sweep.load(tmp_path / "store")
    assert results.num_steps.max() == 10  # stages, of seven gradients each
    assert results.full_gradients.equals(results.num_steps)
    assert (results.sample_gradients == 2 * results.projections).all()


def test_problems_do_not_depend_on_the_rounding_of_n():
    """Zero rows are all that a larger bound adds."""
    cell = {bound: sweep.Cell({"n": 5, "K": 2}, {"n": bound}, jax.random.key(3)) for bound in (5, 8, 64)}
    drawn = {bound: phase.draw(jax.random.key(4), cell[bound], 16) for bound in cell}
    for bound in 8, 64:
        np.testing.assert_array_equal(drawn[bound].A[:5], drawn[5].A)
        np.testing.assert_array_equal(drawn[bound].x_true, drawn[5].x_true)
        assert not drawn[bound].A[5:].any() and not drawn[bound].y[5:].any()


def test_padding_has_no_label_and_no_weight():
    cell = sweep.Cell({"n": 5}, {"n": 8}, jax.random.key(3))
    response, objective = yuan2018.MODELS["logistic"]
    problem = phase.draw(jax.random.key(4), cell, 16, lambda cell: 2, response=response)
    assert not problem.y[5:].any() and abs(problem.y[:5]).all()
    padded, whole = objective(problem.A, problem.y, 0.1), jaxht.Logistic(problem.A[:5], problem.y[:5], 0.1, 2.0)
    values = [f.value(problem.x_true, f.predict(problem.x_true)) for f in (padded, whole)]
    np.testing.assert_allclose(*values, rtol=1e-6)


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_is_built_from_an_objective_and_k(name):
    A, row = np.ones((20, 12), np.float32), SOLVERS[name]

    def init(A):
        objective = jaxht.LeastSquares(A, A[:, 3])
        constraint, solver = row.method(2, 12)(objective, sweep.Cell({"K": 2}, {}, jax.random.key(0)))
        objective, constraint = objective.prepare(), constraint.prepare(objective.shape)
        assert (constraint.k_max == row.sparsity(2, 12)) or not row.gathers
        return solver.init(objective, constraint, objective.start(constraint), None)

    assert jax.eval_shape(init, A)[0].x.shape == (12,)


def test_sparse_sets_and_their_training_part(tmp_path):
    write_csr(tmp_path / "tiny.npz")
    table = data.load("tiny", tmp_path)
    assert sparse.issparse(table.X) and table.X.shape == (60, 20) and table.num_train == 40
    assert isinstance(table.dense(), np.ndarray) and table.names[0] == "x1"
    cfg = yuan2018_real.OnData(experiment="", title="", datasets=["tiny"], solvers=["HTP"], l2=1e-5, rtol=1e-4)
    task = yuan2018_real.Task(table, cfg)
    assert task.A.shape == (40, 20) and len(task.y_test) == 20
    norms = np.sqrt(task.A.power(2).sum(axis=1))
    np.testing.assert_allclose(norms[norms > 0], 1)

    X, y = np.random.default_rng(1).normal(5, 3, size=(21, 4)), np.repeat([1.0, -1.0], [11, 10])
    task = yuan2018_real.Task(data.Table(X, y, list("abcd")), cfg)
    assert task.A.shape == (10, 4) and sorted([*task.y, *task.y_test]) == sorted(y)
    np.testing.assert_allclose(task.A.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(task.A.std(axis=0), 1)
    with pytest.raises(config.Failure, match="labels"):
        yuan2018_real.Task(data.Table(X, np.arange(21.0), list("abcd")), cfg)


def test_l1_solutions_are_optimal_and_as_sparse_as_asked():
    rng = np.random.default_rng(2)
    A = rng.normal(size=(80, 15))
    y = np.where(A[:, :4].sum(axis=1) + rng.normal(size=80) > 0, 1.0, -1.0)
    path = baselines.L1Logistic(A, y, 1e-8)
    for penalty in 0.3 * path.largest, 0.05 * path.largest:
        x = path.at(penalty).x
        slopes = A.T @ (-2 * y / (1 + np.exp(2 * y * (A @ x)))) / 80
        np.testing.assert_allclose(slopes[x != 0], -penalty * np.sign(x[x != 0]), rtol=1e-4)
        assert (abs(slopes) <= penalty * (1 + 1e-4)).all()
    assert path.at(path.largest).nonzeros == 0
    assert [path.with_nonzeros(k).nonzeros for k in (1, 4, 15)] == [1, 4, 15]


def test_on_data_nothing_is_done_twice(tmp_path, monkeypatch):
    """The parts of a store are read again, unless the configuration has changed; the sparsity is as asked."""
    write_csr(tmp_path / "tiny.npz")
    figure4 = ROOT / "configs" / "yuan2018" / "figure4.toml"
    run = ["run", tiny(figure4, tmp_path, solvers=["IHT"]), "--out", tmp_path / "store", "--data-dir", tmp_path]
    assert call(*run).exit_code == 0
    results = sweep.load(tmp_path / "store")
    assert (results.nonzeros <= results.k).all()
    assert (results.test_error < 0.5).all() and (results.objective < np.log(2)).all()
    monkeypatch.setattr(yuan2018_real.Task, "solved", None)
    assert call(*run).exit_code == 0
    xarray.testing.assert_identical(sweep.load(tmp_path / "store"), results)
    run[1] = tiny(figure4, tmp_path, l2=1e-3)
    assert isinstance(call(*run).exception, TypeError)

    write_csr(tmp_path / "tiny.npz", d=2)
    assert "3 is more than the 2 columns of tiny" in fails(*run)


def test_the_curves_are_those_of_the_best_step_and_cost_what_they_say():
    """Costs by hand; of three step sizes the one that is lowest where the budget ends, not after it."""
    settings = {"experiment": "", "title": "", "l2": 1e-5, "stage": 0.5, "momentum": 0.5, "rtol": 1e-6}
    n, cfg = 30, zhou2018.GapAgainstCost(**settings | TINY["zhou2018.gap_against_cost"] | {"model": "logistic"})
    rng = np.random.default_rng(0)
    table = data.Table(rng.normal(size=(n, 6)), np.repeat([1.0, -1.0], n // 2), list("abcdef"))
    task, rows = zhou2018.Task("six", 3, cfg, table), zhou2018.rows(cfg, n)
    hsg = task.runs(rows["HSG-HT"])
    sizes = np.minimum(n, np.ceil(1.3 ** np.arange(rows["HSG-HT"].num_steps + 1)))
    np.testing.assert_array_equal(hsg.ifo, np.tile(np.append(0, np.cumsum(sizes[:-1])), (2, 1)))
    np.testing.assert_array_equal(hsg.projections, np.tile(hsg.point, (2, 1)))
    assert hsg.ifo.max() <= cfg.passes * n < sizes.sum()
    np.testing.assert_allclose(hsg.value.isel(point=0), np.log(2), rtol=1e-6)
    np.testing.assert_allclose(hsg.x_value, hsg.value.isel(point=-1).min())

    value = [[[3.0, 2.0, 0.0], [3.0, 1.0, 1.5], [3.0, 4.0, np.nan]]]
    ifo = [[[0.0, 9.0, 20.0], [0.0, 10.0, 12.0], [0.0, 9.0, np.nan]]]
    over = ("solver", "factor", "point")
    results = xarray.Dataset({"value": (over, value), "ifo": (over, ifo), "projections": (over, ifo)})
    results = results.assign_coords(factor=[1.0, 4.0, 16.0], solver=["SG-HT"]).assign(n=5)
    for passes, step, last in (1, 1, 3), (2, 4, 1), (3, 4, 1.5), (4, 1, 0):
        curves = zhou2018.chosen(results, passes)
        assert (float(curves.step[0]), float(curves.last_value[0])) == (step, last)
        assert float(curves.ifo.max()) <= passes * 5
    assert zhou2018.projections_needed(curves, 2.5).values == [9] and zhou2018.projections_needed(curves, -1).isnull()


def test_time_to_target_is_where_the_error_stays_low():
    """By hand: all but one end at 0.2 or below; one comes back there, one does not, one is there at once."""
    nan, over = np.nan, ("solver", "l0", "point")
    error = [[[1, 0.1, 0.3, 0.2]], [[1, 0.1, 0.4, nan]], [[0.2, 0.2, nan, nan]], [[1, 0.3, 0.1, 0.1]]]
    seconds = [[[0, 1, 2, 3]], [[0, 1, 2, nan]], [[0, 5, nan, nan]], [[0, 2, 4, 6]]]
    results = xarray.Dataset({"test_error": (over, error), "seconds": (over, seconds)}, {"point": np.arange(4)})
    assert yuan2020_real.target(results) == 0.2
    np.testing.assert_array_equal(yuan2020_real.time_to_target(results, 0.2).isel(l0=0), [3, nan, 0, 4])

    runs = xarray.Dataset({"value": (("factor", "point"), [[3, 2, nan], [3, np.inf, nan], [3, 2.5, 1.5]])})
    assert float(yuan2020_real.tuned(runs.assign(step=("factor", [1, 4, 16]))).step) == 16


def test_regression_has_a_bounded_rank_and_a_known_minimum():
    """The minimum over rank 1 by brute force: over all row spaces of R^2, and the best X for each."""
    rng, (n, d, l2) = np.random.default_rng(0), (30, 5, 0.1)
    A, classes = rng.normal(size=(n, d)), rng.choice([3.0, 7.0], n)
    Y = reduced_rank.indicators((classes == 7).astype(int))
    np.testing.assert_array_equal(Y, np.stack([classes == 3, classes == 7], axis=1))
    ridge = np.linalg.solve(A.T @ A / n + l2 * np.eye(d), A.T @ Y / n)

    def f(X):
        return np.sum((A @ X - Y) ** 2) / (2 * n) + l2 / 2 * np.sum(X**2)

    angles = np.linspace(0, np.pi, 2000)
    lines = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    np.testing.assert_allclose(reduced_rank.minimum(A, Y, l2, 1), min(f(ridge @ np.outer(v, v)) for v in lines), 1e-6)
    np.testing.assert_allclose(reduced_rank.minimum(sparse.csr_matrix(A), Y, l2, 2), f(ridge))

    settings = {"experiment": "", "title": "", "l2": l2, "stage": 0.5, "momentum": 0.5, "rtol": 1e-6}
    cfg = zhou2018.GapAgainstCost(**settings | TINY["zhou2018.gap_against_cost"] | {"model": "regression"})
    task = zhou2018.Task("five", 1, cfg, data.Table(A, classes, list("abcde")))
    fit = task.runs(zhou2018.rows(cfg, n)["FG-HT"])
    np.testing.assert_allclose(fit.value.isel(point=0), 0.5, rtol=1e-6)
    assert np.linalg.matrix_rank(fit.x.values.reshape(d, 2)) == 1
    assert task.rest([fit]).value <= fit.value.min() < 0.5
    with pytest.raises(config.Failure, match="3 is more than 2"):
        zhou2018.Task("five", 3, cfg, data.Table(A, classes, list("abcde")))


def test_rows_of_one_domain(tmp_path):
    domain = np.arange(60) % 3
    write_csr(tmp_path / "tiny.npz", domain=domain)
    table, whole = data.load("tiny", tmp_path, domain=1), data.load("tiny", tmp_path)
    np.testing.assert_array_equal(table.dense(), whole.dense()[1::3])
    np.testing.assert_array_equal(table.y, whole.y[1::3])
    assert table.num_train == np.sum(domain[: whole.num_train] == 1)
    with pytest.raises(config.Failure, match="no row is of domain 3"):
        data.load("tiny", tmp_path, domain=3)
    write_csr(tmp_path / "tiny.npz")
    with pytest.raises(config.Failure, match="domain"):
        data.load("tiny", tmp_path, domain=1)


@pytest.mark.parametrize("n", [7, 20])
def test_the_entries_observed_are_n_and_distinct(n):
    m, n_max = 6, 20
    cell = sweep.Cell({"n": n, "r": 2}, {}, jax.random.key(0))
    problem = completion.draw(jax.random.key(1), cell, m, 3, n_max)
    assert np.linalg.matrix_rank(problem.x_true) == 2
    inside, beyond = np.split(np.asarray(problem.A), [n])
    assert len(set(inside.tolist())) == n and (0 <= inside).all() and (inside < m**2).all() and (beyond == m**2).all()
    np.testing.assert_array_equal(problem.y[:n], np.ravel(problem.x_true)[inside])
    # Of an objective at 0 the gradient is minus what is observed.
    objective = completion.observed(problem.A, problem.y, m).prepare()
    zero = np.zeros((m, m), np.float32)
    gradient = np.ravel(objective.gradient(zero, objective.predict(zero)))
    np.testing.assert_array_equal(np.flatnonzero(gradient), np.sort(inside))
    np.testing.assert_allclose(gradient[inside], -problem.y[:n])


def test_the_least_value_over_all_supports():
    rng = np.random.default_rng(0)
    A, y, k, l2 = rng.normal(size=(7, 9)), rng.normal(size=7), 3, 0.3
    values = []
    for support in itertools.combinations(range(9), k):
        # A ridge is least squares with more rows.
        rows, right = np.vstack([A[:, support], np.sqrt(l2) * np.eye(k)]), np.concatenate([y, np.zeros(k)])
        values.append(np.sum((rows @ np.linalg.lstsq(rows, right, rcond=None)[0] - right) ** 2) / 2)
    with x64():
        objective = jaxht.LeastSquares(np.asarray(A), np.asarray(y), l2)
        np.testing.assert_allclose(yuan2020_gaps.brute_force(objective, k), min(values), rtol=1e-10)
        ends = {name: float(end) for name, end in yuan2020_gaps.bounds(objective, 7, k, 30, True).items()}
    assert ends["dual"] <= ends["minimum"] * (1 + 1e-12) and ends["minimum"] <= ends["value"] * (1 + 1e-12)


def test_ill_conditioned_designs():
    penalty, kappa = 0.2, 50.0
    eigenvalues = yuan2020_gaps.spectrum(12, kappa, penalty) + penalty
    np.testing.assert_allclose(eigenvalues.max() / eigenvalues.min(), kappa, rtol=1e-4)
    np.testing.assert_array_equal(yuan2020_gaps.spectrum(12, 1.0, penalty), 1)
    truth = np.arange(12) % 2.0
    A = yuan2020.correlated(jax.random.key(0), truth, 20_000, 4, kappa)
    covariance = np.cov(A, rowvar=False)
    np.testing.assert_allclose(np.diag(covariance), 1, atol=0.05)
    np.testing.assert_allclose(np.linalg.cond(covariance), kappa, rtol=0.1)
    chosen = (np.abs(covariance) > 0.1).sum(axis=0) > 1
    assert chosen.sum() == 4 and truth[chosen].sum() == 2


def test_the_model_of_precision_matrices():
    """Condition number p, and samples of that precision."""
    rng = np.random.default_rng(0)
    W = yuan2018_precision.truth(20, rng)
    np.testing.assert_allclose(np.linalg.cond(W), 20, rtol=1e-9)
    assert set(np.unique(W - np.diag(np.diag(W)))) == {0, 1} and 5 < yuan2018_precision.edges(W) < 35
    for S in yuan2018_precision.covariances(W, 100_000, rng):
        np.testing.assert_allclose(S @ W, np.eye(20), atol=0.05)
    W[0, 1] = W[1, 0] = 99
    assert yuan2018_precision.losses(np.stack([np.eye(20), W]), S).tolist() == [pytest.approx(np.trace(S)), np.inf]
    assert not yuan2018_precision.proper(W)


def test_linear_discriminant_analysis():
    """That of scikit-learn, with its covariance, on the genes that differ."""
    rng = np.random.default_rng(0)
    y = rng.random(90) < 0.3
    X = rng.normal(size=(90, 30)) + np.where(y[:, None] & (np.arange(30) % 7 == 2), 2.0, 0.0)
    settings = {"experiment": "", "title": "", "step_size": 1.0, "grasp_steps": 5}
    cfg = yuan2018_lda.TumourClassification(**settings | TINY["yuan2018.tumour_classification"] | {"num_genes": 4})
    split = yuan2018_lda.Split(data.Table(X, np.where(y, 1.0, -1.0), []), (10, 25), cfg, 0)
    assert split.X.shape == (55, 4) and (split.y_test.sum(), len(split.y_test)) == (10, 35)
    assert split.folds.sum() == 55
    np.testing.assert_allclose(split.X.std(axis=0), 1)
    means = [split.X[own].mean(axis=0) for own in (split.y, ~split.y)]
    assert (means[0] - means[1] > 1).all()  # the four genes that differ
    every = np.ones(55, bool)
    W = np.linalg.inv(yuan2018_lda.covariance(split.X, split.y, every, every))
    expected = LinearDiscriminantAnalysis(solver="lsqr").fit(split.X, split.y).predict(split.X_test)
    np.testing.assert_array_equal(yuan2018_lda.predicted(W, split.X, split.y, split.X_test), expected)


@pytest.mark.skipif(SETS is None, reason="needs the data sets in $JAXHT_DATA")
@pytest.mark.parametrize(("name", "shape", "num_train"), [("rcv1_subsets_binary", (23749, 47236), 20242)])
def test_real_sparse_sets(name, shape, num_train):
    if not (SETS / f"{name}.npz").is_file():
        pytest.skip(f"needs {name}.npz in $JAXHT_DATA")
    table = data.load(name, SETS)
    assert table.X.shape == shape and table.num_train == num_train
    assert set(table.y) == {-1, 1}
