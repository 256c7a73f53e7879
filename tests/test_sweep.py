"""The Monte-Carlo engine: what is paired stays paired, what is shared is computed once, what is stored comes back."""

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxht import HTP, IHT, LeastSquares, Sparse, Stop, metrics, solve, sweep
from jaxht.ensembles import gaussian, gaussian_signal, planted
from jaxht.sweep.grid import Grid
from jaxht.sweep.store import FILE

D = 32


def bits(key, cell):
    """What a trial draws, and what it shares with its cell."""
    return {"own": jax.random.bits(key), "shared": jax.random.bits(cell.key)}


def problem(key, cell, shared):
    signal = partial(gaussian_signal, d=D, K=cell["K"])
    design = partial(gaussian, n=cell["n"], d=D)
    return planted(key, design, signal, design_key=cell.key if shared else None)


METHODS = {
    "IHT": lambda objective, cell: (Sparse(cell["K"]), IHT()),
    "HTP": lambda objective, cell: (Sparse(cell["K"], k_max=4), HTP()),
}
RECOVERY = {
    shared: sweep.Recovery(
        partial(problem, shared=shared),
        METHODS,
        stop=Stop(max_steps=60),
        metrics={"success": metrics.success, "error": metrics.estimation_error},
    )
    for shared in (True, False)
}


@pytest.fixture(scope="module")
def recovered():
    def run(shared, solvers):
        axes = {"solver": solvers, "n": [20], "K": [1, 3]}
        return sweep.run(RECOVERY[shared], axes, num_trials=5, static=["n"])

    return {True: run(True, ["IHT", "HTP"]), False: run(False, ["IHT"])}


def test_a_finer_grid_changes_nothing_drawn():
    coarse = sweep.run(bits, {"n": [8, 16], "K": [2, 4]}, num_trials=3, seed=7)
    fine = sweep.run(
        bits,
        {"K": [1, 2, 3, 4.0], "solver": ["a", "b"], "n": np.arange(4, 20, 2)},
        num_trials=11,
        seed=7,
        max_lanes=50,
    )
    for solver in fine.solver:
        common = fine.sel(solver=solver, n=coarse.n, K=coarse.K, trial=coarse.trial).drop_vars("solver")
        xarray.testing.assert_equal(common.transpose(*coarse.dims), coarse)
    assert len(np.unique(fine.own)) == fine.sizes["n"] * fine.sizes["K"] * fine.sizes["trial"]
    assert not (sweep.run(bits, {"n": [8, 16], "K": [2, 4]}, num_trials=3, seed=8).own == coarse.own).any()


def test_hashes_are_for_ever():
    assert sweep.stable_hash({"n": 8, "K": 2}) == sweep.stable_hash({"K": 2, "n": 8}) == 0x52FCABAE
    assert sweep.stable_hash("HTP") != sweep.stable_hash("IHT")


@pytest.mark.parametrize("max_lanes", [1, 3, 4, 7, 12, 1000])
def test_blocks_cover_the_grid(max_lanes):
    grid = Grid({"n": [5, 9, 20], "K": [1, 2, 3, 4, 5]}, round_up={"n": 10})
    seen = np.zeros((15, 4), int)
    batches = grid.batches(4, max_lanes)
    for batch in batches:
        assert batch.num_lanes <= max_lanes
        assert set(batch.numbers) == {"n", "K"}
        assert batch.bounds == (("n", 10 if max(batch.numbers["n"]) <= 10 else 20),)
        seen[np.ix_(batch.cells, batch.trials)] += 1
    assert seen.min() == 1
    shapes = {(batch.bounds, len(batch.cells), len(batch.trials)) for batch in batches}
    assert len(shapes) == 2  # one compile for each bound


def test_compiles_once_for_each_static_coordinate():
    traced = []

    def trial(key, cell):
        traced.append((cell["n"], cell.bounds["m"]))
        return {"sum": jnp.zeros(cell["n"]).sum() + cell["K"] + cell["m"]}

    axes = {"n": [3, 4], "K": [1, 2, 5], "m": [1, 7, 9]}
    dataset = sweep.run(trial, axes, num_trials=4, static=["n"], round_up={"m": 8}, max_lanes=5)
    assert sorted(traced) == [(3, 8), (3, 16), (4, 8), (4, 16)]
    expected = (dataset.n * 0 + dataset.K + dataset.m).broadcast_like(dataset["sum"])
    np.testing.assert_array_equal(dataset["sum"], expected)


def test_trials_of_a_cell_share_the_design_or_not(recovered):
    """In shared cells the design is drawn, and its norm computed, once a cell: without an axis of trials."""

    def norm(key, cell, shared):
        return {"norm": jnp.linalg.norm(problem(key, cell, shared).A, 2)}

    axes = {"n": [20], "K": [1, 3]}
    shared, own = (
        sweep.run(partial(norm, shared=shared), axes, num_trials=4, static=["n"]).norm for shared in (True, False)
    )
    assert (shared == shared.isel(trial=0)).all()
    assert len(np.unique(shared)) == 2
    assert len(np.unique(own)) == 8

    def over_trials(cell_key, shared):
        cell = sweep.Cell({"n": 20, "K": 3}, {}, cell_key)
        return jax.vmap(lambda t: norm(jax.random.fold_in(cell_key, t), cell, shared)["norm"])(jnp.arange(4))

    for shared, ndim in (True, 2), (False, 3):
        jaxpr = jax.make_jaxpr(partial(over_trials, shared=shared))(jax.random.key(0))
        assert svd_ndim(jaxpr.jaxpr) == ndim


def svd_ndim(jaxpr):
    for equation in jaxpr.eqns:
        if equation.primitive.name == "svd":
            return equation.invars[0].aval.ndim
        for inner in equation.params.values():
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns") and (found := svd_ndim(inner)):
                return found
    return None


@pytest.mark.parametrize("shared", [True, False])
def test_a_lane_is_a_call_of_solve(recovered, shared):
    dataset = recovered[shared]
    assert dataset.success.dtype == bool
    root = jax.random.key(0)
    for K, t in (1, 0), (3, 4):
        key = jax.random.fold_in(root, sweep.stable_hash({"n": 20, "K": K}))
        drawn = problem(jax.random.fold_in(key, t), sweep.Cell({"n": 20, "K": K}, {}, key), shared)
        for name in dataset.solver.values:
            constraint, solver = METHODS[name](None, {"K": K})
            result = solve(LeastSquares(drawn.A, drawn.y), constraint, solver, stop=Stop(max_steps=60))
            lane = dataset.sel(solver=name, n=20, K=K, trial=t)
            assert lane.error == pytest.approx(
                float(metrics.estimation_error(result.x, drawn.x_true)), rel=1e-3, abs=1e-5
            )
            assert lane.status == result.status
            assert lane.full_gradients == result.counts.full_gradients


def test_another_solver_changes_nothing(recovered):
    alone = sweep.run(
        RECOVERY[True], {"solver": ["IHT"], "n": [20], "K": [3]}, num_trials=5, static=["n"], problem=["n", "K"]
    )
    both = recovered[True].sel(solver=["IHT"], K=[3])
    np.testing.assert_allclose(alone.error, both.error, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(alone.success, both.success)


def test_progress_is_reported():
    calls = []
    sweep.run(bits, {"K": [1, 2, 3]}, num_trials=4, max_lanes=4, on_progress=lambda *call: calls.append(call))
    assert calls == [(0, 12), (4, 12), (8, 12), (12, 12)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"axes": {"K": []}}, "K"),
        ({"axes": {"K": [1, 1.0]}}, "distinct"),
        ({"static": ["n"]}, "static"),
        ({"problem": ["n"]}, "problem"),
        ({"round_up": {"n": 8}}, "round_up"),
        ({"axes": {"trial": [1]}}, "trial"),
        ({"num_trials": 0}, "num_trials"),
        ({"trial": lambda key, cell: {"K": cell["K"]}}, "name of an axis"),
        ({"trial": lambda key, cell: {"x": jnp.zeros(3)}}, "scalars"),
    ],
)
def test_what_cannot_be_right_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        sweep.run(**{"trial": bits, "axes": {"K": [1, 2]}, "num_trials": 2, **options})


def test_store_returns_what_it_got(recovered, tmp_path):
    dataset = recovered[True].assign_attrs(config='{"d": 32}')
    written = sweep.save(dataset, tmp_path / "new" / "store")
    loaded = sweep.load(tmp_path / "new" / "store")
    xarray.testing.assert_identical(loaded, dataset)
    assert {name: v.dtype for name, v in loaded.items()} == {name: v.dtype for name, v in dataset.items()}
    assert {"seed", "versions", "device", "config"} <= set(loaded.attrs)
    assert [path.name for path in written.parent.iterdir()] == [FILE]


def test_a_failed_save_leaves_the_old_results(recovered, tmp_path):
    sweep.save(recovered[True], tmp_path)
    broken = recovered[True].assign_attrs(wrong=object())
    with pytest.raises(TypeError):
        sweep.save(broken, tmp_path)
    xarray.testing.assert_identical(sweep.load(tmp_path), recovered[True])
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_missing_results_and_missing_xarray(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        sweep.load(tmp_path)
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ImportError, match=r"jaxht\[sweep\]"):
        sweep.run(bits, {"K": [1]}, num_trials=1)
