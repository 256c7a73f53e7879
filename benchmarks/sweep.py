"""A row of a phase diagram by the engine and by ``jit(vmap(while_loop))`` with ``top_k``, and what
the engine costs."""

import os
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxht
from benchmarks.frozen.pgd_row import pgd_row
from benchmarks.timing import compiling_anew
from jaxht import ensembles, metrics, sweep
from jaxht.runner import advance, prepare, start

n, d, trials, max_steps = 136, 256, 50, 20_000
Ks = list(range(1, 26, 2))
LANES = 32


def ensemble(key: jax.Array, cell: sweep.Cell) -> ensembles.PlantedProblem:
    """Planted problems on one Gaussian A."""
    design, signal = (
        partial(ensembles.gaussian, n=n, d=d),
        partial(ensembles.gaussian_signal, d=d, K=cell["K"]),
    )
    return ensembles.planted(key, design, signal, design_key=cell.key)


def pgd(objective: Any, cell: sweep.Cell) -> tuple[jaxht.Sparse, jaxht.IHT]:
    """PGD with k = 9 K and eta = 2 / sigma_max^2."""
    return jaxht.Sparse(9 * cell["K"]), jaxht.IHT(
        step_size=2 / jnp.linalg.norm(objective.A, 2) ** 2
    )


TRIAL = sweep.Recovery(
    ensemble,
    {"PGD": pgd},
    partial(jaxht.LeastSquares, mean=False),
    jaxht.Stop(max_steps=max_steps),
)


def engine(workers: int | None = os.cpu_count()) -> tuple[float, np.ndarray, sweep.Progress]:
    """Seconds, success counts by K, and the last report of a run."""
    reports: list[sweep.Progress] = []
    axes: dict[str, Any] = {"solver": ["PGD"], "K": Ks}
    begin = time.perf_counter()
    dataset = sweep.run(
        TRIAL, axes, num_trials=trials, shared=[], workers=workers, on_progress=reports.append
    )
    seconds = time.perf_counter() - begin
    return seconds, dataset.success.sum("trial").values.ravel(), reports[-1]


def problems() -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """A, and y, x_true and k of all lanes: those that the engine draws."""
    root = jax.random.key(0)
    shared = jax.random.fold_in(root, sweep.stable_hash({}))

    def draw(K: int) -> ensembles.PlantedProblem:
        key = jax.random.fold_in(root, sweep.stable_hash({"K": K}))
        cell = sweep.Cell({"K": K}, {}, shared)
        axes = ensembles.PlantedProblem(A=None, y=0, x_true=0)  # type: ignore[arg-type]
        return jax.vmap(lambda t: ensemble(jax.random.fold_in(key, t), cell), out_axes=axes)(
            jnp.arange(trials)
        )

    drawn = [draw(K) for K in Ks]
    ys, xs = (
        jnp.concatenate([getattr(problem, name) for problem in drawn]) for name in ("y", "x_true")
    )
    return drawn[0].A, ys, xs, jnp.repeat(9 * jnp.array(Ks), trials)


def frozen() -> tuple[float, np.ndarray]:
    """Seconds and success counts by K of the frozen program, compiled before."""
    A, ys, xs, ks = problems()
    eta = 2 / jnp.linalg.norm(A, 2) ** 2
    call = partial(pgd_row, A, ys, ks, eta, float(jnp.finfo(A.dtype).eps), k_max=9 * max(Ks))
    jax.block_until_ready(call(max_steps=1))
    begin = time.perf_counter()
    x, _ = jax.block_until_ready(call(max_steps=max_steps))
    seconds = time.perf_counter() - begin
    success = jax.vmap(metrics.success)(x, xs)
    return seconds, np.asarray(success).reshape(len(Ks), trials).sum(axis=1)


def bare_seconds(steps: int) -> float:
    """Seconds of so many steps of a block of lanes, by the solver's functions in a loop and nothing
    else."""
    A, ys, _, ks = problems()
    eta = 2 / jnp.linalg.norm(A, 2) ** 2
    # Lanes of all K, as a pool has them on average.
    chosen = np.arange(LANES) * (len(ks) // LANES)
    ys, ks = ys[chosen], ks[chosen]

    def problem(y: jax.Array, k: jax.Array) -> Any:
        stop = jaxht.Stop(max_steps=10**9, rtol=0.0)
        return prepare(
            jaxht.LeastSquares(A, y, mean=False),
            jaxht.Sparse(k),
            jaxht.IHT(step_size=eta),
            stop=stop,
        )[0]

    @jax.jit
    def loop(steps: int) -> Any:
        def one(y: jax.Array, k: jax.Array, carry: Any) -> Any:
            return advance(problem(y, k), carry, 1)

        begin = jax.vmap(lambda y, k: start(problem(y, k), None, None))(ys, ks)
        return lax.fori_loop(0, steps, lambda _, carry: jax.vmap(one)(ys, ks, carry), begin)

    jax.block_until_ready(loop(1))
    begin = time.perf_counter()
    jax.block_until_ready(loop(steps))
    return time.perf_counter() - begin


def product_seconds(steps: int) -> float:
    """Seconds of so many steps of all lanes side by side that are the two products with A of a
    gradient alone."""
    A, ys, _, _ = problems()

    @jax.jit
    def loop(steps: int) -> jax.Array:
        scale = 1 / jnp.linalg.norm(A, 2) ** 2
        return lax.fori_loop(0, steps, lambda _, X: (X @ A.T) @ A * scale, ys @ A)

    jax.block_until_ready(loop(1))
    begin = time.perf_counter()
    jax.block_until_ready(loop(steps))
    return time.perf_counter() - begin


def drawing_seconds() -> float:
    """Seconds of drawing all problems, compiled before."""
    root = jax.random.key(0)

    @jax.jit
    def draw(key: jax.Array, K: jax.Array) -> Any:
        cell = sweep.Cell({"K": K}, {}, root)
        return jax.vmap(lambda t: ensemble(jax.random.fold_in(key, t), cell))(jnp.arange(trials))

    jax.block_until_ready(draw(root, 1))
    begin = time.perf_counter()
    jax.block_until_ready([draw(root, K) for K in Ks])
    return time.perf_counter() - begin


def main() -> None:
    """Print how many times faster the engine is, how well it uses its lanes, and its overhead."""
    print(
        f"\nPGD, n = {n}, d = {d}, K = 1, 3, ..., 25, {trials} signals each, k = 9 K, up to {max_steps} steps, one A"
    )
    with compiling_anew():
        cold, counts, _ = engine()
    turns = [engine()]
    baseline, expected = frozen()
    turns += [engine(), engine()]
    warm = float(np.median([seconds for seconds, _, _ in turns]))
    print(f"  jit(vmap(while_loop)) with top_k       {baseline:8.1f} s     successes {expected}")
    print(f"  jaxht.sweep, compile included          {cold:8.1f} s   {baseline / cold:6.1f}x")
    print(
        f"  jaxht.sweep, again                     {warm:8.1f} s   {baseline / warm:6.1f}x  successes {counts}"
    )
    print(
        f"  lanes in use: {turns[-1][2].utilisation:.1%}; same counts: {bool(np.all(counts == expected))}"
    )
    lanes = len(Ks) * trials
    products = float(np.median([product_seconds(1000) for _ in range(3)])) / (1000 * lanes)
    live = [seconds / progress.busy for seconds, _, progress in turns]
    print(
        f"  a step of a running trial {1e6 * float(np.median(live)):.2f} us, its two products among {lanes} lanes "
        f"{1e6 * products:.2f} us: {float(np.median(live)) / products:.2f}x"
    )

    engine(workers=1)
    overheads = []
    for _ in range(3):
        seconds, _, progress = engine(workers=1)
        bare = bare_seconds(progress.executed // LANES) + drawing_seconds()
        overheads.append((1 - bare / seconds, seconds, bare))
    overhead, seconds, bare = sorted(overheads)[1]
    print(
        f"\none worker: {seconds:.1f} s; its steps in a bare loop and its draws: {bare:.1f} s; the rest {overhead:.1%}"
    )
    print(f"  (all three turns: {', '.join(f'{value:.1%}' for value, _, _ in overheads)})")
