"""Arguments that no other test of their function has: what is wrong with them is said by name."""

import jax
import numpy as np
import pytest

import jaxht
from jaxht import Sparse, criteria, ensembles, inference, metrics, pruning, spectral

A = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
Y = A[:, 1] - A[:, 4]
F = jaxht.LeastSquares(A, Y, 0.1)
HTP = jaxht.HTP()
KEY = jax.random.key(0)

CALLS = {
    "held-out samples of other columns": (
        r"held_out must have a variable of shape \(8,\), as train has; got \(5,\)",
        lambda: jaxht.validate(F, jaxht.LeastSquares(A[:, :5], Y), Sparse(), HTP, ks=[1, 2]),
    ),
    "folds of other columns": (
        r"held_out must have a variable of shape \(8,\), as train has; got \(5,\)",
        lambda: jaxht.cross_validate(
            lambda _: (F, jaxht.LeastSquares(A[:, :5], Y)), np.arange(3), Sparse(), HTP, ks=[1, 2]
        ),
    ),
    "a number of folds": (
        "folds must be arrays with the folds along their first axes.* got 3",
        lambda: jaxht.cross_validate(lambda _: (F, F), 3, Sparse(), HTP, ks=[1, 2]),
    ),
    "a split into one objective": (
        r"split must return \(train, held_out\), two objectives; got LeastSquares",
        lambda: jaxht.cross_validate(lambda _: F, np.arange(3), Sparse(), HTP, ks=[1, 2]),
    ),
    "objectives for a split": (
        "split must be a function of a fold; got LeastSquares",
        lambda: jaxht.cross_validate(F, np.arange(3), Sparse(), HTP, ks=[1, 2]),
    ),
    "a name for a criterion": (
        "criterion must be a function such as jaxht.criteria.bic; got 'bic'",
        lambda: criteria.choose_k(F, Sparse(), HTP, ks=[1, 2], criterion="bic"),
    ),
    "a mask for a support": (
        r"support must be a Support, result.support; got bool\[8\]",
        lambda: inference.standard_errors(F, np.ones(8, bool), np.zeros(8, np.float32)),
    ),
    "variances below 0": (
        "the diagonal of S, variances, must be at least 0; got -1",
        lambda: jaxht.solve(
            jaxht.GaussianPrecision(-np.eye(4, dtype=np.float32)), jaxht.Edges(2), HTP
        ),
    ),
    "no columns": (
        "num_columns must be an int of at least 1; got 0",
        lambda: jaxht.Moments.zero(0),
    ),
    **{
        f"{name} of {type(solver).__name__}": (
            rf".*{name} must be .*at least 1; got 0",
            lambda solver=solver: jaxht.solve(F, Sparse(2), solver, key=KEY),
        )
        for solver, name in (
            (jaxht.HTSVRG(inner_steps=0), "inner_steps"),
            (jaxht.HTSAGA(inner_steps=0), "inner_steps"),
            (jaxht.SGHT(inner_steps=0), "inner_steps"),
            (jaxht.SDIHT(inner_steps=0), "inner_steps"),
            (jaxht.HSGHT(batch_size=0), "batch_size"),
            (jaxht.HSGHT(batch_growth=0.5), "batch_growth"),
            (jaxht.ARHT(num_cores=0), "num_cores"),
        )
    },
    "no pairs": (
        "num_pairs must be an int of at least 1; got 0",
        lambda: inference.stability_selection(F, Sparse(2), HTP, key=KEY, num_pairs=0),
    ),
    "no resamples": (
        "num_resamples must be an int of at least 1; got 0",
        lambda: inference.bootstrap(F, Sparse(2), HTP, key=KEY, num_resamples=0),
    ),
    "no coordinates": (
        "s must be an int of at least 1; got 0",
        lambda: spectral.restricted_smoothness(F, 0),
    ),
    "no rows": ("n must be an int of at least 1; got 0", lambda: ensembles.gaussian(KEY, 0, 5)),
    "a bool for a number of solutions": (
        "num_solutions must be an int of at least 1; got True",
        lambda: jaxht.branch_and_bound(F, Sparse(2), num_solutions=True),
    ),
    "no nodes at a time": (
        "batch must be an int of at least 1; got 0",
        lambda: jaxht.branch_and_bound(F, Sparse(2), batch=0),
    ),
    **{
        name: (
            f"{name} must be at least 0; got {value}",
            lambda name=name, value=value: jaxht.branch_and_bound(F, Sparse(2), **{name: value}),
        )
        for name, value in {"gap_rtol": -0.1, "time_limit": -1, "within": float("nan")}.items()
    },
    "a name for a method of pruning": (
        r"method must be a method of pruning such as pruning\.ALPS\(\); got 'wanda'",
        lambda: pruning.prune_layer(A.T, np.eye(8, dtype=np.float32), 3, method="wanda"),
    ),
    "a rank below 0": (
        "k must be an int of at least 0; got -1",
        lambda: jaxht.reduced_rank_minimum(A, A[:, :3], 0.1, -1),
    ),
    "targets that are a vector": (
        r"Y must have shape \(n, c\); got \(\d+,\)",
        lambda: jaxht.reduced_rank_minimum(A, A[:, 0], 0.1, 1),
    ),
    "diminishing steps of no size": (
        r"step_size must be given for DIHT\(diminishing=True\)",
        lambda: jaxht.solve(jaxht.LeastSquares(A, Y, 0.1), Sparse(2), jaxht.DIHT(diminishing=True)),
    ),
    "an incumbent that is not finite": (
        "x0 must be finite; got NaN or infinity",
        lambda: jaxht.branch_and_bound(F, Sparse(2), x0=np.full(8, np.nan)),
    ),
}


@pytest.mark.parametrize("kind", CALLS)
def test_it_is_refused(kind):
    words, call = CALLS[kind]
    with pytest.raises(ValueError, match=f"^{words}"):
        call()


@pytest.mark.parametrize("f", [F, jaxht.Logistic(A, np.sign(Y))])
def test_the_only_support_of_no_items_is_enumerated(f):
    found = jaxht.exhaustive_search(f, Sparse(0))
    zeros = np.zeros(8, np.float32)
    np.testing.assert_array_equal(found.x, zeros)
    np.testing.assert_allclose(found.value, f.value(zeros, f.predict(zeros)), rtol=1e-6)


METRICS = {
    metrics.estimation_error: "x and x_true",
    metrics.relative_error: "x and x_true",
    metrics.success: "x and x_true",
    metrics.exact_recovery: "x and x_true",
    metrics.relaxed_recovery: "x and x_true",
    metrics.precision: "x and x_true",
    metrics.recall: "x and x_true",
    metrics.f_score: "x and x_true",
    metrics.sensitivity: "predicted and actual",
    metrics.specificity: "predicted and actual",
    metrics.matthews_correlation: "predicted and actual",
}


def test_no_metric_is_left_out():
    others = {"wilson_interval"}
    assert {metric.__name__ for metric in METRICS} == set(metrics.__all__) - others


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
def test_metrics_compare_arrays_of_one_shape(metric):
    """A column would be broadcast against a row, to a number that means nothing."""
    row, column = np.ones(3, bool), np.ones((3, 1), bool)
    with pytest.raises(ValueError, match=rf"{METRICS[metric]} must have one shape; got \(3, 1\)"):
        metric(column, row)
