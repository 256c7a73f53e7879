"""What a GPU does with the library, beside what one would write or install instead: every row of
the table of the README in one run, compiling included, in less than eight minutes."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxht
from benchmarks import sweep as pgd_sweep
from jaxht import transforms

LANES = 8192
SHAPE = (128, 256)
K = 12

#: n, d, the number of nonzeros and of signals.
OMP_SHAPES = ((256, 1024, 32, 5000), (8064, 1207, 30, 1200), (512, 2048, 64, 5000))
SMALL_OMP_SHAPE = (200, 256, 16, 1000)

SIZES = (10**7, 10**8, 10**9)


def timed(call: Callable[[], Any], repeats: int = 5) -> tuple[float, float]:
    """Seconds of the first call, and the median of the next ones."""
    begin = time.perf_counter()
    jax.block_until_ready(call())
    first = time.perf_counter() - begin
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - begin)
    return first, float(np.median(seconds))


def planted(n: int, d: int, sparsity: int, lanes: int) -> tuple[jax.Array, jax.Array, np.ndarray]:
    """A Gaussian design, the measurements (lanes, n) of Gaussian signals, and the signals."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((n, d)) / np.sqrt(n)
    signals = np.zeros((lanes, d))
    chosen = np.argsort(rng.random((lanes, d)), axis=1)[:, :sparsity]
    np.put_along_axis(signals, chosen, rng.standard_normal((lanes, sparsity)), axis=1)
    y = signals @ A.T
    return jnp.asarray(A, jnp.float32), jnp.asarray(y, jnp.float32), signals


def recovered(x: Any, signals: np.ndarray) -> float:
    """The share of the signals that are recovered, to 1e-3 of their norm."""
    error = np.linalg.norm(np.asarray(x) - signals, axis=1)
    return float(np.mean(error < 1e-3 * np.linalg.norm(signals, axis=1)))


def selected(x: Any) -> np.ndarray:
    """The entries of each signal that are not errors of others."""
    size = np.abs(np.asarray(x))
    return size > 1e-3 * size.max(axis=1, keepdims=True)


def solver_lanes(A: jax.Array, k: int, solver: Any, stop: Any) -> Callable[[jax.Array], Any]:
    """A compiled function of the measurements of all lanes."""

    def solve(y: jax.Array) -> Any:
        result = jaxht.solve(
            jaxht.LeastSquares(A, y, mean=False), jaxht.Sparse(k), solver, stop=stop
        )
        return result.x, result.num_steps

    return jax.jit(jax.vmap(solve))


def plain_iht(A: jax.Array, step_size: float, max_steps: int) -> Callable[[jax.Array], jax.Array]:
    """What one writes without this library, in the same precision: k is static."""
    product = partial(jnp.matmul, precision=lax.Precision.HIGHEST)

    def solve(y: jax.Array) -> jax.Array:
        def step(carry):
            x, i = carry
            z = x - step_size * product(A.T, product(A, x) - y)
            _, kept = lax.top_k(jnp.abs(z), K)
            return jnp.zeros_like(z).at[kept].set(z[kept]), i + 1

        start = jnp.zeros(A.shape[1], A.dtype), 0
        return lax.while_loop(lambda carry: carry[1] < max_steps, step, start)[0]

    return jax.jit(jax.vmap(solve))


def steps() -> None:
    """Print the time of a step of each solver, of all lanes, and that of its first call."""
    n, d = SHAPE
    A, y, signals = planted(n, d, K, LANES)
    step_size = float(1 / np.linalg.norm(np.asarray(A, np.float64), 2) ** 2)
    print(f"\n{LANES} problems {n} x {d} with one design, K = {K}: time of a step of all of them")
    solvers = {
        "IHT": (jaxht.IHT(step_size=step_size), jaxht.Stop(max_steps=300, rtol=0.0)),
        "NIHT": (jaxht.NIHT(), jaxht.Stop()),
        "NIHT, rtol = 0": (jaxht.NIHT(), jaxht.Stop(max_steps=100, rtol=0.0)),
        "HTP": (jaxht.HTP(), jaxht.Stop()),
        "HTP(backtrack=True)": (jaxht.HTP(backtrack=True), jaxht.Stop()),
        "SubspacePursuit": (jaxht.SubspacePursuit(), jaxht.Stop()),
        "CoSaMP": (jaxht.CoSaMP(), jaxht.Stop()),
        "OMP": (jaxht.OMP(), jaxht.Stop()),
    }
    for name, (solver, stop) in solvers.items():
        call = solver_lanes(A, K, solver, stop)
        first, seconds = timed(partial(call, y))
        x, num_steps = call(y)
        most = int(jnp.max(num_steps))
        print(
            f"  {name:22s} {1e6 * seconds / most:9.1f} us a step, {most:4d} steps, {1e3 * seconds:8.2f} ms; "
            f"first call {first:5.1f} s; recovered {recovered(x, signals):.4f}",
            flush=True,
        )
    call = plain_iht(A, step_size, 300)
    first, seconds = timed(lambda: call(y))
    print(
        f"  {'jit(vmap(while_loop))':22s} {1e6 * seconds / 300:9.1f} us a step of IHT; "
        f"first call {first:5.1f} s; recovered {recovered(call(y), signals):.4f}"
    )


def torch_omp() -> Callable[..., Any] | None:
    """The torch package ``orthogonal-matching-pursuit-gpu``; None where it is not installed."""
    try:
        import torch
        from orthogonal_matching_pursuit_gpu import run_omp
    except ImportError:
        return None

    def call(A: jax.Array, y: jax.Array, sparsity: int) -> Callable[[], Any]:
        design = torch.tensor(np.array(A)).cuda()
        measurements = torch.tensor(np.array(y)).cuda()

        def run():
            x = run_omp(design, measurements, sparsity, fit_intercept=False)
            torch.cuda.synchronize()
            return x

        return run

    return call


def omp() -> None:
    """Print the time of OMP beside that of the torch package."""
    print("\nOMP: signals with one design")
    rival = torch_omp()
    for n, d, sparsity, lanes in (*OMP_SHAPES, SMALL_OMP_SHAPE):
        A, y, signals = planted(n, d, sparsity, lanes)
        call = solver_lanes(A, sparsity, jaxht.OMP(), jaxht.Stop())
        first, seconds = timed(partial(call, y))
        x, _ = call(y)
        text = f"first call {first:5.1f} s; recovered {recovered(x, signals):.4f}"
        if rival is None:
            text += "; the torch package is not installed"
        else:
            run = rival(A, y, sparsity)
            _, theirs = timed(run)
            other = run().cpu().numpy()
            same = np.mean(np.all(selected(other) == selected(x), axis=1))
            text += (
                f"; torch {1e3 * theirs:7.2f} ms: {theirs / seconds:5.2f}x, "
                f"recovered {recovered(other, signals):.4f}, same supports {same:.4f}"
            )
        shape = f"{n} x {d}, K = {sparsity}, {lanes}"
        print(f"  {shape:28s} {1e3 * seconds:8.2f} ms; {text}", flush=True)


def threshold() -> None:
    """Print the time of the global threshold of a training step beside that of one pass over the
    same arrays."""
    print("\nhard_threshold(0.05, scope='global'), float32, beside one pass that reads both trees")
    transform = transforms.hard_threshold(0.05, scope="global")

    @jax.jit
    def step(params, updates):
        return transform.update(updates, transform.init(params), params)[0]

    @jax.jit
    def one_pass(params, updates):
        return jax.tree.map(lambda p, u: jnp.where(jnp.abs(p + u) > 1.96, u, -p), params, updates)

    for size in SIZES:
        shape = (size // 1000, 1000)
        keys = jax.random.split(jax.random.key(0), 2)
        params = {"w": jax.random.normal(keys[0], shape)}
        updates = {"w": 0.01 * jax.random.normal(keys[1], shape)}
        try:
            first, seconds = timed(partial(step, params, updates))
            _, single = timed(partial(one_pass, params, updates))
        except jax.errors.JaxRuntimeError as error:
            print(f"  {size:.0e}: {str(error).splitlines()[0][:100]}")
            continue
        print(
            f"  {size:.0e}: {1e3 * seconds:8.2f} ms, {seconds / single:5.1f} passes of {1e3 * single:.2f} ms; "
            f"first call {first:5.1f} s",
            flush=True,
        )


def phase_row(trials: int = 1000) -> None:
    """Print the time of a row of a phase diagram by the engine and by a plain loop."""
    pgd_sweep.trials = trials
    total = trials * len(pgd_sweep.Ks)
    cold, counts, _ = pgd_sweep.engine(None)
    seconds, counts, report = pgd_sweep.engine(None)
    with jax.default_matmul_precision("highest"):
        baseline, expected = pgd_sweep.frozen()
    print(
        f"\nPGD, {pgd_sweep.n} x {pgd_sweep.d}, {total} trials: {seconds:.2f} s, first {cold:.1f} s, lanes in use "
        f"{report.utilisation:.1%}; jit(vmap(while_loop)) {baseline:.2f} s: {baseline / seconds:.2f}x; "
        f"successes differ by {int(np.abs(counts - expected).sum())}",
        flush=True,
    )


ROWS = {"steps": steps, "omp": omp, "threshold": threshold, "phase_row": phase_row}


def main(names: list[str]) -> None:
    """Print all rows, or those named."""
    device = jax.devices()[0]
    print(f"jax {jax.__version__}, {device.platform} {device.device_kind}")
    begin = time.perf_counter()
    for name in names or ROWS:
        ROWS[name]()
        print(f"  ({name}: {time.perf_counter() - begin:.0f} s since the start)", flush=True)
