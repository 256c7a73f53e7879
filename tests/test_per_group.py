"""At most N entries of each group beside at most k in all, against all supports there are."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import lsq_linear

import jaxht
from jaxht import LeastSquares, Logistic, Sparse, SparsePerGroup
from tests.util import host, precision, quick, x64

pytestmark = pytest.mark.usefixtures("all_quickly")
INF = np.inf
LABELS = np.array([0, 1, 0, 2, 1, 0, 2, 0])
D = LABELS.size


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


def allowed_supports(k, per_group, kept=()):
    """All sets of k entries, or of as many as the groups allow."""
    most = np.broadcast_to(per_group, (3,))
    size = min(k, int(np.sum(np.minimum(np.bincount(LABELS), most))))
    return [
        list(F)
        for F in itertools.combinations(range(D), size)
        if set(kept) <= set(F) and np.all(np.bincount(LABELS[list(F)], minlength=3) <= most)
    ]


@quick
@jax.vmap
def projected(constraint, z):
    constraint = constraint.prepare(z.shape)
    x, support = constraint.project(z)
    return x, support.mask


BOXES = {"free": None, "nonnegative": (0.0, INF), "box": (-0.5, 2.0)}


@pytest.mark.parametrize("keeps", [False, True], ids=["", "keep"])
@pytest.mark.parametrize("box", BOXES)
def test_projection_is_the_best_of_all_supports(box, keeps):
    rng = np.random.default_rng(0)
    lanes = 60
    Z = np.where(
        np.arange(lanes)[:, None] % 2,
        rng.choice([0, 1, -1, 2, -2, 4], size=(lanes, D)).astype(float),
        2 * rng.normal(size=(lanes, D)),
    )
    per_group = rng.integers(1, 4, size=(lanes, 3)).astype(np.int32)
    k = rng.integers(1, 6, size=lanes).astype(np.int32)
    keep = np.zeros((lanes, D), bool)
    if keeps:
        keep[np.arange(lanes), rng.integers(0, D, lanes)] = True
    lower, upper = BOXES[box] or (-INF, INF)
    bounds = (
        None if BOXES[box] is None else (np.full((lanes, D), lower), np.full((lanes, D), upper))
    )
    constraint = SparsePerGroup(
        k,
        k_max=D,
        keep=keep,
        bounds=bounds,
        groups=np.tile(LABELS, (lanes, 1)),
        per_group=per_group,
        num_groups=3,
    )
    x, mask = host(projected(constraint, Z))
    for i, z in enumerate(Z):
        clipped = np.clip(z, lower, upper)
        distances = {
            tuple(F): np.sum((z - np.where(np.isin(np.arange(D), F), clipped, 0)) ** 2)
            for F in allowed_supports(k[i], per_group[i], np.flatnonzero(keep[i]))
        }
        np.testing.assert_allclose(np.sum((x[i] - z) ** 2), min(distances.values()), rtol=1e-12)
        assert np.all(np.bincount(LABELS[mask[i]], minlength=3) <= per_group[i])
        assert mask[i].sum() <= k[i] and np.all(mask[i][keep[i]])
        np.testing.assert_array_equal(x[i], np.where(mask[i], clipped, 0))
        if BOXES[box] is None:  # where no roots are taken, ties are exact: the first support
            assert tuple(np.flatnonzero(mask[i])) == min(distances, key=distances.get)


def problem(seed=1, n=40, loss="squares"):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, D)) + rng.normal(size=(n, 1))
    x = np.array([1.5, 0.8, -1.2, 0.0, 1.0, 0.9, 0.0, 0.5])
    u = A @ x
    if loss == "squares":
        return LeastSquares(A, u + 0.5 * rng.normal(size=n), 1e-3)
    return Logistic(A, np.sign(u + rng.logistic(size=n)), 1e-2)


def least_value(f, supports):
    values = []
    for F in supports:
        S = jaxht.Support(jnp.zeros(D, bool).at[np.array(F)].set(True), k_max=len(F))
        found = jaxht.extend.refit(f.prepare(), S, jnp.zeros(D))
        values.append(float(f.value(found.x, found.pred)))
    return min(values)


def assert_allowed(x, per_group):
    assert np.all(np.bincount(LABELS[np.asarray(x) != 0], minlength=3) <= per_group)


EXACT = [
    None,
    jaxht.ExhaustiveSearch(),
    jaxht.LocalSearch(),
    jaxht.LocalSearch(num_candidates=1),
]
OTHERS = [
    jaxht.IHT(),
    jaxht.NIHT(),
    jaxht.HTP(),
    jaxht.HTP(backtrack=True),
    jaxht.PHT(r=2),
    jaxht.CoSaMP(),
    jaxht.GraSP(),
    jaxht.SubspacePursuit(),
    jaxht.OMP(),
    jaxht.OLS(),
    jaxht.OMPR(),
    jaxht.FoBa(),
    jaxht.ExhaustiveLocalSearch(),
    jaxht.ARHT(num_cores=2),
    jaxht.DIHT(inner_steps=2),
    jaxht.HTSVRG(step_size=0.01, inner_steps=8, radius=100.0),
]


CASES = [
    *itertools.product(EXACT, ["squares", "logistic"], [1]),
    (None, "squares", np.array([1, 2, 1])),
]


@pytest.mark.parametrize(("solver", "loss", "per_group"), CASES, ids=str)
def test_searches_find_the_best_allowed_support(solver, loss, per_group):
    f = problem(loss=loss)
    constraint = SparsePerGroup(3, groups=LABELS, per_group=per_group)
    result = jaxht.solve(f, constraint, solver)
    assert_allowed(result.x, per_group)
    best = least_value(f, allowed_supports(3, per_group))
    np.testing.assert_allclose(result.value, best, rtol=1e-7)
    assert best > least_value(f, itertools.combinations(range(D), 3)) * (1 + 1e-4)
    found = jaxht.exhaustive_search(f, constraint)
    np.testing.assert_allclose(found.value, best, rtol=1e-7)


@pytest.mark.parametrize("solver", OTHERS, ids=str)
def test_solvers_stay_in_the_set(solver):
    f = problem()
    constraint = SparsePerGroup(3, groups=LABELS, keep=np.arange(D) == 3)
    result = jaxht.solve(f, constraint, solver, key=jax.random.key(0))
    assert_allowed(result.x, 1)
    assert np.count_nonzero(result.x) == 3 and result.support.mask[3]
    best = least_value(f, allowed_supports(3, 1, [3]))
    assert best * (1 - 1e-9) <= result.value < f.value(np.zeros(D), np.zeros(40)) / 2


@pytest.mark.parametrize("solver", [None, jaxht.HTP(), jaxht.OMP()], ids=str)
def test_bounds_and_wide_tables(solver):
    """More columns than the searches hold, and bounds within the groups."""
    rng = np.random.default_rng(4)
    A = rng.normal(size=(60, 700))
    y = A[:, :3] @ np.ones(3) + A[:, 400] + 0.1 * rng.normal(size=60)
    groups = np.arange(700) % 350  # 50 and 400, 1 and 351 are together
    groups[1] = 0
    result = jaxht.solve(LeastSquares(A, y), SparsePerGroup(4, groups=groups), solver)
    S = np.flatnonzero(result.x)
    assert len(S) == 4 and len(set(groups[S])) == 4 and {2, 400} <= set(S)
    assert len({0, 1} & set(S)) == 1
    constraint = SparsePerGroup(4, groups=groups, bounds=(0.0, 0.9))
    bounded = jaxht.solve(LeastSquares(A, y), constraint, solver)
    S = np.flatnonzero(bounded.x)
    assert len(set(groups[S])) == len(S) and np.max(bounded.x) == 0.9 and np.min(bounded.x) >= 0
    box = lsq_linear(A[:, S], y, (0, 0.9), method="bvls", tol=1e-14).x
    np.testing.assert_allclose(bounded.x[S], box, atol=1e-6)


def test_matrices_traced_numbers_and_paths():
    rng = np.random.default_rng(5)
    A = rng.normal(size=(30, 4))
    Y = rng.normal(size=(30, 2)) + A[:, :2]
    columns = np.broadcast_to(np.arange(2), (4, 2))
    result = jaxht.solve(jaxht.MultiResponse(A, Y), SparsePerGroup(3, groups=columns, per_group=2))
    assert np.count_nonzero(result.x) == 3 and np.max(np.count_nonzero(result.x, axis=0)) == 2
    f = problem()

    @quick
    @jax.vmap
    def run(k, per_group):
        constraint = SparsePerGroup(k, k_max=4, groups=LABELS, per_group=per_group)
        return jaxht.solve(f, constraint, jaxht.HTP()).x

    found = run(np.array([3, 4, 4]), np.array([1, 1, 2]))
    for x, (k, most) in zip(found, [(3, 1), (3, 1), (4, 2)], strict=True):
        assert_allowed(x, most)
        assert np.count_nonzero(x) == k
    for solver in (jaxht.OMP(), jaxht.HTP(), None):
        path = jaxht.path(f, SparsePerGroup(groups=LABELS), solver, ks=[1, 2, 3])
        for k, x in zip([1, 2, 3], path.x, strict=True):
            assert_allowed(x, 1)
            assert np.count_nonzero(x) == k
    with precision("float32"):
        small = jaxht.solve(
            LeastSquares(*(np.float32(v) for v in (f.A, f.y))), SparsePerGroup(2, groups=LABELS)
        )
        assert_allowed(small.x, 1)


def test_groups_of_one_are_sparse():
    f = problem()
    for solver in (None, jaxht.OMP(), jaxht.HTP()):
        first = jaxht.solve(f, SparsePerGroup(3, groups=np.arange(D)), solver)
        second = jaxht.solve(f, Sparse(3), solver)
        np.testing.assert_allclose(first.x, second.x, atol=1e-9)


def test_diagnostics_know_who_may_join():
    f = problem()
    constraint = SparsePerGroup(3, groups=LABELS)
    x = jaxht.solve(f, constraint).x
    assert jaxht.optimality(f, constraint, x).swap_gain <= 0
    assert jaxht.optimality(f, Sparse(3), x).swap_gain > 0
    assert jaxht.differentiability(f, constraint, x).two_sided
    with pytest.raises(ValueError, match="constraint must be Sparse or Groups"):
        jaxht.branch_and_bound(f, constraint)


def test_certificates_hold():
    """By the dual of the set itself, whose projection is exact."""
    from jaxht.sklearn import L0Regressor

    rng = np.random.default_rng(7)
    for l2 in (0.05, 0.5):
        A = rng.normal(size=(40, D))
        f = LeastSquares(A, A[:, :4] @ [1.0, 0.8, -1, 0.5] + 0.3 * rng.normal(size=40), l2)
        constraint = SparsePerGroup(3, groups=LABELS)
        optimum = least_value(f, allowed_supports(3, 1))
        proof = jaxht.certify(f, constraint, jaxht.solve(f, constraint).x)
        assert proof.lower <= optimum * (1 + 1e-12) <= proof.value * (1 + 1e-9)
        assert 0 < proof.gap < proof.value
    model = L0Regressor(k=2, l2=0.5, groups=LABELS, per_group=1, certify=True).fit(A, f.y)
    assert model.certificate_.lower <= model.certificate_.value


def test_estimators_select_one_of_each_group():
    from jaxht.sklearn import L0Classifier, L0CoxRegressor, L0MultiTaskRegressor, L0Regressor

    f = problem()
    names = np.array(["a", "b", "c"])[LABELS]
    A, y = f.A + 3, f.y
    centred = A - A.mean(0)
    losses = {}
    for F in allowed_supports(3, 1):
        rest = np.linalg.lstsq(centred[:, F], y - y.mean(), rcond=None)[1]
        losses[tuple(F)] = float(rest[0])
    best = min(losses, key=losses.get)
    model = L0Regressor(k=3, groups=names, per_group=1).fit(A, y)
    assert np.flatnonzero(model.support_).tolist() == list(best)
    for k in ("ebic", "cv"):
        chosen = L0Regressor(k=k, groups=names, per_group=1).fit(A, y)
        assert chosen.path_.k[-1] == 3
        assert_allowed(chosen.coef_, 1)
    kept = L0Classifier(k=2, groups=names, per_group=1, always=[4]).fit(A, y > y.mean())
    assert_allowed(kept.coef_[0], 1)
    assert kept.support_[4]
    lives = np.stack([np.exp(-y), np.ones_like(y)], axis=1)
    model = L0CoxRegressor(k=3, groups=names, per_group=1, solver=jaxht.OMP()).fit(A, lives)
    assert_allowed(model.coef_, 1)
    with pytest.raises(ValueError, match="between 0 and what per_group allows = 3; got 4"):
        L0Regressor(k=4, groups=names, per_group=1).fit(A, y)
    with pytest.raises(ValueError, match="groups must be given with per_group"):
        L0Regressor(k=1, per_group=1).fit(A, y)
    with pytest.raises(ValueError, match="per_group must be None or an int >= 1; got 0"):
        L0Regressor(k=1, groups=names, per_group=0).fit(A, y)
    with pytest.raises(ValueError, match="per_group must be None for several outputs"):
        L0MultiTaskRegressor(k=1, groups=names, per_group=1).fit(A, np.stack([y, y], axis=1))


REFUSED = [
    ({"k": 4, "groups": LABELS}, "k must be at most 3, what the groups allow in all; got 4"),
    ({"k": 1, "groups": LABELS[:4]}, r"groups must be integers of shape \(8,\)"),
    ({"k": 1, "groups": LABELS - 1}, "groups must be from 0 to num_groups - 1 = 7; got -1"),
    ({"k": 1, "groups": LABELS, "per_group": 0.5}, "per_group"),
    ({"k": 1, "groups": LABELS, "per_group": np.ones(2, int)}, "num_groups - 1 = 1; got 2"),
    ({"k": 2, "groups": LABELS, "keep": np.arange(D) % 5 == 0}, "keep must mark at most per_group"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        jaxht.solve(problem(), SparsePerGroup(**arguments), jaxht.IHT())


@pytest.mark.parametrize("most", [10**6, 2**31 - 1])
def test_groups_without_limit(most):
    """No number of entries overflows in the solvers that select more than k."""
    A = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    y = A @ np.array([1, 0, 2, 0, 0, -1.0], np.float32)
    groups = np.array([0, 0, 0, 1, 1, 1])
    constraint = SparsePerGroup(3, groups=groups, per_group=np.array([most, 1]))
    for solver in (jaxht.CoSaMP(), jaxht.GraSP()):
        result = jaxht.solve(LeastSquares(A, y), constraint, solver)
        assert result.support.numpy().tolist() == [0, 2, 5]
