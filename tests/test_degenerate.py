"""Data of zeros: x = 0 is the minimiser, and every solver ends there with success, in its own lane
of a batch."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import Status, Stop
from tests.util import host, precision, quick

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D = 8, 6
SOLVERS = {
    "IHT": jaxht.IHT(),
    "IHT, momentum": jaxht.IHT(momentum=0.5, nesterov=True),
    "NIHT": jaxht.NIHT(),
    "CGIHT": jaxht.CGIHT(),
    "CGIHT, projected": jaxht.CGIHT(theta=3.0),
    "FIHT": jaxht.FIHT(),
    "ALPS": jaxht.ALPS(),
    "HTP": jaxht.HTP(),
    "HTP, backtracking": jaxht.HTP(backtrack=True),
    "PHT": jaxht.PHT(),
    "CoSaMP": jaxht.CoSaMP(),
    "GraSP": jaxht.GraSP(),
    "SubspacePursuit": jaxht.SubspacePursuit(),
    "OMP": jaxht.OMP(),
    "OLS": jaxht.OLS(),
    "OMPR": jaxht.OMPR(),
    "ELS": jaxht.ExhaustiveLocalSearch(),
    "FoBa": jaxht.FoBa(),
    "ARHT": jaxht.ARHT(num_cores=2),
    "SGHT": jaxht.SGHT(),
    "HTSVRG": jaxht.HTSVRG(inner_steps=8),
    "HTSAGA": jaxht.HTSAGA(),
    "HSGHT": jaxht.HSGHT(),
    "DIHT": jaxht.DIHT(),
    "SDIHT": jaxht.SDIHT(batch_size=2),
}
SPARSE, BOUNDED = jaxht.Sparse(2, k_max=2), jaxht.Sparse(2, k_max=2, bounds=(-0.5, 0.5))
GROUPS, LOW_RANK = jaxht.Groups(2, np.arange(D) % 3, k_max=2), jaxht.LowRank(2, 2)
ROWS, SIGNS = np.arange(1.0, N + 1), np.where(np.arange(N) % 3 == 0, 1.0, -1.0)
# Of an objective (a function of A, y and l2) and a constraint: targets, dtype and, by solver, what
# it cannot take.
PROBLEMS = {
    "least squares": (jaxht.LeastSquares, SPARSE, ROWS, "float32", list(SOLVERS)),
    "bounds": (
        jaxht.LeastSquares,
        BOUNDED,
        ROWS,
        "float64",
        ["IHT", "NIHT", "HTP", "CoSaMP", "OMP", "ELS", "FoBa", "HTSVRG", "DIHT"],
    ),
    "logistic": (
        jaxht.Logistic,
        GROUPS,
        SIGNS,
        "float32",
        ["IHT", "HTP", "PHT", "OMPR", "HSGHT", "SDIHT"],
    ),
    "Poisson": (
        jaxht.Poisson,
        SPARSE,
        ROWS,
        "float64",
        ["NIHT", "HTP", "SubspacePursuit", "HTSAGA"],
    ),
    "softmax": (
        functools.partial(jaxht.Softmax, num_classes=3),
        SPARSE,
        np.arange(N) % 3,
        "float32",
        ["IHT", "HTP", "OMP", "SGHT"],
    ),
    "rank": (
        jaxht.MultiResponse,
        LOW_RANK,
        np.outer(ROWS, [1, -1]),
        "float64",
        ["IHT", "NIHT", "HTP", "SGHT"],
    ),
}
SUCCESSES = [
    Status.CONVERGED,
    Status.SUPPORT_STABLE,
    Status.FINISHED,
    Status.NO_PROGRESS,
    Status.GAP_CLOSED,
]


@pytest.mark.parametrize(
    ("problem", "name"),
    [(problem, name) for problem, (*_, names) in PROBLEMS.items() for name in names],
)
def test_designs_of_zeros_end_at_zero(problem, name):
    """Without a ridge and with one, and with y = 0 where it may be; a lane of other data is solved
    beside them."""
    make, constraint, y, dtype, _ = PROBLEMS[problem]
    A = np.zeros((4, N, D))
    A[2:] = np.random.default_rng(0).normal(size=(N, D))
    y = np.stack([y, y, y, 0 * y if problem in ("least squares", "rank") else y])
    l2 = np.array([0.0, 0.5, 0.5, 0.5])
    if "DIHT" in name:  # no ridge, no dual
        l2[0] = 0.1
    data = [array.astype(dtype) for array in (A, y, l2)]
    with precision(dtype):

        @quick
        @jax.vmap
        def run(A, y, l2):
            stop = Stop(gap_rtol=1e-3, max_steps=200)
            return jaxht.solve(
                make(A, y, l2), constraint, SOLVERS[name], key=jax.random.key(0), stop=stop
            )

        result = host(run(*data))
    zeros = [0, 1, 3] if problem in ("least squares", "rank") else [0, 1]
    np.testing.assert_array_equal(result.x[zeros], 0)
    assert [
        Status(int(status)).name for status in result.status[zeros] if status not in SUCCESSES
    ] == []
    assert np.all(np.isfinite(result.x)) and np.any(result.x[2])
    assert result.status[2] not in (Status.DIVERGED, Status.INVALID_STEP_SIZE)


@pytest.mark.parametrize("name", ["HTP", "OMP", "NIHT", "IHT", "CoSaMP"])
def test_columns_of_zeros_stay_zero(name):
    """Under bounds, on a support that has to hold some of them."""
    A = np.random.default_rng(1).normal(size=(N, D)).astype(np.float32)
    A[:, 2:] = 0
    run = quick(
        lambda A: jaxht.solve(
            jaxht.LeastSquares(A, ROWS, mean=False),
            jaxht.Sparse(4, 4, bounds=(-1, 1)),
            SOLVERS[name],
        )
    )
    result = run(A)
    np.testing.assert_array_equal(result.x[2:], 0)
    assert result.succeeded and result.value < np.sum(ROWS**2) / 2


@pytest.mark.parametrize("name", ["IHT", "HTP", "NIHT"])
def test_squares_that_underflow_are_no_divergence(name):
    """Of 1e-25 float32 holds no square: the step size is then finite, and f does not rise; NIHT's
    own it cannot say."""
    A = 1e-25 * np.random.default_rng(2).normal(size=(N, D)).astype(np.float32)
    result = quick(
        lambda A: jaxht.solve(jaxht.LeastSquares(A, jnp.ones(N), mean=False), SPARSE, SOLVERS[name])
    )(A)
    assert result.status != Status.DIVERGED and (result.status == Status.INVALID_STEP_SIZE) == (
        name == "NIHT"
    )
    assert result.value <= N / 2 and np.all(np.isfinite(result.x))


@pytest.mark.parametrize("name", ["IHT", "NIHT"])
def test_squares_that_overflow_are_no_fixed_point(name):
    """Entries of x of 1e20, whose squares single precision does not hold: two infinite norms once
    passed for equal."""
    rng = np.random.default_rng(0)
    A = (1e-8 * rng.standard_normal((8, 6))).astype(np.float32)
    y = (1e20 * A @ [0, 3, 0, 0, -2, 0] + 1e11 * rng.standard_normal(8)).astype(np.float32)
    result = jaxht.solve(jaxht.LeastSquares(A, y, mean=False), jaxht.Sparse(2), SOLVERS[name])
    assert np.max(np.abs(result.x)) > 2e19
    on = A[:, np.flatnonzero(result.x)].astype(float)
    assert result.value <= 1.001 * np.linalg.lstsq(on, y.astype(float))[1][0] / 2


FROM_STARTS = ["IHT", "NIHT", "HTP", "HTP, backtracking", "CoSaMP", "SubspacePursuit", "OMP", "OLS"]


@pytest.mark.parametrize("name", FROM_STARTS)
def test_a_start_that_is_stationary_on_too_few_items(name):
    """The gradient is exactly 0 on the support of x0, which has fewer than k items."""
    with precision("float64"):
        f = jaxht.LeastSquares(np.eye(D), np.arange(float(D)), mean=False)
        x0 = np.array([0, 0, 0, 0, 0, 5.0])
        found = host(quick(jaxht.solve)(f, jaxht.Sparse(2, k_max=2), SOLVERS[name], x0=x0))
    np.testing.assert_allclose(found.x, [0, 0, 0, 0, 4, 5], atol=1e-6)
    assert Status(int(found.status)).name in (
        "CONVERGED",
        "FINISHED",
        "NO_PROGRESS",
        "SUPPORT_STABLE",
    )
