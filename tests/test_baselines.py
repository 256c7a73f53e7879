"""Data sets, baselines, and what the experiments compute beside the solvers."""

import itertools

import jax
import joblib
import numpy as np
import pytest
import xarray
from scipy import sparse
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Lasso, orthogonal_mp

import jaxht
from experiments.axiotis2020 import loss_against_sparsity
from experiments.common import SOLVERS, config, data, l1, recovery
from experiments.yuan2018 import (
    estimation,
    precision_matrices,
    real_data,
    support_recovery,
    tumour_classification,
)
from experiments.yuan2020 import against_primal, conditioning, time_to_accuracy
from experiments.zhou2018 import gap_against_cost
from jaxht import sweep
from tests.tiny_experiments import SETS, TINY, at_once, write_csr
from tests.util import x64

pytestmark = pytest.mark.usefixtures("all_quickly")


@pytest.fixture(autouse=True)
def _forget_programs():
    yield
    jax.clear_caches()


def test_diabetes_is_the_quadratic_model():
    table = data.load("diabetes_quadratic", None)
    assert table.X.shape == (442, 64)
    assert len(set(table.names)) == 64
    assert {"bmi", "bmi²", "age·sex"} <= set(table.names) and "sex²" not in table.names
    np.testing.assert_allclose(table.X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(table.X, axis=0), 1)


def test_california_housing_is_what_statlib_has(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    households = rng.integers(1, 6000, 500)
    rooms, bedrooms, population = (rng.integers(1, 40000, 500) for _ in range(3))
    income, age, latitude, longitude = rng.normal(size=(4, 500))
    stored = [income, age, rooms, bedrooms, population, households, latitude, longitude]
    values = np.full(500, 452600.0)
    # As scikit-learn keeps the set once it has been downloaded.
    joblib.dump(np.stack([values, *stored], axis=1), tmp_path / "cal_housing_py3.pkz", compress=6)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    monkeypatch.delenv("JAXHT_DATA", raising=False)
    table = data.load("cal_housing", None)
    original = [longitude, latitude, age, rooms, bedrooms, population, households, income]
    np.testing.assert_array_equal(table.X, np.stack(original, axis=1))
    np.testing.assert_allclose(table.y, 452600)


def test_preprocessing_and_reference_losses():
    rng = np.random.default_rng(1)
    X, y = 3 + rng.normal(size=(40, 6)), rng.normal(size=40)
    X[7, 2], y[9] = np.nan, np.nan
    A, b, names = loss_against_sparsity.prepared(data.Table(X, y, list("abcdef")))
    assert A.shape == (38, 7) and names == ["intercept", *"abcdef"]
    np.testing.assert_allclose(np.linalg.norm(A, axis=0), 1)
    np.testing.assert_allclose(A[:, 0], A[0, 0])

    def loss(support):
        return (
            np.sum((A[:, support] @ np.linalg.lstsq(A[:, support], b, rcond=None)[0] - b) ** 2) / 2
        )

    k = [1, 3]
    settings = {"experiment": "", "title": "", "datasets": ["six"], "k": k, "solvers": ["ELS"]}
    best = [min(loss([0, *rest]) for rest in itertools.combinations(range(1, 7), i - 1)) for i in k]
    with x64():
        table = data.Table(X, y, list("abcdef"))
        task = loss_against_sparsity.Task("six", table, loss_against_sparsity.Config(**settings))
        omp, found = task.solved_by("OMP", None, at_once), task.best()
        els, lasso, refitted = (
            task.solved_by(name, omp, at_once) for name in ("ELS", "l1", "l1, refitted")
        )
        intercept = task.refitted(np.zeros(7))[1]
    np.testing.assert_allclose(found, best)
    np.testing.assert_allclose(intercept, loss([0]))
    path = orthogonal_mp(
        A[:, 1:] - A[:, 1:].mean(axis=0), b - b.mean(), n_nonzero_coefs=6, return_path=True
    )
    expected = [loss([0, *(1 + np.flatnonzero(path[:, i - 2]))] if i > 1 else [0]) for i in k]
    np.testing.assert_allclose(omp.loss, expected)
    assert (els.loss <= omp.loss * (1 + 1e-12)).all() and (
        els.loss >= np.array(found) * (1 - 1e-12)
    ).all()
    assert (lasso.loss >= refitted.loss).all()
    for fit in (omp, els, lasso, refitted):
        assert (fit.x.sel(feature="intercept") != 0).all() and (
            (fit.x != 0).sum("feature") <= fit.k
        ).all()
        for x, value in zip(fit.x.values, fit.loss.values, strict=True):
            np.testing.assert_allclose(np.sum((A @ x - b) ** 2) / 2, value)


def test_the_l1_penalty_leaves_the_intercept_alone():
    """Logistic: the slopes are those of the penalty on the nonzeros, below it elsewhere, and 0 for
    the intercept."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 6)) + 1
    y = np.where(X @ [2.0, -1, 1, 0, 0, 0] + rng.normal(size=80) > 1, 1.0, -1.0)
    settings = {
        "experiment": "",
        "title": "",
        "datasets": ["six"],
        "model": "logistic",
        "k": [4],
        "solvers": ["OMPR"],
    }
    table = data.Table(X, y, list("abcdef"))
    with x64():
        task = loss_against_sparsity.Task("six", table, loss_against_sparsity.Config(**settings))
        fit, intercept = task.solved_by("l1", None, at_once), task.refitted(np.zeros(7))[1]
    x = fit.x.values[0]
    assert np.count_nonzero(x[1:]) == 3
    slopes = -task.A.T @ (y / (1 + np.exp(y * (task.A @ x))))
    penalty = np.abs(slopes[1:]).max()
    np.testing.assert_allclose(np.abs(slopes[1:])[x[1:] != 0], penalty, rtol=1e-2)
    assert abs(slopes[0]) < 1e-2 * penalty
    np.testing.assert_allclose(fit.loss, np.sum(np.logaddexp(0, -y * (task.A @ x))))
    shares = np.mean(y == 1), np.mean(y == -1)
    np.testing.assert_allclose(intercept, -80 * sum(p * np.log(p) for p in shares))


def test_what_has_an_A_of_its_own():
    cell = sweep.Cell({"n": 5, "K": 2}, {"n": 5}, jax.random.key(3))
    for designs, same in ("cell", True), ("trial", False):
        one, other = (
            recovery.draw(jax.random.key(key), cell, 16, designs=designs) for key in (4, 5)
        )
        assert np.array_equal(one.A, other.A) == same
        assert not np.array_equal(one.x_true, other.x_true)


def test_problems_do_not_depend_on_the_rounding_of_n():
    """Zero rows are all that a larger bound adds."""
    cell = {
        bound: sweep.Cell({"n": 5, "K": 2}, {"n": bound}, jax.random.key(3)) for bound in (5, 8, 64)
    }
    drawn = {bound: recovery.draw(jax.random.key(4), cell[bound], 16) for bound in cell}
    for bound in 8, 64:
        np.testing.assert_array_equal(drawn[bound].A[:5], drawn[5].A)
        np.testing.assert_array_equal(drawn[bound].x_true, drawn[5].x_true)
        assert not drawn[bound].A[5:].any() and not drawn[bound].y[5:].any()


def test_padding_has_no_label_and_no_weight():
    cell = sweep.Cell({"n": 5}, {"n": 8}, jax.random.key(3))
    response, objective = support_recovery.MODELS["logistic"]
    problem = recovery.draw(jax.random.key(4), cell, 16, lambda cell: 2, response=response)
    assert not problem.y[5:].any() and abs(problem.y[:5]).all()
    padded, whole = (
        objective(problem.A, problem.y, 0.1),
        jaxht.Logistic(problem.A[:5], problem.y[:5], 0.1, 2.0),
    )
    values = [f.value(problem.x_true, f.predict(problem.x_true)) for f in (padded, whole)]
    np.testing.assert_allclose(*values, rtol=1e-6)


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_is_built_from_an_objective_and_k(name):
    A, row = np.ones((10, 12), np.float32), SOLVERS[name]

    def init(A):
        objective = jaxht.LeastSquares(A, A[:, 3], mean=False)
        constraint, solver = row.method(2, 12)(
            objective, sweep.Cell({"K": 2}, {}, jax.random.key(0))
        )
        objective, constraint = objective.prepare(), constraint.prepare(objective.shape)
        assert (constraint.k_max == row.sparsity(2, 10, 12)) or not row.gathers
        return solver.init(objective, constraint, objective.start(), None)

    assert jax.eval_shape(init, A)[0].x.shape == (12,)


def test_sparse_sets_and_their_training_part(tmp_path):
    write_csr(tmp_path / "tiny.npz")
    table = data.load("tiny", tmp_path)
    assert sparse.issparse(table.X) and table.X.shape == (60, 20) and table.num_train == 40
    assert isinstance(table.dense(), np.ndarray) and table.names[0] == "x1"
    cfg = real_data.OnData(
        experiment="", title="", datasets=["tiny"], solvers=["HTP"], l2=1e-5, rtol=1e-4
    )
    task = real_data.Task("tiny", table, cfg)
    assert task.A.shape == (40, 20) and len(task.y_test) == 20
    norms = np.sqrt(task.A.power(2).sum(axis=1))
    np.testing.assert_allclose(norms[norms > 0], 1)

    X, y = np.random.default_rng(1).normal(5, 3, size=(21, 4)), np.repeat([1.0, -1.0], [11, 10])
    task = real_data.Task("four", data.Table(X, y, list("abcd")), cfg)
    assert task.A.shape == (10, 4) and sorted([*task.y, *task.y_test]) == sorted(y)
    np.testing.assert_allclose(task.A.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(task.A.std(axis=0), 1)
    with pytest.raises(config.Failure, match="labels"):
        real_data.Task("four", data.Table(X, np.arange(21.0), list("abcd")), cfg)


def test_parts_of_a_data_set():
    """Its own, perhaps shuffled, or random ones; rows keep their labels."""
    table = data.Table(np.arange(8.0)[:, None], np.arange(8.0), ["a"], 5)
    train, test = table.split(0.5, 0)
    assert train.y.tolist() == [0, 1, 2, 3, 4] and test.y.tolist() == [5, 6, 7]
    train, test = table.split(0.5, 0, shuffle=True)
    assert train.y.tolist() != [0, 1, 2, 3, 4] == sorted(train.y) and test.y.tolist() == [5, 6, 7]
    train, test = data.Table(table.X, table.y, ["a"]).split(0.75, 0)
    assert len(train.y) == 6 and sorted([*train.y, *test.y]) == table.y.tolist()
    np.testing.assert_array_equal(train.X[:, 0], train.y)
    assert table.rows(table.y % 2 == 1).num_train == 2


def test_l1_solutions_are_optimal_and_as_sparse_as_asked():
    rng = np.random.default_rng(2)
    A = rng.normal(size=(80, 15))
    y = np.where(A[:, :4].sum(axis=1) + rng.normal(size=80) > 0, 1.0, -1.0)
    path = l1.L1Logistic(A, y, 1e-8)
    for penalty in 0.3 * path.largest, 0.05 * path.largest:
        x = path.at(penalty).x
        slopes = A.T @ (-2 * y / (1 + np.exp(2 * y * (A @ x)))) / 80
        np.testing.assert_allclose(slopes[x != 0], -penalty * np.sign(x[x != 0]), rtol=1e-4)
        assert (abs(slopes) <= penalty * (1 + 1e-4)).all()
    assert path.at(path.largest).nonzeros == 0
    assert [path.with_nonzeros(k).nonzeros for k in (1, 4, 15)] == [1, 4, 15]

    lasso = l1.LassoPath(A, y)
    for k in 1, 4, 15:
        fit = lasso.with_nonzeros(k)
        slopes = A.T @ (A @ fit.x - y)
        penalty = np.abs(slopes).max()
        assert fit.nonzeros == k and fit.converged
        np.testing.assert_allclose(
            slopes[fit.x != 0], -penalty * np.sign(fit.x[fit.x != 0]), atol=1e-8
        )
        if k < 15:
            expected = (
                Lasso(penalty / 80, fit_intercept=False, tol=1e-12, max_iter=10_000).fit(A, y).coef_
            )
            np.testing.assert_allclose(fit.x, expected, atol=1e-6)


def test_time_to_target_is_where_the_error_stays_low():
    """By hand: all but one end at 0.2 or below; one comes back there, one does not, one is there at
    once."""
    nan, over = np.nan, ("solver", "l0", "point")
    error = [
        [[1, 0.1, 0.3, 0.2]],
        [[1, 0.1, 0.4, nan]],
        [[0.2, 0.2, nan, nan]],
        [[1, 0.3, 0.1, 0.1]],
    ]
    seconds = [[[0, 1, 2, 3]], [[0, 1, 2, nan]], [[0, 5, nan, nan]], [[0, 2, 4, 6]]]
    results = xarray.Dataset(
        {"test_error": (over, error), "seconds": (over, seconds)}, {"point": np.arange(4)}
    )
    assert time_to_accuracy.target(results) == 0.2
    np.testing.assert_array_equal(
        time_to_accuracy.time_to_target(results, 0.2).isel(l0=0), [3, nan, 0, 4]
    )

    runs = xarray.Dataset(
        {"value": (("factor", "point"), [[3, 2, nan], [3, np.inf, nan], [3, 2.5, 1.5]])}
    )
    assert float(time_to_accuracy.tuned(runs.assign(step=("factor", [1, 4, 16]))).step) == 16


def test_regression_has_a_bounded_rank_and_a_known_minimum():
    rng, n = np.random.default_rng(0), 30
    table = data.Table(rng.normal(size=(n, 5)), rng.choice([3.0, 7.0], n), list("abcde"))
    name = "zhou2018/figure2"
    settings = {"experiment": "", "title": "", "l2": 0.1, "stage": 0.5, "rtol": 1e-6}
    cfg = gap_against_cost.Config(**settings | TINY[name] | {"model": "regression"})
    task = gap_against_cost.Task("five", 1, cfg, table)
    np.testing.assert_array_equal(task.objective.y, np.stack([table.y == 3, table.y == 7], axis=1))
    row = gap_against_cost.rows(cfg, n)["FG-HT"]
    fit = task.choose(row, at_once)
    curve = task.shown(row, fit, at_once)
    np.testing.assert_allclose(curve.value.isel(point=0), 0.5, rtol=1e-6)
    assert np.linalg.matrix_rank(fit.x.values.reshape(5, 2)) == 1
    assert task.rest([fit]).value <= curve.value.min() < 0.5
    with pytest.raises(config.Failure, match="3 is more than 2"):
        gap_against_cost.Task("five", 3, cfg, table)


def test_rows_of_one_domain(tmp_path):
    domain = np.arange(60) % 3
    write_csr(tmp_path / "tiny.npz", domain=domain)
    table, whole = data.load("tiny", tmp_path, domain=1), data.load("tiny", tmp_path)
    np.testing.assert_array_equal(table.dense(), whole.dense()[1::3])
    np.testing.assert_array_equal(table.y, whole.y[1::3])
    assert table.num_train == np.sum(domain[: whole.num_train] == 1)
    with pytest.raises(config.Failure, match="no row is of domain 3"):
        data.load("tiny", tmp_path, domain=3)
    write_csr(tmp_path / "tiny.npz")
    with pytest.raises(config.Failure, match="domain"):
        data.load("tiny", tmp_path, domain=1)


def test_ill_conditioned_designs():
    penalty, kappa = 0.2, 50.0
    eigenvalues = conditioning.spectrum(12, kappa, penalty) + penalty
    np.testing.assert_allclose(eigenvalues.max() / eigenvalues.min(), kappa, rtol=1e-4)
    np.testing.assert_array_equal(conditioning.spectrum(12, 1.0, penalty), 1)
    truth = np.arange(12) % 2.0
    A = against_primal.correlated(jax.random.key(0), truth, 20_000, 4, kappa)
    covariance = np.cov(A, rowvar=False)
    np.testing.assert_allclose(np.diag(covariance), 1, atol=0.05)
    np.testing.assert_allclose(np.linalg.cond(covariance), kappa, rtol=0.1)
    chosen = (np.abs(covariance) > 0.1).sum(axis=0) > 1
    assert chosen.sum() == 4 and truth[chosen].sum() == 2


def test_the_model_of_precision_matrices():
    """Condition number p, and samples of that precision."""
    W, *covariances = precision_matrices.draw(20, 100_000, np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.cond(W), 20, rtol=1e-4)
    assert (
        set(np.unique(np.round(W - np.diag(np.diag(W)), 6))) == {0, 1}
        and 5 < estimation.num_edges(W) < 35
    )
    for S in covariances:
        np.testing.assert_allclose(S @ W, np.eye(20), atol=0.05)
    W = W.copy()
    W[0, 1] = W[1, 0] = 99
    assert estimation.losses(np.stack([np.eye(20), W]), S).tolist() == [
        pytest.approx(np.trace(S)),
        np.inf,
    ]


def test_linear_discriminant_analysis():
    """That of scikit-learn, with its covariance, on the genes that differ."""
    rng = np.random.default_rng(0)
    y = rng.random(90) < 0.3
    X = rng.normal(size=(90, 30)) + np.where(y[:, None] & (np.arange(30) % 7 == 2), 2.0, 0.0)
    settings = {"experiment": "", "title": "", "step_size": 1.0, "grasp_steps": 5}
    cfg = tumour_classification.Config(**settings | TINY["yuan2018/table4"] | {"num_genes": 4})
    split = tumour_classification.Split(data.Table(X, np.where(y, 1.0, -1.0), []), (10, 25), cfg, 0)
    assert split.X.shape == (55, 4) and (split.y_test.sum(), len(split.y_test)) == (10, 35)
    assert split.folds.sum() == 55
    np.testing.assert_allclose(split.X.std(axis=0), 1)
    means = [split.X[own].mean(axis=0) for own in (split.y, ~split.y)]
    assert (means[0] - means[1] > 1).all()  # the four genes that differ
    every = np.ones(55, bool)
    W = np.linalg.inv(tumour_classification.covariance(split.X, split.y, every, every))
    expected = LinearDiscriminantAnalysis(solver="lsqr").fit(split.X, split.y).predict(split.X_test)
    np.testing.assert_array_equal(
        tumour_classification.predicted(W, split.X, split.y, split.X_test), expected
    )


@pytest.mark.skipif(SETS is None, reason="needs the data sets in $JAXHT_DATA")
@pytest.mark.parametrize(
    ("name", "shape", "num_train"), [("rcv1_subsets_binary", (23749, 47236), 20242)]
)
def test_real_sparse_sets(name, shape, num_train):
    if not (SETS / f"{name}.npz").is_file():
        pytest.skip(f"needs {name}.npz in $JAXHT_DATA")
    table = data.load(name, SETS)
    assert table.X.shape == shape and table.num_train == num_train
    assert set(table.y) == {-1, 1}
