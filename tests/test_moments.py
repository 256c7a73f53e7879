"""Least squares from moments is least squares of the samples, for all deterministic solvers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import LeastSquares, MomentLeastSquares, Moments, Sparse
from tests.util import quick, x64

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D, K = 40, 12, 4
RNG = np.random.default_rng(0)
A = RNG.normal(size=(N, D)) @ (np.eye(D) + 0.3 * RNG.normal(size=(D, D)))
Y = A[:, :K] @ np.arange(1.0, K + 1) + RNG.normal(size=N)
L2 = 0.1


@pytest.fixture(autouse=True)
def double():
    with x64():
        yield


def of_samples(mean=True, l2=L2):
    return LeastSquares(A, Y, l2, mean=mean)


def of_moments(mean=True, l2=L2):
    return MomentLeastSquares(A.T @ A, A.T @ Y, Y @ Y, N, l2, mean=mean)


SOLVERS = [
    jaxht.HTP(),
    jaxht.OMP(),
    jaxht.ExhaustiveLocalSearch(),
    jaxht.LocalSearch(num_starts=1),
]


def test_solvers_find_what_they_find_from_samples():
    """Step by step: as many steps, the same support, x and f."""

    def run(f):
        return [jaxht.solve(f, Sparse(K, k_max=K), solver) for solver in SOLVERS]

    expected, found = quick(lambda: (run(of_samples()), run(of_moments())))()
    for solver, one, other in zip(SOLVERS, expected, found, strict=True):
        name = type(solver).__name__
        assert (one.reason, int(one.num_steps)) == (other.reason, int(other.num_steps)), name
        np.testing.assert_array_equal(other.support.mask, one.support.mask)
        np.testing.assert_allclose(other.x, one.x, rtol=1e-6, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(other.value, one.value, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("mean", [True, False])
def test_function_and_subproblem_are_those_of_the_samples(mean):
    """Values, derivatives, the Hessian by rows, refits and the scores of moves."""
    space = Sparse(K, k_max=K).prepare((D,))
    l2 = np.linspace(0.1, 2.0, D)
    x = RNG.normal(size=D)
    selected = np.arange(D) % 3 == 0

    def everything(f, x):
        f = f.prepare()
        pred = f.predict(x)
        problem = jaxht.extend.subproblem(f, space)
        support = space.support(selected)
        fit = problem.refit(support, x)
        slots = jnp.where(selected, size=K)[0]
        H = f.hessian(x, pred)
        moves = problem.exchange_scores(slots, fit.x, fit.pred)
        return {
            "value": f.value(x, pred),
            "gradient": f.gradient(x, pred),
            "product": H(x),
            "form": H.quadratic_form(x, pred),
            "diagonal": H.diagonal(),
            "rows": H.rows(slots),
            "norm": f.majorant().coordinate_norm(),
            "refit": fit.x,
            "ridge": problem.refit(support, x, jnp.ones(D)).x,
            "forward": jnp.where(selected, 0, problem.forward_scores(jnp.asarray(selected), x)),
            "losses": moves.losses,
            "swaps": moves.swaps,
            "sensitivity": problem.differentiate(support, fit.x),
        }

    compute = quick(everything)
    expected = compute(of_samples(mean, l2), x)
    found = compute(of_moments(mean, l2), x)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-10, err_msg=name)


def test_outputs_share_a_gram_matrix():
    """Column by column under vmap, and all entries of a matrix together."""
    Y = np.stack([A[:, 0] - A[:, 5], A[:, 2] + 2 * A[:, 3]], axis=1) + RNG.normal(size=(N, 2))
    moments = Moments.zero(D, 2).add(A, Y)
    whole = moments.least_squares(L2).prepare()
    x = RNG.normal(size=(D, 2))
    together = jaxht.MultiResponse(A, Y, L2).prepare()
    for name in ("value", "gradient"):
        values = [getattr(f, name)(x, f.predict(x)) for f in (whole, together)]
        np.testing.assert_allclose(*values, rtol=1e-10)
    diagonal = together.majorant().diagonal() * np.ones(2)
    np.testing.assert_allclose(whole.majorant().diagonal(), diagonal, rtol=1e-10)

    def column(b, s, y):
        f = MomentLeastSquares(moments.gram, b, s, N, L2)
        both = (f, LeastSquares(A, y, L2))
        return [jaxht.solve(f, Sparse(3, k_max=3), jaxht.HTP()).x for f in both]

    columns = quick(jax.vmap(column, in_axes=(1, 0, 1)))
    found, alone = columns(moments.products, moments.squares, Y)
    np.testing.assert_allclose(found, alone, rtol=1e-6, atol=1e-9)


def test_groups_and_bounds_are_taken():
    groups = jaxht.Groups(2, np.arange(D) // 3, num_groups=D // 3)
    for constraint in (groups, Sparse(K, nonnegative=True)):
        fits = [jaxht.solve(f, constraint, jaxht.HTP()).x for f in (of_samples(), of_moments())]
        np.testing.assert_allclose(*fits, rtol=1e-5, atol=1e-7)


def test_sums_over_batches_keep_what_additions_round_off():
    """In single precision, over many batches, also of weighted samples and in any division."""
    num_batches, size = 3000, 4
    batches = RNG.normal(1.0, 1.0, size=(num_batches, size, 2)).astype(np.float32)
    targets = batches[..., 0] + np.float32(0.5)
    weights = RNG.integers(0, 3, size=(num_batches, size)).astype(np.float32)
    exact_gram = np.einsum("bni,bn,bnj->ij", *map(np.float64, (batches, weights, batches)))

    def add(moments, batch):
        return moments.add(*batch), None

    @quick
    def accumulate(batches):
        zero = Moments.zero(2, dtype=np.float32)
        return jax.lax.scan(add, zero, batches)[0]

    moments = accumulate((batches, targets, weights))
    error = np.max(np.abs(np.float64(moments.corrected[0]) - exact_gram)) / exact_gram[0, 0]
    plain = np.max(np.abs(np.float64(moments.gram) - exact_gram)) / exact_gram[0, 0]
    assert error < 1e-7 < plain
    half = accumulate((batches[::2], targets[::2], weights[::2]))
    rest = accumulate((batches[1::2], targets[1::2], weights[1::2]))
    merged = half.merge(rest).corrected
    for one, other in zip(merged, moments.corrected, strict=True):
        np.testing.assert_allclose(one, other, rtol=3e-7)
    assert float(moments.corrected[3]) == weights.sum()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gram": A}, "gram must have shape"),
        ({"gram": -np.eye(D)}, "diagonal is not negative"),
        ({"gram": np.triu(np.ones((D, D)))}, "symmetric"),
        ({"products": Y}, "products must have shape"),
        ({"total_weight": 0}, "total_weight must be positive"),
        ({"l2": -1.0}, "l2"),
    ],
)
def test_what_are_no_moments_is_refused(change, message):
    f = dataclasses.replace(of_moments(), **change)
    with pytest.raises(ValueError, match=message):
        f.prepare()


def test_batches_of_other_shapes_are_refused():
    moments = Moments.zero(D)
    for A_, y, match in [(A[:, 1:], Y, "A must"), (A, A, "y must")]:
        with pytest.raises(ValueError, match=match):
            moments.add(A_, y)


def test_without_the_square_no_value_is_that_of_an_exact_fit():
    """The held-out losses are negative then, and choose the same k."""
    rng = np.random.default_rng(0)
    B = rng.normal(size=(40, 4))
    y = B @ np.array([3.0, 2.0, 1.0, 0.0]) + 0.1 * rng.normal(size=40)

    def chosen(has_square):
        def moments(rows):
            square = float(y[rows] @ y[rows]) if has_square else 0.0
            return MomentLeastSquares(B[rows].T @ B[rows], B[rows].T @ y[rows], square, 20.0)

        train, held_out = moments(slice(20)), moments(slice(20, 40))
        return jaxht.validate(train, held_out, Sparse(k_max=4), jaxht.OMP(), ks=np.arange(1, 5)).k

    assert int(chosen(has_square=True)) == int(chosen(has_square=False)) == 3


def test_divergence_does_not_depend_on_the_constant():
    """Without it f is 0 at the start, and positive after a step that a later one makes up for."""
    rng = np.random.default_rng(198)
    A = rng.normal(size=(40, 12)) + 4 * rng.normal(size=(40, 1))
    x = np.zeros(12)
    S = rng.choice(12, 3, replace=False)
    x[S] = rng.normal(size=3)
    y = A @ x + 0.3 * rng.normal(size=40)
    values = []
    for square in y @ y, 0.0:
        f = MomentLeastSquares(A.T @ A, A.T @ y, square, 40)
        values.append(jaxht.solve(f, Sparse(3, k_max=3), jaxht.CoSaMP()))
    want, found = values
    assert want.value < 0.5 * np.vdot(y, y) / 40
    assert found.reason == want.reason == "SUPPORT_STABLE"
    np.testing.assert_allclose(found.x, want.x, atol=1e-9)
