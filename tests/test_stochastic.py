"""The stochastic solvers: against their references with the same draws, and the draws
themselves."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxht
from jaxht import Status, Stop
from jaxht.solvers.sampling import permute, run_updates
from tests import reference
from tests.util import host, quick, record_x, solve, trace, x64

pytestmark = pytest.mark.usefixtures("all_quickly")
N, D, K = 10, 8, 3
STEPS, M = 3, 7
ETA, NU = 0.02, 0.3


@pytest.fixture(autouse=True)
def float64():
    with x64():
        yield


@functools.cache
def problem(mean=True):
    """A NumPy reference, with a ridge."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.8)
    A[4] = 0
    return reference.LeastSquares(A, rng.normal(size=N), 0.1, mean=mean)


def objective(f, sparse=False):
    A = jaxht.design(scipy.sparse.csr_array(f.A)) if sparse else f.A
    return jaxht.LeastSquares(A, f.y, f.l2, mean=f.mean)


def path(f, solver, num_steps=STEPS, key=0, **options):
    """x of every iterate, and the result."""
    key = jax.random.key(key)
    x0 = np.random.default_rng(1).normal(size=D)
    options = {"x0": x0, "record": record_x, "num_steps": num_steps, **options}
    result, x = trace(f, jaxht.Sparse(K), solver, key=key, **options)
    return host(x), host(result), reference.hard_threshold(x0, K)


# ---- the draws -----------------------------------------------------------------------------------


def drawn(key, num_updates, batch_size, replace=True):
    """The indices that `run_updates` draws."""

    def keep(batch, indices, carry):
        t, all_indices = carry
        return t + 1, all_indices.at[t].set(indices)

    start = jnp.int32(0), jnp.full((num_updates, batch_size), -1, jnp.int32)
    options = {"batch_size": batch_size, "replace": replace}
    run = quick(
        lambda key: run_updates(keep, start, num_updates, objective(problem()), key=key, **options)[
            1
        ]
    )
    return np.asarray(run(key))


shuffle = quick(permute, static_argnums=2)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 1000])
def test_a_shuffle_is_a_permutation(n):
    position = np.tile(np.arange(n, dtype=np.int32), (50, 1))
    places = np.asarray(shuffle(jax.random.key(n), position, n))
    np.testing.assert_array_equal(np.sort(places, axis=1), position)
    assert len(np.unique(places, axis=0)) > {1: 0, 2: 1, 3: 4}.get(n, 45)


def test_any_two_places_of_a_shuffle_are_as_likely():
    """All ordered pairs of places of three positions: chi-square with 6 standard deviations of
    margin."""
    n, m = 7, 60_000
    position = np.tile(np.array([0, 3, 6], np.int32), (m, 1))
    places = np.asarray(shuffle(jax.random.key(1), position, n))
    for i, j in ((0, 1), (0, 2), (1, 2)):
        pairs = np.bincount(n * places[:, i] + places[:, j], minlength=n * n).reshape(n, n)
        assert np.all(np.diagonal(pairs) == 0)
        rest, expected = pairs[~np.eye(n, dtype=bool)], m / (n * (n - 1))
        freedom = rest.size - 1
        assert abs(np.sum((rest - expected) ** 2) / expected - freedom) < 6 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("replace", [True, False])
def test_every_sample_is_as_likely(replace):
    batches = drawn(jax.random.key(0), 3000, 4, replace)
    counts, expected = np.bincount(batches.ravel(), minlength=N), 3000 * 4 / N
    assert np.all(np.abs(counts - expected) < 6 * np.sqrt(expected))
    distinct = [len(set(batch)) for batch in batches]
    assert min(distinct) == 4 if not replace else min(distinct) < 4
    assert len(np.unique(batches, axis=0)) > 1000


# ---- step by step --------------------------------------------------------------------------------

# (mean, sparse, batch_size, replace)
DENSE, SPARSE = (True, False, 3, True), (False, True, 4, False)


def rescaled(eta, mean):
    """A step size on f, for that on the mean."""
    return eta if mean else eta / N


@pytest.mark.parametrize(
    ("name", "setting"), [("SGHT", SPARSE), ("HTSAGA", DENSE), ("HTSAGA", SPARSE)]
)
def test_epochs_are_those_of_the_reference(name, setting):
    mean, sparse, batch_size, replace = setting
    f, eta = problem(mean), rescaled(ETA, mean)
    make, steps = {
        "SGHT": (jaxht.SGHT, reference.sght),
        "HTSAGA": (jaxht.HTSAGA, reference.htsaga),
    }[name]
    x, result, start = path(objective(f, sparse), make(eta, batch_size, replace=replace))
    m, key, batches = -(-N // batch_size), jax.random.key(0), []
    for _ in range(STEPS):
        key, draws = jax.random.split(key)
        batches += [*drawn(draws, m, batch_size, replace)]
    expected = [start, *list(steps(f, start, K, eta, batches))[m - 1 :: m]]
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-12)
    counts = result.counts
    assert (counts.sample_gradients, counts.projections) == (STEPS * m * batch_size, STEPS * m)
    assert counts.full_gradients == (name == "HTSAGA")


@pytest.mark.parametrize(("snapshot", "setting"), [("random", SPARSE), ("last", DENSE)])
def test_stages_are_those_of_the_reference(snapshot, setting):
    mean, sparse, batch_size, replace = setting
    f, eta = problem(mean), rescaled(ETA, mean)
    radius = 0.5 if batch_size > 1 else np.inf
    ball = radius if np.isfinite(radius) else None
    solver = jaxht.HTSVRG(eta, M, batch_size, ball, snapshot=snapshot, replace=replace)
    x, result, start = path(objective(f, sparse), solver)
    key, stages = jax.random.key(0), []
    for _ in range(STEPS):
        key, draws, choice = jax.random.split(key, 3)
        j = int(jax.random.randint(choice, (), 0, M, jnp.int32)) if snapshot == "random" else M
        stages.append((drawn(draws, M, batch_size, replace), j))
    start = start / max(1, np.linalg.norm(start) / radius)
    expected = [start, *reference.htsvrg(f, start, K, eta, stages, radius)]
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-12)
    counts, updates = result.counts, sum(j for _, j in stages)
    assert updates > 0 and (snapshot == "random") == (updates < STEPS * M)
    expected = (STEPS, 2 * batch_size * updates, updates)
    assert (counts.full_gradients, counts.sample_gradients, counts.projections) == expected


def test_every_inner_iterate_is_as_likely_to_be_the_snapshot():
    """Counted by the projections of single stages."""
    f = objective(problem())
    run = jax.vmap(
        lambda key: jaxht.solve(
            f, jaxht.Sparse(K), jaxht.HTSVRG(ETA, 5), key=key, stop=Stop(max_steps=1)
        )
    )
    chosen = quick(run)(jax.random.split(jax.random.key(2), 2000)).counts.projections
    counts = np.bincount(chosen, minlength=5)
    assert len(counts) == 5  # x_0 to x_4, and not x_5
    assert np.all(np.abs(counts - 400) < 6 * np.sqrt(400))


@pytest.mark.parametrize(("momentum", "sparse"), [(None, False), (NU, True)])
def test_growing_batches_are_those_of_the_reference(momentum, sparse):
    f = problem()
    sizes = np.minimum(N, np.ceil(2 * 1.25 ** np.arange(12))).astype(int)
    assert sizes[0] == 2 and sizes[-1] == N
    x, result, start = path(
        objective(f, sparse), jaxht.HSGHT(ETA, momentum, 2, 1.25, inner_steps=1), 12
    )
    keys = [jax.random.fold_in(jax.random.key(0), t) for t in range(12)]
    batches = [
        shuffle(key, np.arange(s, dtype=np.int32), N) for key, s in zip(keys, sizes, strict=True)
    ]
    expected = [start, *reference.hsght(f, start, K, ETA, host(batches), momentum or 0.0)]
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-12)
    full = np.sum(sizes == N)
    counts = result.counts
    assert (counts.full_gradients, counts.sample_gradients, counts.projections) == (
        full,
        sum(sizes[:-full]),
        12,
    )
    if sparse:
        return
    # A step goes over the samples once, however many updates that takes, and the updates are the
    # same.
    passes, result, _ = path(objective(f, sparse), jaxht.HSGHT(ETA, momentum, 2, 1.25), 4)
    ends, t = [0], 0
    while t < 12 and len(ends) < 5:
        left = N - sizes[t]
        t += 1
        while t < 12 and sizes[t] <= left:
            left -= sizes[t]
            t += 1
        ends.append(t)
    assert len(ends) == 5
    np.testing.assert_allclose(passes, x[ends], rtol=0, atol=1e-12)
    assert result.counts.projections == ends[-1]


def test_batches_in_several_blocks():
    """More samples than are taken at a time."""
    rng = np.random.default_rng(5)
    f = reference.LeastSquares(
        rng.normal(size=(700, D)) * (rng.random((700, D)) < 0.7), rng.normal(size=700), mean=True
    )
    x, _, start = path(
        objective(f, sparse=True), jaxht.HSGHT(ETA, batch_size=600, batch_growth=1.0), 2
    )
    keys = [jax.random.fold_in(jax.random.key(0), t) for t in range(2)]
    batches = [shuffle(key, np.arange(600, dtype=np.int32), 700) for key in keys]
    expected = [start, *reference.hsght(f, start, K, ETA, host(batches))]
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-12)


# ---- what becomes of them ------------------------------------------------------------------------


def test_all_samples_at_once_are_full_gradients():
    f = objective(problem())
    stop = Stop(max_steps=3000, rtol=1e-15)
    ours, result, _ = path(f, jaxht.HSGHT(0.2, NU, batch_size=N), 3000, stop=stop)
    theirs, expected, _ = path(f, jaxht.IHT(0.2, NU), 3000, stop=stop)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-13)
    assert result.status == expected.status == Status.CONVERGED
    assert result.counts.full_gradients == result.num_steps


def test_a_still_iterate_of_few_samples_is_no_fixed_point():
    """Sample 4 has no features: if it alone is drawn, x stays."""
    f = problem()
    x, result, _ = path(
        jaxht.LeastSquares(f.A, f.y, mean=True),
        jaxht.HSGHT(ETA, batch_growth=1.0, inner_steps=1),
        60,
    )
    assert np.any(np.all(x[1:] == x[:-1], axis=1))
    assert result.num_steps == 60


def test_it_converges_with_the_steps_that_it_chooses():
    """At a minimiser that is unique, the variance of HT-SVRG and HT-SAGA vanishes; that of SG-HT
    does not."""
    f = reference.LeastSquares(problem().A[:, :K], problem().y, 0.1, mean=True)
    best, errors = f.minimise(range(K)), {}
    for solver in (
        jaxht.HTSVRG(),
        jaxht.SVRGHT(batch_size=3),
        jaxht.HTSAGA(),
        jaxht.SGHT(),
        jaxht.HSGHT(momentum=0.5),
    ):
        result = solve(
            objective(f), jaxht.Sparse(K), solver, key=jax.random.key(3), stop=Stop(max_steps=1500)
        )
        errors[repr(solver)] = np.linalg.norm(result.x - best)
    noisy = errors.pop(repr(jaxht.SGHT()))
    assert 1e-3 < noisy < 1
    assert max(errors.values()) < 1e-9, errors


@pytest.mark.parametrize(
    "solver", [jaxht.SVRGHT(0.002), jaxht.HTSAGA(0.002)], ids=["SVRGHT", "HTSAGA"]
)
def test_steps_below_the_last_bit_of_x_are_not_lost(solver):
    """In single precision, with steps of 1/n of those that full gradients would take."""
    rng, x = np.random.default_rng(0), np.array([1, 0, -2, 0, 0, 0.5, 0, 0])
    A = rng.normal(size=(400, D))
    with x64(False):
        f = jaxht.LeastSquares(A.astype(np.float32), (A @ x).astype(np.float32), mean=True)
        result = solve(f, jaxht.Sparse(K), solver, key=jax.random.key(0), stop=Stop(max_steps=60))
    np.testing.assert_allclose(result.x, x, rtol=0, atol=1e-6)


def test_too_long_steps_diverge_and_short_ones_fall():
    """SL18 Figures 4 and 5: eta of 3 and more, and of 3e-5 with many inner steps."""
    n, d, k = 100, 256, 36
    rng = np.random.default_rng(0)
    A, x = rng.normal(size=(n, d)) / np.sqrt(n), np.zeros(d)
    x[rng.choice(d, 4, replace=False)] = rng.normal(size=4)

    @quick
    @jax.vmap
    def run(eta):
        f = jaxht.LeastSquares(A, A @ x, mean=True)
        return jaxht.trace(
            f, jaxht.Sparse(k), jaxht.HTSVRG(eta, 600), num_steps=6, key=jax.random.key(0)
        )

    result, values = host(run(np.array([10.0, 3.0, 0.3, 3e-5])))
    assert np.all(
        result.status == [Status.DIVERGED, Status.DIVERGED, Status.MAX_STEPS, Status.MAX_STEPS]
    )
    assert np.all(result.num_steps[:2] <= 5) and np.all(np.isfinite(result.x))
    assert values[2, -1] < 0.2 * values[2, 0]
    assert values[3, -1] < values[3, 0]


# ---- any sum over samples ------------------------------------------------------------------------


def squares(x, sample, l2):
    a, y = sample
    return (a @ x["w"] - y) ** 2 / 2 + l2 * jnp.sum(x["w"] ** 2) / 2


@pytest.mark.parametrize(
    "solver",
    [jaxht.HTSVRG(ETA, M), jaxht.HTSAGA(ETA, 2)],
    ids=lambda solver: type(solver).__name__,
)
def test_a_finite_sum_is_solved_as_the_linear_model_it_is(solver):
    f = replace(problem(), l2=0.0)  # a ridge would be in the table of one, and not of the other
    general = jaxht.FiniteSum(squares, (f.A, f.y), f.l2, like={"w": np.zeros(D)})
    ours, result, _ = path(general, solver)
    theirs, expected, _ = path(objective(f), solver)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.value, expected.value, rtol=1e-12)
    assert result.counts.ifo == expected.counts.ifo


def test_the_smoothness_of_a_finite_sum():
    f = problem()
    general = jaxht.FiniteSum(squares, (f.A, f.y), f.l2, like={"w": np.zeros(D)}).prepare()
    assert general.num_samples == N
    own, linear = quick(lambda f, g: (f.sample_smoothness(), g.sample_smoothness()))(
        general, objective(f)
    )
    np.testing.assert_allclose(own, linear, rtol=0.1)


SGHT = jaxht.SGHT(0.1)
WRONG = {
    "no sum": (
        r"sum over samples, such as FiniteSum; got Custom",
        SGHT,
        jaxht.Custom(jnp.sum, like=D),
    ),
    "batch": (r"batch_size must be an int in \[1, 10\].*got 11", jaxht.SGHT(0.1, 11), None),
    "snapshot": (
        r'snapshot must be "random" or "last"; got \'first\'',
        jaxht.HTSVRG(0.1, snapshot="first"),
        None,
    ),
    "growth": (
        r"HSGHT.batch_growth must be at least 1; got -1",
        jaxht.HSGHT(0.1, batch_growth=-1.0),
        None,
    ),
    "inner": (r"HTSVRG.inner_steps must be an integer", jaxht.HTSVRG(0.1, 2.5), None),
    "summand": (
        r"real scalar; got .*\(8,\)",
        SGHT,
        jaxht.FiniteSum(lambda x, a: x * a, np.ones(3), like=D),
    ),
    "samples": (
        r"samples must be arrays of the same",
        SGHT,
        jaxht.FiniteSum(squares, (np.ones((3, D)), np.ones(2)), like=D),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be(name):
    message, solver, f = WRONG[name]
    with pytest.raises(ValueError, match=message):
        jaxht.solve(f or objective(problem()), jaxht.Sparse(K), solver, key=jax.random.key(0))


@pytest.mark.parametrize("n", [10, 2**24 + 1, 2**30 + 1])
def test_batches_grow_to_all_samples_also_where_floats_round_their_number(n):
    with x64(False):
        size = jaxht.HSGHT()._size(jnp.asarray(1000), n)  # noqa: SLF001
    assert size == n


def test_a_start_outside_of_the_ball_is_projected_onto_it():
    x0 = np.array([0, 3, 0, 0], np.float32)
    f = jaxht.LeastSquares(np.eye(4, dtype=np.float32), x0)
    result = jaxht.solve(f, jaxht.Sparse(2), jaxht.HTSVRG(radius=1.0), x0=x0, key=jax.random.key(0))
    np.testing.assert_allclose(result.x, [0, 1, 0, 0], atol=1e-6)


def test_sizes_of_batches_are_integers_of_any_kind():
    f = jaxht.LeastSquares(np.eye(4, dtype=np.float32), np.ones(4, np.float32), 0.1)
    for solver in (jaxht.SDIHT, jaxht.SGHT):
        options = {"key": jax.random.key(0), "stop": jaxht.Stop(max_steps=2)}
        first, second = (
            jaxht.solve(f, jaxht.Sparse(2), solver(batch_size=size), **options)
            for size in (2, np.int64(2))
        )
        np.testing.assert_array_equal(first.x, second.x)
        with pytest.raises(ValueError, match="batch_size must be an int"):
            jaxht.solve(f, jaxht.Sparse(2), solver(batch_size=True), **options)
