import os
import tempfile

# As experiments/__init__.py: before JAX starts, since commands that tests call in their own process run several pools.
os.environ.setdefault("NPROC", str(4 * (os.cpu_count() or 1)))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import pytest

from tests.util import compiled_quickly, precision, return_memory

CACHE = "JAX_COMPILATION_CACHE_DIR"


def pytest_configure(config):
    """One folder for all that is compiled: no process compiles what another has, nor a test what one before it has."""
    # An entry that is being written while it is read is none, but no reason to fail.
    config.addinivalue_line("filterwarnings", "ignore:Error (reading|writing) persistent compilation:UserWarning")
    if hasattr(config, "workerinput") or CACHE in os.environ:
        return
    folder = tempfile.TemporaryDirectory(prefix="jaxht-compiled-", ignore_cleanup_errors=True)
    config.add_cleanup(folder.cleanup)
    settings = {CACHE: folder.name, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    os.environ.update(settings)  # for the workers, and the processes that tests start
    jax.config.update("jax_compilation_cache_dir", folder.name)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


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
