import gc
import os
from importlib.metadata import version

# As experiments/__init__.py, before JAX starts.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Programs compile in half of the time, those of the library as well, whose options no test can set.
# What must be compiled as users compile it says so, by `tests.util.as_users`. What the caller has
# set comes last, and wins.
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):  # which refuses the flags
    flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ["XLA_FLAGS"] = f"{flags} {os.environ.get('XLA_FLAGS', '')}"

import jax
import pytest

import jaxht
from tests.util import compiled_quickly, memory, precision, return_memory

MOST_MEMORY = 2**30  # bytes, for what tests compile; a test may take as much again
LEFT = pytest.StashKey[int]()  # bytes that the process occupied when programs were dropped last


def pytest_configure(config):
    """No process compiles what another has, in this run or before: programs are found by all that
    they depend on."""
    # An entry that is being written while it is read is none, but no reason to fail.
    config.addinivalue_line(
        "filterwarnings", "ignore:Error (reading|writing) persistent compilation:UserWarning"
    )
    jaxht.keep_programs()


def pytest_collection_finish(session):
    """Garbage is looked for less often, and not among the modules and the tests themselves, which
    stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)
    session.config.stash[LEFT] = memory()


def drop_programs(config):
    """And give back their memory, but for fragments of the heap."""
    jax.clear_caches()
    return_memory()
    config.stash[LEFT] = memory()


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Runs a test in either precision: NumPy's dtype, which is then also JAX's default float."""
    with precision(request.param) as dtype:
        yield dtype


@pytest.fixture(autouse=True, scope="module")
def no_programs_left(request):
    """What a module has compiled is dropped with it: a worker needs the memory of one module."""
    yield
    drop_programs(request.config)


@pytest.fixture(autouse=True)
def few_programs(request, no_programs_left):
    """And where a module compiles very much, what it has so far; small programs are read back from
    the disk."""
    yield
    if memory() > request.config.stash[LEFT] + MOST_MEMORY:
        drop_programs(request.config)


@pytest.fixture(scope="module")
def all_quickly():
    """For modules that compile much and run little: also what the library compiles is compiled
    quickly."""
    with compiled_quickly():
        yield
