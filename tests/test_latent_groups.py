"""Groups that overlap, as groups of copies of the columns, against all unions of k groups."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.sparse

import jaxht
from jaxht import Groups, LatentGroups, LeastSquares, Logistic
from jaxht.designs import RepeatedColumns
from tests.util import x64

pytestmark = pytest.mark.usefixtures("all_quickly")

D = 7
GROUPS = [[0, 1, 2], [2, 3], [1, 4, 5], [5, 3]]  # and feature 6 alone
ALL = [*GROUPS, [6]]
OVERLAP = LatentGroups.build(GROUPS, D)
RNG = np.random.default_rng(0)
A = RNG.normal(size=(50, D)) + RNG.normal(size=(50, 1))
TRUTH = np.array([0.0, 0.3, 1.0, -0.8, 0.0, 0.7, 0.2])
Y = A @ TRUTH + 0.3 * RNG.normal(size=50)


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


def unions(k):
    """The supports of k groups, by their numbers."""
    return {
        chosen: sorted(set().union(*(ALL[g] for g in chosen)))
        for chosen in itertools.combinations(range(len(ALL)), k)
    }


def test_the_copies_are_numbered():
    assert OVERLAP.features.tolist() == [0, 1, 2, 2, 3, 1, 4, 5, 5, 3, 6]
    assert OVERLAP.groups.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4]
    masks = np.array([np.isin(np.arange(D), group) for group in GROUPS])
    again = LatentGroups.build(masks, D)
    assert sorted(zip(again.features, again.groups, strict=False)) == sorted(
        zip(OVERLAP.features, OVERLAP.groups, strict=False)
    )


@pytest.mark.parametrize("kind", ["dense", "sparse", "operator"])
def test_products_are_those_of_the_copied_columns(kind):
    base = {
        "dense": jaxht.design(A),
        "sparse": jaxht.design(scipy.sparse.csr_array(A)),
        "operator": jaxht.LinearOperator(lambda x, A: A @ x, A.shape, (A,), dtype=np.float64),
    }[kind]
    design = OVERLAP.design(base)
    copied = A[:, OVERLAP.features]
    x, r = RNG.normal(size=copied.shape[1]), RNG.normal(size=50)
    weights = RNG.random(50)
    np.testing.assert_allclose(design.matvec(x), copied @ x)
    np.testing.assert_allclose(design.rmatvec(r), copied.T @ r)
    np.testing.assert_allclose(design.matvec(np.outer(x, [1, 2])), np.outer(copied @ x, [1, 2]))
    np.testing.assert_allclose(design.rmatvec(np.outer(r, [1, 2])), np.outer(copied.T @ r, [1, 2]))
    np.testing.assert_allclose(design.column_norms(), np.linalg.norm(copied, axis=0))
    if kind != "operator":
        np.testing.assert_allclose(design.row_norms(), np.linalg.norm(copied, axis=1))
        np.testing.assert_allclose(design.squared(weights), weights @ copied**2)
        indices = np.array([3, 0, copied.shape[1], 9])  # 3 and 9 are copies of one column
        expected = np.vstack([copied[:, [3, 0]].T, np.zeros(50), copied[:, 9]])
        np.testing.assert_allclose(design.columns(indices), expected)
        rows = design.rows(np.array([4, 2]))
        np.testing.assert_allclose(rows.matvec(x), copied[[4, 2]] @ x)


SOLVERS = [
    None,
    jaxht.IHT(),
    jaxht.HTP(),
    jaxht.GraSP(),
    jaxht.OMPR(),
    jaxht.LocalSearch(num_starts=2),
    jaxht.HTSVRG(step_size=0.01, inner_steps=8, radius=100.0),
]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
def test_solvers_find_the_best_union(solver):
    f = LeastSquares(OVERLAP.design(A), Y)
    values = {
        chosen: np.linalg.lstsq(A[:, S], Y, rcond=None)[1][0] / 100
        for chosen, S in unions(2).items()
    }
    best = min(values, key=values.get)
    result = jaxht.solve(f, Groups(2, OVERLAP.groups), solver, key=jax.random.key(0))
    x = np.asarray(OVERLAP.combine(result.x))
    assert any(set(np.flatnonzero(x)) <= set(S) for S in unions(2).values())
    np.testing.assert_allclose(result.value, np.mean((A @ x - Y) ** 2) / 2, rtol=1e-12)
    assert result.value >= values[best] * (1 - 1e-9)
    if solver is None or isinstance(solver, jaxht.LocalSearch):
        np.testing.assert_allclose(result.value, values[best], rtol=1e-9)
        expected = np.zeros(D)
        S = unions(2)[best]
        expected[S] = np.linalg.lstsq(A[:, S], Y, rcond=None)[0]
        np.testing.assert_allclose(x, expected, atol=1e-8)


def test_the_ridge_is_that_of_the_parts():
    """Of two selected groups, a feature in both has half of its coefficient in each."""
    l2 = 0.3
    values = {}
    for chosen in itertools.combinations(range(len(ALL)), 2):
        copies = np.concatenate([ALL[g] for g in chosen])
        B = A[:, copies]
        w = np.linalg.solve(B.T @ B / 50 + l2 * np.eye(len(copies)), B.T @ Y / 50)
        values[chosen] = np.mean((B @ w - Y) ** 2) / 2 + l2 / 2 * w @ w
    result = jaxht.solve(LeastSquares(OVERLAP.design(A), Y, l2), Groups(2, OVERLAP.groups))
    np.testing.assert_allclose(result.value, min(values.values()), rtol=1e-9)
    proof = jaxht.branch_and_bound(
        LeastSquares(OVERLAP.design(A), Y, l2), Groups(2, OVERLAP.groups)
    )
    np.testing.assert_allclose(proof.value, min(values.values()), rtol=1e-9)


def test_parts_that_are_not_unique_converge():
    """The Hessian on copies is singular; x is unique."""
    labels = np.sign(A @ TRUTH + RNG.logistic(size=50))
    f = Logistic(OVERLAP.design(A), labels)
    result = jaxht.solve(f, Groups(2, OVERLAP.groups), jaxht.OMP())
    assert result.succeeded
    x = np.asarray(OVERLAP.combine(result.x))
    S = np.flatnonzero(x)

    def loss(w):
        return np.mean(np.logaddexp(0, -labels * (A[:, S] @ w)))

    np.testing.assert_allclose(result.value, scipy.optimize.minimize(loss, x[S]).fun, rtol=1e-7)


def test_it_is_traced():
    @jax.jit
    def run(A, y):
        f = LeastSquares(OVERLAP.design(A), y)
        constraint = Groups(2, OVERLAP.groups, num_groups=5, k_max=2, size_max=6)
        return OVERLAP.combine(jaxht.solve(f, constraint, jaxht.HTP()).x)

    found = jaxht.solve(LeastSquares(OVERLAP.design(A), Y), Groups(2, OVERLAP.groups), jaxht.HTP())
    np.testing.assert_allclose(run(A, Y), OVERLAP.combine(found.x), atol=1e-9)


def test_what_is_no_group_is_refused():
    for groups, message in [
        ([[0, 7]], r"groups\[0\] must be features from 0 to 6"),
        ([[0], []], r"groups\[1\] must be numbers of features, at least one"),
        ([[0, 0]], r"groups\[0\] must not repeat features"),
        ([[0.5]], r"groups\[0\] must be numbers of features"),
    ]:
        with pytest.raises(ValueError, match=message):
            LatentGroups.build(groups, D)
    with pytest.raises(ValueError, match="A must have 7 columns"):
        OVERLAP.design(A[:, :5])


# ---- estimators ----------------------------------------------------------------------------------

NAMES = list("abcdefg")
TABLE = pd.DataFrame(A + 3, columns=NAMES)
BY_NAME = [[NAMES[i] for i in group] for group in GROUPS]


def test_estimators_take_lists_of_features():
    from jaxht.sklearn import L0Classifier, L0MultiTaskRegressor, L0Regressor

    centred = A - A.mean(0)
    fits = {
        chosen: np.linalg.lstsq(centred[:, S], Y - Y.mean(), rcond=None)
        for chosen, S in unions(2).items()
    }
    best = min(fits, key=lambda chosen: fits[chosen][1][0])
    S = unions(2)[best]
    for X, groups in ((TABLE, BY_NAME), (A + 3, GROUPS), (scipy.sparse.csr_array(A + 3), GROUPS)):
        model = L0Regressor(k=2, groups=groups).fit(X, Y)
        assert np.flatnonzero(model.support_).tolist() == S
        np.testing.assert_allclose(model.coef_[S], fits[best][0], rtol=1e-6)
        np.testing.assert_allclose(model.predict(X).mean(), Y.mean())
    sizes = []
    chosen = L0Regressor(k=lambda c: sizes.append((c.k, c.size, c.d)) or -c.k, groups=GROUPS).fit(
        A, Y
    )
    assert chosen.k_ == 5 and sizes[-1] == (5, D, 5) and sizes[0] == (0, 0, 5)
    assert chosen.path_.coefficients.shape == (6, D)
    for k in ("ebic", "cv"):
        assert L0Regressor(k=k, groups=GROUPS).fit(A, Y).coef_.shape == (D,)
    kept = L0Regressor(k=2, groups=GROUPS, always=[6], nonnegative=True).fit(A, Y)
    assert kept.support_[6] and np.all(kept.coef_ >= 0)
    rows = L0MultiTaskRegressor(k=1, groups=GROUPS).fit(A, np.stack([Y, -Y], axis=1))
    assert rows.coef_.shape == (2, D)
    assert np.flatnonzero(rows.support_).tolist() in map(sorted, ALL)
    classes = L0Classifier(k=2, groups=GROUPS, solver=jaxht.OMP()).fit(A, Y > 0)
    assert classes.coef_.shape == (1, D)
    found = L0Regressor(k=1, groups=GROUPS).stability_selection(A, Y, num_pairs=3, random_state=0)
    assert found.frequencies.shape == (5,)


def test_groups_that_do_not_meet_are_labels():
    from jaxht.sklearn import L0Regressor

    labels = [0, 0, 1, 1, 2, 2, 3]
    lists = [[0, 1], [2, 3], [4, 5], [6]]
    first = L0Regressor(k=2, groups=labels, l2=0.1).fit(A, Y)
    second = L0Regressor(k=2, groups=lists, l2=0.1).fit(A, Y)
    np.testing.assert_allclose(first.coef_, second.coef_, atol=1e-8)
    assert isinstance(RepeatedColumns(jaxht.design(A), jnp.arange(3)).shape, tuple)


@pytest.mark.parametrize("solver", [jaxht.HTP(), jaxht.OMP()], ids=["HTP", "OMP"])
def test_a_sparse_design_has_the_solution_of_the_array(solver):
    """With a ridge also where the groups share a column."""
    X = np.random.default_rng(0).normal(size=(50, 4))
    y = X @ [1.0, 2, 0, -1]
    overlap = LatentGroups.build([[0, 1], [1, 3], [2]], 4)
    of_each = [
        jaxht.solve(
            jaxht.LeastSquares(overlap.design(jaxht.design(form(X))), y, 0.1),
            jaxht.Groups(2, overlap.groups),
            solver,
        )
        for form in (np.asarray, scipy.sparse.csr_array)
    ]
    np.testing.assert_allclose(of_each[0].value, of_each[1].value, rtol=1e-5)
    np.testing.assert_allclose(of_each[0].x, of_each[1].x, atol=1e-4)
