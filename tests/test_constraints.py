"""Constraints: projections against all supports there are, and solvers against the best of them."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import lsq_linear

import jaxht
from jaxht import Groups, Sparse
from tests.util import host, precision, quick, solve, x64

pytestmark = pytest.mark.usefixtures("all_quickly")
INF = np.inf


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


@quick
def projected(constraints, z):
    """For every lane, the point, its support, and the region that the point alone gives."""

    def lane(constraint, z):
        constraint = constraint.prepare(z.shape)
        x, support = constraint.project(z)
        return x, support.mask, constraint.support_of(x).mask

    return jax.vmap(lane)(constraints, z)


def full_of_ties(rng, *shape):
    """Powers of 2 and zeros, of which squares are added without rounding."""
    return rng.choice([0, 1, -1, 2, -2, 4], size=shape).astype(float)


# ---- entries -------------------------------------------------------------------------------------


def best_support(z, k, lower, upper, keep):
    """(squared distance, k coordinates), of equal distances the lowest coordinates."""
    kept = np.flatnonzero(keep)[:k]
    cost = np.where(np.zeros(z.size, bool), 0.0, z**2)
    gain = cost - (z - np.clip(z, lower, upper)) ** 2
    supports = [F for F in itertools.combinations(range(z.size), k) if set(kept) <= set(F)]
    return min((np.sum(cost) - np.sum(gain[list(F)]), F) for F in supports)


SPARSE = [
    # shape, lower, upper, whether bounds are given
    ((6,), -INF, INF, False),
    ((6,), 0.0, INF, True),
    ((6,), -0.5, 2.0, True),
    ((2, 3), -1.0, 1.0, True),
    ((3, 2), -INF, INF, False),
]


@pytest.mark.parametrize("keeps", [False, True], ids=["", "keep"])
@pytest.mark.parametrize(("shape", "lower", "upper", "given"), SPARSE)
def test_projection_is_the_best_of_all_supports(shape, lower, upper, given, keeps):
    rng = np.random.default_rng(0)
    d = int(np.prod(shape))
    k = np.repeat(np.arange(d + 1), 12).astype(
        np.int32
    )  # traced: of more that are kept, the first k
    Z = np.where(
        np.arange(len(k))[:, None] % 2,
        full_of_ties(rng, len(k), d),
        rng.normal(size=(len(k), d)) * 2,
    )
    keep = rng.random((len(k), d)) < 0.3
    lowers, uppers = (np.full((len(k), *shape), bound) for bound in (lower, upper))
    lanes = (len(k), *shape)
    constraint = Sparse(
        k, k_max=d, keep=keep.reshape(lanes) if keeps else None, bounds=(lowers, uppers)
    )
    if not given:
        constraint = Sparse(k, k_max=d, keep=constraint.keep)
    x, mask, region = (
        leaf.reshape(len(k), d) for leaf in host(projected(constraint, Z.reshape(lanes)))
    )
    for i, z in enumerate(Z):
        distance, F = best_support(z, k[i], lower, upper, keep[i] if keeps else np.zeros(d, bool))
        assert np.count_nonzero(mask[i]) == k[i] and not np.any(x[i][~mask[i]])
        np.testing.assert_array_equal(x[i][mask[i]], np.clip(z, lower, upper)[mask[i]])
        np.testing.assert_allclose(np.sum((x[i] - z) ** 2), distance, rtol=1e-12, atol=1e-12)
        if not given or np.isinf(upper):  # without roots ties are exact
            assert np.flatnonzero(mask[i]).tolist() == list(F)
        always = np.isin(np.arange(d), np.flatnonzero(keep[i])[: k[i]]) if keeps else False
        np.testing.assert_array_equal(region[i], (x[i] != 0) | always)


def test_nonnegative_is_a_lower_bound_of_0():
    rng = np.random.default_rng(1)
    z = rng.normal(size=7)
    for bounds, pair in ((None, (0.0, INF)), ((-1.0, 0.5), (0.0, 0.5)), ((None, 0.5), (0.0, 0.5))):
        x, _ = Sparse(3, nonnegative=True, bounds=bounds).prepare(z.shape).project(z)
        np.testing.assert_array_equal(x, Sparse(3, bounds=pair).prepare(z.shape).project(z)[0])
        assert np.min(x) == 0
    x, _ = Sparse(3, bounds=(-1.0, None)).prepare(z.shape).project(z)
    np.testing.assert_array_equal(x, Sparse(3, bounds=(-1.0, INF)).prepare(z.shape).project(z)[0])


def test_the_top_k_of_the_gradient_are_feasible_directions():
    direction = jnp.array([-5.0, 4.0, -3.0, 2.0, 1.0])
    constraint = Sparse(
        2, bounds=(np.array([0.0, -1, -1, -1, -1]), np.array([1.0, 0, 1, 1, 1]))
    ).prepare((5,))
    assert np.flatnonzero(constraint.top_k(direction, 2, 2).mask).tolist() == [2, 3]


# ---- groups --------------------------------------------------------------------------------------


def best_groups(z, k, groups, keep):
    """Members of the k groups of which the distance is least, of equal ones the lowest."""
    m = groups.max() + 1
    kept = sorted({groups[i] for i in np.ndindex(z.shape) if keep[i]})[:k]
    chosen = [G for G in itertools.combinations(range(m), min(k, m)) if set(kept) <= set(G)]
    return np.isin(groups, min((np.sum(z[~np.isin(groups, G)] ** 2), G) for G in chosen)[1])


GROUPS = {
    "equal": np.array([0, 0, 1, 1, 2, 2, 3, 3]),
    "ragged": np.array([0, 1, 1, 2, 2, 2, 2, 3]),
    "interleaved": np.array([2, 0, 1, 2, 1, 0, 3, 2]),
    "rows": np.broadcast_to(np.arange(4)[:, None], (4, 2)),
}


@pytest.mark.parametrize("name", GROUPS)
def test_projection_is_the_best_of_all_groups(name):
    groups, rng = GROUPS[name], np.random.default_rng(2)
    k = np.tile(np.arange(5), 10).astype(np.int32)
    Z = np.where(
        rng.random((50, *np.ones_like(groups.shape))) < 0.5, full_of_ties(rng, 50, *groups.shape), 0
    )
    Z = np.where(Z == 0, Z, Z * rng.choice([1.0, 0.5], size=Z.shape))
    keep = np.zeros((50, *groups.shape), bool)
    keep.reshape(50, -1)[np.arange(50), rng.integers(0, 8, 50)] = np.arange(50) % 3 == 0
    m, lanes = 4, np.broadcast_to(groups, (50, *groups.shape))
    x, mask, region = host(projected(Groups(k, lanes, k_max=m, keep=keep, num_groups=m), Z))
    for i, z in enumerate(Z):
        members = best_groups(z, k[i], groups, keep[i])
        np.testing.assert_array_equal(mask[i], members)
        np.testing.assert_array_equal(x[i], np.where(members, z, 0))
        touched = set(groups[(x[i] != 0) | (keep[i] & (k[i] > 0))])
        np.testing.assert_array_equal(region[i], np.isin(groups, list(touched)))


BOXED_GROUPS = {
    "nonnegative": (0.0, INF),
    "box": (-0.5, 2.0),
    "one side": (-1.0, 0.0),
}


@pytest.mark.parametrize("keeps", [False, True], ids=["", "keep"])
@pytest.mark.parametrize("box", BOXED_GROUPS)
@pytest.mark.parametrize("name", ["ragged", "rows"])
def test_projection_within_bounds_is_the_best_of_all_groups(name, box, keeps):
    groups, rng = GROUPS[name], np.random.default_rng(3)
    lower, upper = (np.full(groups.shape, bound) for bound in BOXED_GROUPS[box])
    upper.flat[0] = 0.25 if box == "nonnegative" else upper.flat[0]
    num_lanes = 40
    k = (np.arange(num_lanes) % 5).astype(np.int32)
    Z = 2 * rng.normal(size=(num_lanes, *groups.shape))
    keep = np.zeros(Z.shape, bool)
    if keeps:
        keep.reshape(num_lanes, -1)[np.arange(num_lanes), rng.integers(0, 8, num_lanes)] = k > 0
    lanes, lowers, uppers = (np.broadcast_to(v, Z.shape) for v in (groups, lower, upper))
    constraint = Groups(k, lanes, k_max=4, keep=keep, num_groups=4, bounds=(lowers, uppers))
    x, mask, _ = host(projected(constraint, Z))
    for i, z in enumerate(Z):
        kept = set(groups[keep[i]])
        found = []
        for chosen in itertools.combinations(range(4), k[i]):
            point = np.where(np.isin(groups, chosen), np.clip(z, lower, upper), 0)
            if kept <= set(chosen):
                found.append((np.sum((z - point) ** 2), chosen, point))
        distance, chosen, point = min(found, key=lambda each: each[0])
        np.testing.assert_allclose(np.sum((x[i] - z) ** 2), distance, rtol=1e-12)
        np.testing.assert_array_equal(x[i][mask[i]], np.clip(z, lower, upper)[mask[i]])
        assert np.count_nonzero(np.bincount(groups[mask[i]], minlength=4)) == k[i]


def test_bounds_on_the_coordinates_of_groups():
    groups = GROUPS["ragged"]
    constraint = Groups(2, groups).prepare(groups.shape)
    assert (constraint.num_groups, constraint.k_max, constraint.size_max) == (4, 2, 6)
    _, support = constraint.project(jnp.arange(8.0))
    assert support.indices.tolist() == [3, 4, 5, 6, 7, 8]
    largest = constraint.top_k(jnp.array([0, 2.0, 2, 1.5, 1.5, 1.5, 1.5, 2.5]), 2, 2)
    assert np.flatnonzero(largest.mask).tolist() == [1, 2, 3, 4, 5, 6]
    assert largest.k_max >= 6


# ---- what is refused -----------------------------------------------------------------------------

KEEP = np.array([True, True, False, False])
REFUSED = [
    (Sparse(5), "k must lie between 0 and d = 4; got 5"),
    (Sparse(2, k_max=5), "k_max must be a Python int between 0 and d = 4"),
    (Sparse(1, keep=KEEP), "keep must mark at most k = 1 coordinates; got 2"),
    (
        Sparse(1, keep=KEEP[:3]),
        r"keep must be a boolean mask of shape \(4,\); got dtype bool and shape \(3,\)",
    ),
    (Sparse(2, keep=KEEP.astype(int)), "keep must be a boolean mask"),
    (Sparse(2, bounds=1.0), r"bounds must be a pair \(lower, upper\); got 1.0"),
    (Sparse(2, bounds=(0.1, 1.0)), "bounds: lower must not be above 0"),
    (Sparse(2, bounds=(-1.0, np.array([1, 1, 1, -0.1]))), "bounds: upper must not be below 0"),
    (Sparse(2, bounds=(None, np.nan)), "bounds: upper must not be NaN"),
    (
        Sparse(2, bounds=(np.zeros(3), 1.0)),
        r"bounds: lower must be a number or of shape \(4,\); got shape \(3,\)",
    ),
    (Groups(2, np.zeros(3, int)), r"groups must be integers of shape \(4,\)"),
    (Groups(2, np.zeros(4)), "groups must be integers .* got dtype float64"),
    (Groups(2, np.array([0, 1, -1, 0])), "groups must be numbered from 0; got -1"),
    (Groups(2, np.array([0, 1, 2, 0]), num_groups=2), "groups must be below num_groups = 2; got 2"),
    (Groups(4, np.array([0, 1, 2, 0])), "k must lie between 0 and the number of groups = 3; got 4"),
    (Groups(2.0, np.array([0, 1, 2, 0])), "k must be an integer"),
    (Groups(1, np.array([0, 1, 1, 0]), bounds=(1.0, None)), "bounds: lower must not be above 0"),
]


@pytest.mark.parametrize(("constraint", "message"), REFUSED)
def test_what_cannot_be_is_refused(constraint, message):
    with pytest.raises(ValueError, match=message):
        jaxht.solve(jaxht.LeastSquares(np.eye(4), np.ones(4), mean=False), constraint, jaxht.IHT())


def test_traced_groups_need_their_number():
    with pytest.raises(ValueError, match="num_groups must be given"):
        jax.eval_shape(lambda groups: Groups(1, groups).prepare((4,)), np.zeros(4, int))


# ---- solvers -------------------------------------------------------------------------------------


def design(seed, n=30, d=8):
    return np.random.default_rng(seed).normal(size=(n, d)) / np.sqrt(n)


BOXES = (
    np.array([[0.0] * 8, [-0.5] * 8]),
    np.array([[INF] * 8, [1.0] * 8]),
)  # not negative, and a box
BOXED = [jaxht.IHT(), jaxht.NIHT(), jaxht.HTP(), jaxht.GraSP()]


@functools.cache
def best_in_boxes():
    """A, y, and the best point within either pair of bounds, over all supports of 3."""
    A, points = design(3, n=300), []
    y = A @ np.array([0, 1.5, 0.4, -0.8, 0, 0.6, 0, 0]) + 0.02 * np.random.default_rng(4).normal(
        size=300
    )
    for lower, upper in zip(*BOXES, strict=True):
        found = []
        for F in itertools.combinations(range(8), 3):
            x, F = np.zeros(8), list(F)
            x[F] = lsq_linear(A[:, F], y, (lower[F], upper[F]), method="bvls", tol=1e-15).x
            found.append((np.sum((A @ x - y) ** 2) / 2, x))
        points.append(min(found, key=lambda pair: pair[0]))
    return A, y, points


@pytest.mark.parametrize("solver", BOXED, ids=lambda solver: type(solver).__name__)
def test_solvers_within_bounds_find_the_best_support(solver):
    A, y, points = best_in_boxes()

    @quick
    @functools.partial(jax.vmap, in_axes=(0, None, None, None))
    def run(bounds, A, y, solver):
        return jaxht.solve(jaxht.LeastSquares(A, y, mean=False), Sparse(3, bounds=bounds), solver)

    result = run(BOXES, A, y, solver)
    for i, (value, x) in enumerate(points):
        np.testing.assert_allclose(result.value[i], value, rtol=1e-7)
        np.testing.assert_allclose(result.x[i], x, rtol=0, atol=1e-6)
        assert np.all(result.x[i] >= BOXES[0][i]) and np.all(result.x[i] <= BOXES[1][i])
        assert result.succeeded[i]
    assert np.max(result.x[1]) == 1.0


@functools.cache
def best_rows_in_boxes():
    """A, Y and bounds, and the least f over all pairs of rows, with its point."""
    A, rng = design(8, n=60, d=6), np.random.default_rng(9)
    X = np.zeros((6, 3))
    X[[1, 4]] = [[1.5, 0.6, -0.7], [0.4, -0.9, 1.2]]
    Y = A @ X + 0.02 * rng.normal(size=(60, 3))
    lower = np.where(np.arange(6)[:, None] < 3, 0.0, -0.5) * np.ones(3)
    upper = np.full((6, 3), 1.0)
    found = []
    for rows in itertools.combinations(range(6), 2):
        rows = list(rows)
        point = np.zeros((6, 3))
        for j in range(3):
            box = (lower[rows, j], upper[rows, j])
            point[rows, j] = lsq_linear(A[:, rows], Y[:, j], box, method="bvls", tol=1e-15).x
        found.append((np.sum((A @ point - Y) ** 2) / 2, point))
    return A, Y, lower, upper, min(found, key=lambda pair: pair[0])


ROW_SOLVERS = [
    None,
    jaxht.IHT(),
    jaxht.NIHT(),
    jaxht.HTP(),
    jaxht.GraSP(),
    jaxht.OMP(),
    jaxht.OMPR(),
    jaxht.FoBa(),
    jaxht.LocalSearch(num_starts=2),
]


@pytest.mark.parametrize("solver", ROW_SOLVERS, ids=lambda solver: type(solver).__name__)
def test_rows_within_bounds_are_the_best_of_all(solver):
    A, Y, lower, upper, (value, point) = best_rows_in_boxes()
    rows = np.broadcast_to(np.arange(6)[:, None], (6, 3))
    sizes = {"k_max": 2, "num_groups": 6, "size_max": 6}
    constraint = Groups(2, rows, bounds=(lower, upper), **sizes)
    run = jaxht.solve if solver is None else solve
    result = run(jaxht.MultiResponse(A, Y, mean=False), constraint, solver)
    np.testing.assert_allclose(result.value, value, rtol=1e-7)
    np.testing.assert_allclose(result.x, point, rtol=0, atol=1e-6)
    assert np.all(result.x >= lower) and np.all(result.x <= upper)
    assert np.any(result.x == 0.0, where=point != 0) or np.any(result.x == upper)


def test_derivatives_of_rows_hold_what_is_at_a_bound():
    A, Y, lower, upper, (_, point) = best_rows_in_boxes()
    rows = np.broadcast_to(np.arange(6)[:, None], (6, 3))

    def first(Y, upper):
        constraint = Groups(2, rows, k_max=2, num_groups=6, size_max=6, bounds=(lower, upper))
        return jaxht.solve(jaxht.MultiResponse(A, Y, mean=False), constraint, jaxht.HTP()).x

    direction = np.random.default_rng(1).normal(size=Y.shape)
    _, moved = jax.jvp(first, (Y, upper), (direction, np.zeros_like(upper)))
    _, raised = jax.jvp(first, (Y, upper), (np.zeros_like(Y), np.ones_like(upper)))
    at_upper = point == 1.0
    assert np.any(at_upper) and not np.any(moved[at_upper])
    np.testing.assert_allclose(raised[at_upper], 1.0)
    size = 1e-6
    moved_by = (first(Y + size * direction, upper) - first(Y - size * direction, upper)) / (
        2 * size
    )
    np.testing.assert_allclose(moved, moved_by, rtol=0, atol=1e-5)


@pytest.mark.parametrize("bounds", [(0.0, None), (-0.3, 0.4)], ids=["nonnegative", "box"])
def test_bounds_of_optima_hold_for_bounded_groups(bounds):
    groups = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    A, rng = design(12, n=40), np.random.default_rng(13)
    y = A @ np.array([1.0, -0.5, 0, 0, 0.4, 0.8, -0.3, 0.2]) + 0.1 * rng.normal(size=40)
    f = jaxht.LeastSquares(A, y, 0.05, mean=False)
    constraint = Groups(2, groups, bounds=bounds)
    lower, upper = (
        -INF if bounds[0] is None else bounds[0],
        INF if bounds[1] is None else bounds[1],
    )
    values = []
    for chosen in itertools.combinations(range(4), 2):
        F = np.isin(groups, chosen)
        B = np.vstack([A[:, F], np.sqrt(0.05) * np.eye(F.sum())])
        w = lsq_linear(B, np.append(y, np.zeros(F.sum())), (lower, upper), method="bvls").x
        values.append(np.sum((A[:, F] @ w - y) ** 2) / 2 + 0.05 / 2 * w @ w)
    optimum = min(values)
    found = jaxht.branch_and_bound(f, constraint)
    assert found.status.name == "OPTIMAL"
    np.testing.assert_allclose(found.value, optimum, rtol=1e-7)
    assert found.lower <= optimum * (1 + 1e-12)
    x = jaxht.solve(f, constraint, jaxht.IHT()).x
    proof = jaxht.certify(f, constraint, x)
    assert proof.lower <= optimum * (1 + 1e-12) <= proof.value * (1 + 1e-9)
    dual = jaxht.certify(f, constraint, x, solver=jaxht.DIHT())
    assert dual.lower <= optimum * (1 + 1e-12)


@pytest.mark.parametrize(
    "solver", [jaxht.HTP(), jaxht.CoSaMP()], ids=lambda solver: type(solver).__name__
)
def test_groups_are_recovered(solver):
    groups, A = np.array([0, 1, 2, 0, 3, 1, 3, 3, 4, 4]), design(5, 30, 10)
    x = np.where(np.isin(groups, [1, 3]), np.array([1, 2, 1, -1, -2, 0.1, 3, 0.1, 1, 1]), 0)
    result = solve(
        jaxht.LeastSquares(A, A @ x, mean=False),
        Groups(2, groups, num_groups=5, k_max=2, size_max=5),
        solver,
    )
    np.testing.assert_allclose(result.x, x, rtol=0, atol=1e-10)
    assert result.support.indices.tolist() == [1, 4, 5, 6, 7]


def test_rows_of_a_matrix_are_recovered():
    A, X = design(6), np.zeros((8, 3))
    X[[2, 5]] = [[1, -2, 0.1], [0, 3, 1]]
    rows = np.broadcast_to(np.arange(8)[:, None], (8, 3))
    constraint = Groups(2, rows, num_groups=8, k_max=2, size_max=6)
    result = solve(jaxht.MultiResponse(A, A @ X, mean=False), constraint, jaxht.HTP())
    np.testing.assert_allclose(result.x, X, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(result.support.mask, np.isin(rows, [2, 5]))


def test_an_intercept_is_kept_and_not_penalised():
    """It is small: nothing else would put it among the k largest; and with l2 = 0 the residuals sum
    to 0."""
    A = np.concatenate([design(7), np.full((30, 1), 0.2)], axis=1)
    y = A[:, :8] @ np.array([0, 4.0, 0, 0, -3, 0, 0, 0]) + 0.02
    keep, l2 = np.arange(9) == 8, np.append(np.full(8, 0.01), 0.0)
    result = solve(
        jaxht.LeastSquares(A, y, l2, mean=False),
        Sparse(np.int32(3), k_max=3, keep=keep),
        jaxht.HTP(),
    )
    values = []
    for F in itertools.combinations(range(8), 2):
        F = [*F, 8]
        w = np.linalg.solve(A[:, F].T @ A[:, F] + np.diag(l2[F]), A[:, F].T @ y)
        values.append((np.sum((A[:, F] @ w - y) ** 2) / 2 + l2[F] @ w**2 / 2, F, w))
    value, F, w = min(values, key=lambda item: item[0])
    assert result.support.indices.tolist() == F
    np.testing.assert_allclose(result.x[np.array(F)], w, rtol=0, atol=1e-9)
    np.testing.assert_allclose(result.value, value, rtol=1e-10)
    assert abs(np.sum(A @ result.x - y)) < 1e-10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_projections_of_the_largest_numbers(dtype):
    """No square and no sum overflows, and what is kept comes before infinite entries."""
    with precision(dtype):
        largest = np.finfo(dtype).max
        bounded = jaxht.Sparse(1, nonnegative=True).prepare((2,))
        for z in ([-0.6, 1e-30], [-0.6, 0.3], [0.9, 0.3], [-0.9, -0.3]):
            scaled = np.array(z, dtype) * largest
            expected = np.maximum(z, 0)
            expected[np.argmin(expected)] = 0
            found = np.asarray(bounded.project(scaled)[0]) / largest
            np.testing.assert_allclose(found, expected, rtol=1e-5)
        # Far outside of the bounds, and infinitely far.
        x, _ = bounded.project(np.array([-np.inf, 1.0], dtype))
        assert x.tolist() == [0, 1]
        half = jaxht.Sparse(1, bounds=(None, np.array(0.6 * largest, dtype))).prepare((2,))
        x, _ = half.project(np.array([0.8, 0.9], dtype) * largest)
        assert x[0] == 0 and x[1] > 0.59 * largest
        kept = np.array([False, True])
        for constraint in (
            jaxht.Sparse(1, keep=kept),
            jaxht.Sparse(1, keep=kept, bounds=(-np.inf, np.inf)),
            jaxht.Groups(1, groups=np.arange(2), keep=kept),
        ):
            x, support = constraint.prepare((2,)).project(np.array([np.inf, 1.0], dtype))
            assert x.tolist() == [0, 1] and support.mask.tolist() == [False, True]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64"])
def test_groups_numbered_by_any_integers(dtype):
    groups = jaxht.Groups(2, np.array([0, 0, 1, 100], dtype)).prepare((4,))
    assert groups.num_groups == 101


def test_kept_items_are_above_nan():
    keep = jnp.array([False, True, False])
    _, support = Sparse(1, keep=keep).prepare((3,)).project(jnp.array([jnp.nan, 1.0, 2.0]))
    assert support.mask.tolist() == [False, True, False]
