"""Tries of a step are turns of the run's loop: no lane waits for the tries of another, and neither
its steps nor its counts depend on them."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from jaxht import sweep
from jaxht.extend import advance, prepare, start
from jaxht.runner import one_turn

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


def test_lanes_that_try_often_change_nothing_beside_them():
    """The same program on a lane beside others, and beside copies of itself."""
    run = jax.jit(jax.vmap(lambda y: solve(y, jaxht.NIHT())))
    together = run(Y)
    tries = np.array(together.counts.full_gradients - together.num_steps)
    assert tries.max() > 20 + tries.min()
    for i in (tries.argmin(), tries.argmax()):
        alone = run(jnp.broadcast_to(Y[i], Y.shape))
        np.testing.assert_array_equal(together.x[i], alone.x[0])
        assert int(together.status[i]) == int(alone.status[0])
        assert int(together.num_steps[i]) == int(alone.num_steps[0])
        counts = [
            (int(r.counts.full_gradients[j]), int(r.counts.projections[j]))
            for r, j in ((together, i), (alone, 0))
        ]
        assert counts[0] == counts[1]


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


def test_a_step_has_no_loop_of_tries():
    """No other loops than those of a projection."""
    solver = jaxht.NIHT()
    problem, x0, key = problem_of(Y[0], solver)
    carry = start(problem, x0, key)

    def step(problem, carry):
        return solver.step(problem.objective, problem.constraint, carry.iterate, carry.state)

    project = jax.make_jaxpr(lambda z: problem.constraint.project(z))(carry.iterate.x)
    loops = count_loops(jax.make_jaxpr(step)(problem, carry))
    assert loops == count_loops(project)


def test_designs_stay_shared_under_vmap():
    """A branch that lanes take by themselves does not copy A for each of them."""
    lanes = 64

    def step(y):
        problem, x0, key = problem_of(y, jaxht.NIHT())
        return one_turn(problem, start(problem, x0, key))

    text = jax.jit(jax.vmap(step)).lower(jnp.zeros((lanes, N))).as_text()
    assert f"tensor<{lanes}x{N}x{D}x" not in text


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
