"""The first call: what meets the compiler, what a call costs beyond its program, and what the
import does.

Each first call is made in a fresh process and divided by that of a plain loop, written by hand, in
the same process, which cancels the machine. abess and skscope (``pip install abess skscope``) are
left out where they are not installed. ``python -m benchmarks.first_call HTP OMP`` measures the
first calls of these solvers alone.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

# Neither jax nor jaxht: the processes measure their import.

n, d, k, l2 = 500, 1000, 25, 1e-3
NUM_PROCESSES = 3

# A first call over that of the plain loop, by constructor of the solver; at most.
GOALS = {
    "IHT": 3,
    "NIHT": 3,
    "OMP": 5,
    "OLS": 9,
    "HTP": 5,
    "GraSP": 7,
    "SubspacePursuit": 7,
    "OMPR": 7,
    "FoBa": 7,
    "SGHT": 7,
    "SVRGHT": 7,
    "ExhaustiveLocalSearch": 9,
    "DIHT": 9,
    "SDIHT": 9,
    "HSGHT": 9,
    "ARHT": 12,
    "CoSaMP": None,
    "PHT": None,
    "HTSAGA": None,
    "LocalSearch": None,
}
# And at most
CACHED_GOAL = 1.5  # times the plain loop, where both are in the persistent cache
EAGER_GOAL = 3  # times a jitted identity
IMPORT_GOAL = 0.15  # s beyond jax and optax
COMPILES_GOAL = 2  # compiles of 20 plain ints k, and of five folds of a sparse design

LOSSES = ("least squares", "logistic")
RIVALS = (
    "OMP",
    "HTP",
    "ExhaustiveLocalSearch",
    "abess",
    "ScopeSolver",
    "HTPSolver",
    "GraspSolver",
    "OMPSolver",
)

EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",  # or a read of the persistent cache
}


def main() -> None:
    """Print a table for each part, and mark what misses its goal."""
    first_calls(list(GOALS))
    count_compiles()
    seconds = statistics.median(fresh("import_jaxht") for _ in range(5))
    line("import jaxht, beyond jax and optax", f"{seconds:7.3f} s", seconds, IMPORT_GOAL)
    eager = {name: 1e6 * value for name, value in fresh("time_eager").items()}
    text = ", ".join(f"{name} {value:.0f} us" for name, value in eager.items())
    line(
        f"a warm call on a 4 x 4 problem: {text}",
        "",
        eager["solve"] / eager["identity"],
        EAGER_GOAL,
    )
    against_rivals()


def line(label: str, value: str, measured: float, goal: float | None) -> None:
    """One measurement next to its goal."""
    print(f"  {label:60s} {value} {against(measured, goal)}", flush=True)


def against(measured: float, goal: float | None) -> str:
    """A number, its goal, and whether it misses it."""
    return f"{measured:7.2f}" + (
        " " * 10 if goal is None else f" / {goal:<4g}" + ("! " if measured > goal else "  ")
    )


# ---- in this process -----------------------------------------------------------------------------


def fresh(task: str, *arguments: str, cache: str | None = None) -> Any:
    """What a task returns in a process of its own, which reads and writes the cache in a folder, or
    none."""
    env = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    env |= {"PYTHONPATH": str(Path(__file__).parents[1]), "JAX_ENABLE_COMPILATION_CACHE": "0"}
    if cache is not None:
        env |= {"JAX_ENABLE_COMPILATION_CACHE": "1", "JAX_COMPILATION_CACHE_DIR": cache}
        env |= {
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    # By its path, with -P: the package `benchmarks` is not imported, nor does its folder hide other
    # modules.
    command = [sys.executable, "-P", __file__, "--task", task, *arguments]
    output = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(output.splitlines()[-1])


def first_calls(names: list[str]) -> None:
    """First calls of solvers, cold and with a warm persistent cache."""
    print(
        f"\nfirst calls, n = {n}, d = {d}, k = {k}, float32, medians of {NUM_PROCESSES} processes: seconds, of which"
    )
    print(
        "parts (rest: checks, and a run of one step), and over those of a plain loop; cached: in a later process"
    )
    for loss in LOSSES:
        parts = "".join(f"{part:>8s}" for part in ("first", *EVENTS.values(), "rest", "plain"))
        print(f"\n{loss:24s}{parts}   ratio / goal")
        for name in names:
            row(
                name,
                [fresh("time_first_call", loss, name) for _ in range(NUM_PROCESSES)],
                GOALS[name],
            )
            with tempfile.TemporaryDirectory() as folder:
                fresh("time_first_call", loss, name, cache=folder)
                runs = [
                    fresh("time_first_call", loss, name, cache=folder) for _ in range(NUM_PROCESSES)
                ]
            row("  cached", runs, CACHED_GOAL)


def row(label: str, runs: list[dict[str, float]], goal: float | None) -> None:
    """Medians of first calls, and of their ratios."""
    parts = "".join(f"{statistics.median(run[part] for run in runs):8.2f}" for part in runs[0])
    ratio = statistics.median(run["first"] / run["plain"] for run in runs)
    print(f"{label:24s}{parts} {against(ratio, goal)}", flush=True)


def count_compiles() -> None:
    """Compiles that numbers of a call cause."""
    print("\ncompiles, without those of less than 0.1 s")
    for label, task, arguments, goal in (
        ("HTP, plain ints k = 1, 2, ..., 20", "count_ints", ("1", "21", "1"), COMPILES_GOAL),
        ("HTP, plain ints k = 25, 50, ..., 500", "count_ints", ("25", "501", "25"), None),
        (
            "HTP, five folds of a sparse design, 55 000 entries each",
            "count_folds",
            (),
            COMPILES_GOAL,
        ),
    ):
        seconds = fresh(task, *arguments)
        long = [s for s in seconds if s >= 0.1]
        line(label, f"{sum(long):7.1f} s (and {len(seconds) - len(long)} short)", len(long), goal)


def against_rivals() -> None:
    """Import and first fit, next to abess and skscope."""
    print(
        f"\nleast squares, n = {n}, d = {d}, k = {k}, in a fresh process, medians of {NUM_PROCESSES}"
    )
    print(f"  {'':34s}{'import':>10s}{'first fit':>10s}{'both':>10s}{'later fit':>10s}   f")
    for name in RIVALS:
        with tempfile.TemporaryDirectory() as folder:
            for cache in (None, folder) if name in GOALS else (None,):
                if cache is not None:
                    fresh("time_fit", name, cache=cache)
                runs = [fresh("time_fit", name, cache=cache) for _ in range(NUM_PROCESSES)]
                label = (
                    f"jaxht {name}"
                    if name in GOALS
                    else f"skscope {name}"
                    if "Solver" in name
                    else name
                )
                if runs[0] is None:
                    print(f"  {label}: not installed, left out", flush=True)
                    continue
                imported, first, later, value = (
                    statistics.median(column) for column in zip(*runs, strict=True)
                )
                seconds = "".join(f"{s:8.3f} s" for s in (imported, first, imported + first, later))
                print(
                    f"  {label + ', cached' * (cache is not None):34s}{seconds}   {value:.3f}",
                    flush=True,
                )


# ---- in a process of its own ---------------------------------------------------------------------


def problem(loss: str) -> tuple[np.ndarray, np.ndarray]:
    """A and y. Gaussian design, correlated by 0.3, and noise."""
    rng = np.random.default_rng(0)
    A = (
        np.sqrt(0.7) * rng.standard_normal((n, d)) + np.sqrt(0.3) * rng.standard_normal((n, 1))
    ).astype(np.float32)
    truth = np.zeros(d, np.float32)
    truth[rng.choice(d, k, replace=False)] = rng.choice([-1, 1], k) * rng.uniform(0.5, 2, k)
    u = A @ truth
    if loss == "logistic":
        return A, np.where(rng.random(n) < 1 / (1 + np.exp(-u)), 1, -1).astype(np.float32)
    return A, (u + rng.standard_normal(n)).astype(np.float32)


def time_plain(loss: str, A: Any, y: Any) -> float:
    """Seconds of the first call of a loop of iterative hard thresholding, as one writes it."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    @jax.jit
    def iht(A: jax.Array, y: jax.Array, step_size: float, num_steps: int) -> jax.Array:
        def gradient(x: jax.Array) -> jax.Array:
            if loss == "logistic":
                return A.T @ (-y * jax.nn.sigmoid(-y * (A @ x))) / n + l2 * x
            return A.T @ (A @ x - y)

        def step(carry: tuple[Any, Any]) -> tuple[Any, Any]:
            x, t = carry
            z = x - step_size * gradient(x)
            _, indices = lax.top_k(jnp.abs(z), k)
            return jnp.zeros_like(z).at[indices].set(z[indices]), t + 1

        return lax.while_loop(lambda carry: carry[1] < num_steps, step, (jnp.zeros(d), 0))[0]

    begin = time.perf_counter()
    jax.block_until_ready(iht(A, y, 1e-4, 1))
    return time.perf_counter() - begin


def time_first_call(loss: str, name: str) -> dict[str, float]:
    """Seconds of a solver's first call, of its parts, and of the plain loop's first call."""
    import jax
    import jax.numpy as jnp

    import jaxht

    A, y = (jnp.asarray(array) for array in problem(loss))
    solver = getattr(jaxht, name)()
    key = jax.random.key(0) if solver.needs_key else None
    # What the process pays once, whatever it compiles first, such as the start of LLVM.
    jax.block_until_ready(jax.jit(lambda x: jnp.sum(jnp.sin(x)))(jnp.ones(3)))
    # The loop goes first. Where compiles are cached it is a third faster after another program,
    # which would raise the ratio; the solver's call takes as long after the loop as before it, as
    # far as can be measured.
    plain = time_plain(loss, A, y)
    spans = record_spans()
    begin = time.perf_counter()
    ridge = l2 if loss == "logistic" or isinstance(solver, jaxht.DIHT | jaxht.SDIHT) else 0.0
    objective = (jaxht.LeastSquares if loss == "least squares" else jaxht.Logistic)(A, y, ridge)
    # One step, since the limit is traced: the same program as that of a whole run, which is not
    # measured here.
    stop = jaxht.Stop(max_steps=1)
    jax.block_until_ready(jaxht.solve(objective, jaxht.Sparse(k), solver, stop=stop, key=key))
    first = time.perf_counter() - begin
    parts = {part: covered(spans[part]) for part in spans}
    rest = first - sum(parts.values())
    return {"first": first, **parts, "rest": rest, "plain": plain}


def record_spans() -> dict[str, list[tuple[float, float]]]:
    """Begin and end of what JAX traces, lowers and compiles from now on, in the order in which they
    end."""
    import jax

    spans: dict[str, list[tuple[float, float]]] = {part: [] for part in EVENTS.values()}

    def listen(event: str, seconds: float, **_: Any) -> None:
        if event in EVENTS:
            now = time.perf_counter()
            spans[EVENTS[event]].append((now - seconds, now))

    jax.monitoring.register_event_duration_secs_listener(listen)  # type: ignore[arg-type]
    return spans


def covered(spans: list[tuple[float, float]]) -> float:
    """Seconds in one span at least: a trace holds those of the functions that it calls."""
    total, until = 0.0, 0.0
    for begin, end in sorted(spans):
        total += max(end - max(begin, until), 0.0)
        until = max(until, end)
    return total


def count_ints(*bounds: str) -> list[float]:
    """Seconds of the compiles that plain ints k in a range cause."""
    import jax

    import jaxht

    objective = jaxht.LeastSquares(*problem("least squares"), l2, mean=False)
    spans = record_spans()
    for size in range(*map(int, bounds)):
        stop = jaxht.Stop(max_steps=1)
        jax.block_until_ready(jaxht.solve(objective, jaxht.Sparse(size), jaxht.HTP(), stop=stop))
    return [end - begin for begin, end in spans["compile"]]


def count_folds() -> list[float]:
    """Seconds of the compiles that the folds of a sparse design cause, whose numbers of entries
    differ."""
    import jax
    import scipy.sparse

    import jaxht

    rng, rows = np.random.default_rng(0), 5 * n // 4
    A = np.where(rng.random((rows, d)) < 0.11, rng.standard_normal((rows, d)), 0).astype(np.float32)
    y = rng.standard_normal(rows).astype(np.float32)
    spans = record_spans()
    for fold in range(5):
        train = np.arange(rows) % 5 != fold
        objective = jaxht.LeastSquares(
            jaxht.design(scipy.sparse.csr_array(A[train])), y[train], l2, mean=False
        )
        stop = jaxht.Stop(max_steps=1)
        jax.block_until_ready(jaxht.solve(objective, jaxht.Sparse(k), jaxht.HTP(), stop=stop))
    return [end - begin for begin, end in spans["compile"]]


def import_jaxht() -> float:
    """Seconds of the import, where jax and optax are there."""
    import jax  # noqa: F401
    import optax  # noqa: F401

    begin = time.perf_counter()
    import jaxht  # noqa: F401

    return time.perf_counter() - begin


def time_eager() -> dict[str, float]:
    """Seconds of a warm call, of its parts, and of a jitted identity on what the program takes."""
    import jax
    import jax.numpy as jnp

    import jaxht
    from benchmarks.timing import interleaved
    from jaxht.extend import prepare

    arguments = (
        jaxht.LeastSquares(jnp.eye(4), jnp.ones(4), mean=False),
        jaxht.Sparse(2),
        jaxht.IHT(step_size=1.0),
    )
    prepared = prepare(*arguments)
    identity = jax.jit(lambda *prepared: prepared)
    calls = {
        "identity": lambda: identity(*prepared),
        "prepare": lambda: prepare(*arguments),
        "solve": lambda: jaxht.solve(*arguments),
    }
    return {
        name: float(np.median(seconds)) for name, seconds in interleaved(calls, repeats=301).items()
    }


def time_fit(name: str) -> tuple[float, float, float, float] | None:
    """Seconds of the import, of the first and of the second fit, and the objective; None if it is
    not installed."""
    A, y = problem("least squares")
    begin = time.perf_counter()
    try:
        fit = fits(name, A, y)
        next(fit)
    except ImportError:
        return None
    times = [time.perf_counter()]
    for _ in range(2):
        x = next(fit)
        times.append(time.perf_counter())
    residual = A.astype(np.float64) @ x - y
    imported, first, later = np.diff([begin, *times])
    return imported, first, later, float(residual @ residual / 2)


def fits(name: str, A: np.ndarray, y: np.ndarray) -> Iterator[Any]:
    """Import a library, and then fit again and again."""
    if name == "abess":
        from abess.linear import LinearRegression

        yield
        while True:
            yield LinearRegression(support_size=k, fit_intercept=False).fit(A, y).coef_
    if name in GOALS:
        import jaxht

        yield
        while True:
            yield np.asarray(
                jaxht.solve(
                    jaxht.LeastSquares(A, y, mean=False), jaxht.Sparse(k), getattr(jaxht, name)()
                ).x
            )
    import jax.numpy as jnp
    import skscope

    yield
    on_device = jnp.asarray(A), jnp.asarray(y)
    while True:
        make = getattr(skscope, name)
        yield make(d, k).solve(
            lambda x: jnp.sum((on_device[0] @ x - on_device[1]) ** 2) / 2, jit=True
        )


TASKS = {
    task.__name__: task
    for task in (time_first_call, count_ints, count_folds, import_jaxht, time_eager, time_fit)
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--task"]:
        print(json.dumps(TASKS[sys.argv[2]](*sys.argv[3:])))
    elif sys.argv[1:]:
        first_calls(sys.argv[1:])
    else:
        main()
