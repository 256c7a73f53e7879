"""What solvers hold in memory beside A: the table on the page of questions."""

import pathlib
import re

import jax
import jax.numpy as jnp
import pytest

import jaxht
from tests.util import as_users

PAGE = (pathlib.Path(__file__).parents[1] / "docs" / "faq.md").read_text(encoding="utf-8")
# The first solver of each row, and the formula.
ROWS = re.findall(r"^\| `(\w+)`[^|]*\| `([\d ndk^+]+)` \|", PAGE, re.MULTILINE)
SIZES = [(200, 1000, 16), (2000, 500, 32)]


def numbers(formula, **sizes):
    """The value of a formula: `2 n k + k^2` is a sum of products."""
    total = 0
    for term in formula.split(" + "):
        product = 1
        for factor in term.split():
            base, _, power = factor.partition("^")
            product *= int(sizes.get(base, base)) ** int(power or 1)
        total += product
    return total


def held(solver, n, d, k):
    """The numbers in single precision that the compiled program has beside its arguments and
    results."""

    def solve(A, y):
        return jaxht.solve(jaxht.LeastSquares(A, y, l2=1e-3, mean=False), jaxht.Sparse(k), solver).x

    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((n, d), (n,))]
    return as_users(solve).lower(*arrays).compile().memory_analysis().temp_size_in_bytes / 4


def test_formulas_are_read():
    assert numbers("3 n + 27 k^2 + n k", n=10, k=2) == 30 + 108 + 20
    assert len(ROWS) == 9


@pytest.mark.skipif(jax.__version_info__ < (0, 10), reason="there some programs copy A")
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("name", "formula"), ROWS, ids=[name for name, _ in ROWS])
def test_memory_beside_the_design(name, formula, sizes):
    n, d, k = sizes
    ratio = held(getattr(jaxht, name)(), n, d, k) / numbers(formula, n=n, d=d, k=k)
    assert 1 / 1.5 < ratio < 1.5
