"""Functions of one's own are compiled with what they refer to when they are called."""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from tests.util import x64

pytestmark = pytest.mark.usefixtures("all_quickly")


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


SCALE = 1.0


def test_a_function_is_compiled_with_what_it_refers_to_now(monkeypatch):
    """Globals, also of functions that it calls, and variables around it, of numbers and arrays."""
    shift = np.zeros(4, np.float32)

    def scaled(x):
        return SCALE * x

    def fun(x):
        return jnp.sum((scaled(x) - 1 - shift) ** 2)

    f = jaxht.Custom(fun, like=4)
    samples = jaxht.FiniteSum(lambda x, a: fun(x) + a, jnp.zeros(3), like=4)

    def solutions():
        return [jaxht.solve(g, jaxht.Sparse(4), jaxht.HTP()).x[0] for g in (f, samples)]

    np.testing.assert_allclose(solutions(), 1, rtol=1e-4)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    np.testing.assert_allclose(solutions(), 0.5, rtol=1e-4)
    shift[0] = 1
    np.testing.assert_allclose(solutions(), 1, rtol=1e-4)


FACTORS = {"scale": 1.0, "shifts": [0.0, np.zeros(4, np.float32)]}


def test_defaults_containers_and_partial_arguments_are_referred_to(monkeypatch):
    """A function is compiled anew where one of them has changed."""
    target = np.float32([1, 3, 2, 0])

    def distance(x, y):
        return jnp.sum((SCALE * x - y) ** 2)

    def by_default(x, y=target, *, shift=FACTORS["shifts"]):
        return jnp.sum((x - y - shift[0] - shift[1]) ** 2)

    def by_container(x):
        return jnp.sum((FACTORS["scale"] * x - FACTORS["shifts"][1] - 1) ** 2)

    functions = {
        "partial": functools.partial(distance, y=target),
        "default": by_default,
        "container": by_container,
    }

    def first_of_each():
        return {
            name: float(jaxht.solve(jaxht.Custom(fun, like=4), jaxht.Sparse(4), jaxht.HTP()).x[1])
            for name, fun in functions.items()
        }

    assert first_of_each() == pytest.approx({"partial": 3, "default": 3, "container": 1}, rel=1e-4)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    monkeypatch.setitem(FACTORS, "scale", 4.0)
    target[1] = 6
    assert first_of_each() == pytest.approx(
        {"partial": 3, "default": 6, "container": 0.25}, rel=1e-4
    )
    FACTORS["shifts"][1][1] = 1
    assert first_of_each() == pytest.approx(
        {"partial": 3, "default": 7, "container": 0.5}, rel=1e-4
    )
    FACTORS["shifts"][1][1] = 0


def test_another_function_and_another_object_are_seen():
    """A helper that is defined again, alone or with some arguments given, a function of another
    module, a jitted function, a large array."""
    source = """
import functools, jax, jax.numpy as jnp, numpy as np
def residual(x): return x - 1.0
act = jnp.exp
square = jax.jit(lambda x: x**2)
large = np.ones(2**18)
def shift(x, by): return x - by
shifted = functools.partial(shift, by=1.0)
def helper(x): return jnp.sum(residual(x) ** 2)
def elsewhere(x): return jnp.sum((act(x) - 3.0) ** 2)
def jitted(x): return jnp.sum((square(x + 1) - 4.0) ** 2)
def partial(x): return jnp.sum(shifted(x) ** 2)
def array(x): return jnp.sum((x - large[:4]) ** 2)
"""
    names = {"__name__": "notebook"}
    exec(source, names)
    objectives = {
        name: jaxht.Custom(names[name], like=4)
        for name in ("helper", "partial", "elsewhere", "jitted", "array")
    }

    def first_of_each():
        result = {}
        for name, f in objectives.items():
            x = jaxht.solve(f, jaxht.Sparse(4), jaxht.HTP(backtrack=True)).x
            result[name] = float(x[0])
        return result

    expected = {"helper": 1, "partial": 1, "elsewhere": np.log(3), "jitted": 1, "array": 1}
    assert first_of_each() == pytest.approx(expected, rel=1e-4)
    again = """
def residual(x): return x - 5.0
act = jnp.sinh
square = jax.jit(lambda x: 4 * x)
large = np.full(2**18, 7.0)
def shift(x, by): return x + by
shifted = functools.partial(shift, by=1.0)
"""
    exec(again, names)
    expected = {"helper": 5, "partial": -1, "elsewhere": np.arcsinh(3), "jitted": 0, "array": 7}
    assert first_of_each() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_what_is_not_referred_to_compiles_nothing():
    """An attribute of the name of a global is none."""
    names = {"__name__": "notebook"}
    exec("import jax.numpy as jnp\ndef fun(x): return jnp.mean(x**2)\nmean = 0", names)
    before = jaxht.Custom(names["fun"], like=4).prepare()
    names["mean"] = np.ones(3)
    assert jaxht.Custom(names["fun"], like=4).prepare().fun == before.fun


def test_a_function_is_pickled_without_what_it_refers_to():
    f = jaxht.Custom(quadratic, like=4).prepare()
    loaded = pickle.loads(pickle.dumps(f))
    assert loaded.fun == f.fun


SQUARE = jax.jit(jnp.square)  # which is not pickled


def quadratic(x):
    return jnp.sum(SQUARE(x))


def body(x, _):
    return SCALE * x, None


jitted = jax.jit(lambda x: SCALE * x)
STALE_IN_JAX = {
    "scan": lambda x: jax.lax.scan(body, x, length=1)[0],
    "loop": lambda x: jax.lax.fori_loop(0, 1, lambda i, x: SCALE * x, x),
    "jit": lambda x: jitted(x),
}


@pytest.mark.skipif(not hasattr(jax, "make_user_context"), reason="JAX keeps what it has traced")
@pytest.mark.parametrize("name", STALE_IN_JAX)
def test_what_jax_has_traced_of_a_function_within_is_traced_anew(name, monkeypatch):
    scaled = STALE_IN_JAX[name]

    def solve():
        f = jaxht.Custom(lambda x: jnp.sum((scaled(x) - 1) ** 2), like=4)
        return jaxht.solve(f, jaxht.Sparse(4), jaxht.HTP()).x

    np.testing.assert_allclose(solve(), 1, rtol=1e-4)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    np.testing.assert_allclose(solve(), 0.5, rtol=1e-4)


def test_other_code_of_the_same_function_is_seen():
    """As a notebook's autoreload puts it there."""

    def fun(x):
        return jnp.sum((x - 1) ** 2)

    def solve():
        return jaxht.solve(jaxht.Custom(fun, like=4), jaxht.Sparse(4), jaxht.HTP()).x

    np.testing.assert_allclose(solve(), 1, rtol=1e-4)
    fun.__code__ = (lambda x: jnp.sum((x - 2) ** 2)).__code__
    np.testing.assert_allclose(solve(), 2, rtol=1e-4)


def test_a_record_is_taken_with_what_it_refers_to_now(monkeypatch):
    f = jaxht.LeastSquares(jnp.eye(4), jnp.ones(4))

    def record():
        scaled = jaxht.trace(f, jaxht.Sparse(2), jaxht.IHT(), num_steps=1, record=scaled_value)[1]
        return float(scaled[0])

    before = record()
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert record() == 2 * before


def scaled_value(carry):
    return SCALE * carry.iterate.value
