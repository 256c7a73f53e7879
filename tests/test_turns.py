"""Tries of a step are turns of the run's loop: no lane waits for the tries of another, and neither
its steps nor its counts depend on them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxht
from jaxht import sweep
from jaxht.extend import advance, prepare, start
from jaxht.runner import one_turn
from jaxht.solvers import pursuit

N, D, K = 40, 64, 10
A = jaxht.ensembles.gaussian(jax.random.key(0), N, D)
# The first lanes are at the solution after few steps; the others try often.
SIGNALS = jax.vmap(lambda key: jaxht.ensembles.gaussian_signal(key, D, K))(
    jax.random.split(jax.random.key(1), 8)
)
SIGNALS = SIGNALS.at[:2].set(jnp.where(jnp.arange(D) < 1, 1, 0))
Y = SIGNALS @ A.T
STOP = jaxht.Stop(max_steps=80)


def count_loops(program):
    """The while loops of a jaxpr and of all that it calls."""
    count = 0
    for equation in program.eqns:
        count += equation.primitive.name in ("while", "scan")
        for value in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(value, "jaxpr", value)
            count += count_loops(inner) if hasattr(inner, "eqns") else 0
    return count


def problem_of(y, solver):
    return prepare(jaxht.LeastSquares(A, y), jaxht.Sparse(K), solver, stop=STOP)


def solve(y, solver):
    return jaxht.solve(jaxht.LeastSquares(A, y), jaxht.Sparse(K), solver, stop=STOP)


@pytest.mark.parametrize(
    ("solver", "difference"), [(jaxht.NIHT(), 20), (jaxht.HTP(backtrack=True), 10)]
)
def test_lanes_that_try_often_change_nothing_beside_them(solver, difference):
    """The same program on a lane beside others, and beside copies of itself."""
    run = jax.jit(jax.vmap(lambda y: solve(y, solver)))
    together = run(Y)
    gradients = np.array(together.counts.full_gradients)
    assert gradients.max() > difference + gradients.min()
    for i in (gradients.argmin(), gradients.argmax()):
        alone = jax.tree.map(lambda leaf: leaf[0], run(jnp.broadcast_to(Y[i], Y.shape)))
        lane = jax.tree.map(lambda leaf, i=i: leaf[i], together)
        jax.tree.map(np.testing.assert_array_equal, lane, alone)


def test_a_turn_that_only_tries_leaves_the_run_as_it_is():
    """The iterate, the steps, the patience and the status; it counts what it cost."""
    stop = jaxht.Stop(max_steps=80, support_patience=3)
    problem, x0, key = prepare(
        jaxht.LeastSquares(A, Y[-1]), jaxht.Sparse(K), jaxht.NIHT(), stop=stop
    )
    carry = start(problem, x0, key)
    turn = jax.jit(one_turn)
    num_tries = 0
    while int(carry.status) == jaxht.Status.RUNNING:
        new = turn(problem, carry)
        assert int(new.counts.full_gradients) == int(carry.counts.full_gradients) + 1
        assert int(new.counts.projections) == int(carry.counts.projections) + 1
        if bool(new.info.ends_step):
            assert int(new.num_steps) == int(carry.num_steps) + 1
        else:
            num_tries += 1
            assert int(new.num_steps) == int(carry.num_steps)
            assert int(new.patience) == int(carry.patience)
            assert int(new.status) == jaxht.Status.RUNNING
            np.testing.assert_array_equal(new.iterate.x, carry.iterate.x)
        carry = new
    assert num_tries > 0
    result = jaxht.solve(jaxht.LeastSquares(A, Y[-1]), jaxht.Sparse(K), jaxht.NIHT(), stop=stop)
    assert int(result.num_steps) == int(carry.num_steps)
    assert int(result.status) == int(carry.status)


def test_steps_are_whole_outside_of_the_loop():
    """``advance`` by one step, and ``trace``, which records every step."""
    solver = jaxht.NIHT()
    problem, x0, key = problem_of(Y[-1], solver)
    carry = start(problem, x0, key)
    values = [float(carry.iterate.value)]
    for i in range(12):
        carry = advance(problem, carry, 1)
        assert int(carry.num_steps) == i + 1 and bool(carry.info.ends_step)
        values.append(float(carry.iterate.value))
    f = jaxht.LeastSquares(A, Y[-1])
    _, traced = jaxht.trace(f, jaxht.Sparse(K), solver, num_steps=12)
    np.testing.assert_allclose(traced, values, rtol=1e-4)


PAIRS = {
    "HTP": (jaxht.HTP(backtrack=True), jaxht.HTP()),
    "PHT": (jaxht.PHT(backtrack=True), jaxht.PHT()),
    "NIHT": (jaxht.NIHT(), jaxht.IHT()),
}


@pytest.mark.parametrize("name", list(PAIRS))
def test_a_step_has_no_loop_of_tries(name):
    """No other loops than those of a solver that never tries: of its projection and its refit."""

    def count(solver):
        problem, x0, key = problem_of(Y[0], solver)
        carry = start(problem, x0, key)

        def step(problem, carry):
            return solver.step(problem.objective, problem.constraint, carry.iterate, carry.state)

        return count_loops(jax.make_jaxpr(step)(problem, carry))

    trying, other = map(count, PAIRS[name])
    assert trying == other


CONSTRAINTS = {
    "coordinates": jaxht.Sparse(4),
    "with an intercept": jaxht.Sparse(4, keep=jnp.arange(24) == 3),
    "nonnegative": jaxht.Sparse(4, nonnegative=True),
    "in a box": jaxht.Sparse(4, bounds=(-0.3, 0.4)),
    "groups": jaxht.Groups(2, np.arange(24) // 3),
    "all": jaxht.Sparse(24),
    "none": jaxht.Sparse(0),
}


@pytest.mark.parametrize("name", list(CONSTRAINTS))
@pytest.mark.parametrize("solver", [jaxht.HTP(backtrack=True), jaxht.PHT(r=2, backtrack=True)])
def test_the_bisection_finds_the_halvings_of_a_search_one_by_one(name, solver):
    """At refitted points, for supports that were found with longer steps."""
    A = jaxht.ensembles.gaussian(jax.random.key(2), 16, 24)

    @jax.jit
    @jax.vmap
    def compare(y, halvings):
        f = jaxht.LeastSquares(A, y, mean=False)
        problem, x0, key = prepare(f, CONSTRAINTS[name], solver)
        carry = one_turn(problem, start(problem, x0, key))
        if name == "with an intercept":  # the first refit is on that alone: all steps lead alike
            carry = one_turn(problem, carry)
        x = carry.iterate.x
        gradient = problem.objective.gradient(x, carry.iterate.pred)
        S = carry.state.search.accepted.mask
        entering = problem.constraint.top_k(jnp.where(S, 0, -gradient), 2, None).mask
        candidates = S | entering if isinstance(solver, jaxht.PHT) else None
        step = pursuit.GradientStep(problem.constraint, x, gradient, x, candidates)
        search = dataclasses.replace(
            carry.state.search, halvings=halvings, is_accepted=jnp.array(False)
        )
        search = dataclasses.replace(search, support=step.find(search.halved(halvings)))
        tried = jnp.arange(pursuit.MAX_HALVINGS + 1)
        differs = jax.vmap(lambda h: ~step.find(search.halved(h)).equals(search.support))(tried)
        differs = differs & (tried > halvings) | (tried == pursuit.MAX_HALVINGS)
        return search.next_halvings(step), jnp.argmax(differs)

    ys = jax.random.normal(jax.random.key(3), (96, 16))
    found, expected = compare(ys, jnp.arange(96) % 12)
    np.testing.assert_array_equal(found, expected)
    if name not in ("all", "none"):
        assert len(np.unique(found)) > 3


SHARING = [jaxht.NIHT(), jaxht.HTP(backtrack=True), jaxht.OMPR(), jaxht.HSGHT()]


@pytest.mark.parametrize("solver", SHARING, ids=lambda solver: type(solver).__name__)
def test_designs_stay_shared_under_vmap(solver):
    """A branch that lanes take by themselves does not copy A for each of them."""
    lanes = 48

    def run(y):
        f = jaxht.LeastSquares(A, y)
        return jaxht.solve(f, jaxht.Sparse(K), solver, key=jax.random.key(0))

    text = jax.jit(jax.vmap(run)).lower(jnp.zeros((lanes, N))).as_text()
    assert f"-> tensor<{lanes}x{N}x{D}xf" not in text


def test_looks_of_a_sweep_wait_for_the_end_of_a_step():
    """A try moves nothing, which a look would take for a run that has stopped moving."""

    def ensemble(key, cell):
        def design(key):
            return jaxht.ensembles.gaussian(key, N, D)

        def signal(key):
            return jaxht.ensembles.gaussian_signal(key, D, cell["K"])

        return jaxht.ensembles.planted(key, design, signal)

    def method(objective, cell):
        return jaxht.Sparse(cell["K"], k_max=8), jaxht.NIHT()

    axes = {"solver": ["NIHT"], "K": [4, 8]}
    found = [
        sweep.run(sweep.Recovery(ensemble, {"NIHT": method}, look_every=W), axes, num_trials=24)
        for W in (None, 2)
    ]
    np.testing.assert_array_equal(*(results.success for results in found))
