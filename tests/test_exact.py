"""Branch and bound against enumeration, and its bounds, files and limits."""

import dataclasses
import functools
import itertools
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import jaxht
from jaxht import LeastSquares, Sparse
from jaxht.exact import BranchStatus, branch_and_bound, storage
from jaxht.exact.perspective import Node, perspective_prox
from jaxht.exact.result import Solution
from jaxht.exact.storage import solutions_from_arrays, solutions_to_arrays
from jaxht.exact.tree import OpenNode, Tree
from tests.util import quick, x64

pytestmark = pytest.mark.usefixtures("all_quickly")

N, D, K = 24, 10, 3
LOSSES = {
    "least squares": jaxht.LeastSquares,
    "logistic": jaxht.Logistic,
    "smoothed hinge": jaxht.SmoothedHinge,
    "hinge": jaxht.Hinge,
    "squared hinge": jaxht.SquaredHinge,
    "huber": jaxht.Huber,
    "poisson": jaxht.Poisson,
    "gamma": jaxht.Gamma,
}


def make_objective(loss, seed, l2, n=N, d=D):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, d)) + rng.normal(size=(n, 1))
    u = A[:, :K] @ rng.normal(size=K) + rng.normal(size=n)
    mean = np.exp(np.clip(u, -3, 2))
    y = {"poisson": rng.poisson(mean), "gamma": rng.gamma(2.0, mean / 2)}.get(
        loss,
        np.where(u > 0, 1.0, -1.0)
        if loss in ("logistic", "smoothed hinge", "hinge", "squared hinge")
        else u,
    )
    return LOSSES[loss](A, y.astype(float), l2, mean=True)


def enumerate_values(objective, constraint, supports):
    """The minimum of f on each support, by the refit, which other tests compare with scikit-learn
    and SciPy."""
    with x64():
        return np.asarray(minima(objective.prepare(), constraint, jnp.asarray(supports)))


@quick
def minima(f, constraint, supports):
    d = f.shape[0]

    def value(items):
        selected = jnp.zeros(constraint.scores(jnp.zeros(d)).size, bool).at[items].set(True)
        fit = jaxht.extend.refit(f, constraint.support(selected), jnp.zeros(d)).x
        return f.value(fit, f.predict(fit))

    return jax.lax.map(value, supports, batch_size=256)


def all_supports(num, k):
    return np.array(list(itertools.combinations(range(num), k)))


@pytest.mark.parametrize("loss", LOSSES)
def test_optimum_is_that_of_enumeration(loss):
    for seed, l2 in itertools.product(range(4), (1e-3, 0.1, 3.0)):
        f, constraint = make_objective(loss, seed, l2), jaxht.Sparse(K)
        best = branch_and_bound(f, constraint, batch=16)
        least = enumerate_values(f, constraint.prepare((D,)), all_supports(D, K)).min()
        assert best.status == BranchStatus.OPTIMAL
        assert best.lower <= least + 1e-12 * abs(least)
        np.testing.assert_allclose(best.value, least, rtol=1e-4)
        assert 0 <= best.gap <= 1e-4 * abs(best.value)
        assert best.root_lower <= best.lower


KINDS = {
    "keep": jaxht.Sparse(K, keep=np.arange(D) == 7),
    "nonnegative": jaxht.Sparse(K, nonnegative=True),
    "bounds": jaxht.Sparse(K, bounds=(-0.3, 0.5)),
    "groups": jaxht.Groups(2, np.arange(D) // 2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_constraints(kind):
    for seed in range(4):
        f, constraint = make_objective("least squares", seed, 0.05), KINDS[kind].prepare((D,))
        best = branch_and_bound(f, KINDS[kind], batch=16)
        supports = all_supports(D // 2, 2) if kind == "groups" else all_supports(D, K)
        if kind == "keep":
            supports = supports[np.any(supports == 7, axis=1)]
        least = enumerate_values(f, constraint, supports).min()
        assert best.status == BranchStatus.OPTIMAL
        assert best.lower <= least * (1 + 1e-12)
        np.testing.assert_allclose(best.value, least, rtol=1e-4)


def test_ridge_is_borrowed_from_the_curvature():
    """Without l2, and with more samples than columns, no bound of x is assumed."""
    f, constraint = make_objective("least squares", 0, 0.0), jaxht.Sparse(K)
    best = branch_and_bound(f, constraint, batch=16)
    least = enumerate_values(f, constraint.prepare((D,)), all_supports(D, K)).min()
    assert (best.status, best.big_m) == (BranchStatus.OPTIMAL, None)
    np.testing.assert_allclose(best.value, least, rtol=1e-4)


def test_bounds_are_assumed_where_there_is_no_ridge():
    f, constraint = make_objective("least squares", 0, 0.0, n=6), jaxht.Sparse(2)
    best = branch_and_bound(f, constraint, batch=16)
    values = enumerate_values(f, constraint.prepare((D,)), all_supports(D, 2))
    assert best.big_m == pytest.approx(1.5 * np.abs(best.x).max(), rel=0.5)
    assert best.status == BranchStatus.OPTIMAL
    np.testing.assert_allclose(best.value, values.min(), rtol=1e-4)


def test_all_good_supports():
    f, constraint = make_objective("least squares", 3, 0.1), jaxht.Sparse(K)
    supports = all_supports(D, K)
    values = enumerate_values(f, constraint.prepare((D,)), supports)
    order = np.argsort(values)
    found = branch_and_bound(f, constraint, num_solutions=7, batch=16).solutions
    assert [s.items.tolist() for s in found] == supports[order[:7]].tolist()
    np.testing.assert_allclose([s.value for s in found], values[order[:7]], rtol=1e-9)
    near = branch_and_bound(f, constraint, num_solutions=100, within=0.02, batch=16).solutions
    assert len(near) == np.sum(values <= 1.02 * values.min() * (1 + 1e-12))


@pytest.mark.parametrize("start", ["none", "one item", "a search"])
def test_good_supports_do_not_depend_on_the_start(start):
    """Of a start with fewer items than k no smaller support is listed."""
    f, constraint = make_objective("least squares", 4, 0.1, d=5), jaxht.Sparse(2)
    supports = all_supports(5, 2)
    values = enumerate_values(f, constraint.prepare((5,)), supports)
    order = np.argsort(values)
    x0 = {"none": None, "one item": np.eye(5)[0], "a search": jaxht.solve(f, constraint)}[start]
    for size in (6, 10):
        found = branch_and_bound(f, constraint, num_solutions=size, x0=x0, batch=16).solutions
        assert [s.items.tolist() for s in found] == supports[order[:size]].tolist()
        np.testing.assert_allclose([s.value for s in found], values[order[:size]], rtol=1e-9)


def test_limits_are_reported_with_valid_bounds():
    f, constraint = make_objective("least squares", 1, 1e-3, n=12), jaxht.Sparse(4)
    least = enumerate_values(f, constraint.prepare((D,)), all_supports(D, 4)).min()
    few = branch_and_bound(f, constraint, node_limit=1, batch=16)
    none = branch_and_bound(f, constraint, time_limit=0.0, batch=16)
    assert (few.status, none.status) == (BranchStatus.NODE_LIMIT, BranchStatus.TIME_LIMIT)
    for result in (few, none):
        assert result.lower <= least * (1 + 1e-12) <= result.value * (1 + 1e-9)
        assert result.gap > 1e-4 * result.value


def test_interrupted_and_resumed(tmp_path):
    f, constraint, file = (
        make_objective("least squares", 1, 1e-3, n=12),
        jaxht.Sparse(4),
        tmp_path / "search.npz",
    )
    whole = branch_and_bound(f, constraint, batch=4)
    calls = []

    def interrupt(progress):
        calls.append(progress)
        if len(calls) == 3:
            raise KeyboardInterrupt

    part = branch_and_bound(f, constraint, batch=4, progress=interrupt, checkpoint=file)
    assert part.status == BranchStatus.INTERRUPTED
    assert part.lower <= whole.value <= part.value * (1 + 1e-12)
    rest = branch_and_bound(f, constraint, batch=4, checkpoint=file)
    assert rest.status == BranchStatus.OPTIMAL
    assert rest.value == whole.value
    assert rest.num_nodes == whole.num_nodes
    assert rest.seconds > part.history[-1, 0]
    assert (
        branch_and_bound(f, constraint, checkpoint=file).num_nodes == rest.num_nodes
    )  # it was at its end
    whole_file = file.read_bytes()
    for content in (whole_file[:-100], b"", b"not a checkpoint"):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"search\.npz' is damaged, or no file"):
            branch_and_bound(f, constraint, batch=4, checkpoint=file)
        assert file.read_bytes() == content
    file.write_bytes(whole_file)
    with pytest.raises(ValueError, match="another problem"):
        branch_and_bound(dataclasses.replace(f, l2=1.0), constraint, checkpoint=file)


def test_short_memory_makes_the_search_go_deep():
    f = make_objective("least squares", 2, 0.005, n=30, d=30)

    def most_open(**options):
        seen = []
        best = branch_and_bound(f, jaxht.Sparse(5), batch=16, progress=seen.append, **options)
        assert best.status == BranchStatus.OPTIMAL
        return max(state.num_open for state in seen), best.value

    many, value = most_open()
    few, same = most_open(memory=1)
    assert few < many / 4
    assert same == pytest.approx(value, rel=1e-4)


def test_float32_data_are_not_rounded():
    f = make_objective("least squares", 0, 0.1)
    single = dataclasses.replace(
        f, A=jnp.asarray(f.A, jnp.float32), y=jnp.asarray(f.y, jnp.float32)
    )
    exact = dataclasses.replace(f, A=np.asarray(single.A, float), y=np.asarray(single.y, float))
    found, expected = (
        branch_and_bound(single, jaxht.Sparse(K), batch=16),
        branch_and_bound(exact, jaxht.Sparse(K), batch=16),
    )
    assert found.value == pytest.approx(expected.value, rel=1e-7)  # l2 is 0.1 in single precision


def test_history_and_progress():
    f, seen = make_objective("logistic", 1, 1e-3), []
    best = branch_and_bound(f, jaxht.Sparse(K), batch=16, progress=seen.append)
    assert np.all(np.diff(best.history, axis=0)[:, [0, 1, 3]] >= 0)  # seconds, nodes, lower bound
    assert np.all(np.diff(best.history[:, 2]) <= 0)
    assert len(seen) == len(best.history)
    assert "gap" in str(seen[-1])


@pytest.mark.parametrize(
    ("objective", "constraint", "message"),
    [
        (jaxht.MultiResponse(np.eye(4), np.eye(4)), jaxht.Sparse(2), "one output"),
        (
            jaxht.LeastSquares(np.eye(4), np.ones(4), np.ones(4), mean=False),
            jaxht.Sparse(2),
            "single l2",
        ),
        (
            jaxht.LeastSquares(np.eye(4), np.ones(4), mean=False),
            jaxht.LowRank(2),
            "Sparse or Groups",
        ),
        (
            jaxht.LeastSquares(np.full((4, 4), np.nan), np.ones(4)),
            jaxht.Sparse(2),
            "A must be finite",
        ),
        (
            jaxht.LeastSquares(np.eye(4), np.array([1, 2, np.inf, 3])),
            jaxht.Sparse(2),
            r"f\(0\) must be finite; got inf",
        ),
        (
            jaxht.LeastSquares(np.eye(4), np.ones(4), weights=np.zeros(4)),
            jaxht.Sparse(2),
            "weights that are all 0",
        ),
    ],
)
def test_errors(objective, constraint, message):
    with pytest.raises(ValueError, match=message):
        branch_and_bound(objective, constraint)


# ---- the proximal operator -----------------------------------------------------------------------


@pytest.mark.parametrize("bounded", [False, True])
def test_perspective_prox_is_that_of_a_general_solver(bounded):
    rng = np.random.default_rng(0)
    m, k = 5, 2
    for _ in range(10):
        v, scale = rng.normal(size=m) * 2, 10 ** rng.uniform(-1, 1)
        bounds = (-np.abs(rng.normal(size=m)), np.abs(rng.normal(size=m))) if bounded else None
        node = Node(np.arange(m) == 1, np.arange(m) == 3)
        with x64():
            constraint = jaxht.Sparse(k, bounds=bounds).prepare((m,))
            x, z, square = map(
                np.asarray, perspective_prox(constraint, node, jnp.asarray(v), jnp.asarray(scale))
            )

        def value(x, z, v=v, scale=scale):
            return np.sum((x - v) ** 2) / 2 + scale / 2 * np.sum(x**2 / np.maximum(z, 1e-9))

        low, high = (-1e9 * np.ones(m), 1e9 * np.ones(m)) if bounds is None else bounds
        rules = [{"type": "ineq", "fun": lambda w: k - np.sum(w[m:])}]
        if bounded:
            rules += [
                {"type": "ineq", "fun": lambda w, high=high: high * w[m:] - w[:m]},
                {"type": "ineq", "fun": lambda w, low=low: w[:m] - low * w[m:]},
            ]
        shares = [(1, 1) if i == 1 else (0, 1e-9) if i == 3 else (1e-9, 1) for i in range(m)]
        found = scipy.optimize.minimize(
            lambda w, value=value: value(w[:m], w[m:]),
            np.r_[np.zeros(m), np.clip(0.2, *np.array(shares).T)],
            bounds=[(None, None)] * m + shares,
            constraints=rules,
            options={"maxiter": 500, "ftol": 1e-12},
        )
        assert np.sum(z) <= k + 1e-6
        assert x[3] == 0
        assert z[1] == 1
        assert np.sum((x - v) ** 2) / 2 + scale / 2 * square <= found.fun + 1e-4 * (
            1 + abs(found.fun)
        )
        assert np.all((x >= low * z - 1e-12) & (x <= high * z + 1e-12))


def test_a_smaller_gap_is_searched_for_anew(tmp_path):
    """What a larger gap_rtol has closed is not lost."""
    f = make_objective("least squares", 1, 1e-3, n=12)
    constraint = jaxht.Sparse(4)
    whole = branch_and_bound(f, constraint, gap_rtol=1e-6)
    file = tmp_path / "search.npz"
    rough = branch_and_bound(f, constraint, gap_rtol=0.9, checkpoint=file)
    assert rough.num_nodes < whole.num_nodes
    fine = branch_and_bound(f, constraint, gap_rtol=1e-6, checkpoint=file)
    assert fine.status == BranchStatus.OPTIMAL and fine.gap <= 1e-6 * fine.value
    np.testing.assert_allclose(fine.value, whole.value, rtol=1e-9)
    # A larger one is met at once.
    assert (
        branch_and_bound(f, constraint, gap_rtol=0.5, checkpoint=file).num_nodes == fine.num_nodes
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_rough_search_that_was_cut_off_goes_on(tmp_path, seed):
    """Items that a larger gap_rtol has ruled out come back; bounds hold on the way."""
    f = make_objective("least squares", seed, 1e-3, n=12)
    constraint = jaxht.Sparse(4)
    best = branch_and_bound(f, constraint, gap_rtol=1e-6).value
    file = tmp_path / "search.npz"
    rough = branch_and_bound(f, constraint, gap_rtol=0.9, node_limit=3, checkpoint=file)
    assert rough.lower <= best * (1 + 1e-9) <= rough.value * (1 + 2e-9)
    fine = branch_and_bound(f, constraint, gap_rtol=1e-6, checkpoint=file)
    assert fine.status == BranchStatus.OPTIMAL
    np.testing.assert_allclose(fine.value, best, rtol=1e-5)


@pytest.mark.parametrize("changed", [{"num_solutions": 2}, {"within": 0.1}, {"big_m": 50.0}])
def test_other_settings_are_refused_by_name(tmp_path, changed):
    f = make_objective("least squares", 1, 1e-3, n=12)
    file = tmp_path / "search.npz"
    search = functools.partial(branch_and_bound, f, jaxht.Sparse(2), checkpoint=file)
    (name,) = changed
    several = {"num_solutions": np.int64(3)} if name == "within" else {}
    search(node_limit=5, **several)
    with pytest.raises(ValueError, match=rf"of a search with {name} = \S+; got {changed[name]}"):
        search(**several | changed)
    assert search(**several).status in (BranchStatus.OPTIMAL, BranchStatus.INEXACT)
    with pytest.raises(ValueError, match="is a folder"):
        branch_and_bound(f, jaxht.Sparse(2), checkpoint=tmp_path)


def test_a_start_without_entries_bounds_nothing():
    """Without a ridge the assumed bound of |x_j| follows from the best known point."""
    rng = np.random.default_rng(1)
    A = rng.normal(size=(4, 6))
    f = jaxht.LeastSquares(A, 2 * A[:, 1] - A[:, 4])
    result = branch_and_bound(f, jaxht.Sparse(2), x0=np.zeros(6))
    assert result.big_m > 2 and result.value < 1e-6
    np.testing.assert_array_equal(np.flatnonzero(result.x), [1, 4])


def test_an_assumed_bound_is_of_entries_alone():
    f = make_objective("least squares", 0, 0.1)
    with pytest.raises(ValueError, match="big_m must be None under Groups"):
        branch_and_bound(f, jaxht.Groups(1, np.arange(D) // 2), big_m=10.0)


def test_items_of_a_file_may_have_larger_numbers_than_coordinates():
    found = [Solution(np.array([1.0, 2, 0, 0]), np.array([7]), 1.0)]
    (back,) = solutions_from_arrays(solutions_to_arrays(found))
    np.testing.assert_array_equal(back.items, [7])


def test_certify_takes_any_stop():
    f = make_objective("least squares", 0, 0.1)
    x = np.eye(D)[0]
    plain = jaxht.certify(f, jaxht.Sparse(K), x, stop=jaxht.Stop(max_steps=200, gap_rtol=1e-3))
    without = jaxht.certify(f, jaxht.Sparse(K), x, stop=jaxht.Stop(gap_rtol=1e-3))
    np.testing.assert_allclose(without.lower, plain.lower, rtol=1e-6)
    traced = jax.jit(
        lambda gap_rtol: jaxht.certify(
            f, jaxht.Sparse(K), x, stop=jaxht.Stop(max_steps=200, gap_rtol=gap_rtol)
        )
    )(1e-3)
    np.testing.assert_allclose(traced.lower, plain.lower, rtol=1e-5)


def test_an_interrupt_while_nodes_are_selected_loses_none():
    class Interrupted(dict):
        def get(self, number):
            if number == 2:
                raise KeyboardInterrupt
            return super().get(number)

    nothing = np.zeros(2, bool)
    tree = Tree(memory=2**30)
    nodes = [
        OpenNode(nothing, nothing, lower, x=np.zeros(2), step_size=1.0, items=np.arange(2))
        for lower in (1.0, 2.0, 3.0, 9.0)
    ]
    tree.add(nodes, np.inf)
    tree.nodes = Interrupted(tree.nodes)
    with pytest.raises(KeyboardInterrupt):
        tree.select(4, np.inf)
    tree.nodes = dict(tree.nodes)
    assert tree.lower == 1.0
    assert len(tree.select(8, np.inf)) >= 4


def test_an_interrupt_while_a_checkpoint_is_read_leaves_it(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    f = LeastSquares(rng.normal(size=(40, 30)), rng.normal(size=40), 0.01)
    file = tmp_path / "search.npz"

    def search(**options):
        return branch_and_bound(f, Sparse(6), batch=4, checkpoint=file, **options)

    first = search(node_limit=20)
    assert first.status == BranchStatus.NODE_LIMIT
    before = file.read_bytes()

    def interrupt(arrays):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage, "nodes_from_arrays", interrupt)
        with pytest.raises(KeyboardInterrupt):
            search()
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("mean", "wrap"),
    [
        (100.0, lambda design: design),
        (1000.0, lambda design: design),
        (1000.0, lambda design: jaxht.operators.identity(60) @ design),
        (1000.0, lambda design: jaxht.operators.vstack([design]) * 1),
    ],
    ids=["100", "1000", "composition", "multiple of a stack"],
)
def test_bounds_hold_where_centred_columns_cancel(mean, wrap):
    """Of sparse designs, centred without being made dense: rounding errors are those of products
    with the columns as they are; also within an operator."""
    n, d, l2 = 60, 5, 1e-3
    for seed in range(12):
        rng = np.random.default_rng(seed)
        A = (rng.normal(size=(n, d)) + mean).astype(np.float32)
        y = (A[:, 0] - mean + 0.01 * rng.normal(size=n)).astype(np.float32)
        design = jaxht.standardize(scipy.sparse.csr_array(A)).design
        base = np.float64([design.base.matvec(unit) for unit in np.eye(d, dtype=np.float32)]).T
        M = base - np.outer(np.float64(design.ones), np.float64(design.mean))

        def value(x, M=M, y=y):
            return np.mean((M @ x - y) ** 2) / 2 + l2 / 2 * x @ x

        x = np.linalg.solve(M.T @ M / n + l2 * np.eye(d), M.T @ y / n)
        near = x.astype(np.float32)
        f = LeastSquares(wrap(design), y, np.float32(l2))
        proof = jaxht.certify(f, Sparse(d), near)
        assert float(proof.lower) <= value(x) and value(np.float64(near)) <= float(proof.value)


def test_nodes_keep_what_they_may_be_divided_by():
    """On the items that are left, in their numbers there."""
    excluded = np.array([True, False, False, True, False])
    node = OpenNode(
        lower=0.0,
        included=np.zeros(5, bool),
        excluded=excluded,
        x=np.arange(5.0),
        step_size=1.0,
        items=np.array([4, 1, 2]),
    )
    kept = np.array([1, 2, 3, 4])
    assert kept[node.on(kept).items].tolist() == [4, 1, 2]


def test_a_search_that_ended_at_once_goes_on(tmp_path):
    """Where it was killed before it had saved what it had found."""
    rng = np.random.default_rng(0)
    f = LeastSquares(rng.normal(size=(30, 12)), rng.normal(size=30), 0.01)
    file = tmp_path / "search.npz"

    def fail(progress):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        branch_and_bound(f, Sparse(3), checkpoint=file, progress=fail)
    found = branch_and_bound(f, Sparse(3), checkpoint=file)
    fresh = branch_and_bound(f, Sparse(3))
    assert found.status == BranchStatus.OPTIMAL
    assert (found.value, found.num_nodes) == (fresh.value, fresh.num_nodes)


def test_a_checkpoint_that_cannot_be_written(tmp_path):
    """Is told before the search; later on the search goes on."""
    rng = np.random.default_rng(0)
    f = LeastSquares(rng.normal(size=(30, 12)), rng.normal(size=30), 0.01)
    taken = tmp_path / "file"
    taken.write_text("x")
    with pytest.raises(OSError):
        branch_and_bound(f, Sparse(3), checkpoint=taken / "search.npz")
    folder = tmp_path / "folder"

    def replace_folder(progress):
        if folder.is_dir():
            shutil.rmtree(folder)
            folder.write_text("x")

    with pytest.warns(UserWarning, match="cannot be written"):
        result = branch_and_bound(
            f, Sparse(3), checkpoint=folder / "search.npz", progress=replace_folder
        )
    assert result.status == BranchStatus.OPTIMAL
