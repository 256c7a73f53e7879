import pytest

from tests.util import precision


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Runs a test in either precision: NumPy's dtype, which is then also JAX's default float."""
    with precision(request.param) as dtype:
        yield dtype
