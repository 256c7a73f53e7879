"""The runner: what it takes, what ends it, what it returns."""

import dataclasses
import functools
import itertools
import logging
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import HTP, IHT, NIHT, SVRGHT, Groups, LeastSquares, Sparse, Status, Stop, ensembles
from jaxht.extend import Counts, Info, advance, finish, prepare, start
from tests.util import drop_programs, host, quick, record_x, solve, trace, x64

pytestmark = pytest.mark.usefixtures("all_quickly")
N, D, K = 12, 8, 3
A, Y = np.split(np.random.default_rng(0).normal(size=(N, D + 1)).astype(np.float32), [D], axis=1)
Y = Y[:, 0]
F = LeastSquares(A, Y, mean=False)
C = Sparse(K)
SMALL_STEP = 0.02  # of IHT on F: far from the end after a few steps


CALLS = {
    "certify": lambda f, C, x: jaxht.certify(f, C, x).lower,
    "exhaustive_search": lambda f, C, x: jaxht.exhaustive_search(f, C).value,
    "optimality": lambda f, C, x: jaxht.optimality(f, C, x).stationarity,
    "choose_k": lambda f, C, x: (
        jaxht.criteria.choose_k(f, C, jaxht.HTP(), ks=np.arange(1, 3)).criteria
    ),
    "bootstrap": lambda f, C, x: (
        jaxht.inference.bootstrap(
            f, C, jaxht.HTP(), key=jax.random.key(0), num_resamples=4
        ).frequencies
    ),
    "default solver": lambda f, C, x: jaxht.solve(f, C).value,
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("objective", [jaxht.LeastSquares, jaxht.Logistic])
def test_data_of_two_precisions_are_computed_in_that_of_A(objective, name):
    """y, the offset and l2 of float64 beside A of float32, where JAX's 64 bits are on."""
    rng = np.random.default_rng(0)
    A, offset = rng.standard_normal((40, 6)).astype(np.float32), 0.1 * rng.standard_normal(40)
    y = np.sign(A[:, 0] - A[:, 1] + 0.5 * rng.standard_normal(40))

    def run(dtype):
        f = objective(A, y.astype(dtype), dtype(0.1), offset=offset.astype(dtype))
        x = jaxht.solve(f, jaxht.Sparse(2, k_max=2), jaxht.HTP()).x
        return CALLS[name](f, jaxht.Sparse(2, k_max=2), x)

    with x64():
        mixed, single = run(np.float64), run(np.float32)
        assert mixed.dtype == single.dtype == np.float32
        np.testing.assert_array_equal(mixed, single)


def test_rtol_is_that_of_the_dtype_in_which_runs_compute():
    """NumPy's float64 data are rounded to float32 where JAX has no 64 bits."""
    for bits, dtype in ((False, np.float32), (True, np.float64)):
        with x64(bits):
            problem, *_ = prepare(LeastSquares(A.astype(np.float64), Y, mean=False), C, IHT())
            assert problem.stop.rtol == np.finfo(dtype).eps


# ---- Status and Stop -----------------------------------------------------------------------------


def test_every_status_has_its_own_sentence():
    sentences = [status.sentence for status in Status]
    assert all(re.fullmatch(r"[A-Z].*\.", sentence) for sentence in sentences)
    assert len(set(sentences)) == len(Status)
    codes = {
        "MAX_STEPS": 7,
        "CYCLING": 8,
        "DIVERGED": 9,
        "REFIT_FAILED": 10,
        "INVALID_DATA": 11,
        "INVALID_START": 12,
    }
    codes |= {"INVALID_STEP_SIZE": 13, "NO_DUAL": 14, "NO_MINIMISER": 15}
    assert {status.name: int(status) for status in Status if status.failed} == codes
    assert Status.RUNNING == 0
    assert isinstance(Status.CONVERGED, int)


@functools.cache
def iht_values():
    return host(jaxht.trace(F, C, IHT(step_size=SMALL_STEP), num_steps=6)[1])


def after_four(**limits):
    """With a target that IHT reaches in its fourth step."""
    return Stop(target_value=iht_values()[3:5].mean(), **limits)


def after_all():
    """With a target that OMP reaches in its last step."""
    return Stop(target_value=host(jaxht.trace(F, C, jaxht.OMP(), num_steps=K)[1])[-2:].mean())


ENDS = {
    "limit": (IHT(step_size=SMALL_STEP), Stop(max_steps=4), Status.MAX_STEPS, 4),
    "no step at all": (IHT(step_size=SMALL_STEP), Stop(max_steps=0), Status.MAX_STEPS, 0),
    "more steps than int32 holds": (IHT(), Stop(max_steps=10**12), Status.CONVERGED, None),
    "the default limit": (IHT(step_size=1e-6), Stop(rtol=0), Status.MAX_STEPS, 10_000),
    "no step": (IHT(step_size=0.0), Stop(rtol=0), Status.INVALID_STEP_SIZE, 0),
    "rtol": (IHT(step_size=SMALL_STEP), Stop(rtol=10.0), Status.CONVERGED, 1),
    "rtol = machine epsilon": (IHT(), Stop(), Status.CONVERGED, None),
    "patience": (IHT(step_size=1e-6), Stop(support_patience=3, rtol=0), Status.SUPPORT_STABLE, 4),
    "target": (IHT(step_size=SMALL_STEP), after_four, Status.TARGET_REACHED, 4),
    "target before limit": (
        IHT(step_size=SMALL_STEP),
        functools.partial(after_four, max_steps=4),
        Status.TARGET_REACHED,
        4,
    ),
    "a target below zero": (
        IHT(step_size=SMALL_STEP),
        Stop(max_steps=4, target_value=-1.0),
        Status.MAX_STEPS,
        4,
    ),
    "a finding before the limit": (jaxht.OMP(), Stop(max_steps=K), Status.FINISHED, K),
    "the solver's own limit": (jaxht.OMP(), Stop(), Status.FINISHED, K),
    "target before a finding": (jaxht.OMP(), after_all, Status.TARGET_REACHED, K),
    "target at the start": (
        IHT(),
        lambda: Stop(target_value=iht_values()[0]),
        Status.TARGET_REACHED,
        0,
    ),
    "target at the start before no step at all": (
        IHT(),
        Stop(0, target_value=1e9),
        Status.TARGET_REACHED,
        0,
    ),
    "a gap test without a gap": (
        IHT(step_size=SMALL_STEP),
        Stop(max_steps=2, gap_rtol=1e9),
        Status.MAX_STEPS,
        2,
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_end(name):
    solver, stop, status, num_steps = ENDS[name]
    result = jaxht.solve(F, C, solver, stop=stop() if callable(stop) else stop)
    assert Status(int(result.status)) is status
    assert num_steps is None or result.num_steps == num_steps


def test_gap_closes():
    ridge = dataclasses.replace(F, l2=50.0)
    result = solve(ridge, Sparse(D, D), jaxht.DIHT(), stop=Stop(gap_rtol=1e-3))
    assert result.status == Status.GAP_CLOSED
    assert 0 < result.gap <= 1e-3 * result.value
    at_once = solve(ridge, Sparse(D, D), jaxht.DIHT(), stop=Stop(gap_rtol=1.0))
    assert (at_once.status, at_once.num_steps) == (Status.GAP_CLOSED, 0)
    assert jaxht.solve(ridge, Sparse(D), IHT()).gap is None


def test_raise_for_status():
    result = jaxht.solve(F, C, IHT())
    assert result.raise_for_status() is result
    with pytest.raises(RuntimeError, match=r"^1 of 1 runs MAX_STEPS: The step limit"):
        jaxht.solve(F, C, IHT(), stop=Stop(max_steps=1)).raise_for_status()
    batch = dataclasses.replace(result, status=np.array([1, 9, 7, 9, 2]))
    with pytest.raises(RuntimeError) as error:
        batch.raise_for_status()
    assert all(
        part in str(error.value)
        for part in ("1 of 5 runs MAX_STEPS", "2 of 5 runs DIVERGED", "step_size")
    )
    fine = dataclasses.replace(result, status=np.array([[0, 1, 2], [3, 4, 5]]))
    assert fine.raise_for_status() is fine


def test_whether_and_why_a_run_ended():
    cut_off = jaxht.solve(F, C, IHT(), stop=Stop(max_steps=1))
    assert cut_off.reason == "MAX_STEPS" and not cut_off.succeeded
    result = jaxht.solve(F, C, IHT())
    assert result.reason == "CONVERGED" and result.succeeded
    limits = jnp.array([1, 1000])
    batch, succeeded = jax.jit(
        jax.vmap(
            lambda limit: (
                (lane := jaxht.solve(F, C, IHT(), stop=Stop(max_steps=limit))),
                lane.succeeded,
            )
        )
    )(limits)
    assert batch.reason.tolist() == ["MAX_STEPS", "CONVERGED"]
    assert succeeded.tolist() == [False, True]
    assert not dataclasses.replace(result, status=np.int32(Status.RUNNING)).succeeded


def test_k_is_given_by_the_path_alone():
    for constraint in (Sparse(), Groups(groups=np.arange(D)), Sparse(k_max=3)):
        with pytest.raises(ValueError, match="k must be given"):
            jaxht.solve(F, constraint, IHT())
        found = jaxht.path(F, constraint, ks=[1, 3])
        assert np.count_nonzero(found.x, axis=1).tolist() == [1, 3]
    chosen = jaxht.validate(F, F, Sparse(), ks=[1, 3])
    assert chosen.k == 3 and chosen.losses[0] > chosen.losses[1]


# ---- divergence ----------------------------------------------------------------------------------


GROUPS = np.arange(6) // 2
KEPT_GROUPS = np.array([1, 0, 1, 0, 0, 0], bool)
TWO_EDGES = np.zeros((4, 4), bool)
TWO_EDGES[[0, 2, 3], [1, 3, 2]] = True  # the second one on both sides


@pytest.mark.parametrize(
    ("constraint", "shape", "message"),
    [
        (Groups(1, GROUPS, keep=KEPT_GROUPS), (6,), "at most k = 1 groups; got 2"),
        (jaxht.Edges(1, keep=TWO_EDGES), (4, 4), "at most k = 1 edges; got 2"),
    ],
)
def test_too_many_kept_items_are_refused(constraint, shape, message):
    with pytest.raises(ValueError, match=message):
        constraint.prepare(shape)
    dataclasses.replace(constraint, k=2).prepare(shape)


def test_one_kept_group_of_several_coordinates_counts_once():
    Groups(1, np.array([0, 0, 1, 1]), num_groups=4, keep=np.array([1, 1, 0, 0], bool)).prepare((4,))


@pytest.mark.parametrize("solver", [jaxht.OMP(), HTP(), IHT()], ids=lambda one: type(one).__name__)
def test_a_path_begins_with_all_groups_that_are_kept(solver):
    design = np.random.default_rng(4).normal(size=(20, 6)).astype(np.float32)
    f = LeastSquares(design, design.sum(axis=1))
    constraint = Groups(groups=GROUPS, keep=KEPT_GROUPS)
    results = jaxht.path(f, constraint, solver, ks=[2, 3])
    np.testing.assert_array_equal(np.sum(np.asarray(results.x) != 0, axis=1), [4, 6])
    assert np.all(results.x[0, :4])
    np.testing.assert_allclose(results.x[1], 1, rtol=1e-3)
    with pytest.raises(ValueError, match="at most k = 1 groups; got 2"):
        jaxht.path(f, constraint, solver, ks=[1, 2, 3])


@pytest.mark.parametrize(
    "solver",
    [
        IHT(step_size=0.5, momentum=0.9),
        IHT(step_size=0.5, momentum=0.9, nesterov=True),
        jaxht.HSGHT(step_size=0.5, momentum=0.9),
    ],
)
def test_a_step_at_a_bound_that_momentum_holds_is_no_fixed_point(solver):
    """0, .45, 1, 1 and then back to the minimiser .9."""
    f = LeastSquares(np.ones((1, 1), np.float32), np.full(1, 0.9, np.float32), mean=False)
    result = solve(f, Sparse(1, bounds=(None, 1.0)), solver, key=jax.random.key(0))
    assert result.status == Status.CONVERGED
    np.testing.assert_allclose(result.x, 0.9, rtol=1e-5)


def test_blow_up_returns_the_last_sound_iterate():
    result, (x, value) = jaxht.trace(
        F,
        C,
        IHT(step_size=1.0),
        num_steps=40,
        record=lambda carry: (carry.iterate.x, carry.iterate.value),
    )
    start = value[0]
    assert result.status == Status.DIVERGED
    assert 1 < result.num_steps < 40
    assert start < result.value <= 1e8 * start
    np.testing.assert_array_equal(result.x, x[-1])
    np.testing.assert_array_equal(x[result.num_steps - 1], x[-1])
    # The step that blew up is taken back, but it was paid for.
    assert result.counts.full_gradients == result.num_steps


@pytest.mark.parametrize("solver", [IHT(), NIHT(), HTP()], ids=lambda solver: type(solver).__name__)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_data_are_named(solver, bad):
    for objective in (
        LeastSquares(A, np.r_[Y[1:], bad], mean=False),
        LeastSquares(np.where(np.eye(N, D), bad, A), Y, mean=False),
    ):
        result = jaxht.solve(objective, C, solver)
        assert (result.status, result.num_steps) == (Status.INVALID_DATA, 0)
        np.testing.assert_array_equal(result.x, 0)
        assert not result.support.mask.any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30], ids=str)
def test_a_bad_start_is_named(bad):
    """Of 1e30 the residual is finite, and its square is not."""
    result = jaxht.solve(F, C, IHT(), x0=np.full(D, bad, np.float32))
    assert (result.status, result.num_steps) == (Status.INVALID_START, 0)
    assert np.all(np.isfinite(result.x))


def test_zero_is_its_own_answer():
    for stop in (Stop(), Stop(rtol=0)):
        result = jaxht.solve(LeastSquares(A, 0 * Y, mean=False), C, IHT(), stop=stop)
        assert (result.status, result.num_steps, result.value) == (Status.CONVERGED, 1, 0)


@pytest.mark.parametrize("solver", [IHT, HTP], ids=lambda solver: solver.__name__)
def test_a_step_size_that_is_none_is_named(solver):
    steps = jnp.array([SMALL_STEP, np.nan, np.inf, 0.0, -SMALL_STEP])
    result = quick(jax.vmap(lambda step_size: jaxht.solve(F, C, solver(step_size=step_size))))(
        steps
    )
    assert result.status[0] < Status.MAX_STEPS
    np.testing.assert_array_equal(result.status[1:], Status.INVALID_STEP_SIZE)
    np.testing.assert_array_equal(result.num_steps[1:], 0)
    np.testing.assert_array_equal(result.x[1:], 0)


def test_a_shrinkage_that_is_none_is_named():
    q = jnp.array([2.0, 1.0, 0.5, np.nan])
    result = quick(jax.vmap(lambda q: jaxht.solve(F, C, NIHT(q=q))))(q)
    assert result.status[0] < Status.MAX_STEPS
    np.testing.assert_array_equal(result.status[1:], Status.INVALID_STEP_SIZE)


OWN_OR_GIVEN = {
    "IHT": IHT(),
    "IHT-given": IHT(SMALL_STEP),
    "NIHT": NIHT(),
    "HTP": HTP(),
    "HTP-given": HTP(SMALL_STEP),
}


@pytest.mark.parametrize("name", OWN_OR_GIVEN)
def test_a_column_whose_square_overflows_is_a_failure(name):
    """x = 0 would seem to be a fixed point. It hurts its own lane only."""
    scales = np.ones((2, 1, D), np.float32)
    scales[1, 0, 0] = 1e25
    result = quick(
        jax.vmap(lambda A: jaxht.solve(LeastSquares(A, Y, mean=False), C, OWN_OR_GIVEN[name]))
    )(A * scales)
    assert result.status[0] < Status.MAX_STEPS
    assert result.status[1] == (
        Status.DIVERGED if name.endswith("given") else Status.INVALID_STEP_SIZE
    )
    np.testing.assert_array_equal(result.x[1], 0)


@pytest.mark.parametrize("scale", [2.0**40, 2.0**-40])
def test_niht_squares_no_gradient(scale):
    """Its step would be a ratio of fourth and sixth powers of the columns, which leave float32
    before their squares."""
    result, expected = (
        jaxht.solve(LeastSquares(s * A, s * Y, mean=False), C, NIHT())
        for s in (np.float32(scale), 1)
    )
    assert (result.status, result.num_steps) == (expected.status, expected.num_steps)
    np.testing.assert_array_equal(result.x, expected.x)


# ---- pursuits that fall short --------------------------------------------------------------------

PURSUITS = {
    "HTP": HTP(step_size=0.3),
    "CoSaMP": jaxht.CoSaMP(),
    "SubspacePursuit": jaxht.SubspacePursuit(),
}


@pytest.mark.parametrize("name", PURSUITS)
def test_pursuits_that_fall_short_return_their_best_point(name):
    """On correlated columns, at once, in pieces and with a history, the same; a good start is never
    lost."""
    rng = np.random.default_rng(16)
    A = rng.normal(size=(40, 10, 16)) + 2 * rng.normal(size=(40, 10, 1))
    y, x0 = rng.normal(size=(40, 10)), np.zeros((40, 16))
    for i in range(20, 40):  # a start that few runs come near
        gram, moment = A[i].T @ A[i], A[i].T @ y[i]
        best = max(
            itertools.combinations(range(16), 3),
            key=lambda F: moment[list(F)] @ np.linalg.solve(gram[np.ix_(F, F)], moment[list(F)]),
        )
        x0[i, best] = np.linalg.solve(gram[np.ix_(best, best)], moment[list(best)])

    def lane(A, y, x0, limit):
        arguments = LeastSquares(A, y, mean=False), Sparse(3, k_max=3), PURSUITS[name]
        stop = Stop(max_steps=limit, rtol=0)
        result, history = jaxht.trace(
            *arguments,
            num_steps=8,
            x0=x0,
            stop=stop,
            record=lambda carry: (carry.iterate.x, carry.iterate.value),
        )
        problem, x0, _ = prepare(*arguments, x0=x0, stop=stop)
        carry = advance(problem, advance(problem, start(problem, x0, None), 2), 6)
        return jaxht.solve(*arguments, x0=x0, stop=stop), finish(problem, carry), result, history

    limits = np.tile([1, 2, 8, 8], 10)
    with x64():
        result, pieces, traced, (x, value) = host(quick(jax.vmap(lane))(A, y, x0, limits))
    jax.tree.map(np.testing.assert_array_equal, result, pieces)
    jax.tree.map(np.testing.assert_array_equal, result, traced)
    short = np.isin(result.status, [Status.MAX_STEPS, Status.CYCLING])
    assert 10 <= short.sum() <= 40
    for i in range(40):
        end = result.num_steps[i]
        t = np.argmin(value[i, : end + 1]) if short[i] else end
        np.testing.assert_array_equal(result.x[i], x[i, t])
        assert result.value[i] == value[i, t]
        np.testing.assert_array_equal(result.support.mask[i], x[i, t] != 0)
    # Subspace pursuit never takes a step that raises f.
    has_risen = np.any(result.value < value[np.arange(40), result.num_steps])
    assert has_risen == (name != "SubspacePursuit")


# ---- trace ---------------------------------------------------------------------------------------


def test_trace_records_every_iterate():
    solver = IHT(step_size=SMALL_STEP)
    result, values = jaxht.trace(F, C, solver, num_steps=6)
    assert values.shape == (7,)
    assert result.num_steps == 6
    _, history = jaxht.trace(
        F,
        C,
        solver,
        num_steps=6,
        record=lambda carry: {"x": carry.iterate.x, "done": carry.counts.full_gradients},
    )
    assert history["x"].shape == (7, D)
    np.testing.assert_array_equal(history["done"], range(7))
    np.testing.assert_array_equal(history["x"][0], 0)
    for steps in (1, 6):
        end = jaxht.solve(F, C, solver, stop=Stop(max_steps=steps))
        np.testing.assert_allclose(end.x, history["x"][steps], rtol=1e-6)
        np.testing.assert_allclose(end.value, values[steps], rtol=1e-6)


def test_trace_of_an_ended_run_repeats_its_last_record():
    result, values = jaxht.trace(
        F, C, IHT(step_size=SMALL_STEP), num_steps=6, stop=Stop(max_steps=2)
    )
    assert (result.status, result.num_steps, len(values)) == (Status.MAX_STEPS, 2, 7)
    assert values[1] > values[2]
    np.testing.assert_array_equal(values[2:], values[2])
    result, values = jaxht.trace(
        F, C, IHT(step_size=SMALL_STEP), num_steps=6, stop=Stop(max_steps=0)
    )
    assert (result.status, result.num_steps) == (Status.MAX_STEPS, 0)
    np.testing.assert_array_equal(values, values[0])
    result, values = jaxht.trace(F, C, IHT(step_size=SMALL_STEP), num_steps=0)
    assert (result.num_steps, len(values)) == (0, 1)
    result, _ = jaxht.trace(F, C, IHT(step_size=SMALL_STEP), num_steps=2, stop=Stop(max_steps=9))
    assert (result.status, result.num_steps) == (Status.RUNNING, 2)


@pytest.mark.parametrize("solver", [IHT(momentum=0.2, nesterov=True), HTP()], ids=["IHT", "HTP"])
def test_derivatives_are_finite_differences(solver):
    """Of the values of a trace in reverse mode, of the value of a solution in forward mode."""
    with x64():
        rng = np.random.default_rng(1)
        at, along = (
            (A.astype(float), Y.astype(float), 0.1),
            (rng.normal(size=(N, D)), rng.normal(size=N), 1.0),
        )

        def traced(A, y, l2):
            return jaxht.trace(LeastSquares(A, y, l2, mean=False), C, solver, num_steps=6)[1].sum()

        def solved(A, y, l2):
            return jaxht.solve(LeastSquares(A, y, l2, mean=False), C, solver).value

        def difference(function, h=1e-6):
            function = quick(function)
            ahead, behind = (
                function(*(a + s * h * b for a, b in zip(at, along, strict=True))) for s in (1, -1)
            )
            return (ahead - behind) / (2 * h)

        gradient = quick(jax.grad(traced, (0, 1, 2)))(*at)
        product = sum(np.vdot(g, b) for g, b in zip(gradient, along, strict=True))
        np.testing.assert_allclose(product, difference(traced), rtol=1e-6)
        _, tangent = quick(functools.partial(jax.jvp, solved))(at, along)
        np.testing.assert_allclose(tangent, difference(solved), rtol=1e-6)


# ---- counts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "full", "samples", "projections"),
    [(IHT(step_size=SMALL_STEP), 5, 0, 5), (SVRGHT(SMALL_STEP, 7), 5, 70, 35)],
    ids=["IHT", "SVRGHT"],
)
def test_counts(solver, full, samples, projections):
    counts = jaxht.solve(F, C, solver, key=jax.random.key(0), stop=Stop(max_steps=5)).counts
    assert (counts.full_gradients, counts.sample_gradients, counts.projections) == (
        full,
        samples,
        projections,
    )
    assert counts.ifo == N * full + samples


def test_niht_counts_its_trials():
    """A problem whose first exact steps are refused."""
    result = jaxht.solve(
        LeastSquares(A, Y, mean=False), Sparse(1), NIHT(c=0.5, q=4.0), x0=np.eye(D)[0]
    )
    assert result.counts.full_gradients == result.counts.projections > result.num_steps


def test_counts_do_not_wrap():
    """On the host; within jit they stay at the largest number that there is."""

    @jax.jit
    @jax.vmap
    def counted(most):
        counts = Counts.zero(10**6).plus(
            Info(full_gradients=2**30, sample_gradients=5, projections=1)
        )
        counts = jax.lax.fori_loop(
            0, 4, lambda _, c: c.plus(Info(sample_gradients=most, projections=2)), counts
        )
        return counts, counts.sample_gradients, counts.projections

    most = np.int32([2**31 - 1, 2])
    counts, samples, projections = counted(most)
    exact = 5 + 4 * most.astype(np.int64)
    np.testing.assert_array_equal(counts.sample_gradients, exact)
    np.testing.assert_array_equal(samples, np.minimum(exact, 2**31 - 1))
    np.testing.assert_array_equal([counts.projections, projections], 9)
    np.testing.assert_array_equal(counts.ifo, 2**30 * 10**6 + exact)


# ---- what it takes -------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [IHT(), HTP()], ids=lambda solver: type(solver).__name__)
def test_takes_what_people_have(solver):
    """Integers, doubles, lists for x0, JAX arrays: all the same."""
    whole = np.round(3 * A).astype(int)
    y, x0 = np.arange(N), [1, 0, 0, 2, 0, 0, 0, 3]
    expected = jaxht.solve(
        LeastSquares(whole.astype(np.float32), y.astype(np.float32), mean=False),
        C,
        solver,
        x0=np.float32(x0),
    )
    for objective in (
        LeastSquares(whole, y, mean=False),
        LeastSquares(whole.astype(float), y.astype(float), l2=0, mean=False),
        LeastSquares(jnp.asarray(whole), jnp.asarray(y), l2=np.float64(0), mean=False),
        LeastSquares(jaxht.design(whole), y.astype(np.int8), mean=False),
    ):
        result = jaxht.solve(objective, Sparse(np.int64(K)), solver, x0=x0)
        assert result.x.dtype == np.float32
        np.testing.assert_allclose(result.x, expected.x, rtol=1e-4)


@pytest.mark.parametrize("solver", [IHT(), NIHT(), HTP()], ids=lambda solver: type(solver).__name__)
def test_keep_is_always_in_the_support(solver):
    """An intercept that no method would choose by itself; it counts towards k."""
    rng = np.random.default_rng(3)
    design = np.c_[rng.normal(size=(40, 5)), np.ones(40)].astype(np.float32)
    y = (design[:, :5] @ np.array([3, -2, 2, 2.5, -3]) + 0.1).astype(np.float32)
    keep = np.arange(6) == 5

    def supports(keep):
        result, x = trace(
            LeastSquares(design, y, mean=False),
            Sparse(3, 4, keep),
            solver,
            num_steps=30,
            record=record_x,
        )
        return result, x != 0

    result, history = supports(keep)
    assert np.all(history[1:, 5])
    assert np.all(history.sum(axis=1) <= 3)
    assert result.support.size == 3
    assert not supports(~keep & keep)[0].support.mask[5]


def test_of_too_many_kept_coordinates_a_traced_k_takes_the_first():
    run = quick(
        jax.vmap(lambda k: jaxht.solve(F, Sparse(k, k_max=4, keep=KEPT), IHT()).support.mask)
    )
    masks = run(jnp.array([2, 3, 4]))
    np.testing.assert_array_equal(
        masks[:, :3], [[True, True, False], [True, True, True], [True, True, True]]
    )
    np.testing.assert_array_equal(masks.sum(axis=1), [2, 3, 4])
    traced = quick(jax.vmap(lambda keep: jaxht.solve(F, Sparse(2, keep=keep), IHT()).support.mask))(
        KEPT[None]
    )
    np.testing.assert_array_equal(traced, masks[:1])


@pytest.mark.parametrize("solver", [IHT(), HTP()], ids=lambda solver: type(solver).__name__)
def test_a_traced_k_beyond_k_max_is_k_max(solver):
    runs = quick(jax.vmap(lambda k: jaxht.solve(F, Sparse(k, k_max=K), solver)))(
        jnp.array([K, K + 2])
    )
    np.testing.assert_array_equal(runs.x[1], runs.x[0])
    np.testing.assert_array_equal(runs.support.size, K)


KEPT = jnp.arange(D) < 3


def wrong(objective=F, constraint=C, solver=None, **options):
    return lambda: jaxht.solve(objective, constraint, solver or IHT(), **options)


# What is wrong: (what the message must name, the call).
WRONG = {
    "A is a list": (r"A must be.*list", wrong(LeastSquares(A.tolist(), Y, mean=False))),
    "A has one axis": (r"A must have shape.*\(12,\)", wrong(LeastSquares(Y, Y, mean=False))),
    "A has three axes": (r"A must have shape.*vmap", wrong(LeastSquares(A[None], Y, mean=False))),
    "A is empty": (r"A must have shape.*\(0, 8\)", wrong(LeastSquares(A[:0], Y[:0], mean=False))),
    "A is half": (r"A must be.*float16", wrong(LeastSquares(A.astype(np.float16), Y, mean=False))),
    "A is complex": (r"A must be.*complex64", wrong(jaxht.Huber(A * 1j, Y, mean=False))),
    "A is boolean": (r"A must be.*bool", wrong(LeastSquares(A > 0, Y, mean=False))),
    "A holds objects": (r"A must be.*object", wrong(LeastSquares(A.astype(object), Y, mean=False))),
    "y is too short": (
        r"y must have shape \(12,\).*\(11,\)",
        wrong(LeastSquares(A, Y[1:], mean=False)),
    ),
    "y is a column": (
        r"y must have shape \(12,\).*\(12, 1\)",
        wrong(LeastSquares(A, Y[:, None], mean=False)),
    ),
    "y is missing": (r"y must", wrong(LeastSquares(A, None, mean=False))),
    "y is a list": (r"y must be.*list", wrong(LeastSquares(A, Y.tolist(), mean=False))),
    "y is text": (
        r"y must be.*U1",
        wrong(LeastSquares(A, np.array(list("abcdefghijkl")), mean=False)),
    ),
    "y is boolean": (r"y must be.*bool", wrong(LeastSquares(A, Y > 0, mean=False))),
    "y is complex": (r"y must be.*complex64", wrong(jaxht.Huber(A, Y * 1j, mean=False))),
    "l2 is a vector": (
        r"l2 must be a scalar or of shape \(8,\).*vmap",
        wrong(LeastSquares(A, Y, np.ones(3), mean=False)),
    ),
    "l2 is negative": (
        r"l2 must be at least 0; got -0.5",
        wrong(LeastSquares(A, Y, -0.5, mean=False)),
    ),
    "l2 is a negative NumPy number": (
        r"l2 must be at least 0; got -0.5",
        wrong(LeastSquares(A, Y, np.float32(-0.5), mean=False)),
    ),
    "k is real": (r"k must be an integer; got 2.0", wrong(constraint=Sparse(2.0))),
    "k is boolean": (r"k must be an integer; got True", wrong(constraint=Sparse(True))),
    "k is missing": (r"k must be given", wrong(constraint=Sparse(None))),
    "k is negative": (r"k must lie between 0 and d = 8; got -1", wrong(constraint=Sparse(-1))),
    "k is above d": (r"k must lie between 0 and d = 8; got 9", wrong(constraint=Sparse(9))),
    "k is an array above d": (
        r"k must lie between 0 and d = 8; got 9",
        wrong(constraint=Sparse(np.array(9))),
    ),
    "k is above k_max": (
        r"k must lie between 0 and k_max = 2; got 3",
        wrong(constraint=Sparse(3, k_max=2)),
    ),
    "k is a vector": (r"k must be a scalar.*vmap", wrong(constraint=Sparse(np.array([1, 2])))),
    "k_max is real": (r"k_max must be a Python int.*2.0", wrong(constraint=Sparse(2, k_max=2.0))),
    "k_max is an array": (
        r"k_max must be a Python int",
        wrong(constraint=Sparse(2, k_max=jnp.asarray(3))),
    ),
    "k_max is above d": (r"k_max must be.*d = 8; got 9", wrong(constraint=Sparse(2, k_max=9))),
    "k_max is negative": (r"k_max must be.*got -1", wrong(constraint=Sparse(2, k_max=-1))),
    "k_max is missing": (
        r"k_max must be given",
        wrong(constraint=Sparse(jnp.asarray(2)), solver=HTP()),
    ),
    "keep is too short": (
        r"keep must be.*\(8,\).*\(2,\)",
        wrong(constraint=Sparse(2, keep=np.array([True, False]))),
    ),
    "keep holds integers": (r"keep must be.*int", wrong(constraint=Sparse(2, keep=np.arange(D)))),
    "keep holds more than k": (r"keep.* k = 2 .*got 3", wrong(constraint=Sparse(2, keep=KEPT))),
    "keep holds more than k_max": (
        r"keep.* k_max = 2 .*got 3",
        lambda: jax.jit(lambda k: jaxht.solve(F, Sparse(k, k_max=2, keep=KEPT), IHT()))(1),
    ),
    "matrices on vectors": (r"Edges.*\(8,\)", wrong(constraint=jaxht.Edges(2))),
    "step_size is a vector": (
        r"IHT.step_size must be a scalar.*vmap",
        wrong(solver=IHT(step_size=np.ones(3))),
    ),
    "step_size is negative": (
        r"IHT.step_size must be at least 0; got -1",
        wrong(solver=IHT(step_size=-1)),
    ),
    "step_size is a negative NumPy number": (
        r"IHT.step_size must be.*-1",
        wrong(solver=IHT(step_size=np.float32(-1))),
    ),
    "step_size is a negative array": (
        r"IHT.step_size must be.*-1",
        wrong(solver=IHT(step_size=np.array(-1))),
    ),
    "step_size is NaN": (
        r"HTP.step_size must be at least 0; got nan",
        wrong(solver=HTP(step_size=float("nan"))),
    ),
    "momentum is negative": (r"IHT.momentum must be", wrong(solver=IHT(momentum=-0.5))),
    "max_steps is negative": (
        r"Stop.max_steps must be at least 0; got -1",
        wrong(stop=Stop(max_steps=-1)),
    ),
    "max_steps is real": (
        r"Stop.max_steps must be an integer; got 2.5",
        wrong(stop=Stop(max_steps=2.5)),
    ),
    "max_steps is a real array": (
        r"Stop.max_steps must be an integer; got 2.5",
        wrong(stop=Stop(np.array(2.5))),
    ),
    "rtol is negative": (r"Stop.rtol must be at least 0", wrong(stop=Stop(rtol=-1e-3))),
    "rtol is a vector": (r"Stop.rtol must be a scalar.*vmap", wrong(stop=Stop(rtol=np.ones(2)))),
    "x0 is too short": (r"x0 must have shape \(8,\).*\(3,\)", wrong(x0=np.ones(3))),
    "x0 is ragged": ("x0 must be an array; got lists of", wrong(x0=[[1.0], [1.0, 2.0]])),
    "key is missing": (r"key must be given: SVRGHT", wrong(solver=SVRGHT(0.1))),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named(name):
    message, call = WRONG[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("num_steps", [-1, 2.0, None, jnp.asarray(3)], ids=repr)
@pytest.mark.parametrize("stop", [Stop(), Stop(max_steps=5)], ids=["", "max_steps"])
def test_trace_names_num_steps(num_steps, stop):
    with pytest.raises(ValueError, match=r"^num_steps must be"):
        jaxht.trace(F, C, IHT(), num_steps=num_steps, stop=stop)


# ---- compiles ------------------------------------------------------------------------------------


@pytest.fixture
def compiled(caplog):
    """Runs a call and tells what XLA compiled during it, by name."""
    drop_programs()

    def run(call):
        caplog.clear()
        with jax.log_compiles(), caplog.at_level(logging.WARNING):
            call()
        return re.findall(r"Compiling (?:jit\()?(\w+)", caplog.text)

    return run


@pytest.mark.parametrize("solver", [IHT, HTP], ids=lambda solver: solver.__name__)
def test_numbers_do_not_recompile(solver, compiled):
    """Python, NumPy and JAX numbers, integers for reals, strong and weak types."""

    def call(k, eta, l2, rtol, x0):
        constraint, stop = Sparse(k, k_max=5), Stop(max_steps=k, rtol=rtol)
        return lambda: jaxht.solve(
            LeastSquares(A, Y, l2, mean=False), constraint, solver(step_size=eta), x0=x0, stop=stop
        )

    assert compiled(call(3, 0.1, 0.5, 1e-3, np.zeros(D))).count("solve_prepared") == 1
    for numbers in [
        (2, 1, 1, 0, [0] * D),
        (np.int64(4), np.float64(0.2), np.float32(0.5), np.float16(0.1), np.arange(D)),
        (np.array(1), np.array(1), np.uint8(3), 1e-2, jnp.arange(D)),
        (
            jnp.asarray(5),
            jnp.asarray(0.3),
            jnp.float32(1),
            jnp.asarray(2),
            jnp.ones(D, jnp.bfloat16),
        ),
    ]:
        assert "solve_prepared" not in compiled(call(*numbers))


def test_neighbouring_sparsities_share_a_program(compiled):
    """Python ints k without k_max: 20 of them are two programs, and the padding is not seen in the
    result."""
    big, y = (
        np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        for shape in ((90, 40), 90)
    )
    programs = []
    for k in range(1, 21):
        results = []
        programs += compiled(
            lambda k=k, results=results: results.append(
                jaxht.solve(LeastSquares(big, y, mean=False), Sparse(k), HTP())
            )
        )
        result = results[0]
        assert result.support.indices.shape == (k,) and result.support.k_max == k
        assert np.count_nonzero(result.x) <= k
        exact = (
            jaxht.solve(LeastSquares(big, y, mean=False), Sparse(k, k_max=k), HTP())
            if k in (1, 20)
            else result
        )
        np.testing.assert_array_equal(result.support.mask, exact.support.mask)
        np.testing.assert_allclose(result.x, exact.x, atol=1e-4)
    assert programs.count("solve_prepared") == 2
    k_max = jax.jit(
        lambda y: jaxht.solve(LeastSquares(big, y, mean=False), Sparse(5), HTP()).support.indices
    )(y).shape
    assert k_max == (5,)  # within jit nothing is padded


def test_neighbouring_numbers_of_groups_share_a_program(compiled):
    """10 of them are two programs, of 8 groups or 16, which have 16 entries or more."""
    groups = np.repeat(np.arange(20), 1 + np.arange(20) % 3)  # of 1 to 3 entries
    d = len(groups)
    big, y = (
        np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        for shape in ((90, d), 90)
    )
    f, sizes, programs = LeastSquares(big, y, mean=False), np.sort(np.bincount(groups))[::-1], []
    for k in range(1, 11):
        results = []
        programs += compiled(
            lambda k=k, results=results: results.append(jaxht.solve(f, Groups(k, groups), HTP()))
        )
        result = results[0]
        assert result.support.k_max == sizes[:k].sum() and result.support.indices.shape == (
            sizes[:k].sum(),
        )
        assert len(np.unique(groups[result.support.numpy()])) == k
        exact = jaxht.solve(f, Groups(k, groups, k_max=k), HTP()) if k in (1, 10) else result
        np.testing.assert_array_equal(result.support.mask, exact.support.mask)
        np.testing.assert_allclose(result.x, exact.x, atol=1e-4)
    assert programs.count("solve_prepared") == 2


def test_neighbouring_numbers_of_large_groups_share_a_program(compiled):
    """By four: more of them would be padding."""
    groups = np.repeat(np.arange(8), 30)
    big, y = (
        np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        for shape in ((90, 240), 90)
    )
    programs = [
        compiled(
            lambda k=k: jaxht.solve(LeastSquares(big, y, mean=False), Groups(k, groups), IHT())
        )
        for k in (1, 4, 5, 8)
    ]
    assert [found.count("solve_prepared") for found in programs] == [1, 0, 1, 0]


def test_neighbouring_numbers_of_edges_share_a_program(compiled):
    """By seven of 28: these have 14 of 64 entries."""
    p = 8
    S = np.cov(np.random.default_rng(0).standard_normal((40, p)).astype(np.float32).T)
    f, programs = jaxht.GaussianPrecision(S), []
    for k in (3, 4, 16, 17, 21):
        results = []
        programs += compiled(
            lambda k=k, results=results: results.append(jaxht.solve(f, jaxht.Edges(k), HTP()))
        )
        result = results[0]
        assert (
            result.support.k_max
            == min(p + 2 * k, p * p)
            == result.support.indices.size
            == result.support.size
        )
        exact = jaxht.solve(f, jaxht.Edges(k, k_max=k), HTP()) if k == 4 else result
        np.testing.assert_array_equal(result.support.mask, exact.support.mask)
        np.testing.assert_allclose(result.x, exact.x, atol=1e-4)
    assert programs.count("solve_prepared") == 2


def test_a_phase_diagram_is_one_compile(compiled):
    """All of K, k and the step size at one n, with problems drawn inside."""

    @quick
    @functools.partial(jax.vmap, in_axes=(0, None, None))
    @functools.partial(jax.vmap, in_axes=(None, 0, None))
    @functools.partial(jax.vmap, in_axes=(None, None, 0))
    def diagram(K, k, eta):
        signal = functools.partial(ensembles.gaussian_signal, d=D, K=K)
        problem = ensembles.planted(
            jax.random.key(0), functools.partial(ensembles.gaussian, n=N, d=D), signal
        )
        objective = LeastSquares(problem.A, problem.y, mean=False)
        return jaxht.solve(objective, Sparse(k, k_max=6), HTP(step_size=eta)).support.size

    def call(K, k, eta):
        return lambda: np.testing.assert_array_less(
            diagram(np.array(K), np.array(k), np.array(eta)), 7
        )

    assert compiled(call([1, 2, 3], [2, 4], [0.1, 0.5])).count("diagram") == 1
    assert "diagram" not in compiled(call([3, 4, 5], [6, 5], [1.0, 0.2]))


def test_more_coefficients_than_samples_are_warned_of():
    A = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    for run in (
        lambda: jaxht.solve(jaxht.LeastSquares(A, A[:, 0]), Sparse(6), jaxht.OMP()),
        lambda: jaxht.path(jaxht.LeastSquares(A, A[:, 0]), Sparse(), jaxht.OMP(), ks=[2, 6]),
    ):
        with pytest.warns(UserWarning, match="k = 6 is above the number of samples, 5"):
            run()
    assert jaxht.solve(jaxht.LeastSquares(A, A[:, 0], 0.1), Sparse(6), jaxht.OMP()).succeeded
