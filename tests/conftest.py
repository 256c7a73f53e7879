import os

# As experiments/__init__.py, before JAX starts.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Programs compile in a third of the time, those of the library as well, whose options no test can set. What must be
# compiled as users compile it says so, by `tests.util.as_users`. What the caller has set comes last, and wins.
os.environ["XLA_FLAGS"] = (
    "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true "
    f"--xla_cpu_parallel_codegen_split_count=1 {os.environ.get('XLA_FLAGS', '')}"
)

import jax
import pytest

from experiments import compilation_cache
from tests.util import compiled_quickly, precision, return_memory


def pytest_configure(config):
    """No process compiles what another has, in this run or before: programs are found by all that they depend on."""
    # An entry that is being written while it is read is none, but no reason to fail.
    config.addinivalue_line("filterwarnings", "ignore:Error (reading|writing) persistent compilation:UserWarning")
    compilation_cache.enable()


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Runs a test in either precision: NumPy's dtype, which is then also JAX's default float."""
    with precision(request.param) as dtype:
        yield dtype


@pytest.fixture(autouse=True, scope="module")
def no_programs_left():
    """What a module has compiled is dropped with it: a worker needs the memory of one module."""
    yield
    jax.clear_caches()
    return_memory()


@pytest.fixture(scope="module")
def all_quickly():
    """For modules that compile much and run little: also what the library compiles is compiled quickly."""
    with compiled_quickly():
        yield
