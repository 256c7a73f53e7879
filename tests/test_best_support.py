"""The benchmark of the best support: its referee, its file of results, and one cell."""

import argparse
import importlib.util
import itertools
import json
import sys

import numpy as np
import pytest
import scipy.sparse

from benchmarks import support, support_methods
from benchmarks.support_sets import Problem, enumerate_supports, load, loss


def problem(model, n=40, d=7, l2=1e-2):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(n, d)) + rng.normal(size=(n, 1))
    u = A @ rng.normal(size=d) + rng.normal(size=n)
    return Problem(model, A, u if model == "squares" else np.where(u > 0, 1.0, -1.0), l2)


@pytest.mark.parametrize("sparse", [False, True])
def test_referee_is_ridge_regression(sparse):
    from sklearn.linear_model import Ridge

    _, A, y, l2 = squares = problem("squares")
    S, n = np.array([5, 0, 3]), len(y)
    x = Ridge(alpha=n * l2, fit_intercept=False, tol=1e-12).fit(A[:, S], y).coef_
    f = np.sum((A[:, S] @ x - y) ** 2) / (2 * n) + l2 / 2 * x @ x
    given = squares._replace(A=scipy.sparse.csr_matrix(A)) if sparse else squares
    assert loss(given, S) == pytest.approx(f, rel=1e-12)
    assert loss(given, np.array([], int)) == pytest.approx(y @ y / (2 * n))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("l2", "scale"), [(1e-2, 1.0), (1e-5, 30.0)]
)  # of the second the labels are nearly separated
def test_referee_is_logistic_regression(sparse, l2, scale):
    from sklearn.linear_model import LogisticRegression

    _, A, y, _ = logistic = problem("logistic", l2=l2)
    A, S, n = scale * A, np.array([5, 0, 3, 1]), len(y)
    model = LogisticRegression(
        C=1 / (n * l2), fit_intercept=False, tol=1e-12, max_iter=100_000, solver="newton-cholesky"
    )
    x = model.fit(A[:, S], y).coef_[0]
    f = np.mean(np.logaddexp(0, -y * (A[:, S] @ x))) + l2 / 2 * x @ x
    given = logistic._replace(A=scipy.sparse.csr_matrix(A) if sparse else A)
    assert loss(given, S) == pytest.approx(f, rel=1e-9)
    assert loss(given, np.array([], int)) == pytest.approx(np.log(2))


def test_enumeration_finds_the_least_loss():
    squares = problem("squares")
    losses = {S: loss(squares, np.array(S)) for S in itertools.combinations(range(7), 3)}
    assert tuple(enumerate_supports(squares, 3)) == min(losses, key=losses.get)
    with pytest.raises(ValueError, match="needs least squares"):
        enumerate_supports(problem("logistic"), 3)


def test_supports_that_are_too_large_are_failures():
    row = {"status": "done", "cold": 1.0}
    assert support.judge(problem("squares"), 2, row | {"support": [1, 2, 3]})["status"] == "failed"
    assert support.judge(problem("squares"), 2, row | {"support": [1, 1]})["status"] == "failed"
    assert support.judge(problem("squares"), 2, row | {"support": [1]})["value"] > 0


@pytest.fixture
def folder(tmp_path):
    _, A, y, _ = problem("squares")
    np.savez(tmp_path / "cal_housing.npz", X=A, y=y)
    return tmp_path


def arguments(folder, *more):
    return [
        "--data-dir",
        str(folder),
        "--sets",
        "cal_housing",
        "--results",
        str(folder / "results"),
        *more,
    ]


def test_a_killed_run_goes_on(folder, capsys):
    computed = []

    def measure(cell, options):
        if len(computed) == 3:
            raise KeyboardInterrupt
        computed.append(cell)
        if cell[2] == "skscope":
            return {"status": "over the limit", "detail": ""}
        return {"status": "done", "support": list(range(cell[1])), "cold": 2.0, "warm": 1.0}

    given = arguments(
        folder, "--methods", "default", "abess", "skscope", "--ks", "2", "3", "--budget", "5"
    )
    with pytest.raises(KeyboardInterrupt):
        support.main(given, measure)
    first = computed.copy()
    results = folder / "results"
    assert [k for _, k, _ in first] == [2, 3, 2]
    rows = support.Results(results).rows
    sound = next(results.glob("*.npz")).read_bytes()
    (results / "half.npz").write_bytes(sound[: len(sound) // 2])  # killed while it wrote
    assert support.Results(results).rows == rows

    computed.clear()
    # What is left: abess at 3, and skscope at 2, which is too slow to be tried at 3.
    support.main(given, measure)
    assert computed == [("cal_housing", 3, "abess"), ("cal_housing", 2, "skscope")]
    assert set(support.Results(results).rows) >= {*first, *computed}
    assert "The default solver in 2 cells of 1 sets" in capsys.readouterr().out

    computed.clear()
    support.main(given, measure)
    assert computed == []
    support.main([*given, "--budget", "6"], measure)  # more time
    assert computed == [("cal_housing", 2, "skscope")]
    computed.clear()
    support.main([*given, "--methods", "abess", "--again"], measure)
    assert computed == [("cal_housing", 2, "abess"), ("cal_housing", 3, "abess")]


def test_a_cell_is_run_in_its_process(folder, capsys):
    support.main(arguments(folder, "--methods", "enumeration", "scikit-learn OMP", "--ks", "3"))
    rows = support.Results(folder / "results").rows
    optimum, greedy = (
        rows["cal_housing", 3, "enumeration"],
        rows["cal_housing", 3, "scikit-learn OMP"],
    )
    data = load("cal_housing", folder)
    assert optimum["value"] == loss(data, enumerate_supports(data, 3)) <= greedy["value"]
    assert min(optimum["cold"], optimum["warm"], greedy["cold"], greedy["warm"]) > 0
    assert "| enumeration | **0**;" in capsys.readouterr().out


def test_what_does_not_come_is_said(folder):
    needs = {name: method.packages for name, method in support_methods.METHODS.items()}
    absent = [
        name
        for name, packages in needs.items()
        if any(importlib.util.find_spec(package.partition(".")[0]) is None for package in packages)
    ]
    if not absent:
        pytest.skip("every method is installed")
    options = argparse.Namespace(data_dir=folder, budget=60.0, rivals_python=sys.executable)
    file = folder / "result.json"
    support_methods.run(str(folder), "cal_housing", 3, absent[0], str(file))
    assert json.loads(file.read_text())["status"] == "not installed"
    assert (
        support.measure(("west", 3, "enumeration"), options)["status"] == "failed"
    )  # whose file is not there
    options.budget = 0.01
    assert support.measure(("cal_housing", 3, "enumeration"), options)["status"] == "over the limit"
