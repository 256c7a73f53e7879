"""What every solver must do, whatever it is: the clauses below, on every row of tests/contract.py."""

import contextlib
import dataclasses
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht._pytree import pytree
from jaxht.runner import advance, prepare, start
from tests.contract import LANES, NUM_STEPS, QUICK, TABLE, baseline, keys, never, run
from tests.util import compiled_quickly, precision

# Relative, where additions may be done in another order.
CLOSE = {"float32": 2e-4, "float64": 1e-9}


def close(a, b, case):
    scale = np.max(np.abs(b), initial=1e-3)
    np.testing.assert_allclose(a, b, rtol=0, atol=CLOSE[case.dtype] * scale)


def identical(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


# A solver's own findings, which do not hang on the last bits.
VERDICTS = (jaxht.Status.SUPPORT_STABLE, jaxht.Status.FINISHED, jaxht.Status.NO_PROGRESS, jaxht.Status.CYCLING)


def lane(tree, i):
    return jax.tree.map(lambda leaf: leaf[i], tree)


# What the numbers of solvers are called.
GLOSSARY = {
    "step_size": "eta, the step along the gradient",
    "backtrack": "whether a step after which f has not fallen is taken back",
    "momentum": "nu, the part of the last move that is repeated",
    "nesterov": "whether the gradient is taken after the momentum",
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
    "debias": "whether f is minimised on the support after pruning",
    "r": "coordinates that may enter the support in a step",
    "num_cores": "repetitions of the core of ARHT",
    "progress": "c of the progress condition of ARHT",
    "core_steps": "T, of a core of ARHT",
    "rho": "of the regulariser of ARHT",
    "lower": "a lower bound of f",
    "threshold": "epsilon of FoBa, the least gain",
    "ratio": "nu of FoBa, of a gain",
    "diminishing": "whether a step of the dual falls as 1 / t",
}


# ---- in every case -------------------------------------------------------------------------------------------------


def feasible(row, case):
    """Every iterate has at most k nonzeros, exactly, for traced k that differ by lane."""
    _, history = baseline(row.name, case)
    k = case.problem.batch(case).k
    for i in range(LANES):
        sizes = [case.problem.size(x) for x in history.x[i]]
        assert max(sizes) <= k[i]
        assert max(sizes) > 0


def reports_what_it_found(row, case):
    """x, value, support, counts and status are of the right type, finite, and belong together."""
    result, history = baseline(row.name, case)
    batch = case.problem.batch(case)
    for array in (result.x, result.value, history.x, history.value):
        assert array.dtype == case.dtype and np.all(np.isfinite(array))
    integers = (result.num_steps, result.status, result.counts.full_gradients)
    assert {(array.dtype, array.shape) for array in integers} == {(np.dtype(np.int32), (LANES,))}
    np.testing.assert_array_equal(result.x, history.x[:, -1])
    for i in range(LANES):
        values = [case.problem.value(batch.lane(i), np.asarray(x, np.float64)) for x in history.x[i]]
        close(history.value[i], values, case)
        assert jaxht.Status(int(result.status[i])).sentence
    np.testing.assert_array_equal(result.support.mask, case.problem.support(result.x))
    for name in ("full_gradients", "sample_gradients", "projections"):
        assert getattr(result.counts, name).shape == (LANES,)
        assert np.all(np.diff(getattr(history.counts, name), axis=1) >= 0)
    assert np.all(result.counts.ifo > 0)
    if result.gap is not None:
        slack = CLOSE[case.dtype] * np.abs(history.value)
        assert np.all(history.gap >= -slack)
        assert np.all(np.diff(history.gap, axis=1) <= slack[:, 1:])


def starts_from_x0(row, case):
    """The first iterate is x0, projected; a start elsewhere is not forgotten."""
    _, history = baseline(row.name, case)
    batch = case.problem.batch(case)
    for i in range(LANES):
        np.testing.assert_array_equal(history.x[i, 0], case.problem.projected(batch.x0[i], batch.k[i]))


def nan_hurts_its_own_lane_only(row, case):
    """NaN in the data of lane 2 is DIVERGED there, with x at the start, and changes no bit of the others."""
    batch = case.problem.batch(case)
    result, history = run(row.name, case, case.problem.poisoned(batch, 2))
    assert result.status[2] == jaxht.Status.DIVERGED
    np.testing.assert_array_equal(result.x[2], history.x[2, 0])
    assert np.all(np.isfinite(result.x))
    others = np.array([0, 1, 3])
    identical(lane((result, history), others), lane(baseline(row.name, case), others))


def scales(row, case):
    """Units do not matter: rescaled data give rescaled iterates, step by step."""
    batch = case.problem.batch(case)
    result, _ = baseline(row.name, case)
    scaled, solver, factor = case.problem.scaled(batch, row.solver)
    other, _ = run(row.name, case, scaled, solver=solver)
    close(other.x, factor * result.x, case)
    identical((other.status, other.num_steps), (result.status, result.num_steps))


def permutes(row, case):
    """The order of the coordinates does not matter."""
    batch = case.problem.batch(case)
    result, _ = baseline(row.name, case)
    order = case.problem.order(np.random.default_rng(0))
    other, _ = run(row.name, case, case.problem.permuted(batch, order))
    # A step size from a power iteration, whose start is not permuted, changes the path but not the end.
    np.testing.assert_allclose(other.x, case.problem.reordered(result.x, order), rtol=0, atol=1e-3)


def obeys_stop(row, case):
    """Each test of Stop ends the run where its definition, applied to the history, says so: at a step or the start."""
    full, history = baseline(row.name, case)
    plain = never(case)
    change = np.linalg.norm(np.diff(history.x, axis=1).reshape(LANES, NUM_STEPS, -1), axis=-1)
    size = np.linalg.norm(history.x[:, 1:].reshape(LANES, NUM_STEPS, -1), axis=-1)
    support = history.x != 0
    same = np.all((support[:, 1:] == support[:, :-1]).reshape(LANES, NUM_STEPS, -1), axis=-1)
    streak = np.array([[np.argmin(np.r_[flags[t::-1], False]) for t in range(NUM_STEPS)] for flags in same])

    def after_steps(met):
        """With a column for the start, where nothing is to be compared with."""
        return np.pad(met, [(0, 0), (1, 0)])

    max_steps = np.arange(1, LANES + 1, dtype=np.int32)
    patience = np.array([1, 2, 3, 4], np.int32)
    # Thresholds in between, where the last bit cannot matter.
    above = history.value + 1e-3 * np.abs(history.value)
    rtol = np.sqrt(change[:, 1] * change[:, 2] / (size[:, 1] * size[:, 2])).astype(case.dtype)
    is_still = (change <= rtol[:, None] * size) & row.solver.fixed_point_test
    if history.skip_fixed_point_test is not None:
        is_still &= ~history.skip_fixed_point_test[:, 1:]
    tests = [
        ("max_steps", max_steps, np.arange(NUM_STEPS + 1) >= max_steps[:, None], jaxht.Status.MAX_STEPS),
        ("support_patience", patience, after_steps(streak >= patience[:, None]), jaxht.Status.SUPPORT_STABLE),
        ("rtol", rtol, after_steps(is_still), jaxht.Status.CONVERGED),
    ]
    for t in (0, 2):
        target = above[:, t]
        tests.append(("target_value", target, history.value <= target[:, None], jaxht.Status.TARGET_REACHED))
    if full.gap is not None:
        gap_rtol = (1.01 * history.gap[:, 3] / history.value[:, 3]).astype(case.dtype)
        closed = history.gap <= gap_rtol[:, None] * np.abs(history.value)
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
            np.testing.assert_array_equal(result.x[i], history.x[i, end])
            if end < own_end and len(ends):
                assert result.status[i] == status, name


def no_step_is_no_success(row, case):
    """A step size of NaN, infinity or 0 ends as a failure, with x at the start."""
    if getattr(row.solver, "step_size", None) is None:
        return
    for step_size in (np.nan, np.inf, 0.0):
        result, history = run(row.name, case, solver=dataclasses.replace(row.solver, step_size=step_size))
        assert all(jaxht.Status(int(status)).failed for status in result.status)
        np.testing.assert_array_equal(result.x, history.x[:, 0])


def keeps_its_types(row, case):
    """A step returns what it was given, in shape and dtype, under strict promotion; x has the objective's dtype."""
    batch = case.problem.batch(case)
    with jax.numpy_dtype_promotion("strict"):
        problem, x0, key = prepared_lane(row, case)
        before = jax.eval_shape(init, problem, x0, key)
        after = jax.eval_shape(step, problem, *before)
        result = jax.eval_shape(lambda: jaxht.solve(batch.lane(0), case.problem.constraint(3, 5), row.solver, key=key))
    assert jax.tree.structure(before) == jax.tree.structure(after)
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert describe(old) == describe(new)
    assert describe(result.x) == (batch.x0.shape[1:], case.dtype, False)
    assert describe(result.value) == ((), case.dtype, False)


def describe(leaf):
    return leaf.shape, str(leaf.dtype), leaf.weak_type


def init(problem, x0, key):
    return problem.solver.init(problem.objective, problem.constraint, x0, key)


def step(problem, iterate, state):
    return problem.solver.step(problem.objective, problem.constraint, iterate, state)


def prepared_lane(row, case):
    """Problem, x0 and key of lane 2."""
    batch = case.problem.batch(case)
    constraint, stop = case.problem.constraint(batch.k[2], row.k_max(case)), lane(never(case), 2)
    return prepare(batch.lane(2), constraint, row.solver, stop, batch.x0[2], keys()[2])


# ---- in one case, some in turn ------------------------------------------------------------------------------------


def steps_alike_without_jit(row, case):
    """The start and a step compute the same with jit disabled."""
    problem, x0, key = prepared_lane(row, case)
    x0, _ = problem.constraint.project(jnp.asarray(x0))

    def both(problem, x0, key):
        before = init(problem, x0, key)
        return before, step(problem, *before)

    compiled = jax.jit(both, compiler_options=QUICK)(problem, x0, key)
    with jax.disable_jit():
        eager = both(problem, x0, key)
    assert jax.tree.structure(compiled) == jax.tree.structure(eager)
    for (ours, _), (theirs, _) in zip(compiled, eager, strict=True):
        identical((ours.status, ours.counts), (theirs.status, theirs.counts))
    for ours, theirs in zip(jax.tree.leaves(compiled), jax.tree.leaves(eager), strict=True):
        if jnp.issubdtype(ours.dtype, jnp.floating):
            close(ours, theirs, case)


def runs_alone_and_padded_alike(row, case):
    """A lane of the batch is what an eager solve with Python numbers, the largest k_max and a default start gives."""
    batch = case.problem.batch(case)
    result, _ = baseline(row.name, case)
    stop = jaxht.Stop(max_steps=NUM_STEPS, rtol=0, support_patience=10**6, gap_rtol=0.0)
    for i in range(2):  # the lanes that start there
        constraint = case.problem.constraint(int(batch.k[i]), case.problem.most)
        with contextlib.nullcontext() if row.thorough else compiled_quickly():
            alone = jaxht.solve(batch.lane(i), constraint, row.solver, key=keys()[i], stop=stop)
        close(alone.x, result.x[i], case)
        identical(alone.support.mask, result.support.mask[i])
        indices = getattr(alone.support, "indices", None)
        if indices is not None:
            np.testing.assert_array_equal(np.flatnonzero(alone.support.mask), indices[indices < alone.x.size])
        if result.status[i] in VERDICTS:
            assert (alone.status, alone.num_steps) == (result.status[i], result.num_steps[i])


def resumes(row, case):
    """Advanced in pieces or at once, in a batch: the same bits."""
    batch = case.problem.batch(case)

    def lane(pieces, objective, k, x0, key, stop):
        constraint = case.problem.constraint(k, row.k_max(case))
        problem, x0, key = prepare(objective, constraint, row.solver, stop, x0, key)
        carry, _ = jax.lax.scan(lambda carry, n: (advance(problem, carry, n), None), start(problem, x0, key), pieces)
        return carry

    run_pieces = jax.jit(jax.vmap(lane, (None, batch.axes, 0, 0, 0, 0)), compiler_options=QUICK)
    at_once, in_pieces = (
        run_pieces(jnp.array(pieces), batch.objective, batch.k, batch.x0, keys(), never(case))
        for pieces in ([8, 0, 0, 0], [1, 0, 2, 5])
    )
    identical(*jax.tree.map(key_data, (at_once, in_pieces)))
    assert 1 <= np.max(at_once.num_steps) <= 8
    _, history = baseline(row.name, case)
    close(at_once.iterate.x, history.x[np.arange(LANES), at_once.num_steps], case)


def key_data(leaf):
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def compiles_once(row, case):
    """Different Python, NumPy and JAX numbers share one trace, and so do the lanes of a grid of them."""
    solver, traces = counted(row.solver)
    objective = case.problem.batch(case).lane(0)
    fields = [field for field in dataclasses.fields(solver) if not field.metadata.get("static")]
    numbers = {field.name: getattr(solver, field.name) for field in fields}

    def solve(size, factor):
        changed = {
            name: size if isinstance(number, int) else number * factor
            for name, number in numbers.items()
            if number is not None
        }
        stop = jaxht.Stop(max_steps=size, rtol=1e-3 * factor, target_value=-factor)
        changed = dataclasses.replace(solver, **changed)
        return jaxht.solve(objective, case.problem.constraint(size, 5), changed, stop=stop, key=keys()[0])

    for size, factor in [(1, 1), (2, 0.5), (np.int64(3), np.float32(2)), (jnp.asarray(4), jnp.asarray(0.25))]:
        jax.eval_shape(lambda size=size, factor=factor: solve(size, factor))
    jax.eval_shape(jax.vmap(solve), np.arange(3), np.linspace(1, 2, 3))
    assert len(traces) == 1


def counted(solver):
    """A solver that does the same, and a list that grows whenever it is traced."""
    traces = []

    def init(self, *args):
        traces.append(self)
        return type(solver).init(self, *args)

    kind = pytree(type("Counted", (type(solver),), {"init": init}))
    return kind(**{f.name: getattr(solver, f.name) for f in dataclasses.fields(solver)}), traces


def leaks_no_tracers(row, case):
    """No state is kept outside of the carry."""
    batch = case.problem.batch(case)
    with jax.checking_leaks():
        jax.eval_shape(lambda: jaxht.solve(batch.lane(0), case.problem.constraint(3, 5), row.solver, key=keys()[0]))


def asks_for_k_max_if_it_gathers(row, case):
    """A traced k without k_max is enough, or the error says what to give."""
    batch = case.problem.batch(case)

    def solve(k):
        return jaxht.solve(batch.lane(0), case.problem.constraint(k, None), row.solver, key=keys()[0])

    if row.gathers(case):
        with pytest.raises(ValueError, match="k_max"):
            jax.eval_shape(solve, 3)
    else:
        assert getattr(jax.eval_shape(solve, 3).support, "indices", None) is None


def has_the_protocol(row, case):
    """Methods have the protocol's parameters, numbers the names that the other solvers have for them."""
    solver = type(row.solver)
    assert list(inspect.signature(solver.init).parameters) == ["self", "objective", "constraint", "x0", "key"]
    assert list(inspect.signature(solver.step).parameters) == ["self", "objective", "constraint", "iterate", "state"]
    assert isinstance(solver.fixed_point_test, bool) and isinstance(solver.needs_key, bool)
    unknown = {field.name for field in dataclasses.fields(solver)} - set(GLOSSARY)
    assert not unknown, "use the name that there is, or add it to the glossary"


def documents_itself(row, case):
    """Its docstring starts with a sentence, explains each parameter, and names cost and source."""
    doc = inspect.getdoc(type(row.solver))
    assert re.match(r".+\.(\n\n|$)", doc)
    for field in dataclasses.fields(row.solver):
        assert re.search(rf"^    {field.name}: ", doc, re.MULTILINE), field.name
    for section in ("Args:", "Cost", "Source:"):
        assert section in doc


# ---- the clauses on the table --------------------------------------------------------------------------------------

IN_EVERY_CASE = [
    feasible,
    reports_what_it_found,
    starts_from_x0,
    nan_hurts_its_own_lane_only,
    scales,
    permutes,
    obeys_stop,
    no_step_is_no_success,
    keeps_its_types,
]
IN_THE_FIRST_CASE = [
    steps_alike_without_jit,  # the rows share the compiled primitives
]
THOROUGH = [
    resumes,
    leaks_no_tracers,
]
IN_ONE_CASE = [
    runs_alone_and_padded_alike,
    compiles_once,
    asks_for_k_max_if_it_gathers,
    has_the_protocol,
    documents_itself,
]


def contract():
    """Clause, row and case, those of one compile together; the case of IN_ONE_CASE goes around."""
    for i, row in enumerate(TABLE.values()):
        for j, case in enumerate(row.cases):
            clauses = list(IN_EVERY_CASE)
            clauses += IN_THE_FIRST_CASE if j == 0 and row.thorough else []
            clauses += THOROUGH if j == i % len(row.cases) and row.thorough else []
            clauses += IN_ONE_CASE if j == i % len(row.cases) else []
            for clause in clauses:
                reason = row.fails.get(clause.__name__)
                marks = [pytest.mark.xfail(reason=reason)] if reason else []
                yield pytest.param(clause, row, case, id=f"{row.name}-{case}-{clause.__name__}", marks=marks)


@pytest.mark.parametrize(("clause", "row", "case"), list(contract()))
def test_contract(clause, row, case):
    with precision(case.dtype):
        clause(row, case)


def test_expected_failures_name_clauses():
    clauses = {clause.__name__ for clause in IN_EVERY_CASE + IN_THE_FIRST_CASE + THOROUGH + IN_ONE_CASE}
    for row in TABLE.values():
        assert set(row.fails) <= clauses
        assert all(row.fails.values())
