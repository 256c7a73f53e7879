"""How many programs a process holds after many shapes."""

import gc
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import _programs, sweep
from jaxht._programs import PROGRAMS, TRACES, bounded_jit
from tests.util import drop_programs

pytestmark = pytest.mark.usefixtures("all_quickly")


@pytest.fixture
def few(monkeypatch):
    """A process may hold few programs, and holds none."""
    monkeypatch.setattr(_programs, "MAX_HELD_PROGRAMS", 4)
    drop_programs()
    return 4


def num_pieces():
    """Into how many pieces the memory of the process is divided, of which Linux allows 65 530."""
    gc.collect()
    return Path("/proc/self/maps").read_text(encoding="utf-8").count("\n")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="not on Linux")
def test_memory_stays_bounded_over_hundreds_of_shapes(few):
    """And what is dropped is compiled again."""
    compute = bounded_jit(lambda x: jnp.sum(x, axis=0))
    pieces = []
    for size in range(1, 301):
        compute(np.ones((size, 3), np.float32))
        assert PROGRAMS.number <= few
        if size % 60 == 0:
            pieces.append(num_pieces())
    most = max(pieces[1:])
    assert most < pieces[0] + 500, pieces
    assert float(compute(np.zeros((1, 3), np.float32))[0]) == 0


def problem(size):
    rng = np.random.default_rng(size)
    A = rng.standard_normal((size + 10, size)).astype(np.float32)
    return jaxht.LeastSquares(A, A[:, 0] - A[:, 1], 0.1)


@pytest.mark.parametrize(
    "call",
    [
        lambda f: jaxht.solve(f, jaxht.Sparse(2), jaxht.OMP()).x,
        lambda f: jaxht.path(f, jaxht.Sparse(), jaxht.IHT(), ks=[1, 2]).x[-1],
        lambda f: jaxht.optimality(f, jaxht.Sparse(2), jnp.zeros(f.shape)).stationarity,
        lambda f: jaxht.branch_and_bound(f, jaxht.Sparse(2)).x,
    ],
    ids=["solve", "path", "optimality", "branch_and_bound"],
)
def test_what_the_library_compiles_is_counted(call, few):
    """Programs of many shapes are dropped, and those that come back are right."""
    with jaxht.disable_padding():
        first = call(problem(5))
        counts = []
        for size in range(6, 10):
            call(problem(size))
            counts.append(PROGRAMS.number)
        assert max(counts) <= few
        assert min(np.diff(counts)) < 0 < max(np.diff(counts))
        np.testing.assert_allclose(call(problem(5)), first, rtol=1e-5)


def test_programs_within_another_are_not_counted(few):
    inner = bounded_jit(lambda x: x + 1)
    outer = bounded_jit(lambda x: inner(x) * 2)
    before = PROGRAMS.number
    assert int(outer(np.int32(3))) == 8
    assert PROGRAMS.number == before + 1


def test_traces_of_sweeps_are_dropped(few):
    """Each sweep traces its trial anew; what it compiles stays."""

    def trial(key, cell):
        A = jax.random.normal(key, (20, 6))
        f = jaxht.LeastSquares(A, cell["scale"] * A[:, 0])
        return {"value": jaxht.solve(f, jaxht.Sparse(1), jaxht.IHT()).value}

    counts = []
    for _ in range(6):
        sweep.run(trial, {"scale": [1.0, 2.0]}, num_trials=2, workers=1)
        counts.append(TRACES.number)
    assert max(counts) <= few
    assert PROGRAMS.number == 0
