"""Supports that with every entry have its parent, against all supports there are and a dynamic
program in loops."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom

import jaxht
from jaxht import LeastSquares, Sparse, TreeSparse, ensembles, operators
from jaxht.linalg.trees import Forest, largest_subtree
from tests.reference import largest_subtree as by_loops
from tests.util import check_slopes, host, precision, quick, x64

pytestmark = pytest.mark.usefixtures("all_quickly")

RNG = np.random.default_rng(0)
BINARY = np.array([-1, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
FOREST = np.array([3, 8, 3, -1, 8, 0, 0, 2, -1, -1, 5])  # three roots, of which one stands alone
CHAIN = np.arange(9) - 1
SHAPES = {"binary": BINARY, "forest": FOREST, "chain": CHAIN}


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


def is_closed(mask, parents):
    return np.all(~mask | (parents < 0) | mask[..., parents])


def closed_sets(parents, k):
    """All of k entries."""
    masks = (np.arange(2 ** len(parents))[:, None] >> np.arange(len(parents))) & 1 > 0
    masks = masks[masks.sum(1) == k]
    return masks[[is_closed(mask, parents) for mask in masks]]


@functools.cache
def selection(parents, k_max=None):
    """The selection, compiled, of many lanes with a k each."""
    forest = Forest(np.array(parents))
    return quick(jax.vmap(lambda z, k: largest_subtree(forest, z, k, k_max)))


def draws(rng, lanes, d):
    """Noise, small integers with many ties, and numbers of very different sizes."""
    noise = rng.normal(size=(lanes, d))
    integers = rng.choice([0, 0, 1, 2, -1, 3.0], size=(lanes, d))
    return np.concatenate([noise, integers, np.exp(3 * noise)])


@pytest.mark.parametrize("name", SHAPES)
def test_selection_is_the_best_of_all(name):
    parents = SHAPES[name]
    Z = draws(RNG, 60, len(parents))
    k = RNG.integers(0, len(parents) + 1, len(Z)).astype(np.int32)
    dtypes = [("float64", 1e-13), ("float32", 1e-6)]
    for dtype, rtol in dtypes if name == "forest" else dtypes[:1]:
        with precision(dtype):
            found = host(selection(tuple(parents))(Z.astype(dtype), k))
        assert is_closed(found, parents)
        np.testing.assert_array_equal(found.sum(axis=1), k)
        sums = np.sum(Z**2 * found, axis=1)
        best = [np.max(closed_sets(parents, size) @ z**2) for z, size in zip(Z, k, strict=True)]
        np.testing.assert_allclose(sums, best, rtol=rtol, atol=1e-300)
    for z, size, value in zip(Z[::9], k[::9], best[::9], strict=True):
        chosen = by_loops(z, parents, size)
        np.testing.assert_allclose(np.sum(z[chosen] ** 2), value, rtol=1e-13)


@pytest.mark.parametrize("shape", [(128,), (16, 8)], ids=str)
def test_selection_on_wavelet_trees_is_that_of_loops(shape):
    """Where the price decides nearly everything, and where it decides nothing."""
    parents = operators.wavelet_parents(shape, "haar")
    Z = draws(RNG, 4, len(parents))
    Z[:2] *= 1.0 * (np.arange(len(parents)) < 30) + 0.02
    k = np.resize([3, 11, 20, 24], len(Z)).astype(np.int32)
    found = host(selection(tuple(parents), 24)(Z, k))
    for mask, z, size in zip(found, Z, k, strict=True):
        best = np.sum(z[by_loops(z, parents, size)] ** 2)
        assert is_closed(mask, parents) and mask.sum() == size
        np.testing.assert_allclose(np.sum(z[mask] ** 2), best, rtol=1e-13)


def test_many_open_entries():
    """More than there is room for in any case: of 1000 pairs, a zero and an entry below it, 2 or
    none fit in."""
    parents = np.append(np.full(1000, -1), np.arange(1000))
    sizes = 1 + 1e-3 * RNG.random(1000)
    z = np.append(np.zeros(1000), sizes)
    k = np.array([7, 8], np.int32)
    found = host(selection(tuple(parents), 8)(np.tile(z, (2, 1)), k))
    assert is_closed(found, parents) and found.sum(axis=1).tolist() == [7, 8]
    largest = np.sort(sizes**2)[::-1]
    np.testing.assert_allclose(found @ z**2, [largest[:3].sum(), largest[:4].sum()])


def test_units_and_the_order_of_entries_do_not_matter():
    z = draws(RNG, 10, 11)
    k = np.full(len(z), 5, np.int32)
    plain = host(selection(tuple(BINARY))(z, k))
    for factor in (2.0**-500, 2.0**500):
        np.testing.assert_array_equal(selection(tuple(BINARY))(factor * z, k), plain)
    order = RNG.permutation(11)
    place = np.argsort(order)
    moved = np.where(BINARY < 0, -1, place[BINARY])[order]
    found = host(selection(tuple(moved))(z[:, order], k))
    noise = np.arange(len(z)) < 10  # without ties
    np.testing.assert_array_equal(found[noise], plain[noise][:, order])
    # A k above k_max is k_max.
    most = host(selection(tuple(BINARY), 3)(z, k))
    np.testing.assert_array_equal(most, selection(tuple(BINARY))(z, np.full(len(z), 3, np.int32)))


def test_infinite_entries_and_zeros():
    z = np.array([1.0, 2, 3, np.nan, 0, 0, 9, np.inf, 0, 0, 0])
    k = np.array([2, 3, 4, 5], np.int32)
    found = host(selection(tuple(BINARY))(np.tile(z, (4, 1)), k))
    assert [np.flatnonzero(mask).tolist() for mask in found] == [
        [0, 2],  # neither is reached
        [0, 1, 3],
        [0, 1, 3, 7],
        [0, 1, 2, 3, 7],
    ]
    for value in (0.0, 1.0, 5e-324, 1e308):  # of equal ones those nearer to the root
        found = host(selection(tuple(BINARY))(np.full((4, 11), value), k))
        assert [np.flatnonzero(mask).tolist() for mask in found] == [list(range(i)) for i in k]


def test_projection_is_by_magnitude_and_has_derivatives():
    z = RNG.normal(size=11) + 1j * RNG.normal(size=11)
    constraint = TreeSparse(4, BINARY).prepare((11,))
    x, support = host(constraint.project(jnp.asarray(z)))
    expected = np.isin(np.arange(11), by_loops(z, BINARY, 4))
    np.testing.assert_array_equal(support.mask, expected)
    np.testing.assert_array_equal(x, np.where(expected, z, 0))
    np.testing.assert_array_equal(
        constraint.active(np.arange(11) == 9), np.isin(np.arange(11), [0, 1, 4, 9])
    )
    # Of a matrix with a number for each entry of the flat array.
    matrix = TreeSparse(4, np.append(BINARY, -1).reshape(3, 4)).prepare((3, 4))
    x = host(matrix.project(jnp.asarray(np.append(z, 0).reshape(3, 4)))[0])
    np.testing.assert_array_equal(x.ravel()[:11], np.where(expected, z, 0))
    check_slopes(lambda z: constraint.project(z)[0] ** 2, (z.real,), (RNG.normal(size=11),))


def test_parents_of_wavelets():
    """By loops; and what is above a coefficient is where it is."""
    assert operators.wavelet_parents(16, "haar").tolist() == [-1, 0, *np.arange(2, 16) // 2]
    parents = operators.wavelet_parents((8, 16), levels=2, name="haar").reshape(8, 16)
    for i, j in itertools.product(range(8), range(16)):
        if i < 2 and j < 4:
            expected = -1
        elif i < 4 and j < 8:
            expected = 16 * (i % 2) + j % 4
        else:
            expected = 16 * (i // 2) + j // 2
        assert parents[i, j] == expected
    image = np.zeros((8, 16))
    image[5, 6] = 1.0
    W = operators.wavelet((8, 16), "haar", levels=2)
    touched = np.abs(np.asarray(W.rmatvec(jnp.asarray(image).ravel()))) > 1e-12
    assert is_closed(touched, parents.ravel()) and touched.sum() == 7
    with pytest.raises(ValueError, match=r"multiples of 2\^levels = 8 alone; got \(8, 12\)"):
        operators.wavelet_parents((8, 12), levels=3)


D, K = 31, 5
PARENTS = np.r_[-1, np.arange(D - 1) // 2]


def problem(key, n, dtype=float):
    return ensembles.planted(
        key,
        lambda key: ensembles.gaussian(key, n, D, dtype=dtype),
        lambda key: ensembles.tree_signal(key, PARENTS, K, dtype=dtype),
    )


SOLVERS = [
    None,
    jaxht.IHT(),
    jaxht.NIHT(),
    jaxht.CGIHT(),
    jaxht.FIHT(),
    jaxht.ALPS(),
    jaxht.HTP(),
    jaxht.HTP(backtrack=True),
    jaxht.CoSaMP(),
    jaxht.GraSP(),
    jaxht.SubspacePursuit(),
    jaxht.OMP(),
    jaxht.OLS(),
    jaxht.HTSVRG(inner_steps=100),
]


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_solvers_find_a_subtree(solver):
    planted = problem(jax.random.key(1), 30)
    f = LeastSquares(planted.A, planted.y)
    result = jaxht.solve(f, TreeSparse(K, PARENTS), solver, key=jax.random.key(0))
    mask = np.asarray(result.support.mask)
    assert is_closed(mask, PARENTS) and mask.sum() <= K
    assert np.count_nonzero(result.x) == K
    if solver is None or not solver.needs_key:
        np.testing.assert_allclose(result.x, planted.x_true, atol=1e-2)
    else:  # with fewer updates than that takes
        assert result.value < f.value(np.zeros(D), np.zeros(30)) / 10


TRIALS = 100


def recovered(constraint, n, dtype):
    """How many planted signals CoSaMP finds."""

    def trial(key):
        planted = problem(key, n, dtype)
        found = jaxht.solve(LeastSquares(planted.A, planted.y), constraint, jaxht.CoSaMP()).x
        return jaxht.metrics.success(found, planted.x_true)

    return int(jnp.sum(quick(jax.vmap(trial))(jax.random.split(jax.random.key(0), TRIALS))))


# Measurements of signals of 31 entries, 5 not 0; a share that is found with the tree, and one that
# is not found without it.
FEWER = {float: (12, 0.6, 0.5), complex: (10, 0.3, 0.25)}


@pytest.mark.parametrize("dtype", FEWER, ids=["real", "complex"])
def test_fewer_measurements_suffice(dtype):
    n, least, most = FEWER[dtype]
    with_tree = recovered(TreeSparse(K, PARENTS), n, dtype)
    without = recovered(Sparse(K), n, dtype)
    assert binom.sf(with_tree - 1, TRIALS, least) < 1e-3
    assert binom.cdf(without, TRIALS, most) < 1e-3


def test_enumeration_and_certificates():
    planted = problem(jax.random.key(3), 12)
    noise = jax.random.normal(jax.random.key(4), (12,))
    f = LeastSquares(planted.A[:, :11], planted.y + 0.3 * noise, 0.3, mean=False)
    constraint = TreeSparse(3, BINARY)
    values = []
    for mask in closed_sets(BINARY, 3):
        A, y = np.asarray(f.A)[:, mask], np.asarray(f.y)
        x = np.linalg.solve(A.T @ A + 0.3 * np.eye(3), A.T @ y)
        values.append(np.sum((A @ x - y) ** 2) / 2 + 0.15 * np.sum(x**2))
    best = jaxht.exhaustive_search(f, constraint)
    np.testing.assert_allclose(best.value, min(values), rtol=1e-10)
    assert isinstance(jaxht.default_solver(f, constraint), jaxht.ExhaustiveSearch)
    result = jaxht.solve(f, constraint)
    np.testing.assert_array_equal(result.support.mask, best.support.mask)
    proof = jaxht.certify(f, constraint, best.x)
    assert proof.lower <= min(values) * (1 + 1e-12) and proof.gap < proof.value
    check = jaxht.optimality(f, constraint, result.x, swaps=False)
    assert check.stationarity < 1e-6 and check.fixed_point_residual < 1e-6


def test_paths_and_traced_sizes():
    planted = problem(jax.random.key(1), 30)
    f = LeastSquares(planted.A, planted.y)
    path = jaxht.path(f, TreeSparse(parents=PARENTS), jaxht.OMP(), ks=[1, 3, 5])
    assert np.count_nonzero(path.x, axis=1).tolist() == [1, 3, 5]
    assert is_closed(np.asarray(path.support.mask), PARENTS)
    np.testing.assert_allclose(path.x[-1], planted.x_true, atol=1e-9)

    @quick
    @jax.vmap
    def run(constraint):  # parents are part of the tree of the constraint
        return jaxht.solve(f, constraint, jaxht.NIHT()).x

    found = run(TreeSparse(np.array([2, 5], np.int32), PARENTS))
    assert np.count_nonzero(found, axis=1).tolist() == [2, 5]
    assert TreeSparse(2, PARENTS).parents == TreeSparse(3, list(PARENTS)).parents


def test_signals_on_trees():
    keys = jax.random.split(jax.random.key(0), 4000)
    parents = np.array([-1, 0, 0, 1])

    def masks(K):
        draw = jax.vmap(lambda key: ensembles.tree_signal(key, parents, K))
        return np.asarray(quick(draw)(keys)) != 0

    three, two = masks(3), masks(2)
    assert is_closed(three, parents) and np.all(three.sum(axis=1) == 3) and not np.any(two & ~three)
    # The root, 1 or 2; after 1 then 2 or 3, after 2 only 1.
    for entry, probability in ((1, 1.0), (2, 3 / 4), (3, 1 / 4)):
        least, most = binom.ppf([1e-4, 1 - 1e-4], len(keys), probability)
        assert least <= three[:, entry].sum() <= most
    x = ensembles.tree_signal(jax.random.key(0), PARENTS, 20, dtype=complex)
    assert x.dtype == complex and np.count_nonzero(x.imag) == 20


REFUSED = [
    (TreeSparse(2), r"parents must be integers of shape \(31,\), on the host; got None"),
    (TreeSparse(2, PARENTS[:4]), r"got dtype int64 and shape \(4,\)"),
    (TreeSparse(2, PARENTS / 2), r"parents must be integers .* got dtype float64"),
    (TreeSparse(2, PARENTS - 1), "parents must be from -1, of roots, to d - 1 = 30; got -2"),
    (TreeSparse(2, np.arange(D)[::-1]), "parents must have no cycle; entry 0 has no root"),
    (TreeSparse(32, PARENTS), "k must lie between 0 and d = 31; got 32"),
]


@pytest.mark.parametrize(("constraint", "message"), REFUSED, ids=lambda value: str(value)[:20])
def test_what_is_no_tree_is_refused(constraint, message):
    with pytest.raises(ValueError, match=message):
        jaxht.solve(LeastSquares(np.ones((2, D)), np.ones(2)), constraint, jaxht.IHT())


NEED_EXCHANGES = [
    jaxht.PHT(r=1),
    jaxht.FoBa(),
    jaxht.OMPR(),
    jaxht.ExhaustiveLocalSearch(),
    jaxht.LocalSearch(),
    jaxht.ARHT(num_cores=2),
]


def test_what_lets_single_entries_leave_is_refused():
    f = LeastSquares(np.ones((2, D)), np.ones(2))
    constraint = TreeSparse(2, PARENTS)
    message = "TreeSparse has entries that others depend on"
    for solver in NEED_EXCHANGES:
        with pytest.raises(ValueError, match=message):
            jaxht.solve(f, constraint, solver, key=jax.random.key(0))
    with pytest.raises(ValueError, match=message):
        jaxht.differentiability(f, constraint, jnp.zeros(D))
    with pytest.raises(ValueError, match="pass swaps=False"):
        jaxht.optimality(f, constraint, jnp.zeros(D))
    with pytest.raises(ValueError, match="Sparse or Groups"):
        jaxht.branch_and_bound(f, constraint)
    assert isinstance(jaxht.default_solver(f, TreeSparse(9, PARENTS)), jaxht.HTP)
