"""The size of each solver's program against a table, so that its growth, and with it that of a
first call, is seen.

A compile takes 2 to 3 ms of a CPU for each operation that the compiler is given: over the table,
seconds and counts have a correlation of 0.95. The kernels of the compiled program follow the
seconds no better, and would take the compiles. JAX 0.7 counts up to 3 % more than JAX 0.10.

``python -m tests.test_programs`` prints a new table.
"""

import functools
import re

import jax
import numpy as np
import pytest

import jaxht
from jaxht import solvers
from jaxht.extend import Solver

n, d, k, l2 = 500, 1000, 25, 1e-3

SLACK = 0.15  # both ways: a table far above the truth would not see growth

OBJECTIVES = {"least squares": jaxht.LeastSquares, "logistic": jaxht.Logistic}

# Operations by solver, for each of OBJECTIVES.
TABLE = {
    "ALPS": (622, None),
    "ARHT": (2682, 4098),
    "CGIHT": (553, None),
    "CoSaMP": (970, 1295),
    "DIHT": (1284, 1871),
    "ExhaustiveLocalSearch": (1288, 3299),
    "ExhaustiveSearch": (798, 1166),
    "FIHT": (622, None),
    "FoBa": (808, 1152),
    "GraSP": (1301, 1876),
    "HSGHT": (1062, 1144),
    "HTP": (844, 1171),
    "HTSAGA": (813, 895),
    "HTSVRG": (1029, 1116),
    "IHT": (377, 441),
    "LocalSearch": (2398, 3952),
    "NIHT": (553, 650),
    "OLS": (516, 2524),
    "OMP": (471, 871),
    "OMPR": (930, 1641),
    "PHT": (1282, 1609),
    "SDIHT": (1636, 2237),
    "SGHT": (629, 698),
    "SVRGHT": (811, 898),
    "SubspacePursuit": (1329, 1920),
}

FUNCTION = re.compile(r"\s*func\.func .*?@([\w.]+)\(")
CALL = re.compile(r"(?<!_)call @([\w.]+)\(")
OPERATION = re.compile(r'\s*(?:%\S+ = )?"?(?:stablehlo|chlo)\.(?!return|constant)')


def count_operations(text):
    """The operations of a program in StableHLO, but for constants; a call counts as what it calls.

    XLA copies a function to where it is called.
    """
    own, calls = {}, {}
    for line in text.splitlines():
        if function := FUNCTION.match(line):
            name = function[1]
            own[name], calls[name] = 0, []
        elif call := CALL.search(line):
            calls[name].append(call[1])
        elif OPERATION.match(line):
            own[name] += 1

    @functools.cache
    def total(name):
        return own[name] + sum(total(called) for called in calls[name])

    return total("main")


def solver_names():
    """Every solver there is."""
    return sorted(
        name for name, kind in vars(solvers).items() if Solver in getattr(kind, "__mro__", ())[1:]
    )


def count_program(loss, name):
    """The operations of a solver's program with all its defaults; None where it does not take the
    loss."""
    rng = np.random.default_rng(0)
    A, y = (
        rng.standard_normal((n, d)).astype(np.float32),
        np.where(np.arange(n) % 2, 1, -1).astype(np.float32),
    )

    def run(objective, key):
        return jaxht.solve(objective, jaxht.Sparse(k), getattr(solvers, name)(), key=key)

    try:
        return count_operations(
            jax.jit(run).lower(OBJECTIVES[loss](A, y, l2), jax.random.key(0)).as_text()
        )
    except ValueError as error:
        assert "must be LeastSquares" in str(error)
        return None


def test_every_solver_is_in_the_table():
    assert sorted(TABLE) == solver_names()


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("loss", OBJECTIVES)
def test_programs_keep_their_size(loss, name):
    expected = TABLE[name][list(OBJECTIVES).index(loss)]
    found = count_program(loss, name)
    if expected is None:
        assert found is None
        return
    change = found / expected - 1
    assert abs(change) <= SLACK, (
        f"{name} on {loss} {'grew' if change > 0 else 'shrank'} from {expected} to {found} operations ({change:+.0%}). "
        "If that is meant, renew the table: `python -m tests.test_programs` prints it."
    )


TWICE = """
module @jit_f {
  func.func public @main(%arg0: tensor<3xf32>) -> (tensor<3xf32>) {
    %cst = stablehlo.constant dense<1.0> : tensor<f32>
    %0:2 = stablehlo.while(%iterArg = %arg0, %iterArg_0 = %cst) : tensor<3xf32>, tensor<f32>
     cond {
      %1 = func.call @inner(%iterArg) : (tensor<3xf32>) -> tensor<3xf32>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = "stablehlo.gather"(%iterArg) : (tensor<3xf32>) -> tensor<3xf32>
      stablehlo.return %1 : tensor<3xf32>
    }
    %2 = call @inner(%0#0) : (tensor<3xf32>) -> tensor<3xf32>
    %3:2 = stablehlo.custom_call @f(%2) : (tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
    return %3#0 : tensor<3xf32>
  }
  func.func private @inner(%arg0: tensor<3xf32>) -> tensor<3xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<3xf32>
    %1 = chlo.erf %0 : tensor<3xf32> -> tensor<3xf32>
    return %1 : tensor<3xf32>
  }
}
"""


def test_count():
    """A while, a gather, a custom call, and twice the two of the function."""
    assert count_operations(TWICE) == 7


if __name__ == "__main__":
    print("TABLE = {")
    for name in solver_names():
        print(
            f'    "{name}": ({", ".join(str(count_program(loss, name)) for loss in OBJECTIVES)}),'
        )
    print("}")
