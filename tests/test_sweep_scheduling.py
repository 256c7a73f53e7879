"""The lanes, pools, workers and devices that trials run on, and bits free of their scheduling."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxht import IHT, LeastSquares, Sparse, Status, Stop, metrics, solve, sweep
from jaxht.sweep.compilation import PoolLimits, ProgramCache, Sweep
from jaxht.sweep.grid import CellTrials, Grid
from jaxht.sweep.protocol import FunctionRun
from jaxht.sweep.scheduler import Queue, run_pool
from tests.contract import QUICK
from tests.sweeps import (
    METHODS,
    SQUARES,
    STOP,
    Countdown,
    D,
    bits,
    count_pools,
    draw_padded,
    problem,
    raise_while_traced,
    recovery,
    same_bits,
)
from tests.util import x64

pytestmark = pytest.mark.usefixtures("all_quickly")
ROOT = Path(__file__).parents[1]


# ---- lanes ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recovered():
    def run(shared, solvers):
        axes = {"solver": solvers, "n": [20], "K": [1, 3]}
        return sweep.run(recovery(shared), axes, num_trials=5, static=["n"])

    return {True: run(True, ["IHT", "SGHT"]), False: run(False, ["IHT"])}


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
    with pytest.raises(ValueError, match="no metric may be named 'num_steps'"):
        replace(make(), metrics={"num_steps": metrics.success})
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


@pytest.fixture(scope="module")
def padded():
    trial = sweep.Recovery(partial(draw_padded, shared=True), METHODS, SQUARES, Stop(max_steps=400))
    return lambda axes=HARD, **options: sweep.run(
        trial, axes, num_trials=9, round_up={"n": 20}, **options
    )


@pytest.fixture(scope="module")
def whole(padded):
    return padded(workers=1)


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
import jax
import jax.numpy as jnp
from jaxht import sweep
from tests.sweeps import same_bits

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


def test_a_limit_changes_nothing_else(padded, whole):
    limited = padded(workers=2, trial_timeout=60.0)
    same_bits(limited, whole)


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
    for_device = PoolLimits.for_device

    def limits_of_accelerator(device, *options):
        gpu = SimpleNamespace(platform="gpu", memory_stats=device.memory_stats)
        limits = for_device(gpu, *options)
        return replace(limits, row_lanes=min(4, limits.row_lanes))

    monkeypatch.setattr(PoolLimits, "for_device", limits_of_accelerator)


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


class Noted:
    """A number of the device that calls a function where the host reads it."""

    def __init__(self, number, note):
        self.number = number
        self.note = note

    def __int__(self):
        self.note()
        return int(self.number)


def test_a_chunk_is_submitted_before_the_last_one_is_read(accelerator):
    """And the host waits seldom: lanes take the trials that are staged by themselves."""
    grid = Grid({"length": [20]})
    plan = Sweep(Countdown(), grid, num_trials=400, seed=0, workers=1, max_lanes=16)
    (cell,) = grid.cells
    program, pool = ProgramCache(plan).get_pool(plan, cell, jax.local_devices()[0])
    events = []

    def run_chunk(*arguments):
        events.append("submit")
        state, chunk = pool.run_chunk(*arguments)
        return state, chunk._replace(num_ended=Noted(chunk.num_ended, note_read))

    def note_read():
        events.append("read")

    ended = []

    def on_cell(cell, trials, results):
        ended.extend(trials)
        np.testing.assert_array_equal(results["steps"], results["asked"])

    missing = [CellTrials(cell, np.arange(400, dtype=np.int32))]
    queue = Queue(missing, on_cell, on_progress=lambda progress: None)
    run_pool(program, pool._replace(run_chunk=run_chunk), cell.program, plan.seed, queue)
    assert ended == list(range(400))
    assert events[:2] == ["submit", "submit"]
    order = "".join(word[0] for word in events)
    assert "srs" in order and "rrr" not in order and "sss" not in order
    assert order.count("r") < 400


def test_the_next_program_is_compiled_while_one_runs(accelerator):
    """By a thread of its own, in which the trial is traced, and each once."""
    threads = {3: set(), 4: set(), 5: set()}

    def trial(key, cell):
        threads[cell["n"]].add(threading.current_thread().name)
        return {"size": jnp.zeros(cell["n"]).sum() + cell["n"]}

    sweep.clear_cache()
    before = count_pools()
    options = {"num_trials": 2, "workers": 1, "static": ["n"]}
    found = sweep.run(trial, {"n": [3, 4, 5]}, **options)
    np.testing.assert_array_equal(found["size"][:, 0], found.n)
    for n, expected in (3, "jaxht-sweep"), (4, "jaxht-compile"), (5, "jaxht-compile"):
        assert threads[n] - {threading.current_thread().name} == {expected}
    assert count_pools() == before + 3
    with pytest.raises(KeyError, match="three") as caught:
        sweep.run(raise_while_traced, {"n": [1, 3], "K": [1]}, num_trials=1, static=["n"])
    assert 'the cells with {"n": 3}' in caught.value.__notes__[-1]


# ---- pools and devices ---------------------------------------------------------------------------


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
import jax
from tests.test_sweep_scheduling import countdown, iht
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
