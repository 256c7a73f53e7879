"""The experiments: what their figures show, what the command line says, and the parts that they are
made of."""

import dataclasses
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
from sklearn.linear_model import Lasso, orthogonal_mp

import jaxht
from experiments import __main__ as command_line
from experiments.__main__ import main
from experiments.axiotis2020 import loss_against_sparsity, planted_pair, stuck
from experiments.common import SOLVERS, Session, config, data, l1, plots, recovery
from experiments.common.registry import EXPERIMENTS, summarise
from experiments.shen2018.lines import paper_line
from experiments.yuan2018 import (
    estimation,
    precision_matrices,
    real_data,
    support_recovery,
    tumour_classification,
)
from experiments.yuan2020 import against_primal, conditioning, time_to_accuracy
from experiments.zhou2018 import gap_against_cost
from jaxht import phase_diagram, sweep
from tests.util import x64

pytestmark = pytest.mark.usefixtures("all_quickly")
ROOT = Path(__file__).parents[1]
CONFIGS = sorted((ROOT / "configs").rglob("*.toml"))
MODELS = {name: experiment.Config for name, experiment in EXPERIMENTS.items()}
SETS = Path(os.environ["JAXHT_DATA"]) if os.environ.get("JAXHT_DATA") else None


@pytest.fixture(autouse=True)
def _forget_programs():
    yield
    jax.clear_caches()


def write(path, table):
    """A flat TOML file, perhaps with tables of sizes; the values that occur here look alike in
    JSON."""
    lines = [
        f"{key} = {json.dumps(value)}"
        for key, value in table.items()
        if not isinstance(value, dict)
    ]
    for size, own in table.items():
        if isinstance(own, dict):
            lines += [f"[{size}]", *(f"{key} = {json.dumps(value)}" for key, value in own.items())]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


# A configuration, and what makes it small enough for a test.
PLANTED = {"d": 32, "num_signals": 3, "max_steps": 50, "round_n": 32}
TINY = {
    "shen2018/figure1": {**PLANTED, "solvers": ["PGD"], "n": [16, 32], "K": [2, 4]},
    "shen2018/figure2": {
        "d": 32, "num_signals": 4, "max_steps": 70,
        "n": [16], "K": [2, 4], "shown_n": [16], "shown_K": [2],
    },
    "shen2018/figure3": {
        **PLANTED, "K": [1, 2], "coarse_n": [4, 16, 32], "coarse_signals": 3, "num_signals": 4, "step": 8,
        "solvers": ["IHT-1"],
    },
    "shen2018/figure4": {
        "d": 32, "n": 16, "K": 2, "k": 4, "num_signals": 3, "num_stages": 2, "varied_k": [3], "varied_m": [5],
        "varied_eta": [1e3],
    },
    "shen2018/figure7": {
        "dataset": "digits", "pairs": ["0v9"], "k": [2, 4],
        "shown_k": [2], "num_stages": 2, "max_rows": 40,
    },
    "phase/delta_rho": {**PLANTED, "solvers": ["IHT"], "n": [16, 32], "rho": [0.1, 0.3]},
    "phase/completion": {"m": 6, "r": [1, 2], "n": [18, 36], "solvers": ["IHT-1"], "num_matrices": 3, "max_steps": 50},
    "yuan2018/figure1": {"num_points": 5},
    "yuan2018/figure2": {
        "d": 32, "K": 2, "solvers": ["IHT"], "k": [2, 3], "n": [16, 32], "num_trials": 3, "max_steps": 50, "round_n": 32
    },
    "yuan2018/figure4": {"datasets": ["tiny"], "k": [3], "solvers": ["GraHTP"]},
    "yuan2018/figure5": {"datasets": ["tiny"], "penalties": [0.5], "solvers": ["IHT"]},
    "yuan2018/figure6": {
        "p": [6], "num_trials": [2],
        "solvers": ["GraHTP"], "density": [0.1, 0.4], "penalties": [0.2, 0.5],
    },
    "yuan2018/table4": {
        "datasets": ["tiny"], "test_positive": [5], "test_negative": [5], "num_genes": 6, "num_folds": 2,
        "num_splits": 2, "solvers": ["FBS"], "density": [0.1, 0.4], "penalties": [0.2, 0.5],
    },
    "yuan2020/figure1": {"d": [6], "k": [1], "l0": [0.1, 10.0], "ratio": [0.5, 1.0], "num_problems": 2, "max_steps": 5},
    "yuan2020/figure3": {"d": [6], "k": [1], "l0": [1.0], "kappa": [1.0, 9.0], "num_problems": 2, "max_steps": 5},
    "yuan2020/figure4": {"d": 8, "k": 2, "n": [4, 8], "num_problems": 2, "max_steps": 5, "solvers": ["DIHT"]},
    "yuan2020/figure5": {
        "datasets": ["tiny"], "k": [3], "l0": [0.4, 1.0], "gap_l0": [1.0], "factors": [0.25, 1.0],
        "num_steps": {"IHT": 3, "SDIHT": 2},
    },
    "yuan2020/figure8": {
        "datasets": ["tiny"], "k": [3], "l0": [1.0], "gap_l0": [1.0], "factors": [1.0], "dual_factors": [1.0],
        "num_steps": {"SVRG-HT": 2, "DIHT": 2},
    },
    "zhou2018/figure2": {
        "datasets": ["tiny"], "target": {}, "k": [3], "factors": [1.0, 4.0], "passes": [1.0, 3.0],
        "growth": [1.2, 1.3], "momentum": [0.5], "num_seeds": 2, "batch_size": 4, "points": 5, "max_steps": 50,
    },
    "axiotis2020/figure1": {"datasets": ["tiny"], "k": [1, 2, 5], "solvers": ["OMPR"]},
    "axiotis2020/figure4": {"datasets": ["tiny", "other"], "split": {}, "k": [2], "solvers": ["IHT"]},
    "axiotis2020/diabetes": {"k": [1, 2, 5], "solvers": ["OMPR"]},
    "axiotis2020/lemma5_2": {"kappa": 4, "num_steps": 4},
    "axiotis2020/table1": {},
    "axiotis2020/section5_1": {"N": [3, 4]},
}  # fmt: skip


def tiny(name, folder, **changes):
    """The configuration of that name, small enough for a test; None in changes: a key that is
    missing."""
    path = ROOT / "configs" / f"{name}.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    quick, *_ = [table.pop(size, None) for size in config.SIZES]
    changed = {**table, **quick, **TINY[name], **changes}
    inner = {
        key: value
        for key, value in changed.items()
        if isinstance(value, dict) and key not in config.SIZES
    }
    for key, value in inner.items():
        changed[key] = None if not value else changed[key]
    flat = {key: value for key, value in changed.items() if value is not None and key not in inner}
    sizes = {"quick": {}, "paper": {}} | {
        size: changed[size] for size in config.SIZES if size in changed
    }
    return write(
        folder / path.name, flat | {key: value for key, value in inner.items() if value} | sizes
    )


def write_csr(file, n=60, d=20, **others):
    """A sparse data set whose labels depend on the first two features; two thirds of it for
    training."""
    rng = np.random.default_rng(0)
    X = sparse.csr_array(rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.4))
    y = np.where(X.toarray()[:, :2] @ [3, -3] + 0.3 * rng.normal(size=n) > 0, 1, -1)
    parts = {
        "data": X.data,
        "indices": X.indices,
        "indptr": X.indptr,
        "shape": X.shape,
        "format": b"csr",
    }
    np.savez(file, **parts, **{"y": y, "n_train": 2 * n // 3, **others})


def call(*args, env=None):
    return CliRunner(env=env).invoke(main, list(map(str, args)))


def fails(*args, env=None):
    """The one line on which a call fails with exit code 2."""
    result = call(*args, env=env)
    assert result.exit_code == 2, result.output
    (line,) = result.output.splitlines()
    return line


def run(name, folder, **changes):
    """An experiment in a tiny size: its configuration and its results, as they were stored."""
    chosen = config.load(tiny(name, folder, **changes), "quick", MODELS)
    for file in "tiny", "other":
        write_csr(folder / f"{file}.npz")
    reports, store = [], folder / "store"
    # One pool of lanes: only who starts the process can give XLA the threads that several take
    # (docs/design.md).
    session = Session(store, folder, reports.append, {"workers": 1})
    results = EXPERIMENTS[chosen.experiment].run(chosen, session)
    assert reports[-1].done == reports[-1].total > 0 and not reports[-1].note
    if not sweep.is_kept(store):
        sweep.save(results, store)
    return chosen, sweep.load(store)


def draw(chosen, results):
    """The figure, laid out with all of its texts; it has the title of the configuration."""
    with plots.style():
        experiment = EXPERIMENTS[chosen.experiment]
        figure = experiment.plot(summarise(experiment, results, chosen), chosen)
        figure.draw_without_rendering()
    assert figure.get_suptitle() == chosen.title
    return figure


def lines(axes, label=""):
    """The points of the lines of a panel whose label contains the text, in order: an array (2, m)
    each."""
    return [
        np.array(line.get_data(), float) for line in axes.lines if label in str(line.get_label())
    ]


def y_of(axes, label=""):
    """The heights of the first of these lines."""
    return lines(axes, label)[0][1]


# ---- figures: what they show is what the results say ----


def test_phase_diagrams(tmp_path):
    chosen, results = run("shen2018/figure1", tmp_path)
    rates = sweep.success_rate(results)
    figure = draw(chosen, results)
    for axes, name in zip(figure.axes, chosen.solvers, strict=False):
        np.testing.assert_allclose(
            axes.collections[0].get_array(), 100 * rates.rate.sel(solver=name).T
        )
        np.testing.assert_allclose(
            lines(axes, "in the paper")[0], [paper_line(np.array(chosen.K), 32), chosen.K]
        )
    np.testing.assert_allclose(paper_line(np.array([2.0]), 32), 1.7 * 2 * np.log(32) + 33)


def test_sections_of_a_phase_diagram_by_a_solver_that_draws_rows(tmp_path):
    with pytest.raises(config.Failure, match="round_n must be 1"):
        run("shen2018/figure2", tmp_path, round_n=8)
    chosen, results = run("shen2018/figure2", tmp_path)
    assert results.num_steps.max() == 10  # stages, of seven gradients each
    assert results.full_gradients.equals(results.num_steps)
    assert (results.sample_gradients == 2 * results.projections).all()
    over_n, over_K = draw(chosen, results).axes
    rate = 100 * sweep.success_rate(results).rate.sel(solver="HT-SVRG")
    np.testing.assert_allclose(y_of(over_n, "$K = 2$"), rate.sel(K=2))
    np.testing.assert_allclose(y_of(over_K, "$n = 16$"), rate.sel(n=16))


def test_measurements_needed_where_the_coarse_sweep_points(tmp_path):
    chosen, results = run(
        "shen2018/figure3", tmp_path, K=[1, 6], coarse_n=[4, 16, 28], below=2, above=4, step=1
    )
    fine, coarse = (
        sweep.load(tmp_path / "store" / "fine"),
        sweep.load(tmp_path / "store" / "coarse"),
    )
    assert fine.done.any() and not fine.done.all() and coarse.done.all()
    trials = results.trials.sel(n=fine.n)
    np.testing.assert_array_equal((trials == 4).transpose(*fine.done.dims), fine.done)
    assert (results.trials.sel(n=coarse.n) >= 3).all()
    *_, last = draw(chosen, results).axes
    assert last.get_title() == "99% recovered"
    np.testing.assert_allclose(y_of(last, "paper"), paper_line(np.array(chosen.K), 32, 0.99))


def test_measurements_needed_by_a_solver_that_never_gets_there(tmp_path):
    chosen, results = run(
        "shen2018/figure3", tmp_path, solvers=["IHT"], max_steps=1, coarse_n=[4, 8]
    )
    assert not (tmp_path / "store" / "fine").exists()
    assert lines(draw(chosen, results).axes[0], "fewer than two")


def test_stages(tmp_path):
    chosen, results = run("shen2018/figure4", tmp_path)
    figure = draw(chosen, results)
    assert [axes.get_title().strip() for axes in figure.axes] == [
        rf"${name}$ varied" for name in ("k", "m", r"\eta")
    ]
    for i, axes in enumerate(figure.axes):
        np.testing.assert_allclose(y_of(axes), results.objective[i])
    assert lines(figure.axes[2], "(diverges)") and not lines(figure.axes[0], "(diverges)")


def test_digits(tmp_path):
    chosen, results = run("shen2018/figure7", tmp_path)
    weights, objective, accuracy = draw(chosen, results).axes
    np.testing.assert_allclose(weights.images[0].get_array().ravel(), results.weights[0, 0])
    assert np.count_nonzero(results.weights[0, 0]) == 2
    np.testing.assert_allclose(y_of(objective, "k = 2"), results.objective[0, 0])
    np.testing.assert_allclose(y_of(accuracy), 100 * results.accuracy[0])
    assert (np.diff(results.objective[0], axis=1) < 0).all()


def test_undersampling_against_sparsity(tmp_path):
    chosen, results = run("phase/delta_rho", tmp_path)
    compared, diagram, *_ = draw(chosen, results).axes
    delta, rho = lines(compared, "ell_1")[0]
    np.testing.assert_allclose(rho, phase_diagram.l1_transition(delta))
    np.testing.assert_allclose(delta[[0, -1]], np.array(chosen.n)[[0, -1]] / 32)
    rate = sweep.success_rate(results).rate.sel(solver="IHT")
    np.testing.assert_allclose(diagram.collections[0].get_array(), 100 * rate.transpose("rho", "n"))


def test_completion(tmp_path):
    chosen, results = run("phase/completion", tmp_path)
    panel, *_ = draw(chosen, results).axes
    rate = sweep.success_rate(results).rate.sel(solver="IHT-1")
    np.testing.assert_allclose(panel.collections[0].get_array(), 100 * rate.transpose("r", "n"))
    p, r = lines(panel)[-1]
    np.testing.assert_allclose(36 * p, r * (12 - r), atol=1e-12)


def test_contraction_factors(tmp_path):
    chosen, results = run("yuan2018/figure1", tmp_path)
    left, right = draw(chosen, results).axes
    np.testing.assert_allclose(y_of(left, r"\mu_1"), results.mu_1.where(results.mu_1 <= 1.05))
    np.testing.assert_allclose(y_of(right, "of the error") ** 2, y_of(right, "of the objective"))


def test_support_recovery(tmp_path):
    chosen, results = run("yuan2018/figure2", tmp_path)
    figure = draw(chosen, results)
    for axes, k in zip(figure.axes, chosen.k, strict=True):
        shown = [line[1] for line in lines(axes)]
        for name, heights in zip(("exact", "relaxed"), shown, strict=True):
            np.testing.assert_allclose(
                heights, 100 * results[name].sel(k=k, solver="IHT").mean("trial")
            )


def at_once(name, compute):
    """What a part is given to keep its pieces with, where nothing is kept."""
    return compute()


def test_what_is_killed_within_a_part_is_not_done_twice(tmp_path, monkeypatch):
    """Of a part in pieces, those that were finished are read again."""
    solved, sizes = real_data.Task.solved, []

    def stop_at_4(self, name, k):
        if k == 4 and len(sizes) == 1:
            raise KeyboardInterrupt
        sizes.append(k)
        return solved(self, name, k)

    monkeypatch.setattr(real_data.Task, "solved", stop_at_4)
    with pytest.raises(KeyboardInterrupt):
        run("yuan2018/figure4", tmp_path, k=[3, 4, 5])
    sizes.append(None)
    run("yuan2018/figure4", tmp_path, k=[3, 4, 5])
    assert sizes == [3, None, 4, 5]


def test_a_path_that_is_one_run_has_the_solutions_of_a_run_for_each_sparsity(tmp_path, monkeypatch):
    """Forward selection and FoBa on data; of a path only the time to the largest k is known."""
    names, sparsities = ["FBS", "FoBa"], [2, 4]
    folders = [tmp_path / name for name in ("path", "runs")]
    for folder in folders:
        folder.mkdir()
    _, path = run("yuan2018/figure4", folders[0], solvers=names, k=sparsities)
    for name in names:
        monkeypatch.setitem(SOLVERS, name, dataclasses.replace(SOLVERS[name], one_run=False))
    _, runs = run("yuan2018/figure4", folders[1], solvers=names, k=sparsities)
    path, runs = (results.sel(solver=names).squeeze("dataset") for results in (path, runs))
    assert np.isfinite(path.seconds.transpose("solver", "k")).values.tolist() == 2 * [[False, True]]
    assert np.isfinite(runs.seconds).all()
    for column in "objective", "test_error", "nonzeros":
        np.testing.assert_allclose(path[column], runs[column], rtol=1e-6)
    assert (runs.nonzeros == runs.k).all()


def test_more_trials_are_added_to_a_part(tmp_path, monkeypatch):
    """Pieces do not depend on their number, nor on the wording of the configuration."""
    path = tiny("yuan2018/figure6", tmp_path, num_trials=[2])
    assert call("run", path, "--out", tmp_path / "store").exit_code == 0
    before = sweep.load(tmp_path / "store")
    drawn, draw_one = [], precision_matrices.draw

    def draw_and_count(*args):
        drawn.append(args)
        return draw_one(*args)

    monkeypatch.setattr(precision_matrices, "draw", draw_and_count)
    for number, new in (3, 1), (2, 0):
        path = tiny("yuan2018/figure6", tmp_path, num_trials=[number], title="Another")
        assert call("run", path, "--out", tmp_path / "store").exit_code == 0
        after = sweep.load(tmp_path / "store")
        assert len(drawn) == new * after.sizes["solver"] and after.sizes["trial"] == number
        xarray.testing.assert_equal(after.isel(trial=slice(2)), before)
        assert json.loads(after.attrs["config"])["title"] == "Another"
        drawn.clear()


def test_on_data_against_sparsity_and_nothing_is_done_twice(tmp_path, monkeypatch):
    """The parts of a store are read again, unless the configuration has changed; the sparsity is as
    asked."""
    chosen, results = run("yuan2018/figure4", tmp_path)
    assert (results.nonzeros <= results.k).all()
    assert (results.test_error < 0.5).all() and (results.objective < np.log(2)).all()
    objective, error, seconds = draw(chosen, results).axes
    for axes, name, scale in (
        (objective, "objective", 1),
        (error, "test_error", 100),
        (seconds, "seconds", 1),
    ):
        np.testing.assert_allclose(
            y_of(axes, "GraHTP"), scale * results[name].sel(solver="GraHTP")[0]
        )
        np.testing.assert_allclose(lines(axes, "ell_1")[0][0], results.nonzeros.sel(solver="l1")[0])

    monkeypatch.setattr(real_data.Task, "solved", None)
    session = Session(tmp_path / "store", tmp_path, lambda progress: None)
    xarray.testing.assert_equal(EXPERIMENTS[chosen.experiment].run(chosen, session), results)
    session = Session(
        tmp_path / "store", tmp_path, lambda progress: None, {"attrs": {"config": "another"}}
    )
    with pytest.raises(TypeError):
        EXPERIMENTS[chosen.experiment].run(chosen, session)
    write_csr(tmp_path / "tiny.npz", d=2)
    with pytest.raises(config.Failure, match="3 is more than 2, the most for tiny"):
        EXPERIMENTS[chosen.experiment].run(chosen, session)


def test_on_data_against_the_penalty(tmp_path):
    chosen, results = run("yuan2018/figure5", tmp_path)
    assert results.nonzeros.sel(solver="IHT").item() == results.nonzeros.sel(solver="l1").item()
    error, seconds = draw(chosen, results).axes
    assert error.get_xscale() == "log" and seconds.get_yscale() == "log"
    np.testing.assert_allclose(
        lines(error, "IHT")[0], [[0.5], 100 * results.test_error.sel(solver="IHT")[0]]
    )


def test_precision_matrices(tmp_path):
    chosen, results = run("yuan2018/figure6", tmp_path)
    assert (results.edges <= results.edges.sizes["trial"] * 15).all() and results.f_score.max() <= 1
    frobenius, f_score, seconds = draw(chosen, results).axes
    for axes, name in (frobenius, "frobenius"), (f_score, "f_score"), (seconds, "seconds"):
        means = np.array([container.lines[0].get_ydata() for container in axes.containers], float)
        np.testing.assert_allclose(
            means, results[name].mean("trial").sel(solver=["GraHTP", "GLasso"]).T
        )


def test_tumours(tmp_path):
    chosen, results = run("yuan2018/table4", tmp_path)
    (axes,) = draw(chosen, results).axes
    table = {
        (row, column): cell.get_text().get_text()
        for (row, column), cell in axes.tables[0].get_celld().items()
    }
    assert [table[0, i] for i in range(5)] == [
        "Specificity",
        "Sensitivity",
        "MCC",
        "Time (s)",
        "Edges",
    ]
    mcc = results.mcc.sel(solver="FBS")[0]
    assert (
        table[1, -1] == "FBS"
        and table[1, 2] == f"{float(mcc.mean()):.2f} ({float(mcc.std(ddof=1)):.2f})"
    )


@pytest.mark.parametrize(
    ("name", "along", "curves"), [("figure1", "l0", "ratio"), ("figure3", "kappa", "l0")]
)
def test_duality_gaps(name, along, curves, tmp_path):
    chosen, results = run(f"yuan2020/{name}", tmp_path)
    assert (results.dual <= results.minimum * (1 + 1e-12)).all()
    assert (results.minimum <= results.value * (1 + 1e-12)).all()
    (panel,) = draw(chosen, results).axes
    results = results.isel(signal=0) if name == "figure1" else results
    first = results.isel({curves: 0, "d": 0, **({"sigma": 0} if "sigma" in results.dims else {})})
    of = ((first.minimum - first.dual) / first.minimum).clip(1e-6)
    np.testing.assert_allclose(lines(panel)[0], [first[along], of.median("trial")])
    if name == "figure1":  # against the noise, as in Figure 2
        wide = results.isel(ratio=[1]).expand_dims(signal=["signs"])
        wide = xarray.concat([wide, wide], "sigma").assign_coords(sigma=[0.1, 1.0])
        (panel,) = draw(chosen.model_copy(update={"sigma": [0.1, 1.0], "ratio": [1.0]}), wide).axes
        np.testing.assert_allclose(lines(panel)[0][0], [0.1, 1.0])
        kinds = results.expand_dims(signal=["signs", "gaussian"])
        (panel,) = draw(chosen.model_copy(update={"signals": ["signs", "gaussian"]}), kinds).axes
        assert [text.get_text() for text in panel.get_legend().get_texts()] == ["signs", "gaussian"]


def test_dihit_against_primal_solvers(tmp_path):
    chosen, results = run("yuan2020/figure4", tmp_path)
    figure = draw(chosen, results)
    for axes, (name, l0) in zip(
        figure.axes, itertools.product(("value", "error"), chosen.l0), strict=True
    ):
        np.testing.assert_allclose(
            y_of(axes, "DIHT"), results[name].sel(solver="DIHT", l0=l0).median("trial")
        )


@pytest.mark.parametrize("name", ["figure5", "figure8"])
def test_time_to_accuracy(name, tmp_path):
    chosen, results = run(f"yuan2020/{name}", tmp_path)
    assert results.n[0] == 40 and list(results.solver.values) == chosen.solvers
    loss, time, gap = draw(chosen, results).axes
    rows, solver = results.isel(row=0), chosen.solvers[0]
    bound = float((rows.value - rows.gap).sel(l0=1.0).max())
    above = (
        (rows.value.sel(solver=solver, l0=1.0)[1:] - bound)
        .dropna("point")
        .clip(time_to_accuracy.FLOOR)
    )
    np.testing.assert_allclose(lines(loss)[0][1], above)
    needed = time_to_accuracy.time_to_target(rows, time_to_accuracy.target(rows))
    np.testing.assert_allclose(lines(time)[0][1], needed.sel(solver=solver))
    dual = next(name for name in chosen.solvers if name in time_to_accuracy.DUAL)
    np.testing.assert_allclose(
        lines(gap)[0][1], rows.gap.sel(solver=dual, l0=1.0).clip(time_to_accuracy.FLOOR)
    )


def test_gap_against_cost(tmp_path):
    """Costs by hand: an HSG-HT update is one projection and a batch that grows."""
    chosen, results = run("zhou2018/figure2", tmp_path)
    first, n = results.isel(dataset=0), 40
    for passes in chosen.passes:
        hsg = first.sel(solver="HSG-HT", passes=passes).dropna("point", subset=["ifo"])
        sizes = np.minimum(n, np.ceil(float(hsg.growth) ** np.arange(hsg.sizes["point"])))
        np.testing.assert_array_equal(hsg.ifo, np.append(0, np.cumsum(sizes[:-1])))
        np.testing.assert_array_equal(hsg.projections, hsg.point)
        assert hsg.ifo.max() <= passes * n < sizes.sum()
    np.testing.assert_allclose(first.value.isel(point=0), np.log(2), rtol=1e-6)
    assert first.f_star <= first.value.min()
    curves = first.sel(passes=3)
    full, stochastic = curves.value.sel(solver="FG-HT"), curves.value.sel(solver="SG-HT")
    assert full.isel(seed=0).equals(full.isel(seed=1)) and not stochastic.isel(seed=0).equals(
        stochastic.isel(seed=1)
    )
    left, right, table = draw(chosen, results).axes
    shown = curves.sel(solver="FG-HT").dropna("point", subset=["ifo"])
    np.testing.assert_allclose(
        lines(left)[0], [shown.ifo / n, shown.value.median("seed") - first.f_star]
    )
    np.testing.assert_allclose(lines(right)[0][0], shown.projections / n)
    cells = table.tables[0].get_celld()
    assert [cells[row, 0].get_text().get_text() for row in range(1, 6)] == gap_against_cost.NAMES
    assert cells[1, 1].get_text().get_text() == f"{float(curves.factor.sel(solver='FG-HT')):g}"


def test_settings_are_chosen_by_another_seed(tmp_path):
    """Of all settings those of the run that ends lowest within each budget, and its lowest x."""
    chosen, _ = run("zhou2018/figure2", tmp_path)
    task = gap_against_cost.Task("tiny", 3, chosen, data.load("tiny", tmp_path))
    row = gap_against_cost.rows(chosen, task.n)["AHSG-HT"]
    choice = task.choose(row, at_once)
    settings = list(itertools.product(chosen.factors, chosen.growth, chosen.momentum))
    runs = [task.run(row, setting, jax.random.key(chosen.seed)) for setting in settings]
    for passes in chosen.passes:
        ends = [
            float(curve.value[np.flatnonzero(curve.ifo <= passes * task.n)[-1]])
            for _, curve in runs
        ]
        assert tuple(choice.setting.sel(passes=passes).values) == settings[int(np.argmin(ends))]
    np.testing.assert_allclose(choice.x_value, min(float(result.value) for result, _ in runs))
    shown = task.shown(row, choice, at_once).isel(passes=0)
    _, other = task.run(
        row, choice.setting.values[0], jax.random.fold_in(jax.random.key(chosen.seed), 2)
    )
    np.testing.assert_array_equal(
        shown.value.isel(seed=1).dropna("point"), other.value[: int(shown.ifo.count())]
    )


def test_loss_against_sparsity(tmp_path):
    """One data set, with the features selected, and two, logistic."""
    chosen, results = run("axiotis2020/figure1", tmp_path)
    losses, gains, selected = draw(chosen, results).axes
    of, omp = (results.loss.sel(solver=name)[0] for name in ("OMPR", "OMP"))
    unit = plots.power_of_ten(float(results.loss_intercept[0]))[0]
    np.testing.assert_allclose(y_of(losses, "OMPR"), of / unit)
    np.testing.assert_allclose(lines(gains)[2][1], 100 * (omp - of) / results.loss_intercept[0])
    assert sum(len(points.get_offsets()) for points in selected.collections) == 0 + 1 + 4


def test_logistic_loss_against_sparsity(tmp_path):
    chosen, results = run("axiotis2020/figure4", tmp_path)
    assert (results.loss <= results.loss_intercept).all() and results.best.isnull().all()
    figure = draw(chosen, results)
    unit = plots.power_of_ten(float(results.loss_intercept[1]))[0]
    np.testing.assert_allclose(
        y_of(figure.axes[2], "OMP"), results.loss.sel(solver="OMP")[1] / unit
    )


def test_stuck(tmp_path, monkeypatch):
    """On the lemma's instance; that adaptive regularisation is not stuck, the tests of ARHT
    show."""
    monkeypatch.setattr(stuck, "SOLVERS", {"OMPR": "OMPR"})
    chosen, results = run("axiotis2020/lemma5_2", tmp_path)
    assert (results.value[:, :, -1] > results.optimum).all()
    left, right = draw(chosen, results).axes
    np.testing.assert_allclose(
        lines(right, "OMPR")[0] if lines(right, "OMPR") else lines(right)[0],
        [results.k, results.value[0, :, -1]],
    )
    assert left.get_title() == r"$k = s^* \kappa^2 / 2 = 16$"


def test_tradeoff(tmp_path):
    chosen, results = run("axiotis2020/table1", tmp_path)
    np.testing.assert_allclose(np.floor(100 * results.bound + 1e-9), [33, 47, 55, 83])
    (axes,) = draw(chosen, results).axes
    curve, printed = lines(axes, "OMPR")
    np.testing.assert_allclose(curve[1][[0, -1]], results.bound[[0, -1]])
    np.testing.assert_allclose(printed, [chosen.ratio, [0.33, 0.47, 0.55, 0.83]])


def test_a_pair_that_is_not_found(tmp_path, monkeypatch):
    monkeypatch.setattr(
        planted_pair, "SOLVERS", {name: planted_pair.SOLVERS[name] for name in ("OMP", "PHT")}
    )
    chosen, results = run("axiotis2020/section5_1", tmp_path)
    for N in chosen.N:
        of = results.sel(N=N, k=slice(1, N))
        np.testing.assert_allclose(
            of.value, np.broadcast_to((N - of.k) / 2, of.value.shape), atol=1e-12
        )
        assert not of.selected.any() and of.value_pair < 1e-12
    np.testing.assert_array_equal(results.condition_all, np.inf)
    for N, axes in zip(chosen.N, draw(chosen, results).axes, strict=True):
        np.testing.assert_allclose(
            lines(axes, "PHT")[0], [np.arange(1, N + 1), (N - np.arange(1, N + 1)) / 2], atol=1e-12
        )


# ---- the command line ----


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


def test_the_demo(tmp_path, monkeypatch):
    """Each figure is drawn before the next one is begun; other configurations have no such size."""
    for name in command_line.DEMO:
        (tmp_path / name).parent.mkdir()
        quick = tomllib.loads(tiny(name, tmp_path).read_text(encoding="utf-8"))
        write(tmp_path / f"{name}.toml", {**quick, "demo": {"seed": 3}})
    monkeypatch.setattr(command_line, "CONFIGS", tmp_path)
    result = call("demo", "--out", tmp_path / "out")
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


def test_a_picture_that_follows_a_sweep(tmp_path, monkeypatch):
    """It is drawn anew when results have come, and no more once all are there."""
    path, store = tiny("shen2018/figure1", tmp_path, solvers=["IHT"]), tmp_path / "store"
    assert call("run", path, "--out", store, "--shard", "1/2").exit_code == 0
    looks = []

    def sleep(seconds):
        looks.append((seconds, (store / "figure.png").stat().st_mtime_ns))
        if len(looks) == 2:
            assert (
                call("run", path, "--out", store, "--shard", "2/2", "--workers", "1").exit_code == 0
            )
        assert len(looks) < 3

    monkeypatch.setattr(command_line, "time", SimpleNamespace(sleep=sleep))
    result = call("plot", store, "--follow", "--every", "0.5")
    assert result.exit_code == 0, result.output
    assert [seconds for seconds, _ in looks] == [0.5, 0.5] and looks[0][1] == looks[1][1]
    assert (store / "figure.png").stat().st_mtime_ns > looks[1][1]
    assert result.output.splitlines()[-1] == "4 of 4 cells"
    assert call("plot", store, "--follow").output == call("plot", store).output and len(looks) == 2


# ---- data, baselines, and what is computed beside the solvers ----


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
    averages = [
        income,
        age,
        rooms / households,
        bedrooms / households,
        population,
        population / households,
    ]
    bunch = SimpleNamespace(
        data=np.stack([*averages, latitude, longitude], axis=1), target=np.full(500, 4.526)
    )
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
    A, b, names = loss_against_sparsity.prepared(data.Table(X, y, list("abcdef")))
    assert A.shape == (38, 7) and names == ["intercept", *"abcdef"]
    np.testing.assert_allclose(np.linalg.norm(A, axis=0), 1)
    np.testing.assert_allclose(A[:, 0], A[0, 0])

    def loss(support):
        return (
            np.sum((A[:, support] @ np.linalg.lstsq(A[:, support], b, rcond=None)[0] - b) ** 2) / 2
        )

    k = [1, 3]
    settings = {"experiment": "", "title": "", "datasets": ["six"], "k": k, "solvers": ["ELS"]}
    best = [min(loss([0, *rest]) for rest in itertools.combinations(range(1, 7), i - 1)) for i in k]
    with x64():
        table = data.Table(X, y, list("abcdef"))
        task = loss_against_sparsity.Task("six", table, loss_against_sparsity.Config(**settings))
        omp, found = task.solved_by("OMP", None, at_once), task.best()
        els, lasso, refitted = (
            task.solved_by(name, omp, at_once) for name in ("ELS", "l1", "l1, refitted")
        )
        intercept = task.refitted(np.zeros(7))[1]
    np.testing.assert_allclose(found, best)
    np.testing.assert_allclose(intercept, loss([0]))
    path = orthogonal_mp(
        A[:, 1:] - A[:, 1:].mean(axis=0), b - b.mean(), n_nonzero_coefs=6, return_path=True
    )
    expected = [loss([0, *(1 + np.flatnonzero(path[:, i - 2]))] if i > 1 else [0]) for i in k]
    np.testing.assert_allclose(omp.loss, expected)
    assert (els.loss <= omp.loss * (1 + 1e-12)).all() and (
        els.loss >= np.array(found) * (1 - 1e-12)
    ).all()
    assert (lasso.loss >= refitted.loss).all()
    for fit in (omp, els, lasso, refitted):
        assert (fit.x.sel(feature="intercept") != 0).all() and (
            (fit.x != 0).sum("feature") <= fit.k
        ).all()
        for x, value in zip(fit.x.values, fit.loss.values, strict=True):
            np.testing.assert_allclose(np.sum((A @ x - b) ** 2) / 2, value)


def test_the_l1_penalty_leaves_the_intercept_alone():
    """Logistic: the slopes are those of the penalty on the nonzeros, below it elsewhere, and 0 for
    the intercept."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 6)) + 1
    y = np.where(X @ [2.0, -1, 1, 0, 0, 0] + rng.normal(size=80) > 1, 1.0, -1.0)
    settings = {
        "experiment": "",
        "title": "",
        "datasets": ["six"],
        "model": "logistic",
        "k": [4],
        "solvers": ["OMPR"],
    }
    table = data.Table(X, y, list("abcdef"))
    with x64():
        task = loss_against_sparsity.Task("six", table, loss_against_sparsity.Config(**settings))
        fit, intercept = task.solved_by("l1", None, at_once), task.refitted(np.zeros(7))[1]
    x = fit.x.values[0]
    assert np.count_nonzero(x[1:]) == 3
    slopes = -task.A.T @ (y / (1 + np.exp(y * (task.A @ x))))
    penalty = np.abs(slopes[1:]).max()
    np.testing.assert_allclose(np.abs(slopes[1:])[x[1:] != 0], penalty, rtol=1e-2)
    assert abs(slopes[0]) < 1e-2 * penalty
    np.testing.assert_allclose(fit.loss, np.sum(np.logaddexp(0, -y * (task.A @ x))))
    shares = np.mean(y == 1), np.mean(y == -1)
    np.testing.assert_allclose(intercept, -80 * sum(p * np.log(p) for p in shares))


def test_what_has_an_A_of_its_own():
    cell = sweep.Cell({"n": 5, "K": 2}, {"n": 5}, jax.random.key(3))
    for designs, same in ("cell", True), ("trial", False):
        one, other = (
            recovery.draw(jax.random.key(key), cell, 16, designs=designs) for key in (4, 5)
        )
        assert np.array_equal(one.A, other.A) == same
        assert not np.array_equal(one.x_true, other.x_true)


def test_problems_do_not_depend_on_the_rounding_of_n():
    """Zero rows are all that a larger bound adds."""
    cell = {
        bound: sweep.Cell({"n": 5, "K": 2}, {"n": bound}, jax.random.key(3)) for bound in (5, 8, 64)
    }
    drawn = {bound: recovery.draw(jax.random.key(4), cell[bound], 16) for bound in cell}
    for bound in 8, 64:
        np.testing.assert_array_equal(drawn[bound].A[:5], drawn[5].A)
        np.testing.assert_array_equal(drawn[bound].x_true, drawn[5].x_true)
        assert not drawn[bound].A[5:].any() and not drawn[bound].y[5:].any()


def test_padding_has_no_label_and_no_weight():
    cell = sweep.Cell({"n": 5}, {"n": 8}, jax.random.key(3))
    response, objective = support_recovery.MODELS["logistic"]
    problem = recovery.draw(jax.random.key(4), cell, 16, lambda cell: 2, response=response)
    assert not problem.y[5:].any() and abs(problem.y[:5]).all()
    padded, whole = (
        objective(problem.A, problem.y, 0.1),
        jaxht.Logistic(problem.A[:5], problem.y[:5], 0.1, 2.0),
    )
    values = [f.value(problem.x_true, f.predict(problem.x_true)) for f in (padded, whole)]
    np.testing.assert_allclose(*values, rtol=1e-6)


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_is_built_from_an_objective_and_k(name):
    A, row = np.ones((20, 12), np.float32), SOLVERS[name]

    def init(A):
        objective = jaxht.LeastSquares(A, A[:, 3], mean=False)
        constraint, solver = row.method(2, 12)(
            objective, sweep.Cell({"K": 2}, {}, jax.random.key(0))
        )
        objective, constraint = objective.prepare(), constraint.prepare(objective.shape)
        assert (constraint.k_max == row.sparsity(2, 12)) or not row.gathers
        return solver.init(objective, constraint, objective.start(), None)

    assert jax.eval_shape(init, A)[0].x.shape == (12,)


def test_sparse_sets_and_their_training_part(tmp_path):
    write_csr(tmp_path / "tiny.npz")
    table = data.load("tiny", tmp_path)
    assert sparse.issparse(table.X) and table.X.shape == (60, 20) and table.num_train == 40
    assert isinstance(table.dense(), np.ndarray) and table.names[0] == "x1"
    cfg = real_data.OnData(
        experiment="", title="", datasets=["tiny"], solvers=["HTP"], l2=1e-5, rtol=1e-4
    )
    task = real_data.Task("tiny", table, cfg)
    assert task.A.shape == (40, 20) and len(task.y_test) == 20
    norms = np.sqrt(task.A.power(2).sum(axis=1))
    np.testing.assert_allclose(norms[norms > 0], 1)

    X, y = np.random.default_rng(1).normal(5, 3, size=(21, 4)), np.repeat([1.0, -1.0], [11, 10])
    task = real_data.Task("four", data.Table(X, y, list("abcd")), cfg)
    assert task.A.shape == (10, 4) and sorted([*task.y, *task.y_test]) == sorted(y)
    np.testing.assert_allclose(task.A.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(task.A.std(axis=0), 1)
    with pytest.raises(config.Failure, match="labels"):
        real_data.Task("four", data.Table(X, np.arange(21.0), list("abcd")), cfg)


def test_parts_of_a_data_set():
    """Its own, perhaps shuffled, or random ones; rows keep their labels."""
    table = data.Table(np.arange(8.0)[:, None], np.arange(8.0), ["a"], 5)
    train, test = table.split(0.5, 0)
    assert train.y.tolist() == [0, 1, 2, 3, 4] and test.y.tolist() == [5, 6, 7]
    train, test = table.split(0.5, 0, shuffle=True)
    assert train.y.tolist() != [0, 1, 2, 3, 4] == sorted(train.y) and test.y.tolist() == [5, 6, 7]
    train, test = data.Table(table.X, table.y, ["a"]).split(0.75, 0)
    assert len(train.y) == 6 and sorted([*train.y, *test.y]) == table.y.tolist()
    np.testing.assert_array_equal(train.X[:, 0], train.y)
    assert table.rows(table.y % 2 == 1).num_train == 2


def test_l1_solutions_are_optimal_and_as_sparse_as_asked():
    rng = np.random.default_rng(2)
    A = rng.normal(size=(80, 15))
    y = np.where(A[:, :4].sum(axis=1) + rng.normal(size=80) > 0, 1.0, -1.0)
    path = l1.L1Logistic(A, y, 1e-8)
    for penalty in 0.3 * path.largest, 0.05 * path.largest:
        x = path.at(penalty).x
        slopes = A.T @ (-2 * y / (1 + np.exp(2 * y * (A @ x)))) / 80
        np.testing.assert_allclose(slopes[x != 0], -penalty * np.sign(x[x != 0]), rtol=1e-4)
        assert (abs(slopes) <= penalty * (1 + 1e-4)).all()
    assert path.at(path.largest).nonzeros == 0
    assert [path.with_nonzeros(k).nonzeros for k in (1, 4, 15)] == [1, 4, 15]

    lasso = l1.LassoPath(A, y)
    for k in 1, 4, 15:
        fit = lasso.with_nonzeros(k)
        slopes = A.T @ (A @ fit.x - y)
        penalty = np.abs(slopes).max()
        assert fit.nonzeros == k and fit.converged
        np.testing.assert_allclose(
            slopes[fit.x != 0], -penalty * np.sign(fit.x[fit.x != 0]), atol=1e-8
        )
        if k < 15:
            expected = (
                Lasso(penalty / 80, fit_intercept=False, tol=1e-12, max_iter=10_000).fit(A, y).coef_
            )
            np.testing.assert_allclose(fit.x, expected, atol=1e-6)


def test_time_to_target_is_where_the_error_stays_low():
    """By hand: all but one end at 0.2 or below; one comes back there, one does not, one is there at
    once."""
    nan, over = np.nan, ("solver", "l0", "point")
    error = [
        [[1, 0.1, 0.3, 0.2]],
        [[1, 0.1, 0.4, nan]],
        [[0.2, 0.2, nan, nan]],
        [[1, 0.3, 0.1, 0.1]],
    ]
    seconds = [[[0, 1, 2, 3]], [[0, 1, 2, nan]], [[0, 5, nan, nan]], [[0, 2, 4, 6]]]
    results = xarray.Dataset(
        {"test_error": (over, error), "seconds": (over, seconds)}, {"point": np.arange(4)}
    )
    assert time_to_accuracy.target(results) == 0.2
    np.testing.assert_array_equal(
        time_to_accuracy.time_to_target(results, 0.2).isel(l0=0), [3, nan, 0, 4]
    )

    runs = xarray.Dataset(
        {"value": (("factor", "point"), [[3, 2, nan], [3, np.inf, nan], [3, 2.5, 1.5]])}
    )
    assert float(time_to_accuracy.tuned(runs.assign(step=("factor", [1, 4, 16]))).step) == 16


def test_regression_has_a_bounded_rank_and_a_known_minimum():
    rng, n = np.random.default_rng(0), 30
    table = data.Table(rng.normal(size=(n, 5)), rng.choice([3.0, 7.0], n), list("abcde"))
    name = "zhou2018/figure2"
    settings = {"experiment": "", "title": "", "l2": 0.1, "stage": 0.5, "rtol": 1e-6}
    cfg = gap_against_cost.Config(**settings | TINY[name] | {"model": "regression"})
    task = gap_against_cost.Task("five", 1, cfg, table)
    np.testing.assert_array_equal(task.objective.y, np.stack([table.y == 3, table.y == 7], axis=1))
    row = gap_against_cost.rows(cfg, n)["FG-HT"]
    fit = task.choose(row, at_once)
    curve = task.shown(row, fit, at_once)
    np.testing.assert_allclose(curve.value.isel(point=0), 0.5, rtol=1e-6)
    assert np.linalg.matrix_rank(fit.x.values.reshape(5, 2)) == 1
    assert task.rest([fit]).value <= curve.value.min() < 0.5
    with pytest.raises(config.Failure, match="3 is more than 2"):
        gap_against_cost.Task("five", 3, cfg, table)


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


def test_ill_conditioned_designs():
    penalty, kappa = 0.2, 50.0
    eigenvalues = conditioning.spectrum(12, kappa, penalty) + penalty
    np.testing.assert_allclose(eigenvalues.max() / eigenvalues.min(), kappa, rtol=1e-4)
    np.testing.assert_array_equal(conditioning.spectrum(12, 1.0, penalty), 1)
    truth = np.arange(12) % 2.0
    A = against_primal.correlated(jax.random.key(0), truth, 20_000, 4, kappa)
    covariance = np.cov(A, rowvar=False)
    np.testing.assert_allclose(np.diag(covariance), 1, atol=0.05)
    np.testing.assert_allclose(np.linalg.cond(covariance), kappa, rtol=0.1)
    chosen = (np.abs(covariance) > 0.1).sum(axis=0) > 1
    assert chosen.sum() == 4 and truth[chosen].sum() == 2


def test_the_model_of_precision_matrices():
    """Condition number p, and samples of that precision."""
    W, *covariances = precision_matrices.draw(20, 100_000, np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.cond(W), 20, rtol=1e-4)
    assert (
        set(np.unique(np.round(W - np.diag(np.diag(W)), 6))) == {0, 1}
        and 5 < estimation.num_edges(W) < 35
    )
    for S in covariances:
        np.testing.assert_allclose(S @ W, np.eye(20), atol=0.05)
    W = W.copy()
    W[0, 1] = W[1, 0] = 99
    assert estimation.losses(np.stack([np.eye(20), W]), S).tolist() == [
        pytest.approx(np.trace(S)),
        np.inf,
    ]


def test_linear_discriminant_analysis():
    """That of scikit-learn, with its covariance, on the genes that differ."""
    rng = np.random.default_rng(0)
    y = rng.random(90) < 0.3
    X = rng.normal(size=(90, 30)) + np.where(y[:, None] & (np.arange(30) % 7 == 2), 2.0, 0.0)
    settings = {"experiment": "", "title": "", "step_size": 1.0, "grasp_steps": 5}
    cfg = tumour_classification.Config(**settings | TINY["yuan2018/table4"] | {"num_genes": 4})
    split = tumour_classification.Split(data.Table(X, np.where(y, 1.0, -1.0), []), (10, 25), cfg, 0)
    assert split.X.shape == (55, 4) and (split.y_test.sum(), len(split.y_test)) == (10, 35)
    assert split.folds.sum() == 55
    np.testing.assert_allclose(split.X.std(axis=0), 1)
    means = [split.X[own].mean(axis=0) for own in (split.y, ~split.y)]
    assert (means[0] - means[1] > 1).all()  # the four genes that differ
    every = np.ones(55, bool)
    W = np.linalg.inv(tumour_classification.covariance(split.X, split.y, every, every))
    expected = LinearDiscriminantAnalysis(solver="lsqr").fit(split.X, split.y).predict(split.X_test)
    np.testing.assert_array_equal(
        tumour_classification.predicted(W, split.X, split.y, split.X_test), expected
    )


@pytest.mark.skipif(SETS is None, reason="needs the data sets in $JAXHT_DATA")
@pytest.mark.parametrize(
    ("name", "shape", "num_train"), [("rcv1_subsets_binary", (23749, 47236), 20242)]
)
def test_real_sparse_sets(name, shape, num_train):
    if not (SETS / f"{name}.npz").is_file():
        pytest.skip(f"needs {name}.npz in $JAXHT_DATA")
    table = data.load(name, SETS)
    assert table.X.shape == shape and table.num_train == num_train
    assert set(table.y) == {-1, 1}
