"""The figures of the experiments show what the results say; what was done is not done twice."""

import itertools
import json
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray

from experiments.axiotis2020 import planted_pair, stuck
from experiments.common import Session, config, data, plots
from experiments.common.registry import EXPERIMENTS
from experiments.phase import atlas
from experiments.shen2018.lines import paper_line
from experiments.yuan2018 import (
    real_data,
)
from experiments.yuan2020 import time_to_accuracy
from experiments.zhou2018 import gap_against_cost
from jaxht import Status, sweep
from jaxht.baselines import l1_transition
from tests.tiny_experiments import MODELS, at_once, call, draw, lines, run, tiny, write_csr, y_of

pytestmark = pytest.mark.usefixtures("all_quickly")


@pytest.fixture(autouse=True)
def _forget_programs():
    yield
    jax.clear_caches()


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
        *(rf"${name}$ varied" for name in ("k", "m", r"\eta")),
        r"$\eta$ of HT-SAGA varied",
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
    np.testing.assert_allclose(rho, l1_transition(delta).rho)
    np.testing.assert_allclose(delta[[0, -1]], np.array(chosen.n)[[0, -1]] / 32)
    rate = sweep.success_rate(results).rate.sel(solver="IHT")
    np.testing.assert_allclose(diagram.collections[0].get_array(), 100 * rate.transpose("rho", "n"))


def test_atlas(tmp_path):
    chosen, results = run("phase/atlas_gaussian", tmp_path)
    summary = atlas.summarise(results, chosen)
    curves, cells = draw(chosen, results).axes
    shown = summary.isel(design=0, solver=0, signal=0)
    assert np.isfinite(shown.estimate).all()
    np.testing.assert_allclose(y_of(curves, "NIHT"), shown.estimate)
    limit = l1_transition(np.array(chosen.n) / 32).rho
    np.testing.assert_allclose(y_of(curves, "ell_1"), limit)
    recovers = shown.cell_rate.transpose("rho", "n") >= 0.5
    assert recovers.any() and not recovers.all()
    np.testing.assert_array_equal(~cells.collections[0].get_array().mask, recovers)
    assert (shown.cell_cost.where(recovers, 1) > 0).all()
    first_row = atlas.table(summary, chosen).splitlines()[2].split()
    assert first_row == ["NIHT", *(f"{value:.3f}" for value in shown.estimate.values)]


def test_the_fastest_of_two():
    rate = (("solver", "n"), [[1.0, 0.4, 0.2], [1.0, 1.0, 0.3]])
    cost = (("solver", "n"), [[1.0, 1.0, 1.0], [2.0, 2.0, np.nan]])
    summary = xarray.Dataset({"cell_rate": rate, "cell_cost": cost})
    assert atlas.find_fastest(summary).values.tolist() == [0, 1, -1]


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


def written(store):
    """When each file of results was written, by its path in the store."""
    files = store.rglob("results.npz")
    return {str(file.relative_to(store).parent): file.stat().st_mtime_ns for file in files}


def pieces(files):
    """Those of the files that are pieces of a part."""
    return {path: time for path, time in files.items() if str(Path(path).parent) != "."}


def killed_at(note):
    """What is told the progress, and ends the run where a note ends like this."""

    def report(progress):
        if progress.note.endswith(note):
            raise KeyboardInterrupt

    return report


def test_what_is_killed_within_a_part_is_not_done_twice(tmp_path):
    """Of a part in pieces, those that were finished are read again."""
    chosen = config.load(tiny("yuan2018/figure4", tmp_path, k=[3, 4, 5]), "quick", MODELS)
    write_csr(tmp_path / "tiny.npz")
    session = Session(tmp_path / "store", tmp_path, killed_at(", 4"))
    with pytest.raises(KeyboardInterrupt):
        EXPERIMENTS[chosen.experiment].run(chosen, session)
    before = pieces(written(tmp_path / "store"))
    assert [Path(path).name for path in before] == ["3"]
    session = Session(tmp_path / "store", tmp_path, lambda progress: None)
    EXPERIMENTS[chosen.experiment].run(chosen, session)
    after = pieces(written(tmp_path / "store"))
    assert {Path(path).name for path in after} == {"3", "4", "5"}
    assert before.items() < after.items()


def test_a_path_that_is_one_run_has_the_solutions_of_a_run_for_each_sparsity(tmp_path):
    """Forward selection and FoBa on data; of a path only the time to the largest k is known."""
    names, sparsities = ["FBS", "FoBa"], [2, 4]
    chosen, path = run("yuan2018/figure4", tmp_path, solvers=names, k=sparsities)
    path = path.sel(solver=names).squeeze("dataset")
    task = real_data.Task("tiny", data.load("tiny", tmp_path), chosen)
    fits = [[task.solved(name, k) for k in sparsities] for name in names]
    runs = xarray.concat([real_data.over("k", sparsities, of_one) for of_one in fits], "solver")
    assert np.isfinite(path.seconds.transpose("solver", "k")).values.tolist() == 2 * [[False, True]]
    assert np.isfinite(runs.seconds).all()
    for column in "objective", "test_error", "nonzeros":
        np.testing.assert_allclose(path[column], runs[column], rtol=1e-6)
    assert (runs.nonzeros == runs.k).all()


def test_more_trials_are_added_to_a_part(tmp_path):
    """Pieces do not depend on their number, nor on the wording of the configuration."""
    path = tiny("yuan2018/figure6", tmp_path, num_trials=[2])
    assert call("run", path, "--out", tmp_path / "store").exit_code == 0
    before = sweep.load(tmp_path / "store")
    first = pieces(written(tmp_path / "store"))
    for number, new in (3, 1), (2, 0):
        path = tiny("yuan2018/figure6", tmp_path, num_trials=[number], title="Another")
        assert call("run", path, "--out", tmp_path / "store").exit_code == 0
        after = sweep.load(tmp_path / "store")
        now = pieces(written(tmp_path / "store"))
        assert first.items() <= now.items()
        assert len(now) == len(first) + new * after.sizes["solver"]
        assert after.sizes["trial"] == number
        xarray.testing.assert_equal(after.isel(trial=slice(2)), before)
        assert json.loads(after.attrs["config"])["title"] == "Another"
        first = now


def test_on_data_against_sparsity_and_nothing_is_done_twice(tmp_path):
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

    before = written(tmp_path / "store")
    session = Session(tmp_path / "store", tmp_path, lambda progress: None)
    xarray.testing.assert_equal(EXPERIMENTS[chosen.experiment].run(chosen, session), results)
    assert written(tmp_path / "store") == before
    # Of another configuration the first part is computed again; the others would be as well.
    session = Session(
        tmp_path / "store", tmp_path, killed_at("-GraHTP"), {"attrs": {"config": '{"seed": 1}'}}
    )
    with pytest.raises(KeyboardInterrupt):
        EXPERIMENTS[chosen.experiment].run(chosen, session)
    changed = dict(written(tmp_path / "store").items() - before.items())
    assert list(changed) == ["tiny-l1"]
    write_csr(tmp_path / "tiny.npz", d=2)
    with pytest.raises(config.Failure, match="3 is more than 2, the most for tiny"):
        EXPERIMENTS[chosen.experiment].run(chosen, session)


def test_on_data_against_the_penalty(tmp_path):
    chosen, results = run("yuan2018/figure5", tmp_path)
    assert results.nonzeros.sel(solver="IHT").item() == results.nonzeros.sel(solver="l1").item()
    assert results.nonzeros.sel(solver="APG").item() == results.nonzeros.sel(solver="l1").item()
    np.testing.assert_allclose(
        results.objective.sel(solver="APG"), results.objective.sel(solver="l1"), rtol=1e-3
    )
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
    assert (results.minimum <= results.planted * (1 + 1e-12)).all()
    assert (results.dual <= results.maximum).all() and (
        results.maximum <= results.minimum * (1 + 1e-12)
    ).all()
    left = np.minimum(results.value, results.planted) - results.dual
    near = results.maximum - results.dual <= chosen.stationary * left + 1e-8 * results.value
    assert near.where(results.converged, True).all()
    (panel,) = draw(chosen, results).axes
    results = results.isel(signal=0) if name == "figure1" else results
    first = results.isel({curves: 0, "d": 0, **({"sigma": 0} if "sigma" in results.dims else {})})
    assert not chosen.relative and results.converged.dtype == bool
    of = (first.minimum - first.dual).clip(1e-6)
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
    assert set(results.status.values.ravel()) <= {Status.CONVERGED, Status.MAX_STEPS}
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


def test_coordinate_search():
    """The least of a convex function of a grid, without all of its points; from a grid's middle."""
    grid = ([1.0, 2.0, 4.0, 8.0, 16.0], [1.0, 1.1, 1.2], [0.1, 0.5, 0.9])
    seen = set()

    def end(setting):
        seen.add(setting)
        factor, growth, momentum = setting
        return (np.log2(factor) - 1) ** 2 + (growth - 1.2) ** 2 + 0.1 * momentum * growth

    assert gap_against_cost.search(grid, end) == (2.0, 1.2, 0.1)
    assert len(seen) <= 15 and (16.0, 1.0, 0.9) not in seen
    assert gap_against_cost.search(grid[:1], lambda setting: -setting[0]) == (16.0,)


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


def test_finalists_are_chosen_by_further_seeds(tmp_path, monkeypatch):
    """Of the settings that are lowest with the first key, that which is lowest in the mean."""
    monkeypatch.setattr(gap_against_cost, "FINALISTS", 2)
    chosen, _ = run("zhou2018/figure2", tmp_path)
    chosen = chosen.model_copy(update={"factors": [0.5, 1.0, 2.0, 4.0], "choice_seeds": 3})
    task = gap_against_cost.Task("tiny", 3, chosen, data.load("tiny", tmp_path))
    row = gap_against_cost.rows(chosen, task.n)["SG-HT"]
    first = jax.random.key(chosen.seed)
    keys = [first, *(jax.random.fold_in(first, number) for number in (1000, 1001))]
    ends = np.array(
        [
            [task.run(row, (factor, 1.0, 0.0), key)[1].value[-1] for key in keys]
            for factor in chosen.factors
        ]
    )
    finalists = np.argsort(ends[:, 0])[:2]
    best = finalists[np.argmin(ends[finalists].mean(axis=1))]
    choice = task.choose(row, at_once)
    last = float(choice.setting.sel(passes=chosen.passes[-1], name="factor"))
    assert last == chosen.factors[best]


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


def test_stuck(tmp_path):
    """On the lemma's instance; that adaptive regularisation is not stuck, the tests of ARHT
    show."""
    chosen = config.load(tiny("axiotis2020/lemma5_2", tmp_path), "quick", MODELS)
    session = Session(tmp_path / "store", tmp_path, lambda progress: None)
    results = stuck.run(chosen, session, ["OMPR"])
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


def test_a_pair_that_is_not_found(tmp_path):
    chosen = config.load(tiny("axiotis2020/section5_1", tmp_path), "quick", MODELS)
    session = Session(tmp_path / "store", tmp_path, lambda progress: None)
    results = planted_pair.run(chosen, session, ["OMP", "PHT"])
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
