"""Functions of one's own are compiled with what they refer to when they are called."""

import functools

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
