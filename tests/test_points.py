"""Every public function that takes a point of the variable refuses what is none, by name."""

import inspect

import jax
import numpy as np
import pytest

import jaxht
from jaxht import Sparse, baselines, criteria, inference, spectral

pytestmark = pytest.mark.usefixtures("all_quickly")

D = 8
A = np.random.default_rng(0).normal(size=(20, D)).astype(np.float32)
F = jaxht.LeastSquares(A, A[:, 1] - A[:, 4], 0.1)
FOUND = jaxht.solve(F, Sparse(2), jaxht.HTP())

# Of a point, and how the point is called.
FUNCTIONS = {
    "jaxht.solve": ("x0", lambda x: jaxht.solve(F, Sparse(2), jaxht.HTP(), x0=x).x),
    "jaxht.branch_and_bound": ("x0", lambda x: jaxht.branch_and_bound(F, Sparse(2), x0=x).x),
    "jaxht.certify": ("x", lambda x: jaxht.certify(F, Sparse(2), x)),
    "jaxht.differentiability": ("x", lambda x: jaxht.differentiability(F, Sparse(2), x)),
    "jaxht.optimality": ("x", lambda x: jaxht.optimality(F, Sparse(2), x)),
    "jaxht.baselines.debias": ("x", lambda x: baselines.debias(F, x)),
    "jaxht.criteria.aic": ("x", lambda x: criteria.aic(F, x)),
    "jaxht.criteria.bic": ("x", lambda x: criteria.bic(F, x)),
    "jaxht.criteria.deviance": ("x", lambda x: criteria.deviance(F, x)),
    "jaxht.criteria.ebic": ("x", lambda x: criteria.ebic(F, x)),
    "jaxht.criteria.gic": ("x", lambda x: criteria.gic(F, x)),
    "jaxht.inference.standard_errors": (
        "x",
        lambda x: inference.standard_errors(F, FOUND.support, x),
    ),
    "jaxht.spectral.restricted_condition_number": (
        "x",
        lambda x: spectral.restricted_condition_number(F, 2, x),
    ),
}
SHAPE = rf"must have shape \({D},\), that of the variable; got"
WRONG = {
    "a longer one": (np.zeros(D + 1, np.float32), SHAPE),
    "a column": (np.zeros((D, 1), np.float32), SHAPE),
    "complex": (np.zeros(D, np.complex64), r"must be real, like the variable; got complex64\[8\]"),
    "a text": ("zero", rf"must .*shape \({D},\)"),
    "ragged": ([[1.0], [1.0, 2.0]], "must be an array; got lists of different lengths"),
}


def test_no_function_is_left_out():
    modules = (jaxht, baselines, criteria, inference, spectral)
    found = {
        f"{module.__name__}.{name}"
        for module in modules
        for name in module.__all__
        if inspect.isfunction(getattr(module, name))
        and "objective" in (parameters := inspect.signature(getattr(module, name)).parameters)
        and {"x", "x0"} & set(parameters)
    }
    # These two pass x0 on to the preparation of solve; it is tested with theirs.
    assert found - {"jaxht.path", "jaxht.trace"} == set(FUNCTIONS)


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_no_point_is_refused(name, kind):
    argument, call = FUNCTIONS[name]
    value, words = WRONG[kind]
    with pytest.raises(ValueError, match=f"^{argument} {words}"):
        call(value)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_result_is_taken_as_a_start_only(name):
    argument, call = FUNCTIONS[name]
    if argument == "x0":
        np.testing.assert_allclose(call(FOUND), FOUND.x, rtol=1e-3, atol=1e-6)
        return
    with pytest.raises(
        ValueError, match=r"^x must be an array of .* such as result\.x; got Result"
    ):
        call(FOUND)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_lists_and_integers_are_points(name):
    _, call = FUNCTIONS[name]
    point = np.array([0, 1, 0, 0, -1, 0, 0, 0])
    expected = call(point.astype(np.float32))
    for same in (point, point.tolist()):
        jax.tree.map(np.testing.assert_array_equal, call(same), expected)
