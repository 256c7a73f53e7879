"""Gradients through a solution: their time over that of the solution, their memory, batches, and a
bilevel problem.

The bilevel problem needs rcv1 in JAXHT_DATA, and is left out where it is not.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxht
from benchmarks.single import d, k, n, problems
from benchmarks.sparse import data_set
from benchmarks.timing import interleaved, report, temporary_bytes

SOLVERS = {"HTP": jaxht.HTP(), "NIHT": jaxht.NIHT(), "IHT": jaxht.IHT(), "the default solver": None}
LANES, NUM_STEPS, TRUSTED = 1000, 100, 500


def main() -> None:
    """Print a table for each part."""
    for name, (objective, _) in problems().items():
        time_of_gradients(name, objective)
    memory()
    batch()
    bilevel()


def total(make: Callable[..., Any], solver: Any, **options: Any) -> Callable[..., jax.Array]:
    """A scalar function of the numbers of a problem: a fixed combination of the coefficients of its
    solution."""
    c = jnp.asarray(np.random.default_rng(1).standard_normal(d), jnp.float32)
    return lambda *numbers: jnp.vdot(
        c, jaxht.solve(make(*numbers), jaxht.Sparse(k), solver, **options).x
    )


def time_of_gradients(name: str, objective: Any) -> None:
    """value_and_grad by the targets, weights and ridge, and by the design as well, over the same
    program without."""
    A, y = jnp.asarray(objective.A), jnp.asarray(objective.y)
    numbers = jnp.float32(1e-2), jnp.ones(n, jnp.float32), y, A
    which = (0, 1, 2) if name == "least squares" else (0, 1)  # labels have no derivatives
    kind = type(objective)

    def make(l2: Any, weights: Any, y: Any, A: Any) -> Any:
        return kind(A, y, l2, mean=True, weights=weights)

    for label, solver in SOLVERS.items():
        function = total(make, solver)
        programs = {
            "value_and_grad, design too": jax.jit(jax.value_and_grad(function, (*which, 3))),
            "value_and_grad": jax.jit(jax.value_and_grad(function, which)),
            "solve": jax.jit(function),
        }
        calls = {
            title: lambda program=program: program(*numbers) for title, program in programs.items()
        }
        seconds = interleaved(calls, repeats=7)
        report(
            f"{name}, n = {n}, d = {d}, k = {k}, {label}",
            seconds,
            baseline="value_and_grad",
            unit="ms",
        )
        for title in list(calls)[:2]:
            print(
                f"  {title} takes {np.median(seconds[title] / seconds['solve']):.2f} times as long as solve"
            )


def memory() -> None:
    """Bytes beside arguments and results of a gradient's program."""
    objective, _ = problems()["least squares"]
    print(
        f"\nmemory of a gradient by the ridge, IHT, n = {n}, d = {d}, k = {k}, bytes at max_steps = 10; 10 000"
    )
    for adjoint in ("implicit", "checkpointed"):
        sizes = []
        for max_steps in (10, 10_000):
            options: dict[str, Any] = {"stop": jaxht.Stop(max_steps=max_steps), "adjoint": adjoint}
            function = total(
                lambda l2: jaxht.LeastSquares(objective.A, objective.y, l2, mean=False),
                jaxht.IHT(),
                **options,
            )
            compiled = jax.jit(jax.grad(function)).lower(jnp.float32(1e-2)).compile()
            sizes.append(temporary_bytes(compiled))
        print(f"  {adjoint:42s} {sizes[0]:12d} {sizes[1]:12d}", flush=True)


def batch() -> None:
    """Gradients of many problems that share a design, under vmap."""
    objective, _ = problems()["least squares"]
    rng = np.random.default_rng(2)
    A, noise = jnp.asarray(objective.A), rng.standard_normal((LANES, n)).astype(np.float32)
    ys, l2 = jnp.asarray(objective.y + noise), jnp.float32(1e-2)
    function = total(lambda l2, y: jaxht.LeastSquares(A, y, l2, mean=False), jaxht.HTP())
    both = jax.jit(jax.vmap(jax.value_and_grad(function, (0, 1)), in_axes=(None, 0)))
    alone = jax.jit(jax.vmap(function, in_axes=(None, 0)))
    calls = {"value_and_grad": lambda: both(l2, ys), "solve": lambda: alone(l2, ys)}
    title = (
        f"least squares by HTP, {LANES} problems under vmap, n = {n}, d = {d}, k = {k}; per problem"
    )
    report(title, interleaved(calls, repeats=3), baseline="solve", per=LANES)


def bilevel() -> None:
    """Gradient steps on the ridge and the weights of samples of a sparse problem, next to the
    solves alone."""
    data = data_set("rcv1_subsets_binary")
    if data is None:
        return
    A, y = data
    rows = np.random.default_rng(3).permutation(A.shape[0])
    held_out, fitted = np.sort(rows[:2000]), np.sort(rows[2000:])
    train, test = jaxht.design(A[fitted]), jaxht.design(A[held_out])
    y_train, y_test = jnp.asarray(y[fitted]), jnp.asarray(y[held_out])
    judge = jaxht.Logistic(test, y_test).prepare()

    def loss(params: Any) -> jax.Array:
        log_l2, logits = params
        weights = jnp.ones(len(fitted), jnp.float32).at[:TRUSTED].set(2 * jax.nn.sigmoid(logits))
        f = jaxht.Logistic(train, y_train, jnp.exp(log_l2), weights=weights)
        x = jaxht.solve(f, jaxht.Sparse(100), jaxht.HTP()).x
        return judge.value(x, judge.predict(x))

    start = jnp.float32(-7.0), jnp.zeros(TRUSTED, jnp.float32)
    with_gradient, alone = jax.jit(jax.value_and_grad(loss)), jax.jit(loss)
    jax.block_until_ready((with_gradient(start), alone(start)))
    begin, params, losses, visited = time.perf_counter(), start, [], []
    for _ in range(NUM_STEPS):
        visited.append(params)
        value, gradient = with_gradient(params)
        params = jax.tree.map(lambda p, g: p - 10.0 * g, params, gradient)
        losses.append(float(value))
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    for params in visited:
        jax.block_until_ready(alone(params))
    baseline = time.perf_counter() - begin
    shape = " x ".join(map(str, A.shape))
    print(
        f"\nrcv1, {shape}, logistic, HTP, k = 100: {NUM_STEPS} steps on the ridge and {TRUSTED} weights of samples"
    )
    print(f"  gradient steps {seconds:10.2f} s   held-out loss {losses[0]:.5f} to {losses[-1]:.5f}")
    print(
        f"  the solves alone {baseline:10.2f} s   {seconds / baseline:.2f} times as long",
        flush=True,
    )


if __name__ == "__main__":
    main()
