"""What every solver must do, whatever it is: the clauses below, on every row of
tests/contract.py."""

import dataclasses
import functools
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht.extend import advance, prepare, start
from tests.contract import (
    K_MAX,
    KINDS,
    LANES,
    NUM_STEPS,
    TABLE,
    baseline,
    doubled,
    key_data,
    keys,
    never,
    program,
    run,
    watched,
)
from tests.util import as_users, compiled_quickly, precision, return_memory

# Relative, where additions may be done in another order.
CLOSE = {"float32": 2e-4, "float64": 1e-9}


def close(a, b, case):
    scale = np.max(np.abs(b), initial=1e-3)
    np.testing.assert_allclose(a, b, rtol=0, atol=CLOSE[case.real_dtype] * scale)


def identical(a, b, case):
    """Bit by bit; but a GPU adds up the entries of a sparse design in any order, in every call
    anew."""
    if "csr" in case.words and jax.default_backend() != "cpu":
        jax.tree.map(functools.partial(close, case=case), a, b)
    else:
        jax.tree.map(np.testing.assert_array_equal, a, b)


# A solver's own findings, which do not hang on the last bits.
FINDINGS = (
    jaxht.Status.SUPPORT_STABLE,
    jaxht.Status.FINISHED,
    jaxht.Status.NO_PROGRESS,
    jaxht.Status.CYCLING,
)


def lane(tree, i):
    return jax.tree.map(lambda leaf: leaf[i], tree)


def failed(status):
    return jaxht.Status(int(status)).failed


def returned(case, points, i, status, end):
    """What a run of lane i with this history returns: the last point, or the best one of a pursuit
    that fell short."""
    best = case.solver.keeps_best and status in (
        jaxht.Status.MAX_STEPS,
        jaxht.Status.CYCLING,
        jaxht.Status.REFIT_FAILED,
        jaxht.Status.NO_MINIMISER,
    )
    t = np.argmin(points.value[i, : end + 1]) if best else end
    return points.x[i, t], points.value[i, t]


# What the numbers of solvers are called.
GLOSSARY = {
    "step_size": "eta, the step along the gradient",
    "backtrack": "whether a step after which f has not fallen is taken back",
    "momentum": "nu, the part of the last move that is repeated",
    "nesterov": "whether gradients are taken at extrapolated points",
    "inner_steps": "m, the updates in a step",
    "batch_size": "b, the samples in a batch, or the first of those that grow",
    "batch_growth": "1 / omega, by which batches grow",
    "replace": "whether a batch may hold a sample twice",
    "snapshot": "which inner iterate comes next",
    "radius": "omega, of the l2 ball",
    "c": "margin of the step condition of NIHT",
    "q": "factor by which NIHT shrinks a step",
    "rtol": "of a search inside of the method, relative",
    "expand": "how many times k coordinates of the gradient are merged",
    "debias": "whether x is improved on the support after pruning",
    "memory": "former points from which a step is extrapolated",
    "theta": "where CGIHT leaves a support, of the gradient elsewhere",
    "r": "coordinates that may enter the support in a step",
    "num_cores": "repetitions of the core of ARHT",
    "progress": "c of the progress condition of ARHT",
    "core_steps": "T, of a core of ARHT",
    "rho": "of the regulariser of ARHT",
    "lower": "a lower bound of f",
    "threshold": "epsilon of FoBa, the least gain",
    "ratio": "nu of FoBa, of a gain",
    "num_candidates": "supports refitted in a move of a search",
    "num_starts": "searches side by side",
    "num_moves": "swaps in a step",
    "patience": "steps without a decrease of f that end a search",
    "diminishing": "whether a step of the dual falls as 1 / t",
}


# ---- in every case: one program each -------------------------------------------------------------


def feasible(row, case):
    """Every iterate has at most k nonzeros, groups or edges, or rank k, exactly, for traced k that
    differ by lane."""
    _, history = baseline(row.name, case)
    k = case.batch().k
    for i in range(LANES):
        sizes = [case.problem.size(x) for x in history.iterate.x[i]]
        assert max(sizes) <= k[i]
        assert max(sizes) > 0


def reports_what_it_found(row, case):
    """x, value, support, counts and status are of the right type, finite, and belong together."""
    result, history = baseline(row.name, case)
    points, batch = history.iterate, case.batch()
    for array in (result.x, points.x):
        assert array.dtype == case.dtype and np.all(np.isfinite(array))
    for array in (result.value, points.value):
        assert array.dtype == case.real_dtype and np.all(np.isfinite(array))
    integers = (result.num_steps, result.status, result.counts.full_gradients)
    assert {(array.dtype, array.shape) for array in integers} == {(np.dtype(np.int32), (LANES,))}
    for i in range(LANES):
        expected = returned(case, points, i, result.status[i], NUM_STEPS)
        identical((result.x[i], result.value[i]), expected, case)
        values = [case.problem.value(case.words, doubled(x), **batch.lane(i)) for x in points.x[i]]
        close(points.value[i], values, case)
        assert jaxht.Status(int(result.status[i])).sentence
    case.problem.has_support(result.support, result.x)
    for name in ("full_gradients", "sample_gradients", "projections"):
        assert getattr(result.counts, name).shape == (LANES,)
        assert np.all(np.diff(getattr(history.counts, name), axis=1) >= 0)
    assert np.all(result.counts.ifo > 0)
    if result.gap is not None:
        slack = CLOSE[case.real_dtype] * np.abs(points.value)
        assert np.all(history.info.gap >= -slack)
        assert np.all(np.diff(history.info.gap, axis=1) <= slack[:, 1:])
    else:
        assert row.name not in ("DIHT", "SDIHT")


def starts_from_x0(row, case):
    """The first iterate is x0, projected; a start elsewhere is not forgotten."""
    _, history = baseline(row.name, case)
    batch = case.batch()
    for i in range(LANES):
        expected = case.problem.projected(batch.x0[i], batch.k[i])
        if case.problem.kind == "LowRank":  # whose projection rounds
            close(history.iterate.x[i, 0], expected, case)
        else:
            np.testing.assert_array_equal(history.iterate.x[i, 0], expected)


def nan_hurts_its_own_lane_only(row, case):
    """NaN in the data of lane 2 is INVALID_DATA there, with x at the start, and changes no bit of
    the others."""
    result, history = run(row.name, case, case.problem.poisoned(case.batch(), 2))
    assert (result.status[2], result.num_steps[2]) == (jaxht.Status.INVALID_DATA, 0)
    np.testing.assert_array_equal(result.x[2], history.iterate.x[2, 0])
    assert np.all(np.isfinite(result.x))
    others = np.array([0, 1, 3])
    identical(lane((result, history), others), lane(baseline(row.name, case), others), case)


def scales(row, case):
    """Units do not matter: rescaled data give rescaled iterates, step by step."""
    result, _ = baseline(row.name, case)
    scaled, solver, factor = case.problem.scaled(case.words, case.batch(), case.solver)
    other, _ = run(row.name, case, scaled, solver=solver)
    close(other.x, factor * result.x, case)
    if (
        case.problem.kind == "Edges"
    ):  # log det moves f by a constant, which rounds: a test of its fall may tie
        assert [failed(status) for status in other.status] == [
            failed(status) for status in result.status
        ]
        return
    identical(other.status, result.status, case)
    if row.name != "LocalSearch" or jax.__version_info__ >= (
        0,
        8,
    ):  # whose sums round less: no walk ties with another
        identical(other.num_steps, result.num_steps, case)


def permutes(row, case):
    """The order of the coordinates does not matter."""
    result, _ = baseline(row.name, case)
    order = case.problem.order(np.random.default_rng(0))
    other, _ = run(row.name, case, case.problem.permuted(case.batch(), order))
    # A step size from a power iteration, whose start is not permuted, changes the path but not the
    # end.
    np.testing.assert_allclose(other.x, case.problem.reordered(result.x, order), rtol=0, atol=1e-3)


def obeys_stop(row, case):
    """Each test of Stop ends the run where its definition, applied to the history, says so: at a
    step or the start."""
    full, history = baseline(row.name, case)
    plain, points = never(case), history.iterate
    change = np.linalg.norm(np.diff(points.x, axis=1).reshape(LANES, NUM_STEPS, -1), axis=-1)
    size = np.linalg.norm(points.x[:, 1:].reshape(LANES, NUM_STEPS, -1), axis=-1)
    same = case.problem.unmoved(points.x[:, 1:], points.x[:, :-1])
    streak = np.array(
        [[np.argmin(np.r_[flags[t::-1], False]) for t in range(NUM_STEPS)] for flags in same]
    )

    def after_steps(met):
        """With a column for the start, where nothing is to be compared with."""
        return np.pad(met, [(0, 0), (1, 0)])

    max_steps = np.arange(1, LANES + 1, dtype=np.int32)
    patience = np.array([1, 2, 3, 4], np.int32)
    # Thresholds in between, where the last bit cannot matter.
    above = points.value + 1e-3 * np.abs(points.value)
    rtol = np.sqrt(change[:, 1] * change[:, 2] / (size[:, 1] * size[:, 2])).astype(case.real_dtype)
    is_tested = (history.info.accepted & ~history.info.skip_fixed_point_test)[:, 1:]
    is_still = (change <= rtol[:, None] * size) & is_tested & case.solver.fixed_point_test
    if case.solver.fixed_point_steps == 2:
        loose = np.maximum(rtol[:, None], 100 * np.finfo(rtol.dtype).eps)
        was_still = (change <= loose * size) & is_tested
        is_still &= np.pad(was_still[:, :-1], [(0, 0), (1, 0)])
    tests = [
        (
            "max_steps",
            max_steps,
            np.arange(NUM_STEPS + 1) >= max_steps[:, None],
            jaxht.Status.MAX_STEPS,
        ),
        (
            "support_patience",
            patience,
            after_steps(streak >= patience[:, None]),
            jaxht.Status.SUPPORT_STABLE,
        ),
        ("rtol", rtol, after_steps(is_still), jaxht.Status.CONVERGED),
    ]
    for t in (0, 2):
        target = above[:, t]
        tests.append(
            ("target_value", target, points.value <= target[:, None], jaxht.Status.TARGET_REACHED)
        )
    if full.gap is not None:
        gap_rtol = (1.01 * history.info.gap[:, 3] / points.value[:, 3]).astype(case.real_dtype)
        closed = history.info.gap <= gap_rtol[:, None] * np.abs(points.value)
        tests.append(("gap_rtol", gap_rtol, closed, jaxht.Status.GAP_CLOSED))
    for name, number, met, status in tests:
        result, _ = run(row.name, case, stop=dataclasses.replace(plain, **{name: number}))
        for i in range(LANES):
            ends = np.flatnonzero(met[i])
            own_end, own_status = full.num_steps[i], full.status[i]
            if own_status == jaxht.Status.MAX_STEPS:
                own_end = NUM_STEPS + 1
            end = min(ends[0] if len(ends) else NUM_STEPS, own_end, NUM_STEPS)
            assert result.num_steps[i] == end, name
            identical(result.x[i], returned(case, points, i, result.status[i], end)[0], case)
            if end < own_end and len(ends):
                assert result.status[i] == status, name


def no_step_is_no_success(row, case):
    """A step size of NaN, infinity or 0, given or from columns whose square overflows, is named, x
    at the start."""
    if getattr(case.solver, "step_size", None) is not None:
        for step_size in (np.nan, np.inf, 0.0):
            result, history = run(
                row.name, case, solver=dataclasses.replace(case.solver, step_size=step_size)
            )
            np.testing.assert_array_equal(result.status, jaxht.Status.INVALID_STEP_SIZE)
            np.testing.assert_array_equal(result.num_steps, 0)
            np.testing.assert_array_equal(result.x, history.iterate.x[:, 0])
        return
    result, history = run(row.name, case, case.problem.overflowing(case.batch()))
    assert np.all(np.isfinite(result.x))
    start = history.iterate.x[:, 0]
    for status, x, first in zip(result.status, result.x, start, strict=True):
        # A solver that takes no step along the gradient may find its way.
        assert status in NO_STEP or not takes_steps(case.solver), jaxht.Status(int(status)).name
        assert status not in NO_STEP or np.array_equal(x, first)


# Where f overflows at x0, the start is at fault, and at zero the data.
NO_STEP = (
    jaxht.Status.DIVERGED,
    jaxht.Status.INVALID_DATA,
    jaxht.Status.INVALID_START,
    jaxht.Status.INVALID_STEP_SIZE,
)


def takes_steps(solver):
    """Whether it moves along the gradient, by a step of its own or of the user's."""
    return "step_size" in {field.name for field in dataclasses.fields(solver)} or isinstance(
        solver, jaxht.NIHT
    )


def resumes(row, case):
    """Advanced in pieces or at once, in a batch: the same bits."""
    _, history = baseline(row.name, case)
    ends = []
    for pieces in ([8, 0, 0, 0], [1, 0, 2, 5]):
        padded = np.zeros(NUM_STEPS, np.int32)
        padded[:4] = pieces
        ends.append(lane(run(row.name, case, pieces=padded)[1], np.s_[:, -1]))
    identical(*ends, case)
    assert 1 <= np.max(ends[0].num_steps) <= 8
    identical(ends[0], lane(history, np.s_[:, 8]), case)


def keeps_its_types(row, case):
    """A step returns what it was given, in shape and dtype, of real numbers under strict promotion;
    x has the objective's dtype, and f(x) that of its real parts."""
    result, _ = baseline(row.name, case)
    steps = program(row.name, case)[1]
    assert steps
    for before, after in steps:
        assert jax.tree.structure(before) == jax.tree.structure(after)
        assert jax.tree.leaves(before) == jax.tree.leaves(after)
        assert not any(described.endswith("True") for described in jax.tree.leaves(after))  # weak
    assert result.x.shape == case.batch().x0.shape and result.value.shape == (LANES,)
    assert result.x.dtype == case.dtype and result.value.dtype == case.real_dtype


# ---- for every row, in its first case, and some in its case of complex numbers -------------------


def steps_alike_without_jit(row, case):
    """The start and a step compute the same with jit disabled."""
    _, history = baseline(row.name, case)
    batch = case.batch()
    constraint, stop = (
        case.problem.constraint(jnp.asarray(batch.k[2]), row.k_max(case)),
        lane(never(case), 2),
    )
    problem, x0, key = prepare(
        case.objective(batch.lane(2)),
        constraint,
        case.solver,
        x0=batch.x0[2],
        key=keys()[2],
        stop=stop,
    )
    with jax.disable_jit(), compiled_quickly():  # each operation is a program
        before = start(problem, x0, key)
        carries = [before, advance(problem, before, 1)]
    for t, ours in enumerate(carries):
        theirs = lane(history, (2, t))
        assert jax.tree.structure(ours) == jax.tree.structure(theirs)
        identical((ours.status, ours.num_steps), (theirs.status, theirs.num_steps), case)
        identical(jax.tree.map(np.asarray, ours.counts), theirs.counts, case)
        for one, other in zip(
            jax.tree.leaves(jax.tree.map(key_data, ours)), jax.tree.leaves(theirs), strict=True
        ):
            if jnp.issubdtype(one.dtype, jnp.inexact):
                close(one, other, case)


def runs_alone_and_compiles_once(row, case):
    """By itself: Python, NumPy and JAX numbers share one trace, and another one within traces; a
    larger k_max and the default start change nothing."""
    batch, traces = case.batch(), []
    result, _ = baseline(row.name, case)
    solver = watched(case.solver, traces, [])(case.solver)
    fields = [field for field in dataclasses.fields(solver) if not field.metadata.get("static")]
    numbers = {field.name: getattr(solver, field.name) for field in fields}

    def solve(i, k, size, factor, **limits):
        changed = {
            name: (number + size if isinstance(number, int) else number * factor)
            for name, number in numbers.items()
            if number is not None
        }
        stop = jaxht.Stop(
            **{
                "max_steps": NUM_STEPS,
                "rtol": 0,
                "support_patience": 10**6,
                "gap_rtol": 0.0,
                **limits,
            }
        )
        constraint = case.problem.constraint(k, case.problem.most)
        changed = dataclasses.replace(solver, **changed)
        with compiled_quickly():
            return jaxht.solve(
                case.objective(batch.lane(i)), constraint, changed, stop=stop, key=keys()[i]
            )

    # The lanes that start at zero, which is the default.
    for alone, i in [
        (solve(0, int(batch.k[0]), 0, 1), 0),
        (solve(1, batch.k[1], 0, np.dtype(case.real_dtype).type(1)), 1),
    ]:
        assert case.problem.size(np.asarray(alone.x)) <= batch.k[i]
        close(alone.x, result.x[i], case)
        identical(alone.support.mask, result.support.mask[i], case)
        indices = alone.support.indices
        np.testing.assert_array_equal(
            np.flatnonzero(alone.support.mask), indices[indices < alone.x.size]
        )
        if result.status[i] in FINDINGS:
            assert (alone.status, alone.num_steps) == (result.status[i], result.num_steps[i])
    for size, factor in [(np.int64(3), np.float32(2)), (jnp.asarray(4), jnp.asarray(0.25))]:
        jax.eval_shape(
            lambda size=size, factor=factor: solve(
                0, size, size, factor, max_steps=size, rtol=factor
            )
        )
    jax.eval_shape(
        jax.vmap(lambda size, factor: solve(0, size, size, factor)),
        np.arange(3),
        np.linspace(1, 2, 3),
    )
    # Of five calls two; one more where the library dropped its programs meanwhile, as it does when
    # they are too many.
    assert 2 <= len(traces) <= 3


def feasible_as_users_run(row, case):
    """In a batch, optimised by XLA as far as it goes: at most k entries, of gradients that tie but
    for rounding, and of complex ones whose magnitudes do.

    Where XLA computed a vector twice, in kernels that round differently, a threshold from the one
    once kept k + 1 entries of the other. The designs have every column twice, but for the last bit.
    By turns of the rows in float32, of so few entries that they are ranked, and in float64, of so
    many that the k-th largest is searched for.
    """
    dtype, d = [("float32", 12), ("float64", 20)][list(TABLE).index(row.name) % 2]
    lanes, n, rng = 32, 24, np.random.default_rng(0)
    with precision(dtype):
        A = np.tile(rng.normal(size=(lanes, n, d // 2)), (1, 1, 2))
        A *= 1 + np.finfo(dtype).eps * rng.integers(-1, 2, A.shape)
        if case.is_complex:
            A = A * np.exp(2j * np.pi * rng.random((lanes, 1, d)))
        y = np.einsum("lnd,ld->ln", A, rng.normal(size=(lanes, d)) * (rng.random((lanes, d)) < 0.4))
        given = np.result_type(dtype, np.complex64) if case.is_complex else dtype
        A, y = A.astype(given), y.astype(given)
        k = rng.integers(1, K_MAX, lanes)

        def solve(A, y, k, key):
            objective = jaxht.LeastSquares(A, y, 0.1, mean=True)
            stop = jaxht.Stop(max_steps=20)
            return jaxht.solve(
                objective, jaxht.Sparse(k, k_max=K_MAX), case.solver, key=key, stop=stop
            )

        result = as_users(jax.vmap(solve))(A, y, k, jax.random.split(jax.random.key(0), lanes))
        sizes = np.count_nonzero(result.x, axis=1)
        assert np.all(sizes <= k) and np.all(sizes > 0)
        np.testing.assert_array_equal(result.support.mask, result.x != 0)
        np.testing.assert_array_equal(result.support.size, sizes)


def leaks_no_tracers(row, case):
    """No state is kept outside of the carry."""
    arrays = case.batch().lane(0)
    with jax.checking_leaks():
        constraint = case.problem.constraint(3, K_MAX)
        jax.eval_shape(
            lambda: jaxht.solve(case.objective(arrays), constraint, case.solver, key=keys()[0])
        )


def asks_for_k_max_if_it_gathers(row, case):
    """A traced k without k_max is enough, or the error says what to give."""
    for case in row.cases[:2]:
        batch = case.problem.held(case.words, case.batch())

        def solve(k, case=case, batch=batch):
            constraint = case.problem.constraint(k, None)
            return jaxht.solve(
                case.objective(batch.lane(0)), constraint, case.solver, key=keys()[0]
            )

        with precision(case.real_dtype):
            if row.gathers(case):
                with pytest.raises(ValueError, match="k_max"):
                    jax.eval_shape(solve, 3)
            else:  # as it was run with
                assert row.k_max(case) is None
                assert getattr(baseline(row.name, case)[0].support, "indices", None) is None


def refuses_what_it_cannot_solve(row, case):
    """Of each kind of problem the row has a case, or the error that says why not."""
    solved = set().union(*(case.kinds for case in row.cases))
    assert set(KINDS) <= solved | set(row.refuses)
    for refused, message in row.refuses.values():
        arrays = refused.batch().lane(0)
        constraint = refused.problem.constraint(1, 1)
        with precision(refused.real_dtype), pytest.raises(ValueError, match=message):
            jaxht.solve(refused.objective(arrays), constraint, refused.solver, key=keys()[0])


def has_the_protocol(row, case):
    """Methods have the protocol's parameters, numbers the names that the other solvers have for
    them."""
    solver = type(row.solver)
    assert list(inspect.signature(solver.init).parameters) == [
        "self",
        "objective",
        "constraint",
        "x0",
        "key",
    ]
    assert list(inspect.signature(solver.step).parameters) == [
        "self",
        "objective",
        "constraint",
        "iterate",
        "state",
    ]
    assert isinstance(solver.fixed_point_test, bool) and isinstance(solver.needs_key, bool)
    unknown = {field.name for field in dataclasses.fields(solver)} - set(GLOSSARY)
    assert not unknown, "use the name that there is, or add it to the glossary"


def documents_itself(row, case):
    """Its docstring starts with a sentence, explains each parameter, and names cost and source."""
    doc = inspect.getdoc(type(row.solver))
    assert re.match(r"(.+\n)?.+\.(\n\n|$)", doc)
    for field in dataclasses.fields(row.solver):
        assert re.search(rf"^    {field.name}: ", doc, re.MULTILINE), field.name
    for section in ("Args:", "Cost", "Source:"):
        assert section in doc or (section == "Args:" and not dataclasses.fields(row.solver))


# ---- the clauses on the table --------------------------------------------------------------------

IN_EVERY_CASE = [
    feasible,
    reports_what_it_found,
    starts_from_x0,
    nan_hurts_its_own_lane_only,
    scales,
    permutes,
    obeys_stop,
    no_step_is_no_success,
    resumes,
    keeps_its_types,
]
FOR_EVERY_ROW = [
    steps_alike_without_jit,
    runs_alone_and_compiles_once,
    feasible_as_users_run,
    leaks_no_tracers,
    asks_for_k_max_if_it_gathers,
    refuses_what_it_cannot_solve,
    has_the_protocol,
    documents_itself,
]


def contract():
    """Clause, row and case, those of one compile together."""
    for place, row in enumerate(TABLE.values()):
        for case in row.cases:
            clauses = list(IN_EVERY_CASE)
            if case is row.cases[0]:
                clauses += FOR_EVERY_ROW
            elif case.is_complex:
                clauses.append(runs_alone_and_compiles_once)
                if place % 4 == 0:  # by turns, since they are long to compile
                    clauses += [steps_alike_without_jit, feasible_as_users_run]
            for clause in clauses:
                yield pytest.param(
                    clause, row, case, id=f"{row.name}-{case.problem.kind}-{case}-{clause.__name__}"
                )


@pytest.fixture(scope="module")
def rows():
    """The rows of which the memory holds programs."""
    return []


@pytest.mark.parametrize(("clause", "row", "case"), list(contract()))
def test_contract(clause, row, case, rows):
    if row not in rows:
        program.cache_clear()
        baseline.cache_clear()
        if (
            len(rows) == 4
        ):  # those that share the library's own programs, without jit one for each operation
            rows.clear()
            jax.clear_caches()
        return_memory()
        rows.append(row)
    with precision(case.real_dtype):
        clause(row, case)


def test_every_solver_is_in_the_table():
    solvers = {
        name
        for name in dir(jaxht.solvers)
        if hasattr(getattr(jaxht.solvers, name), "fixed_point_test")
    }
    assert solvers - {"Solver"} == {
        type(case.solver).__name__ for row in TABLE.values() for case in row.cases
    }
