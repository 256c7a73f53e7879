"""The Monte-Carlo engine: paired problems, shared leaves, use of the lanes, and bits free of the
scheduling."""

import contextlib
import gc
import io
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxht import HTP, IHT, SGHT, LeastSquares, Sparse, Status, Stop, metrics, solve, sweep
from jaxht.ensembles import gaussian, gaussian_signal, planted
from jaxht.sweep import compilation, scheduler
from jaxht.sweep.compilation import PoolLimits, ProgramCache, Sweep
from jaxht.sweep.grid import Grid
from jaxht.sweep.program import Pool, Program
from jaxht.sweep.protocol import FunctionRun
from tests.contract import QUICK
from tests.util import with_interrupts, x64

pytestmark = pytest.mark.usefixtures("all_quickly")
ROOT = Path(__file__).parents[1]
D = 32


def bits(key, cell):
    """What a trial draws, and what it shares with its cell."""
    return {"own": jax.random.bits(key), "shared": jax.random.bits(cell.key)}


def problem(key, cell, shared):
    signal = partial(gaussian_signal, d=D, K=cell["K"])
    design = partial(gaussian, n=cell["n"], d=D)
    return planted(key, design, signal, design_key=cell.key if shared else None)


# Step sizes are given where it does not matter, which spares the compile of their estimate.
METHODS = {
    "IHT": lambda objective, cell: (Sparse(cell["K"]), IHT(step_size=0.2)),
    "HTP": lambda objective, cell: (Sparse(cell["K"], k_max=4), HTP()),
    "PGD": lambda objective, cell: (
        Sparse(4 * cell["K"]),
        IHT(2 / jnp.linalg.norm(objective.A, 2) ** 2),
    ),
    "SGHT": lambda objective, cell: (Sparse(cell["K"]), SGHT(step_size=0.01)),
}
SQUARES = partial(LeastSquares, mean=False)
STOP = Stop(max_steps=60)


def recovery(shared=True, stop=STOP):
    return sweep.Recovery(partial(problem, shared=shared), METHODS, SQUARES, stop)


@pytest.fixture(scope="module")
def recovered():
    def run(shared, solvers):
        axes = {"solver": solvers, "n": [20], "K": [1, 3]}
        return sweep.run(recovery(shared), axes, num_trials=5, static=["n"])

    return {True: run(True, ["IHT", "SGHT"]), False: run(False, ["IHT"])}


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


def test_compiles_once_for_what_is_static():
    seen = set()

    def trial(key, cell):
        seen.add((cell["n"], cell.bounds["m"]))
        return {"sum": jnp.zeros(cell["n"]).sum() + cell["K"] + cell["m"]}

    axes = {"n": [3, 4], "K": [1, 2, 5], "m": [1, 7, 9]}
    dataset = sweep.run(trial, axes, num_trials=4, static=["n"], round_up={"m": 8}, max_lanes=5)
    assert seen == {(3, 8), (3, 16), (4, 8), (4, 16)}
    expected = (dataset.n * 0 + dataset.K + dataset.m).broadcast_like(dataset["sum"])
    np.testing.assert_array_equal(dataset["sum"], expected)


def count_pools():
    """How many compiled pools this process holds."""
    gc.collect()
    return sum(type(found) is Pool for found in gc.get_objects())


def test_what_a_process_keeps_is_bounded():
    """Of more shapes than are kept those that were used last stay; the others are made anew."""

    def trial(key, cell):
        return {"size": jnp.zeros(cell["n"]).sum() + cell["n"]}

    sweep.clear_cache()
    before = count_pools()
    plan = Sweep(FunctionRun(trial), Grid({"n": list(range(1, 7))}, ["n"]), 1, 0, 1, None)
    programs = ProgramCache(plan, max_pools=3, max_programs=4)
    device = jax.local_devices()[0]
    if len(jax.local_devices()) > 1:
        pytest.skip("as many pools are kept for each device")
    numbers = []
    for cell in [*plan.grid.cells, plan.grid.cells[0]]:
        programs.get_pool(plan, cell, device)
        numbers.append(count_pools() - before)
    assert numbers == [1, 2, 3, 3, 3, 3, 3]
    assert len(programs.programs) == 4


def test_clear_cache_forgets_the_last_sweep():
    def trial(key, cell):
        return {"size": jnp.zeros(cell["n"]).sum() + cell["n"]}

    sweep.clear_cache()
    before = count_pools()
    for ns in ([1], [2], [2, 3]):  # the cache serves all sweeps of a trial
        found = sweep.run(trial, {"n": ns}, num_trials=1, static=["n"], workers=2)
        np.testing.assert_array_equal(found["size"].squeeze(), ns)
    assert count_pools() == before + 3
    sweep.clear_cache()
    assert count_pools() == before


# What trials refer to, and tests change.
SCALE = 1
SETTINGS = SimpleNamespace(scale=1)
FACTORS = {"scale": 1}
ENTRIES = np.ones(1)
REFERENCES = {
    "global": lambda x: SCALE * x,
    "attribute": lambda x: SETTINGS.scale * x,
    "entry of a dict": lambda x: FACTORS["scale"] * x,
    "entry of an array": lambda x: jnp.asarray(ENTRIES)[0] * x,
    "default": lambda x, settings=SETTINGS: settings.scale * x,
    "partial": partial(lambda settings, x: settings.scale * x, SETTINGS),
    "function": lambda x: scale_it(x),
    "jit": jax.jit(lambda x: scale_it(x)),
    "cond": lambda x: jax.lax.cond(x > 0, scale_it, scale_it, x),
    "scan": lambda x: jax.lax.scan(scale_carry, x, None, length=1)[0],
    "host": lambda x: jax.pure_callback(scale_on_host, jax.ShapeDtypeStruct((), x.dtype), x),
}


def scale_it(x):
    return jnp.asarray(SCALE * x, x.dtype)


def scale_on_host(x):
    raise NotImplementedError("set by a test")


def scale_carry(carry, _):
    return scale_it(carry), None


class Scaling:
    """Trials with settings of their own: the object itself, its method, and a trial in steps."""

    def __init__(self):
        self.scale = 1

    def trial(self, key, cell):
        return {"x": self.scale * cell["K"]}

    __call__ = trial


class ScalingInSteps(Scaling):
    __call__ = None

    def draw(self, key, cell):
        return cell["K"]

    def start(self, case):
        return jnp.zeros((), jnp.int32)

    def running(self, carry):
        return carry < 2

    def advance(self, case, carry):
        return jnp.minimum(carry + 1, 2)

    def finish(self, case, carry):
        return {"x": self.scale * case}


@pytest.fixture
def change(monkeypatch):
    """A function that sets all that trials refer to."""

    def set_all(scale):
        monkeypatch.setitem(globals(), "SCALE", scale)
        on_host = lambda x: np.asarray(scale * x, x.dtype)  # noqa: E731
        monkeypatch.setitem(globals(), "scale_on_host", on_host)
        monkeypatch.setattr(SETTINGS, "scale", scale)
        monkeypatch.setitem(FACTORS, "scale", scale)
        ENTRIES[0] = scale

    yield set_all
    ENTRIES[0] = 1


NEEDS_CONTEXTS = pytest.mark.skipif(
    not hasattr(jax, "make_user_context"), reason="JAX keeps what it has traced"
)
KEPT_BY_JAX = ("jit", "cond", "scan")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=NEEDS_CONTEXTS if name in KEPT_BY_JAX else ())
        for name in REFERENCES
    ],
)
def test_what_a_trial_refers_to_is_seen_as_it_is_now(change, name, tmp_path):
    """A sweep computes with what the globals of its trial are when it begins; a store refuses
    what it can see."""
    function = REFERENCES[name]

    def trial(key, cell):
        return {"x": function(cell["K"])}

    for scale in (1, 2, 1):
        change(scale)
        found = sweep.run(trial, {"K": [0.5]}, num_trials=2)
        assert found.x.values.ravel().tolist() == [0.5 * scale] * 2
        if name == "host":
            continue
        if scale == 1:
            sweep.run(trial, {"K": [0.5]}, num_trials=2, store=tmp_path)
        else:
            with pytest.raises(sweep.StoreError, match="holds another sweep"):
                sweep.run(trial, {"K": [0.5]}, num_trials=3, store=tmp_path)


def test_attributes_of_a_trial_are_seen_as_they_are_now():
    scaling = Scaling()
    in_steps = ScalingInSteps()
    trials = (scaling, scaling.trial, partial(Scaling.trial, scaling), in_steps)
    for trial in trials:
        for scale in (1, 3):
            scaling.scale = scale
            in_steps.scale = scale
            found = sweep.run(trial, {"K": [2]}, num_trials=1)
            assert found.x.item() == 2 * scale


def test_a_sweep_of_the_same_trial_compiles_nothing():
    def trial(key, cell):
        return {"x": SCALE * cell["K"]}

    sweep.clear_cache()
    before = count_pools()
    for num_trials in (1, 2, 3):
        sweep.run(trial, {"K": [1, 2]}, num_trials=num_trials, workers=1)
        assert count_pools() == before + 1


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


# ---- lanes ---------------------------------------------------------------------------------------


def program(trial, axes, **options):
    grid = Grid(axes, **options)
    sweep_ = Sweep(trial, grid, 4, 0, 1, None)
    return ProgramCache(sweep_).get_program(sweep_, grid.cells[0])


@pytest.mark.parametrize(
    ("shared_design", "shared_axes", "held_once"),
    [
        (True, None, {(20, D), ()}),
        (True, ["n"], {(20, D), ()}),
        (True, [], {(20, D), ()}),
        (False, None, {()}),
    ],
)
def test_what_trials_share_is_held_once_a_row(shared_design, shared_axes, held_once):
    """The design where it comes from ``cell.key``; of the numbers (k, the step size ...) those that
    do not differ."""
    made = program(
        recovery(shared_design),
        {"solver": ["PGD"], "n": [20], "K": [1, 3]},
        static=["n"],
        shared=shared_axes,
    )
    shapes = [shape.shape for shape in jax.eval_shape(made.draw_shared, made.inputs)]
    assert set(shapes) == held_once
    # With A, eta = 2 / sigma_max^2; with K, k.
    assert len(shapes) - len([shape for shape in shapes if shape]) >= 1


def test_runs_whose_success_is_decided_are_left():
    """Where a loop in NumPy says so; no success changes, and the others take all the steps there
    are."""
    methods = {"PGD": lambda objective, cell: (Sparse(4 * cell["K"]), IHT(0.3))}
    stop, every = Stop(max_steps=3000, rtol=0.0, target_value=1e-10), 64
    make = partial(sweep.Recovery, partial(problem, shared=True), methods, SQUARES, stop)
    axes = {"solver": ["PGD"], "n": [20], "K": [2, 4]}
    whole, cut = (
        sweep.run(make(**options), axes, num_trials=20, static=["n"])
        for options in ({}, {"look_every": every})
    )
    np.testing.assert_array_equal(cut.success, whole.success)
    left = cut.status == Status.RUNNING
    failed = ~whole.success & (whole.status == Status.MAX_STEPS)
    assert 5 < failed.sum() and whole.success.sum() > 5
    assert (cut.num_steps.where(failed) < whole.num_steps.where(failed)).sum() > 5
    assert (cut.num_steps <= whole.num_steps).all()
    assert (left | (cut.status == whole.status)).all()
    assert (left & failed).sum() > 5 and (left & whole.success).sum() > 5
    assert (cut.error.where(left & whole.success) < 1e-3 / 2).sum() == (left & whole.success).sum()

    cell = sweep.Cell(
        {"n": 20, "K": 4},
        {},
        jax.random.fold_in(jax.random.key(0), sweep.stable_hash({"n": 20, "K": 4})),
    )
    t = int(np.flatnonzero(failed.sel(solver="PGD", n=20, K=4))[0])
    made = problem(jax.random.fold_in(cell.key, t), cell, shared=True)
    A, y, truth = (np.asarray(part, np.float64) for part in (made.A, made.y, made.x_true))
    x = before = np.zeros(D)
    for step in range(1, 3001):
        z = x - 0.3 * A.T @ (A @ x - y)
        x = np.where(np.abs(z) >= np.sort(np.abs(z))[-16], z, 0)
        if step % every == 0:
            reach = 10 * (3000 - step) / every * np.linalg.norm(x - before)
            if reach < np.linalg.norm(x - truth) - 1e-3:
                break
            before = x
    assert step < 3000 and step == int(cut.num_steps.sel(solver="PGD", n=20, K=4, trial=t))
    with pytest.raises(ValueError, match="look_every must be even"):
        make(look_every=3)


@pytest.mark.parametrize("shared", [True, False])
def test_a_lane_is_a_call_of_solve(recovered, shared):
    dataset = recovered[shared]
    assert dataset.success.dtype == bool
    root = jax.random.key(0)

    @partial(jax.jit, static_argnames="name", compiler_options=QUICK)
    def alone(key, trial_key, solver_key, K, name):
        drawn = problem(trial_key, sweep.Cell({"n": 20, "K": K}, {}, key), shared)
        constraint, solver = METHODS[name](None, {"K": K})
        return drawn, solve(
            LeastSquares(drawn.A, drawn.y, mean=False),
            constraint,
            solver,
            key=solver_key,
            stop=STOP,
        )

    for K, t in (1, 0), (3, 4):
        key = jax.random.fold_in(root, sweep.stable_hash({"n": 20, "K": K}))
        trial_key = jax.random.fold_in(key, t)
        for name in dataset.solver.values:
            solver_key = jax.random.fold_in(trial_key, sweep.stable_hash(str(name)))
            drawn, result = alone(key, trial_key, solver_key, K, str(name))
            lane = dataset.sel(solver=name, n=20, K=K, trial=t)
            error = float(metrics.estimation_error(result.x, drawn.x_true))
            assert lane.error == pytest.approx(error, rel=1e-3, abs=1e-5)
            assert lane.status == result.status
            assert lane.full_gradients == result.counts.full_gradients


def test_another_solver_changes_nothing(recovered):
    axes = {"solver": ["IHT"], "n": [20], "K": [3]}
    alone = sweep.run(recovery(), axes, num_trials=5, static=["n"], problem=["n", "K"])
    both = recovered[True].sel(solver=["IHT"], K=[3])
    np.testing.assert_allclose(alone.error, both.error, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(alone.success, both.success)


HARD = {"solver": ["IHT", "HTP"], "n": [12, 16, 20], "K": [1, 2, 3, 4]}


def draw_padded(key, cell, shared):
    rows = cell.bounds["n"]

    def design(key):
        return jnp.where(
            jnp.arange(rows)[:, None] < cell["n"], gaussian(key, rows, D, variance=1 / cell["n"]), 0
        )

    return planted(
        key,
        design,
        partial(gaussian_signal, d=D, K=cell["K"]),
        design_key=cell.key if shared else None,
    )


@pytest.fixture(scope="module")
def padded():
    trial = sweep.Recovery(partial(draw_padded, shared=True), METHODS, SQUARES, Stop(max_steps=400))
    return lambda axes=HARD, **options: sweep.run(
        trial, axes, num_trials=9, round_up={"n": 20}, **options
    )


@pytest.fixture(scope="module")
def whole(padded):
    return padded(workers=1)


def same_bits(a, b):
    xarray.testing.assert_identical(a.drop_attrs(), b.drop_attrs())
    for name in a.data_vars:
        assert a[name].values.tobytes() == b[name].values.tobytes(), name


@pytest.mark.parametrize("workers", [2, 5])
def test_workers_and_lanes_do_not_change_a_bit(padded, whole, workers):
    """Other workers take other trials at other times: every trial in another lane, next to
    others."""
    same_bits(padded(workers=workers), whole)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="a GPU has one pool")
@pytest.mark.parametrize(
    ("cells", "trials", "pools"), [(1, 32, 1), (2, 16, 1), (3, 16, 2), (9, 40, 4)]
)
def test_as_many_pools_as_cores_and_as_are_of_use(monkeypatch, cells, trials, pools):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: range(4), raising=False)
    started = []

    def note_thread(*call):
        """Is called in every new thread, once."""
        sys.setprofile(None)
        started.append(threading.current_thread().name)

    threading.setprofile(note_thread)
    try:
        found = sweep.run(bits, {"K": list(range(cells))}, num_trials=trials)
    finally:
        threading.setprofile(None)
    assert started.count("jaxht-sweep") == pools
    same_bits(found, sweep.run(bits, {"K": list(range(cells))}, num_trials=trials, workers=1))


LAPACK = """
from tests.test_sweep import *

def trial(key, cell):
    return {"norm": jnp.linalg.norm(jax.random.normal(key, (64, 48)), 2)}

pooled = sweep.run(trial, {"K": list(range(8))}, num_trials=100, workers=4)
same_bits(pooled, sweep.run(trial, {"K": list(range(8))}, num_trials=100, workers=1))
"""


def test_trials_that_call_lapack_do_not_deadlock():
    """With 4 pools on as many threads as cores, XLA would, at once."""
    environment = {name: value for name, value in os.environ.items() if name != "NPROC"}
    subprocess.run(
        [sys.executable, "-c", LAPACK], cwd=ROOT, env=environment, check=True, timeout=100
    )


def test_an_executor_does_not_change_a_bit(padded, whole):
    with ThreadPoolExecutor(2) as executor:
        same_bits(padded(executor=executor, num_tasks=5, workers=1), whole)


def test_shards_do_not_change_a_bit(padded, whole, tmp_path):
    first = padded(store=tmp_path, shard=(0, 2))
    assert int(first.done.sum()) == first.done.size // 2
    second = padded(store=tmp_path, shard=(1, 2))
    same_bits(second, whole)


def test_other_lanes_change_no_count(padded, whole):
    few = padded({**HARD, "solver": ["IHT"]}, max_lanes=3)
    counts = (few.success.sum("trial"), whole.sel(solver=["IHT"]).success.sum("trial"))
    assert int(abs(counts[0] - counts[1]).sum()) <= 2


class Countdown:
    """Trials that take 1 to 64 times ``length`` steps."""

    def draw(self, key, cell):
        return jax.random.randint(key, (), 1, 9) ** 2 * cell["length"]

    def start(self, case):
        return jnp.zeros((), jnp.int32)

    def running(self, carry):
        return carry >= 0

    def advance(self, case, carry):
        return jnp.where(carry < 0, carry, jnp.where(carry + 1 >= case, -case, carry + 1))

    def finish(self, case, carry):
        return {"steps": -carry, "asked": case}


def test_lanes_are_in_use():
    """In blocks that wait for the slowest, more than half would wait."""
    assert isinstance(Countdown(), sweep.Run)
    last = []
    dataset = sweep.run(
        Countdown(), {"length": [20, 40]}, num_trials=400, workers=1, on_progress=last.append
    )
    np.testing.assert_array_equal(dataset.steps, dataset.asked)
    assert len(np.unique(dataset.steps)) > 8
    assert last[-1].busy == dataset.steps.sum()
    assert last[-1].executed >= last[-1].busy
    assert last[-1].utilisation > 0.85


# ---- the host ahead of the device ----------------------------------------------------------------


@pytest.fixture
def accelerator(monkeypatch):
    """Pools as those of an accelerator: short rows, so that there are several."""
    monkeypatch.setattr(compilation, "LANES", {})
    monkeypatch.setattr(compilation, "ROW_LANES_ELSEWHERE", 4)


@pytest.mark.parametrize("shared", [None, []], ids=["by cell", "none"])
def test_the_host_ahead_changes_no_bit(accelerator, padded, shared):
    """With a chunk on the way, in shards or with several pools, all trials are there, and the
    same; cells have fewer, as many and more trials than a batch."""
    options = {"max_lanes": 16, "shared": shared}
    alone = padded(workers=1, **options)
    assert alone.done.all()
    same_bits(padded(workers=3, **options), alone)
    shards = [padded(workers=1, shard=(part, 2), **options) for part in range(2)]
    for part in shards:
        first = part.where(part.done, drop=True)
        xarray.testing.assert_equal(first, alone.where(part.done, drop=True))
    waiting = padded(workers=1, trial_timeout=60.0, **options)  # each chunk is read at once
    same_bits(waiting, alone)


@pytest.mark.parametrize("num_trials", [1, 3, 50])
@pytest.mark.parametrize("max_lanes", [1, 3, 32])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_pool_runs_every_trial_once(request, ahead, num_trials, max_lanes):
    if ahead:
        request.getfixturevalue("accelerator")
    last = []
    axes = {"length": [1, 3, 8]}
    options = {"num_trials": num_trials, "max_lanes": max_lanes, "workers": 1}
    found = sweep.run(Countdown(), axes, on_progress=last.append, **options)
    np.testing.assert_array_equal(found.steps, found.asked)
    assert last[-1].done == last[-1].total == 3 * num_trials
    assert last[-1].busy == found.steps.sum()


def test_a_chunk_is_submitted_before_the_last_one_is_read(accelerator, monkeypatch):
    """And the host waits seldom: lanes take the trials that are staged by themselves."""
    events = []
    compile_pool, read = Program.compile, scheduler.read_results

    def compile_noting(self, *shape):
        pool = compile_pool(self, *shape)

        def run_chunk(*arguments):
            events.append("submit")
            return pool.run_chunk(*arguments)

        return pool._replace(run_chunk=run_chunk)

    def read_noting(chunk):
        events.append("read")
        return read(chunk)

    monkeypatch.setattr(Program, "compile", compile_noting)
    monkeypatch.setattr(scheduler, "read_results", read_noting)
    found = sweep.run(Countdown(), {"length": [20]}, num_trials=400, max_lanes=16, workers=1)
    assert found.done.all()
    assert events[:2] == ["submit", "submit"]
    order = "".join(word[0] for word in events)
    assert "srs" in order and "rrr" not in order and "sss" not in order
    assert order.count("r") < 400


def test_the_next_program_is_compiled_while_one_runs(accelerator, monkeypatch):
    names = []
    compile_pool = Program.compile

    def compile_noting(self, *shape):
        names.append(threading.current_thread().name)
        return compile_pool(self, *shape)

    monkeypatch.setattr(Program, "compile", compile_noting)

    def trial(key, cell):
        return {"size": jnp.zeros(cell["n"]).sum() + cell["n"]}

    options = {"num_trials": 2, "workers": 1, "static": ["n"]}
    found = sweep.run(trial, {"n": [3, 4, 5]}, **options)
    np.testing.assert_array_equal(found["size"][:, 0], found.n)
    assert names == ["jaxht-sweep", "jaxht-compile", "jaxht-compile"]
    with pytest.raises(KeyError, match="three") as caught:
        sweep.run(raise_while_traced, {"n": [1, 3], "K": [1]}, num_trials=1, static=["n"])
    assert 'the cells with {"n": 3}' in caught.value.__notes__[-1]


def test_lanes_of_an_accelerator():
    """So many for each of its multiprocessors, where it tells their number."""

    def lanes(**attributes):
        device = SimpleNamespace(platform="gpu", memory_stats=dict, **attributes)
        return PoolLimits.for_device(device, 1, memory=10**9)

    assert lanes(core_count=132) == PoolLimits(128, 8192, 5 * 10**8, ahead=True)
    assert lanes() == lanes(core_count=132)
    assert lanes(core_count=40).lanes_max == 2048
    assert lanes(core_count=1).lanes_max == 128


def test_lanes_of_a_cpu():
    """Lanes that a core keeps in its cache, unless the caller says how many."""
    device = SimpleNamespace(platform="cpu", memory_stats=dict)
    limits = PoolLimits.for_device(device, 1, memory=10**10)
    assert limits.choose_shape(True, 4, 128 * 256 * 4) == (1, 32, 32)
    assert limits.choose_shape(True, 4, 500 * 1000 * 4) == (1, 4, 4)
    asked = PoolLimits.for_device(device, 1, max_lanes=16, memory=10**10)
    assert asked.choose_shape(True, 4, 500 * 1000 * 4) == (1, 16, 16)


CPU, ACCELERATOR = PoolLimits(8, 32, 10**9), PoolLimits(128, 8192, 10**12)


@pytest.mark.parametrize(
    ("limits", "arguments", "shape"),
    [
        (CPU, (False, 10**5, 1000), (4, 8, 16)),
        (CPU, (False, 4, 10**5), (4, 8, 8)),  # a design for each trial
        (CPU, (True, 10**5, 1000), (1, 32, 32)),  # one design for all
        (CPU, (True, 4, 10**5), (1, 32, 32)),
        (PoolLimits(5, 5, 10**9), (False, 10**5, 1000), (1, 5, 10)),
        (PoolLimits(8, 32, 16 * 10**6), (False, 4, 10**6), (1, 4, 4)),  # memory for four lanes
        (PoolLimits(8, 32, 10**3), (False, 4, 10**6), (1, 1, 1)),
        (PoolLimits(8, 32, 10**9, cache=10**6), (False, 4, 2 * 10**5), (1, 5, 5)),
        (PoolLimits(8, 32, 10**9, cache=10**6), (False, 4, 10**7), (1, 1, 1)),
        (PoolLimits(8, 32, 10**9, cache=10**6), (False, 10**7, 1000), (4, 8, 16)),
        (ACCELERATOR, (False, 10**5, 1000), (64, 128, 256)),
        (ACCELERATOR, (True, 10**5, 1000), (1, 8192, 8192)),
    ],
)
def test_shape_of_a_pool(limits, arguments, shape):
    assert limits.choose_shape(*arguments) == shape


LITTLE = 300_000


def test_lanes_fit_the_memory():
    """The compiler knows what a trial needs inside; a pool that would take more than there is gets
    fewer lanes."""

    def trial(key, cell):
        Z = jax.random.uniform(key, (64, 64))
        return {"trace": jnp.trace(Z @ Z @ Z)}

    def lanes(memory):
        plan = Sweep(FunctionRun(trial), Grid({"K": [1]}), 64, 0, 1, 4, memory=memory)
        return ProgramCache(plan).get_pool(plan, plan.grid.cells[0], jax.devices()[0])[1]

    assert lanes(10**9).lanes == 4
    few = lanes(LITTLE)
    assert 1 <= few.lanes < 4
    assert few.memory <= LITTLE / 2
    assert lanes(1).lanes == 1
    options = {"workers": 1, "max_lanes": 4, "memory": LITTLE}
    assert sweep.run(trial, {"K": [1]}, num_trials=64, **options).done.all()


def test_double_precision_reaches_the_workers():
    with x64():
        dataset = sweep.run(
            lambda key, cell: {"u": jax.random.uniform(key)}, {"K": [1]}, num_trials=4
        )
        assert dataset.u.dtype == np.float64


DEVICES = """
import sys
from tests.test_sweep import *
assert len(jax.devices()) == 2
iht(store=sys.argv[1] + "/iht")
countdown(store=sys.argv[1] + "/countdown")
"""


def iht(**options):
    return sweep.run(
        recovery(),
        {"solver": ["IHT"], "n": [20], "K": [1, 3]},
        num_trials=5,
        static=["n"],
        **options,
    )


def countdown(**options):
    return sweep.run(Countdown(), {"length": list(range(1, 20))}, num_trials=30, **options)


def test_devices_change_no_count(recovered, tmp_path):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    command = [sys.executable, "-c", DEVICES, str(tmp_path)]
    subprocess.run(command, env={**os.environ, "XLA_FLAGS": flags}, cwd=ROOT, check=True)
    found = sweep.load(tmp_path / "iht").success.sum("trial")
    xarray.testing.assert_equal(found, recovered[True].sel(solver=["IHT"]).success.sum("trial"))
    xarray.testing.assert_equal(sweep.load(tmp_path / "countdown").steps, countdown().steps)


# ---- progress, mistakes --------------------------------------------------------------------------


def test_progress_is_reported():
    calls = []
    sweep.run(
        bits, {"K": [1, 2, 3]}, num_trials=4, max_lanes=4, workers=1, on_progress=calls.append
    )
    done = [progress.done for progress in calls]
    assert done[0] == 0
    assert done[-1] == 12
    assert done == sorted(done)
    assert len(done) >= 3
    assert {progress.total for progress in calls} == {12}
    # The first report, before anything is compiled, says what is being done, and the last that
    # nothing is.
    notes = [progress.note for progress in calls]
    assert notes[0] == "compiling ..." and notes[-1] == ""
    first_trials = next(i for i, number in enumerate(done) if number)
    assert notes[:first_trials] == ["compiling ..."] * (first_trials - 1) + [""]


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_compiling_is_shown_at_once(stream):
    """In a log file as the first line, in a terminal beside the bar, both before there are
    trials."""
    shown = []
    with contextlib.redirect_stderr(stream()) as written, sweep.progress_bar("mine") as bar:

        def show(progress):
            bar(progress)
            shown.append((progress.done, written.getvalue()))

        sweep.run(bits, {"K": [1, 2]}, num_trials=4, on_progress=show)
    done, text = shown[0]
    assert done == 0 and "mine" in text and "0/8" in text and "compiling ..." in text


def test_the_rate_is_that_of_the_trials(capsys):
    """The time of compiling does not count; neither is there a rate before the first trial."""
    with sweep.progress_bar("mine") as bar:
        bar(sweep.Progress(0, 8, note="compiling ..."))
        time.sleep(1.0)
        compiled = time.monotonic()
        bar(sweep.Progress(0, 8))
        time.sleep(0.1)
        bar(sweep.Progress(4, 8))
    slowest = 4 / (time.monotonic() - compiled)
    first, *_, last = capsys.readouterr().err.splitlines()
    assert "? runs/s" in first
    rate = float(re.search(r"([0-9.]+) runs/s", last)[1])
    assert slowest - 0.01 <= rate <= 4 / 0.1 + 0.01
    assert re.search(r"00:0[1-9]<", last)


def test_a_log_file_gets_lines(capsys):
    """Also of a process that has loaded IPython and its kernel, as those that run notebooks do, and
    is no kernel."""
    pytest.importorskip("ipykernel")
    assert pytest.importorskip("IPython").get_ipython() is None
    with sweep.progress_bar("mine", interval=0.0) as bar:
        sweep.run(bits, {"K": [1, 2, 3]}, num_trials=40, on_progress=bar)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 2
    assert "compiling ..." in lines[0] and "compiling ..." not in lines[-1]
    assert "100%" in lines[-1]
    assert "120/120" in lines[-1]
    assert "runs/s" in lines[-1]
    assert all(line.startswith("mine") for line in lines)
    assert sum("120/120" in line for line in lines) == 1


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """What the cell of a notebook has shown, as the arguments of each call of its front end."""
    pytest.importorskip("IPython")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    class Shell(InteractiveShell):
        """A shell that has a kernel, as that of a notebook."""

        kernel = "its kernel"
        display_pub_class = CapturingDisplayPublisher

    config = Config({"HistoryManager": {"enabled": False}})
    shell = Shell.instance(config=config)
    yield shell.display_pub.outputs
    shell.restore_sys_module_state()
    Shell.clear_instance()


def test_a_notebook_gets_one_output(notebook):
    """It is updated, and ends at 100 %; tests/test_first_hour.py executes a notebook."""
    with sweep.progress_bar("mine", interval=0.0) as bar:
        sweep.run(bits, {"K": [1, 2, 3]}, num_trials=40, on_progress=bar)
    assert len({output["transient"]["display_id"] for output in notebook}) == 1
    assert [output["update"] for output in notebook] == [False] + [True] * (len(notebook) - 1)
    shown = [output["data"]["text/plain"] for output in notebook]
    assert len(shown) > 2 and "compiling ..." in shown[0]
    assert "100%" in shown[-1] and "120/120" in shown[-1] and "compiling ..." not in shown[-1]
    notebook.clear()
    with sweep.progress_bar("mine", interval=1e6) as bar:
        for done in range(9):
            bar(sweep.Progress(done, 8))
    shown = [output["data"]["text/plain"] for output in notebook]
    assert len(shown) == 2 and "0/8" in shown[0] and "8/8" in shown[1]


def test_an_error_in_a_worker_ends_the_sweep(tmp_path):
    class Full(Exception):
        pass

    def on_progress(progress):
        if progress.done >= 10:
            raise Full

    axes = {"K": list(range(12))}
    with pytest.raises(Full):
        sweep.run(
            bits,
            axes,
            num_trials=4,
            max_lanes=4,
            store=tmp_path,
            on_progress=on_progress,
            workers=2,
        )
    kept = sweep.load(tmp_path)
    assert 0 < int(kept.done.sum()) < 12
    same_bits(
        sweep.run(bits, axes, num_trials=4, max_lanes=4, store=tmp_path),
        sweep.run(bits, axes, num_trials=4, max_lanes=4),
    )


def raise_for_three(number):
    if number == 3:
        raise KeyError("three")
    return number


def raise_while_traced(key, cell):
    if cell["n"] == 3:
        raise KeyError("three")
    return {"x": cell["K"]}


def raise_on_the_host(key, cell):
    shape = jax.ShapeDtypeStruct((), jnp.int32)
    return {"x": jax.pure_callback(raise_for_three, shape, cell["K"])}


class RaiseInSteps(Countdown):
    def advance(self, case, carry):
        raise KeyError("three")


@pytest.mark.parametrize(
    ("trial", "axes", "options", "words"),
    [
        (raise_while_traced, {"n": [1, 3], "K": [1]}, {"static": ["n"]}, 'the cells with {"n": 3}'),
        (raise_while_traced, {"n": [3], "K": [1]}, {"static": ["n", "K"]}, '{"K": 1, "n": 3}'),
        (raise_on_the_host, {"K": [1, 3]}, {"max_lanes": 1}, "of {'K': 3};"),
        (raise_on_the_host, {"K": [1, 3]}, {}, "{'K': 3}"),
        (RaiseInSteps(), {"length": [1, 2]}, {}, "for all cells"),
    ],
)
def test_an_error_of_a_trial_names_its_cell(trial, axes, options, words):
    with pytest.raises(Exception, match="three") as caught:
        sweep.run(trial, axes, num_trials=2, workers=1, **options)
    [note] = caught.value.__notes__[-1:]
    assert words in note


def test_an_error_in_a_task_names_its_cell():
    with ThreadPoolExecutor(1) as executor, pytest.raises(Exception, match="three") as caught:
        sweep.run(raise_on_the_host, {"K": [3]}, num_trials=2, executor=executor, num_tasks=1)
    # As it comes from another process.
    error = pickle.loads(pickle.dumps(caught.value))
    assert "{'K': 3}" in error.__notes__[-1]


# ---- trials that do not come back ----------------------------------------------------------------


class Endless(Countdown):
    """A trial in steps, of which that of ``length`` 0 takes steps for ever in every third trial."""

    def draw(self, key, cell):
        length = jax.random.randint(key, (), 1, 9)
        return jnp.where(
            (cell["length"] == 0) & (length % 3 == 0), jnp.iinfo(jnp.int32).max, length * 100
        )

    def finish(self, case, carry):
        return {
            **super().finish(case, carry),
            "success": carry < 0,
            "root": jnp.sqrt(1.0 * abs(carry)),
        }


def test_a_trial_that_takes_too_long_is_ended(tmp_path):
    """The others, of its cell too, run to their end; it counts in no rate."""
    axes, options = (
        {"length": [0, 1, 2]},
        {"num_trials": 20, "max_lanes": 8, "workers": 2, "trial_timeout": 0.3},
    )
    found = sweep.run(Endless(), axes, store=tmp_path, **options)
    assert found.done.all()
    late = found.timed_out_after == 0.3
    assert 0 < int(late.sum()) < 20 and not late.sel(length=[1, 2]).any()
    assert found.timed_out_after.where(~late).isnull().all()
    np.testing.assert_array_equal(late, ~found.success)
    assert (found.steps.where(~late, found.asked) == found.asked).all()
    assert (found.steps.where(late, 0) == 0).all() and found.root.where(late).isnull().all()
    rates = sweep.success_rate(found)
    np.testing.assert_array_equal(rates.trials, 20 - late.sum("trial"))
    np.testing.assert_array_equal(rates.rate, 1.0)
    # The same limit leaves it at that, and so does a shorter one; a longer one tries again.
    totals = []
    for limit in 0.3, 0.2, 0.4:
        options["trial_timeout"] = limit
        again = sweep.run(
            Endless(),
            axes,
            store=tmp_path,
            **options,
            on_progress=lambda progress: totals.append(progress.total),
        )
    assert set(totals[:2]) == {0} and totals[-1] == late.sum()
    assert again.timed_out_after.max() == 0.4


def test_a_limit_changes_nothing_else(padded, whole):
    limited = padded(workers=2, trial_timeout=60.0)
    same_bits(limited, whole)


HUNG = """
import sys
from tests.test_sweep import *

def trial(key, cell):
    stuck = (cell["K"] == 1) & (jax.random.uniform(key) < 0.2)
    return {"K2": jax.lax.while_loop(lambda x: stuck | (x < 2), lambda x: jnp.minimum(x + 1, 2), 0) * cell["K"]}

def run(**options):
    return sweep.run(trial, {"K": [0, 1, 2, 3]}, num_trials=20, max_lanes=10, store=sys.argv[1], **options)

try:
    run(trial_timeout=1.0)
except sweep.TrialTimeout as error:
    print(error)
    sys.exit(3)
print(int(run(trial_timeout=1.0).timed_out_after.notnull().sum()))
"""


def test_a_call_that_hangs_is_given_up(tmp_path):
    """The process ends; the next one finds all that was stored, leaves out the cell that hung, and
    goes on."""
    command = [sys.executable, "-c", HUNG, str(tmp_path)]
    first, second = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        for _ in range(2)
    )
    assert first.returncode == 3, first.stderr
    assert "{'K': 1}" in first.stdout and "trial_timeout=1" in first.stdout
    assert second.returncode == 0, second.stderr
    found = sweep.load(tmp_path)
    assert found.done.all()
    late = found.timed_out_after.notnull()
    assert late.sel(K=1).any() and not late.sel(K=[0, 2, 3]).any()
    assert (found.K2.where(~late, 2 * found.K) == 2 * found.K).all()


STUCK = """
import jax
from jaxht import sweep

def trial(key, cell):
    return {"x": jax.lax.while_loop(lambda x: x >= 0, lambda x: x * 0, cell["K"])}

sweep.run(trial, {"K": [1]}, num_trials=2, on_progress=lambda progress: print(progress.note or "began", flush=True))
"""


def test_ctrl_c_twice_ends_a_process_that_hangs():
    with with_interrupts():
        process = subprocess.Popen(
            [sys.executable, "-c", STUCK], cwd=ROOT, stdout=-1, stderr=-1, text=True
        )
    with process:
        while process.stdout.readline() != "began\n":
            pass
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.0)  # for the chunk that runs, which usually ends
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20.0)
        finally:
            process.kill()
        assert "KeyboardInterrupt" in process.stderr.read()


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
